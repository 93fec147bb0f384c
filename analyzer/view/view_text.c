/* The report for a terminal: what is missing, the verdict, then the rest. */
#include "analyzer/view/view_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/options.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_text_parts.h"

static const struct section {
    const char *word;
    void (*print)(const struct draw_text *v);
    const char *json;
    uint64_t questions;
    int brief;
} sections[] = {
#define ASK(question) REPORT_ASK(question)
#define EVERYTHING 0
#define SECTION(name, word, function, json, questions, brief) [VIEW_##name] = {word, function, json, questions, brief},
#include "analyzer/view/sections.def"
#undef EVERYTHING
#undef ASK
};

#define SECTIONS (sizeof sections / sizeof *sections)

const char view_section_words[] =
#define SECTION(name, word, function, json, questions, brief) word "|"
#include "analyzer/view/sections.def"
    ;

bool view_section_key(uint64_t only, const char *key)
{
    for (size_t i = 0; i < SECTIONS; i++)
        if (only >> i & 1 && options_is_word(key, sections[i].json)) return true;
    return false;
}

/* Peaks always: of the call paths of a site the first that is looked up is shown, and that is the largest at a peak. */
uint64_t view_section_questions(uint64_t only)
{
    uint64_t all = only ? REPORT_ASK(PEAKS) : 0;
    for (size_t i = 0; i < SECTIONS; i++) {
        if (only >> i & 1 && !sections[i].questions) return 0;
        all |= only >> i & 1 ? sections[i].questions : 0;
    }
    return all;
}

static void print_report_warnings(const struct draw_text *v);

static void print_sections(const struct draw_text *v)
{
    (v->only ? view_text_warnings : print_report_warnings)(v);
    for (unsigned i = 0; i < SECTIONS; i++)
        if (view_shows(v, (enum view_section)i)) sections[i].print(v);
    if (!v->only) view_text_next(v, "");
}

#define BRIEF_TOP 4 /* rows of each list */
#define BRIEF_RANKS 10

/* The output of a section, kept until it is known whether it fits. */
struct printed {
    char *text;
    size_t size, lines;
};

static struct printed print_aside(const struct draw_text *v, void (*print)(const struct draw_text *v))
{
    struct printed p = {NULL, 0, 0};
    struct draw_text aside = *v;

    aside.out = arena_stream(&p.text, &p.size);
    print(&aside);
    fclose(aside.out);
    for (const char *c = p.text; c && (c = strchr(c, '\n')); c++) p.lines++;
    return p;
}

static void print_next_commands(const struct draw_text *v)
{
    view_text_next(v, "fragmentation, copies, retries, and more");
}

/* What a section that is left out shows, in the reader's words where --only has others. */
static const char *section_topic(enum view_section i)
{
    return i == VIEW_SYNC ? "waits" : i == VIEW_TRANSFERS ? "copies" : i == VIEW_PEAK ? "peaks" : sections[i].word;
}

/* "waits, copies, …" */
static size_t name_section(char *out, size_t size, size_t at, size_t number, const char *word)
{
    enum { NAMED = 3 };

    if (number > NAMED) return at;
    return at + (size_t)snprintf(out + at, size - at, "%s%s", number ? ", " : "", number < NAMED ? word : "and more");
}

/* What has lines kept for it while others are fitted. A lower one is tried if the sections of a higher one do not fit.
 */
enum kept_room { ROOM_FOR_NONE, ROOM_FOR_WAITS, ROOM_FOR_ANSWERS };

static bool has_room_kept(const struct draw_text *v, unsigned i, enum kept_room room)
{
    const struct result_report *r = v->report;

    if (ANY_IN(o, r->ooms, o->fatal)) return false; /* the verdict shows what was live */
    if (i == VIEW_SYNC && room >= ROOM_FOR_WAITS) return !r->simulated && r->sync_share >= VIEW_WAITS_WORTH;
    return room == ROOM_FOR_ANSWERS && sections[i].brief > 0 && sections[i].brief <= sections[VIEW_PEAK].brief;
}

/* Prints the section with fewer rows each time, first without its chart, until it has at most `lines`. */
static bool fit_section(const struct draw_text *brief, const struct section *s, struct printed *p, size_t lines)
{
    struct draw_text smaller = *brief;

    smaller.shorter = smaller.shorter < DRAW_NO_CHARTS ? DRAW_NO_CHARTS : smaller.shorter;
    for (; p->lines > lines && smaller.top; smaller.top--) {
        free(p->text);
        *p = print_aside(&smaller, s->print);
    }
    return p->lines <= lines;
}

/* The lines that are kept for sections: those of their shortest forms. */
static size_t count_kept(const struct draw_text *brief, enum kept_room room, size_t kept[SECTIONS])
{
    struct draw_text least = *brief;
    size_t lines = 0;

    least.top = 1;
    least.shorter = least.shorter < DRAW_NO_CHARTS ? DRAW_NO_CHARTS : least.shorter;
    for (unsigned i = 0; i < SECTIONS; i++) {
        struct printed p = {NULL, 0, 0};
        if (has_room_kept(brief, i, room)) p = print_aside(&least, sections[i].print);
        free(p.text);
        lines += kept[i] = p.lines;
    }
    return lines;
}

/* Prints the sections of rank 0 and sets brief->shorter, so that they and what has room kept for it fit on the screen
 * below `warnings` lines if possible. Returns their lines, with those of the commands at the end. */
static size_t print_always(struct draw_text *brief, size_t warnings, struct printed text[SECTIONS],
                           size_t kept[SECTIONS])
{
    for (enum kept_room room = ROOM_FOR_ANSWERS;; room--)
        for (brief->shorter = DRAW_WHOLE; brief->shorter <= DRAW_SHORTEST; brief->shorter++) {
            struct printed next = print_aside(brief, print_next_commands);
            size_t lines = warnings + next.lines;
            free(next.text);
            for (unsigned i = 0; i < SECTIONS; i++) {
                if (sections[i].brief) continue;
                text[i] = print_aside(brief, sections[i].print);
                lines += text[i].lines;
            }
            if (lines + count_kept(brief, room, kept) <= VIEW_BRIEF_LINES) return lines;
            if (room == ROOM_FOR_NONE && brief->shorter == DRAW_SHORTEST) return lines;
            for (unsigned i = 0; i < SECTIONS; i++)
                if (!sections[i].brief) free(text[i].text);
        }
}

/* The sections of rank 1 and more that fit, by their rank. */
static void fit_sections(const struct draw_text *brief, size_t lines, struct printed text[SECTIONS],
                         size_t kept[SECTIONS], bool fits[SECTIONS])
{
    for (unsigned i = 0; i < SECTIONS; i++) {
        fits[i] = !sections[i].brief;
        lines += kept[i];
    }
    for (int rank = 1; rank < BRIEF_RANKS; rank++)
        for (unsigned i = 0; i < SECTIONS; i++) {
            if (sections[i].brief != rank) continue;
            lines -= kept[i];
            text[i] = print_aside(brief, sections[i].print);
            fits[i] =
                fit_section(brief, &sections[i], &text[i], lines < VIEW_BRIEF_LINES ? VIEW_BRIEF_LINES - lines : 0);
            if (fits[i]) lines += text[i].lines;
        }
}

/* The sections that fit into VIEW_BRIEF_LINES by their rank; the others are named with the command that shows them. */
static void print_brief(const struct draw_text *v)
{
    struct draw_text brief = *v;
    struct printed warnings = print_aside(v, print_report_warnings), text[SECTIONS];
    size_t kept[SECTIONS], n = 0, more = 0;
    bool fits[SECTIONS];
    char left_out[64] = "";

    brief.top = BRIEF_TOP;
    fit_sections(&brief, print_always(&brief, warnings.lines, text, kept), text, kept, fits);
    fwrite(warnings.text, 1, warnings.size, v->out);
    for (unsigned i = 0; i < SECTIONS; i++) {
        if (fits[i])
            fwrite(text[i].text, 1, text[i].size, v->out);
        else if (text[i].lines)
            n = name_section(left_out, sizeof left_out, n, more++, section_topic((enum view_section)i));
        free(text[i].text);
    }
    view_text_next(&brief, left_out);
    free(warnings.text);
}

/* A section begins with a blank line, except the first one that is printed. */
void view_text(const struct draw_text *v)
{
    if (v->brief) {
        print_brief(v);
    } else if (!v->only) {
        print_sections(v);
    } else {
        struct printed p = print_aside(v, print_sections);
        size_t skip = p.size && p.text[0] == '\n';
        if (!p.lines) fputs("This recording has nothing for these sections.\n", v->out);
        fwrite(p.text + skip, 1, p.size - skip, v->out);
        free(p.text);
    }
}

static void print_warning(const struct draw_text *v, const char *text)
{
    fputs(terminal_style(&v->term, TERMINAL_YELLOW), v->out);
    draw_wrap(v, 0, "! ", "%s", text);
    fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
}

static void print_lost(const struct draw_text *v)
{
    char count[UNITS_TEXT], line[512];

    units_format_plural(count, v->report->lost_events, "event was", "events were");
    if (isnan(v->report->lost_first_s))
        snprintf(line, sizeof line,
                 "%s lost: totals and peaks can be wrong, and freed memory can appear as never freed", count);
    else
        snprintf(line, sizeof line,
                 "%s lost, from %s on: after that totals and peaks can be wrong, and freed memory "
                 "can appear as never freed",
                 count, UNITS_SECONDS(v->report->lost_first_s));
    print_warning(v, line);
}

/* By exec: its pid began another recording of the run later. */
static bool became_another_program(const struct result_report *r, size_t i)
{
    const struct run_process *p = &r->processes[i];
    return ANY_IN(o, r->processes,
                  o->pid == p->pid && o->start_real_ns > p->start_real_ns && o->host && p->host &&
                      !strcmp(o->host, p->host) && !strcmp(o->run_id, p->run_id));
}

/* `stated`: the headline says how the program ended. */
static void print_killed(const struct draw_text *v, bool stated)
{
    const struct result_report *r = v->report;
    size_t died = 0, torn = 0, first = 0;
    char line[512], at[UNITS_TEXT], who[64];

    for (size_t i = r->processes_n; i-- > 0;) {
        const struct run_process *p = &r->processes[i];
        const bool succeeded = p->exit_status == 0 && !p->torn; /* by _exit, as every program in Go */
        if (!p->complete && !p->recording && !succeeded && !(p->kernel && !p->torn) && !became_another_program(r, i)) {
            died++;
            torn += p->torn;
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
    if (died == 1 && r->processes_n == 1 && !torn && stated)
        snprintf(line, sizeof line, "the recording is complete up to the program's last call, at %s", at);
    else if (died == 1 && r->processes_n == 1 && !torn && run_process_failure(&r->processes[0], how, sizeof how))
        snprintf(line, sizeof line,
                 "the program did not end normally (%s), at %s: the recording is complete up to its last call", how,
                 at);
    else if (died == 1 && r->processes_n == 1)
        snprintf(line, sizeof line,
                 torn ? "the program did not end normally, and its last events are missing: the recording stops at %s"
                      : "the program was killed, crashed or called _exit at %s: the recording is complete up to its "
                        "last call",
                 at);
    else if (died == 1)
        snprintf(line, sizeof line,
                 "%s (1 of %zu), was killed, crashed or called _exit (as forked workers do) at %s: its recording is "
                 "complete up to its last call%s",
                 who, r->processes_n, at, torn ? ", unless stated below" : "");
    else
        snprintf(line, sizeof line,
                 "%zu of %zu processes were killed, crashed or called _exit (as forked workers do), %s first (%s): "
                 "their recordings are complete up to their last calls%s",
                 died, r->processes_n, who, at, torn ? ", unless stated below" : "");
    print_warning(v, line);
}

static void format_started(const struct draw_text *v, char *out, size_t size)
{
    int64_t ns = v->report->processes_n ? v->report->processes[0].start_real_ns : RUN_UNKNOWN;
    time_t t = (time_t)(ns / 1000000000);
    struct tm when;

    out[0] = 0;
    if (ns > 0 && localtime_r(&t, &when)) strftime(out, size, " on %Y-%m-%d %H:%M", &when);
}

static bool are_devices_alike(const struct run_device *a, const struct run_device *b)
{
    return a->total_bytes == b->total_bytes && a->physical_bytes == b->physical_bytes && a->device + 1 == b->device &&
           strcmp(a->name ? a->name : "", b->name ? b->name : "") == 0;
}

static void print_capped(const struct draw_text *v, const struct run_device *d)
{
    if (d->physical_bytes == RUN_UNKNOWN) return;
    draw_wrap(v, 0, "", "GPUSPY_LIMIT caps the device at %s (of %s): free memory and failures refer to the cap.",
              DRAW_BYTES(d->total_bytes), DRAW_BYTES(d->physical_bytes));
}

/* "GPU 0: name, 24.00 GiB"; equal neighbours in one line. */
static void print_devices(const struct draw_text *v)
{
    const struct run_device *d = v->report->devices;
    size_t n = v->report->devices_n;

    for (size_t i = 0; i < n; i++) {
        size_t first = i;
        char name[128];
        while (i + 1 < n && are_devices_alike(&d[i], &d[i + 1])) i++;
        terminal_clean(name, sizeof name, d[i].name ? d[i].name : "", v->term.utf8);
        char which[48];
        snprintf(which, sizeof which,
                 i > first + 1 ? "GPUs %d to %d"
                 : i > first   ? "GPUs %d and %d"
                               : "GPU %d",
                 d[first].device, d[i].device);
        const bool sized = d[i].total_bytes > 0; /* an import may not know it */
        draw_wrap(v, 0, "", "%s%s%s%s%s%s", which, *name ? ": " : "", name, sized ? ", " : "",
                  sized ? DRAW_BYTES(d[i].total_bytes) : "", sized && i > first ? " each" : "");
        print_capped(v, &d[i]);
    }
    if (v->report->without_pools)
        draw_wrap(v, 0, "",
                  "Recorded with --inside-pools: each array of JAX, TensorFlow or CuPy is a CUDA allocation; the time "
                  "and the waits that this costs "
                  "are not the program's.");
    for (size_t i = 0; i < n; i++) {
        if (!run_device_is_simulated(d[i].name)) continue;
        draw_wrap(v, 0, "",
                  "Simulated GPU: no kernel ran. Sizes are those requested; values and times have no meaning.");
        break;
    }
}

#define NOTES_BRIEF 3

static void print_warnings(const struct draw_text *v, bool stated)
{
    if (v->report->lost_events) print_lost(v);
    if (!v->report->run || !run_endless_loop(v->report->run)) /* otherwise the verdict is the loop that ended it */
        print_killed(v, stated);
    size_t shown = v->brief && v->report->notes_n > NOTES_BRIEF ? NOTES_BRIEF : v->report->notes_n;
    for (size_t i = 0; i < shown; i++) print_warning(v, v->report->notes[i]);
    if (shown < v->report->notes_n) {
        char line[64];
        const size_t hidden = v->report->notes_n - shown;
        snprintf(line, sizeof line, "%s: --full shows %s", UNITS_PLURAL(hidden, "more remark", NULL),
                 hidden == 1 ? "it" : "them");
        print_warning(v, line);
    }
}

void view_text_warnings(const struct draw_text *v)
{
    print_warnings(v, false);
}

/* Of a report that has the verdict. */
static void print_report_warnings(const struct draw_text *v)
{
    print_warnings(v, !ANY_IN(o, v->report->ooms, o->fatal));
}

void view_text_run(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    char command[4096], short_command[512], when[64], line[512];

    terminal_clean(command, sizeof command, r->command ? r->command : "?", v->term.utf8);
    text_command(short_command, sizeof short_command, command, v->term.width, v->term.utf8);
    format_started(v, when, sizeof when);
    fprintf(v->out, "%s%s%s\n", terminal_style(&v->term, TERMINAL_BOLD), short_command,
            terminal_style(&v->term, TERMINAL_PLAIN));
    int at = r->no_history
                 ? snprintf(line, sizeof line, "the state at one moment%s", when)
                 : snprintf(line, sizeof line, "%s%s, %s", r->no_times ? "times unknown" : UNITS_SECONDS(r->duration_s),
                            when, UNITS_PLURAL(r->events, "event", NULL));
    if (r->processes_n > 1) at += snprintf(line + at, sizeof line - (size_t)at, " of %zu processes", r->processes_n);
    const struct run_process *first = r->processes;
    if (r->processes_n == 1 && first->python_version) {
        terminal_clean(command, 32, first->python_version, v->term.utf8);
        at += snprintf(line + at, sizeof line - (size_t)at, ", Python %s", command);
    }
    if (r->processes_n && first->torch_version) {
        terminal_clean(command, 32, first->torch_version, v->term.utf8);
        snprintf(line + at, sizeof line - (size_t)at, ", PyTorch %s", command);
    }
    draw_wrap(v, 0, "", "%s", line);
    view_text_steps(v);
    print_devices(v);
}

#define ADVICE_MOST 5 /* less important advice is left out */
#define ADVICE_BRIEF 3

static bool is_in_verdict(const struct draw_text *v, const struct result_advice *a)
{
    return v->report->ooms_n && view_shows(v, VIEW_OOM) && strcmp(a->topic, "oom") == 0;
}

void view_text_advice(const struct draw_text *v)
{
    const struct result_report *r = v->report;
    size_t items = 0, shown = 0;

    for (size_t i = 0; i < r->advice_n; i++) items += !is_in_verdict(v, &r->advice[i]);
    for (size_t i = 0; i < r->advice_n && shown < (v->brief ? ADVICE_BRIEF : ADVICE_MOST); i++) {
        if (is_in_verdict(v, &r->advice[i])) continue;
        if (!shown++)
            draw_heading(v, TERMINAL_GREEN, r->ooms_n && view_shows(v, VIEW_OOM) ? "Also to do" : "To do",
                         items > 1 ? ", most effective first" : "");
        draw_wrap(v, INDENT, v->term.utf8 ? "• " : "- ", "%s", r->advice[i].text);
    }
}
