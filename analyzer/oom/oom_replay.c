#include "analyzer/oom/oom_replay.h"

#include <stdlib.h>

struct oom_replays {
    struct whatif_scenario scenarios[OOM_REPLAY_SETTINGS];
    size_t scenarios_n; /* the first ones: each costs a replay */
    ARENA_ROWS(const struct run_oom, rows);
    bool unsure;
};

static const char *const confs[OOM_REPLAY_SETTINGS] = {
    [OOM_REPLAY_EXPANDABLE] = "expandable_segments:True",
    [OOM_REPLAY_SPLIT] = "max_split_size_mb:128",
    [OOM_REPLAY_ROUNDED] = "roundup_power2_divisions:8",
};

const char *oom_replay_conf(enum oom_replay_setting setting)
{
    return confs[setting];
}

static bool is_candidate(const struct result_oom_verdict *v)
{
    return (v->fatal || (v->handled && v->cause == RESULT_CAUSE_FRAGMENTATION)) &&
           v->facts->row->layer == GS_LAYER_TENSOR &&
           (v->cause == RESULT_CAUSE_CAPACITY || v->cause == RESULT_CAUSE_FRAGMENTATION ||
            v->cause == RESULT_CAUSE_OTHER_PROCESS || v->cause == RESULT_CAUSE_OUTSIDE_ALLOCATOR);
}

static bool replay_measure(struct oom_replays *r, struct whatif *w)
{
    char error[256];
    const struct whatif_proof *proof = whatif_proof(w);
    if (proof->parted_at_event || (proof->reason && !proof->unsure_sizes)) return false;
    r->unsure = proof->unsure_sizes;
    for (size_t i = 0; i < r->scenarios_n; i++) {
        struct whatif_request *requests = arena_zeroed(r->rows_n, sizeof *requests);
        r->scenarios[i] = (struct whatif_scenario){.name = confs[i], .conf = confs[i], .requests = requests};
    }
    return whatif_run(w, r->scenarios, r->scenarios_n, error, sizeof error);
}

struct oom_replays *oom_replay_start(struct site_builder *b)
{
    char error[256];
    size_t needed = 0;
    EACH_IN (v, b->report->ooms) {
        const size_t of = v->cause == RESULT_CAUSE_FRAGMENTATION ? OOM_REPLAY_SETTINGS : OOM_REPLAY_EXPANDABLE + 1;
        if (is_candidate(v) && of > needed) needed = of;
    }
    if (!needed) return NULL;
    struct whatif *w = whatif_start(b->run, b->report->steps, b->report->steps_n, error, sizeof error);
    if (!w) return NULL;
    struct oom_replays *r = arena_realloc(NULL, 1, sizeof *r);
    *r = (struct oom_replays){.scenarios_n = needed};
    r->rows = run_ooms(b->run, &r->rows_n);
    const bool ok = replay_measure(r, w);
    for (size_t i = 0; i < r->scenarios_n; i++) {
        if (r->scenarios[i].error) { /* its text belongs to `w` */
            free(r->scenarios[i].requests);
            r->scenarios[i].requests = NULL;
        }
    }
    whatif_free(w);
    if (ok) return r;
    oom_replay_free(r);
    return NULL;
}

const struct whatif_request *oom_replay_of(const struct oom_replays *r, const struct result_oom_verdict *v,
                                           enum oom_replay_setting setting)
{
    const struct run_oom *row = v->facts->row;
    if (!r || !is_candidate(v) || !r->scenarios[setting].requests || row < r->rows || row >= r->rows + r->rows_n)
        return NULL;
    return &r->scenarios[setting].requests[row - r->rows];
}

bool oom_replay_unsure(const struct oom_replays *r)
{
    return r->unsure;
}

void oom_replay_free(struct oom_replays *r)
{
    if (!r) return;
    for (size_t i = 0; i < OOM_REPLAY_SETTINGS; i++) free(r->scenarios[i].requests);
    free(r);
}
