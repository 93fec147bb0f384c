/* The completion for bash, from the tables. */
#include <stdio.h>
#include "analyzer/command/help.h"

static bool takes_value(const struct option_row *r)
{
    return r->kind != OPTION_FLAG && r->kind != OPTION_HEADING && !options_is_optional(r);
}

static void bash_option(FILE *f, const struct command *c, const struct option_row *r)
{
    fprintf(f, "%s:--%s", c->name, r->name);
    if (r->letter) fprintf(f, "|%s:-%c", c->name, r->letter);
}

/* Moves `at` over the options before the program that the command runs. */
static void bash_program(FILE *f, const struct command *c)
{
    const char *name = c->name;

    if (c->operands != OPERAND_PROGRAM) return;
    for (const struct option_row *r = c->text->options; r->name; r++) {
        if (!takes_value(r)) continue;
        fputs("            ", f);
        bash_option(f, c, r);
        fputs(") (( at += 2 )); [[ ${COMP_WORDS[at-1]} == '=' ]] && (( at++ )) ;;\n", f);
    }
    fprintf(f,
            "            %s:--) (( at++ )); break ;;\n            %s:-*) (( at++ )) ;;\n            %s:*) break ;;\n",
            name, name, name);
}

/* "run:--output|run:-o) COMMANDS ;;" for every option that takes a value. */
static void bash_values(FILE *f, const struct command *c)
{
    for (const struct option_row *r = c->text->options; r->name; r++) {
        if (!takes_value(r)) continue;
        fputs("        ", f);
        bash_option(f, c, r);
        fputs(")\n            ", f);
        /* completes the word after the last comma */
        if (r->words && (r->kind == OPTION_SET || r->kind == OPTION_LIST)) {
            fputs("[[ $cur == *,* ]] && before=${cur%,*},\n            "
                  "mapfile -t COMPREPLY < <(compgen -P \"$before\" -W '",
                  f);
            command_help_words(f, r->words);
            fputs("' -- \"${cur##*,}\")\n            compopt -o nospace", f);
        } else if (r->words) {
            fputs(command_help_is_file(r) ? "_gpuspy_files -W '" : "_gpuspy_words '", f);
            command_help_words(f, r->words);
            fputs("'", f);
        } else if (command_help_is_file(r)) {
            fputs("_gpuspy_files", f);
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
    [OPERAND_INSTALL] = "_gpuspy_words install",
    [OPERAND_FILE] = "_gpuspy_files",
    [OPERAND_PROGRAM] = "_gpuspy_files -c",
    [OPERAND_COMMAND] = "_gpuspy_words \"$commands\"",
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
          "_gpuspy_files()\n{\n"
          "    compopt -o filenames\n"
          "    mapfile -t COMPREPLY < <(compgen \"$@\" -f -- \"$cur\")\n"
          "}\n"
          "_gpuspy_words()\n{\n"
          "    mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n"
          "}\n"
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
          "        _gpuspy_words \"$commands --help --version\"\n"
          "        return\n"
          "    fi\n"
          "    local command=${COMP_WORDS[1]} at=2 complete\n"
          "    while (( at < COMP_CWORD )); do\n"
          "        case $command:${COMP_WORDS[at]} in\n",
          f);
    bash_each(f, all, bash_program);
    /* what follows the program is completed as if it had been typed without gpuspy, if bash-completion is there */
    fputs("            *) at=$COMP_CWORD ;;\n"
          "        esac\n"
          "    done\n"
          "    if (( at < COMP_CWORD )); then\n"
          "        for complete in _comp_command_offset _command_offset; do\n"
          "            declare -F $complete >/dev/null && { $complete $at; return; }\n"
          "        done\n"
          "        _gpuspy_files\n"
          "        return\n"
          "    fi\n"
          "    case $command:$prev in\n",
          f);
    bash_each(f, all, bash_values);
    fputs("    esac\n"
          "    if [[ $cur == -* && $prev != -- ]]; then\n"
          "        case $command in\n",
          f);
    bash_each(f, all, option_names);
    fputs("        esac\n"
          "        _gpuspy_words \"$options\"\n"
          "        [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
          "        return\n"
          "    fi\n"
          "    case $command in\n",
          f);
    bash_each(f, all, bash_operand);
    fputs("    esac\n"
          "}\n"
          "complete -F _gpuspy gpuspy\n",
          f);
}
