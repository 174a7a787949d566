"""Collects what hooks see while a script runs, and makes a trace of it."""

from __future__ import annotations

import bisect
import collections
import os
import socket
import threading
import time
from typing import Deque, Dict, Iterable, List, Sequence, Tuple

from . import intervals
from .model import NONE, Collective, RankTrace, Span, Wait

# What is recorded of a long run: its newest calls.
MAX_CALLS = 200_000
Pair = Tuple[int, int]


class Call:
    """A collective under way: filled in as hooks learn of it."""

    __slots__ = (
        "kind",
        "group",
        "sequence",
        "bytes",
        "dtype",
        "thread",
        "issued",
        "returned",
        "completed",
        "ready",
        "blocking",
        "peer",
        "tag",
        "reduce_op",
        "pointers",
        "graph_task",
        "told",
    )

    def __init__(self, kind: str, group: str, issued: int) -> None:
        self.kind = kind
        self.group = group
        self.sequence = 0
        self.bytes = 0
        self.dtype = ""
        self.thread = threading.get_native_id()
        self.issued = issued
        self.returned = issued
        self.completed = NONE
        self.ready = NONE
        self.blocking = False
        self.peer = NONE
        self.tag = 0
        self.reduce_op = ""
        self.pointers: Tuple[Tuple[int, int], ...] = ()
        self.graph_task = -1
        self.told = False  # Somebody will say when it completes.

    def complete(self, now: int) -> None:
        """The earliest sign of its completion is the best one."""
        if self.completed == NONE or now < self.completed:
            self.completed = now

    def row(self) -> Collective:
        return Collective(
            self.kind,
            self.group,
            self.sequence,
            self.bytes,
            self.dtype,
            self.thread,
            self.issued,
            self.returned,
            self.completed,
            ready=self.ready,
            blocking=self.blocking,
            peer=self.peer,
            tag=self.tag,
            reduce_op=self.reduce_op,
        )


class PendingWait:
    """A wait whose end is that of the thread or of the last collective."""

    __slots__ = ("thread", "begin", "end", "calls", "until_complete")

    def __init__(
        self, begin: int, end: int, calls: Sequence[Call], until_complete: bool
    ) -> None:
        self.thread = threading.get_native_id()
        self.begin = begin
        self.end = end
        self.calls = calls
        self.until_complete = until_complete


def now() -> int:
    return time.monotonic_ns()


def host_name() -> str:
    """Names the machine and its boot: processes of one have one clock."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
    except OSError:
        boot = "unknown boot"
    return f"{socket.gethostname()} ({boot})"


class Recorder:
    """Everything that one process records. Thread-safe where hooks are."""

    def __init__(self) -> None:
        self.main_thread = threading.get_native_id()
        self.begin = now()
        self.calls: Deque[Call] = collections.deque(maxlen=MAX_CALLS)
        self.waits: Deque[PendingWait] = collections.deque(maxlen=MAX_CALLS)
        self.phases: Deque[Span] = collections.deque(maxlen=MAX_CALLS)
        self.steps: List[int] = []
        self.groups: Dict[str, Tuple[int, ...]] = {}
        self.labels: Dict[str, str] = {}
        self.threads = {self.main_thread: "main"}
        self.notes: List[str] = []
        self._sequences: Dict[Tuple[str, int, int], int] = {}
        self._dropped = 0
        self._lock = threading.Lock()

    def add(self, call: Call) -> None:
        """Records `call`, whose kind, group, peer and tag are set."""
        pair = call.kind in ("send", "recv")
        direction = 0 if not pair else 1 if call.kind == "send" else 2
        key = (f"{call.group}/{call.tag}", direction, call.peer if pair else NONE)
        with self._lock:
            call.sequence = self._sequences.get(key, 0)
            self._sequences[key] = call.sequence + 1
            self._dropped += len(self.calls) == MAX_CALLS
            self.calls.append(call)
        if call.thread not in self.threads:
            self.threads[call.thread] = threading.current_thread().name

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def finish(self, rank: int, world_size: int, failure: str = "") -> RankTrace:
        """Makes the trace; the recorder is not used after it."""
        end = now()
        calls = list(self.calls)
        if self._dropped:
            self.note(f"the oldest {self._dropped} collectives were dropped")
        self._mend_unseen(calls, bool(failure))
        waits = self._waits(calls)
        return RankTrace(
            rank,
            world_size,
            host_name(),
            len(os.sched_getaffinity(0)),
            begin=self.begin,
            end=end,
            groups=self.groups,
            labels=self.labels,
            threads=self.threads,
            collectives=[call.row() for call in calls],
            waits=waits,
            compute=self._compute(waits, end),
            phases=list(self.phases),
            steps=self.steps,
            notes=self.notes,
            failure=failure,
        )

    def _mend_unseen(self, calls: Iterable[Call], failed: bool) -> None:
        """A call that nobody could tell the completion of is left out of
        what is exposed: it counts as complete when the caller had it back.
        """
        unseen = 0
        for call in calls:
            if call.completed == NONE and not (failed and call.told):
                call.completed = call.returned
                unseen += 1
        if unseen:
            self.note(
                f"of {unseen} collectives nothing says when they completed:"
                " they are not counted as exposed"
            )

    def _waits(self, calls: Sequence[Call]) -> List[Wait]:
        index = {id(call): k for k, call in enumerate(calls)}
        waits = []
        for wait in self.waits:
            ids = tuple(index[id(c)] for c in wait.calls if id(c) in index)
            end = wait.end
            if wait.until_complete:
                ends = [calls[k].completed for k in ids]
                end = min(end, max(ends, default=wait.begin))
            if end > wait.begin:
                waits.append(Wait(wait.thread, wait.begin, end, ids))
        return waits

    def _compute(self, waits: Sequence[Wait], end: int) -> List[Span]:
        """Compute is a thread's time outside of waits: the main thread's all
        along, that of others in their phases.
        """
        spans: List[Span] = []
        for thread in {s.thread for s in self.phases} | {self.main_thread}:
            idle = intervals.union(
                (w.begin, w.end) for w in waits if w.thread == thread
            )
            named = [s for s in self.phases if s.thread == thread]
            named.sort(key=lambda span: span.begin)
            for span in named:
                busy = intervals.subtract([(span.begin, span.end)], idle)
                spans += [Span(span.name, thread, b, e) for b, e in busy]
            if thread == self.main_thread:
                taken = intervals.union([*idle, *((s.begin, s.end) for s in named)])
                rest = intervals.subtract([(self.begin, end)], taken)
                begins = [span.begin for span in named]
                spans += [
                    Span(_phase_of(b, named, begins), thread, b, e)
                    for b, e in rest
                ]
        return sorted(spans, key=lambda s: s.begin)


def _phase_of(time: int, phases: Sequence[Span], begins: Sequence[int]) -> str:
    """What precedes a backward pass is the forward pass, or was meant for it."""
    following = bisect.bisect_left(begins, time)
    backward = following < len(phases) and phases[following].name == "backward"
    return "forward" if backward else "other"
