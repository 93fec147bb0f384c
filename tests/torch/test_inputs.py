"""Which data an OOM's advice halves: a batch, or, if the loop passes the same data each time, a part of it."""
import pytest

NET = """
import torch
from torch import nn
net = nn.Sequential(*[nn.Sequential(nn.Linear(512, 2048), nn.GELU(), nn.Linear(2048, 512)) for _ in range(6)]).cuda()
optimizer = torch.optim.Adam(net.parameters())
def step(x):
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
REPEATED = {
    "at the top": "x = torch.randn(6000, 512, device='cuda')\nfor epoch in range(9):\n    step(x)\n",
    "in a function": "def main(device):\n    points = torch.randn(6000, 512)\n    points = points.to(device)\n    for epoch in range(9):\n"
                     "        out = net(points)\n        out.mean().backward()\nmain('cuda')\n",
    "of an object": "class Data: pass\ndata = Data()\ndata.x = torch.randn(6000, 512).cuda()\ndef train():\n    net.train()\n"
                    "    net(data.x).mean().backward()\nfor epoch in range(9):\n    train()\n",
    "of an object that is made on the GPU": "class Data:\n    def __init__(self, x): self.x = x\n    def to(self, device):\n"
                                            "        self.x = self.x.to(device)\n        return self\n"
                                            "data = Data(x=torch.randn(6000, 512)).to('cuda')\nfor epoch in range(9):\n"
                                            "    out = net(data.x)\n    out.mean().backward()\n",
    "in backward": "pts = torch.randn(3300, 512, device='cuda', requires_grad=True)\nfor i in range(9):\n    u = net(pts)\n"
                   "    g, = torch.autograd.grad(u.sum(), pts, create_graph=True)\n    g.square().mean().backward()\n",
}
BATCHES = {
    "made by a function": "def batch():\n    return torch.randn(6000, 512, device='cuda')\nfor epoch in range(9):\n    x = batch()\n    step(x)\n",
    "made by the statement": "device = torch.device('cuda')\nfor epoch in range(9):\n    step(torch.randn(6000, 512).to(device))\n",
    "of a loader": "for x in torch.randn(60000, 512).split(6000):\n    x = x.cuda()\n    step(x)\n",
    "a slice": "data = torch.randn(20000, 512, device='cuda')\nfor i in range(0, 20000, 6000):\n    step(data[i:i + 6000])\n",
    "by index": "data = torch.randn(20000, 512).cuda()\nfor index in torch.randperm(20000).split(6000):\n    x = data[index.cuda()]\n    step(x)\n",
    "of a layer": "x = torch.randn(6000, 512, device='cuda')\ndef forward(h):\n    for block in net:\n        h = h + block(h)\n    return h\n"
                  "for epoch in range(9):\n    h = torch.randn(6000, 512, device='cuda')\n    forward(h).mean().backward()\n",
    "an iterator": "batches = iter([torch.randn(6000, 512, device='cuda')])\nwhile True:\n    step(next(batches))\n",
    "in no loop": "x = torch.randn(6000, 512, device='cuda')\nstep(x)\n",
    "of an attribute": "class Trainer:\n    def fit(self):\n        for epoch in range(9):\n            self.load()\n            step(self.batch)\n"
                       "    def load(self):\n        self.batch = torch.randn(6000, 512, device='cuda')\nTrainer().fit()\n",
}


@pytest.mark.parametrize("name", [*REPEATED, *BATCHES])
def test_a_batch_is_halved_only_if_there_is_one(once, tmp_path, name):
    script = tmp_path / "train.py"
    script.write_text(NET + (REPEATED | BATCHES)[name])
    done = once("inputs " + name, script, SIMCUDA_MEMORY="1GiB")
    oom = done.report()["oom"][-1]
    assert oom["cause"] == "capacity", oom["verdict"]
    texts = " ".join(m["text"] for m in oom["measures"])
    assert ("a part of the batch, graph, matrix" in texts) == (name in REPEATED), texts
    assert ("halve the batch" in texts) == (name in BATCHES), texts

POINTS = """
import torch
from torch import nn
class Points:
    def __init__(self):
        self.xyz = nn.Parameter(torch.randn(20000, 60, device='cuda'))
        self.optimizer = torch.optim.Adam([self.xyz])
    def densify(self):
"""
LOOP = """
points = Points()
for i in range(3000):
    points.xyz.sin().mean().backward()
    points.optimizer.step()
    points.optimizer.zero_grad()
    if i % 10 == 9:
        points.densify()
"""
WIDENED = {
    "a new optimizer": "        self.xyz = nn.Parameter(torch.cat([self.xyz.detach(), self.xyz.detach()[:len(self.xyz) // 10]]))\n"
                       "        self.optimizer = torch.optim.Adam([self.xyz])\n",
    "moved states": "        old, more = self.xyz, self.xyz.detach()[:3000]\n        state = self.optimizer.state.pop(old)\n"
                    "        grown = torch.cat([old.detach(), more])\n        self.xyz = nn.Parameter(grown)\n"
                    "        for key in 'exp_avg', 'exp_avg_sq':\n            state[key] = torch.cat([state[key], torch.zeros_like(more)])\n"
                    "        self.optimizer.state[self.xyz] = state\n        self.optimizer.param_groups[0]['params'] = [self.xyz]\n",
}


@pytest.mark.parametrize("name", WIDENED)
def test_parameters_that_the_program_adds_are_bounded(once, tmp_path, name):
    script = tmp_path / "train.py"
    script.write_text(POINTS + WIDENED[name] + LOOP)
    oom, = (o for o in once("widened " + name, script, SIMCUDA_MEMORY="1GiB").report()["oom"] if o["fatal"])
    texts = [m["text"] for m in oom["measures"]]
    assert "bound the number of parameters" in texts[0] and oom["measures"][0]["frees_bytes"] > oom["live_bytes"] / 5, texts
    assert "batch" not in " ".join(texts), texts


@pytest.mark.parametrize("trains", [False, True])
def test_weights_that_do_not_fit(once, tmp_path, trains):
    """Only the optimizer of a training needs their full precision."""
    script = tmp_path / "serve.py"
    script.write_text("import torch\nmodels = [torch.nn.Linear(4096, 4096).cuda() for name in range(20)]\n" +
                      "optimizer = torch.optim.SGD([p for m in models for p in m.parameters()])\n" * trains +
                      "for m in models:\n    m(torch.randn(1, 4096).cuda())\n")
    oom = once(f"weights {trains}", script, SIMCUDA_MEMORY="1GiB").report()["oom"][-1]
    assert oom["cause"] == "capacity", oom["verdict"]
    assert ("load the weights in 16 bits" in oom["advice"][0]) == (not trains), oom["advice"]
    assert ("share the model (FSDP)" in oom["advice"][0]) == trains, oom["advice"]
