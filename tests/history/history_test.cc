// Histories of an allocator with a fault must be refused, and those of HAKMEM and glibc accepted. If this fails, the
// programs of ./hak soak histories prove nothing.
// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace {

constexpr const char *library = HAK_TEST_LIBRARY, *record = HAK_TEST_RECORD, *faulty = HAK_TEST_FAULTY;
constexpr const char *calls = HAK_TEST_CALLS, *checker = HAK_TEST_CHECK;

struct Said {
    int status;
    std::string text;
};

Said shell(const std::string &command) {
    Said said = {-1, ""};
    std::array<char, 4096> part;
    FILE *pipe = popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr)
        return said;
    while (size_t bytes = fread(part.data(), 1, part.size(), pipe))
        said.text.append(part.data(), bytes);
    int status = pclose(pipe);
    said.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return said;
}

class History : public testing::Test {
  protected:
    void SetUp() override {
        std::string name = testing::TempDir() + "history-XXXXXX";
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder = name;
    }
    void TearDown() override { std::filesystem::remove_all(folder); }

    // Runs the program under that allocator, and then the checker over its history.
    Said check(const std::string &allocator, const std::string &word, const std::string &fault = "none") {
        Said ran = shell("ulimit -c 0; HISTORY_FAULT=" + fault + " HISTORY_DIR=" + folder + " LD_PRELOAD=" + record +
                         ":" + allocator + " " + calls + " " + word);
        return ran.status != 0 ? Said{ran.status, "the program: " + ran.text}
                               : shell(std::string(checker) + " " + folder);
    }

    void is_good(const Said &said, const std::string &part) {
        EXPECT_EQ(said.status, 0) << said.text;
        EXPECT_NE(said.text.find(part), std::string::npos) << said.text;
        EXPECT_NE(said.text.find(" 0 faults"), std::string::npos) << said.text;
    }

    void is_bad(const Said &said, const std::string &part) {
        EXPECT_EQ(said.status, 1) << said.text;
        EXPECT_NE(said.text.find(part), std::string::npos) << said.text;
    }

    std::string folder;
};

TEST_F(History, IsGood) { is_good(check(library, ""), " 1 threads, 1 processes"); }
TEST_F(History, OfThreadsAndChildrenIsGood) { is_good(check(library, "threads"), " 16 processes"); }
TEST_F(History, OfGlibcIsGood) { is_good(check("", "threads"), " 16 processes"); }
TEST_F(History, OfAnAllocatorThatNeverReusesIsGood) { is_good(check(faulty, ""), " 1 processes"); }

TEST_F(History, ShowsAnOverlap) { is_bad(check(faulty, "", "overlap"), ": overlap: block "); }
TEST_F(History, ShowsABlockHandedOutEarly) { is_bad(check(faulty, "", "early"), ": early: block "); }
TEST_F(History, ShowsABadAlignment) { is_bad(check(faulty, "", "alignment"), ": bad alignment: block "); }
TEST_F(History, ShowsABlockThatIsTooSmall) { is_bad(check(faulty, "", "small"), ": too small: block "); }
TEST_F(History, ShowsADoubleFree) { is_bad(check(faulty, "twice"), ": not live: block "); }

} // namespace
