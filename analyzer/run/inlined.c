/* Reads the inlined functions that `gpuspy symbolize` stores besides the frames' own columns, as separate frames. */
#include "analyzer/run/run_internal.h"

enum { INLINED_MAX = 256 };

struct chain {
    uint32_t frame; /* of the run */
    struct run_symbol_place places[INLINED_MAX];
    size_t n;
};

static bool is_table(struct run_database *db)
{
    sqlite3_stmt *st = run_database_prepare(db, "SELECT 1 FROM sqlite_master WHERE name = 'inlined_frame' AND "
                                                "type = 'table' AND sql NOT LIKE 'create virtual%'");
    bool found = st && sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

static void keep_chain(struct run *run, struct chain *c)
{
    struct run_frame *f = c->frame != RUN_NONE ? &run->frames[c->frame] : NULL;
    if (f && f->kind == GS_FRAME_NATIVE && !f->inlined) run_frame_set_inlined(run, f, c->places, c->n);
    c->n = 0;
}

void run_load_inlined(struct run *run, struct run_database *db, const struct run_ids *frames)
{
    sqlite3_stmt *st = is_table(db) ? run_database_prepare(db, "SELECT frame_id, function, file, line FROM "
                                                               "inlined_frame ORDER BY frame_id, level")
                                    : NULL;
    struct chain c = {.frame = RUN_NONE};
    int64_t before = RUN_UNKNOWN;
    while (st && sqlite3_step(st) == SQLITE_ROW) {
        int64_t id = sqlite3_column_int64(st, 0), line = sqlite3_column_int64(st, 3);
        if (id != before) {
            keep_chain(run, &c);
            c.frame = run_ids_get(frames, id);
            before = id;
        }
        if (c.n < INLINED_MAX) {
            c.places[c.n++] = (struct run_symbol_place){.function = run_column_text(run, st, 1),
                                                        .file = run_column_text(run, st, 2),
                                                        .line = line > 0 && line < INT32_MAX ? (int)line : 0};
        }
    }
    keep_chain(run, &c);
    sqlite3_finalize(st);
}

bool run_database_is_symbolized(struct run_database *db)
{
    sqlite3_stmt *st = run_database_prepare(db, "SELECT 1 FROM meta WHERE key = 'symbolized'");
    bool done = st && sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return done;
}

/* Attaches the functions that were inlined there, as separate frames. */
void run_frame_set_inlined(struct run *run, struct run_frame *f, const struct run_symbol_place *places, size_t n)
{
    struct run_frame *list = n > 1 ? arena_alloc(&run->arena, n * sizeof *list) : NULL;
    for (size_t i = 0; list && i < n; i++) {
        list[i] = *f;
        list[i].symbolised = true;
        list[i].function = run_text(run, places[i].function, RUN_TEXT_MAX);
        list[i].file = run_text(run, places[i].file, RUN_TEXT_MAX);
        list[i].line = places[i].line;
    }
    f->inlined = list;
    f->inlined_n = list ? (uint32_t)n : 0;
}
