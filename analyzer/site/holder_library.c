/* Calls of a library's functions that keep what they are given, by name or because their object is a library's. */
#include "analyzer/base/text.h"
#include "analyzer/site/holder_read.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* object.method(…, x) keeps x if a statement of the file has one of the words, and the object is `object`, or what such
 * a call makes. A QueueHandler stores only the text. */
static const struct keeper {
    const char *methods, *object, *words[4], *why, *instead;
} keepers[] = {
    {" callback push_async_callback ",
     "ExitStack(",
     {"ExitStack("},
     "an ExitStack keeps the arguments of its callbacks until it is closed",
     "pass a number (.item()) or a copy on the host (.detach().cpu()) to the callback, or close the stack after each "
     "step"},
    {" register ",
     "atexit",
     {"import atexit"},
     "atexit keeps the arguments until the program ends",
     "pass a number (.item()) or a copy on the host (.detach().cpu()) instead"},
    {" debug info warning error critical exception log ",
     "getLogger(",
     {"MemoryHandler(", "BufferingHandler(", ".append(record)", "assertLogs("},
     "a handler of the file keeps log records, and each refers to its arguments",
     "log a number (.item()) or text (an f-string) instead of the tensor"},
};

static bool file_has(struct site_search *s, const struct keeper *keeper)
{
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++)
        for (size_t k = 0; k < sizeof keeper->words / sizeof *keeper->words && keeper->words[k]; k++)
            if (strstr(s->code.list[i].code, keeper->words[k])) return true;
    return false;
}

/* Is the object made by that call, as in `with ExitStack() as stack` and `self.stack = ExitStack()`? */
static bool is_made_by(struct site_search *s, const char *object, const char *call)
{
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        struct site_assignment a;
        struct site_names made = {.n = 0};
        if (!strstr(s->code.list[i].code, call) || !site_binding_of(s->scratch, &s->code.list[i], &a)) continue;
        site_targets_of(s->scratch, a.targets, &made, NULL);
        if (site_names_has(&made, object)) return true;
    }
    return false;
}

/* A logger of another module has a name that begins so. */
static bool is_object_of(struct site_search *s, const char *object, const char *maker)
{
    return strcmp(object, maker) == 0 || is_made_by(s, object, maker) ||
           (strcmp(maker, "getLogger(") == 0 && strncasecmp(text_last_part(object), "log", 3) == 0);
}

static bool consider_keeper(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code;
    const size_t n = site_name_length(code);
    const char *dot = n ? memrchr(code, '.', n) : NULL, *end = dot && code[n] == '(' ? site_closing(code + n) : "";
    if (*end != ')' || end[1]) return false;
    const char *method = arena_printf(s->scratch, " %.*s ", (int)(code + n - dot - 1), dot + 1);
    const char *object = arena_printf(s->scratch, "%.*s", (int)(dot - code), code);
    const char *arguments = arena_printf(s->scratch, "%.*s", (int)(end - code - (long)n - 1), code + n + 1);
    for (size_t k = 0; k < sizeof keepers / sizeof *keepers; k++) {
        const struct keeper *keeper = &keepers[k];
        if (!strstr(keeper->methods, method) || !file_has(s, keeper) || !is_object_of(s, object, keeper->object) ||
            !site_value_holds(s, i, arguments))
            continue;
        const size_t loop = site_common_loop(s, s->at, i);
        if (loop < s->code.n && site_is_made_in(s, object, loop, site_code_end(&s->code, loop))) return true;
        site_add_candidate(
            &s->found,
            (struct site_candidate){
                .frame = s->frame, .code = s->code, .at = i, .why = keeper->why, .instead = keeper->instead});
        return true;
    }
    return false;
}

/* Methods of libraries that store nothing of what they are given; many make text or a number of it. */
static const char keep_nothing[] = " backward step copy_ record_stream load_state_dict write print debug info warning "
                                   "warn error critical exception set_postfix set_postfix_str set_description "
                                   "set_description_str add_scalar add_scalars ";

/* metric.update(x), wandb.log({"": x}) of what a library made, as a whole statement: it may store what it is given. */
static void consider_object(struct site_search *s, size_t i)
{
    const char *code = s->code.list[i].code;
    const size_t n = site_name_length(code), none = s->code.n, loop = site_common_loop(s, s->at, i);
    const char *dot = n ? memrchr(code, '.', n) : NULL, *end = dot && code[n] == '(' ? site_closing(code + n) : "";
    if (*end != ')' || end[1] || loop == none) return;
    const char *method = arena_printf(s->scratch, "%.*s", (int)(code + n - dot - 1), dot + 1);
    const char *object = arena_printf(s->scratch, "%.*s", (int)(dot - code), code);
    if (strstr(keep_nothing, arena_printf(s->scratch, " %s ", method))) return;
    const char *class = site_find_class_of(s, object), *last = strrchr(class, '.');
    last = last ? last + 1 : class;
    if (!*last || site_is_made_in(s, object, loop, site_code_end(&s->code, loop))) return;
    for (size_t k = 0; k < none && s->budget-- > 0; k++) { /* of the program: its methods are read instead */
        const char *other = s->code.list[k].code;
        const size_t word = strncmp(other, "class ", 6) == 0 ? 6 : strncmp(other, "def ", 4) == 0 ? 4 : 0;
        if (word && strlen(last) == site_name_length(other + word) && strncmp(other + word, last, strlen(last)) == 0)
            return;
    }
    if (site_value_holds(s, i, arena_printf(s->scratch, "%.*s", (int)(end - code - (long)n - 1), code + n + 1)))
        site_add_candidate(&s->given_away, (struct site_candidate){.frame = s->frame,
                                                                   .code = s->code,
                                                                   .at = i,
                                                                   .why = "the only statement that passes the memory "
                                                                          "to an object of a library"});
}

void site_read_library(struct site_search *s, size_t i)
{
    if (!consider_keeper(s, i)) consider_object(s, i);
}

/* The digits of the name in `hist[-5:]` and `hist[-1]` at p, which is after the minus sign; 0: it is another index. */
static int latest_read(const char *p)
{
    const size_t digits = strspn(p, "0123456789");
    return !digits || digits > 2 ? 0 : p[digits] == ']' || (p[digits] == ':' && p[digits + 1] == ']') ? atoi(p) : 0;
}

const char *site_latest_advice(struct site_search *s, size_t store, const char *into)
{
    const size_t n = strlen(into);
    int most = 0;
    for (size_t i = 0; i < s->code.n && s->budget-- > 0; i++) {
        const char *code = s->code.list[i].code;
        for (const char *p = i == store ? NULL : strstr(code, into); p; p = strstr(p + n, into)) {
            if ((p > code && (site_is_name_character(p[-1]) || p[-1] == '.')) || site_is_name_character(p[n])) continue;
            if (p == code && strncmp(p + n, " = ", 3) == 0) continue; /* where it is made */
            if (p - code >= 4 && strncmp(p - 4, "len(", 4) == 0) continue;
            const int reads = strncmp(p + n, "[-", 2) == 0 ? latest_read(p + n + 2) : 0;
            if (!reads) return NULL;
            most = reads > most ? reads : most;
        }
    }
    return most ? arena_printf(s->b->arena,
                               "keep only the last %d, which are all that the file reads of it (del %s[:-%d])", most,
                               into, most)
                : NULL;
}
