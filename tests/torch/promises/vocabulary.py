# measure: cross entropy in 8 chunks
# falls: no
"""Cross entropy over a large vocabulary; the advice computes it in chunks."""
import os
import torch
from torch import nn

CHUNKS, TOKENS = (8 if "FOLLOW" in os.environ else 1), 3000
embedding, head = nn.Embedding(128000, 512).cuda(), nn.Linear(512, 128000, bias=False).cuda()
optimizer = torch.optim.SGD([*embedding.parameters(), *head.parameters()], lr=0.1)
for step in range(4):
    tokens = torch.zeros(TOKENS, dtype=torch.long, device="cuda")
    optimizer.zero_grad()
    for part in tokens.chunk(CHUNKS):
        (nn.functional.cross_entropy(head(embedding(part)), part) / CHUNKS).backward()
    optimizer.step()
