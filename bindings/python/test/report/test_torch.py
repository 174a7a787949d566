"""The report on jobs of PyTorch, over Gloo. Needs PyTorch."""

import statistics
import time

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
import torch.distributed._functional_collectives as functional  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

from commsched.report.document import make_document  # noqa: E402
from job import Job, busy  # noqa: E402

MS = 1_000_000


def model(layers=4, width=64):
    return torch.nn.Sequential(
        *[torch.nn.Linear(width, width) for _ in range(layers)]
    )


def updates(step, count):
    """Runs `step` between updates of an optimizer, which make the steps."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    results = []
    for _ in range(count):
        results.append(step())
        parameter.square().backward()
        optimizer.step()
        optimizer.zero_grad()
    return results


def delayed(rank, late_rank, seconds, count):
    """Steps in which `late_rank` comes late to an all-reduce. Returns when the
    script itself saw this rank come there: the truth, however busy the machine.
    """

    def step():
        dist.barrier()
        if rank == late_rank:
            busy(seconds)
        arrived = time.monotonic_ns()
        dist.all_reduce(torch.ones(1000))
        return arrived

    return updates(step, count)


def test_an_injected_delay_of_100_ms_is_reported_within_5_percent(tmp_path):
    job = Job(lambda rank: delayed(rank, 1, 0.1, 15), 2, tmp_path)
    truth = statistics.median(b - a for a, b in zip(*job.returned))
    assert truth > 90 * MS
    late = make_document(job.traces, [], 0).summary.late[0]
    assert (late.rank, late.where) == (1, "all_reduce 1 of default_pg")
    assert late.late_ns == pytest.approx(truth, rel=0.05)
    assert late.held_ns == pytest.approx(truth, rel=0.05)


def test_a_straggler_among_three_is_reported_within_5_percent(tmp_path):
    job = Job(lambda rank: delayed(rank, 2, 0.06, 15), 3, tmp_path)
    truth = statistics.median(
        statistics.mean((c - a, c - b)) for a, b, c in zip(*job.returned)
    )
    assert truth > 50 * MS
    late = make_document(job.traces, [], 0).summary.late[0]
    assert late.rank == 2
    assert late.held_ns == pytest.approx(truth, rel=0.05)
    assert "rank 2 held the others up" in job.text


def test_every_collective_is_seen_with_its_bytes(tmp_path):
    def body(rank):
        x, four = torch.ones(4), [torch.ones(4) for _ in range(2)]
        eight = torch.ones(8)
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        dist.broadcast(x.double(), src=1)
        dist.reduce(x, dst=1)
        dist.all_gather(four, x)
        dist.all_gather_into_tensor(eight, x)
        dist.reduce_scatter_tensor(x, eight)
        dist.all_to_all_single(eight, torch.ones(8))
        dist.gather(x, four if rank == 0 else None)
        dist.scatter(x, four if rank == 0 else None)
        if rank == 0:
            dist.send(x, 1, tag=7)
        else:
            dist.recv(x, 0, tag=7)
        dist.barrier()

    rows = Job(body, 2, tmp_path).traces[0].collectives
    assert [(r.kind, r.bytes, r.dtype) for r in rows] == [
        ("all_reduce", 16, "f32"),
        ("broadcast", 32, "f64"),
        ("reduce", 16, "f32"),
        ("all_gather", 32, "f32"),
        ("all_gather", 32, "f32"),
        ("reduce_scatter", 32, "f32"),
        ("all_to_all", 32, "f32"),
        ("gather", 32, "f32"),
        ("scatter", 32, "f32"),
        ("send", 16, "f32"),
        ("barrier", 0, ""),
    ]
    told = hasattr(dist.ReduceOp, "unbox")  # Not by PyTorch 2.11.
    assert [r.reduce_op for r in rows[:3]] == (
        ["max", "", "sum"] if told else ["", "", ""]
    )
    assert (rows[1].peer, rows[9].peer, rows[9].tag) == (1, 1, 7)
    assert all(r.issued <= r.returned <= r.completed for r in rows)


def test_the_buckets_of_ddp_are_seen_and_its_wait_is_no_compute(tmp_path):
    def body(rank):
        network = DistributedDataParallel(model(), bucket_cap_mb=0.03)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for number in range(4):
            loss = network(torch.ones(4, 64)).sum()
            if rank == 1:
                busy(0.05)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

    document = make_document(Job(body, 2, tmp_path).traces, [], 1)
    group = document.summary.groups[0]
    assert group.bytes == 4 * (64 * 64 + 64) * 4
    assert group.launches > 1
    step = document.run.steps[-1].ranks[0]
    assert step.exposed_ns > 35 * MS
    assert sum(c.late_ns.get(1, 0) for c in step.causes) > 35 * MS


def test_fsdp_gathers_and_scatters_are_seen(tmp_path):
    def body(rank):
        network = model()
        mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("dp",))
        for layer in network:
            fully_shard(layer, mesh=mesh)
        fully_shard(network, mesh=mesh)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(3):
            network(torch.ones(4, 64)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    run = make_document(Job(body, 2, tmp_path).traces, [], 1).run
    kinds = [name[0] for name, _, _ in run.steps[-1].ranks[0].calls]
    assert kinds.count("reduce_scatter") == 4
    assert kinds.count("all_gather") >= 4
    for step in run.steps:
        for name, _, row in step.ranks[0].calls:
            if name[0] == "all_gather":  # Of parameters, once updated.
                assert row.ready == step.ranks[0].begin


def test_a_collective_is_in_flight_until_it_completes_not_until_waited(tmp_path):
    def body(rank):
        def step():
            dist.barrier()
            work = dist.all_reduce(torch.ones(1000), async_op=True)
            busy(0.08)
            work.wait()

        updates(step, 9)

    run = make_document(Job(body, 2, tmp_path).traces, [], 0).run
    flights = [
        row.completed - row.issued
        for step in run.steps
        for name, _, row in step.ranks[0].calls
        if name[0] == "all_reduce"
    ]
    assert statistics.median(flights) < 40 * MS


def test_functional_and_compiled_collectives_are_seen(tmp_path):
    def body(rank):
        def double(x):
            return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

        compiled = torch.compile(double, backend="aot_eager")
        return float(double(torch.ones(2))[0]), float(compiled(torch.ones(2))[0])

    job = Job(body, 2, tmp_path)
    assert job.returned == [(5.0, 5.0)] * 2
    trace = job.traces[0]
    assert [r.kind for r in trace.collectives] == ["all_reduce"] * 2
    assert {k for wait in trace.waits for k in wait.collectives} == {0, 1}


def test_coalesced_calls_are_one_collective_of_their_bytes(tmp_path):
    def body(rank):
        tensors = [torch.ones(4), torch.ones(8)]
        with dist._coalescing_manager() as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        return [float(tensor[0]) for tensor in tensors]

    job = Job(body, 2, tmp_path)
    assert job.returned[0] == [2.0, 2.0]
    assert [(r.kind, r.bytes) for r in job.traces[0].collectives] == [
        ("all_reduce", 48)
    ]


def test_groups_are_told_apart(tmp_path):
    def body(rank):
        both = dist.new_group([0, 1], group_desc="pair")
        dist.new_group([2])
        if rank < 2:
            dist.all_reduce(torch.ones(1), group=both)
        dist.all_reduce(torch.ones(1))

    document = make_document(Job(body, 3, tmp_path).traces, [], 0)
    sizes = {g.label: g.ranks for g in document.summary.groups}
    assert sizes == {"pair": 2, "default_pg": 3}


def test_gradients_reduced_after_the_backward_are_to_be_issued_sooner(tmp_path):
    def body(rank):
        network = model(layers=6, width=512)
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
        for _ in range(6):
            network(torch.ones(256, 512)).sum().backward()
            for parameter in network.parameters():
                dist.all_reduce(parameter.grad)
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)

    document = make_document(Job(body, 2, tmp_path).traces, [], 2)
    advice = [a for a in document.advice if a.action == "sooner"]
    assert [len(a.what) for a in advice] == [12]
    ready = [r.ready for _, _, r in document.run.steps[-1].ranks[0].calls]
    assert ready == sorted(ready) or ready == sorted(ready, reverse=True)


def test_a_rank_that_fails_is_named_and_what_it_never_came_to(tmp_path):
    def body(rank):
        def step():
            dist.all_reduce(torch.ones(1))

        updates(step, 3)
        if rank == 1:
            raise RuntimeError("bad batch")
        dist.all_reduce(torch.ones(1))

    text = Job(body, 2, tmp_path).text
    assert "rank 1 ended with RuntimeError: bad batch" in text
    assert "all_reduce, call 3 of default_pg, did not complete on rank 0" in text
    assert "rank 1 never came to it" in text


def test_nothing_is_left_of_the_hooks(tmp_path):
    def body(rank):
        pass

    wait = dist.Work.wait
    run_backward = torch.autograd._engine_run_backward

    Job(body, 1, tmp_path)  # In another process; now in this one:
    from commsched.report import Report

    with Report(file=open(tmp_path / "text", "w")):
        assert dist.Work.wait is not wait
        assert torch.autograd._engine_run_backward is not run_backward
        assert "BackendSelect" in torch._C._dispatch_dump("c10d::allreduce_")
    assert dist.Work.wait is wait
    assert torch.autograd._engine_run_backward is run_backward
    assert "BackendSelect" not in torch._C._dispatch_dump("c10d::allreduce_")


def test_a_hook_that_fails_is_noted_and_the_script_goes_on(tmp_path):
    from commsched.report import torch_hooks

    def body(rank):
        def fail(*args):
            raise KeyError("no such thing")

        torch_hooks.TorchHooks._begin = fail
        tensor = torch.ones(1)
        dist.all_reduce(tensor)
        return float(tensor)

    job = Job(body, 2, tmp_path)
    assert job.returned == [2.0, 2.0]
    assert any("no such thing" in note for note in job.traces[0].notes)
