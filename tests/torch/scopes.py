"""Ranges around parts of a training loop; prints PyTorch's own peak within each visit of a range: a line of JSON per
range."""
import json
import sys
from pathlib import Path

import torch

for folder in "python", "pytest-gpuspy":
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / folder))
import gpuspy  # noqa: E402

most = {}


class Measured:
    """A range by gpuspy or by NVTX itself, with PyTorch's statistics for the same time."""

    def __init__(self, name, nvtx=False):
        self.name, self.range = name, torch.cuda.nvtx.range(name) if nvtx else gpuspy.scope(name)

    def __enter__(self):
        torch.cuda.reset_peak_memory_stats()
        self.entry = torch.cuda.memory_allocated()
        self.range.__enter__()

    def __exit__(self, *what):
        self.range.__exit__(*what)
        found = {"peak": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(), "entry": self.entry,
                 "exit": torch.cuda.memory_allocated()}
        if self.name not in most or found["peak"] > most[self.name]["peak"]:
            most[self.name] = found


with Measured("load"):  # before the first CUDA call
    model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(6)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for batch in 64, 512, 128:
    with Measured("forward", nvtx=True):
        loss = model(torch.randn(batch, 256, device="cuda")).square().mean()
    with Measured("backward"):
        loss.backward()
    with Measured("optimizer", nvtx=True):
        optimizer.step()
        optimizer.zero_grad()
    del loss
print(json.dumps(most))
