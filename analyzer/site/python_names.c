#include "analyzer/site/python_names.h"
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"

#include <ctype.h>
#include <string.h>

void site_names_add(struct arena *arena, struct site_names *names, const char *name, size_t length)
{
    const char *copy = length ? arena_printf(arena, "%.*s", (int)length, name) : "";
    if (length && names->n < SITE_NAMES && !site_names_has(names, copy)) names->list[names->n++] = copy;
}

bool site_names_has(const struct site_names *names, const char *name)
{
    return ANY_OF(l, names->list, names->n, strcmp(*l, name) == 0);
}

size_t site_name_length(const char *p)
{
    size_t n = 0;
    if (isdigit((unsigned char)*p)) return 0;
    while (site_is_name_character(p[n]) || (n && p[n] == '.' && site_is_name_character(p[n + 1]))) n++;
    return n;
}

const char *site_base_name(struct arena *arena, const char *expression)
{
    size_t n = site_name_length(expression);
    if (expression[n] == '(') /* for a method's result: the object */
        while (n && expression[n] != '.') n--;
    return n ? arena_printf(arena, "%.*s", (int)n, expression) : "";
}

static int depth_step(char c)
{
    return (c && strchr("([{", c) != NULL) - (c && strchr(")]}", c) != NULL);
}

/* The last `=` of an assignment, outside of brackets; NULL none. */
static const char *last_assign(const char *code)
{
    const char *found = NULL;
    int depth = 0;
    for (const char *p = code; *p; p++) {
        depth += depth_step(*p);
        if (strncmp(p, "lambda", 6) == 0 && (p == code || !site_is_name_character(p[-1])) &&
            !site_is_name_character(p[6]))
            break; /* its defaults */
        if (*p == '=' && !depth && p > code) {
            if (p[1] == '=')
                p++;
            else if (!strchr("=!<>:", p[-1]))
                found = p;
        }
    }
    return found;
}

static const char *copy_trimmed(struct arena *arena, const char *from, size_t n)
{
    for (; n && *from == ' '; n--) from++;
    while (n && from[n - 1] == ' ') n--;
    return arena_printf(arena, "%.*s", (int)n, from);
}

bool site_assignment_of(struct arena *arena, const char *code, struct site_assignment *to)
{
    const char *sign = last_assign(code), *end = sign;
    if (!sign) return false;
    to->augmented = strchr("+-*/|&@%^", sign[-1]) != NULL;
    end -= to->augmented;
    int depth = 0;
    for (const char *p = code; p < end; p++) { /* an annotation */
        depth += depth_step(*p);
        end = *p == ':' && !depth ? p : end;
    }
    to->targets = copy_trimmed(arena, code, (size_t)(end - code));
    to->value = copy_trimmed(arena, sign + 1, strlen(sign + 1));
    return true;
}

const char *site_closing(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        depth += depth_step(*p);
        if (depth <= 0) return p;
    }
    return p;
}

bool site_closes_at_end(const char *open)
{
    const char *close = site_closing(open);
    return *close && !close[1];
}

const char *site_part_of(struct arena *arena, const char *values, size_t index)
{
    const char *from = values;
    int depth = 0;
    for (const char *p = values;; p++) {
        depth += depth_step(*p);
        if (*p && (*p != ',' || depth)) continue;
        if (!index--) return copy_trimmed(arena, from, (size_t)(p - from));
        if (!*p) return "";
        from = p + 1;
    }
}

int site_parameter_of(struct arena *arena, const char *def, const char *name)
{
    const char *open = strchr(def, '('), *close = open ? site_closing(open) : "";
    const char *parameters = *close ? arena_printf(arena, "%.*s", (int)(close - open - 1), open + 1) : "", *part;
    int at = 0;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(arena, parameters, k)); k++) {
        const size_t n = site_name_length(part);
        if (n == strlen(name) && strncmp(part, name, n) == 0) return at;
        at += !(k == 0 && ((n == 4 && strncmp(part, "self", n) == 0) || (n == 3 && strncmp(part, "cls", n) == 0)));
    }
    return -1;
}

const char *site_argument_at(struct arena *arena, const char *p, int index, const char *parameter)
{
    const size_t n = site_name_length(p), length = strlen(parameter);
    const char *close = p[n] == '(' ? site_closing(p + n) : "";
    const char *arguments = *close ? arena_printf(arena, "%.*s", (int)(close - p - (long)n - 1), p + n + 1) : "", *part;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(arena, arguments, k)); k++) {
        if (strncmp(part, parameter, length) == 0 && part[length] == '=' && part[length + 1] != '=')
            return part + length + 1;
        if ((int)k == index && !strchr(part, '=')) return part;
    }
    return "";
}

/* "" (which replaces a string), or a number: each assignment replaces the previous one. */
static bool is_constant(const char *from, const char *to)
{
    for (; from < to; from++)
        if (isalpha((unsigned char)*from) || *from == '_' || *from == '{') return false;
    return true;
}

/* After the name of a target: indexes, calls and attributes, cache[key], table.setdefault(key, {})[n], items[i].value.
 */
static const char *target_end(const char *end, bool *index, bool *varies)
{
    const bool within = *end && strchr("[(", *end);
    while (within && *end && strchr("[(.", *end)) {
        if (*end == '.') {
            end += 1 + site_name_length(end + 1);
            continue;
        }
        const char *close = site_closing(end);
        *index = *index || *end == '[';
        *varies = *varies || (*end == '[' && !is_constant(end + 1, close));
        end = *close ? close + 1 : close;
    }
    return end;
}

void site_targets_of(struct arena *arena, const char *targets, struct site_names *names, struct site_names *indexed)
{
    for (const char *p = targets; *p;) {
        const size_t n = site_name_length(p);
        bool index = false, varies = false;
        const char *end = n ? target_end(p + n, &index, &varies) : p + 1, *base = n ? site_base_name(arena, p) : "";
        if (!*base && strncmp(p, "globals()", n + 2) == 0) base = "globals";
        if (!*base && strncmp(p, "vars(", n + 1) == 0) base = site_base_name(arena, p + n + 1); /* vars(self)[key] */
        if (index && varies && indexed && *base) site_names_add(arena, indexed, base, strlen(base));
        if (n && !index) site_names_add(arena, names, p, n);
        p = end;
    }
}

/* "for x in loader", "with open(f) as g", "if (x := f(y)) > 0": the names that they bind, and the value. */
static bool header_of(struct arena *arena, const struct site_statement *st, struct site_assignment *to)
{
    const char *in = strstr(st->code, " in "), *as = strstr(st->code, " as "), *walrus = strstr(st->code, ":=");
    if (walrus && (site_code_begins(st, "if") || site_code_begins(st, "while") || site_code_begins(st, "elif"))) {
        const char *end = walrus, *name;
        while (end > st->code && end[-1] == ' ') end--;
        for (name = end; name > st->code && site_is_name_character(name[-1]); name--) {
        }
        *to = (struct site_assignment){.targets = arena_printf(arena, "%.*s", (int)(end - name), name),
                                       .value = walrus + 2};
        return true;
    }
    if (site_code_begins(st, "for") && in) {
        const char *name = strstr(st->code, "for") + 3; /* for(x) in y: no blank follows */
        name += strspn(name, " ");
        if (name > in) return false;
        *to = (struct site_assignment){.targets = arena_printf(arena, "%.*s", (int)(in - name), name), .value = in + 4};
        return true;
    }
    if (site_code_begins(st, "with") && as && as - st->code > 5) {
        const char *value = strstr(st->code, "with") + 4;
        value += strspn(value, " ");
        *to =
            (struct site_assignment){.targets = as + 4, .value = arena_printf(arena, "%.*s", (int)(as - value), value)};
        return true;
    }
    return false;
}

bool site_binding_of(struct arena *arena, const struct site_statement *st, struct site_assignment *to)
{
    return header_of(arena, st, to) || site_assignment_of(arena, st->code, to);
}

/* heapq.heappush(into, value) */
static bool function_store(struct arena *arena, const char *code, struct site_store *to)
{
    static const char *const functions[] = {"heappush", "insort", "insort_left", "insort_right"};
    const size_t n = site_name_length(code);
    const char *end = code[n] == '(' ? site_closing(code + n) : code;
    size_t from = n;
    while (from && code[from - 1] != '.') from--;
    for (size_t i = 0; *end == ')' && !end[1] && i < COUNT_OF(functions); i++) {
        if (strlen(functions[i]) == n - from && strncmp(code + from, functions[i], n - from) == 0) {
            const char *arguments = arena_printf(arena, "%.*s", (int)(end - code - (long)n - 1), code + n + 1);
            to->into = site_part_of(arena, arguments, 0);
            to->value = arguments + strcspn(arguments, ",");
            to->value += strspn(to->value, ", ");
            to->weak = false;
            return *to->value != 0;
        }
    }
    return false;
}

/* setattr(into, f"{name}", value), into.register_buffer(f"{name}", value). A constant name replaces the value before.
 */
static bool attribute_store(struct arena *arena, const char *code, struct site_store *to)
{
    static const char *const methods[] = {"setattr", "register_buffer", "register_parameter", "register_module",
                                          "add_module"};
    const size_t n = site_name_length(code);
    const char *end = code[n] == '(' ? site_closing(code + n) : code;
    size_t from = n;
    while (from && code[from - 1] != '.') from--;
    for (size_t i = 0; *end == ')' && !end[1] && i < COUNT_OF(methods); i++) {
        if (strlen(methods[i]) != n - from || strncmp(code + from, methods[i], n - from) != 0) continue;
        const char *arguments = arena_printf(arena, "%.*s", (int)(end - code - (long)n - 1), code + n + 1);
        const char *key = site_part_of(arena, arguments, !from);
        to->into = from ? arena_printf(arena, "%.*s", (int)from - 1, code) : site_part_of(arena, arguments, 0);
        to->value = site_part_of(arena, arguments, 1 + !from);
        to->weak = false;
        return *to->value && !is_constant(key, key + strlen(key));
    }
    return false;
}

/* The call that may store something: of `ready and into.append(x)`, `into.append(x) if x else None`, `await put(x)`. */
static const char *called_part(struct arena *arena, const char *code)
{
    const char *from = strncmp(code, "await ", 6) == 0 ? code + 6 : code, *end = from;
    const bool conditional = strstr(from, " if ") && strstr(from, " else ");
    if (!conditional && !strstr(from, " and ") && !strstr(from, " or ")) return from;
    for (; *end && !(conditional && strncmp(end, " if ", 4) == 0); end++) {
        if (strchr("([{", *end)) end = site_closing(end);
        if (!*end) break;
        from = strncmp(end, " and ", 5) == 0 ? end + 5 : strncmp(end, " or ", 4) == 0 ? end + 4 : from;
    }
    return copy_trimmed(arena, from, (size_t)(end - from));
}

bool site_store_of(struct arena *arena, const char *statement, struct site_store *to)
{
    const char *code = called_part(arena, statement);
    static const char *const methods[] = {".append(",         ".appendleft(", ".add(", ".extend(",     ".extendleft(",
                                          ".insert(",         ".setdefault(", ".put(", ".put_nowait(", ".update(",
                                          ".add_param_group("};
    for (size_t i = 0; i < COUNT_OF(methods); i++) {
        const size_t n = strlen(methods[i]);
        for (const char *p = strstr(code, methods[i]); p; p = strstr(p + 1, methods[i])) {
            const char *open = p + n - 1, *close = site_closing(open);
            const char *into = code + (*code == '('); /* (self.real if real else self.fake).append(x) */
            if (p > code && site_name_length(into) && *close == ')' && !close[1] && !last_assign(code)) {
                to->into = copy_trimmed(arena, into, (size_t)(p - into));
                to->value = copy_trimmed(arena, open + 1, (size_t)(close - open - 1));
                to->weak = strcmp(methods[i], ".update(") == 0;
                return *to->value != 0;
            }
        }
    }
    return function_store(arena, code, to) || attribute_store(arena, code, to);
}

/* An attribute or a method at p: a number or a copy on the host. */
static bool is_host_attribute(const char *p)
{
    static const char *const words[] = {".item()", ".tolist()", ".numpy(", ".cpu("};
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strncmp(p, words[i], strlen(words[i])) == 0) return true;
    const char *cpu = strncmp(p, ".to(", 4) == 0 ? strstr(p, "\"cpu\"") : NULL;
    return cpu && cpu < site_closing(p + 3);
}

static bool range_has_host(const char *from, const char *to, bool graph)
{
    for (const char *p = from; p < to; p++)
        if (*p == '.' && (is_host_attribute(p) || (graph && strncmp(p, ".detach()", 9) == 0))) return true;
    return false;
}

/* loss.item(), round(loss.item(), 3); of mse_loss(model(x), y.detach()) only one of the values is. */
static bool is_host_range(const char *from, const char *to, bool graph)
{
    bool calls = false, all = true;
    for (const char *p = from; p < to; p++) {
        if (*p == '.' && (is_host_attribute(p) || (graph && strncmp(p, ".detach()", 9) == 0))) return true;
        if (!strchr("([{", *p)) continue;
        const char *end = site_closing(p) < to ? site_closing(p) : to, *next;
        for (const char *part = p + 1; part < end; part = next + 1) {
            for (next = part; next < end && *next != ','; next++)
                if (strchr("([{", *next)) next = site_closing(next) < end ? site_closing(next) : end - 1;
            if (!memchr(part, '(', (size_t)(next - part))) continue;
            calls = true;
            all = all && is_host_range(part, next, graph);
        }
        p = end;
    }
    return calls && all;
}

/* An attribute that is only a number. */
static bool is_property(const char *p)
{
    static const char *const words[] = {".shape", ".size(", ".dtype", ".device", ".numel(", ".dim(", ".ndim"};
    return ANY_OF(w, words, COUNT_OF(words),
                  strncmp(p, *w, strlen(*w)) == 0 &&
                      (strchr(*w, '(') || !site_is_name_character(p[strlen(*w)]))); /* self.shape_code is a tensor */
}

/* x.shape[0], x.size(0), len(x), and nothing else */
static bool is_size(const char *expression)
{
    const char *end = expression + site_name_length(expression),
               *dot = memrchr(expression, '.', (size_t)(end - expression));
    const bool property = dot && is_property(dot), length = strncmp(expression, "len(", 4) == 0;
    return (property && !*end) || ((property || length) && site_closes_at_end(end));
}

bool site_is_host_value(const char *expression, bool graph)
{
    return is_size(expression) || is_host_range(expression, expression + strlen(expression), graph);
}

/* Is the bracket at `open` that of a call of one of the functions? */
static bool is_call_of(const char *code, const char *open, const char *const *functions, size_t count)
{
    const char *name = open;
    while (name > code && site_is_name_character(name[-1])) name--;
    const size_t n = (size_t)(open - name);
    return ANY_OF(f, functions, count, strlen(*f) == n && strncmp(name, *f, n) == 0);
}
#define IS_CALL_OF(code, open, functions) is_call_of(code, open, functions, sizeof(functions) / sizeof *(functions))

/* float(…), to_cpu(…): a bracket at `open` encloses the arguments of a function that returns no tensor of the GPU. */
static bool is_converting(const char *code, const char *open)
{
    static const char *const words[] = {"float", "int",  "len",   "str",     "repr",      "bool",
                                        "id",    "type", "print", "hasattr", "isinstance"};
    const char *name = open;
    while (name > code && site_is_name_character(name[-1])) name--;
    const char *cpu = strstr(name, "cpu"), *numpy = strstr(name, "nump");
    return (cpu && cpu < open) || (numpy && numpy < open) || IS_CALL_OF(code, open, words);
}

/* torch.cat(…), np.stack(…): the bracket encloses the arguments of a function that returns a copy of them. */
static bool is_copying(const char *code, const char *open)
{
    static const char *const words[] = {"cat", "concat", "concatenate", "stack", "hstack", "vstack", "clone"};
    return IS_CALL_OF(code, open, words);
}

/* F.mse_loss(…), torch.mean(…): of a function that returns a tensor which it computes from them. */
static bool is_computing(const char *code, const char *open)
{
    static const char *const words[] = {"cross_entropy", "binary_cross_entropy_with_logits",
                                        "mse_loss",      "binary_cross_entropy",
                                        "l1_loss",       "smooth_l1_loss",
                                        "nll_loss",      "huber_loss",
                                        "kl_div",        "mean",
                                        "sum",           "norm"};
    return IS_CALL_OF(code, open, words);
}

const char *site_bracket_around(const char *code, const char *p)
{
    for (int depth = 0; p > code; depth -= depth_step(*p))
        if (depth_step(*--p) > 0 && depth == 0) return p;
    return NULL;
}

/* Is one of the words at p, and complete? */
static bool begins_with_word(const char *p, const char *const *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t n = strlen(words[i]);
        if (strncmp(p, words[i], n) == 0 && (strchr("()", words[i][n - 1]) || !site_is_name_character(p[n])))
            return true;
    }
    return false;
}

/* What it returns is another tensor that has no graph or, if memory is kept by a graph only, a tensor without one. If
 * the memory itself is kept, a tensor that was computed from it does not keep it. */
static bool is_other_tensor(const char *p, bool graph)
{
    static const char *const without_graph[] = {".argmax(", ".argmin(", ".argsort(", ".eq(", ".ne(",
                                                ".gt(",     ".lt(",     ".sample()"}; /* of a distribution */
    static const char *const same_memory[] = {".detach()", ".data", ".long()", ".int()", ".bool()"};
    static const char *const computed[] = {".mean(", ".sum(", ".norm(", ".std(",    ".var(",     ".prod(", ".any(",
                                           ".all(",  ".abs(", ".exp(",  ".square(", ".softmax(", ".pow(",  ".sqrt("};
    return begins_with_word(p, without_graph, COUNT_OF(without_graph)) ||
           (graph ? begins_with_word(p, same_memory, COUNT_OF(same_memory))
                  : begins_with_word(p, computed, COUNT_OF(computed)));
}

/* trainer.evaluate()["loss"]: an entry of what the method returned. batch.to(device)["ids"] is one of the batch. */
static bool is_result_entry(const char *p)
{
    const size_t n = *p == '.' ? site_name_length(p + 1) : 0;
    const char *close = n && p[1 + n] == '(' ? site_closing(p + 1 + n) : "";
    return *close && strncmp(close + 1, "[\"", 2) == 0 && strncmp(p, ".to(", 4) != 0 && strncmp(p, ".cuda(", 6) != 0;
}

/* The mention of a value from p to `end`: is the value, or the result computed from it, only a number, on the host or,
 * with `copies`, a copy? */
static bool is_other_mention(const char *code, const char *p, const char *end, bool graph, bool copies)
{
    for (;;) {
        while (*end && strchr(".[(", *end)) { /* attributes, indexes and calls that follow it */
            if (is_host_attribute(end) || is_property(end) || is_other_tensor(end, graph) ||
                (copies && strncmp(end, ".clone(", 7) == 0))
                return true;
            if (is_result_entry(end)) return true;
            const size_t n = *end == '.' ? 1 + site_name_length(end + 1) : 0;
            const char *close = n ? end + n : site_closing(end);
            end = n || !*close ? close : close + 1;
        }
        const char *open = site_bracket_around(code, p);
        if (!open) return false;
        const char *loop = strstr(open, " for ");
        if (is_converting(code, open) || (!graph && is_computing(code, open)) ||
            (loop && loop < p && range_has_host(open, loop, graph)) || (copies && is_copying(code, open)))
            return true;
        p = open;
        end = site_closing(open);
        end += *end != 0;
    }
}

/* f(x=1): the name of an argument. */
static bool is_keyword(const char *code, const char *p, size_t n)
{
    const char *after = p + n, *before = p;
    while (*after == ' ') after++;
    while (before > code && before[-1] == ' ') before--;
    return *after == '=' && after[1] != '=' && before > code && strchr("(,", before[-1]);
}

static bool code_mentions(const char *code, const char *name, bool graph, bool copies)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name)) {
        if ((p > code && (site_is_name_character(p[-1]) || p[-1] == '.')) || site_is_name_character(p[n]) ||
            is_keyword(code, p, n))
            continue;
        if (!is_other_mention(code, p, p + n, graph, copies)) return true;
    }
    return false;
}

bool site_holds(const char *expression, const struct site_names *names, bool graph)
{
    return ANY_OF(l, names->list, names->n, code_mentions(expression, *l, graph, false));
}

bool site_holds_itself(const char *expression, const struct site_names *names, bool graph)
{
    return ANY_OF(l, names->list, names->n, code_mentions(expression, *l, graph, !graph));
}

const char *site_lambda_store(struct arena *arena, const char *code, bool graph)
{
    const char *lambda = strstr(code, "lambda "), *colon = lambda ? strchr(lambda, ':') : NULL;
    struct site_store store;
    if (!colon) return NULL;
    const char *body = colon + 1 + (colon[1] == ' ');
    size_t n = strlen(body);
    while (n && body[n - 1] == ')' && !site_store_of(arena, arena_printf(arena, "%.*s", (int)n, body), &store)) n--;
    struct site_names arguments = {.n = 0};
    site_targets_of(arena, arena_printf(arena, "%.*s", (int)(colon - lambda - 7), lambda + 7), &arguments, NULL);
    return n && site_store_of(arena, arena_printf(arena, "%.*s", (int)n, body), &store) && !store.weak &&
                   !site_is_host_value(store.value, graph) && site_holds(store.value, &arguments, graph)
               ? store.into
               : NULL;
}

/* [image for image, _ in items] makes nothing: each element is a name. */
static bool is_name_only(const char *element, const char *end)
{
    while (element < end && *element == ' ') element++;
    return element + site_name_length(element) == end;
}

/* run([f(x) for x in items]): is p inside of the arguments of a call of that function, which began after them? */
static bool is_argument_of(const char *code, const char *p, const char *function)
{
    const char *last = text_last_part(function);
    const size_t n = strlen(last);
    for (const char *open = site_bracket_around(code, p); open && n; open = site_bracket_around(code, open)) {
        const char *name = open;
        while (name > code && site_is_name_character(name[-1])) name--;
        if ((size_t)(open - name) == n && strncmp(name, last, n) == 0) return true;
    }
    return false;
}

/* nn.Sequential(*[Block() for _ in range(9)]): the parts of one object. */
static bool is_parts_of_module(const char *code, const char *p)
{
    static const char *const makers[] = {"Sequential", "ModuleList", "ModuleDict", "ParameterList", "ParameterDict"};
    const char *open = site_bracket_around(code, p);
    return open && IS_CALL_OF(code, open, makers);
}

/* Does sum(x.item() for x in y), reduce(operator.add, (…)) add up tensors? */
static bool adds_values(const char *code, const char *p, const char *in)
{
    const char *open = strchr(p, '(') + 1;
    const bool sum = *p == 's', member = p > code && p[-1] == '.';
    if (sum)
        return !member && !strchr("0123456789", *open) && strncmp(open, "float(", 6) != 0 &&
               strncmp(open, "int(", 4) != 0;
    return (!member || (p - code > 9 && strncmp(p - 10, "functools", 9) == 0)) &&
           (strncmp(open, "operator.add,", 13) == 0 || strncmp(open, "torch.add,", 10) == 0 ||
            (strncmp(open, "lambda ", 7) == 0 && strstr(open, " + ") && strstr(open, " + ") < in));
}

bool site_collects(const char *code, const char *inner, bool graph)
{
    static const char *const words[] = {"sum(", "reduce(", "list(", "tuple(", "dict(", "set(", "sorted(", "[", "{"};
    enum { SUMS = 2 }; /* a sum keeps the graphs of its terms, not the terms */
    for (size_t i = graph ? 0 : SUMS; i < COUNT_OF(words); i++) {
        for (const char *p = strstr(code, words[i]); p; p = strstr(p + 1, words[i])) {
            const char *end = site_closing(p + strlen(words[i]) - 1), *in = strstr(p, " for ");
            const bool whole = !site_is_name_character(*p) || p == code || !site_is_name_character(p[-1]);
            if (whole && in && in < end && (i >= SUMS || adds_values(code, p, in)) &&
                !is_name_only(p + strlen(words[i]), in) && !is_argument_of(code, p, inner) &&
                !is_parts_of_module(code, p))
                return true;
        }
    }
    return false;
}

bool site_is_passed_to_call(const char *value, const char *name)
{
    const size_t n = strlen(name);
    for (const char *open = strchr(value, '('); open; open = strchr(open + 1, '(')) {
        const char *end = open > value && site_is_name_character(open[-1]) ? site_closing(open) : NULL;
        for (const char *p = end ? strstr(open, name) : NULL; p && p < end; p = strstr(p + 1, name))
            if (!site_is_name_character(p[-1]) && p[-1] != '.' && !site_is_name_character(p[n])) return true;
    }
    return false;
}

bool site_is_cut(const char *value)
{
    const size_t n = strlen(value);
    const char *open = n && value[n - 1] == ']' ? site_bracket_around(value, value + n - 1) : NULL;
    const bool call = open && open > value && open[-1] == ')' && strchr(open, ':') && !strchr(open, ',');
    return call && site_bracket_around(value, open - 1) == value + site_name_length(value);
}

bool site_is_concatenation(const char *value)
{
    static const char *const words[] = {"cat(", "stack(", "concat(", "concatenate("};
    return ANY_OF(w, words, COUNT_OF(words), strstr(value, *w));
}

bool site_is_dictionary(const char *value)
{
    static const char *const makers[] = {"dict(", "defaultdict(", "OrderedDict(", "collections."};
    bool is = *value == '{';
    for (size_t i = 0; i < COUNT_OF(makers); i++) is = is || strncmp(value, makers[i], strlen(makers[i])) == 0;
    return is;
}

bool site_is_tuple(const char *value)
{
    const char *end = *value == '(' ? site_closing(value) : "";
    return *end && !end[1] && strchr(value, ',');
}
