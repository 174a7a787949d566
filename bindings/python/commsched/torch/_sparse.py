"""Sums of sparse tensors: what all ranks have is gathered, and summed on each."""

from __future__ import annotations

from typing import Any, List, Sequence

import torch

from .._enums import Collective
from ..errors import UnimplementedError
from . import _elements, _parts
from ._parts import Place
from ._submitting import Op, counts_of


class _Gathered:
    """What all ranks have of one tensor, a part for each."""

    def __init__(self, own: torch.Tensor, entries: Sequence[int]) -> None:
        """`own` has an entry in each of its rows; `entries` of each rank."""
        self._shape = torch.Size([sum(entries), *own.shape[1:]])
        width = own.shape[1:].numel()
        self._counts = [each * width for each in entries]
        self._whole = torch.empty(sum(self._counts), dtype=own.dtype, device=own.device)
        self._own = _parts.read(own, "all_reduce")
        self._count = own.numel()

    def op(self, finish: Any = None) -> Op:
        dtype, units = _elements.moved_as(self._whole)
        into = Place(self._whole.data_ptr(), self._whole,
                     _parts.ordinal_of(self._whole), finish)
        return Op(Collective.ALL_GATHER, [self._own, into], input=self._own.address,
                  output=into.address, dtype=dtype, count=self._count * units,
                  counts=counts_of([each * units for each in self._counts]))

    def rows(self) -> torch.Tensor:
        """For the current stream."""
        _parts.use_here(self._whole)
        return self._whole.view(self._shape)


def entries_of(tensor: torch.Tensor, op: Any) -> torch.Tensor:
    """`tensor` without entries at one place twice. Raises if `op` is not the sum."""
    number, scale = _elements.reduction(op, "all_reduce")
    if number != _elements.SUM or scale:
        raise UnimplementedError(f"all_reduce of a sparse tensor by {op}: only its sum",
                                 op="all_reduce")
    return tensor.detach().coalesce()


def sum_ops(tensor: torch.Tensor, own: torch.Tensor, entries: Sequence[int]) -> List[Op]:
    """What makes `tensor` the sum; `own` is what entries_of() gave, and `entries` how
    many each rank has."""
    indices = _Gathered(own.indices().t().contiguous(), entries)
    values = _Gathered(own.values(), entries)

    def finish() -> None:
        with torch.no_grad():
            tensor.copy_(torch.sparse_coo_tensor(
                indices.rows().t(), values.rows(), tensor.shape).coalesce())

    return [indices.op(), values.op(finish)]
