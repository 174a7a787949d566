"""`python -m commsched report train.py ARGS`: a report on an unchanged script.

Started once per rank, as by `torchrun -m commsched report train.py ARGS`.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import runpy
import signal
import sys
import traceback
from types import FrameType
from typing import Iterator, List, Optional

from commsched.errors import CommschedError

from .session import GATHER_TIMEOUT_S, Report

HELP = "runs a PyTorch script and reports on its communication"


class Terminated(SystemExit):
    """SIGTERM came, as from a launcher one of whose ranks has failed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the report as JSON")
    parser.add_argument(
        "--html", metavar="FILE", help="write it as a page with a timeline"
    )
    parser.add_argument(
        "--trace",
        metavar="FOLDER",
        help="write a Chrome trace of each rank, as HTA reads it",
    )
    parser.add_argument(
        "--skip",
        metavar="N",
        type=int,
        default=1,
        help="leave out the first N steps after the first update (%(default)s)",
    )
    parser.add_argument(
        "--gather-timeout",
        metavar="SECONDS",
        type=float,
        default=GATHER_TIMEOUT_S,
        help="how long rank 0 waits for the other ranks' end (%(default)s)",
    )
    parser.add_argument(
        "-m", dest="module", action="store_true", help="SCRIPT is a module's name"
    )
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)


def main(args: argparse.Namespace) -> int:
    """Runs the script. Its exceptions and exit code stay what they are."""
    report = Report(
        json=args.json,
        html=args.html,
        trace=args.trace,
        skip=args.skip,
        timeout_s=args.gather_timeout,
    )
    try:
        with _terminated_as_exception(), report:
            _run(args.script, args.arguments, args.module)
    except CommschedError:  # The script's, which shows where, as others do.
        traceback.print_exc()
        return 1
    return 0


def _run(script: str, arguments: List[str], module: bool) -> None:
    sys.argv = [script, *arguments]
    if module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    runpy.run_path(script, run_name="__main__")


@contextlib.contextmanager
def _terminated_as_exception() -> Iterator[None]:
    """Lets the report be written when the launcher ends this rank."""

    def terminate(number: int, frame: Optional[FrameType]) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Once is enough.
        raise Terminated(128 + number)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
