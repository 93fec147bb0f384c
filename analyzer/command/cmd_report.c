/* gpuspy report: opens the recording, builds the report, hands it to a view. */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "analyzer/command/commands.h"
#include "analyzer/view/choice.h"
#include "analyzer/view/display.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/base/input.h"
#include "analyzer/base/pager.h"
#include "analyzer/base/progress.h"
#include "analyzer/report/report.h"
#include "analyzer/question/learn.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/term.h"
#include "analyzer/page/save.h"
#include "analyzer/view/view_text.h"
#include "analyzer/json/view_json.h"

#define TOP_TEXT 8 /* rows of each list on a terminal */
#define TOP_JSON 50

struct settings {
    struct plan_settings plan;
    struct view_display_settings display;
    uint64_t only;
    struct view_choice choice;
    int top;
    bool json, native, paths, full, open;
    const char *html, *card;
};

const struct command_text command_text_report = {
    .options = OPTION_ROWS(
        OPTION_ROW(FLAG, "full", 0, full, NULL, "all sections; without it: one screen"),
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON: sizes in bytes, times in seconds"),
        OPTION_ROW(FILE_OR_ALONE, "html", 0, html, "FILE.html", "write a page; default: run.html for run.db"),
        OPTION_ROW(FLAG, "open", 0, open, NULL, "write the page and open it in the browser"),
        OPTION_ROW(FILE, "card", 0, card, "FILE.svg", "write a picture to share, .svg or .png"),
        {"only", 0, OPTION_SET, offsetof(struct settings, only), "SECTIONS", view_section_words, 0, 0,
         "only these, separated by commas"},
        {"top", 'n', OPTION_NUMBER, offsetof(struct settings, top), "N", NULL, 1, 1000000,
         "N largest of each list; default 8, with --json 50"},
        CHOICE_OPTIONS(struct settings, choice), OPTION_ROW(FLAG, "native", 0, native, NULL, "show C and C++ frames"),
        OPTION_ROW(FLAG, "paths", 0, paths, NULL, "show the call paths of each line"),
        DISPLAY_OPTIONS(struct settings, display),
        OPTIONS_NAMED("The model, to compare with what it needs (see 'gpuspy help estimate')"),
        ESTIMATE_OPTIONS(struct settings, plan.model, 0), PLAN_TRAINING_OPTIONS(struct settings, plan),
        PLAN_COUNT(struct settings, plan, "gpus", gpus, "N",
                   "GPUs that trained together: each recorded rank is compared with the estimate of one of them"),
        PLAN_DIVIDED_OPTIONS(struct settings, plan), PLAN_ADAPTER_OPTIONS(struct settings, plan)),
    .about = "Explains a recording, also one of another tool ('gpuspy help import'): why memory ran out, what to do, "
             "which lines hold memory, wait for the GPU or copy.",
    .examples =
        COMMAND_EXAMPLES({"gpuspy report", "the newest recording in this folder"},
                         {"gpuspy report --json run.db | jq .oom", "for a script"},
                         {"gpuspy report --params 1.3B run.db", "compare with what a model of that size needs"}),
    .synonyms =
        COMMAND_EXAMPLES({"format|output-format", "--json"}, {"v|verbose|all|a|detail|details|long", "--full"},
                         {"o|output", "--html=FILE"}, {"page|web|browser", "--html"}, {"oom|cause", "--only oom"},
                         {"peak", "--only peak"}, {"leaks|leak", "--only leaks"}, {"growth", "--only growth"},
                         {"sync|syncs|waits", "--only sync"}, {"copies|transfers", "--only transfers"},
                         {"frag|fragmentation", "--only fragmentation"}, {"gpu", "--device"}, {"lines", "--top"}),
};

static bool print_report(const struct settings *s, const struct result_report *report, const char *database)
{
    const bool brief = !s->full && !s->only && !s->top && !s->native && !s->paths;
    struct view_display_settings display = s->display;
    display.lines = brief && !s->json ? VIEW_BRIEF_LINES : 0;
    struct terminal term = view_display_start(&display);

    if (s->json)
        return json_report_some(report, s->only ? view_section_key : NULL, s->only, stdout) == 0 ||
               pager_is_running(); /* quitting the pager early is not an error */
    view_text(&(struct draw_text){.report = report,
                                  .term = term,
                                  .out = stdout,
                                  .only = s->only,
                                  .top = s->top ? (size_t)s->top : TOP_TEXT,
                                  .native = s->native,
                                  .brief = brief,
                                  .paths = s->paths,
                                  .database = database});
    return true;
}

/* "run.html" for "runs/run.db": in the working directory, not beside the recording. */
static const char *page_name(const char *recording, char *out, size_t size)
{
    char real[PATH_MAX];
    const char *path = realpath(recording, real) ? real : recording, *slash = strrchr(path, '/');
    const char *base = slash && slash[1] ? slash + 1 : path, *dot = strrchr(base, '.');

    snprintf(out, size, "%.*s.html", (int)(dot && dot != base ? dot - base : (long)strlen(base)), base);
    return out;
}

/* Starts xdg-open in a session of its own, without its messages: Ctrl-C in this terminal does not end a browser. */
static pid_t start_browser(const char *page)
{
    char *command[] = {"xdg-open", (char *)page, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    pid_t child = -1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
    if (posix_spawnp(&child, command[0], &actions, &attributes, command, environ) != 0) child = -1;
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

/* Opens the page in the desktop's default browser. The page stays if there is none. Without a desktop, xdg-open runs
 * the browser itself and ends with it: one that still runs after PATIENCE was found. */
static void open_page(const char *path)
{
    enum { PATIENCE = 3000, PAUSE = 20 }; /* ms */
    char *real = realpath(path, NULL);    /* absolute: xdg-open could take a name such as -x for an option */
    const pid_t child = real ? start_browser(real) : -1;
    int status = 1;
    pid_t ended = child < 0 ? child : 0;

    for (int ms = 0; !ended && ms < PATIENCE; ms += PAUSE) {
        usleep(PAUSE * 1000);
        ended = waitpid(child, &status, WNOHANG);
    }
    if (ended && status) complain("report: found no browser here; open %s on a machine that has one", path);
    free(real);
}

static int run_report(const struct settings *s, struct run_options *options_, char **paths, size_t n)
{
    if (!input_check_paths("report", paths, n)) return EXIT_INPUT;
    const struct page_target target = {"report", s->card ? "card" : "html", s->card ? s->card : s->html, paths, n};
    char error[1024] = "";
    int code = target.path ? page_save_check(&target, s->card != NULL) : EXIT_YES;
    if (code != EXIT_YES) return code;
    struct run *run = view_choice_open("report", (const char *const *)paths, n, &s->choice, options_, &code);
    if (!run) return code;
    struct page *page = s->html ? page_new(run, options_) : NULL;
    options_->questions = view_section_questions(s->only);
    struct result_report *built = report_build(run, options_, error, sizeof error);

    code = EXIT_INPUT;
    if (!built)
        complain("report: %s", error);
    else if (s->card)
        code = page_save_card(&target, built);
    else if (s->html)
        code = page_save(&target, page, built);
    else
        code = print_report(s, built, paths[0]) ? EXIT_YES : EXIT_INPUT;
    if (code == EXIT_YES && s->open) open_page(s->html);
    if (built) report_free(built);
    page_free(page);
    run_close(run);
    return code;
}

/* Estimates the model with its settings, for the report to compare. */
static bool estimate_for_report(const struct plan_settings *s, struct run_estimate_bytes *bytes, struct run_options *o,
                                int *exit_code)
{
    static struct estimate_result result;
    struct plan plan;
    struct model model;
    bool ok = plan_from_settings("report", s, &plan, &model, exit_code);

    if (ok && plan.batch && !plan.seq && model.shape.vocab) {
        complain("report: --batch: activations depend on the number of tokens; add --seq");
        *exit_code = EXIT_USAGE;
        ok = false;
    } else if (ok && plan.batch && model.shape.family == MODEL_UNKNOWN) {
        complain("report: --batch: activations need a model's shape, not only its number of parameters; give --model");
        *exit_code = EXIT_USAGE;
        ok = false;
    }
    if (ok && !estimate_make(&plan, &result)) {
        complain("report: that needs more than 2^63 bytes on one GPU");
        *exit_code = EXIT_USAGE;
        ok = false;
    }
    if (ok) {
        struct estimate e = estimate_floor(&model, plan.optimizer, plan.precision, plan.master_weights);
        *bytes = (struct run_estimate_bytes){(double)e.weights, (double)e.gradients, (double)(e.optimizer + e.master),
                                             (double)e.total,   (double)e.params,    (double)e.cast_copies};
        /* Only a part is trained, other tensors exist as well, or some are on other GPUs or the host. */
        if (plan.adapter != PLAN_ADAPTER_NONE || plan.frozen != PLAN_FROZEN_NONE || plan.ema || plan.gpus > 1 ||
            plan.offload != PLAN_OFFLOAD_NONE) {
            bytes->weights = question_plan_category(&result, RESULT_CATEGORY_PARAMETERS, -1).likely;
            bytes->gradients = question_plan_category(&result, RESULT_CATEGORY_GRADIENTS, -1).likely;
            bytes->optimizer = question_plan_category(&result, RESULT_CATEGORY_OPTIMIZER_STATE, -1).likely;
            bytes->total = bytes->weights + bytes->gradients + bytes->optimizer;
        }
        o->memory_map = true; /* a category's own peak needs the stacks of frees */
        o->estimate = bytes;
        o->plan = &result;
        o->plan_gpus = plan.gpus;
    }
    model_free(&model);
    return ok;
}

int command_report(const struct command *self, int argc, char **argv)
{
    struct settings s = {.plan = PLAN_SETTINGS_DEFAULT, .choice = CHOICE_ANY};
    struct run_estimate_bytes bytes;
    int operands = options_parse(self, argc, argv, &s);
    char newest_name[INPUT_NAME], *newest[] = {newest_name}, name[PATH_MAX];

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (s.open && (s.json || (s.html && strcmp(s.html, "-") == 0))) {
        return complain_with(EXIT_USAGE, "report: --open shows a page in the browser; leave out %s",
                             s.json ? "--json" : "--html=-");
    }
    if (s.html && s.json)
        return complain_with(EXIT_USAGE, "report: give --json or --html, not both; a page contains what --json prints");
    if (s.card && (s.json || s.html || s.open || s.only)) {
        return complain_with(EXIT_USAGE, "report: --card writes a picture; leave out %s",
                             s.json   ? "--json"
                             : s.html ? "--html"
                             : s.open ? "--open"
                                      : "--only");
    }
    if (s.html && s.only)
        return complain_with(EXIT_USAGE, "report: --only applies to text and --json; a page contains all sections");
    if (operands == 0) {
        if (!input_newest("report", newest_name)) return EXIT_USAGE;
        argv = newest;
        operands = 1;
    }
    if (s.open && !s.html) s.html = OPTION_FILE_ALONE;
    if (s.html && !*s.html) s.html = page_name(argv[0], name, sizeof name);
    struct symbolizer *symbols = symbolizer_new();
    struct run_options options_ = {.top = s.top    ? (unsigned)s.top
                                          : s.html ? 0
                                                   : TOP_JSON,
                                   .memory_map = s.html != NULL,
                                   SYMBOLIZER_OPTIONS(symbols),
                                   .progress = progress_show};
    int code = EXIT_USAGE;
    if ((s.plan.batch || s.plan.seq) && !plan_settings_model_given(&s.plan)) {
        complain("report: --batch and --seq describe how a model was trained; add --model to name it");
        symbolizer_free(symbols);
        return code;
    }
    if ((s.plan.gpus || s.plan.sharding) && !plan_settings_model_given(&s.plan)) {
        complain("report: --%s describes how a model was trained; add --model to name it",
                 s.plan.gpus ? "gpus" : "sharding");
        symbolizer_free(symbols);
        return code;
    }
    if (plan_settings_model_given(&s.plan) && !estimate_for_report(&s.plan, &bytes, &options_, &code)) {
        symbolizer_free(symbols);
        return code;
    }
    code = run_report(&s, &options_, argv, (size_t)operands);
    if (symbols && !s.json) symbolizer_complain(symbols, s.native);
    symbolizer_free(symbols);
    return code;
}
