/* A database with changed rows, columns and tables, as an editor or a damaged disk leaves it, or one made from hostile
 * events. The report must be complete or state why it is not. */
#include "tests/fuzz/databases.h"

#include "tests/unit/events.h"

static void record(struct fuzz_bytes *b, const char *path)
{
    struct gs_spool spool;
    struct gs_writer writers[FUZZ_WRITERS];
    FUZZ_CHECK(!gs_spool_create(&spool, NULL, "run", "", 0, 0), "no spool");
    for (int i = 0; i < FUZZ_WRITERS; i++) gs_writer_open(&writers[i], &spool);
    fuzz_records(b, writers);
    struct gs_store *s = ev_store(path);
    struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
    gs_reader_poll(r, 0, true);
    ev_drain(r, s);
    FUZZ_CHECK(!gs_store_commit(s, r) && !gs_store_finish(s, 0, true, 0, 0, 0), "%s", gs_store_error(s));
    gs_store_close(s);
    gs_reader_close(r);
    gs_spool_close(&spool);
}

static void begin_with(unsigned base, const char *path)
{
    size_t bytes;
    const void *begin = fuzz_base(base, &bytes);
    fuzz_write(path, begin, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300], second[310];
    struct fuzz_bytes b = {data, size}, edits;
    const uint8_t how = fuzz_u8(&b), base = fuzz_u8(&b);
    snprintf(path, sizeof path, "%s/run.db", fuzz_folder());
    snprintf(second, sizeof second, "%s/run.2.db", fuzz_folder());
    fuzz_unlink_database(path);
    unlink(second);
    if (base & 16) { /* another process of the same run */
        edits.at = fuzz_part(&b, fuzz_u8(&b), &edits.left);
        begin_with(base >> 2, second);
        fuzz_edit(&edits, second);
    }
    if (base % 4 == 3) {
        record(&b, path);
    } else {
        begin_with(base % 4, path);
        fuzz_edit(&b, path);
    }
    fuzz_report(path, how);
    fuzz_export(path, how);
    fuzz_check(path, how);
    fuzz_page(path, how);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 3;
    put("\0\0", 2);
    put("\xff\1", 2);
    for (size_t i = 0; i < 36; i++) {
        uint8_t bytes[800];
        const size_t n = i < 16 ? 12 : 10 + 20 * i;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)(ev_below(&random, 3) ? ev_below(&random, 48) : ev_below(&random, 256));
        bytes[0] = (uint8_t)(i * 37);
        bytes[1] = (uint8_t)i;
        put(bytes, n);
    }
}
