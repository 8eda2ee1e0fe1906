/* See python.h. The offsets are those of CPython's own headers. */
/* SPDX-License-Identifier: MIT */
#include "observe/python.h"
#include "base/os.h"

#include <pthread.h>

struct python hak_python;

/* The interpreter's own symbols, if there is one. The function, of its stable interface, reads a thread-local
 * variable. */
extern void *PyGILState_GetThisThreadState(void) HAK_WEAK;
extern const unsigned long Py_Version HAK_WEAK; /* since 3.11 */
extern char PyIter_Send[] HAK_WEAK;             /* since 3.10 */
extern char PyThreadState_GetFrame[] HAK_WEAK;  /* since 3.9 */
extern char PyCode_Type[] HAK_WEAK;

/* Offsets in bytes. */
struct python_layout {
    uint8_t minor;
    uint8_t thread_id, frame; /* in a thread's state */
    uint8_t by_way; /* 0: `frame` is the innermost frame; else `frame` leads to a struct that has it at by_way - 1 */
    uint8_t code, previous, reached;       /* in a frame */
    uint8_t is_entry, owner;               /* in a frame, one byte each; 0: the version has none */
    uint8_t name, file, lines, first_line; /* in a code object */
    uint8_t instructions; /* in a code object: `reached` points into them; 0: `reached` counts units of `unit` bytes */
    uint8_t unit;
    uint8_t narrow, wide; /* in a string: its characters if they are ASCII, and if not */
};
// clang-format off
static const struct python_layout layouts[] = {
    /*    thread      by               reached        name      lines      instructions
     *  minor  frame  way   code prev.      entry owner    file       first     unit narrow wide */
    { 9, 176,  24,    0,     32,  24, 104,    0,    0, 112, 104, 120,  40,   0,   1,  48,  72},
    {10, 176,  24,    0,     32,  24,  96,    0,    0, 112, 104, 120,  40,   0,   2,  48,  72},
    {11, 152,  56, 1 + 8,    32,  48,  56,   68,    0, 128, 112, 136,  72, 184,   0,  48,  72},
    {12, 136,  56, 1 + 0,     0,   8,  56,    0,   70, 128, 112, 136,  68, 192,   0,  40,  56},
    {13, 152,  72,    0,      0,   8,  56,    0,   70, 128, 112, 136,  68, 200,   0,  40,  56},
};
// clang-format on
enum { INSTRUCTION_BYTES = 2, OWNER_C = 3 }; /* a frame without code, where C called */
enum { OBJECT_TYPE = 8, OBJECT_LENGTH = 16, STRING_STATE = 32, BYTES_DATA = 32 };
enum { FRAME_BYTES = 112, CODE_BYTES = 144, STRING_BYTES = 72 }; /* that we read */
enum { STRING_ASCII = 0x40, STRING_COMPACT = 0x20, STRING_KIND_SHIFT = 2, STRING_KIND = 7 };
enum { NAME_MAX_LENGTH = 500, FILE_MAX_LENGTH = 2000, LINES_MAX_BYTES = 32 << 10, CODE_PROBES = 32, READ_SHIFT = 12 };

/* Minor version of the interpreter, 3.x; 0: there is none, or it is of another kind. */
static unsigned minor_version(void) {
    if (&Py_Version != NULL)
        return Py_Version >> 24 == 3 ? Py_Version >> 16 & 255 : 0;
    if (PyIter_Send != NULL)
        return 10;
    return PyThreadState_GetFrame != NULL ? 9 : 0;
}

/* NULL: there is no interpreter, or its version is unknown. */
static const struct python_layout *layout_here(void) {
    unsigned minor = minor_version();
    if (PyGILState_GetThisThreadState == NULL)
        return NULL;
    for (unsigned i = 0; i < sizeof layouts / sizeof *layouts; i++)
        if (layouts[i].minor == minor)
            return &layouts[i];
    return NULL;
}

/* ---- memory of the interpreter ---- */

/* Can the bytes be read? Asks the kernel, unless they lie on the page that was asked for last (0: none yet). */
static bool reach(uintptr_t *page, uintptr_t at, size_t bytes) {
    uintptr_t last = (at + bytes - 1) >> READ_SHIFT;
    if (*page != 0 && at >> READ_SHIFT == *page && last == *page)
        return true;
    if (at % sizeof at != 0 || !os_readable_now(at, bytes))
        return false;
    *page = last;
    return true;
}

HAK_STRAY static uintptr_t word_at(uintptr_t at) { return *(const volatile uintptr_t *)at; }
HAK_STRAY static uint32_t number_at(uintptr_t at) { return *(const volatile uint32_t *)at; }
HAK_STRAY static uint8_t byte_at(uintptr_t at) { return *(const volatile uint8_t *)at; }

/* ---- copying a code object ---- */

struct string {
    uintptr_t at;
    size_t length;  /* in characters */
    unsigned width; /* bytes of a character */
    bool is_ascii;
};

/* The string that the object is. Empty if the object is not a string of a known form. */
static struct string string_at(const struct python_layout *l, uintptr_t object, size_t max) {
    uintptr_t page = 0;
    struct string none = {0}, s;
    if (!reach(&page, object, STRING_BYTES))
        return none;
    uint32_t state = number_at(object + STRING_STATE);
    s.width = state >> STRING_KIND_SHIFT & STRING_KIND;
    s.is_ascii = state & STRING_ASCII;
    s.length = min_size(word_at(object + OBJECT_LENGTH), max);
    s.at = object + (s.is_ascii ? l->narrow : l->wide);
    bool is_known = (state & STRING_COMPACT) && (s.width == 1 || (!s.is_ascii && (s.width == 2 || s.width == 4)));
    return is_known && reach(&page, s.at, s.length * s.width) ? s : none;
}

static size_t string_bytes_max(struct string s) { return s.length * (s.is_ascii ? 1 : s.width == 4 ? 4 : s.width + 1); }

HAK_STRAY static uint32_t character(struct string s, size_t i) {
    return s.is_ascii     ? byte_at(s.at + i) & 0x7f /* whatever it is by now: there is room for one byte */
           : s.width == 1 ? byte_at(s.at + i)
           : s.width == 2 ? *(const volatile uint16_t *)(s.at + 2 * i)
                          : number_at(s.at + 4 * i);
}

/* Writes the string as UTF-8. Returns the number of bytes. */
static size_t string_copy(char *to, struct string s) {
    static const uint8_t first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t used = 0;
    for (size_t i = 0; i < s.length; i++) {
        uint32_t c = character(s, i);
        unsigned bytes = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        to[used] = (char)(first[bytes] | (bytes == 1 ? c : c >> (6 * (bytes - 1))));
        for (unsigned b = 1; b < bytes; b++)
            to[used + b] = (char)(0x80 | (c >> (6 * (bytes - 1 - b)) & 0x3f));
        used += bytes;
    }
    return used;
}

/* Copies what the command needs, or nothing if there is no room left. */
static void learn(struct python_code *known, const struct python_layout *l, uintptr_t code) {
    uintptr_t page = 0, bytes = word_at(code + l->lines);
    struct string name = string_at(l, word_at(code + l->name), NAME_MAX_LENGTH);
    struct string file = string_at(l, word_at(code + l->file), FILE_MAX_LENGTH);
    struct string lines = {.width = 1};
    if (reach(&page, bytes, BYTES_DATA)) {
        lines.at = bytes + BYTES_DATA;
        lines.length = min_size(word_at(bytes + OBJECT_LENGTH), LINES_MAX_BYTES);
        if (!reach(&page, lines.at, lines.length))
            lines.length = 0;
    }
    size_t max = string_bytes_max(name) + string_bytes_max(file) + lines.length;
    uint64_t at = rmw_add(&hak_python.text_used, max);
    if (at + max > PYTHON_TEXT_BYTES)
        return;
    char *text = (char *)(load_relaxed(&hak_python.codes) + PYTHON_CODES) + at;
    known->name_bytes = (uint32_t)string_copy(text, name);
    known->file_bytes = (uint32_t)string_copy(text + known->name_bytes, file);
    known->lines_bytes = (uint32_t)lines.length;
    known->first_line = number_at(code + l->first_line);
    for (size_t i = 0; i < lines.length; i++)
        text[known->name_bytes + known->file_bytes + i] = (char)byte_at(lines.at + i);
    store_release(&known->text, text);
}

/* The number of a code object; PYTHON_CODES: no room. Another one at the same address has other members, so another
 * hash. */
static uint32_t number_of(const struct python_layout *l, uintptr_t code) {
    uint64_t hash = mix_bits(code ^ number_at(code + l->first_line));
    hash = mix_bits(hash + word_at(code + l->name));
    hash = mix_bits(hash + word_at(code + l->lines)) | 1;
    for (unsigned i = 0; i < CODE_PROBES; i++) {
        uint32_t number = (uint32_t)((hash >> 1) + i) % PYTHON_CODES;
        struct python_code *place = &load_relaxed(&hak_python.codes)[number];
        uint64_t found = load_relaxed(&place->hash);
        if (found == 0 && rmw_cas(&place->hash, &found, hash)) {
            learn(place, l, code);
            return number;
        }
        if (found == hash)
            return number;
    }
    return PYTHON_CODES;
}

/* ---- frames ---- */

/* The number of the instruction that the frame has reached. */
static uint32_t reached(const struct python_layout *l, uintptr_t frame, uintptr_t code) {
    intptr_t bytes = l->instructions != 0 ? (intptr_t)(word_at(frame + l->reached) - (code + l->instructions))
                                          : (intptr_t)(int32_t)number_at(frame + l->reached) * l->unit;
    return bytes >= 0 && bytes / INSTRUCTION_BYTES <= INT32_MAX ? (uint32_t)(bytes / INSTRUCTION_BYTES) : 0;
}

static bool is_entry(const struct python_layout *l, uintptr_t frame) {
    return l->instructions == 0 || (l->is_entry != 0 && byte_at(frame + l->is_entry));
}

/* The innermost frame of this thread; 0: the thread runs no Python. */
static uintptr_t innermost(const struct python_layout *l) {
    uintptr_t page = 0, state = (uintptr_t)PyGILState_GetThisThreadState();
    if (state == 0 || !reach(&page, state, l->thread_id + sizeof state) ||
        word_at(state + l->thread_id) != (uintptr_t)pthread_self())
        return 0;
    uintptr_t frame = word_at(state + l->frame);
    if (l->by_way == 0)
        return frame;
    return reach(&page, frame, l->by_way + sizeof frame) ? word_at(frame + l->by_way - 1) : 0;
}

unsigned python_capture(uintptr_t *words, unsigned max) {
    const struct python_layout *l = layout_here();
    if (l == NULL)
        return 0;
    uintptr_t frame_page = 0, code_page = 0, frame = innermost(l);
    unsigned n = 0;
    for (unsigned steps = 0; n < max && steps < 2 * PYTHON_FRAMES && reach(&frame_page, frame, FRAME_BYTES); steps++) {
        uintptr_t code = word_at(frame + l->code);
        if (l->owner != 0 && byte_at(frame + l->owner) == OWNER_C) {
            if (n > 0)
                words[n - 1] |= PYTHON_ENTRY;
        } else if (reach(&code_page, code, CODE_BYTES) && word_at(code + OBJECT_TYPE) == (uintptr_t)PyCode_Type) {
            uintptr_t number = number_of(l, code);
            if (number < PYTHON_CODES)
                words[n++] = PYTHON_FRAME | (is_entry(l, frame) ? PYTHON_ENTRY : 0) | number << PYTHON_NUMBER_SHIFT |
                             reached(l, frame, code);
        } else
            break;
        frame = word_at(frame + l->previous);
    }
    if (n > 0)
        store_relaxed(&hak_python.minor, l->minor);
    return n;
}
