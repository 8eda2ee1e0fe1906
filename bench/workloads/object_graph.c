/* object_graph TREES NODES SEED [LISTS]: one thread builds random trees of NODES nodes, another walks and frees them.
 *
 * LISTS 1 builds linked lists instead of binary trees. A node is 32-160 B, and half of the nodes have a string of 1-200
 * B. An operation is one block: a malloc in one thread and a free in the other. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { TREES, NODES, SEED, LISTS };

static struct argument args[] = {
    {"TREES", 500, 1, 0}, {"NODES", 5000, 1, 1000000}, {"SEED", 42, 0, 0}, {"LISTS", 0, 0, 1}};
static struct handover ring;

struct node {
    struct node *left, *right;
    unsigned char *text;
    uint32_t text_bytes;
    uint32_t tag;
};

/* Follows the left edge in a loop, so that a list needs no recursion. */
static struct node *tree_build(uint32_t nodes, uint64_t *random, uint64_t *blocks) {
    struct node *root = NULL, **place = &root;
    while (nodes > 0) {
        struct node *node = *place = must(malloc(sizeof *node + random_below(random, 129)));
        node->tag = (uint32_t)random_next(random);
        node->text = NULL;
        ++*blocks;
        if (node->tag & 1) {
            node->text_bytes = 1 + random_below(random, 200);
            node->text = must(malloc(node->text_bytes));
            tag_write(node->text, node->text_bytes, node->tag);
            ++*blocks;
        }
        uint32_t right = args[LISTS].value ? 0 : random_below(random, nodes);
        node->right = tree_build(right, random, blocks);
        nodes -= 1 + right;
        place = &node->left;
    }
    *place = NULL;
    return root;
}

static uint32_t tree_free(struct node *node) {
    uint32_t nodes = 0;
    while (node != NULL) {
        struct node *left = node->left;
        nodes += 1 + tree_free(node->right);
        if (node->text != NULL) {
            tag_check(node->text, node->text_bytes, node->tag);
            free(node->text);
        }
        free(node);
        node = left;
    }
    return nodes;
}

static void *consume(void *argument) {
    (void)argument;
    for (uint64_t i = 0; i < args[TREES].value; i++)
        if (tree_free(handover_take(&ring)) != args[NODES].value)
            fail(3, "a tree has lost nodes");
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t random = random_seed(args[SEED].value), blocks = 0;
    pthread_t consumer = thread_start(consume, NULL);
    double start = now_seconds();
    for (uint64_t i = 0; i < args[TREES].value; i++) {
        handover_give(&ring, tree_build((uint32_t)args[NODES].value, &random, &blocks));
        /* At most 16 trees wait, which bounds the memory whichever thread is scheduled. */
        unsigned tries = 0;
        while (i >= 16 && atomic_load_explicit(&ring.taken, memory_order_acquire) < i - 15)
            handover_wait(&tries);
    }
    pthread_join(consumer, NULL);
    report_speed(blocks, now_seconds() - start);
}
