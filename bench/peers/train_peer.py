#!/usr/bin/env python3
"""One rank of what users have today, on the trainer's model and text.

    commsched run -n 4 -- python train_peer.py MODE --store FILE [--steps N] ...

Modes:

  compute        no communication: every rank steps the whole model
  ddp:MB         DistributedDataParallel, buckets of MB
  zero_opt:MB    the same with ZeroRedundancyOptimizer
  fsdp2:1        FSDP2 (fully_shard) of every block and the rest, parameters freed
                 after forward (ZeRO-3); fsdp2:0 keeps them (ZeRO-2)
  deepspeed:N    DeepSpeed ZeRO stage N, overlap_comm, buckets of 5 MB

Processes meet at FILE, which is not there yet; who is which rank comes from the
launcher. Rank 0 prints one JSON line: medians over the steps after --warmup, of
the slowest rank's step, and the CPU time of a rank per step.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("DS_ACCELERATOR", "cpu")

# pylint: disable=wrong-import-position
import torch
import torch.distributed as dist

import peer_model

BUCKET_MB = 5


def parse_arguments():
  parser = argparse.ArgumentParser(description=__doc__,
                                   formatter_class=argparse.RawTextHelpFormatter)
  parser.add_argument("mode")
  parser.add_argument("--store", required=True)
  parser.add_argument("--cache", required=True, help="folder of initial values")
  parser.add_argument("--model", default="mini", choices=peer_model.PRESETS)
  parser.add_argument("--batch", type=int, default=16, help="over all ranks")
  parser.add_argument("--seq", type=int, default=128)
  parser.add_argument("--steps", type=int, default=13)
  parser.add_argument("--warmup", type=int, default=3)
  return parser.parse_args()


def adamw(groups, **options):
  return torch.optim.AdamW(groups, lr=1e-3, betas=peer_model.BETAS,
                           eps=peer_model.EPSILON, fused=True, **options)


def by_hand(model, optimizer, forward):
  """The step of a plain PyTorch loop."""

  def step(tokens, targets, rate):
    for group in optimizer.param_groups:
      group["lr"] = rate
    optimizer.zero_grad()
    loss = forward(tokens, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), peer_model.CLIP)
    optimizer.step()
    return loss.item()

  return step


def ddp_step(model, megabytes):
  ddp = torch.nn.parallel.DistributedDataParallel(
      model, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)
  return by_hand(model, adamw(peer_model.decay_groups(model)), ddp)


def zero_optimizer_step(model, megabytes):
  from torch.distributed.optim import ZeroRedundancyOptimizer
  ddp = torch.nn.parallel.DistributedDataParallel(
      model, bucket_cap_mb=megabytes, gradient_as_bucket_view=True)
  optimizer = ZeroRedundancyOptimizer(
      peer_model.decay_groups(model), torch.optim.AdamW, lr=1e-3,
      betas=peer_model.BETAS, eps=peer_model.EPSILON, fused=True)
  return by_hand(model, optimizer, ddp)


def fsdp_step(model, frees):
  from torch.distributed.device_mesh import init_device_mesh
  from torch.distributed.fsdp import fully_shard
  mesh = init_device_mesh("cpu", (dist.get_world_size(),))
  for block in model.h:
    fully_shard(block, mesh=mesh, reshard_after_forward=frees)
  fully_shard(model, mesh=mesh, reshard_after_forward=frees)
  return by_hand(model, adamw(peer_model.decay_groups(model)), model)


def deepspeed_step(model, stage, args):
  import deepspeed
  elements = BUCKET_MB * 2**20 // 4
  zero = {"stage": stage, "overlap_comm": True, "contiguous_gradients": True,
          "reduce_bucket_size": elements, "allgather_bucket_size": elements}
  if stage == 3:
    zero |= {"stage3_prefetch_bucket_size": elements,
             "stage3_max_live_parameters": 10**9,
             "stage3_param_persistence_threshold": 10**4}
  config = {"train_batch_size": args.batch,
            "train_micro_batch_size_per_gpu":
                args.batch // dist.get_world_size(),
            "gradient_clipping": peer_model.CLIP,
            "steps_per_print": 10**9,
            "zero_force_ds_cpu_optimizer": False,
            "zero_allow_untested_optimizer": True,
            "zero_optimization": zero}
  engine, optimizer, _, _ = deepspeed.initialize(
      model=model, optimizer=adamw(peer_model.decay_groups(model)),
      dist_init_required=False, config=config)

  def step(tokens, targets, rate):
    for group in optimizer.param_groups:
      group["lr"] = rate
    loss = engine(tokens, targets)
    engine.backward(loss)
    engine.step()
    return loss.item()

  return step


def make_step(model, args):
  kind, _, value = args.mode.partition(":")
  if kind == "compute":
    return by_hand(model, adamw(peer_model.decay_groups(model)), model)
  if kind == "ddp":
    return ddp_step(model, float(value))
  if kind == "zero_opt":
    return zero_optimizer_step(model, float(value))
  if kind == "fsdp2":
    return fsdp_step(model, value == "1")
  if kind == "deepspeed":
    return deepspeed_step(model, int(value), args)
  raise SystemExit(f"train_peer: no mode '{args.mode}'")


def main():
  args = parse_arguments()
  rank = int(os.environ["COMMSCHED_RANK"])
  size = int(os.environ["COMMSCHED_WORLD_SIZE"])
  # What libraries of this field look for.
  os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank))
  torch.set_num_threads(1)
  dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank,
                          world_size=size)
  if rank == 0:  # Writes the initial values, if they are not there.
    peer_model.new_model(args.model, args.cache)
  dist.barrier()
  model = peer_model.new_model(args.model, args.cache)
  step = make_step(model, args)
  text = peer_model.Text(args.seq)
  share = args.batch // size
  batches = [text.batch(number, rank * share, share)
             for number in range(args.steps)]
  peak = peer_model.PRESETS[args.model][3]
  times, losses = [], []
  dist.barrier()
  for number, (tokens, targets) in enumerate(batches):
    if number == args.warmup:
      cpu = time.process_time()
    begin = time.perf_counter()
    rate = peer_model.learning_rate(peak, number, args.steps)
    losses.append(step(tokens, targets, rate))
    times.append(time.perf_counter() - begin)
  cpu = (time.process_time() - cpu) / (args.steps - args.warmup)
  everyone = [None] * size
  dist.all_gather_object(everyone, (times[args.warmup:], cpu, losses))
  if rank == 0:
    slowest = [max(of_step) for of_step in zip(*(one[0] for one in everyone))]
    print(json.dumps({
        "mode": args.mode,
        "step_s": statistics.median(slowest),
        "cpu_per_rank_s": statistics.mean(one[1] for one in everyone),
        "loss": statistics.mean(one[2][-1] for one in everyone),
        "losses": [statistics.mean(of_step)
                   for of_step in zip(*(one[2] for one in everyone))],
    }), flush=True)
  dist.barrier()
  dist.destroy_process_group()


if __name__ == "__main__":
  main()
