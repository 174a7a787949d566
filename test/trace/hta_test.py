"""Holistic Trace Analysis itself on our traces, and its figures beside ours.

Skipped (exit code 77) where it cannot be imported. To run it, install it by
`scripts/install-deps --with all`, or name a Python that has it (and pandas 2):
`cmake -DCOMMSCHED_HTA_PYTHON=VENV/bin/python ...`

Usage: hta_test.py KINETO_WRITER
"""

import importlib.metadata
import logging
import sys
import tempfile
import unittest

from kineto_traces import Written

try:
    from hta.trace_analysis import TraceAnalysis
    from hta.utils.validate_trace import validate_trace_format
except ImportError as error:
    print(f"SKIPPED: HolisticTraceAnalysis is not there ({error})")
    sys.exit(77)

WRITER = None


def version():
    for package in ("HolisticTraceAnalysis", "traceinsight"):
        try:
            return f"{package} {importlib.metadata.version(package)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "unknown version"


class HtaTest(unittest.TestCase):
    def compare(self, grid_ns, tolerance_points):
        with tempfile.TemporaryDirectory() as folder:
            written = Written(
                WRITER, folder, ranks=4, steps=20, grid_ns=grid_ns, seed=3
            )
            for rank in range(written.ranks):
                ok, errors = validate_trace_format(
                    written.path(rank), level="complete"
                )
                self.assertTrue(ok, errors)
            analysis = TraceAnalysis(trace_dir=written.trace_folder)
            overlap = analysis.get_comm_comp_overlap(visualize=False)
            self.assertEqual(sorted(overlap["rank"]), [0, 1, 2, 3])
            for rank, theirs in overlap.itertuples(index=False):
                ours = written.overlap_percent(rank)
                print(
                    f"rank {rank}, grid {grid_ns} ns: "
                    f"hta {theirs:.2f} %, commsched {ours:.3f} %"
                )
                self.assertAlmostEqual(theirs, ours, delta=tolerance_points)
            temporal = analysis.get_temporal_breakdown(visualize=False)
            for _, row in temporal.iterrows():
                ours_us = written.metrics[int(row["rank"])]["compute_ns"] / 1000
                self.assertAlmostEqual(
                    row["compute_time(us)"] / ours_us,
                    1,
                    delta=tolerance_points / 100,
                )

    def test_queues_and_launch_delays_are_those_of_the_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            written = Written(WRITER, folder, ranks=2, steps=20, seed=4)
            analysis = TraceAnalysis(trace_dir=written.trace_folder)
            queues = analysis.get_queue_length_time_series(ranks=[0, 1])
            for rank, queue in queues.items():
                self.assertGreaterEqual(queue["queue_length"].min(), 0, rank)
                self.assertGreater(queue["queue_length"].max(), 1, rank)
            stats = analysis.get_cuda_kernel_launch_stats(visualize=False)
            delays = stats[0]["launch_delay"]
            self.assertGreaterEqual(delays.min(), 0)
            self.assertGreater(delays.max(), 100)
            idle, _ = analysis.get_idle_time_breakdown(visualize=False)
            self.assertGreaterEqual(idle["idle_time"].min(), 0)

    def test_overlap_is_equal_on_whole_microseconds(self):
        self.compare(grid_ns=1000, tolerance_points=0.0051)  # hta's 2 decimals

    def test_overlap_is_close_where_microseconds_are_rounded(self):
        self.compare(grid_ns=1, tolerance_points=0.1)


if __name__ == "__main__":
    WRITER = sys.argv.pop(1)
    logging.disable(logging.WARNING)
    print(version())
    unittest.main(warnings="ignore")  # the analysis uses pandas' old ways
