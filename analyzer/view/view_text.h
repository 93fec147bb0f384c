/* The report for a terminal. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/draw/view.h"
#include "analyzer/report/report.h"

enum view_section {
#define SECTION(name, word, function, json, questions, brief) VIEW_##name,
#include "analyzer/view/sections.def"
};

/* "oom|peak|…" for the option --only. */
extern const char view_section_words[];

enum { VIEW_BRIEF_LINES = 40 }; /* of a report with `brief`: a terminal's height */
#define VIEW_WAITS_WORTH 0.1    /* of the run's time: shorter waits come after other advice */
/* The head of the first failed allocation: the request, the cause, what to do; nothing if none failed. */
void view_text_failure(const struct draw_text *v);
/* Prints it. Write errors show in ferror(out). */
void view_text(const struct draw_text *v);
static inline bool view_shows(const struct draw_text *v, enum view_section section)
{
    return !v->only || v->only >> section & 1;
}
/* Is this key of the JSON report in one of these sections? */
bool view_section_key(uint64_t only, const char *key);
/* The questions (run_options.questions) that these sections show; 0: all. */
uint64_t view_section_questions(uint64_t only);
