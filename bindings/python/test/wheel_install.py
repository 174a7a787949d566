#!/usr/bin/env python3
"""Installs a wheel into an empty environment, and runs it: wheel_install.py FOLDER

FOLDER has the one wheel. Nothing of this tree is in the environment: neither headers,
nor a library, nor the package.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

_ALL_REDUCE = """
import array, commsched as cs
def rank(context):
    values = array.array("f", [context.rank + 1.0] * 1000)
    with cs.Channel(context) as channel:
        channel.all_reduce(values).wait()
    return values[0]
print(cs.World(4).run(rank))
"""
_JOB = """
import array, commsched as cs
context = cs.Context.join()
values = array.array("f", [context.rank + 1.0])
with cs.Channel(context) as channel:
    channel.all_reduce(values).wait()
print(values[0])
"""
_ENTRY_POINTS = """
from importlib.metadata import distribution
print([(e.group, e.name, e.value) for e in distribution("commsched").entry_points
       if e.group.startswith("torch")])
"""


class Environment:
    """An empty virtual environment in `folder`, with a wheel in it."""

    def __init__(self, folder, wheel):
        self.folder = folder
        venv.create(folder / "venv", with_pip=True)
        self.python = str(folder / "venv" / "bin" / "python")
        self.variables = {name: value for name, value in os.environ.items()
                          if not name.startswith(("COMMSCHED_", "PYTHON", "LD_"))}
        self.run(self.python, "-m", "pip", "-q", "install", "--no-index", "--no-deps",
                 str(wheel))

    def run(self, *command):
        ended = subprocess.run(command, cwd=self.folder, env=self.variables, text=True,
                               capture_output=True, check=False)
        if ended.returncode != 0:
            raise SystemExit(f"{command[1:]}: exit code {ended.returncode}\n"
                             f"{ended.stdout}{ended.stderr}")
        return ended.stdout

    def script(self, text):
        path = self.folder / "script.py"
        path.write_text(text)
        return str(path)


def expect(what, found, wanted):
    if found != wanted:
        raise SystemExit(f"{what}: {found!r}, not {wanted!r}")
    print(f"{what}: {found!r}")


def has_ucx(info):
    return any(b["name"] == "ucx" for b in info["plugins"]["backend"])


def check(environment):
    told = environment.run(environment.python, "-m", "commsched", "info", "--json")
    info = json.loads(told)
    package = info["python_package"]
    for part in ("library", "program"):
        if not package[part].startswith(str(environment.folder)):
            raise SystemExit(f"the {part} is {package[part]}, not the wheel's")
    print(f"library: {package['library']}")
    expect("all-reduce", environment.run(
        environment.python, environment.script(_ALL_REDUCE)),
        "[10.0, 10.0, 10.0, 10.0]\n")
    # By which PyTorch, which is not here, finds the backend.
    expect("entry point", environment.run(
        environment.python, environment.script(_ENTRY_POINTS)),
        "[('torch.distributed.backends', 'commsched', 'commsched.torch:register')]\n")
    program = str(environment.folder / "venv" / "bin" / "commsched")
    if has_ucx(info):
        job = environment.run(program, "run", "-n", "2", "--",
                              environment.script(_JOB))
        expect("processes", sorted(job.splitlines()), ["[0] 3.0", "[1] 3.0"])
    else:
        print("processes: not tried, this machine has no UCX")
    prefix = pathlib.Path(package["library"]).parents[1]
    for part in ("include/commsched/commsched.h",
                 "lib/cmake/commsched/commschedConfig.cmake"):
        expect(part, (prefix / part).is_file(), True)


def main(folder):
    (wheel,) = pathlib.Path(folder).glob("commsched-*.whl")
    print(wheel.name)
    with tempfile.TemporaryDirectory() as scratch:
        check(Environment(pathlib.Path(scratch).resolve(), wheel.resolve()))


if __name__ == "__main__":
    main(*sys.argv[1:])
