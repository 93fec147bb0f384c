/* A scope: the maximum of the live memory on each device while an NVTX range of a name was open, on any thread.
 *
 * The open scopes are in a list, in the order in which they were opened. Each stores the maximum between its own
 * opening and the opening of the next one, so an allocation changes only the last scope. A scope that closes takes the
 * maximum over itself and all later ones, and passes its own figure on to the scope before it. Ranges are read from the
 * file as time advances, and their ends are in a heap: memory is bounded by the number of names and of open ranges.
 */
#include "analyzer/question/question.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/sort.h"

enum {
    SCOPES = 4096, /* names per process; others are left out */
    SERIES = 64,   /* per process: devices and layers */
    ALIKE = 64,    /* more names than this that differ only in their numbers are combined */
    NOBODY = UINT32_MAX
};

struct figure { /* of one scope in one series */
    int64_t most, most_ns, entry;
    int64_t peak, peak_ns, peak_entry, peak_exit;
    int64_t late_exit; /* of the visit that was open at the last removal of rows */
    bool any, late;    /* late: it ended */
};

struct scope {
    const char *name, *domain;
    uint64_t count, unended;
    int64_t total_ns;
    uint64_t depth;         /* ranges that are open now */
    int64_t start_ns;       /* … since when */
    uint32_t before, after; /* neighbours in the list, while it is open */
    struct figure *of;      /* by series */
    size_t of_cap;
    bool removed; /* run_removed_scopes has figures of it */
};

struct end {
    int64_t ns;
    uint32_t scope;
};

struct series {
    uint32_t number;
    int64_t now;
};

struct question_scopes {
    struct site_builder *b;
    struct map alike; /* pattern → number of names */
    struct run_mark_rows *rows;
    struct run_mark next; /* the next range; start_ns RUN_NEVER: there is none */
    int64_t counted_ns;   /* of a bounded recording: earlier ranges are counted by their remaining rows; else -1 */
    int64_t kept_from_ns; /* … from this time on all rows exist; 0: from the start */
    bool known;           /* … and the peaks of all ranges before that */
    struct map index;     /* name, domain → scope */
    ARENA_LIST(struct scope, scopes);
    uint32_t last;                /* of the list of open ones */
    ARENA_LIST(struct end, ends); /* a heap, the earliest first */
    struct series series[SERIES];
    size_t series_n;
    uint64_t left_out; /* names */
    struct result_scope *list;
    size_t n, cap;
};

static void ends_push(struct question_scopes *s, struct end e)
{
    (void)ARENA_ADD(s->ends);
    size_t i = s->ends_n - 1;
    for (; i && s->ends[(i - 1) / 2].ns > e.ns; i = (i - 1) / 2) s->ends[i] = s->ends[(i - 1) / 2];
    s->ends[i] = e;
}

static struct end ends_pop(struct question_scopes *s)
{
    struct end first = s->ends[0], e = s->ends[--s->ends_n];
    size_t i = 0, child;
    for (; (child = 2 * i + 1) < s->ends_n; i = child) {
        child += child + 1 < s->ends_n && s->ends[child + 1].ns < s->ends[child].ns;
        if (s->ends[child].ns >= e.ns) break;
        s->ends[i] = s->ends[child];
    }
    s->ends[i] = e;
    return first;
}

/* The name unchanged, except that many names like "step 1", "step 2" become "step #". */
static const char *scope_name_of(struct question_scopes *s, const char *full, const char *pattern)
{
    uint32_t alike = map_get(&s->alike, (uintptr_t)pattern);
    return alike != MAP_NEW && alike > ALIKE ? pattern : run_text(s->b->run, full, strlen(full));
}

static uint32_t scope_of_mark(struct question_scopes *s, const char *full, const char *pattern, const char *full_domain)
{
    const char *name = scope_name_of(s, full, pattern);
    const char *domain = full_domain ? run_text(s->b->run, full_domain, strlen(full_domain)) : NULL;
    uint64_t key = map_hash((uintptr_t)name) ^ map_hash((uintptr_t)domain + 1);
    uint32_t *at = map_at(&s->index, key);
    if (*at == MAP_NEW && s->scopes_n < SCOPES) {
        *at = (uint32_t)s->scopes_n;
        *ARENA_ADD(s->scopes) = (struct scope){.name = name, .domain = domain};
    } else if (*at == MAP_NEW) {
        *at = NOBODY - 1;
        s->left_out++;
    }
    return *at < s->scopes_n ? *at : NOBODY;
}

static uint32_t scope_of_removed(struct question_scopes *s, const struct run_removed_scope *r)
{
    return scope_of_mark(s, r->name, run_mark_pattern(s->b->run, r->name), r->domain);
}

/* Corrects the live memory at the beginning of the visit that was open at the last removal of rows. */
static void correct_entries(struct question_scopes *s, uint32_t number)
{
    for (size_t i = 0; i < s->series_n; i++) {
        const struct run_series *series = run_series(s->b->run, s->series[i].number);
        RUN_EACH (r, run_removed_scopes, s->b->run) {
            bool same = r->process == series->process && r->device == series->device && r->layer == series->layer;
            if (same && r->open_entry_bytes != RUN_UNKNOWN && scope_of_removed(s, r) == number)
                s->scopes[number].of[i].entry = r->open_entry_bytes;
        }
    }
}

static void open_scope_range(struct question_scopes *s, const struct run_mark *m)
{
    uint32_t number = scope_of_mark(s, m->full, m->name, m->full_domain);
    if (number == NOBODY) return;
    struct scope *scope = &s->scopes[number];
    scope->count += m->start_ns > s->counted_ns || !scope->removed;
    if (m->end_ns == RUN_NEVER) {
        scope->unended++;
    } else {
        if (m->end_ns > s->counted_ns || !scope->removed)
            scope->total_ns = arena_add_capped(scope->total_ns, m->end_ns - m->start_ns);
        ends_push(s, (struct end){m->end_ns, number});
    }
    if (scope->depth++) return;
    scope->start_ns = m->start_ns;
    scope->before = s->last;
    scope->after = NOBODY;
    if (s->last != NOBODY) s->scopes[s->last].after = number;
    s->last = number;
    for (size_t i = 0; i < s->series_n; i++) {
        struct figure *f = SITE_REACH(scope->of, i, scope->of_cap);
        f->most = f->entry = s->series[i].now;
        f->most_ns = m->start_ns;
    }
    if (m->start_ns < s->kept_from_ns) /* rows of that time are missing */
        correct_entries(s, number);
}

static void raise_figure(struct figure *f, int64_t bytes, int64_t ns)
{
    if (bytes > f->most) {
        f->most = bytes;
        f->most_ns = ns;
    }
}

/* The maximum in one series since the scope was opened. */
static void close_figure(struct question_scopes *s, struct scope *scope, size_t i, int64_t end_ns)
{
    struct figure *f = SITE_REACH(scope->of, i, scope->of_cap), most = *f;
    for (uint32_t at = scope->after; at != NOBODY; at = s->scopes[at].after) {
        const struct scope *later = &s->scopes[at];
        if (i < later->of_cap) raise_figure(&most, later->of[i].most, later->of[i].most_ns);
    }
    if (!f->any || most.most > f->peak) {
        f->any = true;
        f->peak = most.most;
        f->peak_ns = most.most_ns;
        f->peak_entry = f->entry;
        f->peak_exit = end_ns != RUN_NEVER ? s->series[i].now : RUN_UNKNOWN;
    }
    if (scope->start_ns <= s->counted_ns && end_ns > s->counted_ns && end_ns != RUN_NEVER) {
        f->late = true;
        f->late_exit = s->series[i].now;
    }
    if (scope->before != NOBODY) {
        struct scope *earlier = &s->scopes[scope->before];
        raise_figure(SITE_REACH(earlier->of, i, earlier->of_cap), f->most, f->most_ns);
    }
    f->most = f->entry = 0; /* of a series that the next visit does not know yet */
}

/* `end_ns` RUN_NEVER: the process ends, and the scope does not. */
static void close_scope(struct question_scopes *s, uint32_t number, int64_t end_ns)
{
    struct scope *scope = &s->scopes[number];
    for (size_t i = 0; i < s->series_n; i++) close_figure(s, scope, i, end_ns);
    if (scope->before != NOBODY) s->scopes[scope->before].after = scope->after;
    if (scope->after != NOBODY)
        s->scopes[scope->after].before = scope->before;
    else
        s->last = scope->before;
    scope->depth = 0;
}

static void read_next(struct question_scopes *s)
{
    while (s->rows && run_mark_rows_next(s->rows, &s->next))
        if (s->next.name && (s->next.kind == GS_MARK_PUSH || s->next.kind == GS_MARK_START)) return;
    s->next.start_ns = RUN_NEVER;
}

/* Everything that begins up to `until`, and ends before it: an allocation at the time at which a range begins or ends
 * is in it. */
static void pass_time(struct question_scopes *s, int64_t until)
{
    for (;;) {
        int64_t end = s->ends_n ? s->ends[0].ns : RUN_NEVER, start = s->next.start_ns;
        if (end <= start && end < until) {
            uint32_t number = ends_pop(s).scope;
            if (s->scopes[number].depth == 1)
                close_scope(s, number, end);
            else
                s->scopes[number].depth--;
        } else if (start <= until && start != RUN_NEVER) {
            open_scope_range(s, &s->next);
            read_next(s);
        } else {
            return;
        }
    }
}

static size_t scope_series_of(struct question_scopes *s, uint32_t number)
{
    for (size_t i = 0; i < s->series_n; i++)
        if (s->series[i].number == number) return i;
    if (s->series_n < SERIES) {
        s->series[s->series_n++] = (struct series){.number = number};
        return s->series_n - 1;
    }
    return SERIES;
}

static void scope_on_event(struct question_scopes *s, const struct run_lifetime *life, const struct run_series *series,
                           int64_t time_ns)
{
    if (series->device < 0 || (series->layer != RUN_SERIES_DEVICE && series->layer != RUN_SERIES_TENSOR)) return;
    pass_time(s, time_ns);
    size_t i = scope_series_of(s, life->series);
    if (i == SERIES) return;
    s->series[i].now = series->live_bytes;
    if (s->last != NOBODY) {
        struct scope *last = &s->scopes[s->last];
        raise_figure(SITE_REACH(last->of, i, last->of_cap), series->live_bytes, time_ns);
    }
}

static void scope_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    scope_on_event(self, life, series, life->alloc_ns);
}

static void scope_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    scope_on_event(self, life, series, life->free_ns);
}

static struct result_scope row_for(const struct scope *scope, uint32_t process)
{
    return (struct result_scope){.process = process,
                                 .name = scope->name,
                                 .domain = scope->domain,
                                 .count = scope->count,
                                 .open = scope->unended,
                                 .total_s = (double)scope->total_ns / 1e9,
                                 .device = -1,
                                 .layer = RUN_SERIES_DEVICE,
                                 .peak_ns = RUN_UNKNOWN,
                                 .peak_time_s = __builtin_nan("")};
}

/* Up to the last removal of rows the number of ranges is known; each name has a row for each series. */
static void count_removed(struct question_scopes *s, uint32_t process)
{
    size_t n;
    const struct run_removed_scope *all = run_removed_scopes(s->b->run, &n);
    const struct run_process *p = &run_processes(s->b->run, &(size_t){0})[process];
    s->counted_ns = -1;
    s->kept_from_ns = p->kept_from_ns;
    s->known = p->scopes_are_known;
    for (size_t i = 0; i < n; i++) {
        const struct run_removed_scope *r = &all[i], *before = i ? r - 1 : NULL;
        if (r->process != process) continue;
        bool same = before && before->process == process && strcmp(before->name, r->name) == 0 &&
                    strcmp(before->domain ? before->domain : "", r->domain ? r->domain : "") == 0;
        uint32_t number = same ? NOBODY : scope_of_removed(s, r);
        s->counted_ns = r->until_ns;
        if (number != NOBODY) {
            s->scopes[number].removed = true;
            s->scopes[number].count += r->count;
            s->scopes[number].total_ns = arena_add_capped(s->scopes[number].total_ns, r->ended_ns);
        }
    }
}

static struct result_scope *row_of(struct question_scopes *s, size_t from, const struct scope *scope,
                                   const struct run_removed_scope *r)
{
    for (size_t i = from; i < s->n; i++) {
        struct result_scope *row = &s->list[i];
        bool same = row->name == scope->name && row->domain == scope->domain;
        if (same && row->device == r->device && row->layer == r->layer) return row;
    }
    return NULL;
}

static int64_t late_exit(struct question_scopes *s, const struct scope *scope, const struct run_removed_scope *r)
{
    for (size_t i = 0; i < s->series_n && i < scope->of_cap; i++) {
        const struct run_series *series = run_series(s->b->run, s->series[i].number);
        if (scope->of[i].late && series->device == r->device && series->layer == r->layer)
            return scope->of[i].late_exit;
    }
    return RUN_UNKNOWN;
}

/* If a name has no row of the series yet, one is added, or replaces the row that states that nothing was live. */
static void add_removed(struct question_scopes *s, size_t from, uint32_t process)
{
    size_t n;
    const struct run_removed_scope *all = run_removed_scopes(s->b->run, &n);
    EACH (r, all, n) {
        uint32_t number = r->process == process && r->device >= 0 ? scope_of_removed(s, r) : NOBODY;
        if (number == NOBODY) continue;
        const struct scope *scope = &s->scopes[number];
        struct result_scope *row = row_of(s, from, scope, r);
        if (!row) {
            const struct run_removed_scope none = {.device = -1, .layer = RUN_SERIES_DEVICE};
            struct result_scope new = row_for(scope, process);
            row = row_of(s, from, scope, &none);
            row = row ? row : ARENA_PUSH(s->list, s->n, s->cap);
            new.device = r->device;
            new.layer = r->layer;
            *row = new;
        }
        if (r->peak_bytes >= row->peak_bytes) {
            row->peak_bytes = r->peak_bytes;
            row->peak_ns = r->peak_ns;
            row->peak_time_s = site_seconds(r->peak_ns);
            row->entry_bytes = r->entry_bytes;
            row->exit_bytes = r->exit_bytes == RUN_UNKNOWN ? late_exit(s, scope, r) : r->exit_bytes;
        }
    }
}

static void scope_on_process_start(void *self, uint32_t process)
{
    struct question_scopes *s = self;
    s->rows = run_mark_rows_open(s->b->run, process);
    s->last = NOBODY;
    count_removed(s, process);
    read_next(s);
}

/* A row for each device and layer with live memory; for a scope without memory one row that states so. */
static void list_scope(struct question_scopes *s, const struct scope *scope, uint32_t process)
{
    struct result_scope row = row_for(scope, process);
    size_t before = s->n;
    row.incomplete = s->kept_from_ns && !scope->removed && !s->known;
    for (size_t i = 0; i < s->series_n; i++) {
        const struct figure *f = i < scope->of_cap ? &scope->of[i] : NULL;
        const struct run_series *series = run_series(s->b->run, s->series[i].number);
        if (f && f->any && f->peak > 0) {
            row.device = series->device;
            row.layer = series->layer;
            row.peak_bytes = f->peak;
            row.peak_ns = f->peak_ns;
            row.peak_time_s = site_seconds(f->peak_ns);
            row.entry_bytes = f->peak_entry;
            row.exit_bytes = f->peak_exit;
            *ARENA_PUSH(s->list, s->n, s->cap) = row;
        }
    }
    if (s->n == before) *ARENA_PUSH(s->list, s->n, s->cap) = row;
}

static void scope_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct question_scopes *s = self;
    char error[256]; /* of a damaged table: other questions report it */
    pass_time(s, RUN_NEVER - 1);
    for (uint32_t at = s->last, before; at != NOBODY; at = before) {
        before = s->scopes[at].before;
        close_scope(s, at, RUN_NEVER);
    }
    const size_t first = s->n;
    for (size_t i = 0; i < s->scopes_n; i++) list_scope(s, &s->scopes[i], process);
    add_removed(s, first, process);
    for (size_t i = 0; i < s->scopes_n; i++) free(s->scopes[i].of);
    run_mark_rows_close(s->rows, error, sizeof error);
    map_free(&s->index);
    s->index = (struct map){0};
    s->rows = NULL;
    s->scopes_n = s->ends_n = s->series_n = 0;
}

static void count_alike(struct question_scopes *s, struct map *seen, const char *name)
{
    uint32_t *before = name ? map_at(seen, (uintptr_t)name) : NULL; /* equal texts of a run are the same pointer */
    if (before && *before == MAP_NEW) {
        uint32_t *alike = map_at(&s->alike, (uintptr_t)run_mark_pattern(s->b->run, name));
        *alike = *alike == MAP_NEW ? 1 : *alike + 1;
        *before = 1;
    }
}

struct question_scopes *question_scopes_start(struct site_builder *b, struct run_observer *observer)
{
    struct map seen = {0};
    size_t n, removed_n;
    const struct run_mark_total *all = run_marks(b->run, &n);
    const struct run_removed_scope *removed = run_removed_scopes(b->run, &removed_n);
    struct question_scopes *s = ARENA_NEW(struct question_scopes, .b = b);
    for (size_t i = 0; i < n; i++) count_alike(s, &seen, all[i].name);
    for (size_t i = 0; i < removed_n; i++) count_alike(s, &seen, removed[i].name);
    map_free(&seen);
    if (s->alike.n && !run_why_unknown(b->run, RUN_FACT_MEMORY)) {
        *observer = (struct run_observer){.self = s,
                                          .process_start = scope_on_process_start,
                                          .alloc = scope_on_alloc,
                                          .free = scope_on_free,
                                          .process_end = scope_on_process_end};
    }
    return s;
}

SORT_ORDER(compare_scopes, struct result_scope,
           SORT_DOWN(x->peak_bytes, y->peak_bytes) ?: strcmp(x->name, y->name)
               ?: sort_compare_texts(x->domain, y->domain)
               ?: SORT_UP(x->process, y->process)
               ?: SORT_UP(x->device, y->device)
               ?: SORT_UP(x->layer, y->layer))

void question_scopes_finish(struct question_scopes *s)
{
    struct result_report *r = s->b->report;
    r->scopes = site_list(s->b, s->list, s->n, sizeof *s->list, compare_scopes, &r->scopes_n, &r->scopes_total);
    if (s->left_out) {
        run_add_note(s->b->run, "the peaks of NVTX ranges of %llu more names are left out",
                     (unsigned long long)s->left_out);
    }
    if (s->rows) { /* the replay ended early */
        char error[256];
        run_mark_rows_close(s->rows, error, sizeof error);
    }
    for (size_t i = 0; i < s->scopes_n; i++) free(s->scopes[i].of);
    MAP_RELEASE(&s->alike, &s->index);
    ARENA_RELEASE(s->scopes, s->ends, s->list, s);
}

const char *question_scope_names(const struct result_report *r, struct arena *arena)
{
    enum { NAMES = 6 };
    const char *text = NULL;
    size_t n = 0, left = 0;
    for (size_t i = 0; i < r->scopes_n; i++) {
        size_t before = 0;
        const char *name = r->scopes[i].name;
        while (before < i && r->scopes[before].name != name) before++;
        left += before == i && n == NAMES;
        if (before == i && n < NAMES) {
            text = arena_printf(arena, "%s%s'%.64s'", text ? text : "", text ? ", " : "", name);
            n++;
        }
    }
    return left ? arena_printf(arena, "%s and %zu more", text, left) : text;
}
