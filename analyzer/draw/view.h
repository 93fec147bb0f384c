/* What the views for a terminal draw with: headings, wrapped words, call sites, call paths. */
#ifndef GPUSPY_DRAW_VIEW_H
#define GPUSPY_DRAW_VIEW_H

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/result/result.h"

#define INDENT 2

struct view_text {
    const struct gs_report *report;
    struct term term;
    FILE *out;
    uint64_t only;        /* 1 << VIEW_… (view_text.h): these sections; 0: all of them */
    size_t top;           /* rows of each list */
    bool native;          /* show native frames */
    bool paths;           /* show the call paths of each line */
    const char *database; /* as it was typed, for the commands at the end */
};

/* A heading: "Waiting for the GPU", then plain text. */
void view_heading(const struct view_text *v, enum term_style style, const char *title, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void view_title(const struct view_text *v, enum term_style style, const char *title);
/* Words, wrapped to the width, the lines after the first under the first word. */
void view_wrap(const struct view_text *v, int indent, const char *mark, const char *text);
/* The same where `at` columns of the line are written; the lines after it are indented by `hang`. */
void view_wrap_on(const struct view_text *v, int hang, int at, const char *text);
/* The same in a style, indented by INDENT. */
void view_styled(const struct view_text *v, enum term_style style, const char *text);
/* "Cause   a leak: …": a word in a column of its own, and words, wrapped. */
#define VIEW_LABEL 8
void view_label(const struct view_text *v, enum term_style style, const char *label, const char *text);
/* "train.py:34  step", at most `columns` wide. */
char *view_site(const struct view_text *v, char *out, size_t size, const struct gs_site *site, int columns);
/* The same of a frame. */
char *view_frame(const struct view_text *v, char *out, size_t size, const struct gs_frame *frame, int columns);
/* A table whose items are sites. */
void view_site_cell(const void *view, const void *site, char *out, size_t size, int columns);
#define SITES(v) .last = view_site_cell, .self = (v)
/* The largest call paths of a line, one a line of text: all that are listed with --paths, else only where the line
 * calls into libraries, which tell its parts apart. Allocated; NULL none. */
char *view_paths(const struct view_text *v, const struct gs_paths *paths, int indent);
/* The frames of a stack, one a line, indented; allocated, NULL where there is nothing to add. Python
 * frames only, unless there are none or native ones were asked for. */
char *view_trace(const struct view_text *v, const struct gs_trace *trace, int indent);
/* "and 12 more: --top 20 shows them" */
void view_more(const struct view_text *v, size_t total, size_t shown);
const char *view_layer(enum gs_series_layer layer); /* for people: "tensors" */
/* "GPU 0", with the process where the run has several. */
char *view_place(const struct view_text *v, char *out, size_t size, uint32_t process, int device,
                 enum gs_series_layer layer);
char *view_bytes(char *out, int64_t bytes); /* UNITS_TEXT; "?" unknown */

#endif
