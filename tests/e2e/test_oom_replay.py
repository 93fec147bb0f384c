"""Advice for an OOM, decided by a replay: of the memory layout at the failure without the blocks that the advice frees,
or of the run with another setting. The snapshots are made here, and what must be free is computed here too."""
import json
import subprocess

import pytest
from conftest import BUILD
from test_import import MIB, SHARED, Run, gpuspy, write

BASE = 0x7f0000000000
SEGMENT = 20 * MIB


def leaking(walls=False):
    """300 steps that keep 1 MiB each at line 12, and free another at line 11. `walls`: a block of line 9 in the middle of
    each segment, from the beginning."""
    run, kept = Run(), 0
    segments = [BASE + n * SEGMENT for n in range(16)]
    for start in segments:
        run.segment(0, start, SEGMENT, line=9)
        if walls:
            run.alloc(0, start + 10 * MIB, MIB, line=9)
    room = [start + at * MIB for start in segments for at in range(20) if at != 10]
    for address in room[:300]:
        run.alloc(0, address, MIB, line=11)
        run.free(0, address, line=11)
        run.alloc(0, address, MIB, line=12)
        kept += 1
    return run, kept


def report(run, tmp_path, *words):
    file = write(tmp_path / "snapshot.pickle", run.snapshot())
    return json.loads(gpuspy("report", "--json", *words, file).stdout), file


def test_what_grew_is_gone_and_the_request_fits(tmp_path):
    run, kept = leaking()
    run.oom(0, 30 * MIB, free=5 * MIB, line=20)
    answer, file = report(run, tmp_path)
    oom = answer["oom"][0]
    assert oom["cause"] == "leak", oom["verdict"]
    first = oom["measures"][0]
    assert first["basis"] == "replayed" and first["enough"] is True and "train.py:12" in first["replayed"]
    assert 0.95 * kept * MIB <= first["frees_bytes"] <= kept * MIB
    assert "(inferred; replayed: fits with" in first["text"]  # its text begins with the line that was replayed
    # what remains: free memory, plus segments that become empty, minus the request
    reserved = len(run.segments) * SEGMENT
    assert first["spare_bytes"] >= reserved + 5 * MIB - 30 * MIB - (kept * MIB - first["frees_bytes"]) - SEGMENT
    assert first["spare_bytes"] <= reserved + 5 * MIB - 30 * MIB
    assert oom["advice"][0] == first["text"]
    assert first["text"][:60] in " ".join(gpuspy("report", file).stdout.split())  # the text report says the same


def test_a_request_that_fails_all_the_same_is_not_promised(tmp_path):
    run, _ = leaking(walls=True)  # without line 12 the largest hole has 10 MiB
    run.oom(0, 30 * MIB, free=5 * MIB, line=20)
    answer, _ = report(run, tmp_path)
    oom = answer["oom"][0]
    assert oom["cause"] == "leak", oom["verdict"]
    of_line = [m for m in oom["measures"] if m["replayed"] and "train.py:12" in m["replayed"]]
    assert of_line and all(m["enough"] is False and m["spare_bytes"] is None for m in of_line)
    assert all(": still fails" in m["text"] for m in of_line)


@pytest.mark.parametrize("free,fits", [(64, True), (31, True)])
def test_a_limit_is_lifted_only_if_the_request_then_fits(tmp_path, free, fits):
    run, _ = leaking()
    run.traces[0] = run.traces[0][:24]  # four steps: nothing grows
    run.blocks = dict(list(run.blocks.items())[:4])
    run.segments = dict(list(run.segments.items())[:1])
    run.oom(0, 30 * MIB, free=free * MIB, line=20)
    answer, _ = report(run, tmp_path)
    oom = answer["oom"][0]
    assert oom["cause"] == "allocator_cap", oom["verdict"]
    lifted = [m for m in oom["measures"] if "set_per_process_memory_fraction" in m["text"]]
    assert bool(lifted) == fits
    assert lifted[0]["replayed"] == "without the limit" and lifted[0]["enough"] is True


def test_every_amount_states_its_basis(tmp_path):
    run, _ = leaking()
    run.oom(0, 30 * MIB, free=5 * MIB, line=20)
    for m in report(run, tmp_path)[0]["oom"][0]["measures"]:
        assert m["basis"] in ("replayed", "formula", None) and (m["basis"] is None) == (m["frees_bytes"] is None)
        assert ("a formula, not replayed" in m["text"]) == (m["basis"] == "formula")
        assert ("; replayed" in m["text"]) == (m["basis"] == "replayed")
        assert "empty_cache" not in m["text"]  # PyTorch empties its cache itself before it fails


@pytest.mark.skipif(not SHARED.is_dir(), reason="no recordings of real GPUs here")
def test_a_real_gpu_that_is_full(tmp_path):
    """Its lines and the request are in recordings/README.md."""
    (file,) = SHARED.glob("b5ef67ce_*")
    text = " ".join(gpuspy("report", file).stdout.split())
    oom = json.loads(gpuspy("report", "--json", file).stdout)["oom"][0]
    assert oom["cause"] == "capacity" and oom["device"] == 1 and oom["requested_bytes"] == 5308694528
    assert oom["blame"]["file"].endswith("models.py") and oom["blame"]["line"] == 181
    lines = oom["verdict"].split("largest parts of it from ")[1]
    for line, size in (174, "29.68 GiB"), (181, "24.72 GiB"), (176, "14.83 GiB"):
        assert f"models.py:{line} in update_nodes ({size})" in lines
    assert oom["verdict"] in text and "expandable_segments" not in " ".join(oom["advice"])
    assert oom["measures"][0]["text"].startswith("halve the batch") and oom["measures"][0]["basis"] == "formula"
