"""NVTX ranges and moments: every way to make one, with the toolkit's own NVTX if it is installed."""
import mmap
import os
import random
import signal
import sqlite3
import struct
import subprocess
import time

import pytest

from conftest import BUILD, ROOT, SECONDS

MARKS = BUILD / "programs" / "marks"
BUILT = [p for p in ("marks", "marks_toolkit") if (BUILD / "programs" / p).exists()] or ["marks"]
LIBRARY = (BUILD / "libgpuspy.so").resolve()


def marks(recording, columns="kind, domain, name, end_ns is null"):
    return recording.sql(f"select {columns} from marks order by id")


@pytest.mark.parametrize("program", BUILT)
def test_every_way_to_make_a_mark(recording, program):
    done = recording.run(BUILD / "programs" / program, "trace")
    rows = [f"mark {kind} {domain or '-'} {name or '-'} {'open' if open_ else 'closed'}"
            for kind, domain, name, open_ in marks(recording)]
    assert sorted(rows) == sorted(done.stdout.splitlines())
    # the second nvtxRangeEnd; a pop without a range is not even written
    assert recording.sql("select value from meta where key = 'unmatched_range_ends'") == [(1,)]
    assert recording.sql("select count(*) from marks where end_ns < start_ns or thread_id <> 2") == [(0,)]
    assert recording.sql("select count(*) from sqlite_master where name like 'recovery%'") == [(0,)]


@pytest.mark.parametrize("program", BUILT)
def test_marks_do_not_start_a_recording(recording, program):
    done = recording.run(BUILD / "programs" / program, "quiet")
    assert (done.stdout, done.stderr) == (f"{LIBRARY}\n", "")
    assert list(recording.folder.iterdir()) == []


def test_ranges_that_are_open_when_the_recording_begins(recording):
    """On another thread than the first one that calls CUDA; with names longer than is stored; more than fit; of a child."""
    done = recording.run(MARKS, "early")
    # the parent's has more rows; the process that is first gets the name
    parent, child = sorted(recording.folder.glob("*.db"), reverse=True, key=lambda path: sqlite3.connect(path).execute(
        "select count(*) from marks").fetchone())

    def rows_of(path, query):
        return sqlite3.connect(path).execute(query).fetchall()
    rows = rows_of(parent, "select name, kind, start_ns <= (select min(alloc_ns) from allocations), end_ns is null from marks order by name")
    names = [name for name, *_ in rows]
    assert [row[1:] for row in rows] == [("start", 1, 1 if "open" in name else 0) for name in names]
    assert "of a thread" in names and "open to the end" in names and len([n for n in names if n[:4] == "many"]) == 61
    assert [n for n in names if n[:1] == "é"] == ["é" * 96]
    assert rows_of(parent, "select value from meta where key = 'unmatched_range_ends'") == [(39,)]  # of many
    assert rows_of(child, "select name, end_ns is null from marks order by name") == [
        ("of a child", 0), ("of a thread", 1), ("open to the end", 1)]
    assert done.stdout == ""


@pytest.mark.parametrize("round_", range(3))
def test_ranges_of_the_moment_in_which_the_recording_begins(recording, round_):
    """None is half recorded: each range has its end, and no end lacks its range."""
    recording.run(MARKS, "race", "8")
    rows = recording.sql("select name, count(*), count(end_ns) from marks group by name order by name")
    assert [name for name, *_ in rows] == ["inner", "outer", "started"]
    assert all(count == ended >= 8 * 999 for _, count, ended in rows), rows
    assert recording.sql("select value from meta where key = 'unmatched_range_ends'") == []


def test_ten_thousand_names(recording):
    recording.run(MARKS, "names", "10000")
    assert recording.sql("select count(*), count(distinct name), count(end_ns) from marks where kind = 'push'") == [
        (20000, 10001, 20000)]
    assert recording.sql("select count(*), count(distinct name) from mark_name") == [(10002, 10002)]
    # with the same nesting
    assert recording.sql("select count(*) from marks i join marks o on o.id = i.id - 1 where i.name = 'forward' "
                         "and o.name like 'step %' and o.start_ns <= i.start_ns and i.end_ns <= o.end_ns") == [(10000,)]
    long_name, = recording.sql("select name from marks where kind = 'moment'")[0]
    assert long_name == "y" + "é" * 1999  # cut where a character begins: 3999 of 4000 bytes


def test_threads_have_levels_of_their_own(recording):
    recording.run(MARKS, "threads", "8")
    threads = [t for t, in recording.sql("select id from thread where id > 2 order by id")]
    assert len(threads) == 8
    assert recording.sql("select thread_id, count(*), count(end_ns) from marks where name = 'of a thread' "
                         "group by 1 order by 1") == [(t, 1000, 1000) for t in threads]
    assert recording.sql("select count(*) from marks where name = 'third'") == [(8 * 334,)]
    assert recording.sql("select end_ns > start_ns, thread_id from marks where name = 'ended elsewhere'") == [(1, 2)]
    assert recording.sql("select value from meta where key = 'unmatched_range_ends'") == []


def test_more_domains_than_there_is_room_for_are_one(recording):
    recording.run(MARKS, "domains", "200")
    assert recording.sql("select count(*), count(end_ns), count(distinct domain) from marks") == [(200, 200, 63)]
    assert recording.sql("select count(*) from marks where domain = '(other domains)'") == [(138,)]


@pytest.mark.parametrize("round_", range(6))
def test_ranges_survive_kill_9(recording, round_):
    counters = recording.folder / "counters"
    counters.write_bytes(bytes(4096))
    with open(counters, "r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    child = subprocess.Popen([str(MARKS), "storm", str(counters)], env=recording.environment(), cwd=recording.folder)
    deadline = time.monotonic() + SECONDS
    while struct.unpack_from("<Q", shared, 0)[0] == 0:
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.001)
    # shorter than a commit's interval, or several of them
    time.sleep(random.Random(round_).uniform(0, 0.05 if round_ < 3 else 2.5))
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL
    began, ended = struct.unpack_from("<QQ", shared, 0)
    assert recording.report()["run"]["lost_events"] == 0
    rows, closed = recording.sql("select count(*), count(end_ns) from marks where name in ('odd', 'even')")[0]
    assert began <= rows <= began + 1 and ended <= closed <= ended + 1
    assert recording.sql("select end_ns is null from marks where name = 'outermost'") == [(1,)]
    inside, open_ = recording.sql("select count(*), sum(end_ns is null) from marks where name = 'inside'")[0]
    assert ended <= inside <= began + 1 and open_ <= 1
    assert recording.sql("select count(*) from sqlite_master where name like 'recovery%'") == [(0,)]
    assert recording.sql("pragma integrity_check") == [("ok",)]


@pytest.mark.parametrize("program", BUILT)
def test_a_profilers_injection_is_not_changed(recording, program):
    foreign = str(BUILD / "programs" / "foreign_nvtx.so")
    done = recording.run(BUILD / "programs" / program, "quiet", NVTX_INJECTION64_PATH=foreign)
    assert done.stdout == f"foreign tool\n{foreign}\n"
    done = recording.run(BUILD / "programs" / program, "trace", NVTX_INJECTION64_PATH=foreign)
    assert done.stdout.startswith("foreign tool\n")
    assert marks(recording) == []


@pytest.mark.parametrize("program", BUILT)
def test_injected_but_not_preloaded_it_does_nothing(recording, program):
    done = recording.run(BUILD / "programs" / program, "threads", "2", LD_PRELOAD="", NVTX_INJECTION64_PATH=LIBRARY)
    assert (done.stdout, done.stderr) == ("", "")
    assert list(recording.folder.iterdir()) == []


def test_disabled_it_does_not_announce_itself(recording):
    assert recording.run(MARKS, "quiet", GPUSPY_DISABLE="1").stdout == "unset\n"
    done = recording.run(MARKS, "trace", GPUSPY_DISABLE="1", NVTX_INJECTION64_PATH=LIBRARY)
    assert done.stderr == "" and list(recording.folder.iterdir()) == []


def test_a_relative_preload_is_announced_by_its_full_path(recording):
    (recording.folder / "lib").symlink_to(BUILD)
    preload = os.path.join("lib", "libgpuspy.so")
    assert recording.run(MARKS, "quiet", LD_PRELOAD=f"./{preload}").stdout == f"{LIBRARY}\n"


def test_the_layouts_are_nvtxs():
    toolkit = next((p for p in ("/usr/local/cuda/include",) if os.path.exists(f"{p}/nvtx3/nvToolsExt.h")), None)
    if not toolkit:
        pytest.skip("no CUDA Toolkit here: its headers cannot check the layouts")
    done = subprocess.run(["gcc", "-std=gnu11", "-Wall", "-Werror", "-fsyntax-only", "-I.", "-isystem", toolkit,
                           "tests/nvtx_check.c"], cwd=ROOT, text=True, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
