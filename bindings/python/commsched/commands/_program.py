"""Hands a subcommand over to the program `commsched`."""

from __future__ import annotations

import os
import sys
from typing import List, Sequence

from .._info import program


def arguments_of(name: str, arguments: Sequence[str], python: str) -> List[str]:
    """Of the program. A command that is a Python file is run by this Python."""
    passed = list(arguments)
    if name == "run" and "--" in passed:
        at = passed.index("--") + 1
        if at < len(passed) and (passed[at].endswith(".py") or passed[at] == "-m"):
            passed.insert(at, python)
    return [name, *passed]


def hand_over(name: str, arguments: Sequence[str]) -> int:
    """Becomes the program, whose exit code is that of this process. 1: there is no
    program."""
    path = program()
    if path is None:
        print(f"commsched {name}: the program commsched is neither in the package nor "
              "beside the library nor in PATH", file=sys.stderr)
        return 1
    sys.stdout.flush()
    os.execv(path, [path, *arguments_of(name, arguments, sys.executable)])
