#include "analyzer/base/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>
#include "analyzer/base/command.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"

/* Calls `each` for each word, until it returns false. */
static bool each_word(const char *words, bool (*each)(const char *, size_t, void *), void *data)
{
    while (*words) {
        size_t length = strcspn(words, "|");
        if (length && each(words, length, data)) return true;
        words += length + (words[length] == '|');
    }
    return false;
}

struct numbered {
    const char *text;
    size_t length;
    int at;
};

static bool same_numbered(const char *word, size_t length, void *data)
{
    struct numbered *n = data;

    if (length == n->length && memcmp(word, n->text, length) == 0) return true;
    n->at++;
    return false;
}

int options_word_index(const char *text, const char *words)
{
    struct numbered n = {text, text ? strlen(text) : 0, 0};
    return text && each_word(words, same_numbered, &n) ? n.at : -1;
}

bool options_is_word(const char *text, const char *words)
{
    return options_word_index(text, words) >= 0;
}

void options_list(const char *words, char *out, size_t size)
{
    size_t at = 0;

    out[0] = 0;
    for (; *words && at < size; words += *words == '|') {
        size_t length = strcspn(words, "|");
        if (length) at += (size_t)snprintf(out + at, size - at, "%s%.*s", at ? ", " : "", (int)length, words);
        words += length;
    }
}

#define WORD_MAX 40

/* What one edit costs (insert, drop, change, swap neighbours); what a word costs that the text continues; and a digit
 * that is another: rtx4080 and rtx2080 are two things rather than one with a typing error. */
enum { EDIT = 8, CONTINUED = 9, EDIT_DIGIT = 10 };

static unsigned edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];

    for (size_t i = 0; i <= n; i++) d[i][0] = EDIT * (unsigned)i;
    for (size_t j = 0; j <= m; j++) d[0][j] = EDIT * (unsigned)j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            const bool digits = strchr("0123456789", a[i - 1]) && strchr("0123456789", b[j - 1]);
            unsigned best = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : digits ? EDIT_DIGIT : EDIT);
            if (d[i - 1][j] + EDIT < best) best = d[i - 1][j] + EDIT;
            if (d[i][j - 1] + EDIT < best) best = d[i][j - 1] + EDIT;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + EDIT < best)
                best = d[i - 2][j - 2] + EDIT;
            d[i][j] = best;
        }
    }
    return d[n][m];
}

struct nearest {
    const char *text;
    const char *word;
    size_t length;
    unsigned edits;
};

static bool consider_suggestion(const char *word, size_t length, void *data)
{
    struct nearest *n = data;
    size_t typed = strlen(n->text);

    if (length > WORD_MAX || typed > WORD_MAX) return false;
    /* The beginning of a word, or a word with more after it, is a good guess, however much is missing or too much. */
    const bool begins = typed >= 3 && typed < length && memcmp(word, n->text, typed) == 0,
               continues = length >= 4 && typed > length && memcmp(word, n->text, length) == 0,
               same = typed == length && strncasecmp(word, n->text, length) == 0;
    unsigned edits = begins || same ? EDIT : edit_distance(n->text, typed, word, length);
    if (continues && edits > CONTINUED) edits = CONTINUED;
    if ((edits < n->edits || (edits == n->edits && continues && length > n->length)) && edits < EDIT * length / 2) {
        n->edits = edits;
        n->word = word;
        n->length = length;
    }
    return false;
}

unsigned options_nearest(const char *text, const char *words, char *out, size_t size)
{
    struct nearest n = {.text = text, .edits = 3 * EDIT};

    each_word(words, consider_suggestion, &n);
    if (!n.word || n.length >= size) return 0;
    memcpy(out, n.word, n.length);
    out[n.length] = 0;
    return n.edits;
}

struct value {
    const struct command *command;
    const struct option_row *row;
    const char *text;
    void *to;
};

static bool reject_value(const struct value *v, const char *why, const char *what_to_do)
{
    return complain_with(false, "%s: --%s: '%s' %s; %s", v->command->name, v->row->name, v->text, why, what_to_do);
}

static bool needs_value(const struct value *v)
{
    return complain_with(false, "%s: --%s needs a value; write --%s=%s", v->command->name, v->row->name, v->row->name,
                         v->row->argument);
}

static bool take_text(const struct value *v)
{
    if (!*v->text) return needs_value(v);
    memcpy(v->to, &v->text, sizeof v->text);
    return true;
}

/* What to type instead of another tool's option, or its "option=value", spelt with dashes or underscores; NULL: it is
 * not known. */
static const char *meaning_of(const struct command_example *synonyms, char *typed)
{
    for (char *c = typed; *c; c++) *c = *c == '_' ? '-' : *c;
    while (synonyms && synonyms->line && !options_is_word(typed, synonyms->line)) synonyms++;
    return synonyms ? synonyms->meaning : NULL;
}

static bool unknown_word(const struct value *v, const char *word)
{
    char near[WORD_MAX + 1], hint[WORD_MAX + 24] = "", known[1024], typed[2 * WORD_MAX];

    snprintf(typed, sizeof typed, "%s=%s", v->row->name, word);
    const char *const meaning = meaning_of(v->command->text->synonyms, typed);
    if (meaning)
        return complain_with(false, "%s: --%s: '%s' is unknown; did you mean '%s'?", v->command->name, v->row->name,
                             word, meaning);
    if (options_nearest(word, v->row->words, near, sizeof near))
        snprintf(hint, sizeof hint, "did you mean '%s'? ", near);
    options_list(v->row->words, known, sizeof known);
    return complain_with(false, "%s: --%s: '%s' is unknown; %sgive one of %s", v->command->name, v->row->name, word,
                         hint, known);
}

static bool take_choice(const struct value *v)
{
    return options_is_word(v->text, v->row->words) ? take_text(v) : unknown_word(v, v->text);
}

static bool take_set(const struct value *v)
{
    uint64_t set;

    memcpy(&set, v->to, sizeof set);
    for (const char *p = v->text; *p; p += *p == ',') {
        struct numbered n = {p, strcspn(p, ","), 0};
        char word[64];
        snprintf(word, sizeof word, "%.*s", (int)n.length, p);
        p += n.length;
        if (!n.length) continue;
        if (!each_word(v->row->words, same_numbered, &n)) return unknown_word(v, word);
        set |= (uint64_t)1 << n.at;
    }
    memcpy(v->to, &set, sizeof set);
    return set || needs_value(v);
}

/* 1e15 instead of printf's 1e+15, as people type it. */
static const char *format_plain_number(char *out, size_t size, double x)
{
    char *plus;

    snprintf(out, size, "%.15g", x);
    if ((plus = strchr(out, '+'))) memmove(plus, plus + 1, strlen(plus));
    return out;
}

static bool out_of_range(const struct value *v)
{
    char range[128], min[UNITS_TEXT], max[32];

    if (v->row->kind == OPTION_BYTES && v->row->min > 1)
        snprintf(range, sizeof range, "give a size of at least %s", units_format_bytes(min, (uint64_t)v->row->min));
    else
        snprintf(range, sizeof range, "give a number from %s to %s", format_plain_number(min, sizeof min, v->row->min),
                 format_plain_number(max, sizeof max, v->row->max));
    return reject_value(v, "is out of range", range);
}

static bool take_list(const struct value *v)
{
    struct option_list *list = v->to;
    size_t before = list->n;

    for (const char *p = v->text; *p; p += *p == ',') {
        int length = (int)strcspn(p, ",");
        if (length && list->n == OPTION_LIST_MAX) return reject_value(v, "has too many names", "give fewer");
        if (length) {
            list->item[list->n].text = p;
            list->item[list->n++].length = length;
        }
        p += length;
    }
    return list->n > before || needs_value(v);
}

static bool take_number_value(const struct value *v)
{
    char *end;
    long n;

    errno = 0;
    n = strtol(v->text, &end, 10);
    if (end == v->text || *end || v->text[0] == ' ' || v->text[0] == '+')
        return reject_value(v, "is not a whole number", "give digits");
    if (errno || (double)n < v->row->min || (double)n > v->row->max) return out_of_range(v);
    *(int *)v->to = (int)n;
    return true;
}

static bool take_units(const struct value *v, bool (*parse)(const char *, uint64_t *, char *), const char *like)
{
    char why[UNITS_WHY];
    uint64_t n;

    if (!parse(v->text, &n, why)) return reject_value(v, why, like);
    if ((double)n < v->row->min || (double)n > v->row->max) return out_of_range(v);
    memcpy(v->to, &n, sizeof n);
    return true;
}

static bool take_count(const struct value *v)
{
    const bool large = v->row->max > 1e12; /* parameters, operations: not a batch or a number of GPUs */
    return take_units(v, units_parse_count,
                      large ? "give a number such as 7B, 350M or 1e9" : "give a number such as 8, 4096 or 1e6");
}

#define TAKES(name, parse, like)            \
    static bool name(const struct value *v) \
    {                                       \
        return take_units(v, parse, like);  \
    }
TAKES(take_bytes, units_parse_bytes, "give a size such as 24GiB")
TAKES(take_rate, units_parse_rate, "give a rate such as 300GB/s or 400Gb/s")
TAKES(take_time, units_parse_duration, "give a time such as 1.2ms")

static bool (*const take[])(const struct value *) = {
    [OPTION_TEXT] = take_text,
    [OPTION_FILE] = take_text,
    [OPTION_FILE_OR_ALONE] = take_text,
    [OPTION_CHOICE] = take_choice,
    [OPTION_SET] = take_set,
    [OPTION_LIST] = take_list,
    [OPTION_BYTES] = take_bytes,
    [OPTION_NUMBER] = take_number_value,
    [OPTION_COUNT] = take_count,
    [OPTION_COUNT_OR_ALONE] = take_count,
    [OPTION_RATE] = take_rate,
    [OPTION_TIME] = take_time,
};

struct line {
    const struct command *command;
    int argc, at; /* at: the current word */
    char **argv;
    void *settings;
    const char *given[OPTIONS_MAX]; /* the values of the rows so far */
};

static const struct option_row *option_row_of(const struct command *c, const char *name, size_t length, char letter)
{
    for (const struct option_row *r = c->text->options; r->name; r++)
        if (r->kind != OPTION_HEADING &&
            (letter ? r->letter == letter : strlen(r->name) == length && memcmp(r->name, name, length) == 0))
            return r;
    return NULL;
}

/* "run, whatif": the other commands that have the option; "" none. */
static void list_commands_with(const struct command *self, const char *name, size_t length, char *out, size_t size)
{
    size_t at = 0;

    *out = 0;
    for (const struct command *const *c = self->all; c && *c && at < size; c++)
        if (length && option_row_of(*c, name, length, 0))
            at += (size_t)snprintf(out + at, size - at, "%sgpuspy %s", at ? ", " : "", (*c)->name);
}

static int reject_unknown_option(const struct line *l, const char *word, const char *name, size_t length)
{
    char words[2048], typed[WORD_MAX + 1], near[WORD_MAX + 1], others[256];
    size_t at = (size_t)snprintf(words, sizeof words, "help");

    for (const struct option_row *r = l->command->text->options; r->name && at < sizeof words; r++)
        if (r->kind != OPTION_HEADING) at += (size_t)snprintf(words + at, sizeof words - at, "|%s", r->name);
    snprintf(typed, sizeof typed, "%.*s", (int)length, name);
    list_commands_with(l->command, name, length, others, sizeof others);
    const char *const meaning = length <= WORD_MAX ? meaning_of(l->command->text->synonyms, typed) : NULL;
    if (meaning)
        complain("%s: unknown option '%s'; did you mean '%s'?", l->command->name, word, meaning);
    else if (*others)
        complain("%s: unknown option '%s'; these commands have it: %s", l->command->name, word, others);
    else if (length <= WORD_MAX && options_nearest(typed, words, near, sizeof near))
        complain("%s: unknown option '%s'; did you mean '--%s'?", l->command->name, word, near);
    else
        complain("%s: unknown option '%s'; usage: gpuspy %s %s; 'gpuspy %s --help' lists the options", l->command->name,
                 word, l->command->name, l->command->synopsis, l->command->name);
    return OPTIONS_BAD;
}

/* A file whose name begins with a known option is written --NAME=FILE. */
static bool is_option(const struct command *c, const char *word)
{
    if (word[0] != '-' || !word[1]) return false;
    if (word[1] != '-') return option_row_of(c, NULL, 0, word[1]) || strcmp(word, "-h") == 0;
    const char *name = word + 2;
    return !*name || strcmp(name, "help") == 0 || option_row_of(c, name, strcspn(name, "="), 0);
}

/* Before an operand that may be missing: a misspelt option is not taken for a file name either. */
static bool looks_like_option(const char *word)
{
    return word[0] == '-' && word[1];
}

/* Is the next word the only operand that is left? It names an existing file that does not end like `row->argument`
 * ("FILE.html"). */
static bool is_last_operand(const struct line *l, const struct option_row *row)
{
    const char *word = l->argv[l->at + 1], *ending = strchr(row->argument, '.'), *dot = strrchr(word, '.');

    for (int i = l->at + 2; i < l->argc; i++)
        if (l->argv[i][0] != '-') return false;
    return access(word, F_OK) == 0 && !(ending && dot && strcmp(dot, ending) == 0);
}

/* Two values of one option contradict each other, and a limit that is dropped silently is worse than an error. Plans
 * are an exception: there a later option replaces an earlier one, because people append a change to a command. */
static bool is_contradicted(struct line *l, const struct option_row *row, const char *text)
{
    const char **given = &l->given[row - l->command->text->options];
    const bool several = row->kind == OPTION_SET || row->kind == OPTION_LIST || l->command->group == GROUP_PLAN;
    const char *before = *given;

    *given = text;
    return before && !several && strcmp(before, text) != 0 &&
           complain_with(true, "%s: --%s is given twice, as '%s' and '%s'; give it once", l->command->name, row->name,
                         before, text);
}

/* Stores a row's value; `text` NULL: the value is the next word. */
static int store_option(struct line *l, const struct option_row *row, const char *text)
{
    struct value v = {l->command, row, text, (char *)l->settings + row->at};

    if (row->kind == OPTION_FLAG) {
        if (text) {
            return complain_with(OPTIONS_BAD, "%s: --%s takes no value; write it without '=%s'", l->command->name,
                                 row->name, text);
        }
        *(bool *)v.to = true;
        return 0;
    }
    if (!v.text && row->kind == OPTION_COUNT_OR_ALONE && (l->at + 1 >= l->argc || l->argv[l->at + 1][0] == '-')) {
        memcpy(v.to, &(uint64_t){OPTION_ALONE}, sizeof(uint64_t));
        return 0;
    }
    if (!v.text && row->kind == OPTION_FILE_OR_ALONE &&
        (l->at + 1 >= l->argc || looks_like_option(l->argv[l->at + 1]) || is_last_operand(l, row))) {
        memcpy(v.to, &(const char *){OPTION_FILE_ALONE}, sizeof(const char *));
        return 0;
    }
    if (!v.text) {
        if (l->at + 1 >= l->argc || is_option(l->command, l->argv[l->at + 1])) {
            needs_value(&v);
            return OPTIONS_BAD;
        }
        v.text = l->argv[++l->at];
    }
    return !is_contradicted(l, row, v.text) && take[row->kind](&v) ? 0 : OPTIONS_BAD;
}

static int long_option(struct line *l)
{
    const char *word = l->argv[l->at], *name = word + 2;
    size_t length = strcspn(name, "=");
    const char *text = name[length] ? name + length + 1 : NULL;
    const struct option_row *row = option_row_of(l->command, name, length, 0);

    if (row) return store_option(l, row, text);
    if (length == 4 && memcmp(name, "help", 4) == 0) return OPTIONS_HELP;
    return reject_unknown_option(l, word, name, length);
}

/* "-q", "-o FILE", "-oFILE", "-qo FILE". */
static int short_options(struct line *l)
{
    const char *word = l->argv[l->at];

    for (const char *p = word + 1; *p; p++) {
        const struct option_row *row = option_row_of(l->command, NULL, 0, *p);
        if (!row && *p == 'h') return OPTIONS_HELP;
        if (!row) {
            char one[3] = {'-', *p, 0};
            return reject_unknown_option(l, one, word + 1, strcspn(word + 1, "="));
        }
        bool rest = row->kind != OPTION_FLAG && p[1];
        int result = store_option(l, row, rest ? p + 1 : NULL);
        if (result || row->kind != OPTION_FLAG) return result;
    }
    return 0;
}

/* An option whose name or value the word is: `gpuspy tree waits run.db`. False: none, or several. */
static bool find_option_meant(const struct command *c, const char *word, char *out, size_t size)
{
    char why[UNITS_WHY];
    uint64_t bytes;
    const bool size_given = units_parse_bytes(word, &bytes, why);
    int n = 0;

    for (const struct option_row *r = c->text->options; r->name; r++) {
        const bool name = strcmp(r->name, word) == 0;
        const bool value = ((r->kind == OPTION_CHOICE || r->kind == OPTION_SET) && options_is_word(word, r->words)) ||
                           (size_given && r->argument && strstr(r->argument, "SIZE"));
        if (r->kind == OPTION_HEADING || (!name && !value)) continue;
        n++;
        snprintf(out, size, name ? "--%s" : "--%s %s", r->name, word);
    }
    return n == 1;
}

static bool reject_misplaced(const struct command *c, char **operands, int n)
{
    char meant[128];

    for (int i = 0; c->operands == OPERAND_FILE && i < n; i++) {
        if (access(operands[i], F_OK) == 0) continue;
        if (strcmp(operands[i], "help") == 0)
            snprintf(meant, sizeof meant, "gpuspy %s --help", c->name);
        else if (!find_option_meant(c, operands[i], meant, sizeof meant))
            continue;
        return complain_with(true, "%s: '%s' is not a file; did you mean %s?", c->name, operands[i], meant);
    }
    return false;
}

int options_parse(const struct command *command, int argc, char **argv, void *settings)
{
    struct line l = {.command = command, .argc = argc, .argv = argv, .settings = settings};
    int operands = 0;
    bool only_operands = false;

    for (; l.at < argc; l.at++) {
        char *word = argv[l.at];
        int result = 0;

        if (!only_operands && strcmp(word, "--") == 0) {
            only_operands = true;
        } else if (only_operands || word[0] != '-' || !word[1]) {
            only_operands = only_operands || command->text->program_follows;
            argv[operands++] = word;
        } else {
            result = word[1] == '-' ? long_option(&l) : short_options(&l);
        }
        if (result == OPTIONS_HELP) command->print_help(command, stdout);
        if (result) return result;
    }
    return reject_misplaced(command, argv, operands) ? OPTIONS_BAD : operands;
}
