#include "analyzer/base/progress.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include "analyzer/base/clock.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

#define FIRST_MS 500 /* shorter work needs no line */
#define EACH_MS 100

static volatile sig_atomic_t shown;

/* In one write, so that the line never appears in part. */
static void draw_progress(const char *what, uint64_t done, uint64_t total, int width)
{
    char line[256], text[200];

    /* The length that a file states is approximate, and at least what was read of it. */
    if (total > 0)
        snprintf(text, sizeof text, "gpuspy: reading %s of %s %s (%d %%)", UNITS_COUNT(done),
                 UNITS_COUNT(total > done ? total : done), what,
                 total > done ? (int)((double)done / (double)total * 100) : 100);
    else
        snprintf(text, sizeof text, "gpuspy: reading %s %s", UNITS_COUNT(done), what);
    int length = snprintf(line, sizeof line, "\r%.*s\033[K", (int)terminal_fit(text, width - 1), text);
    if (write(STDERR_FILENO, line, (size_t)length) == length) shown = 1;
}

void progress_show(void *unused, const char *what, uint64_t done, uint64_t total)
{
    static int64_t next_ms;
    static int visible = -1;

    if (visible < 0) {
        visible = isatty(STDERR_FILENO) && !terminal_is_dumb();
        next_ms = clock_now_ms() + FIRST_MS;
    }
    if (!visible) return;
    int64_t now = clock_now_ms();
    if (now < next_ms) return;
    next_ms = now + EACH_MS;
    draw_progress(what, done, total, terminal_of(stderr).width);
}

void progress_clear(void)
{
    if (shown) {
        shown = 0;
        ssize_t wrote = write(STDERR_FILENO, "\r\033[K", 4);
        (void)wrote;
    }
}
