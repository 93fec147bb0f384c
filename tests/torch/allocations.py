"""Programs that use PyTorch's allocator in different ways; prints the peak of reserved memory. allocations.py NAME."""
import os
import random
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

device = "cuda"


def mib(size, **more):
    return torch.empty(int(size * (1 << 20)), dtype=torch.uint8, device=device, **more)


def train(model, batches, optimizer=None, loss=lambda y: y.square().mean()):
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    for x in batches:
        loss(model(x)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield


def run(steps):
    for _ in steps:
        pass


def mlp(width=384, depth=8):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(depth)]).to(device)


def varying():
    """Batch sizes vary, and buffers stay."""
    kept = []
    batches = (torch.randn(120 + 61 * step % 500, 384, device=device) for step in range(16))
    for step, _ in enumerate(train(mlp(), batches)):
        spikes = [mib((k * 350 + 700 + step * 53) / 1024) for k in range(9)]
        kept.append(spikes[step % 9])
        del spikes
        if step == 9:
            torch.cuda.empty_cache()


class Block(nn.Module):
    def __init__(self, width, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        mixed = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(x)))


class Transformer(nn.Module):
    def __init__(self, width=256, depth=4, vocabulary=3000, saves=False):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, vocabulary)
        self.blocks, self.saves = nn.ModuleList(Block(width) for _ in range(depth)), saves

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.saves else block(x)
        return self.head(x)


def tokens(lengths, batch=4):
    return (torch.zeros(batch, length, dtype=torch.int64, device=device) for length in lengths)


def transformer():
    run(train(Transformer().to(device), tokens([128] * 5)))


def lengths():
    run(train(Transformer(depth=3).to(device), tokens([64, 200, 37, 150, 260, 90, 255, 20, 310])))


def checkpointing():
    run(train(Transformer(depth=6, saves=True).to(device), tokens([192, 256, 128, 256])))


def cache():
    """A key-value cache that grows by torch.cat."""
    layers = [[torch.zeros(2, 8, 40, 64, device=device)] * 2 for _ in range(6)]
    for _ in range(60):
        for layer, pair in enumerate(layers):
            layers[layer] = [torch.cat([old, torch.zeros(2, 8, 7, 64, device=device)], 2) for old in pair]
            scores = torch.zeros(2, 8, 1, 64, device=device) @ layers[layer][0].transpose(-1, -2)
            scores.softmax(-1) @ layers[layer][1]


def streams():
    side, kept = torch.cuda.Stream(), []
    for step in range(20):
        x = mib(3 + step % 5)
        with torch.cuda.stream(side):
            side.wait_stream(torch.cuda.current_stream())
            y = [mib(1.5 + k * 0.7 + step * 0.1) for k in range(4)]
            kept.append(y[step % 4])
        del y
        z = mib(0.3 + step * 0.05)
        if step % 4 == 3:
            torch.cuda.synchronize()
            kept = kept[2:]
        del x, z


def recorded_streams():
    side = torch.cuda.Stream()
    for step in range(20):
        x = mib(5 + step % 7)
        x.record_stream(side)
        with torch.cuda.stream(side):
            y = mib(2 + step % 3)
        y.record_stream(torch.cuda.current_stream())
        torch.cuda.synchronize()
        del x, y
        torch.cuda.synchronize()
        mib(9 + step % 4)


def optimizers():
    one, two = mlp(512, 6), mlp(300, 9)
    first = train(one, (torch.randn(700, 512, device=device) for _ in range(6)))
    second = train(two, (torch.randn(900, 300, device=device) for _ in range(6)),
                   torch.optim.SGD(two.parameters(), lr=0.1, momentum=0.9))
    for _ in zip(first, second):
        pass


def loop_optimizer():
    model = mlp(640, 5)
    run(train(model, (torch.randn(333 + 100 * k, 640, device=device) for k in range(5)),
              torch.optim.Adam(model.parameters(), foreach=False)))


def foreach_optimizer():
    model = mlp(640, 5)
    run(train(model, (torch.randn(333 + 100 * k, 640, device=device) for k in range(5)),
              torch.optim.Adam(model.parameters(), foreach=True)))


def evaluation():
    model = mlp(512, 6)
    for step, _ in enumerate(train(model, (torch.randn(512, 512, device=device) for _ in range(8)))):
        if step % 3 == 2:
            with torch.no_grad():
                results = [model(torch.randn(1500 + 300 * k, 512, device=device)) for k in range(4)]
            del results


def emptying():
    kept = []
    for step in range(15):
        parts = [mib(0.4 + (k * 7 + step * 3) % 11) for k in range(8)]
        kept.append(parts[step % 8])
        del parts
        if step % 5 == 4:
            kept = kept[3:]
            torch.cuda.empty_cache()


def caught():
    """Requests that no GPU can serve, caught; then the program goes on with smaller ones."""
    model = mlp(512, 4)
    for _ in range(2):
        try:
            mib(torch.cuda.mem_get_info()[1] >> 20)
        except torch.OutOfMemoryError:
            for k in range(900):
                mib(20 + k % 3)
        run(train(model, (torch.randn(700 + 200 * k, 512, device=device) for k in range(2))))


def graphs():
    """Graphs captured into their own pools, and one that shares the pool of the first."""
    model, x = mlp(512, 4), torch.randn(900, 512, device=device)
    first, second, third = (torch.cuda.CUDAGraph() for _ in range(3))
    with torch.no_grad():
        model(x)
        with torch.cuda.graph(first):
            y = model(x)
        with torch.cuda.graph(second, pool=first.pool()):
            z = model(y) + 1
        with torch.cuda.graph(third):
            w = [torch.relu(x) for _ in range(6)]
        for _ in range(3):
            model(torch.randn(1500, 512, device=device))
        del third, w
        torch.cuda.empty_cache()
        kept = [mib(6.5) for _ in range(4)]
    return y, z, kept


def captured_twice():
    """torch.cuda.graph() empties the cache, which frees nothing before the second capture with default settings"""
    layers = torch.nn.Sequential(torch.nn.Linear(1200, 4800), torch.nn.GELU(), torch.nn.Linear(4800, 1200)).cuda()
    pool, graphs = None, []
    with torch.no_grad():
        for rows in (900, 350):
            x = torch.rand(rows, 1200, device="cuda")
            layers(x)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                y = layers(x)
            pool = graph.pool()
            graphs.append((graph, x, y))
        for i in range(6):
            graphs[i % 2][0].replay()
            temporary = torch.empty((30 + 13 * i) << 20, dtype=torch.uint8, device="cuda")
            y = layers(torch.rand(200 + 100 * i, 1200, device="cuda"))
            del temporary


def pools():
    pool = torch.cuda.MemPool()
    kept = [mib(3.3), mib(0.7)]
    with torch.cuda.use_mem_pool(pool):
        inside = [mib(0.6 + 1.7 * k) for k in range(9)]
        del inside[2:5]
        inside += [mib(2.2), mib(0.2)]
    kept += [mib(1.1 + 2.3 * k) for k in range(7)]
    del inside, pool
    torch.cuda.empty_cache()
    kept += [mib(4.4 + k) for k in range(5)]


def ended_pool():
    """A pool ends: only its own segments go back."""
    kept = [mib(14.5 + k) for k in range(4)]
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = [mib(20), mib(30), mib(0.4)]
    del inside, kept[1:3], pool
    kept += [mib(11), mib(22), mib(33)]


def renewed_pools():
    """Two pools in turn; one ends, with its blocks, and a new one may be at its place in PyTorch's memory."""
    pools, kept = [torch.cuda.MemPool() for _ in range(2)], []
    for step in range(8):
        with torch.cuda.use_mem_pool(pools[step % 2]):
            kept.append(mib(3.3 + step))
        mib(1.5 * (step + 2))
        if step == 4:
            kept.clear()
            del pools[1]
            pools.append(torch.cuda.MemPool())
            torch.cuda.empty_cache()


def switched():
    """Expandable segments are switched on and off while the program runs, as by engines that sleep between trainings."""
    kept = []
    for step, setting in enumerate(("False", "True", "False", "True")):
        torch.cuda.memory._set_allocator_settings(f"expandable_segments:{setting}")
        kept += [mib(9 + 4 * k + step) for k in range(6)]
        del kept[step::2]
    torch.cuda.empty_cache()
    kept += [mib(5), mib(40)]


def two_devices():
    """A model on each GPU."""
    first, second = mlp(512, 4), mlp(700, 3).to("cuda:1")
    optimizers = torch.optim.Adam(first.parameters()), torch.optim.SGD(second.parameters(), lr=0.1, momentum=0.9)
    for step in range(6):
        x = torch.randn(64 + step * 91 % 300, 512, device=device)
        y = torch.cat([first(x), x], 1)[:, :700].to("cuda:1")
        second(y).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def mixed():
    """Small and large requests, freed in a different order."""
    kept, seed = [], 7
    for step in range(400):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        kept.append(mib([0.001, 0.02, 0.3, 0.9, 1.3, 4, 9.9, 12, 17][seed >> 8 & 7] * (1 + (seed >> 16) % 100 / 100)))
        if len(kept) > 24:
            del kept[(seed >> 12) % 24]


def large():
    kept = []
    for step in range(30):
        kept.append(mib(24 + step * 13 % 57))
        if len(kept) > 4:
            del kept[step % 4]


def pinned():
    host = [torch.empty(1 << 20, dtype=torch.uint8).pin_memory() for _ in range(4)]
    for step in range(12):
        batch = torch.cat([h.to(device, non_blocking=True) for h in host[: 1 + step % 4]])
        batch.float().sum().item()


def adapters():
    """Frozen weights with trained adapters."""
    base = mlp(768, 8).requires_grad_(False)
    down, up = nn.Linear(768, 8).to(device), nn.Linear(8, 768).to(device)
    optimizer = torch.optim.AdamW([*down.parameters(), *up.parameters()])
    for batch in (256, 640, 512, 800):
        x = torch.randn(batch, 768, device=device)
        for layer in base:
            x = layer(x) + up(down(x))
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def lstm():
    torch.backends.cudnn.enabled = False
    model = nn.LSTM(128, 256, 2).to(device)
    run(train(model, (torch.randn(length, 16, 128, device=device) for length in (20, 35, 12, 40)),
              loss=lambda y: y[0].square().mean()))


def convolutions():
    torch.backends.cudnn.enabled = False
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1),
                          nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)).to(device)
    run(train(model, (torch.randn(8, 3, side, side, device=device) for side in (64, 96, 72, 128, 80))))


def shapes():
    """A padded batch of another shape in each step, in half precision."""
    model = mlp(448, 6).half()
    run(train(model, (torch.zeros(1 + step * 37 % 11, 90 + step * 53 % 170, 448, device=device, dtype=torch.half)
                      for step in range(14)), torch.optim.SGD(model.parameters(), lr=0.1)))


def accumulation():
    """Gradients of several batches, in halves; losses that keep their graphs for a while."""
    model, losses = mlp(480, 6), []
    optimizer = torch.optim.RMSprop(model.parameters())
    for step in range(12):
        losses.append(model(torch.randn(200 + 40 * step, 480, device=device)).mean())
        if len(losses) == 3:
            torch.stack(losses).sum().backward()
            losses = []
            optimizer.step()
            optimizer.zero_grad(set_to_none=step % 2 == 1)


def adversarial():
    """Two networks and two optimizers in turn; one keeps its gradients in half of the steps."""
    generator, judge = (nn.Sequential(*[nn.Linear(a, b) for a, b in zip(d, d[1:])]).to(device) for d in ((64, 512, 1024, 3072), (3072, 1024, 256, 1)))
    for_generator, for_judge = torch.optim.Adam(generator.parameters()), torch.optim.SGD(judge.parameters(), 0.1, momentum=0.9)
    for step in range(14):
        n = 48 + step * 29 % 160
        real, fake = torch.randn(n, 3072, device=device), generator(torch.randn(n, 64, device=device))
        (judge(real).mean() - judge(fake.detach()).mean()).backward()
        for_judge.step()
        for_judge.zero_grad()
        judge(fake).mean().neg().backward()
        for_generator.step()
        for_generator.zero_grad(set_to_none=step % 2 == 0)


def in_turn():
    """One model after another, each larger."""
    for k in range(6):
        width = 256 + k * k * 96
        run(train(mlp(width, 4), (torch.randn(100 + k * 57, width, device=device) for _ in range(3))))


def ragged():
    """Sizes over five orders of magnitude, freed in any order."""
    dice, live = random.Random(3), []
    for _ in range(1500):
        live.append(mib(min(dice.lognormvariate(-1, 2.2), 64)))
        while len(live) > 40:
            live.pop(dice.randrange(len(live)))


def cleared_first():
    """Each step begins with what the last one left."""
    model, buffer = mlp(512, 5), None
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(8):
        buffer = None
        buffer = mib(12 + 9 * (step % 3))
        y = model(torch.randn(600 + 500 * (step % 4), 512, device=device)); kept = y.detach() * 2  # --without KEPT
        y.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if "CLEAR" in os.environ:
            y = kept = None
        if (step + 1) % int(os.environ.get("EMPTY", 9)) == 0:
            torch.cuda.empty_cache()


def kept_outputs():
    """Outputs of each step are kept, or with CLEAR only until it ends. A tensor that stays gets the address of a temporary
    one. With EMPTY the cache is emptied after every so many steps."""
    outputs, stay = [], []
    for step, _ in enumerate(train(mlp(256, 3), (torch.randn(300, 256, device=device) for _ in range(9)))):
        temporary = mib(13)  # --without TEMPORARY
        del temporary
        stay.append(mib(13))
        outputs.append(mib(3 + step))  # --without OUTPUTS
        if os.environ.get("CLEAR"):
            outputs.clear()
        if (step + 1) % int(os.environ.get("EMPTY", 100)) == 0:
            torch.cuda.empty_cache()


def pool_beside_cache():
    """Before 2.13, a request in a pool that fails frees no pages that the default pool has cached."""
    pool, kept = torch.cuda.MemPool(), []
    for step in range(8):
        with torch.cuda.use_mem_pool(pool):
            kept.append(mib(9 + step))
        mib(22 + 3 * step)


def emptied_in_use():
    """Each call of empty_cache() finds a part of each segment in use; other settings keep these blocks apart."""
    kept = []
    for step in range(8):
        a, b = mib(30 + step), mib(9.5)
        del a
        kept += [mib(14), b]
        torch.cuda.empty_cache()
        temporary = mib(15.5 + step)
        torch.cuda.empty_cache()
        del temporary
    kept += [mib(41), mib(18)]


def captured_by_hand():
    """capture_begin() does not empty the cache; the first request of a capture may be the one that fails."""
    side, graphs = torch.cuda.Stream(), []
    weights = torch.randn(900, 900, device=device)
    with torch.cuda.stream(side):
        a, kept = mib(24), [mib(8)]
        torch.mm(weights, weights)
        del a
        kept.append(mib(12))
        for k in range(3):
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            y = weights @ weights
            z = y * 2
            graph.capture_end()
            graphs.append((graph, z))
            mib(11.5 + k)
        kept.append(mib(13))


def rejected():
    """Requests that no GPU can serve, the first ones and a later one; an expandable segment is smaller, too."""
    held = []
    for size in (1 << 41, 1 << 24):
        try:
            mib(size)
        except RuntimeError:
            held.append(size)
    model = mlp(512, 5)
    for step, _ in enumerate(train(model, (torch.randn(300 + 900 * (step % 3), 512, device=device) for step in range(8)))):
        held.append(mib(5 + 3 * step))
        spikes = [mib(12 + step), mib(25 + 2 * step)]
        del spikes
        if step == 4:
            try:
                mib(1 << 23)
            except torch.OutOfMemoryError:
                del held[2:4]


PROGRAMS = [f.__name__ for f in (
    varying, transformer, lengths, checkpointing, cache, streams, recorded_streams, optimizers, loop_optimizer,
    foreach_optimizer, evaluation, emptying, caught, graphs, pools, ended_pool, renewed_pools, switched, two_devices, mixed, large, pinned, adapters, lstm, convolutions,
    shapes, accumulation, adversarial, in_turn, ragged, kept_outputs)]

if __name__ == "__main__":
    torch.manual_seed(0)
    if "SNAPSHOT" in os.environ:
        torch.cuda.memory._record_memory_history(max_entries=1 << 20, stacks="python")
    try:
        globals()[sys.argv[1]]()
    finally:
        print("peak", torch.cuda.memory_stats()["reserved_bytes.all.peak"])
        if "SNAPSHOT" in os.environ:
            torch.cuda.memory._dump_snapshot(os.environ["SNAPSHOT"])
