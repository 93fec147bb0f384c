/* The parts of the views of one recording: branches of a tree of calls, modules, classes of sizes and lifetimes, the
 * course of memory in columns, tables on narrow terminals. */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/view/branch.h"
#include "analyzer/profile/course.h"
#include "analyzer/profile/statistics.h"
#include "analyzer/profile/tally.h"
#include "analyzer/base/text_table.h"

#define TORCH "/usr/lib/python3/dist-packages/torch"

static const struct run_frame frames[] = {
    {.kind = GS_FRAME_PYTHON, .function = "<module>", .file = "/me/train.py", .line = 90},
    {.kind = GS_FRAME_PYTHON, .function = "step", .file = "/me/train.py", .line = 40},
    {.kind = GS_FRAME_PYTHON, .function = "Module._call_impl", .file = TORCH "/nn/modules/module.py", .line = 1},
    {.kind = GS_FRAME_PYTHON, .function = "Block.forward", .file = "/me/model.py", .line = 7},
    {.kind = GS_FRAME_PYTHON, .function = "Linear.forward", .file = TORCH "/nn/modules/linear.py", .line = 9},
    {.kind = GS_FRAME_PYTHON, .function = "Module._call_impl", .file = TORCH "/nn/modules/module.py", .line = 2},
    {.kind = GS_FRAME_NATIVE, .function = "_start", .module = "/me/solver"},
    {.kind = GS_FRAME_NATIVE, .function = "__libc_start_main_impl", .file = "./csu/libc-start.c", .line = 360},
    {.kind = GS_FRAME_NATIVE, .function = "main", .file = "/me/solver.cpp", .line = 9},
    {.kind = GS_FRAME_NATIVE, .function = "solve", .file = "/me/solver.cpp", .line = 5},
    {.kind = GS_FRAME_NATIVE, .function = "grid", .file = "/me/grid.cpp", .line = 3},
};
enum { MODULE, STEP, CALL, BLOCK, LINEAR, CALL2, START, LIBC, MAIN, SOLVE, GRID, FRAMES };

/* Adds a node below `parent`, and its weight. */
static struct profile_call_node nodes[16];
static struct profile_call_node *children[16][8];
static size_t nodes_n;

static struct profile_call_node *node(struct profile_call_node *parent, int frame, int64_t self)
{
    struct profile_call_node *n = &nodes[nodes_n];

    *n = (struct profile_call_node){.frame = frame < 0 ? NULL : &frames[frame],
                                    .parent = parent,
                                    .children = children[nodes_n],
                                    .self = self,
                                    .depth = parent ? parent->depth + 1 : 0,
                                    .self_count = self != 0};
    nodes_n++;
    if (parent) parent->children[parent->children_n++] = n;
    for (struct profile_call_node *p = n; p; p = p->parent) {
        p->total += self;
        p->total_count += self != 0;
    }
    return n;
}

/* <module> → step → (_call_impl, twice) → Block.forward → (_call_impl) → Linear.forward. */
static struct profile_call_tree tree(void)
{
    nodes_n = 0;
    struct profile_call_node *root = node(NULL, -1, 0), *module = node(root, MODULE, 0), *step = node(module, STEP, 0);
    struct profile_call_node *first = node(node(node(step, CALL, 0), BLOCK, 0), CALL2, 0);
    struct profile_call_node *second = node(node(step, CALL2, 0), BLOCK, 5);
    node(first, LINEAR, 100);
    node(node(second, CALL, 0), LINEAR, 20);
    node(step, LINEAR, 3);
    return (struct profile_call_tree){.root = root, .nodes = nodes_n, .depth = 7};
}

static void frames_that_only_pass_on_are_left_out(void **state)
{
    struct arena arena = {0};
    struct profile_call_tree t = tree();
    struct view_branch *root = view_branch_build(&arena, &t, false);

    (void)state;
    assert_int_equal(root->n, 1);
    const struct view_branch *top = root->children[0]; /* <module> and step are one chain */
    assert_ptr_equal(top->first->frame, &frames[MODULE]);
    assert_ptr_equal(top->end->frame, &frames[STEP]);
    assert_int_equal(top->total, 128);
    assert_int_equal(top->n, 2); /* both paths to Block.forward are merged */
    const struct view_branch *block = top->children[0];
    assert_ptr_equal(block->first->frame, &frames[BLOCK]);
    assert_int_equal(block->total, 125);
    assert_int_equal(block->self, 5);
    assert_int_equal(block->n, 1);
    assert_ptr_equal(block->children[0]->end->frame, &frames[LINEAR]);
    assert_int_equal(block->children[0]->total, 120);
    assert_int_equal(top->children[1]->total, 3);
    arena_free(&arena);
}

static void a_program_of_cpp_is_named_by_its_lines(void **state)
{
    struct arena arena = {0};
    struct run_process process = {.cwd = "/me"};
    struct result_report report = {.processes = &process, .processes_n = 1};
    struct draw_text v = {.report = &report, .term = {.utf8 = true, .width = 80}};
    char text[256];

    (void)state;
    nodes_n = 0;
    struct profile_call_node *root = node(NULL, -1, 0), *last = root;
    for (int frame = START; frame <= GRID; frame++) /* solve calls itself */
        for (int i = 0; i < (frame == SOLVE ? 3 : 1); i++) last = node(last, frame, frame == GRID ? 64 : 0);
    struct profile_call_tree t = {.root = root, .nodes = nodes_n, .depth = (unsigned)last->depth};
    const struct view_branch *top = view_branch_build(&arena, &t, false)->children[0];
    assert_int_equal(top->n, 0);
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 80),
                        "solver.cpp:9 main → :5 solve → grid.cpp:3 grid");
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 40), "solver.cpp:9 → :5 → grid.cpp:3 grid");
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 30), "solver.cpp:9 → :5 → grid.cpp:3");
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 20), "solver.cpp:9 main");
    arena_free(&arena);
}

static void everything_is_kept_if_requested(void **state)
{
    struct arena arena = {0};
    struct profile_call_tree t = tree();
    struct view_branch *root = view_branch_build(&arena, &t, true);
    size_t n = 0;

    (void)state;
    for (const struct view_branch *b = root; b; b = b->n ? b->children[0] : NULL, n++) {
        int64_t sum = b->self;
        assert_ptr_equal(b->first, b->end);
        for (size_t i = 0; i < b->n; i++) sum += b->children[i]->total;
        assert_int_equal(sum, b->total);
    }
    assert_int_equal(n, 7);
    arena_free(&arena);
}

static void a_chain_is_named_by_ones_own_code(void **state)
{
    struct arena arena = {0};
    struct profile_call_tree t = tree();
    struct run_process process = {.cwd = "/me"};
    struct result_report report = {.processes = &process, .processes_n = 1};
    struct draw_text v = {.report = &report, .term = {.utf8 = true, .width = 80}};
    const struct view_branch *top = view_branch_build(&arena, &t, false)->children[0];
    char text[256];

    (void)state;
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 80), "train.py:90 <module> → :40 step");
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 24), "train.py:90 → :40 step");
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 12), "train.py:90");
    assert_string_equal(view_branch_name(&v, top, text, sizeof text, 18), "step train.py:40");
    assert_string_equal(view_branch_name(&v, top, text, sizeof text, 3), "ste");
    assert_int_equal(view_branch_kind_of(top), BRANCH_OWN);
    const struct view_branch *linear = top->children[0]->children[0];
    assert_int_equal(view_branch_kind_of(linear), BRANCH_LIBRARY);
    assert_string_equal(view_branch_label(&v, linear, text, sizeof text, 30), "linear.py:9 Linear.forward");
    v.term.utf8 = false;
    assert_string_equal(view_branch_label(&v, top, text, sizeof text, 80), "train.py:90 <module> -> :40 step");
    arena_free(&arena);
}

static void small_branches_are_summed_up(void **state)
{
    struct view_branch leaf[4] = {{.total = 50}, {.total = 30}, {.total = 4}, {.total = 3}};
    struct view_branch *below[] = {&leaf[0], &leaf[1], &leaf[2], &leaf[3]};
    struct view_branch b = {.children = below, .n = 4};
    int64_t rest;

    (void)state;
    assert_int_equal(view_branch_shown(&b, &(struct view_branch_limits){.least = 5, .top = 9}, &rest), 2);
    assert_int_equal(rest, 7);
    assert_int_equal(view_branch_shown(&b, &(struct view_branch_limits){.top = 1}, &rest), 1);
    assert_int_equal(rest, 37);
    b.n = 3; /* one more row is shown instead of "and 1 more" */
    assert_int_equal(view_branch_shown(&b, &(struct view_branch_limits){.least = 5, .top = 9}, &rest), 3);
    assert_int_equal(rest, 0);
}

static void modules_have_the_names_that_import_has(void **state)
{
    static const struct {
        struct run_frame frame;
        const char *name;
    } cases[] = {
        {{.kind = GS_FRAME_PYTHON, .file = TORCH "/nn/functional.py"}, "torch.nn.functional"},
        {{.kind = GS_FRAME_PYTHON, .file = "/v/lib/python3.11/site-packages/torch/nn/__init__.py"}, "torch.nn"},
        {{.kind = GS_FRAME_PYTHON, .file = "/usr/lib/python3.11/multiprocessing/spawn.py"}, "multiprocessing.spawn"},
        {{.kind = GS_FRAME_PYTHON, .file = "/me/models/gpt.py"}, "models.gpt"},
        {{.kind = GS_FRAME_PYTHON, .file = "/elsewhere/gpt.py"}, "gpt"},
        {{.kind = GS_FRAME_PYTHON, .file = "<string>"}, "<string>"},
        {{.kind = GS_FRAME_NATIVE, .module = "/usr/lib/libtorch_cuda.so", .file = "/src/a.cpp"}, "libtorch_cuda.so"},
        {{.kind = GS_FRAME_NATIVE, .function = "MmBackward0"}, "MmBackward0"},
        {{.kind = GS_FRAME_NATIVE}, "?"},
    };
    char name[64];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        profile_tally_module(&cases[i].frame, "/me", name, sizeof name);
        assert_string_equal(name, cases[i].name);
    }
    profile_tally_module(&cases[0].frame, NULL, name, 6);
    assert_string_equal(name, "torch");
}

static void classes_meet_without_a_gap(void **state)
{
    (void)state;
    assert_int_equal(profile_statistics_size_class(-1), 0);
    assert_int_equal(profile_statistics_size_class(0), 0);
    assert_int_equal(profile_statistics_size_class(1), 0);
    assert_int_equal(profile_statistics_size_class(2), 1);
    assert_int_equal(profile_statistics_size_class(511), 8);
    assert_int_equal(profile_statistics_size_class(512), 9);
    assert_int_equal(profile_statistics_size_class(INT64_MAX), 62);
    assert_int_equal(profile_statistics_life_class(0), 0);
    assert_int_equal(profile_statistics_life_class(9), 0);
    assert_int_equal(profile_statistics_life_class(10), 1);
    assert_int_equal(profile_statistics_life_class(999999999), 8);
    assert_int_equal(profile_statistics_life_class(1000000000), 9);
    assert_int_equal(profile_statistics_life_class(INT64_MAX), STATISTICS_LIVES - 1);
}

static void each_moment_has_its_column(void **state)
{
    struct profile_courses c = {.columns_n = 4, .from_ns = 100, .to_ns = 200};

    (void)state;
    assert_int_equal(profile_courses_column(&c, 99), 4);
    assert_int_equal(profile_courses_column(&c, 100), 0);
    assert_int_equal(profile_courses_column(&c, 124), 0);
    assert_int_equal(profile_courses_column(&c, 125), 1);
    assert_int_equal(profile_courses_column(&c, 200), 3);
    assert_int_equal(profile_courses_column(&c, 201), 4);
    assert_int_equal(profile_courses_column(&c, INT64_MIN), 4);
    c = (struct profile_courses){.columns_n = 300, .to_ns = INT64_MAX};
    assert_in_range(profile_courses_column(&c, INT64_MAX), 299, 299);
}

static char *table_at(int width)
{
    struct text_table t = {.head = {"bytes", "share", "count", "line"}};
    struct terminal term = {.width = width};
    const char *cells[] = {"941.79 MiB", "100 %", "1,234,567", "good.py:10  Block.forward"};
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);

    text_table_add(&t, cells, NULL);
    text_table_print(&t, &term, 2, f);
    fclose(f);
    return text;
}

static void a_table_fits_whatever_the_width(void **state)
{
    static const struct {
        int width;
        const char *text;
    } cases[] = {
        {80, "       bytes  share      count  line\n"
             "  941.79 MiB  100 %  1,234,567  good.py:10  Block.forward\n"},
        {40, "       bytes  share      count\n"
             "  941.79 MiB  100 %  1,234,567\n"
             "    good.py:10  Block.forward\n"},
        {24, "       bytes  share\n        count\n"
             "  941.79 MiB  100 %\n    1,234,567\n"
             "    good.py:10\n    Block.forward\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *text = table_at(cases[i].width);
        assert_string_equal(text, cases[i].text);
        free(text);
    }
}

CASES(frames_that_only_pass_on_are_left_out, a_program_of_cpp_is_named_by_its_lines, everything_is_kept_if_requested,
      a_chain_is_named_by_ones_own_code, small_branches_are_summed_up, modules_have_the_names_that_import_has,
      classes_meet_without_a_gap, each_moment_has_its_column, a_table_fits_whatever_the_width)
