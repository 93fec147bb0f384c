# measure: set_per_process_memory_fraction
# falls: no
"""Half of the GPU is allowed; the advice drops the limit."""
import os
import torch
from torch import nn

if "FOLLOW" not in os.environ:
    torch.cuda.set_per_process_memory_fraction(0.5)
net = nn.Sequential(*[m for _ in range(12) for m in (nn.Linear(1024, 1024), nn.ReLU())]).cuda()
optimizer = torch.optim.Adam(net.parameters())
for size in [512] * 20 + [45000]:
    loss = net(torch.randn(size, 1024, device="cuda")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
