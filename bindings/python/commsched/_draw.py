"""Draws a plan's predicted step: lanes from left to right, as text or as SVG."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple
from xml.sax import saxutils


class Bar(NamedTuple):
    """Something on a lane, in ns from the begin of the step."""

    lane: str
    name: str
    begin: int
    end: int
    exposed: int = 0


def bars(plan: Mapping[str, Any]) -> List[Bar]:
    """Of a plan in JSON (docs/plan_json.md), lane by lane."""
    found = [Bar(f"compute {op['lane']}", op["name"], op["begin_ns"], op["end_ns"])
             for op in plan["ops"] if "begin_ns" in op]
    found += [Bar(f"comm {launch['lane']}", "+".join(launch["members"]),
                  launch["begin_ns"], launch["end_ns"], launch["exposed_ns"])
              for launch in plan["launches"] if "begin_ns" in launch]
    if not found:
        raise ValueError("the plan has no prediction to draw")
    return found


def draw(plan: Mapping[str, Any], format: str, width: int) -> str:
    if format == "text":
        return _text(bars(plan), plan["prediction"], width)
    if format == "svg":
        return _svg(bars(plan), plan["prediction"])
    raise ValueError(f"a picture as '{format}'; there are text and svg")


def _by_lane(found: List[Bar]) -> Dict[str, List[Bar]]:
    lanes: Dict[str, List[Bar]] = {}
    for bar in found:
        lanes.setdefault(bar.lane, []).append(bar)
    return lanes


def _summary(prediction: Mapping[str, int]) -> str:
    return (f"step {prediction['step_ns'] / 1e6:.3f} ms, exposed "
            f"{prediction['exposed_ns'] / 1e6:.3f} ms, no plan is below "
            f"{prediction['lower_bound_ns'] / 1e6:.3f} ms")


def _text(found: List[Bar], prediction: Mapping[str, int], width: int) -> str:
    """A bar is its name between brackets, cut to fit; below one cell it is a `|`."""
    lanes = _by_lane(found)
    margin = max(map(len, lanes)) + 1
    cells = width - margin
    if cells < 10:
        raise ValueError(f"a width of {width}: a picture needs {margin + 10}")
    last = max(bar.end for bar in found)
    lines = [_summary(prediction)]
    for lane, of_lane in lanes.items():
        line = [" "] * cells
        for bar in of_lane:
            begin = min(cells - 1, bar.begin * cells // max(1, last))
            end = max(begin + 1, min(cells, bar.end * cells // max(1, last)))
            room = end - begin
            text = "|" if room == 1 else "[" + bar.name[:room - 2].center(
                room - 2, "-") + "]"
            line[begin:end] = text
        lines.append((lane.ljust(margin) + "".join(line)).rstrip())
    return "\n".join(lines) + "\n"


_WIDTH, _LABELS, _LANE, _GAP, _HEAD = 880, 90, 30, 10, 30
_COMPUTE, _COMM, _EXPOSED = "#5b8def", "#2da44e", "#d1242f"


def _svg(found: List[Bar], prediction: Mapping[str, int]) -> str:
    """Communication is green, or red where most of it is exposed."""
    lanes = _by_lane(found)
    last = max(bar.end for bar in found)
    height = _HEAD + len(lanes) * (_LANE + _GAP)
    scale = (_WIDTH - _LABELS - _GAP) / max(1, last)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="20">{saxutils.escape(_summary(prediction))}</text>']
    for row, (lane, of_lane) in enumerate(lanes.items()):
        top = _HEAD + row * (_LANE + _GAP)
        parts.append(f'<text x="8" y="{top + 20}">{saxutils.escape(lane)}</text>')
        for bar in of_lane:
            colour = _COMPUTE if lane.startswith("compute") else (
                _EXPOSED if 2 * bar.exposed > bar.end - bar.begin else _COMM)
            left, wide = _LABELS + bar.begin * scale, (bar.end - bar.begin) * scale
            title = saxutils.escape(
                f"{bar.name}: {bar.begin / 1e3:.1f} to {bar.end / 1e3:.1f} us"
                + (f", {bar.exposed / 1e3:.1f} us exposed" if bar.exposed else ""))
            parts.append(
                f'<rect x="{left:.1f}" y="{top}" width="{max(wide, 0.7):.1f}" '
                f'height="{_LANE}" fill="{colour}"><title>{title}</title></rect>')
            if wide > 7 * len(bar.name):
                parts.append(f'<text x="{left + 4:.1f}" y="{top + 20}" fill="#ffffff">'
                             f'{saxutils.escape(bar.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
