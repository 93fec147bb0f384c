/* The Chrome trace format: a JSON list of events, one per line. What the files of the format share. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/export/export.h"

struct export_chrome {
    struct export_run *e;
    FILE *out;
    int64_t *offset_ns; /* by process: its start after that of the first process */
    int64_t *pid;       /* by process: its pid, or another number if two processes have the same */
    bool begun;         /* an event was written, so the next one needs a comma */
    struct map tids;    /* process, the recorder's thread number → index + 1 into run_threads */
    struct map sites;   /* stack → number */
    ARENA_LIST(const char *, site);
    struct map helpers; /* of the run, see site.h */
    struct arena arena;
    uint64_t slices, slices_left; /* waits and copies that were written, and that were left out */
    int64_t slices_left_ns;       /* total duration of the latter */
    uint64_t marks, marks_left;
    bool bucketed; /* memory over time is reduced to buckets */
    size_t buckets;
};

/* Writes {"ph":"X","pid":1,"ts":12.345; the caller adds members and "}". */
void export_chrome_event(struct export_chrome *c, char phase, uint32_t process, int64_t time_ns);
/* Writes ,"tid":N */
void export_chrome_thread(struct export_chrome *c, uint32_t process, uint32_t thread);
/* Writes microseconds: 12345 ns as 12.345. */
void export_chrome_us(FILE *out, int64_t ns);
/* Writes ,"key":"text" */
void export_chrome_text(struct export_chrome *c, const char *key, const char *text);

/* export_chrome_memory.c: counters. */
bool export_chrome_memory(struct export_chrome *c, char *error, size_t error_size);
/* export_chrome_calls.c: slices of waits, copies and marks. */
bool export_chrome_calls(struct export_chrome *c, char *error, size_t error_size);
