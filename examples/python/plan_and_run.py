"""Plans a step, draws it, and runs it, in Python alone: two ranks train a line.

    python examples/python/plan_and_run.py

Each rank has half of the points. A step computes the gradient of two layers of
parameters, in the order of a backward pass, sums each over the ranks while the next one
is computed, and updates. Ranks are threads here; as processes they would be made by
cs.Context.join().
"""

import array

import commsched as cs

RANKS, STEPS, RATE = 2, 500, 0.1
POINTS = [(x / 8, 3 * x / 8 + 1) for x in range(16)]  # On the line y = 3 x + 1.


def describe():
    """What happens in a step: memory, ops, and what each op reads and writes."""
    graph = cs.Graph()
    graph.group("dp", RANKS)
    line = graph.buffer("line", "f64", 2, "bound")  # Slope and offset.
    slope = graph.buffer("slope_gradient", "f64", 1)
    offset = graph.buffer("offset_gradient", "f64", 1)
    ops = {
        graph.compute("slope", reads=[line], writes=[slope], cost_ns=60_000): "slope",
        graph.compute("offset", reads=[line], writes=[offset],
                      cost_ns=40_000): "offset",
    }
    for name, gradient in (("sum_slope", slope), ("sum_offset", offset)):
        graph.collective(name, "all_reduce", input=gradient, op="avg")
    ops[graph.compute("update", reads=[slope, offset], updates=[line],
                      cost_ns=20_000)] = "update"
    return graph, ops, line, slope, offset


def plan(graph):
    """For a link that takes 30 us for what is summed."""
    links = cs.CostProfile(link_bytes_per_s=1e9, link_latency_ns=30_000)
    made = graph.plan(cs.PlanOptions(coalesce_bytes=0, deterministic=True), links)
    made.verify()
    return made


class Rank:
    """One rank: its points, its parameters, and a session that runs the plan."""

    def __init__(self, context, made, described):
        _, self.ops, line, slope, offset = described
        self.points = POINTS[context.rank::RANKS]
        self.line = array.array("d", [0, 0])
        self.session = cs.Session(context, made, [context.group(axis="dp")],
                                  bindings={line: self.line})
        by_name = {name: op for op, name in self.ops.items()}
        # Memory of the plan's own; what an op finds there is what it is to read.
        self.slope = self.session.memory(by_name["slope"], slope).view()
        self.offset = self.session.memory(by_name["offset"], offset).view()

    def compute(self, op):
        slope, offset = self.line
        errors = [(slope * x + offset - y, x) for x, y in self.points]
        name = self.ops[op]
        if name == "slope":
            self.slope[0] = sum(e * x for e, x in errors) / len(errors)
        elif name == "offset":
            self.offset[0] = sum(e for e, _ in errors) / len(errors)
        else:
            self.line[0] -= RATE * self.slope[0]
            self.line[1] -= RATE * self.offset[0]


def train(context, made, described):
    rank = Rank(context, made, described)
    with rank.session as session:
        session.run(rank.compute, STEPS)
        session.drain()
        launches = session.counters()["launches"]
    return rank.line, launches


def main():
    described = describe()
    made = plan(described[0])
    print(made.draw(width=64))
    ranks = cs.World(RANKS).run(lambda c: train(c, made, described))
    for number, (line, launches) in enumerate(ranks):
        print(f"rank {number}: y = {line[0]:.2f} x + {line[1]:.2f}, "
              f"{launches} launches in {STEPS} steps")


if __name__ == "__main__":
    main()
