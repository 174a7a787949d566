"""The version of the package, which is that of the library that it is made for."""

from __future__ import annotations

__version__ = "0.2.0"

# The least COMMSCHED_ABI_VERSION that has all that the package calls.
ABI_VERSION = 1
