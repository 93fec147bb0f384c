"""Loops whose steps are known: steps.py NAME, and one that fails in a step: steps.py failing NUMBER PART OPTIMIZER [amp]. The line that makes a step carries the comment `steps N`, the one that
keeps memory `grows`."""
import sys

import torch
from torch import nn

dev = torch.device("cuda")


class Net(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.a, self.b = nn.Linear(32, width), nn.Linear(width, 8)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))  # makes the result


def batch():
    return torch.zeros(16, 32).to(dev)


def loss_of(model, x):
    return model(x).pow(2).mean()


def accumulation():
    model = Net().to(dev)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        for _ in range(4):
            loss_of(model, batch()).backward()  # accumulation: steps 12
        optimizer.step()
        optimizer.zero_grad()


def fused():
    model = Net().to(dev)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for _ in range(12):
        optimizer.zero_grad()
        for _ in range(4):
            loss_of(model, batch()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # fused: steps 12


def clipped():
    model = Net().to(dev)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    plan = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9)
    for _ in range(12):
        loss_of(model, batch()).backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()  # clipped: steps 12
        plan.step()
        (norm * 2).item()
        optimizer.zero_grad()


def unscaled():
    model = Net().to(dev)
    optimizer, scale = torch.optim.AdamW(model.parameters(), fused=True), torch.amp.GradScaler("cuda")
    for _ in range(12):
        scale.scale(loss_of(model, batch())).backward()
        scale.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale.step(optimizer)  # unscaled: steps 12
        scale.update()
        optimizer.zero_grad()


def unseen():
    """An optimizer that never allocates: only the clipping is visible."""
    model = Net().to(dev)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        for _ in range(4):
            loss_of(model, batch()).backward()  # unseen: steps 12
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def failing(number, where, optimizer, amp=False):
    """Runs out of memory in the given step."""
    model = Net().to(dev)
    optimizer, scale = optimizer(model.parameters()), torch.amp.GradScaler("cuda", enabled=amp)
    for i in range(1, number + 1):
        x = batch()
        for part in ("forward", "backward", "clip", "step"):
            if i == number and where == part == "forward":
                model.a.register_forward_pre_hook(lambda *_: torch.empty(1 << 50, dtype=torch.uint8, device=dev))
            elif i == number and where == part:
                torch.empty(1 << 50, dtype=torch.uint8, device=dev)
            if part == "forward":
                loss = loss_of(model, x)
            elif part == "backward":
                scale.scale(loss).backward()
            elif part == "clip":
                scale.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            else:
                scale.step(optimizer)
                scale.update()
        optimizer.zero_grad()


def gan():
    made, judge = Net(), nn.Linear(8, 1)
    made, judge = made.to(dev), judge.to(dev)
    first, second = torch.optim.Adam(judge.parameters()), torch.optim.Adam(made.parameters())
    for _ in range(12):
        first.zero_grad()
        judge(made(batch()).detach()).mean().backward()
        first.step()
        second.zero_grad()
        judge(made(batch())).mean().backward()
        second.step()  # gan: steps 12


def scaler():
    model = Net().to(dev)
    optimizer, scale = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), torch.amp.GradScaler("cuda")
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = loss_of(model, batch())
        scale.scale(loss).backward()
        scale.step(optimizer)  # scaler: steps 12
        scale.update()


def sgd():
    model = Net().to(dev)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(12):
        optimizer.zero_grad()
        loss_of(model, batch()).backward()  # sgd: steps 12
        optimizer.step()


def inference():
    model = Net().to(dev).eval()
    with torch.no_grad():
        for _ in range(30):
            model(batch()).cpu()  # inference: steps 30


def epochs():
    model = Net().to(dev)
    optimizer = torch.optim.Adam(model.parameters())
    scores = []
    for _ in range(5):
        for _ in range(12):
            optimizer.zero_grad()
            loss_of(model, batch()).backward()
            optimizer.step()  # epochs: steps 60
        with torch.no_grad():
            for _ in range(20):
                scores.append(model(batch()))  # epochs: grows
        model.eval().train()


def marked():
    model = Net().to(dev).eval()
    with torch.no_grad():
        for i in range(12):
            with torch.cuda.nvtx.range(f"request {i}"):  # marked: steps 12
                for _ in range(1 + i % 3):
                    model(batch())


def closure():
    model = Net().to(dev)
    optimizer = torch.optim.Adam(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, batch())
        loss.backward()
        return loss

    for _ in range(12):
        optimizer.step(closure)  # closure: steps 12


def graph():
    model = Net().to(dev)
    optimizer = torch.optim.Adam(model.parameters())
    total = 0
    for _ in range(40):
        optimizer.zero_grad()
        loss_of(model, batch()).backward()
        optimizer.step()  # graph: steps 40
        total = total + loss_of(model, batch())  # graph: grows


def tenth():
    model = Net().to(dev)
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for i in range(100):
        optimizer.zero_grad()
        loss = loss_of(model, batch())
        loss.backward()
        optimizer.step()  # tenth: steps 100
        if i % 10 == 0:
            losses.append(loss.detach().clone())  # tenth: grows


def level():
    """A buffer that fills up, an average allocated late, and momentum."""
    model = Net().to(dev)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    recent, average = [], None
    for i in range(100):
        x = batch()
        recent = [*recent[-59:], x]
        optimizer.zero_grad()
        loss_of(model, x).backward()
        optimizer.step()  # level: steps 100
        if i > 30:
            with torch.no_grad():
                now = [p.clone() for p in model.parameters()]
                average = [a * 0.9 + p * 0.1 for a, p in zip(average, now)] if average else now


if __name__ == "__main__":
    if sys.argv[1] == "failing":
        make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.1), "adam": torch.optim.Adam,
                "fused": lambda p: torch.optim.AdamW(p, fused=True)}[sys.argv[4]]
        failing(int(sys.argv[2]), sys.argv[3], make, amp="amp" in sys.argv)
    else:
        globals()[sys.argv[1]]()
