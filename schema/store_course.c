/* The least that was live of each call path, in buckets of equally many allocations. analyzer/question/growth.c
 * computes the same from rows. */
#include "schema/store_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_SHIFT 10
#define KINDS 4095 /* layer, space and device of allocation_row.kind */

void gs_courses_start(struct gs_courses *c)
{
    c->shift = FIRST_SHIFT;
    c->next_id = UINT64_C(1) << FIRST_SHIFT;
}

void gs_courses_free(struct gs_courses *c)
{
    for (size_t i = 0; i < c->list.count; i++) free(c->list.at[i].lows);
    free(c->list.at);
    free(c->of_stack);
}

/* Keeps the low of a bucket that has ended. */
static void keep_low(struct gs_courses *c, struct gs_course *course)
{
    if (course->low > 0 && !course->lows) {
        if (c->lows < GS_COURSE_LOWS) course->lows = calloc(GS_COURSE_BUCKETS, sizeof *course->lows);
        c->lows += course->lows != NULL;
        c->left_out += !course->lows;
    }
    if (course->lows) course->lows[course->bucket] = course->low > 0 ? course->low : 0;
}

void gs_course_reach(struct gs_courses *c, struct gs_course *course)
{
    while (course->bucket < c->bucket) {
        keep_low(c, course);
        course->bucket++;
        course->low = course->live;
    }
}

/* Of two neighbours the smaller low counts. */
static void merge_course_buckets(struct gs_courses *c)
{
    for (size_t i = 0; i < c->list.count; i++) {
        struct gs_course *course = &c->list.at[i];
        gs_course_reach(c, course);
        for (uint32_t n = 0; course->lows && n < GS_COURSE_BUCKETS / 2; n++) {
            const int64_t *two = &course->lows[2 * n];
            course->lows[n] = two[0] < two[1] ? two[0] : two[1];
        }
        course->bucket = GS_COURSE_BUCKETS / 2;
    }
    for (uint32_t n = 0; n < GS_COURSE_BUCKETS / 2; n++) c->end_ns[n] = c->end_ns[2 * n + 1];
    c->bucket = GS_COURSE_BUCKETS / 2;
    c->shift++;
    c->unwritten = true;
}

/* The allocation with that id begins. */
static void reach_allocation(struct gs_courses *c, uint64_t id, uint64_t now_ns)
{
    while (id >= c->next_id && c->shift < 48) {
        c->end_ns[c->bucket++] = now_ns;
        if (c->bucket == GS_COURSE_BUCKETS) merge_course_buckets(c);
        c->next_id = (uint64_t)(c->bucket + 1) << c->shift;
    }
}

static bool reach_stack(struct gs_courses *c, uint32_t stack)
{
    if (stack < c->stacks) return true;
    size_t n = c->stacks ? c->stacks : 256;
    while (n <= stack) n *= 2;
    uint32_t *grown = realloc(c->of_stack, n * sizeof *grown);
    if (!grown) return false;
    memset(grown + c->stacks, 0, (n - c->stacks) * sizeof *grown);
    c->of_stack = grown;
    c->stacks = n;
    return true;
}

static uint32_t add_course(struct gs_courses *c, uint32_t stack, uint16_t kind)
{
    const bool room = c->list.count < GS_COURSES;
    struct gs_course *new = room &&reach_stack(c, stack) ? GS_ARRAY_ADD(&c->list) : NULL;
    c->left_out += !new;
    if (!new) return 0;
    *new = (struct gs_course){.stack = stack, .kind = kind, .next = c->of_stack[stack], .bucket = (uint16_t)c->bucket};
    return c->of_stack[stack] = (uint32_t)c->list.count;
}

uint32_t gs_course_of(struct gs_courses *c, uint64_t id, uint32_t stack, int64_t kind, uint64_t now_ns)
{
    const uint16_t key = (uint16_t)(kind & KINDS);
    if (id >= c->next_id) reach_allocation(c, id, now_ns);
    for (uint32_t n = stack < c->stacks ? c->of_stack[stack] : 0; n; n = c->list.at[n - 1].next)
        if (c->list.at[n - 1].kind == key) return n;
    return add_course(c, stack, key);
}

/* ---------------------------------------------------------------- tables removed_course, removed_time */

/* Rows where the low changes; before the first one it is 0. */
static int write_course(struct gs_store *s, sqlite3_stmt *st, struct gs_course *course)
{
    struct gs_courses *c = &s->courses;
    if (course->bucket < c->bucket) gs_course_reach(c, course);
    if (!course->lows) return 0;
    int64_t last = course->written ? course->lows[course->written - 1] : 0;
    for (; course->written < c->bucket; course->written++) {
        const int64_t low = course->lows[course->written];
        if (low == last) continue;
        last = low;
        sqlite3_bind_int(st, 1, course->kind);
        sqlite3_bind_int64(st, 2, course->stack);
        sqlite3_bind_int64(st, 3, (int64_t)course->written << c->shift);
        sqlite3_bind_int64(st, 4, low);
        if (gs_store_run(s, st)) return -1;
    }
    return 0;
}

static int begin_widths(struct gs_store *s)
{
    struct gs_courses *c = &s->courses;
    if (!c->unwritten) return 0;
    for (size_t i = 0; i < c->list.count; i++) c->list.at[i].written = 0;
    c->written = 0;
    if (gs_store_sql(s, "DELETE FROM removed_course;DELETE FROM removed_time")) return -1;
    c->unwritten = false;
    return 0;
}

int gs_store_write_courses(struct gs_store *s)
{
    struct gs_courses *c = &s->courses;
    char sql[96];
    sqlite3_stmt *time = gs_store_statement(s, GS_SQL_REMOVED_TIME);
    if (!time || begin_widths(s)) return -1;
    for (; c->written < c->bucket; c->written++) {
        sqlite3_bind_int64(time, 1, (int64_t)(c->written + 1) << c->shift);
        sqlite3_bind_int64(time, 2, gs_whole(c->end_ns[c->written]));
        if (gs_store_run(s, time)) return -1;
    }
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_REMOVED_COURSE);
    if (!st) return -1;
    for (size_t i = 0; i < c->list.count; i++)
        if (write_course(s, st, &c->list.at[i])) return -1;
    if (!c->left_out) return 0;
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta VALUES('courses_left_out',%lld)",
             (long long)gs_whole(c->left_out));
    return gs_store_sql(s, sql);
}
