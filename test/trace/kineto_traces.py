"""Runs the writer and reads back what it wrote."""

import json
import os
import subprocess


class Written:
    """Traces of made-up steps, and our metrics of them, rank by rank."""

    def __init__(self, writer, folder, ranks=3, steps=8, grid_ns=1000, seed=1):
        subprocess.run(
            [writer, folder] + [str(n) for n in (ranks, steps, grid_ns, seed)],
            check=True,
        )
        self.trace_folder = os.path.join(folder, "traces")
        self.ranks = ranks
        self.steps = steps
        with open(os.path.join(folder, "metrics.json"), encoding="ascii") as f:
            self.metrics = json.load(f)

    def path(self, rank):
        return os.path.join(self.trace_folder, f"rank{rank}.json")

    def overlap_percent(self, rank):
        m = self.metrics[rank]
        return 100 * (m["comm_ns"] - m["exposed_ns"]) / m["comm_ns"]
