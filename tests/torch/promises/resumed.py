# measure: a checkpoint that torch\.load\(\) put on the GPU
# falls: no
"""A checkpoint stays on the GPU beside the model that it was loaded into; the advice deletes it."""
import io
import os
import torch
from torch import nn

FOLLOW, file = "FOLLOW" in os.environ, io.BytesIO()


def make():
    return nn.Sequential(*[nn.utils.skip_init(nn.Linear, 4096, 4096, bias=False) for _ in range(12)])


torch.save(make().state_dict(), file)
file.seek(0)
checkpoint = torch.load(file, map_location="cuda")
net = make().cuda()
net.load_state_dict(checkpoint)
if FOLLOW:
    del checkpoint
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(4):
    loss = net(torch.randn(7000, 4096, device="cuda")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
