/* All active recordings of this machine, for gpuspy metrics. Each is read as gpuspy top reads it, gets the labels of
 * the job and pod that its environment names, and is analysed from time to time in a child process. Bounded: at most
 * FLEET_RECORDINGS recordings with FLEET_LINES_MAX lines each. */
#pragma once

#include <stdio.h>
#include <sys/types.h>
#include "analyzer/base/clock.h"
#include "analyzer/top/view.h"

enum { FLEET_RECORDINGS = 256, FLEET_LINES = 10, FLEET_LINES_MAX = 100, FLEET_DEVICES = 16, FLEET_WORD = 256 };

/* From the environment with which the recorded process was started; "": unknown. */
struct fleet_labels {
    char job_id[FLEET_WORD], pod[FLEET_WORD], name_space[FLEET_WORD];
    char visible[1024]; /* CUDA_VISIBLE_DEVICES */
};
void fleet_labels_read(uint32_t pid, struct fleet_labels *out);
/* The machine's name for the program's GPU number `device`: its entry in CUDA_VISIBLE_DEVICES. */
void fleet_gpu(const struct fleet_labels *labels, int device, char *out, size_t size);

/* The result of an analysis. The child writes the struct to a pipe. */
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
    struct top_model *model; /* has one source: this recording */
    struct top_tables tables;
    struct fleet_labels labels;
    struct fleet_analysis analysis;
    int64_t ended_ns;    /* when gpuspy noticed its end; 0: it is active */
    int64_t analysed_ns; /* when the next analysis is due */
};

struct fleet {
    struct fleet_recording *list[FLEET_RECORDINGS];
    size_t n, left_out;
    unsigned lines;
    int64_t found_ns, refreshed_ns;
    double refresh_s; /* duration of the last refresh */
    struct {
        pid_t pid; /* 0: none is running */
        int pipe;
        uint32_t of; /* pid of the recorded process */
        int64_t began_ns;
    } analysis;
};

/* Reads new events, at most once per second, and searches for new recordings every five seconds. */
void fleet_refresh(struct fleet *f);
/* Reads all rows of all recordings, as far as it gets within 20 s. False: not all. */
bool fleet_refresh_whole(struct fleet *f);
void fleet_free(struct fleet *f);

/* Collects the result of an analysis that has ended, and starts the next one that is due. One runs at a time, during at
 * most a thirtieth of the time. fleet_analyse_all analyses each recording once, as far as it gets within 20 s. */
void fleet_analyse(struct fleet *f);
void fleet_analyse_all(struct fleet *f);
void fleet_analysis_stop(struct fleet *f);

/* OpenMetrics 1.0, or Prometheus's older text format. */
void fleet_write(const struct fleet *f, bool openmetrics, FILE *out);
