"""Loads UCX for the backend ucx, which is linked with it but never comes with it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from typing import Mapping

from ._lib import LibraryError

_SONAMES = ("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0")


def prepare(backend: str, environment: Mapping[str, str] = os.environ) -> None:
    """Has the process use the UCX that it is to use, if `backend` needs one: that which
    is loaded already, else the libucp that COMMSCHED_UCX_LIB names, else that of the
    wheel `libucx-cu12` or `libucx-cu13` (`pip install commsched[ucx]`), else the
    system's, which the loader finds by itself."""
    if backend != "ucx" or _loaded():
        return
    named = environment.get("COMMSCHED_UCX_LIB", "")
    if named:
        load_beside(pathlib.Path(named))
        return
    try:
        import libucx  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return
    libucx.load_library()


def _loaded() -> bool:
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return any("/libucp.so" in line for line in maps)


def load_beside(ucp: pathlib.Path) -> None:
    """Loads `ucp` and, before it, those of UCX that lie beside it, which it needs: not
    every UCX says where they are. One that cannot be loaded by itself comes with the
    next, or is missed by the last."""
    for name in _SONAMES[:-1]:
        if (ucp.parent / name).exists():
            with contextlib.suppress(OSError):
                ctypes.CDLL(str(ucp.parent / name))
    try:
        ctypes.CDLL(str(ucp))
    except OSError as error:
        raise LibraryError(
            f"COMMSCHED_UCX_LIB is {ucp}, which cannot be loaded: {error}") from None
