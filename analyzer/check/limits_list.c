/* The limits that were given, and which of them holds. */
#include "analyzer/check/check.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

void check_limits_add(struct check_limits *l, const struct check_limit_entry *entry)
{
    *ARENA_PUSH(l->entries, l->n, l->cap) = *entry;
}

/* A glob without a slash is of the last part of a path. */
static bool fits(const char *glob, const char *const *paths)
{
    for (; *paths; paths++) {
        const char *slash = strrchr(*paths, '/'), *last = slash ? slash + 1 : *paths;
        const char *from = strncmp(*paths, "./", 2) == 0 ? *paths + 2 : *paths;
        if (fnmatch(glob, strchr(glob, '/') ? from : last, FNM_PERIOD) == 0 || fnmatch(glob, *paths, 0) == 0) {
            return true;
        }
    }
    return false;
}

static const struct check_limit *find(const struct check_limits *l, enum check_gate_id gate, const char *const *paths,
                                      int device, bool any)
{
    for (size_t i = l->n; i-- > 0;) {
        const struct check_limit_entry *e = &l->entries[i];
        if (e->gate == gate && (any || e->device == -1 || e->device == device) && (!e->glob || fits(e->glob, paths))) {
            if (any && e->limit.off) {
                if (e->device == -1) {
                    return NULL;
                }
                continue;
            }
            return e->limit.off ? NULL : &e->limit;
        }
    }
    return NULL;
}

const struct check_limit *check_limits_find(const struct check_limits *l, enum check_gate_id gate,
                                            const char *const *paths, int device)
{
    return find(l, gate, paths, device, false);
}

bool check_limits_has(const struct check_limits *l, enum check_gate_id gate, const char *const *paths)
{
    return find(l, gate, paths, -1, true) != NULL;
}

void check_limits_free(struct check_limits *l)
{
    free(l->entries);
    arena_free(&l->arena);
    *l = (struct check_limits){0};
}
