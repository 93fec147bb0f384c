/* Lists of the report: sorted, cut, by stack or by site. */
#include "analyzer/site/builder.h"
#include "analyzer/base/sort.h"

#include <stdlib.h>

uint32_t site_index(struct site_builder *b, uint32_t stack)
{
    /* of stack + 1, so that RUN_NONE has its own entry; numbers + 1, 0 not computed yet */
    uint32_t *of_stack = SITE_REACH(b->site_of_stack, (uint32_t)(stack + 1), b->site_of_stack_cap);
    if (*of_stack) return *of_stack - 1;
    struct result_site site = site_of(b->run, stack, &b->helpers);
    const uint32_t of_key = MAP_INDEX_IN(&b->site_of_key, site_key(&site), b->sites, site);
    *of_stack = of_key + 1;
    return of_key;
}

struct result_site site_of_call(const struct site_builder *b, uint32_t stack)
{
    return site_of(b->run, stack, &b->helpers);
}

struct result_trace site_trace(struct site_builder *b, uint32_t stack)
{
    return (struct result_trace){.number = stack, .site = site_of_call(b, stack)};
}

/* If the caller is in the same file, the call site itself is sufficient. */
static bool in_another_file(const struct result_site *site)
{
    return site->caller && site->caller->file && site->file && site->caller->file != site->file;
}

const char *site_text_with_caller(struct site_builder *b, const struct result_site *site)
{
    char here[512], caller[512] = "", inner[512] = "";
    site_text(site, here, sizeof here);
    if (site->inner) {
        struct result_site i = {
            .known = true, .file = site->inner->file, .line = site->inner->line, .function = site->inner->function};
        site_text(&i, inner, sizeof inner);
        return arena_printf(b->arena, "%s (through %s)", here, inner);
    }
    if (in_another_file(site)) {
        struct result_site c = {.known = true, .file = site->caller->file, .line = site->caller->line};
        site_text(&c, caller, sizeof caller);
    }
    return *caller ? arena_printf(b->arena, "%s (called at %s)", here, caller) : arena_printf(b->arena, "%s", here);
}

const char *site_short_text(struct site_builder *b, const struct result_site *site)
{
    char here[512], caller[512] = "";
    struct result_site own = *site;
    own.function = site->line ? NULL : site->function;
    own.operation = NULL;
    site_text(&own, here, sizeof here);
    if (site->inner) {
        struct result_site i = {.known = true, .file = site->inner->file, .line = site->inner->line};
        site_text(&i, caller, sizeof caller);
        return arena_printf(b->arena, "%s (in %s)", here, caller);
    }
    if (in_another_file(site)) {
        struct result_site c = {.known = true, .file = site->caller->file, .line = site->caller->line};
        site_text(&c, caller, sizeof caller);
    }
    return arena_printf(b->arena, "%s%s%s%s", here, *caller ? " (from " : "", caller, *caller ? ")" : "");
}

/* Equal sizes are ordered by the stack's number, so that two reports on one file are equal. */
SORT_ORDER(order_site_shares, struct site_share,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_DOWN(x->count, y->count) ?: SORT_UP(x->stack, y->stack))

struct result_by_stack *site_list_by_stack(struct site_builder *b, struct site_share *shares, size_t n, size_t *listed,
                                           size_t *total)
{
    SORT(shares, n, order_site_shares);
    while (n && shares[n - 1].bytes <= 0 && shares[n - 1].count == 0) n--;
    *total = n;
    *listed = n < b->top ? n : b->top;
    struct result_by_stack *list = arena_alloc(b->arena, *listed * sizeof *list);
    for (size_t i = 0; i < *listed; i++) {
        list[i] = (struct result_by_stack){.bytes = shares[i].bytes,
                                           .count = shares[i].count,
                                           .category = RESULT_CATEGORY_UNKNOWN,
                                           .stack = site_trace(b, shares[i].stack)};
    }
    return list;
}

SORT_ORDER(compare_sites, struct result_by_site,
           SORT_DOWN(x->bytes, y->bytes) ?: SORT_DOWN(x->count, y->count) ?: SORT_UP(x->site.line, y->site.line))

/* Allocated; unordered. */
static struct result_by_site *list_shares_by_site(struct site_builder *b, const struct site_share *shares, size_t n,
                                                  size_t *out_n)
{
    struct map index = {0};
    struct result_by_site *work = NULL;
    size_t work_n = 0, cap = 0;
    for (size_t i = 0; i < n; i++) {
        if (shares[i].bytes <= 0 && shares[i].count == 0) continue;
        uint32_t site = site_index(b, shares[i].stack);
        struct result_by_site *by =
            MAP_ROW(&index, site, work, work_n, cap, (struct result_by_site){.site = site_of_call(b, shares[i].stack)});
        by->bytes = arena_add_capped(by->bytes, shares[i].bytes);
        by->count += shares[i].count;
        by->stacks++;
    }
    map_free(&index);
    *out_n = work_n;
    return work;
}

struct result_by_site *site_list_by_site(struct site_builder *b, const struct site_share *shares, size_t n,
                                         size_t *listed, size_t *total)
{
    size_t work_n;
    struct result_by_site *work = list_shares_by_site(b, shares, n, &work_n);
    struct result_by_site *list = site_list(b, work, work_n, sizeof *work, compare_sites, listed, total);
    free(work);
    return list;
}

static void add_site(void *into, const void *from)
{
    struct result_by_site *to = into;
    const struct result_by_site *x = from;
    to->bytes = arena_add_capped(to->bytes, x->bytes);
    to->count += x->count;
    to->stacks += x->stacks;
}

SITE_LINE_PATH(path_of_site, struct result_by_site, .bytes = x->bytes, .count = x->count, .site = x->site)

struct result_by_site *site_list_by_line(struct site_builder *b, const struct site_share *shares, size_t n,
                                         size_t *listed, size_t *total)
{
    static const struct site_line_form form =
        SITE_LINE_FORM(struct result_by_site, site, .add = add_site, .path = path_of_site, .order = compare_sites);
    size_t work_n;
    struct result_by_site *work = list_shares_by_site(b, shares, n, &work_n);
    SORT(work, work_n, compare_sites);
    struct result_by_site *list = site_lines_of(b, work, work_n, &form, listed, total);
    free(work);
    return list;
}
