/* Declarations that the parts of the screen share; view.c lays them out. */
#pragma once

#include "analyzer/base/units.h"
#include "analyzer/top/view.h"

enum { TOP_LINE = 2048 };

/* A line while it is built: its width is known although it contains escape sequences. */
struct top_line {
    const struct top_view *v;
    FILE *out;
    int at; /* columns */
};

/* Adds a text, without characters that would move the cursor, cut at the end of the screen. */
void top_put(struct top_line *l, enum terminal_style style, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void top_finish(struct top_line *l);
/* A paragraph that ends its line; lines after the first begin `hang` columns in. */
void top_words(struct top_line *l, int hang, enum terminal_style style, const char *text);
/* As units_format_bytes; negative values print as 0. */
char *top_bytes(char out[UNITS_TEXT], int64_t bytes);
/* "1.2k": a rate in few columns. */
char *top_rate(char out[UNITS_TEXT], double rate);
#define TOP_BYTES(n) top_bytes((char[UNITS_TEXT]){0}, n)
#define TOP_RATE(n) top_rate((char[UNITS_TEXT]){0}, n)
char *top_site_text(const struct top_view *v, char *out, size_t size, const struct result_site *site, int columns);

static inline int64_t top_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t top_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void top_title_line(struct top_line *l);
/* A process and its devices; brief: one line per device. */
void top_source_block(struct top_line *l, uint32_t source, bool brief);
/* One line if there are processes that are not recorded; all of them, in `room` lines (0: any). */
void top_users_line(struct top_line *l);
void top_users_part(struct top_line *l, int room);
/* The chosen table in `room` lines; sets the fields of the view that a table determines. */
void top_table_part(struct top_line *l, int room);
