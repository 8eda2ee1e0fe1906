/* SPDX-License-Identifier: MIT */
// Checks that a preloaded allocator is the malloc in use and that it works: `probe LIBRARY…` exits with 0, or says in
// one line what is wrong. A line and status 0 means a shortcoming that few programs meet.
//  1. Every entry point, as the dynamic linker finds it, lies in one of the libraries.
//  2. Blocks are aligned, as large as malloc_usable_size says, zero from calloc, and keep their bytes in realloc.
//     Alignments up to 1 MiB that aligned_alloc or posix_memalign does not provide from the start are shortcomings.
//  3. Four threads fill, grow and free blocks, and free each other's.
//  4. A forked child allocates, alone and with threads of its own.

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

enum : unsigned { THREADS = 4, SLOTS = 512, STEPS = 50000 };

static const char *const entry_points[] = {
    "malloc", "free",  "calloc", "realloc", "posix_memalign", "aligned_alloc", "malloc_usable_size",
    "_Znwm",  "_Znam", "_ZdlPv", "_ZdaPv"};

struct block {
    unsigned char *bytes;
    size_t size;
    unsigned char mark;
};

static struct block shared_slots[SLOTS];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

static void check(bool good, const char *what) {
    if (!good) {
        dprintf(STDOUT_FILENO, "%s\n", what);
        _exit(1);
    }
}

static void check_origin(const char *name, int count, char **libraries) {
    Dl_info info;
    void *address = dlsym(RTLD_DEFAULT, name);
    check(address != nullptr && dladdr(address, &info) != 0, name);
    char *file = realpath(info.dli_fname, nullptr);
    bool found = false;
    for (int i = 0; i < count; i++) {
        char *library = realpath(libraries[i], nullptr);
        found |= library != nullptr && file != nullptr && strcmp(library, file) == 0;
        free(library);
    }
    if (!found) {
        dprintf(STDOUT_FILENO, "%s is that of %s\n", name, info.dli_fname);
        _exit(1);
    }
    free(file);
}

// Without the rseq area, Google's tcmalloc works per thread and more slowly: then it isn't what should be measured.
static void check_per_cpu() {
    bool (*active)() =
        reinterpret_cast<bool (*)()>(dlsym(RTLD_DEFAULT, "MallocExtension_Internal_GetPerCpuCachesActive"));
    check(active == nullptr || active(), "tcmalloc's per-CPU mode is off");
}

static void check_blocks() {
    for (size_t size = 1; size < 8 << 20; size += size / 2 + 1) {
        unsigned char *bytes = static_cast<unsigned char *>(malloc(size));
        check(bytes != nullptr && reinterpret_cast<uintptr_t>(bytes) % (size < 16 ? 8 : 16) == 0, "malloc: misaligned");
        check(malloc_usable_size(bytes) >= size, "malloc_usable_size: less than asked for");
        memset(bytes, 0x5a, size);
        bytes = static_cast<unsigned char *>(realloc(bytes, size * 2));
        check(bytes != nullptr && bytes[0] == 0x5a && bytes[size - 1] == 0x5a, "realloc: bytes are lost");
        free(bytes);
        bytes = static_cast<unsigned char *>(calloc(size, 3));
        check(bytes != nullptr && bytes[0] == 0 && memcmp(bytes, bytes + 1, size * 3 - 1) == 0, "calloc: not zero");
        free(bytes);
        operator delete(operator new(size));
        operator delete[](operator new[](size));
    }
}

static void find_shortcomings() {
    for (size_t alignment = 16; alignment <= 1 << 20; alignment *= 2) {
        void *bytes = nullptr;
        if (posix_memalign(&bytes, alignment, 100) != 0 || reinterpret_cast<uintptr_t>(bytes) % alignment != 0) {
            dprintf(STDOUT_FILENO, "posix_memalign does not keep an alignment of %zu\n", alignment);
            return;
        }
        free(bytes);
        bytes = aligned_alloc(alignment, alignment * 2);
        if (bytes == nullptr || reinterpret_cast<uintptr_t>(bytes) % alignment != 0) {
            dprintf(STDOUT_FILENO, "aligned_alloc does not keep an alignment of %zu\n", alignment);
            return;
        }
        free(bytes);
    }
}

static void check_block(const struct block *block) {
    for (size_t i = 0; i < block->size; i += 97) {
        check(block->bytes[i] == block->mark, "a block lost its bytes in the stress run");
    }
}

static void *stress(void *seed) {
    uint64_t state = reinterpret_cast<uintptr_t>(seed) * 0x9e3779b97f4a7c15ULL;
    for (unsigned step = 0; step < STEPS; step++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        unsigned draw = static_cast<unsigned>(state >> 33);
        size_t size = 1 + draw % (draw % 64 == 0 ? 100000 : 1000);
        struct block block = {static_cast<unsigned char *>(malloc(size)), size, static_cast<unsigned char>(draw >> 8)};
        check(block.bytes != nullptr, "malloc: no memory in the stress run");
        memset(block.bytes, block.mark, size);
        if (draw % 8 == 0) {
            block.bytes = static_cast<unsigned char *>(realloc(block.bytes, size * 2));
            check(block.bytes != nullptr, "realloc: no memory in the stress run");
        }
        pthread_mutex_lock(&slots_lock);
        struct block *slot = &shared_slots[(draw >> 16) % SLOTS];
        struct block old = *slot;
        *slot = block;
        pthread_mutex_unlock(&slots_lock);
        check_block(&old);
        free(old.bytes);
    }
    return nullptr;
}

static void check_threads() {
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        check(pthread_create(&threads[i], nullptr, stress, reinterpret_cast<void *>(i + 1UL)) == 0, "no thread");
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], nullptr);
    }
}

static void check_fork() {
    pid_t child = fork();
    check(child >= 0, "fork: failed");
    if (child == 0) {
        alarm(20); // a child that hangs has failed
        check_blocks();
        check_threads();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    check(status == 0, "the forked child failed");
}

int main(int count, char **libraries) {
    for (const char *name : entry_points) {
        check_origin(name, count - 1, libraries + 1);
    }
    find_shortcomings();
    check_blocks();
    check_per_cpu();
    check_threads();
    check_fork();
    return 0;
}
