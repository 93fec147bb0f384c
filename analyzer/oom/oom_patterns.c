/* Known patterns: oom_patterns.def, oom_settings.def. */
#include "analyzer/base/each.h"
#include "analyzer/oom/oom_sight.h"
#include "analyzer/oom/oom_words.h"
#include "analyzer/site/owner.h"

#include <string.h>

struct row {
    const char *file, *function;
    struct oom_holder holder;
};
static const struct row holders[] = {
#define HOLDER(file, function, share, what, advice) {file, function, {what, advice, share}},
#define CALLED(...)
#define COPY(...)
#define FINDER(...)
#include "analyzer/oom/oom_patterns.def"
};
static const struct {
    const char *symbol, *caller;
    struct oom_holder holder;
} called[] = {
#define HOLDER(...)
#define CALLED(symbol, caller, share, what, advice) {symbol, caller, {what, advice, share}},
#define COPY(...)
#define FINDER(...)
#include "analyzer/oom/oom_patterns.def"
};
static const struct row copies[] = {
#define HOLDER(...)
#define CALLED(...)
#define COPY(file, function, what, advice) {file, function, {what, advice, 1}},
#define FINDER(...)
#include "analyzer/oom/oom_patterns.def"
};
static const struct row finders[] = {
#define HOLDER(...)
#define CALLED(...)
#define COPY(...)
#define FINDER(file, function) {file, function, {NULL, NULL, 0}},
#include "analyzer/oom/oom_patterns.def"
};

static const struct {
    enum oom_setting measure;
    const char *file, *setting;
} settings[] = {
#define SETTING(measure, file, setting) {OOM_SETTING_##measure, file, setting},
#define LIBRARY(...)
#include "analyzer/oom/oom_settings.def"
};

static const struct {
    const char *owner, *advice;
} libraries[] = {
#define SETTING(...)
#define LIBRARY(owner, advice) {owner, owner ": " advice},
#include "analyzer/oom/oom_settings.def"
};

const char *oom_library_advice(struct site_builder *b, uint32_t stack)
{
    const char *owner = stack != RUN_NONE ? site_owner_word(b, site_owner_of(b, stack)) : "";
    for (size_t i = 0; i < COUNT_OF(libraries); i++)
        if (strcmp(libraries[i].owner, owner) == 0) return libraries[i].advice;
    return NULL;
}

static bool pattern_matches(const struct run *run, uint32_t stack, const struct row *row)
{
    const bool optimizer = row->file && strcmp(row->file, "/torch/optim/") == 0;
    if (optimizer && run_stack_is_in_closure(run, stack)) return false; /* its step() only calls the program's step */
    return run_stack_is_in(run, stack, row->file, row->function);
}

static const struct oom_holder *first_matching_row(const struct row *rows, size_t n, const struct run *run,
                                                   uint32_t stack)
{
    for (size_t i = 0; stack != RUN_NONE && i < n; i++)
        if (pattern_matches(run, stack, &rows[i])) return &rows[i].holder;
    return NULL;
}

const struct oom_holder *oom_holder_of(struct run *run, uint32_t stack)
{
    for (size_t i = 0; stack != RUN_NONE && i < sizeof called / sizeof *called; i++)
        if (run_stack_calls(run, stack, called[i].symbol) && run_stack_calls(run, stack, called[i].caller))
            return &called[i].holder;
    return first_matching_row(holders, sizeof holders / sizeof *holders, run, stack);
}

const struct oom_holder *oom_keeper_of(const struct run *run, uint32_t stack)
{
    const struct oom_holder *known = first_matching_row(holders, sizeof holders / sizeof *holders, run, stack);
    for (size_t i = 0; known && i < sizeof holders / sizeof *holders; i++)
        if (known == &holders[i].holder && (!holders[i].file || strncmp(holders[i].file, "/torch/", 7) == 0))
            return NULL;
    return known;
}

bool oom_is_gathered_inside(const struct run *run, uint32_t stack, const struct result_holder *statement)
{
    const char *name = statement->function;
    RUN_EACH_FRAME (frame, run, stack) {
        if (!name) break;
        if (frame->kind != GS_FRAME_PYTHON || !frame->file) continue;
        if (strstr(frame->file, "/transformers/trainer")) return false;
        if (strcmp(frame->file, statement->file) == 0 && frame->function && strcmp(frame->function, name) == 0)
            return run_stack_is_in(run, stack, "/transformers/trainer", NULL);
    }
    return false;
}

bool oom_is_own_optimizer(const struct run *run, uint32_t stack)
{
    RUN_EACH_FRAME (frame, run, stack)
        if (frame->kind == GS_FRAME_PYTHON && !site_is_library(frame))
            return run_stack_is_in(run, run_stack_parent(run, stack), "/torch/optim/optimizer.py", "wrapper");
    return false;
}

const struct oom_holder *oom_copy_of(const struct run *run, uint32_t stack)
{
    return first_matching_row(copies, sizeof copies / sizeof *copies, run, stack);
}

bool oom_found_batch(const struct site_builder *b, const struct result_oom_verdict *v)
{
    for (size_t i = 0; v->handled && v->facts->stack != RUN_NONE && i < sizeof finders / sizeof *finders; i++)
        if (pattern_matches(b->run, v->facts->stack, &finders[i])) return true;
    return false;
}

const char *oom_setting_text(const struct oom_sight *s, enum oom_setting measure, const char *otherwise)
{
    static const enum result_category of[] = {RESULT_CATEGORY_ACTIVATIONS, RESULT_CATEGORY_INPUTS,
                                              RESULT_CATEGORY_OPTIMIZER_STATE};
    uint32_t stacks[COUNT_OF(of) + 1] = {s->f->stack};
    for (size_t i = 0; i < COUNT_OF(of); i++) stacks[i + 1] = s->of[of[i]].bytes ? s->of[of[i]].heaviest : RUN_NONE;
    EACH (row, settings, COUNT_OF(settings))
        if (row->measure == measure &&
            ANY_OF(stack, stacks, COUNT_OF(stacks), run_stack_is_in(s->b->run, *stack, row->file, NULL)))
            return row->setting;
    return otherwise;
}

const char *oom_setting_in(const struct oom_sight *s, enum oom_setting measure)
{
    const char *setting = oom_setting_text(s, measure, NULL);
    return setting ? TEXT(s, " (%s)", setting) : "";
}
