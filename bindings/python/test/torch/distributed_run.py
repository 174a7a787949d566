"""Runs PyTorch's own tests of process groups over one backend.

    python distributed_run.py BACKEND RESULTS [--only PATTERN] [--ranks N]

Ranks are forked from this process, which has imported PyTorch once; in all else they
are driven as PyTorch's test_distributed_spawn.py does it. RESULTS becomes JSON: of each
test its outcome, seconds and what was said. What fails is run once more, since the tests
give ranks ten seconds to meet, which a busy machine may take.

Many tests ask for the backend by its name: whether to run, and on which device. They get
the answers that Gloo gets, so that the same ones run over any backend; and the backend is
in the tables of what backends can do.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest
from typing import Any, Dict, List, Tuple

from installed import install

GATES = "gloo"
# What is said of a test that fails first and then passes.
SECOND_TRY = "at the second try"


class Name(str):
    """Of a backend, which is Gloo to who asks for that."""

    def __eq__(self, other: object) -> bool:
        return str(self) == other or other == GATES

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def load(backend: str, ranks: int, seconds: int, folder: pathlib.Path) -> Any:
    """PyTorch's tests as a class, of which each test may take `seconds`."""
    os.environ.update(
        BACKEND=GATES, WORLD_SIZE=str(ranks), TEMP_DIR=str(folder),
        INIT_METHOD=f"file://{folder}/meeting", OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(seconds))
    import torch
    import torch._dynamo
    from torch.testing._internal.distributed import distributed_test as tests

    import commsched.torch.backend  # Once for all ranks.

    torch.set_num_threads(1)
    os.environ["BACKEND"] = backend
    tests.BACKEND = Name(backend)
    cases = tests.DistTestCases
    for able in [*cases.backend_feature.values(), *cases.skip_collective.values()]:
        if GATES in able:
            able.add(backend)
    for names in (tests.PROFILING_SUPPORTED_BACKENDS,
                  tests.CUDA_PROFILING_SUPPORTED_BACKENDS,
                  tests.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
        names.append(backend)

    class DistributedSuite(tests.TestDistBackend,  # type: ignore[misc, name-defined]
                           tests.DistributedTest._DistTestBase):

        def setUp(self) -> None:
            super().setUp()
            self._start_processes(multiprocessing.get_context("fork").Process)

    return DistributedSuite


class Outcomes(unittest.TestResult):
    """What came of each test, by its name."""

    def __init__(self, told: Any) -> None:
        super().__init__()
        self.found: Dict[str, Tuple[str, float, str]] = {}
        self._told = told
        self._begun = 0.0

    def run(self, suite: Any, names: List[str]) -> None:
        unittest.TestSuite(suite(name) for name in names).run(self)

    def failed(self) -> List[str]:
        return [name for name, (outcome, _, _) in self.found.items()
                if outcome == "failed"]

    def startTest(self, test: unittest.TestCase) -> None:
        self._begun = time.monotonic()
        super().startTest(test)

    def _came(self, test: unittest.TestCase, outcome: str, said: str = "") -> None:
        name, seconds = test.id().split(".")[-1], time.monotonic() - self._begun
        if outcome == "passed" and name in self.found:
            said = SECOND_TRY
        self.found[name] = outcome, round(seconds, 1), said
        print(f"{outcome:8} {seconds:6.1f} s  {name}", file=self._told, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self._came(test, "passed")

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:
        self._came(test, "skipped", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        self._came(test, "failed", self._exc_info_to_string(err, test))

    addError = addFailure


def names_of(suite: Any, pattern: str) -> List[str]:
    found: List[str] = unittest.TestLoader().getTestCaseNames(suite)
    return [name for name in found if re.search(pattern, name)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backend")
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--only", default="", metavar="PATTERN")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=int, default=120, help="of each test")
    args = parser.parse_args()
    # What tests print goes to a log.
    told = os.fdopen(os.dup(1), "w")
    log = os.open(args.results.with_suffix(".log"),
                  os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    # unittest's and PyTorch's options are not this program's.
    sys.argv[1:] = []

    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(made)
        install(folder)
        suite = load(args.backend, args.ranks, args.seconds, folder)
        outcomes = Outcomes(told)
        outcomes.run(suite, names_of(suite, args.only))
        outcomes.run(suite, outcomes.failed())
    args.results.write_text(json.dumps(outcomes.found, indent=1))


if __name__ == "__main__":
    main()
