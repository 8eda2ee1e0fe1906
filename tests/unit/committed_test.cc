/* How much memory HAKMEM asks the kernel for beyond what is in use. If it fails, a program that calls mlockall has
 * memory resident that it does not use, and waits for it in a single malloc; or gdb's gcore, which also reads memory
 * without access, writes gigabytes of zeroes; or a heap stops growing when the process has no mappings left.
 *
 * The tests count mappings, because committed memory is resident under mlockall and memory that is not hidden is
 * dumped, on every kernel. Each test runs in a child of this process, which has allocated nothing before. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <functional>

#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"

namespace {

constexpr size_t kBlock = 1000, kLiveMiB = 150, kStepMost = 9 * kMiB;

/* Sums over the mappings without a file. */
struct Mappings {
    size_t writable, dumped, dumped_in_vain, count;
};

Mappings mappings() {
    Mappings sum = {0, 0, 0, 0};
    char line[512], access[5];
    size_t begin = 0, end = 0, at = 0, to = 0;
    unsigned long inode = 0;
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (smaps != nullptr && fgets(line, sizeof line, smaps) != nullptr) {
        if (sscanf(line, "%zx-%zx %4s %*x %*x:%*x %lu", &at, &to, access, &inode) == 4) {
            begin = at, end = to;
            sum.count += inode == 0;
            sum.writable += inode == 0 && access[1] == 'w' ? end - begin : 0;
        } else if (strncmp(line, "VmFlags:", 8) == 0 && inode == 0 && strstr(line, " dd") == nullptr) {
            sum.dumped += end - begin;
            sum.dumped_in_vain += access[0] != 'r' ? end - begin : 0;
        }
    }
    if (smaps != nullptr)
        fclose(smaps);
    return sum;
}

int in_child(const std::function<void()> &body) {
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        body();
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

size_t most_for(size_t in_use) { return in_use + in_use / 10 + 4 * kMiB; }

void grow_by_the_mebibyte(size_t mebibytes, const std::function<void(size_t in_use)> &look) {
    for (size_t mib = 0; mib < mebibytes; mib++) {
        for (size_t bytes = 0; bytes < kMiB; bytes += kBlock)
            MUST(hak_malloc(kBlock) != nullptr, "no memory at %zu MiB", mib);
        look((mib + 1) * kMiB);
    }
}

TEST(Committed, IsLittleMoreThanWhatIsInUse) {
    int status = in_child([] {
        Mappings before = mappings();
        size_t last = before.writable;
        MUST(hak_malloc(1) != nullptr, "no memory");
        MUST(mappings().writable - before.writable <= most_for(0), "one byte: %zu bytes are committed",
             mappings().writable - before.writable);
        grow_by_the_mebibyte(kLiveMiB, [&](size_t in_use) {
            size_t now = mappings().writable;
            MUST(now - before.writable <= most_for(in_use), "%zu bytes in use, %zu committed", in_use,
                 now - before.writable);
            MUST(now - last <= kStepMost, "%zu bytes in use, %zu committed at once", in_use, now - last);
            last = now;
        });
    });
    EXPECT_EQ(status, 0);
}

TEST(Committed, IsWhatDumpsContain) {
    int status = in_child([] {
        Mappings before = mappings();
        grow_by_the_mebibyte(kLiveMiB, [](size_t) {});
        Mappings now = mappings();
        size_t dumped = now.dumped - before.dumped, committed = now.writable - before.writable;
        printf("figure: dumped_mib_of_%zu_most %zu\n", kLiveMiB, dumped / kMiB);
        /* The tables that become accessible were in dumps before. */
        size_t tables = before.dumped_in_vain - now.dumped_in_vain;
        MUST(now.dumped_in_vain <= before.dumped_in_vain, "%zu bytes without access are dumped",
             now.dumped_in_vain - before.dumped_in_vain);
        MUST(dumped + tables >= committed && dumped <= committed + 64 * kKiB, "%zu bytes are dumped, %zu committed",
             dumped, committed);
        /* One where folios may begin, and each huge page that did not pay is followed by small pages. */
        auto dear = static_cast<size_t>(heap_stats()["huge_pages"]["dear"].number);
        MUST(now.count - before.count <= 12 + 2 * dear, "%zu mappings more than before", now.count - before.count);
    });
    EXPECT_EQ(status, 0);
}

/* Secure mode makes memory accessible block by block, as needed: nothing that may be in use is hidden. */
TEST(Committed, InSecureModeIsInDumpsToo) {
    int status = in_child([] {
        setenv("HAKMEM_SECURE", "1", 1);
        Mappings before = mappings();
        grow_by_the_mebibyte(kLiveMiB / 3, [](size_t) {});
        Mappings now = mappings();
        size_t dumped = now.dumped - before.dumped, committed = now.writable - before.writable;
        MUST(dumped >= committed && dumped <= 3 * committed, "%zu bytes are dumped, %zu committed", dumped, committed);
    });
    EXPECT_EQ(status, 0);
}

TEST(Committed, GrowsWhenTheProcessHasNoMappingsLeft) {
    int status = in_child([] {
        constexpr size_t kMost = 1 << 20;
        size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE)), n = 0;
        MUST(hak_malloc(kBlock) != nullptr, "no memory");
        auto *many = static_cast<char *>(
            mmap(nullptr, kMost * 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        while (n < kMost && mprotect(many + n * 2 * page, page, PROT_READ) == 0)
            n++;
        MUST(n < kMost, "there is no limit to mappings");
        grow_by_the_mebibyte(32, [](size_t) {});
        munmap(many, kMost * 2 * page);
        Mappings now = mappings();
        MUST(now.dumped - now.dumped_in_vain <= now.writable + 64 * kMiB && now.dumped_in_vain < kGiB,
             "%zu bytes without access are dumped", now.dumped_in_vain);
    });
    EXPECT_EQ(status, 0);
}

} // namespace
