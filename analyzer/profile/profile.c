#include "analyzer/profile/profile.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/category/category_use.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/units.h"
#include "analyzer/question/question.h"
#include "analyzer/question/wait.h"
#include "analyzer/category/categories.h"
#include "analyzer/base/sort.h"

struct level { /* by series */
    bool chosen;
    int64_t moment_ns; /* RUN_UNKNOWN none */
    int64_t bytes;     /* live then, according to the replay */
};

struct build {
    struct site_builder b; /* for the categories: steps, and an arena */
    struct run *run;
    const struct profile_request *wish;
    struct profile *p;
    size_t cap;
    struct map index; /* of the process to which entries are being added */
    uint32_t process;
    struct level *levels;
    size_t levels_cap;
    const struct run_oom **ooms; /* by process */
    struct profile_sums sums;
    /* the moments of one process, ascending, and the series of each */
    int64_t *moments;
    uint32_t *series_at;
    size_t moments_n;
};

static const struct {
    const char *word, *title;
#define ROW(s, w, t) [PROFILE_##s] = {w, t},
} kinds[] = {PROFILE_KINDS(ROW)};
#undef ROW

const char *profile_word(enum profile_what what)
{
    return kinds[what].word;
}

enum profile_what profile_of_word(const char *word)
{
    unsigned i = 0;
    while (i < PROFILE_KINDS_N && strcmp(kinds[i].word, word) != 0) i++;
    return (enum profile_what)i;
}

static void add_profile_entry(struct build *b, const struct profile_entry *e)
{
    struct profile *p = b->p;
    if (b->process != e->process) {
        map_free(&b->index);
        b->process = e->process;
    }
    uint64_t key =
        (uint64_t)e->stack << 32 | (uint64_t)(uint16_t)e->device << 16 | (uint64_t)e->layer << 8 | e->category;
    uint32_t *at = map_at(&b->index, key);
    if (*at == MAP_NEW) {
        *at = (uint32_t)p->n;
        *ARENA_PUSH(p->entries, p->n, b->cap) = *e;
    } else {
        p->entries[*at].weight = arena_add_capped(p->entries[*at].weight, e->weight);
        p->entries[*at].count += e->count;
    }
}

static void add_live_entry(struct build *b, const struct run_series *s, uint32_t stack, enum result_category category,
                           int64_t bytes, uint64_t count)
{
    add_profile_entry(b, &(struct profile_entry){.process = s->process,
                                                 .stack = stack,
                                                 .device = s->device,
                                                 .layer = s->layer,
                                                 .category = category,
                                                 .weight = bytes,
                                                 .count = count});
}

static bool process_is_chosen(const struct build *b, uint32_t process)
{
    return b->wish->process < 0 || (uint32_t)b->wish->process == process;
}

static int64_t moment_of(const struct build *b, const struct run_series *s)
{
    const struct profile_request *w = b->wish;
    if (w->what == PROFILE_OOM) return b->ooms[s->process] ? b->ooms[s->process]->time_ns : RUN_UNKNOWN;
    if (!w->moments) return w->at_ns;
    EACH_IN (m, w->moments)
        if (m->process == s->process && m->device == s->device && m->layer == s->layer) return m->time_ns;
    return RUN_UNKNOWN;
}

static void watch_lifetime(struct build *b, const struct run_lifetime *life, const struct run_series *series,
                           int64_t now)
{
    struct level *l = SITE_REACH(b->levels, life->series, b->levels_cap);
    const int64_t moment_ns = moment_of(b, series);
    if (now <= moment_ns) {
        l->bytes = series->live_bytes;
        l->moment_ns = moment_ns;
    }
}

static void watch_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    watch_lifetime(self, life, series, life->alloc_ns);
}

static void watch_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    watch_lifetime(self, life, series, life->free_ns);
}

static void sum_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct build *b = self;
    profile_sums_add(&b->sums, life, RUN_NONE, 0);
}

/* Its category follows from the calls that made and freed it. */
static void sum_on_row(void *self, const struct run_lifetime *life, uint32_t free_stack)
{
    struct build *b = self;
    profile_sums_add(&b->sums, life, free_stack,
                     category_uses_of(b->b.report->uses, b->process, life->stack, life->alloc_ns, life->free_ns));
}

/* The rows in any order of their frees: after a replay, which found the uses. */
static bool sum_by_category(struct build *b, char *error, size_t error_size)
{
    profile_sums_start(&b->sums, b->run, true);
    b->b.report->uses = b->wish->uses ? b->wish->uses : category_uses_read(b->run, b->wish->beside, error, error_size);
    bool ok = b->b.report->uses != NULL;
    for (uint32_t i = 0; ok && i < RUN_COUNT(run_processes, b->run); i++) {
        b->process = i;
        profile_sums_start_process(&b->sums, i);
        ok = !process_is_chosen(b, i) || run_each_last(b->run, i, RUN_LAST_ALL, sum_on_row, b, error, error_size);
    }
    b->process = RUN_NONE;
    return ok;
}

/* After a replay each series has what was live at its end, and its maximum. */
static void take_levels(struct build *b)
{
    const bool peak = b->wish->what == PROFILE_PEAK;
    for (uint32_t i = 0; i < run_series_count(b->run); i++) {
        const struct run_series *s = run_series(b->run, i);
        *SITE_REACH(b->levels, i, b->levels_cap) = (struct level){.bytes = peak ? s->peak_bytes : s->live_bytes,
                                                                  .moment_ns = peak ? s->peak_ns : b->wish->at_ns};
    }
}

static bool replay_profile(struct build *b, char *error, size_t error_size)
{
    const struct profile_request *w = b->wish;
    const bool at_moment = w->what == PROFILE_OOM || w->what == PROFILE_AT;
    struct run_observer observers[4];
    size_t n = 0;
    if (w->report) step_finder_adopt(&b->b, w->report);
    if (w->what == PROFILE_ALLOCATED && (w->sums || w->categories))
        return w->sums || sum_by_category(b, error, error_size);
    if (at_moment)
        observers[n++] = (struct run_observer){.self = b, .alloc = watch_on_alloc, .free = watch_on_free};
    else if (w->what == PROFILE_ALLOCATED)
        observers[n++] = (struct run_observer){.self = b, .alloc = sum_on_alloc};
    if (w->categories && !w->uses) {
        step_finder_start(&b->b, &observers[n++]);
        category_uses_start(&b->b, &observers[n++]);
    }
    if (w->beside) observers[n++] = *w->beside;
    const bool replayed = (w->what == PROFILE_END && w->uses) || (w->what == PROFILE_PEAK && w->report);
    if (!replayed && !run_replay(b->run, observers, n, error, error_size)) return false;
    if (!at_moment) take_levels(b);
    return true;
}

/* A run without GPU, whose tensors were requested. */
static bool no_device_memory(const struct run *run)
{
    for (size_t i = 0; i < run_series_count(run); i++) {
        const struct run_series *s = run_series(run, (uint32_t)i);
        if (s->layer != RUN_SERIES_HOST && s->layer != RUN_SERIES_PINNED) return false;
    }
    return true;
}

static bool did_series_run_out(const struct run_oom *o, const struct run_series *s)
{
    bool pinned = o->layer == GS_LAYER_DEVICE && o->space == GS_SPACE_PINNED;
    return pinned ? s->layer == RUN_SERIES_PINNED : s->device == o->device;
}

bool profile_layer(const struct run *run, int layer, const struct run_series *s)
{
    switch (s->layer) {
    case RUN_SERIES_TENSOR: return layer < 0 || layer == RUN_SERIES_TENSOR;
    case RUN_SERIES_DEVICE:
        return layer < 0 ? run_find_series(run, s->process, s->device, RUN_SERIES_TENSOR) == RUN_NONE
                         : layer == RUN_SERIES_DEVICE;
    case RUN_SERIES_PINNED:
    case RUN_SERIES_HOST: return layer == PROFILE_ALL || layer == (int)s->layer || (layer < 0 && no_device_memory(run));
    default: return layer == (int)s->layer;
    }
}

static bool series_is_chosen(const struct build *b, const struct run_series *s)
{
    const struct profile_request *w = b->wish;
    const struct run_oom *oom = b->ooms ? b->ooms[s->process] : NULL;
    if (!process_is_chosen(b, s->process) || (w->device >= 0 && s->device >= 0 && s->device != w->device)) return false;
    if (w->what == PROFILE_OOM && w->layer == PROFILE_USUAL && oom) {
        bool pinned = s->layer == RUN_SERIES_PINNED && s->device < 0;
        return did_series_run_out(oom, s) && (pinned || profile_layer(b->run, w->layer, s));
    }
    return profile_layer(b->run, w->layer, s);
}

/* The last failure from which the program did not recover, else the last one. */
static void find_ooms(struct build *b)
{
    size_t processes;
    run_processes(b->run, &processes);
    b->ooms = arena_zeroed(processes, sizeof *b->ooms);
    RUN_EACH (all, run_ooms, b->run) {
        const struct run_oom **last = &b->ooms[all->process];
        bool here = b->wish->device < 0 || all->device < 0 || all->device == b->wish->device;
        if (here && (!*last || all->fatal >= (*last)->fatal)) *last = all;
    }
}

static bool has_moment(const struct build *b, uint32_t series)
{
    return series < b->levels_cap && b->levels[series].chosen && b->levels[series].bytes > 0;
}

/* Few: a process has a handful of series. */
static void list_profile_moments(struct build *b, uint32_t process)
{
    b->moments_n = 0;
    for (uint32_t i = 0; i < run_series_count(b->run); i++) {
        if (run_series(b->run, i)->process != process || !has_moment(b, i)) continue;
        size_t at = b->moments_n++;
        for (; at > 0 && b->moments[at - 1] > b->levels[i].moment_ns; at--) {
            b->moments[at] = b->moments[at - 1];
            b->series_at[at] = b->series_at[at - 1];
        }
        b->moments[at] = b->levels[i].moment_ns;
        b->series_at[at] = i;
    }
}

static void profile_on_live_at(void *self, size_t moment, const struct run_lifetime *life, uint32_t free_stack)
{
    struct build *b = self;
    if (life->series == b->series_at[moment]) {
        add_live_entry(b, run_series(b->run, life->series), life->stack, RESULT_CATEGORY_UNKNOWN, life->bytes, 1);
        struct level *l = &b->levels[life->series];
        l->bytes = arena_add_capped(l->bytes, -life->bytes);
    }
}

/* Rows with inconsistent times may have been live in the replay and not be found again. */
static void add_missing(struct build *b, uint32_t series, int64_t bytes)
{
    if (bytes > 0) add_live_entry(b, run_series(b->run, series), RUN_NONE, RESULT_CATEGORY_UNKNOWN, bytes, 0);
}

static bool add_plain_entries(struct build *b, uint32_t process, char *error, size_t error_size)
{
    if (!run_each_live_at(b->run, process, b->moments, b->moments_n, profile_on_live_at, b, error, error_size))
        return false;
    for (size_t i = 0; i < b->moments_n; i++) add_missing(b, b->series_at[i], b->levels[b->series_at[i]].bytes);
    return true;
}

static bool add_by_category(struct build *b, uint32_t process, char *error, size_t error_size)
{
    struct category_moment *m = arena_realloc(NULL, b->moments_n, sizeof *m);
    for (size_t i = 0; i < b->moments_n; i++) {
        const struct run_series *s = run_series(b->run, b->series_at[i]);
        m[i] = (struct category_moment){.time_ns = b->moments[i],
                                        .device = s->device,
                                        .layer = s->layer,
                                        .bytes = b->levels[b->series_at[i]].bytes};
    }
    bool ok = category_at(&b->b, process, m, b->moments_n, error, error_size);
    for (size_t i = 0; ok && i < b->moments_n; i++) {
        int64_t left = m[i].bytes;
        for (size_t k = 0; k < m[i].by.lines_n; k++) {
            const struct result_category_line *line = &m[i].by.lines[k];
            add_live_entry(b, run_series(b->run, b->series_at[i]), line->stack, line->category, line->bytes,
                           line->count);
            left = arena_add_capped(left, -line->bytes);
        }
        add_missing(b, b->series_at[i], left);
    }
    free(m);
    return ok;
}

static void note_moments(struct build *b, uint32_t process)
{
    int64_t most = -1;
    for (size_t i = 0; i < b->moments_n; i++) {
        if (b->levels[b->series_at[i]].bytes > most) {
            most = b->levels[b->series_at[i]].bytes;
            b->p->moments[process] = b->moments[i];
        }
    }
}

static bool add_moments(struct build *b, char *error, size_t error_size)
{
    size_t series = run_series_count(b->run);
    bool ok = true;
    b->moments = arena_realloc(NULL, series, sizeof *b->moments);
    b->series_at = arena_realloc(NULL, series, sizeof *b->series_at);
    for (uint32_t i = 0; i < series; i++)
        SITE_REACH(b->levels, i, b->levels_cap)->chosen = series_is_chosen(b, run_series(b->run, i));
    for (uint32_t i = 0; ok && i < b->p->moments_n; i++) {
        list_profile_moments(b, i);
        note_moments(b, i);
        if (b->moments_n) {
            ok = b->wish->categories ? add_by_category(b, i, error, error_size)
                                     : add_plain_entries(b, i, error, error_size);
        }
    }
    return ok;
}

/* What is live at the end of the replay needs no moment. */
static void add_locations(struct build *b)
{
    const bool end = b->wish->what == PROFILE_END;
    const struct profile_sums *sums = b->wish->sums ? b->wish->sums : &b->sums;
    for (uint32_t i = 0; i < run_location_count(b->run); i++) {
        const struct run_location *l = run_location(b->run, i);
        const struct run_series *s = run_series(b->run, l->series);
        for (unsigned c = 0; c < RESULT_CATEGORIES_N; c++) {
            struct profile_sum sum = {c == RESULT_CATEGORY_UNKNOWN ? l->live_bytes : 0,
                                      c == RESULT_CATEGORY_UNKNOWN ? l->live_count : 0};
            if (!end) sum = profile_sums_of(sums, i, (enum result_category)c);
            if (sum.count && sum.bytes > 0 && series_is_chosen(b, s))
                add_live_entry(b, s, l->stack, (enum result_category)c, sum.bytes, sum.count);
        }
    }
}

/* From rows that a recording of bounded size lost; their categories are unknown. */
static void add_removed_allocations(struct build *b)
{
    RUN_EACH (r, run_removed, b->run) {
        const enum run_series_layer layer = run_removed_layer(r);
        const bool host = layer == RUN_SERIES_PINNED || layer == RUN_SERIES_HOST;
        const struct run_series s = {.process = r->process, .device = host ? -1 : r->device, .layer = layer};
        if (r->what == GS_REMOVED_ALLOCATION && r->bytes > 0 && series_is_chosen(b, &s))
            add_live_entry(b, &s, r->stack, RESULT_CATEGORY_UNKNOWN, r->bytes, r->count);
    }
}

static void note_ends(struct build *b)
{
    size_t n;
    const struct run_process *p = run_processes(b->run, &n);
    for (size_t i = 0; i < b->p->n; i++) b->p->moments[b->p->entries[i].process] = p[b->p->entries[i].process].end_ns;
}

static bool add_memory(struct build *b, char *error, size_t error_size)
{
    enum profile_what what = b->wish->what;
    if (what == PROFILE_OOM) find_ooms(b);
    if (!replay_profile(b, error, error_size)) return false;
    if (what == PROFILE_ALLOCATED) add_removed_allocations(b);
    if (what == PROFILE_ALLOCATED || (what == PROFILE_END && !b->wish->categories))
        add_locations(b);
    else if (!add_moments(b, error, error_size))
        return false;
    if (what == PROFILE_END) note_ends(b);
    return true;
}

static void add_calls_of(struct build *b, uint32_t process, uint32_t stack, int device, int64_t weight, uint64_t count)
{
    const struct profile_request *w = b->wish;
    if (process_is_chosen(b, process) && (w->device < 0 || device < 0 || device == w->device)) {
        add_profile_entry(b, &(struct profile_entry){.process = process,
                                                     .stack = stack,
                                                     .device = device,
                                                     .category = RESULT_CATEGORY_UNKNOWN,
                                                     .weight = weight,
                                                     .count = count});
    }
}

static void profile_on_wait(void *self, const struct question_wait *w)
{
    add_calls_of(self, w->process, w->stack, w->device, w->blocked_ns, w->count);
}

static void profile_on_call(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct build *b = self;
    if (copy) add_calls_of(b, copy->process, copy->stack, copy->device, copy->bytes, 1);
}

static void profile_on_call_wait(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    question_waits_add(self, copy, sync);
}

/* From rows that a recording of bounded size lost. */
static void add_removed_copies(struct build *b)
{
    RUN_EACH (r, run_removed, b->run)
        if (r->what == GS_REMOVED_COPY) add_calls_of(b, r->process, r->stack, r->device, r->bytes, r->count);
}

static bool add_calls(struct build *b, char *error, size_t error_size)
{
    if (b->wish->what == PROFILE_COPIES) {
        add_removed_copies(b);
        return run_each_call(b->run, profile_on_call, b, error, error_size);
    }
    struct question_signer *signer = question_signer_new(b->run, b->b.arena);
    struct question_waits *w = question_waits_new(b->run, signer, profile_on_wait, b);
    bool ok = run_each_call(b->run, profile_on_call_wait, w, error, error_size);
    question_waits_free(w);
    question_signer_free(signer);
    return ok;
}

SORT_ORDER(compare_entries, struct profile_entry,
           SORT_DOWN(x->weight, y->weight) ?: SORT_UP(x->process, y->process) ?: SORT_UP(x->stack, y->stack)
               ?: SORT_UP(x->device, y->device) ?: SORT_UP(x->category, y->category))

static void finish_profile(struct profile *p)
{
    SORT(p->entries, p->n, compare_entries);
    for (size_t i = 0; i < p->n; i++) {
        p->total = arena_add_capped(p->total, p->entries[i].weight);
        p->count += p->entries[i].count;
    }
}

struct profile *profile_build(struct run *run, const struct profile_request *wish, char *error, size_t error_size)
{
    static const struct run_options defaults;
    struct arena arena = {0};
    struct result_report report = {.run = run, .uses = wish->uses};
    struct profile *p = arena_realloc(NULL, 1, sizeof *p);
    struct build b = {.run = run, .wish = wish, .p = p, .process = RUN_NONE};
    struct profile_request end = *wish;
    bool calls = wish->what == PROFILE_WAITS || wish->what == PROFILE_COPIES;
    if (wish->what == PROFILE_END) {
        end.at_ns = RUN_NEVER - 1;
        b.wish = &end;
    }
    *p = (struct profile){.unit = wish->what == PROFILE_WAITS ? "ns" : "bytes",
                          .title = wish->title ? wish->title : kinds[wish->what].title};
    run_processes(run, &p->moments_n);
    p->moments = arena_realloc(NULL, p->moments_n, sizeof *p->moments);
    for (size_t i = 0; i < p->moments_n; i++) p->moments[i] = RUN_UNKNOWN;
    b.b = (struct site_builder){.run = run, .report = &report, .arena = &arena, .options = &defaults, .top = SIZE_MAX};
    site_helpers(run, &b.b.helpers);
    bool ok = calls ? add_calls(&b, error, error_size) : add_memory(&b, error, error_size);
    finish_profile(p);
    if (wish->what == PROFILE_PEAK && run_why_unknown(run, RUN_FACT_HISTORY)) {
        p->title = "live"; /* at the only moment that is known */
        for (size_t i = 0; i < p->moments_n; i++) p->moments[i] = RUN_UNKNOWN;
    }
    if (report.uses != wish->uses) category_uses_free(report.uses);
    step_finder_free(b.b.steps);
    profile_sums_free(&b.sums);
    site_builder_free(&b.b);
    map_free(&b.index);
    ARENA_RELEASE(b.levels, b.ooms, b.moments, b.series_at);
    arena_free(&arena);
    if (!ok) {
        profile_free(p);
        return NULL;
    }
    return p;
}

void profile_free(struct profile *p)
{
    if (p) ARENA_RELEASE(p->entries, p->moments, p);
}

bool profile_is_start(const struct run_frame *f)
{
    static const char *const names[] = {"_start",
                                        "clone",
                                        "clone3",
                                        "start_thread",
                                        "__libc_start_main",
                                        "__libc_start_main_impl",
                                        "__libc_start_call_main"};
    return f && f->kind == GS_FRAME_NATIVE && f->function && TEXT_IS_ONE_OF(f->function, names);
}

/* The C++ library's own calls, thrust's, and the like. */
static bool is_system_header(const struct run_frame *f)
{
    return f->kind == GS_FRAME_NATIVE && f->file && symbolizer_is_system_file(f->file);
}

size_t profile_frames(struct run *run, uint32_t stack, bool native, const struct run_frame **out, size_t room)
{
    size_t n = 0;
    bool python = stack != RUN_NONE && run_stack_python(run, stack) != RUN_NONE, all = native || !python;
    const char *operation = native || stack == RUN_NONE ? NULL
                            : python                    ? site_of(run, stack, NULL).operation
                                                        : site_operation(run, stack);
    if (operation && room) out[n++] = run_operation_frame(run, operation);
    if (operation && !python) return n;
    for (uint32_t i = stack; i != RUN_NONE && n < room; i = run_stack_parent(run, i)) {
        if (all || run_stack_frame(run, i)->kind == GS_FRAME_PYTHON) {
            size_t places;
            const struct run_frame *f = run_frame_places(run, i, &places);
            for (size_t k = 0; k < places && n < room; k++)
                if (native || !is_system_header(&f[k])) out[n++] = &f[k];
        }
    }
    while (!native && n > 1 && profile_is_start(out[n - 1])) n--;
    for (size_t i = 0; i < n / 2; i++) {
        const struct run_frame *f = out[i];
        out[i] = out[n - 1 - i];
        out[n - 1 - i] = f;
    }
    return n;
}

bool profile_has_rows(const struct run *run, uint32_t process, int64_t time_ns)
{
    bool of_peak = false;
    for (uint32_t i = 0; i < run_series_count(run); i++) {
        const struct run_series *s = run_series(run, i);
        of_peak = of_peak || (s->process == process && s->layer < RUN_SERIES_SHARED && s->peak_ns == time_ns);
    }
    return of_peak || time_ns >= run_process_at(run, process)->kept_from_ns;
}

bool profile_is_removed(const struct run *run, int64_t at_ns, char *why, size_t why_size)
{
    char at[UNITS_TEXT], from[UNITS_TEXT];
    const int64_t kept_ns = run_kept_from(run);
    if (at_ns >= kept_ns) return false;
    snprintf(
        why, why_size,
        "this recording is bounded (GPUSPY_KEEP): the rows of what was live at %s were removed; choose the peak, a "
        "failure or a time after %s",
        units_format_seconds(at, (double)at_ns / 1e9), units_format_seconds(from, (double)kept_ns / 1e9));
    return true;
}
