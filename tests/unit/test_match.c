/* Which line of one recording corresponds to which line of another. */
#include "tests/cases.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/diff/match.h"

enum { MOST = 64, CALLS = 4 };

struct sites {
    struct diff_match_site list[MOST];
    uint64_t calls[MOST][CALLS];
    char text[MOST][2][128];
    size_t n;
};

/* "train.py step 12 linear,relu 4x1024": file, function, line, the called function, number and size; "!train.py" was
 * started */
static void add(struct sites *s, const char *line)
{
    char file[128], function[128], calls[128];
    int number;
    unsigned long long count, size;
    assert_int_equal(sscanf(line, "%127s %127s %d %127s %llux%llu", file, function, &number, calls, &count, &size), 6);
    struct diff_match_site *site = &s->list[s->n];
    bool program = file[0] == '!';
    snprintf(s->text[s->n][0], sizeof s->text[0][0], "%s", file + program);
    snprintf(s->text[s->n][1], sizeof s->text[0][1], "%s", function);
    char *cell = strchr(s->text[s->n][0], '#'); /* In[4]#text */
    if (cell) *cell++ = 0;
    *site = (struct diff_match_site){.file = s->text[s->n][0],
                                     .function = s->text[s->n][1],
                                     .cell = cell,
                                     .line = number,
                                     .program = program,
                                     .calls = s->calls[s->n],
                                     .weight = (int64_t)(count * size),
                                     .count = count};
    for (char *word = strtok(calls, ","); word && site->calls_n < CALLS; word = strtok(NULL, ",")) {
        uint64_t hash = 1;
        for (const char *p = word; *p; p++) hash = hash << 8 ^ (unsigned char)*p;
        size_t at = site->calls_n++;
        for (; at > 0 && s->calls[s->n][at - 1] > hash; at--) s->calls[s->n][at] = s->calls[s->n][at - 1];
        s->calls[s->n][at] = hash;
    }
    s->n++;
}

static void fill(struct sites *s, const char *const *lines)
{
    s->n = 0;
    for (; *lines; lines++) add(s, *lines);
}

static struct diff_match *match(const struct sites *a, const struct sites *b)
{
    return diff_match_sites(a->list, a->n, b->list, b->n);
}

/* The same with both recordings exchanged. */
static void check_turned(const struct sites *a, const struct sites *b, const struct diff_match *m)
{
    struct diff_match *back = match(b, a);
    assert_memory_equal(back->of_a, m->of_b, b->n * sizeof *m->of_b);
    assert_memory_equal(back->of_b, m->of_a, a->n * sizeof *m->of_a);
    assert_memory_equal(back->how_a, m->how_b, b->n);
    assert_memory_equal(back->how_b, m->how_a, a->n);
    assert_int_equal(back->files_n, m->files_n);
    for (size_t i = 0; i < a->n; i++) {
        assert_true(m->of_a[i] == DIFF_MATCH_ALONE || m->of_b[m->of_a[i]] == i);
        assert_true((m->of_a[i] == DIFF_MATCH_ALONE) == (m->how_a[i] == DIFF_MATCH_NONE));
    }
    diff_match_free(back);
}

static const struct {
    const char *name;
    const char *a[10], *b[10];
    int of_a[10]; /* -1: not matched */
} cases[] = {
    {"nothing changed",
     {"t.py step 10 linear 4x100", "t.py step 11 relu 4x100", "t.py main 30 step 8x100"},
     {"t.py step 10 linear 4x100", "t.py step 11 relu 4x100", "t.py main 30 step 8x100"},
     {0, 1, 2}},
    {"lines inserted above",
     {"t.py step 10 linear 4x100", "t.py step 11 relu 4x100", "t.py main 30 step 8x100"},
     {"t.py step 17 linear 4x100", "t.py step 18 relu 4x100", "t.py main 37 step 8x100"},
     {0, 1, 2}},
    {"a line is now where another was", /* 11 is the old 10 */
     {"t.py step 10 - 4x100", "t.py step 11 - 4x200", "t.py step 12 - 4x400"},
     {"t.py step 11 - 4x100", "t.py step 12 - 4x200", "t.py step 13 - 4x400"},
     {0, 1, 2}},
    {"an allocation inserted between its likes",
     {"t.py step 10 - 1x400", "t.py step 11 - 1x800", "t.py step 12 - 1x1600"},
     {"t.py step 10 - 1x400", "t.py step 11 - 1x10000", "t.py step 12 - 1x800", "t.py step 13 - 1x1600"},
     {0, 2, 3}},
    {"one removed",
     {"t.py step 10 - 1x400", "t.py step 11 - 1x10000", "t.py step 12 - 1x800", "t.py step 13 - 1x1600"},
     {"t.py step 10 - 1x400", "t.py step 11 - 1x800", "t.py step 12 - 1x1600"},
     {0, -1, 1, 2}},
    {"sizes changed where they stand",
     {"t.py step 10 - 1x400", "t.py step 11 - 1x800"},
     {"t.py step 10 - 1x800", "t.py step 11 - 1x1600"},
     {0, 1}},
    {"all twice as large: each size is now that of the line before",
     {"t.py step 10 - 1x400", "t.py step 11 - 1x800", "t.py step 12 - 1x1600", "t.py step 13 - 1x3200"},
     {"t.py step 10 - 1x800", "t.py step 11 - 1x1600", "t.py step 12 - 1x3200", "t.py step 13 - 1x6400"},
     {0, 1, 2, 3}},
    {"the same, and moved",
     {"t.py step 10 - 1x400", "t.py step 11 - 1x800", "t.py step 13 - 1x1600", "t.py step 14 - 1x3200"},
     {"t.py step 17 - 1x800", "t.py step 18 - 1x1600", "t.py step 20 - 1x3200", "t.py step 21 - 1x6400"},
     {0, 1, 2, 3}},
    {"a larger one inserted between its likes, about as large",
     {"t.py step 10 - 1x400", "t.py step 11 - 1x800", "t.py step 12 - 1x1600"},
     {"t.py step 10 - 1x400", "t.py step 11 - 1x900", "t.py step 12 - 1x800", "t.py step 13 - 1x1600"},
     {0, 2, 3}},
    {"a file renamed",
     {"/w/model.py f 10 x 1x4", "/w/model.py g 20 y 1x4", "/w/train.py main 3 f 2x2"},
     {"/w/nets.py f 10 x 1x4", "/w/nets.py g 21 y 1x4", "/w/train.py main 3 f 2x2"},
     {0, 1, 2}},
    {"calls are stronger evidence than the line",
     {"t.py f 10 conv 1x400", "t.py f 11 norm 1x400"},
     {"t.py f 10 embed 1x400", "t.py f 11 conv 1x400", "t.py f 12 norm 1x400"},
     {1, 2}},
    {"a line calls something else now, and nothing moved",
     {"t.py f 10 conv 1x400", "t.py f 11 norm 1x300", "t.py f 12 act 1x200"},
     {"t.py f 10 conv 1x400", "t.py f 11 attention 1x900", "t.py f 12 act 1x200"},
     {0, 1, 2}},
    {"another line in its place, as what follows shows",
     {"t.py f 10 conv 1x400", "t.py f 11 norm 1x300"},
     {"t.py f 10 conv 1x400", "t.py f 11 attention 1x900", "t.py f 12 norm 1x300"},
     {0, 2}},
    {"a function moved behind another",
     {"t.py a 10 x 1x400", "t.py a 11 y 1x300", "t.py b 20 z 1x200"},
     {"t.py b 5 z 1x200", "t.py a 30 x 1x400", "t.py a 31 y 1x300"},
     {1, 2, 0}},
    {"methods of one name, in another order",
     {"t.py forward 10 conv 1x400", "t.py forward 20 linear 1x300"},
     {"t.py forward 10 linear 1x300", "t.py forward 20 conv 1x400"},
     {1, 0}},
    {"a function renamed",
     {"t.py make 10 conv,norm 3x400", "t.py main 30 make 3x400"},
     {"t.py build 10 conv,norm 3x400", "t.py main 30 build 3x400"},
     {0, 1}},
    {"a function moved to another file",
     {"t.py main 3 loss 9x9", "t.py loss 10 conv,norm 3x400"},
     {"t.py main 3 loss 9x9", "l.py loss 2 conv,norm 3x400"},
     {0, 1}},
    {"another checkout",
     {"/home/a/repo/src/t.py f 10 x 1x4", "/home/a/repo/eval/t.py f 10 y 1x4"},
     {"/data/b/eval/t.py f 10 y 1x4", "/data/b/src/t.py f 12 x 1x4"},
     {1, 0}},
    {"another Python",
     {"/v1/lib/python3.11/site-packages/torch/nn/m.py call 10 x 1x4", "/usr/lib/python3.11/random.py f 1 x 1x5"},
     {"/v2/lib/python3.12/site-packages/torch/nn/m.py call 11 x 1x4", "/opt/py/lib/python3.12/random.py f 1 x 1x5"},
     {0, 1}},
    {"files of one name that nothing distinguishes",
     {"/a/x/t.py f 10 x 1x4", "/a/y/t.py f 10 x 1x4"},
     {"/b/v/t.py f 10 x 1x4", "/b/w/t.py f 10 x 1x4"},
     {-1, -1}},
    {"the program has another name",
     {"!/w/v1.py <module> 30 main 9x9", "!/w/v1.py main 20 zeros 3x4"},
     {"!/w/v2.py <module> 33 main 9x9", "!/w/v2.py main 20 zeros 3x4"},
     {0, 1}},
    {"another program",
     {"!/w/train.py <module> 30 main 9x9", "!/w/train.py main 20 zeros 3x4", "!/w/train.py step 10 zeros 3x4",
      "!/w/train.py log 10 zeros 3x4"},
     {"!/w/serve.py <module> 33 main 9x9", "!/w/serve.py main 20 zeros 3x4", "!/w/serve.py load 10 open 3x4",
      "!/w/serve.py reply 10 send 3x4"},
     {-1, -1, -1, -1}},
    {"a cell of a notebook was inserted",
     {"In[4]#/7.py <module> 2 x 1x4", "In[5]#/8.py <module> 2 x 1x4"},
     {"In[4]#/9.py <module> 2 x 1x4", "In[5]#/7.py <module> 2 x 1x4", "In[6]#/8.py <module> 2 x 1x4"},
     {1, 2}},
    {"a cell of a notebook was edited",
     {"In[4]#/7.py <module> 2 x 1x4", "In[5]#/8.py <module> 2 x 1x4"},
     {"In[4]#/9.py <module> 3 x 1x4", "In[5]#/8.py <module> 2 x 1x4"},
     {0, 1}},
    {"nothing in common", {"a.py f 1 x 1x1"}, {"b.py g 2 y 2x2"}, {-1}},
    {"one side has nothing", {"a.py f 1 x 1x1"}, {NULL}, {-1}},
};

static void test_cases(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct sites a, b;
        fill(&a, cases[c].a);
        fill(&b, cases[c].b);
        struct diff_match *m = match(&a, &b);
        for (size_t i = 0; i < a.n; i++) {
            int found = m->of_a[i] == DIFF_MATCH_ALONE ? -1 : (int)m->of_a[i];
            if (found != cases[c].of_a[i])
                fail_msg("%s: %s is %d, not %d", cases[c].name, cases[c].a[i], found, cases[c].of_a[i]);
        }
        check_turned(&a, &b, m);
        diff_match_free(m);
    }
}

static void test_how(void **state)
{
    (void)state;
    struct sites a, b;
    const char *before[] = {"t.py f 10 x 1x4", "t.py f 11 y 1x5", "t.py old 20 z 1x6", NULL};
    const char *after[] = {"t.py f 10 x 1x4", "t.py f 12 y 1x5", "t.py new 20 z 1x6", NULL};
    fill(&a, before);
    fill(&b, after);
    struct diff_match *m = match(&a, &b);
    assert_int_equal(m->how_a[0], DIFF_MATCH_SAME);
    assert_int_equal(m->how_a[1], DIFF_MATCH_LINE);
    assert_int_equal(m->how_a[2], DIFF_MATCH_FUNCTION);
    assert_int_equal(m->files_n, 1);
    assert_int_equal(m->files[0].path, DIFF_MATCH_PATH_SAME);
    diff_match_free(m);
}

static void test_paths(void **state)
{
    (void)state;
    assert_string_equal(diff_match_library("/v/lib/python3.11/site-packages/torch/nn/x.py"), "torch/nn/x.py");
    assert_string_equal(diff_match_library("/usr/lib64/python3.9/json/x.py"), "json/x.py");
    assert_null(diff_match_library("/home/me/library/python/x.py"));
    assert_int_equal(diff_match_end("/a/b/c.py", "/x/b/c.py"), 2);
    assert_int_equal(diff_match_end("c.py", "/x/b/c.py"), 1);
    assert_int_equal(diff_match_end("/a/bc.py", "/x/c.py"), 0);
    assert_int_equal(diff_match_end("/a/b.py", "/a/c.py"), 0);
    assert_int_equal(diff_match_end("", ""), 0);
}

static uint64_t seed;
static unsigned below(unsigned n)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(seed >> 33) % n;
}

static void scatter(struct sites *s)
{
    char line[256];
    bool seen[3][4][12] = {{{false}}};
    s->n = 0;
    for (unsigned i = below(40); i > 0; i--) {
        unsigned file = below(3), function = below(4), at = below(12);
        if (seen[file][function][at]) continue;
        seen[file][function][at] = true;
        snprintf(line, sizeof line, "%sf%u.py g%u %u c%u,c%u %ux%u", file == 0 ? "!/x/" : "/y/", file, function, at,
                 below(4), below(4), 1 + below(3), 1 + below(3));
        add(s, line);
    }
}

/* Exchanging the recordings exchanges the result; and each line of a recording matches itself. */
static void test_symmetry(void **state)
{
    (void)state;
    for (seed = 0; seed < 3000;) {
        uint64_t round = seed;
        struct sites a, b;
        scatter(&a);
        scatter(&b);
        struct diff_match *m = match(&a, &b);
        check_turned(&a, &b, m);
        diff_match_free(m);
        m = match(&a, &a);
        for (size_t i = 0; i < a.n; i++) {
            assert_int_equal(m->of_a[i], i);
            assert_int_equal(m->how_a[i], DIFF_MATCH_SAME);
        }
        diff_match_free(m);
        seed = round + 1;
    }
}

CASES(test_cases, test_how, test_paths, test_symmetry)
