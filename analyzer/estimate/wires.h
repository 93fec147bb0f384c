/* Time on the wires: what a training step, or a single transfer, moves between GPUs, machines and the host, and
 * how long that takes at the links' full rate.
 *
 * For S bytes on each of n GPUs, at B bytes/s per direction:
 *   one pass                     S/B              all of it once over one GPU's link
 *   all-reduce, as a ring        2(n-1)/n · S/B   (Patarasuk and Yuan 2009; NCCL's bus bandwidth)
 *   reduce-scatter, all-gather   (n-1)/n · S/B    S is the whole, of which each GPU ends or starts with 1/n
 *   all-to-all                   (n-1)/n · S/B
 * A group that spans m machines with g of its GPUs in each does it in three parts: it scatters over the g GPUs,
 * then moves 1/g over the m machines, on every GPU's own share of the network, then gathers again:
 *   all-reduce                   2(g-1)/g · S/B + 2(m-1)/m · S/g/N
 * which takes less than one pass S/N over the network, because g GPUs share it. If the n GPUs do not fill the machines
 * evenly, g is floor(n/m), the fewest GPUs of a machine: the others wait for its network cards.
 * Assumed: no latency, no overlap, no other traffic. NCCL's protocol takes about 20 % of NVLink (nccl-tests issue
 * 212); all-reduces that H100's switches add up (NVLink SHARP) save about as much. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "analyzer/estimate/plan.h"

#define WIRE_KINDS(KIND)                   \
    KIND(ALL_REDUCE, "all-reduce")         \
    KIND(REDUCE_SCATTER, "reduce-scatter") \
    KIND(ALL_GATHER, "all-gather")         \
    KIND(ALL_TO_ALL, "all-to-all")         \
    KIND(SEND, "send")                     \
    KIND(TO_GPU, "host to GPU")            \
    KIND(TO_HOST, "GPU to host")
#define KIND(id, word) WIRE_##id,
enum estimate_wire_kind { WIRE_KINDS(KIND) WIRE_KINDS_N };
#undef KIND
extern const char *const estimate_wire_kind_word[WIRE_KINDS_N];

/* Links, bytes/s per direction; 0: none. */
struct estimate_wire_links {
    double node;                                      /* of a GPU to the others of its machine */
    double network;                                   /* of a GPU to other machines: its share of their network cards */
    double host;                                      /* to the host's pinned memory */
    uint64_t per_node;                                /* GPUs of one machine; 0: all are in one */
    const char *node_name, *network_name, *host_name; /* "NVLink", "PCIe" */
    bool assumed;                                     /* no GPU was named */
};

/* 400 Gb/s per GPU, as in DGX H100 and most rented H100 machines; at most what the GPU's PCIe carries: 25e9 for an
 * A100, as DGX A100's 200 Gb/s. */
#define WIRES_NETWORK 50e9
/* As a share of the pinned rate. Assumed: the driver first copies pageable memory into a staging buffer, as fast as a
 * core of the CPU does. `gpuspy report` has the rate of your own machine. */
#define WIRES_PAGEABLE_LOW 0.25
#define WIRES_PAGEABLE_HIGH 0.6

/* The links of a GPU; NULL: NVLink of A100 and PCIe 4.0. `gpus`: in all; `per_node` 0: as commonly rented. NVLink
 * counts if it joins all GPUs of a machine that are used; a bridge does not count. */
struct estimate_wire_links estimate_wires_links(const struct estimate_gpu *gpu, uint64_t gpus, uint64_t per_node);

struct estimate_wire {
    enum estimate_wire_kind kind;
    char name[48];     /* what is moved: "gradients" */
    double bytes;      /* of one GPU, per transfer */
    double times;      /* per step */
    uint64_t n, nodes; /* GPUs of a group, machines that it spans */
    double bandwidth;  /* of its slowest link, bytes/s per direction */
    const char *link;  /* that link's name */
    double one_pass_s; /* times · bytes / bandwidth: all of it once over one GPU's slowest link */
    double ring_s;     /* with the algorithm of `kind`; = one_pass_s for sends and copies */
    double factor;     /* ring_s / one_pass_s: (n-1)/n …; less across machines, if their GPUs share the bytes */
    char formula[192];
    const char *source;
};

enum { WIRES_MAX = 24, WIRES_NOTES_MAX = 6 };

struct estimate_wires {
    struct estimate_wire_links links;
    struct estimate_wire rows[WIRES_MAX];
    size_t n;
    double sum_s;      /* of ring_s; in inference, of the prompt's */
    double compute_s;  /* the step's matrix products at the GPU's full rate; 0: not known */
    char compute[160]; /* formula of compute_s */
    char notes[WIRES_NOTES_MAX][192];
    size_t notes_n;
};

/* One transfer: fills in bandwidth, link, both times and the formula from kind, bytes, times and n. `stride`: its
 * members are every stride-th GPU (tensor-parallel ones are neighbours). */
void estimate_wire_time(const struct estimate_wire_links *links, uint64_t stride, struct estimate_wire *w);

/* What the plan moves per step (in inference: for one forward pass of the prompt and for one token), on the fullest
 * GPU. No rows if nothing is moved. `network`: bytes/s per GPU; 0: as in estimate_wires_links. */
void estimate_wires_build(const struct plan *p, double network, struct estimate_wires *out);
