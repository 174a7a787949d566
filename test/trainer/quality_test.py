#!/usr/bin/env python3
"""Training learns: nano on the King James text with the defaults."""

import unittest

import program


class QualityTest(unittest.TestCase):

    def test_defaults_reach_2_2_nats_and_ranks_do_not_matter(self):
        four = program.run_json("--ranks", 4, "--model", "nano", "--steps",
                                300)
        self.assertLess(four["val_loss"], 2.2)
        one = program.run_json("--ranks", 1, "--model", "nano", "--steps", 300)
        print(f"val_loss on 4 ranks {four['val_loss']:.5f}, on 1 rank "
              f"{one['val_loss']:.5f}")
        self.assertAlmostEqual(four["val_loss"], one["val_loss"], delta=1e-3)


if __name__ == "__main__":
    program.main(unittest)
