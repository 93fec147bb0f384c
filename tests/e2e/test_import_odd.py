"""Unusual or damaged recordings of other tools, and files given by mistake: correct figures or one line of error."""
import bz2
import copy
import gzip
import io
import json
import lzma
import pickle
import random
import sqlite3
import subprocess
import sys
import zipfile

import pytest

from test_import_trace import Trace, imported as imported_trace
from test_import import BASE, MIB, TOOL, Run, frame, gpuspy, imported, usual_run, write


def one_line(text):
    return " ".join(text.split())


def write_json(path, events):
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def peak_kib(*words):
    """The most memory that a program had. It is started through an intermediate process, because a child's count
    includes its parent's memory."""
    between = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL);"
               "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
    return int(subprocess.run([sys.executable, "-c", between, *words], stdout=subprocess.PIPE, check=True).stdout)


# ---------------------------------------------------------------- snapshots

def test_frames_of_their_own_are_kept_once(tmp_path):
    """Written by a program that copies objects (copy.deepcopy, JSON and back): events do not share their frames."""
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
    """Its records are sorted in parts on the disk: whatever their order in the file, each event gets its own call
    stack."""
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


def slice_of(cat, name, at, duration, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": at, "dur": duration, "args": args}


def test_a_trace_of_rocm(tmp_path):
    events = [slice_of("cuda_runtime", "hipMalloc", 1000, 5, correlation=1, size=MIB),
              slice_of("cuda_runtime", "hipMemcpyWithStream", 1010, 30, correlation=2),
              slice_of("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 1015, 20, 7, correlation=2, bytes=4096, device=0, stream=0),
              slice_of("cuda_runtime", "hipStreamSynchronize", 1050, 10, correlation=3),
              slice_of("cuda_runtime", "hipMemcpyAsync", 1070, 3, correlation=4),
              slice_of("gpu_memcpy", "CopyDeviceToHost", 1071, 20, 7, correlation=4, bytes=8192, device=0, stream=0)]
    db = imported_trace(write_json(tmp_path / "t.json", events), tmp_path)
    assert db.execute("SELECT direction, bytes, blocked_ns FROM copies ORDER BY start_ns").fetchall() == [("h2d", 4096, 30000), ("d2h", 8192, 3000)]
    assert db.execute("SELECT kind, api, blocked_ns FROM syncs").fetchall() == [("stream", "hipStreamSynchronize", 10000)]


def test_a_trace_of_an_intel_gpu(tmp_path):
    """Its calls are not CUDA's: copies are known from the GPU's side, waits are unknown"""
    events = [slice_of("xpu_runtime", "urEnqueueUSMMemcpy", 1000, 5, correlation=1),
              slice_of("gpu_memcpy", "Memcpy M2D (MEMORY(Unknown) -> DEVICE)", 1015, 20, 7, correlation=1, bytes=4096, device=0, stream=0),
              slice_of("gpu_memcpy", "Memcpy D2M", 1035, 20, 7, correlation=2, bytes=512, device=0, stream=0),
              slice_of("gpu_memcpy", "Memcpy of some kind", 1055, 20, 7, correlation=3, bytes=512, device=0, stream=0),
              {"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1040, "args": {
                  "Device Type": 12, "Device Id": 0, "Bytes": 512, "Addr": 4096, "Total Allocated": 512, "Total Reserved": 2 * MIB}}]
    file = write_json(tmp_path / "t.json", events)
    db = imported_trace(file, tmp_path)
    assert db.execute("SELECT direction, bytes FROM copies ORDER BY start_ns").fetchall() == [("h2d", 4096), ("d2h", 512)]
    text = one_line(gpuspy("report", file).stdout)
    assert "it has PyTorch's tensors and copies while it was recorded, but no calls to CUDA" in text
    assert "left out 1 copy: their names have no direction" in text and "no call waited" not in text


@pytest.mark.parametrize("change, events, remark", [
    (lambda d: d[:len(d) * 2 // 3], 3, "the trace is incomplete: it ends"),
    (lambda d: d[:-2], 5, "the trace is incomplete: it ends in the middle"),
    (lambda d: d.replace(b"}]", b"},]"), 5, None),
    (lambda d: d.replace(b'"dur": 9', b'"dur": NaN'), 5, None),
    (lambda d: d.replace(b"}, {", b"},\r\n{"), 5, None),
    (lambda d: b"\xef\xbb\xbf" + d, 5, None),
    (lambda d: d.replace(b"cudaMemcpyAsync", b"cuda\\ud83dMem\\ude00cpyAsync"), 5, None),
    (lambda d: d + d, 5, "the file goes on after the first trace"),
    (lambda d: gzip.compress(d[:200]) + gzip.compress(d[200:]), 5, None),
    (lambda d: gzip.compress(d)[:-60], 3, "the trace is incomplete"),
    (lambda d: d.replace(b'Events": [{', b'Events": [{"name": "{"device": "cpu"}(12): run", "ph": "X"\n},\n{', 1), 5, "left out 1 event with invalid JSON"),
    (lambda d: json.dumps(json.loads(d)["traceEvents"]).encode()[:-1] + b",\n", 5, "the trace is incomplete"),
], ids="cut open comma nan crlf mark surrogates twice members packed-cut quotes list".split())
def test_a_trace_that_is_not_quite_json(tmp_path, change, events, remark):
    trace = Trace()
    for k in range(5):
        trace.memory(trace.us + 100 * k, 4096 * (k + 1), 512)
        trace.copy(trace.us + 100 * k + 20, 9, 4096)
    file = tmp_path / "t.json"
    file.write_bytes(change(json.dumps(trace.document()).encode()))
    assert imported_trace(file, tmp_path).execute("SELECT count(*) FROM allocation").fetchone()[0] == events
    text = one_line(gpuspy("report", file).stdout)
    assert remark in text if remark else "! left out" not in text and "incomplete" not in text


# ---------------------------------------------------------------- given by mistake

def zipped(name, data):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr(name, data)
    return out.getvalue()


def nvprof():
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(_id_ INTEGER PRIMARY KEY, copyKind INT, srcKind INT, bytes INT, start INT, end INT)")
    return db.serialize()


LEGACY = pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1001, 2)
SNAPSHOT = {"segments": [], "device_traces": [[]]}
MISTAKES = {
    "report1.nsys-rep": (b"x" * 300, "export it first: nsys export --type sqlite REPORT"),
    "report1.qdstrm": (b"x" * 300, "QdstrmImporter"),
    "kernel.ncu-rep": (b"NVR" * 300, "a report of Nsight Compute"),
    "a.nvvp": (nvprof(), "a recording of nvprof"),
    "nvprof.sqlite": (nvprof(), "it is a SQLite database, but not a gpuspy recording"),
    "page.html": (b"\n<!DOCTYPE html>\n<html><body>", "it is a web page; open it in a browser"),
    "page.html.gz": (gzip.compress(b"<html><body>" * 50), "it is a web page; open it in a browser"),
    "model.pt": (zipped("archive/data.pkl", b"\x80\x02}q\0."), "it is a checkpoint of torch.save"),
    "legacy.pt": (LEGACY, "it is a checkpoint of torch.save"),
    "snapshot.zip": (zipped("snapshot.pickle", pickle.dumps(SNAPSHOT)), "unzip FILE"),
    "snapshot.bz2": (bz2.compress(pickle.dumps(SNAPSHOT)), "bzip2 -dk FILE"),
    "snapshot.xz": (lzma.compress(pickle.dumps(SNAPSHOT)), "xz -dk FILE"),
    "twice.gz": (gzip.compress(gzip.compress(pickle.dumps(SNAPSHOT))), "packed by gzip more than once"),
    "nothing.pickle.gz": (gzip.compress(b""), "packed by gzip, but empty or damaged"),
    "cut.pickle": (pickle.dumps(SNAPSHOT)[:-9], "it ends in the middle"),
    "list.pickle": (pickle.dumps([SNAPSHOT, SNAPSHOT]), "it has no list of segments"),
    "snapshot.json": (json.dumps(SNAPSHOT).encode(), "it is JSON of a PyTorch snapshot; gpuspy reads the pickle"),
    "other.json": (b'{"nodes": [{"id": 1}]}', "it has no list \"traceEvents\""),
    "empty.json": (b'{"traceEvents": []}', "it is a trace, but has no operators, CUDA calls or memory events"),
    "utf16.json": (json.dumps({"traceEvents": []}).encode("utf-16"), "iconv -f UTF-16"),
    "zeros": (bytes(300), "another recording that gpuspy reads (gpuspy import --help)"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_files_given_by_mistake_get_one_line(tmp_path, name):
    data, expected = MISTAKES[name]
    (tmp_path / name).write_bytes(data)
    for command in "report", "import":
        done = gpuspy(command, name, cwd=tmp_path, code=3)
        assert len(done.stderr.splitlines()) == 1 and f"cannot read '{name}'" in done.stderr.replace("convert", "read")
        if command == "report" or name not in ("nvprof.sqlite", "zeros"):
            assert expected in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_several_pickles_in_one_file(tmp_path):
    data = pickle.dumps(usual_run().snapshot())
    (tmp_path / "s.pickle").write_bytes(data + data)
    assert "the file holds several pickles; gpuspy read the first" in gpuspy("report", tmp_path / "s.pickle").stdout
    (tmp_path / "s.pickle").write_bytes(data + bytes(100))
    assert "several pickles" not in gpuspy("report", tmp_path / "s.pickle").stdout


def test_a_folder_of_ranks(tmp_path):
    """The files do not contain which of them belong together: the user names them."""
    ranks = [write(tmp_path / f"rank{k}.pickle", usual_run(k).snapshot()) for k in range(2)]
    error = gpuspy("report", tmp_path, code=3).stderr
    assert f"no database (*.db) in this folder, but 2 recordings of other tools; name those that belong together, such as '{ranks[0]}'" in error
    text = one_line(gpuspy("report", *ranks).stdout)
    assert "whether these files are of one run is unknown" in text and "of 2 processes" in text
