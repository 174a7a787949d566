#!/usr/bin/env python3
"""Overlap is real: mini on a link that takes about as long as compute.

Batch 16, sequence 128, clipping 1 on 2 cores: 0.7 s of compute a step, and 0.53 s
on a link of 1 Gbit/s. With more or faster cores the link dominates, and serial
cannot lose as much; the ratio to the lower bound holds all the same.
"""

import unittest

import program

RUN = ["--model", "mini", "--ranks", 4, "--zero", 2, "--arena-bytes", 0,
       "--batch", 16, "--steps", 12, "--val-batches", 1, "--link",
       "1Gbit,100us"]

# Other work on the machine only ever makes a run slower: the best of a few
# runs is closest to the truth. Interleaved, so that both schedules get the
# same weather; over as soon as the bests are as they should be.
ATTEMPTS = 6


def faster(best, result):
    if best is None or result["step_time_s"] < best["step_time_s"]:
        return result
    return best


def is_close_to_the_bound(overlap):
    return overlap["ratio_to_lower_bound"] <= 1.15


def is_faster(serial, overlap):
    # The most that overlap could gain is serial against the bound.
    possible = serial["step_time_s"] / overlap["lower_bound_s"]
    gain = serial["step_time_s"] / overlap["step_time_s"]
    return gain >= min(1.4, possible / 1.15)


class OverlapTest(unittest.TestCase):

    def test_overlap_beats_serial_and_comes_close_to_the_bound(self):
        serial = overlap = None
        for _ in range(ATTEMPTS):
            serial = faster(serial, program.run_json(*RUN, "--schedule",
                                                     "serial"))
            overlap = faster(overlap, program.run_json(*RUN, "--schedule",
                                                       "overlap"))
            if is_close_to_the_bound(overlap) and is_faster(serial, overlap):
                break
        for result in (serial, overlap):
            print(f"{result['schedule']}: step {result['step_time_s']:.3f} s, "
                  f"compute {result['compute_s']:.3f} s, communication "
                  f"{result['comm_s']:.3f} s, exposed "
                  f"{result['exposed_comm_s']:.3f} s, bound "
                  f"{result['lower_bound_s']:.3f} s, ratio "
                  f"{result['ratio_to_lower_bound']:.3f}")
        gain = serial["step_time_s"] / overlap["step_time_s"]
        print(f"overlap is {gain:.2f} x faster")
        self.assertLess(serial["overlap_pct"], 1)
        self.assertGreater(overlap["overlap_pct"], 50)
        self.assertTrue(is_close_to_the_bound(overlap))
        self.assertTrue(is_faster(serial, overlap))


if __name__ == "__main__":
    program.main(unittest)
