#include "analyzer/site/python_names.h"

#include <ctype.h>
#include <string.h>

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

void site_names_add(struct arena *arena, struct site_names *names, const char *name, size_t length)
{
    const char *copy = length ? arena_printf(arena, "%.*s", (int)length, name) : "";
    if (length && names->n < SITE_NAMES && !site_names_has(names, copy)) {
        names->list[names->n++] = copy;
    }
}

bool site_names_has(const struct site_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->list[i], name) == 0) {
            return true;
        }
    }
    return false;
}

size_t site_name_length(const char *p)
{
    size_t n = 0;
    if (isdigit((unsigned char)*p)) {
        return 0;
    }
    while (is_word(p[n]) || (n && p[n] == '.' && is_word(p[n + 1]))) {
        n++;
    }
    return n;
}

const char *site_base_name(struct arena *arena, const char *expression)
{
    size_t n = site_name_length(expression);
    if (expression[n] == '(') { /* for a method's result: the object */
        while (n && expression[n] != '.') {
            n--;
        }
    }
    return n ? arena_printf(arena, "%.*s", (int)n, expression) : "";
}

/* ---------------------------------------------------------------- assignments */

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
        if (strncmp(p, "lambda", 6) == 0 && (p == code || !is_word(p[-1])) && !is_word(p[6])) {
            break; /* its defaults */
        }
        if (*p == '=' && !depth && p > code) {
            if (p[1] == '=') {
                p++;
            } else if (!strchr("=!<>:", p[-1])) {
                found = p;
            }
        }
    }
    return found;
}

static const char *trimmed(struct arena *arena, const char *from, size_t n)
{
    for (; n && *from == ' '; n--) {
        from++;
    }
    while (n && from[n - 1] == ' ') {
        n--;
    }
    return arena_printf(arena, "%.*s", (int)n, from);
}

bool site_assignment_of(struct arena *arena, const char *code, struct site_assignment *to)
{
    const char *sign = last_assign(code), *end = sign;
    if (!sign) {
        return false;
    }
    to->augmented = strchr("+-*/|&@%^", sign[-1]) != NULL;
    end -= to->augmented;
    int depth = 0;
    for (const char *p = code; p < end; p++) { /* an annotation */
        depth += depth_step(*p);
        end = *p == ':' && !depth ? p : end;
    }
    to->targets = trimmed(arena, code, (size_t)(end - code));
    to->value = trimmed(arena, sign + 1, strlen(sign + 1));
    return true;
}

static const char *closing(const char *p)
{
    int depth = 0;
    for (; *p; p++) {
        depth += depth_step(*p);
        if (depth <= 0) {
            return p;
        }
    }
    return p;
}

const char *site_part_of(struct arena *arena, const char *values, size_t index)
{
    const char *from = values;
    int depth = 0;
    for (const char *p = values;; p++) {
        depth += depth_step(*p);
        if (*p && (*p != ',' || depth)) {
            continue;
        }
        if (!index--) {
            return trimmed(arena, from, (size_t)(p - from));
        }
        if (!*p) {
            return "";
        }
        from = p + 1;
    }
}

/* "" (which replaces a string), or a number: each assignment replaces the previous one. */
static bool is_constant(const char *from, const char *to)
{
    for (; from < to; from++) {
        if (isalpha((unsigned char)*from) || *from == '_') {
            return false;
        }
    }
    return true;
}

void site_targets_of(struct arena *arena, const char *targets, struct site_names *names, struct site_names *indexed)
{
    for (const char *p = targets; *p;) {
        const size_t n = site_name_length(p);
        const char *end = p + n;
        if (!n) {
            p++;
        } else if (*end == '[') {
            const char *close = closing(end);
            if (indexed && !is_constant(end + 1, close)) {
                site_names_add(arena, indexed, p, n);
            }
            p = *close ? close + 1 : close;
        } else {
            site_names_add(arena, names, p, n);
            p = end;
        }
    }
}

/* ---------------------------------------------------------------- stores */

bool site_store_of(struct arena *arena, const char *code, struct site_store *to)
{
    static const char *const methods[] = {".append(", ".appendleft(", ".add(", ".extend(",     ".extendleft(",
                                          ".insert(", ".setdefault(", ".put(", ".put_nowait(", ".update("};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        const size_t n = strlen(methods[i]);
        for (const char *p = strstr(code, methods[i]); p; p = strstr(p + 1, methods[i])) {
            const char *open = p + n - 1, *close = closing(open);
            if (p > code && site_name_length(code) && *close == ')' && !close[1] && !last_assign(code)) {
                to->into = trimmed(arena, code, (size_t)(p - code));
                to->value = trimmed(arena, open + 1, (size_t)(close - open - 1));
                to->weak = strcmp(methods[i], ".update(") == 0;
                return *to->value != 0;
            }
        }
    }
    return false;
}

/* ---------------------------------------------------------------- what an expression holds */

static const char *const host[] = {".item()", ".tolist()", ".numpy()", ".cpu()", ".to(\"cpu\")", ".to('cpu')"};

bool site_is_host_value(const char *expression, bool graph)
{
    for (size_t i = 0; i < sizeof host / sizeof *host; i++) {
        if (strstr(expression, host[i])) {
            return true;
        }
    }
    return graph && strstr(expression, ".detach()");
}

/* After a name: an attribute that is only a number. */
static bool is_property(const char *p)
{
    static const char *const words[] = {".shape", ".size(", ".dtype", ".device", ".numel(", ".dim(", ".ndim"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(p, words[i], strlen(words[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* float(x): the name at p is the argument of a function that returns no tensor. */
static bool is_converted(const char *code, const char *p)
{
    static const char *const words[] = {"float(", "int(",  "len(",   "str(",     "repr(",      "bool(",
                                        "id(",    "type(", "print(", "hasattr(", "isinstance("};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(p - code) >= n && strncmp(p - n, words[i], n) == 0 &&
            ((size_t)(p - code) == n || !is_word(p[-(ptrdiff_t)n - 1]))) {
            return true;
        }
    }
    return false;
}

/* f(x=1): the name of an argument. */
static bool is_keyword(const char *code, const char *p, size_t n)
{
    const char *after = p + n, *before = p;
    while (*after == ' ') {
        after++;
    }
    while (before > code && before[-1] == ' ') {
        before--;
    }
    return *after == '=' && after[1] != '=' && before > code && strchr("(,", before[-1]);
}

static bool mentions(const char *code, const char *name, bool graph)
{
    const size_t n = strlen(name);
    for (const char *p = strstr(code, name); p; p = strstr(p + 1, name)) {
        if ((p > code && (is_word(p[-1]) || p[-1] == '.')) || is_word(p[n]) || is_keyword(code, p, n)) {
            continue;
        }
        if (!is_property(p + n) && !is_converted(code, p) && !(graph && strncmp(p + n, ".detach()", 9) == 0)) {
            return true;
        }
    }
    return false;
}

bool site_holds(const char *expression, const struct site_names *names, bool graph)
{
    for (size_t i = 0; i < names->n; i++) {
        if (mentions(expression, names->list[i], graph)) {
            return true;
        }
    }
    return false;
}
