/* A privileged program (set-user-id, AT_SECURE in the kernel's auxiliary vector) that has compiled-in options. They are
 * in effect there as elsewhere; the environment is not. If this fails, the programs that need secure mode most run
 * without it, or whoever starts one of them chooses its options.
 *
 * Where the test may do so, it makes the program set-user-id. Everywhere it runs a child that finds AT_SECURE set. */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <sys/auxv.h>

#include "../support.h"

extern "C" {
extern const char *hak_options;
const char *hak_options = "SECURE=1, RETAIN_BYTES=123456";
extern void *__libc_stack_end; /* NOLINT: glibc's name */
}

namespace {

constexpr char kPretend[] = "HAK_TEST_PRIVILEGED=1";

/* The stack holds the arguments, NULL, the environment, NULL, and then the auxiliary vector. */
unsigned long auxiliary(unsigned long type) {
    char **at = static_cast<char **>(__libc_stack_end) + 1 + *static_cast<long *>(__libc_stack_end) + 1;
    bool pretend = false;
    for (; *at != nullptr; at++)
        pretend |= strcmp(*at, kPretend) == 0;
    if (type == AT_SECURE && pretend)
        return 1;
    for (auto *entry = reinterpret_cast<Elf64_auxv_t *>(at + 1); entry->a_type != AT_NULL; entry++)
        if (entry->a_type == type)
            return entry->a_un.a_val;
    return 0;
}

std::string option(const char *name) {
    char text[64] = "";
    hak_option_get(name, text, sizeof text);
    return text;
}

int show() {
    char *block = static_cast<char *>(malloc(40)); /* in secure mode its usable size is exact */
    printf("%lu %s %s %zu\n", getauxval(AT_SECURE), option("SECURE").c_str(), option("RETAIN_BYTES").c_str(),
           hak_usable_size(block));
    free(block);
    return 0;
}

const std::vector<std::string> kEnvironment = {"HAKMEM_RETAIN_BYTES=777", "MALLOC_TRIM_THRESHOLD_=999",
                                               "HAKMEM_XYZZY=1"};

TEST(Privileged, AnOrdinaryProgramReadsBoth) {
    Outcome outcome = run_self({"--show"}, kEnvironment);
    EXPECT_EQ(outcome.out, "0 1 777 40\n");
    EXPECT_EQ(outcome.err.rfind("hakmem: HAKMEM_XYZZY=1: no such option", 0), 0u) << outcome.describe();
    EXPECT_EQ(run_self({"--show"}).out, "0 1 123456 40\n");
}

TEST(Privileged, OnlyTheEnvironmentIsIgnored) {
    auto environment = kEnvironment;
    environment.emplace_back(kPretend);
    Outcome outcome = run_self({"--show"}, environment);
    EXPECT_EQ(outcome.out, "1 1 123456 40\n") << outcome.describe();
    EXPECT_EQ(outcome.err, "") << "a wrong name in the environment is read";
}

/* The real case needs another user, and a file system that supports set-user-id programs. */
TEST(Privileged, SetUserId) {
    char directory[] = "/var/tmp/hakmem-privileged-XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    std::string program = std::string(directory) + "/program";
    std::string copy = "chmod 755 " + std::string(directory) + " && cp /proc/" + std::to_string(getpid()) + "/exe " +
                       program + " && chown 65534 " + program + " && chmod 4755 " + program;
    bool made = geteuid() == 0 && system(copy.c_str()) == 0;
    Outcome outcome = made ? run_program(program.c_str(), {"--show"}, kEnvironment) : Outcome{};
    unlink(program.c_str());
    rmdir(directory);
    if (made && outcome.out[0] != '0') /* 0 means that the kernel granted no privilege */
        EXPECT_EQ(outcome.out, "1 1 123456 40\n") << outcome.describe();
}

} // namespace

/* Found before libc's function: the library's own query of the vector arrives here. */
extern "C" unsigned long getauxval(unsigned long type) { return auxiliary(type); }

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "--show") == 0)
        return show();
    testing::InitGoogleTest(&count, arguments);
    return RUN_ALL_TESTS();
}
