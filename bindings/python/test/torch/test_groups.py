"""Process groups: how they are made, what they share, and how they end."""

from __future__ import annotations

import datetime
import gc
import multiprocessing
import os
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

import commsched
import commsched.torch
import commsched.torch._register as register
import ranks as rank_processes


def sum_of_ones(group: Any = None) -> float:
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=group)
    return float(tensor.item())


def found_by_name(rank: Any) -> None:
    assert dist.get_backend() == "commsched"
    backend = rank.ours._get_backend(torch.device("cpu"))
    assert backend.name() == "commsched"
    assert dist.get_backend(dist.new_group([0, 1])) == "commsched"


def test_pytorch_finds_the_backend_by_its_entry_point(pool: Any) -> None:
    pool.run(found_by_name)


def new_groups(rank: Any) -> None:
    everybody = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=60))
    alone = [dist.new_group([member]) for member in range(2)]
    reversed_ = dist.new_group([1, 0], sort_ranks=False) if _takes_order() else None
    assert sum_of_ones(everybody) == 2
    assert sum_of_ones(alone[rank.rank]) == 1
    if reversed_ is not None:
        assert dist.get_rank(reversed_) == 1 - rank.rank
    for group in (everybody, alone[rank.rank]):
        dist.destroy_process_group(group)
    with pytest.raises(Exception, match="not initialized|destroyed"):
        sum_of_ones(everybody)
    assert sum_of_ones() == 2


def _takes_order() -> bool:
    import inspect
    return "sort_ranks" in inspect.signature(dist.new_group).parameters


def test_new_groups_have_some_ranks_and_end_by_themselves(pool: Any) -> None:
    pool.run(new_groups)


def on_a_group_of_gloo(rank: Any) -> None:
    """The default group is of another backend: the group is a job of its own."""
    rank.start("gloo")
    group = dist.new_group(backend="commsched")
    assert sum_of_ones(group) == 2
    dist.destroy_process_group()


def test_a_group_may_stand_beside_a_default_group_of_gloo() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        ranks.run(on_a_group_of_gloo)
        assert ranks.close() == [0, 0]


def split(rank: Any) -> None:
    both = dist.split_group(None, [[0, 1]])
    assert sum_of_ones(both) == 2
    own = dist.split_group(None, [[0], [1]])
    assert dist.get_world_size(own) == 1 and sum_of_ones(own) == 1
    assert dist.get_process_group_ranks(own) == [rank.rank]


def test_groups_are_split(pool: Any) -> None:
    pool.run(split)


def debugged(rank: Any) -> None:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    try:
        group = dist.new_group([0, 1])
        gc.collect()
        assert sum_of_ones(group) == 2
        module = commsched.torch.ddp(torch.nn.Linear(3, 1), process_group=group)
        module(torch.ones(1, 3)).backward()
        commsched.torch.recorded(module).close()
        dist.destroy_process_group(group)
    finally:
        dist.set_debug_level(dist.DebugLevel.OFF)


def test_groups_are_what_they_are_when_c10d_checks_all_calls(pool: Any) -> None:
    pool.run(debugged)


def meshes(rank: Any) -> None:
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("replicate", "shard"))
    assert sum_of_ones(mesh["shard"].get_group()) == 2
    assert sum_of_ones(mesh["replicate"].get_group()) == 1
    assert dist.get_backend(mesh["shard"].get_group()) == "commsched"


def test_device_meshes_are_made_of_our_groups(pool: Any) -> None:
    pool.run(meshes)


def again(rank: Any) -> None:
    for turn in range(3):
        rank.start(name=f"turn-{turn}")
        assert sum_of_ones() == 2
        dist.destroy_process_group()


def test_a_job_may_be_made_again_after_its_end() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        ranks.run(again)


def groups_apart(rank: Any) -> str:
    """One group fails; the other goes on."""
    doomed = dist.new_group([0, 1])
    if rank.rank == 0:
        doomed._get_backend(torch.device("cpu")).abort()
        said = ""
    else:
        with pytest.raises(commsched.AbortedError) as failed:
            dist.barrier(doomed)
        said = str(failed.value)
    assert sum_of_ones() == 2
    return said


def test_an_abort_fails_one_group_on_all_ranks_and_no_other(pool: Any) -> None:
    assert "rank 0 has aborted group" in pool.run(groups_apart)[1]


def in_flight(rank: Any) -> Any:
    import commsched.torch.backend as backend
    backend.SHUTDOWN_SECONDS = 0.5
    rank.start()
    work = None
    if rank.rank == 0:
        work = dist.irecv(torch.zeros(3), 1)
    begun = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - begun < 30
    if work is None:
        return ""
    assert work.is_completed()
    with pytest.raises(commsched.AbortedError) as failed:
        work.wait()
    return str(failed.value)


def test_a_group_ends_with_work_in_flight_which_then_fails() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        # Rank 1 has left before rank 0 gives up.
        assert "rank 1 left" in ranks.run(in_flight)[0]
        assert ranks.close() == [0, 0]


def late_but_there(rank: Any) -> float:
    """What is under way when a rank destroys its group arrives all the same."""
    rank.start()
    tensor = torch.ones(1_000_000)
    work = dist.all_reduce(tensor, async_op=True)
    dist.destroy_process_group()
    work.wait()
    return float(tensor.sum().item())


def test_what_all_ranks_have_issued_is_finished_before_the_end() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        assert ranks.run(late_but_there) == [2e6, 2e6]


def in_a_child(connection: Any) -> None:
    try:
        dist.all_reduce(torch.ones(1))
        connection.send("it was taken")
    except RuntimeError as error:
        connection.send(str(error))


def fork(rank: Any) -> str:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=in_a_child,
                                                        args=(there,))
    child.start()
    said = here.recv()
    child.join()
    assert child.exitcode == 0
    assert sum_of_ones() == 2
    return str(said)


def test_a_forked_child_is_told_that_it_has_no_group(pool: Any) -> None:
    for said in pool.run(fork):
        assert "all_reduce of group" in said and "a child makes its own" in said


def monitored(rank: Any) -> None:
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=60))
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=60), wait_all_ranks=True)


def test_a_monitored_barrier_passes_when_all_come(pool: Any) -> None:
    pool.run(monitored)


def absent(rank: Any) -> str:
    group = dist.new_group([0, 1])
    if rank.rank == 1:
        # It comes when rank 0 has given up.
        dist.barrier()
        with pytest.raises(commsched.AbortedError) as failed:
            dist.barrier(group)
    else:
        with pytest.raises(commsched.DeadlineExceededError) as failed:
            dist.monitored_barrier(group, datetime.timedelta(seconds=0.2))
        dist.barrier()
    return str(failed.value)


def test_a_monitored_barrier_names_who_does_not_come(pool: Any) -> None:
    for said in pool.run(absent):
        assert "Rank 1 failed to pass monitoredBarrier in 0.2 s" in said


def no_time(rank: Any) -> None:
    group = dist.new_group([0, 1])
    if rank.rank == 0:
        with pytest.raises(commsched.DeadlineExceededError,
                           match="Rank 0 timed out in monitoredBarrier"):
            group.monitored_barrier(datetime.timedelta(0))
    assert sum_of_ones(group) == 2


def test_a_monitored_barrier_without_time_is_late_at_once(pool: Any) -> None:
    pool.run(no_time)


def timeouts(rank: Any) -> None:
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=60))
    backend = group._get_backend(torch.device("cpu"))
    assert backend.options._timeout == datetime.timedelta(seconds=60)
    with pytest.raises(NotImplementedError, match="set_timeout .* it was made with"):
        backend.set_timeout(datetime.timedelta(seconds=61))
    backend.set_timeout(datetime.timedelta(seconds=0.05))
    if rank.rank == 0:
        work = dist.irecv(torch.zeros(1), 1, group=group)
        with pytest.raises(commsched.DeadlineExceededError, match="within 0.05 s"):
            work.wait()
        dist.barrier()
        work.wait(datetime.timedelta(seconds=60))
    else:
        dist.barrier()
        dist.send(torch.zeros(1), 0, group=group)


def test_groups_have_timeouts_of_their_own(pool: Any) -> None:
    pool.run(timeouts)


@pytest.mark.parametrize("old", ["2.11.0", "2.13.1+cpu"])
def test_a_pytorch_that_is_too_old_is_refused_by_name(old: str) -> None:
    with pytest.raises(commsched.UnimplementedError) as refused:
        register.refuse_old(old)
    assert f"PyTorch {old}" in str(refused.value)
    assert "need 2.14 or newer" in str(refused.value)


@pytest.mark.parametrize("new", ["2.14.0", "2.15.0+cu130", "3.0.0a0"])
def test_a_newer_pytorch_is_not(new: str) -> None:
    register.refuse_old(new)


def leave_without_destroy(rank: Any) -> None:
    rank.start()
    assert sum_of_ones() == 2
    os._exit(0)


def test_ranks_that_leave_without_a_word_hang_nobody() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        with pytest.raises(rank_processes.CaseFailed, match="exit code 0"):
            ranks.run(leave_without_destroy)
