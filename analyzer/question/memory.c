/* A device's memory at the moment of its peak: tensors, PyTorch's cache, direct allocations, and memory in use without
 * a recorded allocation. The report's fragmentation also starts here: active against reserved needs no addresses. */
#include "analyzer/question/question.h"

#include <stdlib.h>
#include <string.h>

struct reply {           /* the memory in use besides the recorded allocations when the device was queried */
    int64_t outside, ns; /* RUN_UNKNOWN */
    bool at_peak;        /* nothing was allocated or freed since the peak */
};

struct nvml {                   /* a sample of NVML, with the recorded live memory of that moment */
    int64_t context, other, ns; /* RUN_UNKNOWN; context: of this process, in no recorded allocation */
};

struct card { /* a device of the process now replayed */
    bool used, given;
    int64_t live, tensor, reserved; /* now; reserved is RUN_UNKNOWN until PyTorch reports it */
    int64_t tensor_peak, reserved_peak;
    int64_t peak_live, peak_tensor, peak_reserved, peak_ns; /* at the device-level peak */
    int64_t peak_tensor_ns;                                 /* of peak_tensor */
    int64_t total, least_free;
    int64_t outside_first;
    struct reply last, before, after;               /* the last sample; those next to the peak */
    struct nvml nvml_last, nvml_before, nvml_after; /* likewise */
    bool has_tensors, moved;                        /* moved: something was allocated or freed since the peak */
    const struct run_device *first;                 /* the device's first report, until it is used */
};

/* The recorder queries a device at its first call there, just after the real call: if that was an allocation, its bytes
 * are no longer free. The allocation's own time is at most this much earlier. */
static const int64_t first_call_ns = 20000000;

enum { CARDS = 128 };

struct question_memory {
    struct site_builder *b;
    uint32_t process; /* the one now replayed */
    size_t nvml_at;   /* the next of NVML's samples */
    int64_t nvml_ns;  /* … and its time; RUN_NEVER: there is none */
    struct card cards[CARDS];
    struct result_device_memory *list;
    size_t n, cap;
    ARENA_LIST(struct result_fragmentation, fragmentation);
};

static const struct nvml no_nvml = {RUN_UNKNOWN, RUN_UNKNOWN, RUN_UNKNOWN};
static const struct reply no_reply = {.outside = RUN_UNKNOWN, .ns = RUN_UNKNOWN};

static struct card *card_of_device(struct question_memory *m, int device)
{
    if (device < 0 || device >= CARDS) return NULL;
    struct card *c = &m->cards[device];
    if (!c->used) {
        *c = (struct card){.used = true,
                           .reserved = RUN_UNKNOWN,
                           .reserved_peak = RUN_UNKNOWN,
                           .peak_reserved = RUN_UNKNOWN,
                           .total = RUN_UNKNOWN,
                           .least_free = RUN_UNKNOWN,
                           .outside_first = RUN_UNKNOWN,
                           .nvml_last = no_nvml,
                           .nvml_before = no_nvml,
                           .nvml_after = no_nvml,
                           .last = no_reply,
                           .before = no_reply,
                           .after = no_reply};
    }
    return c;
}

static int64_t graphs_at(const struct question_memory *m, const struct card *c, int64_t ns)
{
    return run_graph_memory_at(m->b->run, m->process, (int)(c - m->cards), ns);
}

static void add_card_sample(struct question_memory *m, struct card *c, int64_t total, int64_t free, int64_t ns)
{
    if (total == RUN_UNKNOWN || free == RUN_UNKNOWN || free > total) return;
    int64_t outside = arena_add_capped(arena_add_capped(total - free, -c->live), -graphs_at(m, c, ns));
    outside = outside < 0 ? RUN_UNKNOWN : outside;
    c->total = total;
    c->least_free = c->least_free == RUN_UNKNOWN || free < c->least_free ? free : c->least_free;
    c->outside_first = c->outside_first == RUN_UNKNOWN ? outside : c->outside_first;
    if (outside == RUN_UNKNOWN) return;
    c->last = (struct reply){outside, ns, c->peak_ns != 0 && !c->moved};
    if (c->peak_ns != 0 && c->after.outside == RUN_UNKNOWN) c->after = c->last;
}

/* A device that was seen at an unknown time existed from the beginning. */
static int64_t seen_at(const struct run_device *d)
{
    return d->seen_ns == RUN_UNKNOWN ? 0 : d->seen_ns;
}

static void add_first_sample(struct question_memory *m, struct card *c)
{
    const struct run_device *d = c->first;
    c->first = NULL;
    if (d) {
        add_card_sample(m, c, d->total_bytes, d->free_bytes, seen_at(d));
        c->total = d->total_bytes;
    }
}

/* Adds NVML's samples up to a time, before the event at that time: NVML counts all memory of the process. */
static void add_nvml_samples(struct question_memory *m, int64_t until_ns)
{
    size_t n;
    const struct run_device_sample *all = run_process_samples(m->b->run, m->process, &n);
    for (; m->nvml_at < n; m->nvml_at++) {
        const struct run_device_sample *s = &all[m->nvml_at];
        m->nvml_ns = s->time_ns;
        if (s->time_ns > until_ns) return;
        struct card *c = s->own_bytes > 0 ? card_of_device(m, s->device) : NULL;
        int64_t held = c ? arena_add_capped(c->live, graphs_at(m, c, s->time_ns)) : 0;
        if (c && s->own_bytes >= held) {
            c->nvml_last = (struct nvml){s->own_bytes - held, s->other_bytes, s->time_ns};
            if (c->peak_ns != 0 && c->nvml_after.context == RUN_UNKNOWN) c->nvml_after = c->nvml_last;
        }
    }
    m->nvml_ns = RUN_NEVER;
}

static inline void memory_on_event(struct question_memory *m, const struct run_series *s, int64_t alloc_ns)
{
    struct card *c =
        s->layer == RUN_SERIES_DEVICE || s->layer == RUN_SERIES_TENSOR ? card_of_device(m, s->device) : NULL;
    if (!c) return;
    if (s->layer == RUN_SERIES_TENSOR) {
        c->tensor = s->live_bytes;
        c->tensor_peak = c->tensor > c->tensor_peak ? c->tensor : c->tensor_peak;
        c->has_tensors = true;
        if (!c->moved && c->tensor > c->peak_tensor) { /* the tensor for which the peak's segment was allocated */
            c->peak_tensor = c->tensor;
            c->peak_tensor_ns = alloc_ns;
        }
        return;
    }
    if (c->first && (alloc_ns < 0 || alloc_ns - seen_at(c->first) > first_call_ns)) add_first_sample(m, c);
    c->live = s->live_bytes;
    c->moved = true;
    if (c->first) add_first_sample(m, c);
    if (c->live >= c->peak_live && alloc_ns >= 0) {
        c->peak_live = c->live;
        c->peak_tensor = c->tensor;
        c->peak_reserved = c->reserved;
        c->peak_ns = c->peak_tensor_ns = alloc_ns;
        c->before = c->last;
        c->after = no_reply;
        c->nvml_before = c->nvml_last;
        c->nvml_after = no_nvml;
        c->moved = false;
    }
}

static void memory_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_memory *m = self;
    if (series->layer == RUN_SERIES_DEVICE && m->nvml_ns <= life->alloc_ns) add_nvml_samples(m, life->alloc_ns);
    memory_on_event(m, series, life->alloc_ns);
}

static void memory_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct question_memory *m = self;
    if (series->layer == RUN_SERIES_DEVICE && m->nvml_ns <= life->free_ns) add_nvml_samples(m, life->free_ns);
    memory_on_event(m, series, -1);
}

static void memory_on_reserved(void *self, const struct run_reserved *reserved)
{
    struct card *c = card_of_device(self, reserved->device);
    if (c) {
        c->reserved = reserved->bytes;
        c->reserved_peak = reserved->bytes > c->reserved_peak ? reserved->bytes : c->reserved_peak;
        /* PyTorch reports its new total just after the segment that made the peak. */
        if (c->peak_reserved == RUN_UNKNOWN || (c->live == c->peak_live && reserved->bytes > c->peak_reserved))
            c->peak_reserved = reserved->bytes;
    }
}

static void memory_on_sample(void *self, const struct run_sample *sample)
{
    struct question_memory *m = self;
    struct card *c = card_of_device(m, sample->device);
    if (c) {
        add_first_sample(m, c);
        add_card_sample(m, c, sample->total_bytes, sample->free_bytes, sample->time_ns);
    }
}

static void memory_on_oom(void *self, const struct run_oom *oom, size_t index)
{
    struct question_memory *m = self;
    struct card *c = card_of_device(m, oom->device);
    if (c && oom->space != GS_SPACE_PINNED) {
        add_first_sample(m, c);
        add_card_sample(m, c, oom->total_bytes, oom->free_bytes, oom->time_ns);
    }
}

/* The device's first report comes before any allocation on it. */
static void memory_on_process_start(void *self, uint32_t process)
{
    struct question_memory *m = self;
    memset(m->cards, 0, sizeof m->cards);
    m->process = process;
    m->nvml_at = 0;
    m->nvml_ns = INT64_MIN;
    RUN_EACH (d, run_devices, m->b->run) {
        struct card *c = d->process == process ? card_of_device(m, d->device) : NULL;
        if (c) c->first = d;
    }
}

/* The device's report nearest to its peak. */
static struct reply nearest_reply(const struct card *c)
{
    const struct reply *b = &c->before, *a = &c->after;
    if (a->outside == RUN_UNKNOWN || b->outside == RUN_UNKNOWN) return a->outside == RUN_UNKNOWN ? *b : *a;
    double after = (double)a->ns - (double)c->peak_ns, before = (double)c->peak_ns - (double)b->ns;
    return a->at_peak || after < before ? *a : *b;
}

static struct nvml nearest_nvml(const struct card *c)
{
    const struct nvml *b = &c->nvml_before, *a = &c->nvml_after;
    if (a->context == RUN_UNKNOWN || b->context == RUN_UNKNOWN) return a->context == RUN_UNKNOWN ? *b : *a;
    return (double)a->ns - (double)c->peak_ns < (double)c->peak_ns - (double)b->ns ? *a : *b;
}

static void describe_card(struct question_memory *m, uint32_t process, int device, const struct card *c)
{
    bool torch = c->has_tensors;
    struct reply outside = nearest_reply(c);
    const int64_t peak_ns = c->peak_live > 0 ? c->peak_ns : c->peak_tensor_ns; /* traces have no CUDA allocations */
    int64_t graphs = graphs_at(m, c, peak_ns);
    int64_t rest = run_subtract(run_subtract(c->total, c->peak_live), graphs);
    if (outside.outside != RUN_UNKNOWN && rest != RUN_UNKNOWN && outside.outside > rest)
        outside = (struct reply){.outside = rest}; /* at the peak it cannot have been more */
    struct nvml given = nearest_nvml(c);
    ARENA_APPEND_TO(m->list, m->n, m->cap, .process = process, .device = device, .time_s = site_seconds(peak_ns),
                    .total_bytes = c->total, .live_bytes = c->peak_live,
                    .tensor_bytes = torch ? c->peak_tensor : RUN_UNKNOWN, .tensor_ns = c->peak_tensor_ns,
                    .cached_bytes = torch ? run_subtract(c->peak_reserved, c->peak_tensor) : RUN_UNKNOWN,
                    .direct_bytes = torch ? run_subtract(c->peak_live, c->peak_reserved) : c->peak_live,
                    .graph_bytes = graphs, .outside_bytes = outside.outside, .context_bytes = given.context,
                    .other_bytes = given.other, .about = !outside.at_peak,
                    .free_bytes = run_subtract(rest, outside.outside), .outside_first_bytes = c->outside_first,
                    .least_free_bytes = c->least_free, .tensor_peak_bytes = torch ? c->tensor_peak : RUN_UNKNOWN,
                    .reserved_peak_bytes = torch ? c->reserved_peak : RUN_UNKNOWN);
    /* memory that PyTorch had allocated before gpuspy attached is also in use, as part of its reserved memory */
    const bool attached = run_process_at(m->b->run, process)->attached_after_s > 0;
    bool totals = torch && c->reserved_peak != RUN_UNKNOWN && !attached;
    int64_t reserved = totals ? c->peak_reserved : torch ? RUN_UNKNOWN : c->peak_live;
    ARENA_APPEND(m->fragmentation, .process = process, .device = device, .time_s = site_seconds(peak_ns),
                 .reserved_bytes = reserved, .active_bytes = torch ? c->peak_tensor : RUN_UNKNOWN,
                 .free_bytes = totals ? run_subtract(reserved, c->peak_tensor) : RUN_UNKNOWN,
                 .largest_free_bytes = RUN_UNKNOWN, .external = __builtin_nan(""),
                 .utilisation = totals && c->reserved_peak > 0 ? (double)c->tensor_peak / (double)c->reserved_peak
                                                               : __builtin_nan(""));
}

static void memory_on_process_end(void *self, uint32_t process, int64_t end_ns)
{
    struct question_memory *m = self;
    add_nvml_samples(m, INT64_MAX);
    for (int device = 0; device < CARDS; device++) {
        const struct card *c = &m->cards[device];
        if (c->used && (c->peak_live > 0 || c->has_tensors)) describe_card(m, process, device, c);
    }
}

struct question_memory *question_memory_start(struct site_builder *b, struct run_observer *observer)
{
    struct question_memory *m = arena_realloc(NULL, 1, sizeof *m);
    memset(m, 0, sizeof *m);
    m->b = b;
    *observer = (struct run_observer){.self = m,
                                      .process_start = memory_on_process_start,
                                      .alloc = memory_on_alloc,
                                      .free = memory_on_free,
                                      .oom = memory_on_oom,
                                      .sample = memory_on_sample,
                                      .reserved = memory_on_reserved,
                                      .process_end = memory_on_process_end};
    return m;
}

void question_memory_finish(struct question_memory *m)
{
    struct result_report *report = m->b->report;
    report->memory = arena_alloc(m->b->arena, m->n * sizeof *m->list);
    report->fragmentation = arena_alloc(m->b->arena, m->fragmentation_n * sizeof *m->fragmentation);
    report->memory_n = m->n;
    report->fragmentation_n = m->fragmentation_n;
    for (size_t i = 0; i < m->n; i++) {
        report->memory[i] = m->list[i];
        report->fragmentation[i] = m->fragmentation[i];
    }
    ARENA_RELEASE(m->list, m->fragmentation, m);
}
