"""The Chrome trace: Perfetto's own trace processor reads it and finds the figures of the report."""
import json
import sqlite3

import pytest

import readers
from conftest import Recording
from exports import export, made, one  # noqa: F401
from rows import MIB, TENSOR, Rows

ERRORS = "select name, value from stats where severity in ('error', 'data_loss') and value > 0"
COUNTERS = ("select p.pid as pid, t.name as name, max(c.value) as most, count() as n from counter c join process_counter_track t "
            "on c.track_id = t.id join process p using (upid) group by p.pid, t.name")
SLICES = ("select s.category as kind, count() as n, sum(s.dur) as ns, min(s.dur) as least from slice s "
          "group by s.category")
INSTANTS = "select s.name as name, s.category as kind from slice s where s.dur = 0"
ON_THREADS = ("select s.name as name, s.depth as depth, t.name as thread from slice s join thread_track k on s.track_id = k.id "
              "join thread t using (utid) where s.category = 'nvtx' order by s.ts")
NAMES = {"device": "device memory", "tensor": "tensors"}


def ask(recording, folder, *queries):
    tables = readers.Perfetto(export(recording, "chrome-trace"), folder).ask(ERRORS, *queries)
    assert tables[0] == []
    return tables[1:]


def test_perfetto_reads_it_whole(made, tmp_path):
    report = made.report()
    counters, slices = ask(made, tmp_path, COUNTERS, SLICES)
    pids = {p["pid"]: p for p in report["run"]["processes"]}
    assert {row["pid"] for row in counters} == set(pids)
    for peak in report["peak"]:
        if peak["layer"] in NAMES:
            name = f"GPU {peak['device']} {NAMES[peak['layer']]} bytes"
            assert peak["bytes"] in [row["most"] for row in counters if row["name"] == name]
    by_kind = {row["kind"]: row for row in slices}
    for kind, table in ("wait", "sync"), ("copy", "copy_row"):
        rows = [0, 0]
        for database in made.folder.glob("run*.db"):
            with sqlite3.connect(database) as db:
                n, ns = db.execute(f"select count(*), coalesce(sum(blocked_ns), 0) from {table}").fetchone()
                rows = [rows[0] + n, rows[1] + ns]
        if rows[0]:
            assert [by_kind[kind]["n"], by_kind[kind]["ns"]] == rows  # to the nanosecond


def test_categories_over_time_are_those_of_the_peak(tmp_path_factory, tmp_path):
    recording = one("ranks", tmp_path_factory)
    counters, = ask(recording, tmp_path, COUNTERS)
    for peak in recording.report()["peak"]:
        if peak["layer"] == "tensor":
            prefix = f"GPU {peak['device']} tensors: "
            own = {row["name"][len(prefix):]: row["most"] for row in counters if row["name"].startswith(prefix)}
            assert sum(own.values()) >= peak["bytes"] and all(v <= peak["bytes"] for v in own.values())


def test_marks_nest_on_their_threads_and_failures_are_there(tmp_path_factory, tmp_path):
    recording = one("sound", tmp_path_factory)
    marks, instants = ask(recording, tmp_path, ON_THREADS, INSTANTS)
    assert [m["name"] for m in marks] == [f"step {i}" for i in range(40)]
    assert [i["name"] for i in instants if i["kind"] == "oom"] == ["out of memory: 30.00 GiB requested"]


def test_times_are_those_of_the_run(tmp_path_factory):
    """Microseconds since the first process began, also for a second one."""
    recording = one("ranks", tmp_path_factory)
    with sqlite3.connect(recording.folder / "run.101.db") as db:
        db.execute("update process set start_real_ns = start_real_ns + 2000000000")
    events = json.loads(export(recording, "chrome-trace").read_text())["traceEvents"]
    first = {pid: min(e["ts"] for e in events if e.get("cat") == "wait" and e["pid"] == pid) for pid in (100, 101)}
    assert first == {100: 250000, 101: 2250000}


def test_one_pid_on_two_hosts(tmp_path_factory):
    recording = one("ranks", tmp_path_factory)
    with sqlite3.connect(recording.folder / "run.101.db") as db:
        db.execute("update process set pid = 100, host = 'other'")
    path = recording.folder / "out"
    done = recording.gpuspy("export", "-f", "chrome-trace", "-o", path, recording.folder)
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())["traceEvents"]
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert sorted(names.values()) == ["rank 0: python train.py on host", "rank 1: python train.py on other"]


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """More events than a viewer can load: half a million, most of them waits; the peak is one of them."""
    recording = Recording(tmp_path_factory.mktemp("long"))
    with Rows(recording.database, seconds=100) as r:
        r.device()
        line = r.stack("/home/me/train.py:12 step")
        r.db.executemany("INSERT INTO allocation_row(kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id) VALUES(?,?,?,?,?,0,?)",
                         ((TENSOR + 32 + 4096, 4096 + i, (7 * MIB if i == 61803 else 1000 + i % 97), i * 500_000, 400_000 + i % 7, line)
                          for i in range(200_000)))
        r.db.executemany("INSERT INTO sync(process_id,device,kind,api,start_ns,blocked_ns,handle,stack_id,thread_id) "
                         "VALUES(1,0,0,4,?,?,0,?,2)", ((i * 400_000, 1000 + i % 5000, line) for i in range(240_000)))
    return recording


def test_a_long_run_is_bounded(long, tmp_path):
    path = export(long, "chrome-trace")
    trace = json.loads(path.read_text())
    resolution = trace["otherData"]["resolution"]
    assert path.stat().st_size < 30 << 20 and resolution in long.reported and "waits and copies" in resolution
    waits = [e for e in trace["traceEvents"] if e.get("cat") == "wait"]
    all_ns = long.sql("select blocked_ns from sync order by blocked_ns desc")
    assert 50_000 < len(waits) <= 100_000  # the longest waits are all there
    assert min(round(e["dur"] * 1000) for e in waits) >= all_ns[len(waits)][0]
    left = sum(ns for ns, in all_ns) - sum(round(e["dur"] * 1000) for e in waits)
    assert f"the other {240_000 - len(waits)} took {left / 1e6:.0f} ms in total" in resolution
    counters, = ask(long, tmp_path, COUNTERS)
    most = {row["name"]: row for row in counters}["GPU 0 tensors bytes"]
    assert most["most"] == long.report()["peak"][0]["bytes"] >= 7 * MIB and most["n"] < 20_000


def test_retries_and_flushes_are_moments(tmp_path_factory, tmp_path):
    recording = Recording(tmp_path_factory.mktemp("moments"))
    with Rows(recording.database, seconds=20) as r:
        r.device()
        step = r.stack("/home/me/train.py:40 main", "/home/me/train.py:12 step")
        empty = r.stack("/home/me/train.py:40 main", "/home/me/train.py:20 tidy",
                        "/usr/lib/python3/dist-packages/torch/cuda/memory.py:192 empty_cache")
        for i in range(8):
            r.reserved(1 + i, 64 * MIB)
            r.block(1 + i, 64 * MIB, 0.5, step, address=(1 << 30) + i * 64 * MIB)
            r.db.execute("UPDATE allocation_row SET free_stack_id=? WHERE id=(SELECT max(id) FROM allocation_row)", (empty,))
            r.block(1.1 + i, 3 * MIB, 0.3, step, layer=TENSOR, address=(1 << 30) + i * 64 * MIB)
        r.oom(12, 64 * MIB, MIB, 24 << 30, stack=step, fatal=0)
        r.block(12.001, 64 * MIB, None, step, address=4 << 30)
    report = recording.report()
    instants, = ask(recording, tmp_path, INSTANTS)
    assert len(report["retries"]) == 1 and len([i for i in instants if i["kind"] == "retry"]) == 1
    flushes = report["cache_flushes"]
    assert flushes and len([i for i in instants if i["kind"] == "flush"]) == sum(f["count"] for f in flushes) == 8
