#!/usr/bin/env python3
"""Compares commsched_abi_json() with a compile of the headers.

    abi_json.py LIBCOMMSCHED INCLUDE_FOLDER C_COMPILER

Makes a C program of the JSON, which compares each number with the compiler's, declares
each function again and asserts the type of each field; and looks for names that the
headers declare and the JSON lacks.
"""

import ctypes
import pathlib
import re
import subprocess
import sys
import tempfile

import binding

# Neither functions of the library nor constants.
_INLINE = {"commsched_stream_caller"}
_NO_VALUES = {"COMMSCHED_API", "COMMSCHED_PLUGIN_LIST"}

_BEGIN = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
static int differences, checks;
static void same(const char *what, long double is, long double told) {
  ++checks;
  if (is == told) return;
  ++differences;
  printf("%s: %.20Lg in the headers, %.20Lg in the JSON\n", what, is, told);
}
static int is_zero(const void *value, size_t bytes) {
  static const char zeros[4096];
  return memcmp(value, zeros, bytes) == 0;
}
"""


def literal(value):
    if isinstance(value, float):
        return repr(value)
    return f"{value}{'u' if value >= 2**63 else ''}"


def same(expression, told):
    return f'  same("{expression}", {expression}, {literal(told)});\n'


def is_type(expression, type_name):
    """A static assertion on the type of what `expression` points to."""
    star = type_name.replace("(*)", "(**)", 1)
    star = star if star != type_name else f"{type_name}*"
    return (f'_Static_assert(_Generic({expression}, {star}: 1, default: 0), '
            f'"{expression[1:]}: {type_name}");\n')


def struct_checks(struct, structs):
    """(declarations, statements) on one struct."""
    name = struct["name"]
    outside, inside = [], [same(f"sizeof({name})", struct["size"]),
                           same(f"_Alignof({name})", struct["alignment"])]
    for field in struct["fields"]:
        at = f"(({name}*)0)->{field['name']}"
        inside += [same(f"offsetof({name}, {field['name']})", field["offset"]),
                   same(f"sizeof({at})", field["size"])]
        if "length" in field:
            inside.append(same(f"sizeof({at}) / sizeof({field['type']})",
                               field["length"]))
            outside.append(is_type(f"&{at}[0]", field["type"]))
        else:
            outside.append(is_type(f"&{at}", field["type"]))
    # A field that is left out has no initializer, which is a warning.
    def zero_of(field):
        zero = "{0}" if field["type"] in structs else "0"
        return f"{{{zero}}}" if "length" in field else zero
    zeros = ", ".join(map(zero_of, struct["fields"]))
    outside.append(f"const {name} zero_{name} = {{{zeros}}};\n")
    if "init" in struct:
        inside += default_checks(struct, structs)
    return outside, inside


def default_checks(struct, structs):
    """Statements on what _init() sets, and what it leaves 0."""
    yield f"  {{ {struct['name']} v = {struct['init']}();\n"
    for field in struct["fields"]:
        default, at = field.get("default", 0), f"v.{field['name']}"
        if isinstance(default, dict):
            for inner in structs[field["type"]]["fields"]:
                yield same(f"{at}.{inner['name']}",
                           default.get(inner["name"], 0))
        elif "default" in field:
            yield same(at, default)
        else:
            yield same(f"is_zero(&{at}, sizeof({at}))", 1)
    yield "  }\n"


def signature(function, name):
    parameters = ", ".join(p["type"] for p in function["parameters"]) or "void"
    return f"{function['returns']['type']} {name}({parameters})"


def type_checks(each):
    name = each["name"]
    if each["kind"] == "opaque":
        return [f"extern {name}* some_{name};\n"], []
    if each["kind"] == "callback":
        return [is_type(f"&*({name}*)0", signature(each, "(*)"))], []
    return [], [same(f"sizeof({name})", each["size"]),
                same(f"(({name})-1 < 0)", each["signed"])]


def c_program(abi, headers):
    structs = {s["name"]: s for s in abi["structs"]}
    outside, inside = [], []
    for checks in ([struct_checks(s, structs) for s in abi["structs"]] +
                   [type_checks(t) for t in abi["types"]]):
        outside += checks[0]
        inside += checks[1]
    for group in abi["constants"]:
        inside += [same(n, v) for n, v in group["values"].items()]
        if "type" in group:
            outside.append(f"extern {group['type']} some_{group['type']};\n")
    outside += [signature(f, f["name"]) + ";\n" for f in abi["functions"]]
    inside.append(same("sizeof(void*)", abi["pointer_size"]))
    return (includes(headers) + _BEGIN + "".join(outside) + "int main(void) {\n" +
            "".join(inside) + '  printf("%d numbers\\n", checks);\n'
            "  return differences != 0;\n}\n")


def includes(headers):
    return "".join(f'#include "{name}"\n' for name in headers)


def compiled(command, source):
    return subprocess.run([*command, "-xc", "-std=c11", "-"], input=source,
                          capture_output=True, text=True, check=False)


def told_names(abi):
    """All names of ours in the JSON, and the tags of structs and enums."""
    names = set()
    for each in abi["types"] + abi["structs"] + abi["functions"]:
        names |= {each["name"], re.sub("_t$", "", each["name"]), each.get("init")}
    for group in abi["constants"]:
        names.update(group["values"])
    return names


def missing(abi, headers, compiler):
    """Names that the headers declare and the JSON does not have."""
    declared = set()
    for flags in (["-E", "-P"], ["-E", "-dM"]):
        result = compiled([*compiler, *flags], includes(headers))
        result.check_returncode()
        text = result.stdout
        if "-dM" in flags:  # Lines of "#define NAME VALUE".
            text = "\n".join(re.findall(r"^#define (COMMSCHED_\w+) \S", text, re.M))
        declared |= set(re.findall(r"\b(?:commsched|COMMSCHED)_\w+", text))
    return sorted(declared - told_names(abi) - _INLINE - _NO_VALUES)


def wrong_headers(abi, folder):
    """What is not in the header that the JSON names."""
    for each in abi["types"] + abi["structs"] + abi["constants"] + abi["functions"]:
        text = (folder / each["header"]).read_text(encoding="utf-8")
        for name in each.get("values", [each.get("name")]):
            if not re.search(rf"\b{name}\b", text):
                yield f"{name} is not in {each['header']}"


def problems(abi, folder, cc):
    headers = sorted(path.relative_to(folder).as_posix()
                     for path in folder.glob("commsched/*.h"))
    compiler = [cc, f"-I{folder}"]
    for name in missing(abi, headers, compiler):
        yield f"{name} is in the headers, not in the JSON"
    yield from wrong_headers(abi, folder)
    with tempfile.TemporaryDirectory() as scratch:
        program = str(pathlib.Path(scratch, "program"))
        warnings = ["-Wall", "-Wextra", "-Wno-type-limits", "-Werror"]
        result = compiled([*compiler, *warnings, "-o", program],
                          c_program(abi, headers))
        if result.returncode == 0:
            result = subprocess.run([program], capture_output=True, text=True,
                                    check=False)
        print(result.stdout, end="")
        if result.returncode != 0:
            yield result.stderr or "numbers differ"


def main(library, folder, cc):
    found = list(problems(binding.abi_of(ctypes.CDLL(library)),
                          pathlib.Path(folder), cc))
    print("\n".join(found) or "the JSON is what the headers say")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
