/* Accessors of an open run: its lists, settings and notes. */
#include "analyzer/base/text.h"
#include "analyzer/run/run_internal.h"
#include "analyzer/base/sort.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

void run_add_note(struct run *run, const char *format, ...)
{
    char line[1024];
    TEXT_FORMAT(line, sizeof line, format);
    *ARENA_ADD(run->notes) = run_text(run, line, sizeof line);
}

#define LIST(name, type, member)                              \
    const struct type *name(const struct run *run, size_t *n) \
    {                                                         \
        *n = run->member##_n;                                 \
        return run->member;                                   \
    }
LIST(run_processes, run_process, processes)
LIST(run_devices, run_device, devices)
LIST(run_ooms, run_oom, ooms)
LIST(run_device_samples, run_device_sample, device_samples)
const struct run_device_sample *run_process_samples(const struct run *run, uint32_t process, size_t *n)
{
    const struct run_device_sample *all = run->device_samples;
    const size_t first = SORT_COUNT(run->device_samples_n, i, all[i].process < process);
    *n = SORT_COUNT(run->device_samples_n, i, all[i].process <= process) - first;
    return all ? all + first : NULL;
}
LIST(run_marks, run_mark_total, marks)
LIST(run_reserved, run_reserved, reserved)
LIST(run_mappings, run_mapping, mappings)
LIST(run_graph_memory, run_graph_memory, graphs)
LIST(run_pool_memory, run_pool_memory, pools)
LIST(run_allocator_facts, run_allocator_fact, allocator_facts)
LIST(run_counted, run_counted, counted)
LIST(run_tensor_checks, run_tensor_check, checks)
LIST(run_threads, run_thread, threads)
LIST(run_mappers, run_mapper, mappers)
LIST(run_contexts, run_context, contexts)
LIST(run_removed, run_removed, removed)
LIST(run_levels, run_level, levels)
LIST(run_removed_scopes, run_removed_scope, removed_scopes)
LIST(run_removed_lows, run_removed_low, removed_lows)

static bool precedes_by_rank(const struct run_process *a, const struct run_process *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pid != b->pid ? a->pid < b->pid : a < b;
}

/* In order of ranks; NULL after the last. */
static const struct run_process *find_next_rank(const struct run *run, const struct run_process *after)
{
    const struct run_process *next = NULL;

    EACH_IN (p, run->processes)
        if ((!after || precedes_by_rank(after, p)) && (!next || precedes_by_rank(p, next))) next = p;
    return next;
}

void run_list_processes(const struct run *run, char *out, size_t size)
{
    enum { LISTED = 16 };
    size_t at = (size_t)snprintf(out, size, "%s", run->processes_n == 1 ? "process" : "processes");
    const struct run_process *p = find_next_rank(run, NULL);

    for (size_t i = 0; p && i < LISTED && at < size; i++, p = find_next_rank(run, p)) {
        at += (size_t)snprintf(out + at, size - at, "%s %u", i ? "," : "", p->pid);
        if (p->rank != RUN_UNKNOWN && at < size)
            at += (size_t)snprintf(out + at, size - at, " (rank %lld)", (long long)p->rank);
    }
    if (run->processes_n > LISTED && at < size) snprintf(out + at, size - at, ", …");
}

void run_explain_absent(const struct run *run, int pid, int rank, char *out, size_t size)
{
    char list[512], number[16];

    run_list_processes(run, list, sizeof list);
    snprintf(number, sizeof number, "%d", rank);
    if (pid < 0)
        snprintf(out, size, "this run has no rank %s; it has %s", number, list);
    else
        snprintf(out, size, "this run has no process %d%s%s; it has %s", pid, rank < 0 ? "" : " with rank ",
                 rank < 0 ? "" : number, list);
}

void run_note_survived(struct run *run, size_t oom)
{
    run->ooms[oom].survived = true;
}

#define RUN_FACT(symbol, word, object) word,
const char *const run_fact_words[] = {RUN_FACTS(RUN_FACT)};
#undef RUN_FACT

bool run_is_imported(const struct run *run)
{
    return run->imported;
}

const char *run_range_word(const struct run *run)
{
    return run->imported && !run->why_unknown[RUN_FACT_TENSORS] ? "record_function" : "NVTX";
}

const char *run_why_unknown(const struct run *run, enum run_fact what)
{
    return run->why_unknown[what];
}

bool run_device_is_simulated(const char *name)
{
    const size_t length = name ? strlen(name) : 0, mark = sizeof RUN_SIMULATED - 1;
    return length &&
           (strcmp(name, "Simulated GPU") == 0 || (length > mark && strcmp(name + length - mark, RUN_SIMULATED) == 0));
}

static const struct run_setting *find_setting(const struct run *run, uint32_t process, const char *name)
{
    return FIND_IN(s, run->settings, s->process == process && strcmp(s->name, name) == 0);
}

const char *run_setting_value(const struct run *run, uint32_t process, const char *name)
{
    const struct run_setting *s = find_setting(run, process, name);
    return s ? s->value : NULL;
}

bool run_settings_are_known(const struct run *run, uint32_t process)
{
    return find_setting(run, process, "") != NULL;
}

int64_t run_graph_memory_at(const struct run *run, uint32_t process, int device, int64_t time_ns)
{
    const struct run_graph_memory *g = run->graphs;
    size_t low =
        SORT_COUNT(run->graphs_n, i, g[i].process < process || (g[i].process == process && g[i].time_ns <= time_ns));
    while (low-- > 0 && run->graphs[low].process == process)
        if (run->graphs[low].device == device) return run->graphs[low].bytes;
    return 0;
}

const char *const *run_notes(const struct run *run, size_t *n)
{
    *n = run->notes_n;
    return run->notes;
}

const char *run_api_name(const struct run *run, uint32_t process, uint32_t api)
{
    if (process >= run->processes_n) return "";
    uint32_t at = run_ids_get(&run->databases[run->processes[process].database].apis, api);
    return at != RUN_NONE && run->api_names[at] ? run->api_names[at] : "";
}

const char *run_database_path(const struct run *run, size_t process)
{
    return run->databases[run->processes[process].database].opened;
}

int64_t run_duration(const struct run *run)
{
    int64_t longest = 0;
    for (size_t i = 0; i < run->processes_n; i++)
        longest = run->processes[i].end_ns > longest ? run->processes[i].end_ns : longest;
    return longest;
}

int64_t run_growth_from(const struct run *run)
{
    int64_t latest = 0;
    for (size_t i = 0; i < run->processes_n; i++)
        if (!run->processes[i].lows_are_known && run->processes[i].kept_from_ns > latest)
            latest = run->processes[i].kept_from_ns;
    return latest;
}

int64_t run_kept_from(const struct run *run)
{
    int64_t latest = 0;
    for (size_t i = 0; i < run->processes_n; i++)
        latest = run->processes[i].kept_from_ns > latest ? run->processes[i].kept_from_ns : latest;
    return latest;
}

/* How many bytes of a message are shown: all, or up to the end of a word; of a long word, whole characters. */
static size_t message_bytes(const char *message)
{
    enum { MOST = 160, LEAST = 120 };
    size_t n = strlen(message);
    if (n <= MOST) return n;
    for (n = MOST; n > LEAST && message[n] != ' ';) n--;
    if (message[n] != ' ') n = MOST;
    while (n && (message[n] & 0xc0) == 0x80) n--;
    return n;
}

/* "ValueError: its message at train.py:31, " or nothing. */
static void describe_exception(const struct run_process *p, char *out, size_t size)
{
    const char *place = p->exception_place ? basename(p->exception_place) : "";
    *out = 0;
    if (!p->exception) return;
    const size_t n = message_bytes(p->exception);
    snprintf(out, size, "%.*s%s%s%.64s", (int)n, p->exception, p->exception[n] ? " ..." : "", *place ? " at " : "",
             place);
}

/* glibc has sigabbrev_np only since 2.32. NULL: a signal by which programs usually do not end. */
static const char *signal_word(int number)
{
    static const char *const words[] = {
        [SIGHUP] = "HUP",   [SIGINT] = "INT",   [SIGQUIT] = "QUIT", [SIGILL] = "ILL",   [SIGTRAP] = "TRAP",
        [SIGABRT] = "ABRT", [SIGBUS] = "BUS",   [SIGFPE] = "FPE",   [SIGKILL] = "KILL", [SIGUSR1] = "USR1",
        [SIGSEGV] = "SEGV", [SIGUSR2] = "USR2", [SIGPIPE] = "PIPE", [SIGALRM] = "ALRM", [SIGTERM] = "TERM",
        [SIGXCPU] = "XCPU", [SIGXFSZ] = "XFSZ", [SIGSYS] = "SYS",
    };

    return number > 0 && number < (int)(sizeof words / sizeof *words) ? words[number] : NULL;
}

const char *run_process_failure(const struct run_process *p, char *out, size_t size)
{
    char exception[RUN_FAILURE_TEXT - 64], how[48] = "";
    const char *signal = p->exit_signal ? signal_word(p->exit_signal) : NULL;
    describe_exception(p, exception, sizeof exception);
    if (signal)
        snprintf(how, sizeof how, "killed by SIG%s", signal);
    else if (p->exit_signal)
        snprintf(how, sizeof how, "killed by signal %d", p->exit_signal);
    else if (p->exit_status > 0)
        snprintf(how, sizeof how, "exited with status %d", p->exit_status);
    else if (p->exit_status == 0 || !*exception)
        return NULL;
    snprintf(out, size, "%s%s%s", exception, *exception && *how ? ", " : "", how);
    return out;
}

/* The mark that a dry run leaves if it was in an endless loop (fixtures/simcuda/driver/loop.c). */
static const char loop_prefix[] = "a loop", loop_suffix[] = " waits for values that a simulated GPU does not compute";

static bool is_loop_name(const char *name)
{
    size_t length = strlen(name), end = sizeof loop_suffix - 1;
    return length >= end && strncmp(name, loop_prefix, sizeof loop_prefix - 1) == 0 &&
           strcmp(name + length - end, loop_suffix) == 0;
}

const char *run_endless_loop(const struct run *run)
{
    size_t marks, devices;
    const struct run_mark_total *mark = run_marks(run, &marks);
    const struct run_device *device = run_devices(run, &devices);
    bool simulated = false;
    for (size_t i = 0; i < devices; i++) simulated = simulated || run_device_is_simulated(device[i].name);
    for (size_t i = 0; simulated && i < marks; i++)
        if (mark[i].name && !mark[i].domain && is_loop_name(mark[i].name)) return mark[i].name;
    return NULL;
}
