"""CUDA tensors of a process group: its channel on the device, and works for which
streams wait, and not the host."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Callable, Optional, Sequence

import torch

from ..channel import Channel
from ..completions import Completions
from ..context import Context
from ..errors import CommschedError, FailedPreconditionError, InvalidArgumentError
from ..stream import Stream, cuda_stream
from .work import Work


def chosen(process_group: Any) -> Optional[int]:
    """The device of this process, if its program has chosen one: that of
    init_process_group(device_id=...), else the current one once CUDA is in use."""
    bound = getattr(process_group, "bound_device_id", None)
    if bound is not None and bound.type == "cuda" and bound.index is not None:
        return int(bound.index)
    return torch.cuda.current_device() if torch.cuda.is_initialized() else None


def have_one(store: Any, size: int, ordinal: Optional[int]) -> bool:
    """Whether the ranks have chosen a device, which all do or none. Called by all
    ranks, each with what it has chosen. `store` is theirs alone."""
    store.add("with a device", int(ordinal is not None))
    if store.add("asked", 1) == size:
        store.set("devices", str(store.add("with a device", 0)))
    found = int(store.get("devices"))
    if found not in (0, size):
        raise FailedPreconditionError(
            f"init_process_group: {found} of {size} ranks have chosen a CUDA device, "
            f"and this one has {'none' if ordinal is None else ordinal}: either all "
            "call torch.cuda.set_device() before, or give device_id, or none",
            op="init_process_group")
    return found == size


class OnDevice:
    """One rank of one process group on the CUDA device of its process."""

    def __init__(self, context: Context, ranks: Optional[Sequence[int]], axis: str,
                 completions: Completions, timeout: timedelta) -> None:
        """Collective over `ranks` of the job, all of them if None."""
        self.ordinal = context.device[1]
        self._group = context.group(ranks, axis)
        try:
            self.channel = Channel(context, self._group, completions=completions,
                                   timeout=timeout.total_seconds())
        except BaseException:
            self._group.close()
            raise

    def close(self) -> None:
        self.channel.close()
        self._group.close()

    def check(self, ordinals: Sequence[Optional[int]], call: str, name: str) -> None:
        """Raises unless all memory of a call is on this device."""
        for ordinal in ordinals:
            if ordinal != self.ordinal:
                where = "the CPU" if ordinal is None else f"cuda:{ordinal}"
                raise InvalidArgumentError(
                    f"{call} of group '{name}': a tensor is on {where}, and this "
                    f"rank's device is cuda:{self.ordinal}", op=call, group=name)

    def current(self) -> Stream:
        """The stream behind whose work calls are, and which waits for them."""
        return of_torch(torch.cuda.current_stream(self.ordinal))


def of_torch(stream: Any) -> Stream:
    return cuda_stream(stream.cuda_stream)


class DeviceWork(Work):
    """As `Work`; but `wait` without a timeout and the waits of futures make the
    current stream wait, and return at once. What a launch fails with is raised by
    whatever call comes after it has."""

    def __init__(self, device: OnDevice, copies: Optional[Callable[[], None]],
                 *of_work: Any) -> None:
        """`copies` enqueues, on the current stream, the copies of results to where the
        program wants them."""
        super().__init__(*of_work)
        self._device = device
        self._copies = copies
        self._copied: Optional[Any] = None
        self._on_streams: Optional[Any] = None

    def launched(self) -> None:
        """All requests are submitted. Copies go to a stream behind them."""
        if self._copies is None:
            return
        stream = torch.cuda.Stream(self._device.ordinal)
        self._behind(stream)
        with torch.cuda.stream(stream):
            self._copies()
            self._copied = stream.record_event()
        self._copies = None

    def _behind(self, stream: Any) -> None:
        """Has `stream` wait for the results."""
        if self._copied is not None:
            stream.wait_event(self._copied)
            return
        try:
            for request in self.requests:
                self._channel.before(request, of_torch(stream))
        except CommschedError as failure:
            self.settle(failure)

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Has the current stream wait; with a `timeout` the host, too, as for a work on
        the host."""
        if timeout.total_seconds() > 0:
            super().wait(timeout)
        if self._error is None:
            self._behind(torch.cuda.current_stream(self._device.ordinal))
        if self._error is not None:
            raise self._error
        return True

    def _future_of_results(self) -> Any:
        """It has its results at once, and its waits make streams wait for them."""
        if self._on_streams is not None:
            return self._on_streams
        ordinal = self._device.ordinal
        future: Any = torch.futures.Future(devices=[torch.device("cuda", ordinal)])
        stream = torch.cuda.Stream(ordinal)
        self._behind(stream)
        with torch.cuda.stream(stream):
            self._resolve(future)
        self._on_streams = future
        return future
