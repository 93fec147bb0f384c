"""JAX and Numba themselves on the simulated GPU (scripts/setup-frameworks.sh installs them; skipped without)."""
import pytest
from conftest import BUILD, SAN

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
def test_jax_takes_as_much_as_it_is_told(recording, name):
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
