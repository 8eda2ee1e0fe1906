/* libFuzzer over sequences of calls that include damage: overwritten words of freed blocks, writes before and behind
 * blocks, frees of pointers that are not live blocks. The program may survive, or end by abort() after one of the lines
 * that fail.h documents. If it fails, a bug in a program can make the allocator loop, or crash without an explanation.
 *
 *  1. Each execution runs in its own child; an alarm ends a child that loops.
 *  2. Before the child ends, also by abort(), it copies libFuzzer's edge counters to shared memory. The parent, which
 *     never calls the allocator, adopts them.
 *  3. If a guard page stops a write by the damage itself, the end is good. So is, without HAKMEM_SECURE=1, a fault at
 *     an address outside the allocator's tables: an overwritten link was followed. Those are counted. */
/* SPDX-License-Identifier: MIT */
#include <hakmem.h>
#include <signal.h>

#include "../support.h"
#include "fuzz.h"

/* region.h */
extern "C" void region_extent(uintptr_t *begin, uintptr_t *end);
/* edges.c: libFuzzer's counters */
extern "C" char *edges_begin();
extern "C" size_t edges_bytes();

namespace {

constexpr unsigned kLoopSeconds = 20;
constexpr const char *kLines[] = {
    "double free of 0x", "invalid free of 0x", "invalid pointer 0x",     "free of 0x",
    "overflow of 0x",    "underflow of 0x",    "write after free of 0x", "write after free among the "};
constexpr int kWild = 4; /* exit status; see 3. */
bool secure;
uintptr_t tables_begin, blocks_begin;
struct Ends {
    size_t refused = 0, wild = 0;
    ~Ends() { printf("figure: fuzz_damage_refused %zu\nfigure: fuzz_damage_wild_faults %zu\n", refused, wild); }
} ends;
char *edges; /* shared with the child */
size_t edge_bytes;

void save_edges() { memcpy(edges, edges_begin(), edge_bytes); }

void on_abort(int number) {
    save_edges();
    signal(number, SIG_DFL);
    raise(number);
}

void on_fault(int number, siginfo_t *info, void *) {
    save_edges();
    if (machine_does_damage)
        _exit(0);
    auto at = reinterpret_cast<uintptr_t>(info->si_addr);
    if (!secure && (at < tables_begin || at >= blocks_begin))
        _exit(kWild);
    fprintf(stderr, "signal %d at %p\n", number, info->si_addr);
    _exit(3);
}

void catch_signals() {
    static char stack[64 * kKiB];
    stack_t alternate = {stack, 0, sizeof stack};
    sigaltstack(&alternate, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE})
        sigaction(number, &action, nullptr);
    signal(SIGABRT, on_abort);
    signal(SIGALRM, SIG_DFL);
}

[[noreturn]] void child(const uint8_t *data, size_t size, int said) {
    dup2(said, 2);
    catch_signals();
    alarm(kLoopSeconds);
    constexpr uintptr_t kSuperSlab = 2 * kMiB;
    uintptr_t end;
    blocks_begin = reinterpret_cast<uintptr_t>(hak_malloc(1)) / kSuperSlab * kSuperSlab;
    region_extent(&tables_begin, &end);
    World world;
    Machine machine(subject(), world, 0, kFuzzPlaces);
    machine.damage_allowed = true;
    machine.most_bytes = 8 * kMiB;
    for (size_t at = 0; at + kStepBytes <= size; at += kStepBytes) {
        Step step = step_of_bytes(data + at);
        if (step.call != CALL_fork)
            machine.run(step);
    }
    if (machine.careless)
        machine.free_all();
    save_edges();
    _exit(0);
}

/* A line of kLines, and who called: each line behind it is the library's, too. */
bool is_documented(const std::string &text) {
    if (text.empty() || text.back() != '\n')
        return false;
    for (size_t line = 0; line < text.size(); line = text.find('\n', line) + 1)
        if (text.compare(line, 8, "hakmem: ") != 0)
            return false;
    for (const char *line : kLines)
        if (text.compare(8, strlen(line), line) == 0)
            return true;
    return false;
}

} // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
    const char *setting = getenv("HAKMEM_SECURE");
    secure = setting != nullptr && strcmp(setting, "1") == 0;
    edge_bytes = edges_bytes();
    edges = static_cast<char *>(mmap(nullptr, edge_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    return edges == MAP_FAILED;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int said = memfd_create("said", 0);
    int status = 0;
    ftruncate(said, 0);
    lseek(said, 0, SEEK_SET);
    fuzz_counts.executions++;
    fuzz_counts.operations += size / kStepBytes;
    pid_t pid = fork();
    if (pid == 0)
        child(data, size, said);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    memcpy(edges_begin(), edges, edge_bytes);
    Outcome outcome{status, "", read_whole(dup(said))};
    bool wild = outcome.exited(kWild), refused = outcome.killed(SIGABRT) && is_documented(outcome.err);
    ends.wild += wild;
    ends.refused += refused;
    if (status == 0 || wild || refused)
        return 0;
    fprintf(stderr, "damage: %s\n", outcome.describe().c_str());
    abort();
}

FuzzCounts fuzz_counts("damage");
