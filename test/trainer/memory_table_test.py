#!/usr/bin/env python3
"""scripts/memory-table, with a trainer that answers at once."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "memory-table"

# Of each stage, in MiB: planned, as the test says.
TRAINER = """#!{python}
import json
import sys

flags = sys.argv[1:]
stage = int(flags[flags.index("--zero") + 1])
ranks = int(flags[flags.index("--ranks") + 1])
print("a line for people")
print(json.dumps({{"due_model_state_bytes": 1 << 20,
                  "peak_model_state_bytes": {planned}[stage] << 20,
                  "arena_bytes": 0, "process_peak_bytes": ranks << 23}}))
"""


class MemoryTableTest(unittest.TestCase):

    def run_table(self, planned, *flags):
        with tempfile.TemporaryDirectory() as folder:
            trainer = pathlib.Path(folder) / "trainer"
            trainer.write_text(TRAINER.format(python=sys.executable,
                                              planned=planned))
            trainer.chmod(0o755)
            return subprocess.run(
                [SCRIPT, "--trainer", trainer, "--model", "nano", *flags],
                capture_output=True, text=True, check=False)

    def test_a_row_for_each_number_of_ranks_and_stage(self):
        done = self.run_table([16, 8, 6, 4], "--ranks", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.splitlines()[-1],
                         "| nano | 2 | 3 | 1.0 | 4.0 | 0.0 | 8.0 |")
        self.assertEqual(len(done.stdout.splitlines()), 6)

    def test_json_has_a_line_for_each_run(self):
        done = self.run_table([16, 8, 6, 4], "--json")
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(rows), 16)
        self.assertEqual(rows[3]["planned_bytes"], 4 << 20)

    def test_check_wants_stage_3_below_stage_2_where_there_are_ranks(self):
        self.assertEqual(self.run_table([16, 8, 6, 4], "--check").returncode, 0)
        self.assertEqual(self.run_table([16, 8, 6, 6], "--check").returncode, 1)
        alone = self.run_table([16, 8, 6, 6], "--check", "--ranks", "1")
        self.assertEqual(alone.returncode, 0)

    def test_a_trainer_that_fails_and_unknown_models(self):
        self.assertEqual(self.run_table("nothing").returncode, 1)
        self.assertEqual(self.run_table([], "--model", "huge").returncode, 2)


if __name__ == "__main__":
    unittest.main()
