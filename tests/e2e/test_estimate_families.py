"""Trainings of small models of transformers 5.24, measured on the simulated GPU (PyTorch 2.11, batch 2, 512 tokens, AdamW):
the bytes that the script requested from PyTorch's allocator, without cuBLAS's workspaces."""
import json
import pathlib
import subprocess

import pytest
from conftest import BUILD, SECONDS

MODELS = json.loads((pathlib.Path(__file__).parent / "estimate_families.json").read_text())
TENSORS = ("weights", "gradients", "optimizer_states", "activations", "logits", "temporaries")
# of the bytes that forward and backward add to weights and states
PASS_ERROR = {"deepseek_v3": 0.06, "glm4_moe": 0.055}


def bytes_at(estimate, phase, parts=TENSORS):
    return sum(l["bytes"] for l in estimate["lines"] if phase in l["phases"] and l["part"] in parts and not l["host"])


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model["name"])
def test_a_family(model, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(model["config"]))
    for run in model["runs"]:
        done = subprocess.run(
            [BUILD / "gpuspy", "estimate", "--model", tmp_path / "config.json", "--optimizer", "adamw", "--batch", "2", "--seq",
             "512", "--precision", run["precision"], "--attention", run["attention"], "--checkpointing", run["checkpointing"],
             "--no-calibration", "--json"], capture_output=True, text=True, timeout=SECONDS)
        assert done.returncode == 0, done.stderr
        estimate = json.loads(done.stdout)
        assert estimate["params"] == model["parameters"]
        kept = bytes_at(estimate, "forward_end", ("weights", "optimizer_states"))
        likely = max(bytes_at(estimate, "forward_end"), bytes_at(estimate, "backward_end")) - kept
        error = likely / (run["pass_bytes"] - kept) - 1
        assert abs(error) <= PASS_ERROR.get(model["name"], 0.04), (run, error)
        assert abs(bytes_at(estimate, "step") / run["step_bytes"] - 1) <= 0.005, run


# Drawn at random (seed 20261128) from 21 model types and 9 torchvision models × batch, length, precision, checkpointing, attention,
# optimizer, accumulation and LoRA with dropout, before any was run: torch.cuda's peak of allocated bytes, third step, simulated H100.
# From ModernBERT on: runs of other encoders, encoder-decoders and image models of transformers 5.24, picked after formulas were
# compared with them: they show that nothing changed, not how accurate an unseen setting is. From BLOOM on:
# also peft 0.21 and bitsandbytes 0.50.
DRAWN = json.loads((pathlib.Path(__file__).parent / "estimate_drawn.json").read_text())
DRAWN_ERROR = {"mixtral-16": 0.04, "modernbert-base-mlm-fp32": 0.03, "beit-base-amp-ck": 0.04, "vit-ck-bf16": 0.04}


def allocated_at_peak(estimate):
    left = ("context", "communication", "allocator")
    moments = [[l for l in estimate["lines"] if phase in l["phases"] and not l["host"]
                and (l["part"] not in left or (l["part"] == "allocator" and l["name"].startswith("blocks")))]
               for phase in estimate["phases"]]
    return [max(sum(l[key] for l in lines) for lines in moments) for key in ("low_bytes", "bytes", "high_bytes")]


@pytest.mark.parametrize("run", DRAWN, ids=lambda run: run["name"])
def test_a_drawn_setting(run, tmp_path):
    if "config" in run:
        (tmp_path / "config.json").write_text(json.dumps(run["config"]))
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", run.get("model", tmp_path / "config.json"), *run["options"].split(),
                           "--gpu", "h200-141g", "--no-calibration", "--json"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    if not run["name"].startswith("vit"):  # without the pooler that gpuspy counts, with a classifier of two classes
        assert estimate["params"] == run["parameters"]
    low, likely, high = allocated_at_peak(estimate)
    assert abs(likely / run["peak_bytes"] - 1) <= DRAWN_ERROR.get(run["name"], 0.025)
    assert run["peak_bytes"] <= 1.01 * high or run["name"] in DRAWN_ERROR


# Chosen before they were run, of families and settings whose operations gpuspy partly replays as those of a plain model: PyTorch
# 2.11, transformers 5.24, peft 0.21, timm 1.0, simulated GPU with 140 GiB; the fourth step's peaks.
RESERVED = json.loads((pathlib.Path(__file__).parent / "estimate_reserved.json").read_text())


@pytest.mark.parametrize("run", RESERVED, ids=lambda run: run["name"])
def test_reserved_memory_of_other_families(run, tmp_path):
    """6 % of the short-lived memory was up to 19 % too little for those whose operations are not replayed one by one."""
    model = ["--model", tmp_path / "config.json"] if "config" in run else []
    (tmp_path / "config.json").write_text(json.dumps(run.get("config", {})))
    done = subprocess.run([BUILD / "gpuspy", "estimate", *model, *run["options"].split(), "--gpu", "h200-141g", "--no-calibration",
                           "--json"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    estimate = json.loads(done.stdout)
    moments = [[l for l in estimate["lines"] if phase in l["phases"] and not l["host"]
                and l["part"] not in ("context", "communication")] for phase in estimate["phases"]]
    low, likely, high = (max(sum(l[key] for l in lines) for lines in moments) for key in ("low_bytes", "bytes", "high_bytes"))
    assert abs(likely / run["reserved"] - 1) <= 0.06
    assert low <= run["reserved"] <= high
    assert abs(allocated_at_peak(estimate)[1] / run["allocated"] - 1) <= 0.06

# transformers 5.24 and PyTorch 2.11 on a simulated A100: torch.cuda's peak of allocated bytes of generate() with as many new tokens as
# the source has, and of one forward pass of an image model.
SERVED = [
    ('bart-base-gen', {'model_type': 'bart', 'd_model': 768, 'encoder_layers': 6, 'decoder_layers': 6, 'encoder_ffn_dim': 3072, 'decoder_ffn_dim': 3072, 'encoder_attention_heads': 12, 'decoder_attention_heads': 12, 'attention_dropout': 0.1, 'activation_dropout': 0.1},
     '--precision bf16 --batch 8 --seq 512', 465793536),
    ('bart-large-gen', {'model_type': 'bart'},
     '--precision bf16 --batch 4 --seq 512', 1033929216),
    ('m2m-gen', {'model_type': 'm2m_100'},
     '--precision bf16 --batch 16 --seq 256', 1438655488),
    ('pegasus-gen', {'model_type': 'pegasus', 'vocab_size': 96103, 'd_model': 1024, 'encoder_layers': 16, 'decoder_layers': 16, 'encoder_ffn_dim': 4096, 'decoder_ffn_dim': 4096, 'encoder_attention_heads': 16, 'decoder_attention_heads': 16, 'max_position_embeddings': 1024},
     '--precision bf16 --batch 4 --seq 512', 1435339264),
    ('bart-base-gen-eager', {'model_type': 'bart', 'd_model': 768, 'encoder_layers': 6, 'decoder_layers': 6, 'encoder_ffn_dim': 3072, 'decoder_ffn_dim': 3072, 'encoder_attention_heads': 12, 'decoder_attention_heads': 12, 'attention_dropout': 0.1, 'activation_dropout': 0.1},
     '--precision bf16 --batch 8 --seq 512 --attention eager', 464705536),
    ('clip-b32-inffp32', {'model_type': 'clip', 'text_config': {}, 'vision_config': {}},
     '--precision fp32 --batch 128', 1040742400),
    ('clip-l14-inf', {'model_type': 'clip', 'projection_dim': 768, 'text_config': {'hidden_size': 768, 'intermediate_size': 3072, 'num_hidden_layers': 12, 'num_attention_heads': 12, 'projection_dim': 768}, 'vision_config': {'hidden_size': 1024, 'intermediate_size': 4096, 'num_hidden_layers': 24, 'num_attention_heads': 16, 'patch_size': 14, 'image_size': 224, 'projection_dim': 768}},
     '--precision bf16 --batch 32', 1153355776),
    ('siglip-so-inf', {'model_type': 'siglip', 'text_config': {'hidden_size': 1152, 'intermediate_size': 4304, 'num_hidden_layers': 27, 'num_attention_heads': 16}, 'vision_config': {'hidden_size': 1152, 'intermediate_size': 4304, 'num_hidden_layers': 27, 'num_attention_heads': 16, 'patch_size': 14, 'image_size': 384}},
     '--precision bf16 --batch 8', 1951661056),
    ('dinov2-base-inf', {'model_type': 'dinov2', 'image_size': 518, 'patch_size': 14, 'num_labels': 1000, 'architectures': ['Dinov2ForImageClassification']},
     '--precision bf16 --batch 16', 622047232),
    ('deit-base-inf', {'model_type': 'deit', 'num_labels': 1000, 'architectures': ['DeiTForImageClassification']},
     '--precision bf16 --batch 64', 443184128),
    ('clip-b32-inf', {'model_type': 'clip', 'text_config': {}, 'vision_config': {}, 'architectures': ['CLIPModel']},
     '--precision bf16 --batch 128', 530831872),
]


@pytest.mark.parametrize("name, config, options, peak", SERVED, ids=[row[0] for row in SERVED])
def test_an_inference_of_encoders_and_decoders(name, config, options, peak, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", tmp_path / "config.json", "--inference", *options.split(), "--gpu",
                           "a100-80g", "--no-calibration", "--json"], capture_output=True, text=True, timeout=SECONDS)
    assert done.returncode == 0, done.stderr
    low, likely, high = allocated_at_peak(json.loads(done.stdout))
    assert abs(likely / peak - 1) <= 0.04 and low <= peak <= high


# Classes with a part of the tensors, relatives of CLIP whose text_config has no type, and tensors that are not shared as usual: each
# was counted as something else.
REFUSED = [
    ({"model_type": "clip", "architectures": ["CLIPForImageClassification"], "text_config": {}, "vision_config": {}}, "CLIPForImage"),
    ({"model_type": "siglip", "text_config": {}, "vision_config": {"vision_use_head": False}}, "vision_use_head"),
    ({"model_type": "siglip2", "text_config": {}, "vision_config": {}}, "'siglip2' is unknown"),
    ({"model_type": "owlvit", "text_config": {}, "vision_config": {}}, "'owlvit' is unknown"),
    ({"model_type": "bart", "architectures": ["BartForCausalLM"]}, "only a decoder"),
    ({"model_type": "marian", "tie_word_embeddings": False}, "embeddings of their own"),
    ({"model_type": "beit", "use_relative_position_bias": True, "use_shared_relative_position_bias": True}, "shared positions"),
]


@pytest.mark.parametrize("config, reason", REFUSED, ids=[row[1] for row in REFUSED])
def test_a_configuration_of_a_similar_model_is_refused(config, reason, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", tmp_path / "config.json"], capture_output=True, text=True,
                          timeout=SECONDS)
    assert done.returncode == 3 and reason in done.stderr, (done.returncode, done.stderr)


# counted with transformers 5.24 on the meta device
COUNTED = [
    ({"model_type": "modernbert", "attention_bias": True, "mlp_bias": True, "norm_bias": True}, 149184000),
    ({"model_type": "dinov2"}, 85724928 + 768),
    ({"model_type": "clip", "projection_dim": 768, "text_config": {}, "vision_config": {},
      "text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}}, 211696129),
]


@pytest.mark.parametrize("config, count", COUNTED, ids=[row[0]["model_type"] for row in COUNTED])
def test_the_count_of_a_configuration(config, count, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--model", tmp_path / "config.json", "--json"], capture_output=True, text=True,
                          timeout=SECONDS)
    assert json.loads(done.stdout)["params"] == count
