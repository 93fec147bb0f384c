#include "analyzer/top/table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/site.h"

/* PyTorch's allocator is below every tensor: it does not show which code requested it. */
static bool is_allocator(const char *module)
{
    return module && strncmp(basename(module), "libc10", 6) == 0;
}

/* The innermost native frame that is neither CUDA's nor the recorder's nor an allocator's. */
static struct result_site native_site(struct top_model *m, uint32_t stack)
{
    for (uint32_t at = stack; at != RUN_NONE; at = run_stack_parent(m->run, at)) {
        const struct run_frame *f = run_stack_frame(m->run, at);
        if (f->kind == GS_FRAME_NATIVE && f->rank < RUN_RANK_PLUMBING && !is_allocator(f->module)) {
            f = run_frame_named(m->run, at);
            return site_of_frame(f);
        }
    }
    return site_of(m->run, stack, NULL);
}

struct result_site top_site(struct top_tables *t, uint32_t stack, bool native)
{
    if (stack == RUN_NONE) return (struct result_site){0};
    return native ? native_site(t->model, stack) : site_of(t->model->run, stack, &t->helpers);
}

/* Lines as the report distinguishes them; functions by their name and file, the same pointers for the same text. */
static uint64_t table_site_key(const struct result_site *s, bool function)
{
    if (!function) return site_key(s);
    uint64_t key = map_hash((uintptr_t)s->file) + (uintptr_t)s->function;
    key = map_hash(key) + (uint64_t)(s->known | s->exit << 1 | s->kind << 2);
    return map_hash(key) + (s->function ? 0 : s->offset);
}

static void forget_groups(struct top_tables *t)
{
    for (int i = 0; i < 4; i++) {
        struct top_groups *g = &t->groups[i / 2][i % 2];
        ARENA_RELEASE(g->of_stack, g->sites);
        map_free(&g->by_key);
        *g = (struct top_groups){0};
    }
}

/* Functions that many lines call are found more reliably with more stacks: searched again when there are a quarter
 * more. */
static void find_helpers(struct top_tables *t)
{
    const size_t stacks = run_stack_count(t->model->run);
    if (t->frames != t->model->run->frames) { /* they have moved */
        t->frames = t->model->run->frames;
        forget_groups(t);
    }
    if (stacks <= t->helpers_of + t->helpers_of / 4 && t->helpers_of) return;
    t->helpers_of = stacks;
    map_free(&t->helpers);
    t->helpers = (struct map){0};
    site_helpers(t->model->run, &t->helpers);
    forget_groups(t);
}

static uint32_t group_of(struct top_tables *t, uint32_t stack, bool function, bool native)
{
    struct top_groups *g = &t->groups[function][native];
    size_t at = (uint32_t)(stack + 1); /* RUN_NONE: 0 */
    if (at >= g->stacks) {
        size_t n = t->model->run->stacks_n + 1;
        n = n > at ? n : at + 1;
        g->of_stack = arena_realloc(g->of_stack, n, sizeof *g->of_stack);
        while (g->stacks < n) g->of_stack[g->stacks++] = RUN_NONE;
    }
    if (g->of_stack[at] == RUN_NONE) {
        struct result_site site = top_site(t, stack, native);
        g->of_stack[at] = MAP_INDEX(&g->by_key, table_site_key(&site, function), g->sites, g->n, g->cap, site);
    }
    return g->of_stack[at];
}

enum top_layer top_layer_of(const struct top_model *m, uint32_t source)
{
    EACH_IN (s, m->series)
        if (s->source == source && s->layer == TOP_TENSOR &&
            (s->count > 0 || (s->peak != RUN_UNKNOWN && s->peak > 0) || s->ring.newest > 0))
            return TOP_TENSOR;
    return TOP_DEVICE;
}

static bool is_series_chosen(const struct top_model *m, const struct top_choice *c, const struct top_series *s)
{
    int layer = c->layer == TOP_LAYER_AUTO ? (int)top_layer_of(m, s->source) : c->layer;
    return (c->source == TOP_ALL || c->source == (int)s->source) &&
           (c->device == TOP_ALL || s->device < 0 || c->device == s->device) && (int)s->layer == layer;
}

static void keep_latest(int64_t *at, int64_t time)
{
    *at = time > *at ? time : *at;
}

static void add_table_place(struct top_row *row, const struct top_place *p, const struct top_source *s)
{
    struct top_sum minute = top_ring_sum(&p->ring, s->now_ns, TOP_WINDOW_S);
    struct top_sum lately = top_ring_sum(&p->ring, s->now_ns, TOP_RATE_S);
    const bool recording = s->state == TOP_RECORDING;
    row->bytes = arena_add_capped(row->bytes, p->bytes);
    row->count += p->count;
    const bool no_growth = s->no_rates || s->unread_rows || row->growth == RUN_UNKNOWN;
    row->growth = no_growth ? RUN_UNKNOWN : arena_add_capped(row->growth, minute.amount);
    row->since = arena_add_capped(row->since, p->bytes - p->before);
    row->rate = s->no_rates ? NAN : row->rate + (lately.seconds > 0 ? (double)lately.count / lately.seconds : 0);
    if (!s->no_rates) keep_latest(&row->last_ns, p->last_ns);
    row->shown = row->shown || p->count > 0 || (recording && (minute.amount != 0 || lately.count > 0));
}

static void fill_places(struct top_tables *t, const struct top_choice *c)
{
    struct top_model *m = t->model;
    const bool function = c->table == TOP_FUNCTIONS;
    uint8_t *is_chosen = arena_realloc(NULL, m->series_n + 1, 1);
    for (size_t i = 0; i < m->series_n; i++) is_chosen[i] = is_series_chosen(m, c, &m->series[i]);
    struct top_groups *g = &t->groups[function][c->native];
    EACH_IN (p, m->places) {
        if (!is_chosen[p->series] || (p->count == 0 && p->last_ns == RUN_UNKNOWN)) continue;
        uint32_t group = group_of(t, p->stack, function, c->native);
        while (t->n < g->n) {
            const struct result_site *site = &g->sites[t->n];
            struct top_row *row = ARENA_PUSH(t->rows, t->n, t->cap);
            *row = (struct top_row){.site = *site, .last_ns = RUN_UNKNOWN};
        }
        add_table_place(&t->rows[group], p, &m->sources[m->series[p->series].source]);
        t->total = arena_add_capped(t->total, p->bytes);
    }
    free(is_chosen);
}

static void fill_calls(struct top_tables *t, const struct top_choice *c)
{
    struct top_model *m = t->model;
    const bool syncs = c->table == TOP_SYNCS;
    const struct top_calls *list = syncs ? m->syncs : m->copies;
    const size_t n = syncs ? m->syncs_n : m->copies_n;
    struct map rows = {0};
    for (size_t i = 0; i < n; i++) {
        const struct top_calls *k = &list[i];
        if ((c->source != TOP_ALL && c->source != (int)k->source) ||
            (c->device != TOP_ALL && k->device >= 0 && c->device != k->device))
            continue;
        uint32_t group = group_of(t, k->stack, false, c->native);
        uint32_t *at = map_at(&rows, (uint64_t)group << 32 | (uint64_t)k->kind << 16 | k->api);
        if (*at == MAP_NEW) {
            *at = (uint32_t)t->n;
            struct top_row *row = ARENA_PUSH(t->rows, t->n, t->cap);
            *row = (struct top_row){.site = t->groups[0][c->native].sites[group],
                                    .kind = k->kind,
                                    .api = k->api,
                                    .source = k->source,
                                    .last_ns = RUN_UNKNOWN,
                                    .shown = true};
        }
        struct top_row *row = &t->rows[*at];
        struct top_sum lately = top_ring_sum(&k->ring, m->sources[k->source].now_ns, TOP_RATE_S);
        double per = lately.seconds > 0 ? 1 / lately.seconds : 0;
        row->count += k->count;
        row->bytes = arena_add_capped(row->bytes, k->bytes);
        row->blocked_ns = arena_add_capped(row->blocked_ns, k->blocked_ns);
        row->rate += (double)lately.count * per;
        *(syncs ? &row->busy : &row->byte_rate) += (double)lately.amount * per / (syncs ? 1e9 : 1);
        keep_latest(&row->last_ns, k->last_ns);
        t->total = arena_add_capped(t->total, syncs ? k->blocked_ns : k->bytes);
    }
    map_free(&rows);
}

static double sort_key(const struct top_row *r, const struct top_choice *c)
{
    const bool syncs = c->table == TOP_SYNCS;
    switch (c->sort) {
    case TOP_BY_COUNT: return (double)r->count;
    case TOP_BY_GROWTH: return syncs ? r->busy : c->table == TOP_COPIES ? r->byte_rate : (double)r->growth;
    case TOP_BY_RATE: return isnan(r->rate) ? 0 : r->rate;
    case TOP_BY_LAST: return (double)r->last_ns;
    default: return syncs ? (double)r->blocked_ns : (double)r->bytes;
    }
}

static int by_choice(const void *a, const void *b, void *choice)
{
    const struct top_row *x = a, *y = b;
    double kx = sort_key(x, choice), ky = sort_key(y, choice);
    if (kx != ky) return kx > ky ? -1 : 1;
    return site_compare(&x->site, &y->site);
}

static bool site_matches_filter(const struct result_site *s, const char *filter)
{
    char text[1024];
    return !*filter || strcasestr(site_text(s, text, sizeof text), filter) ||
           (s->file && strcasestr(s->file, filter)) || (s->function && strcasestr(s->function, filter));
}

void top_tables_fill(struct top_tables *t, const struct top_choice *choice)
{
    t->n = 0;
    t->total = 0;
    find_helpers(t);
    if (choice->table == TOP_SYNCS || choice->table == TOP_COPIES)
        fill_calls(t, choice);
    else
        fill_places(t, choice);
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++)
        if (t->rows[i].shown && site_matches_filter(&t->rows[i].site, choice->filter)) t->rows[kept++] = t->rows[i];
    t->n = kept;
    if (t->n) qsort_r(t->rows, t->n, sizeof *t->rows, by_choice, (void *)(uintptr_t)choice);
}

void top_tables_free(struct top_tables *t)
{
    forget_groups(t);
    map_free(&t->helpers);
    free(t->rows);
}
