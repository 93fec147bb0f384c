"""`gpuspy export`: its output can be read as a PyTorch snapshot and agrees with the report; what it refuses."""
import io
import json
import os
import pickle
import pickletools
import pty
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from conftest import BUILD, Recording, sanitized

MIB = 1 << 20


class Plain(pickle.Unpickler):
    """Loads no class: the file may contain dicts, lists, tuples, strings and numbers only."""

    def find_class(self, module, name):
        raise AssertionError((module, name))


def read(source):
    with open(source, "rb") if not isinstance(source, bytes) else io.BytesIO(source) as f:
        return Plain(f).load()


def totals_hold(snapshot):
    """The blocks of each segment fill it, in order, and their sizes add up, as memory_viz requires."""
    for s in snapshot["segments"]:
        at = s["address"]
        for b in s["blocks"]:
            assert b["address"] == at and b["size"] > 0
            assert b["state"] in ("active_allocated", "inactive")
            at += b["size"]
        assert at == s["address"] + s["total_size"]
        active = sum(b["size"] for b in s["blocks"] if b["state"] == "active_allocated")
        assert active == s["allocated_size"] == s["active_size"] == s["requested_size"]
        assert {"stream", "segment_type", "segment_pool_id", "is_expandable", "frames", "device"} <= s.keys()
    return sum(s["allocated_size"] for s in snapshot["segments"])


def unwound(snapshot, device=0):
    """Going back from the segments through the trace, as memory_viz does, finds every block, and nothing is left at the
    beginning of a complete trace."""
    segments = {s["address"]: s["total_size"] for s in snapshot["segments"] if s["device"] == device}
    blocks = {b["address"]: b["size"] for s in snapshot["segments"] if s["device"] == device for b in s["blocks"]
              if b["state"] == "active_allocated"}
    for e in reversed(snapshot["device_traces"][device]):
        if e["action"] == "alloc":
            assert blocks.pop(e["addr"]) == e["size"]
        elif e["action"] == "free_completed":
            assert e["addr"] not in blocks
            blocks[e["addr"]] = e["size"]
        elif e["action"] == "segment_alloc":
            assert segments.pop(e["addr"]) == e["size"]
        elif e["action"] == "segment_free":
            segments[e["addr"]] = e["size"]
        elif e["action"] == "free_requested":
            assert e["addr"] in blocks
        else:
            assert e["action"] in ("oom", "snapshot")
    return segments, blocks


PROGRAM = """
import _gpu as gpu


def hold(n, size):
    return [gpu.malloc(size) for _ in range(n)]


kept = hold(3, 5 << 20)
for i in range(40):
    gpu.free(gpu.malloc((1 << 20) + i))
last = hold(2, 1 << 20)
gpu.free(kept[0])
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A program without PyTorch: direct CUDA allocations of Python lines."""
    recording = Recording(tmp_path_factory.mktemp("plain"))
    (recording.folder / "_gpu.py").write_text('''
import ctypes
cuda = ctypes.CDLL("libcudart.so.13")


def malloc(size):
    at = ctypes.c_void_p()
    return None if cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(size)) else at


def free(at):
    cuda.cudaFree(at)
''')
    recording.python(PROGRAM, PYTHONPATH=recording.folder)
    return recording


def export(recording, *options, database=None, code=0):
    out = recording.folder / "out.pickle"
    out.unlink(missing_ok=True)
    done = recording.gpuspy("export", "-o", out, *options, database or recording.database)
    assert done.returncode == code, done.stderr
    assert code == 0 or not out.exists()
    assert not [p for p in recording.folder.iterdir() if p.name.startswith("out.pickle.")]
    return read(out) if code == 0 else done.stderr


def test_a_program_without_pytorch(plain):
    snapshot = export(plain)
    report = plain.report()
    peak = next(p for p in report["peak"] if p["layer"] == "device")
    assert totals_hold(snapshot) == peak["bytes"]
    assert unwound(snapshot) == ({}, {})
    assert all(len(s["blocks"]) == 1 for s in snapshot["segments"]) and len(snapshot["segments"]) == peak["count"]
    for s in snapshot["segments"]:
        frames = s["blocks"][0]["frames"]
        assert frames == s["frames"] and frames[-1]["filename"].endswith("script.py") and frames[-1]["line"] in (9, 12)
        assert "hold" in [f["name"] for f in frames] and frames[0]["name"] == "malloc"


def test_the_whole_run_and_its_clock(plain):
    snapshot = export(plain, "--at", "end")
    assert unwound(snapshot) == ({}, {})
    trace = snapshot["device_traces"][0]
    count = {a: sum(e["action"] == a for e in trace) for a in {e["action"] for e in trace}}
    assert count == {"alloc": 45, "segment_alloc": 45, "free_requested": 41, "free_completed": 41, "segment_free": 41,
                     "snapshot": 1}
    times = [e["time_us"] for e in trace]
    assert times == sorted(times) and abs(times[0] / 1e6 - time.time()) < 600
    assert totals_hold(snapshot) == 12 * MIB


def test_the_last_events_only(plain):
    whole, part = export(plain, "--at", "end"), export(plain, "--at", "end", "-n", "17")
    kept = part["device_traces"][0]
    assert kept[:-1] == whole["device_traces"][0][-18:-1] and part["segments"] == whole["segments"]
    unwound(part)
    assert len(export(plain, "--last", "0")["device_traces"][0]) == 1


def test_a_moment_in_seconds(plain):
    start, = plain.sql("SELECT alloc_ns FROM allocation WHERE layer = 0 ORDER BY id LIMIT 1 OFFSET 2")[0]
    snapshot = export(plain, "--at", f"{start / 1e9:.9f}")
    assert totals_hold(snapshot) == 15 * MIB
    before = export(plain, "--at", f"{(start - 1) / 1e9:.9f}")
    assert totals_hold(before) == 10 * MIB
    assert totals_hold(export(plain, "--at", "0")) == 0


def test_frames_are_shared(plain):
    """One list per call path, whatever the number of events: this keeps the file small."""
    out = plain.folder / "out.pickle"
    snapshot = export(plain, "--at", "end")
    freed = [e["frames"] for e in snapshot["device_traces"][0] if e["action"] == "free_requested"]
    assert len({id(f) for f in freed}) == 2
    naive = len(pickle.dumps(json.loads(json.dumps(snapshot)), 4))  # nothing shared but what repr keeps
    assert out.stat().st_size * 2 < naive


def test_stacks(plain):
    native = export(plain, "--stacks", "native")
    both = export(plain, "--stacks", "both")
    frames = both["segments"][0]["frames"]
    assert any(f["filename"].endswith(".py") for f in frames)
    assert not any(f["filename"].endswith("script.py") for f in native["segments"][0]["frames"])


# The opcodes of Python's protocol 4 that memory_viz's own pickle reader supports.
OPCODES = {"PROTO", "MARK", "STOP", "EMPTY_LIST", "APPENDS", "EMPTY_DICT", "SETITEMS", "TUPLE2", "NEWTRUE", "NEWFALSE", "LONG1",
           "BININT", "BININT1", "BININT2", "SHORT_BINUNICODE", "BINUNICODE", "MEMOIZE", "BINGET", "LONG_BINGET"}


def test_memory_viz_can_read_it(plain):
    snapshot = export(plain, "--at", "end")
    data = (plain.folder / "out.pickle").read_bytes()
    assert {op.name for op, _, _ in pickletools.genops(data)} <= OPCODES and data[:2] == b"\x80\x04"
    categories = {e["category"] for t in snapshot["device_traces"] for e in t if "category" in e}
    assert "unknown" in categories, "memory_viz fails if events have categories and this one is missing"


def test_without_categories(plain):
    with_, without = export(plain), export(plain, "--no-categories")
    assert all("category" not in x for t in without["device_traces"] for x in t)
    for s in with_["segments"]:
        for b in s["blocks"]:
            b.pop("category", None)
    assert with_["segments"] == without["segments"]


def test_to_a_pipe_and_by_the_usual_name(plain, tmp_path):
    done = subprocess.run([BUILD / "gpuspy", "export", "-f", "torch-snapshot", "-o", "-", plain.database],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0 and read(done.stdout) == export(plain)
    done = subprocess.run([BUILD / "gpuspy", "export", plain.database], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 0 and [p.name for p in tmp_path.iterdir()] == ["run.pickle"]
    assert "peak of GPU 0" in done.stderr and "wrote run.pickle" in done.stderr
    assert (tmp_path / "run.pickle").stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


# ---------------------------------------------------------------- refusals

def test_no_terminal_gets_it(plain):
    leader, follower = pty.openpty()
    done = subprocess.run([BUILD / "gpuspy", "export", "-o", "-", plain.database], stdout=follower, stderr=subprocess.PIPE,
                          text=True)
    os.close(follower)
    assert done.returncode == 2 and "terminal" in done.stderr
    os.close(leader)


@pytest.mark.parametrize("options, hint", [
    (["--at", "soon"], "neither seconds"), (["--at", "-1"], "neither seconds"), (["--at", "1e400"], "neither seconds"),
    (["--format", "trace"], "is unknown"), (["--last", "-1"], "out of range"), (["--stacks", "all"], "is unknown")])
def test_wrong_words(plain, options, hint):
    assert hint in export(plain, *options, code=2)


def test_an_output_that_cannot_be_written_is_one_line(plain):
    done = plain.gpuspy("export", "-o", "none/out.pickle", plain.database)
    assert done.returncode == 3 and re.fullmatch(r"gpuspy: export: cannot write 'none/out.pickle': .*\n", done.stderr)


def test_two_recordings_at_once(plain):
    assert "give one recording" in export(plain, plain.database, code=2)


@pytest.mark.parametrize("options, hint", [(["--at", "oom"], "did not run out"), (["-d", "5"], "GPU 5 holds no memory"),
                                           (["-p", "1"], "this run has no process 1; it has"), (["-r", "3"], "this run has no rank 3; it has")])
def test_missing_processes_devices_and_failures(plain, options, hint):
    assert hint in export(plain, *options, code=1)


def test_files_that_are_not_recordings(plain, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "text").write_text("no database")
    for name in ("pipe", "text", "missing"):
        done = plain.gpuspy("export", "-o", tmp_path / "x", tmp_path / name)
        assert done.returncode == 3 and done.stderr.startswith("gpuspy: export: cannot read") and done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_no_half_file_is_left(plain, tmp_path):
    out = tmp_path / "there.pickle"
    out.write_text("before")
    bad = tmp_path / "bad.db"
    shutil.copy(plain.database, bad)
    with open(bad, "r+b") as f:  # the pages of the rows are lost
        f.seek(3 * 4096)
        f.write(b"\xaa" * (bad.stat().st_size - 3 * 4096))
    done = plain.gpuspy("export", "-o", out, bad)
    assert done.returncode == 3 and done.stderr.startswith("gpuspy: export: ") and done.stderr.count("\n") == 1
    assert out.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.db", "there.pickle"]


@pytest.mark.parametrize("name, why", [("no/such/x", "the folder 'no/such' does not exist; create it first"), (".", "directory"), ("/dev/full", "No space left")])
def test_unwritable_output(plain, name, why):
    done = plain.gpuspy("export", "-o", name, plain.database)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"gpuspy: export: cannot write '{name}'") and why in last


@pytest.mark.skipif(not os.geteuid(), reason="root may write everywhere")
def test_a_folder_that_refuses(plain, tmp_path):
    tmp_path.chmod(0o555)
    done = plain.gpuspy("export", "-o", tmp_path / "x.pickle", plain.database)
    assert done.returncode == 3 and "Permission denied" in done.stderr


@pytest.mark.skipif(os.geteuid() or not shutil.which("mount"), reason="wants to mount a small disk")
def test_a_disk_that_fills_up(plain, tmp_path):
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "none", tmp_path], stderr=subprocess.PIPE).returncode:
        pytest.skip("may not mount")
    try:
        done = plain.gpuspy("export", "-o", tmp_path / "x.pickle", plain.database)
        assert done.returncode == 3 and "No space left" in done.stderr.splitlines()[-1]
        assert not list(tmp_path.iterdir())
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_never_over_the_recording_itself(plain):
    before = plain.database.read_bytes()
    done = plain.gpuspy("export", "-o", plain.database, plain.database)
    assert done.returncode == 3 and "the recording itself" in done.stderr and plain.database.read_bytes() == before


# ---------------------------------------------------------------- devices, processes, failures, large ones

def test_each_device_has_its_trace(recording):
    recording.python('''
import ctypes
cuda = ctypes.CDLL("libcudart.so.13")
for device in (0, 2):
    cuda.cudaSetDevice(device)
    at = ctypes.c_void_p()
    cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t((device + 1) << 20))
''', SIMCUDA_DEVICES="3")
    snapshot = export(recording, "--at", "end")
    assert [len(t) for t in snapshot["device_traces"]] == [3, 0, 3]
    assert [(s["device"], s["total_size"]) for s in snapshot["segments"]] == [(0, MIB), (2, 3 * MIB)]
    one = export(recording, "-d", "2", "--at", "end")
    assert [len(t) for t in one["device_traces"]] == [0, 0, 3] and len(one["segments"]) == 1


def test_a_process_of_several(recording):
    script = '''
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL("libcudart.so.13")
rank = int(os.environ["RANK"])
at = ctypes.c_void_p()
cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t((rank + 1) << 20))
if rank == 0:
    subprocess.run([sys.executable, *sys.argv], env={**os.environ, "RANK": "1"}, check=True)
'''
    recording.python(script, RANK="0", GPUSPY_RUN_ID="a-run")
    databases = sorted(recording.folder.glob("run*.db"))
    assert len(databases) == 2
    assert export(recording, "-r", "1")["segments"][0]["total_size"] == 2 * MIB
    assert export(recording, "-r", "0", database=recording.folder)["segments"][0]["total_size"] == MIB
    done = recording.gpuspy("export", "-o", recording.folder / "x", recording.folder)
    assert done.returncode == 0 and "--process or --rank chooses another" in done.stderr
    assert read(recording.folder / "x")["segments"][0]["total_size"] == MIB  # the lowest rank
    pid = recording.sql("SELECT pid FROM process")[0][0]
    export(recording, "-p", pid)


def test_the_moment_of_an_out_of_memory(recording):
    recording.python('''
import ctypes
cuda = ctypes.CDLL("libcudart.so.13")
def take(mib):
    at = ctypes.c_void_p()
    if cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(mib << 20)): return None
    return at
held = [take(100) for _ in range(8)]
cuda.cudaFree(held.pop())
cuda.cudaFree(held.pop())
take(4000)
cuda.cudaFree(held.pop())
''', SIMCUDA_MEMORY="2GiB")
    snapshot = export(recording)
    assert totals_hold(snapshot) == 600 * MIB
    last = [e for e in snapshot["device_traces"][0] if e["action"] == "oom"]
    assert len(last) == 1 and last[0]["size"] == 4000 * MIB and last[0]["device_free"] > 0
    assert last[0]["frames"][-1]["line"] == 11
    assert totals_hold(export(recording, "--at", "peak")) == 800 * MIB
    assert snapshot == export(recording, "--at", "oom")


def test_a_killed_program(recording):
    script = """
import ctypes, os, signal
cuda = ctypes.CDLL("libcudart.so.13")
for i in range(5):
    at = ctypes.c_void_p()
    cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(1 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""
    recording.python(script, check=False)
    snapshot = export(recording)
    assert totals_hold(snapshot) == 5 * MIB and unwound(snapshot) == ({}, {})
    assert totals_hold(export(recording, "--at", "end")) == 5 * MIB


def test_losses_are_reported(plain, tmp_path):
    database = tmp_path / "run.db"
    shutil.copy(plain.database, database)
    with sqlite3.connect(database) as db:
        db.execute("UPDATE process SET lost_events = 7")
    done = plain.gpuspy("export", "-o", tmp_path / "x", database)
    assert done.returncode == 0 and "7 events were lost" in done.stderr


def grow(database, copies):
    """Appends the rows again and again with later times: a long run."""
    with sqlite3.connect(database) as db:
        end = db.execute("SELECT max(alloc_ns + coalesce(life_ns, 0)) FROM allocation_row").fetchone()[0] + 1
        for _ in range(copies):
            db.execute("INSERT INTO allocation_row(kind, address, bytes, alloc_ns, life_ns, stream, alloc_stack_id, "
                       "free_stack_id) SELECT kind, address, bytes, alloc_ns + ?, coalesce(life_ns, ? - alloc_ns - 1), "
                       "stream, alloc_stack_id, free_stack_id FROM allocation_row ORDER BY id", (end, end))
            end *= 2
        db.execute("UPDATE process SET end_ns = ?", (end,))
        return db.execute("SELECT count(*) FROM allocation_row").fetchone()[0]


@sanitized("it is about time and memory")
def test_a_long_run_is_bounded(plain, tmp_path):
    """The trace is cut, a message states so, and memory does not grow with the run."""
    big = tmp_path / "run.db"
    shutil.copy(plain.database, big)
    with sqlite3.connect(big) as db:
        db.execute("DELETE FROM allocation_row WHERE life_ns IS NULL")
    rows = grow(big, 13)
    assert rows > 300000
    done = subprocess.run(["/usr/bin/time", "-f", "%M", BUILD / "gpuspy", "export", "--at", "end", "-n", "1000", "-o",
                           tmp_path / "x", big], stderr=subprocess.PIPE, text=True) if shutil.which("time") else None
    if done is None:
        pytest.skip("no time(1)")
    assert done.returncode == 0 and "earlier events are left out" in done.stderr
    assert len(read(tmp_path / "x")["device_traces"][0]) == 1001
    assert int(done.stderr.splitlines()[-1]) < 64 << 10


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_interrupted_it_leaves_nothing(plain, tmp_path, name):
    big = tmp_path / "run.db"
    shutil.copy(plain.database, big)
    with sqlite3.connect(big) as db:
        db.execute("DELETE FROM allocation_row WHERE life_ns IS NULL")
    grow(big, 14)
    process = subprocess.Popen([BUILD / "gpuspy", "export", "--at", "end", "-o", tmp_path / "x", big], stderr=subprocess.PIPE)
    for _ in range(2000):
        if list(tmp_path.glob("x.*")) or process.poll() is not None:
            break
        time.sleep(0.005)
    process.send_signal(getattr(signal, name))
    process.communicate()
    if process.returncode == 0:
        pytest.skip("it was done before the signal")
    assert process.returncode == -getattr(signal, name)
    assert not list(tmp_path.glob("x*"))
