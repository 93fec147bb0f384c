/* The JSON contract: every field that scripts rely on is there, and unknown is null. */
#include "tests/cases.h"
#include <jansson.h>
#include "analyzer/json/view_json.h"
#include "tests/unit/synthetic.h"

/* "a b" of an object, "[]" for the first element of a list. */
static const struct {
    const char *where, *fields;
} contract[] = {
    {"", "schema run devices peak timeline oom leaks growth sync transfers fragmentation churn "
         "retries budget advice"},
    {"run", "command processes duration_s lost_events complete"},
    {"run.processes[]", "pid rank host complete"},
    {"devices[]", "index name total_bytes"},
    {"peak[]", "device layer bytes time_s count by_stack by_category"},
    {"peak[].by_stack[]", "bytes count frames"},
    {"peak[].by_stack[].frames[]", "kind function file line"},
    {"timeline[]", "device layer points"},
    {"oom[]", "time_s device requested_bytes free_bytes total_bytes fatal cause evidence advice stack"},
    {"leaks[]", "bytes count stack"},
    {"growth[]", "bytes_per_step steps stack"},
    {"sync[]", "kind count blocked_s share site advice"},
    {"sync[].site", "file line function"},
    {"transfers[]", "direction pinned count bytes bytes_per_s site advice"},
    {"fragmentation[]", "device reserved_bytes active_bytes free_bytes largest_free_bytes external utilisation"},
    {"budget", "estimate measured difference categories parameter_bytes"},
    {"advice[]", "text topic"},
};

static json_t *find(json_t *root, const char *where)
{
    char path[128], *save = NULL;
    snprintf(path, sizeof path, "%s", where);
    for (char *part = strtok_r(path, ".", &save); part && root; part = strtok_r(NULL, ".", &save)) {
        char *list = strstr(part, "[]");
        if (list) *list = 0;
        root = json_object_get(root, part);
        root = list ? json_array_get(root, 0) : root;
    }
    return root;
}

static void full_run(struct syn *s)
{
    syn_start(s);
    syn_process(s, "r", 10, 2 * SYN_S, 0);
    syn_device(s, 0, 16 * SYN_GIB, 15 * SYN_GIB);
    int64_t f = syn_python(s, 0, "f", "/home/u/a \"quoted\".py", 4);
    for (int i = 0; i < 200; i++) {
        syn_alloc(s, (struct syn_alloc){.bytes = 64 * SYN_MIB, .at = i * 10 * SYN_MS, .life = SYN_LIVE, .stack = f});
        syn_sync(s, GS_SYNC_DEVICE, i * 10 * SYN_MS, SYN_MS, 0, f);
        syn_copy(s, (struct syn_copy){.direction = GS_DIR_H2D,
                                      .host_memory = GS_HOSTMEM_PAGEABLE,
                                      .bytes = SYN_MIB,
                                      .at = i * 10 * SYN_MS + 1,
                                      .blocked = 1000,
                                      .stack = f});
    }
    syn_oom(s, (struct syn_oom){.requested = 64 * SYN_MIB,
                                .free = SYN_MIB,
                                .total = 16 * SYN_GIB,
                                .fatal = 1,
                                .at = 2 * SYN_S - 5,
                                .stack = f});
}

static void test_contract(void **state)
{
    (void)state;
    struct syn s;
    full_run(&s);
    struct run_estimate_bytes estimate = {4e9, 4e9, 8e9, 16e9, 1e9, 0};
    struct run_options options = {.estimate = &estimate};
    struct result_report *r = syn_report(&s, &options);
    json_t *root = json_report_build(r);
    for (size_t i = 0; i < sizeof contract / sizeof *contract; i++) {
        json_t *o = find(root, contract[i].where);
        char fields[256], *save = NULL;
        if (!json_is_object(o)) fail_msg("no %s", contract[i].where);
        snprintf(fields, sizeof fields, "%s", contract[i].fields);
        for (char *field = strtok_r(fields, " ", &save); field; field = strtok_r(NULL, " ", &save))
            if (!json_object_get(o, field)) fail_msg("%s has no %s", contract[i].where, field);
    }
    assert_string_equal(json_string_value(json_object_get(find(root, "peak[]"), "layer")), "device");
    assert_string_equal(json_string_value(json_object_get(find(root, "oom[]"), "cause")), "leak");
    assert_string_equal(json_string_value(json_object_get(find(root, "sync[]"), "kind")), "device");
    assert_string_equal(json_string_value(json_object_get(find(root, "transfers[]"), "direction")), "h2d");
    assert_true(json_is_false(json_object_get(find(root, "transfers[]"), "pinned")));
    assert_true(json_is_null(json_object_get(find(root, "fragmentation[]"), "utilisation")));
    assert_true(json_is_null(json_object_get(find(root, "run.processes[]"), "rank")));
    assert_int_equal(json_integer_value(json_object_get(find(root, "peak[].by_category"), "unknown")),
                     200 * 64 * SYN_MIB);
    assert_true(json_real_value(json_object_get(find(root, "budget.difference"), "share")) < 0);
    json_decref(root);
    syn_close(r);
    syn_end(&s);
}

static void test_it_is_json_and_the_same_twice(void **state)
{
    (void)state;
    struct syn s;
    char *text[2];
    size_t size;
    full_run(&s);
    for (int i = 0; i < 2; i++) {
        struct result_report *r = syn_report(&s, NULL);
        FILE *out = open_memstream(&text[i], &size);
        assert_int_equal(json_report_some(r, NULL, 0, out), 0);
        fclose(out);
        syn_close(r);
    }
    assert_string_equal(text[0], text[1]);
    json_error_t error;
    json_t *root = json_loads(text[0], 0, &error);
    assert_non_null(root);
    json_decref(root);
    free(text[0]);
    free(text[1]);
    syn_end(&s);
}

static void test_a_full_disk_is_an_error(void **state)
{
    (void)state;
    struct syn s;
    FILE *full = fopen("/dev/full", "w");
    if (!full) skip();
    full_run(&s);
    struct result_report *r = syn_report(&s, NULL);
    int rc = json_report_some(r, NULL, 0, full);
    assert_true(rc == -1 || fflush(full) != 0);
    fclose(full);
    syn_close(r);
    syn_end(&s);
}

static void test_an_empty_run(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 10, 0, 1);
    struct result_report *r = syn_report(&s, NULL);
    json_t *root = json_report_build(r);
    assert_int_equal(json_array_size(json_object_get(root, "peak")), 0);
    assert_true(json_is_true(json_object_get(json_object_get(root, "run"), "complete")));
    assert_int_equal(json_object_size(find(root, "budget.estimate")), 0);
    json_decref(root);
    syn_close(r);
    syn_end(&s);
}

CASES(test_contract, test_it_is_json_and_the_same_twice, test_a_full_disk_is_an_error, test_an_empty_run)
