/* The pickle writer's output can be read by Python: strings, numbers and lists are written here and read with pickle
 * and pickletools. */
#include "tests/cases.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/export/pickle.h"

static char path[] = "/tmp/gpuspy-pickle-XXXXXX";

static void start(struct export_pickle *p)
{
    strcpy(path + strlen(path) - 6, "XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    export_pickle_start(p, fdopen(fd, "w"));
}

/* Python's own reader, which allows no class, and its disassembler, which checks stack and memo. */
static void reads_as(struct export_pickle *p, const char *expression)
{
    char command[4096];
    export_pickle_finish(p);
    assert_int_equal(fclose(p->out), 0);
    int n = snprintf(command, sizeof command,
                     "python3 - <<'E'\n"
                     "import io, pickle, pickletools\n"
                     "class Plain(pickle.Unpickler):\n"
                     "    def find_class(self, *what): raise AssertionError(what)\n"
                     "data = open('%s', 'rb').read()\n"
                     "pickletools.dis(data, io.StringIO())\n"
                     "got = Plain(io.BytesIO(data)).load()\n"
                     "%s\n"
                     "E\n",
                     path, expression);
    assert_true(n > 0 && (size_t)n < sizeof command);
    assert_int_equal(system(command), 0);
    assert_int_equal(unlink(path), 0);
}

static void test_numbers(void **state)
{
    (void)state;
    static const int64_t numbers[] = {0,
                                      1,
                                      255,
                                      256,
                                      65535,
                                      65536,
                                      -1,
                                      -128,
                                      -129,
                                      INT32_MAX,
                                      INT32_MIN,
                                      (int64_t)INT32_MAX + 1,
                                      (int64_t)INT32_MIN - 1,
                                      0x7fffffffffff,
                                      0x800000000000,
                                      0xffffffffffff,
                                      -0x800000000000,
                                      INT64_MAX,
                                      INT64_MIN};
    struct export_pickle p;
    char expression[1024] = "assert got == [";
    size_t at = strlen(expression);
    start(&p);
    export_pickle_list(&p);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        export_pickle_int(&p, numbers[i]);
        at += (size_t)snprintf(expression + at, sizeof expression - at, "%lld, ", (long long)numbers[i]);
    }
    export_pickle_address(&p, UINT64_MAX);
    export_pickle_address(&p, (uint64_t)1 << 63);
    export_pickle_address(&p, 0x7f0000000000);
    export_pickle_bool(&p, true);
    export_pickle_bool(&p, false);
    export_pickle_end(&p);
    snprintf(expression + at, sizeof expression - at, "2**64 - 1, 2**63, 0x7f0000000000, True, False], got");
    reads_as(&p, expression);
}

static void test_texts(void **state)
{
    (void)state;
    struct export_pickle p;
    static char same[] = "the same", same_again[] = "the same", large[70000];
    memset(large, 'x', sizeof large - 1);
    start(&p);
    export_pickle_list(&p);
    export_pickle_text(&p, same);
    export_pickle_text(&p, same);
    export_pickle_text(&p, same_again);
    export_pickle_text(&p, NULL);
    export_pickle_text(&p, "ä€𝄞");
    export_pickle_text(&p, "\xff"
                           "a\xc3"
                           "b\xed\xa0\x80"
                           "c\xc0\x80\xf4\x90\x80\x80");
    export_pickle_text(&p, large);
    export_pickle_text(&p, large);
    export_pickle_end(&p);
    reads_as(&p, "assert got == ['the same'] * 3 + ['', 'ä€𝄞', 'QaQbQQQcQQQQQQ'.replace('Q', chr(63))] + ['x' * 69999] "
                 "* 2, got\n"
                 "assert got[0] is got[2] and got[-1] is got[-2]\n"
                 "assert len(data) < 70200, len(data)");
}

static void test_nested_and_shared(void **state)
{
    (void)state;
    struct export_pickle p;
    start(&p);
    export_pickle_dict(&p);
    export_pickle_key(&p, "empty");
    export_pickle_list(&p);
    export_pickle_end(&p);
    export_pickle_key(&p, "none");
    export_pickle_dict(&p);
    export_pickle_end(&p);
    export_pickle_key(&p, "pair");
    export_pickle_int(&p, 1);
    export_pickle_int(&p, 2);
    export_pickle_pair(&p);
    export_pickle_key(&p, "frames");
    export_pickle_list(&p);
    uint32_t list = export_pickle_memo(&p);
    export_pickle_dict(&p);
    uint32_t frame = export_pickle_memo(&p);
    export_pickle_key(&p, "name");
    export_pickle_text(&p, "f");
    export_pickle_end(&p);
    export_pickle_again(&p, frame);
    export_pickle_end(&p);
    export_pickle_key(&p, "again");
    export_pickle_again(&p, list);
    export_pickle_end(&p);
    reads_as(&p, "assert got == {'empty': [], 'none': {}, 'pair': (1, 2), 'frames': [{'name': 'f'}] * 2, "
                 "'again': [{'name': 'f'}] * 2}, got\n"
                 "assert got['again'] is got['frames'] and got['frames'][0] is got['frames'][1]");
}

/* More than one batch of a list, and more objects in the memo than one byte can count. */
static void test_long_lists(void **state)
{
    (void)state;
    struct export_pickle p;
    uint32_t last = 0;
    static char names[3001][16];
    start(&p);
    export_pickle_list(&p);
    for (int i = 0; i < 3001; i++) {
        snprintf(names[i], sizeof *names, "n%d", i);
        export_pickle_dict(&p);
        last = export_pickle_memo(&p);
        export_pickle_key(&p, "name");
        export_pickle_text(&p, names[i]);
        export_pickle_end(&p);
    }
    export_pickle_again(&p, last);
    export_pickle_text(&p, names[300]);
    export_pickle_end(&p);
    reads_as(&p, "assert got[:-2] == [{'name': 'n%d' % i} for i in range(3001)]\n"
                 "assert got[-2] is got[3000] and got[-1] is got[300]['name']\n"
                 "assert [o.name for o, _, _ in pickletools.genops(data)].count('APPENDS') == 4");
}

static void test_of_whole_batches(void **state)
{
    (void)state;
    struct export_pickle p;
    start(&p);
    export_pickle_list(&p);
    for (int i = 0; i < 2000; i++) export_pickle_int(&p, i);
    export_pickle_end(&p);
    reads_as(&p, "assert got == list(range(2000)) and data[1] == 4");
}

CASES(test_numbers, test_texts, test_nested_and_shared, test_long_lists, test_of_whole_batches)
