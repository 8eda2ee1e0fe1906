/* Every option of the table with its legal and illegal values, set by hak_option_set and by a child's environment. If
 * one fails, a setting is mistaken for another, or a typing error passes unnoticed. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <thread>
#include <fstream>
#include <filesystem>
#include <sys/stat.h>
#include <hakmem.h>

#include <algorithm>
#include <array>

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

std::string all_options() {
    std::string all;
    for (unsigned i = 0; i < inside_options; i++)
        all += get(inside_option_at(i).name) + "\n";
    return all;
}

/* Legal values, each with the text that it must read back as. */
std::vector<std::pair<std::string, std::string>> legal_values(const inside_option &o) {
    std::vector<std::pair<std::string, std::string>> values;
    std::string min = std::to_string(o.min), max = std::to_string(o.max);
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
        values = {{min, min},
                  {max, max},
                  {"64k", "65536"},
                  {"3M", "3145728"},
                  {"1MiB", "1048576"},
                  {"2mb", "2097152"},
                  {"1.5m", "1572864"},
                  {"1 MiB", "1048576"},
                  {"0.25 MB", "262144"},
                  {"0.0009765625M", "1023"}};
        break;
    case INSIDE_NUMBER: values = {{min, min}, {max, max}}; break;
    default: /* any text */ break;
    }
    if ((o.kind == INSIDE_NUMBER && o.max == 1) || std::string(o.choices).rfind("0|1", 0) == 0)
        for (auto &[word, value] : std::vector<std::pair<std::string, std::string>>{
                 {"on", "1"}, {"Yes", "1"}, {"TRUE", "1"}, {"off", "0"}, {"no", "0"}, {"false", "0"}})
            values.emplace_back(word, value);
    return values;
}

std::vector<std::string> illegal_values(const inside_option &o) {
    if (o.kind == INSIDE_TEXT)
        return {};
    std::vector<std::string> values{"",    " ",   "foo", "-1",  "1x",  "0x10", "1 ",  " 1",   "99999999999999999999999",
                                    "1e3", "/",   "|",   "50%", "1.5", "1.k",  ".5k", "1,5k", "1  k",
                                    "1k ", "1kk", "1k1", "+1"};
    if (o.kind != INSIDE_NUMBER || o.max != 1)
        if (std::string(o.choices).rfind("0|1", 0) != 0)
            for (const char *word : {"on", "true", "off"})
                if (("|" + std::string(o.choices) + "|").find("|" + std::string(word) + "|") == std::string::npos)
                    values.emplace_back(word);
    if (o.kind == INSIDE_CHOICE)
        for (auto &choice : split(o.choices, '|')) {
            values.push_back(choice + "x");
            values.push_back(choice + "|");
            if (choice.size() > 1)
                values.push_back(choice.substr(0, choice.size() - 1));
        }
    else if (o.max < (uint64_t{1} << 62))
        values.push_back(std::to_string(o.max + 1));
    if (o.kind == INSIDE_BYTES)
        values.emplace_back("20000000000g"); /* more than 64 bits can hold */
    if (o.kind != INSIDE_CHOICE && o.min > 0)
        values.push_back(std::to_string(o.min - 1));
    return values;
}

TEST(Options, LegalValuesAreAcceptedLive) {
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

TEST(Options, LegalValuesAreAcceptedFromTheEnvironment) {
    for (unsigned i = 0; i < inside_options; i++) {
        inside_option o = inside_option_at(i);
        if (std::string(o.name) == "HELP")
            continue;
        if (HAK_TEST_SHORTER > 1 && std::string(o.name) == "REGION_BYTES")
            continue; /* ThreadSanitizer ends programs that map memory at addresses it does not expect */
        for (auto &[value, reads] : legal_values(o)) {
            Outcome outcome = run_self({"--print-option", o.name}, {std::string("HAKMEM_") + o.name + "=" + value});
            EXPECT_TRUE(outcome.exited(0)) << o.name << "=" << value << ": " << outcome.describe();
            EXPECT_EQ(outcome.out, reads + "\n") << o.name << "=" << value;
            bool says_something =
                std::string(o.name) == "STATS" || std::string(o.name) == "TUNE" || strstr(o.name, "DEBUG") != nullptr;
            if (!says_something)
                EXPECT_EQ(outcome.err, "") << o.name << "=" << value;
        }
    }
}

/* If it fails, every program that the hakmem command starts begins with a complaint. */
TEST(Options, VariablesOfTheCommandAreNotOptions) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_LIBRARY=/a/libhakmem.so", "HAKMEM_PEERS=x"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
}

/* One illegal value of every option at a time: a rejected value must not affect the other options. */
TEST(Options, IllegalValuesInTheEnvironmentPrintOneLine) {
    size_t rounds = 1;
    for (size_t round = 0; round < rounds; round++) {
        std::vector<std::string> settings;
        std::vector<inside_option> set;
        for (unsigned i = 0; i < inside_options; i++) {
            std::vector<std::string> values = illegal_values(inside_option_at(i));
            rounds = std::max(rounds, values.size());
            if (round < values.size()) {
                set.push_back(inside_option_at(i));
                settings.push_back(std::string("HAKMEM_") + set.back().name + "=" + values[round]);
            }
        }
        Outcome outcome = run_self({"--print-options", ""}, settings);
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        EXPECT_EQ(outcome.out, all_options()) << "the defaults are not used";
        std::vector<std::string> lines = lines_of(outcome.err);
        ASSERT_EQ(lines.size(), settings.size()) << outcome.describe();
        for (size_t i = 0; i < set.size(); i++) {
            EXPECT_EQ(lines[i].rfind("hakmem: " + settings[i] + ": expected ", 0), 0u) << lines[i];
            EXPECT_NE(lines[i].find("; using "), std::string::npos) << lines[i];
            if (set[i].kind == INSIDE_CHOICE)
                EXPECT_NE(lines[i].find(set[i].choices), std::string::npos) << lines[i];
            if (set[i].kind == INSIDE_BYTES)
                EXPECT_NE(lines[i].find("as in 512m or 1.5g"), std::string::npos) << lines[i];
            if (set[i].kind == INSIDE_NUMBER && set[i].max == 1)
                EXPECT_NE(lines[i].find("off or on"), std::string::npos) << lines[i];
        }
    }
}

/* A name in another case is accepted, and for a name that is nearly right the line suggests the right one. */
TEST(Options, NearlyRightNamesAreAcceptedOrSuggested) {
    for (const char *name : {"HAKMEM_retain_bytes", "hakmem_RETAIN_BYTES", "Hakmem_Retain_Bytes"}) {
        Outcome outcome = run_self({"--print-option", "RETAIN_BYTES"}, {std::string(name) + "=2m"});
        EXPECT_EQ(outcome.out, "2097152\n") << name << ": " << outcome.describe();
        EXPECT_EQ(outcome.err, "");
    }
    for (unsigned i = 0; i < inside_options; i++) { /* omits the last letter, or the first _ */
        std::string name = inside_option_at(i).name, shorter = name.substr(0, name.size() - 1);
        size_t joint = name.find('_');
        if (joint != std::string::npos)
            shorter = name.substr(0, joint) + name.substr(joint + 1);
        if (shorter == "PURGE")
            continue;
        Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_" + shorter + "=1"});
        EXPECT_EQ(outcome.err, "hakmem: HAKMEM_" + shorter + "=1: no such option, did you mean " + name +
                                   "? (HAKMEM_HELP=1 lists them); ignored\n");
    }
    for (const std::string &name : {std::string("HAKMEM_"), std::string("HAKMEM_XYZZY"), std::string("HAKMEM_P"),
                                    "HAKMEM_" + std::string(500, 'P')}) {
        Outcome outcome = run_self({"--print-option", "PURGE"}, {name + "=1"});
        EXPECT_NE(outcome.err.find("no such option (HAKMEM_HELP=1 lists them); ignored\n"), std::string::npos)
            << outcome.describe();
        EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.describe();
    }
}

/* If it fails, a build prints a line for each compiler that it starts. */
TEST(Options, AWrongSettingIsToldOnceForATreeOfProcesses) {
    const std::vector<std::pair<std::string, std::string>> settings{{"HAKMEM_XYZZY=1", "no such option"},
                                                                    {"hakmem_xyzzy=1", "no such option"},
                                                                    {"HAKMEM_PURGE=sometimes", "expected never"},
                                                                    {"HAKMEM_GUARD_SAMPLE_BYTES=1", "not a switch"}};
    for (auto &[setting, line] : settings) {
        Outcome outcome = run_self({"--run-option-printer", "PURGE"}, {setting});
        EXPECT_EQ(outcome.out, "auto\nauto\n") << outcome.describe();
        size_t at = outcome.err.find(line);
        ASSERT_NE(at, std::string::npos) << outcome.describe();
        EXPECT_EQ(outcome.err.find(line, at + 1), std::string::npos) << outcome.describe();
    }
}

/* Likewise what is found out after the options are read: of texts that the table cannot check, and of what does not go
 * together. */
TEST(Options, AWrongTextIsToldOnceForATreeOfProcesses) {
    const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> settings{
        {{"HAKMEM_TUNE=xyzzy=1,ring_blocks=x"}, {"no such tunable", "TUNE=ring_blocks=x: expected"}},
        {{"HAKMEM_POLICY=/none/xyzzy"}, {"cannot be read"}},
        {{"HAKMEM_POLICY=/proc/self/cmdline"}, {"has no effect"}},
        {{"HAKMEM_DUMP_SIGNAL=9"}, {"has no handlers"}},
        {{"HAKMEM_SUPERSLAB=0", "HAKMEM_SECURE=1"}, {"HAKMEM_SUPERSLAB=0: "}}};
    for (auto &[setting, lines] : settings) {
        Outcome outcome = run_self({"--run-option-printer", "PURGE"}, setting);
        EXPECT_EQ(outcome.out, "auto\nauto\n") << outcome.describe();
        for (const std::string &line : lines) {
            size_t at = outcome.err.find(line);
            ASSERT_NE(at, std::string::npos) << outcome.describe();
            EXPECT_EQ(outcome.err.find(line, at + 1), std::string::npos) << outcome.describe();
        }
    }
}

/* If it fails, a script cannot set an option anew of which its shell has told something. */
TEST(Options, WhatIsSetAfterALineCounts) {
    for (const char *other : {"hAKMEM_DRAIN_INTERVAL=5", "hAKMEM_DRAIN_INTERVAL=none"})
        for (bool is_first : {true, false}) {
            std::vector<std::string> both{is_first ? other : "HAKMEM_DRAIN_INTERVAL=7",
                                          is_first ? "HAKMEM_DRAIN_INTERVAL=7" : other};
            Outcome outcome = run_self({"--print-option", "DRAIN_INTERVAL"}, both);
            EXPECT_EQ(outcome.out + outcome.err, "7\n") << outcome.describe();
        }
}

/* What cannot be read in a narrow terminal is not read. */
TEST(Options, TheHelpIsWrappedAndHasEveryOption) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAKMEM_HELP=1"});
    for (unsigned i = 0; i < inside_options; i++)
        EXPECT_NE(outcome.err.find(std::string("\n  HAKMEM_") + inside_option_at(i).name + ": "), std::string::npos);
    for (auto &line : lines_of(outcome.err))
        EXPECT_LE(line.size(), 100u) << line;
    EXPECT_NE(outcome.err.find("|throughput; default balanced\n      named values of"), std::string::npos);
    EXPECT_LT(outcome.err.find("HAKMEM_STATS:"), outcome.err.find("HAKMEM_REGION_BYTES:")) << "by use";
}

/* Else a file that the user names is never written, and nothing says why. */
TEST(Options, AFileThatIsNamedIsToBeWritten) {
    auto value = [](const char *name, const std::vector<std::string> &env) {
        return run_self({"--print-option", name}, env).out;
    };
    EXPECT_EQ(value("STATS", {"HAKMEM_STATS_FILE=/dev/null"}), "1\n");
    EXPECT_EQ(value("STATS", {"HAKMEM_STATS_FILE=/dev/null", "HAKMEM_STATS=json"}), "json\n");
    EXPECT_EQ(value("STATS", {"HAKMEM_STATS=0", "HAKMEM_STATS_FILE=/dev/null"}), "0\n");
    EXPECT_EQ(value("STATS", {"HAKMEM_STATS_FILE="}), "0\n");
    EXPECT_EQ(value("ON_ERROR", {"HAKMEM_REPORT_FILE=/dev/null"}), "report\n");
    EXPECT_EQ(value("ON_ERROR", {"HAKMEM_REPORT_FILE=/dev/null", "HAKMEM_ON_ERROR=abort"}), "abort\n");
    EXPECT_EQ(value("PROFILE", {"HAKMEM_PROFILE_FILE=/dev/null"}), "1\n");
    EXPECT_EQ(value("PROFILE", {"HAKMEM_PROFILE_FILE=/dev/null", "HAKMEM_PROFILE=0"}), "0\n");
    EXPECT_EQ(value("PROFILE", {"HAKMEM_DUMP_INTERVAL_MS=1000"}), "1\n");
    EXPECT_EQ(value("PROFILE", {}), "0\n");
}

/* The line names the value in effect, which may be the default or the program's own. */
TEST(Options, TheLineNamesTheValueInEffect) {
    Outcome outcome = run_self({"--print-option", "DRAIN_INTERVAL"}, {"HAKMEM_DRAIN_INTERVAL=often"});
    EXPECT_EQ(outcome.err, "hakmem: HAKMEM_DRAIN_INTERVAL=often: expected 1 or more; using 777\n");
    outcome = run_self({"--print-option", "HARD_LIMIT"}, {"HAKMEM_HARD_LIMIT=50%"});
    EXPECT_EQ(outcome.err,
              "hakmem: HAKMEM_HARD_LIMIT=50%: expected 0 or more, in bytes or as in 512m or 1.5g; using 0 B\n");
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

/* Quotes and control characters in a value. If it fails, every reader of the statistics trips over them. */
TEST(Options, TheStatisticsStayJsonWithAnyText) {
    Outcome outcome = run_self({"--print-json", "STATS_FILE"}, {"HAKMEM_STATS_FILE=/a \"b\" \\c\td"});
    EXPECT_EQ(outcome.out, "/a \"b\" \\c d\n") << outcome.describe();
}

/* If it fails, anyone who can write to a shared directory can choose which file of the user, or of root, the
 * statistics overwrite. */
TEST(Options, FilesAreWrittenThroughNoLink) {
    char pattern[] = "/tmp/hakmem-options-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    std::string place = pattern;
    auto path = [&](const char *name) { return place + "/" + name; };
    auto statistics = [&](const std::string &file) {
        return run_self({"--print-option", "STATS"}, {"HAKMEM_STATS=1", "HAKMEM_STATS_FILE=" + file});
    };
    auto dump = [&](const char *name) { return hak_profile_dump(path(name).c_str()); };
    auto holds = [&](const char *name) {
        std::ifstream file(path(name));
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    for (const char *name : {"own", "target", "twice", "foreign"})
        std::ofstream(path(name)) << "precious" << std::string(100000, ' ');
    std::string before = holds("target");
    ASSERT_EQ(symlink(path("target").c_str(), path("link").c_str()), 0);
    ASSERT_EQ(link(path("twice").c_str(), path("again").c_str()), 0);
    ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
    bool has_foreign = chown(path("foreign").c_str(), 12345, 12345) == 0; /* root can */

    std::string made_by = "new." + std::to_string(statistics(path("new")).process);
    EXPECT_NE(holds(made_by.c_str()).find("live"), std::string::npos) << "a name of the process's own";
    EXPECT_EQ(dump("new"), 0);
    EXPECT_NE(holds("new").find("hakmem profile 1"), std::string::npos);
    struct stat made;
    ASSERT_EQ(stat(path("new").c_str(), &made), 0);
    EXPECT_EQ(made.st_mode & 0777, 0600u);
    EXPECT_EQ(dump("own"), 0);
    EXPECT_EQ(holds("own").find("precious"), std::string::npos) << "a file of one's own is written again";
    EXPECT_LT(holds("own").size(), 100000u);
    for (const char *name : {"link", "again"})
        EXPECT_EQ(dump(name), EIO) << name;
    EXPECT_EQ(hak_profile_dump(("/proc/self/root" + path("link")).c_str()), EIO) << "a link below /proc, but not of it";
    EXPECT_EQ(hak_profile_dump("/dev/shm/../fd/1"), EIO);
    EXPECT_EQ(holds("target"), before);
    EXPECT_EQ(holds("twice"), before);
    if (has_foreign) {
        EXPECT_EQ(dump("foreign"), EIO);
        EXPECT_EQ(holds("foreign"), before);
    }
    std::string read;
    std::thread reader([&] { read = holds("fifo"); });
    statistics(path("fifo"));
    reader.join();
    EXPECT_NE(read.find("live"), std::string::npos);
    EXPECT_NE(statistics("/dev/stderr").err.find("live"), std::string::npos);
    std::filesystem::remove_all(place);
}

/* If it fails, a name that is too long is cut off, and the file that has the shorter name is overwritten. */
TEST(Options, FilesWithNamesThatAreTooLongAreNotWritten) {
    char pattern[] = "/tmp/hakmem-options-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    std::string target = std::string(pattern) + "/target", longer = std::string(pattern) + "/";
    std::ofstream(target) << "precious";
    while (longer.size() + strlen("target") < 511)
        longer += "/";
    EXPECT_EQ(hak_profile_dump((longer + "target.1").c_str()), EIO);
    std::string held;
    std::ifstream(target) >> held;
    EXPECT_EQ(held, "precious");
    EXPECT_EQ(hak_profile_dump((longer + "target").c_str()), 0) << "the longest name";
    std::filesystem::remove_all(pattern);
}

/* If it fails, programs tuned for glibc lose their tuning. */
TEST(Options, GlibcsTrimThresholdSetsRetainBytes) {
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
    outcome = run_self({"--print-option", "PRESSURE"});
    EXPECT_EQ(outcome.out, "2\n") << outcome.describe();
    outcome = run_self({"--print-option", "PROFILE_RATE"});
    EXPECT_EQ(outcome.out, "5\n") << outcome.describe();
}

TEST(Options, CompiledInOptionsAreReportedAsOthersAre) {
    Outcome outcome = run_self({"--print-option", "PURGE"}, {"HAK_TEST_COMPILED_IN=NOISE=1 PURGE, PURGE=eager"});
    EXPECT_EQ(outcome.out, "eager\n") << outcome.describe();
    EXPECT_EQ(outcome.err.rfind("hakmem: NOISE=1: no such option", 0), 0u) << outcome.describe();
    EXPECT_NE(outcome.err.find("\nhakmem: PURGE=: expected "), std::string::npos) << outcome.describe();
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.describe();
}

/* Switches and secrets that an attacker would want: someone who can write anywhere in the process can't write there. */
TEST(OptionsDeathTest, StartOptionsAreReadOnly) {
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

/* Where a window lies is random, too, and every pointer tells it. If it fails, a pointer that leaks tells a part of the
 * key to links and canaries. */
TEST(Region, ItsPlaceTellsNothingOfTheKey) {
    constexpr uintptr_t kRandomBits = ((uintptr_t{1} << 44) - 1) & ~(uintptr_t{2} * kMiB - 1); /* as there */
    if (getenv("HAKMEM_REGION_BYTES") == nullptr) {
        Outcome outcome = run_self({"--gtest_filter=Region.ItsPlaceTellsNothingOfTheKey"}, {"HAKMEM_REGION_BYTES=0"});
        EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
        return;
    }
    hak_free(hak_malloc(100));
    EXPECT_NE((inside_base() ^ inside_key()) & kRandomBits, 0u) << std::hex << inside_base();
}

/* A thread of the parent may have been at it when the process was forked. If it fails, a program that sets itself a
 * limit after a fork waits for that thread for seconds, and is then refused memory that it may have. */
TEST(Region, AChildEndsWhatItsParentBeganToGiveBack) {
    hak_free(hak_malloc(100));
    pid_t child = fork();
    if (child == 0) {
        bool done = inside_region_cut_after(static_cast<uint32_t>(getppid()), kGiB) != 0;
        char *block = static_cast<char *>(hak_malloc(64 * kMiB));
        if (block != nullptr)
            memset(block, 1, 64 * kMiB);
        _exit(!done ? 1 : block == nullptr ? 2 : 0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}

/* If it fails, a program that writes far beyond a block silently changes what HAKMEM knows about blocks. */
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
const char *hak_options = "DRAIN_INTERVAL=777,STATS_FILE=/dev/null,PRESSURE=2,PROFILE_RATE=5";
/* Before everything else: whatever this variable says was compiled in instead. */
static void compile_in(int, char **, char **environment) {
    for (const char variable[] = "HAK_TEST_COMPILED_IN="; *environment != nullptr; environment++)
        if (strncmp(*environment, variable, sizeof variable - 1) == 0)
            hak_options = *environment + sizeof variable - 1;
}
__attribute__((section(".preinit_array"), used)) static void (*const compile_in_first)(int, char **,
                                                                                       char **) = compile_in;
}

int main(int argc, char **argv) {
    bool early = argc == 3 && strcmp(argv[1], "--print-option-early") == 0;
    if (!early)
        hak_free(hak_malloc(10));
    if (early || (argc == 3 && strcmp(argv[1], "--print-option") == 0)) {
        puts(get(argv[2]).c_str());
        return 0;
    }
    if (argc == 3 &&
        strcmp(argv[1], "--run-option-printer") == 0) { /* prints it, and so does a process that it starts */
        puts(get(argv[2]).c_str());
        fflush(stdout);
        int status = 1;
        pid_t child = fork();
        if (child == 0)
            execl("/proc/self/exe", argv[0], "--print-option", argv[2], nullptr);
        return child > 0 && waitpid(child, &status, 0) == child ? status : 1;
    }
    if (argc == 3 && strcmp(argv[1], "--print-options") == 0) {
        fputs(all_options().c_str(), stdout);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "--print-json") == 0) {
        puts(heap_stats()["options"][argv[2]].text.c_str());
        return 0;
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
