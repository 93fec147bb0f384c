"""`gpuspy estimate` of diffusion models: counts from diffusers' configurations, adapters, pipelines with what is resident
and offloaded, and trainings against PyTorch's own counters (estimate_runs.json)."""
import json
import os
import subprocess
from pathlib import Path

import pytest

from estimate_runs import ALLOCATED, MEASURED, peak

ROOT = Path(__file__).resolve().parent.parent.parent
TOOL = ROOT / os.environ.get("O", "build") / "gpuspy"
UNET, FLUX, SD3, PIXART = "UNet2DConditionModel", "FluxTransformer2DModel", "SD3Transformer2DModel", "PixArtTransformer2DModel"
ONE = dict(cross_attention_dim=768, attention_head_dim=8, block_out_channels=[320, 640, 1280, 1280])
XL = dict(cross_attention_dim=2048, attention_head_dim=[5, 10, 20], block_out_channels=[320, 640, 1280],
          use_linear_projection=True, transformer_layers_per_block=[1, 2, 10], addition_embed_type="text_time",
          down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
          projection_class_embeddings_input_dim=2816)
MEDIUM = dict(num_layers=24, pos_embed_max_size=384, num_attention_heads=24, attention_head_dim=64, qk_norm="rms_norm",
              dual_attention_layers=list(range(13)))
# name by which it is known, class, what of its config.json is not the class's default; counted with diffusers 0.38.0
CONFIGS = {
    "stable-diffusion-1.5": (UNET, ONE, 859520964),
    "sdxl": (UNET, XL, 2567463684),
    "flux.1-dev": (FLUX, dict(guidance_embeds=True), 11901408320),
    "flux.1-schnell": (FLUX, {}, 11891178560),
    "sd3.5-medium": (SD3, MEDIUM, 2243171520),
    "pixart-alpha": (PIXART, dict(caption_channels=4096, sample_size=128), 611349152),
    "pixart-sigma": (PIXART, dict(caption_channels=4096, sample_size=128, use_additional_conditions=False), 610856096),
    "sana-1.6b": ("SanaTransformer2DModel", {}, 1604462752),
    "wan2.1-1.3b": ("WanTransformer3DModel", dict(num_layers=30, num_attention_heads=12, ffn_dim=8960), 1418996800),
    "cogvideox-2b": ("CogVideoXTransformer3DModel", {}, 1693783872),
    "hunyuanvideo": ("HunyuanVideoTransformer3DModel", {}, 12821012544),
    "ltx-video": ("LTXVideoTransformer3DModel", {}, 1923385472),
}


def run(*options):
    return subprocess.run([TOOL, "estimate", "--no-calibration", *map(str, options)], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120)


def refused(*options):
    done = run(*options)
    assert done.returncode in (2, 3) and not done.stdout, done
    return done.stderr


def answer(*options):
    done = run("--json", *" ".join(map(str, options)).split())
    assert done.returncode in (0, 1), (options, done.stderr)
    return json.loads(done.stdout)


def total(plan, phase=None):
    return plan["phases"][phase]["bytes"] if phase else plan["peak"]["bytes"]


def written(folder, name):
    class_name, keys, _ = CONFIGS[name]
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"_class_name": class_name, "_diffusers_version": "0.38.0", **keys}))
    return folder


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_is_the_named_model(name, tmp_path):
    read, named = answer("--model", written(tmp_path / "x", name)), answer("--model", name)
    assert read["params"] == named["params"] == CONFIGS[name][2]
    assert read["phases"] == named["phases"] and read["lines"] == named["lines"]


def test_a_pipelines_folder(tmp_path):
    written(tmp_path / "pipe" / "unet", "sdxl")
    (tmp_path / "pipe" / "model_index.json").write_text('{"_class_name": "StableDiffusionXLPipeline"}')
    plan = answer("--model", tmp_path / "pipe")
    assert plan["params"] == 2567463684 and plan["model"]["name"] == "pipe"


@pytest.mark.parametrize("keys, word", [
    (dict(class_embed_type="timestep"), "class_embed_type"), (dict(down_block_types=["AttnDownBlock2D"] * 4), "AttnDownBlock2D"),
    (dict(block_out_channels=[1] * 9), "9 levels"), (dict(attention_head_dim=7), "does not divide"),
    (dict(cross_attention_dim=-3), "cross_attention_dim"), (dict(layers_per_block=99), "residual blocks")])
def test_other_unets_are_refused(keys, word, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"_class_name": UNET, **ONE, **keys}))
    assert word in refused("--model", tmp_path / "config.json")


def test_the_mask_of_old_versions_is_in_the_high_end():
    """FastVideo's table (720 x 1280, 45 frames): 5 GiB above what later versions of diffusers need."""
    words = "--inference --batch 1 --image 720 --width 1280 --frames 45 --precision bf16"
    line = {x["name"]: x for x in answer("--model", "hunyuanvideo", words)["lines"]}["mask of all pairs of tokens"]
    tokens = 12 * 45 * 80 + 256
    assert line["bytes"] == 0 and line["high_bytes"] == 3 * tokens ** 2
    assert all(x["name"] != "mask of all pairs of tokens" for x in answer("--model", "flux.1-dev", "--inference --batch 1")["lines"])


def test_other_classes_are_refused(tmp_path):
    (tmp_path / "config.json").write_text('{"_class_name": "AutoencoderKL"}')
    assert "AutoencoderKL" in refused("--model", tmp_path / "config.json")
    (tmp_path / "config.json").write_text('{"_class_name": "WanTransformer3DModel", "image_dim": 1280}')
    assert "image_dim" in refused("--model", tmp_path / "config.json")


# Parameters that trainers print: Hugging Face's blog on FLUX, finetrainers' documents; peft 0.19.1 on the meta device.
@pytest.mark.parametrize("model, rank, trained", [
    ("flux.1-dev", 4, 4669440), ("hunyuanvideo", 128, 163577856), ("cogvideox-5b", 128, 132120576),
    ("ltx-video", 128, 117440512), ("sdxl", 16, 23224320), ("stable-diffusion-1.5", 16, 3188736)])
def test_adapters(model, rank, trained):
    plan = answer("--model", model, "--adapter lora --target attention --precision bf16 --lora-rank", rank)
    assert [line["bytes"] for line in plan["lines"] if line["part"] == "adapters"] == [4 * trained]


DENOISERS = [run for run in json.loads(MEASURED.read_text()) if "diffusers" in run["with"]]


@pytest.mark.parametrize("run", DENOISERS, ids=lambda run: run["settings"][8:-16])
def test_trainings_that_were_measured(run):
    low, likely, high = peak(answer(run["settings"])["lines"], ALLOCATED)
    assert abs(likely / run["peak_bytes"] - 1) < 0.05
    assert low * 0.98 <= run["peak_bytes"] <= high * 1.02


def test_offloading_takes_less_and_less():
    models = ["--model sdxl --inference --precision fp16"] + \
        [f"--model sdxl --inference --precision fp16 --offload {word}" for word in ("model", "sequential")]
    weights = [max(sum(line["bytes"] for line in plan["lines"] if line["part"] == "weights" and phase in line["phases"])
                   for phase in plan["phases"]) for plan in map(answer, models)]
    assert weights[0] == 2 * (2567463684 + 817720320) + 4 * 83653863  # the VAE decodes in float32
    assert weights[1] == 2 * 2567463684
    assert weights[2] < 1 << 29


def moment(options, phase, key="bytes", left=("context", "allocator")):
    return sum(line[key] for line in answer(options)["lines"] if phase in line["phases"] and line["part"] not in left)


def test_what_bitsandbytes_quantised_is_there_while_the_pipeline_is_loaded():
    """diffusers' speed-memory-optims.md: FLUX.1 dev, both in 4 bits, with model offload, 12.2369 GiB allocated."""
    flux = "--model flux.1-dev --inference --weights nf4 --text-weights nf4"
    offloaded = answer(flux, "--offload model")
    assert offloaded["peak"]["phase"] == "load" and moment(flux + " --offload model", "load") == pytest.approx(12.2369 * 2**30, rel=0.02)
    assert "load" not in answer(flux)["phases"] and "load" not in answer(flux, "--offload sequential")["phases"]
    assert "load" not in answer(flux.replace("nf4", "fp8"), "--offload model")["phases"]
    # the diffusers benchmark of quantisation: LLM.int8 with offload takes 23.4 GiB, torchao 12.2
    stays, moves = (flux.replace("nf4", word) + " --batch 1 --image 1024 --precision bf16 --gpu h100-80g --offload model" for word in ("int8", "int8wo"))
    assert moment(stays, "denoise") > 17 * 2**30 and max(moment(moves, phase, left=("context",)) for phase in ("text", "denoise", "image")) == pytest.approx(12.19 * 2**30, rel=0.03)
    for options, reserved in ((stays, 23.43), (moves, 12.19)):
        plan = answer(options)
        high = max(sum(line["high_bytes"] for line in plan["lines"] if phase in line["phases"] and line["part"] != "context") for phase in plan["phases"])
        assert reserved * 0.99 < high / 2**30 < reserved * 1.15


def test_layerwise_casting_leaves_holes():
    """huggingface.co/blog/diffusers-quantization: FLUX.1 dev in fp8 reserves 28.45 GiB, with model offload 15.62."""
    flux = "--model flux.1-dev --inference --batch 1 --image 1024 --precision bf16 --weights fp8 --gpu h100-80g"
    for options, reserved in ((flux, 28.452), (flux + " --offload model", 15.62)):
        high = max(moment(options, phase, "high_bytes", ("context",)) for phase in ("text", "denoise", "image"))
        assert reserved < high / 2**30 < 1.15 * reserved


VIDEO = "--model hunyuanvideo --inference --batch 1 --image 512 --width 768 --frames 121 --precision bf16 --gpu a100-80g"


@pytest.mark.parametrize("more, measured", [("", 64531883622), ("--weights nf4", 46127948759), ("--weights nf4 --offload model", 23611582709),
                                            ("--weights nf4 --vae tiling", 28368258990)])
def test_hunyuanvideos_vae_has_a_workspace(more, measured):
    """Published peaks (huggingface/blog video_gen.md): without tiling the VAE takes 1.44 times its tensors."""
    assert max(moment(f"{VIDEO} {more}", phase) for phase in ("text", "denoise", "image")) == pytest.approx(measured, rel=0.02)


def test_guidance_doubles_the_batch():
    activations = [next(line["bytes"] for line in answer("--model sdxl --inference", more)["lines"]
                        if line["name"] == "activations, denoising step") for more in ("", "--no-guidance", "--no-guidance --batch 2")]
    assert activations[0] == activations[2] > 1.8 * activations[1]
    assert answer("--model flux.1-dev --inference")["plan"]["diffusion"]["guidance"] is False


def test_the_vae_decodes_in_parts():
    base = "--model stable-diffusion-1.5 --inference --batch 4 --image 1024"
    whole, sliced, tiled = (total(answer(base, more), "image") for more in ("", "--vae slicing", "--vae tiling"))
    assert whole > sliced > tiled


def test_what_is_resident():
    sizes = [total(answer("--model flux.1-dev --inference --resident", word), "denoise") for word in ("all", "text", "vae", "denoiser")]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 4
    assert total(answer("--model flux.1-dev --inference --text-weights nf4")) < total(answer("--model flux.1-dev --inference"))
    training = [total(answer("--model sdxl --precision amp-fp16 --checkpointing full --resident", word)) for word in ("all", "denoiser")]
    assert training[0] - training[1] == pytest.approx(2 * (83653863 + 817720320), rel=0.05)


def test_attention():
    sizes = [total(answer("--model stable-diffusion-1.5 --inference --attention", word), "denoise") for word in ("eager", "sliced", "flash")]
    assert sizes[0] > sizes[1] > sizes[2]


def test_sizes_count():
    def activations(*more):
        return sum(line["bytes"] for line in answer("--model wan2.1-1.3b --inference --no-guidance", *more)["lines"]
                   if line["name"] == "activations, denoising step")
    square = activations("--image 480 --frames 17")
    assert activations("--image 480 --width 960 --frames 17") == pytest.approx(2 * square, rel=0.05)
    assert activations("--image 480 --frames 33") == pytest.approx(9 / 5 * square, rel=0.05)


@pytest.mark.parametrize("options, word", [
    ("--model gpt2 --frames 3", "--frames"), ("--model gpt2 --width 3", "--width"), ("--model gpt2 --resident all", "--resident"),
    ("--model gpt2 --vae tiling", "--vae"), ("--model gpt2 --inference --attention sliced", "sliced"),
    ("--model gpt2 --inference --offload model", "--offload"), ("--model sdxl --offload model", "--offload"),
    ("--model sdxl --tp 2 --gpus 2", "--tp"), ("--model sdxl --checkpointing selective", "--checkpointing"),
    ("--model sdxl --adapter oft", "--adapter"), ("--model sdxl --image 4", "--image"), ("--model sdxl --fused-layers", "--fused-layers")])
def test_contradictions(options, word):
    assert word in refused(*options.split())


def test_a_reader_sees_the_phases():
    text = run("--model", "flux.1-dev", "--inference", "--gpu", "4090", "--explain").stdout
    for word in ("denoising step", "VAE decodes", "text encoders", "1024 x", "--offload model"):
        assert word in text, word
    text = run("--model", "hunyuanvideo", "--inference").stdout
    assert "129 x 720 x 720" in text.replace("\n  ", " ")
