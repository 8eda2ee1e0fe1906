/* Small programs for the fault tests. Each is a phase of a real program's life that soon makes each kind of system
 * call; it copes with refusals, and an Actor checks what it gets.
 *
 * An actor stamps every block it gets, and checks every stamp before the block goes. A refusal must come with ENOMEM;
 * nothing else may change errno. If `strict`, a refusal is an error, too. Errors end the process with a line. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_FAULT_PROGRAMS_H
#define HAKMEM_TESTS_FAULT_PROGRAMS_H

#include <stddef.h>
#include <stdint.h>

#include <vector>

#include "../support.h"

[[noreturn]] __attribute__((format(printf, 1, 2))) void give_up(const char *format, ...);

class Actor {
  public:
    Actor(uint64_t seed, bool strict) : random_(seed), strict_(strict) {}

    /* Returns false if refused. A cleared block must be zero, and an aligned one aligned. */
    bool add(size_t size, bool cleared = false, size_t alignment = 0);
    bool resize(size_t index, size_t size);
    void drop(size_t index);
    void check(size_t index) const;

    void drop_some(size_t of_a_hundred); /* percent, chosen at random */
    void drop_all() { drop_some(100); }
    void check_all() const;
    void take_over(Actor &other); /* takes over the other actor's blocks */

    size_t count() const { return blocks_.size(); }
    size_t bytes() const { return bytes_; }
    size_t size_of(size_t index) const { return blocks_[index].size; }
    bool strict() const { return strict_; }
    Random &random() { return random_; }

  private:
    struct Block {
        unsigned char *p;
        size_t size;
        uint64_t tag;
    };
    bool granted(const void *p, size_t size) const;

    std::vector<Block> blocks_;
    size_t bytes_ = 0;
    uint64_t tags_ = 0;
    Random random_;
    bool strict_;
};

struct Program {
    const char *name;
    void (*run)(Actor &actor); /* leaves some blocks to the actor */
    unsigned settings;         /* the set of enum setting under which it is run */
    size_t heaps;              /* the maximum at once: threads, including a purger, and a heap that it empties */
    bool starts_purger;        /* the allocator must start a thread */
};
enum setting {
    AUTO = 1,
    EAGER = 2,
    WINDOW = 4,
    HUGE_PAGES = 8,
    LOCKED = 16,
    SECURED = 32,
    LAZILY = 64,
    SECURED_WHOLE = 128
};
extern const std::vector<Program> kPrograms;

/* A factor for how much each program does. */
extern size_t program_length;

#endif
