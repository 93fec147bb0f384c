"""Two ranks of a job, started like torchrun's, in forks, or by mp.spawn; and typical mistakes in such scripts. ranks.py
env|fork|spawn own|stray|checkpoint|first|more"""
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def train(rank, how, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    if how == "stray":
        torch.zeros(1, device="cuda")  # STRAY
    if how == "checkpoint" and rank == 0:
        torch.save(torch.zeros(4 << 20, device="cuda:0"), f"{store}.pt")
    if how == "checkpoint":
        dist.barrier()
    if how != "first":
        torch.cuda.set_device(rank)
    if how == "checkpoint":
        torch.load(f"{store}.pt")  # CHECKPOINT
    kept = torch.empty(64 << 20, device="cuda") if how == "more" and rank == 0 else None  # MORE
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1024, 1024).cuda())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.empty(64, 1024, device="cuda")).sum().backward()
        optimizer.step()
    torch.cuda.synchronize()
    dist.destroy_process_group()
    del kept


def fork(rank, how, store):
    child = os.fork()
    if child:
        return child
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2")
    train(rank, how, store)
    sys.exit()


def main():
    start, how = sys.argv[1:3]
    if start == "rank":
        return train(int(os.environ["RANK"]), how, sys.argv[3])
    store = Path(tempfile.mkdtemp()) / "store"
    if start == "spawn":
        return torch.multiprocessing.spawn(train, (how, str(store)), nprocs=2)
    if start == "fork":
        ranks = [fork(rank, how, store) for rank in range(2)]
        sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) for rank in ranks))
    ranks = [subprocess.Popen([sys.executable, __file__, "rank", how, store],
                              env=dict(os.environ, RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE="2")) for r in range(2)]
    sys.exit(max(r.wait() for r in ranks))


if __name__ == "__main__":
    main()
