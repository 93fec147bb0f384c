#include "analyzer/site/native_source.h"

#include <ctype.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"

/* The start of "this->levels[i].blocks" or "self.layers.entry(i).or_default()", which ends before `end`. */
static const char *object_start(const char *line, const char *end)
{
    const char *p = end;
    for (int depth = 0; p > line; p--) {
        depth += (p[-1] == ']' || p[-1] == ')') - (p[-1] == '[' || p[-1] == '(');
        const bool arrow = p - line >= 2 && p[-1] == '>' && p[-2] == '-';
        if (depth < 0 || (depth == 0 && p[-1] != '[' && p[-1] != '(' && !text_is_name_character(p[-1]) &&
                          p[-1] != '.' && p[-1] != ':' && !arrow))
            break;
        p -= arrow;
    }
    return p;
}

/* After a text or a comment that begins at `p`; `p` if none does. A comment of one line ends with it. */
static const char *skip_text(const char *p)
{
    if (strncmp(p, "//", 2) == 0) return p + strlen(p);
    if (strncmp(p, "/*", 2) == 0) {
        const char *end = strstr(p + 2, "*/");
        return end ? end + 2 : p + strlen(p);
    }
    if (*p != '"') return p;
    for (p++; *p && *p != '"'; p++) p += *p == '\\' && p[1];
    return *p ? p + 1 : p;
}

static const char *find_word(const char *line, const char *end, const char *word, size_t length)
{
    for (const char *p = line; length && p + length <= end; p++)
        if (strncmp(p, word, length) == 0 && !text_is_name_character(p[length]) &&
            (p == line || !text_is_name_character(p[-1])))
            return p;
    return NULL;
}

/* What a line gives a name. */
struct name {
    const char *text;
    size_t length;
    bool here; /* the line that is searched is this line */
};

static bool is_text_only(const char *first)
{
    const char *end = *first == '"' ? skip_text(first) : first;
    return end != first && end[strspn(end, " ")] == ')';
}

/* Can what the call stores be the memory? A lambda that allocates is not, nor is a text. A single argument that is a
 * name is only if it is the memory's, or what emplace_back constructs from. */
static bool stores_memory(const char *arguments, const struct name *name, bool constructs)
{
    const char *first = arguments + strspn(arguments, " \t"), *end = first;
    size_t n = 0;
    for (int depth = 1; *end && depth; end++) depth += (*end == '(') - (*end == ')');
    while (text_is_name_character(first[n])) n++;
    if (*first == '[' || is_text_only(first)) return false;
    if (name->here && (constructs || !n || first[n] != ')')) return true;
    return find_word(first, end, name->text, name->length) != NULL;
}

/* "frames.push_back": the call that adds the memory to a container. *length is 0 if the line has none. */
static const char *find_insertion(const char *line, const struct name *name, size_t *length)
{
    static const char *const methods[] = {"push_back", "emplace_back", "push_front",       "emplace_front",
                                          "insert",    "emplace",      "insert_or_assign", "try_emplace",
                                          "push",      "or_insert",    "or_insert_with",   "extend"};
    for (const char *p = line, *after; *p; p++) {
        while ((after = skip_text(p)) != p) p = after;
        const size_t mark = *p == '.' ? 1 : strncmp(p, "->", 2) == 0 ? 2 : 0, n = mark ? strcspn(p + mark, "(< \t") : 0;
        const char *end = p + mark + n, *open = n && (*end == '(' || *end == '<') ? strchr(end, '(') : NULL;
        if (!*p) break;
        if (!open || !ANY_OF(m, methods, COUNT_OF(methods), strlen(*m) == n && strncmp(p + mark, *m, n) == 0)) continue;
        const char *start = object_start(line, p);
        if (start == p || !stores_memory(open + 1, name, p[mark] == 'e')) continue;
        *length = (size_t)(end - start);
        return start;
    }
    *length = 0;
    return NULL;
}

/* The "=" of an assignment, before the line's first call outside of an index; NULL: none. */
static const char *find_assignment(const char *line)
{
    int depth = 0;
    for (const char *p = line; *p && (depth || (*p != '(' && *p != '{')); p++) {
        depth += (*p == '[') - (*p == ']' && depth);
        if (!depth && *p == '=' && p > line && p[1] != '=' && p[1] != '>' && !strchr("=<>!+-*/|&^%", p[-1])) return p;
    }
    return NULL;
}

/* What stands to the left of `equal`, without the blanks. */
static const char *left_end(const char *line, const char *equal)
{
    while (equal > line && isspace((unsigned char)equal[-1])) equal--;
    return equal;
}

/* "cache[key]" of "cache[key] = make(n);" and, if `name` is of an earlier line, of "cache[key] = name;": a container
 * whose elements have keys. An index that wraps around replaces elements. */
static const char *find_keyed(const char *line, const struct name *name, size_t *length)
{
    const char *equal = find_assignment(line), *end = equal ? left_end(line, equal) : NULL;
    *length = 0;
    if (!end || end == line || end[-1] != ']') return NULL;
    if (name->here ? !strchr(equal, '(') : !find_word(equal, equal + strlen(equal), name->text, name->length))
        return NULL;
    const char *start = object_start(line, end);
    if (memchr(start, '%', (size_t)(end - start))) return NULL;
    *length = (size_t)(end - start);
    return start;
}

/* "s.frames" of Go's "s.frames = append(s.frames, frame)". */
static const char *find_append(const char *line, const struct name *name, size_t *length)
{
    static const char call[] = "append(";
    const char *equal = find_assignment(line), *added = equal ? equal + 1 + strspn(equal + 1, " ") : "";
    *length = 0;
    if (strncmp(added, call, sizeof call - 1) != 0 || !(added = strchr(added, ','))) return NULL;
    if (name->here ? !strchr(added, '(') : !find_word(added, added + strlen(added), name->text, name->length))
        return NULL;
    const char *end = left_end(line, equal), *start = object_start(line, end);
    *length = (size_t)(end - start);
    return start;
}

/* The call or assignment that keeps the memory, and how it goes on after *length characters. */
static const char *find_keeper(const char *line, const struct name *name, size_t *length, const char **more)
{
    const char *at = find_insertion(line, name, length);
    *more = "(…)";
    if (!*length && (at = find_append(line, name, length))) *more = " = append(…)";
    if (!*length && (at = find_keyed(line, name, length))) *more = " = …";
    return at;
}

/* Rust's and Go's declarations: "block" of "let mut block: Buffer = zeros(n)?;", "kv" of "kv, err := make(n)". */
static const char *find_declared(const char *line, const char *equal)
{
    static const char *const words[] = {"let ", "mut ", "var "};
    const char *p = line + strspn(line, " \t"), *first = p;
    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (strncmp(p, words[i], strlen(words[i])) == 0) p += strlen(words[i]);
    return p != first || equal[-1] == ':' ? p : NULL;
}

/* "keep" of "GpuMat keep(1080, 1920);", "p" of "void *p = make(n);" and of "CHECK(cudaMalloc(&p, n));". */
static struct name find_new_name(const char *line)
{
    const char *equal = find_assignment(line), *out = equal ? find_declared(line, equal) : strchr(line, '&');
    const char *end = equal ? equal : line + strcspn(line, "({;");
    if (out) {
        out += *out == '&';
        out += strncmp(out, "mut ", 4) == 0 ? 4 : 0; /* Rust's "&mut p" */
        for (end = out; text_is_name_character(*end);) end++;
    } else {
        end = left_end(line, end);
        for (out = end; out > line && text_is_name_character(out[-1]);) out--;
    }
    return (struct name){out, (size_t)(end - out), true};
}

/* "p" of "int e = cudaMalloc(&p, n);": the call returns its status and writes the memory's address to an argument. */
static struct name find_out_argument(const char *line)
{
    const char *equal = find_assignment(line), *call = equal ? strchr(equal, '(') : NULL;
    const char *out = call ? strchr(call, '&') : NULL, *first = out ? out + 1 : "", *end = first;
    while (text_is_name_character(*end)) end++;
    return (struct name){first, (size_t)(end - first), true};
}

/* Frameworks that execute compiled functions in threads of their own, which have no line of the program. */
static const struct {
    const char *module, *advice;
} of_threads[] = {
    {"libtensorflow", "the program keeps what a tf.function returns, which TensorFlow's own threads allocate: "
                      "tf.config.run_functions_eagerly(True) shows the line"},
    {"xla_cuda_plugin", "the program keeps what JAX's own threads allocate: jax.disable_jit() shows the line"},
};

/* The call or assignment near the site's line that keeps the memory. *length is 0 if there is none. */
static const char *find_keeper_of(const struct run_source *lines, struct name name, size_t *length, const char **more)
{
    const char *call = NULL;
    *length = 0;
    for (size_t i = 0; !*length && i < lines->n && (!i || lines->lines[i][0] != '}'); i++) {
        call = find_keeper(lines->lines[i], &name, length, more);
        name.here = false;
    }
    return call;
}

static size_t source_indent(const char *line)
{
    return strspn(line, " \t");
}

/* "return p, nil", "Some(Buffer(p))" and "Texture { ptr }" at a function's end, "0 => Ok(Slice { ptr })": of `name`, or
 * of any call if there is none. */
static bool returns_name(const char *line, const char *next, const struct name *name)
{
    static const char keyword[] = "return";
    const char *p = line + source_indent(line), *end = p, *after;
    while (*end && strncmp(end, "//", 2) != 0 && strncmp(end, "/*", 2) != 0)
        end = (after = skip_text(end)) != end ? after : end + 1;
    while (end > p && isspace((unsigned char)end[-1])) end--;
    const bool returns = strncmp(p, keyword, sizeof keyword - 1) == 0 && !text_is_name_character(p[sizeof keyword - 1]);
    const bool last =
        next && next[source_indent(next)] == '}' && end > p && end[-1] != ';' && end[-1] != '{' && *p != '}';
    if (!returns && !last && !strstr(p, "=> Ok(") && !strstr(p, "=> Some(")) return false;
    return name ? find_word(p, end, name->text, name->length) != NULL : memchr(p, '(', (size_t)(end - p)) != NULL;
}

bool site_returns_memory(struct run *run, const char *file, int line)
{
    enum { NEXT = 8 };
    struct run_source lines;
    const char *more;
    size_t n;
    if (!file || !line || !run_source_lines(run, file, line, 0, NEXT, &lines) || !lines.n) return false;
    const char *first = lines.lines[0];
    const struct name out = find_out_argument(first), name = out.length ? out : find_new_name(first);
    if (find_keeper_of(&lines, name, &n, &more) && n) return false;
    if (!strstr(first, "cuda") && returns_name(first, lines.n > 1 ? lines.lines[1] : NULL, NULL)) return true;
    const size_t within = name.length && source_indent(first) ? lines.n : 0; /* else a function of one line */
    for (size_t i = 1; i < within && source_indent(lines.lines[i]) >= source_indent(first); i++)
        if (returns_name(lines.lines[i], i + 1 < lines.n ? lines.lines[i + 1] : NULL, &name)) return true;
    return false;
}

static const char *keeper_near(struct site_builder *b, const char *file, int line)
{
    enum { NEXT = 8 };
    struct run_source lines;
    const char *call, *more;
    size_t n;
    if (!file || !line || text_ends_with(file, ".c") || /* C has no containers of its own */
        !run_source_lines(b->run, file, line, 0, NEXT, &lines))
        return NULL;
    const struct name out = find_out_argument(lines.lines[0]);
    call = out.length ? find_keeper_of(&lines, out, &n, &more) : NULL;
    if (!call || !n) call = find_keeper_of(&lines, find_new_name(lines.lines[0]), &n, &more);
    return n ? arena_printf(b->arena, "`%.*s%s` keeps each of them (guess)", (int)n, call, more) : NULL;
}

const char *site_native_keeper(struct site_builder *b, const struct result_site *site)
{
    const struct run_frame *c = site->caller;
    return keeper_near(b, site->file, site->line) ?: c ? keeper_near(b, c->file, c->line) : NULL;
}

const char *site_native_growth_advice(struct site_builder *b, const struct result_site *site)
{
    EACH (f, of_threads, COUNT_OF(of_threads))
        if (site->file && strstr(site->file, f->module)) return f->advice;
    const char *keeper = site_native_keeper(b, site);
    return keeper
               ? arena_printf(b->arena, "%s: remove those that are no longer needed, or copy them to the host", keeper)
               : "free each block after its last use, also if a function returns early";
}

bool site_runs_python(const struct run *run, uint32_t process)
{
    const struct run_process *p = run_process_at(run, process);
    const char *command = p->command ? p->command : "", *program = command + strcspn(command, " ");
    while (program > command && program[-1] != '/') program--;
    return p->python_version || strncmp(program, "python", 6) == 0;
}

const char *site_cpp_words(struct site_builder *b, uint32_t process, const char *text)
{
    static const struct {
        const char *python, *cpp;
    } words[] = {{"torch.inference_mode()", "c10::InferenceMode"},
                 {"torch.no_grad()", "torch::NoGradGuard"},
                 {" (.tolist() of several values)", ""},
                 {".item()", ".item<float>()"}};
    if (!text || b->report->imported || site_runs_python(b->run, process)) return text;
    EACH (w, words, COUNT_OF(words)) {
        const char *rest = text;
        for (const char *at; (at = strstr(rest, w->python)) != NULL;) {
            const size_t done = (size_t)(at - text) + strlen(w->cpp);
            text = arena_printf(b->arena, "%.*s%s%s", (int)(at - text), text, w->cpp, at + strlen(w->python));
            rest = text + done;
        }
    }
    return text;
}
