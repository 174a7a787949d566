#!/usr/bin/env python3
"""How the program ends: signals, ranks that are stuck, losses that are not
finite, and output that is closed or cannot be written."""

import os
import re
import signal
import subprocess
import time
import unittest

import program

DEADLINE_S = 60  # Of what takes a moment.


class EndingTest(unittest.TestCase):

    def setUp(self):
        folder = program.temporary_folder()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.save = os.path.join(self.folder, "save")
        self.small = ["--data", program.text_file(self.folder), "--batch", 4,
                      "--seq", 16, "--val-batches", 1, "--ranks", 2]
        self.long = [*self.small, "--steps", 1000000]

    def start(self, *arguments, **options):
        """Starts the program with the signals that a terminal would leave."""
        def reset():
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE,
                   "text": True, "preexec_fn": reset, **options}
        run = subprocess.Popen([program.program(), *map(str, arguments)],
                               **options)
        def end():
            run.kill()
            run.communicate()
        self.addCleanup(end)
        return run

    def interrupt(self, run, number):
        """Sends a signal after the first steps of training."""
        line = run.stdout.readline()
        while "val_loss" not in line:
            self.assertNotEqual(line, "")
            line = run.stdout.readline()
        run.send_signal(number)

    def test_a_signal_ends_the_run_after_its_step(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            with self.subTest(number):
                run = self.start(*self.long, "--eval-every", 2, "--json")
                self.interrupt(run, number)
                output, errors = run.communicate(timeout=DEADLINE_S)
                self.assertEqual(run.returncode, code, output + errors)
                self.assertIn("a second signal ends at once", errors)
                self.assertIn('"ended_early":true', output)
                self.assertIn("step time", output)

    def test_a_signal_saves_what_was_trained(self):
        run = self.start(*self.long, "--eval-every", 2, "--save", self.save)
        self.interrupt(run, signal.SIGTERM)
        output, errors = run.communicate(timeout=DEADLINE_S)
        self.assertEqual(run.returncode, 143, output + errors)
        last = int(re.findall("step ([0-9]+): val_loss", output)[-1])
        merged = os.path.join(self.folder, "merged")
        done = program.run("--resume", self.save, "--export", merged)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = program.run(*self.long, "--resume", self.save, "--stop-after",
                           last)
        self.assertIn(f"has taken {last} steps", done.stderr)

    # The first one waits for a step that takes as long as the link needs.
    def test_a_second_signal_ends_at_once(self):
        run = self.start(*self.small, "--steps", 2, "--link", "1Kbit,1us")
        run.stdout.readline()
        run.send_signal(signal.SIGTERM)
        self.assertIn("second signal", run.stderr.readline())
        # timeout(1) sends each signal twice, which is one.
        run.send_signal(signal.SIGTERM)
        self.wait_until_handled(run, signal.SIGTERM)
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=DEADLINE_S)
        self.assertEqual(run.returncode, 130)

    def wait_until_handled(self, run, number):
        deadline = time.monotonic() + DEADLINE_S
        while run.poll() is None:
            with open(f"/proc/{run.pid}/status", encoding="ascii") as status:
                pending = status.read().split("ShdPnd:")[1].split()[0]
            if not int(pending, 16) & 1 << (number - 1):
                return
            self.assertLess(time.monotonic(), deadline)

    # One thread stays in a product; the process does not hear of that from it.
    def expect_stuck(self, product, steps, words):
        shim = os.environ.get("COMMSCHED_STUCK_RANK")
        if not shim:
            self.skipTest("a preloaded library and a sanitizer do not mix")
        run = self.start(*self.small, "--steps", steps, "--timeout", 1,
                         env={**os.environ, "LD_PRELOAD": shim,
                              "COMMSCHED_STUCK_PRODUCT": str(product)})
        verdict = run.stderr.readline()
        self.assertIsNone(run.poll())  # It is told before the end.
        found = re.search(words, verdict)
        self.assertTrue(found, verdict)
        _, errors = run.communicate(timeout=DEADLINE_S)
        self.assertEqual(run.returncode, 1)
        self.assertIn(f"rank {found[1]} has not ended", errors)

    # In the second step, after the sessions have been made.
    def test_a_rank_that_is_stuck_is_named_and_left(self):
        self.expect_stuck(200, 300, "rank ([01]) has not issued")

    # With one step the ranks take 648 products, the last ones there.
    def test_a_rank_that_is_stuck_in_the_last_validation_is_named(self):
        self.expect_stuck(647, 1, "missing of 2 ranks: ([01])")

    def test_a_loss_that_is_no_number_is_a_failure_unless_allowed(self):
        flags = [*self.small, "--steps", 5, "--lr", "1e30", "--clip", 0]
        done = program.run(*flags)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr,
                         "rank [01]: loss after step [0-9] is (nan|inf)")
        done = program.run(*flags, "--allow-nan")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_output_that_cannot_be_written_is_a_failure(self):
        for arguments in (["--help"], ["--version"],
                          [*self.small, "--steps", 1]):
            with self.subTest(arguments), open("/dev/full", "w",
                                               encoding="ascii") as full:
                done = subprocess.run(
                    [program.program(), *map(str, arguments)], stdout=full,
                    stderr=subprocess.PIPE, text=True, check=False,
                    timeout=DEADLINE_S)
                self.assertEqual(done.returncode, 1)
                self.assertIn("cannot write to standard output", done.stderr)

    # Else a file of the optimizer's state is descriptor 1, and lines of
    # progress land in it.
    def test_closed_descriptors_are_no_files_of_the_run(self):
        def close_all():
            for descriptor in range(3):
                os.close(descriptor)
        run = self.start(*self.long, "--offload-optimizer", self.folder,
                         stdout=None, stderr=None, preexec_fn=close_all)
        files = f"/proc/{run.pid}/fd/"
        deadline = time.monotonic() + DEADLINE_S
        while len(os.listdir(files)) < 5:  # With those of the state.
            self.assertLess(time.monotonic(), deadline)
        self.assertEqual([os.readlink(files + str(descriptor))
                          for descriptor in range(3)], ["/dev/null"] * 3)

    def test_results_that_cannot_be_written_are_found_before_training(self):
        text = self.small[1]
        taken = os.path.join(self.folder, "taken.safetensors")
        os.mkdir(taken)
        for flags in (["--save", "/proc"], ["--trace", "/proc"],
                      ["--save", self.save, "--export", "/proc/weights"],
                      ["--save", self.save, "--export", taken],
                      ["--offload-optimizer", text]):
            with self.subTest(flags):
                done = program.run(*self.long, *flags, timeout=DEADLINE_S)
                self.assertEqual(done.returncode, 1)
                self.assertIn(flags[-2], done.stderr)
                self.assertIn(flags[-1].split("/weights")[0], done.stderr)
                self.assertEqual(done.stdout, "")

    def test_a_run_without_end_needs_no_memory_for_its_end(self):
        run = self.start(*self.small, "--steps", 1000000000, "--eval-every", 1)
        self.interrupt(run, signal.SIGTERM)
        run.communicate(timeout=DEADLINE_S)
        self.assertEqual(run.returncode, 143)


if __name__ == "__main__":
    program.main(unittest)
