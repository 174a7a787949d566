import pytest

from commsched.report.advice import advise
from commsched.report.analysis import analyse
from commsched.report.links import Link, fit, transfers
from traces import GROUP, MS, Maker

LINK = Link(latency_ns=MS, bytes_per_s=1e9)  # 1 ms, and 1 MB in 1 ms.


def advice(build, steps=3):
    makers = [Maker(rank).step() for rank in range(2)]
    for _ in range(steps):
        for maker in makers:
            build(maker)
            maker.step()
    return advise(analyse([m.trace for m in makers]), {GROUP: LINK})


def test_small_collectives_back_to_back_are_to_be_merged():
    def build(maker):
        maker.compute(10)
        for _ in range(4):
            maker.issue(maker.now + 1.1, bytes=1000, blocking=True)
            maker.wait(maker.now + 1.1)

    found = advice(build)
    assert [a.action for a in found] == ["merge"]
    assert [name[2] for name in found[0].what] == [1, 2, 3, 4]
    assert found[0].gain_ns == 3 * MS
    assert "merge 4 collectives, all_reduce 1 of dp to 4" in found[0].text


def test_small_collectives_with_compute_between_are_left_alone():
    def build(maker):
        for _ in range(4):
            maker.compute(10).issue(maker.now + 1.1, bytes=1000)
            maker.wait(maker.now + 1.1)

    assert advice(build) == []


def test_collectives_of_two_types_are_not_merged():
    def build(maker):
        maker.compute(10)
        for kind in ("all_reduce", "all_gather"):
            maker.issue(maker.now + 1.1, kind=kind, bytes=1000)
            maker.wait(maker.now + 1.1)

    assert advice(build) == []


def test_a_large_collective_exposed_at_the_end_is_to_be_split():
    def build(maker):
        maker.compute(40).issue(maker.now + 21, bytes=20_000_000)
        maker.wait(maker.now + 21)

    found = advice(build)
    assert [a.action for a in found] == ["split"]
    assert found[0].gain_ns == pytest.approx(9 * MS)  # Half of 20, less 1.


def test_a_large_collective_under_compute_is_not_split():
    def build(maker):
        maker.compute(40).issue(maker.now + 21, bytes=20_000_000)
        maker.compute(30)

    assert advice(build) == []


def test_a_collective_is_to_be_issued_once_its_data_is_ready():
    def build(maker):
        ready = round((maker.now + 10) * MS)
        maker.compute(40).issue(maker.now + 3, bytes=2_000_000, ready=ready)
        maker.wait(maker.now + 3)

    found = advice(build)
    assert [a.action for a in found] == ["sooner"]
    assert found[0].gain_ns == 3 * MS


def test_a_late_rank_is_no_reason_to_issue_sooner():
    makers = [Maker(rank).step() for rank in range(2)]
    for maker in makers:
        maker.compute(10 + 90 * maker.trace.rank)
        maker.issue(100, bytes=1000, ready=round(5 * MS)).wait(100).step()
    run = analyse([m.trace for m in makers])
    assert advise(run, {GROUP: LINK}) == []


def test_a_link_is_found_from_what_collectives_took():
    makers = [Maker(rank).step() for rank in range(2)]
    for maker in makers:
        for size in (1000, 10_000, 100_000, 1_000_000, 10_000_000):
            for _ in range(3):
                maker.compute(1)
                took = LINK.duration_ns(size) / MS
                maker.issue(maker.now + took, bytes=size)
                maker.wait(maker.now + took)
        maker.step()
    link = fit(transfers(analyse([m.trace for m in makers]).matches))
    assert link.latency_ns == pytest.approx(LINK.latency_ns, rel=0.01)
    assert link.bytes_per_s == pytest.approx(LINK.bytes_per_s, rel=0.01)


def test_one_size_gives_a_rate_and_no_latency():
    assert fit([(1000.0, MS)]) == Link(0.0, 1e6)


def test_a_queue_is_not_taken_for_a_slow_link():
    makers = [Maker(rank).step() for rank in range(2)]
    for maker in makers:
        maker.issue(2, bytes=1_000_000).issue(4, bytes=1_000_000)
        maker.wait(4).step()
    samples = transfers(analyse([m.trace for m in makers]).matches)
    assert samples == [(1_000_000.0, 2 * MS)] * 2
