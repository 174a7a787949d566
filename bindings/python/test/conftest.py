"""What tests of the package share. COMMSCHED_LIB names the library, unless the package
lies beside it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any, Callable, Iterator, List

import pytest

import commsched as cs

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

# What a shell starts in the background ignores ^C, and so do its children.
_HEAR = ("import signal; "
         "signal.signal(signal.SIGINT, signal.default_int_handler)\n")


@pytest.fixture
def on_ranks() -> Callable[..., List[Any]]:
    """on_ranks(size, body): what `body(context)` returns on each rank, by rank."""

    def run(size: int, body: Callable[[cs.Context], Any],
            **world: Any) -> List[Any]:
        with cs.World(size, **world) as made:
            return made.run(body)

    return run


@pytest.fixture
def python() -> Iterator[Callable[..., "subprocess.Popen[str]"]]:
    """python(code): a process that runs `code` with this package."""
    started = []

    def start(code: str, *arguments: str, **environment: str
              ) -> "subprocess.Popen[str]":
        paths = [str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])]
        process = subprocess.Popen(
            [sys.executable, "-B", "-c", _HEAR + code, *arguments], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment})
        started.append(process)
        return process

    yield start
    for process in started:  # What a test has failed on may be waiting still.
        if process.poll() is None:
            process.kill()
            process.communicate()
