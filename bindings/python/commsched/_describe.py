"""What graphs and recordings are made of: accesses, compute ops and collectives."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Optional, Sequence, Union

from ._enums import Collective, ReduceOp, named
from ._lib import abi

_Access = abi.type("commsched_access_t")
_WHOLE = abi.constant("COMMSCHED_WHOLE")
_RANGE = abi.constant("COMMSCHED_RANGE")
_SHARD = abi.constant("COMMSCHED_SHARD")
_TILE = abi.constant("COMMSCHED_TILE")
_READ = abi.constant("COMMSCHED_READ")
_WRITE = abi.constant("COMMSCHED_WRITE")
_READ_WRITE = abi.constant("COMMSCHED_READ_WRITE")

_IN_PLACE = (Collective.ALL_REDUCE, Collective.BROADCAST, Collective.REDUCE)


@dataclasses.dataclass(frozen=True)
class Access:
    """Part of a buffer: made by `region`, `shard` and `tile`."""

    buffer: int
    kind: int = _WHOLE
    group: int = 0
    offset: int = 0
    count: int = 0
    rows: int = 0
    stride: int = 0


# A buffer as a whole, by its id, or a part of one.
Where = Union[int, Access]


def region(buffer: int, offset: int, count: int) -> Access:
    """`count` elements of `buffer` from `offset`."""
    return Access(buffer, _RANGE, 0, offset, count)


def shard(buffer: int, group: int) -> Access:
    """This rank's part of `buffer` among the group with id `group`."""
    return Access(buffer, _SHARD, group)


def tile(buffer: int, offset: int, count: int, rows: int, stride: int) -> Access:
    """`rows` rows of `count` elements, the first at `offset`, each `stride` after the
    one before."""
    return Access(buffer, _TILE, 0, offset, count, rows, stride)


def _access(where: Where, mode: int) -> Any:
    part = where if isinstance(where, Access) else Access(where)
    return _Access(part.buffer, mode, part.kind, part.group, part.offset, part.count,
                   part.rows, part.stride)


def _ids(after: Sequence[int]) -> Any:
    return (ctypes.c_uint32 * len(after))(*after) if after else None


def compute_desc(name: str, *, reads: Sequence[Where] = (),
                 writes: Sequence[Where] = (), updates: Sequence[Where] = (),
                 after: Sequence[int] = (), lane: int = 0, priority: int = 0,
                 cost_ns: int = 0, flops: float = 0.0, bytes: float = 0.0) -> Any:
    """A commsched_compute_desc_t. `updates` are read and written."""
    accesses = [_access(each, _READ) for each in reads]
    accesses += [_access(each, _WRITE) for each in writes]
    accesses += [_access(each, _READ_WRITE) for each in updates]
    return abi.struct(
        "commsched_compute_desc_t", name=name.encode(),
        accesses=(_Access * len(accesses))(*accesses) if accesses else None,
        num_accesses=len(accesses), after=_ids(after), num_after=len(after), lane=lane,
        priority=priority, cost_ns=cost_ns, flops=flops, bytes=bytes)


def collective_desc(name: str, kind: Union[Collective, str], *, group: int = 0,
                    input: Optional[Where] = None, output: Optional[Where] = None,
                    op: Union[ReduceOp, str] = ReduceOp.SUM, root: int = 0,
                    counts: Optional[Sequence[int]] = None, after: Sequence[int] = (),
                    priority: int = 0, peer_offset: int = 0,
                    lossy: bool = False) -> Any:
    """A commsched_collective_desc_t. Where one of `input` and `output` is given, the
    collective is in place."""
    kind = named(Collective, kind)
    given = output if input is None else input
    if kind in _IN_PLACE:
        input, output = given, output if output is not None else given
    elif kind == Collective.ALL_GATHER and input is None:
        input = _shard_of(name, output, group)
    elif kind == Collective.REDUCE_SCATTER and output is None:
        output = _shard_of(name, input, group)
    desc = abi.struct(
        "commsched_collective_desc_t", name=name.encode(), kind=kind,
        reduce_op=named(ReduceOp, op), group=group, root=root, after=_ids(after),
        num_after=len(after), priority=priority, peer_offset=peer_offset, lossy=lossy)
    if input is not None:
        desc.input = _access(input, _READ)
    if output is not None:
        desc.output = _access(output, _WRITE)
    if counts is not None:
        desc.counts = (ctypes.c_uint64 * len(counts))(*counts)
        desc.num_counts = len(counts)
    return desc


def _shard_of(name: str, whole: Optional[Where], group: int) -> Access:
    if whole is None:
        raise ValueError(f"collective '{name}' has neither input nor output")
    if isinstance(whole, Access):
        raise ValueError(f"collective '{name}': in place it takes a buffer as a whole")
    return shard(whole, group)
