#include "analyzer/import/snapshot_layout.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/sort.h"

enum { UNIT = 512, MIB = 1 << 20, NONE = UINT32_MAX, GONE = NONE - 1 };

struct part { /* of a segment: a block, or free memory between two */
    uint64_t address;
    int64_t bytes;
    uint32_t before, after; /* neighbours in the segment */
    bool free, small;
};

struct layout {
    struct part *parts;
    size_t n, cap;
    uint32_t spare; /* an unused part; `after` is the next one */
    struct map at;  /* address → part, or GONE */
    int64_t max_split;
    const int64_t *divisions;         /* of struct import_snapshot */
    bool unknown[IMPORT_DEVICES + 1]; /* the sizes of this device stay as they are */
};

static uint32_t add_layout_part(struct layout *l, struct part part)
{
    uint32_t at = l->spare;
    if (at == NONE) {
        at = (uint32_t)l->n;
        (void)ARENA_PUSH(l->parts, l->n, l->cap);
    } else {
        l->spare = l->parts[at].after;
    }
    l->parts[at] = part;
    if (part.before != NONE) l->parts[part.before].after = at;
    if (part.after != NONE) l->parts[part.after].before = at;
    *map_at(&l->at, part.address) = at;
    return at;
}

static void remove_layout_part(struct layout *l, uint32_t at)
{
    const struct part part = l->parts[at];
    if (part.before != NONE) l->parts[part.before].after = part.after;
    if (part.after != NONE) l->parts[part.after].before = part.before;
    *map_at(&l->at, part.address) = GONE;
    l->parts[at].after = l->spare;
    l->spare = at;
}

static uint32_t layout_part_at(const struct layout *l, uint64_t address)
{
    const uint32_t at = map_get(&l->at, address);
    return at == MAP_NEW || at == GONE ? NONE : at;
}

/* Makes the first `bytes` of a free part a block; the rest stays free. */
static void split_layout_part(struct layout *l, uint32_t at, int64_t bytes)
{
    const struct part whole = l->parts[at];
    l->parts[at].free = false;
    if (whole.bytes == bytes) return;
    l->parts[at].bytes = bytes;
    add_layout_part(
        l, (struct part){whole.address + (uint64_t)bytes, whole.bytes - bytes, at, whole.after, true, whole.small});
}

static void free_layout_part(struct layout *l, uint32_t at)
{
    const uint32_t before = l->parts[at].before, after = l->parts[at].after;
    l->parts[at].free = true;
    if (after != NONE && l->parts[after].free) {
        l->parts[at].bytes += l->parts[after].bytes;
        remove_layout_part(l, after);
    }
    if (before != NONE && l->parts[before].free) {
        l->parts[before].bytes += l->parts[at].bytes;
        remove_layout_part(l, at);
    }
}

/* Events state requests rounded to 512 bytes, but without roundup_power2_divisions. */
static int64_t rounded_of(const struct layout *l, int64_t bytes, bool exact)
{
    if (exact || bytes <= UNIT || bytes > INT64_MAX / 4) return bytes;
    const int power = 63 - __builtin_clzll((uint64_t)bytes), at = power - 20;
    const int64_t floor = (int64_t)1 << power, divisions = l->divisions[at < 0 ? 0 : at > 15 ? 15 : at];
    if (divisions < 2 || bytes <= UNIT * divisions || bytes == floor) return bytes;
    const int64_t step = floor / divisions;
    return step ? (bytes + step - 1) / step * step : floor * 2;
}

/* What a block of `bytes` takes of a free part. */
static int64_t taken_of(const struct layout *l, const struct part *part, int64_t bytes, bool exact)
{
    const bool splits = exact || part->small || (bytes < l->max_split && part->bytes - bytes > MIB);
    return splits ? bytes : part->bytes;
}

SORT_ORDER(order_layout_pieces, struct import_layout_piece,
           SORT_UP(x->piece->address, y->piece->address) ?: SORT_UP(x->block, y->block))

static bool note_extra(uint16_t *extra, int64_t bytes)
{
    if (bytes < 0 || bytes / UNIT > UINT16_MAX) return false;
    *extra = (uint16_t)(bytes / UNIT);
    return true;
}

/* A block at its place in the last part, which is free. */
static bool place_layout_block(struct layout *l, uint32_t *last, struct import_snapshot_piece *p)
{
    const struct part part = l->parts[*last];
    const int64_t gap = (int64_t)(p->address - part.address), bytes = rounded_of(l, p->bytes, p->exact);
    if (!part.free || gap < 0 || bytes > part.bytes - gap || !note_extra(&p->extra, bytes - p->bytes)) return false;
    if (gap) {
        l->parts[*last].bytes = gap;
        *last = add_layout_part(l, (struct part){p->address, part.bytes - gap, *last, NONE, true, part.small});
    }
    split_layout_part(l, *last, bytes);
    *last = l->parts[*last].after != NONE ? l->parts[*last].after : *last;
    return true;
}

static void begin_layout(struct layout *l, struct import_layout_piece *list, size_t n)
{
    SORT(list, n, order_layout_pieces);
    struct import_snapshot_piece *segment = NULL;
    uint32_t last = NONE;
    for (size_t i = 0; i < n; i++) {
        struct import_snapshot_piece *p = list[i].piece;
        bool *unknown = &l->unknown[p->device];
        if (!list[i].block) {
            segment = p;
            *unknown = *unknown || p->mapped;
            last = add_layout_part(l, (struct part){p->address, p->bytes, NONE, NONE, true, p->bytes <= 2 * MIB});
        } else if (!segment || segment->device != p->device || !place_layout_block(l, &last, p)) {
            *unknown = true;
        }
    }
    /* What is behind a block and too small to be split off belongs to it. */
    for (size_t i = 0; i < n; i++) {
        struct import_snapshot_piece *p = list[i].piece;
        const uint32_t at = list[i].block ? layout_part_at(l, p->address) : NONE;
        const uint32_t after = at == NONE ? NONE : l->parts[at].after;
        if (after == NONE || !l->parts[after].free || p->exact) continue;
        const struct part both = {.bytes = l->parts[at].bytes + l->parts[after].bytes, .small = l->parts[at].small};
        if (taken_of(l, &both, l->parts[at].bytes, false) == l->parts[at].bytes) continue;
        l->parts[at].bytes = both.bytes;
        remove_layout_part(l, after);
        if (!note_extra(&p->extra, both.bytes - p->bytes)) l->unknown[p->device] = true;
    }
}

/* False: the allocator cannot have done this. */
static bool follow_event(struct layout *l, struct import_snapshot_event *e)
{
    const uint32_t at = layout_part_at(l, e->address);
    const struct part *part = at == NONE ? NULL : &l->parts[at];
    const int64_t bytes = rounded_of(l, e->bytes, e->exact);
    switch ((enum import_action)e->action) {
    case IMPORT_ALLOC:
        if (!part || !part->free || bytes <= 0 || bytes > part->bytes) return false;
        split_layout_part(l, at, taken_of(l, part, bytes, e->exact));
        return note_extra(&e->extra, l->parts[at].bytes - e->bytes);
    case IMPORT_FREE:
        if (!part || part->free || !note_extra(&e->extra, part->bytes - e->bytes)) return false;
        if (!e->later) free_layout_part(l, at);
        return true;
    case IMPORT_COMPLETED:
        if (!e->bytes) return true; /* of a free that is done */
        if (!part || part->free || !note_extra(&e->extra, part->bytes - e->bytes)) return false;
        free_layout_part(l, at);
        return true;
    case IMPORT_TAKE:
        if (part || e->bytes <= 0) return false;
        add_layout_part(l, (struct part){e->address, e->bytes, NONE, NONE, true, e->bytes <= 2 * MIB});
        return true;
    case IMPORT_GIVE_BACK:
        if (!part || !part->free || part->before != NONE || part->after != NONE) return false;
        remove_layout_part(l, at);
        return true;
    case IMPORT_MAP:
    case IMPORT_UNMAP: return false;
    default: return true;
    }
}

static int64_t max_split_of(const char *settings)
{
    static const char name[] = "max_split_size_mb:";
    const char *at = settings ? strstr(settings, name) : NULL;
    const long long mib = at ? strtoll(at + sizeof name - 1, NULL, 10) : 0;
    return mib > 0 && mib < INT64_MAX / MIB ? (int64_t)mib * MIB : INT64_MAX;
}

void import_layout_sizes(struct import_snapshot *from, size_t first, size_t end, struct import_layout_piece *list,
                         size_t n)
{
    struct layout l = {.spare = NONE, .max_split = max_split_of(from->settings), .divisions = from->divisions};
    l.unknown[IMPORT_HOST] = true;
    begin_layout(&l, list, n);
    for (size_t i = first; i < end; i++) {
        struct import_snapshot_event *e = &from->events[i];
        if (!l.unknown[e->device] && !follow_event(&l, e)) l.unknown[e->device] = true;
    }
    for (size_t i = 0; i < n; i++)
        if (!l.unknown[list[i].piece->device]) list[i].piece->bytes += (int64_t)list[i].piece->extra * UNIT;
    for (size_t i = first; i < end; i++) {
        struct import_snapshot_event *e = &from->events[i];
        if (!l.unknown[e->device]) e->bytes += (int64_t)e->extra * UNIT;
    }
    free(l.parts);
    map_free(&l.at);
}
