#include "analyzer/estimate/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/caching/caching.h"
#include "analyzer/estimate/optimizer.h"

#define MOST_BYTES ((int64_t)1 << 46)
enum { STEPS = 3, SAVED = 6, PARTS = 3, STATES = 3, LETS_GO = 4, NOTHING = 0 };

struct tensor {
    uint32_t block, refs;
    double bytes;
};

struct parameter {
    double elements;
    uint32_t weight, gradient, states[STATES];
    bool old; /* its gradient is from an earlier micro-batch */
};

struct node {
    uint32_t out, gradient, parts[PARTS]; /* tensors, from 1 */
    uint32_t saved[SAVED];                /* what backward needs */
    uint32_t saved_n, readers;
    uint32_t outside;      /* readers that are not in its checkpointed layer */
    uint32_t inputs[3];    /* tensors from outside of a checkpointed layer, which are kept for it */
    uint32_t held, kept;   /* outputs that the script holds: of the last pass, of this one */
    uint32_t cast;         /* a block */
    uint32_t parameter[2]; /* from 1 */
};

struct pass {
    const struct plan *p;
    struct estimate_replay_list list;
    struct node *nodes;
    struct parameter *parameters;
    struct tensor *tensors;
    size_t parameters_n, tensors_n, tensors_cap;
    uint32_t spare;          /* the first tensor that may be unused */
    double weight, gradient; /* bytes of an element of what is trained */

    struct caching_allocator *allocator;
    double largest; /* request, bytes */
    double most;    /* bytes allocated at once, since it was set */
    double saved, first, second;
    double capacity, taken; /* bytes that the driver has, and those of segments */
    double workspace;
    bool forward_has, backward_has; /* whether it has a workspace */
    uint64_t address;
    bool trains;  /* false: inference, without a backward pass */
    bool keeps;   /* autograd keeps tensors; not in forward of a checkpointed layer, which keeps only its input */
    size_t again; /* the first operation of the layer that is computed again; SIZE_MAX: none */
    bool refused; /* a request found no memory, even after cached segments were freed */
    bool stepped; /* since the last micro-batch */
};

static bool give_segment(void *self, int64_t bytes, int64_t page, uint64_t *address)
{
    struct pass *c = self;

    if (c->taken + (double)bytes > c->capacity) return false;
    c->taken += (double)bytes;
    if (page) return true;
    *address = c->address;
    c->address += (uint64_t)bytes;
    return true;
}

static void take_segment_back(void *self, uint64_t address, int64_t bytes, int64_t page)
{
    struct pass *c = self;

    c->taken -= (double)bytes;
}

static uint64_t reserve_addresses(void *self, int64_t bytes)
{
    struct pass *c = self;

    c->address += (uint64_t)bytes;
    return c->address - (uint64_t)bytes;
}

static struct caching_allocator *new_allocator(struct pass *c)
{
    const struct caching_driver driver = {c, give_segment, take_segment_back, reserve_addresses};
    struct caching_rules rules = caching_default_rules;

    rules.expandable = c->p->expandable;
    rules.device_bytes = MOST_BYTES; /* so that one segment has room for all requests */
    return caching_allocator_new(&rules, &driver);
}

static double allocated_bytes(const struct pass *c)
{
    return (double)caching_totals(c->allocator)->allocated;
}

static uint32_t take_block(struct pass *c, double bytes)
{
    uint32_t block;

    if (!(bytes >= 1) || bytes > 1e18) return CACHING_NO_BLOCK;
    if (c->refused) return CACHING_NO_BLOCK; /* only that it does not fit is used */
    c->largest = fmax(c->largest, bytes);
    block = caching_allocate(c->allocator, caching_rounded(&caching_default_rules, (int64_t)ceil(bytes)), 0, 0);
    c->refused = c->refused || block == CACHING_NO_BLOCK;
    c->most = fmax(c->most, allocated_bytes(c));
    return block;
}

static void return_block(struct pass *c, uint32_t *block)
{
    if (*block != CACHING_NO_BLOCK) caching_release(c->allocator, *block);
    *block = CACHING_NO_BLOCK;
}

static void for_a_moment(struct pass *c, double bytes)
{
    uint32_t block = take_block(c, bytes);

    return_block(c, &block);
}

static uint32_t make_tensor(struct pass *c, double bytes)
{
    uint32_t i = c->spare;

    while (i < c->tensors_n && c->tensors[i].refs) i++;
    if (i == c->tensors_n && c->tensors_n++ == c->tensors_cap) {
        c->tensors_cap *= 2;
        c->tensors = arena_realloc(c->tensors, c->tensors_cap, sizeof *c->tensors);
    }
    c->spare = i + 1;
    c->tensors[i] = (struct tensor){take_block(c, bytes), 1, bytes};
    return i;
}

static void release_tensor(struct pass *c, uint32_t tensor)
{
    struct tensor *t = &c->tensors[tensor];

    if (!tensor || !t->refs || --t->refs) return;
    return_block(c, &t->block);
    c->spare = tensor < c->spare ? tensor : c->spare;
}

static void save_for_backward(struct pass *c, struct node *node, uint32_t tensor)
{
    if (!tensor || node->saved_n == SAVED || !c->keeps) return;
    c->tensors[tensor].refs++;
    node->saved[node->saved_n++] = tensor;
}

static void save_own(struct pass *c, struct node *node, double bytes)
{
    if (!c->keeps)
        for_a_moment(c, bytes);
    else if (bytes >= 1 && node->saved_n < SAVED)
        node->saved[node->saved_n++] = make_tensor(c, bytes);
}

/* Calls `use` for each operation whose output operation `i` reads. */
static void each_input(struct pass *c, size_t i, uint32_t gradient, void (*use)(struct pass *, uint32_t from, uint32_t))
{
    const struct estimate_replay_op *op = &c->list.ops[i];

    if (op->from) use(c, op->from, gradient);
    for (size_t k = 0; k < 2 && !(op->flags & REPLAY_JOINS); k++)
        if (op->others[k]) use(c, op->others[k], gradient);
    while (op->flags & REPLAY_JOINS && op->others[0]) {
        op = &c->list.ops[op->others[0] - 1];
        if (op->from) use(c, op->from, gradient);
    }
}

static void count_reader(struct pass *c, uint32_t from, uint32_t reader)
{
    c->nodes[from - 1].readers++;
    if (c->list.ops[from - 1].checkpoint != c->list.ops[reader].checkpoint) c->nodes[from - 1].outside++;
}

static void has_read(struct pass *c, uint32_t from, uint32_t gradient)
{
    if (c->again == SIZE_MAX || from > c->again) release_tensor(c, c->nodes[from - 1].out);
}

static void save_inputs(struct pass *c, size_t i, uint32_t in)
{
    const struct estimate_replay_op *op = &c->list.ops[i];
    struct node *node = &c->nodes[i];

    if (op->flags & REPLAY_IN_PLACE && op->flags & REPLAY_KEEPS_INPUT)
        save_own(c, node, op->bytes);
    else if (op->flags & REPLAY_KEEPS_INPUT)
        save_for_backward(c, node, in);
    for (size_t k = 0; k < 2 && op->flags & REPLAY_KEEPS_OTHERS; k++)
        if (op->others[k]) save_for_backward(c, node, c->nodes[op->others[k] - 1].out);
}

/* Takes the workspace at the first matrix product of a thread. */
static void take_workspace(struct pass *c, size_t i, bool *taken)
{
    if (*taken || !(c->list.ops[i].flags & REPLAY_PRODUCT)) return;
    take_block(c, c->workspace);
    *taken = true;
}

static void replay_forward(struct pass *c, size_t i, uint32_t input)
{
    const struct estimate_replay_op *op = &c->list.ops[i];
    struct node *node = &c->nodes[i];
    uint32_t in = op->from ? c->nodes[op->from - 1].out : input;

    if (op->cast > 0 && node->cast == CACHING_NO_BLOCK) node->cast = take_block(c, op->cast);
    save_inputs(c, i, in);
    if (op->flags & REPLAY_MASKS) save_own(c, node, op->extra);
    if (op->flags & (REPLAY_IN_PLACE | REPLAY_PARTS))
        c->tensors[node->out = in].refs++;
    else
        node->out = make_tensor(c, op->bytes);
    for_a_moment(c, op->passing);
    c->tensors[node->out].refs += node->readers;
    if (op->flags & REPLAY_KEEPS_OUTPUT) save_for_backward(c, node, node->out);
    if (!(op->flags & REPLAY_MASKS)) save_own(c, node, op->extra);
    if (op->flags & REPLAY_HELD) c->tensors[node->kept = node->out].refs++;
    release_tensor(c, node->out);                                       /* the readers hold it */
    if (!c->keeps && !node->parameter[0]) return_block(c, &node->cast); /* autocast caches copies of trained weights */
    if (c->again == SIZE_MAX) take_workspace(c, i, &c->forward_has);
    for (uint32_t k = 0; k < node->outside && c->again != SIZE_MAX; k++) release_tensor(c, node->out);
    each_input(c, i, NOTHING, has_read);
    for (size_t k = 0; k < LETS_GO; k++)
        if (op->lets_go[k]) has_read(c, op->lets_go[k], NOTHING);
}

static bool ends_checkpoint(const struct pass *c, size_t i)
{
    return c->list.ops[i].checkpoint &&
           (i + 1 == c->list.n || c->list.ops[i + 1].checkpoint != c->list.ops[i].checkpoint);
}

static size_t checkpoint_begin(const struct pass *c, size_t i)
{
    while (i > 0 && c->list.ops[i - 1].checkpoint == c->list.ops[i].checkpoint) i--;
    return i;
}

/* Keeps what a checkpointed layer reads from outside: torch.utils.checkpoint holds all arguments until it runs the
 * layer again. */
static void keep_inputs(struct pass *c, size_t i)
{
    const struct estimate_replay_op *op = &c->list.ops[i];
    const uint32_t from[] = {op->from, op->others[0], op->others[1]};

    if (!op->checkpoint || !c->trains) return;
    for (size_t k = 0; k < 3; k++)
        if (from[k] && c->list.ops[from[k] - 1].checkpoint != op->checkpoint)
            c->tensors[c->nodes[i].inputs[k] = c->nodes[from[k] - 1].out].refs++;
}

/* Forward. A checkpointed layer keeps only its input. */
static void forward_all(struct pass *c, uint32_t input)
{
    for (size_t i = 0; i < c->list.n; i++) {
        c->keeps = c->trains && !c->list.ops[i].checkpoint;
        keep_inputs(c, i);
        replay_forward(c, i, input);
    }
    c->keeps = true;
    for (size_t i = 0; i < c->list.n; i++) /* autocast ends and frees the copies that are not saved */
        if (c->list.ops[i].checkpoint) return_block(c, &c->nodes[i].cast);
}

/* A checkpointed layer is computed again before its backward. */
static void compute_again(struct pass *c, size_t end)
{
    c->again = checkpoint_begin(c, end);
    for (size_t i = c->again; i <= end; i++) replay_forward(c, i, NOTHING);
    for (size_t i = c->again; i <= end; i++)
        for (size_t k = 0; k < 3; k++) {
            release_tensor(c, c->nodes[i].inputs[k]);
            c->nodes[i].inputs[k] = NOTHING;
        }
    c->again = SIZE_MAX;
}

static void add_gradient_part(struct pass *c, struct node *node, uint32_t gradient)
{
    for (size_t k = 0; k < PARTS; k++)
        if (!node->parts[k]) {
            c->tensors[node->parts[k] = gradient].refs++;
            return;
        }
}

/* Passes a gradient to the operation that made the tensor, which adds it to a gradient that it already has. */
static void deliver_gradient(struct pass *c, uint32_t to, uint32_t gradient)
{
    struct node *node = &c->nodes[to - 1];
    double bytes = c->list.ops[to - 1].bytes;
    uint32_t sum;

    if (c->list.ops[to - 1].flags & REPLAY_NO_GRADIENT) return;
    if (c->list.ops[to - 1].flags & REPLAY_PARTS) {
        add_gradient_part(c, node, gradient);
        return;
    }
    if (!node->gradient) {
        c->tensors[node->gradient = gradient].refs++;
        return;
    }
    if (c->tensors[node->gradient].refs == 1 && c->tensors[node->gradient].bytes <= bytes) return; /* in place */
    sum = make_tensor(c, bytes);
    release_tensor(c, node->gradient);
    node->gradient = sum;
}

/* Bytes of a state per element of its parameter. GaLore's states have the shape of the projected gradient, which a
 * parameter of the replay does not state: the average over the model. */
static double state_element(const struct plan *p, double weight)
{
    double states = 0, elements = 0;

    if (p->optimizer->form != OPTIMIZER_GALORE) return weight;
    EACH_IN (t, p->model->tensors) {
        const double rows = (double)t->rows, cols = (double)t->cols, count = (double)t->count;
        states += count * estimate_optimizer_tensor(p->optimizer, t, rows, cols, weight, p->rank).likely;
        elements += count * rows * cols;
    }
    return states / fmax(1, p->optimizer->copies * elements);
}

/* Adagrad makes its states in its constructor, the others in their first step. */
static void make_states(struct pass *c, struct parameter *one)
{
    const struct estimate_optimizer *o = c->p->optimizer;
    const double element = state_element(c->p, c->weight);

    for (unsigned i = 0; i < o->copies && i < STATES; i++)
        if (one->states[i] == CACHING_NO_BLOCK) one->states[i] = take_block(c, one->elements * element);
    if (o->fixed_32nds && one->states[STATES - 1] == CACHING_NO_BLOCK)
        one->states[STATES - 1] = take_block(c, one->elements * o->fixed_32nds / 32);
}

/* The optimizer's step in backward, for a parameter whose gradient is complete. */
static void step_at_once(struct pass *c, struct parameter *one)
{
    make_states(c, one);
    for (unsigned i = 0; i < c->p->optimizer->loop; i++) for_a_moment(c, one->elements * c->weight);
    return_block(c, &one->gradient);
}

/* Autograd passes on the first gradient and adds a later one: a tied weight's out of place, unless autocast's cast made
 * the first a tensor of its own. */
static void of_parameters(struct pass *c, size_t i)
{
    const struct estimate_replay_op *op = &c->list.ops[i];
    struct node *node = &c->nodes[i];
    double element = c->gradient;
    bool in_place = c->p->precision->cast == PRECISION_CAST_AUTOCAST;

    for (size_t k = 0; k < 2; k++) {
        struct parameter *one = &c->parameters[node->parameter[k]];
        if (!node->parameter[k]) continue;
        uint32_t narrow = k == 0 && op->cast > 0 ? take_block(c, op->cast) : CACHING_NO_BLOCK;
        uint32_t made = take_block(c, one->elements * element), sum;
        if (k == 1) for_a_moment(c, op->sums);
        return_block(c, &narrow);
        if (k == 0) return_block(c, &node->cast);
        if (one->gradient != CACHING_NO_BLOCK && (in_place || one->old)) {
            return_block(c, &made);
            made = one->gradient;
        } else if (one->gradient != CACHING_NO_BLOCK) {
            sum = take_block(c, one->elements * element);
            return_block(c, &one->gradient);
            return_block(c, &made);
            made = sum;
        }
        one->gradient = made;
        if (c->p->step == PLAN_STEP_IN_BACKWARD && !op->again) step_at_once(c, one);
    }
}

static uint32_t joined_parts(struct pass *c, size_t i)
{
    struct node *node = &c->nodes[i];
    uint32_t whole = make_tensor(c, c->list.ops[i].bytes);

    for (size_t k = 0; k < PARTS; k++) {
        release_tensor(c, node->parts[k]);
        node->parts[k] = NOTHING;
    }
    return whole;
}

/* Bytes of the gradient of an input; of a part of it if the input is divided among readers. */
static double gradient_bytes(const struct pass *c, const struct estimate_replay_op *op, uint32_t to)
{
    const struct estimate_replay_op *made = &c->list.ops[to - 1];

    return made->flags & REPLAY_PARTS && op->others[0] ? op->bytes : made->bytes;
}

/* All gradients of an operation are made before they are passed on. In a product without a bias, the weight's comes
 * first. */
static void of_inputs(struct pass *c, size_t i)
{
    const struct estimate_replay_op *op = &c->list.ops[i];
    const uint32_t to[] = {op->from, op->others[0], op->others[1]};
    bool weight_first = op->flags & REPLAY_PRODUCT && !(op->parameters[1] > 0);
    uint32_t made[3] = {NOTHING}, first = take_block(c, op->chain), second = take_block(c, op->chain);

    return_block(c, &first);
    if (weight_first) of_parameters(c, i);
    for (size_t k = 0; k < 3; k++)
        if (to[k] && !(c->list.ops[to[k] - 1].flags & REPLAY_NO_GRADIENT))
            made[k] = make_tensor(c, gradient_bytes(c, op, to[k]));
    return_block(c, &second);
    for_a_moment(c, op->work);
    if (!weight_first) of_parameters(c, i);
    for (size_t k = 0; k < 3; k++)
        if (made[k]) {
            deliver_gradient(c, to[k], made[k]);
            release_tensor(c, made[k]);
        }
}

static void replay_backward(struct pass *c, size_t i)
{
    const struct estimate_replay_op *op = &c->list.ops[i];
    struct node *node = &c->nodes[i];

    if (op->flags & REPLAY_NO_GRADIENT) return;
    if (op->flags & REPLAY_PARTS) node->gradient = joined_parts(c, i);
    uint32_t gradient = node->gradient;
    if (op->flags & (REPLAY_PASSES_ON | REPLAY_PARTS))
        each_input(c, i, gradient, deliver_gradient);
    else
        of_inputs(c, i);
    while (node->saved_n) release_tensor(c, node->saved[--node->saved_n]);
    if (!node->parameter[0]) return_block(c, &node->cast);
    node->gradient = NOTHING;
    release_tensor(c, gradient);
}

static void replay_load(struct pass *c)
{
    for (size_t i = 0; i < c->list.n; i++) take_block(c, c->list.ops[i].stored);
    for (size_t i = 1; i < c->parameters_n; i++) {
        struct parameter *one = &c->parameters[i];
        one->gradient = CACHING_NO_BLOCK;
        one->old = false;
        for (size_t k = 0; k < STATES; k++) one->states[k] = CACHING_NO_BLOCK;
        one->weight = take_block(c, one->elements * c->weight);
    }
    for (size_t i = 1; i < c->parameters_n && strcmp(c->p->optimizer->name, "adagrad") == 0; i++)
        make_states(c, &c->parameters[i]);
}

static void free_gradients(struct pass *c)
{
    for (size_t i = 1; i < c->parameters_n; i++) return_block(c, &c->parameters[i].gradient);
}

static void replay_step(struct pass *c)
{
    const struct estimate_optimizer *o = c->p->optimizer;
    bool at_once = c->p->step == PLAN_STEP_FOREACH && (o->steps == STEPS_TORCH || o->steps == STEPS_FUSED);
    size_t n = c->parameters_n - 1, copies = at_once ? o->foreach : 0;
    uint32_t *blocks = arena_realloc(NULL, copies * n + 1, sizeof *blocks);

    for (size_t i = 1; i <= n; i++) make_states(c, &c->parameters[i]);
    for (size_t i = 0; i < copies * n; i++) blocks[i] = take_block(c, c->parameters[1 + i % n].elements * c->weight);
    for (size_t i = 0; i < copies * n; i++) return_block(c, &blocks[i]);
    free(blocks);
    c->stepped = true;
    if (c->p->zeroes_gradients || c->p->late_zero_grad) return;
    free_gradients(c);
    for (size_t i = 1; i <= n; i++) c->parameters[i].old = false;
}

/* A micro-batch forward and backward. */
static void run_micro_batch(struct pass *c, uint32_t *input)
{
    const double base = allocated_bytes(c);
    uint32_t before = *input;
    size_t n = c->list.n;

    c->most = 0;
    *input = make_tensor(c, c->list.input);
    release_tensor(c, before);
    forward_all(c, *input);
    c->saved = allocated_bytes(c) - base;
    for (size_t k = 0; k < n; k++) {
        release_tensor(c, c->nodes[k].held);
        c->nodes[k].held = c->nodes[k].kept;
        c->nodes[k].kept = NOTHING;
    }
    if (c->stepped && c->p->late_zero_grad && !c->p->zeroes_gradients) free_gradients(c);
    c->stepped = false;
    if (!c->nodes[n - 1].gradient) c->nodes[n - 1].gradient = make_tensor(c, c->list.ops[n - 1].bytes);
    for (size_t k = n; k-- > 0;) {
        if (ends_checkpoint(c, k) && !(c->list.ops[k].flags & REPLAY_NO_GRADIENT)) compute_again(c, k);
        take_workspace(c, k, &c->backward_has);
        replay_backward(c, k);
        if (k == n / 2) {
            c->first = fmax(c->first, c->most - base);
            c->most = 0;
        }
    }
    double second = c->most - base;
    for (size_t i = 1; i < c->parameters_n; i++) {
        struct parameter *one = &c->parameters[i];
        if (!one->old && one->gradient != CACHING_NO_BLOCK) second -= one->elements * c->gradient;
        one->old = one->gradient != CACHING_NO_BLOCK;
    }
    c->second = fmax(c->second, second);
}

/* The operations for sequences of another length. */
static void list_operations(const struct plan *p, struct estimate_replay_list *list)
{
    const enum model_family family = p->model->shape.family;

    (family == MODEL_CONV       ? estimate_replay_conv
     : family == MODEL_DENOISER ? estimate_replay_denoiser
                                : estimate_replay_layers)(p, list);
}

/* Sequences in a random order, of lengths that are spread evenly: of n of them, ln n are longer than all before, and
 * each of these leaves on average 1/e of what the one before lacked of the longest. For each, the allocator reserves
 * larger segments while the old ones stay cached. Between them come shorter ones, multiples of the golden ratio. */
static uint64_t length_of(const struct plan *p, unsigned micro_batch)
{
    const unsigned record = micro_batch / 2 + 1;
    const double most = record < p->varying_lengths ? 1 - exp(-(double)record) : 1,
                 turn = micro_batch * 0.6180339887498949;

    return (uint64_t)fmax(1, ceil((micro_batch % 2 ? most * (turn - floor(turn)) : most) * (double)p->seq));
}

static void change_length(struct pass *c, unsigned micro_batch)
{
    struct plan one = *c->p;

    one.seq = length_of(c->p, micro_batch);
    c->list.n = 0;
    list_operations(&one, &c->list);
}

static void replay_varying(struct pass *c)
{
    const unsigned each = c->p->accumulation < 4 ? (unsigned)c->p->accumulation : 4;
    uint32_t input = NOTHING;

    replay_load(c);
    for (unsigned i = 0; i < 2 * c->p->varying_lengths; i++) {
        change_length(c, i);
        run_micro_batch(c, &input);
        if (i % each == each - 1) replay_step(c);
    }
}

/* With more than two micro-batches, the later ones are like the second. */
static void replay_training(struct pass *c)
{
    uint32_t input = NOTHING;

    replay_load(c);
    for (int i = 0; i < STEPS; i++) {
        c->first = c->second = 0;
        run_micro_batch(c, &input);
        if (c->p->accumulation > 1) run_micro_batch(c, &input);
        replay_step(c);
    }
}

static void prepare_pass(struct pass *c)
{
    c->nodes = arena_realloc(NULL, c->list.n, sizeof *c->nodes);
    c->parameters = arena_realloc(NULL, 2 * c->list.n + 1, sizeof *c->parameters);
    memset(c->nodes, 0, c->list.n * sizeof *c->nodes);
    c->parameters_n = c->tensors_n = c->spare = 1; /* 0: none */
    c->tensors_cap = 1024;
    c->tensors = arena_realloc(NULL, c->tensors_cap, sizeof *c->tensors);
    c->tensors[0] = (struct tensor){.block = CACHING_NO_BLOCK};
    for (size_t i = 0; i < c->list.n; i++) {
        const struct estimate_replay_op *op = &c->list.ops[i];
        c->nodes[i].cast = CACHING_NO_BLOCK;
        for (size_t k = 0; k < 2; k++)
            if (op->parameters[k] > 0) {
                c->parameters[c->parameters_n].elements = op->parameters[k];
                c->nodes[i].parameter[k] = (uint32_t)c->parameters_n++;
            }
        if (op->again) c->nodes[i].parameter[0] = c->nodes[op->again - 1].parameter[0];
        each_input(c, i, (uint32_t)i, count_reader);
        for (size_t k = 0; k < LETS_GO; k++)
            if (op->lets_go[k]) count_reader(c, op->lets_go[k], (uint32_t)i);
    }
}

static void end_pass(struct pass *c)
{
    caching_allocator_free(c->allocator);
    free(c->nodes);
    free(c->parameters);
    free(c->tensors);
}

bool estimate_replay(const struct plan *p, double capacity, double workspace, bool converts,
                     struct estimate_replay_peaks *out)
{
    struct pass c = {.p = p,
                     .capacity = capacity,
                     .workspace = workspace,
                     .address = (uint64_t)1 << 40,
                     .again = SIZE_MAX,
                     .trains = true};
    const bool float32 = p->adapter != PLAN_ADAPTER_NONE && !p->half_adapters; /* as peft makes adapters */
    const enum model_family family = p->model->shape.family;
    const bool varying = p->varying_lengths > 0 && p->seq && family != MODEL_DENOISER && family != MODEL_CONV;

    c.list.converts = converts;
    c.weight = float32 ? 4 : p->precision->weights;
    c.gradient = float32 ? 4 : p->precision->gradients;
    list_operations(p, &c.list);
    bool known = c.list.n > 0;
    if (known) {
        c.allocator = new_allocator(&c);
        prepare_pass(&c);
        (varying ? replay_varying : replay_training)(&c);
        const struct caching_totals *t = caching_totals(c.allocator);
        *out = (struct estimate_replay_peaks){
            (double)t->peak_allocated, (double)t->peak_reserved, c.largest, c.saved, c.first, c.second, !c.refused};
        end_pass(&c);
    }
    free(c.list.ops);
    return known;
}

double estimate_replay_forward(const struct plan *p)
{
    struct pass c = {.p = p, .capacity = INFINITY, .address = (uint64_t)1 << 40, .again = SIZE_MAX};
    double most = 0;

    if (p->model->shape.family == MODEL_DENOISER) estimate_replay_denoiser(p, &c.list);
    if (c.list.n) {
        c.allocator = new_allocator(&c);
        prepare_pass(&c);
        forward_all(&c, make_tensor(&c, c.list.input));
        most = c.most;
        end_pass(&c);
    }
    free(c.list.ops);
    return most;
}
