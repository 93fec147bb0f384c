/* A sweep that keeps its models looks like one model too large: parameters, gradients and optimizer states of all
 * trials are alive. What tells them apart is time: a call path that builds or moves a module comes again after backward
 * passes, and its earlier blocks are still there. Modules that are built one after another before any training (teacher
 * and student, two networks of a GAN, a pipeline's models) belong to one trial. */
#include "analyzer/oom/oom_trials.h"
#include "analyzer/oom/oom_words.h"

#include "analyzer/base/units.h"
#include <stdlib.h>
#include <string.h>

static bool builds(struct gs_oom_trials *t, const struct gs_run *run, uint32_t stack)
{
    uint32_t *at = gs_map_at(&t->stacks, stack);
    if (*at == GS_MAP_NEW) {
        *at = gs_stack_in(run, stack, "/torch/nn/modules/module.py", "_apply") ||
              gs_stack_in(run, stack, "/torch/nn/modules/", "__init__") ||
              gs_stack_in(run, stack, "/torch/nn/parameter.py", NULL) ||
              gs_stack_in(run, stack, NULL, "from_pretrained");
    }
    return *at != 0;
}

void gs_oom_trials_start(struct gs_oom_trials *t)
{
    t->n = 0;
    t->trained = true;
}

void gs_oom_trials_alloc(struct gs_oom_trials *t, const struct gs_run *run, const struct gs_lifetime *life,
                         bool backward)
{
    if (life->layer != GS_LAYER_TENSOR || life->stack == GS_NONE) {
        return;
    }
    if (backward) {
        t->trained = true;
    } else if (t->trained && builds(t, run, life->stack)) {
        t->trained = false;
        *GS_PUSH(t->start_ns, t->n, t->cap) = life->alloc_ns;
    }
}

void gs_oom_trials_release(struct gs_oom_trials *t)
{
    free(t->start_ns);
    gs_map_free(&t->stacks);
}

/* The trial that a time belongs to, plus 1; 0: before the first. */
static size_t trial_at(const struct gs_oom_trials *t, int64_t ns)
{
    size_t low = 0, high = t->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->start_ns[middle] <= ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static void take(void *self, const struct gs_lifetime *life)
{
    struct gs_oom_held *h = self;
    size_t trial = trial_at(h->trials, life->alloc_ns);
    if (life->layer != GS_LAYER_TENSOR || life->device != h->device || !trial) {
        return;
    }
    bool model = life->stack != GS_NONE && builds(h->trials, h->run, life->stack);
    if (model) {
        uint32_t *first = gs_map_at(&h->models, life->location);
        h->held[trial - 1].bytes = gs_add(h->held[trial - 1].bytes, life->bytes);
        h->held[trial - 1].count++;
        if (*first == GS_MAP_NEW) {
            *first = (uint32_t)trial;
        }
        h->earlier.repeated = h->earlier.repeated || *first != trial;
    }
    if (trial == h->trials->n) {
        return;
    }
    h->earlier.bytes = gs_add(h->earlier.bytes, life->bytes);
    h->earlier.count++;
    h->earlier.model_bytes += model ? life->bytes : 0;
    if (model && life->bytes > h->earlier.largest) {
        h->earlier.largest = life->bytes;
        h->earlier.stack = life->stack;
    }
}

/* As a notebook's cells make it that were copied, or whose names count up: another line, the same blocks. */
static bool same_model(const struct gs_oom_trial *a, const struct gs_oom_trial *b)
{
    enum { LEAST = 4 };
    return a->count >= LEAST && a->count == b->count && a->bytes == b->bytes;
}

struct gs_oom_earlier gs_oom_trials_held(struct gs_oom_trials *t, const struct gs_run *run, int device)
{
    struct gs_oom_held h = {.trials = t, .run = run, .device = device, .earlier = {.stack = GS_NONE}};
    if (t->n < 2) {
        return h.earlier;
    }
    h.held = gs_realloc(NULL, t->n, sizeof *h.held);
    memset(h.held, 0, t->n * sizeof *h.held);
    gs_run_live(run, take, &h);
    for (size_t i = 0; i + 1 < t->n; i++) {
        h.earlier.trials += h.held[i].count > 0;
        h.earlier.repeated = h.earlier.repeated || same_model(&h.held[i], &h.held[i + 1]);
    }
    h.earlier.since_ns = t->start_ns[t->n - 1];
    free(h.held);
    gs_map_free(&h.models);
    return h.earlier;
}

/* --- in words ------------------------------------------------------------------------------------ */

#define TEXT(w, ...) gs_arena_printf((w)->b->arena, __VA_ARGS__)
#define SIZE(w, n) gs_bytes_text((w)->b, (double)(n))

bool gs_oom_keeps_trials(const struct gs_oom_facts *f)
{
    enum { TRIALS = 2 }; /* one may be a teacher that was trained first */
    const struct gs_oom_earlier *e = &f->trials;
    return e->repeated && e->trials >= TRIALS && e->bytes >= gs_oom_need(f) && e->bytes >= f->live / 4;
}

void gs_say_trials(struct gs_oom_words *w)
{
    const struct gs_oom_earlier *e = &w->f->trials;
    uint32_t number = gs_site_number(w->b, e->stack);
    w->v->growing = w->b->sites[number];
    const char *line = gs_site_line(w->b, &w->v->growing);
    char since[UNITS_TEXT];
    format_seconds(since, gs_seconds(e->since_ns));
    w->v->verdict = TEXT(w,
                         "a leak: the models of %zu earlier trials, made at %s, are still alive%s: %s of the "
                         "%s live was allocated before the current trial began at %s",
                         e->trials, gs_oom_place(w, e->stack),
                         e->bytes / 3 > e->model_bytes / 2 ? " with their gradients or optimizer states" : "",
                         SIZE(w, e->bytes), SIZE(w, w->f->live), since);
    gs_oom_measure(
        w->b, w->v,
        (struct gs_measure){
            .text = TEXT(w,
                         "%s: release the earlier models before the next trial: del model and optimizer, keep "
                         "numbers or model.cpu().state_dict() as the result (the line that keeps them is not "
                         "recorded: a list of results, a notebook's output, a kept exception)",
                         line),
            .frees_bytes = e->bytes,
            .enough = -1,
            .effort = GS_EFFORT_LINE,
            .first = true,
            .certainty = GS_CERTAINTY_INFERRED,
            .refuted_by = "if the current trial uses them"});
}
