"""A server and a trainer that share a GPU, as in RL: sleeping.py LIBRARY [oom]. The server's weights and cache sleep while
the trainer computes. Prints the memory in use, without CUDA's context, at the end of each phase; with `oom` the trainer
needs more than the sleeping server leaves."""
import ctypes
import sys
from contextlib import contextmanager

import torch
from torch import nn

library = ctypes.CDLL(sys.argv[1])
allocator = torch.cuda.memory.CUDAPluggableAllocator(sys.argv[1], "own_malloc", "own_free")
pool = torch.cuda.MemPool(allocator._allocator)


@contextmanager
def phase(name):
    torch.cuda.nvtx.range_push(name)
    yield
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    print("phase", name, total - free, torch.cuda.memory_allocated(), flush=True)
    torch.cuda.nvtx.range_pop()


def allocate_kv_cache(n):
    return [torch.zeros(n, dtype=torch.uint8, device="cuda") for _ in range(2)]


with phase("start"):
    with torch.cuda.use_mem_pool(pool):
        server = nn.Sequential(*[nn.Linear(2048, 2048, device="cuda") for _ in range(4)])
        cache = allocate_kv_cache(256 << 20)
    actor = nn.Sequential(*[nn.Linear(2048, 2048, device="cuda") for _ in range(2)])
    adam = torch.optim.AdamW(actor.parameters())
for _ in range(3):
    with phase("rollout"), torch.no_grad():
        server(torch.ones(8, 2048, device="cuda"))
    with phase("sleep"):
        library.own_sleep()
    with phase("train"):
        actor(torch.ones(2048, 2048, device="cuda")).sum().backward()
        adam.step()
        adam.zero_grad()
        if "oom" in sys.argv:
            kept = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(20)]
        torch.cuda.empty_cache()
    with phase("wake"):
        assert library.own_wake() == 0
