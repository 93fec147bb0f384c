/* The processes of a run together: which GPU each uses, and memory of a process on another one's GPU. */
#include "tests/cases.h"
#include "tests/unit/synthetic.h"

#define TORCH "/v/lib/python3.11/site-packages/torch/"

enum how { PLAIN, LOADED, CONTEXT }; /* LOADED: below torch.load; CONTEXT: no memory, only a context */
struct held {                        /* MiB, by line of train.py */
    int device, line;
    int64_t mib;
    enum how how;
};

struct process {
    int rank; /* -1 unknown */
    const char *host, *visible;
    int64_t start_s;
    struct held held[4];
    int works; /* on this device: many tensors are allocated and freed there */
};

static void tensors(struct syn *s, int device)
{
    int64_t stack = syn_python(s, 0, "step", "/home/u/train.py", 40);
    for (int i = 0; i < 20; i++) {
        syn_alloc(s, (struct syn_alloc){.layer = GS_LAYER_TENSOR,
                                        .device = device,
                                        .address = 0x1000,
                                        .bytes = SYN_MIB,
                                        .at = 100 + i * 10,
                                        .life = 5,
                                        .stack = stack});
    }
}

static void record(struct syn *s, int number, const struct process *p)
{
    char name[32];
    snprintf(name, sizeof name, number ? "run.%d.db" : "run.db", number);
    if (number) syn_open(s, name);
    syn_process(s, "r", 100 + number, 10 * SYN_S, 1);
    syn_sql(s, "UPDATE process SET rank = nullif(%d, -1), host = %Q, start_real_ns = start_real_ns + %lld", p->rank,
            p->host ? p->host : "host", (long long)(p->start_s * SYN_S));
    syn_sql(s, "INSERT INTO meta VALUES('env', '')");
    if (p->visible) syn_sql(s, "INSERT INTO meta VALUES('env.CUDA_VISIBLE_DEVICES', %Q)", p->visible);
    for (int device = 0; device < 4; device++) {
        bool used = false;
        for (int i = 0; i < 4; i++) {
            const struct held *h = &p->held[i];
            if (!h->line || h->device != device) continue;
            int64_t at = syn_python(s, 0, "main", "/home/u/train.py", h->line);
            at = h->how == LOADED ? syn_python(s, at, "load", TORCH "serialization.py", 1000) : at;
            if (h->how == CONTEXT) {
                syn_sql(s,
                        "INSERT INTO handle(process_id,kind,handle,device,create_ns,stack_id) "
                        "VALUES(1,1,7,%d,1,%lld)",
                        device, (long long)at);
            } else {
                syn_alloc(s, (struct syn_alloc){.device = device,
                                                .address = i,
                                                .bytes = h->mib * SYN_MIB,
                                                .at = 1 + i,
                                                .life = SYN_LIVE,
                                                .stack = at});
            }
            used = true;
        }
        if (used) {
            syn_sql(s, "INSERT INTO device(process_id,device,name,total_bytes,seen_ns) VALUES(1,%d,'G',%lld,0)", device,
                    16 * SYN_GIB);
        }
    }
    tensors(s, p->works);
    char first[sizeof s->path];
    snprintf(first, sizeof first, "%s/run.db", s->folder);
    syn_done(s);
    memcpy(s->path, first, sizeof first);
}

static struct result_report *run_of(struct syn *s, const struct process *list, int n)
{
    syn_start(s);
    for (int i = 0; i < n; i++) record(s, i, &list[i]);
    return syn_report(s, NULL);
}

#define WORK(d) .held = {{d, 30, 1000, PLAIN}}, .works = d
#define MOST 4

static const struct {
    const char *name, *text, *advice; /* of the one finding; NULL none */
    int n;
    struct process p[MOST];
} cases[] = {
    {"each on its own", NULL, NULL, 2, {{.rank = 0, WORK(0)}, {.rank = 1, WORK(1)}}},
    {"before set_device",
     "rank 1 also has up to 2.00 MiB and a context on GPU 0, where rank 0 works, first at train.py:12",
     "set_device",
     2,
     {{.rank = 0, WORK(0)}, {.rank = 1, .held = {{0, 12, 2, PLAIN}, {1, 30, 1000, PLAIN}}, .works = 1}}},
    /* more was loaded there than it uses in its work */
    {"a checkpoint",
     "rank 1 also has up to 3.00 GiB and a context on GPU 0",
     "map_location",
     2,
     {{.rank = 0, WORK(0)}, {.rank = 1, .held = {{0, 12, 3072, LOADED}, {1, 30, 1000, PLAIN}}, .works = 1}}},
    {"a context alone",
     "rank 1 also has a context on GPU 0, where rank 0 works, first at train.py:12",
     "set_device",
     2,
     {{.rank = 0, WORK(0)}, {.rank = 1, .held = {{0, 12, 0, CONTEXT}, {1, 30, 1000, PLAIN}}, .works = 1}}},
    {"several from one line",
     "ranks 1 to 3 also have up to 6.00 MiB in total and one context each on GPU 0",
     "set_device",
     4,
     {{.rank = 0, WORK(0)},
      {.rank = 1, .held = {{0, 12, 2, PLAIN}, {1, 30, 1000, PLAIN}}, .works = 1},
      {.rank = 2, .held = {{0, 12, 2, PLAIN}, {2, 30, 1000, PLAIN}}, .works = 2},
      {.rank = 3, .held = {{0, 12, 2, PLAIN}, {3, 30, 1000, PLAIN}}, .works = 3}}},
    {"ranks unknown",
     "process 101 also has up to 2.00 MiB",
     "set_device",
     2,
     {{.rank = -1, WORK(0)}, {.rank = -1, .held = {{0, 12, 2, PLAIN}, {1, 30, 1000, PLAIN}}, .works = 1}}},
    /* no other rank uses that GPU: a model over two GPUs */
    {"two GPUs each",
     NULL,
     NULL,
     2,
     {{.rank = 0, .held = {{0, 30, 1000, PLAIN}, {1, 31, 900, PLAIN}}, .works = 0},
      {.rank = 1, .held = {{2, 30, 1000, PLAIN}, {3, 31, 900, PLAIN}}, .works = 2}}},
    {"all on one",
     "rank 0 and rank 1 both work on GPU 0: their peaks sum to 1.95 GiB",
     "set_device",
     2,
     {{.rank = 0, WORK(0)}, {.rank = 1, WORK(0)}}},
    /* the same number, another GPU */
    {"each sees its own only",
     NULL,
     NULL,
     2,
     {{.rank = 0, .visible = "0", WORK(0)}, {.rank = 1, .visible = "1", WORK(0)}}},
    {"the same by another number",
     "rank 0 and rank 1 both work on GPU 3",
     "set_device",
     2,
     {{.rank = 0, .visible = "3", WORK(0)}, {.rank = 1, .visible = "0,3", WORK(1)}}},
    {"two hosts", NULL, NULL, 2, {{.rank = 0, .host = "a", WORK(0)}, {.rank = 1, .host = "b", WORK(0)}}},
    {"one after the other", NULL, NULL, 2, {{.rank = 0, WORK(0)}, {.rank = 1, .start_s = 20, WORK(0)}}},
    {"no ranks, one GPU", NULL, NULL, 2, {{.rank = -1, WORK(0)}, {.rank = -1, WORK(0)}}},
};

static void test_findings(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct syn s;
        struct result_report *r = run_of(&s, cases[i].p, cases[i].n);
        assert_int_equal(r->ranks_n, cases[i].n);
        if (r->rank_findings_n != (cases[i].text != NULL)) {
            fail_msg("%s: %zu findings: %s", cases[i].name, r->rank_findings_n,
                     r->rank_findings_n ? r->rank_findings[0].text : "");
        }
        if (cases[i].text) {
            const struct result_rank_finding *f = r->rank_findings;
            if (strncmp(f->text, cases[i].text, strlen(cases[i].text)) != 0 || !strstr(f->advice, cases[i].advice))
                fail_msg("%s: %s; %s", cases[i].name, f->text, f->advice);
        }
        syn_close(r);
        syn_end(&s);
    }
}

static struct result_report *balance(struct syn *s, int64_t a, int64_t b, int64_t c)
{
    struct process p[3] = {{.rank = 2, .held = {{2, 30, 1000, PLAIN}, {2, 31, c, PLAIN}}, .works = 2},
                           {.rank = 0, .held = {{0, 30, 1000, PLAIN}, {0, 31, a, PLAIN}}, .works = 0},
                           {.rank = 1, .held = {{1, 30, 1000, PLAIN}, {1, 31, b, PLAIN}}, .works = 1}};
    struct result_report *r;
    syn_start(s);
    for (int i = 0; i < 3; i++) {
        record(s, i, &p[i]);
        char name[160]; /* without tensors, their peaks are the device's */
        snprintf(name, sizeof name, i ? "%s/run.%d.db" : "%s/run.db", s->folder, i);
        assert_int_equal(sqlite3_open(name, &s->db), SQLITE_OK);
        syn_sql(s, "BEGIN; DELETE FROM allocation_row WHERE bytes = %lld", SYN_MIB);
        syn_done(s);
    }
    r = syn_report(s, NULL);
    assert_int_equal(r->ranks_n, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(r->ranks[i].rank, i);
        assert_int_equal(r->ranks[i].device, i);
    }
    assert_int_equal(r->ranks[0].device_peak_bytes, (1000 + a) * SYN_MIB);
    return r;
}

static void test_imbalance(void **state)
{
    (void)state;
    struct syn s;
    struct result_report *r = balance(&s, 600, 104, 100);
    assert_int_equal(r->rank_findings_n, 1);
    const struct result_rank_finding *f = r->rank_findings;
    assert_int_equal(f->kind, RESULT_RANK_IMBALANCE);
    assert_int_equal(f->bytes, (600 - 104) * SYN_MIB);
    assert_int_equal(f->site.line, 31);
    assert_non_null(strstr(f->text, "rank 0 holds 496.00 MiB (45 %) more than the median rank, most of it 496.00 MiB "
                                    "at train.py:31"));
    syn_close(r);
    syn_end(&s);
    r = balance(&s, 150, 100, 100); /* 4 % */
    assert_int_equal(r->rank_findings_n, 0);
    syn_close(r);
    syn_end(&s);
}

static void test_one_process_is_not_a_rank(void **state)
{
    (void)state;
    struct syn s;
    static const struct process alone = {.rank = 0, WORK(0)};
    struct result_report *r = run_of(&s, &alone, 1);
    assert_int_equal(r->ranks_n, 0);
    assert_int_equal(r->rank_findings_n, 0);
    syn_close(r);
    syn_end(&s);
}

CASES(test_findings, test_imbalance, test_one_process_is_not_a_rank)
