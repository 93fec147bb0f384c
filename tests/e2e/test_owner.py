"""To which library memory belongs: libraries with the names of those of frameworks, which allocate memory in the same
way."""
import subprocess

import pytest
from conftest import BUILD, ROOT, thread_sanitized

MIB, GIB = 1 << 20, 1 << 30
SCRIPT = """
import ctypes, sys
for word in sys.argv[1:]:
    path, call, size = word.split("=")
    rc = getattr(ctypes.CDLL(path), call)(ctypes.c_size_t(int(size)))
    print(call, rc)
"""

pytestmark = thread_sanitized("owners follow from native frames, which are off there")


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners") / "lib" / "python3.11" / "site-packages"
    def build(path):
        to = folder / path
        to.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", to, ROOT / "fixtures" / "python" / "taker.c",
                        f"-L{BUILD / 'sim'}", "-lcudart"], check=True)
        return to
    return build


def taken(recording, *takes, **more):
    return recording.python(SCRIPT, *(f"{path}={call}={size}" for path, call, size in takes), **more)


def test_libraries_are_distinguished(recording, library):
    taken(recording, (library("nvidia/nccl/lib/libnccl.so.2"), "take", 640 * MIB),
          (library("nvidia/cublas/lib/libcublas.so.12"), "take", 32 * MIB),
          (library("cupy_backends/cuda/api/runtime.so"), "take_async", 64 * MIB),
          (library("../../../my/ops.so"), "take", 8 * MIB))
    answer = recording.report()
    (peak,) = [p for p in answer["peak"] if p["layer"] == "device"]
    assert peak["by_owner"] == {"NCCL": 640 * MIB, "cuBLAS": 32 * MIB, "CuPy": 64 * MIB, "ops.so": 8 * MIB}
    assert sum(peak["by_owner"].values()) == peak["bytes"]
    nccl, cupy = peak["owners"][:2]
    assert (nccl["kind"], nccl["by"], nccl["by_space"]) == ("communication", "libnccl.so.2", {"device": 640 * MIB})
    assert nccl["site"]["file"].endswith("script.py") and nccl["site"]["line"] == 5
    assert (cupy["kind"], cupy["by_space"]) == ("pool", {"pool": 64 * MIB})
    text = recording.gpuspy("report", "--full", recording.database).stdout
    part = text[text.index("at the peak"):]
    for line in ("640.00 MiB   2.6 %  CUDA allocations of NCCL", "64.00 MiB   0.3 %  CUDA allocations of CuPy", "CUDA allocations of cuBLAS", "CUDA allocations of ops.so"):
        assert line in part, part
    assert answer["preallocations"] == [], "what is small needs no word"


def test_taken_in_advance_and_then_out_of_memory(recording, library):
    xla = library("jax_plugins/xla_cuda12/xla_cuda_plugin.so")
    taken(recording, (xla, "take", 18 * GIB), (xla, "take", 8 * GIB), XLA_PYTHON_CLIENT_MEM_FRACTION=".75")
    answer = recording.report()
    (took,) = answer["preallocations"]
    assert took["owner"] == "JAX" and took["in_advance"] and took["bytes"] == 18 * GIB and abs(took["share"] - .75) < .01
    assert "set by XLA_PYTHON_CLIENT_MEM_FRACTION=.75" in took["text"]
    (oom,) = answer["oom"]
    assert oom["cause"] == "preallocation" and oom["by_owner"] == {"JAX": 18 * GIB}
    assert any("lower XLA_PYTHON_CLIENT_MEM_FRACTION" in a for a in oom["advice"])
    text = " ".join(recording.gpuspy("report", "--full", recording.database).stdout.split())
    assert "JAX preallocated 75 % of GPU 0, 18.00 GiB in one allocation" in text


def test_catboosts_part_of_the_gpu(recording, library):
    """CatBoost's pool has no setting without a pool, and its own failures are not those of a CUDA call."""
    taken(recording, (library("catboost/_catboost.so"), "take", 21 * GIB))
    (took,) = recording.report()["preallocations"]
    assert took["owner"] == "CatBoost" and took["in_advance"] and "gpu_ram_part" in took["text"]


def test_a_pool_that_grew_is_not_one_in_advance(recording, library):
    xla = library("jax_plugins/xla_cuda12/xla_cuda_plugin.so")
    taken(recording, (xla, "take", 4 * GIB), (xla, "take", 14 * GIB), XLA_PYTHON_CLIENT_PREALLOCATE="false")
    (took,) = recording.report()["preallocations"]
    assert not took["in_advance"] and took["bytes"] == 18 * GIB and "MEM_FRACTION" not in (took["advice"] or "")


def test_runtimes_of_languages_do_not_own(recording, library):
    """The program that offloads by directives, or by SYCL, owns what its runtime allocates."""
    for name in ("libomptarget.rtl.cuda.so", "libaccdevice.so", "libnvomp.so", "libur_adapter_cuda.so.0"):
        taken(recording, (library(f"../../../opt/{name}"), "take", 8 * MIB), GPUSPY_DB=recording.folder / f"{name}.db")
        recording.database = recording.folder / f"{name}.db"
        (peak,) = [p for p in recording.report()["peak"] if p["layer"] == "device"]
        assert peak["by_owner"] == {"script.py": 8 * MIB}, name
