"""The figures of a run that its report prints: medians over its steps."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import intervals
from .analysis import Name, RankStep, Run


@dataclasses.dataclass
class RankFigures:
    rank: int
    step_ns: float
    compute_ns: float
    communication_ns: float
    exposed_ns: float


@dataclasses.dataclass
class GroupFigures:
    """Per step and rank."""

    group: str
    label: str
    ranks: int
    launches: float
    bytes: float


@dataclasses.dataclass
class ExposedFigures:
    """Exposed time of one collective: per step, the mean of the ranks."""

    name: Name
    label: str
    bytes: int
    exposed_ns: float
    link_ns: float
    late_ns: Dict[int, float]  # By the rank that was late.


@dataclasses.dataclass
class LateFigures:
    """A rank that others waited for."""

    rank: int
    held_ns: float  # Exposed time of the others, per step, their mean.
    where: str  # The first collective of the step to which it came late,
    late_ns: float  # and by how much after the last but one.


@dataclasses.dataclass
class Summary:
    steps: int
    step_ns: float
    exposed_ns: float
    ranks: List[RankFigures]
    groups: List[GroupFigures]
    exposed: List[ExposedFigures]
    late: List[LateFigures]


def summarise(run: Run) -> Summary:
    ranks = [_rank_figures(run, trace.rank) for trace in run.traces]
    return Summary(
        steps=len(run.steps),
        step_ns=statistics.median(s.step_ns for s in run.steps),
        exposed_ns=statistics.median(s.exposed_ns for s in run.steps),
        ranks=ranks,
        groups=_group_figures(run),
        exposed=_exposed_figures(run),
        late=_late_figures(run),
    )


def _rank_figures(run: Run, rank: int) -> RankFigures:
    def middle(of: Callable[[RankStep], float]) -> float:
        return statistics.median(of(s.ranks[rank]) for s in run.steps)

    return RankFigures(
        rank,
        middle(lambda s: s.step_ns),
        middle(lambda s: intervals.length(s.compute)),
        middle(lambda s: intervals.length(s.communication)),
        middle(lambda s: s.exposed_ns),
    )


def _group_figures(run: Run) -> List[GroupFigures]:
    launches: Dict[str, List[int]] = collections.defaultdict(list)
    sizes: Dict[str, List[int]] = collections.defaultdict(list)
    members: Dict[str, int] = {}
    labels: Dict[str, str] = {}
    for trace in run.traces:
        for group, ranks in trace.groups.items():
            members[group] = len(ranks)
            labels[group] = trace.label(group)
    for step in run.steps:
        for rank_step in step.ranks.values():
            rows = collections.defaultdict(list)
            for name, _, row in rank_step.calls:
                rows[name[1]].append(row.bytes)
            for group, payloads in rows.items():
                launches[group].append(len(payloads))
                sizes[group].append(sum(payloads))
    return [
        GroupFigures(
            group,
            labels[group],
            members[group],
            statistics.median(launches[group]),
            statistics.median(sizes[group]),
        )
        for group in launches
    ]


def _exposed_figures(run: Run) -> List[ExposedFigures]:
    """Means over the steps, so that rare causes count for what they cost."""
    link: Dict[Name, int] = collections.defaultdict(int)
    late: Dict[Name, Dict[int, int]] = collections.defaultdict(
        lambda: collections.defaultdict(int)
    )
    payload: Dict[Name, int] = {}
    for step in run.steps:
        for rank_step in step.ranks.values():
            payload.update((name, row.bytes) for name, _, row in rank_step.calls)
            for cause in rank_step.causes:
                link[cause.name] += cause.link_ns
                for rank, waited in cause.late_ns.items():
                    late[cause.name][rank] += waited
    count = len(run.steps) * len(run.traces)
    figures = []
    for name, own in link.items():
        by_rank = {rank: ns / count for rank, ns in late[name].items()}
        total = own / count + sum(by_rank.values())
        figures.append(
            ExposedFigures(
                name,
                run.label(name),
                payload.get(name, 0),
                total,
                own / count,
                by_rank,
            )
        )
    return sorted(figures, key=lambda f: -f.exposed_ns)


def _late_figures(run: Run) -> List[LateFigures]:
    others = max(len(run.traces) - 1, 1)
    held: Dict[int, List[float]] = {}
    arrivals: Dict[int, Dict[Name, List[int]]] = {}
    for number, step in enumerate(run.steps):
        for rank_step in step.ranks.values():
            for cause in rank_step.causes:
                for rank, waited in cause.late_ns.items():
                    per_step = held.setdefault(rank, [0.0] * len(run.steps))
                    per_step[number] += waited / others
        for arrival in step.arrivals:
            by_name = arrivals.setdefault(arrival.rank, {})
            by_name.setdefault(arrival.name, []).append(arrival.late_ns)
    figures = []
    for rank, per_step in held.items():
        name, late = _first_late(arrivals.get(rank, {}), len(run.steps))
        figures.append(
            LateFigures(
                rank,
                statistics.median(per_step),
                run.label(name) if name else "",
                late,
            )
        )
    return sorted(figures, key=lambda f: -f.held_ns)


def _first_late(
    by_name: Dict[Name, List[int]], steps: int
) -> Tuple[Optional[Name], float]:
    """Once late, a rank is late to all that follows, until they have waited.
    Steps in which it was not the last count as 0.
    """
    if not by_name:
        return None, 0.0
    late = {
        name: statistics.median(values + [0] * max(steps - len(values), 0))
        for name, values in by_name.items()
    }
    most = max(late.values())
    return next((n, ns) for n, ns in late.items() if ns >= most / 2)


def as_json(value: Any) -> Any:
    """Returns what json.dumps() takes for dataclasses of this package."""
    return dataclasses.asdict(value)
