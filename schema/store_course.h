/* The smallest live size of each call path over the whole time of a recording, in buckets of equally many allocations:
 * it shows growth in the time whose rows a bounded recording removes. Part of the store's state; not thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "schema/tables.h"

struct gs_store;

/* Buckets; call paths; call paths that had live memory during a whole bucket. Further ones are left out. */
enum { GS_COURSE_BUCKETS = 128, GS_COURSES = 1 << 16, GS_COURSE_LOWS = 2048 };

struct gs_course {        /* of the allocations of one stack and kind */
    uint32_t stack, next; /* next: another kind of the same stack, plus 1; 0: none */
    uint16_t kind;        /* as in table removed_course */
    uint16_t bucket;      /* the one to which `low` belongs */
    uint16_t written;     /* number of closed buckets that are in the table */
    int64_t live, low;
    int64_t *lows; /* of the closed buckets; NULL: 0 in all */
};
struct gs_courses {
    GS_ARRAY(struct gs_course) list;
    uint32_t *of_stack; /* stack id → index of its first course, plus 1 */
    size_t stacks;
    unsigned shift;                     /* a bucket has 2^shift allocations; when all are full, neighbours merge */
    uint32_t bucket;                    /* the open one */
    uint64_t next_id;                   /* the allocation that opens the next one */
    uint64_t end_ns[GS_COURSE_BUCKETS]; /* of the closed ones */
    uint32_t lows;                      /* number of courses that have them */
    uint64_t left_out;                  /* allocations of call paths beyond GS_COURSES, buckets beyond GS_COURSE_LOWS */
    uint32_t written;                   /* number of closed buckets that are in table removed_time */
    bool unwritten;                     /* the tables are to be written anew */
};

void gs_courses_start(struct gs_courses *c);
void gs_courses_free(struct gs_courses *c);
/* The course of an allocation that begins now, plus 1; 0: it has none. `kind` as in allocation_row. */
uint32_t gs_course_of(struct gs_courses *c, uint64_t id, uint32_t stack, int64_t kind, uint64_t now_ns);
void gs_course_reach(struct gs_courses *c, struct gs_course *course);
/* Brings the tables up to date; within a transaction. */
int gs_store_write_courses(struct gs_store *s);

/* The live bytes of course `number` - 1 change. */
static inline void gs_course_add(struct gs_courses *c, uint32_t number, int64_t bytes)
{
    if (!number) return;
    struct gs_course *course = &c->list.at[number - 1];
    if (course->bucket < c->bucket) gs_course_reach(c, course);
    course->live = (int64_t)((uint64_t)course->live + (uint64_t)bytes); /* unsigned: damage may overflow it */
    if (course->live < course->low) course->low = course->live;
}
