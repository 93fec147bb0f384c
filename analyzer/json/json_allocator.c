/* allocator[] and cache_flushes[] of the JSON report. */
#include "analyzer/allocator/allocator.h"
#include "analyzer/base/arena.h"
#include "analyzer/json/json_parts.h"

static json_t *share_json(const struct allocator_pool_share *h, bool stream)
{
    json_t *o = json_object();
    if (stream)
        set_json(o, "stream", h->stream_known ? json_integer((json_int_t)h->stream) : NULL);
    else
        set_text(o, "pool", allocator_pool_word(h->pool));
    set_bytes(o, "reserved_bytes", h->reserved);
    set_bytes(o, "allocated_bytes", h->allocated);
    set_bytes(o, "active_bytes", h->active);
    SET_MEMBERS(o, h, segments, blocks);
    return o;
}

json_t *json_allocator(const struct result_report *r)
{
    json_t *list = json_array();
    EACH_IN (s, r->allocator) {
        json_t *o = json_add_object(list);
        draw_json_where(o, r, s->process, s->device);
        set_text(o, "moment", allocator_moment_word(s->moment));
        set_real(o, "time_s", (double)s->time_ns / 1e9);
        set_text(o, "backend", run_backend_word(s->backend));
        set_text(o, "expandable", s->expandable == RUN_YES ? "yes" : s->expandable == RUN_NO ? "no" : "unknown");
        set_bytes(o, "reserved_bytes", s->reserved);
        set_bytes(o, "allocated_bytes", s->allocated);
        set_bytes(o, "pending_bytes", s->pending);
        set_bytes(o, "active_bytes", s->active);
        set_bytes(o, "cached_bytes", s->cached);
        set_bytes(o, "inactive_split_bytes", s->inactive_split);
        set_bytes(o, "largest_free_bytes", s->largest_free);
        SET_MEMBERS(o, s, segments, blocks);
        set_count(o, "blocks_outside", s->strays);
        set_json(o, "by_pool", LIST_OF(s->by_pool_n, i, share_json(&s->by_pool[i], false)));
        set_json(o, "by_stream", LIST_OF(s->by_stream_n, i, share_json(&s->by_stream[i], true)));
    }
    return list;
}

json_t *json_flushes(const struct result_report *r)
{
    json_t *list = json_array();
    EACH_IN (f, r->flushes) {
        json_t *o = json_add_object(list);
        draw_json_where(o, r, f->process, f->device);
        set_text(o, "kind", allocator_flush_word(f->kind));
        SET_MEMBERS(o, f, count, segments, bytes);
        set_bytes(o, "taken_again_bytes", f->again);
        SET_MEMBERS(o, f, blocked_s, per_step, matters, first_s, last_s);
        set_json(o, "site", draw_json_site(&f->site));
        set_text(o, "advice", f->advice);
    }
    return list;
}
