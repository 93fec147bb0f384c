/* Writes what page_series.c collected: call paths that are too small for their own line are merged by line of code, and
 * those that still do not fit, by category. */
#include "analyzer/page/page_series_parts.h"
#include "analyzer/base/sort.h"

#include <stdio.h>
#include <stdlib.h>

struct exact { /* the live memory of one call path and category at the peak */
    uint32_t stack;
    uint8_t category;
    int64_t bytes, blocks;
    uint32_t number;
};

struct written { /* a line in the page */
    uint32_t stack;
    uint8_t category;
    bool merged;
    uint32_t site; /* for merged ones with a line of code: its text; `stack` has the calls that all share */
    uint64_t paths;
};

struct putting { /* one series */
    struct page_series *p;
    struct page_level *l;
    struct page_stacks *stacks;
    ARENA_LIST(struct written, lines);
    struct map number_of; /* stack and category → number */
    struct map site_of;   /* site and category → number of those merged by line of code */
    size_t sites_n, sites_room;
    uint32_t merged_as[RESULT_CATEGORIES_N]; /* numbers, from 1 on */
    struct exact *exact;
    size_t exact_n, exact_cap, exact_room;
    uint64_t unit;
};

static unsigned count_digits(int64_t value)
{
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    return size ? (70 - (unsigned)__builtin_clzll(size)) / 5 : 1; /* one bit is the sign */
}

/* Returns how many bytes the longest change may have. */
static size_t find_unit(struct putting *t)
{
    const struct page_level *l = t->l;
    uint64_t bytes = 0, blocks = 0; /* all bits of them */
    t->unit = 0;
    for (size_t i = 0; i < l->buckets_n; i++) {
        t->unit = page_column_unit(t->unit, l->buckets[i].high);
        t->unit = page_column_unit(t->unit, l->buckets[i].low);
    }
    EACH_IN (c, l->changes) {
        t->unit = page_column_unit(t->unit, c->bytes);
        bytes |= c->bytes < 0 ? 0 - (uint64_t)c->bytes : (uint64_t)c->bytes;
        blocks |= (uint64_t)llabs(c->blocks);
    }
    t->unit = t->unit ? t->unit : 1;
    return 1 + count_digits((int64_t)(bytes / t->unit)) + count_digits((int64_t)blocks);
}

/* The size of each line's changes; 0 if all fit in any case. */
static void weigh_lines(struct putting *t, size_t room)
{
    const size_t longest = find_unit(t);
    if (t->l->changes_n <= room / longest) return;
    EACH_IN (c, t->l->changes)
        t->p->lines[c->line].put += 1 + count_digits(c->bytes / (int64_t)t->unit) + count_digits(c->blocks);
}

static uint32_t add_line_index(struct putting *t, uint32_t stack, unsigned category, bool merged)
{
    *ARENA_ADD(t->lines) = (struct written){.stack = stack, .category = (uint8_t)category, .merged = merged};
    return (uint32_t)t->lines_n - 1;
}

static uint32_t merged_index(struct putting *t, unsigned category, uint64_t paths)
{
    if (!t->merged_as[category]) t->merged_as[category] = add_line_index(t, RUN_NONE, category, true) + 1;
    t->lines[t->merged_as[category] - 1].paths += paths;
    return t->merged_as[category] - 1;
}

/* A merged line has no stack, but neither have blocks whose call is unknown. */
static uint64_t line_key(uint32_t stack, unsigned category)
{
    return (uint64_t)stack << 4 | category;
}

/* MAP_NEW: there is no room for another line of code. */
static uint32_t put_site_index(struct putting *t, const struct page_line *line)
{
    const uint32_t site = line->site ? line->site : page_site(t->stacks, line->stack);
    uint32_t *at = map_at(&t->site_of, (uint64_t)site << 4 | line->category);
    if (*at == MAP_NEW && t->sites_n < t->sites_room) {
        t->sites_n++;
        *at = add_line_index(t, line->stack, line->category, true);
        t->lines[*at].site = site;
    } else if (*at != MAP_NEW) {
        struct written *known = &t->lines[*at];
        known->stack = page_series_shared(t->p->run, known->stack, line->stack);
    }
    if (*at != MAP_NEW) t->lines[*at].paths += line->site ? line->paths : 1;
    return *at;
}

static void merge_line(struct putting *t, struct page_line *line, struct page_resolution *r)
{
    const uint64_t paths = line->merged ? line->paths : 1;
    line->number = line->merged && !line->site ? MAP_NEW : put_site_index(t, line);
    const bool by_line = line->number != MAP_NEW;
    int64_t *most = by_line ? &r->by_line_bytes : &r->merged_bytes;
    *most = !line->merged && line->most > *most ? line->most : *most;
    *(by_line ? &r->by_line : &r->merged) += paths;
    if (!by_line) line->number = merged_index(t, line->category, paths);
}

/* Largest first, as many as there is room for; a quarter of it is for lines of code, if not all fit. `order` are the
 * lines of the series. */
static void number_lines(struct putting *t, const uint32_t *order, size_t n, size_t room, struct page_resolution *r)
{
    struct page_series *p = t->p;
    uint64_t put = 0, all = 0;
    for (size_t i = 0; i < n; i++) all += p->lines[order[i]].put;
    const size_t quarter = all > room ? room / 4 : 0;
    t->sites_room = quarter ? quarter / (4 * t->l->buckets_n) : n;
    for (size_t i = 0; i < n; i++) {
        struct page_line *line = &p->lines[order[i]];
        put += line->put;
        if (!line->merged && put <= room - quarter) {
            line->number = add_line_index(t, line->stack, line->category, false);
            *map_at(&t->number_of, line_key(line->stack, line->category)) = line->number;
        } else {
            merge_line(t, line, r);
        }
    }
    r->lines += t->lines_n;
}

SORT_ORDER(exact_order, struct exact,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->stack, y->stack) ?: SORT_UP(x->category, y->category))

SORT_ORDER(number_order, struct exact, SORT_UP(x->number, y->number))

static void exact_add(struct putting *t, struct map *of, uint32_t stack, unsigned category, int64_t bytes,
                      int64_t blocks)
{
    uint32_t *at = map_at(of, line_key(stack, category));
    if (*at == MAP_NEW) {
        *at = (uint32_t)t->exact_n;
        *ARENA_ADD(t->exact) = (struct exact){.stack = stack, .category = (uint8_t)category};
    }
    t->exact[*at].bytes += bytes;
    t->exact[*at].blocks += blocks;
}

static void number_exact(struct putting *t)
{
    size_t kept = 0;
    if (t->exact_n > 1) qsort(t->exact, t->exact_n, sizeof *t->exact, exact_order);
    for (size_t i = 0; i < t->exact_n; i++) {
        struct exact *e = &t->exact[i];
        uint32_t known = map_get(&t->number_of, line_key(e->stack, e->category));
        e->number = known != MAP_NEW    ? known
                    : i < t->exact_room ? add_line_index(t, e->stack, e->category, false)
                                        : merged_index(t, e->category, 1);
    }
    if (t->exact_n > 1) qsort(t->exact, t->exact_n, sizeof *t->exact, number_order);
    for (size_t i = 0; i < t->exact_n; i++) { /* several may be merged into one */
        if (kept && t->exact[kept - 1].number == t->exact[i].number) {
            t->exact[kept - 1].bytes += t->exact[i].bytes;
            t->exact[kept - 1].blocks += t->exact[i].blocks;
        } else {
            t->exact[kept++] = t->exact[i];
        }
    }
    t->exact_n = kept;
}

/* From the report, by stack and category. False: it does not sum to the peak. */
static bool list_exact(struct putting *t)
{
    const struct result_peak *peak = t->l->peak;
    const struct result_by_category *by = &peak->by_category;
    struct map of = {0};
    int64_t sum = 0, blocks = 0;
    EACH_IN (line, by->lines) {
        exact_add(t, &of, line->stack, line->category, line->bytes, (int64_t)line->count);
        sum = arena_add_capped(sum, line->bytes);
        blocks += (int64_t)line->count;
    }
    bool ok = by->lines_n && sum <= peak->bytes;
    if (ok && sum < peak->bytes) {
        int64_t more = (int64_t)peak->count - blocks;
        exact_add(t, &of, RUN_NONE, RESULT_CATEGORY_UNKNOWN, peak->bytes - sum, more > 0 ? more : 0);
    }
    map_free(&of);
    if (ok)
        number_exact(t);
    else
        t->exact_n = 0;
    return ok;
}

/* The last bucket that holds most. */
static size_t highest_bucket(const struct page_level *l)
{
    size_t highest = 0;
    for (size_t i = 1; i < l->buckets_n; i++) highest = l->buckets[i].high >= l->buckets[highest].high ? i : highest;
    return highest;
}

/* The one whose moment is the report's peak. If several events have its time, no bucket may hold as much as the report
 * counts between them: then the highest. */
static size_t peak_bucket(const struct page_level *l, bool *exact)
{
    for (size_t i = l->buckets_n; i-- > 0;) {
        const struct page_bucket *b = &l->buckets[i];
        if ((*exact = b->high_ns == l->peak->time_ns && b->high == l->peak->bytes)) return i;
    }
    return highest_bucket(l);
}

struct sums { /* of one bucket, by number; a bit marks those in use */
    int64_t *bytes, *blocks;
    uint64_t *set;
    size_t words;
};

static void put_bucket(const struct putting *t, const struct page_change *c, size_t n, struct sums *sums,
                       struct page_column *out)
{
    int64_t kept = 0;
    uint32_t last = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t number = t->p->lines[c[i].line].number;
        sums->set[number / 64] |= (uint64_t)1 << number % 64;
        sums->bytes[number] += c[i].bytes;
        sums->blocks[number] += c[i].blocks;
    }
    for (size_t w = 0; w < sums->words; w++)
        for (uint64_t bits = sums->set[w]; bits; bits &= bits - 1) {
            const size_t number = w * 64 + (size_t)__builtin_ctzll(bits);
            kept += sums->bytes[number] || sums->blocks[number];
        }
    page_column_add(out, kept);
    for (size_t w = 0; w < sums->words; w++) {
        for (uint64_t bits = sums->set[w]; bits; bits &= bits - 1) {
            const uint32_t number = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits);
            int64_t *bytes = &sums->bytes[number], *blocks = &sums->blocks[number];
            if (!*bytes && !*blocks) continue;
            page_column_add(out, (int64_t)number - last);
            page_column_add(out, page_column_quotient(*bytes, t->unit));
            page_column_add(out, *blocks);
            last = number;
            *bytes = *blocks = 0;
        }
        sums->set[w] = 0;
    }
}

static void put_changes(struct putting *t, struct page_writer *w)
{
    struct page_level *l = t->l;
    struct page_column changes = {0}, exact = {0};
    const size_t words = t->lines_n / 64 + 1;
    struct arena arena = {0};
    struct sums sums = {.bytes = arena_alloc(&arena, words * 64 * sizeof *sums.bytes),
                        .blocks = arena_alloc(&arena, words * 64 * sizeof *sums.blocks),
                        .set = arena_alloc(&arena, words * sizeof *sums.set),
                        .words = words};
    for (size_t i = 0; i < l->buckets_n; i++) {
        size_t end = i + 1 < l->buckets_n ? l->buckets[i + 1].changes : l->changes_n;
        put_bucket(t, l->changes + l->buckets[i].changes, end - l->buckets[i].changes, &sums, &changes);
    }
    arena_free(&arena);
    page_put_column(w, "changes", &changes);
    if (!t->exact_n) return;
    uint32_t last = 0;
    for (size_t i = 0; i < t->exact_n; i++) {
        page_column_add(&exact, (int64_t)t->exact[i].number - last);
        page_column_add(&exact, page_column_quotient(t->exact[i].bytes, t->unit));
        page_column_add(&exact, t->exact[i].blocks);
        last = t->exact[i].number;
    }
    page_put_column(w, "exact", &exact);
}

static void put_level_label(const struct result_report *r, const struct page_level *l, struct page_writer *w)
{
    static const char *const words[RUN_SERIES_LAYERS] = {
        [RUN_SERIES_DEVICE] = "CUDA allocations",     [RUN_SERIES_TENSOR] = "tensors",
        [RUN_SERIES_PINNED] = "pinned host memory",   [RUN_SERIES_HOST] = "host memory",
        [RUN_SERIES_SHARED] = "shared device memory", [RUN_SERIES_GRAPH] = "graphs"};
    const struct run_process *p = &r->processes[l->process];
    char who[48] = "", device[24] = "", text[160];
    if (r->processes_n > 1 && p->rank != RUN_UNKNOWN)
        snprintf(who, sizeof who, "rank %lld, ", (long long)p->rank);
    else if (r->processes_n > 1)
        snprintf(who, sizeof who, "process %u, ", p->pid);
    if (l->device >= 0) snprintf(device, sizeof device, "GPU %d, ", l->device);
    snprintf(text, sizeof text, "%s%s%s", who, device, words[l->layer]);
    page_put_int(w, "process", l->process);
    page_put_int(w, "pid", p->pid);
    page_put_int(w, "rank", p->rank);
    page_put_int(w, "device", l->device);
    page_put_text(w, "layer", result_series_word(l->layer));
    page_put_text(w, "label", text);
}

static void put_buckets(const struct putting *t, struct page_writer *w)
{
    const struct page_level *l = t->l;
    struct page_column start = {0}, time = {0}, high = {0}, low = {0};
    EACH_IN (b, l->buckets) {
        page_column_step(&start, b->start_ns);
        page_column_step(&time, b->high_ns);
        page_column_step(&high, page_column_quotient(b->high, t->unit));
        page_column_add(&low, page_column_quotient(b->high - b->low, t->unit));
    }
    PAGE_PUT_COLUMNS(w, start, time, high, low);
}

static void put_lines(const struct putting *t, struct page_stacks *stacks, struct page_writer *w)
{
    struct page_column stack = {0}, category = {0}, merged = {0}, site = {0};
    for (size_t i = 0; i < t->lines_n; i++) {
        page_column_add(&stack, page_stack(stacks, t->lines[i].stack));
        page_column_add(&category, t->lines[i].category);
        page_column_add(&merged, (int64_t)t->lines[i].paths);
        page_column_add(&site, t->lines[i].site);
    }
    PAGE_PUT_COLUMNS(w, stack, category, merged, site);
}

static void put_singles(const struct putting *t, size_t room, struct page_writer *w, struct page_resolution *r)
{
    struct page_singles *s = &t->l->singles;
    EACH_IN (path, s->paths) {
        const struct page_line *line = &t->p->lines[path->line];
        const struct written *written = &t->lines[line->number];
        path->whole = !written->merged;
        path->stack = written->stack;
        path->number = written->merged && !written->site ? MAP_NEW : line->number;
    }
    r->singles_left_out |= !page_singles_put(s, room, t->stacks, w);
}

/* `room`: bytes for the changes and for single allocations. */
static void put_series(struct page_series *p, struct page_level *l, const uint32_t *order, size_t n,
                       const size_t room[2], struct page_stacks *stacks, struct page_writer *w,
                       struct page_resolution *r)
{
    struct putting t = {.p = p, .l = l, .stacks = stacks, .exact_room = EXACT / p->levels_n};
    bool exact = false;
    const size_t peak = peak_bucket(l, &exact);
    t.exact_room = t.exact_room > EXACT_MOST ? EXACT_MOST : t.exact_room;
    weigh_lines(&t, room[0]);
    number_lines(&t, order, n, room[0], r);
    if (exact) list_exact(&t);
    for (size_t i = 0; i < t.exact_n; i++) t.unit = page_column_unit(t.unit, t.exact[i].bytes);
    page_put_open(w, NULL, '{');
    put_level_label(p->report, l, w);
    page_put_int(w, "unit", (int64_t)t.unit);
    page_put_int(w, "peak", (int64_t)peak);
    put_buckets(&t, w);
    put_lines(&t, stacks, w);
    put_changes(&t, w);
    put_singles(&t, room[1], w, r);
    page_put_close(w, '}');
    r->events += l->events;
    r->buckets = l->buckets_n > r->buckets ? l->buckets_n : r->buckets;
    r->all = r->all && l->every == 1;
    ARENA_RELEASE(t.lines, t.exact);
    MAP_RELEASE(&t.number_of, &t.site_of);
}

/* By series, the largest first. */
static int line_order(const void *a, const void *b, void *lines)
{
    uint32_t m = *(const uint32_t *)a, n = *(const uint32_t *)b;
    const struct page_line *x = &((struct page_line *)lines)[m], *y = &((struct page_line *)lines)[n];
    return x->series != y->series ? (x->series < y->series ? -1 : 1)
           : x->most != y->most   ? (x->most > y->most ? -1 : 1)
                                  : (m > n) - (m < n);
}

void page_series_put(struct page_series *p, struct page_stacks *stacks, struct page_writer *w,
                     struct page_resolution *r)
{
    uint32_t *order = arena_realloc(NULL, p->lines_n + 1, sizeof *order);
    size_t buckets = 0, at = 0, left = w->bytes < PAGE_BYTES ? PAGE_BYTES - w->bytes : 0;
    const size_t put = left / 2 < PUT ? left / 2 : PUT, singles = left / 8 < SINGLES_PUT ? left / 8 : SINGLES_PUT;
    *r = (struct page_resolution){
        .series = p->levels_n, .all = true, .by_line_bytes = p->unshown_most, .merged_bytes = p->unshown_most};
    for (size_t i = 0; i < p->lines_n; i++) order[i] = (uint32_t)i;
    if (p->lines_n > 1) qsort_r(order, p->lines_n, sizeof *order, line_order, p->lines);
    for (size_t i = 0; i < p->levels_n; i++) buckets += p->levels[i].buckets_n;
    page_put_open(w, "series", '[');
    for (size_t i = 0; i < p->levels_n; i++) {
        size_t first = at;
        while (at < p->lines_n && p->lines[order[at]].series == i) at++;
        if (p->levels[i].buckets_n) {
            const size_t share = p->levels[i].buckets_n;
            const size_t room[] = {put * share / buckets, singles * share / buckets};
            put_series(p, &p->levels[i], order + first, at - first, room, stacks, w, r);
        }
    }
    page_put_close(w, ']');
    free(order);
}
