"""Finds the same collective in the traces of its members, and their clocks."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Dict, List, Sequence, Tuple

from .model import NONE, Collective, RankTrace

# Nobody has the result before everybody has come.
_ALL_WAIT_FOR_ALL = {
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
}
Key = Tuple[str, int, int, int]  # Group, sequence; sender, receiver of a pair.


@dataclasses.dataclass
class Match:
    """The rows that ranks have of one collective, by rank of the job."""

    members: Tuple[int, ...]
    rows: Dict[int, Collective] = dataclasses.field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Every member's row is there, so that arrivals can be compared."""
        return len(self.rows) == len(self.members)

    def waited_for(self, rank: int) -> List[int]:
        """Returns the members without which `rank` cannot complete."""
        row = self.rows[rank]
        if row.kind in _ALL_WAIT_FOR_ALL:
            return [m for m in self.members if m != rank]
        root = self.members[row.peer] if row.peer >= 0 else rank
        if row.kind in ("reduce", "gather"):
            return [m for m in self.members if m != rank] if rank == root else []
        return [] if rank == root else [root]

    def last_arrival(self, rank: int) -> Tuple[int, int]:
        """Returns when, and through whom, `rank` could begin to be served."""
        others = [m for m in self.waited_for(rank) if m in self.rows]
        arrivals = [(self.rows[m].begin, m) for m in [rank, *others]]
        return max(arrivals)


def key_of(trace: RankTrace, row: Collective) -> Key:
    """Returns what identifies `row` on all ranks."""
    if row.kind not in ("send", "recv"):
        return (row.group, row.sequence, NONE, NONE)
    peer = trace.groups[row.group][row.peer] if row.peer >= 0 else NONE
    pair = (trace.rank, peer) if row.kind == "send" else (peer, trace.rank)
    return (f"{row.group}/{row.tag}", row.sequence, *pair)


def match(traces: Sequence[RankTrace]) -> Dict[Key, Match]:
    """Joins the rows of one collective on all ranks."""
    found: Dict[Key, Match] = {}
    for trace in traces:
        for row in trace.collectives:
            key = key_of(trace, row)
            members = trace.groups[row.group] if key[2] == NONE else key[2:]
            found.setdefault(key, Match(tuple(members))).rows[trace.rank] = row
    return found


def align(traces: Sequence[RankTrace]) -> List[RankTrace]:
    """Puts all traces on the clock of the first.

    Ranks of one host share a clock. Between hosts, the ends of collectives that
    all members complete together are compared: the median of their differences
    is the offset, kept within what causality allows (nobody completes before
    the last has come).
    """
    offsets = {traces[0].rank: 0}
    by_rank = {trace.rank: trace for trace in traces}
    hosts = {traces[0].host: 0}
    matches = list(match(traces).values())
    waiting = [t for t in traces if t.rank not in offsets]
    while waiting:
        left = []
        for trace in waiting:
            if trace.host and trace.host in hosts:
                offsets[trace.rank] = hosts[trace.host]
                continue
            offset = _offset_to_known(trace.rank, offsets, matches)
            if offset is None:
                left.append(trace)
                continue
            offsets[trace.rank] = offset
            hosts.setdefault(trace.host, offset)
        if len(left) == len(waiting):  # Nothing in common with the rest.
            offsets.update({trace.rank: 0 for trace in left})
            left = []
        waiting = left
    return [by_rank[t.rank].shifted(offsets[t.rank]) for t in traces]


def _offset_to_known(
    rank: int, offsets: Dict[int, int], matches: List[Match]
) -> int | None:
    differences: List[int] = []
    least, most = -(1 << 62), 1 << 62
    for found in matches:
        mine = found.rows.get(rank)
        if mine is None or mine.completed == NONE:
            continue
        if mine.kind not in _ALL_WAIT_FOR_ALL:
            continue
        for other, row in found.rows.items():
            if other == rank or other not in offsets or row.completed == NONE:
                continue
            known = offsets[other]
            differences.append(row.completed + known - mine.completed)
            least = max(least, row.issued + known - mine.completed)
            most = min(most, row.completed + known - mine.issued)
    if not differences:
        return None
    middle = int(statistics.median(differences))
    return min(max(middle, least), most) if least <= most else middle
