#!/usr/bin/env python3
"""Ranks that are processes train to the bits of ranks that are threads:
training_test.py COMMSCHED COMMSCHED_TRAIN"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from launcher_test import children_of, environment, wait_for

COMMSCHED = None
TRAIN = None
LIMIT_S = 120
QUICK = ("--data", "kjv", "--steps", "4", "--deterministic", "--batch", "12",
         "--seq", "64", "--val-batches", "1", "--json")


def report_of(done):
  """The report, which rank 0 prints last."""
  if done.returncode != 0:
    raise AssertionError(done.stderr)
  line = [line for line in done.stdout.splitlines() if "weights_sha256" in line]
  return json.loads(line[-1][line[-1].index("{"):])


def threads(ranks, *arguments):
  return report_of(subprocess.run(
      [TRAIN, "--ranks", str(ranks), *QUICK, *arguments], capture_output=True,
      text=True, timeout=LIMIT_S))


def run_processes(ranks, *arguments, **more):
  return subprocess.run(
      [COMMSCHED, "run", "-n", str(ranks), "--", TRAIN, "--backend", "ucx",
       *QUICK, *arguments], capture_output=True, text=True, timeout=LIMIT_S,
      env={**os.environ, **more})


def processes(ranks, *arguments, **more):
  return report_of(run_processes(ranks, *arguments, **more))


class BitsTest(unittest.TestCase):

  def expect_same(self, ranks, *arguments, **more):
    expected = threads(ranks, *arguments)
    got = processes(ranks, *arguments, **more)
    for figure in ("weights_sha256", "val_loss", "loss", "plan_fingerprint"):
      self.assertEqual(got[figure], expected[figure], (arguments, figure))

  def test_stages_have_the_bits_of_threads(self):
    for stage in range(4):
      self.expect_same(4, "--zero", str(stage))

  def test_three_processes_over_tcp(self):
    self.expect_same(3, "--zero", "3", COMMSCHED_UCX_LOCAL="net")

  def test_shared_sequences(self):
    self.expect_same(4, "--zero", "2", "--sp", "2")

  def test_a_rank_alone(self):
    self.expect_same(1, "--zero", "2")


class FaultTest(unittest.TestCase):

  def test_delays_change_no_bits(self):
    faults = ("--zero", "3", "--fault", "delay,us=300,per_million=100000",
              "--fault", "late,us=300,per_million=100000,rank=1")
    expected = threads(3, "--zero", "3")["weights_sha256"]
    self.assertEqual(threads(3, *faults)["weights_sha256"], expected)
    self.assertEqual(processes(3, *faults)["weights_sha256"], expected)

  def test_a_failure_is_told_by_every_rank(self):
    done = run_processes(3, "--fault", "fail_launch,rank=1,launch=7")
    self.assertEqual(done.returncode, 1, done.stderr)
    for rank in range(3):
      self.assertTrue(any(
          line.startswith(f"[{rank}]") and "injected into launch #7" in line
          and "of rank 1" in line for line in done.stderr.splitlines()),
                      done.stderr)


class RunTest(unittest.TestCase):

  def test_validation_checkpoint_resume_export_and_traces(self):
    with tempfile.TemporaryDirectory() as folder:
      root = pathlib.Path(folder)
      whole = processes(2, "--zero", "2", "--eval-every", "2", "--save",
                        str(root / "whole"), "--export",
                        str(root / "w.safetensors"), "--trace",
                        str(root / "traces"))
      self.assertTrue((root / "w.safetensors").exists())
      for rank in range(2):
        self.assertIn("traceEvents",
                      (root / "traces" / f"rank{rank}.json").read_text())
      processes(2, "--zero", "2", "--stop-after", "2", "--save",
                str(root / "part"))
      resumed = processes(2, "--zero", "2", "--resume", str(root / "part"))
      self.assertEqual(resumed["weights_sha256"], whole["weights_sha256"])
      self.assertEqual(threads(2, "--zero", "2")["weights_sha256"],
                       whole["weights_sha256"])

  def test_the_log_has_a_row_per_step_of_all_ranks(self):
    with tempfile.TemporaryDirectory() as folder:
      logs = []
      for run, name in ((threads, "threads"), (processes, "processes")):
        path = pathlib.Path(folder) / f"{name}.csv"
        run(3, "--zero", "2", "--clip", "1", "--log", str(path))
        # Step, loss, rate and norm; times differ.
        logs.append([line.split(",")[:4]
                     for line in path.read_text().splitlines()])
      self.assertEqual(len(logs[0]), 5)
      self.assertEqual(logs[0], logs[1])
      # Whoever dies does not keep the others at it.
      path = pathlib.Path(folder) / "failed.csv"
      done = run_processes(3, "--log", str(path), "--fault",
                           "fail_launch,rank=1,launch=20")
      self.assertEqual(done.returncode, 1, done.stderr)

  def start_long(self, root):
    """Two ranks that train for long and save, after their first steps."""
    job = subprocess.Popen(
        [COMMSCHED, "run", "-n", "2", "--", TRAIN, "--backend", "ucx", *QUICK,
         "--steps", "100000", "--eval-every", "2", "--save",
         str(root / "save")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)
    self.addCleanup(job.kill)
    while "val_loss" not in job.stdout.readline():
      self.assertIsNone(job.poll())
    return job

  def expect_saved(self, job, number, root):
    out, err = job.communicate(timeout=LIMIT_S)
    self.assertEqual(job.returncode, 128 + number, err)
    report = json.loads(out[out.index("{"):].splitlines()[0])
    self.assertTrue(report["ended_early"])
    done = run_processes(2, "--resume", str(root / "save"), "--steps",
                         "100000", "--stop-after", str(report["steps"]))
    self.assertIn(f"has taken {report['steps']} steps", done.stderr)
    return err

  def test_one_rank_that_is_asked_to_end_ends_all(self):
    for victim in range(2):
      with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        job = self.start_long(root)
        os.kill(sorted(children_of(job.pid))[victim], signal.SIGTERM)
        err = self.expect_saved(job, signal.SIGTERM, root)
        self.assertNotIn("lost", err)

  # As timeout(1) does.
  def test_copies_of_a_signal_do_not_keep_it_from_saving(self):
    with tempfile.TemporaryDirectory() as folder:
      root = pathlib.Path(folder)
      job = self.start_long(root)
      ranks = children_of(job.pid)
      for pid in (job.pid, job.pid, *ranks):
        os.kill(pid, signal.SIGTERM)
      self.expect_saved(job, signal.SIGTERM, root)

  def test_a_signal_ends_the_run_after_a_step_and_saves_it(self):
    with tempfile.TemporaryDirectory() as folder:
      root = pathlib.Path(folder)
      job = self.start_long(root)
      job.send_signal(signal.SIGINT)
      out, err = job.communicate(timeout=LIMIT_S)
      self.assertEqual(job.returncode, 128 + signal.SIGINT, err)
      report = json.loads(out[out.index("{"):].splitlines()[0])
      self.assertTrue(report["ended_early"])
      resumed = processes(2, "--resume", str(root / "save"), "--steps",
                          "100000", "--stop-after", str(report["steps"] + 2))
      whole = threads(2, "--steps", "100000", "--stop-after",
                      str(report["steps"] + 2))
      self.assertEqual(resumed["weights_sha256"], whole["weights_sha256"])

  def test_only_rank_0_prints(self):
    done = run_processes(3)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertEqual({line[:3] for line in done.stdout.splitlines()}, {"[0]"})

  def test_the_number_of_ranks_is_that_of_the_job(self):
    done = run_processes(2, "--ranks", "3")
    self.assertEqual(done.returncode, 2)
    self.assertIn("--ranks is 3; 2 were started", done.stderr)

  def test_an_unknown_backend_is_named(self):
    done = run_processes(1, "--backend", "pigeon")
    self.assertEqual(done.returncode, 1)
    self.assertIn("'pigeon'", done.stderr)

  def test_a_rank_that_fails_ends_all(self):
    done = run_processes(2, "--arena-bytes", "1")
    self.assertNotEqual(done.returncode, 0)
    self.assertIn("commsched run: rank ", done.stderr)


class BuildTest(unittest.TestCase):
  """A rank that builds while the other one does not come."""

  def start_alone(self, *arguments):
    server = subprocess.Popen(
        [COMMSCHED, "rendezvous", "-n", "2"], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL, env=environment(COMMSCHED_TOKEN="secret"))
    self.addCleanup(server.communicate)
    self.addCleanup(server.kill)
    control = server.stdout.readline().strip().split("=")[1]
    rank = subprocess.Popen(
        [TRAIN, "--backend", "ucx", *QUICK, *arguments], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=environment(COMMSCHED_RANK="0", COMMSCHED_WORLD_SIZE="2",
                        COMMSCHED_CONTROL=control, COMMSCHED_TOKEN="secret"))
    self.addCleanup(rank.communicate)
    self.addCleanup(rank.kill)
    return rank

  def test_a_rank_that_does_not_come_is_waited_for_as_long_as_asked_for(self):
    with tempfile.TemporaryDirectory() as folder:
      for save in ((), ("--save", folder)):
        rank = self.start_alone("--timeout", "1", *save)
        _, err = rank.communicate(timeout=20)
        self.assertEqual(rank.returncode, 1)
        self.assertRegex(err, r"rank 0 waited \d+ ms; missing of 2 ranks: 1")

  def test_a_signal_ends_it_at_once(self):
    rank = self.start_alone()
    status = pathlib.Path(f"/proc/{rank.pid}/status")
    wait_for(lambda: int(status.read_text().split("SigCgt:")[1].split()[0], 16)
             & 1 << (signal.SIGTERM - 1))
    begin = time.monotonic()
    rank.send_signal(signal.SIGTERM)
    _, err = rank.communicate(timeout=20)
    self.assertEqual(rank.returncode, 128 + signal.SIGTERM, err)
    self.assertIn("before the first step", err)
    self.assertLess(time.monotonic() - begin, 10)


if __name__ == "__main__":
  COMMSCHED, TRAIN = sys.argv[1:3]
  unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
