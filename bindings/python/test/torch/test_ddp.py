"""cs.ddp: a recorded plan gives the gradients that DDP over Gloo gives."""

from __future__ import annotations

import contextlib
from typing import Any, Dict

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import commsched as cs
import model
import ranks as rank_processes
from commsched.torch import recorded
from test_training import train

STEPS = 7
SMALL = {"bucket_cap_mb": 0.05}

# What DDP is asked for, and how the model is called.
WAYS: Dict[str, Any] = {
    "plain": {}, "views": {"gradient_as_bucket_view": True},
    "static_graph": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
}


def one_way(rank: Any, way: str, group: str) -> Any:
    spare = way == "unused"

    def call(step: int) -> Dict[str, Any]:
        return {"use_spare": step % 2 == 1} if spare else {}

    network = model.gpt(spare=spare)
    reference = train(rank, DistributedDataParallel(
        network, process_group=rank.gloo, **SMALL, **WAYS[way]), network, STEPS, call)
    network = model.gpt(spare=spare)
    module = cs.ddp(network, process_group=getattr(rank, group), **SMALL, **WAYS[way])
    ours = train(rank, module, network, STEPS, call)
    counters = recorded(module).counters
    recorded(module).close()
    return reference, ours, counters


@pytest.mark.parametrize("group", ["ours", "gloo"])
@pytest.mark.parametrize("way", list(WAYS))
def test_losses_and_parameters_are_those_of_ddp(any_pool: Any, way: str,
                                                group: str) -> None:
    found = any_pool.run(one_way, way, group)
    for reference, ours, counters in found:
        assert model.difference(reference, ours) <= 1e-6
        assert counters.buckets > 1
        assert counters.replayed >= 1 and counters.plans == 1
        assert counters.eager + counters.recorded + counters.replayed == STEPS


def settled(rank: Any) -> Any:
    network = model.gpt()
    module = cs.ddp(network, **SMALL)
    train(rank, module, network, STEPS)
    counters = recorded(module).counters
    recorded(module).close()
    return counters


def test_two_backwards_are_eager_two_are_recorded_and_the_rest_replayed(
        pool: Any) -> None:
    for counters in pool.run(settled):
        assert counters[:3] == (2, 2, STEPS - 4)


def no_sync(rank: Any) -> None:
    def accumulate(module: Any, network: Any) -> Any:
        optimizer = model.optimizer_of(network)
        losses = []
        for step in range(3 * STEPS):
            last = step % 3 == 2
            with contextlib.nullcontext() if last else module.no_sync():
                loss = module(model.text(step, rank.rank))
                loss.backward()
            losses.append(loss.item())
            if last:
                optimizer.step()
                optimizer.zero_grad()
        return losses, {n: t.detach().clone() for n, t in network.named_parameters()}

    network = model.gpt()
    reference = accumulate(DistributedDataParallel(
        network, process_group=rank.gloo, **SMALL), network)
    network = model.gpt()
    module = cs.ddp(network, **SMALL)
    assert model.difference(reference, accumulate(module, network)) <= 1e-6
    assert recorded(module).counters[:3] == (2, 2, STEPS - 4)
    recorded(module).close()


def test_backwards_under_no_sync_reduce_nothing(pool: Any) -> None:
    pool.run(no_sync)


def compressed(rank: Any) -> Any:
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
        bf16_compress_hook)
    network = model.gpt()
    exact = train(rank, DistributedDataParallel(network, process_group=rank.gloo,
                                                **SMALL), network, STEPS)
    network = model.gpt()
    theirs = DistributedDataParallel(network, process_group=rank.gloo, **SMALL)
    theirs.register_comm_hook(rank.gloo, bf16_compress_hook)
    torchs = train(rank, theirs, network, STEPS)
    network = model.gpt()
    module = cs.ddp(network, compression="bf16", **SMALL)
    ours = train(rank, module, network, STEPS)
    recorded(module).close()
    return exact, torchs, ours


def test_bf16_is_no_further_from_exact_than_pytorchs_own_hook(pool: Any) -> None:
    for exact, torchs, ours in pool.run(compressed):
        assert 0 < model.difference(exact, ours)
        assert model.difference(exact, ours) <= 1.5 * model.difference(exact, torchs)


def wraps_a_ddp(rank: Any) -> None:
    network = model.gpt()
    made = DistributedDataParallel(network, process_group=rank.gloo, **SMALL)
    assert cs.ddp(made) is made
    train(rank, made, network, 2)
    assert recorded(made).counters.eager == 2
    with pytest.raises(ValueError, match="has its plan already"):
        cs.ddp(made)
    with pytest.raises(ValueError, match="bucket_cap_mb"):
        cs.ddp(DistributedDataParallel(network, process_group=rank.gloo), **SMALL)
    with pytest.raises(ValueError, match="compression is 'int8'; it is one of"):
        cs.ddp(network, compression="int8")
    recorded(made).close()


def test_a_module_that_is_ddp_already_is_taken_as_it_is(pool: Any) -> None:
    pool.run(wraps_a_ddp)


def two_modules(rank: Any) -> None:
    networks = [model.gpt(), model.gpt(layers=1)]
    modules = [cs.ddp(network, **SMALL) for network in networks]
    for network, module in zip(networks, modules):
        train(rank, module, network, STEPS)
    assert [recorded(m).counters.replayed for m in modules] == [STEPS - 4] * 2
    for module in modules:
        recorded(module).close()


def test_modules_have_plans_of_their_own(pool: Any) -> None:
    pool.run(two_modules)


def train_on(rank: Any) -> str:
    module, network = KEPT
    said = []
    for _ in range(2):
        with pytest.raises(RuntimeError) as failed:
            module(model.text(0, 0)).backward()
        said.append(str(failed.value))
    return said[0]


KEPT: Any = None


def keep(rank: Any) -> None:
    global KEPT
    rank.start()
    network = model.gpt()
    KEPT = cs.ddp(network, **SMALL), network
    train(rank, *KEPT, 5)


def test_the_loss_of_a_rank_comes_out_of_backward_and_names_it() -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        ranks.run(keep)
        ranks.kill(1)
        said = ranks.run(train_on, among=[0])[0]
    assert "rank 1" in said
