"""Loops that end only by values which a simulated GPU does not compute: each function is one, its line is marked. Of
several names, each runs in a fork, and its exit status is printed: PyTorch is imported once."""
import itertools
import os
import sys

import torch

d = "cuda"


def converge():
    x = torch.randn(100, device=d)
    converged = False
    while not converged:  # the loop
        y = x * 0.5
        converged = torch.allclose(x, y)
        x = y


def accuracy():
    m = torch.nn.Linear(10, 2).to(d)
    o = torch.optim.SGD(m.parameters(), 0.1)
    x, y = torch.randn(64, 10, device=d), torch.ones(64, dtype=torch.long, device=d)
    acc = 0.0
    epoch = 0
    while acc < 0.99:  # the loop
        o.zero_grad()
        out = m(x)
        torch.nn.functional.cross_entropy(out, y).backward()
        o.step()
        acc = (out.argmax(1) == y).float().mean().item()
        epoch += 1


def collect():
    n = 0
    while n < 1000:  # the loop
        mask = torch.rand(100, device=d) > 0.5
        n += mask.sum().item()


def reject():
    def sample():
        while True:  # the loop
            x = torch.rand(1, device=d)
            if (x > 0.5).item():
                return x
    return [sample() for _ in range(10)]


def generate():
    ids = torch.zeros(2, 4, dtype=torch.long, device=d)
    unfinished = torch.ones(2, dtype=torch.long, device=d)
    while True:  # the loop
        logits = torch.randn(2, 50, device=d)
        ids = torch.cat([ids, logits.argmax(-1)[:, None]], 1)
        unfinished = unfinished & ~torch.full((2,), ids.shape[1] >= 24, device=d)
        if unfinished.max() == 0:
            break


def listed():
    out = []
    while len(out) < 100:  # the loop
        x = torch.rand(100, device=d)
        out.extend(x[x > 0.5].tolist())


def counted():
    for i in itertools.count():  # the loop
        x = torch.rand(10, device=d)
        if x.max() > 0.5:
            break


def inner():
    done = torch.zeros(4, dtype=torch.bool, device=d)
    t = 0
    while not done.all():  # the loop
        for k in range(10):
            z = torch.rand(4, device=d).sum().item()
        t += 1


class Search:
    def __init__(self):
        self.done = torch.zeros(3, dtype=torch.bool, device=d)

    @property
    def is_done(self):
        return bool(self.done.all())

    def run(self):
        while not self.is_done:  # the loop
            self.done = self.done | (torch.rand(3, device=d) > 0.9)


def search():
    Search().run()


def grows():
    kept = []
    ids = torch.zeros(2, 4, device=d)
    while not bool((ids > 0).all()):  # the loop
        kept.append(torch.empty(16 << 20, device=d))
        ids = torch.rand(2, 4, device=d)


names = sys.argv[1:]
for name in names:
    child = os.fork() if len(names) > 1 else 0
    if child == 0:
        globals()[name]()
        print("ended")
        break
    print(name, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
