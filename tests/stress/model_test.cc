/* Random sequences of calls over the whole API against a shadow that knows every live block: no two overlap, each is
 * aligned, keeps its contents and is as big as it says, calloc is zero, errno is right. If it fails, some sequence of
 * calls that a program may make corrupts its memory; the seed and the step that failed are printed, and
 * --gtest_random_seed=N runs another sequence. */
#include <gtest/gtest.h>
#include <stdarg.h>

#include <map>
#include <mutex>
#include <thread>

#include "../support.h"
#include "../surface.h"

namespace {

const Surface &S = subject();

/* Where a thread is, for the message when something is wrong. */
struct Place {
    uint64_t seed = 0;
    long step = 0;
    const char *call = "";
};
thread_local Place place;

[[noreturn]] __attribute__((format(printf, 1, 2))) void broken(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "model: seed %llu step %ld, %s: ", static_cast<unsigned long long>(place.seed), place.step,
            place.call);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

struct Block {
    char *at;
    size_t size; /* asked for; the pattern covers it */
    uint32_t tag;
};

/* All live blocks of all threads, by address. */
class Shadow {
  public:
    void born(const Block &block, size_t usable) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto after = live_.lower_bound(block.at);
        if (after != live_.end() && block.at + usable > after->first)
            broken("%p + %zu overlaps the live block %p", block.at, usable, after->first);
        if (after != live_.begin()) {
            auto before = std::prev(after);
            if (before->first + before->second > block.at)
                broken("%p lies in the live block %p + %zu", block.at, before->first, before->second);
        }
        live_.emplace_hint(after, block.at, usable);
    }
    void dies(const Block &block) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (live_.erase(block.at) != 1)
            broken("the test itself lost track of %p", block.at);
    }
    size_t count() {
        std::lock_guard<std::mutex> lock(mutex_);
        return live_.size();
    }

  private:
    std::mutex mutex_;
    std::map<char *, size_t> live_;
};

/* Blocks on their way from one thread to another. */
class Exchange {
  public:
    void put(const Block &block) {
        std::lock_guard<std::mutex> lock(mutex_);
        blocks_.push_back(block);
    }
    bool take(Block *block, Random &random) {
        std::lock_guard<std::mutex> lock(mutex_);
        if (blocks_.empty())
            return false;
        std::swap(blocks_[random.below(blocks_.size())], blocks_.back());
        *block = blocks_.back();
        blocks_.pop_back();
        return true;
    }

  private:
    std::mutex mutex_;
    std::vector<Block> blocks_;
};

class Actor {
  public:
    Actor(uint64_t seed, Shadow &shadow, Exchange &exchange) : random_(seed), shadow_(shadow), exchange_(exchange) {
        place = Place{};
        place.seed = seed;
    }

    void run(long steps) {
        for (place.step = 0; place.step < steps; place.step++)
            step();
    }
    void free_all() {
        while (!mine_.empty())
            free_one();
    }
    void hand_over_all() {
        for (auto &block : mine_)
            exchange_.put(block);
        mine_.clear();
        bytes_ = 0;
    }
    void free_the_exchange() {
        for (Block block; exchange_.take(&block, random_);)
            take_in(block);
        free_all();
    }

  private:
    static constexpr size_t kMostBytes = 48 * kMiB, kMostBlocks = 20000;

    void step() {
        size_t dice = random_.below(1000);
        bool full = bytes_ > kMostBytes || mine_.size() > (drain_ ? 10 : kMostBlocks);
        if (dice == 0)
            drain_ = !drain_; /* phases of growth and of near emptiness */
        if (dice < 3)
            return impossible();
        if (dice < 4 && S.trim != nullptr)
            return (void)S.trim(0);
        if (full || dice < (drain_ ? 600u : 400u))
            return free_one();
        if (dice < 640)
            return allocate();
        if (dice < 720)
            return allocate_zeroed();
        if (dice < 780)
            return allocate_aligned();
        if (dice < 880)
            return resize();
        if (dice < 920)
            return check_one();
        if (dice < 950)
            return give();
        if (dice < 980)
            return receive();
        fill_usable();
    }

    size_t some_size() {
        size_t kind = random_.below(100);
        if (kind < 40)
            return random_.below(257);
        if (kind < 60)
            return kTierSizes[random_.below(14)];
        if (kind < 98)
            return random_.log_size(14);
        return random_.log_size(22);
    }

    void take_in(const Block &block) {
        mine_.push_back(block);
        bytes_ += block.size;
    }
    size_t pick() {
        size_t at = random_.below(mine_.size());
        std::swap(mine_[at], mine_.back());
        return mine_.size() - 1;
    }
    void check(const Block &block) {
        size_t bad = pattern_check(block.at, block.size, block.size, block.tag);
        if (bad != block.size)
            broken("byte %zu of the block %p of %zu is damaged", bad, block.at, block.size);
    }

    void born(void *at, size_t size, size_t alignment) {
        Block block{static_cast<char *>(at), size, static_cast<uint32_t>(random_.next())};
        if (at == nullptr)
            broken("NULL for %zu bytes, errno %d", size, errno);
        if (!aligned_to(at, alignment))
            broken("%p for %zu bytes is not aligned to %zu", at, size, alignment);
        size_t usable = S.usable_size(at);
        if (usable < size)
            broken("%p: %zu bytes usable of %zu", at, usable, size);
        shadow_.born(block, usable);
        pattern_write(block.at, 0, size, block.tag);
        take_in(block);
    }

    void allocate() {
        place.call = "malloc";
        size_t size = some_size();
        born(S.alloc(size), size, natural_alignment(size));
    }

    void allocate_zeroed() {
        place.call = "calloc";
        size_t size = some_size(), count = 1 + random_.below(4);
        void *at = S.calloc(count, size);
        size_t dirty = at != nullptr ? first_dirty(at, count * size) : 0;
        if (at != nullptr && dirty != count * size)
            broken("byte %zu of %zu x %zu at %p is not zero", dirty, count, size, at);
        born(at, count * size, natural_alignment(count * size));
    }

    void allocate_aligned() {
        size_t size = some_size(), alignment = size_t{8} << random_.below(random_.below(20) == 0 ? 20 : 10);
        void *at = nullptr;
        size_t which = S.memalign != nullptr ? random_.below(5) : 0;
        place.call = "aligned allocation";
        if (which == 0)
            at = S.aligned_alloc(alignment, size);
        if (which == 1)
            at = S.memalign(alignment, size);
        if (which == 2 && S.posix_memalign(&at, alignment, size) != 0)
            broken("posix_memalign(%zu, %zu)", alignment, size);
        if (which == 3)
            at = S.valloc(size), alignment = 4096;
        if (which == 4)
            at = S.pvalloc(size), alignment = 4096;
        born(at, size, alignment);
    }

    void resize() {
        if (mine_.empty())
            return;
        place.call = "realloc";
        Block block = mine_[pick()];
        check(block);
        mine_.pop_back();
        bytes_ -= block.size;
        shadow_.dies(block);
        size_t to = random_.below(3) == 0 ? some_size() : block.size / 2 + random_.below(block.size + 2);
        void *at = to != 0 && random_.below(8) == 0 && S.reallocarray != nullptr ? S.reallocarray(block.at, to, 1)
                                                                                 : S.realloc(block.at, to);
        if (to == 0) {
            if (at != nullptr)
                broken("realloc(p, 0) is not NULL");
            return;
        }
        if (at == nullptr)
            broken("NULL for %zu bytes, errno %d", to, errno);
        size_t kept = block.size < to ? block.size : to, bad = pattern_check(at, kept, block.size, block.tag);
        if (bad != kept)
            broken("byte %zu lost from %zu to %zu bytes, %p to %p", bad, block.size, to, block.at, at);
        born(at, to, natural_alignment(to));
    }

    void free_one() {
        if (mine_.empty())
            return;
        place.call = "free";
        Block block = mine_[pick()];
        check(block);
        mine_.pop_back();
        bytes_ -= block.size;
        shadow_.dies(block);
        errno = 1234;
        if (random_.below(5) == 0)
            S.free_sized(block.at, block.size);
        else
            S.free(block.at);
        if (errno != 1234)
            broken("errno is %d", errno);
    }

    void check_one() {
        place.call = "check";
        if (!mine_.empty())
            check(mine_[pick()]);
    }
    void give() {
        if (mine_.empty())
            return;
        exchange_.put(mine_[pick()]);
        bytes_ -= mine_.back().size;
        mine_.pop_back();
    }
    void receive() {
        place.call = "receive";
        Block block;
        if (!exchange_.take(&block, random_))
            return;
        check(block);
        take_in(block);
    }
    void fill_usable() {
        if (mine_.empty())
            return;
        place.call = "fill";
        Block &block = mine_[pick()];
        check(block);
        bytes_ -= block.size;
        block.size = S.usable_size(block.at);
        bytes_ += block.size;
        pattern_write(block.at, 0, block.size, block.tag);
    }
    void impossible() {
        place.call = "impossible request";
        volatile size_t size = SIZE_MAX - random_.below(size_t{1} << 62);
        errno = 0;
        void *at = random_.below(2) != 0 ? S.alloc(size) : S.calloc(size, 1 + random_.below(9));
        if (at != nullptr || errno != ENOMEM)
            broken("%p, errno %d", at, errno);
        if (mine_.empty())
            return;
        if (S.realloc(mine_[pick()].at, size) != nullptr)
            broken("realloc to %zu", static_cast<size_t>(size));
        check(mine_.back());
    }

    Random random_;
    Shadow &shadow_;
    Exchange &exchange_;
    std::vector<Block> mine_;
    size_t bytes_ = 0;
    bool drain_ = false;
};

uint64_t base_seed() {
    auto seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
    printf("seed %llu\n", static_cast<unsigned long long>(seed));
    return seed * 1000003;
}

TEST(Model, OneThread) {
    Shadow shadow;
    Exchange exchange;
    uint64_t seed = base_seed();
    for (unsigned part = 0; part < 4; part++) {
        Actor actor(seed + part, shadow, exchange);
        actor.run(400000 / kShorter);
        actor.free_all();
        actor.free_the_exchange();
        ASSERT_EQ(shadow.count(), 0u);
    }
}

TEST(Model, FourThreadsThatHandOverAndEnd) {
    Shadow shadow;
    Exchange exchange;
    uint64_t seed = base_seed();
    for (unsigned wave = 0; wave < 12; wave++) {
        std::vector<std::thread> threads;
        for (unsigned t = 0; t < 4; t++)
            threads.emplace_back([&, t] {
                Actor actor(seed + wave * 10 + t + 100, shadow, exchange);
                /* unequal lives; what half of them leave behind goes to others after their end */
                actor.run((10000 + 15000 * static_cast<long>(t)) / kShorter);
                if (t % 2 == 0)
                    actor.hand_over_all();
                else
                    actor.free_all();
            });
        for (auto &thread : threads)
            thread.join();
    }
    Actor last(seed + 99, shadow, exchange);
    last.free_the_exchange();
    EXPECT_EQ(shadow.count(), 0u);
}

} // namespace
