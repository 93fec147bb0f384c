"""Programs of many kinds. In each, the tensors of one line outlive their step; that line ends with "# --without". With
DROP=1 they are freed at the end of each step, with EMPTY=N the cache is emptied after every N steps, and FACTOR
multiplies the batch. changed.py NAME."""
import collections
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

DROP, EMPTY, FACTOR = "DROP" in os.environ, int(os.environ.get("EMPTY", 0)), float(os.environ.get("FACTOR", 1))
STEPS = int(os.environ.get("STEPS", 9))
device = "cuda"


def batch(n):
    return max(1, int(n * FACTOR))


def stacked(width, depth, **more):
    return nn.Sequential(*[layer for _ in range(depth) for layer in (nn.Linear(width, width, **more), nn.ReLU())]).to(device)


def end_step(step):
    if EMPTY and (step + 1) % EMPTY == 0:
        torch.cuda.empty_cache()


def training():
    """A list of losses, each with its output."""
    model, history = stacked(384, 6), []
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        x = torch.randn(batch(700 + 90 * (step % 4)), 384, device=device)
        y = model(x)  # --without
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        history.append([y, loss])
        if DROP:
            history[-1][0] = y = None
        end_step(step)


def inference():
    """Results of a data set that stay on the GPU."""
    model, results = stacked(512, 4).eval(), []
    with torch.no_grad():
        for step in range(STEPS):
            x = torch.randn(batch(300 + 150 * (step % 3)), 512, device=device)
            results.append(model(x))  # --without
            if DROP:
                results.clear()
            end_step(step)


def generation():
    """Keys and values of a transformer that grow token by token; the logits of all tokens."""
    width, vocabulary, logits = 256, 3000, []
    project, head = nn.Linear(width, 3 * width).to(device), nn.Linear(width, vocabulary).to(device)
    rows = batch(24)
    x = torch.randn(rows, 20, width, device=device)
    keys = values = torch.empty(rows, 0, width, device=device)
    with torch.no_grad():
        for step in range(4 * STEPS):
            q, k, v = project(x).chunk(3, -1)
            keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
            mixed = (q @ keys.transpose(1, 2)).softmax(-1) @ values
            logits.append(head(mixed[:, -1:]))  # --without
            x = mixed[:, -1:]
            if DROP:
                logits.clear()
            end_step(step)


def accumulation():
    """Gradients of four batches before each step; hidden states are kept."""
    first, second, hidden = stacked(320, 3), stacked(320, 3), []
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], 0.1, momentum=0.9)
    for step in range(STEPS):
        for part in range(4):
            h = first(torch.randn(batch(250 + 40 * part), 320, device=device))
            hidden.append(h.detach() * 2)  # --without
            (second(h).mean() / 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        if DROP:
            hidden.clear()
        end_step(step)


def checkpointing():
    """Blocks whose activations are computed again; a feature of the middle is kept."""
    blocks, features = nn.ModuleList([stacked(256, 2) for _ in range(6)]), []
    optimizer = torch.optim.Adam(blocks.parameters(), foreach=False)
    for step in range(STEPS):
        optimizer.zero_grad()
        x = torch.randn(batch(900 + 120 * (step % 2)), 256, device=device, requires_grad=True)
        for k, block in enumerate(blocks):
            x = checkpoint(block, x, use_reentrant=False)
            if k == 3:
                features.append(x.detach().clone())  # --without
        x.mean().backward()
        optimizer.step()
        if DROP:
            features.clear()
        end_step(step)


def streams():
    """A stream copies the next batch while the step runs; outputs are kept."""
    model, kept, side = stacked(448, 4), [], torch.cuda.Stream()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    ahead = torch.randn(batch(400), 448, device=device)
    for step in range(STEPS):
        x = ahead
        with torch.cuda.stream(side):
            ahead = torch.randn(batch(400 + 50 * (step % 3)), 448, device=device)
        torch.cuda.current_stream().wait_stream(side)
        y = model(x)
        kept.append(y.detach().float() + 1)  # --without
        y.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if DROP:
            kept.clear()
        end_step(step)


def two_devices():
    """The same model on two GPUs; each rank's gradients go to the first."""
    models, kept = [stacked(288, 5).to(f"cuda:{k}") for k in (0, 1)], []
    optimizers = [torch.optim.AdamW(m.parameters()) for m in models]
    for step in range(STEPS):
        for k, model in enumerate(models):
            y = model(torch.randn(batch(500 + 70 * step % 200), 288, device=f"cuda:{k}"))
            kept.append(y.detach().clone())  # --without
            y.mean().backward()
        for a, b in zip(models[0].parameters(), models[1].parameters()):
            a.grad.add_(b.grad.to("cuda:0"))
            b.grad.copy_(a.grad)
        for optimizer in optimizers:
            optimizer.step()
        for optimizer in optimizers:
            optimizer.zero_grad()
        if DROP:
            kept.clear()
        end_step(step)


def mixed():
    """autocast with a scaler; half-precision outputs are kept."""
    model, kept = stacked(512, 5), []
    optimizer, scaler = torch.optim.Adam(model.parameters()), torch.amp.GradScaler("cuda")
    for step in range(STEPS):
        with torch.autocast("cuda", dtype=torch.float16):
            y = model(torch.randn(batch(600), 512, device=device))  # --without
            loss = y.float().mean()
        kept.append(y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if DROP:
            kept.clear()
            del y, loss
        end_step(step)


class LowRank(nn.Module):
    def __init__(self, base, rank=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x)) * 2


def adapters():
    """A frozen model with adapters; the optimizer sets gradients to zero at the top of the loop."""
    model = nn.Sequential(*[LowRank(nn.Linear(640, 640)) for _ in range(5)]).to(device)
    optimizer, outputs = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]), {}
    for step in range(STEPS):
        optimizer.zero_grad()
        y = model(torch.randn(batch(350 + 30 * step), 640, device=device))
        outputs[step] = y.softmax(-1)  # --without
        outputs[step].square().mean().backward()
        optimizer.step()
        if DROP:
            outputs.clear()
        end_step(step)


def adversarial():
    """Two networks in turn; samples are kept to be shown later."""
    generator = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 2048)).to(device)
    judge = nn.Sequential(nn.Linear(2048, 512), nn.ReLU(), nn.Linear(512, 1)).to(device)
    for_generator, for_judge = (torch.optim.Adam(m.parameters()) for m in (generator, judge))
    samples = []
    for step in range(STEPS):
        n = batch(200 + 60 * (step % 3))
        fake = generator(torch.randn(n, 64, device=device))
        (judge(torch.randn(n, 2048, device=device)).mean() - judge(fake.detach()).mean()).backward()
        for_judge.step()
        for_judge.zero_grad()
        judge(fake).mean().neg().backward()
        for_generator.step()
        for_generator.zero_grad()
        samples.append(fake.detach().clamp(-1, 1))  # --without
        if DROP:
            samples.clear()
        end_step(step)


def buffer():
    """A replay buffer with a limit, from which each step samples."""
    policy, memory = stacked(128, 3), collections.deque(maxlen=12)
    optimizer = torch.optim.RMSprop(policy.parameters())
    for step in range(2 * STEPS):
        with torch.no_grad():
            state = torch.randn(batch(3000), 128, device=device)
            action = policy(state)
        memory.append((state, action))
        taken = torch.cat([a for _, a in memory])  # --without
        (policy(memory[0][0]) - taken[:len(state)]).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if DROP:
            del taken
        end_step(step)


def averaged():
    """An average of the weights that is made anew in each step."""
    model, average = stacked(512, 4), None
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(STEPS):
        model(torch.randn(batch(200), 512, device=device)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average = [p.detach() * 0.1 for p in model.parameters()]  # --without
        if DROP:
            average = None
        end_step(step)


def recurrent():
    """A hidden state that the next step needs; all states are kept, too."""
    cell, head, states = nn.GRUCell(192, 384).to(device), nn.Linear(384, 900).to(device), []
    optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
    h = torch.zeros(batch(500), 384, device=device)
    for step in range(STEPS):
        h = h.detach()
        for _ in range(5):
            h = cell(torch.randn(len(h), 192, device=device), h)
            states.append(head(h).argmax(-1).float())  # --without
        head(h).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if DROP:
            states.clear()
        end_step(step)


def contrast():
    """Keys of earlier batches in a queue of fixed size; similarities are kept."""
    query, key = stacked(256, 3), stacked(256, 3).requires_grad_(False)
    queue, kept = torch.randn(4000, 256, device=device), []
    optimizer = torch.optim.SGD(query.parameters(), 0.1)
    for step in range(STEPS):
        x = torch.randn(batch(256), 256, device=device)
        with torch.no_grad():
            k = F.normalize(key(x))
        similar = F.normalize(query(x)) @ torch.cat([k, queue]).T
        kept.append(similar.detach().exp())  # --without
        F.cross_entropy(similar, torch.zeros(len(x), dtype=torch.long, device=device)).backward()
        optimizer.step()
        optimizer.zero_grad()
        queue = torch.cat([k, queue])[:4000]
        if DROP:
            kept.clear()
        end_step(step)


def convolutions():
    """Images of several sizes; feature maps are kept by a hook."""
    torch.backends.cudnn.enabled = False
    model = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 48, 3, stride=2), nn.ReLU(),
                          nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(768, 10)).to(device)
    maps = {}

    def keep(module, inputs, output):
        maps[len(maps)] = output.detach().cpu().to(device)  # --without
    model[1].register_forward_hook(keep)
    optimizer = torch.optim.Adam(model.parameters())
    for step in range(STEPS):
        side = (64, 96, 80)[step % 3]
        model(torch.randn(batch(6), 3, side, side, device=device)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if DROP:
            maps.clear()
        end_step(step)


def validation():
    """An evaluation after every third step, whose outputs are kept."""
    model, outputs = stacked(384, 4), []
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        model(torch.randn(batch(500), 384, device=device)).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 2:
            with torch.no_grad():
                for _ in range(2):
                    outputs.append(model(torch.randn(batch(800), 384, device=device)))  # --without
        if DROP:
            outputs.clear()
        end_step(step)


def closure():
    """An optimizer that calls the model itself, several times per step."""
    model, seen = stacked(256, 2), []
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3, history_size=4)
    for step in range(STEPS):
        x = torch.randn(batch(600), 256, device=device)

        def evaluate():
            optimizer.zero_grad()
            y = model(x)
            seen.append(y.detach() + 1)  # --without
            loss = y.square().mean()
            loss.backward()
            return loss
        optimizer.step(evaluate)
        if DROP:
            seen.clear()
        end_step(step)


def epochs():
    """Each epoch ends with an evaluation, whose batches are larger."""
    model, history = stacked(384, 6), []
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def evaluate():
        with torch.no_grad():
            return [model(torch.randn(batch(5000 + 300 * k), 384, device=device)).sum(1) for k in range(3)]

    for epoch in range(3):
        for step in range(4 * epoch, 4 * epoch + 4):
            x = torch.randn(batch(700 + 90 * step), 384, device=device)
            y = model(x)  # --without
            optimizer.zero_grad()
            y.square().mean().backward()
            optimizer.step()
            history.append(y)
            if DROP:
                history.clear()
                del y
            end_step(step)
        evaluate()


PROGRAMS = [f.__name__ for f in (
    training, inference, generation, accumulation, checkpointing, streams, two_devices, mixed, adapters, adversarial,
    buffer, averaged, recurrent, contrast, convolutions, validation, closure, epochs)]

if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    print("peak", *[torch.cuda.memory_stats(k)["reserved_bytes.all.peak"] for k in range(torch.cuda.device_count())])
