"""gpuspy run --simulate and doctor with PyTorch itself. `make test-torch` runs this file for the newest release, too."""
import json
import os
import subprocess

import pytest

from conftest import BUILD, ROOT, SECONDS, run_again

TRAIN = """
import torch
from torch import nn

def train(model, inputs):
    model.to("cuda")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(4):
        model(inputs).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()

train(nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)), torch.randn(32, 512, device="cuda"))
with torch.autocast("cuda", dtype=torch.bfloat16):
    layer = nn.TransformerEncoderLayer(256, 4, batch_first=True)
    train(nn.TransformerEncoder(layer, 2), torch.randn(8, 64, 256, device="cuda"))
print(torch.__version__, torch.cuda.get_device_name(), torch.cuda.max_memory_allocated())
"""


RANKS = """
import os, torch, torch.distributed as dist
from torch import nn
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
gathered = [torch.zeros(1, dtype=torch.long, device="cuda") for _ in range(2)]
dist.all_gather(gathered, torch.tensor([7], device="cuda"))
gathered = [g.item() for g in gathered]
model = nn.parallel.DistributedDataParallel(nn.Linear(256, 256).to("cuda"), device_ids=[rank])
model(torch.randn(8, 256, device="cuda")).sum().backward()
print(f"rank {rank} gathered {gathered}")
dist.destroy_process_group()
"""


def gpuspy(folder, *words):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_", "CUDA_"))}
    return run_again(folder, lambda: subprocess.run([BUILD / "gpuspy", *map(str, words)], cwd=folder, env=dict(env, OMP_NUM_THREADS="2"),
                                                    text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SECONDS))


@pytest.fixture
def python():
    if not os.environ.get("TORCH_PYTHON"):
        pytest.skip("TORCH_PYTHON names no interpreter with PyTorch: tests/torch.sh does")
    return os.environ["TORCH_PYTHON"]


def test_a_dry_run_of_training(tmp_path, python):
    (tmp_path / "train.py").write_text(TRAIN)
    done = gpuspy(tmp_path, "run", "--simulate", "h100-80g", "--", python, "train.py")
    assert done.returncode == 0, done.stderr
    version, *name, peak = done.stdout.split()
    assert " ".join(name) == "NVIDIA H100 80GB HBM3 (simulated)"
    report = json.loads(gpuspy(tmp_path, "report", "--json", "run.db").stdout)
    (tensors,) = [p for p in report["peak"] if p["layer"] == "tensor"]
    assert tensors["bytes"] == int(peak), version
    assert {"parameters", "gradients"} <= {c for c, n in tensors["by_category"].items() if n}, tensors["by_category"]


def test_a_dry_run_of_the_fixture(tmp_path, python):
    done = gpuspy(tmp_path, "run", "--simulate", "h100-80g", "--", python, ROOT / "fixtures" / "python" / "train_torch.py", 30)
    assert done.returncode == 0 and "parameters on cuda\n" in done.stdout, done.stderr


def test_a_dry_run_of_two_ranks(tmp_path, python):
    """Each rank gathers its own shard, whether PyTorch gathers with one call or with a group of broadcasts."""
    (tmp_path / "ranks.py").write_text(RANKS)
    done = gpuspy(tmp_path, "run", "--simulate", "h100-80g", "--gpus", 2, "--", python, "-m", "torch.distributed.run",
                  "--standalone", "--nproc-per-node", 2, "ranks.py")
    assert done.returncode == 0, done.stderr
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("rank")) == [
        f"rank {rank} gathered [7, 7]" for rank in (0, 1)]


def test_doctor_tries_the_import(tmp_path, python):
    answer = json.loads(gpuspy(tmp_path, "doctor", "--json", "--deep", python).stdout)
    (found,) = [c for c in answer["checks"] if c["id"] == "torch_simulated"]
    assert found["state"] == "ok" and "was imported on the simulated GPU" in found["text"], found
