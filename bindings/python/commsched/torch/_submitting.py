"""What all calls of a process group have in common: submitting, as one work."""

from __future__ import annotations

import ctypes
import os
import threading
from datetime import timedelta
from typing import Any, List, Optional, Sequence

import torch

from .._enums import Collective
from ..channel import Channel
from ..errors import FailedPreconditionError
from ..group import Group
from ..stream import CALLER
from . import _job, _parts, _profile
from ._device import DeviceWork, OnDevice
from ._parts import Place
from .work import Completer, Work, completer

Tensors = Sequence[torch.Tensor]

# Sends and receives that go as one request: what a channel takes in any case.
_BATCH = 64


class Op:
    """One submit, and the tensors behind it."""

    __slots__ = ("kind", "values", "places")

    def __init__(self, kind: Collective, places: Sequence[Optional[Place]],
                 **values: Any) -> None:
        self.kind = int(kind)
        self.places = places
        self.values = values


class Coalesced:
    """What was called since start_coalescing()."""

    def __init__(self) -> None:
        self.ops: List[Op] = []
        self.parts: List[Any] = []
        self.places: List[Optional[Place]] = []
        self.result: List[torch.Tensor] = []

    def batches(self) -> List[List[Any]]:
        """Sends and receives, as many as go as one request."""
        return [self.parts[start:start + _BATCH]
                for start in range(0, len(self.parts), _BATCH)]


class Submitting:
    """One rank of one process group: a channel, and the works of its requests."""

    def __init__(self, job: _job.Job, group: Group, name: str,
                 timeout: timedelta) -> None:
        """Collective over `group`, which is of the job's host side."""
        self.job = job
        self._group = group
        self._name = name
        self._completer: Completer = completer()
        self._pid = os.getpid()
        self._made_with = timeout
        self._timeout: Optional[float] = None  # That of the channel.
        self._lock = threading.Lock()
        self._coalesced: Optional[Coalesced] = None
        self._buried: List[object] = []
        self._sequence = 0
        self._channel = Channel(
            job.context, group, completions=self._completer.completions,
            timeout=timeout.total_seconds())
        self._device: Optional[OnDevice] = None

    def _open_device(self) -> None:
        """Takes calls on CUDA tensors, too, if the job has devices. Collective."""
        if self.job.device is not None:
            self._device = OnDevice(self.job.device, self._group.ranks,
                                    self._group.axis, self._completer.completions,
                                    self._made_with)

    def _channels(self) -> List[Channel]:
        """That on the host comes first."""
        device = self._device
        return [self._channel] if device is None else [self._channel, device.channel]

    def _close_channels(self) -> None:
        if self._device is not None:
            self._device.close()
        self._channel.close()

    def _on_device(self, places: Sequence[Optional[Place]],
                   call: str) -> Optional[OnDevice]:
        """Where a call goes; None: to the host's channel."""
        ordinals = [place.ordinal for place in places if place is not None]
        if not any(ordinal is not None for ordinal in ordinals):
            return None
        if self._device is None:
            raise FailedPreconditionError(
                f"{call} of group '{self._name}' on CUDA tensors: this process had "
                "chosen no device when it made its default group; call "
                "torch.cuda.set_device() before init_process_group(), or give it "
                "device_id", op=call, group=self._name)
        self._device.check(ordinals, call, self._name)
        return self._device

    def _check_usable(self, call: str) -> None:
        if self._pid != os.getpid():
            raise RuntimeError(
                f"{call} of group '{self._name}': process {self._pid} made the group, "
                f"and its child {os.getpid()} has none; a child makes its own")
        if self._channel.closed:
            raise RuntimeError(f"{call} of group '{self._name}': it was destroyed")

    def _work(self, device: Optional[OnDevice], call: str, num_requests: int,
              places: Sequence[Optional[Place]], result: Tensors,
              timeout: Optional[timedelta]) -> Work:
        limit = self._timeout
        if timeout is not None and timeout.total_seconds() > 0:
            limit = timeout.total_seconds()
        kept = [place.tensors for place in places if place is not None]
        copies = _parts.finishes(places)
        work: Work
        if device is None or not kept:
            channel = self._channel if device is None else device.channel
            work = Work(self._completer, channel, call, num_requests, kept,
                        list(result), copies, limit, self._buried)
        else:
            work = DeviceWork(device, copies, self._completer, device.channel, call,
                              num_requests, kept, list(result), None, limit,
                              self._buried)
        self._completer.add(work)
        return work

    def _run(self, call: str, ops: Sequence[Op], result: Tensors,
             timeout: Optional[timedelta]) -> Optional[Work]:
        """Submits `ops`, which are one work, unless calls are being coalesced."""
        coalesced = self._coalesced
        if coalesced is not None:
            coalesced.ops += ops
            coalesced.result += result
            return None
        return self._submit(call, ops, result, timeout, None)

    def _submit(self, call: str, ops: Sequence[Op], result: Tensors,
                timeout: Optional[timedelta], coalesced: Optional[Coalesced],
                device: Optional[OnDevice] = None) -> Work:
        """`device`: where calls without memory go."""
        deterministic = torch.are_deterministic_algorithms_enabled()
        places = [place for op in ops for place in op.places]
        batches = []
        if coalesced is not None:
            places += coalesced.places
            batches = coalesced.batches()
        self._check_usable(call)
        device = device or self._on_device(places, call)
        channel, stream = self._channel, CALLER
        if device is not None:
            channel, stream = device.channel, device.current()
        self._completer.reap()  # May run callbacks of futures, which may call, too.
        with self._lock:
            work = self._work(device, call, len(ops) + len(batches), places, result,
                              timeout)
            if _profile.wanted():
                work.event = _profile.Event(call, _taken(ops, coalesced))
            try:
                for op in ops:
                    work.requests.append(channel.submit(
                        op.kind, user=work.user, deterministic=deterministic,
                        stream=stream, **op.values))
                for batch in batches:
                    work.requests.append(
                        channel.batch(batch, user=work.user, stream=stream).number)
                work.launched()
            except BaseException:
                work.submitted_only(len(work.requests))
                raise
            self._sequence += len(ops)
        if not work.requests:
            work.settle(None)
        return work


def _taken(ops: Sequence[Op], coalesced: Optional[Coalesced]) -> List[torch.Tensor]:
    """What calls take; where what a rank gets has the shape of that, the same."""
    places = [op.places[0] for op in ops if op.places]
    if coalesced is not None:
        places += coalesced.places
    found: List[torch.Tensor] = []
    for place in places:
        if place is not None:
            found += place.all()
    return found


def single(tensors: Tensors, call: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"{call} of {len(tensors)} tensors: it takes one per rank")
    return tensors[0]


def counts_of(counts: Sequence[int]) -> Any:
    return (ctypes.c_uint64 * len(counts))(*counts)
