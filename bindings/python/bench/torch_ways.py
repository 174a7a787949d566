"""The ways in which torch_steps.py trains the GPT of examples/torch.

A case is WAY[:VALUE][@BACKEND]:

    compute          no communication: every rank steps the whole model
    ddp:MB           DistributedDataParallel, buckets of MB
    cs.ddp:MB        the same by commsched.ddp()
    fsdp2            every block and the rest, parameters freed after forward
    deepspeed:N      ZeRO stage N, overlap_comm, buckets of 5 MB

A step takes a batch and returns the loss.
"""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict, NamedTuple

import torch

import commsched as cs
import commsched.torch
import gpt

Step = Callable[[torch.Tensor], torch.Tensor]
Ends = contextlib.ExitStack

_DEEPSPEED_BUCKET_BYTES = 5 << 20


class Case(NamedTuple):
    way: str
    value: str
    backend: str


def parse(text: str) -> Case:
    what, _, backend = text.partition("@")
    way, _, value = what.partition(":")
    return Case(way, value, backend or "gloo")


def _adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)


def _by_hand(model: Any) -> Step:
    optimizer = _adamw(model)

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def _compute(model: gpt.Gpt, value: str, ends: Ends) -> Step:
    return _by_hand(model)


def _ddp(model: gpt.Gpt, megabytes: str, ends: Ends) -> Step:
    return _by_hand(torch.nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=float(megabytes), gradient_as_bucket_view=True))


def _recorded_ddp(model: gpt.Gpt, megabytes: str, ends: Ends) -> Step:
    wrapped = cs.ddp(model, bucket_cap_mb=float(megabytes),
                     gradient_as_bucket_view=True)
    ends.callback(commsched.torch.recorded(wrapped).close)
    return _by_hand(wrapped)


def _fsdp2(model: gpt.Gpt, value: str, ends: Ends) -> Step:
    from fsdp2 import shard
    return _by_hand(shard(model))


def _deepspeed(model: gpt.Gpt, stage: str, ends: Ends) -> Step:
    import deepspeed
    elements = _DEEPSPEED_BUCKET_BYTES // 4
    zero = {"stage": int(stage), "overlap_comm": True, "contiguous_gradients": True,
            "reduce_bucket_size": elements, "allgather_bucket_size": elements}
    if stage == "3":
        zero["stage3_prefetch_bucket_size"] = elements
    engine = deepspeed.initialize(
        model=model, optimizer=_adamw(model), dist_init_required=False,
        config={"train_micro_batch_size_per_gpu": 1,
                "gradient_accumulation_steps": 1, "steps_per_print": 10**9,
                "zero_force_ds_cpu_optimizer": False,
                "zero_allow_untested_optimizer": True,
                "zero_optimization": zero})[0]

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = engine(batch)
        engine.backward(loss)
        engine.step()
        return loss.detach()

    return step


_WAYS: Dict[str, Callable[[gpt.Gpt, str, Ends], Step]] = {
    "compute": _compute, "ddp": _ddp, "cs.ddp": _recorded_ddp, "fsdp2": _fsdp2,
    "deepspeed": _deepspeed}


def make_step(case: Case, model: gpt.Gpt, ends: Ends) -> Step:
    """`ends` gets what all ranks have to do at the end."""
    return _WAYS[case.way](model, case.value, ends)
