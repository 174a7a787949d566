"""commsched: schedules the communication of distributed training.

    import commsched as cs

    with cs.Context.join() as context, cs.Channel(context) as channel:
        channel.all_reduce(gradients).wait()

docs/python.md says what there is.
"""

from __future__ import annotations

from typing import Any

from ._describe import Access, region, shard, tile
from ._enums import (Collective, DeviceKind, DType, Format, Ownership, Phase, Priority,
                     Progress, ReduceOp, Schedule, Status)
from ._info import library_info
from ._lib import LibraryError, library_path
from ._steps import Bound
from ._version import __version__
from .channel import Channel, Recv, Request, Send
from .completions import Completion, Completions
from .context import Context, World
from .errors import (AbortedError, AlreadyExistsError, CancelledError, CommschedError,
                     DataLossError, DeadlineExceededError, FailedPreconditionError,
                     InternalError, InvalidArgumentError, NotFoundError,
                     OutOfRangeError, PermissionDeniedError, ResourceExhaustedError,
                     UnauthenticatedError, UnavailableError, UnimplementedError)
from .graph import Graph
from .group import Group, Mesh
from .memory import Memory, memory
from .plan import CostProfile, Plan, PlanOptions, describe, plan_roles
from .recording import Recording, RecordingInfo
from .report import Report, report
from .session import Session
from .stream import CALLER, HostStream, Stream, cuda_stream
from .trace import Trace

__all__ = [
    "__version__", "AbortedError", "Access", "AlreadyExistsError", "attach_fsdp",
    "Bound", "CALLER", "CancelledError", "Channel", "Collective", "CommschedError",
    "Completion", "Completions", "Context", "CostProfile", "cuda_stream",
    "DataLossError", "ddp", "DeadlineExceededError", "describe", "DeviceKind", "DType",
    "FailedPreconditionError", "Format", "Graph", "Group", "HostStream",
    "InternalError", "InvalidArgumentError", "library_info", "library_path",
    "LibraryError", "Memory", "memory", "Mesh", "NotFoundError", "OutOfRangeError",
    "Ownership", "PermissionDeniedError", "Phase", "Plan", "plan_roles", "PlanOptions",
    "Priority", "Progress", "Recording", "RecordingInfo", "Recv", "ReduceOp", "region",
    "Report", "report", "Request", "ResourceExhaustedError", "Schedule", "Send",
    "Session", "shard", "Status", "Stream", "tile", "Trace", "UnauthenticatedError",
    "UnavailableError", "UnimplementedError", "World",
]


def ddp(module: Any, **options: Any) -> Any:
    """DistributedDataParallel of PyTorch whose buckets a recorded plan carries:
    `commsched.torch.ddp`."""
    from .torch.ddp import ddp as wrap
    return wrap(module, **options)


def attach_fsdp(model: Any, **options: Any) -> Any:
    """FSDP2 of PyTorch on channels, with gathers that run ahead:
    `commsched.torch.fsdp.attach_fsdp`."""
    from .torch.fsdp import attach_fsdp as attach
    return attach(model, **options)
