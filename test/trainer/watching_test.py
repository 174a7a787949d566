#!/usr/bin/env python3
"""What watches a run: --log, --flight-record, --plugin and --observers."""

import csv
import os
import resource
import signal
import subprocess
import unittest

import program

COLUMNS = ["step", "loss", "lr", "norm", "tokens_per_s", "step_s", "exposed_s",
           "peak_bytes_in_flight"]


class WatchingTest(unittest.TestCase):

    def setUp(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.small = ["--data", program.text_file(self.folder), "--batch", 4,
                      "--seq", 16, "--steps", 5, "--val-batches", 1,
                      "--deterministic"]

    def path(self, name):
        return os.path.join(self.folder, name)

    def expect_failure(self, code, arguments, *parts):
        done = program.run(*self.small, *arguments)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        return done

    def rows(self, name):
        with open(self.path(name), encoding="ascii", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
        self.assertEqual(reader.fieldnames, COLUMNS)
        return rows

    def test_the_log_has_a_row_per_step(self):
        result = program.run_json(*self.small, "--zero", 3, "--log",
                                  self.path("log.csv"), "--eval-every", 2)
        rows = self.rows("log.csv")
        self.assertEqual([row["step"] for row in rows], list("12345"))
        self.assertAlmostEqual(float(rows[-1]["loss"]), result["loss"],
                               places=5)
        # Uniform over bytes at first; the rate rises by a thirtieth per step.
        self.assertAlmostEqual(float(rows[0]["loss"]), 5.55, delta=0.2)
        for i, row in enumerate(rows):
            self.assertAlmostEqual(float(row["lr"]), 3e-3 * (i + 1) / 30)
            self.assertGreater(float(row["norm"]), 0)
            self.assertGreater(float(row["step_s"]), 0)
            self.assertGreaterEqual(float(row["exposed_s"]), 0)
            self.assertGreater(int(row["peak_bytes_in_flight"]), 0)
            self.assertAlmostEqual(float(row["tokens_per_s"]) *
                                   float(row["step_s"]), 4 * 16, delta=0.5)
        self.assertGreater(max(float(row["exposed_s"]) for row in rows), 0)
        self.assertLessEqual(
            max(int(row["peak_bytes_in_flight"]) for row in rows),
            result["peak_bytes_in_flight"])

    def test_without_a_norm_its_column_is_empty(self):
        program.run_json(*self.small, "--clip", 0, "--log",
                         self.path("log.csv"))
        self.assertEqual({row["norm"] for row in self.rows("log.csv")}, {""})

    def test_a_resumed_run_adds_to_its_log_and_another_replaces_it(self):
        log = ["--log", self.path("log.csv")]
        program.run_json(*self.small, *log)
        whole = [row["loss"] for row in self.rows("log.csv")]
        program.run_json(*self.small, *log, "--save", self.path("save"),
                         "--stop-after", 2)
        self.assertEqual(len(self.rows("log.csv")), 2)
        program.run_json(*self.small, *log, "--resume", self.path("save"))
        rows = self.rows("log.csv")
        self.assertEqual([row["step"] for row in rows], list("12345"))
        self.assertEqual([row["loss"] for row in rows], whole)

    def test_a_start_that_is_refused_leaves_the_log_of_the_run_before(self):
        log = ["--log", self.path("log.csv"), "--save", self.path("save")]
        program.run_json(*self.small, *log)
        with open(self.path("log.csv"), "rb") as file:
            before = file.read()
        self.expect_failure(1, [*log, "--ranks", 2], "--resume")
        with open(self.path("log.csv"), "rb") as file:
            self.assertEqual(file.read(), before)

    # A run that was killed has written rows that its checkpoint does not have,
    # the last one perhaps in part.
    def test_a_resumed_run_writes_rows_after_its_checkpoint_anew(self):
        log = ["--log", self.path("log.csv")]
        program.run_json(*self.small, *log, "--save", self.path("save"),
                         "--stop-after", 2)
        with open(self.path("log.csv"), "a", encoding="ascii") as file:
            file.write("3,9,9,9,9,9,9,9\n4,9,9,9,9,9,9,9\n5,9")
        program.run_json(*self.small, *log, "--resume", self.path("save"))
        rows = self.rows("log.csv")
        self.assertEqual([row["step"] for row in rows], list("12345"))
        self.assertNotIn("9", [row["loss"] for row in rows])

    def test_a_log_that_cannot_be_written_is_found_before_training(self):
        for path in [self.path("no/such/folder.csv"), "/dev/full"]:
            done = self.expect_failure(1, ["--log", path], "--log", path)
            self.assertEqual(done.stdout, "")

    def test_a_log_that_no_longer_can_be_written_fails_the_run_at_its_end(self):
        def limit_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        done = subprocess.run(
            [program.program(), *map(str, self.small), "--log",
             self.path("log.csv")],
            capture_output=True, text=True, timeout=60, check=False,
            preexec_fn=limit_files)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("--log: cannot write", done.stderr)
        self.assertIn("step 5: val_loss", done.stdout)

    def test_each_rank_leaves_a_flight_record(self):
        folder = self.path("flights")
        program.run_json(*self.small, "--ranks", 2, "--zero", 3,
                         "--flight-record", folder)
        self.assertEqual(sorted(os.listdir(folder)),
                         ["rank0.flight", "rank1.flight"])
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), "rb") as file:
                self.assertIn(b"reduce_scatter", file.read())

    def test_observers_are_told_of_the_steps(self):
        plugin = os.path.join(os.path.dirname(program.program()), "..", "lib",
                              "commsched", "plugins", "skeletons",
                              "commsched_skeleton_observer.so")
        done = subprocess.run(
            [program.program(), *map(str, self.small), "--ranks", "1",
             "--plugin", plugin, "--observers", "skeleton"],
            capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "COMMSCHED_LOG": "info"})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("rank 0: 5 steps, ", done.stderr)

    def test_what_cannot_watch_is_named(self):
        self.expect_failure(1, ["--observers", "nobody"], "nobody")
        done = self.expect_failure(1, ["--plugin", "./nothing.so"],
                                   "nothing.so")
        self.assertEqual(done.stdout, "")
        self.expect_failure(1, ["--flight-record", self.small[1] + "/below"],
                            "--flight-record", "below")


if __name__ == "__main__":
    program.main(unittest)
