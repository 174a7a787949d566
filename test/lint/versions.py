#!/usr/bin/env python3
"""Fails where the version is not the same everywhere: versions.py ROOT"""

import pathlib
import re
import sys

import sources

# A soname, or a version that find_package() is to take.
NAMED = re.compile(r"(?:libcommsched(?:_engine)?\.so\.|find_package\(commsched )"
                   r"(\d+\.\d+)")


def triple(text):
    return tuple(int(part) for part in text.split("."))


def violations(root):
    """One line of text per place that has another version."""
    build = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    version = re.search(r"project\(\w+ VERSION (\d+\.\d+\.\d+)", build)[1]
    found = []

    header = pathlib.Path("include/commsched/version.h")
    text = "\n".join(sources.read_lines(root, header))
    parts = re.findall(r"COMMSCHED_VERSION_(?:MAJOR|MINOR|PATCH) = (\d+)", text)
    if ".".join(parts) != version:
        found.append(f"{header}:1: has version {'.'.join(parts)}, CMakeLists.txt "
                     f"{version}")

    package = pathlib.Path("bindings/python/commsched/_version.py")
    if (root / package).exists():
        text = "\n".join(sources.read_lines(root, package))
        told = re.search(r'__version__ = "([^"]*)"', text)
        if told is None or told[1] != version:
            found.append(f"{package}:1: has version {told and told[1]}, "
                         f"CMakeLists.txt {version}")

    # What users link with, where it is written down. (CHANGELOG has old ones.)
    minor = version.rpartition(".")[0]
    for path in (*sorted(root.glob("docs/*.md")),
                 *sorted(root.glob("test/consumer/*/CMakeLists.txt"))):
        path = path.relative_to(root)
        for number, line in enumerate(sources.read_lines(root, path), 1):
            for named in NAMED.findall(line):
                if named != minor:
                    found.append(f"{path}:{number}: has version {named}, "
                                 f"CMakeLists.txt {minor}")

    # What is released is below what is being worked on, newest first.
    newest = None
    for number, line in enumerate(
            sources.read_lines(root, pathlib.Path("CHANGELOG.md")), 1):
        heading = re.match(r"## (.*)", line)
        if not heading:
            continue
        if newest is None:
            newest = triple(version)
            if heading[1] == "Unreleased":
                continue
        released = re.fullmatch(r"(\d+\.\d+\.\d+) \(\d{4}-\d{2}-\d{2}\)",
                                heading[1])
        if not released:
            found.append(f"CHANGELOG.md:{number}: '{heading[1]}' is neither "
                         "'Unreleased', at the top, nor 'VERSION (DATE)'")
        elif triple(released[1]) > newest:
            found.append(f"CHANGELOG.md:{number}: {released[1]} stands below "
                         f"{'.'.join(map(str, newest))}")
        else:
            newest = triple(released[1])
    return found


if __name__ == "__main__":
    problems = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) or "one version everywhere")
    sys.exit(1 if problems else 0)
