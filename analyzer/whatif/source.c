#include "analyzer/whatif/source.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/site/python_code.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/site.h"

enum { FILES = 64, VALUES = 256, EVERYWHERE = -1, MODULE = -2, ATTRIBUTE = -3 };

enum called { CALLED_UNKNOWN, CALLED, CALLED_NOT };
struct own_file {
    const char *path;
    const struct run_source_text *text;
    struct site_code code;
    uint8_t *called; /* enum called, of the function that a statement defines */
};

/* A name that holds a figure: of a function that returns it, an attribute, or a variable. */
struct figure_value {
    const char *name;
    unsigned figures; /* of enum whatif_source */
    int file;         /* EVERYWHERE: in any file; ATTRIBUTE: likewise, after a dot */
    int scope;        /* the statement that defines the function of a variable; MODULE */
    bool inside;      /* a list or the like that holds it: only an element is a figure */
};

struct own_name { /* the last answer of has_own_name: a function may mention a name often */
    const struct site_code *code;
    int def;
    const char *name;
    bool has;
};

struct figure_search {
    struct run *run;
    struct arena *arena;
    struct own_file files[FILES];
    size_t files_n;
    ARENA_LIST(const char *, functions); /* of all call paths, each once */
    struct figure_value values[VALUES];
    size_t values_n;
    unsigned used;
    bool grew;
    struct own_name last_own;
    bool third_party; /* a package other than PyTorch is on a call path */
};

static bool is_one_of(const char *name, size_t n, const char *const *words, size_t words_n)
{
    return ANY_IN(w, words, strlen(*w) == n && strncmp(name, *w, n) == 0);
}

static bool add_own_file(struct figure_search *s, const char *path)
{
    if (!path || s->files_n == FILES || site_is_library_file(path)) return false;
    for (size_t i = 0; i < s->files_n; i++)
        if (strcmp(s->files[i].path, path) == 0) return true;
    const struct run_source_text *text = run_source_text(s->run, path);
    if (!text) return false;
    struct own_file *f = &s->files[s->files_n++];
    *f = (struct own_file){.path = path, .text = text, .code = site_code_of(s->arena, text->lines, text->n)};
    f->called = arena_alloc(s->arena, f->code.n + 1);
    memset(f->called, CALLED_UNKNOWN, f->code.n + 1);
    return true;
}

static bool is_first(struct map *seen, const char *interned)
{
    uint32_t *first = interned ? map_at(seen, (uintptr_t)interned) : NULL;
    if (!first || *first != MAP_NEW) return false;
    *first = 1;
    return true;
}

/* The files of all call paths, and what they import. */
static void read_own_files(struct figure_search *s)
{
    struct map files = {0}, functions = {0};
    const struct run_frame *frame;
    for (uint32_t i = 0; i < run_stack_count(s->run); i++) {
        if ((frame = run_stack_frame(s->run, i)) == NULL || frame->kind != GS_FRAME_PYTHON) continue;
        if (is_first(&files, frame->file)) {
            if (!frame->installed) add_own_file(s, frame->file);
            s->third_party = s->third_party || site_is_third_party(frame);
        }
        if (is_first(&functions, frame->function)) *ARENA_ADD(s->functions) = frame->function;
    }
    MAP_RELEASE(&files, &functions);
    for (size_t i = 0; i < s->files_n; i++)
        for (size_t k = 0; k < s->files[i].code.n; k++)
            add_own_file(s, site_imported_file(s->arena, s->files[i].path, s->files[i].code.list[k].code));
}

static void add_value(struct figure_search *s, struct figure_value value)
{
    struct figure_value *v = s->values, *end = s->values + s->values_n;
    const unsigned figures = value.figures;
    while (v < end && (v->file != value.file || v->scope != value.scope || v->inside != value.inside ||
                       strcmp(v->name, value.name) != 0))
        v++;
    if (v == end && s->values_n == VALUES) return;
    value.figures = 0;
    if (v == end) s->values[s->values_n++] = value;
    s->grew = s->grew || (v->figures | figures) != v->figures;
    v->figures |= figures;
}

/* The next mention of a value in a statement, as a whole name. */
static const char *find_value(const struct figure_value *v, const char *code, const char *from)
{
    const size_t n = strlen(v->name);
    for (const char *p = strstr(from, v->name); p; p = strstr(p + 1, v->name)) {
        const char before = p > code ? p[-1] : ' ';
        const bool dot = before == '.';
        if (v->file != EVERYWHERE && dot != (v->file == ATTRIBUTE)) continue;
        if (!site_is_name_character(before) && !site_is_name_character(p[n])) return p;
    }
    return NULL;
}

enum use { USE_VALUE, USE_SHOWN, USE_DECIDES };

/* f(value): what the function, whose name ends at `end`, does with it. */
static enum use use_of_argument(const char *code, const char *end)
{
    static const char *const pure[] = {"int",    "float", "round", "min",  "max",    "abs",     "str",      "repr",
                                       "sum",    "tuple", "list",  "dict", "set",    "sorted",  "zip",      "bool",
                                       "divmod", "floor", "ceil",  "log2", "format", "getattr", "enumerate"};
    static const char *const shows[] = {"append", "extend", "update", "add",  "put",
                                        "dump",   "dumps",  "insert", "send", "metric"};
    static const char *const counts[] = {"len"};
    static const char *const showing[] = {"print",   "log",      "info",        "debug",    "warn",
                                          "error",   "critical", "write",       "report",   "show",
                                          "display", "record",   "set_postfix", "set_desc", "track",
                                          "gauge",   "observe",  "exception",   "fail",     "add_scalar"};
    static const char *const converting[] = {"byte", "gb", "gib", "mb_", "_mb", "format", "fmt", "human", "pretty"};
    const char *name = end;
    char lower[64];
    while (name > code && site_is_name_character(name[-1])) name--;
    const size_t n = (size_t)(end - name);
    if (!n) return USE_VALUE; /* brackets around an expression */
    if (is_one_of(name, n, pure, COUNT_OF(pure))) return USE_VALUE;
    if (is_one_of(name, n, counts, 1)) return USE_SHOWN;
    const bool method = name > code && name[-1] == '.';
    if (method && is_one_of(name, n, shows, COUNT_OF(shows))) return USE_SHOWN;
    if (n >= sizeof lower) return USE_DECIDES;
    for (size_t i = 0; i <= n; i++) lower[i] = i < n ? (char)tolower((unsigned char)name[i]) : 0;
    const char *bare = lower + strspn(lower, "_");
    for (size_t i = 0; i < COUNT_OF(showing); i++)
        if (strncmp(bare, showing[i], strlen(showing[i])) == 0) return USE_SHOWN;
    for (size_t i = 0; i < COUNT_OF(converting); i++)
        if (strstr(lower, converting[i])) return USE_VALUE;
    return USE_DECIDES;
}

/* What the innermost brackets around a mention do with it, from the inside out. */
static enum use use_in_code(const char *code, const char *mention)
{
    int depth = 0;
    for (const char *p = mention; p > code;) {
        p--;
        if (strchr(")]}", *p)) depth--;
        if (!strchr("([{", *p)) continue;
        if (depth++ < 0) continue;
        depth = 0;
        const bool follows = p > code && (site_is_name_character(p[-1]) || strchr(")]", p[-1]));
        if (*p == '[' && follows) return USE_DECIDES; /* an index or a slice */
        const enum use use = *p == '(' && follows ? use_of_argument(code, p) : USE_VALUE;
        if (use != USE_VALUE) return use;
    }
    return USE_VALUE;
}

/* The statement that defines the function around statement i. */
static int scope_of(const struct site_code *c, size_t i)
{
    for (size_t k = i; c->list[k].indent && (k = site_code_parent(c, k)) < c->n;)
        if (site_code_begins(&c->list[k], "def")) return (int)k;
    return MODULE;
}

/* Does the function declare the name as one of the module? */
static bool is_global_in(const struct site_code *c, int def, const char *name)
{
    const struct figure_value v = {.name = name};
    bool global = false;
    for (size_t k = (size_t)def + 1, end = site_code_end(c, (size_t)def); k < end && !global; k++)
        global = site_code_begins(&c->list[k], "global") && find_value(&v, c->list[k].code, c->list[k].code);
    return global;
}

/* Does the function have a parameter or variable of its own with that name? */
static bool has_own_name(struct figure_search *s, const struct site_code *c, int def, const char *name)
{
    const struct figure_value v = {.name = name};
    if (s->last_own.code == c && s->last_own.def == def && s->last_own.name == name) return s->last_own.has;
    bool own = find_value(&v, c->list[def].code, c->list[def].code) != NULL;
    for (size_t k = (size_t)def + 1, end = site_code_end(c, (size_t)def); k < end && !own; k++) {
        struct site_assignment a;
        struct site_names names = {.n = 0};
        if (!find_value(&v, c->list[k].code, c->list[k].code) || !site_binding_of(s->arena, &c->list[k], &a)) continue;
        site_targets_of(s->arena, a.targets, &names, NULL);
        own = site_names_has(&names, name) && scope_of(c, k) == def;
    }
    own = own && !is_global_in(c, def, name);
    s->last_own = (struct own_name){c, def, name, own};
    return own;
}

/* A statement that only gives names. */
static bool is_definition(const struct site_statement *st)
{
    static const char *const words[] = {"def", "class", "import", "from", "global", "nonlocal", "del", "except"};
    bool is = false;
    for (size_t i = 0; i < COUNT_OF(words); i++) is = is || site_code_begins(st, words[i]);
    return is;
}

static bool any_file_has(const struct figure_search *s, const char *name)
{
    const struct figure_value v = {.name = name, .file = EVERYWHERE};
    for (size_t f = 0; f < s->files_n; f++)
        for (size_t k = 0; k < s->files[f].code.n; k++) {
            const struct site_statement *st = &s->files[f].code.list[k];
            if (!is_definition(st) && find_value(&v, st->code, st->code)) return true;
        }
    return false;
}

/* f(…), Thread(target=f), decorated(f): not a list of functions. */
static bool is_called_in(const struct site_statement *st, const char *name)
{
    const struct figure_value v = {.name = name, .file = EVERYWHERE};
    const char *p = find_value(&v, st->code, st->code);
    if (p && is_definition(st)) return false;
    for (; p; p = find_value(&v, st->code, p + 1)) {
        const char *open = p;
        if (p[strlen(name)] == '(') return true;
        for (int depth = 1; open > st->code && depth;)
            depth += strchr(")]}", *--open) ? 1 : strchr("([{", *open) ? -1 : 0;
        if (*open == '(' && open < p && open > st->code && site_is_name_character(open[-1])) return true;
    }
    return false;
}

/* A file of helpers defines functions that the program never calls: no statement and no call path names them. Methods
 * and decorated functions count as called, because frameworks call them. */
static bool is_called(const struct figure_search *s, const struct own_file *file, int def)
{
    const struct site_statement *list = file->code.list;
    const char *name = def == MODULE || list[def].indent ? NULL : strstr(list[def].code, "def ");
    if (!name || (def && list[def - 1].code[0] == '@')) return true;
    if (file->called[def] != CALLED_UNKNOWN) return file->called[def] == CALLED;
    name = arena_printf(s->arena, "%.*s", (int)site_name_length(name + 4), name + 4);
    bool called = false;
    for (size_t i = 0; i < s->functions_n && !called; i++) called = strcmp(s->functions[i], name) == 0;
    for (size_t f = 0; f < s->files_n; f++)
        for (size_t k = 0; k < s->files[f].code.n && !called; k++)
            called = is_called_in(&s->files[f].code.list[k], name);
    file->called[def] = called ? CALLED : CALLED_NOT;
    return called;
}

static void add_returned(struct figure_search *s, const struct site_code *c, int def, unsigned figures)
{
    const char *name = def == MODULE ? NULL : strstr(c->list[def].code, "def ");
    const size_t n = name ? site_name_length(name + 4) : 0;
    if (n) {
        name = arena_printf(s->arena, "%.*s", (int)n, name + 4);
        add_value(s, (struct figure_value){name, figures, EVERYWHERE, MODULE, false});
    }
}

/* A variable of the function `scope`, or an attribute. */
static void add_figure_name(struct figure_search *s, const char *name, struct figure_value value)
{
    const char *dot = strrchr(name, '.');
    value.name = dot ? dot + 1 : name;
    if (dot) value.file = ATTRIBUTE;
    if (dot || (value.scope != MODULE && is_global_in(&s->files[value.file].code, value.scope, name)))
        value.scope = MODULE;
    add_value(s, value);
}

static void add_figure_targets(struct figure_search *s, const char *targets, unsigned figures, int file, int scope)
{
    struct site_names names = {.n = 0};
    site_targets_of(s->arena, targets, &names, NULL);
    for (size_t i = 0; i < names.n; i++)
        add_figure_name(s, names.list[i], (struct figure_value){NULL, figures, file, scope, false});
}

/* `rows.append(figure)`: an element of rows decides as the figure does. */
static void add_container(struct figure_search *s, const struct site_statement *st, const char *mention,
                          unsigned figures, int file, int scope)
{
    struct site_store store;
    if (site_store_of(s->arena, st->code, &store) && mention > st->code + strlen(store.into))
        add_figure_name(s, store.into, (struct figure_value){NULL, figures, file, scope, true});
}

/* `from torch.cuda import memory_reserved as used` */
static void follow_import(struct figure_search *s, int file, const struct site_statement *st, const char *mention,
                          const struct figure_value *v)
{
    const char *as = mention + strlen(v->name);
    if (!site_code_begins(st, "from") || strncmp(as, " as ", 4) != 0) return;
    const char *name = arena_printf(s->arena, "%.*s", (int)site_name_length(as + 4), as + 4);
    add_value(s, (struct figure_value){name, v->figures, file, MODULE, false});
}

/* Where the value begins that a statement binds to its targets. */
static const char *value_of_binding(const struct site_statement *st, const struct site_assignment *a)
{
    const char *in = site_code_begins(st, "for") ? strstr(st->code, " in ") : NULL;
    return in ? in : st->code + strlen(a->targets);
}

static void follow_value(struct figure_search *s, int file, size_t at, const char *mention, unsigned figures)
{
    static const char *const branches[] = {"if", "elif", "while", "assert", "match"};
    const struct site_code *c = &s->files[file].code;
    const struct site_statement *st = &c->list[at];
    struct site_assignment a;
    if (is_definition(st)) return;
    bool decides = false;
    for (size_t i = 0; i < COUNT_OF(branches); i++) decides = decides || site_code_begins(st, branches[i]);
    const enum use use = decides ? USE_DECIDES : use_in_code(st->code, mention);
    const int scope = scope_of(c, at);
    if (use == USE_DECIDES && (figures & ~s->used) && is_called(s, &s->files[file], scope)) s->used |= figures;
    if (use == USE_SHOWN) add_container(s, st, mention, figures, file, scope);
    if (use != USE_VALUE) return;
    if (site_code_begins(st, "return") || site_code_begins(st, "yield"))
        add_returned(s, c, scope, figures);
    else if (site_binding_of(s->arena, st, &a) && mention >= value_of_binding(st, &a))
        add_figure_targets(s, a.targets, figures, file, scope);
}

/* Is it that value, and not another one of the same name? What a function returns is called or an attribute; a variable
 * is seen in its function and the functions in that. */
static bool is_mention_of(struct figure_search *s, const struct figure_value *v, int file, size_t at,
                          const char *mention)
{
    const struct site_code *c = &s->files[file].code;
    if (v->inside && mention[strlen(v->name)] != '[') return false;
    if (v->file == EVERYWHERE)
        return mention[strlen(v->name)] == '(' || (mention > c->list[at].code && mention[-1] == '.');
    if (v->file == ATTRIBUTE) return true;
    int scope = scope_of(c, at);
    while (scope != v->scope && scope != MODULE && !has_own_name(s, c, scope, v->name))
        scope = scope_of(c, (size_t)scope);
    return scope == v->scope;
}

static void follow_values(struct figure_search *s)
{
    for (size_t i = 0; i < s->values_n; i++) {
        const struct figure_value v = s->values[i];
        for (size_t f = 0; f < s->files_n; f++) {
            if (v.file >= 0 && v.file != (int)f) continue;
            for (size_t k = 0; k < s->files[f].code.n; k++) {
                const char *code = s->files[f].code.list[k].code, *p = find_value(&v, code, code);
                for (; p; p = find_value(&v, code, p + 1)) {
                    follow_import(s, (int)f, &s->files[f].code.list[k], p, &v);
                    if (is_mention_of(s, &v, (int)f, k, p)) follow_value(s, (int)f, k, p, v.figures);
                }
            }
        }
    }
}

/* Does a statement name it, in a function that is called or at the top level of a file? */
static bool does_call(const struct figure_search *s, const char *name)
{
    const struct figure_value v = {.name = name, .file = EVERYWHERE};
    for (size_t f = 0; f < s->files_n; f++) {
        const struct site_code *c = &s->files[f].code;
        for (size_t k = 0; k < c->n; k++)
            if (!is_definition(&c->list[k]) && find_value(&v, c->list[k].code, c->list[k].code) &&
                is_called(s, &s->files[f], scope_of(c, k)))
                return true;
    }
    return false;
}

static const struct {
    const char *name;
    unsigned figures;
} figure_names[] = {
    {"total_memory", WHATIF_TOTAL},
    {"mem_get_info", WHATIF_FREE_FIGURE},
    {"memory_reserved", WHATIF_ALLOCATOR},
    {"memory_cached", WHATIF_ALLOCATOR},
    {"max_memory_reserved", WHATIF_ALLOCATOR},
    {"max_memory_cached", WHATIF_ALLOCATOR},
    {"memory_allocated", WHATIF_ALLOCATOR},
    {"max_memory_allocated", WHATIF_ALLOCATOR},
    {"memory_stats", WHATIF_ALLOCATOR},
    {"memory_stats_as_nested_dict", WHATIF_ALLOCATOR},
    {"memory_snapshot", WHATIF_ALLOCATOR},
    {"device_memory_used", WHATIF_ALLOCATOR},
    {"nvmlDeviceGetMemoryInfo", WHATIF_TOTAL | WHATIF_ALLOCATOR},
};
enum { FIGURE_NAMES = COUNT_OF(figure_names) };

/* "memory_reserved", f"memory_{kind}", "memory_" + kind */
static unsigned figures_in_string(const char *text, size_t n)
{
    enum { SHORTEST = 5 };
    const char *open = memchr(text, '{', n), *close = open ? memrchr(text, '}', n) : NULL;
    const size_t before = open ? (size_t)(open - text) : n, after = close ? n - (size_t)(close + 1 - text) : 0;
    const bool begins = open || (n && text[n - 1] == '_');
    unsigned figures = 0;
    for (size_t i = 0; i < FIGURE_NAMES; i++) {
        const char *name = figure_names[i].name;
        const size_t length = strlen(name);
        const bool fits = begins ? before + after >= SHORTEST && length >= before + after : length == n;
        if (fits && strncmp(name, text, before) == 0 && memcmp(name + length - after, text + n - after, after) == 0)
            figures |= figure_names[i].figures;
    }
    return figures;
}

/* The names in the strings of lines; those of a dictionary's keys are names of what the program logs. */
static unsigned figures_in_lines(const struct run_source_text *text, size_t first, size_t last)
{
    unsigned figures = 0;
    for (size_t i = first; i <= last && i < text->n; i++)
        for (const char *p = text->lines[i]; *p; p++) {
            if (*p != '"' && *p != '\'') continue;
            const char *end = strchr(p + 1, *p);
            if (!end) break;
            if (end[1] != ':') figures |= figures_in_string(p + 1, (size_t)(end - p - 1));
            p = end;
        }
    return figures;
}

/* Of getattr(object, name) with a name that the source does not show: any that the program mentions or the object has.
 */
static unsigned figures_of_any_name(const char *object, unsigned mentioned)
{
    const size_t n = strlen(object);
    if (strstr(object, "get_device_properties")) mentioned |= WHATIF_TOTAL;
    if (n >= 4 && strcmp(object + n - 4, "cuda") == 0) mentioned |= WHATIF_ALLOCATOR;
    return mentioned;
}

/* getattr(torch.cuda, "memory_reserved"): a name in a string. */
static void follow_getattr(struct figure_search *s)
{
    static const char call[] = "getattr(";
    unsigned all = 0;
    for (size_t f = 0; f < s->files_n; f++) all |= figures_in_lines(s->files[f].text, 0, s->files[f].text->n);
    for (size_t f = 0; f < s->files_n; f++)
        for (size_t k = 0; k < s->files[f].code.n; k++) {
            const struct site_statement *st = &s->files[f].code.list[k];
            for (const char *p = strstr(st->code, call); p; p = strstr(p + 1, call)) {
                const char *arguments = p + strlen(call), *end = site_closing(arguments - 1);
                arguments = arena_printf(s->arena, "%.*s", (int)(end - arguments), arguments);
                const unsigned own = figures_in_lines(s->files[f].text, (size_t)st->line - 1, (size_t)st->last - 1);
                const bool shown = own || strstr(site_part_of(s->arena, arguments, 1), "\"\"");
                const unsigned figures = shown ? own : figures_of_any_name(site_part_of(s->arena, arguments, 0), all);
                if (figures) follow_value(s, (int)f, k, p, figures);
            }
        }
}

static bool mentions_conf(const struct own_file *f, const struct site_statement *st)
{
    bool mentions = false;
    for (int line = st->line; line <= st->last && line > 0 && (size_t)line <= f->text->n; line++)
        mentions = mentions || strstr(f->text->lines[line - 1], "_ALLOC_CONF");
    return mentions;
}

/* os.environ["PYTORCH_CUDA_ALLOC_CONF"] = …, unless a condition about the variable is around it. */
static bool does_assign_conf(const struct figure_search *s)
{
    for (size_t f = 0; f < s->files_n; f++) {
        const struct site_code *c = &s->files[f].code;
        for (size_t k = 0; k < c->n; k++) {
            const struct site_statement *st = &c->list[k];
            const bool assigns = strstr(st->code, "environ[\"\"] = ") || strstr(st->code, "putenv(");
            if (!assigns || !mentions_conf(&s->files[f], st)) continue;
            const size_t parent = st->indent ? site_code_parent(c, k) : c->n;
            if ((parent == c->n || !mentions_conf(&s->files[f], &c->list[parent])) &&
                is_called(s, &s->files[f], scope_of(c, k)))
                return true;
        }
    }
    return false;
}

unsigned whatif_source_facts(struct run *run)
{
    enum { ROUNDS = 8 };
    struct arena arena = {0};
    struct figure_search *s = arena_zeroed(1, sizeof *s);
    s->run = run;
    s->arena = &arena;
    read_own_files(s);
    for (size_t i = 0; i < FIGURE_NAMES; i++)
        add_value(s, (struct figure_value){figure_names[i].name, figure_names[i].figures, EVERYWHERE, MODULE, false});
    follow_getattr(s);
    for (unsigned round = 0; s->grew && round < ROUNDS; round++) {
        s->grew = false;
        follow_values(s);
    }
    unsigned facts = s->used;
    static const char *const setters[] = {"_set_allocator_settings", "_accelerator_setAllocatorSettings",
                                          "_cuda_cudaCachingAllocator_set_allocator_settings"};
    if (does_call(s, "set_per_process_memory_fraction")) facts |= WHATIF_SETS_FRACTION;
    for (size_t i = 0; i < COUNT_OF(setters); i++)
        if (does_call(s, setters[i])) facts |= WHATIF_SETS_CONF;
    if (does_assign_conf(s)) facts |= WHATIF_ASSIGNS_CONF;
    if (does_call(s, "reset_accumulated_memory_stats")) facts |= WHATIF_RESETS_COUNTS;
    if (does_call(s, "empty_cache") || does_call(s, "capture_begin")) facts |= WHATIF_EMPTIES;
    if (any_file_has(s, "mem_get_info") && !s->third_party && !(facts & WHATIF_FREE_FIGURE)) facts |= WHATIF_SHOWS_FREE;
    if (any_file_has(s, "MemPool") && !any_file_has(s, "use_on_oom")) facts |= WHATIF_PLAIN_POOLS;
    arena_free(&arena);
    ARENA_RELEASE(s->functions, s);
    return facts;
}

/* torch.rand(8, 8), x.new_zeros(8), and nothing else: a new tensor has no graph, whatever the arguments are. */
static bool is_new_tensor(const char *value)
{
    static const char *const makers[] = {
        "rand", "randn",    "randint", "randperm",  "zeros",      "ones",       "empty",     "full",       "arange",
        "eye",  "linspace", "tensor",  "rand_like", "randn_like", "zeros_like", "ones_like", "empty_like", "full_like"};
    const char *open = value + site_name_length(value), *dot = memrchr(value, '.', (size_t)(open - value));
    const char *name = dot ? dot + 1 : value;
    if (*open != '(' || !dot || !site_closes_at_end(open)) return false;
    const bool method = strncmp(name, "new_", 4) == 0;
    name += method ? 4 : 0;
    return (method || (dot - value == 5 && strncmp(value, "torch", 5) == 0)) &&
           ANY_OF(m, makers, COUNT_OF(makers),
                  strlen(*m) == (size_t)(open - name) && strncmp(name, *m, (size_t)(open - name)) == 0);
}

/* Does a stored value hold no graph and no tensor that another line made, such as x of `(x, y.detach() + 1)`? */
static bool is_detached(struct arena *arena, const char *value)
{
    if (is_new_tensor(value)) return true;
    const char *open = value + strspn(value, "([{"), *each = strstr(open, " for ");
    if (open > value && each) return site_is_host_value(arena_printf(arena, "%.*s", (int)(each - open), open), true);
    for (size_t i = 0;; i++) {
        const char *part = site_part_of(arena, open, i);
        const char *rest = part + site_name_length(part);
        if (!*part) break;
        if (rest - part > 7 && strncmp(rest - 7, ".detach()", 9) == 0) rest += 2;
        if (!rest[strspn(rest, ")]}")]) return false;
    }
    return site_is_host_value(value, true);
}

/* A tensor without a graph gets the graph of y from `z[:8] = y`, `z += y` and `z.copy_(y)`, unless y is detached.
 * `element`: the tensor is an element of z. */
static bool is_filled(struct arena *arena, const struct site_code *code, size_t at, const char *name, bool element)
{
    const size_t n = strlen(name);
    if (strchr(name, '.')) at = code->n; /* an attribute: anywhere in the file */
    while (at < code->n && !site_code_begins(&code->list[at], "def")) at = site_code_parent(code, at);
    const size_t to = at < code->n ? site_code_end(code, at) : at;
    for (size_t i = at < code->n ? at : 0; i < to; i++) {
        const char *statement = code->list[i].code, *end = statement + n, *value = NULL;
        struct site_assignment a;
        if (strncmp(statement, name, n) != 0 || site_is_name_character(*end) || (element && *end != '[')) continue;
        if (element) end = site_closing(end);
        if (!site_assignment_of(arena, statement, &a))
            value = (value = strstr(end, "_(")) ? value + 1 : NULL;
        else if (a.augmented || memchr(end, '[', strcspn(end, "=")))
            value = a.value;
        if (!value) continue;
        const char first = value[strspn(value, "(-")];
        if (first != ')' && !isdigit((unsigned char)first) && !is_new_tensor(value) && !site_is_host_value(value, true))
            return true;
    }
    return false;
}

static bool is_target_filled(struct arena *arena, const struct site_code *code, size_t at)
{
    const char *statement = code->list[at].code;
    struct site_assignment assigned;
    struct site_store store;
    struct site_names names = {.n = 0}, indexed = {.n = 0};
    if (site_store_of(arena, statement, &store)) return is_filled(arena, code, at, store.into, true);
    if (!site_assignment_of(arena, statement, &assigned)) return false;
    site_targets_of(arena, assigned.targets, &names, &indexed);
    for (size_t i = 0; i < names.n; i++)
        if (is_filled(arena, code, at, names.list[i], false)) return true;
    for (size_t i = 0; i < indexed.n; i++)
        if (is_filled(arena, code, at, indexed.list[i], true)) return true;
    return false;
}

static bool makes_detached(struct arena *arena, const char *statement)
{
    struct site_assignment assigned;
    struct site_store store;
    if (strncmp(statement, "return ", 7) == 0) return is_new_tensor(statement + 7);
    if (site_store_of(arena, statement, &store)) return is_detached(arena, store.value);
    return site_assignment_of(arena, statement, &assigned) && is_detached(arena, assigned.value);
}

bool whatif_is_graphless(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    size_t at;
    if (!site_open_source(b, run_stack_frame(b->run, stack), &code, &at) ||
        !makes_detached(b->arena, code.list[at].code))
        return false;
    while (strncmp(code.list[at].code, "return ", 7) == 0) { /* the caller may fill what it gets */
        struct site_code caller;
        size_t line;
        if ((stack = run_stack_parent(b->run, stack)) == RUN_NONE) return true;
        if (!site_open_source(b, run_stack_frame(b->run, stack), &caller, &line)) continue;
        code = caller;
        at = line;
    }
    return !is_target_filled(b->arena, &code, at);
}

bool whatif_keeps_graph(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    size_t at;
    const struct run_frame *f = site_open_innermost(b, stack, &code, &at);
    uint32_t line = stack;
    while (f && run_stack_frame(b->run, line) != f) line = run_stack_parent(b->run, line);
    return f && !site_is_without_gradients(b, stack) && !whatif_is_graphless(b, line) &&
           !site_backward_follows(b, stack);
}

/* The head of a loop drops the variable of the last turn. */
static bool is_loop_head(struct site_builder *b, const struct run_frame *frame)
{
    struct site_code code;
    size_t at;
    return site_open_source(b, frame, &code, &at) && site_code_begins(&code.list[at], "for");
}

static bool has_call_path_line(struct run *run, uint32_t stack, const struct run_frame *line)
{
    for (; stack != RUN_NONE; stack = run_stack_parent(run, stack)) {
        const struct run_frame *f = run_stack_frame(run, stack);
        if (f->line == line->line && f->file == line->file) return true;
    }
    return false;
}

bool whatif_may_be_used(struct site_builder *b, const struct run_lifetime *life, uint32_t process)
{
    struct run *run = b->run;
    if (life->free_ns > run_process_at(run, process)->last_alloc_ns) return false;
    for (uint32_t at = run_free_stack(run, life); at != RUN_NONE; at = run_stack_parent(run, at)) {
        const struct run_frame *f = run_stack_frame(run, at);
        if (f->kind != GS_FRAME_PYTHON || f->installed || site_is_library_file(f->file)) continue;
        return !has_call_path_line(run, life->stack, f) && !is_loop_head(b, f);
    }
    return false;
}

bool whatif_has_python(struct run *run, uint32_t stack)
{
    return RUN_ANY_FRAME(frame, run, stack, frame->kind == GS_FRAME_PYTHON && frame->line);
}
