// A program that allocates in every way. With the word `twice` it frees a block twice; with `threads`, threads hand
// blocks over while it forks.
// SPDX-License-Identifier: MIT
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

namespace {

constexpr int rounds = 200;

void fail(const char *what) {
    std::perror(what);
    std::_Exit(3);
}

// Blocks of some sizes, in each way; each is freed in the way that it asks for.
void every_call(int i) {
    size_t bytes = static_cast<size_t>(i) * 7 + 1;
    struct alignas(64) Line {
        char c[64];
    };
    void *a = std::malloc(bytes), *b = std::calloc(2, bytes) /* once FAULTY_BYTES */, *c = std::aligned_alloc(256, 256),
         *d = nullptr;
    if (posix_memalign(&d, 4096, bytes) != 0 || a == nullptr || b == nullptr || c == nullptr)
        fail("no memory");
    a = std::realloc(a, bytes * 3);
    b = reallocarray(b, 4, bytes);
    auto *e = new char[bytes];
    auto *f = new Line;
    auto *g = new (std::nothrow) int;
    for (void *p : {a, b, c, d})
        std::free(p);
    delete[] e;
    delete f;
    delete g;
}

std::atomic<void *> handed[64];

// Each block passes to whatever thread comes by next.
void *hand_over(void *seed) {
    auto random = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(seed));
    for (int i = 0; i < rounds * 50; i++) {
        random = random * 1664525 + 1013904223;
        std::free(handed[random >> 26].exchange(std::malloc(random >> 8 & 1023)));
    }
    return nullptr;
}

void with_threads() {
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        if (pthread_create(&threads[i], nullptr, hand_over, reinterpret_cast<void *>(i)) != 0)
            fail("no thread");
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (i % 2 == 0 && fork() > 0) // a child that forks first of all
                _exit(wait(nullptr) < 0);
            every_call(i);
            _exit(0);
        }
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            fail("a child failed");
    }
    for (pthread_t thread : threads)
        pthread_join(thread, nullptr);
}

} // namespace

int main(int count, char **words) {
    for (int i = 0; i < rounds; i++)
        every_call(i);
    if (count > 1 && std::strcmp(words[1], "twice") == 0) {
        void *volatile p = std::malloc(100);
        std::free(p);
        std::free(p);
    }
    if (count > 1 && std::strcmp(words[1], "threads") == 0)
        with_threads();
}
