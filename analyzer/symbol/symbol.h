/* Native addresses → function, file and line, after the fact, from the files on disk.
 *
 * A module is looked at only if it is the file that was recorded (same build id). Debugging
 * information is taken from the file, from /usr/lib/debug or .debug by build id or debug link; a
 * function without it from the symbol table. Nothing is fetched over the network. */
#ifndef GPUSPY_SYMBOL_H
#define GPUSPY_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct symbolizer;

struct symbolizer *symbolizer_new(void); /* NULL: out of memory */
void symbolizer_free(struct symbolizer *s);

/* `offset` is the address minus the module's load bias, as recorded (inside the call, so it is looked
 * up as it is). `build_id` is hexadecimal, NULL not recorded: not checked then. On success the
 * function is demangled; where it was inlined it is the inlined one, like the line. *file is NULL and
 * *line 0 where there is no debugging information. The strings live as long as the symbolizer; asking
 * again is cheap. False: not known. Fits gs_symbol_fn (run.h) with the symbolizer as `data`. */
bool symbolizer_name(void *symbolizer, const char *module_path, const char *build_id, uint64_t offset,
                     const char **function, const char **file, int *line);

/* Modules that could not be used, for a line to the user: "cannot read", "has changed since the
 * recording". NULL where i is past the last. */
const char *symbolizer_problem(const struct symbolizer *s, size_t i, const char **module_path);

#endif
