/* Is an autograd graph kept, and is it still needed?
 *
 * Lines of several modules that grow together do not prove a graph: a list of hidden states grows likewise. The
 * evidence for a graph:
 *
 *   freed   backward passes freed earlier blocks of the same call paths: autograd held those
 *   input   the batch, which the loop makes outside of all modules, stays live together with the memory that the
 *           modules allocated: autograd saves it for the gradient of the first layer. Much of the memory between input
 *           and output stays live, too; a program that collects both (a replay buffer) keeps none of that
 *
 * A graph that grew since the last backward pass is not a leak yet: a backward pass still needs it. It is a leak if the
 * program evaluates: earlier backward passes followed other lines, or the names of its functions show it.
 */
#include "analyzer/oom/oom_graph.h"
#include "analyzer/base/each.h"
#include "analyzer/site/site.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_input.h"
#include "analyzer/site/source_loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/sort.h"
#include "schema/source_file.h"

/* In a backward pass, by its Python frames; a thread without Python frames that allocates tensors is autograd's. */
enum { OUTSIDE, BY_BACKWARD, BY_GRAD }; /* torch.autograd.grad(), whose result may itself become part of the graph */
static uint32_t find_pass(struct oom_passes *p, const struct run *run, uint32_t stack)
{
    static const char *const file = "/torch/autograd/__init__.py";
    uint32_t *at = map_at(&p->stacks, stack);
    if (*at == MAP_NEW) {
        const bool backward = run_stack_is_in(run, stack, file, "backward"),
                   grad = run_stack_is_in(run, stack, file, "grad") && !backward;
        const bool in = run_stack_python(run, stack) == RUN_NONE || backward || grad ||
                        run_stack_is_in(run, stack, NULL, "_engine_run_backward");
        *at = !in ? OUTSIDE : grad ? BY_GRAD : BY_BACKWARD;
    }
    return *at;
}

void oom_passes_start(struct oom_passes *p)
{
    p->backward_ns = p->before_ns = p->grad_ns = p->newest_ns = RUN_UNKNOWN;
    p->outside = p->in_grad = false;
}

static void note_backward(struct oom_passes *p, int64_t ns)
{
    p->before_ns = p->outside ? p->backward_ns : p->before_ns;
    p->outside = false;
    p->backward_ns = ns;
}

int64_t oom_passes_ended(struct oom_passes *p, const struct run *run, uint32_t stack)
{
    const bool in_backward = stack != RUN_NONE && !p->outside && find_pass(p, run, stack) == BY_BACKWARD;
    return in_backward ? p->before_ns : p->backward_ns;
}

bool oom_passes_add_alloc(struct oom_passes *p, const struct run *run, const struct run_lifetime *life)
{
    const bool tensor = life->layer == GS_LAYER_TENSOR;
    const uint32_t pass = tensor && life->stack != RUN_NONE ? find_pass(p, run, life->stack) : OUTSIDE;
    if (pass == BY_BACKWARD) note_backward(p, life->alloc_ns);
    if (pass == BY_GRAD) p->grad_ns = life->alloc_ns;
    p->in_grad = tensor && pass != OUTSIDE ? pass == BY_GRAD : p->in_grad && !tensor;
    p->outside = p->outside || (tensor && pass == OUTSIDE);
    *SITE_REACH(p->made, life->location, p->made_cap) += tensor ? life->bytes : 0;
    if (tensor) p->newest_ns = life->alloc_ns;
    return pass;
}

/* Freed before anything else was allocated: a workspace of one operation, as cuBLAS has in some versions of PyTorch. */
static void take_back_workspace(struct oom_passes *p, const struct run_lifetime *life)
{
    if (life->alloc_ns == p->newest_ns && life->location < p->made_cap) p->made[life->location] -= life->bytes;
}

/* grad(create_graph=True) frees nothing of the graph, only what it allocated itself. Otherwise grad() ends the graph,
 * or the part of it that it passed: no later backward pass can follow it. */
void oom_passes_add_free(struct oom_passes *p, const struct run *run, const struct run_lifetime *life)
{
    if (life->layer != GS_LAYER_TENSOR || life->stack == RUN_NONE) return;
    take_back_workspace(p, life);
    const uint32_t stack = run_free_stack(run, life);
    const uint32_t pass = stack == RUN_NONE ? OUTSIDE : find_pass(p, run, stack);
    const bool own = find_pass(p, run, life->stack) != OUTSIDE;
    const bool silent = stack == RUN_NONE && p->in_grad; /* by autograd's own thread */
    const bool ended = pass == BY_BACKWARD || ((pass == BY_GRAD || silent) && !own);
    if (ended && !silent) ++*SITE_REACH(p->freed, life->location, p->freed_cap);
    if (stack == RUN_NONE && !own) *SITE_REACH(p->silent_ns, life->location, p->silent_cap) = life->free_ns;
    if (ended) note_backward(p, life->free_ns);
}

void oom_passes_release(struct oom_passes *p)
{
    map_free(&p->stacks);
    ARENA_RELEASE(p->freed, p->silent_ns, p->made);
}

static bool function_has(const struct run *run, uint32_t stack, const char *const *parts, size_t n)
{
    RUN_EACH_FRAME (frame, run, stack) {
        for (size_t i = 0; frame->kind == GS_FRAME_PYTHON && frame->function && i < n; i++)
            if (strstr(frame->function, parts[i])) return true;
    }
    return false;
}

/* Does the call path begin in a script? Of a notebook it contains only one cell. */
static bool is_script(const struct run *run, uint32_t stack)
{
    const struct run_frame *outermost = NULL;
    RUN_EACH_FRAME (frame, run, stack)
        outermost = frame->kind == GS_FRAME_PYTHON && !site_is_library(frame) ? frame : outermost;
    const char *end = outermost && outermost->file ? strrchr(outermost->file, '.') : NULL;
    return end && strcmp(end, ".py") == 0 && !gs_source_is_cell(outermost->file) && outermost->function &&
           strcmp(outermost->function, "<module>") == 0;
}

bool oom_never_trains(struct site_builder *b, uint32_t stack)
{
    /* those of an evaluation come last: a whole script that trains also has one of the others */
    static const char *const words[] = {"backward", ".grad(", "import grad", "optim", "fit(",
                                        "fit_",     "train(", "Trainer",     "loss",  "criterion"};
    enum { WORDS = sizeof words / sizeof *words, EVALUATES = 2 };
    return site_source_lacks(b, stack, words, is_script(b->run, stack) ? WORDS - EVALUATES : WORDS);
}

/* Below a function whose name shows that no backward pass follows, or below @torch.no_grad(). If the program computes a
 * loss from the results, they may be those of a contrastive one. */
static bool is_evaluation(struct site_builder *b, uint32_t stack, enum site_loss loss)
{
    const struct run *run = b->run;
    static const char *const names[] = {"eval", "valid",  "infer", "predict", "generate",
                                        "test", "encode", "embed", "extract"};
    enum { NAMES = sizeof names / sizeof *names, ALSO_TRAINING = 3 };
    return run_stack_is_in(run, stack, "/torch/utils/_contextlib.py", NULL) ||
           function_has(run, stack, names, loss == SITE_LOSS_YES ? NAMES - ALSO_TRAINING : NAMES) ||
           oom_never_trains(b, stack);
}

/* Once for nearly each time, or the same small number of blocks for each: x, y = x.cuda(), y.cuda(). */
static bool occurs_each_time(uint64_t count, double times)
{
    enum { LEAST = 3, INPUTS = 4 };
    static const double nearly = 0.8;
    bool is = (double)count >= nearly * times && (double)count <= times / nearly + 2;
    for (unsigned each = 2; each <= INPUTS && !is; each++)
        is = count % each == 0 && fabs((double)(count / each) - times) <= 1;
    return is && count >= LEAST;
}

/* What is known of a line that freed its blocks after each pass. */
struct freed {
    int64_t each, last_ns; /* each: bytes of a block */
    uint64_t times;
};

SORT_ORDER(order_freed_by_size, struct freed, SORT_DOWN(x->each, y->each) ?: SORT_DOWN(x->times, y->times))

/* The lines that copy to the GPU, outside of passes, what is freed soon. One that is smaller, rarer and older than
 * another is left out. */
static struct freed *list_freed(struct site_builder *b, const struct oom_live *live, size_t n, size_t *listed)
{
    struct freed *list = arena_zeroed(n + 1, sizeof *list);
    size_t found = 0;
    EACH (o, live, n) {
        const uint32_t stack = run_location(b->run, o->location)->stack;
        if (o->count <= 2 && stack != RUN_NONE && !oom_is_in_pass(b->run, stack) && site_enters_device(b, stack))
            list[found++] = (struct freed){o->bytes / (int64_t)o->count, o->last_ns, o->times};
    }
    SORT(list, found, order_freed_by_size);
    *listed = 0;
    for (size_t i = 0; i < found; i++) {
        bool more = true;
        for (size_t k = 0; k < *listed && more; k++)
            more = list[i].times > list[k].times || list[i].last_ns > list[k].last_ns;
        if (more) list[(*listed)++] = list[i];
    }
    return list;
}

/* Was a larger block of the same batch freed after each pass, as images are whose labels the program keeps? What came
 * after the pass, which ended at pass_ns, is of the loss: (x == y).float(). */
static bool larger_freed(const struct freed *freed, size_t n, const struct oom_live *l, int64_t pass_ns)
{
    enum { LARGER = 4 };
    const int64_t each = l->bytes / (int64_t)l->count, others = (int64_t)(l->times - l->count);
    if (l->made && others > 0 && (l->made - l->bytes) / others > LARGER * each) return true; /* copied at one line */
    for (size_t i = 0; i < n && freed[i].each > LARGER * each; i++)
        if (freed[i].times >= l->count && freed[i].last_ns >= l->middle_ns &&
            (l->last_ns > pass_ns || freed[i].last_ns < pass_ns))
            return true;
    return false;
}

/* Is there a block for nearly each time, made outside of passes and during the growth, unlike parameters? The first one
 * is made before its pass, unless passes take over results: others are made from what the pass returned. Many lines
 * inside modules show that, too. */
static bool input_kept(struct site_builder *b, const struct oom_live *live, size_t n, const struct oom_facts *f)
{
    enum { LINES = 4 };
    const bool any = f->growing_sites >= LINES;
    const double times =
        (double)f->growing_passes; /* less if a buffer, or a part of a pass, grows with its own rhythm */
    const double steps = f->growth && f->growth->by_steps ? (double)f->growth->steps : times;
    size_t freed_n;
    struct freed *freed = list_freed(b, live, n, &freed_n);
    bool is = false;
    int64_t pass_ns = 0; /* when the latest pass that keeps blocks made one */
    for (const struct oom_live *l = live; l < live + n; l++)
        if (l->count > LINES && l->last_ns > pass_ns &&
            oom_is_in_pass(b->run, run_location(b->run, l->location)->stack))
            pass_ns = l->last_ns;
    for (const struct oom_live *l = live; !is && l < live + n; l++) {
        uint32_t stack = run_location(b->run, l->location)->stack;
        bool meanwhile = l->last_ns >= f->growing_middle_ns && (any || l->first_ns <= f->heaviest_first_ns);
        const bool each = occurs_each_time(l->count, times) || occurs_each_time(l->count, steps);
        is = meanwhile && each && stack != RUN_NONE && !oom_is_in_pass(b->run, stack) &&
             !larger_freed(freed, freed_n, l, pass_ns);
    }
    free(freed);
    return is;
}

/* The call of the outermost module in a stack; RUN_NONE: none, or in a backward pass. */
static uint32_t model_call(const struct run *run, uint32_t stack)
{
    uint32_t call = RUN_NONE;
    RUN_EACH_FRAME (frame, run, stack) {
        const char *name = frame->kind == GS_FRAME_PYTHON ? frame->function : NULL;
        if (name && strstr(name, "_engine_run_backward")) return RUN_NONE;
        call = name && strstr(name, "_call_impl") ? stack : call;
    }
    return call;
}

static const double of_graph = 0.25; /* of the memory that a pass allocates, at least */

/* A graph keeps much of the memory that the model's call allocated; outputs that the program keeps are the smallest
 * part: a half and a fifth for two linear layers and their activations. If that call is unknown, nothing contradicts a
 * graph. */
static bool inner_kept(const struct site_builder *b, const struct oom_passes *p, const struct oom_live *live, size_t n,
                       const struct oom_facts *f)
{
    uint32_t call = model_call(b->run, f->growing_stack);
    int64_t kept = 0, made = 0;
    for (size_t i = 0; call != RUN_NONE && i < n; i++)
        kept += model_call(b->run, run_location(b->run, live[i].location)->stack) == call ? live[i].bytes : 0;
    for (size_t i = 0; call != RUN_NONE && i < run_location_count(b->run) && i < p->made_cap; i++)
        made += p->made[i] && model_call(b->run, run_location(b->run, (uint32_t)i)->stack) == call ? p->made[i] : 0;
    return (double)kept >= of_graph * (double)made;
}

/* No backward pass has ever ended a graph, and no statement of the program does: it computes gradients by
 * grad(create_graph=True) alone. The inner steps of meta-learning, which a later pass needs, are fewer. */
static bool only_grads(struct site_builder *b, const struct oom_facts *f)
{
    enum { STEPS = 16 };
    return f->backward_ns == RUN_UNKNOWN && f->grad_ns != RUN_UNKNOWN && f->grad_ns > f->growing_middle_ns &&
           f->growing_passes >= STEPS && site_source_ends_no_graph(b, f->growing_stack);
}

/* Does the program compute a loss from what the statements store that keep the results of the passes? */
static enum site_loss loss_of_stored(struct site_builder *b, const struct oom_facts *f)
{
    struct result_holder *holders;
    const size_t n = site_find_holders(b, f->growing_stack, true, &holders);
    enum site_loss loss = n ? SITE_LOSS_NO : SITE_LOSS_UNKNOWN;
    for (size_t i = 0; i < n && loss != SITE_LOSS_YES; i++) {
        const enum site_loss one =
            holders[i].carried ? SITE_LOSS_UNKNOWN : site_holder_loss(b, f->growing_stack, &holders[i]);
        loss = one == SITE_LOSS_NO ? loss : one;
    }
    return loss;
}

/* net(x) after net.eval(), in a program whose files compute no gradient. */
static bool only_evaluates(struct site_builder *b, const struct oom_facts *f)
{
    static const char *const words[] = {"backward",  ".grad(",  " grad(",  "(grad(",   "fit(",
                                        "jacobian(", "jacrev(", "jacfwd(", "hessian(", "vjp("};
    return f->backward_ns == RUN_UNKNOWN && site_calls_evaluated(b, site_pass_caller(b->run, f->growing_stack)) &&
           site_source_lacks(b, f->growing_stack, words, sizeof words / sizeof *words);
}

/* A number that a module or a loss made at the same line of the program, at the end of each pass, and that was never
 * freed: it is what the program keeps, although it is too small to be called growth. */
static const struct result_growth *ending_in_number(struct site_builder *b, const struct oom_live *live, size_t n,
                                                    const struct oom_facts *f)
{
    const struct result_growth *g = f->growth;
    const struct oom_live *last = NULL;
    for (size_t i = 0; i < n && !question_is_number(g->newest_bytes); i++)
        if (run_location(b->run, live[i].location)->stack == g->newest_stack) last = &live[i];
    for (const struct oom_live *l = live; last && l < live + n; l++) {
        const uint32_t stack = run_location(b->run, l->location)->stack;
        if (stack == RUN_NONE || l->times != l->count || !question_is_number(l->bytes / (int64_t)l->count) ||
            l->first_ns <= last->first_ns || l->last_ns <= last->middle_ns ||
            site_index(b, stack) != site_index(b, g->newest_stack) ||
            !run_stack_is_in(b->run, stack, "/torch/nn/", NULL) ||
            !occurs_each_time(l->count, (double)f->growing_passes))
            continue;
        struct result_growth *ends = arena_alloc(b->arena, sizeof *ends);
        *ends = *g;
        ends->newest = site_of_call(b, stack);
        ends->newest_bytes = l->bytes / (int64_t)l->count;
        ends->newest_stack = stack;
        ends->newest_count = l->count;
        return ends;
    }
    return g;
}

/* The line that called the pass whose result the program computes with at this place: of the lines of the same call of
 * a function that call passes, the last one before it. RUN_NONE: it calls none. */
static uint32_t pass_before(const struct oom_passes *p, const struct run *run, uint32_t place)
{
    const struct run_frame *at = run_stack_frame(run, place);
    int line = 0;
    uint32_t found = RUN_NONE;
    for (uint32_t i = 0; at && i < run_location_count(run) && i < p->made_cap; i++) {
        const uint32_t stack = p->made[i] ? run_location(run, i)->stack : RUN_NONE,
                       caller = stack == RUN_NONE ? RUN_NONE : site_pass_caller(run, stack);
        const struct run_frame *frame = caller == RUN_NONE ? NULL : run_stack_frame(run, caller);
        if (!frame || frame->line > at->line || frame->line < line ||
            run_stack_parent(run, caller) != run_stack_parent(run, place))
            continue;
        line = frame->line;
        found = caller;
    }
    return found;
}

/* The line that called the pass whose memory a graph keeps most of, in the same call of a function as this place. */
static uint32_t pass_kept_by(const struct run *run, const struct oom_live *live, size_t n, uint32_t place)
{
    const uint32_t within = run_stack_parent(run, place);
    struct map kept = {0}; /* caller → MiB */
    uint32_t found = RUN_NONE, most = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t stack = run_location(run, live[i].location)->stack,
                       caller = stack == RUN_NONE ? RUN_NONE : site_pass_caller(run, stack);
        if (caller == RUN_NONE || run_stack_parent(run, caller) != within) continue;
        uint32_t *bytes = map_at(&kept, caller);
        *bytes = (*bytes == MAP_NEW ? 0 : *bytes) + (uint32_t)(live[i].bytes >> 20);
        if (*bytes > most) {
            most = *bytes;
            found = caller;
        }
    }
    map_free(&kept);
    return found;
}

/* A backward pass has freed blocks of the call path, perhaps on autograd's own thread. */
static bool is_pass_ended(const struct oom_passes *p, uint32_t location)
{
    return (location < p->freed_cap && p->freed[location]) || (location < p->silent_cap && p->silent_ns[location]);
}

/* A loss that the program keeps after backward() has lost its graph: backward() freed it, and little of its pass is
 * live. Then the graph is that of another pass, and its result is what the program keeps. */
static const struct result_growth *ending_in_other(struct site_builder *b, const struct oom_passes *p,
                                                   const struct oom_live *live, size_t n, const struct oom_facts *f)
{
    const struct result_growth *g = f->growth;
    const uint32_t place = run_stack_python(b->run, g->newest_stack), own = site_pass_caller(b->run, f->growing_stack);
    const uint32_t other = question_is_number(g->newest_bytes) && place != RUN_NONE && own != RUN_NONE
                               ? pass_before(p, b->run, place)
                               : RUN_NONE;
    int64_t kept = 0, made = 0;
    if (other == RUN_NONE || other == own) return g;
    for (size_t i = 0; i < n; i++)
        kept += site_pass_caller(b->run, run_location(b->run, live[i].location)->stack) == other ? live[i].bytes : 0;
    bool ended = false;
    for (uint32_t i = 0; i < run_location_count(b->run) && i < p->made_cap; i++) {
        if (!p->made[i] || site_pass_caller(b->run, run_location(b->run, i)->stack) != other) continue;
        made += p->made[i];
        ended = ended || is_pass_ended(p, i);
    }
    if (!ended || (double)kept >= of_graph * (double)made) return g;
    struct result_growth *ends = arena_alloc(b->arena, sizeof *ends);
    *ends = *g;
    ends->newest = site_of_call(b, own);
    return ends;
}

/* Did a backward pass free what the line of the pass made when it was called from elsewhere? */
static bool is_trained_elsewhere(const struct oom_passes *p, const struct run *run, uint32_t own)
{
    const struct run_frame *caller = run_stack_frame(run, own);
    for (uint32_t i = 0; i < run_location_count(run); i++) {
        const uint32_t stack = is_pass_ended(p, i) ? run_location(run, i)->stack : RUN_NONE,
                       pass = stack == RUN_NONE ? RUN_NONE : site_pass_caller(run, stack);
        const struct run_frame *frame = pass == RUN_NONE ? NULL : run_stack_frame(run, pass);
        if (frame && pass != own && frame->file == caller->file && frame->line == caller->line) return true;
    }
    return false;
}

/* The program goes on training, no backward pass has freed any of these graphs, and none will: no loss is computed from
 * what the program keeps of them. */
static bool outlives_training(struct site_builder *b, const struct oom_passes *p, const struct oom_facts *f)
{
    static const char *const words[] = {"retain_graph", "create_graph", ".grad(", " grad("};
    const uint32_t pass = site_pass_caller(b->run, f->growing_stack);
    return f->graph == OOM_GRAPH_INFERRED && f->backward_ns != RUN_UNKNOWN && f->backward_ns > f->growing_middle_ns &&
           !f->growing_freed && pass != RUN_NONE && !is_trained_elsewhere(p, b->run, pass) &&
           site_source_lacks(b, f->growing_stack, words, COUNT_OF(words)) && loss_of_stored(b, f) == SITE_LOSS_NO;
}

void oom_graph_judge(struct site_builder *b, const struct oom_passes *p, const struct oom_live *live, size_t n,
                     struct oom_facts *f)
{
    f->graph = OOM_GRAPH_NONE;
    f->pending = false;
    f->evaluates = !f->growth && f->growing_kept > f->growing / 2 && f->backward_ns != RUN_UNKNOWN &&
                   !site_is_without_gradients(b, f->growing_stack) && input_kept(b, live, n, f) &&
                   inner_kept(b, p, live, n, f);
    const bool copies = run_stack_is_in(b->run, f->growing_stack, "/copy.py", "deepcopy") ||
                        (f->growth && run_stack_is_in(b->run, f->growth->newest_stack, "/copy.py", "deepcopy"));
    if (!f->growth || copies || f->replaced || !f->growth->newest.known || f->growing_in_pass < f->growing / 4 ||
        site_is_without_gradients(b, f->growing_stack))
        return;
    bool freed = f->growing_freed >= f->growing_in_pass / 2,
         input = input_kept(b, live, n, f) && inner_kept(b, p, live, n, f);
    if (!f->growth->graph && !freed && !input) return;
    bool since = f->backward_ns == RUN_UNKNOWN || f->backward_ns < f->growing_first_ns;
    const bool steps = f->grad_ns != RUN_UNKNOWN && f->grad_ns > f->growing_middle_ns &&
                       site_is_before_backward(b, f->growing_stack); /* of meta-learning, all on the same batch */
    f->graph = freed || input || (since && steps) ? OOM_GRAPH_INFERRED : OOM_GRAPH_UNKNOWN;
    f->graph_freed = freed;
    if (f->graph == OOM_GRAPH_INFERRED) {
        f->growth = ending_in_number(b, live, n, f);
        f->growth = ending_in_other(b, p, live, n, f);
        const uint32_t place = run_stack_python(b->run, f->growth->newest_stack);
        if (place != RUN_NONE && site_pass_caller(b->run, f->growing_stack) == RUN_NONE)
            f->pass = pass_kept_by(b->run, live, n, place);
    }
    const enum site_loss loss = since && f->graph == OOM_GRAPH_INFERRED ? loss_of_stored(b, f) : SITE_LOSS_UNKNOWN;
    const bool states = is_evaluation(b, f->growing_stack, loss);
    bool evaluates = states || (f->backward_ns != RUN_UNKNOWN && !freed && loss != SITE_LOSS_YES) ||
                     (f->graph == OOM_GRAPH_UNKNOWN && only_evaluates(b, f));
    f->pending = since && f->graph == OOM_GRAPH_INFERRED && !evaluates && !only_grads(b, f);
    if (f->pending && (loss == SITE_LOSS_NO || site_untrained_call(b, f->growing_stack) != RUN_NONE)) {
        f->pending = false;
        evaluates = true;
    }
    f->evaluates = (since ? evaluates : outlives_training(b, p, f)) &&
                   !site_statement_has(b, f->growing_stack, "vjp(") &&
                   !site_statement_has(b, f->growing_stack, "linearize(");
}
