"""Text that the library returns."""

from __future__ import annotations

import ctypes
from typing import Any, Callable

from ._lib import abi
from .errors import check

_free = abi.function("commsched_string_free")


def taken(out: "ctypes.c_char_p") -> str:
    """What `out` holds, which is released."""
    text = (out.value or b"").decode("utf-8", "replace")
    _free(out)
    return text


def text_of(function: Callable[..., Any], *arguments: Any) -> str:
    """What a function writes to its last parameter, `char** out_text`."""
    out = ctypes.c_char_p()
    check(function(*arguments, ctypes.byref(out)))
    return taken(out)
