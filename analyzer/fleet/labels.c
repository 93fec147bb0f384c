/* Which job and pod a process belongs to, from the environment that it was started with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/input.h"
#include "analyzer/base/term.h"
#include "analyzer/fleet/fleet.h"

enum { ENVIRONMENT_MAX = 1 << 20 };

struct environment {
    char *text; /* "NAME=value" and a NUL per variable */
    size_t size;
};

static struct environment read_environment_file(const char *path)
{
    struct environment e = {.text = arena_realloc(NULL, ENVIRONMENT_MAX + 1, 1)};
    const ssize_t n = input_read_start(path, e.text, ENVIRONMENT_MAX + 1);
    e.size = n > 0 ? (size_t)n : 0;
    return e;
}

static const char *environment_value_of(const struct environment *e, const char *name)
{
    const size_t length = strlen(name);
    for (const char *at = e->text; at < e->text + e->size; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=' && at[length + 1]) return at + length + 1;
    return NULL;
}

static void take_first(const struct environment *e, const char *const *names, char *out, size_t size)
{
    const char *value = NULL;
    for (; *names && !value; names++) value = environment_value_of(e, *names);
    terminal_clean(out, size, value, true);
}

/* Kubernetes mounts this file into every pod that has a service account. */
static void read_namespace(uint32_t pid, char *out, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%u/root/var/run/secrets/kubernetes.io/serviceaccount/namespace", pid);
    struct environment file = read_environment_file(path);
    file.text[strcspn(file.text, "\r\n")] = 0;
    terminal_clean(out, size, file.text, true);
    free(file.text);
}

void fleet_labels_read(uint32_t pid, struct fleet_labels *out)
{
    static const char *const jobs[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID", "TORCHELASTIC_RUN_ID", NULL};
    static const char *const pods[] = {"POD_NAME", NULL}, *const hosts[] = {"HOSTNAME", NULL};
    static const char *const spaces[] = {"POD_NAMESPACE", NULL}, *const visible[] = {"CUDA_VISIBLE_DEVICES", NULL};
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/environ", pid);
    const struct environment e = read_environment_file(path);
    const bool in_kubernetes = environment_value_of(&e, "KUBERNETES_SERVICE_HOST") != NULL;
    take_first(&e, jobs, out->job_id, sizeof out->job_id);
    take_first(&e, pods, out->pod, sizeof out->pod);
    take_first(&e, spaces, out->name_space, sizeof out->name_space);
    take_first(&e, visible, out->visible, sizeof out->visible);
    if (in_kubernetes && !*out->pod) take_first(&e, hosts, out->pod, sizeof out->pod);
    if (in_kubernetes && !*out->name_space) read_namespace(pid, out->name_space, sizeof out->name_space);
    free(e.text);
}

/* Whether the entry occurred before in the list: each device needs a label of its own. */
static bool is_repeated(const char *list, const char *entry, size_t length)
{
    for (const char *at = list; at < entry; at += strcspn(at, ","), at += *at == ',')
        if (strcspn(at, ",") == length && memcmp(at, entry, length) == 0) return true;
    return false;
}

void fleet_gpu(const struct fleet_labels *labels, int device, char *out, size_t size)
{
    const char *entry = labels->visible;
    for (int i = 0; i < device && entry; i++) {
        entry = strchr(entry, ',');
        entry = entry ? entry + 1 : NULL;
    }
    const size_t length = entry ? strcspn(entry, ",") : 0;
    if (length > 0 && length < size && !is_repeated(labels->visible, entry, length))
        snprintf(out, size, "%.*s", (int)length, entry);
    else
        snprintf(out, size, *labels->visible ? "#%d" : "%d", device);
}
