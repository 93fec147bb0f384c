#include "analyzer/import/trace_records.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/sort.h"

enum { PIECE = 1 << 10 }; /* records that are read or written at once */

struct piece { /* a range of a file, read in order */
    uint64_t at, end;
    size_t next, n; /* in records */
    struct import_trace_record *records;
};

struct import_records {
    char *beside;
    struct import_trace_record *held;
    size_t n, cap, most; /* most: how many may be in memory */
    uint64_t count;
    int pieces_fd, sorted_fd; /* -1: none */
    uint64_t pieces_end, sorted_end;
    ARENA_LIST(struct piece, pieces); /* a heap, by the first record that is not merged yet */
    struct piece all;                 /* the sorted file */
    int error;
};

struct import_records *import_records_new(const char *beside, size_t held)
{
    struct import_records *s = arena_realloc(NULL, 1, sizeof *s);
    *s = (struct import_records){.beside = strdup(beside), .most = held, .pieces_fd = -1, .sorted_fd = -1};
    return s;
}

static void free_pieces(struct import_records *s)
{
    for (size_t i = 0; i < s->pieces_n; i++) free(s->pieces[i].records);
    free(s->pieces);
    s->pieces = NULL;
    s->pieces_n = s->pieces_cap = 0;
    if (s->pieces_fd >= 0) close(s->pieces_fd);
    s->pieces_fd = -1;
}

void import_records_free(struct import_records *s)
{
    free_pieces(s);
    if (s->sorted_fd >= 0) close(s->sorted_fd);
    ARENA_RELEASE(s->all.records, s->held, s->beside, s);
}

SORT_ORDER(order_trace_records, struct import_trace_record,
           SORT_UP(x->at_ns, y->at_ns) ?: SORT_DOWN(x->duration_ns, y->duration_ns) ?: SORT_UP(x->number, y->number))

/* A file without a name. */
static int open_records_file(struct import_records *s)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s.sort", s->beside);
    int fd = -1;
    errno = ENAMETOOLONG;
    if (n > 0 && (size_t)n < sizeof path) fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        s->error = errno;
    else
        unlink(path);
    return fd;
}

static void write_to(struct import_records *s, int fd, uint64_t *end, const struct import_trace_record *records,
                     size_t n)
{
    const char *at = (const char *)records;
    for (size_t left = n * sizeof *records; left && !s->error;) {
        const ssize_t put = pwrite(fd, at, left, (off_t)*end);
        if (put <= 0 && errno == EINTR) continue;
        if (put <= 0) s->error = put < 0 ? errno : EIO;
        if (put <= 0) return;
        at += put;
        left -= (size_t)put;
        *end += (uint64_t)put;
    }
}

/* NULL: the piece has no further record. */
static struct import_trace_record *first_record_of(struct import_records *s, int fd, struct piece *p)
{
    if (p->next < p->n) return &p->records[p->next];
    if (p->at == p->end || s->error) return NULL;
    if (!p->records) p->records = arena_realloc(NULL, PIECE, sizeof *p->records);
    const uint64_t left = p->end - p->at;
    const size_t most = PIECE * sizeof *p->records, bytes = left < most ? (size_t)left : most;
    size_t have = 0;
    while (have < bytes) {
        const ssize_t got = pread(fd, (char *)p->records + have, bytes - have, (off_t)(p->at + have));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) s->error = got < 0 ? errno : EIO;
        if (got <= 0) return NULL;
        have += (size_t)got;
    }
    p->at += bytes;
    p->next = 0;
    p->n = bytes / sizeof *p->records;
    return p->records;
}

/* Sorts the first n records in memory and writes them; at most one record stays. */
static void write_piece(struct import_records *s, size_t n)
{
    SORT(s->held, n, order_trace_records);
    if (s->pieces_fd < 0) s->pieces_fd = open_records_file(s);
    struct piece p = {.at = s->pieces_end};
    if (!s->error) write_to(s, s->pieces_fd, &s->pieces_end, s->held, n);
    p.end = s->pieces_end;
    if (!s->error) *ARENA_ADD(s->pieces) = p;
    if (s->n > n) s->held[0] = s->held[n];
    s->n -= n;
}

struct import_trace_record *import_records_add(struct import_records *s)
{
    if (s->n == s->most) write_piece(s, s->n - 1); /* the caller may still change the last one */
    struct import_trace_record *r = ARENA_PUSH(s->held, s->n, s->cap);
    *r = (struct import_trace_record){.number = (uint32_t)s->count++};
    return r;
}

struct import_trace_record *import_records_last(struct import_records *s, size_t back)
{
    return s->n > back ? &s->held[s->n - 1 - back] : NULL;
}

void import_records_drop(struct import_records *s, size_t n)
{
    s->n -= n;
    s->count -= n;
}

uint64_t import_records_count(const struct import_records *s)
{
    return s->count;
}

static void sift_piece_down(struct piece *heap, size_t n, size_t i)
{
    for (;;) {
        size_t least = i;
        for (size_t child = 2 * i + 1; child < n && child <= 2 * i + 2; child++)
            if (order_trace_records(&heap[child].records[heap[child].next], &heap[least].records[heap[least].next]) < 0)
                least = child;
        if (least == i) return;
        const struct piece moved = heap[i];
        heap[i] = heap[least];
        heap[least] = moved;
        i = least;
    }
}

static void merge_pieces(struct import_records *s, void (*each)(void *, struct import_trace_record *), void *self)
{
    struct import_trace_record *out = arena_realloc(NULL, PIECE, sizeof *out);
    size_t out_n = 0, n = s->pieces_n;
    for (size_t i = 0; i < n && !s->error; i++) first_record_of(s, s->pieces_fd, &s->pieces[i]);
    for (size_t i = s->error ? 0 : n; i-- > 0;) sift_piece_down(s->pieces, n, i);
    while (n && !s->error) {
        struct piece *top = &s->pieces[0];
        out[out_n] = top->records[top->next++];
        each(self, &out[out_n++]);
        if (out_n == PIECE) {
            write_to(s, s->sorted_fd, &s->sorted_end, out, out_n);
            out_n = 0;
        }
        if (!first_record_of(s, s->pieces_fd, top)) {
            const struct piece empty = *top;
            *top = s->pieces[--n];
            s->pieces[n] = empty;
        }
        sift_piece_down(s->pieces, n, 0);
    }
    write_to(s, s->sorted_fd, &s->sorted_end, out, out_n);
    free(out);
}

bool import_records_sort(struct import_records *s, void (*each)(void *, struct import_trace_record *), void *self)
{
    if (s->pieces_fd < 0 && !s->error) {
        SORT(s->held, s->n, order_trace_records);
        for (size_t i = 0; i < s->n; i++) each(self, &s->held[i]);
        s->all = (struct piece){.n = s->n, .records = s->held};
        s->held = NULL;
        return true;
    }
    if (s->n) write_piece(s, s->n);
    free(s->held);
    s->held = NULL;
    s->sorted_fd = s->error ? -1 : open_records_file(s);
    if (!s->error) merge_pieces(s, each, self);
    free_pieces(s);
    s->all.end = s->sorted_end;
    return !s->error;
}

const struct import_trace_record *import_records_next(struct import_records *s)
{
    const struct import_trace_record *r = first_record_of(s, s->sorted_fd, &s->all);
    if (r) s->all.next++;
    return r;
}

int import_records_error(const struct import_records *s)
{
    return s->error;
}
