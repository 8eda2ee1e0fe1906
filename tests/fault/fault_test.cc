/* The k-th call of the system fails, for every k, alone, in a burst, and all from it on, of each function and of all
 * together, with each error, in each of the programs (programs.h) under several settings.
 *
 *  1. A point is a child of this process that never allocated before: so the start fails, too.
 *  2. While calls fail the program gets NULL with ENOMEM at worst. Then the fault is lifted, and the same program runs
 *     again and gets all it wants; all contents are right all the time.
 *  3. All blocks are freed and the heap is trimmed: nothing is live, and no slot is taken that is not taken after the
 *     same without a fault.
 * If it fails, a program dies, hangs or loses memory because the system was short of it for a moment.
 *
 * HAK_TEST_LONGER=N: programs N times as long. */
#include <gtest/gtest.h>
#include <hakmem.h>

#include "../heap_stats.h"
#include "fault.h"
#include "programs.h"

namespace {

constexpr unsigned kPointSeconds = 60, kBurst = 7, kNever = UINT32_MAX;

struct Settings {
    setting which;
    const char *name, *purge;
    void (*prepare)();
};
const Settings kSettings[] = {
    {AUTO, "auto", "auto", [] {}},
    {EAGER, "eager", "eager", [] {}},
    {WINDOW, "window", "eager", fault_no_reservation},
    {HUGE_PAGES, "huge_pages", "auto", fault_huge_pages_always},
};

/* What a child tells. */
struct Shared {
    unsigned calls[FAULT_COUNTS], injected;
};

Shared *shared() {
    static auto *page =
        static_cast<Shared *>(mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return page;
}

/* ---- one point, in the child ---- */

/* What is left when all was freed, but for what is known to be lost: addresses that somebody else has, and a huge run
 * that could be neither moved to nor mapped afresh. */
std::string left_over(const Program &program) {
    hak_trim();
    Json stats = heap_stats();
    fault_slots slots = fault_count_slots();
    bool hole = fault_not_mapped_afresh() != 0;
    size_t lost = fault_occupied_bytes() / (64 * kKiB) + (hole ? slots.nobodys : 0);
    for (const char *term : {"live", "untouched_live", "empty_slots"})
        if (stats["rss_bytes"][term].number != 0 && !hole)
            return term + (" is " + stats["rss_bytes"][term].text);
    if (slots.nobodys > lost || slots.empty != 0)
        return std::to_string(slots.nobodys) + " slots are nobody's, " + std::to_string(slots.empty) + " EMPTY";
    if (slots.active - slots.nobodys > program.slots_kept)
        return std::to_string(slots.active) + " slots are taken";
    if (stats["heaps"].number > static_cast<double>(program.heaps))
        return stats["heaps"].text + " heaps were made";
    return "";
}

void expect_nothing_lost(const Program &program) {
    std::string left = left_over(program);
    for (int tries = 0; tries < 1000 && !left.empty(); tries++) { /* a purger has some in its hands for a moment */
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
    for (int i = 0; i < FAULT_COUNTS; i++)
        shared()->calls[i] = fault_calls(i);
    shared()->injected = fault_injected_into(FAULT_ANY);
    fault_clock_advance(5000); /* after a refusal the pool does not ask again for a second */
    after.take_over(actor);
    program.run(after);
    after.check_all();
    after.drop_all();
    expect_nothing_lost(program);
    _exit(0);
}

/* ---- all points, in the parent ---- */

using Case = std::tuple<const Program *, const Settings *>;

std::string case_name(const Case &c) { return std::string(std::get<0>(c)->name) + "_" + std::get<1>(c)->name; }

/* How the point's child ended, "" if well. */
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
    return case_name(c) + ": " + fault_name(plan.call) + " from call " + std::to_string(plan.from) + " to before " +
           std::to_string(plan.to) + " fails with " + strerrorname_np(plan.error) + (plan.half ? ", half done" : "") +
           ": ended with " + how;
}

class EveryCall : public testing::TestWithParam<Case> {
  protected:
    /* All ways in which the k-th call of one kind fails. Returns how many points were met. */
    unsigned points_at(int call, unsigned k) {
        unsigned met = 0;
        for (unsigned to : {k + 1, k + kBurst, kNever})
            for (int error : {ENOMEM, EAGAIN, EINVAL, EEXIST})
                for (int half : {0, 1}) {
                    bool partial = call == FAULT_mprotect || call == FAULT_madvise || call == FAULT_mremap;
                    bool occupied = error == EEXIST; /* all of the window is not */
                    if ((occupied && (call != FAULT_mmap || to == kNever)) || (half && (!partial || error != ENOMEM)))
                        continue;
                    std::string failure = point(GetParam(), {call, k, to, error, half});
                    EXPECT_EQ(failure, "");
                    failures_ += !failure.empty();
                    met += shared()->injected != 0;
                }
        return met;
    }
    int failures_ = 0;
};

unsigned all_points;

TEST_P(EveryCall, FailsAndThenGoesOn) {
    ASSERT_EQ(point(GetParam(), {FAULT_ANY, kNever, kNever, ENOMEM, 0}), "");
    Shared unharmed = *shared();
    for (int call = 0; call < FAULT_COUNTS; call++) {
        unsigned met = 0;
        for (unsigned k = 1; k <= unharmed.calls[call] && failures_ < 3; k += kShorter)
            met += points_at(call, k);
        if (met != 0)
            printf("figure: fault_points_%s_%s %u\n", case_name(GetParam()).c_str(), fault_name(call), met);
        all_points += met;
    }
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
