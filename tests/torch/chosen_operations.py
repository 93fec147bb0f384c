"""Checkpointing of a layer in which the results of chosen operations are kept, as torchtitan does it."""
import torch
from torch.utils.checkpoint import (CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts,
                                    set_checkpoint_early_stop)


def chosen_operations():
    """What torchtitan's torchtitan/distributed/activation_checkpoint.py keeps: the results of matrix products and
    attention; of products without a bias (mm) only the first, third, fifth …, counted separately in each layer and each
    of its passes."""
    aten, seen = torch.ops.aten, {False: 0, True: 0}
    kept = {aten.mm.default, aten.addmm.default, aten.bmm.default, aten._scaled_dot_product_flash_attention.default,
            aten._scaled_dot_product_efficient_attention.default, aten._scaled_dot_product_cudnn_attention.default}

    def policy(context, operation, *_, **__):
        if operation == aten.mm.default:
            seen[context.is_recompute] += 1
            if seen[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if operation in kept else CheckpointPolicy.PREFER_RECOMPUTE
    return create_selective_checkpoint_contexts(policy)


def operations_kept(layer, *x):
    with set_checkpoint_early_stop(False):  # as torchtitan
        return checkpoint(layer, *x, use_reentrant=False, context_fn=chosen_operations)
