/* Allocation before and after main: constructors, destructors of statics, atexit handlers, pthread keys and
 * thread_locals of threads that end late. Blocks pass from each phase to the next. Linked dynamically and, as another
 * program, with -static. Its last action is to print "ok". */
/* SPDX-License-Identifier: MIT */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

namespace {

const size_t kSizes[] = {1, 48, 300, 1024, 5000, 40000, 70000, 900000, 3 << 20};

/* Blocks of every tier whose contents are checked when they are freed. */
class Load {
  public:
    explicit Load(unsigned char tag) : tag_(tag) {
        for (size_t size : kSizes) {
            auto *block = static_cast<unsigned char *>(malloc(size));
            memset(block, tag_, size);
            blocks_.push_back(block);
        }
    }
    ~Load() {
        for (size_t i = 0; i < blocks_.size(); i++) {
            for (size_t at = 0; at < kSizes[i]; at += 97)
                check(blocks_[i][at] == tag_);
            free(blocks_[i]);
        }
        ::operator delete[](::operator new[](tag_ * 100u));
        free(calloc(3, 300));
    }
    static void check(bool good) {
        if (good)
            return;
        const char text[] = "order: contents damaged\n";
        if (write(2, text, sizeof text - 1) < 0)
            _exit(4);
        _exit(3);
    }

  private:
    unsigned char tag_;
    std::vector<unsigned char *> blocks_;
};

Load *made_before_main;

/* Runs early, among the first constructors; its destructor counterpart runs among the last. */
__attribute__((constructor(101))) void first_constructor() {
    free(malloc(10));
    made_before_main = new Load(1);
}
__attribute__((destructor(101))) void last_destructor() {
    delete made_before_main;
    // clang-format off
    { Load late(9); }
    // clang-format on
    const char text[] = "ok\n";
    if (write(1, text, sizeof text - 1) < 0)
        _exit(4);
}
__attribute__((destructor(65000))) void early_destructor() { Load late(8); }

Load of_a_static(2);
std::unique_ptr<Load> handed_to_static_destructors;
thread_local std::unique_ptr<Load> of_this_thread;

void at_exit_first() {
    Load late(5);
    atexit([] { Load later(6); });
}

/* Ends while the statics are being destroyed, or never. */
void *late_thread(void *) {
    of_this_thread = std::make_unique<Load>(7);
    for (;;) {
        Load load(4);
        std::string text(5000, 'a');
    }
    return nullptr;
}

} // namespace

int main() {
    Load::check(made_before_main != nullptr);
    handed_to_static_destructors = std::make_unique<Load>(3);
    of_this_thread = std::make_unique<Load>(10);
    atexit(at_exit_first);
    std::thread([] { of_this_thread = std::make_unique<Load>(11); }).join();
    pthread_t thread;
    for (int i = 0; i < 2; i++)
        if (pthread_create(&thread, nullptr, late_thread, nullptr) != 0)
            return 5;
    try {
        volatile size_t impossible = static_cast<size_t>(-1) / 2;
        ::operator delete[](::operator new[](impossible));
        return 6;
    } catch (const std::bad_alloc &) {
    }
    return 0;
}
