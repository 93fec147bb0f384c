#include "analyzer/view/viewing.h"

#include <math.h>
#include <string.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/json/json_parts.h"
#include "analyzer/base/pager.h"
#include "analyzer/base/progress.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/units.h"
#include "analyzer/question/question.h"
#include "analyzer/view/view_text_parts.h"

static void fill_head(struct viewing *v)
{
    struct result_report *h = &v->head;

    *h = (struct result_report){.run = v->run, .lost_first_s = (double)NAN, .complete = true};
    h->processes = run_processes(v->run, &h->processes_n);
    h->command = h->processes_n ? h->processes[0].command : NULL;
    h->duration_s = (double)run_duration(v->run) / 1e9;
    for (size_t i = 0; i < h->processes_n; i++) {
        h->lost_events += h->processes[i].lost_events;
        h->complete = h->complete && h->processes[i].complete && !h->processes[i].lost_events;
    }
}

int viewing_open(struct viewing *v, const struct command *command, int argc, char **argv, void *settings,
                 const struct viewing_settings *viewing, viewing_sensible_fn *sensible, bool memory_map)
{
    int n = options_parse(command, argc, argv, settings);
    char *newest[] = {v->newest};

    *v = (struct viewing){.settings = viewing, .who = command->name};
    if (n < 0) return n == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (sensible && !sensible(v->who, settings)) return EXIT_USAGE;
    if (!n) {
        if (!input_newest(v->who, v->newest)) return EXIT_USAGE;
        argv = newest;
        n = 1;
    }
    if (!input_check_paths(v->who, argv, (size_t)n)) return EXIT_INPUT;
    v->database = argv[0];
    v->symbols = symbolizer_new();
    v->options =
        (struct run_options){.memory_map = memory_map, SYMBOLIZER_OPTIONS(v->symbols), .progress = progress_show};
    int code;
    v->run = view_choice_open(v->who, (const char *const *)argv, (size_t)n, &viewing->choice, &v->options, &code);
    if (!v->run) return code;
    fill_head(v);
    return EXIT_YES;
}

void viewing_close(struct viewing *v)
{
    arena_free(&v->arena);
    if (v->run) run_close(v->run);
    if (v->symbols) symbolizer_complain(v->symbols, false);
    symbolizer_free(v->symbols);
}

int viewing_failed(const struct viewing *v, const char *error)
{
    return complain_with(EXIT_INPUT, "%s: %s", v->who, error);
}

struct draw_text viewing_text(struct viewing *v, const struct result_report *report, size_t top)
{
    v->head.notes = run_notes(v->run, &v->head.notes_n); /* some are added while the run is read */
    struct draw_text t = {.report = report ? report : &v->head,
                          .term = view_display_start(&v->settings->display),
                          .out = stdout,
                          .top = v->settings->top ? (size_t)v->settings->top : top,
                          .database = v->database};

    view_text_warnings(&t);
    return t;
}

json_t *viewing_json_head(const struct viewing *v)
{
    json_t *o = json_object();
    size_t n;
    const char *const *note = run_notes(v->run, &n);

    set_json(o, "schema", json_integer(RESULT_SCHEMA));
    set_text(o, "view", v->who);
    set_text(o, "command", v->head.command);
    set_json(o, "processes", LIST(v->head.processes, v->head.processes_n, draw_json_process));
    set_count(o, "lost_events", v->head.lost_events);
    set_bool(o, "complete", v->head.complete);
    set_json(o, "notes", LIST_OF(n, i, json_string(note[i])));
    return o;
}

int viewing_json(struct viewing *v, json_t *o)
{
    view_display_start(&v->settings->display);
    bool written = json_out_tree(stdout, o, JSON_INDENT(2) | JSON_REAL_PRECISION(15));

    return written || pager_is_running() ? EXIT_YES : EXIT_INPUT; /* a user who leaves the pager has seen enough */
}

/* "load" of "scope:load"; NULL: not a scope. */
static const char *scope_name(const char *at)
{
    static const char word[] = "scope:";
    const size_t n = sizeof word - 1;
    return at && strncmp(at, word, n) == 0 && at[n] ? at + n : NULL;
}

bool view_profile_sensible(const char *who, const struct view_profile_settings *s)
{
    int64_t ns;

    if (s->at && s->what)
        complain("%s: give --at or --what, not both", who);
    else if (s->at && options_is_word(s->at, PROFILE_WHATS))
        complain("%s: --at takes seconds; use --what %s for that moment", who, s->at);
    else if (s->at && !scope_name(s->at) && !units_parse_seconds(s->at, &ns))
        complain("%s: --at: '%s' is neither a number of seconds such as 12.5 nor a range such as scope:load", who,
                 s->at);
    else
        return true;
    return false;
}

static int layer_of_word(const char *word)
{
    if (!word) return PROFILE_USUAL;
    for (int i = 0; i < RUN_SERIES_LAYERS; i++)
        if (strcmp(word, result_series_word((enum run_series_layer)i)) == 0) return i;
    return PROFILE_ALL;
}

static void print_nothing_found(const struct viewing *v, const struct profile_request *w)
{
    size_t ooms;

    run_ooms(v->run, &ooms);
    if (w->what != PROFILE_WAITS && w->what != PROFILE_COPIES && !ooms && run_why_unknown(v->run, RUN_FACT_MEMORY))
        complain("%s: memory is unknown: %s", v->who, run_why_unknown(v->run, RUN_FACT_MEMORY));
    else if (w->what == PROFILE_OOM && !ooms && run_why_unknown(v->run, RUN_FACT_OUTCOME))
        complain("%s: whether memory ran out is unknown: %s", v->who, run_why_unknown(v->run, RUN_FACT_OUTCOME));
    else if (w->what == PROFILE_OOM && !ooms && !run_why_unknown(v->run, RUN_FACT_HISTORY))
        complain("%s: memory did not run out in this run; use --what peak", v->who);
    else if (w->what == PROFILE_WAITS && run_why_unknown(v->run, RUN_FACT_WAITS))
        complain("%s: waits are unknown: %s", v->who, run_why_unknown(v->run, RUN_FACT_WAITS));
    else if (w->what == PROFILE_COPIES && run_why_unknown(v->run, RUN_FACT_COPIES))
        complain("%s: copies are unknown: %s", v->who, run_why_unknown(v->run, RUN_FACT_COPIES));
    else if (w->what == PROFILE_OOM && run_why_unknown(v->run, RUN_FACT_HISTORY) && !ooms)
        complain("%s: failed allocations are unknown: %s", v->who, run_why_unknown(v->run, RUN_FACT_HISTORY));
    else if (w->what == PROFILE_WAITS)
        complain("%s: no call of this run waited for the GPU", v->who);
    else if (w->what == PROFILE_COPIES)
        complain("%s: nothing was copied in this run", v->who);
    else if (w->what == PROFILE_END)
        complain("%s: nothing was live at the end", v->who);
    else if (w->title)
        complain("%s: nothing was %s", v->who, w->title);
    else if (w->what == PROFILE_AT)
        complain("%s: nothing was live at %s", v->who, UNITS_SECONDS((double)w->at_ns / 1e9));
    else
        complain("%s: no %s was allocated in this run%s", v->who, w->layer >= 0 ? "memory of this layer" : "GPU memory",
                 w->layer == PROFILE_USUAL ? "; --layer all also shows the host's" : "");
}

/* Of a moment after the end of all processes: the end. */
static int64_t moment_in_run(const struct viewing *v, int64_t at_ns)
{
    int64_t end = 0;

    RUN_EACH (all, run_processes, v->run) end = all->end_ns > end ? all->end_ns : end;
    if (at_ns <= end) return at_ns;
    complain("%s: the recording ends after %s; its end is shown", v->who, UNITS_SECONDS((double)end / 1e9));
    return end;
}

/* Finds the peaks of NVTX ranges, as a part of the head, by an observer of a replay. */
struct scopes_reader {
    struct site_builder b;
    struct run_observer observer;
    struct question_scopes *scopes;
};

static void scopes_reader_start(struct scopes_reader *s, struct viewing *v)
{
    *s = (struct scopes_reader){
        .b = {.run = v->run, .report = &v->head, .arena = &v->arena, .top = SIZE_MAX},
    };
    s->scopes = question_scopes_start(&s->b, &s->observer);
}

static bool read_scopes(struct viewing *v, char *error, size_t size)
{
    struct scopes_reader s;
    scopes_reader_start(&s, v);
    const bool ok = run_replay(v->run, &s.observer, 1, error, size);
    question_scopes_finish(s.scopes);
    return ok;
}

/* Fills in w->title and w->moments, which the caller frees: the times at which the range's memory peaked, in each
 * process, GPU and layer; of several domains with that name, the highest peak. Returns an exit code, after a line on
 * stderr if it is not EXIT_YES. */
static int choose_scope(struct viewing *v, const char *name, struct profile_request *w)
{
    char error[1024], title[160];
    const struct result_report *r = &v->head;
    if (!read_scopes(v, error, sizeof error)) return viewing_failed(v, error);

    struct profile_moment *found = arena_zeroed(r->scopes_n + 1, sizeof *found);
    size_t n = 0;
    bool occurred = false, incomplete = false;
    EACH_IN (s, r->scopes) { /* the highest peak first */
        if (strcmp(s->name, name) != 0) continue;
        const struct profile_moment new = {s->process, s->device, s->layer, s->peak_ns};
        const bool listed =
            ANY_OF(m, found, n, m->process == new.process && m->device == new.device && m->layer == new.layer);
        occurred = true;
        incomplete =
            incomplete || s->incomplete || (s->device >= 0 && !profile_has_rows(v->run, s->process, s->peak_ns));
        if (!listed && s->device >= 0) found[n++] = new;
    }
    int code = n && !incomplete ? EXIT_YES : EXIT_NO;
    if (!occurred) {
        struct arena arena = {0};
        const char *names = question_scope_names(r, &arena);
        code = complain_with(EXIT_INPUT,
                             names ? "%s: no NVTX range is named '%s'; this run has %s"
                                   : "%s: no NVTX range is named '%s': this run has no ranges",
                             v->who, name, names);
        arena_free(&arena);
    } else if (incomplete) {
        complain(
            "%s: this recording is bounded (GPUSPY_KEEP): the rows of what was live at the peak of the range '%s' were "
            "removed; 'gpuspy report --only scopes' has its size",
            v->who, name);
    } else if (!n) {
        complain("%s: no memory was allocated in a range named '%s'", v->who, name);
    }
    text_put(title, sizeof title, "live at the peak of the range '%s'", name);
    w->title = run_text(v->run, title, strlen(title));
    w->moments = found;
    w->moments_n = n;
    return code;
}

/* Those of ranges are found by the same replay, except if one of them is the moment. */
static struct profile *build_profile(struct viewing *v, struct profile_request *w, char *error, size_t size)
{
    const bool memory = w->what != PROFILE_WAITS && w->what != PROFILE_COPIES;
    struct scopes_reader s;
    if (!memory || w->moments) return profile_build(v->run, w, error, size);
    scopes_reader_start(&s, v);
    w->beside = &s.observer;
    struct profile *p = profile_build(v->run, w, error, size);
    question_scopes_finish(s.scopes);
    return p;
}

struct profile *viewing_profile(struct viewing *v, const struct view_profile_settings *s, bool categories, int *code)
{
    char error[1024] = "";
    const char *what = !s->what ? "peak" : strcmp(s->what, "leaks") == 0 ? "end" : s->what;
    struct profile_request w = {.what = profile_of_word(what),
                                .process = -1,
                                .device = v->settings->choice.device,
                                .layer = layer_of_word(s->layer),
                                .categories = categories};

    *code = EXIT_YES;
    if (s->at) w.what = PROFILE_AT;
    if (scope_name(s->at)) {
        *code = choose_scope(v, scope_name(s->at), &w);
    } else if (s->at) {
        units_parse_seconds(s->at, &w.at_ns);
        w.at_ns = moment_in_run(v, w.at_ns);
        if (profile_is_removed(v->run, w.at_ns, error, sizeof error))
            *code = complain_with(EXIT_NO, "%s: %s", v->who, error);
    }
    if (w.what == PROFILE_END && !s->layer) w.layer = PROFILE_ALL; /* as the report's leaks[] */
    struct profile *p = *code == EXIT_YES ? build_profile(v, &w, error, sizeof error) : NULL;
    free(w.moments);
    if (*code != EXIT_YES) return NULL;
    if (!p) {
        *code = viewing_failed(v, error);
    } else if (!p->n) {
        print_nothing_found(v, &w);
        profile_free(p);
        p = NULL;
        *code = EXIT_NO;
    }
    return p;
}

static bool in_time(const struct profile *p)
{
    return strcmp(p->unit, "ns") == 0;
}

char *view_profile_weight(const struct profile *p, int64_t weight, char *out)
{
    return in_time(p) ? units_format_seconds(out, (double)weight / 1e9) : draw_bytes(out, weight);
}

json_t *view_profile_weight_json(const struct profile *p, int64_t weight)
{
    return in_time(p) ? json_real((double)weight / 1e9) : json_integer(weight);
}

const char *view_profile_noun(const struct profile *p)
{
    const char *title = p->title;

    return in_time(p)                         ? "waits"
           : strncmp(title, "copied", 6) == 0 ? "copies"
           : strncmp(title, "live", 4) == 0   ? "blocks"
                                              : "allocations";
}

/* "tensors on GPU 0", "tensors and GPU memory on 2 GPUs of 2 processes" */
static void where_text(const struct draw_text *t, const struct profile *p, char *out, size_t size)
{
    bool layer[RUN_SERIES_LAYERS] = {false},
         memory = strcmp(view_profile_noun(p), "waits") != 0 && strcmp(view_profile_noun(p), "copies") != 0;
    const struct profile_entry *first = &p->entries[0];
    size_t at = 0, devices = 0, processes = 0;
    uint64_t seen[128] = {0};
    bool one_process = true;

    EACH (e, p->entries, p->n) {
        layer[e->layer] = true;
        one_process = one_process && e->process == first->process;
        int device = e->device < 0 || e->device > 126 ? 127 : e->device;
        if (e->process < 64 && !(seen[device] >> e->process & 1)) {
            seen[device] |= (uint64_t)1 << e->process;
            devices += device != 127;
        }
    }
    for (size_t i = 0; i < t->report->processes_n && i < 64; i++) {
        uint64_t any = 0;
        for (int d = 0; d < 128; d++) any |= seen[d] >> i & 1;
        processes += any;
    }
    out[0] = 0;
    for (int i = 0; memory && i < RUN_SERIES_LAYERS; i++)
        if (layer[i])
            at += (size_t)snprintf(out + at, size - at, "%s%s", at ? " and " : ", ",
                                   draw_layer_word((enum run_series_layer)i));
    char place[96];
    if (one_process && devices == 1 && t->report->processes_n) {
        int device = -1;
        for (size_t i = 0; i < p->n && device < 0; i++) device = p->entries[i].device;
        snprintf(out + at, size - at, " on %s",
                 draw_device(t, place, sizeof place, first->process, device, RUN_SERIES_DEVICE));
    } else if (devices > 1 && one_process) {
        snprintf(out + at, size - at, " on %zu GPUs", devices);
    } else if (!one_process) {
        snprintf(out + at, size - at, ", sum of %zu processes (--rank or --process chooses one)", processes);
    }
}

void view_profile_heading(const struct draw_text *t, const struct profile *p)
{
    char title[160], weight[UNITS_TEXT], where[256];
    size_t moments = 0, last = 0;

    for (size_t i = 0; i < p->moments_n; i++)
        if (p->moments && p->moments[i] != RUN_UNKNOWN) {
            moments++;
            last = i;
        }
    const char *at = moments == 1 ? UNITS_SECONDS((double)p->moments[last] / 1e9) : "";
    static const char moment[] = "that moment"; /* which --at names: the time takes its place */
    const size_t before = strlen(p->title) < sizeof moment - 1 ? 0 : strlen(p->title) - (sizeof moment - 1);
    const char *that = *at && strcmp(p->title + before, moment) == 0 ? p->title + before : NULL;
    text_put(title, sizeof title, "%.*s%s", that ? (int)(that - p->title) : (int)sizeof title, p->title,
             that ? at : "");
    title[0] = (char)(title[0] >= 'a' && title[0] <= 'z' ? title[0] - 32 : title[0]);
    where_text(t, p, where, sizeof where);
    fprintf(t->out, "%s%s%s", terminal_style(&t->term, TERMINAL_BOLD), title, terminal_style(&t->term, TERMINAL_PLAIN));
    char line[512];
    const char *noun = view_profile_noun(p);
    int n = (int)strlen(noun);
    text_put(line, sizeof line, ": %s in %s %.*s%s%s%s%s", view_profile_weight(p, p->total, weight),
             UNITS_COUNT(p->count), p->count == 1 ? strcmp(noun, "copies") == 0 ? n - 3 : n - 1 : n, noun,
             p->count == 1 && strcmp(noun, "copies") == 0 ? "y" : "", where, *at && !that ? ", at " : "",
             that ? "" : at);
    text_wrap(t->out, &t->term, 2, terminal_columns(title), false, line);
}

void view_profile_scopes(struct viewing *v, const struct draw_text *t, const struct profile *p)
{
    char command[64];
    enum run_series_layer layer = RUN_SERIES_LAYERS;

    EACH (e, p->entries, p->n)
        if (e->device >= 0) layer = e->layer < layer ? e->layer : layer;
    snprintf(command, sizeof command, "%s --at scope:NAME", v->who);
    view_scope_line(t, &v->head, layer, v->settings->choice.device, command);
}

void view_profile_json(struct viewing *v, json_t *o, const struct profile *p)
{
    json_t *moments = json_array();

    set_text(o, "title", p->title);
    set_text(o, "unit", in_time(p) ? "s" : p->unit);
    set_json(o, "total", view_profile_weight_json(p, p->total));
    set_count(o, "count", p->count);
    for (size_t i = 0; p->moments && i < p->moments_n; i++)
        json_array_append_new(moments,
                              p->moments[i] == RUN_UNKNOWN ? json_null() : json_real((double)p->moments[i] / 1e9));
    set_json(o, "moments_s", moments);
    set_json(o, "scopes", json_scopes(&v->head));
}
