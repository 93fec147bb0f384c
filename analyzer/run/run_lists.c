/* What a run that is open answers: its lists, settings and notes. */
#include "analyzer/run/run_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void gs_run_note(struct gs_run *run, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    *GS_PUSH(run->notes, run->notes_n, run->notes_cap) = gs_intern(run, line, sizeof line);
}

#define LIST(name, type, member)                                 \
    const struct type *name(const struct gs_run *run, size_t *n) \
    {                                                            \
        *n = run->member##_n;                                    \
        return run->member;                                      \
    }
LIST(gs_run_processes, gs_process, processes)
LIST(gs_run_devices, gs_device, devices)
LIST(gs_run_ooms, gs_oom, ooms)
LIST(gs_run_device_samples, gs_device_sample, device_samples)
LIST(gs_run_marks, gs_mark_total, marks)
LIST(gs_run_reserved, gs_reserved, reserved)
LIST(gs_run_mappings, gs_mapping, mappings)
LIST(gs_run_graph_memory, gs_graph_memory, graphs)
LIST(gs_run_pool_memory, gs_pool_memory, pools)
LIST(gs_run_counted, gs_counted, counted)
LIST(gs_run_tensor_checks, gs_tensor_check, checks)
LIST(gs_run_threads, gs_thread, threads)
LIST(gs_run_mappers, gs_mapper, mappers)
LIST(gs_run_contexts, gs_context, contexts)

bool gs_device_simulated(const char *name)
{
    const size_t length = name ? strlen(name) : 0, mark = sizeof GS_SIMULATED - 1;
    return length &&
           (strcmp(name, "Simulated GPU") == 0 || (length > mark && strcmp(name + length - mark, GS_SIMULATED) == 0));
}

static const struct gs_setting *find_setting(const struct gs_run *run, uint32_t process, const char *name)
{
    for (size_t i = 0; i < run->settings_n; i++) {
        const struct gs_setting *s = &run->settings[i];
        if (s->process == process && strcmp(s->name, name) == 0) {
            return s;
        }
    }
    return NULL;
}

const char *gs_run_setting(const struct gs_run *run, uint32_t process, const char *name)
{
    const struct gs_setting *s = find_setting(run, process, name);
    return s ? s->value : NULL;
}

bool gs_run_settings_known(const struct gs_run *run, uint32_t process)
{
    return find_setting(run, process, "") != NULL;
}

int64_t gs_graph_memory_at(const struct gs_run *run, uint32_t process, int device, int64_t time_ns)
{
    size_t low = 0, high = run->graphs_n;
    while (low < high) { /* the first that is later */
        size_t middle = low + (high - low) / 2;
        const struct gs_graph_memory *g = &run->graphs[middle];
        bool later = g->process > process || (g->process == process && g->time_ns > time_ns);
        low = later ? low : middle + 1;
        high = later ? middle : high;
    }
    while (low-- > 0 && run->graphs[low].process == process) {
        if (run->graphs[low].device == device) {
            return run->graphs[low].bytes;
        }
    }
    return 0;
}

const char *const *gs_run_notes(const struct gs_run *run, size_t *n)
{
    *n = run->notes_n;
    return run->notes;
}

const char *gs_run_api(const struct gs_run *run, uint32_t process, uint32_t api)
{
    if (process >= run->processes_n) {
        return "";
    }
    uint32_t at = gs_ids_get(&run->databases[run->processes[process].database].apis, api);
    return at != GS_NONE && run->api_names[at] ? run->api_names[at] : "";
}

const char *gs_run_database(const struct gs_run *run, size_t process)
{
    return run->databases[run->processes[process].database].opened;
}

int64_t gs_run_duration(const struct gs_run *run)
{
    int64_t longest = 0;
    for (size_t i = 0; i < run->processes_n; i++) {
        longest = run->processes[i].end_ns > longest ? run->processes[i].end_ns : longest;
    }
    return longest;
}

/* "ValueError: its message at train.py:31, " or nothing. */
static void describe_exception(const struct gs_process *p, char *out, size_t size)
{
    const char *place = p->exception_place ? p->exception_place : "", *slash = strrchr(place, '/');
    place = slash ? slash + 1 : place;
    *out = 0;
    if (p->exception) {
        snprintf(out, size, "%.160s%s%.64s", p->exception, *place ? " at " : "", place);
    }
}

const char *gs_process_failure(const struct gs_process *p, char *out, size_t size)
{
    char exception[GS_FAILURE_TEXT - 64], how[48] = "";
    const char *signal = p->exit_signal ? sigabbrev_np(p->exit_signal) : NULL;
    describe_exception(p, exception, sizeof exception);
    if (signal) {
        snprintf(how, sizeof how, "killed by SIG%s", signal);
    } else if (p->exit_signal) {
        snprintf(how, sizeof how, "killed by signal %d", p->exit_signal);
    } else if (p->exit_status > 0) {
        snprintf(how, sizeof how, "exited with status %d", p->exit_status);
    } else if (p->exit_status == 0 || !*exception) {
        return NULL;
    }
    snprintf(out, size, "%s%s%s", exception, *exception && *how ? ", " : "", how);
    return out;
}
