"""`gpuspy estimate` before the run, compared with PyTorch's own counters during it: models in plain PyTorch, written
like Hugging Face's, on the simulated GPU (the allocations and the allocator are real)."""
import json
import subprocess

import pytest
from conftest import BUILD, HERE, SECONDS

LLAMA = "--family llama --layers 6 --hidden 1024 --heads 16 --kv-heads 4 --ffn 2816 --vocab 8192"
WIDE = "--family llama --layers 2 --hidden 2048 --heads 16 --ffn 5504 --vocab 32000"
GPT = "--family gpt --layers 6 --hidden 768 --heads 12 --vocab 16384 --context 1024"
BERT = "--family bert --layers 6 --hidden 768 --heads 12 --vocab 30522 --context 512"
CASES = {  # name: model, precision, attention, checkpointing, batch, seq, more
    "llama fp32": (LLAMA, "fp32", "eager", "none", 4, 1024, ""),
    "llama amp": (LLAMA, "amp-bf16", "flash", "none", 4, 1024, ""),
    "llama bf16 eager": (LLAMA, "bf16", "eager", "none", 4, 1024, ""),
    "llama bf16 checkpointed": (LLAMA, "bf16", "flash", "full", 8, 2048, ""),
    "llama amp checkpointed": (LLAMA, "amp-bf16", "flash", "full", 8, 2048, ""),
    "llama bf16, operations": (LLAMA, "bf16", "flash", "selective-op", 8, 2048, ""),
    "llama amp, operations": (LLAMA, "amp-bf16", "flash", "selective-op", 8, 2048, ""),
    "llama fp32, operations": (LLAMA, "fp32", "flash", "selective-op", 4, 1024, ""),
    "llama bf16 eager, operations": (LLAMA, "bf16", "eager", "selective-op", 4, 1024, ""),
    "gpt bf16, operations": (GPT, "bf16", "flash", "selective-op", 8, 1024, ""),
    "gpt amp eager, operations": (GPT, "amp-bf16", "eager", "selective-op", 8, 1024, ""),
    "bert amp, operations": (BERT, "amp-bf16", "flash", "selective-op", 16, 512, ""),
    "llama bf16, few tokens": (WIDE, "bf16", "flash", "none", 1, 128, ""),
    "llama bf16, logits let go": (WIDE, "bf16", "flash", "none", 4, 1024, "--drop-logits"),
    "gpt fp32 eager": (GPT, "fp32", "eager", "none", 8, 1024, ""),
    "gpt amp": (GPT, "amp-bf16", "flash", "none", 8, 1024, ""),
    "gpt amp eager": (GPT, "amp-bf16", "eager", "none", 8, 1024, ""),
    "gpt bf16 checkpointed": (GPT, "bf16", "flash", "full", 8, 1024, ""),
    "bert fp32": (BERT, "fp32", "flash", "none", 16, 512, ""),
    "bert amp eager": (BERT, "amp-bf16", "eager", "none", 16, 512, ""),
}


@pytest.fixture
def both(once, request):
    """The measurement and the estimate."""
    model, precision, attention, checkpointing, batch, seq, more = CASES[request.param]
    same = ["--precision", precision, "--attention", attention, "--checkpointing", checkpointing, "--batch", batch, "--seq", seq]
    done = once(f"measured {request.param}", HERE / "estimate_measure.py", *model.split(), *same, *more.split(),
                SIMCUDA_MEMORY="400GiB", GPUSPY_DISABLE="1", SIMCUDA_CAPABILITY="9.0", fresh=False)
    assert done.code == 0, done.stderr[-3000:]
    asked = subprocess.run([BUILD / "gpuspy", "estimate", "--model", done.folder / "config.json", "--optimizer", "adamw",
                            *map(str, same), "--json"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert asked.returncode == 0, asked.stderr
    return json.loads(done.stdout.splitlines()[-1]), json.loads(asked.stdout)


TENSORS = ("weights", "gradients", "optimizer_states", "activations", "logits", "temporaries")


def sums(estimate, phase):
    """Low, likely and high estimate of what the model requests from PyTorch's allocator: without context and
    workspaces."""
    lines = [l for l in estimate["lines"] if phase in l["phases"] and l["part"] in TENSORS and not l["host"]]
    return [sum(l[field] for l in lines) for field in ("low_bytes", "bytes", "high_bytes")]


def passes(estimate):
    return [max(pair) for pair in zip(sums(estimate, "forward_end"), sums(estimate, "backward_end"))]


@pytest.mark.parametrize("both", CASES, indirect=True)
def test_parameters(both):
    measured, estimate = both
    # the script itself adds BERT's classifier of two classes
    assert 0 <= measured["parameters"] - estimate["params"] <= 2 * 768 + 2


# What PyTorch's allocator uses in addition: cuBLAS's workspaces of the forward and the backward thread, and up to 1 MiB
# by which a large block exceeds the request (weights, gradients, states and temporaries of some 50 tensors).
WORKSPACE, BLOCKS = 80 << 20, 60 << 20


@pytest.mark.parametrize("both", CASES, indirect=True)
def test_the_pass(both, request):
    measured, estimate = both
    low, likely, high = passes(estimate)
    peak = max(measured["forward_peak"], measured["backward_peak"])
    assert low * 0.98 <= peak <= high * 1.02 + WORKSPACE, (low / peak, likely / peak, high / peak)
    if "let go" not in request.node.callspec.id:
        assert abs(likely - peak) <= 0.03 * peak + WORKSPACE, likely / peak


TALKATIVE = "--family llama --layers 6 --hidden 1024 --heads 16 --kv-heads 4 --ffn 2816 --vocab 65536"
RECIPES = {  # torchtune's: untied and tied output matrices, losses of 8 pieces with and without torch.compile
    "eager": (TALKATIVE, 4, 2048, "eager"), "compiled": (TALKATIVE, 4, 2048, "compiled"),
    "compiled, few tokens": (TALKATIVE, 1, 512, "compiled"),
    "compiled, tied": ("--family gpt --layers 6 --hidden 768 --heads 12 --vocab 65536 --context 1024", 8, 1024, "compiled")}


@pytest.mark.parametrize("name", RECIPES)
def test_a_loss_of_pieces_with_steps_in_backward(once, name):
    model, batch, seq, recipe = RECIPES[name]
    same = ["--precision", "bf16", "--checkpointing", "full", "--batch", batch, "--seq", seq]
    done = once(f"recipe {name}", HERE / "estimate_measure.py", *model.split(), *same, "--recipe", recipe, "--optimizer", "fused",
                SIMCUDA_MEMORY="400GiB", GPUSPY_DISABLE="1", SIMCUDA_CAPABILITY="9.0", fresh=False)
    assert done.code == 0, done.stderr[-3000:]
    asked = subprocess.run([BUILD / "gpuspy", "estimate", "--model", done.folder / "config.json", "--optimizer", "adamw", "--step",
                            "in-backward", "--chunked-loss", "--drop-outputs", *map(str, same), "--json",
                            *(["--fused-layers"] if recipe == "compiled" else [])],
                           text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS)
    assert asked.returncode == 0, asked.stderr
    measured, estimate = json.loads(done.stdout.splitlines()[-1]), json.loads(asked.stdout)
    states = sums({"lines": [l for l in estimate["lines"] if l["part"] in ("weights", "optimizer_states")]}, "forward_end")[1]
    peak = max(measured["forward_peak"], measured["backward_peak"]) - measured["begin"] + states  # without workspaces
    low, likely, high = passes(estimate)
    assert low <= peak <= high and abs(likely - peak) <= 0.02 * peak, (low / peak, likely / peak, high / peak)


@pytest.mark.parametrize("both", CASES, indirect=True)
def test_the_step(both):
    measured, estimate = both
    low, likely, high = sums(estimate, "step")
    assert low * 0.99 <= measured["step_peak"] <= high * 1.02 + WORKSPACE + BLOCKS, (low, measured["step_peak"], high)
