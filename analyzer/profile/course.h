/* What was live over time, in equal intervals, by category if requested. One replay, and one more pass for the
 * categories. */
#pragma once

#include "analyzer/category/category.h"
#include "analyzer/result/result.h"
#include "analyzer/run/run.h"
#include "analyzer/step/step.h"

struct profile_course_column {                /* an interval */
    bool known;                               /* the process ran then */
    int64_t high, low;                        /* the maximum and the minimum of live memory in it */
    int64_t high_ns;                          /* when the maximum was reached */
    int64_t by_category[RESULT_CATEGORIES_N]; /* of `high`; they sum to it */
};

struct profile_course { /* of one series */
    uint32_t process;
    int device; /* -1: host memory */
    enum run_series_layer layer;
    int64_t peak, peak_ns; /* over the whole run, the latest if equal */
    int64_t end;           /* live at the end */
    struct profile_course_column *columns;
};

struct profile_course_steps { /* the program's own */
    uint32_t process;
    size_t n;
    int64_t first_ns, end_ns, median_ns;
    char by[256];
    int64_t *starts; /* n of them; NULL: more than there are columns */
};

struct profile_course_scope { /* the NVTX ranges of one name, in one series */
    struct result_scope scope;
    bool *covered; /* by column: a range is open in it */
};

struct profile_courses {
    struct profile_course
        *list; /* by process, then device; tensors before the device's own; without those that stay 0 */
    size_t n;
    size_t columns_n;
    int64_t from_ns, to_ns; /* the time range that is shown */
    ARENA_ROWS(struct profile_course_steps, steps);
    ARENA_ROWS(struct profile_course_scope, scopes); /* highest peak first */
};

struct profile_course_request {
    size_t columns;
    int64_t from_ns, to_ns; /* to_ns 0: the end of the longest process */
    bool categories;        /* the run was opened with options.memory_map, and symbols */
    bool host;              /* also pinned memory and CPU tensors, which a run without other memory shows in any case */
};

/* NULL and a line in `error` if a database could not be read. */
struct profile_courses *profile_courses_build(struct run *run, const struct profile_course_request *wish, char *error,
                                              size_t error_size);
void profile_courses_free(struct profile_courses *c);
/* NULL: none. */
const struct profile_course *profile_courses_of(const struct profile_courses *c, uint32_t process, int device,
                                                enum run_series_layer layer);
/* Is it the main one of its memory? For a device the tensors if it has any, else CUDA allocations; and the host. */
bool profile_courses_lead(const struct profile_courses *c, const struct profile_course *course);
/* The column that contains a time; columns_n: outside. */
size_t profile_courses_column(const struct profile_courses *c, int64_t ns);
