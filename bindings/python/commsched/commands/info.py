"""`python -m commsched info`: what the package and its library can use."""

from __future__ import annotations

import argparse
import json

from .._info import library_info, library_text, package_info

HELP = "what the package and its library can use, and what they cannot and why"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write JSON")


def main(options: argparse.Namespace) -> int:
    package = package_info()
    if options.json:
        print(json.dumps({**library_info(), "python_package": package}, indent=2))
        return 0
    print(f"commsched {package['package']} for Python {package['python']}")
    print(f"library: {package['library']}")
    print(f"program: {package['program'] or 'none (run and bench need it)'}\n")
    print(library_text())
    return 0
