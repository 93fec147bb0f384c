"""The drain's samples of NVML: whose memory, on which device, and what remains of them if something fails."""
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ROOT
from rows import GIB, MIB, SECOND, Rows

HOLD = """
import ctypes, os, sys, time
lib = ctypes.CDLL("libcudart.so.13")
lib.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
def hold(device, size):
    pointer = ctypes.c_void_p()
    lib.cudaSetDevice(device)
    return lib.cudaMalloc(ctypes.byref(pointer), size)
"""
COLUMNS = "device, free_bytes, total_bytes, utilisation, memory_utilisation, own_bytes, other_bytes, other_pid, other_name"


def samples(recording, columns=COLUMNS):
    return recording.sql(f"select {columns} from sample s join sample_source w on w.id = s.source "
                         "where w.word = 'nvml' order by s.id")


def test_who_holds_what(recording):
    recording.python(HOLD + "hold(0, 300 << 20)\ntime.sleep(2.3)\n", SIMCUDA_OTHER="8GiB@4242",
                     SIMCUDA_UTILIZATION="37/12")
    own = (512 + 300) * MIB  # the context, and the process's allocations
    assert samples(recording)[-1] == (0, 16 * GIB - own, 24 * GIB, 37, 12, own, 8 * GIB, 4242, "other-process")
    assert 2 <= len(samples(recording)) <= recording.report()["run"]["duration_s"] + 2  # once a second
    points = recording.report()["samples"][0]["points"]
    assert [p["own_bytes"] for p in points][-1] == own and len(points) == len(samples(recording))


def test_memory_freed_between_two_queries_belongs_to_no_process(recording):
    """Total use and its processes are queried one after the other; memory freed in between belongs to neither."""
    recording.python(HOLD + "hold(0, 300 << 20)\ntime.sleep(1.3)\n", SIMCUDA_NVML=f"freed={12 * MIB}")
    own = (512 + 300) * MIB
    assert {row for row in samples(recording, "free_bytes, own_bytes")} == {(24 * GIB - own, own)}


@pytest.mark.parametrize("nth", (1, 2, 3, 4))
def test_a_thread_that_a_busy_machine_starts_late(recording, nth):
    """Without a sample, the context of a small GPU would be inferred to be another process's memory."""
    (recording.folder / "late.c").write_text("""
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
struct start { void *(*run)(void *); void *argument; int late; };
static void *late(void *given)
{
    struct start start = *(struct start *)given;
    if (start.late) usleep(400000);
    return start.run(start.argument);
}
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    struct start *start = malloc(sizeof *start);
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    static _Atomic int started;
    *start = (struct start){run, argument, ++started == atoi(getenv("LATE"))};
    return real(thread, attributes, late, start);
}
""")
    late = recording.folder / "late.so"
    subprocess.run(["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", late, recording.folder / "late.c"], check=True)
    recording.run(BUILD / "oom" / "capacity_grid", SIMCUDA_MEMORY="1GiB", SIMCUDA_CLOCK="real", LATE=nth,
                  LD_PRELOAD=f"{recording.environment()['LD_PRELOAD']}:{late}")
    assert [row[0] for row in samples(recording, "other_bytes")][-1:] == [0]
    assert recording.report()["oom"][0]["cause"] == "capacity"


@pytest.mark.parametrize("limit, total", [("2GiB", 2 * GIB), (None, 24 * GIB + 615 * MIB)])
def test_what_the_driver_keeps(recording, limit, total):
    """615 MiB of an H200: NVML counts them as used, but they are not part of CUDA's total or of a limit."""
    more = {"GPUSPY_LIMIT": limit} if limit else {}
    recording.python(HOLD + "hold(0, 300 << 20)\nassert hold(0, 1 << 40) == 2\n", SIMCUDA_NVML=f"kept={615 * MIB}",
                     SIMCUDA_CONTEXT="100MiB", GPUSPY_QUIET=1, **more)
    kept = 0 if limit else 615 * MIB
    assert samples(recording, "free_bytes, total_bytes, own_bytes")[-1] == (total - 400 * MIB - kept, total, 400 * MIB)
    held = {part["what"]: part["bytes"] for part in recording.report()["oom"][0]["waterfall"]}
    assert held["context"] == 100 * MIB and "unaccounted" not in held, held


def test_devices_are_found_by_their_place_on_the_bus(recording):
    """Not by number: NVML's order is the reverse here, as it may be with CUDA_VISIBLE_DEVICES."""
    recording.python(HOLD + "hold(1, 300 << 20)\nhold(2, 100 << 20)\ntime.sleep(1.5)\n", SIMCUDA_DEVICES=3,
                     SIMCUDA_NVML="reverse", SIMCUDA_CONTEXT="10MiB")
    last = dict(samples(recording, "device, own_bytes"))
    assert last == {1: 310 * MIB, 2: 110 * MIB}  # and nothing on device 0, which the process does not use


def test_an_oom_brings_a_sample_even_of_a_program_that_ends_there(recording):
    recording.python(HOLD + "hold(0, 100 << 20)\nassert hold(0, 100 << 20) == 2\n", SIMCUDA_MEMORY="256MiB",
                     SIMCUDA_CONTEXT="10MiB", SIMCUDA_OTHER="120MiB@77")
    assert samples(recording, "own_bytes, other_bytes, other_pid")[-1] == (110 * MIB, 120 * MIB, 77)
    assert recording.sql("select max(s.time_ns) > max(o.time_ns) from sample s, oom o where source = 2") == [(1,)]
    oom, = recording.report()["oom"]
    assert oom["cause"] == "other_process"
    assert oom["verdict"] == ("other processes hold 120.00 MiB of the GPU, most of it process 77 (other-process); "
                              "this one holds 100.00 MiB")
    assert oom["evidence"]["other_bytes"] == 120 * MIB and oom["evidence"]["other_pid"] == 77
    assert oom["evidence"]["other_name"] == "other-process" and oom["evidence"]["own_bytes"] == 110 * MIB
    assert oom["advice"][0].startswith("end process 77 (other-process), or")
    assert oom["measures"][0].items() >= {"text": oom["advice"][0], "frees_bytes": 120 * MIB, "enough": True}.items()
    parts = {part["what"]: part["bytes"] for part in oom["waterfall"]}
    assert parts == {"direct": 100 * MIB, "context": 10 * MIB, "other_processes": 120 * MIB, "free": 26 * MIB}
    assert "process 77 (other-process)" in " ".join(recording.gpuspy("report", "--full", recording.database).stdout.split())


def test_without_others_memory_is_not_attributed_to_others(recording):
    """Much is in use outside of the recorded allocations, but NVML attributes it to this process."""
    recording.python(HOLD + "hold(0, 100 << 20)\nassert hold(0, 100 << 20) == 2\n", SIMCUDA_MEMORY="256MiB",
                     SIMCUDA_CONTEXT="100MiB")
    oom, = recording.report()["oom"]
    assert oom["cause"] == "capacity" and oom["evidence"]["other_bytes"] == 0
    assert "other_pid" not in oom["evidence"]


@pytest.mark.parametrize("stride", [16, 24, 32])
def test_lists_of_other_drivers(recording, stride):
    recording.python(HOLD + "hold(0, 300 << 20)\ntime.sleep(0.3)\n", SIMCUDA_OTHER="8GiB@4242",
                     SIMCUDA_NVML=f"stride={stride}")
    assert samples(recording, "own_bytes is not null, other_bytes, other_pid")[-1] == (1, 8 * GIB, 4242)


def test_process_ids_of_another_namespace(recording):
    """In a container, NVML may list process ids of the host: a single process must be this one; of several it is
    unknown which one."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "true"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no pid namespace can be made here")
    script = recording.folder / "script.py"
    script.write_text(HOLD + "hold(0, 300 << 20)\ntime.sleep(0.3)\n")
    recording.run(*unshare, sys.executable, script, SIMCUDA_NVML="foreign", SIMCUDA_CONTEXT="10MiB")
    assert samples(recording, "own_bytes, other_bytes, other_pid")[-1] == (310 * MIB, 0, None)
    recording.database.unlink()
    recording.run(*unshare, sys.executable, script, SIMCUDA_NVML="foreign", SIMCUDA_OTHER="8GiB@4242")
    assert samples(recording, "own_bytes, other_bytes, other_pid")[-1] == (None, None, None)


def test_nothing_is_stated_if_turned_off_or_absent(recording):
    done = recording.python(HOLD + "hold(0, 1 << 20)\ntime.sleep(0.3)\n", GPUSPY_NVML="0")
    assert samples(recording) == [] and done.stderr.count("\n") == 1
    recording.database.unlink()
    without = recording.folder / "sim"
    without.mkdir()
    for name in ("libcuda.so.1", "libcudart.so.13"):
        (without / name).symlink_to(BUILD / "sim" / name)
    done = recording.python(HOLD + "hold(0, 1 << 20)\ntime.sleep(0.3)\n", LD_LIBRARY_PATH=without)
    assert samples(recording) == [] and done.stderr.count("\n") == 1
    assert recording.report()["samples"] == []


def test_samples_survive_kill_9(recording):
    script = recording.folder / "script.py"
    script.write_text(HOLD + "hold(0, 300 << 20)\nprint(1, flush=True)\ntime.sleep(60)\n")
    child = subprocess.Popen([sys.executable, str(script)], cwd=recording.folder, stdout=subprocess.PIPE,
                             env=recording.environment(SIMCUDA_OTHER="8GiB@4242"))
    child.stdout.readline()
    time.sleep(0.4)  # sampled but not committed: commits are a second apart
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    assert [s["points"][-1]["other_pid"] for s in recording.report()["samples"]] == [4242]
    assert len(samples(recording)) == 1


def test_a_slow_driver_holds_up_neither_fork_nor_exit_nor_the_recording(recording):
    """Each query takes eight seconds; a fork waits for a second at most, and no event is lost."""
    recording.python(HOLD + """
for i in range(20000):
    hold(0, 512)
    if i == 10000:
        time.sleep(0.2)
        start = time.monotonic()
        if os.fork() == 0:
            os._exit(0)
        os.wait()
        assert time.monotonic() - start < 6, time.monotonic() - start
""", SIMCUDA_NVML="slow=8000")
    assert recording.sql("select count(*) from allocation") == [(20000,)]
    assert recording.report()["run"]["lost_events"] == 0


def test_a_process_that_was_stopped_during_a_sample_gets_further_ones(recording):
    """To the recorder the stop looks like a driver that took as long."""
    script = recording.folder / "script.py"
    script.write_text(HOLD + "hold(0, 300 << 20)\nprint(1, flush=True)\nsys.stdin.readline()\ntime.sleep(5)\n")
    child = subprocess.Popen([sys.executable, str(script)], cwd=recording.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             env=recording.environment(SIMCUDA_NVML="slow=1000"))
    child.stdout.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGSTOP)
    time.sleep(7)
    child.send_signal(signal.SIGCONT)
    child.communicate(b"\n")
    assert child.returncode == 0 and len(samples(recording)) > 1


def test_a_forked_child_that_uses_cuda_is_sampled_itself(recording):
    recording.python(HOLD + """
pid = os.fork()
if pid == 0:
    hold(0, 200 << 20)
    time.sleep(0.4)
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
""", SIMCUDA_CONTEXT="10MiB")
    assert samples(recording, "own_bytes")[-1] == (210 * MIB,)


def test_long_runs_are_thinned(recording):
    with Rows(recording.database, seconds=5000) as rows:
        rows.device()
        for i in range(5000):
            rows.db.execute("INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source,own_bytes) "
                            "VALUES(1,0,?,?,?,2,?)", (i * SECOND, (100 if i == 1234 else 5000) * MIB, 24 * GIB, i))
    line, = recording.report()["samples"]
    points = line["points"]
    assert line["count"] == 5000 and 400 < len(points) <= 512
    assert [p["time_s"] for p in points] == sorted(p["time_s"] for p in points)
    assert (points[0]["time_s"], points[-1]["time_s"]) == (0, 4999)
    assert min(p["free_bytes"] for p in points) == 100 * MIB  # the moment with the least free memory is kept


def test_marks_are_summed_by_name(recording):
    with Rows(recording.database) as rows:
        rows.db.execute("INSERT INTO mark_name VALUES(1,'step'),(2,'nccl'),(3,'step')")
        for name, domain, kind, life in ((1, None, 0, 2), (3, None, 0, 3), (1, 2, 2, 10), (1, None, 0, None),
                                         (None, None, 4, 0), (None, None, 5, 0)):
            rows.db.execute("INSERT INTO mark(kind,name,domain,start_ns,life_ns,thread_id) VALUES(?,?,?,?,?,2)",
                            (kind, name, domain, SECOND, None if life is None else life * SECOND))
    report = recording.report()
    assert report["marks_total"] == 4
    assert [tuple(m[k] for k in ("name", "domain", "kind", "count", "open", "total_s")) for m in report["marks"]] == [
        ("step", "nccl", "start", 1, 0, 10.0), ("step", None, "push", 3, 1, 5.0), (None, None, "moment", 1, 0, 0.0),
        (None, None, "profiler_start", 1, 0, 0.0)]
    text = recording.gpuspy("report", "--full", recording.database).stdout
    assert "Ranges" in text and "nccl: step" in text and "profiler" not in text


def test_a_database_of_schema_1_is_still_read(recording):
    """Made with the text of the schema at that time."""
    with sqlite3.connect(recording.database) as db:
        db.executescript((ROOT / "tests" / "e2e" / "schema_1.sql").read_text())
        db.executescript("PRAGMA application_id=0x67707379; PRAGMA user_version=1")
        db.execute("INSERT INTO process(id,run_id,pid,command,end_ns,complete) VALUES(1,'r',7,'old',2000000000,1)")
        db.execute("INSERT INTO device(process_id,device,name,total_bytes,free_bytes,seen_ns) "
                   "VALUES(1,0,'GPU',1000000000,900000000,0)")
        db.execute("INSERT INTO allocation(kind,address,bytes,alloc_ns) VALUES(?,4096,5000000,1000)", (1 * 32,))
        db.execute("INSERT INTO oom(process_id,device,layer,space,requested_bytes,free_bytes,total_bytes,time_ns,fatal) "
                   "VALUES(1,0,0,0,900000000,800000000,1000000000,1500000000,1)")
        db.execute("INSERT INTO sample(process_id,device,time_ns,free_bytes,total_bytes,source) "
                   "VALUES(1,0,1100,890000000,1000000000,0)")
        db.execute("INSERT INTO mark(process_id,time_ns,name,thread_id) VALUES(1,5,'never written then',1)")
    db.close()
    report = recording.report()
    assert report["run"]["command"] == "old" and report["run"]["notes"] == []
    assert report["peak"][0]["bytes"] == 5000000 and len(report["oom"]) == 1
    assert report["memory"][0]["outside_bytes"] == 105000000
    assert report["marks"] == [] and report["samples"] == []
    assert recording.gpuspy("report", "--full", recording.database).returncode == 0


NVML_THAT_FORKS = r"""
#include <sys/wait.h>
#include <unistd.h>
int nvmlInit_v2(void)
{
    int status;
    pid_t child = fork();
    if (!child) execl("/bin/true", "true", NULL);
    return child < 0 || waitpid(child, &status, 0) != child || status;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device) { *device = device; return 0; }
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *total_free_used)
{
    total_free_used[0] = 1000, total_free_used[1] = 400, total_free_used[2] = 600;
    return nvmlInit_v2();
}
"""


def test_an_nvml_that_runs_a_program(recording):
    """NVIDIA's library does (nvidia-modprobe) if a device's file is missing: in the middle of the recorder's start."""
    source, library = recording.folder / "nvml.c", recording.folder / "nvml" / "libnvidia-ml.so.1"
    library.parent.mkdir()
    source.write_text(NVML_THAT_FORKS)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    recording.run(BUILD / "programs" / "oom", SIMCUDA_MEMORY="1GiB", LD_LIBRARY_PATH=f"{library.parent}:{BUILD}/sim")
    assert recording.sql("select distinct free_bytes, total_bytes from sample where source = 2") == [(400, 1000)]


def test_the_layouts_are_nvmls():
    done = subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I.", "-isystem",
                           "/usr/local/cuda/include", "tests/nvml_check.c"], cwd=ROOT, text=True, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr


def test_a_context_has_its_cost(recording):
    """What NVML counts for the process beyond its allocations at that moment, and what others use."""
    recording.python(HOLD + "hold(0, 300 << 20)\ntime.sleep(1.3)\nhold(0, 200 << 20)\ntime.sleep(1.3)\n",
                     SIMCUDA_CONTEXT="700MiB", SIMCUDA_OTHER="8GiB@4242")
    (memory,) = recording.report()["memory"]
    assert (memory["live_bytes"], memory["context_bytes"], memory["other_bytes"]) == (500 * MIB, 700 * MIB, 8 * GIB)
    text = recording.gpuspy("report", "--full", recording.database).stdout
    assert "700.00 MiB  2.8 %  this process's CUDA context and code" in text and "8.00 GiB   33 %  other processes" in text
    assert "by nobody" not in text and "outside" not in text
