/* Libraries that are loaded and unloaded under HAKMEM. This program is linked with libhakmem.so; plugins allocate when
 * they are loaded, used and unloaded. Also the loader's special cases: plugins that bind to glibc's malloc, and audit
 * modules. If one fails, a program that loads other people's code dies without an explanation. */
/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <malloc.h>

#include <fstream>
#include <iterator>
#include <thread>

#include "../support.h"

namespace {

using Work = char *(size_t);

void use_plugin(int flags) {
    void *plugin = dlopen(HAK_TEST_PLUGIN, flags);
    ASSERT_NE(plugin, nullptr) << dlerror();
    auto *work = reinterpret_cast<Work *>(dlsym(plugin, "plugin_work"));
    std::vector<char *> blocks;
    for (size_t size : kTierSizes)
        blocks.push_back(work(size));
    dlclose(plugin);
    for (size_t i = 0; i < blocks.size(); i++) {
        EXPECT_EQ(strlen(blocks[i]), kTierSizes[i]);
        free(blocks[i]); /* the block outlives the library that allocated it */
    }
}

TEST(Loading, PluginsComeAndGo) {
    for (int round = 0; round < 50; round++)
        use_plugin(round % 2 == 0 ? RTLD_NOW : RTLD_LAZY | RTLD_LOCAL);
}

TEST(Loading, PluginsComeAndGoInThreads) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([] {
            for (int round = 0; round < 20; round++)
                use_plugin(RTLD_NOW);
        });
    for (auto &thread : threads)
        thread.join();
}

/* ---- a plugin whose note lies in no part that is loaded, which the dynamic linker does not mind ---- */

int sample_in(const char *plugin) {
    void *opened = dlopen(plugin, RTLD_NOW);
    if (opened == nullptr)
        return 2;
    auto *work = reinterpret_cast<Work *>(dlsym(opened, "plugin_work"));
    free(work(3000));
    return 0;
}

TEST(Loading, APluginMayHaveAnOddNote) {
    std::string path = "/tmp/hakmem-odd-note-" + std::to_string(getpid());
    std::ifstream from(HAK_TEST_PLUGIN, std::ios::binary);
    std::string image{std::istreambuf_iterator<char>(from), {}};
    auto *header = reinterpret_cast<ElfW(Ehdr) *>(&image[0]);
    auto *segments = reinterpret_cast<ElfW(Phdr) *>(&image[header->e_phoff]);
    int notes = 0;
    for (int i = 0; i < header->e_phnum; i++)
        if (segments[i].p_type == PT_NOTE)
            segments[i].p_vaddr += kGiB, notes++;
    EXPECT_GT(notes, 0);
    std::ofstream(path, std::ios::binary) << image;
    Outcome outcome = run_self({"--sample-in", path.c_str()},
                               {"HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=1", "HAKMEM_PROFILE_FILE=/dev/null"});
    unlink(path.c_str());
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
}

TEST(Loading, TheLibraryItselfCanBeOpenedAndClosed) {
    for (int round = 0; round < 10; round++) {
        void *library = dlopen(HAK_TEST_LIBRARY, RTLD_NOW);
        ASSERT_NE(library, nullptr) << dlerror();
        dlclose(library);
    }
    free(malloc(100));
}

/* ---- a plugin that is still loaded when the program ends ---- */

int leave_open() {
    void *plugin = dlopen(HAK_TEST_PLUGIN, RTLD_NOW);
    if (plugin == nullptr)
        return 2;
    auto *work = reinterpret_cast<Work *>(dlsym(plugin, "plugin_work"));
    std::thread([work] { free(work(3000)); }).join();
    free(work(70));
    return 0; /* its destructors run after ours */
}

TEST(Loading, APluginOutlivesMain) {
    Outcome outcome = run_self({"--leave-open"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
}

/* ---- RTLD_DEEPBIND that is left: the plugin calls glibc's malloc, the program calls our free ---- */

int use_deep_bound(const std::string &call) {
    void *plugin = dlopen(HAK_TEST_PLUGIN, RTLD_NOW | RTLD_DEEPBIND);
    if (plugin == nullptr)
        return 2;
    char *block = reinterpret_cast<Work *>(dlsym(plugin, "plugin_work"))(100);
    if (call == "free")
        free(block);
    if (call == "realloc")
        free(realloc(block, 1000));
    if (call == "malloc_usable_size")
        return malloc_usable_size(block) == 0 ? 3 : 4;
    dlclose(plugin);
    return 0;
}

TEST(DeepBind, APluginThatKeepsItsBlocksWorks) {
    Outcome outcome = run_self({"--deep-bound", "nothing"}, {"HAKMEM_KEEP_DEEPBIND=1"});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.err, "");
}

TEST(DeepBind, AForeignBlockIsReportedInOneLine) {
    for (std::string call : {"free", "realloc", "malloc_usable_size"}) {
        Outcome outcome = run_self({"--deep-bound", call}, {"HAKMEM_KEEP_DEEPBIND=1"});
        bool ended = call == "malloc_usable_size" ? outcome.exited(3) /* a question harms nothing: 0 */
                                                  : outcome.killed(SIGABRT);
        EXPECT_TRUE(ended) << call << ": " << outcome.describe();
        std::string line = call == "free" ? "hakmem: invalid free of 0x" : "hakmem: invalid pointer 0x";
        EXPECT_EQ(outcome.err.rfind(line, 0), 0u) << outcome.describe();
        EXPECT_NE(outcome.err.find("(not a block of this heap)\n"), std::string::npos) << outcome.describe();
        EXPECT_EQ(without_calls(outcome.err).rfind("hakmem: "), 0u) << "more than one line\n" << outcome.describe();
    }
}

/* ---- LD_AUDIT: the loader calls code that allocates while it loads us ---- */

void run_audited(const char *module) {
    std::string preload = std::string("LD_PRELOAD=") + HAK_TEST_LIBRARY;
    Outcome outcome = run_program(HAK_TEST_PROGRAM, {}, {std::string("LD_AUDIT=") + module, preload});
    EXPECT_TRUE(outcome.exited(0)) << outcome.describe();
    EXPECT_EQ(outcome.out, "ok\n");
    EXPECT_NE(outcome.err.find("audit: hakmem is loaded\n"), std::string::npos) << outcome.describe();
}

TEST(Audit, AModuleMayAllocate) { run_audited(HAK_TEST_AUDIT); }

/* The module has a libc of its own, whose thread-specific values occupy the same places as the program's. */
TEST(Audit, AModuleMayBringASecondHakmem) { run_audited(HAK_TEST_AUDIT_OVER_HAKMEM); }

/* The library is called before its libc has the environment. If it fails, options that are fixed at the start
 * (REGION_BYTES, HUGE_PAGES, SECURE, …) keep their defaults under an audit module. */
int cannot_have_a_gibibyte() { return malloc(kGiB) == nullptr ? 0 : 5; }

TEST(Audit, OptionsInTheEnvironmentCount) {
    Outcome plain = run_self({"--cannot-have-a-gibibyte"}, {"HAKMEM_REGION_BYTES=512M"});
    EXPECT_TRUE(plain.exited(0)) << plain.describe();
    std::string audit = std::string("LD_AUDIT=") + HAK_TEST_AUDIT;
    Outcome audited = run_self({"--cannot-have-a-gibibyte"}, {audit, "HAKMEM_REGION_BYTES=512M"});
    EXPECT_TRUE(audited.exited(0)) << audited.describe();
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--leave-open") == 0)
        return leave_open();
    if (argc == 2 && strcmp(argv[1], "--cannot-have-a-gibibyte") == 0)
        return cannot_have_a_gibibyte();
    if (argc == 3 && strcmp(argv[1], "--sample-in") == 0)
        return sample_in(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--deep-bound") == 0)
        return use_deep_bound(argv[2]);
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
