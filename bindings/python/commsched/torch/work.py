"""Works: what process groups return, and who tells them that they have finished."""

from __future__ import annotations

import atexit
import itertools
import os
import threading
from datetime import timedelta
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
import torch.distributed as dist

from .._enums import Status
from ..channel import Channel
from ..completions import Completion, Completions
from ..errors import CommschedError, DeadlineExceededError
from ._profile import Event

Finish = Callable[[], None]

# Of all groups of a process: requests that have not finished, or are not taken.
_CAPACITY = 1 << 18


class Work(dist._Work):  # type: ignore[misc, unused-ignore]
    """Requests of one channel that a call of a process group submitted.

    What is sent is kept until the requests have finished, and let go of then, also
    where the program keeps the work, which has the results only. Results that have to
    be copied to where the program wants them are there after `wait`, or in the
    callbacks of `get_future`.
    """

    def __init__(self, completer: "Completer", channel: Channel, name: str,
                 num_requests: int, keep: object, result: List[torch.Tensor],
                 finish: Optional[Finish], timeout: Optional[float],
                 buried: List[object]) -> None:
        """`keep` is what the requests use, and `finish` copies their results.
        `timeout` is for `wait`; None: the channel's own. `buried` gets what a channel
        that has failed may still use."""
        super().__init__()
        self.requests: List[int] = []  # Those that `wait` has to wait for.
        self.user = 0
        self.event: Optional[Event] = None
        self._completer = completer
        self._channel = channel
        self._name = name
        self._num_requests = self._left = num_requests
        self._keep = keep
        self._result = result
        self._finish = finish
        self._timeout = timeout
        self._buried = buried
        self._lock = threading.Lock()
        self._future: Optional[Any] = None
        self._done = False
        self._error: Optional[Exception] = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits up to `timeout`, by default the call's own and else the group's, and
        raises what the group has failed with. DeadlineExceededError: it has not
        finished, and may be waited for again."""
        if not self._done:
            self._wait(timeout.total_seconds() or self._timeout)
        if self._error is not None:
            raise self._error
        return True

    def _wait(self, limit: Optional[float]) -> None:
        try:
            for request in self.requests:
                self._channel.wait(request, limit)
        except DeadlineExceededError as late:
            if self._channel.status() is None:
                raise DeadlineExceededError(
                    f"{self._name} of group '{self._channel.group.axis}' has not "
                    f"finished on rank {self._channel.group.rank} within {limit:g} s",
                    op=self._name, group=self._channel.group.axis) from None
            self.settle(DeadlineExceededError(
                f"{self._name} has not finished within the timeout of group "
                f"'{self._channel.group.axis}': {late.message}", op=self._name,
                group=self._channel.group.axis, rank=late.rank))
        except CommschedError as failure:
            self.settle(failure)
        else:
            self.settle(None)

    def is_completed(self) -> bool:
        if not self._done:
            self._completer.reap()
        return self._done

    def is_success(self) -> bool:
        return self.is_completed() and self._error is None

    def exception(self) -> Optional[Exception]:
        return self._error

    def result(self) -> List[torch.Tensor]:
        return self._result

    def synchronize(self) -> None:
        self.wait()

    def get_future(self) -> Any:
        """A future of the results. It is resolved by the thread that learns first that
        the requests have finished, as callbacks of futures are run."""
        return _NO_FUTURE if _asking.own(self) else self._future_of_results()

    def _future_of_results(self) -> Any:
        with self._lock:
            future = self._future
            made = future is None
            if made:
                future = self._future = torch.futures.Future()
            done = self._done
        if made:
            if done:
                self._resolve(future)
            else:
                self._completer.watch(self)
        return future

    def launched(self) -> None:
        """All its requests have been submitted."""

    def submitted_only(self, num_requests: int) -> None:
        """The submit behind so many of the requests has failed."""
        with self._lock:
            self._left -= self._num_requests - num_requests
            left = self._left
        if left == 0:
            self.settle(None)
        if num_requests == 0:
            self._completer.remove(self)

    def belongs_to(self, channel: Channel) -> bool:
        return self._channel is channel

    def completed(self, status: int) -> None:
        """For `Completer`: one of the requests has finished."""
        if self._done:
            return
        if status != Status.OK:
            self.settle(self._channel.status())
            return
        with self._lock:
            self._left -= 1
            left = self._left
        if left == 0:
            self.settle(None)

    def settle(self, error: Optional[Exception]) -> None:
        """All requests have finished, or will not. The first call counts; later ones
        wait for it."""
        with self._lock:
            if self._done:
                return
            if error is None:
                error = self._copy_results()
            else:
                self._buried.append(self._keep)
            self._error = error
            self._keep = self._finish = None
            self._done = True
            future = self._future
            if self.event is not None:
                self.event.end()
        if future is not None:
            self._completer.unwatch(self)
            self._resolve(future)

    def _copy_results(self) -> Optional[Exception]:
        try:
            if self._finish is not None:
                self._finish()
        except Exception as error:  # For who waits, on whatever thread this is.
            return error
        return None

    @property
    def settled(self) -> bool:
        return self._done

    def _resolve(self, future: Any) -> None:
        if self._error is None:
            future.set_result(self._result)
        else:
            future.set_exception(self._error)


class Completer:
    """Learns what the channels of a process have finished.

    A thread waits for that while there are works with futures that nobody has resolved;
    else whoever calls the groups next looks.
    """

    def __init__(self) -> None:
        self.completions = Completions(_CAPACITY)
        self.pid = os.getpid()
        self._ids = itertools.count(1)
        self._works: Dict[int, Work] = {}
        self._watched: Dict[int, Work] = {}
        self._changed = threading.Condition()
        self._thread: Optional[threading.Thread] = None
        self._stopped = False

    def add(self, work: Work) -> int:
        """Returns what to submit the requests of `work` with."""
        work.user = next(self._ids)
        self._works[work.user] = work
        return work.user

    def remove(self, work: Work) -> None:
        """Nobody will hear of `work` by `reap`."""
        self._works.pop(work.user, None)

    def unsettled(self, channel: Channel) -> List[Work]:
        """Works of `channel` that have not finished."""
        self.reap()
        return [work for work in list(self._works.values())
                if work.belongs_to(channel) and not work.settled]

    def reap(self) -> None:
        """Tells works that have finished."""
        while self._works:
            taken = self.completions.next(0)
            self._tell(taken)
            if not taken:
                return

    def _tell(self, taken: Sequence[Completion]) -> None:
        for each in taken:
            work = self._works.get(each.user)
            if work is not None:
                work.completed(each.status)
                if work.settled:
                    self._works.pop(each.user, None)

    def watch(self, work: Work) -> None:
        """Has the thread wait for `work`."""
        with self._changed:
            self._watched[work.user] = work
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._serve, name="commsched-done", daemon=True)
                self._thread.start()
                atexit.register(self._stop)
            self._changed.notify()
        if work.settled:
            self.unwatch(work)

    def unwatch(self, work: Work) -> None:
        self._watched.pop(work.user, None)

    def _serve(self) -> None:
        while True:
            with self._changed:
                while not self._watched and not self._stopped:
                    self._changed.wait()
            if self._stopped:
                return
            self._tell(self.completions.next())

    def _stop(self) -> None:
        """The program ends: nobody may be in a call then."""
        if self._thread is None or self.pid != os.getpid():
            return
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self.completions.wake()
        self._thread.join()


_completer: Optional[Completer] = None
_completer_lock = threading.Lock()


def completer() -> Completer:
    """That of this process, which a child of it does not share."""
    global _completer
    with _completer_lock:
        if _completer is None or _completer.pid != os.getpid():
            _completer = Completer()
        return _completer


def _forget() -> None:
    global _completer_lock
    _completer_lock = threading.Lock()


os.register_at_fork(after_in_child=_forget)


# ---- is_completed() of what PyTorch makes of a work ---------------------------


class _Asking(threading.local):
    """Which work answers get_future() on this thread, while somebody asks for that."""

    asks = False
    found: Optional[Work] = None

    def own(self, work: Work) -> bool:
        if self.asks:
            self.found = work
        return self.asks


_asking = _Asking()
_NO_FUTURE = torch.futures.Future()


def ours(work: Any) -> Optional[Work]:
    """The work of this module that `work`, which a process group returned, stands for.
    PyTorch gives the program an object of its own, which passes on `wait` and
    `get_future` alone."""
    if isinstance(work, Work):
        return work
    _asking.asks, _asking.found = True, None
    try:
        work.get_future()
        return _asking.found
    except RuntimeError:  # It has none: it is not of this module.
        return None
    finally:
        _asking.asks, _asking.found = False, None


def _forwarding(name: str) -> None:
    plain = getattr(dist.Work, name)

    def forward(work: Any) -> Any:
        found = ours(work)
        return plain(work) if found is None else getattr(found, name)()

    forward.__doc__ = plain.__doc__
    forward.commsched = True  # type: ignore[attr-defined]
    setattr(dist.Work, name, forward)


def answer_for_works() -> None:
    """Has `is_completed` and its like of works of this backend say what is the case.
    PyTorch (2.15) passes them on to no work that is written in Python, so that
    `is_completed` would be False for ever. Works of others answer as before."""
    if not getattr(dist.Work.is_completed, "commsched", False):
        for name in ("is_completed", "is_success", "exception", "result"):
            _forwarding(name)
