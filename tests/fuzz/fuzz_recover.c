/* The files that a dead process leaves: its database, partly written and perhaps damaged, and the spool beside it. */
#include "tests/fuzz/databases.h"
#include "tests/fuzz/spools.h"

#include <fcntl.h>
#include "tests/unit/events.h"

#define DEAD 999999999 /* no process has this number */

/* Stores the records that the drain had read when the process died. */
static void drain_some(const char *db, const char *path, unsigned records)
{
    char error[256];
    struct gs_spool spool;
    struct gs_store_info info = {.run_id = "run", .command = "", .host = "", .pid = DEAD, .rank = -1};
    struct gs_store *s = gs_store_create(db, &info, error, sizeof error);
    FUZZ_CHECK(s, "%s", error);
    if (!gs_spool_open(&spool, path, error, sizeof error)) {
        struct gs_reader *r = gs_reader_open(&spool, NULL, 0);
        const struct gs_rec *rec;
        uint32_t thread;
        gs_reader_poll(r, 0, true);
        while (records-- && (rec = gs_reader_next(r, &thread)))
            FUZZ_CHECK(!gs_store_add(s, thread, rec), "%s", gs_store_error(s));
        FUZZ_CHECK(!gs_store_commit(s, r), "%s", gs_store_error(s));
        gs_reader_close(r);
        gs_spool_close(&spool);
    }
    gs_store_close(s);
}

static void damage(struct fuzz_bytes *b, const char *path)
{
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    while (b->left && size > 8) {
        const uint64_t at = fuzz_number(b, 3) % (uint64_t)(size - 8), v = fuzz_hostile(b);
        FUZZ_CHECK(pwrite(fd, &v, 1 + fuzz_u8(b) % 8, (off_t)at) > 0, "%s", path);
    }
    if (fd >= 0) close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char db[300], path[310], error[1024] = "";
    struct fuzz_bytes b = {data, size}, edits;
    const uint8_t how = fuzz_u8(&b), records = fuzz_u8(&b);
    uint32_t pid;
    snprintf(db, sizeof db, "%s/run.db", fuzz_folder());
    snprintf(path, sizeof path, "%s.spool", db);
    edits.at = fuzz_part(&b, fuzz_u8(&b), &edits.left);
    fuzz_unlink_database(db);
    fuzz_spool_file(&b, path, DEAD);
    if (how & 3) drain_some(db, path, records);
    if ((how & 3) == 2) fuzz_edit(&edits, db);
    if ((how & 3) == 3) damage(&edits, db);
    int rc = gs_recover(db, &pid, error, sizeof error);
    FUZZ_CHECK(rc != 2, "process %u", pid);
    FUZZ_CHECK(rc >= 0 || *error, "no reason");
    FUZZ_CHECK(rc != 1 || access(path, F_OK), "the spool is still there");
    if (how & 4) fuzz_report(db, how);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 23;
    for (size_t i = 0; i < 32; i++) {
        uint8_t bytes[1000];
        const size_t n = 60 + 28 * i;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)(ev_below(&random, 3) ? ev_below(&random, 24) : ev_below(&random, 256));
        bytes[0] = (uint8_t)i;
        bytes[2] = (uint8_t)(i % 4 > 1 ? 40 : 0);
        bytes[3 + bytes[2]] = (uint8_t)(i % 8);
        put(bytes, n);
    }
}
