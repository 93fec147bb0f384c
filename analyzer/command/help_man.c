/* The man pages, from the tables: one of gpuspy, and one per command. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/command/help.h"

/* Writes text as roff: escapes backslashes and dashes, and control characters at the start of a line. */
static void put_roff(FILE *f, const char *text)
{
    bool start = true;

    for (; *text; text++) {
        if (start && (*text == '.' || *text == '\'')) fputs("\\&", f);
        start = *text == '\n';
        if (*text == '\\')
            fputs("\\e", f);
        else if (*text == '-')
            fputs("\\-", f);
        else
            fputc(*text, f);
    }
}

static void put_paragraphs(FILE *f, const char *text)
{
    for (;;) {
        const char *end = strstr(text, "\n\n");
        char buffer[4096];

        snprintf(buffer, sizeof buffer, "%.*s", end ? (int)(end - text) : (int)strlen(text), text);
        fputs(".PP\n", f);
        put_roff(f, buffer);
        fputc('\n', f);
        if (!end) return;
        text = end + 2;
    }
}

static void put_term(FILE *f, const char *name, const char *meaning)
{
    fputs(".TP\n\\fB", f);
    put_roff(f, name);
    fputs("\\fR\n", f);
    put_roff(f, meaning);
    fputc('\n', f);
}

static void put_options(FILE *f, const struct command *c)
{
    fputs(".SH OPTIONS\n", f);
    for (const struct option_row *r = c->text->options; r->name; r++) {
        char name[128], text[2048];
        if (r->kind == OPTION_HEADING) {
            fputs(".SS ", f);
            put_roff(f, r->help);
            fputc('\n', f);
            continue;
        }
        command_help_option_name(r, name, sizeof name);
        command_help_option_text(r, text, sizeof text);
        put_term(f, name, text);
    }
    put_term(f, "-h, --help", "print a short form of this");
}

/* Of a command, or of all (`c` is NULL). */
static void exit_status(FILE *f, const struct command *c)
{
    const bool runs = c && strcmp(c->name, "run") == 0;

    fputs(".SH \"EXIT STATUS\"\n", f);
    if (!runs) {
        put_term(f, "0", "Success.");
        put_term(f, "1",
                 c && strstr(c->text->about, "exit status is 1")
                     ? "The answer is no: see the description above."
                     : "The answer is no: a check failed, a model or run does not fit, or the recording lacks the "
                       "process, rank or GPU that an option names.");
        put_term(f, "2", "Usage error.");
        put_term(f, "3", "A file cannot be read as a recording, or the output cannot be written.");
    }
    if (c && !runs) return;
    fputs(
        ".PP\n\\fBgpuspy run\\fR ends like the program that it ran: with its exit status, or by the same signal. It "
        "ends with 127 if the program does not exist, 126 if it cannot be executed, 125 if gpuspy cannot start it, 124 "
        "after it stopped a dry run in a loop, and 2 after a usage error.\n",
        f);
}

/* Names all pages except the one that is being written. */
static void see_also(FILE *f, const struct command *const *all, const struct command *self)
{
    const char *comma = "";

    fputs(".SH \"SEE ALSO\"\n", f);
    if (self) {
        fputs(".BR gpuspy (1)", f);
        comma = ",\n";
    }
    for (const struct command *const *c = all; *c; c++) {
        if (*c == self) continue;
        fprintf(f, "%s.BR gpuspy\\-%s (1)", comma, (*c)->name);
        comma = ",\n";
    }
    fputc('\n', f);
}

void command_help_man_command(const struct command *c, FILE *f)
{
    fputs(".TH \"GPUSPY\\-", f);
    for (const char *p = c->name; *p; p++) fputc(toupper((unsigned char)*p), f);
    fputs("\" 1 \"\" \"gpuspy " GPUSPY_VERSION "\" \"User Commands\"\n", f);
    fprintf(f, ".SH NAME\ngpuspy\\-%s \\- ", c->name);
    put_roff(f, c->summary);
    fprintf(f, "\n.SH SYNOPSIS\n.B gpuspy %s\n", c->name);
    put_roff(f, c->synopsis);
    fputs("\n.SH DESCRIPTION\n", f);
    put_paragraphs(f, c->text->about);
    put_options(f, c);
    fputs(".SH EXAMPLES\n", f);
    for (const struct command_example *e = c->text->examples; e->line; e++) put_term(f, e->line, e->meaning);
    exit_status(f, c);
    see_also(f, c->all, c);
}

static void put_environment(FILE *f)
{
    static const char *const rows[][2] = {
#define ENVIRONMENT(name, meaning) {name, meaning},
#include "analyzer/base/environment.def"
    };

    fputs(".SH ENVIRONMENT\n", f);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) put_term(f, rows[i][0], rows[i][1]);
}

void command_help_man(const struct command *const *all, FILE *f)
{
    fputs(".TH GPUSPY 1 \"\" \"gpuspy " GPUSPY_VERSION "\" \"User Commands\"\n"
          ".SH NAME\ngpuspy \\- record a program's GPU memory, copies and waits, and explain them\n"
          ".SH SYNOPSIS\n",
          f);
    for (const struct command *const *c = all; *c; c++) {
        fprintf(f, ".B gpuspy %s\n", (*c)->name);
        put_roff(f, (*c)->synopsis);
        fputs("\n.br\n", f);
    }
    fputs(".B gpuspy \\-\\-version\n.SH DESCRIPTION\ngpuspy records every CUDA allocation, copy and wait of "
          "a program together with the Python and native call stack, without changes to the program, into an SQLite "
          "database, and analyses it afterwards.\n.PP\nThe recorder is a library, libgpuspy.so; \\fBgpuspy run\\fR "
          "loads it into a program, and so does LD_PRELOAD=libgpuspy.so in its environment.\n.PP\nEach command has its "
          "own man page, and \\-\\-help.\n.SH COMMANDS\n",
          f);
    for (const struct command *const *c = all; *c; c++) {
        char name[64], summary[512];
        snprintf(name, sizeof name, "gpuspy %s", (*c)->name);
        snprintf(summary, sizeof summary, "%s: see gpuspy-%s(1)", (*c)->summary, (*c)->name);
        put_term(f, name, summary);
    }
    exit_status(f, NULL);
    put_environment(f);
    fputs(".SH FILES\n", f);
    put_term(f, "run.db",
             "The recording: an SQLite database. Each further process of the run writes its own beside it.");
    put_term(
        f, "run.db.spool",
        "Names the shared memory with events that are not in the database yet. It remains if the program is killed; "
        "then gpuspy report completes the database from it.");
    fputs(".SH EXAMPLES\n", f);
    put_term(f, "gpuspy run -- python train.py", "record a training run");
    put_term(f, "gpuspy report run.db", "explain what happened");
    see_also(f, all, NULL);
}
