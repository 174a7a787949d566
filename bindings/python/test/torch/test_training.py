"""DDP, FSDP2, DTensor and functional collectives train as they do over Gloo."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, Dict

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import model

STEPS = 4
Body = Callable[[Any, Any], model.Trained]
TRAININGS: Dict[str, Body] = {}


def training(body: Body) -> Body:
    TRAININGS[body.__name__] = body
    return body


def train(rank: Any, module: Any, network: torch.nn.Module, steps: int = STEPS,
          call: Callable[[int], Dict[str, Any]] = lambda step: {}) -> model.Trained:
    optimizer = model.optimizer_of(network)
    losses = []
    for step in range(steps):
        loss = module(model.text(step, rank.rank), **call(step))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: whole(tensor.detach())
                    for name, tensor in network.named_parameters()}


def whole(tensor: torch.Tensor) -> torch.Tensor:
    full = getattr(tensor, "full_tensor", None)
    return tensor.clone() if full is None else full()


@training
def ddp(rank, group):
    network = model.gpt()
    return train(rank, DistributedDataParallel(
        network, process_group=group, bucket_cap_mb=0.05), network)


@training
def ddp_of_views(rank, group):
    network = model.gpt()
    return train(rank, DistributedDataParallel(
        network, process_group=group, bucket_cap_mb=0.05,
        gradient_as_bucket_view=True), network)


@training
def ddp_static_graph(rank, group):
    network = model.gpt()
    return train(rank, DistributedDataParallel(
        network, process_group=group, bucket_cap_mb=0.05, static_graph=True), network)


@training
def ddp_with_unused_parameters(rank, group):
    network = model.gpt(spare=True)
    return train(rank, DistributedDataParallel(
        network, process_group=group, find_unused_parameters=True), network,
        call=lambda step: {"use_spare": step % 2 == 1})


@training
def ddp_with_no_sync(rank, group):
    network = model.gpt()
    module = DistributedDataParallel(network, process_group=group)
    optimizer = model.optimizer_of(network)
    losses = []
    for step in range(2 * STEPS):
        last = step % 2 == 1
        with contextlib.nullcontext() if last else module.no_sync():
            loss = module(model.text(step, rank.rank))
            loss.backward()
        losses.append(loss.item())
        if last:
            optimizer.step()
            optimizer.zero_grad()
    return losses, {n: t.detach().clone() for n, t in network.named_parameters()}


def shard(network: torch.nn.Module, group: Any, **options: Any) -> torch.nn.Module:
    mesh = DeviceMesh.from_group(group, "cpu")
    for block in network.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(network, mesh=mesh, **options)


@training
def fsdp2(rank, group):
    network = model.gpt()
    return train(rank, shard(network, group), network)


@training
def fsdp2_keeping_parameters(rank, group):
    network = model.gpt()
    return train(rank, shard(network, group, reshard_after_forward=False), network)


@training
def fsdp2_in_bf16(rank, group):
    network = model.gpt()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16,
                                  reduce_dtype=torch.float32)
    return train(rank, shard(network, group, mp_policy=policy), network)


@training
def dtensor(rank, group):
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(3)
    left = distribute_tensor(torch.randn(8, 6, requires_grad=True), mesh, [Shard(0)])
    right = distribute_tensor(torch.randn(6, 4, requires_grad=True), mesh, [Shard(1)])
    product = (left @ right).redistribute(mesh, [Replicate()])
    moved = left.redistribute(mesh, [Shard(1)])
    loss = product.square().sum() + moved.abs().sum()
    loss.backward()
    return [loss.full_tensor().item()], {
        "left": whole(left.grad), "right": whole(right.grad),
        "product": whole(product.detach())}


@training
def functional_collectives(rank, group):
    mine = torch.arange(8.0) + rank.rank
    parts = torch.arange(2.0 * rank.size) * (rank.rank + 1)
    # To each as much as to the others, and the rest to the first.
    sent = [8 - (rank.size - 1)] + [1] * (rank.size - 1)
    received = [sent[0] if rank.rank == 0 else 1] * rank.size
    found = {
        "all_reduce": functional.all_reduce(mine, "sum", group),
        "all_gather": functional.all_gather_tensor(mine, 0, group),
        "reduce_scatter": functional.reduce_scatter_tensor(parts, "sum", 0, group),
        "all_to_all": functional.all_to_all_single(mine, received, sent, group),
        "broadcast": functional.broadcast(mine, 1, group),
        "coalesced": torch.cat(functional.all_reduce_coalesced([mine, 2 * mine], "max",
                                                               group)),
    }
    return [], {name: tensor + 0 for name, tensor in found.items()}


def on_both(rank: Any, name: str) -> Any:
    body = TRAININGS[name]
    return body(rank, rank.gloo), body(rank, rank.ours)


@pytest.mark.parametrize("name", list(TRAININGS))
def test_training_is_that_over_gloo(any_pool: Any, name: str) -> None:
    found = any_pool.run(on_both, name)
    for gloo, ours in found:
        assert model.difference(gloo, ours) <= 1e-6
        assert len(set(ours[0])) == len(ours[0])


def twice(rank: Any) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return [ddp(rank, rank.ours), ddp(rank, rank.ours)]
    finally:
        torch.use_deterministic_algorithms(False)


def test_deterministic_trainings_have_the_same_bits(any_pool: Any) -> None:
    for first, second in any_pool.run(twice):
        assert first[0] == second[0]
        assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
