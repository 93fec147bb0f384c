"""A training loop that gpuspy attaches to. For each line of input, so many steps, or fill: until memory runs out, or
cap: reserve at most half of the memory, and reset the statistics, or empty: empty the cache, then a step, or history:
record the allocator's history; then what PyTorch counted."""
import json
import sys
import threading

import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8)).cuda()
optimizer = torch.optim.Adam(model.parameters())
kept = []


def step(rows):
    loss = model(torch.randn(rows, 64, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def aside():
    for _ in range(20):
        torch.ones(1000, device="cuda").mul(2)


def work(steps):
    beside = threading.Thread(target=aside)
    beside.start()
    for i in range(steps):
        kept.append(step(32 + i % 7).detach())
    kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))  # in a separate segment
    beside.join()


def fill():
    try:
        while True:
            kept.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        pass


work(3)
for line in sys.stdin:
    if line == "fill\n":
        fill()
    elif line == "cap\n":
        torch.cuda.set_per_process_memory_fraction(0.5)
        torch.cuda.reset_accumulated_memory_stats()
    elif line == "empty\n":
        torch.cuda.empty_cache()
        work(1)
    elif line == "history\n":
        torch.cuda.memory._record_memory_history()
    else:
        work(int(line))
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print(json.dumps({"made": stats["allocation.all.allocated"], "freed": stats["allocation.all.freed"],
                      "bytes": stats["allocated_bytes.all.current"], "live": stats["allocation.all.current"], "segments": stats["segment.all.allocated"],
                      "mapped": stats["reserved_bytes.all.allocated"]}), flush=True)
print("end")
