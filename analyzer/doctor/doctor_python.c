/* Python and what is installed in it, mostly from files: importing PyTorch takes seconds, and may fail
 * for the very reason that is looked for. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "analyzer/base/arena.h"
#include "analyzer/launch/child.h"
#include "analyzer/doctor/doctor.h"

enum { TIMEOUT_MS = 30000, DEEP_MS = 180000 };

/* Prints one line of JSON. find_spec does not import what it finds; torch/version.py is a few
 * assignments. */
static const char probe_script[] =
    "import sys, json, os, sysconfig, importlib.util, importlib.metadata as m\n"
    "o = {'version': sys.version.split()[0], 'major': sys.version_info[0], 'minor': sys.version_info[1],\n"
    "     'implementation': sys.implementation.name, 'executable': sys.executable,\n"
    "     'free_threaded': bool(sysconfig.get_config_var('Py_GIL_DISABLED')), 'packages': {}}\n"
    "for n in ('torch jax jaxlib cupy cupy-cuda11x cupy-cuda12x cupy-cuda13x tensorflow tensorflow-cpu numba triton '\n"
    "          'vllm onnxruntime-gpu rmm-cu12 pycuda').split():\n"
    "    try: o['packages'][n] = m.version(n)\n"
    "    except Exception: pass\n"
    "try: s = importlib.util.find_spec('torch')\n"
    "except Exception as e: s = None\n"
    "if s and s.origin:\n"
    "    f = os.path.dirname(s.origin)\n"
    "    t = o['torch'] = {'file': s.origin}\n"
    "    try:\n"
    "        v = {}\n"
    "        exec(open(os.path.join(f, 'version.py')).read(), v)\n"
    "        t.update(version=str(v.get('__version__')), cuda=v.get('cuda'), hip=v.get('hip'), xpu=v.get('xpu'))\n"
    "    except Exception as e: t['error'] = str(e)\n"
    "print(json.dumps(o))\n";

static const char look_deep[] = "import json, torch\n"
                                "o = {'available': torch.cuda.is_available(), 'count': torch.cuda.device_count()}\n"
                                "if not o['available']:\n"
                                "    try: torch.zeros(1, device='cuda')\n"
                                "    except Exception as e: o['error'] = str(e).split('\\n')[0]\n"
                                "print(json.dumps(o))\n";

static json_t *run_python(const struct doctor *d, const char *script, int timeout_ms, struct launch_child *c)
{
    const char *const argv[] = {d->python, "-c", script, NULL};

    *c = (struct launch_child){.argv = argv, .timeout_ms = timeout_ms};
    launch_child_set(c, "LD_PRELOAD", NULL); /* it is not to be recorded */
    launch_child_set(c, "PYTHONWARNINGS", "ignore");
    bool ended = launch_child_run(c);
    c->argv = NULL;
    size_t n = strlen(c->out); /* a site's own start-up may print before it */
    while (n && c->out[n - 1] == '\n') c->out[--n] = 0;
    const char *line = strrchr(c->out, '\n');
    return ended ? json_loads(line ? line + 1 : c->out, 0, NULL) : NULL;
}

static const char *python_text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text ? text : "";
}

static bool is_python_supported(int minor, bool free_threaded)
{
    static const struct {
        int minor, free_threaded;
    } rows[] = {
#define GS_PYTHON(minor, free_threaded, ...) {minor, free_threaded},
#include "schema/stack_python_layout.def"
#undef GS_PYTHON
    };

    return ANY_OF(r, rows, COUNT_OF(rows), r->minor == minor && r->free_threaded == free_threaded);
}

static void check_python(struct doctor *d, const json_t *o)
{
    int major = (int)json_integer_value(json_object_get(o, "major"));
    int minor = (int)json_integer_value(json_object_get(o, "minor"));
    bool free_threaded = json_is_true(json_object_get(o, "free_threaded"));
    const char *kind = free_threaded ? ", free-threaded" : "";

    if (strcmp(python_text_of(o, "implementation"), "cpython") != 0)
        doctor_add_finding(d, DOCTOR_PYTHON, DOCTOR_WARNING, "implementation", NULL,
                           "%s is %s: only native frames are recorded, not Python's", d->python,
                           python_text_of(o, "implementation"));
    else if (major != 3 || !is_python_supported(minor, free_threaded))
        doctor_add_finding(d, DOCTOR_PYTHON, DOCTOR_WARNING, "version",
                           "update gpuspy, or use a Python version that it supports",
                           "%s is Python %s%s, which this gpuspy does not support: only native frames are recorded",
                           d->python, python_text_of(o, "version"), kind);
    else
        doctor_add_finding(d, DOCTOR_PYTHON, DOCTOR_OK, "version", NULL, "%s is Python %s%s: its lines are recorded",
                           d->python, python_text_of(o, "version"), kind);
}

/* The index of PyTorch's wheels for this driver. */
static void wheel_of(const struct doctor *d, char *out, size_t size)
{
    static const int built[] = {13000, 12080, 12060, 12040, 12010, 11080};
    const char *where = strncmp(d->python, "/usr/bin/", 9) == 0 ? "in a virtual environment: " : "";

    for (size_t i = 0; i < COUNT_OF(built); i++)
        if (d->cuda / 1000 > built[i] / 1000 || (d->cuda / 1000 == built[i] / 1000 && d->cuda >= built[i])) {
            snprintf(out, size,
                     "%spip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu%d%d", where,
                     built[i] / 1000, built[i] % 1000 / 10);
            return;
        }
    snprintf(out, size, "see pytorch.org/get-started for the build that matches the driver's CUDA");
}

static void say_no_cuda(struct doctor *d, const char *version, const char *hip)
{
    char fix[160];

    wheel_of(d, fix, sizeof fix);
    if (*hip)
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_rocm", NULL,
                           "PyTorch %s is built for ROCm %s: HIP calls are not recorded", version, hip);
    else if (d->devices)
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_PROBLEM, "torch_cpu", fix,
                           "PyTorch %s is a CPU-only build, though the driver sees %d GPU%s: it will not use %s",
                           version, d->devices, d->devices == 1 ? "" : "s", d->devices == 1 ? "it" : "them");
    else
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_cpu",
                           "gpuspy run --torch-cpu records its CPU tensors", "PyTorch %s is a CPU-only build", version);
}

/* From CUDA 11 on, a driver runs what any minor version of its own major one built. */
static void check_cuda(struct doctor *d, const char *version, const char *cuda)
{
    int major = atoi(cuda);
    char fix[160];

    wheel_of(d, fix, sizeof fix);
    if (d->driver && d->cuda && major > d->cuda / 1000)
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_PROBLEM, "torch_newer", fix,
                           "PyTorch %s is built with CUDA %s, newer than the driver's %d.%d: it will find no GPU",
                           version, cuda, d->cuda / 1000, d->cuda % 1000 / 10);
    else
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_OK, "torch", NULL,
                           "PyTorch %s, built with CUDA %s: tensors are recorded, each with its line", version, cuda);
}

static void check_torch(struct doctor *d, const json_t *o)
{
    const json_t *torch = json_object_get(o, "torch");
    const char *version = python_text_of(torch, "version"), *cuda = python_text_of(torch, "cuda"), *end;

    if (!torch) return;
    if (!*version) {
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_hidden",
                           "rename it, or change the working directory",
                           "'import torch' finds %s, which is not PyTorch", python_text_of(torch, "file"));
        return;
    }
    long major = strtol(version, (char **)(uintptr_t)&end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    if (!*cuda)
        say_no_cuda(d, version, python_text_of(torch, "hip"));
    else if (major < 1 || (major == 1 && minor < 6))
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_WARNING, "torch_old",
                           "use PyTorch 1.6 or later, which reports its tensors",
                           "PyTorch %s does not report its tensors: only its CUDA allocations are recorded", version);
    else
        check_cuda(d, version, cuda);
}

/* On a machine without a GPU a dry run is how a program is recorded. */
static bool is_for_dry_runs(const struct doctor *d, const json_t *o)
{
    return *python_text_of(json_object_get(o, "torch"), "cuda") && (d->deep || !d->devices);
}

static void check_torch_deep(struct doctor *d)
{
    struct launch_child *c = arena_zeroed(1, sizeof *c);
    json_t *o = run_python(d, look_deep, DEEP_MS, c);

    if (c->timed_out)
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_PROBLEM, "torch_import", NULL,
                           "importing PyTorch took more than %d s", DEEP_MS / 1000);
    else if (!o) {
        size_t n = strlen(c->err);
        while (n && c->err[n - 1] == '\n') c->err[--n] = 0;
        const char *last = strrchr(c->err, '\n');
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_PROBLEM, "torch_import", NULL, "PyTorch cannot be imported: %s",
                           last ? last + 1 : c->err);
    } else if (json_is_true(json_object_get(o, "available")))
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_OK, "torch_import", NULL,
                           "PyTorch was imported and finds %lld GPU%s",
                           (long long)json_integer_value(json_object_get(o, "count")),
                           json_integer_value(json_object_get(o, "count")) == 1 ? "" : "s");
    else
        doctor_add_finding(d, DOCTOR_FRAMEWORKS, d->devices ? DOCTOR_PROBLEM : DOCTOR_WARNING, "torch_import", NULL,
                           "PyTorch was imported and finds no GPU: %s", python_text_of(o, "error"));
    json_decref(o);
    free(c);
}

static void check_frameworks(struct doctor *d, const json_t *o)
{
    static const struct {
        const char *package, *name, *seen;
    } rows[] = {
        {"jax", "JAX",
         "its pool is recorded, not its arrays; it allocates 75 % of a GPU at the start unless "
         "XLA_PYTHON_CLIENT_PREALLOCATE=false"},
        {"cupy", "CuPy", "its pool is recorded, not its arrays"},
        {"cupy-cuda11x", "CuPy", "its pool is recorded, not its arrays"},
        {"cupy-cuda12x", "CuPy", "its pool is recorded, not its arrays"},
        {"cupy-cuda13x", "CuPy", "its pool is recorded, not its arrays"},
        {"tensorflow", "TensorFlow",
         "its pool is recorded, not its tensors; it allocates nearly all of a GPU at the start "
         "unless TF_FORCE_GPU_ALLOW_GROWTH=true"},
        {"tensorflow-cpu", "TensorFlow", "a CPU-only build: nothing of it is recorded"},
        {"numba", "Numba", "its allocations are recorded, each with its line"},
        {"pycuda", "PyCUDA", "its allocations are recorded, each with its line"},
        {"vllm", "vLLM", "its weights and its KV cache are recorded as PyTorch's tensors"},
        {"onnxruntime-gpu", "ONNX Runtime", "its arena is recorded, not its tensors"},
        {"rmm-cu12", "RMM", "its pool is recorded, not the allocations in it"},
    };
    const json_t *packages = json_object_get(o, "packages");

    for (size_t i = 0; i < COUNT_OF(rows); i++)
        if (*python_text_of(packages, rows[i].package))
            doctor_add_finding(d, DOCTOR_FRAMEWORKS, DOCTOR_OK, rows[i].package, NULL, "%s %s: %s", rows[i].name,
                               python_text_of(packages, rows[i].package), rows[i].seen);
}

void doctor_python(struct doctor *d)
{
    struct launch_child *c = d->python[0] ? arena_zeroed(1, sizeof *c) : NULL;

    if (!c) {
        if (!d->program[0])
            doctor_add_finding(d, DOCTOR_PYTHON, DOCTOR_WARNING, "python", "name a Python: gpuspy doctor PYTHON",
                               "no python in PATH; programs in C and C++ can still be recorded");
        return;
    }
    json_t *o = run_python(d, probe_script, TIMEOUT_MS, c);
    if (!json_is_object(o)) {
        char line[256];
        snprintf(line, sizeof line, "%.*s", (int)strcspn(c->err, "\n"), c->err);
        doctor_add_finding(
            d, DOCTOR_PYTHON, DOCTOR_PROBLEM, "python", "check that this Python starts", "%s %s%s", d->python,
            c->timed_out ? "did not respond within 30 s" : "did not respond like Python 3: ", c->timed_out ? "" : line);
    } else {
        char executable[PATH_MAX];
        if (realpath(python_text_of(o, "executable"), executable)) doctor_preloadable(d, executable);
        check_python(d, o);
        check_torch(d, o);
        if (d->deep && json_object_get(o, "torch")) check_torch_deep(d);
        if (is_for_dry_runs(d, o)) doctor_simulate(d, python_text_of(json_object_get(o, "torch"), "version"));
        check_frameworks(d, o);
    }
    json_decref(o);
    free(c);
}
