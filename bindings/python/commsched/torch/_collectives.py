"""Collectives of a process group. c10d names the methods and their parameters."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch

from .._enums import Collective
from ..errors import UnimplementedError
from . import _elements, _parts, _sparse
from ._parts import Place
from ._submitting import Op, Submitting, Tensors, counts_of, single
from .work import Work


class Collectives(Submitting):
    """Those that have no tensors of some ranks get an empty list for them."""

    def allreduce(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        tensor = single(tensors, "all_reduce")
        if tensor.layout is torch.sparse_coo:
            return self._sum_sparse(tensor, opts)
        return self._run("all_reduce", [self._all_reduce(tensor, opts.reduceOp)],
                         tensors, opts.timeout)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        return self._run("all_reduce", [self._all_reduce(tensor, opts.reduceOp)
                                        for tensor in tensors], tensors, opts.timeout)

    def _all_reduce(self, tensor: torch.Tensor, op: Any) -> Op:
        number, scale = _elements.reduction(op, "all_reduce")
        place = _parts.updated(tensor, "all_reduce")
        return Op(Collective.ALL_REDUCE, [place], input=place.address,
                  output=place.address, count=tensor.numel(), reduce_op=number,
                  dtype=_elements.summed_as(tensor, "all_reduce"), scale=scale)

    def _sum_sparse(self, tensor: torch.Tensor, opts: Any) -> Optional[Work]:
        """Waits for the other ranks' numbers of entries before it returns."""
        if self._coalesced is not None:
            raise UnimplementedError("all_reduce of a sparse tensor among coalesced "
                                     "calls", op="all_reduce", group=self._name)
        own = _sparse.entries_of(tensor, opts.reduceOp)
        entries = torch.zeros(self._group.size, dtype=torch.int64)
        mine = torch.tensor([own._nnz()])
        self._submit("all_reduce", [self._all_gather_whole(entries, mine)], [entries],
                     opts.timeout, None).wait()
        return self._run("all_reduce", _sparse.sum_ops(tensor, own, entries.tolist()),
                         [tensor], opts.timeout)

    def broadcast(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        tensor = single(tensors, "broadcast")
        place = _parts.updated(tensor, "broadcast")
        dtype, units = _elements.moved_as(tensor)
        return self._run("broadcast", [
            Op(Collective.BROADCAST, [place], input=place.address,
               output=place.address, count=tensor.numel() * units, dtype=dtype,
               peer=opts.rootRank)], tensors, opts.timeout)

    def reduce(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        tensor = single(tensors, "reduce")
        number, scale = _elements.reduction(opts.reduceOp, "reduce")
        if opts.rootRank == self._group.rank:
            place = _parts.updated(tensor, "reduce")
        else:
            place = _parts.read(tensor, "reduce")
        return self._run("reduce", [
            Op(Collective.REDUCE, [place], input=place.address, output=place.address,
               count=tensor.numel(), dtype=_elements.summed_as(tensor, "reduce"),
               reduce_op=number, scale=scale, peer=opts.rootRank)],
            tensors, opts.timeout)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors,
                  opts: Any) -> Optional[Work]:
        source = single(inputs, "all_gather")
        targets = _single_list(outputs, self._group.size, "all_gather")
        return self._run("all_gather", [self._all_gather(targets, source)], targets,
                         opts.timeout)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors,
                            opts: Any) -> Optional[Work]:
        # Each list of outputs is that of one rank, with a tensor for each input.
        if (len(outputs) != self._group.size
                or any(len(each) != len(inputs) for each in outputs)):
            raise ValueError(
                f"all_gather of group '{self._name}': {len(inputs)} tensors of "
                f"{self._group.size} ranks go to as many lists of as many tensors, and "
                f"not to {[len(each) for each in outputs]}")
        ops = [self._all_gather([each[index] for each in outputs], source)
               for index, source in enumerate(inputs)]
        return self._run("all_gather", ops, [t for each in outputs for t in each],
                         opts.timeout)

    def _all_gather(self, targets: Tensors, source: torch.Tensor) -> Op:
        dtype, units = _elements.moved_as(source)
        place = _parts.read(source, "all_gather")
        into = _parts.written_list(targets, "all_gather")
        return Op(Collective.ALL_GATHER, [place, into], input=place.address,
                  output=into.address, dtype=dtype,
                  **self._lengths(targets, source, units, "all_gather"))

    def _lengths(self, parts: Tensors, own: torch.Tensor, units: int,
                 call: str) -> Dict[str, Any]:
        """Counts of a whole of which each rank has one of `parts`."""
        counts = [part.numel() * units for part in parts]
        mine = own.numel() * units
        if counts[self._group.rank] != mine:
            raise ValueError(
                f"{call} of group '{self._name}': this rank's part of the list has "
                f"{counts[self._group.rank] // units} elements and the tensor "
                f"{own.numel()}")
        if any(part.dtype != own.dtype for part in parts):
            raise ValueError(f"{call} of group '{self._name}': the list and the tensor "
                             "differ in their types")
        if all(count == mine for count in counts):
            return {"count": mine}
        return {"count": mine, "counts": counts_of(counts)}

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor,
                          opts: Any) -> Optional[Work]:
        return self._run("all_gather", [self._all_gather_whole(output, input)],
                         [output], opts.timeout)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                    opts: Any) -> Optional[Work]:
        ops = [self._all_gather_whole(*pair) for pair in zip(outputs, inputs)]
        return self._run("all_gather", ops, outputs, opts.timeout)

    def _all_gather_whole(self, output: torch.Tensor, input: torch.Tensor) -> Op:
        self._check_whole(output, input, "all_gather")
        dtype, units = _elements.moved_as(input)
        place = _parts.read(input, "all_gather")
        into = _parts.written(output, "all_gather")
        return Op(Collective.ALL_GATHER, [place, into], input=place.address,
                  output=into.address, count=input.numel() * units, dtype=dtype)

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, call: str) -> None:
        size = self._group.size
        if whole.numel() != part.numel() * size or whole.dtype != part.dtype:
            raise ValueError(
                f"{call} of group '{self._name}' of {size} ranks: the whole has "
                f"{whole.numel()} {whole.dtype} and a part {part.numel()} {part.dtype}")

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors],
                       opts: Any) -> Optional[Work]:
        target = single(outputs, "reduce_scatter")
        sources = _single_list(inputs, self._group.size, "reduce_scatter")
        number, scale = _elements.reduction(opts.reduceOp, "reduce_scatter")
        place = _parts.read_list(sources, "reduce_scatter")
        into = _parts.written(target, "reduce_scatter")
        op = Op(Collective.REDUCE_SCATTER, [place, into], input=place.address,
                output=into.address, reduce_op=number, scale=scale,
                dtype=_elements.summed_as(target, "reduce_scatter"),
                **self._lengths(sources, target, 1, "reduce_scatter"))
        return self._run("reduce_scatter", [op], outputs, opts.timeout)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor,
                              opts: Any) -> Optional[Work]:
        op = self._reduce_scatter_whole(output, input, opts.reduceOp)
        return self._run("reduce_scatter", [op], [output], opts.timeout)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                        opts: Any) -> Optional[Work]:
        ops = [self._reduce_scatter_whole(output, input, opts.reduceOp)
               for output, input in zip(outputs, inputs)]
        return self._run("reduce_scatter", ops, outputs, opts.timeout)

    def _reduce_scatter_whole(self, output: torch.Tensor, input: torch.Tensor,
                              op: Any) -> Op:
        self._check_whole(input, output, "reduce_scatter")
        number, scale = _elements.reduction(op, "reduce_scatter")
        place = _parts.read(input, "reduce_scatter")
        into = _parts.written(output, "reduce_scatter")
        return Op(Collective.REDUCE_SCATTER, [place, into], input=place.address,
                  output=into.address, count=output.numel(), reduce_op=number,
                  dtype=_elements.summed_as(output, "reduce_scatter"), scale=scale)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor,
                          output_splits: Sequence[int], input_splits: Sequence[int],
                          opts: Any) -> Optional[Work]:
        dtype, units = _elements.moved_as(input)
        place = _parts.read(input, "all_to_all")
        into = _parts.written(output, "all_to_all")
        op = Op(Collective.ALL_TO_ALL, [place, into], input=place.address,
                output=into.address, dtype=dtype)
        sent = self._split(input, input_splits, "input")
        received = self._split(output, output_splits, "output")
        if input_splits or output_splits:
            op.values["counts"] = counts_of([n * units for n in sent + received])
        elif sent != received:
            raise ValueError(f"all_to_all of group '{self._name}': input and output "
                             f"have {input.numel()} and {output.numel()} elements")
        else:
            op.values["count"] = sent[0] * units
        return self._run("all_to_all", [op], [output], opts.timeout)

    def _split(self, tensor: torch.Tensor, splits: Sequence[int],
               what: str) -> List[int]:
        """How many elements each rank sends or gets; `splits` counts rows."""
        rows = tensor.size(0) if tensor.dim() else tensor.numel()
        if not splits:
            if rows % self._group.size:
                raise ValueError(
                    f"all_to_all of group '{self._name}': the {what} has {rows} rows, "
                    f"which {self._group.size} ranks cannot share evenly")
            splits = [rows // self._group.size] * self._group.size
        if len(splits) != self._group.size or sum(splits) != rows:
            raise ValueError(
                f"all_to_all of group '{self._name}' of {self._group.size} ranks: the "
                f"{what} has {rows} rows, and its splits are {list(splits)}")
        row = tensor.numel() // rows if rows else 0
        return [split * row for split in splits]

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Optional[Work]:
        for tensors in (outputs, inputs):
            if len(tensors) != self._group.size:
                raise ValueError(
                    f"all_to_all of group '{self._name}': a list of {len(tensors)} "
                    f"tensors for {self._group.size} ranks")
        dtype, units = _elements.moved_as(inputs[0])
        place = _parts.read_list(inputs, "all_to_all")
        into = _parts.written_list(outputs, "all_to_all")
        op = Op(Collective.ALL_TO_ALL, [place, into], input=place.address,
                output=into.address, dtype=dtype,
                counts=counts_of([tensor.numel() * units
                                  for tensor in [*inputs, *outputs]]))
        return self._run("all_to_all", [op], outputs, opts.timeout)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors,
               opts: Any) -> Optional[Work]:
        source = single(inputs, "gather")
        dtype, units = _elements.moved_as(source)
        place = _parts.read(source, "gather")
        into: Optional[Place] = None
        targets: Tensors = []
        if opts.rootRank == self._group.rank:
            targets = _single_list(outputs, self._group.size, "gather")
            self._check_equal(targets, source, "gather")
            into = _parts.written_list(targets, "gather")
        return self._run("gather", [
            Op(Collective.GATHER, [place, into], input=place.address,
               output=into.address if into else 0, count=source.numel() * units,
               dtype=dtype, peer=opts.rootRank)], targets, opts.timeout)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors],
                opts: Any) -> Optional[Work]:
        target = single(outputs, "scatter")
        dtype, units = _elements.moved_as(target)
        into = _parts.written(target, "scatter")
        place: Optional[Place] = None
        if opts.rootRank == self._group.rank:
            sources = _single_list(inputs, self._group.size, "scatter")
            self._check_equal(sources, target, "scatter")
            place = _parts.read_list(sources, "scatter")
        return self._run("scatter", [
            Op(Collective.SCATTER, [place, into], output=into.address,
               input=place.address if place else 0, count=target.numel() * units,
               dtype=dtype, peer=opts.rootRank)], outputs, opts.timeout)

    def _check_equal(self, parts: Tensors, own: torch.Tensor, call: str) -> None:
        for index, part in enumerate(parts):
            if part.numel() != own.numel() or part.dtype != own.dtype:
                raise ValueError(
                    f"{call} of group '{self._name}': tensor {index} of the list has "
                    f"{part.numel()} {part.dtype}, and each rank's {own.numel()} "
                    f"{own.dtype}")

    def barrier(self, opts: Any) -> Optional[Work]:
        """On a device it is behind the work of all ranks' current streams. The host
        waits for it in either case."""
        ops = [Op(Collective.BARRIER, ())]
        device = getattr(opts, "device", None)
        if self._device is None or device is None or device.type != "cuda":
            return self._run("barrier", ops, [], opts.timeout)
        return self._submit("barrier", ops, [], opts.timeout, None, self._device)


def _single_list(lists: Sequence[Tensors], size: int, call: str) -> Tensors:
    if len(lists) != 1 or len(lists[0]) != size:
        raise ValueError(f"{call}: the list has {len(lists[0]) if lists else 0} "
                         f"tensors, and the group {size} ranks")
    return lists[0]
