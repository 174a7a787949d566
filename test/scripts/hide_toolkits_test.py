#!/usr/bin/env python3
"""scripts/hide-toolkits, with a toolkit and a Python environment of the test's."""

import os
import subprocess
import sys
import tempfile
import unittest

import machine

REFUSED = "may not mount"


def namespaces_can_be_made():
    with tempfile.TemporaryDirectory() as folder:
        return REFUSED not in subprocess.run(
            [machine.SCRIPTS / "hide-toolkits", "true"], capture_output=True,
            text=True, check=True,
            env={**os.environ, "VIRTUAL_ENV": folder}).stdout


class HideToolkitsTest(machine.MachineTest):

    def hidden(self, *command):
        return subprocess.run([machine.SCRIPTS / "hide-toolkits", *command],
                              env=self.variables, capture_output=True,
                              text=True, check=False)

    def test_a_toolkit_is_not_found_by_its_variable_or_its_folder(self):
        header = self.file("toolkit/include/cuda_runtime_api.h")
        self.variables["CUDA_HOME"] = str(self.root / "toolkit")
        run = self.hidden("sh", "-c", f"ls {header.parent}; echo ${{CUDA_HOME-}}")
        self.assertNotIn("cuda_runtime_api.h", run.stdout)
        self.assertIn("hidden are ", run.stdout)
        self.assertIn(str(self.root / "toolkit"), run.stdout.splitlines()[0])
        self.assertEqual(run.stdout.splitlines()[-1], "")
        self.assertTrue(header.exists())

    def test_a_toolkit_is_not_found_by_its_compiler_in_path(self):
        self.program("toolkit/bin/nvcc", "echo compiled")
        self.put_on_path("toolkit/bin")
        run = self.hidden("sh", "-c", "nvcc || echo none")
        self.assertEqual(run.stdout.splitlines()[-1], "none")

    def test_an_environment_is_not_found_and_the_system_s_python_is(self):
        environment = self.root / "environment"
        self.program("environment/bin/python3", f"echo {environment}")
        self.put_on_path("environment/bin")
        self.variables["VIRTUAL_ENV"] = str(environment)
        run = self.hidden("sh", "-c", "echo ${VIRTUAL_ENV-}$(command -v python3)")
        self.assertEqual(run.stdout.splitlines()[-1], "/usr/bin/python3")

    def test_what_holds_this_tree_or_is_in_it_is_not_hidden(self):
        for path in (machine.SCRIPTS, machine.SCRIPTS.parent, "/", "/usr"):
            self.variables["CUDA_HOME"] = str(path)
            run = self.hidden("ls", "scripts/hide-toolkits", "/usr/bin/env")
            self.assertEqual(run.returncode, 0, path)

    def test_the_command_keeps_its_arguments_its_status_and_its_user(self):
        self.variables["VIRTUAL_ENV"] = str(self.root)
        run = self.hidden("sh", "-c", 'id -u; echo "$1"; exit 7', "sh", "a  b")
        self.assertEqual(run.returncode, 7)
        user = subprocess.run(["id", "-u"], capture_output=True, text=True,
                              check=True).stdout.strip()
        self.assertEqual(run.stdout.splitlines()[-2:], [user, "a  b"])


class RefusalTest(machine.MachineTest):

    def test_where_nothing_can_be_hidden_the_command_runs_and_that_is_said(self):
        self.program("bin/unshare", "exit 1")
        self.put_on_path("bin")
        self.variables["VIRTUAL_ENV"] = str(self.root)
        run = subprocess.run([machine.SCRIPTS / "hide-toolkits", "echo", "ran"],
                             env=self.variables, capture_output=True, text=True,
                             check=True)
        self.assertIn(REFUSED, run.stdout.splitlines()[0])
        self.assertIn(str(self.root), run.stdout.splitlines()[0])
        self.assertEqual(run.stdout.splitlines()[-1], "ran")


if __name__ == "__main__":
    if not namespaces_can_be_made():
        print("skipped: no namespaces may be made here")
        sys.exit(77)
    unittest.main()
