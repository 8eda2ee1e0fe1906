/* See policy.h. */
/* SPDX-License-Identifier: MIT */
#include "arena/policy.h"
#include "arena/lane.h"
#include "base/options.h"
#include "base/os.h"
#include "base/scratch.h"
#include "base/text.h"
#include "observe/cfi.h"
#include "process/tunables.h"

#include <errno.h>
#include <string.h>

enum {
    LINES_MAX = 4096,
    FRAMES_MAX = 5,              /* of a line */
    CHAIN_MAX = FRAMES_MAX + 3,  /* with those of this library */
    ID_DIGITS = 16,              /* of the build id: the first half, enough to tell modules apart */
    PROBES = 8,                  /* entries in which a key may be */
    STEPS_MAX = 240,             /* places of wrappers with different frames */
    FRAME_BYTES_MAX = 64 * 1024, /* of a function that calls malloc by a wrapper: else the step was wrong */
};

struct place {
    uint64_t id, offset;
};
struct line {
    union {
        struct place frame[FRAMES_MAX];
        struct setting setting;
    };
    uint8_t frames; /* 0: the line has a setting */
    uint8_t policy;
};

/* Where a function continues, and what its stack and frame pointers are then. */
struct caller {
    uintptr_t code, stack, frame;
};
/* How to find the caller of a frame. */
struct step {
    uint8_t
        frame_words; /* from the caller's frame pointer up to the CFA; 0: the frame pointer is still in its register */
    bool from_frame; /* the CFA is so far above the frame pointer, not the stack pointer */
    uint16_t cfa_bytes;
};
_Static_assert(sizeof(struct step) == sizeof(uint32_t), "one word");

/* Written by policy_start, constant afterwards. */
static struct line *lines;
static unsigned line_count;
HAK_APART _Atomic uint64_t policy_cache[1 << POLICY_CACHE_BITS];
/* struct step, by number - POLICIES; 0: unused. Any thread. A step is there before an entry has its number: both are
 * relaxed, so a thread that sees the entry first reads 0, which policy_step refuses. */
static HAK_APART _Atomic uint32_t steps[STEPS_MAX];

/* ---- the file ---- */

static int hex_value(char c) {
    const char *digits = "0123456789abcdef", *at = c != '\0' ? strchr(digits, c) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static const char *parse_place(const char *at, struct place *place) {
    unsigned digits = 0;
    *place = (struct place){0, 0};
    for (int value; (value = hex_value(*at)) >= 0; at++, digits++)
        if (digits < ID_DIGITS)
            place->id = place->id << 4 | (uint64_t)value;
    if (digits < ID_DIGITS || strncmp(at, "+0x", 3) != 0)
        return NULL;
    at += 3;
    for (int value; (value = hex_value(*at)) >= 0; at++)
        place->offset = place->offset << 4 | (uint64_t)value;
    return place->offset != 0 ? at : NULL;
}

static const char *skip_blanks(const char *at) { return at + strspn(at, " \t\r"); }

static const char *parse_policy(const char *at, uint8_t *policy) {
    size_t length = strcspn(at, " \t\r#");
    for (unsigned p = 0; p < POLICIES; p++)
        if (strlen(lane_names[p]) == length && memcmp(at, lane_names[p], length) == 0) {
            *policy = (uint8_t)p;
            return skip_blanks(at + length);
        }
    return NULL;
}

/* `set NAME=VALUE`. */
static const char *parse_setting(const char *at) {
    size_t length = strcspn(at, " \t\r#"), rest = strspn(at + length, " \t\r");
    if (at[length + rest] != '\0' && at[length + rest] != '#')
        return "longer than one setting";
    switch (setting_parse(at, length, &lines[line_count].setting)) {
    case 0: break;
    case ENOENT: return "no setting: there is no such option or tunable";
    case EPERM: return "no setting for a file: the environment sets this option";
    default: return "no setting: the value does not fit";
    }
    lines[line_count++].frames = 0;
    return NULL;
}

/* NULL, or what is wrong with the line. */
static const char *parse_line(const char *at) {
    struct line *line = &lines[line_count];
    at = skip_blanks(at);
    if (*at == '\0' || *at == '#')
        return NULL;
    if (line_count == LINES_MAX)
        return "one line too many";
    if (strncmp(at, "set", 3) == 0 && (at[3] == ' ' || at[3] == '\t'))
        return parse_setting(skip_blanks(at + 3));
    if ((at = parse_policy(at, &line->policy)) == NULL)
        return "no policy, such as long-lived, and no setting";
    for (line->frames = 0; *at != '\0' && *at != '#'; at = skip_blanks(at), line->frames++) {
        if (line->frames == FRAMES_MAX)
            return "longer than five frames";
        if ((at = parse_place(at, &line->frame[line->frames])) == NULL)
            return "not BUILDID+0xOFFSET";
    }
    line_count += line->frames != 0;
    return line->frames != 0 ? NULL : "without a call site";
}

/* Parses the whole lines of a piece. Returns its bytes that were used up; 0: a line is wrong. */
static size_t parse_piece(char *piece, size_t bytes, unsigned *number, const char **error) {
    size_t used = 0;
    for (char *end; (end = memchr(piece + used, '\n', bytes - used)) != NULL; used = (size_t)(end - piece) + 1) {
        *end = '\0';
        bool is_header = ++*number == 1;
        if (is_header && strcmp(piece, "hakmem policy 1") != 0)
            *error = "not \"hakmem policy 1\"";
        else if (!is_header)
            *error = parse_line(piece + used);
        if (*error != NULL)
            return 0;
    }
    if (used == 0)
        ++*number, *error = bytes == SCRATCH_BYTES ? "too long" : "without an end";
    return used;
}

static const char *read_lines(int fd, char *scratch, unsigned *number) {
    const char *error = NULL;
    size_t bytes, used;
    for (uint64_t place = 0; (bytes = os_read_at(fd, scratch, SCRATCH_BYTES, place)) != 0; place += used)
        if ((used = parse_piece(scratch, bytes, number, &error)) == 0)
            return error;
    return NULL;
}

static struct line *map_lines(void) {
    size_t bytes = round_up((LINES_MAX + 1) * sizeof(struct line), os_page_bytes());
    return os_map(OS_MEMORY, NULL, bytes);
}

/* Returns whether there are call sites. */
static bool apply_settings(void) {
    bool sites = false;
    for (unsigned i = 0; i < line_count; i++) {
        sites |= lines[i].frames != 0;
        if (lines[i].frames == 0)
            setting_apply(&lines[i].setting);
    }
    return sites;
}

HAK_AT_START bool policy_start(void) {
    const char *path = option_text(OPT_POLICY);
    if (*path == '\0' || !option(OPT_SUPERSLAB))
        return false;
    int fd = os_open_input(path);
    char *scratch = scratch_take();
    unsigned number = 0;
    const char *error = NULL;
    if (fd >= 0 && scratch != NULL && (lines = map_lines()) != NULL)
        error = read_lines(fd, scratch, &number);
    bool tells = (fd < 0 || error != NULL) && option_may_complain(OPT_POLICY);
    if (fd < 0 && tells)
        text_line("hakmem: HAKMEM_POLICY=%s cannot be read", path);
    if (error != NULL && tells)
        text_line("hakmem: HAKMEM_POLICY=%s has no effect: line %u is %s", path, (uint64_t)number, error);
    if (fd >= 0)
        os_close(fd);
    if (scratch != NULL)
        scratch_give(scratch);
    return error == NULL && apply_settings();
}

/* ---- who called, looked up for the first time ---- */

/* Whether that is code of this library, and not of a program that it is a part of. */
static bool is_own(const struct os_module *m) {
    uintptr_t here = (uintptr_t)&policy_of;
    return here >= m->begin && here < m->end && m->path != NULL && m->path[0] != '\0';
}

static struct place place_of(const struct os_module *m, uintptr_t code) {
    struct os_build_id id;
    struct place place = {0, code - m->base};
    if (os_build_id(m, &id))
        for (unsigned i = 0; i < ID_DIGITS / 2 && i < id.count; i++)
            place.id = place.id << 8 | id.bytes[i];
    return place;
}

/* Do the line and the places agree, as far as both go? */
static bool matches(const struct line *line, const struct place *places, unsigned n) {
    for (unsigned i = 0; i < line->frames && i < n; i++)
        if (line->frame[i].id != places[i].id || line->frame[i].offset != places[i].offset)
            return false;
    return true;
}

/* The policy of the longest line that the places begin with. *deeper: a line has more frames than are known. */
static unsigned find_policy(const struct place *places, unsigned n, bool *deeper) {
    unsigned policy = HAK_POLICY_DEFAULT, frames = 0;
    for (unsigned i = 0; i < line_count; i++) {
        if (!matches(&lines[i], places, n))
            continue;
        *deeper |= lines[i].frames > n;
        if (lines[i].frames <= n && lines[i].frames > frames) {
            frames = lines[i].frames;
            policy = lines[i].policy;
        }
    }
    return policy;
}

static unsigned number_of(struct step step) {
    uint32_t word;
    memcpy(&word, &step, sizeof word);
    for (unsigned i = 0; i < STEPS_MAX; i++) {
        uint32_t there = load_relaxed(&steps[i]);
        if (there == word || (there == 0 && (rmw_cas(&steps[i], &there, word) || there == word)))
            return POLICIES + i;
    }
    return POLICY_UNKNOWN;
}

/* POLICY_UNKNOWN: the unwind table has no simple answer. */
static unsigned find_step(const struct os_module *m, uintptr_t code) {
    struct cfi cfi;
    union cfi_packed row;
    if (RETURN_WORDS == 0 || !cfi_find(m, code - 1, &cfi) || !cfi_pack(&cfi, &row))
        return POLICY_UNKNOWN;
    bool from_frame = row.byte[PACKED_CFA_REGISTER] == REGISTER_FRAME;
    intptr_t bytes = packed_cfa_offset(&row);
    uint8_t frame_words = row.byte[FRAME_AMONG_SAVED];
    if ((!from_frame && row.byte[PACKED_CFA_REGISTER] != REGISTER_STACK) || bytes <= 0 || bytes > UINT16_MAX ||
        row.byte[PACKED_RETURN] != RETURN_WORDS || frame_words == PACKED_UNDEFINED)
        return POLICY_UNKNOWN;
    return number_of((struct step){frame_words, from_frame, (uint16_t)bytes});
}

HAK_NOINLINE static unsigned look_up(const uintptr_t *chain, unsigned n) {
    struct os_module m;
    struct place places[CHAIN_MAX];
    unsigned own = 0;
    for (unsigned i = 0; i < n; i++) {
        if (!os_find_module(chain[i] - 1, &m))
            return HAK_POLICY_DEFAULT;
        own += own == i && is_own(&m);
        places[i] = place_of(&m, chain[i]);
    }
    bool deeper = own == n;
    unsigned policy = find_policy(places + own, n - own, &deeper);
    unsigned step = deeper && n < CHAIN_MAX ? find_step(&m, chain[n - 1]) : POLICY_UNKNOWN;
    return step != POLICY_UNKNOWN ? step : policy;
}

/* ---- the cache ---- */

static _Atomic uint64_t *entry_of(uint64_t key, unsigned probe) {
    return &policy_cache[(policy_index(key) + probe) % (1 << POLICY_CACHE_BITS)];
}

/* The entry is not the first one where it may be. */
HAK_NOINLINE static unsigned find_else(uint64_t key, const uintptr_t *chain, unsigned n) {
    _Atomic uint64_t *free_entry = entry_of(key, 0);
    for (unsigned i = 0; i < PROBES; i++) {
        uint64_t entry = load_relaxed(entry_of(key, i));
        if (entry >> 8 == key)
            return entry & 255;
        if (entry == 0) {
            free_entry = entry_of(key, i);
            break;
        }
    }
    unsigned found = look_up(chain, n);
    store_relaxed(free_entry, key << 8 | found);
    return found;
}

/* What a chain of addresses is cached by: the first one by itself, longer ones with a bit that no address has. */
HAK_INLINE uint64_t key_with(uint64_t key, uintptr_t code) {
    return ((key * 0x9e3779b97f4a7c15u >> 9) ^ code) | (uint64_t)1 << 55;
}

/* Goes on to the caller of the caller. False: that cannot be. */
HAK_STRAY static bool policy_step(struct caller *c, unsigned number) {
    uint32_t word = load_relaxed(&steps[number]);
    struct step step;
    memcpy(&step, &word, sizeof step);
    uintptr_t cfa = (step.from_frame ? c->frame : c->stack) + step.cfa_bytes;
    if (cfa <= c->stack || cfa - c->stack > FRAME_BYTES_MAX || cfa % sizeof cfa != 0)
        return false;
    /* The code may be of a library that took the place of another, with smaller frames, and the stack end before. */
    uintptr_t last = cfa - sizeof cfa;
    if (last >> OS_PAGE_SHIFT != c->stack >> OS_PAGE_SHIFT && !os_readable(last, sizeof last))
        return false;
    const uintptr_t *words = (const uintptr_t *)cfa; /* NOLINT: an address on this thread's stack */
    if (step.frame_words != 0)
        c->frame = words[-(ptrdiff_t)step.frame_words];
    c->stack = cfa;
    c->code = words[-1];
    return true;
}

unsigned policy_of(const uintptr_t *frame) {
    struct caller c = {code_address(frame[1]), (uintptr_t)(frame + 2), frame[0]};
    uintptr_t chain[CHAIN_MAX];
    uint64_t key = c.code;
    for (unsigned n = 1; n <= CHAIN_MAX; n++) {
        chain[n - 1] = c.code;
        unsigned found = policy_cached(key);
        if (unlikely(found == POLICY_UNKNOWN))
            found = find_else(key, chain, n);
        if (likely(found < POLICIES))
            return found;
        if (!policy_step(&c, found - POLICIES))
            return HAK_POLICY_DEFAULT;
        key = key_with(key, c.code);
    }
    return HAK_POLICY_DEFAULT;
}
