"""Made-up traces whose analysis is known."""

from commsched.report.model import Collective, RankTrace, Span, Wait

MS = 1_000_000
GROUP = "dp"


class Maker:
    """Writes the trace of one rank, in program order, in ms."""

    def __init__(self, rank, world_size=2, host="a"):
        self.now = 0.0
        self.trace = RankTrace(rank, world_size, host=host)
        self.trace.groups[GROUP] = tuple(range(world_size))

    def compute(self, ms):
        begin, self.now = self.now, self.now + ms
        self.trace.compute.append(
            Span("compute", 1, round(begin * MS), round(self.now * MS))
        )
        return self

    def issue(self, completed, kind="all_reduce", bytes=1000, **fields):
        row = Collective(
            kind,
            GROUP,
            len(self.trace.collectives),
            bytes,
            "f32",
            1,
            round(self.now * MS),
            round(self.now * MS),
            completed=round(completed * MS),
            **fields,
        )
        self.trace.collectives.append(row)
        return self

    def wait(self, until, *collectives):
        begin, self.now = self.now, max(self.now, until)
        self.trace.waits.append(
            Wait(1, round(begin * MS), round(self.now * MS), collectives)
        )
        return self

    def step(self):
        self.trace.steps.append(round(self.now * MS))
        self.trace.end = round(self.now * MS)
        return self


def shift(trace, offset_ms):
    return trace.shifted(round(offset_ms * MS))
