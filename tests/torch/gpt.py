"""GPT-2 in plain PyTorch: a training loop of a few steps, and what PyTorch's own counters say of it.

  gpt.py [--layers N] [--hidden N] … : see below; writes config.json as Hugging Face would, into the working folder
"""
import argparse
import contextlib
import json

import torch
from chosen_operations import operations_kept
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
for name, default in dict(layers=6, hidden=512, heads=8, vocab=8192, context=512, batch=4, seq=256, steps=3).items():
    parser.add_argument(f"--{name}", type=int, default=default)
parser.add_argument("--precision", choices=["fp32", "amp", "bf16"], default="fp32")
parser.add_argument("--attention", choices=["flash", "eager"], default="flash")
parser.add_argument("--checkpointing", choices=["none", "selective-op", "full"], default="none")
parser.add_argument("--optimizer", choices=["adamw", "sgd"], default="adamw")
parser.add_argument("--step", choices=["foreach", "fused", "loop"], default="foreach")
a = parser.parse_args()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        d = a.hidden
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attend(self, q, k, v):
        if a.attention == "flash":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril()
        return torch.softmax(scores.masked_fill(~mask, float("-inf")), -1) @ v

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.ln_1(x)).view(b, t, 3, a.heads, d // a.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(a.vocab, a.hidden), nn.Embedding(a.context, a.hidden)
        self.blocks = nn.ModuleList(Block() for _ in range(a.layers))
        self.norm, self.head = nn.LayerNorm(a.hidden), nn.Linear(a.hidden, a.vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            if a.checkpointing == "none":
                x = block(x)
            else:
                x = operations_kept(block, x) if a.checkpointing == "selective-op" else checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def main():
    model = GPT().cuda()
    if a.precision == "bf16":
        model = model.bfloat16()
    how = dict(foreach=a.step == "foreach", fused=a.step == "fused")
    optimizer = (torch.optim.AdamW(model.parameters(), lr=3e-4, **how) if a.optimizer == "adamw"
                 else torch.optim.SGD(model.parameters(), lr=0.1, **how))
    for _ in range(a.steps):
        ids = torch.randint(0, a.vocab, (a.batch, a.seq)).cuda()
        with torch.autocast("cuda", torch.bfloat16) if a.precision == "amp" else contextlib.nullcontext():
            loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with open("config.json", "w") as out:
        json.dump(dict(model_type="gpt2", n_layer=a.layers, n_embd=a.hidden, n_head=a.heads, n_positions=a.context,
                       vocab_size=a.vocab, tie_word_embeddings=True, activation_function="gelu_pytorch_tanh", use_cache=False,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0), out)
    print(json.dumps(dict(parameters=sum(p.numel() for p in model.parameters()),
                          allocated=torch.cuda.max_memory_allocated(), reserved=torch.cuda.max_memory_reserved())))


main()
