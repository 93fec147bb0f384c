/* Which values are parts of a tensor, which keep the whole of it. */
#include "analyzer/base/each.h"
#include "analyzer/site/holder_read.h"

#include <string.h>

/* Does no more than one block of each step remain of all that grows? */
static bool is_one_block_per_step(const struct site_search *s)
{
    const uint32_t line = run_stack_python(s->b->run, s->stack);
    uint64_t count = 0, steps = 0;
    EACH_IN (g, s->b->report->growth) {
        count += g->count;
        if (run_stack_python(s->b->run, g->stack.number) == line && g->by_steps) steps = g->steps;
    }
    return steps && count <= steps + steps / 4;
}

/* for k, row in enumerate(out): index[k] = row, or out[k] there: of each pass one block remains, so what an inner loop
 * stores are parts of it. The values of a dictionary may be whole. */
static bool is_item(struct site_search *s, size_t i, const char *value)
{
    const size_t n = site_name_length(value), around = site_common_loop(s, s->at, i);
    const char *end = n && value[n] == '[' ? site_closing(value + n) : "";
    if (!n || around == s->code.n || !is_one_block_per_step(s)) return false;
    for (size_t k = site_common_loop(s, i, i); k != around && k < s->code.n; k = site_common_loop(s, k, k)) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_binding_of(s->scratch, &s->code.list[k], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        const bool mapping = strstr(a.value, ".items()") || strstr(a.value, ".values()");
        if (*end && !end[1] && value[n + 1] != '"') { /* out[k], row[0] */
            const char *index = arena_printf(s->scratch, "%.*s", (int)(end - value - (long)n - 1), value + n + 1);
            if (!mapping && (site_names_has(&made, index) || site_names_has(&made, site_base_name(s->scratch, value))))
                return true;
        }
        if (!value[n] && !mapping && site_names_has(&made, value) && site_holds(a.value, &s->names, false)) return true;
    }
    return false;
}

bool site_is_view(struct site_search *s, size_t i, const char *value)
{
    static const char detach[] = ".detach()";
    const char *parts = site_values_of(s, value), *part;
    const bool several = parts != value || *site_part_of(s->scratch, value, 1);
    for (size_t k = 0; several && k < SITE_NAMES && *(part = site_part_of(s->scratch, parts, k)); k++) {
        const char *colon = *value == '{' ? strchr(part, ':') : NULL, *of = colon ? colon + 1 : part;
        of += strspn(of, " *");
        if (site_value_holds(s, i, of)) return site_is_view(s, i, of);
    }
    size_t n = strlen(value);
    if (n >= sizeof detach && strcmp(value + n - (sizeof detach - 1), detach) == 0) n -= sizeof detach - 1;
    value = arena_printf(s->scratch, "%.*s", (int)n, value);
    const char *open = value;
    while (*open && site_closing(open) != value + n - 1) open++;
    const bool indexed =
        *open == '[' && open > value && strchr(open, ',') && (strchr(open, ':') || strstr(open, "..."));
    const bool called = i == s->at && s->returned_view && *open == '(' && open == value + site_name_length(value);
    return indexed || called || site_names_has(&s->views, value) || is_item(s, i, value);
}
