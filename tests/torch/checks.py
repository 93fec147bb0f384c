"""Loops that keep what they should not, and loops that only seem to: `checks.py NAME STEPS`."""
import sys

import torch
from torch import nn

dev = torch.device("cuda")


def network(width=256):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 8)).to(dev)


def train(steps, each, net=None):
    net = net or network()
    opt = torch.optim.AdamW(net.parameters())
    for i in range(steps):
        x = torch.randn(16, 256, device=dev)
        opt.zero_grad(set_to_none=True)
        out = net(x)
        loss = out.square().mean()
        loss.backward()
        opt.step()
        each(i, net, out, loss)


kept, total, average = [], 0, {}


def clean(i, net, out, loss):
    pass


def outputs(i, net, out, loss):
    kept.append(out)  # leak


def losses(i, net, out, loss):
    global total
    total = total + net(torch.randn(16, 256, device=dev)).square().mean()  # leak


def copies(i, net, out, loss):
    kept.append({k: v.clone() for k, v in net.state_dict().items()})  # leak


def ema(i, net, out, loss):
    for k, v in net.state_dict().items():
        average[k] = v.clone() if k not in average else average[k].mul(0.9).add(v, alpha=0.1)


def window(i, net, out, loss):
    kept.append(out.detach())
    del kept[:-8]


def cache(i, net, out, loss):
    if i % 5 not in average:
        average[i % 5] = torch.zeros(1 << 18, device=dev)


def late(i, net, out, loss):
    if i == 20:
        average["late"] = torch.zeros(1 << 20, device=dev)


def epochs(i, net, out, loss):
    if i % 10 == 9:
        with torch.no_grad():
            average["best"] = torch.stack([net(torch.randn(64, 256, device=dev)).mean() for _ in range(5)]).mean()


def ensemble(steps):
    """The members predict together, so they stay, with their gradients."""
    members = []
    for _ in range(steps):
        member = network(64)
        opt = torch.optim.Adam(member.parameters())
        for _ in range(5):
            opt.zero_grad()
            member(torch.randn(16, 64, device=dev)).square().mean().backward()
            opt.step()
        members.append(member)
    with torch.no_grad():
        return torch.stack([member(torch.randn(16, 64, device=dev)) for member in members]).mean(0)


def infer(steps):
    net = network().eval()
    with torch.no_grad():
        return [net(torch.randn(16, 256, device=dev)).cpu() for _ in range(steps)]


if __name__ == "__main__":
    name, steps = sys.argv[1], int(sys.argv[2])
    globals()[name](steps) if name in ("infer", "ensemble") else train(steps, globals()[name])
