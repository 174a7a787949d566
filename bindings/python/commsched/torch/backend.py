"""The process-group backend "commsched" of torch.distributed.

A process group is a channel over a group of the job (docs/channels.md). Calls submit to
it and return a Work; nothing is handed to another backend. What is missing raises, and
names the call.
"""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any, List, Optional, Sequence, Set

from torch._C import _distributed_c10d as c10d

from ..errors import AbortedError, DeadlineExceededError, UnimplementedError
from . import _job
from ._collectives import Collectives
from ._transfers import Countdown, Transfers
from .work import Work

# Those that have not ended. c10d keeps the C++ side of one alone where it wraps it for
# TORCH_DISTRIBUTED_DEBUG=DETAIL.
_alive: Set["Backend"] = set()

# How long the end of a group waits for what its program has not waited for.
SHUTDOWN_SECONDS = 10.0


class Backend(Collectives, Transfers,
              c10d.Backend):  # type: ignore[misc, unused-ignore]
    """One rank of one process group. Calls come from any thread; those of collectives
    in one order on all ranks of the group."""

    def __init__(self, job: _job.Job, ranks: Optional[Sequence[int]], name: str,
                 timeout: timedelta, axis: str) -> None:
        """`ranks` of the job, in the group's order; None: all. Collective over them."""
        group = job.group(ranks, axis)
        c10d.Backend.__init__(self, group.rank, group.size)
        try:
            Collectives.__init__(self, job, group, name, timeout)
            try:
                self._open_device()
            except BaseException:
                self._close_channels()
                raise
        except BaseException:
            job.leave(group)
            raise
        self._options = c10d.Backend.Options("commsched", timeout)
        self._options.group_name = name
        self._options.global_ranks_in_group = list(group.ranks)
        _alive.add(self)

    # ---- What c10d asks for ---------------------------------------------------

    def getBackendName(self) -> str:
        return "commsched"

    @property
    def options(self) -> Any:
        return self._options

    @property
    def supports_splitting(self) -> bool:
        return True

    @property
    def supports_coalescing(self) -> bool:
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        """Waits end after `timeout` from now on. It may not exceed that with which the
        group was made, which is the channel's and ends it."""
        made_with = self._options._timeout
        if timeout > made_with:
            raise UnimplementedError(
                f"set_timeout of group '{self._name}' to {timeout}: it was made with "
                f"{made_with}, above which it cannot go", op="set_timeout",
                group=self._name)
        self._timeout = timeout.total_seconds()

    def get_error(self) -> Any:
        failed = any(channel.closed or channel.status() is not None
                     for channel in self._channels())
        return c10d.ErrorType.COMM_ERROR if failed else c10d.ErrorType.SUCCESS

    def _get_sequence_number_for_group(self) -> int:
        return self._sequence

    def split(self, store: Any, ranks: Sequence[int], opts: Any) -> Optional["Backend"]:
        """A group of some of this one's `ranks`: nobody else takes part."""
        if self._group.rank not in ranks:
            return None
        members = [self._group.ranks[rank] for rank in ranks]
        name = opts.group_name if opts is not None and opts.group_name else (
            f"{self._name}:{','.join(map(str, ranks))}")
        timeout = self._options._timeout if opts is None else opts._timeout
        return Backend(self.job, members, name, timeout, name)

    # ---- The end --------------------------------------------------------------

    def shutdown(self) -> None:
        """Waits for what the program has not waited for, for a while, and gives up the
        group. What has not finished by then fails, here and on other ranks."""
        if self._channel.closed or self._pid != os.getpid():
            return
        if not self._drain():
            self._abort(f"rank {self._group.rank} has destroyed group '{self._name}' "
                        "with requests in flight")
        self._end()

    def abort(self) -> None:
        """Fails the group on all its ranks and gives it up, without waiting."""
        if self._channel.closed or self._pid != os.getpid():
            return
        self._abort(f"rank {self._group.rank} has aborted group '{self._name}'")
        self._end()

    def _abort(self, reason: str) -> None:
        for channel in self._channels():
            channel.abort(reason)

    def _unsettled(self) -> List[Work]:
        return [work for channel in self._channels()
                for work in self._completer.unsettled(channel)]

    def _drain(self) -> bool:
        """Whether all requests finish in time, or fail."""
        clock = Countdown(SHUTDOWN_SECONDS)
        for work in self._unsettled():
            try:
                work.wait(timedelta(seconds=clock.left()))
            except DeadlineExceededError:
                return False
            except Exception:  # It has its error; the group fails or has failed.
                return True
        return True

    def _end(self) -> None:
        self._completer.reap()
        for channel in self._channels():
            error = channel.status() or AbortedError(
                f"group '{self._name}' was destroyed", group=self._name)
            for work in self._completer.unsettled(channel):
                work.settle(error)
        self._close_channels()
        self._buried.clear()
        _alive.discard(self)
        self.job.leave(self._group)
