#!/usr/bin/env python3
"""small (85 M parameters) on 2 ranks with the optimizer's state in a folder:
less memory of the process by what is there; and runs that go on from such
state."""

import os
import resource
import unittest

import program

PARAMETERS = 85350912
RANKS = 2


class OffloadTest(unittest.TestCase):

    def setUp(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.pool = os.path.join(self.folder, "pool")
        self.data = program.text_file(self.folder)

    def test_a_state_that_is_offloaded_is_not_in_memory(self):
        result = program.run_json(
            "--model", "small", "--ranks", RANKS, "--zero", 2,
            "--bucket-bytes", "4MiB", "--data", self.data, "--batch", RANKS,
            "--seq", 16, "--steps", 3, "--val-batches", 1,
            "--offload-optimizer", self.pool)
        self.assertLess(result["loss"], 5.6)
        self.assertEqual(os.listdir(self.pool), [])
        offloaded = RANKS * result["offloaded_bytes"]
        self.assertGreaterEqual(offloaded, 8 * PARAMETERS)
        # The process: all ranks' state, and once, at the end, all weights.
        resident = 1024 * resource.getrusage(
            resource.RUSAGE_CHILDREN).ru_maxrss
        expected = RANKS * result["peak_bytes_per_rank"] + 4 * PARAMETERS
        print(f"offloaded: {offloaded} bytes; process: {resident} bytes, "
              f"{resident - expected} beside what is reported")
        self.assertLess(resident, expected + offloaded // 2)

    def test_training_goes_on_from_offloaded_state(self):
        arguments = ["--data", self.data, "--batch", 4, "--seq", 16,
                     "--val-batches", 1, "--ranks", 2, "--deterministic",
                     "--dtype", "bf16", "--steps", 6]
        offload = ["--offload-optimizer", self.pool]
        whole = program.run_json(*arguments)
        saved = os.path.join(self.folder, "saved")
        program.run_json(*arguments, *offload, "--save", saved,
                         "--stop-after", 3)
        for more in (offload, []):
            resumed = program.run_json(*arguments, *more, "--resume", saved)
            self.assertEqual(resumed["weights_sha256"],
                             whole["weights_sha256"])

    def test_a_folder_that_is_none_is_named(self):
        path = os.path.join(self.folder, "file")
        with open(path, "w", encoding="ascii") as file:
            file.write("text")
        done = program.run("--data", self.data, "--steps", 1,
                           "--offload-optimizer", path)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn(path, done.stderr)

    def test_staging_that_holds_no_bucket_names_what_would(self):
        done = program.run("--data", self.data, "--steps", 1, "--batch", 4,
                           "--seq", 16, "--offload-optimizer", self.pool,
                           "--offload-staging-bytes", 4096)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("offload_staging_bytes is 4096", done.stderr)


if __name__ == "__main__":
    program.main(unittest)
