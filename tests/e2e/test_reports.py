"""Reports on runs that cannot be made on this machine (tests/e2e/rows.py), for an ML engineer: PyTorch on a GPU, many
ranks, hours; and malicious recordings."""
import os
import re
import sqlite3
import subprocess
import sys
import unicodedata

import pytest
from conftest import BUILD, ROOT
from rows import DEVICE, GIB, IMPLICIT, MIB, TENSOR, Rows

TORCH = "/usr/lib/python3/dist-packages/torch"
MAIN = ("/home/me/train.py:90 <module>", "/home/me/train.py:60 main")


def torch_run(path, leaks, asked=0):
    """3 + 4 GiB of weights and states, activations that are allocated and freed, NCCL; optionally a leak."""
    with Rows(path) as r:
        r.device()
        weights = r.stack(*MAIN, "/home/me/train.py:20 build", f"{TORCH}/nn/modules/linear.py:96 Linear.__init__")
        states = r.stack(*MAIN, "/home/me/train.py:44 train", f"{TORCH}/optim/adam.py:180 Adam._init_group")
        activations = r.stack(*MAIN, "/home/me/train.py:40 train", f"{TORCH}/nn/modules/module.py:1501 _call_impl",
                              "/home/me/model.py:33 Block.forward", f"{TORCH}/nn/functional.py:900 gelu")
        history = r.stack(*MAIN, "/home/me/train.py:48 train")
        r.block(0.1, 512 * MIB, None, r.stack(*MAIN, f"{TORCH}/distributed/distributed_c10d.py:900 init"))
        blocks, segments = [], 0
        for at, stack, segment, tensor in [(0.5, weights, 3, 2700), (1.0, states, 4, 3800), (1.9, activations, 2, 0)]:
            segments += segment
            blocks += [(at, segment * GIB, None, stack, DEVICE)] + [(at + .01, tensor * MIB, None, stack, TENSOR)] * (
                tensor > 0)
            r.reserved(at, segments * GIB)
        for step in range(100):
            at = 2 + step * .07
            blocks += [(at + k * .005, 300 * MIB, .04, activations, TENSOR) for k in range(4)]
            if leaks:
                blocks.append((at + .03, 100 * MIB, None, history, TENSOR))
                if step % 10 == 0:
                    segments += 1
                    blocks.append((at - .001, GIB, None, activations, DEVICE))
                    r.reserved(at - .001, segments * GIB)
        for block in sorted(blocks):
            r.block(*block)
        if asked:
            free = 23 * GIB - 512 * MIB - segments * GIB
            r.oom(9.19, asked, free, 24 * GIB, stack=activations)
            r.oom(9.2, asked, free, 24 * GIB, TENSOR, allocated=(6500 + 10000 * leaks) * MIB,
                  reserved=segments * GIB, stack=activations)


def text(recording, *arguments, columns=100):
    os.environ["COLUMNS"] = str(columns)
    try:
        done = recording.gpuspy("report", "--full", *arguments)
    finally:
        del os.environ["COLUMNS"]
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_tensors_and_device_memory(recording):
    torch_run(recording.database, leaks=False)
    (memory,) = recording.report()["memory"]
    own = memory["tensor_bytes"] + memory["cached_bytes"] + memory["direct_bytes"]
    assert own == memory["live_bytes"] == 9 * GIB + 512 * MIB
    assert own + memory["outside_bytes"] + memory["free_bytes"] == memory["total_bytes"]
    assert memory["direct_bytes"] == 512 * MIB
    out = text(recording, recording.database)
    part = out[out.index("Of the GPU's 24.00 GiB at the peak"):]
    names = ["in PyTorch tensors", "cached by PyTorch", "CUDA allocations of torch.distributed", "outside, estimated", "free, estimated"]
    assert [part.index(n) for n in names] == sorted(part.index(n) for n in names)
    assert "512.00 MiB  2.1 %  CUDA allocations of torch.distributed" in part
    assert "train.py:44" in part and "model.py:33" in part and "dist-packages" not in out
    assert "Keeps growing" not in out


def test_a_leak_under_pytorch(recording):
    """The cache that grows with it is not a leak of the line that happened to need another segment."""
    torch_run(recording.database, leaks=True, asked=8 * GIB)
    report = recording.report()
    (oom,) = report["oom"]
    assert oom["cause"] == "leak" and "train.py:48" in oom["verdict"]
    assert [g["site"]["line"] for g in report["growth"]] == [48]
    out = text(recording, recording.database)
    parts = {part["category"] or part["what"]: part for part in oom["waterfall"]}
    assert {k: p["bytes"] for k, p in parts.items() if k not in ("unknown", "parameters", "optimizer_state")} == {
        "cached": oom["tensor_reserved_bytes"] - oom["tensor_allocated_bytes"], "direct": 512 * MIB, "before": GIB,
        "free": 3 * GIB + 512 * MIB}
    assert parts["unknown"]["detail"][0]["site"]["line"] == 48
    assert parts["optimizer_state"]["detail"][0]["bytes"] == 3800 * MIB
    waterfall = out[out.index("Of the GPU's 24.00 GiB at that moment"):]
    for line in ("3.71 GiB *15 % .* optimizer state", "3.71 GiB  train.py:44", "512.00 MiB *2.1 % .* CUDA allocations",
                 "3.50 GiB *15 % .* free"):
        assert re.search(line, waterfall), line
    assert out.count("train.py:48: the line that keeps them is unknown") == 1 and "Keeps growing" not in out


def test_capacity_is_not_a_leak(recording):
    torch_run(recording.database, leaks=False, asked=18 * GIB)
    (oom,) = recording.report()["oom"]
    assert oom["cause"] == "capacity" and "train.py:44" in oom["verdict"]
    measure = oom["measures"][0]  # nothing that grows with the batch is live
    assert "8-bit optimizer" in measure["text"] and measure["enough"] is False
    assert 3800 * MIB * .74 < measure["frees_bytes"] < 3800 * MIB * .75
    assert oom["advice"] == [m["text"] for m in oom["measures"]] and "batch" not in " ".join(oom["advice"])


def test_the_last_pass_of_a_leak_may_take_longer_than_all_others(recording):
    """On a busy machine: a loop that keeps its graphs is no single pass that does not fit."""
    with Rows(recording.database, seconds=15) as r:
        r.device()
        batch = r.stack(*MAIN, "/home/me/train.py:15 validate")
        passes = r.stack(*MAIN, "/home/me/train.py:16 validate", f"{TORCH}/nn/modules/module.py:1501 _call_impl",
                         f"{TORCH}/nn/functional.py:900 gelu")
        r.block(0.1, 20 * GIB, None, passes)
        r.reserved(0.1, 20 * GIB)
        for k in range(80):
            r.block(1 + k * .01, 40 * MIB, .005, batch, TENSOR)
            for layer in range(4):
                r.block(1 + k * .01 + (.001 if k < 79 else 3) * (layer + 1), 60 * MIB, None, passes, TENSOR)
        r.oom(14.5, 5 * GIB, 4 * GIB - 512 * MIB, 24 * GIB, stack=passes)
        r.oom(14.5, 5 * GIB, 4 * GIB - 512 * MIB, 24 * GIB, TENSOR, allocated=320 * 60 * MIB, reserved=20 * GIB, stack=passes)
    (oom,) = recording.report()["oom"]
    assert oom["cause"] == "leak" and oom["blame"]["line"] == 16, oom["verdict"]


@pytest.fixture
def ranks(recording):
    for i in range(8):
        name = f"run.{100 + i}.db" if i != 3 else "run.db"
        with Rows(recording.folder / name, pid=100 + i, rank=7 - i) as r:
            r.device(i % 4)
            at = r.stack("/home/me/train.py:9 <module>", "/home/me/train.py:5 step")
            for k in range(50):
                r.block(.1 + k * .1, (100 + i) * MIB, .2, at, device=i % 4)
                r.sync(.15 + k * .1, .02, at, kind=IMPLICIT, device=i % 4)
    return recording


def test_a_folder_of_ranks(ranks):
    report = ranks.report("--top", "100")
    assert [d["index"] for d in report["devices"]] == [0, 1, 2, 3]
    assert sorted(p["rank"] for p in report["peak"]) == list(range(8))
    assert report["run"]["events"] == 8 * 150
    assert abs(report["sync_share"] - 50 * .02 / 10) < 1e-9  # of the running time of all processes together
    for at in ranks.folder, ranks.database:
        out = text(ranks, at)
        assert "GPUs 0 to 3: NVIDIA RTX, 24.00 GiB each" in out and "of 8 processes" in out
        lines = re.findall(r"^  rank (\d), GPU", out, re.M)
        assert lines == [str(i) for i in range(8)]


def test_two_runs(recording):
    folder = recording.folder / "two"
    folder.mkdir()
    for run in "ab":
        with Rows(folder / f"{run}.db", run=run) as r:
            r.device()
            r.block(1, MIB, 1)
    done = recording.gpuspy("report", "--full", folder)
    assert done.returncode == 3 and "several runs" in done.stderr
    assert "! these are processes of different runs; gpuspy diff compares two runs\n" in text(recording, folder / "a.db", folder / "b.db")


def test_hours(recording):
    with Rows(recording.database, seconds=3 * 3600 + 17) as r:
        r.device()
        at = r.stack("/home/me/train.py:9 <module>")
        for k in range(5000):
            r.block(k * 2.16, (k % 50) * MIB, 40, at)
    out = text(recording, recording.database)
    assert "3 h 00 min on" in out and "10,000 events" in out
    assert "To do" not in out  # one cudaFree every two seconds costs nothing


def test_no_event(recording):
    with Rows(recording.database, seconds=0) as r:
        r.device()
    report = recording.report()
    assert report["run"]["events"] == 0 and report["peak"] == [] and report["advice"] == []
    assert "Memory did not run out; no GPU memory was allocated" in text(recording, recording.database)


def test_the_last_device(recording):
    with Rows(recording.database) as r:
        r.device(63)
        r.block(1, 5 * GIB, 1, device=63)
    assert recording.report("--device", "63")["peak"][0]["device"] == 63
    for none in ("0", "64"):
        done = recording.gpuspy("report", "--device", none, recording.database)
        assert done.returncode == 1 and done.stderr == f"gpuspy: report: this run has no GPU {none}; it has GPU 63\n"
    assert recording.gpuspy("report", "--device", "127", recording.database).returncode == 2
    assert "GPU 63" in text(recording, recording.database)


def columns(line):
    return sum((unicodedata.east_asian_width(c) in "WF") + 1 for c in line)


def test_invalid_names(recording):
    """Escapes, line breaks and invalid text: shown, never executed; and no line is too wide."""
    with Rows(recording.database, command="py\x1b[2Jthon \x1b]0;x\x07") as r:
        r.device(name="GPU\x1b[31m")
        at = r.stack("/home/me/\x1b[31mtrain\n.py:9 f\x1b[0m\tg", f"/{'x' * 3000}.py:7 {'深' * 500}")
        r.block(1, GIB, 1, at)
        r.sync(2, 1, at)
        r.oom(2, 30 * GIB, GIB, 24 * GIB, stack=at)
    for width in 40, 80, 100, 140:
        for more in [], ["--native"]:
            out = text(recording, *more, recording.database, columns=width)
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", out)
            wide = [x for x in out.splitlines() if columns(x) > max(width, 90) and str(recording.database) not in x]
            assert not wide, wide
    assert recording.report()["oom"][0]["cause"] == "oversized_request"


@pytest.mark.parametrize("leaks", [False, True])
def test_a_dead_job_fits_on_the_screen(recording, leaks):
    """Whatever it was: the parts of the device's memory, advice and warnings together have more than 40 lines."""
    torch_run(recording.database, leaks, asked=3 * GIB)
    with sqlite3.connect(recording.database) as database:
        database.execute("UPDATE process SET command = ?", ("python train.py " + "--option value " * 30,))
    for width in 60, 80, 100, 200:
        done = recording.gpuspy("report", recording.database, env={"COLUMNS": str(width)})
        lines = done.stdout.splitlines()
        assert len(lines) <= 40, done.stdout
        assert all(f"\n  {word:<8}" in done.stdout for word in ("Request", "Cause", "To do", "Basis")), done.stdout
        assert "\nNext\n  gpuspy report --full" in done.stdout


def test_a_long_exception_is_wrapped(recording):
    with Rows(recording.database) as r:
        r.device()
        r.block(1, GIB, 1, r.stack("/home/me/train.py:9 f"))
    with sqlite3.connect(recording.database) as database:
        database.executemany("INSERT INTO meta VALUES(?, ?)", [
            ("exit_status", 1), ("exception", "RuntimeError: one of the variables " + "that were needed " * 12), ("exception_place", "/home/me/train.py:9")])
    out = recording.gpuspy("report", recording.database, env={"COLUMNS": "80"}).stdout
    assert "RuntimeError: one of the variables" in out and max(len(x) for x in out.splitlines() if "gpuspy" not in x) <= 80, out
    assert re.search(r"\b(that|were|needed) \.\.\.\s+at\s+train\.py:9", out), out


def test_a_long_message_without_spaces_is_cut_between_characters(recording):
    with Rows(recording.database) as r:
        r.device()
    with sqlite3.connect(recording.database) as database:
        database.executemany("INSERT INTO meta VALUES(?, ?)", [
            ("exit_status", 1), ("exception", "KeyError: '%s'" % ("é" * 200)), ("exception_place", "/home/me/train.py:9")])
    out = recording.gpuspy("report", recording.database).stdout
    assert re.search(r"éé \.\.\. at train.py:9", " ".join(out.split())), out


def test_a_fifo_is_not_a_recording(recording):
    os.mkfifo(recording.folder / "run.db")
    for at in recording.folder, recording.database:
        done = recording.gpuspy("report", at)
        assert done.returncode == 3 and "it is not a regular file" in done.stderr


def test_many_stacks(recording):
    """30,000 call paths take a second, and --top states how many there are."""
    with Rows(recording.database, seconds=100) as r:
        r.device()
        count = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c WHERE i<30000) INSERT INTO "
        r.db.execute(count + "frame(id,kind,function,file,line) SELECT i,0,'f'||i,'/me/m'||(i%300)||'.py',i%900 FROM c")
        r.db.execute(count + "stack(id,parent_id,frame_id,depth) SELECT i,CASE WHEN i>50 THEN i/2 END,i,1 FROM c")
        r.db.execute(count + "allocation_row(kind,address,bytes,alloc_ns,life_ns,stream,alloc_stack_id) "
                     "SELECT 32+4096,i,512+(i%977)*512,i*600000,30000000000,0,i FROM c")
        r.events = 60000
    report = recording.report("--top", "1000000")
    (peak,) = report["peak"]
    assert sum(s["bytes"] for s in peak["by_stack"]) == peak["bytes"] and peak["stacks"] == 30000
    assert re.search(r"and 29,\d{3} more: --top", text(recording, recording.database))


PLAIN = """#include "fixtures/simcuda/include/simcuda.h"
static void request(int i)
{
    void *scratch = 0, *out = 0;
    cudaMalloc(&scratch, 1 << 20);
    cudaMalloc(&out, 1 << 16);
    cudaFree(out);
    if (i % 10 == 3) return; /* an early return */
    cudaFree(scratch);
}
int main(int argc, char **argv)
{
    void *device = 0, *pinned = 0;
    (void)argv;
    for (int i = 0; i < 600 && argc > 1; i++) request(i);
    cudaMalloc(&device, 1 << 24);
    cudaMallocHost(&pinned, 1 << 20);
    for (int i = 0; i < 300; i++) cudaMemcpyAsync(device, pinned, 1 << 20, cudaMemcpyHostToDevice, 0);
    cudaDeviceSynchronize();
    cudaFree(device);
    return cudaFreeHost(pinned);
}
"""


def test_advice_for_a_program_without_python(recording):
    """A wait at its end needs no advice, and a leak is a block to free, not a tensor to detach."""
    (recording.folder / "plain.c").write_text(PLAIN)
    subprocess.run(["gcc", "-g", f"-I{ROOT}", "-o", "plain", "plain.c", BUILD / "sim" / "libcudart.so.13"], cwd=recording.folder, check=True)
    recording.run(recording.folder / "plain")
    assert recording.report()["advice"] == []
    recording.database.unlink()
    recording.run(recording.folder / "plain", "leak")
    text = [a if isinstance(a, str) else a["text"] for a in recording.report()["advice"]]
    assert any("free each block" in t and "plain.c:5" in t for t in text) and not any("detach" in t for t in text), text


def test_lines_that_allocate_again_and_again_share_one_advice(recording):
    """Among them two of which one begins as the other does."""
    with Rows(recording.database, command="solver") as r:
        r.device()
        lines = [r.stack("/home/me/solver.cu:10 main", f"/home/me/solver.cu:{line} step") for line in (5, 53, 54)]
        for k in range(900):
            r.block(0.1 + k * .01, MIB, .005, lines[k % 3], DEVICE)
    advice = [a["text"] for a in recording.report()["advice"]]
    assert len(advice) == 1 and advice[0].startswith("solver.cu:5, solver.cu:53, solver.cu:54: ") and "reuse" in advice[0]


GRAPH = """#include "fixtures/simcuda/include/simcuda.h"
int main(void)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t x;
    void *p = 0;
    cudaStreamCreate(&s);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal);
    cudaMallocAsync(&p, 16 << 20, s);
    cudaFreeAsync(p, s);
    cudaStreamEndCapture(s, &g);
    cudaGraphInstantiate(&x, g, 0);
    for (int i = 0; i < 5; i++) cudaGraphLaunch(x, s);
    return cudaStreamSynchronize(s);
}
"""


def test_the_memory_of_a_graph_is_not_nothing(recording):
    (recording.folder / "graph.c").write_text(GRAPH)
    subprocess.run(["gcc", "-g", f"-I{ROOT}", "-o", "graph", "graph.c", BUILD / "sim" / "libcudart.so.13"], cwd=recording.folder, check=True)
    recording.run(recording.folder / "graph")
    assert "no GPU memory was allocated but 16.00 MiB for graphs" in " ".join(text(recording, recording.database).split())


COPIES = """
import ctypes
cuda = ctypes.CDLL("libcudart.so.12")
host, device, n = ctypes.c_void_p(), ctypes.c_void_p(), 16 << 20
cuda.cudaMallocHost(ctypes.byref(host), ctypes.c_size_t(n))
cuda.cudaMalloc(ctypes.byref(device), ctypes.c_size_t(n))
for i in range(60):
    cuda.cudaMemcpy(device, host, ctypes.c_size_t(n), 1)
for i in range(60):
    cuda.cudaMemcpy(host, device, ctypes.c_size_t(n), 2)
"""


def test_blocking_copies_of_pinned_memory(recording):
    """What is pinned already is not advised to be pinned."""
    path = recording.folder / "script.py"
    path.write_text(COPIES)
    recording.run(sys.executable, path, LD_LIBRARY_PATH=BUILD / "sim")
    advice = {s["site"]["line"]: s["advice"] for s in recording.report()["sync"]}
    assert advice[8] == "the memory is pinned already: copy with cudaMemcpyAsync, which does not wait"
    assert "with cudaMemcpyAsync (the memory is pinned already)" in advice[10]
