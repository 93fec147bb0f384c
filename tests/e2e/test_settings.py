"""Environment variables that change how memory is used are in the database, however the process ended."""
import pytest

SCRIPT = """import ctypes, os, signal, sys
lib = ctypes.CDLL("libcudart.so.13")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True,max_split_size_mb:64"
lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1024))
os.environ["NCCL_BUFFSIZE"] = "too late"
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("end", ["exit", "killed"])
def test_as_they_were_at_the_first_call(recording, end):
    recording.python(SCRIPT, end, check=False, CUDA_LAUNCH_BLOCKING="1", TF_GPU_ALLOCATOR="x" * 5000)
    recording.report()
    rows = dict(recording.sql("SELECT key, value FROM meta WHERE key = 'env' OR key LIKE 'env.%'"))
    assert rows == {"env": "", "env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64",
                    "env.CUDA_LAUNCH_BLOCKING": "1", "env.TF_GPU_ALLOCATOR": "x" * 4000}
