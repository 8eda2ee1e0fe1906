/* Makes the k-th system call fail, for every k: alone, in a burst, and every call from it on; for each function and for
 * all together, with each error, in each of the programs (programs.h), under several settings. Also lets memory run out
 * completely.
 *
 *  1. A point is a child of this process that has allocated nothing before, so the start fails, too.
 *  2. While calls fail, the worst answer for the program is NULL with ENOMEM. Then the fault is lifted, and the same
 *     program runs again and gets everything it asks for. All contents are right all the time.
 *  3. All blocks are freed and the heap is trimmed: nothing is live, and no slot is taken that is not also taken after
 *     the same run without a fault.
 *
 * If it fails, a program dies, hangs or loses memory because the system was short of it for a moment.
 *
 * HAK_TEST_LONGER=N makes programs N times as long. */
/* SPDX-License-Identifier: MIT */
#include <gtest/gtest.h>
#include <hakmem.h>

#include "../heap_stats.h"
#include "fault.h"
#include "programs.h"

namespace {

constexpr unsigned kPointSeconds = kChildSeconds, kBurst = 7, kCommits = 16, kSecureCalls = 6, kStep = 24,
                   kNever = UINT32_MAX;

/* Until the fault is lifted, nothing can be purged, and everything writable is resident. */
void lock_memory() {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        give_up("mlockall: %s", strerror(errno));
}

/* The status of a child that runs this, which ends it; 0: all is well. */
template <typename Run> int status_of(Run run) {
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0)
        run();
    int status = -1;
    waitpid(pid, &status, 0);
    return status;
}

bool may_lock_memory() {
    return status_of([] {
               _exit(mlockall(MCL_CURRENT | MCL_FUTURE) != 0 ||
                     mmap(nullptr, kTiB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == MAP_FAILED);
           }) == 0;
}

/* Secure mode gives huge pages to blocks whose kind was touched whole lately, by replacing their mappings. */
void secure_touched_whole() {
    fault_secure();
    hak_option_set("POPULATE", "1");
    for (int i = 0; i < 16; i++) {
        void *block = hak_malloc(3 * kMiB);
        memset(block, 1, 3 * kMiB);
        hak_free(block);
    }
}

struct Settings {
    setting which;
    const char *name, *purge;
    void (*prepare)();
};
const Settings kSettings[] = {
    {AUTO, "auto", "auto", [] {}},
    {EAGER, "eager", "eager", [] {}},
    {LAZILY, "lazy", "lazy", [] {}},
    {WINDOW, "window", "eager", fault_no_reservation},
    {HUGE_PAGES, "huge_pages", "auto", fault_huge_pages_always},
    {LOCKED, "locked", "auto", lock_memory},
    {SECURED, "secure", "auto", fault_secure},
    {SECURED_WHOLE, "secure_whole", "auto", secure_touched_whole},
};

/* What a child reports. */
struct Shared {
    unsigned calls[FAULT_COUNTS], injected;
    size_t committed_bytes;
    double moved_runs;
};

Shared *shared() {
    static auto *page =
        static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return page;
}

/* ---- one point, in the child ---- */

/* Describes what is left after everything was freed, not counting addresses that others have. */
std::string left_over(const Program &program) {
    hak_trim();
    fault_map_waiting(); /* what was refused waits to be mapped, and can be now */
    Json stats = heap_stats();
    fault_slots slots = fault_count_slots();
    size_t lost = fault_occupied_bytes() / (64 * kKiB);
    if (stats["untouched_bytes"].number != 0)
        return "untouched_bytes is " + stats["untouched_bytes"].text;
    for (const char *term : {"live", "empty_slots"})
        if (stats["rss_bytes"][term].number != 0)
            return term + (" is " + stats["rss_bytes"][term].text);
    if (slots.nobodys > lost || slots.empty != 0)
        return std::to_string(slots.nobodys) + " slots are nobody's, " + std::to_string(slots.empty) + " EMPTY";
    if (slots.active != slots.nobodys)
        return std::to_string(slots.active) + " slots are taken";
    if (stats["heaps"].number > static_cast<double>(program.heaps))
        return stats["heaps"].text + " heaps were made";
    return "";
}

void expect_nothing_lost(const Program &program) {
    std::string left = left_over(program);
    for (int tries = 0; tries < 1000 && !left.empty(); tries++) { /* a purger holds some for a moment */
        sched_yield();
        left = left_over(program);
    }
    if (!left.empty())
        give_up("all was freed and trimmed, but %s", left.c_str());
}

[[noreturn]] void run_point(const Program &program, const Settings &settings, const fault_plan &plan) {
    alarm(kPointSeconds);
    settings.prepare();
    hak_option_set("PURGE", settings.purge);
    hak_option_set("PURGER", "0");
    Actor actor(1, false), after(2, true);
    fault_arm(&plan);
    program.run(actor);
    actor.check_all();
    fault_lift();
    munlockall();
    for (int i = 0; i < FAULT_COUNTS; i++)
        shared()->calls[i] = fault_calls(i);
    shared()->injected = fault_injected_into(FAULT_ANY);
    shared()->committed_bytes = fault_committed_bytes();
    fault_clock_advance(5000); /* after a refusal the pool does not ask again for a second */
    after.take_over(actor);
    program.run(after);
    after.check_all();
    after.drop_all();
    expect_nothing_lost(program);
    shared()->moved_runs = heap_stats()["counters"]["huge_moved_pages"].number;
    if (program.starts_purger && fault_threads_started() == 0)
        give_up("no purger came");
    _exit(0);
}

/* ---- all points, in the parent ---- */

const char *const kParts[] = {"", ", half done", ", most of it done", ", its target unmapped"};

using Case = std::tuple<const Program *, const Settings *>;

std::string case_name(const Case &c) { return std::string(std::get<0>(c)->name) + "_" + std::get<1>(c)->name; }

/* Returns how the point's child ended, or "" if it ended well. */
std::string point(const Case &c, const fault_plan &plan) {
    fflush(nullptr);
    *shared() = {};
    pid_t pid = fork();
    if (pid == 0)
        run_point(*std::get<0>(c), *std::get<1>(c), plan);
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return "";
    std::string how = WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a mistake";
    if (plan.commit_most != 0)
        return case_name(c) + ": " + std::to_string(plan.commit_most) + " writable bytes: ended with " + how;
    return case_name(c) + ": " + fault_name(plan.call) + " from call " + std::to_string(plan.from) + " to before " +
           std::to_string(plan.to) + " fails with " + strerrorname_np(plan.error) + kParts[plan.part] +
           ": ended with " + how;
}

class EveryCall : public testing::TestWithParam<Case> {
  protected:
    /* Tries all ways in which the k-th call of one kind can fail. Returns how many points were met. */
    unsigned points_at(int call, unsigned k) {
        unsigned met = 0;
        for (unsigned to : {k + 1, k + kBurst, kNever}) {
            for (int error : {ENOMEM, EAGAIN, EINVAL})
                met += try_point({call, k, to, error, FAULT_NONE_DONE, 0});
            if (call == FAULT_mmap && to != kNever) /* not all of the window can be occupied */
                met += try_point({call, k, to, EEXIST, FAULT_NONE_DONE, 0});
            if (is_restarted(call) && to != kNever)
                met += try_point({call, k, to, EINTR, FAULT_NONE_DONE, 0});
            if (has_parts(call))
                for (auto [error, part] : {std::pair(ENOMEM, FAULT_HALF_DONE), std::pair(EINTR, FAULT_MOST_DONE)})
                    if (call != FAULT_ANY || to != kNever || error != EINTR) /* no kernel interrupts each read */
                        met += try_point({call, k, to, error, part, 0});
            if (call == FAULT_mremap || call == FAULT_mmap_over)
                met += try_point({call, k, to, ENOMEM, FAULT_TARGET_GONE, 0});
        }
        return met;
    }
    /* Secure mode makes some calls for every large block, nearly the same each time: only some of them are tried. */
    static unsigned step_for(unsigned calls) {
        bool some = std::get<1>(GetParam())->which == SECURED;
        return std::max(program_length > 1 ? 1u : kStep, some ? calls / kSecureCalls : 1);
    }
    /* Which call follows the first: the release and the checked build take different ones. A soak takes all. */
    static unsigned next_of(unsigned k, unsigned calls) {
        unsigned step = step_for(calls);
        return k + (k == 1 && step == kStep ? HAK_TEST_SECOND_CALL : step);
    }
    static bool is_restarted(int call) { return call == FAULT_read || call == FAULT_write; }
    static bool has_parts(int call) {
        switch (call) {
        case FAULT_mprotect:
        case FAULT_madvise:
        case FAULT_munmap:
        case FAULT_mremap:
        case FAULT_mmap_over:
        case FAULT_mincore:
        case FAULT_write:
        case FAULT_ANY: return true;
        default: return false;
        }
    }
    /* Lets only a bounded number of bytes become writable, from almost none to almost all of `bytes`. */
    unsigned points_of_commit(size_t bytes) {
        unsigned met = 0;
        for (size_t i = 0; i < kCommits && failures_ < 3; i++)
            met += try_point({FAULT_ANY, kNever, kNever, ENOMEM, FAULT_HALF_DONE, 1 + bytes / kCommits * i});
        return met;
    }
    bool try_point(const fault_plan &plan) {
        std::string failure = point(GetParam(), plan);
        EXPECT_EQ(failure, "");
        failures_ += !failure.empty();
        return shared()->injected != 0;
    }
    int failures_ = 0;
};

unsigned all_points;

TEST_P(EveryCall, FailsAndThenGoesOn) {
    if (std::get<1>(GetParam())->which == LOCKED && !may_lock_memory())
        GTEST_SKIP() << "mlockall needs the right to lock much memory";
    ASSERT_EQ(point(GetParam(), {FAULT_ANY, kNever, kNever, ENOMEM, FAULT_NONE_DONE, 0}), "");
    Shared unharmed = *shared();
    unsigned commits = points_of_commit(unharmed.committed_bytes);
    printf("figure: fault_points_%s_commit %u\n", case_name(GetParam()).c_str(), commits);
    all_points += commits;
    for (int call = 0; call < FAULT_COUNTS; call++) {
        unsigned met = 0;
        for (unsigned k = 1; k <= unharmed.calls[call] && failures_ < 3; k = next_of(k, unharmed.calls[call]))
            met += points_at(call, k);
        if (met != 0)
            printf("figure: fault_points_%s_%s %u\n", case_name(GetParam()).c_str(), fault_name(call), met);
        all_points += met;
    }
}

const Program &program_named(const std::string &name) {
    for (auto &program : kPrograms)
        if (program.name == name)
            return program;
    abort();
}

/* If it fails, a program in a window that was short of memory when it started its threads never gets a purger. */
TEST(Purger, StartsInAWindowAfterAdviceWasRefused) {
    const Settings window = {WINDOW, "window", "auto", fault_no_reservation};
    Case here = {&program_named("purger"), &window};
    ASSERT_EQ(point(here, {FAULT_ANY, kNever, kNever, ENOMEM, FAULT_NONE_DONE, 0}), "");
    unsigned calls = std::min(shared()->calls[FAULT_madvise], 50U);
    for (unsigned k = 1; k <= calls; k++)
        EXPECT_EQ(point(here, {FAULT_madvise, k, k + 1, EINVAL, FAULT_NONE_DONE, 0}), "");
    printf("figure: fault_points_purger_window_madvise %u\n", calls);
    all_points += calls;
}

/* ---- how much is tried ---- */

constexpr unsigned kCallsMax = 16; /* of one malloc that fails, its second attempt included */

/* Returns the number of calls, or more than can be counted if there was memory. */
unsigned calls_of_malloc(size_t bytes) {
    unsigned before = fault_calls(FAULT_ANY);
    return hak_malloc(bytes) == nullptr ? fault_calls(FAULT_ANY) - before : 1000;
}

[[noreturn]] void fail_sparingly(void (*prepare)()) {
    alarm(kPointSeconds);
    prepare();
    const fault_plan refused = {FAULT_ANY, 1, kNever, ENOMEM, FAULT_NONE_DONE, 0};
    fault_arm(&refused); /* no region can be made */
    for (int i = 0; i < 3; i++)
        if (unsigned calls = calls_of_malloc(100); calls > kCallsMax)
            give_up("%u calls for a malloc at the start", calls);
    fault_lift();
    if (hak_malloc(100) == nullptr)
        give_up("no memory after the fault");
    fault_arm(&refused); /* the region cannot grow */
    for (size_t size : {size_t{1000}, size_t{5000}, size_t{70000}, size_t{3000000}}) {
        for (int i = 0; i < 1000000 && hak_malloc(size) != nullptr; i++) {
        }
        if (unsigned calls = calls_of_malloc(size); calls > kCallsMax)
            give_up("%u calls for a malloc of %zu bytes", calls, size);
    }
    fault_lift();
    _exit(0);
}

/* ENOMEM says that there is no memory, not that an address is taken. If it fails, each malloc of a program that is
 * out of memory asks the kernel for dozens of addresses. */
TEST(Refusals, AreNotAnsweredByMoreAddresses) {
    for (const Settings &settings : kSettings) {
        if (settings.which == LOCKED)
            continue;
        EXPECT_EQ(status_of([&] { fail_sparingly(settings.prepare); }), 0) << settings.name;
    }
}

/* ---- a parked purger ---- */

constexpr size_t kSleepersBlock = 1000, kSleepersSlabs = 15, kInASlab = 64, kLeftInASlab = 20;

struct Sleeper {
    pthread_barrier_t barrier;
    void *first = hak_malloc(100);
    std::vector<void *> left;
};

/* Leaves slabs without owner in which some blocks are still allocated. */
void *leave_slabs(void *with) {
    auto *sleeper = static_cast<Sleeper *>(with);
    std::vector<void *> blocks(kSleepersSlabs * kInASlab);
    for (void *&block : blocks)
        block = hak_malloc(kSleepersBlock);
    for (size_t i = 0; i < blocks.size(); i++)
        if (i % kInASlab < kLeftInASlab)
            sleeper->left.push_back(blocks[i]);
        else
            hak_free(blocks[i]);
    return nullptr;
}

void *free_and_sleep(void *with) {
    auto *sleeper = static_cast<Sleeper *>(with);
    /* This gives the thread a heap. It allocates nothing, or it would adopt the slabs into which it frees. */
    hak_free(sleeper->first);
    pthread_barrier_wait(&sleeper->barrier);
    pthread_barrier_wait(&sleeper->barrier);
    for (void *block : sleeper->left) /* too few for its outbox to be sent */
        hak_free(block);
    pthread_barrier_wait(&sleeper->barrier);
    return nullptr;
}

[[noreturn]] void run_sleeper() {
    alarm(kPointSeconds / 2);
    Sleeper sleeper;
    pthread_t one, other;
    pthread_barrier_init(&sleeper.barrier, nullptr, 2);
    pthread_create(&other, nullptr, free_and_sleep, &sleeper);
    pthread_barrier_wait(&sleeper.barrier);
    hak_option_set("PURGER", "1");
    std::vector<void *> kept(300);
    for (void *&block : kept) /* enough to start a purger */
        block = hak_malloc(60000);
    pthread_create(&one, nullptr, leave_slabs, &sleeper);
    pthread_join(one, nullptr);
    size_t before = fault_count_slots().active;
    while (!fault_purger_is_parked())
        sched_yield();
    pthread_barrier_wait(&sleeper.barrier);
    while (fault_count_slots().active > before - kSleepersSlabs / 2) /* while no other thread does anything */
        sched_yield();
    pthread_barrier_wait(&sleeper.barrier);
    pthread_join(other, nullptr);
    _exit(0);
}

/* If it fails, a thread that frees some blocks of others and goes to sleep withholds their slabs, up to 8 MiB. */
TEST(Purger, WakesForAnOutbox) { EXPECT_EQ(status_of(run_sleeper), 0) << "the outbox was never sent"; }

void *hold_and_sleep(void *barrier) {
    void *held = hak_malloc(100);
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    pthread_barrier_wait(static_cast<pthread_barrier_t *>(barrier));
    hak_free(held);
    return nullptr;
}

constexpr unsigned kDecayMs = 10000, kTickMs = 100;

[[noreturn]] void run_locked() {
    alarm(kPointSeconds / 2);
    pthread_barrier_t barrier;
    pthread_t other;
    pthread_barrier_init(&barrier, nullptr, 2);
    hak_option_set("PURGER", "1");
    hak_option_set("DECAY_MS", std::to_string(kDecayMs).c_str());
    pthread_create(&other, nullptr, hold_and_sleep, &barrier);
    pthread_barrier_wait(&barrier);
    std::vector<void *> blocks(300);
    for (void *&block : blocks) /* enough to start a purger */
        block = hak_malloc(60000);
    const fault_plan locked = {FAULT_madvise, 1, kNever, EINVAL, FAULT_NONE_DONE, SIZE_MAX};
    fault_arm(&locked);
    for (void *block : blocks)
        hak_free(block);
    unsigned waits = fault_waits();
    while (!fault_purger_is_parked())
        sched_yield();
    bool rests = fault_waits() - waits < kDecayMs / kTickMs / 2, refused = fault_injected_into(FAULT_madvise) != 0;
    pthread_barrier_wait(&barrier);
    pthread_join(other, nullptr);
    _exit(!rests || !refused);
}

/* If it fails, a program whose memory is locked wakes ten times a second, some for good. */
TEST(Purger, ParksWhereNothingCanBePurged) { EXPECT_EQ(status_of(run_locked), 0); }

/* ---- the clock ---- */

constexpr unsigned kDayMs = 24 * 60 * 60 * 1000;

/* Allocates and frees 100 MiB with the machine's clock at this many days. */
[[noreturn]] void run_late(unsigned days) {
    fault_clock_advance(days * kDayMs);
    std::vector<void *> blocks(100);
    for (void *&block : blocks)
        block = hak_malloc(kMiB - 100);
    for (void *block : blocks)
        hak_free(block);
    _exit(fault_count_slots().empty > 16 * kMiB / 65536);
}

/* If it fails, programs give nothing back while the machine has been up for 25 to 49 days. */
TEST(Clock, WorksOnMachinesThatAreUpForWeeks) {
    for (unsigned days : {1, 20, 24, 25, 30, 48, 50, 70, 80}) {
        EXPECT_EQ(status_of([&] { run_late(days); }), 0) << "after " << days << " days";
    }
}

/* ---- moves that stop midway ---- */

constexpr size_t kMovedWords = 6 * kMiB / sizeof(uint64_t), kAfterwardsWords = 40 * kMiB / sizeof(uint64_t);

/* A block that cannot grow in place is moved; the call that moves it and those after it fail as planned. In the second
 * round the target was in use before. */
[[noreturn]] void run_move(const fault_plan &plan) {
    alarm(kPointSeconds);
    for (unsigned round = 0; round < 2; round++) {
        auto *block = static_cast<uint64_t *>(hak_malloc(kMovedWords * sizeof(uint64_t)));
        auto *behind = static_cast<char *>(hak_malloc(4 * kMiB)), *later = static_cast<char *>(hak_malloc(20 * kMiB));
        memset(later, 0xa5, 20 * kMiB);
        for (size_t i = 0; i < kMovedWords; i++)
            block[i] = (i / 512 % 3 != 0) * (i + 1); /* every third page is zero */
        if (round == 1)
            hak_free(later);
        fault_arm(&plan);
        auto *moved = static_cast<uint64_t *>(hak_realloc(block, 18 * kMiB));
        fault_lift();
        shared()->injected += fault_injected_into(FAULT_mremap);
        uint64_t *now = moved != nullptr ? moved : block;
        for (size_t i = 0; i < kMovedWords; i++)
            if (now[i] != (i / 512 % 3 != 0) * (i + 1))
                give_up("word %zu was lost, realloc said %p", i, static_cast<void *>(moved));
        hak_free(now);
        hak_free(behind);
        if (round == 0)
            hak_free(later);
    }
    /* This block includes the places of the targets. */
    auto *fresh = static_cast<uint64_t *>(hak_calloc(kAfterwardsWords, sizeof(uint64_t)));
    for (size_t i = 0; fresh != nullptr && i < kAfterwardsWords; i += 64)
        if (fresh[i] != 0)
            give_up("what calloc gave is not zero at word %zu", i);
    _exit(0);
}

/* If it fails, realloc silently loses data where the kernel moves part of a block and then refuses: a part that is
 * watched by userfaultfd, sealed or advised otherwise, or too many mappings. */
TEST(Moves, LoseNothingWhereverTheKernelStops) {
    unsigned met = 0;
    for (int part : {FAULT_NONE_DONE, FAULT_HALF_DONE, FAULT_MOST_DONE, FAULT_TARGET_GONE})
        for (int error : {ENOMEM, EINVAL})
            for (fault_plan plan : {fault_plan{FAULT_mremap, 1, kNever, error, static_cast<fault_part>(part), 0},
                                    fault_plan{FAULT_ANY, 2, kNever, error, static_cast<fault_part>(part), 0},
                                    fault_plan{FAULT_ANY, 3, kNever, error, static_cast<fault_part>(part), 0},
                                    fault_plan{FAULT_ANY, 4, kNever, error, static_cast<fault_part>(part), 0}}) {
                *shared() = {};
                EXPECT_EQ(status_of([&] { run_move(plan); }), 0)
                    << fault_name(plan.call) << " from call " << plan.from << " fails with " << strerrorname_np(error)
                    << kParts[part];
                met += shared()->injected != 0;
            }
    EXPECT_GE(met, 4U * 2 * 2) << "hardly a move was refused";
}

/* If it fails, realloc of huge blocks copies forever after one refusal by the kernel. */
TEST(Moves, ContinueAfterARefusal) {
    Case grow = {&program_named("grow"), &kSettings[0]};
    ASSERT_EQ(point(grow, {FAULT_ANY, kNever, kNever, ENOMEM, FAULT_NONE_DONE, 0}), "");
    double unharmed = shared()->moved_runs;
    ASSERT_GT(unharmed, 1) << "nothing is moved at all";
    EXPECT_EQ(point(grow, {FAULT_mremap, 1, 2, ENOMEM, FAULT_HALF_DONE, 0}), "");
    EXPECT_EQ(shared()->injected, 1U);
    EXPECT_EQ(shared()->moved_runs, unharmed - 1);
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (auto &program : kPrograms)
        for (auto &settings : kSettings)
            if (program.settings & settings.which)
                all.emplace_back(&program, &settings);
    return all;
}

INSTANTIATE_TEST_SUITE_P(Fault, EveryCall, testing::ValuesIn(cases()),
                         [](const auto &each) { return case_name(each.param); });

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    const char *longer = getenv("HAK_TEST_LONGER");
    program_length = longer != nullptr ? strtoul(longer, nullptr, 10) : 1;
    int failed = RUN_ALL_TESTS();
    printf("figure: fault_points %u\n", all_points);
    return failed;
}
