/* A stack machine, as in CPython's pickletools, which also names the opcodes. Values are 16 bytes; a list that many
 * hold is one, so that a text or a stack that a pickle names a million times is there once. */
#include "analyzer/import/unpickle.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "analyzer/base/arena.h"

enum { BUFFER = 1 << 18, LONGEST_TEXT = 1 << 28, LONGEST_LINE = 1 << 16, PROGRESS_EACH = 1 << 22 };

struct import_pickle {
    struct arena arena; /* texts and heads of lists */
    struct import_list **lists;
    size_t lists_n, lists_cap;
    struct import_value root;
};

struct reader {
    struct import_pickle *p;
    gzFile file;
    unsigned char buffer[BUFFER];
    size_t at, end;
    uint64_t before; /* bytes read before the buffer */
    struct import_value *stack, *memo;
    size_t stack_n, stack_cap, memo_n, memo_cap;
    char *long_text; /* one that does not lie in the buffer */
    size_t long_cap;
    size_t *marks;
    size_t marks_n, marks_cap;
    import_progress_fn progress;
    void *self;
    uint64_t next_progress;
    char *error;
    size_t error_size;
    jmp_buf failed;
};

__attribute__((format(printf, 2, 3), noreturn)) static void fail(struct reader *r, const char *format, ...)
{
    va_list args;
    size_t n = (size_t)snprintf(r->error, r->error_size, "at byte %llu ", (unsigned long long)(r->before + r->at));
    va_start(args, format);
    if (n < r->error_size) vsnprintf(r->error + n, r->error_size - n, format, args);
    va_end(args);
    longjmp(r->failed, 1);
}

/* --- bytes ------------------------------------------------------------------------------------- */

static void fill(struct reader *r)
{
    int code;
    r->before += r->end;
    r->at = r->end = 0;
    int got = gzread(r->file, r->buffer, sizeof r->buffer);
    if (got < 0) fail(r, "it cannot be read: %s", gzerror(r->file, &code));
    if (got == 0) {
        const char *why = gzerror(r->file, &code);
        fail(r, "it ends in the middle%s", code == Z_OK || !*why ? "" : ": its packed data are cut");
    }
    r->end = (size_t)got;
    if (r->progress && r->before >= r->next_progress) {
        r->progress(r->self, (uint64_t)gzoffset(r->file));
        r->next_progress = r->before + PROGRESS_EACH;
    }
}

static inline unsigned take_byte(struct reader *r)
{
    if (r->at == r->end) fill(r);
    return r->buffer[r->at++];
}

static void take(struct reader *r, void *to, size_t n)
{
    for (char *at = to; n;) {
        if (r->at == r->end) fill(r);
        size_t some = r->end - r->at < n ? r->end - r->at : n;
        memcpy(at, r->buffer + r->at, some);
        r->at += some;
        at += some;
        n -= some;
    }
}

static uint64_t take_little(struct reader *r, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++) value |= (uint64_t)take_byte(r) << 8 * i;
    return value;
}

static size_t take_line(struct reader *r, char *line)
{
    size_t n = 0;
    for (unsigned c; (c = take_byte(r)) != '\n';) {
        if (n + 1 == LONGEST_LINE) fail(r, "a line is too long");
        line[n++] = (char)c;
    }
    line[n] = 0;
    return n;
}

/* --- the stack --------------------------------------------------------------------------------- */

static inline void push(struct reader *r, struct import_value v)
{
    *ARENA_PUSH(r->stack, r->stack_n, r->stack_cap) = v;
}

static struct import_value *top(struct reader *r)
{
    if (r->stack_n <= (r->marks_n ? r->marks[r->marks_n - 1] : 0)) fail(r, "a value is missing");
    return &r->stack[r->stack_n - 1];
}

static struct import_value pop(struct reader *r)
{
    struct import_value v = *top(r);
    r->stack_n--;
    return v;
}

static size_t pop_mark(struct reader *r)
{
    if (!r->marks_n) fail(r, "a mark is missing");
    return r->marks[--r->marks_n];
}

static struct import_value integer(int64_t value)
{
    return (struct import_value){.type = IMPORT_INT, .integer = value};
}

static struct import_value new_list(struct reader *r, enum import_type type)
{
    struct import_list *list = arena_alloc(&r->p->arena, sizeof *list);
    *list = (struct import_list){0};
    *ARENA_PUSH(r->p->lists, r->p->lists_n, r->p->lists_cap) = list;
    return (struct import_value){.type = (uint8_t)type, .list = list};
}

/* Most lists never grow again: room for just what comes, and by half more after that. */
static void append(struct import_list *list, const struct import_value *items, size_t n)
{
    if (list->n + n > list->cap) {
        size_t half = list->cap + list->cap / 2;
        list->cap = list->n + n > half ? list->n + n : half;
        list->items = arena_realloc(list->items, list->cap, sizeof *list->items);
    }
    if (n) memcpy(list->items + list->n, items, n * sizeof *items);
    list->n += n;
}

static void append_from(struct reader *r, size_t from, enum import_type type)
{
    if (from == 0 || from <= (r->marks_n ? r->marks[r->marks_n - 1] : 0) || r->stack[from - 1].type != type)
        fail(r, "items follow what is no %s", type == IMPORT_DICT ? "dict" : "list");
    if (type == IMPORT_DICT && (r->stack_n - from) % 2) fail(r, "a key has no value");
    if (r->stack_n > from) append(r->stack[from - 1].list, r->stack + from, r->stack_n - from);
    r->stack_n = from;
}

static void collect(struct reader *r, size_t from, enum import_type type)
{
    struct import_value list = new_list(r, type);
    if (type == IMPORT_DICT && (r->stack_n - from) % 2) fail(r, "a key has no value");
    if (r->stack_n > from) append(list.list, r->stack + from, r->stack_n - from);
    r->stack_n = from;
    push(r, list);
}

static void push_last(struct reader *r, size_t n)
{
    size_t floor = r->marks_n ? r->marks[r->marks_n - 1] : 0;
    if (r->stack_n - floor < n) fail(r, "a value is missing");
    collect(r, r->stack_n - n, IMPORT_LIST);
}

/* --- values ------------------------------------------------------------------------------------ */

static void push_text(struct reader *r, uint64_t n)
{
    if (n > LONGEST_TEXT) fail(r, "a text of %llu bytes is too long", (unsigned long long)n);
    char *text = NULL;
    if (n <= r->end - r->at) {
        text = arena_alloc(&r->p->arena, n + 1);
        memcpy(text, r->buffer + r->at, n);
        r->at += n;
    } else { /* only as much as there is, whatever the file says */
        size_t have = 0;
        while (have < n) {
            size_t some = n - have < BUFFER ? (size_t)n - have : BUFFER;
            unsigned char part[BUFFER];
            take(r, part, some);
            while (have + some > r->long_cap) r->long_text = arena_grow(r->long_text, r->long_cap, &r->long_cap, 1);
            memcpy(r->long_text + have, part, some);
            have += some;
        }
        text = arena_alloc(&r->p->arena, n + 1);
        memcpy(text, r->long_text, n);
    }
    text[n] = 0;
    push(r, (struct import_value){.type = IMPORT_TEXT, .length = (uint32_t)n, .text = text});
}

static void push_line(struct reader *r, bool quoted)
{
    char line[LONGEST_LINE];
    size_t n = take_line(r, line), from = 0;
    if (quoted) { /* repr of bytes: escapes stay as they are */
        if (n < 2 || (line[0] != '\'' && line[0] != '"') || line[n - 1] != line[0]) fail(r, "a text has no quotes");
        from = 1;
        n -= 2;
    }
    char *text = arena_alloc(&r->p->arena, n + 1);
    memcpy(text, line + from, n);
    text[n] = 0;
    push(r, (struct import_value){.type = IMPORT_TEXT, .length = (uint32_t)n, .text = text});
}

static void push_number_line(struct reader *r, bool real)
{
    char line[LONGEST_LINE], *end;
    size_t n = take_line(r, line);
    if (n && line[n - 1] == 'L') line[--n] = 0;
    if (n == 2 && line[0] == '0' && (line[1] == '0' || line[1] == '1') && !real) { /* protocol 0's booleans */
        push(r, (struct import_value){.type = IMPORT_BOOL, .integer = line[1] - '0'});
        return;
    }
    errno = 0;
    if (real) {
        push(r, (struct import_value){.type = IMPORT_FLOAT, .number = strtod(line, &end)});
    } else {
        long long value = strtoll(line, &end, 10);
        push(r, errno ? (struct import_value){.type = IMPORT_BIG} : integer(value));
    }
    if (!n || *end) fail(r, "'%.40s' is no number", line);
}

static void push_long(struct reader *r, uint64_t n)
{
    uint64_t value = 0;
    unsigned last = 0;
    bool big = false;
    if (n > LONGEST_TEXT) fail(r, "an integer of %llu bytes is too long", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        last = take_byte(r);
        if (i < 8) value |= (uint64_t)last << 8 * i;
        big = big || (i >= 8 && last != 0);
    }
    if (n && n < 8 && last & 0x80) value |= ~(uint64_t)0 << 8 * n;
    push(r, big ? (struct import_value){.type = IMPORT_BIG} : integer((int64_t)value));
}

static void push_double(struct reader *r)
{
    uint64_t bits = 0;
    double value;
    for (int i = 0; i < 8; i++) bits = bits << 8 | take_byte(r);
    memcpy(&value, &bits, sizeof value);
    push(r, (struct import_value){.type = IMPORT_FLOAT, .number = value});
}

static void put_memo(struct reader *r, uint64_t at)
{
    /* What no number before it leads to makes no sense, and would take memory. */
    if (at > r->memo_n + (1 << 20)) fail(r, "memo %llu is out of range", (unsigned long long)at);
    struct import_value v = *top(r);
    while (r->memo_n <= at) *ARENA_PUSH(r->memo, r->memo_n, r->memo_cap) = (struct import_value){.type = UINT8_MAX};
    r->memo[at] = v;
}

static void get_memo(struct reader *r, uint64_t at)
{
    if (at >= r->memo_n || r->memo[at].type == UINT8_MAX) fail(r, "memo %llu is not set", (unsigned long long)at);
    push(r, r->memo[at]);
}

static uint64_t take_memo_line(struct reader *r)
{
    char line[LONGEST_LINE], *end;
    take_line(r, line);
    uint64_t at = strtoull(line, &end, 10);
    if (end == line || *end) fail(r, "'%.40s' is no number", line);
    return at;
}

static const struct {
    unsigned char code;
    const char *name;
} refused[] = {
    {'c', "GLOBAL"}, {0x93, "STACK_GLOBAL"}, {'R', "REDUCE"},     {'b', "BUILD"},        {'i', "INST"},
    {'o', "OBJ"},    {0x81, "NEWOBJ"},       {0x92, "NEWOBJ_EX"}, {'P', "PERSID"},       {'Q', "BINPERSID"},
    {0x82, "EXT1"},  {0x83, "EXT2"},         {0x84, "EXT4"},      {0x97, "NEXT_BUFFER"}, {0x98, "READONLY_BUFFER"},
};

static void refuse(struct reader *r, unsigned code)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].code == code)
            fail(r, "it asks Python to import or call something (%s): that is refused", refused[i].name);
    fail(r, "0x%02x is no part of a pickle", code);
}

/* False at the end. */
static bool step(struct reader *r, unsigned code)
{
    switch (code) {
    case 0x80: /* PROTO */
        if (take_byte(r) > 5) fail(r, "its pickle protocol is newer than 5");
        break;
    case 0x95: take_little(r, 8); break; /* FRAME */
    case '.': return false;              /* STOP */
    case '(': *ARENA_PUSH(r->marks, r->marks_n, r->marks_cap) = r->stack_n; break;
    case '0': /* POP */
        if (r->marks_n && r->marks[r->marks_n - 1] == r->stack_n)
            r->marks_n--;
        else
            pop(r);
        break;
    case '1': r->stack_n = pop_mark(r); break; /* POP_MARK */
    case '2': push(r, *top(r)); break;         /* DUP */
    case 'N': push(r, (struct import_value){.type = IMPORT_NONE}); break;
    case 0x88: push(r, (struct import_value){.type = IMPORT_BOOL, .integer = 1}); break;
    case 0x89: push(r, (struct import_value){.type = IMPORT_BOOL}); break;
    case 'I': /* INT */
    case 'L': push_number_line(r, false); break;
    case 'F': push_number_line(r, true); break;
    case 'J': push(r, integer((int32_t)take_little(r, 4))); break;
    case 'K': push(r, integer((int64_t)take_little(r, 1))); break;
    case 'M': push(r, integer((int64_t)take_little(r, 2))); break;
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
    case ']': push(r, new_list(r, IMPORT_LIST)); break;
    case ')': push(r, new_list(r, IMPORT_LIST)); break;
    case 0x8f: push(r, new_list(r, IMPORT_LIST)); break; /* EMPTY_SET */
    case '}': push(r, new_list(r, IMPORT_DICT)); break;
    case 'l':
    case 't':
    case 0x91: collect(r, pop_mark(r), IMPORT_LIST); break;
    case 'd': collect(r, pop_mark(r), IMPORT_DICT); break;
    case 0x85: push_last(r, 1); break;
    case 0x86: push_last(r, 2); break;
    case 0x87: push_last(r, 3); break;
    case 'a':
        top(r);
        append_from(r, r->stack_n - 1, IMPORT_LIST);
        break;
    case 'e':
    case 0x90: append_from(r, pop_mark(r), IMPORT_LIST); break; /* and ADDITEMS */
    case 's':
        if (r->stack_n < 3) fail(r, "a value is missing");
        append_from(r, r->stack_n - 2, IMPORT_DICT);
        break;
    case 'u': append_from(r, pop_mark(r), IMPORT_DICT); break;
    case 'p': put_memo(r, take_memo_line(r)); break;
    case 'q': put_memo(r, take_little(r, 1)); break;
    case 'r': put_memo(r, take_little(r, 4)); break;
    case 0x94: put_memo(r, r->memo_n); break; /* MEMOIZE */
    case 'g': get_memo(r, take_memo_line(r)); break;
    case 'h': get_memo(r, take_little(r, 1)); break;
    case 'j': get_memo(r, take_little(r, 4)); break;
    default: refuse(r, code);
    }
    return true;
}

static bool read_all(struct reader *r)
{
    if (setjmp(r->failed)) return false;
    while (step(r, take_byte(r))) continue;
    r->p->root = pop(r);
    return true;
}

struct import_pickle *import_unpickle(const char *path, import_progress_fn progress, void *self, char *error,
                                      size_t error_size)
{
    struct reader *r = arena_realloc(NULL, 1, sizeof *r);
    memset(r, 0, sizeof *r);
    r->p = arena_realloc(NULL, 1, sizeof *r->p);
    *r->p = (struct import_pickle){0};
    r->progress = progress;
    r->self = self;
    r->error = error;
    r->error_size = error_size;
    r->file = gzopen(path, "rbe");
    bool ok = false;
    if (!r->file) {
        snprintf(error, error_size, "it cannot be opened: %s", strerror(errno));
    } else {
        gzbuffer(r->file, BUFFER);
        ok = read_all(r);
        gzclose(r->file);
    }
    struct import_pickle *p = r->p;
    free(r->stack);
    free(r->memo);
    free(r->marks);
    free(r->long_text);
    free(r);
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

/* --- asking ------------------------------------------------------------------------------------ */

const struct import_value *import_member(const struct import_value *dict, const char *key)
{
    if (!dict || dict->type != IMPORT_DICT) return NULL;
    size_t n = strlen(key);
    for (size_t i = dict->list->n; i >= 2; i -= 2) {
        const struct import_value *k = &dict->list->items[i - 2];
        if (k->type == IMPORT_TEXT && k->length == n && memcmp(k->text, key, n) == 0) return k + 1;
    }
    return NULL;
}

size_t import_count(const struct import_value *list)
{
    return list && list->type == IMPORT_LIST ? list->list->n : 0;
}

const struct import_value *import_item(const struct import_value *list, size_t i)
{
    return &list->list->items[i];
}

int64_t import_integer(const struct import_value *v, int64_t otherwise)
{
    return v && (v->type == IMPORT_INT || v->type == IMPORT_BOOL) ? v->integer : otherwise;
}

const char *import_text(const struct import_value *v)
{
    return v && v->type == IMPORT_TEXT ? v->text : NULL;
}
