#include <string.h>
#include "analyzer/command/commands.h"
#include "analyzer/command/help.h"
#include "analyzer/base/term.h"

struct settings {
    bool man;
    const char *completion;
};

const struct command_text command_text_help = {
    .options =
        OPTION_ROWS(OPTION_ROW(FLAG, "man", 0, man, NULL, "print the man page of gpuspy or of a command in roff"),
                    {"completion", 0, OPTION_CHOICE, offsetof(struct settings, completion), "SHELL", "bash|zsh|fish", 0,
                     0, "print the completion script for a shell"}),
    .about = "Explains one command, or lists all of them.",
    .examples =
        COMMAND_EXAMPLES({"gpuspy help report", "options and examples of report"},
                         {"source <(gpuspy help --completion=bash)", "completion in this shell"},
                         {"gpuspy help --man report | man -l -", "the man page of a command, without installing it"}),
};

static void print_completion(const struct command *const *all, const char *shell)
{
    if (strcmp(shell, "zsh") == 0)
        command_help_completion_zsh(all, stdout);
    else if (strcmp(shell, "fish") == 0)
        command_help_completion_fish(all, stdout);
    else
        command_help_completion_bash(all, stdout);
}

int command_help(const struct command *self, int argc, char **argv)
{
    struct settings s = {0};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands + (s.completion != NULL) > 1 || (s.man && s.completion))
        return complain_with(EXIT_USAGE, "help: give one command, or one of --man and --completion");
    const struct command *c = operands ? command_find(self->all, argv[0]) : NULL;
    if (operands && !c) return command_unknown(argv[0], NULL);
    if (s.completion)
        print_completion(self->all, s.completion);
    else if (s.man && c)
        command_help_man_command(c, stdout);
    else if (s.man)
        command_help_man(self->all, stdout);
    else if (c)
        command_print_help(c, stdout);
    else
        command_help_overview(self->all, stdout);
    return EXIT_YES;
}
