"""What commsched takes and Gloo does not, or not of every type."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

MOVED = [torch.bool, torch.int16, torch.uint16, torch.uint32, torch.uint64,
         torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz,
         torch.complex128]


def of_type(rank: Any, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([0, 1, rank.rank, 1, 0], dtype=torch.float32).to(dtype)


def as_bytes(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def move(rank: Any, dtype: torch.dtype) -> None:
    mine = of_type(rank, dtype)
    told = mine.clone()
    dist.broadcast(told, 1)
    rank.rank = 1  # What rank 1 has.
    assert as_bytes(told) == as_bytes(of_type(rank, dtype))
    rank.rank = dist.get_rank()
    whole = [torch.empty_like(mine) for _ in range(rank.size)]
    dist.all_gather(whole, mine)
    assert as_bytes(whole[rank.rank]) == as_bytes(mine)
    assert as_bytes(whole[1]) == as_bytes(told)


@pytest.mark.parametrize("dtype", MOVED, ids=str)
def test_elements_of_any_type_travel(pool: Any, dtype: torch.dtype) -> None:
    pool.run(move, dtype)


def reduce_bools(rank: Any) -> None:
    mine = torch.tensor([rank.rank == 0, True, False])
    for op, said in ((dist.ReduceOp.SUM, [True, True, False]),
                     (dist.ReduceOp.MAX, [True, True, False]),
                     (dist.ReduceOp.PRODUCT, [False, True, False]),
                     (dist.ReduceOp.MIN, [False, True, False])):
        tensor = mine.clone()
        dist.all_reduce(tensor, op)
        assert tensor.tolist() == said, op


def test_sums_of_bools_say_whether_any_is_true(pool: Any) -> None:
    pool.run(reduce_bools)


def average(rank: Any) -> None:
    tensor = torch.tensor([1.0, 2.0]) * (rank.rank + 1)
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    assert tensor.tolist() == [1.5, 3.0]
    part = torch.empty(1)
    dist.reduce_scatter_tensor(part, torch.tensor([1.0, 2.0]) * (rank.rank + 1),
                               dist.ReduceOp.AVG)
    assert part.item() == [1.5, 3.0][rank.rank]


def test_averages_divide_by_the_number_of_ranks(pool: Any) -> None:
    pool.run(average)


def scale_first(rank: Any) -> None:
    tensor = torch.tensor([1.0, 10.0]) * (rank.rank + 1)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert tensor.tolist() == [1.5, 15.0]


def test_premul_sum_scales_before_it_sums(pool: Any) -> None:
    pool.run(scale_first)


def uneven(rank: Any) -> None:
    sizes = [3, 5]
    whole = [torch.empty(size) for size in sizes]
    dist.all_gather(whole, torch.full((sizes[rank.rank],), rank.rank + 1.0))
    assert [t.tolist() for t in whole] == [[1.0] * 3, [2.0] * 5]
    part = torch.empty(sizes[rank.rank])
    dist.reduce_scatter(part, [torch.ones(size) for size in sizes])
    assert part.tolist() == [2.0] * sizes[rank.rank]
    sent = [torch.full((rank.rank + to + 1,), float(rank.rank)) for to in range(2)]
    found = [torch.empty(source + rank.rank + 1) for source in range(2)]
    dist.all_to_all(found, sent)
    assert [t.tolist() for t in found] == [
        [float(source)] * (source + rank.rank + 1) for source in range(2)]


def test_lists_may_have_tensors_of_other_lengths(pool: Any) -> None:
    pool.run(uneven)


def strided(rank: Any) -> None:
    matrix = torch.zeros(4, 3).t()
    matrix.copy_(torch.arange(12.0).view(3, 4) + rank.rank)
    assert not matrix.is_contiguous()
    dist.all_reduce(matrix)
    assert torch.equal(matrix, 2 * torch.arange(12.0).view(3, 4) + 1)
    dist.broadcast(matrix.mul_(rank.rank), 1)
    assert torch.equal(matrix, 2 * torch.arange(12.0).view(3, 4) + 1)
    whole = torch.empty(4, 6).t()
    dist.all_gather_into_tensor(whole, torch.full((3, 4), float(rank.rank)).t()
                                .reshape(3, 4))
    assert whole[:3].eq(0).all() and whole[3:].eq(1).all()


def test_strides_of_tensors_are_their_own(pool: Any) -> None:
    pool.run(strided)


def nothing(rank: Any) -> None:
    for tensor in (torch.empty(0), torch.empty(3, 0)):
        dist.all_reduce(tensor)
        dist.broadcast(tensor, 0)
    whole = torch.empty(0)
    dist.all_gather_into_tensor(whole, torch.empty(0))
    dist.all_gather([torch.empty(0), torch.empty(0)], torch.empty(0))
    # One rank has something for the other, which has nothing.
    sent = [0, 2] if rank.rank == 0 else [0, 0]
    received = [0, 0] if rank.rank == 0 else [2, 0]
    found = torch.zeros(sum(received))
    dist.all_to_all_single(found, torch.ones(sum(sent)), received, sent)
    assert found.tolist() == [1.0] * sum(received)
    if rank.rank == 0:
        dist.send(torch.empty(0), 1)
    else:
        dist.recv(torch.empty(0), 0)
    number = torch.tensor(rank.rank + 1)
    dist.all_reduce(number)
    assert number.item() == 3


def test_tensors_may_have_no_elements_or_no_dimension(pool: Any) -> None:
    pool.run(nothing)


def sparse(rank: Any) -> None:
    """Each rank has other entries, two at one place among them, or none."""
    rows = torch.tensor([[0, 2, 2], [1, 0, 0]]) + rank.rank
    cases = [torch.sparse_coo_tensor(rows, torch.tensor([1.0, 2.0, 3.0]), (4, 4)),
             torch.sparse_coo_tensor(rows[:1], torch.ones(3, 2), (5, 2)),
             torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64),
                                     torch.zeros(0), (3,))]
    if rank.rank == 1:
        cases.append(torch.zeros(7, dtype=torch.int64).to_sparse())
    else:
        cases.append(torch.arange(7).to_sparse())
    for case in cases:
        theirs, ours = case.clone(), case.clone()
        dist.all_reduce(theirs, group=rank.gloo)
        work = dist.all_reduce(ours, async_op=True)
        work.wait()
        assert ours.is_sparse and torch.equal(ours.to_dense(), theirs.to_dense())


def test_sparse_tensors_are_summed_as_gloo_does_it(pool: Any) -> None:
    pool.run(sparse)


def sparse_gradients(rank: Any, group: Any) -> torch.Tensor:
    torch.manual_seed(3)
    module = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Embedding(10, 4, sparse=True), process_group=group)
    module(torch.tensor([1, rank.rank, 7 + rank.rank])).square().sum().backward()
    return module.module.weight.grad.to_dense()


def sparse_gradients_of_both(rank: Any) -> None:
    assert torch.equal(sparse_gradients(rank, rank.gloo),
                       sparse_gradients(rank, rank.ours))


def test_ddp_reduces_sparse_gradients(pool: Any) -> None:
    pool.run(sparse_gradients_of_both)


def refused(rank: Any) -> None:
    with pytest.raises(NotImplementedError, match="all_reduce of .*float8_e4m3fn"):
        dist.group.WORLD.allreduce([torch.zeros(3).to(torch.float8_e4m3fnuz)])
    with pytest.raises(NotImplementedError, match="sparse tensor by .* only its sum"):
        dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX)
    with pytest.raises(NotImplementedError, match="recv .* any source"):
        dist.recv(torch.zeros(3))
    with pytest.raises(RuntimeError, match="reduction|UNIMPLEMENTED|band"):
        dist.all_reduce(torch.zeros(3), dist.ReduceOp.BAND)
    average(rank)  # The group is as good as before.


def test_what_is_missing_raises_and_names_the_call(pool: Any) -> None:
    pool.run(refused)
