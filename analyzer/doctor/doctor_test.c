/* The self-test: a child that allocates 1 MiB is recorded, and the recording read back. It runs on the GPU
 * where there is one, else on the simulated one. */
#include <dirent.h>
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "analyzer/base/arena.h"
#include "analyzer/launch/child.h"
#include "analyzer/doctor/doctor.h"
#include "analyzer/run/run.h"
#include "analyzer/launch/simulate.h"

enum { TIMEOUT_MS = 60000, BYTES = 1 << 20 };

#define LOAD(name, ...) int (*name)(__VA_ARGS__) = lib ? (int (*)(__VA_ARGS__))dlsym(lib, #name) : NULL

int doctor_allocate(void)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL), *context = NULL;
    uint64_t address = 0;
    int device = 0, rc = -1;
    LOAD(cuInit, unsigned);
    LOAD(cuDeviceGet, int *, int);
    LOAD(cuDevicePrimaryCtxRetain, void **, int);
    LOAD(cuCtxSetCurrent, void *);
    LOAD(cuMemAlloc_v2, uint64_t *, size_t);
    LOAD(cuMemFree_v2, uint64_t);

    if (cuInit && cuDeviceGet && cuDevicePrimaryCtxRetain && cuCtxSetCurrent && cuMemAlloc_v2 && cuMemFree_v2) {
        rc = cuInit(0);
        rc = rc ? rc : cuDeviceGet(&device, 0);
        rc = rc ? rc : cuDevicePrimaryCtxRetain(&context, device);
        rc = rc ? rc : cuCtxSetCurrent(context);
        rc = rc ? rc : cuMemAlloc_v2(&address, BYTES);
        rc = rc ? rc : cuMemFree_v2(address);
    }
    printf("result %d\n", rc);
    return rc != 0;
}

struct seen {
    struct run *run;
    uint64_t count;
    uint32_t depth;
};

static void count_test_lifetime(void *self, const struct run_lifetime *life, const struct run_series *series)
{
    struct seen *s = self;

    if (life->layer == GS_LAYER_DEVICE && life->bytes == BYTES && life->free_ns != RUN_NEVER) {
        s->count++;
        s->depth = run_stack_depth(s->run, life->stack);
    }
}

static bool read_back(const char *db, struct seen *s, char *error, size_t size)
{
    struct run *run = run_open(&db, 1, &(struct run_options){.alone = true}, error, size);
    struct run_observer observer = {.self = s, .alloc = count_test_lifetime};

    s->run = run;
    bool ok = run && run_replay(run, &observer, 1, error, size);
    if (run) run_close(run);
    return ok;
}

static void remove_folder(const char *folder)
{
    DIR *dir = opendir(folder);
    char path[PATH_MAX + 512];

    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (e->d_name[0] != '.') unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(folder);
}

/* What the recorder said: a setting that it could not use, a reason why it records nothing. */
static void add_lines(struct doctor *d, char *text)
{
    char *save = NULL;

    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (strncmp(line, "gpuspy: ", 8) == 0)
            doctor_add_finding(d, DOCTOR_TEST, DOCTOR_WARNING, "said", NULL, "the recorder printed: %s", line + 8);
}

static void judge_test_recording(struct doctor *d, struct launch_child *c, const char *db, bool simulated)
{
    const char *where = simulated ? "the simulated GPU" : "GPU 0";
    struct seen s = {0};
    char error[1024] = "";

    add_lines(d, c->err);
    if (c->timed_out)
        doctor_add_finding(d, DOCTOR_TEST, DOCTOR_PROBLEM, "test", NULL,
                           "a program that allocates 1 MiB on %s did not exit", where);
    else if (!strstr(c->out, "result 0\n"))
        doctor_add_finding(d, DOCTOR_TEST, DOCTOR_PROBLEM, "test", NULL,
                           "a program could not allocate 1 MiB on %s (%.60s)", where,
                           *c->out ? strtok(c->out, "\n") : "it exited before that");
    else if (!read_back(db, &s, error, sizeof error))
        doctor_add_finding(d, DOCTOR_TEST, DOCTOR_PROBLEM, "test", NULL, "a test recording could not be read: %s",
                           error);
    else if (s.count != 1)
        doctor_add_finding(d, DOCTOR_TEST, DOCTOR_PROBLEM, "test", NULL,
                           "an allocation of 1 MiB on %s was recorded %llu times instead of once", where,
                           (unsigned long long)s.count);
    else
        doctor_add_finding(d, DOCTOR_TEST, DOCTOR_OK, "test", NULL,
                           "an allocation of 1 MiB on %s was recorded and read back%s", where,
                           s.depth ? ", with its stack" : "");
}

void doctor_test(struct doctor *d)
{
    static const char *const argv[] = {"/proc/self/exe", "doctor", NULL};
    struct launch_child *c = arena_zeroed(1, sizeof *c);
    char folder[PATH_MAX + 32], db[PATH_MAX + 64], sim[PATH_MAX] = "", why[512];
    const char *tmp = getenv("TMPDIR");
    bool simulated = !d->devices;

    if (!d->library[0] || (simulated && !launch_simulate_folder(sim, sizeof sim, why, sizeof why))) {
        if (d->library[0])
            doctor_add_finding(d, DOCTOR_TEST, DOCTOR_WARNING, "test", NULL,
                               "not tested: no GPU and no simulated CUDA found");
        free(c);
        return;
    }
    snprintf(folder, sizeof folder, "%s/.gpuspy-doctor-XXXXXX", d->folder[0] ? d->folder : tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(folder)) {
        free(c);
        return;
    }
    snprintf(db, sizeof db, "%s/run.db", folder);
    *c = (struct launch_child){.argv = argv, .timeout_ms = TIMEOUT_MS};
    launch_child_set(c, DOCTOR_CHILD, "allocate");
    launch_child_set(c, "LD_PRELOAD", d->library);
    launch_child_set(c, "GPUSPY_DB", db);
    launch_child_set(c, "GPUSPY_QUIET", "1");
    launch_child_set(c, "GPUSPY_DISABLE", NULL);
    launch_child_set(c, "GPUSPY_RUN_ID", NULL);
    if (simulated) {
        launch_child_set(c, "LD_LIBRARY_PATH", sim);
        launch_child_set(c, "CUDA_VISIBLE_DEVICES", NULL);
    }
    launch_child_run(c);
    judge_test_recording(d, c, db, simulated);
    remove_folder(folder);
    free(c);
}
