"""Segments and blocks joined: at every moment of what training scripts do, what the report says of the allocator's
active, pending and cached memory, by pool and by stream, is what PyTorch's own snapshot says."""
import json
import shutil
import sqlite3
import subprocess

import pytest
from conftest import BUILD, HERE
from test_figures import RUNS, run  # noqa: F401  (the fixture: each run is made once)

OTHERS = ("asynchronous",)
HOST = 2 | 6 << 2  # kind of a row of layer host, space host, no device


def cut(database, at, to):
    """The recording as if it had ended then."""
    shutil.copy(database, to)
    with sqlite3.connect(to) as db:
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


def compare(said, theirs, own):
    """What differs, as text."""
    wrong = []
    def hold(what, a, b):
        if a != b:
            wrong.append(f"{said['situation']}, {said['name']}: {what}: {a} for {b}")
    active = theirs["active_bytes"]["current"]
    hold("allocated", own["allocated_bytes"], theirs["allocated_bytes"]["current"])
    hold("reserved", own["reserved_bytes"], theirs["reserved_bytes"]["current"])
    hold("active", own["active_bytes"], active)
    hold("cached", own["cached_bytes"], theirs["reserved_bytes"]["current"] - active)
    hold("pending", own["pending_bytes"], active - theirs["allocated_bytes"]["current"])
    hold("inactive_split", own["inactive_split_bytes"], theirs["inactive_split_bytes"]["current"])
    # a MemPool cannot be told from the pool that is always there
    pooled = said["situation"] == "memory_pool"
    word = lambda name: name.replace("private ", "") if pooled else name
    hold("by pool", ours(own["by_pool"], "pool", word),
         sums(theirs["layers"], lambda l: ("private " if l["private"] and not pooled else "") + l["type"]))
    hold("by stream", ours(own["by_stream"], "stream", lambda s: s), sums(theirs["layers"], lambda l: l["stream"]))
    hold("blocks outside", own["blocks_outside"], 0)
    return wrong


# Each kind must come up in the runs that are made for it: the comparison is of something.
SEEN = {"plain": {"pending", "streams"}, "graphs": {"private", "streams"}, "expandable": {"pending", "streams"},
        "tuned": {"pending", "streams", "private"}}
MOST = 24


def chosen(said):
    """A report for each moment takes its time: the first of each name in a situation, then evenly."""
    first = {(s["situation"], s["name"]): s for s in reversed(said)}
    names = sorted(first.values(), key=lambda s: s["moment"])
    by_interest = [s for s in names if s["situation"] in ("other_streams", "graphs", "graphed_callables", "memory_pool", "emptied")]
    rest = [s for s in names if s not in by_interest]
    step = max(1, -(-len(rest) // MOST))
    return sorted(by_interest + rest[::step], key=lambda s: s["moment"])


@pytest.mark.parametrize("run", [r for r in RUNS if r not in OTHERS], indirect=True)
def test_every_kind_of_moment(run, request, tmp_path):  # noqa: F811
    wrong, compared, kinds = [], 0, set()
    for said in chosen(run.compared.said):
        answer = said_by_gpuspy(cut(run.database, run.compared.at(said), tmp_path / "cut.db"))
        for device, theirs in enumerate(said["devices"]):
            own = answer.get(device)
            if own is None:
                assert theirs["allocated_bytes"]["current"] == 0
                continue
            wrong += compare(said, theirs, own)
            compared += 1
            kinds |= {"pending"} if own["pending_bytes"] else set()
            kinds |= {"streams"} if len(own["by_stream"]) > 1 else set()
            kinds |= {"private"} if any("private" in p["pool"] for p in own["by_pool"]) else set()
    assert compared > 3
    assert wrong == []
    assert kinds >= SEEN.get(request.node.callspec.params["run"], set())
