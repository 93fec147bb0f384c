# measure: every N passes, then detach
# enough: unknown
"""A recurrent state carries the graph from chunk to chunk; the advice calls backward() more often and detaches the state."""
import os
import torch
from torch import nn

FOLLOW = "FOLLOW" in os.environ
rnn = nn.GRU(256, 512, batch_first=True).cuda()
optimizer = torch.optim.Adam(rnn.parameters())
hidden = torch.zeros(1, 64, 512, device="cuda")
for chunk in range(200):
    out, hidden = rnn(torch.randn(64, 35, 256, device="cuda"), hidden)
    loss = out.square().mean()
    if FOLLOW or chunk == 199:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        hidden = hidden.detach()
