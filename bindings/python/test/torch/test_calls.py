"""Each call of a process group gives what Gloo's gives: on two ranks bit by bit; on
more, sums of floating point have another order."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import pytest
import torch
import torch.distributed as dist

Body = Callable[[Any, Any], Any]
CALLS: Dict[str, Body] = {}


def call(body: Body) -> Body:
    """`body(rank, group)` returns tensors, or lists of them."""
    CALLS[body.__name__] = body
    return body


def values(rank: Any, count: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Other values on each rank, in each place."""
    made = torch.arange(count) % 11 + 3 * rank.rank + 1
    if dtype.is_floating_point:
        return (made / 7).to(dtype)
    return made.to(dtype)


@call
def all_reduce(rank, group):
    found = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MIN, dist.ReduceOp.MAX,
               dist.ReduceOp.PRODUCT):
        tensor = values(rank, 1000)
        dist.all_reduce(tensor, op, group=group)
        found.append(tensor)
    return found


@call
def all_reduce_of_types(rank, group):
    found = []
    for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.int8,
                  torch.uint8, torch.int32, torch.int64):
        tensor = values(rank, 33, dtype)
        dist.all_reduce(tensor, group=group)
        found.append(tensor)
    return found


@call
def all_reduce_of_bits(rank, group):
    found = []
    for op in (dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR):
        tensor = values(rank, 100, torch.int32)
        dist.all_reduce(tensor, op, group=group)
        found.append(tensor)
    return found


@call
def all_reduce_of_complex(rank, group):
    tensor = torch.complex(values(rank, 9), -values(rank, 9))
    dist.all_reduce(tensor, group=group)
    return tensor


@call
def all_reduce_of_2_million(rank, group):
    tensor = values(rank, 2_000_003)
    dist.all_reduce(tensor, group=group)
    return tensor


@call
def broadcast(rank, group):
    found = [values(rank, 77), values(rank, 5, torch.bool),
             values(rank, 6, torch.int64), values(rank, 8).to(torch.bfloat16)]
    for root, tensor in enumerate(found):
        dist.broadcast(tensor, root % rank.size, group=group)
    return found


@call
def reduce_to_each_root(rank, group):
    found = []
    for root in range(rank.size):
        tensor = values(rank, 50)
        dist.reduce(tensor, root, group=group)
        if rank.rank == root:
            found.append(tensor)
    return found


@call
def all_gather(rank, group):
    found = [torch.empty(3, 4) for _ in range(rank.size)]
    dist.all_gather(found, values(rank, 12).view(3, 4), group=group)
    return found


@call
def all_gather_into_parts_of_a_whole(rank, group):
    whole = torch.zeros(rank.size * 6)
    dist.all_gather(list(whole.chunk(rank.size)), values(rank, 6), group=group)
    return whole


@call
def all_gather_into_tensor(rank, group):
    whole = torch.empty(rank.size * 10)
    dist.all_gather_into_tensor(whole, values(rank, 10), group=group)
    return whole


@call
def all_gather_in_place(rank, group):
    whole = torch.zeros(rank.size * 10)
    mine = whole[rank.rank * 10:(rank.rank + 1) * 10]
    mine.copy_(values(rank, 10))
    dist.all_gather_into_tensor(whole, mine, group=group)
    return whole


@call
def reduce_scatter(rank, group):
    found = torch.empty(7)
    parts = list(values(rank, 7 * rank.size).chunk(rank.size))
    dist.reduce_scatter(found, parts, dist.ReduceOp.MAX, group=group)
    return found


@call
def reduce_scatter_tensor(rank, group):
    found = torch.empty(7, dtype=torch.float64)
    dist.reduce_scatter_tensor(found, values(rank, 7 * rank.size, torch.float64),
                               group=group)
    return found


@call
def gather_and_scatter(rank, group):
    found = []
    for root in range(rank.size):
        at_root = rank.rank == root
        into = [torch.empty(5) for _ in range(rank.size)] if at_root else None
        dist.gather(values(rank, 5), into, dst=root, group=group)
        found += into or []
        part = torch.empty(4)
        parts = list(values(rank, 4 * rank.size).chunk(rank.size))
        dist.scatter(part, parts if at_root else None, src=root, group=group)
        found.append(part)
    return found


@call
def all_to_all_single(rank, group):
    output = torch.empty(rank.size * 3)
    dist.all_to_all_single(output, values(rank, rank.size * 3), group=group)
    return output


@call
def all_to_all_single_of_uneven_rows(rank, group):
    sent = [rank.rank + to for to in range(rank.size)]
    received = [source + rank.rank for source in range(rank.size)]
    output = torch.empty(sum(received), 3)
    dist.all_to_all_single(output, values(rank, sum(sent) * 3).view(-1, 3), received,
                           sent, group=group)
    return output


@call
def all_to_all(rank, group):
    sent = list(values(rank, 3 * rank.size).chunk(rank.size))
    found = [torch.empty(3) for _ in range(rank.size)]
    dist.all_to_all(found, sent, group=group)
    return found


@call
def sends_with_tags(rank, group):
    if rank.rank == 0:
        dist.send(values(rank, 4), 1, group=group, tag=1)
        dist.send(values(rank, 5), 1, group=group, tag=2)
        return []
    if rank.rank == 1:
        first, second = torch.empty(4), torch.empty(5)
        dist.recv(first, 0, group=group, tag=1)
        dist.recv(second, 0, group=group, tag=2)
        return [first, second]
    return []


@call
def ring_of_isends(rank, group):
    found = torch.empty(6)
    works = [dist.isend(values(rank, 6), (rank.rank + 1) % rank.size, group=group),
             dist.irecv(found, (rank.rank - 1) % rank.size, group=group)]
    for work in works:
        work.wait()
    return found


@call
def batch_isend_irecv(rank, group):
    found = [torch.empty(6) for _ in range(100)]
    to, source = (rank.rank + 1) % rank.size, (rank.rank - 1) % rank.size
    ops = []
    for index, tensor in enumerate(found):
        ops.append(dist.P2POp(dist.irecv, tensor, source, group))
        ops.append(dist.P2POp(dist.isend, values(rank, 6) + index, to, group))
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return found


@call
def objects(rank, group):
    found: List[Any] = [None] * rank.size
    dist.all_gather_object(found, {"rank": rank.rank}, group=group)
    told = [("root", rank.rank), None]
    dist.broadcast_object_list(told, 0, group=group)
    gathered: List[Any] = [None] * rank.size
    dist.gather_object(rank.rank, gathered if rank.rank == 0 else None, 0, group=group)
    mine: List[Any] = [None]
    dist.scatter_object_list(mine, list("abcdefgh")[:rank.size], 0, group=group)
    return [found, told, gathered if rank.rank == 0 else [], mine]


@call
def coalesced_all_reduces(rank, group):
    found = [values(rank, 10), values(rank, 2000)]
    with dist._coalescing_manager(group):
        for tensor in found:
            dist.all_reduce(tensor, group=group)
    return found


@call
def coalesced_gathers_and_scatters(rank, group):
    wholes = [torch.empty(rank.size * 8), torch.empty(rank.size * 3)]
    with dist._coalescing_manager(group, async_ops=True) as manager:
        for whole in wholes:
            dist.all_gather_into_tensor(
                whole, values(rank, whole.numel() // rank.size), group=group)
    manager.wait()
    return wholes


@call
def gathers_of_lists(rank, group):
    """A list for each rank, with a tensor for each that it gives."""
    given = [values(rank, 10), values(rank, 3).reshape(3, 1)]
    found = [[torch.empty_like(each) for each in given] for _ in range(rank.size)]
    dist.all_gather_coalesced(found, given, group=group)
    return found


def run_on_both(rank: Any, name: str) -> Any:
    body = CALLS[name]
    return body(rank, rank.gloo), body(rank, rank.ours)


def same(one: Any, other: Any, exact: bool) -> bool:
    if isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if exact or not (one.is_floating_point() or one.is_complex()):
            return torch.equal(one, other)
        # Gloo rounds 16-bit sums after each rank.
        wide = 1e-2 if one.element_size() == 2 else 1e-6
        return torch.allclose(one, other, rtol=wide, atol=0)
    if isinstance(one, list):
        return len(one) == len(other) and all(
            same(mine, its, exact) for mine, its in zip(one, other))
    return bool(one == other)


@pytest.mark.parametrize("name", list(CALLS))
def test_call_gives_what_gloo_gives(any_pool: Any, name: str) -> None:
    found = any_pool.run(run_on_both, name)
    for rank, (gloo, ours) in enumerate(found):
        assert same(gloo, ours, exact=len(found) == 2), (
            f"rank {rank}: Gloo {gloo}, commsched {ours}")
