#include "analyzer/launch/lacks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/base/term.h"
#include "analyzer/base/sort.h"
#include "schema/lacks.h"

enum { NAMED = 12 };

static struct gs_lacks *table;

const char *launch_lacks_table(void)
{
    static char path[64];

    if (!table) {
        int fd = memfd_create("gpuspy-lacks", MFD_CLOEXEC);
        if (fd < 0) return NULL;
        void *at = ftruncate(fd, sizeof *table) == 0
                       ? mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
        if (at == MAP_FAILED) {
            close(fd);
            return NULL;
        }
        /* The descriptor stays open, because the run's processes open the table through it. */
        snprintf(path, sizeof path, "/proc/%ld/fd/%d", (long)getpid(), fd);
        table = at;
        table->magic = GS_LACKS_MAGIC;
    }
    return path;
}

SORT_ORDER(order_lacks_by_name, struct launch_lack, strcmp(x->library, y->library) ?: strcmp(x->name, y->name))

SORT_ORDER(by_calls, struct launch_lack, SORT_DOWN(x->calls, y->calls) ?: order_lacks_by_name(x, y))

size_t launch_lacks_list(struct launch_lack **list)
{
    uint32_t used = table ? __atomic_load_n(&table->used, __ATOMIC_ACQUIRE) : 0;
    size_t n = 0, kept = 0;

    used = used < GS_LACKS ? used : GS_LACKS;
    struct launch_lack *l = *list = arena_realloc(NULL, used + 1, sizeof **list);
    EACH (row, table->rows, used) {
        if (!__atomic_load_n(&row->ready, __ATOMIC_ACQUIRE) || !(row->imports || row->calls)) continue;
        row->name[sizeof row->name - 1] = row->library[sizeof row->library - 1] =
            0; /* every process of the run can write to the table */
        l[n++] = (struct launch_lack){row->name, row->library, __atomic_load_n(&row->calls, __ATOMIC_RELAXED),
                                      row->refused != 0};
    }
    SORT(l, n, order_lacks_by_name);
    for (size_t i = 0; i < n; i++)
        if (kept && order_lacks_by_name(&l[kept - 1], &l[i]) == 0)
            l[kept - 1].calls += l[i].calls;
        else
            l[kept++] = l[i];
    SORT(l, kept, by_calls);
    return kept;
}

void launch_lacks_complain(void)
{
    struct launch_lack *list;
    size_t n = launch_lacks_list(&list), called = 0, used = 0;
    char names[NAMED * 128] = "", more[48] = "";

    while (called < n && list[called].calls) called++;
    for (size_t i = 0; i < called && i < NAMED; i++) {
        char times[40] = "once";
        if (list[i].calls > 1) snprintf(times, sizeof times, "%" PRIu64 " times", list[i].calls);
        used +=
            (size_t)snprintf(names + used, sizeof names - used, "%s%s (called %s)", i ? ", " : "", list[i].name, times);
    }
    if (called > NAMED) snprintf(more, sizeof more, " and %zu more", called - NAMED);
    if (called) complain("the simulated GPU lacks: %s%s; each call returned \"not supported\"", names, more);
    free(list);
}
