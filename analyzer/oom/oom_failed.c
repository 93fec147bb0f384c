/* Passes that failed and whose memory is still live: a kept exception.
 *
 * A program that handles "out of memory" tries again with less. Until its except block ends, and as long as it keeps
 * the exception, the traceback keeps the frames of the failed pass alive, and with them its tensors.
 */
#include "analyzer/oom/oom_failed.h"
#include "analyzer/oom/oom_layout.h"
#include "analyzer/oom/oom_notebook.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/base/units.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/python_code.h"
#include "analyzer/site/source_context.h"

#include <string.h>

struct windows {
    const struct run *run;
    const struct oom_window *list;
    int device;
    struct oom_failed_pass failed;
    struct map counts; /* blocks by pass and call path */
};

static void take_failed_lifetime(void *self, const struct run_lifetime *life)
{
    struct windows *w = self;
    if (life->layer != GS_LAYER_TENSOR || life->device != w->device || life->stack == RUN_NONE) return;
    for (const struct oom_window *at = w->list; at; at = at->previous) {
        if (life->alloc_ns > at->from_ns && life->alloc_ns <= at->to_ns && oom_is_in_pass(w->run, life->stack)) {
            w->failed.bytes = arena_add_capped(w->failed.bytes, life->bytes);
            w->failed.count++;
            w->failed.first_ns = at->to_ns < w->failed.first_ns ? at->to_ns : w->failed.first_ns;
            w->failed.from_ns = at->from_ns < w->failed.from_ns ? at->from_ns : w->failed.from_ns;
            w->failed.to_ns = at->to_ns > w->failed.to_ns ? at->to_ns : w->failed.to_ns;
            if (life->bytes > w->failed.largest) {
                w->failed.largest = life->bytes;
                w->failed.stack = life->stack;
            }
            uint32_t *same = map_at(&w->counts, ((uintptr_t)at << 24) ^ life->stack);
            *same = *same == MAP_NEW ? 1 : *same + 1;
            w->failed.same = *same > w->failed.same ? *same : w->failed.same;
            return;
        }
    }
}

struct oom_failed_pass oom_failed_held(const struct run *run, const struct oom_window *list, int device)
{
    struct windows w = {.run = run,
                        .list = list,
                        .device = device,
                        .failed = {.first_ns = RUN_NEVER, .from_ns = RUN_NEVER, .stack = RUN_NONE}};
    if (list) run_each_live(run, take_failed_lifetime, &w);
    map_free(&w.counts);
    return w.failed;
}

/* More blocks of a call path than a model has layers are of many passes, which the program collects. */
bool oom_keeps_failed(const struct oom_facts *f)
{
    enum { LAYERS = 128 };
    const struct oom_failed_pass *p = &f->failed_pass;
    return p->same <= LAYERS && p->bytes >= oom_needed_bytes(f) && p->bytes >= f->live / 8;
}

/* except ImportError: catches no failed allocation. */
static bool may_catch(const char *code)
{
    static const char *const words[] = {"Memory", "RuntimeError", "Exception", "oom", "OOM"};
    bool may = strncmp(code, "except", 6) == 0 && !code[6];
    for (size_t i = 0; i < sizeof words / sizeof *words && !may; i++) may = strstr(code, words[i]) != NULL;
    return may;
}

uint32_t oom_failed_retry(struct site_builder *b, const struct oom_facts *f)
{
    const struct run_frame *frame;
    for (uint32_t stack = f->stack; (frame = run_stack_frame(b->run, stack)) != NULL;
         stack = run_stack_parent(b->run, stack)) {
        struct site_code code;
        size_t at;
        if (frame->kind != GS_FRAME_PYTHON || site_is_library(frame) || !site_open_source(b, frame, &code, &at))
            continue;
        for (size_t k = site_code_parent(&code, at); k < code.n && !site_code_begins(&code.list[k], "def");
             k = site_code_parent(&code, k))
            if (site_code_begins(&code.list[k], "except") && may_catch(code.list[k].code)) return stack;
    }
    return RUN_NONE;
}

void oom_explain_failed(struct oom_words *w)
{
    const struct oom_failed_pass *p = &w->f->failed_pass;
    const uint32_t retry = oom_failed_retry(w->b, w->f);
    const char *keeper = retry == RUN_NONE ? oom_notebook_session(w->b->run, w->f->stack) : NULL;
    const bool cell = keeper && oom_notebook_cell(w->b->run, w->f->stack);
    w->v->verdict = TEXT(w,
                         "a kept exception: %sits traceback keeps the tensors of the pass that ran out of memory at %s "
                         "alive: %s of the %s live, in %llu block%s, most from %s",
                         keeper ? TEXT(w, "%s keeps the last one that no code caught, and ", keeper) : "",
                         UNITS_SECONDS(site_seconds(p->first_ns)), SIZE(w, p->bytes), SIZE(w, w->f->live),
                         (unsigned long long)p->count, p->count == 1 ? "" : "s", oom_place_text(w, p->stack));
    w->v->holders_n = retry == RUN_NONE ? site_find_kept_errors(w->b, p->stack, &w->v->holders) : 0;
    const struct result_holder *h = w->v->holders_n ? w->v->holders : NULL;
    const char *text =
        h ? TEXT(w, "%s; %s", site_kept_text(w->b->arena, "", h, w->v->holders_n), h->instead)
        : retry != RUN_NONE
            ? TEXT(w, "%s tries again inside the except block: do so after it has ended (set a variable there)",
                   oom_place_text(w, retry))
        : keeper ? TEXT(w,
                        "before you try again, run %s `1/0`, which replaces that exception, then `import gc; "
                        "gc.collect()`%s",
                        cell ? "a cell with" : "the statement", cell ? " in another cell" : "")
                 : "try again after the except block has ended, not inside it, and do not store the exception (or "
                   "del it, or `traceback.clear_frames(e.__traceback__)`)";
    struct result_measure m = oom_line_measure(p->bytes, -1, RESULT_CERTAINTY_INFERRED,
                                               "if the program keeps the tensors of that pass on purpose", text);
    const struct oom_drop drop = {.from_ns = p->from_ns + 1, .before_ns = p->to_ns + 1, .in_pass = true};
    oom_layout_decide(w->b, w->f, &drop, "without the pass that failed", &m);
    oom_add_measure(w->b, w->v, m);
}
