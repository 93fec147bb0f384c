"""The fixture programs (fixtures/programs) under the recorder: each prints the rows that its calls must leave, and the
same lines are made from its database. Also: how processes begin, fork and end, and what happens if nothing can be
written."""
import contextlib
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import BUILD, ROOT, SAN, SECONDS, forks_threads, own_files, sanitized, thread_sanitized, wait_until
from fixture_trace import PROGRAMS, assert_same, compiled, expected, rendered, run


def names_of(recording):
    return sorted(p.name for p in recording.folder.iterdir())


# --- nothing shows ------------------------------------------------------------------------------

def test_stdout_stderr_and_code_are_those_of_a_run_without(recording):
    for program in ("runtime_calls", "driver_calls"):
        bare = recording.run(PROGRAMS / program, LD_PRELOAD="")
        quiet = recording.run(PROGRAMS / program, GPUSPY_QUIET=1, GPUSPY_DB=recording.folder / f"{program}.db")
        assert (quiet.stdout, quiet.stderr, quiet.returncode) == (bare.stdout, bare.stderr, bare.returncode)


def test_disabled_does_nothing(recording):
    done = recording.run(PROGRAMS / "runtime_calls", GPUSPY_DISABLE=1)
    assert done.stderr == "" and names_of(recording) == []


def test_no_context_is_made(recording):
    """A pool's attributes can be read and set before a context exists; creating one would take hundreds of
    megabytes."""
    done = recording.python("""import ctypes
runtime, driver = ctypes.CDLL("libcudart.so.13"), ctypes.CDLL("libcuda.so.1")
pool, threshold = ctypes.c_void_p(), ctypes.c_uint64(1 << 30)
flags, active = ctypes.c_uint(), ctypes.c_int(-1)
assert runtime.cudaDeviceGetDefaultMemPool(ctypes.byref(pool), 0) == 0
assert runtime.cudaMemPoolSetAttribute(pool, 4, ctypes.byref(threshold)) == 0
assert driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)) == 0
print(active.value, runtime.cudaGetLastError())
""")
    assert done.stdout == "0 0\n"
    assert recording.sql("select total_bytes > 0, free_bytes from device") == [(1, None)]


def test_a_captured_copy_moves_nothing(recording):
    recording.python("""import ctypes
lib, size = ctypes.CDLL("libcudart.so.13"), ctypes.c_size_t(1 << 20)
p, h, s, g = (ctypes.c_void_p() for _ in range(4))
assert lib.cudaMalloc(ctypes.byref(p), size) == 0 and lib.cudaMallocHost(ctypes.byref(h), size) == 0
assert lib.cudaStreamCreate(ctypes.byref(s)) == 0 and lib.cudaStreamBeginCapture(s, 0) == 0
assert lib.cudaMemcpyAsync(p, h, size, 1, s) == 0 and lib.cudaMemsetAsync(p, 0, size, s) == 0
assert lib.cudaStreamEndCapture(s, ctypes.byref(g)) == 0
assert lib.cudaMemcpyAsync(p, h, size, 1, s) == 0
""")
    assert recording.sql("select (select count(*) from copy), (select count(*) from memset)") == [(1, 0)]
    assert recording.sql("select api, count from calls where api like '%mem%' order by api") == [
        ("cudaMemcpyAsync", 1), ("cudaMemsetAsync", 1)]


# --- doors --------------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["dlsym", "dlvsym", "driver"])
def test_names_looked_up(recording, how):
    run(recording, "lookups", how)


def test_without_cuda_none_is_found(recording):
    done = recording.run(PROGRAMS / "lookups", "none")
    assert (done.stdout, done.stderr, names_of(recording)) == ("none\n", "", [])


def test_ctypes(recording):
    done = recording.python("""import ctypes
lib = ctypes.CDLL("libcudart.so.13")
p = ctypes.c_void_p()
for n in (100, 200):
    assert lib.cudaMalloc(ctypes.byref(p), ctypes.c_size_t(n)) == 0
assert lib.cudaFree(p) == 0
print("done")
""")
    assert done.stdout == "done\n"
    assert_same(rendered(recording.database), ["alloc cudaMalloc 100 device live", "alloc cudaMalloc 200 device freed"])


def test_importing_numpy_starts_nothing(recording):
    pytest.importorskip("numpy")
    done = recording.python("import numpy\nprint(numpy.dot([1, 2], [3, 4]))\n")
    assert (done.stdout, done.stderr) == ("11\n", "") and names_of(recording) == ["script.py"]


# --- threads ------------------------------------------------------------------------------------

@pytest.mark.parametrize("threads", [1, 2, 16, 64])
def test_threads_that_free_each_others_memory(recording, threads):
    run(recording, "threads", threads, 2000 // threads)
    assert recording.sql("select count(distinct alloc_thread_id) from allocation")[0][0] >= threads


def test_threads_that_flush_at_once(recording):
    run(recording, "flushes", 4, 60)


def test_an_end_while_threads_flush(recording):
    for _ in range(5):
        done = recording.run(PROGRAMS / "flushes", 6, 0, "leave", GPUSPY_DB=recording.folder / "end.db")
        assert done.returncode == 0 and done.stderr.count("\n") == 1, done.stderr
    assert not [name for name in names_of(recording) if "spool" in name]
    for path in recording.folder.glob("end*.db"):
        with sqlite3.connect(path) as db:
            assert db.execute("select complete, lost_events from process").fetchall() == [(1, 0)]
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]


HELD = """
import ctypes, sys
cuda, address = ctypes.CDLL("libcudart.so.13"), ctypes.c_void_p()
def pairs():
    for _ in range(1000):
        cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1000))
        cuda.cudaFree(address)
pairs()
ctypes.CDLL(None).gpuspy_flush()
print("ready", flush=True)
sys.stdin.readline()
pairs()
"""


def test_an_end_while_another_program_reads(recording):
    """The reader's transaction delays neither the program nor what the recorder reports."""
    child = subprocess.Popen([sys.executable, "-c", HELD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, cwd=recording.folder, env=recording.environment())
    assert child.stdout.readline() == "ready\n"
    with contextlib.closing(sqlite3.connect(f"file:{recording.database}?mode=ro", uri=True, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        assert reader.execute("SELECT count(*) FROM allocation").fetchone() == (1000,)
        began = time.monotonic()
        _, err = child.communicate("\n", timeout=SECONDS)
        assert time.monotonic() - began < 4 and "events, peak" in err and err.count("\n") == 1, err
        assert "run.db.spool" not in names_of(recording)
        assert recording.sql("select complete, lost_events from process") == [(1, 0)]
    assert recording.report()["run"]["complete"] and recording.sql("SELECT count(*) FROM allocation") == [(2000,)]


def files_of(pid):
    """What the process has open; nothing once it has ended."""
    with contextlib.suppress(OSError):
        return {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd")}
    return set()


def test_a_report_on_a_running_program_holds_its_log_for_a_moment(recording):
    """It computes from a copy, which it removes however it ends."""
    temporary = recording.folder / "tmp"
    temporary.mkdir()
    child = subprocess.Popen([PROGRAMS / "storm", "100000000"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             cwd=recording.folder, env=recording.environment(GPUSPY_STACKS="none"))
    try:
        wait_until(lambda: recording.database.exists() and recording.database.stat().st_size > 16 << 20)
        child.send_signal(signal.SIGSTOP)
        wait_until(lambda: all(" (gpuspy" not in (text := path.read_text()) or ") T " in text
                               for path in Path(f"/proc/{child.pid}/task").glob("*/stat")))
        expected = recording.sql("SELECT count(*) FROM allocation")[0][0]
        assert expected > 500000
        text = recording.gpuspy("stats", recording.database, "--json", env={"TMPDIR": str(temporary)}).stdout
        assert f'"count": {expected}' in text.replace('":', '": ').replace("  ", " ")
        for ends in range(5):
            report = subprocess.Popen([BUILD / "gpuspy", "report", recording.database], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL, env=dict(os.environ, TMPDIR=str(temporary)))
            def computes():
                files = files_of(report.pid)
                return report.poll() is not None or (any("/gpuspy-" in name for name in files) and
                                                     str(recording.database) not in files)
            wait_until(computes, every=0.001)
            running = report.poll() is None
            report.kill()
            report.wait()
            if running:
                break
        assert running
        wait_until(lambda: not os.listdir(temporary))
    finally:
        child.kill()
        child.wait()


# --- out of memory ------------------------------------------------------------------------------

@pytest.mark.parametrize("how", ["fatal", "recovered", "other calls"])
def test_out_of_memory(recording, how):
    run(recording, "oom", how, SIMCUDA_MEMORY="256MiB", SIMCUDA_CONTEXT="0")
    for free_bytes, total in recording.sql("select free_bytes, total_bytes from oom"):
        assert total == 256 << 20 and 0 < free_bytes <= 252 << 20
    for oom in recording.report()["oom"]:
        assert [(part["what"], part["bytes"] >> 20) for part in oom["waterfall"]] == [("direct", 4), ("free", 252)]
        line, = oom["waterfall"][0]["detail"]
        assert line["site"]["function"] == "main" and line["bytes"] == 4 << 20


@pytest.mark.parametrize("columns", [80, 120])
def test_the_waterfall_fits_the_terminal(recording, columns):
    run(recording, "oom", SIMCUDA_MEMORY="256MiB", SIMCUDA_CONTEXT="20MiB", SIMCUDA_OTHER="100MiB@77")
    text = subprocess.run([str(BUILD / "gpuspy"), "report", "--full", str(recording.database)], text=True, check=True,
                          stdout=subprocess.PIPE, env=dict(os.environ, COLUMNS=str(columns))).stdout
    part = text[text.index("Of the GPU's 256.00 MiB at that moment"):text.index("  Stack")]
    assert max(map(len, part.splitlines())) <= columns
    words = " ".join(part.split())
    for line in ("4.00 MiB 1.6 %", "CUDA allocations", "20.00 MiB 7.8 %", "this process's CUDA context and code",
                 "100.00 MiB 39 %", "other processes, most of it process 77 (other-process)", "132.00 MiB 52 %"):
        assert line in words, words


# --- fork and children --------------------------------------------------------------------------

def databases(recording):
    return sorted(p for p in recording.folder.iterdir() if p.suffix == ".db")


def test_a_child_that_does_nothing_leaves_nothing(recording):
    done = recording.run(PROGRAMS / "forks", "idle")
    assert names_of(recording) == ["run.db"] and done.stderr.count("\n") == 1
    assert_same(rendered(recording.database), expected(done.stdout))


def test_a_child_with_cuda_writes_its_own_file_of_the_same_run(recording):
    done = recording.run(PROGRAMS / "forks", "cuda")
    first, second = databases(recording)
    assert {first.name, second.name} == {"run.db", second.name if first.name == "run.db" else first.name}
    assert any(re.fullmatch(r"run\.\d+\.db", p.name) for p in (first, second))
    assert_same(rendered(first) + rendered(second), expected(done.stdout))
    ids = {sqlite3.connect(p).execute("select run_id from process").fetchone() for p in (first, second)}
    assert len(ids) == 1 and names_of(recording) == sorted([first.name, second.name])


def test_only_the_child_uses_cuda(recording):
    done = recording.run(PROGRAMS / "forks", "only")
    assert names_of(recording) == ["run.db"]
    assert_same(rendered(recording.database), expected(done.stdout))


@forks_threads
def test_a_forked_child_that_the_driver_refuses(recording):
    done = recording.run(PROGRAMS / "forks", "call")
    assert_same(rendered(recording.database), expected(done.stdout))


def test_forks_under_load(recording):
    done = recording.run(PROGRAMS / "forks", "many")
    assert names_of(recording) == ["run.db"]
    assert_same(rendered(recording.database), expected(done.stdout))


BUSY_FORKS = r"""
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define FORKS 60
int cudaMalloc(void **, size_t), cudaFree(void *);
static volatile int stop;
static void *load(void *none)
{
    for (void *p; !stop; cudaFree(p)) cudaMalloc(&p, 512);
    return none;
}
static int drain(void)
{
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], name[20] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file && fgets(name, sizeof name, file) && !strcmp(name, "gpuspy-drain\n")) return atoi(task->d_name);
        if (file) fclose(file);
    }
    return 0;
}
static double used_ms(clockid_t thread)
{
    struct timespec t = {0};
    if (clock_gettime(thread, &t)) abort();
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static int order(const void *a, const void *b)
{
    return (*(double *)a > *(double *)b) - (*(double *)a < *(double *)b);
}
int main(void)
{
    pthread_t threads[2];
    double ms[FORKS];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, load, NULL);
    while (!drain()) usleep(20000);
    usleep(200000);
    const clockid_t clock = (~(clockid_t)drain() << 3) | 6; /* a thread's processor time */
    for (int i = 0; i < FORKS; i++) {
        const double before = used_ms(clock);
        const pid_t child = fork();
        if (!child) _exit(0);
        ms[i] = used_ms(clock) - before;
        waitpid(child, NULL, 0);
        usleep(5000);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    qsort(ms, FORKS, sizeof *ms, order);
    printf("%.3f %.3f\n", ms[FORKS / 2], ms[FORKS * 9 / 10]);
}
"""


@sanitized("compiles a program of its own")
@pytest.mark.parametrize("keep", ["", "32MiB"])
def test_forks_do_not_wait_for_the_drain(recording, keep):
    """What the drain computes during a fork, which waits for it. The time would depend on the other work of this machine."""
    program = compiled(recording, BUSY_FORKS)
    middle, late = map(float, recording.run(program, GPUSPY_KEEP=keep).stdout.split())
    assert middle < 1 and late < 8
    assert recording.sql("select lost_events from process") == [(0,)]


@sanitized("compiles a program of its own")
def test_a_recording_waits_for_no_disk(recording):
    shim = recording.folder / "sync.c"
    shim.write_text("int fsync(int file) { return -1; }\nint fdatasync(int file) { return -1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim.with_suffix(".so"), shim], check=True)
    recording.run(PROGRAMS / "storm", 1000, LD_PRELOAD=f"{recording.environment()['LD_PRELOAD']}:{shim.with_suffix('.so')}")
    assert recording.sql("select complete from process") == [(1,)]


def test_a_process_without_cuda_leaves_no_file(recording):
    done = recording.run("/bin/sh", "-c", "ls / > /dev/null; echo $GPUSPY_RUN_ID")
    assert re.fullmatch(r"[0-9a-f]{16}\n", done.stdout) and done.stderr == "" and names_of(recording) == []


def test_programs_of_one_shell_are_one_run(recording):
    recording.run("/bin/sh", "-c", f"{PROGRAMS}/storm 10; {PROGRAMS}/storm 20")
    names = names_of(recording)
    assert len(names) == 2 and names[0] != "run.db" and re.fullmatch(r"run\.\d+\.db", names[0])


# --- ends ---------------------------------------------------------------------------------------

ENDS = (("return", 0), ("exit", 3), ("_exit", 4), ("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL),
        ("segv", -signal.SIGSEGV), ("thread", 0), ("pthread_exit", 0), ("exec", 0), ("atexit", 0))


@pytest.mark.parametrize("how,code", [pytest.param(how, code, marks=thread_sanitized(
    "ThreadSanitizer's own thread keeps a process whose main thread has left") if how == "pthread_exit" else ())
    for how, code in ENDS], ids=[how for how, _ in ENDS])
def test_every_way_to_end(recording, how, code):
    bare = recording.run(PROGRAMS / "deaths", how, check=False, LD_PRELOAD="")
    done = recording.run(PROGRAMS / "deaths", how, check=False)
    assert (done.returncode, done.stdout) == (code, bare.stdout) == (bare.returncode, bare.stdout)
    orderly = how in ("return", "exit", "thread", "pthread_exit", "atexit")
    assert os.path.exists(f"{recording.database}.spool") is not orderly
    assert done.stderr.count("\n") == (1 if orderly else 0)
    if not orderly:
        assert recording.gpuspy("report", recording.database).returncode == 0  # completes it
        assert not os.path.exists(f"{recording.database}.spool")
    assert_same(rendered(recording.database), expected(done.stdout))
    assert recording.sql("select complete from process") == [(1 if orderly else 0,)]


# --- what programs do ---------------------------------------------------------------------------

def rough(recording, how, *arguments, check=True):
    return recording.run(PROGRAMS / "rough", how, *arguments, check=check,
                         LD_PRELOAD=f"{recording.environment()['LD_PRELOAD']}:{PROGRAMS}/rough.so")


NOT_UNWOUND = pytest.mark.skipif("address" in SAN, reason="AddressSanitizer keeps the frames that a cancelled thread has left")


@pytest.mark.parametrize("how", ["small", "longjmp", "forked", "cancel", pytest.param("cleanup", marks=NOT_UNWOUND), "keys"])
def test_rough_hosts(recording, how):
    done = rough(recording, how)
    assert_same(rendered(recording.database), expected(done.stdout))
    assert names_of(recording) == ["run.db"] and len(done.stderr.splitlines()) == 1
    assert recording.sql("select count(*) from frames where kind = 'native'") != [(0,)]


@own_files
def test_a_host_that_closes_all_descriptors(recording):
    """Its own files get the numbers of gpuspy's files: gpuspy must not write a byte into them, neither now nor at
    exit."""
    done = rough(recording, "files")
    own = [f for f in recording.folder.iterdir() if f.name.startswith("own-")]
    assert len(own) > 500 and {f.read_text() for f in own} == {"mine"}
    assert re.fullmatch(r"gpuspy: 100,\d{3} events.*\n", done.stderr)
    assert recording.report()["run"]["lost_events"] == 0
    assert recording.sql("select count(*) + (select lost_events from process) from allocation")[0][0] > 50000


@forks_threads
def test_a_forked_child_that_closes_all_descriptors(recording):
    done = rough(recording, "child")
    assert "stopped" not in done.stderr and not list(recording.folder.glob("*.spool"))
    assert_same([line for path in databases(recording) for line in rendered(path)], expected(done.stdout))
    assert {f.read_text() for f in recording.folder.iterdir() if f.name.startswith("own-")} == {"mine"}


def test_an_exit_while_other_threads_are_busy(recording):
    """Wherever the exit meets them, also at the start of the recording: it ends properly, and what the threads still do
    does not count as lost."""
    for n in range(40):
        recording.database = recording.folder / f"run-{n}.db"
        done = rough(recording, "busy", 500 * n, check=False)
        assert done.returncode == 5 and not list(recording.folder.glob("*.spool")), done.stderr
        if recording.database.exists():
            assert recording.sql("select complete, lost_events from process") == [(1, 0)]
            assert recording.sql("pragma integrity_check") == [("ok",)]


def test_calls_after_the_end_are_counted(recording):
    rough(recording, "late")
    assert recording.report()["run"]["lost_events"] == 2


def test_stderr_that_is_not_read(recording):
    read, write = os.pipe()
    os.close(read)
    command, env = [PROGRAMS / "storm", "10"], recording.environment()
    done = subprocess.run(command, env=env, cwd=recording.folder, stdout=subprocess.PIPE, stderr=write, timeout=SECONDS)
    os.close(write)
    assert done.returncode == 0
    read, write = os.pipe()
    os.set_blocking(write, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(write, b"x" * 65536)
    os.set_blocking(write, True)
    done = subprocess.run(command, env=env, cwd=recording.folder, stdout=subprocess.PIPE, stderr=write, timeout=SECONDS)
    assert done.returncode == 0
    os.close(read)
    os.close(write)


# --- where it is written ------------------------------------------------------------------------

def storm(recording, pairs=10, **more):
    return recording.run(PROGRAMS / "storm", pairs, **more)


def test_never_overwrites(recording):
    for expected_name in ("run.db", "run-2.db", "run-3.db"):
        done = storm(recording)
        assert f"· {expected_name} " in done.stderr and f"report {expected_name}\n" in done.stderr
    assert names_of(recording) == ["run-2.db", "run-3.db", "run.db"]
    assert "(run.db exists)" in done.stderr
    (recording.folder / "other.txt").write_text("mine")
    storm(recording, GPUSPY_DB="other.txt")
    assert (recording.folder / "other.txt").read_text() == "mine"
    assert "other-2.txt" in names_of(recording)


@pytest.mark.parametrize("given,pattern", [("", r"run\.db"), ("x/%p-%h%%.db", r"x/\d+-[^/]+%\.db"), ("x", r"x/run\.db"),
                                           ("plain", r"plain"), ("%q.db", r"%q\.db")])
def test_gpuspy_db(recording, given, pattern):
    (recording.folder / "x").mkdir()
    done = storm(recording, GPUSPY_DB=given)
    files = [str(p.relative_to(recording.folder)) for p in recording.folder.rglob("*") if p.is_file()]
    assert len(files) == 1 and re.fullmatch(pattern, files[0]) and files[0] in done.stderr


def test_chdir_does_not_move_it(recording):
    recording.python("""import ctypes, os
os.mkdir("elsewhere"); os.chdir("elsewhere")
lib = ctypes.CDLL("libcudart.so.13")
lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1))
""", GPUSPY_DB="run.db")
    assert names_of(recording) == ["elsewhere", "run.db", "script.py"]


def test_the_root_folder_as_working_directory(recording):
    """As in a container whose image sets none. SQLite takes what follows `file://` for a host."""
    relative = str(recording.database)[1:]
    done = subprocess.run([PROGRAMS / "storm", "100"], env=recording.environment(GPUSPY_DB=relative), cwd="/", text=True,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0 and recording.database.exists() and "//" not in done.stderr, done.stderr
    assert recording.gpuspy("report", f"/{recording.database}").returncode == 0
    doctor = subprocess.run([BUILD / "gpuspy", "doctor"], env={"GPUSPY_DB": relative}, cwd="/", text=True, stdout=subprocess.PIPE)
    assert f"folder ok {recording.folder} is writable" in " ".join(doctor.stdout.split()), doctor.stdout


def test_ranks_that_start_together(recording):
    """Eight processes of one run compete for the name: each gets its own file, one of them gets run.db."""
    env = recording.environment(GPUSPY_RUN_ID="together")
    children = [subprocess.Popen([PROGRAMS / "storm", "1000"], env=dict(env, RANK=str(n)), cwd=recording.folder,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(8)]
    assert [c.wait(SECONDS) for c in children] == [0] * 8
    names = names_of(recording)
    assert len(names) == 8 and "run.db" in names
    assert all(re.fullmatch(r"run(\.\d+)?\.db", n) for n in names)
    rows = [sqlite3.connect(recording.folder / n).execute("select rank, run_id from process").fetchone() for n in names]
    assert sorted(rows) == [(n, "together") for n in range(8)]


def test_runs_that_start_together(recording):
    children = [subprocess.Popen([PROGRAMS / "storm", "1000"], env=recording.environment(), cwd=recording.folder,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for n in range(8)]
    assert [c.wait(SECONDS) for c in children] == [0] * 8
    assert names_of(recording) == sorted(["run.db"] + [f"run-{n}.db" for n in range(2, 9)])


@pytest.mark.parametrize("name,value,text", [("GPUSPY_STACKS", "perl", "python, native, both or none"),
                                             ("GPUSPY_NATIVE_DEPTH", "-1", "a number from 1 to 512"),
                                             ("GPUSPY_NATIVE_DEPTH", "1e9", "a number from 1 to 512"),
                                             ("GPUSPY_QUIET", "perhaps", "0 or 1")])
def test_a_value_that_makes_no_sense(recording, name, value, text):
    done = storm(recording, **{name: value})
    assert done.stderr.splitlines()[0] == f"gpuspy: {name}={value} is not {text}; using the default"
    assert len([line for line in done.stderr.splitlines() if "ThreadSanitizer" not in line]) == 2


def refused(done, text):
    assert done.stdout == "10 pairs\n" and done.returncode == 0
    assert re.fullmatch(rf"gpuspy: {text}.*\n", done.stderr), done.stderr


def test_a_folder_that_cannot_be_written(recording):
    refused(storm(recording, GPUSPY_DB="/proc/run.db"), "not recording: cannot write /proc/run.db: ")
    refused(storm(recording, GPUSPY_DB="no/such/folder/run.db"),
            "not recording: cannot write no/such/folder/run.db: No such file or directory")


def test_a_limit_on_the_size_of_files(recording):
    """The limit concerns the database; the spool is not a file."""
    def limited(pairs):
        return subprocess.run([PROGRAMS / "storm", str(pairs)], env=recording.environment(), cwd=recording.folder, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
    done = limited(10)
    assert done.returncode == 0 and names_of(recording) == ["run.db"] and "recording" not in done.stderr
    recording.database.unlink()
    done = limited(300000)
    assert (done.returncode, done.stdout) == (0, "300000 pairs\n")
    assert len(done.stderr.splitlines()) == 1
    assert "recording stopped here: write: a file may have 1024 KiB at most here (ulimit -f)" in done.stderr
    report = recording.report()
    rows = recording.sql("select count(*) + count(free_ns) from allocation")[0][0]
    assert rows + report["run"]["lost_events"] == 600000


@pytest.mark.parametrize("kib", [100, 1000, 4000, 8000])
def test_a_limit_on_the_size_of_files_leaves_the_exit_status(recording, kib):
    """gpuspy run reads and completes the recording after the program, under the same limit. A signal of it is the program's
    alone."""
    def under_run(*arguments):
        return subprocess.run([BUILD / "gpuspy", "run", "--", *arguments], env=recording.environment(LD_PRELOAD=""),
                              cwd=recording.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kib << 10, kib << 10)))
    done = under_run(PROGRAMS / "storm", "600000")
    assert (done.returncode, done.stdout) == (0, "600000 pairs\n"), done.stderr
    assert under_run("sh", "-c", "head -c 20000000 /dev/zero > out").returncode == 128 + signal.SIGXFSZ


def test_a_disk_keeps_room_for_the_program(recording):
    """The recording ends properly, and the program does not notice. If more is to stay free than any disk has, it ends
    at once."""
    done = storm(recording, 300000, GPUSPY_MIN_FREE="900TiB")
    assert (done.returncode, done.stdout) == (0, "300000 pairs\n")
    assert re.fullmatch(r"gpuspy: recording stopped here: its disk has [0-9.]+ [MG]iB left, and 921600.0 GiB stay free for the "
                        r"program \(GPUSPY_MIN_FREE\)\n", done.stderr)
    assert names_of(recording) == ["run.db"]  # no spool remains
    report = recording.report()
    assert report["run"]["processes"][0]["stopped"] == "disk" and report["run"]["lost_events"] == 0
    assert "stopped at" in recording.gpuspy("report", recording.database).stdout
    done = storm(recording, 10, GPUSPY_MIN_FREE="much")
    assert "GPUSPY_MIN_FREE=much" in done.stderr and "such as 5GiB" in done.stderr


def test_a_small_disk_keeps_a_twentieth(recording):
    disk = recording.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200m", "none", disk], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not mount a small file system here")
    try:
        recording.database = disk / "run.db"
        with open(disk / "filler", "wb") as file:
            file.write(bytes(160 << 20))
        done = storm(recording, 2500000, GPUSPY_MIN_FREE="")
        assert done.stdout == "2500000 pairs\n" and done.returncode == 0
        assert "recording stopped here: its disk has" in done.stderr and "10.0 MiB stay free" in done.stderr, done.stderr
        # what was still in the spool has not filled the disk
        assert sorted(os.listdir(disk)) == ["filler", "run.db"] and shutil.disk_usage(disk).free > 4 << 20
        report = recording.report()["run"]
        assert report["processes"][0]["stopped"] == "disk" and report["lost_events"] == 0
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_disk_without_room_for_an_empty_database(recording):
    disk = recording.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "none", disk], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not mount a small file system here")
    try:
        recording.database = disk / "run.db"
        done = storm(recording, GPUSPY_MIN_FREE="0")
        assert (done.stdout, done.stderr) == ("10 pairs\n", "gpuspy: not recording: disk/run.db: write: the disk is full\n")
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("mebibytes", [1, 4])
def test_a_disk_that_fills_up(recording, mebibytes):
    disk = recording.folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "none", disk], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("may not mount a small file system here")
    try:
        recording.database = disk / "run.db"
        done = storm(recording, 1000000, GPUSPY_MIN_FREE="0")
        assert done.stdout == "1000000 pairs\n" and done.returncode == 0
        assert len(done.stderr.splitlines()) == 1 and "recording stopped here" in done.stderr, done.stderr
        grown = recording.folder / "copy"
        grown.mkdir()
        for file in disk.iterdir():
            (grown / file.name).write_bytes(file.read_bytes())
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    # what was recorded so far can be read after there is room to complete it
    recording.database = grown / "run.db"
    report = recording.report()
    assert report["run"]["lost_events"] > 0
    assert recording.sql("select count(*) from allocation")[0][0] > 0
    assert recording.sql("select complete from process") == [(1,)]  # the program ended as it should
    assert "killed" not in recording.gpuspy("report", recording.database).stdout


# --- hosts that replace parts of libc themselves --------------------------------------------------

SANITIZERS = [(compiler, name) for compiler in ("gcc", "clang") for name in ("address", "undefined", "thread")]


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="the recorder itself is sanitized")
@pytest.mark.parametrize("compiler,name", SANITIZERS, ids=["-".join(s) for s in SANITIZERS])
def test_sanitized_programs(recording, compiler, name):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler}")
    probe = subprocess.run([compiler, f"-fsanitize={name}", "-xc", "-", "-o", recording.folder / "probe"], text=True,
                           input="int main(void) { return 0; }", stderr=subprocess.PIPE)
    if probe.returncode:
        pytest.skip(f"{compiler} has no -fsanitize={name} run-time library here")
    preload = str(BUILD / "libgpuspy.so")
    if compiler == "gcc":  # its runtime library is shared and must be loaded first
        short = {"address": "asan", "undefined": "ubsan", "thread": "tsan"}[name]
        preload = subprocess.run(["gcc", f"-print-file-name=lib{short}.so"], text=True, stdout=subprocess.PIPE,
                                 check=True).stdout.strip() + ":" + preload
    for program, arguments, libraries in (("threads", ["8", "50"], ["-lcudart", "-lcuda"]), ("lookups", ["none"], [])):
        binary = recording.folder / program
        subprocess.run([compiler, "-std=gnu11", "-g", f"-fsanitize={name}", "-D_GNU_SOURCE", "-I.", "-o", binary,
                        f"fixtures/programs/{program}.c", "fixtures/programs/fixture.c", f"-L{BUILD}/sim", *libraries,
                        "-lpthread", "-ldl"], cwd=ROOT, check=True)
        done = recording.run(binary, *arguments, LD_PRELOAD=preload)
        if program == "threads":
            assert_same(rendered(recording.database), expected(done.stdout))
        else:
            assert done.stdout == "none\n"


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="compiles a program of its own")
def test_openmp(recording):
    source = recording.folder / "omp.c"
    source.write_text('#include <stdio.h>\nint main(void) { int n = 0;\n#pragma omp parallel for reduction(+:n)\n'
                      'for (int i = 0; i < 1000; i++) n += i;\nprintf("%d\\n", n); }\n')
    subprocess.run(["gcc", "-fopenmp", "-o", recording.folder / "omp", source], check=True)
    done = recording.run(recording.folder / "omp")
    assert (done.stdout, done.stderr) == ("499500\n", "")
