/* gpuspy symbolize: stores names, files and lines of native frames in the recording itself. */
#include <errno.h>
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/command/commands.h"
#include "analyzer/import/import.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/export/package.h"
#include "analyzer/symbol/symbolize.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

struct settings {
    const char *output, *debug_dir;
    bool debuginfod, json;
};

const struct command_text command_text_symbolize = {
    .options = OPTION_ROWS(
        OPTION_ROW(
            FILE, "output", 'o', output, "FILE",
            "write a copy to FILE, those of the run's other processes beside it, and leave the recording unchanged"),
        OPTION_ROW(FILE, "debug-dir", 0, debug_dir, "FOLDER",
                   "also look here for programs and debugging information: by build id (.build-id/xx/yyyy.debug), path "
                   "or name; "
                   "several folders are separated by colons"),
        OPTION_ROW(
            FLAG, "debuginfod", 0, debuginfod, NULL,
            "ask the servers in DEBUGINFOD_URLS for missing files; they then know the build ids of your programs"),
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print the result as JSON")),
    .about =
        "Stores function, file and line of each native frame in the recording, taken from the programs and libraries "
        "that ran, so that another machine does not need them. Python frames always have them. A file whose build id "
        "differs from the one that ran is not used.\n\nAll processes of the run are symbolized, each in one "
        "transaction: an interruption leaves the recording unchanged. Run it again after you install more debugging "
        "information. Its last lines name the modules without lines and the packages with their debugging "
        "information.\n\ngpuspy "
        "looks for debugging information in the file itself, by debug link, and by build id in --debug-dir, "
        "GPUSPY_DEBUG_PATH and /usr/lib/debug. The exit status is 3 if a recording cannot be read or written.",
    .examples = COMMAND_EXAMPLES({"gpuspy symbolize run.db", "before you copy the recording to another machine"},
                                 {"gpuspy symbolize -o named.db run.db", "write to a copy"},
                                 {"gpuspy symbolize --debug-dir ~/symbols run.db",
                                  "with debugging information from a folder like /usr/lib/debug"}),
};

struct files {
    char **path; /* as the user named them or run_open found them */
    char **from; /* what to copy; NULL: in place */
    char **to;
    size_t n;
};

static void files_free(struct files *f)
{
    for (size_t i = 0; i < f->n; i++) ARENA_RELEASE(f->path[i], f->to[i]);
    ARENA_RELEASE(f->path, f->to);
}

/* The name of a copy: copy.db for run.db, copy.1234.db for run.1234.db. */
static char *target_of(const char *output, const char *path, bool first)
{
    const char *base = basename(path);
    size_t n = strlen(output), m = strlen(base);
    const char *end = m > 3 && strcmp(base + m - 3, ".db") == 0 ? base + m - 3 : base + m, *dot = end;
    char *to;

    while (dot > base && dot[-1] != '.') dot--;
    n -= n > 3 && strcmp(output + n - 3, ".db") == 0 ? 3 : 0;
    if (first || dot == base) return strdup(output);
    return asprintf(&to, "%.*s.%.*s.db", (int)n, output, (int)(end - dot), dot) < 0 ? NULL : to;
}

static bool list_symbolize_files(struct run *run, const char *output, struct files *f)
{
    const struct run_process *p = run_processes(run, &f->n);

    f->path = arena_realloc(NULL, f->n + 1, sizeof *f->path);
    f->to = arena_realloc(NULL, f->n + 1, sizeof *f->to);
    for (size_t i = 0; i < f->n; i++) {
        f->path[i] = strdup(p[i].path);
        f->to[i] = output ? target_of(output, p[i].path, i == 0) : NULL;
    }
    for (size_t i = 0; i < f->n; i++) {
        if (p[i].recording) {
            return complain_with(false, "symbolize: '%s' is still being recorded; try again when the program has ended",
                                 p[i].path);
        }
        for (size_t k = 0; f->to[i] && k < i; k++)
            if (strcmp(f->to[i], f->to[k]) == 0) {
                return complain_with(false, "symbolize: '%s' and '%s' would both become '%s'; give one at a time",
                                     f->path[k], f->path[i], f->to[i]);
            }
        if (f->to[i] && access(f->to[i], F_OK) == 0)
            return complain_with(false, "symbolize: '%s' exists; remove it, or give another name", f->to[i]);
    }
    return true;
}

/* Writes a temporary file first, so that the copy appears under its name when it is complete. */
static bool into_copy(struct symbolize *s, const char *from, const char *to)
{
    char error[1024] = "", *part = output_beside(to);
    bool ok = part != NULL;

    if (!ok)
        snprintf(error, sizeof error, "cannot write '%s': %s; give a path where you may write", to, strerror(errno));
    ok = ok && symbolize_copy(from, part, error, sizeof error) && symbolize_database(s, part, error, sizeof error);
    /* link, unlike rename, never replaces a file, but some file systems have no links */
    if (ok && link(part, to) != 0) {
        if (errno == EEXIST || rename(part, to) != 0) {
            ok = false;
            snprintf(error, sizeof error, "cannot write '%s': %s; give a path where you may write", to,
                     strerror(errno));
        }
    }
    output_beside_remove(part);
    if (!ok) complain("symbolize: %s", error);
    return ok;
}

static bool in_place(struct symbolize *s, const char *path)
{
    char error[1024] = "";
    bool ok = symbolize_database(s, path, error, sizeof error);

    if (!ok) complain("symbolize: %s", error);
    return ok;
}

static const char clear_line[] = "\r\033[K";

static void show_progress(uint64_t done, uint64_t all)
{
    fprintf(stderr, "%sgpuspy: %llu of %llu frames", clear_line, (unsigned long long)done, (unsigned long long)all);
    fflush(stderr);
}

static int print_symbolize_json(const struct symbolize *s, const struct files *f)
{
    json_t *databases = json_array(), *modules = json_array();

    for (size_t i = 0; i < f->n; i++) json_array_append_new(databases, json_string(f->to[i] ? f->to[i] : f->path[i]));
    EACH_IN (m, s->modules) {
        char hint[512];
        bool hinted = m->lack && export_package_debug_hint(m->path, hint, sizeof hint);
        json_array_append_new(modules,
                              json_pack("{s:o, s:s?, s:I, s:I, s:I, s:s?, s:s?}", "path", json_out_string(m->path),
                                        "build_id", *m->build_id ? m->build_id : NULL, "frames", (json_int_t)m->frames,
                                        "named", (json_int_t)m->named, "lines", (json_int_t)m->lines, "lack", m->lack,
                                        "hint", hinted ? hint : NULL));
    }
    json_t *o = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o}", "databases", databases, "frames",
                          (json_int_t)s->frames, "named", (json_int_t)s->named, "lines", (json_int_t)s->lines,
                          "inlined", (json_int_t)s->inlined, "changed", (json_int_t)s->changed, "modules", modules);
    return json_out_tree(stdout, o, JSON_INDENT(2)) ? EXIT_YES : EXIT_INPUT;
}

/* Prints each hint once, after all modules that it concerns. */
static void print_lacks(const struct symbolize *s)
{
    struct terminal term = terminal_of(stdout);
    char name[512], line[1024], hint[512] = "", before[512] = "";
    bool printed = false;

    EACH_IN (m, s->modules) {
        if (!m->lack) continue;
        if (!printed) printf("\nModules without all names and lines:\n");
        printed = true;
        if (!export_package_debug_hint(m->path, hint, sizeof hint)) hint[0] = 0;
        if (*before && strcmp(hint, before) != 0)
            printf("    %s\n", terminal_clean(line, sizeof line, before, term.utf8));
        memcpy(before, hint, sizeof before);
        text_path(name, sizeof name, m->path, NULL, 60, term.utf8);
        text_put(line, sizeof line, "%s %s (%llu frame%s, %llu named)", name, m->lack, (unsigned long long)m->frames,
                 m->frames == 1 ? "" : "s", (unsigned long long)m->named);
        printf("  %s\n", line);
    }
    if (*before) printf("    %s\n", terminal_clean(line, sizeof line, before, term.utf8));
}

static void print_symbolize_text(const struct symbolize *s, const struct files *f)
{
    if (!s->frames)
        printf("No native frames: %s only Python's frames.\n", f->n == 1 ? "the recording has" : "the recordings have");
    else
        printf("%llu of %llu native frames are named, %llu with file and line%s\n", (unsigned long long)s->named,
               (unsigned long long)s->frames, (unsigned long long)s->lines, s->changed ? "" : "; nothing was new");
    if (s->inlined)
        printf("%llu frame%s several inlined functions\n", (unsigned long long)s->inlined,
               s->inlined == 1 ? " represents" : "s represent");
    if (s->nowhere)
        printf("%llu frame%s generated code, in no file\n", (unsigned long long)s->nowhere,
               s->nowhere == 1 ? " is" : "s are");
    print_lacks(s);
    for (size_t i = 0; i < f->n && f->to[i]; i++) fprintf(stderr, "gpuspy: written to %s\n", f->to[i]);
}

static int run_symbolize(const struct settings *set, struct symbolize *s, char **paths, size_t n)
{
    char error[1024] = "";
    struct files f = {0};
    struct run_options o = {SYMBOLIZER_OPTIONS(s->symbols)};
    struct run *run = run_open((const char *const *)paths, n, &o, error, sizeof error);
    size_t notes_n;
    bool ok = run != NULL;

    if (!ok) complain("symbolize: %s", error);
    for (size_t i = 0; ok && i < (run_notes(run, &notes_n), notes_n); i++)
        complain("symbolize: %s", run_notes(run, &notes_n)[i]);
    ok = ok && list_symbolize_files(run, set->output, &f);
    /* while `run` is open: the database to copy may be a temporary one, which run_close removes */
    for (size_t i = 0; ok && set->output && i < f.n; i++) ok = into_copy(s, run_database_path(run, i), f.to[i]);
    if (run) run_close(run);
    for (size_t i = 0; ok && !set->output && i < f.n; i++) ok = in_place(s, f.path[i]);
    if (s->progress) fputs(clear_line, stderr);
    int code = ok ? EXIT_YES : EXIT_INPUT;
    if (ok) {
        symbolize_finish(s);
        if (set->json)
            code = print_symbolize_json(s, &f);
        else
            print_symbolize_text(s, &f);
    }
    files_free(&f);
    return code;
}

int command_symbolize(const struct command *self, int argc, char **argv)
{
    struct settings set = {0};
    int operands = options_parse(self, argc, argv, &set);
    const char *servers, *problem = NULL;
    struct stat folder;

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands == 0) return complain_with(EXIT_USAGE, "symbolize: no recording given; type: gpuspy symbolize run.db");
    if (!output_is_named("symbolize", set.output)) return EXIT_USAGE;
    if (set.debug_dir && (stat(set.debug_dir, &folder) != 0 || !S_ISDIR(folder.st_mode)))
        return complain_with(EXIT_INPUT, "symbolize: --debug-dir: '%s' is not a folder; give one that exists",
                             set.debug_dir);
    if (set.output && operands > 1)
        return complain_with(EXIT_USAGE, "symbolize: --output works with one recording only");
    if (!input_check_paths("symbolize", argv, (size_t)operands)) return EXIT_INPUT;
    for (int i = 0; i < operands; i++)
        if (import_format_of(argv[i])) {
            return complain_with(
                EXIT_INPUT,
                "symbolize: '%s' is another tool's recording and has its own names; convert it first: gpuspy import",
                argv[i]);
        }
    struct symbolize s = {.symbols = symbolizer_new(), .progress = isatty(STDERR_FILENO) ? show_progress : NULL};
    if (!s.symbols) return EXIT_INPUT;
    if (set.debug_dir) symbolizer_use_debug_dir(s.symbols, set.debug_dir);
    if (set.debuginfod && !symbolizer_use_servers(s.symbols, &servers, &problem))
        complain("symbolize: --debuginfod: %s; gpuspy asks no server", problem);
    else if (set.debuginfod)
        complain("symbolize: asking %s for missing files", servers);
    int code = run_symbolize(&set, &s, argv, (size_t)operands);
    symbolize_free(&s);
    symbolizer_free(s.symbols);
    return code;
}
