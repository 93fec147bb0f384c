/* Profiles add up to the report's figures, by stack, and so do the trees made from them. */
#include "tests/cases.h"
#include "analyzer/profile/call_tree.h"
#include "analyzer/profile/statistics.h"
#include "tests/unit/synthetic.h"

#define TORCH "/usr/lib/python3/dist-packages/torch/"

enum { STACKS = 9, LIVES = 300, ROUNDS = 20 };

/* Blocks on two devices, with tensors on the first, calls and failures, from stacks of all kinds. */
static void fill(struct syn *s, const char *run_id, int pid, unsigned seed)
{
    int64_t stacks[STACKS + 1] = {0}, now = 0;
    srand(seed);
    syn_process(s, run_id, pid, 0, 1);
    stacks[1] = syn_python(s, 0, "<module>", "/home/u/train.py", 9);
    stacks[2] = syn_python(s, stacks[1], "Module._apply", TORCH "nn/modules/module.py", 3);
    stacks[3] = syn_python(s, stacks[1], "Module._call_impl", TORCH "nn/modules/module.py", 7);
    stacks[4] = syn_python(s, stacks[3], "Net.forward", "/home/u/net.py", 7);
    stacks[5] = syn_python(s, stacks[1], "Adam.step", TORCH "optim/adam.py", 4);
    stacks[6] = syn_native(s, stacks[4], "/opt/x/libkernels.so", 64);
    stacks[7] = syn_native(s, 0, "/opt/x/libother.so", 128);
    stacks[8] = syn_python(s, stacks[1], "Net.forward", "/home/u/net.py", 8);
    stacks[9] = syn_python(s, stacks[8], "Net.forward", "/home/u/net.py", 8);
    for (int i = 0; i < LIVES; i++) {
        now += rand() % 3;
        int64_t at = now * SYN_MS, stack = stacks[rand() % (STACKS + 1)];
        int device = rand() % 2;
        int64_t id = syn_alloc(s, (struct syn_alloc){.layer = device ? GS_LAYER_DEVICE : rand() % 2,
                                                     .space = rand() % 9 == 0 ? GS_SPACE_PINNED : GS_SPACE_DEVICE,
                                                     .device = device,
                                                     .address = 4096 + i,
                                                     .bytes = 1 + rand() % 50,
                                                     .at = at,
                                                     .life = rand() % 6 == 0 ? SYN_LIVE : (1 + rand() % 60) * SYN_MS,
                                                     .stack = stack});
        syn_sql(s, "UPDATE allocation_row SET free_stack_id = nullif(%lld,0) WHERE id = %lld",
                (long long)stacks[rand() % (STACKS + 1)], (long long)id);
        if (i % 3 == 0) {
            syn_copy(s, (struct syn_copy){.direction = rand() % 3,
                                          .async = rand() % 2,
                                          .bytes = 1 + rand() % 100000,
                                          .at = at,
                                          .blocked = rand() % 100,
                                          .stack = stack});
            syn_sync(s, rand() % 4, at + 1, 1 + rand() % 99, 0, stack);
        }
    }
    syn_oom(s, (struct syn_oom){.layer = GS_LAYER_TENSOR, .fatal = 1, .requested = 10, .at = now * SYN_MS / 2});
}

static struct profile *build(struct run *run, struct profile_request wish)
{
    char error[256] = "";
    struct profile *p = profile_build(run, &wish, error, sizeof error);
    if (!p) fail_msg("%s", error);
    int64_t total = 0;
    uint64_t count = 0;
    for (size_t i = 0; i < p->n; i++) {
        assert_true(i == 0 || p->entries[i - 1].weight >= p->entries[i].weight);
        total += p->entries[i].weight;
        count += p->entries[i].count;
    }
    assert_int_equal(p->total, total);
    assert_int_equal(p->count, count);
    return p;
}

static const struct profile_request every = {.process = -1, .device = -1, .layer = PROFILE_USUAL, .categories = true};

static struct profile_request of(enum profile_what what)
{
    struct profile_request wish = every;
    wish.what = what;
    return wish;
}

static int64_t weight_of(const struct profile *p, uint32_t stack)
{
    int64_t sum = 0;
    for (size_t i = 0; i < p->n; i++) sum += p->entries[i].stack == stack ? p->entries[i].weight : 0;
    return sum;
}

static void same_categories(const struct profile *p, const struct result_by_category *want)
{
    int64_t have[RESULT_CATEGORIES_N] = {0};
    for (size_t i = 0; i < p->n; i++) have[p->entries[i].category] += p->entries[i].weight;
    for (int c = 0; c < RESULT_CATEGORIES_N; c++) assert_int_equal(have[c], want->bytes[c]);
}

static void check_peak(struct result_report *r, const struct result_peak *peak, bool categories)
{
    struct profile_request wish = of(PROFILE_PEAK);
    wish.process = (int)peak->process;
    wish.device = peak->device;
    wish.layer = (int)peak->layer;
    wish.categories = categories;
    struct profile *p = build(r->run, wish);
    assert_int_equal(p->total, peak->bytes);
    assert_int_equal(p->count, peak->count);
    assert_int_equal(p->moments[peak->process], peak->time_ns);
    for (size_t i = 0; i < peak->by_stack_n; i++)
        assert_int_equal(weight_of(p, peak->by_stack[i].stack.number), peak->by_stack[i].bytes);
    if (categories) same_categories(p, &peak->by_category);
    profile_free(p);
}

/* Nodes add up, and each leaf belongs to an entry. */
static void check_tree(struct run *run, const struct profile *p, bool native)
{
    struct profile_call_tree *t = profile_call_tree_build(run, p, native, NULL, NULL);
    size_t nodes = 0;
    int64_t selfs = 0;
    for (const struct profile_call_node *n = t->root; n; n = profile_call_next(n)) {
        int64_t sum = n->self;
        for (size_t i = 0; i < n->children_n; i++) {
            sum += n->children[i]->total;
            assert_ptr_equal(n->children[i]->parent, n);
            assert_true(i == 0 || n->children[i - 1]->total >= n->children[i]->total);
            assert_int_equal(n->children[i]->depth, n->depth + 1);
        }
        assert_int_equal(sum, n->total);
        assert_true(n->depth <= t->depth);
        selfs += n->self;
        nodes++;
    }
    assert_int_equal(nodes, t->nodes);
    assert_int_equal(selfs, p->total);
    assert_int_equal(t->root->total, p->total);
    assert_int_equal(t->root->total_count, p->count);
    profile_call_tree_free(t);
}

static void check_sums(struct result_report *r)
{
    int64_t peaks = 0, allocated = 0, leaks = 0;
    for (size_t i = 0; i < r->peaks_n; i++) {
        const struct result_peak *peak = &r->peaks[i];
        bool usual = peak->layer == RUN_SERIES_TENSOR || (peak->layer == RUN_SERIES_DEVICE && peak->device == 1);
        check_peak(r, peak, true);
        check_peak(r, peak, false);
        peaks += usual ? peak->bytes : 0;
        allocated += usual ? peak->allocated_bytes : 0;
    }
    for (size_t i = 0; i < r->leaks_n; i++) leaks += r->leaks[i].bytes;
    for (int categories = 0; categories < 2; categories++) {
        struct profile_request wish = of(PROFILE_PEAK);
        wish.categories = categories;
        struct profile *p = build(r->run, wish);
        assert_int_equal(p->total, peaks);
        check_tree(r->run, p, false);
        check_tree(r->run, p, true);
        profile_free(p);
        wish.what = PROFILE_ALLOCATED;
        p = build(r->run, wish);
        assert_int_equal(p->total, allocated);
        profile_free(p);
        wish.what = PROFILE_END;
        wish.layer = PROFILE_ALL;
        p = build(r->run, wish);
        assert_int_equal(p->total, leaks);
        profile_free(p);
    }
}

static void check_oom(struct result_report *r)
{
    struct profile *p = build(r->run, of(PROFILE_OOM));
    int64_t live = 0;
    for (size_t i = 0; i < r->ooms_n; i++) {
        live += r->ooms[i].live_sum;
        assert_int_equal(p->moments[r->ooms[i].process], r->ooms[i].time_ns);
    }
    assert_int_equal(p->total, live);
    if (r->ooms_n == 1) {
        same_categories(p, &r->ooms[0].by_category);
        struct profile_request at = of(PROFILE_AT);
        at.at_ns = r->ooms[0].time_ns;
        at.device = 0;
        struct profile *q = build(r->run, at);
        assert_int_equal(q->total, live);
        assert_string_equal(q->unit, "bytes");
        profile_free(q);
    }
    profile_free(p);
}

static void check_calls(struct result_report *r)
{
    int64_t copied = 0;
    uint64_t waits = 0;
    for (size_t i = 0; i < r->transfers_n; i++) copied += r->transfers[i].bytes;
    for (size_t i = 0; i < r->syncs_n; i++) waits += r->syncs[i].count;
    struct profile *p = build(r->run, of(PROFILE_COPIES));
    assert_int_equal(p->total, copied);
    profile_free(p);
    p = build(r->run, of(PROFILE_WAITS));
    assert_string_equal(p->unit, "ns");
    assert_int_equal(p->count, waits);
    assert_true((double)p->total / 1e9 - r->sync_blocked_s < 1e-9 && r->sync_blocked_s - (double)p->total / 1e9 < 1e-9);
    profile_free(p);
}

static void test_sums(void **state)
{
    (void)state;
    static const struct run_options options = {.all = true, .memory_map = true};
    for (unsigned seed = 1; seed <= ROUNDS; seed++) {
        struct syn s;
        syn_start(&s);
        fill(&s, "r", 1, seed);
        struct result_report *r = syn_report(&s, &options);
        check_sums(r);
        check_oom(r);
        check_calls(r);
        syn_close(r);
        syn_end(&s);
    }
}

static void test_processes(void **state)
{
    (void)state;
    static const struct run_options options = {.all = true, .memory_map = true};
    struct syn s;
    syn_start(&s);
    fill(&s, "r", 1, 5);
    syn_done(&s);
    syn_open(&s, "run.2.db");
    fill(&s, "r", 2, 6);
    syn_done(&s);
    snprintf(s.path, sizeof s.path, "%s/run.db", s.folder);
    struct result_report *r = syn_report(&s, &options);
    assert_int_equal(r->processes_n, 2);
    check_sums(r);
    check_oom(r);
    check_calls(r);
    struct profile_request one = of(PROFILE_PEAK);
    one.process = 1;
    struct profile *p = build(r->run, one);
    for (size_t i = 0; i < p->n; i++) assert_int_equal(p->entries[i].process, 1);
    assert_int_equal(p->moments[0], RUN_UNKNOWN);
    profile_free(p);
    syn_close(r);
    syn_end(&s);
}

static void test_frames(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 0, 1);
    int64_t main = syn_native(&s, 0, "/usr/bin/python3", 16);
    int64_t outer = syn_python(&s, main, "outer", "/home/u/a.py", 1);
    int64_t inner = syn_python(&s, outer, "inner", "/home/u/a.py", 2);
    int64_t low = syn_native(&s, inner, "/opt/x/libk.so", 64);
    syn_alloc(&s, (struct syn_alloc){.bytes = 7, .at = 1, .life = SYN_LIVE, .stack = low});
    syn_alloc(&s, (struct syn_alloc){.bytes = 5, .at = 2, .life = SYN_LIVE, .stack = inner});
    syn_alloc(&s, (struct syn_alloc){.bytes = 3, .at = 3, .life = SYN_LIVE});
    struct result_report *r = syn_report(&s, NULL);
    struct profile_request wish = of(PROFILE_END);
    wish.categories = false;
    struct profile *p = build(r->run, wish);
    const struct run_frame *frames[8];
    assert_int_equal(p->n, 3);
    assert_int_equal(profile_frames(r->run, p->entries[0].stack, false, frames, 8), 2);
    assert_string_equal(frames[0]->function, "outer");
    assert_string_equal(frames[1]->function, "inner");
    assert_int_equal(profile_frames(r->run, p->entries[0].stack, true, frames, 8), 4);
    assert_string_equal(frames[0]->module, "/usr/bin/python3");
    assert_string_equal(frames[3]->module, "/opt/x/libk.so");
    assert_int_equal(profile_frames(r->run, p->entries[0].stack, true, frames, 1), 1);
    assert_string_equal(frames[0]->module, "/opt/x/libk.so");
    assert_int_equal(profile_frames(r->run, RUN_NONE, true, frames, 8), 0);
    struct profile_call_tree *t = profile_call_tree_build(r->run, p, false, NULL, NULL);
    assert_int_equal(t->root->children_n, 2);
    assert_int_equal(t->root->children[0]->children[0]->self, 12);
    assert_int_equal(t->root->children[0]->children[0]->self_count, 2);
    assert_ptr_equal(t->root->children[1]->frame, &profile_call_unknown);
    assert_int_equal(t->root->children[1]->self, 3);
    assert_int_equal(t->nodes, 4);
    profile_call_tree_free(t);
    profile_free(p);
    syn_close(r);
    syn_end(&s);
}

/* PyTorch allocates from CUDA before the first tensor exists: segments freed before that are not tensors' memory
 * either. */
static void test_segments_before_the_first_tensor(void **state)
{
    (void)state;
    static const struct run_options options = {.all = true, .memory_map = true};
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 0, 1);
    syn_alloc(&s, (struct syn_alloc){.bytes = 100, .at = 1, .life = 2});
    syn_alloc(&s, (struct syn_alloc){.layer = GS_LAYER_TENSOR, .bytes = 7, .at = 9, .life = 3});
    struct result_report *r = syn_report(&s, &options);
    for (int categories = 0; categories < 2; categories++) {
        struct profile_request wish = of(PROFILE_ALLOCATED);
        wish.categories = categories;
        struct profile *p = build(r->run, wish);
        assert_int_equal(p->total, 7);
        assert_int_equal(p->n, 1);
        profile_free(p);
    }
    syn_close(r);
    syn_end(&s);
}

static bool name_it(void *data, const char *module, const char *build_id, uint64_t offset, const char **function,
                    const char **file, int *line)
{
    (void)data, (void)module, (void)build_id;
    *function = offset % 2 ? "cublasCreate_v2" : "work";
    *file = NULL;
    *line = 0;
    return true;
}

static void native_lives(struct syn *s, unsigned seed)
{
    int64_t stacks[4] = {0};
    srand(seed);
    syn_process(s, "r", 1, 0, 1);
    for (int i = 1; i < 4; i++) stacks[i] = syn_native(s, i == 3 ? stacks[1] : 0, "/opt/app", i);
    for (int i = 0; i < LIVES; i++) {
        int64_t id = syn_alloc(s, (struct syn_alloc){.address = 4096 + i,
                                                     .bytes = 1 + rand() % 50,
                                                     .at = i * SYN_MS,
                                                     .life = rand() % 4 ? (rand() % 60) * SYN_MS : SYN_LIVE,
                                                     .stack = stacks[rand() % 4]});
        syn_sql(s, "UPDATE allocation_row SET free_stack_id = nullif(%lld,0) WHERE id = %lld",
                (long long)stacks[rand() % 4], (long long)id);
    }
}

/* Without Python, a single replay gives the same result as another pass over the rows. */
static void test_sums_of_a_replay(void **state)
{
    (void)state;
    static const struct run_options options = {.all = true, .memory_map = true, .symbol = name_it};
    for (unsigned seed = 1; seed <= ROUNDS; seed++) {
        struct syn s;
        struct profile_statistics all;
        char error[256];
        syn_start(&s);
        native_lives(&s, seed);
        struct result_report *r = syn_report(&s, &options);
        struct run_observer observer = profile_statistics_observer(&all, r->run);
        assert_non_null(all.sums.finder);
        assert_true(run_replay(r->run, &observer, 1, error, sizeof error));
        struct profile_request wish = of(PROFILE_ALLOCATED);
        struct profile *passes = build(r->run, wish);
        wish.sums = &all.sums;
        struct profile *once = build(r->run, wish);
        assert_int_equal(once->n, passes->n);
        unsigned seen = 0;
        for (size_t i = 0; i < once->n; i++) {
            assert_int_equal(once->entries[i].stack, passes->entries[i].stack);
            assert_int_equal(once->entries[i].category, passes->entries[i].category);
            assert_int_equal(once->entries[i].weight, passes->entries[i].weight);
            assert_int_equal(once->entries[i].count, passes->entries[i].count);
            seen |= 1u << once->entries[i].category;
        }
        assert_int_equal(seen, 1u << RESULT_CATEGORY_WORKSPACES | 1u << RESULT_CATEGORY_UNKNOWN);
        profile_free(passes);
        profile_free(once);
        profile_sums_free(&all.sums);
        syn_close(r);
        syn_end(&s);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    struct syn s;
    syn_start(&s);
    syn_process(&s, "r", 1, 0, 1);
    struct result_report *r = syn_report(&s, NULL);
    for (int what = 0; what < PROFILE_KINDS_N; what++) {
        struct profile *p = build(r->run, of(what));
        assert_int_equal(p->n, 0);
        assert_int_equal(profile_of_word(profile_word(what)), what);
        struct profile_call_tree *t = profile_call_tree_build(r->run, p, true, NULL, NULL);
        assert_null(profile_call_next(t->root));
        profile_call_tree_free(t);
        profile_free(p);
    }
    assert_int_equal(profile_of_word("nothing"), PROFILE_KINDS_N);
    syn_close(r);
    syn_end(&s);
}

CASES(test_sums, test_processes, test_frames, test_segments_before_the_first_tensor, test_sums_of_a_replay,
      test_nothing)
