/* gpuspy doctor: what a recording on this machine would contain, and what would prevent it. Each check adds findings;
 * cmd_doctor.c prints them. No check calls CUDA in this process, so that a driver that hangs or crashes affects only a
 * child. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/* In the order in which they are printed. */
/* clang-format off */
#define DOCTOR_SECTIONS(X)                                                                         \
    X(RECORDER, "recorder") X(FOLDER, "folder") X(SETTINGS, "settings") X(DRIVER, "driver")        \
        X(PYTHON, "python") X(FRAMEWORKS, "frameworks") X(OTHERS, "others") X(TEST, "test")
/* clang-format on */
#define DOCTOR_SECTION(symbol, word) DOCTOR_##symbol,
enum doctor_section { DOCTOR_SECTIONS(DOCTOR_SECTION) DOCTOR_SECTIONS_N };
#undef DOCTOR_SECTION

enum doctor_state {
    DOCTOR_OK,
    DOCTOR_WARNING, /* something will not be recorded, or not as the user may expect */
    DOCTOR_PROBLEM, /* it prevents recording */
};

struct doctor_finding {
    enum doctor_section section;
    enum doctor_state state;
    const char *id; /* stable, for scripts */
    char *text;     /* what was found */
    char *fix;      /* what to do; NULL nothing */
};

enum { DOCTOR_DEVICES = 16, DOCTOR_NAME = 128 };

struct doctor {
    const char *operand; /* Python or program; NULL none */
    bool deep;

    struct doctor_finding *list;
    size_t n, cap;

    /* results that later checks use */
    char library[PATH_MAX]; /* libgpuspy.so; "" none */
    char program[PATH_MAX]; /* the program to record if it is not a Python; "" none */
    char python[PATH_MAX];  /* "" none */
    char folder[PATH_MAX];  /* of the database; "": it is not writable */
    bool driver;            /* it works, and reports: */
    int cuda;               /* the highest CUDA version that it supports, such as 12040 */
    int devices;            /* visible to programs */
    int hidden;             /* hidden by CUDA_VISIBLE_DEVICES */
    bool hardware;          /* this machine has an NVIDIA GPU */
};

/* Adds a finding. `fix` NULL: nothing to do; it is copied. */
void doctor_add_finding(struct doctor *d, enum doctor_section section, enum doctor_state state, const char *id,
                        const char *fix, const char *format, ...) __attribute__((format(printf, 6, 7)));

void doctor_recorder(struct doctor *d);
void doctor_folder(struct doctor *d);
void doctor_settings(struct doctor *d);
void doctor_driver(struct doctor *d);
void doctor_python(struct doctor *d);
void doctor_others(struct doctor *d);
void doctor_test(struct doctor *d);

/* Can the recorder be loaded into this program? False after a finding. */
bool doctor_preloadable(struct doctor *d, const char *path);

/* Can a program that was built with a sanitizer be recorded? False after a problem. */
bool doctor_sanitizer(struct doctor *d, const char *path);

/* Tries PyTorch of that version on the simulated GPU. */
void doctor_simulate(struct doctor *d, const char *version);

/* The first check: determines what the operand is. False after a line on stderr. */
bool doctor_target(struct doctor *d);

/* The self-test runs this in a separate child, with the recorder loaded: see doctor_test.c. */
#define DOCTOR_CHILD "GPUSPY_DOCTOR_CHILD"
int doctor_allocate(void);
/* What it runs in child processes: this program again, with the task in the variable DOCTOR_CHILD. */
int doctor_ask_driver(void);
int doctor_ask_nvml(void);
