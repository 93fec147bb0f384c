# measure: requires_grad_\(False\)
"""A teacher's parameters get gradients, and no optimizer frees them; the advice is requires_grad_(False)."""
import os
import torch
from torch import nn


def network(layers):
    return nn.Sequential(*(layer for _ in range(layers) for layer in (nn.Linear(2048, 2048), nn.ReLU()))).cuda()


teacher, student = network(24), network(4)
if "FOLLOW" in os.environ:
    teacher.requires_grad_(False)
optimizer = torch.optim.Adam(student.parameters())
for step in range(20):
    x = torch.randn(10240, 2048, device="cuda")
    loss = (teacher(x) - student(x)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
