# measure: before the next trial
"""A sweep whose results keep each model; the advice keeps numbers."""
import os
import torch
from torch import nn

FOLLOW = "FOLLOW" in os.environ


def trial(rate):
    model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(8))).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(4):
        loss = model(torch.randn(256, 2048, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item() if FOLLOW else (loss.item(), model, optimizer)


results = [trial(10.0 ** -n) for n in range(1, 14)]
