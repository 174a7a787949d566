"""DistributedDataParallel over a process group of commsched.

    torchrun --nproc-per-node 2 examples/torch/ddp.py

--backend gloo trains the same over Gloo.
"""

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpt

if __name__ == "__main__":
    options = gpt.arguments()
    dist.init_process_group(options.backend)
    gpt.train(options, lambda model: DistributedDataParallel(model, bucket_cap_mb=0.2))
    dist.destroy_process_group()
