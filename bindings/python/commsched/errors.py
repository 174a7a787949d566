"""Failures of the library as exceptions, one class per status code."""

from __future__ import annotations

import re
from typing import Dict, Optional, Type

from ._enums import Status
from ._lib import abi

_last_error = abi.function("commsched_last_error")

# How messages of the library write what they are about.
_MISSING = re.compile(
    r"\brank (\d+)[^:;]*? (?:is lost|will not come|has left|left|aborted|has not)\b"
    r"|\bmissing of \d+ ranks: (\d+)"
    r"|\bRanks? (\d+)[^:;]*? failed to pass\b")
_RANK = re.compile(r"\brank (\d+)")
_GROUP = re.compile(r"\b(?:group|axis) '([^']+)'")
_OP = re.compile(r"\b(?:op|collective|launch) '([^']+)'")


def _found(pattern: "re.Pattern[str]", message: str) -> Optional[str]:
    match = pattern.search(message)
    return match[match.lastindex or 0] if match else None


def _rank_in(message: str) -> Optional[int]:
    found = _found(_MISSING, message) or _found(_RANK, message)
    return None if found is None else int(found)


class CommschedError(RuntimeError):
    """A call of the library failed.

    `op` and `group` are what the call was about, if it said so, else the first ones
    that the message names; `rank` is the rank of which the message says that it is
    lost, missing or has aborted, else the one that it names first. Each is None where
    there is none.
    """

    status: Status = Status.UNKNOWN

    def __init__(self, message: str, *, op: Optional[str] = None,
                 group: Optional[str] = None, rank: Optional[int] = None) -> None:
        super().__init__(message)
        self.message = message
        self.op = op if op is not None else _found(_OP, message)
        self.group = group if group is not None else _found(_GROUP, message)
        self.rank = rank if rank is not None else _rank_in(message)

    def __str__(self) -> str:
        return f"{self.status.name}: {self.message}"


class CancelledError(CommschedError):
    status = Status.CANCELLED


class UnknownError(CommschedError):
    status = Status.UNKNOWN


class InvalidArgumentError(CommschedError, ValueError):
    status = Status.INVALID_ARGUMENT


class DeadlineExceededError(CommschedError, TimeoutError):
    status = Status.DEADLINE_EXCEEDED


class NotFoundError(CommschedError):
    status = Status.NOT_FOUND


class AlreadyExistsError(CommschedError):
    status = Status.ALREADY_EXISTS


class PermissionDeniedError(CommschedError):
    status = Status.PERMISSION_DENIED


class ResourceExhaustedError(CommschedError):
    status = Status.RESOURCE_EXHAUSTED


class FailedPreconditionError(CommschedError):
    status = Status.FAILED_PRECONDITION


class AbortedError(CommschedError):
    status = Status.ABORTED


class OutOfRangeError(CommschedError, ValueError):
    status = Status.OUT_OF_RANGE


class UnimplementedError(CommschedError, NotImplementedError):
    status = Status.UNIMPLEMENTED


class InternalError(CommschedError):
    status = Status.INTERNAL


class UnavailableError(CommschedError):
    status = Status.UNAVAILABLE


class DataLossError(CommschedError):
    status = Status.DATA_LOSS


class UnauthenticatedError(CommschedError):
    status = Status.UNAUTHENTICATED


_CLASSES: Dict[int, Type[CommschedError]] = {
    each.status: each for each in (
        CancelledError, UnknownError, InvalidArgumentError, DeadlineExceededError,
        NotFoundError, AlreadyExistsError, PermissionDeniedError,
        ResourceExhaustedError, FailedPreconditionError, AbortedError, OutOfRangeError,
        UnimplementedError, InternalError, UnavailableError, DataLossError,
        UnauthenticatedError)
}


def last_message() -> str:
    """The message of this thread's last failed call."""
    text: bytes = _last_error() or b""
    return text.decode("utf-8", "replace")


def error(status: int, message: Optional[str] = None, *, op: Optional[str] = None,
          group: Optional[str] = None) -> CommschedError:
    """The exception for `status`, with this thread's last message unless given one."""
    made = _CLASSES.get(status, UnknownError)
    text = last_message() if message is None else message
    return made(text, op=op, group=group)


def check(status: int, *, op: Optional[str] = None,
          group: Optional[str] = None) -> None:
    """Raises what `status`, returned by a call that this thread just made, says."""
    if status:
        raise error(status, op=op, group=group)
