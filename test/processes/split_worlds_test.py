#!/usr/bin/env python3
"""Ranks lose one that is in another world, or in another channel's group, than
they are: split_worlds_test.py COMMSCHED SPLIT_JOB CHANNEL_JOB

Whoever shares a world with it, or a channel, is told; all others go on, and make
new ones.
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
CHANNEL_JOB = None
# So that the server has given up a rank that is silent, on a busy machine, too.
WORK_S = 3 * SILENCE_S


class PairsTest(unittest.TestCase):

  def lose_rank_3(self, program, blow, *config):
    """What the ranks said of their pairs; that of all is another matter."""
    job = Job(self, [COMMSCHED, "run", "-n", "4", "--silence", str(SILENCE_S),
                     "--grace", "20", "--", program, str(WORK_S), *config], 4)
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
    failure = re.search(r"(?m)^\[2\] pair: (.*)$", said)
    self.assertIsNotNone(failure, said + job.text())
    self.assertRegex(failure[1], r"\brank 1\b|\brank 3 is lost")
    self.assertNotRegex(failure[1], r"\brank 0 (is|left|failed|has)")
    return said


class SplitWorldsTest(PairsTest):

  def lose(self, blow, *config):
    said = self.lose_rank_3(SPLIT_JOB, blow, *config)
    # In the world of all nothing can be done any more. Rank 2 has ended, too.
    for rank in (0, 1):
      self.assertRegex(said, rf"(?m)^\[{rank}\] job: .*rank [23] will not come")

  def test_a_rank_that_is_stopped_is_lost_to_its_worlds_only(self):
    for config in ((), ("local=net",)):
      with self.subTest(config=config):
        self.lose(signal.SIGSTOP, *config)

  def test_a_rank_that_is_killed_is_lost_to_its_worlds_only(self):
    self.lose(signal.SIGKILL)


class ChannelsTest(PairsTest):

  def lose(self, blow, *config):
    said = self.lose_rank_3(CHANNEL_JOB, blow, *config)
    # Rank 2 ends, too, which may be the first that a rank hears of.
    failure = re.search(r"(?m)^\[2\] pair: (.*)$", said)
    self.assertRegex(failure[1], r"\brank 3\b")
    for rank in (0, 1):
      self.assertRegex(said, rf"(?m)^\[{rank}\] all: .*\brank 3 is lost")

  def test_a_rank_that_is_stopped_is_lost_to_its_channels_only(self):
    self.lose(signal.SIGSTOP, "local=net")

  def test_a_rank_that_is_killed_is_lost_to_its_channels_only(self):
    self.lose(signal.SIGKILL)


if __name__ == "__main__":
  COMMSCHED, SPLIT_JOB, CHANNEL_JOB = sys.argv[1:4]
  unittest.main(argv=sys.argv[:1], verbosity=2)
