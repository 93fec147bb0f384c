/* What tensors are for, and their sizes in a what-if that scales some of them. */
#include <math.h>
#include "analyzer/whatif/parts.h"

static struct category_finder *categorizer_of(struct whatif *w)
{
    if (!w->categorizer) w->categorizer = category_finder_new(w->run);
    return w->categorizer;
}

bool whatif_is_workspace(struct whatif *w, uint32_t stack)
{
    const unsigned rule = category_rule_of(categorizer_of(w), true, stack, RUN_NONE, true, 0);
    return category_of_rule(rule) == RESULT_CATEGORY_WORKSPACES;
}

bool whatif_is_of_step(struct whatif *w, uint32_t stack)
{
    const enum category_role role = category_role(categorizer_of(w), stack);
    if (stack == RUN_NONE) return category_has_python(w->run); /* then it is autograd's thread */
    return role == CATEGORY_ROLE_STEP || role == CATEGORY_ROLE_BACKWARD || role == CATEGORY_ROLE_THREAD ||
           whatif_is_workspace(w, stack);
}

enum result_category whatif_category(struct whatif *w, const struct run_lifetime *life)
{
    const bool kept = life->free_ns == RUN_NEVER;
    return category_of_rule(
        category_rule_of(categorizer_of(w), true, life->stack, run_free_stack(w->run, life), kept, 0));
}

static enum result_category category_of_tensor(const struct whatif *w, const struct run_lifetime *life,
                                               uint32_t process)
{
    const bool kept = life->free_ns > run_process_at(w->run, process)->last_alloc_ns;
    const unsigned use = category_uses_of(w->uses, process, life->stack, life->alloc_ns, life->free_ns);
    return category_of_rule(
        category_rule_of(w->categorizer, true, life->stack, run_free_stack(w->run, life), kept, use));
}

static void note_size(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct whatif *w = self;
    if (life->layer != GS_LAYER_TENSOR) return;
    const uint64_t bytes = (uint64_t)run_requested_or_block(life);
    switch (category_of_tensor(w, life, series->process)) {
    case RESULT_CATEGORY_PARAMETERS: *map_at(&w->parameters, bytes) = 1; break;
    case RESULT_CATEGORY_GRADIENTS:
        *map_at(&w->gradients, bytes) = 1;
        *map_at(&w->graders, life->stack) = 1;
        break;
    case RESULT_CATEGORY_ACTIVATIONS:
    case RESULT_CATEGORY_INPUTS: *map_at(&w->activations, bytes) = 1; break;
    default: break;
    }
}

/* A copy, an average or a sum of weights, in their precision, half of it or twice of it. Weights that belong to no
 * module are not known as parameters, but their gradients have their sizes. */
static bool has_size_of_parameter(const struct whatif *w, int64_t bytes)
{
    const struct map *sizes = w->parameters.n ? &w->parameters : &w->gradients;
    return map_get(sizes, (uint64_t)bytes) != MAP_NEW || map_get(sizes, (uint64_t)bytes * 2) != MAP_NEW ||
           (bytes % 2 == 0 && map_get(sizes, (uint64_t)bytes / 2) != MAP_NEW);
}

static bool is_in_backward(const struct whatif *w, const struct run_lifetime *life)
{
    const enum category_role role = category_role(w->categorizer, life->stack);
    return role == CATEGORY_ROLE_BACKWARD || role == CATEGORY_ROLE_THREAD;
}

static void note_varying(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    (void)series;
    struct whatif *w = self;
    if (life->layer != GS_LAYER_TENSOR || map_get(&w->graders, life->stack) != MAP_NEW) return;
    if (!has_size_of_parameter(w, run_requested_or_block(life))) *map_at(&w->varying, life->stack) = 1;
}

bool whatif_read_categories(struct whatif *w, char *error, size_t error_size)
{
    const struct run_observer sizes = {.self = w, .alloc = note_size}, varying = {.self = w, .alloc = note_varying};
    if (w->uses) return true;
    w->uses = category_uses_read(w->run, NULL, error, error_size);
    return w->uses && categorizer_of(w) && run_replay(w->run, &sizes, 1, error, error_size) &&
           run_replay(w->run, &varying, 1, error, error_size);
}

/* A call path that makes no gradients, and whose sizes are not all those of parameters, makes no weights. */
static bool is_like_parameter(const struct whatif *w, const struct run_lifetime *life)
{
    return has_size_of_parameter(w, run_requested_or_block(life)) && map_get(&w->varying, life->stack) == MAP_NEW;
}

/* Does the size of a tensor depend on the batch, as far as its category and call path show? */
static bool is_of_batch(const struct whatif *w, enum result_category category, const struct run_lifetime *life)
{
    const enum category_role role = category_role(w->categorizer, life->stack);
    if (role == CATEGORY_ROLE_STEP || role == CATEGORY_ROLE_SETUP) return false;
    switch (category) {
    case RESULT_CATEGORY_ACTIVATIONS:
    case RESULT_CATEGORY_INPUTS:
    case RESULT_CATEGORY_KV_CACHE: return true;
    case RESULT_CATEGORY_TEMPORARIES:
    case RESULT_CATEGORY_UNKNOWN: return !is_like_parameter(w, life);
    case RESULT_CATEGORY_GRADIENTS: /* of an activation, if only that has this size */
        return is_in_backward(w, life) && w->parameters.n && !has_size_of_parameter(w, run_requested_or_block(life)) &&
               map_get(&w->activations, (uint64_t)run_requested_or_block(life)) != MAP_NEW;
    default: return false;
    }
}

int64_t whatif_scaled(const struct whatif *w, const struct caching_rules *rules, const struct run_lifetime *life,
                      uint32_t process, const struct whatif_scale *scale)
{
    const enum result_category category = category_of_tensor(w, life, process);
    double factor = scale->of[category];
    if (scale->batch != 1 && is_of_batch(w, category, life)) factor *= scale->batch;
    if (factor == 1) return whatif_asked(rules, life);
    const double bytes = ceil((double)run_requested_or_block(life) * factor);
    return caching_rounded(rules, bytes < 1e18 ? (int64_t)bytes : (int64_t)1e18);
}
