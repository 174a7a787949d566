#!/usr/bin/env python3
"""scripts/install-deps, with package managers that only say what they are asked."""

import pathlib
import re
import shutil
import subprocess
import unittest

import machine

ALL_HEADERS = ("crt/host_config.h", "cuda.h", "cuda_runtime_api.h", "nccl.h",
               "nv/target", "nvtx3/nvToolsExt.h")


class InstallDepsTest(machine.MachineTest):

    def setUp(self):
        super().setUp()
        # In a tree of its own, whose build/cuda-venv is not there yet.
        (self.root / "scripts").mkdir()
        shutil.copy(machine.SCRIPTS / "install-deps", self.root / "scripts")
        self.installed_but("none")
        for name in ("apt-get", "sudo"):
            self.program(f"bin/{name}",
                         f'echo "{name} $*" >> {self.root / "asked"}')
        self.program("bin/apt-cache", "echo 'Candidate: (none)'")
        self.put_on_path("bin")

    def installed_but(self, missing):
        """All packages are installed but one."""
        self.program("bin/dpkg-query",
                     f'for package; do :; done; [ "$package" = {missing} ] ||',
                     "echo installed")

    def install(self, *arguments):
        return subprocess.run([self.root / "scripts/install-deps", *arguments],
                              env=self.variables, capture_output=True, text=True,
                              check=False)

    def asked(self):
        path = self.root / "asked"
        return path.read_text() if path.exists() else ""

    def test_with_all_there_nothing_is_asked_for(self):
        run = self.install()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("packages are installed", run.stdout)
        self.assertEqual(self.asked(), "")

    def test_what_only_a_lint_test_wants_never_stops_an_install(self):
        self.installed_but("clang-format-14")
        run = self.install()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("has no clang-format-14", run.stdout)
        self.assertEqual(self.asked(), "")

    def test_what_the_build_wants_is_installed(self):
        self.installed_but("libabsl-dev")
        run = self.install()
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("libabsl-dev", self.asked())

    def toolkit(self, headers):
        """A toolkit with `headers`, NVRTC 12.4, and a Python whose pip says what it
        gets."""
        self.file("build/cuda-venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/"
                  "lib/libnvrtc.so.12")
        self.program("toolkit/bin/nvcc")
        for header in headers:
            self.file(f"toolkit/include/{header}")
        self.variables["CUDA_HOME"] = str(self.root / "toolkit")
        asked = self.root / "asked"
        self.program("bin/pip", f'echo "$*" >> {asked}')
        self.program("bin/python3", 'mkdir -p "$3/bin"',
                     f'cp {self.root / "bin/pip"} "$3/bin/pip"')

    @unittest.skipIf(pathlib.Path("/usr/local/cuda/bin/nvcc").exists(),
                     "a toolkit of this machine is found, too")
    def test_a_toolkit_without_a_header_is_none(self):
        for left_out in ALL_HEADERS:
            with self.subTest(left_out):
                shutil.rmtree(self.root / "toolkit", ignore_errors=True)
                shutil.rmtree(self.root / "build", ignore_errors=True)
                (self.root / "asked").unlink(missing_ok=True)
                self.toolkit(set(ALL_HEADERS) - {left_out})
                run = self.install("--with", "cuda")
                for wheel in ("nvcc", "crt", "cccl", "runtime"):
                    self.assertIn(f"nvidia-cuda-{wheel}==", self.asked())
                self.assertIn("nvidia-nvtx==", self.asked())
                self.assertIn("nvidia-nccl-cu13==", self.asked())
                # This pip installed nothing, which is not passed over.
                self.assertEqual(run.returncode, 1)
                self.assertIn("lacks nvcc or a header", run.stderr)

    def test_a_toolkit_with_all_headers_is_taken(self):
        self.toolkit(ALL_HEADERS)
        self.assertEqual(self.install("--with", "cuda").returncode, 0)
        self.assertEqual(self.asked(), "")

    def test_device_libraries_may_have_a_folder_of_their_own(self):
        self.toolkit(set(ALL_HEADERS) - {"nv/target"} | {"cccl/nv/target"})
        self.assertEqual(self.install("--with", "cuda").returncode, 0)
        self.assertEqual(self.asked(), "")

    @unittest.skipIf(pathlib.Path("/usr/local/cuda-12.4").exists(),
                     "NVRTC 12.4 of this machine is found, too")
    def test_what_older_drivers_take_is_compiled_by_nvrtc_12_4(self):
        self.toolkit(ALL_HEADERS)
        shutil.rmtree(self.root / "build")
        run = self.install("--with", "cuda")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.asked(), "-q install --no-deps "
                         "nvidia-cuda-nvrtc-cu12==12.4.*\n")

    def environments(self, *python):
        """Virtual environments, whose pip says what it gets."""
        self.program("bin/pip", f'echo "$*" >> {self.root / "asked"}')
        self.program("bin/python", *python)
        self.program("bin/python3", 'mkdir -p "$3/bin"',
                     f'cp {self.root}/bin/pip {self.root}/bin/python "$3/bin"')

    def test_pytorch_is_installed_once_for_who_asks_for_it(self):
        # A Python that has PyTorch once pip was asked for it.
        self.environments(f"test -e {self.root / 'asked'}")
        self.assertEqual(self.install().returncode, 0)
        self.assertEqual(self.asked(), "")
        for _ in range(2):
            run = self.install("--with", "torch")
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertRegex(self.asked(), r"\A-q install --upgrade torch==\d+\.\d+"
                             r"\.\d+ expecttest mypy==\d+\.\d+\.\d+ numpy pytest"
                             r"\n\Z")

    def test_what_all_tests_want_comes_beside_the_same_pytorch(self):
        # Pythons that have what pip was asked for.
        asked = self.root / "asked"
        self.environments(f'case $0-$2 in *deepspeed*) grep -q deepspeed {asked};;',
                          f"*2.11-venv*) grep -q torch==2.11 {asked};;",
                          f"*2.14-venv*) grep -q torch==2.14 {asked};;",
                          f"*) test -e {asked};; esac")
        for _ in range(2):
            run = self.install("--with", "all")
            self.assertEqual(run.returncode, 0, run.stderr)
            first, second, *older = self.asked().splitlines()
            self.assertEqual(older, [f"-q install torch=={version} numpy pytest"
                                     for version in ("2.11.0", "2.14.0")])
            torch = re.search(r"torch==[\d.]+", first)[0]
            self.assertIn(f" {torch} deepspeed==", second)
            self.assertRegex(second, r"HolisticTraceAnalysis==\S+ pandas<3 perfetto==")
        self.installed_but("chromium")
        self.install("--with", "all")
        self.assertIn("chromium", self.asked())


if __name__ == "__main__":
    unittest.main()
