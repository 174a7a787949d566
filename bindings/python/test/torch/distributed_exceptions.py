"""Which of PyTorch's tests Gloo passes and commsched does not, and why."""

from __future__ import annotations

from typing import Dict

_ANY_SOURCE = "`recv` from any source is refused by name"

EXCEPTIONS: Dict[str, str] = {
    "test_ddp_logging_data_cpu":
        "DDP's log calls all backends of plugins `custom`",
    "test_send_recv_any_source": _ANY_SOURCE,
    "test_send_recv_any_source_autograd_profiler": _ANY_SOURCE,
    "test_send_recv_any_source_torch_profiler": _ANY_SOURCE,
}
