"""Recordings: a program that calls eagerly, in its own order, and gets a plan."""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Union

from . import _describe, _wait
from ._enums import Collective, DType, Ownership, Phase, Progress, Status, named
from ._lib import abi
from ._steps import Bindings, Steps, functions_of, lanes_of, late_bindings
from .completions import Completions
from .context import Context
from .errors import check
from .group import Group
from .memory import Memory, Source, memory
from .plan import CostProfile, Plan, PlanOptions
from .stream import Stream
from .trace import Trace

_create = abi.function("commsched_recording_create")
_destroy = abi.function("commsched_recording_destroy")
_add_segment = abi.function("commsched_recording_add_segment")
_add_buffer = abi.function("commsched_recording_add_buffer")
_add_compute = abi.function("commsched_recording_add_compute")
_add_collective = abi.function("commsched_recording_add_collective")
_remove_op = abi.function("commsched_recording_remove_op")
_remove_buffer = abi.function("commsched_recording_remove_buffer")
_move_buffer = abi.function("commsched_recording_move_buffer")
_submit = abi.function("commsched_recording_submit")
_submit_bound = abi.function("commsched_recording_submit_bound")
_wait_for = abi.function("commsched_recording_wait")
_get_info = abi.function("commsched_recording_get_info")
_plan = abi.function("commsched_recording_plan")

_DEADLINE = int(Status.DEADLINE_EXCEEDED)
_ALTERNATIVE = abi.constant("COMMSCHED_RECORDING_ALTERNATIVE")
_EARLY = abi.constant("COMMSCHED_RECORDING_EARLY")
_COUNTS = abi.constant("COMMSCHED_RECORDING_COUNTS")


class RecordingInfo(NamedTuple):
    """commsched_recording_info_t."""

    phase: Phase
    segment: int
    steps: int
    steps_recorded: int
    plans: int
    rerecordings: int
    steps_deviating: int
    collectives_left_out: int
    deviating_step: int
    deviating_rank: int


class Recording(Steps):
    """Buffers, compute ops and collectives are declared between steps, by equal calls
    on all ranks; ids count as they come. Then steps run: the first are recorded, the
    next replay the plan that they make.

    `groups`: by group id, on different axes. `completions`: told of each submission
    that has finished, by its number among these, from 1 on, and the collective; `key`
    is what they call the recording.
    """

    _functions = functions_of("recording")

    def __init__(self, context: Context, groups: Sequence[Group], *,
                 options: Optional[PlanOptions] = None,
                 profile: Optional[CostProfile] = None, lanes: Sequence[Stream] = (),
                 trace: Optional[Trace] = None, steps_to_record: int = 0,
                 max_recorded_steps: int = 0, timeout: Optional[float] = None,
                 strict: bool = False,
                 progress: Union[Progress, str] = Progress.THREAD,
                 completions: Optional[Completions] = None, key: Optional[int] = None,
                 hear_interrupts: bool = True) -> None:
        self._hear = hear_interrupts
        self._completions = completions
        self.key = 0 if completions is None else completions.add(self, key)
        self.op_names: Dict[int, str] = {}
        self._memory: Dict[int, Memory] = {}
        self._late: Dict[int, object] = {}
        self._lanes = list(lanes)
        handles = (ctypes.c_void_p * len(groups))(*(g.handle for g in groups))
        desc = abi.struct(
            "commsched_recording_desc_t", context=context.handle,
            groups=handles if groups else None, num_groups=len(groups),
            lanes=lanes_of(lanes), num_lanes=len(lanes),
            trace=None if trace is None else trace.handle,
            steps_to_record=steps_to_record, max_recorded_steps=max_recorded_steps,
            launch_timeout_ns=0 if timeout is None else _wait.nanoseconds(timeout),
            strict=strict, progress=named(Progress, progress),
            completions=None if completions is None else completions.handle,
            key=self.key)
        if options is not None:
            desc.options = ctypes.pointer(options.struct())
        if profile is not None:
            desc.profile = ctypes.pointer(profile.struct())
        out = ctypes.c_void_p()
        check(_create(ctypes.byref(desc), ctypes.byref(out)))
        self._own(out.value, _destroy)

    # ---- Declaring ------------------------------------------------------------

    def segment(self, name: str) -> int:
        """A part of the step that is recorded again as a whole; 0 is there already."""
        out = ctypes.c_uint32()
        check(_add_segment(self._handle, name.encode(), ctypes.byref(out)))
        return out.value

    def buffer(self, name: str, source: Source) -> int:
        """Memory that stays where it is. It is kept, not copied."""
        found = memory(source)
        buffer = self._add_buffer(name, found.dtype, found.count, Ownership.BOUND,
                                  found.address)
        self._memory[buffer] = found
        return buffer

    def late_buffer(self, name: str, dtype: Union[DType, str], count: int) -> int:
        """Memory of at most `count` elements that each `submit` names anew."""
        return self._add_buffer(name, named(DType, dtype), count, Ownership.LATE_BOUND,
                                None)

    def compute(self, name: str, *, segment: int = 0, **options: Any) -> int:
        """A compute op: `reads`, `writes` and `updates` as of `Graph.compute`."""
        desc = _describe.compute_desc(name, **options)
        return self._declared(name, _add_compute, ctypes.byref(desc), segment)

    def collective(self, name: str, kind: Union[Collective, str], *, segment: int = 0,
                   alternative: bool = False, early: bool = False,
                   own_counts: bool = False, **options: Any) -> int:
        """A collective, as of `Graph.collective`. `alternative`: planned even if no
        recorded step submits it. `early`: it may be launched before it is submitted.
        `own_counts`: each submit tells how much it moves."""
        desc = _describe.collective_desc(name, kind, **options)
        flags = (_ALTERNATIVE * alternative | _EARLY * early | _COUNTS * own_counts)
        return self._declared(name, _add_collective, ctypes.byref(desc), segment, flags)

    def remove_op(self, op: int) -> None:
        """Takes an op away, on all ranks alike; the plan is given up."""
        self._check(_remove_op(self._handle, op), op)
        self.op_names.pop(op, None)
        self._late.pop(op, None)

    def remove_buffer(self, buffer: int) -> None:
        """Takes a buffer away that no op accesses any more. Its memory is free once the
        next step has begun, until when it has to stay."""
        check(_remove_buffer(self._handle, buffer))

    def move_buffer(self, buffer: int, source: Source) -> None:
        """From the next step on `buffer` is there. All ranks call this."""
        found = memory(source)
        check(_move_buffer(self._handle, buffer, found.address))
        self._memory[buffer] = found

    # ---- Steps ----------------------------------------------------------------

    def submit(self, op: int, bind: Optional[Bindings] = None) -> None:
        """Submits a collective. While steps are recorded it is complete on return.
        `bind`: where its LATE_BOUND buffers are, which have to stay until it is
        complete; those of its latest submission are kept."""
        if bind is None:
            self._wait(lambda handle: _submit(handle, op), op)
            return
        array, held = late_bindings(bind)
        self._wait(lambda handle: _submit_bound(handle, op, array, len(array)), op)
        self._late[op] = held

    def wait(self, op: int, timeout: Optional[float] = None) -> None:
        """Waits until collective `op`, as it was submitted last, is complete, on any
        thread, beside the step. DeadlineExceededError: not in `timeout` seconds."""
        handle, status_of = self._handle, self._functions.status
        status = _wait.in_slices(
            lambda slice_ns: int(_wait_for(handle, op, slice_ns)),
            _wait.nanoseconds(timeout), _DEADLINE, lambda: bool(status_of(handle)),
            time.monotonic_ns)
        self._check(status, op)

    @property
    def info(self) -> RecordingInfo:
        """What it does, and how steps went so far."""
        info = abi.struct("commsched_recording_info_t")
        check(_get_info(self._handle, ctypes.byref(info)))
        values = {name: getattr(info, name) for name in RecordingInfo._fields}
        return RecordingInfo(**{**values, "phase": Phase(info.phase)})

    def plan(self) -> Plan:
        """The plan that is frozen now."""
        out = ctypes.c_void_p()
        check(_plan(self._handle, ctypes.byref(out)))
        return Plan(None, handle=out.value)

    def _add_buffer(self, name: str, dtype: DType, count: int, ownership: Ownership,
                    address: Optional[int]) -> int:
        desc = abi.struct("commsched_buffer_desc_t", name=name.encode(), dtype=dtype,
                          ownership=ownership, count=count)
        out = ctypes.c_uint32()
        check(_add_buffer(self._handle, ctypes.byref(desc), address, ctypes.byref(out)))
        return out.value

    def _declared(self, name: str, function: Callable[..., Any],
                  *arguments: Any) -> int:
        out = ctypes.c_uint32()
        check(function(self._handle, *arguments, ctypes.byref(out)), op=name)
        self.op_names[out.value] = name
        return out.value
