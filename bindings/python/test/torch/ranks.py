"""Rank processes, forked from one that has imported PyTorch.

`Ranks(2)` is a job of two that runs case after case: `ranks.run(body, ...)` calls
`body(rank, ...)` on each, `rank` being a `Rank`, and returns what they returned. The
default process group of each is that of backend commsched.
"""

from __future__ import annotations

import datetime
import faulthandler
import multiprocessing
import os
import pathlib
import pickle
import signal
import tempfile
import traceback
from typing import Any, Callable, List, Optional

import torch
import torch.distributed as dist

# How long a case may take. Cores may be busy with something else for a while.
CASE_SECONDS = 240.0
GROUP_TIMEOUT = datetime.timedelta(seconds=120)

_fork = multiprocessing.get_context("fork")

# This process' ends of the pipes to all ranks that it has. Who is forked inherits them,
# and a rank ends when nobody has the other end of its pipe.
_ends: List[Any] = []


class CaseFailed(AssertionError):
    """Some ranks raised, ended or did not answer: says which, and how."""


class Rank:
    """What a case gets: this process as a rank."""

    def __init__(self, rank: int, size: int, folder: pathlib.Path) -> None:
        self.rank = rank
        self.size = size
        self._folder = folder
        self._gloo: Optional[dist.ProcessGroup] = None

    def store(self, name: str) -> dist.Store:
        """A store that all ranks have in common, of that name."""
        return dist.FileStore(str(self._folder / name), self.size)

    def start(self, backend: str = "commsched", name: str = "default",
              timeout: datetime.timedelta = GROUP_TIMEOUT) -> None:
        """Makes the default process group."""
        dist.init_process_group(backend, store=self.store(name), rank=self.rank,
                                world_size=self.size, timeout=timeout)

    @property
    def ours(self) -> dist.ProcessGroup:
        return dist.group.WORLD

    @property
    def gloo(self) -> dist.ProcessGroup:
        """Made when it is asked for first, which all ranks do in the same case."""
        if self._gloo is None:
            self._gloo = dist.new_group(backend="gloo", timeout=GROUP_TIMEOUT)
        return self._gloo


def _serve(rank: Rank, connection: Any, log: pathlib.Path, started: bool) -> None:
    """The life of a rank process."""
    with open(log, "wb", buffering=0) as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
        # Keeps the file open.
        faulthandler.register(signal.SIGUSR1, file=os.fdopen(os.dup(2), "w"))
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank.rank), WORLD_SIZE=str(rank.size),
                      LOCAL_RANK=str(rank.rank))
    if started:
        rank.start()
    while True:
        try:
            body, arguments = pickle.loads(connection.recv_bytes())
        except EOFError:
            break
        try:
            answer = ("returned", body(rank, *arguments))
        except BaseException:
            answer = ("raised", traceback.format_exc())
        connection.send_bytes(pickle.dumps(answer))
    if dist.is_initialized():
        dist.destroy_process_group()


def _main(rank: Rank, connection: Any, log: pathlib.Path, started: bool) -> None:
    status = 1
    try:
        _serve(rank, connection, log, started)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)  # What pytest would do at its end is the parent's.


class Ranks:
    """A job of `size` ranks. `started`: they have their default process group."""

    def __init__(self, size: int, started: bool = True) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="commsched-ranks-")
        folder = pathlib.Path(self._folder.name)
        self.size = size
        self.logs = [folder / f"log-{rank}" for rank in range(size)]
        self.processes: List[Any] = []
        self._connections: List[Any] = []
        for rank in range(size):
            here, there = _fork.Pipe()
            self._connections.append(here)
            _ends.append(here)
            process = _fork.Process(target=self._child, args=(
                Rank(rank, size, folder), there, self.logs[rank], started))
            process.start()
            there.close()
            self.processes.append(process)

    def _child(self, rank: Rank, connection: Any, log: pathlib.Path,
               started: bool) -> None:
        for parents_end in _ends:
            parents_end.close()
        _main(rank, connection, log, started)

    def run(self, body: Callable[..., Any], *arguments: Any,
            among: Optional[List[int]] = None,
            seconds: float = CASE_SECONDS) -> List[Any]:
        """Calls `body` on all ranks, or those `among` them."""
        asked = list(range(self.size)) if among is None else among
        self.ask(body, *arguments, among=asked)
        return self.answers(asked, seconds)

    def ask(self, body: Callable[..., Any], *arguments: Any,
            among: Optional[List[int]] = None) -> None:
        """As `run`, without the answers."""
        for rank in range(self.size) if among is None else among:
            self._connections[rank].send_bytes(pickle.dumps((body, arguments)))

    def answers(self, asked: List[int], seconds: float = CASE_SECONDS) -> List[Any]:
        """What `asked` ranks have returned."""
        end = datetime.datetime.now() + datetime.timedelta(seconds=seconds)
        answers = [self._answer(rank, end) for rank in asked]
        failed = [f"rank {rank} {said}: {what}\n{self._log(rank)}"
                  for rank, (said, what) in zip(asked, answers) if said != "returned"]
        if failed:
            raise CaseFailed("\n".join(failed))
        return [what for _, what in answers]

    def _answer(self, rank: int, end: datetime.datetime) -> Any:
        connection, process = self._connections[rank], self.processes[rank]
        left = (end - datetime.datetime.now()).total_seconds()
        try:
            if connection.poll(max(left, 0)):
                return pickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            process.join()
            return "ended", f"exit code {process.exitcode}"
        os.kill(process.pid, signal.SIGUSR1)  # Where its threads are goes to its log.
        connection.poll(2)
        return "did not answer", "in time"

    def _log(self, rank: int) -> str:
        return self.logs[rank].read_text(errors="replace")[-8000:]

    def kill(self, rank: int) -> None:
        self.processes[rank].kill()
        self.processes[rank].join()

    def close(self, seconds: float = 60) -> List[Optional[int]]:
        """Ends them, and returns their exit codes; who does not end is killed."""
        for connection in self._connections:
            connection.close()
            if connection in _ends:
                _ends.remove(connection)
        for process in self.processes:
            process.join(seconds)
            if process.is_alive():
                process.kill()
                process.join()
        codes = [process.exitcode for process in self.processes]
        self._folder.cleanup()
        return codes

    def __enter__(self) -> "Ranks":
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()


class Pool:
    """The ranks of all cases: those of one that failed are not used again."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ranks: Optional[Ranks] = None

    def run(self, body: Callable[..., Any], *arguments: Any) -> List[Any]:
        if self._ranks is None:
            self._ranks = Ranks(self._size)
        try:
            return self._ranks.run(body, *arguments)
        except CaseFailed:
            self.close(seconds=1)
            raise

    def close(self, seconds: float = 60) -> None:
        ranks, self._ranks = self._ranks, None
        if ranks is not None:
            ranks.close(seconds)
