/* gpuspy tree, gpuspy flame: memory or waits by caller. */
#include <string.h>
#include "analyzer/command/commands.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/base/units.h"
#include "analyzer/view/view_tree.h"
#include "analyzer/view/viewing.h"

#define TOP_TREE 10 /* branches per call */

struct settings {
    struct viewing_settings view;
    struct view_profile_settings profile;
    const char *min;
    int depth;
    bool full;
};

/* clang-format off */
#define TREE_OPTIONS                                                                                        \
    PROFILE_OPTIONS(struct settings, profile),                                                              \
    {"depth", 0, OPTION_NUMBER, offsetof(struct settings, depth), "N", NULL, 1, RUN_DEPTH_MAX,              \
     "at most N levels"},                                                                                   \
    OPTION_ROW(TEXT, "min", 'm', min, "SHARE", "sum up calls below this share, such as 0.5%, or size, such " \
               "as 10MiB; default 1%, with --json none"),                                                   \
    OPTION_ROW(FLAG, "full", 0, full, NULL, "one row per call; without it, a chain of calls is one row that " \
               "names your own code")
/* clang-format on */

const struct command_text command_text_tree = {
    .options = OPTION_ROWS(TREE_OPTIONS, VIEWING_TOP(struct settings, view, "at most N branches per call; default 10"),
                           VIEWING_OPTIONS(struct settings, view)),
    .about = "Shows memory as a tree of the calls that allocated it: each row has the bytes of the call and everything "
             "below it, their share, and the line. A chain of calls without branches is one row. 'gpuspy table' shows "
             "what each line holds by itself.\n\nAll processes are added up; use --rank or --process to choose one.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy tree run.db", "the calls that hold memory at the peak"},
        {"gpuspy tree --what oom --depth 4 run.db", "memory live at the out-of-memory error, upper calls only"},
        {"gpuspy tree --what waits --native run.db", "where the program waits for the GPU, with C++ frames"},
        {"gpuspy tree --at 12.5 --rank 3 runs/", "one rank of several, 12.5 s after it began"}),
};

const struct command_text command_text_flame = {
    .options = OPTION_ROWS(
        TREE_OPTIONS,
        VIEWING_TOP(struct settings, view, "at most N branches per call; default: all that are wide enough"),
        VIEWING_OPTIONS(struct settings, view)),
    .about = "Draws memory as an icicle graph: the program on top, below each call the calls that it made, as wide as "
             "their share. Warm colours are your own code, blue is libraries, green is C and C++. Without a terminal "
             "it prints an indented list.\n\nAll processes are added up; use --rank or --process to choose one.",
    .examples =
        COMMAND_EXAMPLES({"gpuspy flame run.db", "memory live at the peak, one cell per call"},
                         {"gpuspy flame --what leaks run.db", "what was never freed"},
                         {"gpuspy flame --color=always run.db | less -R", "with colours, through another pager"}),
};

/* Parses "0.5%", a share of the whole, or "10MiB". False after a line on stderr. */
static bool parse_least_weight(const char *who, const char *text, int64_t whole, bool bytes, int64_t *least)
{
    char why[UNITS_WHY];
    size_t n = strlen(text);
    uint64_t size;

    if (n && text[n - 1] == '%') {
        double share;
        if (units_read_decimal(text, &share) == text + n - 1 && share <= 100) {
            *least = (int64_t)((double)whole * share / 100);
            return true;
        }
        return complain_with(false, "%s: --min: '%s' is not a share such as 0.5%%", who, text);
    }
    if (bytes && units_parse_bytes(text, &size, why)) {
        *least = size > INT64_MAX ? INT64_MAX : (int64_t)size;
        return true;
    }
    return complain_with(false, "%s: --min: '%s' %s; give a share such as 0.5%%%s", who, text,
                         bytes ? why : "is not a share", bytes ? ", or a size such as 10MiB" : "");
}

static bool are_tree_options_sensible(const char *who, const void *settings)
{
    const struct settings *s = settings;
    int64_t least;
    bool waits = s->profile.what && strcmp(s->profile.what, "waits") == 0;

    return view_profile_sensible(who, &s->profile) && (!s->min || parse_least_weight(who, s->min, 0, !waits, &least));
}

typedef void draw_fn(const struct draw_text *, const struct profile *, const struct profile_call_tree *,
                     const struct view_branch_limits *);

static int show_tree(struct viewing *v, const struct settings *s, const struct profile *p,
                     const struct view_branch_limits *limits, draw_fn *draw)
{
    struct profile_call_tree *tree = profile_call_tree_build(v->run, p, s->profile.native, NULL, NULL);
    int code = EXIT_YES;

    if (s->view.json) {
        json_t *o = viewing_json_head(v);
        view_profile_json(v, o, p);
        set_json(o, "nodes", view_tree_json(p, tree, limits));
        code = viewing_json(v, o);
    } else {
        struct draw_text t = viewing_text(v, NULL, 0);
        t.native = s->profile.native;
        view_profile_heading(&t, p);
        draw(&t, p, tree, limits);
        view_profile_scopes(v, &t, p);
    }
    profile_call_tree_free(tree);
    return code;
}

static int run_tree(const struct command *command, int argc, char **argv, size_t top, draw_fn *draw)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    int code = viewing_open(&v, command, argc, argv, &s, &s.view, are_tree_options_sensible, false);
    struct profile *p = !v.run ? NULL : viewing_profile(&v, &s.profile, false, &code);
    if (p) {
        struct view_branch_limits limits = {
            .top = s.view.top ? (size_t)s.view.top : top, .depth = (unsigned)s.depth, .full = s.full};
        const char *min = s.min ? s.min : s.view.json ? "0%" : "1%";
        parse_least_weight(v.who, min, p->total, strcmp(p->unit, "bytes") == 0, &limits.least);
        code = show_tree(&v, &s, p, &limits, draw);
        profile_free(p);
    }
    viewing_close(&v);
    return code;
}

int command_tree(const struct command *self, int argc, char **argv)
{
    return run_tree(self, argc, argv, TOP_TREE, view_tree);
}

int command_flame(const struct command *self, int argc, char **argv)
{
    return run_tree(self, argc, argv, SIZE_MAX, view_flame);
}
