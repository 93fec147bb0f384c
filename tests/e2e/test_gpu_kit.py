"""The acceptance run for GPUs and its kit, tested without a GPU."""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import BUILD, ROOT

NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
SANITIZED = pytest.mark.skipif(bool(os.environ.get("SAN_PRELOAD")), reason="not with sanitizers")


def acceptance(root, out, *words, cwd=None, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_"))}
    return subprocess.run([root / "scripts" / "gpu-acceptance.sh", out, *words], text=True, timeout=300, cwd=cwd,
                          env=dict(clean, PYTHON=sys.executable, **env), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def has_gpu():
    return Path("/dev/nvidiactl").exists()


@SANITIZED
@pytest.mark.skipif(has_gpu(), reason="this machine has a GPU")
def test_the_kit_is_small_and_states_what_it_could_not_run(tmp_path):
    build = tmp_path / "build"
    build.mkdir()
    for name in ("libgpuspy.so", "gpuspy"):
        shutil.copy(BUILD / name, build)
    made = subprocess.run([ROOT / "scripts" / "gpu-kit.sh"], env=dict(os.environ, O=str(build)), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert made.returncode == 0, made.stderr
    subprocess.run(["tar", "xf", build / "gpu-kit.tar.gz", "-C", tmp_path], check=True)
    done = acceptance(tmp_path / "gpu-kit", tmp_path / "out")
    assert done.returncode == 1 and done.stdout.splitlines()[-1].startswith("0 passed, 0 failed"), done.stdout
    results = json.loads((tmp_path / "out" / "results.json").read_text())["results"]
    assert results and all("no GPU" in r["reason"] for r in results)
    # its own libraries serve its own program
    help_ = subprocess.run([tmp_path / "gpu-kit/build/gpuspy", "--version"], text=True, stdout=subprocess.PIPE,
                           env=dict(os.environ, LD_LIBRARY_PATH=str(tmp_path / "gpu-kit/build/lib")))
    assert help_.returncode == 0 and "gpuspy" in help_.stdout


@SANITIZED
@pytest.mark.skipif(not Path(NVCC).exists(), reason="no nvcc")
def test_the_cuda_programs_on_the_simulator(tmp_path):
    checks = "cuda_shared_runtime,cuda_static_runtime,cuda_driver_and_vmm,same_table_by_every_door,killed_at_random"
    build = tmp_path / "a build"  # LD_PRELOAD ends a name at a space
    build.symlink_to(BUILD)
    done = acceptance(ROOT, "the results", "--simulated", f"--only={checks}", cwd=tmp_path, GPUSPY_BUILD=str(build))
    assert done.stdout.splitlines()[-1] == "5 passed, 0 failed, 0 skipped", done.stdout + done.stderr
    assert (tmp_path / "the results" / "results.md").exists()


@SANITIZED
@pytest.mark.skipif(not Path(NVCC).exists(), reason="no nvcc")
def test_a_driver_older_than_nvcc(tmp_path):
    """Its programs cannot start there: that is no failure of gpuspy, and no two empty tables are equal."""
    done = acceptance(ROOT, tmp_path, "--simulated", "--only=cuda_shared_runtime,same_table_by_every_door", SIMCUDA_DRIVER="9020")
    assert done.stdout.splitlines()[-1] == "0 passed, 0 failed, 2 skipped" and "the driver is for CUDA 9.2" in done.stdout, done.stdout
