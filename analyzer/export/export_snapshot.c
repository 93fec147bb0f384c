/* PyTorch's memory snapshot, as torch.cuda.memory._dump_snapshot() pickles it: the segments and blocks
 * of a moment, and the events that led there. */
#include "analyzer/category/category_use.h"
#include "analyzer/export/export.h"
#include "analyzer/export/export_trace.h"
#include "analyzer/export/pickle.h"
#include "analyzer/run/settings.h"
#include "analyzer/site/site.h"

#include <stdlib.h>
#include <string.h>

struct snapshot {
    struct gs_export *e;
    struct pickle p;
    struct gs_map stacks, frames; /* → memo */
    struct gs_categorizer *categorizer;
    struct gs_uses *uses;
    bool tensors;        /* of the device now written */
    int64_t start_us;    /* wall clock at the start */
    uint64_t seen, skip; /* events of this device; so many are left out */
    struct gs_trace_state states[GS_EXPORT_DEVICES];
};

/* --- frames ------------------------------------------------------------------------------------- */

static void frame(struct snapshot *s, const struct gs_frame *f)
{
    uint32_t *memo = gs_map_at(&s->frames, (uint64_t)(uintptr_t)f);
    if (*memo != GS_MAP_NEW) {
        pickle_again(&s->p, *memo);
        return;
    }
    bool native = f->kind == GS_FRAME_NATIVE;
    pickle_dict(&s->p);
    *memo = pickle_memo(&s->p);
    pickle_key(&s->p, "name");
    pickle_text(&s->p, f->function ? f->function : "??");
    pickle_key(&s->p, "filename");
    pickle_text(&s->p, f->file ? f->file : native && f->module ? f->module : "??");
    pickle_key(&s->p, "line");
    pickle_int(&s->p, f->line > 0 ? f->line : 0);
    pickle_end(&s->p);
}

/* What autograd's own threads do has the operation in their native frames alone. */
static void operation(struct snapshot *s, uint32_t stack)
{
    const char *name = gs_site_of(s->e->run, stack, NULL).operation;
    if (name) {
        pickle_dict(&s->p);
        pickle_key(&s->p, "name");
        pickle_text(&s->p, name);
        pickle_key(&s->p, "filename");
        pickle_text(&s->p, "autograd");
        pickle_key(&s->p, "line");
        pickle_int(&s->p, 0);
        pickle_end(&s->p);
    }
}

/* Innermost first. One list a stack, shared by all events from there. */
static void frames(struct snapshot *s, uint32_t stack)
{
    const struct gs_run *run = s->e->run;
    pickle_key(&s->p, "frames");
    if (stack == GS_NONE) {
        pickle_list(&s->p);
        pickle_end(&s->p);
        return;
    }
    uint32_t *memo = gs_map_at(&s->stacks, stack);
    if (*memo != GS_MAP_NEW) {
        pickle_again(&s->p, *memo);
        return;
    }
    pickle_list(&s->p);
    *memo = pickle_memo(&s->p);
    bool native = s->e->native || gs_stack_python(run, stack) == GS_NONE;
    if (!native) {
        operation(s, stack);
    }
    for (uint32_t i = stack; i != GS_NONE; i = gs_stack_parent(run, i)) {
        bool python = gs_stack_frame(run, i)->kind == GS_FRAME_PYTHON;
        if (python ? s->e->python : native) {
            size_t n;
            const struct gs_frame *f = gs_frame_places(s->e->run, i, &n);
            for (size_t k = 0; k < n; k++) { /* what was inlined there */
                frame(s, &f[k]);
            }
        }
    }
    pickle_end(&s->p);
}

/* --- categories ---------------------------------------------------------------------------------- */

static enum gs_category category(struct snapshot *s, uint32_t stack, uint32_t free_stack, bool kept, int64_t alloc_ns,
                                 int64_t free_ns)
{
    unsigned use = gs_uses_of(s->uses, s->e->process, stack, alloc_ns, free_ns);
    return gs_category_of(gs_category_rule_of(s->categorizer, s->tensors, stack, free_stack, kept, use));
}

static void write_category(struct snapshot *s, enum gs_category c)
{
    pickle_key(&s->p, "category");
    pickle_text(&s->p, gs_category_word(c));
}

/* --- the trace ----------------------------------------------------------------------------------- */

static void number(struct snapshot *s, const char *key, int64_t value)
{
    pickle_key(&s->p, key);
    pickle_int(&s->p, value);
}

static void address(struct snapshot *s, const char *key, uint64_t value)
{
    pickle_key(&s->p, key);
    pickle_address(&s->p, value);
}

static void word(struct snapshot *s, const char *key, const char *value)
{
    pickle_key(&s->p, key);
    pickle_text(&s->p, value);
}

static void write_event(void *self, const struct gs_trace_event *event)
{
    struct snapshot *s = self;
    gs_export_step(s->e);
    if (s->seen++ < s->skip) {
        return;
    }
    pickle_dict(&s->p);
    word(s, "action", gs_trace_word(event->action));
    if (event->action == GS_TRACE_OOM) {
        number(s, "device_free", event->device_free == GS_UNKNOWN ? 0 : event->device_free);
    } else {
        address(s, "addr", event->address);
    }
    number(s, "size", event->bytes);
    address(s, "stream", event->stream);
    number(s, "time_us", gs_add(s->start_us, event->time_ns / 1000));
    frames(s, event->stack);
    if (event->action == GS_TRACE_ALLOC && s->e->categories) {
        write_category(s, category(s, event->stack, event->free_stack, event->kept, event->time_ns, event->free_ns));
    }
    pickle_end(&s->p);
}

static void count_event(void *self, const struct gs_trace_event *event)
{
    struct snapshot *s = self;
    (void)event;
    gs_export_step(s->e);
    s->seen++;
}

/* PyTorch ends a trace so, too. memory_viz wants each category to occur in it, and gives what was
 * allocated before it the unknown one. */
static void write_end(struct snapshot *s, const struct gs_trace_state *state)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < state->segments_n; i++) {
        bytes = gs_add(bytes, state->segments[i].block_bytes);
    }
    pickle_dict(&s->p);
    word(s, "action", gs_trace_word(GS_TRACE_SNAPSHOT));
    number(s, "addr", 0);
    number(s, "size", bytes);
    number(s, "stream", 0);
    number(s, "time_us", gs_add(s->start_us, s->e->moment_ns / 1000));
    frames(s, GS_NONE);
    if (s->e->categories) {
        write_category(s, GS_CATEGORY_UNKNOWN);
    }
    pickle_end(&s->p);
}

static bool write_trace(struct snapshot *s, int device, char *error, size_t error_size)
{
    struct gs_export *e = s->e;
    const struct gs_export_device *d = &e->devices[device];
    struct gs_trace_wish wish = {.process = e->process,
                                 .device = device,
                                 .tensors = d->tensors,
                                 .until_ns = e->moment_ns,
                                 .each = count_event,
                                 .self = s};
    s->tensors = d->tensors;
    s->seen = s->skip = 0;
    /* four events to a row that is its own segment: are there surely no more than wanted? */
    if (d->rows > e->last / 4) {
        if (!gs_trace_device(e->run, &wish, NULL, error, error_size)) {
            return false;
        }
        s->skip = s->seen > e->last ? s->seen - e->last : 0;
        e->left_out += s->skip;
        s->seen = 0;
    }
    wish.each = write_event;
    if (!gs_trace_device(e->run, &wish, &s->states[device], error, error_size)) {
        return false;
    }
    write_end(s, &s->states[device]);
    return true;
}

/* --- the segments -------------------------------------------------------------------------------- */

static void write_block(struct snapshot *s, uint64_t at, int64_t bytes, const struct gs_trace_block *b)
{
    pickle_dict(&s->p);
    address(s, "address", at);
    number(s, "size", bytes);
    number(s, "requested_size", bytes);
    word(s, "state", !b ? "inactive" : b->pending ? "active_pending_free" : "active_allocated");
    frames(s, b ? b->stack : GS_NONE);
    if (b && s->e->categories) {
        write_category(s, category(s, b->stack, b->free_stack, b->kept, b->alloc_ns, b->free_ns));
    }
    pickle_end(&s->p);
}

/* What lies between two blocks is one inactive block: the allocator joins what is free. */
static void write_blocks(struct snapshot *s, const struct gs_trace_segment *g, const struct gs_trace_block *blocks)
{
    uint64_t from = g->address, end = g->address + (uint64_t)g->bytes;
    pickle_key(&s->p, "blocks");
    pickle_list(&s->p);
    for (size_t i = 0; i < g->n; i++) {
        const struct gs_trace_block *b = &blocks[g->first + i];
        if (b->address > from) {
            write_block(s, from, (int64_t)(b->address - from), NULL);
        }
        write_block(s, b->address, b->bytes, b);
        from = b->address + (uint64_t)b->bytes;
    }
    if (from < end) {
        write_block(s, from, (int64_t)(end - from), NULL);
    }
    pickle_end(&s->p);
}

static void write_segment(struct snapshot *s, int device, const struct gs_trace_segment *g,
                          const struct gs_trace_block *blocks)
{
    pickle_dict(&s->p);
    number(s, "device", device);
    address(s, "address", g->address);
    number(s, "total_size", g->bytes);
    number(s, "allocated_size", g->block_bytes);
    number(s, "active_size", g->block_bytes + g->pending_bytes);
    number(s, "requested_size", g->block_bytes + g->pending_bytes);
    address(s, "stream", g->stream);
    word(s, "segment_type", g->small ? "small" : "large");
    pickle_key(&s->p, "segment_pool_id");
    pickle_int(&s->p, 0);
    pickle_int(&s->p, g->private); /* which of several graphs' pools is not known */
    pickle_pair(&s->p);
    pickle_key(&s->p, "is_expandable");
    pickle_bool(&s->p, g->mapped);
    frames(s, g->stack);
    write_blocks(s, g, blocks);
    pickle_end(&s->p);
}

/* --- the whole ----------------------------------------------------------------------------------- */

/* Only what is known of them. */
static void write_settings(struct snapshot *s)
{
    struct gs_torch_settings t = gs_torch_settings(s->e->run, s->e->process);
    pickle_key(&s->p, "allocator_settings");
    pickle_dict(&s->p);
    if (t.known) {
        word(s, "PYTORCH_CUDA_ALLOC_CONF", t.text);
    }
    if (t.expandable != GS_UNSURE) {
        pickle_key(&s->p, "expandable_segments");
        pickle_bool(&s->p, t.expandable == GS_YES);
    }
    if (t.max_split_bytes != GS_UNKNOWN) {
        number(s, "max_split_size", t.max_split_bytes ? t.max_split_bytes : -1);
    }
    pickle_end(&s->p);
}

static bool write_all(struct snapshot *s, char *error, size_t error_size)
{
    int devices = 0;
    for (int d = 0; d < GS_EXPORT_DEVICES; d++) {
        devices = s->e->devices[d].used ? d + 1 : devices;
    }
    pickle_dict(&s->p);
    pickle_key(&s->p, "device_traces");
    pickle_list(&s->p);
    for (int d = 0; d < devices; d++) {
        pickle_list(&s->p);
        if (s->e->devices[d].used && !write_trace(s, d, error, error_size)) {
            return false;
        }
        pickle_end(&s->p);
    }
    pickle_end(&s->p);
    pickle_key(&s->p, "segments");
    pickle_list(&s->p);
    for (int d = 0; d < devices; d++) {
        s->tensors = s->e->devices[d].tensors;
        for (size_t i = 0; i < s->states[d].segments_n; i++) {
            write_segment(s, d, &s->states[d].segments[i], s->states[d].blocks);
        }
    }
    pickle_end(&s->p);
    write_settings(s);
    pickle_key(&s->p, "external_annotations");
    pickle_list(&s->p);
    pickle_end(&s->p);
    pickle_end(&s->p);
    return true;
}

bool gs_export_snapshot(struct gs_export *e, char *error, size_t error_size)
{
    size_t n;
    int64_t start = gs_run_processes(e->run, &n)[e->process].start_real_ns;
    struct snapshot *s = gs_realloc(NULL, 1, sizeof *s);
    memset(s, 0, sizeof *s);
    s->e = e;
    s->start_us = start == GS_UNKNOWN ? 0 : start / 1000;
    s->categorizer = gs_categorizer_new(e->run);
    s->uses = e->categories ? gs_uses_read(e->run, error, error_size) : NULL;
    pickle_start(&s->p, e->out);
    bool ok = (s->uses || !e->categories) && write_all(s, error, error_size);
    pickle_finish(&s->p);
    for (int d = 0; d < GS_EXPORT_DEVICES; d++) {
        gs_trace_state_free(&s->states[d]);
    }
    gs_categorizer_free(s->categorizer);
    gs_uses_free(s->uses);
    gs_map_free(&s->stacks);
    gs_map_free(&s->frames);
    free(s);
    return ok;
}
