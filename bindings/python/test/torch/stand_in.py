"""CUDA as PyTorch tells of it, on the stand-in: memory, streams and events of its
runtime behind the names of torch.cuda that the package uses.

A tensor of `tensor()` has memory of a stand-in's device, which the host cannot read:
`values()` can. Ranks are threads, each with a device of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from typing import Any, Iterator, List, Optional, Sequence

import torch

_lib = ctypes.CDLL(os.environ["COMMSCHED_CUDART_LIB"])
# Of cudaMemcpyKind, and flags of streams and events.
_TO_DEVICE, _FROM_DEVICE, _DEVICE_TO_DEVICE = 1, 2, 3
_NON_BLOCKING, _NO_TIMES = 1, 2


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_lib, name)(*arguments)
    if code:
        raise RuntimeError(f"{name}: {code}")


class _Here(threading.local):
    device = 0
    streams: List["Stream"] = []
    told: List[int] = []


_here = _Here()


class Event:
    def __init__(self) -> None:
        self.native = ctypes.c_void_p()
        _call("cudaEventCreateWithFlags", ctypes.byref(self.native), _NO_TIMES)


class Stream:
    def __init__(self, device: Optional[int] = None) -> None:
        self.device_index = _here.device if device is None else device
        native = ctypes.c_void_p()
        _call("cudaSetDevice", self.device_index)
        _call("cudaStreamCreateWithPriority", ctypes.byref(native), _NON_BLOCKING, 0)
        self.cuda_stream = native.value or 0

    def record_event(self) -> Event:
        event = Event()
        _call("cudaEventRecord", event.native, ctypes.c_void_p(self.cuda_stream))
        return event

    def wait_event(self, event: Event) -> None:
        _call("cudaStreamWaitEvent", ctypes.c_void_p(self.cuda_stream), event.native, 0)

    def synchronize(self) -> None:
        _call("cudaStreamSynchronize", ctypes.c_void_p(self.cuda_stream))

    def hold(self) -> threading.Event:
        """What is enqueued from here on waits until the result is set."""
        released = threading.Event()
        body = _KERNEL(lambda user: released.wait(60) and None)
        _kept.append(body)
        _call("fake_gpu_launch", ctypes.c_void_p(self.cuda_stream), body, None)
        return released


_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: List[Any] = []


def set_device(device: int) -> None:
    _here.device = device
    _here.streams = [Stream(device)]
    _here.told = []
    _call("cudaSetDevice", device)


def current_stream(device: Optional[int] = None) -> Stream:
    return _here.streams[-1]


@contextlib.contextmanager
def stream(of: Stream) -> Iterator[None]:
    _here.streams.append(of)
    try:
        yield
    finally:
        _here.streams.pop()


class OnDevice(torch.Tensor):
    """Says that it is on CUDA. `packed`: False for one that has to be copied."""

    device_index: int
    packed: bool

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        return True

    def get_device(self) -> int:
        return self.device_index

    def is_contiguous(self, *unused: Any, **unused_by_name: Any) -> bool:
        return self.packed

    def contiguous(self, *unused: Any, **unused_by_name: Any) -> "OnDevice":
        if self.packed:
            return self
        made = tensor([0.0] * self.numel(), self.device_index)
        return made.copy_(self)

    def copy_(self, source: Any, non_blocking: bool = False) -> "OnDevice":
        _call("cudaMemcpyAsync", ctypes.c_void_p(self.data_ptr()),
              ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(self.nbytes),
              _DEVICE_TO_DEVICE, ctypes.c_void_p(current_stream().cuda_stream))
        return self

    def record_stream(self, of: Any) -> None:
        _here.told.append(of.cuda_stream)


def told() -> List[int]:
    """The streams of which this rank has told the allocator that they use memory."""
    return _here.told


def _make_future(future: Any, *, devices: Any = None) -> None:
    """Of results on devices, which PyTorch would have to know."""
    torch._C.Future.__init__(future, [])


def tensor(values: Sequence[float], device: int, packed: bool = True) -> OnDevice:
    """Of 4-byte floats."""
    host = torch.tensor(values, dtype=torch.float32)
    _call("cudaSetDevice", device)
    address = ctypes.c_void_p()
    _call("cudaMalloc", ctypes.byref(address), ctypes.c_size_t(host.nbytes))
    # By a stream of its own: others may wait for other ranks.
    into = Stream(device)
    _call("cudaMemcpyAsync", address, ctypes.c_void_p(host.data_ptr()),
          ctypes.c_size_t(host.nbytes), _TO_DEVICE, ctypes.c_void_p(into.cuda_stream))
    into.synchronize()
    assert address.value is not None
    memory = (ctypes.c_char * host.nbytes).from_address(address.value)
    made = torch.frombuffer(memory, dtype=torch.float32).as_subclass(OnDevice)
    made.device_index, made.packed = device, packed
    return made


def values(of: OnDevice) -> List[float]:
    """As the current stream's work leaves them."""
    current_stream().synchronize()
    host = torch.empty(of.numel(), dtype=torch.float32)
    _call("cudaMemcpy", ctypes.c_void_p(host.data_ptr()),
          ctypes.c_void_p(of.data_ptr()), ctypes.c_size_t(host.nbytes), _FROM_DEVICE)
    return host.tolist()


def install() -> None:
    """Puts it in the place of torch.cuda."""
    cuda: Any = torch.cuda
    cuda.current_stream, cuda.stream, cuda.Stream = current_stream, stream, Stream
    cuda.current_device = lambda: _here.device
    cuda.is_initialized = lambda: True
    futures: Any = torch.futures
    futures.Future.__init__ = _make_future
