/* Frames and stacks of all databases in one numbering. */
#include "analyzer/run/run_internal.h"

#include <stdlib.h>
#include <string.h>

/* --- frames ------------------------------------------------------------------------------------
 */

const struct gs_frame *gs_run_operation(struct gs_run *run, const char *name)
{
    for (size_t i = 0; i < run->operations_n; i++) {
        if (run->operations[i]->function == name) {
            return run->operations[i];
        }
    }
    struct gs_frame *f = gs_arena_alloc(&run->arena, sizeof *f);
    *f = (struct gs_frame){.kind = GS_FRAME_NATIVE, .symbolised = true, .function = name};
    *GS_PUSH(run->operations, run->operations_n, run->operations_cap) = f;
    return f;
}

static uint32_t add_frame(struct gs_run *run, const struct gs_frame *f)
{
    uint64_t hash = (uintptr_t)f->function;
    uint64_t parts[] = {(uintptr_t)f->file, (uintptr_t)f->module, (uintptr_t)f->build_id, f->offset,
                        (uint64_t)f->line << 8 | f->kind};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        hash = gs_hash64(hash) + parts[i];
    }
    uint32_t *head = gs_map_at(&run->frame_map, hash);
    for (uint32_t i = *head; i != GS_NONE; i = run->frame_next[i]) {
        const struct gs_frame *g = &run->frames[i];
        if (g->function == f->function && g->file == f->file && g->module == f->module && g->build_id == f->build_id &&
            g->offset == f->offset && g->line == f->line && g->kind == f->kind) {
            return i;
        }
    }
    size_t cap = run->frames_cap;
    run->frame_next = gs_grow(run->frame_next, run->frames_n, &cap, sizeof *run->frame_next);
    run->frame_next[run->frames_n] = *head;
    *GS_PUSH(run->frames, run->frames_n, run->frames_cap) = *f;
    return *head = (uint32_t)(run->frames_n - 1);
}

static bool done(struct gs_database *db, sqlite3_stmt *st, int rc, char *error, size_t error_size)
{
    sqlite3_finalize(st);
    return rc == SQLITE_DONE || gs_database_bad(db, error, error_size);
}

/* What lies behind a row that was read before; all of it where none was. */
static sqlite3_stmt *rows_after(struct gs_database *db, const char *sql, int64_t last)
{
    sqlite3_stmt *st = gs_prepare(db, sql);
    sqlite3_bind_int64(st, 1, last);
    return st;
}

static void seen_row(int64_t *last, int64_t id)
{
    *last = id > *last ? id : *last;
}

static bool load_modules(struct gs_run *run, struct gs_database *db, struct gs_names_seen *seen, char *error,
                         size_t error_size)
{
    sqlite3_stmt *st = rows_after(db, "SELECT id, path, build_id FROM module WHERE id > ?", seen->module);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        seen_row(&seen->module, sqlite3_column_int64(st, 0));
        gs_ids_set(&seen->modules, sqlite3_column_int64(st, 0), (uint32_t)seen->list_n);
        *GS_PUSH(seen->list, seen->list_n, seen->list_cap) =
            (struct gs_module_name){gs_column_text(run, st, 1), gs_column_text(run, st, 2)};
    }
    return done(db, st, rc, error, error_size);
}

static bool load_frames(struct gs_run *run, struct gs_database *db, struct gs_names_seen *seen, char *error,
                        size_t error_size)
{
    bool symbolized = gs_symbolized(db);
    if (!load_modules(run, db, seen, error, error_size)) {
        return false;
    }
    sqlite3_stmt *st =
        rows_after(db, "SELECT id, kind, function, file, line, module_id, offset FROM frame WHERE id > ?", seen->frame);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        seen_row(&seen->frame, sqlite3_column_int64(st, 0));
        int64_t line = sqlite3_column_int64(st, 4);
        struct gs_frame f = {.kind = sqlite3_column_int64(st, 1) == GS_FRAME_PYTHON ? GS_FRAME_PYTHON : GS_FRAME_NATIVE,
                             .function = gs_column_text(run, st, 2),
                             .file = gs_column_text(run, st, 3),
                             .line = line > 0 && line < INT32_MAX ? (int)line : 0,
                             .offset = (uint64_t)sqlite3_column_int64(st, 6)};
        uint32_t module = gs_ids_get(&seen->modules, gs_column_int(st, 5));
        if (f.kind == GS_FRAME_NATIVE && module != GS_NONE) {
            f.module = seen->list[module].path;
            f.build_id = seen->list[module].build_id;
            /* Elsewhere a file of that name may be any: who symbolized knew. */
            f.symbolised = symbolized && !f.build_id;
        }
        gs_ids_set(&seen->frames, sqlite3_column_int64(st, 0), add_frame(run, &f));
    }
    return done(db, st, rc, error, error_size);
}

/* --- stacks ------------------------------------------------------------------------------------
 */

struct row {
    int64_t id, parent;
    uint32_t frame;
    uint32_t walk; /* the last walk that passed here, to see circles */
};

struct rows {
    struct row *list;
    size_t n, cap;
    struct gs_ids index; /* stack id → row */
};

uint32_t gs_stack_add(struct gs_run *run, uint32_t parent, uint32_t frame)
{
    uint32_t depth = parent == GS_NONE ? 1 : run->stacks[parent].depth + 1;
    if (depth > GS_DEPTH_MAX) { /* the file's own limit is far lower: somebody made this one */
        parent = GS_NONE;
        depth = 1;
    }
    uint32_t *at = gs_map_at(&run->stack_map, (uint64_t)parent << 32 | frame);
    if (*at == GS_MAP_NEW) {
        *at = (uint32_t)run->stacks_n;
        *GS_PUSH(run->stacks, run->stacks_n, run->stacks_cap) =
            (struct gs_stack_node){.parent = parent, .frame = frame, .depth = depth};
    }
    return *at;
}

/* Adds the row and every caller of it that is not there yet, root first. Parents usually stand
 * before their children; a chain that comes back to itself (or to nothing) is cut there. */
static void resolve(struct gs_run *run, struct gs_database *db, struct rows *rows, uint32_t row, uint32_t **path,
                    size_t *path_cap)
{
    size_t n = 0;
    uint32_t parent = GS_NONE, walk = row + 1;
    while (row != GS_NONE && n < GS_DEPTH_MAX && rows->list[row].walk != walk) {
        uint32_t known = gs_ids_get(&db->stacks, rows->list[row].id);
        if (known != GS_NONE) {
            parent = known;
            break;
        }
        rows->list[row].walk = walk;
        *GS_PUSH(*path, n, *path_cap) = row;
        int64_t above = rows->list[row].parent;
        row = above == GS_UNKNOWN ? GS_NONE : gs_ids_get(&rows->index, above);
        if (row == GS_NONE && above != GS_UNKNOWN) { /* one that was read before */
            parent = gs_ids_get(&db->stacks, above);
        }
    }
    while (n--) {
        struct row *r = &rows->list[(*path)[n]];
        parent = gs_stack_add(run, parent, r->frame);
        gs_ids_set(&db->stacks, r->id, parent);
    }
}

static bool read_stacks(struct gs_run *run, struct gs_database *db, struct gs_names_seen *seen, struct rows *rows,
                        char *error, size_t error_size)
{
    sqlite3_stmt *st = rows_after(db, "SELECT id, parent_id, frame_id FROM stack WHERE id > ?", seen->stack);
    uint64_t n = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        gs_progress(run, "stacks", ++n, 0);
        seen_row(&seen->stack, sqlite3_column_int64(st, 0));
        struct row r = {.id = sqlite3_column_int64(st, 0),
                        .parent = gs_column_int(st, 1),
                        .frame = gs_ids_get(&seen->frames, sqlite3_column_int64(st, 2))};
        if (r.frame == GS_NONE) {
            continue;
        }
        gs_ids_set(&rows->index, r.id, (uint32_t)rows->n);
        *GS_PUSH(rows->list, rows->n, rows->cap) = r;
    }
    return done(db, st, rc, error, error_size);
}

bool gs_load_names(struct gs_run *run, struct gs_database *db, struct gs_names_seen *seen, char *error,
                   size_t error_size)
{
    struct rows rows = {0};
    uint32_t *path = NULL;
    size_t path_cap = 0;
    const bool first = seen->frame == INT64_MIN;
    bool ok = load_frames(run, db, seen, error, error_size) && read_stacks(run, db, seen, &rows, error, error_size);
    if (ok && first) {
        gs_load_inlined(run, db, &seen->frames);
    }
    for (size_t i = 0; ok && i < rows.n; i++) {
        resolve(run, db, &rows, (uint32_t)i, &path, &path_cap);
    }
    free(path);
    free(rows.list);
    gs_ids_free(&rows.index);
    return ok;
}

bool gs_load_stacks(struct gs_run *run, struct gs_database *db, char *error, size_t error_size)
{
    struct gs_names_seen seen = {.module = INT64_MIN, .frame = INT64_MIN, .stack = INT64_MIN};
    bool ok = gs_load_names(run, db, &seen, error, error_size);
    gs_names_seen_free(&seen);
    return ok;
}

void gs_names_seen_free(struct gs_names_seen *seen)
{
    gs_ids_free(&seen->modules);
    gs_ids_free(&seen->frames);
    free(seen->list);
    *seen = (struct gs_names_seen){0};
}

void gs_stacks_free(struct gs_run *run)
{
    free(run->strings);
    free(run->frames);
    free(run->frame_next);
    gs_map_free(&run->frame_map);
    free(run->stacks);
    gs_map_free(&run->stack_map);
    free(run->operations);
}

/* --- what callers see
 * ----------------------------------------------------------------------------- */

size_t gs_run_stacks(const struct gs_run *run)
{
    return run->stacks_n;
}

uint32_t gs_stack_parent(const struct gs_run *run, uint32_t stack)
{
    return stack < run->stacks_n ? run->stacks[stack].parent : GS_NONE;
}

uint32_t gs_stack_python(const struct gs_run *run, uint32_t stack)
{
    while (stack != GS_NONE && gs_stack_frame(run, stack)->kind != GS_FRAME_PYTHON) {
        stack = gs_stack_parent(run, stack);
    }
    return stack;
}

static bool has_part(const char *text, const char *part)
{
    return !part || (text && strstr(text, part));
}

bool gs_stack_in(const struct gs_run *run, uint32_t stack, const char *file, const char *function)
{
    const struct gs_frame *f;
    for (; (f = gs_stack_frame(run, stack)) != NULL; stack = gs_stack_parent(run, stack)) {
        if (f->kind == GS_FRAME_PYTHON && has_part(f->file, file) && has_part(f->function, function)) {
            return true;
        }
    }
    return false;
}

uint32_t gs_stack_depth(const struct gs_run *run, uint32_t stack)
{
    return stack < run->stacks_n ? run->stacks[stack].depth : 0;
}

const struct gs_frame *gs_stack_frame(const struct gs_run *run, uint32_t stack)
{
    return stack < run->stacks_n ? &run->frames[run->stacks[stack].frame] : NULL;
}

static void name_frame(struct gs_run *run, struct gs_frame *f)
{
    const struct gs_symbol_more *more = run->options.symbol_more;
    const char *function = NULL, *file = NULL;
    const struct gs_symbol_place *places = NULL;
    int line = 0;
    if (!run->options.symbol(run->options.symbol_data, f->module, f->build_id, f->offset, &function, &file, &line)) {
        return;
    }
    f->function = gs_intern(run, function, GS_TEXT_MAX);
    f->file = gs_intern(run, file, GS_TEXT_MAX);
    f->line = line;
    size_t n =
        more && more->inlined ? more->inlined(run->options.symbol_data, f->module, f->build_id, f->offset, &places) : 0;
    gs_frame_inlined(run, f, places, n);
}

const struct gs_frame *gs_frame_named(struct gs_run *run, uint32_t stack)
{
    struct gs_frame *f = (struct gs_frame *)gs_stack_frame(run, stack);
    if (!f || f->kind != GS_FRAME_NATIVE || f->symbolised || !run->options.symbol || !f->module) {
        return f;
    }
    f->symbolised = true;
    if (!f->function && !f->file) {
        name_frame(run, f);
    }
    return f;
}

const struct gs_frame *gs_frame_calling(const struct gs_frame *frame, const char *prefix, const char *part)
{
    const struct gs_frame *places = frame->inlined_n ? frame->inlined : frame;
    for (size_t i = 0; i < (frame->inlined_n ? frame->inlined_n : 1); i++) {
        const char *function = places[i].function;
        if (function && (!prefix || strncmp(function, prefix, strlen(prefix)) == 0) && strstr(function, part)) {
            return &places[i];
        }
    }
    return NULL;
}

bool gs_stack_calls(struct gs_run *run, uint32_t stack, const char *part)
{
    const struct gs_frame *frame;
    for (; (frame = gs_stack_frame(run, stack)) != NULL; stack = gs_stack_parent(run, stack)) {
        if (frame->kind == GS_FRAME_NATIVE && gs_frame_calling(gs_frame_named(run, stack), NULL, part)) {
            return true;
        }
    }
    return false;
}

const struct gs_frame *gs_frame_places(struct gs_run *run, uint32_t stack, size_t *n)
{
    const struct gs_frame *f = gs_frame_named(run, stack);
    *n = !f ? 0 : f->inlined_n ? f->inlined_n : 1;
    return f && f->inlined_n ? f->inlined : f;
}
