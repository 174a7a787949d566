"""What PyTorch's element types and reductions are called in the library."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch
from torch.distributed import ReduceOp

from .. import _enums
from .._enums import DType
from ..errors import UnimplementedError

_DTYPES: Dict[torch.dtype, DType] = {
    torch.float32: DType.F32, torch.float64: DType.F64, torch.float16: DType.F16,
    torch.bfloat16: DType.BF16, torch.int8: DType.I8, torch.int16: DType.I16,
    torch.int32: DType.I32, torch.int64: DType.I64, torch.uint8: DType.U8,
    torch.uint16: DType.U16, torch.uint32: DType.U32, torch.uint64: DType.U64,
    torch.float8_e4m3fn: DType.F8_E4M3, torch.float8_e5m2: DType.F8_E5M2,
    torch.complex64: DType.C64, torch.complex128: DType.C128, torch.bool: DType.BOOL,
}

_REDUCTIONS: Dict[object, int] = {
    ReduceOp.SUM: int(_enums.ReduceOp.SUM), ReduceOp.AVG: int(_enums.ReduceOp.AVG),
    ReduceOp.MIN: int(_enums.ReduceOp.MIN), ReduceOp.MAX: int(_enums.ReduceOp.MAX),
    ReduceOp.PRODUCT: int(_enums.ReduceOp.PROD),
    ReduceOp.BAND: int(_enums.ReduceOp.BAND), ReduceOp.BOR: int(_enums.ReduceOp.BOR),
    ReduceOp.BXOR: int(_enums.ReduceOp.BXOR),
    ReduceOp.PREMUL_SUM: int(_enums.ReduceOp.PREMUL_SUM),
}

SUM = int(_enums.ReduceOp.SUM)


def moved_as(tensor: torch.Tensor) -> Tuple[int, int]:
    """As what the elements of `tensor` travel, and how many units each has: those of
    types that the library has no name for, as bytes."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        return int(DType.U8), tensor.element_size()
    return int(dtype), 1


def summed_as(tensor: torch.Tensor, call: str) -> int:
    """As what the elements of `tensor` are reduced."""
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise UnimplementedError(f"{call} of {tensor.dtype}: such elements are moved, "
                                 "and not reduced", op=call)
    return int(dtype)


def reduction(asked: Any, call: str) -> Tuple[int, float]:
    """The library's number of a reduction, and the scale of its inputs. `asked`: a
    ReduceOp, or the type of one."""
    kind = getattr(asked, "op", asked)
    number = _REDUCTIONS.get(kind)
    if number is None:
        raise UnimplementedError(f"{call} by {kind}: there is no such reduction",
                                 op=call)
    if kind != ReduceOp.PREMUL_SUM:
        return number, 0.0
    factor = asked.factor
    return number, float(factor.item() if isinstance(factor, torch.Tensor) else factor)
