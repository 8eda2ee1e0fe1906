/* See script.h. */
/* SPDX-License-Identifier: MIT */
#include "script.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <fstream>
#include <thread>

#include "../support.h"
#include "trace_sizes.h"

/* ---- generating ---- */

namespace {

constexpr unsigned kHangSeconds = 1200; /* after that, SIGALRM ends the child */
constexpr size_t kPhaseSteps = 50000;

/* Steps out of 20,000; the remaining ones are frees. */
struct Share {
    Call call;
    unsigned weight;
};
constexpr Share kShares[] = {
    {CALL_calloc, 1200}, {CALL_aligned, 1000}, {CALL_realloc, 1800}, {CALL_check, 800},     {CALL_fill, 500},
    {CALL_expand, 300},  {CALL_give, 500},     {CALL_receive, 500},  {CALL_impossible, 40}, {CALL_illegal, 10},
    {CALL_trim, 4},      {CALL_stats, 1},      {CALL_option, 8},     {CALL_elsewhere, 6},   {CALL_end, 4},
    {CALL_fork, 1},      {CALL_arena, 40},
};

/* Generates the steps of one thread. */
class Author {
  public:
    Author(uint64_t seed, unsigned thread, bool threads) : random_(seed), thread_(thread), threads_(threads) {}

    Step next() {
        if (left_-- == 0)
            begin_phase();
        Call call = some_call();
        return {call, static_cast<uint8_t>(random_.next()), static_cast<uint8_t>(thread_),
                static_cast<uint16_t>(random_.below(places_)), static_cast<uint32_t>(some_size())};
    }

  private:
    void begin_phase() {
        left_ = 1 + random_.below(kPhaseSteps);
        places_ = size_t{1} << (3 + random_.below(12));
        mallocs_ = 3000 + static_cast<unsigned>(random_.below(7000));
        trace_ = random_.below(std::size(kTraceSizes));
        calls_ = 0;
        for (auto &row : kTraceSizes[trace_])
            calls_ += row.calls;
    }
    Call some_call() {
        size_t dice = random_.below(20000);
        if (dice < mallocs_)
            return CALL_malloc;
        dice -= mallocs_;
        for (auto &share : kShares) {
            if (dice < share.weight)
                return possible(share.call) ? share.call : CALL_check;
            dice -= share.weight;
        }
        return CALL_free;
    }
    /* The sanitizers' own allocators do not survive a fork while threads allocate. */
    bool possible(Call call) const {
        return call == CALL_fork ? !threads_ || kShorter == 1 : call != CALL_end || threads_;
    }
    size_t some_size() {
        size_t kind = random_.below(100);
        if (kind < 50)
            return traced_size();
        if (kind < 75)
            return random_.below(257);
        if (kind < 85)
            return kTierSizes[random_.below(14)];
        return random_.log_size(kind < 99 ? 14 : 22);
    }
    size_t traced_size() {
        size_t at = random_.below(calls_);
        for (auto &row : kTraceSizes[trace_]) {
            if (at < row.calls)
                return row.least + random_.below(row.most - row.least + 1);
            at -= row.calls;
        }
        return 0;
    }

    Random random_;
    unsigned thread_;
    bool threads_;
    size_t left_ = 0, places_ = 0, trace_ = 0, calls_ = 0;
    unsigned mallocs_ = 0;
};

/* ---- running ---- */

/* In the child: the machines, each with its part of the script. */
class Stage {
  public:
    Stage(const Surface &surface, const Script &script, std::atomic<size_t> *reached, size_t threads)
        : reached_(reached), parts_(threads), ended_(threads) {
        for (auto &step : script)
            parts_[step.thread].push_back(step);
        for (size_t i = 0; i < threads; i++)
            machines_.emplace_back(surface, world_, static_cast<unsigned>(i));
    }
    void run() {
        if (parts_.size() == 1)
            while (go_on(0)) {
            }
        else
            run_threads();
        for (auto &machine : machines_)
            machine.free_all();
        machines_[0].free_the_exchange();
        if (world_.live() != 0) {
            fprintf(stderr, "model: %zu blocks are lost\n", world_.live());
            abort();
        }
    }

  private:
    /* Runs up to a step that ends the thread. Returns false if there are no more steps. */
    bool go_on(size_t i) {
        while (reached_[i] < parts_[i].size()) {
            size_t at = reached_[i].load(std::memory_order_relaxed);
            reached_[i].store(at + 1, std::memory_order_relaxed);
            if (!machines_[i].run(parts_[i][at]))
                return true;
        }
        return false;
    }
    /* Runs each machine in a thread; when that ends before its steps do, another thread takes over. */
    void run_threads() {
        std::vector<std::thread> threads(parts_.size());
        auto start = [&](size_t i) {
            threads[i] = std::thread([this, i] {
                bool more = go_on(i);
                std::lock_guard<std::mutex> lock(mutex_);
                ended_[i] = more ? AGAIN : DONE;
                changed_.notify_one();
            });
        };
        for (size_t i = 0; i < threads.size(); i++)
            start(i);
        for (size_t running = threads.size(); running > 0;) {
            std::unique_lock<std::mutex> lock(mutex_);
            changed_.wait(lock, [&] { return std::count(ended_.begin(), ended_.end(), RUNS) < signed(running); });
            size_t i = 0;
            while (ended_[i] == RUNS || ended_[i] == GONE)
                i++;
            bool again = ended_[i] == AGAIN;
            ended_[i] = again ? RUNS : GONE;
            lock.unlock();
            threads[i].join();
            if (again)
                start(i);
            else
                running--;
        }
    }

    enum State { RUNS, AGAIN, DONE, GONE };
    World world_;
    std::deque<Machine> machines_;
    std::atomic<size_t> *reached_;
    std::vector<Script> parts_;
    std::vector<State> ended_;
    std::mutex mutex_;
    std::condition_variable changed_;
};

size_t threads_of(const Script &script) {
    size_t threads = 1;
    for (auto &step : script)
        threads = std::max<size_t>(threads, step.thread + 1u);
    return threads;
}

/* Returns, for each thread that has not begun its last step, the step it was in. */
std::string steps_begun(const Script &script, const std::vector<size_t> &reached) {
    std::vector<size_t> steps(reached.size());
    std::vector<const Step *> last(reached.size());
    for (auto &step : script)
        if (steps[step.thread]++ + 1 == reached[step.thread])
            last[step.thread] = &step;
    std::string text;
    for (size_t i = 0; i < reached.size(); i++)
        if (last[i] != nullptr && reached[i] < steps[i])
            text += "step " + std::to_string(reached[i]) + " of thread " + step_text(*last[i]) + "\n";
    return text;
}

Verdict run_once(const Surface &surface, const Script &script) {
    size_t threads = threads_of(script), bytes = threads * sizeof(std::atomic<size_t>);
    void *shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto *reached = static_cast<std::atomic<size_t> *>(shared);
    int said = memfd_create("said", 0), status = 0;
    fflush(nullptr);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(said, 2);
        alarm(kHangSeconds);
        Stage(surface, script, reached, threads).run();
        _exit(0);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    Outcome outcome{status, "", read_whole(said), 0};
    Verdict verdict;
    verdict.failed = status != 0;
    for (size_t i = 0; i < threads; i++)
        verdict.reached.push_back(reached[i]);
    if (verdict.failed)
        verdict.message = outcome.describe() + steps_begun(script, verdict.reached);
    munmap(shared, bytes);
    return verdict;
}

/* Returns the script without the steps that were not begun. */
Script cut(const Script &script, const std::vector<size_t> &reached) {
    std::vector<size_t> left = reached;
    Script kept;
    for (auto &step : script)
        if (left[step.thread] > 0) {
            left[step.thread]--;
            kept.push_back(step);
        }
    return kept;
}

} // namespace

Script script_random(uint64_t seed, size_t steps, unsigned threads) {
    std::vector<Author> authors;
    for (unsigned i = 0; i < threads; i++)
        authors.emplace_back(seed * 1000003 + i, i, threads > 1);
    Script script;
    script.reserve(steps);
    while (script.size() < steps)
        script.push_back(authors[script.size() % threads].next());
    return script;
}

Verdict script_run(const Surface &surface, const Script &script, unsigned tries) {
    Verdict verdict = run_once(surface, script);
    while (!verdict.failed && --tries > 0)
        verdict = run_once(surface, script);
    return verdict;
}

Script script_shrink(const Surface &surface, Script script, const Verdict &verdict, size_t most_steps) {
    script = cut(script, verdict.reached);
    unsigned tries = threads_of(script) > 1 ? 5 : 1;
    size_t replayed = 0;
    for (size_t part = script.size() / 2; part > 0; part /= 2)
        for (size_t from = 0; from < script.size() && replayed < most_steps;) {
            Script without = script;
            auto first = without.begin() + static_cast<ptrdiff_t>(from);
            without.erase(first, first + static_cast<ptrdiff_t>(std::min(part, script.size() - from)));
            Verdict now = script_run(surface, without, tries);
            replayed += without.size() * tries;
            if (now.failed)
                script = cut(without, now.reached);
            else
                from += part;
        }
    return script;
}

std::string script_text(const Script &script) {
    std::string text;
    for (auto &step : script)
        text += step_text(step) + "\n";
    return text;
}

Script script_read(const char *path) {
    Script script;
    std::ifstream file(path);
    Step step;
    for (std::string line; std::getline(file, line);)
        if (step_read(line.c_str(), &step))
            script.push_back(step);
    return script;
}
