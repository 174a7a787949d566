#!/usr/bin/env python3
"""scripts/test runs each test of the release build in one of its steps.

Usage: steps_test.py BUILD_FOLDER
"""

import json
import re
import subprocess
import sys
import unittest

import machine

STEP = re.compile(r"check release (\S+) -(LE?) '(\S+)'")


def steps():
    """What chooses tests by their labels, with neither --quick nor a build of
    another kind: name, option and expression."""
    text = (machine.SCRIPTS / "test").read_text(encoding="utf-8")
    quick = re.search(r"^if \$quick; then$.*?^fi$", text, re.MULTILINE | re.DOTALL)
    return STEP.findall(text.replace(quick.group(), ""))


def labels_of_tests():
    found = subprocess.run(
        ["ctest", "--test-dir", sys.argv[1], "--show-only=json-v1"],
        check=True, stdout=subprocess.PIPE).stdout
    return {test["name"]: [label for each in test.get("properties", ())
                           if each["name"] == "LABELS" for label in each["value"]]
            for test in json.loads(found)["tests"]}


def chosen(labels, option, expression):
    return (option == "L") == any(re.search(expression, each) for each in labels)


class StepsTest(unittest.TestCase):

    def test_each_test_belongs_to_one(self):
        found = steps()
        self.assertGreater(len(found), 5)
        for test, labels in labels_of_tests().items():
            with self.subTest(test=test, labels=labels):
                self.assertEqual(1, sum(chosen(labels, option, expression)
                                        for _, option, expression in found))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
