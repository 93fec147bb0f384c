"""Programs that check values: distributions, a loop as in PPO, a variational autoencoder."""
import random
import sys

import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn

d = "cuda"


def distributions():
    z = torch.zeros(4, 3, device=d)
    normal = D.Normal(z, torch.exp(z))
    normal.log_prob(normal.sample() + normal.rsample())
    for one in (D.Categorical(logits=z), D.Categorical(probs=torch.softmax(z, -1)), D.Bernoulli(probs=torch.sigmoid(z)),
                D.Gamma(F.softplus(z), F.softplus(z)), D.Beta(F.softplus(z) + 1, F.softplus(z) + 1),
                D.Independent(normal, 1), D.TransformedDistribution(normal, [D.TanhTransform()])):
        one.log_prob(one.sample())
    D.kl_divergence(normal, D.Normal(torch.zeros_like(z), torch.ones_like(z)))
    D.Dirichlet(torch.softmax(z, -1)).sample()
    for shape in ({"scale_tril": torch.eye(3, device=d)}, {"covariance_matrix": torch.eye(3, device=d)}):
        joint = D.MultivariateNormal(torch.zeros(3, device=d), **shape)
        joint.log_prob(joint.sample())


def ppo():
    policy, value = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2)).to(d), nn.Linear(4, 1).to(d)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], 3e-4)
    seen, acts, logs = [], [], []
    while len(seen) < 200:
        x = torch.tensor([random.random() for _ in range(4)], device=d)
        p = D.Categorical(logits=policy(x))
        a = p.sample()
        seen.append(x)
        acts.append(a)
        logs.append(p.log_prob(a).detach())
        a.item()
    x, a, old = torch.stack(seen), torch.stack(acts), torch.stack(logs)
    for _ in range(4):
        for b in torch.randperm(200, device=d).split(50):
            p = D.Categorical(logits=policy(x[b]))
            ratio = (p.log_prob(a[b]) - old[b]).exp()
            loss = -ratio.mean() + value(x[b]).pow(2).mean() - 0.01 * p.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(policy.parameters(), 0.5, error_if_nonfinite=True)
            optimizer.step()
        if (old - D.Categorical(logits=policy(x)).log_prob(a)).mean().item() > 0.02:
            break


def vae():
    encoder, decoder = nn.Linear(784, 40).to(d), nn.Linear(20, 784).to(d)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in range(10):
        x = torch.rand(32, 784).to(d)
        mean, log_variance = encoder(x).chunk(2, -1)
        q = D.Normal(mean, (log_variance * 0.5).exp())
        loss = F.binary_cross_entropy(torch.sigmoid(decoder(q.rsample())), x, reduction="sum")
        loss = loss + D.kl_divergence(q, D.Normal(torch.zeros_like(mean), torch.ones_like(mean))).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if torch.isnan(loss):
            raise ValueError("loss is not a number")


for name in sys.argv[1:]:
    globals()[name]()
    print(name, "ended", flush=True)
