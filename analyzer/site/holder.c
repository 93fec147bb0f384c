#include "analyzer/site/holder.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/site/holder_read.h"
#include "analyzer/site/source_context.h"

enum { FRAMES_MAX = 64, BUDGET = 300000 };

static const char view_advice[] =
    "store `.detach().cpu()` or `.detach().clone()` instead: a slice keeps the whole tensor alive";

/* The first statement on the line of the call, `x = f(); y = g(x)`: any of them may have called. */
static size_t first_on_line(const struct site_search *s)
{
    const struct site_statement *list = s->code.list, *at = &list[s->at];
    size_t i = s->at;
    while (i > s->from && list[i - 1].line == at->line && list[i - 1].indent == at->indent) i--;
    return i;
}

/* obj(…), obj.method(…) in a statement: the attributes of the object that the callee has set. */
static void take_attributes(struct site_search *s, const char *code)
{
    for (const char *p = code; *p;) {
        size_t n = site_name_length(p);
        if (n && p[n] == '(') {
            for (size_t i = 0; i < s->attributes.n; i++) {
                const char *attribute = strchr(s->attributes.list[i], '.'), *whole = p;
                size_t object = n;
                const char *name = arena_printf(s->scratch, "%.*s%s", (int)object, whole, attribute);
                site_names_add(s->scratch, &s->names, name, strlen(name));
                while (object && p[object] != '.') object--;
                name = object ? arena_printf(s->scratch, "%.*s%s", (int)object, whole, attribute) : "";
                site_names_add(s->scratch, &s->names, name, strlen(name));
            }
        }
        p += n ? n : 1;
    }
}

/* opt, Trainer(net, opt), opt.state_dict(): an object that refers to one of s->objects; opt.param_groups[0][""] is a
 * number. */
static bool refers_to_object(struct site_search *s, const char *value)
{
    const size_t n = site_name_length(value);
    const char *dot = n ? memrchr(value, '.', n) : NULL, *last = dot ? dot + 1 : value;
    if (value[n] == '(' && n) {
        return (isupper((unsigned char)*last) || strstr(value, ".state_dict()")) &&
               site_holds(value + n, &s->objects, false);
    }
    const char *name = arena_printf(s->scratch, "%.*s", (int)n, value);
    return !value[n] ? site_names_has(&s->objects, name) : !dot && site_holds(value, &s->objects, false);
}

/* optimizer.step(): the object may keep what the call allocates. */
static void take_object(struct site_search *s, const char *code)
{
    const size_t n = site_name_length(code);
    struct site_assignment a;
    if (n && code[n] == '(' && !site_assignment_of(s->scratch, code, &a)) {
        const char *base = site_base_name(s->scratch, code);
        if (*base && strcmp(base, "self") != 0 && strcmp(base, "super") != 0)
            site_names_add(s->scratch, &s->objects, base, strlen(base));
    }
}

/* self.optimizers.append(self.opt) in another method of the class. */
static void read_other_methods(struct site_search *s)
{
    size_t class = s->module ? s->code.n : site_code_parent(&s->code, s->from - 1);
    const struct site_names objects = s->objects;
    struct site_store store;
    for (size_t i = class; i < s->code.n && i < site_code_end(&s->code, class) && s->budget-- > 0; i++) {
        if ((i >= s->from && i < s->to) || !site_store_of(s->scratch, s->code.list[i].code, &store) || store.weak ||
            strncmp(store.into, "self.", 5) != 0)
            continue;
        for (size_t k = 0; k < objects.n; k++) {
            const struct site_names one = {.list = {objects.list[k]}, .n = 1};
            if (strncmp(one.list[0], "self.", 5) == 0 && site_holds(store.value, &one, s->graph))
                site_add_candidate(&s->found, (struct site_candidate){.frame = s->frame,
                                                                      .code = s->code,
                                                                      .at = i,
                                                                      .why = "it stores the object whose method "
                                                                             "allocates"});
        }
    }
}

/* cudaMalloc(byref(p), n): p refers to what the call allocates, also in a header: `if cudaMalloc(…): raise`. */
static void take_out_arguments(struct site_search *s)
{
    static const char call[] = "byref(";
    const struct site_statement *list = s->code.list;
    for (size_t i = s->at + 1; i-- > s->from && list[i].line == list[s->at].line;)
        for (const char *p = strstr(list[i].code, call); p; p = strstr(p + 1, call))
            site_names_add(s->scratch, &s->names, p + strlen(call), site_name_length(p + strlen(call)));
}

/* opt = Adam(w), schedule = StepLR(opt, 9), schedules.append(schedule): follows the objects, considers what stores one.
 */
static void read_object_statement(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code;
    struct site_store store;
    struct site_assignment a;
    struct site_names made = {.n = 0}, indexed = {.n = 0};
    if (site_assignment_of(s->scratch, code, &a)) {
        if (!refers_to_object(s, a.value)) return;
        site_targets_of(s->scratch, a.targets, &made, &indexed);
        for (size_t k = 0; k < indexed.n; k++) site_consider_store(s, i, indexed.list[k], false);
        for (size_t k = 0; k < made.n; k++) site_names_add(s->scratch, &s->objects, made.list[k], strlen(made.list[k]));
    } else if (site_store_of(s->scratch, code, &store) && !store.weak &&
               site_holds(store.value, &s->objects, s->graph)) {
        site_consider_store(s, i, store.into, false);
    }
}

/* opt, schedule = self.configure(lr): what the function stores of the object that it returns. */
static void read_maker(struct site_search *s, size_t i)
{
    struct site_assignment a;
    struct site_names made = {.n = 0};
    struct site_search in;
    if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) || !site_open_callee(s, a.value, &in)) return;
    site_targets_of(s->scratch, a.targets, &made, NULL);
    in.found.n = in.names.n = in.views.n = in.objects.n = in.owners.n = 0;
    for (size_t r = in.from; r < in.to; r++) {
        if (!site_code_begins(&in.code.list[r], "return")) continue;
        const char *value = strchr(in.code.list[r].code, ' ');
        for (size_t k = 0; value && k < made.n; k++) {
            const char *part = made.n == 1 ? value + 1 : site_part_of(s->scratch, value + 1, k);
            const size_t n = site_name_length(part);
            if (site_names_has(&s->objects, made.list[k]) && !part[n]) site_names_add(s->scratch, &in.objects, part, n);
        }
    }
    for (size_t k = in.from; k < in.to && in.objects.n; k++) read_object_statement(&in, k);
    s->budget = in.budget;
    for (size_t k = 0; k < in.found.n && k < SITE_FOUND_MAX; k++) {
        in.found.list[k].why = "it stores the object whose method allocates";
        site_add_candidate(&s->found, in.found.list[k]);
    }
}

static void read_objects(struct site_search *s)
{
    const struct site_names allocating = s->objects;
    for (size_t i = s->from; i < s->at && s->objects.n; i++)
        if (site_common_loop(s, s->at, i) < s->code.n) read_object_statement(s, i);
    const size_t known = s->objects.n;
    s->objects.n = allocating.n;
    for (size_t i = s->from; i < s->at && s->objects.n && !s->found.n; i++) read_maker(s, i);
    s->objects.n = known;
}

/* @lru_cache(maxsize=None); a bound of thousands has no effect either: the GPU is full before. */
static bool is_unbounded_cache(const char *code)
{
    enum { DIGITS = 3 };
    const char *call = strstr(code, "lru_cache("), *most = call ? call + strlen("lru_cache(") : "";
    most += strncmp(most, "maxsize=", 8) == 0 ? 8 : 0;
    return call && (strstr(call, "None") || strspn(most, "0123456789_") > DIGITS);
}

static void read_decorators(struct site_search *s)
{
    for (size_t i = s->module ? 0 : s->from - 1; i-- > 0 && s->code.list[i].code[0] == '@' && s->returned;) {
        const char *code = s->code.list[i].code;
        const size_t n = site_name_length(code + 1);
        const char *last = code + 1 + n;
        while (last > code + 1 && last[-1] != '.') last--;
        const bool property = strcmp(last, "cached_property") == 0;
        if (property || strcmp(last, "cache") == 0 || is_unbounded_cache(code)) {
            site_add_candidate(&s->found,
                               (struct site_candidate){.frame = s->frame,
                                                       .code = s->code,
                                                       .at = i,
                                                       .keyed = true,
                                                       .instead = property ? NULL : site_cache_advice,
                                                       .why = property ? "each object keeps what the function returns"
                                                                       : "it caches what the function returns, "
                                                                         "without a bound"});
        }
    }
}

static bool range_has(const struct site_search *s, size_t from, size_t to, const char *word)
{
    bool has = false;
    for (size_t i = from; i < to && !has; i++) has = strstr(s->code.list[i].code, word) != NULL;
    return has;
}

/* The first statement of the loop that gives the name a value of the pass; code.n: none, or the loop also gives it
 * another value. */
static size_t carrying_statement(struct site_search *s, size_t loop, const char *name)
{
    size_t found = s->code.n;
    for (size_t i = loop; i < site_code_end(&s->code, loop) && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_binding_of(s->scratch, &s->code.list[i], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (!site_names_has(&made, name)) continue;
        const struct site_names self = {.list = {name}, .n = 1};
        if (s->pending && i != s->at && site_holds(a.value, &self, false)) continue; /* state = state.detach() */
        if (i != s->at && (i < s->at || !site_holds(a.value, &s->names, true))) return s->code.n;
        found = found < s->code.n ? found : i;
    }
    return found;
}

/* for batch in batches: loss = 0; for part in batch: loss = loss + f(part): the outer loop begins anew. */
static bool is_reset_around(struct site_search *s, size_t loop, const char *name)
{
    bool reset = false, ends = false; /* ends: each iteration of it ends with a backward pass, which is awaited */
    for (size_t k = site_common_loop(s, loop, loop); k < s->code.n && !reset && !ends; k = site_common_loop(s, k, k)) {
        ends = s->pending && range_has(s, k, site_code_end(&s->code, k), "backward(");
        reset = !ends && site_is_made_in(s, name, k, loop);
    }
    return reset;
}

static bool is_forward_method(const struct site_search *s)
{
    return s->frame->function && text_ends_with(s->frame->function, ".forward");
}

/* In a loop without backward(), or with retain_graph=True or create_graph=True: a variable that each
 * iteration takes over from the previous one holds its graph. If graphs are retained, anything else that the loop
 * stores would be held in any case. */
static void read_carried(struct site_search *s)
{
    const size_t loop = site_common_loop(s, s->at, s->at);
    struct site_assignment a;
    const bool creates =
        range_has(s, s->from, s->to, "create_graph=True") || range_has(s, s->from, s->to, "retain_graph=True");
    if ((!s->graph && !creates) || loop >= s->code.n || !site_binding_of(s->scratch, &s->code.list[s->at], &a) ||
        is_forward_method(s))
        return;
    const bool retains = range_has(s, s->from, s->to, "retain_graph=True");
    const bool within = range_has(s, loop, site_code_end(&s->code, loop), "retain_graph=True"); /* for each part */
    if (!retains && !s->pending && range_has(s, loop, site_code_end(&s->code, loop), "backward(")) return;
    struct site_candidates carried = {.n = 0};
    for (size_t i = 0; i < s->names.n; i++) {
        const struct site_names name = {.list = {s->names.list[i]}, .n = 1};
        const size_t at = site_holds(a.value, &name, true) ? carrying_statement(s, loop, name.list[0]) : s->code.n;
        const bool sum = s->pending && site_only_adds(a.value, name.list[0]); /* of losses */
        if (at < s->code.n && !sum &&
            ((within && site_is_passed_to_call(a.value, name.list[0])) || !is_reset_around(s, loop, name.list[0]))) {
            site_add_candidate(&carried,
                               (struct site_candidate){
                                   .frame = s->frame,
                                   .code = s->code,
                                   .at = at,
                                   .carried = true,
                                   .passed = s->returned,
                                   .why = retains ? "each pass reads a result of the previous one, with its graph, "
                                                    "which backward(retain_graph=True) keeps"
                                                  : "each pass reads a result of the previous one, with its graph"});
        }
    }
    if (carried.n && retains) s->found.n = 0;
    for (size_t i = 0; i < carried.n && i < SITE_FOUND_MAX; i++) site_add_candidate(&s->found, carried.list[i]);
}

/* results = [trial(n) for n in range(9)], results = list(trials()), return torch.cat([model(x) for x in batches]) */
static void read_collection(struct site_search *s)
{
    static const char *const collectors[] = {"list", "tuple", "dict", "set", "sorted", "deque", "collections.deque"};
    struct site_assignment a;
    struct site_names made = {.n = 0};
    const char *code = s->code.list[s->at].code, *value = code;
    if (site_assignment_of(s->scratch, code, &a)) {
        value = a.value;
        site_targets_of(s->scratch, a.targets, &made, NULL);
    }
    /* crops = pool.map(crop, images), crops = await gather(*[crop(i) for i in images]) */
    const bool mapped = s->submitted && made.n == 1 &&
                        (strstr(value, ".map(") || strstr(value, ".starmap(") || strstr(value, "gather("));
    const char *made_by = arena_printf(s->scratch, "%.*s", (int)site_name_length(value), value);
    const bool whole = made.n == 1 && value[strlen(made_by)] == '(' && TEXT_IS_ONE_OF(made_by, collectors);
    if (s->found.n || site_common_loop(s, s->at, s->at) < s->code.n || made.n > 1 ||
        (!whole && !mapped && !site_collects(value, s->inner, s->graph)) || site_is_loop(&s->code.list[s->at]) ||
        site_is_host_value(value, s->graph))
        return;
    site_add_candidate(&s->found, (struct site_candidate){.frame = s->frame,
                                                          .code = s->code,
                                                          .at = s->at,
                                                          .why = "it collects what each call returns",
                                                          .passed = !s->module});
}

/* Does `call` in a value call that function of itertools, not one of the program? */
static bool is_of_itertools(const struct site_code *code, const char *value, const char *call, const char *name)
{
    const bool member = call > value && call[-1] == '.';
    for (size_t i = 0; i < code->n; i++) {
        const char *from = code->list[i].code;
        if (member ? strncmp(from, "import itertools", 16) == 0
                   : strncmp(from, "from itertools import", 21) == 0 && strstr(from + 21, name))
            return member || call == value || strchr(" (,", call[-1]);
    }
    return false;
}

/* for x in cycle(loader), batches = itertools.cycle(loader), first, second = tee(loader): they keep the items. */
static void read_iterators(struct site_search *s, bool first)
{
    static const struct {
        const char *name, *why, *instead;
    } keepers[] = {
        {"cycle", "itertools.cycle() keeps a copy of each item, to repeat them",
         "iterate anew instead (while True: yield from loader), which keeps no batch"},
        {"tee", "itertools.tee() keeps each item until all its iterators have read it",
         "create the iterator twice, or let both read each item in one loop"},
    };
    const char *code = s->code.list[s->at].code, *next = strstr(code, "next(");
    const bool loop = site_is_loop(&s->code.list[s->at]);
    const bool maker = !first && site_common_loop(s, s->at, s->at) == s->code.n; /* it was given the function */
    for (size_t i = 0; i < s->code.n && (loop || next || maker) && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_binding_of(s->scratch, &s->code.list[i], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        for (size_t k = 0; k < sizeof keepers / sizeof *keepers; k++) {
            const char *call = strstr(a.value, arena_printf(s->scratch, "%s(", keepers[k].name));
            if (call && is_of_itertools(&s->code, a.value, call, keepers[k].name) &&
                (i == s->at || site_holds(code, &made, false))) {
                site_add_candidate(&s->found, (struct site_candidate){.frame = s->frame,
                                                                      .code = s->code,
                                                                      .at = i,
                                                                      .why = keepers[k].why,
                                                                      .instead = keepers[k].instead});
            }
        }
    }
}

/* self.state = h, computed from the self.state of the previous pass: it holds that pass's graph, and so the graphs of
 * all earlier passes. */
static void read_carried_attribute(struct site_search *s)
{
    for (size_t i = s->from; s->graph && i < s->to && !s->found.n; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) || !site_value_holds(s, i, a.value)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        bool carried = false;
        for (size_t k = s->from; k < s->to && made.n == 1 && strncmp(made.list[0], "self.", 5) == 0; k++) {
            struct site_assignment read;
            carried = carried || (s->budget-- > 0 && site_binding_of(s->scratch, &s->code.list[k], &read) &&
                                  site_holds(read.value, &made, true));
        }
        if (carried) {
            site_add_candidate(&s->found,
                               (struct site_candidate){
                                   .frame = s->frame,
                                   .code = s->code,
                                   .at = i,
                                   .carried = true,
                                   .why = "the next pass reads it, so that each keeps the graph of the previous one",
                                   .passed = true});
        }
    }
}

/* forward() with a loop over the parts of its input: variables of its own end with the pass, and only an attribute
 * carries the graph to the next one. */
static bool read_carried_state(struct site_search *s)
{
    const struct site_candidates found = s->found;
    bool local = is_forward_method(s) && found.n <= SITE_FOUND_MAX;
    for (size_t i = 0; local && i < found.n; i++)
        local =
            found.list[i].frame == s->frame && strncmp(found.list[i].code.list[found.list[i].at].code, "self.", 5) != 0;
    if (!local) return false;
    s->found.n = 0;
    read_carried_attribute(s);
    if (s->found.n) return true;
    s->found = found;
    for (size_t i = 0; i < found.n && s->returned; i++)
        s->found.list[i].passed = s->found.list[i].passed ||
                                  (s->found.list[i].into && site_is_made_in(s, s->found.list[i].into, s->from, s->to));
    return false;
}

/* state = next_state at the end of a loop: the statements before it read the value in the next iteration. */
static void read_next_iteration(struct site_search *s)
{
    const size_t loop = site_common_loop(s, s->at, s->at);
    const struct site_names names = s->names;
    for (size_t i = loop; i < s->at && !site_has_strong(&s->found); i++) {
        s->names.n = 0;
        for (size_t k = 0; k < names.n; k++)
            if (!site_is_made_in(s, names.list[k], loop, i))
                site_names_add(s->scratch, &s->names, names.list[k], strlen(names.list[k]));
        if (s->names.n) site_read_statement(s, i);
        if (s->names.n && !site_has_strong(&s->found)) site_read_calls(s, i, 0);
    }
    s->names = names;
}

static const char context_advice[] =
    "pass tensors to `ctx.save_for_backward()` instead: an output that ctx itself holds "
    "refers to ctx, and so both are never freed";

/* def forward(ctx, x) of class Square(torch.autograd.Function) */
static bool is_function_of_autograd(const struct site_search *s)
{
    const size_t def = s->from ? site_code_parent(&s->code, s->from) : s->code.n;
    const size_t class = def < s->code.n ? site_code_parent(&s->code, def) : def;
    const char *bases = class < s->code.n ? strchr(s->code.list[class].code, '(') : NULL;
    return bases && strstr(bases, "Function)");
}

/* node.hidden = x, trial[""] = x of an argument: the object outlives the function, and which other object refers to it
 * is not known. The last resort. */
static void read_given_objects(struct site_search *s)
{
    for (size_t i = s->at; i < s->to && !s->found.n && !s->module; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) || !site_value_holds(s, i, a.value)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (!made.n && strchr(a.targets, '[')) site_names_add(s->scratch, &made, a.targets, strlen(a.targets));
        for (size_t k = 0; k < made.n; k++) {
            const size_t n = strcspn(made.list[k], ".[");
            const char *root = arena_printf(s->scratch, "%.*s", (int)n, made.list[k]);
            if (!made.list[k][n] || strcmp(root, "self") == 0 || !site_is_parameter(s, root) ||
                site_is_made_in(s, root, s->from, s->to))
                continue;
            site_add_candidate(&s->found,
                               (struct site_candidate){.frame = s->frame,
                                                       .code = s->code,
                                                       .at = i,
                                                       .why = "it stores the memory in an argument of the function",
                                                       .instead = is_function_of_autograd(s) ? context_advice : NULL,
                                                       .passed = true});
        }
    }
}

/* Is all that the function returns a number, such as loss.item()? No graph gets to the caller then. */
static bool returns_numbers(const struct site_search *s)
{
    bool numbers = false;
    for (size_t i = s->from; i < s->to && !s->module; i++) {
        if (!site_code_begins(&s->code.list[i], "return")) continue;
        const char *code = s->code.list[i].code;
        numbers = strlen(code) > 7 && site_is_host_value(code + 7, true);
        if (!numbers) return false;
    }
    return numbers;
}

/* Reads the frame's function from its statement on. False: the memory is not passed on to the caller. */
static bool read_frame(struct site_search *s, bool first)
{
    const bool came_back = first || s->returned;
    const size_t last = s->at, line = first_on_line(s);
    s->names.n = s->views.n = s->objects.n = s->owners.n = 0;
    for (size_t i = line; i <= last; i++) {
        take_attributes(s, s->code.list[i].code);
        take_object(s, s->code.list[i].code);
    }
    s->attributes.n = 0;
    s->returned = false;
    s->returns_parts = 0;
    if (first) take_out_arguments(s);
    if (s->constructs) site_names_add(s->scratch, &s->owners, "self", strlen("self"));
    for (size_t i = s->from; i < s->at && s->constructs; i++) site_read_statement(s, i); /* Node.all.append(self) */
    for (s->at = line; s->at <= last && came_back; s->at++) {
        site_read_statement(s, s->at);
        read_collection(s);
        read_iterators(s, first);
    }
    s->at = last;
    for (size_t i = s->at + 1; i < s->to; i++) site_read_statement(s, i);
    for (size_t i = came_back ? line : last + 1; i < s->to && !site_has_strong(&s->found); i++) {
        s->at = i < last ? i : last;
        site_read_calls(s, i, 0);
    }
    s->at = last;
    if (came_back) read_next_iteration(s);
    read_objects(s);
    if (!s->found.n) read_other_methods(s);
    read_decorators(s);
    if (!read_carried_state(s)) {
        for (s->at = line; s->at <= last; s->at++) read_carried(s);
        s->at = last;
        read_carried_attribute(s);
    }
    read_given_objects(s);
    for (size_t i = 0; i < s->names.n; i++)
        if (strncmp(s->names.list[i], "self.", 5) == 0) {
            site_names_add(s->scratch, &s->attributes, s->names.list[i], strlen(s->names.list[i]));
            site_names_add(s->scratch, &s->kept, s->names.list[i], strlen(s->names.list[i]));
        }
    s->constructed = site_is_constructor(s->frame->function);
    s->returned = s->returned || (s->graph && !returns_numbers(s)) || s->constructed;
    s->returned_view = s->returned && s->returned_view;
    s->returned_parts = !s->returns_parts || s->constructed ? SITE_ANY_PART : s->returns_parts;
    return s->returned || s->attributes.n || s->objects.n;
}

/* x = load(); y = net(x): which statement of the line called is unknown. The last that leads to one that stores. */
static bool read_line(struct site_search *s, bool first)
{
    const struct site_search before = *s;
    const int line = s->code.list[s->at].line;
    bool on = read_frame(s, first);
    for (size_t i = before.at; !s->found.n && i-- > before.from && before.code.list[i].last == line;) {
        const struct site_search read = *s;
        *s = before;
        s->at = i;
        const bool further = read_frame(s, first);
        if (!s->found.n && !further) *s = read;
        on = on || further;
    }
    return on;
}

/* A value that is passed on to a caller that stores it, or to another statement of the function, is not held here. */
static bool is_final(struct site_candidates *found)
{
    size_t n = 0;
    for (size_t i = 0; found->n <= SITE_FOUND_MAX && i < found->n; i++)
        if (!found->list[i].passed) found->list[n++] = found->list[i];
    found->n = n ? n : found->n;
    return n > 0 || found->n > SITE_FOUND_MAX;
}

/* pool.submit(work, x), create_task(work(x)): the statement that made a library call the function. */
static bool find_submission(struct site_search *s)
{
    const char *name = text_last_part(s->frame ? s->frame->function : NULL);
    const size_t n = strlen(name);
    const bool async = s->from && strncmp(s->code.list[s->from - 1].code, "async ", 6) == 0;
    size_t found = 0, at = 0;
    for (size_t i = 0; n && i < s->code.n && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        bool passed = false;
        for (const char *p = strstr(code, name); p && !site_is_function(&s->code.list[i]); p = strstr(p + 1, name))
            passed = passed || (p > code && p[n] && strchr("(., [", p[-1]) && strchr(async ? "(" : ",)", p[n]));
        found += passed;
        at = passed ? i : at;
    }
    s->at = at;
    return found == 1;
}

/* For a function that a library called: follows the results to the statement that passed the function to the library.
 */
static bool follow_submission(struct site_search *s)
{
    struct site_search from = *s;
    if (!from.returned || from.module) return false;
    if (from.lambda) { /* pool.map(lambda x: work(x), items) */
        if (!site_open_source(from.b, from.lambda, &from.code, &from.at)) return false;
        from.frame = from.lambda;
    } else if (!find_submission(&from)) {
        return false;
    }
    from.submitted = true;
    from.found.n = 0;
    site_find_function(&from);
    from.constructs = false;
    read_frame(&from, false);
    if (is_final(&from.found) || from.found.n) {
        s->found = from.found;
        return true;
    }
    return false;
}

/* __init__(), or a method of self that it calls. */
static bool is_in_construction(struct site_search *s, uint32_t stack)
{
    const struct run_frame *frame = s->frame;
    struct site_search caller = *s;
    while (!site_is_constructor(frame->function)) {
        const char *name = text_last_part(frame->function);
        stack = run_stack_parent(s->b->run, stack);
        frame = run_stack_frame(s->b->run, stack);
        if (!*name || !frame || frame->kind != GS_FRAME_PYTHON || !site_open_frame(&caller, frame) ||
            !strstr(caller.code.list[caller.at].code, arena_printf(s->scratch, "self.%s(", name)))
            return false;
    }
    return true;
}

static void walk_statements(struct site_search *s, uint32_t stack)
{
    struct site_candidates passed = {.n = 0};
    const struct run_frame *frame;
    const char *function = NULL;
    bool first = true, on = true, own = false;
    for (unsigned hops = 0; hops < FRAMES_MAX && (frame = run_stack_frame(s->b->run, stack)) != NULL;
         stack = run_stack_parent(s->b->run, stack)) {
        const bool library = frame->kind == GS_FRAME_PYTHON && site_is_library(frame);
        if (library && own && follow_submission(s)) return;
        s->given = s->given || (library && own && s->returned && site_is_beyond_torch(frame));
        if (site_is_nameless(frame->function) && frame->kind == GS_FRAME_PYTHON) s->lambda = frame;
        const char *inner = function;
        function = frame->kind == GS_FRAME_PYTHON ? frame->function : function;
        if (frame->kind != GS_FRAME_PYTHON || library || !site_open_frame(s, frame)) continue;
        s->inner = inner;
        hops++;
        s->lambda = NULL;
        s->found.n = 0;
        site_find_function(s);
        s->constructs = !s->module && is_in_construction(s, stack);
        if (s->raises) site_read_handlers(s);
        for (size_t i = s->from; i < s->to && !s->raises && !s->module; i++)
            s->raises = site_code_begins(&s->code.list[i], "raise");
        on = on && read_line(s, first);
        s->callee = frame->function;
        first = false;
        own = on;
        if (is_final(&s->found)) return;
        passed = s->found.n ? s->found : passed;
    }
    s->found = passed;
}

static struct result_holder best_holder_of(struct site_search *s, const struct site_candidate *c, size_t n)
{
    enum { TEXT_MAX = 160 };
    const struct site_statement *st = &c->code.list[c->at];
    const struct run_source_text *text = run_source_text(s->b->run, c->frame->file);
    char line[TEXT_MAX], function[128];
    const char *from = (size_t)st->line <= text->n ? text->lines[st->line - 1] : "";
    from += strspn(from, " \t\f");
    terminal_clean(line, sizeof line, arena_printf(s->scratch, "%.*s", (int)site_code_length(from), from), true);
    terminal_clean(function, sizeof function, c->frame->function, true);
    const bool own = strncmp(c->why, "in ", 3) != 0 && strncmp(c->why, "of ", 3) != 0;
    return (struct result_holder){.file = c->frame->file,
                                  .line = st->line,
                                  .function = *function ? arena_printf(s->b->arena, "%s", function) : NULL,
                                  .into = c->into ? arena_printf(s->b->arena, "%s", c->into) : NULL,
                                  .text = arena_printf(s->b->arena, "%s", line),
                                  .keyed = c->keyed,
                                  .cached = c->cached,
                                  .carried = c->carried,
                                  .weak = c->weak,
                                  .instead = !c->instead && c->view && !s->graph ? view_advice : c->instead,
                                  .why = own      ? arena_printf(s->b->arena, "%s", c->why)
                                         : n == 1 ? arena_printf(s->b->arena, "the only statement %s", c->why)
                                                  : arena_printf(s->b->arena, "one of two statements %s", c->why)};
}

static bool is_strong(const struct site_candidate *c)
{
    return !c->weak;
}

static bool is_lasting(const struct site_candidate *c)
{
    return !c->reset;
}

/* Those for which `is` is true, if there are any. */
static void keep_those(struct site_candidates *found, bool (*is)(const struct site_candidate *))
{
    size_t those = 0, n = 0;
    for (size_t i = 0; i < found->n && i < SITE_FOUND_MAX; i++) those += is(&found->list[i]);
    for (size_t i = 0; those && i < found->n && i < SITE_FOUND_MAX; i++)
        if (is(&found->list[i])) found->list[n++] = found->list[i];
    found->n = those && found->n <= SITE_FOUND_MAX ? n : found->n;
}

static bool is_carried(const struct site_candidate *c)
{
    return c->carried;
}

static void walk_handlers(struct site_search *s, uint32_t stack)
{
    RUN_EACH_FRAME (frame, s->b->run, stack) {
        if (frame->kind != GS_FRAME_PYTHON || site_is_library(frame) || !site_open_frame(s, frame)) continue;
        site_find_function(s);
        site_read_handlers(s);
    }
    s->found = s->kept_errors;
}

static size_t list_holders(struct site_search *s, struct result_holder **holders)
{
    const size_t n = s->found.n <= RESULT_HOLDERS && s->budget > 0
                         ? s->found.n
                         : 0; /* otherwise some statements were not examined */
    *holders = n ? arena_alloc(s->b->arena, n * sizeof **holders) : NULL;
    for (size_t i = 0; i < n; i++) (*holders)[i] = best_holder_of(s, &s->found.list[i], n);
    return n;
}

size_t site_find_kept_errors(struct site_builder *b, uint32_t stack, struct result_holder **holders)
{
    struct site_search *s = arena_realloc(NULL, 1, sizeof *s);
    struct arena scratch = {0};
    *s = (struct site_search){.b = b,
                              .scratch = &scratch,
                              .stack = stack,
                              .budget = BUDGET,
                              .returned_parts = SITE_ANY_PART,
                              .last_error = true};
    walk_handlers(s, stack);
    const size_t n = list_holders(s, holders);
    arena_free(&scratch);
    free(s);
    return n;
}

enum purpose { KEEPS, CARRIES, WAITS };

static size_t find_holders(struct site_builder *b, uint32_t stack, bool graph, enum purpose purpose,
                           struct result_holder **holders)
{
    struct site_search *s = arena_realloc(NULL, 1, sizeof *s);
    struct arena scratch = {0};
    *s = (struct site_search){.b = b,
                              .scratch = &scratch,
                              .stack = stack,
                              .graph = graph,
                              .pending = purpose == CARRIES,
                              .emptied = purpose == WAITS,
                              .budget = BUDGET,
                              .returned_parts = SITE_ANY_PART};
    walk_statements(s, stack);
    if (!s->found.n) s->found = s->kept_errors;
    if (!s->found.n) site_find_hooks(s, stack);
    if (!s->found.n) site_find_callbacks(s, stack);
    if (!s->found.n) site_find_attribute_stores(s, stack);
    if (!s->found.n && s->given_away.n == 1) s->found = s->given_away;
    keep_those(&s->found, is_strong);
    if (purpose != WAITS) {
        keep_those(&s->found, is_lasting);
        site_drop_renewed(s);
    }
    if (purpose == CARRIES) keep_those(&s->found, is_carried);
    const size_t n = list_holders(s, holders);
    arena_free(&scratch);
    free(s);
    return n;
}

size_t site_find_holders(struct site_builder *b, uint32_t stack, bool graph, struct result_holder **holders)
{
    return find_holders(b, stack, graph, KEEPS, holders);
}

size_t site_find_emptied(struct site_builder *b, uint32_t stack, struct result_holder **holders)
{
    return find_holders(b, stack, true, WAITS, holders);
}

size_t site_find_carried(struct site_builder *b, uint32_t stack, struct result_holder **holders)
{
    const size_t n = find_holders(b, stack, true, CARRIES, holders);
    return n && (*holders)[0].carried ? n : 0;
}

const char *site_holders_text(struct arena *arena, const struct result_holder *holders, size_t n)
{
    const char *text = "";
    for (size_t i = 0; i < n; i++) {
        char file[128];
        terminal_clean(file, sizeof file, basename(holders[i].file), true);
        text = arena_printf(arena, "%s%s%s:%d `%s`", text, i ? " or " : "", file, holders[i].line, holders[i].text);
    }
    return text;
}

const char *site_kept_text(struct arena *arena, const char *named, const struct result_holder *holders, size_t n)
{
    const char *text = site_holders_text(arena, holders, n);
    const size_t length = strlen(named);
    if (length && strncmp(text, named, length) == 0 && text[length] == ' ') text += length + 1;
    return n ? arena_printf(arena, "kept by %s (guess)", text) : NULL;
}
