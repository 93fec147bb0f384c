"""What fills the device at an OOM, for programs without PyTorch: each part with its owner, and all parts together."""
from rows import GIB, MIB

HOLD = """
import ctypes
lib = ctypes.CDLL("libcudart.so.13")
def ask(function, size, *more):
    pointer = ctypes.c_void_p()
    return lib[function](ctypes.byref(pointer), ctypes.c_size_t(size), *more), pointer
"""


def parts(oom):
    return {part["what"]: part["bytes"] for part in oom["waterfall"]}


def test_a_pool_holds_more_than_is_in_use(recording):
    """The pool is configured to keep freed memory, and frees as much as it can before it fails."""
    recording.python(HOLD + """
pool, most = ctypes.c_void_p(), ctypes.c_uint64(1 << 62)
assert lib.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
assert lib.cudaMemPoolSetAttribute(pool, 4, ctypes.byref(most)) == 0
assert ask("cudaMallocAsync", 31 << 20, None)[0] == 0
error, gone = ask("cudaMallocAsync", 64 << 20, None)
assert error == 0 and lib.cudaFreeAsync(gone, None) == 0 and lib.cudaStreamSynchronize(None) == 0
assert ask("cudaMalloc", 6 << 20)[0] == 0
assert ask("cudaMallocAsync", 220 << 20, None)[0] == 2
""", SIMCUDA_MEMORY="256MiB", SIMCUDA_CONTEXT="20MiB")
    oom, = recording.report()["oom"]
    held = parts(oom)
    assert held["pools"] == 31 * MIB and held["direct"] == 6 * MIB and held["context"] == 20 * MIB
    (_, reserved), = recording.sql("select used_bytes, reserved_bytes from pool")
    assert held["pools_free"] == reserved - 31 * MIB > 0
    assert [line["site"]["line"] for part in oom["waterfall"] for line in part["detail"]] == [11, 14]


def test_unknown_memory_is_not_invented(recording):
    """Without NVML: what was in use when the device was first used is assumed to remain so."""
    recording.python(HOLD + """
assert ask("cudaMalloc", 100 << 20)[0] == 0
assert ask("cudaMalloc", 200 << 20)[0] == 2
""", SIMCUDA_MEMORY="256MiB", SIMCUDA_CONTEXT="20MiB", SIMCUDA_OTHER="50MiB@77", GPUSPY_NVML="0")
    oom, = recording.report()["oom"]
    assert parts(oom) == {"direct": 100 * MIB, "before": 70 * MIB, "free": 86 * MIB}
    assert not any("end process" in advice for advice in oom["advice"])


def test_managed_memory_need_not_be_on_the_device(recording):
    recording.python(HOLD + """
assert ask("cudaMallocManaged", 2 << 30, 1)[0] == 0
assert ask("cudaMalloc", 1 << 30)[0] == 2
""", SIMCUDA_MEMORY="256MiB", SIMCUDA_CONTEXT="20MiB")
    for oom in recording.report()["oom"]:
        assert oom["total_bytes"] == 256 * MIB < 2 * GIB and (not oom["waterfall"] or parts(oom)["free"] == oom["free_bytes"])
