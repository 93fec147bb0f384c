/* A check for other programs: JSON, JUnit's XML, GitHub's annotations. */
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/base/json_out.h"
#include "analyzer/base/arena.h"
#include "analyzer/check/check.h"
#include "analyzer/draw/json_site.h"
#include "analyzer/base/term.h"
#include "analyzer/base/text.h"

static void check_line_json(json_t *o, const struct check_line *l)
{
    set_json(o, "file", json_out_string(l->file));
    set_json(o, "line", l->line > 0 ? json_integer(l->line) : NULL);
    set_json(o, "function", json_out_string(l->function));
    set_json(o, "place", json_out_string(l->place));
    set_real(o, "amount", l->amount);
    set_json(o, "note", json_out_string(l->note));
}

static const char *const units[] = {
    [UNIT_EVENTS] = "count", [UNIT_FLAG] = "count",           [UNIT_LEAKS] = "bytes",
    [UNIT_COUNT] = "count",  [UNIT_BYTES] = "bytes",          [UNIT_BYTES_STEP] = "bytes_per_step",
    [UNIT_PEAK] = "bytes",   [UNIT_NUMBER_STEP] = "per_step", [UNIT_SHARE] = "share",
    [UNIT_BUDGET] = "bytes",
};

bool check_view_json(struct check *c, FILE *out)
{
    json_t *root = json_object(), *list = json_array();
    EACH (r, c->results, c->n) {
        json_t *o = json_add_object(list);
        set_json(o, "check", json_out_string(check_gate_name(r->gate)));
        set_json(o, "status", json_out_string(check_status_word(r->status)));
        set_json(o, "what", json_out_string(r->what));
        set_json(o, "scope", json_out_string(r->scope));
        set_json(o, "unit", json_out_string(units[check_gates[r->gate].unit]));
        SET_MEMBERS(o, r, value, limit);
        set_real(o, "over", r->status == CHECK_FAILED ? r->value - r->limit : (double)NAN);
        set_json(o, "database", json_out_string(run_shown_path(r->path)));
        set_json(o, "pid", json_integer(r->pid));
        set_json(o, "rank", r->rank >= 0 ? json_integer(r->rank) : NULL);
        set_json(o, "device", r->device >= 0 ? json_integer(r->device) : NULL);
        set_json(o, "text", json_out_string(check_sentence(c, r)));
        set_json(o, "why", json_out_string(r->why));
        set_json(o, "lines", LIST(r->lines, r->lines_n, check_line_json));
        set_json(o, "lines_total", json_integer((json_int_t)r->lines_total));
    }
    set_json(root, "schema", json_integer(1));
    set_json(root, "view", json_out_string("check"));
    set_json(root, "command", json_out_string(c->command));
    set_bool(root, "ok", !c->failed);
    set_json(root, "source", json_out_string(c->source));
    set_json(root, "processes", json_integer((json_int_t)c->processes));
    set_json(root, "checks", list);
    return json_out_tree(out, root, JSON_INDENT(2));
}

/* As an attribute or as text; characters that XML cannot represent become '?'. */
static void print_xml_text(FILE *out, const char *s)
{
    size_t size = strlen(s) + 1;
    char *clean = arena_realloc(NULL, size, 1);
    for (const char *p = terminal_clean(clean, size, s, true); *p; p++) {
        const char *as = *p == '&' ? "&amp;" : *p == '<' ? "&lt;" : *p == '>' ? "&gt;" : *p == '"' ? "&quot;" : NULL;
        bool half = !as && (unsigned char)p[0] == 0xef && (unsigned char)p[1] == 0xbf && (unsigned char)p[2] >= 0xbe;
        if (half) { /* U+FFFE, U+FFFF */
            fputc('?', out);
            p += 2;
        } else if (as) {
            fputs(as, out);
        } else {
            fputc(*p, out);
        }
    }
    free(clean);
}

/* Each result is a test. Several of one gate are distinguished by process and device. */
static void test_name(const struct check_result *r, FILE *out)
{
    char who[96];
    check_who_text(r, who, sizeof who);
    print_xml_text(out, check_gate_name(r->gate));
    if (*who || r->what) {
        fprintf(out, " (");
        print_xml_text(out, r->what ? r->what : "");
        fprintf(out, "%s%s)", r->what && *who ? ", " : "", who);
    }
}

static void test_case(struct check *c, const struct check_result *r, FILE *out)
{
    char amount[GATE_VALUE];
    fputs("    <testcase classname=\"gpuspy.check\" name=\"", out);
    test_name(r, out);
    if (r->status == CHECK_OK) {
        fputs("\" time=\"0\"/>\n", out);
        return;
    }
    fprintf(out, "\" time=\"0\">\n      <failure type=\"%s\" message=\"", check_status_word(r->status));
    print_xml_text(out, check_sentence(c, r));
    fputs("\">", out);
    print_xml_text(out, check_sentence(c, r));
    EACH_IN (l, r->lines) {
        fputc('\n', out);
        print_xml_text(out, l->file && l->line > 0 ? l->file : l->place);
        if (l->file && l->line > 0) {
            fprintf(out, ":%d: ", l->line);
            print_xml_text(out, l->function ? l->function : "");
        }
        if (!isnan(l->amount)) fprintf(out, ": %s", check_gate_value(&check_gates[r->gate], l->amount, amount));
        if (l->note) {
            fputs(": ", out);
            print_xml_text(out, l->note);
        }
    }
    fputs("</failure>\n    </testcase>\n", out);
}

bool check_view_junit(struct check *c, FILE *out)
{
    size_t failures = 0;
    char when[32] = "1970-01-01T00:00:00", host[256] = "localhost";
    time_t now = time(NULL);
    struct tm t;
    for (size_t i = 0; i < c->n; i++) failures += c->results[i].status != CHECK_OK;
    if (localtime_r(&now, &t)) strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &t);
    if (gethostname(host, sizeof host - 1) != 0 || !*host) snprintf(host, sizeof host, "localhost");
    fprintf(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"gpuspy check ");
    print_xml_text(out, c->source);
    fprintf(out, "\" package=\"gpuspy\" id=\"0\" timestamp=\"%s\" hostname=\"", when);
    print_xml_text(out, host);
    fprintf(out, "\" tests=\"%zu\" failures=\"%zu\" errors=\"0\" time=\"0\">\n    <properties/>\n", c->n, failures);
    for (size_t i = 0; i < c->n; i++) test_case(c, &c->results[i], out);
    fputs("    <system-out/>\n    <system-err/>\n  </testsuite>\n</testsuites>\n", out);
    return !ferror(out);
}

/* A workflow command ends with its line; in a property ',' and ':' would also end the value. */
static void print_annotation_text(FILE *out, const char *s, bool property)
{
    for (; *s; s++)
        if (*s == '%' || *s == '\r' || *s == '\n' || (property && (*s == ':' || *s == ',')))
            fprintf(out, "%%%02X", (unsigned)(unsigned char)*s);
        else if ((unsigned char)*s < 0x20 || *s == 0x7f)
            fputc('?', out);
        else
            fputc(*s, out);
}

/* Relative to the checkout, as GitHub shows lines of a change; NULL: it is elsewhere. */
static const char *in_checkout(const char *file, const char *cwd, char *out, size_t size)
{
    const char *root = getenv("GITHUB_WORKSPACE");
    char here[PATH_MAX], whole[2 * PATH_MAX];
    if (!root || !*root) root = getcwd(here, sizeof here);
    if (*file != '/') {
        snprintf(whole, sizeof whole, "%s/%s", cwd && *cwd ? cwd : ".", strncmp(file, "./", 2) == 0 ? file + 2 : file);
        file = cwd && *cwd ? whole : file;
    }
    size_t n = root ? strlen(root) : 0;
    while (n > 1 && root[n - 1] == '/') n--;
    if (*file == '/' && (!n || strncmp(file, root, n) != 0 || file[n] != '/')) return NULL;
    text_put(out, size, "%s", *file == '/' ? file + n + 1 : file);
    return out;
}

static void print_annotation(struct check *c, const struct check_result *r, const struct check_line *l, FILE *out)
{
    char path[PATH_MAX], amount[GATE_VALUE];
    const char *file = l && l->file && l->line > 0 ? in_checkout(l->file, r->cwd, path, sizeof path) : NULL;
    fputs("::error ", out);
    if (file) {
        fputs("file=", out);
        print_annotation_text(out, file, true);
        fprintf(out, ",line=%d,", l->line);
    }
    fputs("title=", out);
    print_annotation_text(out, "gpuspy check: ", true);
    print_annotation_text(out, check_gate_name(r->gate), true);
    fputs("::", out);
    print_annotation_text(out, check_sentence(c, r), false);
    if (l) {
        fputs("%0A", out);
        print_annotation_text(out, l->place, false);
        if (!isnan(l->amount)) {
            fprintf(out, ": ");
            print_annotation_text(out, check_gate_value(&check_gates[r->gate], l->amount, amount), false);
        }
        if (l->note) {
            fputs(": ", out);
            print_annotation_text(out, l->note, false);
        }
    }
    fputc('\n', out);
}

/* GitHub shows ten errors per step: each result lists its largest lines. */
void check_view_github(struct check *c, FILE *out)
{
    enum { LINES = 3 };
    EACH (r, c->results, c->n) {
        if (r->status == CHECK_OK) continue;
        if (!r->lines_n) print_annotation(c, r, NULL, out);
        for (size_t k = 0; k < r->lines_n && k < LINES; k++) print_annotation(c, r, &r->lines[k], out);
    }
}
