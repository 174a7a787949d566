#!/usr/bin/env python3
"""Checks the ELF headers of what is installed.

    elf.py READELF VERSION HARDENED LIBRARY... [--modules FILE...]

The soname of each LIBRARY carries the minor version while the major one is 0:
another minor may change the ABI. With HARDENED (1 or 0), these and the modules
are linked with full RELRO and no executable stack, the libraries check their
stack, and, with HARDENED 2, the sizes of what they copy.
"""

import os
import re
import subprocess
import sys


def read(readelf, path, *flags):
    return subprocess.run([readelf, "--wide", *flags, path], check=True,
                          capture_output=True, text=True).stdout


def soname_problems(readelf, path, version):
    major, minor = version.split(".")[:2]
    suffix = f"{major}.{minor}" if major == "0" else major
    expected = f"{os.path.basename(path).split('.so')[0]}.so.{suffix}"
    found = re.search(r"SONAME.*\[(.*)\]", read(readelf, path, "--dynamic"))
    if found is None or found.group(1) != expected:
        yield f"{path}: soname is {found and found.group(1)}, not {expected}"
    link = os.path.join(os.path.dirname(path), expected)
    if not os.path.exists(link):
        yield f"{link} is not there"


def link_problems(readelf, path):
    dynamic = read(readelf, path, "--dynamic")
    if not re.search(r"\((FLAGS|FLAGS_1)\).*\bNOW\b", dynamic):
        yield f"{path}: symbols are bound late (-z now is missing)"
    segments = read(readelf, path, "--segments")
    if "GNU_RELRO" not in segments:
        yield f"{path}: has no GNU_RELRO segment"
    stack = re.search(r"GNU_STACK.*?\s([RWE]+)\s+0x", segments)
    if stack is None or "E" in stack.group(1):
        yield f"{path}: has an executable stack"


def compile_problems(readelf, path, fortified):
    imported = set(re.findall(r"UND (\w+)", read(readelf, path, "--dyn-syms")))
    if "__stack_chk_fail" not in imported:
        yield f"{path}: does not check its stack"
    checked = {name for name in imported
               if name.endswith("_chk") and not name.startswith("__stack")}
    if fortified and not checked:
        yield f"{path}: checks no sizes (_FORTIFY_SOURCE is missing)"


def main(arguments):
    readelf, version, hardened, *libraries = arguments
    modules = []
    if "--modules" in libraries:
        split = libraries.index("--modules")
        libraries, modules = libraries[:split], libraries[split + 1:]
    problems = []
    for path in libraries:
        problems += soname_problems(readelf, path, version)
        if hardened != "0":
            problems += compile_problems(readelf, path, hardened == "2")
    if hardened != "0":
        for path in libraries + modules:
            problems += link_problems(readelf, path)
    print("\n".join(problems) or
          f"{len(libraries) + len(modules)} files, as they should be")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
