"""A report on the code that runs within it: what `cs.report()` returns."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, List, Optional, TextIO, Type

from .gather import collect, publish
from .model import RankTrace
from .recorder import Call, Recorder

if TYPE_CHECKING:
    from .document import Document
    from .torch_device import DeviceProfiler

GATHER_TIMEOUT_S = 60.0
FAILED_GATHER_TIMEOUT_S = 5.0
_reports = 0  # In this process; alike on all ranks, so that keys match.


class Report:
    """Records this process from `with` to its end, then reports on rank 0.

    Every rank of the job takes part, at the same place of the script; rank 0
    waits for the others at the end. It may be entered before or after the
    process group is made, and once. Not thread-safe.
    """

    def __init__(
        self,
        *,
        json: Optional[str] = None,
        html: Optional[str] = None,
        trace: Optional[str] = None,
        skip: int = 1,
        file: Optional[TextIO] = None,
        timeout_s: float = GATHER_TIMEOUT_S,
    ) -> None:
        """
        json, html: files that rank 0 writes.
        trace: a folder in which rank 0 writes a Chrome trace of each rank.
        skip: steps at the beginning that are not reported on.
        file: where rank 0 prints the text; None: standard output.
        timeout_s: how long rank 0 waits for the others.
        """
        self._paths = {"json": json, "html": html, "trace": trace}
        self._skip = skip
        self._file = file
        self._timeout_s = timeout_s
        self._store: Any = None
        self._rank = int(os.environ.get("RANK", "0"))
        self._world_size = 1
        self._undo: List[Callable[[], None]] = []
        self._recorder: Optional[Recorder] = None
        self._prefix = ""
        self._device: Optional[DeviceProfiler] = None
        #: On rank 0, once the report has been left.
        self.document: Optional[Document] = None

    def __enter__(self) -> Report:
        # Here and not above, as the analysis needs no PyTorch.
        from .torch_device import start_device_profiler
        from .torch_hooks import TorchHooks
        from .torch_steps import StepHooks

        global _reports
        _reports += 1
        self._prefix = f"commsched-report/{_reports}"
        self._recorder = Recorder()
        calls = TorchHooks(self._recorder)
        steps = StepHooks(self._recorder, calls)
        note_gradients = calls.on_call

        def on_call(call: Call) -> None:
            if self._store is None:
                self._find_job()
            note_gradients(call)

        calls.on_call = on_call
        calls.install()
        steps.install()
        self._device = start_device_profiler()
        self._undo = [calls.remove, steps.remove]
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        failure = "" if kind is None else f"{kind.__name__}: {error}"
        if isinstance(error, SystemExit) and not error.code:
            failure = ""
        self.finish(failure)

    def finish(self, failure: str = "") -> None:
        """Ends recording; `failure` says why the script ended early, if so."""
        if self._recorder is None:
            return
        recorder, self._recorder = self._recorder, None
        for undo in reversed(self._undo):
            undo()
        if self._store is None:
            self._find_job()
        trace = recorder.finish(self._rank, self._world_size, failure)
        if self._device is not None:
            trace = self._device.add_to(trace)
        if self._rank != 0:
            if self._store is not None:
                publish(self._store, self._prefix, trace)
            return
        self._report(trace, failure)

    def _report(self, own: RankTrace, failure: str) -> None:
        traces: List[RankTrace] = [own]
        missing: List[int] = []
        if self._store is not None and own.world_size > 1:
            timeout_s = FAILED_GATHER_TIMEOUT_S if failure else self._timeout_s
            traces, missing = collect(self._store, self._prefix, own, timeout_s)
        # Here, as who imports the package may want no report.
        from .document import make_document
        from .output import write

        self.document = make_document(traces, missing, self._skip)
        for path in write(self.document, **self._paths):
            print(f"commsched report: wrote {path}", file=sys.stderr)
        print(self.document.text(), file=self._file or sys.stdout, flush=True)

    def _find_job(self) -> None:
        """Keeps the job's store, which outlives the process group."""
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            return
        self._store = dist.distributed_c10d._get_default_store()
        self._rank = dist.get_rank()
        self._world_size = dist.get_world_size()


def report(**options: Any) -> Report:
    """Returns a Report: `with cs.report(): train()`. Options: see there."""
    return Report(**options)
