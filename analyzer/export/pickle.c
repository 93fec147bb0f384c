#include "analyzer/export/pickle.h"
#include "schema/utf8.h"

#include <stdlib.h>
#include <string.h>

/* Opcodes, as Python's pickletools names them. */
enum {
    PROTO = 0x80,
    MARK = '(',
    STOP = '.',
    EMPTY_LIST = ']',
    APPENDS = 'e',
    EMPTY_DICT = '}',
    SETITEMS = 'u',
    TUPLE2 = 0x86,
    NEWTRUE = 0x88,
    NEWFALSE = 0x89,
    LONG1 = 0x8a,
    BININT = 'J',
    BININT1 = 'K',
    BININT2 = 'M',
    SHORT_BINUNICODE = 0x8c,
    BINUNICODE = 'X',
    MEMOIZE = 0x94,
    BINGET = 'h',
    LONG_BINGET = 'j',
};

/* A reader keeps a batch on its stack; Python uses the same size. */
enum { BATCH = 1000 };

static void put_pickle_byte(struct export_pickle *p, int byte)
{
    putc_unlocked(byte, p->out);
}

static void put_uint(struct export_pickle *p, uint64_t value, int bytes)
{
    for (; bytes > 0; bytes--, value >>= 8) put_pickle_byte(p, (int)(value & 0xff));
}

/* Call it before a value is written: in a list it is an item. */
static void begin_item(struct export_pickle *p)
{
    if (!p->depth || !p->open[p->depth - 1].list) return;
    unsigned *n = &p->open[p->depth - 1].in_batch;
    if (*n == BATCH) {
        put_pickle_byte(p, APPENDS);
        *n = 0;
    }
    if (!(*n)++) put_pickle_byte(p, MARK);
}

void export_pickle_start(struct export_pickle *p, FILE *out)
{
    *p = (struct export_pickle){.out = out};
    put_pickle_byte(p, PROTO);
    put_pickle_byte(p, 4);
}

void export_pickle_finish(struct export_pickle *p)
{
    put_pickle_byte(p, STOP);
    texts_free(&p->texts);
    free(p->memos);
    p->memos = NULL;
}

static void begin_collection(struct export_pickle *p, bool list)
{
    begin_item(p);
    put_pickle_byte(p, list ? EMPTY_LIST : EMPTY_DICT);
    p->open[p->depth].list = list;
    p->open[p->depth].in_batch = 0;
    p->depth++;
}

void export_pickle_list(struct export_pickle *p)
{
    begin_collection(p, true);
}

void export_pickle_dict(struct export_pickle *p)
{
    begin_collection(p, false);
}

void export_pickle_end(struct export_pickle *p)
{
    p->depth--;
    if (p->open[p->depth].in_batch) put_pickle_byte(p, p->open[p->depth].list ? APPENDS : SETITEMS);
}

void export_pickle_pair(struct export_pickle *p)
{
    put_pickle_byte(p, TUPLE2);
}

/* Two's complement with the fewest bytes that keep the sign. */
static void put_long(struct export_pickle *p, uint64_t value, bool negative)
{
    int bytes = 8;
    uint64_t fill = negative ? 0xff : 0;
    while (bytes > 1 && value >> (8 * (bytes - 1)) == fill && (value >> (8 * (bytes - 2)) & 0x80) == (fill & 0x80)) {
        bytes--;
        value &= ~(uint64_t)0 >> (64 - 8 * bytes);
    }
    bool ninth = !negative && bytes == 8 && value >> 63;
    put_pickle_byte(p, LONG1);
    put_pickle_byte(p, bytes + ninth);
    put_uint(p, value, bytes);
    if (ninth) put_pickle_byte(p, 0);
}

void export_pickle_int(struct export_pickle *p, int64_t value)
{
    begin_item(p);
    if (value >= 0 && value <= 0xff) {
        put_pickle_byte(p, BININT1);
        put_uint(p, (uint64_t)value, 1);
    } else if (value >= 0 && value <= 0xffff) {
        put_pickle_byte(p, BININT2);
        put_uint(p, (uint64_t)value, 2);
    } else if (value >= INT32_MIN && value <= INT32_MAX) {
        put_pickle_byte(p, BININT);
        put_uint(p, (uint64_t)value, 4);
    } else {
        put_long(p, (uint64_t)value, value < 0);
    }
}

void export_pickle_address(struct export_pickle *p, uint64_t value)
{
    if (value <= INT64_MAX) {
        export_pickle_int(p, (int64_t)value);
    } else {
        begin_item(p);
        put_long(p, value, false);
    }
}

void export_pickle_bool(struct export_pickle *p, bool value)
{
    begin_item(p);
    put_pickle_byte(p, value ? NEWTRUE : NEWFALSE);
}

static void put_pickle_text(struct export_pickle *p, const char *text, size_t bytes)
{
    put_pickle_byte(p, bytes < 256 ? SHORT_BINUNICODE : BINUNICODE);
    put_uint(p, bytes, bytes < 256 ? 1 : 4);
    for (size_t i = 0; i < bytes;) {
        size_t n = gs_utf8_decode(text + i, bytes - i, NULL);
        if (n)
            fwrite_unlocked(text + i, 1, n, p->out);
        else
            put_pickle_byte(p, '?');
        i += n ? n : 1;
    }
}

static void put_again(struct export_pickle *p, uint32_t memo)
{
    put_pickle_byte(p, memo < 256 ? BINGET : LONG_BINGET);
    put_uint(p, memo, memo < 256 ? 1 : 4);
}

uint32_t export_pickle_memo(struct export_pickle *p)
{
    put_pickle_byte(p, MEMOIZE);
    return p->memo_n++;
}

void export_pickle_again(struct export_pickle *p, uint32_t memo)
{
    begin_item(p);
    put_again(p, memo);
}

static void write_pickle_text(struct export_pickle *p, const char *text, struct export_pickle_text *near)
{
    const size_t bytes = strlen(text), known = p->texts.n;
    const uint32_t number = texts_number(&p->texts, text, bytes);
    if (number < known) {
        put_again(p, p->memos[number]);
    } else {
        put_pickle_text(p, text, bytes);
        *ARENA_ADD(p->memos) = export_pickle_memo(p);
    }
    *near = (struct export_pickle_text){text, p->memos[number]};
}

static void text_value(struct export_pickle *p, const char *text)
{
    struct export_pickle_text *near = &p->near[((uintptr_t)text ^ (uintptr_t)text >> 8) % PICKLE_NEAR];
    if (near->text == text)
        put_again(p, near->memo);
    else
        write_pickle_text(p, text, near);
}

void export_pickle_text(struct export_pickle *p, const char *text)
{
    begin_item(p);
    text_value(p, text ? text : "");
}

void export_pickle_key(struct export_pickle *p, const char *key)
{
    if (!p->open[p->depth - 1].in_batch++) put_pickle_byte(p, MARK);
    text_value(p, key);
}
