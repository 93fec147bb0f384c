"""The real vLLM on the simulated GPU, if VLLM_PYTHON names a Python that has it (docs/serving.md): it is too large to be
fetched for every run of the tests."""
import json
import os
import subprocess

import pytest

from conftest import BUILD, HERE, ROOT

MIB = 1 << 20
pytestmark = pytest.mark.skipif(not os.environ.get("VLLM_PYTHON"), reason="VLLM_PYTHON names no Python with vLLM")


def serve(folder, **options):
    """What vLLM counted, and the report."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("GPUSPY_", "SIMCUDA_", "LD_", "PYTORCH_"))}
    env.update(OMP_NUM_THREADS="1", TRITON_CACHE_DIR=os.environ.get("TRITON_CACHE_DIR", str(folder / "triton")))
    options = {"gpu_memory_utilization": 0.8, "max_num_seqs": 256, "max_num_batched_tokens": 8192, **options}
    done = subprocess.run([BUILD / "gpuspy", "run", "--simulate", "24GiB", "-o", folder / "run.db", "--", os.environ["VLLM_PYTHON"],
                           HERE / "served.py", json.dumps(options)], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    report = subprocess.run([BUILD / "gpuspy", "report", "--json", folder / "run.db"], text=True, stdout=subprocess.PIPE, check=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("counted "))
    return json.loads(line.split(maxsplit=1)[1]), json.loads(report.stdout)


@pytest.mark.parametrize("runner", [0, 1])
def test_serving(tmp_path, monkeypatch, runner):
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", str(runner))
    counted, report = serve(tmp_path)
    assert counted["tokens"] == [8] * 8
    tensors = next(peak for peak in report["peak"] if peak["layer"] == "tensor")
    block = 8 * 2 * 4 * 64 * 2 * counted["block_size"]
    assert counted["blocks"] == counted["available"] // block
    assert 0 <= tensors["by_category"]["kv_cache"] - counted["blocks"] * block < 64 * MIB
    assert abs(tensors["by_category"]["parameters"] - counted["weights"]) < 8 * MIB
    (memory,), (cache,) = report["memory"], report["preallocations"]
    assert cache["owner"] == "vLLM" and cache["text"].endswith("GiB of the GPU stayed free")
    assert memory["free_bytes"] + counted["awake"] >= memory["total_bytes"]
    shape = "--layers 8 --hidden 512 --heads 8 --kv-heads 4 --ffn 1408 --vocab 32000 --precision bf16 --seq 2048 --memory 24GiB".split()
    done = subprocess.run([BUILD / "gpuspy", "estimate", "--json", "--serve", "vllm", *shape, "--gpu-memory-utilization", "0.8",
                           "--max-num-seqs", "256", "--max-num-batched-tokens", "8192"], text=True, stdout=subprocess.PIPE, check=True)
    server = json.loads(done.stdout)["gpus"][0]["server"]
    assert server["taken_bytes"] == counted["requested"] and server["request_bytes"] * 16 == 2048 * block
    # nothing but PyTorch takes memory on the simulated GPU
    assert server["kv_cache"]["low_bytes"] <= counted["available"] <= server["kv_cache"]["high_bytes"] + 64 * MIB


def test_sleep(tmp_path):
    counted, report = serve(tmp_path, enable_sleep_mode=True)
    scopes = {(scope["layer"], scope["name"]): scope for scope in report["scopes"]}
    asleep, awake = counted["asleep"] - 512 * MIB, counted["awake"] - 512 * MIB
    assert scopes["device", "sleep"]["exit_bytes"] == asleep < 300 * MIB
    assert scopes["tensor", "sleep"]["exit_bytes"] <= asleep
    assert abs(scopes["tensor", "wake"]["exit_bytes"] - scopes["tensor", "sleep"]["entry_bytes"]) < MIB and awake > 19000 * MIB
    assert scopes["tensor", "sleep"]["entry_bytes"] - scopes["tensor", "sleep"]["exit_bytes"] > counted["available"] - 64 * MIB
