/* The sections of the report for a terminal, in the order in which they are printed. Each prints a blank line first,
 * and nothing if it is empty. */
#pragma once

#include "analyzer/base/text_table.h"
#include "analyzer/view/view_text.h"

void view_text_warnings(const struct draw_text *v); /* what is missing: always, and first */
void view_text_run(const struct draw_text *v);      /* command, time, steps, devices */
void view_text_steps(const struct draw_text *v);    /* the program's steps, a line */
void view_text_verdict(const struct draw_text *v);  /* out of memory, or not */
/* The OOM that is printed, if `p` is the peak that led to it: little changed between the two, and statements about one
 * need not be repeated for the other. NULL: it is not. */
const struct result_oom_verdict *view_oom_at_peak(const struct draw_text *v, const struct result_peak *p);
/* The source around the lines of a verdict, and the statement that seems to keep the memory (view_text_source.c). */
void view_text_source(const struct draw_text *v, const struct result_oom_verdict *o);
/* What held the device then; nothing if unknown. */
void view_text_waterfall(const struct draw_text *v, const struct result_oom_verdict *o);
void view_text_ranks(const struct draw_text *v);  /* several processes side by side (view_text_rank.c) */
void view_text_memory(const struct draw_text *v); /* peaks by device */
/* Lines of a device: pending frees, streams, private pools, if any. */
void view_text_allocator(const struct draw_text *v, uint32_t process, int device);
void view_text_flushes(const struct draw_text *v); /* empty_cache in a loop */
void view_text_waits(const struct draw_text *v);   /* synchronisation */
void view_text_transfers(const struct draw_text *v);
void view_text_marks(const struct draw_text *v);  /* the program's own ranges */
void view_text_scopes(const struct draw_text *v); /* the peak within each of them */
/* One line for the other views: "Peaks of NVTX ranges: load 1.20 GiB, train 3.40 GiB; gpuspy COMMAND", after a blank
 * one; nothing without ranges. The peaks are of one layer; `device` -1: of any. */
void view_scope_line(const struct draw_text *v, const struct result_report *r, enum run_series_layer layer, int device,
                     const char *command);
/* CUDA allocations, or tensors if nothing else is known. */
enum run_series_layer view_scope_layer(const struct result_report *r);
void view_text_growth(const struct draw_text *v); /* view_text_growth.c: grows */
void view_text_leaks(const struct draw_text *v);  /* stays */
void view_text_fragmentation(const struct draw_text *v);
void view_text_churn(const struct draw_text *v); /* allocated and freed repeatedly */
void view_text_retries(const struct draw_text *v);
void view_text_budget(const struct draw_text *v);
/* "--params 124.4M" for the next command; "" if the budget was shown. */
void view_next_budget(const struct draw_text *v, char *out, size_t size);
void view_text_advice(const struct draw_text *v);
enum { VIEW_COMMANDS = 8 };
struct view_commands {
    char words[VIEW_COMMANDS][160]; /* between "gpuspy" and the recording */
    char what[VIEW_COMMANDS][160];
    size_t n, most;
};
void view_add_command(struct view_commands *c, const char *words, const char *what);
void view_print_commands(const struct draw_text *v, const struct view_commands *c);
/* Prints a command that gives a variable of the shell a path, which is quoted for the shell if necessary. */
void view_print_variable(FILE *out, const char *name, const char *path);
/* How a command refers to that variable: "$run", in quotes if the path needs them. */
void view_refer_to(char *out, size_t size, const char *name, const char *path);
/* Commands to type next; `left_out` names the sections that only --full shows, "" none. */
void view_text_next(const struct draw_text *v, const char *left_out);

/* One screen omits rows below 0.1 % of the largest, but never the first one. */
static inline bool view_is_row_negligible(const struct draw_text *v, size_t row, int64_t bytes, int64_t largest)
{
    return v->brief && row > 0 && bytes < largest / 1000;
}

/* "Never freed", "Live when the program died": the name of the list of the end (view_ending.c). */
const char *view_end_words(const struct result_report *report);
/* The same with what it means. */
/* What follows those words in a sentence. */
const char *view_end_explanation(const struct result_report *report);
const char *view_end_sentence(const struct result_report *report, char *out, size_t size);
