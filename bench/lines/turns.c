/* See lines.h. Who runs, and the calls of libc and of os.h by which threads wait for each other, which the linker or
 * the loader finds here. A thread that is not running waits at its own word; whoever stops running wakes the next
 * one. */
/* SPDX-License-Identifier: MIT */
#include "lines.h"
#include "base/os.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define TURN_ACCESSES 16 /* on average: about an operation */
#define ACCESS_PS 5000
#define LAST_ROUND 3 /* of the four in which libc calls the destructors of pthread keys */

struct player {
    _Atomic uint32_t runs; /* what the thread waits at */
    pthread_t thread;
    void *(*entry)(void *);
    void *argument, *result;
    const void *waits_for; /* NULL: for its turn */
    uint64_t wakes_ps;     /* or until then; 0: without end */
    bool used, detached, ended;
    unsigned last_rounds; /* of pthread keys' destructors */
};

static struct player players[PLAYERS_MAX] = {{.runs = 1, .used = true}}; /* the first is main's */
static unsigned ready[PLAYERS_MAX], ready_count = 1, running;
static unsigned sleepers;      /* that have an end to their sleep */
static unsigned left = 1;      /* accesses of this turn */
static unsigned held;          /* the running thread is inside libc, which may hold a lock */
static struct player *to_bury; /* has ended, except for what libc does last */
static uint64_t random_state = 42, now_ps = (uint64_t)1000 * 1000 * 1000 * 1000;
static unsigned turn_accesses;
static _Thread_local struct player *me __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static bool key_is_made;

unsigned turns_player(void) { return me != NULL ? (unsigned)(me - players) : running; }
uint64_t turns_now_ns(void) { return now_ps / 1000; }

static unsigned below(unsigned n) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) % n);
}

/* libc's own. */
#define REAL(name) ((__typeof__(name) *)real(#name, &name##_real))
static void *pthread_create_real, *pthread_join_real;
static void *real(const char *name, void **known) {
    if (*known == NULL)
        *known = dlsym(RTLD_NEXT, name);
    return *known;
}

static void begin(void) {
    const char *wanted = getenv("LINES_TURN");
    cpu_set_t one;
    turn_accesses = wanted != NULL ? (unsigned)atoi(wanted) : TURN_ACCESSES;
    CPU_ZERO(&one);
    CPU_SET((unsigned)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one); /* a turn passes faster on one processor */
}

/* ---- who runs ---- */

static void wait_for_turn(struct player *self) {
    while (atomic_load(&self->runs) == 0)
        syscall(SYS_futex, &self->runs, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    if (to_bury != NULL) {
        struct player *dead = to_bury;
        to_bury = NULL;
        held++;
        REAL(pthread_join)(dead->thread, NULL);
        held--;
        dead->ended = true;
        dead->used = !dead->detached;
    }
}

static void wake_sleepers(bool all_wait) {
    uint64_t first = UINT64_MAX;
    for (unsigned i = 0; all_wait && i < PLAYERS_MAX; i++)
        if (players[i].used && players[i].waits_for != NULL && players[i].wakes_ps != 0 && players[i].wakes_ps < first)
            first = players[i].wakes_ps;
    if (all_wait && first != UINT64_MAX && first > now_ps)
        now_ps = first;
    for (unsigned i = 0; sleepers != 0 && i < PLAYERS_MAX; i++)
        if (players[i].used && players[i].waits_for != NULL && players[i].wakes_ps != 0 &&
            players[i].wakes_ps <= now_ps) {
            players[i].waits_for = NULL;
            players[i].wakes_ps = 0;
            sleepers--;
            ready[ready_count++] = i;
        }
}

/* Another thread runs; this one waits until it is chosen, unless it ends. */
static void next_turn(struct player *self, bool ends) {
    if (turn_accesses == 0)
        begin();
    if (sleepers != 0)
        wake_sleepers(ready_count == 0);
    if (ready_count == 0)
        lines_fail("every thread waits");
    left = 1 + below(2 * turn_accesses - 1);
    unsigned next = ready[below(ready_count)];
    if (&players[next] == self)
        return;
    running = next;
    atomic_store(&self->runs, 0);
    atomic_store(&players[next].runs, 1);
    syscall(SYS_futex, &players[next].runs, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    if (!ends)
        wait_for_turn(self);
}

static struct player *self(void) {
    if (me == NULL)
        me = &players[running];
    return me;
}

static void unready(struct player *player) {
    for (unsigned i = 0; i < ready_count; i++)
        if (&players[ready[i]] == player) {
            ready[i] = ready[--ready_count];
            return;
        }
}

/* Until somebody wakes those who wait for it, or for so long; 0: without end. */
static void wait_for(const void *object, uint64_t ps) {
    struct player *player = self();
    player->waits_for = object;
    player->wakes_ps = ps != 0 ? now_ps + ps : 0;
    sleepers += ps != 0;
    unready(player);
    next_turn(player, false);
}
static void wake(const void *object) {
    for (unsigned i = 0; i < PLAYERS_MAX; i++)
        if (players[i].used && players[i].waits_for == object) {
            sleepers -= players[i].wakes_ps != 0;
            players[i].waits_for = NULL;
            players[i].wakes_ps = 0;
            ready[ready_count++] = i;
        }
}

void turns_step(void) {
    now_ps += ACCESS_PS / ready_count;
    if (--left == 0) {
        left = 1;
        if (held == 0 && self()->last_rounds < LAST_ROUND)
            next_turn(self(), false);
    }
}

/* ---- threads ---- */

/* The last thing of the thread that the program or the library may notice: called again as long as it asks for that, so
 * that the library's own destructor comes before. */
static void ending(void *value) {
    struct player *player = value;
    if (++player->last_rounds < LAST_ROUND) {
        pthread_setspecific(key, player);
        return;
    }
    unready(player);
    wake(player); /* who joins it; whoever runs next buries it first */
    to_bury = player;
    next_turn(player, true);
}

static void *run(void *value) {
    struct player *player = value;
    me = player;
    wait_for_turn(player);
    held++;
    pthread_setspecific(key, player);
    held--;
    player->result = player->entry(player->argument);
    return NULL;
}

/* As a new thread gets any idle processor: one of those that were ever in use, if one is free, and else a new one. */
static unsigned free_player(void) {
    static unsigned known = 1;
    unsigned free[PLAYERS_MAX], count = 0;
    for (unsigned i = 1; i < known; i++)
        if (!players[i].used)
            free[count++] = i;
    if (count != 0)
        return free[below(count)];
    if (known == PLAYERS_MAX)
        lines_fail("too many threads");
    return known++;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*entry)(void *), void *argument) {
    (void)attributes;
    unsigned i = free_player();
    struct player *player = &players[i];
    *player = (struct player){.entry = entry, .argument = argument, .used = true};
    held++;
    if (!key_is_made && pthread_key_create(&key, ending) != 0)
        lines_fail("no key");
    key_is_made = true;
    int error = REAL(pthread_create)(&player->thread, NULL, run, player);
    held--;
    if (error != 0)
        lines_fail("no thread");
    ready[ready_count++] = i;
    *thread = player->thread;
    return 0;
}

static struct player *player_of(pthread_t thread) {
    for (unsigned i = 0; i < PLAYERS_MAX; i++)
        if (players[i].used && !players[i].detached && players[i].thread == thread && i != 0)
            return &players[i];
    lines_fail("an unknown thread");
}
int pthread_join(pthread_t thread, void **result) {
    struct player *player = player_of(thread);
    while (!player->ended)
        wait_for(player, 0);
    if (result != NULL)
        *result = player->result;
    player->used = false;
    return 0;
}
int pthread_detach(pthread_t thread) {
    struct player *player = player_of(thread);
    player->detached = true;
    player->used = !player->ended;
    return 0;
}

/* ---- what they wait for ---- */

struct barrier { /* in the program's pthread_barrier_t */
    unsigned count, arrived, round;
};
int pthread_barrier_init(pthread_barrier_t *barrier, const pthread_barrierattr_t *attributes, unsigned count) {
    (void)attributes;
    *(struct barrier *)(void *)barrier = (struct barrier){count, 0, 0};
    return 0;
}
int pthread_barrier_destroy(pthread_barrier_t *barrier) { return (void)barrier, 0; }
int pthread_barrier_wait(pthread_barrier_t *barrier) {
    struct barrier *b = (struct barrier *)(void *)barrier;
    unsigned round = b->round;
    if (++b->arrived == b->count) {
        b->arrived = 0;
        b->round++;
        wake(b);
        return PTHREAD_BARRIER_SERIAL_THREAD;
    }
    while (b->round == round)
        wait_for(b, 0);
    return 0;
}

struct semaphore { /* in the program's sem_t */
    unsigned value;
};
int sem_init(sem_t *semaphore, int shared, unsigned value) {
    (void)shared;
    ((struct semaphore *)(void *)semaphore)->value = value;
    return 0;
}
int sem_post(sem_t *semaphore) {
    ((struct semaphore *)(void *)semaphore)->value++;
    wake(semaphore);
    return 0;
}
int sem_wait(sem_t *semaphore) {
    struct semaphore *s = (struct semaphore *)(void *)semaphore;
    while (s->value == 0)
        wait_for(s, 0);
    s->value--;
    return 0;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    while (pthread_mutex_trylock(mutex) != 0)
        next_turn(self(), false);
    return 0;
}

int sched_yield(void) {
    next_turn(self(), false);
    return 0;
}
int nanosleep(const struct timespec *time, struct timespec *rest) {
    (void)rest;
    wait_for(time, ((uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_nsec) * 1000 + 1);
    return 0;
}

/* ---- the library's system ---- */

bool __wrap_os_start_thread(void *(*entry)(void *));
bool __wrap_os_start_thread(void *(*entry)(void *)) {
    pthread_t thread;
    return pthread_create(&thread, NULL, entry, NULL) == 0 && pthread_detach(thread) == 0;
}
void __wrap_os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms);
void __wrap_os_wait(_Atomic uint32_t *word, uint32_t value, unsigned ms) {
    if (atomic_load(word) == value)
        wait_for(word, ms == OS_WITHOUT_END ? 0 : (uint64_t)ms * 1000000000 + 1);
}
void __wrap_os_wake(_Atomic uint32_t *word);
void __wrap_os_wake(_Atomic uint32_t *word) { wake(word); }
bool __wrap_os_fence_threads(void);
bool __wrap_os_fence_threads(void) { return true; }
uint32_t __wrap_os_now_ms(void);
uint32_t __wrap_os_now_ms(void) { return (uint32_t)(turns_now_ns() / 1000000); }
uint64_t __wrap_os_now_ns(void);
uint64_t __wrap_os_now_ns(void) { return turns_now_ns(); }
uint64_t __wrap_os_random(void);
uint64_t __wrap_os_random(void) { return 0x9e3779b97f4a7c15; }
