/* gpuspy leaks: memory that was never freed, and which part grows. */
#include <stdlib.h>
#include "analyzer/command/commands.h"
#include "analyzer/view/view_leaks.h"
#include "analyzer/view/view_text_parts.h"
#include "analyzer/view/viewing.h"

#define TOP_LEAKS 20

struct settings {
    struct viewing_settings view;
    uint64_t min;
    bool native;
};

const struct command_text command_text_leaks = {
    .options = OPTION_ROWS(
        {"min", 'm', OPTION_BYTES, offsetof(struct settings, min), "SIZE", NULL, 0, 1e18,
         "leave out rows below this size, such as 1MiB"},
        OPTION_ROW(FLAG, "native", 0, native, NULL, "one row per call path, with its frames, including native ones"),
        VIEWING_TOP(struct settings, view, "at most N rows; default 20, with --json all"),
        VIEWING_OPTIONS(struct settings, view)),
    .about = "Lists memory that was not freed by the end of the recording: the line that allocated it, its category, "
             "and whether it grows. A model's parameters and optimizer state normally live until the end. Memory that "
             "grows is a leak.\n\nIf the program was killed, crashed or ran out of memory, the list shows what was "
             "live when it died; that alone does not indicate a leak. The exit status does not depend on the list; use "
             "'gpuspy check --no-leaks' to fail on leaks.",
    .examples = COMMAND_EXAMPLES({"gpuspy leaks run.db", "what was never freed, by line, and what grows"},
                                 {"gpuspy leaks --min 1MiB --native run.db", "the larger ones, with their call paths"},
                                 {"gpuspy check --no-leaks run.db", "exit status 1 if something leaks: for CI"}),
};

static int show_leaks(struct viewing *v, const struct settings *s, const struct result_report *r)
{
    char error[1024] = "";
    struct profile_request wish = {.what = PROFILE_END,
                                   .process = -1,
                                   .device = s->view.choice.device,
                                   .layer = PROFILE_ALL,
                                   .categories = true,
                                   .uses = r->uses};
    struct profile *p = profile_build(v->run, &wish, error, sizeof error);
    struct view_leaks leaks = {0};
    int code = EXIT_YES;

    if (!p) return viewing_failed(v, error);
    view_leaks_collect(v->run, r, p, (int64_t)s->min, !s->native && !s->view.json, &leaks);
    if (s->view.json) {
        json_t *o = viewing_json_head(v);
        view_leaks_json(o, v->run, r, &leaks, s->view.top ? (size_t)s->view.top : SIZE_MAX);
        code = viewing_json(v, o);
    } else {
        struct draw_text t = viewing_text(v, r, TOP_LEAKS);
        t.native = s->native;
        t.only = (uint64_t)1 << VIEW_LEAKS;
        view_leaks(&t, v->run, &leaks);
        view_scope_line(&t, r, view_scope_layer(r), s->view.choice.device, "tree --at scope:NAME");
    }
    free(leaks.list);
    profile_free(p);
    return code;
}

int command_leaks(const struct command *self, int argc, char **argv)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    char error[1024] = "";
    int code = viewing_open(&v, self, argc, argv, &s, &s.view, NULL, true);

    if (v.run) {
        v.options.all = true;
        v.options.questions = REPORT_ASK(LEAKS) | REPORT_ASK(USES) | REPORT_ASK(SCOPES);
        if (s.view.json) v.options.questions |= REPORT_ASK(PEAKS); /* growth[] is the same as in the report */
        struct result_report *r = report_build(v.run, &v.options, error, sizeof error);
        code = r ? show_leaks(&v, &s, r) : viewing_failed(&v, error);
        report_free(r);
    }
    viewing_close(&v);
    return code;
}
