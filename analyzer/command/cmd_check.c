/* gpuspy check: compares a recording with limits, so that a pipeline can fail. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/check/check.h"
#include "analyzer/command/commands.h"
#include "analyzer/base/input.h"
#include "analyzer/base/output.h"
#include "analyzer/base/term.h"

#define FOUND ".gpuspy-check" /* in the working directory */

struct settings {
    const char *text[GATES_N];
    struct option_list list[GATES_N];
    bool flag[GATES_N];
    const char *config, *junit, *baseline, *per;
    bool no_config, json, github, all, alone, allow_incomplete;
};

/* One option per gate; a gate of unit EVENTS has none. */
#define FLAG(id) OPTION_FLAG, offsetof(struct settings, flag[GATE_##id])
#define TEXT(id) OPTION_TEXT, offsetof(struct settings, text[GATE_##id])
#define ROW_FLAG(id, option, argument, help) {option, 0, FLAG(id), NULL, NULL, 0, 0, help},
#define ROW_LEAKS ROW_FLAG
#define ROW_TEXT(id, option, argument, help) {option, 0, TEXT(id), argument, NULL, 0, 0, help},
#define ROW_COUNT ROW_TEXT
#define ROW_BYTES ROW_TEXT
#define ROW_PEAK(id, option, argument, help) \
    {option, 0, OPTION_LIST, offsetof(struct settings, list[GATE_##id]), argument, NULL, 0, 0, help},
#define ROW_BYTES_STEP ROW_TEXT
#define ROW_NUMBER_STEP ROW_TEXT
#define ROW_SHARE ROW_TEXT
#define ROW_BUDGET ROW_TEXT
#define ROW_EVENTS(id, option, argument, help)
#define GATE(id, option, unit, argument, measure, explain, what, help) ROW_##unit(id, option, argument, help)

static const struct option_row options[] = {
#include "analyzer/check/gates.def"
    {"config", 'c', OPTION_FILE, offsetof(struct settings, config), "FILE", NULL, 0, 0,
     "read limits from FILE; " FOUND
     " in the working directory if not given. Options on the command line take precedence"},
    OPTION_ROW(FLAG, "no-config", 0, no_config, NULL, "do not read a limits file"),
    OPTION_ROW(FILE, "baseline", 0, baseline, "DATABASE",
               "an earlier recording, to which limits such as +5% or +100MiB are relative"),
    OPTION_ROW(FLAG, "allow-incomplete", 0, allow_incomplete, NULL,
               "also judge recordings that lost events or whose program was killed"),
    {"per", 0, OPTION_CHOICE, offsetof(struct settings, per), "WHICH", "rank|device", 0, 0,
     "judge peaks per process (rank, the default) or of all processes on a GPU together"},
    OPTION_ROW(FLAG, "alone", 0, alone, NULL, "do not read the run's other processes"),
    OPTION_ROW(FLAG, "all", 'a', all, NULL, "list all lines of code of each failure"),
    OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON"),
    OPTION_ROW(FILE, "junit", 0, junit, "FILE", "also write the results as JUnit XML"),
    OPTION_ROW(FLAG, "github", 0, github, NULL,
               "also print GitHub annotations; automatic, with a summary, if GITHUB_ACTIONS is true"),
    {0},
};
#undef GATE

const struct command_text command_text_check = {
    .options = options,
    .about = "Compares a recording with limits. The exit status is 0 if all of them hold, else 1, with the lines of "
             "code that exceed them. What is unknown (no steps were found, events were lost, the program was killed) "
             "counts as failure.\n\nEach process of a run and each of its GPUs is judged separately; the worst result "
             "counts. Limits per step are averages over the program's usual steps, without start-up, warm-up, "
             "evaluations, checkpoints and the end.\n\nA limits file has lines such as 'max-peak = 10GiB' and "
             "'no-leaks = true', comments after #, and sections for databases, [small*.db], or a GPU, [gpu 1]; 'off' "
             "removes a limit there. Later lines win over earlier ones.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy check run.db --max-peak 10GiB --no-leaks", "exit status 1 and the lines if it needs more or leaks"},
        {"gpuspy check run.db --max-growth 1MiB/step --max-syncs-per-step 2", "limits per step"},
        {"gpuspy check run.db --budget params=1e9,optimizer=adamw,tolerance=10%",
         "compare parameters, gradients and optimizer state with the estimate"},
        {"gpuspy check run.db --max-peak scope:load=10GiB", "while the program's NVTX range \"load\" is open"},
        {"gpuspy check run.db --baseline main.db --max-peak +5%", "at most 5 % above another run"},
        {"gpuspy check run.db --junit check.xml", "limits from " FOUND ", results for a CI server"}),
};

/* Does the last limit replace another one from number `from` on? */
static bool is_limited_twice(const struct check_limits *l, size_t from)
{
    const struct check_limit_entry *last = &l->entries[l->n - 1];

    for (const struct check_limit_entry *e = l->entries + from; e < last; e++)
        if (e->gate == last->gate && check_is_same_scope(e->limit.scope, last->limit.scope)) return true;
    return false;
}

/* `text` NULL: the option is a flag. `from`: the number of the first limit of the command line. */
static int add_limit(struct check_limits *l, size_t from, int gate, const char *text)
{
    struct check_limit_entry e = {.gate = (enum check_gate_id)gate, .device = -1};
    char why[LIMIT_WHY];

    if (text && !check_limit_parse(&check_gates[gate], text, &e.limit, why)) {
        return complain_with(e.limit.unreadable ? EXIT_INPUT : EXIT_USAGE, "check: --%s: '%s' %s",
                             check_gates[gate].option, text, why);
    }
    check_limits_add(l, &e);
    if (!is_limited_twice(l, from)) return EXIT_YES;
    const char *scope = l->entries[l->n - 1].limit.scope;
    return complain_with(EXIT_USAGE, "check: --%s%s%s is given twice; give it once", check_gates[gate].option,
                         scope ? " scope:" : "", scope ? scope : "");
}

/* The limit that begins at item *at, which advances to the next limit. In a scope's name commas do not separate limits.
 */
static const char *next_limit(struct check_limits *l, const struct option_list *list, size_t *at)
{
    const char *text = list->item[*at].text;
    int length = list->item[(*at)++].length;

    while (*at < list->n && strncmp(text, "scope:", 6) == 0 && !memchr(text, '=', (size_t)length) &&
           list->item[*at].text == text + length + 1)
        length += 1 + list->item[(*at)++].length;
    return arena_printf(&l->arena, "%.*s", length, text);
}

static int from_command_line(const struct settings *s, struct check_limits *l)
{
    const size_t from = l->n;
    int code = EXIT_YES;

    for (int i = 0; i < GATES_N && code == EXIT_YES; i++) {
        if (s->flag[i] || s->text[i]) code = add_limit(l, from, i, s->text[i]);
        for (size_t k = 0; k < s->list[i].n && code == EXIT_YES;)
            code = add_limit(l, from, i, next_limit(l, &s->list[i], &k));
    }
    return code;
}

/* Reads a whole small file; NULL after a line on stderr. */
static char *read_contents(const char *path, size_t *size)
{
    enum { MOST = 1 << 20 };
    char *text = arena_realloc(NULL, MOST + 1, 1);
    FILE *f = fopen(path, "re");

    *size = f ? fread(text, 1, MOST + 1, f) : 0;
    bool ok = f && !ferror(f) && *size <= MOST;
    if (!ok)
        complain("check: cannot read the limits file '%s': %s", path,
                 *size > MOST ? "it is too large" : strerror(errno ? errno : EIO));
    if (f) fclose(f);
    if (!ok) free(text);
    return ok ? text : NULL;
}

static int from_file(const struct settings *s, struct check_limits *l)
{
    const char *path = s->config ? s->config : FOUND;
    char error[1024];
    size_t size;
    FILE *opened = s->config || s->no_config ? NULL : fopen(path, "re");

    if (opened)
        fclose(opened);
    else if (!s->config)
        return EXIT_YES;
    char *text = read_contents(path, &size);
    if (!text) return EXIT_INPUT;
    bool ok = check_limits_read(l, text, size, path, error, sizeof error);
    if (!ok) complain("check: %s", error);
    free(text);
    return ok ? EXIT_YES : l->unreadable ? EXIT_INPUT : EXIT_USAGE;
}

static bool relative_without_baseline(const struct settings *s, const struct check_limits *l)
{
    for (size_t i = 0; i < l->n && !s->baseline; i++) {
        if (l->entries[i].limit.relative) {
            return complain_with(
                true, "check: --%s is relative; add --baseline=DATABASE, the recording that it is relative to",
                check_gates[l->entries[i].gate].option);
        }
    }
    return false;
}

static int limits_of(const struct settings *s, struct check_limits *l)
{
    if (s->config && s->no_config) return complain_with(EXIT_USAGE, "check: give --config or --no-config, not both");
    int code = from_file(s, l);

    if (code != EXIT_YES) return code;
    code = from_command_line(s, l);
    if (code != EXIT_YES) return code;
    if (relative_without_baseline(s, l)) return EXIT_USAGE;
    if (!l->n && s->config)
        return complain_with(EXIT_USAGE, "check: '%s' has no limits; add lines such as max-peak = 10GiB", s->config);
    if (!l->n) {
        return complain_with(EXIT_USAGE, "check: no limits; give one, such as --max-peak 10GiB, or write them to %s",
                             FOUND);
    }
    return EXIT_YES;
}

static bool write_junit(const struct settings *s, struct check *c)
{
    struct output o;

    if (!s->junit) return true;
    if (!output_open(&o, "check", s->junit)) return false;
    check_view_junit(c, o.file);
    return output_keep(&o, "check");
}

static bool on_github(void)
{
    const char *actions = getenv("GITHUB_ACTIONS");

    return actions && strcmp(actions, "true") == 0;
}

/* Appends, because all steps of a GitHub job share the file. */
static void write_summary(struct check *c)
{
    const char *path = getenv("GITHUB_STEP_SUMMARY");
    FILE *f = path && *path && on_github() ? fopen(path, "ae") : NULL;

    if (f) {
        check_view_summary(c, f);
        if (fclose(f) != 0) complain("check: cannot write '%s': %s; the summary is incomplete", path, strerror(errno));
    }
}

static bool print_check(const struct settings *s, struct check *c)
{
    bool github = s->github || on_github();

    if (s->json)
        check_view_json(c, stdout);
    else
        check_view_text(c, stdout, s->all);
    if (github) /* GitHub reads annotations from both streams */
        check_view_github(c, s->json ? stderr : stdout);
    write_summary(c);
    return write_junit(s, c);
}

static int run_check(const struct settings *s, const struct check_request *w)
{
    struct check c;
    char error[1024] = "";
    bool nothing;
    int code = EXIT_INPUT;

    if (!check_run(w, &c, &nothing, error, sizeof error)) {
        complain("check: %s", error);
    } else if (nothing) {
        complain("check: no limit applies to '%s'; check the sections of the limits file", w->paths[0]);
        code = EXIT_USAGE;
    } else {
        code = !print_check(s, &c) ? EXIT_INPUT : c.failed ? EXIT_NO : EXIT_YES;
    }
    check_free(&c);
    return code;
}

int command_check(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    struct check_limits limits = {0};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands == 0)
        return complain_with(EXIT_USAGE, "check: no recording given; type: gpuspy check run.db --max-peak 10GiB");
    int code = limits_of(&s, &limits);
    struct check_request wish = {.paths = (const char *const *)argv,
                                 .n = (size_t)operands,
                                 .limits = &limits,
                                 .alone = s.alone,
                                 .allow_incomplete = s.allow_incomplete || limits.allow_incomplete,
                                 .per_device = s.per && strcmp(s.per, "device") == 0,
                                 .baseline = s.baseline,
                                 .columns = terminal_of(stdout).width - CHECK_LINE_START};
    if (code == EXIT_YES && !input_check_paths("check", argv, (size_t)operands)) code = EXIT_INPUT;
    if (code == EXIT_YES) code = run_check(&s, &wish);
    check_limits_free(&limits);
    return code;
}
