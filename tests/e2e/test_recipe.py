"""gpuspy estimate --config: how configurations of training tools are read. The keys are those that each tool documents;
the files are written here."""
import json
import os
import re
import random
import resource
import subprocess
from pathlib import Path

import pytest
from conftest import SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
GPUSPY = Path(os.environ.get("O", ROOT / "build")) / "gpuspy"
GPUSPY = GPUSPY if GPUSPY.is_absolute() else ROOT / GPUSPY


def gpuspy(folder, *words):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "LD_"))}
    return subprocess.run([GPUSPY, "estimate", *map(str, words)], cwd=folder, env=env, text=True, capture_output=True, timeout=SECONDS)


def read_as(folder, *words):
    done = gpuspy(folder, "--json", *words)
    assert done.returncode in (0, 1), done.stderr
    answer = json.loads(done.stdout)
    return answer, answer["config"]


AXOLOTL = """
base_model: NousResearch/Meta-Llama-3-8B
load_in_4bit: true
adapter: qlora
lora_r: 32
lora_alpha: 16            # says nothing about memory
lora_target_linear: true
sequence_len: 4096
sample_packing: true
gradient_accumulation_steps: 4
micro_batch_size: 2
optimizer: paged_adamw_32bit
learning_rate: 2e-4
bf16: auto
gradient_checkpointing: true
activation_offloading: true
fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_offload_params: true
"""
TORCHTUNE = """
model:
  _component_: torchtune.models.llama3_1.lora_llama3_1_8b
  lora_attn_modules: ['q_proj', 'v_proj', 'output_proj']
  apply_lora_to_mlp: True
  lora_rank: 8
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
  max_seq_len: 2048
checkpointer:
  checkpoint_dir: /tmp/Meta-Llama-3.1-8B-Instruct/
batch_size: 2
gradient_accumulation_steps: 8
optimizer:
  _component_: torch.optim.AdamW
  fused: True
loss:
  _component_: torchtune.modules.loss.LinearCrossEntropyLoss
dtype: bf16
enable_activation_checkpointing: True
optimizer_in_bwd: True
"""
TORCHTUNE_FULL = re.sub(r"  lora_.*\n|  apply.*\n|lora_", "", TORCHTUNE).replace("steps: 8", "steps: 1") + "enable_activation_offloading: True\n"
FACTORY = """
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: full
deepspeed: configs/ds_z3_config.json
cutoff_len: 2048
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
"""
TRL = """
model_name_or_path: Qwen/Qwen2.5-7B
dtype: bfloat16
per_device_train_batch_size: 2
gradient_accumulation_steps: 8
max_length: 2048
use_peft: true
lora_r: 32
lora_target_modules: [q_proj, v_proj]
lora_modules_to_save: [embed_tokens, lm_head]
"""
ACCELERATE = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
mixed_precision: bf16
num_processes: 8
"""
DEEPSPEED = """{"bf16": {"enabled": "auto"}, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "auto",
 "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}}}"""
TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"   # a comment
[optimizer]
name = "AdamW"
[training]
local_batch_size = 2
seq_len = 8_192
[parallelism]
data_parallel_shard_degree = 8
tensor_parallel_degree = 2
[activation_checkpoint]
mode = 'selective'
"""
MEGATRON = """#!/bin/bash
TP=4
ARGS=(
  --tensor-model-parallel-size ${TP} \\
  --pipeline-model-parallel-size=2
  --sequence-parallel --swiglu --bf16 --use-distributed-optimizer
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --ffn-hidden-size 11008
  --seq-length 4096 --max-position-embeddings 4096 --vocab-size "32000" # and not --vocab-size 1
  --micro-batch-size 1 --global-batch-size 512
  --recompute-granularity selective
)
torchrun pretrain_gpt.py ${ARGS[@]}
"""
# Chunks of a stage, stages of other sizes, layers that are recomputed.
TORCHTITAN_PIPELINE = TORCHTITAN.replace("tensor_parallel_degree = 2", "pipeline_parallel_degree = 2\npipeline_parallel_schedule = 'Interleaved1F1B'")\
    .replace("'selective'", "'selective'\nselective_ac_option = '2'")
MEGATRON_CHUNKS = MEGATRON.replace("granularity selective", "granularity full --recompute-method block --recompute-num-layers 3\n"
                                   "  --num-layers-per-virtual-pipeline-stage 8")
MEGATRON_ENDS = MEGATRON.replace("granularity selective", "granularity full --recompute-method uniform --recompute-num-layers 1\n"
                                 "  --decoder-first-pipeline-num-layers 15")
# As in Megatron-LM's examples: options in quotes, defaults, a flag at the end of a line, the tokenizer's words.
MEGATRON_GPT = """#!/bin/bash
GPUS_PER_NODE=8
TP=${TP:-"4"}
GPT_ARGS="--num-layers 24 \\
  --hidden-size 1024 --num-attention-heads 16"
TRAINING_ARGS=(
  "--micro-batch-size 2"
  --seq-length 2048 --max-position-embeddings 2048
  --bf16
)
PARALLEL_ARGS=(
  --tensor-model-parallel-size ${TP}
  --vocab-file $1 --tokenizer-type GPT2BPETokenizer
)
torchrun --nproc_per_node ${GPUS_PER_NODE} --nnodes ${NNODES:-2} pretrain_gpt.py ${GPT_ARGS} ${TRAINING_ARGS[@]}
"""
# Layers of Mamba among others: of which size is unknown.
MEGATRON_HYBRID = MEGATRON.replace("--swiglu", "--is-hybrid-model --hybrid-override-pattern M-M*-")
# nanotron, and a vocabulary: no tool that gpuspy reads.
NANOTRON = "data_stages: [{name: a}]\nparallelism: {dp: 8}\ntokens: {micro_batch_size: 4}\n"
NEMO = """
trainer: {devices: 8, num_nodes: 2, precision: bf16}
model:
  micro_batch_size: 1
  global_batch_size: 64
  tensor_model_parallel_size: 4
  encoder_seq_length: 4096
  max_position_embeddings: ${.encoder_seq_length}
  kv_channels: ${model.data.width}
  data: {width: 96}
  share_embeddings_and_output_weights: false
  num_layers: 32
  hidden_size: 4096
  num_attention_heads: 32
  override_vocab_size: 32000
  activation: fast-swiglu
  megatron_amp_O2: true
  optim: {name: distributed_fused_adam}
"""
# A test of Megatron-LM: options are keys of a section, the output layer is not the embedding, experts are not divided.
MEGATRON_TEST = """
ENV_VARS: {NCCL_ALGO: Ring}
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --num-experts: 8
  --moe-router-topk: 2
  --moe-ffn-hidden-size: 1024
  --untie-embeddings-and-output-weights: true
  --micro-batch-size: 4
  --seq-length: 1024
  --max-position-embeddings: 1024
  --tokenizer-type: NullTokenizer
  --vocab-size: 131073
  --transformer-impl: local
  --tensor-model-parallel-size: 2
  --expert-model-parallel-size: 4
  --expert-tensor-parallel-size: 1
  --bf16: true
"""
# Two replicas of the states, and a batch for all GPUs.
MEGATRON_REPLICAS = MEGATRON_TEST + """  --global-batch-size: 64
  --use-distributed-optimizer: true
  --num-distributed-optimizer-instances: 2
  --cross-entropy-loss-fusion: true
"""
MEGATRON_FSDP = MEGATRON_TEST + """  --use-distributed-optimizer: true
  --use-megatron-fsdp: true
  --data-parallel-sharding-strategy: optim_grads_params
  --cross-entropy-loss-fusion: true
  --cross-entropy-fusion-impl: te
"""
# NeMo AutoModel: of Hugging Face's models, sharded by FSDP2.
AUTOMODEL = """
recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler: {global_batch_size: 32, local_batch_size: 2}
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
peft: {_target_: nemo_automodel.components._peft.lora.PeftConfig, target_modules: "*_proj", dim: 16, alpha: 32, dropout: 0.1}
quantization: {load_in_4bit: true}
distributed: {strategy: fsdp2, dp_size: 4, tp_size: 2, cp_size: 1, sequence_parallel: false, activation_checkpointing: true}
loss_fn: {_target_: nemo_automodel.components.loss.linear_ce.FusedLinearCrossEntropy}
dataset: {seq_len: 2048}
packed_sequence: {packed_sequence_size: 4096}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-5}
"""
# vLLM in Kubernetes: arguments in a list, or in the text of a command.
KUBERNETES = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
      - name: vllm
        image: vllm/vllm-openai:v0.11
        args: ["--model", "meta-llama/Llama-3.1-8B-Instruct", "--tensor-parallel-size", "2", "--max-model-len=8192",
               "--gpu-memory-utilization", "0.85"]
"""
KUBERNETES_COMMAND = KUBERNETES[:KUBERNETES.index("args:")] + """command: ["/bin/sh", "-c"]
        args:
        - |
          vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 \\
            --max-model-len 8192 --gpu-memory-utilization 0.85
"""
COMPOSE = """
services:
  vllm:
    command: --model meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --max-model-len 8192 --gpu-memory-utilization 0.85
"""
SERVE = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0,1 vllm serve meta-llama/Llama-3.1-8B-Instruct \\\n  -tp 2 --max-model-len 8192 --gpu-memory-utilization 0.85\n"
SERVED = "--model=meta-llama/Llama-3.1-8B-Instruct --serve=vllm --gpu-memory-utilization=0.85 --seq=8192 --tp=2"
VLLM = """
model: meta-llama/Llama-3.1-8B-Instruct
max-model-len: 8192
tensor-parallel-size: 2
kv-cache-dtype: fp8
gpu-memory-utilization: 0.9
"""

DEEPSPEED_CHAT = """#!/bin/bash
ZERO_STAGE=${2:-3}
deepspeed --num_gpus 4 main.py --model_name_or_path meta-llama/Llama-2-7b-hf \\
   --per_device_train_batch_size 4 --max_seq_len 512 --gradient_checkpointing --zero_stage $ZERO_STAGE --deepspeed
"""

# An example of transformers has neither TRL's bf16 nor its checkpointing; DeepSpeed's own file may follow.
GLUE = """python -m torch.distributed.launch --nproc_per_node=4 examples/pytorch/text-classification/run_glue.py \\
   --model_name_or_path gpt2 --per_device_train_batch_size 8 --max_seq_length 128
"""
# FSDP in two replicas of four GPUs.
HSDP = """
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2}
mixed_precision: fp8
num_processes: 8
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
"""

CASES = [
    ("axolotl", "c.yml", AXOLOTL, "--model=NousResearch/Meta-Llama-3-8B --precision=bf16 --optimizer=paged-adamw --adapter=lora --weights=nf4-double "
     "--lora-rank=32 --batch=2 --accumulation=4 --seq=4096 --checkpointing=full --offload-activations --drop-outputs --expandable-segments --sharding=fsdp --separate-adapters --offload=all",
     ["the number of GPUs"]),
    ("torchtune", "c.yaml", TORCHTUNE, "--model=Meta-Llama-3.1-8B-Instruct --precision=bf16 --optimizer=adamw --step=fused "
     "--adapter=lora --lora-rank=8 --half-adapters --target=q_proj,v_proj,o_proj,gate_proj,up_proj,down_proj --batch=2 --accumulation=8 --seq=2048 --varying-lengths --checkpointing=full --drop-outputs --expandable-segments --chunked-loss", ["optimizer_in_bwd"]),
    ("torchtune", "c.yaml", TORCHTUNE_FULL, "--model=Meta-Llama-3.1-8B-Instruct --precision=bf16 --optimizer=adamw --step=in-backward "
     "--batch=2 --seq=2048 --varying-lengths --checkpointing=full --offload-activations --drop-outputs --expandable-segments --chunked-loss", []),
    ("LLaMA-Factory", "c.yaml", FACTORY, "--model=Qwen/Qwen2.5-7B-Instruct --precision=bf16 --master-weights --optimizer=adamw "
     "--batch=1 --accumulation=2 --seq=2048 --varying-lengths --checkpointing=full --drop-outputs --sharding=zero3",
     ["configs/ds_z3_config.json, which was not found", "the number of GPUs"]),
    ("TRL", "c.yaml", TRL, "--model=Qwen/Qwen2.5-7B --precision=bf16 --optimizer=adamw --adapter=lora --lora-rank=32 --lora-dropout=0.05 --target=qv "
     "--modules-to-save=embeddings --batch=2 --accumulation=8 --seq=2048 --varying-lengths --checkpointing=full --drop-outputs", []),
    ("torchtitan", "c.toml", TORCHTITAN, "--model=llama-3-8b --precision=amp-bf16 --optimizer=adamw --step=fused --batch=2 --seq=8192 "
     "--checkpointing=selective-op --drop-outputs --expandable-segments --tp=2 --gpus=16 --sequence-parallel --sharding=fsdp2", []),
    ("Megatron-LM", "c.sh", MEGATRON, "--layers=32 --hidden=4096 --heads=32 --ffn=11008 --context=4096 --tied --vocab=32256 --runtime=megatron --precision=bf16 "
     "--master-weights --batch=1 --seq=4096 --checkpointing=selective --tp=4 --pp=2 --sequence-parallel --sharding=zero1",
     ["the number of GPUs"]),
    ("torchtitan", "c.toml", TORCHTITAN_PIPELINE, "--model=llama-3-8b --precision=amp-bf16 --optimizer=adamw --step=fused --batch=1 --accumulation=2 --seq=8192 "
     "--checkpointing=full --checkpoint-every=2 --drop-outputs --expandable-segments --pp=2 --interleave=2 --gpus=16 --sharding=fsdp2", []),
    ("Megatron-LM", "c.sh", MEGATRON_CHUNKS, "--layers=32 --hidden=4096 --heads=32 --ffn=11008 --context=4096 --tied --vocab=32256 --runtime=megatron --precision=bf16 "
     "--master-weights --batch=1 --seq=4096 --checkpointing=full --checkpointed-layers=6 --tp=4 --pp=2 --interleave=2 --sequence-parallel --sharding=zero1",
     ["the number of GPUs"]),
    ("Megatron-LM", "c.sh", MEGATRON_ENDS, "--layers=32 --hidden=4096 --heads=32 --ffn=11008 --context=4096 --tied --vocab=32256 --runtime=megatron --precision=bf16 "
     "--master-weights --batch=1 --seq=4096 --checkpointing=full --tp=4 --pp=2 --first-stage-layers=15 --sequence-parallel --sharding=zero1",
     ["the number of GPUs"]),
    ("Megatron-LM", "c.sh", MEGATRON_GPT, "--family=gpt --layers=24 --hidden=1024 --heads=16 --context=2048 --vocab=50688 --ffn=4096 "
     "--runtime=megatron --precision=bf16 --master-weights --batch=2 --seq=2048 --tp=4 --gpus=16", ["the tokenizer, which is assumed to have 50257 words"]),
    ("NeMo", "c.yaml", NEMO, "--layers=32 --hidden=4096 --heads=32 --head-dim=96 --context=4096 --vocab=32256 --ffn=10880 --runtime=megatron --precision=bf16 --master-weights --optimizer=adam --step=fused "
     "--batch=1 --accumulation=16 --seq=4096 --tp=4 --gpus=16", []),
    ("TRL", "c.sh", DEEPSPEED_CHAT, "--model=meta-llama/Llama-2-7b-hf --precision=bf16 --master-weights --optimizer=adamw --batch=4 --seq=512 --checkpointing=full --drop-outputs "
     "--gpus=4 --sharding=zero3", []),
    ("Transformers", "c.sh", GLUE, "--model=gpt2 --precision=fp32 --optimizer=adamw --batch=8 --seq=128 --drop-outputs --gpus=4", []),
    ("accelerate", "c.yaml", HSDP + "model_name_or_path: gpt2\n", "--model=gpt2 --precision=amp-fp8 --tp=2 --gpus=4 --sharding=fsdp2", ["2 replicas, of which one is estimated"]),
    ("Megatron-LM", "c.yaml", MEGATRON_TEST, "--family=gpt --layers=12 --hidden=512 --heads=8 --ffn=1024 --context=1024 --experts=8 --experts-used=2 "
     "--untied --vocab=131328 --runtime=megatron --precision=bf16 --master-weights --batch=4 --seq=1024 --attention=eager --tp=2 --ep=4 --expert-tp=1", []),
    ("AutoModel", "c.yaml", AUTOMODEL, "--model=meta-llama/Llama-3.1-8B --precision=bf16 --optimizer=adamw --adapter=lora --weights=nf4-double --lora-rank=16 "
     "--lora-dropout=0.1 --batch=2 --accumulation=4 --seq=4096 --checkpointing=full --checkpoint-modules --no-cache --chunked-loss --tp=2 --gpus=8 --sharding=fsdp2", []),
    ("vLLM", "c.yaml", KUBERNETES, SERVED, []),
    ("vLLM", "c.yaml", KUBERNETES_COMMAND, SERVED, []),
    ("vLLM", "c.yaml", COMPOSE, SERVED, []),
    ("vLLM", "c.sh", SERVE, SERVED, []),
    ("vLLM", "c.sh", "#!/bin/bash\nvllm serve Qwen/Qwen3-8B --trust-remote-code\n", "--model=Qwen/Qwen3-8B --serve=vllm", []),
    ("vLLM", "c.sh", "#!/bin/bash\nvllm serve Qwen/Qwen3-8B --max-num-seqs 64 --max-num-batched-tokens=4096\n",
     "--model=Qwen/Qwen3-8B --serve=vllm --max-num-seqs=64 --max-num-batched-tokens=4096", []),
    ("vLLM", "c.yaml", VLLM, "--model=meta-llama/Llama-3.1-8B-Instruct --serve=vllm --gpu-memory-utilization=0.9 --seq=8192 --tp=2 --kv-cache=fp8", []),
]


def test_a_model_in_the_cache_of_hugging_face(tmp_path):
    (tmp_path / "c.yml").write_text("base_model: $HOME/.cache/hub/models--meta-llama--Llama-3.2-1B/snapshots/222de0\nbf16: true\n")
    _, config = read_as(tmp_path, "--config", "c.yml")
    assert "--model=meta-llama/Llama-3.2-1B" in config["options"]


@pytest.mark.parametrize("tool, name, text, options, unused", CASES, ids=[c[0] for c in CASES])
def test_a_configuration_is_these_options(tmp_path, tool, name, text, options, unused):
    (tmp_path / name).write_text(text)
    gpu = ["--memory", "80GiB"] if tool == "vLLM" else []
    answer, config = read_as(tmp_path, "--config", name, *gpu)
    assert config["tools"] == tool
    assert config["options"] == options.split()
    assert len(config["not_considered"]) == len(unused)
    for reported, part in zip(sorted(config["not_considered"]), sorted(unused)):
        assert reported.startswith(part)
    plain = json.loads(gpuspy(tmp_path, "--json", *options.split(), *gpu).stdout)
    assert answer["peak"] == plain["peak"] and answer["lines"] == plain["lines"]


@pytest.mark.parametrize("name, text, says", [
    ("c.sh", MEGATRON_HYBRID, "no model given"),
    ("c.yaml", NANOTRON, "is a configuration of nanotron, which gpuspy does not read"),
    ("vocab.json", json.dumps({str(i): i for i in range(2000)} | {"stage": 1}), "not the configuration of a tool"),
    ("adapter_config.json", '{"peft_type": "PREFIX_TUNING", "num_layers": 28, "num_virtual_tokens": 30}', "no model given"),
])
def test_what_states_no_model_gets_no_estimate(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    done = gpuspy(tmp_path, "--config", name)
    assert done.returncode in (2, 3) and says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_options_override_the_configuration(tmp_path):
    (tmp_path / "c.yml").write_text(AXOLOTL)
    answer, config = read_as(tmp_path, "--config=c.yml", "--batch", "7", "--model", "llama-3.2-1b", "--adapter", "none", "--offload", "none")
    assert answer["plan"]["batch"] == 7 and answer["model"]["name"] == "llama-3.2-1b" and answer["plan"]["adapter"] == "none"
    assert not any(option.startswith("--model") for option in config["options"])
    assert read_as(tmp_path, "--config=c.yml", "--params", "12B", "--adapter", "none")[0]["params"] == 12e9
    (tmp_path / "d.yml").write_text(AXOLOTL + "\nlora_dropout: 0.05\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n")
    answer, config = read_as(tmp_path, "--config=d.yml")
    assert "--lora-dropout=0.05" in config["options"] and answer["plan"]["lora_dropout"] is True
    assert "--no-reentrant" in config["options"] or "--sharding=fsdp" not in config["options"]
    assert read_as(tmp_path, "--config=d.yml", "--adapter", "none")[0]["plan"]["lora_dropout"] is None


@pytest.mark.parametrize("model, word, options", [
    ("meta-llama/Llama-3.1-8B", "true", ["--checkpointing=full", "--checkpoint-modules"]), ("google/gemma-3-1b-it", "true", ["--checkpointing=full"]),
    ("meta-llama/Llama-3.1-8B", "full", ["--checkpointing=full", "--checkpoint-modules"]), ("Qwen/Qwen2.5-7B", "selective", ["--checkpointing=selective-op"]),
    ("Qwen/Qwen2.5-7B", "false", [])])
def test_automodels_checkpointing(model, word, options, tmp_path):
    """Selective keeps what torchtitan's keeps (components/distributed/activation_checkpointing.py)."""
    text = AUTOMODEL.replace("meta-llama/Llama-3.1-8B", model).replace("activation_checkpointing: true", f"activation_checkpointing: {word}")
    (tmp_path / "c.yaml").write_text(text.replace("tp_size: 2", "tp_size: 1"))
    assert [x for x in read_as(tmp_path, "--config=c.yaml")[1]["options"] if "checkpoint" in x] == options


@pytest.mark.parametrize("text, gone, words", [
    ("fsdp_config: {fsdp_version: 2}\ndistributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 4\nmodel_name_or_path: gpt2\n", "--half-reduce", "--sharding zero3"),
    (AUTOMODEL.replace("peft: {", "unused: {").replace("quantization: {load_in_4bit: true}", ""), "--checkpoint-modules", "--checkpointing none"),
    (AXOLOTL, "--separate-adapters", "--adapter none --offload none")])
def test_an_option_goes_with_the_one_that_it_qualifies(text, gone, words, tmp_path):
    (tmp_path / "c.yaml").write_text(text)
    more = ("--batch=1", "--seq=128")
    assert gone in read_as(tmp_path, "--config=c.yaml", *more)[1]["options"]
    answer, _ = read_as(tmp_path, "--config=c.yaml", *more, *words.split())
    assert answer["plan"][gone[2:].replace("-", "_")] is False


def test_the_gpus_of_the_command_line_divide_the_global_batch(tmp_path):
    (tmp_path / "c.yaml").write_text(MEGATRON_REPLICAS)
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert any(key.startswith("the number of GPUs") for key in config["not_considered"])
    answer, config = read_as(tmp_path, "--config", "c.yaml", "--gpus", "16")
    assert {"--accumulation=2", "--gpus=8", "--sharding=zero1", "--fused-loss"} <= set(config["options"])  # 64 = 4 · 8 · 2
    assert "2 replicas, of which one is estimated" in config["not_considered"]
    assert answer["plan"]["gpus"] == 8 and not any("the number of GPUs" in key for key in config["not_considered"])


def test_megatrons_fsdp_divides_what_it_says(tmp_path):
    (tmp_path / "c.yaml").write_text(MEGATRON_FSDP)
    _, config = read_as(tmp_path, "--config", "c.yaml", "--gpus=16")
    assert "--sharding=zero3" in config["options"] and "--fused-loss" not in config["options"]
    (tmp_path / "c.yaml").write_text(MEGATRON_FSDP.replace("optim_grads_params", "optim_grads"))
    assert "--sharding=zero2" in read_as(tmp_path, "--config", "c.yaml", "--gpus=16")[1]["options"]


def test_several_files_are_one_configuration(tmp_path):
    (tmp_path / "fsdp.yaml").write_text(ACCELERATE)
    (tmp_path / "sft.yaml").write_text(TRL)
    _, config = read_as(tmp_path, "--config", "fsdp.yaml,sft.yaml")
    assert config["tools"] == "accelerate, TRL" and {"--gpus=8", "--sharding=fsdp2", "--lora-rank=32"} <= set(config["options"])


def test_deepspeeds_own_file_is_read(tmp_path):
    (tmp_path / "ds.json").write_text(DEEPSPEED)
    answer, config = read_as(tmp_path, "--config", "ds.json", "--model", "llama-3-8b", "--gpus", "8")
    assert config["options"] == ["--precision=bf16", "--master-weights", "--batch=4", "--gpus=8", "--sharding=zero3", "--offload=optimizer"]
    assert answer["plan"]["sharding"] == "zero3" and answer["plan"]["offload"] == "optimizer"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "c.yml").write_text(AXOLOTL.replace("fsdp:", "deepspeed: ds.json\nold:").replace("adapter: qlora", ""))
    _, config = read_as(tmp_path, "--config", "sub/c.yml")  # it refers to the other file relative to the folder above
    assert config["tools"] == "axolotl, DeepSpeed" and "--sharding=zero3" in config["options"]


def test_yaml_as_people_write_it(tmp_path):
    (tmp_path / "c.yml").write_text("---\n# comment\nx: &base\n  micro_batch_size: 3\nbase_model: 'llama-3-8b'\n<<: *base\n"
                                    "sequence_len: 2_048\nbf16: yes\noptimizer: \"adamw_torch_fused\"\nlearning_rate: 1e-5\n...\n---\nother: 1\n")
    _, config = read_as(tmp_path, "--config", "c.yml")
    assert config["options"] == ["--model=llama-3-8b", "--precision=bf16", "--optimizer=adamw", "--step=fused", "--batch=3", "--seq=2048", "--varying-lengths", "--drop-outputs",
                                 "--expandable-segments"]


@pytest.mark.parametrize("name, text, says", [
    ("c.yml", "base_model: [1, 2\nx: }", "line"), ("c.json", '{"zero_optimization": ', "line 1"), ("c.yml", "", "it is empty"),
    ("c.yml", "- a\n- b\n", "no keys and values"), ("c.yml", "title: hello\n", "not the configuration of a tool"), ("c.yml", "a: " + "[" * 100 + "]" * 100, "nested"),
    ("c.yml", "x" * 1100000, "larger than 1 MiB"), ("c.yml", "base_model: x\0y", "not a text file"),
], ids=range(8))
def test_an_invalid_configuration_gives_one_line(tmp_path, name, text, says):
    (tmp_path / name).write_text(text)
    done = gpuspy(tmp_path, "--config", name)
    assert done.returncode == 3 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
    assert re.match(f"gpuspy: estimate: --config: (cannot read )?'{re.escape(name)}'", done.stderr) and not done.stdout


def test_a_missing_file_and_an_unknown_model_are_reported(tmp_path):
    done = gpuspy(tmp_path, "--config", "none.yml")
    assert done.returncode == 3 and done.stderr == "gpuspy: estimate: --config: cannot read 'none.yml': No such file or directory\n"
    (tmp_path / "c.yml").write_text("base_model: me/new-model-9b\nmicro_batch_size: 1\n")
    done = gpuspy(tmp_path, "--config", "c.yml")
    assert done.returncode in (2, 3) and "new-model-9b" in done.stderr and done.stderr.count("\n") == 1


def test_a_file_of_aliases_does_not_unfold(tmp_path):
    text = "a0: &a0 {micro_batch_size: 1}\n" + "".join(
        f"a{i}: &a{i} {{" + ", ".join(f"k{j}: *a{i - 1}" for j in range(9)) + "}\n" for i in range(1, 30))
    (tmp_path / "c.yml").write_text("base_model: llama-3-8b\n" + text)
    assert read_as(tmp_path, "--config", "c.yml")[1]["tools"] == "axolotl"


def test_mutated_files_end_in_order(tmp_path):
    random.seed(5)
    texts = [text for _, _, text, _, _ in CASES] + [ACCELERATE, DEEPSPEED]
    for n in range(150):
        text = bytearray(random.choice(texts).encode())
        for _ in range(random.randrange(1, 12)):
            at = random.randrange(len(text))
            text[at:at + random.randrange(3)] = random.choice([b":", b"- ", b"{", b"]", b"&a ", b"*a", b"\n", b"\xff", b"'", b"=", b"[", b"--", b"${"])
        name = random.choice(["c.yml", "c.toml", "c.sh", "c.json"])
        (tmp_path / name).write_bytes(bytes(text))
        done = gpuspy(tmp_path, "--config", name)
        assert done.returncode in (0, 1, 2, 3) and done.stderr.count("\n") <= 1, (done.returncode, done.stderr, bytes(text))


def test_an_unknown_optimizer_is_reported(tmp_path):
    (tmp_path / "c.yml").write_text("base_model: llama-3-8b\noptimizer: lomo\nbf16: true\n")
    _, config = read_as(tmp_path, "--config", "c.yml")
    assert config["options"] == ["--model=llama-3-8b", "--precision=bf16", "--drop-outputs", "--expandable-segments"]
    assert config["not_considered"] == ["optimizer=lomo: Adam's two states are counted"]
    (tmp_path / "c.yml").write_text("base_model: llama-3-8b\noptimizer: adafactor\n")
    assert "--optimizer=adafactor" in read_as(tmp_path, "--config", "c.yml")[1]["options"]


@pytest.mark.parametrize("words, expands", [
    ("PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True' NPROC_PER_NODE=2 swift sft --model gpt2", True), ("swift sft --model gpt2", False),
    ("export PYTORCH_ALLOC_CONF=garbage_collection_threshold:0.8,expandable_segments:True\nswift sft --model gpt2", True),
    ("# PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nswift sft --model gpt2", False),
    ("CONFIG=llama3_8b ./run_train.sh", True), ("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\nCONFIG=llama3_8b ./run_train.sh", False),
])
def test_expandable_segments_are_those_of_the_script_or_the_tool(tmp_path, words, expands):
    (tmp_path / "train.sh").write_text(words + "\n")
    assert ("--expandable-segments" in read_as(tmp_path, "--config", "train.sh")[1]["options"]) == expands


@pytest.mark.parametrize("text, unread", [
    ("finetuning_type: lora\nlora_rank: eight\ncutoff_len: 2k\n", ["cutoff_len=2k: not a number", "lora_rank=eight: not a number"]),
    ("finetuning_type: lora\nlora_rank: -8\n", ["lora_rank=-8: negative"]),
    ("finetuning_type: lora\nper_device_train_batch_size: auto\ngradient_accumulation_steps: -1\nlora_rank:\n", []),
    ("finetuning_type: full\nzero_optimization: {stage: 5}\n", ["ZeRO's stage 5: stages are 0 to 3"]),
])
def test_a_number_that_cannot_be_read_is_listed(tmp_path, text, unread):
    (tmp_path / "c.yml").write_text("model_name_or_path: Qwen/Qwen2.5-7B\n" + text)
    assert sorted(read_as(tmp_path, "--config", "c.yml")[1]["not_considered"]) == unread


def test_torchtune_without_a_checkpointer(tmp_path):
    (tmp_path / "c.yml").write_text("model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 4}\nbatch_size: 2\n")
    _, config = read_as(tmp_path, "--config", "c.yml")
    assert config["tools"] == "torchtune" and {"--model=llama-3.1-8b", "--lora-rank=4", "--batch=2"} <= set(config["options"])


GEMMA = "base_model: google/gemma-3-4b-it\nbf16: true\nsequence_len: 1024\nmicro_batch_size: 1\n"


@pytest.mark.parametrize("text, frozen", [
    (GEMMA, "tower"),                                         # without images, the image tower has no gradients
    (GEMMA + "processor_type: AutoProcessor\n", None),
    (GEMMA + "processor_type: AutoProcessor\nfreeze_mm_modules: true\n", "tower"),
    (GEMMA + "adapter: lora\n", None),                        # all weights are frozen
    (GEMMA.replace("google/gemma-3-4b-it", "llama-3.2-1b"), None),
    ("model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\nstage: sft\nfinetuning_type: full\nbf16: true\n", "tower"),
    ("model_name_or_path: Qwen/Qwen3-VL-4B-Instruct\nstage: sft\nfinetuning_type: full\nfreeze_vision_tower: false\n", None),
    ("model: {_component_: torchtune.models.llama3_2_vision.llama3_2_vision_11b, decoder_trainable: False}\noptimizer: {_component_: torch.optim.AdamW}\ndtype: bf16\n"
     "checkpointer: {checkpoint_dir: /tmp/Llama-3.2-11B-Vision-Instruct/}\n", "text"),
])
def test_what_a_model_of_images_does_not_train(tmp_path, text, frozen):
    (tmp_path / "c.yaml").write_text(text)
    answer, config = read_as(tmp_path, "--config", "c.yaml")
    assert [o for o in config["options"] if o.startswith("--frozen")] == ([f"--frozen={frozen}"] if frozen else [])
    assert answer["plan"]["frozen"] == (frozen or "none")


@pytest.mark.parametrize("name, model, weights", [
    ("TheBloke/Llama-2-7B-GPTQ", "TheBloke/Llama-2-7B", ["--weights=gptq"]),
    ("TechxGenus/Meta-Llama-3-8B-Instruct-AWQ", "TechxGenus/Meta-Llama-3-8B-Instruct", ["--weights=awq"]),
    ("hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "hugging-quants/Meta-Llama-3.1-405B", []),
    ("unsloth/llama-3-8b-bnb-4bit", "unsloth/llama-3-8b", []),
    ("hugging-quants/Meta-Llama-3.1-8B-Instruct-GPTQ-INT4", "hugging-quants/Meta-Llama-3.1-8B-Instruct", ["--weights=gptq"]),
])
def test_names_of_quantized_weights(tmp_path, name, model, weights):
    (tmp_path / "c.yaml").write_text(f"base_model: {name}\nadapter: lora\nbf16: true\n")
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert config["options"][:1 + len(weights)] == [f"--model={model}", *weights]
    (tmp_path / "c.yaml").write_text(f"base_model: {name}\nbf16: true\n")  # such weights cannot be trained
    assert gpuspy(tmp_path, "--config", "c.yaml").returncode in (2, 3)


@pytest.mark.parametrize("name, quantization, model, weights", [
    ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "gptq_marlin", "Qwen/Qwen2.5-7B-Instruct", "gptq-8bit"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "", "RedHatAI/Meta-Llama-3.1-8B-Instruct", "gptq"),
    ("RedHatAI/Meta-Llama-3.1-8B-Instruct-FP8-dynamic", "compressed-tensors", "RedHatAI/Meta-Llama-3.1-8B-Instruct", "fp8"),
    ("nvidia/Llama-3.1-8B-Instruct-FP4", "", "nvidia/Llama-3.1-8B-Instruct", "nvfp4"),
    ("unsloth/Llama-3.2-1B-bnb-4bit", "", "unsloth/Llama-3.2-1B", "nf4"),
    ("meta-llama/Llama-3.1-8B-Instruct", "gptq", "meta-llama/Llama-3.1-8B-Instruct", "gptq"),
    ("meta-llama/Llama-3.1-8B-Instruct", "awq_marlin", "meta-llama/Llama-3.1-8B-Instruct", "awq"),
    ("meta-llama/Llama-3.1-8B-Instruct", "bitsandbytes", "meta-llama/Llama-3.1-8B-Instruct", "nf4"),
    ("meta-llama/Llama-3.1-8B-Instruct", "torchao", "meta-llama/Llama-3.1-8B-Instruct", None),
])
def test_weights_that_vllm_serves(tmp_path, name, quantization, model, weights):
    (tmp_path / "c.yaml").write_text(f"model: {name}\nmax-model-len: 4096\n" + (f"quantization: {quantization}\n" if quantization else ""))
    _, config = read_as(tmp_path, "--config", "c.yaml", "--gpu", "h100-80g")
    assert config["options"][0] == f"--model={model}"
    assert [o for o in config["options"] if o.startswith("--weights")] == ([f"--weights={weights}"] if weights else [])
    assert bool(config["not_considered"]) == (weights is None)


def test_a_name_with_a_format_is_not_the_16_bit_model(tmp_path):
    done = gpuspy(tmp_path, "--model", "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "--inference")
    assert done.returncode == 2 and "did you mean 'llama-3.1-8b'" in done.stderr


RECIPE = """
model: {model_id: meta-llama/Llama-3.2-1B, base_args: [--max-model-len, "8192"]}
features: {long: {args: [--max-num-seqs, "4"]}}
variants: {default: {precision: FORM}, other: {precision: nvfp4, model_id: meta-llama/Llama-3.1-8B}}
guide: |
  vllm serve meta-llama/Llama-3.1-8B --tensor-parallel-size 2
"""


@pytest.mark.parametrize("form, weights", [("bf16", []), ("fp8", ["--weights=fp8"])])
def test_a_recipe_of_vllm_is_its_first_model(tmp_path, form, weights):
    (tmp_path / "c.yaml").write_text(RECIPE.replace("FORM", form))
    _, config = read_as(tmp_path, "--config", "c.yaml", "--gpu", "h100-80g")
    assert config["options"] == ["--model=meta-llama/Llama-3.2-1B", "--serve=vllm", "--seq=8192", *weights]
    assert config["not_considered"] == ["the number of GPUs, which the file does not state: add --tp N"]


PAIRS = "base_model: llama-3.2-1b\nmicro_batch_size: 2\nsequence_len: 1024\nbf16: true\nrl: "


@pytest.mark.parametrize("text, batch, note", [
    (PAIRS + "dpo\nadapter: lora\n", 4, None),
    (PAIRS + "dpo\n", 4, "the reference model of dpo"),
    (PAIRS + "orpo\n", 4, None),
    (PAIRS + "kto\nadapter: lora\n", 2, "kto: one model's training on text is estimated"),
    ("model_name_or_path: llama-3.2-1b\nstage: dpo\nfinetuning_type: lora\nbf16: true\ncutoff_len: 1024\n", 16, None),
    ("model_name_or_path: llama-3.2-1b\nstage: sft\nfinetuning_type: lora\nbf16: true\nper_device_train_batch_size: 3\n", 3, None),
    ("model: {_component_: torchtune.models.llama3_2.lora_llama3_2_1b}\ncheckpointer: {checkpoint_dir: /tmp/Llama-3.2-1B/}\n"
     "batch_size: 3\nloss: {_component_: torchtune.rlhf.loss.DPOLoss}\n", 6, None),
])
def test_a_training_on_pairs_has_twice_the_sequences(tmp_path, text, batch, note):
    (tmp_path / "c.yaml").write_text(text)
    answer, config = read_as(tmp_path, "--config", "c.yaml")
    assert answer["plan"]["batch"] == batch and config["not_considered"] == ([note] if note else [])


def test_accelerate_reduces_in_16_bits(tmp_path):
    text = "base_model: llama-3.2-1b\nbf16: true\nfsdp_version: 2\nfsdp_config: {reshard_after_forward: true}\n"
    for more, given in (("", True), ("adapter: lora\n", False)):
        (tmp_path / "c.yaml").write_text(text + more)
        options = read_as(tmp_path, "--config", "c.yaml", "--gpus", "8")[1]["options"]
        assert "--sharding=fsdp2" in options and ("--half-reduce" in options) == given


def test_16_bits_of_megatron_and_experts_of_axolotl(tmp_path):
    run = "torchrun pretrain_gpt.py --num-layers 2 --hidden-size 256 --num-attention-heads 4 --seq-length 512 --max-position-embeddings 512 --micro-batch-size 1 --bf16 --use-distributed-optimizer {}\n"
    for words, expected in (("", set()), ("--grad-reduce-in-bf16", {"--half-reduce"}), ("--main-grads-dtype bf16", {"--half-reduce"}),
                            ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", {"--half-states"})):
        (tmp_path / "c.sh").write_text(run.format(words))
        answer, config = read_as(tmp_path, "--config", "c.sh", "--gpus", "8")
        assert {"--half-reduce", "--half-states"} & set(config["options"]) == expected
        assert not any("exp_avg" in x or "precision_aware" in x for x in config["not_considered"])
        assert answer["plan"]["half_states"] == ("--half-states" in expected)
    text = "base_model: allenai/OLMoE-1B-7B-0924\nadapter: qlora\nload_in_4bit: true\nsequence_len: 512\nmicro_batch_size: 1\n"
    for more, given in (("", False), ("quantize_moe_experts: true\n", True)):
        (tmp_path / "c.yaml").write_text(text + more)
        assert ("--quantised-experts" in read_as(tmp_path, "--config", "c.yaml")[1]["options"]) == given
    (tmp_path / "c.yaml").write_text("base_model: allenai/OLMoE-1B-7B-0924\nsequence_len: 512\nmicro_batch_size: 1\nexpert_parallel_size: 4\n")
    answer, config = read_as(tmp_path, "--config", "c.yaml")
    assert "--ep=4" in config["options"] and answer["plan"]["gpus"] == 4


AUTOMODEL_PARTS = """
step_scheduler: {global_batch_size: 32, local_batch_size: 8}
model: {pretrained_model_name_or_path: meta-llama/Llama-3.2-1B, torch_dtype: TYPE}
distributed: {strategy: fsdp2, dp_size: 2, pp_size: 2, pipeline: {pp_microbatch_size: 2}}
"""


@pytest.mark.parametrize("kind, precision", [("bf16", "bf16"), ("auto", "bf16"), ("float32", "amp-bf16")])
def test_automodels_types_and_micro_batches(tmp_path, kind, precision):
    (tmp_path / "c.yaml").write_text(AUTOMODEL_PARTS.replace("TYPE", kind))
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert f"--precision={precision}" in config["options"] and {"--batch=2", "--accumulation=4"} < set(config["options"])
    assert config["not_considered"] == []


def test_torchtunes_evaluation_is_inference(tmp_path):
    text = "model: {_component_: torchtune.models.qwen2.qwen2_7b}\ncheckpointer: {checkpoint_dir: /tmp/Qwen2-7B-Instruct/}\ndtype: bf16\n"
    (tmp_path / "c.yaml").write_text(text + "tasks: [truthfulqa_mc2]\nmax_seq_length: 4096\nbatch_size: 8\nenable_kv_cache: True\nquantizer: null\n")
    answer, config = read_as(tmp_path, "--config", "c.yaml")
    assert config["options"] == ["--model=Qwen2-7B-Instruct", "--precision=bf16", "--inference", "--batch=8", "--seq=4096"]
    assert not any(line["part"] == "gradients" for line in answer["lines"])


@pytest.mark.parametrize("text, option", [
    ("bfloat16: true\n", "--precision=bf16"), ("float16: true\n", "--precision=fp16"), ("bf16: true\nfloat16: false\n", "--precision=bf16")])
def test_axolotls_types_without_autocast(tmp_path, text, option):
    (tmp_path / "c.yml").write_text("base_model: meta-llama/Llama-3.2-1B\nsequence_len: 512\nmicro_batch_size: 1\noptimizer: adamw_torch\n" + text)
    assert option in read_as(tmp_path, "--config", "c.yml")[1]["options"]


@pytest.mark.parametrize("keys, options, left", [
    ("use_apollo: true\napollo_rank: 128\napollo_layerwise: true\n", {"--optimizer=galore", "--lora-rank=128", "--step=in-backward"}, "use_apollo"),
    ("use_muon: true\n", {"--optimizer=muon"}, ""), ("use_adam_mini: true\n", set(), "adam_mini"), ("use_badam: true\n", set(), "badam"),
    ("mixture_of_depths: convert\n", {"--optimizer=adamw"}, "mixture_of_depths"), ("use_asft_loss: true\n", {"--optimizer=adamw"}, "use_asft_loss"),
    ("use_llama_pro: true\n", {"--optimizer=adamw"}, "use_llama_pro")])
def test_llama_factorys_other_ways_to_train(tmp_path, keys, options, left):
    """None of examples/extras is taken for plain AdamW without a word."""
    (tmp_path / "c.yaml").write_text("model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\n"
                                     "per_device_train_batch_size: 1\npure_bf16: true\n" + keys)
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert options < set(config["options"]) and left in " ".join(config["not_considered"]) and (left or not config["not_considered"])


def test_llama_factorys_second_version(tmp_path):
    (tmp_path / "c.yaml").write_text("model: Qwen/Qwen3-4B\nmodel_class: llm\ntrain_dataset: data/v1_sft_demo.yaml\nbf16: true\ncutoff_len: 2048\nmicro_batch_size: 1\n")
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert config["tools"] == "LLaMA-Factory" and "--precision=bf16" in config["options"]


def test_quick_geglu_has_a_gate(tmp_path):
    read = []
    for word in "--swiglu", "--quick-geglu":
        (tmp_path / "c.sh").write_text(MEGATRON.replace("--swiglu", word))
        read.append(read_as(tmp_path, "--config", "c.sh")[1]["options"])
    assert read[0] == read[1]


def test_nemos_experts(tmp_path):
    """Mixtral in Google's gpu-recipes: the model was refused as one without experts."""
    lines = [line for line in NEMO.rstrip().split("\n") if not line.strip().startswith("expert_model_parallel_size")]
    at = lines.index("model:")
    lines[at + 1:at + 1] = ["  num_moe_experts: 8", "  moe_router_topk: 2", "  expert_model_parallel_size: 2"]
    (tmp_path / "c.yaml").write_text("\n".join(lines) + "\n")
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert {"--experts=8", "--experts-used=2", "--ep=2"} < set(config["options"])


def test_llama_factorys_galore(tmp_path):
    (tmp_path / "c.yaml").write_text("model_name_or_path: meta-llama/Meta-Llama-3-8B\nstage: sft\nfinetuning_type: full\nuse_galore: true\n"
                                     "galore_layerwise: true\ngalore_rank: 64\ngalore_scale: 2.0\ncutoff_len: 2048\nper_device_train_batch_size: 1\npure_bf16: true\n")
    _, config = read_as(tmp_path, "--config", "c.yaml")
    assert {"--optimizer=galore", "--lora-rank=64", "--step=in-backward"} < set(config["options"]) and config["not_considered"] == []


def test_what_a_component_is_for_is_listed(tmp_path):
    text = "model: {_component_: torchtune.models.llama3_2.llama3_2_1b}\ncheckpointer: {checkpoint_dir: /tmp/Llama-3.2-1B/}\n"
    (tmp_path / "c.yaml").write_text(text + "quantizer: {_component_: torchtune.QAT}\n")
    assert read_as(tmp_path, "--config", "c.yaml")[1]["not_considered"] == ["quantizer._component_=torchtune.QAT"]
    (tmp_path / "c.yaml").write_text(text.replace(".llama3_2_1b", ".lora_llama3_2_1b").replace("1b}", "1b, quantize_base: True}"))
    assert "--weights=nf4-double" in read_as(tmp_path, "--config", "c.yaml")[1]["options"]


@pytest.mark.parametrize("text, options", [
    ("finetuning_type: oft\noft_block_size: 64\noft_target: all\n", "--adapter=oft --block-size=64"),
    ("finetuning_type: oft\noft_target: q_proj,v_proj\nquantization_bit: 4\n", "--adapter=oft --weights=nf4-double --target=qv"),
    ('peft_type: LOHA\nr: 8\ntarget_modules: [q_proj, v_proj]\n', "--adapter=loha --lora-rank=8 --target=qv"),
    ('peft_type: ADALORA\nr: 8\ninit_r: 12\ntarget_modules: [q_proj, k_proj, v_proj]\n', "--adapter=adalora --lora-rank=12 --target=q_proj,k_proj,v_proj"),
    ('peft_type: IA3\ntarget_modules: [q_proj, v_proj, down_proj]\nfeedforward_modules: [down_proj]\n', "--adapter=ia3 --target=qv"),
    ('peft_type: IA3\ntarget_modules: [k_proj, v_proj, down_proj]\n', "--adapter=ia3"),
    ('peft_type: LORA\nr: 8\ntarget_modules: [model.layers.*.mlp.gate_proj, up_proj]\n', "--adapter=lora --lora-rank=8 --target=gate_proj,up_proj"),
    ('peft_type: LORA\nr: 8\ntarget_modules: [query_key_value, dense, dense_h_to_4h, dense_4h_to_h]\n',
     "--adapter=lora --lora-rank=8 --target=q_proj,k_proj,v_proj,o_proj,up_proj,down_proj"),
    ('peft_type: LORA\nr: 8\ntarget_modules: [q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj]\n', "--adapter=lora --lora-rank=8"),
    ('peft_type: LORA\nr: 8\ntarget_modules: [W_pack]\n', "--adapter=lora --lora-rank=8 --target=q_proj,k_proj,v_proj"),
    ('peft_type: LORA\nr: 4\ntarget_modules: [k_proj, v_proj]\nmodules_to_save: [lm_head]\n',
     "--adapter=lora --lora-rank=4 --target=kv --modules-to-save=embeddings"),
    ('peft_type: PREFIX_TUNING\nnum_virtual_tokens: 30\n', "--adapter=prefix --virtual-tokens=30"),
    ('peft_type: BOFT\nboft_block_size: 8\ntarget_modules: all-linear\n', "--adapter=boft --block-size=8"),
])
def test_adapters_of_configurations(tmp_path, text, options):
    (tmp_path / "c.yaml").write_text("model_name_or_path: meta-llama/Llama-3.2-1B\nbf16: true\ndisable_gradient_checkpointing: true\n"
                                     "per_device_train_batch_size: 1\n" + text)
    _, config = read_as(tmp_path, "--config", "c.yaml")
    mine = [o for o in config["options"] if o.startswith(("--adapter", "--lora", "--block", "--virtual", "--weights", "--target", "--modules"))]
    assert mine == options.split()


def test_pefts_own_file(tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "VERA", "base_model_name_or_path": "meta-llama/Llama-3.2-1B",
                                                              "r": 128, "target_modules": ["q_proj", "v_proj"]}))
    answer, config = read_as(tmp_path, "--config", "adapter_config.json", "--precision", "bf16")
    assert config["tools"] == "peft" and answer["plan"]["rank"] == 128 and answer["model"]["name"] == "llama-3.2-1b"


def test_lengths_vary_without_packing_and_padding(tmp_path):
    """Tools that pad a batch to its longest sample; not those that cut text into blocks."""
    axolotl = "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 2048\nmicro_batch_size: 1\nadapter: lora\nlora_r: 8\ndatasets:\n  - path: x\n    type: alpaca\n"
    factory = "model_name_or_path: Qwen/Qwen2.5-7B\ncutoff_len: 2048\nfinetuning_type: lora\nbf16: true\n"
    trl = "model_name_or_path: Qwen/Qwen2.5-7B\nuse_peft: true\nlora_r: 32\nmax_length: 1024\nper_device_train_batch_size: 2\n"
    for text, vary in ((axolotl, True), (axolotl + "sample_packing: true\n", False), (axolotl + "sample_packing: false\npad_to_sequence_len: true\n", False),
                       (axolotl + "sample_packing: false\n", True), (factory + "stage: sft\n", True), (factory + "stage: pt\n", False),
                       (factory + "stage: pt\npacking: false\n", True), (factory + "stage: sft\nneat_packing: true\n", False),
                       (trl, True), (trl + "packing: true\n", False), (TORCHTITAN, False), (NEMO, False)):
        name = "c.toml" if text is TORCHTITAN else "c.yaml"
        (tmp_path / name).write_text(text)
        _, config = read_as(tmp_path, "--config", name)
        assert ("--varying-lengths" in config["options"]) == vary, text


def test_the_time_for_a_list_of_options_grows_with_its_length(tmp_path):
    def seconds(n):
        (tmp_path / "c.yaml").write_text("args:\n" + '- "--max-model-len=512"\n' * n)
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        assert gpuspy(tmp_path, "--config", "c.yaml", "--model", "gpt2", "--memory", "80GiB").returncode == 0
        return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before

    few = min(seconds(10000) for _ in range(2))
    assert min(seconds(40000) for _ in range(2)) < 10 * few + 0.2


SWIFT = """NPROC_PER_NODE=2 \\
swift sft --model Qwen/Qwen2.5-7B-Instruct \\
    --gradient_accumulation_steps $(expr 16 / $NPROC_PER_NODE) --max_length 2048 MORE
"""
MEGATRON_SWIFT = """n=8
NPROC_PER_NODE=$n \\
megatron sft --model Qwen/Qwen3-32B --tensor_model_parallel_size 8 --sequence_parallel true \\
    --recompute_granularity full --max_length 8192 --packing true MORE
"""


@pytest.mark.parametrize("text, more, options, unused", [
    # tuner_type is lora by default, a step has 16 samples, and samples are padded to the longest one
    (SWIFT, "", "--precision=bf16 --optimizer=adamw --adapter=lora --lora-rank=8 --lora-dropout=0.05 --batch=1 --accumulation=8 --seq=2048 "
     "--varying-lengths --checkpointing=full --drop-outputs --gpus=2", []),
    (SWIFT, "--train_type full --packing true --deepspeed zero3_offload", "--precision=bf16 --master-weights --optimizer=adamw --batch=1 --accumulation=8 "
     "--seq=2048 --checkpointing=full --drop-outputs --gpus=2 --sharding=zero3 --offload=all", []),
    (SWIFT, "--tuner_type lora --quant_bits 4 --quant_method bnb --lora_rank 16 --rlhf_type dpo", "--precision=bf16 --optimizer=adamw --adapter=lora "
     "--weights=nf4-double --lora-rank=16 --lora-dropout=0.05 --batch=2 --accumulation=8 --seq=2048 --varying-lengths --checkpointing=full --drop-outputs "
     "--gpus=2", ["quant_method=bnb"]),
    (SWIFT, "--tuner_type full --fsdp fsdp2 --gradient_checkpointing false", "--precision=amp-bf16 --optimizer=adamw --batch=1 --accumulation=8 --seq=2048 "
     "--varying-lengths --drop-outputs --gpus=2 --sharding=fsdp2 --half-reduce", []),
    (MEGATRON_SWIFT, "", "--runtime=megatron --precision=bf16 --master-weights --batch=1 --accumulation=16 --seq=8192 --checkpointing=full --fused-loss --tp=8 "
     "--gpus=8 --sequence-parallel --sharding=zero1", []),
    (MEGATRON_SWIFT, "--tuner_type lora --optimizer_cpu_offload true", "--runtime=megatron --precision=bf16 --adapter=lora --lora-rank=8 --lora-dropout=0.05 "
     "--batch=1 --accumulation=16 --seq=8192 --checkpointing=full --fused-loss --tp=8 --gpus=8 --sequence-parallel --sharding=zero1 --offload=optimizer", []),
    (MEGATRON_SWIFT, "--rlhf_type dpo", "--runtime=megatron --precision=bf16 --master-weights --batch=2 --accumulation=16 --seq=8192 --checkpointing=full --fused-loss --tp=8 "
     "--gpus=8 --sequence-parallel --sharding=zero1", ["the reference model of dpo"]),
    (MEGATRON_SWIFT.replace("32B", "30B-A3B").replace("size 8", "size 4"), "--expert_model_parallel_size 4 --optimizer dist_muon", "--runtime=megatron --precision=bf16 "
     "--master-weights --optimizer=muon --batch=1 --accumulation=8 --seq=8192 --checkpointing=full --fused-loss --tp=4 --ep=4 --expert-tp=1 --gpus=8 "
     "--sequence-parallel --sharding=zero1", []),
])
def test_the_scripts_of_ms_swift(tmp_path, text, more, options, unused):
    """Its commands have defaults of their own: without them a LoRA would be read as a training of all parameters."""
    (tmp_path / "train.sh").write_text(text.replace("MORE", more))
    _, read = read_as(tmp_path, "--config", "train.sh")
    assert read["tools"] == ("ms-swift on TRL" if text == SWIFT else "ms-swift on Megatron-LM")
    assert " ".join(read["options"][1:]) == options and read["not_considered"] == unused


def test_a_configuration_of_ms_swift_and_scripts_that_are_none(tmp_path):
    (tmp_path / "a.yaml").write_text("model: Qwen/Qwen2.5-7B\ntrain_type: full\nmax_length: 512\n")
    assert read_as(tmp_path, "--config", "a.yaml")[1]["tools"] == "ms-swift on TRL"
    (tmp_path / "b.sh").write_text("swift export --model Qwen/Qwen2.5-7B --quant_bits 4\nswiftly sft --x 1\n")
    assert gpuspy(tmp_path, "--config", "b.sh").returncode == 3


def test_accelerates_file_of_a_script_of_ms_swift(tmp_path):
    (tmp_path / "fsdp2.json").write_text(json.dumps({"compute_environment": "LOCAL_MACHINE", "distributed_type": "FSDP", "num_processes": 4,
                                                     "fsdp_config": {"fsdp_version": 2, "fsdp_activation_checkpointing": True}}))
    (tmp_path / "train.sh").write_text('accelerate launch --config_file "./fsdp2.json" \\\n swift/cli/sft.py --model gpt2 --gradient_checkpointing false\n')
    options = read_as(tmp_path, "--config", "train.sh")[1]["options"]
    assert {"--gpus=4", "--sharding=fsdp2", "--checkpointing=full", "--adapter=lora"} <= set(options)


@pytest.mark.parametrize("text", ["infer_backend: huggingface\ntemplate: qwen3_vl\n", "export_dir: out\nadapter_name_or_path: a\n",
                                  "stage: sft\ndo_predict: true\nfinetuning_type: lora\ncutoff_len: 512\n"])
def test_what_llama_factory_only_runs_is_no_training(tmp_path, text):
    (tmp_path / "a.yaml").write_text("model_name_or_path: gpt2\n" + text)
    answer, read = read_as(tmp_path, "--config", "a.yaml")
    assert read["tools"] == "LLaMA-Factory" and read["options"][:2] == ["--model=gpt2", "--inference"] and answer["plan"]["inference"] is True


def test_adapters_of_an_image_tower_are_not_those_of_the_language_model(tmp_path):
    (tmp_path / "a.yaml").write_text("base_model: gpt2\nadapter: lora\nlora_target_modules:\n  - self_attn.q_proj\n  - vision_adapter.mlp.fc1\n")
    _, read = read_as(tmp_path, "--config", "a.yaml")
    assert "--target=q_proj" in read["options"] and "adapters of vision_adapter.mlp.fc1" in read["not_considered"]


@pytest.mark.parametrize("modules, selective, listed", [("core_attn", True, False), ("[core_attn]", True, False), ("layernorm moe_act", False, True),
                                                        ("[core_attn mlp]", True, True), ("[mla_up_proj shared_experts]", False, True)])
def test_only_the_attention_is_recomputed_selectively(tmp_path, modules, selective, listed):
    """Megatron-LM recomputes the modules that its script names: without core_attn among them, the scores are kept."""
    (tmp_path / "run.sh").write_text(MEGATRON.replace("granularity selective", f'granularity selective\n  --recompute-modules "{modules}"'))
    read = read_as(tmp_path, "--config", "run.sh")[1]
    assert ("--checkpointing=selective" in read["options"]) == selective
    assert ("recompute_modules: only core_attn is known" in read["not_considered"]) == listed


def test_a_served_model_of_images_has_no_frozen_tower(tmp_path):
    (tmp_path / "c.yaml").write_text("model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct\ntemplate: qwen2_vl\ninfer_backend: huggingface\n")
    assert "--inference" in read_as(tmp_path, "--config", "c.yaml", "--batch", "1", "--seq", "2048")[1]["options"]


VERL = """model_path=${MODEL_PATH:-"${HOME}/models/Qwen2.5-7B-Instruct"}
max_prompt_length=$((1024 * 2))
max_response_length=$((1024 * 6))
tokens=$(((max_prompt_length + max_response_length) * 2))
python3 -m verl.trainer.main_ppo \\
    data.max_prompt_length=$max_prompt_length data.max_response_length=${max_response_length} \\
    actor_rollout_ref.model.path=$model_path \\
    actor_rollout_ref.actor.ppo_mini_batch_size=256 \\
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4 \\
    actor_rollout_ref.actor.use_kl_loss=True \\
    actor_rollout_ref.actor.fsdp_config.param_offload=True \\
    actor_rollout_ref.rollout.tensor_model_parallel_size=2 \\
    actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.n=5 \\
    trainer.n_gpus_per_node=8 trainer.nnodes=2 MORE
"""
VERL_SFT = """torchrun --nnodes=1 --nproc_per_node=4 -m verl.trainer.fsdp_sft_trainer \\
    data.micro_batch_size_per_gpu=8 model.partial_pretrain=google/gemma-2-2b-it ulysses_sequence_parallel_size=2 MORE
"""
OPENRLHF = """read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --data.max_len 2048 --train.batch_size 256 --train.micro_batch_size 2 \\
   --model.model_name_or_path meta-llama/Meta-Llama-3-8B --ds.zero_stage 3 --ds.param_dtype bf16 --ds.packing_samples MORE
EOF
deepspeed --module $training_commands
"""
ACTOR = "--precision=amp-bf16 --optimizer=adamw "
SAMPLES = "--checkpointing=full --drop-outputs --no-cache --fused-loss "


@pytest.mark.parametrize("text, more, options, unused", [
    # of 16 GPUs each has 256 · 5 / 16 samples per update, 4 at a time; what is offloaded is loaded for the update
    (VERL, "", ACTOR + "--batch=4 --accumulation=20 --seq=8192 --varying-lengths " + SAMPLES + "--gpus=16 --sharding=fsdp",
     ["ref_model", "rollout.gpu_memory_utilization=0.6"]),
    (VERL, "actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_max_token_len_per_gpu=$tokens "
     "actor_rollout_ref.actor.ulysses_sequence_parallel_size=2 actor_rollout_ref.actor.strategy=fsdp2", ACTOR + "--batch=1 --seq=32768 " + SAMPLES
     + "--cp=2 --gpus=16 --sharding=fsdp2", ["ref_model", "rollout.gpu_memory_utilization=0.6"]),
    (VERL, "actor_rollout_ref.model.lora_rank=32 critic.model.path=Qwen/Qwen2.5-7B", ACTOR + "--adapter=lora --lora-rank=32 --batch=4 --accumulation=20 "
     "--seq=8192 --varying-lengths " + SAMPLES + "--gpus=16 --sharding=fsdp --separate-adapters",
     ["ref_model", "rollout.gpu_memory_utilization=0.6", "critic_model=Qwen/Qwen2.5-7B"]),
    (VERL, "+actor_rollout_ref.actor.megatron.tensor_model_parallel_size=2 actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity=full",
     "--runtime=megatron --precision=bf16 --master-weights --optimizer=adamw --batch=4 --accumulation=40 --seq=8192 --varying-lengths --checkpointing=full --drop-outputs "
     "--fused-loss --tp=2 --gpus=16 --sequence-parallel --sharding=zero1", ["ref_model", "rollout.gpu_memory_utilization=0.6"]),
    (VERL_SFT, "optim.lr=1e-5", ACTOR + "--batch=8 --seq=1024 --varying-lengths " + SAMPLES + "--cp=2 --gpus=4 --sharding=fsdp2", []),
    (OPENRLHF, "--model.gradient_checkpointing_enable --ds.adam_offload", "--precision=bf16 --master-weights --batch=2 --seq=2048 --checkpointing=full "
     "--sharding=zero3 --offload=optimizer", ["the number of GPUs, which the file does not state: add --gpus N"]),
    (OPENRLHF, "--ds.lora.rank 64", "--precision=bf16 --adapter=lora --lora-rank=64 --batch=2 --seq=2048 --sharding=zero3",
     ["the number of GPUs, which the file does not state: add --gpus N"]),
    (OPENRLHF, "--data.chosen_key chosen --data.rejected_key rejected --model.beta 0.1", "--precision=bf16 --master-weights --batch=4 --seq=2048 --sharding=zero3",
     ["the reference model of dpo", "the number of GPUs, which the file does not state: add --gpus N"]),
])
def test_the_scripts_of_verl_and_openrlhf(tmp_path, text, more, options, unused):
    """One model's update is estimated; the other models and the rollout, which sleeps meanwhile, are listed."""
    (tmp_path / "train.sh").write_text(text.replace("MORE", more))
    _, read = read_as(tmp_path, "--config", "train.sh")
    assert read["tools"] == ("OpenRLHF" if text == OPENRLHF else "verl on Megatron-LM" if "megatron" in more else "verl")
    assert " ".join(read["options"][1:]) == options and read["not_considered"] == unused


@pytest.mark.parametrize("more, has, unused", [
    ("actor_rollout_ref.actor.fsdp_config.fsdp_size=4 actor_rollout_ref.model.enable_activation_offload=True actor_rollout_ref.model.use_fused_kernels=True", [],
     ["actor_rollout_ref.model.enable_activation_offload", "actor_rollout_ref.model.use_fused_kernels", "actor_rollout_ref.actor.fsdp_config.fsdp_size=4"]),
    ("actor_rollout_ref.model.use_remove_padding=True actor_rollout_ref.actor.optim.lr=1e-6 actor_rollout_ref.actor.fsdp_config.optimizer_offload=True "
     "actor_rollout_ref.actor.fsdp_config.fsdp_size=-1 actor_rollout_ref.ref.fsdp_config.param_offload=True actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=32", [], []),
    ("actor_rollout_ref.actor.megatron.sequence_parallel=False +actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_cpu_offload=True "
     "+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=1", ["--offload=optimizer"],
     ["actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction=1"]),
    ("actor_rollout_ref.actor.megatron.pipeline_model_parallel_size=4 +actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_first_pipeline_stage=9 "
     "actor_rollout_ref.actor.megatron.override_transformer_config.num_layers_in_last_pipeline_stage=1 actor_rollout_ref.actor.megatron.sequence_parallel=False "
     "+actor_rollout_ref.actor.megatron.override_transformer_config.attention_backend=fused", ["--pp=4", "--first-stage-layers=9", "--last-stage-layers=1"], []),
])
def test_keys_of_verl_that_are_not_read(tmp_path, more, has, unused):
    """Settings of the trained model that may matter are listed; what is not in memory during the update is not."""
    (tmp_path / "train.sh").write_text(VERL.replace("MORE", more))
    _, read = read_as(tmp_path, "--config", "train.sh")
    assert set(has) <= set(read["options"]) and read["not_considered"] == ["ref_model", "rollout.gpu_memory_utilization=0.6"] + unused
    assert "--sequence-parallel" not in read["options"]


@pytest.mark.parametrize("command", ["main_generation model.path=gpt2 data.batch_size=64", "main_ppo --config-name=mine", "main_eval data.path=x"])
def test_programs_of_verl_that_train_nothing_known(tmp_path, command):
    (tmp_path / "run.sh").write_text(f"python3 -m verl.trainer.{command} trainer.n_gpus_per_node=8\n")
    done = gpuspy(tmp_path, "--config", "run.sh")
    assert done.returncode in (2, 3) and "--precision" not in done.stdout


def test_a_default_before_a_positional_parameter(tmp_path):
    (tmp_path / "run.sh").write_text("MODEL=gpt2\ncase $1 in -m) MODEL=$1;; esac\npython finetune.py --model_name_or_path $MODEL --per_device_train_batch_size 2\n")
    assert read_as(tmp_path, "--config", "run.sh")[1]["options"][0] == "--model=gpt2"


def test_long_arithmetic_ends(tmp_path):
    """Looking for the assignments took minutes for a script of half a megabyte."""
    sums = "+".join(["a"] * 50000)
    (tmp_path / "run.sh").write_text("#!/bin/sh\na=1\n" + "# some words\n" * 20000 + f"x=$(({sums}))\n" * 3)
    assert gpuspy(tmp_path, "--config", "run.sh").returncode == 3


@pytest.mark.parametrize("text, seq", [("$((2048))", 2048), ("$((1024 * (1 + 2) - 24/2))", 3060), ("$((base * 2))", 1024), ("$(( $base + ${base} ))", 1024)])
def test_arithmetic_of_scripts(tmp_path, text, seq):
    (tmp_path / "run.sh").write_text(f"base=${{BASE:-512}}\nlength={text}\n" + VERL_SFT.replace("MORE", "data.max_length=$length"))
    assert f"--seq={seq}" in read_as(tmp_path, "--config", "run.sh")[1]["options"]


@pytest.mark.parametrize("text", ["$((1 / 0))", "$((", "$((((((((((((((((((((1))))", "$((9223372036854775807 * 2))", "$((unknown * 2))", "$((-5))", "$((1 * (0 - 9223372036854775807 - 1) / (0 - 1)))"])
def test_arithmetic_that_has_no_result(tmp_path, text):
    (tmp_path / "run.sh").write_text(f"length={text}\n" + VERL_SFT.replace("MORE", "data.max_length=$length"))
    done = gpuspy(tmp_path, "--config", "run.sh")
    assert done.returncode in (0, 1, 2) and len(done.stderr.splitlines()) < 2


UNSLOTH = '''from unsloth import FastLanguageModel  # load_in_4bit = False
max_seq_length = 4096
fourbit_models = [
    "unsloth/mistral-7b-bnb-4bit",  # More: max_seq_length = 1
]
text = """r = 999, per_device_train_batch_size = 99"""
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "unsloth/Llama-3.2-1B-Instruct-bnb-4bit",
    max_seq_length = max_seq_length,
)
model = FastLanguageModel.get_peft_model(model, r = 8 * 2, target_modules = ["q_proj", "v_proj",], RANK
    use_gradient_checkpointing = "unsloth")
trainer = SFTTrainer(model = model, args = SFTConfig(per_device_train_batch_size = 2, gradient_accumulation_steps = 4, optim = "adamw_8bit"))
model, tokenizer = FastLanguageModel.from_pretrained("lora_model", max_seq_length = 1024)
'''
UNSLOTH_READ = ("--model=unsloth/Llama-3.2-1B-Instruct --precision=bf16 --optimizer=adamw8bit --adapter=lora --weights=nf4-double "
                "--lora-rank=16 --lora-dropout=0 --target=qv --batch=2 --accumulation=4 --seq=4096 --varying-lengths --checkpointing=full --drop-outputs --expandable-segments "
                "--fused-layers --fused-loss")
PLAIN = '''import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainingArguments
tokenizer = AutoTokenizer.from_pretrained("gpt2-xl")
model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.float32)
args = TrainingArguments("out", per_device_train_batch_size=16, bf16=True, gradient_checkpointing=False)
'''


@pytest.mark.parametrize("name, text, options", [
    ("train.py", UNSLOTH.replace("RANK", ""), UNSLOTH_READ),
    ("train.py", UNSLOTH.replace("RANK", "lora_dropout = 0.1,").replace('max_seq_length = 4096', 'load_in_4bit = False\nmax_seq_length = 4096'),
     UNSLOTH_READ.replace("--weights=nf4-double ", "").replace("dropout=0", "dropout=0.1")),
    ("train.ipynb", json.dumps({"cells": [{"cell_type": "markdown", "source": "max_seq_length = 1"}, {"cell_type": "code", "source": UNSLOTH.splitlines(True)}]})
     .replace("RANK", ""), UNSLOTH_READ),
    ("train.py", PLAIN, "--model=gpt2 --precision=amp-bf16 --optimizer=adamw --batch=16 --drop-outputs"),
    ("train.py", 'llm = LLM(model="Qwen/Qwen2.5-7B-Instruct", max_model_len=4096, gpu_memory_utilization=0.8, tensor_parallel_size=2)',
     "--model=Qwen/Qwen2.5-7B-Instruct --serve=vllm --gpu-memory-utilization=0.8 --seq=4096 --tp=2"),
    ("run.sh", "vllm serve Qwen/Qwen2.5-7B-Instruct --max-model-len 4096 --enable-lora --max-lora-rank 64 --max-cpu-loras 8",
     "--model=Qwen/Qwen2.5-7B-Instruct --serve=vllm --seq=4096 --max-loras=1 --lora-rank=64"),
])
def test_arguments_in_python(tmp_path, name, text, options):
    """Of each name the first constant counts; comments and texts do not, expressions are listed, and nothing is executed."""
    (tmp_path / name).write_text(text)
    assert " ".join(read_as(tmp_path, "--config", name, "--gpu", "h100-80g")[1]["options"]) == options


ARGUMENTS = PLAIN.replace("per_device_train_batch_size=16", "per_device_train_batch_size=args.batch_size")
WHOLE = UNSLOTH.replace("RANK", "").replace("-bnb-4bit", "").replace("max_seq_length = 4096", "max_seq_length = 4096\nfull_finetuning = True")
TWICE = PLAIN + "DPOTrainer(args=TrainingArguments(per_device_train_batch_size=2))\n"
TRL_4BIT = """from trl import SFTConfig, SFTTrainer
SFTTrainer(model="unsloth/Llama-3.2-1B-Instruct", args=SFTConfig(max_length=1024, model_init_kwargs={"dtype": "float16"}, **{"per_device_train_batch_size": 2}))
server = LLM(max_model_len=64)
"""


@pytest.mark.parametrize("text, has, has_not, unused", [
    (ARGUMENTS, [], ["--batch"], ["per_device_train_batch_size=args.batch_size"]),
    (PLAIN + "optim = None\nargs = dict(optim=optim, num_train_epochs=args.epochs, dataset=load(args.path))", ["--batch=16"], [], []),
    (PLAIN + "tokens(add_generation_prompt=True)\noptimizer = AdamW(model)\nDataLoader(batch_size=args.size, pin_memory=True)", ["--batch=16"], [], []),
    (PLAIN.replace("size=16", "size=min(4, 8)"), [], ["--batch"], ["per_device_train_batch_size=min(4, 8)"]),
    (PLAIN + "other = TrainingArguments(per_device_train_batch_size=64)", ["--batch=16"], [], ["later per_device_train_batch_size=64"]),
    (WHOLE, ["--precision=bf16", "--seq=4096"], ["--adapter=lora", "--lora-rank=16", "--weights=nf4-double"], ["later max_seq_length=1024"]),
    (PLAIN.replace("import torch\n", "from trl import DPOTrainer\n") + "DPOTrainer()", ["--batch=32"], [], ["the reference model of dpo"]),
    (PLAIN.replace("import torch\n", "from trl import DPOTrainer, SFTTrainer\n") + "SFTTrainer()\nDPOTrainer()", ["--batch=16"], [], ["rl=dpo of a second training"]),
    (TRL_4BIT, ["--batch=2", "--seq=1024"], ["--fused-layers", "--chunked-loss"], []),
])
def test_python_that_is_not_only_constants(tmp_path, text, has, has_not, unused):
    """Settings that only executing the script would reveal, and second values, are listed; libraries are those imported."""
    (tmp_path / "train.py").write_text(text)
    _, read = read_as(tmp_path, "--config", "train.py")
    assert set(has) <= set(read["options"]) and not set(has_not) & set(read["options"]) and read["not_considered"] == unused


def test_commands_of_notebooks(tmp_path):
    """A training that a cell starts by a command line has the command's options."""
    cells = [{"cell_type": "code", "source": ["!torchrun --nproc_per_node 2 finetune.py --model_name_or_path gpt2 \\\n", "  --per_device_train_batch_size 3 --bf16 True"]},
             {"cell_type": "code", "source": "merged.save_pretrained('x', torch_dtype=torch.float16)"}]
    (tmp_path / "train.ipynb").write_text(json.dumps({"cells": cells}))
    _, read = read_as(tmp_path, "--config", "train.ipynb")
    assert read["options"][0] == "--model=gpt2" and {"--batch=3", "--gpus=2", "--precision=amp-bf16"} <= set(read["options"])


def test_python_that_ends_early(tmp_path):
    for n in range(len(UNSLOTH)):
        (tmp_path / "train.py").write_text(UNSLOTH[:n])
        if n % 31 == 0:
            assert gpuspy(tmp_path, "--config", "train.py").returncode in (0, 1, 2, 3)


# Trainings of denoisers: the name of the script decides what is trained and what is in memory beside it.
DIFFUSERS = """export MODEL_NAME="stabilityai/stable-diffusion-xl-base-1.0"
accelerate launch --mixed_precision="fp16" SCRIPT --pretrained_model_name_or_path=$MODEL_NAME \\
  --resolution=1024 --train_batch_size=2 --gradient_accumulation_steps=4 --gradient_checkpointing --learning_rate=1e-4 \\
  --instance_prompt="a photo of --rank 7" --seed="0" MORE
"""
KOHYA = """accelerate launch SCRIPT --pretrained_model_name_or_path="/models/mine.safetensors" --network_module=networks.lora \\
  --network_dim=16 --resolution="768,512" --train_batch_size=1 --optimizer_type="AdamW8bit" --mixed_precision="bf16" --cache_latents MORE
"""
AI_TOOLKIT = """
job: extension
config:
  name: first
  process:
    - type: sd_trainer
      network: {type: lora, linear: 16, linear_alpha: 16}
      datasets:
        - folder_path: /images
          cache_latents_to_disk: true
          resolution: [512, 768, 1024]
      train: {batch_size: 1, gradient_accumulation_steps: 2, train_unet: true, gradient_checkpointing: true, optimizer: adamw8bit, dtype: bf16}
      model: {name_or_path: black-forest-labs/FLUX.1-dev, is_flux: true, quantize: true}
      sample: {width: 1024, sample_every: 250}
"""
AUTOTRAIN = """
task: llm-orpo
base_model: HuggingFaceTB/SmolLM2-1.7B-Instruct
project_name: x
params: {block_size: 1024, model_max_length: 2048, epochs: 3, batch_size: 2, peft: true, quantization: int4, target_modules: all-linear,
  optimizer: adamw_torch, gradient_accumulation: 4, mixed_precision: bf16}
"""
OUMI = """
model: {model_name: Qwen/Qwen3-8B, model_max_length: 4096, torch_dtype_str: bfloat16}
training: {trainer_type: TRL_SFT, use_peft: true, per_device_train_batch_size: 2, enable_gradient_checkpointing: true, optimizer: adamw_torch_fused}
peft: {lora_r: 16, lora_alpha: 32, lora_target_modules: [q_proj, v_proj]}
"""
LITGPT = """
checkpoint_dir: checkpoints/mistralai/Mistral-7B-v0.1
precision: bf16-true
quantize: bnb.nf4
devices: 1
lora_r: 32
lora_dropout: 0.05
lora_query: true
lora_key: false
lora_value: true
lora_mlp: MLP
data: {class_path: litgpt.data.Alpaca2k, init_args: {seed: 42, num_workers: 4}}
train: {save_interval: 200, global_batch_size: 8, micro_batch_size: 2, max_seq_length: 512}
optimizer: {class_path: torch.optim.AdamW, init_args: {lr: 2e-4}}
"""
LIGHTNING = """
trainer: {accelerator: gpu, strategy: deepspeed_stage_2, devices: 4, precision: bf16-mixed, accumulate_grad_batches: 2}
model: {class_path: mine.Classifier, init_args: {lr: 2e-5}}
data: {class_path: mine.Data, init_args: {batch_size: 32}}
"""
SDXL = "--model=stabilityai/stable-diffusion-xl-base-1.0 "


@pytest.mark.parametrize("name, text, tool, options, unused", [
    ("a.sh", DIFFUSERS.replace("SCRIPT", "train_text_to_image_lora_sdxl.py").replace("MORE", ""), "diffusers' LoRA",
     SDXL + "--precision=fp16 --optimizer=adamw --adapter=lora --lora-rank=4 --target=attention --batch=2 --accumulation=4 --checkpointing=full --image=1024 --resident=all", []),
    ("a.sh", DIFFUSERS.replace("SCRIPT", "train_dreambooth_lora_sdxl.py").replace("fp16", "bf16").replace("MORE", "--rank=16 --use_8bit_adam --train_text_encoder"),
     "diffusers' DreamBooth with LoRA", SDXL + "--precision=bf16 --optimizer=adamw8bit --adapter=lora --lora-rank=16 --half-adapters --target=attention --batch=2 "
     "--accumulation=4 --checkpointing=full --image=1024 --resident=all", ["the text encoders' adapters, which are trained too"]),
    ("a.sh", DIFFUSERS.replace("SCRIPT", "train_text_to_image_sdxl.py").replace("MORE", "--use_ema"), "diffusers with cached inputs",
     SDXL + "--precision=amp-fp16 --optimizer=adamw --batch=2 --accumulation=4 --checkpointing=full --image=1024 --ema --resident=denoiser", []),
    ("a.sh", KOHYA.replace("SCRIPT", "sdxl_train_network.py").replace("MORE", "--network_train_unet_only --sdpa"), "sd-scripts for SDXL",
     "--model=sdxl --precision=bf16 --optimizer=adamw8bit --adapter=lora --lora-rank=16 --batch=1 --image=768 --resident=text", []),
    ("a.sh", KOHYA.replace("SCRIPT", "flux_train_network.py").replace("MORE", "--fp8_base --cache_text_encoder_outputs --blocks_to_swap=8"), "sd-scripts for FLUX",
     "--model=flux.1-dev --precision=bf16 --optimizer=adamw8bit --adapter=lora --lora-rank=16 --batch=1 --image=768 --resident=denoiser --weights=fp8", ["blocks_to_swap=8"]),
    ("a.toml", 'network_module = "networks.lora_flux"\npretrained_model_name_or_path = "/x.safetensors"\nnetwork_dim = 8\nmixed_precision = "bf16"\n'
     'cache_text_encoder_outputs = true\n', "sd-scripts for FLUX", "--model=flux.1-dev --precision=bf16 --optimizer=adamw --adapter=lora --lora-rank=8 --batch=1 --image=512 "
     "--resident=vae", []),
    ("a.sh", KOHYA.replace("SCRIPT", "train_network.py").replace("mine", "v1-5-pruned").replace("v1-5-pruned", "stable-diffusion-v1-5").replace("MORE", "--network_train_unet_only"),
     "sd-scripts", "--model=stable-diffusion-v1-5 --precision=bf16 --optimizer=adamw8bit --adapter=lora --lora-rank=16 --batch=1 --attention=eager --image=768 --resident=text", []),
    ("a.py", 'import subprocess\nsubprocess.run([\n    "accelerate", "launch",\n    "./sdxl_train_network.py",\n    "--network_module=networks.lora",\n    "--resolution=1024,1024",\n'
     '    "--train_batch_size=1", "--mixed_precision=bf16", "--xformers", "--network_train_unet_only",\n])\n', "sd-scripts for SDXL",
     "--model=sdxl --precision=bf16 --optimizer=adamw --adapter=lora --lora-rank=4 --batch=1 --image=1024 --resident=all", []),
    ("a.sh", "deepspeed --num_gpus 2 fastchat/train/train_lora.py --lora_r 8 --lora_dropout 0.05 --model_name_or_path gpt2 --fp16 True --per_device_train_batch_size 14 "
     "--model_max_length 512\n", "Transformers", "--model=gpt2 --precision=fp16 --optimizer=adamw --adapter=lora --lora-rank=8 --lora-dropout=0.05 --batch=14 --seq=512 "
     "--drop-outputs --gpus=2", []),
    ("a.yaml", "model_name_or_path: Qwen/Qwen3-30B-A3B\nstage: sft\nfinetuning_type: full\ncutoff_len: 4096\nper_device_train_batch_size: 1\nbf16: true\ntensor_model_parallel_size: 1\n"
     "pipeline_model_parallel_size: 4\nuse_distributed_optimizer: true\nrecompute_granularity: full\nnproc_per_node: 8\n", "LLaMA-Factory on Megatron-LM",
     "--model=Qwen/Qwen3-30B-A3B --runtime=megatron --precision=bf16 --master-weights --batch=1 --seq=4096 --varying-lengths --checkpointing=full --pp=4 --gpus=8 --sharding=zero1", []),
    ("a.yaml", AI_TOOLKIT, "ai-toolkit", "--model=black-forest-labs/FLUX.1-dev --precision=bf16 --optimizer=adamw8bit --adapter=lora --lora-rank=16 --batch=1 --accumulation=2 "
     "--checkpointing=full --image=1024 --frames=1 --resident=text --weights=fp8 --text-weights=fp8", []),
    ("a.yml", AUTOTRAIN, "AutoTrain of LLMs", "--model=HuggingFaceTB/SmolLM2-1.7B-Instruct --precision=bf16 --optimizer=adamw --adapter=qlora --weights=nf4 --lora-rank=16 "
     "--lora-dropout=0.05 --batch=4 --accumulation=4 --seq=1024 --varying-lengths --checkpointing=full --drop-outputs", []),
    ("a.yml", AUTOTRAIN.replace("llm-orpo", "text_classification").replace("SmolLM2-1.7B-Instruct", "SmolLM2-135M").replace("peft: true, quantization: int4, ", ""), "AutoTrain",
     "--model=HuggingFaceTB/SmolLM2-135M --precision=amp-bf16 --optimizer=adamw --batch=2 --accumulation=4 --seq=1024 --varying-lengths --drop-outputs", []),
    ("a.yaml", OUMI, "oumi on TRL", "--model=Qwen/Qwen3-8B --precision=bf16 --optimizer=adamw --step=fused --adapter=lora --lora-rank=16 --target=qv --batch=2 --seq=4096 "
     "--varying-lengths --checkpointing=full --drop-outputs", []),
    ("a.yaml", LITGPT.replace("MLP", "false"), "litgpt", "--model=Mistral-7B-v0.1 --runtime=litgpt --weights=nf4 --bitsandbytes=0.42 --precision=bf16 --optimizer=adamw "
     "--adapter=lora --lora-rank=32 --lora-dropout=0.05 --half-adapters --target=qv --batch=2 --accumulation=4 --seq=512 --varying-lengths", []),
    ("a.yaml", LITGPT.replace("MLP", "true").replace("devices: 1", "devices: 4").replace("quantize: bnb.nf4", "quantize:"), "litgpt",
     "--model=Mistral-7B-v0.1 --runtime=litgpt --precision=bf16 --optimizer=adamw --adapter=lora --lora-rank=32 --lora-dropout=0.05 --half-adapters "
     "--target=q_proj,v_proj,gate_proj,up_proj,down_proj --batch=2 --seq=512 --varying-lengths --checkpointing=full --gpus=4 --sharding=fsdp2", []),
    ("a.py", "# GPT-2\nbatch_size = 12\nblock_size = 256 # context\ngradient_accumulation_steps = 5 * 8\nn_layer = 6\nn_head = 6\nn_embd = 384\n", "nanoGPT",
     "--family=gpt --layers=6 --hidden=384 --heads=6 --context=256 --vocab=50304 --ffn=1536 --precision=amp-bf16 --optimizer=adamw --step=fused --batch=12 --accumulation=40 "
     "--seq=256 --drop-outputs --fused-layers --fused-loss", []),
    ("a.py", "batch_size = 8\neval_only = True\ninit_from = 'gpt2-medium'\n", "nanoGPT", "--model=gpt2-medium --inference --batch=8", []),
    ("args.yaml", "aa: null\namp: true\namp_dtype: bfloat16\nbatch_size: 256\nimg_size: 224\nmodel: resnet50\nopt: sgd\nmodel_ema: true\n", "timm",
     "--model=resnet50 --precision=amp-bf16 --optimizer=sgd-momentum --batch=256 --image=224 --ema", []),
    ("a.json", json.dumps({"per_device_train_batch_size": 8, "bf16": True, "gradient_checkpointing": False, "optim": "adamw_torch"}), "Transformers",
     "--precision=amp-bf16 --optimizer=adamw --batch=8 --drop-outputs", []),
    ("a.yaml", LIGHTNING, "Lightning", "--precision=bf16 --master-weights --batch=32 --accumulation=2 --gpus=4 --sharding=zero2", []),
    ("a.sh", "NGPU=8 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size 2 --training.seq_len 4096 --parallelism.tensor_parallel_degree 2\n", "torchtitan",
     "--model=llama-3-8b --precision=amp-bf16 --batch=2 --seq=4096 --drop-outputs --expandable-segments --tp=2 --gpus=8 --sequence-parallel --sharding=fsdp2",
     ["what config_registry.py sets for llama3_8b"]),
    ("a.yaml", "%%writefile a.yaml\n```yaml\nmodel_name_or_path: gpt2\nstage: sft\nfinetuning_type: lora\ncutoff_len: 512\nuse_eaft_loss: true\n"
     "deepspeed: x/ds_z3_offload_config.json\n```\n", "LLaMA-Factory", "--model=gpt2 --precision=fp32 --optimizer=adamw --adapter=lora --lora-rank=8 --batch=8 --seq=512 "
     "--varying-lengths --checkpointing=full --drop-outputs --sharding=zero3 --offload=all",
     ["use_eaft_loss", "x/ds_z3_offload_config.json, which was not found: its stage and offloading are taken from its name",
      "the number of GPUs, which the file does not state: add --gpus N"]),
])
def test_tools_beside_those_of_language_models(tmp_path, name, text, tool, options, unused):
    (tmp_path / name).write_text(text)
    named = options.startswith(("--model", "--family"))
    read = read_as(tmp_path, "--config", name, *([] if named else ["--model", "gpt2", "--seq=512"]))[1]
    assert read["tools"] == tool and " ".join(read["options"]) == options and read["not_considered"] == unused


def test_the_file_that_a_script_names(tmp_path):
    """Its keys count where the command does not state others; a missing one is named."""
    (tmp_path / "run.sh").write_text("CUDA_VISIBLE_DEVICES=0 llamafactory-cli train my/sft.yaml lora_rank=32\n")
    done = gpuspy(tmp_path, "--config", "run.sh")
    assert done.returncode == 3 and "starts a program whose configuration is 'my/sft.yaml', which is not there; give that file" in done.stderr
    (tmp_path / "my").mkdir()
    (tmp_path / "my/sft.yaml").write_text("model_name_or_path: gpt2\nstage: sft\nfinetuning_type: lora\nlora_rank: 8\ncutoff_len: 512\n")
    assert {"--model=gpt2", "--lora-rank=32", "--seq=512"} <= set(read_as(tmp_path, "--config", "run.sh")[1]["options"])
    (tmp_path / "zero.sh").write_text("accelerate launch --config_file a/zero3_offload.yaml sft.py --model-name gpt2 --per-device-train-batch-size 2 --lora-rank 4\n")
    read = read_as(tmp_path, "--config", "zero.sh")[1]
    assert {"--model=gpt2", "--batch=2", "--sharding=zero3", "--offload=all"} <= set(read["options"])
    assert "the rank of adapters: no key states that there are any" in read["not_considered"]


def test_a_script_that_turns_checkpointing_on(tmp_path):
    (tmp_path / "train.py").write_text(PLAIN.replace("gradient_checkpointing=False", "") + "model.gradient_checkpointing_enable()\n")
    assert "--checkpointing=full" in read_as(tmp_path, "--config", "train.py")[1]["options"]


@pytest.mark.parametrize("name, text, what", [
    ("a.sh", "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp-size 4 --mem-fraction-static 0.7\n", "a command of SGLang"),
    ("a.yaml", "model-path: Qwen/Qwen3-8B\ntensor-parallel-size: 2\nmem-fraction-static: 0.8\n", "a configuration of SGLang"),
    ("a.sh", "accelerate launch train_controlnet.py --pretrained_model_name_or_path=x --resolution=512 --train_batch_size=4\n", "a training of a ControlNet"),
    ("a.sh", "ollama run llama3.1:70b\n", "a command of Ollama"), ("a.yaml", "llm_backbone: x\ntraining: {batch_size: 2}\n", "a configuration of H2O LLM Studio"),
    ("a.json", json.dumps({"--model_family": "flux", "--train_batch_size": 1}), "a configuration of SimpleTuner"),
    ("a.sh", "llama-server -m model.gguf -c 8192 -ngl 99\n", "a command of llama.cpp"),
    ("a.yaml", "_BASE_: base.yaml\nMODEL: {MASK_ON: true}\nSOLVER: {IMS_PER_BATCH: 16}\n", "a configuration of detectron2"),
    ("a.py", "_base_ = ['a.py']\ntrain_dataloader = dict(batch_size=2)\n", "a configuration of OpenMMLab"),
    ("a.py", "def llama3_8b() -> Trainer.Config:\n    return Trainer.Config(training=TrainingConfig(steps=10))\n", "a list of torchtitan's configurations"),
    ("a.json", json.dumps({"architectures": ["LlamaForCausalLM"], "hidden_size": 64}), "a model's config.json"),
])
def test_what_gpuspy_does_not_read_is_named(tmp_path, name, text, what):
    (tmp_path / name).write_text(text)
    done = gpuspy(tmp_path, "--config", name)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"gpuspy: estimate: --config: '{name}' is {what}, which gpuspy does not read; "), done.stderr


LAUNCHED = "finetune.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --model_max_length 512 MORE\n"


@pytest.mark.parametrize("name, text, tool, options", [
    ("run.sh", "torchrun --nproc_per_node 4 " + LAUNCHED.replace("MORE", "--bf16 True --use_lora --lora_r 64"), "Transformers",
     "--model=gpt2 --precision=bf16 --optimizer=adamw --adapter=lora --lora-rank=64 --batch=2 --seq=512 --drop-outputs --gpus=4"),
    ("run.sh", "accelerate launch --num_processes 8 --use_fsdp --fsdp_version 2 " + LAUNCHED.replace("MORE", "--bf16 True"), "Transformers",
     "--model=gpt2 --precision=amp-bf16 --optimizer=adamw --batch=2 --seq=512 --drop-outputs --gpus=8 --sharding=fsdp2"),
    ("run.sh", "accelerate launch " + LAUNCHED.replace("finetune.py", "trl/scripts/sft.py").replace("MORE", ""), "TRL",
     "--model=gpt2 --precision=amp-bf16 --optimizer=adamw --batch=2 --seq=512 --varying-lengths --checkpointing=full --drop-outputs"),
    ("sky.yaml", "resources: {accelerators: 'H100:8'}\nnum_nodes: 2\nrun: |\n  torchrun --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE "
     + LAUNCHED.replace("MORE", "--fsdp 'full_shard auto_wrap'"), "Transformers",
     "--model=gpt2 --precision=fp32 --optimizer=adamw --batch=2 --seq=512 --drop-outputs --gpus=16 --sharding=fsdp"),
])
def test_command_lines_as_they_are_pasted(tmp_path, name, text, tool, options):
    """A script that is not TRL's has the defaults of transformers."""
    (tmp_path / name).write_text(text)
    _, read = read_as(tmp_path, "--config", name)
    assert read["tools"] == tool and " ".join(read["options"]) == options


@pytest.mark.parametrize("command", [
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 4096 "
    f"--tensor-model-parallel-size {1 << 32} --pipeline-model-parallel-size {1 << 32} --bf16",
    f"NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --per_device_train_batch_size {9 * 10**18} --train_type lora"])
def test_numbers_whose_product_is_too_large_are_refused(tmp_path, command):
    (tmp_path / "run.sh").write_text(command + "\n")
    done = gpuspy(tmp_path, "--config", "run.sh")
    assert done.returncode == 2 and done.stderr.startswith("gpuspy: estimate: --"), (done.returncode, done.stderr)


def test_configurations_that_name_each_other_are_read_once(tmp_path):
    (tmp_path / "a.yaml").write_text("base_model: gpt2\ndatasets: []\nmicro_batch_size: 2\nconfig_file: b.yaml\n")
    (tmp_path / "b.yaml").write_text("sequence_len: 512\nconfig_file: a.yaml\n")
    _, read = read_as(tmp_path, "--config", "a.yaml")
    assert {"--batch=2", "--seq=512"} <= set(read["options"])
