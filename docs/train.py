import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        h = F.gelu(self.up(self.norm(x)))
        return x + self.down(h)


class Model(nn.Module):
    def __init__(self, d=1024, depth=8):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(d) for _ in range(depth)])
        self.head = nn.Linear(d, 1000)

    def forward(self, x):
        self.features = self.blocks(x)
        return self.head(self.features)


def train(epochs=1000):
    data = TensorDataset(torch.randn(16384, 1024), torch.randint(0, 1000, (16384,)))
    model = Model().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    features, correct = [], 0
    for epoch in range(epochs):
        for x, y in DataLoader(data, batch_size=4096, shuffle=True):
            x, y = x.cuda(), y.cuda()
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            correct += (logits.argmax(1) == y).sum().item()
            features.append(model.features)  # to look at them later


train()
