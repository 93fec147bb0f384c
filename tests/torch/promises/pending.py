# measure: loss / N\)\.backward
# enough: unknown
"""Losses are summed before one backward(); the advice calls it for each part."""
import os
import torch
from torch import nn

FOLLOW, N = "FOLLOW" in os.environ, 60
net = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(6))).cuda()
optimizer, total = torch.optim.Adam(net.parameters()), 0
for batch in range(N):
    loss = net(torch.randn(4096, 1024, device="cuda")).square().mean()
    if FOLLOW:
        (loss / N).backward()
    else:
        total = total + loss
if not FOLLOW:
    total.backward()
optimizer.step()
