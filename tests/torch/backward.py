"""What autograd's own threads do, and who called backward():  backward.py KIND"""
import sys
import threading

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

kind, dev = sys.argv[1], "cuda"
MIB = 1 << 20


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g.new_empty(g.shape) + 1  # mark: own


def model():
    return nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512)).to(dev)


def plain():
    m = model()
    x = torch.randn(64, 512, device=dev)
    for _ in range(3):
        loss = m(x).square().mean()
        loss.backward()  # mark: plain
        m.zero_grad()


def two_lines():
    a, b = model(), model()
    x = torch.randn(64, 512, device=dev)
    for _ in range(3):
        a(x).square().mean().backward()  # mark: first
        b(a(x)).square().mean().backward()  # mark: second
    assert a[0].weight.grad is not None


def grads():
    m = model()
    x = torch.randn(64, 512, device=dev)
    return torch.autograd.grad(m(x).sum(), list(m.parameters()))  # mark: grad


def given():
    m = model()
    y = m(torch.randn(64, 512, device=dev))
    y.backward(torch.ones_like(y))  # mark: given
    return m


def custom():
    m = model()
    Twice.apply(m(torch.randn(64, 512, device=dev))).sum().backward()  # mark: custom
    return m


def again(reentrant):
    m = model()
    x = torch.randn(64, 512, device=dev, requires_grad=True)
    checkpoint(m, x, use_reentrant=reentrant).sum().backward()  # mark: again
    return m


def failing():
    emb = nn.Embedding(100000, 512, device=dev)
    y = emb(torch.arange(8, device=dev)).square().sum()
    filler = torch.empty(torch.cuda.mem_get_info()[0] - 30 * MIB, dtype=torch.uint8, device=dev)
    y.backward()  # mark: failing
    del filler


def hooked():
    m = model()
    y = m(torch.randn(64, 512, device=dev))
    y.register_hook(lambda g: g * g.abs().max().item())  # mark: hook
    y.sum().backward()  # mark: hooked
    return m


def threads():
    """One waits in its backward() until the other is in its own."""
    make, inside = torch.autograd._make_grads, threading.Semaphore(0)

    def noting(*args, **more):
        made = make(*args, **more)
        inside.release()
        return made

    def wait(g):
        inside.acquire(timeout=20)
        inside.acquire(timeout=20)
        inside.release(2)
        return g

    def one():
        m = model()
        y = m(torch.randn(64, 512, device=dev))
        y.register_hook(wait)
        y.sum().backward()  # mark: both
    torch.autograd._make_grads = noting
    both = [threading.Thread(target=one) for _ in range(2)]
    for t in both:
        t.start()
    for t in both:
        t.join()


kept = {"plain": plain, "two_lines": two_lines, "grad": grads, "given": given, "custom": custom,
        "ckpt": lambda: again(False), "ckpt_re": lambda: again(True), "failing": failing, "hooked": hooked,
        "threads": threads}[kind]()
