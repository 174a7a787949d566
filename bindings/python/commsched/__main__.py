"""`python -m commsched`: see --help."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import sys
from typing import Any, Dict, List, Optional, Sequence

from ._version import __version__
from .commands._program import hand_over

# Subcommands in Python, and the modules that have them (commands/__init__.py).
MODULES: Dict[str, str] = {
    "info": "commsched.commands.info",
    "report": "commsched.report.command",
}

# Those of the program `commsched`, which has a --help for each.
OF_THE_PROGRAM: Dict[str, str] = {
    "run": "starts the ranks of a job: run -n 4 -- train.py ARGS",
    "bench": "times collectives, or measures links",
    "flight": "reads flight records, and compares those of several ranks",
    "rendezvous": "the control server of a job that another launcher starts",
}

_EPILOG = """\
python -m commsched COMMAND --help says more. Examples:

  python -m commsched info
  python -m commsched run -n 4 -- train.py --epochs 3

The exit code is 0, 1 if the command failed, 2 if it was called wrongly; run gives
that of the first rank that failed.
"""


def _has(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # Not even what it is in.
        return False


def _parser(modules: Dict[str, Any]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m commsched", epilog=_EPILOG,
        description="Plans and runs the communication of distributed training.",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version",
                        version=f"commsched {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in modules.items():
        command = commands.add_parser(name, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
    for name, help in OF_THE_PROGRAM.items():
        commands.add_parser(name, help=help, add_help=False)
    return parser


def main(arguments: Optional[Sequence[str]] = None) -> int:
    given: List[str] = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in OF_THE_PROGRAM:
        return hand_over(given[0], given[1:])
    modules = {name: importlib.import_module(module)
               for name, module in MODULES.items() if _has(module)}
    options = _parser(modules).parse_args(given)
    from .errors import CommschedError
    try:
        return int(modules[options.command].main(options))
    except CommschedError as error:
        print(f"commsched {options.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
