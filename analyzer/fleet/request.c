/* Parses the head of an HTTP request from an untrusted client. Stores nothing and refuses what it does not understand.
 */
#include <string.h>
#include <strings.h>
#include "analyzer/base/each.h"
#include "analyzer/fleet/serve.h"

struct piece {
    const char *at;
    size_t n;
};

static bool is_piece(struct piece p, const char *word)
{
    return p.n == strlen(word) && memcmp(p.at, word, p.n) == 0;
}

static bool piece_starts_with(struct piece p, const char *word)
{
    return p.n >= strlen(word) && strncasecmp(p.at, word, strlen(word)) == 0;
}

/* The text up to the line's end, which may lack the carriage return. */
static bool next_request_line(struct piece *rest, struct piece *line)
{
    const char *end = memchr(rest->at, '\n', rest->n);
    if (!end) return false;
    *line = (struct piece){rest->at, (size_t)(end - rest->at)};
    rest->n -= line->n + 1;
    rest->at = end + 1;
    line->n -= line->n > 0 && line->at[line->n - 1] == '\r';
    return true;
}

static bool next_word(struct piece *line, struct piece *word)
{
    const char *end = memchr(line->at, ' ', line->n);
    *word = (struct piece){line->at, end ? (size_t)(end - line->at) : line->n};
    line->at += word->n + (end != NULL);
    line->n -= word->n + (end != NULL);
    return word->n > 0;
}

static bool is_piece_printable(struct piece p)
{
    return !ANY_OF(a, p.at, p.n, (unsigned char)*a < ' ' && *a != '\t');
}

/* The path of "/metrics?query" and of "http://host/metrics". */
static struct piece target_path(struct piece target)
{
    if (piece_starts_with(target, "http://")) {
        const char *slash = memchr(target.at + 7, '/', target.n - 7);
        target = slash ? (struct piece){slash, (size_t)(target.at + target.n - slash)} : (struct piece){"/", 1};
    }
    const char *query = memchr(target.at, '?', target.n);
    target.n = query ? (size_t)(query - target.at) : target.n;
    return target;
}

static bool piece_contains(struct piece p, const char *word)
{
    return memmem(p.at, p.n, word, strlen(word)) != NULL;
}

static enum fleet_answer read_first(struct piece line, struct fleet_request *out, bool *needs_host)
{
    struct piece method, target, version;
    if (!is_piece_printable(line) || !next_word(&line, &method) || !next_word(&line, &target) ||
        !next_word(&line, &version) || line.n > 0)
        return FLEET_BAD;
    if (!piece_starts_with(version, "HTTP/")) return FLEET_BAD;
    *needs_host = is_piece(version, "HTTP/1.1");
    if (!*needs_host && !is_piece(version, "HTTP/1.0")) return FLEET_NO_VERSION;
    out->head_only = is_piece(method, "HEAD");
    if (!out->head_only && !is_piece(method, "GET")) return FLEET_NO_METHOD;
    const struct piece path = target_path(target);
    out->is_index = is_piece(path, "/");
    return out->is_index || is_piece(path, "/metrics") ? FLEET_METRICS
           : path.n && path.at[0] == '/'               ? FLEET_NO_SUCH
                                                       : FLEET_BAD;
}

static enum fleet_answer read_request_head(struct piece rest, struct fleet_request *out)
{
    struct piece line;
    bool needs_host = false;
    unsigned hosts = 0;
    next_request_line(&rest, &line);
    const enum fleet_answer answer = read_first(line, out, &needs_host);
    while (next_request_line(&rest, &line) && line.n > 0) {
        const char *colon = memchr(line.at, ':', line.n);
        if (!colon || colon == line.at || line.at[0] == ' ' || line.at[0] == '\t' || colon[-1] == ' ' ||
            !is_piece_printable(line))
            return FLEET_BAD;
        hosts += piece_starts_with(line, "host:");
        out->openmetrics = out->openmetrics ||
                           (piece_starts_with(line, "accept:") && piece_contains(line, "application/openmetrics-text"));
    }
    return answer == FLEET_NO_VERSION || hosts == 1 || (!needs_host && hosts == 0) ? answer : FLEET_BAD;
}

enum fleet_answer fleet_request_read(const char *text, size_t n, struct fleet_request *out)
{
    struct piece rest = {text, n}, line;
    *out = (struct fleet_request){.head_only = false};
    for (bool first = true; next_request_line(&rest, &line); first = false)
        if (line.n == 0) return first ? FLEET_BAD : read_request_head((struct piece){text, n}, out);
    return n >= FLEET_HEAD_MAX ? FLEET_TOO_LONG : FLEET_MORE;
}
