/* Libraries that allocate device memory in advance, or keep it in a pool: CUDA's calls do not show how much of it is
 * used, and the report must state that. By the table in preallocation.def. */
#include "analyzer/question/question.h"
#include "analyzer/base/sort.h"
#include "analyzer/site/owner.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct ahead {
    const char *owner, *through;
    double least;
    const char *how, *share, *off, *advice, *less;
} ahead_rows[] = {
#define AHEAD(owner, through, least, how, share, off, advice, less) \
    {owner, through, least, how, share, off, advice, less},
#define KEEPS(owner, through, how, limit, off, advice)
#define WITHIN(word, file, function, how, advice)
#include "analyzer/question/preallocation.def"
};
static const struct keeps {
    const char *owner, *through, *how, *limit, *off, *advice;
} keeps_rows[] = {
#define AHEAD(owner, through, least, how, share, off, advice, less)
#define KEEPS(owner, through, how, limit, off, advice) {owner, through, how, limit, off, advice},
#define WITHIN(word, file, function, how, advice)
#include "analyzer/question/preallocation.def"
};
static const struct within {
    const char *word, *file, *function, *how, *advice;
} within_rows[] = {
#define AHEAD(owner, through, least, how, share, off, advice, less)
#define KEEPS(owner, through, how, limit, off, advice)
#define WITHIN(word, file, function, how, advice) {word, file, function, how, advice},
#include "analyzer/question/preallocation.def"
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static const double first_piece = 0.1; /* earlier allocations may have this share of it */
static const double keeps_least = 0.05, within_least = 0.1;
enum { HOLDERS = 4096 };

struct holder { /* an owner on a device of a process */
    uint32_t process, owner, largest_stack;
    int device;
    int64_t live, highest, largest, before; /* before: live when the largest piece was allocated */
};

struct question_preallocations {
    struct site_builder *b;
    struct holder *list;
    size_t n, cap;
    struct map index;
    uint32_t process;
    ARENA_LIST(struct result_preallocation, found);
};

static struct holder *preallocation_holder_of(struct question_preallocations *p, const struct run_lifetime *life)
{
    uint32_t owner = site_owner_of_location(p->b, life->location);
    enum result_owner_kind kind = site_owner_kind(p->b, owner);
    if (kind != RESULT_OWNER_FRAMEWORK && kind != RESULT_OWNER_POOL) return NULL;
    uint64_t key = map_hash((uint64_t)p->process << 32 | owner) ^ (uint16_t)life->device;
    uint32_t *at = map_at(&p->index, key);
    if (*at == MAP_NEW) {
        if (p->n == HOLDERS) return NULL;
        *at = (uint32_t)p->n;
        ARENA_APPEND_TO(p->list, p->n, p->cap, .process = p->process, .owner = owner, .device = life->device);
    }
    return &p->list[*at];
}

static void preallocation_on_process_start(void *self, uint32_t process)
{
    struct question_preallocations *p = self;
    p->process = process;
}

static void preallocation_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_preallocations *p = self;
    struct holder *h = series->layer == RUN_SERIES_DEVICE ? preallocation_holder_of(p, life) : NULL;
    if (!h) return;
    if (life->bytes > h->largest) {
        h->largest = life->bytes;
        h->largest_stack = life->stack;
        h->before = h->live;
    }
    h->live = arena_add_capped(h->live, life->bytes);
    h->highest = h->live > h->highest ? h->live : h->highest;
}

static void preallocation_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_preallocations *p = self;
    struct holder *h = p->n && series->layer == RUN_SERIES_DEVICE ? preallocation_holder_of(p, life) : NULL;
    if (h) h->live = arena_add_capped(h->live, -life->bytes);
}

struct question_preallocations *question_preallocations_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_preallocations *p = ARENA_NEW(struct question_preallocations, .b = b);
    *observer = (struct run_observer){.self = p,
                                      .process_start = preallocation_on_process_start,
                                      .alloc = preallocation_on_alloc,
                                      .free = preallocation_on_free};
    return p;
}

/* The memory of the device, as recorded there or at a failure; RUN_UNKNOWN. */
static int64_t question_device_total(const struct site_builder *b, uint32_t process, int device)
{
    size_t n;
    const struct run_device *d = run_devices(b->run, &n);
    for (size_t i = 0; i < n; i++)
        if (d[i].process == process && d[i].device == device && d[i].total_bytes > 0) return d[i].total_bytes;
    const struct run_oom *o = run_ooms(b->run, &n);
    for (size_t i = 0; i < n; i++)
        if (o[i].process == process && o[i].device == device && o[i].total_bytes > 0) return o[i].total_bytes;
    return RUN_UNKNOWN;
}

/* Was "NAME=value" set? A number or a word, in any case. */
static bool is_environment_pair_set(const struct site_builder *b, uint32_t process, const char *pair)
{
    const char *equals = pair ? strchr(pair, '=') : NULL;
    if (!equals) return false;
    const char *name = arena_printf(b->arena, "%.*s", (int)(equals - pair), pair);
    const char *value = run_setting_value(b->run, process, name);
    bool no = strcmp(equals + 1, "false") == 0;
    return value && (strcasecmp(value, equals + 1) == 0 || strcmp(value, no ? "0" : "1") == 0);
}

/* The variable that sets how much, also under its older name; NULL: not set. */
static const char *share_set(const struct site_builder *b, uint32_t process, const char *name)
{
    static const struct {
        const char *name, *older;
    } names[] = {{"XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"}};
    const char *value = name ? run_setting_value(b->run, process, name) : NULL;
    for (size_t i = 0; name && !value && i < COUNT(names); i++) {
        if (strcmp(name, names[i].name) == 0) {
            name = names[i].older;
            value = run_setting_value(b->run, process, name);
        }
    }
    return value && *value ? arena_printf(b->arena, "%s=%.40s", name, value) : NULL;
}

static struct result_preallocation *find_preallocation(struct question_preallocations *p, uint32_t process, int device,
                                                       int64_t bytes, uint32_t stack)
{
    struct result_preallocation *f = ARENA_ADD(p->found);
    int64_t total = question_device_total(p->b, process, device);
    *f = (struct result_preallocation){.process = process,
                                       .device = device,
                                       .bytes = bytes,
                                       .share = total > 0 ? (double)bytes / (double)total : __builtin_nan("")};
    f->site = site_of_call(p->b, stack);
    return f;
}

static bool goes_through(const struct site_builder *b, uint32_t stack, const char *function)
{
    const struct run_frame *f;
    for (; function && (f = run_frame_named(b->run, stack)) != NULL; stack = run_stack_parent(b->run, stack))
        if (f->kind == GS_FRAME_NATIVE && run_frame_calling(f, NULL, function)) return true;
    return !function;
}

/* The least that counts as preallocation: slightly less than was requested, because the device is not empty. */
static double preallocation_least_of(const struct site_builder *b, uint32_t process, const struct ahead *row)
{
    const char *set = share_set(b, process, row->share), *equals = set ? strchr(set, '=') : NULL;
    double share = equals ? strtod(equals + 1, NULL) : 0;
    return share > 0 && share <= 1 ? 0.8 * share : row->least;
}

static const struct ahead *ahead_row(const struct question_preallocations *p, const struct holder *h, double share)
{
    const char *owner = site_owner_word(p->b, h->owner);
    for (size_t i = 0; i < COUNT(ahead_rows); i++) {
        const struct ahead *row = &ahead_rows[i];
        if (strcmp(row->owner, owner) == 0 && share >= preallocation_least_of(p->b, h->process, row) && share <= 1 &&
            (double)h->before <= first_piece * (double)h->largest &&
            !is_environment_pair_set(p->b, h->process, row->off) && goes_through(p->b, h->largest_stack, row->through))
            return row;
    }
    return NULL;
}

static void describe_preallocation(struct question_preallocations *p, const struct holder *h, const struct ahead *row)
{
    struct result_preallocation *f = find_preallocation(p, h->process, h->device, h->largest, h->largest_stack);
    const char *set = share_set(p->b, h->process, row->share);
    f->owner = row->owner;
    f->in_advance = true;
    f->sentence = arena_printf(p->b->arena,
                               "%s preallocated %.0f %% of GPU %d, %s in one allocation (%s%s): gpuspy cannot see how "
                               "much of it is used, nor whether it ran out",
                               row->owner, 100 * f->share, h->device, site_bytes_text(p->b, (double)f->bytes),
                               set ? "set by " : "", set ? set : row->how);
    f->advice = set ? arena_printf(p->b->arena, "lower %.*s, or: %s", (int)strcspn(set, "="), set, row->advice)
                    : arena_printf(p->b->arena, "%s; %s", row->advice, row->less);
}

static void describe_cache(struct question_preallocations *p, const struct holder *h)
{
    const char *owner = site_owner_word(p->b, h->owner);
    for (size_t i = 0; i < COUNT(keeps_rows); i++) {
        const struct keeps *row = &keeps_rows[i];
        if (strcmp(row->owner, owner) == 0 && !is_environment_pair_set(p->b, h->process, row->off) &&
            goes_through(p->b, h->largest_stack, row->through)) {
            struct result_preallocation *f = find_preallocation(p, h->process, h->device, h->highest, h->largest_stack);
            f->owner = row->owner;
            f->sentence =
                arena_printf(p->b->arena, "%s held up to %s of GPU %d (%s): gpuspy cannot see how much of it is used",
                             row->owner, site_bytes_text(p->b, (double)h->highest), h->device, row->how);
            f->advice = share_set(p->b, h->process, row->limit) ? NULL : row->advice;
            return;
        }
    }
}

/* "; 4.25 GiB of the GPU stayed free"; "" if that is unknown, or nothing did. */
static const char *left_free(const struct question_preallocations *p, const struct result_peak *peak)
{
    EACH_IN (m, p->b->report->memory)
        if (m->process == peak->process && m->device == peak->device && m->free_bytes > 0)
            return arena_printf(p->b->arena, "; %s of the GPU stayed free",
                                site_bytes_text(p->b, (double)m->free_bytes));
    return "";
}

/* Tensors that are a pool: only if they matter, that is, if they are among the largest stacks. */
static void describe_pool(struct question_preallocations *p, const struct result_peak *peak)
{
    for (size_t r = 0; r < COUNT(within_rows); r++) {
        const struct within *row = &within_rows[r];
        uint32_t stack = RUN_NONE;
        int64_t bytes = 0;
        for (size_t i = 0; i < peak->by_stack_n; i++) {
            if (run_stack_is_in(p->b->run, peak->by_stack[i].stack.number, row->file, row->function)) {
                stack = stack == RUN_NONE ? peak->by_stack[i].stack.number : stack;
                bytes = arena_add_capped(bytes, peak->by_stack[i].bytes);
            }
        }
        int64_t total = question_device_total(p->b, peak->process, peak->device);
        if (bytes <= 0 || total <= 0 || (double)bytes < within_least * (double)total) continue;
        struct result_preallocation *f = find_preallocation(p, peak->process, peak->device, bytes, stack);
        f->owner = row->word;
        f->in_advance = f->within = true;
        f->sentence = arena_printf(
            p->b->arena,
            "%s preallocated %.0f %% of GPU %d, %s in tensors (%s): gpuspy cannot see how much of it is used%s",
            row->word, 100 * f->share, peak->device, site_bytes_text(p->b, (double)bytes), row->how,
            left_free(p, peak));
        f->advice = row->advice;
    }
}

SORT_ORDER(compare_preallocations, struct result_preallocation,
           SORT_UP(x->process, y->process) ?: SORT_DOWN(x->bytes, y->bytes) ?: SORT_UP(x->device, y->device))

void question_preallocations_finish(struct question_preallocations *p)
{
    struct result_report *r = p->b->report;
    EACH (h, p->list, p->n) {
        int64_t total = question_device_total(p->b, h->process, h->device);
        double share = total > 0 ? (double)h->largest / (double)total : 0;
        const struct ahead *row = ahead_row(p, h, share);
        if (row)
            describe_preallocation(p, h, row);
        else if (total > 0 && (double)h->highest >= keeps_least * (double)total)
            describe_cache(p, h);
    }
    for (size_t i = 0; i < r->peaks_n; i++)
        if (r->peaks[i].layer == RUN_SERIES_TENSOR) describe_pool(p, &r->peaks[i]);
    if (p->found_n > 1) qsort(p->found, p->found_n, sizeof *p->found, compare_preallocations);
    r->preallocations = arena_alloc(p->b->arena, p->found_n * sizeof *p->found);
    r->preallocations_n = p->found_n;
    for (size_t i = 0; i < p->found_n; i++) r->preallocations[i] = p->found[i];
    map_free(&p->index);
    ARENA_RELEASE(p->list, p->found, p);
}

const struct result_preallocation *question_preallocated(const struct result_report *r, uint32_t process, int device)
{
    return FIND_IN(f, r->preallocations, f->process == process && f->device == device && f->in_advance && !f->within);
}

const char *question_preallocates(struct site_builder *b, uint32_t process, uint32_t stack, int64_t bytes,
                                  int64_t total, const char **less)
{
    const char *owner = total > 0 ? site_owner_word(b, site_owner_of(b, stack)) : "";
    EACH (row, ahead_rows, COUNT(ahead_rows)) {
        if (strcmp(row->owner, owner) != 0 || is_environment_pair_set(b, process, row->off) ||
            (double)bytes < preallocation_least_of(b, process, row) * (double)total ||
            !goes_through(b, stack, row->through))
            continue;
        *less = arena_printf(b->arena, "%s; %s", row->advice, row->less);
        return row->owner;
    }
    return NULL;
}

static const struct keeps *keeps_row_of(const struct result_preallocation *pool)
{
    const struct keeps *row = keeps_rows;
    while (strcmp(row->owner, pool->owner) != 0) row++; /* describe_cache chose one */
    return row;
}

bool question_is_from_pool(struct site_builder *b, const struct result_preallocation *pool, uint32_t stack)
{
    return strcmp(site_owner_word(b, site_owner_of(b, stack)), pool->owner) == 0 &&
           goes_through(b, stack, keeps_row_of(pool)->through);
}

const char *question_pool_advice(struct site_builder *b, const struct result_preallocation *pool)
{
    return arena_printf(b->arena, "%s held up to %s (%s), which this request cannot use: %s", pool->owner,
                        site_bytes_text(b, (double)pool->bytes), keeps_row_of(pool)->how, pool->advice);
}
