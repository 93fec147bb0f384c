/* Shortens names of files and functions for display. All functions write cleaned text (terminal_clean). */
#pragma once

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct terminal;

/* A path relative to the working directory if it is below it, quoted for a shell if necessary: to be pasted into a
 * command. */
char *text_path_here(char *out, size_t size, const char *path);
bool text_is_below(const char *path, const char *folder);
bool text_ends_with(const char *text, const char *ending); /* not NULL */
/* The last part of a dotted name, such as a method's without its class; "" of NULL. */
const char *text_last_part(const char *name);
/* The length of "Cache.grow" in "Cache.grow.<locals>.<listcomp>": before Python 3.12 a comprehension is a function of
 * its own. */
size_t text_without_comprehension(const char *function);
/* Are they equal? NULL is "". */
bool text_is_same(const char *a, const char *b);
/* Is it equal to a word of an array? */
bool text_is_listed(const char *text, const char *const *words, size_t n);
#define TEXT_IS_ONE_OF(text, words) text_is_listed(text, words, sizeof(words) / sizeof *(words))
/* Does it contain a word of an array that ends with NULL? */
bool text_has_one_of(const char *text, const char *const *words);
static inline bool text_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
/* Of names in C and Python. */
static inline bool text_is_name_character(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}
/* A path for display: relative to `cwd` (of the run; NULL unknown) if it is below it; without the folders that all
 * Python libraries share ("…/site-packages/torch/nn/x.py" → "torch/nn/x.py"); and at most `columns` wide, with an
 * ellipsis for the folders in the middle. */
char *text_path(char *out, size_t size, const char *path, const char *cwd, int columns, bool utf8);
/* A C++ name without template arguments and parameters: "at::empty", at most `columns` wide. */
char *text_function(char *out, size_t size, const char *function, int columns, bool utf8);
/* vsnprintf with the arguments that follow the parameter `format` of the function. */
#define TEXT_FORMAT(out, size, format)                                \
    ({                                                                \
        va_list arguments_;                                           \
        va_start(arguments_, format);                                 \
        const int length_ = vsnprintf(out, size, format, arguments_); \
        va_end(arguments_);                                           \
        length_;                                                      \
    })
/* snprintf for texts that may be truncated. */
void text_put(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The first letter of a sentence after a semicolon; abbreviations such as CUDA stay. */
static inline char text_first_in_clause(const char *sentence)
{
    const bool abbreviation = sentence[1] >= 'A' && sentence[1] <= 'Z';
    return (char)(abbreviation ? sentence[0] : sentence[0] - 'A' + 'a');
}
/* Length of the first word; a number and its unit are one ("11.88 GiB", "(85 %)", "18 h 26 min"), and a line of a cell
 * ("In [2]:7"), so that no line ends between them. */
size_t text_word_length(const char *text);
/* Bytes of `text` that make a line of at most `columns`: whole words, or a part of a word that is too long. */
size_t text_line_length(const char *text, int columns);
/* Removes the first parts of a cleaned function's name, so that it takes at most `columns`: "…AddmmBackward0::apply".
 */
char *text_name(char *out, size_t size, const char *name, int columns, bool utf8);
/* Removes the middle of cleaned text, if possible between words, so that it takes at most `columns`. */
char *text_elide(char *out, size_t size, const char *text, int columns, bool utf8);
/* Jupyter's, VS Code's, Kaggle's, Colab's and Databricks' kernels, xeus-python and Spyder's console: their commands
 * name only a connection file. */
bool text_is_kernel(const char *command);
/* A cleaned command in at most `columns`, "Jupyter kernel" for a kernel's: first interpreter and script lose their
 * folders, then the last arguments are left out; of a command whose script comes after them, the middle. */
char *text_command(char *out, size_t size, const char *command, int columns, bool utf8);
/* Prints words, cleaned, from column `at` on; the lines after the first start at `hang`. A word that is wider than a
 * line stays whole, or takes several lines; then only of one that takes more than four the middle is left out. */
void text_wrap(FILE *out, const struct terminal *term, int hang, int at, bool whole, const char *text);
