#include "analyzer/base/input.h"
#include "analyzer/base/arena.h"
#include "analyzer/command/recorded.h"

#include <dirent.h>
#include <elf.h>
#include <limits.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "analyzer/launch/on_oom.h"
#include "analyzer/report/report.h"
#include "analyzer/view/view_text.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/base/sort.h"
#include "schema/store.h"

/* Whether the database holds a process of the run. */
static bool holds_run(const char *path, const char *run_id)
{
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    bool is = false;

    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(db, 2000);
        if (sqlite3_prepare_v2(db, "SELECT 1 FROM process WHERE run_id = ?", -1, &q, NULL) == SQLITE_OK) {
            sqlite3_bind_text(q, 1, run_id, -1, SQLITE_STATIC);
            is = sqlite3_step(q) == SQLITE_ROW;
        }
    }
    sqlite3_finalize(q);
    sqlite3_close(db);
    return is;
}

/* The same; a process that ended without completing its recording may have left even the row of the process in the
 * spool or in the log. */
static bool is_of_run(const char *path, const char *run_id)
{
    uint32_t pid;
    char error[400];

    if (holds_run(path, run_id)) return true;
    (void)gs_recover(path, &pid, error, sizeof error); /* the report says what is missing */
    return holds_run(path, run_id);
}

static int by_length_then_name(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;

    return SORT_UP(strlen(x), strlen(y)) ?: strcmp(x, y); /* run.db before run.123.db */
}

/* If a name is taken, the recorder uses the next free one, and every process writes its own file. The run id shows
 * which files belong to the run. */
static struct input_files find_recorded(const struct command_recorded *r)
{
    struct input_files l = {0};
    char folder[PATH_MAX], path[PATH_MAX + NAME_MAX + 2];
    const char *slash = strrchr(r->db, '/');

    snprintf(folder, sizeof folder, "%.*s", slash == r->db ? 1 : (int)(slash - r->db), r->db);
    DIR *d = opendir(folder);
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        /* One second of tolerance: the kernel stamps files with a coarser clock. */
        if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_mtime + 1 >= r->started && input_is_recording(path) &&
            is_of_run(path, r->run_id))
            *ARENA_PUSH(l.list, l.n, l.cap) = arena_copy(path);
    }
    if (d) closedir(d);
    SORT(l.list, l.n, by_length_then_name);
    return l;
}

/* The largest peak of any process on the next device after `device`; NULL: there is none. */
static const struct result_peak *next_device_peak(const struct result_report *r, int device)
{
    const struct result_peak *next = NULL;

    EACH_IN (p, r->peaks) {
        if (p->layer != RUN_SERIES_DEVICE || p->device <= device) continue;
        if (!next || p->device < next->device || (p->device == next->device && p->bytes > next->bytes)) next = p;
    }
    return next;
}

/* One line per device: the largest peak of any process. If no peak of device memory is known, the peaks of CPU tensors
 * and of tensors instead. */
static void print_peaks(const struct result_report *r)
{
    bool any_device = false;
    char bytes[UNITS_TEXT], at[UNITS_TEXT];

    for (const struct result_peak *p = next_device_peak(r, -1); p; p = next_device_peak(r, p->device)) {
        const struct run_device *d = result_device_of(r, p->device);
        any_device = true;
        units_format_bytes(bytes, (uint64_t)p->bytes);
        units_format_seconds(at, p->time_s);
        if (d && d->total_bytes > 0)
            complain("GPU %d: peak %s of %s (%s) after %s", p->device, bytes, UNITS_BYTES((uint64_t)d->total_bytes),
                     UNITS_SHARE((double)p->bytes / (double)d->total_bytes), at);
        else
            complain("GPU %d: peak %s after %s", p->device, bytes, at);
    }
    for (size_t i = 0; i < r->peaks_n && !any_device; i++)
        if (r->peaks[i].layer == RUN_SERIES_HOST || r->peaks[i].layer == RUN_SERIES_TENSOR)
            complain("%s: peak %s after %s", r->peaks[i].layer == RUN_SERIES_HOST ? "CPU tensors" : "tensors",
                     units_format_bytes(bytes, (uint64_t)r->peaks[i].bytes),
                     units_format_seconds(at, r->peaks[i].time_s));
}

static void print_oom(const struct result_oom_verdict *o)
{
    char left[UNITS_TEXT] = "?";

    if (o->free_bytes != RUN_UNKNOWN) units_format_bytes(left, (uint64_t)o->free_bytes);
    complain("%s: %s requested, %s free; %s",
             o->outcome == RESULT_OUTCOME_RETRIED   ? "an allocation failed, and succeeded on a retry"
             : o->outcome == RESULT_OUTCOME_UNKNOWN ? "out of memory, perhaps handled"
                                                    : "out of memory, and the program went on",
             UNITS_BYTES((uint64_t)o->requested_bytes), left, o->verdict);
}

/* Stores how the program ended, if the recorder cannot know it: by a signal or _exit. */
static void store_end(const struct command_recorded *r, const char *path)
{
    sqlite3 *db = NULL;
    char sql[512];
    const bool killed = WIFSIGNALED(r->status);

    if (!killed && !WIFEXITED(r->status)) return;
    snprintf(sql, sizeof sql,
             "INSERT OR IGNORE INTO meta SELECT '%s', %d FROM process WHERE pid = %d AND run_id = '%s' LIMIT 1",
             killed ? "exit_signal" : "exit_status", killed ? WTERMSIG(r->status) : WEXITSTATUS(r->status), r->pid,
             r->run_id);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL) == SQLITE_OK) {
        sqlite3_busy_timeout(db, 2000);
        sqlite3_exec(db, sql, NULL, NULL, NULL); /* if the recording is read-only, the end stays unknown */
    }
    sqlite3_close(db);
}

/* Prints how the program failed, unless a fatal OOM explains it. */
static void print_failure(const struct command_recorded *run, const struct result_report *r)
{
    char how[RUN_FAILURE_TEXT];

    if (r->ooms_n && r->ooms[0].fatal) return;
    for (size_t i = 0; i < r->processes_n; i++)
        if (run_process_failure(&r->processes[i], how, sizeof how)) {
            const char *outcome = result_outcome_text(r);
            complain("process %u failed: %s; %c%s%s%s", r->processes[i].pid, how, text_first_in_clause(outcome),
                     outcome + 1,
                     run->what_if ? " before that, so gpuspy does not know whether the whole run fits" : "",
                     result_was_killed(r)       ? "; the kernel sends SIGKILL if host memory runs out (see dmesg)"
                     : result_lacked_context(r) ? "; probably the CUDA context did not fit: nvidia-smi lists the "
                                                  "processes that hold the GPU"
                                                : "");
            return;
        }
}

static void print_summary(const struct command_recorded *run, const struct result_report *r, const char *path)
{
    char shown[PATH_MAX];

    if (r->lost_events)
        complain("%s LOST: all figures below are incomplete", UNITS_PLURAL(r->lost_events, "event was", "events were"));
    print_failure(run, r);
    if (r->ooms_n && r->ooms[0].fatal)
        view_text_failure(&(struct draw_text){
            .report = r, .term = terminal_of(stderr), .out = stderr, .brief = true, .shorter = DRAW_NO_REASONS});
    else if (r->ooms_n)
        print_oom(&r->ooms[0]);
    print_peaks(r);
    complain("%s of %zu process%s in %s", UNITS_PLURAL(r->events, "event", NULL), r->processes_n,
             r->processes_n == 1 ? "" : "es", text_path_here(shown, sizeof shown, path));
}

static void print_run(const struct command_recorded *r, const struct input_files *l)
{
    char error[1024], shown[PATH_MAX];
    struct symbolizer *symbols = symbolizer_new();
    struct run_options plain = {.top = 1, .alone = true},
                       named = {.top = 1, .alone = true, SYMBOLIZER_OPTIONS(symbols)}, *options = &plain;
    struct run *run = run_open((const char *const *)l->list, l->n, options, error, sizeof error);
    /* the verdict depends on native frames, so it must be the one that the report gives */
    if (run && (RUN_COUNT(run_ooms, run) > 0)) {
        run_close(run);
        options = &named;
        run = run_open((const char *const *)l->list, l->n, options, error, sizeof error);
    }
    struct result_report *report = run ? report_build(run, options, error, sizeof error) : NULL;

    if (!report)
        complain("%s", error);
    else if (!r->quiet)
        print_summary(r, report, l->list[0]);
    if (!r->quiet && *text_path_here(shown, sizeof shown, l->list[0]))
        fprintf(stderr, "gpuspy: next: gpuspy report %s\n", shown);
    if (report) report_free(report);
    if (run) run_close(run);
    symbolizer_free(symbols);
}

#if defined(__aarch64__)
enum { MACHINE = EM_AARCH64 };
#else
enum { MACHINE = EM_X86_64 };
#endif

/* Why the file's properties prevented loading the recorder; NULL: they did not. ld.so loads preloaded libraries, and an
 * executable without an interpreter does not use ld.so. */
static const char *cannot_load(const char *name)
{
    char path[PATH_MAX];
    struct program p;
    struct stat st;

    if (!program_find(name, path, sizeof path) || stat(path, &st) != 0) return NULL;
    program_read(path, &p);
    return p.elf && p.class != ELFCLASS64  ? "is a 32-bit program, which cannot load a 64-bit library"
           : p.elf && p.machine != MACHINE ? "is a program for another processor, which cannot load this library"
           : p.elf && !p.loader[0]         ? "is linked statically, so no library can be loaded into it"
           : program_is_musl(&p)           ? "is linked to musl, and the recorder needs glibc"
           : geteuid() != 0 && getxattr(path, "security.capability", NULL, 0) > 0
               ? "has file capabilities, so the system loads no other library into it"
           : (st.st_mode & (S_ISUID | S_ISGID)) && geteuid() != 0
               ? "is set-user-ID, so the system loads no other library into it"
               : NULL;
}

/* "failed with status 2"; "" after success. Shells end with 126 and 127 if a command cannot be started. */
static void format_outcome(int status, char *out, size_t size)
{
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;

    *out = 0;
    if (WIFSIGNALED(status))
        text_put(out, size, "was killed by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (code)
        text_put(out, size, "failed with status %d%s", code,
                 code == 127   ? " (a shell's status for a command that was not found)"
                 : code == 126 ? " (a shell's status for a command that cannot be executed)"
                               : "");
}

/* The files of NVIDIA's driver, WSL's and Jetson's. */
static bool has_gpu(void)
{
    return access("/proc/driver/nvidia/version", F_OK) == 0 || access("/dev/nvidiactl", F_OK) == 0 ||
           access("/dev/dxg", F_OK) == 0 || access("/dev/nvmap", F_OK) == 0;
}

/* One line on stderr: why `gpuspy run` recorded nothing, as far as the program's end and its file show it. `program` as
 * the user typed it, `status` from waitpid. `what_if`: --simulate or --limit was given. */
static void print_unrecorded(const char *program, int status, bool torch_cpu, bool what_if)
{
    const char *why = cannot_load(program), *name = basename(program);
    char ended[160];

    format_outcome(status, ended, sizeof ended);
    /* A process that calls CUDA but cannot write its recording reports that itself; this one does not know it. Nor does
     * it know what a process does whose environment was replaced: gpuspy doctor explains both. */
    if (why)
        complain("nothing was recorded: '%s' %s%s%s", program, why, *ended ? "; it " : "", ended);
    else if (strchr(ended, '('))
        complain("nothing was recorded: '%s' %s; see gpuspy doctor", name, ended);
    else
        complain("nothing was recorded: '%s' %s, and no recorded process called CUDA%s; see gpuspy doctor", name,
                 *ended ? ended : "succeeded",
                 torch_cpu || what_if ? ""
                 : !has_gpu()         ? "; no GPU here: add --simulate a100-40g"
                 : *ended             ? ""
                                      : "; --torch-cpu records PyTorch's CPU tensors");
}

void command_print_recorded(const struct command_recorded *r)
{
    struct input_files l = find_recorded(r);

    for (size_t i = 0; i < l.n; i++) {
        char error[1024], shown[PATH_MAX];
        uint32_t pid = 0;
        int done = gs_recover(l.list[i], &pid, error, sizeof error);
        if (done < 0)
            complain("%s", error);
        else if (done == 2 && !r->quiet)
            complain("process %u is still running and recording to %s", pid,
                     text_path_here(shown, sizeof shown, l.list[i]));
        store_end(r, l.list[i]);
    }
    if (l.n)
        print_run(r, &l);
    else
        print_unrecorded(r->program, r->status, r->torch_cpu, r->what_if);
    input_files_free(&l);
}

void command_finish_on_oom(const struct command_recorded *r)
{
    struct input_files l = find_recorded(r);

    launch_on_oom_finish(l.list, l.n);
    input_files_free(&l);
}
