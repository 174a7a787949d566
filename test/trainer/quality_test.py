#!/usr/bin/env python3
"""Training learns: nano on the King James text with the defaults."""

import re
import unittest

import program


def val_losses(ranks, every, *flags):
    """After each `every` of 300 steps."""
    done = program.run("--ranks", ranks, "--model", "nano", "--steps", 300,
                       "--eval-every", every, *flags)
    if done.returncode != 0:
        raise AssertionError(f"exit code {done.returncode}\n{done.stderr}")
    return [float(loss) for loss in
            re.findall(r"^step \d+: val_loss ([0-9.]+)$", done.stdout, re.M)]


class QualityTest(unittest.TestCase):

    def test_defaults_reach_2_2_nats_whatever_the_ranks_and_in_bf16(self):
        four = val_losses(4, 60)
        self.assertEqual(len(four), 5)
        self.assertLess(four[-1], 2.2)
        one = val_losses(1, 300)
        bf16 = val_losses(4, 60, "--dtype", "bf16")
        self.assertEqual(len(bf16), 5)
        furthest = max(abs(b / a - 1) for a, b in zip(four, bf16))
        print(f"val_loss on 4 ranks {four[-1]:.4f}, on 1 rank {one[-1]:.4f}; "
              f"in bf16 {bf16[-1]:.4f}, on the way within {furthest:.2%}")
        self.assertAlmostEqual(four[-1], one[-1], delta=1e-3)
        self.assertLessEqual(furthest, 0.02)


if __name__ == "__main__":
    program.main(unittest)
