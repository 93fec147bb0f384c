#include "analyzer/base/pager.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"

static volatile pid_t pager; /* 0: none */

/* Is the first word of `command` a program? Words that a shell would have to parse are accepted. */
static bool is_command_found(const char *command)
{
    char word[PATH_MAX], path[PATH_MAX];

    if (command[strcspn(command, "\"'\\$`;&|<>(){}*?[]~=#\n")]) return true;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(command, " \t"), command);
    return program_find(word, path, sizeof path);
}

static const char *choose_pager(void)
{
    static const char *const variables[] = {"GPUSPY_PAGER", "PAGER"};

    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *name = getenv(variables[i]);
        if (!name) continue;
        name += strspn(name, " \t");
        if (!*name || strcmp(name, "cat") == 0) return NULL;
        if (is_command_found(name)) return name;
        complain("%s: program '%s' not found; printing without a pager", variables[i], name);
        return NULL;
    }
    return is_command_found("less") ? "less" : NULL;
}

/* The terminal belongs to the pager until the user leaves it: if gpuspy ended earlier, two programs would read from it.
 * */
static void end_pager_on_signal(int number)
{
    int status;

    close(STDOUT_FILENO);
    while (waitpid(pager, &status, 0) < 0 && errno == EINTR) continue;
    signal(number, SIG_DFL);
    raise(number);
}

static void in_child(const char *command, int from)
{
    dup2(from, STDIN_FILENO);
    signal(SIGPIPE, SIG_DFL);
    /* Quits if everything fits on the screen, keeps colours, leaves the text there; the user's own LESS takes
     * precedence. */
    setenv("LESS", "FRX", 0);
    setenv("LV", "-c", 0);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static void watch_signals(void)
{
    static const int deadly[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction old, ours = {.sa_handler = end_pager_on_signal};

    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++)
        if (sigaction(deadly[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN) sigaction(deadly[i], &ours, NULL);
    signal(SIGPIPE, SIG_IGN); /* a user who leaves the pager early still gets the answer's exit status */
}

void pager_start(void)
{
    int ends[2];
    const char *kind = getenv("TERM"), *command;

    if (pager || !isatty(STDOUT_FILENO) || !kind || terminal_is_dumb() || !(command = choose_pager())) return;
    if (pipe(ends) != 0) return;
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        in_child(command, ends[0]);
    }
    close(ends[0]);
    if (child > 0) {
        pager = child;
        dup2(ends[1], STDOUT_FILENO);
        watch_signals();
    }
    close(ends[1]);
}

bool pager_is_running(void)
{
    return pager != 0;
}

void pager_wait(void)
{
    int status;

    if (!pager) return;
    /* In a pager Ctrl-C ends a search: it must not end gpuspy, which has finished its work. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    while (waitpid(pager, &status, 0) < 0 && errno == EINTR) continue;
}
