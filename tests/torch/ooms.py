"""Runs out of memory in the way that its first argument names; a second argument or a setting avoids it. For a GPU of 1
GiB."""
import contextlib
import sys

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20
how, options = sys.argv[1], sys.argv[2:]


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, width=512, depth=8):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if "checkpoint" in options else block(x)
        return x


def train(model, batches, width=512, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=1e-3, foreach="each" not in options)
    for batch in batches:
        if "early" in options:
            optimizer.zero_grad()
        x = torch.randn(batch, width).cuda()
        with torch.autocast("cuda", torch.bfloat16) if "autocast" in options else contextlib.nullcontext():
            loss = model(x).square().mean()
        if "early" not in options:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def capacity():
    train(Model().cuda(), [1024] * 3 + [8192])


def fragmentation():
    """Every second block of a segment is freed; then a larger one does not fit, although far more memory is free."""
    torch.empty(840 * MIB, dtype=torch.uint8, device="cuda")
    held = [torch.empty(60 * MIB, dtype=torch.uint8, device="cuda") for _ in range(14)]
    del held[:: 1 << 20 if "full" in options else 2]
    torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")


def forwards():
    model = Model().cuda()
    context = torch.no_grad() if "no_grad" in options else contextlib.nullcontext()
    with context:
        for batch in (1024, 8192):
            model(torch.randn(batch, 512).cuda())


def evaluate(model, batch):
    with torch.no_grad() if "no_grad" in options else contextlib.nullcontext():
        return model(torch.randn(batch, 512).cuda())


def evaluation():
    model = Model().cuda()
    train(model, [1024] * 5)
    evaluate(model, 8192)


def first_step():
    """Parameters and gradients fit, the optimizer's states do not."""
    train(Model(1024, 12).cuda(), [64] * 3, 1024)


def in_foreach():
    """The states fit, the temporaries of all parameters at once do not."""
    train(Model(1024, 6).cuda(), [64] * 3, 1024)


def kept_graph():
    model, kept = Model(256, 4).cuda(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    while True:
        loss = model(torch.randn(2048, 256).cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()
        kept.append(loss)


globals()[how]()
