#include "analyzer/command/command.h"

#include <string.h>
#include "analyzer/base/term.h"

#define COMMAND(name, group, operands, synopsis, summary)                             \
    const struct command command_##name = {#name,   GROUP_##group,      synopsis,     \
                                           summary, OPERAND_##operands, &text_##name, \
                                           cmd_##name};
#include "analyzer/command/commands.def"
#undef COMMAND

const struct command *const commands[] = {
#define COMMAND(name, group, operands, synopsis, summary) &command_##name,
#include "analyzer/command/commands.def"
#undef COMMAND
    NULL,
};

const struct command *command_find(const char *name)
{
    for (const struct command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

int command_unknown(const char *name)
{
    static const char words[] =
#define COMMAND(name, group, operands, synopsis, summary) #name "|"
#include "analyzer/command/commands.def"
#undef COMMAND
        "";
    char near[32];

    if (options_nearest(name, words, near, sizeof near))
        complain("there is no command '%s'; did you mean 'gpuspy %s'?", name, near);
    else
        complain("there is no command '%s'; 'gpuspy --help' lists them", name);
    return EXIT_USAGE;
}
