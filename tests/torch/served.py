"""vLLM with a tiny model of random weights: served.py OPTIONS, as JSON for LLM(). Prints what it computed, then, if it may
sleep, the memory in use while it does."""
import json
import os
import sys
import tempfile
from pathlib import Path

sys.path.pop(0)  # this folder, which has a requests.py of its own
os.environ.update(VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", VLLM_USE_FLASHINFER_SAMPLER="0", VLLM_ENABLE_V1_MULTIPROCESSING="0")
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "intermediate_size": 1408,
          "num_hidden_layers": 8, "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 32000,
          "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "hidden_act": "silu", "bos_token_id": 1, "eos_token_id": 2}


def used(worker):
    import torch
    free, total = torch.cuda.mem_get_info()
    return total - free


def main(options):
    import torch
    from vllm import LLM, SamplingParams
    folder = Path(tempfile.mkdtemp())
    (folder / "config.json").write_text(json.dumps(CONFIG))
    llm = LLM(str(folder), load_format="dummy", skip_tokenizer_init=True, enforce_eager=True, max_model_len=2048,
              disable_log_stats=True, **options)
    cache = llm.llm_engine.vllm_config.cache_config
    worker = llm.llm_engine.model_executor.driver_worker.worker
    prompts = [{"prompt_token_ids": list(range(3, 300))} for _ in range(8)]
    with torch.cuda.nvtx.range("rollout"):
        answers = llm.generate(prompts, SamplingParams(max_tokens=8, ignore_eos=True, detokenize=False), use_tqdm=False)
    counted = {"blocks": cache.num_gpu_blocks, "block_size": cache.block_size, "requested": worker.requested_memory,
               "available": worker.available_kv_cache_memory_bytes, "weights": int(worker.model_runner.model_memory_usage),
               "tokens": [len(answer.outputs[0].token_ids) for answer in answers], "awake": used(worker)}
    if options.get("enable_sleep_mode"):
        with torch.cuda.nvtx.range("sleep"):
            llm.sleep(level=1)
        counted["asleep"] = used(worker)
        with torch.cuda.nvtx.range("wake"):
            llm.wake_up()
    print("counted", json.dumps(counted), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
