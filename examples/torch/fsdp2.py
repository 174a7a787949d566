"""FSDP2 over a process group of commsched.

    torchrun --nproc-per-node 2 examples/torch/fsdp2.py

--backend gloo trains the same over Gloo.
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import gpt


def shard(model: gpt.Gpt) -> gpt.Gpt:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


if __name__ == "__main__":
    options = gpt.arguments()
    dist.init_process_group(options.backend)
    gpt.train(options, shard)
    dist.destroy_process_group()
