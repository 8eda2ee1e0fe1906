/* server_sessions [WORKERS] [SESSIONS] [MESSAGES] [SEED]: workers with long sessions pass short messages on.
 *
 * Each worker has SESSIONS sessions: a record, a name, and an input buffer that grows with the largest message. For
 * each message (16 B-32 KiB, small ones more often) of a random session, the worker
 *   1. grows the buffer if necessary, cuts the message into a linked list of 1-8 tokens, each a block, and frees them;
 *   2. makes an answer: a record and a body, which the next worker checks and frees;
 *   3. one time in 64, closes the session and opens a new one.
 *
 * A worker whose queue is full first empties its own. An operation is one message. */
/* SPDX-License-Identifier: MIT */
#include "workload.h"

enum { WORKERS, SESSIONS, MESSAGES, SEED };
enum { POWERS = 11 };

static struct argument args[] = {
    {"WORKERS", 2, 1, 64}, {"SESSIONS", 1000, 1, 1u << 20}, {"MESSAGES", 300000, 1, 0}, {"SEED", 42, 0, 0}};
static struct handover *queues; /* queues[i]: from worker i to the next one */
static char end;                /* its address ends a queue */

struct session {
    struct slot name, buffer;
    uint64_t messages;
};

struct token {
    struct token *next;
    unsigned char text[];
};

struct answer {
    struct slot body;
    uint64_t session;
};

static struct session *session_open(uint64_t *random) {
    struct session *session = must(calloc(1, sizeof *session));
    slot_fill(&session->name, 8 + random_below(random, 56), (uint32_t)random_next(random));
    slot_fill(&session->buffer, 256, (uint32_t)random_next(random));
    return session;
}

static void session_close(struct session *session) {
    slot_clear(&session->name);
    slot_clear(&session->buffer);
    free(session);
}

static void message_parse(struct session *session, uint32_t size, uint64_t *random) {
    struct slot *buffer = &session->buffer;
    tag_check(buffer->block, buffer->size, buffer->tag);
    if (buffer->size < size) {
        buffer->block = must(realloc(buffer->block, size));
        buffer->size = size;
        tag_write(buffer->block, size, buffer->tag);
    }
    struct token *tokens = NULL;
    for (uint32_t left = 1 + random_below(random, 8), length = size / left; left > 0; left--) {
        struct token *token = must(malloc(sizeof *token + length + 1));
        memcpy(token->text, buffer->block, length);
        token->text[length] = (unsigned char)left;
        token->next = tokens;
        tokens = token;
    }
    while (tokens != NULL) {
        struct token *token = tokens;
        tokens = token->next;
        free(token);
    }
    session->messages++;
}

/* Frees the answers that have arrived. Returns false if the previous worker has ended. */
static bool answers_send(struct handover *queue) {
    void *taken;
    while (handover_try_take(queue, &taken)) {
        if (taken == &end)
            return false;
        struct answer *answer = taken;
        slot_clear(&answer->body);
        free(answer);
    }
    return true;
}

static void *work(void *argument) {
    struct worker *worker = argument;
    uint32_t count = (uint32_t)args[SESSIONS].value;
    uint64_t random = random_seed(args[SEED].value + worker->index);
    struct handover *out = &queues[worker->index];
    struct handover *in = &queues[(worker->index + args[WORKERS].value - 1) % args[WORKERS].value];
    struct session **sessions = must(calloc(count, sizeof *sessions));
    bool more = true;
    unsigned tries = 0;

    worker_start(worker);
    for (uint32_t i = 0; i < count; i++)
        sessions[i] = session_open(&random);
    for (uint64_t message = 0; message < args[MESSAGES].value; message++) {
        uint32_t at = random_below(&random, count);
        message_parse(sessions[at], random_size(&random, POWERS), &random);
        struct answer *answer = must(malloc(sizeof *answer));
        slot_fill(&answer->body, random_size(&random, POWERS), (uint32_t)message);
        answer->session = at;
        while (!handover_try_give(out, answer)) {
            more = more && answers_send(in);
            handover_wait(&tries);
        }
        if (random_below(&random, 64) == 0) {
            session_close(sessions[at]);
            sessions[at] = session_open(&random);
        }
        if (message % 64 == 0)
            more = more && answers_send(in);
    }
    while (!handover_try_give(out, &end)) {
        more = more && answers_send(in);
        handover_wait(&tries);
    }
    while (more && answers_send(in))
        handover_wait(&tries);
    worker_end(worker);
    for (uint32_t i = 0; i < count; i++)
        session_close(sessions[i]);
    free(sessions);
    return NULL;
}

int main(int argc, char **argv) {
    ARGUMENTS_READ(argc, argv, args);
    uint64_t workers = args[WORKERS].value;
    queues = pages_map(workers * sizeof *queues);
    report_speed(workers * args[MESSAGES].value, workers_run((unsigned)workers, work));
}
