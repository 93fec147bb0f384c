#include "interpose/summary.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "interpose/message.h"
#include "interpose/stack.h"
#include "schema/shell_word.h"

struct text {
    char at[1536];
    size_t used;
};

static void __attribute__((format(printf, 2, 3))) add_summary_text(struct text *t, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(t->at + t->used, sizeof t->at - t->used, format, arguments);
    va_end(arguments);
    if (n > 0) t->used = t->used + (size_t)n < sizeof t->at ? t->used + (size_t)n : sizeof t->at - 1;
}

static void add_count(struct text *t, uint64_t n)
{
    if (n >= 1000) {
        add_count(t, n / 1000);
        add_summary_text(t, ",%03u", (unsigned)(n % 1000));
    } else {
        add_summary_text(t, "%u", (unsigned)n);
    }
}

static void add_bytes(struct text *t, uint64_t bytes)
{
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) {
        add_summary_text(t, "%u B", (unsigned)bytes);
        return;
    }
    double value = (double)bytes / 1024;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) value /= 1024, unit++;
    add_summary_text(t, "%.2f %s", value, units[unit]);
}

/* As the user can type it; nothing if it is longer than a line may be. */
static bool add_summary_path(struct text *t, const char *before, const char *path, const struct gs_config *config)
{
    char word[1024];
    gs_shell_path(word, sizeof word, gs_run_path_shown(path, config));
    if (!*word || t->used + strlen(before) + strlen(word) >= sizeof t->at) return false;
    add_summary_text(t, "%s%s", before, word);
    return true;
}

/* Of the device whose memory was fullest; without one, of what else was recorded. */
static void add_peak(struct text *t, const struct gs_summary *s)
{
    int best = -1;
    uint64_t peak = 0;
    for (int i = 0; i < GS_DEVICES_MAX; i++) {
        const uint64_t here =
            s->device[i].device_peak > s->device[i].tensor_peak ? s->device[i].device_peak : s->device[i].tensor_peak;
        if (here > peak) peak = here, best = i;
    }
    if (best >= 0) {
        add_summary_text(t, ", peak ");
        add_bytes(t, peak);
        add_summary_text(t, " on GPU %d", best);
    } else if (s->host_peak) {
        add_summary_text(t, ", peak ");
        add_bytes(t, s->host_peak);
        add_summary_text(t, " of CPU tensors");
    } else if (s->pinned_peak) {
        add_summary_text(t, ", peak ");
        add_bytes(t, s->pinned_peak);
        add_summary_text(t, " pinned");
    }
}

void gs_summary_print(const struct gs_summary *s, const struct gs_run_path *path, const struct gs_config *config)
{
    struct text t = {.used = 0};
    add_count(&t, s->events);
    add_summary_text(&t, s->events == 1 ? " event" : " events");
    if (s->lost) {
        add_summary_text(&t, " (");
        add_count(&t, s->lost);
        add_summary_text(&t, " lost)");
    }
    add_peak(&t, s);
    if (s->ooms) add_summary_text(&t, ", %u OOM", s->ooms);
    if (gs_stack_missing()) add_summary_text(&t, " · %s", gs_stack_missing());
    add_summary_path(&t, " · ", path->db, config);
    if (access(path->db, F_OK)) {
        add_summary_text(&t, " (moved or deleted since)");
        gs_print_quoted("%s", t.at);
        return;
    }
    if (path->asked[0] && add_summary_path(&t, " (", path->asked, config)) add_summary_text(&t, " exists)");
    add_summary_path(&t, " · next: gpuspy report ", path->first, config);
    gs_print_quoted("%s", t.at);
}
