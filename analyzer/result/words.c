/* The result's small numbers in the words of JSON and of people. */
#include "analyzer/result/result.h"

#include <math.h>
#include <signal.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/each.h"
#include "analyzer/base/words.h"

static const char *const series_words[RUN_SERIES_LAYERS] = {
    [RUN_SERIES_DEVICE] = "device", [RUN_SERIES_TENSOR] = "tensor", [RUN_SERIES_PINNED] = "pinned",
    [RUN_SERIES_HOST] = "host",     [RUN_SERIES_SHARED] = "shared", [RUN_SERIES_GRAPH] = "graph",
};

const char *result_series_word(enum run_series_layer layer)
{
    return (unsigned)layer < RUN_SERIES_LAYERS ? series_words[layer] : "unknown";
}

WORDS_FUNCTION(result_held_word, enum result_held, RESULT_HELDS, WORDS_FIRST, "unaccounted")
WORDS_FUNCTION(result_cause_word, enum result_cause, RESULT_OOM_CAUSES, WORDS_FIRST, words[RESULT_CAUSE_CAPACITY])
WORDS_FUNCTION(result_cause_title, enum result_cause, RESULT_OOM_CAUSES, WORDS_SECOND, words[RESULT_CAUSE_CAPACITY])

const char *result_certainty_word(enum result_certainty certainty)
{
    return certainty == RESULT_CERTAINTY_RECORDED   ? "recorded"
           : certainty == RESULT_CERTAINTY_INFERRED ? "inferred"
                                                    : "guessed";
}

const char *result_outcome_word(enum result_oom_outcome outcome)
{
    static const char *const words[] = {"retried", "handled", "ended_run", "unknown"};
    return words[outcome];
}

WORDS_FUNCTION(result_phase_word, enum result_phase, RESULT_PHASES, WORDS_FIRST, NULL)
WORDS_FUNCTION(result_category_word, enum result_category, RESULT_CATEGORIES, WORDS_FIRST, "unknown")

const char *result_category_text(enum result_category category)
{
    return category == RESULT_CATEGORY_OPTIMIZER_STATE ? "optimizer state"
           : category == RESULT_CATEGORY_KV_CACHE      ? "KV cache"
                                                       : result_category_word(category);
}

WORDS_FUNCTION(result_owner_kind_word, enum result_owner_kind, RESULT_OWNER_KINDS, WORDS_FIRST, words[0])

WORDS_FUNCTION(result_level_key, enum result_level, RESULT_LEVELS, WORDS_FIRST, NULL)
WORDS_FUNCTION(result_level_text, enum result_level, RESULT_LEVELS, WORDS_SECOND, NULL)

WORDS_FUNCTION(result_moment_key, int, ESTIMATE_PHASES, WORDS_FIRST, NULL)
WORDS_FUNCTION(result_moment_text, int, ESTIMATE_PHASES, WORDS_SECOND, NULL)

const struct run_device *result_device_of(const struct result_report *r, int device)
{
    return FIND_IN(d, r->devices, d->device == device);
}

const struct result_device_memory *result_memory_of(const struct result_report *r, uint32_t process, int device)
{
    return FIND_IN(m, r->memory, m->process == process && m->device == device);
}

const struct result_timeline *result_timeline_of(const struct result_report *r, uint32_t process, int device,
                                                 enum run_series_layer layer)
{
    return FIND_IN(t, r->timelines, t->process == process && t->device == device && t->layer == layer);
}

bool result_rank_unknown(const struct result_report *r, enum result_rank_figure figure)
{
    const bool waits = figure == RESULT_RANK_WAITED || figure == RESULT_RANK_WAITS;
    const bool copies = figure == RESULT_RANK_COPIED || figure == RESULT_RANK_COPIES;
    return (waits && r->unknown[RUN_FACT_WAITS]) || (copies && r->unknown[RUN_FACT_COPIES]);
}

/* A failure inside a framework's own pool makes no CUDA call fail, nor does a lack of the host's memory, or a request
 * that PyTorch refuses because of throw_on_cudamalloc_oom. */
static bool failed_without_call(const struct result_report *r)
{
    return ANY_IN(p, r->preallocations, !p->within) || ANY_IN(p, r->processes, result_names_memory(p->exception));
}

/* A call of CUDA that gpuspy does not record as an allocation failed: one that makes a context, loads code, … */
static bool names_cuda_memory(const char *exception)
{
    static const char *const words[] = {"CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY",
                                        "cudaErrorMemoryAllocation"};
    return exception && ANY_OF(w, words, COUNT_OF(words), strstr(exception, *w));
}

bool result_lacked_context(const struct result_report *r)
{
    if (r->ooms_n) return false;
    EACH_IN (p, r->processes) {
        const uint32_t process = (uint32_t)(p - r->processes);
        if (names_cuda_memory(p->exception) && !r->imported &&
            !ANY_IN(peak, r->peaks, peak->process == process && peak->device >= 0 && peak->bytes > 0))
            return true;
    }
    return false;
}

/* ONNX Runtime: its arena would exceed gpu_mem_limit. */
bool result_names_arena_limit(const char *exception)
{
    return exception && strstr(exception, "bfc_arena.cc") && strstr(exception, "is smaller than requested bytes of");
}

/* The words of XLA (JAX), TensorFlow and RMM. A server's quota and a gRPC message that is too long are
 * RESOURCE_EXHAUSTED as well; TensorFlow also names the host's memory. */
bool result_names_pool(const char *exception)
{
    static const char *const memory[] = {"memory", "allocat"};
    if (!exception || strstr(exception, "device:CPU:0 by allocator")) return false;
    if (result_names_arena_limit(exception) || strstr(exception, "ResourceExhaustedError") ||
        strstr(exception, "OOM when allocating") || strstr(exception, "pool size exceeded"))
        return true;
    return strstr(exception, "RESOURCE_EXHAUSTED") && ANY_OF(word, memory, COUNT_OF(memory), strstr(exception, *word));
}

/* The exception that ended a process names a limit, or the memory of a framework that had preallocated the GPU in it.
 */
static bool ran_out_in_pool(const struct result_report *r)
{
    return ANY_IN(p, r->processes, result_names_arena_limit(p->exception)) ||
           ANY_IN(p, r->preallocations,
                  p->in_advance && !p->within && p->process < r->processes_n &&
                      result_names_pool(r->processes[p->process].exception));
}

/* PyTorch's own words, since 2.12. */
static bool was_rejected(const struct result_report *r)
{
    return ANY_IN(p, r->processes, p->exception && strstr(p->exception, "preemptively rejected"));
}

bool result_names_memory(const char *exception)
{
    static const char *const words[] = {"out of memory", "MemoryError"};
    return result_names_pool(exception) ||
           (exception && ANY_OF(word, words, COUNT_OF(words), strcasestr(exception, *word)));
}

bool result_was_killed(const struct result_report *r)
{
    char how[RUN_FAILURE_TEXT];
    bool killed = false, otherwise = false;
    EACH_IN (p, r->processes) {
        killed = killed || p->exit_signal == SIGKILL;
        otherwise = otherwise || (p->exit_signal != SIGKILL && run_process_failure(p, how, sizeof how));
    }
    return killed && !otherwise;
}

const char *result_outcome_text(const struct result_report *r)
{
    return r->loop                                               ? "Stopped in a loop"
           : r->failed_unknown                                   ? "CUDA ran out of memory; the amount is unknown"
           : r->no_history || r->no_memory || r->outcome_unknown ? "Whether memory ran out is unknown"
           : r->ooms_n && r->ooms[0].handled                     ? "Memory ran out, and the program handled it"
           : was_rejected(r) ? "No CUDA call ran out of memory: PyTorch refused the request (throw_on_cudamalloc_oom)"
           : result_lacked_context(r) ? "CUDA ran out of memory before the first allocation"
           : ANY_IN(p, r->processes, names_cuda_memory(p->exception))
               ? "CUDA ran out of memory, but no recorded allocation failed"
           : ran_out_in_pool(r)     ? "Memory ran out inside the framework's own pool, without a CUDA call"
           : failed_without_call(r) ? "No CUDA call ran out of memory"
           : r->imported            ? "Memory did not run out while it was recorded"
           : result_was_killed(r)   ? "GPU memory did not run out"
                                    : "Memory did not run out";
}

const char *result_outcome_hint(const struct result_report *r)
{
    return r->ooms_n && r->ooms[0].fatal ? NULL
           : result_was_killed(r) ? "The kernel sends SIGKILL if host memory, or a container's limit of it, runs out: "
                                    "dmesg shows whether it "
                                    "did. gpuspy records only pinned host memory."
           : result_lacked_context(r)
               ? "Probably the CUDA context did not fit: other processes hold the GPU (nvidia-smi lists them), or host "
                 "memory is limited (ulimit -v)."
               : NULL;
}

double result_bytes_or_nan(int64_t bytes)
{
    return bytes == RUN_UNKNOWN ? (double)NAN : (double)bytes;
}
