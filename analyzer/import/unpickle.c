/* A stack machine, as in CPython's pickletools, which also names the opcodes. A snapshot repeats much, so equal short
 * texts, equal small dicts of texts and numbers (frames) and equal lists of dicts (call stacks) are stored once; dicts
 * that the caller takes are not stored at all. */
#include "analyzer/import/unpickle.h"

#include <endian.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "analyzer/base/arena.h"
#include "analyzer/import/unpickle_place.h"

enum { BUFFER = 1 << 18, LONGEST_TEXT = 1 << 28, LONGEST_LINE = 1 << 16, PROGRESS_EACH = 1 << 22, SHARED_TEXT = 255 };
enum { SHARED_PAIRS = 8 }; /* a frame has 3 */
enum { LEAST_GROWN = 8, MOST_SETTLED = 1024 };

struct import_pickle {
    struct arena arena;                      /* texts, heads of lists, and items of lists that never grew */
    ARENA_LIST(struct import_list *, lists); /* lists that grew */
    struct import_value root;
    bool has_more; /* another pickle follows */
};

struct text {
    uint32_t length;
    char bytes[];
};

/* A value in 8 bytes: a pointer whose lowest bits are its type. 0: not set. */
typedef uintptr_t memo_entry;
enum { MEMO_TEXT = 1, MEMO_LIST, MEMO_DICT, MEMO_VALUE, MEMO_BITS = 7 };

struct reader {
    struct import_pickle *p;
    gzFile file;
    struct import_pickle_place place;
    unsigned char buffer[BUFFER];
    size_t at, end;
    uint64_t before; /* bytes read before the buffer */
    struct import_value *stack;
    memo_entry *memo;
    size_t stack_n, stack_cap, memo_n, memo_cap;
    struct map text_index, items_index; /* hash → index in texts, in shared */
    const struct text **texts;
    struct import_list *shared; /* items of lists and dicts */
    size_t texts_n, texts_cap, shared_n, shared_cap;
    char *long_text; /* a text that does not fit in the buffer */
    size_t long_cap;
    ARENA_LIST(size_t, marks);
    size_t long_items; /* of long lists */
    size_t made;       /* lists and dicts, and the memo's other values */
    struct import_reading reading;
    uint64_t next_progress;
    char *error;
    size_t error_size;
    jmp_buf failed;
};

__attribute__((format(printf, 2, 3), noreturn)) static void fail_unpickle(struct reader *r, const char *format, ...)
{
    va_list args;
    size_t n = (size_t)snprintf(r->error, r->error_size, "at byte %llu ", (unsigned long long)(r->before + r->at));
    va_start(args, format);
    if (n < r->error_size) vsnprintf(r->error + n, r->error_size - n, format, args);
    va_end(args);
    longjmp(r->failed, 1);
}

/* False at the end of the file. */
static bool fill_more(struct reader *r)
{
    int code;
    r->before += r->end;
    r->at = r->end = 0;
    int got = gzread(r->file, r->buffer, sizeof r->buffer);
    if (got < 0) fail_unpickle(r, "it cannot be read: %s", gzerror(r->file, &code));
    r->end = import_pickle_bytes(&r->place, r->buffer, (size_t)got);
    if (r->reading.progress && r->before >= r->next_progress) {
        r->reading.progress(r->reading.self, (uint64_t)gzoffset(r->file));
        r->next_progress = r->before + PROGRESS_EACH;
    }
    return r->end > 0;
}

static void fill_unpickle(struct reader *r)
{
    int code;
    if (fill_more(r)) return;
    const char *why = gzerror(r->file, &code);
    fail_unpickle(r, "it ends in the middle%s", code == Z_OK || !*why ? "" : ": its packed data are cut");
}

static inline unsigned take_byte(struct reader *r)
{
    if (r->at == r->end) fill_unpickle(r);
    return r->buffer[r->at++];
}

static void take_pickle_bytes(struct reader *r, void *to, size_t n)
{
    for (char *at = to; n;) {
        if (r->at == r->end) fill_unpickle(r);
        size_t some = r->end - r->at < n ? r->end - r->at : n;
        memcpy(at, r->buffer + r->at, some);
        r->at += some;
        at += some;
        n -= some;
    }
}

/* From 1 to 8 bytes. */
static inline uint64_t take_little(struct reader *r, unsigned bytes)
{
    uint64_t value = 0;
    if (r->end - r->at >= sizeof value) { /* the value is in the buffer as a whole */
        memcpy(&value, r->buffer + r->at, sizeof value);
        r->at += bytes;
        return le64toh(value) & ~(uint64_t)0 >> (64 - 8 * bytes);
    }
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)take_byte(r) << 8 * i;
    return value;
}

/* A line without its end: in the buffer, or in `own` if it continues beyond it. Valid until the next byte is read. */
static const char *take_line(struct reader *r, char own[LONGEST_LINE], size_t *length)
{
    const char *line = (const char *)r->buffer + r->at, *end = memchr(line, '\n', r->end - r->at);
    size_t n = 0;
    if (end) {
        *length = (size_t)(end - line);
        r->at += *length + 1;
        return line;
    }
    for (unsigned c; (c = take_byte(r)) != '\n';) {
        if (n + 1 == LONGEST_LINE) fail_unpickle(r, "a line is too long");
        own[n++] = (char)c;
    }
    *length = n;
    return own;
}

enum { ALWAYS = 1 << 20 }; /* so many values are few */

/* Values that wait to be collected, marks, the memo's entries and lists take much more memory than the one byte that
 * each can have in the file: a packed file of some hundred KB could fill the memory of this machine. In a snapshot,
 * `each` of them has at least that many bytes on average. */
static void check_number(struct reader *r, size_t n, unsigned each)
{
    if (n >= ALWAYS && n > (r->before + r->at) / each)
        fail_unpickle(r, "it has more values than a snapshot of its size");
}

static inline void push_value(struct reader *r, struct import_value v)
{
    if (r->stack_n == r->stack_cap) check_number(r, r->stack_n, 8);
    *ARENA_ADD(r->stack) = v;
}

static struct import_value *top_value(struct reader *r)
{
    if (r->stack_n <= (r->marks_n ? r->marks[r->marks_n - 1] : 0)) fail_unpickle(r, "a value is missing");
    return &r->stack[r->stack_n - 1];
}

static struct import_value pop_value(struct reader *r)
{
    struct import_value v = *top_value(r);
    r->stack_n--;
    return v;
}

static size_t pop_mark(struct reader *r)
{
    if (!r->marks_n) fail_unpickle(r, "a mark is missing");
    return r->marks[--r->marks_n];
}

static struct import_value integer_value(int64_t value)
{
    return (struct import_value){.type = IMPORT_INT, .integer = value};
}

static void count_made(struct reader *r)
{
    if (++r->made % (1 << 20) == 0) check_number(r, r->made, 4);
}

static struct import_value new_list(struct reader *r, enum import_type type)
{
    struct import_list *list = arena_alloc(&r->p->arena, sizeof *list);
    count_made(r);
    return (struct import_value){.type = (uint8_t)type, .list = list};
}

/* Identifies a value among others of its type: dicts of equal content share their items. */
static uint64_t identity_of(const struct import_value *v)
{
    return v->type == IMPORT_DICT && v->list->items ? (uintptr_t)v->list->items : (uint64_t)v->integer;
}

static bool are_equal(const struct import_value *a, const struct import_value *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (a[i].type != b[i].type || (a[i].integer != b[i].integer && identity_of(&a[i]) != identity_of(&b[i])))
            return false;
    return true;
}

static struct import_value *own_items(struct reader *r, const struct import_value *items, size_t n)
{
    struct import_value *own = arena_alloc(&r->p->arena, n * sizeof *own);
    return memcpy(own, items, n * sizeof *own);
}

/* Shares lists of dicts and small dicts of texts and numbers, because a program executes the same lines again and
 * again. */
static bool can_be_shared(const struct import_value *items, size_t n, enum import_type type)
{
    size_t i = 0;
    if (type == IMPORT_LIST)
        while (i < n && items[i].type == IMPORT_DICT) i++;
    else if (n <= 2 * SHARED_PAIRS)
        while (i < n && (items[i].type <= IMPORT_INT || items[i].type == IMPORT_TEXT)) i++;
    return i == n;
}

/* The items of an earlier equal value, or a copy. */
static struct import_value *shared_items(struct reader *r, const struct import_value *items, size_t n,
                                         enum import_type type)
{
    uint64_t hash = n << 8 | type;
    if (!can_be_shared(items, n, type)) return own_items(r, items, n);
    for (size_t i = 0; i < n; i++)
        hash = hash * 0x9e3779b97f4a7c15u + (identity_of(&items[i]) ^ (uint64_t)items[i].type << 60);
    uint32_t *at = map_at(&r->items_index, hash);
    if (*at != MAP_NEW) {
        const struct import_list *other = &r->shared[*at];
        return other->n == n && are_equal(other->items, items, n) ? other->items : own_items(r, items, n);
    }
    *at = (uint32_t)r->shared_n;
    struct import_value *own = own_items(r, items, n);
    *ARENA_ADD(r->shared) = (struct import_list){.items = own, .n = n};
    return own;
}

/* Makes room for n items, and for half as many again as the list has. */
static void grow_stack(struct reader *r, struct import_list *list, size_t n)
{
    const struct import_value *before = list->items;
    size_t half = list->n + list->n / 2, cap = list->n + n > half ? list->n + n : half;
    cap = cap < LEAST_GROWN ? LEAST_GROWN : cap;
    if (!list->cap) {
        if (r->p->lists_n == r->p->lists_cap) check_number(r, r->p->lists_n, 64); /* see settle_items */
        *ARENA_ADD(r->p->lists) = list;
    }
    list->items = arena_realloc(list->cap ? list->items : NULL, cap, sizeof *list->items);
    if (!list->cap && list->n) memcpy(list->items, before, list->n * sizeof *before);
    list->cap = cap;
}

/* Items of a long list: a snapshot's are dicts and lists. Long lists of numbers or texts are something else that the
 * file contains: only the first of them are stored. */
static bool is_needed(struct reader *r, const struct import_value *items, size_t n)
{
    r->long_items += n;
    if (items->type <= IMPORT_TEXT) return r->long_items <= ALWAYS;
    check_number(r, r->long_items, 8);
    return true;
}

/* Most lists never grow again, unless they get their items one by one. */
static void append_values(struct reader *r, struct import_value to, const struct import_value *items, size_t n,
                          bool whole)
{
    struct import_list *list = to.list;
    if (!n) return;
    if (!list->n && list->cap) fail_unpickle(r, "a dict grows after it was complete");
    if (!list->n && whole) {
        list->items = shared_items(r, items, n, (enum import_type)to.type);
        list->n = n;
        return;
    }
    if (to.type == IMPORT_LIST && list->n >= MOST_SETTLED && !is_needed(r, items, n)) return;
    if (list->n + n > list->cap) grow_stack(r, list, n);
    memcpy(list->items + list->n, items, n * sizeof *items);
    list->n += n;
}

/* The dict is complete: offers it to the caller. */
static bool is_taken(struct reader *r, struct import_list *dict, const struct import_value *pairs, size_t n)
{
    if (!r->reading.take || !n || n > 2 * IMPORT_TAKEN_KEYS || dict->n || dict->cap) return false;
    dict->cap = r->reading.take(r->reading.taker, pairs, n / 2);
    return dict->cap != 0;
}

/* A value that got its items one by one is complete when it becomes an item itself: stores it like one that got them at
 * once. */
static void settle_items(struct reader *r, const struct import_value *v)
{
    if (v->type != IMPORT_LIST && v->type != IMPORT_DICT) return;
    struct import_list *list = v->list;
    const size_t last = r->p->lists_n - 1;
    if (!list->n || !list->cap || list->n > MOST_SETTLED || r->p->lists[last] != list) return;
    struct import_value *items = list->items;
    const size_t n = list->n;
    list->items = NULL;
    list->n = list->cap = 0;
    r->p->lists_n--;
    if (v->type != IMPORT_DICT || !is_taken(r, list, items, n)) append_values(r, *v, items, n, true);
    free(items);
}

static void settle_all(struct reader *r, size_t from)
{
    for (size_t i = r->stack_n; r->p->lists_n;) {
        const struct import_list *last = r->p->lists[r->p->lists_n - 1];
        while (i > from && r->stack[i - 1].list != last) i--;
        if (i == from) return;
        settle_items(r, &r->stack[--i]);
    }
}

static void append_from(struct reader *r, size_t from, enum import_type type, bool whole)
{
    if (from == 0 || from <= (r->marks_n ? r->marks[r->marks_n - 1] : 0) || r->stack[from - 1].type != type)
        fail_unpickle(r, "items follow a value that is not a %s", type == IMPORT_DICT ? "dict" : "list");
    struct import_value to = r->stack[from - 1];
    const size_t n = r->stack_n - from;
    if (type == IMPORT_DICT && n % 2) fail_unpickle(r, "a key has no value");
    settle_all(r, from);
    if (!(whole && type == IMPORT_DICT && is_taken(r, to.list, r->stack + from, n)))
        append_values(r, to, r->stack + from, n, whole);
    r->stack_n = from;
}

static void collect_values(struct reader *r, size_t from, enum import_type type)
{
    struct import_value list = new_list(r, type);
    const size_t n = r->stack_n - from;
    if (type == IMPORT_DICT && n % 2) fail_unpickle(r, "a key has no value");
    settle_all(r, from);
    if (!(type == IMPORT_DICT && is_taken(r, list.list, r->stack + from, n)))
        append_values(r, list, r->stack + from, n, true);
    r->stack_n = from;
    push_value(r, list);
}

static void push_last(struct reader *r, size_t n)
{
    size_t floor = r->marks_n ? r->marks[r->marks_n - 1] : 0;
    if (r->stack_n - floor < n) fail_unpickle(r, "a value is missing");
    collect_values(r, r->stack_n - n, IMPORT_LIST);
}

static const struct text *new_text(struct reader *r, const char *bytes, size_t n)
{
    struct text *text = arena_alloc(&r->p->arena, sizeof *text + n + 1);
    text->length = (uint32_t)n;
    memcpy(text->bytes, bytes, n);
    return text;
}

static void push_bytes(struct reader *r, const char *bytes, size_t n)
{
    const struct text *text = NULL;
    if (n <= SHARED_TEXT) {
        uint32_t *at = map_at(&r->text_index, map_hash_bytes(0, bytes, n));
        if (*at == MAP_NEW) {
            *at = (uint32_t)r->texts_n;
            *ARENA_ADD(r->texts) = text = new_text(r, bytes, n);
        } else if (r->texts[*at]->length == n && memcmp(r->texts[*at]->bytes, bytes, n) == 0) {
            text = r->texts[*at];
        }
    }
    if (!text) text = new_text(r, bytes, n);
    push_value(r, (struct import_value){.type = IMPORT_TEXT, .length = (uint32_t)n, .text = text->bytes});
}

static void push_text(struct reader *r, uint64_t n)
{
    if (n > LONGEST_TEXT) fail_unpickle(r, "a text of %llu bytes is too long", (unsigned long long)n);
    if (n <= r->end - r->at) {
        const char *bytes = (const char *)r->buffer + r->at;
        r->at += n;
        push_bytes(r, bytes, n);
        return;
    }
    size_t have = 0; /* grows with the bytes that the file really has */
    while (have < n) {
        size_t some = n - have < BUFFER ? (size_t)n - have : BUFFER;
        while (have + some > r->long_cap) r->long_text = arena_grow(r->long_text, r->long_cap, &r->long_cap, 1);
        take_pickle_bytes(r, r->long_text + have, some);
        have += some;
    }
    push_bytes(r, r->long_text, n);
}

/* Reads this many hexadecimal digits; false: they are none. */
static bool read_hexadecimal(const char *at, const char *end, unsigned digits, uint32_t *value)
{
    static const char all[] = "0123456789abcdef";
    *value = 0;
    if ((size_t)(end - at) < digits) return false;
    for (unsigned i = 0; i < digits; i++) {
        const char *digit = at[i] ? strchr(all, at[i] < 'a' && at[i] >= 'A' ? at[i] + ('a' - 'A') : at[i]) : NULL;
        if (!digit) return false;
        *value = *value << 4 | (uint32_t)(digit - all);
    }
    return true;
}

static char *write_utf8(char *to, uint32_t code)
{
    const unsigned more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const uint8_t first[] = {0, 0xc0, 0xe0, 0xf0};
    *to++ = (char)(first[more] | code >> 6 * more);
    for (unsigned i = more; i-- > 0;) *to++ = (char)(0x80 | (code >> 6 * i & 0x3f));
    return to;
}

/* Decodes a text of protocol 0. A str has characters beyond ASCII in Latin-1 or by number; bytes are written as repr
 * writes them. Returns the length of the result, which is at most twice that of the source. */
static size_t unescape_text(char *to, const char *at, size_t n, bool bytes)
{
    static const char named[] = "\\\\''\"\"n\nt\tr\r";
    const char *end = at + n, *begin = to;
    while (at < end) {
        const char kind = *at == '\\' && at + 1 < end ? at[1] : 0, *name = named;
        uint32_t code;
        while (*name && *name != kind) name += 2;
        if (bytes && kind == 'x' && read_hexadecimal(at + 2, end, 2, &code)) {
            *to++ = (char)code;
            at += 4;
        } else if (bytes && kind && *name) {
            *to++ = name[1];
            at += 2;
        } else if (!bytes && kind == 'u' && read_hexadecimal(at + 2, end, 4, &code)) {
            to = write_utf8(to, code);
            at += 6;
        } else if (!bytes && kind == 'U' && read_hexadecimal(at + 2, end, 8, &code) && code <= 0x10ffff) {
            to = write_utf8(to, code);
            at += 10;
        } else if (bytes) {
            *to++ = *at++;
        } else {
            to = write_utf8(to, (unsigned char)*at++);
        }
    }
    return (size_t)(to - begin);
}

static void push_line(struct reader *r, bool bytes)
{
    char own[LONGEST_LINE];
    size_t n, plain = 0;
    const char *line = take_line(r, own, &n);
    if (bytes) {
        if (n < 2 || (line[0] != '\'' && line[0] != '"') || line[n - 1] != line[0])
            fail_unpickle(r, "a text has no quotes");
        line++;
        n -= 2;
    }
    while (plain < n && line[plain] != '\\' && (signed char)line[plain] >= 0) plain++;
    if (plain < n) {
        while (2 * n > r->long_cap) r->long_text = arena_grow(r->long_text, r->long_cap, &r->long_cap, 1);
        n = unescape_text(r->long_text, line, n, bytes);
        line = r->long_text;
    }
    push_bytes(r, line, n);
}

/* Fast path: most numbers of a pickle are short and have only digits. */
static bool read_decimal_line(const char *line, size_t n, int64_t *value)
{
    *value = 0;
    if (!n || n > 18) return false;
    for (size_t i = 0; i < n; i++) {
        if (line[i] < '0' || line[i] > '9') return false;
        *value = *value * 10 + (line[i] - '0');
    }
    return true;
}

static void push_number_line(struct reader *r, bool real)
{
    char own[LONGEST_LINE], text[64], *end;
    size_t n;
    int64_t value;
    const char *line = take_line(r, own, &n);
    if (n == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1') && !real) { /* the booleans of protocol 0 */
        push_value(r, (struct import_value){.type = IMPORT_BOOL, .integer = line[1] - '0'});
        return;
    }
    if (n && line[n - 1] == 'L') n--;
    if (!real && read_decimal_line(line, n, &value)) {
        push_value(r, integer_value(value));
        return;
    }
    snprintf(text, sizeof text, "%.*s", (int)n, line); /* a truncated number is too large anyway */
    errno = 0;
    if (real) {
        push_value(r, (struct import_value){.type = IMPORT_FLOAT, .number = strtod(text, &end)});
    } else {
        long long number = strtoll(text, &end, 10);
        if (errno && *text != '-') { /* an address from 2^63 on wraps, as in binary protocols */
            errno = 0;
            number = (long long)strtoull(text, &end, 10);
        }
        push_value(r, errno ? (struct import_value){.type = IMPORT_BIG} : integer_value(number));
    }
    if (!n || *end) fail_unpickle(r, "'%.40s' is not a number", text);
}

static void push_long(struct reader *r, uint64_t n)
{
    uint64_t value = 0;
    unsigned last = 0;
    bool big = false;
    if (n > LONGEST_TEXT) fail_unpickle(r, "an integer of %llu bytes is too long", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        last = take_byte(r);
        if (i < 8) value |= (uint64_t)last << 8 * i;
        big = big || (i >= 8 && last != 0);
    }
    if (n && n < 8 && last & 0x80) value |= ~(uint64_t)0 << 8 * n;
    push_value(r, big ? (struct import_value){.type = IMPORT_BIG} : integer_value((int64_t)value));
}

static void push_double(struct reader *r)
{
    uint64_t bits = 0;
    double value;
    for (int i = 0; i < 8; i++) bits = bits << 8 | take_byte(r);
    memcpy(&value, &bits, sizeof value);
    push_value(r, (struct import_value){.type = IMPORT_FLOAT, .number = value});
}

static memo_entry memo_entry_of(struct reader *r, const struct import_value *v)
{
    struct import_value *copy;
    switch ((enum import_type)v->type) {
    case IMPORT_TEXT: return (memo_entry)(v->text - offsetof(struct text, bytes)) | MEMO_TEXT;
    case IMPORT_LIST: return (memo_entry)v->list | MEMO_LIST;
    case IMPORT_DICT: return (memo_entry)v->list | MEMO_DICT;
    default:
        count_made(r);
        copy = arena_alloc(&r->p->arena, sizeof *copy);
        *copy = *v;
        return (memo_entry)copy | MEMO_VALUE;
    }
}

static void put_memo(struct reader *r, uint64_t at)
{
    /* An index far beyond the last one is damage, and would take memory. */
    if (at > r->memo_n + (1 << 20)) fail_unpickle(r, "memo %llu is out of range", (unsigned long long)at);
    memo_entry entry = memo_entry_of(r, top_value(r));
    if (at >= r->memo_cap) check_number(r, at, 4);
    while (r->memo_n <= at) *ARENA_ADD(r->memo) = 0;
    r->memo[at] = entry;
}

static inline void get_memo(struct reader *r, uint64_t at)
{
    if (at >= r->memo_n || !r->memo[at]) fail_unpickle(r, "memo %llu is not set", (unsigned long long)at);
    const memo_entry entry = r->memo[at], pointer = entry & ~(memo_entry)MEMO_BITS;
    const struct text *text = (const struct text *)pointer;
    switch (entry & MEMO_BITS) {
    case MEMO_TEXT:
        push_value(r, (struct import_value){.type = IMPORT_TEXT, .length = text->length, .text = text->bytes});
        break;
    case MEMO_LIST:
        push_value(r, (struct import_value){.type = IMPORT_LIST, .list = (struct import_list *)pointer});
        break;
    case MEMO_DICT:
        push_value(r, (struct import_value){.type = IMPORT_DICT, .list = (struct import_list *)pointer});
        break;
    default: push_value(r, *(const struct import_value *)pointer); break;
    }
}

/* A call stack is a row of frames that were read before. */
static void get_memos(struct reader *r, unsigned code)
{
    for (bool more = true; more; r->at += more) {
        get_memo(r, take_little(r, code == 'h' ? 1 : 4));
        code = r->at < r->end ? r->buffer[r->at] : 0;
        more = code == 'h' || code == 'j';
    }
}

static uint64_t take_memo_line(struct reader *r)
{
    char own[LONGEST_LINE];
    size_t n;
    int64_t at;
    const char *line = take_line(r, own, &n);
    if (!read_decimal_line(line, n, &at)) fail_unpickle(r, "'%.*s' is not a number", (int)(n < 40 ? n : 40), line);
    return (uint64_t)at;
}

static const struct {
    unsigned char code;
    const char *name;
} refused[] = {
    {'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},     {'b', "BUILD"},        {'i', "INST"},
    {'o', "OBJ"},    {0x81, "NEWOBJ"},       {0x92, "NEWOBJ_EX"}, {'P', "PERSID"},       {'Q', "BINPERSID"},
    {0x82, "EXT1"},  {0x83, "EXT2"},         {0x84, "EXT4"},      {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
};

static void refuse_opcode(struct reader *r, unsigned code)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].code == code)
            fail_unpickle(r, "it asks Python to import or call something (%s): that is refused", refused[i].name);
    fail_unpickle(r, "0x%02x is not part of a pickle", code);
}

/* The opcodes that push a number, a text or bytes. */
static void push_literal(struct reader *r, unsigned code)
{
    switch (code) {
    case 'N': push_value(r, (struct import_value){.type = IMPORT_NONE}); break;
    case 0x88: push_value(r, (struct import_value){.type = IMPORT_BOOL, .integer = 1}); break;
    case 0x89: push_value(r, (struct import_value){.type = IMPORT_BOOL}); break;
    case 'I': /* INT */
    case 'L': push_number_line(r, false); break;
    case 'F': push_number_line(r, true); break;
    case 'J': push_value(r, integer_value((int32_t)take_little(r, 4))); break;
    case 'K': push_value(r, integer_value((int64_t)take_little(r, 1))); break;
    case 'M': push_value(r, integer_value((int64_t)take_little(r, 2))); break;
    case 0x8a: push_long(r, take_little(r, 1)); break;
    case 0x8b: push_long(r, take_little(r, 4)); break;
    case 'G': push_double(r); break;
    case 'S': push_line(r, true); break;  /* STRING */
    case 'V': push_line(r, false); break; /* UNICODE */
    case 'U':                             /* SHORT_BINSTRING */
    case 'C':                             /* SHORT_BINBYTES */
    case 0x8c: push_text(r, take_little(r, 1)); break;
    case 'T': /* BINSTRING */
    case 'B': /* BINBYTES */
    case 'X': push_text(r, take_little(r, 4)); break;
    case 0x8d:
    case 0x8e:
    case 0x96: push_text(r, take_little(r, 8)); break;
    default: refuse_opcode(r, code);
    }
}

/* False at the end of the pickle. */
static bool unpickle_step(struct reader *r, unsigned code)
{
    switch (code) {
    case 0x80: /* PROTO */
        if (take_byte(r) > 5) fail_unpickle(r, "its pickle protocol is newer than 5");
        break;
    case 0x95: take_little(r, 8); break; /* FRAME */
    case '.': return false;              /* STOP */
    case '(':
        if (r->marks_n == r->marks_cap) check_number(r, r->marks_n, 8);
        *ARENA_ADD(r->marks) = r->stack_n;
        break;
    case '0': /* POP */
        if (r->marks_n && r->marks[r->marks_n - 1] == r->stack_n)
            r->marks_n--;
        else
            pop_value(r);
        break;
    case '1': r->stack_n = pop_mark(r); break;     /* POP_MARK */
    case '2': push_value(r, *top_value(r)); break; /* DUP */
    case ']': push_value(r, new_list(r, IMPORT_LIST)); break;
    case ')': push_value(r, new_list(r, IMPORT_LIST)); break;
    case 0x8f: push_value(r, new_list(r, IMPORT_LIST)); break; /* EMPTY_SET */
    case '}': push_value(r, new_list(r, IMPORT_DICT)); break;
    case 'l':
    case 't':
    case 0x91: collect_values(r, pop_mark(r), IMPORT_LIST); break;
    case 'd': collect_values(r, pop_mark(r), IMPORT_DICT); break;
    case 0x85: push_last(r, 1); break;
    case 0x86: push_last(r, 2); break;
    case 0x87: push_last(r, 3); break;
    case 'a':
        top_value(r);
        append_from(r, r->stack_n - 1, IMPORT_LIST, false);
        break;
    case 'e':
    case 0x90: append_from(r, pop_mark(r), IMPORT_LIST, true); break; /* also for ADDITEMS */
    case 's':
        if (r->stack_n < 3) fail_unpickle(r, "a value is missing");
        append_from(r, r->stack_n - 2, IMPORT_DICT, false);
        break;
    case 'u': append_from(r, pop_mark(r), IMPORT_DICT, true); break;
    case 'p': put_memo(r, take_memo_line(r)); break;
    case 'q': put_memo(r, take_little(r, 1)); break;
    case 'r': put_memo(r, take_little(r, 4)); break;
    case 0x94: put_memo(r, r->memo_n); break; /* MEMOIZE */
    case 'g': get_memo(r, take_memo_line(r)); break;
    case 'h':
    case 'j': get_memos(r, code); break;
    default: push_literal(r, code);
    }
    return true;
}

/* Apart from setjmp, which keeps values out of registers. */
static __attribute__((noinline)) void unpickle_steps(struct reader *r)
{
    while (unpickle_step(r, take_byte(r))) continue;
}

static bool unpickle_all(struct reader *r)
{
    if (setjmp(r->failed)) return false;
    unpickle_steps(r);
    r->p->root = pop_value(r);
    r->p->has_more = (r->at < r->end || fill_more(r)) && r->buffer[r->at] == 0x80;
    return true;
}

struct import_pickle *import_unpickle(const char *path, const struct import_reading *reading, char *error,
                                      size_t error_size)
{
    struct reader *r = arena_zeroed(1, sizeof *r);
    r->p = arena_realloc(NULL, 1, sizeof *r->p);
    *r->p = (struct import_pickle){0};
    r->reading = *reading;
    r->error = error;
    r->error_size = error_size;
    r->stack = arena_grow(NULL, 0, &r->stack_cap, sizeof *r->stack); /* so that an empty stack has an address */
    r->file = gzopen(path, "rbe");
    bool ok = false;
    if (!r->file) {
        snprintf(error, error_size, "it cannot be opened: %s", strerror(errno));
    } else {
        gzbuffer(r->file, BUFFER);
        ok = unpickle_all(r);
        gzclose(r->file);
    }
    struct import_pickle *p = r->p;
    MAP_RELEASE(&r->text_index, &r->items_index);
    ARENA_RELEASE(r->stack, r->memo, r->marks, r->long_text, r->texts, r->shared, r);
    if (!ok) {
        import_unpickle_free(p);
        return NULL;
    }
    return p;
}

void import_unpickle_free(struct import_pickle *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->lists_n; i++) free(p->lists[i]->items);
    free(p->lists);
    arena_free(&p->arena);
    free(p);
}

const struct import_value *import_unpickled(const struct import_pickle *p)
{
    return &p->root;
}

bool import_unpickled_more(const struct import_pickle *p)
{
    return p->has_more;
}
