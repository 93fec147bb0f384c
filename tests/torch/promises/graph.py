# measure: store `.item\(\)`
"""Losses with their graphs in a list; the advice stores numbers."""
import os
import torch
from torch import nn

FOLLOW, losses = "FOLLOW" in os.environ, []
net = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for step in range(200):
    x = torch.randn(4096, 1024, device="cuda")
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    again = net(x).square().mean()
    losses.append(again.item() if FOLLOW else again)
