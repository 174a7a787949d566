"""Failures are exceptions that say what they are about."""

import pytest

import commsched as cs
from commsched import errors


def test_each_status_has_a_class():
    for status in cs.Status:
        if status != cs.Status.OK:
            assert errors.error(status, "why").status == status


def test_an_exception_has_the_librarys_message():
    with pytest.raises(cs.InvalidArgumentError, match="1..4096 ranks, not 0") as caught:
        cs.World(0)
    assert str(caught.value).startswith("INVALID_ARGUMENT: ")
    assert isinstance(caught.value, ValueError)


def test_op_group_and_rank_are_those_that_the_message_names():
    made = errors.error(
        cs.Status.ABORTED, "collective 'grads' on axis 'dp': rank 3 is lost: rank 1")
    assert (made.op, made.group, made.rank) == ("grads", "dp", 3)


@pytest.mark.parametrize("message, rank", [
    ("channel 0 of ranks 0,1: rank 1 will not come: rank 1 is lost: closed", 1),
    ("meeting 'm' of ranks 0,1: rank 1 waited 30 ms; missing of 2 ranks: 0", 0),
    ("rank 0: the launch is late, rank 2 has not issued it", 2),
    ("rank 3: out of data", 3),
    ("a world has 1..4096 ranks, not 0", None)])
def test_the_rank_is_the_one_that_is_missing(message, rank):
    assert errors.error(cs.Status.ABORTED, message).rank == rank


def test_what_the_call_was_about_comes_first():
    made = errors.error(cs.Status.ABORTED, "collective 'a' on axis 'b'", op="c",
                        group="d")
    assert (made.op, made.group, made.rank) == ("c", "d", None)


def test_a_deadline_is_a_timeout_and_what_is_missing_is_not_implemented():
    assert issubclass(cs.DeadlineExceededError, TimeoutError)
    assert issubclass(cs.UnimplementedError, NotImplementedError)
    assert issubclass(cs.CommschedError, RuntimeError)
