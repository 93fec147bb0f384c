/* Finds the secrets of a command line from left to right and writes it without them. */
#include "schema/mask.h"

#include <stdbool.h>
#include <string.h>
#include "schema/mask_name.h"

struct scan {
    const char *in;
    size_t n;
    char *out;
    size_t size, used;
    bool joined; /* blanks also separate words: in the whole text, or in this word of it (sh -c) */
    bool source; /* Python: */
    struct {
        size_t at;  /* the text before this position is known … */
        char quote; /* … to be in a string with this quote, 0 none */
        bool triple, comment;
    } python;
};

/* Characters of a known format after its prefix. */
enum charset { ALNUM, WORD, DOTTED, UPPER, PATH };

static const struct {
    const char *prefix;
    enum charset set;
    unsigned least; /* characters after the prefix; a shorter text is something else */
    bool mixed;     /* and 12 of them in a row, with a digit or in both cases: not words joined by - */
} formats[] = {
    {"sk-", WORD, 16, true},
    {"sk-ant-", WORD, 8, false},
    {"sk-proj-", WORD, 8, false},
    {"sk_live_", ALNUM, 12, false},
    {"sk_test_", ALNUM, 12, false},
    {"rk_live_", ALNUM, 12, false},
    {"hf_", ALNUM, 16, false},
    {"api_org_", ALNUM, 16, false},
    {"ghp_", ALNUM, 16, false},
    {"gho_", ALNUM, 16, false},
    {"ghu_", ALNUM, 16, false},
    {"ghs_", ALNUM, 16, false},
    {"ghr_", ALNUM, 16, false},
    {"github_pat_", WORD, 16, false},
    {"glpat-", WORD, 12, false},
    {"gldt-", WORD, 16, false},
    {"glrt-", WORD, 16, false},
    {"glptt-", WORD, 16, false},
    {"xoxa-", WORD, 8, false},
    {"xoxb-", WORD, 8, false},
    {"xoxe-", WORD, 8, false},
    {"xoxp-", WORD, 8, false},
    {"xoxr-", WORD, 8, false},
    {"xoxs-", WORD, 8, false},
    {"xapp-", WORD, 16, false},
    {"AKIA", UPPER, 16, false},
    {"ASIA", UPPER, 16, false},
    {"LTAI", ALNUM, 16, true},
    {"AIza", WORD, 30, false},
    {"ya29.", WORD, 20, false},
    {"eyJ", DOTTED, 20, true},
    {"nvapi-", WORD, 16, false},
    {"npm_", ALNUM, 30, false},
    {"pypi-", WORD, 40, true},
    {"r8_", ALNUM, 30, false},
    {"gsk_", ALNUM, 30, false},
    {"pplx-", ALNUM, 30, false},
    {"xai-", ALNUM, 30, false},
    {"lsv2_", WORD, 20, true},
    {"wandb_v1_", WORD, 20, false},
    {"dckr_pat_", WORD, 16, false},
    {"dop_v1_", ALNUM, 30, false},
    {"dapi", ALNUM, 32, true},
    {"shpat_", ALNUM, 20, false},
    {"hvs.", WORD, 20, false},
    {"tskey-", WORD, 16, false},
    {"whsec_", ALNUM, 16, false},
    {"SG.", DOTTED, 40, true},
    {"ATATT3", WORD, 20, false},
    {"AGE-SECRET-KEY-1", UPPER, 30, false},
    {"hooks.slack.com/services/", PATH, 8, false},
    {"discord.com/api/webhooks/", PATH, 8, false},
    {"discordapp.com/api/webhooks/", PATH, 8, false},
};

static bool is_blank_character(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
static bool is_digit_character(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_upper_character(char c)
{
    return c >= 'A' && c <= 'Z';
}
static bool is_lower_character(char c)
{
    return c >= 'a' && c <= 'z';
}
static bool is_alnum(char c)
{
    return is_digit_character(c) || is_upper_character(c) || is_lower_character(c);
}
static bool is_name_byte(char c)
{
    return is_alnum(c) || c == '_' || c == '-' || c == '.';
}
static bool is_quote(char c)
{
    return c == '"' || c == '\'' || c == '`';
}

/* Past the end: the end of a word. */
static char character_of(const struct scan *s, size_t i)
{
    return i < s->n ? s->in[i] : 0;
}
static bool ends_word(const struct scan *s, size_t i)
{
    return !character_of(s, i) || (s->joined && is_blank_character(character_of(s, i)));
}
static bool does_word_begin(const struct scan *s, size_t i)
{
    return i == 0 || ends_word(s, i - 1);
}

static bool starts_with(const struct scan *s, size_t i, const char *text)
{
    const size_t n = strlen(text);
    return s->n - i >= n && memcmp(s->in + i, text, n) == 0;
}

static void put_masked(struct scan *s, const char *text, size_t n)
{
    for (size_t i = 0; i < n && s->used + 1 < s->size; i++) s->out[s->used++] = text[i] ? text[i] : ' ';
}

/* Writes "***" instead of the text. Keeps the newlines of a program, so that its lines keep their numbers. */
static void put_mask(struct scan *s, size_t from, size_t to)
{
    put_masked(s, "***", 3);
    for (; s->source && from < to; from++)
        if (s->in[from] == '\n') put_masked(s, "\n", 1);
}

/* ---------------------------------------------------------------- known formats */

static bool in_set(char c, enum charset set)
{
    switch (set) {
    case ALNUM: return is_alnum(c);
    case WORD: return is_alnum(c) || c == '_' || c == '-';
    case DOTTED: return is_name_byte(c) || c == '=';
    case UPPER: return is_upper_character(c) || is_digit_character(c);
    case PATH: return is_name_byte(c) || c == '/';
    }
    return false;
}

static bool is_mixed(const char *p, size_t n)
{
    size_t run = 0;
    unsigned kinds = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i < n && is_alnum(p[i])) {
            run++;
            kinds |= is_digit_character(p[i]) ? 4 : is_upper_character(p[i]) ? 2 : 1;
            continue;
        }
        if (run >= 12 && (kinds & 4 || kinds == 3)) return true;
        run = kinds = 0;
    }
    return false;
}

/* The length of a text of a known format at i, 0 if there is none. */
static size_t known_format(const struct scan *s, size_t i)
{
    if (i && is_alnum(s->in[i - 1])) return 0;
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
        if (formats[f].prefix[0] != s->in[i] || !starts_with(s, i, formats[f].prefix)) continue;
        const size_t prefix = strlen(formats[f].prefix);
        size_t n = prefix;
        while (i + n < s->n && in_set(s->in[i + n], formats[f].set)) n++;
        if (n - prefix < formats[f].least || (formats[f].mixed && !is_mixed(s->in + i + prefix, n - prefix))) continue;
        if (formats[f].set == ALNUM && (character_of(s, i + n) == '_' || character_of(s, i + n) == '-'))
            continue;                                                            /* hf_transformersmodels_cache */
        if (formats[f].prefix[0] == 'e' && !memchr(s->in + i, '.', n)) continue; /* a web token has parts */
        return n;
    }
    return 0;
}

/* Masks the n bytes at i; a web hook keeps its host. */
static void put_known(struct scan *s, size_t i, size_t n)
{
    for (size_t f = 0; f < sizeof formats / sizeof *formats; f++)
        if (formats[f].set == PATH && starts_with(s, i, formats[f].prefix) && strlen(formats[f].prefix) <= n)
            put_masked(s, formats[f].prefix, strlen(formats[f].prefix));
    put_mask(s, i, i + n);
}

/* Copies up to `to`, or to the end of a known format that begins before it. */
static size_t put_run(struct scan *s, size_t from, size_t to)
{
    while (from < to) {
        const size_t n = known_format(s, from);
        if (n)
            put_known(s, from, n);
        else
            put_masked(s, s->in + from, 1);
        from += n ? n : 1;
    }
    return from;
}

/* ---------------------------------------------------------------- values */

/* Does a list continue here: ",name=", ";name:" or "&name="? */
static bool next_of_list(const struct scan *s, size_t i)
{
    const char c = character_of(s, i);
    size_t name = i + 1;
    if (c != ',' && c != ';' && c != '&' && c != '|') return false;
    while (is_blank_character(character_of(s, name)) || is_quote(character_of(s, name))) name++;
    size_t end = name;
    while (is_name_byte(character_of(s, end))) end++;
    while (is_quote(character_of(s, end))) end++;
    return end > name && (character_of(s, end) == '=' || character_of(s, end) == ':');
}

/* How far a value extends: to the end of its word, to the next "name=" of a list, or to the end of a string. */
enum extent { TO_WORD, TO_LIST, TO_TEXT };

static size_t closing_bracket(const struct scan *s, size_t i)
{
    for (int depth = 0; character_of(s, i); i++) {
        depth += (character_of(s, i) == '[' || character_of(s, i) == '{') -
                 (character_of(s, i) == ']' || character_of(s, i) == '}');
        if (depth <= 0) return i + 1;
    }
    return i;
}

static size_t value_end(const struct scan *s, size_t i, enum extent extent)
{
    static const char stops[] = "\"'`)]}<>";
    if (extent == TO_TEXT && (character_of(s, i) == '[' || character_of(s, i) == '{')) return closing_bracket(s, i);
    for (; !ends_word(s, i); i++) {
        if (extent != TO_WORD && next_of_list(s, i)) return i;
        if (extent == TO_TEXT &&
            (is_blank_character(character_of(s, i)) || memchr(stops, character_of(s, i), sizeof stops - 1)))
            return i;
    }
    return i;
}

/* The end of a quoted text whose quotes may be `escaped` themselves. */
static size_t quoted_end(const struct scan *s, size_t i, char quote, bool escaped)
{
    for (; character_of(s, i) && character_of(s, i) != quote; i++)
        if (character_of(s, i) == '\\' && character_of(s, i + 1) && !(escaped && character_of(s, i + 1) == quote))
            i++;
        else if (character_of(s, i) == '\\')
            return i;
    return i < s->n ? i : s->n;
}

static bool is_one_of_names(const char *text, size_t n, const char *const *words)
{
    for (; *words; words++)
        if (gs_mask_same(text, n, *words)) return true;
    return false;
}

static bool is_open(const struct scan *s, size_t from, size_t to, enum gs_mask_kind kind)
{
    static const char *const words[] = {"true", "false", "none", "null", "yes", "no", "on", "off", "***", NULL};
    const size_t n = to - from;
    size_t digits = 0;
    if (!n || is_one_of_names(s->in + from, n, words)) return true;
    while (digits < n && is_digit_character(s->in[from + digits])) digits++;
    return kind == GS_MASK_WEAK && ((digits == n && n <= 6) || (s->in[from] == '<' && s->in[to - 1] == '>'));
}

static bool is_gap(const struct scan *s, size_t i, bool of_words)
{
    return i < s->n && (is_blank_character(s->in[i]) || (of_words && !s->in[i]));
}

/* "Bearer X": the scheme is not the secret, the word after it is. */
static size_t scheme_length(const struct scan *s, size_t from)
{
    static const char *const words[] = {"bearer", "basic", "token", "digest", "apikey", "bot", "negotiate", NULL};
    size_t n = 0;
    while (is_alnum(character_of(s, from + n))) n++;
    const bool bearer = gs_mask_same(s->in + from, n, "bearer"); /* possibly a separate word */
    if (!is_one_of_names(s->in + from, n, words) || !is_gap(s, from + n, bearer)) return 0;
    while (is_gap(s, from + n, bearer)) n++;
    return character_of(s, from + n) == '-' || from + n >= s->n ? 0 : n;
}

/* Writes the value without its secret; returns where the scan continues. A whole word is not split at quotes: they are
 * part of it. */
static size_t put_masked_value(struct scan *s, size_t from, enum extent extent, enum gs_mask_kind kind)
{
    char quote = 0;
    bool escaped = false;
    if (kind == GS_MASK_WEAK && extent == TO_TEXT && character_of(s, from) == '{') /* "auth": {...} */
        return from;
    if (extent == TO_TEXT || s->joined) {
        if ((escaped = character_of(s, from) == '\\' && is_quote(character_of(s, from + 1))))
            put_masked(s, s->in + from++, 1);
        if (is_quote(character_of(s, from))) {
            quote = character_of(s, from);
            put_masked(s, s->in + from++, 1);
        }
    }
    const size_t scheme = scheme_length(s, from);
    put_masked(s, s->in + from, scheme);
    from += scheme;
    const size_t to = quote ? quoted_end(s, from, quote, escaped) : value_end(s, from, extent);
    if (is_open(s, from, to, kind)) return put_run(s, from, to);
    put_mask(s, from, to);
    return to;
}

/* ---------------------------------------------------------------- URLs and keys in PEM */

static bool is_port(const struct scan *s, size_t from, size_t to)
{
    while (from < to && is_digit_character(s->in[from])) from++;
    return from == to;
}

enum { URL_MAX = 16384 }; /* longer ones would take time quadratic in their length */

/* i is after "://". Masks the password of the user information; returns where the scan continues. */
static size_t put_user(struct scan *s, size_t i)
{
    size_t host_end = i, end = i, sign = 0, colon = 0;
    while (!ends_word(s, end) && !is_blank_character(character_of(s, end)) && !is_quote(character_of(s, end)) &&
           end < i + URL_MAX)
        end++;
    while (host_end < end && !memchr("/?#", s->in[host_end], 3)) host_end++;
    for (size_t k = i; k < host_end; k++) {
        if (s->in[k] == '@') sign = k;
        if (s->in[k] == ':' && !colon) colon = k;
    }
    if (!sign && colon && !is_port(s, colon + 1, host_end)) /* an unescaped slash in the password */
        for (size_t k = host_end; k < end; k++)
            if (s->in[k] == '@') sign = k;
    if (!sign) return i;
    if (colon && colon < sign) {
        put_masked(s, s->in + i, colon + 1 - i);
        if (colon + 1 < sign) put_mask(s, colon + 1, sign);
        return sign;
    }
    if (sign - i >= 16 && is_mixed(s->in + i, sign - i)) { /* a token instead of a user */
        put_mask(s, i, sign);
        return sign;
    }
    return i;
}

static const char *find_within(const struct scan *s, size_t i, size_t within, const char *text)
{
    return memmem(s->in + i, s->n - i < within ? s->n - i : within, text, strlen(text));
}

static size_t put_pem(struct scan *s, size_t i)
{
    static const char head_end[] = "PRIVATE KEY-----", block[] = "PRIVATE KEY BLOCK-----";
    enum { HEAD = 40 }; /* at most so far into it */
    const char *head = find_within(s, i, HEAD + sizeof head_end - 1, head_end);
    const char *other = find_within(s, i, HEAD + sizeof block - 1, block);
    size_t head_n = sizeof head_end - 1;
    if (!head || (other && other < head)) head = other, head_n = sizeof block - 1;
    if (!head) return i;
    const size_t from = (size_t)(head - s->in) + head_n;
    const char *end = find_within(s, from, s->n, "-----END");
    put_masked(s, s->in + i, from - i);
    put_mask(s, from, end ? (size_t)(end - s->in) : s->n);
    return end ? (size_t)(end - s->in) : s->n;
}

/* ---------------------------------------------------------------- names */

static bool in_query(const struct scan *s, size_t from, size_t to)
{
    static const char *const words[] = {"sig", "signature", "x-amz-signature", "x-goog-signature", NULL};
    return from && (s->in[from - 1] == '?' || s->in[from - 1] == '&') &&
           is_one_of_names(s->in + from, to - from, words);
}

/* Masks a value in the next word; writes the NULs and blanks before it. */
static size_t put_next_word(struct scan *s, size_t i, enum gs_mask_kind kind)
{
    const bool of_word = character_of(s, i) == 0;
    while (i < s->n && (of_word ? !character_of(s, i) : is_blank_character(character_of(s, i))))
        put_masked(s, s->in + i++, 1);
    if (i >= s->n || (character_of(s, i) == '-' && (character_of(s, i + 1) == '-' || ends_word(s, i + 2))))
        return i; /* another option */
    return put_masked_value(s, i, of_word || s->joined ? TO_WORD : TO_TEXT, kind);
}

/* Does "=" or ":" follow the name that ends at i? Also returns where the value begins. */
static bool is_assigned(const struct scan *s, size_t i, size_t *value)
{
    bool gap;
    if (character_of(s, i) == '\\') i++;
    if (is_quote(character_of(s, i))) i++;
    if (character_of(s, i) == ']') i++;
    gap = is_blank_character(character_of(s, i));
    while (is_blank_character(character_of(s, i))) i++;
    const char sign = character_of(s, i);
    if ((sign != '=' && sign != ':') || (sign == '=' && character_of(s, i + 1) == '=') ||
        (sign == ':' && character_of(s, i + 1) == '/' && character_of(s, i + 2) == '/'))
        return false;
    i++;
    if (character_of(s, i) == '=' || (sign == '=' && character_of(s, i) == '>')) i++;
    while ((gap || sign == ':') && is_blank_character(character_of(s, i))) i++;
    *value = i;
    return true;
}

/* ['--token', 'X'], in a program's text. */
static bool listed_next(const struct scan *s, size_t i, size_t *value)
{
    if (!is_quote(character_of(s, i)) || character_of(s, ++i) != ',') return false;
    i++;
    while (is_blank_character(character_of(s, i))) i++;
    *value = i;
    return is_quote(character_of(s, i));
}

static bool is_path(const struct scan *s, size_t i)
{
    return character_of(s, i) == '/' || character_of(s, i) == '~' || character_of(s, i) == '.';
}

/* ---------------------------------------------------------------- values in a Python program */

static bool is_string_quote(char c)
{
    return c == '"' || c == '\'';
}

static bool is_tripled(const struct scan *s, size_t i)
{
    return character_of(s, i + 1) == character_of(s, i) && character_of(s, i + 2) == character_of(s, i);
}

static void follow_python(struct scan *s, size_t to)
{
    for (size_t i = s->python.at; i < to; s->python.at = i) {
        const char c = s->in[i];
        if (s->python.comment) {
            s->python.comment = c != '\n';
            i++;
        } else if (!s->python.quote) {
            s->python.comment = c == '#';
            s->python.quote = is_string_quote(c) ? c : 0;
            s->python.triple = s->python.quote && is_tripled(s, i);
            i += s->python.triple ? 3 : 1;
        } else if (c == '\\') {
            i += 2;
        } else if (s->python.triple ? c == s->python.quote && is_tripled(s, i) : c == s->python.quote || c == '\n') {
            s->python.quote = 0;
            i += s->python.triple ? 3 : 1;
        } else {
            i++;
        }
    }
}

static bool is_code(struct scan *s, size_t i)
{
    follow_python(s, i);
    return !s->python.quote && !s->python.comment;
}

/* Blanks, ends of lines, and opening parentheses. */
static size_t skip_gap(const struct scan *s, size_t i)
{
    while (i < s->n && (is_blank_character(s->in[i]) || s->in[i] == '(' ||
                        (s->in[i] == '\\' && is_blank_character(character_of(s, i + 1)))))
        i++;
    return i;
}

/* `password: Optional[str] = `: past the annotation. */
static size_t skip_annotation(const struct scan *s, size_t i)
{
    size_t k = i;
    while (is_name_byte(character_of(s, k)) || (character_of(s, k) && memchr("[],| \t", character_of(s, k), 6))) k++;
    return character_of(s, k) == '=' && character_of(s, k + 1) != '=' ? k + 1 : i;
}

/* Where a string begins at i, after the letters before its quote; 0 there is none. */
static size_t string_at(const struct scan *s, size_t i)
{
    static const char *const wrappers[] = {"SecretStr(", "Secret(", "str(", "bytes("};
    for (size_t w = 0; w < sizeof wrappers / sizeof *wrappers; w++)
        if (starts_with(s, i < s->n ? i : s->n, wrappers[w])) i = skip_gap(s, i + strlen(wrappers[w]));
    for (int n = 0; n < 2 && character_of(s, i) && memchr("rRbBuUfF", character_of(s, i), 8); n++) i++;
    return is_string_quote(character_of(s, i)) ? i : 0;
}

/* Where the value of a name that ends at i begins: after "=", ":" and the like, or after a "," if the name itself is a
 * string. 0: it has none. */
static size_t python_value(struct scan *s, size_t i, bool code)
{
    const bool quoted = is_string_quote(character_of(s, i));
    i += quoted;
    if (character_of(s, i) == ']') i++;
    while (character_of(s, i) == ' ' || character_of(s, i) == '\t') i++;
    const char sign = character_of(s, i);
    if (sign == '!' && character_of(s, i + 1) == '=')
        i++;
    else if (sign != '=' && sign != ':' && !(sign == ',' && quoted))
        return 0;
    i++;
    if (character_of(s, i) == '=') i++;
    if (sign == ':' && code && !quoted) i = skip_annotation(s, i);
    return skip_gap(s, i);
}

/* The string whose quote is at i; returns where its closing quote begins. */
static size_t put_string(struct scan *s, size_t i, enum gs_mask_kind kind)
{
    const char quote = s->in[i];
    const size_t n = is_tripled(s, i) ? 3 : 1;
    size_t to = i + n;
    for (; to < s->n; to++)
        if (s->in[to] == '\\' && to + 1 < s->n)
            to++;
        else if (s->in[to] == quote && (n == 1 || is_tripled(s, to)))
            break;
        else if (s->in[to] == '\n' && n == 1)
            break;
    put_masked(s, s->in + i, n);
    if (to > i + n && !is_open(s, i + n, to, kind)) {
        put_mask(s, i + n, to);
        return to;
    }
    return put_run(s, i + n, to);
}

/* Adjacent strings are one value; after `names =` so are strings separated by commas. */
static size_t put_strings(struct scan *s, size_t i, bool list, enum gs_mask_kind kind)
{
    for (size_t next, quote; (quote = string_at(s, i)) != 0; i = next) {
        const size_t n = is_tripled(s, quote) ? 3 : 1;
        put_masked(s, s->in + i, quote - i);
        i = put_string(s, quote, kind);
        if (i >= s->n || s->in[i] == '\n') break;
        put_masked(s, s->in + i, n);
        i += n;
        next = i;
        while (is_blank_character(character_of(s, next)) || (list && character_of(s, next) == ',')) next++;
        if (!string_at(s, next)) break;
        put_masked(s, s->in + i, next - i);
    }
    return i;
}

/* All strings in the brackets that open at i. */
static size_t put_bracketed(struct scan *s, size_t i, enum gs_mask_kind kind)
{
    int depth = 0;
    while (i < s->n) {
        const char c = s->in[i];
        depth += (c == '[' || c == '{') - (c == ']' || c == '}');
        if (is_string_quote(c)) {
            i = put_strings(s, i, false, kind);
            continue;
        }
        put_masked(s, s->in + i++, 1);
        if (depth <= 0) break;
    }
    return i;
}

static bool is_bearer(const struct scan *s, size_t i, size_t end)
{
    return gs_mask_same(s->in + i, end - i, "bearer") && character_of(s, end) == ' ' &&
           is_alnum(character_of(s, end + 1));
}

static bool may_have_value(struct scan *s, size_t i, size_t end)
{
    const bool code = is_code(s, i);
    const size_t from = python_value(s, end, code);
    size_t value;
    if (from && (string_at(s, from) || character_of(s, from) == '[' || character_of(s, from) == '{')) return true;
    return !code && (is_assigned(s, end, &value) || is_bearer(s, i, end));
}

static size_t put_python_value(struct scan *s, size_t i, size_t end, enum gs_mask_kind kind)
{
    const bool code = is_code(s, i);
    const size_t from = python_value(s, end, code);
    size_t value;
    if (from && string_at(s, from) && (code || is_string_quote(character_of(s, end)))) {
        put_masked(s, s->in + end, from - end);
        return put_strings(s, from, code && character_of(s, end) != ']', kind);
    }
    const bool bracketed =
        from && (character_of(s, from) == '[' || (character_of(s, from) == '{' && kind == GS_MASK_STRONG));
    if (bracketed && (code || is_string_quote(character_of(s, end)))) {
        put_masked(s, s->in + end, from - end);
        return put_bracketed(s, from, kind);
    }
    /* within a comment or a string, if it is on this line */
    if (!code && is_bearer(s, i, end)) return put_next_word(s, end, kind);
    if (code || is_string_quote(character_of(s, end)) || !is_assigned(s, end, &value) ||
        memchr(s->in + end, '\n', value - end))
        return end;
    put_masked(s, s->in + end, value - end);
    return put_masked_value(s, value, TO_TEXT, kind);
}

/* Masks the value of a name at i if it is a secret; returns where the scan continues. */
static size_t put_masked_name(struct scan *s, size_t i)
{
    const char before = i ? s->in[i - 1] : 0;
    const bool first = does_word_begin(s, i) || before == '+' || before == '~' || before == '=';
    const bool option = s->in[i] == '-' && (does_word_begin(s, i) || is_blank_character(before) || is_quote(before));
    size_t end = i, value;
    while (is_name_byte(character_of(s, end))) end++;
    const size_t written = put_run(s, i, end);
    if (written > end) return written;
    if (s->source && !may_have_value(s, i, end))
        return end; /* most names: examining each would take ten times as long */
    enum gs_mask_kind kind = gs_mask_name(s->in + i, end - i);
    if (in_query(s, i, end)) kind = GS_MASK_STRONG;
    if (kind == GS_MASK_NOT || (before == '/' && character_of(s, end) == ':')) /* the tag of an image */
        return end;
    if (s->source) return put_python_value(s, i, end, kind);
    if (is_assigned(s, end, &value)) {
        if (gs_mask_same(s->in + i, end - i, "pwd") && is_path(s, value)) return end;
        put_masked(s, s->in + end, value - end);
        const bool header = memchr(s->in + end, ':', value - end) != NULL;
        return put_masked_value(s, value, !first || s->joined ? TO_TEXT : header ? TO_WORD : TO_LIST, kind);
    }
    if (option && listed_next(s, end, &value)) {
        put_masked(s, s->in + end, value - end);
        return put_masked_value(s, value, TO_TEXT, kind);
    }
    if (option ? gs_mask_flag(s->in + i, end - i) : !gs_mask_same(s->in + i, end - i, "bearer")) return end;
    return is_gap(s, end, true) ? put_next_word(s, end, kind) : end;
}

/* ---------------------------------------------------------------- the whole */

/* "-c", "-lc": the next word is itself a program. */
static bool does_text_run(const struct scan *s, size_t end)
{
    size_t from = end;
    while (from && s->in[from - 1]) from--;
    return end - from >= 2 && end - from <= 4 && s->in[from] == '-' && s->in[end - 1] == 'c';
}

static size_t mask_step(struct scan *s, size_t i, bool text)
{
    size_t next;
    if (!s->in[i]) {
        s->joined = text || does_text_run(s, i);
        put_masked(s, " ", 1);
        return i + 1;
    }
    if (starts_with(s, i, "-----BEGIN ") && (next = put_pem(s, i)) > i) return next;
    if (starts_with(s, i, "://")) {
        put_masked(s, "://", 3);
        return put_user(s, i + 3);
    }
    if ((next = known_format(s, i)) > 0) {
        put_known(s, i, next);
        return i + next;
    }
    if (is_name_byte(s->in[i])) return put_masked_name(s, i);
    put_masked(s, s->in + i, 1);
    return i + 1;
}

static size_t mask_text(char *out, size_t size, const char *in, size_t n, bool text)
{
    struct scan s = {.in = in, .n = n, .out = out, .size = size};
    while (s.n && !in[s.n - 1]) s.n--;
    s.joined = text = text || !memchr(in, 0, s.n); /* a program may have overwritten its own title */
    if (!size) return 0;
    for (size_t i = 0; i < s.n;) i = mask_step(&s, i, text);
    out[s.used] = 0;
    return s.used;
}

size_t gs_mask_words(char *out, size_t size, const char *words, size_t length)
{
    return mask_text(out, size, words, length, false);
}

size_t gs_mask_arguments(char *out, size_t size, const char *text)
{
    return mask_text(out, size, text, strlen(text), true);
}

size_t gs_mask_source(char *out, size_t size, const char *text, size_t length)
{
    struct scan s = {.in = text, .n = length, .out = out, .size = size, .joined = true, .source = true};
    if (!size) return 0;
    for (size_t i = 0; i < s.n;) i = mask_step(&s, i, true);
    out[s.used] = 0;
    return s.used;
}
