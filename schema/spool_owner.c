/* Identifies the process that owns a spool, and whether it still records. */
#include "schema/spool.h"
#include "schema/spool_file.h"
#include "schema/open_high.h"
#include "schema/system_call.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---------------------------------------------------------------- processes */

struct process {
    char state;
    uint64_t threads, start_ticks;
};

static bool read_owner_process(uint32_t pid, struct process *p)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/stat", pid);
    int fd = gs_open_high(path, O_RDONLY, 0);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n > 0 ? n : 0] = 0;
    char *at = strrchr(text, ')'); /* the name before it may contain anything */
    if (!at || at[1] != ' ') return false;
    p->state = at[2];
    for (int field = 2; at && field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at && field + 1 == 20) p->threads = strtoull(at + 1, NULL, 10);
    }
    p->start_ticks = at ? strtoull(at + 1, NULL, 10) : 0;
    return p->start_ticks != 0;
}

/* Field 22 of /proc/pid/stat, 0 if it cannot be read. */
static uint64_t gs_process_start_ticks(uint32_t pid)
{
    struct process p;
    return read_owner_process(pid, &p) ? p.start_ticks : 0;
}

static bool is_gone(const struct process *p, uint64_t start_ticks)
{
    /* a main thread that ended by pthread_exit is a zombie while the others continue */
    const bool zombie = p->state == 'X' || p->state == 'x' || (p->state == 'Z' && p->threads < 2);
    return zombie || p->start_ticks != start_ticks;
}

bool gs_process_is_gone(uint32_t pid, uint64_t start_ticks)
{
    struct process p;
    if (!read_owner_process(pid, &p) ||
        !start_ticks) /* /proc cannot be read here, or could not be read in the recorder */
        return kill((pid_t)pid, 0) && errno == ESRCH;
    return is_gone(&p, start_ticks);
}

/* After the first thread of a process has ended, its /proc/self has neither namespaces nor program nor arguments. */
uint64_t gs_namespace(const char *which)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "/proc/thread-self/ns/%s", which);
    return gs_path_status(path, &st) ? 0 : (uint64_t)st.st_ino;
}

void gs_spool_identify(struct gs_spool_control *c)
{
    int fd = gs_open_high("/proc/sys/kernel/random/boot_id", O_RDONLY, 0);
    ssize_t n = fd < 0 ? 0 : read(fd, c->boot_id, sizeof c->boot_id - 1);
    if (fd >= 0) close(fd);
    while (n > 0 && isspace((unsigned char)c->boot_id[n - 1])) n--;
    c->boot_id[n > 0 ? n : 0] = 0;
    gethostname(c->host, sizeof c->host - 1);
    c->pid = (uint32_t)getpid();
    c->process_start_ticks = gs_process_start_ticks(c->pid);
    c->pid_namespace = gs_namespace("pid");
    c->ipc_namespace = gs_namespace("ipc");
}

/* ---------------------------------------------------------------- who has it mapped */

/* Segments appear in maps with their id as inode number, private memory only by its address. */
static bool is_line_of(const char *line, const struct gs_spool_control *c)
{
    unsigned long long from = 0, inode = 0;
    char name[16] = "";
    if (sscanf(line, "%llx-%*s %*s %*s %*s %llu %15s", &from, &inode, name) < 2) return false;
    return c->shmid < 0 ? from == c->address : inode == (unsigned long long)c->shmid && !strncmp(name, "/SYSV", 5);
}

/* 1 yes, 0 no, -1 unknown: its maps cannot be read. */
static int maps_spool(const struct gs_spool_control *c)
{
    char path[64], *line = NULL;
    size_t size = 0;
    snprintf(path, sizeof path, "/proc/%" PRIu32 "/maps", c->pid);
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    bool found = false, any = false;
    while (!found && getline(&line, &size, f) > 0) {
        any = true;
        found = is_line_of(line, c);
    }
    free(line);
    fclose(f);
    return found ? 1 : any ? 0 : -1;
}

/* Does any process have the segment attached? 1 yes, 0 no, -1 the segment does not exist, -2 unknown. */
static int is_attached(const struct gs_spool_control *c)
{
    struct shmid_ds ds;
    if (c->shmid < 0) return -1;
    if (shmctl(c->shmid, IPC_STAT, &ds)) return errno == EINVAL || errno == EIDRM ? -1 : -2;
    if (ds.shm_segsz != GS_SPOOL_BYTES) return -1;
    return ds.shm_nattch > 0;
}

/* ---------------------------------------------------------------- the answer */

static bool owner_lives(const struct gs_spool_control *c, int attached)
{
    struct process p;
    if (c->pid_namespace != gs_namespace("pid")) return attached == 1;
    if (!read_owner_process(c->pid, &p) || !c->process_start_ticks)
        return attached == 1 && !gs_process_is_gone(c->pid, c->process_start_ticks);
    if (is_gone(&p, c->process_start_ticks)) return false;
    const int maps = p.state == 'Z' ? -1 : maps_spool(c);
    return maps < 0 ? attached == 1 || attached == -2 || c->shmid < 0 : maps;
}

static struct gs_spool_control control_here(void)
{
    struct gs_spool_control own = {.shmid = -1};
    gs_spool_identify(&own);
    return own;
}

enum gs_spool_state gs_spool_state(const struct gs_spool_control *c)
{
    const struct gs_spool_control own = control_here();
    /* A recorder without /proc knows neither: the segment's cookie shows whether it is the spool's. */
    if (*c->boot_id && strcmp(c->boot_id, own.boot_id) != 0)
        return strcmp(c->host, own.host) == 0 ? GS_SPOOL_LOST : GS_SPOOL_ELSEWHERE;
    const bool foreign = c->ipc_namespace && c->ipc_namespace != own.ipc_namespace;
    if (foreign && c->pid_namespace != own.pid_namespace) return GS_SPOOL_ELSEWHERE;
    const int attached = foreign ? -2 : is_attached(c);
    if (owner_lives(c, attached)) return GS_SPOOL_RECORDING;
    if (foreign) return GS_SPOOL_ELSEWHERE;
    return attached == -1 ? GS_SPOOL_LOST : GS_SPOOL_LEFT;
}

bool gs_spool_is_own(const struct gs_spool_control *c)
{
    const struct gs_spool_control own = control_here();
    return c->pid == own.pid && own.process_start_ticks && c->process_start_ticks == own.process_start_ticks &&
           c->pid_namespace == own.pid_namespace && !strcmp(c->boot_id, own.boot_id);
}

uint32_t gs_spool_owner(const char *path)
{
    struct gs_spool_control c;
    char error[160];
    if (gs_spool_read_control(path, &c, error, sizeof error) || gs_spool_state(&c) != GS_SPOOL_RECORDING) return 0;
    return c.pid_namespace == gs_namespace("pid") ? c.pid : 1;
}
