#!/usr/bin/env python3
"""Fails on an include that goes against the arrows: layers.py ROOT

The table says which rooms of src/ a room may include. Everything that stands
outside the C ABI may include public headers only.
"""

import pathlib
import re
import sys

import sources

_BELOW_EXEC = {"base", "kernels", "graph", "plan", "device", "comm", "trace"}
_BELOW_SESSION = _BELOW_EXEC | {"exec"}

# Room of src/ -> rooms it may include besides itself.
ROOMS = {
    "base": set(),
    "kernels": set(),
    "graph": {"base"},
    "plan": {"graph", "base"},
    "device": {"kernels", "base"},
    "control": {"base"},
    "comm": {"device", "control", "graph", "kernels", "base"},
    "trace": {"base"},
    "exec": _BELOW_EXEC,
    "session": _BELOW_SESSION,
    "channel": _BELOW_SESSION | {"session"},
    "recording": _BELOW_SESSION | {"session"},
    "sim": _BELOW_SESSION,
    "capi": _BELOW_SESSION | {"control", "session", "channel", "recording",
                              "sim"},
    "checkpoint": set(),
    "engine": {"kernels", "checkpoint"},
    "cli": set(),
}

# Folders of src/engine -> folders of it that each may include besides itself. What
# lies in src/engine itself is the facade, a rank's engine: it includes anything of
# the room, and capi/ alone includes it.
_BELOW_STATE = {"step_plan", "model", "tables"}
_BELOW_RUN = _BELOW_STATE | {"state", "update"}
ENGINE_FOLDERS = {
    "attention": set(),
    "model": set(),
    "tables": set(),
    "step_plan": {"model"},
    "state": _BELOW_STATE,
    "update": _BELOW_STATE | {"state"},
    "run": _BELOW_RUN,
    "capi": _BELOW_RUN | {"run", "attention"},
}

# Room -> public headers it may include. A room that is absent may include
# none: between capi and exec nobody knows the ABI.
PUBLIC_HEADERS = {
    "kernels": re.compile(r"commsched/(engine_kernels|types)\.h"),
    "device": re.compile(r"commsched/(stream|types|status|export)\.h"),
    "comm": re.compile(r"commsched/(plugin|link_profile|stream|types|status|export)\.h"),
    "exec": re.compile(r"commsched/(plugin|stream|types|status|export)\.h"),
    "session": re.compile(r"commsched/(plugin|stream|types|status|export)\.h"),
    "channel": re.compile(r"commsched/(plugin|stream|types|status|export)\.h"),
    "capi": re.compile(r"commsched/\w+\.h"),
    "checkpoint": re.compile(r"commsched/status\.h"),
    "engine": re.compile(r"commsched/\w+\.(h|hpp)"),
    "cli": re.compile(r"commsched/\w+\.(h|hpp)"),
}

# What proves a plan shares no code with the passes that made it.
PROOF = "src/plan/verify/"
PROOF_MAY_INCLUDE = re.compile(
    r"plan/(verify/\w+|explain/names|align|edge|plan|roles)\.h")

# Outside src/: folder -> public headers; their own files are free.
OUTSIDE = {
    "examples": re.compile(r"commsched/\w+\.(h|hpp)"),
    "bindings": re.compile(r"commsched/\w+\.(h|hpp)"),
    "plugins": re.compile(r"commsched/plugin\.h"),
}

# Folders of plugins/ that others may not look into; `support` is for all of them,
# and looks into none.
PLUGINS = {"fault", "nccl", "ucx"}

# Vendor headers and the only places that may know them.
VENDORS = [
    (re.compile(r"(cuda|cublas|cuda_runtime)\w*(\.h|/)"),
     re.compile(r"src/(device|kernels)/cuda|plugins/nccl/|test/(fakes|cuda)/|"
                r"bench/cuda/|test/(gpu_check|engine_cuda)/|examples/trainer/.*cuda")),
    (re.compile(r"nccl\w*\.h"), re.compile(r"plugins/nccl/|test/(fakes|gpu_check|cuda)/|bench/cuda/")),
    (re.compile(r"nvtx3/"), re.compile(r"src/exec/nvtx_ranges|test/nvtx/")),
    (re.compile(r"boost/asio"), re.compile(r"src/control/")),
    (re.compile(r"uc[pts]/"), re.compile(r"plugins/ucx/")),
    # Sanitizers see no races through these, or see races that are not there.
    (re.compile(r"absl/(synchronization|log)/"), re.compile(r"nowhere")),
]

_INCLUDE = re.compile(r'\s*#\s*include\s+["<]([^">]+)[">]')
_CODE = {".h", ".hpp", ".cc", ".c", ".cu", ".cuh"}


def public_header_refusal(included):
    """Public headers include each other and the C standard library."""
    if included.startswith("commsched/") or "/" not in included:
        return None
    return "public headers include only C headers and each other"


def src_refusal(room, included):
    """Why a file of src/<room> may not include `included`, or None."""
    if room not in ROOMS:
        return f"src/{room} is not in the table of test/lint/layers.py"
    head = included.split("/")[0]
    if head == "commsched":
        allowed = PUBLIC_HEADERS.get(room)
        if allowed is None or not allowed.fullmatch(included):
            return f"{room} may not include this public header"
    elif head in ("test", "bench", "examples", "src", "plugins", "bindings"):
        return f"nothing in src/ includes {head}/"
    elif head in ROOMS and head != room and head not in ROOMS[room]:
        below = ", ".join(sorted(ROOMS[room])) or "no room"
        return f"{room} may include {below}, not {head}"
    return None


def engine_refusal(path, included):
    """Why `path`, of src/engine, may not include `included` of the same room."""
    parts = path.parts[2:]
    if len(parts) == 1 or not included.startswith("engine/"):
        return None
    folder = parts[0]
    if folder not in ENGINE_FOLDERS:
        return f"src/engine/{folder} is not in the table of test/lint/layers.py"
    head, *rest = included.split("/")[1:]
    if not rest:
        if folder == "capi":
            return None
        return f"engine/{folder} may not include the facade"
    if head != folder and head not in ENGINE_FOLDERS[folder]:
        below = ", ".join(sorted(ENGINE_FOLDERS[folder])) or "no other folder"
        return f"engine/{folder} may include {below}, not {head}"
    return None


def outside_refusal(folder, included):
    """Why a file of examples/ and the like may not include `included`."""
    head = included.split("/")[0]
    if head == "commsched" and not OUTSIDE[folder].fullmatch(included):
        return f"{folder}/ may not include this public header"
    if folder == "plugins" and head == "kernels":
        return None
    if head in ROOMS or head in ("src", "test", "bench"):
        return f"{folder}/ stands on the public headers only"
    return None


def plugin_refusal(plugin, included):
    """Why a file of plugins/<plugin> may not include `included`, or None."""
    head = included.split("/")[0]
    if head in PLUGINS and head != plugin:
        return f"plugins/{plugin} may not look into plugins/{head}"
    if (plugin == "support" and included.endswith(".h")
            and head not in ("commsched", "support")):
        return "plugins/support stands on plugin.h alone"
    return outside_refusal("plugins", included)


def refusal(path, included):
    """Why `path` may not include `included`, or None if it may."""
    for vendor, places in VENDORS:
        if vendor.match(included) and not places.match(path.as_posix()):
            return "this vendor's headers are not for here"
    if (path.as_posix().startswith(PROOF) and included.startswith("plan/")
            and not PROOF_MAY_INCLUDE.fullmatch(included)):
        return "the proof may not include a pass"
    top = path.parts[0]
    if top == "include":
        return public_header_refusal(included)
    if top == "src":
        reason = src_refusal(path.parts[1], included)
        if reason is None and path.parts[1] == "engine":
            reason = engine_refusal(path, included)
        return reason
    if top == "plugins":
        return plugin_refusal(path.parts[1], included)
    if top in OUTSIDE:
        return outside_refusal(top, included)
    return None


def violations(root):
    """One line of text per include that goes the wrong way."""
    found = []
    for path in sources.files(root, suffixes=_CODE):
        for number, line in enumerate(sources.read_lines(root, path), 1):
            match = _INCLUDE.match(line)
            reason = match and refusal(path, match.group(1))
            if reason:
                found.append(f"{path}:{number}: {match.group(1)}: {reason}")
    return found


if __name__ == "__main__":
    problems = violations(pathlib.Path(sys.argv[1]))
    print("\n".join(problems) or "every include follows the arrows")
    sys.exit(1 if problems else 0)
