/* The given limits, and which of them applies. */
#include "analyzer/check/check.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

void check_limits_add(struct check_limits *l, const struct check_limit_entry *entry)
{
    struct check_limit_entry *e = ARENA_PUSH(l->entries, l->n, l->cap);
    *e = *entry;
    if (entry->limit.scope)
        e->limit.scope = arena_printf(&l->arena, "%.*s", (int)entry->limit.scope_length, entry->limit.scope);
}

/* A glob without a slash matches the last part of a path. */
static bool glob_fits_paths(const char *glob, const char *const *paths)
{
    for (; *paths; paths++) {
        const char *last = basename(*paths);
        const char *from = strncmp(*paths, "./", 2) == 0 ? *paths + 2 : *paths;
        if (fnmatch(glob, strchr(glob, '/') ? from : last, FNM_PERIOD) == 0 || fnmatch(glob, *paths, 0) == 0)
            return true;
    }
    return false;
}

bool check_is_same_scope(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* `any`: for some device. */
static const struct check_limit *find_limit(const struct check_limits *l, enum check_gate_id gate, const char *scope,
                                            const char *const *paths, int device, bool any)
{
    for (size_t i = l->n; i-- > 0;) {
        const struct check_limit_entry *e = &l->entries[i];
        if (e->gate == gate && check_is_same_scope(e->limit.scope, scope) &&
            (any || e->device == -1 || e->device == device) && (!e->glob || glob_fits_paths(e->glob, paths))) {
            if (any && e->limit.off) {
                if (e->device == -1) return NULL;
                continue;
            }
            return e->limit.off ? NULL : &e->limit;
        }
    }
    return NULL;
}

const struct check_limit *check_limits_find(const struct check_limits *l, enum check_gate_id gate, const char *scope,
                                            const char *const *paths, int device)
{
    return find_limit(l, gate, scope, paths, device, false);
}

const char *check_limits_scope(const struct check_limits *l, enum check_gate_id gate, const char *const *paths,
                               size_t *at)
{
    while (*at < l->n) {
        size_t i = (*at)++, before = 0;
        const char *scope = l->entries[i].gate == gate ? l->entries[i].limit.scope : NULL;
        while (scope && before < i &&
               (l->entries[before].gate != gate || !check_is_same_scope(l->entries[before].limit.scope, scope)))
            before++;
        if (scope && before == i && find_limit(l, gate, scope, paths, -1, true)) return scope;
    }
    return NULL;
}

bool check_limits_has(const struct check_limits *l, enum check_gate_id gate, const char *const *paths)
{
    size_t at = 0;
    return find_limit(l, gate, NULL, paths, -1, true) || check_limits_scope(l, gate, paths, &at);
}

void check_limits_free(struct check_limits *l)
{
    free(l->entries);
    arena_free(&l->arena);
    *l = (struct check_limits){0};
}
