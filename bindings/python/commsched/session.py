"""Sessions: a plan on memory, streams and communicators, step after step."""

from __future__ import annotations

import ctypes
from typing import (Any, Callable, Dict, List, Mapping, Optional, Sequence, Union)

from . import _wait
from ._enums import Format, Progress, Status, named
from ._lib import abi
from ._steps import Bindings, Steps, functions_of, lanes_of, late_bindings
from ._text import text_of
from .context import Context
from .errors import CommschedError, check, error
from .group import Group
from .memory import Memory, Source, memory
from .plan import Plan
from .stream import CALLER, Stream
from .trace import Trace

_create = abi.function("commsched_session_create")
_destroy = abi.function("commsched_session_destroy")
_after_bound = abi.function("commsched_session_after_bound")
_run = abi.function("commsched_session_run")
_address = abi.function("commsched_session_address")
_version = abi.function("commsched_session_buffer_version")
_poisoned = abi.function("commsched_session_buffer_poisoned")
_get_counters = abi.function("commsched_session_get_counters")
_metrics_text = abi.function("commsched_session_metrics_text")
_explain = abi.function("commsched_session_explain")
_cpu_ns = abi.function("commsched_session_collective_cpu_ns")
_Binding = abi.type("commsched_binding_t")
_ComputeFn = abi.type("commsched_compute_fn")


class Session(Steps):
    """Binds `plan`. Collective: all ranks of the world make theirs, at a time.

    `groups`: one per group of the graph, in its order. `bindings`: memory of each BOUND
    buffer, by its id, which is kept, not copied. `lanes`: the stream of each compute
    lane; none: all are the calling thread.
    """

    _functions = functions_of("session")

    def __init__(self, context: Context, plan: Plan, groups: Sequence[Group], *,
                 bindings: Optional[Mapping[int, Source]] = None,
                 lanes: Sequence[Stream] = (), trace: Optional[Trace] = None,
                 timeout: Optional[float] = None, observers: Optional[str] = None,
                 flight_path: Optional[str] = None,
                 progress: Union[Progress, str] = Progress.THREAD,
                 hear_interrupts: bool = True) -> None:
        self._hear = hear_interrupts
        self.plan = plan
        self.op_names = plan.op_names
        self._late: Dict[int, object] = {}
        self._lanes = list(lanes)
        self._memory = {buffer: memory(source)
                        for buffer, source in (bindings or {}).items()}
        bound = (_Binding * len(self._memory))(*(
            _Binding(buffer, 0, found.address, found.nbytes)
            for buffer, found in self._memory.items()))
        handles = (ctypes.c_void_p * len(groups))(*(g.handle for g in groups))
        desc = abi.struct(
            "commsched_session_desc_t", context=context.handle, plan=plan.handle,
            groups=handles if groups else None, num_groups=len(groups),
            bindings=bound if self._memory else None, num_bindings=len(bound),
            lanes=lanes_of(lanes), num_lanes=len(lanes),
            trace=None if trace is None else trace.handle,
            launch_timeout_ns=0 if timeout is None else _wait.nanoseconds(timeout),
            observers=None if observers is None else observers.encode(),
            flight_path=None if flight_path is None else flight_path.encode(),
            progress=named(Progress, progress))
        out = ctypes.c_void_p()
        status, message = _wait.call(
            lambda: int(_create(ctypes.byref(desc), ctypes.byref(out))),
            late=lambda status: status or _destroy(out),
            keep=(context, plan, groups, self._memory, lanes, trace, desc))
        if status:
            raise error(status, message)
        self._own(out.value, _destroy)

    def after(self, op: int, stream: Stream = CALLER,
              bind: Optional[Bindings] = None) -> None:
        """As `Steps.after`. `bind`: where the LATE_BOUND buffers that `op` writes are
        in this step, and how long; see `release` for when they are free."""
        if bind is None:
            super().after(op, stream)
            return
        array, held = late_bindings(bind)
        self._check(_after_bound(self._handle, op, stream.value, array, len(array)), op)
        for buffer, found in zip(bind, held):
            self._late[buffer] = found

    def run(self, body: Callable[[int], None], steps: int = 1) -> None:
        """Runs steps in planned order: calls `body(op)` for each compute op. What it
        raises fails the session on all ranks, and is raised here."""
        raised: List[BaseException] = []

        def compute(user: Any, op: int, stream: Any) -> int:
            try:
                body(op)
                return 0
            except BaseException as failure:  # Raised below.
                raised.append(failure)
                self.abort(f"{type(failure).__name__}: {failure}")
                return (failure.status if isinstance(failure, CommschedError)
                        else Status.ABORTED)

        status = _run(self._handle, _ComputeFn(compute), None, steps)
        if raised:
            raise raised[0]
        check(status)

    def memory(self, op: int, buffer: int) -> Memory:
        """Where `buffer` is for `op`: fixed while the session lives, which the memory
        keeps, and to be used between that op's `before` and `after`."""
        out = ctypes.c_void_p()
        self._check(_address(self._handle, op, buffer, ctypes.byref(out)), op)
        declared = self.plan.buffers[buffer]
        return Memory(out.value or 0, declared.count, declared.dtype, self)

    def buffer_version(self, buffer: int) -> int:
        """In how many steps the last write to `buffer` is complete."""
        out = ctypes.c_uint64()
        check(_version(self._handle, buffer, ctypes.byref(out)))
        return out.value

    def poisoned(self, buffer: int) -> bool:
        """Whether `buffer` may hold what a step that failed left half done."""
        out = ctypes.c_uint32()
        check(_poisoned(self._handle, buffer, ctypes.byref(out)))
        return bool(out.value)

    def counters(self) -> Dict[str, int]:
        """commsched_session_counters_t."""
        counters = abi.struct("commsched_session_counters_t")
        check(_get_counters(self._handle, ctypes.byref(counters)))
        return abi.values(counters)

    def metrics_text(self) -> str:
        """Counters in the text format of Prometheus (docs/trace_formats.md)."""
        return text_of(_metrics_text, self._handle)

    def explain(self, format: Union[Format, str] = Format.TEXT) -> str:
        """`Plan.explain`, and how the backend does each launch."""
        return text_of(_explain, self._handle, named(Format, format))

    def collective_cpu_ns(self) -> List[int]:
        """By op, the library's processor time on it so far: for a CostProfile."""
        out = (ctypes.c_int64 * len(self.op_names))()
        check(_cpu_ns(self._handle, out, len(out)))
        return list(out)
