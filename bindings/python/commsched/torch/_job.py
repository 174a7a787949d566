"""The job behind process groups: where their ranks meet, and the context that all
groups of a process have in common."""

from __future__ import annotations

import ctypes
import ipaddress
import os
import socket
from datetime import timedelta
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from torch.distributed import distributed_c10d

from .._handle import Owner
from .._lib import abi
from ..context import Context
from ..errors import UnavailableError, check
from ..group import Group

_start = abi.function("commsched_control_server_start")
_port = abi.function("commsched_control_server_port")
_stop = abi.function("commsched_control_server_destroy")
_make_token = abi.function("commsched_token_create")
_TOKEN_SIZE = abi.constant("COMMSCHED_TOKEN_SIZE")

_KEY = "commsched"


class _Server(Owner):
    """The control server of a job, which its rank 0 runs."""

    def __init__(self, size: int, address: str, token: str) -> None:
        desc = abi.struct("commsched_control_desc_t", size=size,
                          address=address.encode(), token=token.encode())
        out = ctypes.c_void_p()
        check(_start(ctypes.byref(desc), ctypes.byref(out)))
        self._own(out.value, _stop)
        self.port = int(_port(out))


def _token() -> str:
    text = ctypes.create_string_buffer(_TOKEN_SIZE)
    check(_make_token(text))
    return text.value.decode()


def _store_host(store: Any) -> Optional[str]:
    """The host on which `store` is served, if it is one that is."""
    while store is not None:
        host = getattr(store, "host", None)
        if host is not None:
            return str(host)
        store = getattr(store, "underlying_store", None)
    return None


def _is_this_host(host: Optional[str]) -> bool:
    """Whether who finds the store at `host` is on one host with all others."""
    if host is None or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _address(host: Optional[str]) -> str:
    """Where this rank finds rank 0: where it has found the store."""
    if host is None or _is_this_host(host):
        return "127.0.0.1"
    try:
        found = socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(
            f"the store's host '{host}' has no IPv4 address: {error}") from None
    return str(found[0][4][0])


def _meet(key: str, store: Any, rank: int,
          size: int) -> Tuple[Optional[_Server], str, str]:
    """Returns the server, if this rank runs it, where it is, and its token."""
    host = _store_host(store)
    server = None
    if rank == 0:
        token = _token()
        listen = "127.0.0.1" if _is_this_host(host) else "0.0.0.0"
        server = _Server(size, listen, token)
        store.set(key, f"{server.port} {token}")
    port, token = store.get(key).decode().split()
    return server, f"{_address(host)}:{port}", token


class _Side:
    """A world of the job, on hosts or on devices."""

    context: Optional[Context] = None
    server: Optional[_Server] = None

    def close(self) -> None:
        for each in (self.context, self.server):
            if each is not None:
                each.close()


class Job:
    """This process as a rank of a job. The last group that gives it up ends it."""

    def __init__(self, store: Any, rank: int, size: int, timeout: timedelta,
                 ordinal: Optional[int] = None) -> None:
        """Ranks find each other by `store`, which is to be theirs alone. With `ordinal`
        the process has a context on that CUDA device, too, as all have then."""
        self.pid = os.getpid()
        self._groups = 0
        self._sides: List[_Side] = []
        self.device: Optional[Context] = None
        try:
            self.context = self._join(_KEY, store, rank, size, timeout, {})
            if ordinal is not None:
                self.device = self._join(
                    f"{_KEY} on devices", store, rank, size, timeout,
                    {"backend": "nccl", "device": "cuda", "device_index": ordinal})
        except BaseException:
            self.close()
            raise

    def _join(self, key: str, store: Any, rank: int, size: int, timeout: timedelta,
              where: Dict[str, Any]) -> Context:
        seconds = timeout.total_seconds()
        side = _Side()
        self._sides.append(side)
        if size == 1:
            side.context = Context.join(rank=0, size=1, timeout=seconds, **where)
        else:
            side.server, control, token = _meet(key, store, rank, size)
            side.context = Context.join(rank=rank, size=size, control=control,
                                        token=token, timeout=seconds, **where)
        return side.context

    @property
    def alive(self) -> bool:
        return not self.context.closed and self.pid == os.getpid()

    def group(self, ranks: Optional[Sequence[int]], axis: str) -> Group:
        """A group of `ranks` of the job, all of them without any, until `leave`."""
        group = self.context.group(ranks, axis)
        self._groups += 1
        return group

    def leave(self, group: Group) -> None:
        """Gives up a group. The end of the job waits for all its ranks."""
        group.close()
        self._groups -= 1
        if self._groups == 0:
            self.close()

    def close(self) -> None:
        for side in reversed(self._sides):
            side.close()


# That of the default process group, which has all ranks.
_default: List[Job] = []


def remember(job: Job) -> None:
    """Says that other groups of this process may be groups of `job`."""
    _default[:] = [job]


def default() -> Optional[Job]:
    """The job of the default process group, if that is of this backend."""
    return _default[0] if _default and _default[0].alive else None


def timeout_of(group: Any) -> timedelta:
    """That with which a process group was made, as far as its backend says so."""
    found: timedelta = distributed_c10d.default_pg_timeout
    try:
        found = group._get_backend(torch.device("cpu")).options._timeout
    except (AttributeError, RuntimeError):
        pass
    return found


def of_group(group: Any, name: str,
             timeout: timedelta) -> Tuple[Job, Optional[Sequence[int]]]:
    """The job of a process group of backend commsched and the group's ranks in it, or,
    of another backend, a job of its own, whose ranks meet in the store of the group by
    `name`. All ranks of the group call this."""
    try:
        backend = group._get_backend(torch.device("cpu"))
    except RuntimeError:
        backend = None
    # As TORCH_DISTRIBUTED_DEBUG=DETAIL has it.
    backend = getattr(backend, "wrapped_pg", backend)
    job = getattr(backend, "job", None)
    if isinstance(job, Job):
        return job, backend.options.global_ranks_in_group
    store = distributed_c10d.PrefixStore(f"commsched {name}", _store_of(group))
    return Job(store, group.rank(), group.size(), timeout), None


def _store_of(group: Any) -> Any:
    return distributed_c10d._world.pg_map[group][1]
