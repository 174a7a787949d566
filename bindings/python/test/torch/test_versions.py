"""What the oldest PyTorch has: cs.ddp and cs.attach_fsdp over Gloo; from 2.14 on the
backend, which older ones refuse by name. The report has tests of its own."""

from __future__ import annotations

from typing import Any, Iterator

import pytest
import torch
import torch.distributed as dist

import commsched as cs
import commsched.torch
import model
import ranks as rank_processes
import test_ddp
import test_fsdp


@pytest.fixture(scope="module")
def over_gloo(installed: None) -> Iterator[rank_processes.Ranks]:
    with rank_processes.Ranks(2, started=False) as ranks:
        ranks.run(rank_processes.Rank.start, "gloo")
        yield ranks


@pytest.mark.parametrize("way", list(test_ddp.WAYS))
def test_ddp_by_a_recorded_plan(over_gloo: rank_processes.Ranks, way: str) -> None:
    for reference, ours, counters in over_gloo.run(test_ddp.one_way, way, "gloo"):
        assert model.difference(reference, ours) <= 1e-6
        assert counters.replayed >= 1


def test_fsdp_on_channels(over_gloo: rank_processes.Ranks) -> None:
    for reference, ours, (prefetched, _) in over_gloo.run(
            test_fsdp.trainings, "gloo", 1 << 30):
        assert model.difference(reference, ours) <= 1e-6
        assert prefetched[""] == ["blocks.0", "blocks.1", "blocks.2"]


def start(rank: Any) -> Any:
    try:
        rank.start()
    except cs.UnimplementedError as refused:
        return str(refused)
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def test_the_backend_is_there_or_says_from_when_on(installed: None) -> None:
    with rank_processes.Ranks(2, started=False) as ranks:
        for found in ranks.run(start):
            if commsched.torch.has_backend():
                assert found == 2
            else:
                assert f"PyTorch {torch.__version__}" in found
                assert "2.14 or newer" in found and "commsched.ddp()" in found
