#!/usr/bin/env python3
"""Fails where src/engine or src/checkpoint outgrows what can be read: shape.py ROOT

No friend; no folder of more than 10 nouns (a header and its source are one); no
class of more than 40 methods; no file of more than 400 lines; and below run/
nothing names the engine.
"""

import collections
import pathlib
import re
import sys

import sources

ROOMS = ("src/engine", "src/checkpoint")
MAX_NOUNS = 10
MAX_METHODS = 40
MAX_LINES = 400

# Folders of src/engine in which nothing names the engine.
BELOW_RUN = {"update", "state", "tables", "step_plan", "model"}

_CODE = {".h", ".cc"}
_COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)
_CLASS = re.compile(r"(?<!enum )\b(?:class|struct)\s+(?:\[\[\w+\]\]\s*)?(\w+)\s*"
                    r"(?:final\s*)?(?::[^;(){}]*)?\{")
_ENGINE = re.compile(r"\bEngine\b|\bcommsched_engine_t\b|\"engine/(?:run|capi)/"
                     r"|\"(?:engine/|commsched/)?engine\.h\"")


def code_of(text):
    """The text without comments and the contents of literals."""
    def blank(match):
        lines = "\n" * match.group().count("\n")
        return f'""{lines}' if match.group()[0] == '"' else lines
    # Digits such as 1'000 are no characters in quotes.
    return _COMMENT_OR_TEXT.sub(blank, re.sub(r"(?<=\d)'(?=\d)", "", text))


def without_nested(code, begin):
    """What stands in a class itself, from behind its brace to the closing one;
    bodies and nested classes are left out, each as one semicolon."""
    depth = 1
    out = []
    for at in range(begin, len(code)):
        if code[at] == "{":
            depth += 1
        elif code[at] == "}":
            depth -= 1
            if depth == 0:
                break
            if depth == 1:
                out.append(";")
        elif depth == 1:
            out.append(code[at])
    return "".join(out)


def is_method(statement):
    """Whether a statement of a class declares a function of it."""
    statement = re.sub(r"^\s*(?:(?:public|private|protected)\s*:\s*)+", "", statement)
    if (re.match(r"(?:using|typedef|static_assert|friend|class|struct|enum)\b",
                 statement) or re.search(r"=\s*delete$", statement)):
        return False
    while (plain := re.sub(r"<[^<>]*>", "", statement)) != statement:
        statement = plain
    return re.match(r"[^=(]*(?:\boperator\W+|\b\w+\s*)\(", statement) is not None


def classes(code):
    """(Name, number of methods) of each class."""
    for match in _CLASS.finditer(code):
        body = without_nested(code, match.end())
        yield match.group(1), sum(map(is_method, map(str.strip, body.split(";"))))


def violations(root):
    """One line of text per violation."""
    problems = []
    nouns = collections.defaultdict(set)
    for path in sources.files(root, *ROOMS, suffixes=_CODE):
        name = path.as_posix()
        nouns[path.parent.as_posix()].add(path.stem)
        text = (root / path).read_text(encoding="utf-8")
        code = code_of(text)
        if re.search(r"\bfriend\b", code):
            problems.append(f"{name}: has a friend")
        lines = len(text.splitlines())
        if lines > MAX_LINES:
            problems.append(f"{name}: {lines} lines; at most {MAX_LINES}")
        for each, methods in classes(code):
            if methods > MAX_METHODS:
                problems.append(f"{name}: {each} has {methods} methods; at most "
                                f"{MAX_METHODS}")
        # Names of headers are literals.
        includes = "\n".join(re.findall(r"#include .*", text))
        if (path.parts[:2] == ("src", "engine") and path.parts[2] in BELOW_RUN
                and _ENGINE.search(code + includes)):
            problems.append(f"{name}: below run/ nothing names the engine")
    return problems + [
        f"{folder}: {len(each)} nouns; at most {MAX_NOUNS}"
        for folder, each in sorted(nouns.items()) if len(each) > MAX_NOUNS]


if __name__ == "__main__":
    found = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(found) or "src/engine and src/checkpoint are as small as they must be")
    sys.exit(1 if found else 0)
