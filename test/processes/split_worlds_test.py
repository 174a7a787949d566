#!/usr/bin/env python3
"""Ranks in worlds of their own lose a rank of another: split_worlds_test.py
COMMSCHED SPLIT_JOB

Whoever shares a world with it is told; all others go on, and make new worlds.
"""

import contextlib
import os
import re
import signal
import sys
import unittest

from drills_test import Ends, Job, SILENCE_S

COMMSCHED = None
SPLIT_JOB = None
# So that the server has given up a rank that is silent, on a busy machine, too.
WORK_S = 3 * SILENCE_S


class SplitWorldsTest(unittest.TestCase):

  def lose_rank_3(self, blow, *config):
    job = Job(self, [COMMSCHED, "run", "-n", "4", "--silence", str(SILENCE_S),
                     "--grace", "20", "--", SPLIT_JOB, str(WORK_S), *config], 4)
    job.await_work(4)
    ends = Ends({rank: pid for rank, pid in job.pids.items() if rank != 3})
    os.kill(job.pids[3], blow)
    late = ends.wait()
    with contextlib.suppress(ProcessLookupError):
      os.kill(job.pids[3], signal.SIGKILL)
    said = job.process.stdout.read()
    job.await_launcher()
    self.assertEqual(late, [], f"ranks go on\n{said}{job.text()}")
    for rank in (0, 1):
      self.assertRegex(said, rf"(?m)^\[{rank}\] pair: OK$", job.text())
      # In the world of all nothing can be done any more.
      # Rank 2 has ended, too.
      self.assertRegex(said, rf"(?m)^\[{rank}\] job: .*rank [23] will not come",
                       job.text())
    failure = re.search(r"(?m)^\[2\] pair: (.*)$", said)
    self.assertIsNotNone(failure, said + job.text())
    self.assertRegex(failure[1], r"\brank 1\b|\brank 3 is lost")
    self.assertNotRegex(failure[1], r"\brank 0 (is|left|failed|has)")

  def test_a_rank_that_is_stopped_is_lost_to_its_worlds_only(self):
    for config in ((), ("local=net",)):
      with self.subTest(config=config):
        self.lose_rank_3(signal.SIGSTOP, *config)

  def test_a_rank_that_is_killed_is_lost_to_its_worlds_only(self):
    self.lose_rank_3(signal.SIGKILL)


if __name__ == "__main__":
  COMMSCHED, SPLIT_JOB = sys.argv[1:3]
  unittest.main(argv=sys.argv[:1], verbosity=2)
