/* The table of commands. To add one:
 *   1. a row in commands.def;
 *   2. cmd_NAME.c with `command_NAME` and `command_text_NAME`: it parses, asks the model, calls a view, and is short;
 *   3. nothing else: help, man page, completion and the tests over all commands read the table. */
#pragma once

#include "analyzer/base/command.h"

#define COMMAND(name, group, operands, synopsis, summary)                  \
    int command_##name(const struct command *self, int argc, char **argv); \
    extern const struct command_text command_text_##name;
#include "analyzer/command/commands.def"

extern const struct command *const commands[]; /* ends with NULL */
