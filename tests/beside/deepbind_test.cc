/* Libraries that are opened with RTLD_DEEPBIND, under the library. If a test fails, programs like PHP crash at their
 * start: what they open has libc's free, and gets blocks of the library's. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <signal.h>

#include "../support.h"

namespace {

const std::string kLibrary = HAK_TEST_LIBRARY, kPlugin = HAK_TEST_DEEPBIND_PLUGIN;

Outcome opens(const std::string &name, std::vector<std::string> environment = {}, std::string path = kPlugin,
              const char *program = HAK_TEST_DEEPBIND) {
    environment.insert(environment.begin(), "LD_PRELOAD=" + kLibrary);
    return run_program(program, {name, path}, environment);
}

void expect_shared(const Outcome &outcome, const std::string &out = "the program's\n") {
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, out);
    EXPECT_EQ(outcome.err, "");
}

TEST(DeepBind, BlocksPassBothWays) {
    for (const char *name : {"path", "base", "child"})
        expect_shared(opens(name));
    expect_shared(opens("threads"), "came and went\n");
}

TEST(DeepBind, TheCallerStaysTheCaller) { expect_shared(opens("runpath")); }

TEST(DeepBind, InALinkedProgramToo) {
    for (const char *program : {HAK_TEST_DEEPBIND_LINKED, HAK_TEST_DEEPBIND_ARCHIVE})
        for (const char *name : {"path", "runpath", "child"})
            expect_shared(run_program(program, {name, kPlugin}));
}

TEST(DeepBind, BeforeTheLibrarysConstructor) {
    std::string both = "LD_PRELOAD=" + kLibrary + " " + HAK_TEST_DEEPBIND_OPENER;
    expect_shared(opens("path", {both, "DEEPBIND_EARLY=" + kPlugin}), "early\nthe program's\n");
}

/* Nothing has read the environment then. */
TEST(DeepBind, BeforeTheLibrarysConstructorAsTheOptionSays) {
    std::string both = "LD_PRELOAD=" + kLibrary + " " + HAK_TEST_DEEPBIND_OPENER;
    Outcome outcome = opens("path", {both, "DEEPBIND_EARLY=" + kPlugin, "HAKMEM_KEEP_DEEPBIND=1"});
    EXPECT_TRUE(outcome.killed(SIGABRT)) << outcome.describe();
    EXPECT_EQ(outcome.out, "") << "the flag was taken away";
}

TEST(DeepBind, UnderAnAuditModule) {
    Outcome outcome = opens("path", {std::string("LD_AUDIT=") + HAK_TEST_AUDIT});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, "the program's\n");
}

TEST(DeepBind, AFailureKeepsItsText) {
    Outcome outcome = opens("path", {}, "/nowhere/at_all.so");
    EXPECT_TRUE(outcome.exited(1)) << outcome.describe();
    EXPECT_EQ(outcome.out, "/nowhere/at_all.so: cannot open shared object file: No such file or directory\n");
}

TEST(DeepBind, ANamespaceOfItsOwnKeepsTheFlag) {
    expect_shared(opens("namespace"), "the plugin's\n");
    expect_shared(opens("namespace", {"HAKMEM_CRASH_LOG=1"}), "the plugin's\n"); /* and no line says the contrary */
}

TEST(DeepBind, AProgramWithItsOwnMallocKeepsTheFlag) {
    expect_shared(opens("own", {}, kPlugin, HAK_TEST_DEEPBIND_OWN), "the plugin's\n");
}

TEST(DeepBind, TheOptionKeepsTheFlag) {
    Outcome outcome = opens("path", {"HAKMEM_KEEP_DEEPBIND=1"});
    EXPECT_TRUE(outcome.killed(SIGABRT)) << outcome.describe();
    EXPECT_EQ(outcome.err.rfind("hakmem: invalid free of 0x", 0), 0u) << outcome.describe();
}

TEST(DeepBind, OneLineSaysThatItWasTakenAway) {
    Outcome outcome = opens("path", {"HAKMEM_CRASH_LOG=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err,
              "hakmem: dlopen of libdeepbind_plugin.so without RTLD_DEEPBIND, so that it has the program's malloc "
              "(HAKMEM_KEEP_DEEPBIND=1 leaves the flag)\n");
}

} // namespace
