/* The tables that inspect.h describes. */
/* SPDX-License-Identifier: MIT */
#include "observe/inspect.h"
#include "base/options.h"
#include "base/os.h"
#include "blocks/block.h"
#include "blocks/kinds.h"
#include "hakmem.h"
#include "heap/ring.h"
#include "learn/tuner.h"
#include "mesh/meshed.h"
#include "observe/profile.h"
#include "observe/python.h"
#include "process/presence.h"
#include "secure/secure_block.h"
#include "secure/secure_span.h"
#include "space/arena_record.h"

// clang-format off
/* F(struct, field) */
#define FIELDS(F) \
F(region, base) F(region, slabs) F(region, key) F(region, rows) F(region, upper) F(region, packs) F(region, tables) \
F(region, heaps_max) F(region, superslabs_max) F(region, window) \
F(region_use, frontier) F(region_use, superslabs) \
F(slab, owner) F(slab, inbox) F(slab, free_blocks) F(slab, class_id) F(slab, kind) F(slab, slots) \
F(slab, first_offset) F(slab, tiny.list) F(slab, tiny.countdown) F(slab, tiny.check_after) F(slab, tiny.floor) \
F(slab, tiny.carved) F(slab, tiny.place) F(slab, tiny.purged_pages) F(slab, tiny.purged_blocks) \
F(slab, tiny.page_flags) F(slab, tiny.closed_index) F(meshed, map) \
F(slab, mid.start) F(slab, mid.block_bytes) F(slab, mid.blocks) F(slab, mid.state) F(slab, mid.secure) \
F(slab, single.bytes) F(slab, single.state) F(slab, single.lead_bytes) F(slab, single.span_slots) \
F(pack, free) F(pack, begins) F(pack, ends) \
F(superslab, word) F(superslab, changed_ms) F(superslab, lazy) F(superslab, huge) F(superslab, arena) \
F(arena_table, chunk) F(arena_table, made) F(arena, handle) F(arena, name) \
F(arena, limit_slots) F(arena, slots) F(arena, peak_slots) F(arena, superslabs) \
F(superslab_row, superslab) F(secure_span, held) \
F(heap, list) F(heap, current) F(heap, fresh) F(heap, deferred) F(heap, owned.slabs) F(heap, lent.slabs) \
F(heap, outbox) F(heap, ring) F(heap, client) F(heap, number) F(heap, purge_seen) F(heap, in_use) F(heap, next) \
F(heap, sampled) F(sampler_class, rest) \
F(client, counters) F(client, arena) F(heap, ledger) F(ledger_row, blocks) F(ledger_row, misses) \
F(outbox_entry, slab) F(outbox_entry, blocks) \
F(ring, held_and_popped) F(ring, block_kib) \
F(size_class, block_bytes) F(size_class, blocks) F(size_class, slots) \
F(option_entry, name) F(option_entry, initial) F(option_entry, min) F(option_entry, max) F(option_entry, choices) \
F(option_entry, help) F(option_entry, kind) F(option_entry, when) \
F(tunables, word) F(tunables, of_class) \
F(tuner_seen, rounds) F(tuner_seen, in_use) F(tuner_seen, best) F(tuner_seen, switches) F(tuner_seen, changes) \
F(tuner_seen, ns) F(tuner_seen, saved.cpu_ns) F(tuner_seen, saved.kept) F(tuner_seen, within.cpu_ns) \
F(tuner_seen, within.kept) F(tuner_seen, possible.cpu_ns) F(tuner_seen, possible.kept) \
F(tuner_seen, elo) F(tuner_seen, deviation) F(tuner_seen, cost_us) \
F(fork_page, purger) F(asked, wanted_bytes) F(asked, requests) F(asked, purge_wanted) \
F(profile, dropped) F(profile, mark) F(profile, stacks) \
F(profile, stacks_used) F(profile, samples) F(profile, levels_used) \
F(profile_sample, address) F(profile_sample, bytes) F(profile_sample, estimated_bytes) \
F(profile_sample, estimated_objects) \
F(profile_sample, stack) F(profile_sample, birth_ms) \
F(profile, arenas) F(profile_arena, name) F(profile_stack, arena) F(profile_stack, depth) F(profile_stack, allocated) \
F(profile_stack, freed) F(profile_stack, kept_mark) F(profile_stack, kept_bytes) F(profile_stack, kept_objects) \
F(profile_stack, lifetimes) F(profile_stack, callers) \
F(profile_total, estimated_bytes) F(profile_total, estimated_objects) \
F(python, codes) F(python, minor) F(python_code, text) F(python_code, name_bytes) F(python_code, file_bytes) \
F(python_code, lines_bytes) F(python_code, first_line)

#define SIZES(S) \
S(region) S(region_use) S(slab) S(superslab) S(superslab_row) S(arena_table) S(arena) S(heap) S(ledger_row) \
S(tuner_seen) S(outbox_entry) S(size_class) S(option_entry) S(inspect) S(profile_stack) S(profile_arena) \
S(profile_sample) S(python_code) S(meshed) S(pack) S(sampler_class)

#define CONSTANTS(C) \
C(SLOT_BYTES) C(SUPERSLAB_BYTES) C(SUPERSLAB_SLOTS) C(TINY_CLASSES) C(MID_CLASSES) C(CLASSES) C(LARGE_SLOTS_MAX) \
C(RING_CLASSES) \
C(KIND_FREE) C(KIND_TINY) C(KIND_MID) C(KIND_LARGE) C(KIND_HUGE) C(KIND_PACKED) C(KIND_GUARD_PAGE) \
C(KIND_SECURE_SMALL) C(KIND_SECURE_LARGE) C(KIND_MESHED) C(KIND_IN_ARENA) \
C(OWNER_ON_LOAN) C(PLACE_CURRENT) C(PLACE_FRESH) C(PLACE_OWNED) C(PLACE_USABLE) \
C(STATE_FREED) C(STATE_SLACK) C(CANARY_BYTES) C(BLOCK_FREE) C(BLOCK_LIVE) C(BLOCK_CACHED) C(BLOCK_STATE) \
C(BLOCK_LAZY) C(PAGES_LAZY) C(HUGE_NONE) C(HUGE_WHOLE) C(HUGE_SPLIT) \
C(RING_HELD_BITS) C(OUTBOX_ENTRIES) C(HEAP_BYTES) C(HEAP_NONE) C(COUNTER_COUNT) C(OPTION_COUNT) C(TUNABLE_COUNT) \
C(CLASS_TUNABLE_COUNT) C(TUNED_CLASSES) C(PRESET_COUNT) C(HAK_IS_CHECKED) \
C(OPTION_NUMBER) C(OPTION_BYTES) C(OPTION_CHOICE) C(OPTION_TEXT) C(START) C(LIVE) \
C(PURGER_NONE) C(PURGER_RUNS) C(PURGER_PARKED) \
C(PROFILE_SAMPLES_MIN) C(SPAN_LINE_BYTES) C(SPAN_STATES_LINE) C(SPAN_LINES) C(OPTION_TEXT_BYTES) \
C(ARENAS_IN_CHUNK) C(ARENA_CHUNKS) C(PROFILE_CALLERS) C(PROFILE_LIFETIMES) C(PROFILE_STACKS) C(PROFILE_ARENAS) \
C(PYTHON_CODES) C(PIECE_BYTES)

static const struct inspect_fact facts[] = {
#define FIELD(type, field) {#type "." #field, offsetof(struct type, field), sizeof((struct type *)0)->field},
    FIELDS(FIELD) /* NOLINT(bugprone-sizeof-expression): sizes of pointers, too */
#undef FIELD
#define SIZE(type) {"sizeof " #type, sizeof(struct type), 0},
    SIZES(SIZE)
#undef SIZE
#define CONSTANT(name) {#name, name, 0},
    CONSTANTS(CONSTANT)
#undef CONSTANT
};

static const char version[] = HAKMEM_VERSION;

static const struct inspect_place places[] = {
    {"version", version},
    {"page_bytes", &os_page_bytes_known},
    {"region", &hak_region},
    {"region_use", &hak_region_use},
    {"heap_newest", &heap_newest_made},
    {"fork_page", &hak_presence.page},
    {"size_classes", size_classes},
    {"counter_names", counter_names},
    {"counter_help", counter_help},
    {"option_table", option_table},
    {"start_options", &start_options},
    {"live_options", live_options},
    {"option_texts", option_texts},
    {"ledger_ended", hak_ledger_ended},
    {"ring_hits_ended", hak_ring_hits_ended},
    {"tunable_table", tunable_table},
    {"tunables", &hak_tunables},
    {"tunable_ranges", tunable_ranges},
    {"ace", &hak_tuner},
    {"preset_names", preset_names},
    {"asked", &hak_asked},
    {"profile", &hak_profile},
    {"python", &hak_python},
    {"arenas", &hak_arenas},
    {"span_table", &span_table_made},
    {"meshed", &meshed_table_made},
};
// clang-format on

/* HAK_KEPT: the note below names it. */
HAK_KEPT struct inspect hak_inspect = {
    .magic = "hakmem inspect",
    .version = INSPECT_VERSION,
    .facts_count = sizeof facts / sizeof facts[0],
    .places_count = sizeof places / sizeof places[0],
    .facts = facts,
    .places = places,
};

/* The note: sizes of name and descriptor, type, name, and the descriptor. */
__asm__(".pushsection .note.hakmem, \"a\", %note\n"
        ".balign 4\n"
        ".long 7, 8, 1\n"
        ".asciz \"HAKMEM\"\n"
        ".balign 4\n"
        "1: .quad hak_inspect - 1b\n"
        ".popsection\n");
