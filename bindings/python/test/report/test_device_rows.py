"""Rows of streams from Kineto's traces, made up as NCCL's look."""

from commsched.report.analysis import analyse
from commsched.report.device_rows import with_device_rows
from traces import MS, Maker

BASE = 1_790_000_000_000_000_000  # Since 1970, ns; the monotonic clock is at 0.


def launch(correlation, called_ms, begin_ms, end_ms, name="gemm", stream=7, cat="kernel"):
    args = {"correlation": correlation}
    return [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "ts": called_ms * 1000,
            "dur": 5,
            "args": args,
        },
        {
            "ph": "X",
            "cat": cat,
            "name": name,
            "ts": begin_ms * 1000,
            "dur": (end_ms - begin_ms) * 1000,
            "args": {**args, "stream": stream},
        },
    ]


def nccl(correlation, called_ms, begin_ms, end_ms):
    name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return launch(correlation, called_ms, begin_ms, end_ms, name, stream=20)


def kineto(*rows):
    return {
        "baseTimeNanoseconds": BASE,
        "traceEvents": [row for pair in rows for row in pair],
    }


def host_trace(rank=0):
    """The host issues at 1 and at 2 ms, and is done with the step at 3 ms."""
    maker = Maker(rank).step()
    maker.compute(1).issue(1.1).compute(1).issue(2.1).compute(1).step()
    trace = maker.trace
    trace.steps[-1] = trace.end = 20 * MS  # As the device sees it.
    trace.collectives = [
        c._replace(returned=c.issued + MS // 2) for c in trace.collectives
    ]
    return trace


def test_a_collective_is_in_flight_while_its_kernel_runs():
    found = with_device_rows(
        host_trace(),
        kineto(nccl(1, 1.2, 4, 9), nccl(2, 2.2, 9, 11), launch(3, 0.5, 2, 6)),
        -BASE,
    )
    times = [(c.started, c.completed, c.stream) for c in found.collectives]
    assert times == [(4 * MS, 9 * MS, 20), (9 * MS, 11 * MS, 20)]


def test_exposed_is_what_no_other_kernel_covers():
    rows = kineto(nccl(1, 1.2, 4, 9), nccl(2, 2.2, 9, 11), launch(3, 0.5, 2, 6))
    traces = [with_device_rows(host_trace(r), rows, -BASE) for r in range(2)]
    assert analyse(traces).steps[0].ranks[0].exposed_ns == 5 * MS


def test_copies_count_as_compute():
    rows = kineto(launch(1, 0.5, 3, 5, "Memcpy HtoD", cat="gpu_memcpy"))
    spans = with_device_rows(host_trace(), rows, -BASE).compute
    assert [(s.name, s.end - s.begin) for s in spans] == [("Memcpy HtoD", 2 * MS)]


def test_coalesced_calls_share_the_kernel_launched_after_them():
    found = with_device_rows(host_trace(), kineto(nccl(1, 2.9, 4, 9)), -BASE)
    assert [c.completed for c in found.collectives] == [9 * MS, 9 * MS]


def test_a_rank_is_late_by_when_its_kernel_began():
    second = nccl(2, 2.2, 9, 11)
    traces = [
        with_device_rows(
            host_trace(rank), kineto(nccl(1, 1.2, 4 + 3 * rank, 9), second), -BASE
        )
        for rank in range(2)
    ]
    causes = analyse(traces).steps[0].ranks[0].causes
    assert [c.late_ns for c in causes] == [{1: 3 * MS}, {}]


def test_kernels_of_no_call_are_noted():
    found = with_device_rows(host_trace(), kineto(nccl(1, 0.1, 4, 9)), -BASE)
    assert found.notes == ["1 NCCL kernels belong to no call that was seen"]


def test_a_trace_without_streams_changes_nothing():
    trace = host_trace()
    assert with_device_rows(trace, {"traceEvents": []}, 0) is trace
