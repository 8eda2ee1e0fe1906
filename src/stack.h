#ifndef HAK_STACK_H
#define HAK_STACK_H
#include "base.h"
unsigned stack_capture(uintptr_t *callers, unsigned most);
bool stack_module(uintptr_t address, const char **path, uintptr_t *base);
#endif
