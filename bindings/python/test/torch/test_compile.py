"""torch.compile: compiled trainings and functional collectives give what Gloo gives."""

from __future__ import annotations

import contextlib
import os
import pathlib
from typing import Any, Callable, Dict, Iterator, List

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch._dynamo.testing import CompileCounterWithBackend
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import model
from test_training import shard, train

Graphs = CompileCounterWithBackend
Body = Callable[[Any, Any, Graphs], model.Trained]
COMPILED: Dict[str, Body] = {}


def compiled(body: Body) -> Body:
    COMPILED[body.__name__] = body
    return body


@compiled
def ddp(rank, group, graphs):
    """In several buckets, by which torch.compile cuts the graph."""
    network = model.gpt(width=128, layers=2)
    module = DistributedDataParallel(network, process_group=group, bucket_cap_mb=1)
    trained = train(rank, torch.compile(module, backend=graphs), network)
    assert len(graphs.graphs) > 1
    return trained


@compiled
def fsdp2(rank, group, graphs):
    network = shard(model.gpt(layers=2), group)
    return train(rank, torch.compile(network, backend=graphs), network)


@compiled
def fsdp2_of_compiled_blocks(rank, group, graphs):
    network = model.gpt(layers=2)
    for block in network.blocks:
        block.compile(backend=graphs)
    return train(rank, shard(network, group), network)


@compiled
def functional_collectives(rank, group, graphs):
    size = rank.size
    mine = torch.arange(12.0).reshape(4, 3) + rank.rank
    parts = torch.arange(6.0 * size).reshape(2 * size, 3) * (rank.rank + 1)

    def body(mine, parts):
        return {
            "all_reduce": functional.all_reduce(mine * 2, "sum", group) + 1,
            "all_gather": functional.all_gather_tensor(mine + 1, 0, group) * 2,
            "reduce_scatter": functional.reduce_scatter_tensor(parts * 3, "avg", 0,
                                                               group),
            "all_to_all": functional.all_to_all_single(parts, None, None, group),
            "broadcast": functional.broadcast(mine - 1, 1, group),
            "coalesced": torch.stack(functional.all_reduce_coalesced(
                [mine, mine * mine], "max", group)),
        }

    found = torch.compile(body, backend=graphs, fullgraph=True)(mine, parts)
    collectives = collectives_of(graphs)
    assert collectives == ["all_reduce", "all_gather_into_tensor",
                           "reduce_scatter_tensor", "all_to_all_single", "broadcast",
                           "all_reduce_coalesced"]
    return [], {name: tensor + 0 for name, tensor in found.items()}


@compiled
def collectives_in_place(rank, group, graphs):
    """As scripts call them; PyTorch makes functional ones of them."""

    def body(mine):
        whole = torch.empty(rank.size * mine.numel())
        dist.all_gather_into_tensor(whole, mine, group=group)
        dist.all_reduce(mine, group=group)
        part = torch.empty(mine.numel())
        dist.reduce_scatter_tensor(part, whole, group=group)
        return mine + part

    mine = torch.arange(6.0) + rank.rank
    found = torch.compile(body, backend=graphs, fullgraph=True)(mine)
    assert len(collectives_of(graphs)) == 3
    return [], {"found": found, "mine": mine}


@compiled
def gradients_through_collectives(rank, group, graphs):
    mine = (torch.arange(8.0) + rank.rank + 1).requires_grad_()

    def body(mine):
        whole = functional.all_gather_tensor_autograd(mine, 0, group).square()
        part = functional.reduce_scatter_tensor_autograd(whole, "sum", 0, group)
        moved = functional.all_to_all_single_autograd(
            part, [8 // rank.size] * rank.size, [8 // rank.size] * rank.size, group)
        return moved.square().sum()

    loss = torch.compile(body, backend=graphs, fullgraph=True)(mine)
    loss.backward()
    assert len(collectives_of(graphs)) == 3
    return [loss.item()], {"grad": mine.grad}


@compiled
def dtensor(rank, group, graphs):
    """Two layers, cut by columns and by rows."""
    mesh = DeviceMesh.from_group(group, "cpu")
    torch.manual_seed(3)
    x = distribute_tensor(torch.randn(4, 6), mesh, [Replicate()])
    up = distribute_tensor(torch.randn(6, 24, requires_grad=True), mesh, [Shard(1)])
    down = distribute_tensor(torch.randn(24, 6, requires_grad=True), mesh, [Shard(0)])

    def body(x, up, down):
        return ((x @ up).relu() @ down).redistribute(mesh, [Replicate()]).to_local()

    loss = torch.compile(body, backend=graphs, fullgraph=True)(x, up, down)
    loss.square().sum().backward()
    return [loss.square().sum().item()], {
        "up": up.grad.full_tensor(), "down": down.grad.full_tensor()}


def collectives_of(graphs: Graphs) -> List[str]:
    """The functional collectives that were traced."""
    found = [str(node.target) for graph in graphs.graphs for node in graph.graph.nodes]
    return [name.split(".")[1] for name in found
            if name.startswith("_c10d_functional") and "wait_tensor" not in name]


@contextlib.contextmanager
def afresh(cache: str) -> Iterator[None]:
    """Nothing is found that another training has compiled."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    torch._dynamo.reset()
    with torch._inductor.config.patch(compile_threads=1):
        yield
    torch._dynamo.reset()


def on_both(rank: Any, name: str, backend: str, cache: str) -> Any:
    trained = []
    for group in (rank.gloo, rank.ours):
        graphs = CompileCounterWithBackend(backend)
        with afresh(cache):
            trained.append(COMPILED[name](rank, group, graphs))
        assert graphs.frame_count > 0
    return trained


@pytest.mark.parametrize("name", list(COMPILED))
def test_compiled_programs_give_what_gloo_gives(
        any_pool: Any, name: str, request: pytest.FixtureRequest,
        tmp_path: pathlib.Path) -> None:
    backend = request.config.getoption("--compile-with")
    for gloo, ours in any_pool.run(on_both, name, backend, str(tmp_path)):
        assert model.difference(gloo, ours) <= 1e-6
