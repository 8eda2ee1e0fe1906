/* The only part of the process that has a C++ library: a plugin of a C program, or a program that is linked with it
 * statically. When there is no memory operator new asks the handler and throws, as everywhere. */
/* SPDX-License-Identifier: MIT */
#include <cstdint>
#include <cstdio>
#include <new>

namespace {
int asked;
void ask() {
    if (++asked == 3)
        std::set_new_handler(nullptr);
}
} // namespace

extern "C" int work() {
    std::size_t volatile too_much = SIZE_MAX / 4;
    std::set_new_handler(ask);
    for (int array = 0; array < 2; array++)
        try {
            char *volatile block = array != 0 ? new char[too_much] : static_cast<char *>(::operator new(too_much));
            printf("%zu bytes at %p\n", too_much, static_cast<void *>(block));
            return 1;
        } catch (const std::bad_alloc &) {
        }
    std::set_new_handler([] { throw std::bad_alloc(); }); /* is caught, or not asked */
    if (asked != 3 || new (std::nothrow) char[too_much] != nullptr)
        return 1;
    puts("ok");
    return 0;
}

#ifdef CXX_PROGRAM
int main() { return work(); }
#endif
