#include "analyzer/launch/child.h"
#include "analyzer/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NO_SUCH = 127, AFTER_KILL_MS = 1000, TICK_MS = 20 };

void launch_child_set(struct launch_child *c, const char *name, const char *value)
{
    if (c->variables == CHILD_VARIABLES) return;
    c->name[c->variables] = name;
    c->value[c->variables++] = value;
}

/* The child gets its own process group, so that the processes that it starts are killed with it. */
static void run_in_child(const struct launch_child *c, int out, int err, int started)
{
    setpgid(0, 0);
    int in = open("/dev/null", O_RDONLY);
    if (in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(NO_SUCH);
    for (int i = 0; i < c->variables; i++)
        if (c->value[i])
            setenv(c->name[i], c->value[i], 1);
        else
            unsetenv(c->name[i]);
    if (c->folder && chdir(c->folder) != 0) _exit(NO_SUCH);
    if (c->work) _exit(c->work(c->data));
    execvp(c->argv[0], (char *const *)(uintptr_t)c->argv);
    if (write(started, "", 1) < 0) /* the pipe is close-on-exec: a byte in it means that execvp failed */
        _exit(NO_SUCH);
    _exit(NO_SUCH);
}

struct stream {
    int fd;
    char *text;
    size_t n, size;
};

/* False at the end of the pipe. Output beyond the buffer is read and dropped. */
static bool drain_child_stream(struct stream *s)
{
    char rest[4096];
    bool room = s->n + 1 < s->size;
    ssize_t got = room ? read(s->fd, s->text + s->n, s->size - 1 - s->n) : read(s->fd, rest, sizeof rest);

    if (got < 0) return errno == EINTR || errno == EAGAIN;
    s->n += room ? (size_t)got : 0;
    s->text[s->n] = 0;
    return got > 0;
}

static void listen_to(struct launch_child *c, struct stream *s, int64_t until)
{
    struct pollfd p[2] = {{.fd = s[0].fd, .events = POLLIN}, {.fd = s[1].fd, .events = POLLIN}};
    int64_t left;

    while ((p[0].fd >= 0 || p[1].fd >= 0) && (left = until - clock_now_ms()) > 0) {
        if (poll(p, 2, (int)left) < 0 && errno != EINTR) break;
        for (int i = 0; i < 2; i++)
            if (p[i].fd >= 0 && p[i].revents && !drain_child_stream(&s[i])) p[i].fd = -1;
    }
    c->timed_out = p[0].fd >= 0 || p[1].fd >= 0;
}

static bool has_child_ended(struct launch_child *c, pid_t pid, int64_t until)
{
    do {
        pid_t got = waitpid(pid, &c->status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) return true;
        poll(NULL, 0, TICK_MS);
    } while (clock_now_ms() < until);
    return false;
}

bool launch_child_run(struct launch_child *c)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1}, started[2] = {-1, -1};
    int64_t until = clock_now_ms() + c->timeout_ms;
    char byte;

    c->started = c->timed_out = false;
    c->out[0] = c->err[0] = 0;
    c->status = -1;
    if (pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0 && pipe2(started, O_CLOEXEC) == 0) {
        pid_t pid = fork();
        if (pid == 0) run_in_child(c, out[1], err[1], started[1]);
        close(out[1]), close(err[1]), close(started[1]);
        out[1] = err[1] = started[1] = -1;
        if (pid > 0) {
            struct stream s[2] = {{out[0], c->out, 0, sizeof c->out}, {err[0], c->err, 0, sizeof c->err}};
            c->started = c->work || read(started[0], &byte, 1) == 0;
            listen_to(c, s, until);
            c->timed_out = c->timed_out || !has_child_ended(c, pid, until);
            if (c->timed_out) {
                kill(-pid, SIGKILL);
                kill(pid, SIGKILL);
                has_child_ended(c, pid, clock_now_ms() + AFTER_KILL_MS);
            }
        }
    }
    for (int i = 0; i < 2; i++) {
        int *all[] = {&out[i], &err[i], &started[i]};
        for (int k = 0; k < 3; k++)
            if (*all[k] >= 0) close(*all[k]);
    }
    return c->started && !c->timed_out && WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0;
}
