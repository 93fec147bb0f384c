/* What the other end of a stream can show, and keeping text from a database from driving it. */
#ifndef GPUSPY_TERM_H
#define GPUSPY_TERM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct term {
    bool colour; /* a terminal, NO_COLOR not set (no-color.org), TERM not "dumb" */
    bool utf8;   /* the locale's character set; call setlocale(LC_CTYPE, "") first */
    int width;   /* columns: the terminal's, else $COLUMNS, else 100; 60 … 200 */
};

struct term term_of(FILE *f);

/* Escape sequences, empty where colour is off. */
enum term_style { TERM_PLAIN, TERM_BOLD, TERM_DIM, TERM_RED, TERM_YELLOW, TERM_GREEN, TERM_CYAN };
const char *term_style(const struct term *t, enum term_style style);

/* Copies `text` for display: control characters, escape sequences' introducers, invalid UTF-8 and
 * marks that reorder text become '?', and so does everything that is not ASCII where `utf8` is
 * false. NULL reads as "". At most size-1 bytes, never half a character. Returns out. */
char *term_clean(char *out, size_t size, const char *text, bool utf8);

/* Columns that cleaned text takes: characters, counting wide ones as two and combining ones as
 * none. Invalid bytes count one each. */
int term_columns(const char *text);
/* Bytes of `text` that fit into `columns`. */
size_t term_fit(const char *text, int columns);

/* One line "gpuspy: …" on stderr, cleaned. The only way in which the analyzer complains. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
