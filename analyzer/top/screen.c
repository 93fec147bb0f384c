#include "analyzer/top/screen.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include "analyzer/base/arena.h"

#define ENTER "\033[?1049h\033[?25l\033[?7l" /* alternate screen, no cursor, no wrapping */
#define LEAVE "\033[0m\033[?7h\033[?25h\033[?1049l"
enum { ESCAPE_MS = 30 };

static struct termios before;
static volatile sig_atomic_t is_open, resized, ending;

static void write_to_terminal(const char *text, size_t n)
{
    while (n > 0) {
        ssize_t wrote = write(STDOUT_FILENO, text, n);
        if (wrote < 0 && errno != EINTR) {
            if (errno != EAGAIN) return;
            struct pollfd p = {STDOUT_FILENO, POLLOUT, 0};
            poll(&p, 1, 1000);
            continue;
        }
        text += wrote > 0 ? wrote : 0;
        n -= wrote > 0 ? (size_t)wrote : 0;
    }
}

/* A signal handler may call write and tcsetattr. */
static void restore_screen(void)
{
    if (is_open) {
        is_open = 0;
        ssize_t ignored = write(STDOUT_FILENO, LEAVE, sizeof LEAVE - 1);
        (void)ignored;
        tcsetattr(STDIN_FILENO, TCSANOW, &before);
    }
}

static void on_resize(int number)
{
    resized = 1;
}

static void on_end(int number)
{
    ending = number;
}

/* Restores the terminal after a crash, too. */
static void on_crash(int number)
{
    restore_screen();
    signal(number, SIG_DFL);
    raise(number);
}

static void enter_screen(void)
{
    struct termios raw = before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO | IEXTEN);
    raw.c_iflag &= ~(tcflag_t)(ICRNL | INLCR | IXON);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    raw.c_cc[VSUSP] = _POSIX_VDISABLE; /* a stopped top would leave the terminal in this state */
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    is_open = 1;
    write_to_terminal(ENTER, sizeof ENTER - 1);
}

bool top_screen_open(void)
{
    static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGXCPU};
    const char *kind = getenv("TERM");
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO) || !kind || !*kind || !strcmp(kind, "dumb") ||
        tcgetattr(STDIN_FILENO, &before) != 0)
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        sigaction(ends[i], &(struct sigaction){.sa_handler = on_end}, NULL);
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        sigaction(crashes[i], &(struct sigaction){.sa_handler = on_crash}, NULL);
    sigaction(SIGWINCH, &(struct sigaction){.sa_handler = on_resize}, NULL);
    signal(SIGPIPE, SIG_IGN);
    atexit(restore_screen);
    enter_screen();
    return true;
}

void top_screen_close(void)
{
    restore_screen();
}

void top_screen_size(int *columns, int *rows)
{
    struct winsize size = {0};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
        size.ws_col = 80;
        size.ws_row = 24;
    }
    *columns = size.ws_col;
    *rows = size.ws_row;
}

/* In one write, and between the marks by which a terminal that supports them shows it at once. A line is erased before
 * it is written: after a character in the last column the cursor is still on it. */
void top_screen_draw(const char *text)
{
    char *buffer = NULL;
    size_t n = 0;
    int columns, rows, row = 1;
    FILE *out = arena_stream(&buffer, &n);
    top_screen_size(&columns, &rows);
    fputs("\033[?2026h\033[H", out);
    for (const char *p = text; *p && row < rows;) {
        size_t length = strcspn(p, "\n");
        if (!p[length]) break;
        fprintf(out, "\033[K%.*s\r\n", (int)length, p);
        p += length + 1;
        row++;
    }
    const char *last = strrchr(text, '\n');
    fprintf(out, "\033[J\033[%d;1H\033[K%s\033[?2026l", rows, last ? last + 1 : "");
    fclose(out);
    write_to_terminal(buffer, n);
    free(buffer);
}

static bool is_input_ready(int milliseconds)
{
    struct pollfd p = {STDIN_FILENO, POLLIN, 0};
    return poll(&p, 1, milliseconds) > 0;
}

static int read_byte(void)
{
    unsigned char c;
    ssize_t n = read(STDIN_FILENO, &c, 1);
    return n == 1 ? c : n == 0 || errno != EINTR ? -1 : 0;
}

/* What follows ESC: "[A", "OA", "[5~". An unknown sequence is skipped as a whole. */
static int read_sequence(void)
{
    static const struct {
        const char *text;
        int key;
    } known[] = {
        {"[A", KEY_UP},         {"OA", KEY_UP},   {"[B", KEY_DOWN}, {"OB", KEY_DOWN},  {"[5~", KEY_PAGE_UP},
        {"[6~", KEY_PAGE_DOWN}, {"[H", KEY_HOME}, {"OH", KEY_HOME}, {"[1~", KEY_HOME}, {"[7~", KEY_HOME},
        {"[F", KEY_END},        {"OF", KEY_END},  {"[4~", KEY_END}, {"[8~", KEY_END},  {"[Z", KEY_BACK_TAB},
    };
    char text[16];
    size_t n = 0;
    if (!is_input_ready(ESCAPE_MS)) return KEY_ESCAPE;
    while (n + 1 < sizeof text && is_input_ready(ESCAPE_MS)) {
        int c = read_byte();
        if (c <= 0) break;
        text[n++] = (char)c;
        if (n > 1 && c >= 0x40 && c <= 0x7e) break;
        if (n == 1 && c != '[' && c != 'O') break;
    }
    text[n] = 0;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(text, known[i].text) == 0) return known[i].key;
    return KEY_NONE;
}

int top_screen_key(int milliseconds)
{
    if (!ending && !resized && is_input_ready(milliseconds)) {
        int c = read_byte();
        return c < 0 ? KEY_QUIT : c == 27 ? read_sequence() : c == '\n' ? KEY_ENTER : c == 8 ? KEY_BACK : c;
    }
    if (ending) return KEY_QUIT;
    if (resized) {
        resized = 0;
        return KEY_RESIZE;
    }
    return KEY_NONE;
}
