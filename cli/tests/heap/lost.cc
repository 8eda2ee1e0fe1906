// Loses blocks, each kind a known number of times, keeps others, and then answers each line of its input by "done". It
// counts the signals SIGRTMIN, and tells how many before that if the line is "signals". After the line "work" it
// allocates a block and frees it at once, again and again.
//
//   nodes    NODES heads of class Node, each of which holds a second Node and a text of 200 bytes
//   circles  CIRCLES pairs of 176 bytes that hold each other
//   huge     one block of 3 MiB
//
// It keeps KEPT blocks by pointers into their middle, each of which holds another block.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NODES = 500, CIRCLES = 100, KEPT = 300 };

struct Node {
    Node *next = nullptr;
    char *text = nullptr;
    long numbers[9] = {};
    virtual ~Node() {}
};

char *kept[KEPT];
static pthread_barrier_t ready;

__attribute__((noinline)) static void lose_nodes() {
    for (int i = 0; i < NODES; i++) {
        Node *volatile head = new Node; // HEAD
        head->next = new Node;          // SECOND
        head->text = static_cast<char *>(malloc(200));
        strcpy(head->text, "a text that only a lost node leads to");
        head = nullptr;
    }
}

__attribute__((noinline)) static void lose_circles() {
    for (int i = 0; i < CIRCLES; i++) {
        void **one = static_cast<void **>(calloc(1, 176)), **other = static_cast<void **>(calloc(1, 176));
        *one = other;
        *other = one;
    }
    void *volatile large = memset(malloc(3 << 20), 1, 3 << 20);
    large = nullptr;
}

__attribute__((noinline)) static void keep() {
    for (int i = 0; i < KEPT; i++) {
        kept[i] = static_cast<char *>(malloc(720)) + 304;
        *reinterpret_cast<void **>(kept[i]) = calloc(1, 720); // the middle of the one holds the other
    }
}

// What the functions left on the stack must not hold anything.
__attribute__((noinline)) static void wipe() {
    char volatile space[64 << 10];
    for (size_t i = 0; i < sizeof space; i++)
        space[i] = 0;
}

static void *work(void *) {
    void *volatile mine = calloc(1, 1200);
    lose_nodes();
    lose_circles();
    keep();
    wipe();
    pthread_barrier_wait(&ready);
    for (;;)
        pause();
    return mine;
}

[[noreturn]] static void work_for_ever() {
    for (;;) {
        char *volatile gone = static_cast<char *>(malloc(3000)); // TEMPORARY
        free(gone);
        usleep(20);
    }
}

static volatile sig_atomic_t signals;
static void count_signal(int) { __atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED); }

int main() {
    struct sigaction count = {};
    count.sa_handler = count_signal;
    count.sa_flags = SA_RESTART;
    sigaction(SIGRTMIN, &count, nullptr);
    pthread_t thread;
    pthread_barrier_init(&ready, nullptr, 2);
    pthread_create(&thread, nullptr, work, nullptr);
    pthread_barrier_wait(&ready);
    char line[32];
    while (fgets(line, sizeof line, stdin) != nullptr) {
        if (strcmp(line, "signals\n") == 0)
            printf("%d\n", (int)signals);
        puts("done");
        fflush(stdout);
        if (strcmp(line, "work\n") == 0)
            work_for_ever();
    }
}
