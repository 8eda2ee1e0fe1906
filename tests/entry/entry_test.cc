/* What the entry points ask of libc and of the kernel, checked against the list in asked.h: for the built library,
 * whose undefined symbols are read from its file, and for a running one, in all modes.
 *
 *  1. A child for each mode starts its threads, which wait. Then each thread that is to allocate installs a seccomp
 *     filter that ends the program at any call that the mode may not make, and functions of libc that malloc may not
 *     call are removed from the library's table of addresses.
 *  2. Then the traffic runs: every tier, growth to 300 MiB, calloc, realloc, memory given back, blocks freed by other
 *     threads, trimming.
 *
 * If it fails, programs are killed in their sandboxes, or hang or are cancelled in malloc. */
/* SPDX-License-Identifier: MIT */
#include "asked.h"

#include <dlfcn.h>
#include <elf.h>
#include <gtest/gtest.h>
#include <hakmem.h>
#include <link.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <new>
#include <set>

#include "../support.h"

namespace {

/* ---- the built library ---- */

std::vector<std::string> undefined_symbols(const char *path) {
    std::ifstream stream(path, std::ios::binary);
    std::string file{std::istreambuf_iterator<char>(stream), {}};
    std::vector<std::string> names;
    auto *header = reinterpret_cast<const Elf64_Ehdr *>(file.data());
    auto *sections = reinterpret_cast<const Elf64_Shdr *>(file.data() + header->e_shoff);
    for (unsigned i = 0; i < header->e_shnum; i++) {
        if (sections[i].sh_type != SHT_DYNSYM)
            continue;
        auto *symbols = reinterpret_cast<const Elf64_Sym *>(file.data() + sections[i].sh_offset);
        const char *texts = file.data() + sections[sections[i].sh_link].sh_offset;
        for (size_t s = 1; s < sections[i].sh_size / sizeof *symbols; s++)
            if (symbols[s].st_shndx == SHN_UNDEF && symbols[s].st_name != 0)
                names.emplace_back(texts + symbols[s].st_name);
    }
    return names;
}

const Asked *asked(const std::string &name) {
    for (auto &one : kSymbols)
        if (name == one.name)
            return &one;
    return nullptr;
}

TEST(Symbols, EachIsListed) {
    std::vector<std::string> names = undefined_symbols(HAK_TEST_LIBRARY);
    EXPECT_GT(names.size(), 30u) << "the table was not read";
    for (auto &name : names)
        EXPECT_NE(asked(name), nullptr) << name << ": a new symbol of libc's; see tests/entry/asked.h";
}

TEST(Symbols, NoneIsACancellationPoint) {
    for (auto &name : undefined_symbols(HAK_TEST_LIBRARY))
        for (const char *point : kCancellationPoints)
            EXPECT_STRNE(name.c_str(), point) << "a cancellation point: use the system call";
    for (const char *point : kCancellationPoints)
        EXPECT_EQ(asked(point), nullptr) << point << " is listed";
}

/* ---- a child: how it is stopped ---- */

constexpr int kForbiddenCall = 10, kForbiddenSymbol = 11;

[[noreturn]] void end(const char *what, const char *name, int status) {
    char line[200];
    int length = snprintf(line, sizeof line, "%s: %s\n", what, name);
    syscall(SYS_write, 2, line, length);
    syscall(SYS_exit_group, status);
    __builtin_unreachable();
}

void on_forbidden_call(int, siginfo_t *info, void *) {
    char number[32];
    snprintf(number, sizeof number, "number %d", info->si_syscall);
    end("a system call that is not listed", number, kForbiddenCall);
}

/* Addresses without memory, one for each symbol of the list. */
char *traps;
constexpr size_t kTrapBytes = 16;

void on_fault(int, siginfo_t *info, void *) {
    size_t at = static_cast<size_t>(static_cast<char *>(info->si_addr) - traps) / kTrapBytes;
    bool is_ours = info->si_addr >= traps && at < std::size(kSymbols);
    end("not to be called by malloc and free", is_ours ? kSymbols[at].name : "an ordinary fault", kForbiddenSymbol);
}

bool may_call(When when, bool samples) { return when == When::kAnyTime || (when == When::kSamples && samples); }

/* Puts the traps where the library keeps the addresses of the functions it calls. */
size_t set_traps(bool samples) {
    traps = static_cast<char *>(mmap(nullptr, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    Dl_info info;
    link_map *library = nullptr;
    dladdr1(reinterpret_cast<void *>(hak_malloc), &info, reinterpret_cast<void **>(&library), RTLD_DL_LINKMAP);
    const Elf64_Sym *symbols = nullptr;
    const char *texts = nullptr;
    const Elf64_Rela *tables[2] = {};
    size_t bytes[2] = {}, set = 0;
    for (auto *entry = library->l_ld; entry->d_tag != DT_NULL; entry++) {
        if (entry->d_tag == DT_SYMTAB)
            symbols = reinterpret_cast<const Elf64_Sym *>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_STRTAB)
            texts = reinterpret_cast<const char *>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_RELA || entry->d_tag == DT_JMPREL)
            tables[entry->d_tag == DT_JMPREL] = reinterpret_cast<const Elf64_Rela *>(entry->d_un.d_ptr);
        if (entry->d_tag == DT_RELASZ || entry->d_tag == DT_PLTRELSZ)
            bytes[entry->d_tag == DT_PLTRELSZ] = entry->d_un.d_val;
    }
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    for (int table = 0; table < 2; table++)
        for (size_t i = 0; i < bytes[table] / sizeof(Elf64_Rela); i++) {
            const Elf64_Rela &r = tables[table][i];
            const Asked *one =
                ELF64_R_SYM(r.r_info) != 0 ? asked(texts + symbols[ELF64_R_SYM(r.r_info)].st_name) : nullptr;
            auto *place = reinterpret_cast<char **>(library->l_addr + r.r_offset);
            bool is_code = one != nullptr && one->when != When::kLinker && strstr(one->name, "environ") == nullptr &&
                           strcmp(one->name, "hak_options") != 0 && strcmp(one->name, "__libc_stack_end") != 0;
            if (!is_code || may_call(one->when, samples) || *place == nullptr)
                continue;
            mprotect(reinterpret_cast<void *>(reinterpret_cast<uintptr_t>(place) / page * page), 2 * page,
                     PROT_READ | PROT_WRITE);
            *place = traps + (one - kSymbols) * kTrapBytes;
            set++;
        }
    return set;
}

/* A thread's seccomp filter. It also admits the test's own calls, write and exit_group, to report what was wrong, and
 * the calls that a thread's end makes. */
using Filter = std::vector<sock_filter>;

/* Builds the filter before the thread is confined: an allocation before that may start the purger. */
Filter filter_for(bool samples, bool thread_ends) {
    Filter filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
    auto allow = [&](const Call &call) {
        auto value_at = static_cast<unsigned>(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(call.argument));
        filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call.number), 0,
                                  static_cast<unsigned char>(call.argument < 0 ? 1 : 4)));
        if (call.argument >= 0) {
            filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, value_at));
            filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.value, 0, 1));
        }
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        if (call.argument >= 0) /* another row may allow the call with another argument */
            filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
    };
    for (auto &call : kCalls)
        if (may_call(call.when, samples))
            allow(call);
    for (long number : {SYS_write, SYS_exit_group, SYS_rt_sigreturn})
        allow({number, "", When::kAnyTime, -1, 0, ""});
    if (thread_ends) /* glibc's calls at the end of a thread */
        for (long number : {SYS_exit, SYS_rt_sigprocmask, SYS_futex, SYS_set_robust_list})
            allow({number, "", When::kAnyTime, -1, 0, ""});
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP));
    return filter;
}

void confine(Filter &filter) {
    sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0)
        end("no seccomp", strerror(errno), 2);
}

/* ---- a child: the traffic ---- */

constexpr size_t kBlocks = 300;
std::atomic<char *> shared[kBlocks];

void every_tier(unsigned seed) {
    for (size_t size : kTierSizes) {
        auto *block = static_cast<char *>(calloc(1, size)), *grown = block;
        if (block != nullptr)
            grown = static_cast<char *>(realloc(block, 3 * size + seed));
        if (grown != nullptr && grown != block)
            grown[0] = grown[3 * size - 1] = 1;
        free(aligned_alloc(4096, size));
        delete[] static_cast<char *>(hidden(new (std::nothrow) char[size]));
        free(grown != nullptr ? realloc(grown, size) : block);
    }
}

/* From 1 MiB to 300 MiB and back: limits, purges, huge blocks that move. */
void grow_and_shrink(Random &random) {
    std::vector<char *> blocks(300), small(100000);
    for (char *&block : blocks) {
        block = static_cast<char *>(malloc(kMiB - 100 * random.below(2)));
        if (block != nullptr)
            memset(block, 1, 20 * kKiB);
    }
    for (char *block : blocks)
        free(block);
    char *large = nullptr, *behind[8];
    for (size_t i = 0; i < 8; i++) {
        void *larger = realloc(large, kMiB << i); /* NULL at a limit */
        large = larger != nullptr ? static_cast<char *>(larger) : large;
        behind[i] = static_cast<char *>(malloc(3 * kMiB)); /* forces the next realloc to move the block */
    }
    for (char *block : behind)
        free(block);
    free(large);
    for (char *&block : small)
        block = static_cast<char *>(malloc(random.log_size(9)));
    for (char *block : small)
        free(block);
}

/* Threads take blocks that others allocated, and free them. */
void traffic(unsigned seed, bool grows) {
    Random random(seed);
    every_tier(seed);
    for (int i = 0; i < 20000; i++) {
        size_t size = random.log_size(i % 50 == 0 ? 20 : 11) + 1;
        auto *block = static_cast<char *>(malloc(size));
        if (block != nullptr)
            block[0] = block[size - 1] = 1;
        free(shared[random.below(kBlocks)].exchange(block));
    }
    if (grows)
        grow_and_shrink(random);
    for (auto &block : shared)
        free(block.exchange(nullptr));
    malloc_trim(0);
}

struct Mode {
    const char *name;
    std::vector<std::string> options;
    bool samples;
};

const std::vector<Mode> &modes() {
    static const std::vector<Mode> all = {
        {"auto", {}, false},
        {"eager", {"HAKMEM_PURGE=eager"}, false},
        {"lazy", {"HAKMEM_PURGE=lazy"}, false},
        {"never", {"HAKMEM_PURGE=never"}, false},
        {"window", {"HAKMEM_REGION_BYTES=0"}, false},
        {"huge", {"HAKMEM_HUGE_PAGES=always"}, false},
        {"limits", {"HAKMEM_HARD_LIMIT=256M", "HAKMEM_SOFT_LIMIT=100M"}, false},
        {"secure", {"HAKMEM_SECURE=1"}, false},
        {"nodes", {"HAKMEM_NUMA=2"}, false},
        {"profile", {"HAKMEM_PROFILE=1", "HAKMEM_PROFILE_BYTES=10000"}, true},
        {"guard", {"HAKMEM_GUARD_SAMPLE_BYTES=10000"}, true},
    };
    return all;
}

Filter of_threads;
pthread_barrier_t barrier;

void *work(void *seed) {
    pthread_barrier_wait(&barrier); /* by now all threads exist and have allocated nothing */
    confine(of_threads);
    auto number = static_cast<unsigned>(reinterpret_cast<uintptr_t>(seed));
    traffic(number, number == 1);
    return nullptr;
}

int run_child(const std::string &mode, unsigned threads) {
    bool samples = false;
    for (auto &one : modes())
        if (mode == one.name)
            samples = one.samples;
    of_threads = filter_for(samples, true);
    Filter of_main = filter_for(samples, false);
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = on_forbidden_call;
    sigaction(SIGSYS, &action, nullptr);
    action.sa_sigaction = on_fault;
    sigaction(SIGSEGV, &action, nullptr);
    pthread_t ids[4];
    pthread_barrier_init(&barrier, nullptr, threads + 1);
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&ids[i], nullptr, work, reinterpret_cast<void *>(uintptr_t{i} + 1));
    if (set_traps(samples) < 5)
        end("traps", "too few places were found", 3);
    pthread_barrier_wait(&barrier);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], nullptr);
    confine(of_main);
    if (mode == "call")
        syscall(SYS_getppid);
    if (mode == "symbol")
        hak_stats_json(nullptr, 0); /* asks what is resident */
    traffic(99, true);
    end("ok", mode.c_str(), 0);
}

class Entry : public testing::TestWithParam<size_t> {};

TEST_P(Entry, MakesNoCallThatIsNotListed) {
    const Mode &mode = modes()[GetParam()];
    for (const char *threads : {"0", "3"}) {
        Outcome outcome = run_self({"--child", mode.name, threads}, mode.options);
        EXPECT_TRUE(outcome.exited(0)) << mode.name << ", " << threads << " threads: " << outcome.describe();
    }
}

/* If these fail, the tests above detect nothing. */
TEST(Watch, SeesWhatIsNotListed) {
    EXPECT_TRUE(run_self({"--child", "call", "0"}).exited(kForbiddenCall));
    EXPECT_TRUE(run_self({"--child", "symbol", "0"}).exited(kForbiddenSymbol));
    int unlisted = 0, points = 0; /* of this program's symbols */
    for (auto &name : undefined_symbols("/proc/self/exe")) {
        unlisted += asked(name) == nullptr;
        for (const char *point : kCancellationPoints)
            points += name == point;
    }
    EXPECT_TRUE(unlisted > 10 && points > 0) << unlisted << ", " << points;
}

INSTANTIATE_TEST_SUITE_P(Modes, Entry, testing::Range(size_t{0}, modes().size()),
                         [](const auto &of) { return modes()[of.param].name; });

} // namespace

int main(int count, char **arguments) {
    if (count == 4 && strcmp(arguments[1], "--child") == 0)
        return run_child(arguments[2], static_cast<unsigned>(atoi(arguments[3])));
    testing::InitGoogleTest(&count, arguments);
    return RUN_ALL_TESTS();
}
