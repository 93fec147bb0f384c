#include "analyzer/import/json_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include "analyzer/base/arena.h"
#include "schema/utf8.h"

enum { BUFFER = 1 << 18, PROGRESS_EACH = 1 << 22 };
enum state { VALUE, VALUE_OR_END, KEY_OR_END, COLON, COMMA_OR_END, DONE };

struct import_json {
    gzFile file;
    unsigned char buffer[BUFFER];
    size_t at, end;
    uint64_t before, next_progress;
    void (*progress)(void *, uint64_t);
    void *self;
    enum state state;
    char open[IMPORT_JSON_DEPTH]; /* '{' or '[' of each open value */
    size_t depth, length;
    char text[IMPORT_JSON_TEXT + 1];
    char problem[160];
    bool unreadable; /* the file cannot be read, as opposed to invalid JSON */
};

struct import_json *import_json_open(const char *path, void (*progress)(void *, uint64_t), void *self, char *error,
                                     size_t error_size)
{
    gzFile file = gzopen(path, "rbe");
    if (!file) {
        snprintf(error, error_size, "%s", strerror(errno));
        return NULL;
    }
    gzbuffer(file, BUFFER);
    struct import_json *j = arena_realloc(NULL, 1, sizeof *j);
    j->file = file;
    j->at = j->end = j->depth = j->length = 0;
    j->before = 0;
    j->next_progress = PROGRESS_EACH;
    j->progress = progress;
    j->self = self;
    j->state = VALUE;
    j->text[0] = j->problem[0] = 0;
    j->unreadable = false;
    return j;
}

void import_json_close(struct import_json *j)
{
    gzclose(j->file);
    free(j);
}

const char *import_json_text(const struct import_json *j)
{
    return j->text;
}

uint64_t import_json_bytes(const struct import_json *j)
{
    return j->before + j->at;
}

const char *import_json_problem(const struct import_json *j)
{
    return j->problem;
}

__attribute__((format(printf, 2, 3))) static enum import_json_token fail_json(struct import_json *j, const char *format,
                                                                              ...)
{
    va_list args;
    va_start(args, format);
    if (!j->problem[0]) vsnprintf(j->problem, sizeof j->problem, format, args);
    va_end(args);
    return IMPORT_JSON_BROKEN;
}

static bool fill_json(struct import_json *j)
{
    int code = Z_OK;
    j->before += j->end;
    j->at = j->end = 0;
    int got = gzread(j->file, j->buffer, sizeof j->buffer);
    if (got <= 0) {
        const char *why = gzerror(j->file, &code);
        if (code != Z_OK && code != Z_BUF_ERROR) {
            j->unreadable = true;
            fail_json(j, "it is damaged: %.80s", code == Z_ERRNO ? strerror(errno) : why);
        }
        return false;
    }
    j->end = (size_t)got;
    if (j->progress && j->before >= j->next_progress) {
        j->progress(j->self, (uint64_t)gzoffset(j->file));
        j->next_progress = j->before + PROGRESS_EACH;
    }
    return true;
}

/* The next byte, without consuming it; -1 at the end. */
static int peek_json(struct import_json *j)
{
    return j->at < j->end || fill_json(j) ? j->buffer[j->at] : -1;
}

static void put_json_bytes(struct import_json *j, const void *bytes, size_t n)
{
    size_t left = IMPORT_JSON_TEXT - j->length;
    n = n < left ? n : left;
    memcpy(j->text + j->length, bytes, n);
    j->length += n;
}

static void put_code(struct import_json *j, uint32_t code)
{
    char bytes[4];
    const bool invalid = code == 0 || (code >= 0xd800 && code < 0xe000);
    put_json_bytes(j, bytes, gs_utf8_encode(invalid ? 0xfffd : code, bytes));
}

static int hex_digit(int c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads the digits after \u; accepts fewer than four. */
static uint32_t read_hex(struct import_json *j)
{
    uint32_t code = 0;
    for (int i = 0; i < 4; i++) {
        int digit = hex_digit(peek_json(j));
        if (digit < 0) break;
        code = code << 4 | (uint32_t)digit;
        j->at++;
    }
    return code;
}

/* Returns the first half of a surrogate pair, which the next escape completes; else 0. */
static uint32_t read_escape(struct import_json *j, uint32_t half)
{
    static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
    int c = peek_json(j);
    const char *known = c > 0 ? strchr(from, c) : NULL;
    if (c < 0) return 0;
    j->at++;
    if (c == 'u') {
        uint32_t code = read_hex(j);
        if (half && code >= 0xdc00 && code < 0xe000)
            put_code(j, 0x10000 + ((half - 0xd800) << 10) + (code - 0xdc00));
        else if (code >= 0xd800 && code < 0xdc00)
            return code;
        else
            put_code(j, code);
    } else if (known) {
        put_json_bytes(j, &to[known - from], 1);
    } else {
        char plain[2] = {'\\', (char)c};
        bool usual = c == '"' || c == '\\' || c == '/';
        /* keeps the backslash: some profilers do not escape that of "C:\Users" */
        put_json_bytes(j, plain + usual, 2 - (size_t)usual);
    }
    return 0;
}

static bool read_string(struct import_json *j)
{
    uint32_t half = 0;
    j->length = 0;
    j->at++;
    for (;;) {
        if (j->at >= j->end && !fill_json(j)) return false;
        const unsigned char *start = j->buffer + j->at, *p = start, *end = j->buffer + j->end;
        while (p < end && *p != '"' && *p != '\\' && *p) p++;
        if (p > start) half = 0;
        put_json_bytes(j, start, (size_t)(p - start));
        j->at += (size_t)(p - start);
        if (p == end) continue;
        j->at++;
        if (*p == '"') break;
        if (*p)
            half = read_escape(j, half);
        else
            put_code(j, 0);
    }
    j->text[j->length] = 0;
    return true;
}

/* Also of words that are not JSON: nan, -inf, N/A (kineto in March 2021). */
static bool is_json_word(int c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c > 0 && strchr("-+./", c));
}

static enum import_json_token read_json_word(struct import_json *j)
{
    int c = peek_json(j);
    if (!is_json_word(c)) return fail_json(j, "at byte %llu it is not JSON", (unsigned long long)import_json_bytes(j));
    j->length = 0;
    for (; is_json_word(c); c = peek_json(j)) {
        put_json_bytes(j, &j->buffer[j->at], 1);
        j->at++;
    }
    j->text[j->length] = 0;
    j->state = j->depth ? COMMA_OR_END : DONE;
    const char *digits = j->text + (j->text[0] == '-');
    return *digits >= '0' && *digits <= '9' ? IMPORT_JSON_NUMBER : IMPORT_JSON_WORD;
}

static enum import_json_token open_value(struct import_json *j, int c)
{
    if (j->depth == IMPORT_JSON_DEPTH) return fail_json(j, "values are nested deeper than %d", IMPORT_JSON_DEPTH);
    j->open[j->depth++] = (char)c;
    j->at++;
    j->state = c == '{' ? KEY_OR_END : VALUE_OR_END;
    return c == '{' ? IMPORT_JSON_OBJECT : IMPORT_JSON_LIST;
}

static enum import_json_token close_value(struct import_json *j, int c)
{
    if (!j->depth || j->open[j->depth - 1] != (c == '}' ? '{' : '[')) {
        return fail_json(j, "at byte %llu it closes a value that was not opened",
                         (unsigned long long)import_json_bytes(j));
    }
    j->at++;
    j->state = --j->depth ? COMMA_OR_END : DONE;
    return c == '}' ? IMPORT_JSON_OBJECT_END : IMPORT_JSON_LIST_END;
}

static enum import_json_token read_value(struct import_json *j, int c)
{
    if (c == '{' || c == '[') return open_value(j, c);
    if (c != '"') return read_json_word(j);
    if (!read_string(j)) return fail_json(j, "it ends inside a text");
    j->state = j->depth ? COMMA_OR_END : DONE;
    return IMPORT_JSON_STRING;
}

static int skip_space(struct import_json *j)
{
    static const unsigned char mark[] = {0xef, 0xbb, 0xbf}; /* the byte order mark of UTF-8 */
    for (;;) {
        if (!j->before && !j->at && j->end >= sizeof mark && memcmp(j->buffer, mark, sizeof mark) == 0)
            j->at = sizeof mark;
        while (j->at < j->end && strchr(" \t\r\n", j->buffer[j->at]) && j->buffer[j->at]) j->at++;
        if (j->at < j->end) return j->buffer[j->at];
        if (!fill_json(j)) return -1;
    }
}

enum import_json_token import_json_next(struct import_json *j)
{
    for (;;) {
        if (j->problem[0]) return IMPORT_JSON_BROKEN;
        if (j->state == DONE) return IMPORT_JSON_END;
        int c = skip_space(j);
        if (c < 0) return fail_json(j, "it ends in the middle");
        switch (j->state) {
        case VALUE_OR_END:
            if (c == ']') return close_value(j, c);
            return read_value(j, c);
        case KEY_OR_END:
            if (c == '}') return close_value(j, c);
            if (c != '"') return fail_json(j, "at byte %llu it has no key", (unsigned long long)import_json_bytes(j));
            if (!read_string(j)) return fail_json(j, "it ends inside a text");
            j->state = COLON;
            return IMPORT_JSON_KEY;
        case COLON:
            if (c != ':') return fail_json(j, "at byte %llu it has no value", (unsigned long long)import_json_bytes(j));
            j->at++;
            j->state = VALUE;
            break;
        case COMMA_OR_END:
            if (c != ',') {
                if (c == '}' || c == ']') return close_value(j, c);
                return fail_json(j, "at byte %llu it is not JSON", (unsigned long long)import_json_bytes(j));
            }
            j->at++;
            j->state = j->open[j->depth - 1] == '{' ? KEY_OR_END : VALUE_OR_END;
            break;
        default: return read_value(j, c);
        }
    }
}

bool import_json_more(struct import_json *j)
{
    return j->state == DONE && skip_space(j) >= 0;
}

size_t import_json_depth(const struct import_json *j)
{
    return j->depth;
}

bool import_json_resume(struct import_json *j, size_t depth)
{
    int c;
    if (j->depth < depth || j->unreadable) return false;
    for (;;) {
        while ((c = peek_json(j)) >= 0 && c != '\n') j->at++;
        if (c < 0 || skip_space(j) < 0) return false;
        if (peek_json(j) != '{') continue;
        j->problem[0] = 0;
        j->depth = depth;
        j->state = VALUE_OR_END;
        return true;
    }
}

bool import_json_skip(struct import_json *j, enum import_json_token token)
{
    if (token == IMPORT_JSON_KEY) token = import_json_next(j);
    size_t depth = token == IMPORT_JSON_OBJECT || token == IMPORT_JSON_LIST ? j->depth - 1 : j->depth;
    while (token != IMPORT_JSON_BROKEN && j->depth > depth) token = import_json_next(j);
    return token != IMPORT_JSON_BROKEN;
}
