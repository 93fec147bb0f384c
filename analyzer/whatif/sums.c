#include "analyzer/whatif/sums.h"

enum { ENOUGH = 3, COMPARED = 64 };

struct whatif_sums_kept {     /* a call path of the line */
    int64_t bytes, count;     /* live */
    int64_t newest, previous; /* bytes of the last two tensors */
    uint32_t newest_number, previous_number;
    uint32_t grown, freed; /* tensors that a larger one replaced; all that were freed */
};
struct whatif_sums_other {
    uint32_t seen, equal; /* tensors made while the line kept some; of these, as large as all that it kept, … */
    uint32_t grown;       /* … and larger than the one before by what it kept since */
    int64_t most, last;   /* of how many; bytes of the last one */
};

static void keep_tensor(struct whatif_sums *s, const struct run_lifetime *life, uint32_t number)
{
    struct whatif_sums_kept *k =
        MAP_ROW_IN(&s->index, life->stack, s->kept,
                   (struct whatif_sums_kept){.newest_number = UINT32_MAX, .previous_number = UINT32_MAX});
    k->bytes = arena_add_capped(k->bytes, run_requested_or_block(life));
    k->count++;
    k->previous = k->newest;
    k->previous_number = k->newest_number;
    k->newest = run_requested_or_block(life);
    k->newest_number = number;
}

/* The list may get the newest tensor only afterwards. */
static void compare_sums(struct whatif_sums *s, const struct run_lifetime *life)
{
    const int64_t bytes = run_requested_or_block(life);
    int64_t equal = 0, most = 0;
    bool grown = false;
    struct whatif_sums_other *o =
        MAP_ROW_IN(&s->index, life->stack | (uint64_t)1 << 63, s->others, (struct whatif_sums_other){.last = bytes});
    for (size_t i = 0; i < s->kept_n && i < COMPARED; i++) {
        const struct whatif_sums_kept *k = &s->kept[i];
        most = k->count > most ? k->count : most;
        grown = grown || (bytes > o->last && (bytes - o->last == k->newest || bytes - o->last == k->previous));
        if (k->count < 2 || (bytes != k->bytes && bytes != k->bytes - k->newest)) continue;
        equal = k->count > equal ? k->count : equal;
    }
    o->last = bytes;
    if (most < 2) return;
    o->seen++;
    o->equal += equal > 0;
    o->grown += grown;
    o->most = equal > o->most ? equal : o->most;
}

void whatif_sums_allocate(struct whatif_sums *s, const struct run_lifetime *life, uint32_t number, bool of_line)
{
    if (of_line)
        keep_tensor(s, life, number);
    else if (s->kept_n)
        compare_sums(s, life);
}

void whatif_sums_free(struct whatif_sums *s, const struct run_lifetime *life, uint32_t number)
{
    const uint32_t at = map_get(&s->index, life->stack);
    if (at == MAP_NEW) return;
    struct whatif_sums_kept *k = &s->kept[at];
    k->bytes = arena_add_capped(k->bytes, -run_requested_or_block(life));
    k->count--;
    k->freed++;
    k->grown += number == k->previous_number && k->previous < k->newest;
    if (number == k->previous_number) k->previous_number = UINT32_MAX;
    if (number == k->newest_number) k->newest_number = UINT32_MAX;
}

bool whatif_sums_depend(const struct whatif_sums *s)
{
    bool depend = false;
    for (size_t i = 0; i < s->kept_n; i++)
        depend = depend || (s->kept[i].grown >= ENOUGH && s->kept[i].grown * 10u >= s->kept[i].freed * 9u);
    EACH_IN (o, s->others) {
        depend = depend || (o->most >= ENOUGH && o->equal * 10u >= o->seen * 9u) ||
                 (o->grown >= ENOUGH && o->grown * 10u >= (o->seen - 1) * 9u);
    }
    return depend && s->outlived;
}

void whatif_sums_release(struct whatif_sums *s)
{
    ARENA_RELEASE(s->kept, s->others);
    map_free(&s->index);
}
