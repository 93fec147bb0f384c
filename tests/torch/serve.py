"""A decoder built like transformers' Llama, serving a batch: prefill, then some tokens. Prints PyTorch's counters."""
import json
import sys

import torch
from torch import nn
from torch.nn import functional as F

a = json.loads(sys.argv[1])
HEAD = a["hidden"] // a["heads"]
DTYPE = getattr(torch, a.get("dtype", "bfloat16"))


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(a["hidden"]))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(kind)


def turned(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def eager(q, keys, values):
    """Computes the whole matrix of scores, like transformers' eager_attention_forward."""
    share = q.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(share, 1), values.repeat_interleave(share, 1)
    mask = torch.zeros(q.shape[0], 1, q.shape[2], keys.shape[2], dtype=DTYPE, device="cuda")
    scores = torch.matmul(q, keys.transpose(2, 3)) * HEAD ** -0.5
    scores = scores + mask
    scores = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return torch.matmul(scores, values)


def linear(n_in, n_out):
    return nn.Linear(n_in, n_out, bias=False)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        h, kv = a["hidden"], a["kv_heads"] * HEAD
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = linear(h, h), linear(h, kv), linear(h, kv), linear(h, h)
        self.gate_proj, self.up_proj, self.down_proj = linear(h, a["ffn"]), linear(h, a["ffn"]), linear(a["ffn"], h)
        self.input_layernorm, self.post_attention_layernorm = Norm(), Norm()
        self.keys = self.values = None

    def attend(self, x, cos, sin):
        b, s, _ = x.shape
        q = self.q_proj(x).view(b, s, -1, HEAD).transpose(1, 2)
        k = self.k_proj(x).view(b, s, -1, HEAD).transpose(1, 2)
        v = self.v_proj(x).view(b, s, -1, HEAD).transpose(1, 2)
        q, k = q * cos + turned(q) * sin, k * cos + turned(k) * sin
        if self.keys is None:
            self.keys, self.values = k, v
        else:
            self.keys = torch.cat((self.keys, k), dim=-2)
            self.values = torch.cat((self.values, v), dim=-2)
        if a.get("attention") == "eager":
            out = eager(q, self.keys, self.values)
        else:
            out = F.scaled_dot_product_attention(q, self.keys, self.values, is_causal=s > 1, enable_gqa=True)
        return self.o_proj(out.transpose(1, 2).reshape(b, s, -1))

    def forward(self, x, cos, sin):
        residual = x
        x = self.input_layernorm(x)
        x = self.attend(x, cos, sin)
        x = residual + x
        residual = x
        x = self.post_attention_layernorm(x)
        x = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return residual + x


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(a["vocab"], a["hidden"])
        self.layers = nn.ModuleList(Layer() for _ in range(a["layers"]))
        self.norm = Norm()
        self.lm_head = linear(a["hidden"], a["vocab"])

    def forward(self, ids, start):
        x = embedded = self.embed_tokens(ids)  # kept to the end, as in transformers
        at = torch.arange(start, start + ids.shape[1], device="cuda", dtype=torch.float32)
        angle = torch.outer(at, 1 / 10000 ** (torch.arange(0, HEAD, 2, device="cuda") / HEAD))
        angle = torch.cat((angle, angle), dim=-1)
        cos, sin = angle.cos().to(DTYPE), angle.sin().to(DTYPE)
        for layer in self.layers:
            x = layer(x, cos, sin)
        del embedded
        return self.lm_head(self.norm(x)[:, -1:])


torch.set_default_dtype(DTYPE)
with torch.device("cuda"), torch.no_grad():
    model = Decoder().eval()
    reported = {"params": sum(p.numel() for p in model.parameters())}
    torch.cuda.synchronize()
    reported["weights"] = torch.cuda.memory_allocated()
    prompt = a["seq"] - a["new"]
    ids = torch.zeros(a["batch"], prompt, dtype=torch.long)
    logits = model(ids, 0)
    reported["prefill_peak"] = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    for i in range(a["new"]):
        token = logits[:, -1].float().argmax(-1, keepdim=True)
        logits = model(token, prompt + i)
    reported["decode_peak"] = torch.cuda.max_memory_allocated()
    reported["cache"] = sum(t.untyped_storage().nbytes() for layer in model.layers for t in (layer.keys, layer.values))
print(json.dumps(reported))
