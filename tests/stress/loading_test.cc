/* Libraries that come and go under HAKMEM. Linked with libhakmem.so; plugins allocate when loaded, used and unloaded. */
#include <dlfcn.h>
#include <gtest/gtest.h>

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
        free(blocks[i]); /* the block outlives the library it came from */
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

TEST(Loading, TheLibraryItselfCanBeOpenedAndClosed) {
    for (int round = 0; round < 10; round++) {
        void *library = dlopen(HAK_TEST_LIBRARY, RTLD_NOW);
        ASSERT_NE(library, nullptr) << dlerror();
        dlclose(library);
    }
    free(malloc(100));
}

} // namespace
