/* A command, for the parser of its options and for help. analyzer/command/commands.def lists all commands. */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include "analyzer/base/exit_code.h"
#include "analyzer/base/options.h"

/* The heading under which `gpuspy --help` lists it. */
/* clang-format off */
#define COMMAND_GROUPS(X)                                                                          \
    X(RECORD, "Record") X(READ, "Read") X(COMPARE, "Compare and check") X(SHARE, "Share and query") \
        X(PLAN, "Plan") X(HELP, "Help")
/* clang-format on */
#define COMMAND_GROUP(symbol, heading) GROUP_##symbol,
enum command_group { COMMAND_GROUPS(COMMAND_GROUP) COMMAND_GROUPS_N };
#undef COMMAND_GROUP

enum command_operand_kind { OPERAND_NONE, OPERAND_FILE, OPERAND_PROGRAM, OPERAND_COMMAND, OPERAND_INSTALL };

struct command_example {
    const char *line;    /* what to type */
    const char *meaning; /* what it does; the list ends where this and line are NULL */
};

/* The lists of a struct command_text, with their ends. */
/* clang-format off */
#define COMMAND_EXAMPLES(...) (const struct command_example[]){__VA_ARGS__, {0}}
#define OPTION_ROWS(...) (const struct option_row[]){__VA_ARGS__, {0}}
/* clang-format on */

struct command_text {
    const struct option_row *options;       /* ends with a row without name */
    const char *about;                      /* paragraphs separated by blank lines; wrapped when shown */
    const struct command_example *examples; /* ends with {0} */
    const struct command_example *synonyms; /* or NULL; line: "a|b", other tools' options; meaning: what to type */
    bool program_follows;                   /* options end at the first operand */
};

struct command {
    const char *name;
    enum command_group group;
    const char *synopsis; /* what follows the name */
    const char *summary;  /* one line */
    enum command_operand_kind operands;
    const struct command_text *text;
    int (*run)(const struct command *self, int argc, char **argv);
    void (*print_help)(const struct command *self, FILE *stream); /* of --help */
    const struct command *const *all;                             /* the table of all commands, ends with NULL */
};
