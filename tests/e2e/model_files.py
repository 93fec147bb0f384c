"""Writers of model files by the specification of their formats: safetensors, its index, GGUF. The data is a hole in the
file."""
import json
import struct

SIZES = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "I64": 64, "I32": 32, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F4": 4}


def header(tensors):
    """From {name: (type, shape)}: the header and the size of the data."""
    rows, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape) in tensors.items():
        bits = SIZES[kind]
        for n in shape:
            bits *= n
        rows[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + bits // 8]}
        at += bits // 8
    text = json.dumps(rows).encode()
    return text + b" " * (-len(text) % 8), at


def safetensors(path, tensors):
    text, size = header(tensors)
    raw_safetensors(path, text, size)
    return path


def raw_safetensors(path, text, size, length=None):
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text) if length is None else length) + text)
        f.truncate(8 + len(text) + size)  # no data is written: a hole in the file
    return path


def llama(layers, h, heads, kv, ffn, vocab, kind="BF16", tied=False):
    d, t = h // heads, {"model.embed_tokens.weight": (kind, (vocab, h))}
    for i in range(layers):
        for name, shape in {"self_attn.q_proj": (h, h), "self_attn.k_proj": (kv * d, h), "self_attn.v_proj": (kv * d, h),
                            "self_attn.o_proj": (h, h), "mlp.gate_proj": (ffn, h), "mlp.up_proj": (ffn, h),
                            "mlp.down_proj": (h, ffn), "input_layernorm": (h,), "post_attention_layernorm": (h,)}.items():
            t[f"model.layers.{i}.{name}.weight"] = (kind, shape)
    t["model.norm.weight"] = (kind, (h,))
    if not tied:
        t["lm_head.weight"] = (kind, (vocab, h))
    return t


def sharded(folder, tensors, n):
    """With the index that names the shards."""
    names, map_ = list(tensors), {}
    for i in range(n):
        file = f"model-{i + 1:05}-of-{n:05}.safetensors"
        safetensors(folder / file, {name: tensors[name] for name in names[i::n]})
        map_.update({name: file for name in names[i::n]})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": map_}))
    return map_


GGML = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q8_0": (8, 32, 34), "Q4_K": (12, 256, 144),
        "Q6_K": (14, 256, 210), "IQ1_M": (29, 256, 56), "MXFP4": (39, 32, 17)}


def text(s):
    s = s if isinstance(s, bytes) else s.encode()
    return struct.pack("<Q", len(s)) + s


def value(v):
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, list) and v and isinstance(v[0], str):
        return struct.pack("<IIQ", 9, 8, len(v)) + b"".join(text(x) for x in v)
    if isinstance(v, list):
        return struct.pack("<IIQ", 9, 5, len(v)) + b"".join(struct.pack("<i", x) for x in v)
    return struct.pack("<II", 4, v)


def gguf(path, keys, tensors, version=3, cut=0):
    """From {name: (type, shape in PyTorch's order)}. Returns the tensors' bytes without padding."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    head += b"".join(text(k) + value(v) for k, v in keys.items())
    at = total = 0
    for name, (kind, shape) in tensors.items():
        number, block, size = GGML[kind]
        elements = 1
        for n in shape:
            elements *= n
        head += text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", number, at)
        total += elements // block * size
        at += -(-elements // block * size // 32) * 32
    with open(path, "wb") as f:
        f.write(head)
        f.truncate(-(-len(head) // 32) * 32 + at - cut)
    return total


KEYS = {"general.architecture": "llama", "llama.block_count": 2, "llama.embedding_length": 512,
        "llama.attention.head_count": 8, "llama.attention.head_count_kv": 2, "llama.feed_forward_length": 1024,
        "llama.context_length": 4096, "tokenizer.ggml.tokens": ["a", ""] * 500, "llama.rope.freq_base": 1e4}


def gguf_llama(kind="Q4_K", layers=2):
    t = {"token_embd.weight": (kind, (1000, 512)), "output_norm.weight": ("F32", (512,)), "output.weight": ("Q6_K", (1000, 512))}
    for i in range(layers):
        for name, shape in {"attn_q": (512, 512), "attn_k": (128, 512), "attn_v": (128, 512), "attn_output": (512, 512),
                            "ffn_gate": (1024, 512), "ffn_up": (1024, 512), "ffn_down": (512, 1024)}.items():
            t[f"blk.{i}.{name}.weight"] = ("Q6_K" if name == "attn_v" and i else kind, shape)
        t[f"blk.{i}.attn_norm.weight"] = t[f"blk.{i}.ffn_norm.weight"] = ("F32", (512,))
    return t


GGUF_LLAMA = 2 * 1000 * 512 + 512 + 2 * (2 * 512 * 512 + 2 * 128 * 512 + 3 * 1024 * 512 + 2 * 512)
