"""What a process can do to itself: children of every kind, exec, daemons, limits, other tools, ways to end. Each
program is run with and without recording: exit status, stdout and stderr must be equal apart from gpuspy's own lines,
and the databases must agree with what the program states."""
import contextlib
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import BUILD, ROOT, SAN, SECONDS, own_files, remove_spools, wait_until
from test_programs import assert_same, databases, expected, names_of, rendered

PROGRAMS = BUILD / "programs"
LIVES = PROGRAMS / "lives"


def own_lines(stderr):
    return [line for line in stderr.splitlines() if line.startswith("gpuspy: ")]


def other_lines(stderr):
    return [line for line in stderr.splitlines() if not line.startswith("gpuspy: ")]


def completed(recording):
    """The contents of all databases in the folder, after a report has completed the unfinished ones."""
    deadline = time.monotonic() + SECONDS
    for path in sorted(recording.folder.glob("*.db.spool")):
        while path.exists():  # a killed process may still be ending
            done = recording.gpuspy("report", path.with_suffix(""))
            assert done.returncode == 0 or "recording is starting" in done.stderr, done.stderr
            assert time.monotonic() < deadline
    assert not list(recording.folder.glob("*.spool"))
    while logs := list(recording.folder.glob("*.db-wal")):  # `top` of another test may have read it at its end, or reads it now
        assert recording.gpuspy("report", str(logs[0]).removesuffix("-wal")).returncode == 0
        assert time.monotonic() < deadline
    rows = []
    for path in databases(recording):
        with sqlite3.connect(path) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert db.execute("select lost_events from process").fetchall() == [(0,)]
        rows += rendered(path)
    return rows


def same_as_bare(recording, *command, code=0, **more):
    """Runs both, compares them, and returns the recorded run."""
    bare = recording.run(*command, check=False, **dict(more, LD_PRELOAD=""))
    assert not databases(recording)
    done = recording.run(*command, check=False, **more)
    assert (done.returncode, done.stdout) == (code, bare.stdout) == (bare.returncode, bare.stdout), done.stderr
    assert other_lines(done.stderr) == other_lines(bare.stderr)
    return done


# --- children -----------------------------------------------------------------------------------

@pytest.mark.parametrize("how,files", [("threads", 20), ("generations", 4), ("vfork", 2), ("spawn", 2), ("exec", 2), ("empty", 1)])
def test_children(recording, how, files):
    if how == "threads" and os.environ.get("SAN"):
        pytest.skip("a sanitizer's allocator is not fit for a fork among threads")
    done = same_as_bare(recording, LIVES, how)
    want = expected(done.stdout)
    if how == "empty":  # a child without an environment is not recorded
        want = [line for line in want if " 2000 " not in line and " 2001 " not in line]
    assert_same(completed(recording), want)
    assert len(databases(recording)) == files + (how == "threads")
    assert {sqlite3.connect(p).execute("select run_id from process").fetchone() for p in databases(recording)} \
        == {sqlite3.connect(databases(recording)[0]).execute("select run_id from process").fetchone()}


def test_a_process_that_becomes_other_programs_again_and_again(recording):
    """Each has a file of its own, and the first one's report reads all of them."""
    (recording.folder / "again.py").write_text("""
import ctypes, os, sys
assert not ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1000))
if sys.argv[1] != "0":
    os.execv(sys.executable, [sys.executable, "again.py", str(int(sys.argv[1]) - 1)])
""")
    recording.run(sys.executable, "again.py", 4)
    pid = recording.sql("select pid from process")[0][0]
    assert set(names_of(recording)) >= {"run.db", f"run.{pid}.db", *(f"run.{pid}-{n}.db" for n in (2, 3, 4))}
    processes = recording.report()["run"]["processes"]
    assert [p["pid"] for p in processes] == [pid] * 5
    assert "were killed" not in recording.gpuspy("report", recording.database).stdout


def test_a_child_that_no_fork_handler_sees(recording):
    """A bare clone shares the parent's memory and its mapped spool: it must not write there."""
    done = same_as_bare(recording, LIVES, "clone")
    assert_same(completed(recording), [line for line in expected(done.stdout) if " 1000 " in line])
    assert [re.sub(r"\d+", "N", line) for line in own_lines(done.stderr)[:-1]] == \
        ["gpuspy: not recording process N: clone or _Fork copied it from one that is recorded"] * 10


@pytest.mark.parametrize("how,files", [("daemon", 1), ("late daemon", 2)])
def test_daemons(recording, how, files):
    trace = recording.folder / "trace"
    done = recording.run(LIVES, how, trace)
    assert (done.stdout, other_lines(done.stderr)) == ("", [])
    deadline = time.monotonic() + SECONDS
    while len(databases(recording)) < files or list(recording.folder.glob("*.spool")):
        assert time.monotonic() < deadline, names_of(recording)
        time.sleep(0.02)
    assert_same(completed(recording), expected(trace.read_text()))


def test_a_child_in_another_folder(recording):
    """Both paths are relative: a child of a program that changed its folder must still find the library and write its
    file next to the first one."""
    (recording.folder / "else%pwhere").mkdir()
    (recording.folder / "else%pwhere" / "deeper").mkdir()
    (recording.folder / "libgpuspy.so").symlink_to(BUILD / "libgpuspy.so")
    preload = recording.environment()["LD_PRELOAD"].replace(str(BUILD / "libgpuspy.so"), "./libgpuspy.so")
    for name in ("", "mine.db", "%h.db"):
        done = recording.run(LIVES, "folder", "else%pwhere/deeper", LD_PRELOAD=preload, GPUSPY_DB=name)
        assert other_lines(done.stderr) == [] and len(own_lines(done.stderr)) == 2
        assert len(databases(recording)) == 2
        assert_same(completed(recording), expected(done.stdout))
        for path in databases(recording):
            path.unlink()


def static_program(recording):
    source, program = recording.folder / "static.c", recording.folder / "static"
    source.write_text('#include <stdio.h>\nint main(void) { puts("call static"); return 0; }\n')
    if subprocess.run(["gcc", "-static", "-o", program, source], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no static C library")
    return program


def test_a_static_child(recording):
    program = static_program(recording)
    done = same_as_bare(recording, "/bin/sh", "-c", f"{program}; {LIVES} plain 1000; {program}")
    assert len(own_lines(done.stderr)) == 1
    assert_same(completed(recording), expected(done.stdout))


def test_a_process_that_gives_its_rights_up(recording):
    """From here on it runs as another user, who may not write into the folder: the rest is recorded all the same."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    os.chmod(recording.folder, 0o755)
    done = same_as_bare(recording, LIVES, "nobody")
    assert_same(completed(recording), expected(done.stdout))
    assert len(own_lines(done.stderr)) == 1


PYTHON_CHILDREN = """import ctypes, multiprocessing, os, sys
def work(n):
    lib = ctypes.CDLL("libcudart.so.13")
    for _ in range(50):
        assert lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(n)) == 0
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    children = [context.Process(target=work, args=(1000 + n,)) for n in range(3)]
    for c in children: c.start()
    for c in children: c.join()
    assert [c.exitcode for c in children] == [0] * 3
    with context.Pool(2) as pool:
        pool.map(work, [5000] * 4, chunksize=1)
        pool.close()
        pool.join()
    if sys.argv[1] != "fork":
        work(7000)
    print("done")
"""


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_multiprocessing(recording, how):
    script = recording.folder / "script.py"
    script.write_text(PYTHON_CHILDREN)
    done = same_as_bare(recording, sys.executable, script, how)
    sizes = [1000] * 50 + [1001] * 50 + [1002] * 50 + [5000] * 200 + ([] if how == "fork" else [7000] * 50)
    assert_same(completed(recording), [f"alloc cudaMalloc {n} device live" for n in sizes])
    report = json.loads(recording.gpuspy("report", "--json", recording.folder).stdout)
    assert len(report["run"]["processes"]) == len(databases(recording))
    assert {p["command"] for p in report["run"]["processes"]} == {f"{sys.executable} {script} {how}"}


# --- ends ---------------------------------------------------------------------------------------

ROUGH = PROGRAMS / "rough.so"


def behind(recording, *libraries, first=()):
    """LD_PRELOAD with gpuspy before, or after, other libraries."""
    return ":".join(map(str, (*first, recording.environment()["LD_PRELOAD"], *libraries)))


ENDS = (("quick_exit", 5, False), ("SIGTERM", -signal.SIGTERM, False), ("SIGTERM, exit", 6, True), ("detached", 0, True),
        ("atexit", 0, True), ("destructors", 0, True))


@pytest.mark.parametrize("how,code,orderly", ENDS, ids=[how for how, _, _ in ENDS])
def test_rarer_ends(recording, how, code, orderly):
    done = same_as_bare(recording, PROGRAMS / "ends", how, code=code)
    assert len(own_lines(done.stderr)) == orderly
    did = int(done.stdout.split()[1])
    assert len(completed(recording)) == (500 if how == "atexit" else did)
    assert recording.sql("select complete, count(*) = count(free_ns) from process, allocation") == [(orderly, 1)]


ENDING = """import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
ctypes.CDLL("libcudart.so.13").cudaMalloc(ctypes.byref(ctypes.c_void_p()), 4096)
raise SystemExit(7)
"""


@contextlib.contextmanager
def full_pipe():
    """As stderr: gpuspy waits for room in it when the recording ends."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(write, b"x" * 4096):
            pass
    os.set_blocking(write, True)
    yield write
    os.close(read), os.close(write)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGALRM])
def test_a_signal_while_the_recording_ends(recording, number):
    """Without gpuspy it would find no process, and the status would be the program's."""
    spool = recording.folder / "run.db.spool"
    with full_pipe() as stderr:
        child = subprocess.Popen([sys.executable, "-c", ENDING], env=recording.environment(), cwd=recording.folder, stderr=stderr)
        wait_until(lambda: spool.exists() or child.poll() is not None, every=0.0005)
        wait_until(lambda: not spool.exists(), every=0.0005)
        child.send_signal(number)
        assert child.wait() == 7
    assert completed(recording)


def test_a_signal_for_a_child_that_is_made_while_the_recording_ends(recording):
    """By a bare clone, as another thread may make one: the signal ends the child as without gpuspy."""
    with full_pipe() as stderr:
        done = subprocess.run([PROGRAMS / "ends", "late child"], env=recording.environment(), cwd=recording.folder, text=True,
                              stdout=subprocess.PIPE, stderr=stderr, timeout=SECONDS)
    assert (done.returncode, done.stdout) == (0, "did 100 1000\n")


@pytest.mark.parametrize("name", ["/dev/null", "/dev/full"])
def test_a_device_as_the_recording(recording, name):
    """The next free name would be a file in /dev."""
    done = recording.run(PROGRAMS / "ends", "detached", GPUSPY_DB=name)
    assert done.stderr == f"gpuspy: not recording: cannot write {name}: it is a device\n"
    assert not os.path.exists(name + "-2") and not list(recording.folder.iterdir())


@pytest.mark.parametrize("how,code", [("overflow", -signal.SIGSEGV), ("overflow, leave", 7)])
def test_an_overflowing_stack(recording, how, code):
    """Possibly deep in the recorder's frames: calls that had returned are recorded, and the program ends as without
    gpuspy."""
    done = recording.run(PROGRAMS / "ends", how, check=False)
    assert (done.returncode, done.stderr) == (code, "")
    rows = completed(recording)
    if code == 7:
        assert int(done.stdout.split()[1]) <= len(rows) <= int(done.stdout.split()[1]) + 1
    assert len(rows) > 100


def test_an_overflow_that_is_survived(recording):
    done = recording.run(PROGRAMS / "ends", "overflow, go on", LD_PRELOAD=behind(recording, ROUGH))
    assert done.stdout == "did 101 1000\n" 
    assert len([line for line in completed(recording) if line.startswith("alloc")]) == 101


@pytest.mark.parametrize("how", ["signals", "signals, own stack"])
def test_calls_out_of_signal_handlers(recording, how):
    """At any instruction of the recorder: what cannot be written there is counted as lost."""
    done = recording.run(PROGRAMS / "rough", how, LD_PRELOAD=behind(recording, ROUGH))
    _, main, _, handler = done.stdout.split()
    main, handler = int(main), int(handler)
    (begun, ended, lost, complete), = recording.sql("select (select count(*) from allocation), (select count(free_ns) from "
                                                    "allocation), lost_events, complete from process")
    syncs = recording.sql("select count(*) from syncs where kind <> 'implicit'")[0][0]
    assert complete == 1 and main <= syncs <= main + handler
    assert begun + ended + syncs + lost <= 2 + main + 3 * handler
    assert begun + ended + lost + syncs >= 2 + main + 2 * handler * 0.98  # a nested wait is not counted separately
    assert recording.sql("pragma integrity_check") == [("ok",)]


@pytest.mark.parametrize("round_", range(4))
def test_kill_9_among_children(recording, round_):
    """A tree of processes, all killed at once: each has its file, and none is damaged."""
    child = subprocess.Popen([LIVES, "threads"], env=recording.environment(), cwd=recording.folder,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    time.sleep(0.02 + round_ * 0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait(SECONDS)
    completed(recording)


THROWS = """#include <cstdio>
#include <dlfcn.h>
#include <stdexcept>
extern "C" int cudaMalloc(void **, unsigned long);
extern "C" int cudaFree(void *);
extern "C" int cudaStreamSynchronize(void *);
static void thrower() { throw std::runtime_error("from below"); }
struct Memory {
    void *p = nullptr;
    explicit Memory(unsigned long n) { cudaMalloc(&p, n); }
    ~Memory() { cudaFree(p); }
};
static Memory *never_freed() { return new Memory(30); }
Memory global(10);                                          // freed by a destructor after main
Memory &local() { static Memory memory(20); return memory; }
thread_local Memory of_thread(40);
int main()
{
    auto in_call = (void (**)())dlsym(RTLD_DEFAULT, "rough_in_call");
    *in_call = thrower;
    for (int i = 0; i < 1000; i++) {
        Memory automatic(50);
        try { cudaStreamSynchronize(nullptr); } catch (const std::exception &e) { if (!i) std::puts(e.what()); }
    }
    *in_call = nullptr;
    for (int i = 0; i < 10; i++) cudaStreamSynchronize(nullptr);
    local();
    never_freed();
    std::printf("%d\\n", of_thread.p != nullptr);
}
"""


def test_cpp(recording):
    """Exceptions through hooked calls, and objects that free device memory after main."""
    source, program = recording.folder / "throws.cc", recording.folder / "throws"
    source.write_text(THROWS)
    subprocess.run(["g++", "-O1", "-g", "-o", program, source, f"-L{BUILD}/sim", "-lcudart", "-ldl"], check=True)
    done = recording.run(program, LD_PRELOAD=behind(recording, ROUGH))
    bare = recording.run(program, LD_PRELOAD=ROUGH)
    assert done.stdout == bare.stdout == "from below\n1\n"
    want = [f"alloc cudaMalloc {n} device freed" for n in [10, 20, 40] + [50] * 1000]
    assert_same(completed(recording), want + ["alloc cudaMalloc 30 device live"] + ["sync cudaStreamSynchronize stream"] * 10)


LATE = """int cudaMalloc(void **, unsigned long);
int cudaFree(void *);
int cuModuleUnload(void *);
static void *kept;
void begin(void) { cudaMalloc(&kept, 1000); }
__attribute__((destructor)) static void end(void) { cuModuleUnload(0); if (FREES) cudaFree(kept); }
"""


@pytest.mark.parametrize("frees", [0, 1])
def test_a_library_that_ends_after_the_recorder(recording, frees):
    """A program's libraries are unloaded after a preloaded one. libcudart then unloads its modules: this loses
    nothing."""
    library, source = recording.folder / "liblate.so", recording.folder / "late.c"
    source.write_text(LATE)
    subprocess.run(["gcc", "-shared", "-fPIC", f"-DFREES={frees}", "-o", library, source, f"-L{BUILD}/sim", "-lcudart", "-lcuda"], check=True)
    source.write_text("void begin(void); int main(void) { begin(); return 0; }")
    subprocess.run(["gcc", "-o", recording.folder / "late", source, library,
                    f"-Wl,-rpath,{recording.folder}", f"-Wl,-rpath-link,{BUILD}/sim"], check=True)
    done = recording.run(recording.folder / "late")
    assert recording.sql("SELECT lost_events, complete FROM process") == [(frees, 1)], done.stderr


THREAD_LOCALS = """
#include <stdio.h>
#include <string.h>
int cudaMalloc(void **, unsigned long);
int cudaFree(void *);
static __thread char of_each_thread[BYTES];
int main(void)
{
    void *p;
    memset(of_each_thread, 1, sizeof of_each_thread);
    cudaMalloc(&p, 10);
    cudaFree(p);
    puts("done");
    return 0;
}
"""


@pytest.mark.parametrize("kib", [100, 200, 245, 250, 255, 900, 1015, 1020, 3000])
def test_thread_locals_leave_the_recorder_its_stack(recording, kib):
    """They use part of every thread's stack, also of the recorder's threads."""
    source, program = recording.folder / "locals.c", recording.folder / "locals"
    source.write_text(THREAD_LOCALS)
    subprocess.run(["gcc", "-O1", f"-DBYTES={kib * 1024}", "-o", program, source, f"-L{BUILD}/sim", "-lcudart"], check=True)
    assert recording.run(program).stdout == "done\n"
    assert_same(completed(recording), ["alloc cudaMalloc 10 device freed"])


# --- other tools ---------------------------------------------------------------------------------

COUNTING_MALLOC = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static void *(*real_malloc)(size_t);
static void (*real_free)(void *);
static char early[65536];
static size_t used;
static __thread int inside;
void *malloc(size_t n)
{
    if (!real_malloc && !inside) {
        inside = 1; /* what dlsym itself wants comes from the array */
        void *found = dlsym(RTLD_NEXT, "free");
        memcpy(&real_free, &found, sizeof found);
        found = dlsym(RTLD_NEXT, "malloc");
        memcpy(&real_malloc, &found, sizeof found);
        inside = 0;
    }
    if (real_malloc) return real_malloc(n);
    n = (n + 15) & ~15ul;
    if (used + n > sizeof early) _exit(99);
    used += n;
    return early + used - n;
}
void free(void *p)
{
    if ((char *)p >= early && (char *)p < early + sizeof early) return;
    if (real_free) real_free(p);
}
"""


def neighbour(recording, name):
    if name == "malloc":
        source, library = recording.folder / "counting.c", recording.folder / "counting.so"
        source.write_text(COUNTING_MALLOC)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        return library
    places = {"jemalloc": ["/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "/usr/lib/aarch64-linux-gnu/libjemalloc.so.2"],
              "heaptrack": ["/usr/lib/heaptrack/libheaptrack_preload.so"]}[name]
    for place in places:
        if os.path.exists(place):
            return place
    pytest.skip(f"no {name} here")


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="a sanitizer brings a malloc of its own")
@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("name", ["malloc", "jemalloc", "heaptrack"])
def test_another_interposer(recording, name, order):
    other = neighbour(recording, name)
    preload = behind(recording, other) if order == "before" else behind(recording, first=(other,))
    more = {"LD_PRELOAD": preload}
    if name == "heaptrack":
        more["DUMP_HEAPTRACK_OUTPUT"] = recording.folder / "heap"
    # heaptrack itself hangs if a program with threads forks, and removes LD_PRELOAD for children
    children = [[LIVES, "threads"], [LIVES, "spawn"]] if name != "heaptrack" else []
    for command in [[PROGRAMS / "threads", 8, 100], [PROGRAMS / "lookups", "dlsym"], *children]:
        done = recording.run(*command, **more)
        bare = recording.run(*command, LD_PRELOAD="")
        assert sorted(done.stdout.splitlines()) == sorted(bare.stdout.splitlines())
        assert_same(completed(recording), expected(done.stdout))
        for path in databases(recording):
            path.unlink()


# --- files that change or vanish --------------------------------------------------------------------

def halves(recording, between, pairs=20000, **popen):
    """Runs the program of two halves; `between` is called between them."""
    child = subprocess.Popen([LIVES, "halves", str(pairs)], env=recording.environment(), cwd=recording.folder, text=True,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen)
    first = child.stdout.readline()
    assert first == "call half\n"
    between()
    out, err = child.communicate("go\n", timeout=SECONDS)
    assert child.returncode == 0, err
    lines = expected(out)
    assert len(lines) == 2 * pairs and other_lines(err) == []
    return lines, err.splitlines()


GONE = "gpuspy: recording stopped here: the database's files were deleted"


@pytest.mark.parametrize("seconds", [0, 1.5])
@pytest.mark.parametrize("what", ["database", "log", "all"])
def test_files_deleted_while_recording(recording, what, seconds):
    """Before and after the first commit: one message, and what was recorded is correct or refused."""
    def delete():
        time.sleep(seconds)
        for path in recording.folder.iterdir():
            if what == "all" or path.name == {"database": "run.db", "log": "run.db-wal"}[what]:
                path.unlink()
    lines, reported = halves(recording, delete)
    assert reported == [GONE]
    done = recording.gpuspy("report", "--json", recording.database)
    if what == "all" or (what == "database" and done.returncode):
        assert done.returncode == 3 and not list(recording.folder.glob("*.spool"))
        return
    assert what == "log" or not seconds
    report = json.loads(done.stdout)
    assert report["run"]["complete"] is (not report["run"]["lost_events"])
    begun, freed = recording.sql("select count(*), count(free_ns) from allocation")[0]
    assert begun + freed <= 2 * len(lines) <= begun + freed + report["run"]["lost_events"]


def test_a_spool_deleted_while_recording(recording):
    """The mapped memory remains; only a crash would lose its contents, and the report states that."""
    spool = recording.folder / "run.db.spool"
    lines, reported = halves(recording, spool.unlink)
    assert_same(completed(recording), lines)
    recording.database.unlink()
    child = subprocess.Popen([LIVES, "halves", "1000"], env=recording.environment(), cwd=recording.folder,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    child.kill()
    child.communicate()
    remove_spools(recording.folder)
    spool.unlink()
    done = recording.gpuspy("report", recording.database)
    text = " ".join(done.stdout.split())
    assert "the program did not end normally, and its last events are missing" in text
    assert "complete up to its last" not in text and "the recording was cut off" in text
    assert recording.report()["run"]["complete"] is False


def test_a_database_copied_without_its_log(recording):
    """The file has its tables only after the first checkpoint."""
    alone = recording.folder / "alone.db"
    halves(recording, lambda: alone.write_bytes(recording.database.read_bytes()[:4096]))
    assert f"it has no tables, and its log '{alone}-wal' is missing" in recording.gpuspy("report", alone).stderr


def test_another_run_in_the_place_of_a_deleted_one(recording):
    """The names are used again: the first run must not change the second one's files when it ends."""
    def again():
        for path in recording.folder.iterdir():
            path.unlink()
        recording.other = subprocess.Popen([LIVES, "halves", "5000"], env=recording.environment(), cwd=recording.folder,
                                           text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert recording.other.stdout.readline() == "call half\n"
    assert halves(recording, again)[1] == [GONE]
    assert names_of(recording) == ["run.db", "run.db-shm", "run.db-wal", "run.db.spool"]
    out, _ = recording.other.communicate("go\n", timeout=SECONDS)
    assert names_of(recording) == ["run.db"]
    assert_same(completed(recording), expected(out))


def test_a_folder_moved_while_recording(recording):
    recording.database = recording.folder / "here" / "run.db"
    (recording.folder / "here").mkdir()
    lines, reported = halves(recording, lambda: (recording.folder / "here").rename(recording.folder / "there"))
    assert len(reported) == 1 and reported[0].endswith("here/run.db (moved or deleted since)")
    recording.folder /= "there"
    assert_same(completed(recording), lines)


def unprivileged(recording):
    """Arguments of Popen for an unprivileged user (root may write everywhere)."""
    if os.geteuid():
        return {}
    os.chown(recording.folder, 65534, 65534)
    for folder in (BUILD / "libgpuspy.so", recording.folder):
        if subprocess.run(["stat", folder], user=65534, group=65534, extra_groups=[], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode:
            pytest.skip("nobody may not read the build here")
    return {"user": 65534, "group": 65534, "extra_groups": []}


def test_a_folder_that_becomes_unwritable(recording, tmp_path_factory):
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        recording.folder = type(recording.folder)(folder)
        recording.database = recording.folder / "run.db"
        who = unprivileged(recording)
        lines, reported = halves(recording, lambda: os.chmod(folder, 0o555), **who)
        os.chmod(folder, 0o777)
        assert len(reported) == 1 and "next: gpuspy report" in reported[0]
        assert_same(completed(recording), lines)


# --- limits -------------------------------------------------------------------------------------

@own_files
def test_no_descriptor_left(recording):
    """gpuspy's own table has room: every call is recorded."""
    done = same_as_bare(recording, LIVES, "descriptors")
    assert len(own_lines(done.stderr)) == 1
    assert_same(completed(recording), expected(done.stdout))


def test_a_limit_on_files_meanwhile(recording):
    done = same_as_bare(recording, LIVES, "fsize")
    assert len(own_lines(done.stderr)) == 1 and "recording stopped here: " in done.stderr
    report = recording.report()
    begun, freed = recording.sql("select count(*), count(free_ns) from allocation")[0]
    assert begun + freed + report["run"]["lost_events"] >= 2 * 50001 and report["run"]["lost_events"]


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="a sanitizer wants much address space")
def test_no_address_space_left(recording):
    done = same_as_bare(recording, LIVES, "space")
    assert len(completed(recording)) == 2001
    assert len(own_lines(done.stderr)) == 1 and "· threads without stacks: Cannot allocate memory ·" in done.stderr
    (of_main,), (of_thread,) = recording.sql("select count(alloc_stack_id) from allocation group by alloc_thread_id")
    assert (of_main, of_thread) == (1001, 0)


@pytest.mark.skipif("address" in SAN, reason="AddressSanitizer's shadow is data")
def test_a_limit_on_data_that_the_program_needs(recording):
    done = same_as_bare(recording, "sh", "-c", f"ulimit -d 8192; exec {PROGRAMS / 'storm'} 10")
    assert own_lines(done.stderr) == ["gpuspy: not recording: the limit on data (ulimit -d) is 8192 KiB, which leaves less than the "
                                      "32 MiB that gpuspy needs"]


@pytest.mark.skipif("address" in SAN, reason="AddressSanitizer reserves more address space than that")
@pytest.mark.parametrize("mib", [16, 40, 56, 64, 200])
def test_little_address_space_from_the_start(recording, mib):
    """With 40 or 56 MiB gpuspy had room itself, and the program's allocations failed."""
    done = same_as_bare(recording, LIVES, "no space", mib)
    assert re.fullmatch(r"gpuspy: not recording: the limit on addresses \(ulimit -v\) is \d+ KiB, which leaves less than the "
                        r"256 MiB that gpuspy needs\n", done.stderr)
    assert names_of(recording) == []


# --- Python -------------------------------------------------------------------------------------

TENSOR = """import atexit, ctypes, faulthandler, os, sys, threading, time
lib = ctypes.CDLL("libcudart.so.13")
class Tensor:
    def __init__(self, size):
        self.pointer = ctypes.c_void_p()
        assert lib.cudaMalloc(ctypes.byref(self.pointer), ctypes.c_size_t(size)) == 0
        self.size = size
    def __del__(self, free=lib.cudaFree, write=os.write):
        free(self.pointer)
        write(1, b"freed %d\\n" % self.size)
"""


def freed(recording, script, *arguments, code=0, between=0):
    """The sizes that the program printed as freed; the database must have the same. So many threads may have been
    stopped `between` a free and its print."""
    done = recording.python(TENSOR + script, *arguments) if code == 0 else None
    if done is None:
        path = recording.folder / "script.py"
        path.write_text(TENSOR + script)
        done = recording.run(sys.executable, path, *arguments, check=False)
        assert done.returncode == code
    completed(recording)
    want = sorted(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("freed"))
    got = [size for size, in recording.sql("select bytes from allocation where free_ns is not null order by 1")]
    assert got[:len(want)] == want and len(got) <= len(want) + between
    return want


def test_objects_freed_while_python_ends(recording):
    """By name and in cycles, in modules and at exit, with the line of __del__ if Python still has one."""
    got = freed(recording, """
keep = Tensor(100)
class Cycle:
    def __init__(self):
        self.tensor, self.me = Tensor(200), self
Cycle()
sys.modules["holder"] = Tensor(300)
atexit.register(lambda: Tensor(400))
""")
    assert got == [100, 200, 300, 400]
    line = TENSOR.splitlines().index("        free(self.pointer)") + 1
    assert recording.sql("select a.bytes, s.line from allocations a left join sites s on s.stack_id = a.free_stack_id "
                         "order by 1") == [(n, line) for n in got]


def test_daemon_threads_at_the_end_of_python(recording):
    freed(recording, """
def work():
    while True:
        Tensor(500)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
""", between=3)


@pytest.mark.parametrize("script,code", [
    ("threading.Thread(target=sys.exit, args=(3,)).start(); Tensor(100)", 0),
    ("Tensor(100); keep = Tensor(200); sys.exit(3)", 3),
    ("Tensor(100); keep = Tensor(200); os._exit(4)", 4),
    ("keep = Tensor(200); raise SystemExit('no')", 1),
    ("keep = Tensor(200); raise KeyError(1)", 1),
    ("Tensor(100); os.kill(os.getpid(), 2); time.sleep(1)", -signal.SIGINT),
    ("faulthandler.enable(); Tensor(100); faulthandler._sigsegv()", -signal.SIGSEGV),
    ("faulthandler.enable(); Tensor(100); faulthandler.dump_traceback_later(0.1, exit=True); time.sleep(5)", 1),
], ids=["thread", "sys.exit", "os._exit", "SystemExit", "exception", "SIGINT", "faulthandler", "dump"])
def test_ends_of_python(recording, script, code):
    freed(recording, script, code=code)


def test_a_library_closed_and_opened_again(recording):
    """As far as the program can tell, dlclose unloads the runtime."""
    recording.python("""
import _ctypes, ctypes
for n in (100, 200, 300):
    handle = _ctypes.dlopen("libcudart.so.13", 0)
    malloc = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)(_ctypes.dlsym(handle, "cudaMalloc"))
    assert malloc(ctypes.byref(ctypes.c_void_p()), n) == 0
    _ctypes.dlclose(handle)
""")
    assert_same(completed(recording), [f"alloc cudaMalloc {n} device live" for n in (100, 200, 300)])


# --- PyTorch ------------------------------------------------------------------------------------

INHERITED = """import os, torch
parents = [torch.zeros(1000, 1000) for _ in range(3)]
child = os.fork()
if not child:
    own = torch.zeros(500, 500)
    del parents[0]
    own = torch.zeros(600, 600)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""

KILLED_WORKER = """import os, signal, torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        if index == 40: os.kill(os.getpid(), signal.SIGKILL)
        return torch.full((100, 100), float(index))
try:
    try:
        for batch in DataLoader(Numbers(), batch_size=8, num_workers=2):
            pass
    finally: # PyTorch's handler raises too, and may do so while another exception is handled
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
except (RuntimeError, OSError, EOFError): # whichever end notices first
    print("noticed")
"""


def test_a_child_goes_on_with_its_parents_tensors(recording):
    pytest.importorskip("torch")
    recording.python(INHERITED, GPUSPY_TORCH_CPU=1)
    completed(recording)
    assert len(databases(recording)) == 2
    for path in databases(recording):
        recording.database = path
        assert recording.sql("select mismatches from tensor_check") == [(0,)]


def test_a_killed_worker_of_a_data_loader(recording):
    pytest.importorskip("torch")
    done = recording.python(KILLED_WORKER, GPUSPY_TORCH_CPU=1)
    assert done.stdout == "noticed\n"
    report = recording.report()
    assert len(report["run"]["processes"]) == 3 and report["run"]["lost_events"] == 0
    assert [p["complete"] for p in report["run"]["processes"]].count(True) == 1


# --- more than the recorder can take ------------------------------------------------------------

def lines_of(done):
    return [int(line.split()[0]) for line in done.stdout.splitlines()]


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="a sanitizer's own memory is measured")
def test_a_storm(recording):
    """64 threads that only allocate and free: every event is recorded or counted as lost; memory and spool stay
    bounded."""
    bare = lines_of(recording.run(PROGRAMS / "storm", 5000, 64, LD_PRELOAD=""))
    done = lines_of(recording.run(PROGRAMS / "storm", 5000, 64))
    assert done[1] - bare[1] <= 64 << 10
    (lost, complete), = recording.sql("select lost_events, complete from process")
    begun, ended = recording.sql("select count(*), count(free_ns) from allocation")[0]
    assert begun + ended + lost >= 2 * 64 * 5000 and complete == 1
    if lost:
        assert "events were lost" in recording.gpuspy("report", recording.database).stdout.splitlines()[0]


def test_more_threads_than_there_are_chunks(recording):
    """Each recording thread uses a part of the spool: calls of threads without one are counted as lost."""
    done = recording.run(PROGRAMS / "lives", "crowd", 1200)
    (lost,), = recording.sql("select lost_events from process")
    begun, ended = recording.sql("select count(*), count(free_ns) from allocation")[0]
    # a free that took long also leaves a wait
    assert begun + ended <= 2048 and 2 * 1200 <= begun + ended + lost <= 3 * 1200, done.stderr
    assert f"({lost} lost)" in done.stderr
    assert re.match(r"! \d+ events were lost", recording.gpuspy("report", recording.database).stdout)


# --- several processes --------------------------------------------------------------------------

LAUNCHER = """import os, signal, subprocess, sys, time
ranks = int(sys.argv[1])
children = [subprocess.Popen([sys.executable, sys.argv[2], str(rank)], env=dict(os.environ, RANK=str(rank),
            LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks)), stdout=subprocess.PIPE, text=True) for rank in range(ranks)]
for child in children:
    assert child.stdout.readline() == "up\\n"
children[2].send_signal(signal.SIGKILL)
codes = [child.wait() for child in children]
print(codes)
"""

RANK = """import ctypes, sys, time
rank = int(sys.argv[1])
lib = ctypes.CDLL("libcudart.so.13")
assert lib.cudaSetDevice(rank) == 0
def hold(megabytes):
    assert lib.cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(megabytes << 20)) == 0
hold(100 + 100 * rank if rank != 1 else 900)
print("up", flush=True)
if rank == 2:
    time.sleep(60)
hold(1)
"""


def test_a_launcher_and_its_ranks(recording):
    """Like torchrun: one run, all ranks in one report, with the rank that has the peak and the one that was killed."""
    (recording.folder / "launcher.py").write_text(LAUNCHER)
    (recording.folder / "rank.py").write_text(RANK)
    done = recording.run(sys.executable, "launcher.py", 4, "rank.py", SIMCUDA_DEVICES=4, SIMCUDA_MEMORY="2GiB")
    assert done.stdout == "[0, 0, -9, 0]\n"
    report = recording.report()
    processes = report["run"]["processes"]
    assert sorted(p["rank"] for p in processes) == [0, 1, 2, 3]
    assert [p["rank"] for p in processes if not p["complete"]] == [2]
    peaks = {p["rank"]: p["bytes"] for p in report["peak"] if p["layer"] == "device"}
    assert peaks == {0: 101 << 20, 1: 901 << 20, 2: 300 << 20, 3: 401 << 20}
    text = recording.gpuspy("report", "--full", recording.database).stdout
    first = " ".join(text[:300].split())
    assert re.match(r"! rank 2, process \d+ \(1 of 4\), was killed, crashed or called _exit \(as forked workers do\) at .*s: "
                    "its recording is complete up to its last call", first), first
    assert "peak 901.00 MiB of 2.00 GiB (44 %) on rank 1, GPU 1" in text
    assert all(f"\nrank {rank}, GPU {rank}\n" in text for rank in range(4))
    for given in ([recording.folder], databases(recording), [databases(recording)[-1]]):
        again = json.loads(recording.gpuspy("report", "--json", *given).stdout)
        assert sorted(p["rank"] for p in again["run"]["processes"]) == [0, 1, 2, 3]


# --- the analyzer's own memory ------------------------------------------------------------------

def valgrind(recording, *arguments):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    return subprocess.run(["valgrind", "--quiet", "--error-exitcode=99", "--leak-check=full",
                           "--errors-for-leak-kinds=definite,indirect", BUILD / "gpuspy", *arguments], env=env,
                          cwd=recording.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)


@pytest.mark.skipif(bool(os.environ.get("SAN")), reason="the sanitizer looks already")
@pytest.mark.skipif(not shutil.which("valgrind"), reason="no valgrind here")
@pytest.mark.parametrize("damage", ["none", "spool", "pages"])
def test_the_report_under_valgrind(recording, damage):
    recording.run(PROGRAMS / ("deaths" if damage == "spool" else "runtime_calls"), "kill", check=False)
    spool = recording.folder / "run.db.spool"
    if damage == "spool":
        with open(spool, "r+b") as file:  # the records of the first chunks
            for at in range(4096 + 64, 4096 + 3 * 32768, 97):
                file.seek(at)
                file.write(b"\xff")
    if damage == "pages":
        data = bytearray(recording.database.read_bytes())
        for at in range(3 * 4096 + 8, len(data), 1009):
            data[at] ^= 0x5a
        recording.database.write_bytes(data)
    done = valgrind(recording, "report", "--native" if damage == "none" else "--json", recording.database)
    assert done.returncode in ((0,) if damage == "none" else (0, 3)), done.stderr
    assert "==" not in done.stderr, done.stderr
