/* Copies of what other threads write. If it fails, a heap's reader takes half of an old pointer and half of a new one
 * for a pointer, or leaves out the first words. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "inside.h"

namespace {

constexpr size_t kWords = 8;

TEST(Snapshot, HasEveryWord) {
    alignas(8) char from[64], to[64];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = static_cast<char>(i + 1);
    for (size_t offset : {0, 4})
        for (size_t bytes = 4; bytes <= 48; bytes += 4) {
            memset(to, 0, sizeof to);
            inside_snapshot(to, from + offset, bytes);
            EXPECT_EQ(memcmp(to, from + offset, bytes), 0) << bytes << " bytes from " << offset;
            EXPECT_EQ(to[bytes], 0) << bytes << " bytes from " << offset;
        }
}

struct Shared {
    volatile uint64_t words[kWords];
    volatile bool done;
};

/* Status 0: each word is as it was at some moment. */
[[noreturn]] void copy_under_trace(Shared *shared) {
    uint64_t copy[kWords];
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    inside_snapshot(copy, const_cast<uint64_t *>(shared->words), sizeof copy);
    shared->done = true;
    int torn = 0;
    for (uint64_t word : copy)
        torn += word >> 32 != (word & UINT32_MAX);
    _exit(torn);
}

/* All words change after each instruction of the thread that copies them. */
TEST(Snapshot, HasNoHalfWords) {
    void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto *shared = static_cast<Shared *>(memory);
    pid_t child = fork();
    if (child == 0)
        copy_under_trace(shared);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSTOPPED(status));
    for (uint64_t step = 1; !shared->done; step++) {
        ASSERT_EQ(ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFSTOPPED(status));
        for (volatile uint64_t &word : shared->words)
            word = step << 32 | step;
    }
    ASSERT_EQ(ptrace(PTRACE_CONT, child, nullptr, nullptr), 0);
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "words of two moments";
    munmap(memory, sizeof(Shared));
}

} // namespace
