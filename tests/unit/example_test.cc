/* The worked example of docs/design.md: three blocks, two threads, and the slab's record after each step. If it fails,
 * the page explains another allocator than this one. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

#include <hakmem.h>

#include "inside.h"

namespace {

constexpr size_t kBytes = 1024; /* 64 blocks a slab, carved four at a time */

/* Runs functions one after the other, in its own thread. */
class Worker {
  public:
    Worker() : thread_([this] { loop(); }) {}
    void run(std::function<void()> what) {
        std::unique_lock<std::mutex> lock(mutex_);
        what_ = std::move(what);
        changed_.notify_all();
        changed_.wait(lock, [this] { return !what_; });
    }
    void end() {
        run([this] { ended_ = true; });
        thread_.join();
    }

  private:
    void loop() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (!ended_) {
            changed_.wait(lock, [this] { return bool(what_); });
            what_();
            what_ = nullptr;
            changed_.notify_all();
        }
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> what_;
    bool ended_ = false;
    std::thread thread_;
};

/* Names a list's blocks by letters, in the order of addresses: block 0 is a. */
std::string letters(const int (&list)[4]) {
    std::string text;
    for (int index : list)
        if (index >= 0)
            text += (text.empty() ? "" : "→") + std::string(1, char('a' + index));
    return text.empty() ? "–" : text;
}

class Example {
  public:
    Example() {
        std::ifstream file(HAK_TEST_DESIGN);
        std::stringstream text;
        text << file.rdbuf();
        page_ = text.str();
    }
    /* Expects the page to have this step's row. */
    void expect_row(const std::string &step, const void *block) {
        inside_tiny_record of_a = inside_tiny_record_of(block, heap_a), of_b = inside_tiny_record_of(block, heap_b);
        EXPECT_EQ(of_a.floor, 0u);
        if (!of_a.current) /* carved = listed + out, out = countdown + floor */
            EXPECT_EQ(of_a.carved,
                      std::count_if(of_a.list, of_a.list + 4, [](int i) { return i >= 0; }) + of_a.countdown);
        std::string owner = of_a.owned == INSIDE_OWNER_POOL   ? "POOL"
                            : of_a.owned == INSIDE_OWNER_NONE ? "NONE"
                            : of_a.owner == heap_a            ? "A"
                                                              : "B";
        std::string place = of_a.current ? "current" : of_a.usable ? "usable" : "–";
        std::ostringstream row;
        row << "| " << step << " | " << owner << " | " << place << " | " << of_a.carved << " | " << of_a.countdown
            << " | " << letters(of_a.list) << " | " << letters(of_a.heap_list) << " | ";
        if (of_b.outbox_blocks != 0)
            row << of_b.outbox_blocks;
        else
            row << "–";
        row << " | ";
        if (of_a.inbox_blocks != 0)
            row << of_a.inbox_blocks << ", newest " << char('a' + of_a.inbox_newest);
        else
            row << "–";
        row << " |";
        EXPECT_NE(page_.find(row.str()), std::string::npos) << "docs/design.md lacks\n" << row.str();
    }

    void *heap_a = nullptr, *heap_b = nullptr;

  private:
    std::string page_;
};

} // namespace

TEST(Example, TheDesignPageIsCorrect) {
    Example example;
    Worker a, b;
    void *block[4];
    b.run([&] {
        hak_free(hak_malloc(64)); /* now B has a heap, but no slab of the class */
        example.heap_b = inside_heap();
    });
    a.run([&] {
        for (int i = 0; i < 3; i++)
            block[i] = hak_malloc(kBytes);
        example.heap_a = inside_heap();
    });
    for (unsigned i = 0; i < 3; i++)
        ASSERT_EQ(inside_tiny_index(block[i]), i);
    example.expect_row("1. A: malloc three times", block[0]);
    a.run([&] { hak_free(block[0]); });
    example.expect_row("2. A: free(a)", block[0]);
    b.run([&] { hak_free(block[1]); });
    example.expect_row("3. B: free(b)", block[0]);
    b.run([&] { hak_free(block[2]); });
    example.expect_row("4. B: free(c)", block[0]);
    b.run([] { hak_trim(); });
    example.expect_row("5. B: trim", block[0]);
    a.run([&] {
        block[0] = hak_malloc(kBytes);
        block[3] = hak_malloc(kBytes);
        ASSERT_EQ(inside_tiny_index(block[0]), 0u);
        ASSERT_EQ(inside_tiny_index(block[3]), 3u);
    });
    example.expect_row("6. A: malloc twice", block[0]);
    a.run([&] {
        block[2] = hak_malloc(kBytes);
        ASSERT_EQ(inside_tiny_index(block[2]), 2u);
    });
    example.expect_row("7. A: malloc", block[0]);
    a.end();
    example.expect_row("8. A ends", block[0]);
    b.run([&] { hak_free(block[0]); });
    example.expect_row("9. B: free(a)", block[0]);
    b.run([&] {
        hak_free(block[2]);
        hak_free(block[3]);
    });
    example.expect_row("10. B: free(c), free(d)", block[0]);
    b.end();
}
