"""Brings all ranks' traces to rank 0 through the job's store."""

from __future__ import annotations

import datetime
import time
import zlib
from typing import Any, List, Tuple

from .model import RankTrace

_CHUNK_BYTES = 1 << 20


def publish(store: Any, prefix: str, trace: RankTrace) -> None:
    """Puts `trace` into `store`, which must outlive this process."""
    data = zlib.compress(trace.to_json().encode())
    chunks = range(0, len(data), _CHUNK_BYTES)
    for number, begin in enumerate(chunks):
        key = f"{prefix}/{trace.rank}/{number}"
        store.set(key, data[begin : begin + _CHUNK_BYTES])
    store.set(f"{prefix}/{trace.rank}", str(len(chunks)))


def collect(
    store: Any, prefix: str, own: RankTrace, timeout_s: float
) -> Tuple[List[RankTrace], List[int]]:
    """Returns the traces that came within `timeout_s`, and the ranks that none
    came of.
    """
    traces, missing = [own], []
    deadline = time.monotonic() + timeout_s
    for rank in range(own.world_size):
        if rank == own.rank:
            continue
        try:
            traces.append(_fetch(store, f"{prefix}/{rank}", deadline))
        except RuntimeError:  # DistStoreError: it did not come in time.
            missing.append(rank)
    return traces, missing


def _fetch(store: Any, key: str, deadline: float) -> RankTrace:
    left = max(deadline - time.monotonic(), 0.05)
    store.wait([key], datetime.timedelta(seconds=left))
    count = int(store.get(key))
    data = b"".join(store.get(f"{key}/{number}") for number in range(count))
    return RankTrace.from_json(zlib.decompress(data).decode())
