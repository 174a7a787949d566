"""Structs, constants and functions of the C ABI, made of commsched_abi_json().

Nothing of a struct is written down here: sizes, offsets and defaults are those of the
library that is loaded. What is asked for is made at first use.
"""

from __future__ import annotations

import ctypes
import json
from struct import Struct
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

_Description = Mapping[str, Any]

_OF_C: Dict[str, Any] = {
    "char": ctypes.c_char, "float": ctypes.c_float, "double": ctypes.c_double,
    "uint8_t": ctypes.c_uint8, "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
}
_INTEGERS = {(4, 0): ctypes.c_uint32, (4, 1): ctypes.c_int32,
             (8, 0): ctypes.c_uint64, (8, 1): ctypes.c_int64}

# What "version" of the JSON says, as long as keys keep their meaning.
JSON_VERSION = 1


class LibraryError(ImportError):
    """There is no library, or none that this package works with."""


def describe(library: ctypes.CDLL) -> Dict[str, Any]:
    """What `library` tells of its ABI."""
    try:
        tell = library.commsched_abi_json
    except AttributeError:
        raise LibraryError(
            f"{library._name} has no commsched_abi_json: it is older than 0.2, or "
            "not libcommsched") from None
    tell.restype = ctypes.c_char_p
    text = tell()
    if text is None:
        raise LibraryError(f"{library._name}: no memory to describe its ABI")
    described: Dict[str, Any] = json.loads(text)
    return described


def refuse(described: _Description, path: str, version: str,
           abi_version: int) -> None:
    """Raises LibraryError unless a package of `version` can call the library."""
    minor = version.rpartition(".")[0]

    def require(name: str, has: object, wanted: str, fits: bool) -> None:
        if not fits:
            raise LibraryError(f"{path}: {name} is {has}; commsched {version} for "
                               f"Python needs {wanted}")

    found = described.get("version")
    require("the version of commsched_abi_json()", found, str(JSON_VERSION),
            found == JSON_VERSION)
    found = described["pointer_size"]
    size = ctypes.sizeof(ctypes.c_void_p)
    require("pointer_size", found, str(size), found == size)
    # Before 1.0 a minor version may change the ABI.
    found = described["library_version"]
    require("library_version", found, f"{minor}.x", found.rpartition(".")[0] == minor)
    found = described["abi_version"]
    require("abi_version", found, f"{abi_version} or newer", found >= abi_version)


class Abi:
    """The ABI of one loaded library."""

    def __init__(self, library: ctypes.CDLL, described: _Description) -> None:
        self.library = library
        self.described = described
        self._structs = {s["name"]: s for s in described["structs"]}
        self._named = {t["name"]: t for t in described["types"]}
        self._functions = {f["name"]: f for f in described["functions"]}
        self._constants: Dict[str, int] = {}
        for group in described["constants"]:
            self._constants.update(group["values"])
        self._types: Dict[str, Any] = dict(_OF_C)

    def constant(self, name: str) -> int:
        """The value of the enumerator or macro `name`."""
        try:
            return self._constants[name]
        except KeyError:
            raise LibraryError(f"{self.library._name} has no constant {name}") from None

    def enumerators(self, type_name: str) -> Dict[str, int]:
        """The values that belong to the type `type_name`."""
        for group in self.described["constants"]:
            if group.get("type") == type_name:
                return dict(group["values"])
        raise LibraryError(f"{self.library._name} has no constants of {type_name}")

    def function(self, name: str) -> Callable[..., Any]:
        """The function `name`, with its result and parameters declared. It releases
        the GIL while it is called."""
        described = self._functions.get(name)
        if described is None or not hasattr(self.library, name):
            raise LibraryError(f"{self.library._name} has no function {name}")
        function = getattr(self.library, name)
        function.restype = self._typed(described["returns"])
        function.argtypes = [self._typed(p) for p in described["parameters"]]
        made: Callable[..., Any] = function
        return made

    def struct(self, name: str, /, **values: Any) -> Any:
        """A struct with the defaults of its _init(), and `values`."""
        made = self.type(name)()
        for field in self._structs[name]["fields"]:
            default = field.get("default")
            if isinstance(default, dict):
                for inner, value in default.items():
                    setattr(getattr(made, field["name"]), inner, value)
            elif default is not None:
                setattr(made, field["name"], default)
        for field_name, value in values.items():
            setattr(made, field_name, value)
        return made

    def packer(self, name: str, fields: Sequence[str]) -> Struct:
        """Writes the first fields of the struct `name`, which are `fields`, in one
        call: quicker than one by one. Pointers are written as addresses, NULL as 0."""
        described = self._structs[name]["fields"][:len(fields)]
        found = tuple(f["name"] for f in described)
        if found != tuple(fields):
            raise LibraryError(f"{self.library._name}: {name} begins with {found}; the "
                               f"package writes {tuple(fields)}")
        written, at = "=", 0
        for field in described:
            letter = "Q" if "target" in field else _letter(self.type(field["type"]))
            written += "x" * (field["offset"] - at) + letter
            at = field["offset"] + field["size"]
        return Struct(written)

    def values(self, filled: Any) -> Dict[str, Any]:
        """The fields of a struct that are numbers, but for its size."""
        fields = self._structs[type(filled).__name__]["fields"]
        return {f["name"]: getattr(filled, f["name"]) for f in fields
                if f["name"] not in ("struct_size", "reserved")
                and isinstance(getattr(filled, f["name"]), (int, float))}

    def type(self, name: str) -> Any:
        """The ctypes type called `name`, complete."""
        made = self._types.get(name)
        if made is not None:
            return made
        if name in self._structs:
            return self._struct_type(name)
        described = self._named.get(name)
        if described is None:
            raise LibraryError(f"{self.library._name} has no type {name}")
        if described["kind"] == "integer":
            made = _INTEGERS[described["size"], described["signed"]]
        elif described["kind"] == "callback":
            made = self._callback(described)
        else:  # Opaque: only pointed to.
            made = ctypes.c_void_p
        self._types[name] = made
        return made

    def _struct_type(self, name: str) -> Any:
        # It is known before its fields are, since they may point to it.
        made: Any = type(name, (ctypes.Structure,), {})
        self._types[name] = made
        described = self._structs[name]
        made._fields_ = [(f["name"], self._typed(f)) for f in described["fields"]]
        if ctypes.sizeof(made) != described["size"]:
            raise LibraryError(
                f"{self.library._name}: {name} has {described['size']} bytes, and "
                f"{ctypes.sizeof(made)} as ctypes lays it out")
        return made

    def _typed(self, described: _Description) -> Any:
        """The type of a field, parameter or result."""
        if "callback" in described:
            return self._callback(described["callback"])
        if described["type"] == "void":
            return None
        if "target" in described:
            made = self._pointer(described["target"])
        else:
            made = self.type(described["type"].replace("const ", ""))
        return made * described["length"] if "length" in described else made

    def _pointer(self, target: str) -> Any:
        if target == "void" or self._is_opaque(target):
            return ctypes.c_void_p
        if target == "char":
            return ctypes.c_char_p
        if target.endswith("*"):
            return ctypes.POINTER(self._pointer(target[:-1]))
        return ctypes.POINTER(self.type(target))

    def _is_opaque(self, name: str) -> bool:
        described = self._named.get(name)
        return described is not None and described["kind"] == "opaque"

    def _callback(self, function: _Description) -> Any:
        parameters: List[Any] = [self._typed(p) for p in function["parameters"]]
        return ctypes.CFUNCTYPE(self._typed(function["returns"]), *parameters)


def _letter(integer: Any) -> str:
    """As the module struct calls a type of C."""
    if integer in (ctypes.c_float, ctypes.c_double):
        return {ctypes.c_float: "f", ctypes.c_double: "d"}[integer]
    letter = {1: "b", 2: "h", 4: "i", 8: "q"}[ctypes.sizeof(integer)]
    return letter if integer(-1).value < 0 else letter.upper()


def soname(version: str) -> Tuple[str, ...]:
    """File names of the library of that version, the most exact one first."""
    minor = version.rpartition(".")[0]
    return (f"libcommsched.so.{minor}", "libcommsched.so")
