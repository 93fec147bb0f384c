/* Data besides CUDA's calls: the program's own marks, and NVML's samples of the devices. */
#include "analyzer/question/question.h"

#include <stdlib.h>
#include <string.h>
#include "analyzer/base/sort.h"

SORT_ORDER(longest_first, struct run_mark_total,
           SORT_DOWN(x->total_ns, y->total_ns) ?: SORT_DOWN(x->count, y->count)
               ?: sort_compare_texts(x->name, y->name)
               ?: sort_compare_texts(x->domain, y->domain)
               ?: SORT_UP(x->kind, y->kind))

void question_marks_build(struct site_builder *b)
{
    struct result_report *r = b->report;
    size_t n;
    const struct run_mark_total *all = run_marks(b->run, &n);
    struct run_mark_total *work = arena_realloc(NULL, n, sizeof *work);
    if (n) memcpy(work, all, n * sizeof *work);
    r->marks = site_list(b, work, n, sizeof *work, longest_first, &r->marks_n, &r->marks_total);
    free(work);
}

/* Of each interval the fullest moment; the first and the last are kept unchanged. */
static void thin_samples(struct site_builder *b, struct result_sample_line *line)
{
    size_t n;
    const struct run_device_sample *all = run_process_samples(b->run, line->process, &n);
    line->points = arena_alloc(b->arena, RESULT_SAMPLE_POINTS * sizeof(const struct run_device_sample *));
    size_t room = RESULT_SAMPLE_POINTS, stretch = line->total <= room ? 1 : (line->total + room - 3) / (room - 2);
    const struct run_device_sample *fullest = NULL;
    size_t seen = 0;
    for (const struct run_device_sample *s = all; seen < line->total; s++) {
        if (s->device != line->device) continue;
        seen++;
        if (!fullest || s->free_bytes < fullest->free_bytes) fullest = s;
        if (seen == 1 || seen == line->total || (seen - 1) % stretch == 0) {
            line->points[line->n++] = seen == line->total ? s : fullest;
            fullest = NULL;
        }
    }
}

static struct result_sample_line *sample_line_of(struct result_report *r, const struct run_device_sample *s)
{
    for (size_t i = r->samples_n; i > 0 && r->samples[i - 1].process == s->process; i--)
        if (r->samples[i - 1].device == s->device) return &r->samples[i - 1];
    return NULL;
}

void question_samples_build(struct site_builder *b)
{
    enum { LINES = 1024 }; /* of a hostile file */
    struct result_report *r = b->report;
    size_t n;
    const struct run_device_sample *all = run_device_samples(b->run, &n);
    r->samples = arena_alloc(b->arena, (n < LINES ? n : LINES) * sizeof *r->samples);
    for (size_t i = 0; i < n; i++) {
        struct result_sample_line *line = sample_line_of(r, &all[i]);
        if (!line && r->samples_n < LINES && (!b->options->by_device || all[i].device == b->options->device)) {
            line = &r->samples[r->samples_n++];
            *line = (struct result_sample_line){.process = all[i].process, .device = all[i].device};
        }
        if (line) line->total++;
    }
    for (size_t i = 0; i < r->samples_n; i++) thin_samples(b, &r->samples[i]);
}

const struct run_device_sample *question_sample_near(const struct site_builder *b, uint32_t process, int device,
                                                     int64_t time_ns)
{
    static const int64_t near_ns = 3000000000; /* three periods of the sampler */
    const struct run_device_sample *best = NULL;
    int64_t distance = near_ns;
    RUN_EACH (s, run_process_samples, b->run, process) {
        int64_t away = llabs(s->time_ns - time_ns);
        if (s->device == device && away <= distance) {
            best = s;
            distance = away;
        }
    }
    return best;
}
