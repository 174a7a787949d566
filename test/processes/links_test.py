#!/usr/bin/env python3
"""A host's link carries of collectives what the backend tells beforehand.

links_test.py COMMSCHED

Hosts are network namespaces, whose interfaces count what they send and get.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

from launcher_test import environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
import hosts as namespaces  # pylint: disable=wrong-import-position

COMMSCHED = None
LIMIT_S = 60
ANSWER_S = 5
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all",
         "broadcast", "reduce")
ARRAY = "4MiB"
FEW, MANY = 1, 6  # Iterations: what joining takes goes with the few.
# Of a packet as the interface counts it: Ethernet, IPv4, TCP with timestamps.
HEADER_BYTES = 14 + 20 + 32
MOST_EXCESS = 0.03  # What UCX sends beside data.


def interface_counts(host):
  """(bytes, packets) that the host has sent, and that it has got."""
  names = [f"/sys/class/net/eth0/statistics/{way}_{what}"
           for way in ("tx", "rx") for what in ("bytes", "packets")]
  done = subprocess.run(["ip", "netns", "exec", host, "cat", *names],
                        capture_output=True, text=True, check=True)
  sent_bytes, sent, got_bytes, got = map(int, done.stdout.split())
  return (sent_bytes, sent), (got_bytes, got)


def sockets_and_threads(host):
  """Of the processes in it: where a job that hangs stands."""
  texts = [subprocess.run(["ip", "netns", "exec", host, "ss", "-tanpoH"],
                          capture_output=True, text=True, check=False).stdout]
  for pid in namespaces.processes(host):
    for task in sorted(pathlib.Path(f"/proc/{pid}/task").glob("*")):
      with contextlib.suppress(OSError):
        name, call, place = [(task / file).read_text().strip()
                             for file in ("comm", "syscall", "wchan")]
        texts.append(f"process {pid} thread {task.name} '{name}': {place}, "
                     f"system call {call}\n")
  return f"{host}:\n" + "".join(texts)


class LinksTest(unittest.TestCase):

  def setUp(self):
    if os.geteuid() != 0 or shutil.which("ip") is None:
      self.skipTest("network namespaces need root, and iproute2")
    namespaces.PREFIX = f"cs-links-{os.getpid()}-"
    namespaces.SWITCH = f"cs-links-{os.getpid()}"

  def use_hosts(self, text):
    self.layout = namespaces.Layout(text)
    try:
      hosts = namespaces.Hosts(self.layout.num_hosts, "none")
      hosts.__enter__()
    except subprocess.CalledProcessError:
      self.skipTest("this kernel or container makes no network namespaces")
    self.addCleanup(hosts.__exit__)

  def told_by_hanging(self, job):
    """Where it stands, and what its ranks say that they wait for."""
    text = "".join(sockets_and_threads(name)
                   for name in namespaces.names(self.layout.num_hosts))
    job.send_signal(signal.SIGQUIT)
    try:
      out, err = job.communicate(timeout=ANSWER_S)
    except subprocess.TimeoutExpired:
      job.kill()
      try:
        out, err = job.communicate(timeout=ANSWER_S)
      except subprocess.TimeoutExpired:
        out, err = "", "its ranks keep what they would say"
    return text + out + err

  def payloads(self, kind, iterations):
    """What is told of a launch, and what each direction of each link carries
    in the whole job."""
    names = namespaces.names(self.layout.num_hosts)
    before = [interface_counts(name) for name in names]
    job = subprocess.Popen(
        [*self.layout.run_command(pathlib.Path(COMMSCHED).parent), COMMSCHED,
         "bench", "coll", "--json", "--collectives", kind, "-b", ARRAY, "-e",
         ARRAY, "-n", str(iterations), "-w", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(UCX_NET_DEVICES="eth0", COMMSCHED_TIMEOUT_S="20",
                        COMMSCHED_JOIN_TIMEOUT_S="20"))
    try:
      out, err = job.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
      self.fail(f"no end after {LIMIT_S} s\n{self.told_by_hanging(job)}")
    self.assertEqual(job.returncode, 0, err)
    row = json.loads(out)
    self.assertEqual(row["wrong"], 0, row)
    after = [interface_counts(name) for name in names]
    return row["link_bytes"], [
        now[0] - then[0] - HEADER_BYTES * (now[1] - then[1])
        for here_before, here_after in zip(before, after)
        for then, now in zip(here_before, here_after)]

  def expect_told(self, text):
    self.use_hosts(text)
    for kind in KINDS:
      with self.subTest(kind):
        _, of_few = self.payloads(kind, FEW)
        told, of_many = self.payloads(kind, MANY)
        busiest = max(many - few for few, many in zip(of_few, of_many)) / (
            MANY - FEW)
        self.assertGreater(told, 0)
        self.assertLess(abs(busiest / told - 1), MOST_EXCESS,
                        f"{busiest} bytes, {told} are told")

  def test_two_hosts_of_four_ranks(self):
    self.expect_told("2x4")

  def test_uneven_hosts_dealt_out_in_turns(self):
    self.expect_told("3+1:round-robin")


if __name__ == "__main__":
  COMMSCHED = sys.argv[1]
  unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
