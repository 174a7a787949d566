"""What commsched's planner makes of a step: its prediction, and the bound."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Dict, List, Optional, Tuple

from commsched.plan import CostProfile, PlanOptions

from . import planner
from .analysis import RankStep, Run
from .links import Link
from .step_graph import StepGraph, step_graph

_LEAST_PIECE_BYTES = 64 * 1024
_PIECES = (1, 2, 4, 8)  # Of the largest collective, as partitions to try.
_WORTH = 0.995
_BOUNDS = {
    "bound_compute_ns": "its compute",
    "bound_link_ns": "its bytes on the link",
    "bound_cycle_ns": "the order in which results are needed",
    "bound_phases_ns": "its phases",
}


@dataclasses.dataclass
class Prediction:
    """Of one step of one rank. A step as it is has the launches of the script,
    each when the script issued it; its prediction beside what was measured says
    how far the model is to be trusted.
    """

    rank: int
    step: int
    measured_ns: int
    measured_exposed_ns: int
    as_is_ns: int
    as_is_exposed_ns: int
    step_ns: int
    exposed_ns: int
    lower_bound_ns: int
    bound_by: str
    collectives: int
    launches: int
    partition_bytes: int
    left_out: List[str]


def predict(
    run: Run, links: Dict[str, Link]
) -> Tuple[Optional[Prediction], str]:
    """Plans the median step, of the rank that computes most; or says why not."""
    if run.whole:
        return None, "no step was seen"
    number, step = _typical(run)
    if any(row.kind in ("send", "recv") for _, _, row in step.calls):
        return None, (
            "the step has sends or receives: ranks whose graphs differ are"
            " planned together, which the report does not do yet"
        )
    graph = step_graph(run, step, as_issued=False)
    if not graph.collectives:
        return None, "the step has no collectives that a graph could have"
    link = _main_link(step, links)
    if link is None:
        return None, "no collective tells how fast its link is"
    profile = CostProfile(
        link_bytes_per_s=link.bytes_per_s,
        link_latency_ns=round(link.latency_ns),
        launch_ns=_launch_ns(step),
    )
    try:
        as_is = planner.plan(
            step_graph(run, step, as_issued=True).graph,
            profile,
            PlanOptions(coalesce_bytes=0, priority="off"),
        )
        best, partition = _best_plan(graph, profile)
    except planner.Unavailable as error:
        return None, str(error)
    return _prediction(number, step, graph, as_is, best, partition), ""


def _typical(run: Run) -> Tuple[int, RankStep]:
    middle = statistics.median_low([step.step_ns for step in run.steps])
    step = next(s for s in run.steps if s.step_ns == middle)

    def computed(of_rank: RankStep) -> int:
        return sum(end - begin for begin, end in of_rank.compute)

    return step.number, max(step.ranks.values(), key=computed)


def _main_link(step: RankStep, links: Dict[str, Link]) -> Optional[Link]:
    totals: Dict[str, int] = {}
    for _, _, row in step.calls:
        totals[row.group] = totals.get(row.group, 0) + row.bytes
    known = [group for group in totals if group in links]
    return links[max(known, key=totals.__getitem__)] if known else None


def _launch_ns(step: RankStep) -> int:
    calls = [row.returned - row.issued for _, _, row in step.calls]
    return max(int(statistics.median(calls)), 1)


def _best_plan(
    graph: StepGraph, profile: CostProfile
) -> Tuple[Dict[str, Any], int]:
    plans = []
    for pieces in _PIECES:
        partition = graph.largest_bytes // pieces if pieces > 1 else 0
        if pieces > 1 and partition < _LEAST_PIECE_BYTES:
            break
        options = PlanOptions(partition_bytes=partition)
        plans.append((planner.plan(graph.graph, profile, options), partition))
    best = plans[0]
    for other in plans[1:]:  # More launches have to be worth it.
        if _step_ns(other[0]) < _WORTH * _step_ns(best[0]):
            best = other
    return best


def _step_ns(plan: Dict[str, Any]) -> int:
    return int(plan["prediction"]["step_ns"])


def _prediction(
    number: int,
    step: RankStep,
    graph: StepGraph,
    as_is: Dict[str, Any],
    best: Dict[str, Any],
    partition: int,
) -> Prediction:
    found = best["prediction"]
    return Prediction(
        rank=step.rank,
        step=number,
        measured_ns=step.step_ns,
        measured_exposed_ns=step.exposed_ns,
        as_is_ns=as_is["prediction"]["step_ns"],
        as_is_exposed_ns=as_is["prediction"]["exposed_ns"],
        step_ns=found["step_ns"],
        exposed_ns=found["exposed_ns"],
        lower_bound_ns=found["lower_bound_ns"],
        bound_by=_BOUNDS[max(_BOUNDS, key=lambda name: int(found[name]))],
        collectives=graph.collectives,
        launches=len(best["launches"]),
        partition_bytes=partition,
        left_out=graph.left_out,
    )
