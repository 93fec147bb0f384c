/* An OOM's cause in words, and what to do about it. Between oom_cause.c, which decides, and
 * oom_words.c, which speaks. */
#ifndef GPUSPY_OOM_WORDS_H
#define GPUSPY_OOM_WORDS_H

#include "analyzer/question.h"

/* What a process pays for being on the device at all, as far as it can be told from the others'
 * use: at most a GiB, and at most a quarter of a small device. */
int64_t gs_oom_context(const struct gs_oom_facts *f);
/* Held by other processes: NVML's word where there is one; else what is in use beyond our own calls
 * and a context's cost. */
int64_t gs_oom_foreign(const struct gs_oom_facts *f);
/* Reserved by PyTorch and in no tensor. */
int64_t gs_oom_cached(const struct gs_oom_facts *f);
/* Who took most of the memory that PyTorch's allocator does not have; NULL nobody. */
const struct gs_by_owner *gs_oom_direct(const struct gs_oom_verdict *v);

struct gs_oom_words {
    struct gs_builder *b;
    const struct gs_oom_facts *f;
    struct gs_oom_verdict *v;
};

/* A call path as people name it: file:line function. */
const char *gs_oom_place(struct gs_oom_words *w, uint32_t stack);

/* Each says its cause in a few words, then the numbers it rests on; what was asked and what was
 * free stands before it already. */
void gs_say_pinned(struct gs_oom_words *w);
void gs_say_oversized(struct gs_oom_words *w);
void gs_say_driver_fragmentation(struct gs_oom_words *w);
void gs_say_cap(struct gs_oom_words *w);
void gs_say_leak(struct gs_oom_words *w);
void gs_say_other_process(struct gs_oom_words *w);
void gs_say_cache_fragmentation(struct gs_oom_words *w);
void gs_say_preallocation(struct gs_oom_words *w);
void gs_say_outside(struct gs_oom_words *w);
void gs_say_capacity(struct gs_oom_words *w);

#endif
