"""commsched for PyTorch: the process-group backend "commsched".

    torch.distributed.init_process_group("commsched")

needs no import: PyTorch finds the backend by its entry point. docs/python_torch.md says
what there is.
"""

from __future__ import annotations

from ._register import OLDEST_BACKEND, register

__all__ = ["OLDEST_BACKEND", "register"]
