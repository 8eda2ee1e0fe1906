/* Calls to the allocator as data, and the machine that makes them and checks every answer. The model test, the fuzzers
 * and the shrinking of failed sequences all use this one interpreter.
 *
 *  1. A Step names a call, its flavour (which function, which alignment), a place in a table of blocks, and a size. A
 *     step has a meaning whatever came before it, so any steps can be left out.
 *  2. A Machine is one actor: a table of blocks, and a check of each answer: alignment, usable size, zeroes, contents
 *     kept, errno. Machines share a World, which knows every live block: no two may overlap.
 *  3. The first error is printed as one line, followed by abort().
 *
 * Only one thread at a time may use a machine. */
/* SPDX-License-Identifier: MIT */
#ifndef HAKMEM_TESTS_OPERATIONS_H
#define HAKMEM_TESTS_OPERATIONS_H

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <hakmem.h>

#include "../surface.h"

// clang-format off
#define CALLS(X) X(malloc) X(calloc) X(aligned) X(realloc) X(free) X(check) X(fill) X(expand) X(give) X(receive) \
    X(impossible) X(illegal) X(trim) X(stats) X(option) X(elsewhere) X(fork) X(end) X(damage) X(arena)
// clang-format on
enum Call : uint8_t {
#define CALL_ENUM(name) CALL_##name,
    CALLS(CALL_ENUM)
#undef CALL_ENUM
        CALL_COUNT
};

struct Step {
    uint8_t call, flavour, thread;
    uint16_t place;
    uint32_t size;
};

/* Converts to "THREAD CALL PLACE SIZE FLAVOUR" and back. step_read returns false for a malformed line. */
std::string step_text(const Step &step);
bool step_read(const char *text, Step *step);

/* Eight bytes make a step of thread 0; any eight are valid. Most sizes are small. */
constexpr size_t kStepBytes = 8;
Step step_of_bytes(const uint8_t *bytes);

/* Which operator allocated a block: secure mode checks that the matching one frees it. */
enum class Maker { kMalloc, kNew, kNewArray };

struct Block {
    char *at;
    size_t size;      /* as requested */
    size_t filled;    /* bytes the pattern covers: `size`, or the whole usable size */
    size_t alignment; /* 0 if none was requested */
    uint32_t tag;
    /* Set by realloc, which may leave the block in place: `size` need not be of the same class as the block. */
    bool resized = false;
    Maker maker = Maker::kMalloc;
};

/* Shared by machines: all live blocks by address, and blocks on their way from one machine to another. */
class World {
  public:
    void born(const Block &block, size_t usable);
    void dies(const Block &block);
    void put(const Block &block);
    bool take(Block *block, size_t which);
    size_t live();

  private:
    std::mutex mutex_;
    std::map<char *, size_t> live_;
    std::vector<Block> exchange_;
};

class Machine {
  public:
    Machine(const Surface &surface, World &world, unsigned number = 0, size_t places = 16384);
    Machine(const Machine &) = delete;
    Machine &operator=(const Machine &) = delete;
    ~Machine();
    /* Returns false if the thread that runs this machine is to end, and another is to go on. */
    bool run(const Step &step);
    void free_all();
    void free_the_exchange();
    /* Resets the options that steps change to their defaults. */
    static void reset_options();

    long steps = 0;               /* steps made so far */
    size_t most_bytes = 64 << 20; /* maximum of live bytes; larger requests are cut down */
    /* After the first damage nothing is checked any more, because the blocks may contain anything. Damage is done only
     * if allowed. */
    bool damage_allowed = false, careless = false;

  private:
    static constexpr size_t kFreed = 64;

    Block *at(size_t place);
    Block *live_near(size_t place);
    size_t allowed(size_t size) const;
    void put(size_t place, void *block, size_t size, size_t alignment);
    void put_unchecked(size_t place, void *block, size_t size, size_t alignment);
    Block remove(size_t place);
    void check(const Block &block);
    void release(const Block &block, unsigned flavour);
    void call_free(const Block &block, unsigned flavour);
    void call_free_aligned(const Block &block, unsigned flavour);
    void do_malloc(const Step &step);
    void do_calloc(const Step &step);
    void do_aligned(const Step &step);
    void do_realloc(const Step &step);
    void do_fill(const Step &step);
    void do_expand(const Step &step);
    void do_impossible(const Step &step);
    void do_illegal(const Step &step);
    void do_option(const Step &step);
    void do_elsewhere(const Step &step);
    void do_fork();
    void do_damage(const Step &step);
    void do_arena(const Step &step);
    void use_arena();
    void end_arena(bool keep_blocks);

    const Surface &surface_;
    const bool standard_; /* operator new and the rest belong to the allocator, too */
    World &world_;
    std::vector<Block> blocks_;        /* by place */
    std::vector<Block> freed_{kFreed}; /* the most recent ones, for damage */
    size_t freed_next_ = 0, bytes_ = 0;
    hak_arena *arena_ = nullptr; /* its blocks are this machine's alone */
    bool in_arena_ = false;      /* steps that allocate do so in arena_, by default */
    uint32_t tag_;
};

/* True while a machine itself writes where it must not: a signal then means that a guard page did its work. */
extern volatile bool machine_does_damage;

#endif
