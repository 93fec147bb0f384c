#include "analyzer/page/view_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <jansson.h>
#include "analyzer/base/arena.h"
#include "analyzer/page/page_calls.h"
#include "analyzer/page/page_events.h"
#include "analyzer/page/page_map.h"
#include "analyzer/page/page_series.h"
#include "analyzer/page/page_stacks.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/json/view_json.h"
#include "analyzer/page/page_writer.h"
#include "analyzer/base/text.h"
#include "analyzer/base/texts.h"

/* The report's JSON: repeated parts (frames, sites, call paths) are written once. */
struct shared {
    struct texts texts;
    struct map number_of; /* values that lists have in common, by address */
};

static void put_shared_value(struct shared *s, struct page_writer *w, const char *key, json_t *value);

/* A frame, a site, or a list of frames. */
static bool is_shared_value(const char *key, const json_t *value)
{
    if (json_is_object(value)) return json_object_get(value, "function") && json_object_get(value, "line");
    return json_array_size(value) && key && (!strcmp(key, "frames") || !strcmp(key, "stack"));
}

static void put_members(struct shared *s, struct page_writer *w, const char *key, json_t *value)
{
    if (json_is_object(value)) {
        const char *name;
        json_t *member;
        page_put_open(w, key, '{');
        json_object_foreach(value, name, member)
        {
            put_shared_value(s, w, name, member);
        }
        page_put_close(w, '}');
    } else {
        page_put_open(w, key, '[');
        for (size_t i = 0; i < json_array_size(value); i++) put_shared_value(s, w, NULL, json_array_get(value, i));
        page_put_close(w, ']');
    }
}

/* Its text, put once among all texts, and counted once. */
static uint32_t number_shared(struct shared *s, struct page_writer *w, json_t *value)
{
    const struct page_writer before = *w;
    w->follows = false;
    put_members(s, w, NULL, value);
    const size_t known = s->texts.n;
    const uint32_t number = texts_number(&s->texts, w->kept + before.kept_n, w->kept_n - before.kept_n);
    w->kept_n = before.kept_n;
    w->bytes = before.bytes;
    w->follows = before.follows;
    if (s->texts.n == known) {
        w->text_bytes = before.text_bytes;
        w->cut = before.cut;
    }
    return number;
}

static void put_shared(struct shared *s, struct page_writer *w, const char *key, json_t *value)
{
    uint32_t number = map_get(&s->number_of, (uintptr_t)value);
    if (number == MAP_NEW) *map_at(&s->number_of, (uintptr_t)value) = number = number_shared(s, w, value);
    page_put_open(w, key, '{');
    page_put_int(w, "$", number);
    page_put_close(w, '}');
}

static void put_shared_value(struct shared *s, struct page_writer *w, const char *key, json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
    case JSON_ARRAY:
        if (is_shared_value(key, value))
            put_shared(s, w, key, value);
        else
            put_members(s, w, key, value);
        break;
    case JSON_STRING: page_put_text(w, key, json_string_value(value)); break;
    case JSON_INTEGER: page_put_int(w, key, json_integer_value(value)); break;
    case JSON_REAL: page_put_real(w, key, json_real_value(value)); break;
    case JSON_TRUE:
    case JSON_FALSE: page_put_bool(w, key, json_is_true(value)); break;
    default: page_put_text(w, key, NULL);
    }
}

static void render_report(json_t *report, struct page_writer *w)
{
    struct shared s = {0};
    put_shared_value(&s, w, "report", report);
    page_put_open(w, "shared", '[');
    for (size_t i = 0; i < s.texts.n; i++) {
        page_put_key(w, NULL);
        page_put_bytes(w, s.texts.list[i], strlen(s.texts.list[i]));
    }
    page_put_close(w, ']');
    texts_free(&s.texts);
    map_free(&s.number_of);
}

enum {
    ROOM = 5 << 19, /* bytes, of a page of four times that at most */
    MOST = 800,     /* entries of a list that has to be cut */
    LEAST = 6,      /* below it, texts are cut */
    TEXT_LEAST = 16,
};

/* One entry per process or device, or ordered: nothing can be left out. */
static bool is_whole(const char *key)
{
    static const char *const keys[] = {"frames", "stack",    "processes", "devices", "ranks",         "peak",
                                       "memory", "timeline", "allocator", "samples", "fragmentation", "waterfall"};
    return !key || TEXT_IS_ONE_OF(key, keys);
}

/* Every n-th of them, and the last. */
static void thin_points(json_t *points, size_t most)
{
    size_t n = json_array_size(points), stride = n / most + 1, kept = 0;
    for (size_t i = 0; i < n; i++)
        if (i % stride == 0 || i + 1 == n) json_array_set(points, kept++, json_array_get(points, i));
    while (json_array_size(points) > kept) json_array_remove(points, json_array_size(points) - 1);
}

static void shorten_lists(const char *key, json_t *value, size_t most)
{
    if (json_is_object(value)) {
        const char *name;
        json_t *member;
        json_object_foreach(value, name, member)
        {
            shorten_lists(name, member, most);
        }
    } else if (json_is_array(value) && key && strcmp(key, "points") == 0) {
        thin_points(value, most);
    } else if (json_is_array(value)) {
        while (!is_whole(key) && json_array_size(value) > most) json_array_remove(value, json_array_size(value) - 1);
        for (size_t i = 0; i < json_array_size(value); i++) shorten_lists(NULL, json_array_get(value, i), most);
    }
}

/* Another attempt if the last result was too large; texts have at most `most` bytes. */
static void render_again(json_t *report, const struct page_writer *before, size_t most, struct page_writer *w)
{
    free(w->kept);
    *w = *before;
    w->text_most = most;
    render_report(report, w);
}

/* Changes `report`. Returns to how many entries its lists were cut, 0 not at all. */
static size_t page_report_put(json_t *report, struct page_writer *w)
{
    size_t most = MOST, cut = 0;
    FILE *out = w->out;
    w->out = NULL;
    const struct page_writer before = *w;
    render_report(report, w);
    for (; w->kept_n > ROOM && most >= LEAST; most /= 2) {
        shorten_lists(NULL, report, cut = most);
        render_again(report, &before, before.text_most, w);
    }
    for (most = PAGE_TEXT / 4; w->kept_n > ROOM && most >= TEXT_LEAST; most /= 2)
        render_again(report, &before, most, w);
    fwrite(w->kept, 1, w->kept_n, out);
    free(w->kept);
    w->kept = NULL;
    w->kept_n = w->kept_cap = 0;
    w->out = out;
    return cut;
}

enum { FORMAT = 1 };

/* The page without its title and its data: see analyzer/web/assemble.sh. */
extern const char page_html_page[], page_html_page_end[];

struct page {
    struct run *run;
    struct result_watch watch;
    struct page_series *serieses;
    struct page_calls *calls;
    const struct whatif_scenario *whatif; /* NULL none */
    const struct whatif_proof *proof;
};

struct left_out {
    struct page_resolution series;
    uint64_t marks;
    size_t places, lists; /* lists: the length to which the report's lists were cut; 0 not cut */
};

struct page *page_new(struct run *run, struct run_options *options)
{
    struct page *page =
        ARENA_NEW(struct page, .run = run, .serieses = page_series_new(run), .calls = page_calls_new(run));
    page->watch = (struct result_watch){
        .observer = page_series_observer(page->serieses), .call = page_calls_add, .self = page->calls};
    options->watch = &page->watch;
    if (!options->top) { /* each process has its own list */
        size_t n;
        run_processes(run, &n);
        options->top = n <= 2 ? 200 : n <= 8 ? 100 : n <= 32 ? 50 : 20;
    }
    return page;
}

void page_add_whatif(struct page *page, const struct whatif_scenario *whatif, const struct whatif_proof *proof)
{
    page->whatif = whatif;
    page->proof = proof;
}

void page_free(struct page *page)
{
    if (page) {
        page_series_free(page->serieses);
        page_calls_free(page->calls);
        free(page);
    }
}

static void put_categories(struct page_writer *w)
{
    page_put_open(w, "categories", '[');
    for (unsigned i = 0; i < RESULT_CATEGORIES_N; i++)
        page_put_text(w, NULL, result_category_word((enum result_category)i));
    page_put_close(w, ']');
}

static void put_causes(struct page_writer *w)
{
    page_put_open(w, "causes", '{');
    for (unsigned i = 0; i < RESULT_CAUSES_N; i++)
        page_put_text(w, result_cause_word((enum result_cause)i), result_cause_title((enum result_cause)i));
    page_put_close(w, '}');
}

/* The labels of the figures that led to verdicts, by key. */
static void put_evidence(const struct result_report *report, struct page_writer *w)
{
    json_t *labels = json_object();
    const char *key;
    json_t *label;
    EACH_IN (o, report->ooms)
        EACH_IN (e, o->evidence) json_object_set_new(labels, e->key, json_string(e->what));
    page_put_open(w, "evidence", '{');
    json_object_foreach(labels, key, label) page_put_text(w, key, json_string_value(label));
    page_put_close(w, '}');
    json_decref(labels);
}

static size_t put_report(const struct result_report *report, struct page_writer *w)
{
    json_t *json = json_report_build(report);
    size_t cut = page_report_put(json, w);
    json_decref(json);
    return cut;
}

/* "10,000,000" */
static const char *group_digits(char *out, size_t size, uint64_t n)
{
    char digits[24];
    size_t at = 0, length = (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    for (size_t i = 0; i < length && at + 2 < size; i++) {
        if (i && (length - i) % 3 == 0) out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = 0;
    return out;
}

/* One sentence about left-out items, if there are any: `one` for one, else `before`, the number and `more`. */
static void put_left_out(FILE *f, uint64_t n, const char *one, const char *before, const char *more)
{
    char number[32];
    if (n == 1)
        fprintf(f, " %s", one);
    else if (n)
        fprintf(f, " %s%s%s", before, group_digits(number, sizeof number, n), more);
}

static void put_moments(FILE *f, const struct page_resolution *r)
{
    char number[32];
    fputs(group_digits(number, sizeof number, r->events), f);
    fputs(r->events == 1 ? " allocation" : " allocations and frees", f);
    if (r->events == 1) {
        fputc('.', f);
    } else if (r->all) {
        fputs(", each drawn as a separate moment.", f);
    } else {
        fprintf(f,
                ", drawn as %s moments in the longest series: each shows the maximum around it, so peaks "
                "are exact; the moments are closer together near the peak and near failures.",
                group_digits(number, sizeof number, r->buckets));
    }
}

static char *resolution_words(const struct left_out *l, const struct page_stacks *stacks, uint64_t cut)
{
    const struct page_resolution *r = &l->series;
    char *text = NULL, bytes[UNITS_TEXT], held[128];
    size_t n = 0;
    FILE *f = arena_stream(&text, &n);
    put_moments(f, r);
    units_format_bytes(bytes, (uint64_t)r->by_line_bytes);
    snprintf(held, sizeof held,
             " call paths that held no more than %s at any of these moments are merged, by line of code.", bytes);
    put_left_out(f, r->by_line, "One small call path is counted with its line of code.", "", held);
    units_format_bytes(bytes, (uint64_t)r->merged_bytes);
    snprintf(held, sizeof held,
             " call paths that held no more than %s at any of these moments are merged, by category.", bytes);
    put_left_out(f, r->merged, "One small call path is counted only by its category.", "", held);
    if (r->singles_left_out)
        fputs(" Single allocations of smaller call paths are shown only at the peak and at failures.", f);
    put_left_out(f, stacks->shortened, "The native frames of one smaller call path are left out.",
                 "The native frames of ", " smaller call paths are left out.");
    put_left_out(f, stacks->innermost, "One smaller call path shows only its innermost call.", "",
                 " smaller call paths show only their innermost calls.");
    put_left_out(f, l->places, "The waits and copies of the line with the least time are drawn without its name.",
                 "The waits and copies of the ", " lines with the least time are drawn together.");
    put_left_out(f, l->marks, "One repeated mark is not drawn.", "", " repeated marks are not drawn.");
    put_left_out(f, l->lists, "The report’s lists are cut to one entry each.", "The report’s lists are cut to ",
                 " entries each.");
    put_left_out(f, cut, "One long text is cut.", "", " long texts are cut.");
    fclose(f);
    return text;
}

static void put_resolution(const struct left_out *l, const struct page_stacks *stacks, struct page_writer *w)
{
    const struct page_resolution *r = &l->series;
    const uint64_t cut = w->cut;
    char *text = resolution_words(l, stacks, cut);
    w->text_bytes = w->text_most = 0; /* always complete, however short the others are */
    page_put_open(w, "resolution", '{');
    page_put_text(w, "text", text);
    page_put_int(w, "events", (int64_t)r->events);
    page_put_int(w, "buckets", (int64_t)r->buckets);
    page_put_bool(w, "all_events", r->all);
    page_put_int(w, "lines", (int64_t)r->lines);
    page_put_int(w, "merged_by_line", (int64_t)r->by_line);
    page_put_int(w, "merged_lines", (int64_t)r->merged);
    page_put_int(w, "merged_bytes", r->merged_bytes);
    page_put_int(w, "texts_cut", (int64_t)cut);
    page_put_close(w, '}');
    free(text);
}

/* The replayed what-if, compared with the recording. */
static void put_whatif(const struct page *page, struct page_writer *w)
{
    const struct whatif_scenario *s = page->whatif;
    if (!s || !s->curve) return;
    const struct whatif_outcome *o = &s->outcome, *recorded = &page->proof->recorded;
    page_put_open(w, "whatif", '{');
    page_put_text(w, "name", s->name);
    page_put_bool(w, "exact", page->proof->exact);
    page_put_bool(w, "fits", o->fits);
    page_put_bool(w, "request_fits", o->request_fits || o->doubts & WHATIF_HANDLED);
    page_put_int(w, "process", (int64_t)o->process);
    page_put_int(w, "device", o->device);
    page_put_real(w, "oom_s", o->fits ? (double)NAN : (double)o->oom.time_ns / 1e9);
    page_put_int(w, "capacity_bytes", o->capacity_bytes);
    page_put_int(w, "peak_reserved_bytes", o->peak_reserved_bytes);
    page_put_int(w, "recorded_reserved_bytes", recorded->peak_reserved_bytes);
    page_put_bool(w, "recorded_fits", recorded->fits);
    page_put_open(w, "doubts", '[');
    for (size_t i = 0; i < WHATIF_DOUBTS; i++)
        if (o->doubts >> i & 1) page_put_text(w, NULL, whatif_doubt_texts[i]);
    page_put_close(w, ']');
    page_put_real(w, "end_s", (double)s->curve->end_ns / 1e9);
    page_put_open(w, "reserved", '[');
    for (size_t i = 0; i < WHATIF_CURVE; i++) page_put_int(w, NULL, s->curve->reserved[i]);
    page_put_close(w, ']');
    page_put_close(w, '}');
}

static bool put_page_data(struct page *page, const struct result_report *report, struct page_maps *maps,
                          struct page_stacks *stacks, const char *source, FILE *out, char *error, size_t error_size)
{
    struct page_writer w = {.out = out, .bytes = (size_t)(page_html_page_end - page_html_page)};
    struct left_out left = {0};
    fputs("<script type=\"application/json\" id=\"gpuspy-data\">", out);
    page_put_open(&w, NULL, '{');
    page_put_int(&w, "format", FORMAT);
    page_put_text(&w, "gpuspy", GPUSPY_VERSION);
    page_put_text(&w, "source", source);
    put_categories(&w);
    put_causes(&w);
    put_evidence(report, &w);
    left.lists = put_report(report, &w);
    page_series_put(page->serieses, stacks, &w, &left.series);
    left.places = page_calls_put(page->calls, stacks, &w);
    page_events_put(report, &w);
    put_whatif(page, &w);
    bool ok = page_marks_put(page->run, stacks, &w, &left.marks, error, error_size);
    page_maps_put(maps, stacks, &w);
    page_stacks_put(stacks, &w);
    put_resolution(&left, stacks, &w);
    page_put_close(&w, '}');
    fputs("</script>\n", out);
    return ok;
}

static void put_page_title(const char *text, FILE *out)
{
    char clean[256];
    terminal_clean(clean, sizeof clean, text, true);
    fputs("gpuspy: ", out);
    for (const char *p = clean; *p; p++) fputc(strchr("<>&\"'", *p) ? '?' : *p, out);
}

bool page_write(struct page *page, const struct result_report *report, const char *source, FILE *out, char *error,
                size_t error_size)
{
    const char *name = strrchr(source, '/'), *rest;
    name = name && name[1] ? name + 1 : source;
    struct page_kinds *kinds = page_kinds_new(page->run, report);
    struct page_maps *maps = page_maps_new(page->run, report, kinds);
    struct page_stacks stacks;
    page_stacks_start(&stacks, page->run);
    bool ok = page_series_read(page->serieses, report, kinds, &stacks, error, error_size) &&
              page_maps_read(maps, error, error_size);
    if (ok) {
        rest = page_put_up_to(page_html_page, "<!--gpuspy:title-->", out);
        put_page_title(name, out);
        rest = page_put_up_to(rest, "<!--gpuspy:data-->\n", out);
        ok = put_page_data(page, report, maps, &stacks, name, out, error, error_size);
        fwrite(rest, 1, strlen(rest), out);
    }
    page_stacks_free(&stacks);
    page_maps_free(maps);
    page_kinds_free(kinds);
    return ok;
}
