/* The page's data cannot end its element early, and is exact. */
#include "tests/cases.h"
#include "analyzer/page/page_writer.h"
#include "tests/unit/page.h"
#include "tests/unit/synthetic.h"

static const char *put(const char *text)
{
    static char out[1 << 16];
    struct page_writer w = {.out = fmemopen(out, sizeof out, "w")};
    page_put_string(&w, text);
    fclose(w.out);
    return out;
}

static void test_text_cannot_leave(void **state)
{
    (void)state;
    assert_string_equal(put("</script><!--&"), "\"\\u003c/script\\u003e\\u003c!--\\u0026\"");
    assert_string_equal(put("a\"b\\c\n\t\x1b[31m\x7f"), "\"a\\\"b\\\\c\\u000a\\u0009\\u001b[31m\\u007f\"");
    assert_string_equal(put("\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xa6"), "\"\\u2028\\u2029\xe2\x80\xa6\"");
    /* not UTF-8: a single byte, an overlong form, a surrogate, beyond the last character, truncated */
    assert_string_equal(put("\xff|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x80"),
                        "\"\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|"
                        "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd|\xef\xbf\xbd\xef\xbf\xbd\"");
    assert_string_equal(put("\xc3\xa9\xf0\x9f\x98\x80"), "\"\xc3\xa9\xf0\x9f\x98\x80\"");
}

static void test_long_text_is_cut(void **state)
{
    (void)state;
    char *text = malloc(PAGE_TEXT + 3);
    memset(text, 'x', PAGE_TEXT + 2);
    memcpy(text + PAGE_TEXT - 1, "\xc3\xa9", 3); /* one byte more than there is room for */
    const char *out = put(text);
    assert_int_equal(strlen(out), 2 + PAGE_TEXT + 3);
    assert_memory_equal(out + 1 + PAGE_TEXT / 2, "\xe2\x80\xa6x", 4);
    assert_string_equal(out + strlen(out) - 4, "x\xc3\xa9\"");
    free(text);
}

static void test_columns(void **state)
{
    (void)state;
    static const int64_t values[] = {0, 1, -1, 15, 16, -16, 511, 512, 1 << 20, -(1LL << 40), (1LL << 52) + 1};
    enum { N = sizeof values / sizeof *values };
    struct page_column c = {0};
    for (size_t i = 0; i < N; i++) page_column_add(&c, values[i]);
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)c.n, c.text);
    json_t *o = json_pack("{s:s}", "c", text);
    struct page_numbers back = page_numbers(o, "c");
    assert_int_equal(back.n, N);
    for (size_t i = 0; i < N; i++) assert_true(back.list[i] == (double)values[i]);
    page_column_add(&c, INT64_MIN); /* keeps the following deltas right, whatever value it has */
    page_column_add(&c, INT64_MAX);
    page_column_free(&c);
    free(back.list);
    json_decref(o);
}

static json_t *page_of(struct syn *s, char **html)
{
    char error[1024] = "";
    const char *why;
    syn_done(s);
    char *text = page_make(s->path, (struct run_options){0}, error, sizeof error);
    if (!text) fail_msg("%s", error);
    json_t *data = page_data(text, &why);
    if (!data) fail_msg("%s", why);
    why = page_check(data);
    if (why) fail_msg("%s", why);
    if (html)
        *html = text;
    else
        free(text);
    return data;
}

static const char *resolution(const json_t *data)
{
    return json_string_value(json_object_get(json_object_get(data, "resolution"), "text"));
}

/* Blocks of many call paths, allocated and freed; some are kept. */
static void busy(struct syn *s, int paths, int blocks)
{
    int64_t stacks[2048], root, random = 1;
    syn_start(s);
    syn_process(s, "r", 10, blocks * 1000LL + 5000, 1);
    syn_device(s, 0, 16 * SYN_GIB, 15 * SYN_GIB);
    root = syn_python(s, 0, "main", "/home/u/train.py", 1);
    for (int i = 0; i < paths; i++) stacks[i] = syn_python(s, root, "f", "/home/u/model.py", i + 1);
    for (int i = 0; i < blocks; i++) {
        random = (random * 1103515245 + 12345) & 0x7fffffff;
        syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                        .address = 0x7f0000000000 + i * 4096LL,
                                        .bytes = 512 * (1 + random % 8 * (i % paths % 7 ? 1 : 64)),
                                        .at = i * 1000LL,
                                        .life = random % 100 == 0 ? SYN_LIVE : random % 300000,
                                        .stack = stacks[random / 7 % paths]});
    }
}

static void test_small_run_has_every_event(void **state)
{
    (void)state;
    struct syn s;
    busy(&s, 20, 500);
    json_t *data = page_of(&s, NULL), *series = json_array_get(json_object_get(data, "series"), 0);
    struct page_numbers high = page_numbers(series, "high");
    /* each event, and the end */
    assert_int_equal(high.n, page_int(json_object_get(data, "resolution"), "events") + 1);
    assert_non_null(strstr(resolution(data), "each drawn as a separate moment"));
    assert_string_equal(json_string_value(json_object_get(series, "label")), "GPU 0, tensors");
    free(high.list);
    json_decref(data);
    syn_end(&s);
}

/* page_check has verified that every moment adds up. Here: the largest moment is the peak, and the memory that was live
 * then is the same as in the report. */
static void test_long_run_is_exact_at_the_peak(void **state)
{
    (void)state;
    struct syn s;
    busy(&s, 2000, 40000);
    json_t *data = page_of(&s, NULL), *series = json_array_get(json_object_get(data, "series"), 0);
    json_t *peak = json_array_get(json_object_get(json_object_get(data, "report"), "peak"), 0);
    struct page_numbers high = page_numbers(series, "high"), exact = page_numbers(series, "exact");
    double unit = page_int(series, "unit"), most = 0, at = 0, count = 0, heaviest = 0;
    for (size_t i = 0; i < high.n; i++) {
        at += high.list[i];
        most = at > most ? at : most;
    }
    assert_true(high.n > 500 && high.n < 3000);
    assert_true(most * unit == page_int(peak, "bytes"));
    for (size_t i = 0; i < exact.n; i += 3) {
        heaviest = exact.list[i + 1] > heaviest ? exact.list[i + 1] : heaviest;
        count += exact.list[i + 2];
    }
    assert_true(count == page_int(peak, "count"));
    json_t *first = json_array_get(json_object_get(peak, "by_stack"), 0);
    assert_true(heaviest * unit == page_int(first, "bytes")); /* all of one category here */
    assert_non_null(strstr(resolution(data), "each shows the maximum around it"));
    free(high.list);
    free(exact.list);
    json_decref(data);
    syn_end(&s);
}

static void test_hostile_names(void **state)
{
    (void)state;
    struct syn s;
    char *html, *large = malloc((1 << 20) + 1);
    memset(large, 'A', 1 << 20);
    large[1 << 20] = 0;
    syn_start(&s);
    syn_process(&s, "r", 10, SYN_S, 1);
    syn_sql(&s, "UPDATE process SET command = %Q", "x</script><script>alert(1)</script>");
    syn_device(&s, 0, 16 * SYN_GIB, 15 * SYN_GIB);
    int64_t a = syn_python(&s, 0, "</script><img src=x onerror=alert(1)>", "<!--\x1b]0;x\x07", 1);
    int64_t b = syn_python(&s, a, large, "\xff\xfe\xed\xa0\x80", -5);
    syn_sql(&s, "INSERT INTO stack(id,parent_id,frame_id,depth) VALUES(900,901,1,2),(901,900,1,2)");
    syn_alloc(&s, (struct syn_alloc){.bytes = SYN_MIB, .at = -500, .life = SYN_LIVE, .stack = b});
    syn_alloc(&s, (struct syn_alloc){.bytes = SYN_MIB, .at = 10, .life = -3, .stack = 900});
    syn_alloc(&s, (struct syn_alloc){.address = -1, .bytes = SYN_MIB, .at = 20, .life = 90, .stack = a});
    json_t *data = page_of(&s, &html);
    assert_null(strstr(html, "onerror=alert(1)>"));
    assert_null(strstr(html, "<script>alert"));
    assert_true(strlen(html) < 2 << 20);
    assert_non_null(strstr(resolution(data), "texts are cut"));
    free(html);
    free(large);
    json_decref(data);
    syn_end(&s);
}

static void test_nothing_recorded(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 10, SYN_S, 1);
    json_t *data = page_of(&s, NULL);
    assert_int_equal(json_array_size(json_object_get(data, "series")), 0);
    json_decref(data);
    syn_end(&s);
}

/* A segment with a hole, one that is cached, one that other code allocated. */
static void test_map(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 10, SYN_S, 1);
    syn_device(&s, 0, 16 * SYN_GIB, 15 * SYN_GIB);
    int64_t a = syn_python(&s, 0, "a", "/home/u/a.py", 1);
    const int64_t base = 0x7f0000000000;
    syn_alloc(&s, (struct syn_alloc){.address = base, .bytes = 20 * SYN_MIB, .life = SYN_LIVE, .stack = a});
    syn_alloc(&s, (struct syn_alloc){.address = base + SYN_GIB, .bytes = 1000, .at = 1, .life = SYN_LIVE, .stack = a});
    syn_alloc(&s, (struct syn_alloc){.address = base + 2 * SYN_GIB, .bytes = 2 * SYN_MIB, .at = 2, .life = SYN_LIVE});
    syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                     .address = base + SYN_MIB,
                                     .bytes = SYN_MIB,
                                     .at = 3,
                                     .life = SYN_LIVE,
                                     .stack = a});
    syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                     .address = base + 4 * SYN_MIB,
                                     .bytes = 512,
                                     .at = 4,
                                     .life = SYN_LIVE,
                                     .stack = a});
    json_t *data = page_of(&s, NULL), *map = json_array_get(json_object_get(data, "maps"), 0);
    json_t *segments = json_object_get(map, "segments");
    enum { OWNER = 3, TORCH = 1, DIRECT = 2 };
    struct page_numbers flags = page_numbers(segments, "flags"), blocks = page_numbers(segments, "blocks");
    assert_int_equal(flags.n, 3);
    assert_int_equal(blocks.list[0], 2);
    assert_int_equal((int)flags.list[0] & OWNER, TORCH);
    assert_int_equal((int)flags.list[1] & OWNER, DIRECT);
    assert_int_equal((int)flags.list[2] & OWNER, 0); /* the owner is unknown */
    free(flags.list);
    free(blocks.list);
    struct page_numbers b = page_numbers(map, "blocks");
    double unit = page_int(map, "unit");
    assert_true(b.list[0] * unit == SYN_MIB && b.list[1] * unit == SYN_MIB); /* the hole before it, its size */
    assert_true(b.list[5] * unit == 2 * SYN_MIB && b.list[6] * unit == 512);
    free(b.list);
    json_decref(data);
    syn_end(&s);
}

CASES(test_text_cannot_leave, test_long_text_is_cut, test_columns, test_small_run_has_every_event,
      test_long_run_is_exact_at_the_peak, test_hostile_names, test_nothing_recorded, test_map)
