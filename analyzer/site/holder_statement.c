/* What a statement assigns, stores and returns of the memory. */
#include "analyzer/base/each.h"
#include "analyzer/base/text.h"
#include "analyzer/site/holder.h"
#include "analyzer/site/holder_read.h"
#include "analyzer/site/source_context.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static bool is_list(const char *value)
{
    return *value == '[' || strncmp(value, "list(", 5) == 0;
}

/* table[key] = parts of a local list `parts`: what was stored in the list is held by the table. */
static void supersede_stores(struct site_search *s, size_t before, const char *value)
{
    struct site_candidates *found = &s->found;
    size_t n = 0;
    if (found->n != before + 1 || found->n > SITE_FOUND_MAX || s->module || !site_names_has(&s->owners, value) ||
        !site_is_made_in(s, value, s->from, s->to))
        return;
    struct site_candidate last = found->list[before];
    for (size_t i = 0; i < before; i++)
        if (found->list[i].frame == s->frame && found->list[i].into && strcmp(found->list[i].into, value) == 0)
            last.weak = found->list[i].weak;
        else
            found->list[n++] = found->list[i];
    found->list[n++] = last;
    found->n = n;
}

/* Does the constructor of the class store the value at that index of its arguments? Of a class without one (a
 * dataclass, a named tuple) or of another file: it may. */
static bool constructor_stores(struct site_search *s, const char *class, size_t index)
{
    struct site_search in = *s;
    size_t def;
    if (!site_find_method(&in, class, "__init__", &def)) return true;
    const char *code = in.code.list[def].code, *open = strchr(code, '(');
    const char *parameters = arena_printf(s->scratch, "%.*s", (int)(site_closing(open) - open - 1), open + 1);
    const char *name = site_part_of(s->scratch, parameters, index + 1);
    name = arena_printf(s->scratch, "%.*s", (int)site_name_length(name), name);
    for (size_t i = def + 1; i < site_code_end(&in.code, def); i++) {
        struct site_assignment a;
        const char *part = "";
        if (!site_assignment_of(s->scratch, in.code.list[i].code, &a) || strncmp(a.targets, "self.", 5) != 0) continue;
        for (size_t k = 0; k < SITE_NAMES && *(part = site_part_of(s->scratch, a.value, k)); k++)
            if (strcmp(part, name) == 0) return true;
    }
    return false;
}

/* node = Node(x, node), chain = (x, chain): each holds the one before. */
static bool is_linking(struct site_search *s, const char *value, const char *name)
{
    const size_t n = site_name_length(value);
    const char *dot = n ? memrchr(value, '.', n) : NULL, *last = dot ? dot + 1 : value, *open = value + n;
    const bool display = !n && strchr("([", *value), makes = n && isupper((unsigned char)*last) && *open == '(';
    const char *end = display || makes ? site_closing(open) : "", *part;
    if (!*end || end[1] || strstr(value, " for ")) return false;
    const char *parts = arena_printf(s->scratch, "%.*s", (int)(end - open - 1), open + 1);
    bool links = false;
    size_t k = 0;
    for (; *(part = site_part_of(s->scratch, parts, k)); k++) {
        const size_t keyword = site_name_length(part);
        const char *of = part[keyword] == '=' ? part + keyword + 1 : part;
        const char *class = arena_printf(s->scratch, "%.*s", (int)(value + n - last), last);
        links = links || (strcmp(of, name) == 0 && (display || of != part || constructor_stores(s, class, k)));
    }
    return links && k > 1;
}

/* {**log, step: loss}, [*losses, loss] */
static bool is_unpacking(const char *value, const char *name)
{
    const size_t stars = *value && strchr("[({", *value) ? strspn(value + 1, "*") : 0;
    return stars && strncmp(value + 1 + stars, name, strlen(name)) == 0 && value[1 + stars + strlen(name)] == ',';
}

/* sorted(best + [x]), state._replace(seen=state.seen + (x,)): of `best`, `state`. */
static bool is_extended(struct site_search *s, const char *value, const char *name)
{
    for (const char *plus = strstr(value, " + "); plus; plus = strstr(plus + 1, " + ")) {
        const char *part = plus + 3, *from = plus, *close = strchr("[(", *part) ? site_closing(part) : part;
        const char *within = close > part ? arena_printf(s->scratch, "%.*s", (int)(close - part - 1), part + 1) : "";
        const bool display = *part == '[' || strlen(site_part_of(s->scratch, within, 0)) < strlen(within);
        while (from > value && (site_is_name_character(from[-1]) || from[-1] == '.')) from--;
        const struct site_names self = {.list = {name}, .n = 1};
        if (close > part && display &&
            site_holds(arena_printf(s->scratch, "%.*s", (int)(plus - from), from), &self, false))
            return true;
    }
    return false;
}

/* total += loss, total = 0.9 * total + loss, losses += [loss], x = torch.cat([x, y]). */
static bool is_accumulation(struct site_search *s, const struct site_assignment *a, const char *name)
{
    const struct site_names self = {.list = {name}, .n = 1};
    const bool sums = s->graph && !site_is_parameter(s, name);
    if (site_is_cut(a->value) && !(s->graph && site_is_concatenation(a->value)))
        return false; /* a slice keeps the graph of all */
    if (a->augmented)
        return sums || *a->value == '[' || *a->value == '{' || site_is_tuple(a->value) ||
               site_is_given(s, name, is_list);
    const bool first = strncmp(a->value, name, strlen(name)) == 0 && site_is_given(s, name, is_list);
    const bool carries = sums && strncmp(name, "self.", 5) == 0 && strchr(a->value, ','); /* torch.lerp(self.x, y) */
    return site_holds(a->value, &self, false) &&
           (site_is_concatenation(a->value) || is_unpacking(a->value, name) || is_linking(s, a->value, name) ||
            is_extended(s, a->value, name) || (carries && site_holds(a->value, &self, true)) ||
            (strstr(a->value, " + ") && (first || (sums && site_holds(a->value, &self, true)))));
}

static void mark_views(struct site_search *s, size_t i, const char *value, size_t before)
{
    const bool view = s->found.n > before && site_is_view(s, i, value);
    for (size_t k = before; k < s->found.n && k < SITE_FOUND_MAX; k++) s->found.list[k].view = view;
}

/* node.hidden = x: node is an owner; so is the object that a constructor makes, of self.hidden = x. */
static void add_targets(struct site_search *s, const struct site_names *made)
{
    for (size_t i = 0; i < made->n; i++) {
        const size_t n = strcspn(made->list[i], ".");
        site_names_add(s->scratch, &s->names, made->list[i], strlen(made->list[i]));
        if (made->list[i][n] && (s->constructs || strncmp(made->list[i], "self.", 5) != 0))
            site_names_add(s->scratch, &s->owners, made->list[i], n);
    }
}

static void consider_accumulation(struct site_search *s, size_t i, const struct site_assignment *a, const char *name)
{
    const size_t before = s->found.n;
    site_consider_store(s, i, name, false);
    const bool read = s->at < s->code.n && s->at != i && site_is_passed_to_call(s->code.list[s->at].code, name);
    if (s->found.n > before && s->found.n <= SITE_FOUND_MAX && (read || site_is_passed_to_call(a->value, name)) &&
        !site_is_concatenation(a->value))
        s->found.list[before].carried = true;
    if (s->graph && s->found.n > before && s->found.n <= SITE_FOUND_MAX && site_is_cut(a->value))
        s->found.list[before].instead = "detach what it adds (`.detach()`): the slice is bounded, but its graph is not";
    if (!s->graph || s->found.n == before || s->found.n > SITE_FOUND_MAX || site_is_concatenation(a->value) ||
        strncmp(name, "self.", 5) != 0)
        return;
    s->found.list[before].carried = true;
    if (a->augmented || strstr(a->value, " + "))
        s->found.list[before].instead = "add it without its graph (`.detach()`, or in torch.no_grad())";
}

/* gather((x, y)): "x, y", because such a function returns one value for each; otherwise the text itself. */
static const char *mapped_values(struct site_search *s, const char *value)
{
    const char *open = value + site_name_length(value), *tuple = *open == '(' ? open + 1 : "";
    const char *end = *tuple == '(' && site_closes_at_end(open) ? site_closing(tuple) : "";
    return strcmp(end, "))") == 0 ? arena_printf(s->scratch, "%.*s", (int)(end - tuple - 1), tuple + 1) : value;
}

/* n, x = 1, layer(y): of as many targets as values, those whose value holds the memory. */
static void drop_others(struct site_search *s, size_t i, const char *value, struct site_names *made)
{
    const char *of[SITE_NAMES];
    value = mapped_values(s, value);
    size_t n = 0, kept = 0;
    while (n < SITE_NAMES && *(of[n] = site_part_of(s->scratch, value, n))) n++;
    for (size_t k = 0; n == made->n && k < n; k++)
        if (site_value_holds(s, i, of[k])) made->list[kept++] = made->list[k];
    made->n = kept ? kept : made->n;
}

/* totals[""] = totals.get("", 0) + loss: what is read is the element. */
static const char *with_element(struct site_search *s, const struct site_assignment *a)
{
    const char *get = arena_printf(s->scratch, "%.*s.get(", (int)strcspn(a->targets, "["), a->targets);
    const char *p = strstr(a->value, get), *close = p ? site_closing(p + strlen(get) - 1) : "";
    return *close ? arena_printf(s->scratch, "%.*s%s%s", (int)(p - a->value), a->value, a->targets, close + 1)
                  : a->value;
}

/* Of a returned tuple, the values that hold the memory. */
static uint64_t holding_parts(struct site_search *s, size_t i, const char *value)
{
    const char *parts = site_values_of(s, value), *part;
    uint64_t holding = 0;
    int n = 0;
    for (; n < SITE_NAMES && *(part = site_part_of(s->scratch, parts, (size_t)n)); n++)
        if (site_value_holds(s, i, part)) holding |= UINT64_C(1) << n;
    return n == 1 && i == s->at ? s->returned_parts : n > 1 && holding && !strchr(parts, '*') ? holding : SITE_ANY_PART;
}

/* model, score = train(k): of the function's values, only some hold the memory. */
static void keep_parts(const struct site_search *s, size_t i, const char *value, struct site_names *made)
{
    const size_t n = site_name_length(value), named = made->n;
    const char *callee = text_last_part(s->callee);
    const size_t length = strlen(callee);
    const bool called = i == s->at && length && n >= length && strncmp(value + n - length, callee, length) == 0 &&
                        value[n] == '(' && site_closes_at_end(value + n);
    if (!called || named < 2 || s->returned_parts >> named) return; /* SITE_ANY_PART, or other values than named */
    made->n = 0;
    for (size_t k = 0; k < named; k++)
        if (s->returned_parts >> k & 1) made->list[made->n++] = made->list[k];
}

/* Does the program append to the list as often as statement i runs: in the same loop, or in a function that it calls?
 */
static bool is_appended_each_time(struct site_search *s, size_t i, const char *last)
{
    const char *append = arena_printf(s->scratch, "%s.append(", last);
    const size_t loop = site_common_loop(s, i, i), to = site_code_end(&s->code, loop);
    for (size_t k = 0; k < s->code.n && s->budget-- > 0; k++) {
        const char *p = strstr(s->code.list[k].code, append);
        if (!p || (p > s->code.list[k].code && site_is_name_character(p[-1]))) continue;
        size_t def = k;
        while (def < s->code.n && !site_is_function(&s->code.list[def])) def = site_code_parent(&s->code, def);
        if (k >= s->from && k < s->to && (!s->module || def == s->code.n)) {
            if (site_common_loop(s, k, k) == loop) return true;
            continue;
        }
        const char *name = def < s->code.n ? strstr(s->code.list[def].code, "def ") : NULL;
        const int n = name ? (int)site_name_length(name + 4) : 0;
        const char *call = arena_printf(s->scratch, "%.*s(", n, n ? name + 4 : "");
        for (size_t c = loop; n && loop < s->code.n && c < to; c++)
            if (strstr(s->code.list[c].code, call)) return true;
    }
    return false;
}

/* history = history[-4:], history[-1].extra = None */
static bool is_newest_dropped(struct site_search *s, size_t i, const char *list, const char *targets)
{
    const char *cut = arena_printf(s->scratch, "%s = %s[", list, list);
    const size_t n = strlen(targets);
    for (size_t k = 0; k < s->code.n && s->budget-- > 0; k++) {
        const char *code = s->code.list[k].code;
        const bool del = strncmp(code, "del ", 4) == 0 && strncmp(code + 4, list, strlen(list)) == 0;
        const bool none = k != i && strncmp(code, targets, n) == 0 && strncmp(code + n, " = None", 7) == 0;
        if (del || none || strncmp(code, cut, strlen(cut)) == 0) return true;
    }
    return false;
}

/* history[-1].output = x, history[-1][""] = x: the newest item of a list that grows each time. */
static void consider_newest(struct site_search *s, size_t i, const char *targets)
{
    const size_t n = site_name_length(targets), before = s->found.n;
    const char *list = arena_printf(s->scratch, "%.*s", (int)n, targets), *last = text_last_part(list);
    if (!n || strncmp(targets + n, "[-1]", 4) != 0 || !targets[n + 4] || !strchr(".[", targets[n + 4])) return;
    if (is_appended_each_time(s, i, last) && !is_newest_dropped(s, i, list, targets))
        site_consider_store(s, i, list, false);
    if (s->found.n > before && s->found.n <= SITE_FOUND_MAX && s->found.list[before].weak) s->found.n = before;
}

static void read_assignment(struct site_search *s, size_t i, const struct site_assignment *a)
{
    struct site_names made = {.n = 0}, indexed = {.n = 0};
    if (!site_value_holds(s, i, a->value)) return;
    site_targets_of(s->scratch, a->targets, &made, &indexed);
    if (!indexed.n && !strchr(a->targets, '*')) keep_parts(s, i, a->value, &made);
    const size_t before = s->found.n;
    for (size_t k = 0; k < indexed.n; k++) site_consider_store(s, i, indexed.list[k], false);
    if (!made.n && !indexed.n) consider_newest(s, i, a->targets);
    mark_views(s, i, a->value, before);
    supersede_stores(s, before, a->value);
    for (size_t k = 0; k < made.n; k++)
        if (is_accumulation(s, a, made.list[k]) || site_is_enlarged(s, i, a->value, made.list[k]))
            consider_accumulation(s, i, a, made.list[k]);
    const char *index = strchr(a->targets, '['), *end = index ? site_closing(index) : ""; /* logs["loss"] += loss */
    if (!made.n && !indexed.n && *end && !end[1]) {
        struct site_assignment of = *a;
        of.value = with_element(s, a);
        if (is_accumulation(s, &of, a->targets)) consider_accumulation(s, i, &of, a->targets);
    }
    const bool one = !*site_part_of(s->scratch, a->value, 1);
    for (size_t k = 0; k < made.n; k++)
        if (site_is_view(s, i, one ? a->value : site_part_of(s->scratch, a->value, k)))
            site_names_add(s->scratch, &s->views, made.list[k], strlen(made.list[k]));
    drop_others(s, i, a->value, &made);
    add_targets(s, &made);
}

/* Does the nested function refer to the memory? */
static bool is_closure_over(struct site_search *s, const char *name, size_t n)
{
    for (size_t k = s->from; k < s->to; k++) {
        const char *def = s->code.list[k].code;
        if (strncmp(def, "def ", 4) != 0 || strncmp(def + 4, name, n) != 0 || def[4 + n] != '(') continue;
        for (size_t in = k + 1; in < site_code_end(&s->code, k); in++)
            if (site_holds(s->code.list[in].code, &s->names, s->graph)) return true;
    }
    return false;
}

const char site_hook_advice[] = "call `remove()` on the handle that it returns, after the pass";

/* module.register_forward_hook(save), (partial(save, x)), (lambda g: g * x), whose handle nothing stores: the module
 * keeps what the function refers to. */
static void read_registration(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code, *hook = strstr(code, "_hook("), *function = hook ? hook + 6 : "";
    const char *end = hook ? site_closing(hook + 5) : "";
    const size_t n = site_name_length(function), before = s->found.n;
    if (*end != ')' || end[1] || !strstr(code, ".register_")) return;
    const char *made = arena_printf(s->scratch, "%.*s", (int)(end - function), function);
    const bool bound = strncmp(text_last_part(arena_printf(s->scratch, "%.*s", (int)n, made)), "partial", 8) == 0 ||
                       strncmp(made, "lambda", 6) == 0;
    if (made[n] ? bound && site_holds(made, &s->names, s->graph) : is_closure_over(s, made, n))
        site_consider_store(s, i, code, false);
    for (size_t k = before; k < s->found.n && k < SITE_FOUND_MAX; k++) s->found.list[k].instead = site_hook_advice;
}

/* y, pull = vjp(f, x): is the value a function that refers to the graph? */
static bool is_pullback(struct site_search *s, const char *value)
{
    for (size_t i = s->from; i < s->to && !value[site_name_length(value)] && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!site_assignment_of(s->scratch, s->code.list[i].code, &a) ||
            (!strstr(a.value, "vjp(") && !strstr(a.value, "linearize(")))
            continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (made.n > 1 && site_names_has(&made, value) && strcmp(made.list[0], value) != 0) return true;
    }
    return false;
}

/* make_log().append(x), log.append(x) of a parameter: this file or an imported one has a class with such a method, and
 * this one makes no list of that name. */
static bool may_be_own(struct site_search *s, const char *into, const char *method)
{
    struct site_files files;
    const char *def = arena_printf(s->scratch, "def %s(self", method);
    const char *made = arena_printf(s->scratch, "%s = ", text_last_part(into));
    for (size_t k = 0; k < s->code.n; k++) {
        const char *at = strstr(s->code.list[k].code, made);
        if (at && strchr("[{", at[strlen(made)])) return false;
    }
    if (ANY_OF(l, s->code.list, s->code.n, strncmp(l->code, def, strlen(def)) == 0)) return true;
    site_find_files(s, s->stack, &files);
    site_find_imported(s, &files);
    for (size_t f = 0; f < files.n; f++)
        if (ANY_OF(l, files.list[f].code.list, files.list[f].code.n, strncmp(l->code, def, strlen(def)) == 0))
            return true;
    return false;
}

/* log.add(x) of a class of the program: what it stores shows in the method. */
static bool is_own_method(struct site_search *s, const char *code, const char *into)
{
    struct site_search in = *s;
    size_t def;
    const char *method = code + strlen(into);
    if (strncmp(code, into, strlen(into)) != 0 || *method++ != '.') return false;
    const char *function = s->frame->function, *dot = function ? strrchr(function, '.') : NULL;
    const char *class = dot && strcmp(into, "self") == 0
                            ? arena_printf(s->scratch, "%.*s", (int)(dot - function), function) /* Node.expand */
                            : site_find_class_of(s, into);
    method = arena_printf(s->scratch, "%.*s", (int)site_name_length(method), method);
    static const char *const containers[] = {"list", "set", "dict", "deque", "defaultdict", "OrderedDict"};
    if (*class && (site_find_own_method(&in, class, method, &def) ||
                   site_find_own_method(&in, text_last_part(class), method, &def)))
        return true;
    return !TEXT_IS_ONE_OF(text_last_part(class), containers) && may_be_own(s, into, method);
}

void site_read_statement(struct site_search *s, size_t i)
{
    const struct site_statement *st = &s->code.list[i];
    struct site_assignment a;
    struct site_store store;
    if (s->budget-- <= 0 || site_is_function(st) || site_code_begins(st, "class")) return;
    if (site_binding_of(s->scratch, &s->code.list[i], &a)) {
        read_assignment(s, i, &a);
    } else if (site_store_of(s->scratch, st->code, &store)) {
        store.weak = store.weak && !site_is_given(s, store.into, site_is_dictionary); /* results.update(new) */
        if (site_value_holds(s, i, store.value) &&
            (!store.weak || (s->graph && strcmp(store.into, "self") != 0))) { /* a number's tensor adds nothing */
            const size_t before = s->found.n;
            const bool own = is_own_method(s, st->code, store.into);
            site_consider_store(s, i, store.into, store.weak || own);
            if (s->found.n > before && s->found.n <= SITE_FOUND_MAX) s->found.list[before].own = own;
            mark_views(s, i, store.value, before);
            if (s->found.n > before && s->found.n <= SITE_FOUND_MAX && is_pullback(s, store.value))
                s->found.list[before].instead = "store what the function returns, not the function itself, which "
                                                "refers to everything that its forward pass saved";
            supersede_stores(s, before, store.value);
            if (!strchr(store.into, '.'))
                site_names_add(s->scratch, &s->owners, store.into, site_name_length(store.into));
        } else {
            site_read_library(s, i);
        }
    } else if (site_code_begins(st, "return") || site_code_begins(st, "yield")) {
        const char *value = strchr(st->code, ' ');
        const bool holds = value && site_value_holds(s, i, value + 1);
        s->returned_view = holds ? site_is_view(s, i, value + 1) : s->returned_view;
        s->returns_parts |= holds ? holding_parts(s, i, value + 1) : 0;
        s->returned = s->returned || holds;
    } else {
        read_registration(s, i);
        site_read_library(s, i);
    }
}

/* mean([m(x) for m in members]), or a loop over the list whose body calls each: the program needs them together. Of
 * members[-4:] it needs a few. */
static bool calls_each(const struct site_code *code, const char *list)
{
    const size_t n = strlen(list);
    for (size_t i = 0; i < code->n; i++) {
        const char *in = strstr(code->list[i].code, " in "), *each = in, *over = in ? in + 4 : NULL;
        if (!in || site_iterated_length(&over) != n || strncmp(over, list, n) != 0 || over[n] == '[') continue;
        while (each > code->list[i].code && each[-1] != ' ') each--;
        struct arena scratch = {0};
        const char *call = arena_printf(&scratch, "%.*s(", (int)(in - each), each);
        bool found = in > each;
        const size_t end = site_code_end(code, i);
        size_t k = i;
        while (found && k < end && !strstr(code->list[k].code, call)) k++;
        arena_free(&scratch);
        if (found && k < end) return true;
    }
    return false;
}

bool site_is_ensemble(struct site_builder *b, const struct result_holder *holder)
{
    const struct run_frame frame = {.file = holder->file, .line = holder->line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    struct site_store store;
    struct site_assignment a;
    struct site_names made = {.n = 0};
    size_t at;
    if (!site_open_source(b, &frame, &code, &at)) return false;
    if (site_store_of(b->arena, code.list[at].code, &store)) return calls_each(&code, store.into);
    if (!site_assignment_of(b->arena, code.list[at].code, &a)) return false;
    site_targets_of(b->arena, a.targets, &made,
                    &made); /* members[name] = net, members = [train(n) for n in range(9)] */
    return made.n == 1 && calls_each(&code, made.list[0]);
}

bool site_is_in_module(struct site_builder *b, const struct result_holder *holder)
{
    const struct run_frame frame = {.file = holder->file, .line = holder->line, .kind = GS_FRAME_PYTHON};
    struct site_code code;
    size_t at;
    if (!site_open_source(b, &frame, &code, &at)) return false;
    do {
        at = site_code_parent(&code, at);
    } while (at < code.n && !site_code_begins(&code.list[at], "class"));
    for (size_t i = at; i < code.n && i < site_code_end(&code, at); i++)
        if (strncmp(code.list[i].code, "def forward(", 12) == 0) return true;
    return false;
}
