#include "analyzer/base/output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/input.h"
#include "analyzer/base/term.h"

/* The file to remove if the program ends too early. */
static const char *volatile unfinished;
static const int deadly[] = {SIGINT, SIGTERM, SIGHUP};

static void on_exit_early(void)
{
    if (unfinished) unlink(unfinished);
}

static void remove_output_on_signal(int number)
{
    on_exit_early();
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_output_path(const char *path)
{
    static bool registered;
    if (!registered) {
        registered = true;
        atexit(on_exit_early);
    }
    unfinished = path;
    for (size_t i = 0; i < sizeof deadly / sizeof *deadly; i++) {
        struct sigaction old, ours = {.sa_handler = remove_output_on_signal};
        if (sigaction(deadly[i], NULL, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(deadly[i], &ours, NULL);
    }
}

bool output_folder_exists(const char *path)
{
    char folder[4096];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path) return true;
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    return access(folder, F_OK) == 0;
}

bool output_failed(const char *who, const char *path, int why)
{
    const bool elsewhere = why == EACCES || why == ENOENT || why == ENOTDIR || why == EISDIR || why == EROFS;
    if (why == ENOENT && !output_folder_exists(path))
        return complain_with(false, "%s: cannot write '%s': the folder '%.*s' does not exist; create it first", who,
                             path, (int)(strrchr(path, '/') - path), path);
    return complain_with(false, "%s: cannot write '%s': %s%s", who, path, strerror(why),
                         elsewhere ? "; give a path where you may write" : "");
}

bool output_is_named(const char *who, const char *path)
{
    if (!path || strcmp(path, "-") != 0) return true;
    return complain_with(false, "%s: --output: a recording cannot be written to stdout; give a name such as copy.db",
                         who);
}

/* Sets the mode that open() would have set. */
static void usual_mode(int fd)
{
    mode_t mask = umask(0);
    umask(mask);
    fchmod(fd, 0666 & ~mask);
}

/* "path.Ab12Cd", open, for its owner only. -1 with errno, and *name NULL. */
static int make_beside(const char *path, char **name)
{
    size_t size = strlen(path) + sizeof ".XXXXXX";
    char *temporary = arena_realloc(NULL, size, 1);
    snprintf(temporary, size, "%s.XXXXXX", path);
    sigset_t all, before; /* no signal may arrive between the creation of the file and the note to remove it */
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    int fd = mkostemp(temporary, O_CLOEXEC), why = errno;
    if (fd >= 0) watch_output_path(temporary);
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (fd < 0) {
        free(temporary);
        temporary = NULL;
    }
    *name = temporary;
    errno = why;
    return fd;
}

static int open_beside(struct output *o, const char *path)
{
    o->real = realpath(path, NULL);
    int fd = make_beside(o->real ? o->real : path, &o->temporary), why = errno;
    if (fd >= 0) {
        usual_mode(fd);
    } else {
        free(o->real);
        o->real = NULL;
    }
    errno = why;
    return fd;
}

/* Where stdio writes: keeps the errno of the first failure. */
static ssize_t on_write(void *cookie, const char *bytes, size_t n)
{
    struct output *o = cookie;
    size_t at = 0;
    while (at < n && !o->why) {
        ssize_t wrote = write(o->fd, bytes + at, n - at);
        if (wrote >= 0)
            at += (size_t)wrote;
        else if (errno != EINTR)
            o->why = errno;
    }
    return at < n ? 0 : (ssize_t)n;
}

static int on_close(void *cookie)
{
    struct output *o = cookie;
    if (close(o->fd) != 0 && !o->why) o->why = errno;
    return 0;
}

bool output_open(struct output *o, const char *who, const char *path)
{
    struct stat st;
    *o = (struct output){.path = path};
    if (strcmp(path, "-") == 0) {
        o->standard = true;
        o->file = stdout;
        return true;
    }
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode)) return output_failed(who, path, EISDIR);
    if (exists && access(path, W_OK) != 0) return output_failed(who, path, errno);
    if (exists && input_is_recording(path))
        return complain_with(false, "%s: '%s' is a recording; give another name", who, path);
    int fd = exists && !S_ISREG(st.st_mode) ? open(path, O_WRONLY | O_CLOEXEC) : open_beside(o, path);
    if (fd < 0) return output_failed(who, path, errno);
    o->fd = fd;
    o->file = fopencookie(o, "w", (cookie_io_functions_t){.write = on_write, .close = on_close});
    setvbuf(o->file, NULL, _IOFBF, 1 << 18);
    return true;
}

static void forget_output(struct output *o)
{
    unfinished = NULL;
    ARENA_RELEASE(o->temporary, o->real);
    o->temporary = o->real = NULL;
}

void output_drop(struct output *o)
{
    if (o->standard) return;
    fclose(o->file);
    if (o->temporary) unlink(o->temporary);
    forget_output(o);
}

bool output_keep(struct output *o, const char *who)
{
    if (o->standard) return true;
    fclose(o->file);
    if (!o->why && o->temporary && rename(o->temporary, o->real ? o->real : o->path) != 0) o->why = errno;
    if (o->why && o->temporary) unlink(o->temporary);
    forget_output(o);
    return !o->why || output_failed(who, o->path, o->why);
}

char *output_beside(const char *path)
{
    char *temporary;
    int fd = make_beside(path, &temporary), why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return temporary;
}

void output_beside_remove(char *temporary)
{
    if (temporary) {
        unlink(temporary);
        unfinished = NULL;
        free(temporary);
    }
}
