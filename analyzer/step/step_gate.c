#include "analyzer/step/step_gate.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/site/builder.h"

enum gate_header { HEADER_NONE, HEADER_LOOP, HEADER_CONDITION, HEADER_FUNCTION, HEADER_SKIP };

static const struct {
    const char *word;
    enum gate_header header;
} header_words[] = {{"for", HEADER_LOOP},         {"while", HEADER_LOOP},     {"do", HEADER_LOOP},
                    {"loop", HEADER_LOOP},        {"if", HEADER_CONDITION},   {"elif", HEADER_CONDITION},
                    {"else", HEADER_CONDITION},   {"case", HEADER_CONDITION}, {"except", HEADER_CONDITION},
                    {"switch", HEADER_CONDITION}, {"def", HEADER_FUNCTION},   {"class", HEADER_FUNCTION},
                    {"continue", HEADER_SKIP},    {"return", HEADER_SKIP}};

static const char *skip_brace(const char *line)
{
    return line + strspn(line, " \t}");
}

static enum gate_header gate_header_of(const char *line)
{
    const char *p = skip_brace(line);
    p += strncmp(p, "async ", 6) == 0 ? 6 : 0;
    for (size_t i = 0; i < sizeof header_words / sizeof *header_words; i++) {
        const size_t n = strlen(header_words[i].word);
        if (strncmp(p, header_words[i].word, n) == 0 && !text_is_name_character(p[n])) return header_words[i].header;
    }
    return HEADER_NONE;
}

static int gate_indent_of(const char *line)
{
    int at = 0;
    for (; *line == ' ' || *line == '\t'; line++) at = *line == '\t' ? (at / 8 + 1) * 8 : at + 1;
    return at;
}

/* Nothing, a comment, a preprocessor's line, or only braces. */
static bool has_no_code(const char *line)
{
    const char *p = line + strspn(line, " \t{}\r");
    return !*p || *p == '#' || strncmp(p, "//", 2) == 0 || strncmp(p, "/*", 2) == 0;
}

/* Does the block's only statement follow its header on the same line? In C the condition ends with its parenthesis. */
static bool has_body(const char *line)
{
    const char *end = line + strlen(line), *open = skip_brace(line);
    int depth = 0;
    while (end > line && isspace((unsigned char)end[-1])) end--;
    if (end == line || end[-1] == ':' || end[-1] == '{') return false;
    open += strspn(open, "abcdefghijklmnopqrstuvwxyz ");
    if (*open != '(') return true;
    for (; open < end; open++) {
        depth += (*open == '(') - (*open == ')');
        if (!depth) break;
    }
    return open + 1 < end;
}

static const struct run_source_text *text_of(struct run *run, const struct run_frame *f)
{
    if (!f || f->line <= 0 || !f->file) return NULL;
    const bool library = f->kind == GS_FRAME_PYTHON ? site_is_library(f) : f->rank != RUN_RANK_OWN;
    const struct run_source_text *text = library ? run_library_text(run, f->file) : run_source_text(run, f->file);
    return text && (size_t)f->line <= text->n ? text : NULL;
}

/* The line before `line` that is the next header around it; *indent is that of the block. 0: none. */
static int outer_line(const struct run_source_text *text, int line, int *indent)
{
    for (line--; line > 0 && *indent > 0; line--) {
        const char *code = text->lines[line - 1];
        if (has_no_code(code) || gate_indent_of(code) >= *indent) continue;
        *indent = gate_indent_of(code);
        return line;
    }
    return 0;
}

/* The header of the innermost loop around a line with that indentation. */
static int loop_around(const struct run_source_text *text, int line, int indent)
{
    while ((line = outer_line(text, line, &indent)) > 0) {
        const enum gate_header header = gate_header_of(text->lines[line - 1]);
        if (header == HEADER_FUNCTION) return 0;
        if (header == HEADER_LOOP) return line;
    }
    return 0;
}

int step_gate_loop(struct run *run, const struct run_frame *f, int inner)
{
    const struct run_source_text *text = text_of(run, f);
    if (!text || inner > f->line) return 0;
    const int line = inner ? inner : f->line;
    const char *code = text->lines[line - 1];
    if (!inner && gate_header_of(code) == HEADER_LOOP) return has_body(code) ? line : 0;
    return loop_around(text, line, gate_indent_of(code));
}

/* 0: more than a step's number can be. */
static uint64_t number_of(const char *text)
{
    const unsigned long long value = strtoull(text, NULL, 10);
    return value <= UINT32_MAX ? value : 0;
}

/* The number that the file gives the name, as in `EVERY = 100` or `#define EVERY 100`; 0: none, or several. */
static uint64_t value_of(const struct run_source_text *text, const char *name, size_t n)
{
    uint64_t value = 0;
    for (size_t i = 0; n && i < text->n; i++) {
        for (const char *line = text->lines[i], *p = line; (p = memmem(p, strlen(p), name, n)); p += n) {
            const char *after = p + n + strspn(p + n, " \t:");
            after += *after == '=' ? 1 + strspn(after + 1, " \t") : 0;
            if (after == p + n || !isdigit((unsigned char)*after) || (p > line && text_is_name_character(p[-1])))
                continue;
            const uint64_t given = number_of(after);
            if (value && given != value) return 0;
            value = given;
        }
    }
    return value;
}

/* 100 of `step % 100` and of `step % self.every` with `every=100` elsewhere. */
static uint64_t every_of(const struct run_source_text *text, const char *divisor)
{
    const char *name = divisor += strspn(divisor, " (");
    if (isdigit((unsigned char)*divisor)) return number_of(divisor);
    for (; text_is_name_character(*divisor) || *divisor == '.'; divisor++) name = *divisor == '.' ? divisor + 1 : name;
    return value_of(text, name, (size_t)(divisor - name));
}

static void add_guard(struct step_gate *gate, const struct run_source_text *text, const char *condition, bool encloses)
{
    const char *modulo = strchr(condition, '%');
    gate->guarded = true;
    gate->enclosed = gate->enclosed || encloses;
    if (!modulo || gate->modulo) return;
    gate->modulo = true;
    gate->every = every_of(text, modulo + 1);
}

/* `if …: continue` before the line, in the block with that indentation. `skip`: the last line that was read leaves the
 * block. */
static void read_skip(struct step_gate *gate, const struct run_source_text *text, const char *code, int indent,
                      bool *skip)
{
    const enum gate_header header = gate_header_of(code);
    const bool here = has_body(code) && (strstr(code, "continue") || strstr(code, " return"));
    if (gate_indent_of(code) > indent) {
        *skip = *skip || header == HEADER_SKIP;
        return;
    }
    if (header == HEADER_CONDITION && (*skip || here)) add_guard(gate, text, code, false);
    *skip = false;
}

bool step_gate_read(struct run *run, const struct run_frame *f, int loop, struct step_gate *gate)
{
    const struct run_source_text *text = text_of(run, f);
    *gate = (struct step_gate){0};
    if (!text || f->line <= loop) return false;
    const char *own = text->lines[f->line - 1];
    int indent = gate_indent_of(own);
    bool skip = false;
    if (gate_header_of(own) == HEADER_CONDITION && has_body(own)) add_guard(gate, text, own, true);
    for (int at = f->line - 1; at > loop && indent > 0; at--) {
        const char *code = text->lines[at - 1];
        if (has_no_code(code)) continue;
        if (gate_indent_of(code) >= indent) {
            read_skip(gate, text, code, indent, &skip);
            continue;
        }
        indent = gate_indent_of(code);
        skip = false;
        const enum gate_header header = gate_header_of(code);
        if (header == HEADER_FUNCTION) return !loop;
        if (header == HEADER_CONDITION) add_guard(gate, text, code, true);
    }
    return !loop || indent > gate_indent_of(text->lines[loop - 1]);
}

bool step_gate_repeats(struct run *run, uint32_t stack, uint32_t outer)
{
    for (uint32_t s = stack; s != RUN_NONE; s = run_stack_parent(run, s)) {
        const struct run_frame *f = run_stack_frame(run, s);
        const struct run_source_text *text = text_of(run, f);
        if (text && f->kind == GS_FRAME_PYTHON && gate_header_of(text->lines[f->line - 1]) != HEADER_LOOP &&
            strstr(text->lines[f->line - 1], " for "))
            return true;
        if (s == outer) return false;
        if (step_gate_loop(run, f, 0)) return true;
    }
    return true;
}
