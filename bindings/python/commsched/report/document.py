"""The whole report: what text, JSON and HTML are made from."""

from __future__ import annotations

import dataclasses
import statistics
from typing import Any, Dict, List, Optional, Sequence

from .advice import Advice, advise
from .analysis import Run, analyse
from .links import Link, fit, transfers
from .matching import Match
from .model import NONE, RankTrace
from .prediction import Prediction, predict
from .summary import Summary, as_json, summarise
from .text import write_text

FORMAT = "commsched-report/1"


@dataclasses.dataclass
class Document:
    run: Run
    summary: Summary
    links: Dict[str, Link]
    advice: List[Advice]
    prediction: Optional[Prediction]
    unpredicted: str  # Why there is no prediction.
    notes: List[str]

    def text(self) -> str:
        return write_text(self)

    def to_json(self) -> Dict[str, Any]:
        """What docs/report.md describes as commsched-report/1."""
        return {
            "format": FORMAT,
            "ranks": len(self.run.traces),
            "summary": as_json(self.summary),
            "links": {
                group: {
                    "label": _label(self.run, group),
                    "latency_ns": link.latency_ns,
                    "bytes_per_s": link.bytes_per_s,
                }
                for group, link in self.links.items()
            },
            "advice": [as_json(advice) for advice in self.advice],
            "prediction": as_json(self.prediction) if self.prediction else None,
            "steps": [
                {
                    "number": step.number,
                    "step_ns": step.step_ns,
                    "exposed_ns": step.exposed_ns,
                    "ranks": {
                        str(rank): {
                            "step_ns": of_rank.step_ns,
                            "exposed_ns": of_rank.exposed_ns,
                        }
                        for rank, of_rank in step.ranks.items()
                    },
                }
                for step in self.run.steps
            ],
            "notes": self.notes,
        }


def make_document(
    traces: Sequence[RankTrace], missing: Sequence[int], skip: int
) -> Document:
    """Analyses `traces`; `missing` are ranks that none came of."""
    run = analyse(traces, skip)
    links = _links(run)
    prediction, unpredicted = predict(run, links)
    return Document(
        run,
        summarise(run),
        links,
        advise(run, links),
        prediction,
        unpredicted,
        _notes(run, missing),
    )


def _links(run: Run) -> Dict[str, Link]:
    links = {}
    for group in sorted({g for trace in run.traces for g in trace.groups}):
        ours = [
            found
            for found in run.matches
            if any(row.group == group for row in found.rows.values())
        ]
        link = fit(transfers(ours))
        if link is not None:
            links[group] = link
    return links


def _notes(run: Run, missing: Sequence[int]) -> List[str]:
    notes = []
    if missing:
        ranks = ", ".join(map(str, missing))
        notes.append(f"no trace came of rank {ranks}: what it did is not known")
    for trace in run.traces:
        if trace.failure:
            notes.append(f"rank {trace.rank} ended with {trace.failure}")
        notes += [f"rank {trace.rank}: {note}" for note in trace.notes]
    notes += _unfinished(run, missing)
    if run.whole:
        notes.append(
            "fewer than two updates of an optimizer were seen:"
            " the whole run is taken for one step"
        )
    lengths = [step.step_ns for step in run.steps]
    if len(lengths) >= 4:
        low, _, high = statistics.quantiles(lengths, n=4)
        if high > 1.3 * low:
            notes.append(
                f"steps took {low / 1e6:.1f} to {high / 1e6:.1f} ms"
                " (quartiles): the machine was busy, or steps differ"
            )
    return notes


def _unfinished(run: Run, missing: Sequence[int]) -> List[str]:
    """Names the first collective of each group that some rank waits in."""
    first: Dict[str, Match] = {}
    for found in run.matches:
        for row in found.rows.values():
            if row.completed == NONE:
                first.setdefault(row.group, found)
    notes = []
    for found in first.values():
        rank, row = next(iter(sorted(found.rows.items())))
        absent = [m for m in found.members if m not in found.rows]
        text = f"{row.kind}, call {row.sequence} of {_label(run, row.group)},"
        text += f" did not complete on rank {rank}"
        known = [m for m in absent if m not in missing]
        if known:
            text += f"; rank {', '.join(map(str, known))} never came to it"
        notes.append(text)
    return notes


def _label(run: Run, group: str) -> str:
    known = (t.label(group) for t in run.traces if group in t.groups)
    return next(known, group)
