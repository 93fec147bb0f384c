"""Unusual or damaged recordings of other tools, and files given by mistake: correct figures or one line of error."""
import base64
import bz2
import gzip
import io
import json
import lzma
import marshal
import os
import pickle
import random
import re
import sqlite3
import subprocess
import sys
import zipfile

import pytest

from conftest import SAN, one_line, sanitized
from test_import_trace import Trace, imported as imported_trace, usual_trace
from test_import import BASE, MIB, TOOL, Run, frame, gpuspy, imported, usual_run, write


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

@sanitized("it counts the sanitizer's own memory")
@pytest.mark.parametrize("protocol", [0, 2])
def test_frames_of_their_own_are_kept_once(tmp_path, protocol):
    """Written by a program that copies objects: each other event's texts too, as JSON and back does. Events do not share their
    frames. Protocol 0 adds the items of lists and dicts one by one."""
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    stacks = [[frame(100 * k + i + 1, f"f{i}", f"/home/u/{k}.py") for i in range(30)] for k in range(5)]
    texts = [json.dumps(stack) for stack in stacks]
    for k in range(10_000):
        run.alloc(0, BASE, MIB, line=1)
        run.traces[0][-1]["frames"] = [dict(f) for f in stacks[k % 5]]
        run.free(0, BASE, line=1)
        run.traces[0][-2]["frames"] = json.loads(texts[k % 5])
    file = write(tmp_path / "own.pickle", run.snapshot(), protocol)
    load = "import pickle, sys; pickle.load(open(sys.argv[1], 'rb'))"
    assert peak_kib(TOOL, "report", file) < 0.5 * peak_kib(sys.executable, "-c", load, file)
    rows = dict(imported(file, tmp_path).execute(
        "SELECT f.file || ':' || f.line, count(*) FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id JOIN frame f ON f.id = s.frame_id "
        "WHERE layer = 1 GROUP BY 1"))
    assert rows == {f"/home/u/{k}.py:{100 * k + 1}": 2000 for k in range(5)}


def test_an_event_of_more_members_than_there_can_be(tmp_path):
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    run.alloc(0, BASE, MIB, line=1)
    run.traces[0][-1].update({f"k{i}": i for i in range(60)})
    text = gpuspy("report", write(tmp_path / "s.pickle", run.snapshot())).stdout
    assert "1 record was invalid and left out" in text


@pytest.mark.parametrize("bytes_, category", [(8519680, "unknown"), (7864320, "parameters")])
def test_a_block_from_before_is_a_parameter_if_a_state_has_its_size(tmp_path, bytes_, category):
    """8,519,680 bytes are cuBLAS's workspace: large blocks of unknown request may differ by 1 MiB, these do not."""
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    run.alloc(0, BASE + 100 * MIB, bytes_, line=None)
    for k in range(2):
        run.alloc(0, BASE + k * 16 * MIB, 7864320, line=9)
        adam = "/site-packages/torch/optim/adam.py"
        run.traces[0][-1]["frames"][2:2] = [frame(111 + k, "_init_group", adam), frame(127, "step", adam)]
    snapshot = run.snapshot()
    snapshot["device_traces"][0] = snapshot["device_traces"][0][2:]
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", snapshot)).stdout)
    [tensors] = [p for p in report["peak"] if p["layer"] == "tensor"]
    assert tensors["by_category"] == {"optimizer_state": 2 * 7864320, category: bytes_}


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


@pytest.mark.parametrize("skipped", [[], ["segment_alloc"], ["segment_free"], ["segment_alloc", "segment_free"]])
def test_events_of_segments_may_be_missing(tmp_path, skipped):
    run = Run()
    for k in range(4):
        run.segment(0, BASE + k % 2 * 64 * MIB, 20 * MIB)
        run.alloc(0, BASE + k % 2 * 64 * MIB, 20 * MIB, line=k)
        if k < 3:
            run.free(0, BASE + k % 2 * 64 * MIB)
            run.event(0, "segment_free", BASE + k % 2 * 64 * MIB, run.segments.pop((0, BASE + k % 2 * 64 * MIB))[0])
    run.segment(0, BASE + 512 * MIB, 30 * MIB)
    snapshot = run.snapshot()
    snapshot["device_traces"] = [[e for e in snapshot["device_traces"][0] if e["action"] not in skipped]]
    file = write(tmp_path / "s.pickle", snapshot)
    [device] = [p for p in json.loads(gpuspy("report", "--json", file).stdout)["peak"] if p["layer"] == "device"]
    assert device["bytes"] == device["end_bytes"] == 50 * MIB
    assert ("the history lacks events of segments" in one_line(gpuspy("report", file).stdout)) == bool(skipped)


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
    events = [json.dumps(event) for event in trace.events]
    head, end = json.dumps({**trace.document(), "traceEvents": []}).split("[]}")
    file, shuffled = tmp_path / "usual.json", tmp_path / "shuffled.json"
    file.write_text(f"{head}[{','.join(events)}]}}{end}")
    random.Random(5).shuffle(events)
    shuffled.write_text(f"{head}[{','.join(events)}]}}{end}")
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


@sanitized("it counts the sanitizer's own memory")
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


def rocm_trace(path, memory, names):
    """A copy on the GPU that ROCm calls 2, because it counts two CPUs first."""
    events = [slice_of("cuda_runtime", "hipMemcpyAsync", 1010, 30, correlation=2),
              slice_of("gpu_memcpy", "Memcpy HtoD (Host -> Device)", 1015, 20, 7, correlation=2, bytes=4096, device=2, stream=0)]
    if memory is not None:
        events.append({"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 1020, "args": {
            "Device Type": 6, "Device Id": memory, "Bytes": 512, "Addr": 4096, "Total Allocated": 512, "Total Reserved": 2 * MIB}})
    path.write_text(json.dumps({"deviceProperties": [{"id": k, "name": name, "totalGlobalMem": 64 << 30} for k, name in enumerate(names)],
                                "traceEvents": events}))
    return path


@pytest.mark.parametrize("memory, names, device, shown", [(1, ["MI210", "MI300X"], 1, "MI300X"), (None, ["MI300X"], 0, "MI300X"),
                                                          (2, ["a", "b", "MI210"], 2, "MI210"), (None, ["a", "b", "c"], 2, None)])
def test_rocm_counts_cpus_when_it_numbers_gpus(tmp_path, memory, names, device, shown):
    file = rocm_trace(tmp_path / "t.json", memory, names)
    db = imported_trace(file, tmp_path)
    assert db.execute("SELECT DISTINCT device FROM copies").fetchall() == [(device,)]
    assert db.execute("SELECT device, name FROM device").fetchall() == ([(device, shown)] if shown else [])
    remark = f"GPU {device} has ROCm's number, which counts CPUs, too; its number in PyTorch is unknown"
    assert (remark in one_line(gpuspy("report", file).stdout)) == (shown is None)


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
    (lambda d: d + d, 5, "the file has more than one trace"),
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

def zipped(name, data, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        z.writestr(name, data)
    return out.getvalue()


def nvprof():
    db = sqlite3.connect(":memory:")
    db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(_id_ INTEGER PRIMARY KEY, copyKind INT, srcKind INT, bytes INT, start INT, end INT)")
    return db.serialize()


def memory_viz_page(snapshot):
    """As PyTorch's memory_viz (2.6 to 2.15) writes it: it pads the pickle so that base64 needs no '='."""
    data = pickle.dumps(snapshot)
    data += bytes(3 - len(data) % 3)
    files = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(data).decode()}])
    return f"""
<!DOCTYPE html>
<html>
<head>
</head>
<body>
<script type="module">
import {{add_local_files}} from "https://cdn.jsdelivr.net/gh/pytorch/pytorch@main/torch/utils/viz/MemoryViz.js"
const local_files = {files}
add_local_files(local_files, 'Active Memory Timeline')
</script>
</body>
""".encode()


LEGACY = pickle.dumps(0x1950a86a20f9469cfc6c, 2) + pickle.dumps(1001, 2)
SNAPSHOT = {"segments": [], "device_traces": [[]]}
MISTAKES = {
    "report1.nsys-rep": (b"x" * 300, "export it first: nsys export --type sqlite report1.nsys-rep"),
    "report1.qdstrm": (b"x" * 300, "QdstrmImporter"),
    "host.xplane.pb": (b"\n\xe3\xdc\x07\x12\x0e/host:metadata", "save_device_memory_profile"),
    "train.py": (b"import torch\n", "it is a Python script; record it first: gpuspy run -- python train.py"),
    "empty.py": (b"", "it is a Python script; record it first: gpuspy run -- python empty.py"),
    "kernel.ncu-rep": (b"NVR" * 300, "a report of Nsight Compute"),
    "a.nvvp": (nvprof(), "a recording of nvprof"),
    "nvprof.sqlite": (nvprof(), "it is a SQLite database, but not a gpuspy recording"),
    "config.json": (b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 4096}', "it is a model, not a recording; what it needs: gpuspy estimate"),
    "model.safetensors": (b"x" * 300, "gpuspy estimate --model model.safetensors"),
    "solver": (b"\x7fELF" + bytes(300), "it is a program or a library; record a program: gpuspy run -- solver"),
    "empty": (b"", "it is empty; the recording never began"),
    "page.html": (b"\n<!DOCTYPE html>\n<html><body>", "it is a web page; open it in a browser"),
    "page.html.gz": (gzip.compress(b"<html><body>" * 50), "it is a web page; open it in a browser"),
    "model.pt": (zipped("archive/data.pkl", b"\x80\x02}q\0."), "it is a checkpoint of torch.save"),
    "deflated.pt": (zipped("archive/data.pkl", pickle.dumps(SNAPSHOT), zipfile.ZIP_DEFLATED), "it is a zip archive"),
    "cut.pt": (zipped("archive/data.pkl", pickle.dumps(SNAPSHOT, 2))[:70], "it ends in the middle"),
    "cut.html": (memory_viz_page(SNAPSHOT)[:260], "it ends in the middle"),
    "image.html": (b"<html>\n<img src='data:image/png;base64,iVBORw0KGgo='>", "it is a web page; open it in a browser"),
    "legacy.pt": (LEGACY, "it is a checkpoint of torch.save"),
    "snapshot.zip": (zipped("snapshot.pickle", pickle.dumps(SNAPSHOT)), "unzip snapshot.zip"),
    "snapshot.bz2": (bz2.compress(pickle.dumps(SNAPSHOT)), "bzip2 -dk snapshot.bz2"),
    "snapshot.xz": (lzma.compress(pickle.dumps(SNAPSHOT)), "xz -dk snapshot.xz"),
    "twice.gz": (gzip.compress(gzip.compress(pickle.dumps(SNAPSHOT))), "packed by gzip more than once"),
    "nothing.pickle.gz": (gzip.compress(b""), "packed by gzip, but empty or damaged"),
    "cut.pickle": (pickle.dumps(SNAPSHOT)[:-9], "it ends in the middle"),
    "list.pickle": (pickle.dumps([SNAPSHOT, SNAPSHOT]), "it has no list of segments"),
    "snapshot.json": (json.dumps(SNAPSHOT).encode(), "it is JSON of a PyTorch snapshot; gpuspy reads the pickle"),
    "other.json": (b'{"nodes": [{"id": 1}]}', "it has no list \"traceEvents\""),
    "empty.json": (b'{"traceEvents": []}', "it is a trace, but has no operators, CUDA calls or memory events"),
    "utf16.json": (json.dumps({"traceEvents": []}).encode("utf-16"), "iconv -f UTF-16"),
    "timeline.json": (json.dumps([[-1, 10, 20], [[0] * 10, [4096] + [0] * 9, [4096] * 10]]).encode(), ".raw.json.gz"),
    "go.prof": (gzip.compress(b"H\xe8\x9d\x05P\xa0\x1f\n\x04\x08\x01\x10\x02\n\x04\x08\x03\x10\x04\"\x04\x08\x01\x18\x05" + bytes(50)),
                "it is a pprof profile, but not of the memory of a device; JAX writes one with"),
    "python.prof": (marshal.dumps({("train.py", 1, "main"): (1, 1, 0.5, 0.5, {})}), "it is a profile of Python's cProfile"),
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
    assert "is a folder" in gpuspy("import", tmp_path, code=3).stderr
    assert [p.name for p in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("gzipped", [False, True])
@pytest.mark.parametrize("events", [3, 20000])
def test_a_snapshot_of_torch_save_and_a_page_of_memory_viz(tmp_path, events, gzipped):
    run = Run()
    run.segments[0, 1 << 40] = 20 * MIB, [(10 * MIB, "active_allocated"), (10 * MIB, "inactive")]
    for at in range(events):
        run.event(0, "alloc", (1 << 40) + 10 * MIB, 512 * (at % 90 + 1))
        run.event(0, "free_completed", (1 << 40) + 10 * MIB, 512 * (at % 90 + 1))
    snapshot = run.snapshot()
    files = {"plain": pickle.dumps(snapshot), "torch.save": zipped("snapshot/data.pkl", pickle.dumps(snapshot, 2)),
             "list": pickle.dumps(snapshot["segments"]), "saved list": zipped("a/data.pkl", pickle.dumps(snapshot["segments"], 2)),
             "page": memory_viz_page(snapshot), "page of a list": memory_viz_page(snapshot["segments"])}
    outputs = {}
    for name, data in files.items():
        (tmp_path / "same").write_bytes(gzip.compress(data) if gzipped else data)
        outputs[name] = [gpuspy(command, "same", cwd=tmp_path).stdout for command in ("report", "tree")]
    assert outputs["plain"] == outputs["torch.save"] == outputs["page"]
    assert outputs["list"] == outputs["saved list"] == outputs["page of a list"]
    assert outputs["plain"] != outputs["list"]


@pytest.mark.parametrize("segment, size", [(1 << 48, 20 * MIB), ((1 << 48) - 2, 20 * MIB), (20 * MIB, (1 << 48) // (20 * MIB) * 20 * MIB)])
def test_a_file_that_states_more_pages_than_a_gpu_has(tmp_path, segment, size):
    run = Run()
    run.segments[0, 1 << 40] = segment, []
    for at in range(200):
        run.event(0, "segment_map", (1 << 40) + at, size)
    file = write(tmp_path / "s.pickle", run.snapshot(expandable=True))
    done = subprocess.run([TOOL, "report", file], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "left out" in done.stdout, done.stderr


def test_several_pickles_in_one_file(tmp_path):
    data = pickle.dumps(usual_run().snapshot())
    (tmp_path / "s.pickle").write_bytes(data + data)
    assert "the file holds several pickles; gpuspy read the first" in gpuspy("report", tmp_path / "s.pickle").stdout
    (tmp_path / "s.pickle").write_bytes(data + bytes(100))
    assert "several pickles" not in gpuspy("report", tmp_path / "s.pickle").stdout


def ranks_in(*files):
    return [(p["rank"], os.path.basename(p["database"])) for p in json.loads(gpuspy("report", "--json", *files).stdout)["run"]["processes"]]


@pytest.mark.parametrize("names", [("rank0.pickle", "rank1.pickle.gz"), ("Rank_10-mem.pkl", "Rank_2-mem.pkl"), ("snap.gpu0.pickle", "snap.gpu1.pickle"),
                                   ("2026_rank-0_iteration3.pickle", "2026_rank-1_iteration3.pickle")])
def test_a_folder_of_ranks(tmp_path, names):
    """Snapshots whose names state their ranks are one run."""
    files = [write(tmp_path / name, usual_run(k).snapshot()) for k, name in enumerate(names)]
    (tmp_path / "notes.json").write_text("{}")
    want = sorted((int(re.search(r"(?:rank|gpu)[-_]?([0-9]+)", name, re.I)[1]), name) for name in names)
    for given in [tmp_path], files:
        assert sorted(ranks_in(*given)) == want
        text = one_line(gpuspy("report", *given).stdout)
        assert "of one run is unknown" not in text and "of 2 processes" in text
    for view in "tree", "timeline", "leaks", "stats":
        assert gpuspy(view, tmp_path).stdout
    assert gpuspy("diff", tmp_path, tmp_path).stdout
    gpuspy("report", "--html", tmp_path / "out.html", tmp_path)


def test_a_folder_of_traces_goes_by_what_they_state(tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    for k in range(3):
        usual_trace(k, pid=100 + k).write(folder / f"host_{100 + k}.170000000{k}.pt.trace.json.gz", distributedInfo={"rank": k, "world_size": 3})
    assert [rank for rank, _ in sorted(ranks_in(folder))] == [0, 1, 2]
    usual_trace(3, pid=100).write(folder / "host_100.1800000000.pt.trace.json", distributedInfo={"rank": 0, "world_size": 3})
    error = gpuspy("report", folder, code=3).stderr
    assert "are both of rank 0; name one recording of each rank" in error and len(error.splitlines()) == 1


def test_a_folder_that_may_hold_several_runs(tmp_path):
    day = 86_400_000_000

    def error_of(files):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for name, data in files.items():
            data.write(folder / name) if hasattr(data, "write") else write(folder / name, data)
        error = gpuspy("report", folder, code=3).stderr
        assert len(error.splitlines()) == 1 and str(folder) in error
        return error

    snapshot = usual_run().snapshot()
    assert "holds 2 recordings of other tools" in error_of({"before.pickle": snapshot, "after.pickle": snapshot})
    assert "the name of" in error_of({"rank0.pickle": snapshot, "other.pickle": snapshot})
    assert "are both of rank 0" in error_of({"a_rank0.pickle": snapshot, "b_rank0.pickle": snapshot})
    assert "recordings of different tools" in error_of({"rank0.pickle": snapshot, "rank1.json": usual_trace()})
    assert "neither the name of" in error_of({"x.json": usual_trace(), "y.json": usual_trace()})
    later = usual_trace(first_us=1_700_000_000_000_000 + day)
    assert "begins hours after" in error_of({"rank0.json": usual_trace(), "rank1.json": later})
    assert "no recording of another tool" in error_of({})
    assert "missing.pickle': No such file or directory" in gpuspy("import", tmp_path / "missing.pickle", code=3).stderr


def test_a_folder_of_one_recording(tmp_path):
    write(tmp_path / "snapshot.pickle", usual_run().snapshot())
    assert gpuspy("report", tmp_path).stdout


def test_files_that_are_named_and_may_be_of_several_runs(tmp_path):
    files = [write(tmp_path / name, usual_run().snapshot()) for name in ("gpu0.pickle", "after.pickle")]
    text = one_line(gpuspy("report", *files).stdout)
    assert "gpuspy does not know whether these files are of one run" in text and "of 2 processes" in text
    assert [rank for rank, _ in ranks_in(*files)] == [None, None]


@pytest.mark.parametrize("value", [b"N", b"(", b"]", b"\x94", b"]0", b"]a", b"]Na0", b"Nq\x000"])
def test_a_small_file_cannot_fill_the_memory(tmp_path, value):
    """Each byte of the pickle is a value or a mark that waits, an entry of the memo or part of a list that nothing
    uses, and gzip packs them to a thousandth."""
    with gzip.open(tmp_path / "bomb.pickle.gz", "wb", 1) as f:
        for _ in range(8):
            f.write((b"\x80\x04]" if not _ else b"") + value * ((1 << 20) // len(value)))
    done = subprocess.run([TOOL, "report", tmp_path / "bomb.pickle.gz"], capture_output=True, text=True)
    assert done.returncode == 3 and "it has more values than a snapshot of its size" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("value", [b"N", b"K\0", b"h\1", b"]"])
def test_long_lists_that_are_no_part_of_a_snapshot(tmp_path, value):
    """In batches, as pickle writes long lists: 16 MiB unpacked, without a limit 16 bytes of memory per byte. Numbers and texts
    are ignored, and the snapshot beside them is read."""
    data = pickle.dumps(usual_run().snapshot(), 4)[:-2]  # ends with SETITEMS, STOP
    with gzip.open(tmp_path / "s.pickle.gz", "wb", 1) as f:
        f.write(data + b"\x8c\4more]")
        for _ in range(16 * 1024 // len(value)):
            f.write(b"(" + value * 1023 + b"e")
        f.write(b"u.")
    if value == b"]":
        assert "it has more values than a snapshot of its size" in gpuspy("report", tmp_path / "s.pickle.gz", code=3).stderr
    else:
        plain = gpuspy("report", "--json", write(tmp_path / "plain.pickle", usual_run().snapshot())).stdout
        assert json.loads(gpuspy("report", "--json", tmp_path / "s.pickle.gz").stdout)["peak"] == json.loads(plain)["peak"]
        assert SAN or peak_kib(TOOL, "report", tmp_path / "s.pickle.gz") < 80_000
