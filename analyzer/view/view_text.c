/* The report for a terminal: what is missing, the verdict, then what led to it. */
#include "analyzer/view/view_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "analyzer/base/options.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/report/report.h"
#include "analyzer/view/view_text_parts.h"

static const struct section {
    void (*print)(const struct draw_text *v);
    const char *json;
    uint64_t questions;
} sections[] = {
#define ASK(question) REPORT_ASK(question)
#define EVERYTHING 0
#define SECTION(name, word, function, json, questions) [VIEW_##name] = {function, json, questions},
#include "analyzer/view/sections.def"
#undef SECTION
#undef EVERYTHING
#undef ASK
};

const char view_section_words[] =
#define SECTION(name, word, function, json, questions) word "|"
#include "analyzer/view/sections.def"
#undef SECTION
    ;

bool view_section_key(uint64_t only, const char *key)
{
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (only >> i & 1 && options_is_word(key, sections[i].json)) return true;
    return false;
}

uint64_t view_section_questions(uint64_t only)
{
    uint64_t all = 0;
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++) {
        if (only >> i & 1 && !sections[i].questions) return 0;
        all |= only >> i & 1 ? sections[i].questions : 0;
    }
    return all;
}

static void print_sections(const struct draw_text *v)
{
    view_text_warnings(v);
    for (unsigned i = 0; i < sizeof sections / sizeof *sections; i++)
        if (view_shows(v, (enum view_section)i)) sections[i].print(v);
}

/* A section begins with a blank line: the one that is printed first needs none. */
void view_text(const struct draw_text *v)
{
    struct draw_text w = *v;
    char *text = NULL;
    size_t size = 0;

    if (!v->only || !(w.out = open_memstream(&text, &size))) {
        print_sections(v);
        return;
    }
    print_sections(&w);
    fclose(w.out);
    size_t skip = size && text[0] == '\n';
    fwrite(text + skip, 1, size - skip, v->out);
    free(text);
}

/* ---------------------------------------------------------------- head */

static void warn(const struct draw_text *v, const char *text)
{
    fputs(terminal_style(&v->term, TERMINAL_YELLOW), v->out);
    draw_wrap(v, 0, "! ", text);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}

static void lost(const struct draw_text *v)
{
    char count[UNITS_TEXT], at[UNITS_TEXT], line[512];

    units_format_plural(count, v->report->lost_events, "event was", "events were");
    if (isnan(v->report->lost_first_s))
        snprintf(line, sizeof line, "%s lost: totals and peaks can be wrong, and memory can seem never freed", count);
    else
        snprintf(line, sizeof line,
                 "%s lost, from %s on: after that totals and peaks can be wrong, and memory "
                 "can seem never freed",
                 count, units_format_seconds(at, v->report->lost_first_s));
    warn(v, line);
}

static void killed(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    size_t died = 0, torn = 0, first = 0;
    char line[512], at[UNITS_TEXT], who[64];

    for (size_t i = r->processes_n; i-- > 0;) {
        if (!r->processes[i].complete && !r->processes[i].recording) {
            died++;
            torn += r->processes[i].torn;
            first = i;
        }
    }
    if (!died) return;
    units_format_seconds(at, (double)r->processes[first].end_ns / 1e9);
    int n = r->processes[first].rank < 0
                ? 0
                : snprintf(who, sizeof who, "rank %lld, ", (long long)r->processes[first].rank);
    snprintf(who + n, sizeof who - (size_t)n, "process %u", r->processes[first].pid);
    char how[RUN_FAILURE_TEXT];
    if (died == 1 && r->processes_n == 1 && !torn && run_process_failure(&r->processes[0], how, sizeof how))
        snprintf(line, sizeof line,
                 "the program did not end in order (%s), at %s: the recording is complete up to its last call", how,
                 at);
    else if (died == 1 && r->processes_n == 1)
        snprintf(line, sizeof line,
                 torn ? "the program did not end in order, and its last events are not here: the recording "
                        "stops at %s"
                      : "the program was killed or crashed at %s, or left by _exit: the recording is "
                        "complete up to its last call",
                 at);
    else
        snprintf(line, sizeof line,
                 "%zu of %zu processes were killed, crashed or left by _exit (as forked workers do), "
                 "%s first (%s): their recordings "
                 "are complete up to their last calls%s",
                 died, r->processes_n, who, at, torn ? ", except where said below" : "");
    warn(v, line);
}

static void started(const struct draw_text *v, char *out, size_t size)
{
    int64_t ns = v->report->processes_n ? v->report->processes[0].start_real_ns : RUN_UNKNOWN;
    time_t t = (time_t)(ns / 1000000000);
    struct tm when;

    out[0] = 0;
    if (ns > 0 && localtime_r(&t, &when)) strftime(out, size, " on %Y-%m-%d %H:%M", &when);
}

static bool alike(const struct run_device *a, const struct run_device *b)
{
    return a->total_bytes == b->total_bytes && a->physical_bytes == b->physical_bytes && a->device + 1 == b->device &&
           strcmp(a->name ? a->name : "", b->name ? b->name : "") == 0;
}

static void capped(const struct draw_text *v, const struct run_device *d)
{
    char cap[UNITS_TEXT], size[UNITS_TEXT], line[160];

    if (d->physical_bytes == RUN_UNKNOWN) return;
    snprintf(line, sizeof line,
             "Device capped at %s by GPUSPY_LIMIT (of %s): what is free, and what was refused, is the cap's.",
             draw_bytes(cap, d->total_bytes), draw_bytes(size, d->physical_bytes));
    draw_wrap(v, 0, "", line);
}

/* "GPU 0: name, 24.00 GiB"; equal neighbours in one line. */
static void devices(const struct draw_text *v)
{
    const struct run_device *d = v->report->devices;
    size_t n = v->report->devices_n;

    for (size_t i = 0; i < n; i++) {
        size_t first = i;
        char name[128], size[UNITS_TEXT];
        while (i + 1 < n && alike(&d[i], &d[i + 1])) i++;
        terminal_clean(name, sizeof name, d[i].name ? d[i].name : "", v->term.utf8);
        char line[256], which[48];
        snprintf(which, sizeof which, i > first ? "GPU %d to %d" : "GPU %d", d[first].device, d[i].device);
        const bool sized = d[i].total_bytes > 0; /* an import may not know it */
        snprintf(line, sizeof line, "%s%s%s%s%s%s", which, *name ? ": " : "", name, sized ? ", " : "",
                 sized ? draw_bytes(size, d[i].total_bytes) : "", sized && i > first ? " each" : "");
        draw_wrap(v, 0, "", line);
        capped(v, &d[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (!run_device_is_simulated(d[i].name)) continue;
        draw_wrap(v, 0, "",
                  "A simulated GPU: no kernel ran. Memory is what the program asked for; values in it "
                  "and times on it mean nothing.");
        break;
    }
}

void view_text_warnings(const struct draw_text *v)
{
    if (v->report->lost_events) lost(v);
    if (!v->report->run || !run_endless_loop(v->report->run)) /* else it is the loop that ended it */
        killed(v);
    for (size_t i = 0; i < v->report->notes_n; i++) warn(v, v->report->notes[i]);
}

void view_text_run(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    char command[4096], short_command[512], count[UNITS_TEXT], time[UNITS_TEXT], when[64], line[512];

    terminal_clean(command, sizeof command, r->command ? r->command : "?", v->term.utf8);
    text_elide(short_command, sizeof short_command, command, v->term.width, v->term.utf8);
    started(v, when, sizeof when);
    fprintf(v->out, "%s%s%s\n", terminal_style(&v->term, TERMINAL_BOLD), short_command,
            terminal_style(&v->term, TERMINAL_PLAIN));
    int at = snprintf(line, sizeof line, "%s%s, %s",
                      r->no_times ? "unknown time" : units_format_seconds(time, r->duration_s), when,
                      units_format_plural(count, r->events, "event", NULL));
    if (r->processes_n > 1) at += snprintf(line + at, sizeof line - (size_t)at, " of %zu processes", r->processes_n);
    if (r->processes_n == 1 && r->processes[0].python_version) {
        terminal_clean(command, 32, r->processes[0].python_version, v->term.utf8);
        snprintf(line + at, sizeof line - (size_t)at, ", Python %s", command);
    }
    draw_wrap(v, 0, "", line);
    view_text_steps(v);
    devices(v);
}

/* ---------------------------------------------------------------- the end */

/* Commands to type, and what for where there is room. */
struct commands {
    char words[8][96]; /* between "gpuspy" and the recording */
    const char *what[8];
    size_t n;
};

static void add_command(struct commands *c, const char *words, const char *what)
{
    snprintf(c->words[c->n], sizeof c->words[0], "%s", words);
    c->what[c->n++] = what;
}

static void print_commands(const struct draw_text *v, const struct commands *c)
{
    enum { GAP = 2 };
    char path[4096];
    int longest = 0;

    text_path_here(path, sizeof path, v->database);
    const int around = terminal_columns("  gpuspy  ") + terminal_columns(path);
    for (size_t i = 0; i < c->n; i++) longest = (int)strlen(c->words[i]) > longest ? (int)strlen(c->words[i]) : longest;
    for (size_t i = 0; i < c->n; i++) {
        const int pad = longest - (int)strlen(c->words[i]) + GAP;
        fprintf(v->out, "  gpuspy %s %s", c->words[i], path);
        if (around + longest + GAP + terminal_columns(c->what[i]) <= v->term.width)
            fprintf(v->out, "%*s%s%s%s", pad, "", terminal_style(&v->term, TERMINAL_DIM), c->what[i],
                    terminal_style(&v->term, TERMINAL_PLAIN));
        fputc('\n', v->out);
    }
}

#define WAITS_WORTH 0.1 /* of the run's time; waiting for less is not worth a look of its own */

/* What answers the questions that this report leaves: not what every run could be asked. */
static void next_commands(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    struct commands c = {.n = 0};
    char params[64], words[96];
    bool fatal = false, memory = false, simulated = false;

    for (size_t i = 0; i < r->ooms_n; i++) fatal = fatal || r->ooms[i].fatal;
    for (size_t i = 0; i < r->peaks_n; i++) memory = memory || (r->peaks[i].device >= 0 && r->peaks[i].bytes > 0);
    for (size_t i = 0; i < r->devices_n; i++) simulated = simulated || run_device_is_simulated(r->devices[i].name);
    add_command(&c, "report --html out.html", "to look at and to send: what was live when");
    if (memory && fatal)
        add_command(&c, "tree --what oom", "the calls that held memory when it ran out");
    else if (memory)
        add_command(&c, "tree",
                    r->no_history ? "the calls that hold memory" : "the calls that held memory at the peak");
    if (r->growth_n) add_command(&c, "leaks", "what was never freed, and what of it grows");
    if (r->sync_share >= WAITS_WORTH && !simulated) /* whose times mean nothing */
        add_command(&c, "tree --what waits", "the calls that waited for the GPU");
    view_next_budget(v, params, sizeof params);
    if (*params) {
        snprintf(words, sizeof words, "report %s", params);
        add_command(&c, words, "beside what such a model needs at least");
    }
    add_command(&c, "report --json", "for scripts");
    draw_title(v, TERMINAL_BOLD, "Next");
    print_commands(v, &c);
}

#define ADVICE_MOST 5 /* what matters less is not worth the reading */

void view_text_advice(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    size_t shown = 0;

    for (size_t i = 0; i < r->advice_n && shown < ADVICE_MOST; i++) {
        if (r->ooms_n && view_shows(v, VIEW_OOM) && strcmp(r->advice[i].topic, "oom") == 0)
            continue; /* it stands with the verdict */
        if (!shown++)
            draw_heading(v, TERMINAL_GREEN, r->ooms_n && view_shows(v, VIEW_OOM) ? "Also to do" : "To do",
                         ", most worthwhile first");
        draw_wrap(v, INDENT, v->term.utf8 ? "• " : "- ", r->advice[i].text);
    }
    if (v->only) return;
    next_commands(v);
}
