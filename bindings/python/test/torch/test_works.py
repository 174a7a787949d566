"""Works: waiting, asking, futures, memory, and errors that come by them."""

from __future__ import annotations

import datetime
import gc
import time
import weakref
from typing import Any

import pytest
import torch
import torch.distributed as dist

import commsched
import ranks as rank_processes


def wait(rank: Any) -> None:
    tensor = torch.ones(100)
    work = dist.all_reduce(tensor, async_op=True)
    assert work.wait() is True
    assert tensor.eq(2).all()
    assert work.is_completed() and work.wait()


def test_after_wait_the_result_is_there(pool: Any) -> None:
    pool.run(wait)


def ask(rank: Any) -> None:
    tensor = torch.zeros(3)
    if rank.rank == 0:
        work = dist.irecv(tensor, 1)
        assert not work.is_completed()
        dist.barrier()
        dist.barrier()
        while not work.is_completed():
            pass
        assert tensor.tolist() == [5.0] * 3
    else:
        dist.barrier()
        dist.send(tensor + 5, 0)
        dist.barrier()


def test_is_completed_turns_true_without_a_wait(pool: Any) -> None:
    pool.run(ask)


def ask_gloo(rank: Any) -> None:
    """What commsched does for its own works leaves those of others alone."""
    tensor = torch.zeros(3)
    if rank.rank == 0:
        work = dist.irecv(tensor, 1, group=rank.gloo)
        assert not work.is_completed()
        dist.barrier()
        work.wait()
        assert work.is_completed()
    else:
        rank.gloo
        dist.barrier()
        dist.send(tensor + 5, 0, group=rank.gloo)


def test_works_of_other_backends_answer_as_before(pool: Any) -> None:
    pool.run(ask_gloo)


def futures(rank: Any) -> None:
    tensor = torch.ones(1000)
    future = dist.all_reduce(tensor, async_op=True).get_future()
    tripled = future.then(lambda done: [each * 3 for each in done.value()])
    assert torch.equal(future.wait()[0], torch.full((1000,), 2.0))
    assert torch.equal(tripled.wait()[0], torch.full((1000,), 6.0))
    # Copied to where the caller wants it before the future says so.
    whole = [torch.empty(2) for _ in range(rank.size)]
    gathered = dist.all_gather(whole, torch.ones(2) + rank.rank, async_op=True)
    gathered.get_future().wait()
    assert [each[0].item() for each in whole] == [1.0, 2.0]
    # Of a work that has finished.
    work = dist.barrier(async_op=True)
    work.wait()
    assert work.get_future().done()


def test_futures_are_resolved_when_the_result_is_there(pool: Any) -> None:
    pool.run(futures)


def chain(rank: Any) -> None:
    """What a callback of a future calls goes to the same group."""
    first, second = torch.ones(10), torch.ones(5)

    def then_sum(done: Any) -> torch.Tensor:
        dist.all_reduce(second)
        return done.value()[0] + 1

    future = dist.all_reduce(first, async_op=True).get_future().then(then_sum)
    assert future.wait().eq(3).all()
    assert second.eq(2).all()


def test_callbacks_of_futures_may_call_the_group(pool: Any) -> None:
    pool.run(chain)


def memory_is_let_go(rank: Any) -> None:
    """The program keeps the work, and waits for a later one."""
    tensor = torch.ones(10)
    gone = weakref.ref(tensor)
    work = dist.reduce_scatter_tensor(torch.empty(5), tensor, async_op=True)
    del tensor
    dist.barrier()
    dist.barrier()  # Looks for what has finished.
    gc.collect()
    assert gone() is None
    del work


def test_tensors_are_let_go_when_their_work_has_finished(pool: Any) -> None:
    pool.run(memory_is_let_go)


def memory_is_kept(rank: Any) -> None:
    """The program drops tensor and work before the others have come."""
    whole = torch.zeros(rank.size * 1000)
    gone = None
    if rank.rank == 0:
        tensor = torch.full((1000,), 7.0)
        gone = weakref.ref(tensor)
        dist.all_gather_into_tensor(whole, tensor, async_op=True)
        del tensor
        gc.collect()
        assert gone() is not None
        junk = [torch.full((1000,), 9.0) for _ in range(50)]
        dist.barrier(group=rank.gloo)
        del junk
    else:
        dist.barrier(group=rank.gloo)
        dist.all_gather_into_tensor(whole, torch.full((1000,), 8.0))
    dist.barrier()
    assert whole[:1000].eq(7).all() and whole[1000:].eq(8).all()


def test_tensors_are_kept_until_their_work_has_finished(pool: Any) -> None:
    pool.run(memory_is_kept)


def time_out(rank: Any) -> None:
    if rank.rank == 0:
        found = torch.zeros(1)
        work = dist.irecv(found, 1)
        with pytest.raises(commsched.DeadlineExceededError,
                           match="recv of group .* rank 0 within 0.05 s"):
            work.wait(datetime.timedelta(seconds=0.05))
        dist.barrier(group=rank.gloo)
        work.wait(datetime.timedelta(seconds=60))
        assert found.item() == 3
    else:
        dist.barrier(group=rank.gloo)
        dist.send(torch.full((1,), 3.0), 0)


def test_a_wait_that_was_too_short_may_be_made_again(pool: Any) -> None:
    pool.run(time_out)


def deadline(rank: Any) -> str:
    rank.start()
    group = dist.new_group(timeout=datetime.timedelta(seconds=4))
    dist.barrier()
    if rank.rank == 1:
        return ""
    with pytest.raises(commsched.CommschedError) as failed:
        dist.all_reduce(torch.ones(1), group=group)
    return str(failed.value)


def test_at_the_groups_deadline_the_error_names_who_is_missing() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        said = ranks.run(deadline)[0]
    assert "rank 1 has not issued" in said and "all_reduce" in said


def fail_later(rank: Any) -> None:
    rank.start(timeout=datetime.timedelta(seconds=60))
    dist.barrier()


def after_a_loss(rank: Any) -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(commsched.AbortedError) as failed:
            dist.all_reduce(torch.ones(1))
        errors.append(str(failed.value))
    assert "rank 1" in errors[0]
    with pytest.raises(commsched.AbortedError):
        dist.barrier()
    begun = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - begun < 10


def test_a_rank_that_is_killed_is_named_by_the_others_at_once() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        ranks.run(fail_later)
        ranks.kill(1)
        ranks.run(after_a_loss, among=[0])


def after_the_loss_of_rank_0(rank: Any) -> str:
    with pytest.raises(commsched.CommschedError) as failed:
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()
    return str(failed.value)


def test_the_job_ends_with_rank_0_which_runs_its_control_server() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        ranks.run(fail_later)
        ranks.kill(0)
        said = ranks.run(after_the_loss_of_rank_0, among=[1])[0]
    assert "rank 0" in said or "control server" in said
