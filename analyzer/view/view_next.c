/* The end of a report or a search: commands to type next, each with what it shows. */
#include <stdio.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/view/view_text_parts.h"

enum { COMMANDS_BRIEF = 4, COMMANDS_FEW = 2 };

void view_add_command(struct view_commands *c, const char *words, const char *what)
{
    if (c->n == c->most) return;
    snprintf(c->words[c->n], sizeof c->words[0], "%s", words);
    snprintf(c->what[c->n++], sizeof c->what[0], "%s", what);
}

/* fish has no assignment that other shells understand, but it has export. */
void view_print_variable(FILE *out, const char *name, const char *path)
{
    fprintf(out, "%*sexport %s=%s\n", INDENT, "", name, path);
}

void view_refer_to(char *out, size_t size, const char *name, const char *path)
{
    snprintf(out, size, strpbrk(path, "'\"$\\") ? "\"$%s\"" : "$%s", name);
}

/* Explanations have their own column, or are below their commands if the lines are too short for that. A recording
 * whose name leaves no room for them is named once, in a variable of the shell. */
void view_print_commands(const struct draw_text *v, const struct view_commands *c)
{
    enum { GAP = 2 };
    char path[4096], command[sizeof path + sizeof c->words[0] + sizeof "gpuspy  "];
    const char *run = path;
    int longest = 0, widest = 0;

    draw_title(v, TERMINAL_BOLD, "Next");
    text_path_here(path, sizeof path, v->database);
    for (size_t i = 0; i < c->n; i++) {
        int words = (int)strlen(c->words[i]), what = terminal_columns(c->what[i]);
        longest = words > longest ? words : longest;
        widest = what > widest ? what : widest;
    }
    char variable[16];
    view_refer_to(variable, sizeof variable, "run", path);
    const int room = v->term.width - terminal_columns("  gpuspy  ") - longest;
    const int most = room - GAP - widest, name = terminal_columns(path);
    if (c->n > 1 && name > most && ((int)strlen(variable) <= most || name > room)) {
        view_print_variable(v->out, "run", path);
        run = variable;
    }
    const bool beside = terminal_columns(run) <= most;
    for (size_t i = 0; i < c->n; i++) {
        snprintf(command, sizeof command, "gpuspy %s %s", c->words[i], run);
        terminal_print_command(v->out, command, INDENT, v->term.width);
        if (beside)
            fprintf(v->out, "%*s%s%s%s\n", longest - (int)strlen(c->words[i]) + GAP, "",
                    terminal_style(&v->term, TERMINAL_DIM), c->what[i], terminal_style(&v->term, TERMINAL_PLAIN));
        if (beside) continue;
        fprintf(v->out, "\n%s", terminal_style(&v->term, TERMINAL_DIM));
        draw_wrap(v, 3 * INDENT, "", "%s", c->what[i]);
        fputs(terminal_style(&v->term, TERMINAL_PLAIN), v->out);
    }
}

/* Are there tensors, whose allocations can be replayed? */
static bool has_allocator(const struct result_report *r)
{
    for (size_t i = 0; i < r->peaks_n; i++)
        if (r->peaks[i].layer == RUN_SERIES_TENSOR && r->peaks[i].device >= 0 && r->peaks[i].bytes > 0)
            return !r->no_history;
    return false;
}

void view_text_next(const struct draw_text *v, const char *left_out)
{
    const struct result_report *r = v->report;
    struct view_commands c = {.most = v->shorter >= DRAW_ONE_COMMAND    ? 1
                                      : v->shorter >= DRAW_FEW_COMMANDS ? COMMANDS_FEW
                                      : v->brief                        ? COMMANDS_BRIEF
                                                                        : VIEW_COMMANDS};
    char params[64], words[96], more[160];
    bool fatal = false, memory = false, simulated = false;

    for (size_t i = 0; i < r->ooms_n; i++) fatal = fatal || r->ooms[i].fatal;
    for (size_t i = 0; i < r->peaks_n; i++) memory = memory || (r->peaks[i].device >= 0 && r->peaks[i].bytes > 0);
    for (size_t i = 0; i < r->devices_n; i++) simulated = simulated || run_device_is_simulated(r->devices[i].name);
    snprintf(more, sizeof more, "%s%s", *left_out ? "also: " : "all sections", left_out);
    if (v->brief) view_add_command(&c, "report --full", more);
    view_add_command(&c, "report --html", "a page to view and to share");
    if (memory && fatal)
        view_add_command(&c, "tree --what oom", "the calls that held memory when it ran out");
    else if (memory)
        view_add_command(&c, "tree",
                         r->no_history ? "the calls that hold memory" : "the calls that held memory at the peak");
    if (r->growth_n) view_add_command(&c, "leaks", "what was never freed, and what grows");
    if (memory && fatal && has_allocator(r))
        view_add_command(&c, "whatif", "with which setting or on which GPU it would have fit");
    if (r->sync_share >= VIEW_WAITS_WORTH && !simulated) /* its times mean nothing */
        view_add_command(&c, "tree --what waits", "the calls that waited for the GPU");
    view_next_budget(v, params, sizeof params);
    if (*params) {
        snprintf(words, sizeof words, "report %s", params);
        view_add_command(&c, words, "compare with what a model of that size needs");
    }
    view_add_command(&c, "report --json", "for scripts");
    view_print_commands(v, &c);
}
