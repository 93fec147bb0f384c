"""Exports of PyTorch's own runs: weights and categories are those of the report."""
import csv
import shutil
import subprocess

import pytest

from conftest import BUILD, SECONDS

SCRIPT = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for i in range(6):
    loss = model(torch.randn(256, 512, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
"""


def export(run, *words):
    done = subprocess.run([BUILD / "gpuspy", "export", *words, run.database], cwd=run.folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(record, tmp_path_factory):
    script = tmp_path_factory.mktemp("script") / "train.py"
    script.write_text(SCRIPT)
    run = record(script)
    assert run.code == 0, run.stderr
    return run


def test_folded_and_tables(run):
    report = run.report()
    peak = next(p for p in report["peak"] if p["layer"] == "tensor")
    lines = [line.rsplit(" ", 1) for line in export(run, "-f", "folded", "-o", "-").splitlines()]
    assert sum(int(weight) for _, weight in lines) == peak["bytes"]
    allocated = [line.rsplit(" ", 1)[0].split(";") for line in export(run, "-f", "folded", "-w", "allocated", "-o", "-").splitlines()]
    assert any("backward" in stack[-2] and "Backward0" in stack[-1] for stack in allocated if len(stack) > 1)
    rows = list(csv.DictReader(export(run, "-f", "csv", "--tables", "categories", "-o", "-").splitlines()))
    assert {r["category"]: int(r["bytes"]) for r in rows if r["layer"] == "tensor"} == \
        {k: v for k, v in peak["by_category"].items() if v}
    rows = list(csv.DictReader(export(run, "-f", "csv", "--tables", "waits", "-o", "-").splitlines()))
    assert sum(int(r["count"]) for r in rows) == sum(s["count"] for s in report["sync"])


@pytest.mark.skipif(not shutil.which("go"), reason="golang-go is not installed: scripts/setup.sh does")
def test_pprof_has_the_reports_categories(run):
    peak = next(p for p in run.report()["peak"] if p["layer"] == "tensor")
    export(run, "-f", "pprof", "-o", "run.pb.gz")
    text = subprocess.run(["go", "tool", "pprof", "-raw", "run.pb.gz"], cwd=run.folder, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, timeout=SECONDS).stdout
    found, size = {}, 0
    for line in text.split("Samples:\n")[1].split("Locations\n")[0].splitlines()[1:]:
        if "category:[" in line:
            category = line.split("category:[")[1].split("]")[0]
            found[category] = found.get(category, 0) + size
        else:
            size = int(line.split()[1])  # inuse_objects, inuse_space, …
    assert {k: v for k, v in found.items() if v} == {k: v for k, v in peak["by_category"].items() if v}
