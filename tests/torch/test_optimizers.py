"""States and steps of torch.optim: the estimate, compared with PyTorch's counters around step()."""
import json
import subprocess

import pytest
from conftest import BUILD, HERE

SCALARS = 4 * 1024 * 4  # per tensor: step counts on the GPU (fused), ASGD's eta and mu, norms of rows and columns


@pytest.fixture(scope="module")
def measured(once, tmp_path_factory):
    model = tmp_path_factory.mktemp("model") / "model.safetensors"
    run = once("optimizers", HERE / "optimizers.py", model)
    assert run.code == 0, run.stderr
    return model, [json.loads(line) for line in run.stdout.splitlines()]


def estimate(model, row):
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--json", "--model", model, "--optimizer", row["optimizer"],
                           "--step", row["way"], "--precision", row["precision"]], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)["lines"]
    of = {key: [line for line in lines if test(line)] for key, test in {
        "weights": lambda line: line["part"] == "weights", "states": lambda line: line["part"] == "optimizer_states",
        "step": lambda line: line["name"] == "optimizer step"}.items()}
    return {key: (sum(line["low_bytes"] for line in found), sum(line["high_bytes"] for line in found))
            for key, found in of.items()}


def test_every_optimizer_is_as_estimated(measured):
    model, rows = measured
    assert len({row["optimizer"] for row in rows}) == 17 and {row["way"] for row in rows} == {"foreach", "fused", "loop"}
    for row in rows:
        reported, slack = estimate(model, row), SCALARS * row["tensors"]
        for key, (low, high) in reported.items():
            assert low - slack <= row[key] <= high + slack, (row, key, reported)


def test_most_are_exact(measured):
    """To the byte, except for step counts on the GPU, if nothing depends on the order of the tensors."""
    model, rows = measured
    exact = [row for row in rows if row["way"] != "loop" and row["optimizer"] not in ("adafactor", "asgd", "rprop")]
    assert len(exact) > 30
    for row in exact:
        for key, (low, high) in estimate(model, row).items():
            assert low == high and 0 <= row[key] - low <= 4 * row["tensors"], (row, key, low)
