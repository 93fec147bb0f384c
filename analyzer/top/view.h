/* The model as text: one frame of the screen, or a snapshot that is printed; and as JSON. */
#pragma once

#include <stdio.h>
#include "analyzer/base/term.h"
#include "analyzer/top/table.h"
#include "analyzer/top/users.h"

struct top_view {
    struct top_tables *tables;
    struct terminal term;
    int columns, rows;         /* of the screen; rows 0: as many as needed */
    int scroll;                /* the first visible row of the table */
    bool live;                 /* on a screen: with a line of keys */
    bool paused, help, typing; /* typing: the filter */
    double interval_s;
    struct top_choice choice;
    struct top_users users; /* not recorded */
    bool lists_users;       /* … instead of the table: */
    uint32_t chosen;        /* … the row that a key selected */
    char notice[1200];      /* the result of a key; "" nothing to state */
    int table_rows;         /* out: rows of the table that fit */
};

/* Lines that end with \n and are at most `columns` wide. */
void top_view_print(struct top_view *v, FILE *out);
/* One object on one line; `top` entries per list. */
void top_view_json(const struct top_view *v, size_t top, FILE *out);
const char *top_state_word(enum top_state state);
/* A sentence about a recording that has ended, or cannot be read; "" otherwise. */
void top_state_text(const struct top_source *s, char *out, size_t size);
/* Recent sums over all kinds of a source's copies or waits: calls per second, amount per second. */
void top_rates(const struct top_model *m, const struct top_calls *list, size_t n, uint32_t source, double *calls,
               double *amount);
/* Allocations per second of the layer that AUTO selects. */
double top_allocation_rate(const struct top_model *m, uint32_t source);
/* The use of a device. The parts sum to `used`, if that is known. */
struct top_held {
    int64_t total, used;             /* RUN_UNKNOWN */
    int64_t tensors, cached, device; /* device: live CUDA allocations, including tensors and cache */
    int64_t context, others;         /* of this process besides its allocations; of other processes */
    bool by_nvml;                    /* others is NVML's figure */
};
/* At the growth of the last minute; both NAN: no steady growth, or the recording has ended. */
struct top_forecast {
    double bytes_per_s, full_s; /* full_s: until the GPU is full; NAN: the total is unknown, or it takes days */
};
/* What the fullest GPU held at least at the peak of a range that is open; RUN_UNKNOWN. */
int64_t top_range_peak(const struct top_model *m, uint32_t source, const struct top_range *range);
struct top_forecast top_forecast_of(const struct top_model *m, uint32_t source, const struct top_device *d);
struct top_held top_held_of(const struct top_model *m, uint32_t source, const struct top_device *d);
