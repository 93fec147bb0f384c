"""Trainings of small models of transformers 5.24, measured on the simulated GPU (PyTorch 2.11, batch 2, 512 tokens, AdamW):
the bytes that the script requested from PyTorch's allocator, without cuBLAS's workspaces."""
import json
import pathlib
import subprocess

import pytest
from conftest import BUILD, SECONDS

MODELS = json.loads((pathlib.Path(__file__).parent / "estimate_families.json").read_text())
TENSORS = ("weights", "gradients", "optimizer_states", "activations", "logits", "temporaries")
# of the bytes that forward and backward add to weights and states
PASS_ERROR = {"deepseek_v3": 0.06, "glm4_moe": 0.055}


def bytes_at(estimate, phase, parts=TENSORS):
    return sum(l["bytes"] for l in estimate["lines"] if phase in l["phases"] and l["part"] in parts and not l["host"])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_a_family(model, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model["config"]))
    for run in model["runs"]:
        done = subprocess.run(
            [BUILD / "gpuspy", "estimate", "--model", tmp_path / "config.json", "--optimizer", "adamw", "--batch", "2", "--seq",
             "512", "--precision", run["precision"], "--attention", run["attention"], "--checkpointing", run["checkpointing"],
             "--no-calibration", "--json"], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        estimate = json.loads(done.stdout)
        assert estimate["params"] == model["parameters"]
        kept = bytes_at(estimate, "forward_end", ("weights", "optimizer_states"))
        likely = max(bytes_at(estimate, "forward_end"), bytes_at(estimate, "backward_end")) - kept
        error = likely / (run["pass_bytes"] - kept) - 1
        assert abs(error) <= PASS_ERROR.get(model["name"], 0.04), (run, error)
        assert abs(bytes_at(estimate, "step") / run["step_bytes"] - 1) <= 0.005, run


# Drawn at random (seed 20261128) from 21 model types and 9 torchvision models × batch, length, precision, checkpointing, attention,
# optimizer, accumulation and LoRA with dropout, before any was run: torch.cuda's peak of allocated bytes, third step, simulated H100.
# From ModernBERT on: runs of other encoders, encoder-decoders and image models of transformers 5.24, picked after formulas were
# compared with them: they show that nothing changed, not how accurate an unseen setting is.
DRAWN = json.loads((pathlib.Path(__file__).parent / "estimate_drawn.json").read_text())
# Falcon's multi-query attention falls back to scores that are kept
DRAWN_ERROR = {"falcon-55": 0.06, "mixtral-16": 0.04, "modernbert-base-mlm-fp32": 0.03}


def allocated_at_peak(estimate):
    left = ("context", "communication", "allocator")
    moments = [[l for l in estimate["lines"] if phase in l["phases"] and not l["host"]
                and (l["part"] not in left or (l["part"] == "allocator" and l["name"].startswith("blocks")))]
               for phase in estimate["phases"]]
    return [max(sum(l[key] for l in lines) for lines in moments) for key in ("low_bytes", "bytes", "high_bytes")]


@pytest.mark.parametrize("run", DRAWN, ids=lambda run: run["name"])
def test_a_drawn_setting(run, tmp_path):
    if "config" in run:
        (tmp_path / "config.json").write_text(json.dumps(run["config"]))
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", run.get("model", tmp_path / "config.json"), *run["options"].split(),
                           "--gpu", "h200-141g", "--no-calibration", "--json"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    if not run["name"].startswith("vit"):  # without the pooler that gpuspy counts, with a classifier of two classes
        assert estimate["params"] == run["parameters"]
    low, likely, high = allocated_at_peak(estimate)
    assert abs(likely / run["peak_bytes"] - 1) <= DRAWN_ERROR.get(run["name"], 0.025)
    assert run["peak_bytes"] <= 1.01 * high or run["name"] in DRAWN_ERROR


# Chosen before they were run, of families and settings whose operations gpuspy partly replays as those of a plain model: PyTorch
# 2.11, transformers 5.24, peft 0.21, timm 1.0, simulated GPU with 140 GiB; the fourth step's peaks.
RESERVED = json.loads((pathlib.Path(__file__).parent / "estimate_reserved.json").read_text())


@pytest.mark.parametrize("run", RESERVED, ids=lambda run: run["name"])
def test_reserved_memory_of_other_families(run, tmp_path):
    """6 % of the short-lived memory was up to 19 % too little for those whose operations are not replayed one by one."""
    model = ["--model", tmp_path / "config.json"] if "config" in run else []
    (tmp_path / "config.json").write_text(json.dumps(run.get("config", {})))
    done = subprocess.run([BUILD / "gpuspy", "estimate", *model, *run["options"].split(), "--gpu", "h200-141g", "--no-calibration",
                           "--json"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    moments = [[l for l in estimate["lines"] if phase in l["phases"] and not l["host"]
                and l["part"] not in ("context", "communication")] for phase in estimate["phases"]]
    low, likely, high = (max(sum(l[key] for l in lines) for lines in moments) for key in ("low_bytes", "bytes", "high_bytes"))
    assert abs(likely / run["reserved"] - 1) <= 0.06
    assert low <= run["reserved"] <= high
    assert abs(allocated_at_peak(estimate)[1] / run["allocated"] - 1) <= 0.06
