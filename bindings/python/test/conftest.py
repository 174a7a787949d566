"""What tests of the package share. COMMSCHED_LIB names the library, unless the package
lies beside it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any, Callable, List

import pytest

import commsched as cs

PACKAGE = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def on_ranks() -> Callable[..., List[Any]]:
    """on_ranks(size, body): what `body(context)` returns on each rank, by rank."""

    def run(size: int, body: Callable[[cs.Context], Any],
            **world: Any) -> List[Any]:
        with cs.World(size, **world) as made:
            return made.run(body)

    return run


@pytest.fixture
def python() -> Callable[..., "subprocess.Popen[str]"]:
    """python(code): a process that runs `code` with this package."""

    def start(code: str, *arguments: str, **environment: str
              ) -> "subprocess.Popen[str]":
        paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [sys.executable, "-B", "-c", code, *arguments], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment})

    return start
