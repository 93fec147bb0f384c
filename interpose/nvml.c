/* Samples of the devices by NVML, made by a thread of their own: a driver that hangs blocks only
 * this thread, and no other thread waits for the dynamic loader.
 *
 * Samples go through the spool, as the application's events do, so that a kill loses none. The thread
 * shares the program's descriptors, because the program may use NVML itself: both then use one copy of
 * the library, which counts calls of nvmlInit and nvmlShutdown. */
#include "interpose/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "interpose/arguments.h"
#include "interpose/clock.h"
#include "interpose/config.h"
#include "interpose/device.h"
#include "interpose/limit_value.h"
#include "schema/nvml_abi.h"
#include "interpose/recorder.h"
#include "interpose/resolve.h"
#include "interpose/shield.h"
#include "schema/open_high.h"
#include "schema/system_call.h"

#define STACK_BYTES (1024 * 1024) /* NVML's functions run on it */
#define EVERY_NS 1000000000ull
#define SOON_NS 100000000ull
#define REST 20 /* samples take at most 1/REST of the time */
#define USE_ROUNDS 4
#define TOO_LONG_NS 5000000000ull /* a driver slower than that twice in a row is not queried again */
#define PATIENCE_MS 1000 /* how long the program waits for NVML at most: at its first CUDA call, in fork, at exit */
#define LOADER_MS 20     /* the same for the loader, whose lock may be held by a thread that waits for this one */
#define DEVICES 64
#define PROCESSES 512

enum state { CLOSED, OPEN, OFF };
enum stage { NO_THREAD, STARTED, RUNNING, LOADER_PASSED, OPENED, ENDED };

static struct {
    pthread_rwlock_t lock; /* held during calls of NVML and while the writer is used; forks share it */
    bool late;             /* the last samples took longer than TOO_LONG_NS: the process may have been stopped */
    _Atomic bool slow;     /* a fork waited without success: later ones do not wait until NVML has responded */
    enum state state;
    bool listed_whole; /* process ids mean the same to NVML and to this process */
    _Atomic enum stage stage;
    _Atomic bool due, over;
    _Atomic bool exits;       /* the program: one more sample is due, however recent the last one is */
    _Atomic uint32_t samples; /* made so far */
    _Atomic uint32_t wake;    /* 1: the thread is to check what is due */
    pid_t pid;
    uint64_t next_ns;
    uint64_t soonest_ns; /* not before this, after a failure */
    struct gs_spool *spool;
    struct gs_writer writer;
    nvml_abi_device device[DEVICES];
    uint64_t missing; /* one bit per device */
} nvml = {.lock = PTHREAD_RWLOCK_INITIALIZER};
static __thread bool inside __attribute__((tls_model("initial-exec")));
static __thread bool locked __attribute__((tls_model("initial-exec"))); /* locked by a fork of this thread */

/* --- the library ------------------------------------------------------------------------------ */

typedef int list_function(nvml_abi_device, unsigned int *, void *);

static struct {
    int (*init)(void);
    int (*by_bus)(const char *, nvml_abi_device *);
    int (*memory)(nvml_abi_device, struct nvml_abi_memory *);
    int (*utilization)(nvml_abi_device, struct nvml_abi_utilization *);
    int (*temperature)(nvml_abi_device, int, unsigned int *);
    int (*name)(unsigned int, char *, unsigned int);
    list_function *list[3];
} call;

/* Newest first, except for the lists. */
static const struct {
    size_t place;
    const char *names[4];
} functions[] = {
    {offsetof(__typeof__(call), init), {"nvmlInit_v2", "nvmlInit"}},
    {offsetof(__typeof__(call), by_bus), {"nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"}},
    {offsetof(__typeof__(call), memory), {"nvmlDeviceGetMemoryInfo"}},
    {offsetof(__typeof__(call), utilization), {"nvmlDeviceGetUtilizationRates"}},
    {offsetof(__typeof__(call), temperature), {"nvmlDeviceGetTemperature"}},
    {offsetof(__typeof__(call), name), {"nvmlSystemGetProcessName"}},
#define LIST(i, name)                        \
    {                                        \
        offsetof(__typeof__(call), list[i]), \
        {                                    \
            name "_v2", name "_v3", name     \
        }                                    \
    }
    LIST(0, "nvmlDeviceGetComputeRunningProcesses"),
    LIST(1, "nvmlDeviceGetGraphicsRunningProcesses"),
    LIST(2, "nvmlDeviceGetMPSComputeRunningProcesses"),
};

static bool find_nvml_functions(void *library)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *found = NULL;
        for (const char *const *name = functions[i].names; *name && !found; name++)
            found = gs_real_dlsym(library, *name);
        memcpy((char *)&call + functions[i].place, &found, sizeof found);
    }
    return call.init && call.by_bus && call.memory;
}

static void open_library(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    const bool found = library && find_nvml_functions(library);
    pthread_rwlock_wrlock(&nvml.lock);
    nvml.state = found && call.init() == NVML_ABI_SUCCESS ? OPEN : OFF;
    nvml.listed_whole = nvml_abi_ids_are_ours();
    pthread_rwlock_unlock(&nvml.lock);
}

/* --- the processes that hold a device's memory ------------------------------------------------- */

struct holder {
    uint32_t pid;
    uint64_t bytes; /* NVML_ABI_UNKNOWN */
};
struct holders {
    struct holder at[PROCESSES];
    unsigned n;
    bool known; /* every list could be read */
};

/* A process can be in several lists, with the same figures in each. */
static void add_holder(struct holders *h, const struct nvml_abi_process *p)
{
    unsigned i = 0;
    while (i < h->n && h->at[i].pid != p->pid) i++;
    if (i == PROCESSES) {
        h->known = false;
        return;
    }
    if (i == h->n)
        h->at[h->n++] = (struct holder){p->pid, p->bytes};
    else if (p->bytes > h->at[i].bytes)
        h->at[i].bytes = p->bytes;
}

static void read_holder_list(struct holders *h, list_function *list, nvml_abi_device device)
{
    static uint8_t room[PROCESSES * NVML_ABI_PROCESS_MOST] __attribute__((aligned(8)));
    unsigned int n = PROCESSES;
    memset(room, NVML_ABI_PATTERN, sizeof room);
    if (list(device, &n, room) != NVML_ABI_SUCCESS) {
        h->known = false;
        return;
    }
    const size_t stride = n && n <= PROCESSES ? nvml_abi_stride(room, sizeof room, n) : 0;
    if (n && !stride) h->known = false;
    for (unsigned i = 0; stride && i < n; i++)
        add_holder(h, (const struct nvml_abi_process *)(const void *)(room + i * stride));
}

static void read_lists(struct holders *h, nvml_abi_device device)
{
    h->n = 0;
    h->known = call.list[0] != NULL;
    for (size_t i = 0; i < sizeof call.list / sizeof *call.list; i++) {
        const bool known = h->known;
        if (call.list[i]) read_holder_list(h, call.list[i], device);
        if (i > 0) h->known = known; /* a driver without graphics or MPS: no such processes */
    }
}

static void process_name_of(uint32_t pid, char *name, size_t size)
{
    name[0] = 0;
    const bool named = call.name && call.name(pid, name, (unsigned)size) == NVML_ABI_SUCCESS && name[0];
    if (named)
        gs_arguments_clean(name, size); /* drivers also return the arguments */
    else
        name[0] = 0;
    if (named) return;
    if (!nvml.listed_whole) return;
    char path[32];
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    const int fd = gs_open_high(path, O_RDONLY, 0);
    const ssize_t len = fd < 0 ? -1 : read(fd, name, size - 1);
    if (fd >= 0) close(fd);
    name[len > 0 ? len - 1 : 0] = 0; /* without its newline */
}

/* Finds this process in the list. If process ids belong to another namespace and none matches, the only process listed
 * must be this one, because it uses the device; of several, none can be identified. */
static int find_self(const struct holders *h)
{
    for (unsigned i = 0; i < h->n; i++)
        if (h->at[i].pid == (uint32_t)nvml.pid) return (int)i;
    return !nvml.listed_whole && h->n == 1 ? 0 : -1;
}

static void judge_holders(const struct holders *h, struct gs_rec_device_sample *r, char *name, size_t size)
{
    const int self = find_self(h);
    uint32_t largest = 0;
    uint64_t most = 0;
    r->own_bytes = r->other_bytes = UINT64_MAX;
    if (self >= 0) r->own_bytes = h->at[self].bytes;
    if (!h->known || (self < 0 && !nvml.listed_whole)) return;
    r->other_bytes = 0;
    for (unsigned i = 0; i < h->n; i++) {
        if ((int)i == self) continue;
        if (h->at[i].bytes == NVML_ABI_UNKNOWN) r->other_bytes = UINT64_MAX;
        if (r->other_bytes == UINT64_MAX) return;
        r->other_bytes += h->at[i].bytes;
        if (h->at[i].bytes >= most) most = h->at[i].bytes, largest = h->at[i].pid;
    }
    r->other_pid = largest;
    if (largest) process_name_of(largest, name, size);
}

/* --- a sample ---------------------------------------------------------------------------------- */

static void write_nvml_sample(const struct gs_rec_device_sample *sample, const char *name)
{
    const size_t len = strnlen(name, 255);
    const uint16_t bytes = (uint16_t)((sizeof *sample + len + 7) & ~(size_t)7);
    struct gs_rec_device_sample *r = gs_writer_reserve(&nvml.writer, bytes);
    if (!r) return; /* the writer is this thread's alone: no event is lost with it */
    memset((char *)r + bytes - 8, 0, 8);
    *r = *sample;
    r->rec = (struct gs_rec){.size = bytes, .type = GS_REC_DEVICE_SAMPLE, .time_ns = gs_now()};
    r->name_len = (uint16_t)len;
    memcpy(r + 1, name, len);
    gs_writer_commit(&nvml.writer, bytes);
}

static nvml_abi_device handle_of(int device)
{
    const uint64_t bit = 1ull << device;
    if (!nvml.device[device] && !(nvml.missing & bit) &&
        call.by_bus(gs_device_bus(device), &nvml.device[device]) != NVML_ABI_SUCCESS) {
        nvml.device[device] = NULL;
        nvml.missing |= bit;
    }
    return nvml.device[device];
}

/* The device's use and its holders are two queries, and the program runs between them: memory that it frees in between
 * would seem to belong to no process. Repeats until the use is equal before and after; if it always changes, takes the
 * last answers. */
static bool read_use(nvml_abi_device device, struct nvml_abi_memory *memory, struct holders *h)
{
    struct nvml_abi_memory after;
    if (call.memory(device, memory) != NVML_ABI_SUCCESS) return false;
    for (int round = 0; round < USE_ROUNDS; round++) {
        read_lists(h, device);
        if (call.memory(device, &after) != NVML_ABI_SUCCESS) return true;
        const bool same = after.free == memory->free;
        *memory = after;
        if (same) break;
    }
    return true;
}

/* A capped device has only this process: memory of other processes on the real device does not count, nor what the
 * driver keeps (615 MiB of an H200: NVML's total includes them and counts them as used, CUDA's total does not include
 * them). */
static void see_capped(int device, struct gs_rec_device_sample *r, char *name)
{
    const uint64_t cap = gs_limit_of(device);
    gs_limit_others(device, r->other_bytes);
    if (!cap || cap >= r->total_bytes) return;
    const uint64_t physical = gs_limit_physical_of(device), held = r->own_bytes != UINT64_MAX ? r->own_bytes : 0;
    const uint64_t kept = physical && physical < r->total_bytes ? r->total_bytes - physical : 0;
    const uint64_t not_ours = kept + (r->other_bytes != UINT64_MAX ? r->other_bytes : 0);
    r->used_bytes -= not_ours < r->used_bytes ? not_ours : r->used_bytes;
    if (held && (!physical || r->used_bytes < held)) r->used_bytes = held;
    if (r->used_bytes > cap) r->used_bytes = cap;
    r->total_bytes = cap;
    r->other_bytes = 0;
    r->other_pid = 0;
    name[0] = 0;
}

static void sample_device(int device)
{
    static struct holders holders;
    char name[256] = "";
    struct nvml_abi_memory memory;
    struct nvml_abi_utilization busy;
    unsigned int degrees;
    const nvml_abi_device handle = handle_of(device);
    if (!handle || !read_use(handle, &memory, &holders)) return;
    struct gs_rec_device_sample r = {.used_bytes = memory.total - memory.free,
                                     .total_bytes = memory.total,
                                     .device = (int16_t)device,
                                     .utilisation = 255,
                                     .memory_utilisation = 255};
    if (call.utilization && call.utilization(handle, &busy) == NVML_ABI_SUCCESS) {
        r.utilisation = (uint8_t)(busy.gpu <= 100 ? busy.gpu : 255);
        r.memory_utilisation = (uint8_t)(busy.memory <= 100 ? busy.memory : 255);
    }
    if (call.temperature && call.temperature(handle, NVML_ABI_TEMPERATURE_GPU, &degrees) == NVML_ABI_SUCCESS)
        r.temperature = (uint8_t)(degrees < UINT8_MAX ? degrees + 1 : 0);
    judge_holders(&holders, &r, name, sizeof name);
    if (gs_limited()) see_capped(device, &r, name);
    write_nvml_sample(&r, name);
}

/* Locked. */
static void sample_devices(void)
{
    const uint64_t began = gs_now();
    atomic_store(&nvml.due, false);
    if (!nvml.writer.spool) gs_writer_open(&nvml.writer, nvml.spool);
    nvml.writer.impatient = true;
    for (uint64_t left = gs_device_located(); left; left &= left - 1) sample_device(__builtin_ctzll(left));
    atomic_fetch_add(&nvml.samples, 1);
    const uint64_t now = gs_now(), took = now - began;
    const bool late = took > TOO_LONG_NS;
    const uint64_t rest = late ? 0 : took * REST;
    if (late && nvml.late) nvml.state = OFF;
    nvml.late = late;
    nvml.next_ns = now + (rest > EVERY_NS ? rest : EVERY_NS);
    nvml.soonest_ns = now + (rest > SOON_NS ? rest : SOON_NS);
}

/* --- the thread ------------------------------------------------------------------------------- */

static bool is_sample_due(uint64_t now)
{
    if (!gs_device_located()) return false;
    const bool due = atomic_load(&nvml.due), over = atomic_load(&nvml.over);
    return now >= (due && !over ? nvml.soonest_ns : nvml.next_ns) || (over && (due || atomic_load(&nvml.exits)));
}

static void wait_for_work(void)
{
    const bool soon = !gs_device_located() || atomic_load(&nvml.due);
    const struct timespec most = soon ? (struct timespec){.tv_nsec = SOON_NS} : (struct timespec){.tv_sec = 1};
    gs_system_call(SYS_futex, &nvml.wake, FUTEX_WAIT_PRIVATE, 0, &most); /* not by a date: the program may fake it */
    atomic_store(&nvml.wake, 0);
}

static void wake_nvml(void)
{
    atomic_store(&nvml.wake, 1);
    gs_system_call(SYS_futex, &nvml.wake, FUTEX_WAKE_PRIVATE, 1);
}

static int scan_objects(struct dl_phdr_info *info, size_t size, void *unused)
{
    return 1;
}

static void *run_nvml(void *unused)
{
    gs_system_call(SYS_prctl, PR_SET_NAME, "gpuspy-nvml");
    inside = true;
    atomic_store(&nvml.stage, RUNNING);
    gs_real_dlsym(RTLD_DEFAULT, "malloc"); /* takes and releases the loader's lock … */
    /* … and the lock of its list: a callback that calls CUDA holds it, and may wait for the first sample */
    dl_iterate_phdr(scan_objects, NULL);
    atomic_store(&nvml.stage, LOADER_PASSED);
    open_library();
    atomic_store(&nvml.stage, OPENED);
    for (bool over = false; nvml.state == OPEN && !over;) {
        wait_for_work();
        over = atomic_load(&nvml.over);
        pthread_rwlock_wrlock(&nvml.lock);
        if (is_sample_due(gs_now())) sample_devices();
        pthread_rwlock_unlock(&nvml.lock);
    }
    atomic_store(&nvml.stage, ENDED);
    return NULL;
}

static bool reaches_stage(enum stage stage, int ms)
{
    const struct timespec step = {.tv_nsec = 1000000};
    for (; atomic_load(&nvml.stage) < stage && ms > 0; ms--) nanosleep(&step, NULL);
    return atomic_load(&nvml.stage) >= stage;
}

/* A busy machine may start the thread late; only then does the loader's time count. */
static bool passes_loader(void)
{
    return reaches_stage(RUNNING, PATIENCE_MS) && reaches_stage(LOADER_PASSED, LOADER_MS);
}

void gs_nvml_due(void)
{
    const int saved = errno;
    if (atomic_exchange_explicit(&nvml.due, true, memory_order_relaxed)) return;
    if (atomic_load_explicit(&nvml.stage, memory_order_relaxed) != NO_THREAD) wake_nvml();
    errno = saved;
}

void gs_nvml_ask(int device)
{
    const struct timespec step = {.tv_nsec = 1000000};
    if (inside || device < 0 || device >= DEVICES || nvml.pid != getpid()) return;
    gs_device_locate(device);
    const uint32_t before = atomic_load(&nvml.samples);
    gs_nvml_due();
    for (int ms = PATIENCE_MS; ms > 0; ms--) {
        const enum stage stage = atomic_load(&nvml.stage);
        if (stage == NO_THREAD || stage == ENDED || atomic_load(&nvml.samples) != before) return;
        nanosleep(&step, NULL);
    }
}

/* --- start and exit --------------------------------------------------------------------------- */

/* The program exits, and its libraries, including NVML, are about to be unloaded: takes a last sample, then no more. A
 * program that fails because memory ran out often exits at once, and an earlier sample may include memory that was just
 * being allocated or freed. */
static void stop_nvml(void)
{
    if (inside || (gs_nvml_threads() && nvml.pid != getpid()))
        return; /* a copy of the process that libc does not know of */
    const int saved = errno;
    atomic_store(&nvml.exits, true);
    atomic_store(&nvml.over, true);
    if (gs_nvml_threads() && passes_loader()) { /* otherwise it waits for a lock that this thread may hold */
        wake_nvml();
        if (!reaches_stage(ENDED, PATIENCE_MS))
            gs_print_line("NVML has not answered for 1 s; the recording ends without its last sample");
    }
    errno = saved;
}

/* The program waits until NVML is open, because NVML reads the environment, which the program may change next. It does
 * not wait if this thread cannot get the loader's lock. */
void gs_nvml_begin(struct gs_spool *spool)
{
    static bool registered;
    pthread_t thread;
    if (!gs_config()->nvml || nvml.state != CLOSED) return;
    if (!registered) registered = !atexit(stop_nvml);
    if (!registered) return; /* it could not be stopped in time */
    nvml.spool = spool;
    nvml.pid = getpid();
    atomic_store(&nvml.stage, STARTED);
    if (gs_start_thread(&thread, STACK_BYTES, run_nvml, NULL)) {
        atomic_store(&nvml.stage, NO_THREAD);
        return;
    }
    pthread_detach(thread);
    if (passes_loader()) reaches_stage(OPENED, PATIENCE_MS);
}

void gs_nvml_end(void)
{
    atomic_store(&nvml.over, true);
    if (gs_nvml_threads()) wake_nvml();
}

void gs_nvml_rest(void)
{
    if (nvml.pid != getpid() || !gs_nvml_threads()) return;
    gs_nvml_end();
    if (!reaches_stage(ENDED, PATIENCE_MS)) return; /* it hangs: this process gets no more samples */
    pthread_rwlock_wrlock(&nvml.lock);
    nvml.writer = (struct gs_writer){0};
    nvml.next_ns = nvml.soonest_ns = 0;
    atomic_store(&nvml.over, false);
    atomic_store(&nvml.due, false);
    if (nvml.state == OPEN) nvml.state = CLOSED;
    atomic_store(&nvml.stage, NO_THREAD);
    pthread_rwlock_unlock(&nvml.lock);
}

unsigned gs_nvml_threads(void)
{
    const enum stage stage = atomic_load(&nvml.stage);
    return stage != NO_THREAD && stage != ENDED;
}

/* --- fork ------------------------------------------------------------------------------------- */

void gs_nvml_lock(void)
{
    if (inside) return; /* NVML starts a program of its own (nvidia-modprobe) */
    /* A child would keep the loader's locks, which NVML's thread holds while it opens the library */
    if (!nvml.slow && atomic_load(&nvml.stage) == LOADER_PASSED) reaches_stage(OPENED, PATIENCE_MS);
    locked = gs_share_within(&nvml.lock, nvml.slow ? 0 : PATIENCE_MS);
    nvml.slow = !locked;
}

void gs_nvml_unlock(void)
{
    if (inside || !locked) return;
    locked = false;
    pthread_rwlock_unlock(&nvml.lock);
}

void gs_nvml_forget(void)
{
    /* its connection to the driver belongs to the parent */
    const enum state state = nvml.state == OPEN ? OFF : nvml.state;
    gs_nvml_unlock();
    memset(&nvml, 0, sizeof nvml);
    nvml.state = state;
    nvml.lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
    inside = false;
}
