"""commsched: schedules the communication of distributed training.

    import commsched as cs

    with cs.Context.join() as context, cs.Channel(context) as channel:
        channel.all_reduce(gradients).wait()

docs/python.md says what there is.
"""

from __future__ import annotations

from ._enums import (Collective, DeviceKind, DType, Format, Ownership, Phase, Priority,
                     Progress, ReduceOp, Schedule, Status)
from ._lib import LibraryError, library_path
from ._version import __version__
from .channel import Channel, Recv, Request, Send
from .completions import Completion, Completions
from .context import Context, World
from .errors import (AbortedError, AlreadyExistsError, CancelledError, CommschedError,
                     DataLossError, DeadlineExceededError, FailedPreconditionError,
                     InternalError, InvalidArgumentError, NotFoundError,
                     OutOfRangeError, PermissionDeniedError, ResourceExhaustedError,
                     UnauthenticatedError, UnavailableError, UnimplementedError)
from .group import Group, Mesh
from .memory import Memory, memory
from .stream import CALLER, HostStream, Stream, cuda_stream
from .trace import Trace

__all__ = [
    "AbortedError", "AlreadyExistsError", "CALLER", "CancelledError", "Channel",
    "Collective", "CommschedError", "Completion", "Completions", "Context", "DType",
    "DataLossError", "DeadlineExceededError", "DeviceKind", "FailedPreconditionError",
    "Format", "Group", "HostStream", "InternalError", "InvalidArgumentError",
    "LibraryError", "Memory", "Mesh", "NotFoundError", "OutOfRangeError", "Ownership",
    "PermissionDeniedError", "Phase", "Priority", "Progress", "Recv", "ReduceOp",
    "Request", "ResourceExhaustedError", "Schedule", "Send", "Status", "Stream",
    "Trace", "UnauthenticatedError", "UnavailableError", "UnimplementedError", "World",
    "__version__", "cuda_stream", "library_path", "memory",
]
