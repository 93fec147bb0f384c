/* Advice in the words of the framework that the program uses, by the table in idiom.def. */
#include "analyzer/question/question.h"

#include <string.h>
#include "analyzer/base/each.h"

enum framework { JAX, CUPY, TENSORFLOW, NUMBA, OTHERS, FRAMEWORKS, PYTORCH = FRAMEWORKS, OFFLOADED };

static const struct idiom {
    const char *part, *instead[FRAMEWORKS];
} idioms[] = {
#define IDIOM(part, jax, cupy, tensorflow, numba, others) {part, {jax, cupy, tensorflow, numba, others}},
#define OFFLOAD(part, words)
#define PATTERN(torch, plain)
#include "analyzer/question/idiom.def"
#undef IDIOM
#undef OFFLOAD
#undef PATTERN
};

static const struct words {
    const char *part, *instead;
} names[] =
    {
#define IDIOM(part, jax, cupy, tensorflow, numba, others)
#define OFFLOAD(part, words)
#define PATTERN(torch, plain) {torch, plain},
#include "analyzer/question/idiom.def"
#undef OFFLOAD
#undef PATTERN
},
  offload_rows[] = {
#define OFFLOAD(part, words) {part, words},
#define PATTERN(torch, plain)
#include "analyzer/question/idiom.def"
#undef IDIOM
#undef OFFLOAD
#undef PATTERN
};

/* By the package in which a frame's file is. A program that uses PyTorch on the GPU keeps PyTorch's words, whatever
 * else it calls; of the others the first in this list counts. */
static const struct {
    const char *package;
    enum framework framework;
} packages[] = {{"/torch/", PYTORCH},         {"/jax/", JAX},         {"/jaxlib/", JAX},         {"/jax_plugins/", JAX},
                {"/tensorflow/", TENSORFLOW}, {"/cupy/", CUPY},       {"/cupy_backends/", CUPY}, {"/cupyx/", CUPY},
                {"/numba/", NUMBA},           {"/numba_cuda/", NUMBA}};
enum { PACKAGES = sizeof packages / sizeof *packages };

/* The row of a frame's package; PACKAGES: none. A folder of the program may have a framework's name, and so may the one
 * that contains the environment. */
static size_t package_of(const struct run_frame *f)
{
    static const char installed[] = "-packages";
    const char *in = NULL, *path = f->kind == GS_FRAME_PYTHON ? f->file : f->module;
    for (const char *p = path; p && (p = strstr(p, installed)) != NULL;) in = p += strlen(installed);
    size_t i = in ? 0 : PACKAGES;
    while (i < PACKAGES && strncmp(in, packages[i].package, strlen(packages[i].package)) != 0) i++;
    return i;
}

/* The runtimes of gcc's, LLVM's and NVIDIA's compilers for OpenMP and OpenACC on a GPU. */
static bool is_offloading(const struct run_frame *f)
{
    static const char *const modules[] = {"libgomp-plugin-nvptx", "libomptarget", "libnvomp", "libacchost",
                                          "libaccdevice"};
    const char *slash = f->module ? strrchr(f->module, '/') : NULL;
    return slash && ANY_OF(m, modules, COUNT_OF(modules), strncmp(slash + 1, *m, strlen(*m)) == 0);
}

/* If no frame shows one of these: OTHERS, but PYTORCH of another tool's recording, which may lack such frames. The
 * innermost framework of a call path makes the call: JAX's arrays may be made within PyTorch's DataLoader, which uses
 * no GPU. */
static enum framework framework_of(const struct site_builder *b)
{
    const struct run *run = b->run;
    const size_t n = run_stack_count(run);
    bool *called = arena_alloc(b->arena, n + 1); /* it is another one's caller */
    size_t best = PACKAGES;
    bool offloads = false;
    memset(called, 0, n + 1);
    for (size_t i = 0; i < run_series_count(run); i++) {
        const struct run_series *series = run_series(run, (uint32_t)i);
        if (series->layer == RUN_SERIES_TENSOR && series->device >= 0) return PYTORCH;
    }
    for (size_t s = 0; s < n; s++) {
        const uint32_t parent = run_stack_parent(run, (uint32_t)s);
        if (parent < n) called[parent] = true;
    }
    for (size_t i = 0; i < n; i++) {
        const struct run_frame *f;
        size_t at = PACKAGES;
        for (uint32_t s = (uint32_t)i; !called[i] && at == PACKAGES && (f = run_stack_frame(run, s)) != NULL;
             s = run_stack_parent(run, s)) {
            at = package_of(f);
            offloads = offloads || is_offloading(f);
        }
        best = at < best ? at : best;
    }
    return best < PACKAGES ? packages[best].framework : b->report->imported ? PYTORCH : offloads ? OFFLOADED : OTHERS;
}

/* The name of a wait or copy: PyTorch's method or, without PyTorch, what CUDA does. */
static const char *plain_name(const char *pattern)
{
    for (size_t i = 0; pattern && i < sizeof names / sizeof *names; i++)
        if (strcmp(pattern, names[i].part) == 0) return names[i].instead;
    return pattern;
}

static const char *with_words(struct arena *arena, const char *text, const char *part, const char *instead)
{
    const char *at = text ? strstr(text, part) : NULL;
    return at ? arena_printf(arena, "%.*s%s%s", (int)(at - text), text, instead, at + strlen(part)) : text;
}

static const char *in_words_of(struct arena *arena, enum framework framework, const char *text)
{
    const size_t offloads = framework == OFFLOADED ? COUNT_OF(offload_rows) : 0;
    const enum framework column = framework == OFFLOADED ? OTHERS : framework;
    EACH (row, idioms, COUNT_OF(idioms))
        text = with_words(arena, text, row->part, row->instead[column] ? row->instead[column] : row->instead[OTHERS]);
    EACH (row, offload_rows, offloads) text = with_words(arena, text, row->part, row->instead);
    return text;
}

void question_use_plain_names(struct site_builder *b)
{
    struct result_report *r = b->report;
    if (framework_of(b) == PYTORCH) return;
    EACH_IN (s, r->syncs) s->pattern = plain_name(s->pattern);
    EACH_IN (s, r->sync_lines) s->pattern = plain_name(s->pattern);
}

void question_use_frameworks_words(struct site_builder *b)
{
    struct result_report *r = b->report;
    const enum framework framework = framework_of(b);
    r->other_framework = framework != PYTORCH;
    if (!r->other_framework) return;
    question_use_plain_names(b);
#define TRANSLATE(list, n, field) \
    for (size_t i = 0; i < (n); i++) (list)[i].field = in_words_of(b->arena, framework, (list)[i].field)
    EACH_IN (v, r->ooms) {
        TRANSLATE(v->measures, v->measures_n, text);
        for (size_t i = 0; i < v->advice_n; i++) v->advice[i] = in_words_of(b->arena, framework, v->advice[i]);
    }
    TRANSLATE(r->advice, r->advice_n, text);
    TRANSLATE(r->rank_findings, r->rank_findings_n, advice);
    TRANSLATE(r->syncs, r->syncs_n, advice);
    TRANSLATE(r->sync_lines, r->sync_lines_n, advice);
    TRANSLATE(r->transfers, r->transfers_n, advice);
    TRANSLATE(r->transfer_lines, r->transfer_lines_n, advice);
    TRANSLATE(r->churn, r->churn_n, advice);
    TRANSLATE(r->churn_lines, r->churn_lines_n, advice);
#undef TRANSLATE
}
