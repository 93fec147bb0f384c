# measure: inside the except block
# falls: no
"""The smaller batch is tried inside the except block; the advice is to try after it."""
import os
import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(12))).cuda()


def step(batch):
    net(torch.randn(batch, 2048, device="cuda")).square().mean().backward()


try:
    step(40000)
except torch.cuda.OutOfMemoryError:
    if "FOLLOW" not in os.environ:
        step(19000)
step(19000)
