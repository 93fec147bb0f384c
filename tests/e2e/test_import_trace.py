"""Traces of torch.profiler, imported unchanged. The expected sums are computed here in another way than in gpuspy: from
the whole JSON, independent of its order."""
import bisect
import collections
import gzip
import json
import os
import random
import re
import subprocess

import pytest

from conftest import BUILD, ROOT, SECONDS, gpuspy, imported, one_line

TOOL = BUILD / "gpuspy"
SHARED = ROOT.parent / "shared" / "recordings" / "traces"
REAL = sorted(SHARED.glob("*.json.gz")) if SHARED.is_dir() else []
TIMELINES = sorted(SHARED.glob("*.raw*.gz")) if SHARED.is_dir() else []
MIB = 1 << 20
GPU = {"id": 0, "name": "Test GPU", "totalGlobalMem": 16 << 30}


def report_of(file):
    return json.loads(gpuspy("report", "--json", file).stdout)


class Trace:
    """Makes a trace, event by event."""

    def __init__(self, pid=100, first_us=1_700_000_000_000_000, total=0, addresses=True):
        self.events, self.pid, self.us, self.total, self.addresses = [], pid, first_us, total, addresses
        self.correlation, self.live = 0, {}

    def slice(self, cat, name, ts, dur, tid=100, **args):
        self.events.append({"ph": "X", "cat": cat, "name": name, "pid": self.pid, "tid": tid, "ts": ts, "dur": dur, "args": args})

    def memory(self, ts, address, size, device=0, tid=100, cat="cpu_instant_event", reserved=64 * MIB):
        self.total += size
        args = {"Device Type": 1 if device >= 0 else 0, "Device Id": device, "Bytes": size}
        if self.addresses:
            args |= {"Addr": address, "Total Allocated": self.total, "Total Reserved": reserved}
        self.events.append({"ph": "i", "s": "t", "cat": cat, "name": "[memory]", "pid": self.pid, "tid": tid, "ts": ts, "args": args})

    def copy(self, ts, dur, size, kind="Memcpy HtoD (Pageable -> Device)", call="cudaMemcpyAsync", tid=100, **more):
        self.correlation += 1
        self.slice("cuda_runtime", call, ts, dur, tid, correlation=self.correlation)
        if size is not None:
            cat = "gpu_memset" if "Memset" in kind else "gpu_memcpy"
            self.slice(cat, kind, ts + 5, 7, "stream 7", correlation=self.correlation, bytes=size, device=0, stream=7, **more)

    def document(self, **more):
        return {"schemaVersion": 1, "deviceProperties": [GPU], **more, "traceEvents": self.events}

    def write(self, path, **more):
        data = json.dumps(self.document(**more)).encode()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
        return path


def usual_trace(seed=1, **settings):
    """Three steps of operators, Python functions, tensors, copies and waits, in no order"""
    random.seed(seed)
    trace = Trace(**settings)
    at, live, n = trace.us, [], 0
    for step in range(3):
        start = at
        for i in range(40):
            n += 1
            trace.slice("python_function", "train.py(10): main", at, 90, **{"Python id": 3 * n, "Python parent id": None})
            trace.slice("python_function", "torch/nn/functional.py(50): relu", at + 5, 70, **{"Python id": 3 * n + 1, "Python parent id": 3 * n})
            trace.slice("cpu_op", "aten::relu", at + 10, 60)
            trace.slice("cpu_op", "aten::empty", at + 20, 30)
            if live and i % 3 == 2:
                address, size = live.pop(random.randrange(len(live)))
                trace.memory(at + 30, address, -size)
            else:
                address, size = 0x7f0000000000 + n * MIB, random.randrange(1, 2000) * 512
                trace.memory(at + 30, address, size)
                live.append((address, size))
            at += 100
        trace.copy(at, 50, 4096 * (step + 1))
        trace.slice("cuda_runtime", "cudaStreamSynchronize", at + 55, 20)
        at += 100
        trace.slice("user_annotation", f"ProfilerStep#{step + 7}", start, at - start)
    random.shuffle(trace.events)
    return trace


# --- an independent reading ----------------------------------------------------------------------


def us(event):
    return float(event["ts"])


def memory_events(document):
    return sorted((e for e in document["traceEvents"] if e.get("name") == "[memory]"), key=us)


def expected_memory(document):
    """By device (-1: CPU): allocations and bytes, the maximum, what is live at the end, and what was live before the
    trace: what it frees, and the rest of PyTorch's total as one more."""
    figures = {}
    for e in memory_events(document):
        a = e["args"]
        device = a["Device Id"] if a["Device Type"] else -1
        f = figures.setdefault(device, {"count": 0, "bytes": 0, "at": {}, "sizes": collections.Counter(), "before": 0, "changes": [],
                                    "first": a.get("Total Allocated", a["Bytes"]) - a["Bytes"]})
        size = a["Bytes"]
        f["changes"].append(size)
        key = a.get("Addr", size if size > 0 else -size)
        if size > 0:
            f["count"] += 1
            f["bytes"] += size
            f["sizes"][key] += 1
        elif f["sizes"][key]:
            f["sizes"][key] -= 1
        else:
            f["before"] -= size
            f["count"] += 1
    out = {}
    for device, f in figures.items():
        f["count"] += f["first"] > f["before"]
        now = most = f["before"] = max(f["before"], f["first"])
        for change in f["changes"]:
            now += change
            most = max(most, now)
        out[device] = {"count": f["count"], "bytes": f["bytes"] + f["before"], "before": f["before"], "most": most, "end": now}
    return out


def measured_memory(db):
    out = {}
    for device, in db.execute("SELECT DISTINCT device FROM allocation").fetchall():
        rows = db.execute("SELECT alloc_ns, free_ns, bytes FROM allocation WHERE device = ? ORDER BY id", (device,)).fetchall()
        layers = {n for n, in db.execute("SELECT DISTINCT layer FROM allocation WHERE device = ?", (device,))}
        assert layers == {1} if device >= 0 else {2}
        before = sum(n for at, _, n in rows if at == 0)
        changes = sorted([(at, 1, n) for at, _, n in rows if at] + [(to, 0, -n) for _, to, n in rows if to is not None])
        now = most = before
        for _, _, n in changes:
            now += n
            most = max(most, now)
        out[device] = {"count": len(rows), "bytes": sum(n for _, _, n in rows), "before": before, "most": most, "end": now}
    return out


def expected_calls(document):
    gpu = {}
    for e in document["traceEvents"]:
        if e.get("cat") in ("gpu_memcpy", "Memcpy"):
            gpu[e["args"]["correlation"]] = e
    copies, waits = [], []
    for e in document["traceEvents"]:
        if e.get("cat") in ("cuda_runtime", "Runtime", "cuda_driver"):
            if "Memcpy" in e["name"]:
                g = gpu[e["args"]["correlation"]]
                copies.append((g["args"]["bytes"], e["dur"] * 1000, g["args"]["stream"], g["args"]["device"], g["name"]))
            elif "Synchronize" in e["name"]:
                waits.append((e["name"], e["dur"] * 1000))
    return sorted(copies), sorted(waits)


def measured_calls(db):
    words = {(0, 1): "Memcpy HtoD (Pageable -> Device)", (2, 0): "Memcpy DtoD (Device -> Device)",
             (0, 2): "Memcpy HtoD (Pinned -> Device)", (1, 1): "Memcpy DtoH (Device -> Pageable)"}
    copies = [(*r[:4], words[r[4:]]) for r in
              db.execute("SELECT bytes, blocked_ns, stream, device, direction, host_memory FROM copy")]
    waits = db.execute("SELECT api.name, blocked_ns FROM sync JOIN api ON api.id = sync.api").fetchall()
    return sorted(copies), sorted(waits)


@pytest.fixture(scope="module", params=REAL, ids=lambda f: f.name[-40:-8])
def real(request, tmp_path_factory):
    """(file, its JSON, the imported recording): the tests only read them"""
    file = request.param
    db = imported(file, tmp_path_factory.mktemp("real"))
    yield file, json.loads(gzip.open(file).read()), db
    db.close()


def test_what_real_gpus_gave(real):
    file, document, db = real
    got, want = measured_memory(db), expected_memory(document)
    for f in (*got.values(), *want.values()):
        if "Addr" not in memory_events(document)[0]["args"]:
            f.pop("most")  # the order of events in the same microsecond is unknown
    assert got == want
    assert measured_calls(db) == expected_calls(document)
    steps = {e["name"] for e in document["traceEvents"] if e.get("name", "").startswith("ProfilerStep#") and e.get("ph") == "X"}
    assert db.execute("SELECT count(*) FROM mark m JOIN mark_name n ON n.id = m.name WHERE n.name = 'ProfilerStep'").fetchone()[0] == len(steps)
    span = {e["name"]: e["dur"] * 1000 for e in document["traceEvents"] if e.get("name") in steps and e.get("ph") == "X"}
    marks = db.execute("SELECT sum(life_ns) FROM mark m JOIN mark_name n ON n.id = m.name WHERE n.name = 'ProfilerStep'").fetchone()[0]
    assert marks == sum(span.values())
    assert db.execute("SELECT count(*) FROM meta WHERE key = 'undefined_numbers'").fetchone()[0] == 0
    totals = all("Total Allocated" in e["args"] for e in memory_events(document))
    assert set(report_of(file)["run"]["lacks"]) == {"segments", "pinned"} | (set() if totals else {"before"})


def test_operators_of_real_traces(real):
    """The innermost operator around a memory event, if no two operators begin or end at its microsecond"""
    _, document, db = real
    base = min(us(e) for e in document["traceEvents"] if e.get("cat") in ("cpu_op", "Operator", "user_annotation"))
    operators, edges = collections.defaultdict(list), collections.defaultdict(set)
    for e in document["traceEvents"]:
        if e.get("cat") in ("cpu_op", "Operator") and not e["name"].startswith("ProfilerStep"):
            operators[str(e["tid"])].append((e["ts"], e["ts"] + e["dur"], e["name"]))
            edges[str(e["tid"])] |= {e["ts"], e["ts"] + e["dur"]}
    for ops in operators.values():
        ops.sort(key=lambda o: (o[0], -o[1]))
    starts = {tid: [o[0] for o in ops] for tid, ops in operators.items()}
    want = collections.Counter()
    for e in memory_events(document):
        tid, at = str(e["tid"]), e["ts"]
        if e["args"]["Bytes"] < 0 or at in edges[tid]:
            continue
        ops = operators[tid]
        inside = next((ops[i][2] for i in range(bisect.bisect_right(starts[tid], at) - 1, -1, -1) if ops[i][1] >= at), None)
        want[tid, at, e["args"]["Bytes"], inside] += 1
    anchor = db.execute("SELECT start_real_ns FROM process").fetchone()[0]
    got = collections.Counter()
    for tid, ns, size, name in db.execute(
            "SELECT t.tid, a.alloc_ns, a.bytes, f.function FROM allocation a JOIN thread t ON t.id = a.alloc_thread_id "
            "LEFT JOIN stack s ON s.id = a.alloc_stack_id LEFT JOIN frame f ON f.id = s.frame_id WHERE a.alloc_ns > 0"):
        got[str(tid), (anchor + ns) // 1000, size, name] += 1
    assert want and sum(want.values()) > 1000
    assert {k: n for k, n in want.items() if got[k] < n} == {}
    assert base * 1000 >= anchor


@pytest.mark.parametrize("file", TIMELINES, ids=lambda f: f.name)
def test_a_real_memory_timeline(tmp_path, file):
    now = most = 0
    moments = json.loads(gzip.open(file).read())
    for _, _, size, _ in moments:
        now += size
        most = max(most, now)
    got = measured_memory(imported(file, tmp_path))
    assert list(got) == [0] and got[0]["end"] == now
    assert got[0]["before"] == sum(n for at, action, n, _ in moments if at == -1)
    assert abs(got[0]["most"] - most) <= max(abs(m[2]) for m in moments)  # for a moment, the old and the new version are both counted
    assert json.loads(gpuspy("report", "--json", file).stdout)["steps"] == []  # categories are not lines of a loop


# --- made-up traces ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.pt.trace.json", "a.pt.trace.json.gz", "trace"])
def test_a_trace_is_read(tmp_path, name):
    trace = usual_trace()
    file = trace.write(tmp_path / name)
    db = imported(file, tmp_path)
    assert measured_memory(db) == expected_memory(trace.document())
    assert measured_calls(db) == expected_calls(trace.document())
    report = report_of(file)
    assert set(report["run"]["lacks"]) == {"segments", "pinned"}
    assert [(d["index"], d["name"], d["total_bytes"]) for d in report["devices"]] == [(0, "Test GPU", 16 << 30)]
    tensors = next(p for p in report["peak"] if p["layer"] == "tensor")
    assert {(s["site"]["file"], s["site"]["line"], s["site"]["function"]) for s in tensors["by_line"]} == {("train.py", 10, "main")}
    frames = db.execute("SELECT kind, function, file, line FROM frame ORDER BY 1, 2").fetchall()
    assert (0, "relu", "/site-packages/torch/nn/functional.py", 50) in frames and (1, "aten::empty", None, None) in frames
    assert db.execute("SELECT count(*) FROM tensor_check WHERE events > 0 AND mismatches = 0").fetchone() == (1,)
    anchor = db.execute("SELECT start_real_ns, pid FROM process").fetchone()
    assert anchor == (1_700_000_000_000_000_000 - 1000, 100)


def stack_names(db, allocation_bytes):
    row = db.execute("SELECT alloc_stack_id FROM allocation WHERE bytes = ?", (allocation_bytes,)).fetchone()
    names, stack = [], row[0]
    while stack is not None:
        frame, stack = db.execute("SELECT frame_id, parent_id FROM stack WHERE id = ?", (stack,)).fetchone()
        names.append(db.execute("SELECT function FROM frame WHERE id = ?", (frame,)).fetchone()[0])
    return names


def test_slices_of_other_threads_do_not_count(tmp_path):
    trace = Trace()
    trace.slice("python_function", "a.py(1): outer", 10, 100)
    trace.slice("cpu_op", "aten::on_another_thread", 10, 100, tid=200)
    trace.slice("cpu_op", "aten::inner", 20, 30)
    trace.slice("cpu_op", "aten::ended", 20, 5)
    trace.memory(30, 4096, 512)
    trace.memory(60, 8192, 1024)
    trace.memory(70, 1 << 20, 2048, tid=200)
    trace.memory(200, 1 << 21, 4096)
    db = imported(trace.write(tmp_path / "t.json"), tmp_path)
    assert stack_names(db, 512) == ["aten::inner", "outer"]
    assert stack_names(db, 1024) == ["outer"]
    assert stack_names(db, 2048) == ["aten::on_another_thread"]
    assert stack_names(db, 4096) == []


def test_a_caller_that_ends_in_the_same_microsecond(tmp_path):
    trace = Trace()
    trace.slice("python_function", "a.py(1): outer", 10, 10, **{"Python id": 1})
    trace.slice("python_function", "a.py(5): inner", 20, 0, **{"Python id": 2, "Python parent id": 1})
    trace.memory(20, 4096, 512)
    assert stack_names(imported(trace.write(tmp_path / "t.json"), tmp_path), 512) == ["inner", "outer"]


def test_call_stacks_of_old_traces(tmp_path):
    trace = Trace(addresses=False)
    stack = r"/usr/lib/python3.8/site-packages/torch/nn/functional.py(9): relu;C:\new (x86)\train.py(12): <lambda>"
    trace.slice("Operator", "aten::relu", 10, 50, **{"Call stack": stack})
    trace.slice("Operator", "aten::empty", 12, 20, **{"Call stack": stack})
    trace.memory(15, 0, 512, cat=None)
    file = trace.write(tmp_path / "t.json")
    db = imported(file, tmp_path)
    assert stack_names(db, 512) == ["aten::empty", "aten::relu", "relu", "<lambda>"]
    assert (12, r"C:/new (x86)/train.py") in db.execute("SELECT line, file FROM frame").fetchall()
    assert "has no addresses" in gpuspy("report", file).stdout + gpuspy("report", file).stderr


def test_addresses_in_names_do_not_make_functions(tmp_path):
    trace = Trace()
    for i in range(5):
        trace.slice("python_function", f"<built-in method to of Tensor object at 0x7f{i}ab>", 10 * i, 9)
        trace.memory(10 * i + 5, 4096 * (i + 1), 512 * (i + 1))
    db = imported(trace.write(tmp_path / "t.json"), tmp_path)
    assert db.execute("SELECT function FROM frame").fetchall() == [("<built-in method to of Tensor object>",)]


def test_without_addresses_totals_are_right(tmp_path):
    trace = usual_trace(addresses=False)
    first = min(us(e) for e in trace.events)
    trace.memory(first - 10, 0, -7 * 512 * 1000)  # existed before the trace
    file = trace.write(tmp_path / "t.json")
    assert measured_memory(imported(file, tmp_path)) == expected_memory(trace.document())


def test_what_was_allocated_before_counts_by_pytorchs_total(tmp_path):
    trace = Trace(total=100 * MIB)
    trace.memory(10, 1 << 30, -3 * MIB)  # freed in the trace: a block
    trace.memory(20, 1 << 31, 5 * MIB)
    file = trace.write(tmp_path / "t.json")
    db = imported(file, tmp_path)
    assert measured_memory(db)[0] == {"count": 3, "bytes": 105 * MIB, "before": 100 * MIB, "most": 102 * MIB, "end": 102 * MIB}
    text = one_line(gpuspy("report", file).stdout)
    assert "GPU 0: 97.00 MiB of tensors were allocated before the recording and not freed in it: gpuspy counts them as one block" in text
    assert "peak 102.00 MiB of 16.00 GiB (0.6 %) on GPU 0" in text and "97.00 MiB 95 % 1 (allocated before the recording)" in text
    report = report_of(file)
    assert report["peak"][0]["by_category"]["unknown"] >= 97 * MIB
    assert not report["advice"]  # what PyTorch had reserved before is unknown
    assert "cannot be judged" in gpuspy("check", "--max-peak", "50MiB", file, code=1).stdout
    assert "FAILED" in gpuspy("check", "--max-tensor-peak", "101MiB", file, code=1).stdout.upper()
    gpuspy("check", "--max-tensor-peak", "102MiB", file)


def test_a_trace_without_totals_states_that_peaks_can_be_higher(tmp_path):
    trace = Trace()
    trace.memory(20, 1 << 31, 5 * MIB)
    for e in trace.events:
        e["args"] = {k: v for k, v in e["args"].items() if not k.startswith("Total")}
    file = trace.write(tmp_path / "t.json")
    text = one_line(gpuspy("report", file).stdout)
    assert "memory that was allocated before it and not freed in it is unknown, so peaks can be higher than stated" in text
    unknown = one_line(gpuspy("check", "--max-tensor-peak", "50MiB", file, code=1).stdout)
    assert "UNKNOWN" in unknown.upper() and "not freed in it is unknown" in unknown


def test_totals_that_disagree_are_counted(tmp_path):
    for total, words in (0, "differs from PyTorch's own in 1 of 2 events"), (MIB, "after 1 event, PyTorch's total differs from the sum"):
        trace = Trace(total=total)
        trace.memory(10, 1 << 30, 3 * MIB)
        trace.total += 512  # an event is missing
        trace.memory(20, 1 << 31, 5 * MIB)
        assert words in " ".join(gpuspy("report", trace.write(tmp_path / "t.json")).stdout.split())


def test_copies_waits_and_fills(tmp_path):
    trace = Trace()
    trace.copy(10, 30, 1000)
    trace.copy(50, 30, 2000, "Memcpy HtoD (Pinned -> Device)")
    trace.copy(90, 30, 3000, "Memcpy DtoH (Device -> Pageable)", "cudaMemcpy")
    trace.copy(130, 30, 4000, "Memcpy DtoD (Device -> Device)", "cuMemcpyDtoDAsync_v2")
    trace.copy(170, 30, 5000, "Memset (Device)", "cudaMemsetAsync")
    trace.copy(210, 30, None)
    names = {"cudaStreamSynchronize": 0, "cudaDeviceSynchronize": 1, "cuCtxSynchronize": 2, "cudaEventSynchronize": 3,
             "hipStreamSynchronize": 0, "cudaExecutionCtxSynchronize": 2}
    for i, name in enumerate(names):
        trace.slice("cuda_driver" if name.startswith("cuC") else "cuda_runtime", name, 250 + 10 * i, 1.5 + i)
    trace.slice("cuda_runtime", "cudaStreamWaitEvent", 900, 5)
    trace.slice("cuda_runtime", "cudaLaunchKernel", 910, 5, correlation=77)
    trace.slice("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 920, 5, "stream 7", correlation=4711, bytes=6000, device=0, stream=3)
    file = trace.write(tmp_path / "t.json")
    db = imported(file, tmp_path)
    rows = db.execute(
        "SELECT bytes, direction, host_memory, async, blocked_ns, (SELECT name FROM api WHERE id = copy.api), stream "
        "FROM copy ORDER BY start_ns")
    assert rows.fetchall() == [
        (1000, 0, 1, 1, 30000, "cudaMemcpyAsync", 7), (2000, 0, 2, 1, 30000, "cudaMemcpyAsync", 7),
        (3000, 1, 1, 0, 30000, "cudaMemcpy", 7), (4000, 2, 0, 1, 30000, "cuMemcpyDtoDAsync_v2", 7),
        (6000, 0, 2, 0, 0, "unknown call", 3)]
    assert db.execute("SELECT bytes, async, blocked_ns FROM memset").fetchall() == [(5000, 1, 30000)]
    waits = db.execute("SELECT api.name, kind, blocked_ns, device FROM sync JOIN api ON api.id = api ORDER BY start_ns").fetchall()
    assert waits == [(n, k, 1500 + 1000 * i, 0) for i, (n, k) in enumerate(names.items())]
    text = gpuspy("report", file)
    assert "left out 1 call that copied or filled memory" in " ".join((text.stdout + text.stderr).split())
    assert "waits" not in report_of(file)["run"].get("lacks", [])


OPERATORS = {  # around a copy and the wait that follows it → what the report calls it
    ("aten::item", "aten::_local_scalar_dense"): ("d2h", 4, ".item()"),
    ("aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"): ("d2h", 1, "if tensor"),
    ("aten::nonzero",): ("d2h", 8, "nonzero"),
    ("aten::index", "aten::nonzero"): ("d2h", 8, "boolean mask"),
    ("aten::_unique2",): ("d2h", 8, "torch.unique"),
    ("aten::to", "aten::_to_copy", "aten::copy_"): ("d2h", 1 << 20, '.to("cpu")'),
    ("aten::to", "aten::to", "aten::copy_"): ("h2d", 1 << 20, ".to(device), blocking"),
}


def read_back(trace, at, operators, direction, size, *, call="cudaMemcpyAsync", waits=True):
    for i, name in enumerate(operators):
        trace.slice("cpu_op", name, at + i, 6000 - 2 * i)
    kind = "Memcpy DtoH (Device -> Pageable)" if direction == "d2h" else "Memcpy HtoD (Pageable -> Device)"
    trace.copy(at + 10, 5000, size, kind, call)
    if waits:
        trace.slice("cuda_runtime", "cudaStreamSynchronize", at + 5020, 10)


@pytest.mark.parametrize("operators", OPERATORS, ids=lambda o: o[0] + "…" + o[-1])
def test_operators_name_the_waits(tmp_path, operators):
    """A trace does not state the stream of a wait: the operator around both calls shows that they are one."""
    direction, size, cause = OPERATORS[operators]
    trace = Trace()
    for step in range(10):
        start = trace.us + step * 10_000
        trace.slice("user_annotation", f"ProfilerStep#{step}", start, 9_900)
        read_back(trace, start + 100, operators, direction, size)
    waits = report_of(trace.write(tmp_path / "t.json"))["sync"]
    assert [(w["pattern"], w["count"], w["blocked_s"]) for w in waits] == [(cause, 10, pytest.approx(0.0501))]


@pytest.mark.parametrize("frame, advice", (
    ("transformers/trainer.py(3400): _prepare_input", "TrainingArguments"),
    ("transformers/pipelines/base.py(1173): _ensure_tensor_on_device", "already on the GPU"),
    ("transformers/models/owlv2/modeling_owlv2.py(1421): box_predictor", "already on the GPU"),
))
def test_settings_of_a_trainer_are_for_its_own_copies(tmp_path, frame, advice):
    trace = Trace()
    for step in range(10):
        start = trace.us + step * 10_000
        trace.slice("python_function", "run.py(10): main", start, 9_000, **{"Python id": 2 * step + 1, "Python parent id": None})
        trace.slice("python_function", frame, start + 10, 8_000, **{"Python id": 2 * step + 2, "Python parent id": 2 * step + 1})
        read_back(trace, start + 100, ("aten::to", "aten::_to_copy", "aten::copy_"), "h2d", 1 << 20)
    wait, = report_of(trace.write(tmp_path / "t.json"))["sync"]
    assert advice in wait["advice"]


@pytest.mark.parametrize("call", ("cudaMemcpyAsync", "hipMemcpyWithStream"))
def test_a_copy_that_waits_by_itself_is_named_by_its_operator(tmp_path, call):
    trace = Trace()
    for step in range(10):
        read_back(trace, trace.us + step * 10_000, ("aten::item", "aten::_local_scalar_dense"), "d2h", 4, call=call, waits=False)
    wait, = report_of(trace.write(tmp_path / "t.json"))["sync"]
    assert wait["pattern"] == ".item()" and "every N steps" in wait["advice"]


@pytest.mark.parametrize("case, named", [("last", True), ("within an operator", False), ("an operator later", False), ("a stream's", False),
                                         ("after each step", False), ("after each step and at the end", True)])
def test_the_wait_that_ends_the_recording_is_the_profilers(tmp_path, case, named):
    trace = Trace()
    for step in range(3):
        read_back(trace, trace.us + step * 10_000, ("aten::item", "aten::_local_scalar_dense"), "d2h", 4)
        if "step" in case:
            trace.slice("cuda_runtime", "cudaDeviceSynchronize", trace.us + step * 10_000 + 8000, 900)
    if case == "after each step":
        read_back(trace, trace.us + 30_000, ("aten::item", "aten::_local_scalar_dense"), "d2h", 4)
    at = trace.us + 40_000
    if case == "within an operator":
        trace.slice("cpu_op", "mine::wait", at - 10, 6_000)
    if case == "an operator later":
        trace.slice("cpu_op", "aten::add", at + 5_500, 10)
    trace.slice("cuda_runtime", "cudaStreamSynchronize" if case == "a stream's" else "cudaDeviceSynchronize", at, 5_000)
    text = gpuspy("report", "--only", "sync", trace.write(tmp_path / "t.json")).stdout
    assert ("(the end of torch.profiler)" in text) == named


def test_the_wait_that_ends_the_recording_has_the_profilers_name(tmp_path):
    """train.py calls profiler.step(), which stops the recording."""
    trace = Trace()
    frames = ("train.py(161): worker", "torch/profiler/profiler.py(811): step", "torch/profiler/profiler.py(235): stop_trace",
              "torch/autograd/profiler.py(363): __exit__", "torch/cuda/__init__.py(990): synchronize")
    for number, frame in enumerate(frames, 1):
        trace.slice("python_function", frame, trace.us + number, 9_000 - 2 * number, **{"Python id": number, "Python parent id": number - 1 or None})
    trace.slice("cuda_runtime", "hipDeviceSynchronize", trace.us + 100, 5_000)
    wait, = report_of(trace.write(tmp_path / "t.json"))["sync"]
    assert wait["pattern"] == "torch.profiler" and wait["site"]["file"].endswith("train.py") and not wait["advice"]


def test_without_cuda_allocations_the_peak_is_that_of_the_tensors(tmp_path):
    trace = Trace()
    for at, address, size in ((0, 1 << 20, 10 * MIB), (4_000, 2 << 20, 20 * MIB), (6_000, 2 << 20, -20 * MIB), (9_000, 3 << 20, MIB)):
        trace.memory(trace.us + at, address, size)
    report = report_of(trace.write(tmp_path / "t.json"))
    times = [report[part][0]["time_s"] for part in ("memory", "fragmentation", "peak")]
    assert times == [pytest.approx(times[0])] * 3 and times[0] == pytest.approx(0.004, abs=1e-5)


def test_a_wait_of_another_operator_is_its_own(tmp_path):
    trace = Trace()
    for step in range(10):
        start = trace.us + step * 10_000
        read_back(trace, start, ("aten::copy_",), "d2h", 1 << 20, waits=False)
        trace.slice("cuda_runtime", "cudaStreamSynchronize", start + 6_500, 10)
    assert sorted(w["count"] for w in report_of(trace.write(tmp_path / "t.json"))["sync"]) == [10, 10]


def test_an_out_of_memory(tmp_path):
    trace = Trace()
    trace.slice("python_function", "train.py(12): step", 5, 100)
    trace.memory(10, 1 << 30, 3 * MIB)
    trace.memory(20, 0, 9 << 30)
    trace.total -= 9 << 30
    trace.events[-1]["name"] = "[OutOfMemory]"
    file = trace.write(tmp_path / "t.json")
    oom = report_of(file)["oom"][0]
    assert (oom["requested_bytes"], oom["free_bytes"], oom["device"], oom["fatal"]) == (9 << 30, None, 0, True)
    text = gpuspy("report", file).stdout
    assert "OUT OF MEMORY on GPU 0" in text and "train.py:12" in text


def test_copies_of_a_graph_name_its_launch(tmp_path):
    trace = Trace()
    trace.slice("cuda_runtime", "cudaGraphLaunch", 10, 4, correlation=5)
    for i in range(3):
        trace.slice("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 20 + i, 1, "s", correlation=5, bytes=100 + i, device=0, stream=7)
    db = imported(trace.write(tmp_path / "t.json"), tmp_path)
    rows = db.execute("SELECT bytes, blocked_ns, (SELECT name FROM api WHERE id = copy.api), start_ns FROM copy ORDER BY 1").fetchall()
    assert rows == [(100 + i, 0, "cudaGraphLaunch", 1000) for i in range(3)]


def test_steps_rank_clock_and_threads(tmp_path):
    trace = usual_trace(first_us=5000)
    trace.events.append({"ph": "M", "name": "thread_name", "pid": 100, "tid": "100", "args": {"name": "thread 100 (python)"}})
    file = trace.write(tmp_path / "t.json", distributedInfo={"backend": "nccl", "rank": 3, "world_size": 8},
                       baseTimeNanoseconds=1_700_000_000_000_000_000)
    report = report_of(file)
    assert [(s["n"], s["evidence"]) for s in report["steps"]] == [(3, 'range "ProfilerStep", 3 times')]
    assert "3 steps of" in gpuspy("report", file).stdout
    db = imported(file, tmp_path)
    assert db.execute("SELECT rank, start_real_ns FROM process").fetchone() == (3, 1_700_000_000_000_000_000 + 5_000_000 - 1000)
    assert db.execute("SELECT tid, name FROM thread").fetchall() == [(100, "thread 100 (python)")]


def test_ranges_within_ranges_of_the_same_name_are_not_steps(tmp_path):
    """An optimizer that consists of others: each has a range of its own"""
    trace = Trace()
    for step in range(3):
        for depth in range(3):
            trace.slice("user_annotation", "Optimizer.step#CombinedOptimizer.step", trace.us + 10_000 * step + depth, 9_000 - 2 * depth)
    assert [(s["n"], s["evidence"]) for s in report_of(trace.write(tmp_path / "t.json"))["steps"]] == \
        [(3, 'range "Optimizer.step#CombinedOptimizer.step", 3 times')]


FETCH, UPDATE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "Optimizer.step#SGD.step"


@pytest.mark.parametrize("fetches, updates, name, steps", [(2, 1, UPDATE, 6), (1, 2, FETCH, 6), (1, 1, FETCH, 6)])
def test_batches_of_an_evaluation_and_second_optimizers_are_not_steps(tmp_path, fetches, updates, name, steps):
    trace = Trace()
    for i in range(6):
        for k in range(fetches):
            trace.slice("user_annotation", FETCH, trace.us + 10_000 * i + 1000 * k, 900)
        for k in range(updates):
            trace.slice("user_annotation", UPDATE, trace.us + 10_000 * i + 5000 + 100 * k, 90)
    trace.slice("cpu_op", "aten::empty", trace.us, 50)
    assert [(s["n"], s["evidence"]) for s in report_of(trace.write(tmp_path / "t.json"))["steps"]] == [(steps, f'range "{name}", {steps} times')]


STEPS = ("train_step", "TrainStep", "Training step", "Optimizer.step#SGD.step", "iteration", "Iter", "run_training_batch", "micro_batch",
         "batch 7", "Batch#7", "timestep", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "[pl]training_step")
NOT_STEPS = ("BatchNorm affine=False", "aten::batch_norm", "aten::_batch_norm_impl_index", "cudnn_batch_norm", "BatchNorm2d",
             "NativeBatchNormBackward0", "criterion", "SummaryWriter", "Rebatch::concat", "batch_size", "batched_nms", "arbiter", "forward")


@pytest.mark.parametrize("name", STEPS + NOT_STEPS)
def test_names_of_steps(tmp_path, name):
    trace = Trace()
    for i in range(6):
        trace.slice("user_annotation", name, trace.us + 1000 * i, 100)
    trace.slice("cpu_op", "aten::empty", trace.us, 50)
    assert [s["n"] for s in report_of(trace.write(tmp_path / "t.json"))["steps"]] == [6] * (name in STEPS)


def test_one_range_that_fills_the_time_is_not_a_repetition(tmp_path):
    trace = Trace()
    for i in range(10):
        trace.slice("user_annotation", "module", trace.us + (1_000_000 + 1000 * i if i else 0), 100 if i else 1_000_000)
    trace.slice("cpu_op", "aten::empty", trace.us, 50)
    assert not report_of(trace.write(tmp_path / "t.json"))["steps"]


def layers(trace, start, n, *, keep=True):
    """One forward pass of n equal layers: each operator occurs once per layer."""
    for i in range(n):
        at = start + 100 * i
        for k, name in enumerate(("aten::baddbmm", "aten::_softmax", "aten::empty_strided")):
            trace.slice("cpu_op", name, at + 10 * k, 8)
            trace.memory(at + 10 * k + 2, 1 << 30 | (3 * i + k) << 24, 4 * MIB)
            if not keep:
                trace.memory(at + 90 + k, 1 << 30 | (3 * i + k) << 24, -4 * MIB)


def test_operators_without_a_stack_are_not_lines_of_a_loop(tmp_path):
    """The layers of one pass are not steps, and their activations are not a leak."""
    trace = Trace(total=100 * MIB)  # from before the trace
    layers(trace, trace.us, 20)
    report = report_of(trace.write(tmp_path / "t.json"))
    assert not report["steps"] and not report["growth"] and not report["advice"]
    assert {c["category"] for p in report["peak"] for c in p["categories"]} <= {"unknown", "temporaries"}


def test_fractions_and_texts_as_times(tmp_path):
    trace = Trace(first_us=0)
    trace.slice("cpu_op", "aten::empty", "1700000000000000.125", "10.875")
    trace.slice("cuda_runtime", "cudaDeviceSynchronize", 1700000000000020.123, 0.456)
    trace.memory("1700000000000003.001", 4096, 512)
    db = imported(trace.write(tmp_path / "t.json"), tmp_path)
    assert db.execute("SELECT alloc_ns FROM allocation").fetchone()[0] == 1000 + 2876
    assert db.execute("SELECT blocked_ns FROM sync").fetchone()[0] == 456
    assert stack_names(db, 512) == ["aten::empty"]


def test_several_processes_in_one_trace(tmp_path):
    trace = Trace()
    for pid in 100, 200:
        trace.pid, trace.total = pid, 0
        trace.memory(pid, 4096, 512 * pid)
        trace.memory(pid + 50, 8192, 512)
        trace.memory(pid + 60, 4096, -512 * pid)
    db = imported(trace.write(tmp_path / "t.json"), tmp_path)
    assert db.execute("SELECT name FROM thread ORDER BY id").fetchall() == [("process 100",), ("process 200",)]
    assert measured_memory(db)[0] == {"count": 4, "bytes": 512 * 302, "before": 0, "most": 512 * 202, "end": 1024}


def test_cpu_tensors(tmp_path):
    trace = Trace()
    trace.memory(10, 4096, 5000, device=-1, reserved=0)
    trace.memory(20, 4096, -5000, device=-1, reserved=0)
    trace.memory(30, 4096, 700, device=-1, reserved=0)
    file = trace.write(tmp_path / "t.json")
    assert measured_memory(imported(file, tmp_path))[-1]["end"] == 700
    assert set(report_of(file)["run"]["lacks"]) == {"waits", "copies", "segments", "pinned"}


@pytest.mark.parametrize("size", (8 * MIB, 8))
def test_cpu_tensors_that_accumulate_are_not_moved_to_the_cpu(tmp_path, size):
    trace = Trace()
    trace.memory(trace.us + 5, 1 << 40, 1 << 30)
    trace.total = 0  # of the CPU
    for step in range(20):
        start = trace.us + step * 10_000
        trace.slice("user_annotation", f"ProfilerStep#{step}", start, 9_900)
        trace.slice("python_function", "train.py(12): evaluate", start + 100, 9_000)
        trace.slice("cpu_op", "aten::to", start + 200, 50)
        trace.memory(start + 210, 1 << 30 | step << 24, size, device=-1)
    advices = report_of(trace.write(tmp_path / "t.json"))["advice"]
    assert len(advices) == (size > 8)  # beside the memory of the GPU
    for advice in advices:
        assert "train.py:12" in advice["text"] and "drop the reference" in advice["text"] and ".cpu()" not in advice["text"]


def test_a_trace_without_memory_states_so(tmp_path):
    trace = Trace()
    trace.slice("cpu_op", "aten::empty", 10, 10)
    trace.slice("cuda_runtime", "cudaDeviceSynchronize", 20, 5)
    file = trace.write(tmp_path / "t.json")
    lacks = imported(file, tmp_path).execute("SELECT value FROM meta WHERE key = 'import.lacks'").fetchone()[0]
    assert lacks.split() == ["segments", "pinned", "memory"]
    text = gpuspy("report", file)
    assert "memory is unknown: a torch.profiler trace without profile_memory=True does not record memory" in " ".join((text.stdout + text.stderr).split())


def test_the_list_of_the_old_profiler(tmp_path):
    events = [{"name": "aten::zeros", "ph": "X", "ts": 790, "dur": 93, "tid": 1, "pid": "CPU functions", "args": {}},
              {"name": "aten::empty", "ph": "X", "ts": 813, "dur": 22, "tid": 1, "pid": "CPU functions", "args": {}}]
    (tmp_path / "t.json").write_text(json.dumps(events))
    done = gpuspy("report", "t.json", cwd=tmp_path)
    assert "it has operators, but no calls to CUDA" in " ".join((done.stdout + done.stderr).split())
    lacks = imported(tmp_path / "t.json", tmp_path).execute("SELECT value FROM meta WHERE key = 'import.lacks'").fetchone()[0]
    assert lacks.split() == ["waits", "copies", "segments", "pinned", "memory"]


def test_a_memory_timeline(tmp_path):
    t = 1_700_000_000_000_000_000
    moments = [[-1, 1, 1000, 0], [-1, 1, 500, 2], [t, 2, 4000, 4], [t + 10, 3, -1000, 7], [t + 10, 3, 1000, 0],
               [t + 20, 2, 300, 3], [t + 30, 4, -4000, 4], [t + 40, 4, -500, 2]]
    (tmp_path / "t.raw.json").write_text(json.dumps(moments))
    db = imported(tmp_path / "t.raw.json", tmp_path)
    assert measured_memory(db)[0] == {"count": 4, "bytes": 5800, "before": 1500, "most": 5800, "end": 1300}
    assert stack_names(db, 4000) == ["[activations]"]
    assert db.execute("SELECT start_real_ns FROM process").fetchone()[0] == t - 1000


def test_a_memory_timeline_does_not_show_whether_memory_ran_out(tmp_path):
    file = tmp_path / "t.raw.json"
    file.write_text(json.dumps([[-1, 1, 1000, 0], [1_700_000_000_000_000_000, 2, 4000, 4]]))
    unknown = "hether memory ran out is unknown"
    assert report_of(file)["run"]["outcome"] == "W" + unknown and unknown in gpuspy("report", file).stdout
    assert unknown in gpuspy("tree", "--what", "oom", file, code=1).stderr
    assert re.search("UNKNOWN +no-oom +cannot be judged: a PyTorch memory timeline does not record failed allocations",
                     gpuspy("check", "--no-oom", file, code=1).stdout)
    assert "oom" not in json.loads(gpuspy("diff", "--json", file, file).stdout)["figures"]


VIEWS = [("report",), ("report", "--html", "out.html"), ("tree",), ("tree", "--what", "waits"), ("tree", "--what", "copies"),
         ("timeline",), ("leaks",), ("stats",), ("table",), ("flame",), ("check", "--max-syncs-per-step=9"), ("export",),
         ("export", "--format", "chrome-trace"), ("sql",)]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_reading_command_takes_the_file_itself(tmp_path, view):
    usual_trace().write(tmp_path / "t.json.gz")
    (tmp_path / "temporary").mkdir()
    query = ["SELECT count(*) FROM allocations"] if view == ("sql",) else []
    gpuspy(*view, "t.json.gz", *query, cwd=tmp_path, TMPDIR=str(tmp_path / "temporary"))
    assert not list((tmp_path / "temporary").iterdir())


def test_two_traces_side_by_side(tmp_path):
    usual_trace().write(tmp_path / "a.json")
    usual_trace(seed=2).write(tmp_path / "b.json")
    assert "train.py" in gpuspy("diff", "a.json", "b.json", cwd=tmp_path).stdout


def test_import_names_its_files(tmp_path):
    usual_trace().write(tmp_path / "rank0.pt.trace.json.gz")
    assert "wrote rank0.db; next: gpuspy report rank0.db" in gpuspy("import", "rank0.pt.trace.json.gz", cwd=tmp_path).stderr


# --- hostile files -------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.99])
def test_a_cut_trace_keeps_what_came_before(tmp_path, share, packed):
    trace = usual_trace()
    data = json.dumps(trace.document()).encode()
    data = gzip.compress(data, 1) if packed else data
    file = tmp_path / ("t.json.gz" if packed else "t.json")
    file.write_bytes(data[:int(len(data) * share)])
    text = gpuspy("report", file)
    assert "the trace is incomplete: it ends" in " ".join((text.stdout + text.stderr).split())
    if not packed:
        whole = json.loads(data[:data.rfind(b"}, {\"ph\"", 0, int(len(data) * share))] + b"}]}")
        count = len([e for e in whole["traceEvents"] if e["name"] == "[memory]"])
        events = imported(file, tmp_path).execute("SELECT count(*) + count(free_ns) - sum(alloc_ns = 0) FROM allocation").fetchone()[0]
        assert count <= events <= count + 1


def test_events_that_are_not_json_are_left_out(tmp_path):
    trace = Trace()
    for i in range(5):
        trace.memory(10 + i, 4096 * (i + 1), 512)
    lines = [json.dumps(e, indent=1) for e in trace.events]
    lines[1] = lines[1].replace('"tid"', '"name": "lambda ("x")", "tid"')
    lines[3] = lines[3].replace('"args": {', '"args": [')
    (tmp_path / "t.json").write_text('{"traceEvents": [\n' + ",\n".join(lines) + "\n]}")
    db = imported(tmp_path / "t.json", tmp_path)
    assert [a // 4096 for a, in db.execute("SELECT address FROM allocation ORDER BY id")] == [1, 3, 5]
    assert "left out 2 events with invalid JSON" in " ".join(gpuspy("report", tmp_path / "t.json").stdout.split())


def one_line_error(file, code=3):
    done = gpuspy("report", file, code=code)
    assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr, done.stderr
    return done.stderr


def test_other_json_is_unchanged(tmp_path):
    for name, text in ("object", '{"a": [1, 2, {"b": 3}]}'), ("list", "[1, 2, 3]"), ("number", "17"), ("open", "{"), \
            ("lists", "[[1,2,3]]"), ("objects", '[{"a": 1}]'), ("word", "[tru"), ("brace", "{]"), ("deep", "[" * 100000):
        (tmp_path / name).write_text(text)
        assert "gpuspy" in one_line_error(tmp_path / name)
    assert "cannot convert this format" in gpuspy("import", tmp_path / "number", code=3).stderr


def test_a_trace_of_something_else(tmp_path):
    file = tmp_path / "t.json"
    file.write_text('{"traceEvents": [{"ph": "X", "name": "x", "ts": 1, "dur": 2, "pid": 1, "tid": 1, "cat": "devtools"}]}')
    assert "has no operators, CUDA calls or memory events" in one_line_error(file)
    file.write_text('{"traceEvents": [')
    assert "it ends in the middle" in one_line_error(file)
    file.write_text('{"traceEvents": []}')
    assert "no operators" in one_line_error(file)
    file.write_text('{"traceEvents": 7}')
    one_line_error(file)


ODD = [
    '{"ph": "i", "name": "[memory]", "ts": %s, "pid": 1, "tid": 1, "args": {"Device Type": 1, "Device Id": %s, "Addr": %s, '
    '"Bytes": %s, "Total Allocated": %s, "Total Reserved": %s}}',
    '{"ph": "X", "cat": "cpu_op", "name": "x", "ts": %s, "dur": %s, "pid": %s, "tid": %s, "args": {"a": %s, "b": %s}}',
    '{"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "ts": %s, "dur": %s, "pid": 1, "tid": 1, "args": '
    '{"correlation": %s, "x": %s, "correlation": %s, "y": %s}}',
    '{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD", "ts": %s, "dur": %s, "pid": 1, "tid": 1, "args": '
    '{"correlation": %s, "bytes": %s, "device": %s, "stream": %s}}',
    '{"ph": "X", "cat": "python_function", "name": "a.py(9999999999999): f", "ts": %s, "dur": %s, "pid": 1, "tid": 1, "args": '
    '{"Python id": %s, "Python parent id": %s, "c": %s, "d": %s}}',
    '{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": %s, "dur": %s, "pid": %s, "tid": %s, "args": {"a": %s, "b": %s}}',
]
NUMBERS = ["0", "1", "-1", "NaN", "-Infinity", "inf", "1e400", "1e18", "-9e15", "9e15", "9223372036854775807", "18446744073709551615",
           "99999999999999999999999", "null", '"7"', '""', '"x"', "{}", "[[]]", "1700000000000000", "512", "0.0001", "true", "4096"]


def test_odd_numbers(tmp_path):
    random.seed(5)
    for i in range(60):
        events = [random.choice(ODD) % tuple(random.choice(NUMBERS) for _ in range(6)) for _ in range(random.randrange(1, 60))]
        file = tmp_path / "t.json"
        file.write_text('{"traceEvents": [' + ",".join(events) + "]}")
        done = subprocess.run([TOOL, "report", "--json", file], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode in (0, 3), done.stderr
        if done.returncode == 0:
            json.loads(done.stdout)
        else:
            assert len(done.stderr.splitlines()) == 1


def test_huge_texts_and_deep_values(tmp_path):
    event = {"ph": "X", "cat": "cpu_op", "name": "n" * 3_000_000, "ts": 1, "dur": 9, "pid": 1, "tid": 1,
             "args": {"Call stack": "a.py(1): f;" * 300_000, "x": "é\u0000\ud83d\ude00" * 100_000}}
    memory = {"ph": "i", "name": "[memory]", "ts": 5, "pid": 1, "tid": 1, "args": {"Device Type": 1, "Device Id": 0, "Addr": 1, "Bytes": 512}}
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"traceEvents": [event, memory]}))
    gpuspy("report", file)
    file.write_text('{"traceEvents": [%s, {"a": %s' % (json.dumps(memory), "[" * 1_000_000))
    text = gpuspy("report", file)
    assert "nested deeper than 512" in " ".join((text.stdout + text.stderr).split())


def test_a_million_open_slices(tmp_path):
    """Takes time and memory in proportion to the file"""
    events = ",".join('{"ph":"X","cat":"cpu_op","name":"f%d","ts":%d,"dur":%d,"pid":1,"tid":1},{"ph":"i","name":"[memory]","ts":%d,'
                      '"pid":1,"tid":1,"args":{"Device Type":1,"Device Id":0,"Addr":%d,"Bytes":512}}' % (i, i, 10**9 - 2 * i, i, i * 512 + 512)
                      for i in range(40_000))
    copies = ",".join('{"ph":"X","cat":"%s","name":"%s","ts":%d,"dur":1,"pid":1,"tid":1,"args":{"correlation":1,"bytes":1,"device":0,'
                      '"stream":1}}' % (*(("gpu_memset", "Memset") if i % 2 else ("cuda_runtime", "cudaMemcpy")), i) for i in range(100_000))
    file = tmp_path / "t.json"
    file.write_text('{"traceEvents": [' + events + "," + copies + "]}")
    done = subprocess.run([TOOL, "import", file, "-o", tmp_path / "t.db"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr


def peak_kib(*words):
    child = subprocess.Popen([TOOL, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0
    return used.ru_maxrss


def test_many_threads_cost_what_their_events_cost(tmp_path):
    """Every thread's stacks used to be numbered after those of all others, in one array for each thread."""
    peaks = []
    for threads in 1, 500:
        trace = Trace()
        for i in range(30000):
            trace.slice("cpu_op", f"op{i}", trace.us + 10 * i, 5, tid=1000 + i % threads)
            trace.memory(trace.us + 10 * i + 1, (1 << 40) + 512 * i, 512, tid=1000 + i % threads)
        file = trace.write(tmp_path / f"{threads}.json")
        peaks.append(peak_kib("import", file, "-o", tmp_path / f"{threads}.db"))
    assert peaks[1] < 1.5 * peaks[0] + 4096, peaks


def test_damaged_files_get_one_line(tmp_path):
    whole = json.dumps(usual_trace().document()).encode()
    random.seed(3)
    for i in range(120):
        data = bytearray(whole)
        for _ in range(random.randrange(1, 30)):
            data[random.randrange(len(data))] = random.randrange(256)
        if i % 5 == 4:
            data = bytearray(gzip.compress(bytes(data), 1))
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)
        file = tmp_path / "damaged.json"
        file.write_bytes(bytes(data))
        done = subprocess.run([TOOL, "report", "--json", file], capture_output=True, text=True, errors="replace", timeout=SECONDS)
        assert done.returncode in (0, 3), done.stderr
        if done.returncode:
            assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr
        else:
            json.loads(done.stdout)


RECORD = """
import torch
from torch.profiler import profile, ProfilerActivity
model = torch.nn.Linear(64, 64)
def step():
    return model(torch.ones(32, 64)).sum()
with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=True, record_shapes=True) as p:
    for _ in range(3):
        step().backward()
        p.step()
p.export_chrome_trace("real.json")
"""


def test_a_trace_recorded_here(tmp_path):
    python = "/usr/bin/python3"
    if not os.path.exists(python) or subprocess.run([python, "-c", "import torch"], capture_output=True).returncode:
        pytest.skip("no PyTorch here")
    subprocess.run([python, "-c", RECORD], cwd=tmp_path, check=True, capture_output=True)
    document = json.loads((tmp_path / "real.json").read_text())
    db = imported(tmp_path / "real.json", tmp_path)
    if isinstance(document, list):  # from a PyTorch without Kineto: operators only
        document = {"traceEvents": document}
    assert measured_memory(db) == expected_memory(document)
    assert "torch.profiler trace" in gpuspy("report", tmp_path / "real.json").stdout


def test_sizes_that_only_calls_know(tmp_path):
    """HIP: the events of the GPU have no sizes, its calls have them as text. A copy without either is counted."""
    trace = Trace()
    for i, (call, name, more) in enumerate((
            ("hipMemcpyWithStream", "Memcpy HtoD (Host -> Device)", {"size": "2560", "kind": "1"}),
            ("hipMemsetAsync", "Memset (Device)", {"size": str(5 << 32)}),
            ("hipMemcpyAsync", "Memcpy DtoH (Device -> Host)", {}),
            ("hipMemcpyAsync", "Memcpy DtoH (Device -> Host)", {"size": "-5"}))):
        cat = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
        trace.slice("cuda_runtime", call, 10 + 50 * i, 30, correlation=i + 1, **more)
        trace.slice(cat, name, 20 + 50 * i, 10, "stream 0", correlation=i + 1, device=2, stream=0)
    file = trace.write(tmp_path / "t.json")
    db = imported(file, tmp_path)
    assert db.execute("SELECT bytes, direction, device, blocked_ns FROM copy").fetchall() == [(2560, 0, 0, 30000)]  # the only GPU that the trace names
    assert db.execute("SELECT bytes, device, blocked_ns FROM memset").fetchall() == [(5 << 32, 0, 30000)]
    text = " ".join(gpuspy("report", file).stdout.split())
    assert "left out 2 calls that copied or filled memory: the trace has no size" in text
    assert "impossible" not in text


def test_a_byte_order_mark(tmp_path):
    document = json.dumps(usual_trace().document())
    for name, encoding in ("plain.json", "utf-8"), ("mark.json", "utf-8-sig"):
        (tmp_path / name).write_text(document, encoding=encoding)
    plain, mark = (report_of(tmp_path / name) for name in ("plain.json", "mark.json"))
    assert mark["run"]["events"] == plain["run"]["events"] > 0 and mark["peak"] == plain["peak"]


@pytest.mark.parametrize("name, head, tool", [
    ("t.pt.trace.json.zst", b"\x28\xb5\x2f\xfd", "zstd -d"), ("t.json.xz", b"\xfd7zXZ\0", "xz -dk"),
    ("t.json.bz2", b"BZh91AY", "bzip2 -dk"), ("t.zip", b"PK\x03\x04", "unzip")])
def test_other_compressions_are_refused_with_advice(tmp_path, name, head, tool):
    (tmp_path / name).write_bytes(head + bytes(99))
    for command in "report", "import":
        error = gpuspy(command, name, cwd=tmp_path, code=3).stderr
        assert len(error.splitlines()) == 1 and name in error and tool in error


def test_what_a_trace_cannot_show_passes_no_limit(tmp_path):
    file = usual_trace().write(tmp_path / "t.json")
    done = gpuspy("check", "--max-pinned=1GiB", "--max-retries=9", "--max-fragmentation=90%", "--max-leak=1TiB", file, code=1)
    assert done.stdout.count("UNKNOWN") == 4, done.stdout
    assert "Never freed" not in gpuspy("report", file).stdout
    assert ", live at the end of the recording" in gpuspy("leaks", file).stdout


def newer(event, **more):
    return {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 7, "tid": 7, "dur": "2.5", "args": {}, **event, **more}


def test_a_newer_layout(tmp_path):
    """2023 to 2026: times from baseTimeNanoseconds, numbers as strings, Ev Idx, flows, driver calls, GPU annotations,
    NaN, several GPUs and ranks"""
    base = 1_750_000_000_000_000_000
    copies = []
    for i, device in enumerate((0, 3)):
        copies += [newer({"cat": "cuda_driver", "name": "cuMemcpyHtoDAsync_v2", "ts": 10.125 + 50 * i, "args": {"correlation": str(i + 1)}}),
                   newer({"cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "ts": 12.0 + 50 * i, "pid": device, "tid": 7,
                          "args": {"correlation": str(i + 1), "bytes": str(4096 << i), "device": str(device), "stream": "7",
                                   "memory bandwidth (GB/s)": float("nan")}}),
                   {"ph": "s", "id": i + 1, "pid": 7, "tid": 7, "ts": 10 + 50 * i, "cat": "ac2g", "name": "ac2g"},
                   {"ph": "f", "id": i + 1, "pid": device, "tid": 7, "ts": 12 + 50 * i, "cat": "ac2g", "name": "ac2g", "bp": "e"}]
    step = newer({"cat": "user_annotation", "name": "ProfilerStep#4", "ts": 5, "dur": 90, "args": {"Ev Idx": 3}})
    on_gpu = newer(step, cat="gpu_user_annotation", pid=0, ts=11)
    wait = newer({"cat": "cuda_driver", "name": "cuStreamSynchronize", "ts": "70.5", "dur": "8.25"})
    memory = [newer({"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": ts, "s": "t"},
                    args={"Device Type": "1", "Device Id": "3", "Bytes": str(size), "Addr": "139870000000000", "Ev Idx": 5,
                          "Total Allocated": str(total), "Total Reserved": "8192"})
              for ts, size, total in ((80, 1024, 5120), (85, -1024, 4096))]
    document = {"schemaVersion": 1, "trace_id": "x", "displayTimeUnit": "ms", "baseTimeNanoseconds": base,
                "distributedInfo": {"backend": "nccl", "rank": "5", "world_size": 8, "pg_count": 1, "nccl_version": "2.27.3"},
                "deviceProperties": [GPU, {**GPU, "id": 3, "name": "Other GPU"}], "traceName": "t.json",
                "traceEvents": [*copies, step, on_gpu, wait, *memory]}
    (tmp_path / "t.json").write_text(json.dumps(document))
    db = imported(tmp_path / "t.json", tmp_path)
    assert db.execute("SELECT device, direction, bytes FROM copies ORDER BY 1").fetchall() == [(0, "h2d", 4096), (3, "h2d", 8192)]
    assert db.execute("SELECT kind, blocked_ns FROM syncs").fetchall() == [("stream", 8250)]
    assert db.execute("SELECT device, bytes, free_ns - alloc_ns FROM allocation").fetchall() == [(3, 4096, None), (3, 1024, 5000)]
    rank, start = db.execute("SELECT rank, start_real_ns FROM process").fetchone()
    assert rank == 5 and abs(start - base) < 10_000
    assert db.execute("SELECT count(*) FROM mark").fetchone()[0] == 1
    assert "4.00 KiB of tensors were allocated before the recording" in " ".join(gpuspy("report", tmp_path / "t.json").stdout.split())


@pytest.mark.parametrize("threads, steps", [(1, [12]), (3, [])])
def test_ranges_of_several_threads_are_not_steps(tmp_path, threads, steps):
    """Requests that a server handles at the same time."""
    ranges = [{"ph": "X", "cat": "user_annotation", "name": "handle", "pid": 1, "tid": 1 + t, "ts": 1000 * k + 10 * t, "dur": 980}
              for k in range(12) for t in range(threads)]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": ranges, "displayTimeUnit": "ms", "deviceProperties": []}))
    report = json.loads(gpuspy("report", "--json", tmp_path / "t.json").stdout)
    assert [s["n"] for s in report["steps"]] == steps


@pytest.mark.parametrize("width", [60, 80, 100])
def test_a_long_wait_has_room_on_the_screen(tmp_path, width):
    """Its share is the largest figure of the run, beside memory of many lines and a long file name."""
    trace, at = Trace(), 1_700_000_000_000_000
    for line in range(12):
        name = f"project/model/stage_{line}.py({40 + line}): forward"
        trace.slice("python_function", name, at, 90, **{"Python id": line + 1, "Python parent id": None})
        trace.slice("cpu_op", "aten::empty", at + 10, 30)
        trace.memory(at + 20, 0x7f0000000000 + line * 64 * MIB, (line + 1) * MIB)
        trace.memory(at + 25, 0x1000000 + line * 64 * MIB, (line + 1) * MIB, device=-1)
        at += 100
    trace.slice("python_function", "project/sampler.py(7): to_host", at, 9_000, **{"Python id": 99, "Python parent id": None})
    trace.slice("cuda_runtime", "cudaStreamSynchronize", at + 100, 6_000)
    file = trace.write(tmp_path / "a_capture_of_the_server_on_host_0123456789_with_a_long_name_rank_0.1772780000000.pt.trace.json.gz")
    text = gpuspy("report", file, COLUMNS=str(width)).stdout
    assert len(text.splitlines()) <= 40, text
    assert "\nWaiting for the GPU: 6.00 ms, 59 % of the run\n" in text, text
    assert "\nGPU 0\n" in text and "sampler.py:7" in text and "stage_11.py:51" in text and "\nNext\n" in text, text
