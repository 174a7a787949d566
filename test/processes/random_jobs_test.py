#!/usr/bin/env python3
"""Random jobs of 2 to 8 ranks, on layouts of hosts that are drawn, started in
every way that is documented.

random_jobs_test.py COMMSCHED RANDOM_JOB [JOBS [SEED]]

RUNS of the jobs share processes that have joined once; two such joins at a
time, as people start them from one shell. Every rank compares its memory with
what it should be (random_job.cc). A failing join is repeated by its seed, with
JOBS 1.
"""

import concurrent.futures
import os
import random
import shutil
import signal
import subprocess
import sys
import time

from layouts import on_hosts

LIMIT_S = 60
RUNS = 2  # Of each join.
CLEARED = ("COMMSCHED_", "OMPI_", "PMI_", "PMIX_", "SLURM_", "TORCHELASTIC_",
           "MASTER_")


def environment(**more):
  clean = {name: value for name, value in os.environ.items()
           if not name.startswith(CLEARED) or name == "COMMSCHED_PLUGIN_PATH"}
  return {**clean, **more}


def draw_hosts(chance, size):
  """The host of each rank."""
  most = chance.randint(1, size)  # Of a host.
  return chance.choice([
      [0] * size,
      [rank // most for rank in range(size)],
      [0 if rank < most else 1 + (rank - most) // 2 for rank in range(size)],
      [rank % most for rank in range(size)],
      [chance.randrange(most) for _ in range(size)]])


class Job:
  """What is drawn of one join, and its outcome."""

  def __init__(self, commsched, program, seed):
    self.chance = random.Random(seed)
    self.commsched = commsched
    self.seed = seed
    self.size = self.chance.choice([2, 3, 4, 4, 5, 6, 7, 8])
    self.hosts = draw_hosts(self.chance, self.size)
    self.command = [program, str(seed * RUNS), str(RUNS)]
    self.more = self.chance.choice([{}, {"COMMSCHED_UCX_LOCAL": "shm"},
                                      {"COMMSCHED_UCX_LOCAL": "net"}])

  def launchers(self):
    found = [self.run, self.run_hosts, self.torch, self.mpirun_variables,
             self.mpich, self.srun]
    if shutil.which("mpirun"):
      found.append(self.mpirun)
    return found

  def start(self, command, **more):
    return subprocess.Popen(command, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            start_new_session=True,
                            env=environment(**self.more, **more))

  def ranks(self, variables_of):
    """Each by itself, in any order, some by a shell that stays their parent."""
    order = list(range(self.size))
    self.chance.shuffle(order)
    started = []
    for rank in order:
      command = self.command
      if self.chance.random() < 0.3:
        command = ["sh", "-c", '"$0" "$@"; exit $?', *command]
      host = f"h{self.hosts[rank]}"
      started.append(self.start(command, COMMSCHED_HOST_ID=host,
                                **variables_of(rank)))
    return started

  def run(self):
    return [self.start([self.commsched, "run", "-n", str(self.size), "--",
                        *on_hosts(self.hosts, self.command)])]

  def run_hosts(self):
    # The agent starts all here.
    return [self.start([self.commsched, "run", "-n", str(self.size), "--hosts",
                        "a,b", "--address", "127.0.0.1", "--agent", "env", "--",
                        "env", *(f"{name}={value}"
                                 for name, value in self.more.items()),
                        *on_hosts(self.hosts, self.command)])]

  def torch(self):
    # No run id: what tells such jobs apart is the port, which nobody listens on.
    port = str(20000 + self.seed % 10000)
    return self.ranks(lambda rank: {
        "RANK": str(rank), "WORLD_SIZE": str(self.size),
        "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(self.size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port})

  def mpirun_variables(self):
    return self.ranks(lambda rank: {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(self.size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(self.size),
        "PMIX_NAMESPACE": f"random-{os.getpid()}-{self.seed}"})

  def mpirun(self):
    command = ["mpirun", "--oversubscribe", "-n", str(self.size)]
    if os.geteuid() == 0:
      command.append("--allow-run-as-root")
    for name in (*self.more, "COMMSCHED_PLUGIN_PATH"):
      command += ["-x", name]
    return [self.start(command + on_hosts(self.hosts, self.command,
                                          "OMPI_COMM_WORLD_RANK"))]

  def at_a_rendezvous(self, variables_of):
    server = subprocess.Popen(
        [self.commsched, "rendezvous", "-n", str(self.size)], text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, env=environment(COMMSCHED_TOKEN="secret"))
    control = server.stdout.readline().strip().split("=")[1]
    return [server, *self.ranks(lambda rank: {
        **variables_of(rank), "COMMSCHED_CONTROL": control,
        "COMMSCHED_TOKEN": "secret"})]

  def mpich(self):
    return self.at_a_rendezvous(lambda rank: {
        "PMI_RANK": str(rank), "PMI_SIZE": str(self.size),
        "MPI_LOCALRANKID": str(rank), "MPI_LOCALNRANKS": str(self.size)})

  def srun(self):
    return self.at_a_rendezvous(lambda rank: {
        "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_TASKS": str(self.size),
        "SLURM_LOCALID": "0", "SLURM_NODEID": str(rank)})


def outcome(commsched, program, seed):
  """("right" | "wrong" | "hung", how it was started, what it has printed)

  Of a join.
  """
  job = Job(commsched, program, seed)
  launchers = job.launchers()
  launcher = launchers[seed % len(launchers)]
  started = launcher()
  deadline = time.monotonic() + LIMIT_S
  text = ""
  verdict = "right"
  for process in started:
    try:
      out, _ = process.communicate(
          timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
      verdict = "hung"
      os.killpg(process.pid, signal.SIGKILL)
      out, _ = process.communicate()
    text += out
  if verdict == "right" and (
      any(process.returncode != 0 for process in started)
      or text.count(f"{RUNS} runs are right") != job.size):
    verdict = "wrong"
  how = f"{launcher.__name__}, ranks on hosts {job.hosts}, {job.more}"
  return verdict, how, text


def main():
  commsched, program = sys.argv[1:3]
  jobs = int(sys.argv[3]) if len(sys.argv) > 3 else 40
  first = int(sys.argv[4]) if len(sys.argv) > 4 else 20261125
  count = (jobs + RUNS - 1) // RUNS  # Of joins.
  found = {"right": 0, "wrong": 0, "hung": 0}
  with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
    seeds = range(first, first + count)
    outcomes = pool.map(lambda seed: outcome(commsched, program, seed), seeds)
    for seed, (verdict, how, text) in zip(seeds, outcomes):
      found[verdict] += 1
      if verdict != "right":
        print(f"seed {seed}, {how}: {verdict}\n{text}", flush=True)
  print(f"{count * RUNS} random jobs over {count} joins from seed {first}: "
        f"{found['wrong']} joins wrong, {found['hung']} hung")
  return 0 if found["right"] == count > 0 else 1


if __name__ == "__main__":
  sys.exit(main())
