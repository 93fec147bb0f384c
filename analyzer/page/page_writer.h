/* Writes a page's data: JSON inside of an HTML element. Nothing in a string can end the element, and all of it is valid
 * UTF-8. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/each_argument.h"

enum {
    PAGE_BYTES = 9500000, /* of a page, at most */
    PAGE_TEXT = 2048,     /* longer texts are cut in the middle, with an ellipsis */
    PAGE_TEXTS = 4 << 20, /* once the texts have this many bytes in total … */
    PAGE_TEXT_LESS = 96,  /* … they are cut to this */
};

/* Signed numbers as text, for columns of thousands of them: five bits per character, lowest first, plus 32 if more
 * follow; the number's lowest bit is its sign. */
struct page_column {
    char *text; /* not terminated */
    size_t n, cap;
    int64_t last; /* of page_column_step */
};
void page_column_grow(struct page_column *c);
void page_column_free(struct page_column *c);
uint64_t page_column_divide(uint64_t a, uint64_t b); /* their greatest common divisor */

static inline void page_column_add(struct page_column *c, int64_t value)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    enum { MOST = 16 };
    if (c->cap - c->n < MOST) page_column_grow(c);
    const uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    char *to = c->text + c->n;
    /* the sign takes the first digit's lowest bit */
    unsigned digit = (unsigned)(size & 15) << 1 | (value < 0);
    for (uint64_t left = size >> 4; left; left >>= 5) {
        *to++ = digits[digit | 32];
        digit = left & 31;
    }
    *to++ = digits[digit];
    c->n = (size_t)(to - c->text);
}

/* The difference from the previous value. */
static inline void page_column_step(struct page_column *c, int64_t value)
{
    page_column_add(c, (int64_t)((uint64_t)value - (uint64_t)c->last));
    c->last = value;
}

/* The largest number that divides `unit` and the value without its sign; 0 divides into all. A column whose values are
 * divided by it is shorter. Nearly all values are multiples of the unit, and most units are powers of two. */
static inline uint64_t page_column_unit(uint64_t unit, int64_t value)
{
    const uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value, low = unit - 1;
    return unit && !(unit & low) && !(size & low) ? unit : page_column_divide(unit, size);
}

/* Of a multiple of the unit, without a division where possible: that costs as much as writing the number. */
static inline int64_t page_column_quotient(int64_t value, uint64_t unit)
{
    return unit & (unit - 1) ? value / (int64_t)unit : value >> __builtin_ctzll(unit);
}

struct page_writer {
    FILE *out;              /* NULL: what is written is kept */
    ARENA_LIST(char, kept); /* not terminated */
    bool follows;           /* an element was written before, in this array or object */
    uint64_t cut;           /* texts that were cut */
    size_t text_bytes;      /* bytes of texts written */
    size_t text_most;       /* if texts must be shorter still; or 0 */
    size_t bytes;           /* bytes written in total */
};
void page_put_bytes(struct page_writer *w, const char *bytes, size_t n);
/* key NULL: an element of an array. */
void page_put_open(struct page_writer *w, const char *key, char bracket);
void page_put_close(struct page_writer *w, char bracket);
void page_put_text(struct page_writer *w, const char *key, const char *text); /* NULL: null */
void page_put_int(struct page_writer *w, const char *key, int64_t value);     /* RUN_UNKNOWN: null */
void page_put_real(struct page_writer *w, const char *key, double value);     /* not finite: null */
void page_put_bool(struct page_writer *w, const char *key, bool value);
void page_put_column(struct page_writer *w, const char *key, struct page_column *c); /* frees it */
/* The columns of these names: variables, or members of *of. */
#define PAGE_PUT_COLUMN(w, unused, name) page_put_column(w, #name, &name);
#define PAGE_PUT_COLUMN_OF(w, of, name) page_put_column(w, #name, &(of)->name);
#define PAGE_PUT_COLUMNS(w, ...) EACH_ARGUMENT(PAGE_PUT_COLUMN, w, , __VA_ARGS__)
#define PAGE_PUT_COLUMNS_OF(w, of, ...) EACH_ARGUMENT(PAGE_PUT_COLUMN_OF, w, of, __VA_ARGS__)
/* Only the key: the value is written next. */
void page_put_key(struct page_writer *w, const char *key);
/* The text itself, in quotes. */
void page_put_string(struct page_writer *w, const char *text);
/* Writes a page from `from` up to a mark, which the page has; returns what follows the mark. */
const char *page_put_up_to(const char *from, const char *mark, FILE *out);
/* The maximum length of the next text, and the length of this one; as bytes written, without quotes. */
size_t page_text_most(const struct page_writer *w);
size_t page_text_bytes(const char *text);
