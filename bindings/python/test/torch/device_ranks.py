"""Two ranks as threads, on two devices of the stand-in: the body of test_device.py, in
a process that has loaded the stand-in. Prints "ok" for each check."""

from __future__ import annotations

import datetime
import sys
import threading
import traceback
from typing import Any, Callable, List

import torch
from torch._C import _distributed_c10d as c10d

import stand_in
from commsched.errors import FailedPreconditionError, InvalidArgumentError
from commsched.torch import _device, _job
from commsched.torch.backend import Backend
from commsched.torch.work import Work

SIZE = 2
TIMEOUT = datetime.timedelta(seconds=60)
SUM = torch.distributed.ReduceOp.SUM


def check_values(data: Any, expected: List[float]) -> None:
    found = stand_in.values(data)
    assert found == expected, found


def all_reduce(backend: Backend, tensor: Any) -> Any:
    opts = c10d.AllreduceOptions()
    opts.reduceOp = SUM
    return backend.allreduce([tensor], opts)


def current_stream_waits_and_the_host_does_not(backend: Backend, rank: int) -> None:
    data = stand_in.tensor([rank + 1.0] * 4, rank)
    released = stand_in.current_stream().hold()
    work = all_reduce(backend, data)
    assert work.wait()  # While its data is not there yet.
    assert not work.is_completed()
    released.set()
    check_values(data, [3.0] * 4)


def results_that_are_copied_are_waited_for(backend: Backend, rank: int) -> None:
    data = stand_in.tensor([rank + 1.0] * 4, rank, packed=False)
    work = all_reduce(backend, data)
    work.wait()
    check_values(data, [3.0] * 4)
    used_on = stand_in.told()
    assert used_on and used_on[-1] != stand_in.current_stream().cuda_stream


def futures_have_results_at_once(backend: Backend, rank: int) -> None:
    data = stand_in.tensor([rank + 1.0] * 4, rank)
    released = stand_in.current_stream().hold()
    future = all_reduce(backend, data).get_future()
    assert future.done()
    seen: List[Any] = []
    future.then(seen.append)
    assert seen
    released.set()
    other = stand_in.Stream(rank)
    with stand_in.stream(other):
        all_reduce(backend, data).wait()
        check_values(data, [6.0] * 4)


def a_wait_with_a_limit_is_the_hosts(backend: Backend, rank: int) -> None:
    data = stand_in.tensor([1.0], rank)
    work = all_reduce(backend, data)
    assert work.wait(TIMEOUT)
    assert work.is_completed()


def sends_meet_receives(backend: Backend, rank: int) -> None:
    if rank == 0:
        data = stand_in.tensor([7.0], rank)
        backend.send([data], 1, 0).wait()
    else:
        data = stand_in.tensor([0.0], rank)
        backend.recv([data], 0, 0).wait()
    check_values(data, [7.0])


def calls_on_the_host_are_the_hosts(backend: Backend, rank: int) -> None:
    data = torch.tensor([rank + 1.0])
    all_reduce(backend, data).wait()
    assert data.item() == 3


def a_barrier_waits_for_streams(backend: Backend, rank: int) -> None:
    opts = c10d.BarrierOptions()
    opts.device = torch.device("cuda", rank)
    released = stand_in.current_stream().hold()
    work = backend.barrier(opts)
    assert isinstance(work, Work) and not work.is_completed()
    released.set()
    work.wait()


def another_device_is_refused(backend: Backend, rank: int) -> None:
    data = stand_in.tensor([1.0], 1 - rank)
    try:
        all_reduce(backend, data)
    except InvalidArgumentError as error:
        assert f"a tensor is on cuda:{1 - rank}" in error.message, error.message
        assert f"device is cuda:{rank}" in error.message, error.message
    else:
        raise AssertionError("it was taken")


def memory_is_kept_until_the_end(backend: Backend, rank: int) -> None:
    data = stand_in.tensor([1.0] * 4, rank)
    released = stand_in.current_stream().hold()
    work = all_reduce(backend, data)
    assert work._keep is not None
    released.set()
    work.wait(TIMEOUT)
    assert work._keep is None


CHECKS: List[Callable[[Backend, int], None]] = [
    current_stream_waits_and_the_host_does_not, results_that_are_copied_are_waited_for,
    futures_have_results_at_once, a_wait_with_a_limit_is_the_hosts, sends_meet_receives,
    calls_on_the_host_are_the_hosts, a_barrier_waits_for_streams,
    another_device_is_refused, memory_is_kept_until_the_end]


def run(store: Any, rank: int, failed: List[str]) -> None:
    try:
        stand_in.set_device(rank)
        ordinal = _device.chosen(None)
        assert ordinal == rank
        assert _device.have_one(store, SIZE, ordinal)
        job = _job.Job(store, rank, SIZE, TIMEOUT, ordinal)
        backend = Backend(job, None, "all", TIMEOUT, "all")
        for check in CHECKS:
            check(backend, rank)
            if rank == 0:
                print("ok", check.__name__, flush=True)
        backend.shutdown()
    except BaseException:
        failed.append(f"rank {rank}: {traceback.format_exc()}")
        traceback.print_exc()


def only_some_have_chosen(store: Any, rank: int, failed: List[str]) -> None:
    try:
        _device.have_one(store, SIZE, 3 if rank else None)
        failed.append(f"rank {rank}: it was taken")
    except FailedPreconditionError as error:
        if "1 of 2 ranks have chosen a CUDA device" not in error.message:
            failed.append(error.message)


def on_all(body: Callable[[Any, int, List[str]], None]) -> List[str]:
    store = torch.distributed.HashStore()
    failed: List[str] = []
    threads = [threading.Thread(target=body, args=(store, rank, failed), daemon=True)
               for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        if thread.is_alive():
            failed.append("a rank has not ended in time")
    return failed


if __name__ == "__main__":
    stand_in.install()
    found = on_all(only_some_have_chosen) + on_all(run)
    print("\n".join(found))
    sys.stdout.flush()
    sys.exit(1 if found else 0)
