"""Sees every collective of a PyTorch script, whoever calls it.

All ways into a process group (torch.distributed, DDP's reducer in C++, FSDP2,
functional collectives, compiled code) end in operators `c10d::*` of PyTorch's
dispatcher. A kernel of ours at the key BackendSelect, which every call passes,
notes the call and hands it on. The hooks never change what a call does; if one
fails, it says so in the trace's notes and the script goes on.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any, Callable, Dict, List, Tuple

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .model import NONE
from .recorder import Call, PendingWait, Recorder, now

_KINDS = {
    "allreduce_": "all_reduce",
    "allreduce_coalesced_": "all_reduce",
    "broadcast_": "broadcast",
    "reduce_": "reduce",
    "allgather_": "all_gather",
    "_allgather_base_": "all_gather",
    "allgather_coalesced_": "all_gather",
    "allgather_into_tensor_coalesced_": "all_gather",
    "reduce_scatter_": "reduce_scatter",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_tensor_coalesced_": "reduce_scatter",
    "alltoall_": "all_to_all",
    "alltoall_base_": "all_to_all",
    "gather_": "gather",
    "gather_into_tensor_": "gather",
    "scatter_": "scatter",
    "send": "send",
    "recv_": "recv",
    "recv_any_source_": "recv",
    "barrier": "barrier",
    "monitored_barrier_": "barrier",
}
_DTYPES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int8: "i8",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.uint8: "u8",
}
_make_library: Any = torch.library.Library  # It has no types.
_REDUCTIONS = ("SUM", "AVG", "MIN", "MAX", "PRODUCT")


class TorchHooks:
    """Hooks of one process; install() once, then remove() once."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._calls: weakref.WeakKeyDictionary[Any, List[Call]]
        self._calls = weakref.WeakKeyDictionary()
        self._tensors: Dict[int, Call] = {}  # By output, until it is waited for.
        self._local = threading.local()
        self._undo: List[Callable[[], None]] = []
        self._library: Any = None
        self._group_keys: Dict[str, str] = {}
        self._coalescing: Dict[str, List[Call]] = {}
        self._waiting_classes: set[type] = set()
        self.on_call: Callable[[Call], None] = lambda call: None
        self.in_backward: Callable[[Call], None] = lambda call: None

    def install(self) -> None:
        after = torch._C._dispatch_keyset_full_after(
            torch._C.DispatchKey.BackendSelect
        )
        self._library = _make_library("c10d", "IMPL")
        for name, kind in _KINDS.items():
            packet = getattr(torch.ops.c10d, name, None)
            if packet is None:  # An older or a newer PyTorch.
                continue
            self._library.impl(
                name,
                self._kernel(packet.default, kind, after),
                "BackendSelect",
                with_keyset=True,
            )
        functional: Any = _make_library("_c10d_functional", "IMPL")
        self._undo.append(functional._destroy)
        for name in ("wait_tensor", "wait_tensors"):
            packet = getattr(torch.ops._c10d_functional, name, None)
            if packet is not None:
                functional.impl(
                    name,
                    self._wait_kernel(packet.default, after),
                    "BackendSelect",
                    with_keyset=True,
                )
        self._watch_waits(c10d.Work)
        self._watch_coalescing()
        self._watch_blocking(dist, "_broadcast_coalesced")

    def remove(self) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def unwaited(self, graph_task: int) -> List[Call]:
        """Returns the calls that a backward issued and no one waited for."""
        calls = []
        for call in reversed(self._recorder.calls):
            if call.graph_task != graph_task:
                if call.graph_task != -1:
                    break
                continue
            if not call.blocking:
                calls.append(call)
        return calls

    # Calls.

    def _kernel(self, op: Any, kind: str, after: Any) -> Callable[..., Any]:
        names = [argument.name for argument in op._schema.arguments]
        returns = len(op._schema.returns)

        def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
            issued = now()
            call = self._guarded(self._begin, kind, issued, names, args, kwargs)
            result = op.redispatch(keys & after, *args, **kwargs)
            if call is not None:
                work = result[-1] if returns > 1 else result
                self._guarded(self._issued, call, work if returns else None)
            return result

        return kernel

    def _guarded(self, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:  # The script must not notice.
            self._recorder.note(
                f"a hook failed in {function.__name__}:"
                f" {type(error).__name__}: {error}"
            )
            return None

    def _begin(
        self,
        kind: str,
        issued: int,
        names: List[str],
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
    ) -> Call:
        given = {**dict(zip(names, args)), **kwargs}
        group = c10d.ProcessGroup.unbox(given["process_group"])
        call = Call(kind, self._group_key(group), issued)
        call.blocking = not given.get("async_op", True)
        call.tag = given.get("tag", 0)
        for name in ("root_rank", "src", "dst"):
            if name in given:
                call.peer = given[name]
        if "reduce_op" in given:
            call.reduce_op = _reduction(given["reduce_op"])
        if kind != "barrier":
            _describe_tensors(call, given)
        call.graph_task = torch._C._current_graph_task_id()
        self._recorder.add(call)
        blocking = getattr(self._local, "issued", None)
        if blocking is not None:
            blocking.append(call)
        open_calls = self._coalescing.get(call.group)
        if open_calls is not None:
            open_calls.append(call)
        self.on_call(call)
        if call.graph_task != -1:
            self.in_backward(call)
        return call

    def _issued(self, call: Call, boxed: Any) -> None:
        call.returned = now()
        if boxed is None:  # It has blocked until it was complete.
            call.complete(call.returned)
            self._recorder.waits.append(
                PendingWait(call.issued, call.returned, [call], False)
            )
            return
        work = c10d.Work.unbox(boxed)
        if work is None:  # Its group is coalescing.
            return
        self._watch_waits(type(work))
        self._calls[work] = [call]
        self._local.work = work  # So that the caller gets this very object.
        if call.blocking:
            call.told = True
            return
        for pointer, _ in call.pointers:
            self._tensors[pointer] = call
        try:
            future = work.get_future()
        except RuntimeError:  # As of sends and receives: the wait will tell.
            return
        call.told = True
        future.add_done_callback(lambda _: call.complete(now()))

    def _group_key(self, group: Any) -> str:
        name = group.group_name
        key = self._group_keys.get(name)
        if key is None:
            try:
                ranks = tuple(dist.get_process_group_ranks(group))
            except (ValueError, KeyError):
                ranks = tuple(range(group.size()))
            key = f"{name}@{ranks[0]}"
            self._group_keys[name] = key
            self._recorder.groups[key] = ranks
            label = getattr(group, "group_desc", "")
            if label in ("", "undefined") or label in self._recorder.labels.values():
                label = f"group {name}"
            self._recorder.labels[key] = label
        return key

    # Waits.

    def _watch_waits(self, kind: type) -> None:
        """Notes the waits of a class of Work, and of those that it is made of."""
        if kind in self._waiting_classes:
            return
        for base in kind.__mro__:
            if base in self._waiting_classes or "wait" not in vars(base):
                continue
            original = vars(base)["wait"]
            setattr(base, "wait", self._timed_wait(original))
            self._undo.append(
                functools.partial(setattr, base, "wait", original)
            )
            self._waiting_classes.add(base)
        self._waiting_classes.add(kind)

    def _timed_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            if getattr(self._local, "waiting", False):  # A base class's.
                return original(work, *args, **kwargs)
            begin = now()
            self._local.waiting = True
            try:
                result = original(work, *args, **kwargs)
            finally:
                self._local.waiting = False
            self._guarded(self._waited, begin, self._calls.get(work, []))
            return result

        return wait

    def _waited(self, begin: int, calls: List[Call]) -> None:
        end = now()
        for call in calls:
            call.complete(end)
            call.returned = min(call.returned, begin)
        self._recorder.waits.append(PendingWait(begin, end, calls, False))

    def _wait_kernel(self, op: Any, after: Any) -> Callable[..., Any]:
        def kernel(keys: Any, tensors: Any) -> Any:
            begin = now()
            result = op.redispatch(keys & after, tensors)
            self._guarded(self._waited_for_tensors, begin, tensors)
            return result

        return kernel

    def _waited_for_tensors(self, begin: int, tensors: Any) -> None:
        calls = []
        for tensor in _flat(tensors):
            call = self._tensors.pop(tensor.data_ptr(), None)
            if call is not None:
                calls.append(call)
        self._waited(begin, calls)

    def _watch_coalescing(self) -> None:
        """The calls between two ends of a group's coalescing have one Work."""
        group = c10d.ProcessGroup
        if not hasattr(group, "_end_coalescing"):
            return
        start, end = group._start_coalescing, group._end_coalescing

        @functools.wraps(start)
        def started(pg: Any, *args: Any) -> Any:
            key = self._guarded(self._group_key, pg)
            self._coalescing[key] = []
            return start(pg, *args)

        @functools.wraps(end)
        def ended(pg: Any, *args: Any) -> Any:
            work = end(pg, *args)
            key = self._guarded(self._group_key, pg)
            calls = self._coalescing.pop(key, [])
            if work is not None and calls:
                self._guarded(self._coalesced, work, calls)
            return work

        for name, hook, original in (
            ("_start_coalescing", started, start),
            ("_end_coalescing", ended, end),
        ):
            setattr(group, name, hook)
            self._undo.append(functools.partial(setattr, group, name, original))

    def _coalesced(self, work: Any, calls: List[Call]) -> None:
        self._watch_waits(type(work))
        self._calls[work] = calls
        try:
            future = work.get_future()
        except RuntimeError:
            return

        def done(_: Any) -> None:
            for call in calls:
                call.complete(now())

        for call in calls:
            call.told = True
        future.add_done_callback(done)

    def _watch_blocking(self, module: Any, name: str) -> None:
        """Notes the wait of a function that waits in C++ for what it issued."""
        original = getattr(module, name, None)
        if original is None:
            return

        @functools.wraps(original)
        def blocking(*args: Any, **kwargs: Any) -> Any:
            issued: List[Call] = []
            self._local.issued = issued
            try:
                result = original(*args, **kwargs)
            finally:
                self._local.issued = None
            end = now()
            if issued:
                begin = issued[-1].returned
                for call in issued:
                    call.complete(end)
                self._recorder.waits.append(
                    PendingWait(begin, end, issued, True)
                )
            return result

        setattr(module, name, blocking)
        self._undo.append(functools.partial(setattr, module, name, original))


def _flat(value: Any) -> List[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _flat(item)]
    return []


def _describe_tensors(call: Call, given: Dict[str, Any]) -> None:
    """Sets bytes and dtype; the larger side is the whole payload."""
    sides = [tensors for tensors in map(_flat, given.values()) if tensors]
    if not sides:
        return
    call.bytes = max(sum(t.nbytes for t in tensors) for tensors in sides)
    first = sides[0][0]
    call.dtype = _DTYPES.get(first.dtype, str(first.dtype).split(".")[-1])
    if first.device.type != "meta" and not first.is_sparse:
        call.pointers = tuple((t.data_ptr(), t.nbytes) for t in sides[0])


def _reduction(boxed: Any) -> str:
    """Returns its name, or none where PyTorch (2.11) does not say."""
    unbox = getattr(c10d.ReduceOp, "unbox", None)
    if unbox is None:
        return ""
    op = unbox(boxed)
    for name in _REDUCTIONS:
        if op == getattr(c10d.ReduceOp, name):
            return "prod" if name == "PRODUCT" else name.lower()
    return "other"


assert NONE == -1  # peer and graph tasks use PyTorch's -1.
