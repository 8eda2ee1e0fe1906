/* Running out of memory: RLIMIT_AS, RLIMIT_DATA, locked memory, mappings, a memory cgroup, overcommit. Each case starts
 * this program again under the limit: it gets almost everything the limit allows, then NULL with ENOMEM, and goes on
 * after freeing. If it fails, programs under `ulimit -v`, in locked memory or in containers die although there is
 * memory. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/resource.h>

#include <new>

#include "../support.h"

namespace {

[[noreturn]] __attribute__((format(printf, 1, 2))) void give_up(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(nullptr);
    hak_stats_print(2);
    _exit(1);
}

/* Bytes of this process that count against the limit but are not the allocator's: files, stacks, libc's own data. */
size_t foreign_bytes(bool writable_only) {
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];
    size_t sum = 0;
    while (fgets(line, sizeof line, file) != nullptr) {
        unsigned long from, to, inode;
        char access[8];
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &from, &to, access, &inode) != 4)
            continue;
        bool counted = inode != 0 || strstr(line, "[stack]") != nullptr || strstr(line, "[vdso]") != nullptr;
        if (counted && (!writable_only || access[1] == 'w'))
            sum += to - from;
    }
    fclose(file);
    return sum;
}

/* The memory that the block takes: in the default mode a large block takes whole slots, though only the requested bytes
 * are usable. */
size_t taken_bytes(void *block, size_t size) {
    constexpr size_t kSlot = 64 * kKiB;
    bool whole_slots = size > kSlot && size <= kMiB && getenv("HAKMEM_SECURE") == nullptr;
    return whole_slots ? (size + kSlot - 1) / kSlot * kSlot : malloc_usable_size(block);
}

/* Blocks linked through their first word, so that holding them needs no further memory. */
struct Chain {
    void **head = nullptr;
    size_t count = 0, bytes = 0;
    bool grow(size_t size, bool zeroed) {
        errno = 0;
        auto **block = static_cast<void **>(zeroed ? calloc(1, size) : malloc(size));
        if (block == nullptr)
            return false;
        if (zeroed && first_dirty(block, size) != size)
            give_up("calloc(%zu) is not zero", size);
        memset(static_cast<void *>(block), 0xcd, size);
        *block = head;
        head = block;
        count++;
        bytes += taken_bytes(block, size);
        return true;
    }
    void shrink(size_t to) {
        while (count > to) {
            void **next = static_cast<void **>(*head);
            free(head);
            head = next;
            count--;
        }
    }
};

void expect_enomem() {
    if (errno != ENOMEM)
        give_up("errno is %d at the end of memory, not ENOMEM", errno);
    if (malloc(PTRDIFF_MAX / 2) != nullptr || calloc(1u << 20, 1u << 20) != nullptr)
        give_up("1 TiB under a limit");
    char *small = static_cast<char *>(malloc(16));
    if (small != nullptr) {
        if (realloc(small, 300 * kMiB) != nullptr)
            give_up("a block beyond the limit");
        free(small);
    }
}

/* Exhausts memory several times in blocks of one size, and checks how much it got: about the same each time. */
void exhaust(size_t size, size_t limit, size_t foreign, double owed) {
    size_t least = static_cast<size_t>(owed * static_cast<double>(limit - foreign));
    for (int round = 0; round < 3; round++) {
        Chain chain;
        while (chain.grow(size, round == 1)) {
        }
        expect_enomem();
        printf("%zu-byte blocks, round %d: %zu KiB of %zu KiB\n", size, round, chain.bytes / kKiB,
               (limit - foreign) / kKiB);
        if (chain.bytes < least)
            give_up("only %zu KiB in %zu-byte blocks, %zu KiB owed", chain.bytes / kKiB, size, least / kKiB);
        least = std::max(least, chain.bytes / 5 * 4);
        size_t all = chain.count;
        chain.shrink(all / 2);
        for (size_t i = 0; i < all * 4 / 10; i++)
            if (!chain.grow(size, true))
                give_up("freed memory cannot be had again: %zu of %zu", i, all * 4 / 10);
        chain.shrink(0);
    }
}

/* A limit counts what blocks take beyond what was asked for, so they must not be rounded far: the program gets nine
 * tenths of the limit in blocks of any of these sizes, all contents are right, and afterwards others can be had. */
void exhaust_every_size(size_t limit, bool writable_only) {
    size_t foreign = foreign_bytes(writable_only);
    for (size_t size : {size_t{3000}, size_t{5000}, size_t{20000}, size_t{33000}, size_t{70000}, size_t{130000},
                        size_t{200000}, size_t{600000}, size_t{1100000}, size_t{3000000}}) {
        Chain chain;
        while (chain.grow(size, chain.count % 3 == 0)) {
        }
        size_t had = chain.count * size;
        printf("%zu-byte blocks: %zu KiB of %zu KiB\n", size, had / kKiB, (limit - foreign) / kKiB);
        /* Secure mode has a table, and large blocks take whole slots of one SuperSlab, or whole SuperSlabs. */
        size_t percent = !in_secure_mode() ? 90 : size > 64 * kKiB ? 40 : 70;
        if (had < (limit - foreign) / 100 * percent)
            give_up("only %zu KiB of %zu in blocks of %zu bytes", had / kKiB, (limit - foreign) / kKiB, size);
        chain.shrink(0);
        void *half = malloc(limit / 4);
        if (half == nullptr)
            give_up("a quarter of the limit cannot be had after blocks of %zu bytes were freed", size);
        free(half);
    }
}

/* A block of each of many classes, as a small program has them, each in a slot of its own. */
void take_many_classes() {
    for (size_t size = 8; size <= 1024; size += size < 256 ? 16 : 64)
        if (malloc(size) == nullptr)
            give_up("no memory for %zu bytes", size);
    for (size_t size : {1500, 2500, 4000, 8000, 12000, 30000})
        if (malloc(size) == nullptr)
            give_up("no memory for %zu bytes", size);
}

/* Blocks of all sizes that come, change their sizes and go, near the limit: contents, alignment and ENOMEM. */
void mix_sizes(size_t limit) {
    struct Block {
        char *at;
        size_t size;
        uint32_t seed;
    };
    std::vector<Block> blocks(limit / 100000);
    uint64_t random = 88172645463325252;
    auto next = [&random](size_t below) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        return static_cast<size_t>(random >> 11) % below;
    };
    size_t refused = 0;
    for (size_t i = 0; i < 20 * blocks.size(); i++) {
        Block &b = blocks[next(blocks.size())];
        size_t size = size_t{1} << next(22), what = next(8);
        size += next(size);
        if (b.at != nullptr && pattern_check(b.at, b.size, b.size, b.seed) != b.size)
            give_up("a block of %zu bytes was damaged", b.size);
        if (b.at != nullptr && what < 2) {
            auto *moved = static_cast<char *>(realloc(b.at, size));
            refused += moved == nullptr;
            if (moved != nullptr && pattern_check(moved, size, b.size, b.seed) != size)
                give_up("realloc from %zu to %zu bytes lost some", b.size, size);
            b = moved != nullptr ? Block{moved, size, b.seed} : b;
        } else {
            free(b.at);
            size_t alignment = what == 7 ? size_t{16} << next(12) : 1;
            auto *made = static_cast<char *>(what == 6   ? calloc(1, size)
                                             : what == 7 ? aligned_alloc(alignment, size)
                                                         : malloc(size));
            refused += made == nullptr;
            if (reinterpret_cast<uintptr_t>(made) % alignment != 0)
                give_up("a block of %zu bytes is not aligned to %zu", size, alignment);
            if (made != nullptr && what == 6 && first_dirty(made, size) != size)
                give_up("calloc(%zu) is not zero", size);
            if (made != nullptr && malloc_usable_size(made) < size)
                give_up("a block of %zu bytes has fewer", size);
            b = {made, made != nullptr ? size : 0, static_cast<uint32_t>(i)};
        }
        if (b.at != nullptr)
            pattern_write(b.at, 0, b.size, b.seed);
        if (what == 3 && i % 16 == 0)
            malloc_trim(0);
    }
    for (Block &b : blocks)
        free(b.at);
    printf("mixed: %zu refused\n", refused);
    if (malloc(limit / 4) == nullptr)
        give_up("a quarter of the limit cannot be had after all was freed");
}

void exhaust_all_sizes(size_t limit, bool writable_only, double owed) {
    size_t foreign = foreign_bytes(writable_only);
    for (size_t size : {64 * kKiB, 100 * kKiB, kMiB, size_t{48}, size_t{1000}, 5 * kKiB, 3 * kMiB, size_t{48}})
        /* A block of 3 MiB takes two SuperSlabs of 2 MiB. */
        exhaust(size, limit, foreign, size > 2 * kMiB ? owed * 3 / 4 : owed);
    bool threw = false;
    try {
        for (;;)
            (void)operator new(2 * kMiB - 64);
    } catch (const std::bad_alloc &) {
        threw = true;
    }
    if (!threw)
        give_up("no bad_alloc");
}

/* A locked program: madvise cannot drop its pages, and the kernel fills every writable mapping. */
void live_locked() {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        give_up("mlockall: %s", strerror(errno));
    for (int round = 0; round < 3; round++)
        for (size_t size : kTierSizes) {
            Chain chain;
            for (size_t i = 0; i < 1 + 4 * kMiB / (size + 1000); i++)
                if (!chain.grow(size < 8 ? 8 : size, i % 2 == 0))
                    give_up("no memory for %zu bytes", size);
            chain.shrink(0);
            hak_trim();
        }
    size_t rss = process_rss_bytes();
    printf("locked: %zu KiB resident\n", rss / kKiB);
    if (rss > 160 * kMiB)
        give_up("%zu KiB resident in a locked program that uses 10 MiB", rss / kKiB);
}

/* In a locked program, memory that is committed without being in use is resident. */
void fill_locked(size_t bytes) {
    constexpr size_t kBlock = 1000;
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        give_up("mlockall: %s", strerror(errno));
    size_t before = process_rss_bytes();
    for (size_t i = 0; i < bytes / kBlock; i++)
        memset(malloc(kBlock), 1, kBlock);
    size_t used = process_rss_bytes() - before;
    printf("locked: %zu KiB resident for %zu\n", used / kKiB, bytes / kKiB);
    if (used > bytes / 10 * 11 + 4 * kMiB)
        give_up("%zu KiB resident for %zu in use", used / kKiB, bytes / kKiB);
}

/* An aligned huge block beside a few others: the search for its place must not leave the committed part of the tables.
 * `shape` is the number of earlier blocks times 1000, plus the alignment in MiB. */
void align_at_the_frontier(size_t shape) {
    std::vector<void *> blocks;
    for (size_t i = 0; i < shape / 1000; i++)
        blocks.push_back(malloc(2000000));
    free(blocks[blocks.size() - 2]);
    void *aligned = nullptr;
    if (posix_memalign(&aligned, shape % 1000 * kMiB, 3 * kMiB) != 0)
        give_up("no aligned block");
}

/* Makes mappings that the kernel cannot merge, until only `left` more are possible. */
std::vector<void *> eat_mappings(size_t left) {
    std::vector<void *> eaten;
    eaten.reserve(200000);
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (int protection = PROT_NONE;; protection ^= PROT_READ) {
        void *one = mmap(nullptr, page, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (one == MAP_FAILED)
            break;
        eaten.push_back(one);
    }
    for (size_t i = 0; i < left && !eaten.empty(); i++, eaten.pop_back())
        munmap(eaten.back(), page);
    return eaten;
}

/* When no mapping can be had, existing memory stays in use, and growing blocks keep their contents. */
void live_without_mappings(size_t left) {
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    Chain chain;
    while (chain.bytes < 8 * kMiB)
        if (!chain.grow(5000, false))
            give_up("no memory at the start");
    char *growing = static_cast<char *>(malloc(3 * kMiB));
    pattern_write(growing, 0, 3 * kMiB, 7);
    std::vector<void *> eaten = eat_mappings(left);
    if (eaten.size() < 10000)
        give_up("only %zu mappings to eat", eaten.size());
    size_t had = chain.count;
    chain.shrink(had / 2);
    for (size_t i = 0; i < had / 3; i++)
        if (!chain.grow(5000, true))
            give_up("freed memory cannot be had again: %zu of %zu", i, had / 3);
    size_t size = 3 * kMiB;
    for (; size < 40 * kMiB; size += 2 * kMiB) {
        char *other = static_cast<char *>(malloc(2 * kMiB)); /* blocks growth in place */
        errno = 0;
        auto *grown = static_cast<char *>(realloc(growing, size));
        if (grown == nullptr && errno != ENOMEM)
            give_up("errno is %d", errno);
        growing = grown != nullptr ? grown : growing;
        size_t damaged = pattern_check(growing, 3 * kMiB, 3 * kMiB, 7);
        if (damaged != 3 * kMiB)
            give_up("byte %zu was lost at %zu MiB", damaged, size / kMiB);
        free(other);
    }
    malloc_trim(0);
    for (void *one : eaten)
        munmap(one, page);
    for (size_t i = 0; i < 20; i++)
        if (!chain.grow(3 * kMiB, true))
            give_up("no memory though there are mappings again");
    printf("%zu mappings eaten; grown to %zu MiB\n", eaten.size(), malloc_usable_size(growing) / kMiB);
    chain.shrink(0);
    free(growing);
}

/* The kernel only grants addresses: when a program touches more than the limit, the kernel kills it, and the allocator
 * cannot help. So this uses half of the limit. */
void live_in_cgroup(size_t limit) {
    for (int round = 0; round < 6; round++)
        for (size_t size : {size_t{48}, size_t{1000}, 20 * kKiB, 300 * kKiB, 3 * kMiB}) {
            Chain chain;
            while (chain.bytes < limit / 2)
                if (!chain.grow(size, round % 2 == 0))
                    give_up("no memory");
            chain.shrink(chain.count / 10);
            chain.shrink(0);
        }
}

/* Takes much address space and touches none of it. */
void exhaust_untouched(size_t limit) {
    for (int round = 0; round < 3; round++) {
        std::vector<void *> blocks;
        errno = 0;
        for (void *block; (block = malloc(8 * kMiB - 100)) != nullptr;)
            blocks.push_back(block);
        if (errno != ENOMEM || blocks.size() * 8 * kMiB < limit / 100 * (in_secure_mode() ? 70 : 90))
            give_up("errno %d after %zu MiB of %zu", errno, blocks.size() * 8, limit / kMiB);
        for (void *block : blocks)
            free(block);
    }
}

/* Threads with small stacks, each with a block: what they share is the limit, and nothing else runs out. */
void live_in_many_threads() {
    constexpr unsigned kThreads = 140;
    static pthread_barrier_t all_alive;
    pthread_barrier_init(&all_alive, nullptr, kThreads + 1);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 32 * kKiB);
    std::vector<pthread_t> threads(kThreads);
    for (pthread_t &thread : threads)
        if (pthread_create(
                &thread, &small,
                [](void *) -> void * {
                    void *block = malloc(100);
                    pthread_barrier_wait(&all_alive);
                    free(block);
                    return block;
                },
                nullptr) != 0)
            give_up("no room for a thread");
    pthread_barrier_wait(&all_alive);
    size_t without = 0;
    for (pthread_t thread : threads) {
        void *block = nullptr;
        pthread_join(thread, &block);
        without += block == nullptr;
    }
    if (without != 0)
        give_up("%zu threads had no memory", without);
}

int run_child(const std::string &name, size_t limit) {
    if (name == "untouched")
        exhaust_untouched(limit);
    if (name == "mappings")
        live_without_mappings(limit);
    if (name == "cgroup")
        live_in_cgroup(limit);
    if (name == "small")
        exhaust_all_sizes(limit, false, 0);
    if (name == "frontier")
        align_at_the_frontier(limit);
    /* Secure mode's table takes 132 KiB of addresses for each SuperSlab, and the pages around large blocks make some of
     * them a slot longer. Blocks of 48 bytes take 64 with their canary. */
    if (name == "as")
        exhaust_all_sizes(limit, false, in_secure_mode() ? 0.40 : limit >= 200 * kMiB ? 0.90 : 0.85);
    /* Guards do not count here, but the table does: up to 132 KiB for each SuperSlab that was ever used for small
     * blocks. */
    if (name == "data")
        exhaust_all_sizes(limit, true, in_secure_mode() ? 0.45 : 0.80);
    if (name == "every_as" || name == "every_data")
        exhaust_every_size(limit, name == "every_data");
    if (name == "classes")
        take_many_classes();
    if (name == "mix")
        mix_sizes(limit);
    if (name == "threads")
        live_in_many_threads();
    if (name == "locked")
        live_locked();
    if (name == "locked_full")
        fill_locked(limit);
    return 0;
}

void limit_address_space(long bytes) {
    struct rlimit limit = {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
    setrlimit(RLIMIT_AS, &limit);
}
void limit_data(long bytes) {
    struct rlimit limit = {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
    setrlimit(RLIMIT_DATA, &limit);
}
void unlimit_locked(long) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MEMLOCK, &limit);
}

void run_limited(const char *name, size_t bytes, void (*prepare)(long)) {
    Outcome outcome = run_self({"--child", name, std::to_string(bytes)}, {}, prepare, static_cast<long>(bytes));
    printf("%s", outcome.out.c_str());
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Limits, AddressSpace64MiB) { run_limited("as", 64 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace256MiB) { run_limited("as", 256 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace1GiB) { run_limited("as", kGiB, limit_address_space); }
/* Below 64 MiB the program's own files are a large part, so no minimum is required. */
TEST(Limits, AddressSpace16MiB) { run_limited("small", 16 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace24MiB) { run_limited("small", 24 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace32MiB) { run_limited("small", 32 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace48MiB) { run_limited("small", 48 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace128MiB) { run_limited("as", 128 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace512MiB) { run_limited("as", 512 * kMiB, limit_address_space); }
TEST(Limits, AddressSpace2GiB) { run_limited("untouched", 2 * kGiB, limit_address_space); }
TEST(Limits, AddressSpace4GiB) { run_limited("untouched", 4 * kGiB, limit_address_space); }
TEST(Limits, AddressSpace8GiB) { run_limited("untouched", 8 * kGiB, limit_address_space); }
TEST(Limits, Data16MiB) { run_limited("small", 16 * kMiB, limit_data); }
TEST(Limits, Data64MiB) { run_limited("data", 64 * kMiB, limit_data); }
TEST(Limits, Data256MiB) { run_limited("data", 256 * kMiB, limit_data); }

/* If it fails, small programs need megabytes more of RLIMIT_DATA than they use. */
TEST(Limits, ManyClassesUnderLittleData) { run_limited("classes", 9 * kMiB / 2, limit_data); }
TEST(Limits, EverySizeUnderAddressSpace) { run_limited("every_as", 192 * kMiB, limit_address_space); }
TEST(Limits, EverySizeUnderData) { run_limited("every_data", 192 * kMiB, limit_data); }
TEST(Limits, MixedSizesUnderAddressSpace) { run_limited("mix", 96 * kMiB, limit_address_space); }
TEST(Limits, MixedSizesUnderData) { run_limited("mix", 96 * kMiB, limit_data); }
TEST(Limits, ManyThreadsUnderAddressSpace) { run_limited("threads", 64 * kMiB, limit_address_space); }

void no_limit(long) {}
TEST(Limits, AlignedBlocksAtTheFrontier) {
    for (size_t blocks : {14, 15, 16, 30, 31, 32, 58, 61, 62, 63, 64, 126, 127, 128})
        for (size_t alignment : {4, 16, 64, 256}) {
            SCOPED_TRACE(std::to_string(blocks) + " blocks, aligned to " + std::to_string(alignment) + " MiB");
            run_limited("frontier", blocks * 1000 + alignment, no_limit);
        }
}

TEST(Limits, LockedMemory) {
    if (geteuid() != 0)
        GTEST_SKIP() << "mlockall needs the right to lock much memory";
    run_limited("locked", 0, unlimit_locked);
    run_limited("locked_full", 128 * kMiB, unlimit_locked);
}

TEST(Limits, MappingsAllUsed) { run_limited("mappings", 0, no_limit); }
TEST(Limits, MappingsNearlyAllUsed) { run_limited("mappings", 3, no_limit); }

TEST(Limits, MemoryCgroup) {
    constexpr size_t kLimit = 64 * kMiB;
    MemoryCgroup cgroup(kLimit);
    if (!cgroup.made())
        GTEST_SKIP() << "no memory cgroup can be made here";
    run_limited("cgroup", kLimit, MemoryCgroup::enter);
}

/* A limit set after the start, as shells' children do to themselves: the reservation and all blocks stay usable. */
TEST(Limits, LateLimitIsAnErrorNotACrash) {
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(kChildSeconds);
        free(malloc(100));
        limit_address_space(64 * kMiB);
        Chain chain;
        while (chain.bytes < 2 * kGiB && chain.grow(100 * kKiB, false)) {
        }
        chain.shrink(0);
        _exit(malloc(48) != nullptr ? 0 : 2);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << std::hex << status;
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--child") == 0)
        return run_child(argv[2], strtoul(argv[3], nullptr, 10));
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
