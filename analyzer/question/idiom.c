/* Advice in the words of the framework that the program uses, by the table in idiom.def. */
#include "analyzer/question/question.h"

#include <string.h>

enum framework { JAX, CUPY, TENSORFLOW, NUMBA, OTHERS, FRAMEWORKS, PYTORCH = FRAMEWORKS };

static const struct idiom {
    const char *part, *instead[FRAMEWORKS];
} idioms[] = {
#define IDIOM(part, jax, cupy, tensorflow, numba, others) {part, {jax, cupy, tensorflow, numba, others}},
#include "analyzer/question/idiom.def"
#undef IDIOM
};

/* By a part of a Python file's path. A program that calls PyTorch keeps PyTorch's words, whatever else it calls; of
 * the others the first in this list counts. */
static const struct {
    const char *part;
    enum framework framework;
} files[] = {{"/torch/", PYTORCH},      {"/jax/", JAX},    {"/tensorflow/", TENSORFLOW}, {"/cupy/", CUPY},
             {"/cupy_backends/", CUPY}, {"/cupyx/", CUPY}, {"/numba/", NUMBA},           {"/numba_cuda/", NUMBA},
             {"/rmm/", OTHERS},         {"/warp/", OTHERS}};
enum { FILES = sizeof files / sizeof *files };

/* PYTORCH also if no frame shows a framework. */
static enum framework framework_of(const struct run *run)
{
    size_t best = FILES, processes_n;
    const struct run_process *p = run_processes(run, &processes_n);
    for (size_t i = 0; i < processes_n; i++)
        if (p[i].torch_version) return PYTORCH;
    for (size_t s = 0; s < run_stack_count(run); s++) {
        const struct run_frame *f = run_stack_frame(run, (uint32_t)s);
        const char *path = !f ? NULL : f->kind == GS_FRAME_PYTHON ? f->file : f->module;
        for (size_t i = 0; path && i < best; i++)
            if (strstr(path, files[i].part)) best = i;
    }
    return best < FILES ? files[best].framework : PYTORCH;
}

static const char *in_words_of(struct arena *arena, enum framework framework, const char *text)
{
    for (size_t i = 0; text && i < sizeof idioms / sizeof *idioms; i++) {
        const char *at = strstr(text, idioms[i].part);
        const char *instead = idioms[i].instead[framework] ?: idioms[i].instead[OTHERS];
        if (at) text = arena_printf(arena, "%.*s%s%s", (int)(at - text), text, instead, at + strlen(idioms[i].part));
    }
    return text;
}

void question_use_frameworks_words(struct site_builder *b)
{
    struct result_report *r = b->report;
    const enum framework framework = framework_of(b->run);
    r->other_framework = framework != PYTORCH;
    if (!r->other_framework) return;
#define TRANSLATE(list, n, field) \
    for (size_t i = 0; i < (n); i++) (list)[i].field = in_words_of(b->arena, framework, (list)[i].field)
    for (size_t o = 0; o < r->ooms_n; o++) {
        struct result_oom_verdict *v = &r->ooms[o];
        TRANSLATE(v->measures, v->measures_n, text);
        for (size_t i = 0; i < v->advice_n; i++) v->advice[i] = in_words_of(b->arena, framework, v->advice[i]);
    }
    TRANSLATE(r->advice, r->advice_n, text);
    TRANSLATE(r->syncs, r->syncs_n, advice);
    TRANSLATE(r->sync_lines, r->sync_lines_n, advice);
    TRANSLATE(r->transfers, r->transfers_n, advice);
    TRANSLATE(r->transfer_lines, r->transfer_lines_n, advice);
    TRANSLATE(r->churn, r->churn_n, advice);
    TRANSLATE(r->churn_lines, r->churn_lines_n, advice);
#undef TRANSLATE
}
