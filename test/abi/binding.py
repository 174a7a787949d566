"""A binding of the C ABI by ctypes, made of commsched_abi_json() alone."""

import ctypes
import json

_OF_C = {
    "char": ctypes.c_char, "float": ctypes.c_float, "double": ctypes.c_double,
    "uint8_t": ctypes.c_uint8, "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
}
_INTEGERS = {(4, 0): ctypes.c_uint32, (4, 1): ctypes.c_int32}


def abi_of(library):
    """What `library`, a ctypes.CDLL, tells of the ABI."""
    tell = library.commsched_abi_json
    tell.restype = ctypes.c_char_p
    return json.loads(tell())


class Binding:
    """Functions and constants are attributes, by name. `libraries` has paths by what
    the JSON calls each library; functions of others are left out."""

    def __init__(self, libraries):
        loaded = {name: ctypes.CDLL(path) for name, path in libraries.items()}
        self.abi = abi_of(loaded["commsched"])
        self._types = dict(_OF_C)
        self._structs = {s["name"]: s for s in self.abi["structs"]}
        self._declare()
        for name in self._structs:
            self._named(name)
        for group in self.abi["constants"]:
            for name, value in group["values"].items():
                setattr(self, name, value)
        for each in self.abi["functions"]:
            if each["library"] in loaded:
                function = getattr(loaded[each["library"]], each["name"])
                function.restype = self._type(each["returns"])
                function.argtypes = [self._type(p) for p in each["parameters"]]
                setattr(self, each["name"], function)

    def _declare(self):
        """Structs have no fields yet, so that they can point to each other."""
        for name in self._structs:
            self._types[name] = type(name, (ctypes.Structure,), {})
        for each in self.abi["types"]:
            name = each["name"]
            if each["kind"] == "integer":
                self._types[name] = _INTEGERS[each["size"], each["signed"]]
            elif each["kind"] == "opaque":
                self._types[name] = type(name, (ctypes.Structure,), {})
        for each in self.abi["types"]:
            if each["kind"] == "callback":
                self._types[each["name"]] = self._callback(each)

    def _named(self, name):
        """The type called `name`, complete."""
        made = self._types[name]
        if name in self._structs and not hasattr(made, "_fields_"):
            made._fields_ = [(f["name"], self._type(f))
                             for f in self._structs[name]["fields"]]
        return made

    def _type(self, described):
        if "callback" in described:
            return self._callback(described["callback"])
        if described["type"] == "void":
            return None
        if "target" in described:
            made = self._pointer(described["target"])
        else:
            made = self._named(described["type"].replace("const ", ""))
        return made * described["length"] if "length" in described else made

    def _pointer(self, target):
        if target == "void":
            return ctypes.c_void_p
        if target == "char":
            return ctypes.c_char_p
        if target.endswith("*"):
            return ctypes.POINTER(self._pointer(target[:-1]))
        return ctypes.POINTER(self._types[target])

    def _callback(self, function):
        returns = self._type(function["returns"])
        return ctypes.CFUNCTYPE(returns, *map(self._type, function["parameters"]))

    def struct(self, name, /, **values):
        """A struct with the defaults of its _init(), and `values`."""
        made = self._types[name]()
        for field in self._structs[name]["fields"]:
            default = field.get("default")
            if isinstance(default, dict):
                for inner, value in default.items():
                    setattr(getattr(made, field["name"]), inner, value)
            elif default is not None:
                setattr(made, field["name"], default)
        for field, value in values.items():
            setattr(made, field, value)
        return made

    def handle(self, name):
        """A NULL pointer to an opaque type, for an `out_` parameter."""
        return ctypes.POINTER(self._types[name])()
