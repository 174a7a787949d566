"""Times on a CUDA device, from a trace of PyTorch's profiler (Kineto).

On a device a call returns at once, so that hooks do not see how long it takes.
The profiler does: a collective is in flight while its kernel runs, and compute
is every other kernel and copy. The kernel of a collective is the one that was
launched within its call.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any, Dict, List, Mapping, Optional, Tuple

from .model import Collective, RankTrace, Span

_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_HOST_CALLS = ("cuda_runtime", "cuda_driver")
Row = Mapping[str, Any]


def with_device_rows(
    trace: RankTrace, kineto: Mapping[str, Any], to_monotonic_ns: int
) -> RankTrace:
    """Returns `trace` with what `kineto` saw on streams in place of what
    threads computed and waited for. `to_monotonic_ns` is what the monotonic
    clock shows less the time since 1970. Without rows of streams it is `trace`.
    """
    base = int(kineto.get("baseTimeNanoseconds", 0)) + to_monotonic_ns
    rows: List[Row] = [r for r in kineto["traceEvents"] if r.get("ph") == "X"]
    launched = {
        r["args"]["correlation"]: _time(r, base)[0]
        for r in rows
        if r.get("cat") in _HOST_CALLS and "correlation" in r.get("args", {})
    }
    kernels = [r for r in rows if r.get("cat") in _ON_DEVICE]
    if not kernels:
        return trace
    calls = _Calls(trace.collectives)
    compute = []
    unknown = 0
    for row in kernels:
        begin, end = _time(row, base)
        stream = int(row["args"].get("stream", row.get("tid", 0)))
        if not _communicates(row):
            compute.append(Span(str(row["name"]), -1, begin, end, stream))
        elif not calls.take(launched.get(row["args"].get("correlation")), begin, end, stream):
            unknown += 1
    notes = list(trace.notes)
    if unknown:
        notes.append(f"{unknown} NCCL kernels belong to no call that was seen")
    return dataclasses.replace(
        trace,
        collectives=calls.rows,
        compute=sorted(compute, key=lambda span: span.begin),
        waits=[],
        notes=notes,
    )


def _communicates(row: Row) -> bool:
    return row["cat"] == "kernel" and str(row["name"]).startswith("nccl")


def _time(row: Row, base: int) -> Tuple[int, int]:
    begin = base + round(float(row["ts"]) * 1000)
    return begin, begin + round(float(row.get("dur", 0)) * 1000)


class _Calls:
    """The rows of a trace, by the time of their calls."""

    def __init__(self, rows: List[Collective]) -> None:
        self.rows = list(rows)
        self._order = sorted(range(len(rows)), key=lambda k: rows[k].issued)
        self._issued = [rows[k].issued for k in self._order]
        self._taken: Dict[int, bool] = {}

    def take(
        self, launched: Optional[int], begin: int, end: int, stream: int
    ) -> bool:
        """Gives a kernel to the call within which it was launched; if it was
        launched after several that were coalesced, to all of them.
        """
        if launched is None:
            return False
        last = bisect.bisect_right(self._issued, launched) - 1
        if last < 0:
            return False
        k = self._order[last]
        if launched <= self.rows[k].returned or self._taken.get(k):
            self._set(k, begin, end, stream)
            return True
        group = self.rows[k].group
        while last >= 0:
            k = self._order[last]
            if self.rows[k].group == group:
                if self._taken.get(k):
                    break
                self._set(k, begin, end, stream)
            last -= 1
        return True

    def _set(self, k: int, begin: int, end: int, stream: int) -> None:
        row = self.rows[k]
        if self._taken.get(k):  # One call, several kernels.
            begin, end = min(begin, row.started), max(end, row.completed)
        self._taken[k] = True
        self.rows[k] = row._replace(started=begin, completed=end, stream=stream)
