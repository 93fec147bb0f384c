/* Parses limits, from the command line and from a file. */
#include "analyzer/check/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/text.h"
#include "analyzer/base/term.h"
#include "analyzer/base/units.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/model/model.h"

static bool plain_number(const char *text, double *out)
{
    const char *rest = units_read_decimal(text, out);
    return rest && !*rest && strlen(text) <= 15;
}

static bool parse_share(const char *text, double *out)
{
    char number[32];
    size_t n = strlen(text);
    if (n < 2 || n >= sizeof number || text[n - 1] != '%') return false;
    snprintf(number, sizeof number, "%.*s", (int)(n - 1), text);
    if (n > 2 && number[n - 2] == ' ') number[n - 2] = 0;
    bool ok = plain_number(number, out);
    *out /= 100;
    return ok;
}

static void refuse_limit(char why[LIMIT_WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void refuse_limit(char why[LIMIT_WHY], const char *format, ...)
{
    TEXT_FORMAT(why, LIMIT_WHY, format);
}

/* "1MiB/step" without the step. False: too long to be a figure. */
static bool without_step(const char *text, char *out, size_t size)
{
    size_t n = strlen(text), step = strlen("/step");
    if (n >= step && strcmp(text + n - step, "/step") == 0) n -= step;
    if (n >= size) return false;
    memcpy(out, text, n);
    out[n] = 0;
    return true;
}

static bool parse_limit_bytes(const char *text, const char *like, double *out, char why[LIMIT_WHY])
{
    char reason[UNITS_WHY];
    uint64_t bytes;
    if (!units_parse_bytes(text, &bytes, reason)) {
        refuse_limit(why, "%s; give a size such as %s", reason, like);
        return false;
    }
    *out = (double)bytes;
    return true;
}

static bool parse_limit_value(const struct check_gate *g, const char *text, struct check_limit *out,
                              char why[LIMIT_WHY])
{
    char figure[64];
    bool per_step = g->unit == UNIT_BYTES_STEP || g->unit == UNIT_NUMBER_STEP;
    if (out->relative && g->unit != UNIT_SHARE && parse_share(text, &out->value)) {
        out->of_share = true;
        return true;
    }
    if (per_step) {
        if (!without_step(text, figure, sizeof figure)) {
            refuse_limit(why, "is not a limit; give one such as %s", g->unit == UNIT_BYTES_STEP ? "1MiB/step" : "2");
            return false;
        }
        text = figure;
    }
    if (g->unit == UNIT_BYTES || g->unit == UNIT_PEAK || g->unit == UNIT_BYTES_STEP)
        return parse_limit_bytes(text, g->unit == UNIT_BYTES_STEP ? "1MiB/step" : "10GiB", &out->value, why);
    if (g->unit == UNIT_SHARE) {
        bool ok = parse_share(text, &out->value) && out->value <= 1;
        if (!ok) refuse_limit(why, "is not a percentage; give one such as 5%%");
        return ok;
    }
    bool ok = plain_number(text, &out->value) && (g->unit != UNIT_COUNT || out->value == floor(out->value));
    if (!ok) {
        refuse_limit(why, g->unit == UNIT_COUNT ? "is not a whole number; give one such as 0 or 3"
                                                : "is not a number; give one such as 2 or 0.5");
    }
    return ok;
}

static const char budget_keys[] = "params|model|optimizer|precision|master-weights|activations|tolerance";

struct budget_text { /* the parameters as typed */
    struct estimate_settings s;
    double tolerance, activations;
};

static bool is_known_limit_word(const char *key, const char *value, const char *words, char why[LIMIT_WHY])
{
    char near[32], list[256];
    if (options_is_word(value, words)) return true;
    if (options_nearest(value, words, near, sizeof near)) {
        refuse_limit(why, "names an unknown %s '%s'; did you mean '%s'?", key, value, near);
    } else {
        options_list(words, list, sizeof list);
        refuse_limit(why, "names an unknown %s '%s'; give one of %s", key, value, list);
    }
    return false;
}

static bool budget_number(struct budget_text *b, const char *key, const char *value, char why[LIMIT_WHY])
{
    char reason[UNITS_WHY];
    bool ok;
    if (strcmp(key, "params") == 0) {
        ok = units_parse_count(value, &b->s.params, reason);
        if (ok && (b->s.params < 1 || (double)b->s.params > ESTIMATE_PARAMS_MAX)) {
            snprintf(reason, sizeof reason, "is out of range");
            ok = false;
        }
        if (!ok) refuse_limit(why, "has params=%s, which %s; give a number such as 7B, 350M or 1e9", value, reason);
        return ok;
    }
    if (strcmp(key, "activations") == 0) {
        uint64_t bytes = 0;
        ok = units_parse_bytes(value, &bytes, reason);
        b->activations = (double)bytes;
        if (!ok) refuse_limit(why, "has activations=%s, which %s; give a size such as 2GiB", value, reason);
        return ok;
    }
    ok = parse_share(value, &b->tolerance) && b->tolerance <= 10;
    if (!ok) refuse_limit(why, "has tolerance=%s, which is not a percentage; give one such as 10%%", value);
    return ok;
}

static bool budget_key(struct budget_text *b, const char *key, const char *value, char why[LIMIT_WHY])
{
    char near[32], list[256];
    if (!options_is_word(key, budget_keys)) {
        options_list(budget_keys, list, sizeof list);
        if (options_nearest(key, budget_keys, near, sizeof near))
            refuse_limit(why, "has an unknown key '%s'; did you mean '%s'?", key, near);
        else
            refuse_limit(why, "has an unknown key '%s'; give one of %s", key, list);
        return false;
    }
    if (strcmp(key, "master-weights") == 0) {
        if (value && strcmp(value, "true") != 0) {
            refuse_limit(why, "has master-weights=%s; write it without a value", value);
            return false;
        }
        b->s.master_weights = true;
        return true;
    }
    if (!value || !*value) {
        refuse_limit(why, "has '%s' without a value; write %s=...", key, key);
        return false;
    }
    if (strcmp(key, "model") == 0) {
        b->s.model = value;
        return true;
    }
    if (strcmp(key, "optimizer") == 0) {
        b->s.optimizer = value;
        return is_known_limit_word(key, value, estimate_all_optimizers, why);
    }
    if (strcmp(key, "precision") == 0) {
        b->s.precision = value;
        return is_known_limit_word(key, value, estimate_precisions, why);
    }
    return budget_number(b, key, value, why);
}

static char *trim_limit_text(char *text)
{
    text += strspn(text, " \t");
    for (size_t n = strlen(text); n && strchr(" \t", text[n - 1]); n--) text[n - 1] = 0;
    return text;
}

/* The values of --model: a name, or a path. */
static bool budget_floor_of_model(const struct budget_text *b, const struct estimate_optimizer *o,
                                  const struct estimate_precision *p, struct check_limit *out, char why[LIMIT_WHY])
{
    static const char *const before[] = {": ", "--model: "};
    char line[LIMIT_WHY];
    const char *reason = line;
    struct model m;
    int exit_code;
    complain_into(line, sizeof line);
    bool ok = model_from_name("", b->s.model, &m, &exit_code);
    complain_into(NULL, 0);
    if (ok) {
        out->budget.estimate = estimate_floor(&m, o, p, b->s.master_weights);
    } else {
        for (int i = 0; i < 2; i++)
            reason += strncmp(reason, before[i], strlen(before[i])) == 0 ? strlen(before[i]) : 0;
        refuse_limit(why, "names no model: %s", reason);
        out->unreadable = exit_code == EXIT_INPUT;
    }
    model_free(&m);
    return ok;
}

/* Checks settings that depend on each other. */
static bool budget_settled(const struct budget_text *b, struct check_limit *out, char why[LIMIT_WHY])
{
    const struct estimate_precision *p = estimate_precision(b->s.precision);
    const struct estimate_optimizer *o = estimate_any_optimizer(b->s.optimizer);
    if (!b->s.params && !b->s.model) {
        refuse_limit(why, "names no model; add params=1e9 or model=NAME");
        return false;
    }
    if (b->s.params && b->s.model) {
        refuse_limit(why, "has params and model, but '%s' already has a number of parameters; give only one of them",
                     b->s.model);
        return false;
    }
    if (b->s.params && estimate_shaped(o->name)) {
        refuse_limit(
            why,
            "names the optimizer '%s', whose states depend on the shapes of the matrices (%s); give model=, not "
            "params=",
            o->name, estimate_shaped(o->name));
        return false;
    }
    if (b->s.master_weights && p->weights >= 4) {
        refuse_limit(why, "has master-weights with precision %s, where the weights are already float32", p->name);
        return false;
    }
    out->budget = (struct check_budget_limit){.tolerance = b->tolerance, .activations = b->activations};
    if (b->s.model) return budget_floor_of_model(b, o, p, out, why);
    out->budget.estimate = estimate_training(b->s.params, o, p, b->s.master_weights);
    return true;
}

static bool budget_of(const char *text, struct check_limit *out, char why[LIMIT_WHY])
{
    enum { MOST = 1000 };
    char copy[MOST], *rest = copy, *part;
    struct budget_text b = {.s = ESTIMATE_SETTINGS_DEFAULT, .tolerance = 0.1, .activations = NAN};
    if (strlen(text) >= sizeof copy) {
        refuse_limit(why, "is too long");
        return false;
    }
    strcpy(copy, text);
    while ((part = strsep(&rest, ","))) {
        char *value = part, *key = strsep(&value, "=");
        key = trim_limit_text(key);
        value = value ? trim_limit_text(value) : NULL;
        if (!*key && !value) continue;
        if (!budget_key(&b, key, value, why)) return false;
    }
    return budget_settled(&b, out, why);
}

/* "scope:load=10GiB": the name, which may contain '='; *text moves on to the size. */
static bool parse_limit_scope(const char **text, struct check_limit *out, char why[LIMIT_WHY])
{
    static const char word[] = "scope:";
    const char *name = *text + sizeof word - 1, *equals = strrchr(*text, '=');
    if (strncmp(*text, word, sizeof word - 1) != 0) return true;
    if (!equals || equals <= name || !equals[1]) {
        refuse_limit(why, "is not a limit of a scope; give one such as scope:load=10GiB");
        return false;
    }
    out->scope = name;
    out->scope_length = (size_t)(equals - name);
    *text = equals + 1;
    out->off = strcmp(*text, "off") == 0;
    return true;
}

bool check_limit_parse(const struct check_gate *g, const char *text, struct check_limit *out, char why[LIMIT_WHY])
{
    *out = (struct check_limit){.budget = {.activations = NAN}};
    if (g->unit == UNIT_PEAK && !parse_limit_scope(&text, out, why)) return false;
    if (out->off) return true;
    if (g->unit == UNIT_BUDGET) return budget_of(text, out, why);
    out->relative = *text == '+';
    if (out->relative && check_gate_is_flag(g)) {
        refuse_limit(why, "is not a limit");
        return false;
    }
    return parse_limit_value(g, text + out->relative, out, why);
}

struct reader {
    struct check_limits *l;
    const char *name;
    size_t line;
    const char *glob; /* of the section */
    int device;
    char *error;
    size_t error_size;
};

static bool report_bad_limit(const struct reader *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool report_bad_limit(const struct reader *r, const char *format, ...)
{
    char text[LIMIT_WHY + 256];
    TEXT_FORMAT(text, sizeof text, format);
    snprintf(r->error, r->error_size, "%s:%zu: %s", r->name, r->line, text);
    return false;
}

/* Removes a comment: from a # outside of quotes. */
static void cut_comment(char *text)
{
    bool quoted = false;
    for (; *text; text++) {
        quoted ^= *text == '"';
        if (*text == '#' && !quoted) {
            *text = 0;
            return;
        }
    }
}

/* The text inside its quotes; NULL: they do not match. */
static char *unquote_text(char *text)
{
    size_t n = strlen(text);
    bool quotes = strchr(text, '"') != NULL;
    if (!quotes) return text;
    if (n < 2 || text[0] != '"' || text[n - 1] != '"' || strchr(text + 1, '"') != text + n - 1) return NULL;
    text[n - 1] = 0;
    return text + 1;
}

/* A section is for databases or for a GPU. */
static bool read_limits_section(struct reader *r, char *text)
{
    size_t n = strlen(text);
    if (text[n - 1] != ']') return report_bad_limit(r, "a section ends with ']': [small*.db] or [gpu 1]");
    text[n - 1] = 0;
    char *inside = unquote_text(trim_limit_text(text + 1));
    if (!inside || !*inside) return report_bad_limit(r, "a section names databases or a GPU: [small*.db] or [gpu 1]");
    r->glob = NULL;
    r->device = -1;
    if (strncmp(inside, "gpu", 3) == 0 && (inside[3] == ' ' || inside[3] == '\t')) {
        const char *number = inside + 3 + strspn(inside + 3, " \t");
        size_t digits = strspn(number, "0123456789");
        if (!digits || digits > 2 || number[digits] || atoi(number) > 63)
            return report_bad_limit(r, "'%s' is not a GPU; write [gpu 0] to [gpu 63]", inside);
        r->device = atoi(number);
        return true;
    }
    r->glob = arena_printf(&r->l->arena, "%s", inside);
    return true;
}

static bool parse_limit_truth(struct reader *r, const char *key, const char *value, bool *out)
{
    if (strcmp(value, "true") != 0 && strcmp(value, "false") != 0)
        return report_bad_limit(r, "'%s' is true or false, not '%s'", key, value);
    *out = value[0] == 't';
    return true;
}

/* "max-peak|…" */
static void gate_words(char *out, size_t size)
{
    size_t at = (size_t)snprintf(out, size, "allow-incomplete");
    for (size_t i = 0; i < GATES_N && at < size; i++)
        if (check_gates[i].option) at += (size_t)snprintf(out + at, size - at, "|%s", check_gates[i].option);
}

static bool unknown_key(struct reader *r, const char *key)
{
    char words[1024], near[32];
    gate_words(words, sizeof words);
    if (options_nearest(key, words, near, sizeof near))
        return report_bad_limit(r, "'%s' is unknown; did you mean '%s'?", key, near);
    return report_bad_limit(r, "'%s' is unknown; 'gpuspy check --help' lists the limits", key);
}

static bool one_limit(struct reader *r, enum check_gate_id id, const char *value)
{
    const struct check_gate *g = &check_gates[id];
    struct check_limit_entry e = {.gate = id, .glob = r->glob, .device = r->device};
    char why[LIMIT_WHY];
    if (strcmp(value, "off") == 0) {
        e.limit.off = true;
    } else if (check_gate_is_flag(g)) {
        bool on = false;
        if (!parse_limit_truth(r, g->option, value, &on)) return false;
        e.limit.off = !on;
    } else if (!check_limit_parse(g, value, &e.limit, why)) {
        r->l->unreadable = e.limit.unreadable;
        return report_bad_limit(r, "%s: '%s' %s", g->option, value, why);
    }
    check_limits_add(r->l, &e);
    return true;
}

static bool read_limits_assignment(struct reader *r, char *text)
{
    char *equals = strchr(text, '=');
    if (!equals) return report_bad_limit(r, "'%s' is not a setting; write: max-peak = 10GiB", text);
    *equals = 0;
    char *key = trim_limit_text(text), *value = unquote_text(trim_limit_text(equals + 1));
    if (!value || !*value)
        return report_bad_limit(r, value ? "'%s' has no value" : "the quotes of '%s' do not match", key);
    if (strcmp(key, "allow-incomplete") == 0) {
        if (r->glob || r->device >= 0)
            return report_bad_limit(r, "'%s' applies to all sections; write it before the first one", key);
        return parse_limit_truth(r, key, value, &r->l->allow_incomplete);
    }
    for (size_t i = 0; i < GATES_N; i++)
        if (check_gates[i].option && strcmp(check_gates[i].option, key) == 0)
            return one_limit(r, (enum check_gate_id)i, value);
    return unknown_key(r, key);
}

static bool read_limits_line(struct reader *r, char *line)
{
    cut_comment(line);
    char *text = trim_limit_text(line);
    if (!*text) return true;
    return *text == '[' ? read_limits_section(r, text) : read_limits_assignment(r, text);
}

bool check_limits_read(struct check_limits *l, const char *text, size_t size, const char *name, char *error,
                       size_t error_size)
{
    enum { MOST = 2000 };
    struct reader r = {l, name, 0, NULL, -1, error, error_size};
    const char *end = text + size;
    if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) text += 3;
    while (text < end) {
        char line[MOST];
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        size_t n = (size_t)((stop ? stop : end) - text);
        r.line++;
        if (n >= sizeof line || memchr(text, 0, n))
            return report_bad_limit(&r, n >= sizeof line ? "the line is too long" : "this is not a text file");
        memcpy(line, text, n);
        line[n - (n && text[n - 1] == '\r')] = 0;
        if (!read_limits_line(&r, line)) return false;
        text = stop ? stop + 1 : end;
    }
    return true;
}
