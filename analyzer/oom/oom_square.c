/* Blocks that are larger than the program needs: by their statement, or because they have N × N elements, of an N that
 * another tensor has, outside of modules or in a loss.
 *
 * [N, 1] - [N] makes them by accident. A matrix of distances or a kernel makes them on purpose; then half as many
 * samples need a quarter, and gradients of two halves do not add up to that of the whole. */
#include "analyzer/oom/oom_square.h"

#include "analyzer/base/units.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_context.h"
#include "analyzer/site/source_pairs.h"

#include <math.h>
#include <string.h>

struct square {
    uint32_t stack;
    uint64_t side;
    int64_t bytes; /* of such blocks; 0: only the request is of that size */
};

static int64_t block_of(uint64_t elements, int64_t size)
{
    enum { ROUND = 512 }; /* PyTorch's allocator */
    return ((int64_t)elements * size + ROUND - 1) / ROUND * ROUND;
}

/* Is there a tensor of N numbers that is neither a parameter nor made for one? */
static bool has_vector(const struct oom_sight *s, uint64_t side)
{
    static const int64_t sizes[] = {4, 8, 2};
    EACH_IN (l, s->v->by_category.lines) {
        const bool data = l->category != RESULT_CATEGORY_PARAMETERS && l->category != RESULT_CATEGORY_GRADIENTS &&
                          l->category != RESULT_CATEGORY_OPTIMIZER_STATE && l->count;
        for (size_t i = 0; data && i < sizeof sizes / sizeof *sizes; i++)
            if (l->bytes / (int64_t)l->count == block_of(side, sizes[i])) return true;
    }
    return false;
}

/* The N of a block of N × N; 0 none. The allocator leaves up to 1 MiB of a segment unused; the size of the failed
 * request is exact. A power of two is the size of many batches, images and logits, and some vector has its root. */
static uint64_t square_side_of(const struct oom_sight *s, int64_t bytes)
{
    static const int64_t sizes[] = {4, 2, 8, 1};
    enum { REST = 1 << 20 };
    if (s->f->requested > 0 && s->f->requested < bytes && bytes - s->f->requested <= REST) bytes = s->f->requested;
    if (!(bytes & (bytes - 1))) return 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t side = (uint64_t)sqrt((double)bytes / (double)sizes[i]);
        for (; side && bytes - block_of(side * side, sizes[i]) <= REST; side--)
            if (has_vector(s, side)) return side;
    }
    return 0;
}

static bool may_be_square(const struct oom_sight *s, uint32_t stack, int64_t bytes)
{
    enum { LARGE = 16 }; /* of the device */
    const struct run *run = s->b->run;
    return stack != RUN_NONE && run_is_known(s->f->total) && bytes >= s->f->total / LARGE &&
           !run_stack_is_in(run, stack, "/torch/optim/", NULL) &&
           (!oom_is_in_pass(run, stack) || run_stack_is_in(run, stack, "/torch/nn/functional.py", "loss") ||
            run_stack_is_in(run, stack, "/torch/nn/modules/loss.py", NULL));
}

static bool find_square(const struct oom_sight *s, struct square *square)
{
    int64_t most = 0;
    *square = (struct square){.stack = s->f->stack};
    EACH_IN (l, s->v->by_category.lines) {
        const int64_t each = l->count ? l->bytes / (int64_t)l->count : 0;
        const uint64_t side = each >= most && may_be_square(s, l->stack, each) ? square_side_of(s, each) : 0;
        if (!side) continue;
        most = each;
        square->stack = l->stack;
        square->side = side;
    }
    EACH_IN (l, s->v->by_category.lines)
        if (most && l->count && l->bytes / (int64_t)l->count == most)
            square->bytes = arena_add_capped(square->bytes, l->bytes);
    if (!most && may_be_square(s, s->f->stack, s->f->requested)) square->side = square_side_of(s, s->f->requested);
    return square->side > 0;
}

static bool line_has(struct oom_words *w, uint32_t stack, const char *words)
{
    return site_statement_has(w->b, stack, words);
}

static bool function_has_one_of(struct oom_words *w, uint32_t stack, const char *const *words, size_t n)
{
    bool has = false;
    for (size_t i = 0; i < n && !has; i++) has = site_function_has(w->b, stack, words[i]);
    return has;
}

static bool is_about_attention(struct oom_words *w, uint32_t stack)
{
    static const char *const words[] = {"causal",      "Causal",     "attn",     "ttention", "softmax(",
                                        "masked_fill", "subsequent", "src_mask", "tgt_mask"};
    return function_has_one_of(w, stack, words, sizeof words / sizeof *words);
}

/* triu(ones(n, n)) of attention, or for the sums of all earlier elements. */
static const char *triangle_advice(struct oom_words *w, uint32_t stack)
{
    static const char *const products[] = {" @ ", "matmul(", ".mm(", "einsum("};
    const char *where = oom_place_text(w, stack);
    if (is_about_attention(w, stack))
        return TEXT(
            w,
            "%s creates a mask of length × length: pass `is_causal=True` to scaled_dot_product_attention instead, "
            "or create it for the lengths in use, as bool",
            where);
    if (function_has_one_of(w, stack, products, sizeof products / sizeof *products))
        return TEXT(w,
                    "%s creates length × length elements: if the product with them computes running sums, "
                    "`torch.cumsum()` computes the same without them",
                    where);
    return TEXT(w,
                "%s creates length × length elements: for a causal mask, pass `is_causal=True` to "
                "scaled_dot_product_attention instead; for sums of all earlier elements, call `torch.cumsum()`",
                where);
}

static bool makes_broadcast(struct oom_words *w, uint32_t stack)
{
    return site_line_makes(w->b, stack, SITE_SHAPE_ONE_SIDED) || site_line_makes(w->b, stack, SITE_SHAPE_PAIRS);
}

/* No other statement made a block that is nearly as large, unless by such a broadcast, too, or from its result, as the
 * one that failed did: an operand of the result's size would be live. */
static bool is_larger_than_operands(struct oom_words *w, uint32_t stack, int64_t bytes)
{
    enum { LARGER = 8 };
    const struct run *run = w->b->run;
    const uint32_t own = run_stack_python(run, stack), failed = run_stack_python(run, w->f->stack);
    EACH_IN (l, w->v->by_category.lines) {
        const uint32_t of = l->stack == RUN_NONE ? RUN_NONE : run_stack_python(run, l->stack);
        const bool other = of == RUN_NONE || (of != own && of != failed);
        if (other && l->count && l->bytes / (int64_t)l->count > bytes / LARGER && !makes_broadcast(w, l->stack))
            return false;
    }
    return true;
}

/* The operands of an earlier result may have been freed, unless the function that names them has not returned. */
static bool is_in_failing_function(struct oom_words *w, uint32_t stack)
{
    const struct run *run = w->b->run;
    const uint32_t of = run_stack_python(run, stack), failed = run_stack_python(run, w->f->stack);
    const struct run_frame *frame = run_stack_frame(run, of), *other = run_stack_frame(run, failed);
    return frame && other && run_stack_parent(run, of) == run_stack_parent(run, failed) && frame->file == other->file &&
           strcmp(frame->function, other->function) == 0;
}

static const char *broadcast_advice(struct oom_words *w, uint32_t stack, int64_t bytes)
{
    const bool masks = site_line_makes(w->b, stack, SITE_SHAPE_MASKS);
    if (masks && is_about_attention(w, stack))
        return TEXT(w,
                    "%s creates a mask of batch × length × length: pass `is_causal=True` if padding follows the "
                    "tokens; otherwise apply each mask where it is used (`masked_fill`), or use `flex_attention`",
                    oom_place_text(w, stack));
    if (masks || site_line_makes(w->b, stack, SITE_SHAPE_PAIRS) ||
        (is_in_failing_function(w, stack) && site_line_makes(w->b, stack, SITE_SHAPE_ONE_SIDED) &&
         is_larger_than_operands(w, stack, bytes)))
        return TEXT(w,
                    "%s stores each pair: compute it in blocks of rows, or without storing pairs (torch.cdist for "
                    "distances, @ for sums of products)",
                    oom_place_text(w, stack));
    return NULL;
}

/* A statement that only creates the matrix, or one that needs no more than its diagonal. NULL: neither. */
static const char *identity_advice(struct oom_words *w, uint32_t stack)
{
    static const char *const uses[] = {"+ torch.eye(", "- torch.eye(", "* torch.eye(", "masked_fill(torch.eye("};
    const bool makes = line_has(w, stack, "= torch.eye(") && !line_has(w, stack, ".repeat(");
    if (ANY_OF(u, uses, COUNT_OF(uses), line_has(w, stack, *u)))
        return TEXT(w,
                    "change the diagonal in place at %s (`x.fill_diagonal_(value)`, `x.diagonal().add_(value)`) unless "
                    "backward() needs the old one: torch.eye() creates a second matrix, and the result is a third",
                    oom_place_text(w, stack));
    return makes ? "a matrix with a row and a column for each node or sample is mostly zeros: keep only what is "
                   "not zero (`torch.sparse_coo_tensor`, an edge list)"
                 : NULL;
}

const char *oom_shape_advice(struct oom_words *w, uint32_t stack, int64_t bytes)
{
    if (stack == RUN_NONE) return NULL;
    const bool filled = line_has(w, stack, "(torch.ones(") || line_has(w, stack, "(torch.full(");
    if (site_line_makes(w->b, stack, SITE_SHAPE_EXPANSION))
        return TEXT(w,
                    "leave out `.contiguous()` or `.clone()` at %s, if nothing writes to the result: the result of "
                    "expand() takes no memory of its own",
                    oom_place_text(w, stack));
    if (site_line_makes(w->b, stack, SITE_SHAPE_REPETITION))
        return TEXT(
            w,
            "call `expand()` instead of `repeat()` at %s, if nothing writes to the result: it then takes no memory "
            "of its own",
            oom_place_text(w, stack));
    if (site_line_makes(w->b, stack, SITE_SHAPE_ONE_HOT))
        return TEXT(w,
                    "%s creates a row for each index, with one element per class: pass the indices instead "
                    "(cross_entropy, embedding and gather take them)",
                    oom_place_text(w, stack));
    if (run_stack_is_in(w->b->run, stack, "/torch/_functorch/vmap.py", NULL) &&
        run_stack_is_in(w->b->run, stack, "/torch/_functorch/eager_transforms.py",
                        NULL)) /* not an ensemble's outputs */
        return TEXT(w,
                    "`vmap()` at %s makes a result for each sample: pass fewer samples at once, and reduce their "
                    "results (sum, clip) before the next ones",
                    oom_place_text(w, stack));
    if (line_has(w, stack, "eye(")) return identity_advice(w, stack);
    if ((line_has(w, stack, "triu(") || line_has(w, stack, "tril(")) && filled) return triangle_advice(w, stack);
    return broadcast_advice(w, stack, bytes);
}

/* The largest blocks whose statement tells why they are so large, if the request is not much larger. */
static const char *find_shape(struct oom_words *w, struct square *large)
{
    enum { LARGE = 16, NEAR = 4 }; /* parts of the device, and of the request */
    const struct oom_facts *f = w->f;
    const char *found = NULL;
    int64_t most = 0;
    *large = (struct square){.stack = f->stack};
    EACH_IN (l, w->v->by_category.lines) {
        const int64_t each = l->count ? l->bytes / (int64_t)l->count : 0;
        const char *text = each > most && each >= f->requested / NEAR && each >= f->total / LARGE &&
                                   l->category != RESULT_CATEGORY_PARAMETERS
                               ? oom_shape_advice(w, l->stack, each)
                               : NULL;
        if (!text) continue;
        most = each;
        found = text;
        *large = (struct square){.stack = l->stack, .bytes = l->bytes};
    }
    return found ? found : f->requested >= f->total / LARGE ? oom_shape_advice(w, f->stack, f->requested) : NULL;
}

/* The loss, if none of the live blocks is larger than its copy of the logits, which its backward pass requests again,
 * and those of their size are much of the live memory because of them: not the activations of many layers. */
static uint32_t largest_of_loss(struct oom_words *w)
{
    enum { LARGE = 16, FEW = 4 }; /* parts of the device; blocks of that size */
    int64_t most = w->f->total / LARGE, loss = 0;
    uint64_t blocks = 0;
    uint32_t stack = RUN_NONE;
    EACH_IN (l, w->v->by_category.lines) {
        const int64_t each = l->count ? l->bytes / (int64_t)l->count : 0;
        if (l->category == RESULT_CATEGORY_PARAMETERS || each < most) continue;
        most = each;
        if (l->stack == RUN_NONE || !oom_is_in_loss(w->b->run, l->stack)) continue;
        loss = each;
        stack = l->stack;
    }
    EACH_IN (l, w->v->by_category.lines)
        if (l->count && l->category != RESULT_CATEGORY_PARAMETERS && l->bytes / (int64_t)l->count > most / 2)
            blocks += l->count;
    return loss == most && blocks <= FEW && w->f->requested > most / FEW ? stack : RUN_NONE;
}

uint32_t oom_shape_behind_backward(struct oom_words *w)
{
    enum { PART = 4 }; /* of the live memory: less does not explain the failure */
    struct square large;
    const bool backward = w->f->stack != RUN_NONE && run_is_known(w->f->total) &&
                          (run_stack_python(w->b->run, w->f->stack) == RUN_NONE ||
                           run_stack_is_in(w->b->run, w->f->stack, "/torch/autograd/__init__.py", NULL));
    if (!backward) return RUN_NONE;
    return find_shape(w, &large) && large.bytes >= w->f->live / PART ? large.stack : largest_of_loss(w);
}

/* A gradient with a row for each entry of an embedding table, of which a batch reads a few. */
static bool is_dense_rows(const struct run *run, uint32_t stack)
{
    return run_stack_enters(run, stack, "EmbeddingBackward") || run_stack_enters(run, stack, "EmbeddingBagBackward");
}

bool oom_dense_rows_measure(const struct oom_sight *s, struct result_measure *m)
{
    enum { PART = 2 }; /* of all gradients: those of a language model's other layers are most of its own */
    const bool fails = is_dense_rows(s->b->run, s->f->stack);
    int64_t rows = fails ? s->f->requested : 0, all = rows;
    EACH_IN (l, s->v->by_category.lines) {
        all = arena_add_capped(all, l->category == RESULT_CATEGORY_GRADIENTS ? l->bytes : 0);
        rows = arena_add_capped(rows, is_dense_rows(s->b->run, l->stack) ? l->bytes : 0);
    }
    *m = (struct result_measure){
        .text = "create the embedding tables with sparse=True, so that a gradient has only the rows that the batch "
                "reads, and train them with torch.optim.SparseAdam or SGD",
        .frees_bytes = rows,
        .enough = OOM_MEASURE_AT_MOST,
        .effort = OOM_EFFORT_TRAINING,
        .certainty = RESULT_CERTAINTY_INFERRED,
        .refuted_by = "if another layer shares the table's weight"};
    return rows >= s->f->total / 16 && rows > all / PART;
}

bool oom_square_measure(const struct oom_sight *s, struct result_measure *m)
{
    struct oom_words words = {.b = s->b, .f = s->f, .v = s->v};
    struct square square;
    char side[UNITS_TEXT];
    if (!find_square(s, &square)) {
        const char *text = find_shape(&words, &square);
        *m = (struct result_measure){.text = text,
                                     .frees_bytes = square.bytes ? square.bytes : RUN_UNKNOWN,
                                     .enough = OOM_MEASURE_AT_MOST,
                                     .effort = OOM_EFFORT_LINE,
                                     .first = true,
                                     .certainty = RESULT_CERTAINTY_GUESSED};
        return text != NULL;
    }
    units_format_count(side, square.side);
    *m =
        (struct result_measure){.text = TEXT(s,
                                             "check the shapes at %s, which creates %s × %s elements: make [N] and [N, "
                                             "1] equal if the broadcast is an accident; otherwise compute it in parts",
                                             oom_place_text(&words, square.stack), side, side),
                                .frees_bytes = square.bytes ? square.bytes : RUN_UNKNOWN,
                                .enough = OOM_MEASURE_AT_MOST,
                                .effort = OOM_EFFORT_LINE,
                                .first = true,
                                .certainty = RESULT_CERTAINTY_GUESSED};
    return true;
}

static bool is_join(struct site_builder *b, uint32_t stack)
{
    return run_stack_calls(b->run, stack, "_ops::cat") || site_statement_has(b, stack, "cat(");
}

/* Does the statement join a variable's value and more, and bind the result to its name? */
static bool joins_itself(const struct oom_sight *s, uint32_t stack)
{
    struct arena *arena = s->b->arena;
    struct site_code code;
    struct site_assignment a;
    struct site_names made = {.n = 0};
    size_t at;
    const char *join;
    if (!site_open_innermost(s->b, stack, &code, &at) || !site_assignment_of(arena, code.list[at].code, &a) ||
        !(join = strstr(a.value, "cat(")))
        return false;
    site_targets_of(arena, a.targets, &made, NULL);
    return site_holds(join, &made, false);
}

bool oom_joined_measure(const struct oom_sight *s, struct result_measure *m)
{
    const struct oom_facts *f = s->f;
    struct oom_words words = {.b = s->b, .f = f, .v = s->v};
    const struct result_category_line *most = NULL;
    if (s->trains && !s->evaluates && !s->phase_new) return false;
    EACH_IN (l, s->v->by_category.lines)
        if (l->count == 1 && l->stack != RUN_NONE && (!most || l->bytes > most->bytes) && is_join(s->b, l->stack))
            most = l;
    if (!most || most->bytes < s->need || most->bytes < f->live / 4) return false;
    const struct oom_holder *library = oom_holder_of(s->b->run, most->stack);
    struct result_holder *holders;
    const size_t n = library ? 0 : site_find_holders(s->b, most->stack, false, &holders);
    if (!library && (oom_is_in_pass(s->b->run, most->stack) || !joins_itself(s, most->stack) ||
                     (n && site_is_read_beside(s->b, holders)))) /* the context of a decoder */
        return false;
    *m = (struct result_measure){
        .text = library ? library->advice
                        : TEXT(s,
                               "%s joins the results of all batches: store each on the host (`.cpu()`) and join them "
                               "there",
                               oom_place_text(&words, most->stack)),
        .frees_bytes = most->bytes,
        .enough = OOM_MEASURE_FITS,
        .effort = OOM_EFFORT_LINE,
        .first = true,
        .certainty = RESULT_CERTAINTY_INFERRED,
        .refuted_by = "if a later step reads it on the GPU"};
    return true;
}
