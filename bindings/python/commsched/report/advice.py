"""What to do about exposed communication: merge, split, issue sooner."""

from __future__ import annotations

import collections
import dataclasses
import statistics
from typing import Dict, Iterator, List, Sequence, Tuple

from . import intervals
from .analysis import Name, RankStep, Run
from .links import Link, wire_bytes
from .matching import Match
from .model import NONE, Collective

LEAST_GAIN = 0.01  # Of the step; less is not worth a line.
_COMMON = 0.5  # Of the steps and ranks must show it.
_LEAST_SHARE = 0.1  # Of merged collectives' time must be saved.
Call = Tuple[Name, Match, Collective]


@dataclasses.dataclass
class Advice:
    action: str  # "merge", "split" or "sooner".
    what: List[Name]
    gain_ns: float  # At most, per step.
    text: str


def advise(run: Run, links: Dict[str, Link]) -> List[Advice]:
    """Returns advice on the collectives of `run`, the best first.

    `links` says by group what a collective costs; without one a group gets no
    advice to merge or split.
    """
    step_ns = statistics.median(s.step_ns for s in run.steps)
    found: Dict[Tuple[str, Tuple[Name, ...]], List[float]]
    found = collections.defaultdict(list)
    bytes_of: Dict[Name, int] = {}
    for step in run.steps:
        for rank_step in step.ranks.values():
            bytes_of.update((n, row.bytes) for n, _, row in rank_step.calls)
            for action, names, gain in _of_step(rank_step, links):
                found[action, names].append(gain)
    seen = len(run.steps) * len(run.traces)
    advice = []
    for (action, names), gains in found.items():
        gain = statistics.median(gains)
        if len(gains) >= _COMMON * seen and gain >= LEAST_GAIN * step_ns:
            text = _text(run, action, names, bytes_of, gain)
            advice.append(Advice(action, list(names), gain, text))
    return sorted(advice, key=lambda a: -a.gain_ns)


def _of_step(
    step: RankStep, links: Dict[str, Link]
) -> Iterator[Tuple[str, Tuple[Name, ...], float]]:
    for calls in _back_to_back(step, links):
        latency = links[calls[0][2].group].latency_ns
        exposed = sum(_exposed(step, name) for name, _, _ in calls)
        gain = min((len(calls) - 1) * latency, exposed)
        yield "merge", tuple(name for name, _, _ in calls), gain
    for call in step.calls:
        link = links.get(call[2].group)
        gain = _gain_of_split(step, call, link) if link is not None else 0
        if gain > 0:
            yield "split", (call[0],), gain
    waiting = [c for c in step.calls if NONE != c[2].ready < c[2].issued]
    if waiting:
        yield "sooner", tuple(name for name, _, _ in waiting), _hidden(step, waiting)


def _exposed(step: RankStep, name: Name) -> int:
    """Link time that `name` was exposed for: a late rank is no one's gain."""
    return sum(c.link_ns for c in step.causes if c.name == name)


def _hidden(step: RankStep, calls: Sequence[Call]) -> int:
    """Exposed time of `calls` that their ranks' compute could have covered."""
    gain = 0
    for name, _, row in calls:
        ready = max(row.ready, step.begin)
        after = intervals.clip(step.compute, ready, row.issued)
        gain += min(intervals.length(after), _exposed(step, name))
    first = max(min(row.ready for _, _, row in calls), step.begin)
    last = max(row.issued for _, _, row in calls)
    return min(gain, intervals.length(intervals.clip(step.compute, first, last)))


def _back_to_back(
    step: RankStep, links: Dict[str, Link]
) -> Iterator[List[Call]]:
    """Yields runs of collectives with no compute to speak of between them, of
    whose time latencies are a part worth saving.
    """
    run: List[Call] = []
    for call in step.calls:
        link = links.get(call[2].group)
        if run and not (link and _joins(step, run[-1], call, link)):
            yield from _worth_merging(run, links)
            run = []
        if link is not None:
            run.append(call)
    yield from _worth_merging(run, links)


def _worth_merging(
    run: List[Call], links: Dict[str, Link]
) -> Iterator[List[Call]]:
    if len(run) < 2:
        return
    link = links[run[0][2].group]
    took = sum(
        link.duration_ns(wire_bytes(row, len(found.members)))
        for _, found, row in run
    )
    if (len(run) - 1) * link.latency_ns >= _LEAST_SHARE * took:
        yield run


def _joins(step: RankStep, before: Call, call: Call, link: Link) -> bool:
    a, b = before[2], call[2]
    if (a.kind, a.group, a.dtype, a.reduce_op, a.peer) != (
        b.kind,
        b.group,
        b.dtype,
        b.reduce_op,
        b.peer,
    ):
        return False
    if a.kind in ("send", "recv", "barrier"):
        return False
    between = intervals.clip(step.compute, a.returned, b.issued)
    return intervals.length(between) < link.latency_ns


def _gain_of_split(step: RankStep, call: Call, link: Link) -> float:
    """Halves, the first issued in the middle of the compute that made it."""
    name, found, row = call
    transfer = wire_bytes(row, len(found.members)) / link.bytes_per_s * 1e9
    if transfer < 4 * link.latency_ns or row.completed == NONE:
        return 0.0
    tail = intervals.intersect(step.exposed, [(row.issued, row.completed)])
    if not tail or tail[-1][1] < min(row.completed, step.end):
        return 0.0  # Compute still ran when it was complete.
    earlier = [c[2].issued for c in step.calls if c[2].issued < row.issued]
    since = max(earlier, default=step.begin)
    made = intervals.length(intervals.clip(step.compute, since, row.issued))
    half = min(transfer / 2, made / 2, _exposed(step, name))
    return half - link.latency_ns


def _text(
    run: Run,
    action: str,
    names: Tuple[Name, ...],
    bytes_of: Dict[Name, int],
    gain: float,
) -> str:
    first = run.label(names[0])
    up_to = f"up to {gain / 1e6:.2f} ms per step"
    total = sum(bytes_of.get(name, 0) for name in names)
    if action == "merge":
        return (
            f"merge {len(names)} collectives, {first} to {names[-1][2]} "
            f"({size(total)} in all): {up_to}"
        )
    if action == "split":
        return f"split {first} ({size(total)}), or make it smaller: {up_to}"
    if len(names) == 1:
        return f"issue {first} ({size(total)}) once its data is ready: {up_to}"
    return (
        f"issue {len(names)} collectives ({size(total)} in all; the first is"
        f" {first}), each once its data is ready: {up_to}"
    )


def size(count: float) -> str:
    """Returns `count` bytes as people write it: "25.0 MB"."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB"
