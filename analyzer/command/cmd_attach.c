/* gpuspy attach and detach: record a running process. analyzer/attach does the work. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/attach/attach.h"
#include "analyzer/base/term.h"
#include "analyzer/command/attached.h"
#include "analyzer/command/commands.h"
#include "analyzer/launch/launch.h"
#include "analyzer/launch/recording.h"
#include "analyzer/top/find.h"
#include "schema/attach.h"
#include "schema/shell_word.h"

struct settings {
    struct launch_recording recording;
    const char *db;
    bool tree, quiet;
};

const struct command_text command_text_attach = {
    .options = OPTION_ROWS(
        OPTION_ROW(FILE, "db", 'o', db, "FILE",
                   "record to FILE; default run.db in this folder. If FILE exists, gpuspy takes and prints the next "
                   "free name"),
        LAUNCH_RECORDING_ROWS(struct settings),
        OPTION_ROW(FLAG, "tree", 't', tree, NULL, "also attach to the processes that PID started and that use CUDA"),
        OPTION_ROW(FLAG, "quiet", 'q', quiet, NULL, "print errors only")),
    .about = "Loads the recorder into a running process, which then records its GPU memory, copies and waits as under "
             "gpuspy run, until it ends or until gpuspy detach. For memory that it allocated before, the recording has "
             "PyTorch's tensors without their lines, and totals of the rest.\n\nThe process must have loaded CUDA. "
             "gpuspy stops one of its threads for a few milliseconds; the others continue. The kernel allows this if "
             "the process is yours and kernel.yama.ptrace_scope is 0, or if you are root. The exit status is 1 if the "
             "process is already recorded, 3 if gpuspy cannot attach to it; the process then continues unchanged.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy attach 4711", "record process 4711 to run.db from now on"},
        {"gpuspy attach --tree --db /runs/late.db 4711", "all processes of a job, each to a file of its own"},
        {"gpuspy top 4711", "watch it"}, {"gpuspy detach 4711", "end the recording; the process goes on"}),
};
const struct command_text command_text_detach = {
    .options = OPTION_ROWS(OPTION_ROW(FLAG, "tree", 't', tree, NULL, "also detach from the processes that PID started"),
                           OPTION_ROW(FLAG, "quiet", 'q', quiet, NULL, "print errors only")),
    .about = "Stops a recording that gpuspy attach started. The process continues; its calls reach CUDA directly "
             "again. The recorder's library stays loaded in it, without effect; attach can use it again.\n\nThe exit "
             "status is 1 if the process is not recorded, or was started with gpuspy run, which records until the end.",
    .examples = COMMAND_EXAMPLES({"gpuspy detach 4711", "stop recording process 4711"}),
};

struct text {
    char at[GS_ATTACH_GIVEN_BYTES];
    size_t used;
    bool cut;
};

static void add_variable(void *text, const char *name, const char *value)
{
    struct text *t = text;
    const size_t room = sizeof t->at - t->used;
    const int n = strchr(value, '\n') ? -1 : snprintf(t->at + t->used, room, "%s=%s\n", name, value);

    if (n > 0 && (size_t)n < room)
        t->used += (size_t)n;
    else
        t->at[t->used] = 0, t->cut = true;
}

static bool has_variable(const struct text *t, const char *variable, size_t n)
{
    for (const char *line = t->at; *line; line += strcspn(line, "\n") + 1)
        if (strncmp(line, variable, n) == 0 && line[n] == '=') return true;
    return false;
}

/* Adds the variables of the environment for which attach has no option. */
static void add_environment(struct text *t)
{
    static const char *const others[] = {"GPUSPY_LIB", "GPUSPY_DISABLE", "GPUSPY_ON_OOM", "GPUSPY_LIMIT"};
    extern char **environ;

    for (char **e = environ; *e; e++) {
        char name[64];
        const char *equals = strchr(*e, '=');
        bool other = strncmp(*e, "GPUSPY_", 7) != 0 || !equals || equals - *e >= (ptrdiff_t)sizeof name;
        if (other) continue;
        snprintf(name, sizeof name, "%.*s", (int)(equals - *e), *e);
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) other = other || strcmp(name, others[i]) == 0;
        if (!other && !has_variable(t, name, strlen(name))) add_variable(t, name, equals + 1);
    }
}

/* An absolute path, because the process may have another working directory. */
static bool describe_settings(struct text *t, const struct settings *s)
{
    char cwd[PATH_MAX], db[2 * PATH_MAX];
    const char *file = s->db ? s->db : getenv("GPUSPY_DB");

    if (!file || !*file) file = "run.db";
    if (file[0] != '/' && !getcwd(cwd, sizeof cwd)) return false;
    if (file[0] == '/' || strcmp(cwd, "/") == 0) cwd[0] = 0;
    snprintf(db, sizeof db, "%s%s%s", cwd, file[0] == '/' ? "" : "/", file);
    add_variable(t, "GPUSPY_DB", db);
    add_variable(t, "GPUSPY_QUIET", "1");
    add_variable(t, "GPUSPY_RUN_ID", launch_run_id());
    launch_recording_set(&s->recording, add_variable, t);
    add_environment(t);
    return !t->cut && strlen(db) < PATH_MAX;
}

static bool read_pid(const char *word, pid_t *pid)
{
    char *end;

    errno = 0;
    const long number = strtol(word, &end, 10);
    if (errno || *end || end == word || number <= 0 || number > INT_MAX) return false;
    *pid = (pid_t)number;
    return true;
}

struct job {
    const char *library; /* to load; "": end the recording */
    const struct text *given;
    bool quiet, tree;
    size_t matches; /* processes that use CUDA or are recorded */
};

/* `started`: the process is one of a tree, in which processes without CUDA are normal. */
static int attach_one(struct job *j, pid_t pid, bool started)
{
    const bool begin = j->library[0] != 0;
    const char *name = begin ? "attach" : "detach";
    struct attach_process p;
    char text[ATTACH_WHY], word[ATTACH_WHY];
    const bool readable = attach_process_read(&p, pid, j->library, text);
    const bool matches = readable && (begin ? p.has_cuda : p.recorder[0] != 0);

    if (!matches && started) return EXIT_YES;
    if (!readable)
        complain("%s: %s", name, text);
    else if (!matches)
        complain(begin ? "attach: process %d has not loaded CUDA, so there is nothing to record"
                       : "detach: process %d is not recorded",
                 (int)pid);
    if (!matches) return readable && !begin ? EXIT_NO : EXIT_INPUT;
    j->matches++;
    const enum attach_result result = begin ? attach_begin(&p, j->library, j->given->at, text) : attach_end(&p, text);
    if (result == ATTACH_FAILED && started && attach_process_ended(pid)) { /* as the workers of a data loader do */
        j->matches--;
        return EXIT_YES;
    }
    char *const wrong = strchr(text, '\n');
    if (wrong) *wrong = 0;
    gs_shell_path(word, sizeof word, text);
    if (result != ATTACH_DONE)
        complain("%s: %s", name, text);
    else if (!j->quiet && begin)
        complain("process %d is now recorded to %s; to end that: gpuspy detach %d", (int)pid, word, (int)pid);
    else if (!j->quiet)
        complain("process %d was recorded to %s; next: gpuspy report %s", (int)pid, word, word);
    if (wrong) complain("%s: %s", name, wrong + 1);
    return result == ATTACH_DONE ? EXIT_YES : result == ATTACH_REFUSED ? EXIT_NO : EXIT_INPUT;
}

/* A tree in which no process matches is an error, reported for its root. */
static int attach_tree(struct job *j, pid_t root)
{
    int code = EXIT_YES;
    pid_t pid;
    DIR *processes = opendir("/proc");

    j->matches = 0;
    for (struct dirent *d; processes && (d = readdir(processes));) {
        if (!read_pid(d->d_name, &pid) || !top_descends((uint32_t)pid, (uint32_t)root)) continue;
        const int one = attach_one(j, pid, true);
        code = one > code ? one : code;
    }
    if (processes) closedir(processes);
    return j->matches ? code : attach_one(j, root, false);
}

static int attach_all(struct job *j, char **argv, int operands)
{
    int code = EXIT_YES;
    pid_t pid = 0;

    for (int i = 0; i < operands; i++) {
        (void)read_pid(argv[i], &pid);
        const int one = j->tree ? attach_tree(j, pid) : attach_one(j, pid, false);
        code = one > code ? one : code;
    }
    return code;
}

static int parse_attach(const struct command *self, int argc, char **argv, struct settings *s)
{
    pid_t pid;
    const int operands = options_parse(self, argc, argv, s);

    for (int i = 0; i < operands; i++) {
        if (read_pid(argv[i], &pid)) continue;
        return complain_with(OPTIONS_BAD, "%s: '%s' is not a process id; type: gpuspy %s 4711", self->name, argv[i],
                             self->name);
    }
    if (operands == 0) complain("%s: no process given; type: gpuspy %s PID", self->name, self->name);
    return operands == 0 ? OPTIONS_BAD : operands;
}

int command_attach(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    struct text given = {.used = 0};
    char library[PATH_MAX], why[PATH_MAX + 256];
    int operands = parse_attach(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (!describe_settings(&given, &s)) {
        return complain_with(
            EXIT_USAGE,
            "attach: cannot use the path of the recording or a setting: it is too long or has a line break");
    }
    if (!launch_library(library, why, sizeof why)) return complain_with(EXIT_INPUT, "attach: %s", why);
    struct job job = {.library = library, .given = &given, .quiet = s.quiet, .tree = s.tree};
    return attach_all(&job, argv, operands);
}

bool command_attach_process(pid_t pid, char *database, char *line, size_t size)
{
    const struct settings s = {.tree = false};
    struct text given = {.used = 0};
    struct attach_process p;
    char library[PATH_MAX], text[ATTACH_WHY] = "";
    bool done = false;

    *database = 0;
    if (!describe_settings(&given, &s))
        snprintf(text, sizeof text, "the path of the recording or a setting is too long or has a line break");
    else if (launch_library(library, text, sizeof text) && attach_process_read(&p, pid, library, text)) {
        if (p.has_cuda)
            done = attach_begin(&p, library, given.at, text) == ATTACH_DONE;
        else
            snprintf(text, sizeof text, "process %d has not loaded CUDA", (int)pid);
    }
    const size_t end = strcspn(text, "\n");
    if (done)
        snprintf(line, size, "process %d is now recorded to %.*s%s%s", (int)pid, (int)end, text, text[end] ? "; " : "",
                 text[end] ? text + end + 1 : "");
    else
        snprintf(line, size, "not attached: %s", text);
    if (done) snprintf(database, PATH_MAX, "%.*s", (int)end, text);
    return done;
}

int command_detach(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    int operands = parse_attach(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    struct job job = {.library = "", .quiet = s.quiet, .tree = s.tree};
    return attach_all(&job, argv, operands);
}
