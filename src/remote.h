/* Remote frees: blocks freed into a slab that another heap owns.
 *
 *  1. They gather in the heap's outbox, entries of one slab each, and travel as a batch: one compare-and-swap puts the whole
 *     chain into the slab's inbox. An entry is sent when it is long enough, when another slab needs its place, at the
 *     thread's end, every DRAIN_INTERVAL frees, and by the purger when the thread sleeps.
 *  2. An inbox belongs to the slab, not to a heap, so it goes along when the slab changes hands: nothing is forwarded. Its
 *     word holds the number of blocks and the newest's place; links lead to older ones.
 *  3. The owner empties it when it refills. A sender that finds the slab without owner adopts it and empties it if that costs
 *     its heap no other slab, or has it on loan if it frees in bulk (slab.h). Else the blocks wait in the inbox, until the
 *     slab is worth using, when it goes on offer, or all its blocks are back. A thread that allocates, too, or is alone,
 *     adopts at its first free there, without a detour through the outbox.
 *  4. Anybody may empty it, by exchange: its blocks count as out, so they can be handed out again without touching the
 *     slab. Well-filled inboxes are on offer for that, so a sleeping owner hoards nothing.
 *
 * Pushing one, taking all: no ABA. A push pairs with the exchange, for the blocks' links. */
/* SPDX-License-Identifier: MIT */
#ifndef HAK_REMOTE_H
#define HAK_REMOTE_H

#include "slab.h"

/* Frees a block whose slab this heap does not own (it may have no owner). */
void remote_free(struct heap *h, struct slab *s, uintptr_t block);
/* Sends everything. */
void outbox_flush(struct heap *h);
/* The same of another thread's heap, between caches_freeze and caches_thaw. */
void outbox_send(struct heap *h, struct heap *from);
/* Puts one block into the inbox without a heap: when there is no memory for one. */
void inbox_push_one(struct slab *s, uintptr_t block);
/* How many blocks wait. */
unsigned inbox_waiting(const struct slab *s);
/* Owner: frees the inbox's blocks into the slab. True if that emptied the slab and it is gone. */
bool inbox_drain(struct heap *h, struct slab *s);
/* Has the heap's thread gathered blocks of the slab? Then it may be the purger that sends them, into the inbox. */
bool outbox_may_have(const struct heap *h, const struct slab *s);

/* A block that looks free: is it? Looks into all lists it may be in, also those of other threads, while they change: a true
 * answer is right; a wrong false one takes a free of the block by another thread at this very moment. */
bool block_is_listed(const struct slab *s, uintptr_t block);
/* Who freed a block that is listed; h is the caller's. */
enum freer block_freer(const struct heap *h, const struct slab *s, uintptr_t block);
/* Anybody: takes all blocks; a chain that ends in the slab's terminator, or the terminator alone. *blocks: how many. */
uintptr_t inbox_take(struct slab *s, unsigned *blocks);

#endif
