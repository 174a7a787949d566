"""The pool of ranks itself."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
import torch.distributed as dist

import ranks as rank_processes


def sum_of_ranks(rank: Any) -> float:
    if not dist.is_initialized():
        rank.start("gloo")
    tensor = torch.ones(1) + rank.rank
    dist.all_reduce(tensor)
    return float(tensor.item())


def raise_on(rank: Any, which: int) -> None:
    if rank.rank == which:
        raise ValueError("seven is not eight")


def end_on(rank: Any, which: int) -> None:
    if rank.rank == which:
        os._exit(7)


def process(rank: Any) -> int:
    return os.getpid()


@pytest.fixture
def ranks() -> Any:
    with rank_processes.Ranks(2, started=False) as made:
        yield made


def test_ranks_compute_together_and_stay_for_the_next_case(ranks: Any) -> None:
    before = ranks.run(process)
    assert ranks.run(sum_of_ranks) == [3.0, 3.0]
    assert ranks.run(sum_of_ranks) == [3.0, 3.0]
    assert ranks.run(process) == before
    assert ranks.close() == [0, 0]


def test_what_a_rank_raises_fails_the_case_and_names_it(ranks: Any) -> None:
    with pytest.raises(rank_processes.CaseFailed) as failed:
        ranks.run(raise_on, 1)
    assert "rank 1 raised" in str(failed.value)
    assert "seven is not eight" in str(failed.value)
    assert "rank 0" not in str(failed.value)


def test_a_rank_that_ends_fails_the_case_with_its_exit_code(ranks: Any) -> None:
    with pytest.raises(rank_processes.CaseFailed, match="rank 0 ended: exit code 7"):
        ranks.run(end_on, 0)
