# measure: torch.no_grad\(\)` around
"""A validation loop sums losses with their graphs; the advice is no_grad()."""
import contextlib
import os
import torch
from torch import nn

FOLLOW = "FOLLOW" in os.environ


def validate(net):
    total = 0
    with torch.no_grad() if FOLLOW else contextlib.nullcontext():
        for batch in range(120):
            x = torch.randn(4096, 1024, device="cuda")
            total = total + nn.functional.mse_loss(net(x), x)
    return total


net = nn.Sequential(*(layer for _ in range(6) for layer in (nn.Linear(1024, 1024), nn.ReLU()))).cuda()
optimizer = torch.optim.Adam(net.parameters())
for epoch in range(2):
    for step in range(6):
        loss = net(torch.randn(512, 1024, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    validate(net)
