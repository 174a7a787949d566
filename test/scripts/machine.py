"""A made-up machine: programs and folders in a temporary folder."""

import os
import pathlib
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"


class MachineTest(unittest.TestCase):
    """`root` is a folder of the test's own; `variables` its environment."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        self.variables = dict(os.environ)
        self.variables.pop("CUDA_HOME", None)

    def file(self, path, text=""):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)
        return full

    def program(self, path, *lines):
        """A shell script; found before others if it is in bin/."""
        full = self.file(path, "\n".join(("#!/bin/sh", *lines, "")))
        full.chmod(0o755)
        return full

    def put_on_path(self, folder):
        self.variables["PATH"] = (
            f"{self.root / folder}:{self.variables['PATH']}")
