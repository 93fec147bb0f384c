#include "interpose/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "interpose/state.h"
#include "interpose/watcher.h"
#include "interpose/shield.h"

static _Atomic bool printed_failure;
static char *_Atomic asker;
static size_t asker_size;

static void print_stderr_line(bool quoted, const char *format, va_list arguments)
{
    char line[2048] = "gpuspy: "; /* the thread that prints may have a small stack */
    size_t len = strlen(line);
    int more = vsnprintf(line + len, sizeof line - len - 1, format, arguments);
    if (more < 0) return;
    for (char *c = line + len; !quoted && *c; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f) *c = '?'; /* a setting or a path: one line remains one */
    char *const answer = atomic_load(&asker);
    if (answer) {
        snprintf(answer, asker_size, "%s", line + len);
        return;
    }
    len += (size_t)more < sizeof line - len - 1 ? (size_t)more : sizeof line - len - 2;
    line[len++] = '\n';
    if (gs_has_own_files())
        gs_watcher_print(line, len);
    else
        gs_write_line(line, len);
}

void gs_print_line(const char *format, ...)
{
    va_list arguments;
    int saved = errno;
    va_start(arguments, format);
    print_stderr_line(false, format, arguments);
    va_end(arguments);
    errno = saved;
}

void gs_print_quoted(const char *format, ...)
{
    va_list arguments;
    int saved = errno;
    va_start(arguments, format);
    print_stderr_line(true, format, arguments);
    va_end(arguments);
    errno = saved;
}

void gs_deactivate(const char *format, ...)
{
    int saved = errno;
    atomic_store(&gs_session_state, GS_SESSION_OVER); /* the order matters: see go_live in session.c */
    atomic_store(&gs_session_live, 0);
    if (!atomic_exchange(&printed_failure, true)) {
        va_list arguments;
        va_start(arguments, format);
        print_stderr_line(false, format, arguments);
        va_end(arguments);
    }
    errno = saved;
}

void gs_print_into(char *line, size_t size)
{
    asker_size = size;
    if (line) *line = 0;
    atomic_store(&asker, line);
}

void gs_print_forget(void)
{
    atomic_store(&printed_failure, false);
}
