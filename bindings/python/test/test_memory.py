"""Memory is the caller's own: nothing is copied."""

import array
import ctypes
import gc
import sys

import pytest

import commsched as cs

_CASES = [("f", cs.DType.F32), ("d", cs.DType.F64), ("b", cs.DType.I8),
          ("B", cs.DType.U8), ("h", cs.DType.I16), ("H", cs.DType.U16),
          ("i", cs.DType.I32), ("I", cs.DType.U32), ("q", cs.DType.I64),
          ("Q", cs.DType.U64), ("l", cs.DType.I64)]


@pytest.mark.parametrize("code, dtype", _CASES)
def test_a_buffer_is_found_where_it_is(code, dtype):
    values = array.array(code, [1] * 5)
    found = cs.memory(values)
    assert (found.address, found.count, found.dtype) == (
        values.buffer_info()[0], 5, dtype)


def test_a_buffer_that_is_exported_cannot_be_resized():
    values = bytearray(8)
    found = cs.memory(values)
    with pytest.raises(BufferError):
        values.append(1)
    del found
    gc.collect()
    values.append(1)


def test_what_is_read_only_is_marked():
    assert cs.memory(b"12345678").readonly
    assert not cs.memory(bytearray(8)).readonly


def test_bytes_are_taken_as_the_type_that_is_given():
    assert cs.memory(bytearray(8), cs.DType.BF16).count == 4
    with pytest.raises(ValueError, match="7 bytes are not a whole number of F32"):
        cs.memory(bytearray(7), cs.DType.F32)


def test_a_type_without_a_name_is_an_error():
    with pytest.raises(TypeError, match="format"):
        cs.memory(memoryview(bytearray(8)).cast("P"))
    with pytest.raises(TypeError, match="neither the buffer protocol"):
        cs.memory(object())


def test_what_is_not_packed_is_refused():
    with pytest.raises(BufferError):
        cs.memory(memoryview(bytearray(8))[::2])


def test_a_part_is_within_the_whole():
    whole = cs.memory(array.array("f", [0] * 8))
    part = whole.part(2, 3)
    assert (part.address, part.count) == (whole.address + 8, 3)
    with pytest.raises(ValueError, match="elements 6 to 9 of a memory of 8"):
        whole.part(6, 3)


class Tensor:
    """As torch's: memory by data_ptr()."""

    def __init__(self, dtype="torch.bfloat16", contiguous=True):
        self.memory = ctypes.create_string_buffer(12)
        self.dtype = dtype
        self.shape = (6,)
        self._contiguous = contiguous

    def is_contiguous(self):
        return self._contiguous

    def stride(self):
        return (2,)

    def data_ptr(self):
        return ctypes.addressof(self.memory)

    def numel(self):
        return 6

    def element_size(self):
        return 2


def test_a_tensor_is_found_by_its_data_ptr():
    tensor = Tensor()
    found = cs.memory(tensor)
    assert (found.address, found.count, found.dtype) == (
        tensor.data_ptr(), 6, cs.DType.BF16)
    assert found.owner is tensor


def test_a_tensor_that_is_not_contiguous_is_refused():
    with pytest.raises(ValueError, match="is not contiguous"):
        cs.memory(Tensor(contiguous=False))


def test_a_tensor_of_an_unknown_type_is_refused():
    with pytest.raises(TypeError, match="torch.quint8"):
        cs.memory(Tensor(dtype="torch.quint8"))


class DlTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p)]


class DlArray:
    """A producer of DLPack over memory of its own."""

    def __init__(self, code, bits, shape, strides=None, byte_offset=0):
        self.memory = ctypes.create_string_buffer(64)
        axes = ctypes.c_int64 * len(shape)
        self.tensor = DlTensor(
            ctypes.addressof(self.memory), (1, 0), len(shape), code, bits, 1,
            axes(*shape), axes(*strides) if strides else None, byte_offset)
        self.capsules = 0

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        self.capsules += 1
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


@pytest.mark.parametrize("code, bits, dtype", [
    (2, 32, cs.DType.F32), (4, 16, cs.DType.BF16), (0, 64, cs.DType.I64),
    (6, 8, cs.DType.BOOL), (10, 8, cs.DType.F8_E4M3), (5, 64, cs.DType.C64)])
def test_dlpack_is_found_where_it_is(code, bits, dtype):
    producer = DlArray(code, bits, (2, 3), byte_offset=8)
    found = cs.memory(producer)
    assert found.address == ctypes.addressof(producer.memory) + 8
    assert (found.count, found.dtype) == (6, dtype)


def test_dlpack_keeps_its_producer():
    producer = DlArray(2, 32, (4,))
    before = sys.getrefcount(producer)
    found = cs.memory(producer)
    assert sys.getrefcount(producer) > before
    del found
    assert sys.getrefcount(producer) == before


def test_dlpack_that_is_not_packed_is_refused():
    assert cs.memory(DlArray(2, 32, (2, 3), (3, 1))).count == 6
    with pytest.raises(ValueError, match="axis 0 .* stride 4; packed it is 3"):
        cs.memory(DlArray(2, 32, (2, 3), (4, 1)))


def test_numpy_is_found_where_it_is():
    numpy = pytest.importorskip("numpy")
    values = numpy.arange(6, dtype=numpy.float16).reshape(2, 3)
    found = cs.memory(values)
    assert (found.address, found.count, found.dtype) == (
        values.ctypes.data, 6, cs.DType.F16)
    with pytest.raises((BufferError, ValueError)):
        cs.memory(values[:, ::2])
