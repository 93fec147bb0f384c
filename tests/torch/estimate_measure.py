"""What training a model really needs: PyTorch's counters at the moments that `gpuspy estimate` names.

  estimate_measure.py [--family llama] [--layers N] …   models in plain PyTorch, written as Hugging Face writes them;
                                                        config.json is left in the working folder for --model
  estimate_measure.py --hf gpt2 …                       the same of transformers' model of that configuration (no
                                                        weights are fetched: config.json's path, or a model type)

Prints one JSON object; the moments are of the last step, when the optimizer has its states. On several GPUs:
estimate_sharded.py.
"""
import argparse
import contextlib
import json
import math

import torch
import torch.nn.functional as F
from torch import nn
from chosen_operations import chosen_operations, operations_kept
from torch.utils.checkpoint import checkpoint

parser = argparse.ArgumentParser()
for name, default in dict(layers=4, hidden=512, heads=8, kv_heads=0, ffn=0, vocab=4096, context=2048, batch=4, seq=512,
                          steps=2, lora=0).items():
    parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
parser.add_argument("--family", choices=["gpt", "llama", "bert"], default="llama")
parser.add_argument("--precision", choices=["fp32", "amp-bf16", "bf16"], default="fp32")
parser.add_argument("--attention", choices=["flash", "eager"], default="flash")
parser.add_argument("--checkpointing", choices=["none", "selective-op", "full"], default="none")
parser.add_argument("--optimizer", choices=["adamw", "fused", "sgd"], default="adamw")
parser.add_argument("--no-cache", action="store_true", help="the model of --hf makes no KV cache in training")
parser.add_argument("--drop-logits", action="store_true", help="the script lets go of the logits before backward")
parser.add_argument("--recipe", choices=["eager", "compiled"],
                    help="like torchtune: parameters step in backward, and the loss has 8 pieces")
parser.add_argument("--how", choices=["ddp", "ddp_view", "fsdp", "grad_op", "fully_shard", "fully_shard_kept"],
                    default="ddp", help="of several ranks")
parser.add_argument("--ranks", type=int, default=2)
parser.add_argument("--hf", help="a folder with a config.json, of a causal language model")
a = parser.parse_args()
a.kv_heads = a.kv_heads or a.heads
a.ffn = a.ffn or 4 * a.hidden
CONFIG = {
    "gpt": dict(model_type="gpt2", n_layer=a.layers, n_embd=a.hidden, n_head=a.heads, n_inner=a.ffn, n_positions=a.context,
                vocab_size=a.vocab, tie_word_embeddings=True),
    "llama": dict(model_type="llama", num_hidden_layers=a.layers, hidden_size=a.hidden, num_attention_heads=a.heads,
                  num_key_value_heads=a.kv_heads, intermediate_size=a.ffn, vocab_size=a.vocab,
                  max_position_embeddings=a.context, tie_word_embeddings=False),
    "bert": dict(model_type="bert", num_hidden_layers=a.layers, hidden_size=a.hidden, num_attention_heads=a.heads,
                 intermediate_size=a.ffn, vocab_size=a.vocab, max_position_embeddings=a.context, type_vocab_size=2),
}
DROP = 0.1


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x.to(kind)


def rotated(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class Attention(nn.Module):
    def __init__(self, causal, dropout, bias):
        super().__init__()
        d, size = a.hidden, a.hidden // a.heads
        self.causal, self.dropout, self.size = causal, dropout, size
        self.one = a.family == "gpt"
        if self.one:
            self.qkv = nn.Linear(d, 3 * d)
        else:
            self.q, self.k, self.v = (nn.Linear(d, n * size, bias=bias) for n in (a.heads, a.kv_heads, a.kv_heads))
        self.out = nn.Linear(d, d, bias=bias)

    def forward(self, x, rotary=None):
        b, t, d = x.shape
        parts = self.qkv(x).split(d, -1) if self.one else (self.q(x), self.k(x), self.v(x))
        q, k, v = (p.view(b, t, -1, self.size).transpose(1, 2) for p in parts)
        if rotary is not None:
            q, k = rotated(q, *rotary), rotated(k, *rotary)
        p = self.dropout if self.training else 0.0
        if a.attention == "flash":
            grouped = {"enable_gqa": True} if a.kv_heads != a.heads else {}
            out = F.scaled_dot_product_attention(q, k, v, dropout_p=p, is_causal=self.causal, **grouped)
        else:
            if a.kv_heads != a.heads:
                k, v = (x[:, :, None].expand(-1, -1, a.heads // a.kv_heads, -1, -1).reshape(b, a.heads, t, self.size)
                        for x in (k, v))
            scores = q @ k.transpose(-1, -2) * self.size**-0.5
            if self.causal:
                scores = scores + torch.full((t, t), float("-inf"), device=x.device, dtype=scores.dtype).triu(1)
            if a.family == "llama":
                scores = F.softmax(scores, -1, dtype=torch.float32).to(q.dtype)
            else:
                scores = F.softmax(scores, -1).type(v.dtype)
            out = F.dropout(scores, p) @ v
        return self.out(out.transpose(1, 2).reshape(b, t, d))


def gelu_new(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        d, llama = a.hidden, a.family == "llama"
        norm = RMSNorm if llama else nn.LayerNorm
        self.norm_1, self.norm_2 = norm(d), norm(d)
        self.attention = Attention(a.family != "bert", 0.0 if llama else DROP, not llama)
        self.up, self.down = nn.Linear(d, a.ffn, bias=not llama), nn.Linear(a.ffn, d, bias=not llama)
        if llama:
            self.gate = nn.Linear(d, a.ffn, bias=False)
        self.drop_1, self.drop_2 = nn.Dropout(0.0 if llama else DROP), nn.Dropout(0.0 if llama else DROP)

    def forward(self, x, *rotary):
        if a.family == "bert":  # norms after each part
            x = self.norm_1(x + self.drop_1(self.attention(x)))
            return self.norm_2(x + self.drop_2(self.down(F.gelu(self.up(x)))))
        x = x + self.drop_1(self.attention(self.norm_1(x), rotary or None))
        y = self.norm_2(x)
        y = F.silu(self.gate(y)) * self.up(y) if a.family == "llama" else gelu_new(self.up(y))
        return x + self.drop_2(self.down(y))


CHECKPOINTS = {
    "none": lambda layer, *x: layer(*x),
    "full": lambda layer, *x: checkpoint(layer, *x, use_reentrant=False),
    "selective-op": operations_kept,
}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        d = a.hidden
        self.tokens = nn.Embedding(a.vocab, d)
        if a.family != "llama":
            self.positions = nn.Embedding(a.context, d)
        if a.family == "bert":
            self.types, self.first, self.pooler = nn.Embedding(2, d), nn.LayerNorm(d), nn.Linear(d, d)
            self.classes = nn.Linear(d, 2)
        else:
            self.head = nn.Linear(d, a.vocab, bias=False)
            self.last = RMSNorm(d) if a.family == "llama" else nn.LayerNorm(d)
        if a.family == "gpt":
            self.head.weight = self.tokens.weight
        self.drop = nn.Dropout(0.0 if a.family == "llama" else DROP)
        self.layers = nn.ModuleList(Layer() for _ in range(a.layers))

    def rotary(self, x):
        size = a.hidden // a.heads
        angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(),
                             1e4 ** (-torch.arange(0, size, 2, device=x.device).float() / size)).repeat(1, 2)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    def forward(self, ids):
        x, rotary = self.tokens(ids), ()
        if a.family == "llama":
            rotary = self.rotary(x)
        else:
            x = x + self.positions(torch.arange(ids.shape[1], device=ids.device))
        if a.family == "bert":
            x = self.first(x + self.types(torch.zeros_like(ids)))
        x = self.drop(x)
        for layer in self.layers:
            x = CHECKPOINTS[a.checkpointing](layer, x, *rotary)
        if a.family == "bert":
            return self.classes(self.drop(torch.tanh(self.pooler(x[:, 0]))))
        if a.recipe:
            return [self.head(piece) for piece in self.last(x).tensor_split(8, 1)]
        return self.head(self.last(x))


def step_in_backward(model, made):
    """An optimizer for each parameter, which steps as soon as the gradient is complete."""
    each = {p: made([p]) for p in model.parameters()}

    def step(p):
        each[p].step()
        each[p].zero_grad(set_to_none=True)

    for p in each:
        p.register_post_accumulate_grad_hook(step)


def loss_of_piece(logits, goals):
    return F.cross_entropy(logits.float(), goals, reduction="sum")


class CompiledLoss(torch.autograd.Function):
    """What torch.compile makes of loss_of_piece: float32 only in registers, the logits are kept."""
    @staticmethod
    def forward(ctx, logits, goals):
        ctx.save_for_backward(logits)
        return torch.zeros((), device=logits.device)

    @staticmethod
    def backward(ctx, _):
        return torch.empty_like(ctx.saved_tensors[0]), None


def loss_of(model, ids):
    """The loss, and the logits, which the caller keeps."""
    if a.hf:
        out = model(input_ids=ids, labels=ids)
        return out.loss, None if a.drop_logits else out.logits
    logits = model(ids)
    if a.family == "bert":
        return F.cross_entropy(logits, ids[:, 0] % 2), logits
    if a.recipe:
        of_piece = CompiledLoss.apply if a.recipe == "compiled" else loss_of_piece
        return sum(of_piece(piece.reshape(-1, a.vocab), goal.reshape(-1))
                   for piece, goal in zip(logits, ids.tensor_split(8, 1))), None
    wide = logits.float()
    loss = F.cross_entropy(wide.view(-1, a.vocab), F.pad(ids, (0, 1), value=-100)[:, 1:].reshape(-1))
    return loss, None if a.drop_logits else logits


def made():
    if not a.hf:
        return Model()
    import transformers
    config = transformers.AutoConfig.from_pretrained(a.hf)
    config.use_cache = not a.no_cache
    # reads values to decide whether the positions are packed sequences; on the simulated GPU the values mean nothing
    import transformers.masking_utils as masks
    masks.find_packed_sequence_indices = lambda *_: None
    model = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="eager" if a.attention == "eager" else "sdpa")
    if a.checkpointing != "none":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False} | (
            {"context_fn": chosen_operations} if a.checkpointing == "selective-op" else {}))
    return model


def train(wrapped=lambda model: model, cast=a.precision.startswith("amp")):
    cuda = torch.cuda
    kind = torch.bfloat16 if a.precision == "bf16" else torch.float32
    torch.set_default_dtype(kind)
    with torch.device("cuda"):
        model = made()
    torch.set_default_dtype(torch.float32)
    model.train()
    parameters = sum(p.numel() for p in model.parameters())
    model = wrapped(model)
    made_of = {"adamw": lambda p: torch.optim.AdamW(p, lr=1e-4), "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
                 "fused": lambda p: torch.optim.AdamW(p, lr=1e-4, fused=True)}[a.optimizer]
    optimizer = None if a.recipe else made_of(model.parameters())
    if a.recipe:
        step_in_backward(model, made_of)
    reported = dict(parameters=parameters, loaded=cuda.memory_allocated(), torch=torch.__version__)
    ids = torch.zeros(a.batch, a.seq, dtype=torch.long, device="cuda")
    for _ in range(a.steps):
        reported["begin"] = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        with torch.autocast("cuda", torch.bfloat16) if cast else contextlib.nullcontext():
            loss, logits = loss_of(model, ids)
        reported["forward_end"], reported["forward_peak"] = cuda.memory_allocated(), cuda.max_memory_allocated()
        cuda.reset_peak_memory_stats()
        loss.backward()
        reported["backward_end"], reported["backward_peak"] = cuda.memory_allocated(), cuda.max_memory_allocated()
        del loss, logits
        cuda.reset_peak_memory_stats()
        if optimizer:
            optimizer.step()
            reported["step_peak"] = cuda.max_memory_allocated()
            optimizer.zero_grad(set_to_none=True)
    if not a.hf:
        with open("config.json", "w") as out:
            json.dump(CONFIG[a.family], out)
    return reported


if __name__ == "__main__":
    print(json.dumps(train()))
