/* One thread with one poll loop: a slow client delays no other client and is dropped after some seconds. */
#include "analyzer/fleet/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/exit_code.h"
#include "analyzer/base/term.h"

#define SECOND 1000000000ll
enum { CLIENTS = 32, BACKLOG = 64, READ_S = 5, WRITE_S = 10, CLOSE_S = 1, TICK_MS = 200 };

static volatile sig_atomic_t stopped;

static bool split_address(const char *text, char *host, size_t size, const char **port)
{
    const char *colon = strrchr(text, ':'), *end = colon;
    const char *start = text;
    if (!colon || colon == text || !colon[1] || colon[1 + strspn(colon + 1, "0123456789")] || strlen(colon + 1) > 5 ||
        atoi(colon + 1) > 65535)
        return false;
    if (*text == '[') {
        start++;
        end--;
        if (*end != ']') return false;
    } else if (memchr(text, ':', (size_t)(colon - text))) {
        return false;
    }
    snprintf(host, size, "%.*s", (int)(end - start), start);
    *port = colon + 1;
    return end > start;
}

static void name_address(int fd, char *address, size_t size)
{
    struct sockaddr_storage a;
    socklen_t length = sizeof a;
    char host[128] = "?", port[16] = "?";
    if (getsockname(fd, (struct sockaddr *)&a, &length) == 0) {
        getnameinfo((struct sockaddr *)&a, length, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    }
    snprintf(address, size, a.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
}

int fleet_listen(const char *text, char *address, size_t size, char *why, size_t why_size, bool *usage)
{
    const struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                   .ai_socktype = SOCK_STREAM};
    const int yes = 1;
    struct addrinfo *a = NULL;
    char host[128];
    const char *port;
    *usage = !split_address(text, host, sizeof host, &port) ||
             getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, port, &hints, &a) != 0;
    if (*usage) {
        snprintf(why, why_size, "'%.100s' is not an address and a port; type for example 127.0.0.1:9464 or [::1]:9464",
                 text);
        return -1;
    }
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && a->ai_family == AF_INET6) /* [::] must not include all IPv4 addresses */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (fd < 0 || bind(fd, a->ai_addr, a->ai_addrlen) != 0 || listen(fd, BACKLOG) != 0) {
        snprintf(why, why_size, "cannot listen on '%.100s': %s", text, strerror(errno));
        if (fd >= 0) close(fd);
        fd = -1;
    } else {
        name_address(fd, address, size);
    }
    freeaddrinfo(a);
    return fd;
}

enum phase { READING, WRITING, CLOSING };
struct client {
    int fd;
    enum phase phase;
    int64_t until_ns; /* deadline of its current phase */
    char head[FLEET_HEAD_MAX];
    size_t head_n;
    char *answer;
    size_t answer_n, sent;
};

struct server {
    struct fleet *fleet;
    const struct fleet_service *service;
    struct client *clients[CLIENTS];
    size_t n;
    int64_t file_ns;  /* when the file is due */
    bool file_failed; /* the last one could not be written … */
    bool file_useful; /* … but an earlier one could */
};

static const char *answer_phrase(enum fleet_answer answer)
{
    switch (answer) {
    case FLEET_METRICS: return "OK";
    case FLEET_NO_SUCH: return "Not Found";
    case FLEET_NO_METHOD: return "Method Not Allowed";
    case FLEET_TOO_LONG: return "Request Header Fields Too Large";
    case FLEET_NO_VERSION: return "HTTP Version Not Supported";
    default: return "Bad Request";
    }
}

static char *render_metrics(struct fleet *f, bool openmetrics, size_t *n)
{
    char *text = NULL;
    FILE *out = arena_stream(&text, n);
    fleet_refresh(f);
    fleet_write(f, openmetrics, out);
    fclose(out);
    return text;
}

/* Every answer closes its connection: with one scrape per minute a persistent connection gains nothing. */
static void answer_client(struct server *s, struct client *c, enum fleet_answer status,
                          const struct fleet_request *request)
{
    const bool metrics = status == FLEET_METRICS && !request->is_index, openmetrics = metrics && request->openmetrics;
    static const char index[] = "gpuspy metrics: see /metrics\n";
    size_t n = 0;
    char *text = metrics ? render_metrics(s->fleet, openmetrics, &n) : NULL;
    const char *body = text ? text : status == FLEET_METRICS ? index : answer_phrase(status);
    n = text ? n : strlen(body);
    FILE *out = arena_stream(&c->answer, &c->answer_n);
    fprintf(out,
            "HTTP/1.1 %d %s\r\nContent-Type: %s; charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n%s\r\n",
            (int)status, answer_phrase(status),
            openmetrics ? "application/openmetrics-text; version=1.0.0"
            : metrics   ? "text/plain; version=0.0.4"
                        : "text/plain",
            n, status == FLEET_NO_METHOD ? "Allow: GET, HEAD\r\n" : "");
    if (!request->head_only) fwrite(body, 1, n, out);
    fclose(out);
    free(text);
    c->phase = WRITING;
    c->until_ns = clock_now_ns() + WRITE_S * SECOND;
}

/* False: the connection can be closed. */
static bool read_request(struct server *s, struct client *c)
{
    struct fleet_request request;
    const ssize_t n = recv(c->fd, c->head + c->head_n, sizeof c->head - c->head_n, 0);
    if (n <= 0) return n < 0 && (errno == EAGAIN || errno == EINTR);
    c->head_n += (size_t)n;
    const enum fleet_answer status = fleet_request_read(c->head, c->head_n, &request);
    if (status != FLEET_MORE) answer_client(s, c, status, &request);
    return true;
}

static bool write_answer(struct client *c)
{
    const ssize_t n = send(c->fd, c->answer + c->sent, c->answer_n - c->sent, MSG_NOSIGNAL);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    c->sent += (size_t)n;
    if (c->sent ==
        c->answer_n) { /* closing a socket that has unread input would reset the connection and truncate the answer */
        shutdown(c->fd, SHUT_WR);
        c->phase = CLOSING;
        c->until_ns = clock_now_ns() + CLOSE_S * SECOND;
    }
    return true;
}

static bool read_rest(struct client *c)
{
    char rest[4096];
    const ssize_t n = recv(c->fd, rest, sizeof rest, 0);
    return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

static bool attend_client(struct server *s, struct client *c)
{
    switch (c->phase) {
    case READING: return read_request(s, c);
    case WRITING: return write_answer(c);
    default: return read_rest(c);
    }
}

static void forget_client(struct server *s, size_t i)
{
    close(s->clients[i]->fd);
    ARENA_RELEASE(s->clients[i]->answer, s->clients[i]);
    s->clients[i] = s->clients[--s->n];
}

/* The one that has waited longest with its request; s->n: none. */
static size_t find_slowest(const struct server *s)
{
    size_t slowest = s->n;
    for (size_t i = 0; i < s->n; i++)
        if (s->clients[i]->phase == READING &&
            (slowest == s->n || s->clients[i]->until_ns < s->clients[slowest]->until_ns))
            slowest = i;
    return slowest;
}

static bool has_room(const struct server *s)
{
    return s->n < CLIENTS || find_slowest(s) < s->n;
}

static void accept_client(struct server *s)
{
    if (!has_room(s)) return;
    if (s->n == CLIENTS) forget_client(s, find_slowest(s));
    const int fd = accept4(s->service->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    struct client *c = ARENA_NEW(struct client, .fd = fd, .until_ns = clock_now_ns() + READ_S * SECOND);
    s->clients[s->n++] = c;
}

static void name_files(const char *folder, char *path, char *temporary, size_t size)
{
    snprintf(path, size, "%s/gpuspy.prom", folder);
    snprintf(temporary, size, "%s/.gpuspy.prom.%ld", folder, (long)getpid());
}

/* The collector would take old figures for current ones. */
static void remove_file(const char *folder)
{
    char path[4096], temporary[4096];
    name_files(folder, path, temporary, sizeof path);
    unlink(path);
}

/* Writes to a temporary file and renames it, because the collector may read at any moment. */
static void write_textfile(struct server *s)
{
    char path[4096], temporary[4096];
    name_files(s->service->textfile, path, temporary, sizeof path);
    const int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
    if (out) {
        fleet_refresh(s->fleet);
        fleet_write(s->fleet, false, out);
    }
    bool failed = !out || ferror(out);
    if ((out && fclose(out) != 0) || failed || rename(temporary, path) != 0) {
        failed = true;
        if (!s->file_failed) complain("metrics: cannot write '%s': %s", path, strerror(errno));
        unlink(temporary);
        remove_file(s->service->textfile);
    }
    s->file_failed = failed;
    s->file_useful |= !failed;
}

static void stop_serving(int number)
{
    stopped = 1;
}

void fleet_stop_on_signals(void)
{
    const struct sigaction on_stop = {.sa_handler = stop_serving};
    sigaction(SIGTERM, &on_stop, NULL);
    sigaction(SIGINT, &on_stop, NULL);
}

static int64_t serving_wait_ms(const struct server *s)
{
    const int64_t left = s->service->textfile ? (s->file_ns - clock_now_ns()) / 1000000 + 1 : TICK_MS;
    return left < 0 ? 0 : left < TICK_MS ? left : TICK_MS;
}

static void poll_once(struct server *s)
{
    struct pollfd p[CLIENTS + 1];
    const size_t n = s->n;
    for (size_t i = 0; i < n; i++)
        p[i] = (struct pollfd){.fd = s->clients[i]->fd, .events = s->clients[i]->phase == WRITING ? POLLOUT : POLLIN};
    p[n] = (struct pollfd){.fd = has_room(s) ? s->service->listener : -1, .events = POLLIN};
    if (poll(p, n + 1, (int)serving_wait_ms(s)) < 0) return;
    const int64_t now = clock_now_ns();
    for (size_t i = n; i-- > 0;)
        if ((p[i].revents && !attend_client(s, s->clients[i])) || now > s->clients[i]->until_ns) forget_client(s, i);
    if (p[n].revents & POLLIN) accept_client(s);
}

int fleet_serve(struct fleet *f, const struct fleet_service *service)
{
    struct server s = {.fleet = f, .service = service, .file_ns = clock_now_ns()};
    while (!stopped && (s.file_useful || !s.file_failed)) {
        poll_once(&s);
        fleet_refresh(f);
        fleet_analyse(f);
        if (service->textfile && clock_now_ns() >= s.file_ns) {
            write_textfile(&s);
            s.file_ns += (int64_t)(service->interval_s * 1e9);
        }
    }
    while (s.n) forget_client(&s, 0);
    if (service->textfile) remove_file(service->textfile);
    return s.file_failed && !s.file_useful ? EXIT_INPUT : EXIT_YES;
}
