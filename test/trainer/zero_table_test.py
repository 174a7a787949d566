#!/usr/bin/env python3
"""scripts/zero-table, with a trainer that answers at once."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "zero-table"

# Steps of 100 ms, half of them communication. Buckets of several take 10 ms
# less, and overlap as much as GAIN_MS says.
TRAINER = """#!{python}
import json
import sys

flags = sys.argv[1:]
step = 100
if flags[flags.index("--bucket-bytes") + 1] != "1":
    step -= 10
if flags[flags.index("--schedule") + 1] == "overlap":
    step -= {gain_ms}
print("a line for people")
print(json.dumps({{"step_time_s": step / 1e3, "comm_s": 0.05,
                  "exposed_comm_s": 0.05, "launches_per_step": 7,
                  "peak_model_state_bytes": 1 << 20, "peak_live_bytes": 0,
                  "lower_bound_s": 0.04, "predicted_step_s": 0.05,
                  "ratio_to_lower_bound": 25 * step / 1e3}}))
"""


class ZeroTableTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.trainer = pathlib.Path(folder.name) / "trainer"

    def table(self, *arguments, gain_ms=40, text=TRAINER):
        self.trainer.write_text(
            text.format(python=sys.executable, gain_ms=gain_ms),
            encoding="ascii")
        self.trainer.chmod(0o755)
        return subprocess.run(
            [sys.executable, str(SCRIPT), "--trainer", str(self.trainer),
             *arguments], capture_output=True, text=True, check=False)

    def test_every_variant_has_a_row_and_its_gain(self):
        rows = json.loads(self.table("--json").stdout)
        self.assertEqual(len(rows), 3 * 5 * 4)
        self.assertEqual(len({(row["link"], row["stage"], row["batching"],
                               row["schedule"]) for row in rows}), 60)
        for row in rows:
            step = (100 - 10 * (row["batching"] == "batched")
                    - 40 * (row["schedule"] == "overlap"))
            self.assertAlmostEqual(row["step_s"], step / 1e3)
            self.assertAlmostEqual(row["gain"], 100 / step)

    def test_the_aim_is_stated_and_checked(self):
        one = ["--link", "1Gbit", "--stage", "3cap"]
        done = self.table(*one, "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("gain 2.00 x, where 50 % of the step", done.stdout)
        self.assertIn("at least 1.7: holds", done.stdout)
        self.assertEqual(done.stderr, "")  # No progress bar in a pipe.
        missed = self.table(*one, "--check", gain_ms=30)
        self.assertIn("at least 1.7: MISSED", missed.stdout)
        self.assertEqual(missed.returncode, 1)
        self.assertEqual(self.table(*one, gain_ms=30).returncode, 0)

    def test_without_the_rows_of_the_aim_nothing_is_said_of_it(self):
        done = self.table("--link", "10Gbit", "--stage", "2", "--check")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("#1453", done.stdout)

    def test_a_run_that_fails_is_named_with_what_it_said(self):
        done = self.table(text="#!/bin/sh\necho no memory >&2\nexit 3\n")
        self.assertEqual(done.returncode, 1)
        for part in ("zero-table:", "exit code 3", "no memory", "--zero 0"):
            self.assertIn(part, done.stderr)

    def test_wrong_usage_is_refused(self):
        for arguments in (["--rounds", "0"], ["--link", "5Gbit"],
                          ["--stage", "4"]):
            self.assertEqual(self.table(*arguments).returncode, 2, arguments)


if __name__ == "__main__":
    unittest.main(verbosity=2)
