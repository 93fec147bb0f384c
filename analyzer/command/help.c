/* Help: the overview and the page of a command. help_man.c, help_bash.c and help_shells.c write the man pages and the
 * completions. All of them read the rows of the commands. */
#include "analyzer/command/help.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/options.h"
#include "analyzer/base/program.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"
#include "analyzer/base/words.h"

#define HELP_WIDTH 80
#define WORDS_MANY 30 /* longer lists of words are shortened */
#define WORDS_SHOWN 8
#define HELP_COLUMN 30 /* column of an option's text */

/* Prints `text` wrapped between the columns `indent` and HELP_WIDTH; the cursor is at column `at`. A newline in the
 * text starts a line. */
static void wrap_help(FILE *f, const char *text, int indent, int at)
{
    while (*text) {
        size_t length = text_word_length(text);
        if (at > indent && at + 1 + (int)length > HELP_WIDTH) {
            fputc('\n', f);
            at = 0;
        }
        if (at < indent)
            fprintf(f, "%*s", indent - at, "");
        else if (at > indent)
            fputc(' ', f);
        fprintf(f, "%.*s", (int)length, text);
        at = (at < indent ? indent : at > indent ? at + 1 : at) + (int)length;
        text += length;
        for (; *text == ' ' || *text == '\n'; text++) {
            if (*text == '\n') {
                fputc('\n', f);
                at = 0;
            }
        }
    }
    fputc('\n', f);
}

bool command_help_is_file(const struct option_row *row)
{
    return row->kind == OPTION_FILE || row->kind == OPTION_FILE_OR_ALONE ||
           (row->argument && text_ends_with(row->argument, "FILE"));
}

void command_help_words(FILE *stream, const char *words)
{
    for (; *words; words++)
        if (*words != '|' || words[1]) fputc(*words == '|' ? ' ' : *words, stream);
}

void command_help_option_name(const struct option_row *row, char *out, size_t size)
{
    char letter[8] = "";

    if (row->letter) snprintf(letter, sizeof letter, "-%c, ", row->letter);
    bool alone = options_is_optional(row);
    snprintf(out, size, "%s--%s%s%s%s%s", letter, row->name, alone ? "[" : "", row->argument ? "=" : "",
             row->argument ? row->argument : "", alone ? "]" : "");
}

void command_help_option_text(const struct option_row *row, char *out, size_t size)
{
    char known[1536] = "";

    char some[WORDS_SHOWN * 32] = "";
    size_t n = 0, shown = 0;

    if (!row->words) {
        snprintf(out, size, "%s", row->help);
        return;
    }
    for (const char *p = row->words; *p; p++) n += *p == '|' || !p[1];
    /* Of hundreds of words, names only some; completion has all of them. */
    if (row->kind == OPTION_TEXT && n > WORDS_MANY) {
        for (const char *p = row->words; *p && shown < WORDS_SHOWN; p++)
            if ((known[p - row->words] = *p) == '|') shown++;
        options_list(known, some, sizeof some);
        snprintf(out, size, "%s; one of %s and %zu more", row->help, some, n - shown);
        return;
    }
    options_list(row->words, known, sizeof known);
    snprintf(out, size, n > 1 ? "%s; one of %s" : "%s; only %s so far", row->help, known);
}

static void option_line(FILE *f, const char *name, bool has_letter, const char *help)
{
    int at = fprintf(f, "  %s%s", has_letter ? "" : "    ", name);

    if (at + 2 > HELP_COLUMN) {
        fputc('\n', f);
        at = 0;
    }
    wrap_help(f, help, HELP_COLUMN, at);
}

/* Prints the names of the options below a heading as one paragraph; returns the last of them. */
static const struct option_row *print_names(FILE *f, const struct option_row *heading)
{
    char text[2048];
    int n = snprintf(text, sizeof text, "%s:", heading->help);
    const struct option_row *r = heading;

    for (; r[1].name && r[1].kind != OPTION_HEADING; r++)
        n += snprintf(text + n, sizeof text - (size_t)n, " --%s", r[1].name);
    fputs("  ", f);
    wrap_help(f, text, 6, 2);
    return r;
}

void command_print_help(const struct command *c, FILE *f)
{
    fprintf(f, "Usage: gpuspy %s %s\n\n", c->name, c->synopsis);
    wrap_help(f, c->text->about, 0, 0);
    fputs("\nOptions:\n", f);
    for (const struct option_row *r = c->text->options; r->name; r++) {
        char name[128], text[2048];
        if (r->kind == OPTION_HEADING && r->min > 0) {
            r = print_names(f, r);
            continue;
        }
        if (r->kind == OPTION_HEADING) {
            fprintf(f, "%s %s:\n", r == c->text->options ? "" : "\n", r->help);
            continue;
        }
        command_help_option_name(r, name, sizeof name);
        command_help_option_text(r, text, sizeof text);
        option_line(f, name, r->letter != 0, text);
    }
    option_line(f, "-h, --help", true, "print this");
    fputs("\nExamples:\n", f);
    for (const struct command_example *e = c->text->examples; e->line; e++)
        fprintf(f, "  %s\n      %s\n", e->line, e->meaning);
}

void command_help_overview(const struct command *const *all, FILE *f)
{
    static const char *const headings[] = {COMMAND_GROUPS(WORDS_FIRST)};

    fputs("Usage: gpuspy COMMAND [OPTION...]\n\nRecords a program's GPU memory, copies and waits without changing the "
          "program,\nand explains afterwards which lines of code caused them.\n\nCommands:\n",
          f);
    for (const struct command *const *c = all; *c; c++) {
        if (c == all || c[-1]->group != (*c)->group) fprintf(f, " %s:\n", headings[(*c)->group]);
        fprintf(f, "  %-10s %s\n", (*c)->name, (*c)->summary);
    }
    fputs(
        "\nStart with:\n  gpuspy run -- python train.py    record; the same by hand:\n                                 "
        "  LD_PRELOAD=libgpuspy.so python train.py\n  gpuspy report run.db             read what happened\n\n'gpuspy "
        "COMMAND --help' explains a command, 'gpuspy -V' prints the version.\nExit status: 0 success, 1 the "
        "answer is no, 2 usage error, 3 bad input; 'run'\nhas the exit status of the program that it ran.\n",
        f);
}

const struct command *command_find(const struct command *const *all, const char *name)
{
    for (const struct command *const *c = all; *c; c++)
        if (strcmp((*c)->name, name) == 0) return *c;
    return NULL;
}

/* `gpuspy python train.py` and `gpuspy record python train.py`, but also `gpuspy install`. */
static const char *find_program_in(const char *name, const char *next)
{
    char path[PATH_MAX];

    return program_find(name, path, sizeof path) ? name : next && program_find(next, path, sizeof path) ? next : NULL;
}

/* What people type, and the command that does it. */
static const struct command_example commands_meant[] = {
    {"show|summary|summarize|view|analyze|analyse|analysis|info|print|explain|why|oom|memory|mem|peak|inspect|read",
     "report"},
    {"html|page|web|open|browse|viz|visualize|plot|memory_viz", "report --html"},
    {"record|trace|profile|launch|exec|start|memray", "run --"},
    {"watch|monitor|live|smi|nvidia-smi|ps|gpustat|nvtop|list|ls", "top"},
    {"compare|cmp|delta|between", "diff"},
    {"plan|predict|calc|calculate|calculator|fit|fits|requirements|vram|need|needs", "estimate"},
    {"replay|simulate|what-if|what_if|would", "whatif"},
    {"query|sqlite|sqlite3|select", "sql"},
    {"convert|load", "import"},
    {"dump|save|snapshot|csv|pprof|perfetto|chrome", "export"},
    {"assert|limit|limits|budget|ci|verify", "check"},
    {"leak|growth|grows", "leaks"},
    {"graph|chart|curve|history", "timeline"},
    {"lines|top-lines|files|functions|modules|syncs|waits|copies", "table"},
    {"flamegraph|flame-graph|icicle", "flame"},
    {"gpus|devices", "estimate --gpus"},
    {"models", "estimate --models"},
    {"man|completion|completions|usage", "help"},
    {"setup|diagnose", "doctor"},
    {0},
};

int command_unknown(const char *name, const char *next)
{
    static const char words[] =
#define COMMAND(name, group, operands, synopsis, summary) #name "|"
#include "analyzer/command/commands.def"
        "--help|--version";
    /* `gpuspy hlep top` */
    const char *program = find_program_in(name, next && options_is_word(next, words) ? NULL : next);
    char near[32];
    const struct command_example *meant = commands_meant;

    while (meant->line && !options_is_word(name, meant->line)) meant++;
    if (meant->line && (!program || (program == name && next && *next)))
        complain("unknown command '%s'; did you mean 'gpuspy %s'?", name, meant->meaning);
    else if (program)
        complain("unknown command '%s'; 'gpuspy --help' lists the commands; to record the program '%s': gpuspy run "
                 "-- %s ARGUMENT...",
                 name, program, program);
    else if (options_nearest(name, words, near, sizeof near))
        complain("unknown command '%s'; did you mean 'gpuspy %s'?", name, near);
    else if (name[0] == '-')
        complain("unknown option '%s' before the command; write options after it: gpuspy %s %s", name,
                 next && options_is_word(next, words) ? next : "COMMAND", name);
    else
        complain("unknown command '%s'; 'gpuspy --help' lists them", name);
    return EXIT_USAGE;
}
