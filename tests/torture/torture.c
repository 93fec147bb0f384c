/* torture SHARED BEHAVIOUR[=NUMBER] …: does what the behaviours of behaviours.def do, in this order.
 * torture --list prints the table. SHARED is the file of struct t_shared, which torture.py creates and reads. */
#include "tests/torture/torture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct t_shared *t_shared;
_Atomic unsigned t_plugin_mode;
char **t_rest;
static char own_path[PATH_MAX], own_folder[PATH_MAX], shared_path[PATH_MAX];

static const struct behaviour {
    const char *name;
    void (*act)(uint32_t n);
    const char *family, *place, *needs;
    int weight;
    const char *what;
} behaviours[] = {
#define BEHAVIOUR(name, family, place, needs, weight, what) {#name, name, #family, #place, needs, weight, what},
#include "tests/torture/behaviours.def"
#undef BEHAVIOUR
};

/* --- counts --------------------------------------------------------------------------------------------- */

/* A child inherits its parent's flags. */
static uint32_t inherited_flags(pid_t parent)
{
    const uint32_t used = t_shared->slots;
    for (uint32_t i = 0; i < used && i < T_SLOTS; i++) {
        if (t_shared->slot[i].pid != parent) continue;
        const uint32_t flags = t_shared->slot[i].flags & ~(uint32_t)T_STOPPED;
        return flags & T_CHILDREN_FREE ? flags | T_UNRECORDED | T_MAY_LOSE : flags;
    }
    return 0;
}

/* By pid, because children of every kind share or copy this memory. */
struct t_slot *t_slot(void)
{
    static _Atomic uint64_t cached; /* pid and number */
    const uint64_t pid = (uint32_t)getpid();
    uint64_t now = cached;
    if (now >> 32 == pid) return &t_shared->slot[(uint32_t)now];
    uint32_t used = t_shared->slots, i;
    for (i = 0; i < used && i < T_SLOTS; i++)
        if (t_shared->slot[i].pid == (int32_t)pid) break;
    if (i == used) i = t_shared->slots++;
    if (i >= T_SLOTS) i = T_SLOTS - 1;
    /* a daemon's parent has ended, perhaps: its memory names the process that it was copied from */
    if (!t_shared->slot[i].pid)
        t_shared->slot[i].flags |= inherited_flags(getppid()) | (now ? inherited_flags((pid_t)(now >> 32)) : 0);
    t_shared->slot[i].pid = (int32_t)pid;
    cached = pid << 32 | i;
    return &t_shared->slot[i];
}

void t_flag(unsigned flags)
{
    t_slot()->flags |= flags;
}

void t_ending(void)
{
    struct t_slot *slot = t_slot();
    if (slot->flags & T_STOPPED) return;
    for (int i = 0; i < T_KINDS; i++) slot->floor[i] = slot->returned[i];
    slot->flags |= T_STOPPED;
}

/* Whether the error comes from the limit on open files: malloc, which counts the processors in a thread's first call,
 * or simcuda's memory file leaves it in errno, recorded or not. */
static bool out_of_files(int error)
{
    struct rlimit files;
    return (error == EMFILE || error == EINVAL) && !getrlimit(RLIMIT_NOFILE, &files) && files.rlim_cur <= 600;
}

void t_work(unsigned pairs)
{
    static const char bytes[64];
    const int before = errno;
    errno = 4321;
    for (unsigned i = 0; i < pairs; i++) {
        void *pointer = t_malloc(1024 + i);
        if (i % 4 == 0) t_copy(pointer, bytes, sizeof bytes);
        if (i % 8 == 0) t_sync();
        t_free(pointer);
    }
    if (errno != 4321 && !out_of_files(errno)) t_log("WRONG: errno became %d", errno);
    errno = before;
}

void t_deep_work(unsigned depth, unsigned pairs)
{
    volatile char room[64];
    room[0] = (char)depth;
    if (depth)
        t_deep_work(depth - 1, pairs);
    else
        t_work(pairs);
    room[1] = room[0];
}

/* --- log ------------------------------------------------------------------------------------------------ */

void t_log(const char *format, ...)
{
    char line[400];
    va_list arguments;
    va_start(arguments, format);
    int len = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (len < 0) return;
    if (len > (int)sizeof line - 2) len = sizeof line - 2;
    line[len++] = '\n';
    const uint32_t at = __atomic_fetch_add((uint32_t *)&t_shared->log_used, (uint32_t)len, __ATOMIC_SEQ_CST);
    if (at + (uint32_t)len < T_LOG_BYTES) memcpy(t_shared->log + at, line, (size_t)len);
}

void t_wrong(const char *text, const char *file, int line)
{
    t_log("WRONG: %s (%s:%d)", text, file, line);
}

static void list_descriptors(char *line, size_t size)
{
    char path[32], target[100];
    size_t used = 0;
    line[0] = 0;
    for (int fd = 0; fd < 500; fd++) {
        if (fcntl(fd, F_GETFD) < 0) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        ssize_t len = readlink(path, target, sizeof target - 1);
        target[len > 0 ? len : 0] = 0;
        if (used < size) used += (size_t)snprintf(line + used, size - used, " %d %s", fd, target);
    }
    int next = open("/dev/null", O_RDONLY);
    if (next >= 0) close(next);
    if (used < size) snprintf(line + used, size - used, "; next %d", next);
}

/* Repeats until two lists are equal: while NVML is being loaded, a thread of the recorder has a low number for a
 * moment. */
void t_log_descriptors(const char *when)
{
    char line[350], again[350];
    list_descriptors(again, sizeof again);
    for (int tries = 0; tries < 100; tries++) {
        memcpy(line, again, sizeof line);
        list_descriptors(again, sizeof again);
        if (strcmp(line, again) == 0) break;
        t_sleep_us(1000);
    }
    t_log("descriptors after %s:%s", when, again);
}

void t_log_children(const char *when)
{
    siginfo_t info = {.si_pid = 0};
    int result = waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT);
    t_log("children after %s: %s", when, result < 0 ? "none" : info.si_pid ? "ended" : "running");
}

void t_log_end_of(const char *who, pid_t child)
{
    int status = 0;
    pid_t got;
    while ((got = waitpid(child, &status, 0)) < 0 && errno == EINTR) continue;
    if (got < 0)
        t_log("%s: no child", who);
    else
        t_log("%s: %s %d", who, WIFSIGNALED(status) ? "signal" : "exit",
              WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
}

/* --- tools ---------------------------------------------------------------------------------------------- */

uint32_t t_next(uint32_t *random)
{
    *random = *random * 1664525u + 1013904223u;
    return *random >> 8;
}

unsigned t_pick(uint32_t *random, unsigned from, unsigned to)
{
    return from + t_next(random) % (to - from + 1);
}

void t_sleep_us(unsigned us)
{
    struct timespec left = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

pthread_t t_start(void *(*run)(void *), void *argument, size_t stack)
{
    pthread_t thread;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    if (stack) pthread_attr_setstacksize(&attr, stack);
    int failed = pthread_create(&thread, &attr, run, argument);
    pthread_attr_destroy(&attr);
    if (!failed) return thread;
    t_log("WRONG: no thread: %s", strerror(failed));
    return 0;
}

enum { CREW = 64 };
static pthread_t crew[CREW];
static unsigned crew_size;
static _Atomic bool crew_stops;

static void *crew_work(void *unused)
{
    (void)unused;
    while (!crew_stops) {
        t_deep_work(5, 3);
        t_sleep_us(300);
    }
    return NULL;
}

void t_crew_start(unsigned threads)
{
    crew_stops = false;
    for (crew_size = 0; crew_size < threads && crew_size < CREW; crew_size++)
        crew[crew_size] = t_start(crew_work, NULL, 0);
}

void t_crew_stop(void)
{
    crew_stops = true;
    while (crew_size)
        if (crew[--crew_size]) pthread_join(crew[crew_size], NULL);
}

void t_meet(const char *act, pid_t child)
{
    snprintf(t_shared->meeting, sizeof t_shared->meeting, "%s", act);
    t_shared->child = (uint32_t)child;
    const uint32_t number = ++t_shared->request;
    while (t_shared->reply != number) t_sleep_us(1000);
}

const char *t_plugin(unsigned number)
{
    static __thread char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/plugin%u.so", own_folder, number % T_PLUGINS);
    return path;
}

static char **words_of(const char *first, char **more)
{
    static char *words[200];
    static char text[64];
    size_t count = 0;
    words[count++] = own_path;
    words[count++] = shared_path;
    if (first) {
        snprintf(text, sizeof text, "%s", first);
        words[count++] = text;
    }
    for (; more && *more && count < sizeof words / sizeof *words - 1; more++) words[count++] = *more;
    words[count] = NULL;
    return words;
}

void t_become(char **behaviours_left)
{
    execv(own_path, words_of("again", behaviours_left));
    t_log("exec failed: %s", strerror(errno));
    _exit(126);
}

char **t_leaf(unsigned pairs)
{
    char text[64];
    snprintf(text, sizeof text, "leaf=%u", pairs);
    return words_of(text, NULL);
}

/* --- main ----------------------------------------------------------------------------------------------- */

static int list(void)
{
    for (size_t i = 0; i < sizeof behaviours / sizeof *behaviours; i++) {
        const struct behaviour *b = &behaviours[i];
        printf("%s\t%s\t%s\t%s\t%d\t%s\n", b->name, b->family, b->place, b->needs, b->weight, b->what);
    }
    return 0;
}

/* The mapping outlives its descriptor, and needs neither the folder nor the file's name. */
static bool map_shared(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return false;
    t_shared = mmap(NULL, sizeof *t_shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return t_shared != MAP_FAILED && t_shared->magic == T_MAGIC;
}

static void remember_paths(const char *shared)
{
    ssize_t len = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    own_path[len > 0 ? len : 0] = 0;
    snprintf(own_folder, sizeof own_folder, "%s", own_path);
    *strrchr(own_folder, '/') = 0;
    if (!realpath(shared, shared_path)) snprintf(shared_path, sizeof shared_path, "%s", shared);
}

static void write_all(int fd, const char *text)
{
    ssize_t unused = write(fd, text, strlen(text));
    (void)unused;
}

static void act(const char *item)
{
    char name[64], line[100];
    const char *equals = strchr(item, '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - item : (long)strlen(item)), item);
    for (size_t i = 0; i < sizeof behaviours / sizeof *behaviours; i++) {
        if (strcmp(behaviours[i].name, name) != 0) continue;
        behaviours[i].act(equals ? (uint32_t)strtoul(equals + 1, NULL, 10) : 0);
        t_log_descriptors(name);
        snprintf(line, sizeof line, "done %s\n", name);
        write_all(STDOUT_FILENO, line);
        /* set if nobody reads stderr: the write would block */
        if (!getenv("TORTURE_QUIET")) write_all(STDERR_FILENO, line);
        return;
    }
    fprintf(stderr, "torture: no behaviour %s\n", name);
    exit(99);
}

int main(int argc, char **argv)
{
    struct stat tasks;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) return list();
    if (argc < 3 || !map_shared(argv[1])) {
        fprintf(stderr, "usage: torture SHARED BEHAVIOUR[=NUMBER] …, or torture --list\n");
        return 99;
    }
    remember_paths(argv[1]);
    t_slot();
    for (char **item = argv + 2; *item; item++) {
        t_rest = item + 1;
        act(*item);
    }
    t_log_children("all");
    if (!stat("/proc/self/task", &tasks)) t_log("threads: %ld", (long)tasks.st_nlink - 2);
    t_ending();
    return 3;
}
