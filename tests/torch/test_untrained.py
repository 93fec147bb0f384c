"""The forward pass of a model that is not trained needs no graph, unless a gradient flows through it."""
import pytest

HEAD = """
import torch
from torch import nn
def net(width, depth):
    return nn.Sequential(*[nn.Sequential(nn.Linear(256, width), nn.GELU(), nn.Linear(width, 256)) for _ in range(depth)]).cuda()
student = net(512, 2)
optimizer = torch.optim.SGD(student.parameters(), lr=.1)
"""
LOOP = """
for step in range(9):
    x = torch.randn(6000, 256, device='cuda')
    optimizer.zero_grad()
    compute(x).backward()
    optimizer.step()
"""
UNTRAINED = {
    "in evaluation mode": "big = net(2048, 6).eval()\ndef compute(x):\n    target = big(x)\n    return (student(x) - target).square().mean()\n",
    "in evaluation mode later": "big = net(2048, 6)\nbig.requires_grad_(True)\nbig.eval()\ndef compute(x):\n    target = big(x)\n"
                                "    return (student(x) - target).square().mean()\n",
    "by its name": "teacher = net(2048, 6)\ndef compute(x):\n    target = teacher(x)\n    return (student(x) - target).square().mean()\n",
    "of an object": "class Losses:\n    def __init__(self, model):\n        self.expert = model\n        self.expert.eval()\n    def __call__(self, x):\n"
                    "        target = self.expert(x)\n        return (student(x) - target).square().mean()\ncompute = Losses(net(2048, 6))\n",
}
TRAINED = {
    "a gradient flows through it": "vgg = net(2048, 6).eval()\ndef compute(x):\n    fake = student(x)\n    return vgg(fake).square().mean()\n",
    "in one statement": "vgg = net(2048, 6).eval()\ndef compute(x):\n    return vgg(student(x)).square().mean()\n",
    "evaluated at times": "other = net(2048, 6)\nother.eval()\nother.train()\ndef compute(x):\n    return (other(x) - student(x)).square().mean()\n",
    "by named parameters": "big = net(2048, 6)\noptimizer = torch.optim.SGD([p for _, p in big.named_parameters()], lr=.1)\nbig.eval()\n"
                           "def compute(x):\n    return big(x).square().mean()\n",
    "by an optimizer of a function": "def make_optimizer(model):\n    return torch.optim.SGD(model.parameters(), lr=.1)\nbig = net(2048, 6)\n"
                                     "big.eval()\noptimizer = make_optimizer(big)\ndef compute(x):\n    return big(x).square().mean()\n",
    "by another name": "def evaluate(model):\n    model.eval()\n    with torch.no_grad():\n        return model(torch.ones(1, 256).cuda())\n"
                       "def loss_of(model, x):\n    return model(x).square().mean()\nbig = net(2048, 6)\n"
                       "optimizer = torch.optim.SGD(big.parameters(), lr=.1)\ndef compute(x):\n    return loss_of(big, x)\n",
    "in a list": "teacher = net(2048, 6)\nmodels = [student, teacher]\noptimizer = torch.optim.SGD([p for m in models for p in m.parameters()], lr=.1)\n"
                 "def compute(x):\n    target = teacher(x)\n    return (student(x) - target).square().mean()\n",
    "evaluated if asked": "def make_optimizer(models):\n    return torch.optim.SGD(models[0].parameters(), lr=.1)\nbig = net(2048, 6)\nwith_test = False\n"
                          "if with_test:\n    big.eval()\noptimizer = make_optimizer([big])\ndef compute(x):\n    return big(x).square().mean()\n",
    "its batch norms are frozen": "big = net(2048, 6)\nbig.eval()\noptimizer = torch.optim.SGD(big.parameters(), lr=.1)\n"
                                  "def compute(x):\n    return big(x).square().mean()\n",
}


@pytest.mark.parametrize("name", [*UNTRAINED, *TRAINED])
def test_no_graph_for_a_model_that_is_not_trained(once, tmp_path, name):
    script = tmp_path / "distill.py"
    script.write_text(HEAD + (UNTRAINED | TRAINED)[name] + LOOP)
    oom = once("untrained " + name, script, SIMCUDA_MEMORY="1GiB").report()["oom"][-1]
    first = oom["measures"][0]
    assert oom["cause"] == "capacity", oom["verdict"]
    assert any("that no optimizer trains" in m["text"] for m in oom["measures"]) == (name in UNTRAINED), oom["advice"]
    if name in UNTRAINED:
        assert "torch.no_grad()" in first["text"] and first["frees_bytes"] > oom["live_bytes"] / 2, first


def test_what_it_promises(once, tmp_path):
    script = tmp_path / "distill.py"
    script.write_text(HEAD + UNTRAINED["by its name"].replace("    target = teacher(x)", "    with torch.no_grad():\n        target = teacher(x)") + LOOP)
    assert once("untrained followed", script, SIMCUDA_MEMORY="1GiB").code == 0
