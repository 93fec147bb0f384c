#include "analyzer/import/trace_stack.h"

#include <stdlib.h>
#include <string.h>

enum { OPEN = 512, FRAMES = 1024 };

struct import_open {
    int64_t end_ns;
    uint64_t path; /* hash of the slice and of those that contain it */
    uint32_t name, text, id;
    uint8_t kind;
};

/* Times may be rounded to microseconds: a slice that ends when a call begins may still contain it. Python frames name
 * their callers, so they need no such tolerance. */
static void close_until(struct import_lane *lane, const struct import_trace_record *r)
{
    bool moment = r->duration_ns < 0;
    while (lane->n) {
        const struct import_open *top = &lane->list[lane->n - 1];
        bool caller = r->kind == IMPORT_TRACE_PYTHON && top->kind == IMPORT_TRACE_PYTHON && r->b && top->id == r->b;
        if (caller || (moment ? top->end_ns >= r->at_ns : top->end_ns > r->at_ns)) return;
        lane->n--;
    }
}

void import_lane_open(struct import_lane *lane, const struct import_trace_record *r)
{
    close_until(lane, r);
    if (lane->n == OPEN) return;
    uint64_t outer = lane->n ? lane->list[lane->n - 1].path : 0;
    uint32_t text = r->kind == IMPORT_TRACE_OP ? r->a : 0;
    *ARENA_PUSH(lane->list, lane->n, lane->cap) = (struct import_open){
        .end_ns = arena_add_capped(r->at_ns, r->duration_ns > 0 ? r->duration_ns : 0),
        .path = map_hash(outer * 31 + map_hash((uint64_t)r->name << 32 | text)),
        .name = r->name,
        .text = text,
        .id = r->kind == IMPORT_TRACE_PYTHON ? r->a : 0,
        .kind = r->kind,
    };
}

/* Adds the frames of "a.py(3): f;b.py(9): g", innermost first. */
static size_t add_text(struct import_trace *t, const char *text, struct import_frame *frames, size_t n)
{
    char part[1024];
    while (*text && n < FRAMES) {
        size_t length = strcspn(text, ";"), kept = length < sizeof part ? length : sizeof part - 1;
        memcpy(part, text, kept);
        part[kept] = 0;
        text += length + (text[length] == ';');
        if (kept) frames[n++] = import_name_frame(&t->names, import_name_of(&t->names, part));
    }
    return n;
}

static uint32_t make_stack(const struct import_lane *lane, struct import_trace *t, struct import_feed *feed)
{
    struct import_frame frames[FRAMES];
    size_t n = 0;
    uint32_t text = 0;
    bool python = false;
    for (size_t i = lane->n; i-- > 0;) {
        const struct import_open *open = &lane->list[i];
        frames[n++] = import_name_frame(&t->names, open->name);
        python = python || open->kind == IMPORT_TRACE_PYTHON;
        text = text ? text : open->text;
    }
    if (text && !python) n = add_text(t, import_name_text(&t->names, text), frames, n);
    return import_feed_stack(feed, frames, n);
}

uint32_t import_lane_stack(struct import_lane *lane, const struct import_trace_record *r, struct import_trace *t,
                           struct import_feed *feed, uint64_t thread, struct map *stacks)
{
    close_until(lane, r);
    if (!lane->n) return 0;
    uint64_t key = lane->list[lane->n - 1].path ^ map_hash(thread);
    uint32_t stack = map_get(stacks, key);
    if (stack == MAP_NEW) {
        stack = make_stack(lane, t, feed);
        *map_at(stacks, key) = stack;
    }
    return stack;
}

void import_lane_free(struct import_lane *lane)
{
    free(lane->list);
}
