"""The private pool of every segment, compared with PyTorch's own snapshot, and the moment from which a pool is
unused."""
import json
import sqlite3

import pytest

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
