#include "analyzer/site/holder.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/site/python_code.h"
#include "analyzer/site/python_names.h"

enum { FOUND_MAX = 8, FRAMES_MAX = 64, BUDGET = 300000 };

struct candidate {
    const struct run_frame *frame;
    struct site_code code;
    size_t at;
    const char *why;
    bool weak;   /* update(), or of another loop than the call */
    bool passed; /* into a local variable that the function returns: a caller's statement is more likely */
};
struct candidates {
    struct candidate list[FOUND_MAX];
    size_t n; /* those beyond the room are also counted */
};

struct search {
    struct site_builder *b;
    struct arena *scratch;
    long budget; /* statements that may still be examined */
    bool graph;
    /* of the function of this frame */
    const struct run_frame *frame;
    struct site_code code;
    size_t at, from, to;              /* the statement that called; the bounds of its function */
    bool module;                      /* not in a function but at the top level of the file */
    struct site_names names, objects; /* that refer to the memory; objects whose method allocated it */
    /* of the frame that it called */
    bool returned;                /* the value is returned */
    bool raises;                  /* it, or what it called, contains a raise statement */
    struct site_names attributes; /* "self.features" of the object */
    struct candidates found, kept_errors;
};

/* ---------------------------------------------------------------- where a statement is */

static bool is_function(const struct site_statement *s)
{
    return site_code_begins(s, "def");
}

static bool is_loop(const struct site_statement *s)
{
    return site_code_begins(s, "for") || site_code_begins(s, "while");
}

static void find_function(struct search *s)
{
    size_t k = s->at;
    do {
        k = site_code_parent(&s->code, k);
    } while (k < s->code.n && !is_function(&s->code.list[k]));
    s->module = k == s->code.n;
    s->from = s->module ? 0 : k + 1;
    s->to = s->module ? s->code.n : site_code_end(&s->code, k);
}

/* The innermost loop around both; code.n if there is none. */
static size_t common_loop(const struct search *s, size_t a, size_t b)
{
    if (a >= s->code.n || b >= s->code.n) { /* no statement of the program is the call */
        return s->code.n;
    }
    for (size_t k = site_code_parent(&s->code, b); k < s->code.n && k + 1 >= s->from;
         k = site_code_parent(&s->code, k)) {
        if (is_loop(&s->code.list[k]) && a >= k && a < site_code_end(&s->code, k)) {
            return k;
        }
        if (is_function(&s->code.list[k])) {
            break;
        }
    }
    return s->code.n;
}

/* "for x in loader", "with open(f) as g": the names that they bind, and the value. */
static bool header_of(struct search *s, size_t i, struct site_assignment *to)
{
    const struct site_statement *st = &s->code.list[i];
    const char *in = strstr(st->code, " in "), *as = strstr(st->code, " as ");
    if (site_code_begins(st, "for") && in) {
        const char *name = strstr(st->code, "for ") + 4;
        *to = (struct site_assignment){.targets = arena_printf(s->scratch, "%.*s", (int)(in - name), name),
                                       .value = in + 4};
        return true;
    }
    if (site_code_begins(st, "with") && as) {
        *to = (struct site_assignment){.targets = as + 4, .value = st->code};
        return true;
    }
    return false;
}

static bool assignment(struct search *s, size_t i, struct site_assignment *to)
{
    return header_of(s, i, to) || site_assignment_of(s->scratch, s->code.list[i].code, to);
}

/* Is the name assigned anew in these statements? A value that is computed from itself does not count. */
static bool is_made_in(struct search *s, const char *name, size_t from, size_t to)
{
    const char *dot = strchr(name, '.');
    struct site_names self = {.list = {name}, .n = 1};
    const bool member = dot && (strncmp(name, "self.", 5) == 0 || strncmp(name, "cls.", 4) == 0);
    const char *root = dot && !member ? arena_printf(s->scratch, "%.*s", (int)(dot - name), name) : name;
    for (size_t i = from; i < to && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!assignment(s, i, &a) || a.augmented) {
            continue;
        }
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if ((site_names_has(&made, name) && !site_holds(a.value, &self, false)) ||
            (root != name && site_names_has(&made, root))) {
            return true;
        }
    }
    return false;
}

static bool is_returned(struct search *s, const char *name)
{
    const struct site_names names = {.list = {name}, .n = 1};
    for (size_t i = s->from; i < s->to && !s->module; i++) {
        if (site_code_begins(&s->code.list[i], "return") && site_holds(s->code.list[i].code, &names, false)) {
            return true;
        }
    }
    return false;
}

/* ---------------------------------------------------------------- candidates */

static void add(struct candidates *to, struct candidate c)
{
    for (size_t i = 0; i < to->n && i < FOUND_MAX; i++) {
        if (to->list[i].frame->file == c.frame->file &&
            to->list[i].code.list[to->list[i].at].line == c.code.list[c.at].line) {
            return;
        }
    }
    if (to->n < FOUND_MAX) {
        to->list[to->n] = c;
    }
    to->n++;
}

static const char *place(struct search *s, bool loop)
{
    const char *function = s->frame->function, *dot = function ? strrchr(function, '.') : NULL;
    char name[128];
    const char *last = dot && dot[1] != '<' ? dot + 1 : function;
    terminal_clean(name, sizeof name, s->module || !last ? "the program" : last, true);
    return arena_printf(s->scratch, "%s %s%s", loop ? "in the loop of" : "of", name, s->module ? "" : "()");
}

/* Does an assignment give the name a value for which `is` is true? With several targets, each has its own value. */
static bool is_given(struct search *s, const char *name, bool (*is)(const char *value))
{
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) || a.augmented) {
            continue;
        }
        site_targets_of(s->scratch, a.targets, &made, NULL);
        for (size_t k = 0; k < made.n; k++) {
            if (strcmp(made.list[k], name) == 0 && is(made.n == 1 ? a.value : site_part_of(s->scratch, a.value, k))) {
                return true;
            }
        }
    }
    return false;
}

static bool is_bounded(const char *value)
{
    return strstr(value, "maxlen=") && !strstr(value, "maxlen=None");
}

static bool is_list(const char *value)
{
    return *value == '[' || strncmp(value, "list(", 5) == 0;
}

/* Does the loop make optimizer steps outside of the loop `within` it? Then its iterations are the program's steps. */
static bool is_step_loop(const struct search *s, size_t loop, size_t within)
{
    for (size_t i = loop + 1; i < site_code_end(&s->code, loop); i++) {
        const char *code = s->code.list[i].code;
        if ((i < within || i >= site_code_end(&s->code, within)) &&
            (strstr(code, ".step(") || strstr(code, ".zero_grad("))) {
            return true;
        }
    }
    return false;
}

/* Statement i stores the memory in `into`: does that outlive the step? */
static void consider(struct search *s, size_t i, const char *into, bool weak)
{
    const char *name = site_base_name(s->scratch, into);
    const size_t loop = common_loop(s, s->at, i), none = s->code.n;
    const bool local = !s->module && is_made_in(s, name, s->from, s->to);
    if (!*name || is_given(s, name, is_bounded) || (loop == none && (local || s->module)) ||
        (loop != none && is_made_in(s, name, loop, site_code_end(&s->code, loop)))) {
        return;
    }
    bool reset = false; /* by a loop around it: then it is held only until the next iteration */
    for (size_t k = loop; k < none && !reset; k = common_loop(s, k, k)) {
        reset = k != loop && is_made_in(s, name, k, site_code_end(&s->code, k));
        if (reset && is_step_loop(s, k, loop)) {
            return;
        }
    }
    const char *what =
        arena_printf(s->scratch, "%s that stores the result of line %d in an object created outside of it",
                     place(s, loop != none), s->at < none ? s->code.list[s->at].line : 0);
    add(&s->found, (struct candidate){.frame = s->frame,
                                      .code = s->code,
                                      .at = i,
                                      .why = what,
                                      .weak = weak || reset || loop != common_loop(s, s->at, s->at),
                                      .passed = local && is_returned(s, name)});
}

static bool concatenates(const char *value)
{
    static const char *const words[] = {"cat(", "stack(", "concat(", "concatenate("};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(value, words[i])) {
            return true;
        }
    }
    return false;
}

/* total += loss, losses += [loss], x = torch.cat([x, y]). */
static bool accumulates(struct search *s, const struct site_assignment *a, const char *name)
{
    const struct site_names self = {.list = {name}, .n = 1};
    if (a->augmented) {
        return s->graph || *a->value == '[' || is_given(s, name, is_list);
    }
    return site_holds(a->value, &self, false) &&
           (concatenates(a->value) || ((s->graph || is_given(s, name, is_list)) &&
                                       strncmp(a->value, name, strlen(name)) == 0 && strstr(a->value, " + ")));
}

static bool part_holds(struct search *s, size_t i, const char *value)
{
    if (site_is_host_value(value, s->graph)) {
        return false;
    }
    return (i == s->at && strchr(value, '(')) || site_holds(value, &s->names, s->graph) ||
           site_holds(value, &s->objects, s->graph);
}

/* Any of the values of a tuple. */
static bool holds(struct search *s, size_t i, const char *value)
{
    const size_t n = strlen(value);
    const bool tuple = n > 1 && *value == '(' && value[n - 1] == ')' && strchr(value, ',');
    const char *parts = tuple ? arena_printf(s->scratch, "%.*s", (int)n - 2, value + 1) : value;
    const char *part;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->scratch, parts, k)); k++) {
        if (part_holds(s, i, part)) {
            return true;
        }
    }
    return false;
}

static void add_targets(struct search *s, const struct site_names *made)
{
    for (size_t i = 0; i < made->n; i++) {
        site_names_add(s->scratch, &s->names, made->list[i], strlen(made->list[i]));
    }
}

static void read_assignment(struct search *s, size_t i, const struct site_assignment *a)
{
    struct site_names made = {.n = 0}, indexed = {.n = 0};
    if (!holds(s, i, a->value)) {
        return;
    }
    site_targets_of(s->scratch, a->targets, &made, &indexed);
    for (size_t k = 0; k < indexed.n; k++) {
        consider(s, i, indexed.list[k], false);
    }
    for (size_t k = 0; k < made.n; k++) {
        if (accumulates(s, a, made.list[k])) {
            consider(s, i, made.list[k], false);
        }
    }
    add_targets(s, &made);
}

static void read_statement(struct search *s, size_t i)
{
    const struct site_statement *st = &s->code.list[i];
    struct site_assignment a;
    struct site_store store;
    if (s->budget-- <= 0 || is_function(st) || site_code_begins(st, "class")) {
        return;
    }
    if (assignment(s, i, &a)) {
        read_assignment(s, i, &a);
    } else if (site_store_of(s->scratch, st->code, &store)) {
        if (holds(s, i, store.value) && (s->graph || !store.weak)) { /* update() with a number's tensor adds nothing */
            consider(s, i, store.into, store.weak);
        }
    } else if (site_code_begins(st, "return") || site_code_begins(st, "yield")) {
        const char *value = strchr(st->code, ' ');
        s->returned = s->returned || (value && holds(s, i, value + 1));
    }
}

/* ---------------------------------------------------------------- from frame to frame */

/* obj(…), obj.method(…) in the statement: the attributes of the object that the callee has set. */
static void take_attributes(struct search *s)
{
    const char *code = s->code.list[s->at].code;
    for (const char *p = code; *p;) {
        size_t n = site_name_length(p);
        if (n && p[n] == '(') {
            for (size_t i = 0; i < s->attributes.n; i++) {
                const char *attribute = strchr(s->attributes.list[i], '.'), *whole = p;
                size_t object = n;
                const char *name = arena_printf(s->scratch, "%.*s%s", (int)object, whole, attribute);
                site_names_add(s->scratch, &s->names, name, strlen(name));
                while (object && p[object] != '.') {
                    object--;
                }
                name = object ? arena_printf(s->scratch, "%.*s%s", (int)object, whole, attribute) : "";
                site_names_add(s->scratch, &s->names, name, strlen(name));
            }
        }
        p += n ? n : 1;
    }
    s->attributes.n = 0;
}

/* optimizer.step(): the object may keep what the call allocates. */
static void take_object(struct search *s)
{
    const char *code = s->code.list[s->at].code;
    const size_t n = site_name_length(code);
    struct site_assignment a;
    if (n && code[n] == '(' && !site_assignment_of(s->scratch, code, &a)) {
        const char *base = site_base_name(s->scratch, code);
        if (*base && strcmp(base, "self") != 0 && strcmp(base, "super") != 0) {
            site_names_add(s->scratch, &s->objects, base, strlen(base));
        }
    }
}

static void read_objects(struct search *s)
{
    for (size_t i = s->from; i < s->at && s->objects.n; i++) {
        struct site_store store;
        if (common_loop(s, s->at, i) != s->code.n && site_store_of(s->scratch, s->code.list[i].code, &store) &&
            !store.weak && site_holds(store.value, &s->objects, s->graph)) {
            consider(s, i, store.into, false);
        }
    }
}

/* except ValueError as error: its traceback keeps the frames of what the try statement called. */
static void read_handlers(struct search *s)
{
    for (size_t t = site_code_parent(&s->code, s->at); t < s->code.n && t + 1 > s->from;
         t = site_code_parent(&s->code, t)) {
        const int indent = s->code.list[t].indent;
        bool handler = site_code_begins(&s->code.list[t], "try");
        for (size_t i = site_code_end(&s->code, t); handler && i < s->to && s->code.list[i].indent >= indent; i++) {
            const struct site_statement *st = &s->code.list[i];
            const char *as = st->indent == indent ? strstr(st->code, " as ") : NULL;
            if (!as || !site_code_begins(st, "except")) {
                handler = st->indent > indent || site_code_begins(st, "except");
                continue;
            }
            struct search in = *s;
            in.found.n = 0;
            in.names.n = in.objects.n = 0;
            site_names_add(s->scratch, &in.names, as + 4, site_name_length(as + 4));
            for (size_t k = i + 1; k < site_code_end(&s->code, i); k++) {
                read_statement(&in, k);
            }
            for (size_t k = 0; k < in.found.n && k < FOUND_MAX; k++) {
                in.found.list[k].why =
                    "a kept exception keeps its traceback, and with it the variables of the frames in it";
                add(&s->kept_errors, in.found.list[k]);
            }
        }
    }
}

static void read_decorators(struct search *s)
{
    for (size_t i = s->module ? 0 : s->from - 1; i-- > 0 && s->code.list[i].code[0] == '@' && s->returned;) {
        const char *code = s->code.list[i].code;
        const size_t n = site_name_length(code + 1);
        const bool cache = (n == 5 && strncmp(code + 1, "cache", 5) == 0) ||
                           (n == 15 && strncmp(code + 1, "functools.cache", 15) == 0);
        if (cache || (strstr(code, "lru_cache(") && strstr(code, "None"))) {
            add(&s->found, (struct candidate){.frame = s->frame,
                                              .code = s->code,
                                              .at = i,
                                              .why = "it caches what the function returns, without a bound"});
        }
    }
}

/* backward(retain_graph=True) in a loop: a variable that each iteration takes over from the previous one holds its
 * graph. What else the loop stores would be held in any case. */
static void read_carried(struct search *s)
{
    const size_t loop = common_loop(s, s->at, s->at);
    struct site_assignment a;
    struct site_names made = {.n = 0};
    bool retains = false;
    for (size_t i = s->from; s->graph && loop < s->code.n && i < s->to; i++) {
        retains = retains || strstr(s->code.list[i].code, "retain_graph=True");
    }
    if (!retains || !assignment(s, s->at, &a)) {
        return;
    }
    s->found.n = 0;
    site_targets_of(s->scratch, a.targets, &made, NULL);
    for (size_t i = 0; i < made.n; i++) {
        const struct site_names name = {.list = {made.list[i]}, .n = 1};
        if (site_holds(a.value, &name, true)) {
            add(&s->found,
                (struct candidate){.frame = s->frame,
                                   .code = s->code,
                                   .at = s->at,
                                   .why = "each pass takes over a result of the one before, with its graph, which "
                                          "backward(retain_graph=True) keeps"});
        }
    }
}

static bool collects(const char *value)
{
    static const char *const words[] = {"list(", "tuple(", "dict("};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(value, words[i], strlen(words[i])) == 0) {
            return true;
        }
    }
    return strchr("[{", *value) && strstr(value, " for ");
}

/* results = [trial(n) for n in range(9)], results = list(trials()) */
static void read_collection(struct search *s)
{
    struct site_assignment a;
    struct site_names made = {.n = 0};
    const struct site_statement *st = &s->code.list[s->at];
    if (s->found.n || common_loop(s, s->at, s->at) < s->code.n || !site_assignment_of(s->scratch, st->code, &a) ||
        !collects(a.value) || site_is_host_value(a.value, s->graph)) {
        return;
    }
    site_targets_of(s->scratch, a.targets, &made, NULL);
    if (made.n == 1) {
        add(&s->found, (struct candidate){.frame = s->frame,
                                          .code = s->code,
                                          .at = s->at,
                                          .why = "it collects what each call returns",
                                          .passed = !s->module});
    }
}

/* Reads the frame's function from its statement on. False: the memory goes no further. */
static bool read_frame(struct search *s, bool first)
{
    const bool came_back = first || s->returned;
    s->names.n = s->objects.n = 0;
    take_attributes(s);
    take_object(s);
    s->returned = false;
    if (came_back) {
        read_statement(s, s->at);
        read_collection(s);
    }
    for (size_t i = s->at + 1; i < s->to; i++) {
        read_statement(s, i);
    }
    read_objects(s);
    read_decorators(s);
    read_carried(s);
    for (size_t i = 0; i < s->names.n; i++) {
        if (strncmp(s->names.list[i], "self.", 5) == 0) {
            site_names_add(s->scratch, &s->attributes, s->names.list[i], strlen(s->names.list[i]));
        }
    }
    s->returned = s->returned || s->graph;
    return s->returned || s->attributes.n || s->objects.n;
}

/* Parses each file once: many call paths lead through it. */
static struct site_code code_of_file(struct site_builder *b, const struct run_source_text *text)
{
    for (size_t i = 0; i < b->codes_n; i++) {
        if (b->codes[i].lines == text->lines) {
            return b->codes[i].code;
        }
    }
    const struct site_code code = site_code_of(b->arena, text->lines, text->n);
    *ARENA_PUSH(b->codes, b->codes_n, b->codes_cap) = (struct site_file_code){text->lines, code};
    return code;
}

/* A frame of a lambda or comprehension: its line belongs to the function around it. */
static bool is_nameless(const char *function)
{
    const size_t n = function ? strlen(function) : 0;
    return n && function[n - 1] == '>' && strcmp(function, "<module>") != 0;
}

static bool open_frame(struct search *s, const struct run_frame *frame)
{
    const struct run_source_text *text = frame->line ? run_source_text(s->b->run, frame->file) : NULL;
    if (!text || is_nameless(frame->function)) { /* <lambda>, <listcomp> */
        return false;
    }
    s->frame = frame;
    s->code = code_of_file(s->b, text);
    s->at = site_code_at(&s->code, frame->line);
    return s->at < s->code.n;
}

/* A value that is passed on to a caller that stores it is not held here. */
static bool is_final(const struct candidates *found)
{
    for (size_t i = 0; i < found->n && i < FOUND_MAX; i++) {
        if (!found->list[i].passed) {
            return true;
        }
    }
    return false;
}

static void walk(struct search *s, uint32_t stack)
{
    struct candidates passed = {.n = 0};
    const struct run_frame *frame;
    bool first = true, on = true;
    for (unsigned hops = 0; hops < FRAMES_MAX && (frame = run_stack_frame(s->b->run, stack)) != NULL;
         stack = run_stack_parent(s->b->run, stack)) {
        if (frame->kind != GS_FRAME_PYTHON || site_is_library_file(frame->file) || !open_frame(s, frame)) {
            continue;
        }
        hops++;
        s->found.n = 0;
        find_function(s);
        if (s->raises) {
            read_handlers(s);
        }
        for (size_t i = s->from; i < s->to && !s->raises && !s->module; i++) {
            s->raises = site_code_begins(&s->code.list[i], "raise");
        }
        on = on && read_frame(s, first);
        first = false;
        if (is_final(&s->found)) {
            return;
        }
        passed = s->found.n ? s->found : passed;
    }
    s->found = passed;
}

/* ---------------------------------------------------------------- hooks */

static const char *lambda_store(struct search *s, const char *code)
{
    const char *lambda = strstr(code, "lambda "), *colon = lambda ? strchr(lambda, ':') : NULL;
    struct site_store store;
    if (!colon) {
        return NULL;
    }
    const char *body = colon + 1 + (colon[1] == ' ');
    size_t n = strlen(body);
    while (n && body[n - 1] == ')' &&
           !site_store_of(s->scratch, arena_printf(s->scratch, "%.*s", (int)n, body), &store)) {
        n--;
    }
    struct site_names arguments = {.n = 0};
    site_targets_of(s->scratch, arena_printf(s->scratch, "%.*s", (int)(colon - lambda - 7), lambda + 7), &arguments,
                    NULL);
    return n && site_store_of(s->scratch, arena_printf(s->scratch, "%.*s", (int)n, body), &store) && !store.weak &&
                   !site_is_host_value(store.value, s->graph) && site_holds(store.value, &arguments, s->graph)
               ? store.into
               : NULL;
}

/* def hook(self, module, inputs, output): what it stores of its arguments. */
static void read_hook(struct search *s, const char *name, size_t length)
{
    for (size_t i = 0; i < s->code.n; i++) {
        const char *code = s->code.list[i].code;
        if (!is_function(&s->code.list[i]) || strncmp(code, "def ", 4) != 0 || strncmp(code + 4, name, length) != 0 ||
            code[4 + length] != '(') {
            continue;
        }
        s->at = s->from = i + 1;
        s->to = site_code_end(&s->code, i);
        s->module = false;
        s->names.n = s->objects.n = 0;
        site_targets_of(s->scratch, code + 4 + length, &s->names, NULL);
        for (size_t k = i + 1; k < s->to; k++) {
            s->at = s->code.n; /* no statement is the call itself */
            read_statement(s, k);
        }
    }
}

static void read_hooks(struct search *s)
{
    for (size_t i = 0; i < s->code.n; i++) {
        const char *code = s->code.list[i].code, *hook = strstr(code, "_hook(");
        if (!hook || !strstr(code, ".register_")) {
            continue;
        }
        const char *name = hook + 6;
        name += strncmp(name, "self.", 5) == 0 ? 5 : 0;
        const size_t n = site_name_length(name);
        if (lambda_store(s, code)) {
            add(&s->found, (struct candidate){.frame = s->frame, .code = s->code, .at = i});
        } else if (n && name[n] == ')') {
            read_hook(s, name, n);
        }
    }
    for (size_t i = 0; i < s->found.n && i < FOUND_MAX; i++) {
        s->found.list[i].why = "the only hook of the program that stores what a module returns";
    }
}

static void find_hooks(struct search *s, uint32_t stack)
{
    const struct run_frame *frame;
    const char *last = NULL;
    bool module = false;
    for (; (frame = run_stack_frame(s->b->run, stack)) != NULL; stack = run_stack_parent(s->b->run, stack)) {
        const char *file = frame->kind == GS_FRAME_PYTHON && frame->file ? frame->file : "";
        module = module || strstr(file, "/torch/nn/modules/module.py");
        if (module && *file && file != last && !site_is_library_file(file) && open_frame(s, frame)) {
            read_hooks(s);
            last = file;
        }
    }
}

/* ---------------------------------------------------------------- the answer */

/* Without a trailing comment. */
static size_t code_length(const char *line)
{
    char quote = 0;
    size_t n = 0;
    for (size_t i = 0; line[i] && (quote || line[i] != '#'); i++) {
        const bool ends = quote ? line[i] == quote : line[i] == '"' || line[i] == '\'';
        quote = !ends ? quote : quote ? 0 : line[i];
        i += line[i] == '\\' && line[i + 1];
        n = line[i] == ' ' ? n : i + 1;
    }
    return n;
}

static struct result_holder holder_of(struct search *s, const struct candidate *c, size_t n)
{
    enum { TEXT_MAX = 160 };
    const struct site_statement *st = &c->code.list[c->at];
    const struct run_source_text *text = run_source_text(s->b->run, c->frame->file);
    char line[TEXT_MAX], function[128];
    const char *from = (size_t)st->line <= text->n ? text->lines[st->line - 1] : "";
    from += strspn(from, " \t\f");
    terminal_clean(line, sizeof line, arena_printf(s->scratch, "%.*s", (int)code_length(from), from), true);
    terminal_clean(function, sizeof function, c->frame->function, true);
    const bool own = strncmp(c->why, "in ", 3) != 0 && strncmp(c->why, "of ", 3) != 0;
    return (struct result_holder){.file = c->frame->file,
                                  .line = st->line,
                                  .function = *function ? arena_printf(s->b->arena, "%s", function) : NULL,
                                  .text = arena_printf(s->b->arena, "%s", line),
                                  .why = own      ? arena_printf(s->b->arena, "%s", c->why)
                                         : n == 1 ? arena_printf(s->b->arena, "the only statement %s", c->why)
                                                  : arena_printf(s->b->arena, "one of two statements %s", c->why)};
}

static void drop_weak(struct candidates *found)
{
    size_t strong = 0, n = 0;
    for (size_t i = 0; i < found->n && i < FOUND_MAX; i++) {
        strong += !found->list[i].weak;
    }
    for (size_t i = 0; strong && i < found->n && i < FOUND_MAX; i++) {
        if (!found->list[i].weak) {
            found->list[n++] = found->list[i];
        }
    }
    found->n = strong && found->n <= FOUND_MAX ? n : found->n;
}

size_t site_find_holders(struct site_builder *b, uint32_t stack, bool graph, struct result_holder **holders)
{
    struct search *s = arena_realloc(NULL, 1, sizeof *s);
    struct arena scratch = {0};
    *s = (struct search){.b = b, .scratch = &scratch, .graph = graph, .budget = BUDGET};
    walk(s, stack);
    if (!s->found.n) {
        s->found = s->kept_errors;
    }
    if (!s->found.n) {
        find_hooks(s, stack);
    }
    drop_weak(&s->found);
    const size_t n =
        s->found.n <= RESULT_HOLDERS && s->budget > 0 ? s->found.n : 0; /* otherwise not everything was examined */
    *holders = n ? arena_alloc(b->arena, n * sizeof **holders) : NULL;
    for (size_t i = 0; i < n; i++) {
        (*holders)[i] = holder_of(s, &s->found.list[i], n);
    }
    arena_free(&scratch);
    free(s);
    return n;
}

const char *site_holders_text(struct site_builder *b, const struct result_holder *holders, size_t n)
{
    const char *text = "";
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(holders[i].file, '/');
        char file[128];
        terminal_clean(file, sizeof file, slash ? slash + 1 : holders[i].file, true);
        text = arena_printf(b->arena, "%s%s%s:%d `%s`", text, i ? " or " : "", file, holders[i].line, holders[i].text);
    }
    return text;
}
