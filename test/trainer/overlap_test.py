#!/usr/bin/env python3
"""Overlap is real: mini on a link that takes about as long as compute.

Batch 16, sequence 128, clipping 1. How long compute takes is the machine's
affair, so the link is chosen on it: a serial run on 1 Gbit/s says how long
compute takes, and the bandwidth that makes communication take a quarter more
is then used (about 0.85 Gbit/s on 2 cores with AVX-512).
"""

import os
import resource
import unittest

import program

RUN = ["--model", "mini", "--ranks", 4, "--zero", 2, "--arena-bytes", 0,
       "--batch", 16, "--steps", 12, "--val-batches", 1]
LINK_OVER_COMPUTE = 1.25

# Other work on the machine only ever makes a run slower: the best of a few
# runs is closest to the truth. Interleaved, so that both schedules get the
# same weather; over as soon as the bests are as they should be.
ATTEMPTS = 6

# Where something else had this share of the cores in every attempt, times say
# nothing about a plan.
MOST_TAKEN_BY_OTHERS = 0.25


class CoreTimes:
    """What the machine's cores did since this was made, in seconds."""

    def __init__(self):
        self.start = self._now()

    @staticmethod
    def _now():
        with open("/proc/stat", encoding="ascii") as file:
            user, nice, system, idle, iowait, irq, softirq, steal = map(
                int, file.readline().split()[1:9])
        ours = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = user + nice + system + irq + softirq + steal
        tick = os.sysconf("SC_CLK_TCK")
        return (busy / tick, (busy + idle + iowait) / tick,
                ours.ru_utime + ours.ru_stime)

    def share_of_others(self):
        busy, total, ours = (
            now - then for now, then in zip(self._now(), self.start))
        return (busy - ours) / total if total > 0 else 0


def faster(best, result):
    if best is None or result["step_time_s"] < best["step_time_s"]:
        return result
    return best


def run(schedule, gigabits):
    return program.run_json(*RUN, "--schedule", schedule, "--link",
                            f"{gigabits:.3f}Gbit,100us")


def suitable_gigabits():
    """The bandwidth on which communication takes as long as it should here."""
    serial = run("serial", 1)
    return serial["bound_link_s"] / (LINK_OVER_COMPUTE * serial["compute_s"])


def is_close_to_the_bound(overlap):
    return overlap["ratio_to_lower_bound"] <= 1.15


def gain(serial, overlap):
    return serial["step_time_s"] / overlap["step_time_s"]


class OverlapTest(unittest.TestCase):

    def test_overlap_beats_serial_and_comes_close_to_the_bound(self):
        gigabits = suitable_gigabits()
        serial = overlap = None
        others = 1
        for _ in range(ATTEMPTS):
            cores = CoreTimes()
            serial = faster(serial, run("serial", gigabits))
            overlap = faster(overlap, run("overlap", gigabits))
            others = min(others, cores.share_of_others())
            if is_close_to_the_bound(overlap) and gain(serial, overlap) >= 1.4:
                break
        print(f"link {gigabits:.3f} Gbit/s; others had at least "
              f"{100 * others:.0f} % of the cores")
        for result in (serial, overlap):
            print(f"{result['schedule']}: step {result['step_time_s']:.3f} s, "
                  f"compute {result['compute_s']:.3f} s, communication "
                  f"{result['comm_s']:.3f} s, exposed "
                  f"{result['exposed_comm_s']:.3f} s, bound "
                  f"{result['lower_bound_s']:.3f} s, ratio "
                  f"{result['ratio_to_lower_bound']:.3f}")
        print(f"overlap is {gain(serial, overlap):.2f} x faster")
        self.assertLess(serial["overlap_pct"], 1)
        self.assertGreater(overlap["overlap_pct"], 50)
        if others > MOST_TAKEN_BY_OTHERS:
            self.skipTest(f"other work had {100 * others:.0f} % of the cores "
                          "in every attempt: times mean nothing")
        self.assertLessEqual(overlap["ratio_to_lower_bound"], 1.15)
        self.assertGreaterEqual(gain(serial, overlap), 1.4)


if __name__ == "__main__":
    program.main(unittest)
