#include "analyzer/command/commands.h"

#include "analyzer/command/help.h"

#define COMMAND(name, group, operands, synopsis, summary)                                       \
    static const struct command command_##name = {#name,      GROUP_##group,      synopsis,     \
                                                  summary,    OPERAND_##operands, &text_##name, \
                                                  cmd_##name, help_command,       commands};
#include "analyzer/command/commands.def"
#undef COMMAND

const struct command *const commands[] = {
#define COMMAND(name, group, operands, synopsis, summary) &command_##name,
#include "analyzer/command/commands.def"
#undef COMMAND
    NULL,
};
