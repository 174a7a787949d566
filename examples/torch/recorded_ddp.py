"""DistributedDataParallel whose buckets a recorded plan carries.

    torchrun --nproc-per-node 2 examples/torch/recorded_ddp.py

The process group may be of any backend: --backend gloo.
"""

import torch.distributed as dist

import commsched as cs
import commsched.torch
import gpt

if __name__ == "__main__":
    options = gpt.arguments()
    dist.init_process_group(options.backend)
    model = gpt.train(options, lambda model: cs.ddp(model, bucket_cap_mb=0.2))
    state = commsched.torch.recorded(model)
    if dist.get_rank() == 0:
        print(f"{state.counters.replayed} of {options.steps} backwards replayed a plan "
              f"of {state.counters.buckets} buckets")
    state.close()
    dist.destroy_process_group()
