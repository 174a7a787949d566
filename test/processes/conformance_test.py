#!/usr/bin/env python3
"""The conformance suite with ranks that are processes.

conformance_test.py COMMSCHED TEST_CONFORMANCE [RANKS [CONFIG]]

Each test has processes of its own, since some end with a broken network. All
ranks run the same test in step, on the same random values.
"""

import os
import subprocess
import sys

LIMIT_S = 60


def job(commsched, ranks, command, config):
  environment = {**os.environ, "COMMSCHED_TEST_CONFIG": config}
  return subprocess.run([commsched, "run", "-n", str(ranks), "--", *command],
                        capture_output=True, text=True, timeout=LIMIT_S,
                        env=environment, check=False)


def names(commsched, program, ranks, config):
  """Of all tests that this job has."""
  done = job(commsched, ranks, [program, "--gtest_list_tests"], config)
  if done.returncode != 0:
    raise SystemExit(done.stderr)
  found = []
  for line in done.stdout.splitlines():
    rank, _, text = line.partition(" ")
    if rank != "[0]":
      continue
    if not text.startswith(" "):
      suite = text
    elif suite.startswith("All/"):
      found.append(suite + text.split()[0])
  return found


def main():
  commsched, program = sys.argv[1:3]
  ranks = int(sys.argv[3]) if len(sys.argv) > 3 else 3
  config = sys.argv[4] if len(sys.argv) > 4 else ""
  tests = names(commsched, program, ranks, config)
  failed = []
  for test in tests:
    try:
      done = job(commsched, ranks, [program, f"--gtest_filter={test}"], config)
    except subprocess.TimeoutExpired as hang:
      failed.append(test)
      print(f"{test}: no end after {LIMIT_S} s\n{hang.stdout}", flush=True)
      continue
    passed = sum("[  PASSED  ] 1 test" in line
                 for line in done.stdout.splitlines())
    if done.returncode == 0 and passed == ranks:
      continue
    failed.append(test)
    print(f"{test}: exit code {done.returncode}, {passed} of {ranks} ranks "
          f"passed\n{done.stdout}{done.stderr}", flush=True)
  print(f"{len(tests)} tests on {ranks} processes, {len(failed)} failed")
  return 0 if tests and not failed else 1


if __name__ == "__main__":
  sys.exit(main())
