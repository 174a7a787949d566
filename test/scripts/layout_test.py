#!/usr/bin/env python3
"""Layouts of scripts/hosts.py."""

import argparse
import pathlib
import sys
import unittest

import machine

sys.path.insert(0, str(machine.SCRIPTS))

# pylint: disable=wrong-import-position
from hosts import Layout


class LayoutTest(unittest.TestCase):

    def test_ranks_fill_one_host_after_the_other(self):
        self.assertEqual(Layout("4x1").host_of, [0, 1, 2, 3])
        self.assertEqual(Layout("2x3").host_of, [0, 0, 0, 1, 1, 1])
        self.assertEqual(Layout("3+1").host_of, [0, 0, 0, 1])
        self.assertEqual(Layout("4+2+2").host_of, [0, 0, 0, 0, 1, 1, 2, 2])

    def test_round_robin_deals_them_out_in_turns(self):
        self.assertEqual(Layout("2x2:round-robin").host_of, [0, 1, 0, 1])
        self.assertEqual(Layout("1+3+2:round-robin").host_of,
                         [0, 1, 2, 1, 2, 1])

    def test_commsched_run_gets_a_slot_per_rank_in_their_order(self):
        command = Layout("2x2:round-robin").run_command(pathlib.Path("bin"))
        self.assertEqual(
            command[command.index("--hosts") + 1],
            "commsched-host0:1,commsched-host1:1,commsched-host0:1,"
            "commsched-host1:1")
        self.assertEqual(command[command.index("-n") + 1], "4")
        self.assertEqual(command[-1], "--")

    def test_what_is_no_layout_of_two_hosts_is_refused(self):
        for text in ("", "4", "1x4", "2x0", "3+0", "2x", "x4", "+3", "2x4x2",
                     "300x1", "2x4000", "2x4:cyclic", ":round-robin", "2x4 "):
            with self.assertRaises(argparse.ArgumentTypeError, msg=text):
                Layout(text)


if __name__ == "__main__":
    unittest.main()
