"""Features of a few batches, each of which keeps the graph of a library's deep network: hardly anything is freed."""
import torch
from torch import nn

LIBRARY = """
from torch import nn

class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, out, 3, stride=stride, padding=1), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out)
        self.act1, self.act2 = nn.ReLU(inplace=True), nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.conv1(x)
        y = self.bn1(y)
        y = self.act1(y)
        y = self.conv2(y)
        y = self.bn2(y)
        return self.act2(y)

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1, self.act1 = nn.Conv2d(3, 64, 7, stride=2, padding=3), nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1, self.layer2 = Block(64, 64, 1), Block(64, 128, 2)
        self.layer3, self.layer4 = Block(128, 256, 2), Block(256, 512, 2)

    def forward(self, x):
        x = self.conv1(x)
        x = self.bn1(x)
        x = self.act1(x)
        x = self.maxpool(x)
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.layer3(x)
        x = self.layer4(x)
        return x.mean((2, 3))
"""
library = {"__name__": "timm.models.resnet"}
exec(compile(LIBRARY, "/usr/lib/python3/site-packages/timm/models/resnet.py", "exec"), library)
encoder = library["Encoder"]()
encoder.eval().to("cuda")
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.zeros(96, 3, 224, 224)), batch_size=6)
features = []
for (images,) in loader:
    images = images.to("cuda", non_blocking=True)
    output = encoder(images)
    features.append(output)
print(torch.cat(features).cpu().shape)
