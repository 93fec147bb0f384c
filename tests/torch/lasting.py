"""A loop of many small tensors, equal in every run: near its beginning are the peak and a failure that it survives;
every 2,000 rounds it keeps another tensor. Prints PyTorch's peak."""
import torch

ROUNDS = 45000
kept, held = [], []
weights = torch.ones(64, 64, device="cuda")
for i in range(ROUNDS):
    x = torch.empty(1000 + i * 37 % 900, device="cuda")
    y = x + 1
    z = [torch.empty(200 * (i % 7 + 1), device="cuda") for _ in range(16)]
    held = [*held[-3:], z[0]]
    if i % 10 == 0:
        y[0].item()
    if i == ROUNDS // 50:
        big = [torch.empty(1 << 20, device="cuda") for _ in range(20)]
        del big
        try:
            torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            pass
    if i % 2000 == 0:
        kept.append(torch.empty(3000, device="cuda"))
print(torch.cuda.max_memory_allocated())
