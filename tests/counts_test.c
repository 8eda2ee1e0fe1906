/* counts_test GOLDEN: what the reports count, counted exactly. If it fails, programs became slower beyond the hits that
 * fast_path_test counts, or larger.
 *
 *  1. Instructions of the library for a pair of malloc and free, by tier and by how many blocks there are, and for the
 *     life of a thread of 40 calls. A child works until it is warm; one round or life is then single-stepped, and every
 *     step whose program counter lies in libhakmem.so counts.
 *  2. SuperSlabs and slabs of a heap that changes.
 *  3. In the checked build, which counts them: atomic read-modify-writes of a thread that frees another's blocks in
 *     random order.
 *
 * The library finds the clock below, which stands still: no memory grows old, and the purger never looks. The test's
 * environment takes away what depends on the machine (CMakeLists.txt). No count may be above the golden one by more
 * than a fiftieth: other releases of one compiler differ by less. A lower one is printed: put it in. */
/* SPDX-License-Identifier: MIT */
#include <elf.h>
#include <hakmem.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 20, BLOCKS_MAX = 600, LIVES = 16, LIFE_BLOCKS = 20, TRIES = 3, SLACK = 50 };

_Noreturn static void give_up(const char *why) {
    printf("counts_test: %s\n", why);
    exit(1);
}

/* Stands in for libc's. */
int clock_gettime(clockid_t clock, struct timespec *now) {
    (void)clock;
    *now = (struct timespec){1000000, 0};
    return 0;
}

/* ---- what the children do ---- */

static const struct pairs {
    const char *name;
    size_t bytes;
    int blocks;
} all_pairs[] = {
    {"pair_48_of_1", 48, 1},         {"pair_48_of_48", 48, 48},         {"pair_48_of_110", 48, 110},
    {"pair_48_of_600", 48, 600},     {"pair_1000_of_1", 1000, 1},       {"pair_1000_of_48", 1000, 48},
    {"pair_1000_of_110", 1000, 110}, {"pair_1000_of_600", 1000, 600},   {"pair_8000_of_1", 8000, 1},
    {"pair_8000_of_48", 8000, 48},   {"pair_8000_of_110", 8000, 110},   {"pair_8000_of_600", 8000, 600},
    {"pair_200000_of_1", 200000, 1}, {"pair_200000_of_48", 200000, 48}, {"pair_200000_of_110", 200000, 110},
};
enum { PAIRS = sizeof all_pairs / sizeof all_pairs[0] };

static void run_round(const struct pairs *of) {
    static void *volatile blocks[BLOCKS_MAX];
    for (int i = 0; i < of->blocks; i++)
        blocks[i] = malloc(of->bytes);
    for (int i = 0; i < of->blocks; i++)
        free(blocks[i]);
}

/* Stops before and after each round that counts. */
static void run_pairs(void) {
    for (const struct pairs *of = all_pairs; of < all_pairs + PAIRS; of++) {
        for (int i = 0; i < ROUNDS; i++)
            run_round(of);
        raise(SIGSTOP);
        run_round(of);
        raise(SIGSTOP);
    }
}

/* The first such number in the statistics. */
static long stat(const char *name) {
    static char text[1 << 20];
    hak_stats_json(text, sizeof text);
    const char *at = strstr(text, name);
    if (at == NULL)
        give_up("a figure is missing");
    return strtol(at + strlen(name), NULL, 10);
}

static void *live(void *unused) {
    void *volatile blocks[LIFE_BLOCKS];
    for (int i = 0; i < LIFE_BLOCKS; i++)
        blocks[i] = malloc(16 + 52 * (size_t)i);
    for (int i = 0; i < LIFE_BLOCKS; i++)
        free(blocks[i]);
    return unused;
}

static void run_thread(void *run(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_join(thread, NULL) != 0)
        give_up("no threads");
}

/* Once heaps rest there is a purger. */
static void run_lives(void) {
    static void *volatile large[16];
    for (int i = 0; i < 16; i++) /* a heap of some size has one */
        large[i] = malloc(1 << 20);
    do
        run_thread(live);
    while (stat("\"heaps_rested\":") == 0);
    raise(SIGSTOP);
    for (int i = 0; i < LIVES; i++)
        run_thread(live);
    for (int i = 0; i < 16; i++)
        free(large[i]);
}

static uint64_t dice = 88172645463325252u;
static uint64_t random_below(uint64_t n) {
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return dice % n;
}

static void run_heap(void) {
    enum { KEPT = 20000, CALLS = 1000000 };
    static void *kept[KEPT];
    for (int i = 0; i < CALLS; i++) {
        void **block = &kept[random_below(KEPT)];
        free(*block);
        *block = malloc(8 + random_below(8ull << i / (CALLS / 10)));
    }
    printf("superslabs %ld\nslabs %ld\n", stat("\"superslabs_peak\":"), stat("\"slabs_started\":"));
}

enum { REMOTE = 40000 };
static void *remote[REMOTE];
static size_t remote_bytes;
static pthread_barrier_t allocated, freed;

static void *allocate_and_wait(void *unused) {
    for (int i = 0; i < REMOTE; i++)
        remote[i] = malloc(remote_bytes);
    pthread_barrier_wait(&allocated);
    pthread_barrier_wait(&freed);
    return unused;
}

static void run_remote(void) {
    static const size_t sizes[] = {64, 512, 5000};
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        remote_bytes = sizes[i];
        pthread_barrier_init(&allocated, NULL, 2);
        pthread_barrier_init(&freed, NULL, 2);
        pthread_create(&thread, NULL, allocate_and_wait, NULL);
        pthread_barrier_wait(&allocated);
        for (uint64_t left = REMOTE; left > 1; left--) {
            uint64_t other = random_below(left);
            void *last = remote[left - 1];
            remote[left - 1] = remote[other], remote[other] = last;
        }
        long before = stat("\"atomic_rmw\":");
        for (int n = 0; n < REMOTE; n++)
            free(remote[n]);
        printf("atomics_%zu %ld\n", sizes[i], (stat("\"atomic_rmw\":") - before) * 1000 / REMOTE);
        pthread_barrier_wait(&freed);
        pthread_join(thread, NULL);
    }
}

/* ---- single steps ---- */

struct range {
    uintptr_t begin, end;
};

/* The library's code in a process that is stopped. */
static struct range code_of(pid_t pid) {
    char path[64], line[4096];
    struct range code = {0, 0};
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "r");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        unsigned long begin, end;
        char rights[5];
        if (strstr(line, "libhakmem") != NULL && sscanf(line, "%lx-%lx %4s", &begin, &end, rights) == 3 &&
            rights[2] == 'x')
            code = (struct range){begin, end};
    }
    if (maps == NULL || code.begin == 0)
        give_up("the library is not there");
    fclose(maps);
    return code;
}

static bool is_in(const struct range *code, pid_t tid) {
    struct user_regs_struct registers;
    struct iovec data = {&registers, sizeof registers};
    if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &data) != 0)
        return false;
#if defined(__aarch64__)
    uintptr_t at = registers.pc;
#else
    uintptr_t at = registers.rip;
#endif
    return at >= code->begin && at < code->end;
}

static bool stops_by(int status, int signal) { return WIFSTOPPED(status) && status >> 8 == signal; }

/* A step takes two changes between this process and the child: within one processor they cost less than half. The child
 * has asked by now how many there are. */
static void share_a_processor(pid_t child) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    sched_setaffinity(child, sizeof one, &one);
}

/* A child that has begun to run this part, and stopped itself. */
static pid_t start(const char *part, struct range *code) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        ptrace(PTRACE_TRACEME, 0, NULL, NULL);
        execl("/proc/self/exe", "counts_test", part, (char *)NULL);
        _exit(90);
    }
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status) || ptrace(PTRACE_CONT, pid, NULL, NULL) != 0 ||
        waitpid(pid, &status, 0) != pid || !stops_by(status, SIGSTOP))
        give_up("the child did not start");
    *code = code_of(pid);
    share_a_processor(pid);
    return pid;
}

static void count_pairs(long counts[PAIRS]) {
    int status = 0;
    struct range code;
    pid_t pid = start("pairs", &code);
    for (int i = 0; i < PAIRS; i++) {
        long steps = 0;
        do {
            steps += is_in(&code, pid);
            if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || waitpid(pid, &status, 0) != pid)
                give_up("the child is lost");
        } while (stops_by(status, SIGTRAP));
        counts[i] = steps / all_pairs[i].blocks;
        ptrace(PTRACE_CONT, pid, NULL, NULL);
        waitpid(pid, &status, 0);
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up("the child failed");
}

/* The least that a life takes: it is the same for each but those that begin when the purger has just taken a heap. */
static long count_life(void) {
    struct range code;
    pid_t pid = start("lives", &code), tid, living = 0;
    long least = -1, steps = 0;
    int status;
    ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL));
    ptrace(PTRACE_CONT, pid, NULL, NULL);
    while ((tid = waitpid(-1, &status, __WALL)) > 0 && !(tid == pid && !WIFSTOPPED(status))) {
        if (!WIFSTOPPED(status)) {
            if (tid == living && (least < 0 || steps < least))
                least = steps;
            continue;
        }
        if (tid == pid) {
            ptrace(PTRACE_CONT, pid, NULL, NULL);
            continue;
        }
        if (tid != living)
            living = tid, steps = 0;
        steps += is_in(&code, tid);
        ptrace(PTRACE_SINGLESTEP, tid, NULL, NULL);
    }
    if (tid != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        give_up("the child failed");
    return least;
}

/* ---- the golden counts ---- */

static bool failed;

/* "MACHINE COMPILER NAME COUNT". Returns false if the count is too high. */
static bool holds(const char *golden, const char *machine, const char *compiler, const char *name, long count) {
    char line[256], words[3][64];
    long most;
    bool found = false, holds = true;
    FILE *file = fopen(golden, "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "%63s %63s %63s %ld", words[0], words[1], words[2], &most) == 4 &&
            strcmp(words[0], machine) == 0 && strcmp(words[1], compiler) == 0 && strcmp(words[2], name) == 0)
            found = true, holds = count <= most + most / SLACK;
    if (file == NULL)
        give_up("no golden file");
    fclose(file);
    printf("%s %s %s %ld%s\n", machine, compiler, name, count,
           !found  ? " is not in the golden file"
           : holds ? ""
                   : " is too many");
    return holds;
}

/* Checks the counts of a part, which prints "NAME COUNT" on each line. */
static void check_printed(const char *golden, const char *part) {
    char name[64], command[64];
    long count;
    snprintf(command, sizeof command, "exec /proc/%d/exe %s", getpid(), part);
    FILE *lines = popen(command, "r"); /* NOLINT: the command is ours */
    while (lines != NULL && fscanf(lines, "%63s %ld", name, &count) == 2)
        failed |= !holds(golden, "any", "any", name, count);
    if (lines == NULL || pclose(lines) != 0)
        give_up("the child failed");
}

static void check_steps(const char *golden) {
    struct utsname machine;
    long counts[PAIRS], life = 0;
    uname(&machine);
    count_pairs(counts);
    for (int i = 0; i < PAIRS; i++)
        failed |= !holds(golden, machine.machine, HAK_TEST_COMPILER, all_pairs[i].name, counts[i]);
    bool lives = false;
    for (int i = 0; i < TRIES && !lives; i++)
        lives = holds(golden, machine.machine, HAK_TEST_COMPILER, "life", life = count_life());
    failed |= !lives || life <= 0;
}

int main(int n, char **arguments) {
    const char *what = n == 2 ? arguments[1] : "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "pairs") == 0) {
        run_pairs();
    } else if (strcmp(what, "lives") == 0) {
        run_lives();
    } else if (strcmp(what, "heap") == 0) {
        run_heap();
    } else if (strcmp(what, "remote") == 0) {
        run_remote();
    } else {
        if (n != 2)
            return 2;
        if (!HAK_TEST_CHECKED)
            check_steps(what);
        check_printed(what, HAK_TEST_CHECKED ? "remote" : "heap");
        puts("This must be refused:");
        if (holds(what, "any", "any", HAK_TEST_CHECKED ? "atomics_64" : "superslabs", 1 << 20))
            give_up("no count is too many");
        puts(failed ? "If what grew is wanted and measured, put it into the golden file." : "ok");
    }
    return failed;
}
