/* Calls of a library's functions that keep what they are given, by name or because their object is a library's. */
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/site/holder_read.h"

#include <string.h>
#include <strings.h>

/* object.method(…, x) keeps x if the object is `object`, or what such a call makes, unless one of its methods `ends`
 * that. */
static const struct keeper {
    const char *methods, *object, *ends, *why, *instead;
} keepers[] = {
    {" callback push_async_callback ", "ExitStack(", " close aclose pop_all ",
     "an ExitStack keeps the arguments of its callbacks until it is closed",
     "pass a number (`.item()`) or a copy on the host (`.detach().cpu()`) to the callback, or close the stack after "
     "each "
     "step"},
    {" register ", "atexit", " unregister ", "atexit keeps the arguments until the program ends",
     "pass a number (`.item()`) or a copy on the host (`.detach().cpu()`) instead"},
    {" debug info warning error critical exception ", "getLogger(", "",
     "a handler of the file keeps log records, and each refers to its arguments",
     "log a number (`.item()`) or text (an f-string) instead of the tensor"},
};

static bool statement_has_one_of(const char *code, const char *const *words)
{
    for (size_t k = 0; words[k]; k++)
        if (strstr(code, words[k])) return true;
    return false;
}

/* `self.records.append(record)` of emit(self, record), if the file never removes one and bounds no deque. */
static bool is_record_kept(struct site_search *s, size_t i)
{
    static const char *const others[] = {"maxlen", ".clear(", ".pop", " record = ", "record.args", NULL};
    const size_t def = site_code_parent(&s->code, i);
    if (!strstr(s->code.list[i].code, ".append(record)") || def >= s->code.n ||
        strncmp(s->code.list[def].code, "def emit(", 9) != 0)
        return false;
    for (size_t k = 0; k < s->code.n && s->budget-- > 0; k++)
        if (statement_has_one_of(s->code.list[k].code, others) || strncmp(s->code.list[k].code, "record = ", 9) == 0 ||
            strncmp(s->code.list[k].code, "del ", 4) == 0)
            return false;
    return true;
}

/* MemoryHandler(10, target=h) passes its records on when it has ten, but keeps all of them without a target. */
static bool is_buffer_kept(struct site_search *s, const char *code)
{
    enum { MANY = 5 }; /* digits */
    const char *made = strstr(code, "MemoryHandler("), *capacity = made ? strchr(made, '(') + 1 : "";
    bool targets = false;
    capacity += strncmp(capacity, "capacity=", 9) == 0 ? 9 : 0;
    for (size_t k = 0; made && k < s->code.n && s->budget-- > 0; k++)
        targets = targets || strstr(s->code.list[k].code, "arget");
    return made && (strspn(capacity, "0123456789_") >= MANY || !targets);
}

/* Is there a record of debug() and info() at all? Only if the file sets a level that low. */
static bool makes_records(struct site_search *s, const char *method)
{
    static const char *const all[] = {"DEBUG", "NOTSET", "(10)", "=10", "(1)", "(0)", NULL};
    static const char *const most[] = {"INFO", "(20)", "=20", NULL};
    const bool info = strcmp(method, " info ") == 0;
    bool makes = !info && strcmp(method, " debug ") != 0;
    for (size_t i = 0; i < s->code.n && !makes && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        makes = (strstr(code, "setLevel(") || strstr(code, "basicConfig(")) &&
                (statement_has_one_of(code, all) || (info && statement_has_one_of(code, most)));
    }
    return makes;
}

static bool keeps_records(struct site_search *s)
{
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++)
        if (is_buffer_kept(s, s->code.list[i].code) || is_record_kept(s, i)) return true;
    return false;
}

/* Is the object made by that call, as in `with ExitStack() as stack` and `self.stack = ExitStack()`? */
static bool is_made_by(struct site_search *s, const char *object, const char *call)
{
    const bool local = !s->module && site_is_made_in(s, object, s->from, s->to);
    for (size_t i = local ? s->from : 0; i < (local ? s->to : s->code.n) && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!strstr(s->code.list[i].code, call) || !site_binding_of(s->scratch, &s->code.list[i], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (site_names_has(&made, object)) return true;
    }
    return false;
}

static bool is_object_of(struct site_search *s, const struct keeper *keeper, const char *object, const char *method)
{
    const char *maker = keeper->object;
    if (strcmp(maker, "getLogger(") != 0) return strcmp(object, maker) == 0 || is_made_by(s, object, maker);
    /* a logger of another module has a name that begins so */
    return (strncasecmp(text_last_part(object), "log", 3) == 0 || is_made_by(s, object, maker)) &&
           makes_records(s, method) && keeps_records(s);
}

/* stack.close() in the same loop, or, if none is known, anywhere */
static bool is_ended(struct site_search *s, const struct keeper *keeper, const char *object, size_t loop)
{
    const char *start = arena_printf(s->scratch, "%s.", object);
    for (size_t k = loop < s->code.n ? loop : 0;
         k < (loop < s->code.n ? site_code_end(&s->code, loop) : s->code.n) && s->budget-- > 0; k++)
        for (const char *p = strstr(s->code.list[k].code, start); p; p = strstr(p + 1, start)) {
            const char *method = p + strlen(start);
            if (strstr(keeper->ends, arena_printf(s->scratch, " %.*s ", (int)site_name_length(method), method)))
                return true;
        }
    return false;
}

static bool consider_keeper(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code;
    const size_t n = site_name_length(code);
    const char *dot = n ? memrchr(code, '.', n) : NULL, *end = dot && code[n] == '(' ? site_closing(code + n) : "";
    if (*end != ')' || end[1]) return false;
    const char *method = arena_printf(s->scratch, " %.*s ", (int)(code + n - dot - 1), dot + 1);
    const char *object = arena_printf(s->scratch, "%.*s", (int)(dot - code), code);
    const char *arguments = arena_printf(s->scratch, "%.*s", (int)(end - code - (long)n - 1), code + n + 1);
    for (size_t k = 0; k < sizeof keepers / sizeof *keepers; k++) {
        const struct keeper *keeper = &keepers[k];
        if (!strstr(keeper->methods, method) || !is_object_of(s, keeper, object, method) ||
            !site_value_holds(s, i, arguments))
            continue;
        const size_t loop = site_common_loop(s, s->at, i);
        if (is_ended(s, keeper, object, loop) ||
            (loop < s->code.n && site_is_made_in(s, object, loop, site_code_end(&s->code, loop))))
            return true;
        site_add_candidate(
            &s->found,
            (struct site_candidate){
                .frame = s->frame, .code = s->code, .at = i, .why = keeper->why, .instead = keeper->instead});
        return true;
    }
    return false;
}

/* Methods of libraries that store nothing of what they are given; many make text or a number of it. */
static const char keep_nothing[] = " backward step copy_ record_stream load_state_dict write print debug info warning "
                                   "warn error critical exception set_postfix set_postfix_str set_description "
                                   "set_description_str add_scalar add_scalars ";

/* Does the file import the class from the module, or name it by the module? */
static bool is_class_of(struct site_search *s, const char *class, const char *module)
{
    const char *from = arena_printf(s->scratch, "from %s", module),
               *as = arena_printf(s->scratch, "import %s as ", module);
    const char *name = text_last_part(class);
    bool is = strncmp(class, module, strlen(module)) == 0;
    for (size_t k = 0; *class && k < s->code.n && !is && s->budget-- > 0; k++) {
        const char *code = s->code.list[k].code, *import = strstr(code, " import ");
        const char *alias = strncmp(code, as, strlen(as)) == 0 ? code + strlen(as) : NULL;
        is = (alias && strncmp(class, alias, strlen(alias)) == 0 && class[strlen(alias)] == '.') ||
             (import && strncmp(code, from, strlen(from)) == 0 && site_find_name(import + 8, name));
    }
    return is;
}

/* Libraries whose objects store what they are given, also in a call of the object itself: metric(x). */
static const struct storing {
    const char *module, *instead;
} storings[] = {
    {"torchmetrics",
     "call its `reset()` after each `compute()`; `compute_on_cpu=True` keeps its lists on the host, and "
     "thresholds=N, if it has that argument, stores counts instead"},
};

static const struct storing *storing_of(struct site_search *s, const char *class)
{
    return FIND_OF(x, storings, COUNT_OF(storings), is_class_of(s, class, x->module));
}

/* metric.update(x), wandb.log({"": x}) of what a library made, as a whole statement: it may store what it is given. */
static void consider_object(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code;
    const size_t n = site_name_length(code), none = s->code.n, loop = site_common_loop(s, s->at, i);
    const char *end = n && code[n] == '(' ? site_closing(code + n) : "", *dot = n ? memrchr(code, '.', n) : NULL;
    if (*end != ')' || end[1] || loop == none) return;
    const char *object = arena_printf(s->scratch, "%.*s", (int)n, code);
    const struct storing *storing = storing_of(s, site_find_class_of(s, object)); /* metric(x) */
    const char *method = storing ? "" : dot ? arena_printf(s->scratch, "%.*s", (int)(code + n - dot - 1), dot + 1) : "";
    if (!storing && (!dot || strstr(keep_nothing, arena_printf(s->scratch, " %s ", method)))) return;
    object = storing ? object : arena_printf(s->scratch, "%.*s", (int)(dot - code), code);
    const char *class = site_find_class_of(s, object), *last = strrchr(class, '.');
    storing = storing_of(s, class);
    last = last ? last + 1 : class;
    if (!*last || site_is_made_in(s, object, loop, site_code_end(&s->code, loop))) return;
    const char *reset = arena_printf(s->scratch, "%s.reset()", object);
    for (size_t k = loop; storing && k < site_code_end(&s->code, loop); k++)
        if (strcmp(s->code.list[k].code, reset) == 0 && site_common_loop(s, k, i) == site_common_loop(s, i, i)) return;
    for (size_t k = 0; k < none && s->budget-- > 0; k++) { /* of the program: its methods are read instead */
        const char *other = s->code.list[k].code;
        const size_t word = strncmp(other, "class ", 6) == 0 ? 6 : strncmp(other, "def ", 4) == 0 ? 4 : 0;
        if (word && strlen(last) == site_name_length(other + word) && strncmp(other + word, last, strlen(last)) == 0)
            return;
    }
    if (site_value_holds(s, i, arena_printf(s->scratch, "%.*s", (int)(end - code - (long)n - 1), code + n + 1)))
        site_add_candidate(&s->given_away, (struct site_candidate){.frame = s->frame,
                                                                   .code = s->code,
                                                                   .at = i,
                                                                   .instead = storing ? storing->instead : NULL,
                                                                   .why = "the only statement that passes the memory "
                                                                          "to an object of a library"});
}

void site_read_library(struct site_search *s, size_t i)
{
    if (!consider_keeper(s, i)) consider_object(s, i);
}
