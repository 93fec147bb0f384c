/* NVIDIA's driver: asked in a child, which may hang or crash. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>
#include "analyzer/base/input.h"
#include "analyzer/base/arena.h"
#include "analyzer/launch/child.h"
#include "analyzer/doctor/doctor.h"
#include "analyzer/base/units.h"

enum { TIMEOUT_MS = 20000 };

static void print_path(void *symbol)
{
    Dl_info info;

    if (dladdr(symbol, &info) && info.dli_fname) printf("library %s\n", info.dli_fname);
}

/* Prints what it finds out, line by line, so that what comes before a hang is known. */
int doctor_ask_driver(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    int (*init)(unsigned) = lib ? (int (*)(unsigned))dlsym(lib, "cuInit") : NULL;
    int (*version)(int *) = lib ? (int (*)(int *))dlsym(lib, "cuDriverGetVersion") : NULL;
    int (*count)(int *) = lib ? (int (*)(int *))dlsym(lib, "cuDeviceGetCount") : NULL;
    int (*get)(int *, int) = lib ? (int (*)(int *, int))dlsym(lib, "cuDeviceGet") : NULL;
    int (*name)(char *, int, int) = lib ? (int (*)(char *, int, int))dlsym(lib, "cuDeviceGetName") : NULL;
    int (*total)(size_t *, int) = lib ? (int (*)(size_t *, int))dlsym(lib, "cuDeviceTotalMem_v2") : NULL;
    int number = 0, devices = 0;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!lib) printf("missing %s\n", dlerror());
    if (!init || !version || !count || !get || !name || !total) return 0;
    print_path((void *)init);
    if (version(&number) == 0) printf("version %d\n", number);
    printf("asking\n");
    int rc = init(0);
    printf("init %d\n", rc);
    if (rc != 0 || count(&devices) != 0) return 0;
    printf("count %d\n", devices);
    for (int i = 0; i < devices && i < DOCTOR_DEVICES; i++) {
        char text[DOCTOR_NAME] = "";
        size_t bytes = 0;
        int device = 0;
        if (get(&device, i) == 0 && name(text, sizeof text, device) == 0 && total(&bytes, device) == 0)
            printf("device %zu %s\n", bytes, text);
    }
    return 0;
}

int doctor_ask_nvml(void)
{
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    int (*init)(void) = lib ? (int (*)(void))dlsym(lib, "nvmlInit_v2") : NULL;
    int (*version)(char *, unsigned) = lib ? (int (*)(char *, unsigned))dlsym(lib, "nvmlSystemGetDriverVersion") : NULL;
    int (*count)(unsigned *) = lib ? (int (*)(unsigned *))dlsym(lib, "nvmlDeviceGetCount_v2") : NULL;
    int (*get)(unsigned, void **) =
        lib ? (int (*)(unsigned, void **))dlsym(lib, "nvmlDeviceGetHandleByIndex_v2") : NULL;
    int (*mig)(void *, unsigned *, unsigned *) =
        lib ? (int (*)(void *, unsigned *, unsigned *))dlsym(lib, "nvmlDeviceGetMigMode") : NULL;
    char text[DOCTOR_NAME] = "";
    unsigned devices = 0, now, pending;
    void *device;

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!init || !version || !count || !get) return printf("missing\n") < 0;
    int rc = init();
    printf("init %d\n", rc);
    if (rc == 0 && version(text, sizeof text) == 0) printf("driver %s\n", text);
    if (rc != 0 || count(&devices) != 0) return 0;
    printf("count %u\n", devices);
    for (unsigned i = 0; mig && i < devices; i++)
        if (get(i, &device) == 0 && mig(device, &now, &pending) == 0 && now == 1) printf("mig %u\n", i);
    return 0;
}

/* What follows `key` at the beginning of a line; NULL none. *rest is where to look for the next. */
static const char *read_driver_answer(const char *text, const char *key, char *out, size_t size)
{
    size_t n = strlen(key);

    for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (strncmp(line, key, n) != 0 || (line[n] != ' ' && line[n] != '\n')) continue;
        const char *value = line + n + (line[n] == ' ');
        snprintf(out, size, "%.*s", (int)strcspn(value, "\n"), value);
        return value + strcspn(value, "\n");
    }
    return NULL;
}

static long read_long(const char *text, const char *key, long otherwise)
{
    char word[64];

    return read_driver_answer(text, key, word, sizeof word) ? strtol(word, NULL, 10) : otherwise;
}

static bool ask_in_child(struct launch_child *c, const char *what, bool all_devices)
{
    static const char *const argv[] = {"/proc/self/exe", "doctor", NULL};

    *c = (struct launch_child){.argv = argv, .timeout_ms = TIMEOUT_MS};
    launch_child_set(c, DOCTOR_CHILD, what);
    launch_child_set(c, "LD_PRELOAD", NULL); /* it is not to be recorded */
    if (all_devices) launch_child_set(c, "CUDA_VISIBLE_DEVICES", NULL);
    return launch_child_run(c);
}

static bool read_file_word(const char *path, char *out, size_t size)
{
    const ssize_t n = input_read_start(path, out, size);

    out[strcspn(out, "\n")] = 0;
    return n > 0;
}

/* Of NVIDIA's: a display controller or an accelerator on the PCI bus. */
static int gpus_on_bus(void)
{
    DIR *dir = opendir("/sys/bus/pci/devices");
    char path[512], vendor[16], class[16];
    int n = 0;

    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", e->d_name);
        if (e->d_name[0] == '.' || !read_file_word(path, vendor, sizeof vendor) || strcmp(vendor, "0x10de") != 0)
            continue;
        snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", e->d_name);
        n += read_file_word(path, class, sizeof class) &&
             (strncmp(class, "0x03", 4) == 0 || strncmp(class, "0x12", 4) == 0);
    }
    if (dir) closedir(dir);
    return n;
}

static bool in_container(void)
{
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
           getenv("KUBERNETES_SERVICE_HOST") || getenv("SINGULARITY_CONTAINER") || getenv("APPTAINER_CONTAINER");
}

static bool in_wsl(void)
{
    struct utsname u;

    return uname(&u) == 0 && (strstr(u.release, "icrosoft") || strstr(u.release, "WSL"));
}

static const char *how_to_share(void)
{
    return getenv("KUBERNETES_SERVICE_HOST") ? "request one: resources.limits: nvidia.com/gpu: 1"
           : getenv("SINGULARITY_CONTAINER") || getenv("APPTAINER_CONTAINER")
               ? "start the container with --nv"
               : "start the container with --gpus all (and the NVIDIA Container Toolkit on the host)";
}

/* Files of devices that are there, but not for us. */
static bool check_permissions(struct doctor *d)
{
    static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/dxg"};

    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (access(files[i], F_OK) == 0 && access(files[i], R_OK | W_OK) != 0) {
            doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "permission",
                               "join the group that owns it (often video), or request a GPU from the batch system",
                               "cannot open %s: %s", files[i], strerror(errno));
            return false;
        }
    return true;
}

static const struct {
    int code;
    const char *text, *fix;
} refusals[] = {
    {34, "the library is a stub for linking", "remove its folder (…/stubs) from LD_LIBRARY_PATH"},
    {100, "it finds no GPU", NULL},
    {802, "it is not ready yet", "if the machine has NVSwitch, start nvidia-fabricmanager"},
    {803, "the library and the kernel module have different versions", "reboot after the driver update"},
    {804, "this GPU does not support forward compatibility", "remove the cuda-compat folder from LD_LIBRARY_PATH"},
    {999, "it failed for an unknown reason",
     "see dmesg; after a suspend, type: rmmod nvidia_uvm && modprobe nvidia_uvm"},
    {304, "the operating system refused it", "see the permissions of /dev/nvidia*, and dmesg"},
};

static void add_refusal(struct doctor *d, long code)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *text = "it returned an error",
               *fix = "see dmesg and nvidia-smi";

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        if (refusals[i].code == code) {
            text = refusals[i].text;
            fix = refusals[i].fix ? refusals[i].fix : fix;
        }
    if (code == 100 && in_container() && !d->hardware) fix = how_to_share();
    if (code == 100 && d->hidden) {
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "hidden",
                           "unset CUDA_VISIBLE_DEVICES, or set it to a GPU's number, counted from 0",
                           "CUDA_VISIBLE_DEVICES=%s hides the %d GPU%s of this machine: programs find none",
                           visible ? visible : "", d->hidden, d->hidden == 1 ? "" : "s");
        return;
    }
    doctor_add_finding(d, DOCTOR_DRIVER, code == 100 && !d->hardware ? DOCTOR_WARNING : DOCTOR_PROBLEM, "init", fix,
                       "the driver cannot be used: %s (cuInit: %ld)", text, code);
}

static void add_driver_devices(struct doctor *d, const char *text)
{
    char line[256], *end;
    int i = 0;

    for (const char *at = text; (at = read_driver_answer(at, "device", line, sizeof line)); i++) {
        uint64_t bytes = strtoull(line, &end, 10);
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_OK, "device", NULL, "GPU %d: %s, %s", i, *end ? end + 1 : "?",
                           UNITS_BYTES(bytes));
    }
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    if (d->hidden > d->devices)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_OK, "visible", NULL,
                           "CUDA_VISIBLE_DEVICES=%s: %d of %d GPUs are visible", visible ? visible : "", d->devices,
                           d->hidden);
}

static void no_driver(struct doctor *d, const char *why)
{
    bool mapped = access("/proc/driver/nvidia/version", F_OK) == 0;

    if (in_wsl())
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "driver",
                           "install NVIDIA's driver in Windows, not in Linux; its library is in /usr/lib/wsl/lib",
                           "libcuda.so.1 cannot be opened: %s", why);
    else if (in_container() && (mapped || d->hardware))
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "container", how_to_share(),
                           "the machine has a GPU, but this container has no libcuda.so.1");
    else if (d->hardware)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "driver",
                           "install NVIDIA's driver (apt install nvidia-driver)",
                           "this machine has an NVIDIA GPU, but no driver: %s", why);
    else
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_WARNING, "driver",
                           "a dry run needs no GPU: gpuspy run --simulate a100-40g -- PROGRAM",
                           "no NVIDIA GPU and no driver (libcuda.so.1) found: programs cannot use a GPU");
}

static void check_library(struct doctor *d, const char *path)
{
    if (strstr(path, "/stubs/"))
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "stub", "remove that folder from LD_LIBRARY_PATH",
                           "libcuda.so.1 is the Toolkit's stub for linking: %s", path);
    else if (in_wsl() && !strstr(path, "/wsl/"))
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_WARNING, "wsl",
                           "remove the Linux driver; WSL needs the one in /usr/lib/wsl/lib",
                           "libcuda.so.1 is not WSL's: %s", path);
}

static void check_nvml(struct doctor *d)
{
    struct launch_child *c = arena_zeroed(1, sizeof *c);
    char version[DOCTOR_NAME];

    ask_in_child(c, "nvml", false);
    long rc = read_long(c->out, "init", -1);
    if (c->timed_out)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_WARNING, "nvml", "set GPUSPY_NVML=0 to record without NVML",
                           "NVML does not respond");
    else if (rc == 18)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "mismatch", "reboot, or reload the nvidia modules",
                           "the driver's library and kernel module have different versions");
    else if (rc != 0)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_WARNING, "nvml", NULL,
                           "no NVML (libnvidia-ml.so.1): memory of other processes is not recorded");
    else if (read_driver_answer(c->out, "driver", version, sizeof version))
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_OK, "nvml", NULL,
                           "NVML responds (driver %s): memory of other processes is recorded", version);
    for (const char *at = c->out; (at = read_driver_answer(at, "mig", version, sizeof version));)
        doctor_add_finding(
            d, DOCTOR_DRIVER, DOCTOR_WARNING, "mig", NULL,
            "GPU %s is divided (MIG): programs use one part of it, and NVML's figures are for the whole GPU", version);
    free(c);
}

/* Nonsense that CUDA takes for the end of the list. */
static void check_visible(struct doctor *d)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    for (const char *p = visible; p && *p; p += strcspn(p, ","), p += *p == ',') {
        size_t n = strcspn(p, ",");
        size_t digits = strspn(p, "0123456789 ");
        if (n && (digits == n || strncmp(p, "GPU-", 4) == 0 || strncmp(p, "MIG-", 4) == 0)) continue;
        if (n && strncmp(p, "-1", 2) == 0) return; /* the usual way to say none */
        doctor_add_finding(
            d, DOCTOR_DRIVER, DOCTOR_WARNING, "visible", "give numbers from 0 or GPU-… names, separated by commas",
            "CUDA_VISIBLE_DEVICES=%s: '%.*s' names no GPU, and CUDA ignores what follows", visible, (int)n, p);
        return;
    }
}

void doctor_driver(struct doctor *d)
{
    struct launch_child *c = arena_zeroed(1, sizeof *c);
    char text[1024];

    d->hardware = gpus_on_bus() > 0 || access("/dev/nvidiactl", F_OK) == 0 || access("/dev/dxg", F_OK) == 0;
    check_visible(d);
    ask_in_child(c, "driver", false);
    if (read_driver_answer(c->out, "missing", text, sizeof text)) {
        no_driver(d, text);
        free(c);
        return;
    }
    long init = read_long(c->out, "init", -1);
    d->cuda = (int)read_long(c->out, "version", 0);
    d->devices = (int)read_long(c->out, "count", 0);
    if (read_driver_answer(c->out, "library", text, sizeof text))
        check_library(d, text);
    else
        text[0] = 0;
    bool allowed = check_permissions(d);
    if (c->timed_out)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "hangs",
                           "see dmesg (Xid) and reboot; nvidia-smi will hang too",
                           "the driver does not respond: cuInit took more than %d s", TIMEOUT_MS / 1000);
    else if (init < 0)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_PROBLEM, "crashes", "reinstall the driver",
                           "the driver's library ended the program that called it (%s)", text);
    if (c->timed_out || init < 0) {
        free(c);
        return;
    }
    if (getenv("CUDA_VISIBLE_DEVICES")) {
        struct launch_child *all = arena_zeroed(1, sizeof *all);
        d->hidden = ask_in_child(all, "driver", true) ? (int)read_long(all->out, "count", 0) : 0;
        free(all);
    }
    d->hardware = d->hardware || d->hidden || d->devices;
    d->driver = init == 0;
    if (init == 0)
        doctor_add_finding(d, DOCTOR_DRIVER, DOCTOR_OK, "driver", NULL,
                           "the driver works and supports CUDA up to %d.%d (%s)", d->cuda / 1000, d->cuda % 1000 / 10,
                           text);
    else if (allowed)
        add_refusal(d, init);
    add_driver_devices(d, c->out);
    free(c);
    if (init == 0) check_nvml(d);
}
