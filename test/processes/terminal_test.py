#!/usr/bin/env python3
"""`commsched run` between its ranks and who started it: readers, terminals,
signals and hosts: terminal_test.py COMMSCHED EXAMPLE"""

import array
import fcntl
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import termios
import time
import unittest

from launcher_test import children_of, environment, wait_for

COMMSCHED = None
EXAMPLE = None
LIMIT_S = 60


def command(*arguments):
  return [COMMSCHED, "run", *map(str, arguments)]


def start(*arguments, **options):
  options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True,
             "env": environment(), **options}
  return subprocess.Popen(command(*arguments), **options)


def run(*arguments, **options):
  options = {"capture_output": True, "text": True, "timeout": LIMIT_S,
             "env": environment(), **options}
  return subprocess.run(command(*arguments), check=False, **options)


def state_of(pid):
  return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def unread_bytes(pipe):
  count = array.array("i", [0])
  fcntl.ioctl(pipe, termios.FIONREAD, count)
  return count[0]


class StopTest(unittest.TestCase):

  def test_ranks_stop_and_go_on_with_the_launcher(self):
    job = start("-n", 2, "--silence", "0.4", "--", EXAMPLE, 4000, 1000,
                preexec_fn=os.setpgrp)  # As a shell starts a job.
    self.addCleanup(job.kill)
    for _ in range(10):
      job.stdout.readline()
    ranks = children_of(job.pid)
    job.send_signal(signal.SIGTSTP)
    wait_for(lambda: [state_of(pid) for pid in (job.pid, *ranks)] == ["T"] * 3)
    # Longer than the silence after which a rank is lost.
    self.assertEqual(select.select([job.stderr], [], [], 1)[0], [])
    self.assertEqual([state_of(pid) for pid in ranks], ["T"] * 2)
    job.send_signal(signal.SIGCONT)
    out, err = job.communicate(timeout=LIMIT_S)
    self.assertEqual((job.returncode, err), (0, ""))
    for rank in range(2):
      self.assertIn(f"[{rank}] rank {rank} of 2: 3 6 9\n", out)


class ReaderTest(unittest.TestCase):

  PRINTS = 'if [ "$COMMSCHED_RANK" = 0 ]; then exec yes; fi; '

  def test_a_reader_that_stops_does_not_hide_a_failure(self):
    job = start("-n", 2, "--grace", "0.1", "--", "sh", "-c",
                self.PRINTS + "exit 3")
    self.addCleanup(job.kill)
    # Nobody reads its standard output.
    said = "".join(job.stderr.readline() for _ in range(2))
    self.assertIn("exited with code 3; waiting for the others to end", said)
    self.assertIn("ending rank 0 with SIGTERM", said)
    wait_for(lambda: not children_of(job.pid))
    job.send_signal(signal.SIGTERM)
    self.assertEqual(job.wait(timeout=LIMIT_S), 3)
    self.assertIn("nobody has read the last lines", job.stderr.read())
    job.communicate()

  def test_a_reader_that_stops_does_not_hide_a_signal(self):
    job = start("-n", 2, "--", "sh", "-c",
                "trap '' TERM INT; echo ready >&2; exec yes")
    self.addCleanup(job.kill)
    for _ in range(2):
      job.stderr.readline()
    capacity = fcntl.fcntl(job.stdout, fcntl.F_GETPIPE_SZ)
    wait_for(lambda: unread_bytes(job.stdout) > capacity // 2)
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGINT)
    wait_for(lambda: not children_of(job.pid))
    job.send_signal(signal.SIGINT)  # Within a second: a copy.
    job.send_signal(signal.SIGHUP)
    self.assertEqual(job.wait(timeout=LIMIT_S), 128 + signal.SIGKILL)
    job.communicate()

  def test_a_reader_that_takes_its_time_gets_all(self):
    job = start("-n", 1, "--", "seq", 200000)
    self.addCleanup(job.kill)
    wait_for(lambda: not children_of(job.pid))
    out, err = job.communicate(timeout=LIMIT_S)
    self.assertEqual(out, "".join(f"{i}\n" for i in range(1, 200001)))
    self.assertEqual((job.returncode, err), (0, ""))

  def test_without_a_reader_the_job_ends(self):
    for ends_by_sigpipe in ("", "trap '' PIPE; "):
      job = start("-n", 2, "--", "sh", "-c", ends_by_sigpipe + self.PRINTS +
                  "exec sleep 600")
      self.addCleanup(job.kill)
      self.assertEqual(job.stdout.readline(), "[0] y\n")
      job.stdout.close()
      self.assertEqual(job.wait(timeout=LIMIT_S), 128 + signal.SIGPIPE)
      self.assertIn("nobody reads standard output any more",
                    job.stderr.read())
      job.stderr.close()

  def test_output_that_cannot_be_written_is_a_failure(self):
    for arguments in (["--help"], ["--version"], ["info"], ["completion"],
                      ["run", "--help"], ["run", "-n", "1", "--", "echo", "a"],
                      ["bench", "coll", "--backend", "null", "-b", "4", "-e",
                       "4", "-n", "1"]):
      with self.subTest(arguments), open("/dev/full", "w",
                                         encoding="ascii") as full:
        done = subprocess.run([COMMSCHED, *arguments], stdout=full,
                              stderr=subprocess.PIPE, text=True, check=False,
                              timeout=LIMIT_S, env=environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write to standard output", done.stderr)

  def test_a_full_disk_does_not_end_the_job(self):
    with open("/dev/full", "w", encoding="ascii") as full:
      done = run("-n", 1, "--", "sh", "-c", "echo lost; echo ended >&2",
                 capture_output=False, stdout=full, stderr=subprocess.PIPE)
    self.assertEqual(done.returncode, 1)
    self.assertIn("ended\n", done.stderr)


class SignalTest(unittest.TestCase):

  COUNTS = ("trap 'n=$((n+1)); echo signal $n' TERM; n=0; echo ready; "
            "until [ $n -ge 1 ]; do sleep 0.05; done; sleep 0.2; exit 5")

  def test_copies_of_a_signal_are_one(self):
    job = start("-n", 1, "--", "bash", "-c", self.COUNTS)
    self.addCleanup(job.kill)
    job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    self.assertEqual(job.stdout.readline(), "signal 1\n")
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=LIMIT_S)
    self.assertEqual((job.returncode, out), (5, ""), err)

  def test_another_signal_ends_at_once(self):
    job = start("-n", 1, "--", "sh", "-c",
                "trap '' TERM INT; echo ready; while true; do sleep 60; done")
    self.addCleanup(job.kill)
    job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=LIMIT_S)
    self.assertEqual(job.returncode, 128 + signal.SIGKILL)

  def test_a_signal_that_was_ignored_at_the_start_stays_ignored(self):
    job = start("-n", 1, "--", "sh", "-c", "trap 'exit 7' TERM; "
                "kill -HUP $PPID; kill -TERM $PPID; "
                "while true; do sleep 0.05; done",
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    self.addCleanup(job.kill)
    job.communicate(timeout=LIMIT_S)
    self.assertEqual(job.returncode, 7)


class BarTest(unittest.TestCase):

  def test_a_bar_of_rank_0_is_drawn_on_the_terminal(self):
    main, terminal = pty.openpty()
    self.addCleanup(os.close, main)
    with os.fdopen(terminal, "w") as stderr:
      job = start("-n", 2, "--", "sh", "-c",
                  'if [ -n "$COMMSCHED_TERMINAL" ]; then '
                  'printf "\\r[##] 2/2\\033[K" >&2; '
                  'else echo plain; fi', stderr=stderr)
      out, _ = job.communicate(timeout=LIMIT_S)
    self.assertEqual(out, "[1] plain\n")
    self.assertEqual(os.read(main, 4096).decode(),
                     "\r\033[K[0] [##] 2/2\r\033[K")


class HostsTest(unittest.TestCase):

  def agent(self, folder):
    """A host that has nothing but what it is told."""
    path = pathlib.Path(folder) / "agent"
    path.write_text('#!/bin/sh\nHOST="$1"; shift\n'
                    'exec env -i PATH="$PATH" HOST="$HOST" "$@"\n')
    path.chmod(0o755)
    return f"{path} {{host}}"

  def test_hosts_get_variables_and_ranks_by_slots(self):
    with tempfile.TemporaryDirectory() as folder:
      done = run("-n", 3, "--hosts", "a:1,b:2", "--address", "127.0.0.1",
                 "--agent", self.agent(folder), "-x", "MINE", "-x", "YOURS=it's",
                 "--", "sh", "-c",
                 'echo "$HOST $COMMSCHED_LOCAL_RANK $UCX_TLS $COMMSCHED_LOG '
                 '$LD_LIBRARY_PATH $MINE $YOURS"',
                 env=environment(UCX_TLS="tcp", COMMSCHED_LOG="info",
                                 LD_LIBRARY_PATH="/lib/mine", MINE="mine"))
    self.assertEqual(done.returncode, 0, done.stderr)
    rest = "tcp info /lib/mine mine it's"
    self.assertEqual(sorted(done.stdout.splitlines()),
                     [f"[0] a 0 {rest}", f"[1] b 0 {rest}", f"[2] b 1 {rest}"])

  def test_signals_reach_ranks_behind_ssh(self):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "ssh"
      # The command runs elsewhere: what this process gets does not reach it.
      path.write_text('#!/bin/sh\nexec setsid -w sh -c "$2"\n')
      path.chmod(0o755)
      job = start("-n", 2, "--hosts", "127.0.0.1", "--agent",
                  f"{path} {{host}}", "--", "sh", "-c",
                  "trap 'echo got it; exit 0' TERM; echo $$; "
                  "while true; do sleep 0.05; done", preexec_fn=os.setpgrp)
      self.addCleanup(job.kill)
      ranks = [int(job.stdout.readline().split()[1]) for _ in range(2)]
      job.send_signal(signal.SIGTSTP)
      wait_for(lambda: [state_of(pid) for pid in (job.pid, *ranks)] == ["T"] * 3)
      job.send_signal(signal.SIGCONT)
      wait_for(lambda: "T" not in [state_of(pid) for pid in ranks])
      job.send_signal(signal.SIGTERM)
      out, err = job.communicate(timeout=LIMIT_S)
    self.assertEqual((job.returncode, err), (0, ""))
    self.assertEqual(out.count("got it"), 2)

  def test_a_numeric_host_needs_no_address(self):
    with tempfile.TemporaryDirectory() as folder:
      done = run("-n", 2, "--hosts", "127.0.0.1", "--agent",
                 self.agent(folder), "--", EXAMPLE)
    self.assertEqual(done.returncode, 0, done.stderr)

  def test_what_cannot_be_is_refused_at_once(self):
    for arguments, code, text in (
        (["--hosts", "a b", "--agent", "sh"], 1,
         "host 'a b' cannot be reached: .*; give --address"),
        (["--hosts", "127.0.0.1:1"], 2, "has 1 slots, but there are 2 ranks"),
        (["--hosts", "a:none"], 2, "'a:none', which is neither a host nor"),
        (["--hosts", "a", "--agent", ""], 2, "--agent"),
        (["--hosts", "a", "--agent", " "], 2, "--agent"),
        (["-x", "NOT_SET_ANYWHERE"], 2, "which is not set")):
      begin = time.monotonic()
      done = run("-n", 2, *arguments, "--", "true")
      self.assertEqual(done.returncode, code, arguments)
      self.assertRegex(done.stderr, text)
      self.assertLess(time.monotonic() - begin, 20, arguments)

  def test_without_ssh_the_agent_is_named(self):
    with tempfile.TemporaryDirectory() as folder:
      done = run("-n", 1, "--hosts", "127.0.0.1", "--", "true",
                 env=environment(PATH=folder))
    self.assertEqual(done.returncode, 1)
    self.assertRegex(done.stderr, "rank 0 cannot be started: ssh: No such file "
                                  "or directory; --agent says how")


if __name__ == "__main__":
  COMMSCHED, EXAMPLE = sys.argv[1:3]
  unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
