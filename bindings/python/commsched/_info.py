"""What the package and its library are, and what they can use."""

from __future__ import annotations

import json
import os
import pathlib
import platform
import shutil
from typing import Any, Dict, Optional

from ._enums import Format
from ._lib import abi, library_path
from ._text import text_of
from ._version import __version__

_plugin_load = abi.function("commsched_plugin_load")
_info = abi.function("commsched_info")

_PACKAGE = pathlib.Path(__file__).resolve().parent


def library_info() -> Dict[str, Any]:
    """What commsched_info() says, with all plugins of the search path loaded."""
    _plugin_load(None, 0)
    read: Dict[str, Any] = json.loads(text_of(_info, Format.JSON))
    return read


def library_text() -> str:
    """The same, for people."""
    _plugin_load(None, 0)
    return text_of(_info, Format.TEXT)


def package_info() -> Dict[str, Any]:
    """Where the package and its parts are."""
    return {"package": __version__, "python": platform.python_version(),
            "library": library_path(), "program": program()}


def program() -> Optional[str]:
    """The program `commsched` that belongs to the library: in the package, else as it
    is installed or built beside the library, else the one in PATH."""
    library = pathlib.Path(library_path()).parent
    for found in (_PACKAGE / "bin" / "commsched",
                  library.parent / "bin" / "commsched",
                  library.parent.parent / "bin" / "commsched"):
        # The one in a virtual environment's bin may be this package's.
        if found.is_file() and os.access(found, os.X_OK) and _is_elf(found):
            return str(found)
    found_in_path = shutil.which("commsched")
    if found_in_path is None or not _is_elf(pathlib.Path(found_in_path)):
        return None
    return found_in_path


def _is_elf(path: pathlib.Path) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
