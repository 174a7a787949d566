"""The examples: a GPT on the same text by each way."""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import runpy
import socket
import subprocess
import sys
from typing import Any, List

import pytest

import ranks as rank_processes

EXAMPLES = pathlib.Path(__file__).resolve().parents[4] / "examples" / "torch"
ARGUMENTS = ["--steps", "10", "--width", "32", "--layers", "2"]
FEW_LINES = 150


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def run_example(rank: Any, name: str, backend: str, port: int) -> str:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = [name, "--backend", backend, *ARGUMENTS]
    sys.path.insert(0, str(EXAMPLES))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return said.getvalue()


def losses(said: str) -> List[float]:
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", said)]


@pytest.fixture(scope="module")
def of_gloo() -> List[float]:
    with rank_processes.Ranks(2, started=False) as ranks:
        return losses(ranks.run(run_example, "ddp.py", "gloo", free_port())[0])


@pytest.mark.parametrize("name", sorted(
    path.name for path in EXAMPLES.glob("*.py") if path.name != "gpt.py"))
def test_each_way_has_the_losses_of_ddp_over_gloo(of_gloo: List[float],
                                                  name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= FEW_LINES
    with rank_processes.Ranks(2, started=False) as ranks:
        said = ranks.run(run_example, name, "commsched", free_port())[0]
        assert ranks.close() == [0, 0]
    assert of_gloo == sorted(of_gloo, reverse=True) and len(of_gloo) == 4
    assert losses(said) == pytest.approx(of_gloo, abs=2e-4)
    if name == "recorded_ddp.py":
        assert re.search(r"^6 of 10 backwards replayed a plan of \d+ buckets", said,
                         re.MULTILINE)


def test_torchrun_needs_nothing_but_the_package(of_gloo: List[float]) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", "2", str(EXAMPLES / "ddp.py"), *ARGUMENTS],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path),
             "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert losses(ran.stdout) == pytest.approx(of_gloo, abs=2e-4)
