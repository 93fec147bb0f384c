/* gpuspy calibrate: learns from recorded runs what memory really costs, for the next estimate. */
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/base/progress.h"
#include "analyzer/command/commands.h"
#include "analyzer/estimate/plan_settings.h"
#include "analyzer/json/json_calibration.h"
#include "analyzer/question/learn.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/view/display.h"
#include "analyzer/view/view_calibration.h"
#include "analyzer/report/report.h"

struct settings {
    struct plan_settings plan;
    struct view_display_settings display;
    const char *output;
    bool json, show, forget;
};

const struct command_text command_text_calibrate = {
    .options = OPTION_ROWS(
        ESTIMATE_OPTIONS(struct settings, plan.model, 0), PLAN_TRAINING_OPTIONS(struct settings, plan),
        PLAN_ADAPTER_OPTIONS(struct settings, plan),
        OPTION_ROW(FLAG, "show", 0, show, NULL, "print what gpuspy learned from earlier recordings"),
        OPTION_ROW(FLAG, "forget", 0, forget, NULL, "delete everything that gpuspy learned"),
        OPTION_ROW(
            FILE, "output", 'o', output, "FILE",
            "write to this file; default: GPUSPY_CALIBRATION, else gpuspy/calibration.json in XDG_CONFIG_HOME or "
            "~/.config"),
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON, sizes in bytes"),
        DISPLAY_OPTIONS(struct settings, display)),
    .about = "Learns from recordings what a formula cannot know: how much the CUDA context, kernels and libraries take "
             "on this GPU (from NVML), what cuBLAS and cuDNN keep as workspaces, and how much PyTorch's allocator "
             "loses in holes between blocks. If you name the model, --batch and --seq, it also compares the peak of "
             "the activations with the prediction of 'gpuspy estimate'.\n\nThe next 'gpuspy estimate' uses these "
             "values and states so: contexts and workspaces for the same GPU, activations for the same family, "
             "precision, attention and checkpointing. A recording that is read again replaces what was learned from "
             "it. gpuspy learns no contexts from a simulated GPU.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy calibrate run.db", "learn what the CUDA context, workspaces and the allocator take on this GPU"},
        {"gpuspy calibrate --model gpt2 --precision amp --batch 8 --seq 1024 run.db",
         "also learn the activations of this model"},
        {"gpuspy calibrate --show", "print what was learned, and from how many runs"}),
};

/* Learns the rows of one recording. */
static bool learn_from_run(const struct settings *s, char *path, const struct run_options *options_,
                           struct question_learned *out)
{
    char error[1024] = "";
    struct run *run = run_open((const char *const *)&path, 1, options_, error, sizeof error);
    struct result_report *report = run ? report_build(run, options_, error, sizeof error) : NULL;

    if (report)
        question_learn(report, path, options_->plan, out);
    else
        complain("calibrate: %s", error);
    if (report) report_free(report);
    if (run) run_close(run);
    return report != NULL;
}

static bool fits_in(const char *file, char *path, size_t size)
{
    int n = snprintf(path, size, "%s", file);
    return n >= 0 && (size_t)n < size;
}

static int show_learned(const struct settings *s, const struct estimate_calibration *c,
                        const struct question_learned *l)
{
    if (s->json) {
        json_out_tree(stdout, json_calibration(c, l), JSON_INDENT(2) | JSON_REAL_PRECISION(12));
    } else {
        struct terminal term = view_display_start(&s->display);
        view_calibration(c, l, &term, stdout);
    }
    return EXIT_YES;
}

/* Reads the file again under the lock: another process may have changed it while this one read recordings. */
static int keep_learned(const struct question_learned *l, struct estimate_calibration *c)
{
    char path[sizeof c->path];
    int lock = estimate_calibration_lock(c), code;

    snprintf(path, sizeof path, "%s", c->path);
    estimate_calibration_free(c);
    if (estimate_calibration_load("calibrate", path, c, &code)) {
        for (size_t i = 0; i < l->n; i++)
            if (l->rows[i].any) estimate_calibration_add(c, &l->rows[i].row);
        code = estimate_calibration_save("calibrate", c) ? EXIT_YES : EXIT_INPUT;
    }
    if (lock >= 0) close(lock);
    return code;
}

static int learn_all(const struct settings *s, char **paths, size_t n, const struct plan *plan,
                     const struct estimate_result *result, struct estimate_calibration *c)
{
    struct symbolizer *symbols = symbolizer_new();
    struct run_estimate_bytes bytes = {0};
    struct run_options options_ = {.top = 1,
                                   .alone = true,
                                   .memory_map = true,
                                   SYMBOLIZER_OPTIONS(symbols),
                                   .estimate = result ? &bytes : NULL,
                                   .plan = result,
                                   .progress = progress_show};
    struct question_learned l = {.plan = plan};
    int code = EXIT_YES;

    for (size_t i = 0; i < n && code == EXIT_YES; i++)
        code = learn_from_run(s, paths[i], &options_, &l) ? EXIT_YES : EXIT_INPUT;
    if (code == EXIT_YES && question_learned_any(&l)) code = keep_learned(&l, c);
    if (code == EXIT_YES) {
        show_learned(s, c, &l);
        code = question_learned_any(&l) ? EXIT_YES : EXIT_NO;
    }
    question_learned_free(&l);
    symbolizer_free(symbols);
    return code;
}

/* With --model, first estimates it without any calibration. */
static int print_planned_calibration(const struct settings *s, char **paths, size_t n, struct estimate_calibration *c)
{
    static struct estimate_result result;
    static const struct plan_settings usual = PLAN_SETTINGS_DEFAULT;
    struct plan plan;
    struct model model = {.source = ""};
    int code = EXIT_USAGE;

    if (!plan_settings_model_given(&s->plan)) {
        if (memcmp(&s->plan, &usual, sizeof usual) != 0) {
            return complain_with(EXIT_USAGE, "calibrate: options such as --batch and --optimizer describe how a model "
                                             "was trained; add --model to name it");
        }
        return learn_all(s, paths, n, NULL, NULL, c);
    }
    if (plan_from_settings("calibrate", &s->plan, &plan, &model, &code)) {
        code = EXIT_USAGE;
        if (!plan.batch || (!plan.seq && model.shape.vocab))
            complain("calibrate: activations depend on the batch; add --batch%s",
                     model.shape.vocab ? " and --seq as they were in the recording" : ", as it was in the recording");
        else if (!estimate_make(&plan, &result))
            complain("calibrate: this needs more than 2^63 bytes on one GPU");
        else if (!question_plan_has_activations(&result))
            complain("calibrate: %s has no shape, so activations cannot be compared; give --model",
                     s->plan.model.params ? "--params" : "this model");
        else
            code = learn_all(s, paths, n, &plan, &result, c);
    }
    model_free(&model);
    return code;
}

static int run_calibrate(const struct settings *s, char **paths, size_t n)
{
    struct estimate_calibration c;
    char path[sizeof c.path];
    int code;

    if (s->output ? !fits_in(s->output, path, sizeof path) : !estimate_calibration_path(path, sizeof path)) {
        return complain_with(
            EXIT_INPUT, s->output ? "calibrate: --output: the name is too long"
                                  : "calibrate: no file to write to; give --output, or set HOME or GPUSPY_CALIBRATION");
    }
    if (s->forget) return estimate_calibration_delete("calibrate", path) ? EXIT_YES : EXIT_INPUT;
    if (n && !input_check_paths("calibrate", paths, n)) return EXIT_INPUT;
    /* gpuspy creates the folder of its own settings, and no other: a mistyped one would be created silently */
    if (n && s->output && !output_folder_exists(path)) {
        output_failed("calibrate", path, ENOENT);
        return EXIT_INPUT;
    }
    if (!estimate_calibration_load("calibrate", path, &c, &code)) {
        estimate_calibration_free(&c);
        return code;
    }
    code = n ? print_planned_calibration(s, paths, n, &c) : show_learned(s, &c, NULL);
    estimate_calibration_free(&c);
    return code;
}

int command_calibrate(const struct command *self, int argc, char **argv)
{
    static struct settings s = {.plan = PLAN_SETTINGS_DEFAULT}; /* static: compared byte by byte, with its padding */
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if ((s.show || s.forget) && (operands > 0 || (s.show && s.forget)))
        return complain_with(EXIT_USAGE, "calibrate: --show and --forget take no recording; leave it out");
    if (operands == 0 && !s.show && !s.forget)
        return complain_with(EXIT_USAGE, "calibrate: no recording given; type: gpuspy calibrate run.db");
    return run_calibrate(&s, argv, (size_t)operands);
}
