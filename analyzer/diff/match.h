/* Pairs the lines of two recordings although the program was edited in between: lines moved, functions were moved or
 * renamed, or the checkout or Python is in another folder.
 *
 * A pure function of the two lists of call sites. It pairs cells of notebooks by their texts, and files by their paths,
 * or by the common end of two paths;
 * within a file, functions by name; within a function, lines in order, as a diff aligns text. Two lines fit if they
 * call the same functions, have similar sizes and counts, and moved as far as the line before them. Lines that call
 * nothing in common are never paired. match(b, a) gives the same pairs as match(a, b).
 */
#pragma once

#include "analyzer/base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DIFF_MATCH_ALONE UINT32_MAX

/* A line that calls, in one recording: (file, function, line) is unique. */
struct diff_match_site {
    const char *file, *function;       /* never NULL; "" unknown */
    const char *cell;                  /* run_cell_text; NULL: not a notebook's cell */
    int line;                          /* 0 unknown */
    bool program;                      /* in the file that was started */
    ARENA_ROWS(const uint64_t, calls); /* what it calls: hashes of names, ascending, each once */
    int64_t weight;                    /* of everything that it called */
    uint64_t count;
};

enum diff_match_how {
    DIFF_MATCH_NONE,
    DIFF_MATCH_SAME,    /* the same function and line, in a file with the same path */
    DIFF_MATCH_LINE,    /* the same function, another line: inferred, as all below */
    DIFF_MATCH_FUNCTION /* the function has another name, or is in another file */
};

enum diff_match_path {
    DIFF_MATCH_PATH_SAME,
    DIFF_MATCH_PATH_LIBRARY, /* the same file of an installed package or of Python's own library */
    DIFF_MATCH_PATH_END,     /* the ends of the paths are the same: another checkout */
    DIFF_MATCH_PATH_CELL,    /* cells of a notebook with the same text, which ran as other numbers */
    DIFF_MATCH_PATH_RENAMED  /* another name; they have functions in common */
};
struct diff_match_file {
    const char *a, *b;
    enum diff_match_path path;
};

struct diff_match {
    uint32_t *of_a, *of_b;                     /* index on the other side, DIFF_MATCH_ALONE */
    uint8_t *how_a, *how_b;                    /* enum diff_match_how */
    uint32_t *file_a, *file_b;                 /* numbers of the sites' files: equal ones were paired */
    ARENA_ROWS(struct diff_match_file, files); /* that were paired, in the order of the first side's names */
};

/* Lives until diff_match_free; the strings are the sites'. */
struct diff_match *diff_match_sites(const struct diff_match_site *a, size_t an, const struct diff_match_site *b,
                                    size_t bn);
void diff_match_free(struct diff_match *match);

/* match_files.c. The part of a path that identifies a library's file ("torch/nn/x.py"), the same under every prefix and
 * Python version; NULL: not a library's. */
const char *diff_match_library(const char *file);
/* How many folders and file names two paths share, from the end. */
unsigned diff_match_end(const char *a, const char *b);
/* Pairs the files of both sides: file_a[i] and file_b[j] become equal numbers for sites whose files are the same, other
 * numbers for all others. */
void diff_match_paths(struct diff_match *match, const struct diff_match_site *a, size_t an,
                      const struct diff_match_site *b, size_t bn);
/* The share of two sites' calls that both make, 0 … 1. */
double diff_match_calls(const struct diff_match_site *a, const struct diff_match_site *b);
