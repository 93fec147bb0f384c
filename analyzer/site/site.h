/* Where an answer points: from a stack to one line that the person can change. */
#ifndef GPUSPY_SITE_H
#define GPUSPY_SITE_H

#include "analyzer/base/arena.h"
#include "analyzer/result/result.h"

/* The innermost Python frame of the user's own code (not site-packages, not the standard library,
 * not torch), past `helpers` (NULL none); else the innermost Python frame; else Python's tear-down;
 * else the innermost native frame that is neither CUDA nor gpuspy nor a system library; else the
 * operation whose gradient PyTorch's autograd computes; else the innermost native frame.
 * Symbolises what it returns. */
struct gs_site gs_site_of(struct gs_run *run, uint32_t stack, const struct gs_map *helpers);

/* Functions of the user's own that three or more of the user's lines call: an allocation there says
 * little before its caller is known. Adds their keys to `helpers`. */
void gs_site_helpers(const struct gs_run *run, struct gs_map *helpers);
void gs_site_add_helper(struct gs_map *helpers, const char *function, const char *file);
bool gs_site_is_helper(const struct gs_map *helpers, const char *function, const char *file);
/* Is this Python file a library's? */
bool gs_site_library_file(const char *file);
/* Is it installed, and not PyTorch or the like: a model's, a trainer's, a metric's? */
bool gs_site_third_party(const char *file);
/* 0 the user's own, 1 a system or framework library, 2 CUDA or gpuspy itself. */
int gs_site_module_rank(const char *module);
/* Equal for sites that are the same place and have the same caller, or the same helper. */
uint64_t gs_site_key(const struct gs_site *site);
/* Equal for sites at the same line, whatever called it and whatever it called; without a line: in the same function. */
uint64_t gs_site_line_key(const struct gs_site *site);
/* Takes from `line` the caller and the library that `path`, which is at the same line, does not have. */
void gs_site_keep_common(struct gs_site *line, const struct gs_site *path);
/* By what they say, for lists: a key is of one process's addresses, and differs from run to run. */
int gs_site_order(const struct gs_site *a, const struct gs_site *b);
/* "file.py:12 in f" and the like, into a buffer. */
const char *gs_site_text(const struct gs_site *site, char *buffer, size_t size);

#endif
