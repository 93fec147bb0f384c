/* Other tools' recordings of the ranks of one job: their content states the rank, or their name does. See
 * run_internal.h. */
#include "analyzer/run/run_internal.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "analyzer/base/arena.h"

enum { LONGEST_RANK = 6 };
static const int64_t apart_ns = 3600 * (int64_t)1000000000; /* recordings of one job are at most this far apart */

/* "out/rank-3_snapshot.pickle" and "rank" → 3; -1: it has no such word, or no number after it. */
static int64_t number_after(const char *base, const char *word)
{
    const size_t length = strlen(word);
    for (const char *at = base; *at; at++) {
        if (strncasecmp(at, word, length) != 0 || (at > base && isalpha((unsigned char)at[-1]))) continue;
        const char *digits = at + length + (at[length] && strchr("-_=. ", at[length]));
        const size_t n = strspn(digits, "0123456789");
        if (n > 0 && n <= LONGEST_RANK) return atoll(digits);
    }
    return -1;
}

int64_t run_rank_of_name(const char *path)
{
    static const char *const words[] = {"rank", "worker", "process", "proc", "gpu", "device"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const int64_t rank = number_after(basename(path), words[i]);
        if (rank >= 0) return rank;
    }
    return RUN_UNKNOWN;
}

/* The rank that the content states; else, for a file of one process, the rank in its name. */
static int64_t rank_of(const struct run *run, size_t from, size_t i)
{
    const struct run_process *p = &run->processes[i];
    const bool shared =
        (i > from && p[-1].database == p->database) || (i + 1 < run->processes_n && p[1].database == p->database);
    return p->rank >= 0 || shared ? p->rank : run_rank_of_name(p->path);
}

/* Each process has a rank, and no two the same; else a line in `error`. */
static bool have_ranks(const struct run *run, size_t from, const char *folder, char *error, size_t error_size)
{
    struct map process_of = {0}; /* rank → index */
    bool ok = true;
    for (size_t i = from; ok && i < run->processes_n; i++) {
        const int64_t rank = rank_of(run, from, i);
        const char *path = run->processes[i].path;
        uint32_t *other = rank < 0 ? NULL : map_at(&process_of, (uint64_t)rank);
        if (!other) {
            ok = run_fail(error, error_size,
                          "cannot read '%s': it holds recordings of other tools that may be of different runs: neither "
                          "the name of '%s', such as rank0, nor its content states a rank; name one, or all files of "
                          "one run",
                          folder, path);
        } else if (*other != MAP_NEW) {
            ok = run_fail(error, error_size,
                          "cannot read '%s': '%s' and '%s' are both of rank %lld; name one recording of each rank",
                          folder, run->processes[*other].path, path, (long long)rank);
        } else {
            *other = (uint32_t)i;
        }
    }
    map_free(&process_of);
    return ok;
}

/* Files with an unknown time are not compared. */
static bool are_files_of_one_time(const struct run *run, size_t from, const char *folder, char *error,
                                  size_t error_size)
{
    const struct run_process *last = NULL, *first = NULL; /* that begins last, that ends first */
    int64_t first_end = 0;
    for (size_t i = from; i < run->processes_n; i++) {
        const struct run_process *p = &run->processes[i];
        if (p->start_real_ns == RUN_UNKNOWN || p->start_real_ns <= 0) continue;
        const int64_t end = arena_add_capped(p->start_real_ns, p->end_ns > 0 ? p->end_ns : 0);
        if (!last || p->start_real_ns > last->start_real_ns) last = p;
        if (!first || end < first_end) {
            first = p;
            first_end = end;
        }
    }
    return !last || last->start_real_ns <= arena_add_capped(first_end, apart_ns) ||
           run_fail(
               error, error_size,
               "cannot read '%s': '%s' begins hours after '%s' ends, so they are of different runs; name one, or all "
               "files of one run",
               folder, last->path, first->path);
}

bool run_are_ranks(struct run *run, size_t from, const char *folder, char *error, size_t error_size)
{
    if (!have_ranks(run, from, folder, error, error_size) ||
        !are_files_of_one_time(run, from, folder, error, error_size))
        return false;
    for (size_t i = from; i < run->processes_n; i++) run->processes[i].rank = rank_of(run, from, i);
    return true;
}
