"""Categories of tensors by how they are used: fixtures/python/train_uses.py's own figures, compared with the report's
categories."""
import json
import pickle
import subprocess
import sys

import pytest

from conftest import BUILD, HERE, ROOT

sys.path.insert(0, str(HERE.parent / "e2e"))
from page import Page, blocks  # noqa: E402

SCRIPT = ROOT / "fixtures" / "python" / "train_uses.py"
LEAVING = """cpu saved meta halved_after deleted swapped_in averaged_in offloaded sweep to_half cuda_dtype
at_once layer_by_layer""".split()
COPIED = """batches ema teacher mask embeddings dataset dataset_slices kept_batches fixed refreshed replay accumulated
prefetched evaluated collated registered late_buffer only""".split()
FAILING = "fails fails_first fails_first_ema".split()


def equal(found, own):
    for category, bytes_ in own.items():
        assert found["by_category"].get(category, 0) == pytest.approx(bytes_, rel=0.01), (category, found["categories"])


def own_figures(run):
    assert run.code == 0, run.stderr
    return json.loads(run.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("kind", LEAVING + COPIED)
def test_at_the_peak(record, kind):
    run = record(SCRIPT, kind, "cuda")
    [peak] = [p for p in run.report()["peak"] if p["layer"] == "tensor"]
    equal(peak, own_figures(run))


@pytest.mark.parametrize("kind", FAILING)
def test_at_a_failure(record, kind):
    run = record(SCRIPT, kind, "cuda")
    own = own_figures(run)
    assert own.pop("failed")
    equal(max(run.report()["oom"], key=lambda o: o["time_s"]), own)


def gpuspy(*arguments):
    return subprocess.run([BUILD / "gpuspy", *map(str, arguments)], check=True, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout


def on_the_page(run, index):
    html = run.folder / "run.html"
    gpuspy("report", "--html", html, "--top", 1000, run.database)
    data, by = Page(html.read_text()).data(), {}
    [given] = [m for m in data["maps"] if m["at"] == "peak" and m["index"] == index]
    for owner, _, _, held, *_ in blocks(data, given):
        for b in held if owner == "torch" else ():
            if not b[4]:
                by[b[3]] = by.get(b[3], 0) + b[1]
    return by


def in_a_snapshot(run):
    out, by = run.folder / "run.pickle", {}
    gpuspy("export", "-f", "torch-snapshot", "-o", out, run.database)
    for segment in pickle.loads(out.read_bytes())["segments"]:
        for b in segment["blocks"]:
            if b["state"] == "active_allocated":
                by[b["category"]] = by.get(b["category"], 0) + b["size"]
    return by


@pytest.mark.parametrize("kind", ["cpu", "embeddings", "refreshed", "offloaded"])
def test_every_view_has_the_same_categories(record, kind):
    run = record(SCRIPT, kind, "cuda")
    report = json.loads(gpuspy("report", "--json", "--params", "4.2M", run.database))
    [(index, peak)] = [(i, p) for i, p in enumerate(report["peak"]) if p["layer"] == "tensor"]
    by = {k: v for k, v in peak["by_category"].items() if v}
    assert {r["category"]: r["measured_bytes"] for r in report["budget"]["categories"] if r["measured_bytes"]} == by
    assert all(r["most_bytes"] >= by.get(r["category"], 0) for r in report["budget"]["categories"])
    table = json.loads(gpuspy("table", "--by", "category", "-l", "tensor", "--json", run.database))
    assert {r["category"]: r["own"] for r in table["rows"]} == by
    assert on_the_page(run, index) == by
    assert in_a_snapshot(run) == by


def test_the_waterfall_has_the_failures_categories(record):
    run = record(SCRIPT, "fails", "cuda")
    oom = max(run.report()["oom"], key=lambda o: o["time_s"])
    tensors = {p["category"]: p["bytes"] for p in oom["waterfall"] if p["what"] == "tensors"}
    assert tensors and tensors == {k: v for k, v in oom["by_category"].items() if v}
