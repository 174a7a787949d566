"""World and context: the ranks of a job, and one of them."""

from __future__ import annotations

import ctypes
import threading
from types import TracebackType
from typing import (Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Type,
                    TypeVar, Union)

from . import _ucx, _wait
from ._enums import DeviceKind, named
from ._handle import Owner
from ._lib import abi
from .errors import CommschedError, check, error
from .group import Group, Mesh, group_of

_world_create = abi.function("commsched_world_create_inproc")
_world_join = abi.function("commsched_world_join")
_world_destroy = abi.function("commsched_world_destroy")
_world_size = abi.function("commsched_world_size")
_world_rank = abi.function("commsched_world_rank")
_create = abi.function("commsched_context_create")
_destroy = abi.function("commsched_context_destroy")
_split = abi.function("commsched_context_split")
_rank = abi.function("commsched_context_rank")
_size = abi.function("commsched_context_world_size")
_local_size = abi.function("commsched_context_local_size")
_backend = abi.function("commsched_context_backend")
_device = abi.function("commsched_context_device")
_hosts = abi.function("commsched_context_hosts")
_link_profile = abi.function("commsched_context_link_profile")
_agree = abi.function("commsched_context_agree")
_Fact = abi.type("commsched_fact_t")

_Result = TypeVar("_Result")


def _bytes(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else text.encode()


class World(Owner):
    """Ranks that are threads of this process; `Context.join` is for processes.

    `backend`: "inproc", or "null", which moves nothing. `config` is the backend's:
    "link_bytes_per_s=1.25e8,link_latency_ns=50000" gives ranks of inproc links.
    """

    def __init__(self, size: int, *, backend: str = "inproc", config: str = "",
                 device: Union[DeviceKind, str] = DeviceKind.HOST,
                 device_index: int = -1) -> None:
        desc = abi.struct("commsched_world_desc_t", size=size,
                          backend=backend.encode(), backend_config=config.encode(),
                          device_kind=named(DeviceKind, device), device=device_index)
        _ucx.prepare(backend)
        out = ctypes.c_void_p()
        check(_world_create(ctypes.byref(desc), ctypes.byref(out)))
        self._own(out.value, _world_destroy)
        self.size = size

    def context(self, rank: int) -> "Context":
        """Makes the calling program rank `rank`. Each rank has one context at a time,
        which a thread of its own drives."""
        out = ctypes.c_void_p()
        check(_create(self._handle, rank, ctypes.byref(out)))
        return Context(out.value)

    def run(self, body: Callable[["Context"], _Result]) -> List[_Result]:
        """Calls `body` on each rank, each on a thread of its own, and returns what they
        returned, by rank. Raises the first exception of the ranks, in their order:
        one that is not CommschedError, if there is one, since the others have theirs
        because of it."""
        results: Dict[int, _Result] = {}
        failures: Dict[int, BaseException] = {}

        def drive(rank: int) -> None:
            try:
                with self.context(rank) as context:
                    results[rank] = body(context)
            except BaseException as failure:  # Raised below.
                failures[rank] = failure

        threads = [threading.Thread(target=drive, args=(rank,), daemon=True)
                   for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            _wait.join(thread)
        for failure in sorted(failures.items(), key=_own_fault_first):
            raise failure[1]
        return [results[rank] for rank in range(self.size)]


def _own_fault_first(failure: Tuple[int, BaseException]) -> Tuple[bool, int]:
    return isinstance(failure[1], CommschedError), failure[0]


class Context(Owner):
    """One rank of a world. Made by `Context.join`, `World.context` and `split`.

    A `with` of a rank that is a process, if an exception leaves it, does not close the
    context: the end of a world waits for its other ranks, who are to learn that this
    one is gone.
    """

    _is_process = False

    def __init__(self, handle: Optional[int]) -> None:
        """For those; takes over `handle`."""
        self._own(handle, _destroy)
        self.rank: int = _rank(handle)
        self.size: int = _size(handle)

    @classmethod
    def join(cls, *, backend: str = "ucx", config: str = "",
             rank: Optional[int] = None, size: Optional[int] = None,
             control: Optional[str] = None, token: Optional[str] = None,
             epoch: int = 0, timeout: Optional[float] = None,
             device: Union[DeviceKind, str] = DeviceKind.HOST, device_index: int = -1,
             link_profile: Optional[str] = None) -> "Context":
        """Makes this process a rank of its job, and waits until it has joined.

        Without `rank` the environment says which: that of `commsched run`, torchrun,
        mpirun or srun; without any of them the job has one rank. Those who give `rank`
        give `size` and, unless it is 1, `control`, the host:port of the control server.
        `timeout` in seconds; None: COMMSCHED_JOIN_TIMEOUT_S.
        """
        if (rank is None) != (size is None):
            raise ValueError(f"rank is {rank} and size is {size}: give both or neither")
        desc = abi.struct(
            "commsched_join_desc_t", rank=-1 if rank is None else rank,
            size=size or 0, epoch=epoch, control=_bytes(control), token=_bytes(token),
            backend=backend.encode(), backend_config=config.encode(),
            timeout_ns=0 if timeout is None else _wait.nanoseconds(timeout),
            device_kind=named(DeviceKind, device), device=device_index,
            link_profile=_bytes(link_profile))
        _ucx.prepare(backend)
        world, out = ctypes.c_void_p(), ctypes.c_void_p()

        def make() -> int:
            status: int = _world_join(ctypes.byref(desc), ctypes.byref(world))
            if status:
                return status
            status = _create(world, _world_rank(world), ctypes.byref(out))
            _world_destroy(world)  # It lives until its context goes.
            return status

        _check(_wait.call(make, late=lambda status: status or _destroy(out)))
        made = cls(out.value)
        made._is_process = True
        return made

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is None or isinstance(error, SystemExit) or not self._is_process:
            super().__exit__(kind, error, trace)

    @property
    def local_size(self) -> int:
        """How many ranks of the world are on this host."""
        return int(_local_size(self._handle))

    @property
    def backend(self) -> str:
        """The name of the backend of the world."""
        name: bytes = _backend(self._handle) or b""
        return name.decode()

    @property
    def device(self) -> Tuple[DeviceKind, int]:
        """Where the rank computes: a kind, and CUDA's number."""
        index = ctypes.c_int32()
        kind = _device(self._handle, ctypes.byref(index))
        return DeviceKind(kind), index.value

    def hosts(self) -> List[int]:
        """On which host each rank is; hosts are numbered in the order of their first
        ranks. Waits until all ranks have joined."""
        out, number = (ctypes.c_int32 * self.size)(), ctypes.c_int32()
        handle = self._handle
        _check(_wait.call(
            lambda: _hosts(handle, out, self.size, ctypes.byref(number)), keep=self))
        return list(out)

    def link_profile(self) -> Any:
        """The job's profile of links, a `commsched_link_profile_t`. Waits until all
        ranks have joined."""
        profile = abi.struct("commsched_link_profile_t")
        handle = self._handle
        _check(_wait.call(
            lambda: _link_profile(handle, ctypes.byref(profile), None), keep=self))
        return profile

    def group(self, ranks: Optional[Sequence[int]] = None,
              axis: str = "world") -> Group:
        """The group of `ranks` on `axis`; without `ranks`, of all. Nobody waits."""
        return group_of(self, range(self.size) if ranks is None else ranks, axis)

    def mesh(self, axes: Mapping[str, int]) -> Mesh:
        """The world as an array: {"pp": 2, "dp": 4}, the last axis varying fastest."""
        return Mesh(self, axes)

    def split(self, members: Sequence[int], name: str) -> "Context":
        """A world of some ranks of this one, without a server or a join of its own, in
        which a rank's number is its place in `members`. All members call this alike;
        see commsched_context_split()."""
        handle, out = self._handle, ctypes.c_void_p()
        ranks = (ctypes.c_int32 * len(members))(*members)

        def make() -> int:
            status: int = _split(handle, ranks, len(members), name.encode(),
                                 ctypes.byref(out))
            return status

        _check(_wait.call(make, late=lambda status: status or _destroy(out), keep=self),
               group=name)
        made = Context(out.value)
        made._is_process = self._is_process
        return made

    def agree(self, name: str, facts: Mapping[str, object], *,
              among: Optional[Group] = None, timeout: Optional[float] = None) -> int:
        """Compares `facts` among all ranks, or those `among` a group, who give the same
        subjects in the same order. FailedPreconditionError names the first that
        differs. Returns the number of comparisons of that name before this one."""
        listed = (_Fact * len(facts))(*(
            _Fact(subject.encode(), str(value).encode())
            for subject, value in facts.items()))
        desc = abi.struct(
            "commsched_agree_desc_t", name=name.encode(),
            meet=None if among is None else among.handle,
            facts=listed if facts else None, num_facts=len(facts),
            timeout_ns=0 if timeout is None else _wait.nanoseconds(timeout))
        handle, number = self._handle, ctypes.c_uint64()
        _check(_wait.call(
            lambda: _agree(handle, ctypes.byref(desc), ctypes.byref(number)),
            keep=(self, among)))
        return number.value

    def __repr__(self) -> str:
        return f"Context(rank {self.rank} of {self.size})"


def _check(outcome: _wait.Outcome, group: Optional[str] = None) -> None:
    if outcome[0]:
        raise error(outcome[0], outcome[1], group=group)
