#include "analyzer/import/trace_memory.h"

#include <stdlib.h>

static const uint32_t freed = MAP_NEW - 1;
static const uint64_t first_made_up = (uint64_t)1 << 52;
enum { ALIGN = 512, PROCESS_SHIFT = 48 };

struct waiting { /* a live block that has no address in the trace */
    uint64_t address;
    uint32_t next; /* 1 + the one before of the same size */
};

struct finding {
    struct import_trace_levels *l;
    struct map live;  /* address → any value, or `freed` */
    struct map sizes; /* size → 1 + the youngest in `waiting` */
    struct waiting *waiting;
    size_t waiting_n, waiting_cap;
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

static uint64_t make_address(struct finding *f, int64_t bytes)
{
    uint64_t address = f->next_address;
    f->next_address += ((uint64_t)bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (f->next_address >> 62) f->next_address = first_made_up;
    return address;
}

static struct import_level *level_of(struct import_trace_levels *l, uint32_t process,
                                     const struct import_trace_memory *m)
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

static void add_before(struct finding *f, struct import_level *level, const struct import_trace_memory *m)
{
    struct import_trace_levels *l = f->l;
    *ARENA_PUSH(l->before, l->before_n, l->before_cap) = (struct import_before){
        .address = m->address, .bytes = -m->bytes, .process = level->process, .device = level->device};
    level->blocks = arena_add_capped(level->blocks, -m->bytes);
}

static void place(struct finding *f, struct import_level *level, struct import_trace_memory *m)
{
    uint64_t bytes = (uint64_t)(m->bytes > 0 ? m->bytes : -m->bytes);
    uint32_t *top = map_at(&f->sizes, map_hash(bytes) ^ map_hash(device_key(level->process, level->device) + 1));
    f->l->unplaced++;
    if (*top == MAP_NEW) *top = 0;
    if (m->bytes > 0) {
        m->address = make_address(f, m->bytes);
        *ARENA_PUSH(f->waiting, f->waiting_n, f->waiting_cap) = (struct waiting){m->address, *top};
        *top = (uint32_t)f->waiting_n;
    } else if (*top) {
        const struct waiting *w = &f->waiting[*top - 1];
        m->address = w->address;
        *top = w->next;
    } else {
        m->address = make_address(f, -m->bytes);
        add_before(f, level, m);
    }
}

static void follow(struct finding *f, struct import_level *level, const struct import_trace_memory *m)
{
    uint64_t key = map_hash(m->address) ^ map_hash(device_key(level->process, level->device) + 1);
    uint32_t *live = map_at(&f->live, key);
    if (m->bytes < 0 && (*live == MAP_NEW || *live == freed)) add_before(f, level, m);
    *live = m->bytes > 0 ? 1 : freed;
}

void import_trace_levels_find(struct import_trace_levels *l, struct import_trace *t)
{
    struct finding f = {.l = l, .next_address = first_made_up};
    for (size_t i = 0; i < t->records_n; i++) {
        const struct import_trace_record *r = &t->records[i];
        if (r->kind != IMPORT_TRACE_MEMORY) continue;
        struct import_trace_memory *m = &t->memory[r->a];
        struct import_level *level = level_of(l, t->threads[r->thread].process, m);
        level->now = arena_add_capped(level->now, m->bytes);
        if (level->has_total && m->allocated >= 0 && m->allocated != level->now) {
            level->mismatches++;
            level->now = m->allocated;
        }
        if (m->placed) {
            follow(&f, level, m);
        } else {
            place(&f, level, m);
        }
    }
    for (size_t i = 0; i < l->n; i++) {
        struct import_level *level = &l->list[i];
        int64_t missing = level->has_total ? level->before - level->blocks : 0;
        level->missing = missing > 0 ? missing : 0;
    }
    map_free(&f.live);
    map_free(&f.sizes);
    free(f.waiting);
}

const struct import_level *import_trace_level(const struct import_trace_levels *l, uint32_t process, int device)
{
    return &l->list[map_get(&l->index, device_key(process, device))];
}

void import_trace_levels_free(struct import_trace_levels *l)
{
    free(l->before);
    free(l->list);
    map_free(&l->index);
}
