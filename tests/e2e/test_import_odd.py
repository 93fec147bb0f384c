"""Recordings of other tools that are odd, damaged or given by mistake: right figures or one line of error."""
import copy
import json
import random
import sqlite3
import subprocess
import sys

import pytest

from test_import_trace import Trace, imported as imported_trace
from test_import import BASE, MIB, TOOL, Run, frame, gpuspy, imported, usual_run, write


def peak_kib(*words):
    """The most memory that a program had. One in between starts it: a child counts what its parent had."""
    between = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    return int(subprocess.run([sys.executable, "-c", between, *words], stdout=subprocess.PIPE, check=True).stdout)


# ---------------------------------------------------------------- snapshots

def test_frames_of_their_own_are_kept_once(tmp_path):
    """Written by something that copies (copy.deepcopy, JSON and back): no event shares its frames with another."""
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    stacks = [[frame(100 * k + i + 1, f"f{i}", f"/home/u/{k}.py") for i in range(30)] for k in range(5)]
    for k in range(20_000):
        run.alloc(0, BASE, MIB, line=1)
        run.traces[0][-1]["frames"] = copy.deepcopy(stacks[k % 5])
        run.free(0, BASE, line=1)
        run.traces[0][-2]["frames"] = json.loads(json.dumps(stacks[k % 5]))
    file = write(tmp_path / "own.pickle", run.snapshot())
    load = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
    assert peak_kib(TOOL, "report", file) < 0.5 * peak_kib(sys.executable, "-c", load, file)
    rows = dict(imported(file, tmp_path).execute(
        "SELECT f.file || ':' || f.line, count(*) FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id JOIN frame f ON f.id = s.frame_id "
        "WHERE layer = 1 GROUP BY 1"))
    assert rows == {f"/home/u/{k}.py:{100 * k + 1}": 4000 for k in range(5)}


def test_an_event_of_more_members_than_there_can_be(tmp_path):
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    run.alloc(0, BASE, MIB, line=1)
    run.traces[0][-1].update({f"k{i}": i for i in range(60)})
    text = gpuspy("report", write(tmp_path / "s.pickle", run.snapshot())).stdout
    assert "1 record was invalid and left out" in text


@pytest.mark.parametrize("skipped", [["free_requested"], ["free_completed"], ["segment_alloc"]])
def test_events_that_follow_from_others_may_be_missing(tmp_path, skipped):
    """torch.cuda.memory._record_memory_history(skip_actions=…)"""
    query = "SELECT address, bytes, alloc_ns, free_ns - alloc_ns FROM allocation WHERE layer = 1 ORDER BY alloc_ns"
    rows = []
    for left_out in [], skipped:
        snapshot = usual_run().snapshot()
        snapshot["device_traces"] = [[e for e in snapshot["device_traces"][0] if e["action"] not in left_out]]
        database = tmp_path / f"{len(rows)}.db"
        gpuspy("import", write(tmp_path / "s.pickle", snapshot), "-o", database)
        rows.append(sqlite3.connect(database).execute(query).fetchall())
    start = [row[0][2] for row in rows]  # the time of the first event
    whole, part = ([(a, n, t - at, d and d // 10_000 * 10_000) for a, n, t, d in row] for row, at in zip(rows, start))
    assert [(a, n) for a, n, *_ in part] == [(a, n) for a, n, *_ in whole]
    if skipped == ["free_completed"]:
        assert part == whole


@pytest.mark.parametrize("skipped, missing", [(["alloc"], "allocations"), (["free_requested", "free_completed"], "frees"),
                                              (["alloc", "free_requested", "free_completed"], "allocations")])
def test_events_without_which_the_others_mean_nothing(tmp_path, skipped, missing):
    snapshot = usual_run().snapshot()
    live = sum(b["size"] for s in snapshot["segments"] for b in s["blocks"] if b["state"] == "active_allocated")
    snapshot["device_traces"] = [[e for e in snapshot["device_traces"][0] if e["action"] not in skipped]]
    file = write(tmp_path / "s.pickle", snapshot)
    report = json.loads(gpuspy("report", "--json", file).stdout)
    text = gpuspy("report", file).stdout
    assert "Whether memory ran out is unknown" in text and f"{live / MIB:.2f} MiB live" in text and "peak unknown" in text
    assert report["oom"] == [] and f"has no history of {missing}" in gpuspy("leaks", file).stdout.replace("\n", " ")


# ---------------------------------------------------------------- traces

def test_a_trace_that_does_not_fit_in_memory(tmp_path):
    """Its records are sorted in pieces on the disk: in any order of the file, each event gets its own call stack."""
    trace, n = Trace(), 100_000
    for k in range(n):
        at = trace.us + 100 * k
        trace.slice("cpu_op", f"op{k % 7}", at, 90)
        trace.memory(at + 10, 4096 + 512 * (k % 50), 512 * (k % 3 + 1))
        if k % 1000 == 0:
            trace.copy(at + 20, 9, 4096)
        trace.memory(at + 50, 4096 + 512 * (k % 50), -512 * (k % 3 + 1))
    file = trace.write(tmp_path / "usual.json")
    random.Random(5).shuffle(trace.events)
    shuffled = trace.write(tmp_path / "shuffled.json")
    rows = {}
    for f in file, shuffled:
        rows[f] = imported_trace(f, tmp_path).execute(
            "SELECT a.alloc_ns, a.bytes, f.function FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id JOIN frame f ON f.id = s.frame_id "
            "WHERE a.free_ns NOT NULL ORDER BY 1").fetchall()
    first = rows[file][0][0]
    assert rows[file] == [(first + 100_000 * k, 512 * (k % 3 + 1), f"op{k % 7}") for k in range(n)]
    assert rows[shuffled] == rows[file]
    copies = [json.loads(gpuspy("report", "--json", f).stdout)["transfers"] for f in (file, shuffled)]
    assert sum(c["count"] for c in copies[0]) == 100 and copies[0] == copies[1]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["imported.db", "shuffled.json", "usual.json"]


def test_the_memory_that_a_trace_needs_is_bounded(tmp_path):
    head = '{"traceEvents": [{"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 5, "args": {"Device Type": 1, "Device Id": 0, "Bytes": 512, "Addr": 512}}'
    event = ', {"ph": "X", "cat": "python_function", "name": "a.py(3): f", "pid": 1, "tid": 1, "ts": %d, "dur": 5, "args": {"Python id": 1}}'
    file = tmp_path / "big.json"
    with open(file, "w") as f:
        f.write(head + "".join(event % k for k in range(1_200_000)) + "]}")
    assert peak_kib(TOOL, "report", file) < 36 << 10
