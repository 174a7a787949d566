"""Training steps of one rank, case by case: what scripts/torch-table runs on each.

    commsched run -n 4 -- python bindings/python/bench/torch_steps.py --address HOST \
        --rounds 7 CASE...

The cases (torch_ways.py) take turns within a round. Each runs in a process of its own,
forked from this one, which has imported PyTorch and has no thread: so it makes its
process group as a script does, and its peak of memory is its own. Rank 0 prints one
JSON line per turn.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import resource
import sys
import time
import traceback
from typing import Any, Dict, List

# No thread may be there when a case is forked.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ.setdefault("DS_ACCELERATOR", "cpu")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/torch"))

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp  # What takes seconds is imported once.
import torch.distributed.tensor

import commsched.torch
import gpt
import torch_ways

FIRST_PORT = 29500
TIMEOUT = datetime.timedelta(seconds=60)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def idle_s() -> float:
    """Of all cores, since the machine started."""
    words = pathlib.Path("/proc/stat").read_text().split()
    return (int(words[4]) + int(words[5])) / TICKS_PER_S


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Meter:
    """What all cores, and this process, are busy for."""

    def __init__(self) -> None:
        self._begun = time.monotonic()
        self._idle = idle_s()
        self._cpu = time.process_time()

    def cpu_s(self) -> float:
        return time.process_time() - self._cpu

    def busy_s(self) -> float:
        elapsed = time.monotonic() - self._begun
        return elapsed * (os.cpu_count() or 1) - (idle_s() - self._idle)


def train(case: torch_ways.Case, options: argparse.Namespace,
          ends: contextlib.ExitStack) -> Dict[str, Any]:
    """What rank 0 has to say of the steps of all. `ends` gives up what was made."""
    before = peak_bytes()
    model = gpt.model(options)
    counts = {"block_elements": _elements(model.blocks),
              "elements": _elements(model)}
    text = torch.frombuffer(bytearray(options.data.read_bytes()),
                            dtype=torch.uint8).long()
    step = torch_ways.make_step(case, model, ends)
    times: List[float] = []
    for number in range(options.warmup + options.steps):
        if number == options.warmup:
            dist.barrier()
            meter = Meter()
        batch = gpt.batch(text, number, options.batch)
        begun = time.perf_counter()
        loss = step(batch)
        times.append(time.perf_counter() - begun)
    cpu = meter.cpu_s()
    dist.barrier()
    busy = meter.busy_s()
    everyone: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, (times[options.warmup:], cpu, loss.item(),
                                      peak_bytes() - before))
    return {"step_s": [max(of_step) for of_step in zip(*(one[0] for one in everyone))],
            "cpu_s": sum(one[1] for one in everyone) / options.steps,
            "busy_s": busy / options.steps,
            "loss": sum(one[2] for one in everyone) / len(everyone),
            "peak_bytes": max(one[3] for one in everyone), **counts}


def _elements(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def turn(text: str, number: int, options: argparse.Namespace) -> None:
    case = torch_ways.parse(text)
    torch.set_num_threads(1)
    commsched.torch.register()  # As its entry point does where it is installed.
    dist.init_process_group(
        case.backend, init_method=f"tcp://{options.address}:{FIRST_PORT + number}",
        rank=options.rank, world_size=options.size, timeout=TIMEOUT)
    with contextlib.ExitStack() as ends:
        found = train(case, options, ends)
    if options.rank == 0:
        print(json.dumps({"case": text, **found}), flush=True)
    dist.destroy_process_group()


def in_a_fork(text: str, number: int, options: argparse.Namespace) -> None:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            turn(text, number, options)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)  # What Python would tidy up takes seconds.
    _, status = os.waitpid(child, 0)
    if status != 0:
        sys.exit(f"torch_steps: rank {options.rank}: case '{text}' failed")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--address", default="127.0.0.1", help="of rank 0")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warmup", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=1, help="of a rank")
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--data", type=pathlib.Path, help="a text",
                        default=pathlib.Path(__file__).parents[3] / "LICENSE")
    options = parser.parse_args()
    options.rank = int(os.environ["COMMSCHED_RANK"])
    options.size = int(os.environ["COMMSCHED_WORLD_SIZE"])
    return options


def main() -> None:
    options = arguments()
    # What libraries of this field look for.
    os.environ.update(RANK=str(options.rank), WORLD_SIZE=str(options.size),
                      LOCAL_RANK=str(options.rank), MASTER_ADDR=options.address,
                      MASTER_PORT=str(FIRST_PORT))
    if any(torch_ways.parse(text).way == "deepspeed" for text in options.cases):
        import deepspeed  # noqa: F401
    for turn_number in range(options.rounds * len(options.cases)):
        # Each round begins with another case.
        round_number, at = divmod(turn_number, len(options.cases))
        case = options.cases[(at + round_number) % len(options.cases)]
        in_a_fork(case, turn_number, options)


if __name__ == "__main__":
    main()
