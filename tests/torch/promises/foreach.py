# measure: foreach=False
# falls: no
"""The optimizer's temporaries for all parameters at once do not fit; the advice is foreach=False."""
import os
import torch
from torch import nn

net = nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(12))).cuda()
optimizer = torch.optim.Adam(net.parameters(), foreach=False if "FOLLOW" in os.environ else None)
for step in range(3):
    loss = net(torch.randn(64, 4096, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
