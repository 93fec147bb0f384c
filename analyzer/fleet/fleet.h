/* All active recordings of this machine, for gpuspy metrics: each as gpuspy top reads it, with the job and pod that its
 * environment names, and what a report of it states, computed now and then in a process of its own. Bounded: at most
 * FLEET_RECORDINGS of them, FLEET_LINES_MAX lines each. */
#ifndef GPUSPY_FLEET_H
#define GPUSPY_FLEET_H

#include <stdio.h>
#include <sys/types.h>
#include "analyzer/top/view.h"

enum { FLEET_RECORDINGS = 256, FLEET_LINES = 10, FLEET_LINES_MAX = 100, FLEET_DEVICES = 16, FLEET_WORD = 256 };

/* Of the recorded process's environment, as it was started; "" unknown. */
struct fleet_labels {
    char job_id[FLEET_WORD], pod[FLEET_WORD], name_space[FLEET_WORD];
    char visible[1024]; /* CUDA_VISIBLE_DEVICES */
};
void fleet_labels_read(uint32_t pid, struct fleet_labels *out);
/* What the program's GPU number `device` is called on the machine: the entry of CUDA_VISIBLE_DEVICES. */
void fleet_gpu(const struct fleet_labels *labels, int device, char *out, size_t size);

/* What a report states. Sent through a pipe as it is. */
struct fleet_analysis {
    bool done, has_steps;
    uint64_t steps;
    int64_t median_ns; /* of a step */
    struct {
        double growth; /* bytes per step */
        int64_t by_category[RESULT_CATEGORIES_N];
    } device[FLEET_DEVICES];
};

struct fleet_recording {
    uint32_t pid; /* as seen from here */
    char *database;
    struct top_model *model; /* of one source */
    struct top_tables tables;
    struct fleet_labels labels;
    struct fleet_analysis analysis;
    int64_t ended_ns;    /* when that was seen; 0: it goes on */
    int64_t analysed_ns; /* when the next analysis is due */
};

struct fleet {
    struct fleet_recording *list[FLEET_RECORDINGS];
    size_t n, left_out;
    unsigned lines;
    int64_t found_ns, refreshed_ns;
    double refresh_s; /* how long the last one took */
    struct {
        pid_t pid; /* 0: none is running */
        int pipe;
        uint32_t of; /* pid of its recording */
        int64_t began_ns;
    } analysis;
};

int64_t fleet_clock_ns(void);
/* Reads what is new, unless it did within the last second; looks for recordings every five seconds. */
void fleet_refresh(struct fleet *f);
void fleet_free(struct fleet *f);

/* Starts an analysis if one is due, takes the result of one that has ended. One runs at a time, for at most a thirtieth
 * of the time. fleet_analyse_all waits for one of each. */
void fleet_analyse(struct fleet *f);
void fleet_analyse_all(struct fleet *f);
void fleet_analysis_stop(struct fleet *f);

/* OpenMetrics 1.0, or Prometheus's older text format. */
void fleet_write(const struct fleet *f, bool openmetrics, FILE *out);

#endif
