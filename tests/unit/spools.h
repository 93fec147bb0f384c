/* Shared by the tests of spools: a folder for each program, a spool in it, marks to write. */
#pragma once

#include "tests/unit/events.h"
#include "schema/record.h"
#include "schema/spool_file.h"

static char *folder;
static char path[300];

static inline void create(struct gs_spool *s, const char *where)
{
    int error = gs_spool_create(s, where, "run", "command", 1, 2);
    if (error) fail_msg("%s", strerror(error));
}

static inline void drop(struct gs_spool *s, const char *where)
{
    if (where) gs_spool_unlink(s, where);
    gs_spool_close(s);
    assert_true(!where || access(where, F_OK));
}

/* A mark with a number, padded to `bytes`. */
static inline bool put(struct gs_writer *w, uint64_t time, uint32_t number, uint32_t bytes)
{
    struct gs_rec_mark *r = gs_writer_reserve(w, bytes);
    if (!r) return false;
    memset(r, 0, sizeof *r);
    r->rec.size = (uint16_t)bytes;
    r->rec.type = GS_REC_MARK;
    r->rec.time_ns = time;
    r->id = number;
    gs_writer_commit(w, bytes);
    return true;
}

static inline int setup(void **state)
{
    folder = ev_folder();
    snprintf(path, sizeof path, "%s/run.db.spool", folder);
    return 0;
}

static inline int teardown(void **state)
{
    ev_remove_folder(folder);
    return 0;
}
