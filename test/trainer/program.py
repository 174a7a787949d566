"""Runs commsched-train for the tests beside this file."""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile


def program():
    """The path of the program: the test's first argument."""
    return os.environ["COMMSCHED_TRAIN"]


def main(unittest):
    """Takes the program's path off the command line and runs the tests."""
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} PATH_OF_COMMSCHED_TRAIN [test...]")
    os.environ["COMMSCHED_TRAIN"] = sys.argv.pop(1)
    unittest.main(verbosity=2)


def run(*arguments, timeout=600, limits=None, variables=None):
    """Runs the program, within `limits` of the resource module if given, with
    these `variables` in its environment, too."""
    def set_limits():
        for name, value in limits.items():
            resource.setrlimit(name, (value, resource.getrlimit(name)[1]))
    return subprocess.run([program(), *map(str, arguments)],
                          capture_output=True, text=True, timeout=timeout,
                          check=False,
                          env={**os.environ, **(variables or {})},
                          preexec_fn=set_limits if limits else None)


def run_json(*arguments, timeout=600, variables=None):
    """The object that a run with --json prints as its last line."""
    done = run(*arguments, "--json", timeout=timeout, variables=variables)
    if done.returncode != 0:
        raise AssertionError(f"{arguments}: exit code {done.returncode}\n"
                             f"{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def text_file(folder, size=40000):
    """A file of seeded pseudo-text, so that tests need no data set."""
    generator = random.Random(1)
    words = ["".join(generator.choices("abcdefghij", k=5)) for _ in range(50)]
    path = os.path.join(folder, "text.txt")
    with open(path, "w", encoding="ascii") as file:
        while file.tell() < size:
            file.write(generator.choice(words) + " ")
    return path


def temporary_folder():
    return tempfile.TemporaryDirectory(prefix="commsched-train-")
