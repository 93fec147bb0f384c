"""kill -9 at random moments: every call that had returned is in the report."""
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time

import pytest
from conftest import SECONDS

WORKER = """import ctypes, mmap, sys, threading
lib = ctypes.CDLL("libcudart.so.13")
lib.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
lib.cudaFree.argtypes = [ctypes.c_void_p]
threads = int(sys.argv[2])
with open(sys.argv[1], "r+b") as file:
    shared = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")  # struct.pack_into would write zeros first
def work(index):
    allocated = freed = 0
    keep = []
    while True:
        pointer = ctypes.c_void_p()
        if lib.cudaMalloc(ctypes.byref(pointer), 1024) != 0:
            break
        allocated += 1
        shared[index * 2] = allocated  # after the call has returned
        keep.append(pointer)
        if len(keep) > 100:
            lib.cudaFree(keep.pop(0))
            freed += 1
            shared[index * 2 + 1] = freed
for n in range(1, threads):
    threading.Thread(target=work, args=(n,), daemon=True).start()
work(0)
"""


def killed_run(recording, threads, delay):
    """Runs the worker and kills it `delay` seconds after its first call; returns what the worker counted itself."""
    script, counters = recording.folder / "worker.py", recording.folder / "counters"
    script.write_text(WORKER)
    counters.write_bytes(bytes(4096))
    with open(counters, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    child = subprocess.Popen([sys.executable, str(script), str(counters), str(threads)], cwd=recording.folder,
                             env=recording.environment(SIMCUDA_MEMORY="24GiB"), stderr=subprocess.PIPE)
    deadline = time.monotonic() + SECONDS
    while struct.unpack_from("<Q", shared, 0)[0] == 0:
        assert child.poll() is None and time.monotonic() < deadline, child.stderr.read()
        time.sleep(0.001)
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    counts = [struct.unpack_from("<QQ", shared, n * 16) for n in range(threads)]
    return sum(c[0] for c in counts), sum(c[1] for c in counts)


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("round_", range(8))
def test_the_report_is_complete_after_kill_9(recording, threads, round_):
    delay = random.Random(round_ * 10 + threads).uniform(0, 0.02 if round_ < 3 else 1.0)
    allocated, freed = killed_run(recording, threads, delay)
    report = recording.report()
    rows, closed = recording.sql("select count(*), count(free_ns) from allocation where layer = 0 and space = 0")[0]
    # Each thread may have been inside one more call, or between a call and its counter.
    assert allocated <= rows <= allocated + threads
    assert freed <= closed <= freed + threads
    assert report["run"]["lost_events"] == 0
    assert report["run"]["complete"] is False
    assert not os.path.exists(f"{recording.database}.spool")
    assert recording.sql("pragma integrity_check") == [("ok",)]


def test_a_second_report_is_the_same(recording):
    killed_run(recording, 2, 0.3)
    assert recording.report() == recording.report()


MAIN_LEAVES = """import ctypes, os, threading, time
lib = ctypes.CDLL("libcudart.so.13")
def work():
    while "State:\\tZ" not in open(f"/proc/{os.getpid()}/status").read():
        time.sleep(0.001)
    for _ in range(100):
        pointer = ctypes.c_void_p()
        assert lib.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(1000)) == 0
        assert lib.cudaFree(pointer) == 0
    os.kill(os.getpid(), 9)
threading.Thread(target=work).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_kill_after_the_first_thread_has_ended(recording):
    """/proc/self lacks the data of such a process: its spool must still be found, and the program's name recorded."""
    assert recording.python(MAIN_LEAVES, check=False).returncode == -signal.SIGKILL
    report = recording.report()
    assert report["run"]["lost_events"] == 0
    assert recording.sql("select count(*) from allocation") == [(100,)]
    assert "script.py" in report["run"]["command"]
    assert not list(recording.folder.glob("*.spool"))
