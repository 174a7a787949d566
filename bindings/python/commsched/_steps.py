"""What sessions and recordings have in common: steps of ops on one rank."""

from __future__ import annotations

import contextlib
import ctypes
from typing import (Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional,
                    Sequence, Tuple, Union)

from . import _wait
from ._handle import Owner
from ._lib import abi
from .errors import CommschedError, error
from .memory import Memory, Source, memory
from .stream import CALLER, Stream

_Stream = abi.type("commsched_stream_t")
_LateBinding = abi.type("commsched_late_binding_t")


class Bound(NamedTuple):
    """Memory of a LATE_BOUND buffer in one step, where collectives have `counts` of
    their own."""

    source: Source
    counts: Optional[Sequence[int]] = None


# By buffer id.
Bindings = Mapping[int, Union[Source, Bound]]


class Functions(NamedTuple):
    """Of the library, for sessions or for recordings."""

    step_begin: Callable[..., Any]
    step_end: Callable[..., Any]
    before: Callable[..., Any]
    after: Callable[..., Any]
    buffer_release: Callable[..., Any]
    drain: Callable[..., Any]
    abort: Callable[..., Any]
    status: Callable[..., Any]


def functions_of(noun: str) -> Functions:
    return Functions(*(abi.function(f"commsched_{noun}_{name}")
                       for name in Functions._fields))


def lanes_of(lanes: Sequence[Stream]) -> Any:
    """None: all are the caller."""
    if not lanes:
        return None
    return (_Stream * len(lanes))(*(lane.value for lane in lanes))


def late_bindings(bindings: Bindings) -> Tuple[Any, Sequence[Memory]]:
    """An array for the library, and what has to stay."""
    array = (_LateBinding * len(bindings))()
    held = []
    for at, (buffer, bound) in enumerate(bindings.items()):
        source, counts = bound if isinstance(bound, Bound) else (bound, None)
        found = memory(source)
        each = array[at]
        each.buffer, each.address, each.count = buffer, found.address, found.count
        if counts is not None:
            each.counts = (ctypes.c_uint64 * len(counts))(*counts)
            each.num_counts = len(counts)
        held.append(found)
    return array, held


class Steps(Owner):
    """Runs steps: `step_begin`, then `before` and `after` around each op, `step_end`.

    What waits here hears ^C, which aborts it on all ranks, unless it was made with
    `hear_interrupts=False`; that saves a hand-over to another thread, some 10 us, in
    calls of the main thread.
    """

    _functions: Functions
    _hear = True
    op_names: Dict[int, str]

    def step_begin(self) -> None:
        self._wait(self._functions.step_begin)

    def step_end(self) -> None:
        """Ends the step: every op has had its `after`."""
        self._wait(self._functions.step_end)

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """`step_begin` and `step_end`. An exception in between aborts: a step is done
        by all ranks or by none."""
        self.step_begin()
        try:
            yield
        except BaseException as failure:
            self.abort(f"{type(failure).__name__}: {failure}")
            raise
        self.step_end()

    def before(self, op: int, stream: Stream = CALLER) -> None:
        """Makes `stream` wait for what compute op `op` needs. UnavailableError: not
        yet, it waits for another op's `after`."""
        function, value = self._functions.before, stream.value
        if not self._hear:
            self._check(function(self._handle, op, value), op)
            return
        self._wait(lambda handle: function(handle, op, value), op)

    def after(self, op: int, stream: Stream = CALLER) -> None:
        """The work of compute op `op` is on `stream`: what becomes due is launched."""
        self._check(self._functions.after(self._handle, op, stream.value), op)

    @contextlib.contextmanager
    def op(self, op: int, stream: Stream = CALLER) -> Iterator[None]:
        """`before` and `after`."""
        self.before(op, stream)
        yield
        self.after(op, stream)

    def release(self, buffer: int, stream: Stream = CALLER) -> None:
        """Makes `stream` wait until no collective uses the memory of `buffer`."""
        function, value = self._functions.buffer_release, stream.value
        self._wait(lambda handle: function(handle, buffer, value))

    def drain(self) -> None:
        """Waits until all that is due is complete."""
        self._wait(self._functions.drain)

    def abort(self, reason: str) -> None:
        """Fails it on every rank."""
        self._functions.abort(self._handle, reason.encode())

    def status(self) -> Optional[CommschedError]:
        """The first failure, if it has failed."""
        status = self._functions.status(self._handle)
        return error(status) if status else None

    def check(self) -> None:
        """Raises the first failure, if it has failed."""
        self._check(self._functions.status(self._handle))

    def _leave(self, reason: str) -> None:
        self.abort(reason)

    def _check(self, status: int, op: Optional[int] = None) -> None:
        if status:
            raise error(status, op=self.op_names.get(-1 if op is None else op))

    def _wait(self, function: Callable[[Optional[int]], Any],
              op: Optional[int] = None) -> None:
        handle = self._handle
        if not self._hear:
            self._check(function(handle), op)
            return
        abort = self._functions.abort
        status, message = _wait.call(
            lambda: int(function(handle)),
            interrupt=lambda: abort(handle, b"interrupted"))
        if status:
            raise error(status, message,
                        op=self.op_names.get(-1 if op is None else op))
