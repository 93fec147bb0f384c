"""Snapshots that PyTorch made, imported unchanged. The expected sums of events and blocks are computed here in another
way than in gpuspy: forwards, from the first event of each address."""
import bisect
import collections
import gzip
import json
import os
import pickle
import random
import re
import sqlite3
import subprocess

import pytest

from conftest import BUILD, ROOT, gpuspy, imported

TOOL = BUILD / "gpuspy"
SHARED = ROOT.parent / "shared" / "recordings" / "snapshots"
REAL = sorted(SHARED.glob("*.gz")) if SHARED.is_dir() else []
MIB = 1 << 20


def frame(line, name="train", file="/home/u/train.py"):
    return {"filename": file, "name": name, "line": line}


CPP = frame(0, "at::native::empty_cuda", "??")
NAMED_CPP = frame(77, "c10::cuda::alloc", "/pytorch/c10/cuda/CUDACachingAllocator.cpp")


class Run:
    """Makes a snapshot, event by event, and keeps the expected results."""

    def __init__(self, timed=True, first_us=1_700_000_000_000_000):
        self.traces = collections.defaultdict(list)
        self.blocks, self.segments, self.waiting = {}, {}, {}
        self.timed, self.us = timed, first_us

    def event(self, device, action, address, size, line=None, **more):
        self.us += 10
        frames = [] if line is None else [CPP, NAMED_CPP, frame(line), frame(1, "<module>")]
        event = {"action": action, "addr": address, "size": size, "stream": 0, "frames": frames, **more}
        if self.timed:
            event["time_us"] = self.us
        self.traces[device].append(event)
        return frames

    def segment(self, device, address, size, line=None):
        self.segments[device, address] = size, self.event(device, "segment_alloc", address, size, line)

    def alloc(self, device, address, size, line):
        self.blocks[device, address] = -(-size // 512) * 512, self.event(device, "alloc", address, size, line)

    def free(self, device, address, line=None):
        size, _ = self.blocks.pop((device, address))
        self.event(device, "free_requested", address, size, line)
        self.event(device, "free_completed", address, size, line)

    def request_free(self, device, address):
        """Another stream still uses the block; free_completed follows, or never does"""
        size, frames = self.blocks.pop((device, address))
        self.waiting[device, address] = size, frames
        self.event(device, "free_requested", address, size)

    def complete_free(self, device, address):
        size, _ = self.waiting.pop((device, address))
        self.event(device, "free_completed", address, size)

    def oom(self, device, size, free, line):
        self.event(device, "oom", free, size, line)

    def snapshot(self, last=None, expandable=False):
        """`last`: only so many events of each device are kept, as in a ring buffer"""
        segments = []
        for (device, start), (size, frames) in self.segments.items():
            inside = sorted((a, n, f, state) for held, state in ((self.blocks, "active_allocated"), (self.waiting, "active_pending_free"))
                            for (d, a), (n, f) in held.items() if d == device and start <= a < start + size)
            blocks, at = [], start
            for address, bytes_, stack, state in inside:
                if address > at:
                    blocks.append({"address": at, "size": address - at, "requested_size": 0, "state": "inactive", "frames": []})
                blocks.append({"address": address, "size": bytes_, "requested_size": bytes_, "state": state, "frames": stack})
                at = address + bytes_
            if at < start + size:
                blocks.append({"address": at, "size": start + size - at, "requested_size": 0, "state": "inactive", "frames": []})
            active = sum(n for _, n, _, _ in inside)
            allocated = sum(n for _, n, _, state in inside if state == "active_allocated")
            segments.append({"device": device, "address": start, "total_size": size, "allocated_size": allocated,
                             "active_size": active, "requested_size": active, "stream": 0, "segment_type": "large",
                             "segment_pool_id": (0, 0), "is_expandable": expandable, "frames": frames, "blocks": blocks})
        most = max(self.traces, default=-1) + 1
        traces = [self.traces[d] if last is None else self.traces[d][-last:] for d in range(most)]
        return {"segments": segments, "device_traces": traces, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""},
                "external_annotations": []}


def usual_run(seed=1, devices=1, **settings):
    random.seed(seed)
    run, live = Run(**settings), []
    for device in range(devices):
        run.segment(device, 0x7f0000000000 + device * (1 << 36), 400 * MIB, line=5)
    free = {device: list(range(400)) for device in range(devices)}
    for step in range(300):
        device = random.randrange(devices)
        if live and random.random() < 0.45:
            device, address = live.pop(random.randrange(len(live)))
            run.free(device, address, line=90)
            free[device].append((address - 0x7f0000000000 - device * (1 << 36)) // MIB)
        elif free[device]:
            page = free[device].pop(random.randrange(len(free[device])))
            address = 0x7f0000000000 + device * (1 << 36) + page * MIB
            run.alloc(device, address, random.randrange(1, MIB), line=10 + step % 7)
            live.append((device, address))
    return run


def write(path, value, protocol=2):
    data = pickle.dumps(value, protocol)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def rounded(size):
    return max(512, -(-size // 512) * 512)


class Layout:
    """The segments and blocks of a device. The allocator does not split off 1 MiB or less: such a rest belongs to the block
    before it."""

    def __init__(self, segments, events, addresses):
        pieces = {s["address"]: s["total_size"] for s in segments}
        for e in reversed(events):  # back to the first event
            if e["action"] == "segment_alloc":
                del pieces[e["addr"]]
            elif e["action"] == "segment_free":
                pieces[e["addr"]] = e["size"]
        self.live, self.segments = sorted(addresses), sorted(pieces.items())
        self.splits = any(e["action"].startswith("segment_m") for e in events) or any(s.get("is_expandable") for s in segments)

    def whole(self, address, size):
        start, bytes_ = self.segments[bisect.bisect(self.segments, (address, 1 << 62)) - 1]
        after = bisect.bisect(self.live, address)
        gap = min([start + bytes_, *self.live[after:after + 1]]) - address - size
        return size + gap if not self.splits and bytes_ > 2 * MIB and gap <= MIB else size

    def follow(self, e):
        if e["action"] == "alloc":
            bisect.insort(self.live, e["addr"])
        elif e["action"] == "free_completed":
            self.live.remove(e["addr"])
        elif e["action"] == "segment_alloc":
            bisect.insort(self.segments, (e["addr"], e["size"]))
        elif e["action"] == "segment_free":
            self.segments.remove((e["addr"], e["size"]))


def expected(snapshot, real=False):
    """By device: allocated bytes before the first event, at the end, at most; reserved bytes likewise. `real`: the
    allocator has made the layout."""
    segments = snapshot["segments"]
    figures = {}
    traces = snapshot["device_traces"]
    for device in {s["device"] for s in segments} | {d for d, t in enumerate(traces) if t}:
        end = {b["address"]: b["size"] for s in segments if s["device"] == device for b in s["blocks"]
               if b["state"] == "active_allocated"}
        events = traces[device] if device < len(traces) else []
        last = {e["addr"]: i for i, e in enumerate(events) if e["action"] == "alloc"}
        freed_after = {}
        for i, e in enumerate(events):
            if e["action"] == "free_requested":
                freed_after[e["addr"]] = i
        size = {i: end[e["addr"]] if last.get(e["addr"]) == i and freed_after.get(e["addr"], -1) < i else rounded(e["size"])
                for i, e in enumerate(events) if e["action"] == "alloc"}
        # blocks from before the trace: freed without an allocation, or live at the end without one
        before, seen, old = 0, set(), {}
        first = {}
        for e in events:
            if e["action"] in ("alloc", "free_requested", "free_completed"):
                first.setdefault(e["addr"], e["action"])
        layout = Layout([s for s in segments if s["device"] == device], events,
                        {a for a, action in first.items() if action != "alloc"} | end.keys() - first.keys())
        whole = layout.whole if real else lambda address, size: size
        for e in events:
            if e["action"] in ("alloc", "free_requested") and e["addr"] not in seen:
                seen.add(e["addr"])
                if e["action"] == "free_requested":
                    old[e["addr"]] = whole(e["addr"], rounded(e["size"]))
                    before += old[e["addr"]]
        before += sum(n for a, n in end.items() if a not in seen)
        now = most = before
        held = {}
        for i, e in enumerate(events):
            if e["action"] == "alloc":
                held[e["addr"]] = whole(e["addr"], size[i])
                now += held[e["addr"]]
            elif e["action"] == "free_requested":
                now -= held.pop(e["addr"]) if e["addr"] in held else old.pop(e["addr"])
            if real:
                layout.follow(e)
            most = max(most, now)
        reserved = sum(s["total_size"] for s in segments if s["device"] == device)
        change = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
        total = reserved - sum(change.get(e["action"], 0) * e["size"] for e in events)
        most_reserved, at = total, total
        for e in events:
            at += change.get(e["action"], 0) * e["size"]
            most_reserved = max(most_reserved, at)
        figures[device] = {"before": before, "end": sum(end.values()), "most": most, "reserved_before": total,
                           "reserved": reserved, "reserved_most": most_reserved}
    return figures


def measured(db):
    """The same of rows"""
    figures = {}
    layers = {"": 1, "reserved_": 0}
    for device, in db.execute("SELECT DISTINCT device FROM allocation").fetchall():
        figures[device] = {}
        for prefix, layer in layers.items():
            rows = db.execute("SELECT alloc_ns, free_ns, bytes FROM allocation WHERE layer = ? AND device = ?", (layer, device)).fetchall()
            changes = sorted([(at, 1, n) for at, _, n in rows] + [(to, 0, -n) for _, to, n in rows if to is not None])
            # a block that was freed before and waits for another stream ends at once
            now = most = before = sum(n for at, to, n in rows if at == 0 and to != 0)
            for at, _, n in changes:
                if at > 0:
                    now += n
                    most = max(most, now)
            figures[device] |= {prefix + "before": before, prefix + "most": most,
                                prefix + "end" if not prefix else "reserved": sum(n for _, to, n in rows if to is None)}
    return figures


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read_equally(tmp_path, protocol):
    snapshot = usual_run().snapshot()
    for name in "a.pickle", "b.pickle.gz":
        file = write(tmp_path / name, snapshot, protocol)
        report = json.loads(gpuspy("report", "--json", file).stdout)
        want = expected(snapshot)[0]
        assert report["memory"][0]["tensor_peak_bytes"] == want["most"]
        assert report["memory"][0]["reserved_peak_bytes"] == 400 * MIB
        assert report["run"]["lacks"] == ["waits", "copies", "pinned"]


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_spells_names_alike(tmp_path, protocol):
    """Protocol 0 writes backslashes, ends of lines and what is beyond Latin-1 as numbers, and the rest of Latin-1 as a byte."""
    files = ["C:\\Users\\üser\\new\\train.py", "/home/模型/train.py", "/home/u/\U0001f600.py", "/home/u/\\u0041.py"]
    run = Run()
    run.segment(0, 1 << 40, 20 * MIB)
    for k, name in enumerate(files):
        run.alloc(0, (1 << 40) + k * MIB, MIB, line=1)
        run.traces[0][-1]["frames"] = [frame(1, "f", name)]
        run.blocks[0, (1 << 40) + k * MIB] = MIB, [frame(1, "f", name)]
    db = imported(write(tmp_path / "s.pickle", run.snapshot(), protocol), tmp_path)
    assert [f for f, in db.execute("SELECT f.file FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id JOIN frame f ON "
                                   "f.id = s.frame_id WHERE layer = 1 ORDER BY a.id")] == \
            [f.replace("\\", "/") if f.startswith("C:\\") else f for f in files]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("base", [1 << 63, -(1 << 62), (1 << 64) - (1 << 40)])
def test_addresses_of_64_bits(tmp_path, protocol, base):
    snapshot = usual_run().snapshot()
    want = expected(snapshot)
    moved = [*(e for trace in snapshot["device_traces"] for e in trace), *snapshot["segments"], *(b for s in snapshot["segments"] for b in s["blocks"])]
    for item in moved:
        key = "addr" if "addr" in item else "address"
        item[key] += base - 0x7f0000000000
    assert measured(imported(write(tmp_path / "s.pickle", snapshot, protocol), tmp_path)) == want


def test_bytes_of_protocol_0(tmp_path):
    """As Python 2 wrote all of its texts."""
    plain = pickle.dumps(usual_run().snapshot(), 0)
    old = b"".join(b"S" + repr(line[1:].decode("raw_unicode_escape").encode())[1:].encode() + b"\n" if line.startswith(b"V") else line + b"\n"
                   for line in plain.split(b"\n")).rstrip(b"\n")
    assert b"S'/home/u/train.py'" in old
    (tmp_path / "s.pickle").write_bytes(old)
    (tmp_path / "t.pickle").write_bytes(old.replace(b"S'/home/u/train.py'", b"S\"C:\\\\it's \\xc3\\xbc.py\""))
    for name, file in {"s.pickle": "/home/u/train.py", "t.pickle": "C:/it's ü.py"}.items():
        (tmp_path / "imported.db").unlink(missing_ok=True)
        db = imported(tmp_path / name, tmp_path)
        assert {f for f, in db.execute("SELECT DISTINCT file FROM frame WHERE kind = 1 OR kind = 0")} >= {file}


@pytest.mark.parametrize("last", [None, 1, 7, 100, 299])
@pytest.mark.parametrize("devices", [1, 3])
def test_a_ring_that_begins_in_the_middle(tmp_path, last, devices):
    snapshot = usual_run(seed=devices, devices=devices).snapshot(last)
    assert measured(imported(write(tmp_path / "s.pickle", snapshot), tmp_path)) == expected(snapshot)


def test_lines_and_names(tmp_path):
    run = Run()
    run.segment(0, 1 << 40, 20 * MIB, line=4)
    run.alloc(0, 1 << 40, 5 * MIB, line=11)
    run.alloc(0, (1 << 40) + 6 * MIB, 3 * MIB, line=12)
    run.free(0, 1 << 40, line=13)
    file = write(tmp_path / "s.pickle", run.snapshot())
    peak = json.loads(gpuspy("report", "--json", "--native", file).stdout)["peak"]
    tensors = next(p for p in peak if p["layer"] == "tensor")
    assert [(s["bytes"], s["site"]["line"], s["site"]["function"]) for s in tensors["by_line"]] == \
        [(5 * MIB, 11, "train"), (3 * MIB, 12, "train")]
    db = imported(file, tmp_path)
    names = {tuple(r) for r in db.execute("SELECT kind, function, file, line FROM frame")}
    assert (1, "at::native::empty_cuda", None, None) in names
    assert (1, NAMED_CPP["name"], NAMED_CPP["filename"], 77) in names
    assert (0, "train", "/home/u/train.py", 11) in names
    assert {f for f, in db.execute("SELECT function FROM stack s JOIN frame f ON f.id = s.frame_id WHERE parent_id IS NULL")} == \
        {"<module>"}
    freed = db.execute("SELECT f.line FROM allocation a JOIN stack s ON s.id = a.free_stack_id JOIN stack p ON p.id = "
                       "s.parent_id JOIN stack q ON q.id = p.parent_id JOIN frame f ON f.id IN (s.frame_id, p.frame_id, "
                       "q.frame_id) WHERE a.bytes = ? AND a.layer = 1 AND f.line = 13", (5 * MIB,)).fetchall()
    assert freed


@pytest.mark.parametrize("file, is_module", [
    ("/opt/torch/lib/libtorch_cpu.so", True), ("/usr/lib/libcudart.so.12", True), ("/usr/bin/python3.11", True), ("/usr/bin/python", True),
    ("C:\\\\torch\\\\lib\\\\torch_cpu.dll", True), ("/pytorch/aten/src/ATen/Functions.cpp", False), ("/pytorch/Reduce.cuh", False), ("../c10/alloc.h", False),
    ("/home/u/bin/train", False)])
def test_a_frame_that_names_a_module_has_no_line(tmp_path, file, is_module):
    """PyTorch 2.12 and later: without debugging information, the place in the module stands where a line should"""
    run = Run()
    run.segment(0, 1 << 40, 20 * MIB)
    run.alloc(0, 1 << 40, 5 * MIB, line=11)
    for event in run.traces[0]:
        event["frames"] = [frame(83934254, "AddmmBackward0::apply", file)]
    file = write(tmp_path / "s.pickle", run.snapshot())
    db = imported(file, tmp_path)
    found = db.execute("SELECT f.line IS NULL, f.module_id IS NOT NULL, f.function FROM frame f WHERE kind = 1").fetchall()
    assert (is_module, is_module, "AddmmBackward0::apply") in found, found
    assert ("83934254" in gpuspy("tree", "--native", file).stdout) != is_module


def test_paths_of_windows(tmp_path):
    """Their folders are shortened, and their installed packages are libraries, as anywhere else."""
    run = Run()
    run.segment(0, 1 << 40, 60 * MIB)
    run.alloc(0, 1 << 40, 5 * MIB, line=11)
    project = "D:\\me\\" + "a_long_name_of_a_folder\\" * 4
    snapshot = run.snapshot()
    snapshot["device_traces"][0][-1]["frames"] = [frame(373, "einsum", project + ".venv\\Lib\\site-packages\\torch\\functional.py"),
                                                 frame(11, "train", project + "train.py")]
    file = write(tmp_path / "s.pickle", snapshot)
    assert re.search(r" …\S*/train\.py:11 ", gpuspy("report", file).stdout.replace("train.py:11\n", "train.py:11 "))
    assert "train.py:11 train → functional.py:373 einsum" in gpuspy("tree", file).stdout


def test_an_out_of_memory(tmp_path):
    run = Run()
    run.segment(0, 1 << 40, 60 * MIB, line=4)
    run.alloc(0, 1 << 40, 50 * MIB, line=11)
    run.oom(0, 30 * MIB, 9 * MIB, line=12)
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)
    oom = report["oom"][0]
    assert oom["requested_bytes"] == 30 * MIB and oom["free_bytes"] == 9 * MIB and oom["total_bytes"] is None
    assert oom["stack"]["site"]["line"] == 12 if "stack" in oom and "site" in oom["stack"] else True
    text = gpuspy("report", "--full", tmp_path / "s.pickle").stdout
    assert "OUT OF MEMORY on GPU 0" in text and "with 9.00 MiB free, at train.py:12" in text


def test_one_that_continues_is_not_fatal(tmp_path):
    run = Run()
    run.segment(0, 1 << 40, 60 * MIB)
    run.oom(0, 30 * MIB, 9 * MIB, line=12)
    run.alloc(0, 1 << 40, 30 * MIB, line=12)
    text = gpuspy("report", "--full", write(tmp_path / "s.pickle", run.snapshot())).stdout
    assert "OUT OF MEMORY" not in text


def test_pages_of_expandable_segments(tmp_path):
    run = Run()
    base = 1 << 41
    run.event(0, "segment_map", base, 60 * MIB, 3)
    run.event(0, "segment_unmap", base + 20 * MIB, 20 * MIB, 4)
    run.event(0, "segment_map", base + 20 * MIB, 40 * MIB, 5)  # 20 MiB of it were already mapped
    run.event(0, "segment_unmap", base + 40 * MIB, 20 * MIB, 6)
    run.segments[0, base] = 40 * MIB, []
    db = imported(write(tmp_path / "s.pickle", run.snapshot(expandable=True)), tmp_path)
    live = db.execute("SELECT sum(bytes) FROM allocation WHERE layer = 0 AND free_ns IS NULL").fetchone()[0]
    assert live == 40 * MIB


def test_data_missing_in_a_snapshot_is_unknown(tmp_path):
    file = write(tmp_path / "s.pickle", usual_run(timed=False).snapshot())
    bare = usual_run().snapshot()
    bare["device_traces"] = [[]]
    write(tmp_path / "bare.pickle", bare)
    write(tmp_path / "list.pickle", bare["segments"])
    text = gpuspy("report", file)
    assert "times unknown, " in text.stdout and "no waits, copies or times" in " ".join(text.stdout.split())
    for name in "bare.pickle", "list.pickle":
        assert "Whether memory ran out is unknown" in gpuspy("report", tmp_path / name).stdout
        assert "unknown: this PyTorch snapshot has no history of" in gpuspy("tree", "--what", "oom", tmp_path / name, code=1).stderr
    assert "unknown" in gpuspy("tree", "--what", "waits", file, code=1).stderr
    assert "unknown" in gpuspy("tree", "--what", "copies", file, code=1).stderr
    for gate in "--max-syncs-per-step=1", "--max-blocked-share=1%", "--max-copies-per-step=1", "--max-h2d-per-step=1B":
        assert "cannot be judged: a PyTorch snapshot does not record" in " ".join(gpuspy("check", gate, file, code=1).stdout.split())


def test_moments_of_a_history_without_times_are_numbers_of_entries(tmp_path):
    """No view shows a time."""
    timeless = usual_run(timed=False)
    timeless.oom(0, 900 * MIB, 1, line=17)
    file = write(tmp_path / "s.pickle", timeless.snapshot())
    n = len(timeless.traces[0])
    for words in ("report", "--full"), ("timeline",), ("tree",), ("stats",), ("leaks",), ("table",), ("whatif",), ("diff", file), ("report", "--card", tmp_path / "c.svg"), ("report", "--html", tmp_path / "p.html"):
        text = gpuspy(*words, file).stdout
        assert not re.search(r"\d (ns|us|ms|s|min)\b", text), text
    assert f"at {n:,} entries" in gpuspy("report", file).stdout
    card = (tmp_path / "c.svg").read_text()
    assert f"{n:,} entries" in card and not re.search(r"\d (ns|us|ms|s|min)<", card)
    timed = write(tmp_path / "timed.pickle", usual_run().snapshot())
    assert "entries" not in gpuspy("diff", timed, timed).stdout
    report = json.loads(gpuspy("report", "--json", file).stdout)
    assert {p["pid"] for p in report["peak"]} == {None} and report["oom"][0]["entry"] == n
    assert set(re.findall(r'"\w+_s": (\S+?),?$', json.dumps(report, indent=1), re.M)) == {"null"}


@pytest.mark.parametrize("moment", [True, False])
def test_top_shows_no_rates_that_a_snapshot_lacks(tmp_path, moment):
    """What was live before the history did not grow in it, and a moment or a history without times has no rates."""
    snapshot = usual_run(timed=moment).snapshot()
    if moment:
        snapshot["device_traces"] = [[]]
    file = write(tmp_path / "s.pickle", snapshot)
    text = gpuspy("top", file).stdout
    head, rows = text.split("memory by line", 1)
    assert "PyTorch snapshot" in head and " in 0 s" not in head and not re.search(r"\d (us|ms|s)\b", head), text
    rows = [line.split() for line in rows.splitlines()[2:] if line]
    assert rows and all(row.count("?") >= 2 for row in rows), text
    top = json.loads(gpuspy("top", "--json", file).stdout)
    process = top["processes"][0]
    for key in "pid", "time_s", "allocations_per_s", "copies_per_s", "syncs_per_s", "blocked_share":
        assert process[key] is None, (key, process[key])
    assert {line["change_bytes"] for line in top["lines"]} == {line["allocations_per_s"] for line in top["lines"]} == {None}
    for table, word in ("syncs", "waits"), ("copies", "copies"):
        assert f"{word} are unknown" in gpuspy("top", "--table", table, file).stdout


def test_what_snapshots_lack_has_no_figures(tmp_path):
    """Of several processes, and beside a recording that has it: not 0 s and 0 B."""
    files = [write(tmp_path / f"rank{rank}.pickle", usual_run(rank).snapshot()) for rank in range(2)]
    text = gpuspy("report", *files).stdout
    assert "Ranks: 2" in text or "Processes: 2" in text
    assert "waited" not in text and "copied" not in text
    report = json.loads(gpuspy("report", "--json", *files).stdout)
    for rank in report["ranks"]:
        assert [rank[key] for key in ("blocked_s", "waits", "waited_s", "copies", "copied_bytes")] == [None] * 5
    assert not report["rank_spread"].keys() & {"waited_s", "waits", "copied_bytes", "copies"} and report["sync_share"] is None
    trace = tmp_path / "trace.json"
    trace.write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1, "tid": 1, "ts": 10, "dur": 5, "args": {"correlation": 1}},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "pid": 0, "tid": 7, "ts": 11, "dur": 3,
         "args": {"correlation": 1, "bytes": 1 << 20, "device": 0, "stream": 7}}]}))
    copied = json.loads(gpuspy("diff", "--json", files[0], trace).stdout)["figures"]["copied_bytes"]
    assert copied["before"] is None and copied["after"] == MIB


def test_a_card_names_lines_as_the_report_does(tmp_path):
    run = usual_run()
    for event in run.traces[0]:
        event["frames"] = [frame(7, "train", "C:\\src\\train.py")] if event["addr"] % (2 * MIB) else []
    file = write(tmp_path / "s.pickle", run.snapshot())
    gpuspy("report", "--card", tmp_path / "c.svg", file)
    card = (tmp_path / "c.svg").read_text()
    assert "(no stack recorded)" in card and ":0" not in card


VIEWS = [("report",), ("report", "--html", "out.html"), ("tree",), ("timeline",), ("leaks",), ("stats",), ("table",), ("flame",),
         ("check", "--max-peak", "1TiB"), ("export",), ("export", "--format", "chrome-trace"), ("sql",)]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_reading_command_takes_the_file_itself(tmp_path, view):
    write(tmp_path / "s.pickle.gz", usual_run().snapshot())
    (tmp_path / "temporary").mkdir()
    query = ["SELECT count(*) FROM allocations"] if view == ("sql",) else []
    gpuspy(*view, "s.pickle.gz", *query, cwd=tmp_path, TMPDIR=str(tmp_path / "temporary"))
    assert not list((tmp_path / "temporary").iterdir())


@pytest.mark.parametrize("requested, free, capped", [(8, 18, False), (8, 21, True), (0.5, 1, False), (31, 31, False), (31, 500, True)])
def test_pytorch_refuses_only_if_the_segment_would_have_fitted(tmp_path, requested, free, capped):
    """For 8 MiB it requests 20 MiB from CUDA, which a snapshot does not state."""
    run = Run()
    run.segment(0, 1 << 40, 60 * MIB, line=9)
    run.alloc(0, 1 << 40, 60 * MIB, line=9)
    run.oom(0, int(requested * MIB), free * MIB, line=12)
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)
    assert (report["oom"][0]["cause"] == "allocator_cap") == capped, report["oom"][0]
    segment = {8: " (20.00 MiB from CUDA)", 0.5: " (2.00 MiB from CUDA)", 31: " (32.00 MiB from CUDA)"}[requested]
    size = "512.00 KiB" if requested < 1 else f"{requested}.00 MiB"
    said = f"Request {size}{'' if capped else segment}, with {free}.00 MiB"
    assert said in gpuspy("report", "s.pickle", cwd=tmp_path).stdout


@pytest.mark.parametrize("requested, free, capped", [(12, 14, False), (12, 21, True), (0.5, 1, False), (30, 39, False), (30, 41, True)])
def test_an_expandable_segment_grows_by_whole_pages(tmp_path, requested, free, capped):
    run = Run()
    run.event(0, "segment_map", 1 << 41, 60 * MIB, 3)
    run.alloc(0, 1 << 41, 60 * MIB, line=9)
    run.segments[0, 1 << 41] = 60 * MIB, []
    run.oom(0, int(requested * MIB), free * MIB, line=12)
    snapshot = run.snapshot(expandable=True)
    snapshot["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", snapshot)).stdout)
    assert (report["oom"][0]["cause"] == "allocator_cap") == capped, report["oom"][0]


def test_a_comprehension_is_part_of_its_function(tmp_path):
    """Before Python 3.12, a frame of its own, which need not be next to its caller's in a stack with C++"""
    run = Run()
    run.segment(0, 1 << 40, 60 * MIB, line=9)
    run.alloc(0, 1 << 40, 60 * MIB, line=9)
    run.blocks[0, 1 << 40][1][:] = [CPP, frame(9, "<listcomp>"), NAMED_CPP, frame(9, "load"), frame(20, "<module>")]
    text = gpuspy("report", write(tmp_path / "s.pickle", run.snapshot())).stdout
    assert "train.py:9  load" in text and "listcomp" not in text, text


@pytest.mark.parametrize("requested, free, cause", [(8000, 2000, "oversized_request"), (2050, 2000, "capacity"), (8000, 200, "capacity"),
                                                    (300, 200, "capacity")])
def test_a_request_larger_than_all_that_it_could_get(tmp_path, requested, free, cause):
    """A snapshot does not state the size of the GPU. If little is free, other processes may hold most of it."""
    run = Run()
    run.segment(0, 1 << 40, 60 * MIB, line=9)
    run.alloc(0, 1 << 40, 60 * MIB, line=9)
    run.oom(0, requested * MIB + 513, free * MIB, line=12)
    oom = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)["oom"][0]
    assert oom["cause"] == cause and ("1.95 GiB free and 60.00 MiB" in oom["verdict"]) == (cause != "capacity"), oom
    if requested == 8000:
        assert "Request 7.81 GiB, with" in gpuspy("report", "s.pickle", cwd=tmp_path).stdout


def test_every_segment_of_a_snapshot_is_pytorchs(tmp_path):
    """Also those without stacks and blocks, and those with frames that do not name the allocator."""
    run = Run()
    run.segment(0, 1 << 40, 20 * MIB)
    run.traces[0][-1]["frames"] = [frame(4711, "??", "/x/site-packages/torch/lib/libtorch_cuda.so"),
                                   frame(815, "at::native::empty_strided_cuda", "/x/site-packages/torch/lib/libtorch_cuda.so")]
    run.segment(0, 2 << 40, 40 * MIB)
    run.segment(0, 3 << 40, 80 * MIB)
    run.alloc(0, 1 << 40, 5 * MIB, line=9)
    run.alloc(0, 2 << 40, 6 * MIB, line=9)
    for last in None, 2:
        report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot(last))).stdout)
        assert {a["reserved_bytes"] for a in report["allocator"] if a["moment"] == "end"} == {140 * MIB}


def test_two_snapshots_side_by_side(tmp_path):
    first, second = Run(), Run()
    for run, size in (first, 5), (second, 9):
        run.segment(0, 1 << 40, 20 * MIB)
        run.alloc(0, 1 << 40, size * MIB, line=30)
    write(tmp_path / "a.pickle", first.snapshot())
    write(tmp_path / "b.pickle", second.snapshot())
    text = gpuspy("diff", "a.pickle", "b.pickle", cwd=tmp_path).stdout
    assert "+4.00 MiB" in text and "train.py:30" in text


def test_export_writes_the_same_events(tmp_path):
    snapshot = usual_run(devices=2).snapshot()
    gpuspy("import", write(tmp_path / "s.pickle", snapshot), cwd=tmp_path)
    gpuspy("export", "s.db", "--at", "end", "-o", "again.pickle", cwd=tmp_path)
    again = pickle.loads((tmp_path / "again.pickle").read_bytes())

    def events(s, device):
        return [(e["action"], e["addr"], rounded(e["size"]), e["time_us"] - s["device_traces"][0][0]["time_us"])
                for e in s["device_traces"][device] if e["action"] in ("alloc", "free_requested", "segment_alloc")]
    for device in 0, 1:
        assert [e[:3] for e in events(again, device)] == [e[:3] for e in events(snapshot, device)]
    blocks = [{(b["address"], b["size"]) for x in s["segments"] for b in x["blocks"] if b["state"] == "active_allocated"}
              for s in (snapshot, again)]
    assert blocks[0] == blocks[1]


BASE = 1 << 40


def waiting_run():
    """One block waits for a while, one until after the end; one is freed at once."""
    run = Run()
    run.segment(0, BASE, 60 * MIB)
    for k, size in enumerate((5, 7, 9)):
        run.alloc(0, BASE + 20 * k * MIB, size * MIB, line=10 + k)
    run.request_free(0, BASE)
    run.alloc(0, BASE + 10 * MIB, MIB, line=20)
    run.complete_free(0, BASE)
    run.free(0, BASE + 10 * MIB)
    run.request_free(0, BASE + 20 * MIB)
    run.alloc(0, BASE + MIB, 3 * MIB, line=21)
    return run


def test_memory_that_another_stream_still_uses(tmp_path):
    snapshot = waiting_run().snapshot()
    db = imported(write(tmp_path / "s.pickle", snapshot), tmp_path)
    assert measured(db) == expected(snapshot)
    waits = db.execute("SELECT a.address, a.bytes, p.done_ns - p.free_ns FROM pending_free p JOIN allocation a ON a.id = "
                       "p.allocation_id ORDER BY p.id").fetchall()
    assert waits == [(BASE, 5 * MIB, 20_000), (BASE + 20 * MIB, 7 * MIB, None)]
    allocator = json.loads(gpuspy("report", "--json", tmp_path / "s.pickle").stdout)["allocator"]
    end = next(a for a in allocator if a["moment"] == "end")
    assert (end["allocated_bytes"], end["pending_bytes"], end["active_bytes"], end["reserved_bytes"]) == \
        (12 * MIB, 7 * MIB, 19 * MIB, 60 * MIB)


@pytest.mark.parametrize("last", range(1, 14))
def test_a_ring_that_begins_while_memory_waits(tmp_path, last):
    snapshot = waiting_run().snapshot(last)
    db = imported(write(tmp_path / "s.pickle", snapshot), tmp_path)
    assert measured(db) == expected(snapshot)
    ends = db.execute("SELECT count(*) FROM pending_free WHERE done_ns IS NULL").fetchone()[0]
    assert ends == 1  # the one that the snapshot lists as pending


def test_frees_without_their_completion_are_frees(tmp_path):
    """Other writers of the format omit free_completed."""
    snapshot = usual_run().snapshot()
    snapshot["device_traces"] = [[e for e in t if e["action"] != "free_completed"] for t in snapshot["device_traces"]]
    db = imported(write(tmp_path / "s.pickle", snapshot), tmp_path)
    assert measured(db) == expected(snapshot)
    assert db.execute("SELECT count(*) FROM pending_free").fetchone()[0] == 0


def test_a_history_with_only_frees(tmp_path):
    run = Run()
    run.segment(0, BASE, 60 * MIB)
    for k in range(3):
        run.alloc(0, BASE + 20 * k * MIB, (5 + k) * MIB, line=10 + k)
    for k in range(2):
        run.free(0, BASE + 20 * k * MIB, line=30)
    snapshot = run.snapshot(last=4)
    assert measured(imported(write(tmp_path / "s.pickle", snapshot), tmp_path)) == expected(snapshot)
    assert expected(snapshot)[0]["before"] == 18 * MIB


def test_totals_that_differ_are_shown(tmp_path):
    snapshot = usual_run().snapshot()
    file = write(tmp_path / "s.pickle", snapshot)
    assert "stated" not in gpuspy("report", "--full", file).stdout
    segment = snapshot["segments"][0]
    allocated = segment["allocated_size"]
    segment["allocated_size"] += 512
    segment["active_size"] -= 1024
    write(file, snapshot)
    line = (f"in 1 of 1 segments, the stated totals differ from the sums of their blocks: allocated {allocated + 512} bytes stated, "
            f"{allocated} computed; active {allocated - 1024} bytes stated, {allocated} computed")
    assert line in " ".join(gpuspy("report", "--full", file).stdout.split())
    assert line in json.loads(gpuspy("report", "--json", file).stdout)["run"]["notes"]


def test_annotations_are_marks(tmp_path):
    snapshot = usual_run().snapshot(400)
    events = snapshot["device_traces"][0]
    at = [e["time_us"] for e in events]

    def note(stage, name, us, device=0):
        return {"stage": stage, "name": name, "device": device, "time_us": us}
    snapshot["external_annotations"] = [
        note("START", "gone", at[0] - 50), note("END", "gone", at[0] - 20), note("START", "before", at[0] - 10),
        note("END", "stray", at[3]), note("START", "step", at[5]), note("END", "before", at[7]), note("END", "step", at[20]),
        note("START", "step", at[30], 1), note("END", "step", at[30] + 5, 1), note("START", "open", at[-1] + 9)]
    db = imported(write(tmp_path / "s.pickle", snapshot), tmp_path)
    marks = db.execute("SELECT n.name, m.start_ns / 1000, round(m.life_ns / 1000.0) FROM mark m JOIN mark_name n ON n.id = m.name "
                       "ORDER BY m.id").fetchall()
    assert [(n, start - 1 + at[0], life) for n, start, life in marks] == \
        [("before", at[0], at[7] - at[0]), ("step", at[5], at[20] - at[5]), ("step", at[30], 5), ("open", at[-1] + 9, None)]


def test_private_pools(tmp_path):
    run = Run()
    for k in range(3):
        run.segment(0, BASE + 20 * k * MIB, 20 * MIB)
        run.alloc(0, BASE + 20 * k * MIB, (2 + k) * MIB, line=10 + k)
        run.alloc(0, BASE + (20 * k + 10) * MIB, MIB, line=20 + k)
        run.free(0, BASE + (20 * k + 10) * MIB)
    snapshot = run.snapshot()
    snapshot["segments"][1]["segment_pool_id"] = (0, 3)
    for event in snapshot["device_traces"][0]:  # the form that PyTorch has written since 2.10
        if BASE + 40 * MIB <= event["addr"]:
            event["pool_id"] = (1, 0)
    db = imported(write(tmp_path / "s.pickle", snapshot), tmp_path)
    spaces = db.execute("SELECT (address - ?) / ?, space FROM allocation WHERE layer = 1", (BASE, 20 * MIB)).fetchall()
    assert {k for k, space in spaces if space == 3} == {1, 2} and {k for k, space in spaces if space != 3} == {0, 2}
    text = " ".join(gpuspy("report", "--full", tmp_path / "s.pickle").stdout.split())
    assert "20.00 MiB reserved in private pools, 3.00 MiB of it in tensors" in text


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("ids", [True, False])
def test_the_replay_keeps_private_pools_apart(tmp_path, before, ids):
    """Free memory in one private pool is not used for another."""
    run = Run()
    for k in range(2 * before):
        run.segment(0, BASE + 20 * k * MIB, 20 * MIB)
    for k in range(2):
        if not before:
            run.segment(0, BASE + 20 * k * MIB, 20 * MIB)
        run.alloc(0, BASE + 20 * k * MIB, 2 * MIB, line=10 + k)
        run.free(0, BASE + 20 * k * MIB)
    run.alloc(0, BASE + 20 * MIB, 3 * MIB, line=30)
    run.alloc(0, BASE, 4 * MIB, line=40)
    snapshot = run.snapshot()
    del snapshot["device_traces"][0][: 2 * before]
    pools = [(0, 3), (7, 0)]
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = pools[(segment["address"] - BASE) // (20 * MIB)]
    for event in snapshot["device_traces"][0]:
        if ids:
            event["pool_id"] = pools[(event["addr"] - BASE) // (20 * MIB)]
    file = write(tmp_path / "s.pickle", snapshot)
    gpuspy("export", "--at", "end", "-o", tmp_path / "again.pickle", file)
    for snapshot in file, tmp_path / "again.pickle":
        replay = json.loads(gpuspy("whatif", "--json", "--limit", "20GiB", snapshot).stdout)["replay"]
        assert replay["exact"], replay


def test_an_export_states_the_pools_of_segments_that_are_gone(tmp_path):
    run = Run()
    for k in range(2):
        run.segment(0, BASE + 20 * k * MIB, 20 * MIB)
        run.alloc(0, BASE + 20 * k * MIB, 2 * MIB, line=10 + k)
        run.free(0, BASE + 20 * k * MIB)
    run.alloc(0, BASE + 20 * MIB, 3 * MIB, line=30)  # the first segment could serve it, if it were of the same pool
    run.free(0, BASE + 20 * MIB)
    run.event(0, "segment_free", BASE + 20 * MIB, 20 * MIB)
    del run.segments[0, BASE + 20 * MIB]
    snapshot = run.snapshot()
    for event in snapshot["device_traces"][0]:
        event["pool_id"] = (0, (event["addr"] - BASE) // (20 * MIB))
    file, again = write(tmp_path / "s.pickle", snapshot), tmp_path / "again.pickle"
    gpuspy("export", "--at", "end", "-o", again, file)
    pools = {event["addr"]: event["pool_id"] for event in pickle.loads(again.read_bytes())["device_traces"][0] if event["action"] == "alloc"}
    assert pools == {BASE: (0, 0), BASE + 20 * MIB: (0, 1)}


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_the_cache_of_pinned_memory(tmp_path, nested, first):
    run, host = usual_run(), Run()
    host.segment(0, 1 << 42, 4 * MIB, line=3)
    host.alloc(0, 1 << 42, 4 * MIB, line=3)
    host.segment(0, 2 << 42, 512, line=4)
    host.alloc(0, 2 << 42, 512, line=4)
    host.free(0, 1 << 42)
    snapshot, pinned = run.snapshot(), host.snapshot()
    for segment in pinned["segments"]:
        segment["device"] = -1
        segment["requested_size"] = segment["total_size"]  # also of a segment that is free
    traces = pinned["device_traces"] if nested else pinned["device_traces"][0]
    more = {"host_segments": pinned["segments"], "host_traces": traces}
    file = write(tmp_path / "s.pickle", {**more, **snapshot} if first else {**snapshot, **more})
    db = imported(file, tmp_path)
    rows = db.execute("SELECT layer, space, bytes, free_ns IS NULL FROM allocations WHERE device = -1 ORDER BY id").fetchall()
    assert rows == [("device", "pinned", 4 * MIB, 1), ("host", "host", 4 * MIB, 0), ("device", "pinned", 512, 1),
                    ("host", "host", 512, 1)]
    gpu = {d: f for d, f in measured(db).items() if d >= 0}
    assert gpu == expected(snapshot)
    text = gpuspy("report", "--full", file).stdout
    assert "Pinned host memory" in text and "train.py:3" in text and "stated" not in text


def test_what_old_versions_leave_out(tmp_path):
    """1.13: only the list of segments; blocks have no address or requested size, and a history instead of frames."""
    snapshot = usual_run().snapshot()
    for segment in snapshot["segments"]:
        for key in "segment_pool_id", "is_expandable", "frames", "requested_size":
            del segment[key]
        for block in segment["blocks"]:
            del block["address"], block["requested_size"]
            frames = block.pop("frames")
            if block["state"] != "inactive":
                block["history"] = [{"addr": 1, "real_size": block["size"], "frames": frames}]
    db = imported(write(tmp_path / "list.pickle", snapshot["segments"]), tmp_path)
    assert measured(db)[0]["end"] == snapshot["segments"][0]["allocated_size"]
    lines = db.execute("SELECT count(DISTINCT f.line) FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id JOIN stack p "
                       "ON p.id = s.parent_id JOIN stack q ON q.id = p.parent_id JOIN frame f ON f.id = q.frame_id").fetchone()[0]
    assert lines == 7
    text = gpuspy("report", tmp_path / "list.pickle").stdout
    assert "stated" not in text and "Damaged" not in text


def test_without_a_history_nothing_is_claimed_of_it(tmp_path):
    bare = usual_run().snapshot()
    bare["device_traces"] = [[]]
    file = write(tmp_path / "s.pickle", bare)
    text = gpuspy("report", "--full", file).stdout
    assert "live in" in text and "peak unknown" in text
    assert "at the peak" not in text and "Never freed" not in text and "over the run" not in text
    assert "\nthe state at one moment\n" in text and "event" not in text.partition("Next")[0]
    assert "gpuspy cannot judge which memory leaks" in " ".join(gpuspy("leaks", file).stdout.split())


def test_a_segment_without_blocks_is_reserved_at_one_moment(tmp_path):
    """Wherever its address is: only tensors state what is reserved."""
    run = Run()
    for address, size in (BASE, 40 * MIB), (BASE + 100 * MIB, 20 * MIB), (BASE - 100 * MIB, 8 * MIB):
        run.segment(0, address, size, line=5)
    run.alloc(0, BASE, 30 * MIB, line=7)
    bare = {**run.snapshot(), "device_traces": [[]]}
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", bare)).stdout)
    (f,) = report["fragmentation"]
    assert (f["reserved_bytes"], f["active_bytes"], f["free_bytes"]) == (68 * MIB, 30 * MIB, 38 * MIB), f


def test_an_empty_moment_does_not_show_what_was_allocated_before(tmp_path):
    text = gpuspy("report", write(tmp_path / "s.pickle", {"segments": [], "device_traces": [[]]})).stdout
    assert "no GPU memory was live" in text and "was allocated" not in text


def test_two_moments_are_compared_by_what_was_live(tmp_path):
    files = []
    for name, lines in ("before", 1), ("after", 2):
        bare = usual_run().snapshot()
        bare["device_traces"] = [[]]
        bare["segments"] = bare["segments"][:lines]
        files.append(write(tmp_path / f"{name}.pickle", bare))
    text = gpuspy("diff", *files).stdout
    assert "live tensors" in text and "live CUDA allocations" in text and "peak" not in text, text


def test_a_moment_is_compared_with_the_end_of_a_history(tmp_path):
    """The peak of the moment is unknown: it did not grow or shrink."""
    run = usual_run().snapshot()
    moment = write(tmp_path / "moment.pickle", {**run, "device_traces": [[]]})
    history = write(tmp_path / "run.pickle", run)
    for files in (moment, history), (history, moment):
        text = " ".join(gpuspy("diff", *files).stdout.split())
        assert re.match(r"Memory live at the end is the same", text) and "gpuspy compares the memory live at the end" in text, text
        assert not re.search(r"peak of tensors (grew|shrank|is the same)", text), text
        row = next(line for line in gpuspy("diff", *files).stdout.splitlines() if "peak of tensors" in line)
        assert "?" in row.split(), row
        figures = json.loads(gpuspy("diff", "--json", *files).stdout)["figures"]
        assert None in (figures["peak_tensor_bytes"]["before"], figures["peak_tensor_bytes"]["after"])
        assert figures["end_tensor_bytes"]["change"] == 0
        for what in "waits", "copies", "allocated", "oom":
            verdict = json.loads(gpuspy("diff", "--json", "--what", what, *files).stdout)
            assert "unknown" in verdict["verdict"] and verdict["rows"] == [] and verdict["total"]["change"] is None, verdict


@pytest.mark.parametrize("action", ["free_completed", "snapshot"])
def test_a_single_event_is_not_a_history(tmp_path, action):
    snapshot = usual_run().snapshot()
    snapshot["device_traces"] = [[{"action": action, "addr": 0x7f0000000000, "size": 512, "stream": 0, "frames": [], "time_us": 5}]]
    text = gpuspy("report", "--full", write(tmp_path / "s.pickle", snapshot)).stdout
    assert "Whether memory ran out is unknown" in text and "peak unknown" in text and "Memory did not run out" not in text


def test_a_recording_that_ends_is_not_a_program_that_ends(tmp_path):
    run = usual_run()
    for words in ("report", "--full"), ("leaks",):
        text = gpuspy(*words, write(tmp_path / "s.pickle", run.snapshot())).stdout
        assert "live at the end of the recording" in text.lower() and "never freed" not in text.lower()
    run.oom(0, 1 << 40, MIB, line=3)
    text = gpuspy("leaks", write(tmp_path / "s.pickle", run.snapshot())).stdout
    assert "when the program ended" not in text


def test_blocks_without_a_stack_are_not_gradients(tmp_path):
    """They existed before the history, so their stacks were not recorded."""
    run = Run()
    run.segment(0, BASE, 200 * MIB)
    run.alloc(0, BASE, 100 * MIB, line=1)
    snapshot = run.snapshot()
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            block["frames"] = []
    snapshot["device_traces"] = [[]]
    kinds = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", snapshot)).stdout)["peak"][0]["by_category"]
    assert "gradients" not in kinds


AUTOGRAD = [frame(0, name, "??") for name in
            ("torch::unwind::unwind()", "torch::CapturedTraceback::gather(bool, bool, bool)",
             "c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc(unsigned long)", "at::detail::empty_cuda()",
             "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)", "torch::autograd::Engine::thread_main()",
             "clone3")]


def test_operations_of_autograd_are_named(tmp_path):
    run = Run()
    run.segment(0, BASE, 20 * MIB)
    run.alloc(0, BASE, 5 * MIB, line=1)
    snapshot = run.snapshot()
    snapshot["device_traces"][0][-1]["frames"] = snapshot["segments"][0]["blocks"][0]["frames"] = AUTOGRAD
    text = gpuspy("report", "--full", write(tmp_path / "s.pickle", snapshot)).stdout
    assert "AddmmBackward0" in text and "unwind" not in text


def autograd_snapshot(frames, **more):
    run = Run()
    run.segment(0, BASE, 20 * MIB)
    run.alloc(0, BASE, 5 * MIB, line=1)
    snapshot = run.snapshot()
    for item in snapshot["device_traces"][0][-1], snapshot["segments"][0]["blocks"][0]:
        item |= {"frames": frames, **more}
    return snapshot


@pytest.mark.parametrize("view", ["tree", "flame", "table"])
def test_every_view_names_the_operation(tmp_path, view):
    lines = gpuspy(view, write(tmp_path / "s.pickle", autograd_snapshot(AUTOGRAD))).stdout.splitlines()
    named = [line for line in lines if "5.00 MiB" in line and "Live at" not in line]
    assert len(named) == 1 and "AddmmBackward0" in named[0] and "vector" not in named[0]
    if view == "tree":
        assert "thread_main" in gpuspy(view, "--native", "--full", tmp_path / "s.pickle").stdout


FORWARD = ['  File "/home/u/train.py", line 15, in <module>\n    loss = model(x).sum()\n',
           '  File "/usr/lib/python3/site-packages/torch/nn/modules/module.py", line 1790, in _call_impl\n    return forward_call(*args)\n',
           '  File "/home/u/model.py", line 9, in forward\n    return self.b(h)\n           ^^^^^^^^^\n']


@pytest.mark.parametrize("frames", [AUTOGRAD, []], ids=["native", "python"])
def test_what_backward_allocates_is_of_a_line_of_the_forward_pass(tmp_path, frames):
    """PyTorch 2.11 under detect_anomaly(); with stacks="python", the thread itself has no frames."""
    file = write(tmp_path / "s.pickle", autograd_snapshot(frames, forward_frames=FORWARD))
    peak = next(p for p in json.loads(gpuspy("report", "--json", file).stdout)["peak"] if p["layer"] == "tensor")
    assert peak["by_category"] == {"gradients": 5 * MIB}
    names = [(f["function"], f["line"]) for f in peak["by_stack"][0]["frames"] if f["kind"] == "python"]
    assert names == [("_engine_run_backward", None), ("forward", 9), ("_call_impl", 1790), ("<module>", 15)]
    text = gpuspy("report", file).stdout
    assert "/home/u/model.py:9" in text and "train.py:15" in text
    assert ("backward → AddmmBackward0" in text) == bool(frames)


@pytest.mark.parametrize("forward", [["model.py:9:f"], [None, 7], "text", []])
def test_a_forward_pass_that_cannot_be_read_is_left_out(tmp_path, forward):
    plain = write(tmp_path / "plain.pickle", autograd_snapshot(AUTOGRAD))
    other = write(tmp_path / "other.pickle", autograd_snapshot(AUTOGRAD, forward_frames=forward))
    assert gpuspy("table", other).stdout == gpuspy("table", plain).stdout


def test_the_line_of_backward_is_kept_where_it_is_known(tmp_path):
    own = [frame(841, "_engine_run_backward", "/usr/lib/python3/site-packages/torch/autograd/graph.py"), frame(16, "<module>")]
    text = gpuspy("report", write(tmp_path / "s.pickle", autograd_snapshot(own, forward_frames=FORWARD))).stdout
    assert "train.py:16" in text and "model.py" not in text


def test_the_first_step_of_an_optimizer_is_not_growth(tmp_path):
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    stack = [frame(76, "step", "/home/u/optimizer.py"), frame(533, "wrapper", "/usr/lib/python3/site-packages/torch/optim/optimizer.py"),
             frame(145, "main", "/home/u/train.py")]
    for k in range(200):
        run.alloc(0, BASE + k * 2 * MIB, MIB, line=1)
        run.blocks[0, BASE + k * 2 * MIB] = MIB, stack
        run.traces[0][-1]["frames"] = stack
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)
    assert report["growth"] == []


def report_of_stacks(tmp_path, stacks):
    """Each allocates a MiB, and all are freed at the end."""
    run = Run()
    run.segment(0, BASE, 800 * MIB)
    for k, stack in enumerate(stacks):
        run.alloc(0, BASE + k * MIB, MIB, line=1)
        run.blocks[0, BASE + k * MIB] = MIB, stack
        run.traces[0][-1]["frames"] = stack
    for k in range(len(stacks)):
        run.free(0, BASE + k * MIB, line=2)
    return json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)


def test_an_optimizer_may_replace_its_state(tmp_path):
    """m = beta * m + (1 - beta) * grad in each step: the new m lives until the next step."""
    call = frame(1790, "_call_impl", "/usr/lib/python3/site-packages/torch/nn/modules/module.py")
    model = [frame(9, "forward", "/home/u/model.py"), call, frame(140, "train"), frame(200, "<module>")]
    step = [frame(51, "step", "/home/u/adam.py"), frame(493, "wrapper", "/usr/lib/python3/site-packages/torch/optim/optimizer.py"),
            frame(144, "train"), frame(200, "<module>")]
    run = Run()
    run.segment(0, BASE, 100 * MIB)

    def alloc(at, stack):
        run.alloc(0, BASE + at * MIB, 4 * MIB, line=1)
        run.blocks[0, BASE + at * MIB] = 4 * MIB, stack
        run.traces[0][-1]["frames"] = stack

    def free(at, stack):
        run.free(0, BASE + at * MIB, line=1)
        for event in run.traces[0][-2:]:
            event["frames"] = stack
    for k in range(8):
        alloc(0, model)
        free(0, model)
        alloc(20 + 4 * (k % 2), step)
        alloc(40, [frame(52, "step", "/home/u/adam.py"), *step[1:]])
        if k:
            free(20 + 4 * ((k + 1) % 2), step)
        free(40, step)
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)
    tensors = next(p for p in report["peak"] if p["layer"] == "tensor")
    assert tensors["bytes"] == 12 * MIB
    assert tensors["by_category"]["optimizer_state"] == 8 * MIB and tensors["by_category"]["temporaries"] == 4 * MIB


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("lines", [[64], [63, 64]], ids=["one line", "decay in a second line"])
def test_an_optimizer_may_replace_the_parameters(tmp_path, lines, native):
    """p.data = p.data - lr * m, as in lecture notes: the new block is a parameter, m is state. Frames of C++ lie between
    those of Python, except with stacks="python"."""
    def stack(*frames):
        return [part for f in frames for part in ((f, frame(0, "_PyEval_EvalFrameDefault", "??")) if native else (f,))]
    call = frame(1790, "_call_impl", "/usr/lib/python3/site-packages/torch/nn/modules/module.py")
    wrapper = frame(493, "wrapper", "/usr/lib/python3/site-packages/torch/optim/optimizer.py")
    model = stack(frame(9, "forward", "/home/u/model.py"), call, frame(140, "train"))
    built = stack(frame(5, "__init__", "/home/u/model.py"), frame(130, "train"))
    run, free_at = Run(), list(range(90, -1, -10))
    run.segment(0, BASE, 100 * MIB)

    def alloc(frames, line=None):
        at = free_at.pop()
        run.alloc(0, BASE + at * MIB, 4 * MIB, line=1)
        run.traces[0][-1]["frames"] = frames = step(line) if line else frames
        run.blocks[0, BASE + at * MIB] = 4 * MIB, frames
        return at

    def free(at, frames):
        run.free(0, BASE + at * MIB, line=1)
        for event in run.traces[0][-2:]:
            event["frames"] = frames
        free_at.append(at)

    def step(line):
        return stack(frame(line, "step", "/home/u/adam.py"), wrapper, frame(144, "train"))
    parameter, m = alloc(built), alloc(stack(frame(28, "__init__", "/home/u/adam.py"), frame(131, "train")))
    for _ in range(8):
        free(alloc(model), model)
        new = alloc(None, 51)
        free(m, step(50))
        m = new
        for line in lines:
            product = alloc(None, line)
            new = alloc(None, line)
            free(product, step(line))
            free(parameter, step(line))
            parameter = new
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot())).stdout)
    tensors = next(p for p in report["peak"] if p["layer"] == "tensor")
    replaced = 8 if lines == [64] else 4  # with one line, the old and the new one live at the peak
    assert tensors["by_category"] == {"parameters": replaced * MIB, "optimizer_state": 4 * MIB, "temporaries": (12 - replaced) * MIB}
    ends = {row["site"]["line"]: row["category"] for row in json.loads(gpuspy("leaks", "--json", tmp_path / "s.pickle").stdout)["leaks"]}
    assert ends == {51: "optimizer_state", 64: "parameters"}


@pytest.mark.parametrize("file, name, category", [("optim/optimizer.py", "zero_grad", "gradients"), ("optim/adam.py", "step", "optimizer_state"),
                                                  ("serialization.py", "save", "unknown")])
def test_what_frees_memory_of_before_the_recording_shows_its_category(tmp_path, file, name, category):
    run = Run()
    run.segment(0, BASE, 100 * MIB)
    for k in range(4):
        run.alloc(0, BASE + 4 * k * MIB, 4 * MIB, line=1)
        run.blocks[0, BASE + 4 * k * MIB] = 4 * MIB, []
    for k in range(4):
        run.alloc(0, BASE + 50 * MIB, MIB, line=6)
        run.free(0, BASE + 50 * MIB, line=6)
        for event in run.traces[0][-3:]:
            event["frames"] = [frame(9, "forward", "/home/u/model.py"), frame(140, "train")]
        run.free(0, BASE + 4 * k * MIB, line=1)
        for event in run.traces[0][-2:]:
            event["frames"] = [frame(51, name, f"/usr/lib/python3/site-packages/torch/{file}"), frame(144, "train")]
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", run.snapshot(20))).stdout)
    tensors = next(p for p in report["peak"] if p["layer"] == "tensor")
    assert tensors["bytes"] == 17 * MIB and tensors["by_category"][category] == 16 * MIB


def test_the_gradients_of_one_pass_are_not_growth(tmp_path):
    """One operation's threads make those of all parameters."""
    assert report_of_stacks(tmp_path, [AUTOGRAD] * 250)["growth"] == []


@pytest.mark.parametrize("calls", ["with the calls of modules", "without"])
@pytest.mark.parametrize("passes", [1, 2])
def test_the_layers_of_one_pass_are_not_steps(tmp_path, calls, passes):
    call = [frame(1790, "_call_impl", "/usr/lib/python3/site-packages/torch/nn/modules/module.py")] if calls != "without" else []
    outer = [*call, frame(56, "forward", "/home/u/model.py"), *call, frame(140, "run"), frame(200, "<module>")]
    layer = [[frame(line, "forward", "/home/u/block.py"), *outer] for line in (26, 27, 31)]
    report = report_of_stacks(tmp_path, [[frame(9, "embed"), *outer], *layer * 24] * passes)
    assert report["steps"] == [] and report["growth"] == []


@pytest.mark.parametrize("file, name", [("torch/_dynamo/convert_frame.py", "_compile"), ("triton/runtime/autotuner.py", "_bench"),
                                        ("torch/_inductor/runtime/benchmarking.py", "benchmark_gpu")])
def test_what_a_compiler_tries_is_no_step(tmp_path, file, name):
    """An autotuner calls a kernel many times, each with copies of its inputs."""
    outer = [frame(202, name, f"/usr/lib/python3/site-packages/{file}"), frame(57, "forward", "/home/u/model.py"),
             frame(428, "run"), frame(457, "<module>")]
    tried = [[frame(2141, "clone_preserve_strides", "/usr/lib/python3/site-packages/torch/_inductor/utils.py"), *outer]] * 250
    assert report_of_stacks(tmp_path, [[frame(9, "embed"), *outer[1:]], *tried])["steps"] == []


@pytest.mark.parametrize("name, steps", [("CachingAutotuner.benchmark_all_configs (dynamo_timed)", []), ("a pass", [12])])
def test_ranges_of_a_compiler_are_not_steps(tmp_path, name, steps):
    snapshot = usual_run().snapshot()
    at = [e["time_us"] for e in snapshot["device_traces"][0]]
    width = (at[-1] - at[0]) // 12
    snapshot["external_annotations"] = [
        {"stage": stage, "name": name, "device": 0, "time_us": at[0] + width * (k + end) - end}
        for k in range(12) for end, stage in enumerate(("START", "END"))]
    report = json.loads(gpuspy("report", "--json", write(tmp_path / "s.pickle", snapshot)).stdout)
    assert [s["n"] for s in report["steps"] if s["source"] == "mark"] == steps


def test_memory_before_the_recording(tmp_path):
    """Reserved and allocated before the first event: it has no moment, and no stack because it is older."""
    run = Run()
    run.segment(0, BASE, 100 * MIB)
    run.alloc(0, BASE, 60 * MIB, line=3)
    run.blocks[0, BASE] = 60 * MIB, []
    for k in range(20):
        run.alloc(0, BASE + 60 * MIB, 20 * MIB, line=7)
        run.free(0, BASE + 60 * MIB)
    file = write(tmp_path / "s.pickle", run.snapshot(50))
    text = " ".join(gpuspy("report", file).stdout.split())
    assert "peak 100.00 MiB on GPU 0, from the start; tensors 80.00 MiB at " in text
    assert "GPU memory peak 100.00 MiB from the start, in 1 CUDA allocation" in text
    assert "75 % 1 (allocated before the recording)" in text and "no stack" not in text
    moment = run.snapshot()
    moment["device_traces"] = []
    assert "(no stack recorded)" in gpuspy("report", write(tmp_path / "m.pickle", moment)).stdout


def test_a_loop_of_a_hundred_rounds_in_a_module_has_steps(tmp_path):
    outer = [frame(56, "forward", "/home/u/model.py"), frame(140, "run"), frame(200, "<module>")]
    rounds = [[frame(line, "sample"), *outer] for _ in range(100) for line in (7, 8)]
    report = report_of_stacks(tmp_path, [[frame(5, "noise"), *outer], *rounds])
    assert [s["n"] for s in report["steps"]] == [100]


def test_a_part_of_it(tmp_path):
    snapshot = usual_run(devices=2).snapshot()
    at = sorted(e["time_us"] for t in snapshot["device_traces"] for e in t)
    first, last = at[100], at[300]
    file = write(tmp_path / "s.pickle", snapshot)
    gpuspy("import", "--from", f"{(first - at[0]) / 1e6:.6f}", "--to", f"{(last - at[0]) / 1e6:.6f}", file, "-o", tmp_path / "part.db")
    gpuspy("import", file, "-o", tmp_path / "whole.db")
    whole, part = sqlite3.connect(tmp_path / "whole.db"), sqlite3.connect(tmp_path / "part.db")
    for device in 0, 1:
        # a row that begins and ends within the part is equal there; what was live at its borders is live
        rows = whole.execute("SELECT alloc_ns / 1000 + ? - 1, free_ns / 1000 + ? - 1, address, bytes FROM allocation WHERE "
                             "layer = 1 AND device = ?", (at[0], at[0], device)).fetchall()
        want = sorted((max(a, first - 1), f if f is not None and f <= last else None, address, n) for a, f, address, n in rows
                      if a <= last and (f is None or f >= first))
        got = sorted((a if ns else first - 1, f, address, n) for ns, a, f, address, n in part.execute(
            "SELECT alloc_ns, alloc_ns / 1000 + ? - 1, free_ns / 1000 + ? - 1, address, bytes FROM allocation WHERE layer = 1 AND "
            "device = ?", (first, first, device)))
        assert sorted(map(repr, got)) == sorted(map(repr, want))
    for words, reported in ((("--from", "x"), "'x'"), (("--from", "2", "--to", "1"), "not before"), (("--to", "0"), "--from 0 is not before"), (("--from", "900"), "no event is in that range")):
        done = subprocess.run([TOOL, "import", *words, file, "-o", tmp_path / "no.db"], capture_output=True, text=True)
        assert done.returncode in (2, 3) and reported in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "no.db").exists()


def test_an_imported_snapshot_is_exported_unchanged(tmp_path):
    """Segments without a block, blocks from before the history, pending frees, mapped pages: exactly the same
    events."""
    run = waiting_run()
    for start in 2 << 40, 3 << 40:
        run.segment(0, start, 20 * MIB)
        run.alloc(0, start, 20 * MIB, 7)
        run.free(0, start)
    run.event(0, "segment_free", 3 << 40, 20 * MIB)
    del run.segments[0, 3 << 40]
    for last in None, 9, 3:
        snapshot = run.snapshot(last)
        (tmp_path / "again.pickle").unlink(missing_ok=True)
        gpuspy("export", "-o", "again.pickle", write(tmp_path / "s.pickle", snapshot), cwd=tmp_path)
        again = pickle.loads((tmp_path / "again.pickle").read_bytes())

        def events(s):
            return [(e["action"], e["addr"], e["size"], e["time_us"]) for e in s["device_traces"][0] if e["action"] !=
                    "free_completed"], [(e["addr"], e["size"]) for e in s["device_traces"][0] if e["action"] == "free_completed"]

        def state(s):
            return [(x["address"], x["total_size"], x["allocated_size"], x["active_size"], x["stream"],
                     [(b["address"], b["size"], b["state"]) for b in x["blocks"]]) for x in sorted(s["segments"], key=lambda x: x["address"])]
        assert state(again) == state(snapshot)
        want = events(snapshot)
        if snapshot["device_traces"][0][0]["action"] == "free_completed":  # the free itself was lost from the ring buffer
            want = want[0], want[1][1:]
        assert events(again) == want


def test_equal_lists_that_become_different(tmp_path):
    """Equal call stacks are stored once, which must not be visible: thousands of frames, appended in batches, shared by
    dicts."""
    run = Run()
    run.segment(0, BASE, 400 * MIB)
    common = [frame(k, f"f{k}") for k in range(2500)]
    for k in range(6):
        run.alloc(0, BASE + k * 2 * MIB, MIB, line=1)
        stack = common[:1000 + 500 * (k % 3)] + [frame(k + 1, "x" * 300)]
        run.blocks[0, BASE + k * 2 * MIB] = MIB, stack
        run.traces[0][-1]["frames"] = stack
    for protocol in range(6):
        (tmp_path / "imported.db").unlink(missing_ok=True)
        db = imported(write(tmp_path / "s.pickle", run.snapshot(), protocol), tmp_path)
        depths = [d for d, in db.execute("SELECT s.depth FROM allocation a JOIN stack s ON s.id = a.alloc_stack_id WHERE layer = 1 "
                                         "ORDER BY a.id")]
        assert depths == [1001, 1501, 2001] * 2
        assert db.execute("SELECT count(DISTINCT line) FROM frame WHERE function = ?", ("x" * 300,)).fetchone()[0] == 6


def test_one_event_in_two_histories_counts_once(tmp_path):
    snapshot = usual_run().snapshot()
    snapshot["device_traces"].append(snapshot["device_traces"][0])
    text = gpuspy("report", "--full", write(tmp_path / "s.pickle", snapshot)).stdout
    assert "peak" in text


def test_import_names_its_files(tmp_path):
    write(tmp_path / "a.pickle.gz", usual_run().snapshot())
    write(tmp_path / "b.pkl", usual_run().snapshot())
    done = gpuspy("import", "a.pickle.gz", "b.pkl", cwd=tmp_path)
    assert "wrote a.db; next: gpuspy report a.db" in done.stderr
    assert sorted(f.name for f in tmp_path.glob("*.db*")) == ["a.db", "b.db"]
    again = gpuspy("import", "a.pickle.gz", cwd=tmp_path, code=3)
    assert "'a.db' exists" in again.stderr
    assert gpuspy("import", "a.pickle.gz", "b.pkl", "-o", "c.db", cwd=tmp_path, code=2)
    assert gpuspy("import", cwd=tmp_path, code=2)


class Evil:
    def __reduce__(self):
        return os.system, ("touch evil-was-here",)


@pytest.mark.parametrize("protocol", range(6))
def test_a_pickle_that_calls_something_is_refused(tmp_path, protocol):
    write(tmp_path / "s.pickle", {"segments": [Evil()]}, protocol)
    for words in ("report", "s.pickle"), ("import", "s.pickle"):
        done = gpuspy(*words, cwd=tmp_path, code=3)
        assert len(done.stderr.splitlines()) == 1 and "import or call something" in done.stderr
    assert not list(tmp_path.glob("evil*")) and not list(tmp_path.glob("*.db*"))


def test_damaged_files_get_one_line(tmp_path):
    whole = pickle.dumps(usual_run().snapshot(), 2)
    random.seed(3)
    for i in range(150):
        data = bytearray(whole[:random.randrange(1, len(whole))] if i % 3 else whole)
        for _ in range(i % 3 == 0 and random.randrange(1, 30)):
            data[random.randrange(len(data))] = random.randrange(256)
        file = tmp_path / "damaged.pickle"
        file.write_bytes(gzip.compress(bytes(data)) if i % 5 == 4 else bytes(data))
        done = subprocess.run([TOOL, "report", "--json", file], capture_output=True, text=True, errors="replace")
        assert done.returncode in (0, 3), done.stderr
        if done.returncode:
            assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr
        else:
            json.loads(done.stdout)


def test_other_files_are_unchanged(tmp_path):
    for name, data in ("empty", b""), ("text", b"hello\n" * 99), ("pickle", pickle.dumps(7)), ("dict", pickle.dumps({"a": 1})):
        (tmp_path / name).write_bytes(data)
        done = gpuspy("report", name, cwd=tmp_path, code=3)
        assert len(done.stderr.splitlines()) == 1 and f"'{name}'" in done.stderr
    os.mkfifo(tmp_path / "fifo")
    assert "not a regular file" in gpuspy("report", "fifo", cwd=tmp_path, code=3).stderr


@pytest.mark.parametrize("file", REAL, ids=lambda f: f.name[:8])
def test_what_real_gpus_gave(tmp_path, file):
    with gzip.open(file) as f:
        snapshot = pickle.load(f)
    if isinstance(snapshot, list):
        snapshot = {"segments": snapshot, "device_traces": []}
    for segment in snapshot["segments"]:  # old ones do not give the addresses of blocks
        at = segment["address"]
        for block in segment["blocks"]:
            block.setdefault("address", at)
            at = block["address"] + block["size"]
    # Its layout at the first event does not follow from the one at its end.
    got, want = measured(imported(file, tmp_path)), expected(snapshot, real=not file.name.startswith("61dcd14d"))
    assert {d: {k: v for k, v in f.items() if not k.startswith("reserved_")} for d, f in got.items()} == \
        {d: {k: v for k, v in f.items() if not k.startswith("reserved_")} for d, f in want.items()}
    assert {d: f["reserved_most"] for d, f in got.items()} == {d: f["reserved_most"] for d, f in want.items()}
    reported = sum(s["allocated_size"] for s in snapshot["segments"])
    assert sum(f["end"] for f in got.values()) == reported


@pytest.mark.skipif(not REAL, reason="no recordings of real GPUs here")
def test_the_real_out_of_memory():
    """PyTorch 2.8 on an A100: requested 5,308,694,528 B with 95,682,560 free; kept activations of three lines."""
    file = next(f for f in REAL if f.name.startswith("b5ef67ce"))
    oom = json.loads(gpuspy("report", "--json", file).stdout)["oom"][0]
    assert (oom["requested_bytes"], oom["free_bytes"], oom["device"]) == (5_308_694_528, 95_682_560, 1)
    text = gpuspy("report", "--only", "oom", file).stdout
    assert "models.py:174" in text and "expandable" not in text.split("GPU 0")[0]


def test_one_moment_passes_no_limit_of_a_peak(tmp_path):
    """The memory that was live is a lower bound of the peak."""
    snapshot = usual_run().snapshot()
    snapshot["device_traces"] = [[] for _ in snapshot["device_traces"]]
    file = write(tmp_path / "s.pickle", snapshot)
    limits = ["--max-peak", "--max-tensor-peak", "--max-pinned"]
    text = gpuspy("check", *(f"{limit}=1TiB" for limit in limits), file, code=1).stdout
    assert text.count("UNKNOWN") == 3 and "this PyTorch snapshot has no history" in " ".join(text.split())
    text = gpuspy("check", *(f"{limit}=1B" for limit in limits), file, code=1).stdout
    assert text.count("FAILED") == text.count("at least ") == 2


def test_pinned_memory_that_a_snapshot_does_not_have(tmp_path):
    file = write(tmp_path / "s.pickle", usual_run().snapshot())
    assert "UNKNOWN  max-pinned" in gpuspy("check", "--max-pinned=1TiB", file, code=1).stdout


def test_memory_of_other_streams_from_before_a_history_serves_only_them(tmp_path):
    """Free segments keep their stream, and a block that waits for another stream is not free."""
    def segment(address, stream, state):
        block = {"address": address, "size": 20 * MIB, "requested_size": 20 * MIB, "state": state, "frames": []}
        return {"device": 0, "address": address, "total_size": 20 * MIB, "stream": stream, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "blocks": [block], "frames": []}

    def event(action, address, stream):
        return {"action": action, "addr": address, "size": 20 * MIB, "stream": stream, "time_us": 5, "frames": []}
    waiting, free, new = (BASE + n * 64 * MIB for n in range(3))
    snapshot = {"segments": [segment(waiting, 7, "active_pending_free"), segment(free, 7, "active_allocated"), segment(new, 0, "active_allocated")],
                "device_traces": [[event("segment_alloc", new, 0), event("alloc", new, 0), event("alloc", free, 7)]]}
    replay = json.loads(gpuspy("whatif", "--json", write(tmp_path / "s.pickle", snapshot)).stdout)["replay"]
    assert replay["exact"] and replay["allocations_at_recorded_address"] == 2 and replay["segments_as_recorded"] == 1, replay
