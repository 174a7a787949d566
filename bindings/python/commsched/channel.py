"""Channels: collectives, sends and receives without a graph, over one group."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from . import _wait
from ._enums import Collective, ReduceOp, Status, named
from ._handle import Owner
from ._lib import abi
from .completions import Completions
from .context import Context
from .errors import CommschedError, check, error
from .group import Group
from .memory import Memory, Source, memory
from .stream import CALLER, Stream
from .trace import Trace

_create = abi.function("commsched_channel_create")
_destroy = abi.function("commsched_channel_destroy")
_submit = abi.function("commsched_channel_submit")
_submit_batch = abi.function("commsched_channel_submit_batch")
_test = abi.function("commsched_channel_test")
_wait_for = abi.function("commsched_channel_wait")
_before = abi.function("commsched_channel_before")
_abort = abi.function("commsched_channel_abort")
_status = abi.function("commsched_channel_status")

_Op = abi.type("commsched_channel_op_t")
_OpPointer = ctypes.POINTER(_Op)
_OP_BYTES = ctypes.sizeof(_Op)
_write_op = abi.packer("commsched_channel_op_t", (
    "struct_size", "kind", "dtype", "reduce_op", "peer", "tag", "input", "output",
    "count", "counts", "num_counts", "deterministic", "user", "scale")).pack_into
_DEADLINE = int(Status.DEADLINE_EXCEEDED)
_SEND = int(Collective.SEND)
_RECV = int(Collective.RECV)
_BARRIER = int(Collective.BARRIER)

# Requests whose memory is held before those that have finished are looked for.
_FIRST_SWEEP = 64

Reduction = Union[ReduceOp, str]


class _Slot:
    """A description and a place for a request's number, used again and again."""

    __slots__ = ("op", "op_reference", "request", "request_reference")

    def __init__(self) -> None:
        self.op = abi.struct("commsched_channel_op_t")
        self.request = ctypes.c_uint64()
        self.op_reference = ctypes.byref(self.op)
        self.request_reference = ctypes.byref(self.request)


class Send(NamedTuple):
    """A part of a batch: `source` goes to rank `to` of the group."""

    source: Source
    to: int
    tag: int = 0


class Recv(NamedTuple):
    """A part of a batch: `target` gets what rank `sender` of the group sends."""

    target: Source
    sender: int
    tag: int = 0


class Request:
    """What was submitted. Its memory is kept until it has finished, also where nobody
    keeps the request."""

    __slots__ = ("channel", "number")

    def __init__(self, channel: "Channel", number: int) -> None:
        self.channel = channel
        self.number = number

    def done(self) -> bool:
        """Whether it has finished. Raises the channel's failure."""
        return self.channel.test(self.number)

    def wait(self, timeout: Optional[float] = None) -> None:
        """Waits until it has finished, up to `timeout` seconds (DeadlineExceededError:
        it may be waited for again) or the channel's own deadline, which fails it."""
        self.channel.wait(self.number, timeout)

    def before(self, stream: Stream) -> None:
        """Work enqueued on `stream` from now on comes after the request."""
        self.channel.before(self.number, stream)

    def __repr__(self) -> str:
        return f"Request({self.number}, {self.channel!r})"


class Channel(Owner):
    """A queue of collectives, sends and receives over `group` (all ranks, if it is
    None). All members of the group make it, in one order with their other channels.

    Memory is what `commsched.memory` takes. It is the program's, not copied, and left
    alone until the request has finished. Peers and roots are ranks in the group. All
    members submit the same collectives in the same order; the first failure of a
    channel sticks, and every member learns of it.
    """

    def __init__(self, context: Context, group: Optional[Group] = None, *,
                 completions: Optional[Completions] = None,
                 key: Optional[int] = None, max_in_flight: int = 0,
                 max_transfers: int = 0, max_bytes_in_flight: int = 0,
                 timeout: Optional[float] = None, flight_path: Optional[str] = None,
                 trace: Optional[Trace] = None) -> None:
        """`timeout`: seconds that a launch may take, and that the others may take to
        come here; None: COMMSCHED_TIMEOUT_S. The rest: commsched_channel_desc_t."""
        self.group = context.group() if group is None else group
        self._completions = completions
        self.key = 0 if completions is None else completions.add(self, key, self.finished)
        self._slots: List[_Slot] = []
        self._held: Dict[int, object] = {}
        self._sweep_at = _FIRST_SWEEP
        desc = abi.struct(
            "commsched_channel_desc_t",
            completions=None if completions is None else completions.handle,
            key=self.key, max_in_flight=max_in_flight, max_transfers=max_transfers,
            max_bytes_in_flight=max_bytes_in_flight,
            launch_timeout_ns=0 if timeout is None else _wait.nanoseconds(timeout),
            flight_path=None if flight_path is None else flight_path.encode(),
            trace=None if trace is None else trace.handle)
        ours, handle, out = self.group.handle, context.handle, ctypes.c_void_p()
        status, message = _wait.call(
            lambda: int(_create(handle, ours, ctypes.byref(desc), ctypes.byref(out))),
            late=lambda status: status or _destroy(out),
            keep=(context, self.group, completions, trace, desc))
        if status:
            raise error(status, message, group=self.group.axis)
        self._own(out.value, _destroy)

    # ---- Submitting -----------------------------------------------------------

    def submit(self, kind: int, dtype: int = 0, input: int = 0, output: int = 0,
               count: int = 0, *, reduce_op: int = 0, peer: int = 0, tag: int = 0,
               counts: Any = None, stream: Stream = CALLER, deterministic: int = 0,
               user: int = 0, scale: float = 0.0, hold: object = None) -> int:
        """Submits on addresses, and returns the request's number: what the methods
        below call, for who has addresses already. `counts` is an array of
        ctypes.c_uint64. `hold` is kept until the request has finished; without it the
        caller keeps the memory."""
        try:
            slot = self._slots.pop()
        except IndexError:
            slot = _Slot()
        at, length = (0, 0) if counts is None else (ctypes.addressof(counts),
                                                    len(counts))
        _write_op(slot.op, 0, _OP_BYTES, kind, dtype, reduce_op, peer, tag, input,
                  output, count, at, length, deterministic, user, scale)
        status = _submit(self._handle, slot.op_reference, stream.value,
                         slot.request_reference)
        number: int = slot.request.value
        self._slots.append(slot)
        if status:
            raise self._failure(status, kind)
        if hold is not None:
            self._hold(number, hold)
        return number

    def all_reduce(self, output: Source, input: Optional[Source] = None, *,
                   op: Reduction = ReduceOp.SUM, scale: float = 1.0,
                   **options: Any) -> Request:
        """`output` becomes the sum, or what `op` says, of all members' `input`; in
        place without `input`. `scale` is for PREMUL_SUM. `options`, here and below:
        `stream`, `deterministic`, `user`, as `submit` has them."""
        target = memory(output)
        source = target if input is None else memory(input, target.dtype)
        self._same_count(source, target, 1, 1)
        return self._collective(Collective.ALL_REDUCE, source, target, target.count,
                                reduce_op=named(ReduceOp, op), scale=scale, **options)

    def reduce(self, output: Source, input: Optional[Source] = None, *, root: int = 0,
               op: Reduction = ReduceOp.SUM, scale: float = 1.0,
               **options: Any) -> Request:
        """As `all_reduce`, on `root` only; the output of others stays as it is."""
        target = memory(output)
        source = target if input is None else memory(input, target.dtype)
        self._same_count(source, target, 1, 1)
        return self._collective(Collective.REDUCE, source, target, target.count,
                                reduce_op=named(ReduceOp, op), peer=root, scale=scale,
                                **options)

    def broadcast(self, buffer: Source, *, root: int = 0, **options: Any) -> Request:
        """`buffer` of `root` goes to that of all."""
        target = memory(buffer)
        return self._collective(Collective.BROADCAST, target, target, target.count,
                                peer=root, **options)

    def reduce_scatter(self, output: Source, input: Source, *,
                       counts: Optional[Sequence[int]] = None,
                       op: Reduction = ReduceOp.SUM, scale: float = 1.0,
                       **options: Any) -> Request:
        """`output` becomes this member's part of the sum of all members' `input`: the
        parts have equal lengths, or `counts`, one per member."""
        source, target = memory(input), memory(output)
        self._parts(source, target.count, counts)
        return self._collective(Collective.REDUCE_SCATTER, source, target,
                                target.count, counts=_array(counts),
                                reduce_op=named(ReduceOp, op), scale=scale, **options)

    def all_gather(self, output: Source, input: Source, *,
                   counts: Optional[Sequence[int]] = None, **options: Any) -> Request:
        """`output` becomes the `input` of all members, one behind the other. They have
        equal lengths, or `counts`, one per member."""
        source, target = memory(input), memory(output)
        self._parts(target, source.count, counts)
        return self._collective(Collective.ALL_GATHER, source, target, source.count,
                                counts=_array(counts), **options)

    def all_to_all(self, output: Source, input: Source, *,
                   send: Optional[Sequence[int]] = None,
                   receive: Optional[Sequence[int]] = None,
                   **options: Any) -> Request:
        """Part r of `input` goes to member r, and what r sends here is part r of
        `output`: equal lengths, or `send[r]` and `receive[r]` elements."""
        source, target = memory(input), memory(output)
        size = self.group.size
        if (send is None) != (receive is None):
            raise ValueError("all_to_all: send and receive are given both or not at "
                             "all")
        counts = None
        if send is not None and receive is not None:
            if len(send) != size or len(receive) != size:
                raise ValueError(f"all_to_all: {len(send)} and {len(receive)} counts "
                                 f"for a group of {size}")
            _at_least(source, sum(send), "send")
            _at_least(target, sum(receive), "receive")
            counts = _array([*send, *receive])
        else:
            self._same_count(source, target, size, size)
        return self._collective(Collective.ALL_TO_ALL, source, target,
                                source.count // size, counts=counts, **options)

    def gather(self, output: Optional[Source], input: Source, *, root: int = 0,
               counts: Optional[Sequence[int]] = None, **options: Any) -> Request:
        """As `all_gather`, on `root` only; others may give None for `output`."""
        source = memory(input)
        target = None if output is None else memory(output)
        if target is not None:
            self._parts(target, source.count, counts)
        return self._collective(Collective.GATHER, source, target, source.count,
                                peer=root, counts=_array(counts), **options)

    def scatter(self, output: Source, input: Optional[Source] = None, *, root: int = 0,
                counts: Optional[Sequence[int]] = None, **options: Any) -> Request:
        """`output` becomes this member's part of `input` of `root`; others may leave
        `input` out."""
        target = memory(output)
        source = None if input is None else memory(input, target.dtype)
        if source is not None:
            self._parts(source, target.count, counts)
        return self._collective(Collective.SCATTER, source, target, target.count,
                                peer=root, counts=_array(counts), **options)

    def barrier(self, **options: Any) -> Request:
        """Finishes when all members have come to it."""
        return Request(self, self.submit(_BARRIER, **options))

    def send(self, source: Source, to: int, *, tag: int = 0,
             **options: Any) -> Request:
        """Sends to member `to`: meets its `recv` of the same tag."""
        found = memory(source)
        return Request(self, self.submit(
            _SEND, found.dtype, found.address, 0, found.count, peer=to, tag=tag,
            hold=found, **options))

    def recv(self, target: Source, sender: int, *, tag: int = 0,
             **options: Any) -> Request:
        """Receives what member `sender` sends with that tag. It may be submitted long
        before its `send`."""
        found = _writable(memory(target), "recv")
        return Request(self, self.submit(
            _RECV, found.dtype, 0, found.address, found.count, peer=sender, tag=tag,
            hold=found, **options))

    def batch(self, parts: Sequence[Union[Send, Recv]], *, stream: Stream = CALLER,
              user: int = 0) -> Request:
        """Submits sends and receives that finish together, as one request."""
        ops = (_Op * max(1, len(parts)))()
        pointers = (_OpPointer * max(1, len(parts)))()
        held: List[Memory] = []
        for index, part in enumerate(parts):
            op = ops[index]
            op.struct_size = _OP_BYTES
            op.tag = part.tag
            op.user = user
            found = memory(part[0])
            if isinstance(part, Send):
                op.kind, op.peer, op.input = _SEND, part.to, found.address
            else:
                _writable(found, "recv")
                op.kind, op.peer, op.output = _RECV, part.sender, found.address
            op.dtype, op.count = found.dtype, found.count
            pointers[index] = ctypes.pointer(op)
            held.append(found)
        number = ctypes.c_uint64()
        status = _submit_batch(self._handle, pointers, len(parts), stream.value,
                               ctypes.byref(number))
        if status:
            raise self._failure(status, _SEND)
        self._hold(number.value, held)
        return Request(self, number.value)

    # ---- Waiting --------------------------------------------------------------

    def test(self, request: int) -> bool:
        """Whether request number `request` has finished. Raises the failure."""
        done = ctypes.c_uint32()
        status = _test(self._handle, request, ctypes.byref(done))
        if status:
            raise self._failure(status)
        if done.value:
            self.finished(request)
        return bool(done.value)

    def wait(self, request: int, timeout: Optional[float] = None) -> None:
        """As `Request.wait`."""
        handle = self._handle
        status = _wait_for(handle, request, 0)
        if status == _DEADLINE:
            status = _wait.in_slices(
                lambda slice_ns: int(_wait_for(handle, request, slice_ns)),
                _wait.nanoseconds(timeout), _DEADLINE, lambda: bool(_status(handle)),
                time.monotonic_ns)
        if status:
            raise self._failure(status)
        self.finished(request)

    def before(self, request: int, stream: Stream) -> None:
        """As `Request.before`."""
        if stream is CALLER:
            self.wait(request)
            return
        status = _before(self._handle, request, stream.value)
        if status:
            raise self._failure(status)

    def abort(self, reason: str) -> None:
        """Fails the channel on all members: their calls raise AbortedError with
        `reason` and this rank's number."""
        _abort(self._handle, reason.encode())

    def status(self) -> Optional[CommschedError]:
        """The channel's first failure, if it has failed."""
        status = _status(self._handle)
        return self._failure(status) if status else None

    def check(self) -> None:
        """Raises the channel's first failure, if it has failed."""
        check(_status(self._handle), group=self.group.axis)

    def _leave(self, reason: str) -> None:
        self.abort(reason)

    # ---- Memory that is kept --------------------------------------------------

    def finished(self, request: int) -> None:
        """Request number `request` has finished: its memory is kept no longer."""
        self._held.pop(request, None)

    @property
    def held(self) -> int:
        """Of how many requests memory is kept."""
        return len(self._held)

    def _hold(self, number: int, owner: object) -> None:
        self._held[number] = owner
        if len(self._held) >= self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        """Lets go of what has finished and nobody asked for."""
        done = ctypes.c_uint32()
        for number in list(self._held):
            if _test(self._handle, number, ctypes.byref(done)):
                break  # It has failed: what is not known to have finished stays.
            if done.value:
                self.finished(number)
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._held))

    # ---- Checks ---------------------------------------------------------------

    def _collective(self, kind: Collective, source: Optional[Memory],
                    target: Optional[Memory], count: int, **options: Any) -> Request:
        present = target if source is None else source
        assert present is not None
        if target is not None:
            if target.readonly:
                raise ValueError(f"{kind.name.lower()}: the output is read-only")
            if target.dtype is not present.dtype:
                raise ValueError(
                    f"{kind.name.lower()}: the input is {present.dtype.name} and the "
                    f"output {target.dtype.name}")
        return Request(self, self.submit(
            kind, present.dtype, 0 if source is None else source.address,
            0 if target is None else target.address, count, hold=(source, target),
            **options))

    def _same_count(self, source: Memory, target: Memory, parts: int,
                    divisor: int) -> None:
        if source.count != target.count or source.count % divisor:
            raise ValueError(
                f"input and output have {source.count} and {target.count} elements; "
                "they have equally many" + (
                    f", a multiple of {parts}" if parts > 1 else ""))

    def _parts(self, whole: Memory, part: int,
               counts: Optional[Sequence[int]]) -> None:
        """`whole` is to hold the parts of all members, `part` elements of this one."""
        size = self.group.size
        if counts is None:
            counts = [part] * size
        if len(counts) != size:
            raise ValueError(f"{len(counts)} counts for a group of {size}")
        if part < counts[self.group.rank]:
            raise ValueError(f"this member's part has {part} elements; its count is "
                             f"{counts[self.group.rank]}")
        _at_least(whole, sum(counts), "the whole")

    def _failure(self, status: int, kind: Optional[int] = None) -> CommschedError:
        op = None if kind is None else Collective(kind).name.lower()
        return error(status, op=op, group=self.group.axis)

    def __repr__(self) -> str:
        return f"Channel({self.group!r})"


def _array(counts: Optional[Sequence[int]]) -> Any:
    return None if counts is None else (ctypes.c_uint64 * len(counts))(*counts)


def _writable(target: Memory, what: str) -> Memory:
    if target.readonly:
        raise ValueError(f"{what}: the output is read-only")
    return target


def _at_least(found: Memory, count: int, what: str) -> None:
    if found.count < count:
        raise ValueError(f"{what}: {found.count} elements of memory for counts of "
                         f"{count}")


