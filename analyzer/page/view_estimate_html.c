#include "analyzer/page/view_estimate_html.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/term.h"
#include "analyzer/json/json_estimate.h"
#include "analyzer/page/page_writer.h"

extern const char page_html_estimate_page[]; /* build/gen/estimate_page.html */

/* As text of HTML. */
static void put_estimate_title(const struct model *m, FILE *out)
{
    char clean[128];

    terminal_clean(clean, sizeof clean, *m->name ? m->name : "a model", true);
    fputs("gpuspy: what ", out);
    for (const char *p = clean; *p; p++) fputc(strchr("<>&\"'", *p) ? '?' : *p, out);
    fputs(" needs", out);
}

/* Nothing in a text can end the element: < occurs only in strings. */
static void put_estimate_data(const char *json, bool explain, FILE *out)
{
    fprintf(out, "<script type=\"application/json\" id=\"gpuspy-data\"%s>", explain ? " data-explain" : "");
    for (const char *p = json; *p; p++)
        if (strchr("<>&", *p))
            fprintf(out, "\\u%04x", (unsigned)*p);
        else
            fputc(*p, out);
    fputs("</script>\n", out);
}

bool page_estimate(const struct estimate_answer *a, bool explain, FILE *out)
{
    json_t *root = json_estimate(a, NULL);
    char *json = root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(12)) : NULL;
    const char *rest;

    json_decref(root);
    if (!json) return false;
    rest = page_put_up_to(page_html_estimate_page, "<!--gpuspy:title-->", out);
    put_estimate_title(a->plan.model, out);
    rest = page_put_up_to(rest, "<!--gpuspy:data-->\n", out);
    put_estimate_data(json, explain, out);
    fputs(rest, out);
    free(json);
    return true;
}
