/* What the views for a terminal draw with: headings, wrapped words, call sites, call paths. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/result/result.h"

#define INDENT 2

/* What to leave out if the screen is too small: each value includes those before it. */
enum draw_shorter {
    DRAW_WHOLE,
    DRAW_NO_CHARTS,
    DRAW_NO_REMARKS,   /* about block sizes */
    DRAW_FEW_COMMANDS, /* at the end */
    DRAW_NO_REASONS,   /* for naming a statement that keeps memory */
    DRAW_FEW_PARTS,    /* of the device's memory */
    DRAW_ONE_SOURCE_LINE,
    DRAW_ONE_ADVICE,
    DRAW_ONE_COMMAND,
    DRAW_NO_HOLDERS,   /* that the advice names */
    DRAW_LARGEST_LINE, /* of the device's memory: only that of the largest part */
    DRAW_SHORTEST = DRAW_LARGEST_LINE,
};

struct draw_text {
    const struct result_report *report;
    struct terminal term;
    FILE *out;
    uint64_t only;             /* 1 << VIEW_… (view_text.h): these sections; 0: all of them */
    size_t top;                /* rows of each list */
    bool native;               /* show native frames */
    bool brief;                /* the report in one screen; without --full */
    enum draw_shorter shorter; /* how much is left out because the screen is too small */
    bool paths;                /* show the call paths of each line */
    const char *database;      /* as it was typed, for the commands at the end */
};

/* A heading below an empty line: "Waiting for the GPU", then plain text. */
void draw_heading(const struct draw_text *v, enum terminal_style style, const char *title, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same for the beginning of the output, without the empty line. */
void draw_first_heading(const struct draw_text *v, enum terminal_style style, const char *title, const char *format,
                        ...) __attribute__((format(printf, 4, 5)));
/* " after 3.54 s" for figures that cover only the part of a bounded recording that has every event; "" for a full
 * recording. */
#define DRAW_SINCE 64
char *draw_since(const struct draw_text *v, char out[DRAW_SINCE]);
char *draw_growth_since(const struct draw_text *v, char out[DRAW_SINCE]);
void draw_title(const struct draw_text *v, enum terminal_style style, const char *title);
/* Text, wrapped to the width; later lines are aligned with the first word. */
void draw_wrap(const struct draw_text *v, int indent, const char *mark, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* The same in a style, indented by INDENT. */
void draw_styled(const struct draw_text *v, enum terminal_style style, const char *text);
/* "Cause   a leak: …": a label in a column of its own, then wrapped text. */
#define DRAW_LABEL 8
void draw_label(const struct draw_text *v, enum terminal_style style, const char *label, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* "train.py:34  step", at most `columns` wide. */
char *draw_site(const struct draw_text *v, char *out, size_t size, const struct result_site *site, int columns);
char *draw_frame(const struct draw_text *v, char *out, size_t size, const struct run_frame *frame, int columns);
/* `text`, which draw_site made, for a terminal: the user's own lines are coloured links, the rest is dim. */
char *draw_styled_site(const struct draw_text *v, const struct result_site *site, const char *text, char *out,
                       size_t size);
/* A table whose items are sites. */
void draw_site_cell(const void *view, const void *site, char *out, size_t size, int columns);
#define SITES(v) .last = draw_site_cell, .self = (v)
/* The largest call paths of a line, each on a line of text: all listed ones with --paths, else only if the line calls
 * into libraries, which distinguish its parts. The caller frees it; NULL: none. */
char *draw_paths(const struct draw_text *v, const struct result_paths *paths, int indent);
/* The frames of a stack, each on an indented line; the caller frees it; NULL: nothing to add. Only Python frames,
 * unless there are none or native ones were requested. */
char *draw_trace(const struct draw_text *v, uint32_t stack, int indent);
/* "and 12 more: --top 20 shows them" */
void draw_more(const struct draw_text *v, size_t total, size_t shown);
const char *draw_layer_word(enum run_series_layer layer); /* for people: "tensors" */
/* "GPU 0", with the process if the run has several. */
char *draw_device(const struct draw_text *v, char *out, size_t size, uint32_t process, int device,
                  enum run_series_layer layer);
char *draw_bytes(char out[UNITS_TEXT], int64_t bytes); /* "?" unknown */
#define DRAW_BYTES(n) draw_bytes((char[UNITS_TEXT]){0}, n)
/* "at 1.2 s", or "from the start" for memory that was allocated before another tool's recording began. */
char *draw_moment(const struct draw_text *v, char *out, size_t size, const struct result_peak *p);
