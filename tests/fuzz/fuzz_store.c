/* Events of every kind with hostile values, through a spool in memory into two databases: one at once, the other with
 * commits and re-openings in between. Both must have the same rows. */
#include "tests/fuzz/records.h"

#include "tests/unit/events.h"

static char whole[300], pieces[300];

static struct gs_store *create(const char *path)
{
    fuzz_unlink_database(path);
    return ev_store(path);
}

static void finish(struct gs_store *s, struct gs_reader *r, struct gs_summary *summary)
{
    FUZZ_CHECK(!gs_store_commit(s, r), "%s", gs_store_error(s));
    FUZZ_CHECK(!gs_store_finish(s, 0, true, 0, 0, 0), "%s", gs_store_error(s));
    *summary = *gs_store_summary(s);
    gs_store_close(s);
    gs_reader_close(r);
}

/* Drops everything except the database and the spool. */
static void reopen(struct gs_store **s, struct gs_reader **r, struct gs_spool *spool)
{
    char error[256];
    struct gs_progress *progress = NULL;
    uint32_t threads = 0;
    gs_store_close(*s);
    gs_reader_close(*r);
    *s = gs_store_resume(pieces, &progress, &threads, error, sizeof error);
    FUZZ_CHECK(*s, "%s", error);
    *r = gs_reader_open(spool, progress, threads);
    free(progress);
    gs_reader_poll(*r, 0, true);
}

static void store_whole(struct gs_spool *spool, struct gs_summary *summary)
{
    struct gs_store *s = create(whole);
    struct gs_reader *r = gs_reader_open(spool, NULL, 0);
    gs_reader_poll(r, 0, true);
    ev_drain(r, s);
    finish(s, r, summary);
}

/* Each byte of `cuts`: how many records until the next interruption, and its kind. */
static void store_pieces(struct gs_spool *spool, struct fuzz_bytes cuts, struct gs_summary *summary)
{
    struct gs_store *s = create(pieces);
    struct gs_reader *r = gs_reader_open(spool, NULL, 0);
    const struct gs_rec *rec;
    uint32_t thread;
    uint8_t cut = fuzz_u8(&cuts), left = cut >> 2;
    gs_reader_poll(r, 0, true);
    while ((rec = gs_reader_next(r, &thread))) {
        FUZZ_CHECK(!gs_store_add(s, thread, rec), "%s", gs_store_error(s));
        if (left-- || !cuts.left) continue;
        if (cut & 1) FUZZ_CHECK(!gs_store_commit(s, r), "%s", gs_store_error(s));
        if (cut & 2) reopen(&s, &r, spool);
        cut = fuzz_u8(&cuts);
        left = cut >> 2;
    }
    finish(s, r, summary);
}

static sqlite3 *open_database(const char *path)
{
    sqlite3 *db;
    FUZZ_CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK, "%s", path);
    return db;
}

static void same_rows(sqlite3 *a, sqlite3 *b, const char *sql)
{
    sqlite3_stmt *x, *y;
    FUZZ_CHECK(sqlite3_prepare_v2(a, sql, -1, &x, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(a));
    FUZZ_CHECK(sqlite3_prepare_v2(b, sql, -1, &y, NULL) == SQLITE_OK, "%s", sqlite3_errmsg(b));
    int rc;
    for (int n = 0; (rc = sqlite3_step(x)) == sqlite3_step(y) && rc == SQLITE_ROW; n++)
        for (int c = 0; c < sqlite3_column_count(x); c++) {
            const char *v = (const char *)sqlite3_column_text(x, c);
            const char *w = (const char *)sqlite3_column_text(y, c);
            FUZZ_CHECK(!strcmp(v ? v : "NULL", w ? w : "NULL"), "%s: row %d, %s: %s, with interruptions %s", sql, n,
                       sqlite3_column_name(x, c), v ? v : "NULL", w ? w : "NULL");
        }
    FUZZ_CHECK(rc == SQLITE_DONE, "%s: one has more rows", sql);
    sqlite3_finalize(x);
    sqlite3_finalize(y);
}

/* Compares every row of every table. NVML's samples and those of calls share a table, and each commit writes one kind
 * after the other, so their ids differ. */
static void same_databases(void)
{
    sqlite3 *a = open_database(whole), *b = open_database(pieces);
    sqlite3_stmt *tables;
    FUZZ_CHECK(sqlite3_prepare_v2(a, "SELECT name FROM sqlite_master WHERE type='table'", -1, &tables, NULL) ==
                   SQLITE_OK,
               "%s", sqlite3_errmsg(a));
    while (sqlite3_step(tables) == SQLITE_ROW) {
        const char *table = (const char *)sqlite3_column_text(tables, 0);
        char sql[256];
        snprintf(sql, sizeof sql, "SELECT * FROM %s", table);
        same_rows(a, b,
                  strcmp(table, "sample")
                      ? sql
                      : "SELECT device,time_ns,source,free_bytes,total_bytes,utilisation,memory_utilisation,"
                        "own_bytes,other_bytes,other_pid,other_name FROM sample ORDER BY 1,2,3,4,5,6,7,8,9,10,11");
    }
    sqlite3_finalize(tables);
    sqlite3_close(a);
    sqlite3_close(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct gs_summary a, b;
    struct fuzz_bytes bytes = {data, size}, cuts;
    struct gs_spool spool;
    struct gs_writer writers[FUZZ_WRITERS];
    snprintf(whole, sizeof whole, "%s/whole.db", fuzz_folder());
    snprintf(pieces, sizeof pieces, "%s/pieces.db", fuzz_folder());
    cuts.at = fuzz_part(&bytes, fuzz_u8(&bytes) % 32, &cuts.left);
    FUZZ_CHECK(!gs_spool_create(&spool, NULL, "run", "", 0, 0), "no spool");
    for (int i = 0; i < FUZZ_WRITERS; i++) gs_writer_open(&writers[i], &spool);
    fuzz_records(&bytes, writers);
    store_whole(&spool, &a);
    store_pieces(&spool, cuts, &b);
    same_databases();
    FUZZ_CHECK(!memcmp(&a, &b, sizeof a), "the summaries differ");
    gs_spool_close(&spool);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 99;
    for (size_t i = 0; i < 24; i++) {
        uint8_t bytes[2048];
        const size_t n = i < 8 ? 64 : i < 20 ? 512 : 2048;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)(ev_below(&random, 3) ? ev_below(&random, 24) : ev_below(&random, 256));
        bytes[0] = (uint8_t)(i % 16);
        put(bytes, n);
    }
}
