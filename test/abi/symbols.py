#!/usr/bin/env python3
"""Checks what a library exports.

    symbols.py LIBRARY SYMBOLS.TXT HEADERS... [--tests FILE...]

Its dynamic symbols are those of SYMBOLS.TXT, which are the functions that
HEADERS declare with COMMSCHED_API; each is called in one of the --tests files.
A missing symbol breaks programs that were linked yesterday.
"""

import pathlib
import re
import subprocess
import sys

_DECLARATION = re.compile(r"COMMSCHED_API\s[^;(]*?\b(commsched_\w+)\s*\(")


def exported(library):
    """Names that the dynamic linker would find in `library`."""
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", "--format=posix", library],
        capture_output=True, text=True, check=True).stdout
    return {line.split()[0].split("@")[0] for line in listing.splitlines()}


def declared(headers):
    text = "\n".join(pathlib.Path(path).read_text() for path in headers)
    return set(_DECLARATION.findall(text))


def differences(name, actual, expected_name, expected):
    for symbol in sorted(actual - expected):
        yield f"{symbol}: in {name}, not in {expected_name}"
    for symbol in sorted(expected - actual):
        yield f"{symbol}: in {expected_name}, not in {name}"


def uncalled(symbols, tests):
    text = "\n".join(pathlib.Path(path).read_text() for path in tests)
    called = set(re.findall(r"\bcommsched_\w+", text))
    for symbol in sorted(symbols - called):
        yield f"{symbol}: no test calls it"


def main(arguments):
    tests = []
    if "--tests" in arguments:
        split = arguments.index("--tests")
        arguments, tests = arguments[:split], arguments[split + 1:]
    library, list_path, *headers = arguments
    pinned = set(pathlib.Path(list_path).read_text().split())
    problems = [
        *differences("the library", exported(library), list_path, pinned),
        *differences("the headers", declared(headers), list_path, pinned),
    ]
    if tests:
        problems += uncalled(pinned, tests)
    if not pinned:
        problems.append(f"{list_path} is empty")
    print("\n".join(problems) or f"{len(pinned)} symbols, as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
