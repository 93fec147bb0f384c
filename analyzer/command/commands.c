#include "analyzer/command/commands.h"

#include "analyzer/command/help.h"

#define COMMAND(name, group, operands, synopsis, summary)                                               \
    static const struct command row_##name = {#name,          GROUP_##group,      synopsis,             \
                                              summary,        OPERAND_##operands, &command_text_##name, \
                                              command_##name, command_print_help, commands};
#include "analyzer/command/commands.def"

const struct command *const commands[] = {
#define COMMAND(name, group, operands, synopsis, summary) &row_##name,
#include "analyzer/command/commands.def"
    NULL,
};
