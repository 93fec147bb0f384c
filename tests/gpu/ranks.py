"""Two ranks that share the GPU, as torchrun would start them: `python ranks.py` starts both, each says what
PyTorch counted. With NCCL where there is a GPU for each rank, else with gloo."""
import json
import os
import subprocess
import sys
import tempfile

RANKS = 2


def worker():
    import torch
    import torch.distributed as dist
    rank = int(os.environ["RANK"])
    backend = "nccl" if torch.cuda.device_count() >= RANKS else "gloo"
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group(backend, init_method=os.environ["RENDEZVOUS"], rank=rank, world_size=RANKS)
    held = torch.ones((rank + 1) * (8 << 20), device="cuda")
    total = torch.ones(1, device="cuda" if backend == "nccl" else "cpu")
    dist.all_reduce(total)
    torch.cuda.synchronize()
    reported = {"rank": rank, "backend": backend, "sum": float(total), "pid": os.getpid(),
            "max_memory_allocated": torch.cuda.max_memory_allocated()}
    os.write(1, f"{json.dumps(reported)}\n".encode())  # in one write: the ranks share the pipe
    dist.destroy_process_group()
    del held


def main():
    if "RANK" in os.environ:
        return worker()
    with tempfile.TemporaryDirectory() as folder:  # a file, because a port may belong to another run
        env = dict(os.environ, RENDEZVOUS=f"file://{folder}/ranks", WORLD_SIZE=str(RANKS))
        ranks = [subprocess.Popen([sys.executable, __file__], env=dict(env, RANK=str(r), LOCAL_RANK=str(r)))
                 for r in range(RANKS)]
        return max(r.wait() for r in ranks)


sys.exit(main())
