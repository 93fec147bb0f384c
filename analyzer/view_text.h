/* The report for a terminal. */
#ifndef GPUSPY_VIEW_TEXT_H
#define GPUSPY_VIEW_TEXT_H

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/report.h"
#include "analyzer/term.h"

struct view_text {
    const struct gs_report *report;
    struct term term;
    FILE *out;
    size_t top;           /* rows of each list */
    bool native;          /* show native frames */
    const char *database; /* as it was typed, for the commands at the end */
};

/* Prints all of it. Write errors show in ferror(out). */
void view_text(const struct view_text *v);

#endif
