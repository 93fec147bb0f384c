/* Behaviours in which the driver manipulates the recording's files while the program calls CUDA. */
#include "tests/torture/torture.h"

#include <pthread.h>
#include <string.h>

static void meet_at_work(const char *act, uint32_t n)
{
    t_flag(T_MAY_LOSE | T_UNRECORDED);
    if (n & 1) t_work(200);
    t_crew_start(t_pick(&n, 1, 8));
    t_sleep_us(t_pick(&n, 0, 1) ? 200000 : 2000);
    t_meet(act, 0);
    t_deep_work(10, 500);
    t_sleep_us(t_pick(&n, 0, 1) ? 1500000 : 2000); /* in half of the cases long enough for a commit of the database */
    t_deep_work(12, 500);
    t_crew_stop();
}

void outside_truncate(uint32_t n)
{
    meet_at_work(n / 2 % 2 ? "truncate to half" : "truncate to nothing", n);
}

void outside_delete(uint32_t n)
{
    static const char *const acts[] = {"delete all", "delete the database", "delete the others"};
    meet_at_work(acts[n / 2 % 3], n);
}

void outside_rename(uint32_t n)
{
    meet_at_work("rename", n);
}

void outside_replace(uint32_t n)
{
    meet_at_work("replace", n);
}

void outside_fill(uint32_t n)
{
    meet_at_work("fill", n);
    crowd(n);
}

void outside_gone(uint32_t n)
{
    static const char *const acts[] = {"remove the folder", "unmount", "read-only"};
    meet_at_work(acts[n / 2 % 3], n);
}

enum { CROWD = 300 };
static pthread_barrier_t barrier;

static void *begin_together(void *unused)
{
    (void)unused;
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 20; i++) t_deep_work(5, 5);
    return NULL;
}

/* All threads need space in the recording at the same moment. */
void crowd(uint32_t n)
{
    pthread_t threads[CROWD];
    unsigned count = 0;
    if (n & 1) t_work(1);
    pthread_barrier_init(&barrier, NULL, CROWD);
    while (count < CROWD && (threads[count] = t_start(begin_together, NULL, 256 * 1024))) count++;
    if (count < CROWD) return; /* the others wait forever; the log has the error */
    while (count) pthread_join(threads[--count], NULL);
    pthread_barrier_destroy(&barrier);
}
