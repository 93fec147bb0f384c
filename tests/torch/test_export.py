"""The output of `gpuspy export`, compared with the snapshots that PyTorch itself takes at the same moments of training
scripts, and read by PyTorch's own _memory_viz.py."""
import base64
import json
import os
import pickle
import re
import sqlite3
import subprocess
from collections import Counter

import pytest
from compare import Compared
from conftest import BUILD, HERE

CONF = "PYTORCH_CUDA_ALLOC_CONF"
RUNS = {
    "plain": (["adamw", "recomputed", "emptied", "raw_allocations", "memory_pool", "crumbs"], {}),
    "streams": (["other_streams", "graphs"], {}),
    "expandable": (["adamw", "emptied", "crumbs"], {CONF: "expandable_segments:True"}),
    "split": (["amp", "crumbs", "retries"], {CONF: "max_split_size_mb:32,roundup_power2_divisions:4", "SIMCUDA_MEMORY": "1GiB"}),
    "little": (["halve_the_batch", "fails_in_backward"], {"SIMCUDA_MEMORY": "2GiB"}),
    "two": (["two_devices"], {"SIMCUDA_DEVICES": "2"}),
}


def run_of(once, name):
    """Leaves its snapshots in its own folder."""
    situations, environment = RUNS[name]
    done = once(f"export {name}", HERE / "situations.py", *situations, SNAPSHOTS=".", **environment)
    assert done.code == 0, done.stderr[-3000:]
    return done


@pytest.fixture
def run(once, request):
    done = run_of(once, request.param)
    if not hasattr(done, "compared"):
        done.compared = Compared(done.database, done.moments)
    return done


def export(database, *options):
    done = subprocess.run([BUILD / "gpuspy", "export", "-o", "-", *options, database], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    return pickle.loads(done.stdout)


def blocks(segment):
    out = []
    at = segment["address"]
    for b in segment["blocks"]:
        out.append((at, b["size"], b["state"], b["requested_size"] if b["state"] != "inactive" else None))
        at += b["size"]
    return out


def shape(snapshot):
    return [(s["device"], s["address"], s["total_size"], s["allocated_size"], s["active_size"], s["requested_size"], s["segment_type"], s["is_expandable"], s["stream"],
             blocks(s))
            for s in sorted(snapshot["segments"], key=lambda s: s["address"])]


@pytest.mark.parametrize("run", RUNS, indirect=True)
def test_segments_and_blocks_are_pytorchs(run):
    wrong, streams, private, waiting = [], set(), 0, 0
    reported = run.compared.reported
    sides = any(moment["situation"] == "other_streams" for moment in reported)
    for moment in reported[:24] if sides else reported[::max(1, len(reported) // 8)]:
        at = run.compared.at(moment)
        theirs = pickle.loads((run.folder / str(moment["moment"])).read_bytes())
        ours = export(run.database, "--at", f"{at / 1e9:.9f}")
        mine, wanted = shape(ours), shape(theirs)
        streams |= {s["stream"] for s in theirs["segments"]}
        private += sum(s["segment_pool_id"] != (0, 0) for s in theirs["segments"])
        waiting += sum(b["state"] == "active_pending_free" for s in theirs["segments"] for b in s["blocks"])
        graphs = [[s["address"] for s in x["segments"] if s["segment_pool_id"] != (0, 0)] for x in (ours, theirs)]
        if moment["situation"] == "graphs" and sorted(graphs[0]) != sorted(graphs[1]):
            wrong.append((moment["situation"], moment["name"], "private pools", *graphs))
        if mine != wanted:
            wrong.append((moment["situation"], moment["name"], [m for m in mine if m not in wanted][:2],
                          [w for w in wanted if w not in mine][:2]))
    assert wrong == []
    assert len(run.compared.reported) > 1
    assert not sides or (len(streams) > 1 and private and waiting), "nothing was compared"


HISTORY = """
import pickle, sys, torch
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000000)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for i in range(3):
    optimizer.zero_grad()
    model(torch.randn(64, 256).cuda()).sum().backward()
    optimizer.step()
big = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
del big
torch.cuda.empty_cache()
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
torch.cuda.nvtx.mark("now")
pickle.dump(torch.cuda.memory._snapshot(), open(sys.argv[1], "wb"))
"""


@pytest.fixture(scope="module")
def traced(once, tmp_path_factory):
    folder = tmp_path_factory.mktemp("history")
    (folder / "script.py").write_text(HISTORY)
    done = once("history", folder / "script.py", folder / "theirs")
    assert done.code == 0, done.stderr[-3000:]
    done.theirs = pickle.loads((folder / "theirs").read_bytes())
    with sqlite3.connect(done.database) as db:
        at = db.execute("SELECT start_ns FROM marks WHERE name = 'now'").fetchone()[0]
    done.ours = export(done.database, "--at", f"{at / 1e9:.9f}")
    return done


def test_the_trace_is_pytorchs(traced):
    """The same events in the same order with the same stacks, at nearly the same times."""
    theirs, ours = traced.theirs["device_traces"][0], traced.ours["device_traces"][0]
    assert ours[-1]["action"] == "snapshot"
    assert [e["action"] for e in ours[:-1]] == [e["action"] for e in theirs if e["action"] != "snapshot"]
    for mine, their in zip(ours, theirs):
        assert abs(mine["time_us"] - their["time_us"]) < 1000000 and mine["stream"] == their["stream"]
        if their["action"] == "oom":
            assert mine["device_free"] == their["device_free"]
            continue
        assert mine["addr"] == their["addr"]
        assert mine["size"] == their["size"]
        if their["frames"]:  # PyTorch has none on autograd's own threads
            assert [(f["name"].split(".")[-1], f["filename"], f["line"]) for f in mine["frames"]] == \
                   [(f["name"], f["filename"], f["line"]) for f in their["frames"]]
    found = Counter(e.get("category") for e in ours if e["action"] == "alloc")
    assert found["parameters"] >= 4 and found["gradients"] >= 4 and found["optimizer_state"] >= 8


def viz(action, *arguments):
    """Like `python -m torch.cuda._memory_viz`, without the three seconds to import torch."""
    python = os.environ["TORCH_PYTHON"]
    where = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True,
                           stdout=subprocess.PIPE, check=True).stdout.strip()
    return subprocess.run([python, f"{where}/torch/cuda/_memory_viz.py", action, *map(str, arguments)], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_pytorchs_own_viewer_reads_it(traced, tmp_path):
    file = tmp_path / "run.pickle"
    done = subprocess.run([BUILD / "gpuspy", "export", "--at", "peak", "-o", file, traced.database])
    assert done.returncode == 0
    done = viz("stats", file)
    assert done.returncode == 0, done.stderr
    peaks = {p["layer"]: p["bytes"] for p in traced.report()["peak"] if p["device"] == 0}
    total = re.search(r"total_allocated: ([0-9.]+)MiB", done.stdout)
    assert abs(float(total[1]) - peaks["tensor"] / 2**20) <= 0.05, done.stdout
    done = viz("trace", file)
    assert done.returncode == 0 and "raise OutOfMemoryError" not in done.stdout and "cudaMalloc(" in done.stdout, done.stderr
    for plot in (["trace_plot"], ["trace_plot", "-s"], ["segment_plot"]):
        page = tmp_path / "page.html"
        done = viz(plot[0], *plot[1:], file, "-o", page)
        assert done.returncode == 0, done.stderr
        local = re.search(r"local_files = (\[.*\])", page.read_text())
        again = pickle.loads(base64.b64decode(json.loads(local[1])[0]["base64"]))
        assert again == pickle.loads(file.read_bytes())
    done = subprocess.run([BUILD / "gpuspy", "export", "--at", "oom", "-o", file, traced.database])
    assert done.returncode == 0 and "raise OutOfMemoryError" in viz("trace", file).stdout
