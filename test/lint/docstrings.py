#!/usr/bin/env python3
"""Every function of the C headers states its contract: docstrings.py ROOT

The comment above a COMMSCHED_API declaration in include/commsched/*.h says
which threads may call it (`Threads:`) and since when it exists (`Since:`).
"""

import pathlib
import re
import sys

import sources

_REQUIRED = ("Threads:", "Since:")
_NAME = re.compile(r"\b(commsched_\w+)\(")


def functions(lines):
    """(line number, name, comment above) of each exported function."""
    for index, line in enumerate(lines):
        if not line.startswith("COMMSCHED_API"):
            continue
        begin = index
        while begin > 0 and lines[begin - 1].startswith("///"):
            begin -= 1
        # The name may be on the line below its return type.
        match = _NAME.search(" ".join(lines[index:index + 2]))
        yield index + 1, match.group(1) if match else line, lines[begin:index]


def problems(path, lines):
    """One text per function whose comment lacks a required entry."""
    for number, name, comment in functions(lines):
        for entry in _REQUIRED:
            if not any(line.startswith("/// " + entry) for line in comment):
                yield f"{path}:{number}: {name} has no '{entry}' line"


def violations(root):
    """The number of functions looked at and their problems."""
    count, found = 0, []
    for path in sources.files(root, "include/commsched", suffixes={".h"}):
        lines = sources.read_lines(root, path)
        count += sum(1 for _ in functions(lines))
        found += problems(path, lines)
    return count, found


if __name__ == "__main__":
    checked, texts = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(texts) or f"{checked} functions, all documented")
    sys.exit(1 if texts or checked == 0 else 0)
