# measure: halve the batch
# falls: no
"""A batch too large; the advice halves it."""
import os
import torch
from torch import nn

BATCH = 30000 if "FOLLOW" in os.environ else 60000
net = nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(1024, 1024), nn.ReLU()))).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for step in range(6):
    loss = net(torch.randn(BATCH, 1024).to("cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
