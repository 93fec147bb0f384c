/* gpuspy transfer: how long a number of bytes takes on each link. */
#include <jansson.h>
#include <stdint.h>
#include <stdio.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/term.h"
#include "analyzer/base/arena.h"
#include "analyzer/base/text_table.h"
#include "analyzer/base/units.h"
#include "analyzer/command/commands.h"
#include "analyzer/estimate/estimate.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/estimate/wires.h"

struct settings {
    uint64_t bytes, params, gpus, per_node, bandwidth, network;
    const char *precision, *gpu;
    bool json;
};

const struct command_text command_text_transfer = {
    .options = OPTION_ROWS(
        {"bytes", 0, OPTION_BYTES, offsetof(struct settings, bytes), "SIZE", NULL, 1, 1e18,
         "bytes to transfer: 28GB, 512MiB"},
        {"params", 'p', OPTION_COUNT, offsetof(struct settings, params), "N", NULL, ESTIMATE_PARAMS_MIN,
         ESTIMATE_PARAMS_MAX, "the weights or gradients of N parameters: 7e9, 7B"},
        {"precision", 0, OPTION_CHOICE, offsetof(struct settings, precision), "NAME", estimate_precisions, 0, 0,
         "number format of --params; default fp32"},
        {"gpus", 0, OPTION_COUNT, offsetof(struct settings, gpus), "N", NULL, 1, 1e6, "number of GPUs; default 8"},
        {"bandwidth", 0, OPTION_RATE, offsetof(struct settings, bandwidth), "RATE", NULL, 1, 1e16,
         "bandwidth of the link in one direction: 300GB/s, 400Gb/s"},
        {"gpu", 0, OPTION_TEXT, offsetof(struct settings, gpu), "NAME", estimate_gpu_words, 0, 0,
         "the links of this GPU: to other GPUs, the network, the host"},
        {"gpus-per-node", 0, OPTION_COUNT, offsetof(struct settings, per_node), "N", NULL, 1, 1e6,
         "GPUs per machine; the others are reached over the network"},
        {"network", 0, OPTION_RATE, offsetof(struct settings, network), "RATE", NULL, 1, 1e16,
         "each GPU's share of its machine's network; default 400Gb/s, or less if its PCIe is slower"},
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print JSON, in bytes and seconds")),
    .about =
        "Computes the time of a transfer: one pass over a link (bytes / bandwidth), and ring collectives of n GPUs, "
        "which move 2(n-1)/n (all-reduce) or (n-1)/n (reduce-scatter, all-gather, all-to-all) of the bytes. Bandwidths "
        "are for one direction; datasheets give NVLink's for both together.\n\nBetween machines, the bytes are first "
        "scattered over the GPUs of each machine, and each GPU sends its part over its share of the network.\n\nTimes "
        "assume the links' full rate and no latency; NCCL's protocol costs about 20 % on NVLink.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy transfer --params 7e9 --gpus 8",
         "the gradients of 7 billion parameters in float32, on each kind of link"},
        {"gpuspy transfer --bytes 28GB --gpus 8 --bandwidth 300GB/s", "one pass 93.3 ms, all-reduce 163 ms"},
        {"gpuspy transfer --params 70B --precision bf16 --gpus 64 --gpu h100", "eight machines of eight H100"}),
};

/* Links by name, with the makers' rates: one direction; PCIe without its packet overhead. */
static const struct {
    const char *name;
    double rate;
    bool network;
} known[] = {
    {"PCIe 3.0 x16", 16e9, false},     {"PCIe 4.0 x16", 32e9, false},       {"PCIe 5.0 x16", 64e9, false},
    {"NVLink 2 (V100)", 150e9, false}, {"NVLink 3 (A100)", 300e9, false},   {"NVLink 4 (H100)", 450e9, false},
    {"NVLink 5 (B200)", 900e9, false}, {"network, 100 Gb/s", 12.5e9, true}, {"network, 200 Gb/s", 25e9, true},
    {"network, 400 Gb/s", 50e9, true},
};

enum { LINKS_MAX = sizeof known / sizeof *known + 3 };

struct link {
    const char *name;
    double slow, rate;                     /* bytes/s; slow: the lower end of an interval, else 0 */
    struct estimate_wire of[WIRE_KINDS_N]; /* the operations for which it has a time */
    bool collective;
};

struct answer {
    double bytes, network; /* bytes/s per GPU between machines */
    uint64_t gpus;
    struct link links[LINKS_MAX];
    size_t n;
};

static const enum estimate_wire_kind shown[] = {WIRE_ALL_REDUCE, WIRE_REDUCE_SCATTER, WIRE_ALL_GATHER, WIRE_ALL_TO_ALL};

static void add_link(struct answer *a, const struct estimate_wire_links *l, const char *name)
{
    struct link *link = &a->links[a->n++];

    link->name = name;
    link->rate = l->node;
    link->collective = a->gpus > 1;
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        struct estimate_wire *w = &link->of[shown[i]];
        *w = (struct estimate_wire){.kind = shown[i], .bytes = a->bytes, .n = a->gpus};
        estimate_wire_time(l, 1, w);
    }
}

static void add_host(struct answer *a, const struct estimate_wire_links *l, bool pageable)
{
    struct link *link = &a->links[a->n++];

    link->name = pageable ? "host, pageable memory" : "host, pinned memory";
    link->rate = l->host * (pageable ? WIRES_PAGEABLE_HIGH : 1);
    link->slow = pageable ? l->host * WIRES_PAGEABLE_LOW : 0;
}

static void of_gpu(const struct settings *s, const struct estimate_gpu *gpu, struct answer *a)
{
    struct estimate_wire_links l = estimate_wires_links(gpu, s->gpus, s->per_node);

    if (s->network) l.network = (double)s->network;
    a->network = l.network;
    if (s->gpus > 1) add_link(a, &l, l.node_name == l.host_name ? "PCIe, between GPUs" : l.node_name);
    if (s->gpus > l.per_node) a->links[a->n++] = (struct link){.name = "network, a GPU's share", .rate = l.network};
    add_host(a, &l, false);
    add_host(a, &l, true);
}

static void of_links(const struct settings *s, struct answer *a)
{
    struct estimate_wire_links l = {.network = s->network ? (double)s->network : WIRES_NETWORK,
                                    .per_node = s->per_node};
    bool across = s->per_node && s->gpus > s->per_node;

    a->network = l.network;
    if (across && s->per_node == 1) { /* only the network connects the GPUs */
        l.node = l.network;
        add_link(a, &l, "network");
        return;
    }
    for (size_t i = 0; i < (s->bandwidth ? 1 : sizeof known / sizeof *known); i++) {
        if (!s->bandwidth && across && known[i].network) continue;
        l.node = s->bandwidth ? (double)s->bandwidth : known[i].rate;
        add_link(a, &l, s->bandwidth ? "as given" : known[i].name);
    }
}

static void print_transfer_head(const struct settings *s, const struct answer *a)
{
    const struct estimate_wire *first = &a->links[0].of[WIRE_ALL_REDUCE];
    char text[UNITS_TEXT];

    units_format_bytes(text, units_whole(a->bytes));
    if (a->bytes >= 1e6)
        printf("%.4g GB (%s)", a->bytes / 1e9, text);
    else
        fputs(text, stdout);
    if (s->params) printf(": %s parameters, %s", UNITS_COUNT(s->params), estimate_precision(s->precision)->meaning);
    if (a->gpus > 1) printf("\n%s GPUs", UNITS_COUNT(a->gpus));
    if (first->nodes > 1)
        printf(" in %ju machines, %s per GPU between them", (uintmax_t)first->nodes,
               units_format_rate(text, a->network));
    puts("\n");
}

static void format_interval(char *out, size_t size, double low, double high)
{
    static const struct {
        double of;
        const char *name;
    } units[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
    size_t u = 0;

    while (u < 2 && high < units[u].of) u++;
    snprintf(out, size, "%.3g-%.3g %s", low / units[u].of, high / units[u].of, units[u].name);
}

static void print_link_row(const struct answer *a, const struct link *l, struct text_table *t)
{
    char rate[UNITS_TEXT], pass[2 * UNITS_TEXT + 4];

    units_format_rate(rate, l->rate);
    units_format_seconds(pass, a->bytes / l->rate);
    if (l->slow > 0) {
        format_interval(pass, sizeof pass, a->bytes / l->rate, a->bytes / l->slow);
        snprintf(rate, sizeof rate, "%.0f-%.0f GB/s", l->slow / 1e9, l->rate / 1e9);
    }
    const char *const alone[TEXT_TABLE_COLUMNS] = {rate, pass, l->name};
    const char *const cells[TEXT_TABLE_COLUMNS] = {
        rate, pass, l->collective ? UNITS_SECONDS(l->of[WIRE_ALL_REDUCE].ring_s) : "",
        l->collective ? UNITS_SECONDS(l->of[WIRE_REDUCE_SCATTER].ring_s) : "", l->name};
    text_table_add(t, a->gpus > 1 ? cells : alone, NULL);
}

static void print_meaning(const struct answer *a)
{
    const struct estimate_wire *w = &a->links[0].of[WIRE_ALL_REDUCE];
    uint64_t least = w->nodes ? a->gpus / w->nodes : 0, most = w->nodes ? (a->gpus + w->nodes - 1) / w->nodes : 0;

    puts("\nOne pass is S/B: all S bytes once over one GPU's link of B bytes per second.");
    if (w->nodes > 1 && most > 1)
        printf("Across m = %ju machines of g = %ju GPUs%s, the GPUs of a machine share\nthe bytes; each sends its part "
               "over its share N of the network.\n  all-reduce      2(g-1)/g S/B + 2(m-1)/m S/g/N\n  reduce-scatter  "
               "half of that, like all-gather\n",
               (uintmax_t)w->nodes, (uintmax_t)least, most > least ? " or one more" : "");
    else if (a->gpus > 1)
        printf("A ring of %ju takes 2(n-1)/n = %.4g of that for an all-reduce,\n"
               "(n-1)/n = %.4g for a reduce-scatter, an all-gather or an all-to-all.\n",
               (uintmax_t)a->gpus, w->factor, w->factor / 2);
    puts("All times assume the links' full rate, no latency and no other traffic.");
}

static void print_transfer_text(const struct settings *s, const struct answer *a)
{
    struct terminal term = terminal_of(stdout);
    struct text_table alone = {.head = {"one way", "one pass", "link"}};
    struct text_table t = {.head = {"one way", "one pass", "all-reduce", "reduce-scatter", "link"}};

    print_transfer_head(s, a);
    for (size_t i = 0; i < a->n; i++) print_link_row(a, &a->links[i], a->gpus > 1 ? &t : &alone);
    text_table_print(a->gpus > 1 ? &t : &alone, &term, 2, stdout);
    print_meaning(a);
}

static void print_transfer_json(const struct settings *s, const struct answer *a)
{
    json_t *links = json_array();

    EACH (l, a->links, a->n) {
        json_t *one =
            json_pack("{s:s, s:f, s:f}", "name", l->name, "bytes_per_s", l->rate, "one_pass_s", a->bytes / l->rate);
        if (l->slow > 0) json_object_set_new(one, "one_pass_most_s", json_real(a->bytes / l->slow));
        if (l->collective) {
            static const char *const key[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all"};
            for (size_t k = 0; k < sizeof shown / sizeof *shown; k++) {
                const struct estimate_wire *w = &l->of[shown[k]];
                json_object_set_new(one, key[k],
                                    json_pack("{s:f, s:s, s:I, s:f}", "time_s", w->ring_s, "formula", w->formula,
                                              "machines", (json_int_t)w->nodes, "factor", w->factor));
            }
        }
        json_array_append_new(links, one);
    }
    json_t *root =
        json_pack("{s:i, s:f, s:I, s:o}", "schema", 1, "bytes", a->bytes, "gpus", (json_int_t)a->gpus, "links", links);
    if (s->params) {
        json_object_set_new(root, "params", json_integer((json_int_t)s->params));
        json_object_set_new(root, "precision", json_string(s->precision));
    }
    json_out_tree(stdout, root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
}

static bool are_transfer_options_sensible(const struct settings *s)
{
    if (!s->bytes == !s->params) {
        return complain_with(false, "%s",
                             s->bytes ? "transfer: give --bytes or --params, not both"
                                      : "transfer: no size given; add --bytes 28GB or --params 7B");
    }
    if (s->gpu && s->bandwidth) return complain_with(false, "transfer: give --gpu or --bandwidth, not both");
    if (s->network && !s->gpu && !s->per_node)
        return complain_with(false, "transfer: --network needs the GPUs per machine; add --gpus-per-node or --gpu");
    return true;
}

int command_transfer(const struct command *self, int argc, char **argv)
{
    struct settings s = {.precision = "fp32", .gpus = 8};
    struct answer a = {0};
    const struct estimate_gpu *gpu = NULL;
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands > 0) {
        return complain_with(EXIT_USAGE, "transfer: '%s' is unexpected; write --bytes or --params before a size",
                             argv[0]);
    }
    if (!are_transfer_options_sensible(&s) || (s.gpu && !(gpu = estimate_gpu_require("transfer", "gpu", s.gpu))))
        return EXIT_USAGE;
    a.gpus = s.gpus;
    a.bytes = s.bytes ? (double)s.bytes : (double)s.params * estimate_precision(s.precision)->weights;
    if (gpu)
        of_gpu(&s, gpu, &a);
    else
        of_links(&s, &a);
    (s.json ? print_transfer_json : print_transfer_text)(&s, &a);
    return EXIT_YES;
}
