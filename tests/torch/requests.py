"""Requests of unusual sizes in every way that PyTorch's allocator supports; prints what PyTorch's own history
states."""
import json
import random
import threading

import torch

devices = range(torch.cuda.device_count())
torch.cuda.memory._record_memory_history(max_entries=1 << 20, context=None, stacks="python")


def fill(device, seed, count, largest):
    dice, kept = random.Random(seed), []
    for number in range(count):
        size = dice.choice([1, 511, 512, 513, 1 << 20, (1 << 20) + 1, dice.randrange(1, 5000), dice.randrange(1, largest)])
        kept.append(torch.empty(size, dtype=torch.uint8, device=device))
        if len(kept) > 12:
            del kept[dice.randrange(len(kept))]


for device in devices:
    fill(f"cuda:{device}", device, 120, 30 << 20)
    side = torch.cuda.Stream(device)
    with torch.cuda.stream(side):
        torch.empty(4321, device=device)
        fill(f"cuda:{device}", 10 + device, 40, 3 << 20)
    crossing = torch.empty(777777, device=device)
    crossing.record_stream(side)
    del crossing

threads = [threading.Thread(target=fill, args=(f"cuda:{device}", 20 + device, 150, 5 << 20)) for device in devices for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]

graph, stale = torch.cuda.CUDAGraph(), torch.empty(1000, device="cuda:0")
with torch.cuda.graph(graph):
    inside = [torch.empty(size, dtype=torch.uint8, device="cuda:0") for size in (3, 70001, 5000001)]
del inside, graph

for device in devices:
    torch.cuda.reset_accumulated_memory_stats(device)
    fill(f"cuda:{device}", 30 + device, 60, 9 << 20)
torch.cuda.reset_peak_memory_stats()
big = []
try:
    while True:
        big.append(torch.empty((200 << 20) + len(big), dtype=torch.uint8, device="cuda:0"))
except torch.OutOfMemoryError:
    big = big[: len(big) // 2]
fill("cuda:0", 40, 40, 40 << 20)
torch.cuda.empty_cache()
fill("cuda:0", 41, 40, 40 << 20)
traces = torch.cuda.memory._snapshot()["device_traces"]
print(json.dumps({"alloc": [[[e["addr"], e["size"]] for e in trace if e["action"] == "alloc"] for trace in traces],
                  "retries": torch.cuda.memory_stats(0)["num_alloc_retries"]}))
