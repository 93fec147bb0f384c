#include "analyzer/site/python_code.h"

#include <ctype.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"

enum { CODE_MAX = 2048, TAB = 8 }; /* longer statements, which are tables, are cut */

struct reading {
    struct arena *arena;
    struct site_code code;
    size_t cap;
    char text[CODE_MAX];
    size_t length;
    int depth, line, indent;
    bool open, joined; /* a statement has begun; a backslash ended the line */
    char quote;        /* of the string in triple quotes that is open */
};

static void end_statement(struct reading *r, int last)
{
    while (r->length && r->text[r->length - 1] == ' ') r->length--;
    r->text[r->length] = 0;
    if (r->length) {
        *ARENA_PUSH(r->code.list, r->code.n, r->cap) = (struct site_statement){
            .line = r->line, .last = last, .indent = r->indent, .code = arena_printf(r->arena, "%s", r->text)};
    }
    r->length = 0;
    r->open = false;
    r->depth = 0;
}

static void put_code_character(struct reading *r, char c)
{
    if (c == ' ' && (!r->length || r->text[r->length - 1] == ' ')) return;
    if (r->length + 1 < CODE_MAX) r->text[r->length++] = c;
}

bool site_is_name_character(char c)
{
    return text_is_name_character(c) || ((unsigned char)c & 0x80);
}

/* Before a string's quote: f, rb, … Is it an f-string? */
static bool drop_prefix(struct reading *r)
{
    size_t n = 0;
    bool f = false;
    while (n < 2 && n < r->length && strchr("rRbBuUfF", r->text[r->length - 1 - n])) n++;
    if (n && (n == r->length || !site_is_name_character(r->text[r->length - 1 - n])))
        for (; n; n--) f = strchr("fF", r->text[--r->length]) || f;
    return f;
}

/* A string whose quote is at p; returns what follows it on the line. */
static const char *skip_string(struct reading *r, const char *p)
{
    const char quote = *p, *from = p + 1;
    bool varies = drop_prefix(r);
    put_code_character(r, '"');
    if (p[1] == quote && p[2] == quote) {
        r->quote = quote;
        return p + 3;
    }
    for (p++; *p && *p != quote; p++) p += *p == '\\' && p[1];
    varies = varies && memchr(from, '{', (size_t)(p - from));
    const char *kept = varies ? "{}" : p - from == 3 && strncmp(from, "cpu", 3) == 0 ? "cpu" : "";
    while (*kept) put_code_character(r, *kept++);
    put_code_character(r, '"');
    return *p ? p + 1 : p;
}

static const char *skip_triple(struct reading *r, const char *p)
{
    for (; *p; p++) {
        if (*p == '\\' && p[1]) {
            p++;
        } else if (*p == r->quote && p[1] == r->quote && p[2] == r->quote) {
            r->quote = 0;
            put_code_character(r, '"');
            return p + 3;
        }
    }
    return p;
}

bool site_code_begins(const struct site_statement *s, const char *word)
{
    const size_t n = strlen(word);
    const char *code = strncmp(s->code, "async ", 6) == 0 ? s->code + 6 : s->code;
    return strncmp(code, word, n) == 0 && !site_is_name_character(code[n]);
}

static bool is_compound(struct reading *r)
{
    static const char *const words[] = {"if",  "elif",   "else",    "for", "while", "with",
                                        "try", "except", "finally", "def", "class"};
    r->text[r->length] = 0;
    const struct site_statement s = {.code = r->text};
    return ANY_OF(w, words, COUNT_OF(words), site_code_begins(&s, *w));
}

static bool is_end(const char *p)
{
    while (isspace((unsigned char)*p)) p++;
    return !*p || *p == '#';
}

static void begin_statement(struct reading *r, int line, int indent)
{
    r->open = true;
    r->line = line;
    r->indent = indent;
}

static const char *read_character(struct reading *r, const char *p, int line)
{
    if (r->quote) return skip_triple(r, p);
    if (*p == '"' || *p == '\'') return skip_string(r, p);
    r->depth += (strchr("([{", *p) != NULL) - (strchr(")]}", *p) != NULL);
    r->depth = r->depth < 0 ? 0 : r->depth;
    if (*p == ';' && !r->depth) {
        end_statement(r, line);
        begin_statement(r, line, r->indent);
    } else if (*p == ':' && !r->depth && p[1] != '=' && is_compound(r) && !is_end(p + 1)) {
        end_statement(r, line);
        begin_statement(r, line, r->indent + 1);
    } else if (*p == '\\' && !p[1]) {
        r->joined = true;
    } else {
        put_code_character(r, isspace((unsigned char)*p) ? ' ' : *p);
    }
    return p + 1;
}

static void read_code_line(struct reading *r, const char *p, int line)
{
    if (!r->open) {
        int indent = 0;
        for (; *p == ' ' || *p == '\t' || *p == '\f'; p++)
            indent = *p == '\t' ? (indent / TAB + 1) * TAB : *p == ' ' ? indent + 1 : 0;
        if (is_end(p)) return;
        begin_statement(r, line, indent);
    }
    r->joined = false;
    while (*p && (r->quote || *p != '#')) p = read_character(r, p, line);
    put_code_character(r, ' ');
    if (!r->depth && !r->quote && !r->joined) end_statement(r, line);
}

struct site_code site_code_of(struct arena *arena, const char *const *lines, size_t n)
{
    struct reading *r = arena_realloc(NULL, 1, sizeof *r);
    *r = (struct reading){.arena = arena};
    for (size_t i = 0; i < n; i++) read_code_line(r, lines[i], (int)i + 1);
    if (r->open) end_statement(r, (int)n);
    struct site_code code = {arena_alloc(arena, r->code.n * sizeof *code.list), r->code.n};
    if (code.n) memcpy(code.list, r->code.list, code.n * sizeof *code.list);
    ARENA_RELEASE(r->code.list, r);
    return code;
}

size_t site_code_at(const struct site_code *c, int line)
{
    size_t found = c->n;
    for (size_t i = 0; i < c->n && c->list[i].line <= line; i++) found = c->list[i].last >= line ? i : found;
    return found;
}

size_t site_code_parent(const struct site_code *c, size_t i)
{
    for (size_t k = i; k-- > 0;)
        if (c->list[k].indent < c->list[i].indent) return k;
    return c->n;
}

size_t site_code_end(const struct site_code *c, size_t i)
{
    size_t end = i + 1;
    while (end < c->n && c->list[end].indent > c->list[i].indent) end++;
    return end;
}

size_t site_code_length(const char *line)
{
    char quote = 0;
    size_t n = 0;
    for (size_t i = 0; line[i] && (quote || line[i] != '#'); i++) {
        const bool ends = quote ? line[i] == quote : line[i] == '"' || line[i] == '\'';
        quote = !ends ? quote : quote ? 0 : line[i];
        i += line[i] == '\\' && line[i + 1];
        n = line[i] == ' ' ? n : i + 1;
    }
    return n;
}

bool site_fills_if_missing(struct arena *arena, const struct site_code *code, size_t from, size_t i, const char *name)
{
    const char *missing = arena_printf(arena, "not in %s:", name), *get = arena_printf(arena, "%s.get(", name);
    const char *present = arena_printf(arena, " in %s:", name);
    bool gets = false;
    for (size_t k = from; k < i; k++) {
        const struct site_statement *st = &code->list[k];
        if (site_code_begins(st, "if") && strstr(st->code, present) && !strstr(st->code, missing) &&
            site_code_begins(st + 1, "return"))
            return true;
        gets = gets || strstr(st->code, get);
    }
    for (size_t k = site_code_parent(code, i); k < code->n && k >= from; k = site_code_parent(code, k)) {
        const char *text = code->list[k].code;
        if (strstr(text, missing) || strstr(text, "except KeyError") || (gets && strstr(text, " is None:")))
            return true;
    }
    return false;
}
