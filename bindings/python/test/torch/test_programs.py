"""Random programs over several process groups: no wrong sum, no hang, and who is lost
is named by those who wait for it, and by nobody else."""

from __future__ import annotations

import gc
import os
import random
import signal
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import pytest
import torch
import torch.distributed as dist

import commsched as cs
import ranks as rank_processes

# Of these a fourth lose a rank.
NUM_PROGRAMS = int(os.environ.get("COMMSCHED_TORCH_PROGRAMS", "20"))
NUM_FAULTY = NUM_PROGRAMS // 4
NUM_LEGAL = NUM_PROGRAMS - NUM_FAULTY
STEPS = 20


class Step(NamedTuple):
    call: str
    group: int
    count: int
    root: int  # A place in the group.
    asynchronous: bool
    freed: bool  # The program drops its tensors before they are waited for.


class Program(NamedTuple):
    groups: List[Tuple[int, ...]]
    steps: List[Step]


def program(seed: int, size: int) -> Program:
    """Of `size` ranks. Each rank makes the calls of its groups in the order of the
    steps, so that nobody waits in a circle."""
    chosen = random.Random(seed)
    groups = [tuple(range(size))]
    for _ in range(chosen.randint(1, 3)):
        groups.append(tuple(sorted(chosen.sample(
            range(size), chosen.randint(2, size)))))
    steps = []
    for _ in range(STEPS):
        group = chosen.randrange(len(groups))
        steps.append(Step(
            chosen.choice(list(CALLS)), group, chosen.choice([1, 3, 1000, 20_000]),
            chosen.randrange(len(groups[group])), chosen.random() < 0.5,
            chosen.random() < 0.3))
    return Program(groups, steps)


def given(step: int, rank: int, count: int) -> torch.Tensor:
    """What a rank puts in: whole numbers, so that sums are exact."""
    return (torch.arange(count) % 5 + (7 * step + 3 * rank) % 13).float()


class Call(NamedTuple):
    work: Any
    tensors: List[torch.Tensor]
    expected: Callable[[], List[torch.Tensor]]


class Made:
    """One step on one rank."""

    def __init__(self, number: int, step: Step, members: Tuple[int, ...], rank: int,
                 group: Any) -> None:
        self.number, self.step, self.members, self.rank = number, step, members, rank
        self.group = group
        self.root = members[step.root]
        self.mine = given(number, rank, step.count)

    def all(self) -> List[torch.Tensor]:
        return [given(self.number, each, self.step.count) for each in self.members]

    def all_reduce(self) -> Call:
        work = dist.all_reduce(self.mine, group=self.group, async_op=True)
        return Call(work, [self.mine], lambda: [torch.stack(self.all()).sum(0)])

    def broadcast(self) -> Call:
        work = dist.broadcast(self.mine, self.root, group=self.group, async_op=True)
        return Call(work, [self.mine],
                    lambda: [given(self.number, self.root, self.step.count)])

    def all_gather(self) -> Call:
        found = [torch.empty(self.step.count) for _ in self.members]
        work = dist.all_gather(found, self.mine, group=self.group, async_op=True)
        return Call(work, found, self.all)

    def reduce_scatter(self) -> Call:
        size, place = len(self.members), self.members.index(self.rank)
        found = torch.empty(self.step.count)
        work = dist.reduce_scatter_tensor(
            found, given(self.number, self.rank, self.step.count * size),
            group=self.group, async_op=True)
        return Call(work, [found], lambda: [torch.stack([
            given(self.number, each, self.step.count * size)
            for each in self.members]).sum(0).chunk(size)[place]])

    def ring(self) -> Call:
        size, place = len(self.members), self.members.index(self.rank)
        to, source = self.members[(place + 1) % size], self.members[place - 1]
        found = torch.empty(self.step.count)
        works = dist.batch_isend_irecv([
            dist.P2POp(dist.isend, self.mine, to, self.group),
            dist.P2POp(dist.irecv, found, source, self.group)])
        return Call(works[0], [found],
                    lambda: [given(self.number, source, self.step.count)])

    def barrier(self) -> Call:
        return Call(dist.barrier(self.group, async_op=True), [], lambda: [])


CALLS: Dict[str, Callable[[Made], Call]] = {
    "all_reduce": Made.all_reduce, "broadcast": Made.broadcast,
    "all_gather": Made.all_gather, "reduce_scatter": Made.reduce_scatter,
    "ring": Made.ring, "barrier": Made.barrier,
}


def finish(call: Call) -> None:
    call.work.wait()
    for found, expected in zip(call.tensors, call.expected()):
        assert torch.equal(found, expected)


class Run:
    """A program on one rank. `die_at`: this rank ends before that step."""

    def __init__(self, rank: Any, asked: Program) -> None:
        self.rank = rank
        self.asked = asked
        self.groups = [dist.new_group(list(members)) for members in asked.groups]
        self.failed: Dict[int, Tuple[Optional[int], str]] = {}
        self.open: List[Tuple[int, Call]] = []

    def go(self, die_at: Optional[int] = None) -> Dict[int, Tuple[Optional[int], str]]:
        """Returns which rank the first error of each group names, and its text."""
        for number, step in enumerate(self.asked.steps):
            if number == die_at:
                os.kill(os.getpid(), signal.SIGKILL)
            members = self.asked.groups[step.group]
            if self.rank.rank in members:
                self.step(number, step, members)
        for index, call in self.open:
            self.attempt(index, lambda: finish(call))
        return self.failed

    def step(self, number: int, step: Step, members: Tuple[int, ...]) -> None:
        made = Made(number, step, members, self.rank.rank, self.groups[step.group])

        def body() -> None:
            call = CALLS[step.call](made)
            if step.freed:
                # Whoever allocates next gets the memory, if nobody keeps it.
                call = Call(call.work, [], call.expected)
                made.mine = torch.full((step.count,), -1.0)
                gc.collect()
            if step.asynchronous:
                self.open.append((step.group, call))
            else:
                finish(call)

        self.attempt(step.group, body)

    def attempt(self, group: int, body: Callable[[], None]) -> None:
        if group in self.failed:
            return
        try:
            body()
        except cs.CommschedError as error:
            self.failed[group] = error.rank, str(error)


def run_legal(rank: Any, seed: int) -> Dict[int, Tuple[Optional[int], str]]:
    run = Run(rank, program(seed, rank.size))
    found = run.go()
    for group, members in zip(run.groups, run.asked.groups):
        if rank.rank in members:
            dist.destroy_process_group(group)
    return found


@pytest.mark.parametrize("size", [2, 3, 4])
def test_legal_programs_give_the_sums_that_they_should(installed: None,
                                                       size: int) -> None:
    with rank_processes.Ranks(size) as ranks:
        for seed in range(size - 2, NUM_LEGAL, 3):
            print(f"seed {seed}, {size} ranks")
            assert ranks.run(run_legal, seed) == [{}] * size


def run_faulty(rank: Any, seed: int, victim: int, die_at: int
               ) -> Dict[int, Tuple[Optional[int], str]]:
    run = Run(rank, program(seed, rank.size))
    dist.barrier()  # All have their groups.
    return run.go(die_at if rank.rank == victim else None)


@pytest.mark.parametrize("seed", range(NUM_FAULTY))
def test_who_is_lost_is_named_and_groups_without_it_go_on(installed: None,
                                                          seed: int) -> None:
    chosen = random.Random(1000 + seed)
    size = chosen.randint(2, 4)
    # Rank 0 runs the control server, with which the job ends.
    victim, die_at = chosen.randrange(1, size), chosen.randrange(STEPS)
    survivors = [rank for rank in range(size) if rank != victim]
    groups = program(seed, size).groups
    with rank_processes.Ranks(size) as ranks:
        ranks.ask(run_faulty, seed, victim, die_at)
        for rank, failed in zip(survivors, ranks.answers(survivors)):
            for group, (named, said) in failed.items():
                assert victim in groups[group], f"rank {rank}: {groups[group]}: {said}"
                assert named == victim, f"rank {rank}: {said}"
