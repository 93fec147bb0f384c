"""Correct training: batches are pinned by the loader and copied without waiting, the loss is read now and then, with an
evaluation after each epoch, checkpoints, a warm-up, and a summary at the end. gpuspy must report nothing here."""
import queue
import sys
import tempfile
import threading

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

dev = torch.device("cuda")
LOG = 10


def loader(rows, batch):
    data = TensorDataset(torch.zeros(rows, 32), torch.zeros(rows, dtype=torch.long))
    return DataLoader(data, batch_size=batch, pin_memory=True)


def network():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 4)).to(dev)


@torch.no_grad()
def accuracy(net, batches):
    right = total = 0
    for x, y in batches:
        x, y = x.to(dev), y.to(dev)
        right += (net(x).argmax(1) == y).sum().item()
        total += y.numel()
    return right / total


def train(net, opt, batches, epochs, log):
    lossf, seen = nn.CrossEntropyLoss(), 0
    for _ in range(epochs):
        running = torch.zeros((), device=dev)
        for x, y in batches:
            x, y = x.to(dev, non_blocking=True), y.to(dev, non_blocking=True)
            opt.zero_grad(set_to_none=True)
            loss = lossf(net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            running += loss.detach()
            seen += 1
            if seen % log == 0:
                print(f"step {seen} loss {running.item() / log:.3f}", file=sys.stderr)
                running.zero_()
        yield net


def save(net, opt, folder):
    torch.save({"net": net.state_dict(), "opt": opt.state_dict()}, folder + "/last.pt")
    return {k: v.cpu() for k, v in net.state_dict().items()}


def epochs():
    """Evaluation and a checkpoint after each epoch."""
    net = network()
    opt = torch.optim.AdamW(net.parameters())
    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for net in train(net, opt, loader(800, 16), 3, LOG):
            best = max(best, accuracy(net, loader(320, 16)))
            save(net, opt, folder)
        state = torch.load(folder + "/last.pt", map_location=dev)
    net.load_state_dict(state["net"])
    print(accuracy(net, loader(320, 16)), [p.norm().item() for p in net.parameters()], file=sys.stderr)


def warmup():
    """Waits before the loop: statistics of the data, a few warm-up steps whose results are read, a benchmark."""
    net = network()
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    weights = [torch.randn(32).to(dev).sum().item() for _ in range(50)]
    for _ in range(3):
        loss = net(torch.zeros(16, 32).to(dev)).sum()
        loss.backward()
        opt.step()
        opt.zero_grad()
        print(loss.item(), file=sys.stderr)
    torch.cuda.synchronize()
    for net in train(net, opt, loader(960, 16), 1, LOG):
        pass
    torch.cuda.synchronize()
    print(len(weights), torch.cuda.max_memory_allocated(), file=sys.stderr)


def amp():
    """Mixed precision, gradients of several batches a step, and a scheduler."""
    net = network()
    opt = torch.optim.Adam(net.parameters(), fused=True)
    plan = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 40)
    scaler, lossf = torch.amp.GradScaler("cuda"), nn.CrossEntropyLoss()
    for i, (x, y) in enumerate(loader(1280, 8)):
        x, y = x.to(dev, non_blocking=True), y.to(dev, non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = lossf(net(x), y) / 4
        scaler.scale(loss).backward()
        if i % 4 == 3:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
            plan.step()
        if i % 80 == 79:
            print(loss.item(), file=sys.stderr)


def later():
    """Results copied into a pinned buffer while the next batch computes, and waited for just before they are read."""
    net, total = network(), 0.0
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    out = torch.zeros(16, 4, pin_memory=True)
    for x, _ in loader(960, 16):
        y = net(x.to(dev, non_blocking=True))
        y.square().sum().backward()
        opt.step()
        opt.zero_grad()
        out.copy_(y.detach(), non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        total += float(out[0, 0])


def once():
    """No loop at all: values are computed, read and dropped."""
    net = network()
    x = torch.randn(1000, 32).to(dev)
    y = net(x)
    print(y.sum().item(), y.detach().cpu().numpy().shape, y[y > 0].shape, file=sys.stderr)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


def beside():
    """A thread writes the results while the steps go on, and only it waits for the copies; sparse gradients count their rows."""
    table, net, todo = nn.Embedding(500, 32, sparse=True).to(dev), network(), queue.Queue(maxsize=4)
    opt = torch.optim.SparseAdam(table.parameters())

    def write():
        while (y := todo.get()) is not None:
            y.cpu()
    writer = threading.Thread(target=write)
    writer.start()
    ids = torch.zeros(16, 4, dtype=torch.long).to(dev)
    for _ in range(60):
        y = net(table(ids).mean(1))
        opt.zero_grad()
        y.square().sum().backward()
        opt.step()
        todo.put(y.detach())
    todo.put(None)
    writer.join()


{"epochs": epochs, "warmup": warmup, "amp": amp, "later": later, "once": once, "beside": beside}[sys.argv[1]]()
