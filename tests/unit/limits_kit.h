/* Shared by the tests of limits: options set for a while, and blocks that count. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_LIMITS_KIT_H
#define HAKMEM_TESTS_LIMITS_KIT_H

#include <gtest/gtest.h>
#include <hakmem.h>

#include "../heap_stats.h"
#include "../support.h"
#include "inside.h"

constexpr size_t kSlot = 64 * kKiB;

/* Gives an option another value for the lifetime of this object. */
class Setting {
  public:
    Setting(const char *name, const std::string &value) : name_(name) {
        char before[64];
        hak_option_get(name, before, sizeof before);
        before_ = before;
        EXPECT_EQ(hak_option_set(name, value.c_str()), 0) << name;
    }
    Setting(const char *name, uint64_t value) : Setting(name, std::to_string(value)) {}
    ~Setting() { hak_option_set(name_, before_.c_str()); }

  private:
    const char *name_;
    std::string before_;
};

/* The bytes that count once everything has been given back that can be. */
inline size_t counted_at_rest() {
    hak_trim();
    return inside_limits_counted_bytes();
}

/* With one thread: a refused request left nothing behind. */
inline void expect_exact() {
    inside_totals slots = inside_pool_count();
    EXPECT_EQ(inside_pool_resident_slots(), slots.active_slots + slots.empty_slots);
}

/* Blocks of one size, each written to; glibc allocates the list of them. */
class Blocks {
  public:
    explicit Blocks(size_t size) : size_(size) {}
    ~Blocks() { shrink(0); }
    bool grow() {
        errno = 0;
        void *block = blocks_.size() % 3 == 2 ? hak_calloc(1, size_) : hak_malloc(size_);
        if (block == nullptr)
            return false;
        EXPECT_EQ(errno, 0) << "a malloc that succeeds changed errno";
        memset(block, 0xcd, size_);
        blocks_.push_back(block);
        return true;
    }
    void grow_to(size_t bytes) {
        while (this->bytes() < bytes)
            ASSERT_TRUE(grow()) << "no memory at " << this->bytes() / kKiB << " KiB";
    }
    void shrink(size_t count) {
        for (; blocks_.size() > count; blocks_.pop_back())
            hak_free(blocks_.back());
    }
    void shrink_to_bytes(size_t bytes) { shrink(bytes / size_); }
    size_t count() const { return blocks_.size(); }
    size_t bytes() const { return blocks_.size() * size_; }
    void *at(size_t i) { return blocks_[i]; }

  private:
    size_t size_;
    std::vector<void *> blocks_;
};

[[noreturn]] inline void give_up(const char *what, size_t figure) {
    fprintf(stderr, "%s: %zu\n", what, figure);
    _exit(1);
}

#endif
