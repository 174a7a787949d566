#!/usr/bin/env python3
"""Many ranks on one host make sessions, one after the other.

many_ranks_test.py COMMSCHED

More messages are then under way than one rank's queues hold. The ranks are 32,
or COMMSCHED_TEST_RANKS.
"""

import json
import os
import subprocess
import sys

LIMIT_S = 240
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
SIZES = 5  # Each of them a session per kind.


def main():
  commsched = sys.argv[1]
  ranks = int(os.environ.get("COMMSCHED_TEST_RANKS", "32"))
  least = 4 * ranks
  done = subprocess.run(
      [commsched, "run", "-n", str(ranks), "--prefix", "off", "--", commsched,
       "bench", "coll", "--json", "-b", str(least), "-e",
       str(least * 4 ** (SIZES - 1)), "-f", "4", "-n", "1", "-w", "0",
       "--collectives", ",".join(KINDS)],
      capture_output=True, text=True, timeout=LIMIT_S, check=False)
  if done.returncode != 0:
    print(f"exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return 1
  rows = [json.loads(line) for line in done.stdout.splitlines()]
  wrong = [row for row in rows if row["wrong"] != 0 or row["ranks"] != ranks]
  print(f"{ranks} ranks, {len(rows)} sessions, {len(wrong)} wrong")
  return 0 if len(rows) == len(KINDS) * SIZES and not wrong else 1


if __name__ == "__main__":
  sys.exit(main())
