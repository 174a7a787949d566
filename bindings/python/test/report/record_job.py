"""record_job.py FOLDER: a job of DDP over Gloo; the ranks' traces go to FOLDER."""

import pathlib
import sys

import torch
from torch.nn.parallel import DistributedDataParallel

from job import Job


def train(rank):
    layers = [torch.nn.Linear(256, 256) for _ in range(6)]
    network = DistributedDataParallel(
        torch.nn.Sequential(*layers), bucket_cap_mb=0.3
    )
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-4)
    for _ in range(8):
        network(torch.ones(64, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    folder = pathlib.Path(sys.argv[1])
    for trace in Job(train, 2, folder).traces:
        (folder / f"rank{trace.rank}").write_text(trace.to_json())
