/* Command-line options from tables: parsing, --help, completion and the man page read the same rows.
 *
 * A command has a struct of settings, filled with defaults before parsing, and a table of rows that state where each
 * option's value goes in it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum option_kind {
    OPTION_FLAG,          /* bool, becomes true */
    OPTION_TEXT,          /* const char *, not empty */
    OPTION_FILE,          /* const char *, not empty; completed as a file name */
    OPTION_FILE_OR_ALONE, /* the same; without a value it is OPTION_FILE_ALONE: the next word is an option or the
                             last operand, or there is none */
    OPTION_CHOICE,        /* const char *, one of `words` */
    OPTION_SET,  /* uint64_t, a bit for each of `words` (64 at most); words separated by commas; giving the option again
                    adds words */
    OPTION_LIST, /* struct option_list: texts separated by commas; giving the option again adds texts */
    OPTION_NUMBER,         /* int, min..max */
    OPTION_COUNT,          /* uint64_t, units_parse_count; min..max */
    OPTION_COUNT_OR_ALONE, /* the same; without a value (the next word is an option, or there is none)
                      it is OPTION_ALONE */
    OPTION_BYTES,          /* uint64_t, units_parse_bytes; min..max */
    OPTION_RATE,           /* uint64_t, bytes per second, units_parse_rate; min..max */
    OPTION_TIME,           /* uint64_t, nanoseconds, units_parse_duration; min..max */
    OPTION_HEADING, /* no option: `help` is a heading over those that follow; if min is 1, --help only names them:
                       another command's help explains them */
};

#define OPTIONS_MAX 256 /* rows of a command */
#define OPTION_ALONE UINT64_MAX
#define OPTION_FILE_ALONE ""
#define OPTIONS_HEADING(text)                              \
    {                                                      \
        .name = "", .kind = OPTION_HEADING, .help = (text) \
    }

#define OPTIONS_NAMED(text)                                          \
    {                                                                \
        .name = "", .kind = OPTION_HEADING, .min = 1, .help = (text) \
    }

enum { OPTION_LIST_MAX = 64 };
struct option_list {
    size_t n;
    struct {
        const char *text; /* not terminated: `length` bytes of an argument */
        int length;
    } item[OPTION_LIST_MAX];
};

struct option_row {
    const char *name; /* without the dashes; NULL ends the table */
    char letter;      /* 0: none */
    enum option_kind kind;
    size_t at;            /* offset of the value in the settings */
    const char *argument; /* the name of the value in help; NULL for flags */
    const char
        *words; /* "a|b|c": what help lists and completion offers; OPTION_CHOICE and OPTION_SET accept nothing else */
    double min, max;  /* for the kinds that are numbers */
    const char *help; /* what it does, starting in lower case */
};
/* One of the member `member` of the command's struct settings, without choices and bounds. */
#define OPTION_ROW(kind, name, letter, member, value, help)                                     \
    {                                                                                           \
        name, letter, OPTION_##kind, offsetof(struct settings, member), value, NULL, 0, 0, help \
    }

struct command;

enum { OPTIONS_HELP = -1, OPTIONS_BAD = -2 };

/* Reads argv[0..argc), the words after the command's name, into `settings`. Moves operands to the front of argv and
 * returns their number. "--" ends the options, and so does the first operand if the command says so. Returns
 * OPTIONS_HELP after it printed --help on stdout, OPTIONS_BAD after a line on stderr. Values point into argv. Two
 * different values of one option are refused, except by commands that plan: there the later one counts. */
int options_parse(const struct command *command, int argc, char **argv, void *settings);

static inline bool options_is_optional(const struct option_row *row)
{
    return row->kind == OPTION_COUNT_OR_ALONE || row->kind == OPTION_FILE_OR_ALONE;
}

/* The word of `words` ("a|b|c") that is nearest to `text`, if it is near enough to be a typing error, copied to out.
 * Returns how far it is, 0: none. */
unsigned options_nearest(const char *text, const char *words, char *out, size_t size);
/* "a|b|c|" → "a, b, c". */
void options_list(const char *words, char *out, size_t size);
/* The index of `text` in `words`; -1: it is not one of them, or NULL. */
int options_word_index(const char *text, const char *words);
bool options_is_word(const char *text, const char *words);
