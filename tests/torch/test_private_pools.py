"""The private pool of every segment, compared with PyTorch's own snapshot, and the moment from which a pool is
unused."""
import json
import sqlite3
import subprocess

import pytest
from conftest import BUILD, limit_of

SCRIPT = """import json, torch
def mib(n): return torch.empty(int(n * (1 << 20)), dtype=torch.uint8, device="cuda")
kept = [mib(3.3), mib(0.7)]
graphs = [torch.cuda.CUDAGraph() for _ in range(4)]
x = mib(2)
with torch.cuda.graph(graphs[0]):
    kept.append(x + 1)
with torch.cuda.graph(graphs[1], pool=graphs[0].pool()):
    kept.append([mib(5) for _ in range(6)])
with torch.cuda.graph(graphs[2]):
    kept.append([mib(0.3), mib(11)])
handle = torch.cuda.graph_pool_handle()
with torch.cuda.graph(graphs[3], pool=handle):
    kept.append(mib(12))
pools = [torch.cuda.MemPool() for _ in range(2)]
for size in 0.4, 4, 21, 33:
    for pool in pools:
        with torch.cuda.use_mem_pool(pool):
            kept.append(mib(size))
    kept.append(mib(size))
print(json.dumps([[s["address"], s["total_size"], s["segment_pool_id"]] for s in torch.cuda.memory_snapshot()]))
kept = None
for graph in range(4):
    graphs[graph] = None
    mib(40 + graph)
"""


@pytest.mark.parametrize("setting", ["", "expandable_segments:True"])
def test_every_segment_has_the_pool_that_pytorch_states(record, tmp_path, setting):
    script = tmp_path / "pools.py"
    script.write_text(SCRIPT)
    run = record(script, PYTORCH_CUDA_ALLOC_CONF=setting)
    assert run.code == 0, run.stderr[-2000:]
    segments = json.loads(run.stdout)
    facts = sqlite3.connect(run.database).execute("SELECT kind, address, value FROM allocator_fact ORDER BY time_ns, id").fetchall()
    assert not [fact for fact in facts if fact[2] == -1]
    ids, numbers = {}, {}
    for address, size, pool in segments:
        known = [value for kind, at, value in facts if kind == 1 and address <= at < address + size]
        assert known and len(set(known)) == 1, (address, known)
        assert ids.setdefault(known[0], pool) == pool and numbers.setdefault(tuple(pool), known[0]) == known[0]
    assert ids[0] == [0, 0] and len(ids) == 6  # the default one, of three graphs, of two MemPools
    unused = [value for kind, _, value in facts if kind == 2]
    assert len(unused) == len(set(unused)) and set(unused) <= set(ids) - {0}
    assert len(unused) >= 2


RETRY = """import torch
kept = [torch.empty(30 << 20, dtype=torch.uint8, device="cuda") for _ in range(30)]
del kept
with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
    torch.empty(500 << 20, dtype=torch.uint8, device="cuda")
"""


def test_a_request_in_a_pool_frees_the_cache_since_2_13(record, tmp_path):
    script = tmp_path / "retry.py"
    script.write_text(RETRY)
    roomy, full = (record(script, SIMCUDA_MEMORY=size, SIMCUDA_CONTEXT="100MiB") for size in ("8GiB", "1100MiB"))
    assert roomy.code == 0, roomy.stderr[-2000:]
    ours, real = (json.loads(subprocess.run([BUILD / "gpuspy", "whatif", "--json", "--limit", limit_of(size, "100MiB"), run.database],
                                            capture_output=True, text=True).stdout) for run, size in ((roomy, "1100MiB"), (full, "8GiB")))
    frees = tuple(map(int, ours["replay"]["torch_version"].split(".")[:2])) >= (2, 13)
    for answer in ours["whatif"][0], real["recorded"]:
        assert answer["fits"] == frees and (answer["peak_reserved_bytes"] >> 20, answer["oom"] and answer["oom"]["site"]["line"]) == (900, None if frees else 5)
    assert ours["replay"]["exact"] and (real["replay"]["exact"] or not frees)


GRAPHS = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
graphs = {}
with torch.no_grad():
    for n in range(64, 6400, 64):
        x = torch.randn(n, 1024, device="cuda")
        net(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=POOL):
            y = net(x)
        graphs[n] = graph, x, y
"""


def test_a_graph_for_each_shape(once, tmp_path):
    """Its inputs grow, but what its private pools cache is far more."""
    script = tmp_path / "graphs.py"
    script.write_text(GRAPHS.replace("POOL", "None"))
    oom, = (o for o in once("graph for each shape", script, SIMCUDA_MEMORY="1GiB").report()["oom"] if o["fatal"])
    assert oom["cause"] == "fragmentation" and "graphs share one" in oom["advice"][0], oom["verdict"]
    assert oom["measures"][0]["frees_bytes"] > 100 << 20


COLLECTED = """import random, torch
random.seed(1)
torch.cuda.set_per_process_memory_fraction(0.9)
pool = torch.cuda.MemPool()
kept, pooled = [], []
def mib(n):
    return torch.empty(int(n * (1 << 20)), dtype=torch.uint8, device="cuda")
for step in range(40):
    kept = [*kept, *(mib(random.choice([.3, 1, 5, 30, 70, 130])) for _ in range(3))][-6:]
    with torch.cuda.use_mem_pool(pool):
        pooled = [*pooled, mib(random.choice([.5, 3, 12, 40, 90]))][-4:]
"""


def test_pools_are_known_while_pytorch_collects_garbage(record, tmp_path):
    """It then counts the requests of a pool, next to the pool's sets of free blocks."""
    script = tmp_path / "collected.py"
    script.write_text(COLLECTED)
    run = record(script, SIMCUDA_MEMORY="2GiB", PYTORCH_CUDA_ALLOC_CONF="garbage_collection_threshold:0.5")
    answer = json.loads(subprocess.run([BUILD / "gpuspy", "whatif", "--json", "--set", "max_split_size_mb:512", run.database],
                                       capture_output=True, text=True).stdout)
    assert answer["replay"]["exact"], answer["replay"]["reason"]
