"""DeepSpeed's ZeRO stages 1 to 3 train as they do over Gloo."""

from __future__ import annotations

import os
from typing import Any, Dict, Iterator, List

import pytest
import torch
import torch.distributed as dist

os.environ.setdefault("DS_ACCELERATOR", "cpu")
deepspeed = pytest.importorskip("deepspeed")
deepspeed.ops.__compatible_ops__ = {}  # None of them is compiled.

import model  # noqa: E402
import ranks as rank_processes  # noqa: E402
from test_examples import free_port  # noqa: E402

STEPS = 4
STAGES = [1, 2, 3]
# Several buckets in a step, and in stage 3 parameters that are gathered.
ELEMENTS = 5000
WAYS: Dict[str, Dict[str, Any]] = {
    "plain": {},
    "overlapped": {"overlap_comm": True, "contiguous_gradients": True},
    "all_reduced": {"reduce_scatter": False},
}


def start(rank: Any, backend: str, port: int) -> None:
    """As a script does that torchrun has started."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    assert dist.get_backend() == backend


@pytest.fixture(scope="module")
def jobs(request: pytest.FixtureRequest,
         installed: None) -> Iterator[List[rank_processes.Ranks]]:
    """The same ranks over Gloo and over ours."""
    size = request.config.getoption("--ranks")
    made = []
    for backend in ("gloo", "commsched"):
        made.append(rank_processes.Ranks(size, started=False))
        made[-1].run(start, backend, free_port())
    yield made
    # The later ones hold the earlier ones' pipes.
    assert [each.close() for each in reversed(made)] == [[0] * size] * 2


def zero(stage: int, way: str) -> Dict[str, Any]:
    found = {"stage": stage, "reduce_bucket_size": ELEMENTS,
             "allgather_bucket_size": ELEMENTS, **WAYS[way]}
    if stage == 3:
        found["stage3_prefetch_bucket_size"] = ELEMENTS
        found["stage3_param_persistence_threshold"] = 100
    return found


def train(rank: Any, stage: int, way: str = "plain", accumulate: int = 1,
          bf16: bool = False) -> model.Trained:
    """The losses, each step's gradients and the parameters in the end."""
    network = model.gpt()
    engine, _, _, _ = deepspeed.initialize(
        model=network, optimizer=model.optimizer_of(network),
        config={"train_micro_batch_size_per_gpu": model.BATCH,
                "gradient_accumulation_steps": accumulate,
                "bf16": {"enabled": bf16}, "steps_per_print": 10**9,
                "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False,
                "zero_optimization": zero(stage, way)})
    losses, seen = [], {}
    for step in range(STEPS * accumulate):
        loss = engine(model.text(step, rank.rank))
        engine.backward(loss)
        if engine.is_gradient_accumulation_boundary():
            for name, parameter in network.named_parameters():
                seen[f"{name}.grad of {step}"] = (
                    deepspeed.utils.safe_get_full_grad(parameter).float().clone())
        engine.step()
        losses.append(loss.item())
    for name, parameter in network.named_parameters():
        seen[name] = deepspeed.utils.safe_get_full_fp32_param(parameter).clone()
    engine.destroy()
    return losses, seen


def check_same(jobs: List[rank_processes.Ranks], *arguments: Any) -> None:
    gloo, ours = (job.run(train, *arguments) for job in jobs)
    for reference, found in zip(gloo, ours):
        assert len(set(found[0])) == len(found[0]) > 1
        assert model.difference(reference, found) <= 1e-6


@pytest.mark.parametrize("way", list(WAYS))
@pytest.mark.parametrize("stage", STAGES)
def test_losses_gradients_and_parameters_are_those_over_gloo(
        jobs: List[rank_processes.Ranks], stage: int, way: str) -> None:
    check_same(jobs, stage, way)


@pytest.mark.parametrize("stage", STAGES)
def test_accumulated_gradients_are_those_over_gloo(
        jobs: List[rank_processes.Ranks], stage: int) -> None:
    check_same(jobs, stage, "plain", 2)


def own_gradients(rank: Any) -> Dict[str, torch.Tensor]:
    """What this rank gives to the first step's sums."""
    network = model.gpt().bfloat16()
    network(model.text(0, rank.rank)).backward()
    return {name: parameter.grad.double()
            for name, parameter in network.named_parameters()}


def error_of_first_sums(averages: Dict[str, torch.Tensor], found: model.Trained) -> float:
    return sum(float((found[1][f"{name}.grad of 0"].double() - exact).square().sum())
               for name, exact in averages.items()) ** 0.5


@pytest.mark.parametrize("stage", STAGES)
def test_bf16_is_no_further_from_fp32_than_over_gloo(
        jobs: List[rank_processes.Ranks], stage: int) -> None:
    references = jobs[0].run(train, stage)
    gloo, ours = (job.run(train, stage, "plain", 1, True) for job in jobs)
    given = jobs[0].run(own_gradients)
    averages = {name: sum(each[name] for each in given) / len(given)
                for name in given[0]}
    # Two numbers have one sum, and trainings of two ranks the same bits. Sums of more
    # are rounded more often by Gloo; how far the steps behind them lead is chance.
    room = 1 + 1e-6 if len(given) == 2 else 1.5
    for reference, theirs, found in zip(references, gloo, ours):
        error = error_of_first_sums(averages, theirs)
        assert 0 < error_of_first_sums(averages, found) <= error * (1 + 1e-6)
        far = model.difference(reference, theirs)
        assert 1e-4 < far < 0.1
        assert model.difference(reference, found) <= far * room


def twice(rank: Any, stage: int) -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return train(rank, stage), train(rank, stage)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("stage", STAGES)
def test_deterministic_trainings_have_the_same_bits(
        jobs: List[rank_processes.Ranks], stage: int) -> None:
    for first, second in jobs[1].run(twice, stage):
        assert first[0] == second[0]
        assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])
