/* The functions of the program that a statement calls, and which of their arguments they store. */
#include "analyzer/base/text.h"
#include "analyzer/site/holder_read.h"

#include <ctype.h>
#include <string.h>

/* def on_batch_end(self, outputs): pass, of a base class: another class has the function. */
static bool is_empty_function(const struct site_code *code, size_t def)
{
    for (size_t i = def + 1; i < site_code_end(code, def); i++) {
        const char *body = code->list[i].code;
        if (strcmp(body, "pass") != 0 && strcmp(body, "...") != 0 && strcmp(body, "\"\"") != 0 &&
            strcmp(body, "return") != 0 && strncmp(body, "raise NotImplementedError", 25) != 0)
            return false;
    }
    return true;
}

/* Counts the functions of that name in a file; `in` and `def` get the one that is number `which`. */
static size_t count_definitions(const struct site_search *other, const char *name, size_t length, size_t which,
                                struct site_search *in, size_t *def)
{
    size_t found = 0;
    for (size_t i = 0; i < other->code.n && in->budget-- > 0; i++) {
        const char *code = other->code.list[i].code;
        if (strncmp(code, "def ", 4) != 0 || strncmp(code + 4, name, length) != 0 || code[4 + length] != '(' ||
            is_empty_function(&other->code, i) || found++ != which)
            continue;
        struct run_frame *called = arena_alloc(other->scratch, sizeof *called);
        *called = *other->frame;
        called->function = arena_printf(other->scratch, "%.*s", (int)length, name);
        in->code = other->code;
        in->frame = called;
        *def = i;
    }
    return found;
}

/* Function number `which` of that name in the files of the call path or, if they have none, in those that they import.
 */
static bool find_called(const struct site_search *s, const char *name, size_t length, size_t which,
                        struct site_search *in, size_t *def)
{
    struct site_search other = *s;
    struct site_files files;
    size_t found = 0;
    site_find_files(in, s->stack, &files);
    for (unsigned imported = 0; imported < 2 && !found; imported++) {
        if (imported) site_find_imported(in, &files);
        for (size_t k = 0; k < files.n; k++) {
            other.frame = files.list[k].frame;
            other.code = files.list[k].code;
            found += count_definitions(&other, name, length, which - found, in, def);
        }
    }
    return found > which;
}

/* The class of the first of the objects over which a loop with the variable `name` runs: `for m in metrics.values()` of
 * `metrics = {"": Recall(), "": Top(5)}`; "" none. */
static const char *find_class_of_member(struct site_search *s, const char *name)
{
    const char *list = "";
    for (size_t i = 0; i < s->code.n && s->budget-- > 0 && !*list; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_is_loop(&s->code.list[i]) || !site_binding_of(s->scratch, &s->code.list[i], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        const char *over = a.value;
        for (size_t k = 0; strncmp(a.value, "zip(", 4) == 0 && k < made.n; k++) /* for t, x in zip(tracks, xs) */
            if (strcmp(made.list[k], name) == 0) over = site_part_of(s->scratch, a.value + 4, k);
        const size_t n = site_iterated_length(&over);
        if (site_names_has(&made, name)) list = arena_printf(s->scratch, "%.*s", (int)n, over);
    }
    for (size_t i = 0; *list && i < s->code.n && s->budget-- > 0; i++) {
        struct site_assignment a;
        const char *append = arena_printf(s->scratch, "%s.append(", list);
        const char *added =
            strncmp(s->code.list[i].code, append, strlen(append)) == 0 ? s->code.list[i].code + strlen(append) : "";
        const size_t class = site_name_length(added);
        if (isupper((unsigned char)*text_last_part(added)) && added[class] == '(')
            return arena_printf(s->scratch, "%.*s", (int)class, added);
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) || strcmp(a.targets, list) != 0) continue;
        const char *members = strpbrk(a.value, "[{");
        const char *colon = members && *members == '{' ? strchr(members, ':') : NULL;
        const char *first = colon ? colon + 1 : members ? members + 1 : "";
        first += strspn(first, " ");
        const size_t n = site_name_length(first);
        if (n && first[n] == '(') return arena_printf(s->scratch, "%.*s", (int)n, first);
    }
    return "";
}

/* Is it the variable of a loop, or of a comprehension? */
static bool is_iterated(struct site_search *s, const char *name)
{
    const char *of = arena_printf(s->scratch, " for %s in ", name);
    for (size_t i = s->from; i < s->to && s->budget-- > 0; i++) {
        if (strstr(s->code.list[i].code, of)) return true;
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_is_loop(&s->code.list[i]) || !site_binding_of(s->scratch, &s->code.list[i], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (site_names_has(&made, name)) return true;
    }
    return false;
}

/* The function that `name(…)` calls: log(x), run.log(x), self.log(x) of a known object, metric(x) of an object that can
 * be called; if its class is unknown, number `which` of those that have such a method. */
static bool find_callee(struct site_search *s, const char *name, size_t which, struct site_search *in, size_t *def,
                        bool *method)
{
    const char *dot = strrchr(name, '.'), *last = text_last_part(name);
    const char *object = dot ? arena_printf(s->scratch, "%.*s", (int)(dot - name), name) : name;
    const char *class = dot && strcmp(object, "self") == 0 && s->class ? s->class : site_find_class_of(in, object);
    class = *class ? class : find_class_of_member(in, object);
    *method = true;
    bool known = dot && strcmp(last, "apply") == 0 && site_find_method(in, object, "forward", def); /* of autograd */
    known =
        known || (dot ? site_find_own_method(in, class, last, def)
                      : site_find_method(in, class, "forward", def) || site_find_method(in, class, "__call__", def));
    if (known) return !which;
    *method = dot;
    in->class = NULL;
    if (find_called(s, last, strlen(last), which, in, def)) return true;
    *method =
        true; /* metric(x) of a list that the function was given, self.metric(x) of one that the object was given */
    const bool given = dot ? !*class && strncmp(name, "self.", 5) == 0 : is_iterated(s, name);
    return given && find_called(s, "__call__", strlen("__call__"), which, in, def);
}

/* Binds the parameters of def to those of the arguments that hold the memory. A parameter *args or **more takes all
 * others; an argument *values gives all parameters from there. */
static void bind_names(struct site_search *s, size_t at, const char *arguments, bool method, struct site_search *in,
                       const char *def)
{
    const char *open = strchr(def, '('), *end = site_closing(open), *part;
    const char *parameters = arena_printf(s->scratch, "%.*s", (int)(end - open - 1), open + 1);
    const bool self =
        strncmp(parameters, "self", 4) == 0 || strncmp(parameters, "cls", 3) == 0 || strncmp(parameters, "ctx", 3) == 0;
    size_t k = self && method;
    for (size_t i = 0; i < SITE_NAMES && *(part = site_part_of(s->scratch, arguments, i)); i++) {
        const size_t keyword = site_name_length(part);
        const bool named = keyword && part[keyword] == '=' && part[keyword + 1] != '=';
        const char *others = site_has_parameter(s, parameters, part, keyword) ? part : strstr(parameters, "**");
        const bool holds = site_value_holds(s, at, named ? part + keyword + 1 : part + strspn(part, "*"));
        bool rest;
        do {
            const char *to = !named ? site_part_of(s->scratch, parameters, k) : others ? others : "";
            rest = named || !*to || *to == '*';
            to += strspn(to, "*");
            if (holds) site_names_add(s->scratch, &in->names, to, site_name_length(to));
            if (holds && site_is_view(s, at, named ? part + keyword + 1 : part))
                site_names_add(s->scratch, &in->views, to, site_name_length(to));
            k += !rest;
        } while (*part == '*' && !rest);
    }
}

/* Is the last part of a dotted name that of another one? */
static bool ends_in(const char *name, const char *other)
{
    return strcmp(text_last_part(name), text_last_part(other)) == 0;
}

/* What the called function stores of the arguments that hold the memory. */
static void read_callee(struct site_search *s, size_t at, const char *arguments, bool method, size_t def,
                        struct site_search *in, unsigned depth)
{
    in->found.n = in->names.n = in->views.n = in->objects.n = in->owners.n = 0;
    in->constructs = false;
    bind_names(s, at, arguments, method, in, in->code.list[def].code);
    in->at = in->code.n; /* none of the statements is the call itself */
    in->from = def + 1;
    in->to = site_code_end(&in->code, def);
    in->module = false;
    for (size_t k = in->from; k < in->to && in->names.n; k++) site_read_statement(in, k);
    for (size_t k = in->from; k < in->to && in->names.n && !site_has_strong(&in->found); k++)
        site_read_calls(in, k, depth + 1);
}

/* setattr(self, name, x), super().append(x): what the function stores does not show. */
static bool stores_by_name(const struct site_search *in)
{
    bool does = false;
    for (size_t k = in->from; k < in->to && !does; k++)
        does = strstr(in->code.list[k].code, "setattr") || strstr(in->code.list[k].code, "super(");
    return does;
}

/* Does the program construct the class of the method? */
static bool is_made(struct site_search *s, struct site_search *in, size_t def)
{
    struct site_files files, imported;
    site_find_files(s, s->stack, &files);
    imported = files;
    site_find_imported(in, &imported);
    return site_is_used(in, def, &files) || site_is_used(in, def, &imported);
}

/* Reads the function that the statement calls. Of several that it may call, one must store what it is given. */
static void read_call(struct site_search *s, size_t i, size_t at, const char *name, const char *arguments,
                      unsigned depth)
{
    enum { FUNCTIONS = 16 };
    struct site_candidates found = {.n = 0};
    size_t storing = 0, def = 0;
    bool method, read = false;
    for (size_t which = 0; which < FUNCTIONS; which++) {
        struct site_search in = *s;
        const bool is = find_callee(s, name, which, &in, &def, &method);
        if (is && in.code.list == s->code.list && def + 1 == s->from) continue; /* the function itself */
        if (is && *name == '.' && !is_made(s, &in, def)) continue;
        if (is) read_callee(s, at, arguments, method, def, &in, depth);
        s->budget = in.budget;
        if (!is) break;
        read = !stores_by_name(&in);
        storing += in.found.n > 0;
        found = in.found.n ? in.found : found;
    }
    for (size_t k = s->found.n; read && storing < 2 && k-- > 0 && s->found.n <= SITE_FOUND_MAX;) {
        const struct site_candidate *c = &s->found.list[k];
        if (c->frame == s->frame && c->at == i && (c->own || *name == '.'))
            s->found.list[k] = s->found.list[--s->found.n];
    }
    for (size_t k = 0; storing == 1 && k < found.n && k < SITE_FOUND_MAX; k++) {
        found.list[k].passed = false;
        found.list[k].why = arena_printf(s->scratch, "it stores what line %d passes to it", s->code.list[i].line);
        site_add_candidate(&s->found, found.list[k]);
    }
}

void site_read_calls(struct site_search *s, size_t i, unsigned depth)
{
    enum { DEEP = 3 };
    const char *code = s->code.list[i].code;
    for (const char *p = code; *p && depth < DEEP;) {
        const size_t n = site_name_length(p);
        const char *end = n && p[n] == '(' ? site_closing(p + n) : NULL;
        const char *arguments = end ? arena_printf(s->scratch, "%.*s", (int)(end - p - (long)n - 1), p + n + 1) : "";
        const bool member = n && p > code && p[-1] == '.'; /* getattr(self, key).update(x) */
        const char *name = arena_printf(s->scratch, "%s%.*s", member ? "." : "", (int)n, p);
        const bool outer = s->callee && ends_in(name, s->callee); /* the call that led to the allocation */
        const size_t at = outer ? s->code.n : i;
        if (end && site_value_holds(s, at, arguments)) read_call(s, i, at, name, arguments, depth);
        p += n ? n : 1;
    }
}

bool site_open_callee(struct site_search *s, const char *call, struct site_search *in)
{
    const size_t n = site_name_length(call);
    size_t def;
    bool method;
    if (!n || call[n] != '(' || !site_closes_at_end(call + n)) return false;
    *in = *s;
    if (!find_callee(s, arena_printf(s->scratch, "%.*s", (int)n, call), 0, in, &def, &method)) return false;
    in->at = in->code.n; /* none of the statements is the call itself */
    in->from = def + 1;
    in->to = site_code_end(&in->code, def);
    in->constructs = in->module = false;
    return true;
}
