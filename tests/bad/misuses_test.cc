/* Runs each misuse of misuses.cc under the library, in both modes: as the table there says, it is reported by one line,
 * or not reported. Runs the errors of catalogue.cc, too, of which enough must be told. If a row fails, docs/costs.md is
 * wrong about the modes. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <signal.h>

#include <sstream>

#include "../posix_regex.h"
#include "../support.h"

namespace {

struct Row {
    std::string name, answers[2];
};
const char *const modes[2] = {"HAKMEM_SECURE=0", "HAKMEM_SECURE=1"};

std::vector<Row> table() {
    std::vector<Row> rows;
    for (const std::string &line : lines_of(run_program(HAK_TEST_MISUSES, {"--table"}).out)) {
        std::istringstream fields(line);
        Row row;
        std::getline(fields, row.name, '\t');
        std::getline(fields, row.answers[0], '\t');
        std::getline(fields, row.answers[1], '\t');
        rows.push_back(row);
    }
    return rows;
}

void expect_answer(const Row &row, int mode) {
    const std::string either = "guard or ", said = "said ";
    std::string answer = row.answers[mode];
    Outcome outcome = run_program(HAK_TEST_MISUSES, {row.name}, {"LD_PRELOAD=" HAK_TEST_LIBRARY, modes[mode]});
    SCOPED_TRACE(row.name + " under " + modes[mode] + ": " + outcome.describe());
    if (answer.compare(0, either.size(), either) == 0)
        answer = outcome.killed(SIGSEGV) ? "guard" : answer.substr(either.size());
    if (answer == "-")
        EXPECT_TRUE(outcome.exited(0)) << "it is told, which the table does not know";
    else if (answer == "guard")
        EXPECT_TRUE(outcome.killed(SIGSEGV)) << "it touched what must be inaccessible";
    else if (answer == "nothing")
        EXPECT_TRUE(outcome.exited(42)) << "something came of it";
    else if (answer.compare(0, said.size(), said) == 0)
        EXPECT_TRUE(WIFEXITED(outcome.status) &&
                    Regex("hakmem: " + answer.substr(said.size()) + "\n").is_all_of(without_calls(outcome.err)))
            << "it owes a line, and goes on: " << answer;
    else
        EXPECT_TRUE(outcome.killed(SIGABRT) && Regex("hakmem: " + answer + "\n").is_all_of(without_calls(outcome.err)))
            << "it owes " << answer;
}

TEST(Misuses, AreReportedAsTheTableSays) {
    size_t told[2] = {0, 0}, rows = 0;
    for (const Row &row : table()) {
        rows++;
        for (int mode = 0; mode < 2; mode++) {
            told[mode] += row.answers[mode] != "-";
            expect_answer(row, mode);
        }
    }
    EXPECT_GT(rows, 116u) << "the table was not read";
    printf("told by default %zu, in secure mode %zu, of %zu\n", told[0], told[1], rows);
}

/* Where a stray write lands in secure mode is random: mostly, not always, on a block that is not in use. */
TEST(Catalogue, IsToldMoreOftenThanByLibc) {
    auto rows = lines_of(run_program(HAK_TEST_CATALOGUE, {"--compare", HAK_TEST_LIBRARY}).out);
    ASSERT_FALSE(rows.empty());
    size_t all = 0, in_default = 0, in_secure = 0, in_libc = 0;
    ASSERT_EQ(sscanf(rows.back().c_str(), "| all | %zu | %zu | %zu | %zu |", &all, &in_default, &in_secure, &in_libc),
              4)
        << rows.back();
    printf("of %zu errors told by default %zu, in secure mode %zu, by libc %zu\n", all, in_default, in_secure, in_libc);
    EXPECT_GE(in_default, 122u);
    EXPECT_GE(in_secure, all - 8);
    EXPECT_GT(in_default, in_libc);
}

} // namespace
