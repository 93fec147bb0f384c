"""Exports of Nsight Systems, imported unchanged. Small ones are made here in the formats of its versions; for real ones
the expected sums come from queries of this file."""
import collections
import gzip
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import time

import pytest

from conftest import BUILD, ROOT, SECONDS, gpuspy, one_line

TOOL = BUILD / "gpuspy"
SHARED = ROOT.parent / "shared" / "recordings" / "nsys"
REAL = sorted(SHARED.glob("*.gz")) if SHARED.is_dir() else []
UNKNOWN = "memory is unknown: an Nsight Systems export without --cuda-memory-usage=true does not record memory"
HOST = 0x0101 << 48  # hardware and virtual machine, above the pid


def imported(file, tmp_path):
    """The databases that `gpuspy import` wrote, by pid"""
    out = tmp_path / "imported"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    gpuspy("import", file, "-o", out / "run.db")
    found = {}
    for path in sorted(out.iterdir()):
        db = sqlite3.connect(path)
        pid = db.execute("SELECT pid FROM process").fetchone()[0]
        assert path.name in ("run.db", f"run.{pid}.db")
        found[pid] = db
    return found


class Export:
    """Writes one, table by table. `year`: 2021 has all tables from the start, names of calls with call chains twice and
    chains numbered from 1 but named from 0; 2026 has tables only where they have rows, and more columns."""

    COLUMNS = {
        "StringIds": "id INTEGER PRIMARY KEY, value TEXT",
        "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER, "
                                       "correlationId INTEGER, nameId INTEGER, returnValue INTEGER, callchainId INTEGER",
        "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER, "
                                      "correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, "
                                      "srcKind INTEGER, dstKind INTEGER",
        "CUPTI_ACTIVITY_KIND_MEMSET": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
                                      "correlationId INTEGER, globalPid INTEGER, value INTEGER, bytes INTEGER",
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER, "
                                               "correlationId INTEGER, globalPid INTEGER, syncType INTEGER, eventId INTEGER",
        "CUDA_GPU_MEMORY_USAGE_EVENTS": "start INTEGER, globalPid INTEGER, deviceId INTEGER, contextId INTEGER, "
                                        "address INTEGER, pc INTEGER, bytes INTEGER, memKind INTEGER, "
                                        "memoryOperationType INTEGER",
        "NVTX_EVENTS": "start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER, "
                       "domainId INTEGER",
        "CUDA_CALLCHAINS": "id INTEGER, symbol INTEGER, module INTEGER, unresolved INTEGER, originalIP INTEGER, "
                           "stackDepth INTEGER",
        "ThreadNames": "nameId INTEGER, priority INTEGER, globalTid INTEGER",
        "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
        "TARGET_INFO_GPU": "id INTEGER, name TEXT, totalMemory INTEGER, cuDevice INTEGER",
        "TARGET_INFO_CUDA_DEVICE": "gpuId INTEGER, cudaId INTEGER, pid INTEGER",
        "TARGET_INFO_CUDA_GPU": "name TEXT, globalMemorySize INTEGER, deviceId INTEGER, pid INTEGER",
        "DIAGNOSTIC_EVENT": "timestamp INTEGER, timestampType INTEGER, source INTEGER, severity INTEGER, text TEXT, globalPid INTEGER",
        "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    }
    MORE = {"CUPTI_ACTIVITY_KIND_MEMCPY": ", greenContextId INTEGER, copyCount INTEGER",
            "CUDA_GPU_MEMORY_USAGE_EVENTS": ", name TEXT, correlationId INTEGER, streamId INTEGER, "
                                            "localMemoryPoolAddress INTEGER"}

    def __init__(self, path, year=2026):
        self.path, self.year = path, year
        path.unlink(missing_ok=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = OFF")
        self.db.execute("PRAGMA synchronous = OFF")
        self.strings, self.correlation, self.chains = {}, 0, 0
        meta = "EXPORT_META_DATA" if year < 2023 else "META_DATA_EXPORT"
        self.db.execute(f"CREATE TABLE {meta}(name TEXT, value TEXT)")
        self.db.execute(f"INSERT INTO {meta} VALUES ('EXPORT_SCHEMA_VERSION', ?)", ("2.4.0" if year < 2023 else "3.25.0",))
        if year < 2023:
            for table in self.COLUMNS:
                self.table(table)

    def table(self, name):
        more = self.MORE.get(name, "") if self.year > 2023 else ""
        self.db.execute(f"CREATE TABLE IF NOT EXISTS {name}({self.COLUMNS[name]}{more})")

    def row(self, table, **values):
        self.table(table)
        self.db.execute(f"INSERT INTO {table}({','.join(values)}) VALUES({','.join('?' * len(values))})", list(values.values()))

    def string(self, text):
        if text not in self.strings:
            self.strings[text] = len(self.strings) + 1
            self.row("StringIds", id=self.strings[text], value=text)
        return self.strings[text]

    def chain(self, *frames):
        """(function, module), innermost first"""
        self.chains += 1
        for depth, (symbol, module) in enumerate(frames):
            self.row("CUDA_CALLCHAINS", id=self.chains, symbol=self.string(symbol), module=self.string(module), stackDepth=depth)
        return self.chains - 1 if self.year < 2023 else self.chains

    def call(self, name, start, end, pid=7, tid=7, chain=None):
        self.correlation += 1
        both = dict(globalTid=HOST | pid << 24 | tid, correlationId=self.correlation, returnValue=0)
        self.row("CUPTI_ACTIVITY_KIND_RUNTIME", start=start, end=end, eventClass=0, nameId=self.string(name), **both)
        if chain is not None and self.year < 2023:  # counted again, from outside
            plain = re.sub(r"_v\d{4,}$", "", name)
            self.row("CUPTI_ACTIVITY_KIND_RUNTIME", start=start - 5, end=end + 5, eventClass=1, nameId=self.string(plain),
                     callchainId=chain, **both)
        elif chain is not None:
            self.db.execute("UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET callchainId = ? WHERE correlationId = ?",
                            (chain, self.correlation))
        return self.correlation

    def copy(self, name, start, end, kind, size, src=0, dst=2, pid=7, tid=7, gpu=None, device=0, stream=7, chain=None):
        """`name` None: without a call"""
        correlation = self.call(name, start, end, pid, tid, chain) if name else 0
        at = gpu or start + 500
        self.row("CUPTI_ACTIVITY_KIND_MEMCPY", start=at, end=at + 100, deviceId=device, streamId=stream,
                 correlationId=correlation, globalPid=HOST | pid << 24, bytes=size, copyKind=kind, srcKind=src, dstKind=dst)
        return correlation

    def wait(self, name, start, end, kind, pid=7, tid=7, stream=7, event=4294967295):
        correlation = self.call(name, start, end, pid, tid) if name else 0
        self.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", start=start + 1, end=end - 1, deviceId=0, streamId=stream,
                 correlationId=correlation, globalPid=HOST | pid << 24, syncType=kind, eventId=event)

    def memory(self, call, at, address, size, kind=2, freed=False, pid=7, **more):
        correlation = self.call(call, at - 50, at + 50, pid)
        more = {"correlationId": correlation, **more} if self.year > 2023 else {}
        self.row("CUDA_GPU_MEMORY_USAGE_EVENTS", start=at, globalPid=HOST | pid << 24, deviceId=0, contextId=1,
                 address=address, pc=0, bytes=size, memKind=kind, memoryOperationType=int(freed), **more)

    def range(self, text, start, end, kind=59, pid=7, tid=7, by_id=False, domain=0):
        named = {"textId": self.string(text)} if by_id else {"text": text}
        self.row("NVTX_EVENTS", start=start, end=end, eventType=kind, globalTid=HOST | pid << 24 | tid, domainId=domain, **named)

    def done(self):
        self.db.close()
        return self.path


def usual(path, year=2026, memory=False):
    """Two processes, 20 steps; every step copies both ways and waits."""
    e = Export(path, year)
    for pid in 7, 8:
        chain = e.chain(("0x7f00", "/opt/nsys/libcupti.so"), ("cudaMemcpyAsync", "/lib/libcudart.so.12"),
                        ("upload(float*)", "/home/u/train"), ("main", "/home/u/train"))
        e.row("PROCESSES", globalPid=HOST | pid << 24, pid=pid, name=f"./train-{pid}")
        e.row("ThreadNames", nameId=e.string("worker"), priority=5, globalTid=HOST | pid << 24 | pid)
        e.row("ThreadNames", nameId=e.string("wrong"), priority=1, globalTid=HOST | pid << 24 | pid)
        for step in range(20):
            at = 5_000_000_000 + step * 10_000_000 + pid
            e.range(f"step {step}", at, at + 9_000_000, pid=pid, tid=pid, by_id=step % 2 == 0)
            e.copy("cudaMemcpyAsync_v3020", at + 1000, at + 3000, 1, 1 << 20, src=1, pid=pid, tid=pid, chain=chain)
            e.copy("cudaMemcpy_v3020", at + 10_000, at + 20_000, 2, 4096, src=2, dst=0, pid=pid, tid=pid)
            e.wait("cudaStreamSynchronize_v3020", at + 1_000_000, at + 3_000_000, 3, pid=pid, tid=pid)
            if memory:
                e.memory("cudaMalloc_v3020", at + 4_000_000, 0x7f0000000000 + (step << 24), 1 << 20, pid=pid)
                if step % 2:
                    e.memory("cudaFree_v3020", at + 5_000_000, 0x7f0000000000 + (step << 24), 1 << 20, pid=pid, freed=True)
    e.row("TARGET_INFO_GPU", id=3, name="NVIDIA Something", totalMemory=24 << 30, cuDevice=0)
    if year > 2023:
        for pid in 7, 8:
            e.row("TARGET_INFO_CUDA_DEVICE", gpuId=3, cudaId=0, pid=pid)
    e.row("TARGET_INFO_SESSION_START_TIME", utcEpochNs=1_700_000_000_000_000_000)
    return e.done()


# ---------------------------------------------------------------- every format

@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
@pytest.mark.parametrize("year", [2021, 2023, 2026])
def test_every_form_is_read_equally(tmp_path, year, packed):
    file = usual(tmp_path / "x.sqlite", year)
    if packed:
        (tmp_path / "x.sqlite.gz").write_bytes(gzip.compress(file.read_bytes()))
        file = tmp_path / "x.sqlite.gz"
    found = imported(file, tmp_path)
    assert set(found) == {7, 8}
    longer = 10 if year < 2023 else 0  # the call with a chain is measured from further outside
    for pid, db in found.items():
        assert db.execute("SELECT direction, host_memory, async, api, count(*), sum(bytes), sum(blocked_ns), min(device), "
                          "min(stream) FROM copies GROUP BY direction ORDER BY direction").fetchall() == \
            [("d2h", "pageable", 0, "cudaMemcpy", 20, 20 * 4096, 20 * 10_000, 0, 7),
             ("h2d", "pinned", 1, "cudaMemcpyAsync", 20, 20 << 20, 20 * (2000 + longer), 0, 7)]
        assert db.execute("SELECT kind, api, count(*), sum(blocked_ns), min(handle) FROM syncs GROUP BY 1, 2").fetchall() == \
            [("stream", "cudaStreamSynchronize", 20, 20 * 2_000_000, 7)]
        assert db.execute("SELECT pid, command, start_real_ns FROM process").fetchall() == \
            [(pid, f"./train-{pid}", 1_700_000_005_000_000_007)]
        assert db.execute("SELECT device, name, total_bytes FROM device").fetchall() == [(0, "NVIDIA Something", 24 << 30)]
        assert {(pid, "worker")} <= set(db.execute("SELECT tid, name FROM thread").fetchall())
        assert db.execute("SELECT count(*), min(start_ns), max(end_ns - start_ns) FROM marks WHERE name LIKE 'step %'"
                          ).fetchone() == (20, pid - 7, 9_000_000)
        first = db.execute("SELECT min(start_ns) FROM copies").fetchone()[0]
        assert first == 1000 + pid - 7 - longer // 2
        frames = db.execute("SELECT f.function, m.path FROM frame f LEFT JOIN module m ON m.id = f.module_id").fetchall()
        assert sorted(frames) == [("main", "/home/u/train"), ("upload(float*)", "/home/u/train")]  # from the caller on


@pytest.mark.parametrize("own", [True, False])
def test_gpus_of_the_first_exports(tmp_path, own):
    """Those of 2021 have GPUs by the number that CUDA gave them in a process, and otherwise a name alone."""
    file = usual(tmp_path / "x.sqlite", 2021)
    db = sqlite3.connect(file)
    db.executescript("DROP TABLE TARGET_INFO_GPU; CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, deviceId INTEGER, name TEXT, busLocation TEXT);"
                     "INSERT INTO TARGET_INFO_GPU VALUES (0, 0, 'Some GPU', '0000:02:00.0'); DROP TABLE IF EXISTS TARGET_INFO_CUDA_GPU;")
    if own:
        db.execute("CREATE TABLE TARGET_INFO_CUDA_GPU (vmId INTEGER, name TEXT, globalMemorySize INTEGER, deviceId INTEGER, pid INTEGER)")
        db.executemany("INSERT INTO TARGET_INFO_CUDA_GPU VALUES (0, ?, ?, 0, ?)", [("GPU of 7", 10 << 30, 7), ("GPU of 8", 24 << 30, 8)])
    db.commit()
    db.close()
    for pid, imported_db in imported(file, tmp_path).items():
        assert imported_db.execute("SELECT device, name, total_bytes FROM device").fetchall() == \
            [(0, f"GPU of {pid}", (10 if pid == 7 else 24) << 30) if own else (0, "Some GPU", 0)]


def test_lines_steps_and_gates(tmp_path):
    file = usual(tmp_path / "x.sqlite")
    report = json.loads(gpuspy("report", "--json", file).stdout)
    assert [(p["pid"], p["database"]) for p in report["run"]["processes"]] == [(7, str(file)), (8, str(file))]
    assert report["run"]["lacks"] == ["memory", "tensors"] and "does not record memory" in report["run"]["why_no_memory"]
    assert sum(s["count"] for s in report["sync"] if s["kind"] == "stream") == 40
    assert {t["direction"]: (t["count"], t["bytes"]) for t in report["transfers"]} == {"h2d": (40, 40 << 20), "d2h": (40, 40 * 4096)}
    assert report["steps"] and len(report["steps"]) == 2
    assert "upload" in gpuspy("tree", "--what", "copies", "--native", file).stdout
    assert gpuspy("check", "--max-copies-per-step=2", "--max-h2d-per-step=1MiB", file).stdout
    gpuspy("check", "--max-copies-per-step=1", file, code=1)


def test_memory_without_the_option_is_unknown_everywhere(tmp_path):
    for year in 2021, 2026:  # the table is empty, or missing
        file = usual(tmp_path / "x.sqlite", year)
        text = one_line(gpuspy("report", file).stdout)
        assert UNKNOWN in text and "Whether memory ran out is unknown" in text and "no GPU memory was allocated" not in text
        for view in ("tree",), ("timeline",), ("flame",), ("table",), ("tree", "--what", "oom"):
            assert UNKNOWN in gpuspy(*view, file, code=1).stderr
        for view in ("leaks",), ("stats",), ("diff", file):
            assert "M" + UNKNOWN[1:] in one_line(gpuspy(*view, file).stdout)
        top = one_line(gpuspy("top", file).stdout)
        assert UNKNOWN in top and "0 B" not in top and "CUDA allocations" not in top.split("LINE")[1], top
        assert UNKNOWN in gpuspy("export", file, code=1).stderr
        for gate in "--max-peak=9TiB", "--no-oom", "--no-leaks", "--max-leak=9TiB", "--max-pinned=9TiB", "--max-growth=9TiB/step":
            text = one_line(gpuspy("check", gate, file, code=1).stdout)
            assert "cannot be judged" in text and "without --cuda-memory-usage=true does not record memory" in text
        assert "does not record PyTorch's tensors" in one_line(gpuspy("check", "--max-tensor-peak=9TiB", file, code=1).stdout)


@pytest.mark.parametrize("year", [2021, 2026])
def test_memory_that_is_recorded(tmp_path, year):
    file = usual(tmp_path / "x.sqlite", year, memory=True)
    db = imported(file, tmp_path)[7]
    assert db.execute("SELECT count(*), sum(free_ns IS NULL), sum(bytes), min(api), max(api) FROM allocations").fetchone() == \
        (20, 10, 20 << 20, "cudaMalloc", "cudaMalloc")
    report = json.loads(gpuspy("report", "--json", file).stdout)
    assert report["run"]["lacks"] == ["tensors"]
    assert max(p["bytes"] for p in report["peak"]) == 11 << 20
    gpuspy("check", "--max-peak=11MiB", file)
    gpuspy("check", "--max-peak=10MiB", file, code=1)
    assert "10.00 MiB" in gpuspy("leaks", file).stdout


@pytest.mark.parametrize("memory", [False, True])
def test_allocations_that_failed(tmp_path, memory):
    e = Export(tmp_path / "x.sqlite")
    e.memory("cudaMalloc_v3020", 1000, 1 << 40, 100) if memory else e.copy("cudaMemcpy_v3020", 1000, 1100, 1, 64)
    for i, (name, code) in enumerate([("cudaMalloc_v3020", 2), ("cuMemAlloc_v2", 2), ("cudaMalloc_v3020", 1), ("cudaMemcpy_v3020", 2)]):
        e.row("CUPTI_ACTIVITY_KIND_RUNTIME", start=2000, end=2100, globalTid=HOST | 7 << 24 | 7, correlationId=900 + i,
              nameId=e.string(name), returnValue=code)
    text = one_line(gpuspy("report", e.done()).stdout)
    why = "2 allocations of process 7 failed because memory ran out; an Nsight Systems export does not record how much they requested"
    assert why in text and "CUDA ran out of memory; the amount is unknown" in text
    assert why in one_line(gpuspy("check", "--no-oom", e.path, code=1).stdout)


@pytest.mark.parametrize("text, pid, warned", (
    ("Not all CUDA events might have been collected.", None, True),
    ("Not all CUDA events might have been collected.", 7, True),
    ("Not all CUDA events might have been collected.", 8, False),
    ("Not all NVTX events might have been collected.", None, False),
    ("Number of CUDA events collected: \t3.", None, False),
))
def test_calls_that_may_be_missing(tmp_path, text, pid, warned):
    e = Export(tmp_path / "x.sqlite")
    e.copy("cudaMemcpy_v3020", 1000, 1100, 1, 64)
    e.row("DIAGNOSTIC_EVENT", timestamp=1, timestampType=1, source=3, severity=2, text=text, globalPid=pid and HOST | pid << 24)
    assert ("Nsight Systems warns that it may not have recorded all calls of CUDA" in one_line(gpuspy("report", e.done()).stdout)) == warned


def test_kinds_of_memory(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    for i, (kind, call) in enumerate([(0, "malloc"), (1, "cudaHostAlloc_v3020"), (2, "cudaMalloc_v3020"), (3, "cudaMallocArray_v3020"),
                                      (4, "cudaMallocManaged_v6000"), (5, "cudaFree_v3020"), (7, "cudaMalloc_v3020")]):
        e.memory(call, 1000 * (i + 1), (i + 1) << 20, 100 + i, kind)
    e.memory("cudaMallocAsync_v11020", 9000, 99 << 20, 5, localMemoryPoolAddress=77)
    db = imported(e.done(), tmp_path)[7]
    assert db.execute("SELECT space, api, bytes FROM allocations ORDER BY bytes").fetchall() == [
        ("pool", "cudaMallocAsync", 5), ("pinned", "cudaHostAlloc", 101), ("device", "cudaMalloc", 102),
        ("array", "cudaMallocArray", 103), ("managed", "cudaMallocManaged", 104), ("device", "cudaFree", 105)]


# ---------------------------------------------------------------- copies and waits

@pytest.mark.parametrize("last", ["call that waits", "wait without a call", "copy", "range", "kernel"])
def test_the_run_lasts_until_its_last_event_ended(tmp_path, last):
    e = Export(tmp_path / "x.sqlite")
    e.copy("cudaMemcpy_v3020", 1000, 2000, 1, 64)
    end = 9_000_001_000
    if last == "copy":
        e.copy("cudaMemcpy_v3020", 3000, end, 2, 64)
    elif last == "range":
        e.range("all", 1000, end)
    elif last == "kernel":
        e.db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, globalPid INTEGER)")
        e.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (3000, ?, ?)", (end, HOST | 7 << 24))
    else:
        e.wait("cudaDeviceSynchronize_v3020" if "call" in last[:5] else None, 3000, end + (last[0] == "w"), 4)
    e.copy("cudaMemcpy_v3020", 4000, 4100, 1, 64)  # a later event that ends earlier, of another thread
    report = json.loads(gpuspy("report", "--json", e.done()).stdout)
    assert report["run"]["duration_s"] == pytest.approx(9, abs=1e-9)
    assert report["sync_share"] <= 1
    assert all(s["share"] <= 1 for s in report["sync"])


def test_kinds_of_copies(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    directions = {1: "h2d", 2: "d2h", 3: "h2d", 4: "d2h", 5: "d2d", 6: "d2d", 7: "d2d", 8: "d2d", 9: "h2h", 10: "p2p",
                  11: "h2d", 12: "d2h", 13: "d2d"}
    for kind in directions:
        e.copy("cudaMemcpy_v3020", kind * 10_000, kind * 10_000 + 100, kind, kind)
    e.copy("cudaMemcpy_v3020", 200_000, 200_100, 0, 100, src=1, dst=2)
    e.copy("cudaMemcpy_v3020", 210_000, 210_100, 99, 101, src=2, dst=4)
    db = imported(e.done(), tmp_path)[7]
    got = {size: (direction, host) for direction, host, size in db.execute("SELECT direction, host_memory, bytes FROM copies")}
    assert {size: got[size][0] for size in directions} == directions
    assert got[11][1] == got[12][1] == "managed" and got[1][1] == "pageable" and got[8][1] == "none"
    assert got[100] == ("h2d", "pinned") and got[101][0] == "d2d"


def test_copies_without_a_call_of_their_own(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    graph = e.call("cudaGraphLaunch_v10000", 1000, 1200)
    batch = e.call("cudaMemcpyBatchAsync_v12080", 5000, 5700)
    for i in range(3):
        e.copy(None, 0, 0, 8, 10, gpu=2000 + i)
        e.db.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET correlationId = ? WHERE start = ?", (graph, 2000 + i))
        e.copy(None, 0, 0, 1, 20, gpu=8000 + i)
        e.db.execute("UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET correlationId = ? WHERE start = ?", (batch, 8000 + i))
    e.copy(None, 0, 0, 12, 30, gpu=9000)
    db = imported(e.done(), tmp_path)[7]
    assert db.execute("SELECT bytes, api, start_ns, blocked_ns FROM copies ORDER BY id").fetchall() == [
        (10, "cudaGraphLaunch", 1000, 0), (10, "cudaGraphLaunch", 1001, 0), (10, "cudaGraphLaunch", 1002, 0),
        (20, "cudaMemcpyBatchAsync", 4000, 700), (20, "cudaMemcpyBatchAsync", 4000, 0), (20, "cudaMemcpyBatchAsync", 4000, 0),
        (30, None, 8000, 0)]
    assert "3 copies and fills have no recorded call" in one_line(gpuspy("report", tmp_path / "x.sqlite").stdout)


def test_each_wait_counts_once(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    e.wait("cudaStreamSynchronize_v3020", 1000, 2000, 3)
    e.wait("cudaDeviceSynchronize_v3020", 3000, 4000, 1)  # 2023 and 2024 give it the name of an event's call
    e.wait("cudaEventSynchronize_v3020", 5000, 6000, 1, event=3)
    e.wait("cuCtxSynchronize", 7000, 8000, 4)
    e.wait("cuStreamSynchronize_ptsz", 7100, 7900, 3)     # inside of the previous one, so not counted again
    e.wait("cuStreamSynchronize_ptsz", 7100, 7900, 3, tid=9)
    e.wait("cudaEventQuery_v3020", 9000, 9500, 1, event=3)
    e.wait("cudaStreamWaitEvent_v3020", 10_000, 10_500, 2)
    e.wait(None, 11_000, 12_000, 3)
    e.wait(None, 13_000, 14_000, 2)
    e.wait("cudaFree_v3020", 15_000, 16_000, 4)
    e.wait("cudaMemcpy_v3020", 17_000, 18_000, 3)
    e.call("cudaThreadSynchronize_v3020", 19_000, 20_000)
    e.call("cudaExecutionCtxSynchronize_v13010", 30_000, 31_000)
    e.call("cudaLaunchKernel_v7000", 21_000, 29_000)
    db = imported(e.done(), tmp_path)[7]
    assert db.execute("SELECT kind, api, start_ns + 1000, blocked_ns FROM syncs ORDER BY id").fetchall() == [
        ("stream", "cudaStreamSynchronize", 1000, 1000), ("device", "cudaDeviceSynchronize", 3000, 1000),
        ("event", "cudaEventSynchronize", 5000, 1000), ("context", "cuCtxSynchronize", 7000, 1000),
        ("stream", "cuStreamSynchronize", 7100, 800), ("stream", None, 11_001, 998), ("implicit", "cudaFree", 15_001, 998),
        ("device", "cudaThreadSynchronize", 19_000, 1000), ("context", "cudaExecutionCtxSynchronize", 30_000, 1000)]


@pytest.mark.parametrize("mark, pushed, started", [(34, 59, 60), (65, 70, 71)], ids=["NVTX", "NVTXT"])
def test_fills_marks_and_domains(tmp_path, mark, pushed, started):
    e = Export(tmp_path / "x.sqlite")
    correlation = e.call("cudaMemsetAsync_v3020", 1000, 1300)
    e.row("CUPTI_ACTIVITY_KIND_MEMSET", start=2000, end=2100, deviceId=1, streamId=5, correlationId=correlation,
          globalPid=HOST | 7 << 24, value=0, bytes=640)
    e.range("NCCL", 0, None, kind=75, domain=3)
    e.range("ncclAllReduce", 1500, 1600, kind=pushed, domain=3)
    e.range("open", 1700, None, kind=started)
    e.range("now", 1800, None, kind=mark, by_id=True)
    e.range("empty", 1900, 1900, kind=pushed)
    e.range("elsewhere", 100, 200, pid=99)
    db = imported(e.done(), tmp_path)[7]
    assert db.execute("SELECT bytes, async, blocked_ns, device, stream FROM memset").fetchall() == [(640, 1, 300, 1, 5)]
    assert db.execute("SELECT kind, name, domain, start_ns + 1000, end_ns - start_ns FROM marks ORDER BY id").fetchall() == [
        ("start", "ncclAllReduce", "NCCL", 1500, 100), ("start", "open", None, 1700, None), ("moment", "now", None, 1800, 0),
        ("start", "empty", None, 1900, 0)]


# ---------------------------------------------------------------- commands

VIEWS = [("report",), ("report", "--html", "out.html"), ("tree",), ("tree", "--what", "waits"), ("timeline",), ("leaks",),
         ("stats",), ("table",), ("flame",), ("check", "--max-peak", "1TiB"), ("export", "--format", "chrome-trace", "-o", "out.html"), ("sql",),
         ("report", "--process", "8"), ("tree", "--what", "copies", "--process", "7")]


@pytest.mark.parametrize("view", VIEWS, ids=" ".join)
def test_every_reading_command_takes_the_file_itself(tmp_path, view):
    (tmp_path / "x.sqlite.gz").write_bytes(gzip.compress(usual(tmp_path / "x.sqlite", memory=True).read_bytes()))
    (tmp_path / "temporary").mkdir()
    query = ["SELECT count(*) FROM allocations"] if view == ("sql",) else []
    for file in "x.sqlite", "x.sqlite.gz":
        done = gpuspy(*view, file, *query, cwd=tmp_path, TMPDIR=str(tmp_path / "temporary"))
        assert not list((tmp_path / "temporary").iterdir())
    if view == ("sql",):
        assert "40" in done.stdout
    assert {f.name for f in tmp_path.iterdir()} <= {"x.sqlite", "x.sqlite.gz", "temporary", "out.html"}


def test_sql_sees_all_processes(tmp_path):
    file = usual(tmp_path / "x.sqlite")
    rows = json.loads(gpuspy("sql", "--json", file, "SELECT process_id, api, count(*) AS n FROM syncs GROUP BY 1, 2").stdout)
    assert [(r["process_id"], r["api"], r["n"]) for r in rows] == [(1, "cudaStreamSynchronize", 20), (2, "cudaStreamSynchronize", 20)]


def test_import_names_its_files(tmp_path):
    usual(tmp_path / "x.sqlite")
    gpuspy("import", "x.sqlite", cwd=tmp_path)
    assert {f.name for f in tmp_path.iterdir()} == {"x.sqlite", "x.db", "x.8.db"}
    one, all_ = (json.loads(gpuspy("report", "--json", f, cwd=tmp_path).stdout) for f in ("x.db", "x.sqlite"))
    assert one["sync"] == all_["sync"] and one["transfers"] == all_["transfers"]
    (tmp_path / "x.db").unlink()
    assert "'x.8.db' exists" in gpuspy("import", "x.sqlite", cwd=tmp_path, code=3).stderr
    assert "ends in .db" in gpuspy("import", "x.sqlite", "-o", "out", cwd=tmp_path, code=3).stderr
    assert {f.name for f in tmp_path.iterdir()} == {"x.sqlite", "x.8.db"}


def test_two_exports_side_by_side(tmp_path):
    usual(tmp_path / "a.sqlite")
    e = Export(tmp_path / "b.sqlite")
    e.copy("cudaMemcpy_v3020", 1000, 2000, 1, 1 << 20)
    e.done()
    text = gpuspy("diff", "--what", "copies", "a.sqlite", "b.sqlite", cwd=tmp_path).stdout
    assert "from 40.16 MiB to 1.00 MiB" in one_line(text)
    for name in "a.sqlite", "b.sqlite":
        (tmp_path / (name + ".gz")).write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    packed = gpuspy("diff", "--what", "copies", "a.sqlite.gz", "b.sqlite.gz", cwd=tmp_path).stdout
    assert "from 40.16 MiB to 1.00 MiB" in one_line(packed)
    done = gpuspy("report", "--json", "a.sqlite", "b.sqlite", cwd=tmp_path)
    assert len(json.loads(done.stdout)["run"]["processes"]) == 3


def test_gpuspys_own_database_is_read_as_before(tmp_path):
    usual(tmp_path / "x.sqlite")
    gpuspy("import", "x.sqlite", "-o", "run.db", cwd=tmp_path)
    before = (tmp_path / "run.db").read_bytes()
    gpuspy("report", "run.db", cwd=tmp_path)
    assert (tmp_path / "run.db").read_bytes() == before
    assert "is a recording of gpuspy already" in gpuspy("import", "run.db", "-o", "again.db", cwd=tmp_path, code=3).stderr
    sqlite3.connect(tmp_path / "other.db").executescript("CREATE TABLE a(b); INSERT INTO a VALUES(1)")
    assert "not a gpuspy recording" in gpuspy("report", "other.db", cwd=tmp_path, code=3).stderr


def test_a_report_that_was_not_exported(tmp_path):
    (tmp_path / "report1.nsys-rep").write_bytes(b"QDSTRM" * 99)
    for command in "report", "import":
        assert "nsys export --type sqlite" in gpuspy(command, "report1.nsys-rep", cwd=tmp_path, code=3).stderr


# ---------------------------------------------------------------- hostile files

def refused(file, *, within=60):
    started = time.monotonic()
    done = gpuspy("report", file, code=3)
    assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr, done.stderr
    assert time.monotonic() - started < within
    return done.stderr


def test_rows_that_make_no_sense_are_left_out_and_counted(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    e.copy("cudaMemcpy_v3020", 1000, 2000, 1, 64)
    table = "CUPTI_ACTIVITY_KIND_MEMCPY"
    pid = HOST | 7 << 24
    good = dict(start=5000, end=5100, deviceId=0, streamId=7, correlationId=0, globalPid=pid, bytes=64, copyKind=1)
    bad = [{"start": "now"}, {"start": None}, {"start": 1.5}, {"start": b"\0\1"}, {"bytes": "many"}, {"bytes": -1}, {"bytes": 2 ** 62},
           {"globalPid": None}, {"globalPid": "x" * 100_000}, {"start": -2 ** 63}, {"start": 2 ** 63 - 1}]
    odd = [{"end": -5}, {"end": None}, {"end": 2 ** 63 - 1}, {"deviceId": 10 ** 12}, {"deviceId": "gpu"}, {"copyKind": "h2d"},
           {"copyKind": -7}, {"streamId": None}, {"correlationId": "x"}, {"correlationId": 2 ** 60}]
    for change in bad + odd:
        e.row(table, **{**good, **change})
    e.row("CUPTI_ACTIVITY_KIND_RUNTIME", start="x", end=3, globalTid=pid, nameId=1, correlationId=9)
    e.row("NVTX_EVENTS", start=10, end=20, eventType=59, text="long " * 100_000, globalTid=pid)
    e.row("NVTX_EVENTS", start=10, end=20, eventType=59, text=b"\xff\xfe\0bad", globalTid=pid)
    e.row("StringIds", id=500, value=b"\xff" * 70_000)
    e.row("PROCESSES", globalPid=pid, pid=7, name="\x1b[31mred\x07" * 1000)
    file = e.done()
    report = json.loads(gpuspy("report", "--json", file).stdout)
    assert sum(t["count"] for t in report["transfers"]) == 1 + len(odd)
    db = imported(file, tmp_path)[7]
    assert db.execute("SELECT value FROM meta WHERE key = 'damaged_records'").fetchone() == (len(bad) + 1,)
    assert "\x1b" not in gpuspy("report", file).stdout


def test_other_types_of_columns_and_missing_tables(tmp_path):
    full = usual(tmp_path / "full.sqlite", memory=True)
    db = sqlite3.connect(full)
    tables = [t for t, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    db.close()
    for table in tables:
        for column in [None] + [c[1] for c in sqlite3.connect(full).execute(f"PRAGMA table_info({table})")]:
            file = tmp_path / "x.sqlite"
            shutil.copy(full, file)
            db = sqlite3.connect(file, isolation_level=None)
            if column is None:
                db.execute(f"DROP TABLE {table}")
            else:
                db.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO gone")
            db.close()
            done = subprocess.run([TOOL, "report", "--json", file], capture_output=True, text=True)
            assert done.returncode in (0, 3), (table, column, done.stderr)
            if done.returncode == 3:
                assert len(done.stderr.splitlines()) == 1
                assert "no CUDA calls" in done.stderr or "neither" in done.stderr, (table, column, done.stderr)
            else:
                json.loads(done.stdout)


def test_views_and_triggers_of_the_file_do_nothing(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    e.copy("cudaMemcpy_v3020", 1000, 2000, 1, 64)
    for table in "CUDA_CALLCHAINS", "NVTX_EVENTS", "PROCESSES":
        e.db.execute(f"CREATE VIEW {table} AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT "
                     "start, start AS end, 59 AS eventType, 'x' AS text, 1 AS globalTid, 1 AS id, 1 AS stackDepth, 1 AS globalPid, "
                     "'x' AS name FROM n")
    e.db.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(start INTEGER, bytes INTEGER AS (length(zeroblob(500000000))), globalPid)")
    e.db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET(start, globalPid) VALUES(1, 2)")
    e.db.execute("CREATE TRIGGER t AFTER INSERT ON StringIds BEGIN DELETE FROM StringIds; END")
    file = e.done()
    started = time.monotonic()
    assert json.loads(gpuspy("report", "--json", file).stdout)["transfers"][0]["count"] == 1
    assert time.monotonic() - started < 10


def test_a_table_without_end(tmp_path):
    """Pages that each point to the same next page hundreds of times: few bytes, but endless rows"""
    e = Export(tmp_path / "x.sqlite")
    for i in range(20_000):
        e.db.execute("INSERT INTO StringIds VALUES(?, ?)", (i + 1, "x" * 40)) if i else e.string("cudaMemcpy_v3020")
    e.copy("cudaMemcpy_v3020", 1000, 2000, 1, 64)
    root = e.db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'StringIds'").fetchone()[0]
    size = e.db.execute("PRAGMA page_size").fetchone()[0]
    file = e.done()
    data = bytearray(file.read_bytes())
    at = (root - 1) * size
    assert data[at] == 5  # an interior page
    cells = int.from_bytes(data[at + 3:at + 5], "big")
    child = int.from_bytes(data[at + 12:at + 14], "big") + at
    first = data[child:child + 4]
    # a chain of copies of the root: each cell points to the next copy
    levels, pages = 6, len(data) // size
    for level in range(levels):
        page = bytearray(data[at:at + size])
        target = (pages + level + 2).to_bytes(4, "big") if level + 1 < levels else first
        for c in range(cells):
            cell = int.from_bytes(page[12 + 2 * c:14 + 2 * c], "big")
            page[cell:cell + 4] = target
        page[8:12] = target
        data += page
    for c in range(cells):
        cell = int.from_bytes(data[at + 12 + 2 * c:at + 14 + 2 * c], "big") + at
        data[cell:cell + 4] = (pages + 1).to_bytes(4, "big")
    data[at + 8:at + 12] = (pages + 1).to_bytes(4, "big")
    data[28:32] = (len(data) // size).to_bytes(4, "big")
    file.write_bytes(data)
    assert "damaged" in refused(file)


def test_damaged_files_get_one_line(tmp_path):
    whole = usual(tmp_path / "x.sqlite", memory=True).read_bytes()
    random.seed(5)
    (tmp_path / "temporary").mkdir()
    for i in range(120):
        data = bytearray(whole[:random.randrange(100, len(whole))] if i % 3 == 0 else whole)
        for _ in range(i % 3 and random.randrange(1, 60)):
            data[random.randrange(100, len(data))] = random.randrange(256)
        packed = i % 5 == 4
        file = tmp_path / ("d.sqlite.gz" if packed else "d.sqlite")
        data = gzip.compress(bytes(data)) if packed else bytes(data)
        file.write_bytes(data[:-9] if i % 10 == 4 else data)
        done = subprocess.run([TOOL, "report", "--json", file], capture_output=True, text=True, errors="replace", timeout=SECONDS,
                              env={**os.environ, "TMPDIR": str(tmp_path / "temporary")})
        assert done.returncode in (0, 3), done.stderr
        if done.returncode:
            assert len(done.stderr.splitlines()) == 1 and str(file) in done.stderr, done.stderr
        else:
            json.loads(done.stdout)
        assert not list((tmp_path / "temporary").iterdir())


def test_endless_compressed_data_is_refused(tmp_path):
    whole = usual(tmp_path / "x.sqlite").read_bytes()
    file = tmp_path / "bomb.sqlite.gz"
    with gzip.open(file, "wb") as f:
        f.write(whole)
        for _ in range(300):
            f.write(bytes(1 << 20))
    (tmp_path / "temporary").mkdir()
    done = gpuspy("report", file, code=3, TMPDIR=str(tmp_path / "temporary"))
    assert "unpacks to more than" in done.stderr and not list((tmp_path / "temporary").iterdir())


def test_more_processes_than_anybody_has(tmp_path):
    e = Export(tmp_path / "x.sqlite")
    e.db.execute("BEGIN")
    for pid in range(1, 1500):
        e.copy("cudaMemcpy_v3020", 1000, 2000, 1, 64, pid=pid)
    e.db.execute("COMMIT")
    assert "more than 1024 processes" in refused(e.done())
    e = Export(tmp_path / "y.sqlite")
    e.row("StringIds", id=1, value="x")
    assert "no CUDA calls" in refused(e.done())


# ---------------------------------------------------------------- real files

WAITS = {"cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaThreadSynchronize", "cudaEventSynchronize", "cuStreamSynchronize",
         "cuEventSynchronize", "cuCtxSynchronize"}
WORDS = {1: "h2d", 2: "d2h", 8: "d2d", 9: "h2h", 10: "p2p", 11: "h2d", 12: "d2h"}


def expected(db):
    """By pid: {direction: [count, bytes, time in their calls]}, [waits, time in them], ranges"""
    pid = lambda value: value >> 24 & 0xffffff
    tables = {t for t, in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    strings = dict(db.execute("SELECT id, value FROM StringIds"))
    calls, times = {}, collections.defaultdict(int)
    for tid, correlation, start, end, name in db.execute(
            "SELECT globalTid, correlationId, start, end, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME"):
        key = pid(tid), correlation
        times[key] = max(times[key], end - start)
        calls[key] = re.sub(r"_v\d{4,}$", "", strings[name])
    copies = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0, 0]))
    seen = set()
    for process, correlation, size, kind in db.execute(
            "SELECT globalPid, correlationId, bytes, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"):
        key = pid(process), correlation
        entry = copies[pid(process)][WORDS[kind]]
        entry[0] += 1
        entry[1] += size
        entry[2] += times.get(key, 0) if key not in seen else 0
        seen.add(key)
    waits = collections.defaultdict(lambda: [0, 0])
    for key, name in calls.items():
        if name in WAITS:
            waits[key[0]][0] += 1
            waits[key[0]][1] += times[key]
    ranges = collections.Counter()
    if "NVTX_EVENTS" in tables:
        for tid, in db.execute("SELECT globalTid FROM NVTX_EVENTS WHERE eventType IN (34, 59, 60, 65, 70, 71)"):
            ranges[pid(tid)] += 1
    sets = collections.Counter()
    if "CUPTI_ACTIVITY_KIND_MEMSET" in tables:
        for process, size in db.execute("SELECT globalPid, bytes FROM CUPTI_ACTIVITY_KIND_MEMSET"):
            sets[pid(process)] += size
    return {p: ({d: tuple(v) for d, v in copies[p].items()}, tuple(waits[p]), ranges[p], sets[p]) for p in {k[0] for k in calls}}


@pytest.mark.parametrize("file", REAL, ids=lambda f: f.name[:8])
def test_what_real_gpus_gave(tmp_path, file):
    plain = tmp_path / "plain.sqlite"
    plain.write_bytes(gzip.decompress(file.read_bytes()))
    want = expected(sqlite3.connect(plain))
    got = {}
    for pid, db in imported(file, tmp_path).items():
        copies = {d: (n, size, ns) for d, n, size, ns in db.execute(
            "SELECT direction, count(*), sum(bytes), sum(blocked_ns) FROM copies GROUP BY 1")}
        got[pid] = (copies, db.execute("SELECT count(*), coalesce(sum(blocked_ns), 0) FROM syncs").fetchone(),
                    db.execute("SELECT count(*) FROM marks").fetchone()[0],
                    db.execute("SELECT coalesce(sum(bytes), 0) FROM memset").fetchone()[0])
        meta = dict(db.execute("SELECT key, value FROM meta"))
        assert meta["damaged_records"] == 0 and not {"undefined_numbers", "unmatched_ends"} & set(meta)
    assert got == want
    report = json.loads(gpuspy("report", "--json", file).stdout)
    assert sum(t["bytes"] for t in report["transfers"]) == sum(c[1] for w in want.values() for c in w[0].values())
    gpuspy("check", "--max-peak=1TiB", file, code=1)
    gpuspy("report", "--html", tmp_path / "out.html", plain)


@pytest.mark.skipif(not REAL, reason="no recordings of real GPUs here")
def test_the_lines_of_a_real_program():
    """MPI and CUDA on an A100: 15 copies of main(), 250 MiB each"""
    file = next(f for f in REAL if f.name.startswith("4f6385d6"))
    tree = gpuspy("tree", "--what", "copies", "--native", file).stdout
    assert "main" in tree and "libcupti" not in tree


@pytest.mark.parametrize("name, advice", [("/usr/bin/python3.11 train.py", "DataLoader(pin_memory=True)"),
                                          ("build/sort_keys", "allocate its source with cudaMallocHost")])
def test_advice_for_slow_copies_speaks_of_the_programs_language(tmp_path, name, advice):
    e = Export(tmp_path / "r.sqlite")
    e.row("PROCESSES", globalPid=HOST | 7 << 24, pid=7, name=name)
    for i in range(20):
        e.copy("cudaMemcpy_v3020", i * 10 ** 9, i * 10 ** 9 + 9 * 10 ** 8, 1, 64 << 20)
    e.db.close()
    given = json.loads(gpuspy("report", "--json", tmp_path / "r.sqlite").stdout)["transfers"][0]["advice"]
    assert given.startswith("slow copy from pageable memory") and advice in given, given
