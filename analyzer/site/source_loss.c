/* Follows what a container keeps through the assignments, loops, stores and calls of the program to backward().
 *
 * Attributes and functions are followed by their last name in all files that are read, local variables inside of their
 * function. A name that means two things leads to "yes" or "unknown" rather than to "no". */
#include "analyzer/site/source_loss.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/site/python_names.h"
#include "analyzer/site/source_context.h"

enum { FILES = 12, ROUNDS = 6 };

struct flow {
    struct arena *arena;
    struct site_code files[FILES];
    size_t files_n;
    struct map defined;                      /* the hash of each function's name → 1 */
    struct site_names attributes, functions; /* that refer to what is kept; that return it */
    struct site_names parts;                 /* of the values that they return, those that are it: "f 1", "f *" */
    struct site_names shared;                /* those of attributes that are variables of several functions */
    struct site_names receivers;             /* functions that get it as an argument: "f 1", "f items=", "f *" any */
    struct site_names stores;                /* functions that store it into an argument: "f 1 items" */
    const char *local, *owner;               /* a variable of one function; NULL: the container is none */
    bool of_self;                            /* it is an attribute of self */
    bool reaches, unknown;                   /* backward(); code that is not known */
    /* of the function that is read */
    const char *function; /* NULL: none */
    const struct site_statement *from, *to;
    struct site_names names;
};

static void add_name(struct flow *f, struct site_names *to, const char *name)
{
    if (*name && !site_names_has(to, name)) site_names_add(f->arena, to, name, strlen(name));
}

static void share_name(struct flow *f, const char *name)
{
    add_name(f, &f->attributes, text_last_part(name));
    if (!strchr(name, '.')) add_name(f, &f->shared, name);
}

/* A target: a variable of the function, or an attribute, which others see, too. */
static void keep_name(struct flow *f, const char *name)
{
    add_name(f, &f->names, name);
    if (strchr(name, '.') || !f->function) share_name(f, name);
}

/* Is it a variable of the function that is read, and not one of the file or of a function around it? */
static bool is_bound(struct flow *f, const char *name)
{
    bool bound = false;
    for (const struct site_statement *st = f->from; st < f->to; st++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!strstr(st->code, name)) continue;
        if (site_code_begins(st, "global") || site_code_begins(st, "nonlocal")) return false;
        if (bound || !site_binding_of(f->arena, st, &a)) continue;
        site_targets_of(f->arena, a.targets, &made, NULL);
        bound = site_names_has(&made, name);
    }
    return bound;
}

/* What something is stored into: if it is not the function's own variable, others have it, too. */
static void keep_container(struct flow *f, const char *name)
{
    keep_name(f, name);
    if (!f->function || !*name || strchr(name, '.') || strcmp(name, "self") == 0 || strcmp(name, "cls") == 0) return;
    const int index = site_parameter_of(f->arena, f->from->code, name);
    if (index >= 0)
        add_name(f, &f->stores, arena_printf(f->arena, "%s %d %s", f->function, index, name));
    else if (!is_bound(f, name))
        share_name(f, name);
}

/* Of `def f(self, x):` the name f; NULL: another statement. */
static const char *defined_name(struct flow *f, const struct site_statement *st)
{
    const char *def = strncmp(st->code, "async ", 6) == 0 ? st->code + 6 : st->code;
    return strncmp(def, "def ", 4) == 0 ? arena_printf(f->arena, "%.*s", (int)site_name_length(def + 4), def + 4)
                                        : NULL;
}

static bool is_defined(const struct flow *f, const char *name)
{
    return map_get(&f->defined, map_hash_text(0, name)) != MAP_NEW;
}

static bool has_any_name(const char *code, const struct site_names *names)
{
    return ANY_OF(l, names->list, names->n, strstr(code, *l));
}

/* A variable or a parameter of the function that is read, which only has the name of an attribute. */
static bool is_own(struct flow *f, const char *name)
{
    return f->function && !site_names_has(&f->shared, name) &&
           (site_parameter_of(f->arena, f->from->code, name) >= 0 || is_bound(f, name));
}

/* self.buffer.values[:n] mentions the attribute values; replay.values() of a function that returns it, too. */
static void find_mentions(struct flow *f, const char *code)
{
    if (!has_any_name(code, &f->attributes) && !has_any_name(code, &f->functions)) return; /* most statements */
    for (const char *p = code; *p;) {
        const size_t n = site_name_length(p);
        for (size_t from = 0, to = 0; to <= n && n; to++) {
            if (to < n && p[to] != '.') continue;
            const char *part = arena_printf(f->arena, "%.*s", (int)(to - from), p + from);
            const bool called = to == n && p[n] == '(';
            if ((!called && site_names_has(&f->attributes, part) && !(!from && is_own(f, part))) ||
                (to == n && site_names_has(&f->functions, part)))
                add_name(f, &f->names, arena_printf(f->arena, "%.*s", (int)to, p));
            from = to + 1;
        }
        p += n ? n : 1;
    }
}

/* print(values), writer.add_scalar("x", mean): reads the values and keeps no graph. */
static bool only_shows(const char *function)
{
    static const char *const words[] = {"print", "info",       "debug", "warning", "log",         "write",
                                        "save",  "add_scalar", "dump",  "tqdm",    "set_postfix", "add_histogram"};
    return TEXT_IS_ONE_OF(text_last_part(function), words);
}

/* Which arguments of the call are what is kept. After *args, their places are unknown. */
static void add_receivers(struct flow *f, const char *called, const char *arguments)
{
    const char *part;
    bool placed = true, found = false;
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(f->arena, arguments, k)); k++) {
        const size_t n = site_name_length(part);
        placed = placed && *part != '*';
        if (!site_holds(part, &f->names, true)) continue;
        found = true;
        add_name(f, &f->receivers,
                 n && part[n] == '=' && part[n + 1] != '=' ? arena_printf(f->arena, "%s %.*s=", called, (int)n, part)
                 : placed                                  ? arena_printf(f->arena, "%s %zu", called, k)
                                                           : arena_printf(f->arena, "%s *", called));
    }
    if (!found) add_name(f, &f->receivers, arena_printf(f->arena, "%s *", called));
}

/* The parameters of the function that is read that get what is kept. */
static void take_received(struct flow *f)
{
    const char *open = strchr(f->from->code, '('), *close = open ? site_closing(open) : "";
    if (!*close) return;
    const char *all = arena_printf(f->arena, "%.*s", (int)(close - open - 1), open + 1);
    const size_t self = strncmp(all, "self", 4) == 0 || strncmp(all, "cls", 3) == 0, length = strlen(f->function);
    for (size_t i = 0; i < f->receivers.n; i++) {
        const char *to = f->receivers.list[i];
        if (strncmp(to, f->function, length) != 0 || to[length] != ' ') continue;
        to += length + 1;
        const char *name = strchr("0123456789", *to) ? site_part_of(f->arena, all, (size_t)atoi(to) + self) : to;
        const size_t n = site_name_length(name);
        if (n)
            add_name(f, &f->names, arena_printf(f->arena, "%.*s", (int)n, name));
        else
            site_targets_of(f->arena, all, &f->names, NULL);
    }
}

/* f(kept): its parameters refer to it if the function is known. `statement`: nothing else uses the result. */
static void pass_on(struct flow *f, const char *code, bool statement)
{
    for (const char *p = code; *p;) {
        const size_t n = site_name_length(p);
        const char *end = n && p[n] == '(' ? site_closing(p + n) : p;
        if (*end == ')' && n) {
            const char *arguments = arena_printf(f->arena, "%.*s", (int)(end - p - (long)n - 1), p + n + 1);
            const char *called = text_last_part(arena_printf(f->arena, "%.*s", (int)n, p));
            if (site_holds(arguments, &f->names, true)) {
                const bool known = is_defined(f, called);
                if (known) add_receivers(f, called, arguments);
                f->unknown = f->unknown || (!known && statement && p == code && !only_shows(called));
            }
        }
        p += n ? n : 1;
    }
}

/* total(self), where the code of total() is not known: it may read what the object keeps. */
static bool passes_owner(struct flow *f, const char *code)
{
    static const char *const harmless[] = {"super", "isinstance", "type", "id", "__init__", "hasattr", "getattr"};
    for (const char *p = strstr(code, "self") ? code : ""; *p;) {
        const size_t n = site_name_length(p);
        const char *called = n && p[n] == '(' ? text_last_part(arena_printf(f->arena, "%.*s", (int)n, p)) : "";
        const char *end = *called ? site_closing(p + n) : p, *part;
        const char *arguments = *end ? arena_printf(f->arena, "%.*s", (int)(end - p - (long)n - 1), p + n + 1) : "";
        for (size_t k = 0; *called && k < SITE_NAMES && *(part = site_part_of(f->arena, arguments, k)); k++)
            if (strcmp(part, "self") == 0 && !TEXT_IS_ONE_OF(called, harmless) && !only_shows(called) &&
                !is_defined(f, called))
                return true;
        p += n ? n : 1;
    }
    return false;
}

/* f(items, x): f stores into its first parameter. */
static void take_stored(struct flow *f, const char *code)
{
    for (const char *p = f->stores.n ? code : ""; *p;) {
        const size_t n = site_name_length(p);
        const char *called = n && p[n] == '(' ? text_last_part(arena_printf(f->arena, "%.*s", (int)n, p)) : "";
        const size_t length = strlen(called);
        for (size_t i = 0; i < f->stores.n && length; i++) {
            const char *store = f->stores.list[i];
            if (strncmp(store, called, length) != 0 || store[length] != ' ') continue;
            const char *parameter = strchr(store + length + 1, ' ') + 1;
            const char *argument = site_argument_at(f->arena, p, atoi(store + length + 1), parameter);
            keep_container(f, site_base_name(f->arena, argument));
        }
        p += n ? n : 1;
    }
}

/* for x, value in zip(xs, values): the target that each of the lists gives. */
static bool read_zip(struct flow *f, const struct site_assignment *a)
{
    const char *close = strncmp(a->value, "zip(", 4) == 0 ? site_closing(a->value + 3) : "", *part;
    struct site_names made = {.n = 0};
    if (*close != ')' || strncmp(close + 1, ":", strcspn(close + 1, " ")) != 0) return false;
    const char *lists = arena_printf(f->arena, "%.*s", (int)(close - a->value - 4), a->value + 4);
    site_targets_of(f->arena, a->targets, &made, NULL);
    if (strchr(a->targets, '(') || *site_part_of(f->arena, lists, made.n)) return false;
    for (size_t k = 0; k < made.n && *(part = site_part_of(f->arena, lists, k)); k++)
        if (site_holds(part, &f->names, true)) keep_name(f, made.list[k]);
    return true;
}

/* return images, labels */
static void add_returned_parts(struct flow *f, const char *value)
{
    const char *part;
    add_name(f, &f->functions, f->function);
    if (!*site_part_of(f->arena, value, 1)) add_name(f, &f->parts, arena_printf(f->arena, "%s *", f->function));
    for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(f->arena, value, k)); k++)
        if (site_holds(part, &f->names, true)) add_name(f, &f->parts, arena_printf(f->arena, "%s %zu", f->function, k));
}

/* images, labels = bank.get(): of the targets, those that get what is kept. */
static void drop_other_parts(struct flow *f, const char *value, struct site_names *made)
{
    const size_t n = site_name_length(value);
    const char *called = text_last_part(arena_printf(f->arena, "%.*s", (int)n, value));
    size_t kept = 0;
    if (made->n < 2 || value[n] != '(' || !site_closes_at_end(value + n) || !site_names_has(&f->functions, called) ||
        site_names_has(&f->parts, arena_printf(f->arena, "%s *", called)))
        return;
    for (size_t k = 0; k < made->n; k++)
        if (site_names_has(&f->parts, arena_printf(f->arena, "%s %zu", called, k))) made->list[kept++] = made->list[k];
    made->n = kept;
}

/* grad(loss, x), torch.autograd.grad(loss, x); not zero_grad() */
static bool calls_grad(const char *code)
{
    for (const char *p = strstr(code, "grad("); p; p = strstr(p + 1, "grad("))
        if (p == code || !site_is_name_character(p[-1])) return true;
    return false;
}

/* Where the value begins whose attribute or method follows at `end`: of `x + f(y)[0].detach()`, at f. */
static const char *value_before(const char *code, const char *end)
{
    const char *p = end;
    for (int depth = 0; p > code; p--) {
        depth += strchr(")]}", p[-1]) ? 1 : strchr("([{", p[-1]) ? -1 : 0;
        if (depth < 0 || (!depth && !strchr("([{.", p[-1]) && !site_is_name_character(p[-1]))) break;
    }
    return p;
}

/* Does it call a function whose source is read? That function may compute the loss itself. */
static bool calls_defined(struct flow *f, const char *from, const char *to)
{
    for (const char *p = from; p < to;) {
        const size_t n = site_name_length(p);
        if (n && p[n] == '(' && is_defined(f, text_last_part(arena_printf(f->arena, "%.*s", (int)n, p)))) return true;
        p += n ? n : 1;
    }
    return false;
}

/* Without the values that reach no loss: old of `new - old.detach()`, values of `(rewards - values).detach()`. */
static const char *with_graphs_only(struct flow *f, const char *code)
{
    static const char *const ends[] = {".detach()", ".item()", ".tolist()"};
    char *text = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (const char *p = strstr(code, ends[i]); p; p = strstr(p + 1, ends[i])) {
            const char *from = value_before(code, p);
            if (calls_defined(f, from, p)) continue;
            text = text ? text : arena_printf(f->arena, "%s", code);
            memset(text + (from - code), '0', (size_t)(p - from));
        }
    return text ? text : code;
}

/* buffer.add(states, scores): a set's add() takes one value, so this is a method that may keep each of them apart. */
static bool adds_several(struct arena *arena, const char *code, const struct site_store *store)
{
    return strncmp(code + strlen(store->into), ".add(", 5) == 0 && *site_part_of(arena, store->value, 1);
}

static bool is_branch(const struct site_statement *st)
{
    static const char *const words[] = {"if", "elif", "else", "for", "while", "try", "except", "match", "case"};
    return ANY_OF(w, words, COUNT_OF(words), site_code_begins(st, *w));
}

/* loss = criterion(model(x)) in the block of loss.backward(), directly or in a `with`: the name has another value there
 * than what is kept. */
static bool is_bound_before(struct flow *f, const struct site_statement *of, const char *name)
{
    bool within = false; /* in a block that ends between the two */
    for (const struct site_statement *st = of; st-- > f->from && st->indent >= of->indent;) {
        struct site_assignment a;
        struct site_names made = {.n = 0}, indexed = {.n = 0};
        struct site_store store;
        const bool header = st->indent == of->indent;
        if (within && header && site_code_begins(st, "with")) return true;
        within = within && !header && !is_branch(st);
        if (!strstr(st->code, name)) continue;
        if (site_store_of(f->arena, st->code, &store) && strcmp(site_base_name(f->arena, store.into), name) == 0)
            return false;
        if (!site_assignment_of(f->arena, st->code, &a)) continue;
        site_targets_of(f->arena, a.targets, &made, &indexed);
        if (site_names_has(&indexed, name)) return false;
        if (!site_names_has(&made, name)) continue;
        if (site_holds(a.value, &f->names, true)) return false;
        if (header && !a.augmented) return true;
        within = within || !a.augmented;
    }
    return false;
}

/* Does a backward pass start from what is kept, and not from another value of the same name? */
static bool passes_back(struct flow *f, const struct site_statement *st, const char *code)
{
    struct site_names names = {.n = 0};
    if (!strstr(code, "backward(") && !calls_grad(code)) return false;
    for (size_t i = 0; i < f->names.n; i++) {
        const char *name = f->names.list[i];
        if (strchr(name, '.') || !strstr(code, name) || !is_bound_before(f, st, name))
            site_names_add(f->arena, &names, name, strlen(name));
    }
    return site_holds(code, &names, true);
}

static void read_statement(struct flow *f, const struct site_statement *of)
{
    static const char *const steps[] = {"training_step", "closure", "compute_loss"};
    static const char *const passes[] = {"forward", "__call__", "__getitem__", "__iter__"};
    struct site_assignment a;
    struct site_store store;
    struct site_names made = {.n = 0};
    const char *code = with_graphs_only(f, of->code);
    const struct site_statement as_read = {of->line, of->last, of->indent, code}, *st = &as_read;
    find_mentions(f, code);
    take_stored(f, code);
    f->unknown = f->unknown || (f->of_self && passes_owner(f, code));
    if (!site_holds(code, &f->names, true)) { /* print(update(kept).item()): update() may compute the loss */
        if (has_any_name(code, &f->names) && !defined_name(f, st)) pass_on(f, code, false);
        return;
    }
    const bool returns = site_code_begins(st, "return") || site_code_begins(st, "yield");
    f->reaches = f->reaches || passes_back(f, of, code);
    if (returns && f->function) {
        const char *value = code + strcspn(code, " ");
        if (!site_holds(value, &f->names, true)) return;
        add_returned_parts(f, value + (*value == ' '));
        f->reaches = f->reaches || TEXT_IS_ONE_OF(f->function, steps);
        f->unknown = f->unknown || TEXT_IS_ONE_OF(f->function, passes); /* its calls do not name it */
    } else if (site_binding_of(f->arena, st, &a)) {
        if (read_zip(f, &a)) return;
        if (site_holds(a.value, &f->names, true)) site_targets_of(f->arena, a.targets, &made, &made);
        drop_other_parts(f, a.value, &made);
        for (size_t i = 0; i < made.n; i++) keep_name(f, made.list[i]);
        pass_on(f, a.value, false);
    } else if (site_store_of(f->arena, code, &store) && !adds_several(f->arena, code, &store)) {
        if (site_holds(store.value, &f->names, true)) keep_container(f, site_base_name(f->arena, store.into));
        pass_on(f, store.value, false);
    } else if (!defined_name(f, st)) {
        pass_on(f, code, true);
    }
}

/* The statements of one function, or those of a file outside of functions. */
static void read_flow_range(struct flow *f, const struct site_code *code, size_t from, size_t to, const char *function)
{
    f->names.n = 0;
    f->function = function;
    f->from = code->list + from;
    f->to = code->list + to;
    if (function && f->local && strcmp(function, f->owner) == 0) keep_container(f, f->local);
    if (function) take_received(f);
    for (size_t round = 0; round < 2; round++) /* the next iteration of a loop reads what this one stores */
        for (size_t i = from + (function != NULL); i < to; i++) {
            if (!function && defined_name(f, &code->list[i])) {
                i = site_code_end(code, i) - 1;
                continue;
            }
            read_statement(f, &code->list[i]);
        }
}

static void read_files(struct flow *f)
{
    EACH_IN (code, f->files) {
        read_flow_range(f, code, 0, code->n, NULL);
        for (size_t i = 0; i < code->n; i++) {
            const char *name = defined_name(f, &code->list[i]);
            if (name) read_flow_range(f, code, i, site_code_end(code, i), name);
        }
    }
}

static void add_flow_file(struct site_builder *b, struct flow *f, const struct run_frame *frame)
{
    struct site_code code;
    size_t at;
    bool has = f->files_n == FILES || frame->kind != GS_FRAME_PYTHON || site_is_library(frame) ||
               !site_open_source(b, frame, &code, &at);
    for (size_t i = 0; i < f->files_n && !has; i++) has = f->files[i].list == code.list;
    if (has) return;
    f->files[f->files_n++] = code;
    for (size_t i = 0; i < code.n; i++) {
        const char *name = defined_name(f, &code.list[i]);
        if (name) *map_at(&f->defined, map_hash_text(0, name)) = 1;
    }
}

/* The variable of `features = [model(x) for x in loader]`; NULL: it is not one, or nothing is collected. */
static const char *collecting_variable(struct arena *arena, const char *code)
{
    struct site_assignment a;
    struct site_names made = {.n = 0};
    if (!site_collects(code, NULL, false) || !site_assignment_of(arena, code, &a)) return NULL;
    site_targets_of(arena, a.targets, &made, NULL);
    return made.n == 1 ? made.list[0] : NULL;
}

static size_t found_names(const struct flow *f)
{
    return f->attributes.n + f->functions.n + f->parts.n + f->receivers.n + f->stores.n;
}

enum site_loss site_holder_loss(struct site_builder *b, uint32_t stack, const struct result_holder *holder)
{
    struct arena scratch = {0};
    struct flow f = {.arena = &scratch};
    const struct run_frame keeps = {.file = holder->file, .line = holder->line, .kind = GS_FRAME_PYTHON}, *frame;
    struct site_code code;
    size_t at;
    struct site_store store;
    const bool several = site_store_of(&scratch, holder->text, &store) && adds_several(&scratch, holder->text, &store);
    const char *into = several                                   ? NULL /* which of them is unknown */
                       : holder->into                            ? holder->into
                       : site_open_source(b, &keeps, &code, &at) ? collecting_variable(&scratch, code.list[at].code)
                                                                 : NULL;
    if (!into || !*into) {
        arena_free(&scratch);
        return SITE_LOSS_UNKNOWN;
    }
    add_flow_file(b, &f, &keeps);
    for (; (frame = run_stack_frame(b->run, stack)) != NULL; stack = run_stack_parent(b->run, stack))
        add_flow_file(b, &f, frame);
    const char *owner = text_last_part(holder->function);
    if (*owner && *owner != '<' && !strchr(into, '.')) {
        f.local = into;
        f.owner = owner;
    } else {
        share_name(&f, into);
        f.of_self = strncmp(into, "self.", 5) == 0;
    }
    for (size_t before = 0, after = 1, round = 0; before != after && round < ROUNDS && !f.reaches; round++) {
        before = found_names(&f);
        read_files(&f);
        after = found_names(&f);
    }
    const bool full = f.attributes.n == SITE_NAMES || f.functions.n == SITE_NAMES || f.receivers.n == SITE_NAMES ||
                      f.parts.n == SITE_NAMES || f.stores.n == SITE_NAMES;
    const bool known = f.files_n > 0 && !f.unknown && !full;
    map_free(&f.defined);
    arena_free(&scratch);
    return f.reaches ? SITE_LOSS_YES : known ? SITE_LOSS_NO : SITE_LOSS_UNKNOWN;
}
