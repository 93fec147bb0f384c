#include "analyzer/site/source_context.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/each.h"
#include "analyzer/site/python_names.h"

struct site_code site_code_of_text(struct site_builder *b, const struct run_source_text *text)
{
    for (size_t i = 0; i < b->codes_n; i++)
        if (b->codes[i].lines == text->lines) return b->codes[i].code;
    const struct site_code code = site_code_of(b->arena, text->lines, text->n);
    *ARENA_ADD(b->codes) = (struct site_file_code){text->lines, code};
    return code;
}

bool site_open_source(struct site_builder *b, const struct run_frame *frame, struct site_code *code, size_t *at)
{
    const struct run_source_text *text = frame->line ? run_source_text(b->run, frame->file) : NULL;
    if (!text) return false;
    *code = site_code_of_text(b, text);
    *at = site_code_at(code, frame->line);
    return *at < code->n;
}

const char *site_imported_file(struct arena *arena, const char *file, const char *code)
{
    enum { PARENTS = 3, PATH = 1024 };
    const bool from = strncmp(code, "from ", 5) == 0;
    const char *name = code + 5 + 2 * !from, *end = strrchr(file, '/');
    if ((!from && strncmp(code, "import ", 7) != 0) || *file != '/') return NULL;
    const size_t dots = strspn(name, ".");
    name += dots;
    for (size_t up = 1; up < dots && end > file; up++) end = memrchr(file, '/', (size_t)(end - file));
    for (unsigned up = 0; site_name_length(name) && end && up < (dots ? 1 : PARENTS); up++) {
        char path[PATH];
        const size_t n = (size_t)(end - file);
        if (n + site_name_length(name) + sizeof "/.py" > PATH) return NULL;
        snprintf(path, sizeof path, "%.*s/%.*s.py", (int)n, file, (int)site_name_length(name), name);
        for (char *p = path + n; *p && strcmp(p, ".py") != 0; p++) *p = *p == '.' ? '/' : *p;
        if (access(path, R_OK) == 0) return arena_printf(arena, "%s", path);
        end = memrchr(file, '/', n);
    }
    return NULL;
}

/* Of an import, the whole name: "import grad" is not in "import gradio". */
static bool source_has_any(const char *code, const char *const *words, size_t n)
{
    bool has = false;
    for (size_t i = 0; i < n && !has; i++) {
        const bool whole = strncmp(words[i], "import ", 7) == 0;
        const char *p = strstr(code, words[i]);
        while (p && whole && site_is_name_character(p[strlen(words[i])])) p = strstr(p + 1, words[i]);
        has = p;
    }
    return has;
}

/* Of a frame of the user's own code. */
static bool open_own_source(struct site_builder *b, const struct run_frame *frame, struct site_code *code, size_t *at)
{
    return frame->kind == GS_FRAME_PYTHON && !site_is_library(frame) && site_open_source(b, frame, code, at);
}

static const char *const without_gradients[] = {"no_grad(", "inference_mode(", "set_grad_enabled(False)"};

static bool is_without(const char *code)
{
    return source_has_any(code, without_gradients, COUNT_OF(without_gradients)) && !strstr(code, " if ");
}

/* context = torch.no_grad(), if the file assigns it nothing else */
static bool is_context_without(const struct site_code *code, const char *name, size_t n)
{
    bool is = false;
    for (size_t k = 0; n && k < code->n; k++) {
        const char *text = code->list[k].code;
        if (strncmp(text, name, n) != 0 || strncmp(text + n, " = ", 3) != 0) continue;
        is = is_without(text);
        if (!is) return false;
    }
    return is;
}

/* with torch.no_grad():, with context:, with ExitStack() as stack: around stack.enter_context(torch.no_grad()) */
static bool opens_without(const struct site_code *code, size_t k, size_t at)
{
    if (!site_code_begins(&code->list[k], "with")) return false;
    const char *header = code->list[k].code, *name = header + strlen("with ");
    if (is_without(header) || is_context_without(code, name, site_name_length(name))) return true;
    bool enters = false;
    for (size_t i = k + 1; i < at && strstr(header, "ExitStack(") && !enters; i++)
        enters = site_code_parent(code, i) == k && strstr(code->list[i].code, ".enter_context(") &&
                 is_without(code->list[i].code);
    return enters;
}

/* torch.set_grad_enabled(False) as a statement, which nothing in the file takes back */
static bool disables_gradients(const struct site_code *code)
{
    bool disables = false;
    for (size_t k = 0; k < code->n; k++) {
        const char *text = code->list[k].code;
        if (strncmp(text, "torch.set_grad_enabled(", 23) != 0) continue;
        disables = strncmp(text + 23, "False)", 6) == 0;
        if (!disables) return false;
    }
    return disables;
}

bool site_is_without_gradients(struct site_builder *b, uint32_t stack)
{
    static const char *const modes[] = {"no_grad", "inference_mode"}; /* Lightning's _no_grad_context() */
    RUN_EACH_FRAME (frame, b->run, stack) {
        struct site_code code;
        size_t at;
        const bool own = !site_is_library(frame);
        if (frame->kind != GS_FRAME_PYTHON || (!own && run_path_has(frame->file, "/torch/"))) continue;
        if (!own && frame->function && source_has_any(frame->function, modes, 2)) return true;
        if (!site_open_source(b, frame, &code, &at)) continue;
        for (size_t k = site_code_parent(&code, at); k < code.n; k = site_code_parent(&code, k)) {
            if (opens_without(&code, k, at)) return true;
            if (!site_code_begins(&code.list[k], "def")) continue;
            for (size_t d = k; d-- > 0 && code.list[d].code[0] == '@';)
                if (source_has_any(code.list[d].code, without_gradients, 2)) return true;
            break; /* the block around it was left when the function was defined */
        }
        if (own && disables_gradients(&code)) return true;
    }
    return false;
}

static bool has_between(const struct site_code *code, size_t from, size_t to, const char *words)
{
    for (size_t i = from; i < to; i++)
        if (strstr(code->list[i].code, words) && !site_code_begins(&code->list[i], "def")) return true;
    return false;
}

/* In the innermost loop around the statement, or else in its function; `later`: from the statement on. */
static bool has_backward(const struct site_code *code, size_t at, bool later)
{
    size_t end = at, loop = code->n;
    for (size_t k = at; k < code->n && !site_code_begins(&code->list[k], "def"); k = site_code_parent(code, k)) {
        const bool is_loop = site_code_begins(&code->list[k], "for") || site_code_begins(&code->list[k], "while");
        loop = is_loop && loop == code->n && k != at ? k : loop;
        end = k;
    }
    const size_t function = site_code_parent(code, end);
    end = function < code->n ? site_code_end(code, function) : code->n;
    end = later && loop < code->n ? site_code_end(code, loop) : end;
    return has_between(code, loop < code->n && !later ? loop : at, end, "backward(");
}

bool site_is_before_backward(struct site_builder *b, uint32_t stack)
{
    RUN_EACH_FRAME (frame, b->run, stack) {
        struct site_code code;
        size_t at;
        if (!open_own_source(b, frame, &code, &at)) continue;
        if (has_backward(&code, at, false)) return true;
    }
    return false;
}

const struct run_frame *site_open_innermost(struct site_builder *b, uint32_t stack, struct site_code *code, size_t *at)
{
    const struct run_frame *frame;
    while ((frame = run_stack_frame(b->run, stack)) != NULL &&
           (frame->kind != GS_FRAME_PYTHON || site_is_library(frame)))
        stack = run_stack_parent(b->run, stack);
    return frame && site_open_source(b, frame, code, at) ? frame : NULL;
}

bool site_backward_follows(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    size_t at;
    return site_open_innermost(b, stack, &code, &at) && has_backward(&code, at, true);
}

/* loss = losses(batch); total = loss + penalty; total.backward(): does what statement `at` binds reach backward()? */
static bool reaches_backward(struct arena *scratch, const struct site_code *code, size_t at)
{
    struct site_assignment a;
    struct site_names names = {.n = 0};
    size_t function = site_code_parent(code, at);
    while (function < code->n && !site_code_begins(&code->list[function], "def"))
        function = site_code_parent(code, function);
    const size_t end = function < code->n ? site_code_end(code, function) : code->n;
    if (!site_assignment_of(scratch, code->list[at].code, &a)) return strstr(code->list[at].code, "backward(");
    site_targets_of(scratch, a.targets, &names, NULL);
    for (size_t i = at + 1; i < end; i++) {
        const char *text = code->list[i].code;
        if (!site_holds(text, &names, true)) continue;
        if (strstr(text, "backward(")) return true;
        if (site_assignment_of(scratch, text, &a) && site_holds(a.value, &names, true))
            site_targets_of(scratch, a.targets, &names, NULL);
    }
    return false;
}

bool site_backward_uses(struct site_builder *b, uint32_t stack)
{
    struct arena scratch = {0};
    bool uses = site_backward_follows(b, stack);
    RUN_EACH_FRAME (frame, b->run, stack) {
        struct site_code code;
        size_t at;
        uses = uses || (open_own_source(b, frame, &code, &at) && reaches_backward(&scratch, &code, at));
    }
    arena_free(&scratch);
    return uses;
}

bool site_statement_has(struct site_builder *b, uint32_t stack, const char *words)
{
    struct site_code code;
    size_t at;
    if (!site_open_innermost(b, stack, &code, &at)) return false;
    for (size_t i = 0; i <= at; i++) /* x = 1; y = 2: the frame does not show which statement of the line it is */
        if (code.list[i].line == code.list[at].line && strstr(code.list[i].code, words)) return true;
    return false;
}

bool site_takes_parts(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    struct site_assignment a;
    struct arena scratch = {0};
    size_t at;
    bool takes = false;
    if (!site_open_innermost(b, stack, &code, &at)) return false;
    for (size_t i = 0; i <= at; i++) {
        if (code.list[i].line != code.list[at].line || !site_assignment_of(&scratch, code.list[i].code, &a)) continue;
        const size_t n = strlen(a.targets);
        if (strncmp(a.targets, "self.", 5) != 0 || site_name_length(a.targets) != n) continue;
        const char *indexed = arena_printf(&scratch, "%s[", a.targets);
        for (size_t k = 0; k < code.n && !takes; k++) takes = strstr(code.list[k].code, indexed);
    }
    arena_free(&scratch);
    return takes;
}

bool site_line_has(struct site_builder *b, const char *file, int line, const char *words)
{
    const struct run_frame frame = {.file = file, .line = line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    size_t at;
    return file && site_open_source(b, &frame, &code, &at) && strstr(code.list[at].code, words);
}

/* `key` of "for key, shape in shapes.items():". A count, a loader or any other iterator may be endless. */
static bool is_key_of_collection(const char *header, const char *key, size_t n)
{
    static const char *const endings[] = {".items()", ".keys()", "named_parameters()", "named_buffers()"};
    const char *in = strstr(header, " in "), *name = header + strlen("for ");
    bool is = false;
    if (!in || !ANY_OF(e, endings, COUNT_OF(endings), strstr(in, *e))) return false;
    for (; name < in && !is; name++)
        is = strncmp(name, key, n) == 0 && !site_is_name_character(name[n]) && !site_is_name_character(name[-1]);
    return is;
}

bool site_fills_keys(struct site_builder *b, const char *file, int line)
{
    const struct run_frame frame = {.file = file, .line = line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    size_t at;
    if (!file || !site_open_source(b, &frame, &code, &at)) return false;
    const char *open = strchr(code.list[at].code, '['), *key = open ? open + 1 : NULL;
    const size_t n = key ? site_name_length(key) : 0;
    if (!n || !strchr("].[", key[n]) || !strstr(key + n, "] = ")) return false; /* weights[key[7:]] = w, too */
    bool keyed = false;
    for (size_t k = site_code_parent(&code, at); k < code.n && !site_code_begins(&code.list[k], "def");
         k = site_code_parent(&code, k)) {
        if (site_code_begins(&code.list[k], "while")) return false;
        if (!site_code_begins(&code.list[k], "for")) continue;
        keyed = keyed || is_key_of_collection(code.list[k].code, key, n);
    }
    return keyed;
}

bool site_function_has(struct site_builder *b, uint32_t stack, const char *words)
{
    struct site_code code;
    size_t at;
    if (!site_open_innermost(b, stack, &code, &at)) return false;
    size_t def = site_code_parent(&code, at);
    while (def < code.n && !site_code_begins(&code.list[def], "def")) def = site_code_parent(&code, def);
    return strstr(code.list[at].code, words) ||
           (def < code.n && has_between(&code, def, site_code_end(&code, def), words));
}

bool site_calls_evaluated(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    size_t at;
    if (!site_open_innermost(b, stack, &code, &at)) return false;
    size_t def = site_code_parent(&code, at);
    while (def < code.n && !site_code_begins(&code.list[def], "def")) def = site_code_parent(&code, def);
    if (def >= code.n || has_between(&code, def, site_code_end(&code, def), "backward")) return false;
    for (size_t i = def + 1; i < at; i++) {
        const char *text = code.list[i].code;
        const size_t n = site_name_length(text);
        if (n <= 5 || strncmp(text + n - 5, ".eval", 5) != 0 || strcmp(text + n, "()") != 0) continue;
        struct arena scratch = {0};
        const char *call = arena_printf(&scratch, "%.*s(", (int)n - 5, text);
        const char *p = strstr(code.list[at].code, call);
        const bool calls = p && (p == code.list[at].code || !site_is_name_character(p[-1]));
        arena_free(&scratch);
        if (calls) return true;
    }
    return false;
}

bool site_file_has(struct site_builder *b, const char *file, int line, const char *words)
{
    const struct run_frame frame = {.file = file, .line = line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    size_t at;
    if (!file || !site_open_source(b, &frame, &code, &at)) return false;
    return ANY_OF(l, code.list, code.n, strstr(l->code, words));
}

bool site_file_bounds(struct site_builder *b, const char *file, int line, const char *name)
{
    static const char *const sizes[] = {".shape[", ".size(", ") "};
    const struct run_frame frame = {.file = file, .line = line, .kind = GS_FRAME_PYTHON};
    const size_t n = strlen(name);
    struct site_code code;
    size_t at;
    if (!file || !site_open_source(b, &frame, &code, &at)) return false;
    for (size_t k = 0; k < code.n; k++) {
        const char *text = code.list[k].code, *p = strstr(text, name);
        if (!p) continue;
        const bool assigned = p == text && strncmp(p + n, " = ", 3) == 0;
        const bool asked = (site_code_begins(&code.list[k], "if") || site_code_begins(&code.list[k], "elif") ||
                            site_code_begins(&code.list[k], "while"));
        const char *value = assigned ? p + n + 3 : "";
        if (assigned && ((strncmp(value, name, n) == 0 && value[n] == '[') || site_is_cut(value))) return true;
        for (size_t i = 0; asked && i < COUNT_OF(sizes); i++)
            if (strncmp(p + n, sizes[i], strlen(sizes[i])) == 0) return true;
    }
    return false;
}

/* cat(x).mean() adds up what is in x. */
static bool is_added_up(const char *rest)
{
    return strncmp(rest, ").mean()", 8) == 0 || strncmp(rest, ").sum()", 7) == 0;
}

/* Does the statement store the result, or a name that refers to it, in a list that the file concatenates? */
static bool stores_for_cat(struct arena *arena, const struct site_code *code, size_t at, const struct site_names *names)
{
    struct site_store store;
    if (!site_store_of(arena, code->list[at].code, &store) || (names && !site_holds(store.value, names, false)))
        return false;
    const char *call = arena_printf(arena, "cat(%s", store.into);
    for (size_t i = 0; i < code->n; i++) {
        const char *found = strstr(code->list[i].code, call);
        if (found && !is_added_up(found + strlen(call))) return true;
    }
    return false;
}

bool site_concatenates_results(struct site_builder *b, uint32_t stack)
{
    const struct run_frame *frame;
    struct arena scratch = {0};
    bool found = false;
    for (; (frame = run_stack_frame(b->run, stack)) != NULL && !found; stack = run_stack_parent(b->run, stack)) {
        struct site_code code;
        struct site_assignment a;
        struct site_names made = {.n = 0};
        size_t at;
        if (!open_own_source(b, frame, &code, &at)) continue;
        found =
            stores_for_cat(&scratch, &code, at, NULL) ||
            (strstr(code.list[at].code, "cat([") && site_collects(strstr(code.list[at].code, "cat(["), NULL, false));
        if (!found && site_assignment_of(&scratch, code.list[at].code, &a))
            site_targets_of(&scratch, a.targets, &made, NULL);
        for (size_t i = at + 1; made.n && i < at + 8 && i < code.n && !found; i++)
            found = stores_for_cat(&scratch, &code, i, &made);
    }
    arena_free(&scratch);
    return found;
}

bool site_statement_bounds(struct site_builder *b, uint32_t stack)
{
    struct site_code code;
    size_t at;
    const struct run_frame *frame = site_open_innermost(b, stack, &code, &at);
    struct site_assignment a;
    struct site_names made = {.n = 0};
    struct arena scratch = {0};
    if (frame && site_assignment_of(&scratch, code.list[at].code, &a))
        site_targets_of(&scratch, a.targets, &made, NULL);
    const char *open = made.n && *a.value ? strrchr(a.value, '[') : NULL; /* cat([k, new], 1)[:, -n:] */
    bool bounds = open && open > a.value && open[-1] == ')' && strchr(open, ':') && strchr(open, '-');
    for (size_t i = 0; i < made.n; i++)
        bounds = bounds || site_file_bounds(b, frame->file, (int)frame->line, made.list[i]);
    arena_free(&scratch);
    return bounds;
}

/* Is the name used here other than by its size, by a condition or where it is made? */
static bool is_used_in(struct arena *arena, const struct site_statement *st, const char *name)
{
    const struct site_names names = {.list = {name}, .n = 1};
    const size_t n = strlen(name);
    struct site_assignment a;
    const char *code = site_assignment_of(arena, st->code, &a) ? a.value : st->code, *p = strstr(code, name);
    if (!p || site_code_begins(st, "if") || strncmp(code, "del ", 4) == 0 || strncmp(code, "print(", 6) == 0 ||
        (p - code >= 4 && strncmp(p - 4, "len(", 4) == 0) || strncmp(p + n, ".shape", 6) == 0)
        return false;
    return site_holds(code, &names, false);
}

bool site_is_read_beside(struct site_builder *b, const struct result_holder *holder)
{
    const struct run_frame frame = {.file = holder->file, .line = holder->line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    size_t at, around, loop;
    if (!holder->into || !site_open_source(b, &frame, &code, &at)) return false;
    loop = code.n;
    for (around = site_code_parent(&code, at); around < code.n; around = site_code_parent(&code, around)) {
        const struct site_statement *st = &code.list[around];
        if (site_code_begins(st, "def")) break;
        if (loop == code.n && (site_code_begins(st, "for") || site_code_begins(st, "while"))) loop = around;
    }
    const size_t from = loop < code.n ? loop : around < code.n ? around + 1 : code.n;
    struct arena scratch = {0};
    bool read = false;
    for (size_t i = from; i < code.n && i < site_code_end(&code, loop < code.n ? loop : around) && !read; i++)
        read = i != at && is_used_in(&scratch, &code.list[i], holder->into);
    arena_free(&scratch);
    return read;
}

static bool calls_without(const char *code, const char *function, const char *argument)
{
    for (const char *p = strstr(code, function); p; p = strstr(p + 1, function))
        if ((p == code || !site_is_name_character(p[-1])) && !strstr(p, argument)) return true;
    return false;
}

/* Each file of the program on the call path is known, and `is` holds for each of its statements. */
static bool source_is(struct site_builder *b, uint32_t stack, bool (*is)(const char *code, const void *of),
                      const void *of)
{
    bool known = false;
    RUN_EACH_FRAME (frame, b->run, stack) {
        struct site_code code;
        size_t at;
        if (frame->kind != GS_FRAME_PYTHON) continue;
        if (known && frame->file && strstr(frame->file, "/multiprocessing/"))
            return true; /* it began in a new process */
        if (site_is_library(frame)) continue;
        if (!site_open_source(b, frame, &code, &at)) return false;
        known = true;
        for (size_t k = 0; k < code.n; k++)
            if (!is(code.list[k].code, of)) return false;
    }
    return known;
}

struct words {
    const char *const *list;
    size_t n;
};

static bool lacks_words(const char *code, const void *of)
{
    const struct words *words = of;
    return !source_has_any(code, words->list, words->n);
}

bool site_source_lacks(struct site_builder *b, uint32_t stack, const char *const *words, size_t n)
{
    return source_is(b, stack, lacks_words, &(struct words){words, n});
}

/* torch.arange(n), of which n is a variable: neither a part of it nor repeated. */
static bool is_arange(const char *value)
{
    static const char *const same[] = {".to(", ".cuda(", ".long("};
    value += strncmp(value, "torch.", 6) == 0 ? 6 : 0;
    if (strncmp(value, "arange(", 7) != 0 || strchr("0123456789", value[7])) return false;
    const char *end = site_closing(value + 6);
    return *end && (!end[1] || ANY_OF(w, same, COUNT_OF(same), strncmp(end + 1, *w, strlen(*w)) == 0));
}

/* Is the target of a cross entropy arange()? Row i of a batch's similarities then belongs to sample i. */
static bool labels_are_rows(struct arena *arena, const struct site_code *code)
{
    static const char call[] = "cross_entropy(";
    struct site_names rows = {.n = 0};
    struct site_assignment a;
    for (size_t i = 0; i < code->n; i++) {
        const char *text = code->list[i].code, *loss = strstr(text, call);
        if (site_assignment_of(arena, text, &a) && is_arange(a.value)) site_targets_of(arena, a.targets, &rows, NULL);
        if (!loss) continue;
        const char *from = loss + sizeof call - 1, *end = site_closing(from - 1);
        const char *target = site_part_of(arena, arena_printf(arena, "%.*s", (int)(end - from), from), 1);
        if (is_arange(target) || site_names_has(&rows, target)) return true;
    }
    return false;
}

/* Does the statement call a loss of that name, whatever the settings? */
static bool calls_comparison(const struct site_code *code, size_t at)
{
    static const char *const losses[] = {"NTXent",   "NT_Xent", "ntxent",     "nt_xent",     "InfoNCE",
                                         "info_nce", "infonce", "SupConLoss", "supcon_loss", "BarlowTwinsLoss"};
    static const char *const others[] = {"def", "class", "from", "import", "if", "elif"};
    const char *text = code->list[at].code;
    bool calls = false;
    for (size_t i = 0; i < COUNT_OF(losses) && !calls; i++) {
        const char *p = strstr(text, losses[i]);
        while (p && site_is_name_character(*p)) p++;
        calls = p && *p == '(';
    }
    if (!calls || strstr(text, " if ") || ANY_OF(o, others, COUNT_OF(others), site_code_begins(&code->list[at], *o)))
        return false;
    for (size_t k = site_code_parent(code, at); k < code->n; k = site_code_parent(code, k))
        if (site_code_begins(&code->list[k], "if") || site_code_begins(&code->list[k], "elif") ||
            site_code_begins(&code->list[k], "else"))
            return false;
    return true;
}

bool site_compares_samples(struct site_builder *b, uint32_t stack)
{
    const struct run_frame *frame;
    struct arena scratch = {0};
    bool compares = false;
    for (; !compares && (frame = run_stack_frame(b->run, stack)) != NULL; stack = run_stack_parent(b->run, stack)) {
        struct site_code code;
        size_t at;
        if (!open_own_source(b, frame, &code, &at)) continue;
        compares = labels_are_rows(&scratch, &code);
        for (size_t i = 0; i < code.n && !compares; i++) compares = calls_comparison(&code, i);
    }
    arena_free(&scratch);
    return compares;
}

bool site_is_captured(struct site_builder *b, uint32_t stack)
{
    RUN_EACH_FRAME (frame, b->run, stack) {
        struct site_code code;
        size_t at;
        if (!open_own_source(b, frame, &code, &at)) continue;
        bool loop = false; /* one graph then holds what grows */
        for (size_t k = site_code_parent(&code, at); k < code.n; k = site_code_parent(&code, k)) {
            if (site_code_begins(&code.list[k], "with") && strstr(code.list[k].code, "cuda.graph(")) return !loop;
            loop = loop || site_code_begins(&code.list[k], "for") || site_code_begins(&code.list[k], "while");
        }
    }
    return false;
}

static bool ends_no_graph(const char *code, const void *none)
{
    return !strstr(code, "backward(") && !calls_without(code, "grad(", "create_graph");
}

bool site_source_ends_no_graph(struct site_builder *b, uint32_t stack)
{
    return source_is(b, stack, ends_no_graph, NULL);
}

/* x[here], range(here), torch.zeros(8, here), env.step(here): by the innermost brackets around it. */
static enum site_use use_in_brackets(const char *code, const char *here)
{
    static const char *const calls[] = {"range", "arange",  "zeros",  "ones",  "empty",     "expand",
                                        "view",  "reshape", "narrow", "split", "new_zeros", "new_empty"};
    const char *open = site_bracket_around(code, here), *name = open;
    while (name && name > code && site_is_name_character(name[-1])) name--;
    const size_t n = (size_t)(open - name);
    if (!open || (!n && (open == code || !strchr(")]", open[-1])))) return SITE_USE_UNKNOWN;
    if (*open == '[') return SITE_USE_SIZE;
    if (n == 4 && strncmp(name, "step", n) == 0) return SITE_USE_ACTION;
    for (size_t i = 0; n && *open == '(' && i < COUNT_OF(calls); i++)
        if (strlen(calls[i]) == n && strncmp(calls[i], name, n) == 0) return SITE_USE_SIZE;
    return SITE_USE_UNKNOWN;
}

/* The first mention of the name as a whole, at or after p. */
static const char *find_mention(const char *code, const char *p, const char *name)
{
    const size_t n = strlen(name);
    while (n && (p = strstr(p, name)) != NULL) {
        const char before = p > code ? p[-1] : ' ';
        if (!site_is_name_character(before) && before != '.' && !site_is_name_character(p[n])) return p;
        p += n;
    }
    return NULL;
}

static enum site_use use_at(const struct site_statement *st, const char *here)
{
    static const char *const headers[] = {"if", "elif", "while", "assert"};
    for (size_t i = 0; i < COUNT_OF(headers); i++)
        if (site_code_begins(st, headers[i])) return SITE_USE_BRANCH;
    return use_in_brackets(st->code, here);
}

static bool is_operator(char c)
{
    return c && strchr("+-*/", c);
}

/* Is what begins at `from` and ends before `to` an operand? Also n in max(n, 1), but not in another call or index. */
static bool is_operand(const char *code, const char *from, const char *to)
{
    const char *open = site_bracket_around(code, from), *name = open;
    while (name && name > code && (site_is_name_character(name[-1]) || strchr(".)]", name[-1]))) name--;
    if (open && open > name) {
        const bool most = open - name == 3 && (strncmp(name, "max", 3) == 0 || strncmp(name, "min", 3) == 0);
        if (*open != '(' || !most) return false;
        from = name;
        to = "";
    } else if (open && *open != '(') {
        return false;
    }
    while (from > code && from[-1] == ' ') from--;
    while (*to == ' ') to++;
    return is_operator(from > code ? from[-1] : 0) || (is_operator(*to) && to[1] != '=');
}

/* Does a later statement of the block call backward() with the name? */
static bool calls_backward_of(const struct site_code *code, size_t at, size_t end, const char *name)
{
    for (size_t i = at; i < end; i++)
        if (strstr(code->list[i].code, "backward(") && find_mention(code->list[i].code, code->list[i].code, name))
            return true;
    return false;
}

/* loss = total / n, and loss.backward() later: the number need not be read. */
static bool becomes_loss(struct site_builder *b, const struct site_code *code, size_t at, size_t end, const char *name)
{
    for (size_t i = at + 1; i < end; i++) {
        const char *text = code->list[i].code, *here = find_mention(text, text, name);
        const size_t n = site_name_length(text);
        if (!here || !n || strncmp(text + n, " = ", 3) != 0 || !is_operand(text + n + 3, here, here + strlen(name)))
            continue;
        if (calls_backward_of(code, i + 1, end, arena_printf(b->arena, "%.*s", (int)n, text))) return true;
    }
    return false;
}

/* Does it call Python's max() or min(), and nothing else that needs to know a tensor's value? */
static bool calls_extreme(const char *code)
{
    static const char *const choices[] = {" if ", " and ", " or ", " not ", "sorted(", "key="},
                             *calls[] = {"max", "min"};
    bool has = false;
    for (size_t i = 0; i < COUNT_OF(calls); i++)
        for (const char *p = code; (p = find_mention(code, p, calls[i])) != NULL; p++) has = has || p[3] == '(';
    return has && !source_has_any(code, choices, COUNT_OF(choices));
}

enum site_use site_number_use(struct site_builder *b, const char *file, int line)
{
    static const char *const reads[] = {".item(", "int(", "float("};
    const struct run_frame frame = {.file = file, .line = line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    struct site_assignment a;
    enum site_use use = SITE_USE_UNKNOWN;
    size_t at;
    if (!file || !site_open_source(b, &frame, &code, &at)) return use;
    const struct site_statement *st = &code.list[at];
    const char *here = NULL;
    for (size_t i = 0; i < COUNT_OF(reads) && !here; i++) here = strstr(st->code, reads[i]);
    use = use_at(st, here ? here : st->code); /* without: in a function that the statement calls */
    if (!use && !here && calls_extreme(st->code)) return SITE_USE_EXTREME;
    const size_t n = site_name_length(st->code);
    if (use || strncmp(st->code + n, " = ", 3) != 0 || !site_assignment_of(b->arena, st->code, &a)) return use;
    const char *name = arena_printf(b->arena, "%.*s", (int)n, st->code);
    const size_t block = site_code_parent(&code, at), end = block < code.n ? site_code_end(&code, block) : code.n;
    for (size_t i = at + 1; i < end && !use; i++) {
        const char *text = code.list[i].code;
        for (const char *p = text; !use && (p = find_mention(text, p, name)) != NULL; p++)
            use = use_at(&code.list[i], p);
        if (strncmp(text, name, n) == 0 && strncmp(text + n, " = ", 3) == 0) break; /* another value */
    }
    return use ? use : becomes_loss(b, &code, at, end, name) ? SITE_USE_OPERAND : SITE_USE_UNKNOWN;
}

/* Without native frames, the statement shows it. */
static bool names_entry(struct site_builder *b, uint32_t stack)
{
    static const char *const words[] = {".to(", ".cuda(", "device=", "rand", "zeros(", "ones(", "full(", "arange("};
    return ANY_OF(w, words, COUNT_OF(words), site_statement_has(b, stack, *w));
}

bool site_enters_device(struct site_builder *b, uint32_t stack)
{
    static const char *const operators[] = {"_to_copy",   "_ops::rand",   "_ops::zeros", "_ops::ones",
                                            "_ops::full", "_ops::arange", "_ops::normal"};
    const struct run_frame *frame = run_stack_frame(b->run, stack);
    if (!frame || frame->kind != GS_FRAME_NATIVE) return names_entry(b, stack);
    return ANY_OF(o, operators, COUNT_OF(operators), run_stack_calls(b->run, stack, *o));
}
