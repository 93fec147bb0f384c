"""Models of gpuspy estimate: by name, as published, and from a shape; what is refused, and the list of models."""
import json
import os
import subprocess

import pytest

from conftest import BUILD, SECONDS

SHAPE = {"layers": 32, "hidden": 4096, "heads": 32, "ffn": 11008, "vocab": 32000}


def estimate(*words, columns=80):
    env = {**os.environ, "COLUMNS": str(columns), "LC_ALL": "C.UTF-8"}
    return subprocess.run([str(BUILD / "gpuspy"), "estimate", *map(str, words)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=env, timeout=SECONDS)


def parameters(*words):
    done = estimate(*words, "--json")
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)["params"]


def options(shape):
    return [word for name, value in shape.items() for word in (f"--{name}", value)]


def refused(*words):
    done = estimate(*words)
    assert done.returncode == 2 and not done.stdout
    line, = done.stderr.splitlines()
    return line


def test_the_list_of_models():
    models = json.loads(estimate("--models", "--json").stdout)["models"]
    by_name = {m["name"]: m for m in models}
    assert len(by_name) == len(models) > 200
    assert by_name["llama-3-8b"]["parameters"] == 8030261248 and by_name["llama-3-8b"]["kv_heads"] == 8
    assert by_name["llama-3.3-70b"]["same_as"] == "llama-3.1-70b"
    for columns in (80, 200):
        text = estimate("--models", columns=columns).stdout
        assert all(len(line) <= columns and line == line.rstrip() for line in text.splitlines())
        assert all(f"\n{name} " in text for name in by_name)
        assert ("8,030,261,248" in text) == (columns == 200)


@pytest.mark.parametrize("published, params", [
    ("meta-llama/Llama-2-7b-hf", 6738415616), ("Qwen/Qwen2.5-0.5B-Instruct", 494032768),
    ("google/gemma-2-2b-it", 2614341888), ("mistralai/Mixtral-8x7B-Instruct-v0.1", 46702792704),
    ("resnet50", 25557032), ("GPT2", 124439808)])
def test_published_names(published, params):
    assert parameters("--model", published) == params


def test_what_is_on_the_disk_goes_before_a_published_name(tmp_path):
    (tmp_path / "gpt2").mkdir()
    done = estimate("--model", tmp_path / "gpt2")
    assert done.returncode == 3 and str(tmp_path) in done.stderr


def test_a_shape_is_counted():
    assert parameters(*options(SHAPE)) == 6738415616
    assert parameters(*options({"family": "gpt", "layers": 12, "hidden": 768, "heads": 12, "vocab": 50257,
                                "context": 1024})) == 124439808
    experts = {"kv-heads": 8, "ffn": 14336, "experts": 8, "experts-used": 2}
    assert parameters(*options({**SHAPE, **experts})) == 46702792704


@pytest.mark.parametrize("change, says", [
    ({"heads": 33}, "33 heads do not divide a hidden size of 4096"),
    ({"kv-heads": 5}, "5 heads of keys and values do not divide 32 heads"),
    ({"hidden": None}, "needs --hidden too"), ({"vocab": None}, "needs --vocab too"), ({"ffn": None}, "needs --ffn too"),
    ({"experts": 8}, "needs --experts-used too"), ({"experts": 8, "experts-used": 9}, "cannot use 9 of 8 experts"),
    ({"experts-used": 2}, "needs --experts too"),
    ({"family": "gpt"}, "needs --context too"), ({"family": "conv"}, "known by name"),
    ({"vocab": 10**12}, "more than any model has"), ({"layers": 10001}, "layers of 10001 is more than any model has"),
    ({"layers": 1000, "hidden": 4 * 10**8}, "more than 1e15 parameters"),
])
def test_contradictions(change, says):
    shape = {name: value for name, value in {**SHAPE, **change}.items() if value is not None}
    assert says in refused(*options(shape))


def test_a_name_that_is_not_known():
    assert "did you mean 'llama-3-8b'" in refused("--model", "lama-3-8b")
    assert "did you mean 'gemma-3-4b'" in refused("--model", "google/gemma-3-4bb-it")
    for more in ("-Instruct-AWQ", "-FP8", "-128k-GGUF"):
        assert "did you mean 'qwen2.5-7b'" in refused("--model", "Qwen/Qwen2.5-7B" + more)
    assert "2507 is read as a qwen2.5-7b, whose name it contains" in estimate("--model", "Qwen/Qwen2.5-7B-Instruct-2507").stdout
    assert "did you mean 'gpt2-medium'" in refused("--model", "gpt2-mediun")
    assert "--models" in refused("--model", "zzzzzzzz")
    assert "did you mean 'llama-3-8b', 'llama-3-70b'?" in refused("--model", "llama3")
    assert "did you mean 'llama-3.1-8b', 'llama-3.1-70b'," in refused("--model", "llama3.1")
    assert "'llama-3-70b', 'llama-3.1-70b'," in refused("--model", "Llama_70B")
    assert "did you mean 'phi-3-mini', 'phi-3-mini-4k'," in refused("--model", "phi3")


CONFIGS = {
    "t5": ({"num_layers": 6, "num_decoder_layers": 6, "d_model": 512, "num_heads": 8, "d_kv": 64, "d_ff": 2048,
            "vocab_size": 32128, "feed_forward_proj": "relu", "is_encoder_decoder": True}, 60506624),
    "mt5": ({"num_layers": 8, "d_model": 512, "num_heads": 6, "d_kv": 64, "d_ff": 1024, "vocab_size": 250112,
             "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "is_encoder_decoder": True}, 300176768),
    "mpt": ({"d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432, "expansion_ratio": 4}, 6649286656),
    "phimoe": ({"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                "intermediate_size": 6400, "vocab_size": 32064, "num_local_experts": 16, "num_experts_per_tok": 2,
                "attention_bias": True, "lm_head_bias": True}, 41873153344),
    "llama4_text": ({"hidden_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
                     "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "vocab_size": 202048,
                     "num_local_experts": 16, "num_experts_per_tok": 1, "interleave_moe_layer_step": 1}, 107769861120),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_config_is_counted(kind, tmp_path):
    """Counts of transformers 5.23 on the meta device."""
    config, params = CONFIGS[kind]
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind, **config}))
    assert parameters("--model", tmp_path) == params


UNHEARD_OF = {"model_type": "unheard_of", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,
              "num_attention_heads": 4, "vocab_size": 100}
ATTENTION, MLP, NORMS, ENDS = 4 * 64 * 64, 3 * 128 * 64, 2 * 64, 2 * 100 * 64 + 64


def unheard_of(path, **keys):
    (path / "config.json").write_text(json.dumps(dict(UNHEARD_OF, **keys)))
    return path / "config.json"


def test_an_unknown_type_is_read_by_its_keys(tmp_path):
    """A note that a type is unknown does not excuse a tenth of its parameters."""
    assert parameters("--model", unheard_of(tmp_path)) == ENDS + 4 * (ATTENTION + MLP + NORMS)
    experts = dict(num_local_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, num_dense_layers=1)
    sparse = 8 * 3 * 32 * 64 + 8 * 64
    assert parameters("--model", unheard_of(tmp_path, **experts)) == ENDS + 4 * (ATTENTION + NORMS) + MLP + 3 * sparse
    done = estimate("--model", unheard_of(tmp_path, num_local_experts=8))
    assert done.returncode == 3 and "num_experts_per_tok is missing" in done.stderr
    conv = dict(layer_types=["conv", "conv", "conv", "full_attention"], conv_L_cache=3)
    short = 3 * 64 * 64 + 3 * 64 + 64 * 64
    assert parameters("--model", unheard_of(tmp_path, **conv)) == ENDS + ATTENTION + 3 * short + 4 * (MLP + NORMS)


@pytest.mark.parametrize("keys", [{"memory_layer_size": 512}, {"num_meta_heads": 4}, {"adapter_rank": 8}, {"use_extra_norm": True}])
def test_keys_that_are_not_understood_are_listed(tmp_path, keys):
    done = estimate("--model", unheard_of(tmp_path, **keys))
    assert done.returncode == 0 and "may change the count: " + list(keys)[0] in done.stdout.replace("\n", " ")


@pytest.mark.parametrize("keys", [{"rope_theta": 1e6}, {"num_return_sequences": 2}, {"bos_token_id": 7}, {"attention_dropout": 0.1},
                                  {"adapter_rank": None}, {"use_extra_norm": False}, {"max_position_embeddings": 4096}])
def test_other_keys_are_not(tmp_path, keys):
    assert "may change the count" not in estimate("--model", unheard_of(tmp_path, **keys)).stdout


def test_a_layer_that_is_not_understood_is_refused(tmp_path):
    done = estimate("--model", unheard_of(tmp_path, layer_types=["full_attention", "hyena", "hyena", "hyena"]))
    assert done.returncode == 3 and "'hyena', which gpuspy does not know" in done.stderr


def cache_lines(model, seq):
    answer = json.loads(estimate("--model", model, "--inference", "--batch", 1, "--seq", seq, "--json").stdout)
    return {line["name"]: line["bytes"] for line in answer["lines"] if line["part"] == "kv_cache"}


def test_only_layers_with_keys_have_a_cache(tmp_path):
    """Jamba has attention in 4 of 32 layers, LFM2-350M in 6 of 16; the states have the same size at any length."""
    for model, cache, short in (("jamba-v0.1", 4 * 2 * 8 * 128 * 2, 28 * (8192 * 4 * 2 + 8192 * 16 * 4)),
                                ("lfm2-350m", 6 * 2 * 8 * 64 * 2, 10 * 1024 * 3 * 2)):
        for seq in (1000, 3000):
            lines = cache_lines(model, seq)
            assert lines["KV cache"] == cache * seq and lines["states, the same at any length"] == short


def test_images_of_another_size():
    def peak(*words):
        return json.loads(estimate(*words, "--json").stdout)["phases"]["forward_end"]["bytes"]

    assert parameters("--model", "vit-b-16", "--image", 384) == 86567656 + (24 * 24 - 14 * 14) * 768
    assert parameters("--model", "resnet-50", "--image", 448) == 25557032
    small, large = (peak("--model", "resnet-50", "--batch", 32, "--image", side) for side in (224, 448))
    assert large > 2 * small
    assert "do not divide" in refused("--model", "vit-b-16", "--image", 225)
    assert "too small" in refused("--model", "alexnet", "--image", 16)
    assert "not an image model" in refused("--model", "gpt2", "--image", 224)
    assert "--model resnet-50" in refused("--params", "7B", "--image", 224)


def test_few_layers_of_several_kinds_have_activations():
    """--solve layers: one layer of Jamba beside 8 x 4,096 tokens needs more than its weights."""
    def most(*words):
        return json.loads(estimate("--model", "jamba-v0.1", *words, "--memory", "60GiB", "--solve", "layers", "--json").stdout)["solve"]["likely"]

    assert most("--batch", 1, "--seq", 128)["value"] == 1
    assert most("--batch", 8, "--seq", 4096) is None
