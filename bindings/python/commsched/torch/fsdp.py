"""FSDP2 on channels: its all-gathers run ahead, as far as a cap of bytes lets them.

    fully_shard(...)
    commsched.attach_fsdp(model, max_bytes=64 << 20)

The process groups may be of any backend. On the CPU FSDP2 waits for each all-gather
where it calls it; here it goes on, and waits where it needs the parameters.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from ..errors import UnimplementedError
from . import _job
from ._collectives import Collectives
from .work import Work


class _OnChannels:
    """What both have in common."""

    def __init__(self, attached: "Attached") -> None:
        self._attached = attached

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype,
                 device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gathers(_OnChannels, AllGather):  # type: ignore[misc, unused-ignore]

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: Any, async_op: bool = False) -> Optional[Work]:
        return self._attached.lane(group).gather_whole(output_tensor, input_tensor)


class _Scatters(_OnChannels, ReduceScatter):  # type: ignore[misc, unused-ignore]

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor,
                 group: Any, op: Any, async_op: bool = False) -> Optional[Work]:
        work = self._attached.lane(group).reduce_whole(output_tensor, input_tensor, op)
        if not async_op:
            work.wait()  # FSDP2 uses the result at once.
        return work


class _Lane(Collectives):
    """The channel of one process group."""

    bytes_ahead = 0  # Of gathers that have not finished.
    peak_bytes = 0

    def gather_whole(self, output: torch.Tensor, input: torch.Tensor) -> Work:
        _check_device(output)
        self.bytes_ahead += output.nbytes
        self.peak_bytes = max(self.peak_bytes, self.bytes_ahead)

        def finished() -> None:
            self.bytes_ahead -= output.nbytes

        op = self._all_gather_whole(output, input)
        op.places[1].finish = finished  # type: ignore[union-attr]
        return self._submit("all_gather", [op], [output], None, None)

    def reduce_whole(self, output: torch.Tensor, input: torch.Tensor, op: Any) -> Work:
        _check_device(output)
        op = self._reduce_scatter_whole(output, input, op)
        return self._submit("reduce_scatter", [op], [output], None, None)

    def close(self) -> None:
        self._channel.close()
        self.job.leave(self._group)


def _check_device(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise UnimplementedError(f"attach_fsdp of parameters on {tensor.device}: only "
                                 "on the CPU yet", op="attach_fsdp")


class Attached:
    """What `attach_fsdp` put behind a model, on one rank."""

    def __init__(self, prefetched: Dict[str, List[str]]) -> None:
        # By the name of a module: those whose parameters are gathered ahead when it
        # begins its forward pass.
        self.prefetched = prefetched
        self._lanes: Dict[Any, _Lane] = {}

    def lane(self, group: Any) -> _Lane:
        """Made at the first call on the group, which all its ranks make."""
        found = self._lanes.get(group)
        if found is None:
            name = f"fsdp {group.group_name}"
            timeout = _job.timeout_of(group)
            job, ranks = _job.of_group(group, name, timeout)
            found = self._lanes[group] = _Lane(job, job.group(ranks, name), name,
                                               timeout)
        return found

    @property
    def peak_bytes(self) -> int:
        """The most bytes of parameters that gathers under way were to fill at once."""
        return max((lane.peak_bytes for lane in self._lanes.values()), default=0)

    def close(self) -> None:
        """Gives up the channels. All ranks call it, or end."""
        lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            lane.close()


def _own_bytes(module: nn.Module) -> int:
    """Bytes of the parameters of `module`, gathered, but for those of FSDP modules
    within it."""
    nested = {id(parameter) for child in module.modules()
              if child is not module and isinstance(child, FSDPModule)
              for parameter in child.parameters()}
    return sum(parameter.numel() * parameter.element_size()
               for parameter in module.parameters() if id(parameter) not in nested)


def _ahead(modules: Sequence[nn.Module], max_bytes: int) -> List[List[nn.Module]]:
    """For each of `modules`, in their order, which of the next ones fit in the cap."""
    sizes = [_own_bytes(module) for module in modules]
    found = []
    for at in range(len(modules)):
        end, held = at + 1, 0
        while end < len(modules) and held + sizes[end] <= max_bytes:
            held += sizes[end]
            end += 1
        found.append(list(modules[at + 1:end]))
    return found


def attach_fsdp(model: nn.Module, *, max_bytes: int = 64 << 20) -> Attached:
    """Has the FSDP modules of `model`, to which `fully_shard` has been applied, gather
    and reduce by channels. When a module begins, the next ones are gathered that fit in
    `max_bytes`, in the order in which the model has them; in backward the other way
    round. 0: none ahead."""
    named = {name: module for name, module in model.named_modules()
             if isinstance(module, FSDPModule)}
    if not named:
        raise ValueError(f"attach_fsdp: no module of this {type(model).__name__} has "
                         "been given to fully_shard()")
    modules = list(named.values())
    names = {id(module): name for name, module in named.items()}
    forward = _ahead(modules, max_bytes)
    backward = _ahead(modules[::-1], max_bytes)[::-1]
    attached = Attached({names[id(module)]: [names[id(each)] for each in ahead]
                         for module, ahead in zip(modules, forward)})
    gathers, scatters = _Gathers(attached), _Scatters(attached)
    for module, next_ones, previous in zip(modules, forward, backward):
        module.set_custom_all_gather(gathers)
        module.set_custom_reduce_scatter(scatters)
        module.set_modules_to_forward_prefetch(next_ones)
        module.set_modules_to_backward_prefetch(previous)
    return attached
