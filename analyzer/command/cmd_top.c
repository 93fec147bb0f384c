/* gpuspy top: finds the recording, reads it again and again, and lets a view show it. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/clock.h"
#include "analyzer/command/attached.h"
#include "analyzer/command/commands.h"
#include "analyzer/base/input.h"
#include "analyzer/symbol/symbol.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/top/find.h"
#include "analyzer/top/screen.h"
#include "analyzer/top/view.h"
#include "analyzer/base/sort.h"
#include "schema/store.h"

#define ROWS_JSON 50
#define USERS_MS 1000 /* how long the first read waits for NVML */
#define ONCE_S 20     /* how long the only output of a program that still runs waits for its older rows */

struct settings {
    bool once, json, native;
    int top, device, count;
    const char *interval, *sort, *table;
};

const struct command_text command_text_top = {
    .options = OPTION_ROWS(
        OPTION_ROW(FLAG, "once", '1', once, NULL,
                   "print the current state once and exit; the default if the output is not a terminal"),
        OPTION_ROW(FLAG, "json", 0, json, NULL, "print one JSON object per line: sizes in bytes, times in seconds"),
        OPTION_ROW(TEXT, "interval", 'i', interval, "SECONDS",
                   "update every N seconds; default 1. With --json or without a terminal: print every N seconds "
                   "until the recording ends"),
        {"count", 'c', OPTION_NUMBER, offsetof(struct settings, count), "N", NULL, 1, 1000000000,
         "exit after N updates"},
        {"sort", 's', OPTION_CHOICE, offsetof(struct settings, sort), "BY", "bytes|count|growth|rate|last", 0, 0,
         "sort the tables by this; for waits, bytes mean the time blocked"},
        {"table", 't', OPTION_CHOICE, offsetof(struct settings, table), "TABLE", "lines|functions|syncs|copies", 0, 0,
         "the table to show first"},
        {"device", 'd', OPTION_NUMBER, offsetof(struct settings, device), "N", NULL, 0, 63,
         "only GPU N (CUDA's number in the program)"},
        {"top", 'n', OPTION_NUMBER, offsetof(struct settings, top), "N", NULL, 1, 1000000,
         "with --json: the first N of each list; default 50"},
        OPTION_ROW(FLAG, "native", 0, native, NULL, "show C and C++ lines if native frames were recorded")),
    .about = "Shows a running program's GPU memory live. Per process and device: tensors, the allocator's cache, other "
             "memory. Per line of code: what it holds, how much it grew in the last minute, how often it allocates, "
             "copies and waits. Also: which NVTX ranges are open, with a lower bound of the peak in each. A curve "
             "shows the last five minutes; if memory grows steadily, top prints when the GPU will be full. NVML "
             "reports utilization and temperature. Press ? for the keys.\n\nIt also lists processes that use a GPU and "
             "are not recorded, as NVML reports them; the key a attaches to the selected one, as gpuspy attach "
             "does.\n\ntop only reads the recording and does not slow down the program. The last second may be "
             "missing; the first line shows the age of the data. top reads the newest rows of a long recording first; "
             "until it has read all, it prints the share that it has read (--once and --json without --interval wait "
             "up to 20 s for it).\n\nWithout an operand, gpuspy finds running recordings in /proc and lists them if "
             "there are several. A recording that has ended is shown in its final state.",
    .examples =
        COMMAND_EXAMPLES({"gpuspy top", "watch the program that is being recorded"},
                         {"gpuspy top 4711", "watch process 4711, or what it started"},
                         {"gpuspy top run.db", "watch this file and the run's other processes"},
                         {"gpuspy top --once --sort growth run.db", "what grew in the last minute, as text"},
                         {"gpuspy top --json --interval 10 run.db >> memory.jsonl", "one line every ten seconds"}),
};

static void add_once(struct top_model *m, const char *path)
{
    struct stat a, b;
    for (size_t i = 0; i < m->sources_n; i++) {
        const char *have = m->sources[i].db.path;
        if (strcmp(have, path) == 0 ||
            (stat(have, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino))
            return;
    }
    /* Completes the recording of a dead process from its spool first, as the report does. */
    uint32_t pid;
    char error[512];
    (void)gs_recover(path, &pid, error, sizeof error);
    top_model_add(m, path);
}

/* Adds the other recorded processes of the run. */
static void add_run(struct top_model *m, const struct top_found *found, size_t n, const char *run_id)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(found[i].run_id, run_id) == 0) add_once(m, found[i].database);
}

static void print_found(const struct top_found *found, size_t n)
{
    char here[1024], clean[1024];
    for (size_t i = 0; i < n; i++) {
        snprintf(here, sizeof here, "%8u  %s  %.200s", found[i].pid, found[i].database,
                 found[i].command ? found[i].command : "");
        fprintf(stderr, "%s\n", terminal_clean(clean, sizeof clean, here, true));
    }
}

static int find_only(struct top_model *m)
{
    size_t n;
    struct top_found *found = top_find_all(&n);
    bool one = n > 0;
    for (size_t i = 1; i < n; i++) one = one && strcmp(found[i].run_id, found[0].run_id) == 0;
    if (one) {
        add_run(m, found, n, found[0].run_id);
    } else if (n) {
        complain("top: several programs are being recorded; give the process or the file of one:");
        print_found(found, n);
    }
    top_found_free(found, n);
    return one || n == 0 ? EXIT_YES : EXIT_USAGE;
}

static int find_pid(struct top_model *m, uint32_t pid)
{
    size_t n;
    char proc[32];
    struct stat st;
    struct top_found *found = top_find_all(&n);
    for (size_t i = 0; i < n; i++)
        if (top_descends(found[i].pid, pid)) add_once(m, found[i].database);
    if (m->sources_n == 0) {
        snprintf(proc, sizeof proc, "/proc/%u", pid);
        bool exists = stat(proc, &st) == 0;
        complain(exists
                     ? "top: neither process %u nor a process that it started is being recorded; to record it: gpuspy "
                       "attach %u"
                     : "top: process %u does not exist; type gpuspy top to find running recordings",
                 pid, pid);
    }
    top_found_free(found, n);
    return m->sources_n ? EXIT_YES : EXIT_INPUT;
}

/* Adds the other processes of the run to which a file belongs. */
static void add_siblings(struct top_model *m, const char *path)
{
    char run_id[64], other[64];
    bool recording;
    struct input_files names = input_siblings(path);
    if (names.n && top_peek(path, run_id, sizeof run_id, &recording)) {
        for (size_t i = 0; i < names.n; i++)
            if (top_peek(names.list[i], other, sizeof other, &recording) && strcmp(other, run_id) == 0)
                add_once(m, names.list[i]);
    }
    input_files_free(&names);
}

/* Adds the run in a folder; if there are several, one that is active. */
static int add_top_folder(struct top_model *m, const char *folder)
{
    struct input_files names = {0};
    input_list(folder, input_is_database_name, NULL, &names);
    char first[64] = "", run_id[64];
    bool several = false;
    for (int going = 1; going >= 0 && m->sources_n == 0; going--) {
        for (size_t i = 0; i < names.n; i++) {
            bool recording;
            if (!top_peek(names.list[i], run_id, sizeof run_id, &recording) || recording < going) continue;
            if (m->sources_n == 0) snprintf(first, sizeof first, "%s", run_id);
            several = several || strcmp(first, run_id) != 0;
            add_once(m, names.list[i]);
        }
    }
    input_files_free(&names);
    if (m->sources_n == 0) {
        complain("top: cannot read '%s': this folder contains no database (*.db); give the file that gpuspy wrote",
                 folder);
    } else if (several) {
        complain("top: cannot read '%s': it contains several runs; give the database of one", folder);
    }
    return m->sources_n == 0 || several ? EXIT_INPUT : EXIT_YES;
}

static int add_operand(struct top_model *m, const char *word)
{
    struct stat st;
    const bool digits = *word && word[strspn(word, "0123456789")] == 0;
    if (stat(word, &st) != 0 && digits && strlen(word) <= 9) return find_pid(m, (uint32_t)strtoul(word, NULL, 10));
    if (stat(word, &st) == 0 && S_ISDIR(st.st_mode)) return add_top_folder(m, word);
    add_once(m, word);
    add_siblings(m, word);
    return EXIT_YES;
}

/* How much of each interval the search for freed memory may take. */
static int64_t draw_budget_ns(double interval_s)
{
    return (int64_t)(interval_s * 1e9 * 0.012);
}

static int print_unreadable(const struct top_view *v)
{
    const struct top_model *m = v->tables->model;
    if (m->sources_n == 0) {
        return complain_with(
            EXIT_NO, v->users.n
                         ? "top: no program is being recorded; record one that runs already with: gpuspy attach PID"
                         : "top: no program is being recorded; start one with: gpuspy run -- COMMAND, or give a "
                           "recording");
    }
    const struct top_source *s = &m->sources[0];
    if (s->loaded || s->state == TOP_WAITING) return EXIT_YES;
    if (s->state == TOP_DELETED) {
        complain("top: cannot read '%s': the file does not exist; record a run with: gpuspy run -- COMMAND",
                 s->db.path);
    } else {
        complain("top: %s", s->why);
    }
    return EXIT_INPUT;
}

static void print_top(struct top_view *v, const struct settings *s)
{
    if (s->json)
        top_view_json(v, s->top ? (size_t)s->top : ROWS_JSON, stdout);
    else
        top_view_print(v, stdout);
    fflush(stdout);
}

/* Meanwhile older rows are read. */
static void wait_until(struct top_model *m, int64_t budget_ns, int64_t when)
{
    while (top_model_unread(m) && clock_now_ns() < when) top_model_update(m, budget_ns);
    struct timespec t = {when / 1000000000, when % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Prints once, or once per interval. */
static int print_reads(struct top_view *v, const struct settings *s)
{
    struct top_model *m = v->tables->model;
    int left = s->count ? s->count : s->interval && !s->once ? -1 : 1;
    int64_t next = clock_now_ns();
    bool going = true;
    for (bool first = true; left != 0 && going && !ferror(stdout); first = false) {
        if (!first) {
            next += (int64_t)(v->interval_s * 1e9);
            wait_until(m, draw_budget_ns(v->interval_s), next);
            going = top_model_update(m, draw_budget_ns(v->interval_s));
            top_users_update(&v->users, 0);
            if (!s->json) putchar('\n');
        } else {
            going = m->sources_n && (m->sources[0].state == TOP_RECORDING || m->sources[0].state == TOP_WAITING);
            for (size_t i = 1; i < m->sources_n; i++) going = going || m->sources[i].state == TOP_RECORDING;
        }
        print_top(v, s);
        left -= left > 0;
    }
    return ferror(stdout) ? EXIT_INPUT : EXIT_YES;
}

static void next_process(struct top_view *v, int step)
{
    const struct top_model *m = v->tables->model;
    /* all, then each process's devices; if there are several processes, first all of the process together */
    struct {
        int source, device;
    } stops[256];
    size_t n = 0, at = 0;
    stops[n].source = TOP_ALL;
    stops[n++].device = TOP_ALL;
    for (size_t i = 0; i < m->sources_n; i++) {
        const struct top_source *s = &m->sources[i];
        if (m->sources_n > 1 && n < 256) {
            stops[n].source = (int)i;
            stops[n++].device = TOP_ALL;
        }
        for (size_t d = 0; s->devices_n > 1 && d < s->devices_n && n < 256; d++) {
            stops[n].source = (int)i;
            stops[n++].device = s->devices[d].device;
        }
    }
    for (size_t i = 0; i < n; i++)
        at = stops[i].source == v->choice.source && stops[i].device == v->choice.device ? i : at;
    at = (at + n + (size_t)(n > 1 ? step + (int)n : 0)) % n;
    v->choice.source = stops[at].source;
    v->choice.device = stops[at].device;
}

static void type_key(struct top_view *v, int key)
{
    size_t n = strlen(v->choice.filter);
    if (key == KEY_ENTER || key == KEY_ESCAPE) {
        v->typing = false;
        v->choice.filter[key == KEY_ESCAPE ? 0 : n] = 0;
    } else if (key == KEY_BACK && n) {
        while (n > 1 && ((unsigned char)v->choice.filter[n - 1] & 0xc0) == 0x80) n--;
        v->choice.filter[n - 1] = 0;
    } else if (key >= 32 && key < 256 && key != KEY_BACK && n + 1 < sizeof v->choice.filter) {
        v->choice.filter[n] = (char)key;
        v->choice.filter[n + 1] = 0;
    }
}

static void set_table(struct top_view *v, int table)
{
    v->choice.table = (enum top_table)((table + TOP_TABLES) % TOP_TABLES);
    v->scroll = 0;
}

static void set_sort(struct top_view *v, enum top_sort sort)
{
    v->choice.sort = sort;
    v->scroll = 0;
}

static void scroll_rows(struct top_view *v, int rows)
{
    v->scroll = v->scroll + rows < 0 ? 0 : v->scroll + rows;
}

static void next_layer(struct top_view *v)
{
    static const int layers[] = {TOP_LAYER_AUTO, TOP_DEVICE, TOP_PINNED, TOP_HOST};
    size_t i = 0;
    while (i < 3 && layers[i] != v->choice.layer) i++;
    v->choice.layer = layers[(i + 1) % 4];
}

static void draw_top(struct top_view *v);

/* Shows the recording as soon as it exists. */
static void attach_chosen(struct top_view *v)
{
    char database[PATH_MAX];
    const pid_t pid = (pid_t)v->users.at[v->chosen].pid;
    snprintf(v->notice, sizeof v->notice, "attaching to process %d …", (int)pid);
    draw_top(v);
    if (command_attach_process(pid, database, v->notice, sizeof v->notice)) {
        add_once(v->tables->model, database);
        top_model_update(v->tables->model, 0);
        v->lists_users = false;
    }
}

/* False: the list does not use this key. */
static bool press_in_list(struct top_view *v, int key)
{
    switch (key) {
    case 'a':
        if (v->chosen < v->users.n) attach_chosen(v);
        break;
    case KEY_UP:
    case 'k': v->chosen -= v->chosen > 0; break;
    case KEY_DOWN:
    case 'j': v->chosen += v->chosen + 1 < v->users.n; break;
    case KEY_ESCAPE: v->lists_users = v->tables->model->sources_n == 0; break;
    default: return false;
    }
    return true;
}

/* False: quit. */
static bool press_key(struct top_view *v, int key)
{
    if (key == KEY_QUIT) return false;
    if (key != KEY_NONE && key != KEY_RESIZE) v->notice[0] = 0;
    if (v->typing) {
        type_key(v, key);
        v->scroll = 0;
        return true;
    }
    if (v->lists_users && press_in_list(v, key)) return true;
    switch (key) {
    case 'q':
    case 3: return false;
    case ' ': v->paused = !v->paused; break;
    case '?':
    case 'h': v->help = !v->help; break;
    case '1':
    case '2':
    case '3':
    case '4': set_table(v, key - '1'); break;
    case 't': set_table(v, (int)v->choice.table + 1); break;
    case 's': set_sort(v, (enum top_sort)((v->choice.sort + 1) % TOP_SORTS)); break;
    case 'b': set_sort(v, TOP_BY_SIZE); break;
    case 'c': set_sort(v, TOP_BY_COUNT); break;
    case 'g': set_sort(v, TOP_BY_GROWTH); break;
    case 'r': set_sort(v, TOP_BY_RATE); break;
    case 'l': set_sort(v, TOP_BY_LAST); break;
    case 'n': v->choice.native = !v->choice.native; break;
    case 'm': next_layer(v); break;
    case '/': v->typing = true; break;
    case 'a': v->lists_users = true; break;
    case KEY_ESCAPE:
        v->choice.filter[0] = 0;
        v->help = false;
        break;
    case KEY_TAB: next_process(v, 1); break;
    case KEY_BACK_TAB: next_process(v, -1); break;
    case KEY_UP:
    case 'k': scroll_rows(v, -1); break;
    case KEY_DOWN:
    case 'j': scroll_rows(v, 1); break;
    case KEY_PAGE_UP: scroll_rows(v, -v->table_rows); break;
    case KEY_PAGE_DOWN: scroll_rows(v, v->table_rows); break;
    case KEY_HOME: v->scroll = 0; break;
    case KEY_END: v->scroll = INT32_MAX / 2; break;
    default: break;
    }
    return true;
}

static void draw_top(struct top_view *v)
{
    char *text = NULL;
    size_t n = 0;
    FILE *out = arena_stream(&text, &n);
    top_screen_size(&v->columns, &v->rows);
    v->columns = v->columns < 20 ? 20 : v->columns;
    top_view_print(v, out);
    fclose(out);
    top_screen_draw(text);
    free(text);
}

static int watch_top(struct top_view *v, const struct settings *s)
{
    struct top_model *m = v->tables->model;
    int left = s->count ? s->count - 1 : -1;
    int64_t next = clock_now_ns();
    v->live = true;
    v->lists_users = m->sources_n == 0;
    for (bool on = true; on;) {
        top_users_update(&v->users, 0);
        v->chosen = v->chosen < v->users.n ? v->chosen : 0;
        draw_top(v);
        next += (int64_t)(v->interval_s * 1e9);
        next = next < clock_now_ns() ? clock_now_ns() : next;
        for (int64_t wait; on && (wait = next - clock_now_ns()) > 0;) {
            const bool reads = top_model_unread(m) && !v->paused;
            int key = top_screen_key(reads ? 0 : (int)(wait / 1000000) + 1);
            on = press_key(v, key);
            if (on && key != KEY_NONE) draw_top(v);
            if (on && reads) top_model_update(m, draw_budget_ns(v->interval_s));
        }
        if (on && left-- == 0) break;
        if (on && !v->paused) top_model_update(m, draw_budget_ns(v->interval_s));
    }
    top_screen_close();
    return EXIT_YES;
}

static bool take_top_interval(const char *text, double *out)
{
    *out = 1;
    const char *end = text ? units_read_decimal(text, out) : "";
    if (!end || *end || *out < 0.1 || *out > 86400)
        return complain_with(false, "top: --interval: '%s' is not a number of seconds from 0.1 to 86400", text);
    return true;
}

static int run_top(struct top_view *v, const struct settings *s)
{
    bool screen = !s->once && !s->json && isatty(STDOUT_FILENO);
    top_model_sort(v->tables->model);
    if (screen || (s->interval && !s->once))
        top_model_update(v->tables->model, 0);
    else
        top_model_update_whole(v->tables->model, ONCE_S * 1000000000ll);
    top_users_update(&v->users, USERS_MS);
    const int code = screen && v->users.n ? EXIT_YES : print_unreadable(v);
    if (code == EXIT_YES && screen && top_screen_open()) return watch_top(v, s);
    const int printed = code == EXIT_YES || (code == EXIT_NO && v->users.n) ? print_reads(v, s) : EXIT_YES;
    return printed > code ? printed : code;
}

int command_top(const struct command *self, int argc, char **argv)
{
    struct settings s = {.device = TOP_ALL};
    struct top_view v = {.choice = {.source = TOP_ALL, .layer = TOP_LAYER_AUTO}};
    int operands = options_parse(self, argc, argv, &s);

    if (operands < 0) return operands == OPTIONS_HELP ? EXIT_YES : EXIT_USAGE;
    if (operands > 1) return complain_with(EXIT_USAGE, "top: give one recording, or the folder of a run");
    if (!take_top_interval(s.interval, &v.interval_s)) return EXIT_USAGE;
    if (!input_check_paths("top", argv, (size_t)operands)) return EXIT_INPUT;
    struct symbolizer *symbols = symbolizer_new();
    struct top_tables tables = {.model = top_model_new(symbols ? symbolizer_find : NULL, symbols)};
    v.tables = &tables;
    v.term = terminal_of(stdout);
    v.columns = v.term.width;
    v.choice.device = s.device;
    v.choice.native = s.native;
    v.choice.sort = s.sort ? (enum top_sort)options_word_index(s.sort, "bytes|count|growth|rate|last") : 0;
    v.choice.table = s.table ? (enum top_table)options_word_index(s.table, "lines|functions|syncs|copies") : 0;
    int code = operands ? add_operand(tables.model, argv[0]) : find_only(tables.model);
    if (code == EXIT_YES) code = run_top(&v, &s);
    top_users_free(&v.users);
    top_tables_free(&tables);
    top_model_free(tables.model);
    symbolizer_free(symbols);
    return code;
}
