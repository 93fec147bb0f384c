/* A spool as a crash, a full disk or another program may leave it: every record that can be read becomes rows. */
#include "tests/fuzz/spools.h"

#include "schema/record.h"
#include "tests/unit/events.h"

/* Arbitrary bytes as records: gs_record_valid accepts only what can be read to its end. */
static void read_records(const uint8_t *data, size_t size)
{
    uint64_t *copy = malloc(size + 8);
    FUZZ_CHECK(copy, "no memory");
    memcpy(copy, data, size);
    for (size_t at = 0; size - at >= sizeof(struct gs_rec);) {
        const struct gs_rec *rec = (const void *)((const uint8_t *)copy + at);
        if (gs_record_valid(rec, size - at)) {
            FUZZ_CHECK(rec->size >= sizeof *rec && rec->size <= size - at, "%u", rec->size);
            gs_record_time(rec);
            at += rec->size;
        } else {
            at += 8;
        }
    }
    free(copy);
}

static void store_some(struct gs_reader *r, struct gs_store *s)
{
    const struct gs_rec *rec;
    uint32_t thread;
    while ((rec = gs_reader_next(r, &thread))) {
        FUZZ_CHECK(thread && thread < GS_SPOOL_THREADS, "%u", thread);
        FUZZ_CHECK(!gs_store_add(s, thread, rec), "%s", gs_store_error(s));
    }
}

/* Reads first as the drain does, then as a recovery does; `how` chooses how far the drain gets. */
static void read_spool(struct gs_spool *spool, struct gs_store *s, uint8_t how, uint64_t now)
{
    struct gs_progress start[4] = {{0}, {now % 8, (uint32_t)(now >> 3 & 511), 0}, {how % 4, 8, now}, {0}};
    struct gs_reader *r = gs_reader_open(spool, how & 1 ? start : NULL, how & 1 ? 4 : 0);
    FUZZ_CHECK(r, "no memory");
    if (how & 2) {
        const uint64_t limit = gs_reader_poll(r, now, false);
        FUZZ_CHECK(limit <= now, "%llu", (unsigned long long)limit);
        store_some(r, s);
        FUZZ_CHECK(!gs_store_commit(s, r), "%s", gs_store_error(s));
        if (how & 4) gs_reader_release(r);
    }
    gs_reader_poll(r, now, true);
    store_some(r, s);
    gs_store_counted(s, r);
    FUZZ_CHECK(!gs_store_commit(s, r), "%s", gs_store_error(s));
    gs_reader_release(r);
    FUZZ_CHECK(gs_reader_fill(r) <= 1, "%f", gs_reader_fill(r));
    const struct gs_spool_header *h = spool->header;
    FUZZ_CHECK(!gs_store_finish(s, h->end_ns, h->closed, h->lost, h->lost_first_ns, gs_reader_damaged(r)), "%s",
               gs_store_error(s));
    gs_reader_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300], db[300], error[256] = "";
    struct fuzz_bytes b = {data, size};
    struct gs_spool spool;
    const uint8_t how = fuzz_u8(&b);
    const uint64_t now = fuzz_hostile(&b);
    read_records(data, size);
    snprintf(path, sizeof path, "%s/run.db.spool", fuzz_folder());
    snprintf(db, sizeof db, "%s/run.db", fuzz_folder());
    fuzz_spool_file(&b, path, 1);
    gs_spool_owner(path);
    if (gs_spool_open(&spool, path, error, sizeof error)) {
        FUZZ_CHECK(*error, "no reason");
        return 0;
    }
    fuzz_unlink_database(db);
    struct gs_store *s = ev_store(db);
    read_spool(&spool, s, how, now);
    gs_store_close(s);
    gs_spool_close(&spool);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 7;
    for (size_t i = 0; i < 24; i++) {
        uint8_t bytes[1500];
        const size_t n = i < 8 ? 100 : 400 + 45 * i;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)(ev_below(&random, 3) ? ev_below(&random, 24) : ev_below(&random, 256));
        bytes[0] = (uint8_t)i;
        bytes[2] = (uint8_t)(i % 3 ? i : 191 + i * 2);
        put(bytes, n);
    }
}
