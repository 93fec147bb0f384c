/* From a stack to the one line that the user can change. */
#pragma once

#include "analyzer/base/arena.h"
#include "analyzer/result/result.h"

/* The innermost Python frame of the user's own code (not site-packages, not the standard library, not torch), past
 * `helpers` (NULL none); else the innermost Python frame; else Python's tear-down; else the innermost native frame that
 * is neither CUDA nor gpuspy nor a system library; else the operation whose gradient PyTorch's autograd computes; else
 * the innermost native frame. Symbolises the frame that it returns. */
struct result_site site_of(struct run *run, uint32_t stack, const struct map *helpers);
/* A thread of autograd's made it while it computed gradients. */
bool site_is_in_backward(struct run *run, uint32_t stack);
/* "AddmmBackward0": the operation whose gradient autograd computes; "Engine": between two of them. NULL: neither. */
const char *site_operation(struct run *run, uint32_t stack);

/* A frame as a call site, for display. */
struct result_site site_of_frame(const struct run_frame *frame);

/* Functions of the user's own that three or more of the user's lines call, in Python more than reach CUDA in it: an
 * allocation there is not informative without its caller. Adds their keys to `helpers`. */
void site_helpers(struct run *run, struct map *helpers);
void site_add_helper(struct map *helpers, const char *function, const char *file);
bool site_is_helper(const struct map *helpers, const char *function, const char *file);
/* Does the Python file belong to a library? By its name; of a frame, also by what its package's installer listed. */
bool site_is_library_file(const char *file);
bool site_is_library(const struct run_frame *frame);
/* Of a library's frame: it belongs to another one than PyTorch. A frame such as "(deeper frames cut)" has no file. */
bool site_is_beyond_torch(const struct run_frame *frame);
/* Is it installed, and not PyTorch or the like: a model's, a trainer's, a metric's package? */
bool site_is_third_party(const struct run_frame *frame);
/* run_frame_named, except for frames of RUN_RANK_PLUMBING: no rule needs their names, and naming one reads all
 * debugging information of the C library. */
const struct run_frame *site_frame_named(struct run *run, uint32_t stack);
/* Equal for sites with the same line and the same caller or helper. */
uint64_t site_key(const struct result_site *site);
/* Equal for sites at the same line, independent of caller and callee; without a line: in the same function. */
uint64_t site_line_key(const struct result_site *site);
/* Removes from `line` the caller and the library that `path`, which is at the same line, does not have. */
void site_keep_common(struct result_site *line, const struct result_site *path);
/* By their texts, for lists: a key depends on addresses of one process, and differs from run to run. */
int site_compare(const struct result_site *a, const struct result_site *b);
/* "file.py:12 in f" and the like, into a buffer. */
const char *site_text(const struct result_site *site, char *buffer, size_t size);
