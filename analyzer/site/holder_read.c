#include "analyzer/site/holder_read.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/site/source_context.h"

bool site_is_function(const struct site_statement *s)
{
    return site_code_begins(s, "def");
}

bool site_is_loop(const struct site_statement *s)
{
    return site_code_begins(s, "for") || site_code_begins(s, "while");
}

void site_find_function(struct site_search *s)
{
    size_t k = s->at;
    do {
        k = site_code_parent(&s->code, k);
    } while (k < s->code.n && !site_is_function(&s->code.list[k]));
    s->module = k == s->code.n;
    s->from = s->module ? 0 : k + 1;
    s->to = s->module ? s->code.n : site_code_end(&s->code, k);
}

size_t site_common_loop(const struct site_search *s, size_t a, size_t b)
{
    if (a >= s->code.n || b >= s->code.n) /* none of the program's statements is the call */
        return s->code.n;
    for (size_t k = site_code_parent(&s->code, b); k < s->code.n && k + 1 >= s->from;
         k = site_code_parent(&s->code, k)) {
        if (site_is_loop(&s->code.list[k]) && a >= k && a < site_code_end(&s->code, k)) return k;
        if (site_is_function(&s->code.list[k])) break;
    }
    return s->code.n;
}

/* self.state[p], node.children[i], table.setdefault(key, []): an object that another one holds. NULL: the value is
 * something else; "self", "node", "table". */
static const char *reference_of(struct arena *arena, const char *value)
{
    static const char *const getters[] = {".setdefault", ".get"};
    size_t n = site_name_length(value);
    const char *end = value + n;
    for (size_t i = 0; *end == '(' && i < sizeof getters / sizeof *getters; i++) {
        const size_t length = strlen(getters[i]);
        if (n > length && strncmp(end - length, getters[i], length) == 0 && !site_closing(end)[1])
            return arena_printf(arena, "%.*s", (int)(n - length), value);
    }
    const bool is = n && (*end == '[' || memchr(value, '.', n));
    while (*end == '[') {
        end = site_closing(end);
        end += *end != 0;
        end += *end == '.' ? 1 + site_name_length(end + 1) : 0;
    }
    return is && !*end ? arena_printf(arena, "%.*s", (int)strcspn(value, ".["), value) : NULL;
}

/* Does one of these statements compute the name's value from itself? */
static bool is_continued(struct site_search *s, const struct site_names *name, size_t from, size_t to)
{
    for (size_t i = from; i < to && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) ||
            !(a.augmented || site_holds(a.value, name, false)))
            continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (site_names_has(&made, name->list[0])) return true;
    }
    return false;
}

/* The name in a statement, whole; NULL if it is not in it. */
static const char *find_name(const char *code, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name))
        if ((p == code || (!site_is_name_character(p[-1]) && p[-1] != '.')) && !site_is_name_character(p[n])) return p;
    return NULL;
}

bool site_only_adds(const char *value, const char *name)
{
    const size_t n = strlen(name);
    const char *p = find_name(value, name);
    if (!p || find_name(p + n, name)) return false;
    return (p == value && strncmp(p + n, " + ", 3) == 0) || (!p[n] && p - value > 3 && strncmp(p - 3, " + ", 3) == 0);
}

/* if total is None: total = x, or if i == 0: total = x, whose else makes it from itself: only the first iteration
 * assigns it. If i % 9 == 0 or if done, again and again. */
static bool is_first_value(struct site_search *s, size_t i, const struct site_names *name)
{
    const size_t branch = site_code_parent(&s->code, i), none = s->code.n;
    if (branch >= none || !site_code_begins(&s->code.list[branch], "if")) return false;
    const char *code = s->code.list[branch].code, *is = find_name(code, name->list[0]);
    const size_t other = site_code_end(&s->code, branch), n = strlen(name->list[0]);
    if (is && (strncmp(is + n, " is None", 8) == 0 || strncmp(is + n, " == None", 8) == 0)) return true;
    const bool once = (strstr(code, " == 0") && !strchr(code, '%')) || strstr(code, "first") ||
                      (is && is - code > 4 && strncmp(is - 4, "not ", 4) == 0);
    return once && other < none && s->code.list[other].indent == s->code.list[branch].indent &&
           site_code_begins(&s->code.list[other], "else") &&
           is_continued(s, name, other, site_code_end(&s->code, other));
}

/* Is the name assigned anew in these statements? A value that is computed from itself does not count, nor an object
 * that another one holds, unless that one is made there. */
static bool is_made_within(struct site_search *s, const char *name, size_t from, size_t to, unsigned depth)
{
    const char *dot = strchr(name, '.');
    struct site_names self = {.list = {name}, .n = 1};
    const bool member = dot && (strncmp(name, "self.", 5) == 0 || strncmp(name, "cls.", 4) == 0);
    const char *root = dot && !member ? arena_printf(s->scratch, "%.*s", (int)(dot - name), name) : name;
    for (size_t i = from; i < to && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_binding_of(s->scratch, &s->code.list[i], &a) || a.augmented) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        const char *of = made.n == 1 && !site_is_loop(&s->code.list[i]) ? reference_of(s->scratch, a.value) : NULL;
        if (of && depth && site_names_has(&made, root) &&
            (strcmp(of, "self") == 0 || strcmp(of, root) == 0 || !is_made_within(s, of, from, to, depth - 1)))
            continue;
        if ((site_names_has(&made, name) && !site_holds(a.value, &self, false) && !is_first_value(s, i, &self)) ||
            (root != name && site_names_has(&made, root)))
            return true;
    }
    return false;
}

bool site_is_made_in(struct site_search *s, const char *name, size_t from, size_t to)
{
    enum { REFERENCES = 4 };
    return is_made_within(s, name, from, to, REFERENCES);
}

static bool is_returned(struct site_search *s, const char *name)
{
    const struct site_names names = {.list = {name}, .n = 1};
    for (size_t i = s->from; i < s->to && !s->module; i++)
        if (site_code_begins(&s->code.list[i], "return") && site_holds(s->code.list[i].code, &names, false))
            return true;
    return false;
}

void site_add_candidate(struct site_candidates *to, struct site_candidate c)
{
    for (size_t i = 0; i < to->n && i < SITE_FOUND_MAX; i++)
        if (to->list[i].frame->file == c.frame->file &&
            to->list[i].code.list[to->list[i].at].line == c.code.list[c.at].line)
            return;
    if (to->n < SITE_FOUND_MAX) to->list[to->n] = c;
    to->n++;
}

static const char *format_holder_place(struct site_search *s, bool loop)
{
    const char *function = s->frame->function, *dot = function ? strrchr(function, '.') : NULL;
    char name[128];
    const char *last = dot && dot[1] != '<' ? dot + 1 : function;
    terminal_clean(name, sizeof name, s->module || !last ? "the program" : last, true);
    return arena_printf(s->scratch, "%s %s%s", loop ? "in the loop of" : "of", name, s->module ? "" : "()");
}

/* Does an assignment give the name a value for which `is` is true? With several targets, each has its own value. */
static bool is_given(struct site_search *s, const char *name, bool (*is)(const char *value))
{
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) || a.augmented) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        for (size_t k = 0; k < made.n; k++)
            if (strcmp(made.list[k], name) == 0 && is(made.n == 1 ? a.value : site_part_of(s->scratch, a.value, k)))
                return true;
    }
    return false;
}

/* deque(maxlen=capacity) */
static bool is_bounded_by_name(const char *value)
{
    const char *most = strstr(value, "maxlen=");
    return most && strncmp(most + 7, "None", 4) != 0 && site_name_length(most + 7);
}

/* A bound of thousands has no effect: the GPU is full before. */
static bool is_bounded(const char *value)
{
    enum { DIGITS = 3 };
    const char *most = strstr(value, "maxlen=");
    const size_t digits = most ? strspn(most + 7, "0123456789_") : 0;
    return digits && digits <= DIGITS;
}

static bool is_list(const char *value)
{
    return *value == '[' || strncmp(value, "list(", 5) == 0;
}

/* Does the loop make optimizer steps outside of the loop `within` it and of other loops? Then its iterations are the
 * program's steps. */
static bool is_step_loop(const struct site_search *s, size_t loop, size_t within)
{
    for (size_t i = loop + 1; i < site_code_end(&s->code, loop); i++) {
        const char *code = s->code.list[i].code;
        if ((i < within || i >= site_code_end(&s->code, within)) && site_common_loop(s, i, i) == loop &&
            (strstr(code, ".step(") || strstr(code, ".zero_grad(")))
            return true;
    }
    return false;
}

/* outputs.clear(), del buffer.states[:]: does a statement of the file empty what the last part of the name names? */
static bool is_emptied(struct site_search *s, const char *name)
{
    const char *dot = strrchr(name, '.'), *last = dot ? dot : name;
    const size_t n = strlen(last);
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        const bool del = strncmp(code, "del ", 4) == 0;
        const char *p = strstr(code, last);
        if (p && (dot || p == code + 4 * del) &&
            (del ? p[n] == '[' : strncmp(p + n, ".clear()", 8) == 0 || strncmp(p + n, ".pop", 4) == 0))
            return true;
    }
    return false;
}

static const char queue_advice[] =
    "bound the queue (Queue(maxsize=N)), if another thread reads it, or put copies on the host into it (.cpu())";

/* super().__init__(), which may make the containers */
static bool calls_base(const struct site_search *s)
{
    bool calls = !site_is_constructor(s->frame->function);
    for (size_t i = s->from; i < s->to && !calls; i++) calls = strncmp(s->code.list[i].code, "super(", 6) == 0;
    return calls;
}

static const char deque_advice[] =
    "choose its maxlen so that as many items fit on the GPU, or put copies on the host into it (.cpu())";

/* deque(maxlen=capacity), deque(maxlen=50000): it grows until it is full. */
static bool is_bounded_deque(const char *value)
{
    const char *most = strstr(value, "maxlen=");
    return most && strncmp(most + 7, "None", 4) != 0 && site_is_name_character(most[7]);
}

void site_consider_store(struct site_search *s, size_t i, const char *into, bool weak)
{
    const bool named = strncmp(into, "getattr(", 8) == 0; /* getattr(self, name).append(x): any attribute */
    const char *name = site_base_name(s->scratch, into + 8 * named);
    const size_t loop = site_common_loop(s, s->at, i), none = s->code.n;
    const bool local = !s->module && site_is_made_in(s, name, s->from, s->to);
    /* a container of the object that is constructed; that of its class outlives it */
    const bool own =
        s->constructs && strncmp(name, "self.", 5) == 0 && (site_is_made_in(s, name, s->from, i) || calls_base(s));
    if (!*name || is_given(s, name, is_bounded) || (loop == none && (local || s->module)) ||
        (loop != none && site_is_made_in(s, name, loop, site_code_end(&s->code, loop))))
        return;
    bool reset = false; /* by a loop around it: then it is held only until the next iteration */
    for (size_t k = loop; k < none && !reset; k = site_common_loop(s, k, k)) {
        reset = k != loop && site_is_made_in(s, name, k, site_code_end(&s->code, k));
        if (reset && is_step_loop(s, k, loop)) return;
    }
    const char *code = s->code.list[i].code;
    struct site_assignment a;
    const bool keyed = strstr(code, ".setdefault(") ||
                       (site_assignment_of(s->scratch, code, &a) && !a.augmented && strchr(a.targets, '['));
    const bool queue = strstr(code, ".put(") || strstr(code, ".put_nowait(");
    const char *what =
        arena_printf(s->scratch, "%s that stores the result of line %d in an object created outside of it",
                     format_holder_place(s, loop != none), s->at < none ? s->code.list[s->at].line : 0);
    site_add_candidate(&s->found,
                       (struct site_candidate){.frame = s->frame,
                                               .code = s->code,
                                               .at = i,
                                               .into = named ? NULL : name,
                                               .why = what,
                                               .keyed = keyed,
                                               .instead = queue                                 ? queue_advice
                                                          : is_given(s, name, is_bounded_deque) ? deque_advice
                                                          : strstr(code, ".append(") ? site_latest_advice(s, i, name)
                                                                                     : NULL,
                                               .weak = weak || reset || is_emptied(s, name) ||
                                                       is_given(s, name, is_bounded_by_name) ||
                                                       loop != site_common_loop(s, s->at, s->at),
                                               .reset = reset,
                                               .passed = (local && is_returned(s, name)) || own});
}

/* table[key] = parts of a local list `parts`: what was stored in the list is held by the table. */
static void supersede_stores(struct site_search *s, size_t before, const char *value)
{
    struct site_candidates *found = &s->found;
    size_t n = 0;
    if (found->n != before + 1 || found->n > SITE_FOUND_MAX || s->module || !site_names_has(&s->owners, value) ||
        !site_is_made_in(s, value, s->from, s->to))
        return;
    struct site_candidate last = found->list[before];
    for (size_t i = 0; i < before; i++)
        if (found->list[i].frame == s->frame && found->list[i].into && strcmp(found->list[i].into, value) == 0)
            last.weak = found->list[i].weak;
        else
            found->list[n++] = found->list[i];
    found->list[n++] = last;
    found->n = n;
}

bool site_is_constructor(const char *function)
{
    static const char *const names[] = {"__init__", "__new__", "__post_init__", "__attrs_post_init__",
                                        "model_post_init"};
    return TEXT_IS_ONE_OF(text_last_part(function), names);
}

/* {**log, step: loss}, [*losses, loss] */
static bool is_unpacking(const char *value, const char *name)
{
    const size_t stars = *value && strchr("[({", *value) ? strspn(value + 1, "*") : 0;
    return stars && strncmp(value + 1 + stars, name, strlen(name)) == 0 && value[1 + stars + strlen(name)] == ',';
}

bool site_has_parameter(struct site_search *s, const char *parameters, const char *name, size_t n)
{
    const char *part;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->scratch, parameters, k)); k++)
        if (site_name_length(part) == n && strncmp(part, name, n) == 0) return true;
    return false;
}

/* x = x + layer(x) of an argument x: the layers of a pass. */
bool site_is_parameter(struct site_search *s, const char *name)
{
    const char *open = s->module || !s->from ? NULL : strchr(s->code.list[s->from - 1].code, '(');
    return open && !strchr(name, '.') &&
           site_has_parameter(s, arena_printf(s->scratch, "%.*s", (int)(site_closing(open) - open - 1), open + 1), name,
                              strlen(name));
}

/* A method of the class, or of its first base, if they are in the same file. */
bool site_find_method(struct site_search *in, const char *class, const char *method, size_t *def)
{
    enum { BASES = 4 };
    const char *own = class;
    const size_t length = strlen(method);
    for (unsigned base = 0; *class && base < BASES; base++) {
        const size_t n = strlen(class);
        size_t at = 0;
        while (at < in->code.n && (strncmp(in->code.list[at].code, "class ", 6) != 0 ||
                                   strncmp(in->code.list[at].code + 6, class, n) != 0 ||
                                   site_name_length(in->code.list[at].code + 6) != n))
            at++;
        in->budget -= (long)at;
        for (size_t i = at; i < in->code.n && i < site_code_end(&in->code, at) && in->budget-- > 0; i++) {
            const char *code = in->code.list[i].code;
            if (strncmp(code, "def ", 4) == 0 && strncmp(code + 4, method, length) == 0 && code[4 + length] == '(') {
                struct run_frame *called = arena_alloc(in->scratch, sizeof *called);
                *called = *in->frame;
                called->function = arena_printf(in->scratch, "%s.%s", class, method);
                in->frame = called;
                in->class = own;
                *def = i;
                return true;
            }
        }
        const char *bases = at < in->code.n ? strchr(in->code.list[at].code, '(') : NULL;
        class = bases ? arena_printf(in->scratch, "%.*s", (int)site_name_length(bases + 1), bases + 1) : "";
    }
    return false;
}

/* Does the constructor of the class store the value at that index of its arguments? Of a class without one (a
 * dataclass, a named tuple) or of another file: it may. */
static bool constructor_stores(struct site_search *s, const char *class, size_t index)
{
    struct site_search in = *s;
    size_t def;
    if (!site_find_method(&in, class, "__init__", &def)) return true;
    const char *code = in.code.list[def].code, *open = strchr(code, '(');
    const char *parameters = arena_printf(s->scratch, "%.*s", (int)(site_closing(open) - open - 1), open + 1);
    const char *name = site_part_of(s->scratch, parameters, index + 1);
    name = arena_printf(s->scratch, "%.*s", (int)site_name_length(name), name);
    for (size_t i = def + 1; i < site_code_end(&in.code, def); i++) {
        struct site_assignment a;
        const char *part = "";
        if (!site_assignment_of(s->scratch, in.code.list[i].code, &a) || strncmp(a.targets, "self.", 5) != 0) continue;
        for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->scratch, a.value, k)); k++)
            if (strcmp(part, name) == 0) return true;
    }
    return false;
}

/* node = Node(x, node), chain = (x, chain): each holds the one before. */
static bool is_linking(struct site_search *s, const char *value, const char *name)
{
    const size_t n = site_name_length(value);
    const char *dot = n ? memrchr(value, '.', n) : NULL, *last = dot ? dot + 1 : value, *open = value + n;
    const bool display = !n && strchr("([", *value), makes = n && isupper((unsigned char)*last) && *open == '(';
    const char *end = display || makes ? site_closing(open) : "", *part;
    if (!*end || end[1] || strstr(value, " for ")) return false;
    const char *parts = arena_printf(s->scratch, "%.*s", (int)(end - open - 1), open + 1);
    bool links = false;
    size_t k = 0;
    for (; *(part = site_part_of(s->scratch, parts, k)); k++) {
        const size_t keyword = site_name_length(part);
        const char *of = part[keyword] == '=' ? part + keyword + 1 : part;
        const char *class = arena_printf(s->scratch, "%.*s", (int)(value + n - last), last);
        links = links || (strcmp(of, name) == 0 && (display || of != part || constructor_stores(s, class, k)));
    }
    return links && k > 1;
}

/* sorted(best + [x]), state._replace(seen=state.seen + (x,)): of `best`, `state`. */
static bool is_extended(struct site_search *s, const char *value, const char *name)
{
    for (const char *plus = strstr(value, " + "); plus; plus = strstr(plus + 1, " + ")) {
        const char *part = plus + 3, *from = plus, *close = strchr("[(", *part) ? site_closing(part) : part;
        const char *within = close > part ? arena_printf(s->scratch, "%.*s", (int)(close - part - 1), part + 1) : "";
        const bool display = *part == '[' || strlen(site_part_of(s->scratch, within, 0)) < strlen(within);
        while (from > value && (site_is_name_character(from[-1]) || from[-1] == '.')) from--;
        const struct site_names self = {.list = {name}, .n = 1};
        if (close > part && display &&
            site_holds(arena_printf(s->scratch, "%.*s", (int)(plus - from), from), &self, false))
            return true;
    }
    return false;
}

/* total += loss, total = 0.9 * total + loss, losses += [loss], x = torch.cat([x, y]). */
static bool is_accumulation(struct site_search *s, const struct site_assignment *a, const char *name)
{
    const struct site_names self = {.list = {name}, .n = 1};
    const bool sums = s->graph && !site_is_parameter(s, name);
    if (site_is_cut(a->value) && !(s->graph && site_is_concatenation(a->value)))
        return false; /* a slice keeps the graph of all */
    if (a->augmented)
        return sums || *a->value == '[' || *a->value == '{' || site_is_tuple(a->value) || is_given(s, name, is_list);
    const bool first = strncmp(a->value, name, strlen(name)) == 0 && is_given(s, name, is_list);
    const bool carries = sums && strncmp(name, "self.", 5) == 0 && strchr(a->value, ','); /* torch.lerp(self.x, y) */
    return site_holds(a->value, &self, false) &&
           (site_is_concatenation(a->value) || is_unpacking(a->value, name) || is_linking(s, a->value, name) ||
            is_extended(s, a->value, name) || (carries && site_holds(a->value, &self, true)) ||
            (strstr(a->value, " + ") && (first || (sums && site_holds(a->value, &self, true)))));
}

/* Report(x).mean(): of an object that is constructed here, the value is only what its method returns, unless that
 * is the object. */
static bool is_only_result(const struct site_search *s, const char *value)
{
    static const char *const same[] = {".to(",    ".cuda(",           ".eval(",        ".train(",
                                       ".half(",  ".float(",          ".bfloat16(",    ".type(",
                                       ".apply(", ".requires_grad_(", ".share_memory("};
    const char *dot = s->constructed && s->callee ? strrchr(s->callee, '.') : NULL;
    if (!dot) return false;
    const char *class = arena_printf(s->scratch, "%.*s", (int)(dot - s->callee), s->callee);
    const char *call = strstr(value, arena_printf(s->scratch, "%s(", text_last_part(class)));
    const char *end = call ? site_closing(strchr(call, '(')) : "";
    const size_t n = *end ? site_name_length(end + 1 + (end[1] == '.')) : 0;
    if (!*end || end[1] != '.' || end[2 + n] != '(') return false;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (strncmp(end + 1, same[i], strlen(same[i])) == 0) return false;
    return true;
}

static bool part_holds(struct site_search *s, size_t i, const char *value)
{
    /* the statement that allocated, also by an operator; of a caller, only a call */
    const bool name = !value[strcspn(value, ".")] && !value[site_name_length(value)];
    const bool literal = *value && strchr("0123456789\"'", *value);
    return (i == s->at && !name && !literal && (!s->callee || strchr(value, '(')) &&
            !site_is_host_value(value, s->graph) && !is_only_result(s, value)) ||
           site_names_has(&s->owners, value) || site_holds_itself(value, &s->names, s->graph) ||
           site_holds(value, &s->objects, s->graph);
}

/* The values of a tuple, list or dictionary; otherwise the text itself. */
static const char *values_of(struct site_search *s, const char *text)
{
    const size_t n = strlen(text);
    const bool display = n > 1 && strchr("([{", *text) && site_closing(text) == text + n - 1 && !strstr(text, " for ");
    return display ? arena_printf(s->scratch, "%.*s", (int)n - 2, text + 1) : text;
}

bool site_value_holds(struct site_search *s, size_t i, const char *value)
{
    const char *parts = values_of(s, value), *part;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->scratch, parts, k)); k++) {
        const char *colon = *value == '{' ? strchr(part, ':') : NULL, *of = colon ? colon + 1 : part;
        of += strspn(of, " *");
        if (values_of(s, of) != of ? site_value_holds(s, i, of) : part_holds(s, i, of)) return true;
    }
    return false;
}

bool site_is_view(struct site_search *s, size_t i, const char *value)
{
    static const char detach[] = ".detach()";
    const char *parts = values_of(s, value), *part;
    const bool several = parts != value || *site_part_of(s->scratch, value, 1);
    for (size_t k = 0; several && k < SITE_NAMES && *(part = site_part_of(s->scratch, parts, k)); k++) {
        const char *colon = *value == '{' ? strchr(part, ':') : NULL, *of = colon ? colon + 1 : part;
        of += strspn(of, " *");
        if (site_value_holds(s, i, of)) return site_is_view(s, i, of);
    }
    size_t n = strlen(value);
    if (n >= sizeof detach && strcmp(value + n - (sizeof detach - 1), detach) == 0) n -= sizeof detach - 1;
    value = arena_printf(s->scratch, "%.*s", (int)n, value);
    const char *open = value;
    while (*open && site_closing(open) != value + n - 1) open++;
    const bool indexed =
        *open == '[' && open > value && strchr(open, ',') && (strchr(open, ':') || strstr(open, "..."));
    const bool called = i == s->at && s->returned_view && *open == '(' && open == value + site_name_length(value);
    return indexed || called || site_names_has(&s->views, value);
}

static void mark_views(struct site_search *s, size_t i, const char *value, size_t before)
{
    const bool view = s->found.n > before && site_is_view(s, i, value);
    for (size_t k = before; k < s->found.n && k < SITE_FOUND_MAX; k++) s->found.list[k].view = view;
}

/* node.hidden = x: node is an owner; so is the object that a constructor makes, of self.hidden = x. */
static void add_targets(struct site_search *s, const struct site_names *made)
{
    for (size_t i = 0; i < made->n; i++) {
        const size_t n = strcspn(made->list[i], ".");
        site_names_add(s->scratch, &s->names, made->list[i], strlen(made->list[i]));
        if (made->list[i][n] && (s->constructs || strncmp(made->list[i], "self.", 5) != 0))
            site_names_add(s->scratch, &s->owners, made->list[i], n);
    }
}

static void consider_accumulation(struct site_search *s, size_t i, const struct site_assignment *a, const char *name)
{
    const size_t before = s->found.n;
    site_consider_store(s, i, name, false);
    const bool read = s->at < s->code.n && s->at != i && site_is_passed_to_call(s->code.list[s->at].code, name);
    if (s->found.n > before && s->found.n <= SITE_FOUND_MAX && (read || site_is_passed_to_call(a->value, name)) &&
        !site_is_concatenation(a->value))
        s->found.list[before].carried = true;
    if (s->graph && s->found.n > before && s->found.n <= SITE_FOUND_MAX && site_is_cut(a->value))
        s->found.list[before].instead = "detach what it adds (.detach()): the slice is bounded, but its graph is not";
    if (!s->graph || s->found.n == before || s->found.n > SITE_FOUND_MAX || site_is_concatenation(a->value) ||
        strncmp(name, "self.", 5) != 0)
        return;
    s->found.list[before].carried = true;
    if (a->augmented || strstr(a->value, " + "))
        s->found.list[before].instead = "add it without its graph (.detach(), or in torch.no_grad())";
}

/* n, x = 1, layer(y): of as many targets as values, those whose value holds the memory. */
static void drop_others(struct site_search *s, size_t i, const char *value, struct site_names *made)
{
    const char *of[SITE_NAMES];
    size_t n = 0, kept = 0;
    while (n < SITE_NAMES && *(of[n] = site_part_of(s->scratch, value, n))) n++;
    for (size_t k = 0; n == made->n && k < n; k++)
        if (site_value_holds(s, i, of[k])) made->list[kept++] = made->list[k];
    made->n = kept ? kept : made->n;
}

/* totals[""] = totals.get("", 0) + loss: what is read is the element. */
static const char *with_element(struct site_search *s, const struct site_assignment *a)
{
    const char *get = arena_printf(s->scratch, "%.*s.get(", (int)strcspn(a->targets, "["), a->targets);
    const char *p = strstr(a->value, get), *close = p ? site_closing(p + strlen(get) - 1) : "";
    return *close ? arena_printf(s->scratch, "%.*s%s%s", (int)(p - a->value), a->value, a->targets, close + 1)
                  : a->value;
}

/* Of a returned tuple, the only value that holds the memory. */
static int only_part(struct site_search *s, size_t i, const char *value)
{
    const char *parts = values_of(s, value), *part;
    int n = 0, only = SITE_ANY_PART, holding = 0;
    for (; n < SITE_NAMES && *(part = site_part_of(s->scratch, parts, (size_t)n)); n++) {
        if (!site_value_holds(s, i, part)) continue;
        only = n;
        holding++;
    }
    return n == 1 && i == s->at                           ? s->returned_part
           : n > 1 && holding == 1 && !strchr(parts, '*') ? only
                                                          : SITE_ANY_PART;
}

/* model, score = train(k): of the function's values, only one holds the memory. */
static void keep_part(const struct site_search *s, size_t i, const char *value, struct site_names *made)
{
    const size_t n = site_name_length(value), part = (size_t)s->returned_part;
    const char *callee = text_last_part(s->callee);
    const size_t length = strlen(callee);
    const bool called = i == s->at && length && n >= length && strncmp(value + n - length, callee, length) == 0 &&
                        value[n] == '(' && !site_closing(value + n)[1];
    if (!called || s->returned_part < 0 || made->n < 2 || part >= made->n) return;
    made->list[0] = made->list[part];
    made->n = 1;
}

static void read_assignment(struct site_search *s, size_t i, const struct site_assignment *a)
{
    struct site_names made = {.n = 0}, indexed = {.n = 0};
    if (!site_value_holds(s, i, a->value)) return;
    site_targets_of(s->scratch, a->targets, &made, &indexed);
    if (!indexed.n && !strchr(a->targets, '*')) keep_part(s, i, a->value, &made);
    const size_t before = s->found.n;
    for (size_t k = 0; k < indexed.n; k++) site_consider_store(s, i, indexed.list[k], false);
    mark_views(s, i, a->value, before);
    supersede_stores(s, before, a->value);
    for (size_t k = 0; k < made.n; k++)
        if (is_accumulation(s, a, made.list[k])) consider_accumulation(s, i, a, made.list[k]);
    const char *index = strchr(a->targets, '['), *end = index ? site_closing(index) : ""; /* logs["loss"] += loss */
    if (!made.n && !indexed.n && *end && !end[1]) {
        struct site_assignment of = *a;
        of.value = with_element(s, a);
        if (is_accumulation(s, &of, a->targets)) consider_accumulation(s, i, &of, a->targets);
    }
    const bool one = !*site_part_of(s->scratch, a->value, 1);
    for (size_t k = 0; k < made.n; k++)
        if (site_is_view(s, i, one ? a->value : site_part_of(s->scratch, a->value, k)))
            site_names_add(s->scratch, &s->views, made.list[k], strlen(made.list[k]));
    drop_others(s, i, a->value, &made);
    add_targets(s, &made);
}

/* Does the nested function refer to the memory? */
static bool is_closure_over(struct site_search *s, const char *name, size_t n)
{
    for (size_t k = s->from; k < s->to; k++) {
        const char *def = s->code.list[k].code;
        if (strncmp(def, "def ", 4) != 0 || strncmp(def + 4, name, n) != 0 || def[4 + n] != '(') continue;
        for (size_t in = k + 1; in < site_code_end(&s->code, k); in++)
            if (site_holds(s->code.list[in].code, &s->names, s->graph)) return true;
    }
    return false;
}

/* module.register_forward_hook(save), (partial(save, x)), (lambda g: g * x), whose handle nothing stores: the module
 * keeps what the function refers to. */
static void read_registration(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code, *hook = strstr(code, "_hook("), *function = hook ? hook + 6 : "";
    const char *end = hook ? site_closing(hook + 5) : "";
    const size_t n = site_name_length(function), before = s->found.n;
    if (*end != ')' || end[1] || !strstr(code, ".register_")) return;
    const char *made = arena_printf(s->scratch, "%.*s", (int)(end - function), function);
    const bool bound = strncmp(text_last_part(arena_printf(s->scratch, "%.*s", (int)n, made)), "partial", 8) == 0 ||
                       strncmp(made, "lambda", 6) == 0;
    if (made[n] ? bound && site_holds(made, &s->names, s->graph) : is_closure_over(s, made, n))
        site_consider_store(s, i, code, false);
    for (size_t k = before; k < s->found.n && k < SITE_FOUND_MAX; k++)
        s->found.list[k].instead = "call remove() on the handle that it returns, after the pass";
}

/* y, pull = vjp(f, x): is the value a function that refers to the graph? */
static bool is_pullback(struct site_search *s, const char *value)
{
    for (size_t i = s->from; i < s->to && !value[site_name_length(value)] && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) ||
            (!strstr(a.value, "vjp(") && !strstr(a.value, "linearize(")))
            continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (made.n > 1 && site_names_has(&made, value) && strcmp(made.list[0], value) != 0) return true;
    }
    return false;
}

/* The class of an object that the file makes by `name = Class(…)`; "" none. */
const char *site_find_class_of(struct site_search *s, const char *name)
{
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        for (size_t k = 0; k < made.n; k++) {
            const char *value = made.n == 1 ? a.value : site_part_of(s->scratch, a.value, k);
            const size_t n = site_name_length(value);
            if (strcmp(made.list[k], name) == 0 && value[n] == '(')
                return arena_printf(s->scratch, "%.*s", (int)n, value);
        }
    }
    return "";
}

/* log.add(x) of a class of the program: what it stores shows in the method. */
static bool is_own_method(struct site_search *s, const char *code, const char *into)
{
    struct site_search in = *s;
    size_t def;
    const char *method = code + strlen(into);
    if (strncmp(code, into, strlen(into)) != 0 || *method++ != '.') return false;
    const char *function = s->frame->function, *dot = function ? strrchr(function, '.') : NULL;
    const char *class = dot && strcmp(into, "self") == 0
                            ? arena_printf(s->scratch, "%.*s", (int)(dot - function), function) /* Node.expand */
                            : site_find_class_of(s, into);
    return *class &&
           site_find_method(&in, class, arena_printf(s->scratch, "%.*s", (int)site_name_length(method), method), &def);
}

void site_read_statement(struct site_search *s, size_t i)
{
    const struct site_statement *st = &s->code.list[i];
    struct site_assignment a;
    struct site_store store;
    if (s->budget-- <= 0 || site_is_function(st) || site_code_begins(st, "class")) return;
    if (site_binding_of(s->scratch, &s->code.list[i], &a)) {
        read_assignment(s, i, &a);
    } else if (site_store_of(s->scratch, st->code, &store)) {
        store.weak = store.weak && !is_given(s, store.into, site_is_dictionary); /* results.update(new) */
        if (site_value_holds(s, i, store.value) &&
            (!store.weak || (s->graph && strcmp(store.into, "self") != 0))) { /* a number's tensor adds nothing */
            const size_t before = s->found.n;
            site_consider_store(s, i, store.into, store.weak || is_own_method(s, st->code, store.into));
            mark_views(s, i, store.value, before);
            if (s->found.n > before && s->found.n <= SITE_FOUND_MAX && is_pullback(s, store.value))
                s->found.list[before].instead =
                    "store what the function returns instead of the function, which refers to "
                    "all that its forward pass saved";
            supersede_stores(s, before, store.value);
            if (!strchr(store.into, '.'))
                site_names_add(s->scratch, &s->owners, store.into, site_name_length(store.into));
        } else {
            site_read_library(s, i);
        }
    } else if (site_code_begins(st, "return") || site_code_begins(st, "yield")) {
        const char *value = strchr(st->code, ' ');
        const bool holds = value && site_value_holds(s, i, value + 1);
        s->returned_view = holds ? site_is_view(s, i, value + 1) : s->returned_view;
        const int part = holds ? only_part(s, i, value + 1) : s->returns_part;
        s->returns_part = s->returns_part == SITE_NO_RETURN || s->returns_part == part ? part : SITE_ANY_PART;
        s->returned = s->returned || holds;
    } else {
        read_registration(s, i);
        site_read_library(s, i);
    }
}

/* A frame of a lambda or comprehension: its line belongs to the function around it. */
bool site_is_nameless(const char *function)
{
    const size_t n = function ? strlen(function) : 0;
    return n && function[n - 1] == '>' && strcmp(function, "<module>") != 0;
}

bool site_open_frame(struct site_search *s, const struct run_frame *frame)
{
    s->frame = frame;
    return !site_is_nameless(frame->function) && site_open_source(s->b, frame, &s->code, &s->at);
}
