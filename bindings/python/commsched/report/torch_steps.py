"""Sees a PyTorch script's steps: backward passes, updates, ready gradients."""

from __future__ import annotations

import functools
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, Tuple

import torch
from torch.autograd import Variable
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from .model import Span
from .recorder import Call, PendingWait, Recorder, now
from .torch_hooks import TorchHooks

_FSDP = "torch.distributed.fsdp._fully_shard._fsdp_param_group"


class StepHooks:
    """A step ends with the last update before the next backward pass."""

    def __init__(self, recorder: Recorder, hooks: TorchHooks) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._undo: List[Callable[[], None]] = []
        self._depth = 0  # Of updates within updates, as ZeRO's are.
        self._update_began = 0
        self._updated: Optional[int] = None
        self._last_update: Optional[int] = None
        self._gathering = False
        self._fsdp_is_watched = False
        self._backward_depth = 0
        self._task = -1
        self._ready: Dict[Tuple[int, int], int] = {}
        self._watched: set[int] = set()
        self._issued: set[Tuple[int, int]] = set()
        hooks.on_call = self._on_call
        hooks.in_backward = self._in_backward

    def install(self) -> None:
        for handle in (
            register_optimizer_step_pre_hook(self._before_update),
            register_optimizer_step_post_hook(self._after_update),
        ):
            self._undo.append(handle.remove)
        # Both backward() and grad() call it under this name.
        autograd: Any = torch.autograd  # Its names below are not public.
        original = autograd._engine_run_backward

        @functools.wraps(original)
        def run_backward(*args: Any, **kwargs: Any) -> Any:
            self.end_step()
            begin = now()
            self._backward_depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                self._backward_depth -= 1
                if self._backward_depth == 0:
                    self._phase("backward", begin)

        autograd._engine_run_backward = run_backward
        self._undo.append(
            functools.partial(
                setattr, autograd, "_engine_run_backward", original
            )
        )

    def remove(self) -> None:
        self.end_step()
        for undo in reversed(self._undo):
            undo()
        self._undo.clear()

    def end_step(self) -> None:
        if self._updated is not None:
            self._recorder.steps.append(self._updated)
            self._updated = None
            self._issued.clear()

    def _phase(self, name: str, begin: int) -> int:
        thread = threading.get_native_id()
        end = now()
        self._recorder.phases.append(Span(name, thread, begin, end))
        return end

    def _before_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self._depth == 0:
            self._update_began = now()
        self._depth += 1
        self._watch_gradients(optimizer)

    def _after_update(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._depth = max(self._depth - 1, 0)
        if self._depth == 0:
            self._updated = self._phase("optimizer", self._update_began)
            self._last_update = self._updated

    # The end of a backward pass: DDP waits there, in C++, for its buckets.

    def _in_backward(self, call: Call) -> None:
        """Asks to be told when the pass's compute is over: before DDP's own
        callback, which it queues after its last bucket.
        """
        if call.graph_task == self._task:
            return
        self._task = task = call.graph_task
        engine = Variable._execution_engine

        def computed() -> None:
            begin = now()
            engine.queue_callback(functools.partial(self._finalized, task, begin))

        engine.queue_callback(computed)

    def _finalized(self, task: int, begin: int) -> None:
        end = now()
        calls = [c for c in self._hooks.unwaited(task) if c.told]
        self._recorder.waits.append(PendingWait(begin, end, calls, True))

    # What is communicated as it lies in memory: when was it ready?

    def _on_call(self, call: Call) -> None:
        if call.kind == "all_gather":
            self._watch_fsdp()
            if self._gathering and self._last_update is not None:
                call.ready = self._last_update
            return
        if call.graph_task != -1 or not call.pointers:
            return
        self._issued.update(call.pointers)
        times = [self._ready.get(pointer) for pointer in call.pointers]
        known = [time for time in times if time is not None]
        if len(known) == len(times):
            call.ready = max(known)

    def _watch_fsdp(self) -> None:
        """FSDP2 gathers parameters, which were ready once they were updated. Its
        module is imported by who uses it.
        """
        module: Any = sys.modules.get(_FSDP)
        if self._fsdp_is_watched or module is None:
            return
        self._fsdp_is_watched = True
        original = getattr(module, "foreach_all_gather", None)
        if original is None:
            return

        @functools.wraps(original)
        def gather(*args: Any, **kwargs: Any) -> Any:
            self._gathering = True
            try:
                return original(*args, **kwargs)
            finally:
                self._gathering = False

        module.foreach_all_gather = gather
        self._undo.append(
            functools.partial(setattr, module, "foreach_all_gather", original)
        )

    def _watch_gradients(self, optimizer: Any) -> None:
        """Watches the parameters whose gradient a call outside of backward
        has taken: no others, so that a script without such calls pays nothing.
        """
        if not self._issued:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None or id(parameter) in self._watched:
                    continue
                if gradient.is_sparse or type(gradient) is not torch.Tensor:
                    continue
                if (gradient.data_ptr(), gradient.nbytes) in self._issued:
                    self._watched.add(id(parameter))
                    handle = parameter.register_post_accumulate_grad_hook(
                        self._accumulated
                    )
                    self._undo.append(handle.remove)

    def _accumulated(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        if gradient is not None:
            self._ready[gradient.data_ptr(), gradient.nbytes] = now()
