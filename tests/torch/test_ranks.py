"""Ranks of one job together: which GPU each works on, and memory of a rank on another rank's GPU."""
import pytest
from conftest import HERE

SCRIPT = HERE / "ranks.py"
LINES = {text.split("# ")[1]: number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1) if "  # " in text}


@pytest.fixture
def job(record):
    def run(start, how):
        done = record(SCRIPT, start, how, SIMCUDA_DEVICES=2)
        assert done.code == 0, done.stderr[-3000:]
        return done.report()
    return run


def found(answer, kind):
    (finding,) = answer["rank_findings"]
    assert finding["kind"] == kind, finding
    return finding


def test_each_on_its_own(job):
    answer = job("env", "own")
    assert [(r["rank"], r["device"], r["gpu"]) for r in answer["ranks"]] == [(0, 0, "0"), (1, 1, "1")]
    peaks = {(p["rank"], p["device"], p["layer"]): p["bytes"] for p in answer["peak"]}
    for r in answer["ranks"]:
        assert r["tensor_peak_bytes"] == peaks[r["rank"], r["device"], "tensor"] > 0
        assert r["device_peak_bytes"] == peaks[r["rank"], r["device"], "device"]
    assert answer["rank_findings"] == []


def test_cuda_before_set_device(job):
    finding = found(job("fork", "stray"), "stray")
    assert (finding["rank"], finding["device"], finding["site"]["line"]) == (1, 0, LINES["STRAY"])
    assert "set_device(local_rank)" in finding["advice"]


def test_a_checkpoint_goes_where_it_came_from(job):
    finding = found(job("fork", "checkpoint"), "stray")
    assert (finding["rank"], finding["device"], finding["site"]["line"]) == (1, 0, LINES["CHECKPOINT"])
    assert finding["bytes"] >= 16 << 20 and "map_location" in finding["advice"]


def test_all_on_the_first(job):
    finding = found(job("fork", "first"), "shared")
    assert finding["ranks"] == 2 and finding["device"] == 0


def test_one_holds_more(job):
    finding = found(job("fork", "more"), "imbalance")
    assert finding["rank"] == 0 and finding["site"]["line"] == LINES["MORE"]
    assert abs(finding["bytes"] - (256 << 20)) < 1 << 20


def test_spawned(job):
    """mp.spawn sets no rank: the processes are distinguished by their ids."""
    answer = job("spawn", "stray")
    assert [r["rank"] for r in answer["ranks"]] == [None, None]
    finding = found(answer, "stray")
    assert finding["site"]["line"] == LINES["STRAY"] and finding["text"].startswith(f"process {finding['pid']} also has")
