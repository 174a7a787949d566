"""DistributedDataParallel whose buckets a recorded plan carries.

    model = commsched.ddp(model)

The process group may be of any backend: buckets are reduced over ranks of a job of our
own, by a communication hook. Errors come by the hook's futures, out of backward().
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from torch.autograd import Variable
from torch.nn.parallel import DistributedDataParallel

from .._enums import Collective, Phase, ReduceOp
from ..channel import Channel
from ..errors import AbortedError, FailedPreconditionError, UnimplementedError
from ..memory import memory
from ..plan import PlanOptions
from ..recording import Recording
from . import _job

# DDP cuts its buckets anew before its second backward: they are declared after it.
_SETTLED_AFTER = 2

# By which name a bucket's elements travel.
_COMPRESSIONS: Dict[Optional[str], Optional[torch.dtype]] = {
    None: None, "bf16": torch.bfloat16, "fp16": torch.float16}


class Counters(NamedTuple):
    """What became of the backwards whose gradients were reduced."""

    eager: int  # While buckets were not known, or were others than before.
    recorded: int  # Step by step, each collective to its end.
    replayed: int  # From the frozen plan.
    buckets: int  # That are declared now.
    plans: int  # That were made, of buckets as they are declared now.


class _Shape(NamedTuple):
    """What a bucket has in common from step to step."""

    num_elements: int
    dtype: torch.dtype


class _Declared(NamedTuple):
    shape: _Shape
    buffer: int
    backward: int  # The op that fills it.
    reduce: int


class _Pending(NamedTuple):
    """A bucket that was submitted to the recording."""

    bucket: torch.Tensor
    wire: torch.Tensor  # What travels: the bucket, or a smaller copy.
    future: Any
    op: int


class Recorded:
    """The buckets of one DDP module on one rank.

    One thread at a time: that of backward.
    """

    def __init__(self, job: _job.Job, ranks: Optional[Sequence[int]], name: str,
                 timeout: float, compression: Optional[str]) -> None:
        self._job = job
        self._group = job.group(ranks, name)
        self._channel = Channel(job.context, self._group, timeout=timeout)
        # A bucket goes as soon as it is there: bucket_cap_mb says how large they are.
        self._recording = Recording(
            job.context, [self._group], timeout=timeout, hear_interrupts=False,
            options=PlanOptions(coalesce_bytes=0))
        self._wire_dtype = _COMPRESSIONS[compression]
        self._wires: Dict[int, torch.Tensor] = {}
        self._declared: List[_Declared] = []
        self._shapes: List[_Shape] = []  # Of the last backward that has ended.
        self._seen: List[_Shape] = []  # Of this one.
        self._pending: List[_Pending] = []
        self._generation = 0
        self._backwards = 0
        self._eager = 0
        self._open = False  # A step of the recording has begun.
        self._failure: Optional[Exception] = None

    # ---- In backward ----------------------------------------------------------

    def reduce(self, bucket: Any) -> Any:
        """The hook: never raises, since that would leave DDP behind unusable."""
        future: Any = torch.futures.Future()
        # What PyTorch raises is the failure of a future that another one has made.
        returned = future.then(_value_of)
        try:
            if self._failure is not None:
                raise self._failure
            if bucket.index() == 0:
                self._begin()
            self._submit(bucket.index(), _checked(bucket.buffer()), future)
            if bucket.is_last():
                self._last()
        except BaseException as failure:
            self._fail(failure)
            if not future.done():
                future.set_exception(self._failure)
        return returned

    def _begin(self) -> None:
        """Begins a step of the recording, if the buckets stand still."""
        if self._pending:
            raise FailedPreconditionError(
                f"bucket 0 of '{self._group.axis}' comes a second time, and backward "
                "has not ended")
        if self._backwards >= _SETTLED_AFTER:
            if [each.shape for each in self._declared] != self._shapes:
                self._declare()
            self._recording.step_begin()
            self._open = True

    def _declare(self) -> None:
        """Declares the buckets of the last backward, in place of those before."""
        recording = self._recording
        for each in self._declared:
            recording.remove_op(each.reduce)
            recording.remove_op(each.backward)
            recording.remove_buffer(each.buffer)
        self._declared = []
        self._generation += 1
        for index, shape in enumerate(self._shapes):
            name = f"{self._generation}.{index}"
            dtype = memory(torch.empty(0, dtype=shape.dtype)).dtype
            buffer = recording.late_buffer(f"bucket {name}", dtype, shape.num_elements)
            self._declared.append(_Declared(
                shape, buffer,
                recording.compute(f"backward {name}", writes=[buffer]),
                recording.collective(f"all_reduce {name}", "all_reduce", input=buffer,
                                     op=ReduceOp.AVG)))

    def _submit(self, index: int, bucket: torch.Tensor, future: Any) -> None:
        wire = self._wire(index, bucket)
        shape = _Shape(wire.numel(), wire.dtype)
        self._seen.append(shape)
        declared = self._declared[index] if (
            self._open and index < len(self._declared)) else None
        if declared is None or declared.shape != shape:
            self._reduce_now(wire)
            _copy_back(bucket, wire)
            future.set_result(bucket)
            return
        self._recording.before(declared.backward)
        self._recording.after(declared.backward)
        self._recording.submit(declared.reduce, {declared.buffer: wire})
        self._pending.append(_Pending(bucket, wire, future, declared.reduce))

    def _reduce_now(self, wire: torch.Tensor) -> None:
        """Of a bucket that the recording does not know. DDP with a static graph waits
        for the futures of its first backward before callbacks are run."""
        found = memory(wire)
        self._channel.wait(self._channel.submit(
            Collective.ALL_REDUCE, found.dtype, found.address, found.address,
            found.count, reduce_op=ReduceOp.AVG,
            deterministic=torch.are_deterministic_algorithms_enabled()))

    def _last(self) -> None:
        """All buckets of this backward are submitted."""
        if self._open:
            Variable._execution_engine.queue_callback(self._finish)
        else:
            self._eager += 1
            self._end()

    def _wire(self, index: int, bucket: torch.Tensor) -> torch.Tensor:
        if self._wire_dtype is None or bucket.dtype != torch.float32:
            return bucket
        wire = self._wires.get(index)
        if wire is None or wire.numel() != bucket.numel():
            wire = self._wires[index] = torch.empty(bucket.shape,
                                                    dtype=self._wire_dtype)
        return wire.copy_(bucket)

    def _finish(self) -> None:
        """Backward has ended, and DDP is about to wait for the futures."""
        if self._failure is not None:
            return
        try:
            for each in self._pending:
                self._recording.wait(each.op)
                _copy_back(each.bucket, each.wire)
            self._open = False
            self._recording.step_end()
        except BaseException as failure:
            self._fail(failure)
            return
        pending, self._pending = self._pending, []
        self._end()
        for each in pending:
            each.future.set_result(each.bucket)

    def _end(self) -> None:
        self._backwards += 1
        self._shapes, self._seen = self._seen, []

    def _fail(self, failure: BaseException) -> None:
        """The first failure is that of all steps to come, and of all ranks."""
        if self._failure is None:
            self._failure = failure if isinstance(failure, Exception) else (
                AbortedError(f"interrupted by {type(failure).__name__}", op="ddp"))
            reason = f"{type(failure).__name__}: {failure}"
            self._recording.abort(reason)
            self._channel.abort(reason)
        pending, self._pending = self._pending, []
        for each in pending:
            each.future.set_exception(self._failure)

    # ---- Beside it ------------------------------------------------------------

    @property
    def counters(self) -> Counters:
        info = self._recording.info
        return Counters(self._eager, info.steps_recorded,
                        info.steps - info.steps_recorded, len(self._declared),
                        info.plans)

    @property
    def frozen(self) -> bool:
        """Whether the next backward replays a plan, if its buckets are the same."""
        return bool(self._recording.info.phase == Phase.FROZEN)

    def close(self) -> None:
        """Gives up the plan and this module's place in the job. All ranks call it, or
        end; backward fails from then on."""
        if self._channel.closed:
            return
        self._failure = self._failure or FailedPreconditionError(
            f"ddp on '{self._group.axis}' was closed")
        self._recording.close()
        self._channel.close()
        self._job.leave(self._group)


def _value_of(future: Any) -> Any:
    return future.value()


def _checked(bucket: torch.Tensor) -> torch.Tensor:
    if bucket.device.type != "cpu":
        raise UnimplementedError(f"ddp of a module on {bucket.device}: only on the CPU "
                                 "yet", op="ddp")
    if bucket.layout is not torch.strided:
        raise UnimplementedError(f"ddp of gradients of layout {bucket.layout}",
                                 op="ddp")
    return bucket


def _copy_back(bucket: torch.Tensor, wire: torch.Tensor) -> None:
    if wire is not bucket:
        bucket.copy_(wire)


_recorded: "weakref.WeakKeyDictionary[Any, Recorded]" = weakref.WeakKeyDictionary()
_made = 0


def recorded(module: DistributedDataParallel) -> Recorded:
    """What `ddp` has put behind `module`."""
    found = _recorded.get(module)
    if found is None:
        raise KeyError(f"commsched.ddp() has not made this {type(module).__name__}")
    return found


def ddp(module: torch.nn.Module, *, process_group: Optional[Any] = None,
        compression: Optional[str] = None, **options: Any) -> DistributedDataParallel:
    """Wraps `module` in DistributedDataParallel, `options` being those of it, and has
    its buckets reduced by a recorded plan. A module that is one already is taken as it
    is. Collective over the process group.

    The first two backwards run eagerly, as buckets move between them; the next are
    recorded, and from then on a frozen plan is replayed, which `recorded(module)`
    counts. `compression`: "bf16" or "fp16", as what 32-bit buckets travel.
    """
    if compression not in _COMPRESSIONS:
        raise ValueError(f"compression is '{compression}'; it is one of "
                         f"{', '.join(map(str, _COMPRESSIONS))}")
    if isinstance(module, DistributedDataParallel):
        if options or process_group is not None:
            raise ValueError("ddp: the module is a DistributedDataParallel already; "
                             f"{', '.join(options) or 'process_group'} is for one that "
                             "is made")
        wrapped = module
    else:
        wrapped = DistributedDataParallel(module, process_group=process_group,
                                          **options)
    if wrapped in _recorded:
        raise ValueError("ddp: the module has its plan already")
    state = _behind(wrapped.process_group, compression)
    wrapped.register_comm_hook(state, lambda state, bucket: state.reduce(bucket))
    _recorded[wrapped] = state
    return wrapped


def _behind(group: Any, compression: Optional[str]) -> Recorded:
    global _made
    _made += 1
    name = f"ddp {_made}"
    timeout = _job.timeout_of(group)
    job, ranks = _job.of_group(group, name, timeout)
    return Recorded(job, ranks, name, timeout.total_seconds(), compression)
