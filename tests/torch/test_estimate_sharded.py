"""`gpuspy estimate` of several GPUs against PyTorch's own counters of each rank, and `gpuspy report` against both: DDP, FSDP and
FSDP2 on simulated GPUs, over NCCL that sends nothing (the allocations, and who gathers what when, are PyTorch's).

  python3 tests/torch/test_estimate_sharded.py [NAME]    measures anew what tests/e2e/estimate_sharded.json holds for the docs,
                                                         or those with NAME in theirs; TORCH_PYTHON is the PyTorch to use
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import BUILD, HERE, ROOT, SECONDS, Recorded

RUNS = ROOT / "tests" / "e2e" / "estimate_sharded.json"
CASES = {run["name"]: run for run in json.loads(RUNS.read_text())}
TENSORS = ("weights", "gradients", "optimizer_states", "activations", "logits", "temporaries", "buckets", "workspaces")
# A block is up to 1 MiB larger than requested; FSDP2 has a block for the shard of each parameter.
BLOCKS = 40 << 20
NEAR = 0.03  # between steps and runs: a thread of PyTorch decides when a collective's tensors are released


def measured(run, record):
    # PyTorch's watchdog releases DDP's first buckets within 100 ms, before their successors only if copies take that long.
    moved = {"SIMCUDA_CONTENTS": "400GiB"} if run["how"].startswith("ddp") else {}
    done = record(HERE / "estimate_sharded.py", "--how", run["how"], "--ranks", run["ranks"], *run["model"].split(),
                  *run["settings"].split(), "--steps", 4, SIMCUDA_DEVICES=run["ranks"], SIMCUDA_MEMORY="400GiB",
                  SIMCUDA_CAPABILITY="9.0", **moved)
    assert done.code == 0, done.stderr[-3000:]
    return done, [json.loads((done.folder / f"said.{rank}").read_text()) for rank in range(run["ranks"])]


def peak(reported):
    return max(reported[moment] for moment in ("forward_peak", "backward_peak", "step_peak"))


def asked(command, run, config, *more):
    done = subprocess.run([BUILD / "gpuspy", command, "--model", config, "--optimizer", "adamw", *run["settings"].split(),
                           "--gpus", str(run["ranks"]), *run["divided"].split(), "--json", *more], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(params=CASES)
def case(request, once):
    run = CASES[request.param]
    done, ranks = measured(run, lambda *command, **more: once(f"sharded {request.param}", *command, fresh=False, **more))
    return run, done, ranks


def sums(estimate, phase):
    lines = [l for l in estimate["lines"] if phase in l["phases"] and l["part"] in TENSORS and not l["host"]]
    return [sum(l[field] for l in lines) for field in ("low_bytes", "bytes", "high_bytes")]


def test_each_rank_is_as_estimated(case):
    run, done, ranks = case
    estimate = asked("estimate", run, done.folder / "config.json", "--gpu", "h100-80g", "--no-calibration")
    assert ranks[0]["parameters"] == estimate["params"]
    passes = [max(both) for both in zip(sums(estimate, "forward_end"), sums(estimate, "backward_end"))]
    step = sums(estimate, "step")
    for reported in ranks:
        pass_peak = max(reported["forward_peak"], reported["backward_peak"])
        assert passes[0] * 0.98 <= pass_peak <= passes[2] * 1.02 + BLOCKS, [x / pass_peak for x in passes]
        assert abs(passes[1] - pass_peak) <= 0.08 * pass_peak + BLOCKS, [x / pass_peak for x in passes]
        assert step[0] * 0.98 <= reported["step_peak"] <= step[2] * 1.02 + BLOCKS, [x / reported["step_peak"] for x in step]
        assert abs(step[1] - reported["step_peak"]) <= 0.03 * reported["step_peak"] + BLOCKS


def test_the_docs_have_this_peak(case):
    run, _, ranks = case
    if ranks[0]["torch"].split("+")[0] != run["torch"]:
        pytest.skip(f"the docs' table is of PyTorch {run['torch']}")
    assert max(map(peak, ranks)) == pytest.approx(run["peak_bytes"], rel=NEAR)


def test_the_report_of_each_rank(case):
    run, done, ranks = case
    budget = asked("report", run, done.folder / "config.json", done.database)["budget"]
    assert budget["gpus"] == run["ranks"] and budget["measured"]["peak_bytes"] == pytest.approx(max(map(peak, ranks)), rel=NEAR)
    assert [b["rank"] for b in budget["ranks"]] == list(range(run["ranks"]))
    for rank, reported in zip(budget["ranks"], ranks):
        rows = {row["category"]: row for row in rank["categories"]}
        assert rank["measured"]["peak_bytes"] == pytest.approx(peak(reported), rel=NEAR)
        for category in ("parameters", "optimizer_state"):
            assert abs(rows[category]["difference_bytes"]) <= 0.02 * rows[category]["estimate_bytes"] + BLOCKS, rows[category]
        inside = {level["level"]: level["inside"] for level in rank["levels"]}
        assert inside["tensors"], rank["levels"]
        assert inside["pass"] or rank["measured"]["phase"] == "step", rank["levels"]


def write(part):
    runs = list(CASES.values())
    for run in (run for run in runs if part in run["name"]):
        with tempfile.TemporaryDirectory() as folder:
            _, ranks = measured(run, lambda *command, **more: Recorded(Path(folder), *command, **more))
        run["peak_bytes"], run["torch"] = max(map(peak, ranks)), ranks[0]["torch"].split("+")[0]
        print(run["name"], run["peak_bytes"], file=sys.stderr)
    RUNS.write_text("[\n" + ",\n".join(json.dumps(run) for run in runs) + "\n]\n")


if __name__ == "__main__":
    assert os.environ.get("TORCH_PYTHON"), __doc__
    write(sys.argv[1] if len(sys.argv) > 1 else "")
