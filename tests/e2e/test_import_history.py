"""Foreign recordings as earlier and newer versions of their writers spelled them. Each form names its source."""
import copy
import json
import pickle
import sqlite3
import struct
import zipfile

import pytest

import test_import as snapshots
import test_import_nsys as nsys
import test_import_pprof as pprof
from test_import_trace import gpuspy, imported, one_line

# --- kineto: the layouts of libkineto/src/output_json.cpp, and the names of CuptiActivity.h and cupti_strings.cpp ------


class Kineto:
    """Writes the same events in the words of one version. Times: microseconds after `first`."""
    first = 1_600_000_000_000_000
    names = {"op": "cpu_op", "call": "cuda_runtime", "copy": "gpu_memcpy", "fill": "gpu_memset", "kernel": "kernel", "range": "user_annotation"}
    pageable, external = "Pageable", "External id"
    head, foot = '{"schemaVersion": 1, "deviceProperties": [], "traceEvents": [', '\n{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": 0}]}'
    bandwidth = "2.5"

    def __init__(self):
        self.text = []

    def time(self, us):
        return str(self.first + us)

    def slice(self, sort, name, at, duration, pid, tid, **args):
        self.text.append(f'\n{{"ph": "X", "cat": "{self.names[sort]}", "ts": {self.time(at)}, "dur": {duration},\n"pid": {pid}, "tid": {tid},\n'
                         f'"name": "{name}", "args": {{{", ".join(f"{json.dumps(k)}: {v}" for k, v in args.items())}}}}},')

    def stream(self, number):
        return number

    def gpu(self, kind, name, at, correlation, size, **devices):
        args = {**devices, "context": 1, "stream": 7, "correlation": correlation, self.external: 3, "bytes": size, "memory bandwidth (GB/s)": self.bandwidth}
        self.slice(kind, name, at, 7, 0, self.stream(7), **args)

    def call(self, name, at, duration, correlation):
        self.slice("call", name, at, duration, 100, 100, cbid=41, correlation=correlation, **{self.external: 3})

    def write(self, path):
        self.slice("op", "aten::to", 0, 40, 100, 100, **{self.external: 3, "Device": 100})
        self.call("cudaMemcpyAsync", 5, 10, 11)
        self.gpu("copy", f"Memcpy HtoD ({self.pageable} -> Device)", 8, 11, 4096, device=0)
        self.call("cudaMemcpyPeerAsync", 20, 5, 12)
        self.gpu("copy", "Memcpy PtoP (Device -> Device)", 22, 12, 8192, fromDevice=0, inDevice=1, toDevice=1, fromContext=1, inContext=2, toContext=2)
        self.call("cudaMemsetAsync", 30, 2, 13)
        self.gpu("fill", "Memset (Device)", 31, 13, 512, device=0)
        self.call("cudaStreamSynchronize", 50, 9, 14)
        path.write_text(self.head + "".join(self.text) + self.foot)
        return path


class Kineto2020(Kineto):
    """ecaafbe8 (2020-09): a list, which is not closed; later that year closed"""
    names = {"op": "Operator", "call": "Runtime", "copy": "Memcpy", "fill": "Memset", "kernel": "Kernel", "range": "User"}
    pageable, external, head, foot = "Pagable", "external id", "[\n", ""

    def stream(self, number):
        return f'"stream {number}"'


class Kineto202103(Kineto2020):
    """d5530424 (2021-03): the bandwidth of a copy that took less than 1 us is not a JSON value"""
    pageable, head, foot, bandwidth = "Pageable", Kineto.head, Kineto.foot, "N/A"


class Kineto202206(Kineto2020):
    """1679e50e (2022): the names of ActivityType in place of its own"""
    names, pageable, head, foot, bandwidth = Kineto.names, "Pageable", Kineto.head, Kineto.foot, '"N/A"'


class Kineto202404(Kineto):
    """327ac505, 84d95b82 (2024): times relative to a base that is stated at the end; 08fcb941 (2025): before the events"""
    first = 5_000_000
    head, foot = Kineto.head, Kineto.foot[:-1] + ', "traceName": "t.json", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1595000000000000000}'

    def time(self, us):
        return f"{self.first + us}.000"


@pytest.mark.parametrize("version", [Kineto2020, Kineto202103, Kineto202206, Kineto202404, Kineto])
def test_traces_of_every_kineto(tmp_path, version):
    file = version().write(tmp_path / "t.json")
    db = imported(file, tmp_path)
    rows = db.execute("SELECT direction, device, bytes, host_memory, blocked_ns, api FROM copies ORDER BY start_ns").fetchall()
    assert rows == [("h2d", 0, 4096, "pageable", 10_000, "cudaMemcpyAsync"), ("p2p", 1, 8192, "none", 5000, "cudaMemcpyPeerAsync")]
    assert db.execute("SELECT device, bytes FROM memset").fetchall() == [(0, 512)]
    assert db.execute("SELECT kind, blocked_ns FROM syncs").fetchall() == [("stream", 9000)]
    assert "left out" not in one_line(gpuspy("report", file).stdout)


@pytest.mark.parametrize("kind, direction", [("M2M", "h2h"), ("M2H", "h2h"), ("H2M", "h2h"), ("H2H", "h2h"), ("M2D", "h2d"), ("H2D", "h2d"), ("H2S", "h2d"),
                                             ("M2S", "h2d"), ("D2M", "d2h"), ("D2H", "d2h"), ("S2H", "d2h"), ("S2M", "d2h"), ("D2D", "d2d"), ("D2S", "d2d"),
                                             ("S2D", "d2d"), ("S2S", "d2d"), ("of 2 kinds", None), ("X2D", None)])
def test_copies_of_intel_gpus(tmp_path, kind, direction):
    """XpuptiActivityHandlers.cpp, memcpyName: the names of pti_view_memcpy_type"""
    trace = Kineto()
    trace.slice("op", "aten::to", 0, 40, 100, 100)
    trace.gpu("copy", f"Memcpy {kind} (MEMORY -> DEVICE)", 8, 11, 4096, device=0)
    file = tmp_path / "t.json"
    file.write_text(trace.head + "".join(trace.text) + trace.foot)
    assert imported(file, tmp_path).execute("SELECT direction FROM copies").fetchall() == ([(direction,)] if direction else [])


@pytest.mark.parametrize("pointer", ['"0x7f0"', "0x7f0"], ids=["text", "not-json"])
@pytest.mark.parametrize("memory", [True, False])
def test_traces_of_roctracer(tmp_path, memory, pointer):
    """RoctracerActivityApi.cpp, November 2021 to March 2024: copies on the GPU are kernels without arguments, calls have no correlation"""
    trace = Kineto()
    for i, (call, kind) in enumerate([("hipMemcpyWithStream", 1), ("hipMemcpyAsync", 2), ("hipMemcpyAsync", 3), ("hipMemcpy", 0), ("hipMemcpyAsync", 4)]):
        trace.slice("call", call, 20 * i, 5 + i, 100, 100, src=pointer, dst=pointer, size=4096 << i, kind=kind, stream=pointer, **{"External id": i})
        trace.slice("kernel", ("CopyHostToDevice", "CopyDeviceToHost", "CopyDeviceToDevice")[i % 3], 20 * i + 6, 3, 2, 0, **{"External id": i})
    trace.slice("call", "hipStreamSynchronize", 120, 9, 100, 100, **{"External id": 9})
    if memory:
        trace.text.append('\n{"ph": "i", "s": "t", "name": "[memory]", "pid": 100, "tid": 100, "ts": 1600000000000130, "args": '
                          '{"Device Type": 1, "Device Id": 0, "Addr": 4096, "Bytes": 512, "Total Allocated": 512, "Total Reserved": 2097152}},')
    file = tmp_path / "t.json"
    file.write_text(trace.head + "".join(trace.text) + trace.foot)
    db = imported(file, tmp_path)
    device = 0 if memory else -1
    assert db.execute("SELECT direction, bytes, host_memory, blocked_ns, device FROM copies ORDER BY start_ns").fetchall() == [
        ("h2d", 4096, "none", 5000, device), ("d2h", 8192, "none", 6000, device), ("d2d", 16384, "none", 7000, device), ("h2h", 32768, "none", 8000, device)]
    assert "left out 1 call that copied or filled memory: the trace has no size" in one_line(gpuspy("report", file).stdout)


@pytest.mark.parametrize("first", [True, False])
def test_waits_of_intel_gpus(tmp_path, first):
    """XpuptiActivityHandlers.cpp, handleSynchronizationActivity: without a process, with a thread"""
    trace = Kineto()
    trace.slice("op", "aten::item", 0, 500, 100, 77)
    operators, trace.text = trace.text, []
    for i, kind in enumerate(["HOST_EVENT", "HOST_COMMAND_QUEUE", "HOST_FENCE", "HOST_COMMAND_LIST", "GPU_BARRIER_EXECUTION", "UNKNOWN"]):
        trace.names = {"op": "xpu_sync"}
        trace.slice("op", "zeSynchronize", 10 + 20 * i, i + 1, -1, 77, correlation=5 + i, Type=f'"{kind}"', **{"Context_handle": '"0x12"', "Return code": 0})
    file = tmp_path / "t.json"
    file.write_text(trace.head + "".join(trace.text + operators if first else operators + trace.text) + trace.foot)
    db = imported(file, tmp_path)
    assert db.execute("SELECT kind, blocked_ns, api FROM syncs ORDER BY id").fetchall() == [
        (kind, 1000 * n, "zeSynchronize") for n, kind in enumerate(["event", "stream", "stream", "stream"], 1)]
    assert db.execute("SELECT DISTINCT function, tid FROM syncs s JOIN stack t ON t.id = s.stack_id JOIN frame f ON f.id = t.frame_id "
                      "JOIN thread h ON h.id = s.thread_id").fetchall() == [("aten::item", 77)]
    text = one_line(gpuspy("report", file).stdout)
    assert "processes" not in text and "waits is unknown" not in text


# --- Nsight Systems: "SQLite Export Schema Reference" of 2021.5 to 2026.2 ------------------------------------------------

def test_memory_of_pools(tmp_path):
    """CUDA_GPU_MEMORY_USAGE_EVENTS has NULL where a column does not apply. Memory of an imported pool is another process's"""
    e = nsys.Export(tmp_path / "x.sqlite")
    e.MORE = {**e.MORE, "CUDA_GPU_MEMORY_USAGE_EVENTS": e.MORE["CUDA_GPU_MEMORY_USAGE_EVENTS"] + ", localMemoryPoolReleaseThreshold INTEGER, "
              "localMemoryPoolSize INTEGER, localMemoryPoolUtilizedSize INTEGER, importedMemoryPoolAddress INTEGER, importedMemoryPoolProcessId INTEGER"}
    pool = dict(localMemoryPoolAddress=5 << 40, localMemoryPoolReleaseThreshold=0, localMemoryPoolSize=32 << 20, localMemoryPoolUtilizedSize=200, streamId=7)
    e.memory("cudaMalloc_v3020", 1000, 1 << 40, 100)
    e.memory("cudaMallocFromPoolAsync_v11020", 2000, 2 << 40, 200, **pool)
    e.memory("cudaMemPoolImportPointer_v11020", 3000, 3 << 40, 300, importedMemoryPoolAddress=6 << 40, importedMemoryPoolProcessId=9)
    e.memory("cudaFreeAsync_v11020", 4000, 2 << 40, 200, freed=True, **pool)
    db = imported(e.done(), tmp_path)
    assert db.execute("SELECT space, bytes, free_ns IS NULL FROM allocations ORDER BY bytes").fetchall() == [("device", 100, 1), ("pool", 200, 0)]
    assert "invalid" not in gpuspy("report", e.path).stdout


def test_waits_of_calls_without_a_name(tmp_path):
    file = nsys.usual(tmp_path / "x.sqlite")
    before = gpuspy("sql", file, "SELECT count(*) FROM syncs").stdout
    db = sqlite3.connect(file, isolation_level=None)
    db.execute("DROP TABLE StringIds")
    db.close()
    assert gpuspy("sql", file, "SELECT count(*) FROM syncs").stdout == before


# --- JAX: xla/python/py_client.cc, HeapProfile ---------------------------------------------------------------------------

def numbered(profile, device, size):
    """2020: a device is a number in place of a text, and protobuf leaves out a number of 0"""
    label = pprof.field(1, profile.text("device")) + (pprof.field(3, device) if device else b"")
    kind = pprof.field(1, profile.text("kind")) + pprof.field(2, profile.text("buffer"))
    profile.body += pprof.field(2, pprof.field(1, profile.location(*pprof.HERE)) + pprof.field(2, 1) + pprof.field(2, size) + pprof.field(3, kind) + pprof.field(3, label))


def test_devices_by_number(tmp_path):
    profile = pprof.Profile()
    for device in 0, 1, 3:
        numbered(profile, device, 512 << device)
    file = profile.write(tmp_path / "p.prof")
    db = imported(file, tmp_path)
    assert db.execute("SELECT device, bytes FROM allocation ORDER BY 1").fetchall() == [(0, 512), (1, 1024), (3, 4096)]
    assert db.execute("SELECT count(*) FROM device").fetchone() == (0,)
    text = one_line(gpuspy("report", file).stdout)
    assert "the profile numbers its devices, but does not name them: they are called GPU here" in text and "not GPUs" not in text


@pytest.mark.parametrize("device, number", [("gpu:2", 2), ("GPU_2(host=0)", 2), ("GPU_2(process=0,(2))", 2), ("cuda:2", 2), ("rocm:2", 2), ("CudaDevice(id=2)", 2),
                                            ("StreamExecutorGpuDevice(id=2, process_index=0, slice_index=0)", 2), ("cpu:0", -1), ("CPU_0(host=0)", -1),
                                            ("TFRT_CPU_0", -1), ("TPU_2(host=0,(0,1,0,0))", 2)])
def test_devices_by_name(tmp_path, device, number):
    profile = pprof.Profile()
    profile.sample(1, 512, [pprof.HERE], device=device)
    assert imported(profile.write(tmp_path / "p.prof"), tmp_path).execute("SELECT device FROM allocation").fetchall() == [(number,)]


@pytest.mark.parametrize("types", [[("objects", "count"), ("space", "bytes")], [("alloc_objects", "count"), ("alloc_space", "bytes"), ("inuse_objects", "count"), ("inuse_space", "bytes")],
                                   [("samples", "count"), ("cpu", "nanoseconds")], [("goroutine", "count")], [("contentions", "count"), ("delay", "nanoseconds")],
                                   [("space", "bytes")], [("allocations", "count")], [("wall", "nanoseconds")], [("heap_live_size", "bytes")],
                                   [("allocations", "count"), ("space", "megabytes")], [("allocations", "count"), ("space", "bytes")]],
                         ids=lambda types: "-".join(name for name, _ in types))
def test_profiles_of_other_tools(tmp_path, types):
    """Of tcmalloc, Go, py-spy, Datadog and others: memory of the host, or none. The last has JAX's types, but no kinds"""
    profile = pprof.Profile()
    profile.body += pprof.field(2, pprof.field(1, profile.location(*pprof.HERE)) + b"".join(pprof.field(2, 512) for _ in types))
    file = profile.write(tmp_path / "p.prof", types=types)
    done = gpuspy("report", file, code=3)
    assert len(done.stderr.splitlines()) == 1 and "a pprof profile, but not of the memory of a device" in done.stderr


# --- PyTorch snapshots: torch/csrc/cuda/Module.cpp and memory_snapshot.cpp -----------------------------------------------

class JitPickler:
    """torch/csrc/jit/serialization/pickler.cpp, as memory_snapshot.cpp calls it: protocol 2, lists and dicts in one piece,
    whole numbers of more than 32 bits as LONG1 of 8 bytes"""

    def __init__(self):
        self.out, self.memo, self.memos = bytearray(b"\x80\x02"), {}, 0

    def remember(self, key):
        self.memo[key] = self.memos
        self.out += b"q" + bytes([self.memos]) if self.memos < 256 else b"r" + struct.pack("<I", self.memos)
        self.memos += 1

    def push(self, v):
        key = v if isinstance(v, str) else id(v)
        if isinstance(v, (str, list, dict)) and key in self.memo:
            self.out += b"h" + bytes([self.memo[key]]) if self.memo[key] < 256 else b"j" + struct.pack("<I", self.memo[key])
        elif isinstance(v, bool):
            self.out += b"\x88" if v else b"\x89"
        elif isinstance(v, int):
            self.out += (b"K" + bytes([v]) if 0 <= v < 1 << 8 else b"M" + struct.pack("<H", v) if 0 <= v < 1 << 16 else
                         b"J" + struct.pack("<i", v) if -1 << 31 <= v < 1 << 31 else b"\x8a\x08" + struct.pack("<q", v))
        elif isinstance(v, str):
            self.out += b"X" + struct.pack("<I", len(v.encode())) + v.encode()
            self.remember(v)
        elif isinstance(v, tuple):
            self.push(v[0]), self.push(v[1])
            self.out += b"\x86"
            self.remember(id(v))
        else:
            self.out += b"]" if isinstance(v, list) else b"}"
            self.remember(id(v))
            self.out += b"("
            for item in v if isinstance(v, list) else [part for pair in v.items() for part in pair]:
                self.push(item)
            self.out += b"e" if isinstance(v, list) else b"u"

    def written(self, value):
        self.push(value)
        return bytes(self.out + b".")


def before_2_1(snapshot):
    """Blocks have no address, and a history of what was requested in place of frames; events have no time"""
    for segment in snapshot["segments"]:
        for key in "segment_pool_id", "is_expandable", "requested_size", "frames":
            del segment[key]
        for block in segment["blocks"]:
            frames, size = block.pop("frames"), block.pop("requested_size")
            history = [{"addr": block.pop("address"), "real_size": size, "frames": frames}]
            if block["state"] == "inactive":  # what it was before, if blocks were merged several
                history = [{"addr": 1, "real_size": 77}, {"addr": 513, "real_size": 78}]
            block["history"] = history
    for trace in snapshot["device_traces"]:
        for event in trace:
            del event["time_us"]
    return {key: snapshot[key] for key in ("segments", "device_traces")}


def without_frames(snapshot):
    for trace in snapshot["device_traces"]:
        for event in trace:
            del event["frames"]
    return before_2_1(snapshot)


def of_2_15(snapshot):
    """Notes of the program between the events, marks of the allocator, and frames with names of FX"""
    for trace in snapshot["device_traces"]:
        for i, event in reversed(list(enumerate(trace))):
            event |= {"user_metadata": "", "compile_context": "N/A", "pool_id": (0, 0), "internal_metadata": "mallocWithAddress"}
            if event["action"] == "alloc":
                trace.insert(i + 1, {**event, "action": "annotate", "user_metadata": "{}"})
    for segment in snapshot["segments"]:
        for block in segment["blocks"]:
            block |= {"user_metadata": "", "forward_frames": ["a.py:3:f"]}
            for frame in block["frames"]:
                frame |= {"fx_node_op": "call_function", "fx_node_name": "add", "fx_original_trace": "", "fx_node_info": {"args": ["x"]}}
    return {**snapshot, "host_segments": [], "host_traces": []}


def of_npu(snapshot):
    """torch_npu: the name of the variable"""
    return {**snapshot, "allocator_settings": {"PYTORCH_NPU_ALLOC_CONF": "", "max_split_size": -1, "base_addr_aligned_kb": 16}}


FORMS = [before_2_1, without_frames, of_2_15, of_npu, lambda s: {k: s[k] for k in ("device_traces", "segments")},
         lambda s: {**s, "segments": tuple(s["segments"]), "device_traces": tuple(s["device_traces"])}]


@pytest.mark.parametrize("write", [lambda s: pickle.dumps(s, 4), lambda s: JitPickler().written(s)], ids=["python", "jit"])
@pytest.mark.parametrize("form", FORMS, ids="2.0 without_frames 2.15 npu xpu tuples".split())
@pytest.mark.parametrize("last", [None, 40])
def test_snapshots_of_every_version(tmp_path, last, form, write):
    whole = snapshots.usual_run(devices=2).snapshot(last=last)
    (tmp_path / "s.pickle").write_bytes(write(form(copy.deepcopy(whole))))
    assert snapshots.measured(snapshots.imported(tmp_path / "s.pickle", tmp_path)) == snapshots.expected(whole)


def test_a_history_without_segments(tmp_path):
    """As some frameworks write it for memory_viz: what is live at the end follows from the events"""
    run = snapshots.usual_run()
    whole = run.snapshot()
    file = snapshots.write(tmp_path / "s.pickle", {**whole, "segments": []})
    assert snapshots.measured(snapshots.imported(file, tmp_path)) == snapshots.expected(whole)
    text = one_line(gpuspy("report", file).stdout)
    assert "contradict" not in text and "the file has no segments of GPU 0: gpuspy infers what is live at the end from its history" in text
    for device, address in list(run.blocks):
        run.free(device, address)
    file = snapshots.write(tmp_path / "freed.pickle", {**run.snapshot(), "segments": []})
    assert "has no segments" not in gpuspy("report", file).stdout


def test_a_history_with_segments_of_one_gpu_only(tmp_path):
    """The other one's events of segments contradict nothing."""
    run = snapshots.Run()
    for device in (0, 1):
        run.segment(device, (device + 1) << 40, 2 << 20, 7)
        run.alloc(device, (device + 1) << 40, 1 << 20, 8)
    whole = run.snapshot()
    file = snapshots.write(tmp_path / "s.pickle", {**whole, "segments": [s for s in whole["segments"] if s["device"] == 0]})
    assert "lacks events of segments" not in gpuspy("report", file).stdout
    assert snapshots.measured(snapshots.imported(file, tmp_path)) == snapshots.expected(whole)


def test_a_snapshot_that_torch_save_packed(tmp_path):
    file = tmp_path / "snapshot.pt"
    whole = snapshots.usual_run().snapshot()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("snapshot/data.pkl", pickle.dumps(whole, 2))
        archive.writestr("snapshot/version", "3")
    assert snapshots.measured(snapshots.imported(file, tmp_path)) == snapshots.expected(whole)


@pytest.mark.parametrize("value", [[{"total_size": 5}], [{"name": "a.bin", "total_size": 1 << 20}], [{"address": 5, "blocks": []}], {"segments": [1, 2]},
                                   {"segments": [{"start": 0.5, "end": 1.5, "text": "hello"}]}, {"segments": {"a": 1}}, {"segments": 5}, {"device_traces": [[]]},
                                   {"allocated_bytes.all.current": 5}, [[{"address": 1, "total_size": 2}]], [{"total_size": 1, "blocks": []}]], ids=str)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_pickles_that_are_not_snapshots(tmp_path, value, protocol):
    file = snapshots.write(tmp_path / "x.pickle", value, protocol)
    done = gpuspy("report", file, code=3)
    assert len(done.stderr.splitlines()) == 1 and "a pickle, but not a snapshot of torch.cuda.memory" in done.stderr and not done.stdout
