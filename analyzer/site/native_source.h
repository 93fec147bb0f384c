/* Advice from the source text of programs without Python. */
#pragma once

#include "analyzer/site/builder.h"

/* What to do about CUDA allocations that grow at a native site: "`frames.push_back(…)` keeps them (guess): …" if the
 * line adds to a container of C++, else "free each block after its last use, …". In the arena. */
const char *site_native_growth_advice(struct site_builder *b, const struct result_site *site);

/* "`losses.push_back(…)` keeps each of them (guess)", by the source text near the site's line, or near the line that
 * called its function, which returned the memory. NULL: none is known. In the arena. */
const char *site_native_keeper(struct site_builder *b, const struct result_site *site);

/* Does the function return, by its source text, the memory that its line allocated or got from a call, and keep none of
 * it? Then its callers decide how long the memory lives. */
bool site_returns_memory(struct run *run, const char *file, int line);

/* Also if its Python frames were not recorded. */
bool site_runs_python(const struct run *run, uint32_t process);

/* An advice about PyTorch in the words of the process's language: in a process without Python "torch::NoGradGuard" in
 * place of "torch.no_grad()". In the arena, or `text` itself. */
const char *site_cpp_words(struct site_builder *b, uint32_t process, const char *text);
