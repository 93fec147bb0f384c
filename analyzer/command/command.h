/* What a command is. To add one:
 *   1. a row in commands.def;
 *   2. cmd_NAME.c with `int cmd_NAME(int argc, char **argv)` and `const struct command_text
 *      text_NAME`: it parses, asks the model, hands to a view, and is short;
 *   3. nothing else: help, man page, completion and the tests over all commands read the table.
 */
#ifndef GPUSPY_COMMAND_H
#define GPUSPY_COMMAND_H

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/command/options.h"

/* Scripts depend on these. `run` ends as the recorded program did instead. */
enum exit_code {
    EXIT_YES = 0,
    EXIT_NO = 1,    /* it worked, and the answer is no: a check failed */
    EXIT_USAGE = 2, /* wrong words on the command line */
    EXIT_INPUT = 3, /* a file that cannot be read, or output that cannot be written */
};

/* Under which heading `gpuspy --help` lists it. */
#define COMMAND_GROUPS(X)                                                                          \
    X(RECORD, "Record") X(READ, "Read") X(COMPARE, "Compare and check") X(SHARE, "Share and query") \
        X(PLAN, "Plan") X(HELP, "Help")
#define COMMAND_GROUP(symbol, heading) GROUP_##symbol,
enum command_group { COMMAND_GROUPS(COMMAND_GROUP) COMMAND_GROUPS_N };
#undef COMMAND_GROUP

/* What the operands are: for completion. */
enum operand_kind { OPERAND_NONE, OPERAND_FILE, OPERAND_PROGRAM, OPERAND_COMMAND };

struct example {
    const char *line;    /* what to type */
    const char *meaning; /* what it does; NULL ends the list where line is NULL too */
};

struct command_text {
    const struct option_row *options; /* ends with a row without name */
    const char *about;                /* paragraphs separated by blank lines; wrapped when shown */
    const struct example *examples;   /* ends with {0} */
    bool program_follows;             /* options end at the first operand */
};

struct command {
    const char *name;
    enum command_group group;
    const char *synopsis; /* what follows the name */
    const char *summary;  /* one line */
    enum operand_kind operands;
    const struct command_text *text;
    int (*run)(int argc, char **argv);
};

#define COMMAND(name, group, operands, synopsis, summary)                                          \
    int cmd_##name(int argc, char **argv);                                                         \
    extern const struct command_text text_##name;                                                  \
    extern const struct command command_##name;
#include "analyzer/command/commands.def"
#undef COMMAND

extern const struct command *const commands[]; /* ends with NULL */
const struct command *command_find(const char *name); /* NULL: none */
/* Says on stderr that there is no such command, with the nearest one. EXIT_USAGE. */
int command_unknown(const char *name);

/* Help texts (cmd_help.c). */
void help_overview(FILE *stream);                                  /* `gpuspy --help` */
void help_command(const struct command *c, FILE *stream); /* `gpuspy NAME --help` */
/* "-o, --output=FILE" */
void help_option_name(const struct option_row *row, char *out, size_t size);
/* What it does, with the words that it takes. */
void help_option_text(const struct option_row *row, char *out, size_t size);
/* "a|b|" with blanks instead, as shells want them. */
void help_words(FILE *stream, const char *words);
/* Man pages, in roff: of gpuspy, or of one command. */
void help_man(FILE *stream);
void help_man_command(const struct command *c, FILE *stream);
void help_completion_bash(FILE *stream);
void help_completion_zsh(FILE *stream);
void help_completion_fish(FILE *stream);

#endif
