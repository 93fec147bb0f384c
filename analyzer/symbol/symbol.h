/* Native addresses → function, file and line, after the recording, from the files on disk.
 *
 * A module is used only if it is the file that was recorded, by its build id or, if it has none, by its age. Debugging
 * information comes from the file itself, or from a separate file: by build id or debug link (whose CRC must match),
 * beside the module, in .debug, in the folders of GPUSPY_DEBUG_PATH and in /usr/lib/debug. Files that dwz shares, .dwo
 * files and .gnu_debugdata are read, too. Functions without debugging information come from the symbol table. Nothing
 * is fetched over a network unless the user requests it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/run/run.h"

struct symbolizer;

struct symbolizer *symbolizer_new(void); /* NULL: out of memory */
void symbolizer_free(struct symbolizer *s);
/* Searches these folders (separated by colons) first. Call before any look-up. */
void symbolizer_use_debug_dir(struct symbolizer *s, const char *folders);
/* Also queries the servers in DEBUGINFOD_URLS: false if there are none, or no library to query them with, and the
 * reason in *problem. *servers lives as long as the symbolizer. Call before any look-up. */
bool symbolizer_use_servers(struct symbolizer *s, const char **servers, const char **problem);

/* `offset` is the address minus the module's load bias, as recorded (it is inside the call, so it is looked up
 * unchanged). `build_id` is hexadecimal, NULL not recorded. On success the function is demangled; if functions were
 * inlined it is the innermost one that is not in a system header, with its own line. *file is NULL and *line 0 without
 * debugging information. The strings live as long as the symbolizer; repeated look-ups are cheap. False: unknown. */
bool symbolizer_find(void *symbolizer, const char *module_path, const char *build_id, uint64_t offset,
                     const char **function, const char **file, int *line);
/* The rest of run_options.symbol_more. */
extern const struct run_symbol_more symbolizer_more;
/* The members of struct run_options: symbols may be NULL. */
#define SYMBOLIZER_OPTIONS(symbols) \
    .symbol = (symbols) ? symbolizer_find : NULL, .symbol_more = &symbolizer_more, .symbol_data = (symbols)

/* Is it a header that all programs use? If std::vector or cuda_runtime.h's cudaMalloc(T **) allocates, the code that
 * calls it is responsible. True for NULL. */
bool symbolizer_is_system_file(const char *file);
/* Is it of a package that a package manager (cargo, go, CMake, vcpkg, conan) downloaded? The user cannot change it. */
bool symbolizer_is_package_file(const char *file);

/* Modules that could not be used, for a line to the user: "cannot read", "has changed since the recording". NULL if i
 * is past the last. */
const char *symbolizer_problem(const struct symbolizer *s, size_t i, const char **module_path);

/* Prints them on stderr, each once: all, or only those that changed (names exist, but are not used). */
void symbolizer_complain(const struct symbolizer *s, bool all);

/* The information that a module lacks, after look-ups: "no symbols", "exported functions alone", "functions, no lines";
 * NULL: it has lines. *build_id is the file's, "" none. */
const char *symbolizer_lack(struct symbolizer *s, const char *module_path, const char *recorded_build_id,
                            const char **build_id);
