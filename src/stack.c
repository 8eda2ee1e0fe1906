/* placeholder */
#include "stack.h"
unsigned stack_capture(uintptr_t *callers, unsigned most) {
    (void)most;
    callers[0] = (uintptr_t)__builtin_return_address(0);
    return 1;
}
bool stack_module(uintptr_t address, const char **path, uintptr_t *base) {
    (void)address;
    *path = "";
    *base = 0;
    return true;
}
