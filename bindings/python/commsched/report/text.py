"""The report as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, List, Sequence

from .advice import size

if TYPE_CHECKING:
    from .document import Document

_MOST_ROWS = 10


def ms(ns: float) -> str:
    return f"{ns / 1e6:.2f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "0 %"


def table(rows: Sequence[Sequence[str]]) -> List[str]:
    """Lays out `rows`, the first of which is the head: text left, rest right."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def write_text(document: Document) -> str:
    lines = [
        *_head(document),
        *_section("per rank, ms per step (median)", _ranks(document)),
        *_section(
            "exposed collectives, ms per step (mean of ranks and steps)",
            _exposed(document),
        ),
        *_section("who was late", _late(document)),
        *_section("launches per step and rank", _groups(document)),
        *_section("what to do", _advice(document)),
        *_section("what a plan would gain", _prediction(document)),
        *_section("notes", [f"- {note}" for note in document.notes]),
    ]
    return "\n".join(lines)


def _section(title: str, body: Iterable[str]) -> List[str]:
    lines = list(body)
    return ["", title, *(f"  {line}" for line in lines)] if lines else []


def _head(document: Document) -> List[str]:
    summary = document.summary
    what = "the whole run" if document.run.whole else f"{summary.steps} steps"
    return [
        f"commsched report: {len(document.run.traces)} ranks, {what}",
        f"a step takes {ms(summary.step_ns)} ms; communication is exposed for"
        f" {ms(summary.exposed_ns)} ms"
        f" ({percent(summary.exposed_ns, summary.step_ns)})",
    ]


def _ranks(document: Document) -> List[str]:
    rows = [["rank", "step", "compute", "communication", "exposed"]]
    for rank in document.summary.ranks:
        times = (
            rank.step_ns,
            rank.compute_ns,
            rank.communication_ns,
            rank.exposed_ns,
        )
        rows.append([str(rank.rank), *map(ms, times)])
    return table(rows)


def _exposed(document: Document) -> List[str]:
    rows = [["collective", "size", "exposed", "link", "late rank"]]
    shown = [f for f in document.summary.exposed if f.exposed_ns >= 5e3]
    for figures in shown[:_MOST_ROWS]:
        late = sorted(figures.late_ns.items(), key=lambda item: -item[1])
        rows.append(
            [
                figures.label,
                size(figures.bytes),
                ms(figures.exposed_ns),
                ms(figures.link_ns),
                ", ".join(f"{ms(ns)} (rank {r})" for r, ns in late[:3]) or "-",
            ]
        )
    lines = table(rows) if shown else []
    if len(shown) > _MOST_ROWS:
        rest = sum(f.exposed_ns for f in shown[_MOST_ROWS:])
        more = len(shown) - _MOST_ROWS
        lines.append(f"and {more} more, {ms(rest)} ms together")
    return lines


def _late(document: Document) -> List[str]:
    least = 0.01 * document.summary.step_ns
    return [
        f"rank {late.rank} held the others up for {ms(late.held_ns)} ms per"
        f" step; to {late.where} it came {ms(late.late_ns)} ms after the last"
        " of them"
        for late in document.summary.late
        if late.held_ns >= least
    ]


def _groups(document: Document) -> List[str]:
    rows = [["group", "ranks", "launches", "bytes", "latency", "rate"]]
    for figures in document.summary.groups:
        link = document.links.get(figures.group)
        rows.append(
            [
                figures.label,
                str(figures.ranks),
                f"{figures.launches:g}",
                size(figures.bytes),
                f"{link.latency_ns / 1e3:.0f} us" if link else "-",
                f"{size(link.bytes_per_s)}/s" if link else "-",
            ]
        )
    return table(rows) if len(rows) > 1 else []


def _advice(document: Document) -> List[str]:
    shown = document.advice[:_MOST_ROWS]
    return [f"{n}. {a.text}" for n, a in enumerate(shown, 1)]


def _prediction(document: Document) -> List[str]:
    found = document.prediction
    if found is None:
        return [f"not predicted: {document.unpredicted}"]
    gain = found.as_is_ns - found.step_ns
    if gain >= 0.005 * found.as_is_ns:
        verdict = f"{ms(gain)} ms less ({percent(gain, found.as_is_ns)})"
    else:
        verdict = "nothing is gained"
    rows = [
        ["", "step", "exposed", "launches"],
        ["measured", ms(found.measured_ns), ms(found.measured_exposed_ns), ""],
        [
            "predicted as it is",
            ms(found.as_is_ns),
            ms(found.as_is_exposed_ns),
            str(found.collectives),
        ],
        [
            "predicted of a plan",
            ms(found.step_ns),
            ms(found.exposed_ns),
            str(found.launches),
        ],
        ["no plan is faster", ms(found.lower_bound_ns), "", ""],
    ]
    lines = [
        f"of step {found.step} on rank {found.rank}, which computes the longest:"
        f" {verdict}; the bound is {found.bound_by}",
        *table(rows),
    ]
    if found.left_out:
        lines.append("not in the plan: " + ", ".join(found.left_out))
    return lines
