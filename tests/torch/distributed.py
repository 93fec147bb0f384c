"""Two ranks with a GPU each, over an NCCL that sends nothing; each prints PyTorch's counters. distributed.py
ddp|fsdp|fully_shard FOLDER"""
import json
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

WORLD = 2


def wrapped(how, rank):
    layers = [nn.Linear(512, 512).cuda() for _ in range(4)]
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(nn.Sequential(*layers), device_ids=[rank])
    if how == "fsdp":
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
        return FSDP(nn.Sequential(*[FSDP(layer, device_id=rank) for layer in layers]), device_id=rank)
    from torch.distributed.fsdp import fully_shard
    for layer in layers:
        fully_shard(layer)
    return fully_shard(nn.Sequential(*layers))


def work(rank, how, folder):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{folder}/meeting", rank=rank, world_size=WORLD)
    model = wrapped(how, rank)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        loss = model(torch.zeros(64, 512, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(loss.detach())
    dist.barrier()
    with open(f"{folder}/reported.{rank}", "w") as out:
        json.dump({"rank": rank, "allocated": torch.cuda.max_memory_allocated(),
                   "reserved": torch.cuda.max_memory_reserved()}, out)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(work, sys.argv[1:], nprocs=WORLD, start_method="spawn" if sys.argv[1] == "ddp" else "fork")
