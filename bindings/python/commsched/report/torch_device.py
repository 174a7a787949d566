"""PyTorch's profiler around a run on CUDA; nothing on a machine without it."""

from __future__ import annotations

import json
import os
import tempfile
import time
from typing import Any, Optional

import torch

from .device_rows import with_device_rows
from .model import RankTrace


class DeviceProfiler:
    """Records kernels and the calls that launch them, not what the host does."""

    def __init__(self) -> None:
        self._profiler: Any = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CUDA]
        )
        self._profiler.start()

    def add_to(self, trace: RankTrace) -> RankTrace:
        """Stops; returns `trace` with the times of the device."""
        torch.cuda.synchronize()
        to_monotonic_ns = time.monotonic_ns() - time.time_ns()
        self._profiler.stop()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "kineto.json")
            self._profiler.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                kineto = json.load(file)
        return with_device_rows(trace, kineto, to_monotonic_ns)


def start_device_profiler() -> Optional[DeviceProfiler]:
    """None where there is no device, or another profiler runs already."""
    if not torch.cuda.is_available():
        return None
    if torch._C._autograd._profiler_enabled():
        return None
    return DeviceProfiler()
