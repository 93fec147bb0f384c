/* Lists of the report: sorted, cut, by stack or by site. */
#include "analyzer/site/builder.h"

#include <stdlib.h>
#include <string.h>

uint32_t gs_site_number(struct gs_builder *b, uint32_t stack)
{
    /* of stack + 1, so that GS_NONE has its own; numbers + 1, 0 not asked yet */
    uint32_t *of_stack = GS_REACH(b->site_of_stack, (uint32_t)(stack + 1), b->site_of_stack_cap);
    if (*of_stack) {
        return *of_stack - 1;
    }
    struct gs_site site = gs_site_of(b->run, stack, &b->helpers);
    uint32_t *of_key = gs_map_at(&b->site_of_key, gs_site_key(&site));
    if (*of_key == GS_MAP_NEW) {
        *of_key = (uint32_t)b->sites_n;
        *GS_PUSH(b->sites, b->sites_n, b->sites_cap) = site;
    }
    *of_stack = *of_key + 1;
    return *of_key;
}

struct gs_trace gs_trace_of(struct gs_builder *b, uint32_t stack)
{
    struct gs_trace trace = {0};
    const struct gs_frame **frames = NULL;
    size_t cap = 0;
    uint32_t site = gs_site_number(b, stack); /* first: it may move b->sites */
    trace.site = b->sites[site];
    for (; stack != GS_NONE; stack = gs_stack_parent(b->run, stack)) {
        size_t n;
        const struct gs_frame *places = gs_frame_places(b->run, stack, &n);
        for (size_t i = 0; i < n; i++) {
            *GS_PUSH(frames, trace.n, cap) = &places[i];
        }
    }
    trace.frames = gs_arena_alloc(b->arena, trace.n * sizeof *trace.frames);
    if (trace.n) {
        memcpy(trace.frames, frames, trace.n * sizeof *frames);
    }
    free(frames);
    return trace;
}

/* Of a caller nearby the place itself says enough. */
static bool in_another_file(const struct gs_site *site)
{
    return site->caller && site->caller->file && site->file && site->caller->file != site->file;
}

const char *gs_site_path(struct gs_builder *b, const struct gs_site *site)
{
    char here[512], caller[512] = "", inner[512] = "";
    gs_site_text(site, here, sizeof here);
    if (site->inner) {
        struct gs_site i = {
            .known = true, .file = site->inner->file, .line = site->inner->line, .function = site->inner->function};
        gs_site_text(&i, inner, sizeof inner);
        return gs_arena_printf(b->arena, "%s, by way of %s", here, inner);
    }
    if (in_another_file(site)) {
        struct gs_site c = {.known = true, .file = site->caller->file, .line = site->caller->line};
        gs_site_text(&c, caller, sizeof caller);
    }
    return gs_arena_printf(b->arena, "%s%s%s", here, *caller ? ", called at " : "", caller);
}

const char *gs_site_line(struct gs_builder *b, const struct gs_site *site)
{
    char here[512], caller[512] = "";
    struct gs_site own = *site;
    own.function = site->line ? NULL : site->function;
    own.operation = NULL;
    gs_site_text(&own, here, sizeof here);
    if (site->inner) {
        struct gs_site i = {.known = true, .file = site->inner->file, .line = site->inner->line};
        gs_site_text(&i, caller, sizeof caller);
        return gs_arena_printf(b->arena, "%s (in %s)", here, caller);
    }
    if (in_another_file(site)) {
        struct gs_site c = {.known = true, .file = site->caller->file, .line = site->caller->line};
        gs_site_text(&c, caller, sizeof caller);
    }
    return gs_arena_printf(b->arena, "%s%s%s%s", here, *caller ? " (from " : "", caller, *caller ? ")" : "");
}

/* Ties by number of the stack, so that two reports on one file are equal. */
static int heavier_share(const void *a, const void *b)
{
    const struct gs_share *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->stack < y->stack ? -1 : x->stack > y->stack;
}

struct gs_by_stack *gs_list_by_stack(struct gs_builder *b, struct gs_share *shares, size_t n, size_t *listed,
                                     size_t *total)
{
    if (n > 1) {
        qsort(shares, n, sizeof *shares, heavier_share);
    }
    while (n && shares[n - 1].bytes <= 0 && shares[n - 1].count == 0) {
        n--;
    }
    *total = n;
    *listed = n < b->top ? n : b->top;
    struct gs_by_stack *list = gs_arena_alloc(b->arena, *listed * sizeof *list);
    for (size_t i = 0; i < *listed; i++) {
        list[i] = (struct gs_by_stack){.bytes = shares[i].bytes,
                                       .count = shares[i].count,
                                       .number = shares[i].stack,
                                       .category = GS_CATEGORY_UNKNOWN,
                                       .stack = gs_trace_of(b, shares[i].stack)};
    }
    return list;
}

static int heavier_site(const void *a, const void *b)
{
    const struct gs_by_site *x = a, *y = b;
    if (x->bytes != y->bytes) {
        return x->bytes > y->bytes ? -1 : 1;
    }
    if (x->count != y->count) {
        return x->count > y->count ? -1 : 1;
    }
    return x->site.line - y->site.line;
}

/* Allocated; in no order. */
static struct gs_by_site *by_site(struct gs_builder *b, const struct gs_share *shares, size_t n, size_t *out_n)
{
    struct gs_map index = {0};
    struct gs_by_site *work = NULL;
    size_t work_n = 0, cap = 0;
    for (size_t i = 0; i < n; i++) {
        if (shares[i].bytes <= 0 && shares[i].count == 0) {
            continue;
        }
        uint32_t site = gs_site_number(b, shares[i].stack);
        uint32_t *at = gs_map_at(&index, site);
        if (*at == GS_MAP_NEW) {
            *at = (uint32_t)work_n;
            *GS_PUSH(work, work_n, cap) = (struct gs_by_site){.site = b->sites[site]};
        }
        work[*at].bytes = gs_add(work[*at].bytes, shares[i].bytes);
        work[*at].count += shares[i].count;
        work[*at].stacks++;
    }
    gs_map_free(&index);
    *out_n = work_n;
    return work;
}

struct gs_by_site *gs_list_by_site(struct gs_builder *b, const struct gs_share *shares, size_t n, size_t *listed,
                                   size_t *total)
{
    size_t work_n;
    struct gs_by_site *work = by_site(b, shares, n, &work_n);
    struct gs_by_site *list = gs_list(b, work, work_n, sizeof *work, heavier_site, listed, total);
    free(work);
    return list;
}

static void add_site(void *into, const void *from)
{
    struct gs_by_site *to = into;
    const struct gs_by_site *x = from;
    to->bytes = gs_add(to->bytes, x->bytes);
    to->count += x->count;
    to->stacks += x->stacks;
}

static struct gs_line_path path_of_site(const void *row)
{
    const struct gs_by_site *x = row;
    return (struct gs_line_path){.bytes = x->bytes, .count = x->count, .site = x->site};
}

struct gs_by_site *gs_list_by_line(struct gs_builder *b, const struct gs_share *shares, size_t n, size_t *listed,
                                   size_t *total)
{
    static const struct gs_line_form form = {.size = sizeof(struct gs_by_site),
                                             .site = offsetof(struct gs_by_site, site),
                                             .paths = offsetof(struct gs_by_site, paths),
                                             .add = add_site,
                                             .path = path_of_site,
                                             .order = heavier_site};
    size_t work_n;
    struct gs_by_site *work = by_site(b, shares, n, &work_n);
    if (work_n > 1) {
        qsort(work, work_n, sizeof *work, heavier_site);
    }
    struct gs_by_site *list = gs_lines_of(b, work, work_n, &form, listed, total);
    free(work);
    return list;
}
