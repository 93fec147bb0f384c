/* Names of files and functions, short enough to read. All write cleaned text (terminal_clean). */
#ifndef GPUSPY_TEXT_H
#define GPUSPY_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* A path relative to our working directory where it lies below it, quoted for a shell where it needs
 * that: to be pasted into a command. */
char *text_path_here(char *out, size_t size, const char *path);
bool text_is_below(const char *path, const char *folder);
/* A path for people: relative to `cwd` (of the run; NULL unknown) where it lies below it; without the
 * folders that all Python libraries have in common ("…/site-packages/torch/nn/x.py" → "torch/nn/x.py");
 * and at most `columns` wide, the folders in the middle replaced by an ellipsis. */
char *text_path(char *out, size_t size, const char *path, const char *cwd, int columns, bool utf8);
/* A C++ name without template arguments and parameters: "at::empty", at most `columns` wide. */
char *text_function(char *out, size_t size, const char *function, int columns, bool utf8);
/* snprintf where being cut is right: what is shown need not be whole. */
void text_put(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* Cuts the middle out of cleaned text so that it takes at most `columns`. */
char *text_elide(char *out, size_t size, const char *text, int columns, bool utf8);

#endif
