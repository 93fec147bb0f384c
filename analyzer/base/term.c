#include "analyzer/base/term.h"
#include "schema/utf8.h"

#include <langinfo.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define WIDTH_DEFAULT 100
#define WIDTH_MIN 40
#define WIDTH_MAX 300

static const char *colour_when; /* NULL: by the terminal and NO_COLOR */

static bool is_variable_set(const char *name)
{
    const char *value = getenv(name);

    return value && *value;
}

static int terminal_width(FILE *f, bool terminal)
{
    struct winsize size;
    int width = is_variable_set("COLUMNS") ? atoi(getenv("COLUMNS")) : 0;

    if (width <= 0 && terminal && ioctl(fileno(f), TIOCGWINSZ, &size) == 0) width = size.ws_col;
    if (width <= 0) width = WIDTH_DEFAULT;
    return width < WIDTH_MIN ? WIDTH_MIN : width > WIDTH_MAX ? WIDTH_MAX : width;
}

bool terminal_is_dumb(void)
{
    const char *kind = getenv("TERM");

    return kind && strcmp(kind, "dumb") == 0;
}

void terminal_choose_colour(const char *when)
{
    colour_when = when && strcmp(when, "auto") != 0 ? when : NULL;
}

/* Can the terminal do more than the 8 colours that all can? */
static bool is_terminal_rich(void)
{
    const char *kind = getenv("TERM");

    return is_variable_set("COLORTERM") || (kind && (strstr(kind, "256color") || strstr(kind, "kitty") ||
                                                     strstr(kind, "alacritty") || strstr(kind, "direct")));
}

struct terminal terminal_of(FILE *f)
{
    bool terminal = isatty(fileno(f));
    bool colour = colour_when ? strcmp(colour_when, "always") == 0
                              : terminal && !is_variable_set("NO_COLOR") && !terminal_is_dumb();
    struct terminal t = {
        .terminal = terminal,
        .colour = colour,
        .rich = colour && is_terminal_rich(),
        .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
        .width = terminal_width(f, terminal),
    };
    return t;
}

const char *terminal_style(const struct terminal *t, enum terminal_style style)
{
    static const char *const sequence[] = {
        [TERMINAL_PLAIN] = "\033[0m",  [TERMINAL_BOLD] = "\033[1m",    [TERMINAL_DIM] = "\033[2m",
        [TERMINAL_RED] = "\033[1;31m", [TERMINAL_YELLOW] = "\033[33m", [TERMINAL_GREEN] = "\033[32m",
        [TERMINAL_CYAN] = "\033[36m",
    };

    return t->colour ? sequence[style] : "";
}

const char *terminal_background(const struct terminal *t, int colour, char out[TERMINAL_SEQUENCE])
{
    out[0] = 0;
    if (t->rich) snprintf(out, TERMINAL_SEQUENCE, "\033[48;5;%dm\033[38;5;16m", colour & 255);
    return out;
}

const char *terminal_foreground(const struct terminal *t, int colour, char out[TERMINAL_SEQUENCE])
{
    out[0] = 0;
    if (t->rich) snprintf(out, TERMINAL_SEQUENCE, "\033[38;5;%dm", colour & 255);
    return out;
}

char *terminal_link(const struct terminal *t, const char *path, int line, const char *text, char *out, size_t size)
{
    static const char plain[] = "/._-~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char address[1024];
    size_t n = 0;

    snprintf(out, size, "%s", text);
    if (!t->links || !path || path[0] != '/' || access(path, F_OK) != 0) return out;
    for (const char *p = path; *p; p++) {
        if (n + 4 > sizeof address) return out;
        n += (size_t)snprintf(address + n, sizeof address - n, strchr(plain, *p) ? "%c" : "%%%02x", (unsigned char)*p);
    }
    int needed = snprintf(NULL, 0, "\033]8;;file://%s#%d\033\\%s\033]8;;\033\\", address, line, text);
    if (needed > 0 && (size_t)needed < size)
        snprintf(out, size, "\033]8;;file://%s#%d\033\\%s\033]8;;\033\\", address, line, text);
    return out;
}

/* C0, DEL, C1 (a terminal interprets U+009B like ESC [), line separators, and marks that change the direction of text,
 * with which one name can look like another. */
static bool is_harmful_character(uint32_t c)
{
    static const uint32_t range[][2] = {
        {0, 0x1f},        {0x7f, 0x9f},     {0x200b, 0x200f}, {0x2028, 0x202e},
        {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
    };

    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1]) return true;
    return false;
}

/* The nearest ASCII character; '?' if there is none. */
static char plain_character_of(uint32_t code)
{
    static const struct {
        uint32_t code;
        char plain;
    } plain[] = {{0xb7, '*'}, {0xd7, 'x'}, {0x2013, '-'}, {0x2019, '\''}, {0x2212, '-'}};

    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (plain[i].code == code) return plain[i].plain;
    return '?';
}

char *terminal_clean(char *out, size_t size, const char *text, bool utf8)
{
    const unsigned char *p = (const unsigned char *)(text ? text : "");
    size_t at = 0;

    while (*p && size) {
        uint32_t code = 0;
        size_t length = gs_utf8_decode((const char *)p, SIZE_MAX, &code);
        bool keep = length && !is_harmful_character(code) && (utf8 || code < 0x80);
        size_t put = keep ? length : 1;

        if (at + put >= size) break;
        if (keep)
            memcpy(out + at, p, length);
        else
            out[at] = length ? plain_character_of(code) : '?';
        at += put;
        p += length ? length : 1;
    }
    if (size) out[at] = 0;
    return out;
}

static int columns_of_code(uint32_t code, size_t length)
{
    int w = length > 1 ? wcwidth((wchar_t)code) : 1;

    return w < 0 ? 1 : w;
}

size_t terminal_fit(const char *text, int columns)
{
    const unsigned char *p = (const unsigned char *)text;

    while (*p) {
        uint32_t code = 0;
        size_t length = gs_utf8_decode((const char *)p, SIZE_MAX, &code);
        columns -= columns_of_code(code, length);
        if (columns < 0) break;
        p += length ? length : 1;
    }
    return (size_t)((const char *)p - text);
}

int terminal_columns(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    int columns = 0;

    while (*p) {
        uint32_t code = 0;
        size_t length = gs_utf8_decode((const char *)p, SIZE_MAX, &code);
        columns += columns_of_code(code, length);
        p += length ? length : 1;
    }
    return columns;
}

/* Bytes of the first part of a command: up to the space before its next option. Quoted spaces do not count. */
static size_t command_part(const char *text)
{
    char quote = 0;
    size_t n = 0;

    for (; text[n] && (quote || text[n] != ' ' || text[n + 1] != '-'); n++)
        if (text[n] == '\\' && quote != '\'' && text[n + 1])
            n++;
        else if (text[n] == quote)
            quote = 0;
        else if (!quote && (text[n] == '\'' || text[n] == '"'))
            quote = text[n];
    return n;
}

void terminal_print_command(FILE *f, const char *command, int indent, int width)
{
    enum { CONTINUED = 4 };
    static const char *const more = " \\";
    char part[8192];
    int at = fprintf(f, "%*s", indent, "");

    while (*command) {
        const size_t length = command_part(command);
        const bool last = !command[length], first = at == indent;
        snprintf(part, sizeof part, "%.*s", (int)length, command);
        const int columns = terminal_columns(part);
        if (!first && at + 1 + columns + (last ? 0 : (int)strlen(more)) > width) {
            fprintf(f, "%s\n%*s%s", more, indent + CONTINUED, "", part);
            at = indent + CONTINUED + columns;
        } else {
            fprintf(f, "%s%s", first ? "" : " ", part);
            at += !first + columns;
        }
        command += length + !last;
    }
}
