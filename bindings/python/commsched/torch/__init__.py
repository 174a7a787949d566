"""commsched for PyTorch.

    torch.distributed.init_process_group("commsched")

needs no import: PyTorch finds the backend by its entry point. `ddp(model)` has a
recorded plan carry the buckets of DistributedDataParallel, over any backend.
docs/python_torch.md says what there is.
"""

from __future__ import annotations

from ._register import OLDEST_BACKEND, has_backend, register
from .ddp import Counters, Recorded, ddp, recorded

__all__ = ["Counters", "has_backend", "OLDEST_BACKEND", "Recorded", "ddp", "recorded",
           "register"]

if not has_backend():  # It does not look for entry points either.
    register()
