/* gpuspy stats: how many allocations, how large, how long they live, and which lines make them. */
#include <stdlib.h>
#include <string.h>
#include "analyzer/command/commands.h"
#include "analyzer/base/arena.h"
#include "analyzer/step/step.h"
#include "analyzer/view/view_stats.h"
#include "analyzer/view/viewing.h"

#define TOP_STATS 5
#define TOP_JSON 50

struct settings {
    struct viewing_settings view;
    const char *layer;
};

#define LAYERS "tensor|device|pinned|host"
static const struct option_row options[] = {
    {"layer", 'l', OPTION_CHOICE, offsetof(struct settings, layer), "LAYER", LAYERS, 0, 0,
     "count PyTorch's tensors, CUDA allocations, pinned host memory or CPU tensors; default: tensors if there are any, "
     "else CUDA allocations"},
    VIEWING_TOP(struct settings, view, "N lines in each list; default 5, with --json 50"),
    VIEWING_OPTIONS(struct settings, view),
    {0},
};

const struct command_text command_text_stats = {
    .options = options,
    .about = "Prints how many allocations, frees and bytes there were, by layer and category, per second and per step; "
             "how large they were and how long they lived; which lines allocate most, and most often; and the peak "
             "within each NVTX range. All processes are added up; use --rank or --process to choose one.",
    .examples = COMMAND_EXAMPLES({"gpuspy stats run.db", "totals, sizes, lifetimes, and the lines that allocate most"},
                                 {"gpuspy stats --layer device run.db", "the same for CUDA allocations"},
                                 {"gpuspy stats --json run.db | jq '.layers.tensor.sizes'", "for a script"}),
};

static enum run_series_layer stats_layer_of(const struct view_stats *x, const char *word)
{
    for (int i = 0; word && i < RUN_SERIES_LAYERS; i++)
        if (strcmp(result_series_word((enum run_series_layer)i), word) == 0) return (enum run_series_layer)i;
    static const enum run_series_layer usual[] = {RUN_SERIES_TENSOR, RUN_SERIES_DEVICE, RUN_SERIES_PINNED};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (view_stats_has_layer(x, (int)usual[i])) return usual[i];
    return RUN_SERIES_HOST;
}

static bool collect_stats(struct view_stats *x, struct run *run, const struct settings *s, char *error,
                          size_t error_size)
{
    struct profile_request wish = {.what = PROFILE_ALLOCATED,
                                   .process = -1,
                                   .device = s->view.choice.device,
                                   .categories = true,
                                   .uses = x->report->uses,
                                   .sums = x->all.sums.finder ? &x->all.sums : NULL};

    x->layer = stats_layer_of(x, s->layer);
    wish.layer = (int)x->layer;
    for (size_t i = 0; i < x->report->steps_n; i++)
        x->steps = x->report->steps[i]->n > x->steps ? x->report->steps[i]->n : x->steps;
    if (!view_stats_has_layer(x, (int)x->layer)) return true;
    x->profile = profile_build(run, &wish, error, error_size);
    if (!x->profile) return false;
    x->lines = profile_tally_build(run, x->profile, TALLY_LINE, false, false);
    x->categories = profile_tally_build(run, x->profile, TALLY_CATEGORY, false, false);
    profile_tally_sort(x->categories, TALLY_BY_OWN);
    return true;
}

static int show_stats(struct viewing *v, const struct settings *s)
{
    char error[1024] = "";
    struct view_stats *x = ARENA_NEW(struct view_stats, 0);
    struct result_watch watch = {.observer = profile_statistics_observer(&x->all, v->run)};
    int code = EXIT_YES;

    v->options.watch = &watch;
    v->options.questions = REPORT_ASK(STEPS) | REPORT_ASK(USES) | REPORT_ASK(SCOPES);
    struct result_report *r = report_build(v->run, &v->options, error, sizeof error);
    v->options.watch = NULL;
    x->report = r;
    if (!r || !collect_stats(x, v->run, s, error, sizeof error)) {
        code = viewing_failed(v, error);
    } else if (s->view.json) {
        json_t *o = viewing_json_head(v);
        view_stats_json(o, x, s->view.top ? (size_t)s->view.top : TOP_JSON);
        code = viewing_json(v, o);
    } else {
        struct draw_text t = viewing_text(v, r, TOP_STATS);
        view_stats(&t, x);
    }
    profile_tally_free(x->lines);
    profile_tally_free(x->categories);
    profile_free(x->profile);
    profile_sums_free(&x->all.sums);
    report_free(r);
    free(x);
    return code;
}

int command_stats(const struct command *self, int argc, char **argv)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    int code = viewing_open(&v, self, argc, argv, &s, &s.view, NULL, true);

    if (v.run) code = show_stats(&v, &s);
    viewing_close(&v);
    return code;
}
