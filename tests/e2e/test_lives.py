"""What a process can do to itself: children of every kind, programs over programs, daemons, limits,
neighbours, ends. Each is run bare and recorded: the same exit status, stdout and stderr apart from
gpuspy's own lines, and the databases hold what the program says it did."""
import collections
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import time

import pytest

from conftest import BUILD, ROOT, SECONDS
from test_programs import assert_same, databases, expected, names_of, rendered

PROGRAMS = BUILD / "programs"
LIVES = PROGRAMS / "lives"


def own_lines(stderr):
    return [line for line in stderr.splitlines() if line.startswith("gpuspy: ")]


def other_lines(stderr):
    return [line for line in stderr.splitlines() if not line.startswith("gpuspy: ")]


def completed(recording):
    """What all databases of the folder hold, after a report has completed the unfinished ones."""
    for path in sorted(recording.folder.glob("*.db.spool")):
        assert recording.gpuspy("report", path.with_suffix("")).returncode == 0
    assert not list(recording.folder.glob("*.spool"))
    rows = []
    for path in databases(recording):
        with sqlite3.connect(path) as db:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
            assert db.execute("select lost_events from process").fetchall() == [(0,)]
        rows += rendered(path)
    return rows


def same_as_bare(recording, *command, code=0, **more):
    """Both runs, compared; the recorded one."""
    bare = recording.run(*command, check=False, **dict(more, LD_PRELOAD=""))
    assert not databases(recording)
    done = recording.run(*command, check=False, **more)
    assert (done.returncode, done.stdout) == (code, bare.stdout) == (bare.returncode, bare.stdout), done.stderr
    assert other_lines(done.stderr) == other_lines(bare.stderr)
    return done


# --- children -----------------------------------------------------------------------------------

@pytest.mark.parametrize("how,files", [("threads", 20), ("generations", 4), ("vfork", 2), ("spawn", 2), ("exec", 2), ("empty", 1)])
def test_children(recording, how, files):
    done = same_as_bare(recording, LIVES, how)
    want = expected(done.stdout)
    if how == "empty":  # a child without an environment is not recorded, and knows nothing of us
        want = [line for line in want if " 2000 " not in line and " 2001 " not in line]
    assert_same(completed(recording), want)
    assert len(databases(recording)) == files + (how == "threads")
    assert {sqlite3.connect(p).execute("select run_id from process").fetchone() for p in databases(recording)} \
        == {sqlite3.connect(databases(recording)[0]).execute("select run_id from process").fetchone()}


def test_a_child_that_no_fork_handler_sees(recording):
    """A bare clone has the parent's memory, its mapped spool too: it must not write there."""
    done = same_as_bare(recording, LIVES, "clone")
    assert_same(completed(recording), [line for line in expected(done.stdout) if " 1000 " in line])
    assert [re.sub(r"\d+", "N", line) for line in own_lines(done.stderr)[:-1]] == \
        ["gpuspy: not recording process N: clone or _Fork copied it from one that is recorded"] * 10


@pytest.mark.parametrize("how,files", [("daemon", 1), ("late daemon", 2)])
def test_daemons(recording, how, files):
    trace = recording.folder / "trace"
    done = recording.run(LIVES, how, trace)
    assert (done.stdout, other_lines(done.stderr)) == ("", [])
    deadline = time.monotonic() + 30
    while len(databases(recording)) < files or list(recording.folder.glob("*.spool")):
        assert time.monotonic() < deadline, names_of(recording)
        time.sleep(0.02)
    assert_same(completed(recording), expected(trace.read_text()))


def test_a_child_in_another_folder(recording):
    """Both names relative: the child of a program that has gone elsewhere finds the library, and writes
    its file beside the first one."""
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
    """Another user from here on, who may not write into the folder: the rest is recorded all the same."""
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
    import sys
    done = same_as_bare(recording, sys.executable, script, how)
    sizes = [1000] * 50 + [1001] * 50 + [1002] * 50 + [5000] * 200 + ([] if how == "fork" else [7000] * 50)
    assert_same(completed(recording), [f"alloc cudaMalloc {n} device live" for n in sizes])
    report = json.loads(recording.gpuspy("report", "--json", recording.folder).stdout)
    assert len(report["run"]["processes"]) == len(databases(recording))
