"""PyTorch's own tests of process groups over Gloo and over commsched, side by side.

    python distributed_suite.py RESULTS_FOLDER [--only PATTERN]

A test that Gloo passes has to pass over commsched, too: one that is skipped there has
failed. The exceptions are in `distributed_exceptions.py`, each with its reason; one that
passes all the same has no place there. Prints the table that docs/python_torch.md has,
which names the exceptions, too.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import subprocess
import sys
from typing import Dict, List, Tuple

from distributed_exceptions import EXCEPTIONS
from distributed_run import SECOND_TRY

BACKENDS = ("gloo", "commsched")
# So many that no test finds the world too small; some ask for exactly four.
RANKS, FEWER_RANKS = 8, 4
WANTS_FEWER = f"Test requires an exact world size of {FEWER_RANKS}"
DOCS = pathlib.Path(__file__).resolve().parents[4] / "docs" / "python_torch.md"

# Outcome, seconds, and what was said, by the name of a test.
Outcomes = Dict[str, Tuple[str, float, str]]


def run(backend: str, ranks: int, only: str, results: pathlib.Path) -> Outcomes:
    print(f"==== {backend}, {ranks} ranks", flush=True)
    subprocess.run(
        [sys.executable, "-B", str(pathlib.Path(__file__).with_name("distributed_run.py")),
         backend, str(results), "--ranks", str(ranks), "--only", only], check=True)
    found: Outcomes = json.loads(results.read_text())
    return found


def run_all(backend: str, only: str, folder: pathlib.Path) -> Outcomes:
    found = run(backend, RANKS, only, folder / f"{backend}.json")
    fewer = [name for name, (_, _, said) in found.items() if said == WANTS_FEWER]
    if fewer:
        found.update(run(backend, FEWER_RANKS, f"^({'|'.join(fewer)})$",
                         folder / f"{backend}-{FEWER_RANKS}.json"))
    return found


def table(found: Dict[str, Outcomes]) -> List[str]:
    counts = {backend: collections.Counter(outcome for outcome, _, _ in each.values())
              for backend, each in found.items()}
    lines = ["| | Gloo | commsched |", "|---|---|---|",
             "| selected | " + " | ".join(
                 str(len(found[backend])) for backend in BACKENDS) + " |"]
    for outcome in ("passed", "skipped", "failed"):
        lines.append(f"| {outcome} | " + " | ".join(
            str(counts[backend][outcome]) for backend in BACKENDS) + " |")
        if outcome == "passed":
            lines.append(f"| of these {SECOND_TRY} | " + " | ".join(
                str(sum(said == SECOND_TRY for _, _, said in found[backend].values()))
                for backend in BACKENDS) + " |")
    return lines


def complaints(found: Dict[str, Outcomes]) -> List[str]:
    """What is otherwise than it should be."""
    gloo, ours = (found[backend] for backend in BACKENDS)
    docs = DOCS.read_text()
    said = [f"{DOCS} does not name {name}" for name in EXCEPTIONS
            if f"`{name}`" not in docs]
    if not gloo:
        said.append("no test was selected")
    for name in sorted({*gloo, *ours}):
        if name not in gloo or name not in ours:
            said.append(f"{name} was selected over one backend only")
            continue
        passes = ours[name][0] == "passed"
        if name in EXCEPTIONS:
            if passes:
                said.append(f"{name} passes: it is no exception any more")
        elif gloo[name][0] != "skipped" and not passes:
            said.append(f"{name}: Gloo {gloo[name][0]}, commsched {ours[name][0]}: "
                        f"{ours[name][2]}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="for results and logs")
    parser.add_argument("--only", default="", metavar="PATTERN")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    found = {backend: run_all(backend, args.only, args.folder) for backend in BACKENDS}
    print("\n".join(table(found)))
    for name in EXCEPTIONS:
        if name in found["commsched"]:
            print(f"exception: {name}: {EXCEPTIONS[name]}")
    said = complaints(found)
    if said:
        sys.exit("\n".join(said))


if __name__ == "__main__":
    main()
