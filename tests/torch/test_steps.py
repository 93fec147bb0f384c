"""gpuspy finds the steps of real PyTorch loops, and what grows with them."""
import re
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parent / "steps.py"
LINES = SCRIPT.read_text().splitlines()
SOURCES = {"accumulation": "backward", "fused": "optimizer", "gan": "optimizer", "scaler": "optimizer", "sgd": "backward",
           "inference": "period", "epochs": "optimizer", "marked": "mark", "closure": "optimizer", "graph": "optimizer",
           "tenth": "optimizer", "level": "optimizer",
           "clipped": "optimizer", "unscaled": "optimizer", "unseen": "backward"}


def line_of(comment):
    return next((n, line) for n, line in enumerate(LINES, 1) if f"# {comment}" in line)


@pytest.fixture
def report(once, request):
    run = once("steps " + request.param, SCRIPT, request.param)
    assert run.code == 0, run.stderr
    return run.report()


@pytest.mark.parametrize("report, name", [(n, n) for n in SOURCES], indirect=["report"])
def test_the_steps_are_found(report, name):
    line, text = line_of(name + ": steps")
    steps, = report["steps"]
    assert (steps["source"], steps["n"]) == (SOURCES[name], int(re.search(r"steps (\d+)", text)[1])), steps
    if steps["source"] != "mark":
        assert steps["site"]["line"] == line, steps
    assert 0 <= steps["steady"] < steps["n"] and steps["last_s"] > steps["first_s"]
    assert steps["median_s"] * steps["n"] < 2 * (steps["last_s"] - steps["first_s"])


@pytest.mark.parametrize("number, part, optimizer, more", [
    (1, "forward", "adam", ()), (1, "backward", "fused", ()), (1, "clip", "sgd", ()), (1, "step", "adam", ("amp",)),
    (2, "forward", "fused", ("amp",)), (2, "step", "sgd", ()), (3, "forward", "adam", ()), (3, "clip", "fused", ()),
    (4, "step", "fused", ("amp",)), (4, "backward", "adam", ())])
def test_the_step_that_failed_has_its_number(record, number, part, optimizer, more):
    run = record(SCRIPT, "failing", number, part, optimizer, *more)
    report = run.report()
    [oom] = report["oom"]
    known = report["steps"] or number == 1
    assert oom["step"] == (number if known else None), (oom["step"], report["steps"])
    assert not report["steps"] or number - 1 <= report["steps"][0]["n"] <= number, report["steps"]


@pytest.mark.parametrize("report", ["epochs"], indirect=True)
def test_what_is_kept_after_each_epoch_grows_in_jumps(report):
    line, _ = line_of("epochs: grows")
    growth = report["growth"][0]
    assert growth["jumps"] == 5 and growth["step"] == "step" and not growth["graph"], growth
    made, _ = line_of("makes the result")
    assert [(x["site"]["line"], x["site"]["caller"]["line"], x["count"]) for x in growth["lines"]] == [(made, line, 100)]


@pytest.mark.parametrize("report", ["graph"], indirect=True)
def test_a_kept_graph_is_one_leak(report):
    line, _ = line_of("graph: grows")
    growth, = report["growth"]
    assert growth["graph"] and growth["steps"] == 40
    assert growth["under"]["line"] == line, growth["under"]
    assert growth["bytes_per_step"] * growth["steps"] == pytest.approx(growth["bytes"])
    assert len(growth["lines"]) >= 2


@pytest.mark.parametrize("report", ["tenth"], indirect=True)
def test_every_tenth_loss_is_found(report):
    line, _ = line_of("tenth: grows")
    growth, = report["growth"]
    assert (growth["site"]["line"], growth["count"], growth["steps"]) == (line, 10, 100)
    assert growth["bytes_per_step"] == pytest.approx(51.2)


@pytest.mark.parametrize("report", ["accumulation", "fused", "gan", "scaler", "sgd", "inference", "marked", "closure", "level"],
                         indirect=True)
def test_nothing_else_grows(report):
    assert report["growth"] == [], [(g["bytes"], g["site"]) for g in report["growth"]]
