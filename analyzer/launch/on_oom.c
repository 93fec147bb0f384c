#include "analyzer/launch/on_oom.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/base/exit_code.h"
#include "analyzer/base/term.h"
#include "schema/spool.h"
#include "schema/store.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

enum { LOOK_MS = 1000, FINISH_S = 600, TICK_MS = 20, END_MS = 200, NICE = 5, COMMAND_MAX = 65536 };

static bool is_still_recording(const char *path)
{
    char spool[PATH_MAX + 8], error[160];
    struct gs_spool_control c;
    snprintf(spool, sizeof spool, "%s.spool", path);
    if (gs_spool_read_control(spool, &c, error, sizeof error)) return false;
    const enum gs_spool_state state = gs_spool_state(&c);
    return state == GS_SPOOL_RECORDING || state == GS_SPOOL_ELSEWHERE;
}

struct failures {
    int64_t open, handled; /* open: nothing shows so far that the program recovered */
    int64_t pid, start_ns;
};

/* A failure after which PyTorch's allocator frees its cache and succeeds is invisible to the program, so not counted.
 */
static bool read_failures(const char *path, struct failures *f)
{
    static const char query[] = "SELECT (SELECT count(*) FROM oom WHERE fatal), (SELECT count(*) FROM oom WHERE NOT "
                                "fatal AND (layer = 1 OR NOT "
                                "EXISTS (SELECT 1 FROM meta WHERE key = 'torch_version'))), pid, start_real_ns, "
                                "(SELECT value FROM meta WHERE key "
                                "= 'exit_status') FROM process LIMIT 1";
    sqlite3 *db = NULL;
    sqlite3_stmt *q = NULL;
    bool read = false;
    *f = (struct failures){0};
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK) {
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, (int *)NULL);
        sqlite3_busy_timeout(db, LOOK_MS);
        read = sqlite3_prepare_v2(db, query, -1, &q, NULL) == SQLITE_OK && sqlite3_step(q) == SQLITE_ROW;
    }
    if (read) {
        const bool ended_well = sqlite3_column_type(q, 4) != SQLITE_NULL && sqlite3_column_int64(q, 4) == 0;
        *f = (struct failures){sqlite3_column_int64(q, 0), sqlite3_column_int64(q, 1), sqlite3_column_int64(q, 2),
                               sqlite3_column_int64(q, 3)};
        if (ended_well) {
            f->handled += f->open;
            f->open = 0;
        }
    }
    sqlite3_finalize(q);
    sqlite3_close(db);
    return read;
}

struct text {
    char *at;
    size_t used;
};

static void add_command_text(struct text *t, const char *from, size_t n)
{
    n = n < COMMAND_MAX - 1 - t->used ? n : COMMAND_MAX - 1 - t->used;
    memcpy(t->at + t->used, from, n);
    t->used += n;
    t->at[t->used] = 0;
}

/* Quotes a path as one word of the shell. A path without special characters stays as it is, so that quotes around {}
 * in the command do no harm. */
static void add_quoted_word(struct text *t, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
    if (*word && !word[strspn(word, plain)]) {
        add_command_text(t, word, strlen(word));
        return;
    }
    add_command_text(t, "'", 1);
    for (; *word; word++) *word == '\'' ? add_command_text(t, "'\\''", 4) : add_command_text(t, word, 1);
    add_command_text(t, "'", 1);
}

static bool expand_command(struct text *t, const char *command, const char *path, int64_t pid)
{
    char host[256] = "", number[32];
    gethostname(host, sizeof host - 1);
    snprintf(number, sizeof number, "%lld", (long long)pid);
    for (const char *c = command; *c; c++)
        if (c[0] == '{' && c[1] == '}')
            add_quoted_word(t, path), c++;
        else if (c[0] == '%' && c[1] == 'p')
            add_command_text(t, number, strlen(number)), c++;
        else if (c[0] == '%' && c[1] == 'h')
            add_quoted_word(t, host), c++;
        else if (c[0] == '%' && c[1] == '%')
            add_command_text(t, "%", 1), c++;
        else
            add_command_text(t, c, 1);
    return t->used < COMMAND_MAX - 1;
}

struct log {
    char path[PATH_MAX + 16];
    int fd; /* locked while this process lives; -1: it cannot be written, so the command's output is dropped */
};

/* Ignores termination signals: systemd and batch systems signal all processes of a job at its end and kill them later,
 * and the command may run until then. An attending process ends by itself. */
static void ignore_ends(bool ignored)
{
    static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) signal(ends[i], ignored ? SIG_IGN : SIG_DFL);
}

/* The command writes through a second file description, so that processes that it leaves running hold no lock. */
static void be_command(const struct log *log, const char *command, const char *outcome)
{
    char again[32];
    snprintf(again, sizeof again, "/proc/self/fd/%d", log->fd);
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int out = open(again, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (out < 0) out = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) _exit(126);
    setenv("GPUSPY_OOM", outcome, 1);
    ignore_ends(false);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void write_log(const struct log *log, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void write_log(const struct log *log, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (log->fd >= 0) vdprintf(log->fd, format, arguments);
    va_end(arguments);
}

static void run_command(const struct log *log, const char *command, const char *outcome)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) be_command(log, command, outcome);
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (pid < 0)
        write_log(log, "gpuspy: cannot start the command: %s\n", strerror(errno));
    else if (WIFSIGNALED(status))
        write_log(log, "gpuspy: the command died of signal %d\n", WTERMSIG(status));
    else
        write_log(log, "gpuspy: the command ended with status %d\n", WEXITSTATUS(status));
}

static void open_log(struct log *log, const char *path)
{
    struct stat st;
    snprintf(log->path, sizeof log->path, "%s.on-oom.log", path);
    log->fd = open(log->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (log->fd >= 0 && (fstat(log->fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())) {
        close(log->fd); /* in a folder that others write to, too */
        log->fd = -1;
    }
    while (log->fd >= 0 && flock(log->fd, LOCK_EX) != 0 && errno == EINTR) continue;
}

static bool has_line(const struct log *log, const char *line)
{
    char *have = NULL;
    size_t size = 0;
    bool found = false;
    const int fd = log->fd < 0 ? -1 : open(log->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
    while (f && !found && getline(&have, &size, f) >= 0) found = strcmp(have, line) == 0;
    if (f) fclose(f);
    free(have);
    return found;
}

/* The log tells whether another attending process ran the command for this outcome; then it does not run again. */
static void respond_to_failure(const char *path, const struct failures *f, const char *outcome)
{
    struct log log;
    char line[160];
    struct text t = {.at = calloc(1, COMMAND_MAX)};
    const char *command = getenv(LAUNCH_ON_OOM);
    if (!t.at || !command) return;
    open_log(&log, path);
    snprintf(line, sizeof line, "gpuspy: out of memory, %s: process %lld, started at %lld ns\n", outcome,
             (long long)f->pid, (long long)f->start_ns);
    if (!has_line(&log, line)) {
        write_log(&log, "%s", line);
        if (expand_command(&t, command, path, f->pid))
            run_command(&log, t.at, outcome);
        else
            write_log(&log, "gpuspy: the command is longer than %d bytes\n", COMMAND_MAX);
    }
    if (log.fd >= 0) close(log.fd);
    free(t.at);
}

/* Waits until the process ends, at most one second. */
static void wait_for_command(int process)
{
    struct pollfd p = {.fd = process, .events = POLLIN};
    /* It has just ended, and who signals its other processes then does so before the command is started. Or it
     * executed another program, and its recording ends as soon as that program's drain has completed it. */
    if (poll(&p, 1, LOOK_MS) > 0) poll(NULL, 0, END_MS);
}

static void attend_end(const char *path, bool responded)
{
    struct failures f;
    char error[512];
    uint32_t pid;
    (void)gs_recover(path, &pid, error, sizeof error);
    if (!read_failures(path, &f)) return;
    if (f.open > 0)
        respond_to_failure(path, &f, "not handled");
    else if (f.handled > 0 && !responded)
        respond_to_failure(path, &f, "handled");
}

int launch_on_oom_attend(int argc, char **argv)
{
    struct failures f;
    bool responded = false;
    if (argc != 2 || !getenv(LAUNCH_ON_OOM))
        return complain_with(EXIT_USAGE, "%s is for gpuspy's own use: RECORDING PID", LAUNCH_ON_OOM_WORD);
    const char *path = argv[0];
    const int process = (int)syscall(SYS_pidfd_open, (pid_t)strtol(argv[1], NULL, 10), 0);
    setpriority(PRIO_PROCESS, 0, NICE);
    ignore_ends(true);
    while (is_still_recording(path)) {
        if (!responded && read_failures(path, &f) && f.handled > 0) {
            responded = true;
            respond_to_failure(path, &f, "handled");
        }
        wait_for_command(process);
    }
    attend_end(path, responded);
    return EXIT_YES;
}

static void be_attendant(char *const *recordings, size_t n)
{
    setsid();
    for (int fd = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC); fd <= 2; fd++) dup2(null, fd);
    setpriority(PRIO_PROCESS, 0, NICE);
    for (size_t i = 0; i < n; i++)
        if (!is_still_recording(recordings[i])) attend_end(recordings[i], false);
    _exit(0);
}

void launch_on_oom_finish(char *const *recordings, size_t n)
{
    struct failures f;
    bool any = false;
    for (size_t i = 0; i < n; i++) any = any || (read_failures(recordings[i], &f) && f.open + f.handled > 0);
    if (!any) return;
    const pid_t pid = fork();
    if (pid == 0) be_attendant(recordings, n);
    const time_t until = time(NULL) + FINISH_S;
    while (pid > 0 && waitpid(pid, NULL, WNOHANG) == 0) {
        if (time(NULL) > until) {
            complain("run: the command of --on-oom has not ended after %d min; it continues, and gpuspy no longer "
                     "waits for it",
                     FINISH_S / 60);
            return;
        }
        poll(NULL, 0, TICK_MS);
    }
}
