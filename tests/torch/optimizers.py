"""What every optimizer of torch.optim keeps and uses in a step, by PyTorch's own counters; one JSON line each.
optimizers.py FILE.safetensors also writes the parameters' names and shapes there"""
import json
import struct
import sys

import torch

SHAPES = {"model.embed_tokens.weight": (4000, 256), "model.norm.weight": (1024,), "lm_head.weight": (2048, 256)}
for layer in range(3):
    at = f"model.layers.{layer}"
    SHAPES |= {f"{at}.self_attn.q_proj.weight": (256, 256), f"{at}.self_attn.o_proj.weight": (256, 256),
               f"{at}.mlp.up_proj.weight": (1024, 256), f"{at}.mlp.down_proj.weight": (256, 1024),
               f"{at}.input_layernorm.weight": (256,)}

O = torch.optim
OPTIMIZERS = {
    "sgd": (O.SGD, {}), "sgd-momentum": (O.SGD, {"momentum": .9}), "adam": (O.Adam, {}), "adamw": (O.AdamW, {}),
    "adam-amsgrad": (O.Adam, {"amsgrad": True}), "adamw-amsgrad": (O.AdamW, {"amsgrad": True}), "nadam": (O.NAdam, {}),
    "radam": (O.RAdam, {}), "adamax": (O.Adamax, {}), "adadelta": (O.Adadelta, {}), "adagrad": (O.Adagrad, {}),
    "asgd": (O.ASGD, {}), "rprop": (O.Rprop, {}), "rmsprop": (O.RMSprop, {}),
    "rmsprop-momentum": (O.RMSprop, {"momentum": .9}), "rmsprop-centered": (O.RMSprop, {"centered": True}),
    "adafactor": (O.Adafactor, {}),
}
STEPS = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}


def header(path):
    offset, tensors = 0, {}
    for name, shape in SHAPES.items():
        size = 4 * torch.Size(shape).numel()
        tensors[name] = {"dtype": "F32", "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(tensors).encode()
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + offset)


def requested(which="current"):
    """The requested bytes: blocks may be larger, by 512 bytes or by the rest of a cached block of up to 1 MiB."""
    return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]


def measure(make, more, element):
    start = requested()
    parameters = [torch.nn.Parameter(torch.zeros(shape, device="cuda", dtype=element)) for shape in SHAPES.values()]
    for p in parameters:
        p.grad = torch.zeros_like(p)
    held = requested()
    optimizer = make(parameters, **more)
    optimizer.step()
    states = requested()
    torch.cuda.reset_peak_memory_stats()
    optimizer.step()
    return {"weights": (held - start) // 2, "states": states - held,
            "step": requested("peak") - states, "tensors": len(parameters)}


header(sys.argv[1])
torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")  # cuBLAS's workspace
for name, (make, arguments) in OPTIMIZERS.items():
    for step, how in STEPS.items():
        for precision, element in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
            try:
                found = measure(make, {"lr": .1} | arguments | how, element)
            except (TypeError, RuntimeError):  # there is no such kernel
                continue
            print(json.dumps({"optimizer": name, "way": step, "precision": precision} | found))
