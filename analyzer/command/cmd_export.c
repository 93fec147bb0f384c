/* gpuspy export: selects a part of a recording and passes it to a format. */
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/command/commands.h"
#include "analyzer/export/export_choice.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

struct settings {
    struct export_request wish;
    const char *format, *output, *stacks, *tables;
    int last; /* -1: not given */
    bool no_categories, native;
};

#define BINARY(suffix) (sizeof suffix > 3 && suffix[sizeof suffix - 2] == 'z') /* ".gz" */
static const struct format {
    const char *word, *suffix, *summary;
    export_fn *write; /* exports one process at one moment, or … */
    export_run_fn *write_run;
    bool folder, binary;
} formats[] = {
#define EXPORT(word, function, suffix, summary) {word, suffix, summary, function, NULL, false, true},
#define EXPORT_RUN(word, function, suffix, summary) {word, suffix, summary, NULL, function, false, BINARY(suffix)},
#define EXPORT_FOLDER(word, function, suffix, summary) {word, suffix, summary, NULL, function, true, false},
#include "analyzer/export/exports.def"
};

#define EXPORT(word, function, suffix, summary) word "|"
#define EXPORT_RUN EXPORT
#define EXPORT_FOLDER EXPORT
static const char format_words[] =
#include "analyzer/export/exports.def"
    ;

enum { LAST_USUAL = 1000000 };

const struct command_text command_text_export = {
    .options = OPTION_ROWS(
        {"format", 'f', OPTION_CHOICE, offsetof(struct settings, format), "FORMAT", format_words, 0, 0,
         "the format; default torch-snapshot"},
        OPTION_ROW(FILE, "output", 'o', output, "FILE",
                   "write to FILE; - is standard output; default: the recording's name with the format's suffix, in "
                   "the working directory"),
        {"what", 'w', OPTION_CHOICE, offsetof(struct settings, wish.what), "WHAT",
         "peak|oom|end|allocated|waits|copies", 0, 0,
         "folded, speedscope, pprof: the figure of each call path; default peak; speedscope has all of them"},
        {"at", 0, OPTION_TEXT, offsetof(struct settings, wish.at), "WHEN", "peak|oom|end", 0, 0,
         "the moment to show: seconds since the recording began, or a word. The trace of a torch-snapshot ends there; "
         "default: the last fatal out-of-memory error, else the peak; for an imported snapshot, its end"},
        OPTION_ROW(
            TEXT, "tables", 0, tables, "NAMES",
            "csv, ndjson: only these tables, separated by commas; a single one can be written to a file or to -"),
        {"device", 'd', OPTION_NUMBER, offsetof(struct settings, wish.device), "N", NULL, 0, 126,
         "only GPU N (CUDA's number in the program)"},
        {"process", 'p', OPTION_NUMBER, offsetof(struct settings, wish.pid), "PID", NULL, 1, INT_MAX,
         "only the process with this pid"},
        {"rank", 'r', OPTION_NUMBER, offsetof(struct settings, wish.rank), "N", NULL, 0, INT_MAX,
         "only the process with this rank"},
        {"last", 'n', OPTION_NUMBER, offsetof(struct settings, last), "N", NULL, 0, INT_MAX,
         "torch-snapshot: the last N events of each GPU before the moment; default 1000000"},
        {"stacks", 0, OPTION_CHOICE, offsetof(struct settings, stacks), "WHICH", "python|native|both", 0, 0,
         "which frames to write; default: Python's, and native ones for calls without Python frames"},
        OPTION_ROW(FLAG, "native", 0, native, NULL, "also write native frames; same as --stacks both"),
        OPTION_ROW(FLAG, "no-categories", 0, no_categories, NULL,
                   "torch-snapshot: leave out the categories, so that memory_viz gives each tensor its own colour")),
    .about =
        "Writes a recording in a format of another tool. torch-snapshot is the format of PyTorch's "
        "torch.cuda.memory._dump_snapshot(), which pytorch.org/memory_viz opens (in the browser, without an upload). "
        "It has the segments and blocks of one process at one moment, and the allocations and frees before it with "
        "their call "
        "stacks. Blocks are PyTorch's tensors and segments are its allocator's CUDA allocations; without PyTorch, each "
        "CUDA allocation is a segment with one block. Blocks carry gpuspy's category (parameters, activations and so "
        "on), by which memory_viz colours them.\n\nThe other formats contain all processes of the run. chrome-trace "
        "(ui.perfetto.dev, chrome://tracing) has memory over time by category, waits, copies and NVTX ranges of each "
        "thread, failures and retries. folded (flamegraph.pl), speedscope (speedscope.app) and pprof (go tool pprof) "
        "weigh call paths by memory live at the peak, at the out-of-memory error, at the end or at a moment, by all "
        "allocations, by waits or by copies. openmetrics is for Prometheus's textfile collector. csv and ndjson are "
        "folders of tables (docs/export.md) for spreadsheets, DuckDB, ClickHouse and Spark.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy export run.db", "write run.pickle; drop it on pytorch.org/memory_viz"},
        {"gpuspy export --at 12.5 --rank 3 -o r3.pickle runs/", "one process of several, after 12.5 s"},
        {"gpuspy export -f chrome-trace runs/", "all ranks over time, for ui.perfetto.dev"},
        {"gpuspy export -f folded -o - run.db | flamegraph.pl > peak.svg", "a flame graph of the peak"},
        {"gpuspy export -f speedscope --native run.db", "flame graphs with C++ frames, for speedscope.app"},
        {"gpuspy export -f pprof --what waits run.db", "where the host waited, for go tool pprof"},
        {"gpuspy export -f ndjson -o lake runs/", "tables that DuckDB, ClickHouse and Spark read"}),
};

/* The file name if none is given: "runs/run.db" → "run.pickle", and "runs/" → "runs.pickle". */
static void export_usual_name(const char *database, const char *suffix, char *out, size_t size)
{
    size_t n = strlen(database);

    while (n > 1 && database[n - 1] == '/') n--;
    const char *slash = memrchr(database, '/', n), *name = slash ? slash + 1 : database;
    n -= (size_t)(name - database);
    const char *dot = memrchr(name, '.', n);
    n = dot && dot != name ? (size_t)(dot - name) : n;
    bool here = n == 0 || (n <= 2 && strncmp(name, "..", n) == 0);
    snprintf(out, size, "%.*s%s", here ? 3 : (int)n, here ? "run" : name, suffix);
}

/* Refuses to overwrite the recording that it reads. */
static bool is_input(struct run *run, const char *path)
{
    struct stat in, out;

    if (stat(path, &out) != 0) return false;
    RUN_EACH (p, run_processes, run)
        if (stat(p->path, &in) == 0 && in.st_dev == out.st_dev && in.st_ino == out.st_ino)
            return complain_with(true, "export: '%s' is the recording itself; give another name with -o", path);
    return false;
}

static int write_moment(const struct settings *s, struct export *e, const struct format *f)
{
    char usual[PATH_MAX], error[1024] = "";
    struct output out;
    const char *path = s->output;

    if (!path) {
        export_usual_name(run_process_at(e->run, e->process)->path, f->suffix, usual, sizeof usual);
        path = usual;
    }
    if (is_input(e->run, path) || !output_open(&out, "export", path)) return EXIT_INPUT;
    if (*e->moment) complain("export: %s", e->moment);
    e->out = out.file;
    bool ok = f->write(e, error, sizeof error);
    export_progress_end(&e->progress);
    if (!ok) {
        output_drop(&out);
        return complain_with(EXIT_INPUT, "export: %s", error);
    }
    if (!output_keep(&out, "export")) return EXIT_INPUT;
    if (e->left_out)
        complain("export: %llu earlier events are left out; --last raises the limit", (unsigned long long)e->left_out);
    if (!out.standard) complain("export: wrote %s", path);
    return EXIT_YES;
}

static int export_moment(const struct settings *s, char **paths, const struct format *f, struct symbolizer *symbols)
{
    struct export *e = arena_realloc(NULL, 1, sizeof *e);

    memset(e, 0, sizeof *e);
    e->last = s->last >= 0 ? (uint64_t)s->last : LAST_USUAL;
    e->python = !s->stacks || strcmp(s->stacks, "native") != 0;
    e->native = s->native || (s->stacks && strcmp(s->stacks, "python") != 0);
    e->categories = !s->no_categories;
    e->progress.shown = isatty(STDERR_FILENO);
    e->progress.next = 1 << 16;
    int code = export_choose(&s->wish, paths[0], symbols, e);
    if (e->snapshot && !s->stacks && strcmp(f->word, "torch-snapshot") == 0) e->native = true;
    if (code == EXIT_YES) code = write_moment(s, e, f);
    if (e->run) run_close(e->run);
    free(e);
    return code;
}

static int done_run(const struct export_run *e, const char *path, bool standard)
{
    if (e->nothing) return complain_with(EXIT_NO, "export: %s", e->note);
    if (*e->note) complain("export: %s", e->note);
    if (!standard) complain("export: wrote %s", path);
    return EXIT_YES;
}

static int write_export_file(struct export_run *e, const struct format *f, const char *path)
{
    char error[1024] = "";
    struct output out;

    if (is_input(e->run, path) || !output_open(&out, "export", path)) return EXIT_INPUT;
    e->out = out.file;
    bool ok = f->write_run(e, error, sizeof error);
    if (!ok) complain("export: %s", error);
    if (!ok || e->nothing) {
        output_drop(&out);
        return ok ? done_run(e, path, out.standard) : EXIT_INPUT;
    }
    return output_keep(&out, "export") ? done_run(e, path, out.standard) : EXIT_INPUT;
}

/* The format opens its own files. A single table is written like the file of any other format. */
static int write_folder(struct export_run *e, const struct format *f, const char *path)
{
    char error[1024] = "";
    struct stat st;
    bool one = e->tables && !strchr(e->tables, ','), exists = stat(path, &st) == 0;

    if (one && (strcmp(path, "-") == 0 || (exists ? !S_ISDIR(st.st_mode) : strchr(path, '.') != NULL)))
        return write_export_file(e, f, path);
    if (strcmp(path, "-") == 0) {
        return complain_with(EXIT_USAGE,
                             "export: %s consists of several files; give a folder with -o, or one table with --tables",
                             f->word);
    }
    if (!exists && mkdir(path, 0777) != 0)
        return complain_with(EXIT_INPUT, "export: cannot create the folder '%s': %s", path, strerror(errno));
    if (exists && !S_ISDIR(st.st_mode)) {
        return complain_with(EXIT_INPUT, "export: '%s' is not a folder; %s needs one, or one table with --tables", path,
                             f->word);
    }
    e->folder = path;
    if (!f->write_run(e, error, sizeof error)) return complain_with(EXIT_INPUT, "export: %s", error);
    return done_run(e, path, false);
}

static int whole_run(const struct settings *s, char **paths, size_t n, const struct format *f,
                     struct symbolizer *symbols)
{
    char usual[PATH_MAX], name[PATH_MAX];
    const char *path = s->output;
    struct export_run e = {
        .native = s->native || (s->stacks && strcmp(s->stacks, "python") != 0), .tables = s->tables, .name = name};
    int code = export_choose_run(&s->wish, paths, n, symbols, &e);

    export_usual_name(paths[0], "", name, sizeof name);
    if (!path) {
        export_usual_name(paths[0], f->suffix, usual, sizeof usual);
        path = usual;
    }
    if (code == EXIT_YES) code = f->folder ? write_folder(&e, f, path) : write_export_file(&e, f, path);
    if (e.run) run_close(e.run);
    return code;
}

static const struct format *format_of(const char *word)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (word && strcmp(formats[i].word, word) == 0) return &formats[i];
    return &formats[0];
}

static bool are_export_options_sensible(const struct settings *s, const struct format *f, int operands)
{
    int64_t ns;
    const char *first = f->folder ? "--tables" : "--what";

    if (operands == 0)
        complain("export: no recording given; type: gpuspy export run.db");
    else if (operands > 1 && f->write)
        complain("export: give one recording, or the folder of a run with several processes");
    else if (s->wish.at && !options_is_word(s->wish.at, "peak|oom|end") && !units_parse_seconds(s->wish.at, &ns))
        complain("export: --at: '%s' is neither seconds nor one of peak, oom, end", s->wish.at);
    else if (s->wish.at && s->wish.what)
        complain("export: give --at or --what, not both");
    else if ((s->wish.what && (f->write || f->folder)) || (s->tables && !f->folder))
        complain("export: %s does not apply to %s; see gpuspy export --help", s->tables ? "--tables" : first, f->word);
    else if (s->tables && export_unknown_table(s->tables)) {
        const char *bad = export_unknown_table(s->tables);
        char list[256];
        options_list(export_tables(), list, sizeof list);
        complain("export: unknown table '%.*s'; the tables are %s", (int)strcspn(bad, ","), bad, list);
    } else if (s->output && strcmp(s->output, "-") == 0 && isatty(STDOUT_FILENO) && (f->write || f->binary))
        complain("export: the output is binary, not for a terminal; give a file with -o, or a pipe");
    else
        return true;
    return false;
}

int command_export(const struct command *self, int argc, char **argv)
{
    struct settings s = {.wish = {.device = -1, .pid = -1, .rank = -1}, .last = -1};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    const struct format *f = format_of(s.format);
    if (!are_export_options_sensible(&s, f, operands)) return EXIT_USAGE;
    if (!input_check_paths("export", argv, (size_t)operands)) return EXIT_INPUT;
    struct symbolizer *symbols = symbolizer_new();
    int code = f->write ? export_moment(&s, argv, f, symbols) : whole_run(&s, argv, (size_t)operands, f, symbols);
    if (symbols) symbolizer_complain(symbols, false);
    symbolizer_free(symbols);
    return code;
}
