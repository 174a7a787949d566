#!/usr/bin/env python3
"""Fails on a key of the plan's JSON that its page does not have: json_keys.py ROOT"""

import pathlib
import re
import sys

import sources

PAGE = pathlib.Path("docs/plan_json.md")
WRITERS = "src/plan/explain"

# `json["key"] = ` and `{"key", value}`.
_KEY = re.compile(r'\w\["(\w+)"\]|\{"(\w+)", ')


def violations(root):
    """One line of text per key that is not on the page as `key`."""
    page = set(re.findall(r"`(\w+)`", "\n".join(sources.read_lines(root, PAGE))))
    found = []
    for path in sources.files(root, WRITERS, suffixes={".cc"}):
        writes_json = False
        for number, line in enumerate(sources.read_lines(root, path), 1):
            if re.match(r"\w", line):  # A function begins.
                writes_json = "Json" in line
            for match in _KEY.finditer(line):
                key = match[1] or match[2]
                if writes_json and key not in page:
                    found.append(f"{path}:{number}: the key '{key}' is not in "
                                 f"{PAGE}")
    return found


if __name__ == "__main__":
    problems = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) or "all keys of plans are on their page")
    sys.exit(1 if problems else 0)
