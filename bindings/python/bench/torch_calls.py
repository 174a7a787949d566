"""What calls cost with PyTorch, beside Gloo's.

    torchrun --standalone --nproc-per-node 2 bindings/python/bench/torch_calls.py

Prints medians of rounds in turn, in microseconds of the caller: an all-reduce of 4
bytes that is waited for, its issue alone, and what a bucket's hook takes beside a hook
that does nothing. Look at the ratios; times are those of the machine.
"""

from __future__ import annotations

import statistics
import time
from typing import Any, Callable, Dict, List

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import commsched as cs
from commsched.torch import recorded

ROUNDS, CALLS = 9, 200
BUCKETS = 8


def waited(group: Any) -> float:
    tensor = torch.ones(1)
    begun = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begun) / CALLS * 1e6


def issued(group: Any) -> float:
    """Without the waits, which come after the clock has stopped."""
    tensors = [torch.ones(1) for _ in range(16)]
    spent = 0.0
    for _ in range(CALLS // 16):
        begun = time.perf_counter()
        works = [dist.all_reduce(each, group=group, async_op=True) for each in tensors]
        spent += time.perf_counter() - begun
        for work in works:
            work.wait()
    return spent / (CALLS // 16 * 16) * 1e6


class Timed:
    """A hook, and what it takes per bucket."""

    def __init__(self, hook: Callable[[Any], Any]) -> None:
        self.hook = hook
        self.spent: List[float] = []

    def __call__(self, bucket: Any) -> Any:
        begun = time.perf_counter()
        future = self.hook(bucket)
        self.spent.append((time.perf_counter() - begun) * 1e6)
        return future


def nothing(bucket: Any) -> Any:
    future: Any = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def hooked(make: Callable[[nn.Module], Any], time_hook: Callable[[Any], Timed]) -> float:
    network = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(BUCKETS)))
    module = make(network)
    timed = time_hook(module)
    for _ in range(12):
        module(torch.ones(2, 64)).sum().backward()
    return statistics.median(timed.spent[-6 * BUCKETS:])


def ddp(network: nn.Module) -> DistributedDataParallel:
    return DistributedDataParallel(network, bucket_cap_mb=0.001)


def with_nothing(module: Any) -> Timed:
    timed = Timed(nothing)
    module.register_comm_hook(timed, lambda state, bucket: state(bucket))
    return timed


def with_plan(module: Any) -> Timed:
    state = recorded(cs.ddp(module))
    timed = Timed(state.reduce)
    state.reduce = timed  # type: ignore[method-assign]
    return timed


def main() -> None:
    dist.init_process_group("commsched")
    groups = {"commsched": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    taken: Dict[str, List[float]] = {}
    for _ in range(ROUNDS):
        for name, group in groups.items():
            taken.setdefault(f"all_reduce of 4 bytes, {name}", []).append(waited(group))
            taken.setdefault(f"issue of it, {name}", []).append(issued(group))
    for _ in range(3):
        taken.setdefault("hook that does nothing", []).append(hooked(ddp, with_nothing))
        taken.setdefault("hook of cs.ddp", []).append(hooked(ddp, with_plan))
    if dist.get_rank() == 0:
        for name, times in taken.items():
            print(f"{name:40} {statistics.median(times):8.1f} us "
                  f"({min(times):.1f} to {max(times):.1f})")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
