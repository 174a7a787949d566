"""Calls in PyTorch's profiler."""

from __future__ import annotations

import time
from typing import Any, Dict, List

import torch
import torch.distributed as dist


def profiled(body: Any) -> Dict[str, List[Any]]:
    """Events of calls, by their names."""
    with torch.profiler.profile(record_shapes=True,
                                activities=[torch.profiler.ProfilerActivity.CPU]) as run:
        body()
    found: Dict[str, List[Any]] = {}
    for event in run.events():
        found.setdefault(event.name, []).append(event)
    return found


def calls(rank: Any) -> None:
    whole = torch.empty(rank.size * 3)

    def body() -> None:
        dist.all_reduce(torch.ones(2, 3))
        dist.all_gather_into_tensor(whole, torch.ones(3))
        dist.barrier()

    found = profiled(body)
    reduced, = found["commsched:all_reduce"]
    gathered, = found["commsched:all_gather"]
    assert reduced.input_shapes == [[2, 3]] and gathered.input_shapes == [[3]]
    assert len(found["commsched:barrier"]) == 1


def test_calls_are_events_with_their_shapes(pool: Any) -> None:
    pool.run(calls)


def whole_time(rank: Any) -> None:
    took = []

    def body() -> None:
        if rank.rank == 1:
            time.sleep(0.2)
        begun = time.monotonic()
        work = dist.all_reduce(torch.ones(1), async_op=True)
        torch.ones(3) + 1
        work.wait()
        took.append(time.monotonic() - begun)

    dist.barrier()
    found = profiled(body)
    reduced, = found["commsched:all_reduce"]
    assert reduced.is_async
    assert (0.19 if rank.rank == 0 else 0) < reduced.cpu_time / 1e6 < took[0]
    # It is not within the call, which goes on beside it.
    assert all(each.cpu_parent is None or each.cpu_parent.name != reduced.name
               for each in found["aten::add"])


def test_an_event_lasts_from_the_issue_to_the_completion(pool: Any) -> None:
    pool.run(whole_time)


def outlives_the_profiler(rank: Any) -> None:
    work = None

    def body() -> None:
        nonlocal work
        if rank.rank == 0:
            work = dist.irecv(torch.zeros(1), 1)

    for _ in range(3):
        profiled(body)
        profiled(lambda: None)
        dist.barrier()
        if work is None:
            dist.send(torch.ones(1), 0)
        else:
            work.wait()


def test_a_call_may_finish_when_the_profiler_is_gone(pool: Any) -> None:
    pool.run(outlives_the_profiler)
