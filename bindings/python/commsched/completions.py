"""Completions: where one thread learns what has become of the requests of channels
and recordings."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import _wait
from ._enums import Status
from ._handle import Owner
from ._lib import abi
from .errors import check, error

_create = abi.function("commsched_completions_create")
_destroy = abi.function("commsched_completions_destroy")
_next = abi.function("commsched_completions_next")
_wake = abi.function("commsched_completions_wake")
_Completion = abi.type("commsched_completion_t")


class Completion(NamedTuple):
    """What has become of one request. `status` is OK, or what its channel or recording
    has failed with: their `check` raises it."""

    key: int  # Of its channel or recording.
    request: int  # Its number in that.
    user: int  # What was submitted with it; of a recording, the collective.
    status: Status


class Completions(Owner):
    """Has room for `capacity` requests that have not finished or are not taken. The
    library calls nobody back: a thread of the program's waits here."""

    def __init__(self, capacity: int = 65536) -> None:
        out = ctypes.c_void_p()
        check(_create(capacity, ctypes.byref(out)))
        self._own(out.value, _destroy)
        self._owners: Dict[int, "weakref.ref[object]"] = {}
        self._finished: Dict[int, "weakref.WeakMethod[Callable[[int], None]]"] = {}
        self._keys = itertools.count()
        self._arrays: List[Any] = []
        self._left: List[Completion] = []

    def next(self, timeout: Optional[float] = None,
             most: int = 64) -> List[Completion]:
        """Takes up to `most` that have finished, in that order, and at least one, for
        which it waits up to `timeout` seconds. None came in time, or `wake` was called:
        an empty list. Several threads may wait; each gets others."""
        taken = self._take(most, _wait.nanoseconds(timeout))
        for each in taken:
            found = self._finished.get(each.key)
            finished = found() if found is not None else None
            if finished is not None and each.status == Status.OK:
                finished(each.request)
        return taken

    def _take(self, most: int, timeout_ns: int) -> List[Completion]:
        if self._left:
            taken, self._left = self._left, []
            return taken
        try:
            array = self._arrays.pop()
        except IndexError:
            array = None
        if array is None or len(array) < most:
            array = (_Completion * most)()
        count = ctypes.c_uint64()
        handle = self._handle

        def body() -> int:
            return int(_next(handle, array, most, timeout_ns, ctypes.byref(count)))

        try:
            status, message = (body(), None) if timeout_ns == 0 else _wait.call(
                body, interrupt=lambda: _wake(handle))
        except BaseException:  # What it took meanwhile is the next caller's.
            self._left += _listed(array, count.value)
            raise
        if status:
            raise error(status, message)
        taken = _listed(array, count.value)
        self._arrays.append(array)
        return taken

    def wake(self) -> None:
        """Ends a `next` that waits, or else the next one that would."""
        check(_wake(self._handle))

    def add(self, owner: object, key: Optional[int],
            finished: Optional[Callable[[int], None]] = None) -> int:
        """For `Channel` and `Recording`: what completions call them. `finished`, a method
        of `owner`, is told of requests that ended well as they are taken."""
        if key is None:
            key = next(each for each in self._keys if each not in self._owners)
        elif key in self._owners and self._owners[key]() is not None:
            raise ValueError(f"key {key} is that of another channel or recording")
        self._owners[key] = weakref.ref(owner)
        self._finished.pop(key, None)
        if finished is not None:
            self._finished[key] = weakref.WeakMethod(finished)
        return key


def _listed(array: Any, count: int) -> List[Completion]:
    return [Completion(each.key, each.request, each.user, Status(each.status))
            for each in array[:count]]
