#!/usr/bin/env python3
"""Fails on text that has no place in the tree: text_rules.py ROOT"""

import collections
import pathlib
import re
import sys

import sources

_CODE = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh"}
_MAX_LINES = 800

# (what is wrong, pattern, folders, suffixes or None for every file).
RULES = [
    ("tests do not sleep: wait for the event, or use FakeClock",
     re.compile(r"\b(sleep_for|sleep_until|usleep|nanosleep)\b|\bsleep\s*\("),
     ("test",), _CODE | {".py"}),
    ("tests do not change the environment: hand in a lookup",
     re.compile(r"\b(setenv|putenv|unsetenv)\s*\("), ("test",), _CODE),
    ("strings in src/ are absl::string_view",
     re.compile(r"\bstd::(w?string_view)\b|#include <string_view>"),
     ("src",), _CODE),
    ("locks in src/ are those of base/mutex.h",
     re.compile(r"\babsl::(Mutex|CondVar|Notification)\b"), ("src",), _CODE),
    ("threads in src/ are started by StartThread()",
     re.compile(r"\bstd::(j?thread(\s+\w+)?\s*[({](?!std::move\(body\))"
                r"|async\b)"),
     ("src",), _CODE),
    ("what runs a plan knows devices, streams and events by their interfaces",
     re.compile(r"\bHostDevice\b|\bHostEvent\b|\bCuda(Device|Event|Stream)\b"),
     ("src/exec", "src/session", "src/recording", "src/comm"), _CODE),
    ("what a header's absence decides is found by CMake and handed to the "
     "compiler as a definition: a compiler cache misses a header that comes",
     re.compile(r"\b__has_include\b"), (), _CODE),
    ("the library never prints to stdout",
     re.compile(r"\bstd::cout\b|(?<![\w:])printf\s*\(|\bputs\s*\("),
     tuple(f"src/{room}" for room in
           ("base", "graph", "plan", "device", "control", "comm", "trace",
            "exec", "session", "sim", "capi", "engine", "checkpoint")), _CODE),
    ("paths of one machine do not belong here",
     re.compile(r"(?<![\w.$}/-])/(work|tmp|home|root)/"), (), None),
    ("names of package registries do not belong here",
     re.compile(r"\b(deb\.debian\.org|pypi\.org|pythonhosted\.org|ghcr\.io"
                r"|registry\.npmjs\.org|docker\.io)\b"), (), None),
    ("a placeholder was never filled in", re.compile(r"@[A-Z_]+@"), (),
     {".md"}),
    ("pages that are not in the repository cannot be followed",
     re.compile(r"(?<![\w/])(design|style)\.md\b|(?<![\w/])research/\w+\.md"),
     (), None),
]


# What the engine's steps are made of waits for nothing but the session, in a
# call that says so. Offloaded state is copied, and that timed, on a stream of its
# own; bound_step.cc has the drain that is called between steps, and abort_mutex_ is
# for sessions that are replaced between steps.
_WAITS = re.compile(
    r"\b(sleep\w*|usleep|nanosleep|sched_yield|this_thread|j?thread"
    r"|condition_variable\w*|\w*mutex\w*|\w+_lock|lock_guard|future|promise"
    r"|barrier|latch|\w*semaphore|\w+_clock|timer\w*|setitimer|alarm"
    r"|e?poll(_\w+)?|select|futex)\b"
    r"|\bclock_gettime\s*\((?!CLOCK_THREAD_CPUTIME_ID)"
    r"|\.(wait|wait_for|wait_until|join)\s*\("
    r"|\bcommsched_(event_synchronize|stream_synchronize|recording_drain"
    r"|session_drain|session_run|session_buffer_release)\b")
_OFF_THE_STEP = {"offload.cc", "session_watch.cc", "session_watch.h",
                 "cuda_tables.cc"}
_DRAINS = {"bound_step.cc"}
_STEPS = {"step_calls.cc", "step_passes.cc", "pass_run.cc", "cursor.cc", "norm.cc",
          "update.cc", "verdict.cc", "kernels.cc"}
_ABORT_LOCK = re.compile(r"#include <mutex>|std::(lock_guard<std::mutex> lock\("
                         r"abort_mutex_\)|mutex abort_mutex_);")


def wait_violations(root):
    """Lines of the engine's step path that wait, sleep or keep time."""
    found = []
    for path in sources.files(root, "src/engine", suffixes={".h", ".cc"}):
        if path.name in _OFF_THE_STEP:
            continue
        for number, line in enumerate(sources.read_lines(root, path), 1):
            code = line.split("//")[0]
            if path.name in _DRAINS:
                code = code.replace("commsched_session_drain", "")
            if path.name not in _STEPS:
                code = _ABORT_LOCK.sub("", code)
            if _WAITS.search(code):
                found.append(f"{path}:{number}: the engine's step path waits "
                             f"in the session only: {line.strip()}")
    return found


def missing_files(root):
    """Names that the rule about the step path lists, and that no file has."""
    names = {path.name for path in sources.files(root, "src/engine")}
    return [f"test/lint/text_rules.py: no file of src/engine is called {name}"
            for name in sorted((_OFF_THE_STEP | _DRAINS | _STEPS) - names)]


def rule_violations(root):
    """Lines that match a rule. The lint tests, which quote them, are exempt."""
    found = []
    for reason, pattern, folders, suffixes in RULES:
        for path in sources.files(root, *folders, suffixes=suffixes):
            if path.parts[:2] == ("test", "lint"):
                continue
            for number, line in enumerate(sources.read_lines(root, path), 1):
                if pattern.search(line):
                    found.append(f"{path}:{number}: {reason}: {line.strip()}")
    return found


def expected_guard(path):
    """The include guard of a header under src/ or include/."""
    parts = path.parts[1:] if path.parts[0] == "include" else (
        "commsched",) + path.parts
    return re.sub(r"[^A-Z0-9]", "_", "/".join(parts).upper()) + "_"


# Words with which no sentence of a comment begins, and how many comments of a room
# of src/ begin with one all the same: these may become fewer, never more.
_NO_SUBJECT = re.compile(
    r"//+ (Of|By|Among|Beside|Behind|Whose|And|But|Else|Than)\b")
FRAGMENTS = {"base": 3, "capi": 1, "channel": 20, "cli": 11, "comm": 47,
             "control": 15, "device": 3, "exec": 23, "kernels": 4, "plan": 26,
             "recording": 12, "session": 27, "trace": 12}


def first_lines(lines):
    """Number and text of the first line of each comment that has its lines to itself.

    What follows a comment in the same column goes on with it.
    """
    column = -1
    for number, line in enumerate(lines, 1):
        begin = line.find("//")
        if begin >= 0 and begin != column and not line[:begin].strip():
            yield number, line.strip()
        column = begin


def fragment_violations(root):
    """Comments that begin in the middle of a sentence."""
    found = collections.defaultdict(list)
    for path in sources.files(root, "src", suffixes=_CODE):
        for number, line in first_lines(sources.read_lines(root, path)):
            if _NO_SUBJECT.match(line):
                found[path.parts[1]].append(
                    f"{path}:{number}: a comment is a sentence: {line}")
    return [line for room, lines in found.items()
            if len(lines) > FRAGMENTS.get(room, 0) for line in lines]


def guard_violations(root):
    found = []
    for path in sources.files(root, "include", "src",
                              suffixes={".h", ".hpp"}):
        if path.parts[1] not in ("commsched",) and path.parts[0] == "include":
            continue
        guard = expected_guard(path)
        if f"#ifndef {guard}" not in sources.read_lines(root, path):
            found.append(f"{path}:1: include guard is not {guard}")
    return found


def length_violations(root):
    found = []
    for path in sources.files(root, suffixes=_CODE):
        lines = len(sources.read_lines(root, path))
        if lines > _MAX_LINES:
            found.append(f"{path}:{lines}: longer than {_MAX_LINES} lines")
    return found


def violations(root):
    """One line of text per violation."""
    return (rule_violations(root) + wait_violations(root) + missing_files(root) +
            fragment_violations(root) + guard_violations(root) +
            length_violations(root))


if __name__ == "__main__":
    problems = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) or "no text is out of place")
    sys.exit(1 if problems else 0)
