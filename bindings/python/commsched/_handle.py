"""Objects that own a handle of the library."""

from __future__ import annotations

import atexit
import itertools
import os
import sys
from types import TracebackType
from typing import Any, Callable, Dict, Optional, Tuple, Type, TypeVar

from . import _wait

_Self = TypeVar("_Self", bound="Owner")

# What is to be released, by number, in the order in which it was made.
_live: Dict[int, Tuple[Callable[[int], Any], int]] = {}
_numbers = itertools.count()


def _release(number: int) -> None:
    """Whoever comes first releases it; then nothing happens."""
    owned = _live.pop(number, None)
    if owned is not None:
        owned[0](owned[1])


def _release_all() -> None:
    """The program ends. What it holds is released as if it had closed it, the latest
    first; but if an exception ends it, others are not to wait for this rank."""
    if hasattr(sys, "last_value"):
        _live.clear()
    while _live:
        _release(max(_live))


atexit.register(_release_all)
# The library's threads are not there in a child: it owns nothing.
os.register_at_fork(after_in_child=_live.clear)


class Owner:
    """Owns one handle, and releases it once: in `close`, at the end of a `with`, when
    the object goes, or when the program ends. A program that ends with an exception
    releases nothing: other ranks learn that it is gone."""

    _handle: Optional[int] = None
    _number = -1

    def _own(self, handle: Optional[int], destroy: Callable[[int], Any]) -> None:
        assert handle
        self._handle = handle
        self._number = next(_numbers)
        _live[self._number] = (destroy, handle)

    def __del__(self) -> None:
        _release(self._number)

    @property
    def handle(self) -> Optional[int]:
        """The address that the library's functions take; None once it is closed."""
        return self._handle

    @property
    def closed(self) -> bool:
        return self._handle is None

    def close(self) -> None:
        """Releases it. A second time nothing happens."""
        if self._handle is None:
            return
        self._handle = None
        number = self._number

        def body() -> int:
            _release(number)
            return 0

        _wait.call(body)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if error is not None and self._handle is not None:
            self._leave(f"{type(error).__name__}: {error}")
        self.close()

    def _leave(self, reason: str) -> None:
        """A `with` ends by an exception."""
