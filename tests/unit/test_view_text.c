/* The report for a terminal, from a report made by hand: the order, that nothing is wider than the terminal, that names
 * from a database cannot control it, and that an empty report prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/view/view_text.h"
#include "analyzer/view/view_text_parts.h"
#include "tests/unit/synthetic.h"

#define GIB (INT64_C(1) << 30)
#define MIB (INT64_C(1) << 20)
#define LONG_PATH "/home/someone/with/a/very/long/path/to/the/projects/folder/experiments/2025/train.py"

static struct run *run; /* with one stack, of three frames */
enum { STACK = 2 };

static bool symbol(void *data, const char *module_path, const char *build_id, uint64_t offset, const char **function,
                   const char **file, int *line)
{
    (void)data, (void)module_path, (void)build_id, (void)file, (void)line;
    *function = offset == 0x1234 ? "at::native::empty_cuda(c10::ArrayRef<long>, int)" : NULL;
    return *function;
}

static int open_run(void **state)
{
    static struct syn s;
    static const struct run_options options = {.symbol = symbol};
    char error[256], *path = s.path;
    *state = &s;
    syn_start(&s);
    syn_process(&s, "r", 4711, SYN_S, 1);
    const int64_t module = syn_python(&s, 0, "<module>", "/job/train_leak.py", 58);
    const int64_t train = syn_python(&s, module, "train", "/job/train_leak.py", 46);
    syn_native(&s, train, "/usr/lib/libtorch_cuda.so", 0x1234);
    syn_done(&s);
    run = run_open((const char *const *)&path, 1, &options, error, sizeof error);
    return run && run_stack_count(run) == STACK + 1 ? 0 : -1;
}

static int close_run(void **state)
{
    run_close(run);
    syn_end(*state);
    return 0;
}

static struct result_site site(const char *file, int line, const char *function)
{
    return (struct result_site){
        .kind = GS_FRAME_PYTHON, .known = true, .file = file, .line = line, .function = function};
}

static struct result_trace trace(void)
{
    return (struct result_trace){.number = STACK, .site = site("/job/train_leak.py", 46, "train")};
}

static struct run_process process = {.pid = 4711,
                                     .rank = RUN_UNKNOWN,
                                     .ppid = RUN_UNKNOWN,
                                     .cwd = "/job",
                                     .command = "python3 train_leak.py",
                                     .python_version = "3.11.2",
                                     .end_ns = 3420000000,
                                     .complete = true,
                                     .start_real_ns = 1732148000000000000,
                                     .lost_first_ns = RUN_UNKNOWN};
static struct run_device device = {.device = 0, .name = "Simulated GPU", .total_bytes = 2 * GIB, .free_bytes = 2 * GIB};

static struct result_by_site sites[3];
static struct result_by_stack stacks[1];
static struct result_peak peaks[2];
static struct result_point points[2][200];
static struct result_timeline timelines[2];
static struct result_device_memory memory;
static struct result_evidence evidence[] = {
    {"growing_bytes", "growing call sites hold", false, 1.1e9, NULL},
    {"growth_fit", "how straight they grow (1 is a line)", false, 0.998, NULL},
    {"site", "the largest of them", true, NAN, "train_leak.py:46"},
};
static const char *oom_advice[] = {
    "Keep the number, not the tensor: history.append(output.item()) at train_leak.py:46 lets the memory go."};
static struct result_oom_verdict oom;
static struct result_leak leak;
static struct result_growth growth;
static struct result_churn churn;
static struct result_retry retry;
static struct result_sync_site sync_site;
static struct result_transfer transfer;
static struct result_fragmentation fragmentation;
static struct result_advice advice[] = {
    {1, "oom", "this one stands with the verdict"},
    {0.35, "sync",
     "Read the loss every 50 steps instead of every step: output.item() at train_leak.py:48 "
     "waits for the GPU each time."},
};

static void fill_memory(void)
{
    sites[0] = (struct result_by_site){
        .bytes = 1200 * MIB, .count = 200, .stacks = 1, .site = site("/job/train_leak.py", 46, "train")};
    sites[1] = (struct result_by_site){.bytes = 384 * MIB,
                                       .count = 16,
                                       .stacks = 2,
                                       .site = site(LONG_PATH, 17, "Model.__init__.<locals>.<listcomp>")};
    sites[2] = (struct result_by_site){
        .bytes = 96 * MIB,
        .count = 8,
        .stacks = 1,
        .site = site("/usr/lib/python3/dist-packages/torch/nn/modules/linear.py", 114, "Linear.forward")};
    stacks[0] = (struct result_by_stack){.bytes = 1200 * MIB, .count = 200, .stack = trace()};
    for (int layer = 0; layer < 2; layer++) {
        for (int i = 0; i < 200; i++)
            points[layer][i] = (struct result_point){i * 3.4 / 200, layer ? (400 + 7 * i + (i % 9) * 30) * MIB
                                                                          : (500 + 7 * (i / 10 * 10 + 10)) * MIB};
        enum run_series_layer word = layer ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE;
        peaks[layer] = (struct result_peak){.device = 0,
                                            .layer = word,
                                            .bytes = (layer ? 1780 : 1900) * MIB,
                                            .time_s = 3.3,
                                            .count = 240,
                                            .end_bytes = 1700 * MIB,
                                            .by_stack = stacks,
                                            .by_stack_n = 1,
                                            .by_stack_total = 30,
                                            .by_site = sites,
                                            .by_site_n = 3,
                                            .by_site_total = 12,
                                            .by_line = sites,
                                            .by_line_n = 3,
                                            .by_line_total = 12};
        timelines[layer] = (struct result_timeline){.device = 0, .layer = word, .points = points[layer], .n = 200};
    }
    memory = (struct result_device_memory){.device = 0,
                                           .total_bytes = 2 * GIB,
                                           .live_bytes = 1900 * MIB,
                                           .tensor_bytes = 1780 * MIB,
                                           .cached_bytes = 120 * MIB,
                                           .direct_bytes = 0,
                                           .outside_bytes = 100 * MIB,
                                           .free_bytes = 48 * MIB,
                                           .outside_first_bytes = RUN_UNKNOWN};
}

static void fill_calls(void)
{
    oom = (struct result_oom_verdict){
        .time_s = 3.4,
        .device = 0,
        .requested_bytes = 64 * MIB,
        .free_bytes = 48 * MIB,
        .total_bytes = 2 * GIB,
        .tensor_allocated = 1780 * MIB,
        .tensor_reserved = 1900 * MIB,
        .fatal = true,
        .device_live = 1900 * MIB,
        .outside = 100 * MIB,
        .failures = 2,
        .cause = RESULT_CAUSE_LEAK,
        .evidence = evidence,
        .evidence_n = 3,
        .verdict = "1.17 GiB of the 1.86 GiB in use came from one line that keeps every block that it makes.",
        .advice = oom_advice,
        .advice_n = 1,
        .stack = trace(),
        .live = sites,
        .live_n = 3,
        .live_total = 12,
        .live_sum = 1780 * MIB,
        .live_lines = sites,
        .live_lines_n = 3,
        .live_lines_total = 12,
        .live_layer = RUN_SERIES_TENSOR};
    leak = (struct result_leak){
        .device = 0, .layer = RUN_SERIES_TENSOR, .bytes = 1200 * MIB, .count = 200, .growing = true, .stack = trace()};
    growth = (struct result_growth){.device = 0,
                                    .layer = RUN_SERIES_TENSOR,
                                    .bytes = 1200 * MIB,
                                    .bytes_per_step = 6.0 * MIB,
                                    .steps = 200,
                                    .fit = 0.998,
                                    .stack = trace()};
    churn =
        (struct result_churn){.count = 2000, .bytes = 8 * GIB, .per_s = 600, .mean_life_s = 0.001, .stack = trace()};
    retry = (struct result_retry){.time_s = 2.5, .requested_bytes = 32 * MIB, .failures = 1, .stack = trace()};
    sync_site = (struct result_sync_site){.kind = GS_SYNC_STREAM,
                                          .count = 200,
                                          .blocked_s = 1.2,
                                          .share = 0.35,
                                          .matters = true,
                                          .pattern = ".item()",
                                          .api = "cudaMemcpy",
                                          .site = site("/job/train_leak.py", 48, "train")};
    transfer = (struct result_transfer){.direction = GS_DIR_H2D,
                                        .host_memory = GS_HOSTMEM_PAGEABLE,
                                        .count = 200,
                                        .bytes = 800 * MIB,
                                        .bytes_per_s = 6.1e9,
                                        .site = site("/job/train_leak.py", 33, "load_batch")};
    fragmentation = (struct result_fragmentation){
        .reserved_bytes = 1900 * MIB, .active_bytes = 1500 * MIB, .largest_free_bytes = 20 * MIB, .utilisation = 0.79};
}

static struct result_report full(void)
{
    fill_memory();
    fill_calls();
    return (struct result_report){.run = run,
                                  .command = "python3 train_leak.py",
                                  .duration_s = 3.42,
                                  .complete = true,
                                  .events = 12345,
                                  .lost_first_s = NAN,
                                  .processes = &process,
                                  .processes_n = 1,
                                  .devices = &device,
                                  .devices_n = 1,
                                  .peaks = peaks,
                                  .peaks_n = 2,
                                  .timelines = timelines,
                                  .timelines_n = 2,
                                  .memory = &memory,
                                  .memory_n = 1,
                                  .ooms = &oom,
                                  .ooms_n = 1,
                                  .ooms_total = 3,
                                  .leaks = &leak,
                                  .leaks_n = 1,
                                  .leaks_total = 1,
                                  .leak_lines = &leak,
                                  .leak_lines_n = 1,
                                  .leak_lines_total = 1,
                                  .leaks_at_end = true,
                                  .growth = &growth,
                                  .growth_n = 1,
                                  .growth_total = 1,
                                  .syncs = &sync_site,
                                  .syncs_n = 1,
                                  .syncs_total = 1,
                                  .sync_lines = &sync_site,
                                  .sync_lines_n = 1,
                                  .sync_lines_total = 1,
                                  .sync_blocked_s = 1.2,
                                  .sync_share = 0.35,
                                  .transfers = &transfer,
                                  .transfers_n = 1,
                                  .transfers_total = 1,
                                  .transfer_lines = &transfer,
                                  .transfer_lines_n = 1,
                                  .transfer_lines_total = 1,
                                  .fragmentation = &fragmentation,
                                  .fragmentation_n = 1,
                                  .churn = &churn,
                                  .churn_n = 1,
                                  .churn_total = 1,
                                  .churn_lines = &churn,
                                  .churn_lines_n = 1,
                                  .churn_lines_total = 1,
                                  .retries = &retry,
                                  .retries_n = 1,
                                  .retries_total = 1,
                                  .advice = advice,
                                  .advice_n = 2,
                                  .budget = {.present = true,
                                             .estimate = {4e8, 4e8, 8e8, 1.6e9, 1e8, 0},
                                             .rows = {{.category = RESULT_CATEGORY_PARAMETERS,
                                                       .estimate_bytes = 4e8,
                                                       .peak_bytes = 400000000,
                                                       .most_bytes = 400000000},
                                                      {.category = RESULT_CATEGORY_GRADIENTS,
                                                       .estimate_bytes = 4e8,
                                                       .most_bytes = 200000000,
                                                       .difference_bytes = -4e8,
                                                       .why = "none at the peak: up to 190.73 MiB were live later"},
                                                      {.category = RESULT_CATEGORY_UNKNOWN,
                                                       .estimate_bytes = NAN,
                                                       .peak_bytes = 5 * MIB,
                                                       .most_bytes = RUN_UNKNOWN,
                                                       .difference_bytes = NAN,
                                                       .why = "not explained"}},
                                             .rows_n = 3,
                                             .measured_bytes = 1780 * MIB,
                                             .measured_layer = RUN_SERIES_TENSOR,
                                             .difference_bytes = 2.7e8,
                                             .difference_share = 0.17}};
}

static char *print(const struct result_report *r, struct terminal term, bool native)
{
    char *text = NULL;
    size_t size;
    struct draw_text v = {.report = r,
                          .term = term,
                          .top = 8,
                          .native = native,
                          .database = "run.db",
                          .out = open_memstream(&text, &size)};

    assert_non_null(v.out);
    view_text(&v);
    fclose(v.out);
    if (getenv("GPUSPY_SHOW")) /* to view it: GPUSPY_SHOW=1 build/tests/unit/test_view_text */
        puts(text);
    return text;
}

static int widest(const char *text)
{
    int most = 0;

    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        char one[4096];
        snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
        int w = terminal_columns(one);
        if (w > most) most = w;
    }
    return most;
}

static void assert_plain(const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        assert_true(*p == '\n' || (*p >= 0x20 && *p != 0x7f));
}

static void fits_every_width(void **state)
{
    struct result_report r = full();

    (void)state;
    for (int width = 40; width <= 300; width += 20) {
        for (int utf8 = 0; utf8 < 2; utf8++) {
            for (int native = 0; native < 2; native++) {
                char *text = print(&r, (struct terminal){.utf8 = utf8, .width = width}, native);
                if (widest(text) > width) {
                    fputs(text, stderr);
                    fail_msg("%d columns at width %d", widest(text), width);
                }
                assert_plain(text);
                free(text);
            }
        }
    }
}

static void budget_without_a_measurement_states_so(void **state)
{
    struct result_report r = full();
    r.budget.rows_n = 0;
    r.budget.measured_bytes = RUN_UNKNOWN;
    r.budget.difference_bytes = r.budget.difference_share = NAN;
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    const char *budget = strstr(text, "Budget");

    (void)state;
    assert_non_null(budget);
    assert_non_null(strstr(budget, "No allocation was recorded"));
    assert_null(strstr(budget, "measured at the peak"));
    assert_null(strstr(budget, "on top"));
    free(text);
}

static void budget_has_a_row_for_each_category(void **state)
{
    struct result_report r = full();
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    const char *budget = strstr(text, "Budget");

    (void)state;
    assert_non_null(budget);
    assert_non_null(strstr(budget, "  381.47 MiB   381.47 MiB          0 B  parameters\n"));
    assert_non_null(strstr(budget, "  381.47 MiB          0 B  -381.47 MiB  gradients: none at the peak: up to"));
    assert_non_null(strstr(budget, "                5.00 MiB               unknown: not explained\n"));
    assert_non_null(strstr(budget, "the minimum, and the peak"));
    free(text);
    r.budget.rows_n = 0;
    text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    assert_non_null(strstr(text, "measured at the peak (tensors)"));
    assert_non_null(strstr(text, "on top: activations"));
    free(text);
}

static void the_next_command_has_the_measured_parameters(void **state)
{
    static const struct {
        int64_t bytes;
        const char *option;
    } cases[] = {{0, NULL},
                 {33587200, "--params 8.397M "},
                 {497759232, "--params 124.4M "},
                 {28000000000, "--params 7B "},
                 {40000, "--params 10k "}};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct result_report r = full();
        r.budget.present = false;
        r.budget.parameter_bytes = cases[i].bytes;
        char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
        if (cases[i].option)
            assert_non_null(strstr(text, cases[i].option));
        else /* no command if the fact is unknown */
            assert_null(strstr(text, "--params"));
        free(text);
    }
}

/* Commands that suit every run are in the manual: the report suggests those for this run's open questions. */
static void the_next_commands_are_about_this_run(void **state)
{
    struct result_report r = full();
    const struct terminal term = {.utf8 = true, .width = 100};

    (void)state;
    struct run_device real = {.name = "NVIDIA RTX", .total_bytes = (int64_t)24 << 30};
    r.devices = &real;
    r.devices_n = 1;
    r.sync_share = 0.5;
    char *text = print(&r, term, false);
    const char *next = strstr(text, "\nNext\n");
    assert_non_null(next);
    assert_non_null(strstr(next, "gpuspy report --html "));
    assert_non_null(strstr(next, "gpuspy tree --what oom "));
    assert_non_null(strstr(next, "gpuspy tree --what waits "));
    assert_int_equal(strstr(next, "gpuspy leaks ") != NULL, r.growth_n > 0);
    free(text);
    r.ooms_n = 0;
    r.sync_share = 0.01;
    text = print(&r, term, false);
    next = strstr(text, "\nNext\n");
    assert_non_null(next);
    assert_non_null(strstr(next, "gpuspy tree "));
    assert_null(strstr(next, "--what"));
    free(text);
}

static void says_what_matters_first(void **state)
{
    struct result_report r = full();
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    const char *oom_at = strstr(text, "OUT OF MEMORY on GPU 0 at 3.40 s");

    (void)state;
    assert_non_null(oom_at);
    assert_null(strstr(text, "Memory did not run out"));
    assert_non_null(strstr(oom_at, "Request 64.00 MiB, with 48.00 MiB of 2.00 GiB free, at train_leak.py:46 in train"));
    assert_non_null(strstr(oom_at, "train_leak.py:46  train"));
    assert_non_null(strstr(oom_at, "1.74 GiB in tensors + 120.00 MiB cached by PyTorch + 100.00 MiB outside"));
    assert_non_null(strstr(oom_at, " + 48.00 MiB free = 2.00 GiB"));
    assert_null(strstr(text, "/job/"));
    assert_non_null(strstr(text, "torch/nn/modules/linear.py:114"));
    assert_null(strstr(text, "dist-packages"));
    assert_null(strstr(text, "this one stands with the verdict"));
    assert_non_null(strstr(text, "Waiting for the GPU: 1.20 s, 35 % of the run"));
    assert_non_null(strstr(text, "and 9 more: --top 12 shows them"));
    assert_non_null(strstr(text, "gpuspy report --json run.db"));
    assert_true(strstr(text, "Waiting for") > strstr(text, "Live at the peak"));
    free(text);
}

/* In a run of days, 2 % of its time are hours, in which the peak may be over. */
static void a_failure_near_the_peak_does_not_hide_what_was_live_at_it(void **state)
{
    struct result_report r = full();
    struct result_held_part part = {.bytes = 2 * GIB, .share = 1};
    (void)state;
    r.budget.present = false; /* comes before the peak */
    for (int lower = 0; lower <= 1; lower++) {
        oom.time_s = peaks[1].time_s;
        oom.waterfall = &part;
        oom.waterfall_n = 1;
        oom.live_sum = lower ? 6 * MIB : 1780 * MIB;
        char *text = NULL;
        size_t size;
        struct draw_text v = {.report = &r,
                              .term = {.utf8 = true, .width = 100},
                              .top = 8,
                              .brief = true,
                              .database = "run.db",
                              .out = open_memstream(&text, &size)};
        view_text(&v);
        fclose(v.out);
        assert_int_equal(!!strstr(text, "Live at the peak"), lower);
        free(text);
    }
}

static void what_holds_a_part_is_wrapped(void **state)
{
    struct result_held_line lines[] = {
        {.text = "in private pools, which only CUDA graphs or torch.cuda.MemPool can use", .bytes = GIB},
        {.text = "scratch.py", .site = {.known = true, .file = "/job/scratch.py", .line = 14}, .bytes = GIB}};
    struct result_held_part part = {.bytes = 2 * GIB, .share = 1, .lines = lines, .lines_n = 2, .text = "cached"};
    struct result_oom_verdict o = {.total_bytes = 2 * GIB, .waterfall = &part, .waterfall_n = 1};
    struct result_report r = full();

    (void)state;
    for (int width = 60; width <= 80; width += 20) {
        char *text = NULL;
        size_t size;
        struct draw_text v = {.report = &r, .term = {.width = width}, .out = open_memstream(&text, &size)};
        view_text_waterfall(&v, &o);
        fclose(v.out);
        for (const char *line = text; *line; line += strcspn(line, "\n") + 1)
            assert_in_range(strcspn(line, "\n"), 0, (unsigned)width);
        assert_non_null(strstr(text, "torch.cuda.MemPool"));
        assert_non_null(strstr(text, "scratch.py:14"));
        assert_null(strstr(text, "scratch.py  "));
        free(text);
    }
}

static void lost_events_come_first(void **state)
{
    struct result_report r = full();
    struct run_process dead = process;

    (void)state;
    dead.complete = false;
    dead.exit_status = -1;
    r.processes = &dead;
    r.lost_events = 1234;
    r.lost_first_s = 2.1;
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    assert_true(strncmp(text, "! 1,234 events were lost, from 2.10 s on", 40) == 0);
    assert_non_null(strstr(text, "killed, crashed or called _exit at 3.42 s"));
    free(text);
}

static void native_shows_the_calls(void **state)
{
    struct result_report r = full();
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, true);

    (void)state;
    assert_non_null(strstr(text, "at::native::empty_cuda\n"));
    assert_null(strstr(text, "ArrayRef"));
    free(text);
    text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    assert_null(strstr(text, "empty_cuda"));
    free(text);
}

static void names_cannot_drive_the_terminal(void **state)
{
    struct result_report r = full();
    static const char *bad_note[] = {"a\033]0;title\007 note"};
    struct run_device evil = device;

    (void)state;
    r.command = "python \033[2J\033[31mevil\r\n.py \xe2\x80\xae";
    evil.name = "GPU\033c\x9b";
    r.devices = &evil;
    r.notes = bad_note;
    r.notes_n = 1;
    sites[0].site.function = "f\033[8m";
    sites[0].site.file = "/tmp/\033]8;;http://x\033\\x.py";
    oom.verdict = "v\033[0m\b";
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, true);
    assert_plain(text);
    free(text);
}

static void colour_only_if_requested(void **state)
{
    struct result_report r = full();
    char *text = print(&r, (struct terminal){.colour = true, .utf8 = true, .width = 100}, false);

    (void)state;
    assert_non_null(strstr(text, "\033[1;31mOUT OF MEMORY\033[0m"));
    free(text);
}

static void an_empty_report_prints(void **state)
{
    struct result_report r = {.lost_first_s = NAN, .complete = true, .devices = &device, .devices_n = 1};
    char *text = print(&r, (struct terminal){.utf8 = false, .width = 80}, false);

    (void)state;
    assert_non_null(strstr(text, "Memory did not run out; no GPU memory was allocated"));
    assert_non_null(strstr(text, "Waiting for the GPU: no call waited"));
    free(text);
}

/* The program's end and the known facts about its memory are one sentence. */
static void a_killed_run_of_unknown_memory(void **state)
{
    struct run_process dead = process;
    struct result_report r = {.lost_first_s = NAN,
                              .devices = &device,
                              .devices_n = 1,
                              .processes = &dead,
                              .processes_n = 1,
                              .failed_unknown = true};

    (void)state;
    dead.complete = false;
    for (int i = 0; i < 2; i++, r.failed_unknown = false, r.no_history = "no history") {
        char *text = print(&r, (struct terminal){.utf8 = false, .width = 80}, false);
        const char *known = i ? "whether memory ran out is unknown" : "CUDA ran out of memory; the amount is unknown";
        if (!strstr(text, known)) fail_msg("%s", text);
        assert_null(strstr(text, "; nUDA"));
        free(text);
    }
}

static void many_ranks_are_one_line_each(void **state)
{
    struct result_report r = full();
    struct result_peak many[16];
    struct run_process ranks[16];

    (void)state;
    for (uint32_t i = 0; i < 16; i++) {
        many[i] = peaks[0];
        many[i].process = i;
        many[i].bytes += i;
        ranks[i] = process;
        ranks[i].rank = i;
    }
    r.peaks = many;
    r.peaks_n = 16;
    r.processes = ranks;
    r.processes_n = 16;
    char *text = print(&r, (struct terminal){.utf8 = true, .width = 100}, false);
    assert_non_null(strstr(text, "\nPeaks\n"));
    assert_non_null(strstr(text, "rank 15, GPU 0\n"));
    assert_null(strstr(text, "\nrank 14, GPU 0\n"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fits_every_width),
        cmocka_unit_test(budget_without_a_measurement_states_so),
        cmocka_unit_test(budget_has_a_row_for_each_category),
        cmocka_unit_test(the_next_command_has_the_measured_parameters),
        cmocka_unit_test(the_next_commands_are_about_this_run),
        cmocka_unit_test(says_what_matters_first),
        cmocka_unit_test(a_failure_near_the_peak_does_not_hide_what_was_live_at_it),
        cmocka_unit_test(what_holds_a_part_is_wrapped),
        cmocka_unit_test(lost_events_come_first),
        cmocka_unit_test(native_shows_the_calls),
        cmocka_unit_test(names_cannot_drive_the_terminal),
        cmocka_unit_test(colour_only_if_requested),
        cmocka_unit_test(an_empty_report_prints),
        cmocka_unit_test(a_killed_run_of_unknown_memory),
        cmocka_unit_test(many_ranks_are_one_line_each),
    };

    setlocale(LC_CTYPE, "C.UTF-8"); /* widths of characters */
    return cmocka_run_group_tests(tests, open_run, close_run);
}
