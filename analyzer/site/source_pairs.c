#include "analyzer/site/source_pairs.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_context.h"

enum {
    ADDED = 8,        /* dimensions of size 1 */
    LONGEST = 1 << 12 /* characters of a statement that a person wrote */
};

/* x[:, None].float(): the dimensions that the expression adds to a tensor, those counted from the end below 0. */
struct operand {
    const char *from, *end;
    int added[ADDED];
    size_t n;
};

static void add_dimension(struct operand *o, int at)
{
    if (o->n < ADDED) o->added[o->n++] = at;
}

/* [:, None], [None, :, 2:], [..., None] */
static void read_subscript(struct arena *scratch, struct operand *o, const char *open, const char *close)
{
    const char *parts = arena_printf(scratch, "%.*s", (int)(close - open - 1), open + 1), *part;
    int n = 0, dots = -1;
    while (*(part = site_part_of(scratch, parts, (size_t)n))) {
        dots = strcmp(part, "...") == 0 ? n : dots;
        n++;
    }
    for (int i = 0; i < n; i++) {
        part = site_part_of(scratch, parts, (size_t)i);
        const char *name = strrchr(part, '.');
        if (strcmp(part, "None") == 0 || (name && strcmp(name, ".newaxis") == 0))
            add_dimension(o, dots >= 0 && i > dots ? i - n : i);
    }
}

/* A name, and the attributes, calls and indexes after it. */
static struct operand read_operand(struct arena *scratch, const char *p)
{
    static const char unsqueeze[] = "unsqueeze";
    const size_t word = sizeof unsqueeze - 1;
    struct operand o = {.from = p, .end = p};
    for (;;) {
        const char *dot = *o.end == '.' ? o.end + 1 : o.end;
        const size_t n = o.end == p || dot > o.end ? site_name_length(dot) : 0;
        const char *open = dot + n, *close = *open && strchr("([", *open) ? site_closing(open) : "";
        if (*close == ')' && n >= word && strncmp(open - word, unsqueeze, word) == 0) {
            const char *dimension = open + 1 + (strncmp(open + 1, "dim=", 4) == 0 ? 4 : 0);
            add_dimension(&o, (int)strtol(dimension, NULL, 10));
        }
        if (*close == ']') read_subscript(scratch, &o, open, close);
        o.end = *close ? close + 1 : open;
        if (!n && !*close) return o;
    }
}

/* Both add one dimension or more, at other places: the result has an element for each pair. */
static bool are_crossed(const struct operand *x, const struct operand *y)
{
    bool same = x->n == y->n;
    for (size_t i = 0; same && i < x->n; i++) same = x->added[i] == y->added[i];
    return x->n && y->n && !same && (x->added[0] < 0) == (y->added[0] < 0);
}

/* minimum(x, y): may the bracket be that of a function of two operands, of which each element gives one? */
static bool is_of_elements(const char *code, const char *open)
{
    static const char words[] =
        " minimum maximum min max sub mul add div eq ne lt gt le ge pow atan2 where logical_and "
        "logical_or fmod isclose ";
    const char *name = open;
    while (name > code && site_is_name_character(name[-1])) name--;
    char word[32] = " ";
    const size_t n = (size_t)(open - name);
    if (!n || n > sizeof word - 3) return false;
    memcpy(word + 1, name, n);
    memcpy(word + 1 + n, " ", 2);
    return strstr(words, word) != NULL;
}

static bool combines_tensors(struct arena *scratch, const char *code)
{
    for (const char *p = code; *p;) {
        const size_t n = site_name_length(p);
        const struct operand x = n ? read_operand(scratch, p) : (struct operand){.n = 0};
        if (x.n) {
            const char *to = x.end + strspn(x.end, " "), *sign = to;
            to += strspn(to, "-+*/=<>!&|");
            const char *around = site_bracket_around(code, p);
            const bool argument = to == sign && *to == ',' && around && is_of_elements(code, around);
            to += argument;
            const struct operand y =
                to > sign ? read_operand(scratch, to + strspn(to, " (")) : (struct operand){.n = 0};
            if (are_crossed(&x, &y)) return true;
        }
        p += n ? n : 1;
    }
    return false;
}

static bool has_letter(const char *from, const char *to, char letter)
{
    return memchr(from, letter, (size_t)(to - from)) != NULL;
}

/* einsum("bi,bj->bij", x, y): no dimension is summed over, and no operand has all that the result has. */
static bool is_outer_product(const char *line)
{
    const char *spec = strstr(line, "einsum("), *arrow = spec ? strstr(spec, "->") : NULL;
    if (!arrow || !spec[7] || !strchr("\"'", spec[7])) return false;
    const char *out = arrow + 2, *end = strchr(out, spec[7]), *from = spec + 8;
    if (!end || !memchr(from, ',', (size_t)(arrow - from))) return false;
    while (from < arrow) {
        const char *next = from;
        bool whole = true;
        while (next < arrow && *next != ',') {
            if (isalpha((unsigned char)*next) && !has_letter(out, end, *next)) return false;
            next++;
        }
        for (const char *p = out; p < end; p++)
            whole = whole && (!isalpha((unsigned char)*p) || has_letter(from, next, *p));
        if (whole) return false;
        from = next + 1;
    }
    return true;
}

static bool calls_pairing(const char *code)
{
    static const char *const functions[] = {"cdist(", "outer(", "ger(", "cartesian_prod(", "kron("};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const char *p = strstr(code, functions[i]);
        if (p && (p == code || !site_is_name_character(p[-1]))) return true;
    }
    return false;
}

bool site_statement_makes_pairs(const struct site_statement *statement, const char *const *lines, size_t n)
{
    if (strlen(statement->code) > LONGEST) return false;
    struct arena scratch = {0};
    bool makes = combines_tensors(&scratch, statement->code) || calls_pairing(statement->code);
    for (int line = statement->line; line <= statement->last && line <= (int)n && !makes; line++)
        makes = is_outer_product(lines[line - 1]);
    arena_free(&scratch);
    return makes;
}

bool site_makes_pairs(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    size_t at;
    const struct run_frame *frame = site_open_innermost(b, stack, &code, &at);
    const struct run_source_text *text = frame ? run_source_text(b->run, frame->file) : NULL;
    bool makes = false;
    for (size_t i = 0; text && i <= at && !makes; i++) /* x = 1; y = 2: any of them */
        makes =
            code.list[i].line == code.list[at].line && site_statement_makes_pairs(&code.list[i], text->lines, text->n);
    return makes;
}
