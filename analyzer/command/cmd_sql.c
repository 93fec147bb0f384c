/* gpuspy sql: opens a recording for SQL and prints the answers. */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/command/commands.h"
#include "analyzer/base/input.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/sql/sql.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/term.h"
#include "analyzer/top/model.h"

struct settings {
    bool json, csv, alone;
};

const struct command_text command_text_sql = {
    .options =
        OPTION_ROWS(OPTION_ROW(FLAG, "json", 0, json, NULL, "print the rows as a JSON array of objects"),
                    OPTION_ROW(FLAG, "csv", 0, csv, NULL, "print comma-separated values with a heading (RFC 4180)"),
                    OPTION_ROW(FLAG, "alone", 0, alone, NULL, "only this file, without the run's other processes")),
    .about =
        "Runs an SQL query on a recording and prints the rows. docs/schema.md describes tables and views, with "
        "examples. Older recordings get today's views; gpuspy prints which of their columns are empty. The tables also "
        "contain the run's other processes: process_id distinguishes them, 1 is the file that you named.\n\ngpuspy "
        "adds four functions to SQLite's: bytes(n) is '1.50 GiB', seconds(ns) is '12.5 ms', site(stack_id) is the "
        "stack's line as in the report, and stack_text(stack_id) is the whole stack.\n\nThe recording is opened "
        "read-only. Without a query, gpuspy reads queries from standard input, on a terminal with a prompt.",
    .examples = COMMAND_EXAMPLES({"gpuspy sql run.db \"SELECT * FROM leaks LIMIT 5\"", "what was never freed, by line"},
                                 {"gpuspy sql run.db \"SELECT bytes(requested_bytes), site(stack_id) FROM ooms\"",
                                  "failed allocations and their lines"},
                                 {"gpuspy sql --csv run.db < queries.sql > answers.csv", "queries from a file"},
                                 {"gpuspy sql run.db", "a prompt; .help lists its commands"}),
};

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number)
{
    interrupted = number;
}

static int may_go_on(void *unused)
{
    return interrupted != 0;
}

static bool is_blank_text(const char *text)
{
    return text[strspn(text, " \t\r\n;")] == 0;
}

static int print_error(struct sql_session *s, const char *message)
{
    if (s->refused) {
        return complain_with(EXIT_USAGE,
                             "sql: %s is refused: gpuspy opens recordings read-only; use sqlite3 to change a copy",
                             s->refused);
    }
    int code = sqlite3_errcode(s->db) & 0xff;
    bool file = code == SQLITE_CORRUPT || code == SQLITE_NOTADB || code == SQLITE_IOERR || code == SQLITE_CANTOPEN ||
                code == SQLITE_BUSY;
    complain("sql: %s%s", message,
             file ? "; the file is damaged"
             : code == SQLITE_INTERRUPT
                 ? ""
                 : "; 'gpuspy sql FILE .tables' lists tables and views, 'gpuspy sql FILE \".schema NAME\"' the columns "
                   "of one");
    return file ? EXIT_INPUT : EXIT_USAGE;
}

/* Executes all statements of a text, until one fails. */
static int run_query(struct sql_session *s, const struct sql_printer *p, const char *text)
{
    interrupted = 0;
    while (!is_blank_text(text)) {
        sqlite3_stmt *st = NULL;
        const char *tail = text;
        s->refused = NULL;
        int rc = sqlite3_prepare_v2(s->db, text, -1, &st, &tail);
        if (rc == SQLITE_OK && st) rc = sql_print(p, st);
        bool ok = rc == SQLITE_OK || rc == SQLITE_DONE || (rc == SQLITE_ROW && ferror(p->out));
        char message[512];
        snprintf(message, sizeof message, "%s", sqlite3_errmsg(s->db));
        sqlite3_finalize(st);
        fflush(p->out);
        if (!ok) return print_error(s, message);
        if (tail == text) break;
        text = tail;
    }
    return EXIT_YES;
}

/* Line editing and history of libedit, if the system has it; else only those of the terminal. */
struct editor {
    char *(*read)(const char *);
    void (*remember)(const char *);
};

static struct editor find_editor(void)
{
    struct editor e = {NULL, NULL};
    void *library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library) {
        *(void **)&e.read = dlsym(library, "readline");
        void *remember = dlsym(library, "add_history");
        memcpy(&e.remember, &remember, sizeof remember);
    }
    return e;
}

static char *read_sql_line(const struct editor *e, const char *prompt)
{
    char *line = NULL;
    size_t size = 0;
    if (e->read && e->remember) return e->read(prompt);
    fputs(prompt, stdout);
    fflush(stdout);
    if (getline(&line, &size, stdin) < 0) {
        free(line);
        return NULL;
    }
    return line;
}

static const char prompt_help[] = "End a query with a semicolon. Tables and views: docs/schema.md.\n  .tables          "
                                  " what can be queried\n  .schema NAME      its columns\n  .mode table|json|csv\n  "
                                  ".quit             or Ctrl-D\nfunctions: bytes(n)  seconds(ns)  site(stack_id)  "
                                  "stack_text(stack_id)\n";

static void print_columns(struct sql_session *s, const struct sql_printer *p, const char *name)
{
    char *sql = sqlite3_mprintf("SELECT name, type FROM pragma_table_xinfo(%Q)", name);
    run_query(s, p, sql);
    sqlite3_free(sql);
}

/* False: quit. */
static bool dot_command(struct sql_session *s, struct sql_printer *p, char *line)
{
    char *word = strtok(line, " \t\r\n"), *next = strtok(NULL, " \t\r\n");
    if (strcmp(word, ".quit") == 0 || strcmp(word, ".exit") == 0 || strcmp(word, ".q") == 0) return false;
    if (strcmp(word, ".tables") == 0) {
        run_query(s, p,
                  "SELECT name, type FROM (SELECT name, 'view' AS type FROM sqlite_temp_master WHERE type = 'view' "
                  "UNION SELECT name, 'table' FROM main.sqlite_master WHERE type = 'table' AND name NOT IN "
                  "(SELECT name FROM sqlite_temp_master) AND name NOT LIKE 'recovery_%') ORDER BY name");
    } else if (strcmp(word, ".schema") == 0 && next) {
        print_columns(s, p, next);
    } else if (strcmp(word, ".mode") == 0 && next && options_is_word(next, "table|json|csv")) {
        p->format = next[0] == 'j' ? SQL_JSON : next[0] == 'c' ? SQL_CSV : SQL_TABLE;
    } else {
        fputs(prompt_help, stdout);
    }
    return true;
}

static int run_prompt(struct sql_session *s, struct sql_printer *p)
{
    const struct editor editor = find_editor();
    char *text = NULL, *line;
    size_t n = 0;
    sigaction(SIGINT, &(struct sigaction){.sa_handler = on_interrupt}, NULL);
    sqlite3_progress_handler(s->db, 10000, may_go_on, NULL);
    printf("%s: SQL; .help for help\n", s->databases[0].path);
    while ((line = read_sql_line(&editor, n ? "   ...> " : "gpuspy> ")) || interrupted) {
        if (interrupted || !line) { /* drops what the user typed */
            interrupted = 0;
            clearerr(stdin);
            n = 0;
            free(line);
            putchar('\n');
            continue;
        }
        if (n == 0 && (line[0] == '.' || is_blank_text(line))) {
            bool on = is_blank_text(line) || dot_command(s, p, line);
            free(line);
            if (!on) break;
            continue;
        }
        size_t length = strlen(line);
        text = arena_realloc(text, n + length + 2, 1);
        n += (size_t)sprintf(text + n, "%s%s", line, length && line[length - 1] == '\n' ? "" : "\n");
        if (editor.remember) editor.remember(line);
        free(line);
        if (sqlite3_complete(text)) {
            run_query(s, p, text);
            interrupted = 0;
            n = 0;
        }
    }
    free(text);
    putchar('\n');
    return EXIT_YES;
}

/* Queries and the prompt's commands, until one fails. */
static int from_stdin(struct sql_session *s, struct sql_printer *p)
{
    char *text = NULL, *line = NULL;
    size_t n = 0, room = 0;
    ssize_t length;
    int code = EXIT_YES;
    while (code == EXIT_YES && (length = getline(&line, &room, stdin)) >= 0) {
        if (n == 0 && line[0] == '.') {
            if (!dot_command(s, p, line)) break;
            continue;
        }
        text = arena_realloc(text, n + (size_t)length + 1, 1);
        memcpy(text + n, line, (size_t)length + 1);
        n += (size_t)length;
        if (!sqlite3_complete(text)) continue;
        code = run_query(s, p, text);
        n = 0;
    }
    if (code == EXIT_YES && n) code = run_query(s, p, text);
    ARENA_RELEASE(line, text);
    return code;
}

/* Lists the given file and those of the run's other processes. Converts a recording of another tool first. */
static size_t find_files(const char *path, bool alone, char **out, size_t room, bool *more)
{
    char run_id[64], other[64], error[1024];
    bool recording;
    size_t n = 0;
    /* if this fails, sql_open fails, too, and reports it */
    char *imported = alone ? NULL : run_imported_path(path, error, sizeof error);
    const char *first = imported ? imported : path;
    out[n++] = strdup(path);
    *more = false;
    if (alone || !top_peek(first, run_id, sizeof run_id, &recording)) {
        free(imported);
        return n;
    }
    struct input_files names = input_siblings(first);
    free(imported);
    for (size_t i = 0; i < names.n; i++) {
        if (!top_peek(names.list[i], other, sizeof other, &recording) || strcmp(other, run_id) != 0) continue;
        if (n < room)
            out[n++] = strdup(names.list[i]);
        else
            *more = true;
    }
    input_files_free(&names);
    return n;
}

/* Counts and sums of a bounded recording's rows are not those of the run. */
static void note_removed_rows(struct sql_session *s)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, "SELECT max(value) FROM meta WHERE key = 'kept_from_ns'", -1, &st, NULL) != SQLITE_OK)
        return;
    const int64_t ns = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    if (ns > 0)
        complain(
            "sql: this recording is bounded: of what ended before %s, tables and views have only the rows of peaks "
            "and failures; the tables removed, removed_scope and level have totals of the others",
            UNITS_SECONDS((double)ns / 1e9));
}

static int ask_sql(struct sql_session *s, const struct settings *set, const char *text)
{
    const struct terminal term = terminal_of(stdout);
    struct sql_printer p = {.format = set->json  ? SQL_JSON
                                      : set->csv ? SQL_CSV
                                                 : SQL_TABLE,
                            .out = stdout,
                            .width = isatty(STDOUT_FILENO) ? term.width : 0,
                            .utf8 = term.utf8};
    if (*s->missing) {
        complain("sql: '%s' lacks these columns (an older gpuspy wrote it, or it was changed), so they are empty: %s",
                 s->databases[0].path, s->missing);
    }
    note_removed_rows(s);
    if (text && *text == '.') {
        char *line = strdup(text);
        dot_command(s, &p, line);
        free(line);
        return EXIT_YES;
    }
    return text ? run_query(s, &p, text) : isatty(STDIN_FILENO) ? run_prompt(s, &p) : from_stdin(s, &p);
}

int command_sql(const struct command *self, int argc, char **argv)
{
    struct settings set = {0};
    int operands = options_parse(self, argc, argv, &set);
    char error[1024] = "", *paths[SQL_PROCESSES];
    bool more;

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands == 0 || operands > 2 || (set.json && set.csv)) {
        return complain_with(EXIT_USAGE, operands == 0  ? "sql: no recording given; type: gpuspy sql run.db"
                                         : operands > 2 ? "sql: give one query, in quotes"
                                                        : "sql: give --json or --csv, not both");
    }
    const bool swapped =
        operands > 1 ? access(argv[1], F_OK) == 0 : strchr(argv[0], ' ') && !text_ends_with(argv[0], ".db");
    if (access(argv[0], F_OK) != 0 && swapped) {
        return complain_with(EXIT_USAGE,
                             "sql: '%s' is not a file; give the recording before the query: gpuspy sql %s "
                             "\"SELECT * FROM leaks\"",
                             argv[0], operands > 1 ? argv[1] : "run.db");
    }
    if (!input_check_paths("sql", argv, 1)) return EXIT_INPUT;
    struct symbolizer *symbols = symbolizer_new();
    struct sql_session s = {.symbol = symbols ? symbolizer_find : NULL, .symbol_data = symbols};
    size_t n = find_files(argv[0], set.alone, paths, SQL_PROCESSES, &more);
    int code = EXIT_INPUT;
    if (!sql_open(&s, paths, n, error, sizeof error)) {
        complain("sql: %s", error);
    } else {
        if (more)
            complain("sql: the run has more processes than SQLite can open; these are the first %d", SQL_PROCESSES);
        code = ask_sql(&s, &set, operands > 1 ? argv[1] : NULL);
    }
    sql_close(&s);
    symbolizer_free(symbols);
    for (size_t i = 0; i < n; i++) free(paths[i]);
    return code;
}
