"""JAX and Numba themselves on the simulated GPU (scripts/setup-frameworks.sh installs them; skipped without)."""
import subprocess

import pytest
from conftest import BUILD, SAN, SECONDS

PYTHON = BUILD / "frameworks" / "venv" / "bin" / "python"
GIB, MIB = 1 << 30, 1 << 20
pytestmark = [
    pytest.mark.skipif(not (BUILD / "frameworks" / "done").exists(), reason="JAX and Numba are not installed"),
    pytest.mark.skipif(bool(SAN), reason="not beside a sanitizer"),
]
JAX = """
import jax._src.hardware_utils  # JAX looks for /dev/nvidia0
jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
import jax
import numpy
a = jax.device_put(numpy.ones((1 << 20,), "f4"))
print((a + 1).block_until_ready().nbytes)
"""
NUMBA = """
import numpy
from numba import cuda
a = cuda.device_array(8 << 20, dtype="f4")
b = cuda.to_device(numpy.ones(1 << 20))
"""


def run(recording, script, **more):
    path = recording.folder / "script.py"
    path.write_text(script)
    recording.run(PYTHON, path, LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}",
                  JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1, JAX_PLATFORMS="cuda", **more)
    answer = recording.report()
    (peak,) = [p for p in answer["peak"] if p["layer"] == "device"]
    return answer, peak


def test_jax_takes_three_quarters(recording):
    answer, peak = run(recording, JAX)
    assert list(peak["by_owner"]) == ["JAX"]
    (took,) = answer["preallocations"]
    assert took["in_advance"] and abs(took["share"] - .75) < .001 and took["bytes"] == peak["bytes"]
    assert took["site"]["line"] == 6
    assert "No CUDA call ran out of memory" in recording.gpuspy("report", recording.database).stdout


@pytest.mark.parametrize("name", ["XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"])
def test_jaxs_setting_for_its_share_is_stated(recording, name):
    answer, _ = run(recording, JAX, **{name: ".4"})
    (took,) = answer["preallocations"]
    assert took["in_advance"] and abs(took["share"] - .4) < .001 and f"by {name}=.4)" in took["text"]


@pytest.mark.parametrize("name, value", [("XLA_PYTHON_CLIENT_PREALLOCATE", "false"),
                                         ("XLA_PYTHON_CLIENT_ALLOCATOR", "platform")])
def test_jax_takes_nothing_in_advance(recording, name, value):
    answer, peak = run(recording, JAX, **{name: value})
    assert list(peak["by_owner"]) == ["JAX"] and peak["bytes"] < 64 * MIB
    assert answer["preallocations"] == []


def test_numba_by_the_driver(recording):
    _, peak = run(recording, NUMBA)
    assert peak["by_owner"] == {"Numba": 40 * MIB}
    assert {s["site"]["line"] for s in peak["by_site"]} == {4, 5}


INSIDE = """
import jax._src.hardware_utils
jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
import jax
import numpy
kept = []
for step in range(3):
    kept.append(jax.device_put(numpy.ones((1 << 21,), "f4")))
    dropped = jax.device_put(numpy.ones((1 << 20,), "f4"))
    del dropped
kept[0].block_until_ready()
"""


def test_inside_jaxs_pool(recording):
    """With --inside-pools each array is an allocation at its line, and is freed when the array is deleted."""
    path = recording.folder / "script.py"
    path.write_text(INSIDE)
    env = recording.environment(LD_LIBRARY_PATH=f"{BUILD / 'sim'}:{BUILD / 'sim' / 'math'}", JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1,
                                JAX_PLATFORMS="cuda")
    env = {k: v for k, v in env.items() if not k.startswith(("LD_PRELOAD", "GPUSPY_"))}
    done = subprocess.run([BUILD / "gpuspy", "run", "-o", recording.database, "--inside-pools", "--", PYTHON, path], env=env,
                          cwd=recording.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
    held = {s["site"]["line"]: s["bytes"] for s in peak["by_site"]}
    assert held[8] == 24 * MIB
