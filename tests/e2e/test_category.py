"""The report's categories of tensors, compared with figures that the model itself gives."""
import importlib.util
import json

import pytest

from conftest import BUILD, ROOT

if not importlib.util.find_spec("torch"):  # an import takes each worker 2 s
    pytest.skip("no PyTorch in this Python", allow_module_level=True)


@pytest.mark.parametrize("kind", ["mlp", "foreach", "conv"])
def test_the_models_own_figures(recording, kind):
    own = json.loads(recording.python("train_kinds.py", kind, "cpu", GPUSPY_TORCH_CPU=1).stdout)
    [peak] = [p for p in recording.report()["peak"] if p["layer"] == "host"]
    assert sum(peak["by_category"].values()) == peak["bytes"]
    assert sum(c["bytes"] for c in peak["categories"]) == peak["bytes"]
    for category, bytes_ in own.items():
        assert peak["by_category"].get(category, 0) == pytest.approx(bytes_, rel=0.01), category
    assert {s["category"] for s in peak["by_stack"]} <= set(peak["by_category"])
    assert "optimizer state" in recording.gpuspy("report", recording.database).stdout


CUDA = sorted(BUILD.glob("torch-*/done"))


# The optimizer's name, and the budget's text on its states if they differ from Adam's.
BUDGETS = {"mlp": ("sgd-momentum", "one state per parameter"), "foreach": ("adamw", "two states per parameter"),
           "noopt": ("sgd", "none: no optimizer step")}


@pytest.mark.parametrize("kind", BUDGETS)
@pytest.mark.parametrize("build", CUDA or [pytest.param(None, marks=pytest.mark.skip("make test-torch fetches them"))],
                         ids=[done.parent.name for done in CUDA] or ["none"])
def test_the_budget_of_a_known_model(recording, build, kind):
    """For float32 training, the estimate and the measurement agree; for another optimizer the difference is
    explained."""
    done = recording.gpuspy("run", "-q", "--no-summary", "-o", recording.database, "--simulate", "a100-80g", "--",
                            build.parent / "bin" / "python", ROOT / "fixtures" / "python" / "train_kinds.py", kind,
                            "cuda")
    assert done.returncode == 0, done.stderr
    own = json.loads(done.stdout)
    params = own["parameters"] // 4
    optimizer, says = BUDGETS[kind]
    budget = recording.report("--params", params, "--optimizer", optimizer)["budget"]
    rows = {r["category"]: r for r in budget["categories"]}
    assert budget["parameter_bytes"] == pytest.approx(own["parameters"], rel=0.01)
    assert sum(r["measured_bytes"] for r in budget["categories"]) == budget["measured"]["peak_bytes"]
    for category in ("parameters", "gradients", "optimizer_state"):
        if category in rows and rows[category]["estimate_bytes"]:
            assert rows[category]["most_bytes"] == pytest.approx(rows[category]["estimate_bytes"], rel=0.01), category
            assert rows[category]["why"] is None or "at the peak" in rows[category]["why"]
    rows = {r["category"]: r for r in recording.report("--params", params, "--optimizer", "adam-amsgrad")["budget"]["categories"]}
    assert says in rows["optimizer_state"]["why"] or "at the peak" in rows["optimizer_state"]["why"]
    assert f"--params {params / 1e6:.4g}M" in recording.gpuspy("report", recording.database).stdout
