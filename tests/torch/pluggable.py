"""A custom allocator instead of PyTorch's: every tensor is a cudaMalloc. pluggable.py LIBRARY prints, at each moment,
how many bytes its allocations have"""
import sys

import torch

MIB = 1 << 20
allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")
torch.cuda.memory.change_current_allocator(allocator)


def held(what, *tensors):
    torch.cuda.nvtx.mark(what)
    print("held", what, sum((t.untyped_storage().nbytes() + MIB - 1) // MIB * MIB for t in tensors), flush=True)


a = torch.zeros(100, device="cuda")
b = torch.zeros(3 * MIB + 1, dtype=torch.uint8, device="cuda")
held("two", a, b)
c = a + 1
d = torch.nn.functional.relu(b.view(-1)[:2 * MIB].float())
held("four", a, b, c, d)
del a, b
held("last", c, d)
