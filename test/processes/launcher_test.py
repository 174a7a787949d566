#!/usr/bin/env python3
"""`commsched` and jobs of processes: launcher_test.py COMMSCHED EXAMPLE"""

import json
import os
import pathlib
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

COMMSCHED = None
EXAMPLE = None
LIMIT_S = 60
SUMS = "10 20 30"  # Of four ranks.


def environment(**more):
  names = ("COMMSCHED_", "OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_")
  clean = {name: value for name, value in os.environ.items()
           if not name.startswith(names)
           and name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")}
  return {**clean, **more}


def run(*arguments, **more):
  return subprocess.run([COMMSCHED, *arguments], capture_output=True, text=True,
                        timeout=LIMIT_S, env=environment(**more))


def start(*arguments, **more):
  return subprocess.Popen([COMMSCHED, *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True,
                          env=environment(**more))


# A program that starts another one which the kernel refuses a system call, as a
# container may: its numbers on x86-64 and elsewhere come first, and the error.
REFUSED = """
import ctypes, os, struct, sys
numbers = [int(number) for number in sys.argv[1].split(",")]
number = numbers[os.uname().machine != "x86_64"]
filters = b"".join(struct.pack("HBBI", *one) for one in (
    (0x20, 0, 0, 0),              # the number of the call
    (0x15, 0, 1, number),         # if it is that one:
    (0x06, 0, 0, 0x00050000 | numbers[2]),  # that error,
    (0x06, 0, 0, 0x7fff0000)))    # else go on.
program = ctypes.create_string_buffer(filters)
class Program(ctypes.Structure):
  _fields_ = [("count", ctypes.c_ushort), ("filters", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
given = Program(4, ctypes.cast(program, ctypes.c_void_p).value)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
assert libc.prctl(22, 2, ctypes.byref(given), 0, 0) == 0  # PR_SET_SECCOMP
os.execv(sys.argv[2], sys.argv[2:])
"""
NO_READS = (sys.executable, "-c", REFUSED, "310,270,1")  # process_vm_readv
NO_MEMORY = (sys.executable, "-c", REFUSED, "319,279,1")  # memfd_create


def children_of(pid):
  path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
  return [int(child) for child in path.read_text().split()]


def wait_for(condition):
  deadline = time.monotonic() + LIMIT_S
  while not condition():
    if time.monotonic() > deadline:
      raise AssertionError("did not happen")
    os.sched_yield()


def segments_of(pid):
  """How many that ranks of a host share it has mapped."""
  maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
  return maps.count("memfd:commsched-ucx")


class RunTest(unittest.TestCase):

  def test_ranks_meet_and_their_lines_have_their_numbers(self):
    done = run("run", "-n", "4", "--", EXAMPLE)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertEqual(sorted(done.stdout.splitlines()),
                     [f"[{r}] rank {r} of 4: {SUMS}" for r in range(4)])
    self.assertEqual(done.stderr, "")

  def test_three_ranks_over_tcp(self):
    done = run("run", "-n", "3", "--", EXAMPLE, "5", "300000",
               COMMSCHED_UCX_LOCAL="net")
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn("[0] rank 0 of 3: 6 12 18", done.stdout)

  def test_one_rank_has_no_prefix(self):
    done = run("run", "-n", "1", "--", EXAMPLE)
    self.assertEqual(done.stdout, "rank 0 of 1: 1 2 3\n")

  def test_the_exit_code_is_that_of_the_first_failure(self):
    program = 'if [ "$COMMSCHED_RANK" = 1 ]; then exit 7; fi; exec sleep 60'
    done = run("run", "-n", "3", "--grace", "0.1", "--", "sh", "-c", program)
    self.assertEqual(done.returncode, 7)
    self.assertRegex(done.stderr, r"rank 1 \(process \d+\) exited with code 7; "
                                  "waiting for the others to end")

  def test_who_does_not_end_is_killed(self):
    program = ('trap "" TERM; if [ "$COMMSCHED_RANK" = 1 ]; then exit 3; fi; '
               "while true; do sleep 60; done")
    done = run("run", "-n", "2", "--grace", "0.1", "--", "sh", "-c", program)
    self.assertEqual(done.returncode, 3)
    self.assertIn("ending rank 0 with SIGTERM", done.stderr)
    self.assertIn("killing rank 0", done.stderr)

  def test_a_program_that_is_not_there_is_named(self):
    done = run("run", "-n", "2", "--", "no-such-program")
    self.assertEqual(done.returncode, 1)
    self.assertIn("no-such-program: No such file", done.stderr)

  def test_signals_are_passed_on(self):
    job = start("run", "-n", "2", "--", "sh", "-c",
                'trap "echo got it; exit 0" TERM; echo ready; '
                "while true; do sleep 0.05; done")
    for _ in range(2):
      self.assertIn("ready", job.stdout.readline())
    job.send_signal(signal.SIGTERM)
    out, err = job.communicate(timeout=LIMIT_S)
    self.assertEqual(out.count("got it"), 2, err)
    self.assertEqual(job.returncode, 0)

  def test_sigquit_says_what_ranks_wait_for_and_the_job_goes_on(self):
    job = start("run", "-n", "3", "--silence", "60", "--", EXAMPLE, "100000000",
                "1000")
    for _ in range(9):  # Three steps of each rank.
      job.stdout.readline()
    first, stopped, _ = children_of(job.pid)
    os.kill(stopped, signal.SIGSTOP)
    told = re.compile(r"\[0\] commsched info: rank 0: session 0: "
                      r"(launch |all |\d+ launch)")
    waits = (r"commsched info: rank {0}: session 0: launch #0 all_reduce "
             r"'reduce' on axis dp of step \d+ has been in flight for ")

    def read_until(pattern):
      line = job.stderr.readline()
      while not re.search(pattern, line):
        self.assertNotEqual(line, "")
        line = job.stderr.readline()
      return line

    line = ""
    while not re.search(waits.format(0), line):  # What is done ends.
      os.kill(first, signal.SIGQUIT)
      line = read_until(told)
    job.send_signal(signal.SIGQUIT)
    read_until(waits.format(2))
    os.kill(stopped, signal.SIGCONT)
    self.assertIsNone(job.poll())
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=LIMIT_S)
    self.assertEqual(job.returncode, 128 + signal.SIGTERM)

  def test_the_environment_reaches_programs_that_set_nothing(self):
    done = run("run", "-n", "2", "--", EXAMPLE, COMMSCHED_LOG="info",
               COMMSCHED_TIMEOUT_S="7")
    self.assertEqual(done.returncode, 0, done.stderr)
    for rank in range(2):
      self.assertRegex(done.stderr, rf"commsched info: rank {rank} of 2 has "
                       "joined, with backend 'ucx'")
      self.assertRegex(done.stderr, rf"commsched info: rank {rank}: session 0 "
                       "begins: plan [0-9a-f]+, 1 launches a step, backend "
                       "'ucx', a launch may take 7 s")
      self.assertRegex(done.stderr, rf"commsched info: rank {rank}: session 0 "
                       r"ends after \d+ steps")
    done = run("run", "-n", "1", "--", EXAMPLE, COMMSCHED_TIMEOUT_S="never")
    self.assertNotEqual(done.returncode, 0)
    self.assertIn("environment variable COMMSCHED_TIMEOUT_S is 'never', not an "
                  "integer in 1..31536000", done.stderr)

  def test_a_profile_of_links_that_cannot_be_read_names_the_variable(self):
    done = run("run", "-n", "1", "--", EXAMPLE,
               COMMSCHED_LINK_PROFILE="/nowhere/links.json")
    self.assertNotEqual(done.returncode, 0)
    self.assertIn("profile of links, environment variable COMMSCHED_LINK_PROFILE: "
                  "/nowhere/links.json: ", done.stderr)

  def test_nothing_outlives_the_launcher(self):
    job = start("run", "-n", "2", "--", "sh", "-c", "echo $$; exec sleep 300")
    ranks = [int(job.stdout.readline().split()[1]) for _ in range(2)]
    job.kill()
    job.communicate(timeout=LIMIT_S)
    for rank in ranks:
      wait_for(lambda pid=rank: not pathlib.Path(f"/proc/{pid}").exists()
               or " Z " in pathlib.Path(f"/proc/{pid}/stat").read_text())

  def test_what_a_rank_leaves_behind_is_ended(self):
    done = run("run", "-n", "1", "--", "sh", "-c", "sleep 300 & echo $!")
    left = pathlib.Path(f"/proc/{int(done.stdout)}")
    wait_for(lambda: not left.exists() or " Z " in (left / "stat").read_text())

  def test_hosts_are_shells_that_an_agent_starts(self):
    with tempfile.TemporaryDirectory() as folder:
      log = pathlib.Path(folder) / "log"
      agent = pathlib.Path(folder) / "agent"
      # A host that has nothing but what it is told.
      agent.write_text(f'#!/bin/sh\necho "$1" >> {log}\nshift\n'
                       'exec env -i PATH="$PATH" "$@"\n')
      agent.chmod(0o755)
      done = run("run", "-n", "4", "--hosts", "a,b", "--address", "127.0.0.1",
                 "--agent", f"{agent} {{host}}{{index}}", "--", EXAMPLE)
      self.assertEqual(done.returncode, 0, done.stderr)
      self.assertIn(f"[3] rank 3 of 4: {SUMS}", done.stdout)
      self.assertEqual(sorted(log.read_text().split()),
                       ["a0", "a0", "b1", "b1"])


class LossTest(unittest.TestCase):

  def kill_one(self, seed, **more):
    chance = random.Random(seed)
    job = start("run", "-n", "4", "--", EXAMPLE, "100000000",
                str(chance.choice([1000, 300000])), **more)
    ranks = {}

    def all_at_work():
      for child in children_of(job.pid):
        environ = pathlib.Path(f"/proc/{child}/environ").read_bytes()
        for variable in environ.split(b"\0"):
          if variable.startswith(b"COMMSCHED_RANK="):
            ranks[int(variable.split(b"=")[1])] = child
      return len(ranks) == 4

    wait_for(all_at_work)
    # At some point of the run.
    for _ in range(chance.randrange(1, 40)):
      job.stdout.readline()
    victim = chance.randrange(4)
    begin = time.monotonic()
    os.kill(ranks[victim], signal.SIGKILL)
    _, err = job.communicate(timeout=LIMIT_S)
    took = time.monotonic() - begin
    self.assertEqual(job.returncode, 128 + signal.SIGKILL, err)
    self.assertLess(took, 15)
    for rank in range(4):
      if rank == victim:
        continue
      named = [line for line in err.splitlines()
               if line.startswith(f"[{rank}]")]
      self.assertTrue(named, f"seed {seed}: rank {rank} said nothing: {err}")
      self.assertIn(f"rank {victim} is lost", named[0], f"seed {seed}")
    for pid in ranks.values():
      self.assertFalse(pathlib.Path(f"/proc/{pid}").exists())

  def test_every_survivor_names_who_was_killed(self):
    for seed in range(4):
      self.kill_one(seed)

  def test_every_survivor_names_who_was_killed_over_tcp(self):
    for seed in range(4):
      self.kill_one(seed, COMMSCHED_UCX_LOCAL="net")

  def test_a_stopped_rank_is_lost_to_all(self):
    job = start("run", "-n", "3", "--silence", "0.5", "--grace", "0.1", "--",
                EXAMPLE, "100000000", "1000")
    for _ in range(10):
      job.stdout.readline()
    os.kill(children_of(job.pid)[1], signal.SIGSTOP)
    _, err = job.communicate(timeout=LIMIT_S)
    self.assertNotEqual(job.returncode, 0)
    self.assertGreaterEqual(len(re.findall(
        r"rank \d is lost: it has been silent", err)), 2, err)


class OtherLaunchersTest(unittest.TestCase):

  def ranks(self, count, variables_of, **more):
    ranks = [subprocess.Popen([EXAMPLE], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True,
                              env=environment(**variables_of(rank), **more))
             for rank in range(count)]
    outputs = [rank.communicate(timeout=LIMIT_S) for rank in ranks]
    self.assertEqual([rank.returncode for rank in ranks], [0] * count, outputs)
    self.assertEqual([out for out, _ in outputs],
                     [f"rank {r} of 4: {SUMS}\n" for r in range(count)])

  def test_ranks_of_torchrun_find_each_other(self):
    self.ranks(4, lambda rank: {
        "RANK": str(rank), "WORLD_SIZE": "4", "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29533", "TORCHELASTIC_RUN_ID": f"test-{os.getpid()}"})

  def test_ranks_of_mpirun_find_each_other(self):
    self.ranks(4, lambda rank: {
        "OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "4",
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
        "PMIX_NAMESPACE": f"test-{os.getpid()}"})

  def test_ranks_of_srun_meet_at_a_rendezvous(self):
    server = start("rendezvous", "-n", "4", COMMSCHED_TOKEN="secret")
    name, control = server.stdout.readline().strip().split("=")
    self.assertEqual(name, "COMMSCHED_CONTROL")
    self.ranks(4, lambda rank: {
        "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_LOCALID": "0", "SLURM_NODEID": str(rank)},
        COMMSCHED_CONTROL=control, COMMSCHED_TOKEN="secret")
    server.communicate(timeout=LIMIT_S)
    self.assertEqual(server.returncode, 0)

  def test_another_token_is_refused(self):
    server = start("rendezvous", "-n", "1", COMMSCHED_TOKEN="secret")
    control = server.stdout.readline().strip().split("=")[1]
    rank = subprocess.run(
        [EXAMPLE], capture_output=True, text=True, timeout=LIMIT_S,
        env=environment(COMMSCHED_RANK="0", COMMSCHED_WORLD_SIZE="1",
                        COMMSCHED_CONTROL=control, COMMSCHED_TOKEN="guess"))
    self.assertEqual(rank.returncode, 1)
    self.assertIn("join: UNAUTHENTICATED", rank.stderr)
    server.terminate()
    server.communicate(timeout=LIMIT_S)
    self.assertEqual(server.returncode, 128 + signal.SIGTERM)

  def test_a_rendezvous_makes_its_token(self):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder) / "token"
      server = start("rendezvous", "-n", "1", "--token-file", str(path))
      control = server.stdout.readline().strip().split("=")[1]
      self.assertEqual(path.stat().st_mode & 0o777, 0o600)
      rank = subprocess.run(
          [EXAMPLE], capture_output=True, text=True, timeout=LIMIT_S,
          env=environment(COMMSCHED_RANK="0", COMMSCHED_WORLD_SIZE="1",
                          COMMSCHED_CONTROL=control,
                          COMMSCHED_TOKEN_FILE=str(path)))
      self.assertEqual(rank.returncode, 0, rank.stderr)
      server.communicate(timeout=LIMIT_S)
      self.assertEqual(server.returncode, 0)


class JoinTest(unittest.TestCase):

  def torch(self, rank, port, **more):
    return {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost",
            "MASTER_PORT": str(port), "XDG_RUNTIME_DIR": self.folder.name,
            **more}

  def setUp(self):
    self.folder = tempfile.TemporaryDirectory()
    self.addCleanup(self.folder.cleanup)

  def begin(self, *command, **variables):
    return subprocess.Popen(command, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True,
                            env=environment(**variables))

  def left(self):
    return [path for path in pathlib.Path(self.folder.name).rglob("*")
            if not path.is_dir()]

  def test_jobs_side_by_side_whose_ranks_have_parents_of_their_own(self):
    # Nobody listens at these ports: they only tell the jobs apart.
    ranks = [self.begin("timeout", str(LIMIT_S), EXAMPLE,
                        **self.torch(rank, port))
             for rank in range(2) for port in (29500, 29501)]
    for rank in ranks:
      out, err = rank.communicate(timeout=LIMIT_S)
      self.assertEqual(rank.returncode, 0, err)
      self.assertIn("of 2: 3 6 9", out)
    self.assertEqual(self.left(), [])

  def test_the_end_of_rank_0_names_it_and_its_file_does_not_matter(self):
    ranks = [self.begin(EXAMPLE, "100000000", "1000",
                        **self.torch(rank, 29500)) for rank in range(2)]
    ranks[0].stdout.readline()
    ranks[0].kill()
    ranks[0].communicate(timeout=LIMIT_S)
    _, err = ranks[1].communicate(timeout=LIMIT_S)
    self.assertIn("ABORTED", err)
    self.assertIn("rank 0, which serves the job, is lost", err)
    self.assertEqual(len(self.left()), 1)
    ranks = [self.begin(EXAMPLE, **self.torch(rank, 29500))
             for rank in range(2)]
    for rank in ranks:
      _, err = rank.communicate(timeout=LIMIT_S)
      self.assertEqual(rank.returncode, 0, err)
    self.assertEqual(self.left(), [])

  def test_a_rank_that_ends_before_it_joins_is_named_at_once(self):
    for how, code in (("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL)):
      begin = time.monotonic()
      done = run("run", "-n", "3", "--grace", "30", "--", "sh", "-c",
                 f'if [ "$COMMSCHED_RANK" = 1 ]; then {how}; fi; exec "$0"',
                 EXAMPLE)
      self.assertEqual(done.returncode, code)
      for rank in (0, 2):
        self.assertRegex(done.stderr,
                         rf"\[{rank}\] .*rank 1 is lost: process \d+ .* before "
                         "it joined")
      self.assertLess(time.monotonic() - begin, 15)

  def test_who_does_not_join_in_time_is_named(self):
    server = start("rendezvous", "-n", "3")
    control = server.stdout.readline().strip().split("=")[1]
    rank = subprocess.run(
        [EXAMPLE], capture_output=True, text=True, timeout=LIMIT_S,
        env=environment(COMMSCHED_RANK="1", COMMSCHED_WORLD_SIZE="3",
                        COMMSCHED_CONTROL=control,
                        COMMSCHED_JOIN_TIMEOUT_S="1"))
    why = "ranks 0, 2 of 3 have not joined within 1 s"
    self.assertIn(why, rank.stderr)
    _, err = server.communicate(timeout=LIMIT_S)
    self.assertEqual(err.splitlines()[0], f"commsched rendezvous: {why}")
    self.assertEqual(server.returncode, 1)

  def test_a_rank_that_goes_on_learns_what_it_was_to_the_others(self):
    server = start("rendezvous", "-n", "2", "--silence", "0.5")
    control = server.stdout.readline().strip().split("=")[1]
    ranks = [self.begin(EXAMPLE, "100000000", "1000", COMMSCHED_RANK=str(rank),
                        COMMSCHED_WORLD_SIZE="2", COMMSCHED_CONTROL=control)
             for rank in range(2)]
    ranks[1].stdout.readline()
    os.kill(ranks[1].pid, signal.SIGSTOP)
    _, err = ranks[0].communicate(timeout=LIMIT_S)
    self.assertIn("rank 1 is lost: it has been silent", err)
    os.kill(ranks[1].pid, signal.SIGCONT)
    _, err = ranks[1].communicate(timeout=LIMIT_S)
    self.assertIn("rank 1 is lost: it has been silent", err)
    self.assertNotIn("control server", err)
    server.communicate(timeout=LIMIT_S)
    self.assertEqual(server.returncode, 1)

  def test_an_address_that_others_reach_needs_a_token(self):
    rank = subprocess.run(
        [EXAMPLE], capture_output=True, text=True, timeout=LIMIT_S,
        env=environment(**self.torch(1, 29500, LOCAL_WORLD_SIZE="1",
                                     LOCAL_RANK="0", MASTER_ADDR="192.0.2.1")))
    self.assertIn("MASTER_ADDR is 192.0.2.1", rank.stderr)
    self.assertIn("COMMSCHED_TOKEN", rank.stderr)


# Two network namespaces with a link between them, as two containers are.
class NamespaceTest(unittest.TestCase):

  def ip(self, *arguments, check=True):
    return subprocess.run(["ip", *arguments], check=check, text=True,
                          capture_output=True)

  def setUp(self):
    names = [f"commsched-{os.getpid()}-{i}" for i in range(2)]
    if os.geteuid() != 0 or shutil.which("ip") is None:
      self.skipTest("network namespaces need root, and iproute2")
    for name in names:
      self.addCleanup(self.ip, "netns", "del", name, check=False)
      if self.ip("netns", "add", name, check=False).returncode != 0:
        self.skipTest("this kernel or container makes no network namespaces")
    self.ip("-n", names[0], "link", "add", "eth0", "type", "veth", "peer",
            "name", "eth0", "netns", names[1])
    for i, name in enumerate(names):
      self.ip("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0")
      for device in ("lo", "eth0"):
        self.ip("-n", name, "link", "set", device, "up")
    for name in names:
      wait_for(lambda name=name: "state UP" in self.ip(
          "-n", name, "link", "show", "eth0").stdout)
    self.names = names

  def test_ranks_in_several_send_over_the_network(self):
    done = subprocess.run(
        ["ip", "netns", "exec", self.names[0], COMMSCHED, "run", "-n", "2",
         "--hosts", ",".join(self.names), "--address", "10.77.0.1", "--agent",
         "ip netns exec {host}", "--prefix", "off", "--", COMMSCHED, "bench",
         "coll", "--json", "-b", "4096", "-e", "4096", "-n", "5", "-w", "2",
         "--collectives", "all_reduce,all_to_all"],
        capture_output=True, text=True, timeout=LIMIT_S, env=environment())
    self.assertEqual(done.returncode, 0, done.stderr)
    for line in done.stdout.splitlines():
      row = json.loads(line)
      self.assertEqual(row["wrong"], 0, row)
      # Shared memory without a wake-up: 60 to 90 ms; a busy machine: 1 ms.
      self.assertLess(row["time_us"], 20_000, row)


class OpeningTest(unittest.TestCase):
  """A rank that cannot open its backend is what every rank names, at once."""

  def expect_all_say(self, done, ranks, text):
    self.assertNotEqual(done.returncode, 0)
    for rank in range(ranks):
      self.assertRegex(done.stderr, rf"(?m)^\[{rank}\] session: .*{text}")

  def test_transports_that_one_rank_does_not_have(self):
    done = run("run", "-n", "3", "--", "sh", "-c",
               'if [ "$COMMSCHED_RANK" = 1 ]; then export UCX_TLS=bogus; fi; '
               f"exec {EXAMPLE}")
    self.expect_all_say(done, 3, "rank 1: ucp_init: .*, with UCX_TLS=bogus")

  def test_a_setting_that_is_none_is_named_by_all(self):
    done = run("run", "-n", "2", "--", EXAMPLE, COMMSCHED_UCX_LOCAL="disk")
    self.assertNotEqual(done.returncode, 0)
    for rank in range(2):
      self.assertRegex(done.stderr,
                       rf"(?m)^\[{rank}\] join: .*COMMSCHED_UCX_LOCAL is "
                       "'disk', not read, shm or net")


class SharedMemoryTest(unittest.TestCase):
  """Ranks of a host share memory that has no name."""

  def test_no_room_is_taken_where_names_are(self):
    alone = ["unshare", "-rm", "sh", "-c",
             'mount -t tmpfs -o size=4k tmpfs /dev/shm && "$@" && '
             '[ -z "$(ls /dev/shm)" ]', "sh"]
    if subprocess.run([*alone, "true"], capture_output=True,
                      check=False).returncode != 0:
      self.skipTest("may not mount another /dev/shm")
    done = subprocess.run([*alone, COMMSCHED, "run", "-n", "4", "--", EXAMPLE],
                          capture_output=True, text=True, timeout=LIMIT_S,
                          env=environment(), check=False)
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn("[0] rank 0 of 4: ", done.stdout)

  def test_what_cannot_be_reserved_is_named_by_all(self):
    done = run("run", "-n", "2", "--", "sh", "-c",
               f'[ "$COMMSCHED_RANK" = 0 ] || ulimit -f 100; exec {EXAMPLE}')
    self.assertNotEqual(done.returncode, 0)
    for rank in range(2):
      self.assertRegex(
          done.stderr, rf"(?m)^\[{rank}\] session: .*rank 1: cannot reserve a "
                       r"segment of \d+ bytes, which ranks of a host share: ")

  def test_ranks_that_may_not_read_each_other_share_all_the_same(self):
    done = run("run", "-n", "3", "--", *NO_READS, EXAMPLE, "5", "300000")
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn("[0] rank 0 of 3: 6 12 18", done.stdout)
    self.assertEqual(self.mapped(*NO_READS, EXAMPLE), [3, 3, 3])

  def mapped(self, *command, **more):
    """Of ranks 0, 1, 2 at work."""
    job = start("run", "-n", "3", "--", *command, "100000000", "1000", **more)
    for _ in range(9):
      self.assertNotEqual(job.stdout.readline(), "")
    counts = [segments_of(rank) for rank in children_of(job.pid)]
    job.send_signal(signal.SIGTERM)
    job.communicate(timeout=LIMIT_S)
    return counts

  def test_each_rank_maps_the_segments_of_all(self):
    self.assertEqual(self.mapped(EXAMPLE), [3, 3, 3])
    for local, count in (("shm", 3), ("net", 0)):
      self.assertEqual(self.mapped(EXAMPLE, COMMSCHED_UCX_LOCAL=local),
                       [count] * 3)

  def test_a_rank_that_may_have_no_segment_talks_by_ucx(self):
    self.assertEqual(self.mapped(
        "sh", "-c", '[ "$COMMSCHED_RANK" = 1 ] || shift 4; exec "$@"', "sh",
        *NO_MEMORY, EXAMPLE), [2, 0, 2])
    done = run("run", "-n", "3", "--", *NO_MEMORY, EXAMPLE, "5", "300000")
    self.assertEqual(done.returncode, 0, done.stderr)
    self.assertIn("[0] rank 0 of 3: 6 12 18", done.stdout)


class SignalsTest(unittest.TestCase):
  """Signals are the program's, whatever UCX would do with them."""

  def caught(self, **more):
    """What a rank at work handles. A hang-up ends it, if it is none of that."""
    job = start("run", "-n", "1", "--", EXAMPLE, "100000000", "1000", **more)
    job.stdout.readline()
    rank = children_of(job.pid)[0]
    status = pathlib.Path(f"/proc/{rank}/status").read_text()
    mask = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16)
    caught = {one for one in signal.Signals if mask >> (one - 1) & 1}
    hangs_up = signal.SIGHUP not in caught
    os.kill(rank, signal.SIGHUP if hangs_up else signal.SIGKILL)
    job.communicate(timeout=LIMIT_S)
    self.assertEqual(job.returncode,
                     128 + (signal.SIGHUP if hangs_up else signal.SIGKILL))
    return caught

  def test_a_rank_has_the_signals_that_its_program_has(self):
    self.assertEqual(self.caught() & {
        signal.SIGHUP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE,
        signal.SIGILL}, set())

  def test_ucx_handles_signals_where_that_is_asked_for(self):
    self.assertIn(signal.SIGSEGV, self.caught(UCX_HANDLE_ERRORS="bt"))


class BenchTest(unittest.TestCase):

  def test_collectives_are_timed_and_right(self):
    for more in ({}, {"COMMSCHED_UCX_LOCAL": "net"}):
      done = run("run", "-n", "3", "--prefix", "off", "--", COMMSCHED, "bench",
                 "coll", "--json", "-b", "12", "-e", "1200000", "-f", "100",
                 "-n", "2", "-w", "1", "--collectives",
                 "all_reduce,all_gather,reduce_scatter,all_to_all,broadcast,"
                 "reduce", **more)
      self.assertEqual(done.returncode, 0, done.stderr)
      rows = [json.loads(line) for line in done.stdout.splitlines()]
      self.assertEqual(len(rows), 6 * 3)
      for row in rows:
        self.assertEqual(row["wrong"], 0, row)
        self.assertEqual(row["ranks"], 3)
        self.assertGreater(row["time_us"], 0)
        self.assertIn(row["algorithm"], ("exchange", "levels", "tree"))
        self.assertGreater(row["predicted_us"], 0)

  def test_large_collectives_on_slow_links_are_right(self):
    with tempfile.TemporaryDirectory() as folder:
      links = pathlib.Path(folder, "links.json")
      links.write_text(json.dumps({"format": "commsched-links/1",
                                   "network": {"bytes_per_s": 1.25e8}}))
      done = run("run", "-n", "3", "--prefix", "off", "--", COMMSCHED, "bench",
                 "coll", "--json", "-b", "6MiB", "-e", "6MiB", "-n", "3", "-w",
                 "1", "--config", "ranks_per_host=1", "--collectives",
                 "all_reduce,broadcast", COMMSCHED_LINK_PROFILE=str(links))
    self.assertEqual(done.returncode, 0, done.stderr)
    for row in map(json.loads, done.stdout.splitlines()):
      self.assertEqual(row["wrong"], 0, row)

  def profile(self, ranks, host):
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, "links.json")
      done = run("run", "-n", str(ranks), "--prefix", "off", "--", "bash", "-c",
                 f'export COMMSCHED_HOST_ID={host}; exec "$0" bench coll '
                 '--profile "$1" --json -n 1 -w 1', COMMSCHED, str(path))
      self.assertEqual(done.returncode, 0, done.stderr)
      rows = [json.loads(line) for line in done.stdout.splitlines()]
      return rows[:-2], rows[-2:], json.loads(path.read_text())

  def test_a_profile_has_what_was_measured_on_both_levels(self):
    rows, levels, profile = self.profile(4, "$((COMMSCHED_RANK / 2))")
    self.assertEqual({(row["level"], *row["ranks"]) for row in rows},
                     {("host", 0, 1), ("host", 2, 3), ("network", 0, 2)})
    for level in levels:
      self.assertTrue(level["measured"], level)
      self.assertGreater(level["bytes_per_s"], 0)
      self.assertEqual(profile[level["level"]]["latency_ns"],
                       level["latency_ns"])

  def test_on_one_host_the_network_keeps_its_default_and_that_is_said(self):
    rows, levels, profile = self.profile(2, "h")
    self.assertEqual({row["level"] for row in rows}, {"host"})
    self.assertEqual([level["measured"] for level in levels], [True, False])
    self.assertEqual(profile["network"], {
        "latency_ns": 50000, "bytes_per_s": 1.25e9, "message_ns": 5000})
    self.assertIn("network: default", profile["note"])

  def test_another_profile_flips_the_algorithm(self):
    chosen = []
    with tempfile.TemporaryDirectory() as folder:
      path = pathlib.Path(folder, "links.json")
      # One hop with everything, or two with little.
      for latency_ns, bytes_per_s in ((10_000_000, 1e10), (1_000, 1e6)):
        path.write_text(json.dumps({
            "format": "commsched-links/1",
            "network": {"latency_ns": latency_ns, "bytes_per_s": bytes_per_s,
                        "message_ns": 1_000}}))
        done = run("run", "-n", "4", "--prefix", "off", "--", "bash", "-c",
                   'export COMMSCHED_HOST_ID=$COMMSCHED_RANK; exec "$0" bench '
                   'coll --json --collectives all_reduce -b 32KiB -e 32KiB '
                   '-n 1 -w 1', COMMSCHED, COMMSCHED_LINK_PROFILE=str(path))
        self.assertEqual(done.returncode, 0, done.stderr)
        chosen.append(json.loads(done.stdout)["algorithm"])
    self.assertEqual(chosen, ["exchange", "levels"])

  def test_a_configuration_that_the_backend_does_not_know_is_named(self):
    for config, text in (("speed=11", "'speed=11' is not tls="),
                         ("chunk_bytes=7", "chunk_bytes is '7', not an integer "
                                           "in 1024..1073741824"),
                         ("algorithm=ring", "algorithm is 'ring', not one of "
                                            "auto, exchange, levels, bruck, tree"),
                         ("read_bytes=47", "read_bytes is '47', not an integer "
                                           "in 1024..1099511627776"),
                         ("spin_us=-1", "spin_us is '-1'"),
                         ("spin_us=0x10", "spin_us is '0x10'"),
                         ("tls=tcp;spin_us=1;tls=tcp",
                          "configuration: tls is given twice")):
      done = run("bench", "coll", "--config", config)
      self.assertEqual(done.returncode, 1)
      self.assertIn(text, done.stderr)

  def test_what_a_forced_algorithm_does_not_do_is_named(self):
    done = run("run", "-n", "2", "--", COMMSCHED, "bench", "coll", "--config",
               "algorithm=tree", "-b", "1MiB", "-e", "1MiB", "-n", "1",
               "--collectives", "all_reduce")
    self.assertNotEqual(done.returncode, 0)
    self.assertRegex(done.stderr, "all-reduce of 1048576 bytes on 2 ranks: "
                                  "algorithm=tree does all but .* 256 KiB")

  def test_ranks_with_other_options_of_collectives_are_refused(self):
    done = run("run", "-n", "2", "--", "sh", "-c",
               f"exec {COMMSCHED} bench coll -b 4KiB -e 4KiB -n 1 --config "
               "algorithm=tree,auto\\;chunk_bytes=$((4096 + COMMSCHED_RANK))")
    self.assertNotEqual(done.returncode, 0)
    self.assertRegex(done.stderr, "gave algorithms [0-9]+, algorithm=tree,auto,"
                                  " chunk_bytes=409[67], ")

  def test_the_table_has_the_columns_of_nccl_tests(self):
    done = run("bench", "coll", "-b", "4KiB", "-e", "4KiB", "-n", "1")
    self.assertEqual(done.returncode, 0, done.stderr)
    for column in ("size(B)", "time(us)", "algbw", "busbw", "#wrong",
                   "predicted(us)", "algorithm"):
      self.assertIn(column, done.stdout)


class CommandLineTest(unittest.TestCase):

  def test_wrong_usage_is_2(self):
    for arguments in ((), ("walk",), ("run", "--", "true"),
                      ("run", "-n", "0", "--", "true"), ("run", "-n", "2"),
                      ("run", "-n", "1", "--prefix", "some", "--", "true"),
                      ("rendezvous",), ("flight",)):
      done = run(*arguments)
      self.assertEqual(done.returncode, 2, arguments)
      self.assertNotEqual(done.stderr, "", arguments)

  def test_help_has_an_example(self):
    for command in ("run", "rendezvous", "flight", "info", "completion"):
      done = run(command, "--help")
      self.assertEqual(done.returncode, 0)
      self.assertIn("Example: ", done.stdout)

  def test_info_counts_devices_or_says_why_there_are_none(self):
    devices = json.loads(run("info", "--json").stdout)["devices"]
    self.assertEqual(devices["cuda"] == 0, devices["reason"] != "", devices)
    info = json.loads(
        run("info", "--json", COMMSCHED_CUDART_LIB="/nowhere/lib.so").stdout)
    self.assertEqual(info["devices"]["cuda"], 0)
    self.assertRegex(info["devices"]["reason"], "/nowhere/lib.so|no CUDA")

  def test_info_lists_backends(self):
    self.assertIn("ucx", run("info").stdout)
    info = json.loads(run("info", "--json").stdout)
    names = json.dumps(info)
    for name in ("inproc", "null", "ucx", "COMMSCHED_CONTROL"):
      self.assertIn(name, names)
    self.assertNotIn("COMMSCHED_TOKEN\"", names)

  def test_a_file_that_is_no_flight_record_is_named(self):
    done = run("flight", EXAMPLE)
    self.assertEqual(done.returncode, 1)
    self.assertEqual(done.stdout, "")
    self.assertIn(f"'{EXAMPLE}' is not a flight record", done.stderr)
    done = run("flight", "--json", "/nowhere/rank0.flight")
    self.assertEqual(done.returncode, 1)
    self.assertIn("/nowhere/rank0.flight", done.stderr)

  def test_completion_is_a_script(self):
    done = run("completion")
    checked = subprocess.run(["bash", "-n"], input=done.stdout, text=True,
                             check=False)
    self.assertEqual(checked.returncode, 0)

  def test_completion_knows_each_option_of_each_command(self):
    script = run("completion").stdout

    def completed(*words):
      quoted = " ".join(shlex.quote(word) for word in ("commsched", *words))
      done = subprocess.run(
          ["bash", "-c", f"{script}\nCOMP_WORDS=({quoted}); "
           f"COMP_CWORD={len(words)}; _commsched; "
           "printf '%s\\n' \"${COMPREPLY[@]}\""],
          stdout=subprocess.PIPE, text=True, check=True)
      return set(done.stdout.split())

    commands = {"run", "rendezvous", "bench", "flight", "info", "completion"}
    self.assertEqual(completed(""), commands | {"--help", "--version"})
    self.assertEqual(completed("r"), {"run", "rendezvous"})
    self.assertEqual(completed("bench", "c"), {"coll"})
    for path in [[command] for command in sorted(commands)] + [["bench", "coll"]]:
      with self.subTest(path):
        told = set(re.findall(r"^ +(?:-\w,)?(--[\w-]+)",
                              run(*path, "--help").stdout, re.MULTILINE))
        self.assertGreater(len(told), 0)
        self.assertEqual(completed(*path, "--"), told)
    # Files, which bash finds, and what belongs to the program of a rank.
    self.assertEqual(completed("flight", "a"), set())
    self.assertEqual(completed("run", "-n", "2", "--", "program", "--"), set())

  def test_without_a_token_only_loopback_is_served(self):
    done = run("rendezvous", "-n", "1", "--address", "0.0.0.0")
    self.assertEqual(done.returncode, 1)
    self.assertIn("0.0.0.0 is not loopback, and there is no token",
                  done.stderr)


if __name__ == "__main__":
  COMMSCHED, EXAMPLE = sys.argv[1:3]
  unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
