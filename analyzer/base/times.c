#include "analyzer/base/times.h"

#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

void times_grow(struct times *t)
{
    t->cap += t->cap / 8 + 16;
    t->low = arena_realloc(t->low, t->cap, sizeof *t->low);
}

void times_carry(struct times *t, uint32_t high)
{
    size_t cap = t->carries_cap;
    t->carries = arena_grow(t->carries, t->carries_n, &cap, sizeof *t->carries);
    t->carries_cap = (uint32_t)cap;
    t->carries[t->carries_n++] = (struct times_carry){t->n, high};
    t->high = high;
}

int64_t times_at(const struct times *t, size_t i)
{
    size_t below = SORT_COUNT(t->carries_n, k, t->carries[k].from <= i);
    uint64_t high = below ? t->carries[below - 1].high : 0;
    return (int64_t)(high << 32 | t->low[i]);
}

void times_halve(struct times *t, size_t first)
{
    uint32_t kept = t->n > first ? (t->n - (uint32_t)first + 1) / 2 : 0, carries = 0;
    for (uint32_t i = 0; i < kept; i++) t->low[i] = t->low[2 * i + first];
    for (uint32_t i = 0; i < t->carries_n; i++) { /* the first that is kept, at `from` or after it */
        uint32_t from = t->carries[i].from, to = from > first ? (from - (uint32_t)first + 1) / 2 : 0;
        carries -= carries && t->carries[carries - 1].from == to; /* all carries between the two are gone */
        if (to < kept) t->carries[carries++] = (struct times_carry){to, t->carries[i].high};
    }
    t->n = kept;
    t->carries_n = carries;
    t->high = carries ? t->carries[carries - 1].high : 0;
    if (t->cap > t->n + t->n / 2 + 64) {
        t->cap = t->n + t->n / 8 + 16;
        t->low = arena_realloc(t->low, t->cap, sizeof *t->low);
    }
}

void times_free(struct times *t)
{
    ARENA_RELEASE(t->low, t->carries);
    *t = (struct times){0};
}
