#!/usr/bin/env python3
"""Training on layouts of hosts ends with the bits of ranks that are threads.

trained_layouts_test.py COMMSCHED COMMSCHED_TRAIN [CONFIGURATIONS [SEED]]

Each of the configurations is drawn: stage, dtypes, buckets, merging, optimizer
and the like. Each is trained by threads, and then by processes on LAYOUTS of
hosts, which also differ in how ranks of a host reach each other and in what
links are said to cost, on which algorithms depend. A failing configuration is
repeated by its seed, with CONFIGURATIONS 1.
"""

import json
import pathlib
import random
import subprocess
import sys
import tempfile

from launcher_test import environment
from layouts import on_hosts

LIMIT_S = 120
RANKS = 4
LAYOUTS = {
    "1x4": [0, 0, 0, 0],
    "2x2": [0, 0, 1, 1],
    "3+1": [0, 0, 0, 1],
    "1+2+1": [0, 1, 1, 2],
    "2x2 round robin": [0, 1, 0, 1],
    "4x1": [0, 1, 2, 3],
}
# Of both levels; by far links few hops are best, by slow ones few bytes, where
# messages cost much few of them.
LINKS = {
    "far": {"latency_ns": 10_000_000, "bytes_per_s": 1e10, "message_ns": 100},
    "slow": {"latency_ns": 1_000, "bytes_per_s": 1e6, "message_ns": 100},
    "busy": {"latency_ns": 1_000, "bytes_per_s": 1e10, "message_ns": 1_000_000},
}
FIXED = ("--data", "kjv", "--steps", "2", "--deterministic", "--batch", "8",
         "--seq", "32", "--val-batches", "1", "--json", "--layers", "2")


def draw_configuration(chance):
  """Options of the trainer; what is "" is left out."""
  drawn = {
      "--zero": chance.choice("0123"),
      "--dtype": chance.choice(["", "", "bf16", "fp16"]),
      "--bucket-bytes": chance.choice(["", "8KiB", "100000", "1MiB"]),
      "--edge-bytes": chance.choice(["", "4KiB"]),
      "--coalesce-bytes": chance.choice(["", "0", "64KiB", "1MiB"]),
      "--partition-bytes": chance.choice(["", "", "30000"]),
      "--priority": chance.choice(["", "on", "off"]),
      "--cap-launches": chance.choice(["", "1", "3"]),
      "--optimizer": chance.choice(["", "", "sgd"]),
      "--clip": chance.choice(["", "0"]),
      "--micro-batches": chance.choice(["", "", "2"]),
      "--schedule": chance.choice(["", "", "serial"]),
      "--sp": chance.choice(["", "", "2"]),
      "--seed": str(chance.randrange(1, 1000)),
  }
  if drawn["--dtype"] == "":
    drawn["--reduce-dtype"] = chance.choice(["", "bf16"])
  if drawn["--zero"] == "3":
    drawn["--persist-below"] = chance.choice(["", "4KiB"])
  words = [word for option, value in drawn.items() if value
           for word in (option, value)]
  return words + chance.choice([[], [], ["--recompute"]])


def weights_of(command, **more):
  try:
    done = subprocess.run(command, capture_output=True, text=True,
                          timeout=LIMIT_S, env=environment(**more), check=False)
  except subprocess.TimeoutExpired as hang:
    return f"no end after {LIMIT_S} s: {hang.stderr}"
  lines = [line for line in done.stdout.splitlines()
           if "weights_sha256" in line]
  if done.returncode != 0 or not lines:
    return f"exit code {done.returncode}: {done.stderr}"
  return json.loads(lines[-1][lines[-1].index("{"):])["weights_sha256"]


class Trial:
  """A configuration, and where it is trained."""

  def __init__(self, seed, num_layouts):
    chance = random.Random(seed)
    self.options = draw_configuration(chance)
    names = list(LAYOUTS)
    # In turns, so that few configurations have all of them.
    first = seed * num_layouts
    self.ways = [(names[(first + i) % len(names)],
                  chance.choice(["read", "shm", "net"]),
                  chance.choice(["", *LINKS])) for i in range(num_layouts)]

  def failures(self, commsched, trainer, folder):
    command = [trainer, *FIXED, *self.options]
    expected = weights_of([*command, "--ranks", str(RANKS)])
    if len(expected) != 64:
      return [f"by threads: {expected}"]
    failed = []
    for layout, local, links in self.ways:
      more = {"COMMSCHED_UCX_LOCAL": local}
      if links:
        more["COMMSCHED_LINK_PROFILE"] = str(folder / links)
      got = weights_of([commsched, "run", "-n", str(RANKS), "--", *on_hosts(
          LAYOUTS[layout], [*command, "--backend", "ucx"])], **more)
      if got != expected:
        failed.append(f"{layout}, local={local}, links "
                      f"{links or 'by default'}: {got}, not {expected}")
    return failed


def main():
  commsched, trainer = sys.argv[1:3]
  count = int(sys.argv[3]) if len(sys.argv) > 3 else 8
  first = int(sys.argv[4]) if len(sys.argv) > 4 else 20261126
  num_layouts = 3
  num_failed = 0
  with tempfile.TemporaryDirectory() as folder:
    for name, level in LINKS.items():
      pathlib.Path(folder, name).write_text(json.dumps({
          "format": "commsched-links/1", "host": level, "network": level}))
    for seed in range(first, first + count):
      trial = Trial(seed, num_layouts)
      failed = trial.failures(commsched, trainer, pathlib.Path(folder))
      num_failed += bool(failed)
      for failure in failed:
        print(f"seed {seed}, {' '.join(trial.options)}: {failure}", flush=True)
  print(f"{count} configurations from seed {first}, each by threads and on "
        f"{num_layouts} layouts: {num_failed} failed")
  return 0 if count > 0 and num_failed == 0 else 1


if __name__ == "__main__":
  sys.exit(main())
