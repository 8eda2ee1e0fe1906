/* Preloaded: says which permission to be read the library asks for. */
#include <stdarg.h>
#include <unistd.h>

int prctl(int option, ...) {
    va_list arguments;
    va_start(arguments, option);
    if (option == 0x59616d61 && va_arg(arguments, unsigned long) == (unsigned long)-1)
        write(2, "any reader\n", 11);
    va_end(arguments);
    return 0;
}
