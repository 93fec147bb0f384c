/* The tables by line: bytes, waits and copies of each. */
#include <stdlib.h>
#include "analyzer/export/export_tables.h"
#include "analyzer/site/site.h"
#include "analyzer/question/wait.h"
#include "analyzer/run/words.h"
#include "analyzer/base/sort.h"

struct export_line *export_lines_at(struct export_lines *l, uint32_t process, uint32_t stack, int device, uint32_t kind)
{
    uint64_t hash = map_hash((uint64_t)stack << 32 | process) ^ map_hash((uint64_t)kind << 32 | (uint32_t)device);
    uint32_t *head = map_at(&l->index, hash);
    for (uint32_t i = *head; i != MAP_NEW; i = l->list[i].next) {
        struct export_line *x = &l->list[i];
        if (x->process == process && x->stack == stack && x->device == device && x->kind == kind) return x;
    }
    ARENA_APPEND_TO(l->list, l->n, l->cap, .process = process, .stack = stack, .device = device, .kind = kind,
                    .next = *head);
    *head = (uint32_t)(l->n - 1);
    return &l->list[l->n - 1];
}

void export_lines_free(struct export_lines *l)
{
    map_free(&l->index);
    free(l->list);
    *l = (struct export_lines){0};
}

/* Compares pointers, because equal texts of a run have the same address. */
SORT_ORDER(same_place, struct export_line,
           SORT_UP(x->process, y->process) ?: SORT_UP(x->device, y->device) ?: SORT_UP(x->kind, y->kind)
               ?: SORT_UP(x->site.known, y->site.known) ?: SORT_UP(x->site.line, y->site.line)
               ?: SORT_UP(x->site.library, y->site.library) ?: SORT_UP(x->site.file, y->site.file)
               ?: SORT_UP(x->site.function, y->site.function) ?: SORT_UP(x->site.operation, y->site.operation)
               ?: (x->site.line > 0 ? 0 : SORT_UP(x->site.offset, y->site.offset)))

static int compare_lines(const void *a, const void *b)
{
    const struct export_line *x = a, *y = b;
    int by = SORT_UP(x->process, y->process);
    for (size_t i = 0; i < EXPORT_LINE_VALUES; i++) by = by ?: SORT_DOWN(x->values[i], y->values[i]);
    return by ?: SORT_UP(x->device, y->device) ?: site_compare(&x->site, &y->site) ?: SORT_UP(x->kind, y->kind);
}

static void merge_export_lines(const struct export_lines *l, struct export_line *into, const struct export_line *from)
{
    for (unsigned i = 0; i < EXPORT_LINE_VALUES; i++) {
        bool greatest = i && i == l->greatest;
        into->values[i] = !greatest                           ? arena_add_capped(into->values[i], from->values[i])
                          : from->values[i] > into->values[i] ? from->values[i]
                                                              : into->values[i];
    }
}

static void export_lines_gather(struct export_lines *l, struct run *run)
{
    struct map known = {0}, helpers = {0}; /* known: stack → the line that has its site */
    size_t kept = 0;
    site_helpers(run, &helpers); /* makes the lines equal to those of the report */
    for (size_t i = 0; i < l->n; i++) {
        uint32_t *at = map_at(&known, l->list[i].stack);
        l->list[i].site = *at == MAP_NEW ? site_of(run, l->list[i].stack, &helpers) : l->list[*at].site;
        *at = (uint32_t)i;
    }
    SORT(l->list, l->n, same_place);
    for (size_t i = 0; i < l->n; i++)
        if (kept && same_place(&l->list[kept - 1], &l->list[i]) == 0)
            merge_export_lines(l, &l->list[kept - 1], &l->list[i]);
        else
            l->list[kept++] = l->list[i];
    l->n = kept;
    SORT(l->list, l->n, compare_lines);
    MAP_RELEASE(&known, &helpers);
}

static bool add_peaks(struct export_tables *x, char *error, size_t error_size)
{
    struct profile_request wish = {.what = PROFILE_PEAK, .process = -1, .device = x->e->device, .layer = PROFILE_ALL};
    struct profile *p = profile_build(x->e->run, &wish, error, error_size);
    for (size_t i = 0; p && i < p->n; i++) {
        const struct profile_entry *e = &p->entries[i];
        struct export_line *l = export_lines_at(&x->sites, e->process, e->stack, e->device, e->layer);
        l->values[0] = arena_add_capped(l->values[0], e->weight);
        l->values[1] += (int64_t)e->count;
    }
    profile_free(p);
    return p != NULL;
}

struct sums { /* by location */
    struct sum {
        int64_t bytes, count;
    } * list;
    size_t cap;
};

static void lines_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct sums *s = self;
    struct sum *to = SITE_REACH(s->list, life->location, s->cap);
    to->bytes = arena_add_capped(to->bytes, life->bytes);
    to->count++;
}

/* Adds the allocations whose rows a bounded recording removed. */
static void add_removed_lines(struct export_tables *x)
{
    RUN_EACH (r, run_removed, x->e->run) {
        const enum run_series_layer layer = run_removed_layer(r);
        const int device = layer == RUN_SERIES_PINNED || layer == RUN_SERIES_HOST ? -1 : r->device;
        const struct run_series s = {.process = r->process, .device = device, .layer = layer};
        if (r->what == GS_REMOVED_ALLOCATION && export_includes_device(x->e, device) &&
            profile_layer(x->e->run, PROFILE_ALL, &s)) {
            struct export_line *l = export_lines_at(&x->sites, r->process, r->stack, device, layer);
            l->values[4] = arena_add_capped(l->values[4], r->bytes);
            l->values[5] += (int64_t)r->count;
        }
    }
}

/* Adds, in one pass, the memory that is live at the end and all memory that was ever allocated. */
static bool add_ends_and_sums(struct export_tables *x, char *error, size_t error_size)
{
    struct run *run = x->e->run;
    struct sums sums = {0};
    struct run_observer observer = {.self = &sums, .alloc = lines_on_alloc};
    bool ok = run_replay(run, &observer, 1, error, error_size);
    for (uint32_t i = 0; ok && i < run_location_count(run); i++) {
        const struct run_location *at = run_location(run, i);
        const struct run_series *s = run_series(run, at->series);
        const struct sum *sum = SITE_REACH(sums.list, i, sums.cap);
        bool here = export_includes_device(x->e, s->device);
        if (here && sum->count && profile_layer(run, PROFILE_ALL, s)) {
            struct export_line *l = export_lines_at(&x->sites, s->process, at->stack, s->device, s->layer);
            l->values[2] = arena_add_capped(l->values[2], at->live_bytes);
            l->values[3] += (int64_t)at->live_count;
            l->values[4] = arena_add_capped(l->values[4], sum->bytes);
            l->values[5] += sum->count;
        }
    }
    free(sums.list);
    if (ok) add_removed_lines(x);
    return ok;
}

static void lines_on_wait(void *self, const struct question_wait *w)
{
    struct export_tables *x = self;
    if (export_includes_device(x->e, w->device)) {
        struct export_line *l = export_lines_at(&x->waits, w->process, w->stack, w->device, w->kind);
        l->values[0] = arena_add_capped(l->values[0], w->blocked_ns);
        l->values[1] += (int64_t)w->count;
        /* without a start it is a sum of several waits */
        if (run_is_known(w->start_ns) && w->blocked_ns > l->values[2]) l->values[2] = w->blocked_ns;
    }
}

struct calls {
    struct export_tables *x;
    struct question_waits *waits;
};

/* `count` copies with the bytes and the time of `sum`; NULL: none. */
static struct export_line *add_copies_to_line(struct export_tables *x, const struct run_copy *sum, uint64_t count)
{
    if (!export_includes_device(x->e, sum->device)) return NULL;
    uint32_t kind = (uint32_t)sum->direction << 16 | (uint32_t)sum->host_memory << 1 | sum->async;
    struct export_line *l = export_lines_at(&x->copies, sum->process, sum->stack, sum->device, kind);
    l->values[0] = arena_add_capped(l->values[0], sum->bytes);
    l->values[1] += (int64_t)count;
    l->values[2] = arena_add_capped(l->values[2], sum->blocked_ns);
    return l;
}

static void lines_on_call(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct calls *c = self;
    question_waits_add(c->waits, copy, sync);
    struct export_line *l = copy ? add_copies_to_line(c->x, copy, 1) : NULL;
    if (l) l->values[3] = copy->blocked_ns > l->values[3] ? copy->blocked_ns : l->values[3];
}

/* Adds the copies whose rows a bounded recording removed; the longest of them is unknown. */
static void add_removed_copy_lines(struct export_tables *x)
{
    RUN_EACH (r, run_removed, x->e->run) {
        const struct run_copy sum = {.process = r->process,
                                     .stack = r->stack,
                                     .device = r->device,
                                     .direction = r->direction,
                                     .host_memory = r->host_memory,
                                     .async = r->async,
                                     .bytes = r->bytes,
                                     .blocked_ns = r->ns};
        if (r->what == GS_REMOVED_COPY) add_copies_to_line(x, &sum, r->count);
    }
}

bool export_tables_gather_calls(struct export_tables *x, char *error, size_t error_size)
{
    struct arena arena = {0};
    x->waits.greatest = 2;
    x->copies.greatest = 3;
    struct question_signer *signer = question_signer_new(x->e->run, &arena);
    struct calls c = {x, question_waits_new(x->e->run, signer, lines_on_wait, x)};
    bool ok = run_each_call(x->e->run, lines_on_call, &c, error, error_size);
    add_removed_copy_lines(x);
    question_waits_free(c.waits);
    question_signer_free(signer);
    arena_free(&arena);
    return ok;
}

bool export_tables_gather(struct export_tables *x, char *error, size_t error_size)
{
    bool ok = add_peaks(x, error, error_size) && add_ends_and_sums(x, error, error_size) &&
              export_tables_gather_calls(x, error, error_size);
    if (ok) {
        export_lines_gather(&x->sites, x->e->run);
        export_lines_gather(&x->waits, x->e->run);
        export_lines_gather(&x->copies, x->e->run);
    }
    return ok;
}

static void put_place_cells(struct export_tables *x, const struct result_site *s)
{
    EXPORT_CELLS(&x->t, s->function, s->file, s->line ? s->line : RUN_UNKNOWN, s->operation, s->library);
}

static void put_line_values(struct export_tables *x, const struct export_line *l, const unsigned *which, unsigned n)
{
    for (unsigned i = 0; i < n; i++) export_table_int(&x->t, l->values[which[i]]);
}

void export_table_of_sites(struct export_tables *x)
{
    static const unsigned which[] = {0, 1, 2, 3, 4, 5};
    EACH (l, x->sites.list, x->sites.n) {
        if (export_table_keys(x, l->process)) {
            export_table_device(&x->t, l->device);
            export_table_text(&x->t, result_series_word((enum run_series_layer)l->kind));
            put_place_cells(x, &l->site);
            put_line_values(x, l, which, 6);
        }
    }
}

void export_table_of_waits(struct export_tables *x)
{
    static const unsigned which[] = {1, 0, 2};
    EACH (l, x->waits.list, x->waits.n) {
        if (export_table_keys(x, l->process)) {
            export_table_device(&x->t, l->device);
            export_table_text(&x->t, run_sync_word(l->kind));
            put_place_cells(x, &l->site);
            put_line_values(x, l, which, 3);
        }
    }
}

void export_table_of_copies(struct export_tables *x)
{
    static const unsigned which[] = {1, 0, 2, 3};
    EACH (l, x->copies.list, x->copies.n) {
        if (export_table_keys(x, l->process)) {
            export_table_device(&x->t, l->device);
            EXPORT_CELLS(&x->t, run_direction_word(l->kind >> 16), run_host_memory_word(l->kind >> 1 & 0x7fff),
                         (bool)(l->kind & 1));
            put_place_cells(x, &l->site);
            put_line_values(x, l, which, 4);
        }
    }
}

bool export_table_keys(struct export_tables *x, uint32_t process)
{
    const struct run_process *p = run_process_at(x->e->run, process);
    if (x->process != RUN_NONE && x->process != process) return false;
    EXPORT_CELLS(&x->t, p->run_id, p->host, p->pid, p->rank);
    return true;
}
