/* Moves the content of the database's log into the database while recording, so that SQLite can restart the log. */
#include "schema/store_state.h"

#define BUSY_MS 5000
#define LOG_PAGES 1000     /* pages of the log after which each commit does so; SQLite's default */
#define LOG_PAGES_MAX 2000 /* from here on it must succeed: overlapping readers would let the log grow for ever */
#define LOG_COMMITS 4      /* once in this many commits it waits for readers to end */

/* SQLite can restart the log only when no program reads it. */
static int fold_log(void *store, sqlite3 *db, const char *name, int pages)
{
    struct gs_store *s = store;
    s->log_pages = (unsigned)pages;
    if (pages < LOG_PAGES) return SQLITE_OK;
    const bool wait = pages >= LOG_PAGES_MAX && ++s->long_logs % LOG_COMMITS == 0;
    if (wait) sqlite3_busy_timeout(db, GS_READERS_MS);
    (void)sqlite3_wal_checkpoint_v2(db, name, wait ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    if (wait) sqlite3_busy_timeout(db, BUSY_MS);
    return SQLITE_OK;
}

bool gs_store_log_is_held(struct gs_store *s, int patience_ms)
{
    if (s->log_pages < LOG_PAGES) return false;
    sqlite3_busy_timeout(s->db, patience_ms);
    if (sqlite3_wal_checkpoint_v2(s->db, "main", SQLITE_CHECKPOINT_RESTART, NULL, NULL) == SQLITE_OK) s->log_pages = 0;
    sqlite3_busy_timeout(s->db, BUSY_MS);
    return s->log_pages > 0;
}

void gs_store_log_start(struct gs_store *s)
{
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_wal_hook(s->db, fold_log, s);
}
