#include "analyzer/site/native_source.h"

#include <ctype.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/site/python_names.h"

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* The start of "this->levels[i].blocks", which ends before `end`. */
static const char *object_start(const char *line, const char *end)
{
    const char *p = end;
    for (int depth = 0; p > line; p--) {
        depth += (p[-1] == ']') - (p[-1] == '[');
        const bool arrow = p - line >= 2 && p[-1] == '>' && p[-2] == '-';
        if (depth < 0 || (depth == 0 && p[-1] != '[' && !is_name(p[-1]) && p[-1] != '.' && p[-1] != ':' && !arrow))
            break;
        p -= arrow;
    }
    return p;
}

/* held.push_back(grab(n)) at the end of the line: not errors.push_back("failed"), nor names.push_back(s); p = grab(n).
 */
static bool may_insert_block(const char *method, const char *stop)
{
    const char *open = strchr(method, '('), *close = open ? site_closing(open) : "";
    if (!open || open > stop || open[1 + strspn(open + 1, " ")] == '"') return false;
    return !*close || close >= stop || !memchr(close, '(', (size_t)(stop - close));
}

/* "frames.push_back": the call that adds to a container. *length is 0 if the line has none. */
static const char *find_insertion(const char *line, size_t *length)
{
    static const char *const methods[] = {"push_back", "emplace_back",     "push_front",  "emplace_front", "insert",
                                          "emplace",   "insert_or_assign", "try_emplace", "push"};
    const char *comment = strstr(line, "//"), *stop = comment ? comment : line + strlen(line);
    bool quoted = false;
    for (const char *p = line; p < stop; p++) {
        quoted = quoted != (*p == '"' && (p == line || p[-1] != '\\'));
        if (quoted) continue;
        const size_t mark = *p == '.' ? 1 : strncmp(p, "->", 2) == 0 ? 2 : 0, n = mark ? strcspn(p + mark, "(< \t") : 0;
        const bool call = n && strchr("(<", p[mark + n]) && p[mark + n];
        if (!call || !ANY_OF(m, methods, COUNT_OF(methods), strlen(*m) == n && strncmp(p + mark, *m, n) == 0)) continue;
        if (!may_insert_block(p + mark + n, stop)) continue;
        const char *start = object_start(line, p);
        *length = start < p ? (size_t)(p + mark + n - start) : 0;
        return start;
    }
    *length = 0;
    return NULL;
}

const char *site_native_growth_advice(struct site_builder *b, const struct result_site *site)
{
    struct run_source lines;
    size_t n = 0;
    const char *call = site->file && site->line && run_source_lines(b->run, site->file, site->line, 0, 0, &lines)
                           ? find_insertion(lines.lines[0], &n)
                           : NULL;
    return n ? arena_printf(b->arena,
                            "`%.*s(…)` keeps each of them (guess): erase those that are no longer needed, or "
                            "copy them to the host",
                            (int)n, call)
             : "free each block after its last use, also if a function returns early";
}
