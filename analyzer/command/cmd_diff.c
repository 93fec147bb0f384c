/* gpuspy diff: compares two recordings. */
#include <jansson.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/json_out.h"
#include "analyzer/command/commands.h"
#include "analyzer/view/display.h"
#include "analyzer/base/input.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_diff.h"

#define TOP_TEXT 12 /* rows of each list on a terminal */
#define TOP_JSON 50

struct settings {
    const char *what, *by, *layer, *least;
    int top, device, rank;
    bool json;
    struct view_display_settings display;
};

const struct command_text command_text_diff = {
    .options = OPTION_ROWS(
        {"what", 'w', OPTION_CHOICE, offsetof(struct settings, what), "WHAT", "peak|oom|end|allocated|waits|copies", 0,
         0,
         "what to compare: memory live at the peak (the default), at the out-of-memory error, or at the end; all "
         "allocations; waits; copies"},
        {"by", 'b', OPTION_CHOICE, offsetof(struct settings, by), "BY", "line|function|file|category|owner", 0, 0,
         "group by this; default line. owner (PyTorch, NCCL, other libraries) applies to CUDA allocations at the peak"},
        OPTION_ROW(
            TEXT, "min", 'm', least, "SIZE",
            "sum up changes below this: 1MiB, 10ms for waits, or 1% of the larger total; default: 1 % of all changes"),
        {"top", 'n', OPTION_NUMBER, offsetof(struct settings, top), "N", NULL, 1, 1000000,
         "list the N largest changes and sum up the others; default 12, with --json 50"},
        {"layer", 'l', OPTION_CHOICE, offsetof(struct settings, layer), "LAYER", "tensor|device|pinned|host", 0, 0,
         "compare PyTorch's tensors, CUDA allocations, pinned host memory or CPU tensors; default: tensors if both "
         "recordings have some, else CUDA allocations"},
        {"device", 'd', OPTION_NUMBER, offsetof(struct settings, device), "N", NULL, 0, 126,
         "only GPU N (CUDA's number in the program)"},
        {"rank", 'r', OPTION_NUMBER, offsetof(struct settings, rank), "N", NULL, 0, INT_MAX,
         "only the process of rank N"},
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON: sizes in bytes, times in seconds"),
        DISPLAY_OPTIONS(struct settings, display)),
    .about = "Compares two recordings: first one sentence that states what changed, then what grew and what shrank, "
             "largest change first. The rows sum to the totals; small and unchanged lines are summed up in rows of "
             "their own.\n\nLines of an edited file are paired within their function by order, by what they call, and "
             "by the sizes and counts of their events. A line that moved is shown with both numbers, and the pairing "
             "is marked as inferred. Files are also paired across checkouts and Python versions, functions across "
             "renames and moves. Processes are paired by rank, else in order.\n\nThe exit status does not depend on "
             "the result; use 'gpuspy check' to fail on a limit.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy diff before.db after.db", "what grew and what shrank at the peak, by line"},
        {"gpuspy diff --by category --min 1% a.db b.db", "by category, without small changes"},
        {"gpuspy diff --what waits a.db b.db", "which lines wait longer for the GPU"},
        {"gpuspy diff --json runs/monday runs/tuesday | jq .verdict", "two folders of ranks, for a script"}),
};

static const struct {
    const char *word;
    int layer;
} layers[] = {{"tensor", RUN_SERIES_TENSOR},
              {"device", RUN_SERIES_DEVICE},
              {"pinned", RUN_SERIES_PINNED},
              {"host", RUN_SERIES_HOST}};

/* "10ms" in ns. */
static bool parse_time(const char *text, int64_t *ns)
{
    static const struct {
        const char *unit;
        double ns;
    } units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
    double value;
    const char *end = units_read_decimal(text, &value);
    for (size_t i = 0; end && i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].unit) == 0 && value * units[i].ns < 9e18) {
            *ns = (int64_t)(value * units[i].ns);
            return true;
        }
    }
    return false;
}

static bool parse_least(const char *text, struct diff_request *wish)
{
    char why[UNITS_WHY] = "";
    double share;
    const char *end = units_read_decimal(text, &share);
    uint64_t bytes;
    if (end && strcmp(end, "%") == 0 && share <= 100) {
        wish->least = share > 0 ? RUN_UNKNOWN : 0;
        wish->least_share = share / 100;
        return true;
    }
    if (wish->what == PROFILE_WAITS && parse_time(text, &wish->least)) return true;
    if (wish->what != PROFILE_WAITS && units_parse_bytes(text, &bytes, why) && bytes <= INT64_MAX) {
        wish->least = (int64_t)bytes;
        return true;
    }
    return complain_with(false, "diff: --min: '%s' %s%s", text, *why ? why : "is not an amount of what is compared",
                         wish->what == PROFILE_WAITS ? "; give a time such as 10ms, or 1%"
                                                     : "; give a size such as 1MiB, or 1%");
}

static bool wish_of(const struct settings *s, struct diff_request *wish)
{
    *wish = (struct diff_request){.what = s->what ? profile_of_word(s->what) : PROFILE_PEAK,
                                  .layer = PROFILE_USUAL,
                                  .device = s->device,
                                  .rank = s->rank,
                                  .least = RUN_UNKNOWN,
                                  .top = s->top    ? (size_t)s->top
                                         : s->json ? TOP_JSON
                                                   : TOP_TEXT};
    for (int by = 0; by < DIFF_BYS_N; by++)
        if (s->by && strcmp(diff_by_word((enum diff_by)by), s->by) == 0) wish->by = (enum diff_by)by;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        wish->layer = s->layer && strcmp(s->layer, layers[i].word) == 0 ? layers[i].layer : wish->layer;
    bool memory = wish->what != PROFILE_WAITS && wish->what != PROFILE_COPIES;
    if (wish->by == DIFF_OWNER && (wish->what != PROFILE_PEAK || (s->layer && wish->layer != RUN_SERIES_DEVICE))) {
        return complain_with(
            false, "diff: --by owner works for CUDA allocations at the peak only; leave out --what and --layer");
    }
    if (!memory && (s->layer || wish->by == DIFF_CATEGORY)) {
        return complain_with(false, "diff: --what %s: %s exists for memory only", s->what,
                             s->layer ? "a layer" : "a category");
    }
    return !s->least || parse_least(s->least, wish);
}

/* What a diff compares: the other questions take longer than these. A failure's cause depends on all of them. */
static bool open_side(struct diff_side *side, const char *path, const struct run_options *options_)
{
    char error[1024] = "";
    struct run_options asked = *options_;
    size_t failures = 0;
    *side = (struct diff_side){.run = run_open(&path, 1, options_, error, sizeof error)};
    if (side->run) (void)run_ooms(side->run, &failures);
    if (!failures)
        asked.questions = REPORT_ASK(STEPS) | REPORT_ASK(USES) | REPORT_ASK(PEAKS) | REPORT_ASK(GROWTH) |
                          REPORT_ASK(SYNCS) | REPORT_ASK(TRANSFERS) | REPORT_ASK(SCOPES);
    side->report = side->run ? report_build(side->run, &asked, error, sizeof error) : NULL;
    if (!side->report) complain("diff: %s", error);
    return side->report != NULL;
}

static int print_diff(const struct settings *s, const struct diff *d, const struct diff_side *side,
                      const char *const *paths)
{
    if (!s->json) {
        view_diff(&(struct view_diff){.diff = d,
                                      .side = side,
                                      .path = paths,
                                      .term = view_display_start(&s->display),
                                      .out = stdout,
                                      .top = d->wish.top});
        return EXIT_YES;
    }
    return json_out_tree(stdout, json_diff(d, side, paths), JSON_INDENT(2)) ? EXIT_YES : EXIT_INPUT;
}

/* A rank or GPU that neither recording has is an error: "no difference" would be misleading. */
static bool chosen_exists(const struct settings *s, const struct diff_side *side)
{
    bool rank = s->rank < 0, device = s->device < 0;

    for (int i = 0; i < 2; i++) {
        size_t n;
        const struct run_process *p = run_processes(side[i].run, &n);
        for (size_t j = 0; j < n; j++) rank = rank || p[j].rank == s->rank;
        const struct run_device *d = run_devices(side[i].run, &n);
        for (size_t j = 0; j < n; j++) device = device || d[j].device == s->device;
        for (size_t j = 0; j < side[i].report->peaks_n; j++)
            device = device || side[i].report->peaks[j].device == s->device;
    }
    if (!rank)
        complain("diff: neither recording has a rank %d", s->rank);
    else if (!device)
        complain("diff: neither recording has a GPU %d", s->device);
    return rank && device;
}

static int compare_runs(const struct settings *s, const struct diff_request *wish, char **paths,
                        struct symbolizer *symbols)
{
    struct diff_side side[2] = {0};
    struct run_options options_ = {
        .all = true, .memory_map = true, .by_device = s->device >= 0, .device = s->device, SYMBOLIZER_OPTIONS(symbols)};
    int code = EXIT_INPUT;
    if (open_side(&side[0], paths[0], &options_) && open_side(&side[1], paths[1], &options_)) {
        char error[1024] = "";
        bool exists = chosen_exists(s, side);
        struct diff *d = exists ? diff_build(side, wish, error, sizeof error) : NULL;
        if (!exists)
            code = EXIT_NO;
        else if (d)
            code = print_diff(s, d, side, (const char *const *)paths);
        else
            complain("diff: %s", error);
        diff_free(d);
    }
    for (int i = 0; i < 2; i++) {
        if (side[i].report) report_free(side[i].report);
        if (side[i].run) run_close(side[i].run);
    }
    return code;
}

int command_diff(const struct command *self, int argc, char **argv)
{
    struct settings s = {.device = -1, .rank = -1};
    struct diff_request wish;
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands != 2) {
        return complain_with(EXIT_USAGE, "diff: %s: gpuspy diff before.db after.db",
                             operands < 2 ? "give two recordings" : "give two recordings, not more");
    }
    if (!wish_of(&s, &wish)) return EXIT_USAGE;
    if (!input_check_paths("diff", argv, 2)) return EXIT_INPUT;
    struct symbolizer *symbols = symbolizer_new();
    int code = compare_runs(&s, &wish, argv, symbols);
    if (symbols) symbolizer_complain(symbols, false);
    symbolizer_free(symbols);
    return code;
}
