/* Reads the file once into compact records (trace_file.h) and sorts them by time, because a trace lists its events by
 * kind. While they are sorted, calls get the GPU's copies with the same correlation id, which have the size and the
 * direction, and memory events get addresses. Then one pass over all threads tracks the open slices of each thread, and
 * writes the events. */
#include "analyzer/import/formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/units.h"
#include "analyzer/import/trace_file.h"
#include "analyzer/import/trace_memory.h"
#include "analyzer/base/sort.h"
#include "schema/event.h"

struct import_lane { /* the open slices of a thread, which are its call stack */
    struct import_open *list;
    size_t n, cap;
};

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

static void import_lane_open(struct import_lane *lane, const struct import_trace_record *r)
{
    close_until(lane, r);
    if (lane->n == OPEN) return;
    uint64_t outer = lane->n ? lane->list[lane->n - 1].path : 0;
    uint32_t text = r->kind == IMPORT_TRACE_OP ? r->a : 0;
    ARENA_APPEND_TO(lane->list, lane->n, lane->cap,
                    .end_ns = arena_add_capped(r->at_ns, r->duration_ns > 0 ? r->duration_ns : 0),
                    .path = map_hash(outer * 31 + map_hash((uint64_t)r->name << 32 | text)), .name = r->name,
                    .text = text, .id = r->kind == IMPORT_TRACE_PYTHON ? r->a : 0, .kind = r->kind);
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

/* The stack of an event of the lane's thread at this time: operators and, if the trace has them, Python frames, else
 * the "Call stack" of the innermost operator. `stacks` maps open slices to the number of their stack. */
static uint32_t import_lane_stack(struct import_lane *lane, const struct import_trace_record *r, struct import_trace *t,
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

static void import_lane_free(struct import_lane *lane)
{
    free(lane->list);
}

static const int64_t in_1973_ns = 100000000000000000; /* later times are wall-clock times */
enum { BEFORE_NS = 1000 };                            /* between the memory that existed before and the first event */

struct writing {
    struct import_trace *t;
    struct import_feed *feed;
    struct import_trace_levels levels;
    struct import_lane *lanes; /* by thread */
    uint32_t *numbers;         /* by thread: the feed's number; 0: none yet */
    struct map stacks, chains; /* chains: correlation id and kind → 1 + the first of the GPU's copies */
    struct import_finding *finding;
    ARENA_LIST(struct import_trace_record, alone); /* sorted by time */
    int64_t start_ns;
    bool started;
    uint32_t pid;     /* index of the name of the process, if there is one */
    int device;       /* the only device; -1: there are several or none */
    int rocms_device; /* a device whose number in PyTorch is unknown; -1: none */
    uint32_t notes;
    uint32_t last;     /* the record that begins last: its number in the file */
    uint64_t sizeless; /* copies and fills without an entry on the GPU's side of the trace */
    bool has_waited;   /* for a device */
    bool waited_last;  /* and nothing else happened since */
};

bool import_is_json(const unsigned char *head, size_t n)
{
    size_t i = n >= 3 && memcmp(head, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < n && head[i] && strchr(" \t\r\n", head[i])) i++;
    return i < n && (head[i] == '{' || head[i] == '[');
}

static uint64_t chain_key(uint32_t correlation, uint8_t kind)
{
    return (uint64_t)correlation << 8 | kind;
}

static void make_chains(struct writing *w)
{
    struct import_trace *t = w->t;
    for (size_t i = t->gpu_n; i-- > 0;) {
        if (!t->gpu[i].correlation) continue;
        uint32_t *first = map_at(&w->chains, chain_key(t->gpu[i].correlation, t->gpu[i].kind));
        t->gpu[i].next = *first == MAP_NEW ? 0 : *first;
        *first = (uint32_t)i + 1;
    }
}

static uint32_t take_chain(struct import_trace *t, struct map *chains, uint64_t key)
{
    uint32_t first = map_get(chains, key);
    if (first == MAP_NEW || !first) return 0;
    *map_at(chains, key) = 0;
    for (uint32_t i = first; i; i = t->gpu[i - 1].next) t->gpu[i - 1].claimed = true;
    return first;
}

static uint32_t join_stacks(struct import_trace *t, uint32_t first, uint32_t second)
{
    uint32_t last = first;
    if (!first) return second;
    while (t->gpu[last - 1].next) last = t->gpu[last - 1].next;
    t->gpu[last - 1].next = second;
    return first;
}

/* From here on `a` of a call is 1 + the index of its first entry in `gpu`; 0: none. */
static void claim_block(struct writing *w, struct import_trace_record *r)
{
    struct import_trace *t = w->t;
    const uint32_t correlation = r->a;
    r->a = r->kind == IMPORT_TRACE_FILL ? 0 : take_chain(t, &w->chains, chain_key(correlation, IMPORT_TRACE_COPY));
    if (r->kind != IMPORT_TRACE_COPY)
        r->a = join_stacks(t, r->a, take_chain(t, &w->chains, chain_key(correlation, IMPORT_TRACE_FILL)));
    if (r->a && r->bytes >= 0 && t->gpu[r->a - 1].bytes < 0) t->gpu[r->a - 1].bytes = r->bytes;
}

SORT_ORDER(order_records_by_time, struct import_trace_record, SORT_UP(x->at_ns, y->at_ns) ?: SORT_UP(x->a, y->a))

static void find_alone(struct writing *w)
{
    struct import_trace *t = w->t;
    for (size_t i = 0; i < t->gpu_n; i++) {
        if (t->gpu[i].claimed) continue;
        t->gpu[i].next = 0;
        ARENA_APPEND(w->alone, .at_ns = t->gpu[i].at_ns, .duration_ns = -1, .thread = UINT32_MAX, .a = (uint32_t)i + 1,
                     .kind = IMPORT_TRACE_ALONE);
    }
    SORT(w->alone, w->alone_n, order_records_by_time);
}

/* The time of the first record; in a memory timeline, memory that existed before has a time below 0. */
static void start_at(struct writing *w, int64_t at_ns)
{
    if (!w->started || (w->t->timeline && w->start_ns < 0)) w->start_ns = at_ns;
    w->started = true;
}

/* For a thread without a process: the thread of the same number in the only process. */
static uint32_t named_thread(const struct writing *w, uint32_t thread)
{
    const struct import_trace *t = w->t;
    if (!t->threads[thread].no_process || t->processes_n != 1) return thread;
    const uint32_t same = map_get(&t->thread_index, (uint64_t)w->pid << 32 | t->threads[thread].tid);
    return same == MAP_NEW ? thread : same;
}

/* Called in order of time. */
static void prepare_record(void *self, struct import_trace_record *r)
{
    struct writing *w = self;
    start_at(w, r->at_ns);
    r->thread = named_thread(w, r->thread);
    if (r->kind != IMPORT_TRACE_RANGE_END) w->last = r->number;
    switch (r->kind) {
    case IMPORT_TRACE_COPY:
    case IMPORT_TRACE_FILL:
    case IMPORT_TRACE_GRAPH: claim_block(w, r); break;
    case IMPORT_TRACE_MEMORY: import_trace_finding_add(w->finding, w->t->threads[r->thread].process, r); break;
    default: break;
    }
}

/* Returns false and a line in `error` on failure. */
static bool prepare_records(struct writing *w, char *error, size_t error_size)
{
    make_chains(w);
    for (size_t i = 0; i < w->t->threads_n; i++)
        if (w->t->threads[i].used && !w->t->threads[i].no_process) w->pid = w->t->threads[i].pid;
    w->finding = import_trace_finding_new(&w->levels);
    const bool ok = import_records_sort(w->t->records, prepare_record, w);
    import_trace_finding_end(w->finding);
    find_alone(w);
    if (w->alone_n && (!w->started || w->alone[0].at_ns < w->start_ns)) w->start_ns = w->alone[0].at_ns;
    if (!ok)
        snprintf(error, error_size, "its events cannot be sorted in a temporary file: %s",
                 strerror(import_records_error(w->t->records)));
    return ok;
}

static int64_t trace_time_of(const struct writing *w, int64_t at_ns)
{
    return at_ns < w->start_ns ? 0 : at_ns - w->start_ns + BEFORE_NS;
}

static void choose_trace_thread(struct writing *w, uint32_t thread)
{
    if (!w->numbers[thread]) {
        const struct import_trace_thread *on = &w->t->threads[thread];
        const char *name = import_name_text(&w->t->names, on->name), *tid = import_name_text(&w->t->names, on->tid);
        char text[512];
        unsigned long number = strtoul(tid, NULL, 10);
        snprintf(text, sizeof text, "%.400s", name);
        if (w->t->processes_n > 1) {
            snprintf(text, sizeof text, "process %.63s%s%.400s", import_name_text(&w->t->names, on->pid),
                     *name ? ": " : "", name);
        }
        w->numbers[thread] = import_feed_thread(w->feed, number <= UINT32_MAX ? (uint32_t)number : 0, text);
    }
    import_feed_choose_thread(w->feed, w->numbers[thread]);
}

static uint32_t trace_stack_of(struct writing *w, const struct import_trace_record *r)
{
    return import_lane_stack(&w->lanes[r->thread], r, w->t, w->feed, w->numbers[r->thread], &w->stacks);
}

static void write_memory(struct writing *w, const struct import_trace_record *r, struct import_event *e)
{
    uint32_t process = w->t->threads[r->thread].process;
    bool freed = r->bytes < 0;
    e->device = r->device;
    e->address = import_trace_address(r->address, process);
    e->bytes = freed ? -r->bytes : r->bytes;
    e->stream = GS_STREAM_UNKNOWN;
    e->no_totals = r->allocated < 0 || r->reserved < 0 || w->t->processes_n > 1;
    e->allocated = r->allocated;
    e->reserved = r->reserved;
    import_feed_tensor(w->feed, e, freed);
}

static void write_failure(struct writing *w, const struct import_trace_record *r, struct import_event *e)
{
    e->device = r->device;
    e->bytes = r->bytes > 0 ? r->bytes : -r->bytes;
    e->allocated = r->allocated;
    e->reserved = r->reserved;
    import_feed_failure(w->feed, e, -1);
}

static void write_gpu(struct writing *w, struct import_event *e, uint32_t first, uint64_t blocked_ns)
{
    for (uint32_t i = first; i; i = w->t->gpu[i - 1].next, blocked_ns = 0) {
        const struct import_trace_gpu *g = &w->t->gpu[i - 1];
        w->sizeless += g->bytes < 0;
        if (g->bytes < 0) continue;
        e->device = g->device;
        e->stream = g->stream;
        e->bytes = g->bytes;
        e->host_memory = (uint8_t)(g->memory + 1);
        if (g->kind == IMPORT_TRACE_COPY)
            import_feed_copy(w->feed, e, g->direction, blocked_ns);
        else
            import_feed_fill(w->feed, e, blocked_ns);
    }
}

/* ROCm's traces from before March 2024 list copies on the GPU as kernels, but their calls state size and direction
 * (RoctracerActivityApi.cpp of kineto). */
static void write_call_copy(struct writing *w, const struct import_trace_record *r, struct import_event *e)
{
    e->device = w->device;
    e->stream = GS_STREAM_UNKNOWN;
    e->bytes = r->bytes;
    e->host_memory = GS_HOSTMEM_NONE + 1;
    import_feed_copy(w->feed, e, (uint8_t)(r->sync - 1), (uint64_t)r->duration_ns);
}

static void write_call(struct writing *w, const struct import_trace_record *r, struct import_event *e)
{
    const char *name = import_name_text(&w->t->names, r->name);
    uint64_t blocked_ns = (uint64_t)r->duration_ns;
    bool graph = r->kind == IMPORT_TRACE_GRAPH;
    e->api = import_feed_api(w->feed, name);
    if (r->kind == IMPORT_TRACE_WAIT) {
        e->device = w->device;
        e->stream = GS_STREAM_UNKNOWN;
        import_feed_wait(w->feed, e, r->sync, blocked_ns);
        return;
    }
    e->async = graph || strstr(name, "Async");
    if (r->kind == IMPORT_TRACE_COPY && !r->a && r->sync && r->bytes >= 0) {
        write_call_copy(w, r, e);
        return;
    }
    w->sizeless += !graph && !r->a;
    write_gpu(w, e, r->a, graph ? 0 : blocked_ns);
}

static bool is_device_wait(const struct import_trace_record *r)
{
    return r->kind == IMPORT_TRACE_WAIT && r->sync == GS_SYNC_DEVICE;
}

/* When torch.profiler stops, it waits for the GPU itself (__exit__ in torch/autograd/profiler.py). Without stacks, that
 * is the last event of the trace, outside of all operators. If the program waits for the GPU, too, such as after each
 * step, the last wait is the profiler's only if it follows one of the program's: other tools record without that wait.
 */
static bool is_profiler_end(const struct writing *w, const struct import_trace_record *r)
{
    return is_device_wait(r) && r->number == w->last && w->t->processes_n == 1 && (!w->has_waited || w->waited_last);
}

static uint32_t trace_call_stack(struct writing *w, const struct import_trace_record *r)
{
    static const struct import_frame end = {.function = "(the end of torch.profiler)", .python = true};
    const uint32_t stack = trace_stack_of(w, r);
    return stack || !is_profiler_end(w, r) ? stack : import_feed_stack(w->feed, &end, 1);
}

static void write_record(struct writing *w, const struct import_trace_record *r)
{
    struct import_event e = {.time_ns = trace_time_of(w, r->at_ns)};
    if (r->kind == IMPORT_TRACE_ALONE) {
        import_feed_choose_thread(w->feed, 1);
        e.api = import_feed_api(w->feed, "unknown call");
        write_gpu(w, &e, r->a, 0);
        return;
    }
    if (r->kind == IMPORT_TRACE_OP || r->kind == IMPORT_TRACE_PYTHON) {
        w->waited_last = false;
        import_lane_open(&w->lanes[r->thread], r);
        return;
    }
    choose_trace_thread(w, r->thread);
    switch (r->kind) {
    case IMPORT_TRACE_RANGE:
    case IMPORT_TRACE_RANGE_END:
        import_feed_range(w->feed, e.time_ns, r->a, r->kind == IMPORT_TRACE_RANGE_END, NULL,
                          import_name_text(&w->t->names, r->name));
        break;
    case IMPORT_TRACE_MEMORY:
        e.stack = w->t->timeline
                      ? import_feed_stack(w->feed, (struct import_frame[]){import_name_frame(&w->t->names, r->name)}, 1)
                      : trace_stack_of(w, r);
        write_memory(w, r, &e);
        break;
    case IMPORT_TRACE_OOM:
        e.stack = trace_stack_of(w, r);
        write_failure(w, r, &e);
        break;
    default: e.stack = trace_call_stack(w, r); write_call(w, r, &e);
    }
    w->waited_last = is_device_wait(r) || (w->waited_last && r->kind == IMPORT_TRACE_RANGE_END);
    w->has_waited = w->has_waited || is_device_wait(r);
}

static void write_before(struct writing *w)
{
    const uint32_t stack = w->levels.before_n ? import_feed_before(w->feed) : 0;
    EACH_IN (b, w->levels.before) {
        struct import_event e = {.device = b->device,
                                 .address = import_trace_address(b->address, b->process),
                                 .bytes = b->bytes,
                                 .stream = GS_STREAM_UNKNOWN,
                                 .stack = stack,
                                 .no_totals = true};
        import_feed_tensor(w->feed, &e, false);
    }
}

/* The only device with tensors, or without; -1: none or several. */
static int only_device(const struct import_trace *t, bool memory)
{
    int only = -1;
    for (int i = 0; i < IMPORT_TRACE_DEVICES; i++) {
        if (!t->devices[i].used || t->devices[i].memory != memory) continue;
        if (only >= 0) return -1;
        only = i;
    }
    return only;
}

/* The only device that the trace names; -1: none or several. */
static int only_named(const struct import_trace *t)
{
    int only = -1;
    for (int i = 0; i < IMPORT_TRACE_DEVICES; i++) {
        if (!t->devices[i].name) continue;
        if (only >= 0) return -1;
        only = i;
    }
    return only;
}

/* On ROCm, copies and kernels have the runtime's number of a GPU, which also counts CPUs; tensors and names have
 * PyTorch's. Returns the device whose number stays ROCm's; -1: none. */
static int number_devices(struct import_trace *t)
{
    const int rocms = t->rocm ? only_device(t, false) : -1, with_memory = only_device(t, true);
    const int own = rocms < 0 ? -1 : t->gpu_memory ? with_memory : only_named(t);
    if (rocms < 0 || own == rocms) return -1;
    if (own < 0) {
        t->devices[rocms].name = NULL; /* it may be the name of another one */
        return rocms;
    }
    for (size_t i = 0; i < t->gpu_n; i++)
        t->gpu[i].device = (int16_t)(t->gpu[i].device == rocms ? own : t->gpu[i].device);
    t->devices[rocms].used = false;
    t->devices[own].used = true;
    return -1;
}

static void write_devices(struct writing *w)
{
    int used = 0;
    w->device = -1;
    w->rocms_device = number_devices(w->t);
    for (int i = 0; i < IMPORT_TRACE_DEVICES; i++) {
        const struct import_trace_device *d = &w->t->devices[i];
        if (!d->used) continue;
        w->device = used++ ? -1 : i;
        if (d->name) import_feed_device(w->feed, i, d->name, (uint64_t)d->total_bytes);
    }
}

#define REMARK(w, ...) import_feed_remark((w)->feed, ++(w)->notes, __VA_ARGS__)

static void note_levels(struct writing *w)
{
    char bytes[UNITS_TEXT];
    for (size_t i = 0; i < w->levels.n && i < 8; i++) {
        const struct import_level *l = &w->levels.list[i];
        if (!l->kept) continue; /* otherwise the store compares the totals */
        const char *freed = "were allocated before the recording and not freed in it: gpuspy counts them as one block";
        units_format_bytes(bytes, (uint64_t)l->kept);
        if (l->device < 0)
            REMARK(w, "%s of CPU tensors %s", bytes, freed);
        else
            REMARK(w, "GPU %d: %s of tensors %s", l->device, bytes, freed);
        if (!l->mismatches) continue; /* the store compares those of one process, too */
        REMARK(w, "after %s, PyTorch's total differs from the sum of the events before: some are missing",
               units_format_plural(bytes, l->mismatches, "event", NULL));
    }
}

static void note_limits(struct writing *w)
{
    struct import_trace *t = w->t;
    if (t->cut[0]) {
        REMARK(w, "the trace is incomplete: %s; gpuspy read the %s before that", t->cut,
               UNITS_PLURAL(t->events, "event", NULL));
    }
    if (t->has_more) REMARK(w, "the file has more than one trace; gpuspy read only the first");
    if (w->levels.unplaced && !t->timeline) {
        REMARK(w, "the trace has no addresses: a free is assumed to free the youngest live tensor of its size");
    } else if (w->levels.unplaced) {
        REMARK(
            w,
            "a memory timeline has no addresses, lines or GPU number: a free is assumed to free the youngest live "
            "tensor of its size, and the GPU is called 0; for lines, open the trace that export_chrome_trace writes");
    }
    if (t->lines && t->memory_n)
        REMARK(w, "torch.profiler names a Python function by its first line, not by the line that runs");
    if (w->sizeless) {
        REMARK(w, "left out %s that copied or filled memory: the trace has no size",
               UNITS_PLURAL(w->sizeless, "call", NULL));
    }
    if (t->malformed) REMARK(w, "left out %s with invalid JSON", UNITS_PLURAL(t->malformed, "event", NULL));
    if (t->undirected)
        REMARK(w, "left out %s: their names have no direction", UNITS_PLURAL(t->undirected, "copy", "copies"));
    if (t->left_out)
        REMARK(w, "left out %s with an impossible size or device", UNITS_PLURAL(t->left_out, "event", NULL));
    if (w->rocms_device >= 0)
        REMARK(w, "GPU %d has ROCm's number, which counts CPUs, too; its number in PyTorch is unknown",
               w->rocms_device);
    if (t->processes_n > 1)
        REMARK(w, "the trace holds %u processes: each thread's name shows which one", t->processes_n);
}

/* Why figures of live memory may be too low; NULL: they are not. */
static const char *unknown_before(const struct writing *w)
{
    bool totals = true;
    for (size_t i = 0; i < w->levels.n; i++) totals = totals && w->levels.list[i].has_total;
    return totals ? NULL
                  : "the trace has no totals: memory that was allocated before it and not freed in it is unknown";
}

/* What the trace contains, to complete "it has …". `copies` without calls: of GPUs of neither CUDA nor ROCm. */
static const char *contents_of(const struct import_trace *t, bool copies)
{
    const bool gpu = t->gpu_memory, any = t->memory_n;
    if (t->timeline) return "the sizes of PyTorch's tensors over time, but no waits or copies";
    if (!t->calls && copies)
        return any ? "PyTorch's tensors and copies while it was recorded, but no calls to CUDA"
                   : "copies while it was recorded, but no calls to CUDA";
    if (gpu)
        return t->calls ? "PyTorch's tensors, waits and copies while it was recorded, but no CUDA allocations"
                        : "PyTorch's tensors while it was recorded, but no waits or copies";
    if (any)
        return t->calls ? "CPU tensors, waits and copies while it was recorded, but no GPU memory"
                        : "CPU tensors while it was recorded, but no calls to CUDA";
    return t->calls ? "waits and copies while it was recorded" : "operators, but no calls to CUDA";
}

static void write_trace_notes(struct writing *w)
{
    struct import_trace *t = w->t;
    const bool copies = t->calls || t->gpu_n;
    const char *before = t->memory_n ? unknown_before(w) : NULL;
    if (before && !t->timeline) REMARK(w, "%s, so peaks can be higher than stated", before);
    static const char no_calls[] = "this torch.profiler trace has no calls to CUDA";
    import_feed_note(w->feed, "lacks", "%s%ssegments pinned%s%s%s", t->calls ? "" : "waits ", copies ? "" : "copies ",
                     t->memory_n ? "" : " memory", before ? " before" : "", t->timeline ? " outcome" : "");
    if (before) import_feed_note(w->feed, "lacks.before", "%s", before);
    if (!t->calls && !t->timeline) import_feed_note(w->feed, "lacks.waits", no_calls);
    if (!copies && !t->timeline) import_feed_note(w->feed, "lacks.copies", no_calls);
    if (!t->memory_n) {
        import_feed_note(w->feed, "lacks.memory",
                         "a torch.profiler trace without profile_memory=True does not record memory");
    }
    import_feed_note(w->feed, "has", "%s", contents_of(t, copies));
    note_levels(w);
    note_limits(w);
}

static struct import_source source_of(const struct writing *w, const char *path)
{
    const struct import_trace *t = w->t;
    struct import_source source = {.format = t->timeline ? "PyTorch memory timeline" : "torch.profiler trace",
                                   .file = basename(path),
                                   .rank_plus_1 = t->rank + 1};
    int64_t real = w->start_ns > in_1973_ns ? w->start_ns : t->base_ns ? arena_add_capped(t->base_ns, w->start_ns) : 0;
    source.start_real_ns = real > BEFORE_NS ? (uint64_t)(real - BEFORE_NS) : 0;
    for (size_t i = 0; i < t->threads_n && t->processes_n == 1; i++) {
        unsigned long pid = strtoul(import_name_text(&t->names, t->threads[i].pid), NULL, 10);
        if (t->threads[i].used && pid < UINT32_MAX) source.pid = (uint32_t)pid;
    }
    return source;
}

static void write_trace_records(struct writing *w)
{
    struct import_trace *t = w->t;
    w->lanes = arena_realloc(NULL, t->threads_n + 1, sizeof *w->lanes);
    w->numbers = arena_realloc(NULL, t->threads_n + 1, sizeof *w->numbers);
    memset(w->lanes, 0, (t->threads_n + 1) * sizeof *w->lanes);
    memset(w->numbers, 0, (t->threads_n + 1) * sizeof *w->numbers);
    write_devices(w);
    write_before(w);
    int64_t end_ns = INT64_MIN;
    size_t alone = 0;
    for (const struct import_trace_record *next = import_records_next(t->records), *r; next || alone < w->alone_n;) {
        r = next && (alone == w->alone_n || next->at_ns <= w->alone[alone].at_ns) ? next : &w->alone[alone++];
        const int64_t end = r->duration_ns > 0 ? arena_add_capped(r->at_ns, r->duration_ns) : r->at_ns;
        end_ns = end > end_ns ? end : end_ns;
        write_record(w, r);
        if (r == next) next = import_records_next(t->records);
    }
    import_feed_until(w->feed, trace_time_of(w, end_ns));
    write_trace_notes(w);
    for (size_t i = 0; i < t->threads_n; i++) import_lane_free(&w->lanes[i]);
    map_free(&w->stacks);
    ARENA_RELEASE(w->lanes, w->numbers);
}

static void release_writing(struct writing *w)
{
    import_trace_levels_free(&w->levels);
    map_free(&w->chains);
    free(w->alone);
    import_trace_free(w->t);
}

bool import_trace(const char *path, const char *to, void (*progress)(void *, uint64_t), void *self, char *error,
                  size_t error_size)
{
    struct writing w = {.t = import_trace_read(path, to, progress, self, error, error_size)};
    if (!w.t) return false;
    bool ok = prepare_records(&w, error, error_size);
    if (ok) {
        struct import_source source = source_of(&w, path);
        w.feed = import_feed_start(to, &source, error, error_size);
        ok = w.feed != NULL;
    }
    if (ok) {
        write_trace_records(&w);
        ok = import_feed_end(w.feed, error, error_size);
    }
    const int lost = import_records_error(w.t->records);
    if (ok && lost) {
        snprintf(error, error_size, "its sorted events cannot be read back: %s", strerror(lost));
        unlink(to);
        ok = false;
    }
    release_writing(&w);
    return ok;
}
