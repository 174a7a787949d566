"""Sends and receives of a process group, and what is made of them."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Dict, NoReturn, Optional

import torch

from .._enums import Collective, DType
from ..channel import Recv, Send
from ..errors import CommschedError, DeadlineExceededError, UnimplementedError
from ..memory import Memory
from . import _elements, _parts
from ._parts import Place
from ._submitting import Coalesced, Op, Submitting, Tensors, single
from .work import Work

# Tags of the program's sends are below it.
_OWN_TAGS = 1 << 40


class Transfers(Submitting):
    """Sends and receives are matched by pair of ranks and tag, and wait for nothing
    else."""

    _monitored = 0

    def send(self, tensors: Tensors, peer: int, tag: int) -> Optional[Work]:
        tensor = single(tensors, "send")
        place = _parts.read(tensor, "send")
        return self._transfer(Collective.SEND, tensor, place, peer, tag, tensors)

    def recv(self, tensors: Tensors, peer: int, tag: int) -> Optional[Work]:
        tensor = single(tensors, "recv")
        place = _parts.written(tensor, "recv")
        return self._transfer(Collective.RECV, tensor, place, peer, tag, tensors)

    def _transfer(self, kind: Collective, tensor: torch.Tensor, place: Place,
                  peer: int, tag: int, result: Tensors) -> Optional[Work]:
        dtype, units = _elements.moved_as(tensor)
        count = tensor.numel() * units
        coalesced = self._coalesced
        if coalesced is not None:
            memory = Memory(place.address, count, DType(dtype))
            coalesced.parts.append(Send(memory, peer, tag)
                                   if kind is Collective.SEND else
                                   Recv(memory, peer, tag))
            coalesced.places.append(place)
            coalesced.result += result
            return None
        side = "input" if kind is Collective.SEND else "output"
        op = Op(kind, [place], dtype=dtype, count=count, peer=peer, tag=tag,
                **{side: place.address})
        return self._submit(kind.name.lower(), [op], result, None, None)

    def recv_anysource(self, tensors: Tensors, tag: int) -> NoReturn:
        raise UnimplementedError(
            f"recv of group '{self._name}' from any source: commsched receives from a "
            "rank that is named; pass src", op="recv", group=self._name)

    # ---- Coalescing -----------------------------------------------------------

    def start_coalescing(self) -> None:
        """Until `end_coalescing` calls are kept, which then go as one work."""
        self._check_usable("coalescing")
        if self._coalesced is not None:
            raise RuntimeError(f"group '{self._name}' is coalescing already")
        self._coalesced = Coalesced()

    def end_coalescing(self) -> Work:
        coalesced, self._coalesced = self._coalesced, None
        if coalesced is None:
            raise RuntimeError(f"group '{self._name}' is not coalescing")
        return self._submit("coalesced calls", coalesced.ops, coalesced.result, None,
                            coalesced)

    # ---- monitored_barrier ----------------------------------------------------

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool) -> None:
        """A barrier that names the ranks that do not come: on rank 0 at the deadline,
        and then to all, for whom the group has failed. What it says has the words of
        c10d's, for who looks for them."""
        limit = opts.timeout.total_seconds()
        limit = limit if limit >= 0 else self._made_with.total_seconds()
        self._monitored += 2
        came, go = (_OWN_TAGS + self._monitored, _OWN_TAGS + self._monitored + 1)
        peers = range(1, self._group.size)
        if self._group.rank != 0:
            self._pass_monitored(came, go, limit)
            return
        if limit == 0:
            raise self._late("Rank 0 timed out in monitoredBarrier: its timeout is 0", 0)
        arrivals = {peer: self.recv([_byte()], peer, came) for peer in peers}
        self._await_arrivals(arrivals, limit, wait_all_ranks)
        for work in [self.send([_byte()], peer, go) for peer in peers]:
            assert work is not None
            work.wait(timedelta(seconds=limit * 2 + 1))

    def _pass_monitored(self, came: int, go: int, limit: float) -> None:
        self.send([_byte()], 0, came)
        work = self.recv([_byte()], 0, go)
        assert work is not None
        try:
            # Rank 0 gives up first, and says who is missing.
            work.wait(timedelta(seconds=limit * 2 + 1))
        except CommschedError as error:
            raise type(error)(
                f"monitored_barrier of group '{self._name}': Rank {self._group.rank} "
                "successfully reached monitoredBarrier, but received errors while "
                f"waiting for send/recv from rank 0: {error.message}",
                op="monitored_barrier", group=self._name, rank=error.rank) from None

    def _await_arrivals(self, arrivals: Dict[int, Optional[Work]], limit: float,
                        all_of_them: bool) -> None:
        clock = Countdown(limit)
        missing = []
        for peer, work in arrivals.items():
            assert work is not None
            try:
                work.wait(timedelta(seconds=clock.left()))
            except DeadlineExceededError:
                missing.append(peer)
                if not all_of_them:
                    break
        if missing:
            error = self._late(
                ("Rank " if len(missing) == 1 else "Ranks ")
                + ", ".join(map(str, missing))
                + f" failed to pass monitoredBarrier in {limit:g} s", missing[0])
            self._channel.abort(error.message)
            raise error

    def _late(self, what: str, rank: int) -> DeadlineExceededError:
        return DeadlineExceededError(
            f"monitored_barrier of group '{self._name}': {what}",
            op="monitored_barrier", group=self._name, rank=rank)


class Countdown:
    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds; a wait of 0 is without a limit, hence at least a microsecond."""
        return max(self._end - time.monotonic(), 1e-6)


def _byte() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.uint8)
