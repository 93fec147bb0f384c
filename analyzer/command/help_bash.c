/* The completion for bash, from the tables. */
#include <stdio.h>
#include <string.h>
#include "analyzer/command/help.h"

/* "run:--output|run:-o) COMMANDS ;;" for every option that takes a value. */
static void bash_values(FILE *f, const struct command *c)
{
    for (const struct option_row *r = c->text->options; r->name; r++) {
        if (r->kind == OPTION_FLAG || r->kind == OPTION_HEADING || options_is_optional(r)) continue;
        fprintf(f, "        %s:--%s", c->name, r->name);
        if (r->letter) fprintf(f, "|%s:-%c", c->name, r->letter);
        fputs(")\n            ", f);
        /* completes the word after the last comma */
        if (r->words && (r->kind == OPTION_SET || r->kind == OPTION_LIST)) {
            fputs("[[ $cur == *,* ]] && before=${cur%,*},\n            "
                  "mapfile -t COMPREPLY < <(compgen -P \"$before\" -W '",
                  f);
            command_help_words(f, r->words);
            fputs("' -- \"${cur##*,}\")\n            compopt -o nospace", f);
        } else if (r->words) {
            fputs("mapfile -t COMPREPLY < <(compgen -W '", f);
            command_help_words(f, r->words);
            fputs("' -- \"$cur\")", f);
        } else if (r->kind == OPTION_FILE) {
            fputs("mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")", f);
        } else {
            fputs("COMPREPLY=()", f);
        }
        fputs("\n            return ;;\n", f);
    }
}

static void option_names(FILE *f, const struct command *c)
{
    fprintf(f, "            %s) options='", c->name);
    for (const struct option_row *r = c->text->options; r->name; r++)
        if (r->kind != OPTION_HEADING)
            fprintf(f, "--%s%s ", r->name, r->kind == OPTION_FLAG || options_is_optional(r) ? "" : "=");
    fputs("--help' ;;\n", f);
}

static const char *const operands[] = {
    [OPERAND_NONE] = "COMPREPLY=()",
    [OPERAND_FILE] = "mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")",
    [OPERAND_PROGRAM] = "mapfile -t COMPREPLY < <(compgen -c -f -- \"$cur\")",
    [OPERAND_COMMAND] = "mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")",
};

static void bash_each(FILE *f, const struct command *const *all, void (*print)(FILE *, const struct command *))
{
    for (const struct command *const *c = all; *c; c++) print(f, *c);
}

static void bash_name(FILE *f, const struct command *c)
{
    fprintf(f, "%s ", c->name);
}

static void bash_operand(FILE *f, const struct command *c)
{
    fprintf(f, "        %s) %s ;;\n", c->name, operands[c->operands]);
}

void command_help_completion_bash(const struct command *const *all, FILE *f)
{
    fputs("# bash completion for gpuspy; made by: gpuspy help --completion=bash\n"
          "_gpuspy()\n{\n"
          "    local commands='",
          f);
    bash_each(f, all, bash_name);
    /* bash splits "--option=value" at = into three words, so the value's option is then two words back. */
    fputs("'\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} options= before=\n"
          "    if [[ $cur == '=' ]]; then\n"
          "        cur=\n"
          "    elif [[ $prev == '=' && $COMP_CWORD -gt 2 ]]; then\n"
          "        prev=${COMP_WORDS[COMP_CWORD-2]}\n"
          "    fi\n"
          "    if [[ $COMP_CWORD -eq 1 ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$commands --help --version\" -- \"$cur\")\n"
          "        return\n"
          "    fi\n"
          "    local command=${COMP_WORDS[1]}\n"
          "    case $command:$prev in\n",
          f);
    bash_each(f, all, bash_values);
    fputs("    esac\n"
          "    if [[ $cur == -* ]]; then\n"
          "        case $command in\n",
          f);
    bash_each(f, all, option_names);
    fputs("        esac\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
          "        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          f);
    bash_each(f, all, bash_operand);
    fputs("    esac\n"
          "}\n"
          "complete -o filenames -F _gpuspy gpuspy\n",
          f);
}
