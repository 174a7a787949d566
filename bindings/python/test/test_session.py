"""Sessions: a plan runs, on the caller's memory."""

import array
import signal

import pytest

import commsched as cs


def make():
    graph = cs.Graph()
    graph.group("dp", 2)
    weights = graph.buffer("weights", "f32", 4, "bound")
    grads = graph.buffer("grads", "f32", 4)
    backward = graph.compute("backward", reads=[weights], writes=[grads])
    graph.collective("reduce", "all_reduce", input=grads, op="avg")
    update = graph.compute("update", reads=[grads], updates=[weights])
    return graph, weights, grads, backward, update


class Rank:
    """One rank's weights, and a session over them."""

    def __init__(self, context, **options):
        graph, weights, grads, self.backward, self.update = make()
        self.weights = array.array("f", [1] * 4)
        self.session = cs.Session(context, graph.plan(), [context.group(axis="dp")],
                                  bindings={weights: self.weights}, **options)
        self.grads = self.session.memory(self.backward, grads).view()
        self.rank = context.rank

    def compute(self, op):
        for i in range(4):
            if op == self.backward:
                self.grads[i] = self.rank
            else:
                self.weights[i] -= self.grads[i]


def test_a_session_runs_steps_in_planned_order(on_ranks):
    def body(context):
        rank = Rank(context)
        with rank.session as session:
            session.run(rank.compute, steps=2)
            session.drain()
            counters = session.counters()
            return list(rank.weights), counters["steps"], counters["launches"]

    assert on_ranks(2, body) == [([0] * 4, 2, 2)] * 2


def test_a_program_drives_its_steps(on_ranks):
    def body(context):
        rank = Rank(context)
        with rank.session as session, cs.Trace(context) as trace:
            with session.step():
                for op in (rank.backward, rank.update):
                    with session.op(op):
                        rank.compute(op)
            return rank.weights[0], session.buffer_version(0), trace.num_steps

    assert on_ranks(2, body) == [(0.5, 1, 0)] * 2


def test_a_trace_has_what_a_session_did(on_ranks, tmp_path):
    def body(context):
        with cs.Trace(context) as trace:
            rank = Rank(context, trace=trace)
            with rank.session as session:
                session.run(rank.compute, steps=4)
                session.drain()
            path = tmp_path / f"{context.rank}.json"
            trace.write(str(path))
            return (trace.step_metrics(0)["num_launches"],
                    trace.step_blame(0)["exposed_ns"] >= 0,
                    "reduce" in trace.explain(), "traceEvents" in path.read_text())

    assert on_ranks(2, body) == [(1, True, True, True)] * 2


def test_an_exception_in_an_op_is_raised_and_fails_all_ranks(on_ranks):
    def body(context):
        rank = Rank(context)

        def compute(op):
            if rank.rank == 1:
                raise ZeroDivisionError("norm is 0")

        with rank.session as session:
            if rank.rank == 1:
                session.run(compute)
            with pytest.raises(cs.AbortedError, match="norm is 0") as caught:
                session.run(compute, steps=1000)
            assert caught.value.rank == 1
            assert session.poisoned(0) in (True, False)
            raise caught.value

    with pytest.raises(ZeroDivisionError):
        on_ranks(2, body)


def test_an_op_out_of_order_is_named(on_ranks):
    def body(context):
        rank = Rank(context)
        with rank.session as session:
            session.step_begin()
            with pytest.raises(cs.UnavailableError) as caught:
                session.before(rank.update)
            assert session.status() is None
            for op in (rank.backward, rank.update):
                with session.op(op):
                    rank.compute(op)
            session.step_end()
            return caught.value.op

    assert on_ranks(2, body) == ["update"] * 2


def test_memory_of_one_step(on_ranks):
    def body(context):
        graph = cs.Graph()
        graph.group("dp", 2)
        bucket = graph.buffer("bucket", "f32", 8, "late_bound")
        fill = graph.compute("fill", writes=[bucket])
        graph.collective("reduce", "all_reduce", input=bucket)
        sums = []
        with cs.Session(context, graph.plan(), [context.group(axis="dp")]) as session:
            for size in (2, 5):
                values = array.array("f", [1 + context.rank] * size)
                with session.step():
                    session.before(fill)
                    session.after(fill, bind={bucket: values})
                session.release(bucket)
                sums.append(list(values))
        return sums

    assert on_ranks(2, body) == [[[3] * 2, [3] * 5]] * 2


def test_ranks_with_other_plans_are_told_which_op_differs(on_ranks):
    def body(context):
        graph, weights, *_ = make()
        if context.rank == 1:
            graph.compute("more")
        values = array.array("f", [1] * 4)
        with pytest.raises(cs.FailedPreconditionError, match="more"):
            cs.Session(context, graph.plan(), [context.group(axis="dp")],
                       bindings={weights: values})

    on_ranks(2, body)


def test_a_buffer_without_memory_is_named(on_ranks):
    def body(context):
        graph, *_ = make()
        with pytest.raises(cs.CommschedError, match="weights"):
            cs.Session(context, graph.plan(), [context.group(axis="dp")])

    on_ranks(2, body)


def test_a_session_explains_and_counts_itself(on_ranks):
    def body(context):
        rank = Rank(context)
        with rank.session as session:
            session.run(rank.compute)
            session.drain()
            return ("reduce" in session.explain(),
                    f'rank="{context.rank}"' in session.metrics_text(),
                    len(session.collective_cpu_ns()))

    assert on_ranks(2, body) == [(True, True, 3)] * 2


def test_a_step_that_waits_for_another_rank_hears_control_c(python):
    process = python("""
import array, threading, commsched as cs
graph = cs.Graph()
graph.group("dp", 2)
grads = graph.buffer("grads", "f32", 4)
backward = graph.compute("backward", writes=[grads])
graph.collective("reduce", "all_reduce", input=grads)
update = graph.compute("update", reads=[grads])
world, made = cs.World(2), {}
contexts = [world.context(rank) for rank in range(2)]
def make(rank):
    made[rank] = cs.Session(contexts[rank], graph.plan(),
                            [contexts[rank].group(axis="dp")])
other = threading.Thread(target=make, args=(1,)); other.start()
make(0); other.join()
session = made[0]
session.step_begin()
with session.op(backward): pass
print("waiting", flush=True)
session.before(update)  # Rank 1 never has its backward.
""")
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err
