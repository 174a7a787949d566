"""How torch.distributed gets to know the backend."""

from __future__ import annotations

import re
from typing import Any, Optional, Tuple

import torch
import torch.distributed as dist

from ..errors import UnimplementedError

# The oldest PyTorch that dispatches to a backend written in Python.
OLDEST_BACKEND = (2, 14)


def torch_version(text: str) -> Tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", text)
    if found is None:
        raise ValueError(f"PyTorch calls its version '{text}'")
    return int(found[1]), int(found[2])


def has_backend(text: str = torch.__version__) -> bool:
    """Whether PyTorch of that version can have the backend."""
    return torch_version(text) >= OLDEST_BACKEND


def refuse_old(text: str) -> None:
    """Raises UnimplementedError for a PyTorch that cannot have the backend."""
    if not has_backend(text):
        oldest = ".".join(map(str, OLDEST_BACKEND))
        raise UnimplementedError(
            f"init_process_group('commsched') with PyTorch {text}: backends written "
            f"in Python need {oldest} or newer; keep the backend of the job, such as "
            "'gloo', and use commsched.ddp()", op="init_process_group")


def register() -> None:
    """Makes "commsched" a backend. Called by PyTorch by the entry point; again,
    nothing happens."""
    if "COMMSCHED" not in dist.Backend._plugins:
        dist.Backend.register_backend("commsched", _create, extended_api=True,
                                      devices=["cpu", "cuda"])


def _create(opts: Any, options: Optional[Any]) -> Any:
    """One process group: called by c10d on its members."""
    refuse_old(torch.__version__)
    from . import _device, _job
    from .backend import Backend
    from .work import answer_for_works
    if opts.enable_reconfigure:
        raise UnimplementedError("a process group of backend commsched that can be "
                                 "reconfigured", op="init_process_group")
    answer_for_works()
    name, ranks = opts.group_id, list(opts.global_ranks_in_group)
    job = _job.default() if ranks else None
    if job is not None:
        return Backend(job, ranks, name, opts.timeout, name)
    ordinal = _device.chosen(opts.process_group)
    if not _device.have_one(opts.store, opts.group_size, ordinal):
        ordinal = None
    job = _job.Job(opts.store, opts.group_rank, opts.group_size, opts.timeout, ordinal)
    if not ranks:
        _job.remember(job)
    try:
        return Backend(job, None, name, opts.timeout, name)
    except BaseException:
        job.close()
        raise
