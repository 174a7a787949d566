#!/usr/bin/env python3
"""Kills the trainer at random points: whatever the instant, the checkpoint is
whole, and going on from it gives the bits of a run that was never killed."""

import json
import os
import random
import shutil
import subprocess
import unittest

import checkpoint_test
import program

KILLS = 50
STEPS = 300
# From the first line of output; many saves are made in this time.
LONGEST_DELAY_S = 1.0


class KillTest(unittest.TestCase):

    def setUp(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        self.save = os.path.join(folder.name, "save")
        self.merged = os.path.join(folder.name, "merged.safetensors")
        self.flags = ["--data", program.text_file(folder.name), "--batch", 4,
                      "--seq", 16, "--steps", STEPS, "--val-batches", 1,
                      "--deterministic", "--ranks", 2]
        self.digests = {}  # By step.
        self.inside = 0

    def index(self):
        """The index; None before the first checkpoint."""
        path = os.path.join(self.save, "index.json")
        if not os.path.exists(path):
            return None
        with open(path, encoding="utf-8") as file:
            return json.load(file)["checkpoint"]

    def arguments(self):
        resume = ["--resume", self.save] if self.index() else []
        return [*self.flags, "--save", self.save, "--save-every", 1, *resume]

    def run_and_kill(self, delay):
        """Whether the run was killed; else it has come to its end."""
        with subprocess.Popen(
                [program.program(), *map(str, self.arguments())],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                text=True) as run:
            line = run.stdout.readline()
            try:
                _, errors = run.communicate(timeout=delay)
            except subprocess.TimeoutExpired:
                run.kill()
                run.communicate()
                return True
            self.assertEqual(run.returncode, 0, line + errors)
            return False

    def check_whole(self, least_step):
        """The step of the checkpoint, whose files are what was written."""
        index = self.index()
        if index is None:
            self.assertEqual(least_step, 0)
            return 0
        step = index["step"]
        self.assertGreaterEqual(step, least_step)
        done = program.run("--resume", self.save, "--export", self.merged)
        self.assertEqual(done.returncode, 0, done.stderr)
        digest, _ = checkpoint_test.weights_sha256(self.merged)
        self.assertEqual(digest, self.digests.setdefault(step, digest))
        known = {part["file"] for part in index["files"]}
        known |= {"index.json", ".commsched-lock"}
        if set(os.listdir(self.save)) - known:
            self.inside += 1
        return step

    def test_a_kill_at_any_point_leaves_the_checkpoint_before_whole(self):
        seed = int(os.environ.get("COMMSCHED_PROPERTY_SEED") or "20261122", 0)
        print(f"repeat with COMMSCHED_PROPERTY_SEED={seed}", flush=True)
        delays = random.Random(seed)
        expected = program.run_json(*self.flags)["weights_sha256"]
        kills, step = 0, 0
        while kills < KILLS:
            killed = self.run_and_kill(delays.uniform(0, LONGEST_DELAY_S))
            kills += killed
            step = self.check_whole(step)
            if step < STEPS:
                self.assertTrue(killed)
                continue
            # It came to its end, if perhaps not to that of the process.
            self.assertEqual(self.digests[STEPS], expected)
            shutil.rmtree(self.save)
            step = 0
        print(f"{kills} kills, {self.inside} of them within a save, "
              f"{len(self.digests)} different steps found", flush=True)
        self.assertGreater(self.inside, 0)
        self.assertGreater(len(self.digests), 5)
        result = program.run_json(*self.arguments())
        self.assertEqual(result["weights_sha256"], expected)


if __name__ == "__main__":
    program.main(unittest)
