"""Small programs that use GPU memory in different ways: `whatif_programs.py NAME [SETTINGS [SNAPSHOT]]` runs one, under
settings of PyTorch's allocator, writes PyTorch's own snapshot, and prints its own figures as JSON. An out-of-memory error that the program does not handle
ends it as it ends a script."""
import json
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

GPU = "cuda"
MIB = 1 << 20
programs = {}


def program(function):
    programs[function.__name__] = function
    return function


def buffer(size):
    return torch.empty(int(size), dtype=torch.uint8, device=GPU)


def train(model, optimizer, batches):
    for x in batches:
        model(x).float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def layers(width, count, **more):
    return nn.Sequential(*[nn.Sequential(nn.Linear(width, width, **more), nn.GELU()) for _ in range(count)]).to(GPU)


@program
def mlp():
    model = layers(1024, 6)
    train(model, torch.optim.AdamW(model.parameters()), (torch.randn(512, 1024, device=GPU) for _ in range(5)))


@program
def variable_batches():
    model = layers(768, 6)
    train(model, torch.optim.Adam(model.parameters()),
          (torch.randn(300 + 977 * step % 1500, 768, device=GPU) for step in range(12)))


@program
def optimizer_loop():
    model = layers(1024, 6)
    train(model, torch.optim.AdamW(model.parameters(), foreach=False),
          (torch.randn(256, 1024, device=GPU) for _ in range(4)))


@program
def sgd_momentum_half():
    model = layers(1536, 6).half()
    train(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
          (torch.randn(700 + 123 * step, 1536, device=GPU).half() for step in range(5)))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-1, -2)).softmax(-1)
        return x + self.out((scores @ v).transpose(1, 2).reshape(batch, length, width))


@program
def sequence_lengths():
    model = nn.Sequential(nn.Embedding(4000, 256), *[Attention(256, 4) for _ in range(3)]).to(GPU)
    train(model, torch.optim.AdamW(model.parameters()),
          (torch.zeros(4, 128 + 379 * step % 640, dtype=torch.long, device=GPU) for step in range(10)))


@program
def kv_cache_by_cat():
    kept = [[torch.empty(8, 16, 64, 64, device=GPU) for _ in range(2)] for _ in range(4)]
    for length in range(16, 32):
        for layer in kept:
            for i in range(2):
                layer[i] = torch.cat([layer[i], torch.empty(8, 16, 8, 64, device=GPU)], 2)
            (layer[0] * 2).sum()


@program
def streams_with_record_stream():
    side = torch.cuda.Stream()
    kept = []
    for step in range(16):
        x = buffer(6 * MIB + 300_000 * step)
        with torch.cuda.stream(side):
            y = buffer(3 * MIB + 200_000 * step)
            y[: 1000] = x[: 1000]
            x.record_stream(side)
            kept.append(y)
        del x
        if step % 4 == 3:
            side.synchronize()
            del kept[0]


@program
def checkpointing():
    blocks = nn.ModuleList([layers(768, 3) for _ in range(4)])
    optimizer = torch.optim.AdamW(blocks.parameters())
    for step in range(4):
        x = torch.randn(1200 + 200 * step, 768, device=GPU, requires_grad=True)
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=step % 2 == 0)
        x.mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def gan():
    generator, judge = layers(512, 4), layers(512, 4)
    first, second = (torch.optim.Adam(m.parameters()) for m in (generator, judge))
    for step in range(5):
        noise = torch.randn(1500 + 300 * step, 512, device=GPU)
        judge(generator(noise).detach()).mean().backward()
        second.step()
        second.zero_grad()
        judge(generator(noise)).mean().backward()
        first.step()
        first.zero_grad()


@program
def evaluation_between():
    model = layers(640, 6)
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(3):
        train(model, optimizer, (torch.randn(900, 640, device=GPU) for _ in range(3)))
        with torch.no_grad():
            results = [model(torch.randn(4000 + 500 * k, 640, device=GPU)) for k in range(4)]
            torch.cat(results).mean()
            del results


@program
def empties_the_cache():
    kept = []
    for step in range(12):
        parts = [buffer((1.2 + k * 0.9 + step * 0.35) * MIB) for k in range(12)]
        kept.append(parts[step])
        del parts
        if step % 3 == 2:
            torch.cuda.empty_cache()


@program
def retries_with_smaller_batch():
    model = layers(512, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    size = 6000
    for step in range(5):
        try:
            model(torch.randn(size, 512, device=GPU)).mean().backward()
        except torch.OutOfMemoryError:
            size //= 2
            continue
        optimizer.step()
        optimizer.zero_grad()
        size += 500


@program
def cuda_graph():
    model = layers(512, 3)
    x = torch.randn(2000, 512, device=GPU)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        y = model(x)
    for step in range(6):
        graph.replay()
        z = [buffer((3 + step) * MIB + k * 100_000) for k in range(4)]
        (y * 2).sum()
        del z


@program
def memory_pool():
    pool = torch.cuda.MemPool()
    kept = []
    for step in range(8):
        with torch.cuda.use_mem_pool(pool):
            kept.append(buffer((2 + step * 0.7) * MIB))
        x = [buffer((1.5 + step * 0.6) * MIB) for _ in range(5)]
        kept.append(x[step % 5])
        if step % 3 == 2:
            del kept[0]
        del x


@program
def small_and_large():
    kept = []
    for step in range(300):
        x = [buffer(700 + 3011 * (step * k) % 900_000) for k in range(6)]
        kept.append(x[step % 6])
        if step % 7 == 0:
            kept.append(buffer((1 + step * 13 % 17) * MIB))
        if step % 5 == 4:
            del kept[step % len(kept)]


@program
def fragmentation():
    kept = []
    for step in range(20):
        x = [buffer((4 + 1.37 * step + k) * MIB) for k in range(4)]
        kept.append(x.pop(step % 4))
        if step > 6:
            kept.pop(step % 5)


@program
def pinned_batches():
    model = layers(512, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(6):
        x = torch.randn(1100 + 333 * step, 512).pin_memory().to(GPU, non_blocking=True)
        train(model, optimizer, [x])
        x.mean().item()


@program
def frozen_with_adapters():
    frozen = nn.ModuleList([nn.Linear(1024, 1024).requires_grad_(False) for _ in range(8)]).to(GPU).bfloat16()
    down = nn.ModuleList([nn.Linear(1024, 8, bias=False) for _ in range(8)]).to(GPU).bfloat16()
    up = nn.ModuleList([nn.Linear(8, 1024, bias=False) for _ in range(8)]).to(GPU).bfloat16()
    optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters()])
    for step in range(4):
        x = torch.randn(1000 + 450 * step, 1024, device=GPU).bfloat16()
        for base, a, b in zip(frozen, down, up):
            x = nn.functional.relu(base(x) + b(a(x)))
        x.mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def lstm_cells():
    cell, head = nn.LSTMCell(256, 512).to(GPU), nn.Linear(512, 256).to(GPU)
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    for step in range(4):
        x, state, loss = torch.randn(12 + 4 * step, 256, 256, device=GPU), None, 0
        for t in range(x.shape[0]):
            state = cell(x[t], state)
            loss = loss + head(state[0]).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def convolutions():
    model = nn.Sequential(*[nn.Sequential(nn.Conv2d(3 if k == 0 else 32, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU())
                            for k in range(4)]).to(GPU)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1),
          (torch.randn(8, 3, 56 + 8 * (step % 4), 64, device=GPU) for step in range(6)))


@program
def dynamic_shapes():
    for step in range(60):
        x = torch.empty(64 + 7919 * step % 2048, 1000 + 104729 * step % 1500, device=GPU)
        y = [x * 2, x.half(), x[: x.shape[0] // 2].clone()]
        mask = torch.cat([y[0], y[2]])
        del x, y, mask


@program
def gradient_accumulation():
    model = layers(1024, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        for part in range(4):
            model(torch.randn(400 + 250 * part, 1024, device=GPU)).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@program
def mixed_precision():
    model = layers(1024, 5)
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(4):
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(torch.randn(900 + 333 * step, 1024, device=GPU)).float().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def model_swapped():
    for size in (6, 5, 7, 4):
        model = layers(1280, size)
        optimizer = torch.optim.AdamW(model.parameters())
        train(model, optimizer, (torch.randn(500, 1280, device=GPU) for _ in range(2)))
        del model, optimizer


def main():
    if len(sys.argv) > 2 and sys.argv[2]:
        torch.cuda.memory._set_allocator_settings(sys.argv[2])
    snapshot = sys.argv[3] if len(sys.argv) > 3 else None
    if snapshot:
        torch.cuda.memory._record_memory_history(stacks="python")
    fits = False
    try:
        programs[sys.argv[1]]()
        fits = True
    finally:
        if snapshot:
            torch.cuda.memory._dump_snapshot(snapshot)
        stats = torch.cuda.memory_stats()
        print(json.dumps({"fits": fits, "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
                          "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
                          "ooms": stats["num_ooms"]}))


if __name__ == "__main__":
    main()
