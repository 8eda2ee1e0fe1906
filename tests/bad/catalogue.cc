/* A catalogue of small memory errors: every kind with nine sizes of blocks, in the shape that such errors have in
 * programs. It knows nothing of the allocator, so that it compares them.
 *
 *   catalogue              runs all, each in its own process, and prints for each kind the sizes whose error was told
 *   catalogue --compare L  runs all under libc and under the library L in both modes, and prints a table
 *   catalogue KIND N       runs one of them with blocks of N bytes
 *
 * An error counts as told if a signal ends the program, if anything is printed on stderr, or if the error had no
 * effect: what was read was not the block's old contents (status 42). */
/* SPDX-License-Identifier: MIT */
#include <malloc.h>
#include <sys/resource.h>

#include <new>
#include <thread>

#include "../support.h"

namespace {

constexpr char kSecret = 0x5a;
constexpr int kNoEffect = 42;

char *live(size_t size) { return static_cast<char *>(memset(hidden(malloc(size)), kSecret, size)); }
/* Changes every byte, in ascending order, so that no byte is by chance as it was. */
void alter(char *at, size_t count) {
    for (size_t i = 0; i < count; i++)
        const_cast<volatile char *>(at)[i] = static_cast<char>(~at[i]);
}
/* Whether a freed block still has what it had. A few words may be the allocator's. */
int has_secret(const char *block, size_t size) {
    size_t kept = 0;
    for (size_t i = 0; i < size; i++)
        kept += const_cast<const volatile char *>(block)[i] == kSecret;
    return kept > size / 4 ? 0 : kNoEffect;
}

/* Blocks beside which the error happens, freed in this order afterwards: the block itself, then those around it. */
template <typename Error> int beside(size_t size, Error error) {
    char *before = live(size), *block = live(size), *behind = live(size);
    error(block);
    free(block);
    free(behind);
    free(before);
    return 0;
}
template <size_t count> int overflow(size_t size) {
    return beside(size, [&](char *block) { alter(block + size, count); });
}
template <size_t count> int underflow(size_t size) {
    return beside(size, [&](char *block) { alter(block - count, count); });
}
/* The program ends with the block in use. */
template <size_t count> int overflow_kept(size_t size) {
    alter(live(size) + size, count);
    return 0;
}
template <size_t count> int underflow_kept(size_t size) {
    alter(live(size) - count, count);
    return 0;
}
/* One byte, some way off. */
template <ptrdiff_t off> int stray_write(size_t size) {
    return beside(size, [&](char *block) { alter(off < 0 ? block + off : block + size + off - 1, 1); });
}

/* ---- use after free ---- */

enum Where { kStart, kMiddle, kEnd };
template <Where where> char *place(char *block, size_t size) {
    return where == kStart ? block : where == kMiddle ? block + size / 2 / 8 * 8 : block + size - 8;
}
template <Where where> int write_after_free(size_t size) {
    char *block = live(size);
    free(block);
    alter(place<where>(block, size), 8);
    return 0;
}
template <Where where> int write_after_free_and_malloc(size_t size) {
    char *block = live(size);
    free(block);
    alter(place<where>(block, size), 8);
    for (int i = 0; i < 4; i++)
        live(size);
    return 0;
}
int read_after_free(size_t size) {
    char *block = live(size);
    free(block);
    return has_secret(block, size);
}
int old_contents(size_t size) {
    free(live(size));
    return has_secret(hidden(malloc(size)), size);
}
int use_after_realloc(size_t size) {
    char *block = live(size), *behind = live(size), *moved = hidden(realloc(block, 3 * size));
    if (moved == block) /* nothing is wrong then */
        return kNoEffect;
    alter(block + size / 2, 8);
    free(behind);
    return 0;
}
int double_free_after_realloc(size_t size) {
    char *block = live(size), *behind = live(size), *moved = hidden(realloc(block, 3 * size));
    free(block);
    free(behind);
    if (moved == block)
        free(moved);
    return 0;
}
int reused_after_realloc(size_t size) {
    char *block = live(size), *behind = live(size), *moved = hidden(realloc(block, 3 * size));
    char *next = hidden(malloc(size));
    bool again = next == block;
    free(behind);
    free(moved);
    return again ? 0 : kNoEffect;
}

/* ---- frees ---- */

int double_free(size_t size) {
    char *block = live(size);
    free(block);
    free(block);
    return 0;
}
int double_free_after_others(size_t size) {
    char *block = live(size), *second = live(size), *third = live(size);
    free(block);
    free(second);
    free(third);
    free(block);
    return 0;
}
int double_free_in_thread(size_t size) {
    char *block = live(size);
    free(block);
    std::thread([&] { free(block); }).join();
    return 0;
}
int free_interior(size_t size) {
    free(live(size) + size / 2 / 16 * 16 + 8);
    return 0;
}
int free_stack(size_t) {
    alignas(64) char array[256] = "";
    free(hidden(array + 64));
    return 0;
}
int free_foreign(size_t) {
    free(hidden(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + 4096);
    return 0;
}
int delete_smaller(size_t size) {
    ::operator delete(hidden(::operator new(size)), size / 2);
    return 0;
}
int delete_slightly_smaller(size_t size) {
    ::operator delete(hidden(::operator new(size)), size - 8);
    return 0;
}
int array_by_delete(size_t size) {
    ::operator delete(hidden(::operator new[](size)));
    return 0;
}

/* ---- the table ---- */

const size_t all[] = {24, 100, 500, 1500, 5000, 20000, 70000, 300000, 3000000};
struct Kind {
    const char *name;
    int (*run)(size_t size);
    bool one_size; /* no size matters */
} const kinds[] = {
    {"overflow by 1", overflow<1>, false},
    {"overflow by 8", overflow<8>, false},
    {"overflow by 32", overflow<32>, false},
    {"overflow by 1 MB", overflow<1000000>, false},
    {"overflow by 1, block kept", overflow_kept<1>, false},
    {"overflow by 32, block kept", overflow_kept<32>, false},
    {"overflow by 1 MB, block kept", overflow_kept<1000000>, false},
    {"underflow by 1", underflow<1>, false},
    {"underflow by 8", underflow<8>, false},
    {"underflow by 32", underflow<32>, false},
    {"underflow by 1, block kept", underflow_kept<1>, false},
    {"underflow by 32, block kept", underflow_kept<32>, false},
    {"one byte 32 behind", stray_write<32>, false},
    {"one byte 32 before", stray_write<-32>, false},
    {"write after free, start", write_after_free<kStart>, false},
    {"write after free, middle", write_after_free<kMiddle>, false},
    {"write after free, end", write_after_free<kEnd>, false},
    {"write after free, start, malloc", write_after_free_and_malloc<kStart>, false},
    {"write after free, middle, malloc", write_after_free_and_malloc<kMiddle>, false},
    {"write after free, end, malloc", write_after_free_and_malloc<kEnd>, false},
    {"read after free", read_after_free, false},
    {"old contents in a new block", old_contents, false},
    {"write after realloc", use_after_realloc, false},
    {"free after realloc", double_free_after_realloc, false},
    {"block reused after realloc", reused_after_realloc, false},
    {"double free", double_free, false},
    {"double free after others", double_free_after_others, false},
    {"double free in another thread", double_free_in_thread, false},
    {"free of an interior address", free_interior, false},
    {"free of the stack", free_stack, true},
    {"free of foreign memory", free_foreign, true},
    {"delete with half the size", delete_smaller, false},
    {"delete with 8 bytes less", delete_slightly_smaller, false},
    {"delete of new[]", array_by_delete, false},
};

bool is_told(const Outcome &outcome) {
    return outcome.exited(kNoEffect) || !outcome.err.empty() ||
           (WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) != SIGALRM);
}

std::vector<size_t> sizes_of(const Kind &kind) {
    return kind.one_size ? std::vector<size_t>{all[0]} : std::vector<size_t>(std::begin(all), std::end(all));
}

bool is_told(const Kind &kind, size_t size, const std::vector<std::string> &environment) {
    return is_told(run_self({kind.name, std::to_string(size)}, environment));
}

int run_all() {
    size_t told = 0, count = 0;
    for (const Kind &kind : kinds) {
        printf("%-34s", kind.name);
        for (size_t size : sizes_of(kind)) {
            bool is = is_told(kind, size, {});
            printf(" %8s", is ? std::to_string(size).c_str() : "-");
            told += is;
            count++;
        }
        printf("\n");
    }
    printf("%zu of %zu\n", told, count);
    return 0;
}

int compare(const std::string &library) {
    const std::vector<std::string> modes[] = {
        {"LD_PRELOAD=" + library, "HAKMEM_SECURE=0"}, {"LD_PRELOAD=" + library, "HAKMEM_SECURE=1"}, {"LD_PRELOAD="}};
    size_t sum[3] = {0, 0, 0}, count = 0;
    printf("| told, of each kind's sizes | of | default | secure | libc |\n|---|---:|---:|---:|---:|\n");
    for (const Kind &kind : kinds) {
        size_t told[3] = {0, 0, 0};
        for (size_t size : sizes_of(kind)) {
            count++;
            for (int mode = 0; mode < 3; mode++)
                told[mode] += is_told(kind, size, modes[mode]);
        }
        printf("| %s | %zu | %zu | %zu | %zu |\n", kind.name, sizes_of(kind).size(), told[0], told[1], told[2]);
        for (int mode = 0; mode < 3; mode++)
            sum[mode] += told[mode];
    }
    printf("| all | %zu | %zu | %zu | %zu |\n", count, sum[0], sum[1], sum[2]);
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 1)
        return run_all();
    if (argc == 3 && strcmp(argv[1], "--compare") == 0)
        return compare(argv[2]);
    for (const Kind &kind : kinds)
        if (argc == 3 && strcmp(kind.name, argv[1]) == 0)
            return kind.run(strtoul(argv[2], nullptr, 10));
    return 1;
}
