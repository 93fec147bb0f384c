"""A training loop with lines that make the host wait, each with what the report must call it and how many times a
step: `# says PATTERN × CALLS`. A line without such a comment must not be accused."""
import sys

import torch
from torch import nn

STEPS = 12
dev = torch.device("cuda")


class Bar:
    """A progress bar that prints what it is given."""

    def show(self, **values):
        return ", ".join(f"{k}={v}" for k, v in values.items())  # says print × 1


class Environment:
    def step(self, action):
        return action


def reads(x, flag, table, mask, losses):
    flag.item()  # says .item() × 1
    flag.item(), x.cpu()  # says .item() × 1, .cpu() × 1
    float(flag)  # says .item() by float() × 1
    int(flag)  # says .item() by int() × 1
    if flag:  # says if tensor × 1
        raise SystemExit("zero is false")
    while flag > 0 and flag < 0:  # says if tensor × 1
        pass
    assert not torch.isnan(x).any()  # says if tensor × 1
    any(v < 0 for v in losses)  # says if tensor × 5
    bool((x == x).all())  # says if tensor × 1
    most = max(flag, losses[0])  # says if tensor × 1
    top = torch.max(flag, most)
    top if top > 0 else max(most, 0)  # says if tensor × 2
    x.cpu()  # says .cpu() × 1
    x.cpu().numpy()  # says .cpu() × 1
    x.detach().to("cpu")  # says .to("cpu") × 1
    x.tolist()  # says .tolist() × 1
    print(flag, file=sys.stderr)  # says print × 2
    f"{flag:.3f}"  # says print × 1
    Bar().show(loss=flag)
    torch.nonzero(x)  # says nonzero × 1
    torch.where(x > 0)  # says nonzero × 1
    x[mask]  # says boolean mask × 1
    x.masked_select(mask)  # says boolean mask × 1
    x[mask] = 0
    x[mask] = x[mask]  # says boolean mask × 2
    torch.unique(table)  # says torch.unique × 1
    x[x.argmax()]  # says index by a tensor × 1
    [x[i] for i in table]  # says index by a tensor × 8
    x[:flag.long()]  # says .item() as an index × 1
    x.numpy(force=True)  # says .numpy() × 1
    torch.allclose(x, x)  # says allclose × 1
    torch.bincount(table)  # says bincount × 2
    torch.nn.functional.one_hot(table, 4)
    [v.item() for v in losses]  # says .item() × 5
    count = table.sum().item()  # says .item() × 1
    list(range(count))
    value = flag.item()  # says .item() × 1
    if value != value:
        raise SystemExit("zero is a number")
    action = x.argmax().item()  # says .item() × 1
    Environment().step(action)
    torch.where(mask, x, 0.0)
    x.sum(), x.max(), torch.stack(losses)


def copies(x, host, pinned, index):
    square, one = x.view(32, 32), torch.ones((), device=dev)
    host.to(dev)  # says .to(device), blocking × 1
    host.cuda()  # says .cuda(), blocking × 1
    pinned.to(dev)  # says .to(device), blocking × 1
    host.to(dev, non_blocking=True)  # says non_blocking from pageable memory × 1
    pinned.to(dev, non_blocking=True)
    torch.tensor([1.0, 2.0], device=dev)  # says torch.tensor(…, device) × 1
    torch.tensor([1.0, 2.0]).to(dev)  # says .to(device), blocking × 1
    torch.full((2,), 3.0, device=dev), torch.arange(3, device=dev)
    x[torch.tensor([1, 2, 3])]  # says index from the host × 1
    x[index]
    x[5] = 1.0  # says x[i] = value of the host × 1
    square[0, 1] = 1.0  # says x[i] = value of the host × 1
    square[0, 2:4] = torch.ones(2)  # says x[i] = value of the host × 1
    x[index] = 1.0  # says x[i] = value of the host × 1
    x[index] = one
    x[torch.tensor([1, 2])] = one  # says index from the host × 1
    square[:, [1, 2]] = 2.0  # says index from the host × 1, x[i] = value of the host × 1
    x.copy_(torch.zeros(1024))  # says copy_() to the GPU, blocking × 1
    pinned.copy_(x[:1])  # says copy_() from the GPU × 1
    for value in host[:20].unbind():
        value.to(dev)  # says .to(device), blocking × 20


def waits(stream):
    torch.cuda.synchronize()  # says torch.cuda.synchronize() × 1
    torch.cuda.current_stream().synchronize()  # says stream.synchronize() × 1
    stream.wait_stream(torch.cuda.current_stream())
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(), end.record()
    end.synchronize()  # says event.synchronize() × 1
    start.elapsed_time(end)


def main():
    x, flag, table = torch.zeros(1024, device=dev), torch.zeros((), device=dev), torch.zeros(8, dtype=torch.long, device=dev)
    mask, losses, index = x > 0, list(torch.zeros(5, device=dev).unbind()), torch.arange(3, device=dev)
    host, pinned = torch.zeros(250000), torch.zeros(1, pin_memory=True)
    net = nn.Linear(64, 64).to(dev)
    offload = nn.Linear(8, 8).to(dev)
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    stream = torch.cuda.Stream()
    for _ in range(STEPS):
        loss = net(torch.zeros(8, 64, device=dev)).square().sum()
        n = mask.sum().item()  # says .item() × 1
        loss = loss / max(n, 1)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        try:
            nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)  # says clip_grad_norm_(error_if_nonfinite) × 1
        except RuntimeError:
            pass
        scaler.step(opt)  # says GradScaler × 1
        scaler.update()
        scaler.get_scale()  # says GradScaler.get_scale() × 1
        opt.zero_grad()
        reads(x, flag, table, mask, losses)
        copies(x, host, pinned, index)
        offload.cpu(), offload.cuda()  # says module.to(device) × 4
        waits(stream)


main()
