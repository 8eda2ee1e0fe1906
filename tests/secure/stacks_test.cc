/* SECURE_STACKS=1: small programs that misuse a block under HAKMEM_SECURE=1, each run in its own process. The report
 * must say which calls allocated and freed the block, and never that those of another block did. If one fails, a user
 * sees that memory is damaged and not whose. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <atomic>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "../json.h"
#include "../posix_regex.h"
#include "../support.h"
#include "../unit/inside.h"

namespace {

constexpr size_t kLarge = 300000;

/* The functions that the reports must name. */
hak_arena *arena; /* NULL: the process's heap */
__attribute__((noinline)) char *allocate_here(size_t size) {
    void *volatile block = arena != nullptr ? hak_arena_malloc(arena, size) : hak_malloc(size);
    return static_cast<char *>(block);
}
__attribute__((noinline)) void free_here(void *block) {
    hak_free(block);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) void err_here(void *block) {
    hak_free(block);
    __asm__ volatile("" ::: "memory");
}
/* Other bits than were there: a canary may have any. */
void write(char *at) {
    volatile char *byte = at;
    *byte = static_cast<char>(*byte ^ 7);
}

void double_free(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    err_here(block);
}
void double_free_by_another_thread(size_t size) {
    char *block = allocate_here(size);
    std::thread([&] { free_here(block); }).join();
    err_here(block);
}
void double_free_of_a_block_used_before(size_t size) {
    for (int i = 0; i < 1000; i++)
        hak_free(hak_malloc(size));
    double_free(size);
}
void overflow(size_t size) {
    char *block = allocate_here(size);
    write(block + size);
    err_here(block);
}
void overflow_of_a_block_that_realloc_made(size_t size) {
    char *block = static_cast<char *>(hak_realloc(allocate_here(size), size - 1));
    write(block + size - 1);
    err_here(block);
}
void write_after_free(size_t size) {
    char *block = allocate_here(size);
    free_here(block);
    write(block + size / 2);
    for (int i = 0; i < 20000; i++)
        hak_free(hak_malloc(size));
}
void free_inside(size_t size) { err_here(allocate_here(size) + 16); }
void free_with_size(size_t size) {
    hak_free_sized(allocate_here(size), size + 1);
    __asm__ volatile("" ::: "memory"); /* a call, not a jump */
}

/* ---- in an arena ---- */

void double_free_in_an_arena(size_t size) {
    arena = hak_arena_new(nullptr);
    double_free(size);
}
void double_free_in_an_arena_by_another_thread(size_t size) {
    arena = hak_arena_new(nullptr);
    double_free_by_another_thread(size);
}
__attribute__((noinline)) void end_here() {
    hak_arena_destroy(arena);
    __asm__ volatile("" ::: "memory");
}
void overflow_until_the_end_of_an_arena(size_t size) {
    arena = hak_arena_new(nullptr);
    write(allocate_here(size) + size);
    end_here();
}

struct BadProgram {
    const char *name;
    void (*run)(size_t);
    size_t size;
    const char *line; /* a regular expression */
    bool freed;
    const char *culprit; /* the function that errs; "" where the error is found later */
};
const BadProgram kPrograms[] = {
    {"double_free", double_free, 48, "double free of 0x[0-9a-f]+ \\(48-byte block, freed by this thread\\)", true,
     "err_here"},
    {"double_free_of_nothing", double_free, 0, "double free of 0x[0-9a-f]+ ", true, "err_here"},
    {"double_free_mid", double_free, 20000, "double free of 0x[0-9a-f]+ ", true, "err_here"},
    {"double_free_large", double_free, kLarge, "double free of 0x[0-9a-f]+ ", true, "err_here"},
    {"double_free_by_another_thread", double_free_by_another_thread, 512, "double free of 0x[0-9a-f]+ ", true,
     "err_here"},
    {"double_free_of_a_block_used_before", double_free_of_a_block_used_before, 100, "double free of 0x[0-9a-f]+ ", true,
     "err_here"},
    {"overflow", overflow, 40, "overflow of 0x[0-9a-f]+ \\(40-byte block\\)", false, "err_here"},
    {"overflow_mid", overflow, 5000, "overflow of 0x[0-9a-f]+ ", false, "err_here"},
    {"overflow_large", overflow, kLarge, "overflow of 0x[0-9a-f]+ ", false, "err_here"},
    {"overflow_of_a_block_that_realloc_made", overflow_of_a_block_that_realloc_made, 40, "overflow of 0x[0-9a-f]+ ",
     false, "err_here"},
    {"write_after_free", write_after_free, 200, "write after free of 0x[0-9a-f]+ \\(200-byte block\\)", true, ""},
    {"free_inside", free_inside, 48, "invalid free of 0x[0-9a-f]+ \\(inside a 48-byte block\\)", false, "err_here"},
    {"free_inside_mid", free_inside, 20000, "invalid free of 0x[0-9a-f]+ \\(inside a 20000-byte block\\)", false,
     "err_here"},
    {"free_inside_large", free_inside, kLarge, "invalid free of 0x[0-9a-f]+ \\(inside a 300000-byte block\\)", false,
     "err_here"},
    {"free_with_size", free_with_size, 2000, "free of 0x[0-9a-f]+ with size 2001 \\(2000-byte block\\)", false,
     "free_with_size"},
    {"double_free_in_an_arena", double_free_in_an_arena, 48, "double free of 0x[0-9a-f]+ ", true, "err_here"},
    {"double_free_in_an_arena_by_another_thread", double_free_in_an_arena_by_another_thread, 5000,
     "double free of 0x[0-9a-f]+ ", true, "err_here"},
    {"overflow_until_the_end_of_an_arena", overflow_until_the_end_of_an_arena, 40, "overflow of 0x[0-9a-f]+ ", false,
     "end_here"},
    {"overflow_large_until_the_end_of_an_arena", overflow_until_the_end_of_an_arena, kLarge, "overflow of 0x[0-9a-f]+ ",
     false, "end_here"},
};

const std::vector<std::string> kStacks{"HAKMEM_SECURE=1", "HAKMEM_SECURE_STACKS=1"};

/* Whether the first call of the part is one in the function: the library's own calls are left out. */
bool begins_with(const std::string &part, const char *function) {
    const std::string head = "^[^\n]*\n(hakmem:   in process [^\n]*\n)?";
    return Regex(head + "hakmem:   0x[0-9a-f]+ [^ ]*" + function + "[^ ]*\\+0x[0-9a-f]+ \\(/[^ ]+\\+0x[0-9a-f]+\\)\n")
        .is_in(part);
}

TEST(SecureStacks, ReportsShowWhoAllocatedAndFreedTheBlock) {
    for (auto &program : kPrograms) {
        Outcome outcome = run_self({"run", program.name}, kStacks);
        SCOPED_TRACE(std::string(program.name) + ": " + outcome.describe());
        EXPECT_TRUE(outcome.killed(SIGABRT));
        EXPECT_TRUE(Regex(std::string("^hakmem: ") + program.line).is_in(outcome.err));
        size_t allocated = outcome.err.find("hakmem: allocated by thread ");
        size_t freed = outcome.err.find("hakmem: freed by thread ");
        ASSERT_NE(allocated, std::string::npos);
        EXPECT_EQ(freed != std::string::npos, program.freed);
        if (*program.culprit != '\0')
            EXPECT_TRUE(begins_with(outcome.err.substr(0, allocated), program.culprit));
        EXPECT_TRUE(begins_with(outcome.err.substr(allocated, freed - allocated), "allocate_here"));
        if (freed != std::string::npos)
            EXPECT_TRUE(begins_with(outcome.err.substr(freed), "free_here"));
    }
}

TEST(SecureStacks, FilesShowThemToo) {
    for (auto &program : kPrograms) {
        std::string path = testing::TempDir() + "stacks." + std::to_string(getpid()) + "." + program.name;
        std::vector<std::string> options = kStacks;
        options.insert(options.end(), {"HAKMEM_ON_ERROR=report", "HAKMEM_REPORT_FILE=" + path + ".%p"});
        Outcome outcome = run_self({"run", program.name}, options);
        SCOPED_TRACE(std::string(program.name) + ": " + outcome.describe());
        size_t at = outcome.err.find("hakmem: the report is in ");
        ASSERT_NE(at, std::string::npos);
        path += "." + std::to_string(outcome.process);
        EXPECT_EQ(outcome.err.substr(at + 25, outcome.err.find('\n', at) - at - 25), path) << "the file that was named";
        std::stringstream text;
        text << std::ifstream(path).rdbuf();
        EXPECT_EQ(unlink(path.c_str()), 0);
        EXPECT_TRUE(Regex("\"allocated\":\\{\"thread\":[0-9]+,\"calls\":\\[\n[^\n]*\"function\":\"[^\"]*allocate_here")
                        .is_in(text.str()))
            << text.str();
        EXPECT_EQ(Regex("\"freed\":\\{\"thread\":[0-9]+,\"calls\":\\[\n[^\n]*\"function\":\"[^\"]*free_here")
                      .is_in(text.str()),
                  program.freed);
        EXPECT_EQ(Regex("\"freed\":null").is_in(text.str()), !program.freed);
        Json report = JsonReader::read(text.str());
        for (const Json &call : report["allocated"]["calls"].items) {
            EXPECT_EQ(call["address"].text.substr(0, 2), "0x");
            EXPECT_EQ(call["path"].text.substr(0, 1), "/") << "the file";
            EXPECT_EQ(call["offset"].text.substr(0, 2), "0x");
        }
    }
}

/* Without the option the report says how to get them. */
TEST(SecureStacks, AreOffByDefault) {
    Outcome outcome = run_self({"run", "double_free"}, {"HAKMEM_SECURE=1"});
    EXPECT_NE(outcome.err.find("HAKMEM_SECURE_STACKS=1 shows who allocated and freed the block"), std::string::npos)
        << outcome.describe();
    EXPECT_EQ(outcome.err.find("allocated by"), std::string::npos);
}

/* ---- the table ---- */

__attribute__((noinline)) uintptr_t note_at_one_place(void *p, bool freed) { return inside_secure_note(p, freed); }
__attribute__((noinline)) uintptr_t note_at_another(void *p, bool freed) {
    uintptr_t site = inside_secure_note(p, freed);
    return site;
}

/* Blocks at 16,384 times as many addresses as have a place, noted by three threads and read by a fourth: what is found
 * of a block is always what was noted of it. */
TEST(SecureStacks, AreNeverThoseOfAnotherBlock) {
    constexpr size_t kBytes = 1ull << 30, kBlocks = 100000 / kShorter;
    char *memory = static_cast<char *>(hak_malloc(kBytes));
    auto block = [&](std::minstd_rand &random) {
        return memory + (random() * 16ull + random() % 64 * (16ull << 20)) % kBytes;
    };
    auto is_first = [&](char *p) { return (reinterpret_cast<uintptr_t>(p) / 16 * 0x9e3779b97f4a7c15u >> 63) != 0; };
    uintptr_t sites[] = {note_at_another(memory, false), note_at_one_place(memory, false)};
    std::atomic<unsigned> threads{3};
    auto note = [&](unsigned seed) {
        std::minstd_rand random(seed);
        hak_free(hak_malloc(1));
        for (size_t i = 0; i < kBlocks; i++) {
            char *p = block(random);
            (is_first(p) ? note_at_one_place : note_at_another)(p, i % 2 != 0);
        }
        threads--;
    };
    std::thread noting[] = {std::thread(note, 1), std::thread(note, 2), std::thread(note, 3)};
    size_t found = 0, missing = 0;
    uintptr_t callers[32];
    do
        for (unsigned seed = 1; seed <= 3; seed++) {
            std::minstd_rand random(seed);
            for (size_t i = 0; i < kBlocks; i++) {
                char *p = block(random);
                unsigned depth = inside_secure_found(p, i % 2 != 0, callers);
                (depth != 0 ? found : missing)++;
                uintptr_t *end = callers + depth;
                if (depth != 0)
                    ASSERT_NE(std::find(callers, end, sites[is_first(p)]), end);
            }
        }
    while (threads != 0);
    for (auto &thread : noting)
        thread.join();
    EXPECT_GT(found, 0u);
    EXPECT_GT(missing, 0u) << "no two blocks had the same place";
    hak_free(memory);
}

/* Nothing is forgotten of the blocks in a SuperSlab. */
TEST(SecureStacks, OfBlocksNearbyAreAllKept) {
    const size_t bytes = inside_superslab_bytes, step = 16 * kShorter;
    char *memory = static_cast<char *>(hak_malloc(bytes));
    uintptr_t callers[32];
    for (size_t at = 0; at < bytes; at += step)
        note_at_one_place(memory + at, false);
    for (size_t at = 0; at < bytes; at += step)
        ASSERT_GT(inside_secure_found(memory + at, false, callers), 0u) << at;
    EXPECT_EQ(inside_secure_found(memory, true, callers), 0u) << "nobody freed it";
    hak_free(memory);
}

} // namespace

int main(int argc, char **argv) {
    for (auto &program : kPrograms)
        if (argc == 3 && strcmp(argv[2], program.name) == 0) {
            program.run(program.size);
            return 0;
        }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
