/* gpuspy timeline: memory over time, in the terminal. */
#include <stdio.h>
#include "analyzer/command/commands.h"
#include "analyzer/view/view_timeline.h"
#include "analyzer/view/viewing.h"
#include "analyzer/base/units.h"

#define TOP_CHARTS 16
#define POINTS 200

struct settings {
    struct viewing_settings view;
    const char *from, *to;
    int rows, points;
    bool host;
};

const struct command_text command_text_timeline = {
    .options = OPTION_ROWS(
        OPTION_ROW(TEXT, "from", 0, from, "SECONDS", "start N seconds after the recording began"),
        OPTION_ROW(TEXT, "to", 0, to, "SECONDS",
                   "end N seconds after the recording began; default: the end of the longest process"),
        {"rows", 0, OPTION_NUMBER, offsetof(struct settings, rows), "N", NULL, 1, 100,
         "the height of a chart in lines; default 12, fewer if there are several charts"},
        {"points", 0, OPTION_NUMBER, offsetof(struct settings, points), "N", NULL, 1, 10000,
         "with --json: N intervals; default 200"},
        OPTION_ROW(FLAG, "host", 0, host, NULL, "also draw pinned host memory and CPU tensors"),
        VIEWING_TOP(struct settings, view, "at most N charts; default 16"), VIEWING_OPTIONS(struct settings, view)),
    .about = "Draws memory over time for each GPU and process: PyTorch's tensors, stacked by category, in front of the "
             "CUDA allocations. Each column shows the maximum of its interval; marks below show the peak, failures, "
             "the program's steps and its NVTX ranges.\n\nAll charts of GPUs share one scale and one time axis; each "
             "process starts at 0.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy timeline run.db", "memory over time, as wide as the terminal"},
        {"gpuspy timeline --from 10 --to 12 --rows 24 run.db", "two seconds of it, larger"},
        {"gpuspy timeline --rank 3 runs/", "one rank of many"},
        {"gpuspy timeline --json --points 1000 run.db", "for a script: maximum and minimum of each interval"}),
};

static bool are_timeline_options_sensible(const char *who, const void *settings)
{
    const struct settings *s = settings;
    int64_t from = 0, to = INT64_MAX;

    if (s->from && !units_parse_seconds(s->from, &from))
        complain("%s: --from: '%s' is not a number of seconds such as 12.5", who, s->from);
    else if (s->to && !units_parse_seconds(s->to, &to))
        complain("%s: --to: '%s' is not a number of seconds such as 12.5", who, s->to);
    else if (to <= from)
        complain("%s: --to must be later than --from%s%s", who, s->from ? " " : ", which is 0 s by default",
                 s->from ? s->from : "");
    else
        return true;
    return false;
}

static int show_timeline(struct viewing *v, const struct settings *s, const struct profile_courses *c)
{
    if (s->view.json) {
        json_t *o = viewing_json_head(v);
        view_timeline_json(o, v->run, &v->head, c);
        return viewing_json(v, o);
    }
    const char *why = run_why_unknown(v->run, RUN_FACT_MEMORY), *once = run_why_unknown(v->run, RUN_FACT_HISTORY);
    if (once) return complain_with(EXIT_NO, "%s: memory over time is unknown: %s", v->who, once);
    if (!c->n) {
        if (why)
            complain("%s: memory is unknown: %s", v->who, why);
        else
            complain("%s: no memory was allocated in this run", v->who);
        return EXIT_NO;
    }
    struct draw_text t = viewing_text(v, NULL, TOP_CHARTS);
    view_timeline(&t, v->run, c, s->rows);
    return EXIT_YES;
}

int command_timeline(const struct command *self, int argc, char **argv)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    char error[1024] = "";
    int code = viewing_open(&v, self, argc, argv, &s, &s.view, are_timeline_options_sensible, true);

    if (v.run) {
        terminal_choose_colour(s.view.display.colour);
        struct terminal term = terminal_of(stdout);
        struct profile_course_request wish = {.columns = s.view.json ? (size_t)(s.points ? s.points : POINTS)
                                                                     : view_timeline_columns(&term),
                                              .categories = s.view.json || term.colour,
                                              .host = s.host};
        if (s.from) units_parse_seconds(s.from, &wish.from_ns);
        if (s.to) units_parse_seconds(s.to, &wish.to_ns);
        struct profile_courses *c = profile_courses_build(v.run, &wish, error, sizeof error);
        code = c ? show_timeline(&v, &s, c) : viewing_failed(&v, error);
        profile_courses_free(c);
    }
    viewing_close(&v);
    return code;
}
