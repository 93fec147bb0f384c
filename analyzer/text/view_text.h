/* The report for a terminal. */
#ifndef GPUSPY_VIEW_TEXT_H
#define GPUSPY_VIEW_TEXT_H

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/report/report.h"
#include "analyzer/base/term.h"

enum view_section {
#define SECTION(name, word, function, json) VIEW_##name,
#include "analyzer/text/sections.def"
#undef SECTION
};

/* "run|oom|…" for the option that chooses. */
extern const char view_section_words[];

struct view_text {
    const struct gs_report *report;
    struct term term;
    FILE *out;
    uint64_t only;        /* 1 << VIEW_…: these sections; 0: all of them */
    size_t top;           /* rows of each list */
    bool native;          /* show native frames */
    bool paths;           /* show the call paths of each line */
    const char *database; /* as it was typed, for the commands at the end */
};

/* Prints it. Write errors show in ferror(out). */
void view_text(const struct view_text *v);
bool view_shows(const struct view_text *v, enum view_section section);
/* Is this key of the JSON report in one of these sections? */
bool view_section_key(uint64_t only, const char *key);

#endif
