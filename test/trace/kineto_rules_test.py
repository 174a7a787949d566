"""What Holistic Trace Analysis does with a trace, in the standard library.

Each rule below is one that the analysis (0.5.0 and 0.6.1) applies without a
word: a trace that breaks it is not refused but read as something else.

Usage: kineto_rules_test.py KINETO_WRITER
"""

import bisect
import collections
import json
import re
import sys
import tempfile
import unittest

from kineto_traces import Written

WRITER = None

# hta/common/trace_file.py
RANK = re.compile(r'"rank":\s+(\d+)')
# hta/utils/utils.py; the older and the stricter newer spelling.
COMMUNICATION = [re.compile(r"^nccl.*Kernel")]
MEMORY = re.compile(r"(^(hip)?Memcpy)|(^(hip)?Memset)|(^dma)")
NOT_COMPUTE = [
    re.compile(r"(^nccl.*Kernel)|(.*(Memcpy)|(Memset))|(.*Sync)"),
    re.compile(
        r"(^nccl)|(.*Memcpy)|(.*Memset)|(.*dma)|(^.*Sync)|(^hip)|(^hccl)"
        r"|(.*ncclKernel.*)|(cuda.*LaunchKernel)|(^runFunction)"
        r"|(^Stream Wait Event)"
    ),
]


def kernel_type(name):
    if all(pattern.match(name) for pattern in COMMUNICATION):
        return "communication"
    if MEMORY.match(name) or any(p.match(name) for p in NOT_COMPUTE):
        return "dropped"
    return "compute"


def union(intervals):
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def length(intervals):
    return sum(end - begin for begin, end in intervals)


def intersection(a, b):
    return [
        (max(p, r), min(q, s))
        for p, q in a
        for r, s in b
        if max(p, r) < min(q, s)
    ]


class Trace:
    """One file after the steps of hta/common/trace.py."""

    def __init__(self, path):
        with open(path, encoding="ascii") as f:
            self.lines = f.readlines()
        self.document = json.loads("".join(self.lines))
        self.raw = self.document["traceEvents"]
        # Rows without a duration or a category are dropped.
        self.events = [e for e in self.raw if "dur" in e and "cat" in e]
        stream = lambda e: e["args"].get("stream", -1)
        self.gpu = [e for e in self.events if stream(e) >= 0]
        self.cpu = [e for e in self.events if stream(e) < 0]
        self.steps = [e for e in self.cpu if "ProfilerStep" in e["name"]]

    def kept_kernels(self):
        """Kernels launched before the last step begins."""
        last = max(e["ts"] for e in self.steps)
        kept = {
            e["args"]["correlation"]
            for e in self.cpu
            if e["ts"] < last and "correlation" in e["args"]
        }
        return [e for e in self.gpu if e["args"]["correlation"] in kept]

    def intervals(self, wanted):
        return union(
            (e["ts"], e["ts"] + e["dur"])
            for e in self.kept_kernels()
            if kernel_type(e["name"]) == wanted
        )


class KinetoRulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.written = Written(WRITER, cls.folder.name)
        cls.traces = [
            Trace(cls.written.path(rank)) for rank in range(cls.written.ranks)
        ]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_rank_is_found_line_by_line(self):
        for rank, trace in enumerate(self.traces):
            found = next(m for m in map(RANK.search, trace.lines) if m)
            self.assertEqual(int(found.group(1)), rank)
            info = trace.document["distributedInfo"]
            self.assertEqual(info["rank"], rank)
            self.assertEqual(info["world_size"], self.written.ranks)

    def test_every_kernel_has_the_call_that_launched_it(self):
        for trace in self.traces:
            calls = collections.Counter(
                e["args"]["correlation"]
                for e in trace.cpu
                if e["name"] == "cudaLaunchKernel"
                and e["cat"] == "cuda_runtime"
            )
            kernels = collections.Counter(
                e["args"]["correlation"] for e in trace.gpu
            )
            self.assertGreater(len(kernels), 100)
            self.assertEqual(calls, kernels)
            self.assertEqual(set(kernels.values()), {1})

    def calls_and_kernels(self, trace):
        """Pairs by correlation."""
        kernels = {e["args"]["correlation"]: e for e in trace.gpu}
        return [
            (e, kernels[e["args"]["correlation"]])
            for e in trace.cpu
            if e["name"] == "cudaLaunchKernel"
        ]

    def test_no_call_ends_after_its_kernel_begins(self):
        # hta/analyzers/cuda_kernel_analysis.py: what lies between is the delay.
        for trace in self.traces:
            delays = [
                kernel["ts"] - call["ts"] - call["dur"]
                for call, kernel in self.calls_and_kernels(trace)
            ]
            self.assertGreaterEqual(min(delays), 0)
            self.assertGreater(max(delays), 100)

    def test_queues_are_never_shorter_than_empty(self):
        # hta/analyzers/trace_counters.py: calls and kernels of a stream, sorted
        # by time alone: the worst is a kernel before a call of the same time.
        for trace in self.traces:
            changes = collections.defaultdict(list)
            for call, kernel in self.calls_and_kernels(trace):
                stream = kernel["args"]["stream"]
                changes[stream] += [(call["ts"], 1), (kernel["ts"], -1)]
            for each in changes.values():
                queue = 0
                for _, change in sorted(each):
                    queue += change
                    self.assertGreaterEqual(queue, 0)

    def test_calls_lie_in_the_step_that_their_kernels_begin_in(self):
        for trace in self.traces:
            begins = [e["ts"] for e in trace.steps]
            for call, kernel in self.calls_and_kernels(trace):
                if "commsched op" not in kernel["args"]:
                    continue
                step = bisect.bisect(begins, call["ts"]) - 1
                self.assertEqual(step, kernel["args"]["commsched step"])

    def flows(self, trace, name):
        ends = {"s": {}, "f": {}}
        for e in trace.raw:
            if e["ph"] in ends and e["name"] == name:
                self.assertEqual(e["cat"], name)
                self.assertNotIn(e["id"], ends[e["ph"]])
                ends[e["ph"]][e["id"]] = e
        self.assertEqual(set(ends["s"]), set(ends["f"]))
        for number, first in ends["s"].items():
            last = ends["f"][number]
            self.assertEqual(last["bp"], "e")
            self.assertLessEqual(first["ts"], last["ts"])
        return [(ends["s"][i], ends["f"][i]) for i in ends["s"]]

    def covers(self, event, end):
        return (event["pid"], event["tid"]) == (end["pid"], end["tid"]) and (
            event["ts"] <= end["ts"] < event["ts"] + max(event["dur"], 1)
        )

    def test_arrows_lead_from_every_call_to_its_kernel(self):
        for trace in self.traces:
            flows = {f[0]["id"]: f for f in self.flows(trace, "ac2g")}
            pairs = self.calls_and_kernels(trace)
            self.assertEqual(len(flows), len(pairs))
            for call, kernel in pairs:
                first, last = flows[call["args"]["correlation"]]
                self.assertTrue(self.covers(call, first))
                self.assertTrue(self.covers(kernel, last))

    def test_arrows_lead_from_launches_to_the_waits_for_them(self):
        for trace in self.traces:
            flows = self.flows(trace, "commsched wait")
            self.assertGreater(len(flows), 10)
            launches = [e for e in trace.gpu if "commsched launch" in e["args"]]
            waits = [e for e in trace.cpu if e["name"].startswith("wait ")]
            for first, last in flows:
                self.assertTrue(any(self.covers(e, first) for e in launches))
                self.assertTrue(any(self.covers(e, last) for e in waits))

    def test_first_row_is_no_call_and_no_kernel(self):
        # Row 0 as the other half of a correlation is taken for "none".
        for trace in self.traces:
            self.assertEqual(trace.raw[0]["ph"], "M")

    def test_times_are_whole_microseconds(self):
        for trace in self.traces:
            for e in trace.raw:
                self.assertIs(type(e["ts"]), int)
            for e in trace.events:
                self.assertIs(type(e["dur"]), int)
                self.assertGreaterEqual(e["dur"], 0)

    def test_columns_that_the_analysis_needs_are_there(self):
        for trace in self.traces:
            for e in trace.events:
                self.assertLessEqual(
                    {"ph", "cat", "name", "pid", "tid", "ts", "dur", "args"},
                    set(e),
                )
                self.assertNotEqual(e["cat"], "Trace")

    def test_steps_follow_each_other_and_are_named_once(self):
        for trace in self.traces:
            names = [e["name"] for e in trace.steps]
            self.assertEqual(
                names,
                [f"ProfilerStep#{i}" for i in range(self.written.steps + 1)],
            )
            for e, following in zip(trace.steps, trace.steps[1:]):
                self.assertEqual(e["ts"] + e["dur"], following["ts"])

    def test_no_kernel_is_dropped_for_its_name(self):
        for trace in self.traces:
            for e in trace.gpu:
                is_launch = "commsched launch" in e["args"]
                self.assertEqual(
                    kernel_type(e["name"]),
                    "communication" if is_launch else "compute",
                    e["name"],
                )

    def test_op_names_survive_unchanged_beside_the_kernels(self):
        for trace in self.traces:
            ops = {e["args"].get("commsched op") for e in trace.gpu}
            self.assertIn("GradSync step", ops)
            self.assertIn('say "hi"\\\n\ufffd\u00e9', ops)

    def test_streams_show_one_kernel_at_a_time(self):
        for trace in self.traces:
            rows = collections.defaultdict(list)
            for e in trace.gpu:
                self.assertEqual(e["tid"], e["args"]["stream"])
                rows[e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
            self.assertGreater(len(rows), 4)  # lanes and what is beside them
            for intervals in rows.values():
                intervals.sort()
                for (_, end), (begin, _) in zip(intervals, intervals[1:]):
                    self.assertLessEqual(end, begin)

    def test_host_rows_nest(self):
        for trace in self.traces:
            rows = collections.defaultdict(list)
            for e in trace.cpu:
                self.assertNotIn(0, (e["pid"], e["tid"]))
                rows[e["tid"]].append((e["ts"], -e["dur"]))
            for row in rows.values():
                ends = []
                for begin, negative in sorted(row):
                    while ends and ends[-1] <= begin:
                        ends.pop()
                    if ends:
                        self.assertLessEqual(begin - negative, ends[-1])
                    ends.append(begin - negative)

    def test_collectives_carry_their_group(self):
        for trace in self.traces:
            config = trace.document["distributedInfo"]["pg_config"]
            self.assertEqual([g["pg_desc"] for g in config], ["dp_shard", "sp"])
            launches = [e for e in trace.gpu if "Collective name" in e["args"]]
            self.assertTrue(launches)
            for e in launches:
                args = e["args"]
                group = config[int(args["Process Group Name"])]
                self.assertEqual(args["Group size"], group["pg_size"])
                self.assertEqual(
                    json.loads(args["Process Group Ranks"]), group["ranks"]
                )
                self.assertEqual(args["In msg nelems"], 1024)

    def test_figures_are_ours(self):
        for rank, trace in enumerate(self.traces):
            metrics = self.written.metrics[rank]
            self.assertEqual(metrics["steps"], self.written.steps)
            self.assertEqual(metrics["launches"], 12 * self.written.steps)
            self.assertEqual(metrics["collectives"], 24 * self.written.steps)
            comm = trace.intervals("communication")
            compute = trace.intervals("compute")
            hidden = length(intersection(comm, compute))
            self.assertEqual(1000 * length(comm), metrics["comm_ns"])
            self.assertEqual(1000 * length(compute), metrics["compute_ns"])
            self.assertEqual(
                1000 * (length(comm) - hidden), metrics["exposed_ns"]
            )

    def test_rounding_to_microseconds_costs_less_than_a_tenth_of_a_point(self):
        with tempfile.TemporaryDirectory() as folder:
            written = Written(WRITER, folder, grid_ns=1, seed=2)
            for rank in range(written.ranks):
                trace = Trace(written.path(rank))
                comm = trace.intervals("communication")
                compute = trace.intervals("compute")
                percent = (
                    100 * length(intersection(comm, compute)) / length(comm)
                )
                self.assertAlmostEqual(
                    percent, written.overlap_percent(rank), delta=0.1
                )


if __name__ == "__main__":
    WRITER = sys.argv.pop(1)
    unittest.main()
