/* Does the program go on after an out-of-memory error? The try and with statements around each call of its call path
 * are followed as Python would execute them for that error. */
#include <ctype.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/site/python_code.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/site.h"
#include "analyzer/site/source_context.h"
#include "analyzer/whatif/source.h"

/* Definitions that lead to each other; nested blocks; names to look up, which can lead to each other in circles. */
enum { DEPTH = 6, BLOCKS = 24, LOOKUPS = 1000 };

struct text { /* a file */
    struct site_builder *b;
    struct arena *arena; /* of one call path */
    const char *path;
    const struct run_source_text *lines;
    struct site_code code;
    bool library;
};

/* What statements do with the error, as bits: a block may end in several ways. */
enum flow {
    FLOW_ON = 1,       /* the next statement follows */
    FLOW_LEAVES = 2,   /* return, break, continue */
    FLOW_RAISES = 4,   /* the error again */
    FLOW_REPLACES = 8, /* raises another error */
    FLOW_EXITS = 16    /* the program ends */
};
enum truth { TRUTH_NEVER = 1, TRUTH_ALWAYS = 2, TRUTH_MAYBE = 3 };

/* An error on its way to the callers. */
struct error {
    bool replaced; /* by another one, whose class is not known */
    bool ends;     /* the program */
    unsigned lookups;
};

static bool open_text(struct site_builder *b, struct arena *arena, const char *path, bool library, struct text *to)
{
    const struct run_source_text *lines = (library ? run_library_text : run_source_text)(b->run, path);
    if (!lines) return false;
    *to = (struct text){b, arena, path, lines, site_code_of_text(b, lines), library};
    return true;
}

static bool may_look_up(struct error *e)
{
    return e->lookups < LOOKUPS && ++e->lookups;
}

/* Strings are not part of a statement's code. */
static bool has_words(const struct text *t, const struct site_statement *st, const char *words)
{
    bool has = false;
    for (int line = st->line; line <= st->last && (size_t)line <= t->lines->n && line > 0; line++)
        has = has || strcasestr(t->lines->lines[line - 1], words);
    return has;
}

static bool begins_any(const struct site_statement *st, const char *const *words, size_t n)
{
    bool begins = false;
    for (size_t i = 0; i < n; i++) begins = begins || site_code_begins(st, words[i]);
    return begins;
}

/* The last part of a name: torch.OutOfMemoryError, a program's own OOMError, or what these are derived from. */
static bool is_error_class(const char *name, size_t n)
{
    static const char *const bases[] = {"RuntimeError", "Exception", "BaseException"};
    bool is = memmem(name, n, "OutOfMemory", 11) || memmem(name, n, "OOM", 3);
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        const size_t length = strlen(bases[i]);
        is = is || (n >= length && strncmp(name + n - length, bases[i], length) == 0 &&
                    (n == length || name[n - length - 1] == '.'));
    }
    return is;
}

static bool names_error_class(const char *code)
{
    bool names = false;
    for (size_t n; *code && !names; code += n ? n : 1) {
        n = site_name_length(code);
        names = is_error_class(code, n);
    }
    return names;
}

/* `Full = torch.OutOfMemoryError`, `from torch import OutOfMemoryError as Full` */
static bool is_error_alias(const struct text *t, const char *name, size_t n, struct error *e)
{
    for (size_t i = 0; i < t->code.n; i++) {
        const char *code = t->code.list[i].code;
        const char *as = site_code_begins(&t->code.list[i], "from") ? strstr(code, " as ") : NULL;
        struct site_assignment a;
        if (as && strlen(as + 4) == n && strncmp(as + 4, name, n) == 0 && names_error_class(code)) return true;
        if (strncmp(code, name, n) == 0 && may_look_up(e) && site_assignment_of(t->arena, code, &a) &&
            strlen(a.targets) == n && names_error_class(a.value))
            return true;
    }
    return false;
}

/* `except torch.OutOfMemoryError:`, of a class that it is derived from, of any, or of a variable's. */
static bool does_catch(const struct text *t, const char *code, struct error *e)
{
    const char *after = code + strlen("except");
    after += strspn(after, " :(*");
    if (!*after || e->replaced || names_error_class(after)) return true;
    for (const char *p = after; site_name_length(p) && strncmp(p, "as ", 3) != 0; p += strspn(p, " ,")) {
        const size_t n = site_name_length(p);
        if ((islower((unsigned char)*p) && !memchr(p, '.', n)) || is_error_alias(t, p, n, e)) return true;
        p += n;
    }
    return false;
}

/* Of a condition in a handler: `"out of memory" in str(e)`, `isinstance(e, torch.OutOfMemoryError)`. */
static enum truth truth_for_error(const struct text *t, const struct site_statement *st)
{
    const bool about =
        has_words(t, st, "out of memory") || (strstr(st->code, "isinstance(") && strstr(st->code, "OutOfMemory"));
    if (!about || strstr(st->code, " and ")) return TRUTH_MAYBE;
    return strstr(st->code, " not in ") || strstr(st->code, "if not ") ? TRUTH_NEVER : TRUTH_ALWAYS;
}

static unsigned flow_of_block(const struct text *t, size_t header, bool in_loop, int depth);

/* The branches of an if statement, of which the first is at *i, which becomes the statement after them. */
static unsigned flow_of_branches(const struct text *t, size_t *i, bool in_loop, int depth)
{
    const struct site_statement *list = t->code.list;
    unsigned flow = 0;
    bool reached = true;
    do {
        const bool other = site_code_begins(&list[*i], "else");
        const enum truth truth = other ? TRUTH_ALWAYS : truth_for_error(t, &list[*i]);
        if (reached && truth != TRUTH_NEVER) flow |= flow_of_block(t, *i, in_loop, depth);
        reached = reached && truth != TRUTH_ALWAYS;
        *i = site_code_end(&t->code, *i);
    } while (*i < t->code.n && (site_code_begins(&list[*i], "elif") || site_code_begins(&list[*i], "else")));
    return flow | (reached ? FLOW_ON : 0);
}

/* `raise`, `raise e`, `raise Other(…) from e` */
static enum flow flow_of_raise(const char *code)
{
    const char *operand = code + strlen("raise");
    operand += strspn(operand, " ");
    const char *last = operand, *end = operand + site_name_length(operand);
    for (const char *p = operand; p < end; p++) last = *p == '.' ? p + 1 : last;
    return isupper((unsigned char)*last) && !names_error_class(operand) ? FLOW_REPLACES : FLOW_RAISES;
}

/* Statement *i, which becomes the one after it. */
static unsigned flow_of_statement(const struct text *t, size_t *i, bool in_loop, int depth)
{
    static const char *const always[] = {"with", "finally"}, *const perhaps[] = {"try", "except", "else"};
    static const char *const loops[] = {"for", "while"};
    const struct site_statement *st = &t->code.list[*i];
    const size_t at = *i;
    if (site_code_begins(st, "if")) return flow_of_branches(t, i, in_loop, depth);
    *i = site_code_end(&t->code, at);
    if (site_code_begins(st, "return")) return FLOW_LEAVES;
    if (site_code_begins(st, "break") || site_code_begins(st, "continue")) return in_loop ? FLOW_ON : FLOW_LEAVES;
    if (site_code_begins(st, "raise")) return flow_of_raise(st->code);
    if (begins_any(st, always, 2)) return flow_of_block(t, at, in_loop, depth);
    if (begins_any(st, perhaps, 3)) return flow_of_block(t, at, in_loop, depth) | FLOW_ON;
    if (begins_any(st, loops, 2)) return flow_of_block(t, at, true, depth) | FLOW_ON;
    return strstr(st->code, "exit(") ? FLOW_EXITS : FLOW_ON;
}

static unsigned flow_of_block(const struct text *t, size_t header, bool in_loop, int depth)
{
    const size_t end = site_code_end(&t->code, header);
    unsigned flow = FLOW_ON;
    if (depth > BLOCKS) return FLOW_ON;
    for (size_t i = header + 1; i < end && flow & FLOW_ON;)
        flow = (flow & ~(unsigned)FLOW_ON) | flow_of_statement(t, &i, in_loop, depth + 1);
    return flow;
}

static bool is_statement_handled(const struct text *t, size_t at, struct error *e, int depth);
static bool does_manager_suppress(const struct text *t, const char *expression, struct error *e, int depth);

/* The statement that defines the class or function of that name in a file; n of its statements: none. */
static size_t definition_in(const struct text *t, const char *name, size_t n)
{
    for (size_t i = 0; i < t->code.n; i++) {
        const struct site_statement *st = &t->code.list[i];
        const char *word = site_code_begins(st, "class") ? "class " : site_code_begins(st, "def") ? "def " : NULL;
        const char *defined = word ? strstr(st->code, word) : NULL;
        if (!defined) continue;
        defined += strlen(word);
        if (site_name_length(defined) == n && strncmp(defined, name, n) == 0) return i;
    }
    return t->code.n;
}

/* The same in the file or in those that it imports the name from. False: none. */
static bool find_definition(const struct text *t, const char *name, size_t n, struct text *in, size_t *at,
                            struct error *e)
{
    *in = *t;
    *at = definition_in(t, name, n);
    for (size_t i = 0; i < t->code.n && *at == in->code.n; i++) {
        const char *code = t->code.list[i].code;
        if (!site_code_begins(&t->code.list[i], "from") || !memmem(code, strlen(code), name, n) || !may_look_up(e))
            continue;
        const char *path = site_imported_file(t->arena, t->path, code);
        struct text other;
        if (!path || !open_text(t->b, t->arena, path, t->library, &other)) continue;
        *in = other;
        *at = definition_in(&other, name, n);
    }
    return *at < in->code.n;
}

/* `def __exit__` that may return a true value, or one of a class that it is derived from. */
static bool does_class_suppress(const struct text *t, size_t class_at, struct error *e, int depth)
{
    const struct site_statement *list = t->code.list;
    const size_t end = site_code_end(&t->code, class_at);
    for (size_t i = class_at + 1; i < end; i++) {
        if (!site_code_begins(&list[i], "def") ||
            !(strstr(list[i].code, " __exit__(") || strstr(list[i].code, " __aexit__(")))
            continue;
        for (size_t k = i + 1, last = site_code_end(&t->code, i); k < last; k++) {
            const char *value = site_code_begins(&list[k], "return") ? list[k].code + strlen("return") : "";
            value += strspn(value, " ");
            if (*value && strcmp(value, "None") != 0 && strcmp(value, "False") != 0) return true;
        }
        return false;
    }
    const char *bases = strchr(list[class_at].code, '(');
    return bases && does_manager_suppress(t, bases + 1, e, depth + 1);
}

/* A function with @contextmanager, whose yield statement raises the error. */
static bool does_generator_suppress(const struct text *t, size_t def, struct error *e, int depth)
{
    const struct site_statement *list = t->code.list;
    bool manager = false;
    for (size_t i = def; i-- > 0 && list[i].code[0] == '@' && list[i].indent == list[def].indent;)
        manager = manager || strstr(list[i].code, "contextmanager");
    if (!manager) return false;
    for (size_t i = def + 1, end = site_code_end(&t->code, def); i < end; i++)
        if (strstr(list[i].code, "yield") && may_look_up(e) && is_statement_handled(t, i, e, depth + 1)) return true;
    return false;
}

/* Of `with expression:`: suppress(RuntimeError), a context manager that the program defines, or a variable of one. */
static bool does_manager_suppress(const struct text *t, const char *expression, struct error *e, int depth)
{
    const char *p = expression + strspn(expression, " (");
    const size_t n = site_name_length(p);
    const char *arguments = p[n] == '(' ? p + n : "", *last = p;
    if (!n || depth > DEPTH || !may_look_up(e)) return false;
    if (names_error_class(arena_printf(t->arena, "%.*s", (int)(site_closing(arguments) - arguments), arguments)))
        return true;
    for (size_t i = 0; i < n; i++) last = p[i] == '.' ? p + i + 1 : last;
    struct text in;
    size_t at;
    if (find_definition(t, last, n - (size_t)(last - p), &in, &at, e)) {
        return site_code_begins(&in.code.list[at], "class") ? does_class_suppress(&in, at, e, depth)
                                                            : does_generator_suppress(&in, at, e, depth);
    }
    for (size_t i = 0; i < t->code.n; i++) {
        struct site_assignment a;
        const char *code = t->code.list[i].code;
        if (strncmp(code, p, n) == 0 && may_look_up(e) && site_assignment_of(t->arena, code, &a) &&
            strlen(a.targets) == n && does_manager_suppress(t, a.value, e, depth + 1))
            return true;
    }
    return false;
}

/* `a, b` of `with a, b:`, `with(a, b):` and `async with (a as x, b):` */
static const char *managers_of(const struct text *t, const struct site_statement *with)
{
    const char *from = strstr(with->code, "with") + strlen("with");
    from += strspn(from, " ");
    const char *end = *from == '(' ? site_closing(from) : "";
    const bool enclosed = *end && (!end[1] || end[1] == ':');
    return enclosed ? arena_printf(t->arena, "%.*s", (int)(end - from - 1), from + 1) : from;
}

/* A with statement around statement `at`: its managers, and those that an ExitStack enters before it. */
static bool does_with_suppress(const struct text *t, size_t with, size_t at, struct error *e, int depth)
{
    const char *managers = managers_of(t, &t->code.list[with]);
    for (size_t i = 0;; i++) {
        const char *one = site_part_of(t->arena, managers, i);
        if (!*one) break;
        if (does_manager_suppress(t, one, e, depth)) return true;
    }
    for (size_t i = with + 1; i < at; i++) {
        const char *enters = strstr(t->code.list[i].code, "enter_context(");
        if (enters && does_manager_suppress(t, enters + strlen("enter_context("), e, depth)) return true;
    }
    return false;
}

/* Statement `at` is in the first block of the try statement. */
static bool does_try_handle(const struct text *t, size_t try, struct error *e)
{
    const struct site_code *c = &t->code;
    bool caught = false, handled = false;
    for (size_t h = site_code_end(c, try); h < c->n && !handled; h = site_code_end(c, h)) {
        const bool finally = site_code_begins(&c->list[h], "finally"), except = site_code_begins(&c->list[h], "except");
        if (!finally && !except && !site_code_begins(&c->list[h], "else")) break;
        if (finally) handled = flow_of_block(t, h, false, 0) & FLOW_LEAVES;
        if (!except || caught || !does_catch(t, c->list[h].code, e)) continue;
        const unsigned flow = flow_of_block(t, h, false, 0);
        caught = true;
        handled = flow & (FLOW_ON | FLOW_LEAVES);
        e->ends = flow == FLOW_EXITS;
        e->replaced = e->replaced || flow & FLOW_REPLACES;
    }
    return handled;
}

/* Does the function of statement `at` handle an error that the statement raises? */
static bool is_statement_handled(const struct text *t, size_t at, struct error *e, int depth)
{
    const struct site_statement *list = t->code.list;
    if (depth > DEPTH) return false;
    for (size_t k = site_code_parent(&t->code, at); k < t->code.n && !e->ends; k = site_code_parent(&t->code, k)) {
        if (site_code_begins(&list[k], "with") && does_with_suppress(t, k, at, e, depth)) return true;
        if (site_code_begins(&list[k], "try") && does_try_handle(t, k, e)) return true;
        if (!site_code_begins(&list[k], "def")) continue;
        for (size_t i = k; i-- > 0 && list[i].code[0] == '@' && list[i].indent == list[k].indent;)
            if (does_manager_suppress(t, list[i].code + 1, e, depth)) return true;
        return false;
    }
    return false;
}

/* The next line of the program that calls the function at this stack; NULL none. */
static const struct run_frame *program_caller(struct run *run, uint32_t stack)
{
    const struct run_frame *frame;
    while ((frame = run_stack_frame(run, stack = run_stack_parent(run, stack))) != NULL)
        if (frame->kind == GS_FRAME_PYTHON && frame->line && !site_is_library(frame)) return frame;
    return NULL;
}

/* asyncio.run(main()): asyncio raises the error of this coroutine again. */
static bool is_main_coroutine(struct site_builder *b, struct arena *arena, const struct run_frame *caller,
                              const char *function)
{
    struct text t;
    if (!function || !open_text(b, arena, caller->file, false, &t)) return false;
    const size_t at = site_code_at(&t.code, caller->line);
    const char *call = arena_printf(arena, "(%s(", text_last_part(function));
    return at < t.code.n && strstr(t.code.list[at].code, call);
}

/* A frame of a library. One that handles errors, such as one that tries again, returns to the program that called it;
 * what starts the program does not count. */
static bool may_handle(struct site_builder *b, struct arena *arena, const struct run_frame *frame, uint32_t stack,
                       const char *function)
{
    const char *file = frame->file;
    const bool standard =
        file && *file != '<' && !strstr(file, "-packages/") && !strstr(file, "multiprocessing/process.py");
    const struct run_frame *caller = standard || site_is_third_party(frame) ? program_caller(b->run, stack) : NULL;
    return caller && !(strstr(file, "asyncio/") && is_main_coroutine(b, arena, caller, function));
}

bool whatif_is_caught(struct site_builder *b, uint32_t stack)
{
    struct run *run = b->run;
    const struct run_frame *frame;
    struct arena arena = {0};
    struct error e = {0};
    const char *function = NULL; /* of the program, the last one */
    bool caught = false;
    for (; !caught && !e.ends && (frame = run_stack_frame(run, stack)) != NULL; stack = run_stack_parent(run, stack)) {
        if (frame->kind != GS_FRAME_PYTHON || !frame->line) continue;
        caught = frame->function && strstr(frame->function, "_bootstrap_inner"); /* threading.py */
        const bool library = site_is_library(frame);
        struct text t;
        if (!library) function = frame->function;
        if (caught || (library && !may_handle(b, &arena, frame, stack, function)) ||
            !open_text(b, &arena, frame->file, library, &t))
            continue;
        const size_t at = site_code_at(&t.code, frame->line);
        caught = at < t.code.n && is_statement_handled(&t, at, &e, 0);
    }
    arena_free(&arena);
    return caught;
}
