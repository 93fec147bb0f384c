#include "analyzer/top/users.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/top/find.h"
#include "analyzer/base/sort.h"
#include "schema/nvml_abi.h"

enum { EVERY_S = 2, PROCESSES = 512, LISTS = 2 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    bool started, over; /* over: NVML is not available */
    struct top_users users;
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER, .answered = PTHREAD_COND_INITIALIZER};

typedef int list_function(nvml_abi_device, unsigned *, void *);

static struct {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*device)(unsigned, nvml_abi_device *);
    list_function *list[LISTS];
} nvml;

static void *find_nvml_function(void *library, const char *newest, const char *older)
{
    void *found = dlsym(library, newest);
    return found ? found : dlsym(library, older);
}

static bool open_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library) return false;
    nvml.init = (int (*)(void))find_nvml_function(library, "nvmlInit_v2", "nvmlInit");
    nvml.count = (int (*)(unsigned *))find_nvml_function(library, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount");
    nvml.device = (int (*)(unsigned, nvml_abi_device *))find_nvml_function(library, "nvmlDeviceGetHandleByIndex_v2",
                                                                           "nvmlDeviceGetHandleByIndex");
    nvml.list[0] = (list_function *)find_nvml_function(library, "nvmlDeviceGetComputeRunningProcesses_v2",
                                                       "nvmlDeviceGetComputeRunningProcesses");
    nvml.list[1] = (list_function *)find_nvml_function(library, "nvmlDeviceGetMPSComputeRunningProcesses_v2",
                                                       "nvmlDeviceGetMPSComputeRunningProcesses");
    return nvml.init && nvml.count && nvml.device && nvml.list[0] && nvml.init() == NVML_ABI_SUCCESS;
}

/* Does the id mean this process here? Then it has loaded the driver. */
static bool uses_cuda(uint32_t pid)
{
    char path[64], *line = NULL;
    size_t size = 0;
    bool found = false;
    snprintf(path, sizeof path, "/proc/%u/maps", pid);
    FILE *f = fopen(path, "re");
    while (f && !found && getline(&line, &size, f) > 0) found = strstr(line, "/libcuda.so") != NULL;
    free(line);
    if (f) fclose(f);
    return found;
}

static void add_user(struct top_users *users, int device, const struct nvml_abi_process *p, bool ids_are_ours)
{
    struct top_found found;
    for (size_t i = 0; i < users->n; i++)
        if (users->at[i].pid == p->pid && users->at[i].device == device) return; /* it can be in both lists */
    if (p->pid == (uint32_t)getpid() || (!ids_are_ours && !uses_cuda(p->pid))) return;
    if (top_find_process(p->pid, &found)) {
        ARENA_RELEASE(found.database, found.command);
        return;
    }
    const int64_t bytes = p->bytes > INT64_MAX ? -1 : (int64_t)p->bytes;
    users->at = arena_realloc(users->at, users->n + 1, sizeof *users->at);
    users->at[users->n++] = (struct top_user){p->pid, device, bytes, top_command_of(p->pid)};
}

static void read_user_list(struct top_users *users, int device, list_function *list, nvml_abi_device handle)
{
    static uint8_t room[PROCESSES * NVML_ABI_PROCESS_MOST] __attribute__((aligned(8)));
    unsigned n = PROCESSES;
    memset(room, NVML_ABI_PATTERN, sizeof room);
    if (!list || list(handle, &n, room) != NVML_ABI_SUCCESS || n == 0 || n > PROCESSES) return;
    const bool ids_are_ours = nvml_abi_ids_are_ours();
    const size_t stride = nvml_abi_stride(room, sizeof room, n);
    for (unsigned i = 0; stride && i < n; i++)
        add_user(users, device, (const struct nvml_abi_process *)(const void *)(room + i * stride), ids_are_ours);
}

SORT_ORDER(order_users_by_pid, struct top_user, SORT_UP(x->pid, y->pid) ?: SORT_UP(x->device, y->device))

static struct top_users ask_users(void)
{
    struct top_users users = {.known = true};
    unsigned devices = 0;
    nvml_abi_device handle;
    if (nvml.count(&devices) != NVML_ABI_SUCCESS) users.known = false;
    for (unsigned i = 0; i < devices; i++)
        for (int k = 0; nvml.device(i, &handle) == NVML_ABI_SUCCESS && k < LISTS; k++)
            read_user_list(&users, (int)i, nvml.list[k], handle);
    SORT(users.at, users.n, order_users_by_pid);
    return users;
}

void top_users_free(struct top_users *users)
{
    for (size_t i = 0; i < users->n; i++) free(users->at[i].command);
    free(users->at);
    *users = (struct top_users){0};
}

static void publish_users(struct top_users users, bool over)
{
    pthread_mutex_lock(&shared.lock);
    top_users_free(&shared.users);
    shared.users = users;
    shared.over = over;
    pthread_cond_broadcast(&shared.answered);
    pthread_mutex_unlock(&shared.lock);
}

static void *run_users_thread(void *unused)
{
    bool open = open_nvml();
    publish_users(open ? ask_users() : (struct top_users){0}, !open);
    while (open) {
        sleep(EVERY_S);
        publish_users(ask_users(), false);
    }
    return NULL;
}

/* Locked. */
static void start_users_thread(int wait_ms)
{
    pthread_t thread;
    struct timespec until;
    sigset_t all, before;
    shared.started = true;
    sigfillset(&all); /* signals are for the thread that waits for keys */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    shared.over = pthread_create(&thread, NULL, run_users_thread, NULL) != 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (shared.over) return;
    pthread_detach(thread);
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += wait_ms / 1000;
    while (!shared.users.known && !shared.over && pthread_cond_timedwait(&shared.answered, &shared.lock, &until) == 0) {
    }
}

void top_users_update(struct top_users *users, int wait_ms)
{
    top_users_free(users);
    pthread_mutex_lock(&shared.lock);
    if (!shared.started) start_users_thread(wait_ms);
    *users = shared.users;
    if (users->n) users->at = arena_realloc(NULL, users->n, sizeof *users->at);
    for (size_t i = 0; i < users->n; i++) {
        users->at[i] = shared.users.at[i];
        users->at[i].command = users->at[i].command ? strdup(users->at[i].command) : NULL;
    }
    pthread_mutex_unlock(&shared.lock);
}
