"""Which library is loaded, and which one is refused."""

import copy
import ctypes
import pathlib

import pytest

import commsched as cs
from commsched import _abi, _lib
from commsched._lib import abi


def test_a_library_that_is_named_is_the_only_one_that_is_tried(tmp_path):
    missing = str(tmp_path / "none.so")
    found = list(_lib.candidates({"COMMSCHED_LIB": missing}, tmp_path))
    assert found == [(missing, "COMMSCHED_LIB")]
    with pytest.raises(cs.LibraryError, match=r"none\.so \(COMMSCHED_LIB\)"):
        _lib.load({"COMMSCHED_LIB": missing}, tmp_path)


def test_a_library_beside_the_package_comes_before_the_systems(tmp_path):
    beside = tmp_path / "lib" / "libcommsched.so.0.2"
    beside.parent.mkdir()
    beside.touch()
    paths = [path for path, _ in _lib.candidates({}, tmp_path)]
    assert paths == [str(beside), "libcommsched.so.0.2", "libcommsched.so"]


def test_a_library_of_something_else_is_refused_by_its_name():
    with pytest.raises(cs.LibraryError, match="libm.so.6 has no commsched_abi_json"):
        _abi.describe(ctypes.CDLL("libm.so.6"))


@pytest.mark.parametrize("key, value, says", [
    ("version", 2, r"the version of commsched_abi_json\(\) is 2; .* needs 1"),
    ("pointer_size", 4, "pointer_size is 4; .* needs 8"),
    ("library_version", "0.3.0", r"library_version is 0\.3\.0; .* needs 0\.2\.x"),
    ("abi_version", 0, "abi_version is 0; .* needs 1 or newer"),
])
def test_a_library_of_another_abi_is_refused_by_name_and_value(key, value, says):
    described = copy.deepcopy(dict(abi.described))
    described[key] = value
    with pytest.raises(cs.LibraryError, match=says):
        _abi.refuse(described, "libother.so", "0.2.0", 1)


def test_a_newer_patch_version_and_a_newer_abi_are_taken():
    described = dict(abi.described, library_version="0.2.7", abi_version=5)
    _abi.refuse(described, "libother.so", "0.2.0", 1)


def test_what_the_library_lacks_is_named():
    with pytest.raises(cs.LibraryError, match="has no function commsched_fly"):
        abi.function("commsched_fly")
    with pytest.raises(cs.LibraryError, match="has no constant COMMSCHED_FLY"):
        abi.constant("COMMSCHED_FLY")


def test_structs_are_laid_out_as_the_library_says():
    for described in abi.described["structs"]:
        made = abi.type(described["name"])
        assert ctypes.sizeof(made) == described["size"], described["name"]
        for field in described["fields"]:
            at = getattr(made, field["name"])
            assert (at.offset, at.size) == (field["offset"], field["size"])


def test_defaults_are_those_of_init():
    assert abi.struct("commsched_join_desc_t").rank == -1
    links = abi.struct("commsched_link_profile_t")
    assert links.network.bytes_per_s == 1.25e9


def test_a_packer_refuses_fields_in_another_order():
    with pytest.raises(cs.LibraryError, match="commsched_channel_op_t begins with"):
        abi.packer("commsched_channel_op_t", ("struct_size", "dtype", "kind"))


def test_the_library_that_is_loaded_is_told():
    path = pathlib.Path(cs.library_path())
    assert path.name.startswith("libcommsched.so") and path.exists()


@pytest.mark.parametrize("kind, type_name, prefix", [
    (cs.DType, "commsched_dtype_t", "COMMSCHED_"),
    (cs.ReduceOp, "commsched_reduce_op_t", "COMMSCHED_"),
    (cs.Status, "commsched_status_t", "COMMSCHED_"),
    (cs.DeviceKind, "commsched_device_kind_t", "COMMSCHED_DEVICE_"),
])
def test_every_enumerator_of_the_library_has_its_member(kind, type_name, prefix):
    assert {prefix + member.name: member.value for member in kind
            } == abi.enumerators(type_name)
