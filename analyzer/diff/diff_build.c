/* The rows of a comparison: both profiles summed by what is compared, and sorted. See diff.h. */
#include "analyzer/diff/diff_parts.h"

#include <stdlib.h>
#include "analyzer/site/site.h"
#include "analyzer/base/each.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/words.h"

WORDS_FUNCTION(diff_by_word, enum diff_by, DIFF_BYS, WORDS_FIRST, "unknown")

struct cell { /* a row in a unit */
    uint32_t row, unit;
    int64_t weight[2];
};

struct work {
    struct diff_owner *o;
    const struct diff_side *side;
    const struct diff_request *wish;
    struct profile *profile[2];
    struct diff_sites sites[2];
    size_t matched[2]; /* of the sites: those that the matcher knew */
    struct diff_match *match;
    struct map functions[2]; /* function of a file → its number; for the second side also those that were renamed */
    ARENA_LIST(struct diff_row, rows);
    struct map row_of;                              /* key → row */
    int64_t (*by_category)[RESULT_CATEGORIES_N][2]; /* by row */
    size_t by_category_cap;
    ARENA_LIST(struct cell, cells);
    struct map cell_of;
    struct map unit_of; /* side, process, device → unit */
    size_t units_cap;
};

static uint64_t unit_key(int side, uint32_t process, int device)
{
    return map_hash((uint64_t)process << 32 | (uint64_t)(uint32_t)device) * 2 + (uint64_t)side;
}

static int64_t diff_rank_of(const struct work *w, int side, uint32_t process)
{
    return w->side[side].report->processes[process].rank;
}

/* The process of the second side that corresponds to `process` of the first; RUN_NONE none. */
static uint32_t partner_of(const struct work *w, uint32_t process)
{
    if (!w->o->diff.by_rank) return process < w->side[DIFF_AFTER].report->processes_n ? process : RUN_NONE;
    for (uint32_t i = 0; i < w->side[DIFF_AFTER].report->processes_n; i++)
        if (diff_rank_of(w, DIFF_AFTER, i) == diff_rank_of(w, DIFF_BEFORE, process)) return i;
    return RUN_NONE;
}

/* Every process of both sides has its own rank. */
static bool is_side_ranked(const struct work *w, int side)
{
    struct map seen = {0};
    size_t n = w->side[side].report->processes_n;
    bool ok = n > 0;
    for (uint32_t i = 0; i < n && ok; i++) {
        int64_t rank = diff_rank_of(w, side, i);
        uint32_t *at = rank >= 0 ? map_at(&seen, (uint64_t)rank) : NULL;
        ok = at && *at == MAP_NEW;
        if (at) *at = 1;
    }
    map_free(&seen);
    return ok;
}

static bool is_entry_chosen(const struct work *w, int side, const struct profile_entry *e)
{
    return w->wish->rank < 0 || diff_rank_of(w, side, e->process) == w->wish->rank;
}

static uint32_t unit_new(struct work *w, int side, uint32_t process, int device)
{
    struct diff *d = &w->o->diff;
    struct diff_unit *u = ARENA_PUSH(d->units, d->units_n, w->units_cap);
    *u = (struct diff_unit){.process = {RUN_NONE, RUN_NONE}, .device = {-1, -1}};
    u->process[side] = process;
    u->device[side] = device;
    return (uint32_t)d->units_n - 1;
}

/* The processes that have something on a side, and with how many devices. */
static size_t devices_of(const struct work *w, int side, uint32_t process, int *device)
{
    struct map seen = {0};
    size_t n = 0;
    for (size_t i = 0; i < w->profile[side]->n; i++) {
        const struct profile_entry *e = &w->profile[side]->entries[i];
        if (e->process == process) {
            uint32_t *at = map_at(&seen, (uint64_t)(uint32_t)e->device);
            if (*at == MAP_NEW) {
                *at = 1;
                *device = e->device;
                n++;
            }
        }
    }
    map_free(&seen);
    return n;
}

static void add_units(struct work *w, int side)
{
    uint32_t last_process = RUN_NONE, last_other = RUN_NONE;
    int only = -1, other_only = -1;
    bool single = false;
    for (size_t i = 0; i < w->profile[side]->n; i++) {
        const struct profile_entry *e = &w->profile[side]->entries[i];
        uint64_t key = unit_key(side, e->process, e->device);
        if (!is_entry_chosen(w, side, e) || map_get(&w->unit_of, key) != MAP_NEW) continue;
        uint32_t unit = unit_new(w, side, e->process, e->device);
        *map_at(&w->unit_of, key) = unit;
        if (side != DIFF_BEFORE) continue;
        if (last_process != e->process) {
            last_process = e->process;
            last_other = partner_of(w, e->process);
            single = last_other != RUN_NONE && devices_of(w, DIFF_BEFORE, e->process, &only) == 1 &&
                     devices_of(w, DIFF_AFTER, last_other, &other_only) == 1;
        }
        /* a process with one GPU is compared with its partner's one, whatever their numbers are */
        int device = single ? other_only : e->device;
        if (last_other != RUN_NONE) {
            struct diff_unit *u = &w->o->diff.units[unit];
            u->process[DIFF_AFTER] = last_other;
            u->device[DIFF_AFTER] = device;
            *map_at(&w->unit_of, unit_key(DIFF_AFTER, last_other, device)) = unit;
        }
    }
}

static uint64_t diff_function_key(const struct work *w, int side, uint32_t site)
{
    uint32_t file = side == DIFF_BEFORE ? w->match->file_a[site] : w->match->file_b[site];
    return map_hash_text(map_hash(file + 1), w->sites[side].sites[site].function);
}

/* Of the second side the functions that have another name or file: the first side's key. */
static void index_functions(struct work *w)
{
    for (uint32_t i = 0; i < w->matched[DIFF_BEFORE]; i++) {
        uint32_t j = w->match->of_a[i];
        uint64_t key = diff_function_key(w, DIFF_BEFORE, i);
        *map_at(&w->functions[DIFF_BEFORE], key) = i;
        if (j != DIFF_MATCH_ALONE && w->match->how_a[i] == DIFF_MATCH_FUNCTION) {
            uint32_t *at = map_at(&w->functions[DIFF_AFTER], diff_function_key(w, DIFF_AFTER, j));
            *at = *at == MAP_NEW ? i : *at;
        }
    }
}

static uint64_t key_of_function(const struct work *w, int side, uint32_t site)
{
    uint64_t key = diff_function_key(w, side, site);
    uint32_t renamed = side == DIFF_AFTER ? map_get(&w->functions[DIFF_AFTER], key) : MAP_NEW;
    return renamed != MAP_NEW ? diff_function_key(w, DIFF_BEFORE, renamed) : key;
}

static uint64_t diff_place_key(const struct work *w, int side, const struct diff_place *p)
{
    uint32_t site = p->number;
    if (site == RUN_NONE || site == DIFF_EXIT) return site;
    if (site >= w->matched[side])
        return map_hash_text(map_hash_text((uint64_t)p->site.line, p->site.file), p->site.function);
    if (w->wish->by == DIFF_FILE)
        return map_hash(side == DIFF_BEFORE ? w->match->file_a[site] : w->match->file_b[site]);
    if (w->wish->by == DIFF_FUNCTION) return key_of_function(w, side, site);
    uint32_t other = side == DIFF_AFTER ? w->match->of_b[site] : DIFF_MATCH_ALONE;
    uint64_t line = side == DIFF_BEFORE ? site : other != DIFF_MATCH_ALONE ? other : w->matched[DIFF_BEFORE] + site;
    return map_hash_text(map_hash(line + 7), p->site.operation);
}

static enum diff_match_how how_of(const struct work *w, int side, const struct diff_place *p)
{
    if (p->number >= w->matched[side]) return DIFF_MATCH_SAME;
    return side == DIFF_BEFORE ? w->match->how_a[p->number] : w->match->how_b[p->number];
}

static uint32_t row_at(struct work *w, uint64_t key)
{
    return MAP_INDEX_IN(&w->row_of, key, w->rows, (struct diff_row){.sum.rows = 1});
}

static void add_to(struct diff_sum *s, int side, int64_t weight, uint64_t count)
{
    s->weight[side] = arena_add_capped(s->weight[side], weight);
    s->count[side] += count;
}

static void add_cell(struct work *w, uint32_t row, uint32_t unit, int side, int64_t weight)
{
    int64_t *sum =
        &MAP_ROW_IN(&w->cell_of, (uint64_t)row << 32 | unit, w->cells, (struct cell){.row = row, .unit = unit})
             ->weight[side];
    *sum = arena_add_capped(*sum, weight);
}

static void add_entry(struct work *w, int side, const struct profile_entry *e)
{
    struct diff *d = &w->o->diff;
    uint32_t row = 0, unit = map_get(&w->unit_of, unit_key(side, e->process, e->device));
    if (w->wish->by == DIFF_CATEGORY) {
        row = row_at(w, e->category);
        w->rows[row].category = e->category;
    } else {
        const struct diff_place *p = diff_place_of(&w->sites[side], e->stack);
        row = row_at(w, diff_place_key(w, side, p));
        if (!w->rows[row].present[side]) w->rows[row].site[side] = p->site;
        w->rows[row].how = how_of(w, side, p);
    }
    w->rows[row].present[side] = true;
    add_to(&w->rows[row].sum, side, e->weight, e->count);
    int64_t *by = &(*SITE_REACH(w->by_category, row, w->by_category_cap))[e->category][side];
    *by = arena_add_capped(*by, e->weight);
    add_to(&d->total, side, e->weight, e->count);
    add_cell(w, row, unit, side, e->weight);
    add_to(&d->units[unit].sum, side, e->weight, e->count);
}

static void sum_up_places(struct work *w)
{
    for (int side = DIFF_BEFORE; side <= DIFF_AFTER; side++) {
        for (size_t i = 0; i < w->profile[side]->n; i++)
            if (is_entry_chosen(w, side, &w->profile[side]->entries[i]))
                add_entry(w, side, &w->profile[side]->entries[i]);
    }
}

static void add_owner(struct work *w, int side, const struct result_peak *p, const struct result_by_owner *by)
{
    uint32_t *at = map_at(&w->unit_of, unit_key(side, p->process, p->device));
    uint32_t row = row_at(w, map_hash_text(by->kind, by->owner)), unit = *at;
    w->rows[row].name = by->owner;
    w->rows[row].present[side] = true;
    w->rows[row].how = DIFF_MATCH_SAME;
    if (!w->rows[row].site[side].known) w->rows[row].site[side] = by->site;
    add_to(&w->rows[row].sum, side, by->bytes, by->count);
    add_to(&w->o->diff.total, side, by->bytes, by->count);
    add_to(&w->o->diff.units[unit].sum, side, by->bytes, by->count);
    add_cell(w, row, unit, side, by->bytes);
}

static void sum_owners(struct work *w)
{
    for (int side = DIFF_BEFORE; side <= DIFF_AFTER; side++) {
        const struct result_report *r = w->side[side].report;
        EACH_IN (p, r->peaks) {
            bool meant = p->layer == RUN_SERIES_DEVICE && (w->wish->device < 0 || p->device == w->wish->device) &&
                         (w->wish->rank < 0 || diff_rank_of(w, side, p->process) == w->wish->rank);
            if (meant && map_get(&w->unit_of, unit_key(side, p->process, p->device)) == MAP_NEW)
                *map_at(&w->unit_of, unit_key(side, p->process, p->device)) = unit_new(w, side, p->process, p->device);
            for (size_t k = 0; meant && k < p->by_owner_n; k++) add_owner(w, side, p, &p->by_owner[k]);
        }
    }
}

static int64_t absolute_value(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Of a row's two call sites the one that sorts first, whichever side it is from. */
static const struct result_site *diff_row_site(const struct diff_row *r)
{
    int first = !r->present[0] || (r->present[1] && site_compare(&r->site[1], &r->site[0]) < 0);
    return &r->site[first];
}

static int64_t both_weights(const struct diff_row *r)
{
    return arena_add_capped(r->sum.weight[0], r->sum.weight[1]);
}

/* Both orders of the sides give one order of rows: the largest change first, then by name. */
SORT_ORDER(by_change, struct diff_row,
           SORT_DOWN(absolute_value(diff_change(&x->sum)), absolute_value(diff_change(&y->sum)))
               ?: SORT_DOWN(both_weights(x), both_weights(y)) ?: sort_compare_texts(x->name, y->name)
               ?: site_compare(diff_row_site(x), diff_row_site(y)) ?: SORT_UP(x->category, y->category))

static void characterise_rows(struct work *w)
{
    for (size_t i = 0; i < w->rows_n; i++) {
        struct diff_row *r = &w->rows[i];
        int64_t most = -1, held = -1;
        r->how = r->present[0] && r->present[1] ? r->how : DIFF_MATCH_NONE;
        const struct result_site *a = &r->site[0], *b = &r->site[1];
        bool line = w->wish->by == DIFF_LINE, file = w->wish->by == DIFF_FILE;
        r->inferred = r->how != DIFF_MATCH_NONE && a->known && b->known && !a->exit &&
                      ((line && a->line != b->line) || (!file && sort_compare_texts(a->function, b->function) != 0));
        if (w->wish->by == DIFF_CATEGORY || !w->by_category || i >= w->by_category_cap) continue;
        for (int c = 0; c < RESULT_CATEGORIES_N; c++) {
            int64_t *by = w->by_category[i][c], change = absolute_value(by[1] - by[0]),
                    both = arena_add_capped(by[0], by[1]);
            if (both > 0 && (change > most || (change == most && both > held))) {
                most = change;
                held = both;
                r->category = (enum result_category)c;
            }
        }
    }
    for (size_t i = 0; i < w->cells_n; i++)
        w->rows[w->cells[i].row].units += w->cells[i].weight[0] != w->cells[i].weight[1];
}

static void add_sum(struct diff_sum *to, const struct diff_sum *s)
{
    for (int side = 0; side < 2; side++) add_to(to, side, s->weight[side], s->count[side]);
    to->rows += s->rows;
}

/* Smaller changes are not listed. */
static int64_t diff_threshold(const struct work *w)
{
    const struct diff_sum *t = &w->o->diff.total;
    int64_t all = 0, larger = t->weight[0] > t->weight[1] ? t->weight[0] : t->weight[1];
    for (size_t i = 0; i < w->rows_n; i++) all = arena_add_capped(all, absolute_value(diff_change(&w->rows[i].sum)));
    if (w->wish->least_share > 0) return (int64_t)(w->wish->least_share * (double)larger);
    bool few = w->wish->by == DIFF_CATEGORY || w->wish->by == DIFF_OWNER;
    return w->wish->least != RUN_UNKNOWN ? w->wish->least : few ? 0 : all / 100;
}

static void list_rows(struct work *w)
{
    struct diff *d = &w->o->diff;
    int64_t least = diff_threshold(w);
    characterise_rows(w);
    SORT(w->rows, w->rows_n, by_change);
    d->rows = arena_alloc(&w->o->arena, w->rows_n * sizeof *d->rows);
    EACH_IN (r, w->rows) {
        int64_t change = diff_change(&r->sum);
        if (change == 0) {
            add_sum(&d->same, &r->sum);
        } else if (d->rows_n < w->wish->top && absolute_value(change) >= least) {
            d->rows[d->rows_n++] = *r;
            d->inferred += r->inferred;
        } else {
            add_sum(&d->smaller[change > 0], &r->sum);
        }
    }
    d->total.rows = w->rows_n;
}

/* All categories, in addition to what else is compared. */
static void list_categories(struct work *w)
{
    struct diff *d = &w->o->diff;
    struct diff_row rows[RESULT_CATEGORIES_N] = {0};
    bool any = false;
    for (int side = 0; side < 2; side++) {
        for (size_t i = 0; i < w->profile[side]->n; i++) {
            const struct profile_entry *e = &w->profile[side]->entries[i];
            if (is_entry_chosen(w, side, e)) {
                struct diff_row *r = &rows[e->category];
                *r = (struct diff_row){.sum = r->sum, .category = e->category, .how = DIFF_MATCH_SAME};
                r->sum.rows = 1;
                add_to(&r->sum, side, e->weight, e->count);
                any = any || e->category != RESULT_CATEGORY_UNKNOWN;
            }
        }
    }
    if (!any) return;
    SORT(rows, RESULT_CATEGORIES_N, by_change);
    d->categories = arena_alloc(&w->o->arena, sizeof rows);
    for (size_t i = 0; i < RESULT_CATEGORIES_N; i++)
        if (rows[i].sum.rows) d->categories[d->categories_n++] = rows[i];
}

static bool bytes_of_memory(enum profile_what what)
{
    return what != PROFILE_WAITS && what != PROFILE_COPIES;
}

static bool profile_has_tensors(const struct profile *p)
{
    return ANY_OF(e, p->entries, p->n, e->layer == RUN_SERIES_TENSOR);
}

static bool build_profiles(struct work *w, int layer, char *error, size_t error_size)
{
    for (int side = 0; side < 2; side++) {
        struct profile_request wish = {.what = w->wish->what,
                                       .process = -1,
                                       .device = w->wish->device,
                                       .layer = layer,
                                       .categories = bytes_of_memory(w->wish->what),
                                       .uses = w->side[side].report->uses,
                                       .report = w->side[side].report};
        profile_free(w->profile[side]);
        w->profile[side] = profile_build(w->side[side].run, &wish, error, error_size);
        if (!w->profile[side]) return false;
    }
    return true;
}

/* Tensors are compared with tensors: if one side reported none, both are compared by CUDA allocations. */
static bool build_comparable(struct work *w, char *error, size_t error_size)
{
    if (!build_profiles(w, w->wish->layer, error, error_size)) return false;
    bool tensors[2] = {profile_has_tensors(w->profile[0]), profile_has_tensors(w->profile[1])};
    if (w->wish->layer != PROFILE_USUAL || !bytes_of_memory(w->wish->what) || tensors[0] == tensors[1] ||
        !w->profile[0]->n || !w->profile[1]->n)
        return true;
    diff_add_note(w->o, "the %s recording has no PyTorch tensors, so CUDA allocations are compared",
                  tensors[0] ? "second" : "first");
    return build_profiles(w, RUN_SERIES_DEVICE, error, error_size);
}

static void name_layer(struct work *w)
{
    static const char *const words[RUN_SERIES_LAYERS] = {[RUN_SERIES_DEVICE] = "GPU memory",
                                                         [RUN_SERIES_TENSOR] = "tensors",
                                                         [RUN_SERIES_PINNED] = "pinned memory",
                                                         [RUN_SERIES_HOST] = "CPU tensors"};
    struct diff *d = &w->o->diff;
    int layer = -1;
    for (int side = 0; side < 2 && bytes_of_memory(w->wish->what) && w->wish->by != DIFF_OWNER; side++) {
        for (size_t i = 0; i < w->profile[side]->n; i++) {
            int own = w->profile[side]->entries[i].layer;
            layer = layer == -1 || layer == own ? own : -2;
        }
    }
    d->layer = layer >= 0 ? words[layer] : w->wish->by == DIFF_OWNER ? words[RUN_SERIES_DEVICE] : NULL;
    d->unit = w->profile[0]->unit;
    d->title = w->profile[0]->title;
}

/* In order of rank, then as the processes were read. */
static int by_process(const void *x, const void *y, void *self)
{
    const struct diff_unit *a = x, *b = y;
    for (int side = 0; side < 2; side++) {
        int64_t p = a->process[side] != RUN_NONE ? diff_rank_of(self, side, a->process[side]) : INT64_MAX;
        int64_t q = b->process[side] != RUN_NONE ? diff_rank_of(self, side, b->process[side]) : INT64_MAX;
        if (p != q) return p < q ? -1 : 1;
        if (a->process[side] != b->process[side]) return a->process[side] < b->process[side] ? -1 : 1;
        if (a->device[side] != b->device[side]) return a->device[side] < b->device[side] ? -1 : 1;
    }
    return 0;
}

static void list_matched_files(struct work *w)
{
    struct diff *d = &w->o->diff;
    d->files = arena_alloc(&w->o->arena, w->match->files_n * sizeof *d->files);
    for (size_t i = 0; i < w->match->files_n; i++)
        if (w->match->files[i].path != DIFF_MATCH_PATH_SAME) d->files[d->files_n++] = w->match->files[i];
    bool any = false;
    for (size_t i = 0; i < w->sites[0].n && !any; i++) any = w->match->of_a[i] != DIFF_MATCH_ALONE;
    if (!any && w->sites[0].n && w->sites[1].n)
        diff_add_note(w->o, "the two recordings have no line in common: each line is listed separately");
}

static void compare_sides(struct work *w)
{
    struct diff *d = &w->o->diff;
    d->by_rank = is_side_ranked(w, DIFF_BEFORE) && is_side_ranked(w, DIFF_AFTER);
    for (int side = 0; side < 2; side++) {
        diff_sites_fill(&w->sites[side], w->side[side].run, w->profile[side]);
        w->matched[side] = w->sites[side].n;
    }
    w->match = diff_match_sites(w->sites[0].sites, w->sites[0].n, w->sites[1].sites, w->sites[1].n);
    diff_sites_agree(&w->sites[0], &w->sites[1], w->match);
    index_functions(w);
    add_units(w, DIFF_BEFORE);
    add_units(w, DIFF_AFTER);
    if (w->wish->by == DIFF_OWNER) {
        sum_owners(w);
    } else {
        sum_up_places(w);
        list_categories(w);
    }
    list_rows(w);
    if (d->units_n) qsort_r(d->units, d->units_n, sizeof *d->units, by_process, w);
    list_matched_files(w);
    name_layer(w);
}

/* Sets why one of them lacks what is compared. */
static void note_diff_unknown(struct diff_owner *o, const struct diff_side side[2])
{
    static const struct {
        enum run_fact needs[2];
        const char *text;
    } of[PROFILE_KINDS_N] = {
        [PROFILE_PEAK] = {{RUN_FACT_MEMORY, RUN_FACT_MEMORY}, "Memory is unknown"},
        [PROFILE_OOM] = {{RUN_FACT_MEMORY, RUN_FACT_HISTORY}, "Memory live at the out-of-memory error is unknown"},
        [PROFILE_END] = {{RUN_FACT_MEMORY, RUN_FACT_MEMORY}, "Memory is unknown"},
        [PROFILE_AT] = {{RUN_FACT_MEMORY, RUN_FACT_HISTORY}, "Memory live then is unknown"},
        [PROFILE_ALLOCATED] = {{RUN_FACT_MEMORY, RUN_FACT_HISTORY}, "Memory allocated over the run is unknown"},
        [PROFILE_WAITS] = {{RUN_FACT_WAITS, RUN_FACT_WAITS}, "Waits are unknown"},
        [PROFILE_COPIES] = {{RUN_FACT_COPIES, RUN_FACT_COPIES}, "Copies are unknown"},
    };
    struct diff *d = &o->diff;
    const char *text = of[d->wish.what].text, *why[2];
    for (int k = 0; k < 2; k++) {
        const struct run *run = side[k].run;
        why[k] = run_why_unknown(run, of[d->wish.what].needs[0]);
        why[k] = why[k] ? why[k] : run_why_unknown(run, of[d->wish.what].needs[1]);
        if (d->total.count[k] && d->wish.what != PROFILE_ALLOCATED)
            why[k] = NULL; /* such as a failure without memory */
    }
    if (why[0] && why[1])
        d->unknown = arena_printf(&o->arena, "%s: %s", text, why[0]);
    else if (why[0] || why[1])
        d->unknown = arena_printf(&o->arena, "%s in the %s recording: %s", text, why[0] ? "first" : "second",
                                  why[0] ? why[0] : why[1]);
    if (!d->unknown) return;
    d->rows_n = d->categories_n = d->units_n = d->files_n = d->inferred = 0;
    d->total = d->same = d->smaller[0] = d->smaller[1] = (struct diff_sum){0};
}

/* The peak of a recording that has one moment is unknown: both are compared by what was live at the end. */
static void choose_diff_moment(struct diff_owner *o, const struct diff_side side[2])
{
    struct diff_request *wish = &o->diff.wish;
    const char *const once[2] = {side[0].report->no_history, side[1].report->no_history};
    if (wish->what != PROFILE_PEAK || wish->by == DIFF_OWNER || !once[0] == !once[1]) return;
    if (side[0].report->no_memory || side[1].report->no_memory) return;
    wish->what = PROFILE_END;
    diff_add_note(o, "the peak of the %s recording is unknown (%s); gpuspy compares the memory live at the end",
                  once[0] ? "first" : "second", once[0] ? once[0] : once[1]);
}

struct diff *diff_build(const struct diff_side side[2], const struct diff_request *wish, char *error, size_t error_size)
{
    struct diff_owner *o = ARENA_NEW(struct diff_owner, .diff.wish = *wish);
    struct work w = {.o = o, .side = side, .wish = &o->diff.wish};
    choose_diff_moment(o, side);
    bool ok = build_comparable(&w, error, error_size);
    if (ok) {
        compare_sides(&w);
        note_diff_unknown(o, side);
        diff_add_figures(o, side);
        diff_add_scopes(o, side);
        diff_write_verdict(o, side);
    }
    for (int i = 0; i < 2; i++) {
        profile_free(w.profile[i]);
        diff_sites_free(&w.sites[i]);
        map_free(&w.functions[i]);
    }
    diff_match_free(w.match);
    ARENA_RELEASE(w.rows, w.by_category, w.cells);
    MAP_RELEASE(&w.row_of, &w.cell_of, &w.unit_of);
    if (!ok) {
        diff_free(&o->diff);
        return NULL;
    }
    return &o->diff;
}

void diff_free(struct diff *diff)
{
    if (diff) {
        struct diff_owner *o = (struct diff_owner *)diff;
        ARENA_RELEASE(diff->units, diff->scopes, diff->notes);
        arena_free(&o->arena);
        free(o);
    }
}
