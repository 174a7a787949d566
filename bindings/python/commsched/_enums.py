"""Numbers of the ABI that have names, with the library's values."""

from __future__ import annotations

import enum
from typing import Dict, Type, TypeVar, Union

from ._lib import abi

_Named = TypeVar("_Named", bound=enum.IntEnum)


def _value(name: str) -> int:
    return abi.constant("COMMSCHED_" + name)


class Status(enum.IntEnum):
    """What a call of the library returned."""

    OK = _value("OK")
    CANCELLED = _value("CANCELLED")
    UNKNOWN = _value("UNKNOWN")
    INVALID_ARGUMENT = _value("INVALID_ARGUMENT")
    DEADLINE_EXCEEDED = _value("DEADLINE_EXCEEDED")
    NOT_FOUND = _value("NOT_FOUND")
    ALREADY_EXISTS = _value("ALREADY_EXISTS")
    PERMISSION_DENIED = _value("PERMISSION_DENIED")
    RESOURCE_EXHAUSTED = _value("RESOURCE_EXHAUSTED")
    FAILED_PRECONDITION = _value("FAILED_PRECONDITION")
    ABORTED = _value("ABORTED")
    OUT_OF_RANGE = _value("OUT_OF_RANGE")
    UNIMPLEMENTED = _value("UNIMPLEMENTED")
    INTERNAL = _value("INTERNAL")
    UNAVAILABLE = _value("UNAVAILABLE")
    DATA_LOSS = _value("DATA_LOSS")
    UNAUTHENTICATED = _value("UNAUTHENTICATED")


class DType(enum.IntEnum):
    """Element type. The first eight are those of graphs and recordings; channels take
    all (docs/types.md)."""

    F32 = _value("F32")
    F64 = _value("F64")
    F16 = _value("F16")
    BF16 = _value("BF16")
    I8 = _value("I8")
    I32 = _value("I32")
    I64 = _value("I64")
    U8 = _value("U8")
    I16 = _value("I16")
    U16 = _value("U16")
    U32 = _value("U32")
    U64 = _value("U64")
    F8_E4M3 = _value("F8_E4M3")
    F8_E5M2 = _value("F8_E5M2")
    C64 = _value("C64")
    C128 = _value("C128")
    BOOL = _value("BOOL")

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return _SIZES[self]


_SIZES: Dict[int, int] = {
    DType.F32: 4, DType.F64: 8, DType.F16: 2, DType.BF16: 2, DType.I8: 1, DType.I32: 4,
    DType.I64: 8, DType.U8: 1, DType.I16: 2, DType.U16: 2, DType.U32: 4, DType.U64: 8,
    DType.F8_E4M3: 1, DType.F8_E5M2: 1, DType.C64: 8, DType.C128: 16, DType.BOOL: 1,
}


class ReduceOp(enum.IntEnum):
    """Reduction. The last four are for channels only."""

    SUM = _value("SUM")
    AVG = _value("AVG")
    MIN = _value("MIN")
    MAX = _value("MAX")
    PROD = _value("PROD")
    BAND = _value("BAND")
    BOR = _value("BOR")
    BXOR = _value("BXOR")
    PREMUL_SUM = _value("PREMUL_SUM")


class Collective(enum.IntEnum):
    """What is launched. GATHER and SCATTER are for channels only."""

    ALL_REDUCE = _value("ALL_REDUCE")
    REDUCE_SCATTER = _value("REDUCE_SCATTER")
    ALL_GATHER = _value("ALL_GATHER")
    ALL_TO_ALL = _value("ALL_TO_ALL")
    BROADCAST = _value("BROADCAST")
    REDUCE = _value("REDUCE")
    BARRIER = _value("BARRIER")
    SEND = _value("SEND")
    RECV = _value("RECV")
    GATHER = _value("GATHER")
    SCATTER = _value("SCATTER")


class DeviceKind(enum.IntEnum):
    """Where a rank computes and its memory is."""

    HOST = _value("DEVICE_HOST")
    CUDA = _value("DEVICE_CUDA")


class Ownership(enum.IntEnum):
    """Who owns the memory of a buffer of a graph."""

    OWNED = _value("OWNED")
    BOUND = _value("BOUND")
    LATE_BOUND = _value("LATE_BOUND")


class Progress(enum.IntEnum):
    """On which threads launches get on: the library's, or those of callers."""

    THREAD = _value("PROGRESS_THREAD")
    CALLER = _value("PROGRESS_CALLER")


class Format(enum.IntEnum):
    """How something is written."""

    TEXT = _value("TEXT")
    JSON = _value("JSON")
    DOT = _value("DOT")


class Schedule(enum.IntEnum):
    """Whether collectives run beside compute."""

    OVERLAP = _value("OVERLAP")
    SERIAL = _value("SERIAL")


class Priority(enum.IntEnum):
    """In which order launches go that could go at once."""

    AUTO = _value("PRIORITY_AUTO")
    OFF = _value("PRIORITY_OFF")
    ON = _value("PRIORITY_ON")


class Phase(enum.IntEnum):
    """What a recording does: it has no plan yet, runs it, or records a part again."""

    FIRST = _value("RECORDING_FIRST")
    FROZEN = _value("RECORDING_FROZEN")
    AGAIN = _value("RECORDING_AGAIN")


def named(kind: Type[_Named], value: Union[_Named, int, str]) -> _Named:
    """The member of `kind` that `value` is, or is the name of in any case."""
    if type(value) is kind:
        return value
    if isinstance(value, str):
        try:
            return kind[value.upper()]
        except KeyError:
            names = ", ".join(member.name.lower() for member in kind)
            raise ValueError(f"{kind.__name__} is '{value}'; it is one of {names}"
                             ) from None
    return kind(value)
