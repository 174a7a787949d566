"""Memory that is handed to the library: never a copy, always the caller's own.

What `memory()` takes: objects with the buffer protocol (bytearray, array, numpy), with
`data_ptr()` (torch), with `__dlpack__`, and a `Memory` of an address.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any, Dict, Optional, Tuple

from ._enums import DType

# Objects from which the binding gets an address.
Source = Any


class Memory:
    """`count` packed elements at `address`. `owner` is what keeps them there; None: the
    caller does. One may be made once and used for many calls, which is quicker."""

    __slots__ = ("address", "count", "dtype", "owner", "readonly")

    def __init__(self, address: int, count: int, dtype: DType = DType.U8,
                 owner: object = None, readonly: bool = False) -> None:
        self.address = address
        self.count = count
        self.dtype = dtype
        self.owner = owner
        self.readonly = readonly

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.size

    def part(self, offset: int, count: int) -> "Memory":
        """`count` elements from `offset`."""
        if offset < 0 or count < 0 or offset + count > self.count:
            raise ValueError(f"elements {offset} to {offset + count} of a memory of "
                             f"{self.count}")
        return Memory(self.address + offset * self.dtype.size, count, self.dtype,
                      self.owner, self.readonly)

    def view(self) -> Any:
        """The memory as a memoryview: elements, or bytes where Python has no such
        type. It is the host's only, and is not to be used longer than the memory."""
        raw = (ctypes.c_char * self.nbytes).from_address(self.address)
        octets: Any = memoryview(raw).cast("B")
        return octets.cast(_LETTERS.get(self.dtype, "B"))

    def __repr__(self) -> str:
        return f"Memory({self.address:#x}, {self.count}, {self.dtype.name})"


def memory(source: Source, dtype: Optional[DType] = None) -> Memory:
    """Where `source` is. With `dtype` its bytes are taken to be that type.

    It must be packed, in C's order. TypeError: it is no such object, or its elements
    have no name here.
    """
    if isinstance(source, Memory):
        found = source
    elif hasattr(source, "data_ptr"):
        found = _of_tensor(source, dtype)
    elif hasattr(source, "__dlpack__") and not _exports_buffer(source):
        found = _of_dlpack(source, dtype)
    else:
        found = _of_buffer(source, dtype)
    return found if dtype is None or found.dtype == dtype else _as(found, dtype)


def _as(found: Memory, dtype: DType) -> Memory:
    count, rest = divmod(found.nbytes, dtype.size)
    if rest:
        raise ValueError(f"{found.nbytes} bytes are not a whole number of "
                         f"{dtype.name}, which has {dtype.size}")
    return Memory(found.address, count, dtype, found.owner, found.readonly)


# ---- data_ptr() ---------------------------------------------------------------

_BY_NAME: Dict[str, DType] = {
    "float32": DType.F32, "float64": DType.F64, "float16": DType.F16,
    "bfloat16": DType.BF16, "int8": DType.I8, "int16": DType.I16, "int32": DType.I32,
    "int64": DType.I64, "uint8": DType.U8, "uint16": DType.U16, "uint32": DType.U32,
    "uint64": DType.U64, "float8_e4m3fn": DType.F8_E4M3, "float8_e5m2": DType.F8_E5M2,
    "complex64": DType.C64, "complex128": DType.C128, "bool": DType.BOOL,
}
_of_torch: Dict[object, DType] = {}


def _tensor_dtype(its: object, override: Optional[DType]) -> DType:
    known = _of_torch.get(its)
    if known is None:
        known = _BY_NAME.get(str(its).rpartition(".")[2])
        if known is None:
            if override is None:
                raise TypeError(f"elements of type {its} have no DType")
            return override
        _of_torch[its] = known
    return known


def _of_tensor(tensor: Any, override: Optional[DType]) -> Memory:
    if not tensor.is_contiguous():
        raise ValueError(f"the tensor of shape {tuple(tensor.shape)} and strides "
                         f"{tensor.stride()} is not contiguous")
    dtype = _tensor_dtype(tensor.dtype, override)
    return Memory(tensor.data_ptr(),
                  tensor.numel() * tensor.element_size() // dtype.size, dtype, tensor)


# ---- Buffer protocol ----------------------------------------------------------


class _PyBuffer(ctypes.Structure):
    """Py_buffer, as every CPython since 3.3 has it."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p),
                ("len", ctypes.c_ssize_t), ("itemsize", ctypes.c_ssize_t),
                ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None
_check_buffer = ctypes.pythonapi.PyObject_CheckBuffer
_check_buffer.argtypes = [ctypes.py_object]
_check_buffer.restype = ctypes.c_int

# PyBUF_FORMAT, and PyBUF_C_CONTIGUOUS with the PyBUF_STRIDES that it implies.
_FLAGS = 0x0004 | 0x0020 | 0x0018

_OF_FORMAT: Dict[Tuple[str, int], DType] = {
    ("f", 4): DType.F32, ("d", 8): DType.F64, ("e", 2): DType.F16,
    ("Zf", 8): DType.C64, ("Zd", 16): DType.C128, ("?", 1): DType.BOOL,
    ("c", 1): DType.U8,
}
for _letters, _kinds in (("bhilqn", {1: DType.I8, 2: DType.I16, 4: DType.I32,
                                     8: DType.I64}),
                         ("BHILQN", {1: DType.U8, 2: DType.U16, 4: DType.U32,
                                     8: DType.U64})):
    for _letter in _letters:
        for _bytes, _kind in _kinds.items():
            _OF_FORMAT[_letter, _bytes] = _kind


_LETTERS: Dict[DType, str] = {
    DType.F32: "f", DType.F64: "d", DType.I8: "b", DType.I16: "h", DType.I32: "i",
    DType.I64: "q", DType.U16: "H", DType.U32: "I", DType.U64: "Q", DType.BOOL: "?",
}


class _Export:
    """A buffer that an object exports, until this goes."""

    __slots__ = ("view",)

    def __init__(self, source: object) -> None:
        self.view = _PyBuffer()
        _get_buffer(source, self.view, _FLAGS)

    def __del__(self) -> None:
        if self.view.obj:
            _release_buffer(self.view)


def _exports_buffer(source: object) -> bool:
    return bool(_check_buffer(source))


def _of_buffer(source: object, override: Optional[DType]) -> Memory:
    if not _exports_buffer(source):
        raise TypeError(f"an object of type {type(source).__name__} has neither the "
                        "buffer protocol nor data_ptr() nor __dlpack__")
    export = _Export(source)
    view = export.view
    written = (view.format or b"B").decode()
    match = re.fullmatch(r"[@=<]?(Z?[a-zA-Z?])", written)
    found = _OF_FORMAT.get((match[1], view.itemsize)) if match else None
    if found is None:
        if override is None:
            raise TypeError(f"elements of format '{written}' and {view.itemsize} bytes "
                            "have no DType")
        found = override
    return Memory(view.buf or 0, view.len // found.size, found, export,
                  bool(view.readonly))


# ---- DLPack -------------------------------------------------------------------


class _DlTensor(ctypes.Structure):
    """The beginning of DLManagedTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_capsule_pointer.restype = ctypes.c_void_p

# By type code and bits.
_OF_DLPACK: Dict[Tuple[int, int], DType] = {
    (0, 8): DType.I8, (0, 16): DType.I16, (0, 32): DType.I32, (0, 64): DType.I64,
    (1, 8): DType.U8, (1, 16): DType.U16, (1, 32): DType.U32, (1, 64): DType.U64,
    (2, 16): DType.F16, (2, 32): DType.F32, (2, 64): DType.F64, (4, 16): DType.BF16,
    (5, 64): DType.C64, (5, 128): DType.C128, (6, 8): DType.BOOL,
    (10, 8): DType.F8_E4M3, (12, 8): DType.F8_E5M2,
}
_ON_STREAMS = (2, 13)  # kDLCUDA, kDLCUDAManaged.


def _of_dlpack(source: Any, override: Optional[DType]) -> Memory:
    device = source.__dlpack_device__()
    # The caller says which stream it is ordered on: nobody has to wait here.
    capsule = (source.__dlpack__(stream=-1) if device[0] in _ON_STREAMS
               else source.__dlpack__())
    tensor = _DlTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    count = 1
    for axis in reversed(range(tensor.ndim)):
        extent = tensor.shape[axis]
        if tensor.strides and extent > 1 and tensor.strides[axis] != count:
            raise ValueError(f"axis {axis} of the array has stride "
                             f"{tensor.strides[axis]}; packed it is {count}")
        count *= extent
    nbytes = count * tensor.bits * tensor.lanes // 8
    found = _OF_DLPACK.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if found is None:
        if override is None:
            raise TypeError(f"elements of DLPack's type {tensor.code} with "
                            f"{tensor.bits} bits and {tensor.lanes} lanes have no "
                            "DType")
        found = override
    # The producer's memory goes with the capsule, which nobody consumes.
    return Memory((tensor.data or 0) + tensor.byte_offset, nbytes // found.size, found,
                  (source, capsule))
