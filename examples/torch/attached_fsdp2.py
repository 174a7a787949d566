"""FSDP2 whose gathers run ahead on channels, up to a cap of bytes.

    torchrun --nproc-per-node 2 examples/torch/attached_fsdp2.py

The process group may be of any backend: --backend gloo.
"""

import torch.distributed as dist

import commsched as cs
import gpt
from fsdp2 import shard


def attach(model: gpt.Gpt) -> gpt.Gpt:
    cs.attach_fsdp(shard(model))
    return model


if __name__ == "__main__":
    options = gpt.arguments()
    dist.init_process_group(options.backend)
    gpt.train(options, attach)
    dist.destroy_process_group()
