#!/usr/bin/env python3
"""Fails on code that clang-format would change: format.py ROOT CLANG_FORMAT

Without a program, or with CMake's "...-NOTFOUND", the test is skipped.
"""

import pathlib
import subprocess
import sys

import sources

if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    if not sys.argv[2:] or sys.argv[2].endswith("-NOTFOUND"):
        print("skipped: there is no clang-format-14, and other versions lay out "
              "some lines otherwise")
        sys.exit(77)
    code = sources.files(root, "include", "src", "test", "bench", "examples",
                         suffixes={".h", ".hpp", ".cc", ".c"})
    result = subprocess.run(
        [sys.argv[2], "--dry-run", "-Werror", "--style=file", *code],
        cwd=root, check=False)
    sys.exit(result.returncode)
