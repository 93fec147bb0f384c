"""What estimate_measure.py measures, of each of several ranks over NCCL, which sends nothing here, on a GPU each.

  estimate_sharded.py --how ddp|ddp_view|fsdp|grad_op|fully_shard --ranks N [estimate_measure.py's options]

Leaves reported.RANK, one JSON object each, in the working folder.
"""
import gc
import json
import os
import sys

import torch
import torch.distributed as dist
from estimate_measure import Layer, a, train


def fsdp(model, rank):
    from functools import partial

    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
    from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
    half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16) if a.precision == "amp-bf16" else None
    strategy = ShardingStrategy.FULL_SHARD if a.how == "fsdp" else ShardingStrategy.SHARD_GRAD_OP
    return FullyShardedDataParallel(
        model, device_id=rank, sharding_strategy=strategy, mixed_precision=half,
        auto_wrap_policy=partial(transformer_auto_wrap_policy, transformer_layer_cls={Layer}))


def fully_sharded(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    more = {"reshard_after_forward": False} if a.how == "fully_shard_kept" else {}
    if a.precision == "amp-bf16":
        more["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer, **more)
    return fully_shard(model, **more)


def wrapped(rank):
    def wrap(model):
        if a.how.startswith("ddp"):
            return torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank],
                                                             gradient_as_bucket_view=a.how == "ddp_view")
        return fully_sharded(model) if a.how.startswith("fully") else fsdp(model, rank)
    return wrap


def work(rank):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{os.getcwd()}/meeting", rank=rank,
                            world_size=a.ranks)
    reported = train(wrapped(rank), cast=a.precision == "amp-bf16" and a.how.startswith("ddp"))
    with open(f"said.{rank}", "w") as out:
        json.dump(reported, out)
    dist.destroy_process_group()


def start(rank):
    """Runs in a fork, which has already imported PyTorch."""
    child = os.fork()
    if child:
        return child
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(a.ranks))
    work(rank)
    sys.exit()


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401  (an optimizer's first step imports it)
    import torch.distributed.fsdp  # noqa: F401  (here, not once in each rank)
    gc.collect()
    gc.freeze()
    ranks = [start(rank) for rank in range(a.ranks)]
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(rank, 0)[1]) != 0 for rank in ranks))
