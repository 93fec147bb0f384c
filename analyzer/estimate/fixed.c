/* What depends neither on the batch nor on the model's own tensors: the CUDA context, workspaces, NCCL's buffers, and
 * what the caching allocator takes in addition to the requests. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/estimate/activations.h"
#include "analyzer/estimate/calibration.h"
#include "analyzer/base/arena.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/replay.h"
#include "analyzer/estimate/serving.h"
#include "analyzer/estimate/shard.h"
#include "analyzer/estimate/states.h"

#define MIB 1048576.0
#define GIB (1024 * MIB)

static const char own[] = "your own recordings (gpuspy calibrate)";
static const char own_why[] = "the lowest and highest value in your own recordings";

/* Published measurements, with kernels loaded lazily as CUDA does since 12.2: 110 MiB (RTX 3060, 28 multiprocessors),
 * 287 MB (V100, 80), 426 MiB (RTX 6000 Ada, 142), 0.47 GiB and more (A100, 108; H100, 132): 3.0 to 4.5 MiB per
 * multiprocessor, for which the context reserves its threads' local memory. Kernels of the libraries in use come on
 * top: up to 0.9 GiB if an A100 has loaded all of them. */
#define CONTEXT_LOW (2.9 * MIB)
#define CONTEXT_LIKELY (3.9 * MIB)
#define CONTEXT_HOPPER (5.7 * MIB) /* our own: 742 to 758 MiB on an H200 (132), PyTorch 2.11 with CUDA 13 */
#define CONTEXT_HIGH (8.5 * MIB)

static bool is_hopper(const struct plan *p)
{
    double capability = p->gpu && p->gpu->capability ? atof(p->gpu->capability) : 0;

    return capability >= 9 && capability < 10;
}

/* PyTorch before 1.13 loads all kernels with the context: Hugging Face's 12 figures of BERT (1.4, TITAN RTX) are 0.31
 * GiB higher, and its V100 shows 1,343 MiB with one tiny tensor (1.10), 1.0 GiB more. */
static void add_all_kernels(const struct plan *p, struct estimate_line *line)
{
    if (p->loads_all_kernels)
        line->bytes = estimate_interval_add(line->bytes, (struct estimate_interval){0.2 * GIB, 0.31 * GIB, GIB});
}

static void add_context_line(const struct plan *p, struct estimate_result *r)
{
    struct estimate_calibrated seen = estimate_calibration_context(p->calibration, p->gpu);
    struct estimate_line *line;

    if (p->context > 0) {
        line = estimate_add(r, ESTIMATE_CONTEXT, estimate_phases(p), "CUDA context and kernels", EXACTLY(p->context));
        estimate_explain(line, "--context-size", "as given");
        return;
    }
    if (seen.runs) {
        line = estimate_add(r, ESTIMATE_CONTEXT, estimate_phases(p), "CUDA context and kernels",
                            estimate_calibrated_interval(&seen));
        estimate_explain(line, own, "measured in %zu recorded runs", seen.runs);
        line->why = own_why;
        return;
    }
    if (p->gpu && p->gpu->multiprocessors > 0 && p->gpu->simulated) {
        const double n = p->gpu->multiprocessors, each = is_hopper(p) ? CONTEXT_HOPPER : CONTEXT_LIKELY;
        line = estimate_add(r, ESTIMATE_CONTEXT, estimate_phases(p), "CUDA context and kernels",
                            (struct estimate_interval){n * CONTEXT_LOW, n * each, n * CONTEXT_HIGH});
        estimate_explain(line, "measurements of six GPUs, kernels loaded lazily",
                         "%.0f multiprocessors · %.1f MiB (2.9 to 8.5)", n, each / MIB);
        line->why = "depends on driver and libraries; more if all kernels are loaded at once";
        add_all_kernels(p, line);
        return;
    }
    line = estimate_add(r, ESTIMATE_CONTEXT, estimate_phases(p), "CUDA context and kernels",
                        (struct estimate_interval){280 * MIB, 500 * MIB, 900 * MIB});
    estimate_explain(line, "published measurements: 287 MB to 0.9 GiB, kernels loaded lazily",
                     "a context, and the kernels that a program uses");
    line->why = "depends on driver, GPU and libraries; more than 1 GiB if all kernels are loaded at once";
    add_all_kernels(p, line);
}

/* ATen/cuda/CublasHandlePool.cpp: a workspace for each handle and stream, from the caching allocator: 2 of 4096 KiB and
 * 8 of 16 KiB; on Hopper 32 MiB. Backward runs in its own thread, with its own handle (measured on PyTorch 2.6 and
 * 2.11). PyTorch 2.11 adds 1 MiB for cuBLASLt. */
#define CUBLAS 8519680.0
#define CUBLAS_HOPPER 33554432.0

static double workspace_of(const struct plan *p)
{
    return is_hopper(p) ? CUBLAS_HOPPER : CUBLAS;
}

/* Transformer Engine has one for its matrix products, and one on each of four streams for those of experts. */
static void add_engine_workspaces(const struct plan *p, struct estimate_result *r)
{
    const bool large = !p->gpu || !p->gpu->capability || atof(p->gpu->capability) >= 9;
    const double one = large ? 32 * MIB : 4 * MIB, grouped = p->model->shape.experts ? 4 * one : 0;
    struct estimate_line *line;

    if (p->runtime != PLAN_RUNTIME_MEGATRON) return;
    line = estimate_add(r, ESTIMATE_WORKSPACE, estimate_phases(p), "Transformer Engine",
                        (struct estimate_interval){0, one + grouped, one + grouped});
    estimate_explain(line, "Transformer Engine's get_cublas_workspace_size_bytes, num_cublas_streams", "%.0f B%s", one,
                     grouped > 0 ? " · (1 + 4 streams)" : "");
    line->why = "none without Transformer Engine, one without grouped products of experts";
}

static void add_workspaces(const struct plan *p, struct estimate_result *r)
{
    struct estimate_calibrated seen = estimate_calibration_workspace(p->calibration, p->gpu);
    double handles = p->inference ? 1 : 2, one = workspace_of(p);
    struct estimate_line *line;
    bool known = p->gpu && p->gpu->capability;

    if (seen.runs) {
        line = estimate_add(r, ESTIMATE_WORKSPACE, estimate_phases(p), "cuBLAS and cuDNN",
                            estimate_calibrated_interval(&seen));
        estimate_explain(line, own, "measured in %zu recorded runs", seen.runs);
        line->why = own_why;
        return;
    }
    known = known && atof(p->gpu->capability) < 10;
    line = estimate_add(r, ESTIMATE_WORKSPACE, estimate_phases(p), "cuBLAS",
                        (struct estimate_interval){p->inference ? 0 : one, handles * one,
                                                   handles * (known ? one : CUBLAS_HOPPER) + MIB});
    /* its deterministic mode needs CUBLAS_WORKSPACE_CONFIG=:4096:8 */
    if (p->runtime == PLAN_RUNTIME_MEGATRON) line->bytes.high = handles * CUBLAS_HOPPER + MIB;
    estimate_explain(line, "aten/src/ATen/cuda/CublasHandlePool.cpp; measured on PyTorch 2.6 and 2.11",
                     "%.0f B · %.0f handle%s", one, handles, handles > 1 ? "s (forward, backward)" : "");
    line->why = !known         ? "32 MiB per handle on Hopper; add --gpu to name the GPU"
                : p->inference ? "low: Qwen3's published peaks of prompts of one token contain no workspace"
                               : "PyTorch 2.11 keeps 1 MiB for cuBLASLt";
}

static void add_nccl(const struct plan *p, struct estimate_result *r)
{
    const struct {
        const char *name;
        uint64_t gpus;
    } groups[] = {{"data", plan_dp(p)}, {"tensor", p->tp}, {"pipeline", p->pp}, {"context", p->cp}, {"expert", p->ep}};
    const double connection = 9.2 * MIB;
    double n = 0;
    char names[96] = "";
    struct estimate_line *line;

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        size_t used = (size_t)snprintf(NULL, 0, "%s", names);
        if (groups[i].gpus <= 1 || (p->inference && i == 0)) continue;
        snprintf(names + used, sizeof names - used, "%s%s", n > 0 ? ", " : "", groups[i].name);
        n++;
    }
    if (n <= 0) return;
    line = estimate_add(r, ESTIMATE_COMMUNICATION, estimate_phases(p), "NCCL communicators",
                        (struct estimate_interval){n * 4 * 2 * connection, n * 16 * 2 * connection, n * 1.6e9});
    estimate_explain(line, "published measurements: 9.2 MiB per connection and channel, 0.5 to 1.6 GB per communicator",
                     "%.0f group%s (%s) · 16 channels · 2 connections · 9.2 MiB", n, n > 1 ? "s" : "", names);
    line->why = "4 to 32 channels, depending on topology and NCCL's version; trees and NVLS add connections";
}

/* Each block is a multiple of 512 bytes. Flat shards (ZeRO) have few blocks. */
static double rounded_bytes(const struct plan *p, uint64_t stage)
{
    double waste = 0, element = estimate_states_element(p);
    struct estimate_shard s;

    EACH_IN (t, p->model->tensors) {
        const double kinds[] = {p->precision->weights, p->precision->gradients};
        if (t->dims == 0 || !estimate_shard_of(p, stage, t, &s)) continue;
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
            double bytes = s.rows * s.cols * kinds[k];
            waste += s.count * (ceil(bytes / 512) * 512 - bytes);
        }
        waste +=
            s.count * p->optimizer->copies * (ceil(s.rows * s.cols * element / 512) * 512 - s.rows * s.cols * element);
    }
    return waste;
}

static void add_rounding(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    double bytes;
    struct estimate_line *line;

    if (p->inference || p->adapter != PLAN_ADAPTER_NONE || p->sharding != PLAN_SHARDING_DDP) return;
    bytes = rounded_bytes(p, stage);
    if (bytes < 1) return;
    line = estimate_add(r, ESTIMATE_ALLOCATOR, IN_PHASE(BACKWARD) | IN_PHASE(STEP), "blocks of 512 B", EXACTLY(bytes));
    estimate_explain(line, "c10/cuda/CUDACachingAllocator.cpp: kMinBlockSize",
                     "weights, gradients and states, each tensor rounded up");
}

/* Holes between blocks and the ends of segments: how much more memory than its peak of allocated bytes a GPU needs for
 * a training to complete. Found by halving a cap on PyTorch 2.11 (a run that fits only after whole free segments were
 * given back counts as fitting), in four steps of AdamW, as a share of short-lived memory at the peak: ResNet-50,
 * autocast 1 %; BERT large, float32 2 %; GPT-2, float32 4 %; Llama 1B, bfloat16 6 %; GPT-2 medium, autocast 6 %; GPT-2,
 * autocast, lengths that vary 7 %; Llama 1B, checkpointing 10 %; Llama 8B, bfloat16 10 %. If there is room for more, up
 * to 41 % over it is reserved. */
#define HOLES_LOW 0.01
#define HOLES_LIKELY 0.06
#define HOLES_HIGH_TOWERS 0.60 /* recomputed layers of two widths: 47 % was the most (SigLIP) */
#define HOLES_HIGH 0.30 /* three times the most that was needed: for cached segments, and lengths that vary more */
#define HOLES_HIGH_TRAINED 0.25
#define HOLES_HIGH_EXPANDABLE 0.15 /* half more than was needed: lengths that vary reuse pages */
#define REPLAY_LOW 0.5
#define REPLAY_LOW_CONV 0.75 /* a convolutional network makes its requests in one order */
#define REPLAY_HIGH 1.25
#define BLOCKS_SURE 0.04    /* the most by which blocks exceeded requests in litgpt's and our own trainings: 3.1 % */
#define REPLAY_SURE 0.02    /* how close the replay comes to what PyTorch allocates on the simulated GPU */
#define CUDNN_COPIES 2      /* of the largest tensor of a convolution */
#define SEGMENTS (22 * MIB) /* the ends of a small segment, 2 MiB, and of a large one, 20 MiB */

static struct estimate_interval scale_interval(struct estimate_interval bytes, struct estimate_interval share)
{
    return (struct estimate_interval){ceil(bytes.low * share.low), ceil(bytes.likely * share.likely),
                                      ceil(bytes.high * share.high)};
}

/* The largest sum of a phase: of all lines, or only of short-lived ones. Buckets do not count among these: they have
 * few sizes and are reused. */
static struct estimate_interval largest_tensor(const struct plan *p, const struct estimate_result *r, bool all)
{
    struct estimate_interval most = {0};

    for (int phase = 0; phase < ESTIMATE_PHASES_N; phase++) {
        struct estimate_interval sum = {0};
        EACH_IN (l, r->lines) {
            unsigned active = l->phases & estimate_phases(p);
            if (!l->host && (active & 1u << phase) &&
                (all || (active != estimate_phases(p) && l->part != ESTIMATE_BUCKETS)))
                sum = estimate_interval_add(sum, l->bytes);
        }
        most = sum.likely > most.likely ? sum : most;
    }
    return most;
}

/* Bytes that PyTorch does not allocate. */
static double outside_of(const struct estimate_result *r)
{
    double sum = 0;

    EACH_IN (l, r->lines) sum += l->part == ESTIMATE_CONTEXT || l->part == ESTIMATE_COMMUNICATION ? l->bytes.likely : 0;
    return sum;
}

/* What max_memory_allocated() counts in addition to the requests: the ends of blocks, when most bytes are allocated.
 * A replay that shows more than such ends has tensors that the lines do not. */
static void add_blocks(const struct plan *p, double live, double allocated, double unsure, struct estimate_result *r)
{
    const double more = fmax(0, allocated - live);
    const bool ends = more <= BLOCKS_SURE * live;
    struct estimate_line *line =
        estimate_add(r, ESTIMATE_ALLOCATOR, estimate_phases(p),
                     ends ? "blocks, larger than requests" : "blocks, and tensors that only the replay has",
                     (struct estimate_interval){0, ceil(more), ceil(more + unsure)});

    estimate_explain(line, "c10/cuda/CUDACachingAllocator.cpp: kMinLargeAlloc",
                     "%.2f GiB allocated - the %.2f GiB above", fmax(live, allocated) / GIB, live / GIB);
    line->why = ends ? "a block of 1 MiB and more is not split if less than 1 MiB would be left"
                     : "low: none, as the lines above; expected: as in the replay of the requests";
}

/* The replay of `like`, another plan in the place of `p` unless they are one. Then what is cached beside its tensors is
 * cached beside `live` bytes, or a part of it if these are fewer. */
static bool replay_as(const struct plan *p, const struct plan *like, double live, double room, bool converts,
                      struct estimate_replay_peaks *out)
{
    struct estimate_replay_peaks free;
    double part;

    if (p == like) return estimate_replay(p, room, workspace_of(p), converts, out);
    if (!estimate_replay(like, INFINITY, workspace_of(p), converts, &free)) return false;
    part = fmin(1, live / fmax(1, free.allocated));
    *out = free;
    if (isfinite(room))
        estimate_replay(like, fmax(free.allocated, free.allocated + (room - live) / part), workspace_of(p), converts,
                        out);
    out->reserved = live + part * fmax(0, out->reserved - free.allocated);
    out->largest *= part;
    out->allocated = live;
    return true;
}

/* `records`: of plan.varying_lengths. */
static double reserved_with_lengths(const struct plan *p, const struct plan *like, double live, unsigned records,
                                    double room, bool converts)
{
    struct estimate_replay_peaks peaks = {0};
    struct plan one = *like;

    one.varying_lengths = records;
    if (!replay_as(p == like ? &one : p, &one, live, room, converts, &peaks) || !peaks.fits)
        replay_as(p == like ? &one : p, &one, live, INFINITY, converts, &peaks);
    return peaks.reserved;
}

/* Its segment, split by smaller tensors, needs a second; cuDNN's workspaces may copy what a convolution reads and
 * makes, where no cached segment is as large: two MobileNets took that much more. */
static double more_segments(const struct plan *p, double largest)
{
    if (p->model->shape.family != MODEL_CONV) return largest;
    return is_hopper(p) ? 0 : CUDNN_COPIES / REPLAY_HIGH * largest;
}

/* `holes` of the requests' order, if that is a little different. */
static double of_other_orders(const struct plan *p, double holes, double largest)
{
    return fmax(REPLAY_HIGH * holes, holes + REPLAY_HIGH * more_segments(p, largest)) + SEGMENTS;
}

/* What is cached beside `live` bytes is in the memory that is left, because the allocator frees it before it fails:
 * that of the largest GPU if none is named. */
static double room_for_lengths(const struct estimate_result *r, double room)
{
    double most = 0;

    for (size_t i = 0; i < estimate_gpu_count; i++) most = fmax(most, (double)estimate_gpus[i].total_bytes);
    return fmin(room, most - outside_of(r));
}

/* Low: as with equal lengths. High: with more of them before the longest comes. If even equal lengths leave no room for
 * what is cached, it is as theirs. */
static struct estimate_interval vary_lengths(const struct plan *p, const struct plan *like,
                                             const struct estimate_result *r, double room, bool converts, double live,
                                             const struct estimate_replay_peaks *within, double largest)
{
    const double equal = reserved_with_lengths(p, like, live, 0, room, converts) - live,
                 most = reserved_with_lengths(p, like, live, PLAN_MOST_RECORDS, INFINITY, converts) - live,
                 likely = fmax(0, within->fits && within->reserved <= room ? within->reserved - live : equal),
                 orders = of_other_orders(p, equal, largest) - equal,
                 left = room - (largest_tensor(p, r, true).high - outside_of(r));

    return (struct estimate_interval){fmax(0, fmin(likely, equal)), likely,
                                      fmax(fmax(likely, equal + orders), fmin(most + orders, left))};
}

/* The replay of another plan shows no more than how such a training caches: the range is at least that of any. */
static struct estimate_interval widen_likeness(const struct plan *p, const struct estimate_result *r,
                                               struct estimate_interval bytes)
{
    const struct estimate_interval any = scale_interval(
        largest_tensor(p, r, false),
        (struct estimate_interval){HOLES_LOW, HOLES_LIKELY, p->expandable ? HOLES_HIGH_EXPANDABLE : HOLES_HIGH});

    return (struct estimate_interval){fmin(bytes.low, any.low), fmax(bytes.likely, any.likely),
                                      fmax(bytes.high, any.high + SEGMENTS)};
}

/* A replay of PyTorch's allocator. On a GPU of known memory it frees cached segments before it fails, so that less is
 * reserved than with room for all of them. */
static bool add_replayed_reserve(const struct plan *p, double room, struct estimate_result *r)
{
    struct estimate_replay_peaks free, within, most;
    struct estimate_interval bytes;
    const bool converts = is_hopper(p), known = estimate_replay_knows(p), conv = p->model->shape.family == MODEL_CONV;
    struct estimate_line *line;
    struct plan other;
    struct model model;
    const struct plan *like = known ? p : &other;
    /* the replay covers only the trained model */
    const double beside = p->inference ? 0 : estimate_serving_beside_bytes(p);
    const struct estimate_interval all = largest_tensor(p, r, true);
    double holes, least, live = all.likely - outside_of(r) - beside;

    if (p->varying_lengths) room = room_for_lengths(r, room);
    room -= beside;
    if (!known && !estimate_replay_likeness(p, &other, &model)) return false;
    if (!replay_as(p, like, live, INFINITY, converts, &free)) return false;
    within = most = free;
    if (!converts && conv) estimate_replay(p, INFINITY, workspace_of(p), true, &most);
    if (free.reserved > room && replay_as(p, like, live, room, converts, &within) && !within.fits) within = free;
    add_blocks(p, live, free.allocated,
               conv    ? 0
               : known ? REPLAY_SURE * live
                       : BLOCKS_SURE * (all.high - outside_of(r)),
               r);
    live = fmax(live, free.allocated);
    holes = fmax(0, free.reserved - live);
    least = fmax(0, within.reserved - live);
    bytes = (struct estimate_interval){
        (conv ? REPLAY_LOW_CONV : REPLAY_LOW) * least, least,
        fmax(fmax(least + SEGMENTS, of_other_orders(p, holes, free.largest)), most.reserved - live)};
    if (p->varying_lengths) bytes = vary_lengths(p, like, r, room, converts, live, &within, free.largest);
    if (!known) bytes = widen_likeness(p, r, bytes);
    line =
        estimate_add(r, ESTIMATE_ALLOCATOR, estimate_phases(p), "cached segments, holes and ends of segments", bytes);
    estimate_explain(line,
                     p->varying_lengths ? "c10/cuda/CUDACachingAllocator.cpp, replayed for lengths in a random order"
                     : known            ? "c10/cuda/CUDACachingAllocator.cpp, replayed for three steps"
                                        : "c10/cuda/CUDACachingAllocator.cpp, replayed for plain layers of these sizes",
                     "%.2f GiB reserved - the %.2f GiB above", (live + bytes.likely) / GIB, live / GIB);
    line->why = p->varying_lengths
                    ? "low: all lengths are equal; high: more lengths before the longest; none if memory runs short"
                    : "the order of requests, and workspaces of cuDNN between them";
    return true;
}

static double activations_in(const struct estimate_result *r, enum estimate_phase phase, double *all)
{
    double sum = 0;

    *all = 0;
    EACH_IN (l, r->lines) {
        if (l->host || !(l->phases & 1u << phase)) continue;
        *all += l->bytes.likely;
        sum += l->part == ESTIMATE_ACTIVATIONS ? l->bytes.likely : 0;
    }
    return sum;
}

/* Segments that a pipeline's steps and its VAE leave cached: on the simulated GPU FLUX's and SDXL's steps reserved 2.2
 * times what was live, their VAEs 1.8 times, which is 0.6 of the line with workspaces. The VAE's tensors are too large
 * for the steps' segments. None if memory is short: the allocator frees them first. */
#define OWN_SEGMENT (10 * MIB)
#define SHARED_SEGMENT (20 * MIB)
#define SEGMENT_STEP (2 * MIB)
#define STEPS_CACHED 1.2
#define IMAGE_CACHED 0.6

static void add_cached(const struct plan *p, struct estimate_result *r)
{
    double all[2], steps = activations_in(r, PHASE_DENOISE, &all[0]), image = activations_in(r, PHASE_IMAGE, &all[1]);
    const double left = p->offload == PLAN_OFFLOAD_NONE ? (1 + STEPS_CACHED) * steps : 0;
    const double cached[2] = {STEPS_CACHED * steps, image > 0 ? IMAGE_CACHED * image + left : 0};
    static const enum estimate_phase phases[2] = {PHASE_DENOISE, PHASE_IMAGE};

    for (int i = 0; i < 2; i++) {
        const double room = p->memory > 0 ? fmax(0, p->memory - all[i]) : INFINITY, likely = fmin(cached[i], room);
        struct estimate_line *line;
        if (!(cached[i] > 0)) continue;
        line = estimate_add(r, ESTIMATE_ALLOCATOR, 1u << phases[i], "cached segments and holes",
                            (struct estimate_interval){fmin(0.02 * cached[i], likely), likely,
                                                       fmin(1.5 * cached[i], fmax(likely, room))});
        estimate_explain(line, "measured: PyTorch 2.11's allocator, FLUX, SDXL and their VAEs",
                         "%.1f of %.2f GiB of activations%s", i ? IMAGE_CACHED : STEPS_CACHED,
                         (i ? image : steps) / GIB, i && left > 0 ? ", and what the steps reserved" : "");
        line->why = "none if memory is short: the allocator frees cached segments before it fails";
    }
}

/* Weights of at least 10 MiB have segments of their own, in whole MiB by two; smaller ones share segments of 20 MiB. */
static void add_weight_segments(const struct plan *p, struct estimate_result *r)
{
    const double size = estimate_serving_element(p);
    struct estimate_interval rest = {0};
    struct estimate_line *line;

    if (!p->inference || p->weights || p->tp > 1 || p->pp > 1) return;
    EACH_IN (t, p->model->tensors) {
        const double bytes = (double)t->rows * (double)t->cols * size, n = (double)t->count;
        const double each = floor(SHARED_SEGMENT / fmax(bytes, 1));
        if (bytes >= OWN_SEGMENT)
            rest.likely += n * (ceil(bytes / SEGMENT_STEP) * SEGMENT_STEP - bytes);
        else if (bytes > MIB)
            rest.high += n * (SHARED_SEGMENT / each - bytes);
    }
    rest.high += rest.likely;
    rest.likely += 0.5 * (rest.high - rest.likely);
    if (rest.high < MIB) return;
    line = estimate_add(r, ESTIMATE_ALLOCATOR, p->offload != PLAN_OFFLOAD_NONE ? IN_PHASE(DENOISE) : estimate_phases(p),
                        "ends of the weights' segments", rest);
    line->why = "low: fewer, larger requests; high: no two sizes share a segment";
    estimate_explain(line, "PyTorch's CUDACachingAllocator: kMinLargeAlloc, kRoundLarge, kLargeBuffer",
                     "of %zu kinds of tensors", p->model->tensors_n);
}

static void add_fragmentation(const struct plan *p, struct estimate_result *r)
{
    struct estimate_calibrated seen = estimate_calibration_fragmentation(p->calibration);
    struct estimate_interval share = {HOLES_LOW, HOLES_LIKELY, p->inference ? HOLES_HIGH : HOLES_HIGH_TRAINED}, bytes;
    struct estimate_line *line;

    if (seen.runs) {
        share = estimate_calibrated_interval(&seen);
        line = estimate_add(r, ESTIMATE_ALLOCATOR, estimate_phases(p), "holes and ends of segments",
                            scale_interval(largest_tensor(p, r, true), share));
        estimate_explain(line, own, "%.1f %% of what is live, as in %zu recorded runs", share.likely * 100, seen.runs);
        line->why = own_why;
        return;
    }
    add_weight_segments(p, r);
    if (p->inference && p->model->shape.family == MODEL_DENOISER) {
        add_cached(p, r);
        return;
    }
    if (add_replayed_reserve(p, p->memory > 0 ? p->memory - outside_of(r) : INFINITY, r)) return;
    bytes = largest_tensor(p, r, false);
    if (p->fsdp || p->flat)
        bytes.high = bytes.likely; /* what stays cached has a line of its own: add_reduced_segments() */
    if (p->model->shape.family == MODEL_CLIP && plan_remakes_layers(p)) share.high = HOLES_HIGH_TOWERS;
    if (p->expandable) share.high = fmin(share.high, HOLES_HIGH_EXPANDABLE);
    bytes = scale_interval(bytes, share);
    bytes.high += SEGMENTS;
    if (!p->inference) {
        const struct estimate_interval all = largest_tensor(p, r, true);
        add_blocks(p, all.likely - outside_of(r), 0, BLOCKS_SURE * (all.high - outside_of(r)), r);
    }
    line = estimate_add(r, ESTIMATE_ALLOCATOR, estimate_phases(p), "holes and ends of segments", bytes);
    estimate_explain(line, "measured: the smallest memory in which eight trainings run, PyTorch 2.11",
                     "%.0f %% of short-lived memory (1 to %.0f %%), and a segment of each pool", share.likely * 100,
                     share.high * 100);
    line->why = "1 to 10 % were measured; high covers other models and varying lengths";
}

/* FSDP's first version gathers weights, and shards gradients, on streams of their own (torch _runtime_utils.py), whose
 * segments no other stream can use; its units are joined tensors of many MiB. Ten trainings by accelerate 1.15 on
 * PyTorch 2.11 and the simulated GPU, 2 and 4 GPUs, reserved 21 to 74 % more than they allocated, those of LoRA 21 to
 * 34 %. None of it is needed: the allocator frees cached segments before it fails. */
#define STREAMS_LIKELY 0.3
#define STREAMS_HIGH 0.75
/* Without gradients of whole units: fms-acceleration's 30 figures of LoRA took 14 to 60 % more than they allocated. */
#define STREAMS_ADAPTED_LIKELY 0.15
#define STREAMS_ADAPTED_HIGH 0.5

static void add_stream_segments(const struct plan *p, struct estimate_result *r)
{
    const struct estimate_interval live = largest_tensor(p, r, true);
    const double tensors = live.likely - outside_of(r),
                 left = p->memory > 0 ? fmax(0, p->memory - live.likely) : INFINITY;
    const bool adapted = p->adapter != PLAN_ADAPTER_NONE && (p->separate || p->weights);
    const double likely = adapted ? STREAMS_ADAPTED_LIKELY : STREAMS_LIKELY,
                 high = adapted ? STREAMS_ADAPTED_HIGH : STREAMS_HIGH;
    struct estimate_line *line;

    if (p->inference || p->offload != PLAN_OFFLOAD_NONE || estimate_shard_group(p, false) <= 1) return;
    line = estimate_add(
        r, ESTIMATE_ALLOCATOR, estimate_phases(p), "cached segments of FSDP's streams",
        (struct estimate_interval){0, floor(fmin(left, likely * tensors)), floor(fmin(left, high * tensors))});
    estimate_explain(line,
                     adapted ? "measured by others: fms-acceleration's LoRA on A100"
                             : "measured: accelerate 1.15, PyTorch 2.11, simulated GPU",
                     "%.0f %% (at most %.0f %%) of %.2f GiB, at most the memory that is left", likely * 100, high * 100,
                     tensors / GIB);
    line->why = "none if memory runs short: the allocator frees cached segments before it fails";
}

static bool loss_needs_most(const struct plan *p, const struct estimate_result *r)
{
    struct estimate_act_pass pass;

    if (p->tp > 1) {
        EACH_IN (l, r->lines)
            if (l->phases & IN_PHASE(FORWARD) && l->part == ESTIMATE_TEMPORARIES && l->bytes.likely > 0) return false;
        return true;
    }
    estimate_act_pass(p, p->fused_layers ? ACT_FUSED : ACT_EAGER, &pass);
    return pass.at_loss;
}

/* The loss reads 16-bit logits as float32. If the loop drops them before backward, their segment stays cached: each
 * matrix that backward of the loss makes is twice as large (loss_utils.py; torchtitan's train.py: `del pred`). */
static double dropped_logits(const struct plan *p, const struct estimate_result *r)
{
    const struct model_shape *m = &p->model->shape;

    if (!p->batch || !p->drop_outputs || p->fused_loss || p->chunked_loss || p->runtime == PLAN_RUNTIME_MEGATRON ||
        p->pp > 1 || !estimate_act_has_logits(m) || estimate_act_bare_loss(m))
        return 0;
    const struct estimate_act_sizes z = estimate_act_sizes_of(p, p->fused_layers ? ACT_FUSED : ACT_EAGER);
    return z.compute < 4 && loss_needs_most(p, r) ? z.compute * z.tokens * (double)m->vocab / (double)p->tp : 0;
}

/* What FSDP2's streams of their own hold at most: the gathered units (the root and two layers), the largest unit's
 * gradients that are reduced, and this GPU's part of all gradients (torch _fsdp_collectives.py). The allocator gives a
 * free segment only to the stream that made it, so that these stay reserved while forward runs on another. */
static void add_reduced_segments(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    const double layer = estimate_shard_layer(p, stage), root = estimate_shard_outside(p, stage);
    const double half = p->precision->cast == PRECISION_CAST_NONE ? p->precision->weights : 2;
    double all = 0, most = 0, shards = 0, counted = 0, units, logits;
    struct estimate_line *line;

    if (p->flat) { /* its other streams keep more than that */
        add_stream_segments(p, r);
        return;
    }
    if (!p->fsdp || p->inference || p->offload != PLAN_OFFLOAD_NONE || estimate_shard_group(p, false) <= 1) return;
    EACH_IN (l, r->lines) {
        if (l->phases & IN_PHASE(FORWARD) && !l->host) {
            all += l->bytes.likely;
            most += l->bytes.high;
        }
        if (l->part == ESTIMATE_GRADIENTS && strcmp(l->name, "gradients") == 0 && !(l->phases & IN_PHASE(FORWARD)))
            shards += l->bytes.likely;
        if (l->part == ESTIMATE_BUCKETS && l->phases & IN_PHASE(FORWARD)) counted += l->bytes.likely;
    }
    units = p->pp > 1 || p->runtime == PLAN_RUNTIME_MEGATRON || p->adapter != PLAN_ADAPTER_NONE
                ? 0
                : fmax(0, (root + 2 * layer) * half + fmax(root, layer) * half - counted);
    logits = dropped_logits(p, r);
    shards += units + logits;
    if (p->memory > 0) shards = fmin(shards, fmax(0, p->memory - all));
    if (shards < 1) return;
    const bool room = most + shards <= p->memory; /* for all of it, so that the allocator frees none */
    line = estimate_add(r, ESTIMATE_ALLOCATOR, IN_PHASE(FORWARD), "segments of FSDP's streams",
                        (struct estimate_interval){room ? floor(shards - units) : 0, floor(shards), floor(shards)});
    estimate_explain(
        line, "torch/distributed/fsdp: gathers and reduce-scatters have streams of their own",
        "the GPU's part of the gradients, %.2f GiB of units, %.2f GiB of dropped 16-bit logits, at most the "
        "memory that is left",
        units / GIB, logits / GIB);
    line->why = "none if memory runs short: the allocator frees cached segments before it fails";
}

/* DeepSpeed joins this GPU's gradients into tensors of up to 1e9 elements for its step (stage3.py and stage_1_and_2.py,
 * flatten()): no segment that forward and backward left is that large, and theirs are smaller than what the step
 * leaves. DeepSpeed 0.19 on PyTorch 2.11 and two simulated GPUs, stages 2 and 3: 31 % more is reserved than allocated.
 */
static void add_joined_segments(const struct plan *p, struct estimate_result *r)
{
    double sums[ESTIMATE_PHASES_N] = {0}, always = 0, step, layers, left;
    struct estimate_line *line;

    if (p->inference || !p->master_weights || p->fsdp || plan_is_megatron(p) || p->offload != PLAN_OFFLOAD_NONE ||
        p->pp > 1 || p->tp > 1 || p->adapter != PLAN_ADAPTER_NONE || estimate_shard_group(p, false) <= 1 ||
        p->sharding < PLAN_SHARDING_ZERO1)
        return;
    EACH_IN (l, r->lines) {
        if (l->host) continue;
        for (int i = 0; i < ESTIMATE_PHASES_N; i++)
            if (l->phases & 1u << i) sums[i] += l->bytes.likely;
        if ((l->phases & IN_TRAINING) == IN_TRAINING) always += l->bytes.likely;
    }
    step = sums[PHASE_STEP] - always;
    layers = fmax(sums[PHASE_FORWARD], sums[PHASE_BACKWARD]) - always;
    left = p->memory > 0 ? fmax(0, p->memory - always - fmax(step, layers)) : INFINITY;
    left = floor(fmin(left, fmin(step, layers)));
    if (left < 1) return;
    line = estimate_add(r, ESTIMATE_ALLOCATOR, estimate_phases(p), "segments of the joined gradients",
                        (struct estimate_interval){0, left, left});
    estimate_explain(
        line, "DeepSpeed stage3.py, stage_1_and_2.py: flatten(); DeepSpeed 0.19 on simulated GPUs",
        "the smaller of %.2f GiB of forward and backward, %.2f GiB of the step, at most the memory that is left",
        layers / GIB, step / GIB);
    line->why = "none if memory runs short: the allocator frees cached segments before it fails";
}

/* transformers before 4.49 computes the loss from a copy of the logits without each sequence's last token. The gradient
 * of that slice is as large as all logits. If the copy's segments, multiples of 2 MiB, are smaller, no cached one can
 * hold it, and one more stays reserved. */
static void add_shifted_logits(const struct plan *p, struct estimate_result *r)
{
    const struct model_shape *s = &p->model->shape;
    const double row = 4 * (double)s->vocab / (double)p->tp, segment = 2 * MIB;
    const double whole = ceil((double)p->batch * (double)p->seq * row / segment) * segment;
    const double shifted = ceil((double)p->batch * ((double)p->seq - 1) * row / segment) * segment;
    struct estimate_line *line;

    if (estimate_replay_knows(p) || p->inference || p->chunked_loss || p->transformers >= 449 ||
        (s->family != MODEL_GPT && s->family != MODEL_LLAMA) || !p->batch || p->seq < 2 || whole <= shifted ||
        shifted < 10 * MIB)
        return;
    line = estimate_add(r, ESTIMATE_ALLOCATOR, IN_TRAINING, "the gradient of sliced logits",
                        (struct estimate_interval){0, 0, whole});
    line->why = "high: transformers before 4.49; later ones shift the labels instead";
    estimate_explain(line, "transformers 4.48 loss_utils.py; c10/cuda/CUDACachingAllocator.cpp: segments of 2 MiB",
                     "batch %ju · seq %ju · vocabulary %ju · 4 B, in whole segments", (uintmax_t)p->batch,
                     (uintmax_t)p->seq, (uintmax_t)s->vocab);
}

/* Copies of weights are live when forward ends, the other temporaries of that phase are backward's. */
static bool is_copy_of_weights(const struct estimate_line *line)
{
    return strncmp(line->name, "autocast's 16-bit weights", 25) == 0 || strncmp(line->name, "float8 weights", 14) == 0;
}

/* What backward's first half needs in addition to what forward left; 0 if the operations are not known. */
static double first_of_backward(const struct plan *p)
{
    struct estimate_replay_peaks peaks;
    struct plan one = *p;

    one.late_zero_grad = false;
    return estimate_replay(&one, INFINITY, 0, false, &peaks) ? fmax(0, peaks.first - peaks.saved) : 0;
}

/* A loop that calls zero_grad() between forward and backward (lightning automatic.py: after training_step) still has
 * the gradients of the step before when forward ends. They are freed before backward allocates its own tensors. */
static void add_gradients_before(const struct plan *p, struct estimate_result *r)
{
    double gradients = 0, backward = 0, high, likely;
    struct estimate_line *line;

    if (p->inference) return;
    if (!p->late_zero_grad &&
        (p->drop_outputs || p->fsdp || p->master_weights || p->model->shape.family == MODEL_DENOISER))
        return;
    EACH_IN (l, r->lines) {
        if (l->host) continue;
        if (l->part == ESTIMATE_GRADIENTS && l->phases & IN_PHASE(STEP) && !(l->phases & IN_PHASE(FORWARD)))
            gradients += l->bytes.likely;
        if (l->part == ESTIMATE_TEMPORARIES && l->phases & IN_PHASE(FORWARD) && !is_copy_of_weights(l))
            backward += l->bytes.likely;
    }
    high = ceil(fmax(0, gradients - backward));
    if (high < 1) return;
    likely = p->late_zero_grad ? fmin(high, ceil(fmax(0, gradients - first_of_backward(p)))) : 0;
    line = estimate_add(r, ESTIMATE_GRADIENTS, IN_PHASE(FORWARD), "gradients of the step before",
                        (struct estimate_interval){likely, likely, high});
    estimate_explain(line, "lightning/pytorch/loops/optimization/automatic.py: zero_grad() after training_step",
                     "%.2f GiB of gradients, minus what backward allocates first", gradients / GIB);
    line->why = p->late_zero_grad ? "how much backward allocates before its gradients depends on the loss"
                                  : "high: the loop calls zero_grad() after forward instead of before it";
}

void estimate_fixed(const struct plan *p, uint64_t stage, struct estimate_result *r)
{
    if (p->model->shape.family == MODEL_UNKNOWN && !p->inference)
        return; /* only a floor is estimated: parameters without activations */
    add_context_line(p, r);
    add_nccl(p, r);
    add_workspaces(p, r);
    add_engine_workspaces(p, r);
    add_rounding(p, stage, r);
    if (p->late_zero_grad) add_gradients_before(p, r);
    add_fragmentation(p, r);
    add_reduced_segments(p, stage, r);
    add_joined_segments(p, r);
    add_shifted_logits(p, r);
    if (!p->late_zero_grad) add_gradients_before(p, r);
}
