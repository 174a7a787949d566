"""Long calls that hear ^C.

Python runs its signal handlers on the main thread, between its own instructions, hence
not while that thread is in a call of the library. What can wait for other ranks is
therefore called in slices, if it takes a time limit, or on another thread, for which
the main thread waits in a way that signals end.
"""

from __future__ import annotations

import _thread
import os
import threading
from typing import Any, Callable, Optional, Tuple

from .errors import last_message

# How long the main thread is in one call that takes a time limit.
SLICE_NS = 50_000_000
FOREVER_NS = 2**63 - 1

# A status and the message that belongs to it.
Outcome = Tuple[int, str]


def on_main_thread() -> bool:
    return _thread.get_ident() == threading.main_thread().ident


def nanoseconds(seconds: Optional[float]) -> int:
    """A time limit for the library; None: the library's own limit."""
    if seconds is None:
        return FOREVER_NS
    if seconds < 0:
        raise ValueError(f"a timeout of {seconds} s is below 0")
    return min(int(seconds * 1e9), FOREVER_NS)


class _Job:
    """One call. Whoever comes second of the caller, who gives up, and the call, which
    ends, has to clean up: `finish` and `give_up` agree on that."""

    def __init__(self, body: Callable[[], int], keep: object) -> None:
        self.body = body
        self.keep = keep
        self.outcome: Outcome = (0, "")
        self.error: Optional[BaseException] = None
        self.done = _thread.allocate_lock()
        self.done.acquire()
        self._agree = _thread.allocate_lock()
        self._given_up: Optional[Callable[[int], object]] = None
        self._finished = False

    def run(self) -> bool:
        """Returns whether somebody waits for it still."""
        try:
            status = self.body()
            self.outcome = (status, last_message() if status else "")
        except BaseException as error:  # The caller's to raise.
            self.error = error
        with self._agree:
            self._finished = True
            late = self._given_up
        if late is not None and self.error is None:
            late(self.outcome[0])
        self.done.release()
        return late is None

    def give_up(self, late: Callable[[int], object]) -> None:
        """`late` gets the status, once there is one."""
        with self._agree:
            if not self._finished:
                self._given_up = late
                return
        if self.error is None:
            late(self.outcome[0])


class _Worker:
    """A thread that makes calls for the main thread, one at a time."""

    def __init__(self) -> None:
        self._job: Optional[_Job] = None
        self._go = _thread.allocate_lock()
        self._go.acquire()
        threading.Thread(target=self._serve, name="commsched-calls",
                         daemon=True).start()

    def start(self, job: _Job) -> None:
        self._job = job
        self._go.release()

    def _serve(self) -> None:
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            if job is None or not job.run():
                return  # Nobody knows this worker any more.


_worker: Optional[_Worker] = None


def _forget_worker() -> None:
    global _worker
    _worker = None


os.register_at_fork(after_in_child=_forget_worker)


def call(body: Callable[[], int], *,
         interrupt: Optional[Callable[[], None]] = None,
         late: Optional[Callable[[int], object]] = None,
         keep: object = None) -> Outcome:
    """Calls `body`, which returns a status, such that the main thread hears signals.

    If a signal handler raises meanwhile, `interrupt` is to make the call return, and
    its end is waited for. Without `interrupt` the call is left to itself, and `late`
    gets its status when it ends: `keep` is what has to live until then, such as the
    owners of handles that it was given.
    """
    if not on_main_thread():
        status = body()
        return (status, last_message() if status else "")
    global _worker
    worker, _worker = _worker or _Worker(), None  # A handler may call, too.
    job = _Job(body, keep)
    worker.start(job)
    try:
        # In slices, too: what comes just before the thread sleeps does not end its
        # sleep.
        while not job.done.acquire(True, SLICE_NS / 1e9):
            pass
    except BaseException:
        if interrupt is None:
            job.give_up(late or _ignore)
            raise
        interrupt()
        job.done.acquire()
        _worker = worker
        raise
    _worker = worker
    if job.error is not None:
        raise job.error
    return job.outcome


def join(thread: threading.Thread) -> None:
    """Waits for its end."""
    while thread.is_alive():
        thread.join(SLICE_NS / 1e9)


def _ignore(status: int) -> None:
    """Nothing was made that would have to be released."""


def in_slices(wait: Callable[[int], int], timeout_ns: int, not_yet: int,
              failed: Callable[[], int], clock: Callable[[], int]) -> int:
    """Calls `wait` with a time limit until it returns something other than `not_yet`,
    `failed` says that this is a failure, or `timeout_ns` has passed."""
    if timeout_ns <= SLICE_NS or not on_main_thread():
        return wait(timeout_ns)
    end = FOREVER_NS if timeout_ns == FOREVER_NS else clock() + timeout_ns
    while True:
        left = end - clock() if end != FOREVER_NS else SLICE_NS
        status = wait(max(0, min(left, SLICE_NS)))
        if status != not_yet or left <= SLICE_NS and end != FOREVER_NS or failed():
            return status
