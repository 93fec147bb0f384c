"""A real PyTorch training run on the GPU. Prints PyTorch's own counters at the end. torch_train.py
[plain|amp|checkpoint|loader|graph|item|oom|leak]"""
import json
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 8, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self, width=512, depth=6, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 1000)

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x.mean(1))


def batches(how, steps):
    if how != "loader":
        for _ in range(steps):
            yield torch.randn(32, 128, 512), torch.randint(0, 1000, (32,))
        return
    data = torch.utils.data.TensorDataset(torch.randn(steps * 32, 128, 512), torch.randint(0, 1000, (steps * 32,)))
    yield from torch.utils.data.DataLoader(data, batch_size=32, num_workers=2, pin_memory=True)


def train(how, steps=20):
    torch.manual_seed(0)
    model = Model(recompute=how == "checkpoint").cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    kept = []
    for inputs, labels in batches(how, steps):
        inputs, labels = inputs.cuda(non_blocking=True), labels.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=how == "amp"):
            loss = nn.functional.cross_entropy(model(inputs).float(), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if how == "item":
            loss.item()  # the line that waits
        if how == "leak":
            kept.append(loss)  # the line that keeps the graph
            kept.append(torch.empty(8 << 20, device="cuda"))
    return model


def replay():
    """Capture and replay: uses a private pool."""
    static = torch.randn(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            (static @ static).relu()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (static @ static).relu()
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    return graph, out


def exhaust():
    held = []
    torch.cuda.set_per_process_memory_fraction(1.0)
    while True:
        held.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))  # the line that fails


def main():
    how = sys.argv[1] if len(sys.argv) > 1 else "plain"
    if how == "oom":
        exhaust()
    kept = replay() if how == "graph" else train(how)
    torch.cuda.synchronize()
    torch.cuda.mem_get_info()
    stats = torch.cuda.memory_stats()
    print(json.dumps({
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "memory_allocated": torch.cuda.memory_allocated(),
        "memory_reserved": torch.cuda.memory_reserved(),
        "alloc_retries": stats.get("num_alloc_retries", 0),
        "allocations": stats.get("allocation.all.allocated", 0),
        "backend": torch.cuda.get_allocator_backend(),
        "torch": torch.__version__,
    }), flush=True)
    del kept


main()
