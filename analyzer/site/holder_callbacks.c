/* Functions that the program does not call itself: hooks of modules, callbacks and handlers of a library. */
#include "analyzer/base/text.h"
#include "analyzer/site/holder_read.h"

#include <string.h>

struct hook_scope { /* statements in which its function may be: those of a class, or all */
    size_t from, to;
};

/* def hook(self, module, inputs, output): finds which of its arguments it stores. `makes`: which of their arguments the
 * functions that it defines store. */
static void read_hook(struct site_search *s, const char *name, size_t length, bool makes, const struct hook_scope *in)
{

    for (size_t i = in->from; i < in->to; i++) {
        const char *code = s->code.list[i].code;
        if (!site_is_function(&s->code.list[i]) || strncmp(code, "def ", 4) != 0 ||
            strncmp(code + 4, name, length) != 0 || code[4 + length] != '(')
            continue;
        s->at = s->from = i + 1;
        s->to = site_code_end(&s->code, i);
        s->module = s->constructs = false;
        s->names.n = s->views.n = s->objects.n = s->owners.n = 0;
        for (size_t k = makes ? i + 1 : i; k < s->to; k++) {
            if (site_is_function(&s->code.list[k]))
                site_targets_of(s->scratch, s->code.list[k].code + strcspn(s->code.list[k].code, "("), &s->names, NULL);
            s->at = s->code.n; /* none of the statements is the call itself */
            site_read_statement(s, k);
        }
    }
}

/* register_forward_hook(self), (Recorder(name)), (recorder) of an object whose class the program defines. */
static bool is_called_as_function(struct site_search *s, const char *name)
{
    struct site_search in = *s;
    size_t def;
    const char *class = *site_find_class_of(s, name) ? site_find_class_of(s, name) : name;
    return strcmp(name, "self") == 0 || site_find_method(&in, class, "__call__", &def);
}

/* Does a method other than the constructor assign the attribute, and does an innermost loop call that method? */
static bool is_reset_each_time(struct site_search *s, const char *into)
{
    const char *made = arena_printf(s->scratch, "self.%s = ", text_last_part(into));
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        const size_t def = site_code_parent(&s->code, i);
        const char *function = def < s->code.n ? s->code.list[def].code : "", *name = function + 4;
        if (strncmp(s->code.list[i].code, made, strlen(made)) != 0 || strncmp(function, "def ", 4) != 0) continue;
        const char *method = arena_printf(s->scratch, "%.*s", (int)site_name_length(name), name);
        const char *call = arena_printf(s->scratch, ".%s(", method);
        for (size_t k = 0; k < s->code.n && !site_is_constructor(method); k++) {
            const size_t loop = strstr(s->code.list[k].code, call) ? site_common_loop(s, k, k) : s->code.n;
            size_t in = loop + 1;
            while (loop < s->code.n && in < site_code_end(&s->code, loop) && !site_is_loop(&s->code.list[in])) in++;
            if (loop < s->code.n && in == site_code_end(&s->code, loop)) return true;
        }
    }
    return false;
}

/* self.out[self.name] = output: one item for each hook. */
static void drop_replaced(struct site_search *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->found.n && i < SITE_FOUND_MAX; i++) {
        const struct site_candidate c = s->found.list[i];
        const char *index = c.into ? strchr(c.code.list[c.at].code, '[') : NULL;
        const bool own = c.keyed && index && strncmp(index, "[self.", 6) == 0;
        if (!own && (!c.into || !is_reset_each_time(s, c.into))) s->found.list[n++] = c;
    }
    s->found.n = n;
}

static size_t outermost_block(const struct site_code *code, size_t i)
{
    size_t outer = i;
    for (size_t k = i; k < code->n; k = site_code_parent(code, k)) outer = k;
    return outer;
}

static struct hook_scope scope_of_class(const struct site_search *s, size_t i)
{
    const size_t outer = outermost_block(&s->code, i);
    return (struct hook_scope){outer, site_code_end(&s->code, outer)};
}

/* Does the class replace the constructor, or a method that the statement names: register_forward_hook(self.save)? */
static bool class_overrides(struct site_search *s, const struct site_code *code, size_t class, const char *registers)
{
    bool constructor = false, calls_base = false, other = false;
    for (size_t k = class + 1; k < site_code_end(code, class); k++) {
        const char *text = code->list[k].code, *name = strncmp(text, "def ", 4) == 0 ? text + 4 : "";
        constructor = constructor || strncmp(name, "__init__(", 9) == 0;
        calls_base = calls_base || strstr(text, ".__init__(");
        other = other || (*name && site_find_name(registers, arena_printf(s->scratch, "self.%.*s",
                                                                          (int)site_name_length(name), name)));
    }
    return other || (constructor && !calls_base);
}

/* class Cam(base.Taps, Other): adds Cam if one of its bases is among the names. */
static void add_subclass(struct site_search *s, const struct site_code *code, size_t class, const char *registers,
                         struct site_names *names)
{
    const char *text = code->list[class].code, *base;
    const char *name = strncmp(text, "class ", 6) == 0 ? text + 6 : "", *open = name + site_name_length(name);
    if (!*name || *open != '(' || class_overrides(s, code, class, registers)) return;
    const char *bases = arena_printf(s->scratch, "%.*s", (int)(site_closing(open) - open - 1), open + 1);
    for (size_t k = 0; *(base = site_part_of(s->scratch, bases, k)); k++)
        if (site_names_has(names, text_last_part(base)) && names->n < SITE_NAMES)
            site_names_add(s->scratch, names, name, site_name_length(name));
}

static bool calls_one_of(struct site_search *s, const struct site_code *code, const struct site_names *names)
{
    bool calls = false;
    for (size_t n = 0; n < names->n && !calls; n++) {
        const char *call = arena_printf(s->scratch, "%s(", names->list[n]),
                   *made = arena_printf(s->scratch, "defaultdict(%s)", names->list[n]),
                   *factory = arena_printf(s->scratch, "default_factory=%s)", names->list[n]);
        for (size_t k = 0; k < code->n && !calls; k++) {
            const char *text = code->list[k].code, *p = strstr(text, call);
            calls = (p && (p == text || !site_is_name_character(p[-1])) && strncmp(text, "class ", 6) != 0) ||
                    strstr(text, made) || strstr(text, factory);
        }
    }
    return calls;
}

static bool defines_class(const char *code, const char *name)
{
    const char *of = strncmp(code, "class ", 6) == 0 ? code + 6 : "";
    return *of && strlen(name) == site_name_length(of) && strncmp(of, name, strlen(name)) == 0;
}

/* Do the files call the class, one that derives from it, or the function that contains statement i? */
bool site_is_used(struct site_search *s, size_t i, const struct site_files *files)
{
    const size_t outer = outermost_block(&s->code, i);
    const char *code = s->code.list[outer].code, *name = strchr(code, ' ');
    if (!name || (strncmp(code, "class ", 6) != 0 && strncmp(code, "def ", 4) != 0)) return outer == i;
    struct site_names names = {.n = 0};
    site_names_add(s->scratch, &names, name + 1, site_name_length(name + 1));
    const char *registers = s->code.list[i].code;
    for (size_t k = 0; k < s->code.n; k++) add_subclass(s, &s->code, k, registers, &names);
    bool used = false;
    for (size_t f = 0; f < files->n && !used; f++) {
        const struct site_code *of = &files->list[f].code;
        if (files->list[f].frame->file != s->frame->file &&
            ANY_OF(l, of->list, of->n, defines_class(l->code, names.list[0])))
            continue; /* another one of that name */
        for (size_t k = 0; k < of->n; k++) add_subclass(s, of, k, registers, &names);
        used = calls_one_of(s, of, &names);
    }
    return used;
}

/* Does a statement outside of constructors empty the attribute, or assign it? */
static bool is_emptied_outside(struct site_search *s, const struct site_code *code, const char *attribute)
{
    const char *const resets[] = {
        arena_printf(s->scratch, ".%s = ", attribute), arena_printf(s->scratch, ".%s.clear(", attribute),
        arena_printf(s->scratch, ".%s.pop", attribute), arena_printf(s->scratch, ".%s[:] =", attribute)};
    for (size_t k = 0; k < code->n; k++) {
        const size_t def = site_code_parent(code, k);
        const char *function = def < code->n ? code->list[def].code : "";
        if (ANY_OF(r, resets, COUNT_OF(resets), strstr(code->list[k].code, *r)) &&
            strncmp(function, "def __init__(", 13) != 0)
            return true;
    }
    return false;
}

/* self.rewards, self.values = [], [] */
static bool makes_empty(struct site_search *s, const char *code, const char *attribute)
{
    static const char *const none[] = {"[]", "{}", "()", "list()", "dict()", "set()", "deque()"};
    struct site_assignment a;
    struct site_names made = {.n = 0};
    if (!site_assignment_of(s->scratch, code, &a)) return false;
    site_targets_of(s->scratch, a.targets, &made, NULL);
    for (size_t k = 0; k < made.n; k++) {
        const char *part = site_part_of(s->scratch, a.value, k), *value = *part ? part : a.value;
        if (strchr(made.list[k], '.') && strcmp(text_last_part(made.list[k]), attribute) == 0)
            return TEXT_IS_ONE_OF(value, none);
    }
    return false;
}

/* Does the file call the function that contains statement i, other than from a constructor? */
static bool is_called_later(struct arena *scratch, const struct site_code *code, size_t i)
{
    size_t def = i;
    while (def < code->n && !site_is_function(&code->list[def])) def = site_code_parent(code, def);
    const char *name = def < code->n ? strstr(code->list[def].code, "def ") : NULL;
    if (!name || strncmp(name, "def __init__(", 13) == 0) return !name;
    const char *call = arena_printf(scratch, ".%.*s(", (int)site_name_length(name + 4), name + 4);
    for (size_t k = 0; k < code->n; k++) {
        const size_t in = site_code_parent(code, k);
        const bool constructs = in < code->n && strncmp(code->list[in].code, "def __init__(", 13) == 0;
        if (strstr(code->list[k].code, call) && !constructs) return true;
    }
    return false;
}

void site_drop_renewed(struct site_search *s)
{
    bool renewed[SITE_FOUND_MAX] = {false};
    size_t those = 0, n = 0;
    if (s->found.n > SITE_FOUND_MAX) return;
    for (size_t c = 0; c < s->found.n; c++) {
        const struct site_code *code = &s->found.list[c].code;
        const char *into = s->found.list[c].into;
        for (size_t i = 0; into && strchr(into, '.') && i < code->n && !renewed[c] && s->budget-- > 0; i++)
            renewed[c] =
                makes_empty(s, code->list[i].code, text_last_part(into)) && is_called_later(s->scratch, code, i);
        those += renewed[c];
    }
    for (size_t c = 0; those < s->found.n && c < s->found.n; c++)
        if (!renewed[c]) s->found.list[n++] = s->found.list[c];
    s->found.n = n ? n : s->found.n;
}

/* Removes what the hooks of another file store if the program removes the hooks or empties the attribute. */
static void drop_ended(struct site_search *s, size_t from, const struct site_files *own)
{
    const bool removed = ANY_OF(l, s->code.list, s->code.n, strstr(l->code, ".remove()"));
    size_t n = from;
    for (size_t i = from; i < s->found.n && i < SITE_FOUND_MAX; i++) {
        const struct site_candidate c = s->found.list[i];
        const char *attribute = c.into ? text_last_part(c.into) : "";
        bool emptied = removed || (*attribute && is_emptied_outside(s, &s->code, attribute));
        for (size_t f = 0; f < own->n && *attribute; f++)
            emptied = emptied || is_emptied_outside(s, &own->list[f].code, attribute);
        if (!emptied) s->found.list[n++] = c;
    }
    s->found.n = n;
}

/* net.register_forward_hook(f) in a loop that makes net? */
static bool is_of_new_module(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code, *dot = strstr(code, ".register_"), *from = dot;
    const size_t loop = site_common_loop(s, i, i);
    while (from && from > code && (site_is_name_character(from[-1]) || from[-1] == '.')) from--;
    return from && loop < s->code.n &&
           site_is_made_in(s, arena_printf(s->scratch, "%.*s", (int)(dot - from), from), loop + 1,
                           site_code_end(&s->code, loop));
}

/* maps = []; layer.register_forward_hook(lambda m, i, o: maps.append(o)): each call adds a hook with a list of its own.
 */
static bool has_own_list(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code, *lambda = strstr(code, "lambda");
    const char *store = lambda ? strstr(lambda, ".append(") : NULL, *from = store;
    size_t def = i;
    while (def < s->code.n && !site_is_function(&s->code.list[def])) def = site_code_parent(&s->code, def);
    if (!store || def == s->code.n || strstr(s->code.list[def].code, "__init__(") ||
        strncmp(code + site_name_length(code), " = ", 3) == 0)
        return false;
    while (from > lambda && site_is_name_character(from[-1])) from--;
    return site_is_made_in(s, arena_printf(s->scratch, "%.*s", (int)(store - from), from), def + 1,
                           site_code_end(&s->code, def));
}

/* `files`: those that use what this file registers; NULL: it uses it itself. */
static void read_hooks(struct site_search *s, const struct site_files *files)
{
    for (size_t i = 0; i < s->code.n; i++) {
        const char *code = s->code.list[i].code, *hook = strstr(code, ".register_") ? strstr(code, "_hook(") : NULL;
        const bool saved = !hook && (hook = strstr(code, "saved_tensors_hooks(")) != NULL;
        if (!hook || (files && !site_is_used(s, i, files))) continue;
        const char *name = strstr(hook, "partial(");
        name = name ? name + 8 : strchr(hook, '(') + 1;
        size_t n = site_name_length(name);
        const char *dot = n ? memrchr(name, '.', n) : NULL; /* self.save, tracker.save */
        n -= dot ? (size_t)(dot + 1 - name) : 0;
        const struct hook_scope all = {0, s->code.n}, own = scope_of_class(s, i);
        s->hook = !is_of_new_module(s, i);
        const bool self = dot && dot - name == 4 && strncmp(name, "self", 4) == 0;
        name = dot ? dot + 1 : name;
        if (site_lambda_store(s->scratch, code, s->graph && !saved))
            site_add_candidate(&s->found,
                               (struct site_candidate){.frame = s->frame,
                                                       .code = s->code,
                                                       .at = i,
                                                       .instead = has_own_list(s, i) ? site_hook_advice : NULL});
        else if (!dot && is_called_as_function(s, arena_printf(s->scratch, "%.*s", (int)n, name)))
            read_hook(s, "__call__", strlen("__call__"), false, &all);
        else if (n && strchr("(,)", name[n]))
            read_hook(s, name, n, name[n] == '(', self ? &own : &all);
    }
    s->hook = false;
    if (s->found.n <= SITE_FOUND_MAX) drop_replaced(s);
    for (size_t i = 0; i < s->found.n && i < SITE_FOUND_MAX; i++)
        s->found.list[i].why = "the only hook of the program that stores its arguments";
}

void site_find_hooks(struct site_search *s, uint32_t stack)
{
    const struct run_frame *frame;
    const char *last = NULL;
    bool module = false;
    for (; (frame = run_stack_frame(s->b->run, stack)) != NULL; stack = run_stack_parent(s->b->run, stack)) {
        const char *file = frame->kind == GS_FRAME_PYTHON && frame->file ? frame->file : "";
        module = module || strstr(file, "/torch/nn/modules/module.py") || strstr(file, "/torch/autograd/");
        if (module && *file && file != last && !site_is_library(frame) && site_open_frame(s, frame)) {
            read_hooks(s, NULL);
            last = file;
        }
    }
    if (!module || s->found.n) return;
    struct site_files own, imported;
    site_find_files(s, s->stack, &own);
    imported = own;
    site_find_imported(s, &imported);
    for (size_t k = 0; k < imported.n; k++) { /* a class of another file registers them */
        s->frame = imported.list[k].frame;
        s->code = imported.list[k].code;
        const size_t before = s->found.n;
        read_hooks(s, &own);
        drop_ended(s, before, &own);
    }
}

/* Is the method called in the file? A method of an object of a library's class is another one. */
static bool is_method_called(struct site_search *s, const char *name, size_t length)
{
    for (size_t i = 0; i < s->code.n; i++) {
        const char *code = s->code.list[i].code;
        for (const char *p = strstr(code, name); p; p = strstr(p + 1, name)) {
            if (p == code || p[-1] != '.' || p[length] != '(') continue;
            const char *from = p - 1;
            while (from > code && site_name_length(from - 1) > site_name_length(from)) from--;
            struct site_search in = *s;
            size_t def;
            const char *class = site_find_class_of(s, arena_printf(s->scratch, "%.*s", (int)(p - 1 - from), from));
            if (!*class || site_find_method(&in, class, name, &def)) return true;
        }
    }
    return false;
}

/* trainer.on(EPOCH, store), pipe(prompt, callback=store), @trainer.on(EPOCH) above it: is the function passed to a
 * library and not called by the program itself? */
static bool is_handed_over(struct site_search *s, size_t def, const char *name, size_t n)
{
    const char *above = def ? s->code.list[def - 1].code : "", *open = *above == '@' ? strchr(above, '(') : NULL;
    const char *base =
        open ? site_base_name(s->scratch, arena_printf(s->scratch, "%.*s", (int)(open - above), above + 1)) : "";
    bool passed = *base && *site_find_class_of(s, base), called = false;
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        for (const char *p = i == def ? NULL : strstr(code, name); p; p = strstr(p + 1, name)) {
            if (p == code || !strchr("(, =", p[-1])) continue;
            called = called || p[n] == '(';
            passed = passed || (p[n] && strchr(",)", p[n]) && site_bracket_around(code, p));
        }
        called = called || (strncmp(code, name, n) == 0 && code[n] == '(');
    }
    return passed && !called;
}

/* def on_train_batch_end(self, trainer, module, outputs, batch), of a class whose base is in another file. */
static bool is_overriding(struct site_search *s, size_t def, const char *name, size_t n)
{
    const size_t class = site_code_parent(&s->code, def);
    const char *bases = class < s->code.n ? s->code.list[class].code : "";
    size_t constructor;
    struct site_search in = *s;
    bases = strncmp(bases, "class ", 6) == 0 ? strchr(bases, '(') : NULL;
    return bases && bases[1] != ')' && !site_is_constructor(name) && !is_method_called(s, name, n) &&
           !site_find_method(&in, arena_printf(s->scratch, "%.*s", (int)site_name_length(bases + 1), bases + 1),
                             "__init__", &constructor);
}

/* A library passes what it allocates, or what the program returns to it, to methods that override its own and to
 * functions that it was given. */
void site_find_callbacks(struct site_search *s, uint32_t stack)
{
    const struct run_frame *frame;
    bool library = s->given;
    for (; (frame = run_stack_frame(s->b->run, stack)) != NULL; stack = run_stack_parent(s->b->run, stack)) {
        if (frame->kind != GS_FRAME_PYTHON) continue;
        if (!site_is_library(frame)) break;
        library = library || site_is_beyond_torch(frame);
    }
    if (!library || !frame || !site_open_frame(s, frame)) return;
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        const size_t n = strncmp(code, "def ", 4) == 0 ? site_name_length(code + 4) : 0;
        const char *name = arena_printf(s->scratch, "%.*s", (int)n, code + 4);
        if (n && (is_overriding(s, i, name, n) || is_handed_over(s, i, name, n)))
            read_hook(s, name, n, false, &(struct hook_scope){0, s->code.n});
    }
    for (size_t i = 0; i < s->found.n && i < SITE_FOUND_MAX; i++)
        s->found.list[i].why = "a library calls the function, which stores its arguments";
}

/* self.learn.pred of a statement: does it mention an attribute of that name, of another object than self? */
static bool has_attribute(const struct site_search *s, const char *value, const char *attribute)
{
    const size_t n = strlen(attribute);
    for (const char *p = strchr(value, '.'); p; p = strchr(p + 1, '.')) {
        const bool self = p - value >= 4 && strncmp(p - 4, "self", 4) == 0 && (p - value == 4 || p[-5] != '.');
        if (strncmp(p, attribute, n) == 0 && !site_name_length(p + n) && p[n] != '(' && p[n] != '.' && !self)
            return !site_is_host_value(value, s->graph);
    }
    return false;
}

/* self.pred = model(x) in one class, self.preds.append(self.learn.pred) in another, which refers to its object. */
void site_find_attribute_stores(struct site_search *s, uint32_t stack)
{
    const struct run_frame *frame;
    for (; (frame = run_stack_frame(s->b->run, stack)) != NULL && s->kept.n;
         stack = run_stack_parent(s->b->run, stack)) {
        if (frame->kind != GS_FRAME_PYTHON || site_is_library(frame) || !site_open_frame(s, frame)) continue;
        for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
            struct site_store store;
            if (!site_store_of(s->scratch, s->code.list[i].code, &store) || store.weak) continue;
            for (size_t k = 0; k < s->kept.n; k++)
                if (has_attribute(s, store.value, strchr(s->kept.list[k], '.')))
                    site_add_candidate(&s->found, (struct site_candidate){.frame = s->frame,
                                                                          .code = s->code,
                                                                          .at = i,
                                                                          .why = "the only statement that stores an "
                                                                                 "attribute of that name of another "
                                                                                 "object"});
        }
        if (s->found.n) break;
    }
    s->found.n = s->found.n == 1 ? 1 : 0;
}
