/* Time on the wires: what a training step, or a transfer that somebody has in mind, moves between GPUs,
 * machines and the host, and how long that takes at the links' full rate.
 *
 * Of S bytes on each of n GPUs, at B bytes/s a direction:
 *   one pass                     S/B              all of it once over one GPU's link
 *   all-reduce, as a ring        2(n-1)/n · S/B   (Patarasuk and Yuan 2009; NCCL's bus bandwidth)
 *   reduce-scatter, all-gather   (n-1)/n · S/B    S is the whole, of which each GPU ends or starts with 1/n
 *   all-to-all                   (n-1)/n · S/B
 * A group that spans m machines with g of its GPUs in each does it in three parts: scattered over the g,
 * then 1/g of it over the m, on every GPU's own share of the network, then gathered again:
 *   all-reduce                   2(g-1)/g · S/B + 2(m-1)/m · S/g/N
 * which takes less than one pass S/N over the network: g GPUs share it. Machines that cannot be filled evenly hold
 * floor(n/m) GPUs at the least, which is g: the fewest network cards hold up the others.
 * No latency, no overlap, nobody else on the wires. NCCL's protocol takes about 20 % of NVLink (nccl-tests issue
 * 212); all-reduces that H100's switches add up (NVLink SHARP) make about as much good. */
#ifndef GPUSPY_ESTIMATE_WIRES_H
#define GPUSPY_ESTIMATE_WIRES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/plan.h"

/* clang-format off */
#define WIRE_KINDS(KIND)                                     \
    KIND(ALL_REDUCE, "all-reduce")                           \
    KIND(REDUCE_SCATTER, "reduce-scatter")                   \
    KIND(ALL_GATHER, "all-gather")                           \
    KIND(ALL_TO_ALL, "all-to-all")                           \
    KIND(SEND, "send")                                       \
    KIND(TO_GPU, "host to GPU")                              \
    KIND(TO_HOST, "GPU to host")
/* clang-format on */
#define KIND(id, word) WIRE_##id,
enum estimate_wire_kind { WIRE_KINDS(KIND) WIRE_KINDS_N };
#undef KIND
extern const char *const estimate_wire_kind_word[WIRE_KINDS_N];

/* Links, bytes/s a direction; 0: there is none. */
struct estimate_wire_links {
    double node;                                      /* of a GPU to the others of its machine */
    double network;                                   /* of a GPU to other machines: its share of their network cards */
    double host;                                      /* to the host's pinned memory */
    uint64_t per_node;                                /* GPUs of one machine; 0: all are in one */
    const char *node_name, *network_name, *host_name; /* "NVLink", "PCIe" */
    bool assumed;                                     /* no GPU was named */
};

/* 400 Gb/s a GPU, as DGX H100 and most rented H100 machines have; no more than the GPU's PCIe carries: of an A100
 * 25e9, as DGX A100's 200 Gb/s. */
#define WIRES_NETWORK 50e9
/* Of the pinned rate. Assumed: the driver copies pageable memory into a staging buffer first, as fast as a core of
 * that CPU does. `gpuspy report` has the rate of one's own machine. */
#define WIRES_PAGEABLE_LOW 0.25
#define WIRES_PAGEABLE_HIGH 0.6

/* Those of a GPU; NULL: NVLink of A100 and PCIe 4.0. `gpus` in all, `per_node` 0: as it is rented. NVLink
 * counts where it joins all GPUs of a machine that are used; a bridge does not. */
struct estimate_wire_links estimate_wires_links(const struct estimate_gpu *gpu, uint64_t gpus, uint64_t per_node);

struct estimate_wire {
    enum estimate_wire_kind kind;
    char name[48];     /* what is moved: "gradients" */
    double bytes;      /* of one GPU, each time */
    double times;      /* a step */
    uint64_t n, nodes; /* GPUs of a group, machines that it spans */
    double bandwidth;  /* of its slowest link, bytes/s a direction */
    const char *link;  /* that link's name */
    double one_pass_s; /* times · bytes / bandwidth: all of it once over one GPU's slowest link */
    double ring_s;     /* as it is done; = one_pass_s for sends and copies */
    double factor;     /* ring_s / one_pass_s: (n-1)/n …; across machines less, where their GPUs share the bytes */
    char formula[192];
    const char *source;
};

enum { WIRES_MAX = 24, WIRES_NOTES_MAX = 6 };

struct estimate_wires {
    struct estimate_wire_links links;
    struct estimate_wire rows[WIRES_MAX];
    size_t n;
    double sum_s;      /* of ring_s; in inference of the prompt's */
    double compute_s;  /* the step's matrix products at the GPU's full rate; 0: not known */
    char compute[160]; /* its formula */
    char notes[WIRES_NOTES_MAX][192];
    size_t notes_n;
};

/* One transfer: fills bandwidth, link, both times and the formula from kind, bytes, times and n. `stride`:
 * its members are every stride-th GPU (tensor parallel ones are neighbours). */
void estimate_wire_time(const struct estimate_wire_links *links, uint64_t stride, struct estimate_wire *w);

/* What the plan moves in a step (in inference: for one forward pass of the prompt and for one token), on the
 * fullest GPU. No rows where nothing is moved. `network` bytes/s a GPU, 0: as estimate_wires_links has it. */
void estimate_wires_build(const struct plan *p, double network, struct estimate_wires *out);

#endif
