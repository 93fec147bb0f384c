#include "analyzer/base/arena.h"
#include "analyzer/sql/sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/site/site.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/run/backward.h"

enum { TEXT_MAX = 1 << 16 };

/* Through separate connections: the other one may have a union of several instead. */
static struct run *session_run(struct sql_session *s)
{
    char error[512];
    if (s->run) return s->run;
    s->run = arena_realloc(NULL, 1, sizeof *s->run);
    *s->run = (struct run){.options = {.symbol = s->symbol, .symbol_data = s->symbol_data}};
    for (size_t i = 0; i < s->n; i++) {
        struct run_database *d = &s->databases[i], *with = ARENA_ADD(s->run->databases);
        *with = (struct run_database){.opened = strdup(d->opened), .recording = d->recording};
        if (run_database_open(s->run, with, d->path, error, sizeof error))
            (void)run_load(s->run, s->run->databases_n - 1, error, sizeof error);
        with = &s->run->databases[i];
        d->stacks = with->stacks;
        with->stacks = (struct run_ids){0};
    }
    run_load_finish(s->run);
    run_name_cells(s->run);
    run_backward_prepare(s->run);
    site_helpers(s->run, &s->helpers);
    const uint32_t n = (uint32_t)run_stack_count(s->run);
    s->python = arena_realloc(NULL, (size_t)n + 1, sizeof *s->python);
    s->site_of_stack = arena_zeroed((size_t)n + 1, sizeof *s->site_of_stack);
    for (uint32_t i = 0; i < n; i++) { /* callers come first */
        const uint32_t parent = run_stack_parent(s->run, i);
        s->python[i] = run_stack_frame(s->run, i)->kind == GS_FRAME_PYTHON ? i
                       : parent != RUN_NONE                                ? s->python[parent]
                                                                           : RUN_NONE;
    }
    return s->run;
}

static uint32_t sql_stack_of(struct sql_session *s, sqlite3_value *value)
{
    (void)session_run(s);
    int64_t id = sqlite3_value_int64(value), process = id / SQL_STRIDE;
    if (sqlite3_value_type(value) != SQLITE_INTEGER || id < 0 || process >= (int64_t)s->n) return RUN_NONE;
    return run_ids_get(&s->databases[process].stacks, id % SQL_STRIDE);
}

#define FUNCTION(name) static void name(sqlite3_context *c, int n, sqlite3_value **v)

FUNCTION(fn_bytes)
{
    char text[UNITS_TEXT];
    if (sqlite3_value_type(v[0]) == SQLITE_NULL) return;
    int64_t bytes = sqlite3_value_int64(v[0]);
    if (bytes < 0)
        units_format_bytes_signed(text, bytes);
    else
        units_format_bytes(text, (uint64_t)bytes);
    sqlite3_result_text(c, text, -1, SQLITE_TRANSIENT);
}

FUNCTION(fn_seconds)
{
    char text[UNITS_TEXT];
    if (sqlite3_value_type(v[0]) == SQLITE_NULL) return;
    double seconds = sqlite3_value_double(v[0]) / 1e9;
    text[0] = '-';
    units_format_seconds(text + (seconds < 0), seconds < 0 ? -seconds : seconds);
    sqlite3_result_text(c, text, -1, SQLITE_TRANSIENT);
}

/* Computed once per stack: a view uses it in each row, column by column. */
static const struct result_site *known_site(struct sql_session *s, uint32_t stack)
{
    if (!s->site_of_stack[stack]) {
        const struct result_site site = site_of(s->run, run_backward_stack_of_line(s->run, stack), &s->helpers);
        *ARENA_ADD(s->sites) = site;
        s->site_of_stack[stack] = (uint32_t)s->sites_n;
    }
    return &s->sites[s->site_of_stack[stack] - 1];
}

FUNCTION(fn_site)
{
    struct sql_session *s = sqlite3_user_data(c);
    uint32_t stack = sql_stack_of(s, v[0]);
    char text[TEXT_MAX];
    if (stack == RUN_NONE) return;
    struct result_site site = *known_site(s, stack);
    char function[1024];
    if (site.function && site.kind == GS_FRAME_NATIVE) /* C++ without its template arguments */
        site.function = text_function(function, sizeof function, site.function, 400, true);
    site_text(&site, text, sizeof text);
    sqlite3_result_text(c, text, -1, SQLITE_TRANSIENT);
}

/* Root first, as Python prints a traceback; native frames only if there are none of Python. */
FUNCTION(fn_stack_text)
{
    struct sql_session *s = sqlite3_user_data(c);
    uint32_t stack = sql_stack_of(s, v[0]), path[RUN_DEPTH_MAX];
    size_t depth = 0, size = 0;
    char *text = NULL;
    if (stack == RUN_NONE) return;
    const bool python = s->python[stack] != RUN_NONE;
    for (uint32_t at = stack; at != RUN_NONE && depth < RUN_DEPTH_MAX; at = run_stack_parent(s->run, at))
        if (!python || run_stack_frame(s->run, at)->kind == GS_FRAME_PYTHON) path[depth++] = at;
    FILE *out = arena_stream(&text, &size);
    for (size_t i = depth; i-- > 0;) {
        const struct run_frame *f = run_frame_named(s->run, path[i]);
        const char *file = f->file ? f->file : f->module ? f->module : "?";
        fprintf(out, "%s%s", i + 1 < depth ? "\n" : "", file);
        if (f->line)
            fprintf(out, ":%d", f->line);
        else if (f->kind == GS_FRAME_NATIVE && !f->function)
            fprintf(out, "+0x%llx", (unsigned long long)f->offset);
        if (f->function) fprintf(out, " in %s", f->function);
    }
    fclose(out);
    sqlite3_result_text64(c, text, size, free, SQLITE_UTF8);
}

/* A column of the view `sites`: the line that the report names for the stack. */
FUNCTION(fn_site_part)
{
    struct sql_session *s = sqlite3_user_data(c);
    uint32_t stack = sql_stack_of(s, v[0]);
    if (stack == RUN_NONE) return;
    const struct result_site *site = known_site(s, stack);
    const char *texts[] = {site->function, site->file, site->kind == GS_FRAME_PYTHON ? "python" : "native"};
    int what = sqlite3_value_int(v[1]);
    if (what == 3 && site->line)
        sqlite3_result_int(c, site->line);
    else if (what >= 0 && what < 3 && texts[what])
        sqlite3_result_text(c, texts[what], -1, SQLITE_TRANSIENT);
}

bool sql_functions(struct sql_session *s)
{
    static const struct {
        const char *name;
        int arguments;
        void (*call)(sqlite3_context *, int, sqlite3_value **);
    } functions[] = {
        {"bytes", 1, fn_bytes},
        {"seconds", 1, fn_seconds},
        {"site", 1, fn_site},
        {"stack_text", 1, fn_stack_text},
        {"gpuspy_site_part", 2, fn_site_part},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (sqlite3_create_function_v2(s->db, functions[i].name, functions[i].arguments,
                                       SQLITE_UTF8 | SQLITE_DETERMINISTIC, s, functions[i].call, NULL, NULL,
                                       NULL) != SQLITE_OK)
            return false;
    return true;
}

void sql_functions_free(struct sql_session *s)
{
    if (s->run) run_close(s->run);
    map_free(&s->helpers);
    ARENA_RELEASE(s->python, s->site_of_stack, s->sites);
}
