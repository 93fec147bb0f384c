/* The formats of exports: JSON strings, table cells, protocol buffers, names of frames. */
#include <limits.h>
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/export/export_table.h"
#include "analyzer/profile/frame_label.h"
#include "analyzer/base/json_out.h"
#include "analyzer/export/protobuf.h"
#include "schema/event.h"

struct text {
    char *bytes;
    size_t n;
    FILE *f;
};

static FILE *open_text(struct text *t)
{
    *t = (struct text){0};
    return t->f = open_memstream(&t->bytes, &t->n);
}

static void is(struct text *t, const char *wanted)
{
    fclose(t->f);
    assert_string_equal(t->bytes, wanted);
    free(t->bytes);
}

static void test_json(void **state)
{
    (void)state;
    struct text t;
    json_out_text(open_text(&t), "a\"b\\c\n\t\x01\x1b\x7f/é深");
    is(&t, "\"a\\\"b\\\\c\\u000a\\u0009\\u0001\\u001b\\u007f/é深\"");
    json_out_text(open_text(&t), NULL);
    is(&t, "null");
    json_out_text(open_text(&t), "");
    is(&t, "\"\"");
}

static void row(struct export_table *t, const char *text, int64_t number, bool truth)
{
    export_table_text(t, text);
    export_table_int(t, number);
    export_table_bool(t, truth);
}

static void test_csv(void **state)
{
    (void)state;
    struct text t;
    struct export_table table;
    export_table_begin(&table, open_text(&t), false, "a,b,c");
    row(&table, "plain", INT64_MAX, true);
    row(&table, "a,\"b\"", RUN_UNKNOWN, false);
    row(&table, NULL, -5, false);
    row(&table, "=1+1", 0, false);
    row(&table, "@x,y", 0, false);
    row(&table, "two\r\nlines\x1b[2J", 0, false);
    assert_int_equal(table.rows, 6);
    is(&t, "a,b,c\r\nplain,9223372036854775807,true\r\n\"a,\"\"b\"\"\",,false\r\n,-5,false\r\n\"'=1+1\",0,false\r\n"
           "\"'@x,y\",0,false\r\ntwo??lines?[2J,0,false\r\n");
}

static void test_lines_of_json(void **state)
{
    (void)state;
    struct text t;
    struct export_table table;
    export_table_begin(&table, open_text(&t), true, "a,b,c");
    row(&table, "=x\n", 1, true);
    row(&table, NULL, RUN_UNKNOWN, false);
    is(&t, "{\"a\":\"=x\\u000a\",\"b\":1,\"c\":true}\n{\"a\":null,\"b\":null,\"c\":false}\n");
}

static void test_protobuf(void **state)
{
    (void)state;
    struct export_protobuf out = {0}, inner = {0};
    static const uint64_t values[] = {0, 127, 128, UINT64_MAX};
    static const uint8_t wanted[] = {0x08, 0x96, 0x01, 0x12, 0x02, 'h',  'i',  0x1a, 0x0e, 0x00, 0x7f, 0x80, 0x01, 0xff,
                                     0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0x22, 0x02, 0x28, 0x01};
    export_protobuf_int(&out, 1, 150);
    export_protobuf_int(&out, 9, 0); /* is not written */
    export_protobuf_bytes(&out, 2, "hi", 2);
    export_protobuf_packed(&out, 3, values, 4);
    export_protobuf_int(&inner, 5, 1);
    export_protobuf_message(&out, 4, &inner);
    assert_int_equal(inner.n, 0);
    assert_int_equal(out.n, sizeof wanted);
    assert_memory_equal(out.bytes, wanted, sizeof wanted);
    export_protobuf_free(&out);
    export_protobuf_free(&inner);
}

static void test_labels(void **state)
{
    (void)state;
    char out[PROFILE_LABEL];
    struct run_frame python = {
        .kind = GS_FRAME_PYTHON, .function = "step", .file = "/home/me/job/train.py", .line = 12};
    struct run_frame native = {.kind = GS_FRAME_NATIVE, .function = "at::empty", .module = "/opt/t/libtorch.so"};
    struct run_frame bare = {.kind = GS_FRAME_NATIVE, .module = "/opt/t/libtorch.so", .offset = 0x40};
    struct run_frame nowhere = {.kind = GS_FRAME_NATIVE, .offset = 0x7f00};
    struct run_frame nasty = {.kind = GS_FRAME_PYTHON, .function = "a\x1b[2J\nb", .file = "/x\n.py"};
    assert_string_equal(profile_frame_label(&python, "/home/me/job", out), "step (train.py:12)");
    assert_string_equal(profile_frame_label(&native, NULL, out), "at::empty (libtorch.so)");
    assert_string_equal(profile_frame_label(&bare, NULL, out), "libtorch.so+0x40");
    assert_string_equal(profile_frame_label(&nowhere, NULL, out), "0x7f00");
    assert_null(strpbrk(profile_frame_label(&nasty, NULL, out), "\x1b\n"));
    python.function = "";
    assert_string_equal(profile_frame_function(&python, out), "??");
    char *name = malloc(1 << 16), *path = malloc(1 << 16);
    memset(name, 'n', (1 << 16) - 1);
    memset(path, 'p', (1 << 16) - 1);
    name[(1 << 16) - 1] = path[(1 << 16) - 1] = 0;
    struct run_frame large = {.kind = GS_FRAME_PYTHON, .function = name, .file = path, .line = INT_MAX};
    assert_true(strlen(profile_frame_label(&large, NULL, out)) < PROFILE_LABEL);
    free(name);
    free(path);
}

CASES(test_json, test_csv, test_lines_of_json, test_protobuf, test_labels)
