/* What the other end of a stream can display; and cleaning of text from a database, so that it cannot control the
 * terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct terminal {
    bool terminal; /* the stream is a terminal */
    bool colour;   /* a terminal, NO_COLOR not set (no-color.org), TERM not "dumb"; or as --color chose */
    bool rich;     /* 256 colours */
    bool links;    /* OSC 8 links work: no pager is used, because some print the sequence */
    bool utf8;     /* the locale's character set; call setlocale(LC_CTYPE, "") first */
    int width;     /* columns: $COLUMNS, else the terminal's, else 100; 40 … 300 */
};

struct terminal terminal_of(FILE *f);
/* "always", "never", "auto" or NULL: the value of --color, for every later terminal_of. */
void terminal_choose_colour(const char *when);
/* TERM states that it cannot even return to the start of a line. */
bool terminal_is_dumb(void);

/* Escape sequences, empty if colour is off. */
enum terminal_style {
    TERMINAL_PLAIN,
    TERMINAL_BOLD,
    TERMINAL_DIM,
    TERMINAL_RED,
    TERMINAL_YELLOW,
    TERMINAL_GREEN,
    TERMINAL_CYAN
};
const char *terminal_style(const struct terminal *t, enum terminal_style style);
/* One of the 256 colours as the background of dark text; "" if the terminal lacks them. */
#define TERMINAL_SEQUENCE 32
const char *terminal_background(const struct terminal *t, int colour, char out[TERMINAL_SEQUENCE]);

const char *terminal_foreground(const struct terminal *t, int colour, char out[TERMINAL_SEQUENCE]);
/* `text` as a link to line `line` of an absolute path (OSC 8;
 * gist.github.com/egmontkob/eb114294efbcd5adb1944c9f3cb5feda), if the terminal shows links and the file exists; else
 * only `text`. At most size - 1 bytes; returns out. */
char *terminal_link(const struct terminal *t, const char *path, int line, const char *text, char *out, size_t size);

/* Copies `text` for display: control characters, introducers of escape sequences, invalid UTF-8 and marks that reorder
 * text become '?', and so does everything outside of ASCII if `utf8` is false (or its ASCII equivalent: '*' for a dot,
 * 'x', '-'). NULL reads as "". At most size-1 bytes, never part of a character. Returns out. */
char *terminal_clean(char *out, size_t size, const char *text, bool utf8);

/* Columns that cleaned text takes: characters, counting wide ones as two and combining ones as
 * none. Invalid bytes count one each. */
int terminal_columns(const char *text);
/* Bytes of `text` that fit into `columns`. */
size_t terminal_fit(const char *text, int columns);

/* Prints a shell command, `indent` columns in. If it is wider than `width`, it continues on further lines, as a shell
 * reads them: each but the last ends in a backslash, and begins with an option. */
void terminal_print_command(FILE *f, const char *command, int indent, int width);

/* Prints one cleaned line "gpuspy: …" on stderr. The analyzer reports all errors through this function. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same; returns `code`, the answer of a function that ends with a complaint. */
int complain_with(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Until it is called with NULL: stores the first complaint, cleaned and without "gpuspy: ", in `out` and discards the
 * others. For callers that print it in a line of their own. */
void complain_into(char *out, size_t size);
