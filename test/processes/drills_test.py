#!/usr/bin/env python3
"""Jobs over several hosts lose a rank.

drills_test.py COMMSCHED ENDLESS_JOB few|all

Whoever is killed, stands still or is cut off is named by every other rank, and
nobody else is; all end in time, and nothing is left of them.
"""

import collections
import contextlib
import os
import pathlib
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

from launcher_test import REFUSED, children_of, environment, wait_for
from layouts import on_hosts

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
import hosts as namespaces  # pylint: disable=wrong-import-position

COMMSCHED = None
ENDLESS_JOB = None
END_S = 20  # Of who has to notice; a busy machine takes a while.
LOOKS_PER_S = 10
SILENCE_S = 2
TIMEOUT_S = 4  # Also of sessions to begin.
NO_SPACE = (sys.executable, "-c", REFUSED, "285,47,28")  # fallocate, ENOSPC

Layout = collections.namedtuple("Layout", "hosts owner counterpart bystander")
# Between levels: who sums up and hands on for its host, who does so for another
# host, and who has neighbours that do.
LAYOUTS = {
    "2x4": Layout([0, 0, 0, 0, 1, 1, 1, 1], 0, 4, 6),
    "3+1": Layout([0, 0, 0, 1], 0, 3, 1),
    "round_robin": Layout([0, 1, 0, 1, 0], 0, 1, 4),
}
ROLES = ("owner", "counterpart", "bystander")

Way = collections.namedtuple("Way", "elements deterministic config")
WAYS = {
    "tree": Way(1000, False, "algorithm=tree"),
    "levels_in_order": Way(300_000, True, "algorithm=levels"),
    "exchange": Way(1000, False, "algorithm=exchange"),
    "tree_in_order": Way(1000, True, "algorithm=tree"),
    "levels": Way(300_000, False, "algorithm=levels"),
    "levels_by_tcp": Way(300_000, True, "algorithm=levels;local=net"),
}

LOGGED = "] commsched warning: "
# What an error says of a rank that is not the one that reports.
ACCUSED = re.compile(r"\branks? ([0-9, -]+?) "
                     r"(?:is lost|left|failed|(?:has|have) (?:not|left)|"
                     r"(?:does|do) not answer)\b")


def ranks_of(text):
  """"1, 4-7" as numbers."""
  found = set()
  for part in text.split(","):
    first, _, last = part.strip().partition("-")
    found |= set(range(int(first), int(last or first) + 1))
  return found


def accused(line):
  return set().union(*map(ranks_of, ACCUSED.findall(line)))


def names_of(pid):
  """The sockets of a process that have a name, and what it has of /dev/shm."""
  process = pathlib.Path(f"/proc/{pid}")
  links = []
  for fd in (process / "fd").iterdir():
    try:
      links.append(os.readlink(fd))
    except FileNotFoundError:
      pass  # Closed meanwhile.
  inodes = {link[8:-1] for link in links if link.startswith("socket:[")}
  lines = (process / "net/unix").read_text().splitlines()
  sockets = {words[7] for words in map(str.split, lines)
             if len(words) > 7 and words[6] in inodes}
  mapped = re.findall(r" (/\S+)", (process / "maps").read_text())
  return sockets, {path for path in links + mapped
                   if path.startswith("/dev/shm/")}


class Ends:
  """Of processes, which are here when this is made."""

  def __init__(self, pids):
    self.fds = {name: os.pidfd_open(pid) for name, pid in pids.items()}

  def wait(self):
    """Until all have ended; returns the names of those that have not in time.
    Time in which the whole machine stands still does not count."""
    poll = select.poll()
    for fd in self.fds.values():
      poll.register(fd, select.POLLIN)
    looks = END_S * LOOKS_PER_S
    while self.fds and looks > 0:
      ended = {fd for fd, _ in poll.poll(1000 / LOOKS_PER_S)}
      looks -= 0 if ended else 1
      for name, fd in list(self.fds.items()):
        if fd in ended:
          poll.unregister(fd)
          os.close(self.fds.pop(name))
    for fd in self.fds.values():
      os.close(fd)
    return list(self.fds)


class Job:
  """Ranks that reduce for ever."""

  def __init__(self, test, command, size, **more):
    self.size = size
    self.errors = tempfile.TemporaryFile("w+")
    test.addCleanup(self.errors.close)
    self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                    stderr=self.errors, env=environment(**more))
    test.addCleanup(self.end)
    self.pids = {}  # By rank.

  def await_work(self, lines):
    for _ in range(lines):
      if self.process.stdout.readline() == "":
        raise AssertionError(self.text())
    wait_for(self.all_are_known)

  def all_are_known(self):
    """Which process is which rank; agents are their parents on other hosts."""
    pids = children_of(self.process.pid)
    for pid in pids:
      pids += children_of(pid)
      environ = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
      found = re.search(rb"\bCOMMSCHED_RANK=(\d+)", environ)
      if found:
        self.pids[int(found[1])] = pid
    return len(self.pids) == self.size

  def await_launcher(self):
    """Until it has ended; returns its exit code."""
    if Ends({"launcher": self.process.pid}).wait():
      raise AssertionError(f"the launcher goes on\n{self.text()}")
    return self.process.wait()

  def text(self):
    # Ranks write where the descriptor stands, which they share.
    fd = self.errors.fileno()
    return os.pread(fd, os.fstat(fd).st_size, 0).decode(errors="replace")

  def said_by(self, rank):
    return [line for line in self.text().splitlines()
            if line.startswith(f"[{rank}] ")]

  def end(self):
    """Whatever has become of it."""
    if self.process.poll() is None:
      self.process.kill()
    self.process.stdout.close()
    self.process.wait()


class Drills(unittest.TestCase):

  def accused_by(self, job, rank):
    # The log says whom a rank waits for, and accuses nobody.
    lines = [line for line in job.said_by(rank) if LOGGED not in line]
    self.assertTrue(lines, f"rank {rank} said nothing\n{job.text()}")
    return set().union(*map(accused, lines))

  def expect_accused(self, job, rank, guilty):
    self.assertEqual(self.accused_by(job, rank), guilty,
                     f"by rank {rank}\n{job.text()}")

  def expect_some(self, job, rank, guilty):
    """One or more of the guilty, and nobody else."""
    found = self.accused_by(job, rank)
    self.assertTrue(found and found <= guilty, f"by rank {rank}\n{job.text()}")

  def expect_no_innocent(self, job, rank, guilty):
    self.assertLessEqual(self.accused_by(job, rank), guilty,
                         f"by rank {rank}\n{job.text()}")


class DrillTest(Drills):

  def drill(self, expect, layout, way, victim, blow, *options, **more):
    """All but `victim`, dealt `blow`, end and accuse whom they should."""
    command = [ENDLESS_JOB, str(way.elements), str(int(way.deterministic)),
               way.config]
    size = len(layout.hosts)
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    job = Job(self, [COMMSCHED, "run", "-n", str(size), "--grace", str(END_S),
                     *options, "--", *on_hosts(layout.hosts, command)],
              size, TMPDIR=folder.name, XDG_RUNTIME_DIR=folder.name, **more)
    job.await_work(random.Random(str((layout, way, victim))).randrange(1, 40))
    names = [names_of(pid) for pid in job.pids.values()]
    others = {rank: pid for rank, pid in job.pids.items() if rank != victim}
    ends = Ends(others)
    os.kill(job.pids[victim], blow)
    late = ends.wait()
    with contextlib.suppress(ProcessLookupError):
      os.kill(job.pids[victim], signal.SIGKILL)
    code = job.await_launcher()
    self.assertEqual(late, [], f"ranks go on\n{job.text()}")
    self.assertGreater(code, 0, job.text())
    for rank in others:
      expect(job, rank, {victim})
    self.expect_nothing_left(job, names, folder.name)

  def expect_nothing_left(self, job, names, folder):
    """Of ranks that had `names`, all of which have ended."""
    for pid in job.pids.values():
      self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())
    self.assertEqual(os.listdir(folder), [])
    in_use = set(pathlib.Path("/proc/net/unix").read_text().split())
    for sockets, files in names:
      self.assertEqual(sockets & in_use, set())
      self.assertEqual(files, set())  # Also at work.

  def kill(self, layout, way, victim):
    self.drill(self.expect_accused, layout, way, victim, signal.SIGKILL)

  def freeze(self, layout, way, victim):
    """Until the server takes it for lost."""
    self.drill(self.expect_accused, layout, way, victim, signal.SIGSTOP,
               "--silence", str(SILENCE_S))

  def freeze_between_launches(self, layout, way, victim):
    """Until the launch that it has not issued has taken too long."""
    self.drill(self.expect_accused, layout, way, victim, signal.SIGUSR1,
               "--silence", "60", COMMSCHED_TIMEOUT_S=str(TIMEOUT_S))

  def freeze_at_any_time(self, layout, way, victim):
    """Also when it has issued the launch that takes too long, and when others
    are a launch ahead of those that wait for it."""
    self.drill(self.expect_accused, layout, way, victim, signal.SIGSTOP,
               "--silence", "60", COMMSCHED_TIMEOUT_S=str(TIMEOUT_S))


def add_drills(chosen):
  """A test for each of (how, layout, role, way)."""
  for how, layout, role, way in chosen:
    def run(self, how=how, layout=layout, role=role, way=way):
      victim = getattr(LAYOUTS[layout], role)
      getattr(self, how)(LAYOUTS[layout], WAYS[way], victim)
    setattr(DrillTest, f"test_{how}_{role}_of_{layout}_by_{way}", run)


def all_drills():
  hows = ("kill", "freeze_between_launches", "freeze_at_any_time")
  chosen = [(how, layout, role, way) for how in hows for layout in LAYOUTS
            for role in ROLES for way in WAYS]
  # What the server does hardly depends on it.
  chosen += [("freeze", layout, role, "levels") for layout in LAYOUTS
             for role in ROLES]
  return chosen


def few_drills():
  """Each layout, role and way, but not each with each."""
  ways = list(WAYS)
  chosen = [("freeze", "3+1", "counterpart", "levels")]
  for i, layout in enumerate(("2x4", "3+1")):
    for k, role in enumerate(ROLES):
      chosen.append(("kill", layout, role, ways[(3 * i + k) % len(ways)]))
    chosen.append(("freeze_between_launches", layout, ROLES[i + 1], ways[i]))
  return chosen


class SpaceTest(unittest.TestCase):

  def test_where_no_space_is_left_for_a_segment_all_say_on_which_rank(self):
    layout = LAYOUTS["3+1"]
    rank = ["sh", "-c", '[ "$COMMSCHED_RANK" = 1 ] || shift 4; exec "$@"', "sh",
            *NO_SPACE, ENDLESS_JOB, "1000", "0"]
    job = Job(self, [COMMSCHED, "run", "-n", "4", "--",
                     *on_hosts(layout.hosts, rank)], 4)
    self.assertEqual(job.await_launcher(), 1, job.text())
    for rank in range(4):
      self.assertRegex(
          "\n".join(job.said_by(rank)),
          r"RESOURCE_EXHAUSTED: .*rank 1: cannot reserve a segment of \d+ "
          "bytes, which ranks of a host share: No space left on device")


class CutTest(Drills):
  """A host's link goes down. Hosts are network namespaces."""

  def setUp(self):
    if os.geteuid() != 0 or shutil.which("ip") is None:
      self.skipTest("network namespaces need root, and iproute2")
    namespaces.PREFIX = f"cs-drill-{os.getpid()}-"
    namespaces.SWITCH = f"cs-drill-{os.getpid()}"

  def cut(self, text, way, *options, **more):
    layout = namespaces.Layout(text)
    try:
      hosts = namespaces.Hosts(layout.num_hosts, "none")
      hosts.__enter__()
    except subprocess.CalledProcessError:
      self.skipTest("this kernel or container makes no network namespaces")
    self.addCleanup(hosts.__exit__)
    command = layout.run_command(pathlib.Path(COMMSCHED).parent)
    prefix = command.index("--prefix")
    command[prefix:prefix + 2] = ["--grace", str(END_S), *options]
    variables = [f"{name}={value}" for name, value in more.items()]
    job = Job(self, [*command, "env", *variables, ENDLESS_JOB,
                     str(way.elements), str(int(way.deterministic)),
                     way.config],
              layout.num_ranks)
    job.await_work(3)
    cut_off = {rank for rank, host in enumerate(layout.host_of)
               if host == layout.num_hosts - 1}
    ends = Ends(job.pids)
    namespaces.ip("-n", namespaces.names(layout.num_hosts)[-1], "link", "set",
                  "eth0", "down")
    late = ends.wait()
    self.assertEqual(late, [], f"ranks go on\n{job.text()}")
    self.assertGreater(job.await_launcher(), 0, job.text())
    return job, cut_off

  def expect_parted(self, expect, text, way, *options, **more):
    """Each side accuses ranks of the other one; that without the server as
    `expect` says."""
    job, cut_off = self.cut(text, way, *options, **more)
    all_ranks = set(range(job.size))
    for rank in all_ranks - cut_off:
      self.expect_some(job, rank, cut_off)
    for rank in cut_off:
      expect(job, rank, all_ranks - cut_off)

  def cut_off(self, text, way):
    """Until the server takes ranks for lost, and they the server."""
    self.expect_parted(self.expect_no_innocent, text, way, "--silence",
                       str(SILENCE_S))

  def cut_off_within_a_launch(self, text, way):
    """Until a launch has taken too long."""
    self.expect_parted(self.expect_some, text, way, "--silence", "60",
                       COMMSCHED_TIMEOUT_S=TIMEOUT_S)


def add_cuts():
  for how in ("cut_off", "cut_off_within_a_launch"):
    for text in ("2x4", "3+1", "2+1+1"):
      for way in ("tree", "levels_in_order"):
        def run(self, how=how, text=text, way=way):
          getattr(self, how)(text, WAYS[way])
        setattr(CutTest, f"test_{how}_{text}_by_{way}", run)


if __name__ == "__main__":
  COMMSCHED, ENDLESS_JOB, which = sys.argv[1:4]
  add_drills(all_drills() if which == "all" else few_drills())
  if which == "all":
    add_cuts()
  unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
