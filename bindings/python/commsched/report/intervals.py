"""Sets of time, as sorted lists of disjoint (begin, end) pairs in ns."""

from __future__ import annotations

from typing import Iterable, List, Tuple

Interval = Tuple[int, int]
Intervals = List[Interval]


def union(intervals: Iterable[Interval]) -> Intervals:
    """Returns the time that at least one of `intervals` covers."""
    merged: Intervals = []
    for begin, end in sorted(i for i in intervals if i[0] < i[1]):
        if merged and begin <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def subtract(a: Intervals, b: Intervals) -> Intervals:
    """Returns the time of `a` that is not in `b`; both are sets."""
    left: Intervals = []
    first = 0
    for begin, end in a:
        while first < len(b) and b[first][1] <= begin:
            first += 1
        k = first
        while k < len(b) and b[k][0] < end:
            if b[k][0] > begin:
                left.append((begin, b[k][0]))
            begin = max(begin, b[k][1])
            k += 1
        if begin < end:
            left.append((begin, end))
    return left


def intersect(a: Intervals, b: Intervals) -> Intervals:
    """Returns the time that is in both `a` and `b`, which are sets."""
    return subtract(a, subtract(a, b))


def clip(intervals: Iterable[Interval], begin: int, end: int) -> Intervals:
    """Returns what of `intervals` lies in [begin, end), in their order."""
    return [
        (max(b, begin), min(e, end))
        for b, e in intervals
        if b < end and e > begin
    ]


def length(intervals: Iterable[Interval]) -> int:
    """Returns the sum of the lengths of `intervals`."""
    return sum(end - begin for begin, end in intervals)
