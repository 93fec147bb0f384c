#include "analyzer/whatif/whatif.h"

#include <stdio.h>
#include <stdlib.h>
#include "analyzer/whatif/parts.h"

const char *const whatif_doubt_texts[WHATIF_DOUBTS] = {
    "The program has private pools, so a request that fails here can succeed: a torch.cuda.MemPool with "
    "use_on_oom=True serves requests of other pools, and a snapshot does not state which requests a CUDA graph "
    "captured",
    "In the recording, a request failed and the program handled the error. If this request succeeds, the program then "
    "does something else; the replay goes on as recorded",
    "The program asks CUDA how much memory is free, and gets another answer than in the recording. If its sizes depend "
    "on the answer, they differ, too; the replay has the recorded sizes",
    "The program calls torch.cuda.set_per_process_memory_fraction, which overrides PYTORCH_CUDA_ALLOC_CONF. The replay "
    "assumes that you change that call",
    "gpuspy infers where a step of this program ends: memory that is freed there may be freed earlier or later",
    "The program makes decisions based on the size of the GPU (total_memory), which differs from the recording. If the "
    "sizes "
    "of its tensors depend on it, they differ, too; the replay has the recorded sizes",
    "The program makes decisions based on what PyTorch's allocator reserves or allocates (memory_reserved), which "
    "differs "
    "from the recording. The replay has the recorded sizes and frees",
    "The request that fails is in a try statement that handles the error, or in a thread of its own: the program would "
    "go on",
    "The program changes the settings of PyTorch's allocator, or its memory fraction, while it runs. The recording "
    "does not contain these changes; the replay assumes the same settings throughout",
    "In the recording, segments were freed because CUDA refused memory, or because the program emptied the cache. The "
    "recording states neither the reason nor the size of the GPU; --limit sets the size",
    "Other processes used the GPU, too, and their highest use does not fit beside this process's peak. The replay "
    "counts other memory only where the program queried CUDA",
    "gpuspy infers which tensors to scale from the calls that allocate and free them. It also scales tensors whose "
    "size does not follow the batch, such as a queue of fixed length. It scales tensors that follow the square of the "
    "batch, such as similarities of all pairs, only once",
    "The sizes of some requests are known to 1 MiB only: peaks under other settings can be too high by up to 1 MiB for "
    "each such block",
    "Other streams used some blocks until they were freed (record_stream). The replay assumes that these blocks "
    "wait as long as in the recording; if they do not wait, or wait longer, the result differs",
    "The size of CUDA's context on a GPU was not recorded. The replay assumes the size that it has on another GPU, or "
    "none",
    "The line allocates parameters or the optimizer's state, which later steps need",
    "Tensors of other lines outlive their step, too. If tensors of this line hold them, as the graph of an output "
    "does, the program frees more memory than the replay",
    "Several threads allocate tensors in turn, or the threads of backward() free tensors after it has returned: the "
    "order can differ from run to run",
    "The program sets PYTORCH_CUDA_ALLOC_CONF itself, whatever the variable was before. The replay assumes that you "
    "change that line",
    "Among free blocks of the same size, this version of PyTorch takes the one with the lowest address. CUDA may "
    "choose other addresses in another run, and then the result differs",
    "When the recording began, PyTorch had reserved more than fits here. The replay assumes that it had not cached the "
    "segments that were unused; what ran before the recording may need more",
    "A request had to free cached segments while another thread may have used a torch.cuda.MemPool, for example around "
    "backward(). While a pool is used, PyTorch before 2.13 does not free them, and the request fails",
    "The sizes of some tensors depend on how much this line keeps, for example the results of torch.cat and "
    "torch.stack. Without the line they are "
    "smaller than in the replay, which has the recorded sizes",
    "The program captures CUDA graphs, and graph_capture_record_stream_reuse differs from the recording. It determines "
    "when a capture reuses blocks that other streams used (record_stream); the replay reuses them as recorded",
    "Another line frees tensors of this line in a later step, which may use them, such as a batch that was loaded in "
    "advance. Then the program fails without them",
    "The size of the request that PyTorch refused (throw_on_cudamalloc_oom) is known only by PyTorch's message, which "
    "rounds it to two decimals",
    "Tensors that other lines make later in the step outlive it, too. If they are computed from tensors of this line, "
    "their graph keeps those, and less memory is freed",
    "The program calls torch.cuda.empty_cache(), or captures CUDA graphs by capture_begin(). The recording lacks some "
    "of these calls that found nothing to free; with this change they may free segments",
    "The recording begins in the middle of the run: the replay begins with what PyTorch had reserved by then, not with "
    "what "
    "it would have reserved with this change",
};

static void keep_pending(void *self, const struct run_pending *pending)
{
    struct whatif *w = self;
    *ARENA_ADD(w->pending) = *pending;
    const int64_t waited = pending->done_ns == RUN_NEVER ? 0 : pending->done_ns - pending->free_ns;
    if (waited > w->longest_wait) w->longest_wait = waited;
}

/* Why nothing can be replayed; NULL: something may be. */
static const char *missing_fact(const struct run *run)
{
    static const enum run_fact needed[] = {RUN_FACT_MEMORY, RUN_FACT_HISTORY, RUN_FACT_TENSORS, RUN_FACT_SEGMENTS};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const char *why = run_why_unknown(run, needed[i]);
        if (why) return why;
    }
    return NULL;
}

static void forget_devices(struct whatif *w)
{
    for (size_t i = 0; i < w->devices_n; i++) {
        ARENA_RELEASE(w->devices[i].bases, w->devices[i].flushes, w->devices[i].retries, w->devices[i].switches,
                      w->devices[i].ends, w->devices[i].pieces, w->devices[i].streams, w->devices[i].unsplit);
        MAP_RELEASE(&w->devices[i].failed_on, &w->devices[i].failed_in);
        whatif_facts_free(&w->devices[i].facts);
    }
    w->devices_n = 0;
    map_free(&w->device_at);
    w->device_at = (struct map){0};
}

static bool prove_as(struct whatif *w, size_t assumed, char *error, size_t error_size)
{
    forget_devices(w);
    w->assumed = assumed;
    w->parted_blocks = 0;
    w->proof = (struct whatif_proof){0};
    return whatif_prove(w, error, error_size);
}

/* Replays as another version until it diverges. False: it diverges no later than `w` did. Else `w` becomes the result
 * of that replay. */
static bool reproduces_more(struct whatif *w, size_t assumed, bool *ok, char *error, size_t error_size)
{
    struct whatif other = *w;
    other.devices = NULL;
    other.device_at = (struct map){0};
    other.devices_n = other.devices_cap = 0;
    other.until_parted = true;
    *ok = prove_as(&other, assumed, error, error_size);
    w->arena = other.arena; /* grew */
    const bool more = *ok && (!other.proof.parted_at_event || other.parted_blocks > w->parted_blocks);
    struct whatif *loser = more ? w : &other;
    forget_devices(loser);
    free(loser->devices);
    if (more) *w = other;
    w->until_parted = false;
    return more;
}

/* A recording that does not state PyTorch's version is replayed as the version that reproduces most of it before the
 * replay diverges. */
static bool prove_replay(struct whatif *w, char *error, size_t error_size)
{
    bool ok = prove_as(w, 0, error, error_size), partial = false;
    if (!ok || !w->proof.torch_assumed) return ok;
    for (size_t i = 1; ok && w->proof.parted_at_event && i < WHATIF_ASSUMED_N; i++)
        if (reproduces_more(w, i, &ok, error, error_size)) partial = w->proof.parted_at_event != 0;
    return ok && partial ? prove_as(w, w->assumed, error, error_size) : ok;
}

struct whatif *whatif_start(struct run *run, const struct step_list *const *steps, size_t steps_n, char *error,
                            size_t error_size)
{
    const char *why = missing_fact(run);
    if (why) {
        snprintf(error, error_size, "nothing can be replayed: %s", why);
        return NULL;
    }
    struct whatif *w = arena_realloc(NULL, 1, sizeof *w);
    size_t processes;
    *w = (struct whatif){.run = run,
                         .processes = run_processes(run, &processes),
                         .steps = steps,
                         .steps_n = steps_n,
                         .imported = run_why_unknown(run, RUN_FACT_WAITS) != NULL,
                         .owners_n = run_stack_count(run)};
    w->owners = arena_alloc(&w->arena, w->owners_n + 1);
    w->sources = (struct site_builder){.run = run, .arena = &w->arena};
    w->begins = arena_alloc(&w->arena, w->owners_n + 1);
    w->after = arena_alloc(&w->arena, w->owners_n + 1);
    w->callers = arena_alloc(&w->arena, w->owners_n + 1);
    w->spread = arena_alloc(&w->arena, w->owners_n + 1);
    for (uint32_t i = 0; i < processes; i++) allocator_each_pending(run, i, keep_pending, w);
    if (whatif_find_before(w, error, error_size) && prove_replay(w, error, error_size)) return w;
    whatif_free(w);
    return NULL;
}

const struct whatif_proof *whatif_proof(const struct whatif *w)
{
    return &w->proof;
}

void whatif_free(struct whatif *w)
{
    if (!w) return;
    forget_devices(w);
    if (w->categorizer) category_finder_free(w->categorizer);
    category_uses_free(w->uses);
    MAP_RELEASE(&w->parameters, &w->gradients, &w->activations, &w->graders, &w->varying);
    ARENA_RELEASE(w->sources.codes, w->devices, w->pending, w->before);
    arena_free(&w->arena);
    free(w);
}
