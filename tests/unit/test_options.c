/* Options, help, man page and completion, over the tables of all commands. */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/options.h"
#include "analyzer/command/commands.h"
#include "analyzer/command/help.h"

struct settings {
    bool flag;
    const char *file, *word;
    int number;
    uint64_t count, set, maybe;
    struct option_list list;
};

static const struct option_row rows[] = {
    {"flag", 'f', OPTION_FLAG, offsetof(struct settings, flag), NULL, NULL, 0, 0, "a flag"},
    {"output", 'o', OPTION_FILE, offsetof(struct settings, file), "FILE", NULL, 0, 0, "a file"},
    {"stacks", 0, OPTION_CHOICE, offsetof(struct settings, word), "WHICH", "python|native", 0, 0, "a word"},
    {"top", 'n', OPTION_NUMBER, offsetof(struct settings, number), "N", NULL, 1, 50, "a number"},
    {"only", 0, OPTION_SET, offsetof(struct settings, set), "WORDS", "oom|peak|sync|", 0, 0, "some words"},
    OPTIONS_HEADING("More"),
    {"gpu", 'g', OPTION_LIST, offsetof(struct settings, list), "NAMES", "a|b", 0, 0, "some names"},
    {"gpus", 0, OPTION_COUNT_OR_ALONE, offsetof(struct settings, maybe), "N", NULL, 1, 1e6, "a count, or none"},
    {"params", 0, OPTION_COUNT, offsetof(struct settings, count), "N", NULL, 1, 1e15, "a count"},
    {0},
};
static const struct command_example no_examples[] = {{0}};
static const struct command_text text = {.options = rows, .about = "About.", .examples = no_examples};
static const struct command_text text_program = {
    .options = rows, .about = "About.", .examples = no_examples, .program_follows = true};
static const struct command plain = {"test", GROUP_READ, "", "", OPERAND_NONE, &text, NULL, command_print_help, NULL};
static const struct command program = {"test", GROUP_READ,         "",  "", OPERAND_PROGRAM, &text_program,
                                       NULL,   command_print_help, NULL};

static char reported[4096];

/* Parses words separated by '|'; `reported` is the text on stderr. */
static int parse(const struct command *c, const char *line, struct settings *s, char **operands)
{
    static char copy[512];
    char *argv[32] = {NULL};
    int argc = 0, saved = dup(2);
    FILE *file = tmpfile();

    assert_non_null(file);
    snprintf(copy, sizeof copy, "%s", line);
    for (char *p = copy; p; argc++) argv[argc] = strsep(&p, "|");
    if (!*line) argc = 0;
    dup2(fileno(file), 2);
    *s = (struct settings){0};
    int n = options_parse(c, argc, argv, s);
    fflush(stderr);
    dup2(saved, 2);
    close(saved);
    rewind(file);
    reported[fread(reported, 1, sizeof reported - 1, file)] = 0;
    fclose(file);
    for (int i = 0; operands && i < n; i++) operands[i] = argv[i];
    return n;
}

static void every_form_of_an_option(void **state)
{
    struct settings s;
    char *operand[8];

    (void)state;
    assert_int_equal(parse(&plain, "-fo|a.db|x|--stacks=native|y|--top|7|--params|1e9|--|--flag", &s, operand), 3);
    assert_true(s.flag);
    assert_string_equal(s.file, "a.db");
    assert_string_equal(s.word, "native");
    assert_int_equal(s.number, 7);
    assert_int_equal(s.count, 1000000000);
    assert_string_equal(operand[0], "x");
    assert_string_equal(operand[1], "y");
    assert_string_equal(operand[2], "--flag");
    assert_int_equal(parse(&plain, "-ob.db|-n3|-", &s, operand), 1);
    assert_string_equal(s.file, "b.db");
    assert_int_equal(s.number, 3);
    assert_string_equal(operand[0], "-");
    assert_int_equal(parse(&plain, "--output=a=b", &s, NULL), 0);
    assert_string_equal(s.file, "a=b");
    assert_int_equal(parse(&plain, "", &s, NULL), 0);
    assert_int_equal(s.set, 0);
    assert_int_equal(parse(&plain, "--only|sync,oom", &s, NULL), 0);
    assert_int_equal(s.set, 5);
    assert_int_equal(parse(&plain, "--only=peak|--only=,sync,", &s, NULL), 0);
    assert_int_equal(s.set, 6);
}

static void lists_add_up_and_counts_may_be_missing(void **state)
{
    struct settings s;
    char *operands[32];

    (void)state;
    assert_int_equal(parse(&plain, "--gpu=h100,4090|-g|t4,|--gpus|8", &s, operands), 0);
    assert_int_equal(s.list.n, 3);
    assert_int_equal(s.list.item[1].length, 4);
    assert_memory_equal(s.list.item[2].text, "t4", 2);
    assert_true(s.maybe == 8);
    assert_int_equal(parse(&plain, "--gpus|--flag", &s, operands), 0);
    assert_true(s.maybe == OPTION_ALONE && s.flag);
    assert_int_equal(parse(&plain, "--gpus", &s, operands), 0);
    assert_true(s.maybe == OPTION_ALONE);
    assert_int_equal(parse(&plain, "--gpus=7", &s, operands), 0);
    assert_true(s.maybe == 7);
    assert_int_equal(parse(&plain, "--gpus=", &s, operands), OPTIONS_BAD);
    assert_int_equal(parse(&plain, "--gpus|x", &s, operands), OPTIONS_BAD);
    assert_int_equal(parse(&plain, "--gpu|,,", &s, operands), OPTIONS_BAD);
    assert_int_equal(parse(&plain, "--=x", &s, operands), OPTIONS_BAD); /* an empty name */
}

static void a_program_keeps_its_options(void **state)
{
    struct settings s;
    char *operand[8];

    (void)state;
    assert_int_equal(parse(&program, "-f|python|--top|900|--|x", &s, operand), 5);
    assert_string_equal(operand[1], "--top");
    assert_string_equal(operand[3], "--");
    assert_int_equal(parse(&program, "--|-x|--flag", &s, operand), 2);
    assert_string_equal(operand[0], "-x");
    assert_false(s.flag);
}

static void mistakes_get_one_line(void **state)
{
    static const char *const lines[][2] = {
        {"--flg", "gpuspy: test: unknown option '--flg'; did you mean '--flag'?\n"},
        {"--parms=1", "gpuspy: test: unknown option '--parms=1'; did you mean '--params'?\n"},
        {"--xyzzy",
         "gpuspy: test: unknown option '--xyzzy'; usage: gpuspy test ; 'gpuspy test --help' lists the options\n"},
        {"-x", "gpuspy: test: unknown option '-x'; usage: gpuspy test ; 'gpuspy test --help' lists the options\n"},
        {"-top=5", "gpuspy: test: unknown option '-t'; did you mean '--top'?\n"},
        {"--flag=1", "gpuspy: test: --flag takes no value; write it without '=1'\n"},
        {"--output", "gpuspy: test: --output needs a value; write --output=FILE\n"},
        {"--output|--top=5", "gpuspy: test: --output needs a value; write --output=FILE\n"},
        {"-o|--", "gpuspy: test: --output needs a value; write --output=FILE\n"},
        {"--output|-h", "gpuspy: test: --output needs a value; write --output=FILE\n"},
        {"--output=", "gpuspy: test: --output needs a value; write --output=FILE\n"},
        {"--stacks=pyhton",
         "gpuspy: test: --stacks: 'pyhton' is unknown; did you mean 'python'? give one of python, native\n"},
        {"--top=0", "gpuspy: test: --top: '0' is out of range; give a number from 1 to 50\n"},
        {"--top=99999999999999999999",
         "gpuspy: test: --top: '99999999999999999999' is out of range; give a number from 1 to 50\n"},
        {"--top=5x", "gpuspy: test: --top: '5x' is not a whole number; give digits\n"},
        {"--top=", "gpuspy: test: --top: '' is not a whole number; give digits\n"},
        {"--only=oom,paek",
         "gpuspy: test: --only: 'paek' is unknown; did you mean 'peak'? give one of oom, peak, sync\n"},
        {"--only=oom,oomx,sync",
         "gpuspy: test: --only: 'oomx' is unknown; did you mean 'oom'? give one of oom, peak, sync\n"},
        {"--only=", "gpuspy: test: --only needs a value; write --only=WORDS\n"},
        {"--only=,", "gpuspy: test: --only needs a value; write --only=WORDS\n"},
        {"-o|a|--output=b", "gpuspy: test: --output is given twice, as 'a' and 'b'; give it once\n"},
        {"--params=1e16", "gpuspy: test: --params: '1e16' is out of range; give a number from 1 to 1e15\n"},
        {"--params=\033[2J", "gpuspy: test: --params: '?[2J' is not a number; give a number such as 7B, 350M or 1e9\n"},
    };
    struct settings s;

    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(parse(&plain, lines[i][0], &s, NULL), OPTIONS_BAD);
        assert_string_equal(reported, lines[i][1]);
    }
}

static void slips_are_near_and_nonsense_is_not(void **state)
{
    char near[32];

    (void)state;
    assert_true(options_nearest("reprot", "run|report|estimate|help", near, sizeof near));
    assert_string_equal(near, "report");
    assert_true(options_nearest("est", "run|report|estimate|help", near, sizeof near));
    assert_string_equal(near, "estimate");
    assert_false(options_nearest("xyzzy", "run|report|estimate|help", near, sizeof near));
    assert_false(options_nearest("", "run|report", near, sizeof near));
    assert_false(options_nearest("averyveryveryveryveryverylongword", "run", near, sizeof near));
}

static char *printed(void (*print)(const struct command *const *, FILE *))
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);

    assert_non_null(f);
    print(commands, f);
    fclose(f);
    return out;
}

static char *printed_of(void (*print)(const struct command *, FILE *), const struct command *c)
{
    char *out = NULL;
    size_t size;
    FILE *f = open_memstream(&out, &size);

    assert_non_null(f);
    print(c, f);
    fclose(f);
    return out;
}

/* Fish has options without their dashes. */
static void option_is_told(const struct command *c, const struct option_row *r, const char *const completions[3])
{
    static const char *const form[] = {"--%s", "--%s", "-l %s"};
    char *help = printed_of(command_print_help, c), *man = printed_of(command_help_man_command, c), name[128],
         roff[256];
    size_t at = 0;

    snprintf(name, sizeof name, "--%s", r->name);
    if (!strstr(help, name)) fail_msg("help of %s lacks %s", c->name, name);
    command_help_option_name(r, name, sizeof name);
    for (const char *p = name; *p; p++)
        at += (size_t)snprintf(roff + at, sizeof roff - at, *p == '-' ? "\\-" : "%c", *p);
    if (!strstr(man, roff)) fail_msg("the man page of %s lacks %s", c->name, name);
    for (int shell = 0; shell < 3; shell++) {
        snprintf(name, sizeof name, form[shell], r->name);
        if (!strstr(completions[shell], name)) fail_msg("completion %d lacks %s of %s", shell, name, c->name);
    }
    free(help);
    free(man);
}

static void every_option_is_in_help_man_and_completion(void **state)
{
    char *completions[] = {printed(command_help_completion_bash), printed(command_help_completion_zsh),
                           printed(command_help_completion_fish)};
    char *overview = printed(command_help_overview), *man = printed(command_help_man);

    (void)state;
    for (const struct command *const *c = commands; *c; c++) {
        assert_non_null(strstr(overview, (*c)->name));
        assert_non_null(strstr(man, (*c)->name));
        assert_non_null((*c)->text->examples[0].line);
        for (const struct option_row *r = (*c)->text->options; r->name; r++)
            if (r->kind != OPTION_HEADING) option_is_told(*c, r, (const char *const *)completions);
    }
    for (int shell = 0; shell < 3; shell++) free(completions[shell]);
    free(overview);
    free(man);
}

static void help_fits_80_columns(void **state)
{
    (void)state;
    for (int i = -1; i < 0 || commands[i]; i++) {
        char *help = NULL;
        size_t size;
        FILE *f = open_memstream(&help, &size);
        if (i < 0)
            command_help_overview(commands, f);
        else
            command_print_help(commands[i], f);
        fclose(f);
        for (const char *line = help; *line; line += strcspn(line, "\n") + 1)
            if (strcspn(line, "\n") > 80) fail_msg("too wide: %.*s", (int)strcspn(line, "\n"), line);
        free(help);
    }
}

/* Letters and names are one option each. */
static void no_option_is_there_twice(void **state)
{
    (void)state;
    for (const struct command *const *c = commands; *c; c++) {
        for (const struct option_row *r = (*c)->text->options; r->name; r++) {
            assert_true(r - (*c)->text->options < OPTIONS_MAX);
            if (r->kind == OPTION_HEADING) continue;
            assert_int_not_equal(r->letter, 'h');
            assert_string_not_equal(r->name, "help");
            assert_true((r->kind == OPTION_FLAG) == (r->argument == NULL));
            for (const struct option_row *q = r + 1; q->name; q++) {
                assert_string_not_equal(r->name, q->name);
                assert_true(!r->letter || r->letter != q->letter);
            }
        }
    }
}

CASES(every_form_of_an_option, lists_add_up_and_counts_may_be_missing, a_program_keeps_its_options,
      mistakes_get_one_line, slips_are_near_and_nonsense_is_not, every_option_is_in_help_man_and_completion,
      help_fits_80_columns, no_option_is_there_twice)
