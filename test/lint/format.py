#!/usr/bin/env python3
"""Fails on code that clang-format would change: format.py ROOT CLANG_FORMAT"""

import pathlib
import subprocess
import sys

import sources

if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    code = sources.files(root, "include", "src", "test", "bench", "examples",
                         suffixes={".h", ".hpp", ".cc", ".c"})
    result = subprocess.run(
        [sys.argv[2], "--dry-run", "-Werror", "--style=file", *code],
        cwd=root, check=False)
    sys.exit(result.returncode)
