"""A training loop whose batches vary, with buffers of odd sizes that stay."""
import random
import sys

import torch

device = "cuda"
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(384, 384) for _ in range(8)]).to(device)
optimizer = torch.optim.AdamW(model.parameters())
kept, dice = [], random.Random(5)
try:
    for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 16):
        x = torch.randn(120 + 61 * step % 500, 384, device=device)
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        spikes = [torch.empty((k * 350 + 700 + step * 53) << 10, dtype=torch.uint8, device=device) for k in range(9)]
        kept.append(spikes[step % 9])
        odd = [torch.empty(dice.randrange(1, 12 << 20), dtype=torch.uint8, device=device) for _ in range(8)]
        kept.append(odd[dice.randrange(8)])
        del spikes, odd
        if step == 9:
            torch.cuda.empty_cache()
except torch.OutOfMemoryError:
    print("out of memory in step", step + 1)
    raise
finally:
    print(torch.cuda.memory_stats()["reserved_bytes.all.peak"])
