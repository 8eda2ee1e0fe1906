/* Who is there: how many threads have a heap, whether there is a purger, and whether this process is a fork's child.
 *
 *  1. The purger's state is a word on the fork page, which a fork's child finds zero however the child was made: a
 *     child has one thread and no purger. The page is made when the program makes a thread, or the second one gets its
 *     heap.
 *  2. The purger parks while it has nothing to do. Whoever settles, or begins to gather blocks, wakes it: both store
 *     first and then read the word, while the purger stores the word and then reads what they store, so one of the two
 *     sees the other.
 *  3. When all threads of the program but one have ended, the purger is called, and ends a while later: that thread may
 *     want to be alone in the process (unshare, setns). Threads count whether they allocate or not, if our
 *     pthread_create made them.
 *  4. When the system refuses the program a thread, the purger ends; if that gives the program the place, there is none
 *     for a while.
 *
 * Any thread calls anything; only the purger waits, and who makes it until it runs. */
/* SPDX-License-Identifier: MIT */
#pragma once

#include "base/base.h"

struct fork_page {
    _Atomic uint32_t known;   /* 0: this is a child that has not noticed yet */
    _Atomic uint32_t purger;  /* enum purger_state; the purger waits for it to change */
    _Atomic uint32_t process; /* os_process */
    /* The purger's place among the threads. Sequentially consistent. */
    _Atomic uint32_t place;    /* enum purger_place */
    _Atomic uint32_t place_ms; /* when the program was last refused a thread; 0: never */
    _Atomic uint32_t ended_ms; /* when a purger last ended; 0: never */
};
enum purger_place {
    PLACE_FREE,   /* there may be a purger */
    PLACE_WANTED, /* the program tries to have a thread in its place */
    PLACE_TAKEN   /* the program has one there */
};
enum purger_state {
    PURGER_NONE,
    PURGER_MADE,   /* its thread was asked for and does not run yet */
    PURGER_ENDS,   /* soon, if the program makes no further threads: it has waited, and has no heap */
    PURGER_WAITS,  /* until it is wanted; has no heap */
    PURGER_LEAVES, /* has no more looks at what threads free, and has its heap still */
    PURGER_RUNS,
    PURGER_PARKED,
    PURGER_CALLED, /* runs, and is to look at once */
};

/* Written by any thread. `several`, `gathered`, `wanted`, `heaps` and `settlings` are sequentially consistent where
 * they pair with the purger's word, see above; all else is a hint that stands for itself, so relaxed accesses are
 * enough. */
struct HAK_OWN_LINES presence {
    /* What threads read when they free each other's blocks, and what hardly ever changes. */
    _Atomic(struct fork_page *) page; /* NULL until there is one */
    _Atomic bool several;             /* more than one thread has a heap: a hint that follows `heaps` */
    _Atomic bool gathered;            /* something began to gather in a cache since the purger last wanted to park */
    _Atomic bool wanted;              /* the purger, since one last began to run. Sequentially consistent */
    _Atomic bool lost_threads;        /* this is the child of a program with threads, or a child's child */
    _Atomic int32_t threads;          /* that the program made by our pthread_create and that have not ended */
    _Atomic uint32_t made;            /* how many it ever made. Both sequentially consistent */
    /* What threads write when they begin and end. */
    _Alignas(HAK_LINE) _Atomic int32_t heaps; /* threads that have a heap */
    /* What they write when they settle. */
    _Alignas(HAK_LINE) _Atomic uint32_t settlings; /* while this number changes the program is not idle */
    /* The purger's, the only one to touch these. */
    uint32_t settlings_seen, made_seen;
    uint32_t alone_since_ms; /* the program has had one thread, and made no other; 0: it has several */
};
extern HAK_HIDDEN struct presence hak_presence;

/* At the start, once: asks for the fork page. */
void presence_start(void);
/* A thread gets its heap (1) or loses it (-1). */
void presence_heaps_changed(int by);
/* How many threads have a heap: 1 in a program without threads. */
unsigned presence_heaps(void);
/* Has only one thread a heap? The answer may be wrong for a moment when threads begin and end at once: it is for
 * decisions that are only better when right. */
HAK_INLINE bool presence_is_alone(void) { return !load_seq(&hak_presence.several); }
/* This is the child of a program with threads, or a child's child: some of its pages were copied a moment before
 * others. */
bool presence_lost_threads(void);

/* Is the calling thread the only one, as far as the library knows, and in no child of a program with threads? A thread
 * that has no heap yet may get one, and memory, at any moment. */
bool presence_is_single(void);

/* Something was settled: the program is not idle. */
void presence_settled(void);
/* Something begins to gather in an outbox, a ring, or a heap that rests, or in slots that were given and not settled.
 * Should the thread fall asleep now, the purger has to empty that. False: there is none that empties even heaps that
 * rest. */
bool presence_gathered(void);
/* A thread ends that presence_thread_made has counted, or it was not made after all. It has no heap any more. */
void presence_thread_ends(void);
/* Is there a purger to leave the purging to? If it is parked it wakes up. It may be one that stays with the last thread
 * for a while. *may_start: there is none, and one may be started. */
bool presence_find_purger(bool *may_start);
/* The same without waking it, whatever the options say: is there one that takes back what sleeping threads hold? */
bool presence_has_purger(void);
/* Is there one that empties heaps that rest, if only before it ends? */
bool presence_empties_rests(void);
/* The program is about to make a thread, whose end will be told. True: the caller makes a purger, which waits until it
 * is wanted. */
bool presence_thread_made(void);
/* The system has refused the program a thread. True: the purger ends, or has just ended, so that there may be a place
 * now; presence_yielded then says whether that helped. */
bool presence_yield(void);
void presence_yielded(bool helped);
/* The purger is wanted: one that waits runs, and so does the next to be made. False: there is none, as the program
 * makes its threads some other way, or has had one thread for a while: the caller starts one. */
bool presence_want_purger(void);

/* ---- the purger's side ---- */

/* There is a purger from now on; one caller wins. */
bool presence_claim_purger(void);
void presence_release_purger(void);
/* Sleeps for so long. False: the purger is to end: there may be none, or the program has had one thread for a while. */
bool presence_pause(unsigned ms);
/* The purger wants to park, and looks at all that has gathered. Only what gathers from now on keeps it from that. */
void presence_gathers_anew(void);
/* Sleeps until something is settled or gathers, or a thread ends; not at all if something has been since. False: that
 * takes longer than `ms` milliseconds; OS_WITHOUT_END is weeks. */
bool presence_park(unsigned ms);
/* Was anything settled since the purger's last tick? */
bool presence_has_news(void);
/* A tick begins: whether there was no news. */
bool presence_tick_is_idle(void);
/* In the thread that has made the purger: returns when that runs. What libc asks of the kernel at a thread's start a
 * sandbox may forbid that the program enters next. */
void presence_wait_for_start(void);
/* Waits until the purger is wanted. False: the program has no other threads any more, and this purger is none from now
 * on. */
bool presence_await(void);
/* It is going to end: what is freed from now on is left to whoever frees. Then: it has no heap any more. */
void presence_leave(void);
void presence_rest(void);
