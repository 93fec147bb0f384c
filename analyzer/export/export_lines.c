/* The tables by line: what each held, waited and copied. */
#include <stdlib.h>
#include <string.h>
#include "analyzer/export/export_tables.h"
#include "analyzer/question/question.h"
#include "analyzer/site/site.h"
#include "analyzer/question/wait.h"
#include "analyzer/run/words.h"

struct gs_line *gs_lines_at(struct gs_lines *l, uint32_t process, uint32_t stack, int device, uint32_t kind)
{
    uint64_t hash = gs_hash64((uint64_t)stack << 32 | process) ^ gs_hash64((uint64_t)kind << 32 | (uint32_t)device);
    uint32_t *head = gs_map_at(&l->index, hash);
    for (uint32_t i = *head; i != GS_MAP_NEW; i = l->list[i].next) {
        struct gs_line *x = &l->list[i];
        if (x->process == process && x->stack == stack && x->device == device && x->kind == kind) {
            return x;
        }
    }
    *GS_PUSH(l->list, l->n, l->cap) =
        (struct gs_line){.process = process, .stack = stack, .device = device, .kind = kind, .next = *head};
    *head = (uint32_t)(l->n - 1);
    return &l->list[l->n - 1];
}

void gs_lines_free(struct gs_lines *l)
{
    gs_map_free(&l->index);
    free(l->list);
    *l = (struct gs_lines){0};
}

static int of_pointers(const void *a, const void *b)
{
    return ((uintptr_t)a > (uintptr_t)b) - ((uintptr_t)a < (uintptr_t)b);
}

/* Texts of a run are the same pointer where they are equal. */
static int same_place(const void *a, const void *b)
{
    const struct gs_line *x = a, *y = b;
    const int64_t left[] = {x->process, x->device, x->kind, x->site.known, x->site.line, x->site.library};
    const int64_t right[] = {y->process, y->device, y->kind, y->site.known, y->site.line, y->site.library};
    for (size_t i = 0; i < sizeof left / sizeof *left; i++) {
        if (left[i] != right[i]) {
            return left[i] < right[i] ? -1 : 1;
        }
    }
    int by = of_pointers(x->site.file, y->site.file);
    by = by ? by : of_pointers(x->site.function, y->site.function);
    by = by ? by : of_pointers(x->site.operation, y->site.operation);
    bool lines = x->site.line > 0;
    return by || lines ? by : (x->site.offset > y->site.offset) - (x->site.offset < y->site.offset);
}

static int heavier(const void *a, const void *b)
{
    const struct gs_line *x = a, *y = b;
    if (x->process != y->process) {
        return x->process < y->process ? -1 : 1;
    }
    for (size_t i = 0; i < GS_LINE_VALUES; i++) {
        if (x->values[i] != y->values[i]) {
            return x->values[i] > y->values[i] ? -1 : 1;
        }
    }
    int by = x->device != y->device ? x->device - y->device : gs_site_order(&x->site, &y->site);
    return by ? by : (x->kind > y->kind) - (x->kind < y->kind);
}

static void merge(const struct gs_lines *l, struct gs_line *into, const struct gs_line *from)
{
    for (unsigned i = 0; i < GS_LINE_VALUES; i++) {
        bool greatest = i && i == l->greatest;
        into->values[i] = !greatest                           ? gs_add(into->values[i], from->values[i])
                          : from->values[i] > into->values[i] ? from->values[i]
                                                              : into->values[i];
    }
}

void gs_lines_gather(struct gs_lines *l, struct gs_run *run)
{
    struct gs_map known = {0}, helpers = {0}; /* known: stack → the line that has its site */
    size_t kept = 0;
    gs_site_helpers(run, &helpers); /* as in the report: its lines are these */
    for (size_t i = 0; i < l->n; i++) {
        uint32_t *at = gs_map_at(&known, l->list[i].stack);
        l->list[i].site = *at == GS_MAP_NEW ? gs_site_of(run, l->list[i].stack, &helpers) : l->list[*at].site;
        *at = (uint32_t)i;
    }
    if (l->n > 1) {
        qsort(l->list, l->n, sizeof *l->list, same_place);
    }
    for (size_t i = 0; i < l->n; i++) {
        if (kept && same_place(&l->list[kept - 1], &l->list[i]) == 0) {
            merge(l, &l->list[kept - 1], &l->list[i]);
        } else {
            l->list[kept++] = l->list[i];
        }
    }
    l->n = kept;
    if (l->n > 1) {
        qsort(l->list, l->n, sizeof *l->list, heavier);
    }
    gs_map_free(&known);
    gs_map_free(&helpers);
}

/* --- gathering ----------------------------------------------------------------------------------- */

static bool add_peaks(struct gs_tables *x, char *error, size_t error_size)
{
    struct gs_profile_wish wish = {
        .what = GS_PROFILE_PEAK, .process = -1, .device = x->e->device, .layer = GS_PROFILE_ALL};
    struct gs_profile *p = gs_profile_build(x->e->run, &wish, error, error_size);
    for (size_t i = 0; p && i < p->n; i++) {
        const struct gs_profile_entry *e = &p->entries[i];
        struct gs_line *l = gs_lines_at(&x->sites, e->process, e->stack, e->device, e->layer);
        l->values[0] = gs_add(l->values[0], e->weight);
        l->values[1] += (int64_t)e->count;
    }
    gs_profile_free(p);
    return p != NULL;
}

struct sums { /* by location */
    struct sum {
        int64_t bytes, count;
    } * list;
    size_t cap;
};

static void on_alloc(void *self, const struct gs_lifetime *life, const struct gs_series *series)
{
    struct sums *s = self;
    struct sum *to = GS_REACH(s->list, life->location, s->cap);
    to->bytes = gs_add(to->bytes, life->bytes);
    to->count++;
}

/* What is live when all is replayed, and all that was ever allocated: one pass. */
static bool add_ends_and_sums(struct gs_tables *x, char *error, size_t error_size)
{
    struct gs_run *run = x->e->run;
    struct sums sums = {0};
    struct gs_observer observer = {.self = &sums, .alloc = on_alloc};
    bool ok = gs_run_replay(run, &observer, 1, error, error_size);
    for (uint32_t i = 0; ok && i < gs_run_locations(run); i++) {
        const struct gs_location *at = gs_run_location(run, i);
        const struct gs_series *s = gs_run_series(run, at->series);
        const struct sum *sum = GS_REACH(sums.list, i, sums.cap);
        bool here = gs_export_device_wanted(x->e, s->device);
        if (here && sum->count && gs_profile_layer(run, GS_PROFILE_ALL, s)) {
            struct gs_line *l = gs_lines_at(&x->sites, s->process, at->stack, s->device, s->layer);
            l->values[2] = gs_add(l->values[2], at->live_bytes);
            l->values[3] += (int64_t)at->live_count;
            l->values[4] = gs_add(l->values[4], sum->bytes);
            l->values[5] += sum->count;
        }
    }
    free(sums.list);
    return ok;
}

static void on_wait(void *self, const struct gs_wait *w)
{
    struct gs_tables *x = self;
    if (gs_export_device_wanted(x->e, w->device)) {
        struct gs_line *l = gs_lines_at(&x->waits, w->process, w->stack, w->device, w->kind);
        l->values[0] = gs_add(l->values[0], w->blocked_ns);
        l->values[1]++;
        l->values[2] = w->blocked_ns > l->values[2] ? w->blocked_ns : l->values[2];
    }
}

struct calls {
    struct gs_tables *x;
    struct gs_waits *waits;
};

static void on_call(void *self, const struct gs_copy *copy, const struct gs_sync *sync)
{
    struct calls *c = self;
    gs_waits_call(c->waits, copy, sync);
    if (copy && gs_export_device_wanted(c->x->e, copy->device)) {
        uint32_t kind = (uint32_t)copy->direction << 16 | (uint32_t)copy->host_memory << 1 | copy->async;
        struct gs_line *l = gs_lines_at(&c->x->copies, copy->process, copy->stack, copy->device, kind);
        l->values[0] = gs_add(l->values[0], copy->bytes);
        l->values[1]++;
        l->values[2] = gs_add(l->values[2], copy->blocked_ns);
        l->values[3] = copy->blocked_ns > l->values[3] ? copy->blocked_ns : l->values[3];
    }
}

bool gs_tables_gather_calls(struct gs_tables *x, char *error, size_t error_size)
{
    struct gs_arena arena = {0};
    x->waits.greatest = 2;
    x->copies.greatest = 3;
    struct gs_signer *signer = gs_signer_new(x->e->run, &arena);
    struct calls c = {x, gs_waits_new(signer, on_wait, x)};
    bool ok = gs_run_calls(x->e->run, on_call, &c, error, error_size);
    gs_waits_free(c.waits);
    gs_signer_free(signer);
    gs_arena_free(&arena);
    return ok;
}

bool gs_tables_gather(struct gs_tables *x, char *error, size_t error_size)
{
    bool ok = add_peaks(x, error, error_size) && add_ends_and_sums(x, error, error_size) &&
              gs_tables_gather_calls(x, error, error_size);
    if (ok) {
        gs_lines_gather(&x->sites, x->e->run);
        gs_lines_gather(&x->waits, x->e->run);
        gs_lines_gather(&x->copies, x->e->run);
    }
    return ok;
}

/* --- writing ------------------------------------------------------------------------------------- */

static void place(struct gs_tables *x, const struct gs_site *s)
{
    gs_table_text(&x->t, s->function);
    gs_table_text(&x->t, s->file);
    gs_table_int(&x->t, s->line ? s->line : GS_UNKNOWN);
    gs_table_text(&x->t, s->operation);
    gs_table_bool(&x->t, s->library);
}

static void values(struct gs_tables *x, const struct gs_line *l, const unsigned *which, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        gs_table_int(&x->t, l->values[which[i]]);
    }
}

void gs_table_of_sites(struct gs_tables *x)
{
    static const unsigned which[] = {0, 1, 2, 3, 4, 5};
    for (size_t i = 0; i < x->sites.n; i++) {
        const struct gs_line *l = &x->sites.list[i];
        if (gs_table_keys(x, l->process)) {
            gs_table_device(&x->t, l->device);
            gs_table_text(&x->t, gs_series_word((enum gs_series_layer)l->kind));
            place(x, &l->site);
            values(x, l, which, 6);
        }
    }
}

void gs_table_of_waits(struct gs_tables *x)
{
    static const unsigned which[] = {1, 0, 2};
    for (size_t i = 0; i < x->waits.n; i++) {
        const struct gs_line *l = &x->waits.list[i];
        if (gs_table_keys(x, l->process)) {
            gs_table_device(&x->t, l->device);
            gs_table_text(&x->t, gs_sync_word(l->kind));
            place(x, &l->site);
            values(x, l, which, 3);
        }
    }
}

void gs_table_of_copies(struct gs_tables *x)
{
    static const unsigned which[] = {1, 0, 2, 3};
    for (size_t i = 0; i < x->copies.n; i++) {
        const struct gs_line *l = &x->copies.list[i];
        if (gs_table_keys(x, l->process)) {
            gs_table_device(&x->t, l->device);
            gs_table_text(&x->t, gs_direction_word(l->kind >> 16));
            gs_table_text(&x->t, gs_host_memory_word(l->kind >> 1 & 0x7fff));
            gs_table_bool(&x->t, l->kind & 1);
            place(x, &l->site);
            values(x, l, which, 4);
        }
    }
}

bool gs_table_keys(struct gs_tables *x, uint32_t process)
{
    size_t n;
    const struct gs_process *p = &gs_run_processes(x->e->run, &n)[process];
    if (x->process != GS_NONE && x->process != process) {
        return false;
    }
    gs_table_text(&x->t, p->run_id);
    gs_table_text(&x->t, p->host);
    gs_table_int(&x->t, p->pid);
    gs_table_int(&x->t, p->rank);
    return true;
}
