/* An active or unfinished recording as `gpuspy top` finds it: a half-written database that changes between two reads,
 * and beside it a spool with an arbitrary header and chunks. */
#include "tests/fuzz/databases.h"
#include "tests/fuzz/spools.h"

#include <jansson.h>
#include <unistd.h>
#include "analyzer/top/view.h"
#include "tests/unit/events.h"

enum { LOOKS = 3 };

static void show(struct top_tables *t, uint8_t how)
{
    char *text = NULL;
    size_t n = 0;
    json_error_t e;
    struct top_view v = {.tables = t,
                         .term = {.utf8 = how & 1, .width = how & 2 ? 40 : 120},
                         .columns = how & 2 ? 40 : 120,
                         .rows = how & 4 ? 10 : 0,
                         .live = how & 4,
                         .scroll = how & 8 ? 3 : 0,
                         .interval_s = 1,
                         .choice = {.table = (enum top_table)(how >> 4 & 3),
                                    .sort = (enum top_sort)(how % TOP_SORTS),
                                    .source = TOP_ALL,
                                    .device = TOP_ALL,
                                    .layer = TOP_LAYER_AUTO,
                                    .native = how & 64}};
    FILE *out = open_memstream(&text, &n);
    FUZZ_CHECK(out, "no memory");
    top_view_print(&v, out);
    fclose(out);
    FUZZ_CHECK(how & 4 || !memchr(text, 27, n), "an escape: %s", text);
    free(text);
    out = open_memstream(&text, &n);
    top_view_json(&v, 20, out);
    fclose(out);
    json_t *json = json_loadb(text, n, JSON_ALLOW_NUL, &e);
    FUZZ_CHECK(json, "%s: %s", e.text, text);
    json_decref(json);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char db[300], path[310];
    struct fuzz_bytes b = {data, size}, edits[LOOKS];
    const uint8_t how = fuzz_u8(&b), base = fuzz_u8(&b);
    size_t bytes;
    snprintf(db, sizeof db, "%s/run.db", fuzz_folder());
    snprintf(path, sizeof path, "%s.spool", db);
    fuzz_unlink_database(db);
    for (int i = 0; i < LOOKS; i++) edits[i].at = fuzz_part(&b, fuzz_u8(&b), &edits[i].left);
    if (how & 128) fuzz_spool_file(&b, path, (uint32_t)getpid());
    const void *begin = fuzz_base(base, &bytes);
    struct top_model *m = top_model_new(NULL, NULL);
    struct top_tables t = {.model = m};
    char run_id[64];
    bool recording;
    top_model_add(m, db);
    if (base & 4) top_model_update(m, 0); /* the database does not exist yet */
    fuzz_write(db, begin, bytes);
    for (int i = 0; i < LOOKS; i++) {
        fuzz_edit(&edits[i], db);
        top_peek(db, run_id, sizeof run_id, &recording);
        top_model_update(m, base & 2 ? 1 : 0);
        show(&t, (uint8_t)(how + i * 16));
    }
    top_tables_free(&t);
    top_model_free(m);
    unlink(path);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 41;
    for (size_t i = 0; i < 40; i++) {
        uint8_t bytes[900];
        const size_t n = 20 + 20 * i;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)(ev_below(&random, 3) ? ev_below(&random, 48) : ev_below(&random, 256));
        bytes[0] = (uint8_t)(i * 37);
        bytes[1] = (uint8_t)(i % 8);
        bytes[2] = (uint8_t)(i % 2 ? 40 : 0);
        put(bytes, n);
    }
}
