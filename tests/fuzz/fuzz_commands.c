/* Every command that reads a database, on a changed or damaged one beside a valid one. The command must return one of
 * its exit codes, its JSON must be valid, and its text must contain no escape sequences. */
#include "tests/fuzz/databases.h"

#include <jansson.h>
#include <unistd.h>
#include "analyzer/command/commands.h"
#include "analyzer/command/help.h"
#include "tests/unit/events.h"

/* A command and its arguments, separated by bars; @ is the changed database, = the valid one, > a file to write. */
static const char *const lines[] = {
    "diff|@|=",
    "diff|=|@",
    "diff|--json|@|=",
    "diff|--by|category|--what|end|@|=",
    "diff|--by|owner|=|@",
    "diff|--by|file|--what|waits|--json|@|=",
    "diff|--what|copies|--min|1%|=|@",
    "diff|--what|oom|--by|function|@|=",
    "diff|--what|allocated|--min|0%|--top|3|@|@",
    "diff|--layer|device|--device|0|@|=",
    "sql|@|SELECT * FROM leaks LIMIT 20; SELECT * FROM sync_sites LIMIT 20; SELECT * FROM copy_sites LIMIT 20",
    "sql|--json|@|SELECT *, bytes(bytes), site(alloc_stack_id), stack_text(alloc_stack_id) FROM allocations LIMIT 30",
    "sql|--csv|@|SELECT *, seconds(start_ns), site(stack_id) FROM copies LIMIT 30; SELECT * FROM mappings LIMIT 9",
    "sql|--json|@|SELECT *, seconds(blocked_ns), stack_text(stack_id) FROM syncs LIMIT 30",
    ("sql|@|SELECT *, bytes(requested_bytes) FROM ooms LIMIT 30; SELECT * FROM marks LIMIT 30; SELECT * FROM calls "
     "LIMIT 9"),
    "sql|--json|@|SELECT * FROM frames LIMIT 30",
    "sql|@|SELECT * FROM process; SELECT * FROM device; SELECT * FROM sample",
    "whatif|@",
    "whatif|--json|--set|expandable_segments:True,max_split_size_mb:21|--limit|1GiB|@",
    "whatif|--json|--empty-cache-every|1|--set|per_process_memory_fraction:0.5,garbage_collection_threshold:0.3|@",
    "whatif|--without|train.py:3|@",
    "top|--once|@",
    "top|--json|@",
    "top|--once|--native|--table|functions|--sort|growth|@",
    "top|--once|--table|syncs|@",
    "top|--once|--table|copies|--sort|rate|@",
    "tree|@",
    "tree|--json|--native|@",
    "tree|--what|waits|@",
    "tree|--at|0.3|@",
    "flame|@",
    "flame|--what|leaks|--json|@",
    "table|@",
    "table|--by|module|--native|@",
    "table|--by|category|--json|@",
    "table|--by|owner|@",
    "table|--by|file|--what|allocated|--sort|each|@",
    "stats|@",
    "stats|--json|@",
    "leaks|@",
    "leaks|--json|@",
    "timeline|@",
    "timeline|--json|@",
    "report|--json|@",
    "report|--html|>|@",
    "check|--max-peak|1KiB|--no-leaks|--no-oom|--json|@",
    "export|-f|torch-snapshot|-o|>|@",
    "export|-f|chrome-trace|-o|>|@",
    "export|-f|folded|--native|-o|>|@",
    "export|-f|folded|--what|waits|-o|>|@",
    "export|-f|speedscope|-o|>|@",
    "export|-f|pprof|-o|>|@",
    "export|-f|pprof|--what|copies|-o|>|@",
    "export|-f|openmetrics|-o|>|@",
    "export|-f|csv|--tables|sites|-o|-|@",
    "export|-f|csv|--tables|timeline|-o|-|@",
    "export|-f|ndjson|-o|/|@",
    "symbolize|-o|>|@",
};
enum { LINES = sizeof lines / sizeof *lines, WORDS = 16 };

struct line {
    char text[512], place[4][320];
    char *words[WORDS];
    int n;
};

static void split(const char *text, struct line *l)
{
    static const struct {
        const char *sign, *name;
    } places[] = {{"@", "run.db"}, {"=", "other.db"}, {">", "out"}, {"/", "folder"}};
    snprintf(l->text, sizeof l->text, "%s", text);
    for (char *word = strtok(l->text, "|"); word && l->n < WORDS - 1; word = strtok(NULL, "|")) {
        for (size_t i = 0; i < 4; i++) {
            if (!strcmp(word, places[i].sign)) {
                word = l->place[i];
                snprintf(l->place[i], sizeof l->place[i], "%s/%s", fuzz_folder(), places[i].name);
            }
        }
        l->words[l->n++] = word;
    }
}

static bool has(const struct line *l, const char *word)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->words[i], word)) return true;
    return false;
}

static void read_json(const char *text, size_t size, const char *line)
{
    json_error_t e;
    for (size_t at = 0; at < size;) {
        json_t *json = json_loadb(text + at, size - at, JSON_DECODE_ANY | JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &e);
        FUZZ_CHECK(json, "%s: %s at %d", line, e.text, e.position);
        json_decref(json);
        at += (size_t)e.position;
        at += strspn(text + at, " \n");
    }
}

static void command(const char *text)
{
    struct line l = {.n = 0};
    char *out = NULL, *err = NULL;
    size_t out_n = 0, err_n = 0;
    FILE *const was[2] = {stdout, stderr};
    split(text, &l);
    const struct command *c = command_find(commands, l.words[0]);
    FUZZ_CHECK(c, "%s", l.words[0]);
    stdout = open_memstream(&out, &out_n);
    stderr = open_memstream(&err, &err_n);
    const int code = c->run(c, l.n - 1, l.words + 1);
    fclose(stdout);
    fclose(stderr);
    stdout = was[0];
    stderr = was[1];
    FUZZ_CHECK(code == EXIT_YES || code == EXIT_NO || code == EXIT_INPUT ||
                   (code == EXIT_USAGE && (!strcmp(l.words[0], "sql") || !strcmp(l.words[0], "whatif"))),
               "%s: %d: %s", text, code, err);
    FUZZ_CHECK(code != EXIT_INPUT || err_n, "%s: no reason", text);
    if (has(&l, "--json") && code < EXIT_USAGE) read_json(out, out_n, text);
    FUZZ_CHECK(!memchr(out, 27, out_n) && !memchr(err, 27, err_n), "%s: an escape: %s%s", text, out, err);
    free(out);
    free(err);
}

static void sound(const char *path, unsigned base)
{
    size_t bytes;
    const void *begin = fuzz_base(base, &bytes);
    fuzz_write(path, begin, bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[300], other[300], out[300];
    struct fuzz_bytes b = {data, size};
    const uint8_t which = fuzz_u8(&b), base = fuzz_u8(&b);
    snprintf(path, sizeof path, "%s/run.db", fuzz_folder());
    snprintf(other, sizeof other, "%s/other.db", fuzz_folder());
    snprintf(out, sizeof out, "%s/out", fuzz_folder());
    fuzz_unlink_database(path);
    fuzz_unlink_database(other);
    unlink(out);
    sound(path, base);
    sound(other, base >> 1);
    fuzz_edit(&b, path);
    command(lines[which % LINES]);
    return 0;
}

void fuzz_seeds(fuzz_put put)
{
    uint64_t random = 31;
    for (size_t i = 0; i < 2 * LINES; i++) {
        uint8_t bytes[400];
        const size_t n = i < LINES ? 2 : 10 + 3 * i;
        for (size_t k = 0; k < n; k++)
            bytes[k] = (uint8_t)(ev_below(&random, 3) ? ev_below(&random, 48) : ev_below(&random, 256));
        bytes[0] = (uint8_t)(i % LINES);
        bytes[1] = (uint8_t)(i % 4);
        put(bytes, n);
    }
}
