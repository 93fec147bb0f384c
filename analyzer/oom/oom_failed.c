/* Passes that failed and are still alive: a kept exception.
 *
 * A program that handles "out of memory" tries again with less. Until its except block ends, and for as long as it
 * keeps the exception, the traceback keeps the frames of the failed pass and with them its tensors. */
#include "analyzer/oom/oom_failed.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/base/units.h"

struct windows {
    const struct gs_run *run;
    const struct gs_oom_window *list;
    int device;
    struct gs_oom_failed_pass failed;
};

static void take(void *self, const struct gs_lifetime *life)
{
    struct windows *w = self;
    if (life->layer != GS_LAYER_TENSOR || life->device != w->device || life->stack == GS_NONE) {
        return;
    }
    for (const struct gs_oom_window *at = w->list; at; at = at->previous) {
        if (life->alloc_ns > at->from_ns && life->alloc_ns <= at->to_ns && gs_oom_in_pass(w->run, life->stack)) {
            w->failed.bytes = gs_add(w->failed.bytes, life->bytes);
            w->failed.count++;
            w->failed.first_ns = at->to_ns < w->failed.first_ns ? at->to_ns : w->failed.first_ns;
            if (life->bytes > w->failed.largest) {
                w->failed.largest = life->bytes;
                w->failed.stack = life->stack;
            }
            return;
        }
    }
}

struct gs_oom_failed_pass gs_oom_failed_held(const struct gs_run *run, const struct gs_oom_window *list, int device)
{
    struct windows w = {.run = run, .list = list, .device = device, .failed = {.first_ns = GS_NEVER, .stack = GS_NONE}};
    if (list) {
        gs_run_live(run, take, &w);
    }
    return w.failed;
}

/* --- in words ------------------------------------------------------------------------------------ */

#define TEXT(w, ...) gs_arena_printf((w)->b->arena, __VA_ARGS__)
#define SIZE(w, n) gs_bytes_text((w)->b, (double)(n))

bool gs_oom_keeps_failed(const struct gs_oom_facts *f)
{
    const struct gs_oom_failed_pass *p = &f->failed_pass;
    return p->bytes >= gs_oom_need(f) && p->bytes >= f->live / 8;
}

void gs_say_failed(struct gs_oom_words *w)
{
    const struct gs_oom_failed_pass *p = &w->f->failed_pass;
    char when[UNITS_TEXT];
    format_seconds(when, gs_seconds(p->first_ns));
    w->v->verdict = TEXT(
        w,
        "a kept exception: the pass that ran out of memory at %s is still alive, %s of the %s live in %llu block%s, "
        "foremost from %s; a traceback keeps the tensors of its frames",
        when, SIZE(w, p->bytes), SIZE(w, w->f->live), (unsigned long long)p->count, p->count == 1 ? "" : "s",
        gs_oom_place(w, p->stack));
    gs_oom_measure(
        w->b, w->v,
        (struct gs_measure){
            .text = "try again after the except block has ended, not inside it, and do not store the exception (or "
                    "del it, or traceback.clear_frames(e.__traceback__))",
            .frees_bytes = p->bytes,
            .enough = -1,
            .effort = GS_EFFORT_LINE,
            .first = true,
            .certainty = GS_CERTAINTY_INFERRED,
            .refuted_by = "if the program keeps what that pass made on purpose"});
}
