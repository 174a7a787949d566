"""One of two processes that import PyTorch and share a device with it.

    torch_member.py LIBRARIES

The part "torch" of gpu_check starts them, each a host of its own to NCCL, and
gives them what a rank of a job gets (COMMSCHED_RANK and its like) and
GPU_CHECK_STORE, a file by which torch.distributed meets. LIBRARIES is a folder
with libcommsched and the libraries that it needs. A line of JSON for each check
goes to file descriptor 3. Exit codes: 0 all hold or PyTorch is missing, 1 one
does not.
"""

import ctypes
import glob
import json
import os
import signal
import sys
import threading
import traceback
from ctypes import byref

import binding
import torch_backend

RESULTS = 3
OLDEST_TORCH = (2, 11)
NUM_BUCKETS = 8
NUM_ELEMENTS = 1 << 16
TIMEOUT_NS = 60 * 10**9


def tell(check, ok, figures="", why=""):
    why = why.partition("\n")[0]  # PyTorch adds what there is to try.
    line = json.dumps({"check": check, "ok": ok, "figures": figures, "why": why})
    os.write(RESULTS, (line + "\n").encode())
    return ok is not False


def is_loaded(name):
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def load_commsched(folder):
    """The binding. The folder's libraries are loaded by their paths, each as soon as
    those that it needs are there, since the loader's search path is PyTorch's; what
    the process has already stays."""
    files = {each for each in glob.glob(f"{folder}/*.so*") if not os.path.islink(each)}
    ours = {each for each in files
            if os.path.basename(each).startswith("libcommsched")}
    core = [each for each in ours if "/libcommsched.so" in each]
    if not core:
        raise OSError(f"no libcommsched in {folder}")
    left = {each for each in files - ours if not is_loaded(os.path.basename(each))}
    while left:
        loaded, errors = set(), []
        for path in sorted(left):
            try:
                ctypes.CDLL(path)
                loaded.add(path)
            except OSError as error:
                errors.append(str(error))
        if not loaded:
            print("torch_member:", *errors, sep="\n  ", file=sys.stderr)
            break
        left -= loaded
    return binding.Binding({"commsched": core[0]})


class Rank:
    """This process as a rank of the job, on device 0."""

    def __init__(self, lib):
        self.lib = lib
        desc = lib.struct("commsched_join_desc_t", backend=b"nccl", device=0,
                          device_kind=lib.COMMSCHED_DEVICE_CUDA)
        world = self.new("commsched_world_t", lib.commsched_world_join, byref(desc))
        self.rank = lib.commsched_world_rank(world)
        self.size = lib.commsched_world_size(world)
        self.context = self.new("commsched_context_t", lib.commsched_context_create,
                                world, self.rank)
        lib.commsched_world_destroy(world)

    def ok(self, status):
        if status:
            raise RuntimeError(self.lib.commsched_last_error().decode())

    def new(self, kind, make, *arguments):
        made = self.lib.handle(kind)
        self.ok(make(*arguments, byref(made)))
        return made

    def new_id(self, make, *arguments):
        made = ctypes.c_uint32()
        self.ok(make(*arguments, byref(made)))
        return made.value

    def close(self):
        self.lib.commsched_context_destroy(self.context)


class Step:
    """A session whose step writes each of `buckets`, tensors of PyTorch's, on
    `stream`, one of its streams, sums them over the ranks in place, and reads them."""

    def __init__(self, rank, buckets, stream):
        self.rank, self.lib, self.buckets = rank, rank.lib, buckets
        self.stream = stream
        self.lane = self.lib.struct("commsched_stream_t", native=stream.cuda_stream,
                                    kind=self.lib.COMMSCHED_STREAM_CUDA)
        graph = rank.new("commsched_graph_t", self.lib.commsched_graph_create)
        self._declare(graph)
        options = self.lib.struct("commsched_plan_options_t", backend=b"nccl")
        plan = rank.new("commsched_plan_t", self.lib.commsched_plan_build, graph,
                        byref(options), None)
        self.lib.commsched_graph_destroy(graph)
        self.session = self._create(plan)
        self.lib.commsched_plan_destroy(plan)

    def _declare(self, graph):
        lib, rank = self.lib, self.rank
        access = type(lib.struct("commsched_access_t"))
        rank.new_id(lib.commsched_graph_add_group, graph, b"dp", rank.size)
        self.ids, self.writes = [], []
        for i, bucket in enumerate(self.buckets):
            desc = lib.struct("commsched_buffer_desc_t", name=b"bucket%d" % i,
                              dtype=lib.COMMSCHED_F32, count=bucket.numel(),
                              ownership=lib.COMMSCHED_BOUND)
            self.ids.append(
                rank.new_id(lib.commsched_graph_add_buffer, graph, byref(desc)))
            written = (access * 1)(access(buffer=self.ids[i],
                                          mode=lib.COMMSCHED_WRITE))
            desc = lib.struct("commsched_compute_desc_t", name=b"write%d" % i,
                              accesses=written, num_accesses=1)
            self.writes.append(
                rank.new_id(lib.commsched_graph_add_compute, graph, byref(desc)))
            desc = lib.struct("commsched_collective_desc_t", name=b"sum%d" % i,
                              kind=lib.COMMSCHED_ALL_REDUCE,
                              reduce_op=lib.COMMSCHED_SUM)
            desc.input.buffer = desc.output.buffer = self.ids[i]
            rank.new_id(lib.commsched_graph_add_collective, graph, byref(desc))
        read = (access * len(self.ids))(
            *[access(buffer=i, mode=lib.COMMSCHED_READ) for i in self.ids])
        desc = lib.struct("commsched_compute_desc_t", name=b"read", accesses=read,
                          num_accesses=len(self.ids))
        self.read = rank.new_id(lib.commsched_graph_add_compute, graph, byref(desc))

    def _create(self, plan):
        lib, rank = self.lib, self.rank
        ranks = (ctypes.c_int32 * rank.size)(*range(rank.size))
        group = rank.new("commsched_group_t", lib.commsched_group_create,
                         rank.context, b"dp", ranks, rank.size)
        groups = (type(group) * 1)(group)
        kind = type(lib.struct("commsched_binding_t"))
        bound = (kind * len(self.buckets))(
            *[kind(buffer=i, address=t.data_ptr(), bytes=t.numel() * 4)
              for i, t in zip(self.ids, self.buckets)])
        lanes = (type(self.lane) * 1)(self.lane)
        desc = lib.struct("commsched_session_desc_t", context=rank.context, plan=plan,
                          groups=groups, num_groups=1, bindings=bound,
                          num_bindings=len(bound), lanes=lanes, num_lanes=1,
                          launch_timeout_ns=TIMEOUT_NS)
        session = rank.new("commsched_session_t", lib.commsched_session_create,
                           byref(desc))
        lib.commsched_group_destroy(group)
        return session

    def enqueue(self, write, read):
        """The ops of a step: `write(i)` enqueues what writes bucket i, `read()` what
        reads them all; on self.stream, which is PyTorch's current one."""
        for i, op in enumerate(self.writes):
            self.rank.ok(self.lib.commsched_session_before(self.session, op, self.lane))
            write(i)
            self.rank.ok(self.lib.commsched_session_after(self.session, op, self.lane))
        self.rank.ok(
            self.lib.commsched_session_before(self.session, self.read, self.lane))
        read()
        self.rank.ok(
            self.lib.commsched_session_after(self.session, self.read, self.lane))

    def run(self, write, read):
        self.rank.ok(self.lib.commsched_session_step_begin(self.session))
        self.enqueue(write, read)
        self.rank.ok(self.lib.commsched_session_step_end(self.session))

    def drain(self):
        self.rank.ok(self.lib.commsched_session_drain(self.session))

    def close(self):
        self.lib.commsched_session_destroy(self.session)


class Checks:

    def __init__(self, torch, rank):
        self.torch, self.rank = torch, rank
        self.stream = torch.cuda.Stream()
        with torch.cuda.stream(self.stream):
            self.buckets = [torch.zeros(NUM_ELEMENTS, device="cuda")
                            for _ in range(NUM_BUCKETS)]
            self.bad = torch.zeros(NUM_BUCKETS, dtype=torch.int64, device="cuda")
        self.stream.synchronize()
        self.step = Step(rank, self.buckets, self.stream)
        self.num_steps = 0

    def value(self, rank, step, bucket):
        return float(1 + rank + 2 * (step % 64) + 3 * bucket)

    def total(self, step, bucket):
        return sum(self.value(r, step, bucket) for r in range(self.rank.size))

    def run_step(self, between=None):
        """`between(i)`: enqueues more after bucket i. Allocates nothing of PyTorch's
        but small temporaries of the comparison."""
        step = self.num_steps
        self.num_steps += 1

        def write(i):
            self.buckets[i].fill_(self.value(self.rank.rank, step, i))
            if between:
                between(i)

        def read():
            for i, bucket in enumerate(self.buckets):
                self.bad[i] += (bucket != self.total(step, i)).sum()

        self.step.run(write, read)

    def check_buckets(self):
        self.stream.synchronize()
        bad = self.bad.tolist()
        self.bad.zero_()
        self.torch.cuda.synchronize()
        assert not any(bad), f"elements of each bucket that are wrong: {bad}"

    def on_our_stream(self):
        """A session's sums on PyTorch's stream and memory."""
        with self.torch.cuda.stream(self.stream):
            for _ in range(20):
                self.run_step()
            self.step.drain()
            self.check_buckets()
        return f"20 steps of {NUM_BUCKETS} all-reduces"

    def between_torchs_own(self):
        """All-reduces of torch.distributed in the middle of our steps."""
        dist = self.torch.distributed
        own = self.torch.zeros(NUM_ELEMENTS, device="cuda")
        wrong = self.torch.zeros(1, dtype=self.torch.int64, device="cuda")
        self.torch.cuda.synchronize()
        expected = self.rank.size * (self.rank.size + 1) / 2

        def between(i):
            if i % 3 != 1:
                return
            own.fill_(self.rank.rank + 1.0)
            dist.all_reduce(own)
            wrong.add_((own != expected).sum())

        with self.torch.cuda.stream(self.stream):
            for _ in range(20):
                self.run_step(between)
            self.step.drain()
            self.check_buckets()
        assert wrong.item() == 0, f"{wrong.item()} elements of PyTorch's are wrong"
        return "20 steps, 60 all-reduces of PyTorch's between"

    def capture_beside(self, body):
        """A graph of PyTorch's, captured in CUDA's global mode while another thread
        runs `body` on our stream."""
        torch = self.torch
        failed = []

        def run():
            try:
                with torch.cuda.stream(self.stream):
                    body()
            except Exception as error:  # Told by the thread that captures.
                failed.append(error)

        x = torch.ones(NUM_ELEMENTS, device="cuda")
        y = torch.zeros(NUM_ELEMENTS, device="cuda")
        graph = torch.cuda.CUDAGraph()
        thread = threading.Thread(target=run)
        try:
            with torch.cuda.graph(graph):
                y.copy_(x)
                thread.start()
                for _ in range(50):
                    y.add_(x)
                thread.join()
                y.add_(x)
        finally:
            if thread.ident:
                thread.join()
            if failed:
                raise failed[0]
        for _ in range(3):
            graph.replay()
        assert (y == 52).all().item(), f"the graph gives {y[0].item()}, not 52"

    def fill(self, i):
        self.buckets[i].fill_(self.value(self.rank.rank, 0, i))

    def beside_pytorch_alone(self):
        """What PyTorch's own ops in that thread do: nothing, or the next would say
        nothing of ours."""
        self.capture_beside(lambda: [self.fill(i) for i in range(NUM_BUCKETS)])
        return "a control, without calls of ours"

    def beside_steps(self):
        """After captured_by_torch: NCCL may still count the graph's launches, and looks
        at events in the mode of the thread that launches."""
        def body():
            for _ in range(20):
                self.step.run(self.fill, lambda: None)

        self.capture_beside(body)
        self.step.drain()
        for i, bucket in enumerate(self.buckets):
            wrong = (bucket != self.total(0, i)).sum().item()
            assert wrong == 0, f"{wrong} elements of bucket {i} are wrong"
        return "20 steps during it, 3 replays"

    def beside_drains(self):
        def body():
            for _ in range(5):
                self.step.run(self.fill, lambda: None)
                self.step.drain()

        self.capture_beside(body)
        return "5 steps and drains during it, 3 replays"

    def captured_by_torch(self):
        """A step of ours within torch.cuda.graph, launched between plain ones."""
        torch, lib = self.torch, self.rank.lib
        given = torch.zeros(NUM_BUCKETS, device="cuda")
        seen = [torch.zeros(NUM_ELEMENTS, device="cuda") for _ in self.buckets]

        def write(i):
            self.buckets[i].copy_(given[i].expand(NUM_ELEMENTS))

        def read():
            for mine, bucket in zip(seen, self.buckets):
                mine.copy_(bucket)

        graph = torch.cuda.CUDAGraph()
        step, session, lane = self.step, self.step.session, self.step.lane
        with torch.cuda.graph(graph, stream=self.stream):
            self.rank.ok(lib.commsched_session_capture_begin(session, lane))
            try:
                step.enqueue(write, read)
            finally:
                ended = lib.commsched_session_capture_end(session)
            self.rank.ok(ended)
        for i in range(6):
            with torch.cuda.stream(self.stream):
                if i % 3 == 2:
                    self.run_step()
                given.copy_(torch.tensor(
                    [self.value(self.rank.rank, i, b) for b in range(NUM_BUCKETS)]))
                self.rank.ok(lib.commsched_session_replay_begin(session, lane))
                graph.replay()
                self.rank.ok(lib.commsched_session_replay_end(session))
                for b, mine in enumerate(seen):
                    wrong = (mine != self.total(i, b)).sum().item()
                    assert wrong == 0, f"launch {i}: {wrong} wrong in bucket {b}"
        self.step.drain()
        graph.reset()
        self.check_buckets()
        return "6 launches of the graph, 2 plain steps between"

    def run(self):
        held = True
        whole = "a foreign torch.cuda.graph stays whole beside "
        # The last ones concern a rank alone: all can be tried.
        for name, check, concerns_all in (
                ("a session on PyTorch's streams and memory", self.on_our_stream, True),
                ("PyTorch's all-reduces between a session's", self.between_torchs_own,
                 True),
                ("a step that torch.cuda.graph captures", self.captured_by_torch, True),
                (whole + "PyTorch alone", self.beside_pytorch_alone, False),
                (whole + "a session's steps", self.beside_steps, False),
                (whole + "its drains", self.beside_drains, False)):
            try:
                tell(name, True, check())
            except Exception as error:
                traceback.print_exc()
                held = tell(name, False, why=f"{type(error).__name__}: {error}")
                if not concerns_all:
                    continue
                # The other rank would wait for steps that are not made any more.
                self.rank.lib.commsched_session_abort(self.step.session,
                                                      b"a check failed")
                return False
        return held


def main(libraries):
    try:
        import torch
    except ImportError as error:
        tell("PyTorch", None, why=f"{sys.executable} has no PyTorch: {error}")
        return 0
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < OLDEST_TORCH or not torch.cuda.is_available():
        tell("PyTorch", None, why=f"PyTorch {torch.__version__} is older than "
             f"{'.'.join(map(str, OLDEST_TORCH))}, or finds no CUDA device")
        return 0
    import torch.distributed as dist
    torch.cuda.set_device(0)
    size = int(os.environ["COMMSCHED_WORLD_SIZE"])
    store = dist.FileStore(os.environ["GPU_CHECK_STORE"], size)
    torch_backend.start(torch, "nccl", store, int(os.environ["COMMSCHED_RANK"]), size)
    first = torch.ones(4, device="cuda")
    dist.all_reduce(first)
    tell("PyTorch's ranks share a device",
         first.tolist() == [float(dist.get_world_size())] * 4,
         f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
         f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    rank = Rank(load_commsched(libraries))
    checks = Checks(torch, rank)
    held = checks.run()
    checks.step.close()
    rank.close()
    if held:
        held = torch_backend.run(torch, store, tell)
    return 0 if held else 1


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: with the part.
    try:
        code = main(sys.argv[1])
    except Exception as failure:
        traceback.print_exc()
        tell("the checks with PyTorch", False,
             why=f"{type(failure).__name__}: {failure}")
        code = 1
    sys.stderr.flush()
    # Without the ends of threads that wait for a peer which has failed.
    os._exit(code)
