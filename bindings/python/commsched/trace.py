"""Traces: what sessions and channels did, when."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Dict, Optional

from ._enums import Format
from ._handle import Owner
from ._lib import abi
from ._text import text_of
from .errors import check

if TYPE_CHECKING:
    from .context import Context

_create = abi.function("commsched_trace_create")
_destroy = abi.function("commsched_trace_destroy")
_num_steps = abi.function("commsched_trace_num_steps")
_step_metrics = abi.function("commsched_trace_step_metrics")
_recent_step = abi.function("commsched_trace_recent_step")
_step_blame = abi.function("commsched_trace_step_blame")
_explain = abi.function("commsched_trace_explain")
_writers = {name: abi.function("commsched_trace_write_" + name)
            for name in ("kineto", "perfetto", "metrics")}


class Trace(Owner):
    """A ring of `capacity` records of one rank. It is read when no session runs a
    step."""

    def __init__(self, context: "Context", capacity: int = 1 << 16) -> None:
        out = ctypes.c_void_p()
        check(_create(context.handle, capacity, ctypes.byref(out)))
        self._own(out.value, _destroy)

    @property
    def num_steps(self) -> int:
        """Complete steps that it still holds."""
        return int(_num_steps(self._handle))

    def step_metrics(self, index: int) -> Dict[str, Any]:
        """Times of the `index`-th complete step held: commsched_step_metrics_t."""
        metrics = abi.struct("commsched_step_metrics_t")
        check(_step_metrics(self._handle, index, ctypes.byref(metrics)))
        return abi.values(metrics)

    def recent_step(self, step: int) -> Dict[str, Any]:
        """The same of one of the last few steps, by its number, while steps run."""
        metrics = abi.struct("commsched_step_metrics_t")
        check(_recent_step(self._handle, step, ctypes.byref(metrics)))
        return abi.values(metrics)

    def step_blame(self, index: int) -> Dict[str, Any]:
        """What its exposed communication is owed to: commsched_blame_t."""
        blame = abi.struct("commsched_blame_t")
        check(_step_blame(self._handle, index, ctypes.byref(blame)))
        return abi.values(blame)

    def explain(self, format: Format = Format.TEXT) -> str:
        """Which launches were exposed, why, and which rank was late."""
        return text_of(_explain, self._handle, format)

    def write(self, path: str, kind: Optional[str] = None) -> None:
        """Writes a file: `kind` is "kineto" (Chrome's JSON), "perfetto" or "metrics"
        (Prometheus); without it, what the file's name ends with says."""
        if kind is None:
            kind = ("kineto" if path.endswith(".json") else
                    "perfetto" if path.endswith(".pftrace") else "metrics")
        if kind not in _writers:
            raise ValueError(f"a trace of kind '{kind}'; there are kineto, perfetto "
                             "and metrics")
        check(_writers[kind](self._handle, path.encode()))
