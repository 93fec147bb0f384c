#include "analyzer/import/trace_memory.h"


static const uint32_t freed = MAP_NEW - 1;
static const uint64_t first_made_up = (uint64_t)1 << 52;
enum { ALIGN = 512, PROCESS_SHIFT = 48 };

struct waiting { /* a live block without an address in the trace */
    uint64_t address;
    uint32_t next; /* 1 + the previous one of the same size */
};

struct import_finding {
    struct import_trace_levels *l;
    struct map live;  /* address → any value; `freed`: it was freed */
    struct map sizes; /* size → 1 + the youngest one in `waiting` */
    ARENA_LIST(struct waiting, waiting);
    uint32_t spare; /* 1 + the first unused entry of `waiting` */
    uint64_t next_address;
};

static uint64_t device_key(uint32_t process, int device)
{
    return (uint64_t)process << 16 | (uint16_t)device;
}

uint64_t import_trace_address(uint64_t address, uint32_t process)
{
    return address ^ (uint64_t)process << PROCESS_SHIFT;
}

static uint64_t make_address(struct import_finding *f, int64_t bytes)
{
    uint64_t address = f->next_address;
    f->next_address += ((uint64_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (f->next_address >> 62) f->next_address = first_made_up;
    return address;
}

static struct import_level *import_level_of(struct import_trace_levels *l, uint32_t process,
                                            const struct import_trace_record *m)
{
    uint32_t *at = map_at(&l->index, device_key(process, m->device));
    if (*at == MAP_NEW) {
        *at = (uint32_t)l->n;
        *ARENA_PUSH(l->list, l->n, l->cap) = (struct import_level){.process = process, .device = m->device};
        struct import_level *level = &l->list[l->n - 1];
        level->has_total = m->allocated >= 0;
        if (level->has_total) level->before = level->now = m->allocated - m->bytes;
    }
    return &l->list[*at];
}

static void add_before(struct import_finding *f, const struct import_level *level, uint64_t address, int64_t bytes)
{
    struct import_trace_levels *l = f->l;
    ARENA_APPEND(l->before, .address = address, .bytes = bytes, .process = level->process, .device = level->device);
}

static void add_freed(struct import_finding *f, struct import_level *level, const struct import_trace_record *m)
{
    add_before(f, level, m->address, -m->bytes);
    level->blocks = arena_add_capped(level->blocks, -m->bytes);
}

static void place_record(struct import_finding *f, struct import_level *level, struct import_trace_record *m)
{
    uint64_t bytes = (uint64_t)(m->bytes > 0 ? m->bytes : -m->bytes);
    uint32_t *top = map_at(&f->sizes, map_hash(bytes) ^ map_hash(device_key(level->process, level->device) + 1));
    f->l->unplaced++;
    if (*top == MAP_NEW) *top = 0;
    if (m->bytes > 0) {
        m->address = make_address(f, m->bytes);
        const uint32_t spare = f->spare;
        struct waiting *w = spare ? &f->waiting[spare - 1] : ARENA_ADD(f->waiting);
        if (spare) f->spare = w->next;
        *w = (struct waiting){m->address, *top};
        *top = (uint32_t)(w - f->waiting) + 1;
    } else if (*top) {
        struct waiting *w = &f->waiting[*top - 1];
        const uint32_t freed_one = *top;
        m->address = w->address;
        *top = w->next;
        w->next = f->spare;
        f->spare = freed_one;
    } else {
        m->address = make_address(f, -m->bytes);
        add_freed(f, level, m);
    }
}

static void follow_level(struct import_finding *f, struct import_level *level, const struct import_trace_record *m)
{
    uint64_t key = map_hash(m->address) ^ map_hash(device_key(level->process, level->device) + 1);
    uint32_t *live = map_at(&f->live, key);
    if (m->bytes < 0 && (*live == MAP_NEW || *live == freed)) add_freed(f, level, m);
    *live = m->bytes > 0 ? 1 : freed;
}

struct import_finding *import_trace_finding_new(struct import_trace_levels *l)
{
    struct import_finding *f = arena_realloc(NULL, 1, sizeof *f);
    *f = (struct import_finding){.l = l, .next_address = first_made_up};
    return f;
}

void import_trace_finding_add(struct import_finding *f, uint32_t process, struct import_trace_record *m)
{
    struct import_level *level = import_level_of(f->l, process, m);
    level->now = arena_add_capped(level->now, m->bytes);
    if (level->has_total && m->allocated >= 0 && m->allocated != level->now) {
        level->mismatches++;
        level->now = m->allocated;
    }
    if (m->placed)
        follow_level(f, level, m);
    else
        place_record(f, level, m);
}

void import_trace_finding_end(struct import_finding *f)
{
    EACH (level, f->l->list, f->l->n) {
        const int64_t kept = level->has_total ? level->before - level->blocks : 0;
        level->kept = kept > 0 ? kept : 0;
        if (level->kept) add_before(f, level, make_address(f, kept), kept);
    }
    MAP_RELEASE(&f->live, &f->sizes);
    ARENA_RELEASE(f->waiting, f);
}

void import_trace_levels_free(struct import_trace_levels *l)
{
    map_free(&l->index);
    ARENA_RELEASE(l->before, l->list);
}
