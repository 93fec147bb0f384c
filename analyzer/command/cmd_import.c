/* gpuspy import: converts another tool's recording to run.db. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/base/progress.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/command/commands.h"
#include "analyzer/import/import.h"
#include "analyzer/import/siblings.h"

struct settings {
    const char *output, *from, *to;
};

const struct command_text command_text_import = {
    .options =
        OPTION_ROWS(OPTION_ROW(FILE, "output", 'o', output, "FILE",
                               "write to FILE; default: the file's name with the suffix .db, in the working directory"),
                    OPTION_ROW(TEXT, "from", 0, from, "SECONDS",
                               "PyTorch snapshot: leave out events before this time, in seconds since the first event; "
                               "what was live then stays"),
                    OPTION_ROW(TEXT, "to", 0, to, "SECONDS", "PyTorch snapshot: leave out events after this time")),
    .about = "Converts a recording of another tool, plain or compressed with gzip: a pickle of "
             "torch.cuda.memory._snapshot() or _dump_snapshot(), a trace or memory timeline of torch.profiler, a "
             "profile of jax.profiler.save_device_memory_profile(), or an export of Nsight Systems (nsys export --type "
             "sqlite REPORT). Every command that reads recordings also reads such files directly. What a format lacks "
             "stays unknown.\n\nAn export of several processes becomes one database per process.\n\nA pickle is read "
             "as data: gpuspy refuses one that asks Python to import or call anything.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy import snapshot.pickle", "write snapshot.db"},
        {"gpuspy import snapshot.pickle.gz -o first.db", "the same under another name"},
        {"gpuspy import --from 2 --to 2.5 snapshot.pickle -o part.db", "half a second of the recording"},
        {"gpuspy import rank0.pt.trace.json.gz", "write rank0.db"},
        {"gpuspy report snapshot.pickle", "read it without writing a database"},
        {"gpuspy diff before.pickle after.pickle", "what grew between two snapshots, by line"},
        {"gpuspy import report1.sqlite", "write report1.db, and report1.PID.db for each further process"}),
};

static void show_import_progress(void *unused, uint64_t bytes)
{
    progress_show(unused, "bytes", bytes, 0);
}

/* "a/snapshot.pickle.gz" → "snapshot.db"; the caller frees it. */
static char *import_usual_name(const char *path)
{
    static const char *const endings[] = {".gz",    ".pickle", ".pkl",  ".json",  ".raw",
                                          ".trace", ".pt",     ".prof", ".sqlite"};
    size_t length = strlen(basename(path));
    char *name = arena_realloc(NULL, length + sizeof ".db", 1);
    memcpy(name, basename(path), length + 1);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (length > n && strcmp(name + length - n, endings[i]) == 0) name[length -= n] = 0;
    }
    strcpy(name + length, ".db");
    return name;
}

/* Renames the databases of the other processes to names beside `to`: all of them or none. False after a line on stderr.
 */
static bool name_siblings(const char *temporary, const char *to)
{
    size_t named = 0, length = strlen(to);
    struct input_files made = import_siblings(temporary);
    const size_t n = made.n;
    char **list = made.list, **names = arena_zeroed(n + 1, sizeof *names);
    const size_t ending = strlen(temporary); /* "temporary.PID.db" */
    bool ok = true;
    if (n && !(length > 3 && strcmp(to + length - 3, ".db") == 0)) {
        complain("import: the recording has %zu processes, one database each; give -o a name that ends in .db", n + 1);
        ok = false;
    }
    for (size_t i = 0; ok && i < n; i++) {
        size_t size = length + strlen(list[i]) + 1;
        names[i] = arena_realloc(NULL, size, 1);
        snprintf(names[i], size, "%.*s%s", (int)(length - 3), to, list[i] + ending);
        if (access(names[i], F_OK) == 0) {
            complain("import: '%s' exists; remove it, or give another name with -o", names[i]);
            ok = false;
        }
    }
    for (; ok && named < n; named += ok) ok = rename(list[named], names[named]) == 0;
    while (!ok && named-- > 0) unlink(names[named]);
    for (size_t i = 0; i < n; i++) {
        unlink(list[i]);
        free(names[i]);
    }
    free(names);
    input_files_free(&made);
    return ok;
}

/* Writes to a temporary file and renames it, so that `to` is complete or does not exist. */
static int convert_file(const char *path, const char *to, const struct import_part *part)
{
    char error[768] = "", named[768];
    struct stat st;
    enum import_format format = import_format_of(path);
    const char *hint = import_hint(path, named, sizeof named);
    if (!format && access(path, R_OK) != 0)
        return complain_with(EXIT_INPUT, "import: cannot read '%s': %s", path, strerror(errno));
    if (!format && input_is_recording(path)) {
        return complain_with(EXIT_INPUT, "import: '%s' is a recording of gpuspy already; type: gpuspy report %s", path,
                             path);
    }
    if (!format && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return complain_with(EXIT_INPUT, "import: cannot read '%s': it is a folder; give the files in it", path);
    if (!format && hint) return complain_with(EXIT_INPUT, "import: cannot read '%s': it is %s", path, hint);
    if (!format) {
        return complain_with(
            EXIT_INPUT,
            "import: cannot read '%s': gpuspy cannot convert this format; it reads pickles of "
            "torch.cuda.memory._snapshot(), traces of torch.profiler, device memory profiles of JAX and SQLite "
            "exports of Nsight Systems",
            path);
    }
    if (access(to, F_OK) == 0)
        return complain_with(EXIT_INPUT, "import: '%s' exists; remove it, or give another name with -o", to);
    char *temporary = output_beside(to);
    if (!temporary) {
        output_failed("import", to, errno);
        return EXIT_INPUT;
    }
    unlink(temporary); /* the database must not exist yet */
    bool ok = import_file_part(path, format, temporary, part, show_import_progress, NULL, error, sizeof error);
    progress_clear();
    if (!ok)
        complain("import: cannot convert '%s': %s", path, error);
    else if (!name_siblings(temporary, to))
        ok = false;
    else if (rename(temporary, to) != 0)
        ok = output_failed("import", to, errno);
    output_beside_remove(temporary);
    if (ok) complain("wrote %s; next: gpuspy report %s", to, to);
    return ok ? EXIT_YES : EXIT_INPUT;
}

/* Returns an exit code. *part NULL: all of the recording. */
static int choose_import_part(const struct settings *set, struct import_part *range, const struct import_part **part)
{
    const char *const words[] = {"from", "to"}, *const texts[] = {set->from, set->to};
    int64_t *const times[] = {&range->from_ns, &range->to_ns};
    *range = (struct import_part){0, INT64_MAX};
    *part = set->from || set->to ? range : NULL;
    for (size_t i = 0; i < 2; i++) {
        if (!texts[i] || units_parse_seconds(texts[i], times[i])) continue;
        return complain_with(EXIT_USAGE, "import: --%s takes seconds since the first event, such as 12.5, not '%s'",
                             words[i], texts[i]);
    }
    if (range->from_ns < range->to_ns) return EXIT_YES;
    return complain_with(EXIT_USAGE, "import: --from %s is not before --to %s", set->from ? set->from : "0", set->to);
}

int command_import(const struct command *self, int argc, char **argv)
{
    struct settings set = {0};
    int operands = options_parse(self, argc, argv, &set), code = EXIT_YES;
    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands == 0) return complain_with(EXIT_USAGE, "import: no file given; type: gpuspy import snapshot.pickle");
    if (!output_is_named("import", set.output)) return EXIT_USAGE;
    if (set.output && operands > 1) return complain_with(EXIT_USAGE, "import: --output works with one file only");
    struct import_part range;
    const struct import_part *part;
    code = choose_import_part(&set, &range, &part);
    if (code) return code;
    if (!input_check_paths("import", argv, (size_t)operands)) return EXIT_INPUT;
    for (int i = 0; i < operands; i++) {
        char *usual = set.output ? NULL : import_usual_name(argv[i]);
        int own = convert_file(argv[i], set.output ? set.output : usual, part);
        code = own ? own : code;
        free(usual);
    }
    return code;
}
