import pytest

from commsched.report.analysis import analyse, overlapping
from commsched.report.model import RankTrace
from commsched.report.summary import summarise
from traces import GROUP, MS, Maker, shift


def late_by(delay_ms, steps=4):
    """Two ranks that reduce each step; rank 1 computes longer before it.

    Rank 0 computes 10 ms and issues; rank 1 issues `delay_ms` later; 5 ms after
    that both have the result, 3 ms of which rank 1 computes on.
    """
    ranks = [Maker(0).step(), Maker(1).step()]
    for number in range(steps):
        base = number * (15 + delay_ms)
        done = base + 15 + delay_ms
        ranks[0].compute(10).issue(done).wait(done, number).step()
        ranks[1].compute(10 + delay_ms).issue(done).compute(3)
        ranks[1].wait(done, number).step()
    return [maker.trace for maker in ranks]


def test_exposed_time_is_what_no_compute_covers():
    run = analyse(late_by(100))
    assert len(run.steps) == 4 and not run.whole
    first = run.steps[0].ranks
    assert first[0].exposed_ns == 105 * MS
    assert first[1].exposed_ns == 2 * MS
    assert run.steps[0].step_ns == 115 * MS


def test_time_before_the_last_arrival_is_the_late_rank_s():
    cause = analyse(late_by(100)).steps[1].ranks[0].causes[0]
    assert cause.name == ("all_reduce", GROUP, 1)
    assert cause.late_ns == {1: 100 * MS}
    assert cause.link_ns == 5 * MS


def test_the_late_rank_itself_has_only_the_link_to_blame():
    cause = analyse(late_by(100)).steps[1].ranks[1].causes[0]
    assert cause.late_ns == {} and cause.link_ns == 2 * MS


def test_the_straggler_and_its_delay_are_named():
    late = summarise(analyse(late_by(100))).late
    assert [(f.rank, f.held_ns) for f in late] == [(1, 100 * MS)]
    assert late[0].where == "all_reduce 1 of dp"
    assert late[0].late_ns == 100 * MS


def test_equal_ranks_have_no_straggler():
    assert summarise(analyse(late_by(0))).late == []


def test_clocks_of_hosts_are_aligned_by_what_completes_together():
    traces = late_by(100)
    traces[1].host = "b"
    traces[1] = shift(traces[1], -7_000_000)
    late = summarise(analyse(traces)).late
    assert [(f.rank, f.held_ns) for f in late] == [(1, 100 * MS)]


def test_an_instant_belongs_to_the_collective_longest_in_flight():
    maker = [Maker(r).step() for r in range(2)]
    for m in maker:
        m.compute(1).issue(6).compute(1).issue(8).wait(8, 0, 1).step()
    causes = analyse([m.trace for m in maker]).steps[0].ranks[0].causes
    assert [(c.name[2], c.link_ns) for c in causes] == [(1, 4 * MS), (2, 2 * MS)]


def test_a_collective_that_never_completed_is_in_flight_to_the_end():
    maker = [Maker(r) for r in range(2)]
    for m in maker:
        m.compute(1).issue(0).wait(9, 0)
        row = m.trace.collectives[0]
        m.trace.collectives[0] = row._replace(completed=-1)
        m.trace.end = 9 * MS
    run = analyse([m.trace for m in maker])
    assert run.whole and run.steps[0].ranks[0].exposed_ns == 8 * MS


def test_members_of_other_groups_are_not_waited_for():
    traces = []
    for rank in range(4):
        m = Maker(rank, 4)
        m.trace.groups = {f"g{rank // 2}": (rank // 2 * 2, rank // 2 * 2 + 1)}
        m.step().compute(rank + 1).issue(10).wait(10, 0).step()
        m.trace.collectives[0] = m.trace.collectives[0]._replace(
            group=f"g{rank // 2}"
        )
        traces.append(m.trace)
    run = analyse(traces)
    assert run.steps[0].ranks[0].causes[0].late_ns == {1: MS}
    assert run.steps[0].ranks[2].causes[0].late_ns == {3: MS}


def test_the_root_of_a_broadcast_waits_for_nobody():
    traces = []
    for rank in range(2):
        m = Maker(rank).step().compute(1 + 4 * rank)
        m.issue(8, kind="broadcast", peer=0).wait(8, 0).step()
        traces.append(m.trace)
    run = analyse(traces)
    assert run.steps[0].ranks[0].causes[0].late_ns == {}
    assert run.steps[0].ranks[1].causes[0].late_ns == {}


def test_a_receiver_waits_for_its_sender():
    traces = []
    for rank in range(2):
        m = Maker(rank).step().compute(5 if rank == 0 else 1)
        kind = "send" if rank == 0 else "recv"
        m.issue(8, kind=kind, peer=1 - rank).wait(8, 0).step()
        traces.append(m.trace)
    assert analyse(traces).steps[0].ranks[1].causes[0].late_ns == {0: 4 * MS}


def test_launches_and_bytes_are_counted_per_group_and_step():
    figures = summarise(analyse(late_by(0))).groups
    assert [(g.label, g.ranks, g.launches, g.bytes) for g in figures] == [
        ("dp", 2, 1, 1000)
    ]


def test_skipped_steps_are_left_out():
    assert [s.number for s in analyse(late_by(0), skip=2).steps] == [3, 4]


def test_a_report_without_traces_is_refused():
    with pytest.raises(ValueError, match="no rank's trace"):
        analyse([])


def test_a_trace_is_read_as_it_was_written():
    trace = late_by(100)[1]
    assert RankTrace.from_json(trace.to_json()) == trace


def test_a_trace_of_another_format_is_refused():
    with pytest.raises(ValueError, match="commsched-report-trace/1"):
        RankTrace.from_json('{"format": "other/1"}')


def test_items_are_in_every_window_that_they_overlap():
    items = [(5, 25), (0, 3), (12, 14), (20, 20), (31, 40)]
    windows = [(0, 10), (10, 20), (20, 30)]
    assert overlapping(items, windows, lambda item: item) == [
        [(0, 3), (5, 25)],
        [(5, 25), (12, 14)],
        [(5, 25)],
    ]


def test_a_collective_in_flight_over_a_step_s_end_is_a_call_of_one_step():
    maker = [Maker(r).step() for r in range(2)]
    for m in maker:
        m.compute(2).issue(6).compute(1).step().wait(6, 0).compute(1).step()
    first, second = (s.ranks[0] for s in analyse([m.trace for m in maker]).steps)
    assert [len(first.calls), len(second.calls)] == [1, 0]
    assert (first.exposed_ns, second.exposed_ns) == (0, 3 * MS)
    assert second.causes[0].name == ("all_reduce", GROUP, 0)
