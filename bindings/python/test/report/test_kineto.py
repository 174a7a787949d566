"""Chrome traces of a run: their rules, and HTA's figures beside ours."""

import json
import pathlib
import random
import subprocess
import sys

import pytest

from commsched.report import intervals
from commsched.report.analysis import analyse
from commsched.report.kineto import kineto, write_traces
from commsched.report.model import RankTrace
from traces import MS, Maker


def random_run(steps=12, seed=29):
    """Ranks on whole microseconds, with collectives under compute and not."""
    generator = random.Random(seed)
    makers = [Maker(rank).step() for rank in range(2)]
    for step in range(steps):
        for maker in makers:
            for _ in range(4):
                maker.compute(generator.randrange(1, 40) / 10)
                done = maker.now + generator.randrange(1, 60) / 10
                maker.issue(done)
                if generator.random() < 0.5:
                    maker.wait(done)
            maker.wait(max(c.completed for c in maker.trace.collectives) / MS)
            maker.compute(1).step()
    return analyse([maker.trace for maker in makers])


def rows(run, rank=0):
    return json.loads(kineto(run.traces[rank], run))["traceEvents"]


def test_the_rank_is_where_hta_looks_for_it():
    run = random_run()
    assert '"rank": 1' in kineto(run.traces[1], run)


def test_every_kernel_has_a_call_of_its_correlation_in_the_same_step():
    found = rows(random_run())
    kernels = [r for r in found if r.get("cat") == "kernel"]
    calls = {
        r["args"]["correlation"]: r
        for r in found
        if r.get("cat") == "cuda_runtime"
    }
    assert len(kernels) == len(calls) > 100
    for kernel in kernels:
        call = calls[kernel["args"]["correlation"]]
        assert call["ts"] + call["dur"] <= kernel["ts"]
        assert kernel["tid"] == kernel["args"]["stream"]


def test_kernels_of_one_stream_do_not_overlap():
    ends = {}
    kernels = [r for r in rows(random_run()) if r.get("cat") == "kernel"]
    for row in sorted(kernels, key=lambda r: (r["tid"], r["ts"])):
        assert row["ts"] >= ends.get(row["tid"], 0)
        ends[row["tid"]] = row["ts"] + row["dur"]


def test_communication_has_the_names_by_which_hta_knows_it():
    names = {r["name"] for r in rows(random_run()) if r.get("cat") == "kernel"}
    assert names == {
        "op:compute",
        "ncclDevKernel_AllReduce_none_f32(commsched)",
    }


def overlap_percent(run, rank):
    """HTA leaves out the last step."""
    steps = [step.ranks[rank] for step in run.steps[:-1]]
    covered = sum(intervals.length(s.communication) for s in steps)
    exposed = sum(s.exposed_ns for s in steps)
    return 100 * (covered - exposed) / covered


@pytest.mark.parametrize("recorded", [False, True])
def test_hta_agrees(recorded, tmp_path):
    analysis = pytest.importorskip("hta.trace_analysis")
    run = recorded_run(tmp_path) if recorded else random_run()
    write_traces(run, tmp_path / "traces")
    found = analysis.TraceAnalysis(trace_dir=str(tmp_path / "traces"))
    overlap = found.get_comm_comp_overlap(visualize=False)
    assert sorted(overlap["rank"]) == [0, 1]
    for rank, theirs in overlap.itertuples(index=False):
        ours = overlap_percent(run, rank)
        print(f"rank {rank}: hta {theirs:.2f} %, commsched {ours:.2f} %")
        assert theirs == pytest.approx(ours, abs=0.5 if recorded else 0.01)
    temporal = found.get_temporal_breakdown(visualize=False)
    for _, row in temporal.iterrows():
        steps = [s.ranks[int(row["rank"])] for s in run.steps[:-1]]
        ours = sum(intervals.length(s.compute) for s in steps) / 1000
        assert row["compute_time(us)"] == pytest.approx(ours, rel=0.01)


def recorded_run(folder):
    """A job of DDP over Gloo, in processes of its own: HTA has threads."""
    pytest.importorskip("torch")
    script = pathlib.Path(__file__).with_name("record_job.py")
    subprocess.run([sys.executable, "-B", script, folder], check=True)
    return analyse(
        [
            RankTrace.from_json((folder / f"rank{rank}").read_text())
            for rank in range(2)
        ]
    )
