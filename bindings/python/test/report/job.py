"""Runs a function as the ranks of a job, with a report around it."""

import contextlib
import io
import multiprocessing
import time

import torch
import torch.distributed as dist

from commsched.report import Report

torch.set_num_threads(1)  # Before the fork: threads do not survive it.


def busy(seconds):
    """Computes for `seconds`; returns how long it really was."""
    begin = time.monotonic()
    while time.monotonic() - begin < seconds:
        pass
    return time.monotonic() - begin


def _rank(body, rank, size, store, options, queue):
    torch.manual_seed(0)
    text = io.StringIO()
    returned = None
    report = Report(file=text, skip=0, timeout_s=60, **options)
    with contextlib.suppress(RuntimeError), report:
        dist.init_process_group(
            "gloo", store=dist.FileStore(store, size), rank=rank, world_size=size
        )
        returned = body(rank)
        dist.destroy_process_group()
    document = report.document
    queue.put((rank, returned, document and document.run.traces, text.getvalue()))


class Job:
    """What the ranks returned and, of rank 0, the traces and the text."""

    def __init__(self, body, size, folder, **options):
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        store = str(folder / "store")
        ranks = [
            context.Process(
                target=_rank, args=(body, rank, size, store, options, queue)
            )
            for rank in range(size)
        ]
        for process in ranks:
            process.start()
        self.returned = [None] * size
        for _ in ranks:
            rank, returned, traces, text = queue.get(timeout=300)
            self.returned[rank] = returned
            if rank == 0:
                self.traces, self.text = traces, text
        for process in ranks:
            process.join()
