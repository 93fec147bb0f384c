/* Members that several kinds of events have. */
#include "analyzer/export/export_chrome.h"

#include "analyzer/base/json_out.h"
#include "analyzer/base/term.h"

void export_chrome_us(FILE *out, int64_t ns)
{
    ns = ns < 0 ? 0 : ns;
    fprintf(out, "%lld.%03lld", (long long)(ns / 1000), (long long)(ns % 1000));
}

void export_chrome_event(struct export_chrome *c, char phase, uint32_t process, int64_t time_ns)
{
    fprintf(c->out, "%s{\"ph\":\"%c\",\"pid\":%lld", c->begun ? ",\n" : "", phase, (long long)c->pid[process]);
    c->begun = true;
    if (time_ns != RUN_UNKNOWN) {
        fputs(",\"ts\":", c->out);
        export_chrome_us(c->out, arena_add_capped(time_ns, c->offset_ns[process]));
    }
}

static int64_t tid_of(const struct export_chrome *c, uint32_t process, uint32_t thread)
{
    size_t n;
    const struct run_thread *threads = run_threads(c->e->run, &n);
    uint32_t at = map_get(&c->tids, (uint64_t)process << 32 | thread);
    return at != MAP_NEW && at <= n && threads[at - 1].tid > 0 ? threads[at - 1].tid : thread;
}

void export_chrome_thread(struct export_chrome *c, uint32_t process, uint32_t thread)
{
    fprintf(c->out, ",\"tid\":%lld", (long long)tid_of(c, process, thread));
}

void export_chrome_text(struct export_chrome *c, const char *key, const char *text)
{
    char clean[1024];
    fprintf(c->out, ",\"%s\":", key);
    json_out_text(c->out, text ? terminal_clean(clean, sizeof clean, text, true) : NULL);
}
