/* The sections of an estimate, in the order in which they are printed. Each prints a blank line first (except the first
 * one), and nothing if it is empty. */
#pragma once

#include "analyzer/base/units.h"
#include "analyzer/view/view_estimate.h"
#include "analyzer/view/view_text_parts.h"

void view_estimate_explain(const struct view_estimate *v);       /* lines, instead of the categories */
void view_estimate_explain_wires(const struct view_estimate *v); /* formulas and sources, below their table */
void view_estimate_bars(const struct view_estimate *v);          /* view_estimate_bar.c: GPUs and verdicts */
/* The smallest GPU on which it fits; else the smallest on which it is tight, else the smallest. */
const struct estimate_target *view_estimate_smallest(const struct view_estimate *v);
void view_estimate_solution(const struct view_estimate *v); /* view_estimate_more.c, as are the following ones */
void view_estimate_way(const struct view_estimate *v);      /* the cheapest that makes it fit */
void view_estimate_changes(const struct view_estimate *v);
void view_estimate_next(const struct view_estimate *v);
void view_estimate_wires(const struct view_estimate *v);

/* In a word or two; NULL: it does not occur, or not in this model. */
const char *view_estimate_phase(const struct view_estimate *v, int phase);

char *view_estimate_bytes(char out[UNITS_TEXT], double bytes);
/* "9.92 – 14.88 GiB"; "" where both are the same. */
enum { VIEW_RANGE = 3 * UNITS_TEXT };
char *view_estimate_range(const struct view_estimate *v, char out[VIEW_RANGE], struct estimate_interval bytes);
/* "assumed: x" as "Assumed: x."; nothing for "". */
void view_estimate_sentence(const struct view_estimate *v, int indent, const char *text);
/* Words from column `at`, wrapped; the lines after the first begin at `hang`. */
void view_estimate_wrap(const struct view_estimate *v, int hang, int at, const char *text);
/* The same for a whole line, indented by INDENT. */
void view_estimate_indented(const struct view_estimate *v, const char *text);
