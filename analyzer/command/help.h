/* Help, man pages and completion, from the rows of the commands. `all` ends with NULL. */
#pragma once

#include "analyzer/base/command.h"

const struct command *command_find(const struct command *const *all, const char *name); /* NULL: none */
/* Reports an unknown command on stderr, with the most similar one, or how to record the program that it or `next`, the
 * word after it (NULL: none), names. Returns EXIT_USAGE. */
int command_unknown(const char *name, const char *next);

void command_help_overview(const struct command *const *all, FILE *stream); /* `gpuspy --help` */
void command_print_help(const struct command *c, FILE *stream);             /* `gpuspy NAME --help` */
void command_help_option_name(const struct option_row *row, char *out, size_t size);
/* What the option does, and the words that it accepts. */
void command_help_option_text(const struct option_row *row, char *out, size_t size);
/* Prints "a|b|" with blanks instead of bars, as shells need it. */
void command_help_words(FILE *stream, const char *words);
/* Does a value of the option name a file, perhaps beside `words`? */
bool command_help_is_file(const struct option_row *row);
/* The man page, in roff, of gpuspy or of one command. */
void command_help_man(const struct command *const *all, FILE *stream);
void command_help_man_command(const struct command *c, FILE *stream);
void command_help_completion_bash(const struct command *const *all, FILE *stream);
void command_help_completion_zsh(const struct command *const *all, FILE *stream);
void command_help_completion_fish(const struct command *const *all, FILE *stream);
