/* What a line passes to a model, and to which.
 *
 * A loop that passes the same data in each iteration, such as a whole graph or a set of points, has no batch to halve.
 * If no optimizer is given the parameters of the model that is called, such as a teacher, its pass needs no graph. */
#include "analyzer/site/source_input.h"

#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_context.h"

struct site_call {
    struct site_code code;
    size_t at, loop, function; /* the statement; the innermost loop around it, and its function: code.n if none */
};

static void find_blocks(struct site_call *c)
{
    c->loop = c->function = c->code.n;
    for (size_t k = site_code_parent(&c->code, c->at); k < c->code.n; k = site_code_parent(&c->code, k)) {
        const struct site_statement *header = &c->code.list[k];
        if (site_code_begins(header, "def") || strncmp(header->code, "async def ", 10) == 0) {
            c->function = k;
            return;
        }
        const bool loops = site_code_begins(header, "for") || site_code_begins(header, "while");
        c->loop = loops && c->loop == c->code.n ? k : c->loop;
    }
}

/* The names that the statement passes on, and the functions that it calls. False: it may make new values: part of
 * another, a comprehension, next(). */
static bool read_passed_names(struct arena *arena, const char *code, struct site_names *names,
                              struct site_names *called)
{
    struct site_assignment a;
    const char *p = site_assignment_of(arena, code, &a) ? a.value : code;
    if (strchr(p, '[') || strstr(p, " for ") || strstr(p, "next(")) return false;
    while (*p) {
        const size_t n = site_name_length(p);
        size_t taken = n; /* of x.view(…): x */
        if (n && p[n] == '(') {
            while (taken && p[taken - 1] != '.') taken--;
            taken -= taken > 0;
        }
        if (n && !taken) site_names_add(arena, called, p, n);
        if (taken && !(p[n] == '=' && p[n + 1] != '=')) site_names_add(arena, names, p, taken);
        p += n ? n : 1;
    }
    return true;
}

/* Are they the same object, or is one an attribute of the other? */
static bool is_same_object(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n]) n++;
    return (!a[n] || a[n] == '.') && (!b[n] || b[n] == '.');
}

/* Does the statement assign one of the names? `value`: what. */
static bool binds_any(struct arena *arena, const struct site_statement *st, const struct site_names *names,
                      const char **value)
{
    struct site_assignment a;
    struct site_names made = {.n = 0};
    if (!site_binding_of(arena, st, &a)) return false;
    site_targets_of(arena, a.targets, &made, &made);
    *value = a.value;
    for (size_t i = 0; i < made.n; i++)
        for (size_t k = 0; k < names->n; k++)
            if (is_same_object(made.list[i], names->list[k])) return true;
    return false;
}

/* Data that is put on the GPU: not a device, nor a module, whose class begins with a capital letter, unless its name
 * ends with Data, as PyG's do. */
static bool is_device_data(const char *value)
{
    const size_t n = site_name_length(value);
    size_t from = n;
    while (from && value[from - 1] != '.') from--;
    const bool data = n >= from + 4 && strncmp(value + n - 4, "Data", 4) == 0;
    const bool class = value[n] == '(' && value[from] >= 'A' && value[from] <= 'Z' && !data;
    return !class && !strstr(value, "torch.device(") &&
           (strstr(value, "cuda") || strstr(value, ".to(") || strstr(value, "device="));
}

/* Is one of the names assigned in the loop, or in the function if no loop is in it? `entered`: one that is not was put
 * on the GPU earlier in this function, or at the top level of the file. */
static bool is_assigned_anew(struct arena *arena, const struct site_call *c, const struct site_names *names,
                             bool *entered)
{
    const size_t none = c->code.n, block = c->loop < none ? c->loop : c->function;
    const size_t end = block < none ? site_code_end(&c->code, block) : none;
    for (size_t i = 0; i < none; i++) {
        struct site_call other = {.code = c->code, .at = i};
        const char *value;
        if (!binds_any(arena, &c->code.list[i], names, &value)) continue;
        if (block < none && i >= block && i < end) return true;
        find_blocks(&other);
        const bool visible = other.function == none || other.function == c->function;
        *entered = *entered || (visible && is_device_data(value));
    }
    return false;
}

uint32_t site_pass_caller(const struct run *run, uint32_t stack)
{
    uint32_t caller = RUN_NONE;
    bool module = false;
    RUN_EACH_FRAME (frame, run, stack) {
        if (frame->kind != GS_FRAME_PYTHON) continue;
        const bool call = frame->file && strstr(frame->file, "/torch/nn/modules/module.py");
        caller = module && !call ? stack : caller;
        module = call;
    }
    return caller;
}

bool site_repeats_input(struct site_builder *b, uint32_t stack)
{
    const struct run_frame *frame;
    struct arena scratch = {0};
    bool looped = false, anew = false, entered = false;
    const uint32_t caller = site_pass_caller(b->run, stack);
    if (caller == RUN_NONE) /* a library's own modules */
        while ((frame = run_stack_frame(b->run, stack)) != NULL &&
               (frame->kind != GS_FRAME_PYTHON || site_is_library(frame)))
            stack = run_stack_parent(b->run, stack);
    else
        stack = caller;
    for (; !looped && !anew && (frame = run_stack_frame(b->run, stack)) != NULL;
         stack = run_stack_parent(b->run, stack)) {
        struct site_call c;
        struct site_names names = {.n = 0}, called = {.n = 0};
        if (frame->kind != GS_FRAME_PYTHON) continue;
        anew = site_is_library(frame) || !site_open_source(b, frame, &c.code, &c.at) ||
               !read_passed_names(&scratch, c.code.list[c.at].code, &names, &called);
        if (anew) break;
        find_blocks(&c);
        anew = is_assigned_anew(&scratch, &c, &names, &entered) ||
               is_assigned_anew(&scratch, &c, &called, &(bool){false}); /* for layer in layers: h = layer(x) */
        looped = c.loop < c.code.n;
    }
    arena_free(&scratch);
    return looped && !anew && entered;
}

/* Does the statement have `name` and then `rest`, as in teacher.eval() and self.teacher.eval()? */
static bool statement_has_object(const char *code, const char *name, const char *rest)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name))
        if ((p == code || !site_is_name_character(p[-1])) && strncmp(p + n, rest, strlen(rest)) == 0) return true;
    return false;
}

/* Does it pass the object itself on, as in fit(net)? */
static bool passes_object(const char *code, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name))
        if ((p == code || !site_is_name_character(p[-1])) && !site_is_name_character(p[n]) && p[n] != '.') return true;
    return false;
}

/* [student, teacher], for net in (student, teacher): another name may give it to an optimizer. */
static bool is_listed(const char *code, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name)) {
        if ((p > code && site_is_name_character(p[-1])) || !p[n] || !strchr(",])}", p[n])) continue;
        const char *open = site_bracket_around(code, p);
        if (open && (open == code || !(site_is_name_character(open[-1]) || strchr(")]", open[-1])))) return true;
    }
    return false;
}

/* Is its optimizer in the file, or is it put into training mode there? */
static bool is_trained(const struct site_code *code, const char *object)
{
    static const char *const trains[] = {".parameters(", ".named_parameters(", ".module.parameters(", ".train("};
    for (size_t i = 0; i < code->n; i++) {
        const char *text = code->list[i].code;
        for (size_t k = 0; k < COUNT_OF(trains); k++)
            if (statement_has_object(text, object, trains[k])) return true;
        if ((strstr(text, "optim") || strstr(text, "Optim")) && passes_object(text, object)) return true;
        if (is_listed(text, object)) return true;
    }
    return false;
}

/* Of self.teacher(x) and teacher(x): teacher; "" if no call begins at p. */
static const char *called_object(struct arena *arena, const char *p)
{
    const size_t n = site_name_length(p);
    size_t from = n;
    if (!n || p[n] != '(') return "";
    while (from && p[from - 1] != '.') from--;
    return arena_printf(arena, "%.*s", (int)(n - from), p + from);
}

static bool binds_object(struct arena *arena, const struct site_statement *st, const char *object,
                         struct site_assignment *a)
{
    struct site_names made = {.n = 0};
    if (!site_assignment_of(arena, st->code, a)) return false;
    site_targets_of(arena, a->targets, &made, NULL);
    return ANY_OF(l, made.list, made.n, strcmp(text_last_part(*l), object) == 0);
}

/* net = load().eval(), or net = load() and then net.eval(), before anything else gets it: a model that was trained, or
 * is evaluated now and then, is put into this mode elsewhere. */
static bool is_made_to_evaluate(struct arena *arena, const struct site_code *code, const char *object)
{
    const struct site_statement *fresh = NULL;
    EACH (st, code->list, code->n) {
        struct site_assignment a;
        if (binds_object(arena, st, object, &a)) {
            if (strstr(a.value, ".eval()")) return true;
            fresh = st;
        } else if (fresh && st->indent == fresh->indent && statement_has_object(st->code, object, ".eval()")) {
            return true;
        } else if (st->indent < (fresh ? fresh->indent : 0) || passes_object(st->code, object) ||
                   site_code_begins(st, "for") || site_code_begins(st, "while") || site_code_begins(st, "def")) {
            fresh = NULL;
        }
    }
    return false;
}

/* A model that only evaluates, or is named as one that is only compared with. */
static bool is_never_trained(struct arena *arena, const struct site_code *code, const char *object)
{
    const bool evaluates = strstr(object, "teacher") || strncmp(object, "ref_", 4) == 0 ||
                           strncmp(object, "reference", 9) == 0 || is_made_to_evaluate(arena, code, object);
    return evaluates && !is_trained(code, object);
}

/* vgg(fake) of fake = generator(z): the gradient of the generator passes through the other model. */
static bool is_result_of_trained(struct arena *arena, const struct site_code *code, const struct site_names *names)
{
    for (size_t i = 0; i < code->n; i++) {
        const char *value;
        if (!binds_any(arena, &code->list[i], names, &value)) continue;
        for (const char *p = value; *p; p += site_name_length(p) ? site_name_length(p) : 1) {
            const char *object = called_object(arena, p);
            if (*object && is_trained(code, object)) return true;
        }
    }
    return false;
}

/* How a call names the function of a frame: its name, or that of the class that a constructor belongs to. */
static const char *name_in_call(struct arena *arena, const char *function)
{
    static const char constructor[] = ".__init__";
    if (!text_ends_with(function, constructor)) return text_last_part(function);
    const size_t n = strlen(function) - (sizeof constructor - 1);
    return text_last_part(arena_printf(arena, "%.*s", (int)n, function));
}

struct called_models {
    uint32_t untrained; /* the line that calls a model that is never trained, or passes it to the function that does */
    bool trained;       /* another one is trained, or may be */
    unsigned calls;     /* statements that were read: net(a) + net(b) of a helper leads to its caller twice */
};
enum { CALLED_MAX = 64 };

/* The models that the statement calls. If one is a parameter of the function, those that its caller passes count. */
static void find_called_models(struct site_builder *b, struct arena *arena, uint32_t stack, const char *function,
                               int index, const char *parameter, struct called_models *models)
{
    const struct run_frame *frame = run_stack_frame(b->run, stack);
    struct site_call c;
    if (models->calls++ >= CALLED_MAX) models->trained = true;
    if (models->calls > CALLED_MAX || !frame || site_is_library(frame) || !site_open_source(b, frame, &c.code, &c.at))
        return;
    find_blocks(&c);
    const char *text = c.code.list[c.at].code;
    for (const char *p = text; *p; p += site_name_length(p) ? site_name_length(p) : 1) {
        const char *object = called_object(arena, p);
        if (*object && function)
            object = strcmp(object, function) == 0 ? text_last_part(site_argument_at(arena, p, index, parameter)) : "";
        const bool in_function = *object && c.function < c.code.n;
        const int given = in_function ? site_parameter_of(arena, c.code.list[c.function].code, object) : -1;
        if (given >= 0 && frame->function) {
            find_called_models(b, arena, run_stack_parent(b->run, stack), name_in_call(arena, frame->function), given,
                               object, models);
        } else if (*object) {
            models->trained = models->trained || is_trained(&c.code, object);
            models->untrained = is_never_trained(arena, &c.code, object) ? stack : models->untrained;
        }
    }
}

/* Is what self.teacher(x) gets data: neither trained itself, nor made by the object, nor in need of its gradient? */
static bool is_given_data(struct arena *arena, const struct site_code *code, const char *text,
                          const struct site_names *names)
{
    static const char *const kept[] = {"self.device", "self.to_device("};
    const char *passed = strchr(text, '(');
    bool data = !passed || !strstr(passed, "self.");
    for (size_t i = 0; i < names->n && data; i++)
        data = !is_trained(code, names->list[i]) &&
               !ANY_OF(st, code->list, code->n, statement_has_object(st->code, names->list[i], ".requires_grad"));
    for (size_t i = 0; i < code->n && data; i++) {
        const char *value;
        if (!binds_any(arena, &code->list[i], names, &value)) continue;
        data = !strstr(value, "requires_grad");
        for (const char *p = strstr(value, "self."); p && data; p = strstr(p + 1, "self."))
            data = ANY_OF(k, kept, COUNT_OF(kept), strncmp(p, *k, strlen(*k)) == 0);
    }
    return data;
}

uint32_t site_untrained_call(struct site_builder *b, uint32_t stack)
{
    const uint32_t caller = site_pass_caller(b->run, stack);
    const struct run_frame *frame = run_stack_frame(b->run, caller);
    struct arena scratch = {0};
    struct site_code code;
    struct site_names names = {.n = 0}, called = {.n = 0};
    struct called_models models = {.untrained = RUN_NONE};
    size_t at;
    if (!frame || site_is_library(frame) || !site_open_source(b, frame, &code, &at)) return RUN_NONE;
    find_called_models(b, &scratch, caller, NULL, -1, "", &models);
    (void)read_passed_names(&scratch, code.list[at].code, &names, &called);
    const size_t passed = names.n;
    for (size_t k = names.n; k-- > 0;) /* self.teacher(x) passes x */
        if (strcmp(names.list[k], "self") == 0) names.list[k] = names.list[--names.n];
    const bool only = models.untrained != RUN_NONE && !models.trained &&
                      !is_result_of_trained(&scratch, &code, &names) &&
                      (names.n == passed || is_given_data(&scratch, &code, code.list[at].code, &names));
    arena_free(&scratch);
    return only && !site_is_without_gradients(b, stack) ? models.untrained : RUN_NONE;
}
