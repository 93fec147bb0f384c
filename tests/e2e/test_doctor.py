"""gpuspy doctor: its findings on machines, drivers, Pythons and folders with problems."""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ROOT

GPUSPY = str(BUILD / "gpuspy")
SIM = str(BUILD / "sim")
STATES = ["ok", "warning", "problem"]

# A driver whose results the test chooses.
DRIVER = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int hidden(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && (!*visible || atoi(visible) > 1);
}
int cuInit(unsigned flags)
{
    const char *reported = getenv("FAKE_INIT");
    if (reported && !strcmp(reported, "hang")) sleep(1000);
    if (reported && !strcmp(reported, "crash")) abort();
    return reported ? atoi(reported) : hidden() ? 100 : 0;
}
int cuDriverGetVersion(int *v) { *v = 12020; return 0; }
int cuDeviceGetCount(int *n) { *n = hidden() ? 0 : 2; return 0; }
int cuDeviceGet(int *d, int i) { *d = i; return 0; }
int cuDeviceGetName(char *s, int n, int d) { strncpy(s, "Fake <b>\x1b[31mGPU", n); return 0; }
int cuDeviceTotalMem_v2(size_t *n, int d) { *n = (size_t)16 << 30; return 0; }
"""


def doctor(*words, cwd=None, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "CUDA_"))}
    env.update({k: str(v) for k, v in more.items()})
    return subprocess.run([GPUSPY, "doctor", *map(str, words)], env=env, cwd=cwd, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120)


def findings(*words, **more):
    done = doctor("--json", *words, **more)
    assert not done.stderr, done.stderr
    o = json.loads(done.stdout)
    assert all(c["state"] in STATES and c["text"] for c in o["checks"])
    assert o["problems"] == sum(c["state"] == "problem" for c in o["checks"])
    assert o["warnings"] == sum(c["state"] == "warning" for c in o["checks"])
    assert o["ok"] == (o["problems"] == 0) and done.returncode == (0 if o["ok"] else 1)
    return o["checks"]


def one(checks, name):
    found = [c for c in checks if c["id"] == name]
    assert len(found) == 1, (name, checks)
    return found[0]


def is_there(checks, name):
    return any(c["id"] == name for c in checks)


@pytest.fixture
def driver(tmp_path):
    """A folder with a driver made by the test."""
    folder = tmp_path / "driver"
    folder.mkdir()
    (folder / "cuda.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-w", "-o", "libcuda.so.1", "cuda.c"], cwd=folder, check=True)
    return folder


def python(folder, name="python3", **torch):
    """A Python environment with a PyTorch that consists of its version only."""
    if not (folder / "venv").exists():
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    if torch:
        site = next((folder / "venv" / "lib").glob("python3*")) / "site-packages" / "torch"
        site.mkdir(parents=True, exist_ok=True)
        (site / "__init__.py").write_text("raise SystemExit('it was imported')\n")
        (site / "version.py").write_text("".join(f"{k} = {v!r}\n" for k, v in torch.items()))
    return folder / "venv" / "bin" / name


# ---------------------------------------------------------------- a machine without problems

def test_all_is_well_on_the_simulated_gpu(tmp_path):
    checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=SIM, SIMCUDA_DEVICES=2, SIMCUDA_NAME="NVIDIA A100")
    assert all(c["state"] == "ok" for c in checks), checks
    assert [c["text"] for c in checks if c["id"] == "device"] == [f"GPU {i}: NVIDIA A100, 24.00 GiB" for i in (0, 1)]
    assert "up to 13.0" in one(checks, "driver")["text"]
    assert "gpuspy attach" in one(checks, "attach")["text"]
    assert one(checks, "test")["text"] == "an allocation of 1 MiB on GPU 0 was recorded and read back, with its stack"
    assert not list(tmp_path.iterdir())  # no file is left


def test_without_a_gpu_it_is_tested_on_the_simulated_one(tmp_path):
    checks = findings("/bin/ls", cwd=tmp_path)
    if one(checks, "driver")["state"] == "ok":
        pytest.skip("there is a driver here")
    assert "--simulate" in one(checks, "driver")["fix"]
    assert "on the simulated GPU was recorded" in one(checks, "test")["text"]


def test_it_is_quick_and_imports_nothing(tmp_path):
    began = time.monotonic()
    checks = findings(python(tmp_path, __version__="2.11.0", cuda="13.0", hip=None), cwd=tmp_path, LD_LIBRARY_PATH=SIM)
    assert one(checks, "torch")["state"] == "ok" and time.monotonic() - began < 20


def test_the_text_fits_and_is_plain_in_a_pipe(tmp_path):
    done = doctor("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=SIM, COLUMNS=80, GPUSPY_STACK="both")
    assert done.returncode == 0 and "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert max(len(line) for line in lines if "/" not in line) <= 80
    assert "Recording works, with 1 warning." in lines and "did you mean GPUSPY_STACKS?" in done.stdout


# ---------------------------------------------------------------- drivers

def test_a_driver_whose_names_are_hostile(driver, tmp_path):
    done = doctor("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver)
    assert "\x1b" not in done.stdout and "Fake <b>" in done.stdout


@pytest.mark.parametrize("reported, name, words", [
    (803, "init", "different versions"), (999, "init", "unknown reason"), (34, "init", "stub"),
    (802, "init", "not ready"), (12345, "init", "12345"), ("crash", "crashes", "ended the program"),
])
def test_a_driver_that_refuses(driver, tmp_path, reported, name, words):
    checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver, FAKE_INIT=reported)
    found = one(checks, name)
    assert found["state"] == "problem" and words in found["text"] and found["fix"]


def test_a_driver_that_hangs_does_not_hang_us(driver, tmp_path):
    began = time.monotonic()
    checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver, FAKE_INIT="hang")
    assert one(checks, "hangs")["state"] == "problem" and time.monotonic() - began < 60
    assert "on the simulated GPU was recorded" in one(checks, "test")["text"]


@pytest.mark.parametrize("reported, name, state", [(0, "nvml", "ok"), (18, "mismatch", "problem"), (9, "nvml", "warning")])
def test_nvmls_figures(driver, tmp_path, reported, name, state):
    (driver / "nvml.c").write_text("""
#include <string.h>
int nvmlInit_v2(void) { return %d; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "550.54.15", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)(i + 1L); return 0; }
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending) { *now = (long)d == 2; return 0; }
""" % reported)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libnvidia-ml.so.1", "nvml.c"], cwd=driver, check=True)
    checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver)
    assert one(checks, name)["state"] == state
    if reported == 0:
        assert "driver 550.54.15" in one(checks, name)["text"] and one(checks, "mig")["text"].startswith("GPU 1 is divided")


@pytest.mark.parametrize("visible", ["", "7"])
def test_gpus_that_are_hidden(driver, tmp_path, visible):
    found = one(findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver, CUDA_VISIBLE_DEVICES=visible), "hidden")
    assert found["state"] == "problem" and "hides the 2 GPUs" in found["text"] and "unset CUDA_VISIBLE_DEVICES" in found["fix"]


def test_a_list_of_gpus_that_makes_no_sense(driver, tmp_path):
    checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver, CUDA_VISIBLE_DEVICES="0,gpu1,1")
    assert "'gpu1' names no GPU" in one(checks, "visible")["text"] if len(
        [c for c in checks if c["id"] == "visible"]) == 1 else "'gpu1' names no GPU" in checks[4]["text"]
    for fine in "0", "1,0", "GPU-1234,GPU-5678", "-1":
        checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=driver, CUDA_VISIBLE_DEVICES=fine)
        assert not [c for c in checks if c["id"] == "visible" and c["state"] != "ok"]


def test_the_toolkits_stub(driver, tmp_path):
    stubs = tmp_path / "lib64" / "stubs"
    stubs.mkdir(parents=True)
    shutil.copy(driver / "libcuda.so.1", stubs)
    checks = findings("/bin/ls", cwd=tmp_path, LD_LIBRARY_PATH=stubs, FAKE_INIT=34)
    assert one(checks, "stub")["state"] == one(checks, "stubs")["state"] == "problem"


# ---------------------------------------------------------------- Python and PyTorch

def test_a_cpu_only_pytorch_where_the_driver_sees_a_gpu(tmp_path):
    """The classic."""
    where = python(tmp_path, __version__="2.6.0+cpu", cuda=None, hip=None)
    found = one(findings(where, cwd=tmp_path, LD_LIBRARY_PATH=SIM, SIMCUDA_DRIVER=12060), "torch_cpu")
    assert found["state"] == "problem" and "CPU-only build, though the driver sees 1 GPU" in found["text"]
    assert found["fix"].endswith("/whl/cu126")
    found = one(findings(where, cwd=tmp_path, LD_LIBRARY_PATH=SIM, SIMCUDA_DEVICES=0), "torch_cpu")
    assert found["state"] == "warning" and "--torch-cpu" in found["fix"]


@pytest.mark.parametrize("driver_version, cuda, state, wheel", [
    (12040, "13.0", "problem", "cu124"), (11080, "12.1", "problem", "cu118"), (12040, "12.6", None, None),
    (13000, "13.0", None, None), (13000, "11.8", None, None),
])
def test_pytorchs_cuda_against_the_drivers(tmp_path, driver_version, cuda, state, wheel):
    where = python(tmp_path, __version__="2.9.0", cuda=cuda, hip=None)
    checks = findings(where, cwd=tmp_path, LD_LIBRARY_PATH=SIM, SIMCUDA_DRIVER=driver_version)
    if not state:
        assert one(checks, "torch")["state"] == "ok" and f"CUDA {cuda}" in one(checks, "torch")["text"]
        return
    found = one(checks, "torch_newer")
    assert found["state"] == state and f"CUDA {cuda}, newer than the driver's" in found["text"] and wheel in found["fix"]


def test_other_pytorchs(tmp_path):
    where = python(tmp_path, __version__="1.5.1", cuda="10.2", hip=None)
    assert one(findings(where, cwd=tmp_path, LD_LIBRARY_PATH=SIM), "torch_old")["state"] == "warning"
    where = python(tmp_path, __version__="2.6.0+rocm6.2", cuda=None, hip="6.2.41133")
    assert "ROCm 6.2" in one(findings(where, cwd=tmp_path, LD_LIBRARY_PATH=SIM), "torch_rocm")["text"]


def test_a_script_that_hides_pytorch(tmp_path):
    where = python(tmp_path)
    (tmp_path / "torch.py").write_text("x = 1\n")
    found = one(findings(where, cwd=tmp_path), "torch_hidden")
    assert found["state"] == "warning" and found["text"].startswith(f"'import torch' finds {tmp_path}/torch.py")


def test_a_failing_import_is_reported_if_requested(tmp_path):
    where = python(tmp_path, __version__="2.9.0", cuda="12.6", hip=None)
    checks = findings("--deep", where, cwd=tmp_path, LD_LIBRARY_PATH=SIM)
    assert one(checks, "torch")["state"] == "ok"
    assert "it was imported" in one(checks, "torch_import")["text"]


def test_pytorch_on_the_simulated_gpu(tmp_path):
    """A version that imports a function which the simulator lacks; one that fails to import; one whose import does not
    help."""
    where = python(tmp_path, __version__="9.9.0", cuda="13.0", hip=None)
    package = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages" / "torch"
    (tmp_path / "new.c").write_text("int ncclFuture(void) { return 0; }")
    (tmp_path / "torch.c").write_text("int ncclFuture(void); int load(void) { return ncclFuture(); }")
    for output, source, flags in (("libnccl.so.2", "new.c", ["-Wl,-soname,libnccl.so.2"]),
                                  (package / "libtorch_cuda.so", "torch.c", [tmp_path / "libnccl.so.2", "-Wl,-z,now"])):
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", output, source, *flags], cwd=tmp_path, check=True)
    load = f"import ctypes\nctypes.CDLL({str(package / 'libtorch_cuda.so')!r})\n"
    (package / "__init__.py").write_text(load + "def zeros(n, device): pass\n")
    if one(findings("/bin/ls", cwd=tmp_path), "driver")["state"] == "ok":
        pytest.skip("there is a driver here")
    found = one(findings(where, cwd=tmp_path), "torch_simulated")
    assert found["state"] == "ok" and "PyTorch 9.9.0 was imported" in found["text"]
    assert "it imports ncclFuture, which the simulated GPU lacks: calls of it return" in found["text"]
    for source, message in ((load + "def zeros(n, device): raise RuntimeError('no kernel')\n", "RuntimeError: no kernel; it imports"),
                            ("import nothing_of_that_name\n", "No module named 'nothing_of_that_name'")):
        (package / "__init__.py").write_text(source)
        found = one(findings(where, cwd=tmp_path), "torch_simulated")
        assert found["state"] == "warning" and "9.9.0 cannot be used" in found["text"] and message in found["text"], found
    assert not is_there(findings(where, cwd=tmp_path, LD_LIBRARY_PATH=SIM), "torch_simulated")  # there is a GPU


def test_debians_pytorch():
    if not os.path.exists("/usr/lib/python3/dist-packages/torch/version.py"):
        pytest.skip("no python3-torch")
    found = one(findings("/usr/bin/python3", LD_LIBRARY_PATH=SIM), "torch_cpu")
    assert found["state"] == "problem"


@pytest.mark.parametrize("version, cuda", [("2.11.0", "13.0"), ("2.6.0", "12.4")])
def test_real_builds_of_pytorch(version, cuda):
    where = ROOT / "build" / f"torch-{version}" / "bin" / "python"
    if not where.exists():
        pytest.skip(f"no PyTorch {version} here")
    found = one(findings(where, LD_LIBRARY_PATH=SIM), "torch")
    assert found["state"] == "ok" and f"PyTorch {version}" in found["text"] and f"CUDA {cuda}" in found["text"]
    checks = findings(where, LD_LIBRARY_PATH=SIM, SIMCUDA_DRIVER=11080)
    assert one(checks, "torch_newer")["state"] == "problem"


def test_packages_are_named_with_what_is_recorded_of_them(tmp_path):
    where = python(tmp_path)
    site = next((tmp_path / "venv" / "lib").glob("python3*")) / "site-packages"
    for name, version in ("jax", "0.4.30"), ("cupy-cuda12x", "13.0.0"), ("tensorflow", "2.17.0"):
        folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    checks = findings(where, cwd=tmp_path)
    assert one(checks, "jax")["text"].startswith("JAX 0.4.30: its pool is recorded, not its arrays")
    assert is_there(checks, "cupy-cuda12x") and is_there(checks, "tensorflow")


def test_pythons_that_are_unusable(tmp_path):
    fake = tmp_path / "python9"
    for script in "exit 3", "echo hello", "kill -9 $$", "printf '\\377\\n'", "echo '{\"version\": 3}'":
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        checks = findings(fake, cwd=tmp_path)
        assert is_there(checks, "python") or is_there(checks, "implementation"), checks
    done = doctor(tmp_path / "missing")
    assert done.returncode == 3 and re.fullmatch(r"gpuspy: doctor: cannot check '[^\n]*': it does not exist[^\n]*\n", done.stderr)
    assert doctor("a", "b").returncode == 2


def test_the_interpreter_of_a_script_is_checked(tmp_path):
    where = python(tmp_path, __version__="2.9.0", cuda="12.6", hip=None)
    script = tmp_path / "torchrun"
    for line in f"#!{where}", f"#!/usr/bin/env {where}", f"#! {where} -s":
        script.write_text(f"{line}\nprint(1)\n")
        script.chmod(0o755)
        assert is_there(findings(script, cwd=tmp_path, LD_LIBRARY_PATH=SIM), "torch")


# ---------------------------------------------------------------- programs

def test_programs_into_which_nothing_can_be_loaded(tmp_path):
    (tmp_path / "x.c").write_text("int main(void) { return 0; }\n")
    if subprocess.run(["gcc", "-static", "-o", "static", "x.c"], cwd=tmp_path, stderr=subprocess.DEVNULL).returncode == 0:
        assert one(findings(tmp_path / "static", cwd=tmp_path), "static")["state"] == "problem"
    subprocess.run(["gcc", "-o", "plain", "x.c"], cwd=tmp_path, check=True)
    assert one(findings(tmp_path / "plain", cwd=tmp_path), "program")["state"] == "ok"
    other = bytearray((tmp_path / "plain").read_bytes())
    other[18:20] = (183).to_bytes(2, "little")  # ARM
    (tmp_path / "arm").write_bytes(other)
    (tmp_path / "arm").chmod(0o755)
    assert one(findings(tmp_path / "arm", cwd=tmp_path), "architecture")["state"] == "problem"
    if os.geteuid() == 0:
        shutil.chown(tmp_path / "plain", 65534, 65534)
    (tmp_path / "plain").chmod(0o4755)
    if os.geteuid() == 0:
        assert one(findings(tmp_path / "plain", cwd=tmp_path), "secure_execution")["state"] == "problem"


# ---------------------------------------------------------------- the recorder, the folder, the settings

def test_a_recorder_that_does_not_load(tmp_path):
    bad = tmp_path / "libgpuspy.so"
    bad.write_bytes((BUILD / "libgpuspy.so").read_bytes()[:5000])
    checks = findings("/bin/ls", cwd=tmp_path, GPUSPY_LIB=bad)
    assert one(checks, "loads")["state"] == "problem"
    checks = findings("/bin/ls", cwd=tmp_path, GPUSPY_LIB=tmp_path / "none.so")
    assert one(checks, "library")["state"] == "problem" and not is_there(checks, "test")


def test_folders_that_will_not_do(tmp_path):
    found = one(findings("/bin/ls", cwd=tmp_path, GPUSPY_DB="no/such/run.db"), "folder")
    assert found["state"] == "problem" and "run -o" in found["fix"]
    (tmp_path / "file").touch()
    assert one(findings("/bin/ls", cwd=tmp_path, GPUSPY_DB="file/run.db"), "folder")["state"] == "problem"
    assert one(findings("/bin/ls", cwd=tmp_path, GPUSPY_DB="/proc/run.db"), "writable")["state"] == "problem"
    assert one(findings("/bin/ls", cwd=tmp_path, GPUSPY_DB=tmp_path / "run.db"), "space")["state"] in ("ok", "warning")


def test_a_disk_on_which_a_recording_ends_at_once(tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "none", tmp_path], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not mount a small file system here")
    try:
        (tmp_path / "filler").write_bytes(bytes(97 << 20))
        space = one(findings("/bin/ls", cwd=tmp_path, GPUSPY_DB=tmp_path / "run.db"), "space")
        assert space["state"] == "problem" and "does not grow when less than 5.00 MiB is free" in space["text"] and "GPUSPY_MIN_FREE" in space["fix"]
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


def test_settings(tmp_path):
    checks = findings("/bin/ls", cwd=tmp_path, GPUSPY_STAKS="both", GPUSPY_NATIVE_DEPTH="0", GPUSPY_QUIET="maybe",
                      GPUSPY_NVML="1")
    assert "did you mean GPUSPY_STACKS?" == one(checks, "unknown")["fix"]
    assert sorted(c["text"].split("=")[0] for c in checks if c["id"] == "value") == ["GPUSPY_NATIVE_DEPTH", "GPUSPY_QUIET"]
    for name, value in [("GPUSPY_KEEP", "foo"), ("GPUSPY_KEEP", "1MiB"), ("GPUSPY_MIN_FREE", "much")]:
        assert f"{name}={value} is invalid" in one(findings("/bin/ls", cwd=tmp_path, **{name: value}), "value")["text"]
    assert is_there(findings("/bin/ls", cwd=tmp_path, GPUSPY_KEEP="512MiB", GPUSPY_MIN_FREE="0"), "settings")
    found = one(findings("/bin/ls", cwd=tmp_path, GPUSPY_DISABLE=1), "disabled")
    assert found["state"] == "problem"
    assert is_there(findings("/bin/ls", cwd=tmp_path, GPUSPY_DISABLE=0), "settings")


def test_others_in_the_way(tmp_path):
    (tmp_path / "x.c").write_text("int x;\n")
    subprocess.run(["gcc", "-shared", "-o", "libnsysInjection.so", "x.c"], cwd=tmp_path, check=True)
    checks = findings("/bin/ls", cwd=tmp_path, LD_PRELOAD=tmp_path / "libnsysInjection.so", CUDA_LAUNCH_BLOCKING=1)
    assert "record each other's calls" in one(checks, "preloaded")["text"]
    assert "CUDA_LAUNCH_BLOCKING=1" in one(checks, "environment")["text"]


def test_under_the_recorder_itself_nothing_is_recorded(tmp_path):
    checks = findings("/bin/ls", cwd=tmp_path, LD_PRELOAD=BUILD / "libgpuspy.so", LD_LIBRARY_PATH=SIM)
    assert all(c["state"] == "ok" for c in checks), checks
    assert not list(tmp_path.iterdir())
