"""Segments and blocks together: at every moment of training scripts, the report's figures for the allocator's active,
pending and cached memory, by pool and by stream, equal those of PyTorch's own snapshot."""
import json
import shutil
import sqlite3
import subprocess

import re

import pytest
from conftest import BUILD, HERE
from test_figures import RUNS, run  # noqa: F401  (the fixture: each run is made once)

OTHERS = ("asynchronous",)
HOST = 2 | 6 << 2  # kind of a row of layer host, space host, no device


def cut(database, at, to):
    """A copy of the recording that ends at that moment."""
    shutil.copy(database, to)
    with sqlite3.connect(to) as db:
        db.execute("PRAGMA synchronous = OFF")
        for query in ("DELETE FROM allocation_row WHERE alloc_ns > ?",
                      "UPDATE allocation_row SET life_ns = NULL, free_stack_id = NULL WHERE alloc_ns + life_ns > ?",
                      "DELETE FROM oom WHERE time_ns > ?", "DELETE FROM reserved WHERE time_ns > ?",
                      "DELETE FROM pending_free WHERE free_ns > ?",
                      "UPDATE pending_free SET done_ns = NULL WHERE done_ns > ?", "DELETE FROM mapping WHERE map_ns > ?",
                      "UPDATE mapping SET unmap_ns = NULL WHERE unmap_ns > ?",
                      f"INSERT INTO allocation_row(kind,address,bytes,alloc_ns) VALUES({HOST},1,1,?)"):
            db.execute(query, (at,))
    return to


def said_by_gpuspy(database):
    done = subprocess.run([BUILD / "gpuspy", "report", "--json", "--top", "1", database], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    return {a["device"]: a for a in json.loads(done.stdout)["allocator"] if a["moment"] == "end"}


def sums(layers, key):
    """{pool or stream: (reserved, allocated, active)}"""
    found = {}
    for layer in layers:
        name = key(layer)
        found[name] = tuple(a + b for a, b in zip(found.get(name, (0, 0, 0)),
                                                  (layer["reserved"], layer["allocated"], layer["active"])))
    return {k: v for k, v in found.items() if any(v)}


def ours(shares, key, merge):
    found = {}
    for share in shares:
        name = merge(share[key])
        row = (share["reserved_bytes"], share["allocated_bytes"], share["active_bytes"])
        found[name] = tuple(a + b for a, b in zip(found.get(name, (0, 0, 0)), row))
    return {k: v for k, v in found.items() if any(v)}


def compare(reported, theirs, own):
    """The differences, as text."""
    wrong = []
    def hold(what, a, b):
        if a != b:
            wrong.append(f"{reported['situation']}, {reported['name']}: {what}: {a} for {b}")
    active = theirs["active_bytes"]["current"]
    hold("allocated", own["allocated_bytes"], theirs["allocated_bytes"]["current"])
    hold("reserved", own["reserved_bytes"], theirs["reserved_bytes"]["current"])
    hold("active", own["active_bytes"], active)
    hold("cached", own["cached_bytes"], theirs["reserved_bytes"]["current"] - active)
    hold("pending", own["pending_bytes"], active - theirs["allocated_bytes"]["current"])
    hold("inactive_split", own["inactive_split_bytes"], theirs["inactive_split_bytes"]["current"])
    # a MemPool cannot be distinguished from the default pool
    pooled = reported["situation"] == "memory_pool"
    word = lambda name: name.replace("private ", "") if pooled else name
    hold("by pool", ours(own["by_pool"], "pool", word),
         sums(theirs["layers"], lambda l: ("private " if l["private"] and not pooled else "") + l["type"]))
    hold("by stream", ours(own["by_stream"], "stream", lambda s: s), sums(theirs["layers"], lambda l: l["stream"]))
    hold("blocks outside", own["blocks_outside"], 0)
    return wrong


# Each kind must occur in the runs made for it, so that something is compared.
SEEN = {"plain": {"pending", "streams"}, "graphs": {"private", "streams"}, "expandable": {"pending", "streams"},
        "tuned": {"pending", "streams", "private"}}
MOST = 24


def chosen(reported):
    """A report for each moment takes long: the first moment of each name in a situation, then evenly spaced ones."""
    first = {(s["situation"], s["name"]): s for s in reversed(reported)}
    names = sorted(first.values(), key=lambda s: s["moment"])
    by_interest = [s for s in names if s["situation"] in ("other_streams", "graphs", "graphed_callables", "memory_pool", "emptied")]
    rest = [s for s in names if s not in by_interest]
    step = max(1, -(-len(rest) // MOST))
    return sorted(by_interest + rest[::step], key=lambda s: s["moment"])


@pytest.mark.parametrize("run", [r for r in RUNS if r not in OTHERS], indirect=True)
def test_every_kind_of_moment(run, request, tmp_path):  # noqa: F811
    wrong, compared, kinds = [], 0, set()
    for reported in chosen(run.compared.reported):
        answer = said_by_gpuspy(cut(run.database, run.compared.at(reported), tmp_path / "cut.db"))
        for device, theirs in enumerate(reported["devices"]):
            own = answer.get(device)
            if own is None:
                assert theirs["allocated_bytes"]["current"] == 0
                continue
            wrong += compare(reported, theirs, own)
            compared += 1
            kinds |= {"pending"} if own["pending_bytes"] else set()
            kinds |= {"streams"} if len(own["by_stream"]) > 1 else set()
            kinds |= {"private"} if any("private" in p["pool"] for p in own["by_pool"]) else set()
    assert compared >= 3
    assert wrong == []
    assert kinds >= SEEN.get(request.node.callspec.params["run"], set())


@pytest.mark.parametrize("run", ["asynchronous"], indirect=True)
def test_cudas_own_pool(run, tmp_path):  # noqa: F811
    """It does not report its cache, only each allocation and its stream."""
    seen = 0
    for reported in chosen(run.compared.reported):
        own = said_by_gpuspy(cut(run.database, run.compared.at(reported), tmp_path / "cut.db")).get(0)
        if own is None:
            continue
        rows = run.compared.live(run.compared.at(reported), 0, "device", ("pool",))
        assert own["backend"] == "cudaMallocAsync" and own["reserved_bytes"] is own["active_bytes"] is None
        assert own["allocated_bytes"] == sum(r.bytes for r in rows)
        assert sum(s["allocated_bytes"] for s in own["by_stream"]) == own["allocated_bytes"]
        seen += len(own["by_stream"]) > 1
    assert seen


@pytest.mark.parametrize("run", ["little memory"], indirect=True)
def test_retries_state_their_cost(run):  # noqa: F811
    retries = run.report()["retries"]
    text = (HERE / "situations.py").read_text().splitlines()
    assert retries
    for retry in retries:
        assert 0 < retry["blocked_s"] < run.report()["run"]["duration_s"] and retry["site"], retry
    big = [r for r in retries if "big = " in text[r["site"]["line"] - 1]]
    assert len(big) == 1 and big[0]["freed_bytes"] > 512 << 20


LOOP = """
import torch
model = torch.nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.zeros(16384, 512, device="cuda")).sum().backward()
    optimizer.step()
for i in range(40):
    step()
    if {when}:
        torch.cuda.empty_cache()  # here
"""


@pytest.mark.parametrize("when,matters", [("True", True), ("i == 20", False)])
def test_empty_cache_in_a_loop(record, tmp_path, when, matters):
    script = tmp_path / "loop.py"
    script.write_text(LOOP.format(when=when))
    answer = record(script).report()
    (flush,) = [f for f in answer["cache_flushes"] if f["kind"] == "empty_cache"]
    assert "# here" in script.read_text().splitlines()[flush["site"]["line"] - 1]
    assert flush["matters"] is matters and (flush["advice"] is not None) is matters
    assert flush["count"] == (40 if matters else 1) and flush["bytes"] > 0
    assert any("empty_cache" in a["text"] for a in answer["advice"]) is matters


COLLECTS = """
import torch
MIB = 1 << 20
torch.cuda.set_per_process_memory_fraction(0.9)  # without it PyTorch collects nothing
for n in range(20, 60):  # each larger than what is cached
    x = torch.empty(n * MIB, dtype=torch.uint8, device="cuda")
    del x
"""


@pytest.mark.parametrize("conf,collected", [("garbage_collection_threshold:0.5", True), ("", False)])
def test_garbage_collection(record, tmp_path, conf, collected):
    script = tmp_path / "collects.py"
    script.write_text(COLLECTS)
    done = record(script, PYTORCH_CUDA_ALLOC_CONF=conf, SIMCUDA_MEMORY="1536MiB")
    assert done.code == 0, done.stderr
    kinds = {f["kind"] for f in done.report()["cache_flushes"]}
    assert kinds == ({"garbage_collection"} if collected else set())


RETRIES = """
import torch
def make(mib): return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")
for step in range(40):
    small = [make(300) for _ in range(2)]
    del small
    large = make(700)
    del large
    torch.cuda.empty_cache()
stats = torch.cuda.memory_stats()
print("retries", stats["num_alloc_retries"], stats["num_ooms"])
"""


def test_every_retry_counts(record):
    """Also if the same line requests the same size again and again."""
    done = record("-c", RETRIES, SIMCUDA_MEMORY="900MiB", SIMCUDA_CONTEXT=0)
    assert "retries 40 0" in done.stdout
    report = done.report()
    assert len(report["retries"]) == len(report["oom"]) == 40 and {o["outcome"] for o in report["oom"]} == {"retried"}


BENCHMARK = """
import torch
from torch import nn
torch.backends.cudnn.benchmark = True
net = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(30):
    loss = net(torch.randn(16, 3, 64 + 2 * step, 64, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    del loss
"""


def test_cudnns_benchmark_empties_the_cache(record):
    """The script does not call torch.cuda.empty_cache(), so the advice cannot be to remove it from the loop."""
    texts = [advice["text"] for advice in record("-c", BENCHMARK).report()["advice"]]
    assert any("torch.backends.cudnn.benchmark" in text for text in texts), texts
    assert not any("empty_cache" in text for text in texts), texts


def test_an_emptied_cache_inside_a_library_names_the_librarys_function(record, tmp_path):
    package = tmp_path / "site-packages" / "somelib"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import torch\ndef release_memory():\n    torch.cuda.empty_cache()\n")
    script = BENCHMARK.replace("torch.backends.cudnn.benchmark = True",
                               f"import sys; sys.path.insert(0, {str(package.parent)!r}); import somelib")
    texts = [advice["text"] for advice in record("-c", script.replace("    del loss", "    del loss; somelib.release_memory()")).report()["advice"]]
    assert any("release_memory" in text or "inside a library" in text for text in texts), texts
    assert not any(re.search(r"take `(torch\.cuda\.)?empty_cache\(\)` out", text) for text in texts), texts
