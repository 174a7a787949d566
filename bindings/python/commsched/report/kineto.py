"""Chrome traces of a run in the dialect that HTA and Perfetto read.

The rules are those of docs/trace_formats.md. A trace that PyTorch writes of a
CPU run has no rows of streams, so HTA finds no communication in it; here
compute is on stream 7 and communication on streams from 20 on.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, Iterable, List, Tuple

from .analysis import Run, windows
from .intervals import Interval, clip
from .model import NONE, RankTrace

_COMPUTE_STREAM = 7
_COMMUNICATION_STREAM = 20
_NAMES = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_to_all": "AllToAll",
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "send": "SendRecv",
    "recv": "SendRecv",
}
Row = Dict[str, Any]


def write_traces(run: Run, folder: pathlib.Path) -> List[str]:
    """Writes `folder`/rank_N.json for every rank; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for trace in run.traces:
        path = folder / f"rank_{trace.rank}.json"
        path.write_text(kineto(trace, run), encoding="ascii")
        paths.append(str(path))
    return paths


def kineto(trace: RankTrace, run: Run) -> str:
    """Returns the trace of one rank as JSON."""
    steps = [(trace.begin, trace.end)] if run.whole else windows(trace)
    # Without the setup before them and what follows: HTA would count it.
    seen = (steps[0][0], steps[-1][1])
    rows = [*_metadata(trace), *_steps(trace, steps), *_kernels(trace, seen)]
    head = {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "commsched report",
            "rank": trace.rank,  # HTA wants the space after the colon.
            "world_size": trace.world_size,
        },
        "displayTimeUnit": "ms",
        "traceEvents": rows,
    }
    return json.dumps(head)


def _metadata(trace: RankTrace) -> Iterable[Row]:
    host = trace.world_size + trace.rank
    for pid, name in ((trace.rank, "streams"), (host, "host")):
        yield {
            "ph": "M",
            "name": "process_name",
            "pid": pid,
            "tid": 0,
            "ts": 0,
            "args": {"name": f"rank {trace.rank} {name}"},
        }


def _us(ns: int) -> int:
    return ns // 1000


def _span(
    name: str, category: str, pid: int, tid: int, times: Tuple[int, int], args: Row
) -> Row:
    begin, end = map(_us, times)
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": begin,
        "dur": end - begin,
        "args": args,
    }


def _steps(trace: RankTrace, steps: List[Interval]) -> Iterable[Row]:
    host = trace.world_size + trace.rank
    for number, (begin, end) in enumerate(steps, 1):
        # 1 us early, so that what begins with it lies within it.
        yield _span(
            f"ProfilerStep#{number}",
            "user_annotation",
            host,
            1000,
            (begin - 1000, end - 1000),
            {},
        )


def _kernels(trace: RankTrace, seen: Interval) -> Iterable[Row]:
    correlation = 0
    for span in trace.compute:
        for begin, end in clip([(span.begin, span.end)], *seen):
            correlation += 1
            yield from _launched(
                trace,
                correlation,
                f"op:{span.name}",
                _COMPUTE_STREAM,
                (begin, begin, end),
                {},
            )
    free: List[int] = []  # When the last kernel of each stream ends.
    for row in sorted(trace.collectives, key=lambda row: row.begin):
        if row.completed == NONE or row.completed <= row.begin:
            continue
        if not seen[0] <= row.issued < seen[1]:
            continue
        lane = next((k for k, t in enumerate(free) if t <= row.begin), len(free))
        free[lane : lane + 1] = [row.completed]
        correlation += 1
        yield from _launched(
            trace,
            correlation,
            f"ncclDevKernel_{_NAMES.get(row.kind, row.kind)}"
            f"_{row.reduce_op or 'none'}_{row.dtype or 'none'}(commsched)",
            _COMMUNICATION_STREAM + lane,
            (row.issued, row.begin, row.completed),
            {
                "Collective name": row.kind,
                "Process Group Name": trace.label(row.group),
                "bytes": row.bytes,
            },
        )


def _launched(
    trace: RankTrace,
    correlation: int,
    name: str,
    stream: int,
    times: Tuple[int, int, int],
    args: Row,
) -> Iterable[Row]:
    """A kernel, the call that launched it, and the arrow between them."""
    issued, begin, end = times
    host = trace.world_size + trace.rank
    called = (min(issued, begin) - 1000, min(issued, begin))
    yield _span(
        "cudaLaunchKernel",
        "cuda_runtime",
        host,
        1,
        called,
        {"correlation": correlation},
    )
    yield _span(
        name,
        "kernel",
        trace.rank,
        stream,
        (begin, end),
        {**args, "stream": stream, "device": trace.rank, "correlation": correlation},
    )
    for phase, pid, tid, time in (
        ("s", host, 1, called[0]),
        ("f", trace.rank, stream, begin),
    ):
        arrow: Row = {
            "ph": phase,
            "id": correlation,
            "pid": pid,
            "tid": tid,
            "ts": _us(time),
            "cat": "ac2g",
            "name": "ac2g",
        }
        yield {**arrow, "bp": "e"} if phase == "f" else arrow
