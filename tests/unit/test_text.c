/* Names as shown to users: cleaned, shortened, quoted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

static void terminal_control_is_removed(void **state)
{
    static const char *const rows[][2] = {
        {"plain", "plain"},
        {"a\033[31mb", "a?[31mb"},
        {"a\r\n\tb", "a???b"},
        {"\xc2\x9b"
         "31m",
         "?31m"}, /* CSI as one character */
        {"\xe2\x80\xae"
         "evil",
         "?evil"}, /* right-to-left override */
        {"gr\xc3\xbc\xc3\x9f"
         "e",
         "gr\xc3\xbc\xc3\x9f"
         "e"},
        {"\xff\xfe", "??"},
        {"\xc0\xaf", "??"},      /* an overlong slash */
        {"\xed\xa0\x80", "???"}, /* half a surrogate pair */
        {"\xe2\x82", "??"},      /* cut in the middle */
    };
    char out[64];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(terminal_clean(out, sizeof out, rows[i][0], true), rows[i][1]);
    assert_string_equal(terminal_clean(out, sizeof out, "gr\xc3\xbcn", false), "gr?n");
    assert_string_equal(terminal_clean(out, sizeof out, "4 \xc3\x97 2 \xc2\xb7 1", false), "4 x 2 * 1");
    assert_string_equal(terminal_clean(out, sizeof out, NULL, true), "");
    assert_string_equal(terminal_clean(out, 4, "ab\xe2\x82\xac", true), "ab"); /* never half of a character */
}

static void columns_count_visible_characters(void **state)
{
    (void)state;
    assert_int_equal(terminal_columns("abc"), 3);
    assert_int_equal(terminal_columns("gr\xc3\xbcn"), 4);
    assert_int_equal(terminal_columns("\xe6\xbc\xa2"), 2); /* a wide character */
    assert_int_equal(terminal_fit("\xe6\xbc\xa2\xe6\xbc\xa2", 3), 3);
}

static void paths_are_shown_from_where_the_run_was(void **state)
{
    char out[256];

    (void)state;
    assert_string_equal(text_path(out, sizeof out, "/job/a/train.py", "/job", 40, true), "a/train.py");
    assert_string_equal(text_path(out, sizeof out, "/job/a/train.py", "/job/", 40, true), "a/train.py");
    assert_string_equal(text_path(out, sizeof out, "/jobs/train.py", "/job", 40, true), "/jobs/train.py");
    assert_string_equal(text_path(out, sizeof out, "/x.py", "/", 40, true), "/x.py");
    assert_string_equal(text_path(out, sizeof out, "/x/y.py", NULL, 40, true), "/x/y.py");
    assert_string_equal(text_path(out, sizeof out, "/tmp/marimo_7/__marimo__cell_MJUe_.py", "/job", 40, true),
                        "__marimo__cell_MJUe_.py");
    assert_string_equal(text_path(out, sizeof out, "/v/lib/python3.11/site-packages/torch/nn/f.py", "/job", 40, true),
                        "torch/nn/f.py");
    assert_string_equal(text_path(out, sizeof out, "/a/long/path/to/train.py", NULL, 14, true), "…/to/train.py");
    assert_string_equal(text_path(out, sizeof out, "/a/long/path/to/train.py", NULL, 15, false), ".../to/train.py");
    assert_string_equal(text_path(out, sizeof out, "/a/long/path/to/train.py", NULL, 9, true), "train.py");
    assert_int_equal(terminal_columns(text_path(out, sizeof out, "averyveryverylongname.py", NULL, 10, true)), 10);
}

static void functions_are_shortened_to_what_matters(void **state)
{
    static const char *const rows[][2] = {
        {"at::native::empty_cuda(c10::ArrayRef<long>, int)", "at::native::empty_cuda"},
        {"void foo<int, std::vector<int> >(int)", "foo"},
        {"std::vector<int>::push_back(int const&)", "std::vector::push_back"},
        {"(anonymous namespace)::f(int)", "(anonymous namespace)::f"},
        {"A::operator()(int) const", "A::operator()"},
        {"operator<(A, B)", "operator<"},
        {"operator new(unsigned long)", "operator new"},
        {"f() [clone .isra.0]", "f"},
        {"main", "main"},
        {"main.(*Server).handle", "main.(*Server).handle"}, /* Go's */
        {"main.Map[go.shape.int_0]", "main.Map"},
        {"github.com/me/gpu.(*Pool[...]).Get.func1", "github.com/me/gpu.(*Pool[...]).Get.func1"},
        {"main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"},
        {"void f<int>(int) const::{lambda(std::function<void (int)>)#2}::operator()() const",
         "f::{lambda#2}::operator()"},
        {"bool operator==<int>(A, B)", "operator=="},
        {"std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"},
        {"unsigned long f<int>(int)", "f"},
        {"void (anonymous namespace)::f<int>(int)", "(anonymous namespace)::f"},
        {"decltype(auto) c10::call<int>(int)", "c10::call"},
        {"decltype ((g)((h)())) std::invoke<int>(int)", "std::invoke"},
        {"A::operator bool() const", "A::operator bool"},
        {"core::fmt::Formatter::write_str", "core::fmt::Formatter::write_str"},
        {"<mycrate::Foo as mycrate::Bar>::baz", "<mycrate::Foo as mycrate::Bar>::baz"},
        {"<alloc::vec::Vec<T,A> as core::ops::Drop>::drop", "<alloc::vec::Vec as core::ops::Drop>::drop"},
        {"std::mem::align_of::<usize, fn(u8) -> f64>", "std::mem::align_of"},
        {"core::slice::<impl [T]>::iter", "core::slice::iter"},
        {"mycrate::main::{closure#0}", "mycrate::main::{closure#0}"},
        {"<[u8]>::len", "<[u8]>::len"},
        {"f(", "f"},
        {"{", "{"},
        {"<a>::", "<a>::"},
        {"decltype(", "decltype"},
        {"<module>", "<module>"},
        {"Model.f.<locals>.<lambda>", "Model.f.<locals>.<lambda>"},
    };
    char out[256];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(text_function(out, sizeof out, rows[i][0], 80, true), rows[i][1]);
    assert_int_equal(terminal_columns(text_function(out, sizeof out, "a_very_long_function_name", 12, true)), 12);
}

static void a_long_name_loses_its_first_parts(void **state)
{
    static const struct {
        const char *name;
        int columns;
        const char *shown;
    } rows[] = {
        {"torch::autograd::generated::AddmmBackward0::apply", 30, "…AddmmBackward0::apply"},
        {"torch::autograd::generated::AddmmBackward0::apply", 16, "…ackward0::apply"},
        {"at::empty", 9, "at::empty"},
        {"GPT2LMHeadModel.Block.forward", 16, "…Block.forward"},
        {"Trainer.train.<locals>.step", 12, "…ocals>.step"},
        {"gelu_kernel.constprop.0", 12, NULL}, /* the rest names nothing */
        {"a_name_without_parts", 12, NULL},
        {"(allocated before the recording)", 16, NULL},
    };
    char out[128], elided[128];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *shown =
            rows[i].shown ? rows[i].shown : text_elide(elided, sizeof elided, rows[i].name, rows[i].columns, true);
        text_name(out, sizeof out, rows[i].name, rows[i].columns, true);
        assert_string_equal(out, shown);
        assert_true(terminal_columns(out) <= rows[i].columns);
    }
}

static void the_middle_is_left_out_between_words(void **state)
{
    static const struct {
        const char *text;
        int columns;
        const char *shown;
    } rows[] = {
        {"(allocated before the recording)", 30, "(allocated…the recording)"},
        {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 40, "enumerate(Data…DataLoaderIter.__next__"},
        {"scaled_dot_product_attention", 20, "scaled_dot…attention"},
        {"UnquantizedLinearMethod", 20, "Unquant…LinearMethod"},
        {"0123456789abcdefghij", 10, "012…efghij"}, /* one word */
        {"züricherstrasse", 8, "zü…rasse"},
        {"a b", 3, "a b"},
    };
    char out[128];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(text_elide(out, sizeof out, rows[i].text, rows[i].columns, true), rows[i].shown);
}

static void a_number_and_its_unit_are_one_word(void **state)
{
    static const char *const rows[][2] = {
        {"(85 %) of it", "(85 %)"},
        {"11.88 GiB to spare", "11.88 GiB"},
        {"in step 760", "in"},
        {"-3.0 to", "-3.0 to"},
        {"(guess) 4", "(guess)"},
        {"5", "5"},
        {"18 h 26 min on", "18 h 26 min"},
        {"3 d 1 h.", "3 d 1 h."},
        {"18 h, 26 min", "18 h,"},
        {"2 min\nmore", "2 min"},
        {"GPU 0, at", "GPU 0,"},
        {"In [12]:7 in encode", "In [12]:7"}, /* a line of a cell */
        {"In [the] end", "In"},
        {"GPU memory", "GPU"},
        {"GPU ", "GPU"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(text_word_length(rows[i][0]), strlen(rows[i][1]));
}

static void a_command_can_be_pasted(void **state)
{
    char out[256], cwd[PATH_MAX], below[PATH_MAX + 32];

    (void)state;
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(below, sizeof below, "%s/run.db", cwd);
    assert_string_equal(text_path_here(out, sizeof out, below), "run.db");
    assert_string_equal(text_path_here(out, sizeof out, "/nowhere/my run.db"), "'/nowhere/my run.db'");
    assert_string_equal(text_path_here(out, sizeof out, "/it's"), "'/it'\\''s'");
    assert_string_equal(text_path_here(out, sizeof out, "-x"), "./-x");
}

static void a_long_command_keeps_its_program(void **state)
{
    static const struct {
        const char *command, *shown;
    } cases[] = {
        {"python train.py --lr 1", "python train.py --lr 1"},
        {"/opt/conda/bin/python /home/me/src/train.py --lr 1e-3", "python train.py --lr 1e-3"},
        {"/usr/bin/python3 -c import multiprocessing.spawn as it, and more", "python3 -c import multiproces…"},
        {"/usr/bin/python3 train.py --learning-rate 1e-3 --epochs 90", "python3 train.py --learning-r…"},
        {"/usr/bin/python3 -m torch.distributed.run --nproc 8 train.py", "python3 -m…--nproc 8 train.py"},
        {"/usr/bin/a-program-with-a-name-too-long-for-it", "a-program-with-a-name-too-lon…"},
        {"/usr/bin/python3 -m ipykernel_launcher -f /run/user/0/jupyter/kernel-12.json", "Jupyter kernel"},
        {"python -Xfrozen_modules=off -m ipykernel_launcher --f=/k.json", "Jupyter kernel"},
        {"", ""},
    };
    char out[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(text_command(out, sizeof out, cases[i].command, 30, true), cases[i].shown);
    assert_string_equal(text_command(out, sizeof out, "a command of words", 9, false), "a comm...");
}

static void last_part(void **state)
{
    assert_string_equal(text_last_part("Trainer.step"), "step");
    assert_string_equal(text_last_part("a.<locals>.f"), "f");
    assert_string_equal(text_last_part("main"), "main");
    assert_string_equal(text_last_part(NULL), "");
}

static void words_are_compared_as_a_whole(void **state)
{
    static const char *const words[] = {"step", "closure"};
    assert_true(TEXT_IS_ONE_OF("closure", words));
    assert_false(TEXT_IS_ONE_OF("clos", words));
    assert_false(TEXT_IS_ONE_OF("", words));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_command_keeps_its_program),
        cmocka_unit_test(last_part),
        cmocka_unit_test(words_are_compared_as_a_whole),
        cmocka_unit_test(terminal_control_is_removed),
        cmocka_unit_test(columns_count_visible_characters),
        cmocka_unit_test(paths_are_shown_from_where_the_run_was),
        cmocka_unit_test(functions_are_shortened_to_what_matters),
        cmocka_unit_test(a_long_name_loses_its_first_parts),
        cmocka_unit_test(the_middle_is_left_out_between_words),
        cmocka_unit_test(a_number_and_its_unit_are_one_word),
        cmocka_unit_test(a_command_can_be_pasted),
    };

    setlocale(LC_CTYPE, "C.UTF-8");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
