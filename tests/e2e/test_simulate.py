"""gpuspy run --simulate: a program on a GPU that is not in this machine."""
import json
import os
import subprocess
import sys

import pytest

from conftest import BUILD, Recording

# Loads CUDA like packages that ignore LD_LIBRARY_PATH: by name, by a full path outside of it, and by RPATH.
LOADER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv)
{
    void *h = dlopen(argv[1], RTLD_NOW), *p = 0;
    if (!h) { fprintf(stderr, "%s\n", dlerror()); return 9; }
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(h, "cudaMalloc");
    int (*count)(int *) = (int (*)(int *))dlsym(h, "cudaGetDeviceCount");
    int n = 0;
    printf("%d %d", allocate(&p, 1 << 20), count(&n));
    printf(" %d\n", n);
    return 0;
}
"""


@pytest.fixture
def loader(tmp_path):
    (tmp_path / "loader.c").write_text(LOADER)
    subprocess.run(["gcc", "-w", "-o", tmp_path / "loader", tmp_path / "loader.c", "-ldl"], check=True)
    return tmp_path / "loader"


def simulate(folder, *words, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_"))}
    return subprocess.run([BUILD / "gpuspy", "run", *map(str, words)], cwd=folder, env=dict(clean, **env), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)


sanitized = pytest.mark.skipif(bool(os.environ.get("SAN_PRELOAD")), reason="a sanitizer's run time and LD_AUDIT")


@sanitized
@pytest.mark.parametrize("library", ("libcudart.so.12", "/opt/nowhere/nvidia/cuda_runtime/lib/libcudart.so.13"))
def test_however_the_library_is_requested(tmp_path, loader, library):
    done = simulate(tmp_path, "--simulate", "h100-80g", "--gpus", "3", "--", loader, library)
    assert (done.returncode, done.stdout) == (0, "0 0 3\n"), done.stderr
    recording = Recording(tmp_path)
    name, total = recording.sql("SELECT name, total_bytes FROM device WHERE device = 0")[0]
    assert name == "NVIDIA H100 80GB HBM3 (simulated)"
    assert 79 << 30 < total < 80 << 30
    assert recording.sql("SELECT bytes FROM allocations WHERE layer = 'device'") == [(1 << 20,)]


# What setproctitle, which vLLM calls, does to the strings of the environment that the process started with.
RENAMED = """import ctypes
cuda, libc = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL(None)
assert cuda.cudaRuntimeGetVersion(ctypes.byref(ctypes.c_int())) == 0 and cuda.cudaGetDeviceCount(ctypes.byref(ctypes.c_int())) == 0
libc.getenv.restype = ctypes.c_void_p
at = libc.getenv(b"SIMCUDA_NAME")
ctypes.memset(at, 0, len(ctypes.string_at(at)))
assert cuda.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 20)) == 0
"""


@sanitized
def test_a_process_that_overwrites_its_environment_keeps_the_name_of_the_gpu(tmp_path):
    done = simulate(tmp_path, "--simulate", "24GiB", "--", sys.executable, "-c", RENAMED)
    assert done.returncode == 0, done.stderr
    assert Recording(tmp_path).sql("SELECT name FROM device") == [("GPU (simulated)",)]


@sanitized
def test_the_report_states_that_no_kernel_ran(tmp_path, loader):
    simulate(tmp_path, "--simulate", "t4-16g", "--", loader, "libcudart.so.13")
    recording = Recording(tmp_path)
    assert "no kernel ran" in recording.gpuspy("report", recording.database).stdout
    assert [d["simulated"] for d in recording.report()["devices"]] == [True]


@sanitized
def test_too_much_for_it_is_out_of_memory(tmp_path):
    program = tmp_path / "much.c"
    program.write_text(LOADER.replace("1 << 20", "30ull << 30"))
    subprocess.run(["gcc", "-w", "-o", tmp_path / "much", program, "-ldl"], check=True)
    fits = simulate(tmp_path, "--simulate", "a100-40g", "-o", "fits.db", "--", tmp_path / "much", "libcudart.so.13")
    fails = simulate(tmp_path, "--simulate", "rtx4090-24g", "-o", "fails.db", "--", tmp_path / "much", "libcudart.so.13")
    assert fits.stdout.startswith("0 ") and fails.stdout.startswith("2 ")
    answer = json.loads(Recording(tmp_path).gpuspy("report", "--json", "fails.db").stdout)
    assert answer["oom"][0]["requested_bytes"] == 30 << 30


def test_wrong_words(tmp_path):
    done = simulate(tmp_path, "--simulate", "h10", "--", "true")
    assert done.returncode == 2 and "did you mean 'h100-80g'?" in done.stderr
    done = simulate(tmp_path, "--simulate", "24", "--", "true")
    assert done.returncode == 2
    done = simulate(tmp_path, "--gpus", "2", "--", "true")
    assert done.returncode == 2 and "--simulate" in done.stderr


@pytest.mark.parametrize("words", (("-o", "x.db"), ("--gpus=2",), ("--",), ("-ox.db",)))
def test_an_option_is_not_the_name_of_a_gpu(tmp_path, words):
    done = simulate(tmp_path, "--simulate", *words, "--", "true")
    assert (done.returncode, done.stderr) == (2, "gpuspy: run: --simulate needs a value; write --simulate=GPU|SIZE\n")


@pytest.mark.parametrize("option", [("run", "--simulate", "{}", "--", "true"), ("run", "--limit", "{}", "--", "true"),
                                    ("estimate", "--params", "1e9", "--gpu", "{}")], ids=["simulate", "limit", "estimate"])
def test_every_option_knows_the_same_gpus(tmp_path, option):
    """Keys, common names, the driver's name, in upper or lower case; also of other manufacturers."""
    for name in "h100", "RTX-4090", "rtx4090-24g", "NVIDIA A100-SXM4-80GB", "mi300x", "T4":
        done = subprocess.run([BUILD / "gpuspy", *(word.format(name) for word in option)], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode in (0, 1), (name, done.stderr)


@sanitized
@pytest.mark.parametrize("size, total", [("24GiB", 24 << 30), ("24g", 24 << 30), ("mi300x", 196592 << 20)])
def test_sizes_and_other_makers_are_simulated(tmp_path, loader, size, total):
    done = simulate(tmp_path, "--simulate", size, "--", loader, "libcudart.so.13")
    assert (done.returncode, done.stdout) == (0, "0 0 1\n"), done.stderr
    device = Recording(tmp_path).report()["devices"][0]
    assert device["total_bytes"] == total and device["simulated"] is True


# A loop that reads a flag which its kernel would set; with an argument, the host also sends a counter.
POLL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
struct dim { unsigned x, y, z; };
int main(int argc, char **argv)
{
    void *h = dlopen("libcudart.so.13", RTLD_NOW), *p = 0;
    int (*allocate)(void **, size_t) = (int (*)(void **, size_t))dlsym(h, "cudaMalloc");
    int (*copy)(void *, void *, size_t, int) = (int (*)(void *, void *, size_t, int))dlsym(h, "cudaMemcpy");
    int (*launch)(void *, struct dim, struct dim, void **, size_t, void *) =
        (int (*)(void *, struct dim, struct dim, void **, size_t, void *))dlsym(h, "cudaLaunchKernel");
    struct dim one = {1, 1, 1};
    int done = 0, i = 0, most = argc > 1 ? atoi(argv[1]) : 1 << 30;
    allocate(&p, 64);
    while (!done && i < most) {
        i++;
        if (argc > 1) copy((char *)p + 8, &i, sizeof i, 1);
        launch(main, one, one, NULL, 0, NULL);
        copy(&done, p, sizeof done, 2);
    }
    printf("%d\n", i);
    return 0;
}
"""


@pytest.fixture
def poll(tmp_path):
    (tmp_path / "poll.c").write_text(POLL)
    subprocess.run(["gcc", "-w", "-rdynamic", "-o", tmp_path / "poll", tmp_path / "poll.c", "-ldl"], check=True)
    return tmp_path / "poll"


@sanitized
def test_a_native_loop_that_waits_for_a_value_is_stopped(tmp_path, poll):
    done = simulate(tmp_path, "--simulate", "t4-16g", "--simulate-loops", "2", "--", poll, SIMCUDA_KERNEL_US="0")
    assert done.returncode == 124 and done.stdout == ""
    assert "/poll(main+0x" in done.stderr and "waits for values that a simulated GPU does not compute" in done.stderr
    recording = Recording(tmp_path)
    report = " ".join(recording.gpuspy("report", recording.database).stdout.split())  # a long path has its own line
    assert report.startswith("! a loop at ") and "killed" not in report
    assert recording.report()["run"]["loop"].startswith("a loop at ")


@sanitized
def test_a_native_loop_with_new_data_ends_by_itself(tmp_path, poll):
    done = simulate(tmp_path, "--simulate", "t4-16g", "--simulate-loops", "1", "--", poll, "3000", SIMCUDA_KERNEL_US="0")
    assert (done.returncode, done.stdout) == (0, "3000\n"), done.stderr


@sanitized
def test_settings_are_for_dry_runs_only(tmp_path):
    show = "import os; print(os.environ.get('SIMCUDA_LOOPS'), 'python' in os.environ.get('PYTHONPATH', ''))"
    for options, printed in (((), "None False"), (("--simulate", "t4-16g"), "1000 True"),
                             (("--simulate", "t4-16g", "--simulate-loops", "0"), "0 True")):
        done = simulate(tmp_path, *options, "--", "/usr/bin/python3", "-c", show)
        assert done.stdout.strip() == printed, (options, done.stderr)
    done = simulate(tmp_path, "--simulate-loops", "5", "--", "true")
    assert done.returncode == 2 and "--simulate" in done.stderr


@sanitized
def test_the_programs_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own')\n")
    done = simulate(tmp_path, "--simulate", "t4-16g", "--", "/usr/bin/python3", "-c",
                    "import sys; print(any(path.endswith('sim/python') for path in sys.path))", PYTHONPATH=str(tmp_path / "own"))
    assert done.stdout == "own\nFalse\n", done.stderr


CUPY = """
class cuda:
    allocator = "pool"

    @classmethod
    def set_allocator(cls, allocator):
        cls.allocator = allocator
"""


@sanitized
@pytest.mark.parametrize("options, allocator, dry", [
    ((), "pool", False), (("--inside-pools",), None, False), (("--simulate", "t4-16g"), "pool", True),
    (("--inside-pools", "--simulate", "t4-16g", "--gpus", "2", "--limit", "8GiB", "--keep", "64MiB", "--stacks", "python",
      "--native-depth", "9", "--torch-cpu", "--on-oom", "true"), None, True)], ids=["", "pools", "dry", "all"])
def test_cupy_gives_its_pool_up_inside_pools(tmp_path, options, allocator, dry):
    """A replacement for CuPy: the real one was tested by hand. A child of the program does the same."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cupy.py").write_text(CUPY)
    (tmp_path / "own" / "sitecustomize.py").write_text("print('own')\n")
    show = "import cupy, sys; print(cupy.cuda.allocator, 'gpuspy_loops' in sys.modules)"
    twice = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {show!r}])"
    done = simulate(tmp_path, *options, "--", "/usr/bin/python3", "-c", twice, PYTHONPATH=str(tmp_path / "own"))
    assert sorted(done.stdout.splitlines()) == sorted(["own", "own", f"{allocator} {dry}"]), done.stderr
