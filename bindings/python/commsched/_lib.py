"""Finds and loads libcommsched, once per process.

The library is the file that COMMSCHED_LIB names, else the one beside the package, else
the one that the system's loader finds.
"""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Iterator, List, Mapping, Tuple

from . import _abi
from ._abi import Abi, LibraryError
from ._version import ABI_VERSION, __version__

__all__ = ["LibraryError", "abi", "library_path"]

_PACKAGE = pathlib.Path(__file__).resolve().parent


def candidates(environment: Mapping[str, str],
               package: pathlib.Path) -> Iterator[Tuple[str, str]]:
    """Paths to try in order, and where each comes from."""
    named = environment.get("COMMSCHED_LIB", "")
    if named:
        yield named, "COMMSCHED_LIB"
        return  # Who names a file wants no other one.
    for name in _abi.soname(__version__):
        beside = package / "lib" / name
        if beside.exists():
            yield str(beside), "beside the package"
    for name in _abi.soname(__version__):
        yield name, "the system's"


def load(environment: Mapping[str, str] = os.environ,
         package: pathlib.Path = _PACKAGE) -> Abi:
    """Loads the first library that there is, and refuses it unless it fits."""
    tried: List[str] = []
    for path, origin in candidates(environment, package):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            tried.append(f"{path} ({origin}): {error}")
            continue
        described = _abi.describe(library)
        _abi.refuse(described, path, __version__, ABI_VERSION)
        return Abi(library, described)
    raise LibraryError("libcommsched cannot be loaded; tried " + "; ".join(tried))


def library_path() -> str:
    """The file of the library that is loaded."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libcommsched.so"):
                return path
    return str(abi.library._name)


abi = load()
