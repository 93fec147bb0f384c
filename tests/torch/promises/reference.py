# measure: drop the reference
"""Outputs in a list; the advice copies them to the host."""
import os
import torch
from torch import nn

FOLLOW, kept = "FOLLOW" in os.environ, []
net = nn.Linear(1024, 1024).cuda()
with torch.inference_mode():
    for batch in range(600):
        output = net(torch.randn(2048, 1024, device="cuda"))
        kept.append(output.cpu() if FOLLOW else output)
