/* A segment has the stream of the tensors in it. One that is empty when the rows of a bounded recording begin shows its
 * stream with the first tensor that comes into it. */
#include "analyzer/whatif/parts.h"

struct before {
    struct whatif *w;
    size_t unknown; /* streams */
};

static struct whatif_before *segment_before(const struct whatif *w, uint32_t process, int device, uint64_t address)
{
    return FIND_IN(s, w->before,
                   s->process == process && s->device == device && address >= s->address &&
                       address - s->address < (uint64_t)s->bytes);
}

static void settle_stream(struct before *b, struct whatif_before *s, uint64_t stream)
{
    if (!s || s->known) return;
    s->known = true;
    s->stream = stream;
    b->unknown--;
}

static void before_on_alloc(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct before *b = self;
    const bool before = whatif_was_before(b->w, series->process, life);
    const bool last = series->process + 1 == RUN_COUNT(run_processes, b->w->run);
    if (!before && !b->unknown && last) run_stop_replay(b->w->run); /* one process comes after the other */
    if (life->device < 0 || (before && whatif_is_gone(b->w, series->process, life))) return;
    if (life->layer == GS_LAYER_TENSOR) {
        settle_stream(b, segment_before(b->w, series->process, life->device, life->address), life->stream);
    } else if (before && series->layer == RUN_SERIES_DEVICE && whatif_is_segment(b->w, life)) {
        *ARENA_ADD(b->w->before) = (struct whatif_before){.process = series->process,
                                                          .device = life->device,
                                                          .address = life->address,
                                                          .bytes = life->bytes,
                                                          .stream = life->stream};
        b->unknown++;
    }
}

static void before_on_free(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct before *b = self;
    if (series->layer == RUN_SERIES_DEVICE && !whatif_is_gone(b->w, series->process, life))
        settle_stream(b, segment_before(b->w, series->process, life->device, life->address), life->stream);
}

bool whatif_find_before(struct whatif *w, char *error, size_t error_size)
{
    struct before b = {.w = w};
    const struct run_observer observer = {.self = &b, .alloc = before_on_alloc, .free = before_on_free};
    return !run_kept_from(w->run) || w->imported || run_replay_requests(w->run, &observer, 1, error, error_size);
}

/* A segment that no tensor came into belongs to a stream that had no use for it. */
uint64_t whatif_stream_before(const struct whatif *w, uint32_t process, const struct run_lifetime *life)
{
    static const uint64_t no_stream = UINT64_MAX - 2; /* no request has it */
    const struct whatif_before *s = segment_before(w, process, life->device, life->address);
    const bool several = ANY_IN(other, w->before, other->known && other->stream && other->process == process);
    if (s && !s->known && several) return no_stream;
    const uint64_t stream = s ? s->stream : life->stream;
    return stream == GS_STREAM_UNKNOWN ? 0 : stream;
}
