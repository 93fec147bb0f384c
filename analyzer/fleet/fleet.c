#include "analyzer/fleet/fleet.h"

#include <string.h>
#include "analyzer/top/find.h"

#define SECOND 1000000000ll
enum { FIND_S = 5, LINGER_S = 300, BUDGET_MS = 50, READ_MS = 200, ONCE_S = 20 };

static void free_recording(struct fleet_recording *r)
{
    top_tables_free(&r->tables);
    top_model_free(r->model);
    ARENA_RELEASE(r->database, r);
}

void fleet_free(struct fleet *f)
{
    for (size_t i = 0; i < f->n; i++) free_recording(f->list[i]);
    f->n = 0;
}

static void drop_recording(struct fleet *f, size_t i)
{
    free_recording(f->list[i]);
    memmove(&f->list[i], &f->list[i + 1], (--f->n - i) * sizeof *f->list);
}

static struct fleet_recording *find_known(const struct fleet *f, const struct top_found *found)
{
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i]->pid == found->pid && strcmp(f->list[i]->database, found->database) == 0) return f->list[i];
    return NULL;
}

/* Leaves native frames as module and offset: to name them, gpuspy would read files that the process has mapped. */
static void add_found_recording(struct fleet *f, const struct top_found *found)
{
    struct fleet_recording *r = ARENA_NEW(struct fleet_recording, .pid = found->pid,
                                          .database = strdup(found->database), .model = top_model_new(NULL, NULL));
    r->tables.model = r->model;
    top_model_add(r->model, found->database);
    fleet_labels_read(found->pid, &r->labels);
    f->list[f->n++] = r;
}

/* A process that executed another program has a new recording. Drops the old one, whose labels would be the same. */
static void drop_ended_of(struct fleet *f, uint32_t pid)
{
    for (size_t i = f->n; i-- > 0;)
        if (f->list[i]->pid == pid) drop_recording(f, i);
}

static void drop_longest_ended(struct fleet *f)
{
    size_t oldest = f->n;
    for (size_t i = 0; i < f->n; i++)
        if (f->list[i]->ended_ns && (oldest == f->n || f->list[i]->ended_ns < f->list[oldest]->ended_ns)) oldest = i;
    if (oldest < f->n) drop_recording(f, oldest);
}

static void find_recordings(struct fleet *f, int64_t now)
{
    size_t n;
    struct top_found *found = top_find_all(&n);
    f->found_ns = now;
    f->left_out = 0;
    for (size_t i = 0; i < n; i++) {
        if (find_known(f, &found[i])) continue;
        drop_ended_of(f, found[i].pid);
        if (f->n == FLEET_RECORDINGS) drop_longest_ended(f);
        if (f->n < FLEET_RECORDINGS)
            add_found_recording(f, &found[i]);
        else
            f->left_out++;
    }
    top_found_free(found, n);
}

static bool is_read_whole(const struct fleet_recording *r)
{
    return r->model->sources[0].loaded && !top_model_unread(r->model);
}

static size_t count_unread(const struct fleet *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++) n += !is_read_whole(f->list[i]);
    return n;
}

/* A recording that has ended stays for a while, so that a scrape every minute sees the failure that ended it. Older
 * rows of all recordings share READ_MS. */
static void update_recordings(struct fleet *f, int64_t now)
{
    const size_t unread = count_unread(f);
    for (size_t i = f->n; i-- > 0;) {
        struct fleet_recording *r = f->list[i];
        r->model->turn_ns = READ_MS * 1000000ll / (int64_t)(unread ? unread : 1);
        if (r->ended_ns && !is_read_whole(r)) top_model_update(r->model, BUDGET_MS * 1000000ll);
        if (!r->ended_ns && !top_model_update(r->model, BUDGET_MS * 1000000ll)) r->ended_ns = now;
        if (r->ended_ns && now - r->ended_ns > LINGER_S * SECOND) drop_recording(f, i);
    }
}

void fleet_refresh(struct fleet *f)
{
    const int64_t now = clock_now_ns();
    if (f->refreshed_ns && now - f->refreshed_ns < SECOND) return;
    if (!f->found_ns || now - f->found_ns > FIND_S * SECOND) find_recordings(f, now);
    update_recordings(f, now);
    f->refreshed_ns = now;
    f->refresh_s = (double)(clock_now_ns() - now) / 1e9;
}

static bool has_unread_rows(const struct fleet *f)
{
    bool has = false;
    for (size_t i = 0; i < f->n; i++) has = has || top_model_unread(f->list[i]->model);
    return has;
}

bool fleet_refresh_whole(struct fleet *f)
{
    const int64_t until = clock_now_ns() + ONCE_S * SECOND;
    fleet_refresh(f);
    while (has_unread_rows(f) && clock_now_ns() < until) update_recordings(f, clock_now_ns());
    return !has_unread_rows(f);
}
