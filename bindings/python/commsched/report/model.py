"""What a rank saw of a run: rows of collectives, waits, compute and steps.

Times are nanoseconds on the rank's monotonic clock; NONE stands for a time that
was not seen, such as the completion of a collective that never completed.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Dict, List, NamedTuple, Tuple

FORMAT = "commsched-report-trace/1"
NONE = -1


class Collective(NamedTuple):
    """One call of a process group, as one member saw it."""

    kind: str  # As in docs/graph_json.md; "gather" and "scatter" besides.
    group: str  # Key of RankTrace.groups.
    sequence: int  # Position among the calls on `group` (send, recv: pair).
    bytes: int  # The whole: what a gather gives, what a scatter takes.
    dtype: str
    thread: int
    issued: int  # The caller entered the call.
    returned: int  # The caller had it back, or its wait began.
    completed: int = NONE
    started: int = NONE  # Where the backend or the profiler says so.
    ready: int = NONE  # When the data was, where that is known.
    blocking: bool = False  # The caller waits for it at once.
    peer: int = NONE  # Rank in the group: root, or the other side of a pair.
    tag: int = 0
    stream: int = NONE
    reduce_op: str = ""

    @property
    def begin(self) -> int:
        """When it was in flight from."""
        return self.issued if self.started == NONE else self.started


class Wait(NamedTuple):
    """Time in which a thread could not go on before collectives completed."""

    thread: int
    begin: int
    end: int
    collectives: Tuple[int, ...] = ()  # Indices in RankTrace.collectives.


class Span(NamedTuple):
    """Time that a thread, or a stream of a device, spent on `name`."""

    name: str
    thread: int
    begin: int
    end: int
    stream: int = NONE


@dataclasses.dataclass
class RankTrace:
    """All that one rank recorded, from `begin` to `end`."""

    rank: int
    world_size: int
    host: str = ""  # Ranks of one host and boot share a clock.
    cores: int = 1  # That its ranks on this host may use, together.
    begin: int = 0
    end: int = 0
    groups: Dict[str, Tuple[int, ...]] = dataclasses.field(default_factory=dict)
    labels: Dict[str, str] = dataclasses.field(default_factory=dict)
    threads: Dict[int, str] = dataclasses.field(default_factory=dict)
    collectives: List[Collective] = dataclasses.field(default_factory=list)
    waits: List[Wait] = dataclasses.field(default_factory=list)
    compute: List[Span] = dataclasses.field(default_factory=list)
    phases: List[Span] = dataclasses.field(default_factory=list)
    steps: List[int] = dataclasses.field(default_factory=list)  # Their ends.
    notes: List[str] = dataclasses.field(default_factory=list)
    failure: str = ""

    def to_json(self) -> str:
        fields = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
        }
        return json.dumps({"format": FORMAT, **fields}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RankTrace:
        """Reads what to_json() wrote. Raises ValueError for anything else."""
        value: Dict[str, Any] = json.loads(text)
        found = value.pop("format", None)
        if found != FORMAT:
            raise ValueError(f"a trace has format {found!r}, not {FORMAT!r}")
        value["groups"] = {k: tuple(v) for k, v in value["groups"].items()}
        value["threads"] = {int(k): v for k, v in value["threads"].items()}
        value["collectives"] = [Collective(*row) for row in value["collectives"]]
        value["waits"] = [Wait(t, b, e, tuple(c)) for t, b, e, c in value["waits"]]
        value["compute"] = [Span(*row) for row in value["compute"]]
        value["phases"] = [Span(*row) for row in value["phases"]]
        return cls(**value)

    def label(self, group: str) -> str:
        """What people call `group`."""
        return self.labels.get(group, "") or group

    def shifted(self, offset: int) -> RankTrace:
        """Returns the trace with `offset` added to every time."""
        if offset == 0:
            return self

        def at(time: int) -> int:
            return time if time == NONE else time + offset

        return dataclasses.replace(
            self,
            begin=at(self.begin),
            end=at(self.end),
            collectives=[
                row._replace(
                    issued=at(row.issued),
                    returned=at(row.returned),
                    completed=at(row.completed),
                    started=at(row.started),
                    ready=at(row.ready),
                )
                for row in self.collectives
            ],
            waits=[w._replace(begin=at(w.begin), end=at(w.end)) for w in self.waits],
            compute=[s._replace(begin=at(s.begin), end=at(s.end)) for s in self.compute],
            phases=[s._replace(begin=at(s.begin), end=at(s.end)) for s in self.phases],
            steps=[at(time) for time in self.steps],
        )
