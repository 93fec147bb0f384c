/* Frames and stacks of all databases in one numbering. */
#include "analyzer/run/run_internal.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"

const struct run_frame *run_operation_frame(struct run *run, const char *name)
{
    for (size_t i = 0; i < run->operations_n; i++)
        if (run->operations[i]->function == name) return run->operations[i];
    struct run_frame *f = arena_alloc(&run->arena, sizeof *f);
    *f = (struct run_frame){.kind = GS_FRAME_NATIVE, .rank = RUN_RANK_LIBRARY, .symbolised = true, .function = name};
    *ARENA_ADD(run->operations) = f;
    return f;
}

uint32_t run_frame_add(struct run *run, const struct run_frame *f)
{
    uint64_t hash = (uintptr_t)f->function;
    uint64_t parts[] = {(uintptr_t)f->file, (uintptr_t)f->module, (uintptr_t)f->build_id, f->offset,
                        (uint64_t)f->line << 8 | f->kind};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) hash = map_hash(hash) + parts[i];
    uint32_t *head = map_at(&run->frame_map, hash);
    for (uint32_t i = *head; i != RUN_NONE; i = run->frame_next[i]) {
        const struct run_frame *g = &run->frames[i];
        if (g->function == f->function && g->file == f->file && g->module == f->module && g->build_id == f->build_id &&
            g->offset == f->offset && g->line == f->line && g->kind == f->kind)
            return i;
    }
    size_t cap = run->frames_cap;
    run->frame_next = arena_grow(run->frame_next, run->frames_n, &cap, sizeof *run->frame_next);
    run->frame_next[run->frames_n] = *head;
    *ARENA_ADD(run->frames) = *f;
    return *head = (uint32_t)(run->frames_n - 1);
}

/* The rows after the last one that was read; all of them if none was. */
static sqlite3_stmt *rows_after(struct run_database *db, const char *sql, int64_t last)
{
    sqlite3_stmt *st = run_database_prepare(db, sql);
    sqlite3_bind_int64(st, 1, last);
    return st;
}

static void seen_row(int64_t *last, int64_t id)
{
    *last = id > *last ? id : *last;
}

static const struct {
    const char *prefix;
    uint8_t rank;
} modules[] = {
    {"libgpuspy", RUN_RANK_PLUMBING},  {"libcuda", RUN_RANK_PLUMBING},  {"libnvidia", RUN_RANK_PLUMBING},
    {"libnvrtc", RUN_RANK_PLUMBING},   {"ld-linux", RUN_RANK_PLUMBING}, {"[vdso]", RUN_RANK_PLUMBING},
    {"libc.so", RUN_RANK_PLUMBING},    {"libc-", RUN_RANK_PLUMBING},    {"libpthread", RUN_RANK_PLUMBING},
    {"libdl", RUN_RANK_PLUMBING},      {"libcublas", RUN_RANK_LIBRARY}, {"libcudnn", RUN_RANK_LIBRARY},
    {"libnccl", RUN_RANK_LIBRARY},     {"libcufft", RUN_RANK_LIBRARY},  {"libcusparse", RUN_RANK_LIBRARY},
    {"libcusolver", RUN_RANK_LIBRARY}, {"libcurand", RUN_RANK_LIBRARY}, {"libtorch", RUN_RANK_LIBRARY},
    {"libc10", RUN_RANK_LIBRARY},      {"libstdc++", RUN_RANK_LIBRARY}, {"libgcc", RUN_RANK_LIBRARY},
    {"libgomp", RUN_RANK_LIBRARY},     {"libffi", RUN_RANK_PLUMBING},   {"_ctypes", RUN_RANK_LIBRARY},
    {"libpython", RUN_RANK_LIBRARY},   {"python3", RUN_RANK_LIBRARY},   {"libm.so", RUN_RANK_LIBRARY},
};

/* Interpreters of which gpuspy records no lines. */
static const struct {
    const char *prefix, *language;
} interpreters[] = {
    {"libjvm.", "Java"}, {"libjli.", "Java"},   {"libjnidispatch", "Java"}, /* JNA */
    {"libR.so", "R"},    {"libjulia", "Julia"}, {"libruby", "Ruby"},        {"libluajit", "Lua"},
    {"luajit", "Lua"},   {"liblua5", "Lua"},    {"libnode.", "JavaScript"}, {"libcoreclr.", "C#"},
};

const char *run_module_language(const char *module)
{
    const char *base = module ? basename(module) : "";
    for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters; i++)
        if (strncmp(base, interpreters[i].prefix, strlen(interpreters[i].prefix)) == 0) return interpreters[i].language;
    return NULL;
}

uint8_t run_module_rank(const char *module)
{
    if (!module || run_module_language(module)) return RUN_RANK_LIBRARY;
    const char *base = basename(module);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
        if (strncmp(base, modules[i].prefix, strlen(modules[i].prefix)) == 0) return modules[i].rank;
    bool packaged = strstr(module, "/site-packages/") || strstr(module, "/dist-packages/");
    return packaged ? RUN_RANK_LIBRARY : RUN_RANK_OWN;
}

static bool load_modules(struct run *run, struct run_database *db, struct run_names_seen *seen, char *error,
                         size_t error_size)
{
    sqlite3_stmt *st = rows_after(db, "SELECT id, path, build_id FROM module WHERE id > ?", seen->module);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        seen_row(&seen->module, sqlite3_column_int64(st, 0));
        run_ids_set(&seen->modules, sqlite3_column_int64(st, 0), (uint32_t)seen->list_n);
        const char *path = run_column_text(run, st, 1);
        *ARENA_ADD(seen->list) = (struct run_module_name){path, run_column_text(run, st, 2), run_module_rank(path)};
    }
    return run_finish_rows(db, st, rc, error, error_size);
}

static bool load_frames(struct run *run, struct run_database *db, struct run_names_seen *seen, char *error,
                        size_t error_size)
{
    bool symbolized = run_database_is_symbolized(db);
    if (!load_modules(run, db, seen, error, error_size)) return false;
    run_load_installed(run, db);
    sqlite3_stmt *st =
        rows_after(db, "SELECT id, kind, function, file, line, module_id, offset FROM frame WHERE id > ?", seen->frame);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        seen_row(&seen->frame, sqlite3_column_int64(st, 0));
        int64_t line = sqlite3_column_int64(st, 4);
        struct run_frame f = {.kind =
                                  sqlite3_column_int64(st, 1) == GS_FRAME_PYTHON ? GS_FRAME_PYTHON : GS_FRAME_NATIVE,
                              .rank = RUN_RANK_LIBRARY,
                              .function = run_column_text(run, st, 2),
                              .file = run_column_text(run, st, 3),
                              .line = line > 0 && line < INT32_MAX ? (int)line : 0,
                              .offset = (uint64_t)sqlite3_column_int64(st, 6)};
        if (!f.file && f.function && strcmp(f.function, "(deeper frames cut)") == 0) f.rank = RUN_RANK_PLUMBING;
        f.installed = map_get(&run->installed, (uintptr_t)f.file) != MAP_NEW;
        uint32_t module = run_ids_get(&seen->modules, run_column_int(st, 5));
        if (f.kind == GS_FRAME_NATIVE && module != RUN_NONE) {
            f.module = seen->list[module].path;
            f.build_id = seen->list[module].build_id;
            f.rank = seen->list[module].rank;
            /* On another machine a file of that name may be a different one; the machine that symbolized knew. */
            f.symbolised = symbolized && !f.build_id;
        }
        run_ids_set(&seen->frames, sqlite3_column_int64(st, 0), run_frame_add(run, &f));
    }
    return run_finish_rows(db, st, rc, error, error_size);
}

struct row {
    int64_t id, parent;
    uint32_t frame;
    uint32_t walk; /* the last walk that passed here, to detect cycles */
};

struct rows {
    struct row *list;
    size_t n, cap;
    struct run_ids index; /* stack id → row */
};

uint32_t run_stack_add(struct run *run, uint32_t parent, uint32_t frame)
{
    uint32_t depth = parent == RUN_NONE ? 1 : run->stacks[parent].depth + 1;
    if (depth > RUN_DEPTH_MAX) { /* the recorder's own limit is far lower: the file was made by hand */
        parent = RUN_NONE;
        depth = 1;
    }
    return MAP_INDEX_IN(&run->stack_map, (uint64_t)parent << 32 | frame, run->stacks,
                        (struct run_stack_node){.parent = parent, .frame = frame, .depth = depth});
}

/* Adds the row and every caller of it that is missing, root first. Parents usually come before their children; a chain
 * that returns to itself (or refers to nothing) is cut there. */
static void resolve_stack_row(struct run *run, struct run_database *db, struct rows *rows, uint32_t row,
                              uint32_t **path, size_t *path_cap)
{
    size_t n = 0;
    uint32_t parent = RUN_NONE, walk = row + 1;
    while (row != RUN_NONE && n < RUN_DEPTH_MAX && rows->list[row].walk != walk) {
        uint32_t known = run_ids_get(&db->stacks, rows->list[row].id);
        if (known != RUN_NONE) {
            parent = known;
            break;
        }
        rows->list[row].walk = walk;
        *ARENA_PUSH(*path, n, *path_cap) = row;
        int64_t above = rows->list[row].parent;
        row = above == RUN_UNKNOWN ? RUN_NONE : run_ids_get(&rows->index, above);
        if (row == RUN_NONE && above != RUN_UNKNOWN) /* one that was read before */
            parent = run_ids_get(&db->stacks, above);
    }
    while (n--) {
        struct row *r = &rows->list[(*path)[n]];
        parent = run_stack_add(run, parent, r->frame);
        run_ids_set(&db->stacks, r->id, parent);
    }
}

static bool read_stacks(struct run *run, struct run_database *db, struct run_names_seen *seen, struct rows *rows,
                        char *error, size_t error_size)
{
    sqlite3_stmt *st = rows_after(db, "SELECT id, parent_id, frame_id FROM stack WHERE id > ?", seen->stack);
    uint64_t n = 0;
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        run_show_progress(run, "stacks", ++n, 0);
        seen_row(&seen->stack, sqlite3_column_int64(st, 0));
        struct row r = {.id = sqlite3_column_int64(st, 0),
                        .parent = run_column_int(st, 1),
                        .frame = run_ids_get(&seen->frames, sqlite3_column_int64(st, 2))};
        if (r.frame == RUN_NONE) continue;
        run_ids_set(&rows->index, r.id, (uint32_t)rows->n);
        *ARENA_PUSH(rows->list, rows->n, rows->cap) = r;
    }
    return run_finish_rows(db, st, rc, error, error_size);
}

bool run_load_names(struct run *run, struct run_database *db, struct run_names_seen *seen, char *error,
                    size_t error_size)
{
    struct rows rows = {0};
    uint32_t *path = NULL;
    size_t path_cap = 0;
    const bool first = seen->frame == INT64_MIN;
    bool ok = load_frames(run, db, seen, error, error_size) && read_stacks(run, db, seen, &rows, error, error_size);
    if (ok && first) run_load_inlined(run, db, &seen->frames);
    for (size_t i = 0; ok && i < rows.n; i++) resolve_stack_row(run, db, &rows, (uint32_t)i, &path, &path_cap);
    ARENA_RELEASE(path, rows.list);
    run_ids_free(&rows.index);
    return ok;
}

bool run_load_stacks(struct run *run, struct run_database *db, char *error, size_t error_size)
{
    struct run_names_seen seen = {.module = INT64_MIN, .frame = INT64_MIN, .stack = INT64_MIN};
    bool ok = run_load_names(run, db, &seen, error, error_size);
    run_names_seen_free(&seen);
    return ok;
}

void run_names_seen_free(struct run_names_seen *seen)
{
    run_ids_free(&seen->modules);
    run_ids_free(&seen->frames);
    free(seen->list);
    *seen = (struct run_names_seen){0};
}

void run_stacks_free(struct run *run)
{
    texts_free(&run->strings);
    ARENA_RELEASE(run->frames, run->frame_next);
    MAP_RELEASE(&run->frame_map, &run->file_notes, &run->installed, &run->stack_map);
    ARENA_RELEASE(run->stacks, run->operations);
}

size_t run_stack_count(const struct run *run)
{
    return run->stacks_n;
}

uint32_t run_stack_parent(const struct run *run, uint32_t stack)
{
    return stack < run->stacks_n ? run->stacks[stack].parent : RUN_NONE;
}

uint32_t run_stack_python(const struct run *run, uint32_t stack)
{
    const struct run_frame *f;
    while ((f = run_stack_frame(run, stack)) != NULL && (f->kind != GS_FRAME_PYTHON || run_frame_is_cut(f)))
        stack = run_stack_parent(run, stack);
    return f ? stack : RUN_NONE;
}

bool run_path_has(const char *path, const char *part)
{
    static const char *const installed[] = {"-packages/", "/lib/python3"};
    const char *at = path ? strstr(path, part) : NULL, *in;
    for (size_t i = 0; i < sizeof installed / sizeof *installed; i++)
        while (at && (in = strstr(at, installed[i])) != NULL) at = strstr(in + strlen(installed[i]) - 1, part);
    return at != NULL;
}

static bool has_part(const char *text, const char *part)
{
    return !part || (text && strstr(text, part));
}

bool run_stack_is_in(const struct run *run, uint32_t stack, const char *file, const char *function)
{
    return RUN_ANY_FRAME(f, run, stack,
                         f->kind == GS_FRAME_PYTHON && (!file || run_path_has(f->file, file)) &&
                             has_part(f->function, function));
}

bool run_frame_calls_closure(const struct run_frame *caller, const struct run_frame *called)
{
    static const char optimizers[] = "/torch/optim/";
    const char *file = caller->kind == GS_FRAME_PYTHON && caller->file ? strstr(caller->file, optimizers) : NULL;
    if (!file || !called || strcmp(file + strlen(optimizers), "optimizer.py") == 0) return false;
    const size_t torch = (size_t)(file - caller->file) + strlen("/torch/");
    return strcmp(text_last_part(caller->function), "step") == 0 && strncmp(called->file, caller->file, torch) != 0;
}

bool run_stack_is_in_closure(const struct run *run, uint32_t stack)
{
    const struct run_frame *f, *called = NULL;
    bool closure = false;
    for (; (f = run_stack_frame(run, stack)) != NULL && !closure; stack = run_stack_parent(run, stack)) {
        closure = run_frame_calls_closure(f, called);
        if (f->kind == GS_FRAME_PYTHON && f->file && !strstr(f->file, "/torch/utils/_contextlib.py")) called = f;
    }
    return closure;
}

uint32_t run_stack_depth(const struct run *run, uint32_t stack)
{
    return stack < run->stacks_n ? run->stacks[stack].depth : 0;
}

const struct run_frame *run_stack_frame(const struct run *run, uint32_t stack)
{
    return stack < run->stacks_n ? &run->frames[run->stacks[stack].frame] : NULL;
}

static void name_frame(struct run *run, struct run_frame *f)
{
    const struct run_symbol_more *more = run->options.symbol_more;
    const char *function = NULL, *file = NULL;
    const struct run_symbol_place *places = NULL;
    int line = 0;
    if (!run->options.symbol(run->options.symbol_data, f->module, f->build_id, f->offset, &function, &file, &line))
        return;
    f->function = run_text(run, function, RUN_TEXT_MAX);
    f->file = run_text(run, file, RUN_TEXT_MAX);
    f->line = line;
    size_t n =
        more && more->inlined ? more->inlined(run->options.symbol_data, f->module, f->build_id, f->offset, &places) : 0;
    run_frame_set_inlined(run, f, places, n);
}

const struct run_frame *run_frame_named(struct run *run, uint32_t stack)
{
    struct run_frame *f = (struct run_frame *)run_stack_frame(run, stack);
    if (!f || f->kind != GS_FRAME_NATIVE || f->symbolised || !run->options.symbol || !f->module) return f;
    f->symbolised = true;
    if (!f->function && !f->file) name_frame(run, f);
    return f;
}

bool run_stack_is_located(const struct run *run, uint32_t stack)
{
    return RUN_ANY_FRAME(f, run, stack, f->file || f->module || f->offset);
}

const struct run_frame *run_frame_calling(const struct run_frame *frame, const char *prefix, const char *part)
{
    const struct run_frame *places = frame->inlined_n ? frame->inlined : frame;
    for (size_t i = 0; i < (frame->inlined_n ? frame->inlined_n : 1); i++) {
        const char *function = places[i].function;
        if (function && (!prefix || strncmp(function, prefix, strlen(prefix)) == 0) && strstr(function, part))
            return &places[i];
    }
    return NULL;
}

bool run_stack_calls(struct run *run, uint32_t stack, const char *part)
{
    RUN_EACH_FRAME (frame, run, stack)
        if (frame->kind == GS_FRAME_NATIVE && frame->rank < RUN_RANK_PLUMBING &&
            run_frame_calling(run_frame_named(run, stack), NULL, part))
            return true;
    return false;
}

bool run_stack_enters(const struct run *run, uint32_t stack, const char *part)
{
    RUN_EACH_FRAME (frame, run, stack) {
        if (frame->kind == GS_FRAME_PYTHON) break;
        if (frame->function && strstr(frame->function, part)) return true;
    }
    return false;
}

const struct run_frame *run_frame_places(struct run *run, uint32_t stack, size_t *n)
{
    const struct run_frame *f = run_frame_named(run, stack);
    *n = !f ? 0 : f->inlined_n ? f->inlined_n : 1;
    return f && f->inlined_n ? f->inlined : f;
}

uint32_t *run_file_note(struct run *run, const char *file)
{
    return map_at(&run->file_notes, (uintptr_t)file);
}
