#!/usr/bin/env python3
"""Fails where the Python package's types do not fit: python_types.py ROOT MYPY"""

import pathlib
import subprocess
import sys

SKIPPED = 77


def main(root, mypy):
    if not pathlib.Path(mypy).is_file():
        print("skipped: there is no mypy")
        return SKIPPED
    return subprocess.run(
        [mypy, "--no-incremental", "--config-file", "pyproject.toml", "commsched"],
        cwd=pathlib.Path(root, "bindings", "python"), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
