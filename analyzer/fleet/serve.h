/* Serves the metrics by HTTP/1.1, writes them to a file, or both, until SIGTERM or SIGINT. */
#pragma once

#include "analyzer/fleet/fleet.h"

struct fleet_service {
    int listener;         /* a listening socket, -1: none */
    const char *textfile; /* a folder in which gpuspy.prom is written every interval_s; NULL: none */
    double interval_s;
};

/* Listens on an address such as "127.0.0.1:9464", "[::1]:9464" or "localhost:0" (numeric, except localhost) and on no
 * other. Returns the socket; `address` receives the bound address. -1: one line in `why`; *usage: whether the text is
 * not an address. */
int fleet_listen(const char *text, char *address, size_t size, char *why, size_t why_size, bool *usage);
/* From here on SIGTERM and SIGINT end fleet_serve. */
void fleet_stop_on_signals(void);
/* Returns an exit status; if it is not 0, one line was printed on stderr. */
int fleet_serve(struct fleet *f, const struct fleet_service *service);

/* request.c. What a request asks for, judged by the part of its head that was read; an empty line ends the head. */
enum fleet_answer {
    FLEET_MORE, /* the head is not complete */
    FLEET_METRICS = 200,
    FLEET_BAD = 400,
    FLEET_NO_SUCH = 404,
    FLEET_NO_METHOD = 405,
    FLEET_TOO_LONG = 431,
    FLEET_NO_VERSION = 505,
};
struct fleet_request {
    bool head_only, openmetrics, is_index;
};
enum { FLEET_HEAD_MAX = 8192 };
enum fleet_answer fleet_request_read(const char *text, size_t n, struct fleet_request *out);
