"""gpuspy run --simulate: a program on a GPU that is not there."""
import json
import os
import subprocess

import pytest

from conftest import BUILD, Recording

# Loads CUDA as packages do, past LD_LIBRARY_PATH: by name, by a full path that has none of it, and by RPATH.
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
def test_wherever_the_library_is_asked_for(tmp_path, loader, library):
    done = simulate(tmp_path, "--simulate", "h100-80g", "--gpus", "3", "--", loader, library)
    assert (done.returncode, done.stdout) == (0, "0 0 3\n"), done.stderr
    recording = Recording(tmp_path)
    name, total = recording.sql("SELECT name, total_bytes FROM device WHERE device = 0")[0]
    assert name == "NVIDIA H100 80GB HBM3 (simulated)"
    assert 79 << 30 < total < 80 << 30
    assert recording.sql("SELECT bytes FROM allocations WHERE layer = 'device'") == [(1 << 20,)]


@sanitized
def test_the_report_says_that_no_kernel_ran(tmp_path, loader):
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
    done = simulate(tmp_path, "--simulate", "h100", "--", "true")
    assert done.returncode == 2 and "did you mean 'h100-80g'?" in done.stderr
    done = simulate(tmp_path, "--gpus", "2", "--", "true")
    assert done.returncode == 2 and "--simulate" in done.stderr
