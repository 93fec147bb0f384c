/* The peak of each series while a range with a certain name is open, on any thread. Keeps the figures of ranges whose
 * rows a bounded recording removes; analyzer/question/scope.c computes the same from rows. */
#include "schema/store_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Turns "step 12" into "step #", in place, and returns the new length. */
static size_t fold_digits(char *text, size_t length)
{
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (is_digit(text[i]) && n && text[n - 1] == '#') continue;
        text[n++] = is_digit(text[i]) ? '#' : text[i];
    }
    return n;
}

static struct gs_content key_of(const char *domain, size_t domain_length, const char *name, size_t name_length)
{
    const struct gs_content of_domain = gs_content_hash((struct gs_content){domain_length, 7}, domain, domain_length);
    return gs_content_hash(of_domain, name, name_length);
}

/* Returns its number, from 1; 0: out of memory. */
static uint32_t add_scope(struct gs_scopes *c, struct gs_content key, const char *domain, size_t domain_length,
                          const char *name, size_t name_length)
{
    struct gs_scope *new = GS_ARRAY_ADD(&c->list);
    if (!new) return 0;
    *new = (struct gs_scope){.domain = strndup(domain, domain_length), .name = strndup(name, name_length)};
    const uint32_t number = (uint32_t)c->list.count;
    if (new->domain &&new->name && gs_id_add(&c->index, key, number)) return number;
    free(new->domain);
    free(new->name);
    c->list.count--;
    return 0;
}

/* After GS_SCOPES names, names that differ only in their numbers become one; after twice as many, new ones are left
 * out. */
static uint32_t find_scope(struct gs_scopes *c, const char *domain, size_t domain_length, const char *name,
                           size_t name_length)
{
    char folded[256];
    struct gs_content key = key_of(domain, domain_length, name, name_length);
    uint32_t number = gs_id_find(&c->index, key);
    if (!number && c->list.count >= GS_SCOPES) {
        name_length = name_length < sizeof folded ? name_length : sizeof folded - 1;
        memcpy(folded, name, name_length);
        name = folded;
        name_length = fold_digits(folded, name_length);
        key = key_of(domain, domain_length, name, name_length);
        number = gs_id_find(&c->index, key);
    }
    if (!number && c->list.count < 2 * GS_SCOPES) number = add_scope(c, key, domain, domain_length, name, name_length);
    c->left_out += !number;
    return number;
}

/* NULL: out of memory. */
static struct gs_scope_peak *peak_of(struct gs_scope *scope, unsigned series)
{
    for (size_t i = 0; i < scope->peaks.count; i++)
        if (scope->peaks.at[i].series == series) return &scope->peaks.at[i];
    struct gs_scope_peak *new = GS_ARRAY_ADD(&scope->peaks);
    if (new) *new = (struct gs_scope_peak){.series = (uint16_t)series};
    return new;
}

/* Passes the maximum since a range last began or ended to all open scopes. */
static void spread_figures(struct gs_store *s)
{
    struct gs_scopes *c = &s->scopes;
    for (unsigned i = 0; i < GS_SCOPE_SERIES; i++) {
        struct gs_level_series *series = &s->levels.series[i];
        for (size_t k = 0; series->used && k < c->open.count; k++) {
            struct gs_scope_peak *p = peak_of(&c->list.at[c->open.at[k]], i);
            if (!p || series->most <= p->most) continue;
            p->most = series->most;
            p->most_ns = series->most_ns;
        }
        series->most = series->now;
        series->most_ns = s->last_ns;
    }
}

uint32_t gs_scope_begin(struct gs_store *s, const char *domain, size_t domain_length, const char *name,
                        size_t name_length)
{
    struct gs_scopes *c = &s->scopes;
    const uint32_t number = name_length ? find_scope(c, domain, domain_length, name, name_length) : 0;
    struct gs_scope *scope = number ? &c->list.at[number - 1] : NULL;
    if (!scope) return 0;
    scope->count++;
    if (scope->depth++) return number;
    spread_figures(s);
    uint32_t *open = GS_ARRAY_ADD(&c->open);
    if (!open) {
        scope->depth--;
        return 0;
    }
    *open = number - 1;
    for (unsigned i = 0; i < GS_SCOPE_SERIES; i++) {
        const struct gs_level_series *series = &s->levels.series[i];
        struct gs_scope_peak *p = series->used ? peak_of(scope, i) : NULL;
        if (!p) continue;
        p->most = p->entry = series->now;
        p->most_ns = s->last_ns;
    }
    return number;
}

void gs_scope_end(struct gs_store *s, uint32_t number, int64_t life_ns)
{
    struct gs_scopes *c = &s->scopes;
    struct gs_scope *scope = number ? &c->list.at[number - 1] : NULL;
    if (!scope || !scope->depth) return;
    scope->ended_ns = (int64_t)((uint64_t)scope->ended_ns + (uint64_t)life_ns);
    if (--scope->depth) return;
    spread_figures(s);
    for (size_t i = 0; i < scope->peaks.count; i++) {
        struct gs_scope_peak *p = &scope->peaks.at[i];
        if (!p->ended || p->most > p->peak) {
            p->peak = p->most;
            p->peak_ns = p->most_ns;
            p->peak_entry = p->entry;
            p->peak_exit = s->levels.series[p->series].now;
        }
        p->ended = true;
        p->most = p->entry = 0;
    }
    for (size_t k = 0; k < c->open.count; k++)
        if (c->open.at[k] == number - 1) c->open.at[k] = c->open.at[--c->open.count];
}

/* ---------------------------------------------------------------- table removed_scope */

static void bind_bytes(sqlite3_stmt *st, int column, bool known, uint64_t bytes)
{
    if (known)
        sqlite3_bind_int64(st, column, gs_whole(bytes));
    else
        sqlite3_bind_null(st, column);
}

/* `p` NULL: no memory was live in the scope. */
static int write_peak(struct gs_store *s, const struct gs_scope *scope, const struct gs_scope_peak *p)
{
    sqlite3_stmt *st = gs_store_statement(s, GS_SQL_SCOPE);
    if (!st) return -1;
    const bool open = p && scope->depth, now = open && (!p->ended || p->most > p->peak);
    sqlite3_bind_text(st, 1, scope->domain, -1, SQLITE_STATIC);
    sqlite3_bind_text(st, 2, scope->name, -1, SQLITE_STATIC);
    bind_bytes(st, 3, p, p ? p->series / GS_LEVEL_DEVICES : 0);
    bind_bytes(st, 4, p, p ? p->series % GS_LEVEL_DEVICES : 0);
    bind_bytes(st, 5, p, !p ? 0 : now ? p->most : p->peak);
    bind_bytes(st, 6, p, !p ? 0 : now ? p->most_ns : p->peak_ns);
    bind_bytes(st, 7, p, !p ? 0 : now ? p->entry : p->peak_entry);
    bind_bytes(st, 8, p && !now, p ? p->peak_exit : 0);
    bind_bytes(st, 9, open, open ? p->entry : 0);
    sqlite3_bind_int64(st, 10, gs_whole(scope->count));
    sqlite3_bind_int64(st, 11, scope->ended_ns);
    sqlite3_bind_int64(st, 12, gs_whole(s->last_ns));
    return gs_store_run(s, st);
}

static int write_scope(struct gs_store *s, const struct gs_scope *scope)
{
    bool any = false;
    for (size_t i = 0; i < scope->peaks.count; i++) {
        const struct gs_scope_peak *p = &scope->peaks.at[i];
        if (!p->peak && !p->most) continue;
        if (write_peak(s, scope, p)) return -1;
        any = true;
    }
    return any ? 0 : write_peak(s, scope, NULL);
}

int gs_store_write_scopes(struct gs_store *s)
{
    char sql[128];
    spread_figures(s);
    if (gs_store_sql(s, "DELETE FROM removed_scope")) return -1;
    for (size_t i = 0; i < s->scopes.list.count; i++)
        if (write_scope(s, &s->scopes.list.at[i])) return -1;
    if (!s->scopes.left_out) return 0;
    snprintf(sql, sizeof sql, "INSERT OR REPLACE INTO meta VALUES('scopes_left_out',%lld)",
             (long long)gs_whole(s->scopes.left_out));
    return gs_store_sql(s, sql);
}

void gs_scopes_free(struct gs_scopes *c)
{
    for (size_t i = 0; i < c->list.count; i++) {
        free(c->list.at[i].domain);
        free(c->list.at[i].name);
        free(c->list.at[i].peaks.at);
    }
    free(c->list.at);
    free(c->open.at);
    gs_id_free(&c->index);
}
