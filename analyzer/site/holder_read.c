#include "analyzer/site/holder_read.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/each.h"
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
    for (size_t i = 0; *end == '(' && i < COUNT_OF(getters); i++) {
        const size_t length = strlen(getters[i]);
        if (n > length && strncmp(end - length, getters[i], length) == 0 && site_closes_at_end(end))
            return arena_printf(arena, "%.*s", (int)(n - length), value);
    }
    const bool got = strncmp(value, "getattr(", 8) == 0 && site_closes_at_end(value + 7);
    const char *other = got ? site_part_of(arena, value + 8, 2) : ")";
    if (got && (!*other || strcmp(other, "None)") == 0))
        return site_base_name(arena, site_part_of(arena, value + 8, 0));
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

const char *site_find_name(const char *code, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name))
        if ((p == code || (!site_is_name_character(p[-1]) && p[-1] != '.')) && !site_is_name_character(p[n])) return p;
    return NULL;
}

bool site_only_adds(const char *value, const char *name)
{
    const size_t n = strlen(name);
    const char *p = site_find_name(value, name);
    if (!p || site_find_name(p + n, name)) return false;
    return (p == value && strncmp(p + n, " + ", 3) == 0) || (!p[n] && p - value > 3 && strncmp(p - 3, " + ", 3) == 0);
}

/* Does the object outlive the loops? One of the module, a function, or self of a class that no loop constructs. */
static bool is_of_program(struct site_search *s, const char *object)
{
    const char *function = s->frame->function, *dot = function ? strchr(function, '.') : NULL;
    const bool self = strcmp(object, "self") == 0;
    if (self && !dot) return false;
    const char *call = self ? arena_printf(s->scratch, "%.*s(", (int)(dot - function), function) : "";
    const char *made = arena_printf(s->scratch, "%s = ", object), *def = arena_printf(s->scratch, "def %s(", object);
    bool is = self;
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        const struct site_statement *st = &s->code.list[i];
        is = is ||
             (!st->indent && (strncmp(st->code, made, strlen(made)) == 0 || strncmp(st->code, def, strlen(def)) == 0));
        if (self && strncmp(st->code, "class ", 6) != 0 && strstr(st->code, call) &&
            site_common_loop(s, i, i) < s->code.n)
            return false;
    }
    return is;
}

/* Does only one statement of the file assign or empty the attribute, of whatever object? */
static bool is_assigned_once(struct site_search *s, const char *attribute)
{
    const char *const resets[] = {arena_printf(s->scratch, ".%s = ", attribute),
                                  arena_printf(s->scratch, ".%s.clear(", attribute),
                                  arena_printf(s->scratch, ".%s[:] =", attribute)};
    const char *deleted = arena_printf(s->scratch, ".%s", attribute);
    size_t n = 0;
    for (size_t k = 0; k < s->code.n; k++) {
        const char *code = s->code.list[k].code;
        n += ANY_OF(r, resets, COUNT_OF(resets), strstr(code, *r)) ||
             (strncmp(code, "del ", 4) == 0 && strstr(code, deleted));
    }
    return n <= 1;
}

/* if not hasattr(local, "items"): local.items = [], of a module that a hook is given, too */
static bool is_absent(struct site_search *s, const char *code, const char *name)
{
    const char *dot = strrchr(name, '.');
    if (!dot || strstr(code, " or ")) return false;
    const char *object = arena_printf(s->scratch, "%.*s", (int)(dot - name), name);
    const char *deleted = arena_printf(s->scratch, "del %s", name),
               *removed = arena_printf(s->scratch, "delattr(%s,", object);
    return strstr(code, arena_printf(s->scratch, "not hasattr(%s,", object)) &&
           (is_of_program(s, object) || (s->hook && site_is_parameter(s, object) && is_assigned_once(s, dot + 1))) &&
           !ANY_OF(l, s->code.list, s->code.n, strstr(l->code, deleted) || strstr(l->code, removed));
}

/* if total is None: total = x, or if i == 0: total = x, whose else makes it from itself: only the first iteration
 * assigns it. If i % 9 == 0 or if done, again and again. */
static bool is_first_value(struct site_search *s, size_t i, const struct site_names *name)
{
    const size_t branch = site_code_parent(&s->code, i), none = s->code.n;
    if (branch >= none || !site_code_begins(&s->code.list[branch], "if")) return false;
    const char *code = s->code.list[branch].code, *is = site_find_name(code, name->list[0]);
    const size_t other = site_code_end(&s->code, branch), n = strlen(name->list[0]);
    const char *got = arena_printf(s->scratch, "%s = getattr(", name->list[0]);
    struct site_assignment a;
    if (branch && strncmp(s->code.list[branch - 1].code, got, strlen(got)) == 0 &&
        site_assignment_of(s->scratch, s->code.list[i].code, &a) && strcmp(a.targets, name->list[0]) == 0)
        return false; /* a new one each time, because the object does not keep it */
    if ((is && (strncmp(is + n, " is None", 8) == 0 || strncmp(is + n, " == None", 8) == 0)) ||
        is_absent(s, code, name->list[0]))
        return true;
    const bool once = (strstr(code, " == 0") && !strchr(code, '%')) || strstr(code, "first") ||
                      (is && is - code > 4 && strncmp(is - 4, "not ", 4) == 0);
    return once && other < none && s->code.list[other].indent == s->code.list[branch].indent &&
           site_code_begins(&s->code.list[other], "else") &&
           is_continued(s, name, other, site_code_end(&s->code, other));
}

/* k = torch.cat([self.k, x]), then self.k = k */
bool site_is_enlarged(struct site_search *s, size_t i, const char *value, const char *name)
{
    const struct site_names self = {.list = {name}, .n = 1};
    for (size_t k = s->from; k < i && s->budget-- > 0; k++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_is_concatenation(s->code.list[k].code) || !site_assignment_of(s->scratch, s->code.list[k].code, &a) ||
            !site_holds(a.value, &self, false))
            continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (site_holds(value, &made, false)) return true;
    }
    return false;
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
        if ((site_names_has(&made, name) && !site_holds(a.value, &self, false) && !is_first_value(s, i, &self) &&
             !site_is_enlarged(s, i, a.value, name)) ||
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

/* Does the function return the container, its object (node of node.children), or what it makes of it? */
static bool is_returned(struct site_search *s, const char *name)
{
    struct site_names names = {.list = {arena_printf(s->scratch, "%.*s", (int)strcspn(name, "."), name)}, .n = 1};
    for (size_t i = s->from; i < s->to && !s->module && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        struct site_assignment a;
        struct site_store store;
        if (site_code_begins(&s->code.list[i], "return") && site_holds(code, &names, false)) return true;
        if (site_assignment_of(s->scratch, code, &a) && site_holds(a.value, &names, false))
            site_targets_of(s->scratch, a.targets, &names, NULL);
        else if (site_store_of(s->scratch, code, &store) && site_holds(store.value, &names, false))
            site_names_add(s->scratch, &names, store.into, strcspn(store.into, "."));
    }
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

bool site_has_strong(const struct site_candidates *found)
{
    for (size_t i = 0; i < found->n && i < SITE_FOUND_MAX; i++)
        if (!found->list[i].weak) return true;
    return false;
}

static const char *format_holder_place(struct site_search *s, bool loop)
{
    const char *function = s->frame->function, *dot = function ? strrchr(function, '.') : NULL;
    char name[128];
    const char *last = dot && dot[1] != '<' ? dot + 1 : function;
    terminal_clean(name, sizeof name, s->module || !last ? "the program" : last, true);
    return arena_printf(s->scratch, "%s %s%s", loop ? "in the loop of" : "of", name, s->module ? "" : "()");
}

/* With several targets, each has its own value. */
bool site_is_given(struct site_search *s, const char *name, bool (*is)(const char *value))
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

enum { FEW = 16 }; /* of a window of so many, other memory grows */

static uint64_t count_grown(struct site_search *s)
{
    uint64_t count = 0;
    const uint32_t line = run_stack_python(s->b->run, s->stack);
    EACH_IN (g, s->b->report->growth)
        if (run_stack_python(s->b->run, g->stack.number) == line && g->count > count) count = g->count;
    return count;
}

/* ring[n % 8] = x, and if len(items) > 8: items.pop(0) after items.append(x), of which more blocks remain. */
static bool is_small_window(struct site_search *s, size_t i, const char *name)
{
    const char *code = s->code.list[i].code, *turn = strstr(code, " % "), *p;
    const size_t digits = turn ? strspn(turn + 3, "0123456789") : 0;
    const char *more = arena_printf(s->scratch, "len(%s) >", name), *pop = arena_printf(s->scratch, "%s.pop", name);
    uint64_t most = digits && strncmp(turn + 3 + digits, "] = ", 4) == 0 ? strtoull(turn + 3, NULL, 10) : 0;
    for (size_t k = s->from; k + 1 < s->to && !most && s->budget-- > 0; k++)
        if ((p = strstr(s->code.list[k].code, more)) && strncmp(s->code.list[k + 1].code, pop, strlen(pop)) == 0)
            most = strtoull(p + strlen(more) + strspn(p + strlen(more), "= "), NULL, 10);
    return most && most <= FEW && count_grown(s) > FEW;
}

/* A smaller one has none either, if fewer blocks of the line remain. */
static bool is_full(struct site_search *s, const char *name)
{
    const uint64_t count = count_grown(s);
    for (size_t i = 0; count > FEW && i < s->code.n && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        const char *most = strstr(s->code.list[i].code, "maxlen=");
        if (!most || !site_assignment_of(s->scratch, s->code.list[i].code, &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (site_names_has(&made, name)) return strtoull(most + 7, NULL, 10) < count;
    }
    return true;
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

static const char state_advice[] =
    "delete the entry of the parameter that the new one replaces (optimizer.state.pop(old))";
static const char part_advice[] = "call the model there in `torch.no_grad()`: a tensor keeps the graph of each value "
                                  "that is assigned to a part of it";
/* torch.zeros(steps, n).to(device), torch.zeros_like(x) */
static bool is_filled_tensor(const char *value)
{
    static const char *const makers[] = {"torch.zeros", "torch.ones", "torch.empty", "torch.full"};
    return ANY_OF(m, makers, COUNT_OF(makers), strncmp(value, *m, strlen(*m)) == 0);
}

static const char queue_advice[] = "bound the queue (`Queue(maxsize=N)`), if another thread reads it, or put copies on "
                                   "the host into it (`.detach().cpu()`)";

/* super().__init__(), which may make the containers */
static bool calls_base(const struct site_search *s)
{
    bool calls = !site_is_constructor(s->frame->function);
    for (size_t i = s->from; i < s->to && !calls; i++) calls = strncmp(s->code.list[i].code, "super(", 6) == 0;
    return calls;
}

static const char deque_advice[] =
    "lower its maxlen until its items fit on the GPU, or put copies on the host into it (`.detach().cpu()`)";

static const char bound_advice[] =
    "lower its bound until its items fit on the GPU, or put copies on the host into it (`.detach().cpu()`)";

/* if len(cache) < n: cache.append(x), or if len(cache) > n: cache.pop(0) */
static bool is_bounded_by_size(struct site_search *s, size_t i, const char *name)
{
    const char *less = arena_printf(s->scratch, "len(%s) <", name), *more = arena_printf(s->scratch, "len(%s) ", name);
    for (size_t k = site_code_parent(&s->code, i); k < s->code.n; k = site_code_parent(&s->code, k))
        if (strstr(s->code.list[k].code, less)) return true;
    for (size_t k = 0; k < s->code.n && s->budget-- > 0; k++) {
        const char *p = strstr(s->code.list[k].code, more);
        if (!p || !strchr(">=", p[strlen(more)])) continue;
        for (size_t in = k + 1; in < site_code_end(&s->code, k); in++) {
            const char *code = s->code.list[in].code, *of = strstr(code, name);
            const char *then = of ? of + strlen(name) : "";
            if (strncmp(then, ".pop", 4) == 0 || (strncmp(code, "del ", 4) == 0 && *then == '[')) return true;
        }
    }
    return false;
}

/* deque(maxlen=capacity), deque(maxlen=50000): it grows until it is full. */
static bool is_bounded_deque(const char *value)
{
    const char *most = strstr(value, "maxlen=");
    return most && strncmp(most + 7, "None", 4) != 0 && site_is_name_character(most[7]);
}

/* The digits of the index in `hist[-5:]` and `hist[-1]` at p, which is after the minus sign; 0: it is another index. */
static int latest_read(const char *p)
{
    const size_t digits = strspn(p, "0123456789");
    return !digits || digits > 2 ? 0 : p[digits] == ']' || (p[digits] == ':' && p[digits + 1] == ']') ? atoi(p) : 0;
}

/* `len(hist) >= 5`, p after the name: how many items must stay so that it holds as before; 0: it needs all. */
static int guarding_read(const char *p)
{
    static const char *const signs[] = {") >= ", ") < ", ") > ", ") <= "};
    for (size_t i = 0; i < COUNT_OF(signs); i++) {
        const size_t n = strlen(signs[i]), digits = strspn(p + (strncmp(p, signs[i], n) == 0 ? n : 0), "0123456789");
        if (strncmp(p, signs[i], n) != 0) continue;
        return digits && digits <= 2 && !strchr("._eE*/%", p[n + digits] ?: ':') ? atoi(p + n) + (i > 1) : 0;
    }
    return 0;
}

/* How many of the last items the statement reads where it names the list at p; -1: others, too. */
static int items_read(const char *code, const char *p, size_t n, bool store)
{
    if (store && strncmp(p + n, ".append(", 8) == 0) return 0;
    if (p == code && strncmp(p + n, " = ", 3) == 0) return 0; /* where it is made */
    const bool length = p - code >= 4 && strncmp(p - 4, "len(", 4) == 0 && p[n] == ')';
    const int reads = length ? guarding_read(p + n) : strncmp(p + n, "[-", 2) == 0 ? latest_read(p + n + 2) : 0;
    const char *close = reads && !length ? site_closing(p + n) : "";
    if (p == code && *close && strncmp(close + 1, " = ", 3) == 0) return 0; /* an item is replaced */
    return reads ? reads : -1;
}

/* Is the name, or any name, used by its text: f"{sum(hist)}", getattr(self, "hist"), vars(self)? */
static bool is_read_by_text(struct site_search *s, const char *last)
{
    static const char *const any[] = {"vars(", "__dict__", "globals(", "locals(", "__all__"};
    const struct run_source_text *text = run_source_text(s->b->run, s->frame->file);
    const size_t n = strlen(last);
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++)
        for (size_t k = 0; k < COUNT_OF(any); k++)
            if (strstr(s->code.list[i].code, any[k])) return true;
    for (size_t i = 0; text && i < text->n && s->budget-- > 0; i++)
        for (const char *line = text->lines[i], *p = strstr(line, last); p; p = strstr(p + n, last)) {
            const char *start = line + strspn(line, " \t"); /* hist = state.setdefault("hist", []) makes it */
            const bool made = strncmp(start, last, n) == 0 && strncmp(start + n, " = ", 3) == 0;
            if (memchr(line, '{', (size_t)(p - line)) || (p > line && strchr("\"'", p[-1]) && !made)) return true;
        }
    return !text;
}

/* How many of its last items the statements read of the list; -1: others, too, or one of them at statement `at`. */
static int latest_reads(struct site_search *s, const struct site_code *of, size_t store, size_t at, const char *into)
{
    const char *dot = strrchr(into, '.'), *last = dot ? dot + 1 : into; /* t.hist may be self.hist */
    const size_t n = strlen(last);
    int most = 0;
    for (size_t i = 0; i < of->n && s->budget-- > 0; i++) {
        const char *code = of->list[i].code;
        for (const char *p = strstr(code, last); p; p = strstr(p + n, last)) {
            const char *from = p;
            if ((p > code && site_is_name_character(p[-1])) || site_is_name_character(p[n])) continue;
            if (!dot && p > code && p[-1] == '.') continue;
            while (dot && from > code && (site_is_name_character(from[-1]) || from[-1] == '.')) from--;
            const int reads = items_read(code, from, (size_t)(p - from) + n, i == store);
            if (reads < 0 || (reads && i == at)) return -1;
            most = reads > most ? reads : most;
        }
    }
    return most;
}

static int latest_reads_of_file(struct site_search *s, const char *file, const char *attribute)
{
    const struct run_source_text *text = run_source_text(s->b->run, file);
    const struct site_code code = text ? site_code_of_text(s->b, text) : (struct site_code){.n = 0};
    return !text ? -1 : latest_reads(s, &code, code.n, code.n, attribute);
}

struct files {
    const char *list[16];
    size_t n;
    bool full;
};

static void add_read_file(struct files *files, const char *file)
{
    enum { MOST = sizeof files->list / sizeof *files->list };
    size_t k = 0;
    if (site_is_library(&(struct run_frame){.kind = GS_FRAME_PYTHON, .file = file})) return;
    while (k < files->n && strcmp(files->list[k], file) != 0) k++;
    files->full = files->full || k == MOST;
    if (k == files->n && k < MOST) files->list[files->n++] = file;
}

/* The same of an attribute in the other files of the program that allocate, and in those that they import. */
static int latest_reads_elsewhere(struct site_search *s, const char *attribute)
{
    struct files files = {.list = {s->frame->file}, .n = 1};
    int most = 0;
    for (size_t i = 0; i < run_location_count(s->b->run) && s->budget-- > 0; i++) {
        uint32_t stack = run_location(s->b->run, (uint32_t)i)->stack;
        RUN_EACH_FRAME (frame, s->b->run, stack)
            if (frame->kind == GS_FRAME_PYTHON && frame->file) add_read_file(&files, frame->file);
    }
    for (size_t k = 0; k < files.n && !files.full && s->budget > 0; k++) {
        const struct run_source_text *text = run_source_text(s->b->run, files.list[k]);
        const struct site_code code = text ? site_code_of_text(s->b, text) : (struct site_code){.n = 0};
        const int reads = k ? latest_reads_of_file(s, files.list[k], attribute) : 0;
        if (reads < 0) return -1;
        most = reads > most ? reads : most;
        for (size_t i = 0; i < code.n && s->budget-- > 0; i++) {
            const char *path = site_imported_file(s->b->arena, files.list[k], code.list[i].code);
            if (path) add_read_file(&files, path);
        }
    }
    return files.full ? -1 : most;
}

/* Of a list that statement `store` appends to: what to do if the program reads no more than its last items; NULL. Not
 * if what is appended is computed from an item: its graph may refer to that. */
static const char *latest_advice(struct site_search *s, size_t store, const char *into)
{
    const char *dot = strrchr(into, '.');
    const int own = s->graph ? -1 : latest_reads(s, &s->code, store, s->at, into);
    const int others = own >= 0 && dot ? latest_reads_elsewhere(s, into) : 0, most = others > own ? others : own;
    if (own < 0 || others < 0 || !most || is_read_by_text(s, dot ? dot + 1 : into)) return NULL;
    return arena_printf(s->b->arena, "keep only the last %d, because the %s no others (del %s[:-%d])", most,
                        others ? "program's recorded files read" : "file reads", into, most);
}

/* if not self.tracks: for x in found: self.tracks.append(x) */
static bool is_filled_once(struct site_search *s, size_t i, const char *name)
{
    const char *const empty[] = {arena_printf(s->scratch, "if not %s:", name),
                                 arena_printf(s->scratch, "if len(%s) == 0:", name)};
    for (size_t k = site_code_parent(&s->code, i); k < s->code.n; k = site_code_parent(&s->code, k))
        if (TEXT_IS_ONE_OF(s->code.list[k].code, empty)) return true;
    return false;
}

/* getattr(self, name).append(x): any attribute, which the file may also empty, replace or bound. */
static bool is_lasting_attribute(struct site_search *s, const char *into)
{
    const char *parts = arena_printf(s->scratch, "%.*s", (int)strcspn(into, ")"), into) + 8;
    const char *object = site_part_of(s->scratch, parts, 0);
    const char *get = arena_printf(s->scratch, "getattr(%s,", object), *set = get + 1;
    bool lasts = !*site_part_of(s->scratch, parts, 2); /* a default may be a new list */
    for (size_t i = 0; i < s->code.n && lasts && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code, *p = strstr(code, get), *close = p ? site_closing(p + 7) : "";
        const bool ends = *close && (strncmp(close + 1, ".clear(", 7) == 0 || strncmp(close + 1, ".pop", 4) == 0);
        size_t def = site_code_parent(&s->code, i);
        while (def < s->code.n && !site_is_function(&s->code.list[def])) def = site_code_parent(&s->code, def);
        const char *set_at = strstr(code, "setattr(");
        const bool sets = set_at && strncmp(set_at + 1, set, strlen(set)) == 0 &&
                          !(def < s->code.n && strstr(s->code.list[def].code, "__init__"));
        lasts = !ends && !sets && !strstr(code, "maxlen=");
    }
    return lasts;
}

const char site_cache_advice[] =
    "bound the cache (`lru_cache(maxsize=N)`), or cache copies on the host (`.detach().cpu()`)";

/* optimizer.state[new] = …: its keys are the parameters. */
static bool is_of_optimizer(const char *name)
{
    return text_ends_with(name, ".state") && strstr(name, "optim");
}

void site_consider_store(struct site_search *s, size_t i, const char *into, bool weak)
{
    const bool named = strncmp(into, "getattr(", 8) == 0;
    if (named && !is_lasting_attribute(s, into)) return;
    const char *name = site_base_name(s->scratch, into + 8 * named);
    const size_t loop = site_common_loop(s, s->at, i), none = s->code.n;
    const bool local = !s->module && site_is_made_in(s, name, s->from, s->to);
    const char *root = arena_printf(s->scratch, "%.*s", (int)strcspn(name, "."), name); /* node of node.children */
    const bool made = local || (!s->module && site_is_made_in(s, root, s->from, s->to));
    /* a container of the object that is constructed; that of its class outlives it */
    const bool own =
        s->constructs && strncmp(name, "self.", 5) == 0 && (site_is_made_in(s, name, s->from, i) || calls_base(s));
    if (!*name || (site_is_given(s, name, is_bounded) && is_full(s, name)) || is_small_window(s, i, name) ||
        is_filled_once(s, i, name) || (loop == none && (local || s->module)) ||
        (loop != none && !s->emptied && site_is_made_in(s, name, loop, site_code_end(&s->code, loop))))
        return;
    bool reset = false; /* by a loop around it: then it is held only until the next iteration */
    for (size_t k = loop; k < none && !reset; k = site_common_loop(s, k, k)) {
        reset = k != loop && site_is_made_in(s, name, k, site_code_end(&s->code, k));
        if (reset && !s->emptied && is_step_loop(s, k, loop)) return;
    }
    const char *code = s->code.list[i].code;
    struct site_assignment a;
    const bool keyed = strstr(code, ".setdefault(") ||
                       (site_assignment_of(s->scratch, code, &a) && !a.augmented && strchr(a.targets, '['));
    const bool cached = keyed && site_fills_if_missing(s->scratch, &s->code, s->from, i, name);
    const bool part = keyed && site_is_given(s, name, is_filled_tensor);
    if (part && !s->graph) return; /* it copies the value */
    const bool queue = strstr(code, ".put(") || strstr(code, ".put_nowait(");
    const bool bounded = site_is_given(s, name, is_bounded_deque), limited = is_bounded_by_size(s, i, name);
    const bool returned = made && is_returned(s, name);
    s->returned = s->returned || returned;
    const char *what = arena_printf(s->scratch, "%s that stores the result of line %d outside of it",
                                    format_holder_place(s, loop != none), s->at < none ? s->code.list[s->at].line : 0);
    site_add_candidate(&s->found,
                       (struct site_candidate){.frame = s->frame,
                                               .code = s->code,
                                               .at = i,
                                               .into = named ? NULL : name,
                                               .why = what,
                                               .keyed = keyed,
                                               .cached = cached,
                                               .instead = queue                            ? queue_advice
                                                          : part                           ? part_advice
                                                          : keyed && is_of_optimizer(name) ? state_advice
                                                          : bounded && !s->graph           ? deque_advice
                                                          : limited && !s->graph           ? bound_advice
                                                          : cached && !s->graph            ? site_cache_advice
                                                          : strstr(code, ".append(")       ? latest_advice(s, i, name)
                                                                                           : NULL,
                                               .weak = weak || reset || is_emptied(s, name) ||
                                                       site_is_given(s, name, is_bounded_by_name) ||
                                                       loop != site_common_loop(s, s->at, s->at),
                                               .reset = reset,
                                               .passed = returned || own});
}

bool site_is_constructor(const char *function)
{
    static const char *const names[] = {"__init__", "__new__", "__post_init__", "__attrs_post_init__",
                                        "model_post_init"};
    return TEXT_IS_ONE_OF(text_last_part(function), names);
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
    return !ANY_OF(x, same, COUNT_OF(same), strncmp(end + 1, *x, strlen(*x)) == 0);
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

const char *site_values_of(struct site_search *s, const char *text)
{
    const size_t n = strlen(text);
    const bool display = n > 1 && strchr("([{", *text) && site_closing(text) == text + n - 1 && !strstr(text, " for ");
    return display ? arena_printf(s->scratch, "%.*s", (int)n - 2, text + 1) : text;
}

bool site_value_holds(struct site_search *s, size_t i, const char *value)
{
    const char *parts = site_values_of(s, value), *part;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->scratch, parts, k)); k++) {
        const char *colon = *value == '{' ? strchr(part, ':') : NULL, *of = colon ? colon + 1 : part;
        of += strspn(of, " *");
        if (site_values_of(s, of) != of ? site_value_holds(s, i, of) : part_holds(s, i, of)) return true;
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

size_t site_iterated_length(const char **in)
{
    *in += strncmp(*in, "enumerate(", 10) == 0 ? 10 : 0;
    size_t n = site_name_length(*in);
    if (n > 7 && strncmp(*in + n - 7, ".values", 7) == 0) n -= 7;
    if (n > 6 && strncmp(*in + n - 6, ".items", 6) == 0) n -= 6;
    return n;
}
