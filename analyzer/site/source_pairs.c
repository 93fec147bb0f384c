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
    bool repeats; /* along them only */
};

static void add_dimension(struct operand *o, int at)
{
    if (o->n < ADDED) o->added[o->n++] = at;
}

static bool is_number(const char *text)
{
    const char *digits = text + (*text == '-');
    return *digits && !digits[strspn(digits, "0123456789")];
}

/* [:, None], [None, :, 2:], [..., None], [0, :, None]: a number takes a dimension away. After x[i, None] with an index
 * i of any kind, the place of None is unknown. */
static void read_subscript(struct arena *scratch, struct operand *o, const char *open, const char *close)
{
    const char *parts = arena_printf(scratch, "%.*s", (int)(close - open - 1), open + 1), *part;
    int n = 0, dots = -1, at = 0;
    while (*(part = site_part_of(scratch, parts, (size_t)n))) {
        dots = strcmp(part, "...") == 0 ? n : dots;
        n++;
    }
    for (int i = 0; i < n; i++) {
        part = site_part_of(scratch, parts, (size_t)i);
        const char *name = strrchr(part, '.');
        const bool none = strcmp(part, "None") == 0 || (name && strcmp(name, ".newaxis") == 0);
        const bool number = is_number(part);
        if (none) add_dimension(o, dots >= 0 && i > dots ? i - n : at);
        if (!none && !number && i != dots && !strchr(part, ':')) return;
        at += !number;
    }
}

/* Is the word one of those between spaces? */
static bool is_spaced_word(const char *words, const char *from, size_t n)
{
    char word[32] = " ";
    if (!n || n > sizeof word - 3) return false;
    memcpy(word + 1, from, n);
    memcpy(word + 1 + n, " ", 2);
    return strstr(words, word) != NULL;
}

/* x.unsqueeze(0).repeat(n, 1, 1): along a dimension that was added, and no other. */
static bool repeats_added(struct arena *scratch, const struct operand *o, const char *open, const char *close)
{
    const char *parts = arena_printf(scratch, "%.*s", (int)(close - open - 1), open + 1), *part;
    int n = 0, times = 0, at = 0;
    for (; *(part = site_part_of(scratch, parts, (size_t)n)); n++) {
        if (strcmp(part, "1") == 0) continue;
        times++;
        at = n;
    }
    return times == 1 && o->n == 1 && o->added[0] == (o->added[0] < 0 ? at - n : at);
}

/* unsqueeze(1) adds a dimension; after sum(1) or squeeze(1), those that were added may be gone. */
static void read_method(struct arena *scratch, struct operand *o, const char *name, const char *open, const char *close)
{
    static const char words[] = " squeeze sum mean amax amin max min any all view reshape flatten permute transpose ";
    const char *last = open;
    while (last > name && site_is_name_character(last[-1])) last--;
    const size_t n = (size_t)(open - last);
    if (is_spaced_word(" unsqueeze unsqueeze_ ", last, n)) {
        const char *dimension = open + 1 + (strncmp(open + 1, "dim=", 4) == 0 ? 4 : 0);
        char *end;
        const long at = strtol(dimension, &end, 10);
        if (end == close && end > dimension) add_dimension(o, (int)at);
    }
    static const char copying[] = " contiguous clone to cuda cpu float half bfloat16 double type ";
    const bool ends = is_spaced_word(words, last, n) || is_spaced_word(copying, last, n) || open[-1] == '_';
    o->repeats =
        is_spaced_word(" repeat tile ", last, n) ? repeats_added(scratch, o, open, close) : o->repeats && !ends;
    if (is_spaced_word(words, last, n)) o->n = 0;
}

/* A name, and the attributes, calls and indexes after it. */
static struct operand read_operand(struct arena *scratch, const char *p)
{
    struct operand o = {.from = p, .end = p};
    for (;;) {
        const char *dot = *o.end == '.' ? o.end + 1 : o.end;
        const size_t n = o.end == p || dot > o.end ? site_name_length(dot) : 0;
        const char *open = dot + n, *close = *open && strchr("([", *open) ? site_closing(open) : "";
        if (*close == ')' && n) read_method(scratch, &o, dot, open, close);
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
    return is_spaced_word(words, name, (size_t)(open - name));
}

/* x[:, None] = y[None] and x[:, None] += y[None] write into x. */
static bool is_stored_into(const char *sign, const char *end)
{
    return end > sign && end[-1] == '=' && !(end - sign == 2 && strchr("=!<>", *sign));
}

/* self.x[:, None], x.unsqueeze(1): a tensor that an earlier statement made, not net(x)[:, None], (a @ b)[:, None]. */
static bool is_earlier_tensor(const char *code, const struct operand *o)
{
    const char *open = memchr(o->from, '(', (size_t)(o->end - o->from));
    const char *name = open;
    while (name && name > o->from && site_is_name_character(name[-1])) name--;
    return (o->from == code || !strchr(".)]", o->from[-1])) &&
           (!open || is_spaced_word(" unsqueeze ", name, (size_t)(open - name)));
}

/* x[:, None] - y: only one of them adds a dimension, and not the first one, which each tensor has in any case. */
static bool is_one_sided(const char *code, const struct operand *x, const struct operand *y)
{
    if (x->end <= x->from || y->end <= y->from || !is_earlier_tensor(code, x) || !is_earlier_tensor(code, y))
        return false;
    const struct operand *adds = x->n ? x : y;
    bool inner = false;
    for (size_t i = 0; i < adds->n && !(x->n && y->n); i++) inner = inner || adds->added[i] > 0;
    return inner && !isdigit((unsigned char)*y->from);
}

/* Do the operands of one of its operators cross, or is one of them one-sided? With & and |, they are masks. */
static bool combines_tensors(struct arena *scratch, const char *code, enum site_shape shape)
{
    for (const char *p = code; *p;) {
        const size_t n = site_name_length(p);
        const struct operand x = n ? read_operand(scratch, p) : (struct operand){.n = 0};
        if (n) {
            const char *to = x.end + strspn(x.end, " "), *sign = to;
            to += strspn(to, "-+*/=<>!&|");
            const char *around = site_bracket_around(code, p);
            const bool argument = to == sign && *to == ',' && around && is_of_elements(code, around);
            to += argument;
            const bool masks = to == sign + 1 && strchr("&|", *sign);
            const struct operand y = to > sign && !is_stored_into(sign, to - argument)
                                         ? read_operand(scratch, to + strspn(to, " ("))
                                         : (struct operand){.n = 0};
            if (shape == SITE_SHAPE_ONE_SIDED ? is_one_sided(code, &x, &y)
                                              : are_crossed(&x, &y) && masks == (shape == SITE_SHAPE_MASKS))
                return true;
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

/* torch.outer(x, y), x.outer(y); self.outer(x) and outer(x) may be modules. */
static bool calls_pairing(struct arena *scratch, const char *code)
{
    static const char *const functions[] = {"cdist(", "outer(",   "ger(",         "cartesian_prod(",
                                            "kron(",  "box_iou(", "pairwise_iou("};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        const char *p = strstr(code, functions[i]), *name = p;
        while (name && name > code && (site_is_name_character(name[-1]) || name[-1] == '.')) name--;
        if (!p || (p > code && site_is_name_character(p[-1])) || strncmp(name, "self.", 5) == 0) continue;
        const char *open = p + strlen(functions[i]) - 1, *close = site_closing(open);
        const char *values = arena_printf(scratch, "%.*s", *close ? (int)(close - open - 1) : 0, open + 1);
        if (name < p || *site_part_of(scratch, values, 1)) return true;
    }
    return false;
}

bool site_statement_makes_pairs(const struct site_statement *statement, const char *const *lines, size_t n)
{
    if (strlen(statement->code) > LONGEST) return false;
    struct arena scratch = {0};
    bool makes =
        combines_tensors(&scratch, statement->code, SITE_SHAPE_PAIRS) || calls_pairing(&scratch, statement->code);
    for (int line = statement->line; line <= statement->last && line <= (int)n && !makes; line++)
        makes = is_outer_product(lines[line - 1]);
    arena_free(&scratch);
    return makes;
}

bool site_statement_broadcasts(const struct site_statement *statement, enum site_shape shape)
{
    if (strlen(statement->code) > LONGEST) return false;
    struct arena scratch = {0};
    const bool is = combines_tensors(&scratch, statement->code, shape);
    arena_free(&scratch);
    return is;
}

bool site_statement_copies_expansion(const struct site_statement *statement)
{
    static const char *const makers[] = {".expand(", ".expand_as(", "broadcast_to("};
    static const char *const copies[] = {".contiguous()", ".clone()"};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        const char *p = strstr(statement->code, makers[i]);
        const char *end = p ? site_closing(p + strlen(makers[i]) - 1) : "";
        end += *end == ')';
        for (size_t k = 0; k < sizeof copies / sizeof *copies; k++) {
            const size_t n = strlen(copies[k]);
            if (strncmp(end, copies[k], n) == 0 && end[n] != '.') return true;
        }
    }
    return false;
}

bool site_statement_repeats(const struct site_statement *statement)
{
    struct arena scratch = {0};
    bool repeats = false;
    if (strstr(statement->code, "Parameter(")) return false; /* an optimizer writes to it */
    for (const char *p = statement->code; *p && !repeats && strlen(statement->code) <= LONGEST;) {
        const size_t n = site_name_length(p);
        repeats = n && read_operand(&scratch, p).repeats;
        p += n ? n : 1;
    }
    arena_free(&scratch);
    return repeats;
}

/* The index of torch.eye(n)[labels]: not [None], [:k], [3]. */
static bool is_index_of_rows(const char *open)
{
    const char *close = site_closing(open);
    const size_t n = *close ? (size_t)(close - open - 1) : 0;
    return n && !memchr(open, ':', n) && strncmp(open + 1, "None", 4) != 0 && !strchr("-0123456789.", open[1]);
}

bool site_statement_makes_one_hot(const struct site_statement *statement)
{
    const char *p = statement->code;
    for (; (p = strstr(p, "one_hot(")) != NULL; p++)
        if (p == statement->code || !site_is_name_character(p[-1])) return true;
    const char *eye = strstr(statement->code, "torch.eye("), *end = eye ? site_closing(strchr(eye, '(')) : "";
    return *end == ')' && end[1] == '[' && is_index_of_rows(end + 1);
}

static bool shows_shape(const struct site_statement *statement, enum site_shape shape,
                        const struct run_source_text *text)
{
    if (shape == SITE_SHAPE_EXPANSION) return site_statement_copies_expansion(statement);
    if (shape == SITE_SHAPE_REPETITION) return site_statement_repeats(statement);
    if (shape == SITE_SHAPE_ONE_HOT) return site_statement_makes_one_hot(statement);
    if (shape != SITE_SHAPE_PAIRS) return site_statement_broadcasts(statement, shape);
    return site_statement_makes_pairs(statement, text->lines, text->n);
}

bool site_line_makes(struct site_builder *b, uint32_t stack, enum site_shape shape)
{
    struct site_code code;
    size_t at;
    const struct run_frame *frame = site_open_innermost(b, stack, &code, &at);
    const struct run_source_text *text = frame ? run_source_text(b->run, frame->file) : NULL;
    bool makes = false;
    for (size_t i = 0; text && i <= at && !makes; i++) /* x = 1; y = 2: any of them */
        makes = code.list[i].line == code.list[at].line && shows_shape(&code.list[i], shape, text);
    return makes;
}
