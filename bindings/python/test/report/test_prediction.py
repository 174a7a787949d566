"""The graph of a step, and what the library predicts of its plan."""

import pytest

from commsched.report.analysis import analyse
from commsched.report.links import Link
from commsched.report.prediction import predict
from commsched.report.step_graph import step_graph
from traces import GROUP, MS, Maker

LINK = Link(latency_ns=0.0, bytes_per_s=1e9)


def reduced_late(ready_ms=None, steps=3):
    """40 ms of compute, then a blocking all-reduce of 20 ms, then 1 ms."""
    makers = [Maker(rank).step() for rank in range(2)]
    for number in range(steps):
        for maker in makers:
            fields = {}
            if ready_ms is not None:
                fields["ready"] = round((maker.now + ready_ms) * MS)
            maker.compute(40)
            done = maker.now + 20
            maker.issue(done, bytes=20_000_000, reduce_op="sum", **fields)
            maker.wait(done, number).compute(1).step()
    return analyse([maker.trace for maker in makers])


def graph(run, as_issued=False):
    return step_graph(run, run.steps[1].ranks[0], as_issued).graph


def costs(found):
    return [
        (op["kind"], op.get("cost_ns", 0) // MS)
        for op in found["ops"]
    ]


def test_compute_is_cut_where_collectives_are_issued_and_waited_for():
    assert costs(graph(reduced_late())) == [
        ("compute", 40),
        ("all_reduce", 0),
        ("compute", 0),
        ("compute", 1),
    ]


def test_a_collective_is_due_when_its_data_is_ready():
    assert costs(graph(reduced_late(ready_ms=10))) == [
        ("compute", 10),
        ("all_reduce", 0),
        ("compute", 50 - 20),
        ("compute", 1),
    ]
    assert costs(graph(reduced_late(ready_ms=10), as_issued=True))[0] == (
        "compute",
        40,
    )


def test_the_compute_after_a_wait_reads_what_was_waited_for():
    ops = graph(reduced_late())["ops"]
    assert ops[0]["accesses"] == [{"buffer": "b0", "mode": "write"}]
    assert ops[2]["accesses"] == []
    assert ops[3]["accesses"] == [{"buffer": "b0", "mode": "read"}]


def test_collectives_that_no_graph_has_are_left_out_and_named():
    makers = [Maker(rank).step() for rank in range(2)]
    for maker in makers:
        maker.compute(1).issue(2, kind="gather", peer=0).wait(2, 0).step()
    run = analyse([maker.trace for maker in makers])
    made = step_graph(run, run.steps[0].ranks[0], False)
    assert (made.collectives, made.left_out) == (0, ["gather"])


@pytest.mark.parametrize(
    "kind",
    [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "all_to_all",
        "broadcast",
        "reduce",
        "barrier",
    ],
)
def test_the_library_takes_every_kind(kind):
    makers = [Maker(rank).step() for rank in range(2)]
    for maker in makers:
        peer = 1 - maker.trace.rank
        for number in range(3):
            maker.compute(1)
            maker.issue(maker.now + 1, kind=kind, bytes=1001, peer=peer)
            maker.wait(maker.now + 1, number).compute(1).step()
    found, reason = predict(
        analyse([maker.trace for maker in makers]), {GROUP: LINK}
    )
    assert found is not None and reason == ""
    assert found.collectives == 1


@pytest.mark.parametrize("kind", ["send", "recv"])
def test_pairs_are_not_planned_and_it_says_so(kind):
    makers = [Maker(rank).step() for rank in range(2)]
    for maker in makers:
        maker.compute(1).issue(2, kind=kind, peer=1 - maker.trace.rank)
        maker.wait(2, 0).compute(1).step()
    run = analyse([maker.trace for maker in makers])
    found, reason = predict(run, {GROUP: LINK})
    assert found is None and "sends or receives" in reason


def test_a_plan_hides_what_could_have_been_issued_sooner():
    found, _ = predict(reduced_late(ready_ms=10), {GROUP: LINK})
    assert found.measured_ns == 61 * MS
    assert found.as_is_ns == pytest.approx(61 * MS, rel=0.01)
    assert found.step_ns == pytest.approx(41 * MS, rel=0.02)
    assert found.exposed_ns < MS
    assert found.lower_bound_ns == pytest.approx(41 * MS, rel=0.02)
    assert found.bound_by == "its compute"


def test_without_steps_nothing_is_predicted():
    run = reduced_late(steps=1)
    for trace in run.traces:
        trace.steps = []
    assert predict(analyse(run.traces), {GROUP: LINK}) == (
        None,
        "no step was seen",
    )
