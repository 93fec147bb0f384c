"""A loop that keeps memory in several ways: at each step, at every hundredth, from a third of the run on, in the first half,
and in a window of the last thousand steps. With "infer" nothing but the lines shows what a step is."""
import sys

import torch

INFER = "infer" in sys.argv
STEPS = 6000
each, hundredth, late, stopped, window = [], [], [], [], []
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 1)).cuda()
adam = torch.optim.Adam(model.parameters())


def train():
    loss = model(torch.ones(4, 16, device="cuda")).sum()
    loss.backward()
    adam.step()
    adam.zero_grad()


def infer():
    with torch.no_grad():
        model(torch.ones(4, 16, device="cuda"))


for i in range(STEPS):
    infer() if INFER else train()
    each.append(torch.empty(300, device="cuda"))
    if i % 100 == 0:
        hundredth.append(torch.empty(30000, device="cuda"))
    if i >= STEPS // 3:
        late.append(torch.empty(500, device="cuda"))
    if i < STEPS // 2:
        stopped.append(torch.empty(300, device="cuda"))
    window.append(torch.empty(700, device="cuda"))
    del window[:-1000]
    for _ in range(125 if INFER else 100):
        torch.empty(100, device="cuda")
