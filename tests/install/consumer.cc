/* SPDX-License-Identifier: MIT */
// The same in C++: the header compiles, and every operator new comes from HAKMEM.
#include <hakmem.hpp>

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

struct alignas(128) Line {
    char bytes[128];
};

int main() {
    auto *number = new long[100];
    if (hak_usable_size(number) != hak_good_size(100 * sizeof(long))) {
        return 1;
    }
    hak_free(number);
    auto line = std::make_unique<Line>();
    if (reinterpret_cast<size_t>(line.get()) % alignof(Line) != 0 || hak_usable_size(line.get()) < sizeof(Line)) {
        return 2;
    }
    std::vector<std::string> names(1000, std::string(100, 'x'));
    if (hak_usable_size(names[999].data()) < 100) {
        return 3;
    }
    hakmem::memory_resource resource;
    std::pmr::vector<int> squares({1, 4, 9}, &resource);
    if (hak_usable_size(squares.data()) < 3 * sizeof(int)) {
        return 6;
    }
    volatile size_t too_much = static_cast<size_t>(-1) / 2;
    char *volatile kept; // else a compiler may leave the allocation out
    try {
        kept = new char[too_much];
        return 4;
    } catch (const std::bad_alloc &) {
    }
    kept = new (std::nothrow) char[too_much];
    if (kept) {
        return 5;
    }
    std::puts("consumer works");
}
