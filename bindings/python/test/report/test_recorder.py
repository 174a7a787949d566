"""What the recorder makes of the hooks' notes."""

from commsched.report import recorder
from commsched.report.model import NONE, Span
from commsched.report.recorder import Call, PendingWait, Recorder


def call(made, issued, kind="all_reduce", **fields):
    found = Call(kind, "0@0", issued)
    for name, value in fields.items():
        setattr(found, name, value)
    made.add(found)
    return found


def made():
    found = Recorder()
    found.begin = 0
    return found


def test_calls_of_a_group_are_numbered_and_pairs_by_themselves():
    found = made()
    for kind, peer in (
        ("all_reduce", NONE),
        ("send", 1),
        ("recv", 1),
        ("send", 1),
        ("all_reduce", NONE),
        ("send", 2),
    ):
        call(found, 0, kind, peer=peer)
    rows = found.finish(0, 3).collectives
    assert [row.sequence for row in rows] == [0, 0, 0, 1, 1, 0]


def test_a_wait_until_complete_ends_with_the_last_collective():
    found = made()
    calls = [call(found, 10), call(found, 20)]
    for each, completed in zip(calls, (40, 60)):
        each.complete(completed)
    found.waits.append(PendingWait(30, 100, calls, True))
    found.waits.append(PendingWait(200, 300, [], True))
    waits = found.finish(0, 2).waits
    assert [(w.begin, w.end, w.collectives) for w in waits] == [(30, 60, (0, 1))]


def test_the_earliest_sign_of_completion_counts():
    found = made()
    first = call(found, 10)
    first.complete(90)
    first.complete(50)
    first.complete(70)
    assert found.finish(0, 2).collectives[0].completed == 50


def test_compute_is_the_main_thread_outside_of_waits():
    found = made()
    thread = found.main_thread
    found.phases.append(Span("backward", thread, 100, 200))
    found.phases.append(Span("optimizer", thread, 250, 300))
    found.waits.append(PendingWait(150, 180, [], False))
    spans = [(s.name, s.begin, s.end) for s in found.finish(0, 2).compute]
    assert spans[:-1] == [
        ("forward", 0, 100),
        ("backward", 100, 150),
        ("backward", 180, 200),
        ("other", 200, 250),
        ("optimizer", 250, 300),
    ]
    assert spans[-1][:2] == ("other", 300)


def test_a_call_whose_completion_nobody_tells_is_not_exposed():
    found = made()
    call(found, 10, "send", peer=1, returned=15)
    trace = found.finish(0, 2)
    assert trace.collectives[0].completed == 15
    assert "1 collectives nothing says" in trace.notes[0]


def test_after_a_failure_what_should_have_completed_has_not():
    found = made()
    call(found, 10, told=True)
    assert found.finish(0, 2, "error").collectives[0].completed == NONE


def test_the_newest_calls_are_kept(monkeypatch):
    monkeypatch.setattr(recorder, "MAX_CALLS", 3)
    found = made()
    for time in range(5):
        call(found, time)
    trace = found.finish(0, 2)
    assert [row.sequence for row in trace.collectives] == [2, 3, 4]
    assert trace.notes[0] == "the oldest 2 collectives were dropped"
