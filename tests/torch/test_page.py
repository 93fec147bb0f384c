"""The data of the page of real PyTorch runs: every moment adds up, the peak is the report's by category, and the
address map is the report's allocator."""
import subprocess
import sys

import pytest
from conftest import BUILD, HERE
from test_export import RUNS, run_of

sys.path.insert(0, str(HERE.parent / "e2e"))
from page import Page, agrees, blocks, each_sums, restored  # noqa: E402


@pytest.fixture(params=[name for name in RUNS if name != "split"])
def run(once, request):
    done = run_of(once, request.param)
    if not hasattr(done, "data"):
        out = done.folder / "run.html"
        subprocess.run([BUILD / "gpuspy", "report", "--html", out, "--top", "1000", done.database], check=True)
        done.data, done.reported = Page(out.read_text()).data(), done.report()
    return done


def test_moments(run):
    serieses = each_sums(run.data)
    agrees(run.reported, run.data, serieses)
    assert any(s.given["layer"] == "tensor" for s in serieses)
    for oom in run.reported["oom"]:
        if oom["fatal"]:  # what was live then, by category
            (s,) = [s for s in serieses if s.given["device"] == oom["device"] and s.given["layer"] == oom["live_layer"]]
            at = s.time.index(round(oom["time_s"] * 1e9))
            assert sum(oom["by_category"].values()) in (s.high[at], s.high[at + 1:at + 2])


def test_maps(run):
    maps = {(m["device"], m["at"]): m for m in run.data["maps"]}
    states = [s for s in run.reported["allocator"] if s["moment"] == "peak" and s["backend"] == "native"]
    assert states
    for state in states:
        given = maps[state["device"], "peak"]
        torch = [s for s in blocks(run.data, given) if s[0] == "torch"]
        held = [b for s in torch for b in s[3]]
        assert sum(s[2] for s in torch) == state["reserved_bytes"] and len(torch) == state["segments"]
        assert sum(b[1] for b in held if not b[4]) == state["allocated_bytes"] and not given["note"]
        by = {}
        for b in held:
            if not b[4]:
                by[b[3]] = by.get(b[3], 0) + b[1]
        assert by == run.reported["peak"][given["index"]]["by_category"]


def test_the_report(run):
    inside, reported = restored(run.data), dict(run.reported)
    if "texts are cut" not in run.data["resolution"]["text"]:
        assert inside == reported
