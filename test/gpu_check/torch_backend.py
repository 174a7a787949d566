"""The backend "commsched" of torch.distributed on CUDA tensors, beside "nccl".

torch_member.py runs it in its two processes, with the package on Python's path.
"""

import datetime

NUM_ELEMENTS = 1 << 16
STEPS = 5


def start(torch, backend, store, rank, size):
    """Makes the default process group; its ranks meet in `store`."""
    torch.distributed.init_process_group(
        backend, store=torch.distributed.PrefixStore(backend, store), rank=rank,
        world_size=size, timeout=datetime.timedelta(seconds=60))


class Checks:
    """Of the default process group, which is of backend commsched."""

    def __init__(self, torch):
        self.torch, self.dist = torch, torch.distributed
        self.rank, self.size = self.dist.get_rank(), self.dist.get_world_size()

    def _filled(self, value, count=NUM_ELEMENTS):
        return self.torch.full((count,), float(value), device="cuda")

    def collectives(self):
        total = self.size * (self.size + 1) / 2
        tensor = self._filled(self.rank + 1)
        self.dist.all_reduce(tensor)
        assert (tensor == total).all().item(), "all_reduce"
        whole = self._filled(0, NUM_ELEMENTS * self.size)
        self.dist.all_gather_into_tensor(whole, self._filled(self.rank + 1))
        part = self._filled(0)
        self.dist.reduce_scatter_tensor(part, whole)
        assert (part == self.size * (self.rank + 1)).all().item(), "reduce_scatter"
        strided = self._filled(self.rank + 1).view(2, -1).t()
        self.dist.all_reduce(strided)
        assert (strided == total).all().item(), "all_reduce of a strided tensor"
        self.dist.barrier()
        return "all-reduce, all-gather, reduce-scatter, barrier"

    def streams(self):
        """Calls are behind the work of the current stream, and waits make streams
        wait; the host goes on."""
        torch = self.torch
        side = torch.cuda.Stream()
        for i in range(50):
            tensor = self._filled(0)
            torch.cuda._sleep(100_000)
            tensor.add_(self.rank + i)
            work = self.dist.all_reduce(tensor, async_op=True)
            with torch.cuda.stream(side):
                work.wait()
                seen = tensor.clone()
            side.synchronize()
            expected = self.size * i + self.size * (self.size - 1) / 2
            assert (seen == expected).all().item(), f"call {i}"
        return "50 all-reduces, waited for on another stream"

    def pairs(self):
        peer = 1 - self.rank
        sent, received = self._filled(self.rank), self._filled(-1)
        ops = [self.dist.P2POp(self.dist.isend, sent, peer),
               self.dist.P2POp(self.dist.irecv, received, peer)]
        for work in self.dist.batch_isend_irecv(ops):
            work.wait()
        assert (received == peer).all().item()
        return "a send and a receive, batched"


def losses(torch, attach):
    """Of a small model whose ranks have other inputs; `attach` makes it parallel."""
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(),
                                torch.nn.Linear(128, 64)).cuda()
    model = attach(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + torch.distributed.get_rank())
    found = []
    for _ in range(STEPS):
        x = torch.randn(32, 64, device="cuda")
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def ddp(torch):
    return losses(torch, lambda model: torch.nn.parallel.DistributedDataParallel(
        model, device_ids=[torch.cuda.current_device()]))


def fsdp(torch):
    from torch.distributed.fsdp import fully_shard

    def attach(model):
        for layer in model:
            if list(layer.parameters()):
                fully_shard(layer)
        fully_shard(model)
        return model

    return losses(torch, attach)


def same(ours, theirs):
    for i, (a, b) in enumerate(zip(ours, theirs)):
        assert abs(a - b) <= 1e-5 * abs(b), f"step {i}: {a}, and {b} by nccl"
    return f"{len(ours)} losses, {ours[-1]:.6f} at last"


def run(torch, store, tell):
    """While the default group is of backend nccl; it is of commsched afterwards."""
    import commsched.torch
    dist = torch.distributed
    rank, size = dist.get_rank(), dist.get_world_size()
    reference = [ddp(torch), fsdp(torch)]
    dist.destroy_process_group()
    commsched.torch.register()
    start(torch, "commsched", store, rank, size)
    checks = Checks(torch)
    for name, check in (
            ("collectives", checks.collectives), ("streams", checks.streams),
            ("pairs", checks.pairs),
            ("DDP's losses", lambda: same(ddp(torch), reference[0])),
            ("FSDP2's losses", lambda: same(fsdp(torch), reference[1]))):
        try:
            tell("backend commsched of PyTorch: " + name, True, check())
        except Exception as error:  # The other rank's calls differ from here on.
            return tell("backend commsched of PyTorch: " + name, False,
                        why=f"{type(error).__name__}: {error}")
    dist.destroy_process_group()
    return True
