"""Steps of 200 tensors, from several functions; every fourth step keeps 1 MiB more, until the GPU is full."""
import torch

kept = []


def embed(i):
    return [torch.empty(1000 + i * 37 % 900, device="cuda") for _ in range(8)]


def attend(i):
    return [torch.empty(200 * (i % 7 + 1), device="cuda") for _ in range(16)]


def mlp():
    hidden = torch.empty(4096, device="cuda")
    for _ in range(11):
        hidden = torch.empty_like(hidden)
    return hidden


def optimize(params):
    return torch._foreach_add(params, 1.0), torch._foreach_mul(params, 0.9)


def keep():
    kept.append(torch.empty(1 << 18, device="cuda"))


def main():
    params = [torch.empty(100 + 4 * n, device="cuda") for n in range(80)]
    flag, host, far = torch.ones(1, device="cuda"), torch.ones(1024), torch.empty(1024, device="cuda")
    for i in range(100000):
        x, y, z = embed(i), attend(i), mlp()
        updated = optimize(params)
        far.copy_(host)
        if i % 10 == 0:
            flag.item()
        if i % 4 == 0:
            keep()


main()
