/* Every option of the table x its legal and illegal values, by hak_option_set and by the environment of a child.
 * If one fails, a setting is taken for another one, or a typing error is passed over in silence. */
#include <gtest/gtest.h>
#include <hakmem.h>

#include <algorithm>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

namespace {

std::vector<std::string> split(const std::string &text, char by) {
    std::vector<std::string> parts;
    size_t at = 0;
    for (size_t end; (end = text.find(by, at)) != std::string::npos; at = end + 1)
        parts.push_back(text.substr(at, end - at));
    parts.push_back(text.substr(at));
    return parts;
}

std::string get(const std::string &name) {
    char value[512] = "";
    hak_option_get(name.c_str(), value, sizeof value);
    return value;
}

std::string seven(const std::string &one) {
    std::string all = one;
    for (int i = 1; i < 7; i++)
        all += "/" + one;
    return all;
}

/* Legal values with the text each must read back as. */
std::vector<std::pair<std::string, std::string>> legal_values(const inside_option &o) {
    std::vector<std::pair<std::string, std::string>> values;
    std::string least = std::to_string(o.least), most = std::to_string(o.most);
    switch (o.kind) {
    case INSIDE_CHOICE:
        for (auto &choice : split(o.choices, '|')) {
            values.emplace_back(choice, choice);
            std::string upper = choice;
            for (char &c : upper)
                c = static_cast<char>(toupper(c));
            values.emplace_back(upper, choice);
        }
        break;
    case INSIDE_BYTES:
        values = {{least, least},    {most, most},        {"64k", "65536"},
                  {"3M", "3145728"}, {"1MiB", "1048576"}, {"2mb", "2097152"}};
        break;
    case INSIDE_NUMBER: values = {{least, least}, {most, most}}; break;
    case INSIDE_LIST:
        values = {{least, seven(least)}, {most, seven(most)}, {"24/32/48/64/64/32/24", "24/32/48/64/64/32/24"}};
        break;
    default: /* any text */ break;
    }
    return values;
}

std::vector<std::string> illegal_values(const inside_option &o) {
    if (o.kind == INSIDE_TEXT)
        return {};
    std::vector<std::string> values{"",    " ", "foo", "-1", "1x", "0x10", "1 ", " 1", "99999999999999999999999",
                                    "1e3", "/", "|"};
    if (o.kind == INSIDE_CHOICE)
        for (auto &choice : split(o.choices, '|')) {
            values.push_back(choice + "x");
            values.push_back(choice + "|");
            if (choice.size() > 1)
                values.push_back(choice.substr(0, choice.size() - 1));
        }
    else if (o.most < (uint64_t{1} << 62))
        values.push_back(std::to_string(o.most + 1));
    if (o.kind == INSIDE_BYTES)
        values.emplace_back("20000000000g"); /* more than 64 bits hold */
    if (o.kind != INSIDE_CHOICE && o.least > 0)
        values.push_back(std::to_string(o.least - 1));
    if (o.kind == INSIDE_LIST)
        for (const char *list :
             {"1/2", "1/2/3/4/5/6", "1/2/3/4/5/6/7/8", "1/2/3/4/5/6/", "/1/2/3/4/5/6", "0/1/1/1/1/1/1"})
            values.emplace_back(list);
    return values;
}

TEST(Options, LegalValuesAreTakenLive) {
    for (unsigned i = 0; i < inside_options; i++) {
        inside_option o = inside_option_at(i);
        std::string before = get(o.name);
        for (auto &[value, reads] : legal_values(o)) {
            int answer = hak_option_set(o.name, value.c_str());
            EXPECT_EQ(answer, o.live ? 0 : EPERM) << o.name << "=" << value;
            EXPECT_EQ(get(o.name), o.live ? reads : before) << o.name << "=" << value;
        }
        if (o.live)
            EXPECT_EQ(hak_option_set(o.name, before.c_str()), 0) << o.name << "=" << before;
        EXPECT_EQ(get(o.name), before) << o.name;
    }
}

TEST(Options, IllegalValuesAreRefusedLive) {
    for (unsigned i = 0; i < inside_options; i++) {
        inside_option o = inside_option_at(i);
        std::string before = get(o.name);
        for (auto &value : illegal_values(o)) {
            int answer = hak_option_set(o.name, value.c_str());
            EXPECT_EQ(answer, o.live ? EINVAL : EPERM) << o.name << "=" << value;
            EXPECT_EQ(get(o.name), before) << o.name << "=" << value << " was refused and changed the option";
        }
    }
}

TEST(Options, LegalValuesAreTakenFromTheEnvironment) {
    for (unsigned i = 0; i < inside_options; i++) {
        inside_option o = inside_option_at(i);
        if (std::string(o.name) == "HELP")
            continue;
        if (HAK_TEST_SHORTER > 1 && std::string(o.name) == "REGION_BYTES")
            continue; /* ThreadSanitizer ends programs that map memory where it does not expect any */
        for (auto &[value, reads] : legal_values(o)) {
            Outcome outcome = run_self({"--print-option", o.name}, {std::string("HAKMEM_") + o.name + "=" + value});
            EXPECT_TRUE(outcome.exited(0)) << o.name << "=" << value << ": " << outcome.describe();
            EXPECT_EQ(outcome.out, reads + "\n") << o.name << "=" << value;
            bool says_something =
                std::string(o.name) == "STATS" || strstr(o.name, "DEBUG") != nullptr; /* what they are for */
            if (!says_something)
                EXPECT_EQ(outcome.err, "") << o.name << "=" << value;
        }
    }
}

/* Else every program that the hakmem command starts begins with a complaint. */
TEST(Options, VariablesOfTheCommandAreItsOwn) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_LIBRARY=/a/libhakmem.so", "HAKMEM_PEERS=x"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
}

TEST(Options, IllegalValuesInTheEnvironmentPrintOneLine) {
    for (unsigned i = 0; i < inside_options; i++) {
        inside_option o = inside_option_at(i);
        std::string before = get(o.name);
        for (auto &value : illegal_values(o)) {
            std::string setting = std::string("HAKMEM_") + o.name + "=" + value;
            Outcome outcome = run_self({"--print-option", o.name}, {setting});
            EXPECT_TRUE(outcome.exited(0)) << setting << ": " << outcome.describe();
            EXPECT_EQ(outcome.out, before + "\n") << setting << ": the default is not used";
            EXPECT_EQ(outcome.err.rfind("hakmem: " + setting + ": expected ", 0), 0u) << outcome.describe();
            EXPECT_NE(outcome.err.find("; using "), std::string::npos) << outcome.describe();
            EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.describe();
            if (o.kind == INSIDE_CHOICE)
                EXPECT_NE(outcome.err.find(o.choices), std::string::npos) << outcome.describe();
        }
    }
}

TEST(Options, ALineBreakInAValueDoesNotBreakTheLine) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_PURGE=a\nb\033[2J"});
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.describe();
    EXPECT_EQ(outcome.err.find('\033'), std::string::npos) << "a control character of the value reaches the terminal";
}

TEST(Options, ATextThatIsTooLongIsRefused) {
    std::string setting = "HAKMEM_STATS_FILE=" + std::string(256, 'x');
    Outcome outcome = run_self({"--print-option", "STATS_FILE"}, {setting});
    EXPECT_EQ(outcome.out, "/dev/null\n") << "hak_options below is not used: " << outcome.describe();
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.describe();
    EXPECT_EQ(outcome.err.rfind("hakmem: HAKMEM_STATS_FILE=xxx", 0), 0u) << outcome.describe();
}

/* Quotes and control characters of a value. If it fails, every reader of the statistics stumbles over them. */
TEST(Options, TheStatisticsAreJsonWhateverATextIs) {
    Outcome outcome = run_self({"--print-json", "STATS_FILE"}, {"HAKMEM_STATS_FILE=/a \"b\" \\c\td"});
    EXPECT_EQ(outcome.out, "/a \"b\" \\c d\n") << outcome.describe();
}

/* Programs that are tuned for glibc keep what they were tuned for. */
TEST(Options, GlibcsTrimThresholdIsWhatIsRetained) {
    Outcome outcome = run_self({"--print-option", "RETAIN_BYTES"}, {"MALLOC_TRIM_THRESHOLD_=1234567"});
    EXPECT_EQ(outcome.out, "1234567\n") << outcome.describe();
}

TEST(Options, AreKnownBeforeTheFirstAllocation) {
    Outcome outcome = run_self({"--print-option-early", "PURGE"}, {"HAKMEM_PURGE=eager"});
    EXPECT_EQ(outcome.out, "eager\n") << outcome.describe();
}

TEST(Options, CompiledInOptionsHoldUnlessTheEnvironmentSaysOtherwise) {
    Outcome outcome = run_self({"--print-option", "DRAIN_INTERVAL"}); /* hak_options below */
    EXPECT_EQ(outcome.out, "777\n") << outcome.describe();
    outcome = run_self({"--print-option", "DRAIN_INTERVAL"}, {"HAKMEM_DRAIN_INTERVAL=888"});
    EXPECT_EQ(outcome.out, "888\n") << outcome.describe();
    outcome = run_self({"--print-option", "STATS_FILE"});
    EXPECT_EQ(outcome.out, "/dev/null\n") << "a text option takes the settings after it for its value";
    outcome = run_self({"--print-option", "SS_RESERVE"});
    EXPECT_EQ(outcome.out, "2\n") << outcome.describe();
}

/* Switches and secrets that an attacker would want: whoever can write anywhere in the process can't write there. */
TEST(OptionsDeathTest, WhatIsReadAtTheStartIsReadOnly) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    hak_free(hak_malloc(100));
    EXPECT_DEATH(inside_overwrite_key(), "");
    for (unsigned o = 0; o < inside_options; o++) {
        if (!inside_option_at(o).live) {
            EXPECT_DEATH(inside_overwrite_option(o), "") << inside_option_at(o).name;
            break;
        }
    }
}

/* Else a program that writes far beyond a block changes what HAKMEM knows of blocks, unnoticed. */
TEST(RegionDeathTest, HeapAndTablesLieBetweenGuards) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    hak_free(hak_malloc(100));
    for (unsigned i = 0; i < INSIDE_FENCES; i++) {
        char *fence = inside_fence(i);
        EXPECT_DEATH(*const_cast<volatile char *>(fence) = 1, "") << "fence " << i;
    }
}

} // namespace

extern "C" {
extern const char *hak_options;
const char *hak_options = "DRAIN_INTERVAL=777,STATS_FILE=/dev/null,SS_RESERVE=2";
}

int main(int argc, char **argv) {
    bool early = argc == 3 && strcmp(argv[1], "--print-option-early") == 0;
    if (!early)
        hak_free(hak_malloc(10));
    if (early || (argc == 3 && strcmp(argv[1], "--print-option") == 0)) {
        puts(get(argv[2]).c_str());
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--print-json") == 0) {
        puts(heap_stats()["options"][argv[2]].text.c_str());
        return 0;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
