#include "analyzer/page/page_report.h"
#include "analyzer/base/text.h"
#include "analyzer/base/texts.h"

#include <stdlib.h>
#include <string.h>

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

/* Keeps it in `w`. */
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

size_t page_report_put(json_t *report, struct page_writer *w)
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
