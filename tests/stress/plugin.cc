/* A library that loading_test loads and unloads: it allocates in its constructor, when used, and in its destructor. */
/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include <map>
#include <string>

namespace {

struct State {
    State() : block(static_cast<char *>(malloc(70000))) {
        memset(block, 1, 70000);
        for (int i = 0; i < 100; i++)
            names[i] = std::string(static_cast<size_t>(i) * 10 + 1, 'x');
    }
    ~State() {
        free(block);
        free(calloc(10, 100));
    }
    char *block;
    std::map<int, std::string> names;
} state;

thread_local std::string of_this_thread;

} // namespace

/* Returns a block for the caller to free. */
extern "C" char *plugin_work(size_t size) {
    of_this_thread.assign(size % 5000 + 100, 'y');
    state.names[static_cast<int>(size)] = of_this_thread;
    auto *block = static_cast<char *>(malloc(size + 1));
    memset(block, 'z', size);
    block[size] = '\0';
    return block;
}
