"""What training scripts do with memory; at certain moments PyTorch's counters are recorded. situations.py NAME… one
after another, in one process"""
import gc
import sys
import threading
import traceback

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import moment as moments
from moment import moment

MIB = 1 << 20
SITUATIONS = {}


def situation(function):
    SITUATIONS[function.__name__] = function
    return function


class Block(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.qkv, self.mlp = nn.Linear(width, 3 * width), nn.Sequential(nn.Linear(width, 512), nn.GELU(), nn.Linear(512, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, 4, w // 4).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm(x))


class Language(nn.Module):
    def __init__(self, words=500, width=128, depth=3, recompute=False):
        super().__init__()
        self.recompute = recompute
        self.words = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        x = self.words(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.recompute else block(x)
        return self.head(x)


def text(batch=8, length=64):
    return torch.zeros(batch, length, dtype=torch.long, device="cuda")


def steps(model, optimizer, count=3, accumulate=1, autocast=None, scaler=None):
    moment("model")
    for _ in range(count):
        optimizer.zero_grad()
        for _ in range(accumulate):
            ids = text()
            with torch.autocast("cuda", autocast, enabled=autocast is not None):
                out = model(ids)
                loss = F.cross_entropy(out.flatten(0, 1), ids.flatten())
            moment("forward")
            (scaler.scale(loss) if scaler else loss).backward()
            moment("backward")
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        moment("step")


@situation
def plain_sgd():
    model = Language().cuda()
    steps(model, torch.optim.SGD(model.parameters(), lr=0.1))


@situation
def sgd_with_momentum():
    model = Language().cuda()
    steps(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


@situation
def adamw():
    model = Language().cuda()
    steps(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


@situation
def adamw_fused():
    model = Language().cuda()
    steps(model, torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True))


@situation
def amp():
    model = Language().cuda()
    steps(model, torch.optim.AdamW(model.parameters()), autocast=torch.float16, scaler=torch.amp.GradScaler("cuda"))
    steps(model, torch.optim.AdamW(model.parameters()), autocast=torch.bfloat16)


@situation
def recomputed():
    model = Language(recompute=True).cuda()
    steps(model, torch.optim.AdamW(model.parameters()))


@situation
def accumulated():
    model = Language().cuda()
    steps(model, torch.optim.AdamW(model.parameters()), accumulate=3)


@situation
def saved_on_the_host():
    model = Language().cuda()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        out = model(text())
    moment("forward")
    out.sum().backward()
    moment("backward")


@situation
def convolutions():
    for layout in (torch.contiguous_format, torch.channels_last):
        model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                              nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda().to(memory_format=layout)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for _ in range(2):
            x = torch.zeros(8, 3, 64, 64, device="cuda").to(memory_format=layout)
            loss = model(x).sum()
            moment("forward")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            moment("step")


@situation
def recurrent():
    for make, half in ((nn.LSTM, False), (nn.GRU, True), (nn.RNN, False)):
        more = {"proj_size": 32} if make is nn.LSTM else {}
        model = make(64, 128, 2, batch_first=True, bidirectional=True, **more).cuda()
        model = model.half() if half else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            out, _ = model(torch.zeros(8, 20, 64, device="cuda", dtype=torch.float16 if half else torch.float32))
            moment("forward")
            out.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            moment("step")


@situation
def spectra():
    window = torch.zeros(512, device="cuda")
    sound = torch.zeros(4, 16000, device="cuda", requires_grad=True)
    magnitude = torch.stft(sound, 512, 128, window=window, return_complex=True).abs()  # which NVRTC has to compile
    moment("forward")
    magnitude.sum().backward()
    moment("backward")


@situation
def sizes_that_kernels_compute():
    x = torch.ones(1000, 64).cuda()
    x[x > 0], torch.nonzero(x)  # on a simulated GPU no kernel ran to find one
    moment("once")


@situation
def scripted():
    @torch.jit.script
    def chain(x: torch.Tensor, n: int):
        for _ in range(n):
            x = torch.relu(x + 1) * 2
        return x

    x = torch.zeros(1000, 1000, device="cuda", requires_grad=True)
    for n in (2, 5):
        y = chain(x, n)
        moment("forward")
        y.sum().backward()
        moment("backward")


@situation
def compiled():
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    fast = torch.compile(model)
    for _ in range(3):
        loss = fast(torch.zeros(64, 256, device="cuda")).square().mean()
        moment("forward")
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        moment("step")


@situation
def compile_disabled():
    @torch.compiler.disable
    def step(x):
        return (x * 2).relu()
    y = step(torch.zeros(512, 1024, device="cuda"))
    moment("once")
    del y
    moment("gone")


@situation
def other_streams():
    side, third = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    kept = []
    for i in range(4):
        x = torch.zeros(4 * MIB, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(200000)
            y = x * 2
            x.record_stream(side)
            kept.append(y)
        moment("two streams")
        with torch.cuda.stream(third):
            z = torch.zeros(3 * MIB, device="cuda")
            z.record_stream(side)
        del x, z
        moment("freed while used")
    del kept[::2], y
    moment("half")
    torch.cuda.synchronize()
    torch.zeros(1, device="cuda")
    moment("after the wait")
    kept.clear()
    torch.cuda.empty_cache()
    moment("emptied")


@situation
def several_threads():
    def work(n, at_end):
        kept = []
        for i in range(200):
            kept.append(torch.empty((i * 37 + n * 101) % 5000 * 512 + 1, dtype=torch.uint8, device="cuda"))
            if len(kept) > 6:
                del kept[i % 5]
        at_end.append(kept)

    for round_ in range(2):
        kept = []
        threads = [threading.Thread(target=work, args=(n, kept)) for n in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        moment("joined")
    kept.clear()
    moment("freed")


@situation
def emptied():
    kept = [torch.empty(n * MIB // 2, dtype=torch.uint8, device="cuda") for n in range(1, 60, 3)]
    moment("all")
    del kept[::2]
    moment("half")
    torch.cuda.empty_cache()
    moment("half, emptied")
    kept.clear()
    gc.collect()
    torch.cuda.empty_cache()
    moment("emptied")


@situation
def raw_allocations():
    pointers = [torch.cuda.caching_allocator_alloc(n) for n in (1, 511, 4096, 3 * MIB, 30 * MIB)]
    moment("raw")
    for pointer in pointers[::2]:
        torch.cuda.caching_allocator_delete(pointer)
    moment("some deleted")
    for pointer in pointers[1::2]:
        torch.cuda.caching_allocator_delete(pointer)
    moment("deleted")


@situation
def memory_pool():
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        inside = torch.zeros(5 * MIB, device="cuda")
    outside = torch.zeros(5 * MIB, device="cuda")
    moment("both")
    del inside
    moment("inside freed")
    del pool
    moment("pool gone")
    torch.cuda.empty_cache()
    moment("emptied")
    del outside


@situation
def graphs():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    static = torch.zeros(64, 256, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            optimizer.zero_grad()
            model(static).sum().backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(side)
    moment("warm")
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    optimizer.zero_grad()
    with torch.cuda.graph(graph):
        out = model(static)
        out.sum().backward()
        optimizer.step()
    moment("captured")
    with torch.cuda.graph(other, pool=graph.pool()):
        again = model(static)
    moment("captured in the same pool")
    for _ in range(3):
        graph.replay()
        other.replay()
    torch.cuda.synchronize()
    moment("replayed")
    del out, again
    moment("outputs freed")
    graph.reset()
    other.reset()
    del graph, other
    optimizer.zero_grad()
    moment("graphs gone")
    torch.cuda.empty_cache()
    moment("emptied")


@situation
def graphed_callables():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).cuda()
    sample = torch.zeros(64, 256, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (sample,))
    moment("made")
    for _ in range(2):
        graphed(torch.zeros(64, 256, device="cuda", requires_grad=True)).sum().backward()
        moment("step")
    del graphed, model
    gc.collect()
    torch.cuda.empty_cache()
    moment("gone")


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.zeros(64, 128), i


def loader(context):
    from torch.utils.data import DataLoader
    model = nn.Linear(128, 128).cuda()
    for x, i in DataLoader(Rows(), batch_size=4, num_workers=2, pin_memory=True, multiprocessing_context=context):
        y = model(x.cuda(non_blocking=True))
        moment("batch")
        y.sum().backward()
    moment("end")


@situation
def forked_workers():
    loader("fork")


@situation
def spawned_workers():
    loader("spawn")


@situation
def no_workers():
    from torch.utils.data import DataLoader
    for x, i in DataLoader(Rows(), batch_size=8, pin_memory=True):
        y = x.cuda(non_blocking=True) * 2
        moment("batch")


@situation
def pinned():
    kept = [torch.empty(n * 1000, pin_memory=True) for n in (1, 10, 100, 1000)]
    moment("pinned")
    del kept[::2]
    moment("half")
    kept.append(torch.empty(900, pin_memory=True))
    moment("again")
    kept.clear()
    moment("none")


# ------------------------------------------------------------------ little memory

@situation
def halve_the_batch():
    batch, done = 4096, []
    while len(done) < 3:
        try:
            x = torch.zeros(batch, 64, 1024, device="cuda")
            y = x * 2
            moment("fits")
            done.append(y)
        except torch.cuda.OutOfMemoryError:
            moment("does not fit")
            batch //= 2
        x = y = None


def fill_up(piece=16 * MIB):
    held = []
    try:
        while True:
            held.append(torch.empty(piece, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        return held


@situation
def fails_in_backward():
    w = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
    for fill in (True, False):
        torch.cuda.empty_cache()
        held = None
        try:
            x = torch.zeros(8192, 1024, device="cuda", requires_grad=True)
            loss = ((x * 2) @ w).relu().sum()
            held = fill_up() if fill else None
            moment("forward")
            loss.backward()
            moment("backward")
        except torch.cuda.OutOfMemoryError:
            moment("failed")
        x = loss = held = w.grad = None
    moment("end")


@situation
def retries():
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    kept = [torch.empty(20 * MIB, dtype=torch.uint8, device="cuda") for _ in range(free // (40 * MIB))]
    moment("half of it")
    kept.clear()
    moment("all cached")
    big = torch.empty(free * 2 // 3, dtype=torch.uint8, device="cuda")  # fits only after the cache is emptied
    moment("after the retry")
    del big


@situation
def limited_by_fraction():
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.25)
    kept = []
    try:
        for _ in range(100):
            kept.append(torch.empty(32 * MIB, dtype=torch.uint8, device="cuda"))
    except torch.cuda.OutOfMemoryError:
        moment("limit")
    kept.clear()
    torch.cuda.set_per_process_memory_fraction(1.0)
    kept.append(torch.empty(300 * MIB, dtype=torch.uint8, device="cuda"))
    moment("no limit")


@situation
def crumbs():
    """Blocks of many sizes, allocated and freed."""
    state, kept = 1, {}
    for i in range(1500):
        state = state * 1103515245 + 12345 & 0x7fffffff
        slot = state >> 8 & 63
        kept.pop(slot, None)
        if state >> 16 & 3:
            size = 1 << (state >> 20 & 15) + 8
            kept[slot] = torch.empty(size + (state & 0xfff), dtype=torch.uint8, device="cuda")
        if i % 250 == 249:
            moment("some")
    kept.clear()
    moment("none")


# ------------------------------------------------------------------ two devices

@situation
def two_devices():
    models = [Language().to(f"cuda:{d}") for d in range(2)]
    moment("models")
    ids = torch.zeros(8, 64, dtype=torch.long)
    outs = [m(ids.to(f"cuda:{d}")) for d, m in enumerate(models)]
    moment("forward")
    both = outs[0] + outs[1].to("cuda:0")
    moment("peers")
    both.sum().backward()
    moment("backward")
    with torch.cuda.device(1):
        here = torch.zeros(1000, 1000, device="cuda")
        there = torch.empty(1000, 1000, device="cuda:0")
        there.copy_(here, non_blocking=True)
    moment("copied")
    del models[1], outs
    torch.cuda.empty_cache()
    moment("one model")


@situation
def data_parallel():
    model = [nn.Linear(256, 256).to(f"cuda:{d}") for d in range(2)]  # replicate() would need NCCL
    inputs = nn.parallel.scatter(torch.zeros(64, 256, device="cuda:0"), [0, 1])
    outs = nn.parallel.parallel_apply(model, inputs)
    moment("applied")
    out = nn.parallel.gather(outs, 0)
    moment("gathered")
    out.sum().backward()
    moment("backward")


# ------------------------------------------------------------------

def main():
    for name in sys.argv[1:]:
        moments.situation = name
        try:
            SITUATIONS[name]()
        except Exception:
            traceback.print_exc()
            print(f"failed {name}", flush=True)
        gc.collect()
        moment("end")


if __name__ == "__main__":
    main()
