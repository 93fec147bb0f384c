"""PyTorch and JAX in one process: whose memory fills the GPU."""
import pytest
from conftest import BUILD

JAX = BUILD / "frameworks" / "venv" / "lib" / "python3.11" / "site-packages"
SCRIPT = """
import jax._src.hardware_utils
jax._src.hardware_utils.has_visible_nvidia_gpu = lambda: True
import jax, numpy, torch
jax.device_put(numpy.ones((1 << 20,), "f4")).block_until_ready()
kept = [torch.empty(1 << 30, dtype=torch.uint8, device="cuda") for _ in range(20)]
"""


@pytest.mark.skipif(not JAX.exists(), reason="JAX is not installed: scripts/setup-frameworks.sh does")
def test_jax_leaves_a_quarter(record, tmp_path):
    (tmp_path / "both.py").write_text(SCRIPT)
    done = record(tmp_path / "both.py", fresh=True, PYTHONPATH=JAX, JAX_SKIP_CUDA_CONSTRAINTS_CHECK=1, JAX_PLATFORMS="cuda",
                  SIMCUDA_MEMORY="40GiB")
    assert done.code == 1 and "OutOfMemoryError" in done.stderr, done.stderr[-2000:]
    answer = done.report()
    (oom,) = answer["oom"]
    assert oom["cause"] == "preallocation" and oom["site"]["line"] == 6
    assert oom["by_owner"] == {"JAX": 30 << 30, "PyTorch's allocator": 9 << 30}
    assert "JAX preallocated 75 % of GPU 0" in oom["verdict"] and "PREALLOCATE=false" in oom["advice"][0]
