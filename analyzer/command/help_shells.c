/* The completions for zsh and fish, from the tables; bash's is in help_bash.c. */
#include <stdio.h>
#include <string.h>
#include "analyzer/command/help.h"

/* Shortens an option's help to its first sentence or clause. */
static void brief_help(const char *help, char *out, size_t size)
{
    size_t n = strlen(help);

    for (const char *p = help; *p; p++)
        if ((*p == '.' || *p == ';') && p[1] == ' ') {
            n = (size_t)(p - help);
            break;
        }
    snprintf(out, size, "%.*s", (int)n, help);
}

/* Writes text for single quotes, with a backslash before each character of `special`. */
static void put_shell_quoted(FILE *f, const char *text, const char *special, const char *quote)
{
    for (; *text; text++)
        if (*text == '\'')
            fputs(quote, f);
        else if (strchr(special, *text))
            fprintf(f, "\\%c", *text);
        else
            fputc(*text, f);
}

static void zsh_text(FILE *f, const char *text)
{
    put_shell_quoted(f, text, "[]:\\", "'\\''");
}

/* '(-o --output)'{-o+,--output=}'[text]:FILE:_files' */
static void zsh_option(FILE *f, const struct option_row *r)
{
    char text[512];
    const char *value = r->kind == OPTION_FLAG ? "" : "=";
    bool alone = options_is_optional(r);

    if (r->kind == OPTION_HEADING) return;
    brief_help(r->help, text, sizeof text);
    if (r->letter)
        fprintf(f, " \\\n            '(-%c --%s)'{-%c%s,--%s%s}'[", r->letter, r->name, r->letter, *value ? "+" : "",
                r->name, value);
    else
        fprintf(f, " \\\n            '--%s%s[", r->name, value);
    zsh_text(f, text);
    fputc(']', f);
    if (r->kind != OPTION_FLAG) {
        fputs(alone ? "::" : ":", f);
        zsh_text(f, r->argument ? r->argument : r->name);
        fputc(':', f);
        if (r->words && (r->kind == OPTION_SET || r->kind == OPTION_LIST)) {
            fputs("_values -s , words ", f);
            command_help_words(f, r->words);
        } else if (r->words) {
            fputs(command_help_is_file(r) ? "{ compadd -- " : "(", f);
            command_help_words(f, r->words);
            fputs(command_help_is_file(r) ? "; _files }" : ")", f);
        } else if (command_help_is_file(r)) {
            fputs("_files", f);
        }
    }
    fputc('\'', f);
}

void command_help_completion_zsh(const struct command *const *all, FILE *f)
{
    static const char *const operands[] = {
        [OPERAND_NONE] = "",
        [OPERAND_INSTALL] = "':what:(install)'",
        [OPERAND_FILE] = "'*:file:_files'",
        [OPERAND_PROGRAM] = "'(-)1:program:_command_names -e' '*::arguments:_normal'",
        [OPERAND_COMMAND] = "':command:{ _describe command gpuspy_commands }'",
    };

    fputs("#compdef gpuspy\n"
          "# zsh completion for gpuspy; made by: gpuspy help --completion=zsh\n"
          "_gpuspy()\n{\n"
          /* `commands` is zsh's own, which the completion of other programs needs */
          "    local -a gpuspy_commands\n"
          "    gpuspy_commands=(",
          f);
    for (const struct command *const *c = all; *c; c++) {
        fprintf(f, "\n        '%s:", (*c)->name);
        zsh_text(f, (*c)->summary);
        fputc('\'', f);
    }
    fputs("\n    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe command gpuspy_commands\n"
          "        return\n"
          "    fi\n"
          "    local command=$words[2]\n"
          "    shift words\n"
          "    (( CURRENT-- ))\n"
          "    case $command in\n",
          f);
    for (const struct command *const *c = all; *c; c++) {
        fprintf(f, "    %s)\n        _arguments -s -S%s", (*c)->name,
                (*c)->operands == OPERAND_PROGRAM ? " -A '-*'" : "");
        for (const struct option_row *r = (*c)->text->options; r->name; r++) zsh_option(f, r);
        fprintf(f, " \\\n            '(-h --help)'{-h,--help}'[explain it]' %s ;;\n", operands[(*c)->operands]);
    }
    fputs("    esac\n"
          "}\n"
          "if [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n"
          "    _gpuspy \"$@\"\n"
          "else\n"
          "    compdef _gpuspy gpuspy\n"
          "fi\n",
          f);
}

static void fish_text(FILE *f, const char *text)
{
    put_shell_quoted(f, text, "\\", "\\'");
}

static void fish_option(FILE *f, const struct command *c, const struct option_row *r)
{
    char text[512];
    bool several = r->kind == OPTION_SET || r->kind == OPTION_LIST;

    if (r->kind == OPTION_HEADING) return;
    fprintf(f, "complete -c gpuspy -n '__fish_seen_subcommand_from %s' -l %s", c->name, r->name);
    if (r->letter) fprintf(f, " -s %c", r->letter);
    if (r->words) {
        fputs(command_help_is_file(r) ? " -r -F -a '" : several ? " -x -a '(gpuspy_list " : " -x -a '", f);
        command_help_words(f, r->words);
        fputs(several ? ")'" : "'", f);
    } else if (command_help_is_file(r)) {
        fputs(options_is_optional(r) ? " -F" : " -r -F", f);
    } else if (r->kind != OPTION_FLAG && r->kind != OPTION_COUNT_OR_ALONE) {
        fputs(" -x", f);
    }
    brief_help(r->help, text, sizeof text);
    fputs(" -d '", f);
    fish_text(f, text);
    fputs("'\n", f);
}

/* The options whose value is not the program. */
static void fish_valued(FILE *f, const struct command *c)
{
    for (const struct option_row *r = c->text->options; r->name; r++) {
        if (r->kind == OPTION_FLAG || r->kind == OPTION_HEADING || options_is_optional(r)) continue;
        fprintf(f, " --%s", r->name);
        if (r->letter) fprintf(f, " -%c", r->letter);
    }
    fputs(")'\n", f);
}

void command_help_completion_fish(const struct command *const *all, FILE *f)
{
    static const char *const operands[] = {
        [OPERAND_FILE] = "-F",
        [OPERAND_INSTALL] = "-a install",
        [OPERAND_PROGRAM] = "-x -a '(__fish_complete_subcommand --fcs-skip=2",
        [OPERAND_COMMAND] = "-a '(gpuspy_commands)'",
    };

    fputs("# fish completion for gpuspy; made by: gpuspy help --completion=fish\n"
          "function gpuspy_commands\n",
          f);
    for (const struct command *const *c = all; *c; c++) {
        fprintf(f, "    printf '%%s\\t%%s\\n' %s '", (*c)->name);
        fish_text(f, (*c)->summary);
        fputs("'\n", f);
    }
    fputs("end\n"
          /* For words separated by commas: keeps what is before the last comma. */
          "function gpuspy_list\n"
          "    set -l word (commandline -ct | string replace -r -- '^--[^=]*=' '')\n"
          "    set -l before (string match -r -- '.*,' $word)\n"
          "    for one in $argv\n"
          "        contains -- $one (string split , -- $before); or echo \"$before$one\"\n"
          "    end\n"
          "end\n"
          "complete -c gpuspy -f\n"
          "complete -c gpuspy -n __fish_use_subcommand -a '(gpuspy_commands)'\n"
          "complete -c gpuspy -n __fish_use_subcommand -l version -d 'print the version'\n"
          "complete -c gpuspy -s h -l help -d 'explain it'\n",
          f);
    for (const struct command *const *c = all; *c; c++) {
        for (const struct option_row *r = (*c)->text->options; r->name; r++) fish_option(f, *c, r);
        if (!operands[(*c)->operands]) continue;
        fprintf(f, "complete -c gpuspy -n '__fish_seen_subcommand_from %s' %s", (*c)->name, operands[(*c)->operands]);
        fputs((*c)->operands == OPERAND_PROGRAM ? "" : "\n", f);
        if ((*c)->operands == OPERAND_PROGRAM) fish_valued(f, *c);
    }
}
