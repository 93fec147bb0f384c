"""Lines that copy and lines that make the host wait, each with what it must leave in the recording; a line
without such a comment leaves no copy and no wait."""
import torch

dev = torch.device("cuda")


def lines():
    x = torch.zeros(1024, device=dev)
    flag = torch.zeros((), device=dev)
    host = torch.zeros(250000)
    pinned = torch.zeros(250000, pin_memory=True)
    large, wide = torch.zeros(250000, device=dev), torch.zeros(8, 1000, device=dev)
    index = torch.zeros(10, dtype=torch.long, device=dev)
    torch.cuda.synchronize()  # leaves wait device

    flag.item()  # leaves d2h pinned 4, wait stream
    float(flag)  # leaves d2h pinned 4, wait stream
    x.cpu()  # leaves d2h pageable 4096, wait stream
    x.tolist()  # leaves d2h pageable 4096, wait stream
    x.cpu().numpy()  # leaves d2h pageable 4096, wait stream
    if flag:  # leaves d2h pinned 4, wait stream
        raise SystemExit("zero is false")
    print(flag)  # leaves d2h pinned 4, d2h pinned 4, wait stream, wait stream
    torch.nonzero(x)  # leaves d2h pinned 4, wait stream
    x[x > 0]  # leaves d2h pinned 4, wait stream
    host.to(dev)  # leaves h2d pageable 1000000, wait stream
    host.to(dev, non_blocking=True)  # leaves h2d pageable 1000000
    pinned.to(dev)  # leaves h2d pinned 1000000, wait stream
    pinned.to(dev, non_blocking=True)  # leaves h2d pinned 1000000
    large.to("cpu")  # leaves d2h pageable 1000000, wait stream
    large.to("cpu", non_blocking=True)  # leaves d2h pinned 1000000
    pinned.copy_(large)  # leaves d2h pinned 1000000, wait stream
    pinned.copy_(large, non_blocking=True)  # leaves d2h pinned 1000000
    large.copy_(pinned)  # leaves h2d pinned 1000000, wait stream
    large.clone()  # leaves d2d 1000000
    wide.t().cpu()  # leaves d2h pageable 32000, wait stream
    wide.t().contiguous()
    torch.cuda.current_stream().synchronize()  # leaves wait stream
    torch.cuda.synchronize()  # leaves wait device
    e = torch.cuda.Event()
    e.record()
    e.synchronize()  # leaves wait event
    torch.tensor([1.0, 2.0], device=dev)  # leaves h2d pageable 8, wait stream
    torch.unique(index)  # leaves d2h pinned 8, wait stream
    torch.equal(x, x)
    x.max().item()  # leaves d2h pinned 4, wait stream
    bool((x == 0).all())  # leaves d2h pinned 1, wait stream
    x[index]
    torch.where(x > 0)  # leaves d2h pinned 4, wait stream
    torch.isfinite(x).all().item()  # leaves d2h pinned 1, wait stream
    torch.arange(10, device=dev)
    torch.full((10,), 3.0, device=dev)
    torch.cat([x, x])
    host.pin_memory()
    torch.linalg.vector_norm(x)
    torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(x)], 1.0)


lines()
