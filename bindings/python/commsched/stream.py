"""Streams: where work is enqueued."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Optional

from ._handle import Owner
from ._lib import abi
from .errors import check

if TYPE_CHECKING:
    from .context import Context

_Stream = abi.type("commsched_stream_t")
_create = abi.function("commsched_host_stream_create")
_destroy = abi.function("commsched_host_stream_destroy")
_synchronize = abi.function("commsched_stream_synchronize")

_CALLER_KIND = abi.constant("COMMSCHED_STREAM_CALLER")
_CUDA_KIND = abi.constant("COMMSCHED_STREAM_CUDA")


class Stream(Owner):
    """The calling thread (`CALLER`), a worker thread of the library (`HostStream`), or
    a CUDA stream of the caller's (`cuda_stream`)."""

    def __init__(self, value: Any) -> None:
        # What functions take: by value.
        self.value = value

    def synchronize(self) -> None:
        """Waits until all that was enqueued has run. CUDA's streams are CUDA's to
        synchronize: UnimplementedError."""
        check(_synchronize(self.value))


class HostStream(Stream):
    """A worker thread that runs what is enqueued, in order."""

    def __init__(self, context: "Context", name: str = "stream",
                 capacity: int = 1024) -> None:
        super().__init__(_Stream())
        check(_create(context.handle, name.encode(), capacity,
                      ctypes.byref(self.value)))
        value = self.value
        self._own(self.value.native, lambda native: _destroy(value))


CALLER = Stream(_Stream(_CALLER_KIND, 0, None))


def cuda_stream(native: Optional[int]) -> Stream:
    """The CUDA stream at address `native` (`torch.cuda.Stream.cuda_stream`); 0 or None:
    CUDA's default stream."""
    return Stream(_Stream(_CUDA_KIND, 0, native or None))
