"""scripts/gpu-check and scripts/gpu-bundle: script_test.py ROOT BUILD FAKE_GPU

The bundle is unpacked elsewhere and run in an empty environment, on the
stand-ins, which its variables name.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT, BUILD, FAKE_GPU = (pathlib.Path(each) for each in sys.argv[1:4])
MOST_BYTES = 64 << 20
NOTHING_TRIED = 77
STAND_INS = {"COMMSCHED_CUDART_LIB": str(FAKE_GPU),
             "COMMSCHED_NCCL_LIB": str(FAKE_GPU)}


# Of sanitizers' builds.
KEPT = {name: value for name, value in os.environ.items()
        if name.endswith("SAN_OPTIONS")}


def run(command, more=None, **how):
  """In an environment of nothing but a search path."""
  return subprocess.run(
      [str(each) for each in command],
      env={"PATH": "/usr/bin:/bin"} | KEPT | (more or {}), text=True,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
      timeout=240, **how)


class BundleTest(unittest.TestCase):

  @classmethod
  def setUpClass(cls):
    cls.folder = tempfile.TemporaryDirectory()
    cls.at = pathlib.Path(cls.folder.name)
    bundle = cls.at / "bundle.tar.gz"
    packed = run([ROOT / "scripts/gpu-bundle", "--build", BUILD, bundle])
    assert packed.returncode == 0, packed.stdout
    cls.bytes = bundle.stat().st_size
    subprocess.run(["tar", "-C", cls.at, "-xzf", bundle], check=True)
    cls.script = cls.at / "gpu-check/gpu-check"

  @classmethod
  def tearDownClass(cls):
    cls.folder.cleanup()

  def check(self, more, *arguments):
    return run([self.script, *arguments], more, cwd="/")

  def test_it_is_small(self):
    self.assertLess(self.bytes, MOST_BYTES)

  def test_its_programs_load_what_is_in_it_or_of_the_c_library(self):
    lib = self.at / "gpu-check/lib"
    self.assertTrue((lib / "libcommsched.so").resolve(strict=True).is_file())
    for program in ("gpu_check", "gpu_check_engine",
                    "plugins/commsched_nccl.so"):
      found = run(["ldd", self.at / "gpu-check" / program],
                  {"LD_LIBRARY_PATH": str(lib)}).stdout
      self.assertNotIn("not found", found)
      self.assertNotIn(str(BUILD), found)
      for line in found.splitlines():
        name = line.split()[0]
        if "=>" in line and not name.startswith(("libc.", "libm.")):
          self.assertIn(f"=> {lib}/{name} ", line)

  def test_all_parts_run_on_the_stand_ins(self):
    file = self.at / "out.json"
    ran = self.check(STAND_INS, "--quick", "--max-ranks", "2", "--json", file)
    self.assertEqual(ran.returncode, 0, ran.stdout)
    found = json.loads(file.read_text())
    rows = found["rows"]
    self.assertEqual(
        {row["part"] for row in rows},
        {"machine", "rules", "kernels", "collectives", "sessions", "engine",
         "costs", "overlap", "capture", "processes", "lanes", "torch", "channels",
         "memory"})
    for row in rows:
      self.assertEqual(set(row), {"part", "check", "ok", "figures", "why"})
      self.assertIsNot(row["ok"], False, row)
      self.assertEqual(row["ok"] is None, row["why"] != "", row)
    # These need a GPU, and nothing else is left out.
    self.assertLessEqual({row["part"] for row in rows if row["ok"] is None},
                         {"processes", "lanes", "torch", "channels", "memory"})
    # What is most likely to go wrong comes first.
    parts = list(dict.fromkeys(row["part"] for row in rows))
    self.assertEqual(parts[:5],
                     ["machine", "capture", "processes", "lanes", "torch"])
    self.assertEqual(found["hold"], sum(row["ok"] is True for row in rows))
    self.assertEqual(found["skipped"], sum(row["ok"] is None for row in rows))
    self.assertIn(f"0 failed, {found['skipped']} SKIPPED", ran.stdout)

  def test_without_a_gpu_it_is_skipped_and_not_green(self):
    file = self.at / "none.json"
    ran = self.check({"COMMSCHED_CUDART_LIB": "/nowhere/libcudart.so"},
                     "--json", file)
    self.assertEqual(ran.returncode, NOTHING_TRIED, ran.stdout)
    self.assertIn("SKIPPED: there is no GPU: no CUDA runtime: "
                  "COMMSCHED_CUDART_LIB: /nowhere/libcudart.so", ran.stdout)
    self.assertIn("0 hold, 0 failed, 1 SKIPPED", ran.stdout)
    self.assertIn("SKIPPED: nothing was tried", ran.stdout)
    found = json.loads(file.read_text())
    self.assertEqual([row["ok"] for row in found["rows"]], [None])

  def test_parts_run_apart(self):
    for chosen, others in (("rules,kernels", {"rules", "kernels"}),
                           ("third", {"costs", "overlap", "memory"})):
      file = self.at / "parts.json"
      ran = self.check(STAND_INS, "--quick", "--max-ranks", "2", "--parts",
                       chosen, "--json", file)
      self.assertEqual(ran.returncode, 0, ran.stdout)
      self.assertEqual(
          {row["part"] for row in json.loads(file.read_text())["rows"]},
          others | {"machine"})

  def test_parts_of_which_nothing_is_tried_are_not_green(self):
    ran = self.check(STAND_INS, "--quick", "--parts", "torch,memory")
    self.assertEqual(ran.returncode, NOTHING_TRIED, ran.stdout)
    self.assertIn("SKIPPED: the stand-ins have nothing of PyTorch's",
                  ran.stdout)

  def test_collectives_of_one_rank_are_called_copies(self):
    file = self.at / "one.json"
    ran = self.check(STAND_INS, "--quick", "--max-ranks", "1", "--parts",
                     "collectives,sessions,costs", "--json", file)
    self.assertEqual(ran.returncode, 0, ran.stdout)
    for row in json.loads(file.read_text())["rows"]:
      if row["part"] == "machine" or not row["ok"]:
        continue
      text = row["check"] + row["figures"]
      self.assertTrue("copies" in text or "launches nothing" in text, row)

  def test_without_nccl_the_other_checks_go_on(self):
    more = STAND_INS | {"COMMSCHED_NCCL_LIB": "/nowhere/libnccl.so"}
    file = self.at / "no_nccl.json"
    ran = self.check(more, "--quick", "--json", file)
    self.assertEqual(ran.returncode, 1, ran.stdout)
    rows = json.loads(file.read_text())["rows"]
    kernels = [row["ok"] for row in rows if row["part"] == "kernels"]
    self.assertTrue(kernels and all(kernels), rows)
    failed = {row["part"] for row in rows if row["ok"] is False}
    self.assertLessEqual(
        {"machine", "collectives", "sessions", "engine", "costs", "overlap",
         "capture"},
        failed)

  def test_unknown_options_are_refused(self):
    for arguments in (["--what", "1"], ["--max-ranks", "0"], ["--json"],
                      ["--parts", "kernels,nothing"]):
      ran = self.check(STAND_INS, *arguments)
      self.assertEqual(ran.returncode, 2, ran.stdout)
      self.assertIn("usage: gpu_check", ran.stdout)
    ran = run([ROOT / "scripts/gpu-bundle", "--what"])
    self.assertEqual(ran.returncode, 2, ran.stdout)

  def test_what_is_not_built_is_named(self):
    with tempfile.TemporaryDirectory() as empty:
      ran = run([ROOT / "scripts/gpu-bundle", "--build", empty])
    self.assertEqual(ran.returncode, 1)
    self.assertIn("/bin/gpu_check is not built", ran.stdout)


if __name__ == "__main__":
  assert os.access(FAKE_GPU, os.R_OK), FAKE_GPU
  unittest.main(argv=sys.argv[:1], verbosity=1)
