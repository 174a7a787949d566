"""Makes a graph (docs/graph_json.md) of one step that a rank ran.

Compute is cut where the rank issued a collective, where it had waited for one,
and where a collective's data was ready. A collective depends on the compute
before it was issued (or on that which made its data, where that is known), and
the compute after its wait depends on it.
"""

from __future__ import annotations

import bisect
import dataclasses
from typing import Any, Dict, List, Sequence, Set, Tuple

from . import intervals
from .analysis import RankStep, Run
from .model import NONE, Collective, RankTrace

_DTYPES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i8": 1, "i32": 4, "i64": 8}
# A graph has no such collectives, or not of one rank alone.
_LEFT_OUT = ("gather", "scatter", "send", "recv")


@dataclasses.dataclass
class StepGraph:
    """A step as JSON, and what of it has no place in a graph."""

    rank: int
    graph: Dict[str, Any]
    collectives: int
    largest_bytes: int
    left_out: List[str]


def step_graph(run: Run, step: RankStep, as_issued: bool) -> StepGraph:
    """`as_issued`: no collective is due before the rank issued it."""
    trace = next(t for t in run.traces if t.rank == step.rank)
    rows = [row for _, _, row in step.calls if row.kind not in _LEFT_OUT]
    rows = [row for row in rows if len(trace.groups[row.group]) > 1]
    kinds = {row.kind for _, _, row in step.calls} & set(_LEFT_OUT)
    due = [_due(row, step, as_issued) for row in rows]
    waits = _waits(trace, step, rows)
    cuts = sorted({step.begin, *due, *(end for end, _ in waits)})
    segments = list(zip(cuts, [*cuts[1:], step.end]))

    def after(time: int) -> int:
        """The segment that begins at `time`, which is a cut."""
        return bisect.bisect_right(cuts, time) - 1

    reads: Dict[int, Set[int]] = {}
    for end, numbers in waits:
        reads.setdefault(after(end), set()).update(numbers)
    made: Dict[int, List[int]] = {}
    for number, time in enumerate(due):
        made.setdefault(max(after(time) - 1, 0), []).append(number)
    ops: List[Dict[str, Any]] = []
    for k, (begin, end) in enumerate(segments):
        cost = intervals.length(intervals.clip(step.compute, begin, end))
        ops.append(_compute(k, cost, reads.get(k, set()), made.get(k, []), rows))
        ops += [_collective(n, rows[n]) for n in made.get(k, [])]
    used = {row.group for row in rows}
    graph = {
        "format": "commsched-graph/1",
        "groups": [
            {"name": group, "size": len(trace.groups[group])}
            for group in trace.groups
            if group in used
        ],
        "buffers": [b for n, row in enumerate(rows) for b in _buffers(n, row, trace)],
        "ops": ops,
    }
    largest = max((row.bytes for row in rows), default=0)
    return StepGraph(step.rank, graph, len(rows), largest, sorted(kinds))


def _due(row: Collective, step: RankStep, as_issued: bool) -> int:
    if as_issued or row.ready == NONE or row.ready > row.issued:
        return row.issued
    return max(row.ready, step.begin)


def _waits(
    trace: RankTrace, step: RankStep, rows: Sequence[Collective]
) -> List[Tuple[int, List[int]]]:
    """Returns the ends of waits, and for which of `rows` each was."""
    number = {row: n for n, row in enumerate(rows)}
    first: Dict[int, int] = {}
    for wait in trace.waits:
        if not step.begin <= wait.end <= step.end:
            continue
        for k in wait.collectives:
            n = number.get(trace.collectives[k])
            if n is not None:
                first[n] = min(first.get(n, wait.end), wait.end)
    by_end: Dict[int, List[int]] = {}
    for n, end in first.items():
        by_end.setdefault(max(end, rows[n].issued), []).append(n)
    return sorted(by_end.items())


def _size(row: Collective, trace: RankTrace) -> Tuple[str, int]:
    """Returns type and elements, a multiple of the group's size."""
    dtype = row.dtype if row.dtype in _DTYPES else "u8"
    members = len(trace.groups[row.group])
    count = max(row.bytes // _DTYPES.get(dtype, 1), 1)
    return dtype, -(-count // members) * members


def _buffers(n: int, row: Collective, trace: RankTrace) -> List[Dict[str, Any]]:
    if row.kind == "barrier":
        return []
    dtype, count = _size(row, trace)
    names = [f"b{n}", f"b{n} out"] if row.kind == "all_to_all" else [f"b{n}"]
    return [
        {"name": name, "dtype": dtype, "ownership": "bound", "count": count}
        for name in names
    ]


def _compute(
    k: int,
    cost_ns: int,
    reads: Set[int],
    made: Sequence[int],
    rows: Sequence[Collective],
) -> Dict[str, Any]:
    accesses = []
    after = []
    for n in sorted(reads):
        if rows[n].kind == "barrier":
            after.append(f"c{n} barrier")
            continue
        name = f"b{n} out" if rows[n].kind == "all_to_all" else f"b{n}"
        accesses.append({"buffer": name, "mode": "read"})
    for n in made:
        if rows[n].kind != "barrier":
            accesses.append({"buffer": f"b{n}", "mode": "write"})
    op: Dict[str, Any] = {"name": f"compute {k}", "kind": "compute", "accesses": accesses}
    if cost_ns:
        op["cost_ns"] = cost_ns
    if after:
        op["after"] = after
    return op


def _collective(n: int, row: Collective) -> Dict[str, Any]:
    whole = {"buffer": f"b{n}"}
    shard = {"buffer": f"b{n}", "region": "shard", "group": row.group}
    op: Dict[str, Any] = {
        "name": f"c{n} {row.kind}",
        "kind": row.kind,
        "group": row.group,
    }
    if row.kind == "barrier":
        return op
    op["input"] = shard if row.kind == "all_gather" else whole
    if row.kind == "all_to_all":
        op["output"] = {"buffer": f"b{n} out"}
    else:
        op["output"] = shard if row.kind == "reduce_scatter" else whole
    if row.kind in ("all_reduce", "reduce_scatter", "reduce"):
        known = ("sum", "avg", "min", "max", "prod")
        op["reduce_op"] = row.reduce_op if row.reduce_op in known else "sum"
    if row.kind in ("broadcast", "reduce"):
        op["root"] = max(row.peer, 0)
    return op
