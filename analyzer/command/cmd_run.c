/* gpuspy run: runs a program with the recorder, ends as the program did, and prints a summary. launch.c starts the
 * program, recorded.c prints the summary. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/command/commands.h"
#include "analyzer/launch/lacks.h"
#include "analyzer/launch/launch.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/launch/limit.h"
#include "analyzer/launch/on_oom.h"
#include "analyzer/launch/recording.h"
#include "analyzer/command/recorded.h"
#include "analyzer/launch/simulate.h"
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "schema/store.h"

struct settings {
    struct launch_recording recording;
    const char *output, *simulate, *limit, *on_oom;
    int gpus;  /* number of simulated GPUs; 0: one */
    int loops; /* -1: not given */
    bool inside_pools, quiet, no_summary;
};

const struct command_text command_text_run = {
    .options = OPTION_ROWS(
        OPTION_ROW(FILE, "output", 'o', output, "FILE",
                   "record to FILE; default run.db. If FILE exists, gpuspy takes and prints the next free name"),
        LAUNCH_RECORDING_ROWS(struct settings),
        OPTION_ROW(FLAG, "inside-pools", 0, inside_pools, NULL,
                   "start JAX, TensorFlow and CuPy without their memory pools, so that each array is a CUDA allocation "
                   "with its "
                   "line; the program is slower, and its memory is less fragmented"),
        {"simulate", 0, OPTION_TEXT, offsetof(struct settings, simulate), "GPU|SIZE", estimate_gpu_words, 0, 0,
         "dry run on a simulated GPU of this kind or size (rtx-4090, 24GiB), without a real one: allocators, copies "
         "and waits are real, kernels do not run; memory figures are meaningful, computed values are not"},
        {"gpus", 0, OPTION_NUMBER, offsetof(struct settings, gpus), "N", NULL, 1, 16, "simulate N GPUs"},
        {"simulate-loops", 0, OPTION_NUMBER, offsetof(struct settings, loops), "N", NULL, 0, 1000000000,
         "stop a dry run whose loop waits for a value that a simulated GPU never computes: after N reads without "
         "progress; default 1000, 0: never"},
        OPTION_ROW(TEXT, "limit", 0, limit, "GPU|SIZE",
                   "cap the GPUs at this size, such as 24GiB, rtx-4090, or 0:24GiB,1:40GiB by device; requests beyond "
                   "it fail as "
                   "out of memory"),
        OPTION_ROW(
            TEXT, "on-oom", 0, on_oom, "COMMAND",
            "run this shell command after each out-of-memory error that the program does not handle, and after the "
            "first "
            "that it handles; {} is the recording, %p the pid, %h the host; the output goes to RECORDING.on-oom.log"),
        OPTION_ROW(FLAG, "quiet", 'q', quiet, NULL, "print errors only"),
        OPTION_ROW(FLAG, "no-summary", 0, no_summary, NULL, "print no summary at the end")),
    .about =
        "Runs a program with libgpuspy.so preloaded. Each of its processes that uses CUDA records its allocations, "
        "copies and waits with their lines of code. However the program ends, gpuspy completes the recording and "
        "prints a summary on stderr.\n\nThe exit status is the program's, or gpuspy ends by the same signal; 127 if "
        "the program does not exist, 126 if it cannot be executed, 125 if gpuspy cannot start it, 124 after a dry run "
        "was stopped in a loop (--simulate-loops). gpuspy forwards signals to the program.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy run -- python train.py --epochs 3", "record a training script to run.db"},
        {"gpuspy run -o leak.db --stacks python -- torchrun --nproc-per-node 8 train.py",
         "all processes of a distributed run, with Python stacks only"},
        {"gpuspy run --torch-cpu -- python train.py", "record PyTorch's CPU tensors as well"},
        {"gpuspy run --inside-pools -- python train.py", "which lines of a JAX program hold memory"},
        {"gpuspy run --simulate a100-40g -- python train.py", "what it needs on another GPU, and whether it fits"},
        {"gpuspy run --limit rtx-4090 -- python train.py", "whether it runs on a smaller GPU than this one"},
        {"gpuspy run --on-oom 'gpuspy report --html /runs/%p.html {}' -- python train.py",
         "a page as soon as it runs out of memory"},
        {"gpuspy run --keep 512MiB -- python train.py", "leave it on for days: the recording never exceeds 512 MiB"}),
    .program_follows = true,
};

/* Makes the path absolute, because the program may change its working directory. */
static bool make_path_absolute(const char *path, char *out, size_t size)
{
    char cwd[PATH_MAX];
    int n;

    if (path[0] == '/')
        n = snprintf(out, size, "%s", path);
    else if (getcwd(cwd, sizeof cwd))
        n = snprintf(out, size, "%s/%s", strcmp(cwd, "/") ? cwd : "", path);
    else
        return false;
    return n > 0 && (size_t)n < size;
}

/* Replaces %h by the host's name. Keeps %p, which differs between the recorder's processes. */
static void write_path_here(const char *db, char *out, size_t size)
{
    char host[256] = "";
    size_t used = 0;

    gethostname(host, sizeof host - 1);
    for (const char *p = db; *p && used + 1 < size; p++) {
        if (p[0] == '%' && p[1] == 'h') {
            int n = snprintf(out + used, size - used, "%s", host);
            used = n > 0 && used + (size_t)n < size ? used + (size_t)n : size - 1;
            p++;
        } else {
            out[used++] = *p;
        }
    }
    out[used] = 0;
}

/* Creates a folder whose name contains %h, as in runs/%h/run.db: the user cannot know the names of all hosts. */
static void make_run_folder(const char *db, const char *on_this_host)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(db, '/'), *real = strrchr(on_this_host, '/');
    const char *name = slash;

    while (name && name > db && name[-1] != '/') name--;
    if (!name || !real || !memmem(name, (size_t)(slash - name), "%h", 2)) return;
    snprintf(folder, sizeof folder, "%.*s", (int)(real - on_this_host), on_this_host);
    char *parent = strrchr(folder, '/');
    if (parent && parent != folder) {
        *parent = 0;
        mkdir(folder, 0777);
        *parent = '/';
    }
    mkdir(folder, 0777); /* if it fails, can_record reports why */
}

/* If gpuspy cannot write recordings, the job still runs, without the recorder: the job is more important. */
static bool can_record(const char *db)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(db, '/'), *device = NULL;
    struct stat st;

    snprintf(folder, sizeof folder, "%.*s", slash == db ? 1 : (int)(slash - db), db);
    if (stat(folder, &st) == 0 && !S_ISDIR(st.st_mode))
        errno = ENOTDIR;
    else if (stat(db, &st) == 0 && S_ISDIR(st.st_mode))
        errno = EISDIR;
    else if (stat(db, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode)))
        device = "it is a device";
    else if (access(folder, W_OK | X_OK) == 0)
        return true;
    return complain_with(false, "run: cannot record to '%s': %s; the program runs unrecorded", db,
                         device ? device : strerror(errno));
}

/* Settings with which a framework allocates each array from CUDA: JAX's "GPU memory allocation", TensorFlow's
 * gpu_process_state.cc. */
static const struct {
    const char *name, *value;
} pools[] = {{"XLA_PYTHON_CLIENT_ALLOCATOR", "platform"},
             {"XLA_PYTHON_CLIENT_PREALLOCATE", "false"},
             {"TF_GPU_ALLOCATOR", "cuda_malloc_async"}};

/* CuPy has no such variable; Python code must set it. */
static void set_pools(const struct settings *s, struct launch *l)
{
    static char folder[PATH_MAX];
    char why[2 * PATH_MAX];

    for (size_t i = 0; i < sizeof pools / sizeof *pools; i++)
        if (!getenv(pools[i].name)) launch_set(l, pools[i].name, pools[i].value);
    launch_set(l, "GPUSPY_INSIDE_POOLS", "1");
    if (s->simulate) return; /* --simulate sets PYTHONPATH itself */
    if (launch_simulate_folder(folder, sizeof folder, why, sizeof why))
        launch_python_path(l, folder);
    else
        complain("run: --inside-pools: CuPy keeps its pool: gpuspy %s", why);
}

static void set_variable(void *launch, const char *name, const char *value)
{
    launch_set(launch, name, value);
}

static void set_run_environment(const struct settings *s, struct launch *l, const char *db, const char *id)
{
    launch_set(l, "GPUSPY_DB", db);
    launch_set(l, "GPUSPY_RUN_ID", id);
    launch_recording_set(&s->recording, set_variable, l);
    if (s->limit) launch_set(l, "GPUSPY_LIMIT", s->limit);
    if (s->on_oom) launch_set(l, LAUNCH_ON_OOM, s->on_oom);
    if (s->inside_pools) set_pools(s, l);
    /* `gpuspy run` prints one summary of all processes, so the recorders print none. */
    launch_set(l, "GPUSPY_QUIET", "1");
}

/* In a process of its own: even a crash of it does not change the exit status, which is the program's. */
static void print_summary_apart(const struct command_recorded *r)
{
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    if (child <= 0) command_print_recorded(r);
    if (child == 0) exit(0);
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
    if (WIFSIGNALED(status))
        complain("the summary crashed (signal %d); try 'gpuspy report', and report the crash", WTERMSIG(status));
}

static int record_command(const struct settings *s, struct launch *l, const char *db, const char *on_this_host)
{
    struct command_recorded r = {.db = on_this_host,
                                 .run_id = launch_run_id(),
                                 .started = time(NULL),
                                 .program = l->argv[0],
                                 .torch_cpu = s->recording.torch_cpu,
                                 .quiet = s->quiet,
                                 .what_if = s->simulate || s->limit};
    char path[PATH_MAX];
    struct program file = {0};
    int code;

    if (!launch_find_library(l)) return LAUNCH_FAILED;
    if (program_find(l->argv[0], path, sizeof path)) program_read(path, &file);
    if (program_is_musl(&file)) l->library[0] = 0;
    set_run_environment(s, l, db, r.run_id);
    if (!launch_wait(l, &code)) return code;
    r.pid = l->pid;
    r.status = l->status;
    if (!s->no_summary) print_summary_apart(&r);
    if (s->simulate && !s->no_summary) launch_lacks_complain();
    if (s->on_oom) setenv(LAUNCH_ON_OOM, s->on_oom, 1);
    if (getenv(LAUNCH_ON_OOM) && *getenv(LAUNCH_ON_OOM)) command_finish_on_oom(&r);
    return launch_end(l);
}

/* Converts the limit to bytes, because the recorder does not know the names of GPUs. */
static bool resolve_limit(struct settings *s)
{
    static char limit[2048];
    char wrong[128], clean[128];

    if (!s->limit || launch_limit_value(s->limit, true, limit, sizeof limit, wrong, sizeof wrong)) {
        s->limit = s->limit ? limit : NULL;
        return true;
    }
    terminal_clean(clean, sizeof clean, wrong, true);
    if (!strchr("0123456789.-", *wrong)) {
        (void)estimate_gpu_require("run", "limit", clean);
        return false;
    }
    return complain_with(
        false,
        "run: --limit: '%s' is not a size such as 24GiB or a GPU ('gpuspy estimate --gpus' lists them); "
        "for several GPUs: 0:24GiB,1:40GiB, each once",
        clean);
}

int command_run(const struct command *self, int argc, char **argv)
{
    struct settings s = {.loops = -1};
    struct launch launch = {.argv = argv};
    char db[PATH_MAX], on_this_host[PATH_MAX];
    const char *output;
    int operands = options_parse(self, argc, argv, &s), code;

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands == 0) return complain_with(EXIT_USAGE, "run: no program given; type: gpuspy run -- python train.py");
    argv[operands] = NULL; /* parsing only moves operands forward, and argv[argc] is NULL */
    output = s.output ? s.output : getenv("GPUSPY_DB");
    if (!output || !*output) output = "run.db";
    if (!make_path_absolute(output, db, sizeof db)) {
        return complain_with(LAUNCH_FAILED,
                             "run: cannot use the path '%s': it is too long, or the working directory does not exist",
                             output);
    }
    if (!resolve_limit(&s)) return EXIT_USAGE;
    if (s.gpus && !s.simulate)
        return complain_with(EXIT_USAGE, "run: --gpus works with --simulate only; add --simulate GPU");
    if (s.loops >= 0 && !s.simulate)
        return complain_with(EXIT_USAGE, "run: --simulate-loops works with --simulate only; add --simulate GPU");
    if (s.simulate && (code = launch_simulate_set(&launch, s.simulate, s.gpus, s.loops)) != 0) return code;
    write_path_here(db, on_this_host, sizeof on_this_host);
    make_run_folder(db, on_this_host);
    if (can_record(on_this_host)) return record_command(&s, &launch, db, on_this_host);
    return launch_wait(&launch, &code) ? launch_end(&launch) : code;
}
