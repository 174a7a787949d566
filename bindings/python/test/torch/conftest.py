"""What all tests with PyTorch have: the package with its entry point, and ranks."""

from __future__ import annotations

import pathlib
from typing import Iterator

import pytest
import torch
import torch._dynamo.testing
import torch._inductor.config
import torch.distributed.fsdp  # What takes seconds is imported once, for all ranks.
import torch.distributed.tensor
import torch.testing

import ranks as rank_processes
from installed import install

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "commsched"

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Without an import by the script, as after pip install."""
    install(tmp_path_factory.mktemp("site"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ranks", type=int, default=2,
                     help="of cases that run on any number of ranks")
    parser.addoption("--compile-with", default="aot_eager",
                     help="the backend of torch.compile; inductor takes longer")


@pytest.fixture(scope="session")
def pool(installed: None) -> Iterator[rank_processes.Pool]:
    """Two ranks for all cases."""
    made = rank_processes.Pool(2)
    yield made
    made.close()


@pytest.fixture(scope="session")
def any_pool(request: pytest.FixtureRequest,
             pool: rank_processes.Pool) -> Iterator[rank_processes.Pool]:
    """As many ranks as asked for, for cases that do not mind."""
    size = request.config.getoption("--ranks")
    if size == 2:
        yield pool
        return
    made = rank_processes.Pool(size)
    yield made
    made.close()
