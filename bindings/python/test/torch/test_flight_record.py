"""PyTorch's flight recorder has what our groups did, and torchfrtrace reads it."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed.flight_recorder import fr_trace

import ranks as rank_processes


def record(rank: Any, folder: str) -> Any:
    rank.start()
    for count in (3, 5):
        dist.all_reduce(torch.ones(count))
    if rank.rank == 0:
        dist.broadcast(torch.ones(7), 0, async_op=True)
    else:
        dist.broadcast(torch.ones(7), 0)
    dumped = c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=False,
                                 onlyActive=False, backend="commsched")
    pathlib.Path(folder, f"rank_{rank.rank}").write_bytes(dumped)
    return pickle.loads(dumped)


def test_torchfrtrace_matches_what_ranks_recorded(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    with rank_processes.Ranks(2, started=False) as ranks:
        for recorded in ranks.run(record, str(folder)):
            names = [entry["profiling_name"] for entry in recorded["entries"]]
            assert [name.rpartition(":")[2] for name in names] == [
                "all_reduce", "all_reduce", "broadcast"]
            assert recorded["entries"][1]["input_sizes"] == [[5]]
    fr_trace.main([str(folder), "--prefix", "rank_", "-o", str(tmp_path / "matched")])
    _, matched = pickle.loads((tmp_path / "matched").read_bytes())
    assert len(matched.collectives) == 3
    for collective in matched.collectives:
        assert collective.expected_ranks == {0, 1}
        assert not collective.missing_ranks and not collective.mismatch_collectives
