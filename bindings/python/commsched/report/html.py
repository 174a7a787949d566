"""The report as one page that needs no network: page.html with its data."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List

from .analysis import Run, Step
from .document import Document

_PAGE = pathlib.Path(__file__).with_name("page.html")
_DATA = "/*DATA*/null"
_MOST_STEPS = 40  # In the timeline: the newest.


def write_html(document: Document) -> str:
    """Returns the page."""
    data = {
        "text": document.text(),
        "report": document.to_json(),
        "timeline": _timeline(document.run),
    }
    # "</script>" in a name must not end the script.
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return _PAGE.read_text(encoding="utf-8").replace(_DATA, text)


def _timeline(run: Run) -> Dict[str, Any]:
    """Rows by rank, in microseconds after the first step shown began."""
    steps = run.steps[-_MOST_STEPS:]
    origin = min(of.begin for of in steps[0].ranks.values())
    return {
        "skipped": len(run.steps) - len(steps),
        "ranks": [_rank(run, steps, trace.rank, origin) for trace in run.traces],
    }


def _rank(run: Run, steps: List[Step], rank: int, origin: int) -> Dict[str, Any]:
    def us(time: int) -> float:
        return round((time - origin) / 1e3, 1)

    trace = next(t for t in run.traces if t.rank == rank)
    begin, end = steps[0].ranks[rank].begin, steps[-1].ranks[rank].end
    calls: List[List[Any]] = []
    exposed: List[List[Any]] = []
    for step in steps:
        mine = step.ranks[rank]
        owed = {cause.name: cause for cause in mine.causes}
        for name, found, row in mine.calls:
            arrival, last = found.last_arrival(rank)
            cause = owed.get(name)
            calls.append(
                [
                    us(row.begin),
                    us(row.completed if row.completed >= 0 else trace.end),
                    run.label(name),
                    row.bytes,
                    row.dtype,
                    cause.exposed_ns / 1e3 if cause else 0,
                    us(arrival),
                    last,
                ]
            )
        exposed += [[us(b), us(e)] for b, e in mine.exposed]
    return {
        "rank": rank,
        "compute": [
            [us(s.begin), us(s.end), s.name]
            for s in trace.compute
            if s.end > begin and s.begin < end
        ],
        "calls": calls,
        "exposed": exposed,
        "steps": [[us(s.ranks[rank].begin), s.number] for s in steps],
        "end": us(end),
    }
