/* gpuspy whatif: replays the recorded requests with other settings, on another GPU, or without a line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/units.h"
#include "analyzer/command/commands.h"
#include "analyzer/estimate/gpu.h"
#include "analyzer/page/save.h"
#include "analyzer/view/view_whatif.h"
#include "analyzer/view/viewing.h"
#include "analyzer/base/sort.h"

enum { SCENARIOS = 128, SIZES = 64 };

struct settings {
    struct viewing_settings view;
    struct option_list set, scale;
    const char *limit, *without;
    int flush_every;
    bool search;
    const char *html;
};

#define KEYS                                                                                    \
    "expandable_segments|max_split_size_mb|max_non_split_rounding_mb|roundup_power2_divisions|" \
    "garbage_collection_threshold|per_process_memory_fraction|large_segment_size_mb|expandable_segments_reserve"
#define CATEGORIES \
    "batch|parameters|gradients|optimizer_state|activations|inputs|temporaries|workspaces|kv_cache|unknown"
static const struct option_row options[] = {
    {"set", 's', OPTION_LIST, offsetof(struct settings, set), "KEY:VALUE", KEYS, 0, 0,
     "override this setting of PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True"},
    OPTION_ROW(TEXT, "limit", 0, limit, "GPU|SIZE",
               "replay on a GPU of this size, such as 24GiB, or name ('gpuspy estimate --gpus' lists them)"),
    OPTION_ROW(TEXT, "without", 0, without, "FILE:LINE",
               "free the tensors that this line allocates no later than at the end of their step"),
    {"scale", 0, OPTION_LIST, offsetof(struct settings, scale), "CATEGORY=FACTOR", CATEGORIES, 0, 0,
     "multiply the sizes of a category's tensors; batch means all tensors whose size depends on the batch"},
    {"empty-cache-every", 0, OPTION_NUMBER, offsetof(struct settings, flush_every), "N", NULL, 1, 1000000,
     "call torch.cuda.empty_cache() every N steps"},
    OPTION_ROW(FLAG, "search", 0, search, NULL,
               "try useful settings and pairs of them, list the best first, and find the smallest GPU that is large "
               "enough; the "
               "default without another option"),
    OPTION_ROW(FILE, "html", 0, html, "FILE.html", "write the report's page with the what-if as a second curve"),
    VIEWING_OPTIONS(struct settings, view),
    {0},
};

const struct command_text command_text_whatif = {
    .options = options,
    .about =
        "Replays the recorded requests and frees by the rules of PyTorch's caching allocator with other settings, on "
        "another GPU or without a line. Prints whether the run fits, where it fails, and how much memory it "
        "reserves.\n\nFirst it replays the recorded settings and compares each segment and each address with the "
        "recording. If they differ, it prints where, and the what-ifs are inexact. Options are combined into one "
        "what-if. The exit status is 1 if that what-if runs out of memory; a search exits with 0.",
    .examples = COMMAND_EXAMPLES(
        {"gpuspy whatif --set expandable_segments:True run.db", "would it have fit with that setting?"},
        {"gpuspy whatif --limit rtx-4090 run.db", "does it run on that GPU, and where does it fail?"},
        {"gpuspy whatif --without train.py:42 run.db", "if that line's tensors were freed after each step"},
        {"gpuspy whatif --scale batch=0.5 --limit 24GiB run.db", "would it fit with half of the batch?"},
        {"gpuspy whatif --limit 24GiB --html whatif.html run.db", "the recorded and the replayed curve in one page"},
        {"gpuspy whatif --search run.db", "which settings help, and which GPU is large enough"}),
    .synonyms =
        COMMAND_EXAMPLES({"gpu|memory|on|size|vram|device-memory", "--limit"},
                         {"batch|batch-size", "--scale batch=0.5"}, {"activations", "--scale activations=0.5"},
                         {"conf|config|setting|settings|alloc-conf|pytorch-cuda-alloc-conf", "--set"},
                         {"expandable-segments", "--set expandable_segments:True"},
                         {"max-split-size-mb", "--set max_split_size_mb:256"}, {"empty-cache", "--empty-cache-every 1"},
                         {"all|best|find", "--search"}, {"drop|remove|line|ignore", "--without"}),
};

static const char *const searched[] = {
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:256",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "per_process_memory_fraction:0.95,garbage_collection_threshold:0.8",
    "expandable_segments:True,roundup_power2_divisions:8",
    "max_split_size_mb:256,roundup_power2_divisions:8",
};

/* Joins a list that was split at commas: "a,b". The caller frees it. */
static char *join_list(const struct option_list *list)
{
    size_t length = 1;
    for (size_t i = 0; i < list->n; i++) length += (size_t)list->item[i].length + 1;
    char *out = arena_realloc(NULL, length, 1), *at = out;
    *out = 0;
    for (size_t i = 0; i < list->n; i++)
        at += sprintf(at, "%s%.*s", i ? "," : "", list->item[i].length, list->item[i].text);
    return out;
}

static bool parse_limit(const struct settings *s, int64_t *bytes)
{
    enum { MOST = 60 }; /* 2^60 */
    uint64_t size;
    *bytes = 0;
    if (!s->limit) return true;
    const struct estimate_gpu *gpu = estimate_gpu_require_or_size("whatif", "limit", s->limit, &size);
    if (!gpu && size > (uint64_t)1 << MOST)
        return complain_with(false, "whatif: --limit: '%s' is out of range; give at most 1024PiB", s->limit);
    *bytes = (int64_t)(gpu ? gpu->total_bytes : size);
    return *bytes > 0;
}

/* Parses "activations=0.5,gradients=2". */
static bool parse_scale(const struct option_list *list, struct whatif_scale *scale)
{
    bool given[RESULT_CATEGORIES_N + 1] = {false}; /* the last: the batch */
    scale->batch = 1;
    for (int c = 0; c < RESULT_CATEGORIES_N; c++) scale->of[c] = 1;
    for (size_t i = 0; i < list->n; i++) {
        char text[64], *equals;
        int c = 0;
        snprintf(text, sizeof text, "%.*s", list->item[i].length, list->item[i].text);
        equals = strchr(text, '=');
        if (equals) *equals = 0;
        const bool batch = strcmp(text, "batch") == 0;
        while (!batch && c < RESULT_CATEGORIES_N && strcmp(result_category_word((enum result_category)c), text) != 0)
            c++;
        double factor = 0;
        const char *end = equals ? units_read_decimal(equals + 1, &factor) : NULL;
        if (!end || c == RESULT_CATEGORIES_N || *end || factor > 1000) {
            char categories[160];
            options_list(CATEGORIES, categories, sizeof categories);
            return complain_with(false,
                                 "whatif: --scale: '%.*s' is not CATEGORY=FACTOR such as batch=0.5; categories are "
                                 "%s; a factor is from 0 to 1000",
                                 list->item[i].length, list->item[i].text, categories);
        }
        bool *before = &given[batch ? RESULT_CATEGORIES_N : c];
        if (*before) return complain_with(false, "whatif: --scale %s is given twice; give it once", text);
        *before = true;
        *(batch ? &scale->batch : &scale->of[c]) = factor;
    }
    return true;
}

SORT_ORDER_OF_POINTERS(by_size, struct estimate_gpu, SORT_UP(x->total_bytes, y->total_bytes))

/* A GPU for each size; only those smaller than `below`, if that is known. */
static size_t list_gpus(const struct estimate_gpu **list, int64_t below)
{
    size_t n = 0, kept = 0;
    for (size_t i = 0; i < estimate_gpu_count && n < SIZES; i++) {
        const struct estimate_gpu *g = &estimate_gpus[i];
        if (g->total_bytes && (below < 0 || (int64_t)g->total_bytes < below)) list[n++] = g;
    }
    SORT(list, n, by_size);
    for (size_t i = 0; i < n; i++)
        if (!kept || list[i]->total_bytes >> 30 != list[kept - 1]->total_bytes >> 30) list[kept++] = list[i];
    return kept;
}

static int order_outcomes(const void *x, const void *y)
{
    const struct whatif_scenario *a = x, *b = y;
    if (!a->error != !b->error) return a->error ? 1 : -1;
    if (a->outcome.fits != b->outcome.fits) return a->outcome.fits ? -1 : 1;
    /* the one that fails later comes first */
    if (!a->outcome.fits && a->outcome.oom.time_ns != b->outcome.oom.time_ns)
        return a->outcome.oom.time_ns > b->outcome.oom.time_ns ? -1 : 1;
    const int64_t p = a->outcome.peak_reserved_bytes, q = b->outcome.peak_reserved_bytes;
    return SORT_UP(p, q);
}

struct question {
    struct whatif_scenario list[SCENARIOS];
    size_t n;
    char *conf, *scaled, *name;
    struct whatif_scale scale;
    struct whatif_curve curve; /* only for a page */
};

static bool search_settings(struct whatif *w, struct question *q, char *error, size_t error_size)
{
    const struct estimate_gpu *gpus[SIZES];
    const struct whatif_outcome *recorded = &whatif_proof(w)->recorded; /* a run that failed needs a larger GPU */
    const size_t settings = COUNT_OF(searched),
                 gpus_n = list_gpus(gpus, recorded->fits ? recorded->capacity_bytes : RUN_UNKNOWN);
    for (size_t i = 0; i < settings; i++)
        q->list[q->n++] = (struct whatif_scenario){.name = searched[i], .conf = searched[i]};
    for (size_t i = 0; i < gpus_n; i++)
        q->list[q->n++] = (struct whatif_scenario){.name = gpus[i]->key, .limit = (int64_t)gpus[i]->total_bytes};
    if (!whatif_run(w, q->list, q->n, error, error_size)) return false;
    SORT(q->list, settings, order_outcomes);
    size_t smallest = settings; /* keeps the smallest GPU that is large enough, and the next smaller one */
    while (smallest < q->n && !q->list[smallest].outcome.fits) smallest++;
    size_t kept = settings;
    for (size_t i = smallest > settings ? smallest - 1 : smallest; i < q->n && i <= smallest; i++)
        q->list[kept++] = q->list[i];
    q->n = kept;
    return true;
}

static char *scenario_name(const struct settings *s, const char *conf, const char *scaled)
{
    char *name = arena_realloc(NULL, strlen(conf) + strlen(scaled) + 256 + (s->without ? strlen(s->without) : 0), 1),
         *at = name;
    *name = 0;
    if (*conf) at += sprintf(at, "%s ", conf);
    if (s->limit) at += sprintf(at, "on %.64s ", s->limit);
    if (s->without) at += sprintf(at, "without %s ", s->without);
    if (*scaled) at += sprintf(at, "with %s ", scaled);
    if (s->flush_every) at += sprintf(at, "empty_cache every %d ", s->flush_every);
    if (at > name) at[-1] = 0;
    return name;
}

static bool wants_one(const struct settings *s)
{
    return s->set.n || s->limit || s->without || s->scale.n || s->flush_every;
}

/* Options that exclude each other; NULL none. */
static const char *find_contradiction(const struct settings *s)
{
    if (s->search && wants_one(s))
        return "--search chooses its own settings; leave out --set, --limit, --without, --scale and "
               "--empty-cache-every";
    if (s->html && s->view.json) return "give --json or --html, not both";
    if (s->html && !wants_one(s)) return "--html shows one what-if; add one, such as --set expandable_segments:True";
    return NULL;
}

/* A report takes a replay of its own. If no option needs its steps, it is made only if a request fails: in the
 * recording (it finds out whether the program handled that) or in a what-if. */
static bool needs_report(const struct settings *s, const struct run *run)
{
    bool failed = false;
    RUN_EACH (ooms, run_ooms, run) failed = failed || (ooms->fatal && ooms->layer == GS_LAYER_TENSOR);
    return failed || s->without || s->flush_every || s->html;
}

#define TARGET(v, s)                                                           \
    &(const struct page_target)                                                \
    {                                                                          \
        "whatif", "html", (s)->html, (char *const[]){(char *)(v)->database}, 1 \
    }

static int ask_whatif(struct viewing *v, const struct settings *s, int64_t limit, const struct result_report *r,
                      struct question *q, struct page *page)
{
    char error[1024] = "";
    struct whatif *w = whatif_start(v->run, r ? r->steps : NULL, r ? r->steps_n : 0, error, sizeof error);
    int code = EXIT_YES;
    if (!w) return viewing_failed(v, error);
    if ((s->without || s->flush_every) && !r->steps_n) {
        whatif_free(w);
        return viewing_failed(v, "no steps were found in this run: --without and --empty-cache-every need them");
    }
    q->conf = join_list(&s->set);
    q->scaled = join_list(&s->scale);
    q->name = scenario_name(s, q->conf, q->scaled);
    const bool searches = s->search || !*q->name;
    bool ok;
    if (searches) {
        ok = search_settings(w, q, error, sizeof error);
    } else {
        q->list[q->n++] = (struct whatif_scenario){.name = q->name,
                                                   .conf = *q->conf ? q->conf : NULL,
                                                   .limit = limit,
                                                   .without = s->without,
                                                   .scale = s->scale.n ? &q->scale : NULL,
                                                   .flush_every = (uint64_t)s->flush_every,
                                                   .curve = page ? &q->curve : NULL};
        ok = whatif_run(w, q->list, 1, error, sizeof error);
    }
    ok = ok && whatif_vary(w, q->list, q->n, error, sizeof error);
    const bool fails = ok && !r && ANY_OF(l, q->list, q->n, !l->error && !l->outcome.fits);
    struct result_report *later = fails ? report_build(v->run, &v->options, error, sizeof error) : NULL;
    if (later) whatif_name_steps(w, later->steps, later->steps_n, q->list, q->n);
    const struct view_whatif view = {v->run, whatif_proof(w), q->list, q->n, searches};
    if (!ok) {
        code = viewing_failed(v, error);
    } else if (q->n == 1 && q->list[0].error) {
        complain("whatif: %s", q->list[0].error);
        code = EXIT_USAGE;
    } else if (page) {
        page_add_whatif(page, &q->list[0], view.proof);
        code = page_save(TARGET(v, s), page, r);
    } else if (s->view.json) {
        json_t *o = viewing_json_head(v);
        view_whatif_json(o, &view);
        code = viewing_json(v, o);
    } else {
        struct draw_text t = viewing_text(v, r, 0);
        view_whatif(&t, &view);
    }
    if (code == EXIT_YES && q->n == 1 && !q->list[0].outcome.fits) code = EXIT_NO;
    whatif_free(w);
    report_free(later);
    return code;
}

int command_whatif(const struct command *self, int argc, char **argv)
{
    struct settings s = {.view = VIEWING_DEFAULT};
    struct viewing v;
    char error[1024] = "";
    int64_t limit = 0;
    struct question *q = arena_zeroed(1, sizeof *q);
    int code = viewing_open(&v, self, argc, argv, &s, &s.view, NULL, true);
    bool done = !v.run;
    const char *contradiction = done ? NULL : find_contradiction(&s);
    if (contradiction) {
        complain("whatif: %s", contradiction);
        code = EXIT_USAGE;
        done = true;
    }
    if (!done && s.html && (code = page_save_check(TARGET(&v, &s), false)) != EXIT_YES) done = true;
    if (!done && (!parse_limit(&s, &limit) || !parse_scale(&s.scale, &q->scale))) {
        code = EXIT_USAGE;
    } else if (!done) {
        struct page *page = s.html ? page_new(v.run, &v.options) : NULL;
        if (!page) v.options.questions = REPORT_ASK(STEPS) | REPORT_ASK(OOMS);
        q->curve.end_ns = run_duration(v.run) > 0 ? run_duration(v.run) : 1;
        const bool needed = needs_report(&s, v.run);
        struct result_report *r = needed ? report_build(v.run, &v.options, error, sizeof error) : NULL;
        code = r || !needed ? ask_whatif(&v, &s, limit, r, q, page) : viewing_failed(&v, error);
        report_free(r);
        page_free(page);
    }
    viewing_close(&v);
    ARENA_RELEASE(q->conf, q->scaled, q->name, q);
    return code;
}
