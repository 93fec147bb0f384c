#include "analyzer/profile/course.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/category/category_use.h"
#include "analyzer/question/question.h"
#include "analyzer/category/categories.h"
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"

struct line { /* of a series, during the replay */
    struct profile_course course;
    int64_t live, live_ns; /* and since when */
    size_t next;           /* the first column that no event has reached */
};

struct building {
    struct run *run;
    const struct profile_course_request *wish;
    struct profile_courses *c;
    struct line *lines; /* by series */
    size_t lines_cap;
    size_t column; /* of the last event: for times from begin_ns up to before until_ns */
    int64_t begin_ns, until_ns;
    uint32_t process; /* whose ranges are read */
    struct site_builder b;
    struct result_report report;
    struct arena arena;
};

size_t profile_courses_column(const struct profile_courses *c, int64_t ns)
{
    if (ns < c->from_ns || ns > c->to_ns) return c->columns_n;
    double share = (double)(ns - c->from_ns) / (double)(c->to_ns - c->from_ns);
    size_t at = (size_t)(share * (double)c->columns_n);
    return at < c->columns_n ? at : c->columns_n - 1;
}

/* Most events are in the column of the previous one. */
static size_t column_at(struct building *w, int64_t ns)
{
    if (ns < w->begin_ns || ns >= w->until_ns) {
        int64_t low = ns, high = w->c->to_ns + 1;
        w->column = profile_courses_column(w->c, ns);
        while (high - low > 1) { /* it is the column of `low`, and not of `high` */
            const int64_t middle = low + (high - low) / 2;
            *(profile_courses_column(w->c, middle) == w->column ? &low : &high) = middle;
        }
        w->begin_ns = ns;
        w->until_ns = high;
    }
    return w->column;
}

/* Adds what was live up to and in `column`, before the next event. */
static void carry_level(struct building *w, struct line *l, size_t column)
{
    for (; l->next <= column && l->next < w->c->columns_n; l->next++)
        l->course.columns[l->next] =
            (struct profile_course_column){.known = true, .high = l->live, .low = l->live, .high_ns = l->live_ns};
}

static void course_on_event(struct building *w, const struct run_series *s, uint32_t series, int64_t ns)
{
    struct line *l = SITE_REACH(w->lines, series, w->lines_cap);
    struct profile_courses *c = w->c;

    if (!l->course.columns) {
        l->course = (struct profile_course){.process = s->process, .device = s->device, .layer = s->layer};
        l->course.columns = arena_alloc(&w->arena, c->columns_n * sizeof *l->course.columns);
    }
    if (ns >= c->from_ns) {
        size_t column = ns > c->to_ns ? c->columns_n - 1 : column_at(w, ns);
        carry_level(w, l, column);
        if (ns <= c->to_ns) {
            struct profile_course_column *k = &l->course.columns[column];
            if (s->live_bytes >= k->high) {
                k->high = s->live_bytes;
                k->high_ns = ns;
            }
            k->low = s->live_bytes < k->low ? s->live_bytes : k->low;
        }
    }
    l->live = s->live_bytes;
    l->live_ns = ns;
    if (s->live_bytes >= l->course.peak) {
        l->course.peak = s->live_bytes;
        l->course.peak_ns = ns;
    }
}

static void course_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    course_on_event(self, series, life->series, life->alloc_ns);
}

static void course_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    course_on_event(self, series, life->series, life->free_ns);
}

/* Uses the levels of a bounded recording for a column that ends before it has all events: the remaining rows are
 * incomplete. */
static void put_course_levels(const struct building *w, struct line *l, size_t column)
{
    const struct profile_courses *c = w->c;
    const double width = (double)(c->to_ns - c->from_ns) / (double)c->columns_n;
    const int64_t from = c->from_ns + (int64_t)((double)column * width), to = from + (int64_t)width;
    struct profile_course_column *k = &l->course.columns[column];
    struct profile_course_column levels = {.known = true, .high = -1, .low = INT64_MAX, .high_ns = from};
    RUN_EACH (x, run_levels, w->run) {
        if (x->process != l->course.process || x->device != l->course.device || x->layer != l->course.layer ||
            x->end_ns <= from || x->start_ns > to)
            continue;
        levels.high = x->high_bytes > levels.high ? x->high_bytes : levels.high;
        levels.low = x->low_bytes < levels.low ? x->low_bytes : levels.low;
    }
    if (levels.high < 0) return;
    if (k->high == levels.high) levels.high_ns = k->high_ns; /* the peak is among the remaining rows */
    *k = levels;
}

static void course_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct building *w = self;
    size_t processes;

    for (uint32_t i = 0; i < run_series_count(w->run) && i < w->lines_cap; i++) {
        struct line *l = &w->lines[i];
        if (!l->course.columns || l->course.process != process) continue;
        size_t last = end_ns < w->c->from_ns ? 0 : profile_courses_column(w->c, end_ns);
        if (end_ns >= w->c->from_ns) carry_level(w, l, last < w->c->columns_n ? last : w->c->columns_n - 1);
        l->course.end = l->live;
        const int64_t kept = run_processes(w->run, &processes)[process].kept_from_ns;
        for (size_t x = 0; x < w->c->columns_n && kept && x < profile_courses_column(w->c, kept); x++)
            put_course_levels(w, l, x);
    }
}

SORT_ORDER(order_courses, struct profile_course,
           SORT_UP(x->process, y->process)
               ?: SORT_UP((unsigned)x->device, (unsigned)y->device) /* -1, the host, last */
               ?: SORT_UP(x->layer == RUN_SERIES_DEVICE, y->layer == RUN_SERIES_DEVICE))

static bool is_course_chosen(const struct profile_course *c, bool host)
{
    return c->columns && c->peak > 0 && c->layer != RUN_SERIES_SHARED && (host || c->device >= 0);
}

static void list_courses(struct building *w)
{
    bool host = true;
    w->c->list = arena_realloc(NULL, w->lines_cap + 1, sizeof *w->c->list);
    for (size_t i = 0; i < w->lines_cap && host; i++) host = !is_course_chosen(&w->lines[i].course, false);
    for (size_t i = 0; i < w->lines_cap; i++) {
        struct profile_course *c = &w->lines[i].course;
        if (!is_course_chosen(c, host || w->wish->host)) continue;
        struct profile_course_column *columns = arena_realloc(NULL, w->c->columns_n, sizeof *columns);
        memcpy(columns, c->columns, w->c->columns_n * sizeof *columns);
        w->c->list[w->c->n] = *c;
        w->c->list[w->c->n++].columns = columns;
    }
    SORT(w->c->list, w->c->n, order_courses);
}

static void list_steps(struct building *w)
{
    size_t n;

    run_processes(w->run, &n);
    w->c->steps = arena_realloc(NULL, n, sizeof *w->c->steps);
    for (uint32_t i = 0; i < n; i++) {
        const struct step_list *s = step_list_of(&w->b, i);
        if (!s) continue;
        struct profile_course_steps *to = &w->c->steps[w->c->steps_n++];
        *to = (struct profile_course_steps){.process = i,
                                            .n = s->n,
                                            .median_ns = s->median_ns,
                                            .first_ns = step_start_ns(s, 0),
                                            .end_ns = step_start_ns(s, s->n)};
        snprintf(to->by, sizeof to->by, "%s", s->by);
        if (s->n > w->c->columns_n) continue;
        to->starts = arena_realloc(NULL, s->n, sizeof *to->starts);
        for (size_t k = 0; k < s->n; k++) to->starts[k] = step_start_ns(s, k);
    }
}

static void cover_columns(void *self, const struct run_mark *mark)
{
    struct building *w = self;
    const struct profile_courses *c = w->c;

    if (!mark->name || (mark->kind != GS_MARK_PUSH && mark->kind != GS_MARK_START)) return;
    const int64_t end = mark->end_ns < c->to_ns ? mark->end_ns : c->to_ns;
    const int64_t start = mark->start_ns > c->from_ns ? mark->start_ns : c->from_ns;
    if (start > end) return;
    const size_t first = profile_courses_column(c, start), last = profile_courses_column(c, end);
    for (size_t i = 0; i < c->scopes_n; i++) {
        const struct result_scope *s = &c->scopes[i].scope;
        const bool named = strcmp(s->name, mark->full) == 0 || strcmp(s->name, mark->name) == 0;
        if (s->process != w->process || !named) continue;
        if (strcmp(s->domain ? s->domain : "", mark->full_domain ? mark->full_domain : "") != 0) continue;
        memset(c->scopes[i].covered + first, true, last - first + 1);
    }
}

static bool list_scopes(struct building *w, char *error, size_t error_size)
{
    const struct result_report *r = &w->report;
    size_t processes;
    bool ok = true;

    w->c->scopes = arena_realloc(NULL, r->scopes_n + 1, sizeof *w->c->scopes);
    for (size_t i = 0; i < r->scopes_n; i++) {
        if (r->scopes[i].device < 0) continue;
        bool *covered = arena_zeroed(w->c->columns_n, sizeof *covered);
        w->c->scopes[w->c->scopes_n++] = (struct profile_course_scope){r->scopes[i], covered};
    }
    run_processes(w->run, &processes);
    for (w->process = 0; ok && w->c->scopes_n && w->process < processes; w->process++)
        ok = run_each_mark(w->run, w->process, cover_columns, w, error, error_size);
    return ok;
}

static void fill_course_column(struct profile_course_column *k, const struct category_moment *m)
{
    int64_t sum = 0;

    for (size_t i = 0; i < m->by.lines_n; i++) {
        k->by_category[m->by.lines[i].category] += m->by.lines[i].bytes;
        sum += m->by.lines[i].bytes;
    }
    if (sum > k->high) /* rows with inconsistent times, or several events of one time */
        memset(k->by_category, 0, sizeof k->by_category);
    k->by_category[RESULT_CATEGORY_UNKNOWN] += sum > k->high ? k->high : k->high - sum;
}

static bool categorise_course(struct building *w, uint32_t process, char *error, size_t error_size)
{
    struct profile_courses *c = w->c;
    struct category_moment *moments = arena_realloc(NULL, c->n * c->columns_n, sizeof *moments);
    struct profile_course_column **of =
        arena_realloc(NULL, c->n * c->columns_n, sizeof(struct profile_course_column *));
    size_t n = 0;

    EACH (k, c->list, c->n) {
        for (size_t x = 0; k->process == process && profile_courses_lead(c, k) && x < c->columns_n; x++) {
            if (!k->columns[x].known || k->columns[x].high <= 0) continue;
            of[n] = &k->columns[x];
            moments[n++] = (struct category_moment){
                .time_ns = k->columns[x].high_ns, .device = k->device, .layer = k->layer, .bytes = k->columns[x].high};
        }
    }
    bool ok = category_at(&w->b, process, moments, n, error, error_size);
    for (size_t i = 0; ok && i < n; i++) fill_course_column(of[i], &moments[i]);
    ARENA_RELEASE(moments, of);
    return ok;
}

struct profile_courses *profile_courses_build(struct run *run, const struct profile_course_request *wish, char *error,
                                              size_t error_size)
{
    static const struct run_options defaults;
    struct run_observer observers[4] = {0};
    size_t processes;
    struct building *w = arena_realloc(NULL, 1, sizeof *w);
    struct profile_courses *c = arena_realloc(NULL, 1, sizeof *c);

    *c = (struct profile_courses){
        .columns_n = wish->columns, .from_ns = wish->from_ns, .to_ns = wish->to_ns ? wish->to_ns : run_duration(run)};
    c->to_ns = c->to_ns > c->from_ns ? c->to_ns : c->from_ns + 1;
    *w = (struct building){.run = run, .wish = wish, .c = c, .report.run = run};
    w->b = (struct site_builder){
        .run = run, .report = &w->report, .arena = &w->arena, .options = &defaults, .top = SIZE_MAX};
    site_helpers(run, &w->b.helpers);
    step_finder_start(&w->b, &observers[0]);
    category_uses_start(&w->b, &observers[1]);
    observers[2] = (struct run_observer){
        .self = w, .alloc = course_on_alloc, .free = course_on_free, .process_end = course_on_process_end};
    struct question_scopes *scopes = question_scopes_start(&w->b, &observers[3]);
    bool ok = run_replay(run, observers, 4, error, error_size);
    question_scopes_finish(scopes);
    if (ok) {
        list_courses(w);
        list_steps(w);
        ok = list_scopes(w, error, error_size);
    }
    run_processes(run, &processes);
    for (uint32_t i = 0; ok && wish->categories && i < processes; i++) ok = categorise_course(w, i, error, error_size);
    category_uses_free(w->report.uses);
    step_finder_free(w->b.steps);
    site_builder_free(&w->b);
    free(w->lines);
    arena_free(&w->arena);
    free(w);
    if (!ok) {
        profile_courses_free(c);
        return NULL;
    }
    return c;
}

void profile_courses_free(struct profile_courses *c)
{
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) free(c->list[i].columns);
    for (size_t i = 0; i < c->steps_n; i++) free(c->steps[i].starts);
    for (size_t i = 0; i < c->scopes_n; i++) free(c->scopes[i].covered);
    ARENA_RELEASE(c->list, c->steps, c->scopes, c);
}

const struct profile_course *profile_courses_of(const struct profile_courses *c, uint32_t process, int device,
                                                enum run_series_layer layer)
{
    return FIND_OF(l, c->list, c->n, l->process == process && l->device == device && l->layer == layer);
}

bool profile_courses_lead(const struct profile_courses *c, const struct profile_course *k)
{
    return k->layer != RUN_SERIES_DEVICE || !profile_courses_of(c, k->process, k->device, RUN_SERIES_TENSOR);
}
