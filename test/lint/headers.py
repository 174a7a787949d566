#!/usr/bin/env python3
"""Compiles every header by itself: headers.py ROOT CC CXX public|internal [CUDA]

public: include/commsched/*.h as C99 and C++17, *.hpp as C++17.
internal: src/*/*.h as C++20, less those that a file includes before anything
else: the preset release compiles these, and thread-safety does so without
precompiled headers. CUDA is the folder of CUDA's headers; without it those that
include them are left out.
"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

import sources

_WARNINGS = ["-Wall", "-Wextra", "-pedantic", "-Werror"]


_INCLUDE = re.compile(r'^#include [<"](.*)[>"]')


def included_first(root):
    """Headers of src/ that some source file includes before all others."""
    found = set()
    for path in sources.files(root, "src", suffixes={".cc"}):
        includes = filter(None, map(_INCLUDE.match,
                                    sources.read_lines(root, path)))
        first = next(includes, None)
        if first:
            # Relative to src/ or to the file.
            found.add(pathlib.Path(first.group(1)))
            found.add(path.parent.relative_to("src") / first.group(1))
    return found


def includes_cuda(root, path):
    return any(line.startswith("#include <cuda")
               for line in sources.read_lines(root, path))


def commands(root, kind, cc, cxx, cuda):
    """(header, compiler command that reads the source from stdin)."""
    as_c = [cc, "-xc", "-std=c99"]
    if kind == "public":
        flags = ["-I", str(root / "include")]
        for path in sources.files(root, "include", suffixes={".h", ".hpp"}):
            name = path.relative_to("include")
            if path.suffix == ".h":
                yield name, as_c + flags
            yield name, [cxx, "-xc++", "-std=c++17"] + flags
    else:
        flags = ["-I", str(root / "src"), "-I", str(root / "include")]
        if cuda:
            flags += ["-isystem", cuda]
        built = included_first(root)
        for path in sources.files(root, "src", suffixes={".h"}):
            name = path.relative_to("src")
            if name not in built and (cuda or not includes_cuda(root, path)):
                yield name, [cxx, "-xc++", "-std=c++20"] + flags


def problem(header, command):
    """What the compiler says about `header` by itself, or None."""
    # Twice, so that a missing include guard shows. The declaration at the end
    # keeps C99 from calling the unit empty.
    line = f'#include "{header}"\n'
    result = subprocess.run(
        command + _WARNINGS + ["-fsyntax-only", "-"],
        input=line + line + "extern int commsched_lint;\n",
        capture_output=True, text=True, check=False)
    if result.returncode == 0:
        return None
    return f"{header} ({command[2]}): {result.stderr}"


def violations(root, kind, cc, cxx, cuda=None):
    """One text per header that does not compile alone."""
    work = list(commands(root, kind, cc, cxx, cuda))
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(lambda job: problem(*job), work))
    return len(work), [text for text in found if text]


if __name__ == "__main__":
    root, cc, cxx, kind, *cuda = sys.argv[1:]
    count, problems = violations(pathlib.Path(root), kind, cc, cxx,
                                 cuda[0] if cuda else None)
    print("\n".join(problems) or f"{count} compilations, all clean")
    sys.exit(1 if problems or count == 0 else 0)
