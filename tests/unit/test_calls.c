/* Waits and transfers by line: patterns, thresholds, and cases that are not reported. */
#include "tests/cases.h"
#include <math.h>
#include "analyzer/base/arena.h"
#include "analyzer/question/wait.h"
#include "tests/unit/synthetic.h"

enum { STEPS = 100 };

static int64_t begin(struct syn *s)
{
    syn_start(s);
    syn_process(s, "r", 1, SYN_S, 1);
    return syn_python(s, 0, "train", "/home/u/train.py", 10);
}

static const struct result_sync_site *wait_at(const struct result_report *r, int line, const char *pattern)
{
    for (size_t i = 0; i < r->syncs_n; i++) {
        const char *p = r->syncs[i].pattern;
        if (r->syncs[i].site.line == line && (p == pattern || (p && pattern && strcmp(p, pattern) == 0)))
            return &r->syncs[i];
    }
    fail_msg("no wait at line %d that looks like %s", line, pattern ? pattern : "nothing special");
    return NULL;
}

static const struct result_transfer *transfer_at(const struct result_report *r, int line)
{
    for (size_t i = 0; i < r->transfers_n; i++)
        if (r->transfers[i].site.line == line) return &r->transfers[i];
    fail_msg("no transfer at line %d", line);
    return NULL;
}

static void test_item_and_cpu(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s);
    int64_t item = syn_python(&s, train, "Tensor.item", "/x/site-packages/torch/_tensor.py", 1);
    int64_t log = syn_python(&s, train, "log", "/home/u/train.py", 20);
    for (int i = 0; i < STEPS; i++) {
        int64_t at = i * 10 * SYN_MS;
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2H,
                                       .host_memory = GS_HOSTMEM_PINNED,
                                       .async = 1,
                                       .bytes = 4,
                                       .at = at,
                                       .blocked = 1000,
                                       .stream = 7,
                                       .stack = item});
        syn_sync(&s, GS_SYNC_STREAM, at + SYN_MS, 3 * SYN_MS, 7, item);
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2H,
                                       .host_memory = GS_HOSTMEM_PAGEABLE,
                                       .async = 1,
                                       .bytes = 4 * SYN_MIB,
                                       .at = at + 5 * SYN_MS,
                                       .blocked = SYN_MS,
                                       .stream = 7,
                                       .stack = log});
        syn_sync(&s, GS_SYNC_STREAM, at + 7 * SYN_MS, 1000, 7, log);
    }
    struct result_report *r = syn_report(&s, NULL);
    const struct result_sync_site *w = wait_at(r, 10, ".item()"); /* the user's line, not torch's */
    assert_int_equal(w->count, STEPS);
    assert_int_equal(w->kind, GS_SYNC_STREAM);
    assert_true(fabs(w->blocked_s - 0.3001) < 1e-9 && fabs(w->share - 0.3001) < 1e-9);
    assert_true(w->matters && strstr(w->advice, "every N steps"));
    assert_string_equal(w->site.via->function, "Tensor.item");
    assert_string_equal(w->api, "cudaStreamSynchronize");
    w = wait_at(r, 20, ".cpu()");
    assert_true(fabs(w->blocked_s - 0.1001) < 1e-9);
    assert_int_equal(r->syncs_n, 2); /* the copies are included in them */
    syn_close(r);
    syn_end(&s);
}

static void test_a_copy_that_nothing_waits_for(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s);
    syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2H,
                                   .host_memory = GS_HOSTMEM_PINNED,
                                   .async = 1,
                                   .bytes = 8,
                                   .at = 1,
                                   .blocked = 10,
                                   .stream = 7,
                                   .stack = train});
    syn_sync(&s, GS_SYNC_STREAM, 100, SYN_MS, 8, train); /* another stream */
    syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2H,
                                   .host_memory = GS_HOSTMEM_PINNED,
                                   .async = 1,
                                   .thread = 2,
                                   .bytes = 8,
                                   .at = 200,
                                   .blocked = 10,
                                   .stream = 7,
                                   .stack = train});
    syn_sync(&s, GS_SYNC_STREAM, 300, SYN_MS, 9, train);        /* another thread's copy, on another stream */
    syn_sync(&s, GS_SYNC_STREAM, SYN_MS * 2, SYN_MS, 7, train); /* the first one, later */
    syn_sync(&s, GS_SYNC_STREAM, SYN_MS * 4, SYN_MS, 7, train); /* and no other */
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->syncs_n, 2);
    assert_int_equal(wait_at(r, 10, NULL)->count, 3);
    assert_int_equal(wait_at(r, 10, "wait for a copy to the host")->count, 1);
    assert_false(r->syncs[0].matters || r->syncs[1].matters);
    assert_null(r->syncs[0].advice);
    assert_null(r->syncs[1].advice);
    syn_close(r);
    syn_end(&s);
}

static void test_copies_that_wait(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s);
    int64_t upload = syn_python(&s, train, "up", "/home/u/train.py", 30);
    int64_t async = syn_python(&s, train, "as", "/home/u/train.py", 40);
    int64_t tiny = syn_python(&s, train, "tiny", "/home/u/train.py", 50);
    int64_t back = syn_python(&s, train, "back", "/home/u/train.py", 90);
    for (int i = 0; i < STEPS; i++) {
        int64_t at = i * 10 * SYN_MS;
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_H2D,
                                       .host_memory = GS_HOSTMEM_PAGEABLE,
                                       .bytes = 4 * SYN_MIB,
                                       .at = at,
                                       .blocked = 2 * SYN_MS,
                                       .stack = upload});
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_H2D,
                                       .host_memory = GS_HOSTMEM_PAGEABLE,
                                       .bytes = SYN_MIB,
                                       .async = 1,
                                       .at = at + 3 * SYN_MS,
                                       .blocked = SYN_MS / 2,
                                       .stack = async});
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2H, /* waits for the kernels of the step */
                                       .host_memory = GS_HOSTMEM_PAGEABLE,
                                       .bytes = 4 * SYN_MIB,
                                       .async = 1,
                                       .at = at + 6 * SYN_MS,
                                       .blocked = 2 * SYN_MS,
                                       .stack = back});
        for (int j = 0; j < 12; j++) { /* any step has this few copies */
            syn_copy(&s, (struct syn_copy){.direction = GS_DIR_H2D,
                                           .host_memory = GS_HOSTMEM_PAGEABLE,
                                           .bytes = 512,
                                           .at = at + 4 * SYN_MS + j * SYN_MS / 10,
                                           .blocked = 1000,
                                           .stack = tiny});
        }
    }
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(wait_at(r, 30, "blocking copy to the GPU")->kind, GS_SYNC_IMPLICIT);
    assert_true(wait_at(r, 40, "async copy of pageable memory")->matters);
    assert_int_equal(r->syncs_n, 3); /* copies up to 64 KiB are staged, so the call returns */
    const struct result_transfer *t = transfer_at(r, 30);
    assert_int_equal(t->pinned, 0);
    assert_int_equal(t->bytes, STEPS * 4 * SYN_MIB);
    assert_true(fabs(t->bytes_per_s - 4.0 * SYN_MIB / 0.002) < 1);
    assert_non_null(strstr(t->advice, "pin_memory"));
    assert_non_null(strstr(transfer_at(r, 50)->advice, "tiny"));
    assert_true(isnan(transfer_at(r, 50)->bytes_per_s));
    assert_true(isnan(transfer_at(r, 90)->bytes_per_s));
    assert_null(transfer_at(r, 90)->advice);
    syn_close(r);
    syn_end(&s);
}

static void test_lines_that_are_not_reported(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s);
    int64_t load = syn_python(&s, train, "load", "/home/u/train.py", 60);
    int64_t pinned = syn_python(&s, train, "pinned", "/home/u/train.py", 70);
    int64_t inside = syn_python(&s, train, "inside", "/home/u/train.py", 80);
    for (int i = 0; i < 20; i++) { /* weights, in the first tenth of the copies, and slowly: time means nothing */
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_H2D,
                                       .host_memory = GS_HOSTMEM_PAGEABLE,
                                       .bytes = 16 * SYN_MIB,
                                       .at = i * 1000 * SYN_MS,
                                       .blocked = SYN_MS * 9 / 10,
                                       .stack = load});
    }
    for (int i = 0; i < STEPS; i++) {
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_H2D,
                                       .host_memory = GS_HOSTMEM_PINNED,
                                       .bytes = 4 * SYN_MIB,
                                       .async = 1,
                                       .at = 20000 * SYN_MS + i * 10 * SYN_MS,
                                       .blocked = 5000,
                                       .stack = pinned});
        syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2D,
                                       .bytes = 4096,
                                       .async = 1,
                                       .at = 20000 * SYN_MS + i * 10 * SYN_MS,
                                       .blocked = 5000,
                                       .stack = inside});
    }
    struct result_report *r = syn_report(&s, NULL);
    assert_null(transfer_at(r, 60)->advice);
    assert_null(transfer_at(r, 70)->advice);
    assert_int_equal(transfer_at(r, 70)->pinned, 1);
    assert_true(isnan(transfer_at(r, 70)->bytes_per_s));
    assert_null(transfer_at(r, 80)->advice);
    assert_int_equal(transfer_at(r, 80)->pinned, -1);
    syn_close(r);
    syn_end(&s);
}

static void test_kinds(void **state)
{
    (void)state;
    struct syn s;
    int64_t train = begin(&s);
    for (int kind = 0; kind <= GS_SYNC_IMPLICIT; kind++)
        for (int i = 0; i < 3; i++) /* a single wait, as at the end of a program, gets no advice */
            syn_sync(&s, kind, (kind * 3 + i) * 33 * SYN_MS, 30 * SYN_MS + kind, 0, train);
    syn_sync(&s, GS_SYNC_STREAM, 900 * SYN_MS, 10, 0, 0); /* without a stack */
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(r->syncs_n, 6);
    for (size_t i = 0; i < 5; i++) {
        assert_true(r->syncs[i].matters && r->syncs[i].advice);
        assert_true(i == 0 || r->syncs[i].blocked_s <= r->syncs[i - 1].blocked_s);
    }
    assert_false(r->syncs[5].site.known);
    assert_true(r->sync_share > 0.45 && r->sync_share < 0.46);
    syn_close(r);
    syn_end(&s);
}

static const char keep_schema[] =
#include "keep_sql.h"
    ;

/* Moves rows to the totals, as a removal does. */
static void remove_first(struct syn *s, int copies, int waits, int64_t stack)
{
    char copy[120], wait[120];
    snprintf(copy, sizeof copy, "(SELECT id FROM copy_row WHERE stack_id=%lld ORDER BY id LIMIT %d)", (long long)stack,
             copies);
    snprintf(wait, sizeof wait, "(SELECT id FROM sync WHERE stack_id=%lld ORDER BY id LIMIT %d)", (long long)stack,
             waits);
    syn_sql(s,
            "INSERT INTO removed SELECT %d,(kind&%d)|((CASE WHEN bytes>65536 THEN 2 WHEN bytes>16 THEN 1 ELSE 0 "
            "END)<<24),stack_id,count(*),sum(bytes),sum(blocked_ns),0 FROM copy_row WHERE id IN %s GROUP BY 2,3",
            GS_REMOVED_COPY, (1 << 24) - 1, copy);
    syn_sql(s,
            "INSERT INTO removed SELECT %d,kind+(device+1)*8+api*1024,stack_id,count(*),0,sum(blocked_ns),0 FROM sync "
            "WHERE id IN %s GROUP BY 2,3",
            GS_REMOVED_SYNC, wait);
    syn_sql(s, "DELETE FROM copy_row WHERE id IN %s; DELETE FROM sync WHERE id IN %s", copy, wait);
}

/* A removal may separate a copy from its wait: at its time, at the moment of a peak, or because it was killed between
 * the two tables. The totals stay those of the whole run. */
static void test_a_removal_between_a_copy_and_its_wait(void **state)
{
    (void)state;
    static const int removed[][2] = {{0, 0},   {50, 50}, {50, 49},  {49, 50},   {50, 0},
                                     {99, 98}, {100, 0}, {100, 99}, {100, 100}, {99, 100}};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        struct syn s;
        int64_t train = begin(&s);
        assert_int_equal(sqlite3_exec(s.db, keep_schema, NULL, NULL, NULL), SQLITE_OK);
        int64_t item = syn_python(&s, train, "Tensor.item", "/x/site-packages/torch/_tensor.py", 1);
        int64_t log = syn_python(&s, train, "log", "/home/u/train.py", 20);
        for (int step = 0; step < STEPS; step++) {
            int64_t at = step * 10 * SYN_MS;
            for (int back = 0; back < 2; back++) {
                syn_copy(&s, (struct syn_copy){.direction = GS_DIR_D2H,
                                               .host_memory = back ? GS_HOSTMEM_PAGEABLE : GS_HOSTMEM_PINNED,
                                               .async = 1,
                                               .bytes = back ? 4 * SYN_MIB : 4,
                                               .at = at + back * 5 * SYN_MS,
                                               .blocked = 1000,
                                               .stream = 7,
                                               .stack = back ? log : item});
                syn_sync(&s, GS_SYNC_STREAM, at + back * 5 * SYN_MS + SYN_MS, 3 * SYN_MS, 7, back ? log : item);
            }
        }
        remove_first(&s, removed[i][0], removed[i][1], item);
        remove_first(&s, removed[i][0], removed[i][1], log);
        syn_sql(&s, "INSERT INTO meta VALUES('kept_from_ns',%lld),('keep',33554432)",
                (removed[i][0] > removed[i][1] ? removed[i][0] : removed[i][1]) * 10 * SYN_MS);
        struct result_report *r = syn_report(&s, NULL);
        const struct result_sync_site *w[2] = {wait_at(r, 10, ".item()"), wait_at(r, 20, ".cpu()")};
        for (int back = 0; back < 2; back++) {
            if (w[back]->count != STEPS || fabs(w[back]->blocked_s - 0.3001) > 1e-9)
                fail_msg("%d copies and %d waits removed: %d waits, %.9f s", removed[i][0], removed[i][1],
                         (int)w[back]->count, w[back]->blocked_s);
        }
        assert_int_equal(r->syncs_n, 2);
        syn_close(r);
        syn_end(&s);
    }
}

/* In each step a copy to the host with its wait, and a wait that needs no copy. */
static void add_steps(struct syn *s, int64_t stack, int64_t plain)
{
    for (int step = 0; step < STEPS; step++) {
        const int64_t at = step * 10 * SYN_MS;
        syn_copy(s, (struct syn_copy){.direction = GS_DIR_D2H,
                                      .host_memory = GS_HOSTMEM_PINNED,
                                      .async = 1,
                                      .bytes = 4,
                                      .at = at,
                                      .blocked = SYN_MS,
                                      .stream = 7,
                                      .stack = stack});
        syn_sync(s, GS_SYNC_STREAM, at + SYN_MS, SYN_MS, 7, stack);
        if (plain) syn_sync(s, plain == stack ? GS_SYNC_STREAM : GS_SYNC_DEVICE, at + 4 * SYN_MS, SYN_MS, 7, plain);
    }
}

static struct syn begin_bounded(void)
{
    struct syn s;
    begin(&s);
    assert_int_equal(sqlite3_exec(s.db, keep_schema, NULL, NULL, NULL), SQLITE_OK);
    return s;
}

static void set_kept_from(struct syn *s, int64_t ns)
{
    syn_sql(s, "INSERT INTO meta VALUES('kept_from_ns',%lld),('keep',33554432)", (long long)ns);
}

struct seen_waits {
    struct question_waits *waits;
    int64_t kept_from_ns, last_ns, most_ns, sum_ns;
    uint64_t count;
};

static void see_wait(void *self, const struct question_wait *wait)
{
    struct seen_waits *seen = self;
    seen->count += wait->count;
    seen->sum_ns += wait->blocked_ns;
    if (wait->start_ns < 0) return;
    seen->most_ns = wait->blocked_ns > seen->most_ns ? wait->blocked_ns : seen->most_ns;
    if (wait->start_ns < seen->kept_from_ns) return;
    assert_true(wait->start_ns > seen->last_ns);
    seen->last_ns = wait->start_ns;
}

static void pass_call(void *self, const struct run_copy *copy, const struct run_sync *sync)
{
    struct seen_waits *seen = self;
    question_waits_add(seen->waits, copy, sync);
}

/* A removal does not affect waits that begin after it: gpuspy reports them at once, in order of time. A wait whose copy
 * was removed has the time of one copy, not of all that were removed. */
static void test_waits_of_a_bounded_recording_have_their_own_times(void **state)
{
    (void)state;
    static const int removed[][2] = {{50, 0}, {50, 100}, {50, 99}, {50, 98}, {49, 100}, {50, 30}};
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++) {
        struct syn s = begin_bounded();
        int64_t log = syn_python(&s, 0, "log", "/home/u/train.py", 20);
        add_steps(&s, log, log);
        remove_first(&s, removed[i][0], removed[i][1], log);
        set_kept_from(&s, 500 * SYN_MS);
        struct result_report *r = syn_report(&s, NULL);
        struct arena arena = {0};
        struct question_signer *signer = question_signer_new(r->run, &arena);
        struct seen_waits seen = {.kept_from_ns = 500 * SYN_MS};
        char error[256] = "";
        seen.waits = question_waits_new(r->run, signer, see_wait, &seen);
        assert_true(run_each_call(r->run, pass_call, &seen, error, sizeof error));
        question_waits_free(seen.waits);
        question_signer_free(signer);
        arena_free(&arena);
        assert_int_equal(seen.count, 2 * STEPS);
        assert_int_equal(seen.sum_ns, 3 * STEPS * (int64_t)SYN_MS);
        if (seen.most_ns > 2 * SYN_MS)
            fail_msg("%d copies and %d waits removed: a wait of %lld ns", removed[i][0], removed[i][1],
                     (long long)seen.most_ns);
        syn_close(r);
        syn_end(&s);
    }
}

/* The copy's wait was removed, so nothing pends: the next wait is not for it. */
static void test_a_copy_whose_wait_was_removed_is_not_pending(void **state)
{
    (void)state;
    struct syn s = begin_bounded();
    int64_t log = syn_python(&s, 0, "log", "/home/u/train.py", 20);
    int64_t other = syn_python(&s, 0, "other", "/home/u/train.py", 30);
    add_steps(&s, log, other);
    remove_first(&s, 49, 50, log); /* copy 49 stays: a moment that is kept */
    set_kept_from(&s, 500 * SYN_MS);
    struct result_report *r = syn_report(&s, NULL);
    assert_int_equal(wait_at(r, 20, "one value from the GPU")->count, STEPS);
    assert_int_equal(wait_at(r, 30, NULL)->count, STEPS);
    syn_close(r);
    syn_end(&s);
}

CASES(test_item_and_cpu, test_a_copy_that_nothing_waits_for, test_copies_that_wait, test_lines_that_are_not_reported,
      test_kinds, test_a_removal_between_a_copy_and_its_wait, test_waits_of_a_bounded_recording_have_their_own_times,
      test_a_copy_whose_wait_was_removed_is_not_pending)
