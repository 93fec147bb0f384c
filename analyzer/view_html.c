#include "analyzer/view_html.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/page_report.h"
#include "analyzer/page_stacks.h"

enum { FORMAT = 1 };

/* The page but for its title and its data: see analyzer/web/assemble.sh. */
extern const char gs_page_html[], gs_page_html_end[];

struct gs_page {
    struct gs_run *run;
};

struct gs_page *gs_page_new(struct gs_run *run, struct gs_options *options)
{
    struct gs_page *page = gs_realloc(NULL, 1, sizeof *page);
    *page = (struct gs_page){.run = run};
    (void)options;
    return page;
}

void gs_page_free(struct gs_page *page)
{
    free(page);
}

/* --- the data ----------------------------------------------------------------------------------- */

static void put_categories(struct gs_page_writer *w)
{
    gs_put_open(w, "categories", '[');
    for (unsigned i = 0; i < GS_CATEGORIES_N; i++) {
        gs_put_text(w, NULL, gs_category_word((enum gs_category)i));
    }
    gs_put_close(w, ']');
}

static void put_report(const struct gs_report *report, struct gs_page_writer *w)
{
    json_t *json = gs_view_json_build(report);
    gs_page_report_put(json, w);
    json_decref(json);
}

static bool put_data(struct gs_page *page, const struct gs_report *report, const char *source, FILE *out)
{
    struct gs_page_writer w = {.out = out};
    struct gs_page_stacks stacks;
    gs_page_stacks_start(&stacks, page->run);
    fputs("<script type=\"application/json\" id=\"gpuspy-data\">", out);
    gs_put_open(&w, NULL, '{');
    gs_put_int(&w, "format", FORMAT);
    gs_put_text(&w, "gpuspy", GPUSPY_VERSION);
    gs_put_text(&w, "source", source);
    put_categories(&w);
    put_report(report, &w);
    gs_put_open(&w, "series", '[');
    gs_put_close(&w, ']');
    gs_put_open(&w, "events", '[');
    gs_put_close(&w, ']');
    gs_put_open(&w, "steps", '[');
    gs_put_close(&w, ']');
    gs_put_open(&w, "maps", '[');
    gs_put_close(&w, ']');
    gs_put_key(&w, "marks");
    fputs("{\"name\":\"\",\"start\":\"\",\"length\":\"\",\"process\":\"\",\"thread\":\"\"}", out);
    gs_page_stacks_put(&stacks, &w);
    gs_put_open(&w, "resolution", '{');
    gs_put_text(&w, "text", "");
    gs_put_int(&w, "texts_cut", (int64_t)w.cut);
    gs_put_close(&w, '}');
    gs_put_close(&w, '}');
    fputs("</script>\n", out);
    gs_page_stacks_free(&stacks);
    return true;
}

/* --- the page ----------------------------------------------------------------------------------- */

/* As HTML's text. */
static void put_title(const char *text, FILE *out)
{
    fputs("gpuspy: ", out);
    for (size_t i = 0; text[i] && i < 200; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c >= 0x7f || strchr("<>&\"'", c)) {
            fputc('?', out);
        } else {
            fputc(c, out);
        }
    }
}

static const char *put_up_to(const char *from, const char *mark, FILE *out)
{
    const char *at = strstr(from, mark);
    fwrite(from, 1, (size_t)(at - from), out);
    return at + strlen(mark);
}

bool gs_page_write(struct gs_page *page, const struct gs_report *report, const char *source, FILE *out,
                   char *error, size_t error_size)
{
    const char *name = strrchr(source, '/'), *rest;
    name = name && name[1] ? name + 1 : source;
    (void)error;
    (void)error_size;
    rest = put_up_to(gs_page_html, "<!--gpuspy:title-->", out);
    put_title(name, out);
    rest = put_up_to(rest, "<!--gpuspy:data-->\n", out);
    bool ok = put_data(page, report, name, out);
    fwrite(rest, 1, strlen(rest), out);
    return ok;
}
