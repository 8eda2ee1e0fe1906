/* Small programs that misuse the allocator, each run as a process of its own: it must say what is wrong in one
 * line of stable form and end by SIGABRT. If one fails, a bug in a program silently corrupts its heap. */
#include <fcntl.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/resource.h>

#include <algorithm>
#include <regex>
#include <thread>

#include "../heap_stats.h"
#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

char *live(size_t size) {
    char *block = hidden(S.alloc(size));
    memset(block, 1, size);
    return block;
}

/* Frees the block, then others of its kind around it. */
void free_among_others(char *block, size_t size, int others) {
    std::vector<char *> more;
    for (int i = 0; i < others; i++)
        more.push_back(live(size));
    S.free(block);
    for (char *other : more)
        S.free(other);
}

void double_free_at_once(size_t size) {
    char *block = live(size);
    S.free(block);
    S.free(block);
}

void double_free_after_others(size_t size) {
    char *block = live(size), *kept = live(size);
    free_among_others(block, size, 5);
    S.free(block);
    S.free(kept);
}

void double_free_after_one(size_t size) {
    char *block = live(size), *second = live(size);
    S.free(block);
    S.free(second);
    S.free(block);
}

void double_free_by_another_thread(size_t size) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    std::thread([&] { S.free(block); }).join();
    S.free(kept);
}

void double_free_by_two_other_threads(size_t size) {
    char *block = live(size), *kept = live(size);
    std::thread([&] { S.free(block); }).join();
    std::thread([&] { S.free(block); }).join();
    S.free(kept);
    for (int i = 0; i < 2000; i++)
        S.free(live(size));
}

/* The whole slab, span or run of the block has been given back meanwhile. */
void double_free_after_release(size_t size) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < std::max<size_t>(4, 4 * 65536 / size); i++)
        blocks.push_back(live(size));
    for (char *block : blocks)
        S.free(block);
    hak_trim();
    S.free(blocks[blocks.size() / 2]);
}

/* The page of the block was purged while its slab stayed in use: its link is gone. */
void double_free_after_trim(size_t size) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < 4 * 65536 / size; i++)
        blocks.push_back(live(size));
    size_t kept = blocks.size() / 3;
    for (size_t i = 0; i < blocks.size(); i++)
        if (i != kept)
            S.free(blocks[i]);
    hak_trim();
    S.free(blocks[kept + 3 * 4096 / size]); /* in the same slab, in another page */
}

void double_free_after_thread_end(size_t size) {
    char *block = nullptr;
    std::thread([&] {
        block = live(size);
        S.free(block);
    }).join();
    S.free(block);
}

void double_free_by_realloc(size_t size) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    hidden(S.realloc(block, size * 3));
    S.free(kept);
}

void interior_free(size_t size) { S.free(live(size) + (size >= 32 ? size / 2 / 16 * 16 : 4)); }
void interior_free_end(size_t size) { S.free(live(size) + (size > 16 ? size - 16 : 1)); }
void misaligned_free(size_t size) { S.free(live(size) + 1); }
void interior_realloc(size_t size) { hidden(S.realloc(live(size) + (size >= 32 ? 16 : 4), 10)); }
void interior_usable_size(size_t size) { hidden(reinterpret_cast<void *>(S.usable_size(live(size) + 1))); }

void stack_free(size_t) {
    char array[64];
    S.free(hidden(array + 16 - (reinterpret_cast<uintptr_t>(array) & 15)));
}
alignas(64) char static_array[256];
void static_free(size_t) { S.free(hidden(static_array)); }
void static_realloc(size_t) { hidden(S.realloc(hidden(static_array), 100)); }
void static_usable_size(size_t) { hidden(reinterpret_cast<void *>(S.usable_size(hidden(static_array)))); }
void low_free(size_t) { S.free(reinterpret_cast<void *>(uintptr_t{0x10})); }
void noncanonical_free(size_t) { S.free(reinterpret_cast<void *>(uintptr_t{0xdeadbeefdeadbee0})); }
void top_free(size_t) { S.free(reinterpret_cast<void *>(~uintptr_t{15})); }
void mapped_free(size_t) { S.free(mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); }
void first_call_free(size_t) { static_free(0); }

/* A place of the heap that no malloc has handed out yet: far behind a live block. */
void never_allocated_free(size_t size) { S.free(live(size) + 40 * kMiB); }
/* Behind the last block that was carved, in the same slab. */
void uncarved_free(size_t size) {
    char *block = live(size);
    uintptr_t last = (reinterpret_cast<uintptr_t>(block) | 0xffff) - 0xff;
    S.free(reinterpret_cast<void *>(last));
}
void other_allocators_free(size_t) { S.free(oracle().alloc(100)); }

/* Writes into a freed block what programs write; the block's word leads to the next free one. */
void write_after_free(size_t size, const void *what) {
    char *block = live(size), *kept = live(size);
    S.free(block);
    memcpy(block, &what, sizeof what);
    for (int i = 0; i < 3000; i++)
        hidden(S.alloc(size));
    for (int i = 0; i < 3000; i++) /* in secure mode it waits until others were freed */
        S.free(live(size));
    S.free(kept);
}
void zero_after_free(size_t size) { write_after_free(size, nullptr); }
void pointer_after_free(size_t size) { write_after_free(size, static_array); }
void text_after_free(size_t size) {
    const void *text;
    memcpy(&text, "some text", sizeof text);
    write_after_free(size, text);
}

/* The second free of a block cannot be told when its first word was overwritten, but one free too many can. */
void double_free_of_a_written_block(size_t size) {
    std::vector<char *> blocks;
    for (size_t i = 0; i < 4 * 65536 / size; i++)
        blocks.push_back(live(size));
    char *twice = blocks[blocks.size() / 2];
    S.free(twice);
    memset(twice, 1, 8);
    for (char *block : blocks)
        S.free(block);
}

/* A small counter in a freed block: half of the first word is as it was, and tells. */
void double_free_after_a_small_write(size_t size) {
    char *block = live(size);
    S.free(block);
    memset(block, 1, 4);
    S.free(block);
}

/* Which line a case owes. */
constexpr char kDouble[] = "hakmem: double free of 0x[0-9a-f]+ \\([^)]*\\)";
constexpr char kInvalid[] = "hakmem: invalid free of 0x[0-9a-f]+ \\(.*\\)";
constexpr char kEither[] = "hakmem: (double|invalid) free of 0x[0-9a-f]+ \\(.*\\)";
constexpr char kWritten[] = "hakmem: (write after|double) free (among|of) .*";
constexpr char kPointer[] = "hakmem: invalid pointer 0x[0-9a-f]+ in [a-z_]+ \\(.*\\)";

const std::vector<size_t> kSizes{8, 48, 1000, 5000, 40000, 200 * kKiB, 3 * kMiB};
const std::vector<size_t> kNoSize{0};

const std::vector<Misuse> &cases() {
    std::vector<size_t> written_by_zeroes{8, 48, 1000};
    if (getenv("HAKMEM_SECURE") != nullptr)
        written_by_zeroes.clear(); /* there free memory is zero: nothing is changed */
    static const std::vector<Misuse> all{
        {"double_free_at_once", double_free_at_once, kEither, kSizes},
        {"double_free_after_others", double_free_after_others, kEither, kSizes},
        {"double_free_while_the_slab_lives", double_free_after_others, kDouble, {8, 48, 1000, 5000, 40000}},
        {"double_free_after_one", double_free_after_one, kEither, kSizes},
        {"double_free_by_another_thread", double_free_by_another_thread, kEither, kSizes},
        {"double_free_by_two_other_threads", double_free_by_two_other_threads, kEither, kSizes},
        {"double_free_after_release", double_free_after_release, kEither, kSizes},
        {"double_free_after_trim", double_free_after_trim, kEither, {48, 200}},
        {"double_free_after_thread_end", double_free_after_thread_end, kEither, kSizes},
        {"double_free_by_realloc", double_free_by_realloc, kPointer, kSizes},
        {"interior_free", interior_free, kInvalid, kSizes},
        {"interior_free_end", interior_free_end, kInvalid, kSizes},
        {"misaligned_free", misaligned_free, kInvalid, kSizes},
        {"interior_realloc", interior_realloc, kPointer, kSizes},
        {"interior_usable_size", interior_usable_size, kPointer, kSizes},
        {"stack_free", stack_free, kInvalid, kNoSize},
        {"static_free", static_free, kInvalid, kNoSize},
        {"static_realloc", static_realloc, kPointer, kNoSize},
        {"static_usable_size", static_usable_size, kPointer, kNoSize},
        {"low_free", low_free, kInvalid, kNoSize},
        {"noncanonical_free", noncanonical_free, kInvalid, kNoSize},
        {"top_free", top_free, kInvalid, kNoSize},
        {"mapped_free", mapped_free, kInvalid, kNoSize},
        {"first_call_free", first_call_free, kInvalid, kNoSize},
        {"never_allocated_free", never_allocated_free, kInvalid, {48, 5000}},
        {"uncarved_free", uncarved_free, kEither, {48, 1000}},
        {"zero_after_free", zero_after_free, kWritten, written_by_zeroes},
        {"pointer_after_free", pointer_after_free, kWritten, {8, 48, 1000}},
        {"text_after_free", text_after_free, kWritten, {8, 48, 1000}},
        {"double_free_of_a_written_block", double_free_of_a_written_block, kWritten, {8, 48, 1000}},
        {"double_free_after_a_small_write", double_free_after_a_small_write, kDouble, {8, 48, 1000}},
        {"other_allocators_free", other_allocators_free, kInvalid, kNoSize},
    };
    return all;
}

size_t count_matching(const std::string &text, const std::string &pattern) {
    auto lines = lines_of(text);
    std::regex regex(pattern);
    return static_cast<size_t>(
        std::count_if(lines.begin(), lines.end(), [&](auto &line) { return std::regex_match(line, regex); }));
}

class Bad : public testing::TestWithParam<Misuse> {};

TEST_P(Bad, EndsWithOneLineAndSigabrt) {
    for (size_t size : GetParam().sizes) {
        Outcome outcome = run_self({"--case", GetParam().name, std::to_string(size)});
        EXPECT_TRUE(outcome.killed(SIGABRT)) << GetParam().name << " of " << size << " bytes: " << outcome.describe();
        EXPECT_EQ(count_matching(outcome.err, GetParam().line), 1u)
            << GetParam().name << " of " << size << " bytes owes one line " << GetParam().line << "\n"
            << outcome.describe();
        EXPECT_EQ(count_matching(outcome.err, "hakmem: .*"), 1u) << "more than one line\n" << outcome.describe();
    }
}

TEST_P(Bad, IsSurvivedOnDemand) {
    for (size_t size : GetParam().sizes) {
        Outcome warned = run_self({"--case", GetParam().name, std::to_string(size)}, {"HAKMEM_ON_ERROR=warn"});
        EXPECT_TRUE(warned.exited(0)) << GetParam().name << " of " << size << " bytes: " << warned.describe();
        EXPECT_GE(count_matching(warned.err, GetParam().line), 1u) << warned.describe();
        Outcome ignored = run_self({"--case", GetParam().name, std::to_string(size)}, {"HAKMEM_ON_ERROR=ignore"});
        EXPECT_TRUE(ignored.exited(0)) << GetParam().name << " of " << size << " bytes: " << ignored.describe();
        EXPECT_EQ(ignored.err, "") << GetParam().name;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Bad, testing::ValuesIn(cases()),
                         [](const testing::TestParamInfo<Misuse> &one) { return std::string(one.param.name); });

TEST(BadText, NamesTheBlockSize) {
    Outcome outcome = run_self({"--case", "double_free_at_once", "48"});
    EXPECT_EQ(count_matching(outcome.err, "hakmem: double free of 0x[0-9a-f]+ \\(48-byte block.*\\)"), 1u)
        << outcome.describe();
    outcome = run_self({"--case", "interior_free", "48"});
    EXPECT_EQ(count_matching(outcome.err, "hakmem: invalid free of 0x[0-9a-f]+ \\(inside a 48-byte block.*\\)"), 1u)
        << outcome.describe();
    outcome = run_self({"--case", "static_free", "0"});
    EXPECT_EQ(count_matching(outcome.err, "hakmem: invalid free of 0x[0-9a-f]+ \\(not a block of this heap.*\\)"), 1u)
        << outcome.describe();
}

/* ---- options ---- */

TEST(BadOption, ABadValueIsNamedAndTheDefaultUsed) {
    Outcome plain = run_self({"--print-option", "PURGE"});
    ASSERT_TRUE(plain.exited(0)) << plain.describe();
    EXPECT_EQ(plain.err, "");
    for (std::string value : {"foo", "", " ", "abort1", "-5"}) {
        Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_PURGE=" + value});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        EXPECT_EQ(outcome.out, plain.out) << "the default is not used after HAKMEM_PURGE=" << value;
        EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.describe();
        EXPECT_EQ(outcome.err.rfind("hakmem: HAKMEM_PURGE=" + value, 0), 0u) << outcome.describe();
        EXPECT_NE(outcome.err.find("expected"), std::string::npos) << "the legal values are not named\n" << outcome.err;
    }
}

TEST(BadOption, AnUnknownNameIsNamed) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_FOO=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(lines_of(outcome.err).size(), 1u) << outcome.describe();
    EXPECT_EQ(count_matching(outcome.err, "hakmem: .*HAKMEM_FOO.*"), 1u) << outcome.describe();
}

TEST(BadOption, HelpPrintsTheTable) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_HELP=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_NE((outcome.out + outcome.err).find("PURGE  "), std::string::npos) << outcome.describe();
}

TEST(BadOption, EveryOptionRefusesNonsenseByOneLine) {
    Outcome outcome = run_self({"--list-options"});
    auto names = lines_of(outcome.out);
    ASSERT_GT(names.size(), 3u) << outcome.describe();
    for (auto &name : names) {
        Outcome bad = run_self({"--print-option", name}, {"HAKMEM_" + name + "=\x01nonsense"});
        EXPECT_TRUE(bad.exited(0)) << name << bad.describe();
        bool any_text = name == "DEBUG" || name.find("FILE") != std::string::npos; /* their values may be any text */
        if (!any_text)
            EXPECT_EQ(lines_of(bad.err).size(), 1u) << name << bad.describe();
        if (!any_text)
            EXPECT_EQ(bad.err.rfind("hakmem: HAKMEM_" + name + "=", 0), 0u) << name << bad.describe();
    }
}

} // namespace

/* Prints an option's value, so that the parent sees which one holds. */
static int print_option(const char *name) {
    char value[256];
    hak_free(hak_malloc(10));
    errno = 0;
    if (hak_option_get(name, value, sizeof value) == 0 && errno == EINVAL)
        return 3;
    printf("%s\n", value);
    return 0;
}

static int list_options() {
    Json stats = heap_stats();
    for (auto &member : stats["options"].members)
        printf("%s\n", member.first.c_str());
    return 0;
}

int main(int argc, char **argv) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (argc == 4 && strcmp(argv[1], "--case") == 0)
        return run_misuse(cases(), argv[2], strtoul(argv[3], nullptr, 10));
    if (argc == 3 && strcmp(argv[1], "--print-option") == 0)
        return print_option(argv[2]);
    if (argc == 2 && strcmp(argv[1], "--list-options") == 0)
        return list_options();
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
