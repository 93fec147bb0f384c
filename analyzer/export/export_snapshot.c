/* PyTorch's memory snapshot, in the form that torch.cuda.memory._dump_snapshot() pickles: the segments and blocks at a
 * moment, and the events before it. */
#include "analyzer/category/category_use.h"
#include "analyzer/export/export.h"
#include "analyzer/export/export_trace.h"
#include "analyzer/export/pickle.h"
#include "analyzer/run/settings.h"
#include "analyzer/site/site.h"

#include <stdlib.h>

struct snapshot {
    struct export *e;
    struct export_pickle p;
    struct map stacks, frames; /* → memo */
    struct category_finder *categorizer;
    struct category_uses *uses;
    bool coloured, has_unknown; /* a block in a trace has a category; an entry has "unknown" */
    bool tensors;               /* of the device that is being written */
    int64_t start_us;           /* wall-clock time at the start */
    uint64_t seen, skip;        /* events of this device so far; how many are left out */
    struct export_trace_state states[EXPORT_DEVICES];
};

static void write_snapshot_frame(struct snapshot *s, const struct run_frame *f)
{
    uint32_t *memo = map_at(&s->frames, (uint64_t)(uintptr_t)f);
    if (*memo != MAP_NEW) {
        export_pickle_again(&s->p, *memo);
        return;
    }
    bool native = f->kind == GS_FRAME_NATIVE;
    export_pickle_dict(&s->p);
    *memo = export_pickle_memo(&s->p);
    export_pickle_key(&s->p, "name");
    export_pickle_text(&s->p, f->function ? f->function : "??");
    export_pickle_key(&s->p, "filename");
    export_pickle_text(&s->p, f->file ? f->file : native && f->module ? f->module : "??");
    export_pickle_key(&s->p, "line");
    export_pickle_int(&s->p, f->line > 0 ? f->line : 0);
    export_pickle_end(&s->p);
}

/* On autograd's own threads only the native frames show the operation. */
static void write_operation(struct snapshot *s, uint32_t stack)
{
    const char *name = site_of(s->e->run, stack, NULL).operation;
    if (name) {
        export_pickle_dict(&s->p);
        export_pickle_key(&s->p, "name");
        export_pickle_text(&s->p, name);
        export_pickle_key(&s->p, "filename");
        export_pickle_text(&s->p, "autograd");
        export_pickle_key(&s->p, "line");
        export_pickle_int(&s->p, 0);
        export_pickle_end(&s->p);
    }
}

/* Innermost first. One list per stack, which all its events share. */
static void write_snapshot_frames(struct snapshot *s, uint32_t stack)
{
    const struct run *run = s->e->run;
    export_pickle_key(&s->p, "frames");
    if (stack == RUN_NONE) {
        export_pickle_list(&s->p);
        export_pickle_end(&s->p);
        return;
    }
    uint32_t *memo = map_at(&s->stacks, stack);
    if (*memo != MAP_NEW) {
        export_pickle_again(&s->p, *memo);
        return;
    }
    export_pickle_list(&s->p);
    *memo = export_pickle_memo(&s->p);
    bool native = s->e->native || run_stack_python(run, stack) == RUN_NONE;
    if (!native) write_operation(s, stack);
    for (uint32_t i = stack; i != RUN_NONE; i = run_stack_parent(run, i)) {
        bool python = run_stack_frame(run, i)->kind == GS_FRAME_PYTHON;
        if (python ? s->e->python : native) {
            size_t n;
            const struct run_frame *f = run_frame_places(s->e->run, i, &n);
            for (size_t k = 0; k < n; k++) /* inlined frames */
                write_snapshot_frame(s, &f[k]);
        }
    }
    export_pickle_end(&s->p);
}

static enum result_category snapshot_category(struct snapshot *s, uint32_t stack, uint32_t free_stack, bool kept,
                                              int64_t alloc_ns, int64_t free_ns)
{
    unsigned use = category_uses_of(s->uses, s->e->process, stack, alloc_ns, free_ns);
    return category_of_rule(category_rule_of(s->categorizer, s->tensors, stack, free_stack, kept, use));
}

static void write_category(struct snapshot *s, enum result_category c)
{
    s->coloured = true;
    s->has_unknown = s->has_unknown || c == RESULT_CATEGORY_UNKNOWN;
    export_pickle_key(&s->p, "category");
    export_pickle_text(&s->p, result_category_word(c));
}

static void put_snapshot_int(struct snapshot *s, const char *key, int64_t value)
{
    export_pickle_key(&s->p, key);
    export_pickle_int(&s->p, value);
}

static void put_snapshot_address(struct snapshot *s, const char *key, uint64_t value)
{
    export_pickle_key(&s->p, key);
    export_pickle_address(&s->p, value);
}

static void put_snapshot_word(struct snapshot *s, const char *key, const char *value)
{
    export_pickle_key(&s->p, key);
    export_pickle_text(&s->p, value);
}

static void write_pool_id(struct snapshot *s, int64_t pool)
{
    export_pickle_int(&s->p, 0);
    export_pickle_int(&s->p, pool);
    export_pickle_pair(&s->p);
}

static void write_snapshot_event(void *self, const struct export_trace_event *event)
{
    struct snapshot *s = self;
    export_progress_show(s->e);
    if (s->seen++ < s->skip) return;
    export_pickle_dict(&s->p);
    put_snapshot_word(s, "action", export_trace_word(event->action));
    if (event->action == EXPORT_TRACE_OOM)
        put_snapshot_int(s, "device_free", event->device_free == RUN_UNKNOWN ? 0 : event->device_free);
    else
        put_snapshot_address(s, "addr", event->address);
    const bool block = event->action == EXPORT_TRACE_ALLOC || event->action == EXPORT_TRACE_FREE_REQUESTED ||
                       event->action == EXPORT_TRACE_FREE_COMPLETED;
    put_snapshot_int(s, "size", block ? event->requested : event->bytes);
    put_snapshot_address(s, "stream", event->stream);
    put_snapshot_int(s, "time_us", arena_add_capped(s->start_us, event->time_ns / 1000));
    if (event->action != EXPORT_TRACE_OOM && event->pool != RUN_UNKNOWN) {
        export_pickle_key(&s->p, "pool_id");
        write_pool_id(s, event->pool);
    }
    write_snapshot_frames(s, event->stack);
    if (event->action == EXPORT_TRACE_ALLOC && s->e->categories) {
        write_category(
            s, snapshot_category(s, event->stack, event->free_stack, event->kept, event->time_ns, event->free_ns));
    } else if (s->e->snapshot && s->e->categories && !s->has_unknown) {
        write_category(s, RESULT_CATEGORY_UNKNOWN);
    }
    export_pickle_end(&s->p);
}

static void count_event(void *self, const struct export_trace_event *event)
{
    struct snapshot *s = self;
    export_progress_show(s->e);
    s->seen++;
}

/* PyTorch ends a trace in the same way, but an imported one stays as it was. memory_viz expects that each category
 * occurs in a trace, and gives memory that was allocated before it the category "unknown". */
static void write_snapshot_end(struct snapshot *s, const struct export_trace_state *state)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < state->segments_n; i++) bytes = arena_add_capped(bytes, state->segments[i].block_bytes);
    export_pickle_dict(&s->p);
    put_snapshot_word(s, "action", export_trace_word(EXPORT_TRACE_SNAPSHOT));
    put_snapshot_int(s, "addr", 0);
    put_snapshot_int(s, "size", bytes);
    put_snapshot_int(s, "stream", 0);
    put_snapshot_int(s, "time_us", arena_add_capped(s->start_us, s->e->moment_ns / 1000));
    write_snapshot_frames(s, RUN_NONE);
    if (s->e->categories) write_category(s, RESULT_CATEGORY_UNKNOWN);
    export_pickle_end(&s->p);
}

static bool write_trace(struct snapshot *s, int device, char *error, size_t error_size)
{
    struct export *e = s->e;
    const struct export_device *d = &e->devices[device];
    struct export_trace_request wish = {.process = e->process,
                                        .device = device,
                                        .tensors = d->tensors,
                                        .until_ns = e->moment_ns,
                                        .each = count_event,
                                        .self = s};
    s->tensors = d->tensors;
    s->seen = s->skip = 0;
    /* a row makes at most four events (if it is its own segment): only if that may be too many, count them first */
    if (d->rows > e->last / 4) {
        if (!export_trace_device(e->run, &wish, NULL, error, error_size)) return false;
        s->skip = s->seen > e->last ? s->seen - e->last : 0;
        e->left_out += s->skip;
        s->seen = 0;
    }
    wish.each = write_snapshot_event;
    if (!export_trace_device(e->run, &wish, &s->states[device], error, error_size)) return false;
    if (!e->snapshot || (s->coloured && !s->has_unknown)) write_snapshot_end(s, &s->states[device]);
    return true;
}

static void write_block(struct snapshot *s, uint64_t at, int64_t bytes, const struct export_trace_block *b)
{
    export_pickle_dict(&s->p);
    put_snapshot_address(s, "address", at);
    put_snapshot_int(s, "size", bytes);
    put_snapshot_int(s, "requested_size", b ? b->requested : bytes);
    put_snapshot_word(s, "state", !b ? "inactive" : b->pending ? "active_pending_free" : "active_allocated");
    write_snapshot_frames(s, b ? b->stack : RUN_NONE);
    if (b && s->e->categories)
        write_category(s, snapshot_category(s, b->stack, b->free_stack, b->kept, b->alloc_ns, b->free_ns));
    export_pickle_end(&s->p);
}

/* Writes the memory between two blocks as one inactive block, as the allocator merges free blocks. */
static void write_blocks(struct snapshot *s, const struct export_trace_segment *g,
                         const struct export_trace_block *blocks)
{
    uint64_t from = g->address, end = g->address + (uint64_t)g->bytes;
    export_pickle_key(&s->p, "blocks");
    export_pickle_list(&s->p);
    for (size_t i = 0; i < g->n; i++) {
        const struct export_trace_block *b = &blocks[g->first + i];
        if (b->address > from) write_block(s, from, (int64_t)(b->address - from), NULL);
        write_block(s, b->address, b->bytes, b);
        from = b->address + (uint64_t)b->bytes;
    }
    if (from < end) write_block(s, from, (int64_t)(end - from), NULL);
    export_pickle_end(&s->p);
}

static void write_snapshot_segment(struct snapshot *s, int device, const struct export_trace_segment *g,
                                   const struct export_trace_block *blocks)
{
    export_pickle_dict(&s->p);
    put_snapshot_int(s, "device", device);
    put_snapshot_address(s, "address", g->address);
    put_snapshot_int(s, "total_size", g->bytes);
    put_snapshot_int(s, "allocated_size", g->block_bytes);
    put_snapshot_int(s, "active_size", g->block_bytes + g->pending_bytes);
    put_snapshot_int(s, "requested_size", g->requested_bytes);
    put_snapshot_address(s, "stream", g->stream);
    put_snapshot_word(s, "segment_type", g->small ? "small" : "large");
    export_pickle_key(&s->p, "segment_pool_id");
    write_pool_id(s, g->pool);
    export_pickle_key(&s->p, "is_expandable");
    export_pickle_bool(&s->p, g->mapped);
    write_snapshot_frames(s, g->stack);
    write_blocks(s, g, blocks);
    export_pickle_end(&s->p);
}

/* Writes only the settings that are known. */
static void write_settings(struct snapshot *s)
{
    struct run_torch_settings t = run_torch_settings(s->e->run, s->e->process);
    export_pickle_key(&s->p, "allocator_settings");
    export_pickle_dict(&s->p);
    if (t.known) put_snapshot_word(s, "PYTORCH_CUDA_ALLOC_CONF", t.text);
    if (t.expandable != RUN_UNSURE) {
        export_pickle_key(&s->p, "expandable_segments");
        export_pickle_bool(&s->p, t.expandable == RUN_YES);
    }
    if (t.max_split_bytes != RUN_UNKNOWN)
        put_snapshot_int(s, "max_split_size", t.max_split_bytes ? t.max_split_bytes : -1);
    export_pickle_end(&s->p);
}

static bool write_snapshot(struct snapshot *s, char *error, size_t error_size)
{
    int devices = 0;
    for (int d = 0; d < EXPORT_DEVICES; d++) devices = s->e->devices[d].used ? d + 1 : devices;
    export_pickle_dict(&s->p);
    export_pickle_key(&s->p, "device_traces");
    export_pickle_list(&s->p);
    for (int d = 0; d < devices; d++) {
        export_pickle_list(&s->p);
        if (s->e->devices[d].used && !write_trace(s, d, error, error_size)) return false;
        export_pickle_end(&s->p);
    }
    export_pickle_end(&s->p);
    export_pickle_key(&s->p, "segments");
    export_pickle_list(&s->p);
    for (int d = 0; d < devices; d++) {
        s->tensors = s->e->devices[d].tensors;
        for (size_t i = 0; i < s->states[d].segments_n; i++)
            write_snapshot_segment(s, d, &s->states[d].segments[i], s->states[d].blocks);
    }
    export_pickle_end(&s->p);
    write_settings(s);
    export_pickle_key(&s->p, "external_annotations");
    export_pickle_list(&s->p);
    export_pickle_end(&s->p);
    export_pickle_end(&s->p);
    return true;
}

bool export_snapshot(struct export *e, char *error, size_t error_size)
{
    int64_t start = run_process_at(e->run, e->process)->start_real_ns;
    struct snapshot *s = arena_zeroed(1, sizeof *s);
    s->e = e;
    s->start_us = start == RUN_UNKNOWN ? 0 : start / 1000;
    s->categorizer = category_finder_new(e->run);
    s->uses = e->categories ? category_uses_read(e->run, NULL, error, error_size) : NULL;
    export_pickle_start(&s->p, e->out);
    bool ok = (s->uses || !e->categories) && write_snapshot(s, error, error_size);
    export_pickle_finish(&s->p);
    for (int d = 0; d < EXPORT_DEVICES; d++) export_trace_state_free(&s->states[d]);
    category_finder_free(s->categorizer);
    category_uses_free(s->uses);
    MAP_RELEASE(&s->stacks, &s->frames);
    free(s);
    return ok;
}
