"""The spool in shared memory: a full file system, another process, a sandbox or the end of a container must not harm
the program or the report."""
import contextlib
import json
import os
import random
import signal
import sqlite3
import stat
import subprocess
import time

import pytest

from conftest import BUILD, SECONDS, remove_spools, wait_until
from test_lives import LIVES, completed, halves, same_as_bare
from test_programs import PROGRAMS, assert_same, databases, expected, names_of

SHORT = PROGRAMS / "short"
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")


def segments():
    """Ids of all shared memory segments."""
    with open("/proc/sysvipc/shm") as file:
        return {int(line.split()[1]) for line in list(file)[1:]}


def segment(recording):
    """The segment that the control file names."""
    return int.from_bytes((recording.folder / "run.db.spool").read_bytes()[104:108], "little")


def start(recording, *arguments, **more):
    return subprocess.Popen(arguments, env=recording.environment(**more), cwd=recording.folder, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def committed(database, table="allocation"):
    """How many rows the drain has written so far."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as db:
            return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    except sqlite3.Error:
        return 0


# --- file systems ---------------------------------------------------------------------------------

@pytest.fixture
def small(recording):
    """Mounts a small file system for the recording."""
    mounted = []

    def mount(*arguments):
        done = subprocess.run(["mount", *arguments, recording.folder], stderr=subprocess.PIPE, text=True)
        if done.returncode:
            pytest.skip(done.stderr)
        mounted.append(1)
    yield mount
    remove_spools(recording.folder)
    for _ in mounted:
        subprocess.run(["umount", "-l", recording.folder], check=True)


def survive(recording, size, kill):
    child = start(recording, SHORT, "20000" if kill else "1500", "250", GPUSPY_MIN_FREE="0" if kill or size % 100 else "20MiB")
    if kill:
        time.sleep(random.Random(size).uniform(0, 0.4))
        child.kill()
    out, err = child.communicate(timeout=SECONDS)
    assert child.returncode == (-9 if kill else 0), err
    assert kill or out.startswith("1500 threads")
    if recording.database.exists() and recording.database.stat().st_size:
        done = recording.gpuspy("report", "--json", recording.database)
        assert done.returncode in (0, 3), done
        assert done.returncode == 0 or done.stderr.startswith("gpuspy: ")
        for _ in range(2 if done.returncode == 0 and not kill else 0):  # a full disk does not make a report lose the spool
            assert recording.report()["run"]["processes"][0]["complete"]


@root_only
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("size", [0, 4, 40, 64, 100, 150, 200, 300, 400, 600, 900, 1400, 2500])
def test_a_small_memory_file_system(recording, small, size, kill):
    small("-t", "tmpfs", "-o", f"size={max(size, 4)}k", "none")
    if not size:
        (recording.folder / "filler").write_bytes(bytes(4096))
    survive(recording, size, kill)


@root_only
@pytest.mark.parametrize("kill", [False, True])
@pytest.mark.parametrize("free", [0, 40, 100, 300, 900, 2500])
def test_a_nearly_full_disk(recording, small, tmp_path_factory, free, kill):
    image = tmp_path_factory.mktemp("disk") / "image"
    image.write_bytes(b"")
    os.truncate(image, 24 << 20)
    if subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("no mkfs.ext4")
    small("-o", "loop", image)
    info = os.statvfs(recording.folder)
    with open(recording.folder / "filler", "wb", buffering=0) as file:
        left = info.f_bavail * info.f_frsize - free * 1024
        try:
            while left > 0:
                left -= file.write(bytes(min(left, 1 << 16)))
        except OSError:
            pass
    survive(recording, free, kill)


def test_a_spool_truncated_while_recording(recording):
    lines, reported = halves(recording, lambda: os.truncate(recording.folder / "run.db.spool", 0))
    assert not reported or all("recording stopped" not in line for line in reported)
    assert recording.sql("select complete, lost_events from process") == [(1, 0)]
    (recording.folder / "run.db.spool").unlink(missing_ok=True)
    assert_same(completed(recording), lines)


@pytest.mark.parametrize("name", ["run.db", "run.db-wal", "run.db-shm", "run.db.spool"])
def test_files_cut_off_again_and_again(recording, name):
    """That may lose the recording, but neither the program nor the report may crash."""
    child = start(recording, PROGRAMS / "storm", "1000000")
    while not (recording.folder / name).exists():
        assert child.poll() is None
    cut = 0
    while child.poll() is None and cut < 40:
        try:
            os.truncate(recording.folder / name, (0, 0, 100, 4096)[cut % 4])
        except FileNotFoundError:
            break
        cut += 1
        time.sleep(0.01)
    out, err = child.communicate(timeout=SECONDS)
    assert (child.returncode, out) == (0, "1000000 pairs\n"), err
    assert cut
    assert recording.gpuspy("report", recording.database).returncode in (0, 3)
    if name in ("run.db-shm", "run.db.spool"):
        assert "stopped" not in err
        assert recording.sql("select count(*), count(free_ns) from allocation") == [(1000000, 1000000)]
        assert recording.sql("pragma integrity_check") == [("ok",)]


READER = """import random, sqlite3, sys, time
reads = last = 0
while reads < 5 or time.time() < float(sys.argv[1]):
    db = sqlite3.connect(f"file:run.db?mode={random.choice(['ro', 'rw']) if sys.argv[2] == 'read' else 'rw'}", uri=True, timeout=10, isolation_level=None)
    for _ in range(5):
        db.execute("begin")
        first = db.execute("select count(*), max(id) from allocation_row").fetchone()
        time.sleep(random.uniform(0, 0.05))
        assert db.execute("select count(*), max(id) from allocation_row").fetchone() == first
        assert first[0] == (first[1] or 0) and first[0] >= last, (first, last)
        last = first[0]
        if random.random() < 0.1:
            assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        db.execute("commit")
        if sys.argv[2] == "write":
            db.execute("create table if not exists mine(x)")
            db.execute("insert into mine values(1)")
        reads += 1
    db.close()
print(reads, last)
"""


def test_readers_and_writers_beside_the_recorder(recording):
    """The recorder does not map the log's index as others do: all of them must see the same."""
    child = start(recording, PROGRAMS / "storm", "2000000")
    while not (recording.folder / "run.db-wal").exists():
        assert child.poll() is None
    others = [subprocess.Popen(["python3", "-c", READER, str(time.time() + 3), how], cwd=recording.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE) for how in ("read", "read", "write")]
    assert child.communicate(timeout=SECONDS)[0] == "2000000 pairs\n"
    reads = []
    for other in others:
        out, err = other.communicate(timeout=SECONDS)
        assert other.returncode == 0, err
        reads.append(int(out.split()[0]))
    assert min(reads) > 3
    assert recording.sql("select count(*), count(free_ns) from allocation") == [(2000000, 2000000)]
    assert recording.sql("select count(*) from mine") == [(reads[2],)]
    assert recording.sql("pragma integrity_check") == [("ok",)]


def test_a_limit_on_file_sizes(recording):
    """The limit concerns the database only."""
    done = recording.run("/bin/sh", "-c", f"ulimit -f 4000; {SHORT} 10")
    assert done.stdout.startswith("10 threads") and "recording" not in done.stderr
    assert recording.sql("select count(*) from allocation") == [(33,)]


# --- which processes are alive --------------------------------------------------------------------

def test_a_killed_process_that_nobody_reaps(recording):
    child = start(recording, LIVES, "halves", "1000")
    child.stdout.readline()
    memory = segment(recording)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    report = recording.report()
    assert report["run"]["complete"] is False and not report["run"]["processes"][0].get("recording")
    assert names_of(recording) == ["run.db"] and memory not in segments()
    child.communicate()


def test_nothing_is_left_in_memory(recording):
    child = start(recording, LIVES, "halves", "1000")
    child.stdout.readline()
    memory = segment(recording)
    assert memory in segments()
    child.communicate("go\n", timeout=SECONDS)
    assert memory not in segments()


def test_memory_that_is_gone(recording):
    child = start(recording, LIVES, "halves", "1000")
    child.stdout.readline()
    wait_until(lambda: committed(recording.database))
    remove_spools(recording.folder)
    child.kill()
    child.communicate()
    done = recording.gpuspy("report", recording.database)
    text = " ".join(done.stdout.split())
    assert done.returncode == 0 and "the recording was cut off: about the last 350 ms before the end are missing" in text
    assert "hether memory ran out is unknown" in text and "emory did not run out" not in text
    assert recording.report()["run"]["complete"] is False
    assert names_of(recording) == ["run.db"]
    assert recording.sql("select count(*) from allocation")[0][0] > 0
    assert recording.gpuspy("check", "--no-oom", recording.database).returncode == 1


def test_the_spool_of_an_older_gpuspy(recording):
    recording.run(LIVES, "plain", "1000")
    (recording.folder / "run.db.spool").write_bytes(b"gpuspy spool".ljust(16, b"\0") + (5).to_bytes(4, "little") + bytes(30000))
    done = recording.gpuspy("report", recording.database)
    assert done.returncode == 0 and "version 5, and this gpuspy reads version" in " ".join(done.stdout.split())


def seccomp(program, call):
    """Runs a program with one system call forbidden."""
    return ["python3", "-c", f"""
import ctypes, os, struct, sys
filter = b"".join(struct.pack("HBBI", *i) for i in ((0x20, 0, 0, 0), (0x15, 0, 1, {call}), (6, 0, 0, 0x00050001), (6, 0, 0, 0x7fff0000)))
buffer = ctypes.create_string_buffer(filter, len(filter))
program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(buffer))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
""", *program]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the number of the system call is another")
def test_a_sandbox_without_shared_memory(recording):
    done = recording.run(*seccomp([str(LIVES), "plain", "1000"], 29))
    assert "no shared memory (shmget: Operation not permitted): if this process is killed" in done.stderr
    assert_same(completed(recording), expected(done.stdout))
    child = start(recording, *seccomp([str(LIVES), "halves", "1000"], 29), GPUSPY_DB="killed.db")
    child.stdout.readline()
    wait_until(lambda: committed(recording.folder / "killed.db"))
    child.kill()
    child.communicate()
    done = recording.gpuspy("report", "killed.db")
    assert done.returncode == 0 and "the recording was cut off" in " ".join(done.stdout.split())


# --- threads --------------------------------------------------------------------------------------

@pytest.mark.parametrize("threads,at_once", [(70000, 1), (10000, 100), (3000, 250)])
def test_short_threads(recording, threads, at_once):
    done = recording.run(SHORT, str(threads), str(at_once))
    allocations = 3 * (threads + 1)
    assert done.stdout == f"{threads} threads, {allocations} allocations\n"
    assert recording.sql("select lost_events, complete from process") == [(0, 1)]
    assert recording.sql("select count(*), count(free_ns), count(distinct alloc_thread_id), count(alloc_stack_id) "
                         "from allocation") == [(allocations, allocations, threads + 1, allocations)]
    assert recording.sql("select count(*) from thread") == [(threads + 1,)]
    assert recording.sql("select count(*) from (select alloc_thread_id from allocation group by 1 having count(*) <> 3)") \
        == [(0,)]
    assert recording.report()["run"]["complete"] is True


def test_short_threads_and_a_kill(recording):
    child = start(recording, SHORT, "1000000")
    wait_until(lambda: committed(recording.database, "thread") > 2000)
    child.kill()
    child.communicate()
    recording.report()
    threads, = recording.sql("select count(*) from thread")[0]
    assert threads > 1000
    assert recording.sql("select count(*) from (select alloc_thread_id from allocation group by 1 having count(*) <> 3)")[0][0] <= 1
    assert recording.sql("select count(*) from allocation where alloc_stack_id is null") == [(0,)]


def test_a_log_that_a_reader_has_kept(recording):
    """The recorder does not wait for the reader's end; the next report merges it."""
    child = start(recording, LIVES, "halves", "1000")
    child.stdout.readline()
    wait_until(lambda: committed(recording.database))
    with contextlib.closing(sqlite3.connect(f"file:{recording.database}?mode=ro", uri=True)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from allocation").fetchone()
        child.communicate("\n")
    assert sorted(names_of(recording)) == ["run.db", "run.db-shm", "run.db-wal"]
    assert recording.report()["run"]["complete"]
    assert names_of(recording) == ["run.db"] and recording.sql("pragma journal_mode") == [("delete",)]


# --- exec -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("length", [5, 30])
def test_a_chain_of_programs(recording, length):
    """The last one has half a second to write what the others left: enough for five of them on a busy machine."""
    done = same_as_bare(recording, LIVES, "chain", length)
    assert len(databases(recording)) == length
    assert length > 5 or len(names_of(recording)) == length, names_of(recording)
    assert_same(completed(recording), expected(done.stdout))
    assert len(names_of(recording)) == length, names_of(recording)


def test_a_chain_whose_last_program_records_nothing(recording):
    done = recording.run(BUILD / "gpuspy", "run", "--", LIVES, "chain", "5", "bare", LD_PRELOAD="")
    assert done.returncode == 0 and len(names_of(recording)) == 4, (names_of(recording), done.stderr)
    assert_same(completed(recording), expected(done.stdout))


# --- files ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("mask", [0, 0o22, 0o777])
def test_nobody_else_may_read_it(recording, mask):
    child = subprocess.Popen([LIVES, "halves", "1000"], env=recording.environment(), cwd=recording.folder, umask=mask,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdout.readline()
    wait_until(lambda: len(names_of(recording)) == 4)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in recording.folder.iterdir()}
    assert modes == dict.fromkeys(["run.db", "run.db-shm", "run.db-wal", "run.db.spool"], 0o600)
    child.kill()
    child.communicate()
    before = os.umask(0)
    try:
        recording.report()
        assert stat.S_IMODE(recording.database.stat().st_mode) == 0o600
    finally:
        os.umask(before)


@root_only
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_copy_stays(recording, tmp_path_factory, how):
    """In a folder that cannot be written, the report reads a copy."""
    copies = tmp_path_factory.mktemp("copies")
    child = start(recording, LIVES, "halves", "1000")
    child.stdout.readline()
    wait_until(lambda: committed(recording.database))
    child.kill()
    child.communicate()
    subprocess.run(["mount", "--bind", recording.folder, recording.folder], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", recording.folder], check=True)
        reader = start(recording, BUILD / "gpuspy", "sql", recording.database, LD_PRELOAD="", TMPDIR=str(copies))
        deadline = time.monotonic() + SECONDS
        while not list(copies.glob("*/run.db")) and reader.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert reader.poll() is None, reader.communicate()
        reader.send_signal(how)
        reader.communicate()
        while list(copies.iterdir()):
            assert time.monotonic() < deadline, list(copies.rglob("*"))
            time.sleep(0.01)
        done = recording.run(BUILD / "gpuspy", "report", "--json", recording.database, LD_PRELOAD="", TMPDIR=str(copies))
        assert done.returncode == 0 and json.loads(done.stdout)["run"]["complete"] is False
        assert not list(copies.iterdir())
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", copies], check=True)
        try:
            done = recording.run(BUILD / "gpuspy", "report", recording.database, LD_PRELOAD="", TMPDIR=str(copies), check=False)
            assert "set TMPDIR to a folder with more free space" in " ".join((done.stdout + done.stderr).split())
            assert done.returncode in (0, 3)
        finally:
            subprocess.run(["umount", copies], check=True)
    finally:
        subprocess.run(["umount", recording.folder], check=True)
    recording.report()
