"""Fits what a collective costs: a latency, and bytes per second of a link."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Dict, List, Sequence, Tuple

from .matching import Match
from .model import NONE, Collective


@dataclasses.dataclass(frozen=True)
class Link:
    """Time of a collective = latency_ns + bytes on the wire / bytes_per_s."""

    latency_ns: float
    bytes_per_s: float

    def duration_ns(self, wire: float) -> float:
        return self.latency_ns + wire / self.bytes_per_s * 1e9


def wire_bytes(row: Collective, members: int) -> float:
    """Returns the bytes that a rank sends, with the best known algorithm."""
    if members < 2:
        return 0.0
    share = (members - 1) / members
    if row.kind == "all_reduce":
        return 2 * share * row.bytes
    if row.kind in ("all_gather", "reduce_scatter", "all_to_all"):
        return share * row.bytes
    return float(row.bytes)


def transfers(matches: Sequence[Match]) -> List[Tuple[float, int]]:
    """Returns (bytes on the wire, ns) of the collectives that say how long
    they took: from the last member's arrival, where no earlier one of the
    group was still under way.
    """
    samples = []
    busy: Dict[Tuple[int, str], int] = {}
    in_order = sorted(
        ((rank, found) for found in matches for rank in found.rows),
        key=lambda pair: pair[1].rows[pair[0]].issued,
    )
    for rank, found in in_order:
        row = found.rows[rank]
        if row.completed == NONE:
            continue
        before = busy.get((rank, row.group), 0)
        busy[rank, row.group] = max(before, row.completed)
        arrival, _ = found.last_arrival(rank)
        begin = max(arrival, row.begin)
        if found.complete and len(found.members) > 1 and before <= begin:
            if row.completed > begin:
                wire = wire_bytes(row, len(found.members))
                samples.append((wire, row.completed - begin))
    return samples


def fit(samples: Sequence[Tuple[float, int]]) -> Link | None:
    """Fits a line through the medians by size; None without samples.

    One size alone cannot tell latency from rate: the latency is then 0.
    """
    by_size: Dict[float, List[int]] = {}
    for wire, duration in samples:
        by_size.setdefault(wire, []).append(duration)
    points = sorted((w, statistics.median(d)) for w, d in by_size.items())
    sized = [(w, d) for w, d in points if w > 0]
    if not sized:
        return None
    largest, longest = sized[-1]
    if len(points) == 1:
        return Link(0.0, largest / longest * 1e9)
    slope, latency = _weighted_line(points)
    if slope <= 0:
        return Link(max(latency, 0.0), largest / longest * 1e9)
    return Link(max(latency, 0.0), 1e9 / slope)


def _weighted_line(points: Sequence[Tuple[float, float]]) -> Tuple[float, float]:
    """Least squares of relative errors: small collectives count as large do."""
    weights = [1 / (d * d) for _, d in points]
    total = sum(weights)
    x = sum(g * w for g, (w, _) in zip(weights, points)) / total
    y = sum(g * d for g, (_, d) in zip(weights, points)) / total
    spread = sum(g * (w - x) ** 2 for g, (w, _) in zip(weights, points))
    if spread == 0:
        return 0.0, y
    slope = sum(g * (w - x) * (d - y) for g, (w, d) in zip(weights, points)) / spread
    if y - slope * x < 0:  # Through the origin, rather than a negative latency.
        slope = sum(g * w * d for g, (w, d) in zip(weights, points)) / sum(
            g * w * w for g, (w, _) in zip(weights, points)
        )
        return slope, 0.0
    return slope, y - slope * x
