"""The process-group backend "commsched" of torch.distributed.

A process group is a channel over a group of the job (docs/channels.md). Calls submit to
it and return a Work; nothing is handed to another backend. What is missing raises, and
names the call.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from datetime import timedelta
from typing import Any, Dict, List, NoReturn, Optional, Sequence, Tuple

import torch
from torch._C import _distributed_c10d as c10d

from .._enums import Collective, DType
from ..channel import Channel, Recv, Send
from ..errors import AbortedError, DeadlineExceededError, UnimplementedError
from ..memory import Memory
from . import _elements, _job, _parts
from ._parts import Place
from .work import Completer, Work, completer

Tensors = Sequence[torch.Tensor]

# How long the end of a group waits for what its program has not waited for.
SHUTDOWN_SECONDS = 10.0

# Tags of the program's sends are below it.
_OWN_TAGS = 1 << 40
# Sends and receives that go as one request: what a channel takes in any case.
_BATCH = 64


class _Op:
    """One submit, and the tensors behind it."""

    __slots__ = ("kind", "values", "places")

    def __init__(self, kind: Collective, places: Sequence[Optional[Place]],
                 **values: Any) -> None:
        self.kind = int(kind)
        self.places = places
        self.values = values


class Backend(c10d.Backend):  # type: ignore[misc, unused-ignore]
    """One rank of one process group. Calls come from any thread; those of collectives
    in one order on all ranks of the group."""

    def __init__(self, job: _job.Job, ranks: Optional[Sequence[int]], name: str,
                 timeout: timedelta, axis: str) -> None:
        """`ranks` of the job, in the group's order; None: all. Collective over them."""
        self._group = job.group(ranks, axis)
        super().__init__(self._group.rank, self._group.size)
        self.job = job
        self._name = name
        self._options = c10d.Backend.Options("commsched", timeout)
        self._options.group_name = name
        self._options.global_ranks_in_group = list(self._group.ranks)
        self._completer: Completer = completer()
        self._pid = os.getpid()
        self._timeout: Optional[float] = None  # That of the channel.
        self._lock = threading.Lock()
        self._coalesced: Optional[_Coalesced] = None
        self._buried: List[object] = []
        self._sequence = 0
        self._monitored = 0
        try:
            self._channel = Channel(
                job.context, self._group, completions=self._completer.completions,
                timeout=timeout.total_seconds())
        except BaseException:
            job.leave(self._group)
            raise

    # ---- What c10d asks for ---------------------------------------------------

    def getBackendName(self) -> str:
        return "commsched"

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Waits end after `timeout` from now on. It may not exceed that with which the
        group was made, which is the channel's and ends it."""
        made_with = self._options._timeout
        if timeout > made_with:
            raise UnimplementedError(
                f"set_timeout of group '{self._name}' to {timeout}: it was made with "
                f"{made_with}, above which it cannot go", op="set_timeout",
                group=self._name)
        self._timeout = timeout.total_seconds()

    def get_error(self) -> Any:
        failed = self._channel.closed or self._channel.status() is not None
        return c10d.ErrorType.COMM_ERROR if failed else c10d.ErrorType.SUCCESS

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> Optional["Backend"]:
        """A group of some of this one's `ranks`: nobody else takes part."""
        if self.rank() not in ranks:
            return None
        members = [self._group.ranks[rank] for rank in ranks]
        name = opts.group_name if opts is not None and opts.group_name else (
            f"{self._name}:{','.join(map(str, ranks))}")
        timeout = self._options._timeout if opts is None else opts._timeout
        return Backend(self.job, members, name, timeout, name)

    # ---- Collectives ----------------------------------------------------------

    def allreduce(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        tensor = _single(tensors, "all_reduce")
        return self._run("all_reduce", [self._all_reduce(tensor, opts.reduceOp)],
                         tensors, opts.timeout)

    def allreduce_coalesced(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        return self._run("all_reduce", [self._all_reduce(tensor, opts.reduceOp)
                                        for tensor in tensors], tensors, opts.timeout)

    def _all_reduce(self, tensor: torch.Tensor, op: Any) -> _Op:
        number, scale = _elements.reduction(op, "all_reduce")
        place = _parts.updated(tensor, "all_reduce")
        return _Op(Collective.ALL_REDUCE, [place], input=place.address,
                   output=place.address, count=tensor.numel(), reduce_op=number,
                   dtype=_elements.summed_as(tensor, "all_reduce"), scale=scale)

    def broadcast(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        tensor = _single(tensors, "broadcast")
        place = _parts.updated(tensor, "broadcast")
        dtype, units = _elements.moved_as(tensor)
        return self._run("broadcast", [
            _Op(Collective.BROADCAST, [place], input=place.address,
                output=place.address, count=tensor.numel() * units, dtype=dtype,
                peer=opts.rootRank)], tensors, opts.timeout)

    def reduce(self, tensors: Tensors, opts: Any) -> Optional[Work]:
        tensor = _single(tensors, "reduce")
        number, scale = _elements.reduction(opts.reduceOp, "reduce")
        if opts.rootRank == self.rank():
            place = _parts.updated(tensor, "reduce")
        else:
            place = _parts.read(tensor, "reduce")
        return self._run("reduce", [
            _Op(Collective.REDUCE, [place], input=place.address, output=place.address,
                count=tensor.numel(), dtype=_elements.summed_as(tensor, "reduce"),
                reduce_op=number, scale=scale, peer=opts.rootRank)],
            tensors, opts.timeout)

    def allgather(self, outputs: Sequence[Tensors], inputs: Tensors,
                  opts: Any) -> Optional[Work]:
        source = _single(inputs, "all_gather")
        targets = _single_list(outputs, self.size(), "all_gather")
        return self._run("all_gather", [self._all_gather(targets, source)], targets,
                         opts.timeout)

    def allgather_coalesced(self, outputs: Sequence[Tensors], inputs: Tensors,
                            opts: Any) -> Optional[Work]:
        # Each list of outputs is that of one input.
        ops = [self._all_gather(targets, source)
               for targets, source in zip(outputs, inputs)]
        return self._run("all_gather", ops, [t for targets in outputs for t in targets],
                         opts.timeout)

    def _all_gather(self, targets: Tensors, source: torch.Tensor) -> _Op:
        dtype, units = _elements.moved_as(source)
        place = _parts.read(source, "all_gather")
        into = _parts.written_list(targets, "all_gather")
        return _Op(Collective.ALL_GATHER, [place, into], input=place.address,
                   output=into.address, dtype=dtype,
                   **self._lengths(targets, source, units, "all_gather"))

    def _lengths(self, parts: Tensors, own: torch.Tensor, units: int,
                 call: str) -> Dict[str, Any]:
        """Counts of a whole of which each rank has one of `parts`."""
        counts = [part.numel() * units for part in parts]
        mine = own.numel() * units
        if counts[self.rank()] != mine:
            raise ValueError(
                f"{call} of group '{self._name}': part {self.rank()} of the list, this "
                f"rank's, has {counts[self.rank()] // units} elements and the tensor "
                f"{own.numel()}")
        if any(part.dtype != own.dtype for part in parts):
            raise ValueError(f"{call} of group '{self._name}': the list and the tensor "
                             "differ in their types")
        if all(count == mine for count in counts):
            return {"count": mine}
        return {"count": mine, "counts": _counts(counts)}

    def all_gather_single(self, output: torch.Tensor, input: torch.Tensor,
                          opts: Any) -> Optional[Work]:
        return self._run("all_gather", [self._all_gather_whole(output, input)],
                         [output], opts.timeout)

    def all_gather_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                    opts: Any) -> Optional[Work]:
        ops = [self._all_gather_whole(*pair) for pair in zip(outputs, inputs)]
        return self._run("all_gather", ops, outputs, opts.timeout)

    def _all_gather_whole(self, output: torch.Tensor, input: torch.Tensor) -> _Op:
        self._check_whole(output, input, "all_gather")
        dtype, units = _elements.moved_as(input)
        place = _parts.read(input, "all_gather")
        into = _parts.written(output, "all_gather")
        return _Op(Collective.ALL_GATHER, [place, into], input=place.address,
                   output=into.address, count=input.numel() * units, dtype=dtype)

    def _check_whole(self, whole: torch.Tensor, part: torch.Tensor, call: str) -> None:
        if whole.numel() != part.numel() * self.size() or whole.dtype != part.dtype:
            raise ValueError(
                f"{call} of group '{self._name}' of {self.size()} ranks: the whole has "
                f"{whole.numel()} {whole.dtype} and a part {part.numel()} {part.dtype}")

    def reduce_scatter(self, outputs: Tensors, inputs: Sequence[Tensors],
                       opts: Any) -> Optional[Work]:
        target = _single(outputs, "reduce_scatter")
        sources = _single_list(inputs, self.size(), "reduce_scatter")
        number, scale = _elements.reduction(opts.reduceOp, "reduce_scatter")
        place = _parts.read_list(sources, "reduce_scatter")
        into = _parts.written(target, "reduce_scatter")
        op = _Op(Collective.REDUCE_SCATTER, [place, into], input=place.address,
                 output=into.address, reduce_op=number, scale=scale,
                 dtype=_elements.summed_as(target, "reduce_scatter"),
                 **self._lengths(sources, target, 1, "reduce_scatter"))
        return self._run("reduce_scatter", [op], outputs, opts.timeout)

    def reduce_scatter_single(self, output: torch.Tensor, input: torch.Tensor,
                              opts: Any) -> Optional[Work]:
        op = self._reduce_scatter_whole(output, input, opts)
        return self._run("reduce_scatter", [op], [output], opts.timeout)

    def reduce_scatter_single_coalesced(self, outputs: Tensors, inputs: Tensors,
                                        opts: Any) -> Optional[Work]:
        ops = [self._reduce_scatter_whole(output, input, opts)
               for output, input in zip(outputs, inputs)]
        return self._run("reduce_scatter", ops, outputs, opts.timeout)

    def _reduce_scatter_whole(self, output: torch.Tensor, input: torch.Tensor,
                              opts: Any) -> _Op:
        self._check_whole(input, output, "reduce_scatter")
        number, scale = _elements.reduction(opts.reduceOp, "reduce_scatter")
        place = _parts.read(input, "reduce_scatter")
        into = _parts.written(output, "reduce_scatter")
        return _Op(Collective.REDUCE_SCATTER, [place, into], input=place.address,
                   output=into.address, count=output.numel(), reduce_op=number,
                   dtype=_elements.summed_as(output, "reduce_scatter"), scale=scale)

    def all_to_all_single(self, output: torch.Tensor, input: torch.Tensor,
                          output_splits: Sequence[int], input_splits: Sequence[int],
                          opts: Any) -> Optional[Work]:
        dtype, units = _elements.moved_as(input)
        place = _parts.read(input, "all_to_all")
        into = _parts.written(output, "all_to_all")
        op = _Op(Collective.ALL_TO_ALL, [place, into], input=place.address,
                 output=into.address, dtype=dtype)
        sent = self._split(input, input_splits, "input")
        received = self._split(output, output_splits, "output")
        if input_splits or output_splits:
            op.values["counts"] = _counts([n * units for n in sent + received])
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
            if rows % self.size():
                raise ValueError(
                    f"all_to_all of group '{self._name}': the {what} has {rows} rows, "
                    f"which {self.size()} ranks cannot share evenly")
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows:
            raise ValueError(
                f"all_to_all of group '{self._name}' of {self.size()} ranks: the "
                f"{what} has {rows} rows, and its splits are {list(splits)}")
        row = tensor.numel() // rows if rows else 0
        return [split * row for split in splits]

    def alltoall(self, outputs: Tensors, inputs: Tensors, opts: Any) -> Optional[Work]:
        for tensors in (outputs, inputs):
            if len(tensors) != self.size():
                raise ValueError(
                    f"all_to_all of group '{self._name}' of {self.size()} ranks: a "
                    f"list of {len(tensors)} tensors")
        dtype, units = _elements.moved_as(inputs[0])
        place = _parts.read_list(inputs, "all_to_all")
        into = _parts.written_list(outputs, "all_to_all")
        op = _Op(Collective.ALL_TO_ALL, [place, into], input=place.address,
                 output=into.address, dtype=dtype,
                 counts=_counts([tensor.numel() * units
                                 for tensor in [*inputs, *outputs]]))
        return self._run("all_to_all", [op], outputs, opts.timeout)

    def gather(self, outputs: Sequence[Tensors], inputs: Tensors,
               opts: Any) -> Optional[Work]:
        source = _single(inputs, "gather")
        dtype, units = _elements.moved_as(source)
        place = _parts.read(source, "gather")
        into: Optional[Place] = None
        targets: Tensors = []
        if opts.rootRank == self.rank():
            targets = _single_list(outputs, self.size(), "gather")
            self._check_equal(targets, source, "gather")
            into = _parts.written_list(targets, "gather")
        return self._run("gather", [
            _Op(Collective.GATHER, [place, into], input=place.address,
                output=into.address if into else 0, count=source.numel() * units,
                dtype=dtype, peer=opts.rootRank)], targets, opts.timeout)

    def scatter(self, outputs: Tensors, inputs: Sequence[Tensors],
                opts: Any) -> Optional[Work]:
        target = _single(outputs, "scatter")
        dtype, units = _elements.moved_as(target)
        into = _parts.written(target, "scatter")
        place: Optional[Place] = None
        if opts.rootRank == self.rank():
            sources = _single_list(inputs, self.size(), "scatter")
            self._check_equal(sources, target, "scatter")
            place = _parts.read_list(sources, "scatter")
        return self._run("scatter", [
            _Op(Collective.SCATTER, [place, into], output=into.address,
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
        return self._run("barrier", [_Op(Collective.BARRIER, ())], [], opts.timeout)

    # ---- Sends and receives ---------------------------------------------------

    def send(self, tensors: Tensors, peer: int, tag: int) -> Optional[Work]:
        tensor = _single(tensors, "send")
        place = _parts.read(tensor, "send")
        return self._transfer(Collective.SEND, tensor, place, peer, tag, tensors)

    def recv(self, tensors: Tensors, peer: int, tag: int) -> Optional[Work]:
        tensor = _single(tensors, "recv")
        place = _parts.written(tensor, "recv")
        return self._transfer(Collective.RECV, tensor, place, peer, tag, tensors)

    def _transfer(self, kind: Collective, tensor: torch.Tensor, place: Place,
                  peer: int, tag: int, result: Tensors) -> Optional[Work]:
        dtype, units = _elements.moved_as(tensor)
        count = tensor.numel() * units
        coalesced = self._coalesced
        if coalesced is not None:
            memory = Memory(place.address, count, DType(dtype))
            coalesced.parts.append(Send(memory, peer, tag)
                                   if kind is Collective.SEND else
                                   Recv(memory, peer, tag))
            coalesced.places.append(place)
            coalesced.result += result
            return None
        side = "input" if kind is Collective.SEND else "output"
        op = _Op(kind, [place], dtype=dtype, count=count, peer=peer, tag=tag,
                 **{side: place.address})
        return self._submit(kind.name.lower(), [op], result, None, None)

    def recv_anysource(self, tensors: Tensors, tag: int) -> NoReturn:
        raise UnimplementedError(
            f"recv of group '{self._name}' from any source: commsched receives from a "
            "rank that is named; pass src", op="recv", group=self._name)

    # ---- Coalescing -----------------------------------------------------------

    def start_coalescing(self) -> None:
        """Until `end_coalescing` calls are kept, which then go as one work."""
        self._check_usable("coalescing")
        if self._coalesced is not None:
            raise RuntimeError(f"group '{self._name}' is coalescing already")
        self._coalesced = _Coalesced()

    def end_coalescing(self) -> Work:
        coalesced, self._coalesced = self._coalesced, None
        if coalesced is None:
            raise RuntimeError(f"group '{self._name}' is not coalescing")
        return self._submit("coalesced calls", coalesced.ops, coalesced.result, None,
                            coalesced)

    # ---- monitored_barrier ----------------------------------------------------

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        """A barrier that names the ranks that do not come: on rank 0 at the deadline,
        and then to all, for whom the group has failed."""
        limit = opts.timeout.total_seconds()
        limit = limit if limit > 0 else self._options._timeout.total_seconds()
        self._monitored += 2
        came, go = (_OWN_TAGS + self._monitored, _OWN_TAGS + self._monitored + 1)
        peers = range(1, self.size())
        if self.rank() == 0:
            arrivals = {peer: self.recv([_byte()], peer, came) for peer in peers}
            self._await_arrivals(arrivals, limit, wait_all_ranks)
            leaving = [self.send([_byte()], peer, go) for peer in peers]
        else:
            self.send([_byte()], 0, came)
            leaving = [self.recv([_byte()], 0, go)]
        for work in leaving:
            assert work is not None
            # Rank 0 gives up first, and says who is missing.
            work.wait(timedelta(seconds=limit * 2 + 1))

    def _await_arrivals(self, arrivals: Dict[int, Optional[Work]], limit: float,
                        all_of_them: bool) -> None:
        clock = _Countdown(limit)
        missing = []
        for peer, work in arrivals.items():
            assert work is not None
            try:
                work.wait(timedelta(seconds=clock.left()))
            except DeadlineExceededError:
                missing.append(peer)
                if not all_of_them:
                    break
        if not missing:
            return
        said = ("rank " if len(missing) == 1 else "ranks ") + ", ".join(
            str(rank) for rank in missing)
        message = (f"monitored_barrier of group '{self._name}': {said} did not come "
                   f"within {limit:g} s")
        self._channel.abort(message)
        raise DeadlineExceededError(message, op="monitored_barrier", group=self._name,
                                    rank=missing[0])

    # ---- The end --------------------------------------------------------------

    def shutdown(self) -> None:
        """Waits for what the program has not waited for, for a while, and gives up the
        group. What has not finished by then fails, here and on other ranks."""
        if self._channel.closed or self._pid != os.getpid():
            return
        if not self._drain():
            self._channel.abort(
                f"rank {self.rank()} has destroyed group '{self._name}' with "
                "requests in flight")
        self._end()

    def abort(self) -> None:
        """Fails the group on all its ranks and gives it up, without waiting."""
        if self._channel.closed or self._pid != os.getpid():
            return
        self._channel.abort(f"rank {self.rank()} has aborted group '{self._name}'")
        self._end()

    def _drain(self) -> bool:
        """Whether all requests finish in time, or fail."""
        clock = _Countdown(SHUTDOWN_SECONDS)
        for work in self._completer.unsettled(self._channel):
            try:
                work.wait(timedelta(seconds=clock.left()))
            except DeadlineExceededError:
                return False
            except Exception:  # It has its error; the group fails or has failed.
                return True
        return True

    def _end(self) -> None:
        self._completer.reap()
        error = self._channel.status() or AbortedError(
            f"group '{self._name}' was destroyed", group=self._name)
        for work in self._completer.unsettled(self._channel):
            work.settle(error)
        self._channel.close()
        self._buried.clear()
        self.job.leave(self._group)

    # ---- Submitting -----------------------------------------------------------

    def _check_usable(self, call: str) -> None:
        if self._pid != os.getpid():
            raise RuntimeError(
                f"{call} of group '{self._name}': process {self._pid} made the group, "
                f"and its child {os.getpid()} has none; a child makes its own")
        if self._channel.closed:
            raise RuntimeError(f"{call} of group '{self._name}': it was destroyed")

    def _work(self, call: str, num_requests: int, places: Sequence[Optional[Place]],
              result: Tensors, timeout: Optional[timedelta]) -> Work:
        limit = self._timeout
        if timeout is not None and timeout.total_seconds() > 0:
            limit = timeout.total_seconds()
        work = Work(self._completer, self._channel, call, num_requests,
                    [place.tensors for place in places if place is not None],
                    list(result), _parts.finishes(places), limit, self._buried)
        self._completer.add(work)
        return work

    def _run(self, call: str, ops: Sequence[_Op], result: Tensors,
             timeout: Optional[timedelta]) -> Optional[Work]:
        """Submits `ops`, which are one work, unless calls are being coalesced."""
        coalesced = self._coalesced
        if coalesced is not None:
            coalesced.ops += ops
            coalesced.result += result
            return None
        return self._submit(call, ops, result, timeout, None)

    def _submit(self, call: str, ops: Sequence[_Op], result: Tensors,
                timeout: Optional[timedelta],
                coalesced: Optional["_Coalesced"]) -> Work:
        deterministic = torch.are_deterministic_algorithms_enabled()
        places = [place for op in ops for place in op.places]
        batches = []
        if coalesced is not None:
            places += coalesced.places
            batches = coalesced.batches()
        with self._lock:
            self._check_usable(call)
            self._completer.reap()
            work = self._work(call, len(ops) + len(batches), places, result, timeout)
            try:
                for op in ops:
                    work.requests.append(self._channel.submit(
                        op.kind, user=work.user, deterministic=deterministic,
                        **op.values))
                for batch in batches:
                    work.requests.append(
                        self._channel.batch(batch, user=work.user).number)
            except BaseException:
                work.submitted_only(len(work.requests))
                raise
            self._sequence += len(ops)
        if not work.requests:
            work.settle(None)
        return work


class _Coalesced:
    """What was called since start_coalescing()."""

    def __init__(self) -> None:
        self.ops: List[_Op] = []
        self.parts: List[Any] = []
        self.places: List[Optional[Place]] = []
        self.result: List[torch.Tensor] = []

    def batches(self) -> List[List[Any]]:
        """Sends and receives, as many as go as one request."""
        return [self.parts[start:start + _BATCH]
                for start in range(0, len(self.parts), _BATCH)]


class _Countdown:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds; a wait of 0 is without a limit, hence at least a microsecond."""
        return max(self._end - time.monotonic(), 1e-6)


def _single(tensors: Tensors, call: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"{call} of {len(tensors)} tensors: it takes one per rank")
    return tensors[0]


def _single_list(lists: Sequence[Tensors], size: int, call: str) -> Tensors:
    if len(lists) != 1 or len(lists[0]) != size:
        raise ValueError(f"{call}: the list has {len(lists[0]) if lists else 0} "
                         f"tensors, and the group {size} ranks")
    return lists[0]


def _byte() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.uint8)


def _counts(counts: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * len(counts))(*counts)
