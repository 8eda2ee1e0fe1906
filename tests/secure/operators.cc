/* A program that is not position-independent and takes an operator's address: to the library the operator looks like
 * one of the program's own. new[] and delete[] work in secure mode, too, which tells them from new and delete
 * elsewhere. */
/* SPDX-License-Identifier: MIT */
#include <cstdio>
#include <new>

using New = void *(*)(std::size_t);
using Delete = void (*)(void *) noexcept;

/* Before all constructors, the library's too. */
static int *early;
static void begin() { early = new int[100]; }
__attribute__((section(".preinit_array"), used)) static void (*const begin_at)() = begin;

int main() {
#ifdef OPERATORS_NEW
    volatile auto take = static_cast<New>(::operator new);
#else
    auto take = [](std::size_t bytes) { return ::operator new(bytes); };
#endif
#ifdef OPERATORS_DELETE
    volatile auto give = static_cast<Delete>(::operator delete);
#else
    auto give = [](void *p) { ::operator delete(p); };
#endif
    delete[] early;
    give(take(10));
    int *volatile array = new int[100];
    delete[] array;
    int *volatile one = new int;
    delete one;
    puts("ok");
    return 0;
}
