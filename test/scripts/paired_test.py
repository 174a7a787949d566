#!/usr/bin/env python3
"""scripts/paired.py, with cases that are computed by hand."""

import sys
import unittest

import machine

sys.path.insert(0, str(machine.SCRIPTS))

# pylint: disable=wrong-import-position
import paired


class IntervalTest(unittest.TestCase):

    def test_of_seven_it_is_the_least_and_the_greatest(self):
        # Outside of both are 2 of 128 cases; outside of the next ones 16.
        self.assertEqual(paired.interval([4, 7, 1, 3, 2, 6, 5]), (1, 7))

    def test_of_nine_one_of_each_end_is_left_out(self):
        # 2, 20 and 92 of 512.
        self.assertEqual(paired.interval(range(9)), (1, 7))

    def test_of_seventeen_four_are(self):
        # 6,428 of 131,072 outside of the fifth, 18,804 of the sixth.
        self.assertEqual(paired.interval(range(17)), (4, 12))

    def test_of_few_it_is_all_that_there_is(self):
        self.assertEqual(paired.interval([3]), (3, 3))
        self.assertEqual(paired.interval([3, 1]), (1, 3))


class GainTest(unittest.TestCase):

    def test_rounds_are_compared_with_themselves(self):
        # The machine slows down from round to round.
        median, bounds = paired.gain([2, 4, 9, 16, 20, 48, 128],
                                     [1, 2, 4, 8, 16, 32, 64])
        self.assertEqual(median, 2)
        self.assertEqual(bounds, (1.25, 2.25))


if __name__ == "__main__":
    unittest.main()
