"""Categories of tensors: the report's, compared with figures that the model itself gives
(fixtures/python/train_kinds.py)."""
import json

import pytest

from conftest import HERE, ROOT

SCRIPT = ROOT / "fixtures" / "python" / "train_kinds.py"
AT_PEAK = """mlp sgd foreach single fused amsgrad rmsprop adagrad adafactor lbfgs conv amp bf16 half masters ckpt ckpt_re keep
accumulate noopt direct context to_empty loaded assigned lora bare trainer clipped ema ema_by_hand gan in_backward loader
ddp ddp_views fsdp fsdp2 sparse evaluated forward forward_amp forward_ckpt forward_ckpt_re forward_lora forward_bare""".split()
FAILING = """fails_forward fails_forward_first fails_backward fails_backward_first fails_accumulating fails_step
fails_step_late""".split()


def equal(found, own):
    assert sum(found["by_category"].values()) == found["bytes"] if "bytes" in found else True
    for category, bytes_ in own.items():
        assert found["by_category"].get(category, 0) == pytest.approx(bytes_, rel=0.01), category


def says(run):
    assert run.code == 0, run.stderr
    return json.loads(run.stdout.strip().split("\n")[-1])


@pytest.mark.parametrize("kind", AT_PEAK)
def test_at_the_peak(record, kind):
    run = record(SCRIPT, kind, "cuda")
    [peak] = [p for p in run.report()["peak"] if p["layer"] == "tensor"]
    equal(peak, says(run))


@pytest.mark.parametrize("kind", FAILING)
def test_at_a_failure(record, kind):
    run = record(SCRIPT, kind, "cuda")
    own = says(run)
    assert own.pop("failed")
    equal(max(run.report()["oom"], key=lambda o: o["time_s"]), own)


def test_outputs_kept_over_steps_are_reported(record):
    run = record(HERE / "keeps.py")
    own = says(run)
    [peak] = [p for p in run.report()["peak"] if p["layer"] == "tensor"]
    kept = sum(c["bytes"] for c in peak["categories"] if "kept for several steps" in c["evidence"])
    assert own["kept"] * 0.6 <= kept <= own["kept"]
    assert peak["by_category"]["parameters"] == pytest.approx(own["parameters"], rel=0.01)


FASTAI = """
import torch

class Optimizer:
    def __init__(self, params):
        self.params, self.state = list(params), {}

    def step(self):
        for p in self.params:
            state = self.state.setdefault(p, {})
            state["grad_avg"] = average_grad(p, **state)["grad_avg"]
            p.data.add_(state["grad_avg"], alpha=-0.1)

    def zero_grad(self):
        for p in self.params:
            p.grad = None

def average_grad(p, grad_avg=None):
    if grad_avg is None: grad_avg = torch.zeros_like(p.grad.data)
    grad_avg.mul_(0.9).add_(p.grad.data)
    return {"grad_avg": grad_avg}
"""
LEARNER = """
import sys
sys.path.insert(0, FOLDER)
import torch
from fastai.optimizer import Optimizer
net = torch.nn.Linear(1024, 1024, bias=False).cuda()
optimizer = Optimizer(net.parameters())
for step in range(20):
    net(torch.zeros(8, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_an_optimizer_that_is_not_pytorchs(record, tmp_path):
    package = tmp_path / "site-packages" / "fastai"
    package.mkdir(parents=True)
    (package / "optimizer.py").write_text(FASTAI)
    script = tmp_path / "learn.py"
    script.write_text(LEARNER.replace("FOLDER", repr(str(package.parent))))
    (peak,) = [p for p in record(script).report()["peak"] if p["layer"] == "tensor"]
    assert {c: peak["by_category"][c] for c in ("parameters", "gradients", "optimizer_state")} == \
        {"parameters": 4 << 20, "gradients": 4 << 20, "optimizer_state": 4 << 20}, peak["by_category"]
