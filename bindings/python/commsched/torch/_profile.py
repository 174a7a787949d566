"""Calls as events of PyTorch's profiler: "commsched:all_reduce", from the issue to the
completion, with the shapes of what they take."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, List, Optional

import torch
from torch.autograd import profiler

_end_with = torch.ops.profiler._call_end_callbacks_on_jit_fut

# Ends events: one that ends on the thread which has begun it would enclose what that
# has done between.
_ender: Optional[ThreadPoolExecutor] = None


class Event:
    """One call, while it is under way."""

    def __init__(self, call: str, tensors: List[torch.Tensor]) -> None:
        self._completed: Any = torch.futures.Future()
        _end_with(torch.autograd._record_function_with_args_enter(
            f"commsched:{call}", *tensors), self._completed)

    def end(self) -> None:
        """Returns once it has ended: who learns of the completion may stop the profiler,
        which gives up the memory of its events."""
        global _ender
        if _ender is None:
            _ender = ThreadPoolExecutor(1, "commsched-profile")
        try:
            _ender.submit(self._finish).result()
        except RuntimeError:  # The program ends, and nobody will look.
            pass

    def _finish(self) -> None:
        if profiler._is_profiler_enabled:
            self._completed.set_result(None)
        # Else it is dropped here, on a thread that no profiler watches.
        self._completed = None


def wanted() -> bool:
    """Whether there is a profiler on this thread."""
    return bool(torch.autograd._profiler_enabled())


def _forget() -> None:
    global _ender
    _ender = None


os.register_at_fork(after_in_child=_forget)
