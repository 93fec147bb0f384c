/* The use of a device's memory when an allocation failed.
 *
 * The memory in use is split, the most certain part first: the program's recorded allocations, the memory that the
 * device held for graphs, and the other processes as NVML reports them. The remainder is this process's context if NVML
 * reports the process; otherwise the report states since when the remainder was in use.
 */
#include "analyzer/oom/waterfall.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/allocator/allocator.h"
#include "analyzer/question/rank.h"
#include "analyzer/site/owner.h"
#include "analyzer/base/sort.h"
#include "analyzer/base/words.h"

static const char *const texts[RESULT_HELD_N] = {RESULT_HELDS(WORDS_SECOND)};

static int64_t or_zero(int64_t value)
{
    return run_is_known(value) && value > 0 ? value : 0;
}

static int64_t take_at_most(int64_t *left, int64_t at_most)
{
    int64_t taken = at_most < 0 ? 0 : at_most < *left ? at_most : *left;
    *left -= taken;
    return taken;
}

/* The process's recorded allocations: `own` is all of it. */
static void split_own_parts(const struct oom_waterfall_facts *f, int64_t own, int64_t *parts)
{
    int64_t reserved = or_zero(f->reserved);
    parts[RESULT_HELD_TENSORS] = take_at_most(&own, or_zero(f->tensors));
    parts[RESULT_HELD_CACHED] = take_at_most(&own, reserved - parts[RESULT_HELD_TENSORS]);
    parts[RESULT_HELD_POOLS] = take_at_most(&own, or_zero(f->pools));
    parts[RESULT_HELD_DIRECT] = own;
}

/* Splits the memory in use that was not recorded. NVML's sample is slightly older or younger than the failure: other
 * processes and unowned memory are assumed to have been the same, and this process's context is the remainder, because
 * its allocations are known exactly. NVML's total includes memory that CUDA's does not, which the driver keeps. */
static void other_parts(const struct oom_waterfall_facts *f, int64_t left, int64_t *parts)
{
    parts[RESULT_HELD_IDLE] = take_at_most(&left, or_zero(f->idle));
    if (!run_is_known(f->nvml_others)) {
        parts[RESULT_HELD_FIRST] = take_at_most(&left, or_zero(f->first));
        parts[RESULT_HELD_UNACCOUNTED] = left;
        return;
    }
    parts[RESULT_HELD_OTHERS] = take_at_most(&left, f->nvml_others);
    if (!run_is_known(f->nvml_own)) {
        parts[RESULT_HELD_FIRST] = take_at_most(&left, or_zero(f->first) - parts[RESULT_HELD_OTHERS]);
        parts[RESULT_HELD_UNACCOUNTED] = left;
        return;
    }
    int64_t nobodys = 0;
    if (run_is_known(f->nvml_total) && run_is_known(f->nvml_free) && f->nvml_total >= f->nvml_free) {
        int64_t used = f->nvml_total - f->nvml_free;
        int64_t kept = f->nvml_total > f->total ? f->nvml_total - f->total : 0;
        nobodys = used - arena_add_capped(arena_add_capped(or_zero(f->nvml_own), or_zero(f->nvml_others)), kept);
    }
    nobodys = take_at_most(&left, nobodys);
    parts[RESULT_HELD_CONTEXT] = take_at_most(&left, f->nvml_own);
    parts[RESULT_HELD_UNACCOUNTED] = nobodys + left;
}

bool oom_waterfall_parts(const struct oom_waterfall_facts *f, int64_t parts[RESULT_HELD_N])
{
    memset(parts, 0, RESULT_HELD_N * sizeof *parts);
    if (!run_is_known(f->total) || !run_is_known(f->free) || f->free < 0 || f->total < f->free) return false;
    int64_t left = f->total - f->free, own = or_zero(f->live);
    own = or_zero(f->tensors) > own ? f->tensors : own;
    own = or_zero(f->reserved) > own ? f->reserved : own;
    parts[RESULT_HELD_GRAPHS] = take_at_most(&left, or_zero(f->graphs));
    int64_t over = own - left;
    if (over > 0) { /* managed memory may be on the host */
        if (over > or_zero(f->managed)) return false;
        own -= over;
    }
    left -= own;
    split_own_parts(f, own, parts);
    other_parts(f, left, parts);
    parts[RESULT_HELD_FREE] = f->free;
    return true;
}

/* In a run without PyTorch's own reports: memory with a category was allocated by its allocator. */
static bool is_tensor(const struct result_oom_verdict *v, enum result_category category)
{
    return v->live_layer == RUN_SERIES_TENSOR ||
           (category != RESULT_CATEGORY_UNKNOWN && category != RESULT_CATEGORY_WORKSPACES);
}

static int64_t tensor_bytes(const struct result_oom_verdict *v)
{
    int64_t sum = 0;
    for (unsigned i = 0; i < RESULT_CATEGORIES_N; i++)
        sum = arena_add_capped(sum, is_tensor(v, (enum result_category)i) ? v->by_category.bytes[i] : 0);
    bool torch = v->live_layer == RUN_SERIES_TENSOR;
    return torch && run_is_known(v->tensor_allocated) && v->tensor_allocated > sum ? v->tensor_allocated : sum;
}

/* PyTorch's segments: their tensors are shown instead. */
static bool is_waterfall_segment(struct site_builder *b, const struct result_oom_verdict *v, const struct oom_taken *t)
{
    return v->live_layer == RUN_SERIES_TENSOR &&
           site_owner_kind(b, site_owner_of_location(b, t->location)) == RESULT_OWNER_TORCH;
}

/* Memory that CUDA's pools held then, as last reported: when an allocation from one failed, or it was trimmed. Read
 * shortly after the failure, which causes such a report. */
static int64_t pools_held(const struct run *run, const struct run_oom *row)
{
    static const int64_t soon_ns = 100000000;
    size_t n;
    int64_t held = 0;
    const struct run_pool_memory *p = run_pool_memory(run, &n);
    struct map seen = {0};
    for (size_t i = n; i-- > 0;) {
        if (p[i].process == row->process && p[i].device == row->device &&
            p[i].time_ns <= arena_add_capped(row->time_ns, soon_ns)) {
            uint32_t *at = map_at(&seen, p[i].pool);
            held = arena_add_capped(held, *at == MAP_NEW ? p[i].reserved_bytes : 0);
            *at = 0;
        }
    }
    map_free(&seen);
    return held;
}

static struct oom_waterfall_facts waterfall_facts_of(struct site_builder *b, const struct result_oom_verdict *v)
{
    const struct oom_facts *f = v->facts;
    struct oom_waterfall_facts w = {.total = f->total,
                                    .free = f->free,
                                    .live = f->device_live,
                                    .tensors = tensor_bytes(v),
                                    .reserved = v->live_layer == RUN_SERIES_TENSOR ? f->tensor_reserved : RUN_UNKNOWN,
                                    .graphs = f->graphs,
                                    .first = f->outside_first,
                                    .nvml_total = f->nvml ? f->nvml->total_bytes : RUN_UNKNOWN,
                                    .nvml_free = f->nvml ? f->nvml->free_bytes : RUN_UNKNOWN,
                                    .nvml_own = f->nvml ? f->nvml->own_bytes : RUN_UNKNOWN,
                                    .nvml_others = f->nvml ? f->nvml->other_bytes : RUN_UNKNOWN};
    EACH_IN (t, f->taken) {
        w.managed = arena_add_capped(w.managed, t->space == GS_SPACE_MANAGED ? t->bytes : 0);
        w.pools = arena_add_capped(w.pools, t->space == GS_SPACE_POOL && !is_waterfall_segment(b, v, t) ? t->bytes : 0);
    }
    w.idle = pools_held(b->run, f->row) - w.pools;
    if (w.tensors && v->live_layer != RUN_SERIES_TENSOR && w.pools) /* its tensors are in the pool */
        w.pools = w.pools > w.tensors ? w.pools - w.tensors : 0;
    return w;
}

struct lines {
    struct site_builder *b;
    struct map index; /* text, line → lines */
    struct map paths; /* text, site: seen */
    struct result_held_line *list;
    size_t n, cap;
    int64_t sum;
};

static void add_stack_line(struct lines *l, const char *text, uint32_t stack, int64_t bytes, uint64_t count)
{
    const uint32_t number = site_index(l->b, stack); /* may move the sites */
    const struct result_site *site = &l->b->sites[number];
    const uint64_t kind = map_hash((uintptr_t)text);
    uint32_t *at = map_at(&l->index, map_hash(site_line_key(site) ^ kind));
    uint32_t *path = map_at(&l->paths, map_hash(site_key(site) ^ kind));
    const bool first = *at == MAP_NEW;
    if (first) {
        *at = (uint32_t)l->n;
        *ARENA_PUSH(l->list, l->n, l->cap) = (struct result_held_line){.text = text, .site = site_of_call(l->b, stack)};
    }
    struct result_held_line *line = &l->list[*at];
    if (!first && *path == MAP_NEW) {
        line->site.paths = line->site.paths ? line->site.paths + 1 : 2;
        site_keep_common(&line->site, site);
    }
    *path = 1;
    line->bytes = arena_add_capped(line->bytes, bytes);
    line->count += count;
    l->sum = arena_add_capped(l->sum, bytes);
}

static void add_text_line(struct lines *l, const char *text, int64_t bytes, uint64_t count)
{
    *ARENA_PUSH(l->list, l->n, l->cap) = (struct result_held_line){.text = text, .bytes = bytes, .count = count};
    l->sum = arena_add_capped(l->sum, or_zero(bytes));
}

SORT_ORDER(compare_held_lines, struct result_held_line,
           SORT_DOWN(x->bytes, y->bytes) ?: site_compare(&x->site, &y->site) ?: SORT_DOWN(x->count, y->count))

/* Lines whose sum exceeds their part cannot be its lines: they are left out. */
static void lines_close(struct lines *l, struct result_held_part *part)
{
    if (l->n && l->sum <= part->bytes) {
        part->lines =
            site_list(l->b, l->list, l->n, sizeof *l->list, compare_held_lines, &part->lines_n, &part->lines_total);
    }
    MAP_RELEASE(&l->index, &l->paths);
    free(l->list);
}

/* A program without PyTorch has more than its context had at first: CUDA rounds each allocation up, to as much as its
 * page of 2 MiB; how much of it is rounding, and how much is code that was loaded later, is not known. */
static bool is_rounded(const struct oom_facts *f, int64_t context)
{
    return !f->attached && f->layer == RUN_SERIES_DEVICE && run_is_known(f->outside_first) &&
           context > f->outside_first + f->outside_first / 4;
}

static struct result_held_part *part_add(struct result_oom_verdict *v, enum result_held what, int64_t bytes)
{
    struct result_held_part *part = &v->waterfall[v->waterfall_n++];
    *part = (struct result_held_part){.what = what,
                                      .category = RESULT_CATEGORY_UNKNOWN,
                                      .text = texts[what],
                                      .bytes = bytes,
                                      .share = (double)bytes / (double)v->total_bytes};
    if (v->facts->attached && what == RESULT_HELD_CONTEXT)
        part->text = "this process's CUDA context, and what it allocated before gpuspy attached";
    if (what == RESULT_HELD_CONTEXT && is_rounded(v->facts, bytes))
        part->text = "this process's CUDA context and code, and what CUDA adds to each allocation";
    if (v->facts->attached && what == RESULT_HELD_FIRST)
        part->text = "in use when gpuspy attached: this process, contexts, other processes";
    return part;
}

/* Largest first; `all` is the sum of the parts of TENSORS. */
static void list_tensor_lines(struct site_builder *b, struct result_oom_verdict *v, int64_t all)
{
    const struct result_by_category *c = &v->by_category;
    int64_t bytes[RESULT_CATEGORIES_N], sum = 0;
    for (unsigned i = 0; i < RESULT_CATEGORIES_N; i++) {
        bytes[i] = is_tensor(v, (enum result_category)i) ? c->bytes[i] : 0;
        sum = arena_add_capped(sum, bytes[i]);
    }
    bytes[RESULT_CATEGORY_UNKNOWN] += all > sum ? all - sum : 0; /* that PyTorch counts, and gpuspy does not */
    for (unsigned n = 0; n < RESULT_CATEGORIES_N && all > 0; n++) {
        unsigned most = 0;
        for (unsigned i = 1; i < RESULT_CATEGORIES_N; i++) most = bytes[i] > bytes[most] ? i : most;
        struct lines lines = {.b = b};
        int64_t taken = take_at_most(&all, bytes[most]);
        bytes[most] = -1;
        if (taken <= 0) continue;
        struct result_held_part *part = part_add(v, RESULT_HELD_TENSORS, taken);
        part->category = (enum result_category)most;
        part->text =
            most == RESULT_CATEGORY_UNKNOWN ? "tensors of unknown category" : result_category_text(part->category);
        for (size_t i = 0; i < c->lines_n; i++)
            if (c->lines[i].category == part->category)
                add_stack_line(&lines, NULL, c->lines[i].stack, c->lines[i].bytes, c->lines[i].count);
        lines_close(&lines, part);
    }
}

struct oom_idle oom_idle(const struct result_report *r, const struct result_oom_verdict *v)
{
    struct oom_idle idle = {0};
    EACH_IN (s, r->allocator) {
        if (s->moment != ALLOCATOR_MOMENT_OOM || s->process != v->process || s->device != v->device ||
            s->time_ns != v->time_ns)
            continue;
        idle.pending = or_zero(s->pending);
        EACH_IN (share, s->by_pool) {
            if (share->pool != ALLOCATOR_POOL_PRIVATE_SMALL && share->pool != ALLOCATOR_POOL_PRIVATE_LARGE) continue;
            idle.private = arena_add_capped(idle.private, or_zero(share->reserved - share->active));
            idle.shared = idle.shared || share->active > 0;
        }
    }
    return idle;
}

static void list_cached_lines(struct site_builder *b, const struct result_oom_verdict *v, struct result_held_part *part)
{
    const struct allocator_heap_map *m = &v->facts->map;
    struct oom_idle idle = oom_idle(b->report, v);
    struct lines lines = {.b = b};
    int64_t rest = part->bytes;
    int64_t pending = take_at_most(&rest, idle.pending), private = take_at_most(&rest, idle.private);
    if (pending) add_text_line(&lines, "freed, but another stream may still use it (record_stream)", pending, 0);
    if (private)
        add_text_line(&lines, "in private pools, which only CUDA graphs or torch.cuda.MemPool can use", private, 0);
    if (m->segments && m->free_bytes > 0 && rest > 0) {
        add_text_line(&lines,
                      arena_printf(b->arena, "in %llu hole%s%s, the largest %s", (unsigned long long)m->holes,
                                   m->holes == 1 ? "" : "s", pending || private ? ", counting all" : "",
                                   site_bytes_text(b, (double)m->largest_free_bytes)),
                      rest, m->holes);
    }
    lines_close(&lines, part);
}

/* NULL: the frames do not decide. */
static const char *owner_of(struct site_builder *b, uint32_t location)
{
    uint32_t owner = site_owner_of_location(b, location);
    return site_owner_kind(b, owner) == RESULT_OWNER_UNKNOWN ? NULL : site_owner_word(b, owner);
}

static void list_direct_lines(struct site_builder *b, const struct result_oom_verdict *v, struct result_held_part *part)
{
    if (part->what == RESULT_HELD_DIRECT && v->live_layer != RUN_SERIES_TENSOR) part->text = "CUDA allocations";
    const struct oom_facts *f = v->facts;
    struct lines lines = {.b = b};
    struct map tensors = {0}; /* stacks that are listed with the tensors */
    for (size_t i = 0; v->live_layer != RUN_SERIES_TENSOR && i < v->by_category.lines_n; i++) {
        const struct result_category_line *l = &v->by_category.lines[i];
        if (is_tensor(v, l->category)) *map_at(&tensors, l->stack) = 0;
    }
    EACH_IN (t, f->taken) {
        bool pool = t->space == GS_SPACE_POOL;
        if (pool == (part->what == RESULT_HELD_POOLS) && map_get(&tensors, t->stack) == MAP_NEW &&
            !is_waterfall_segment(b, v, t))
            add_stack_line(&lines, owner_of(b, t->location), t->stack, t->bytes, t->count);
    }
    map_free(&tensors);
    lines_close(&lines, part);
}

/* The bytes that a process of this run had allocated on a GPU of its host by then, according to its timeline. */
static int64_t bytes_taken_by(const struct site_builder *b, uint32_t process, const char *gpu, int64_t at_ns)
{
    const struct result_report *r = b->report;
    int64_t bytes = 0;
    EACH_IN (t, r->timelines) {
        if (t->process == process && t->layer == RUN_SERIES_DEVICE &&
            strcmp(question_gpu_word(b, process, t->device), gpu) == 0)
            for (size_t p = 0; p < t->n && t->points[p].time_s <= (double)at_ns / 1e9; p++) bytes = t->points[p].bytes;
    }
    return bytes;
}

static bool one_host(const struct run_process *a, const struct run_process *b)
{
    return a->host && b->host && strcmp(a->host, b->host) == 0 && run_is_known(a->start_real_ns) &&
           run_is_known(b->start_real_ns);
}

static const char *process_name(struct site_builder *b, const struct run_process *p)
{
    return run_is_known(p->rank)
               ? arena_printf(b->arena, "rank %lld of this run (process %u)", (long long)p->rank, p->pid)
               : arena_printf(b->arena, "process %u of this run", p->pid);
}

/* This run's own processes by their recorded memory; of the others NVML reports the largest. */
static void list_other_processes(struct site_builder *b, const struct result_oom_verdict *v,
                                 struct result_held_part *part)
{
    const struct run_device_sample *nvml = v->facts->nvml;
    size_t n;
    const struct run_process *p = run_processes(b->run, &n), *own = &p[v->process];
    struct lines lines = {.b = b};
    const char *gpu = question_gpu_word(b, v->process, v->device);
    bool foremost_named = false;
    for (uint32_t i = 0; i < n; i++) {
        if (i == v->process || !one_host(own, &p[i])) continue;
        int64_t at = arena_add_capped(v->facts->row->time_ns, own->start_real_ns - p[i].start_real_ns);
        int64_t bytes = at < 0 || at > p[i].end_ns ? 0 : bytes_taken_by(b, i, gpu, at);
        if (bytes > 0) {
            add_text_line(&lines, process_name(b, &p[i]), bytes, 0);
            lines.list[lines.n - 1].pid = p[i].pid;
            foremost_named = foremost_named || (nvml && nvml->other_pid == p[i].pid);
        }
    }
    if (lines.sum > part->bytes) { /* they use another device with the same name */
        lines.n = 0;
        lines.sum = 0;
        foremost_named = false;
    }
    if (nvml && nvml->other_pid && !foremost_named) {
        const char *who = arena_printf(b->arena, "process %u%s%s%s", nvml->other_pid, nvml->other_name ? " (" : "",
                                       nvml->other_name ? nvml->other_name : "", nvml->other_name ? ")" : "");
        part->text = arena_printf(b->arena, "%s, %s%s", part->text, lines.n ? "" : "most of it ", who);
        add_text_line(&lines, who, RUN_UNKNOWN, 0);
        lines.list[lines.n - 1].pid = nvml->other_pid;
    }
    lines_close(&lines, part);
}

/* Up to 1 MiB, PyTorch rounds up to 512 bytes; larger blocks keep up to 1 MiB that is not worth a separate block. */
static int64_t rounding_bytes(const struct result_oom_verdict *v)
{
    enum { SMALL = 1 << 20, GRAIN = 512 };
    int64_t most = 0;
    for (size_t i = 0; v->live_layer == RUN_SERIES_TENSOR && i < v->by_category.lines_n; i++) {
        const struct result_category_line *l = &v->by_category.lines[i];
        int64_t each = l->count ? l->bytes / (int64_t)l->count : 0;
        int64_t waste = each > SMALL ? SMALL : GRAIN - 1;
        if (l->count < INT32_MAX) most = arena_add_capped(most, (int64_t)l->count * (waste < each ? waste : each));
    }
    return most;
}

void oom_waterfall_build(struct site_builder *b, struct result_oom_verdict *v)
{
    static void (*const lines_of[RESULT_HELD_N])(struct site_builder *, const struct result_oom_verdict *,
                                                 struct result_held_part *) = {[RESULT_HELD_CACHED] = list_cached_lines,
                                                                               [RESULT_HELD_POOLS] = list_direct_lines,
                                                                               [RESULT_HELD_DIRECT] = list_direct_lines,
                                                                               [RESULT_HELD_OTHERS] =
                                                                                   list_other_processes};
    int64_t parts[RESULT_HELD_N];
    struct oom_waterfall_facts f = waterfall_facts_of(b, v);
    /* device_live: if very many allocations failed, the live memory of some failures is not kept */
    if (v->space == GS_SPACE_PINNED || v->device_live == RUN_UNKNOWN || v->total_bytes <= 0 ||
        !oom_waterfall_parts(&f, parts))
        return;
    v->waterfall = arena_alloc(b->arena, (RESULT_HELD_N + RESULT_CATEGORIES_N) * sizeof *v->waterfall);
    list_tensor_lines(b, v, parts[RESULT_HELD_TENSORS]);
    for (unsigned i = RESULT_HELD_TENSORS + 1; i < RESULT_HELD_N; i++) {
        if (parts[i] > 0) {
            struct result_held_part *part = part_add(v, (enum result_held)i, parts[i]);
            if (lines_of[i]) lines_of[i](b, v, part);
        }
    }
    v->rounding_known = v->live_layer == RUN_SERIES_TENSOR && run_is_known(v->facts->rounding);
    v->rounding_most = v->rounding_known ? v->facts->rounding : rounding_bytes(v);
}
