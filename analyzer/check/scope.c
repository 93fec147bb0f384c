/* Limits of NVTX ranges: the peak while at least one range of the name is open. A name that occurs in no process is an
 * error: a typing error, or a program that no longer marks the range. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "analyzer/base/units.h"
#include "analyzer/check/check.h"
#include "analyzer/question/question.h"

static struct check_scope *scope_entry_of(struct check_scopes *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->list[i].name, name) == 0) return &s->list[i];
    struct check_scope *new = ARENA_PUSH(s->list, s->n, s->cap);
    *new = (struct check_scope){.name = name};
    return new;
}

/* `s` NULL: without a device. */
static void emit_scope(struct checking *c, const char *name, const struct result_scope *s, double value,
                       const char *why)
{
    static const char *const what[] = {[RUN_SERIES_DEVICE] = "GPU memory", [RUN_SERIES_TENSOR] = "tensors"};
    enum run_series_layer layer = c->gate == GATE_TENSOR_PEAK ? RUN_SERIES_TENSOR : RUN_SERIES_DEVICE;
    c->read(c, &(struct check_result){.device = s ? s->device : -1,
                                      .value = value,
                                      .limit = NAN,
                                      .why = why,
                                      .what = arena_printf(c->arena, "peak of %s in range '%s'", what[layer], name),
                                      .scope = name,
                                      .moment_ns = s ? s->peak_ns : RUN_UNKNOWN});
}

/* Did a range with this name begin, even if its memory is unknown? */
static bool is_marked(const struct checking *c, const char *name)
{
    RUN_EACH (m, run_marks, c->run) {
        bool range = m->kind == GS_MARK_PUSH || m->kind == GS_MARK_START;
        if (range && m->name && strcmp(m->name, name) == 0) return true;
    }
    return false;
}

/* Ranges of any name may have been removed without their peaks. */
static bool lacks_scopes(const struct checking *c)
{
    RUN_EACH (p, run_processes, c->run)
        if (p->kept_from_ns && !p->scopes_are_known) return true;
    return false;
}

static const char *why_unknown(struct checking *c, const char *name)
{
    const char *why = run_why_unknown(c->run, RUN_FACT_MEMORY), *pattern = run_mark_pattern(c->run, name);
    for (size_t i = 0; i < c->report->scopes_n && !why; i++) {
        if (strcmp(c->report->scopes[i].name, pattern) == 0) {
            why = arena_printf(c->arena, "'%s' is one of many ranges that are measured together; write scope:%s=SIZE",
                               name, pattern);
        }
    }
    return why ? why : "the recording has too many names of ranges";
}

static void measure_scope(struct checking *c, const char *name, enum run_series_layer layer)
{
    struct check_scope *entry = scope_entry_of(c->scopes, name);
    size_t read = 0, others = 0, empty = 0, incomplete = 0;
    EACH_IN (s, c->report->scopes) {
        if (strcmp(s->name, name) != 0) continue;
        if (s->incomplete) {
            incomplete++;
        } else if (s->device < 0) {
            empty++;
        } else if (s->layer == layer) {
            emit_scope(c, name, s, (double)s->peak_bytes, NULL);
            read++;
        } else {
            others++;
        }
    }
    incomplete += !read && !others && !empty && lacks_scopes(c);
    const bool marked = read || others || empty || incomplete || is_marked(c, name);
    entry->occurred = entry->occurred || marked;
    if (!marked || (read && !incomplete)) return;
    if (incomplete) {
        emit_scope(c, name, NULL, NAN,
                   arena_printf(c->arena,
                                "the recording is bounded and has not kept the peaks of all ranges such as '%s' before "
                                "%s",
                                name, UNITS_SECONDS((double)run_kept_from(c->run) / 1e9)));
    } else if (others) {
        emit_scope(c, name, NULL, NAN,
                   layer == RUN_SERIES_DEVICE ? "tensors were recorded, but not the CUDA allocations that contain them"
                                              : "PyTorch reported no tensors, although GPU memory was allocated");
    } else {
        emit_scope(c, name, NULL, empty ? 0 : NAN, empty ? NULL : why_unknown(c, name));
    }
}

void check_measure_scopes(struct checking *c, enum run_series_layer layer)
{
    size_t at = 0;
    const char *name = check_limits_scope(c->limits, c->gate, c->paths, &at);
    if (name && !c->scopes->recorded) c->scopes->recorded = question_scope_names(c->report, c->arena);
    for (; name; name = check_limits_scope(c->limits, c->gate, c->paths, &at)) measure_scope(c, name, layer);
}

bool check_scopes_occurred(const struct check_scopes *s, const char *source, char *error, size_t error_size)
{
    for (size_t i = 0; i < s->n; i++) {
        const char *name = s->list[i].name;
        if (!s->list[i].occurred && s->recorded) {
            snprintf(error, error_size, "'%s' has no NVTX range named '%s'; it has %s", source, name, s->recorded);
            return false;
        }
        if (!s->list[i].occurred) {
            snprintf(
                error, error_size,
                "'%s' has no NVTX range named '%s', nor any other; mark one, for example with gpuspy.scope(\"%s\")",
                source, name, name);
            return false;
        }
    }
    return true;
}
