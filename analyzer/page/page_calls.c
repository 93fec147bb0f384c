#include "analyzer/page/page_calls.h"

#include <stdlib.h>
#include "analyzer/question/wait.h"
#include "analyzer/base/sort.h"
#include "analyzer/run/words.h"

enum {
    BINS = 256,          /* of a process's time */
    BINS_KEPT = 1 << 21, /* in memory; later ones are added to their call site's last bin */
    POINTS = 12000,      /* written */
    PLACES = 300,        /* written */
};

struct bin {
    uint32_t next; /* of the call site, from 1 on; 0 none */
    uint16_t number;
    uint32_t count;
    int64_t first_ns, last_ns, ns, bytes;
};

struct place {                     /* calls of one kind from one call path */
    uint32_t process, stack, what; /* what: a signature of waits, a direction of copies */
    uint8_t kind, host_memory;     /* kind: of a wait */
    bool copy, others;
    int16_t device;
    uint32_t first, last; /* bins, from 1 on */
    uint64_t count;
    int64_t ns, bytes;
    uint32_t site; /* when written: a string */
};

struct page_calls {
    struct run *run;
    struct arena arena;
    struct question_signer *signer;
    struct question_waits *waits;
    struct map of;
    ARENA_LIST(struct place, places);
    ARENA_LIST(struct bin, bins);
};

static struct place *calls_place_at(struct page_calls *c, const struct place *key)
{
    uint64_t k = map_hash((uint64_t)key->stack << 32 | key->process);
    k ^= map_hash((uint64_t)key->what << 32 | (uint32_t)key->device << 16 | (unsigned)key->kind << 8 |
                  (unsigned)key->host_memory << 2 | key->copy);
    for (;; k++) {
        struct place *p = MAP_ROW_IN(&c->of, k, c->places, *key);
        if (p->process == key->process && p->stack == key->stack && p->what == key->what && p->device == key->device &&
            p->kind == key->kind && p->copy == key->copy && p->host_memory == key->host_memory)
            return p;
    }
}

static unsigned bin_index(const struct page_calls *c, uint32_t process, int64_t ns)
{
    int64_t end = run_process_at(c->run, process)->end_ns;
    double at = end > 0 ? (double)ns / (double)end * BINS : 0;
    return at < 0 ? 0 : at >= BINS ? BINS - 1 : (unsigned)at;
}

/* Calls come nearly in order; a wait that lost its copy comes after later ones. */
static struct bin *page_bin_at(struct page_calls *c, struct place *p, unsigned number, int64_t start_ns)
{
    uint32_t at = p->last && c->bins[p->last - 1].number <= number ? p->last : 0, next = at ? 0 : p->first;
    for (; next && c->bins[next - 1].number <= number; next = c->bins[next - 1].next) at = next;
    if (at && (c->bins[at - 1].number == number || c->bins_n >= BINS_KEPT)) return &c->bins[at - 1];
    if (p->last && c->bins_n >= BINS_KEPT) return &c->bins[p->first - 1];
    *ARENA_ADD(c->bins) = (struct bin){.next = next, .number = (uint16_t)number, .first_ns = start_ns};
    *(at ? &c->bins[at - 1].next : &p->first) = (uint32_t)c->bins_n;
    if (!next) p->last = (uint32_t)c->bins_n;
    return &c->bins[c->bins_n - 1];
}

static void add_page_call(struct page_calls *c, const struct place *key, int64_t start_ns, int64_t blocked_ns,
                          int64_t bytes)
{
    struct place *p = calls_place_at(c, key);
    unsigned number = bin_index(c, key->process, start_ns);
    struct bin *b = page_bin_at(c, p, number, start_ns);
    const int64_t end_ns = arena_add_capped(start_ns, blocked_ns);
    b->first_ns = start_ns < b->first_ns ? start_ns : b->first_ns;
    b->last_ns = end_ns > b->last_ns ? end_ns : b->last_ns;
    b->count++;
    b->ns = arena_add_capped(b->ns, blocked_ns);
    b->bytes = arena_add_capped(b->bytes, bytes);
    p->count++;
    p->ns = arena_add_capped(p->ns, blocked_ns);
    p->bytes = arena_add_capped(p->bytes, bytes);
}

static void calls_on_wait(void *self, const struct question_wait *w)
{
    struct page_calls *c = self;
    if (!run_is_known(w->start_ns)) /* the page needs times */
        return;
    add_page_call(c,
                  &(struct place){.process = w->process,
                                  .stack = w->stack,
                                  .what = question_sign(c->signer, w->stack, w->shape),
                                  .kind = (uint8_t)w->kind,
                                  .device = (int16_t)w->device},
                  w->start_ns, w->blocked_ns > 0 ? w->blocked_ns : 0, w->bytes);
}

void page_calls_add(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct page_calls *c = self;
    question_waits_add(c->waits, copy, sync);
    if (copy) {
        add_page_call(c,
                      &(struct place){.process = copy->process,
                                      .stack = copy->stack,
                                      .what = copy->direction,
                                      .host_memory = copy->host_memory & 3,
                                      .device = copy->device,
                                      .copy = true},
                      copy->start_ns, copy->blocked_ns > 0 ? copy->blocked_ns : 0, copy->bytes);
    }
}

struct page_calls *page_calls_new(struct run *run)
{
    struct page_calls *c = ARENA_NEW(struct page_calls, .run = run);
    c->signer = question_signer_new(run, &c->arena);
    c->waits = question_waits_new(run, c->signer, calls_on_wait, c);
    return c;
}

void page_calls_free(struct page_calls *c)
{
    if (c->waits) question_waits_free(c->waits);
    question_signer_free(c->signer);
    map_free(&c->of);
    arena_free(&c->arena);
    ARENA_RELEASE(c->places, c->bins, c);
}

struct written { /* a call site, with all its call paths */
    struct place place;
    struct bin bins[BINS];
};

static uint64_t key_of_place(const struct place *p)
{
    return map_hash((uint64_t)p->site << 32 | p->process) ^
           map_hash((uint64_t)p->what << 32 | (uint32_t)p->device << 16 | (unsigned)p->kind << 8 |
                    (unsigned)p->host_memory << 2 | (unsigned)p->copy << 1 | p->others);
}

static void join_places(const struct page_calls *c, struct written *into, const struct place *p)
{
    struct place *to = &into->place;
    to->count += p->count;
    to->ns = arena_add_capped(to->ns, p->ns);
    to->bytes = arena_add_capped(to->bytes, p->bytes);
    for (uint32_t i = p->first; i; i = c->bins[i - 1].next) {
        const struct bin *from = &c->bins[i - 1];
        struct bin *b = &into->bins[from->number];
        b->first_ns = !b->count || from->first_ns < b->first_ns ? from->first_ns : b->first_ns;
        b->last_ns = from->last_ns > b->last_ns ? from->last_ns : b->last_ns;
        b->count += from->count;
        b->ns = arena_add_capped(b->ns, from->ns);
        b->bytes = arena_add_capped(b->bytes, from->bytes);
    }
}

static void put_place(const struct page_calls *c, const struct written *g, struct page_stacks *stacks,
                      struct page_writer *w)
{
    const struct place *p = &g->place;
    struct page_column first = {0}, length = {0}, count = {0}, ns = {0}, bytes = {0};
    EACH (b, g->bins, BINS) {
        if (b->count) {
            page_column_step(&first, b->first_ns);
            page_column_add(&length, b->last_ns - b->first_ns);
            page_column_add(&count, b->count);
            page_column_add(&ns, b->ns);
            page_column_add(&bytes, b->bytes);
        }
    }
    page_put_open(w, NULL, '{');
    page_put_text(w, "kind", p->copy ? "copy" : "sync");
    page_put_int(w, "process", p->process);
    page_put_int(w, "device", p->device);
    page_put_text(w, "what", p->copy ? run_direction_word(p->what & 7) : run_sync_word(p->kind & 7));
    page_put_text(w, "pattern", p->copy || p->others ? NULL : question_signature(c->signer, p->what).name);
    page_put_text(w, "host_memory", p->copy ? run_host_memory_word(p->host_memory) : NULL);
    page_put_bool(w, "others", p->others);
    page_put_int(w, "stack", p->others ? -1 : page_stack(stacks, p->stack));
    page_put_int(w, "site", p->others ? 0 : p->site);
    page_put_int(w, "count", (int64_t)p->count);
    page_put_int(w, "ns", p->ns);
    page_put_int(w, "bytes", p->bytes);
    PAGE_PUT_COLUMNS(w, first, length);
    page_put_column(w, "counts", &count);
    page_put_column(w, "blocked", &ns);
    page_put_column(w, "sizes", &bytes);
    page_put_close(w, '}');
}

/* The order of importance: waits by their time, copies by their size, then by number. */
static int compare_places(const void *a, const void *b)
{
    const struct place *x = *(const struct place *const *)a, *y = *(const struct place *const *)b;
    int64_t m = x->copy ? x->bytes : x->ns, n = y->copy ? y->bytes : y->ns;
    return SORT_UP(x->copy, y->copy) ?: SORT_DOWN(m, n) ?: SORT_DOWN(x->count, y->count) ?: SORT_UP(x, y);
}

static size_t bins_of(const struct page_calls *c, const struct place *p)
{
    size_t n = 0;
    for (uint32_t i = p->first; i; i = c->bins[i - 1].next) n++;
    return n;
}

/* The largest waits and copies have their own sites, each half of the room. */
static size_t choose_places(struct page_calls *c, struct place **order, struct page_stacks *stacks)
{
    size_t points[2] = {0}, places[2] = {0}, merged = 0;
    for (size_t i = 0; i < c->places_n; i++) order[i] = &c->places[i];
    SORT(order, c->places_n, compare_places);
    for (size_t i = 0; i < c->places_n; i++) {
        struct place *p = order[i];
        points[p->copy] += bins_of(c, p);
        if (places[p->copy] < PLACES / 2 && points[p->copy] <= POINTS / 2) {
            places[p->copy]++;
            p->site = page_site(stacks, p->stack);
        } else { /* all others of their kind */
            p->others = true;
            p->site = 0;
            p->what = p->copy ? p->what : 0;
            p->host_memory = 0;
            merged++;
        }
    }
    return merged;
}

size_t page_calls_put(struct page_calls *c, struct page_stacks *stacks, struct page_writer *w)
{
    struct map of = {0};
    struct written **groups = NULL;
    size_t n = 0, cap = 0;
    question_waits_free(c->waits); /* reports the last ones */
    c->waits = NULL;
    struct place **order = arena_realloc(NULL, c->places_n + 1, sizeof *order);
    size_t merged = choose_places(c, order, stacks);
    for (size_t i = 0; i < c->places_n; i++) {
        uint32_t *at = map_at(&of, key_of_place(order[i]));
        if (*at == MAP_NEW) {
            *at = (uint32_t)n;
            struct written *g = arena_zeroed(1, sizeof *g);
            g->place = *order[i];
            g->place.count = 0;
            g->place.ns = g->place.bytes = 0;
            *ARENA_PUSH(groups, n, cap) = g;
        }
        join_places(c, groups[*at], order[i]);
    }
    page_put_open(w, "calls", '[');
    for (size_t i = 0; i < n; i++) {
        put_place(c, groups[i], stacks, w);
        free(groups[i]);
    }
    page_put_close(w, ']');
    ARENA_RELEASE(groups, order);
    map_free(&of);
    return merged;
}
