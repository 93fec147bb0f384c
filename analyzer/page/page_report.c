#include "analyzer/page/page_report.h"
#include "analyzer/base/text.h"
#include "analyzer/base/texts.h"

#include <stdlib.h>
#include <string.h>

static void put_shared_value(struct texts *s, struct page_writer *w, const char *key, json_t *value);

/* A frame, a site, or a list of frames. */
static bool is_shared_value(const char *key, const json_t *value)
{
    if (json_is_object(value)) return json_object_get(value, "function") && json_object_get(value, "line");
    return json_array_size(value) && key && (!strcmp(key, "frames") || !strcmp(key, "stack"));
}

static void put_members(struct texts *s, struct page_writer *w, const char *key, json_t *value)
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

static void put_shared(struct texts *s, struct page_writer *w, const char *key, json_t *value)
{
    char *text = NULL;
    size_t n = 0;
    struct page_writer inner = *w;
    inner.out = arena_stream(&text, &n);
    inner.follows = false;
    put_members(s, &inner, NULL, value);
    fclose(inner.out);
    size_t before = s->n;
    page_put_open(w, key, '{');
    page_put_int(w, "$", texts_number(s, text, n));
    page_put_close(w, '}');
    free(text);
    if (s->n > before) { /* written once, and counted once */
        w->text_bytes = inner.text_bytes;
        w->cut = inner.cut;
    }
}

static void put_shared_value(struct texts *s, struct page_writer *w, const char *key, json_t *value)
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

static char *render_report(json_t *report, struct page_writer *w, size_t *n)
{
    struct texts s = {0};
    char *text = NULL;
    FILE *before = w->out, *out = arena_stream(&text, n);
    w->out = out;
    put_shared_value(&s, w, "report", report);
    page_put_open(w, "shared", '[');
    for (size_t i = 0; i < s.n; i++) {
        page_put_key(w, NULL);
        page_put_bytes(w, s.list[i], strlen(s.list[i]));
    }
    page_put_close(w, ']');
    fclose(out);
    w->out = before;
    texts_free(&s);
    return text;
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

/* Another attempt if the last result was too large. */
static char *render_again(char *text, json_t *report, const struct page_writer *before, struct page_writer *w,
                          size_t *n)
{
    size_t most = w->text_most;
    free(text);
    *w = *before;
    w->text_most = most;
    return render_report(report, w, n);
}

size_t page_report_put(json_t *report, struct page_writer *w)
{
    size_t n = 0, most = MOST, cut = 0;
    const struct page_writer before = *w;
    char *text = render_report(report, w, &n);
    for (; text && n > ROOM && most >= LEAST; most /= 2) {
        shorten_lists(NULL, report, cut = most);
        text = render_again(text, report, &before, w, &n);
    }
    for (most = PAGE_TEXT / 4; text && n > ROOM && most >= TEXT_LEAST; most /= 2) {
        w->text_most = most;
        text = render_again(text, report, &before, w, &n);
    }
    if (text) {
        fwrite(text, 1, n, w->out);
        free(text);
    }
    return cut;
}
