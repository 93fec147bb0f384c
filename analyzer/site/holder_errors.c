/* Exceptions that the program keeps. */
#include "analyzer/site/holder_read.h"

#include <string.h>
#include "analyzer/base/each.h"

/* "%s" % error, "{}".format(error), error.args, error.__traceback__.tb_lineno: not the exception. */
static bool stores_text(const char *code)
{
    static const char *const texts[] = {" % ", ".format(", ".args", ".tb_lineno"};
    return ANY_OF(t, texts, COUNT_OF(texts), strstr(code, *t));
}

/* failure = error: the variable refers to the last exception only, so it keeps one pass. */
static void read_last_error(struct site_search *s, size_t i)
{
    struct site_assignment a;
    if (!s->last_error || !site_assignment_of(s->scratch, s->code.list[i].code, &a) || a.augmented) return;
    if (site_names_has(&s->names, a.value) || strcmp(a.value, "sys.exc_info()") == 0)
        site_add_candidate(&s->found, (struct site_candidate){.frame = s->frame, .code = s->code, .at = i});
}

void site_read_handlers(struct site_search *s)
{
    for (size_t t = site_code_parent(&s->code, s->at); t < s->code.n && t + 1 > s->from;
         t = site_code_parent(&s->code, t)) {
        const int indent = s->code.list[t].indent;
        bool handler = site_code_begins(&s->code.list[t], "try");
        for (size_t i = site_code_end(&s->code, t); handler && i < s->to && s->code.list[i].indent >= indent; i++) {
            const struct site_statement *st = &s->code.list[i];
            if (st->indent > indent || !site_code_begins(st, "except")) {
                handler = st->indent > indent;
                continue;
            }
            const char *as = strstr(st->code, " as ");
            struct site_search in = *s;
            in.found.n = 0;
            in.names.n = in.objects.n = in.owners.n = 0;
            site_names_add(s->scratch, &in.names, as ? as + 4 : "", as ? site_name_length(as + 4) : 0);
            site_names_add(s->scratch, &in.names, "sys.exc_info", strlen("sys.exc_info"));
            for (size_t k = i + 1; k < site_code_end(&s->code, i); k++)
                if (!stores_text(s->code.list[k].code)) site_read_statement(&in, k);
            for (size_t k = i + 1; k < site_code_end(&s->code, i) && !in.found.n; k++) read_last_error(&in, k);
            for (size_t k = 0; k < in.found.n && k < SITE_FOUND_MAX; k++) {
                in.found.list[k].why =
                    "a kept exception keeps its traceback, and with it the variables of the frames in it";
                in.found.list[k].instead =
                    "keep only its text (`str(error)`, `traceback.format_exc()`), or `error.with_traceback(None)`";
                site_add_candidate(&s->kept_errors, in.found.list[k]);
            }
        }
    }
}
