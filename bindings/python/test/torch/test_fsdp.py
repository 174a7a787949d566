"""cs.attach_fsdp: FSDP2 on channels trains as over Gloo, with gathers that run ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import commsched as cs
import model
from test_training import shard, train

STEPS = 4


def trainings(rank: Any, group: str, max_bytes: int) -> Any:
    network = model.gpt()
    reference = train(rank, shard(network, rank.gloo), network, STEPS)
    network = model.gpt()
    sharded = shard(network, getattr(rank, group))
    attached = cs.attach_fsdp(sharded, max_bytes=max_bytes)
    ours = train(rank, sharded, network, STEPS)
    found = attached.prefetched, attached.peak_bytes
    attached.close()
    return reference, ours, found


def bytes_of_a_block() -> int:
    return sum(4 * parameter.numel() for parameter in model.gpt().blocks[0].parameters())


@pytest.mark.parametrize("group", ["ours", "gloo"])
def test_losses_and_parameters_are_those_of_fsdp2_over_gloo(pool: Any,
                                                            group: str) -> None:
    for reference, ours, _ in pool.run(trainings, group, 1 << 30):
        assert model.difference(reference, ours) <= 1e-6


@pytest.mark.parametrize("blocks", [0, 1, 2, 3])
def test_no_more_is_gathered_ahead_than_the_cap_says(pool: Any, blocks: int) -> None:
    # One byte short of another block.
    cap = (blocks + 1) * bytes_of_a_block() - 1
    for _, _, (prefetched, peak) in pool.run(trainings, "ours", cap):
        names = [f"blocks.{index}" for index in range(3)]
        assert prefetched[""] == names[:blocks]
        assert prefetched["blocks.0"] == names[1:1 + blocks]
        assert prefetched["blocks.2"] == []
        # What is gathered because it is needed now comes besides.
        assert 0 < peak <= cap + max(bytes_of_a_block(), bytes_of_the_root())


def bytes_of_the_root() -> int:
    blocks = 3 * bytes_of_a_block()
    return sum(4 * parameter.numel() for parameter in model.gpt().parameters()) - blocks


def refused(rank: Any) -> None:
    with pytest.raises(ValueError, match="has been given to fully_shard"):
        cs.attach_fsdp(torch.nn.Linear(2, 2))


def test_a_model_without_fsdp_is_refused(pool: Any) -> None:
    pool.run(refused)
