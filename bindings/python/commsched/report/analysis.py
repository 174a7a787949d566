"""What a run's communication cost: steps, exposed time and what it is owed to.

Communication is exposed while no compute of its rank runs. Each exposed instant
belongs to the collective that has been in flight the longest: to a late rank
until the last member has come, and to the link from then on.
"""

from __future__ import annotations

import dataclasses
import statistics
from typing import Callable, Dict, List, Sequence, Tuple, TypeVar

from . import intervals
from .intervals import Intervals
from .matching import Key, Match, align, key_of, match
from .model import NONE, Collective, RankTrace, Span

_Item = TypeVar("_Item")
Name = Tuple[str, str, int]  # Kind, group, position among these in its step.


@dataclasses.dataclass
class Cause:
    """Exposed time of one collective in one step of one rank."""

    name: Name
    link_ns: int = 0
    late_ns: Dict[int, int] = dataclasses.field(default_factory=dict)

    @property
    def exposed_ns(self) -> int:
        return self.link_ns + sum(self.late_ns.values())


@dataclasses.dataclass
class Arrival:
    """Who was the last at a collective, and by how much."""

    name: Name
    rank: int
    late_ns: int  # After the last but one.


@dataclasses.dataclass
class RankStep:
    """One step of one rank: from the end of an update to the next one's."""

    rank: int
    begin: int
    end: int
    compute: Intervals
    communication: Intervals
    exposed: Intervals
    calls: List[Tuple[Name, Match, Collective]]
    causes: List[Cause]

    @property
    def step_ns(self) -> int:
        return self.end - self.begin

    @property
    def exposed_ns(self) -> int:
        return intervals.length(self.exposed)


@dataclasses.dataclass
class Step:
    number: int
    ranks: Dict[int, RankStep]
    arrivals: List[Arrival]

    @property
    def step_ns(self) -> float:
        return statistics.mean(r.step_ns for r in self.ranks.values())

    @property
    def exposed_ns(self) -> float:
        return statistics.mean(r.exposed_ns for r in self.ranks.values())


@dataclasses.dataclass
class Run:
    """The analysis of a job: its traces on one clock, and its steps."""

    traces: List[RankTrace]
    matches: List[Match]
    steps: List[Step]
    whole: bool  # No optimizer stepped: the one step is the whole run.

    def label(self, name: Name) -> str:
        """Names a collective as in "all_reduce 3 of dp"."""
        kind, group, position = name
        known = (t.label(group) for t in self.traces if group in t.groups)
        return f"{kind} {position} of {next(known, group)}"


def windows(trace: RankTrace) -> List[Tuple[int, int]]:
    """Returns the steps of `trace`. What precedes the first update is setup."""
    if len(trace.steps) < 2:
        return [(trace.begin, trace.end)]
    return list(zip(trace.steps, trace.steps[1:]))


def analyse(traces: Sequence[RankTrace], skip: int = 0) -> Run:
    """Analyses all ranks' traces, but not the first `skip` steps.

    Raises ValueError without traces.
    """
    if not traces:
        raise ValueError("no rank's trace is there to report on")
    aligned = align(sorted(traces, key=lambda trace: trace.rank))
    matched = match(aligned)
    whole = any(len(trace.steps) < 2 for trace in aligned)
    per_rank = {
        t.rank: [(t.begin, t.end)] if whole else windows(t) for t in aligned
    }
    count = min(len(w) for w in per_rank.values())
    skip = min(skip, count - 1)
    by_rank = {
        t.rank: _rank_steps(t, per_rank[t.rank][skip:count], matched)
        for t in aligned
    }
    steps = []
    for k in range(count - skip):
        ranks = {rank: of_rank[k] for rank, of_rank in by_rank.items()}
        steps.append(Step(skip + k + 1, ranks, _arrivals(ranks)))
    return Run(aligned, list(matched.values()), steps, whole)


def overlapping(
    items: Sequence[_Item],
    windows: Sequence[Tuple[int, int]],
    times: Callable[[_Item], Tuple[int, int]],
) -> List[List[_Item]]:
    """Returns for each of `windows`, which are in order and disjoint, the items
    that overlap it, by their begin.
    """
    waiting = sorted(items, key=lambda item: times(item)[0])
    waiting.reverse()
    under_way: List[_Item] = []
    found = []
    for begin, end in windows:
        while waiting and times(waiting[-1])[0] < end:
            under_way.append(waiting.pop())
        under_way = [item for item in under_way if times(item)[1] > begin]
        found.append(list(under_way))
    return found


def _rank_steps(
    trace: RankTrace,
    windows: Sequence[Tuple[int, int]],
    matched: Dict[Key, Match],
) -> List[RankStep]:
    def flight(row: Collective) -> Tuple[int, int]:
        until = row.completed if row.completed != NONE else trace.end
        return row.issued, max(until, row.issued + 1)

    spans = overlapping(trace.compute, windows, lambda s: (s.begin, s.end))
    rows = overlapping(trace.collectives, windows, flight)
    return [
        _rank_step(trace, window, compute, calls, matched)
        for window, compute, calls in zip(windows, spans, rows)
    ]


def _rank_step(
    trace: RankTrace,
    window: Tuple[int, int],
    spans: Sequence[Span],
    rows: Sequence[Collective],
    matched: Dict[Key, Match],
) -> RankStep:
    begin, end = window
    compute = intervals.union(
        intervals.clip(((s.begin, s.end) for s in spans), begin, end)
    )
    calls: List[Tuple[Name, Match, Collective]] = []
    positions: Dict[Tuple[str, str], int] = {}
    flights: List[Tuple[int, int, Name, Match]] = []
    for row in rows:
        until = row.completed if row.completed != NONE else trace.end
        found = matched[key_of(trace, row)]
        if row.issued >= begin:
            kind = (row.kind, row.group)
            positions[kind] = positions.get(kind, 0) + 1
            name = (*kind, positions[kind])
            calls.append((name, found, row))
        else:  # Of the step before, still in flight.
            name = (row.kind, row.group, 0)
        flights.append((max(row.begin, begin), min(until, end), name, found))
    communication = intervals.union((b, e) for b, e, _, _ in flights)
    exposed = intervals.subtract(communication, compute)
    return RankStep(
        trace.rank,
        begin,
        end,
        compute,
        communication,
        exposed,
        calls,
        _causes(trace.rank, exposed, flights),
    )


def _causes(
    rank: int, exposed: Intervals, flights: List[Tuple[int, int, Name, Match]]
) -> List[Cause]:
    causes = []
    left = exposed
    for begin, end, name, found in sorted(flights, key=lambda f: f[:2]):
        mine = intervals.clip(left, begin, end)
        if not mine:
            continue
        left = intervals.subtract(left, mine)
        arrival, last = found.last_arrival(rank)
        waiting = intervals.length(intervals.clip(mine, begin, arrival))
        cause = Cause(name, intervals.length(mine) - waiting)
        if waiting > 0:
            cause.late_ns[last] = waiting
        causes.append(cause)
    return causes


def _arrivals(ranks: Dict[int, RankStep]) -> List[Arrival]:
    arrivals = []
    for step in ranks.values():
        for name, found, row in step.calls:
            if step.rank != min(found.rows) or len(found.rows) < 2:
                continue
            if not found.complete or found.waited_for(max(found.rows)) == []:
                continue
            order = sorted((r.begin, rank) for rank, r in found.rows.items())
            late = order[-1][0] - order[-2][0]
            arrivals.append(Arrival(name, order[-1][1], late))
    return arrivals
