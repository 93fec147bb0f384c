"""gpuspy run --simulate: programs that import functions, variables and libraries missing in the simulated CUDA."""
import os
import platform
import re
import subprocess

import pytest

from conftest import BUILD, ROOT

pytestmark = pytest.mark.skipif(bool(os.environ.get("SAN_PRELOAD")), reason="a sanitizer's run time and LD_AUDIT")

# Libraries of a CUDA newer than the simulated one: name, version node of the new symbols, source.
NEWER = {
    "libnccl.so.2": ("", "int ncclCommFuture(int a, double b) { return 0; } const char *ncclFutureErrorString(void) { return \"\"; }"
                         "int ncclFutureTable[4] = {1, 2, 3, 4}; int ncclGetVersion(int *v) { return 0; }"),
    "libcublas.so.13": ("libcublas.so.13", "int cublasFuture(void) { return 0; }"),
    "libcudart.so.13": ("libcudart.so.13.7", "int cudaFuture(void *p) { return 0; } int cudaGetDeviceCount(int *n) { return 0; }"),
    "libcudnn.so.9": ("libcudnn.so.9", "int cudnnFuture(void) { return 0; }"),
    "libcufft.so.12": ("libcufft.so.12", "int cufftFuture(void) { return 0; }"),
    "libcusparse.so.12": ("libcusparse.so.12", "int cusparseFuture(void) { return 0; }"),
    "libcusolver.so.12": ("libcusolver.so.12", "int cusolverFuture(void) { return 0; }"),
    "libcupti.so.13": ("libcupti.so.13", "int cuptiFuture(void) { return 0; }"),
    "libcuda.so.1": ("", "int cuFuture(void) { return 0; }"),
    "libnvidia-ml.so.1": ("", "int nvmlFuture(void) { return 0; }"),
    "libnvshmem_host.so.3": ("NVSHMEM", "int nvshmemx_future(void) { return 0; } void *nvshmemx_future_ptr(int n) { return 0; }"),
    "libcufuture.so.1": ("libcufuture.so.1", "int cufutureCreate(void **h) { return 0; } int cufutureTable[2] = {1, 2};"),
    "libnvfuture.so.1": ("", "int nvFutureCreate(void **h) { return 0; }"),
}

USES = r"""
#include <stdio.h>
int ncclCommFuture(int, double), ncclGetVersion(int *), cublasFuture(void), cudaFuture(void *), cudaGetDeviceCount(int *);
int cudnnFuture(void), cufftFuture(void), cusparseFuture(void), cusolverFuture(void), cuptiFuture(void), cuFuture(void);
int nvmlFuture(void), nvshmemx_future(void), cufutureCreate(void **), nvFutureCreate(void **);
const char *ncclFutureErrorString(void);
void *nvshmemx_future_ptr(int);
extern int ncclFutureTable[4], cufutureTable[2];
int later_addition(void) __attribute__((weak));
int use(void)
{
    int n = 0, version = 0;
    for (int i = 0; i < 3; i++) printf("%d ", ncclCommFuture(1, 2.5));
    printf("%d %d %d ", cublasFuture(), cudaFuture(&n), cudnnFuture());
    printf("%d %d %d ", cufftFuture(), cusparseFuture(), cusolverFuture());
    printf("%d %d %d %d\n", cuptiFuture(), cuFuture(), nvmlFuture(), nvshmemx_future());
    printf("%d %d %p\n", cufutureCreate(0), nvFutureCreate(0), nvshmemx_future_ptr(1));
    printf("%s\n", ncclFutureErrorString());
    printf("%d %d\n", ncclFutureTable[3], cufutureTable[1]);
    printf("%d", cudaGetDeviceCount(&n));
    printf(" %d\n", n);
    printf("%d", ncclGetVersion(&version));
    printf(" %d\n", version > 20000);
    return later_addition ? 1 : 0;
}
"""
PRINTED = ("5 5 5 15 801 3000 16 10 9 27 801 3 3\n801 801 (nil)\nnot supported by the simulated GPU\n0 0\n0 2\n0 1\n")
CALLED = ["ncclCommFuture (called 3 times)", "cublasFuture (called once)", "cudaFuture (called once)",
          "cufutureCreate (called once)"]


def compile_c(folder, output, source, *flags):
    path = folder / f"{output}.c"
    path.write_text(source)
    subprocess.run(["gcc", "-w", "-o", folder / output, path, *flags], cwd=folder, check=True)


@pytest.fixture(scope="module")
def newer(tmp_path_factory):
    """A folder to link with. It is removed before the programs run: the libraries are in no other path."""
    folder = tmp_path_factory.mktemp("newer")
    for name, (node, source) in NEWER.items():
        flags = ["-shared", "-fPIC", f"-Wl,-soname,{name}"]
        if node:
            (folder / f"{name}.map").write_text(f"{node} {{ global: *; }};\n")
            flags.append(f"-Wl,--version-script={name}.map")
        compile_c(folder, name, source, *flags)
    return folder


def libraries(newer):
    return [newer / name for name in NEWER]


def simulate(folder, *command, options=("--simulate", "h100-80g", "--gpus", "2"), **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_"))}
    return subprocess.run([BUILD / "gpuspy", "run", *options, "--", *map(str, command)], cwd=folder, env=dict(clean, **env),
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


@pytest.mark.parametrize("flags", (("-Wl,-z,now",), ("-Wl,-z,lazy",), ("-no-pie", "-fno-pie"), ("-Wl,--hash-style=sysv",),
                                   ("-rdynamic", "-Wl,-z,separate-code")), ids=" ".join)
def test_a_program_that_is_linked_to_a_newer_cuda(tmp_path, newer, flags):
    compile_c(tmp_path, "program", USES + "int main(void) { return use(); }\n", *flags, *libraries(newer))
    done = simulate(tmp_path, tmp_path / "program")
    assert (done.returncode, done.stdout) == (0, PRINTED), done.stderr
    line = next(line for line in done.stderr.split("\n") if "lacks" in line)
    assert line.startswith("gpuspy: the simulated GPU lacks: ncclCommFuture (called 3 times), "), line
    assert "not supported" in line and "version information" not in done.stderr


def test_a_library_that_is_linked_to_it_and_loaded_later(tmp_path, newer):
    compile_c(tmp_path, "libuser.so", USES, "-shared", "-fPIC", *libraries(newer))
    compile_c(tmp_path, "program", """
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void)
        {
            for (int i = 0; i < 2; i++) { /* and once more after it is unloaded */
                void *h = dlopen("./libuser.so", RTLD_NOW);
                if (!h) { puts(dlerror()); return 9; }
                if (((int (*)(void))dlsym(h, "use"))()) return 8;
                dlclose(h);
            }
            return 0;
        }""", "-ldl")
    done = simulate(tmp_path, tmp_path / "program")
    assert (done.returncode, done.stdout) == (0, 2 * PRINTED), done.stderr
    assert "ncclCommFuture (called 6 times)" in done.stderr


@pytest.mark.parametrize("copy", ("libcudart-d0da41ae.so.13", "libcudart.faf08d9a.so.13"))
def test_a_copy_of_the_runtime_in_a_wheel(tmp_path, copy):
    """auditwheel adds a hash to the names of libraries that it copies into wheels. A second library needs the runtime by its
    own name; a third opens the copy by its path."""
    wheel = tmp_path / "torchvision.libs"
    wheel.mkdir()
    (tmp_path / "map").write_text("libcudart.so.13 { global: *; };\n")
    compile_c(wheel, copy, "int cudaGetDeviceCount(int *n) { *n = 77; return 0; }", "-shared", "-fPIC", f"-Wl,-soname,{copy}",
              f"-Wl,--version-script={tmp_path / 'map'}")
    count = "int cudaGetDeviceCount(int *); int %s(void) { int n = 0; return cudaGetDeviceCount(&n) ? -1 : n; }"
    compile_c(tmp_path, "libvision.so", count % "vision", "-shared", "-fPIC", wheel / copy, f"-Wl,-rpath,{wheel}")
    compile_c(tmp_path, "libtorch.so", count % "torch", "-shared", "-fPIC", BUILD / "sim" / "libcudart.so.13")
    compile_c(tmp_path, "program", f"""
        #include <dlfcn.h>
        #include <stdio.h>
        int torch(void), vision(void);
        int main(void)
        {{
            int n = 0;
            void *h = dlopen("{wheel / copy}", RTLD_NOW);
            ((int (*)(int *))dlsym(h, "cudaGetDeviceCount"))(&n);
            printf("%d %d %d\\n", torch(), vision(), n);
            return 0;
        }}""", "-L.", "-ltorch", "-lvision", "-Wl,-rpath,$ORIGIN")
    done = simulate(tmp_path, tmp_path / "program")
    assert (done.returncode, done.stdout) == (0, "2 2 2\n"), done.stderr


def test_a_copy_whose_name_has_a_dash(tmp_path):
    copy = "libnvidia-ml-d0da41ae.so.1"
    compile_c(tmp_path, copy, "int nvmlInit_v2(void) { return 77; }", "-shared", "-fPIC", f"-Wl,-soname,{copy}")
    compile_c(tmp_path, "program", "int nvmlInit_v2(void); int main(void) { return nvmlInit_v2(); }", tmp_path / copy, "-Wl,-rpath,$ORIGIN")
    assert simulate(tmp_path, tmp_path / "program").returncode == 0


def test_calls_of_all_processes_are_counted_however_they_end(tmp_path, newer):
    compile_c(tmp_path, "program", """
        #include <sys/wait.h>
        #include <unistd.h>
        int cublasFuture(void);
        int main(void)
        {
            for (int i = 0; i < 3; i++) if (!fork()) { cublasFuture(); _exit(0); }
            while (wait(0) > 0);
            cublasFuture();
            *(volatile int *)0 = 1;
        }""", newer / "libcublas.so.13")
    done = simulate(tmp_path, tmp_path / "program")
    assert done.returncode == -11 and "lacks: cublasFuture (called 4 times)" in done.stderr, done.stderr
    assert "lacks" not in simulate(tmp_path, tmp_path / "program", options=("--no-summary", "--simulate", "t4-16g")).stderr


def test_calls_that_the_simulator_refuses_are_listed_too(tmp_path):
    """The simulator has the function, which returns an error and does nothing."""
    compile_c(tmp_path, "program", "int cusolverDnXpotrf_bufferSize(void);"
              "int main(void) { return cusolverDnXpotrf_bufferSize(); }", BUILD / "sim/math/libcusolver.so.12")
    done = simulate(tmp_path, tmp_path / "program")
    assert done.returncode == 9 and "lacks: cusolverDnXpotrf_bufferSize (called once)" in done.stderr, done.stderr


def test_nothing_is_listed_that_was_not_called(tmp_path, newer):
    compile_c(tmp_path, "program", "int cublasFuture(void); int (*f)(void) = cublasFuture; int main(void) { return !f; }",
              newer / "libcublas.so.13")
    done = simulate(tmp_path, tmp_path / "program")
    assert done.returncode == 0 and "lacks" not in done.stderr, done.stderr


def test_other_errors_of_the_loader_stay(tmp_path, newer):
    """A function of no CUDA library, a library that is not CUDA's, one that the program only tries to load."""
    compile_c(tmp_path, "libown.so", "int own_helper(void) { return 1; }", "-shared", "-fPIC")
    compile_c(tmp_path, "libcurl.so.99", "int curl_future(void) { return 1; }", "-shared", "-fPIC", "-Wl,-soname,libcurl.so.99")
    uses = "int own_helper(void), ncclCommFuture(int, double); int main(void) { return own_helper() + ncclCommFuture(1, 2); }"
    compile_c(tmp_path, "symbol", uses, "-L.", "-lown", newer / "libnccl.so.2", f"-Wl,-rpath,{tmp_path}", "-Wl,-z,now")
    compile_c(tmp_path, "library", "int curl_future(void); int main(void) { return curl_future(); }", tmp_path / "libcurl.so.99")
    compile_c(tmp_path, "tries", """
        #include <dlfcn.h>
        int main(void) { return dlopen("libcufuture.so.1", RTLD_NOW) || dlsym(RTLD_DEFAULT, "cublasFuture") ? 9 : 0; }""", "-ldl")
    (tmp_path / "libcurl.so.99").unlink()
    compile_c(tmp_path, "libown.so", "int another;", "-shared", "-fPIC")
    done = simulate(tmp_path, tmp_path / "symbol")
    assert done.returncode == 127 and "own_helper" in done.stderr
    done = simulate(tmp_path, tmp_path / "library")
    assert done.returncode == 127 and "libcurl.so.99" in done.stderr
    assert simulate(tmp_path, tmp_path / "tries").returncode == 0


@pytest.mark.parametrize("first", ("libnccl", "libplugin"))
def test_a_name_like_nccls_that_another_library_defines(tmp_path, newer, first):
    compile_c(tmp_path, "libplugin.so", "int ncclPluginInit(void) { return 77; }", "-shared", "-fPIC", "-Wl,-soname,libplugin.so")
    order = [newer / "libnccl.so.2", tmp_path / "libplugin.so"]
    compile_c(tmp_path, "program", """
        #include <stdio.h>
        int ncclPluginInit(void), ncclCommFuture(int, double);
        int main(void) { printf("%d %d\\n", ncclPluginInit(), ncclCommFuture(1, 2)); return 0; }""",
        *(order if first == "libnccl" else order[::-1]), f"-Wl,-rpath,{tmp_path}")
    done = simulate(tmp_path, tmp_path / "program")
    assert done.stdout == "77 5\n", done.stderr


def test_a_real_library_is_preferred_to_none(tmp_path, newer):
    """It is installed with the program, like NVIDIA's wheels."""
    compile_c(tmp_path, "libcufuture.so.1", "int cufutureCreate(void **h) { return 42; }", "-shared", "-fPIC",
              "-Wl,-soname,libcufuture.so.1", f"-Wl,--version-script={newer / 'libcufuture.so.1.map'}")
    compile_c(tmp_path, "program", """
        #include <stdio.h>
        int cufutureCreate(void **);
        int main(void) { printf("%d\\n", cufutureCreate(0)); return 0; }""", newer / "libcufuture.so.1", f"-Wl,-rpath,{tmp_path}")
    assert simulate(tmp_path, tmp_path / "program").stdout == "42\n"


def test_every_library_that_the_simulator_has_has_a_status_of_its_own():
    rows = re.findall(r'^STATUS\("([^"]*)"', (ROOT / "fixtures/simcuda/redirect/lacks.def").read_text(), re.M)
    names = [p.name for folder in ("sim", "sim/math") for p in (BUILD / folder).glob("lib*.so.*")]
    assert names and [n for n in names if not any(row and n.startswith(row) for row in rows)] == []


# As in a wheel that links libcudart_static.a: hidden functions, which ask for NVIDIA's driver and fail.
STATIC = r"""
#include <stdio.h>
#define HIDDEN __attribute__((visibility("hidden"), noinline))
static volatile int failed = 500;
HIDDEN int cudaRuntimeGetVersion(int *v) { *v = failed; return failed + 0 * printf("%d", failed); }
HIDDEN int cudaMalloc(void **p, unsigned long n) { printf("%lu%p", n, (void *)p); return failed; }
HIDDEN int cudaMemcpy(void *to, const void *from, unsigned long n, int kind) { printf("%lu%d", n, kind); return failed; }
HIDDEN int cudaLaunchHelperOfTheProgram(int *n) { *n += printf("own\n"); return *n; }
int main(void)
{
    void *p;
    char back[6] = "";
    int n = 0;
    if (cudaMalloc(&p, 1 << 20) || cudaMemcpy(p, "hello", 6, 1) || cudaMemcpy(back, p, 6, 2)) return 1;
    printf("%s\n", back);
    return cudaLaunchHelperOfTheProgram(&n) != 4;
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the simulator replaces a static runtime on x86-64 only")
def test_a_static_runtime_is_replaced(recording):
    """By the symbols of the program's file; without them, its own functions are called."""
    source, program = recording.folder / "static.c", recording.folder / "static"
    source.write_text(STATIC)
    subprocess.run(["gcc", "-g", "-O1", "-o", program, source], check=True)
    done = recording.gpuspy("run", "--simulate", "1GiB", "-o", recording.database, "--", program)
    assert (done.returncode, done.stdout) == (0, "hello\nown\n"), done.stderr
    (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
    assert peak["bytes"] == 1 << 20 and peak["by_site"][0]["site"]["line"] == 14
    subprocess.run(["strip", program], check=True)
    assert recording.gpuspy("run", "--simulate", "1GiB", "--", program).returncode == 1
