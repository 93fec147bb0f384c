# measure: keep only its text
"""Exceptions kept in a list keep the tensors of their frames; the advice keeps their texts."""
import os
import torch
from torch import nn

FOLLOW, errors = "FOLLOW" in os.environ, []
net = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()


def check(i):
    features = torch.randn(2048, 1024, device="cuda")
    if net(features).shape[0] and i % 2:
        raise ValueError(f"sample {i}: no label")


with torch.inference_mode():
    for i in range(1200):
        try:
            check(i)
        except ValueError as error:
            errors.append(str(error) if FOLLOW else error)
