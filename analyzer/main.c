/* gpuspy: finds the command, and makes sure that what it printed has arrived. */
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/mapped.h"
#include "analyzer/base/pager.h"
#include "analyzer/base/progress.h"
#include "analyzer/base/term.h"
#include "analyzer/command/commands.h"
#include "analyzer/command/help.h"
#include "analyzer/launch/on_oom.h"
#include "schema/open_high.h"

/* A standard stream that was closed would be the next file that is opened, and a line printed would
 * land in it. Descriptors are put there that cannot be used (reading for output, writing for
 * input); close-on-exec, so that a program run by us finds them closed as we did. */
static void guard_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            if (open("/dev/null", (fd ? O_RDONLY : O_WRONLY) | O_CLOEXEC) != fd) _exit(EXIT_INPUT);
}

/* The reader of a pipe went away (`| head`): it knows, and nothing needs to be said. */
static bool reader_left(void)
{
    struct pollfd p = {.fd = STDOUT_FILENO};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

/* A full disk or a closed pipe is seen at the latest here. */
static int close_output(int code)
{
    progress_clear();
    bool failed = ferror(stdout), quiet = failed && reader_left();
    const char *why = "an earlier write failed";

    errno = 0;
    if (fflush(stdout) != 0) {
        failed = true;
        quiet = errno == EPIPE;
        why = strerror(errno);
    }
    if (fclose(stdout) != 0 && !failed) {
        failed = true;
        why = strerror(errno);
    }
    if (quiet && pager_is_running()) failed = false; /* who leaves a pager has seen enough */
    pager_wait();
    if (failed && !quiet) complain("cannot write the output: %s; what was printed is not complete", why);
    return failed && !code ? EXIT_INPUT : code;
}

static void note_nothing(int number)
{
}

/* A limit on file sizes (ulimit -f) fails a write; it must not end gpuspy, which has another program's exit status to
 * return. A handler, because the program that gpuspy starts does not inherit it. */
static void survive_file_limit(void)
{
    struct sigaction old, none = {.sa_handler = note_nothing, .sa_flags = SA_RESTART};
    if (sigaction(SIGXFSZ, NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(SIGXFSZ, &none, NULL);
}

/* `gpuspy run.db`. */
static int report_recording(int argc, char **argv)
{
    const struct command *report = command_find(commands, "report");

    if (argc > 1 && command_find(commands, argv[1]) && access(argv[1], F_OK) != 0)
        return complain_with(EXIT_USAGE, "the command comes first: gpuspy %s %s", argv[1], argv[0]);
    return report->run(report, argc, argv);
}

int main(int argc, char **argv)
{
    guard_standard_streams();
    gs_open_low(true);
    mapped_survive();
    survive_file_limit();
#ifdef M_ARENA_MAX
    mallopt(M_ARENA_MAX, 1); /* a second thread's heap of its own would keep what it frees */
#endif
    setlocale(LC_CTYPE, "");
    const char *name = argc > 1 ? argv[1] : "";
    const struct command *c = command_find(commands, name);
    int code = EXIT_YES;

    if (c)
        code = c->run(c, argc - 2, argv + 2);
    else if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
        puts("gpuspy " GPUSPY_VERSION);
    else if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        command_help_overview(commands, stdout);
    else if (strcmp(name, LAUNCH_ON_OOM_WORD) == 0)
        code = launch_on_oom_attend(argc - 2, argv + 2);
    else if (*name && access(name, F_OK) == 0)
        code = report_recording(argc - 1, argv + 1);
    else if (argc > 1)
        code = command_unknown(name, argv[2]);
    else {
        command_help_overview(commands, stderr);
        code = EXIT_USAGE;
    }
    return close_output(code);
}
