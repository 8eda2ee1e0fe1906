// Allocates what profile_test.py knows: how much, where, for how long. Each site is a line with a mark.
//
//     planted [GROWTH]     then waits: a line on stdin makes it leak GROWTH KiB more, the end of stdin ends it
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define ALWAYS inline __attribute__((always_inline))
#define NEVER __attribute__((noinline))

static void *volatile kept;

template <class T> NEVER T *touched(T *p, size_t bytes) {
    memset(p, 1, bytes);
    kept = p;
    return p;
}

struct Cache {
    NEVER void leak(size_t blocks, int) {
        for (size_t i = 0; i < blocks; i++) {
            char *lost = new char[4096]; // LEAK
            touched(lost, 4096);
        }
    }
};

static ALWAYS char *grab(size_t bytes) {
    return static_cast<char *>(malloc(bytes)); // INLINED
}

NEVER void keep_inlined() {
    for (int i = 0; i < 2000; i++)
        touched(grab(2000), 2000); // INLINER
}

NEVER void temporary() {
    for (int i = 0; i < 20000; i++) {
        char *gone = static_cast<char *>(calloc(1, 1600)); // TEMPORARY
        free(touched(gone, 1600));
    }
}

NEVER void fill(std::vector<std::string> *names) {
    for (int i = 0; i < 4000; i++)
        names->push_back(std::string(900, 'x')); // CONTAINER
}

// Freed when the clock says that they are old.
NEVER void long_lived() {
    std::vector<char *> all;
    all.reserve(3000);
    for (int i = 0; i < 3000; i++)
        all.push_back(touched(new char[1000], 1000)); // LONG
    auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(80))
        ;
    for (char *one : all)
        delete[] one;
}

NEVER void in_thread() {
    for (int i = 0; i < 500; i++)
        touched(static_cast<char *>(aligned_alloc(64, 8192)), 8192); // THREAD
}

int main(int count, char **arguments) {
    size_t growth = count > 1 ? strtoul(arguments[1], nullptr, 10) : 0;
    static Cache cache;
    static std::vector<std::string> names;
    cache.leak(4000, 1);
    keep_inlined();
    temporary();
    fill(&names);
    long_lived();
    std::thread(in_thread).join();
    puts("ready");
    fflush(stdout);
    for (int letter; (letter = getchar()) != EOF;)
        if (letter == '\n') {
            cache.leak(growth / 4, 2);
            puts("grown");
            fflush(stdout);
        }
    return 0;
}
