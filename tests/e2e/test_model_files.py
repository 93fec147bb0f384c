"""Models from files: config.json, safetensors, GGUF. Every file is written here according to its format."""
import json
import os
import struct
import subprocess
import sys

import pytest

from conftest import BUILD, SECONDS
from model_counts import COUNTS
from model_files import GGML, GGUF_LLAMA, KEYS, gguf, gguf_llama, llama, raw_safetensors, safetensors, sharded

LLAMA_2_7B = dict(model_type="llama", hidden_size=4096, intermediate_size=11008, num_attention_heads=32,
                  num_hidden_layers=32, vocab_size=32000, torch_dtype="float16")


def estimate(path, *more, code=0, columns=200):
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", str(path), "--json", *more], capture_output=True,
                          text=True, timeout=SECONDS, env=dict(os.environ, COLUMNS=str(columns)))
    assert done.returncode == code, done.stderr
    if code == 0:
        return json.loads(done.stdout)
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("gpuspy: estimate: ") and not done.stdout
    assert "\x1b" not in done.stderr
    return done.stderr


def notes(answer):
    return " ".join(answer["notes"]) if "notes" in answer else json.dumps(answer, ensure_ascii=False)


# ---------------------------------------------------------------- config.json


@pytest.mark.parametrize("kind, config, params", COUNTS, ids=[f"{i}-{row[0]}" for i, row in enumerate(COUNTS)])
def test_config_counts_as_transformers_does(tmp_path, kind, config, params):
    (tmp_path / "config.json").write_text(json.dumps(dict(config, model_type=kind)))
    assert estimate(tmp_path / "config.json")["params"] == params
    assert estimate(tmp_path)["params"] == params  # the folder


def test_transformers_counts_the_same():
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    for kind, config, params in COUNTS:
        made = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in config.items() if k not in ("architectures",)})
        door = (getattr(transformers, config["architectures"][0])._from_config if "architectures" in config else
                transformers.AutoModelForSpeechSeq2Seq.from_config if kind == "whisper" else
                transformers.AutoModel.from_config if kind in ("bert", "roberta", "xlm-roberta", "camembert", "distilbert", "vit")
                else transformers.AutoModelForCausalLM.from_config)
        with torch.device("meta"):
            model = door(made)
        model.tie_weights()
        assert sum(p.numel() for p in {id(p): p for p in model.parameters()}.values()) == params, kind


BITS_4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
GROUP_8 = {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}, "input_activations": {"num_bits": 8}}}}


@pytest.mark.parametrize("stated, form", [
    (BITS_4, "nf4"), (dict(BITS_4, bnb_4bit_use_double_quant=True), "nf4-double"), ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "fp4"), ({"quant_method": "awq", "bits": 4}, "awq"), ({"quant_method": "gptq", "bits": 8}, "gptq-8bit"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"), ({"quant_method": "fbgemm_fp8"}, "fp8"), ({"quant_method": "mxfp4"}, "mxfp4"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"), (GROUP_8, "w8a8")])
def test_quantised_weights_are_served_as_they_are_stored(tmp_path, stated, form):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": stated}))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "config.json").write_text('{"model_type": "llama"}')

    def weights(where, *more):
        return [line["bytes"] for line in estimate(where / "config.json", "--batch", "1", "--seq", "128", *more)["lines"] if line["part"] == "weights"]
    for use in (["--inference"], ["--adapter", "lora", "--precision", "bf16"]):
        assert weights(tmp_path, *use) == weights(tmp_path / "plain", *use, "--weights", form)
    assert weights(tmp_path, "--inference", "--weights", "bf16") == weights(tmp_path / "plain", "--inference")
    assert weights(tmp_path) == weights(tmp_path / "plain")  # trained in full
    assert f"are {form} (quantization_config)" in notes(estimate(tmp_path / "config.json"))


@pytest.mark.parametrize("stated", [{"quant_method": "hqq"}, {"quant_method": "compressed-tensors", "config_groups": {
    "group_0": {"weights": {"num_bits": 4, "type": "int"}}, "group_1": {"weights": {"num_bits": 8, "type": "float"}}}}])
def test_an_unknown_quantisation_is_stated(tmp_path, stated):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "quantization_config": stated}))
    assert f"quantization_config ('{stated['quant_method']}') is not considered; give --weights" in notes(estimate(tmp_path / "config.json"))


def test_an_empty_quantisation_is_none(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "llama", "quantization_config": {}}')
    assert not [note for note in notes(estimate(tmp_path / "config.json")) if "quantization_config" in note]


def config(tmp_path, raw=None, **keys):
    path = tmp_path / "config.json"
    path.write_bytes(raw if raw is not None else json.dumps(dict(LLAMA_2_7B, **keys)).encode())
    return path


@pytest.mark.parametrize("keys, word", [
    (dict(num_attention_heads=33), "num_attention_heads is 33, which does not divide hidden_size, 4096"),
    (dict(num_key_value_heads=5), "num_key_value_heads is 5, which does not divide num_attention_heads, 32"),
    (dict(hidden_size=0), "hidden_size"), (dict(hidden_size=-4096), "hidden_size"), (dict(hidden_size="4096"), "hidden_size"),
    (dict(vocab_size=1.5), "vocab_size"), (dict(num_hidden_layers=2**62), "num_hidden_layers"),
    (dict(num_hidden_layers=10000, hidden_size=10**9, num_attention_heads=1), "1e15"),
    (dict(tie_word_embeddings="yes"), "tie_word_embeddings"), (dict(head_dim=[]), "head_dim"),
    (dict(model_type="lama", vocab_size=None), "did you mean 'llama'"), (dict(model_type="mixtral", num_experts_per_tok=9), "num_experts_per_tok"),
    (dict(model_type="rwkv", hidden_size=None), "'rwkv' is unknown"), (dict(model_type=None, vocab_size=None), "model_type"),
    (dict(model_type="qwen3_moe", decoder_sparse_step=0), "decoder_sparse_step"),
    (dict(model_type="gpt2", add_cross_attention=True), "add_cross_attention"),
    (dict(model_type="vit", image_size=100, patch_size=16, num_attention_heads=32), "patch_size"),
    (dict(peft_type="LORA"), "adapter"),
])
def test_config_that_contradicts_itself(tmp_path, keys, word):
    line = estimate(config(tmp_path, **keys), code=3)
    assert word in line and "config.json" in line


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b'{"a":1,"a":2}', b"[" * 100000, b'{"hidden_size":1e400}',
                                 b'{"hidden_size":99999999999999999999}', b'\xff\xfe{"a":1}', b'{"model_type":"a\x00b"}',
                                 b'{"model_type":"\\u0000"}', b'{"model_type":"\\u001b[31mred"}', b"\x00" * 100], ids=range(13))
def test_invalid_config(tmp_path, raw):
    assert "config.json" in estimate(config(tmp_path, raw), code=3)


def test_config_unknown_but_like_a_llama(tmp_path):
    answer = estimate(config(tmp_path, model_type="brand\x1bnew"))
    assert answer["params"] == 6738415616
    assert "gpuspy reads it as a Llama" in notes(answer) and "\x1b" not in notes(answer)


@pytest.mark.parametrize("key, value", [("conv_dim", [512, 512]), ("patch_size", 16), ("type_vocab_size", 2), ("attention_hidden_size", 768)])
def test_config_unknown_and_unlike_a_llama(tmp_path, key, value):
    """wav2vec2, read as a Llama, was estimated 36 % too low."""
    assert "is unknown" in estimate(config(tmp_path, model_type="brand-new", **{key: value}), code=3)


def test_config_of_a_model_with_images(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava", "text_config": LLAMA_2_7B, "vision_config": {}}))
    answer = estimate(tmp_path)
    assert answer["params"] == 6738415616 and "only the language model" in notes(answer)
    safetensors(tmp_path / "model.safetensors", dict(llama(1, 4096, 32, 32, 11008, 32000), **{"vision.w": ("BF16", (7, 9))}))
    answer = estimate(tmp_path)
    assert answer["params"] % 4096 == 63 and "of the whole model" in notes(answer)


def test_config_whose_outer_model_ties(tmp_path):
    """The language model of Mistral 3 as its class builds it: untied as a model of its own, tied as a part
    (transformers 5.23.0)."""
    inner = dict(model_type="mistral", hidden_size=5120, num_hidden_layers=40, num_attention_heads=32, num_key_value_heads=8,
                 head_dim=128, intermediate_size=32768, vocab_size=131072)
    for tied, params in ((True, 22_901_314_560), (False, 23_572_403_200)):
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "mistral3", "tie_word_embeddings": tied, "text_config": inner}))
        assert estimate(tmp_path)["params"] == params


def test_config_of_a_type_that_goes_by_another_name(tmp_path):
    """Qwen2.5-VL-72B's language model is Qwen2.5-72B; older files have its keys next to vision_config."""
    keys = dict(hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8, intermediate_size=29568,
                vocab_size=152064)
    for whole in (dict(keys, model_type="qwen2_5_vl", vision_config={"depth": 32}),
                  {"model_type": "qwen2_5_vl", "text_config": dict(keys, model_type="qwen2_5_vl_text")}):
        (tmp_path / "config.json").write_text(json.dumps(whole))
        answer = estimate(tmp_path)
        assert answer["params"] == 72_706_203_648 and "is counted, not its vision" in notes(answer)


def test_config_with_a_byte_order_mark(tmp_path):
    assert estimate(config(tmp_path, b"\xef\xbb\xbf" + json.dumps(LLAMA_2_7B).encode()))["params"] == 6738415616


def test_config_that_lists_its_dense_layers(tmp_path):
    def experts(**keys):
        answer = estimate(config(tmp_path, model_type="qwen3_moe", num_hidden_layers=4, num_key_value_heads=32, **keys))
        return answer["params"]
    each = (experts() - experts(mlp_only_layers=[0, 1, 2, 3])) // 4
    assert experts() - experts(mlp_only_layers=[2] * 5000 + [4, -1, "0", 10**9]) == each
    assert experts() - experts(mlp_only_layers=[1], decoder_sparse_step=2) == 3 * each


def test_config_with_what_only_python_calls_a_number(tmp_path):
    plain = estimate(config(tmp_path))["params"]
    assert estimate(config(tmp_path, time_step_limit=[0.0, float("inf"), -float("inf"), float("nan")],
                           text='a "NaN\\', other="Infinity"))["params"] == plain
    assert "vocab_size" in estimate(config(tmp_path, vocab_size=float("nan")), code=3)
    assert "is not JSON" in estimate(config(tmp_path, raw=b'{"a": Infinit'), code=3)
    safetensors(tmp_path / "model.safetensors", {"a": ("F32", (2, 3))})  # next to weights in another format
    config(tmp_path, model_type="unheard_of", hidden_size=None, time_step_limit=[0.0, float("inf")])
    assert estimate(tmp_path)["params"] == 6


def test_config_cut_at_every_byte(tmp_path):
    whole = json.dumps(dict(model_type="gpt2", n_embd=96, n_layer=2)).encode()
    for n in range(len(whole)):
        estimate(config(tmp_path, whole[:n]), code=3)


# ---------------------------------------------------------------- safetensors

def test_safetensors_of_llama_2_7b(tmp_path):
    """One file, shards with their index, a folder: the number of parameters of the built-in model, the bytes of the
    file."""
    tensors = llama(32, 4096, 32, 32, 11008, 32000, "F16")
    (tmp_path / "shards").mkdir()
    (tmp_path / "loose").mkdir()
    one = safetensors(tmp_path / "one.safetensors", tensors)
    sharded(tmp_path / "shards", tensors, 3)
    sharded(tmp_path / "loose", tensors, 2)
    (tmp_path / "loose" / "model.safetensors.index.json").unlink()
    for path in (one, tmp_path / "shards", tmp_path / "shards" / "model.safetensors.index.json", tmp_path / "loose"):
        assert estimate(path)["params"] == 6738415616
    assert estimate(tmp_path / "loose" / "model-00002-of-00002.safetensors")["params"] == 6738415616
    (tmp_path / "loose" / "model-00001-of-00002.safetensors").unlink()
    assert "model-00001-of-00002" in estimate(tmp_path / "loose", code=3)
    (tmp_path / "shards" / "config.json").write_text(json.dumps(LLAMA_2_7B))
    served = estimate(tmp_path / "shards", "--inference", "--batch", "1", "--seq", "128")
    lines = [line for line in served["lines"] if line["part"] == "weights"]
    assert [line["bytes"] for line in lines] == [2 * 6738415616]


def test_safetensors_that_the_library_writes(tmp_path):
    pytest.importorskip("safetensors")
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file
    save_file({"h.0.ln_1.weight": torch.zeros(8), "wte.weight": torch.zeros(10, 8, dtype=torch.bfloat16),
               "h.0.attn.bias": torch.zeros(1, 1, 4, 4), "position_ids": torch.zeros(7, dtype=torch.int64)}, tmp_path / "a.safetensors")
    assert estimate(tmp_path / "a.safetensors")["params"] == 88


def test_masks_and_statistics_are_not_parameters(tmp_path):
    """The file of GPT-2 holds causal masks: 137M numbers, of which 124M are parameters."""
    t = {"wte.weight": ("F32", (50257, 768)), "wpe.weight": ("F32", (1024, 768)), "ln_f.weight": ("F32", (768,)), "ln_f.bias": ("F32", (768,))}
    for i in range(12):
        t[f"h.{i}.attn.bias"] = ("F32", (1, 1, 1024, 1024))
        for name, shape in {"ln_1.weight": (768,), "ln_1.bias": (768,), "ln_2.weight": (768,), "ln_2.bias": (768,),
                            "attn.c_attn.weight": (768, 2304), "attn.c_attn.bias": (2304,), "attn.c_proj.weight": (768, 768),
                            "attn.c_proj.bias": (768,), "mlp.c_fc.weight": (768, 3072), "mlp.c_fc.bias": (3072,),
                            "mlp.c_proj.weight": (3072, 768), "mlp.c_proj.bias": (768,)}.items():
            t[f"h.{i}.{name}"] = ("F32", shape)
    answer = estimate(safetensors(tmp_path / "model.safetensors", t))
    assert answer["params"] == 124439808 and "are not parameters" in notes(answer)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    assert estimate(tmp_path, "--batch", "1", "--seq", "64")["params"] == 124439808


def test_tied_output_layer_that_is_stored_too(tmp_path):
    safetensors(tmp_path / "model.safetensors", llama(2, 64, 4, 2, 128, 100))
    keys = dict(model_type="llama", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                intermediate_size=128, vocab_size=100)
    counts = []
    for tied in (False, True):
        (tmp_path / "config.json").write_text(json.dumps(dict(keys, tie_word_embeddings=tied)))
        counts.append(estimate(tmp_path)["params"])
    assert counts[0] - counts[1] == 6400


def test_packed_weights_are_counted_unpacked(tmp_path):
    p, h = "model.layers.0.mlp.up_proj", 256
    cases = {
        "gptq": ({p + ".qweight": ("I32", (h // 8, 512)), p + ".qzeros": ("I32", (2, 64)), p + ".scales": ("F16", (2, 512)),
                  p + ".g_idx": ("I32", (h,))}, h * 512),
        "gptq3": ({p + ".qweight": ("I32", (h * 3 // 32, 512)), p + ".qzeros": ("I32", (2, 48)), p + ".scales": ("F16", (2, 512)),
                   p + ".g_idx": ("I32", (h,))}, h * 512),
        "awq": ({p + ".qweight": ("I32", (h, 64)), p + ".qzeros": ("I32", (2, 64)), p + ".scales": ("F16", (2, 512))}, h * 512),
        "nf4": ({p + ".weight": ("U8", (h * 256, 1)), p + ".weight.absmax": ("U8", (2048,)), p + ".weight.quant_map": ("F32", (16,)),
                 p + ".weight.nested_absmax": ("F32", (8,)), p + ".weight.quant_state.bitsandbytes__nf4": ("U8", (90,))}, h * 512),
        "int8": ({p + ".weight": ("I8", (512, h)), p + ".SCB": ("F32", (512,)), p + ".weight_format": ("U8", ())}, h * 512),
        "fp8": ({p + ".weight": ("F8_E4M3", (512, h)), p + ".weight_scale_inv": ("F32", (4, 2))}, h * 512),
        "mxfp4": ({"model.layers.0.mlp.experts.gate_up_proj_blocks": ("U8", (4, 64, 8, 16)),
                   "model.layers.0.mlp.experts.gate_up_proj_scales": ("U8", (4, 64, 8))}, 4 * 64 * 256),
        "plain": ({p + ".weight": ("BF16", (512, h)), "a.inv_freq": ("F32", (32,))}, h * 512),
    }
    for name, (tensors, params) in cases.items():
        tensors["model.norm.weight"] = ("F16", (h,))
        assert estimate(safetensors(tmp_path / f"{name}.safetensors", tensors))["params"] == params + h, name


def test_packed_weights_whose_bits_are_in_the_config(tmp_path):
    p = "model.layers.0.mlp.up_proj"
    t = {p + ".weight_packed": ("I32", (512, 32)), p + ".weight_scale": ("BF16", (512, 2)), p + ".weight_shape": ("I64", (2,))}
    safetensors(tmp_path / "model.safetensors", t)
    assert "stored words are counted" in notes(estimate(tmp_path / "model.safetensors"))
    groups = {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "strange", "quantization_config": groups}))
    assert estimate(tmp_path)["params"] == 512 * 256


def test_adapter(tmp_path):
    """LoRA of rank 8 on q and v of Llama-2-7B."""
    t = {}
    for i in range(32):
        for x in "qv":
            p = f"base_model.model.model.layers.{i}.self_attn.{x}_proj.lora_"
            t[p + "A.weight"], t[p + "B.weight"] = ("F32", (8, 4096)), ("F32", (4096, 8))
    safetensors(tmp_path / "adapter_model.safetensors", t)
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    answer = estimate(tmp_path)
    assert answer["params"] == 4194304 and "adapter" in notes(answer)


def test_of_another_model_than_its_config(tmp_path):
    safetensors(tmp_path / "model.safetensors", llama(2, 64, 4, 2, 128, 100))
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_2_7B))
    assert "another model" in estimate(tmp_path, code=3)


def test_folder_of_the_cache(tmp_path):
    commit = "0123456789abcdef" * 2 + "01234567"
    (tmp_path / "blobs").mkdir()
    (tmp_path / "refs").mkdir()
    (tmp_path / "snapshots" / commit).mkdir(parents=True)
    safetensors(tmp_path / "blobs" / "1f", llama(2, 64, 4, 2, 128, 100))
    (tmp_path / "snapshots" / commit / "model.safetensors").symlink_to(tmp_path / "blobs" / "1f")
    assert "name one of the folders" in estimate(tmp_path, code=3)
    os.mkfifo(tmp_path / "refs" / "main")
    assert "not a regular file" in estimate(tmp_path, code=3)
    (tmp_path / "refs" / "main").unlink()
    for text in ("", "main", commit[:39], "../" * 13 + "/"):
        (tmp_path / "refs" / "main").write_text(text)
        assert "name one of the folders" in estimate(tmp_path, code=3)
    (tmp_path / "refs" / "main").unlink()
    (tmp_path / "refs" / "main").write_text(commit)
    assert estimate(tmp_path)["params"] == estimate(tmp_path / "snapshots" / commit)["params"] > 0


def test_folder_of_the_cache_within_itself(tmp_path):
    commit = "0123456789abcdef" * 2 + "01234567"
    (tmp_path / "refs").mkdir()
    (tmp_path / "snapshots").mkdir()
    (tmp_path / "refs" / "main").write_text(commit)
    (tmp_path / "snapshots" / commit).symlink_to("..")
    assert "cannot be read" in estimate(tmp_path, code=3)


def row(kind="F32", shape=(2, 3), begin=0, end=24):
    return {"dtype": kind, "shape": list(shape), "data_offsets": [begin, end]}


@pytest.mark.parametrize("rows, size, word", [
    ({"a": row()}, 23, "cut off"), ({"a": row()}, 25, "after its last tensor"), ({"a": row("F33")}, 24, "dtype"),
    ({"a": row(begin=1, end=25)}, 25, "gap"), ({"a": row(), "b": row()}, 24, "overlaps"), ({"a": row(end=20)}, 20, "data_offsets"),
    ({"a": row(begin=24, end=0)}, 24, "data_offsets"), ({"a": row(shape=(2**63, 2))}, 24, "2^64"),
    ({"a": row(shape=(2**64 - 1,))}, 24, "2^64"), ({"a": row(shape=(2**70,))}, 24, "2^64"), ({"a": row(shape=(-2, -3))}, 24, "whole number"),
    ({"a": row(shape=(2.0, 3))}, 24, "whole number"), ({"a": row(shape=[1] * 100)}, 4, "64 dimensions"), ({"a": {}}, 0, "lacks"),
    ({"a": row(shape=(0, 3), end=0)}, 0, "no parameters"), ({}, 0, "no parameters"), ({"a": 1}, 0, "object"), ([], 0, "object"),
    ({"\x1b[31m": row("?")}, 24, "'?[31m'"), ({"a\x00b": row()}, 24, "NUL"), ({"x" * 5000: row()}, 24, "5000 bytes"),
    ({"a": row("F4", (1,), 0, 1)}, 1, "whole byte"), ({"__metadata__": {"a": [[[]] * 5]}, "a": row(end=23)}, 24, "data_offsets"),
])
def test_safetensors_that_contradict_themselves(tmp_path, rows, size, word):
    path = raw_safetensors(tmp_path / "a.safetensors", json.dumps(rows).encode(), size)
    assert word in estimate(path, code=3)


@pytest.mark.parametrize("header, word", [
    (b'{"a":{"dtype":"F32"', "ends in the middle"), (b'{"a":{"dtype":"F32","dtype":"F32"}}', "twice"),
    (b'{"a":{"x":' + b"[" * 100000, "nested too deeply"), (b'{"a":"\xff"}', "UTF-8"), (b'{"\\ud800":1}', "escape"), (b"", "ends"),
    (b'{"a":{"x":' + b'{"x":' * 100000, "nested too deeply"), (b"{}x", "continues after its end"), (b'{"\x01":1}', "control character"),
], ids=range(9))
def test_safetensors_whose_header_is_damaged(tmp_path, header, word):
    assert word in estimate(raw_safetensors(tmp_path / "a.safetensors", header, 0), code=3)


def test_safetensors_with_an_impossible_length(tmp_path):
    for length in (2**64 - 1, 2**63, 100_000_001, 10**9):
        assert "100 MB" in estimate(raw_safetensors(tmp_path / "a.safetensors", b"{}", 0, length), code=3)
    assert "cut off" in estimate(raw_safetensors(tmp_path / "a.safetensors", b"{}", 0, 99_999_999), code=3)


def test_safetensors_cut_at_every_byte(tmp_path):
    whole = safetensors(tmp_path / "whole.safetensors", {"a": ("F32", (2, 3)), "b": ("U8", (5,))}).read_bytes()
    for n in range(len(whole)):
        (tmp_path / "a.safetensors").write_bytes(whole[:n])
        estimate(tmp_path / "a.safetensors", code=3)


def test_safetensors_a_name_twice_in_two_files(tmp_path):
    for name in "ab":
        safetensors(tmp_path / f"{name}.safetensors", {"x": ("F32", (2, 3))})
    assert "twice" in estimate(tmp_path, code=3)


def test_index_of_what_is_not_there(tmp_path):
    map_ = sharded(tmp_path, llama(2, 64, 4, 2, 128, 100), 2)
    (tmp_path / "model-00002-of-00002.safetensors").rename(tmp_path / "elsewhere")
    assert "model-00002-of-00002.safetensors" in estimate(tmp_path, code=3)
    (tmp_path / "elsewhere").rename(tmp_path / "model-00002-of-00002.safetensors")
    for wrong, word in (({"nothing": "model-00001-of-00002.safetensors"}, "'nothing'"), ({"a": "../x.safetensors"}, "not a regular file in its folder"),
                        ({"a": "/etc/passwd"}, "not a regular file in its folder"), ({"a": "pytorch_model-00001.bin"}, "torch.save"), ({"a": ".."}, "not a regular file in its folder"), ({"a": 1}, "a string")):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": dict(map_, **wrong)}))
        assert word in estimate(tmp_path, code=3)
    for raw in ("{}", "[]", "", '{"weight_map":[]}', '{"weight_map":{}}'):
        (tmp_path / "model.safetensors.index.json").write_text(raw)
        estimate(tmp_path, code=3)


def test_a_huge_checkpoint_answers_at_once(tmp_path):
    """700 GB of experts: only the headers are read."""
    t = {f"model.layers.{i}.mlp.experts.{e}.{x}_proj.weight": ("BF16", (2048, 7168)) for i in range(47) for e in range(256)
         for x in ("gate", "up")}
    sharded(tmp_path, t, 20)
    assert estimate(tmp_path)["params"] == 47 * 256 * 2 * 2048 * 7168
    assert sum(file.stat().st_blocks * 512 for file in tmp_path.iterdir()) < 50 << 20


def test_more_forms_than_any_model_has(tmp_path):
    t = {f"t{i}x": ("U8", (i + 1,)) for i in range(5000)}
    assert "different forms" in estimate(safetensors(tmp_path / "a.safetensors", t), code=3)


# ---------------------------------------------------------------- GGUF

@pytest.mark.parametrize("kind", sorted(set(GGML) - {"F32"}))
def test_gguf(tmp_path, kind):
    stored = gguf(tmp_path / "a.gguf", KEYS, gguf_llama(kind))
    answer = estimate(tmp_path / "a.gguf", "--inference", "--batch", "1", "--seq", "128")
    assert answer["params"] == GGUF_LLAMA
    assert [line["bytes"] for line in answer["lines"] if line["part"] == "weights"] == [stored]


def test_gguf_version_2_and_a_folder(tmp_path):
    gguf(tmp_path / "a.gguf", KEYS, gguf_llama(), version=2)
    assert estimate(tmp_path)["params"] == GGUF_LLAMA
    gguf(tmp_path / "b.gguf", KEYS, gguf_llama())
    assert "2 .gguf files" in estimate(tmp_path, code=3)


def test_gguf_in_parts(tmp_path):
    t = gguf_llama()
    names = list(t)
    for i in range(3):
        split = {"split.no": i, "split.count": 3}
        gguf(tmp_path / f"m-{i + 1:05}-of-00003.gguf", dict(KEYS, **split) if i == 0 else split, {n: t[n] for n in names[i::3]})
    for path in (tmp_path / "m-00001-of-00003.gguf", tmp_path / "m-00003-of-00003.gguf", tmp_path):
        assert estimate(path)["params"] == GGUF_LLAMA
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    assert "m-00002-of-00003.gguf" in estimate(tmp_path, code=3)
    (tmp_path / "m-00003-of-00003.gguf").rename(tmp_path / "m-00002-of-00003.gguf")
    assert "part 3 of 3" in estimate(tmp_path / "m-00001-of-00003.gguf", code=3)
    (tmp_path / "m-00001-of-00003.gguf").rename(tmp_path / "renamed.gguf")
    assert "one of 3 files" in estimate(tmp_path / "renamed.gguf", code=3)


@pytest.mark.parametrize("stacked", [True, False])
def test_gguf_with_experts(tmp_path, stacked):
    """With one tensor per layer, or one per expert as in files before April 2024."""
    t = gguf_llama()
    for i in range(2):
        for name, shape in {"gate": (1024, 512), "up": (1024, 512), "down": (512, 1024)}.items():
            del t[f"blk.{i}.ffn_{name}.weight"]
            t.update({f"blk.{i}.ffn_{name}_exps.weight": ("MXFP4", (8, *shape))} if stacked else
                     {f"blk.{i}.ffn_{name}.{e}.weight": ("Q4_K", shape) for e in range(8)})
        t[f"blk.{i}.ffn_gate_inp.weight"] = ("F32", (8, 512))
    gguf(tmp_path / "a.gguf", dict(KEYS, **{"llama.expert_count": 8, "llama.expert_used_count": 2}), t)
    answer = estimate(tmp_path / "a.gguf", "--batch", "1", "--seq", "64")
    assert answer["params"] == GGUF_LLAMA + 2 * (7 * 3 * 1024 * 512 + 8 * 512)
    assert answer["model"]["family"] == "llama"


@pytest.mark.parametrize("keys, word", [
    ({"llama.embedding_length": 256}, "embedding_length is 256"), ({"llama.block_count": 1}, "block_count is 1"),
    ({"llama.block_count": 2**32 - 1}, "block_count"), ({"llama.attention.head_count_kv": 3}, "do not divide"),
    ({"general.alignment": 0}, "alignment"), ({"general.alignment": 33}, "alignment"), ({"llama.attention.head_count": 2**31}, "head_count"),
])
def test_gguf_that_contradicts_itself(tmp_path, keys, word):
    gguf(tmp_path / "a.gguf", dict(KEYS, **keys), gguf_llama())
    assert word in estimate(tmp_path / "a.gguf", code=3)


def test_gguf_of_an_unknown_architecture(tmp_path):
    gguf(tmp_path / "a.gguf", {"general.architecture": "new\x1b[31m"}, {"a": ("F32", (7,))})
    answer = estimate(tmp_path / "a.gguf")
    assert answer["params"] == 7 and "is unknown" in notes(answer) and "\x1b" not in notes(answer)


def test_gguf_with_more_texts_than_any_vocabulary(tmp_path):
    head = b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 10**9)
    with open(tmp_path / "a.gguf", "wb") as f:
        f.write(head)
        f.truncate(len(head) + 8 * 10**9)  # the data is empty: a hole in the file
    assert "texts" in estimate(tmp_path / "a.gguf", code=3)


def test_gguf_damaged(tmp_path):
    path = tmp_path / "a.gguf"
    gguf(path, KEYS, gguf_llama(), cut=32)
    assert "cut off" in estimate(path, code=3)
    gguf(path, KEYS, gguf_llama())
    whole = path.read_bytes()[:9000]
    for change, word in (((4, struct.pack("<I", 1)), "version 1"), ((4, struct.pack(">I", 3)), "big-endian"), ((4, b"\4"), "version 4"),
                         ((8, b"\xff" * 8), "cut off"), ((16, b"\xff" * 8), "keys"), ((24, b"\xff" * 8), "cut off")):
        at, raw = change
        path.write_bytes(whole[:at] + raw + whole[at + len(raw):])
        assert word in estimate(path, code=3)
    gguf(path, KEYS, dict(gguf_llama(), **{"odd": ("Q4_0", (2, 33))}))
    assert "whole blocks" in estimate(path, code=3)


def test_gguf_cut_at_every_byte(tmp_path):
    gguf(tmp_path / "whole.gguf", {"general.architecture": "x", "n": [1, 2], "s": ["a"]}, {"a": ("F32", (7,))})
    whole = (tmp_path / "whole.gguf").read_bytes()
    for n in range(len(whole) - 4):  # after it there is only padding
        (tmp_path / "a.gguf").write_bytes(whole[:n])
        estimate(tmp_path / "a.gguf", code=3)


# ---------------------------------------------------------------- other files

def test_files_that_are_not_models(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "model_index.json").write_text("{}")
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "pytorch_model.bin").write_bytes(b"PK\3\4" + b"\0" * 100)
    (tmp_path / "lfs.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n")
    (tmp_path / "zero.gguf").write_bytes(b"")
    (tmp_path / "text.bin").write_text("hello, this is no model")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    os.mkfifo(tmp_path / "fifo.gguf")
    for path, word in (("empty", "no config.json"), ("pipeline", "without a unet or transformer"), ("torch", "torch.save"), ("lfs.safetensors", "Git LFS"),
                       ("zero.gguf", "empty"), ("text.bin", "is not a model"), ("loop.json", "cannot be read"), ("fifo.gguf", "not a regular file"),
                       ("missing.json", "cannot be read")):
        assert word in estimate(tmp_path / path, code=3), path
    assert "not a regular file" in estimate("/dev/zero", code=3)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_input(tmp_path):
    path = config(tmp_path)
    path.chmod(0)
    assert "Permission denied" in estimate(path, code=3)


def test_a_name_with_escapes(tmp_path):
    folder = tmp_path / "evil\x1b[2J\xff"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", folder], capture_output=True, timeout=SECONDS)
    assert done.returncode == 0 and b"\x1b" not in done.stdout
    assert "\x1b" not in json.dumps(estimate(folder), ensure_ascii=False)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
