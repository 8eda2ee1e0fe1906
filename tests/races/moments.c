/* See model.h. What belongs to moments lies one after the other, as the last one is forgotten first. */
/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <string.h>

enum { KEPT_MAX = 8, PIECES_MAX = RACE_THREADS, MOMENTS_MAX = 4096, BYTES_MAX = 64 << 20 };

static struct {
    struct piece kept[KEPT_MAX];
    unsigned kept_used;
    struct moment {
        unsigned at, written, pieces;
        struct piece piece[PIECES_MAX];
        size_t begin; /* of its bytes */
    } moment[MOMENTS_MAX];
    unsigned used;
    size_t bytes_used;
} all;
static char bytes[BYTES_MAX];

/* NOLINTBEGIN: the original, which tsan.c does not intercept */
void *__real_memcpy(void *to, const void *from, size_t bytes);
/* NOLINTEND */

void moment_keep(void *address, size_t size) {
    if (all.kept_used == 0)
        race_private(&all, sizeof all);
    all.kept[all.kept_used++] = (struct piece){address, size};
}

static void save(const struct piece *piece) {
    __real_memcpy(bytes + all.bytes_used, piece->address, piece->bytes);
    all.bytes_used += piece->bytes;
}

static size_t put_back(const struct piece *piece, size_t from) {
    __real_memcpy(piece->address, bytes + from, piece->bytes);
    return from + piece->bytes;
}

static size_t size_of(const struct piece *pieces, unsigned n) {
    size_t size = 0;
    for (unsigned i = 0; i < n; i++)
        size += pieces[i].bytes;
    return size;
}

void moment_take(unsigned at, const struct piece *pieces, unsigned n) {
    if (all.used == MOMENTS_MAX || size_of(all.kept, all.kept_used) + size_of(pieces, n) > BYTES_MAX - all.bytes_used)
        return; /* the next execution repeats a little more */
    struct moment *t = &all.moment[all.used++];
    *t = (struct moment){.at = at, .written = memory_written(), .pieces = n, .begin = all.bytes_used};
    for (unsigned i = 0; i < all.kept_used; i++)
        save(&all.kept[i]);
    for (unsigned i = 0; i < n; i++) {
        t->piece[i] = pieces[i];
        save(&pieces[i]);
    }
}

int moment_last(void) { return all.used != 0 ? (int)all.moment[all.used - 1].at : MOMENT_NONE; }

bool moment_return(unsigned at) {
    while (all.used != 0 && all.moment[all.used - 1].at > at)
        all.bytes_used = all.moment[--all.used].begin;
    if (all.used == 0)
        return false;
    const struct moment *t = &all.moment[all.used - 1];
    memory_undo(t->written);
    size_t from = t->begin;
    for (unsigned i = 0; i < all.kept_used; i++)
        from = put_back(&all.kept[i], from);
    for (unsigned i = 0; i < t->pieces; i++)
        from = put_back(&t->piece[i], from);
    return true;
}

void moment_forget(void) { all.used = 0, all.bytes_used = 0; }
