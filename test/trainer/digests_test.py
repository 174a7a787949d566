#!/usr/bin/env python3
"""The weights that the command lines of digests.toml arrive at, to the bit.

Usage: digests_test.py COMMSCHED_TRAIN PLAIN_MODEL [--write | --merge]

--write puts today's digests into digests.toml. Only a change that is meant to
alter the numbers of training is a reason to do so.

--merge runs each line twice, with buckets as given and with merged or cut ones.
Left out are lines in which the bytes of a bucket decide whether its gradients
add up whole: that is another sum.

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


def run_line(common, line):
    """What the last command of a line prints."""
    with program.temporary_folder() as folder:
        data = ["--data", program.text_file(folder)]
        for command in line.replace("FOLDER", folder).split(" ; "):
            result = program.run_json(*common, *data, *command.split(),
                                      variables=VARIABLES)
    return result


def group_digests(record):
    """Digest -> lines, of each group."""
    common = record["common"].split()
    for group in record["group"]:
        found = {}
        for line in group["lines"]:
            digest = run_line(common, line)["weights_sha256"]
            found.setdefault(digest, []).append(line)
        yield group, found


def merged_digests(record):
    """The same of lines with and without merged buckets."""
    common = record["common"].split()
    others = 0
    for group in record["group"]:
        found = {}
        for line in group["lines"]:
            if "--accumulate-bytes" in line and "--accumulate-bytes 1 " not in line + " ":
                continue
            for merge in ("off", "on"):
                option = f" --bucket-merge {merge}"
                chosen = line.replace(" ; ", f"{option} ; ") + option
                result = run_line(common, chosen)
                found.setdefault(result["weights_sha256"], []).append(chosen)
                others += merge == "on" and (result["num_buckets"] !=
                                             result["given_buckets"])
        if found:
            yield group, found
    print(f"{others} lines had other buckets than those of the bytes given")
    if others == 0:
        sys.exit("no buckets were merged or cut: nothing was tested")


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
    if len(sys.argv) not in (3, 4) or sys.argv[3:] not in ([], ["--write"], ["--merge"]):
        sys.exit(__doc__)
    os.environ["COMMSCHED_TRAIN"] = sys.argv[1]
    record = tomllib.loads(RECORD.read_text(encoding="utf-8"))
    arithmetic = plain_model(sys.argv[2], record["common"].split())
    writes = sys.argv[3:] == ["--write"]
    merges = sys.argv[3:] == ["--merge"]
    same = arithmetic[1] == record["arithmetic"]["sha256"]
    problems = []
    digests = []
    for group, found in (merged_digests if merges else group_digests)(record):
        digests += found
        wrong = problem(group, found, same and not writes)
        print(wrong or f"{group['about']}: {len(group['lines'])} lines, {digests[-1]}",
              flush=True)
        problems += [wrong] if wrong else []
    if problems:
        sys.exit(f"{len(problems)} groups of {len(record['group'])} differ")
    if not merges and len(set(digests)) != len(record["group"]):
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
