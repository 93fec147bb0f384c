/* Where the host waited for the GPU, by line, and the cause of each wait.
 *
 * wait.h defines a wait, signature.def names its cause, and cadence.h counts how often it occurs: only waits in the
 * program's steps get advice.
 */
#include "analyzer/question/library.h"
#include "analyzer/base/sort.h"
#include "analyzer/site/source_context.h"
#include "analyzer/step/cadence.h"
#include "analyzer/question/wait.h"
#include "analyzer/question/question.h"

#include <stdlib.h>

static const double matters_share = 0.02, matters_s = 0.001;
enum {
    PAIR = 2,  /* numbers that one read can get together */
    MANY = 5,  /* small reads or copies, one after another at one line in a step */
    MASS = 30, /* of small copies of any kind: more than one step's batches need */
    FEW = 3,   /* a single call at the end of a program means nothing */
    LOOP = 10  /* calls that count as a loop if no steps are known */
};

struct wait {
    uint32_t stack, signature; /* the stack of its first call */
    uint8_t kind;
    bool back;   /* some copy from the GPU */
    bool beside; /* in a thread that the program started beside the one that makes the steps */
    uint64_t count;
    int64_t blocked_ns, bytes;
    uint64_t api_votes; /* for the most frequent entry point, in one pass */
    const char *api;
    struct step_cadence cadence;
};

struct question_syncs {
    struct site_builder *b;
    struct question_signer *signer;
    struct step_clock clock;
    ARENA_LIST(struct wait, waits);
    struct map index;
    struct question_waits *calls;
};

static struct wait *wait_at(struct question_syncs *s, uint32_t stack, unsigned kind, enum question_shape shape)
{
    uint32_t site = site_index(s->b, stack), signature = question_sign(s->signer, stack, shape);
    return MAP_ROW_IN(&s->index, (uint64_t)site << 32 | signature << 3 | kind, s->waits,
                      (struct wait){.stack = stack, .signature = signature, .kind = (uint8_t)kind});
}

/* A thread that writes results while the steps go on may wait. Those of nn.DataParallel make the steps. */
static bool is_beside_steps(const struct question_syncs *s, uint32_t process, uint32_t stack)
{
    static const char *const threads = "/threading.py", *const start = "_bootstrap";
    const struct step_list *steps = step_list_of(s->b, process);
    return steps && steps->stack != RUN_NONE && run_stack_is_in(s->b->run, stack, threads, start) &&
           !run_stack_is_in(s->b->run, steps->stack, threads, start) &&
           !run_stack_is_in(s->b->run, stack, "/torch/nn/parallel/", NULL);
}

static void syncs_on_wait(void *self, const struct question_wait *c)
{
    struct question_syncs *s = self;
    struct wait *w = wait_at(s, c->stack, c->kind, c->shape);
    const char *api = run_api_name(s->b->run, c->process, c->api);
    const bool known = run_is_known(c->start_ns), first = !w->count;
    w->back = w->back || c->shape == QUESTION_SHAPE_SCALAR || c->shape == QUESTION_SHAPE_READ;
    if (first) w->beside = is_beside_steps(s, c->process, c->stack);
    w->count += c->count;
    w->blocked_ns = arena_add_capped(w->blocked_ns, c->blocked_ns);
    w->bytes = arena_add_capped(w->bytes, c->bytes);
    if (w->api_votes == 0) w->api = api;
    w->api_votes += w->api == api ? 1 : -1;
    if (known || first) /* removed ones come last, and were before the steps */
        step_cadence_add(s->b, &s->clock, &w->cadence, c->process, known ? c->start_ns : 0, known ? c->blocked_ns : 0);
}

void question_syncs_add(struct question_syncs *s, const struct run_copy *copy, const struct run_sync *sync)
{
    question_waits_add(s->calls, copy, sync);
}

struct question_syncs *question_syncs_start(struct site_builder *b)
{
    struct question_syncs *s =
        ARENA_NEW(struct question_syncs, .b = b, .signer = question_signer_new(b->run, b->arena));
    s->calls = question_waits_new(b->run, s->signer, syncs_on_wait, s);
    return s;
}

/* Waits that matter come first: the duration of the others is not meaningful. */
SORT_ORDER(order_waits_by_time, struct result_sync_site,
           SORT_DOWN(x->matters, y->matters) ?: SORT_DOWN(x->blocked_s, y->blocked_s) ?: SORT_DOWN(x->count, y->count)
               ?: SORT_UP(x->site.line, y->site.line))

/* If no steps are known. PyTorch sets up and loads with waits of its own, so there a wait that occurred a few times, or
 * only at the beginning, means nothing; on a simulated GPU time means nothing. */
static bool long_enough(const struct site_builder *b, const struct wait *w, double share)
{
    double blocked = (double)w->blocked_ns / 1e9, run = (double)(run_duration(b->run) - run_kept_from(b->run));
    bool loop = w->count >= LOOP && (double)(w->cadence.last_ns - w->cadence.first_ns) >= 0.25 * run;
    return share >= matters_share && blocked >= matters_s && (!step_has_tensors(b) || (loop && !b->report->simulated));
}

/* Advice for each single call may become one piece of advice for all of a step. */
static const char *advise_wait(const struct wait *w, const struct result_pace *pace,
                               struct question_signature signature)
{
    const bool numbers = question_advice_joins(signature.advice);
    bool many = pace->calls_per_step >= (numbers ? PAIR : MANY) && pace->bunched;
    bool mass = (many && !numbers) || pace->calls_per_step >= MASS;
    bool up = signature.up && w->bytes <= (int64_t)w->count * QUESTION_WAIT_STAGED_BYTES;
    return mass && up ? question_advice_small_copies()
           : many     ? question_advice_many(signature.advice)
                      : signature.advice;
}

static struct result_sync_site describe_wait(struct question_syncs *s, const struct wait *w, double wall)
{
    const struct site_builder *b = s->b;
    struct question_signature signature = question_signature(s->signer, w->signature);
    const struct result_site at = site_of_call(b, w->stack);
    if (site_file_has(s->b, at.file, at.line, ".elapsed_time(")) signature = question_signature_of_timing(signature);
    signature.advice = question_advice_for_use(signature.advice, site_number_use(s->b, at.file, at.line));
    if (question_sign_makes_room(b->run, signature.name)) signature.advice = NULL;
    struct result_sync_site site = {.kind = w->kind,
                                    .count = w->count,
                                    .blocked_s = (double)w->blocked_ns / 1e9,
                                    .pattern = signature.name,
                                    .api = w->api ? w->api : "",
                                    .site = at};
    site.pace = step_pace(&w->cadence, &site.site);
    site.share = site.blocked_s / wall;
    site.matters = !(w->beside && w->back) && step_pace_matters(&site.pace, b->report->simulated, signature.by_count,
                                                                long_enough(b, w, site.share));
    const bool few = site.pace.phase == RESULT_PHASE_UNKNOWN && w->count < FEW;
    if (site.matters && !site.site.exit && !few) /* the end of a program needs no advice */
        site.advice =
            question_library_advice(b->run, w->stack, &site.site, advise_wait(w, &site.pace, signature), signature.up);
    return site;
}

/* A loop that copies to the GPU and reads nothing back, and of which nothing else is known, is loading. */
static void spare_loading(struct question_syncs *s, struct result_sync_site *sites)
{
    bool reads = !step_has_tensors(s->b); /* programs without PyTorch do load in a loop over the whole run */
    for (size_t i = 0; i < s->waits_n; i++) {
        reads = reads ||
                (sites[i].pace.phase == RESULT_PHASE_STEP && !question_signature(s->signer, s->waits[i].signature).up);
    }
    for (size_t i = 0; i < s->waits_n && !reads; i++) {
        if (sites[i].pace.loop) {
            sites[i].matters = false;
            sites[i].advice = NULL;
        }
    }
}

/* Modules that are moved to the GPU and never back are new ones each time, as the models of a sweep are. */
static void spare_new_modules(struct question_syncs *s, struct result_sync_site *sites)
{
    bool back = false;
    for (size_t i = 0; i < s->waits_n; i++) {
        const struct question_signature of = question_signature(s->signer, s->waits[i].signature);
        back = back || (of.advice == question_advice_move() && s->waits[i].back);
    }
    for (size_t i = 0; i < s->waits_n && !back; i++) {
        if (question_signature(s->signer, s->waits[i].signature).advice == question_advice_move()) {
            sites[i].matters = false;
            sites[i].advice = NULL;
        }
    }
}

static uint64_t wait_kind_of(const void *row)
{
    const struct result_sync_site *x = row;
    return (uintptr_t)(x->pattern ? x->pattern : x->api) ^ x->kind;
}

static void add_wait(void *into, const void *from)
{
    struct result_sync_site *to = into;
    const struct result_sync_site *x = from;
    to->count += x->count;
    to->blocked_s += x->blocked_s;
    to->share += x->share;
    to->matters = to->matters || x->matters;
    to->advice = to->advice ? to->advice : x->advice;
    site_add_pace(&to->pace, &x->pace);
}

SITE_LINE_PATH(wait_path_of, struct result_sync_site, .count = x->count, .blocked_s = x->blocked_s, .site = x->site)

static const struct site_line_form line_form =
    SITE_LINE_FORM(struct result_sync_site, site, .kind = wait_kind_of, .add = add_wait, .path = wait_path_of,
                   .order = order_waits_by_time);

void question_syncs_finish(struct question_syncs *s)
{
    struct result_report *report = s->b->report;
    question_waits_free(s->calls); /* which reports the last ones */
    struct result_sync_site *work = arena_realloc(NULL, s->waits_n, sizeof *work);
    double wall = site_wall_seconds(s->b);
    for (size_t i = 0; i < s->waits_n; i++) {
        work[i] = describe_wait(s, &s->waits[i], wall);
        report->sync_blocked_s += work[i].blocked_s;
    }
    report->sync_share = report->sync_blocked_s / wall;
    spare_loading(s, work);
    spare_new_modules(s, work);
    report->syncs =
        site_list(s->b, work, s->waits_n, sizeof *work, order_waits_by_time, &report->syncs_n, &report->syncs_total);
    report->sync_lines =
        site_lines_of(s->b, work, s->waits_n, &line_form, &report->sync_lines_n, &report->sync_lines_total);
    ARENA_RELEASE(work, s->waits);
    map_free(&s->index);
    question_signer_free(s->signer);
    free(s);
}
