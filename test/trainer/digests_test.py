#!/usr/bin/env python3
"""The weights that the command lines of digests.toml arrive at, to the bit.

Usage: digests_test.py COMMSCHED_TRAIN PLAIN_MODEL [--write]

--write puts today's digests into digests.toml. Only a change that is meant to
alter the numbers of training is a reason to do so.

Products and sums of the model have other bits on other processors. PLAIN_MODEL
computes the model without ranks and without the engine, so that what the engine
does cannot change what it prints. Where it prints another digest than the file
has, the lines of each group are compared with each other alone, and the test
counts as skipped (exit code 77).
"""

import os
import pathlib
import re
import subprocess
import sys
import tomllib

import program

RECORD = pathlib.Path(__file__).with_name("digests.toml")
# AVX2, so that processors whose products could use more have the same bits.
VARIABLES = {"ONEDNN_MAX_CPU_ISA": "AVX2"}
# Sequences of a rank and micro-batch, in the lines of the record.
BATCHES = (12, 6, 4, 3, 2, 1)
SKIPPED = 77


def plain_model(path, common):
    """What computes here, and the digest of what it computes."""
    seq = common[common.index("--seq") + 1]
    done = subprocess.run([path, seq, *map(str, BATCHES)], check=True,
                          stdout=subprocess.PIPE, text=True,
                          env={**os.environ, **VARIABLES})
    return done.stdout.splitlines()


def weights(common, line):
    """The digest that a line leads to."""
    with program.temporary_folder() as folder:
        data = ["--data", program.text_file(folder)]
        for command in line.replace("FOLDER", folder).split(" ; "):
            result = program.run_json(*common, *data, *command.split(),
                                      variables=VARIABLES)
    return result["weights_sha256"]


def group_digests(record):
    """Digest -> lines, of each group."""
    common = record["common"].split()
    for group in record["group"]:
        found = {}
        for line in group["lines"]:
            found.setdefault(weights(common, line), []).append(line)
        yield group, found


def problem(group, found, same_arithmetic):
    """What is wrong with a group, or None."""
    if len(found) == 1 and (not same_arithmetic or group["sha256"] in found):
        return None
    lines = [f"{group['about']}: expected {group['sha256']}"
             if same_arithmetic else f"{group['about']}: not the same bits"]
    for digest, leading in found.items():
        lines += [f"  {digest}", *(f"    {line}" for line in leading)]
    return "\n".join(lines)


def write(arithmetic, digests):
    values = iter([arithmetic[1], *digests])
    text = re.sub(r'^sha256 = ".*"$', lambda _: f'sha256 = "{next(values)}"',
                  RECORD.read_text(encoding="utf-8"), flags=re.MULTILINE)
    text = re.sub(r'^of = ".*"$', f'of = "{arithmetic[0]}"', text,
                  flags=re.MULTILINE)
    RECORD.write_text(text, encoding="utf-8")


def main():
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--write"]):
        sys.exit(__doc__)
    os.environ["COMMSCHED_TRAIN"] = sys.argv[1]
    record = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    arithmetic = plain_model(sys.argv[2], record["common"].split())
    writes = len(sys.argv) == 4
    same = arithmetic[1] == record["arithmetic"]["sha256"]
    problems = []
    digests = []
    for group, found in group_digests(record):
        digests += found
        wrong = problem(group, found, same and not writes)
        print(wrong or f"{group['about']}: {len(group['lines'])} lines, {digests[-1]}",
              flush=True)
        problems += [wrong] if wrong else []
    if problems:
        sys.exit(f"{len(problems)} groups of {len(record['group'])} differ")
    if len(set(digests)) != len(record["group"]):
        sys.exit("two groups have one digest: they belong together")
    if writes:
        write(arithmetic, digests)
    elif not same:
        print("SKIPPED: the model itself has other bits here. The lines of each group "
              "agree with each other, but the digests of the record say nothing.\n"
              f"  recorded with {record['arithmetic']['of']}\n"
              f"  here          {arithmetic[0]}")
        sys.exit(SKIPPED)


if __name__ == "__main__":
    main()
